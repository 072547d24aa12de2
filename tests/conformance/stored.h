// SPDX-License-Identifier: Apache-2.0
// Numbers as they are stored in memory, from the definition of each type rather than its bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero::test {

size_t element_bytes(int32_t dtype);

/// Converts `values` to memory of a dtype: rounded to nearest, ties to even.
std::vector<std::byte> encode(int32_t dtype, const std::vector<double>& values);
std::vector<double> decode(int32_t dtype, const std::byte* stored, size_t count);
/// Replaces all NaNs by one, because each kind of processor produces another.
void unify_nans(int32_t dtype, std::vector<std::byte>& stored);

/// Rounds the value to the nearest one of a dtype. Ties go to even, or away from zero.
double rounded(int32_t dtype, double value, bool ties_away = false);

}  // namespace zero::test
