// SPDX-License-Identifier: Apache-2.0
// Numbers as they stand in memory, by the definition of each type and not by its bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero::test {

size_t element_bytes(int32_t dtype);

/// What `values` become in memory of a dtype: rounded to nearest, ties to even.
std::vector<std::byte> encode(int32_t dtype, const std::vector<double>& values);
std::vector<double> decode(int32_t dtype, const std::byte* stored, size_t count);
/// With one NaN for all: arithmetic makes another one on each kind of processor.
void unify_nans(int32_t dtype, std::vector<std::byte>& stored);

/// The value rounded to the nearest that a dtype has; ties to even, or away from zero.
double rounded(int32_t dtype, double value, bool ties_away = false);

}  // namespace zero::test
