// SPDX-License-Identifier: Apache-2.0
// Where a training keeps what it trains.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "device/device.h"
#include "training.h"

namespace zero::test {

/// Memory of one rank for all parameters, on the host or a device.
struct Tensors {
  explicit Tensors(std::shared_ptr<Device> where) : device(std::move(where)) {
    if (device == nullptr) return;
    own_stream = make_stream(device).value();
    next_stream = make_stream(device).value();
    forward_stream = make_stream(device).value();
  }
  ~Tensors() {
    for (void* arena : arenas) zero_arena_free(arena);
  }

  std::byte* allocate(size_t count) {  // of any type
    if (device == nullptr) {
      own.emplace_back(count);
      return reinterpret_cast<std::byte*>(own.back().data());
    }
    on_device.push_back(DeviceMemory::allocate(device, count * sizeof(double), "a tensor").value());
    return on_device.back().data();
  }
  /// On a device in the order of the stream.
  void write(std::byte* to, const std::vector<std::byte>& bytes) const {
    if (device == nullptr) {
      std::copy(bytes.begin(), bytes.end(), to);
    } else if (!bytes.empty()) {
      EXPECT_TRUE(device->copy(stream(), to, bytes.data(), bytes.size()).ok());
    }
  }
  std::vector<std::byte> read(const std::byte* from, size_t bytes) const {
    return read(from, bytes, stream());
  }
  std::vector<std::byte> read(const std::byte* from, size_t bytes, void* behind) const {
    std::vector<std::byte> out(bytes);
    if (device == nullptr) {
      std::copy(from, from + bytes, out.begin());
    } else if (bytes > 0) {
      EXPECT_TRUE(device->copy(behind, out.data(), from, bytes).ok());
    }
    return out;
  }
  void* stream() const { return own_stream.handle(); }
  /// Where parameters are read that are waited for one by one.
  void* forward() const { return forward_stream.handle(); }

  /// The next step has another stream, and gradients that the last one does not read.
  void alternate(const Training& run) {
    if (next_grads.empty()) {
      for (const int64_t size : run.sizes)
        next_grads.push_back(allocate(static_cast<size_t>(size) + 1));
    }
    std::swap(own_stream, next_stream);
    grads.swap(next_grads);
  }

  std::shared_ptr<Device> device;
  Stream own_stream, next_stream, forward_stream;
  std::vector<std::byte*> data, grads, next_grads;
  std::vector<std::vector<double>> own;  // aligned for any type
  std::vector<DeviceMemory> on_device;
  std::vector<void*> arenas;
  std::vector<bool> in_arena;  // of each parameter's data
};

}  // namespace zero::test
