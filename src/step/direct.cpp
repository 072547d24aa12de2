// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <numeric>

#include "base/os.h"
#include "step/reduce.h"
#include "step/walks.h"

namespace zero::direct {

NormSums sum(Call& call, Optimizer& optim, StepMemory& memory, double p) {
  os().reached("gather.begin");
  NormSums record = reduce_share(call, optim, memory, p);
  os().reached("gather.reduced");
  return record;
}

Status publish(Call& call, Optimizer& optim, StepMemory& memory, uint64_t* nonfinite) {
  os().reached("publish.begin");
  if (memory.outbox_used) {
    ZERO_TRY(call.exchange("publish: owners have written", uint64_t{0}));
    for (const Pull& pull : memory.pulls) {
      std::memcpy(pull.to, pull.from, pull.bytes);
      optim.counters.copied_bytes += static_cast<int64_t>(pull.bytes);
    }
    os().reached("publish.pulled");
  }
  const std::vector<uint64_t> all = ZERO_TRY(call.exchange("publish", *nonfinite));
  *nonfinite = std::accumulate(all.begin(), all.end(), uint64_t{0});
  os().reached("publish.done");
  return Status();
}

}  // namespace zero::direct
