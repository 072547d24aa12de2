// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/refusals.h"
#include "state/access.h"
#include "state/collective.h"
#include "step/enter.h"

namespace zero {
namespace {

constexpr int64_t kGatheredBytes = 1 << 20;

/// One gather on one rank.
class Gather {
 public:
  Gather(Call& call, Optimizer& optim, int32_t to, void* values)
      : call_(call),
        optim_(optim),
        to_(to),
        receives_(to == ZERO_ALL_RANKS || to == call.rank()),
        values_(static_cast<std::byte*>(values)) {}

  /// Checks everything that this rank can check alone.
  Status check(int64_t param, const char* name, size_t count) {
    tensor_ = ZERO_TRY(find_tensor(optim_, param, name));
    if (to_ < ZERO_ALL_RANKS || to_ >= call_.world())
      return bad_argument("to is rank ", to_, ", which does not exist in a world of ",
                          call_.world());
    ZERO_TRY(optim_.check_loaded());
    ZERO_TRY(optim_.check_ended());
    if (!receives_) return {};
    const Param& of = optim_.params[static_cast<size_t>(param)];
    if (count != static_cast<size_t>(of.count))
      return bad_argument("values has room for ", count, " elements, but parameter '", of.name,
                          "' has ", of.count);
    return check_range(optim_, {param, 0, of.count}, values_);
  }

  Status run() {
    ZERO_TRY(check_live(optim_, tensor_));  // agreed, so the same on every rank
    const Param& of = optim_.params[static_cast<size_t>(tensor_.param)];
    element_ = static_cast<int64_t>(size_of(sum_dtype(of.dtype)));
    ZERO_TRY(call_.vote("ready", make_room(of.count * element_)));
    for (const OwnedSegment& part : optim_.plan.segments_of(tensor_.param)) {
      const auto pass_on = [&](const Segment& chunk, int64_t) { return pass(part.owner, chunk); };
      ZERO_TRY(in_chunks(part.segment, kGatheredBytes / element_, pass_on));
    }
    return {};
  }

 private:
  /// Allocates memory on every rank, although not all ranks use it, because the ranks vote on
  /// whether there is enough.
  Status make_room(int64_t tensor_bytes) {
    windows_ = ZERO_TRY(windows_of(optim_));
    scratch_ = ZERO_TRY(HostMemory::allocate(
        static_cast<size_t>(std::min(kGatheredBytes, tensor_bytes)), "a chunk of the state"));
    return {};
  }

  Status pass(int32_t owner, const Segment& chunk) {
    const bool mine = owner == call_.rank();
    const bool needs_none = !receives_ && !mine && optim_.comm->direct();
    std::byte* const at = receives_    ? values_ + chunk.first * element_
                          : needs_none ? nullptr
                                       : scratch_.data();
    if (mine && (receives_ || owner != to_)) {
      const Status copied = copy_out(optim_, *windows_, tensor_, chunk, at);
      if (!copied.ok()) return call_.abort(copied, "chunk");  // the other ranks wait for it
    }
    if (owner != to_ && call_.world() > 1)
      ZERO_TRY(call_.broadcast("chunk", {at, static_cast<size_t>(chunk.count * element_)}, owner));
    call_.progress();
    return {};
  }

  Call& call_;
  Optimizer& optim_;
  const int32_t to_;
  const bool receives_;
  std::byte* const values_;
  StateTensor tensor_;
  int64_t element_ = 0;
  Windows* windows_ = nullptr;
  HostMemory scratch_;
};

}  // namespace

Status gather_state(Call& call, Optimizer& optim, int64_t param, const char* name, int32_t to,
                    void* values, size_t count) {
  Gather gather(call, optim, to, values);
  ZERO_TRY(enter(
      call, optim,
      {.local = gather.check(param, name, count),
       .args = text("parameter ", param, "\nstate ", name ? name : "NULL", "\nto ", to, "\n")}));
  return gather.run();
}

}  // namespace zero
