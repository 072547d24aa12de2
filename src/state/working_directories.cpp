// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/text.h"
#include "base/working_directory.h"
#include "state/collective.h"

namespace zero {

Status with_working_directories(Call& call, std::string_view path, Status status) {
  if (status.ok() || path.empty() || path[0] == '/') return status;
  const auto all = call.gather("working directories", working_directory());
  if (!all.ok()) return status;  // the comm is broken, which the failure says
  const std::vector<std::string>& of = *all;
  const auto other =
      std::find_if(of.begin(), of.end(), [&](const std::string& one) { return one != of[0]; });
  if (other == of.end()) return status;
  return {status.code(), text(status.text(), "; '", path,
                              "' is relative, and the working directory of rank 0 is '", of[0],
                              "', that of rank ", other - of.begin(), " is '", *other, "'")};
}

}  // namespace zero
