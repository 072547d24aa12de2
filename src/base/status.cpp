// SPDX-License-Identifier: Apache-2.0
// Names of the status constants.
#include "base/status.h"

#include <iterator>

namespace zero {
namespace {

/// Names of the codes, starting at -1 and counting down.
constexpr const char* kErrorNames[] = {
    "ZERO_ERR_ARGUMENT",     "ZERO_ERR_STATE",         "ZERO_ERR_BUSY",
    "ZERO_ERR_FORKED",       "ZERO_ERR_UNSUPPORTED",   "ZERO_ERR_MEMORY",
    "ZERO_ERR_MISMATCH",     "ZERO_ERR_PEER",          "ZERO_ERR_CKPT_IO",
    "ZERO_ERR_CKPT_INVALID", "ZERO_ERR_CKPT_MISMATCH", "ZERO_ERR_NOT_LOADED",
    "ZERO_ERR_RENDEZVOUS",   "ZERO_ERR_TIMEOUT",       "ZERO_ERR_PEER_DEAD",
    "ZERO_ERR_DESYNC",       "ZERO_ERR_COMM",          "ZERO_ERR_ABORTED",
    "ZERO_ERR_SYSTEM",       "ZERO_ERR_NONFINITE",     "ZERO_ERR_CALLBACK",
    "ZERO_ERR_INTERRUPTED"};
static_assert(ZERO_ERR_ARGUMENT == -1 && std::size(kErrorNames) == -ZERO_ERR_INTERRUPTED);

}  // namespace

const char* code_name(Code code) {
  if (code == ZERO_OK) return "ZERO_OK";
  if (code == ZERO_SKIPPED) return "ZERO_SKIPPED";
  if (code == ZERO_ERR_INTERNAL) return "ZERO_ERR_INTERNAL";
  if (code > ZERO_OK || code < ZERO_ERR_INTERRUPTED) return nullptr;
  return kErrorNames[-code - 1];
}

}  // namespace zero
