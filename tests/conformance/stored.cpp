// SPDX-License-Identifier: Apache-2.0
#include "stored.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "support/halves.h"
#include "zero.h"

namespace zero::test {
namespace {

using Ties = HalfFormat::Ties;

const HalfFormat& format_of(int32_t dtype) {
  if (dtype == ZERO_BFLOAT16) return kBf16;
  if (dtype == ZERO_FLOAT16) return kF16;
  std::abort();
}

template <class Stored>
Stored take(const std::byte* from) {
  Stored value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class Stored>
void append(std::vector<std::byte>& out, Stored value) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

}  // namespace

size_t element_bytes(int32_t dtype) {
  return dtype == ZERO_FLOAT64 ? 8 : dtype == ZERO_FLOAT32 ? 4 : 2;
}

double rounded(int32_t dtype, double value, bool ties_away) {
  if (dtype == ZERO_FLOAT64 || !std::isfinite(value)) return value;
  if (dtype == ZERO_FLOAT32) return static_cast<float>(value);
  const HalfFormat& format = format_of(dtype);
  return format.value(format.nearest(value, ties_away ? Ties::away : Ties::to_even));
}

std::vector<std::byte> encode(int32_t dtype, const std::vector<double>& values) {
  std::vector<std::byte> out;
  out.reserve(values.size() * element_bytes(dtype));
  for (const double value : values) {
    if (dtype == ZERO_FLOAT64) {
      append(out, value);
    } else if (dtype == ZERO_FLOAT32) {
      append(out, static_cast<float>(value));
    } else {
      append(out, format_of(dtype).nearest(value, Ties::to_even));
    }
  }
  return out;
}

std::vector<double> decode(int32_t dtype, const std::byte* stored, size_t count) {
  std::vector<double> out(count);
  for (size_t i = 0; i < count; i++) {
    const std::byte* const at = stored + i * element_bytes(dtype);
    out[i] = dtype == ZERO_FLOAT64   ? take<double>(at)
             : dtype == ZERO_FLOAT32 ? take<float>(at)
                                     : format_of(dtype).value(take<uint16_t>(at));
  }
  return out;
}

void unify_nans(int32_t dtype, std::vector<std::byte>& stored) {
  const size_t size = element_bytes(dtype);
  const std::vector<std::byte> nan = encode(dtype, {std::numeric_limits<double>::quiet_NaN()});
  const std::vector<double> values = decode(dtype, stored.data(), stored.size() / size);
  for (size_t i = 0; i < values.size(); i++)
    if (std::isnan(values[i]))
      std::copy(nan.begin(), nan.end(), stored.begin() + static_cast<ptrdiff_t>(i * size));
}

}  // namespace zero::test
