// SPDX-License-Identifier: Apache-2.0
// One tensor of the state at a time, in and out of the caller's memory: what this rank owns of it,
// as fp32, or fp64 for parameters of fp64.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "optim/optimizer.h"
#include "step/windows.h"

namespace zero {

/// A state tensor: a slot of a parameter, or kParameterItself where that is what is updated.
struct StateTensor {
  int64_t param = 0;
  int slot = 0;
};

/// The tensor `name` of a registered parameter; null: the values that are updated.
Result<StateTensor> find_tensor(const Optimizer& optim, int64_t param, const char* name);
/// ZERO_ERR_STATE if the tensor holds nothing yet.
Status check_live(const Optimizer& optim, const StateTensor& tensor);
Status check_sealed(const Optimizer& optim, int64_t param);
/// That there are elements [first, first + count), and memory for them.
Status check_range(const Optimizer& optim, int64_t param, int64_t first, int64_t count,
                   const void* values);

/// This rank's part of the tensor to `out`; `part` is owned.
Status copy_out(const Optimizer& optim, Windows& windows, const StateTensor& tensor,
                const Segment& part, std::byte* out);

/// What this rank owns of elements [first, first + count), by rising element.
std::vector<Segment> owned_parts(const Optimizer& optim, int64_t param, int64_t first,
                                 int64_t count);
/// ZERO_ERR_ARGUMENT if `owned` of elements [first, first + count) are not all.
Status check_owned(const Optimizer& optim, int64_t param, int64_t first, int64_t count);

Status get_state(Optimizer& optim, int64_t param, const char* name, int64_t first, int64_t count,
                 void* values);
Status set_state(Optimizer& optim, int64_t param, const char* name, int64_t first, int64_t count,
                 const void* values);
Result<double> get_scalar(const Optimizer& optim, int64_t param, std::string_view name);
Status set_scalar(Optimizer& optim, int64_t param, std::string_view name, double value);

}  // namespace zero
