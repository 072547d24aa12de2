// SPDX-License-Identifier: Apache-2.0
// Copies the part of a state tensor that this rank owns to and from the caller's memory, as fp32,
// or as fp64 if the parameter is fp64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "optim/optimizer.h"
#include "step/memory.h"

namespace zero {

/// Returns the size of an element in bytes as callers see it. No stored form is larger.
inline size_t element_bytes(const Optimizer& optim, int64_t param) {
  return size_of(sum_dtype(optim.params[static_cast<size_t>(param)].dtype));
}

/// Calls visit(chunk, elements before it) for consecutive chunks of a segment, of at most `most`
/// elements each.
template <class Visit>
Status in_chunks(const Segment& all, int64_t most, const Visit& visit) {
  for (int64_t done = 0; done < all.count;) {
    const Segment chunk = all.part(done, std::min(most, all.count - done));
    ZERO_TRY(visit(chunk, done));
    done += chunk.count;
  }
  return {};
}

/// The elements [first, first + count) of a parameter.
struct Range {
  int64_t param, first, count;
};

/// A state tensor: a slot of a parameter, or kParameterItself if the parameter itself is updated.
struct StateTensor {
  int64_t param = 0;
  int slot = 0;
};

/// Returns true if the slot holds master weights that are stored as 16-bit values and remainders.
inline bool keeps_remainders(const Optimizer& optim, int64_t param, int slot) {
  return slot == kMasterSlot && master_of(optim.params[static_cast<size_t>(param)].dtype,
                                          optim.options) == Master::remainder;
}

/// Returns the tensor `name` of a registered parameter. Null means the values that steps update:
/// the master weights or the parameter. Fails with ZERO_ERR_ARGUMENT if there is no such tensor.
Result<StateTensor> find_tensor(const Optimizer& optim, int64_t param, const char* name);
/// Fails with ZERO_ERR_STATE if the tensor holds nothing yet.
Status check_live(const Optimizer& optim, const StateTensor& tensor);
Status check_sealed(const Optimizer& optim, int64_t param);
/// Checks that the elements exist, and that `values` is aligned host memory.
Status check_range(const Optimizer& optim, const Range& range, const void* values);

/// Copies a part of the tensor to `out`. This rank must own `part`.
Status copy_out(const Optimizer& optim, Windows& windows, const StateTensor& tensor,
                const Segment& part, std::byte* out);

/// Read and write master weights that are stored as values and remainders, a few at a time: visit()
/// receives joined master weights; fill() provides those to split. This rank must own `part`.
Status join_masters(const Optimizer& optim, Windows& windows, const Segment& part,
                    const std::function<Status(std::span<const float>)>& visit);
Status split_masters(const Optimizer& optim, Windows& windows, const Segment& part,
                     const std::function<Status(std::span<float>)>& fill);

/// Returns the parts of a range that this rank owns, in ascending order.
std::vector<Segment> owned_parts(const Optimizer& optim, const Range& range);
/// Fails with ZERO_ERR_ARGUMENT if this rank does not own all of the range.
Status check_owned(const Optimizer& optim, const Range& range);

/// Calls visit(part, address of the part in `values`) for each part of a range that this rank owns.
template <class Byte, class Visit>
Status for_each_owned(const Optimizer& optim, const Range& range, Byte* values,
                      const Visit& visit) {
  const size_t element = element_bytes(optim, range.param);
  for (const Segment& part : owned_parts(optim, range))
    ZERO_TRY(visit(part, values + static_cast<size_t>(part.first - range.first) * element));
  return {};
}

Status get_state(Optimizer& optim, const Range& range, const char* name, void* values);
Status set_state(Optimizer& optim, const Range& range, const char* name, const void* values);
Result<double> get_scalar(const Optimizer& optim, int64_t param, std::string_view name);
Status set_scalar(Optimizer& optim, int64_t param, std::string_view name, double value);

}  // namespace zero
