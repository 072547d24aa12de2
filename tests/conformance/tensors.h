// SPDX-License-Identifier: Apache-2.0
// The memory of a training.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "memory.h"
#include "training.h"

namespace zero::test {

/// The memory of one rank for all parameters, on the host or a device.
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
    return own.emplace_back(device, count * sizeof(double)).at();
  }
  /// Writes in the order of the stream on a device.
  void write(std::byte* to, const std::vector<std::byte>& bytes) const {
    move_bytes(device, stream(), to, bytes.data(), bytes.size());
  }
  std::vector<std::byte> read(const std::byte* from, size_t bytes) const {
    return read(from, bytes, stream());
  }
  std::vector<std::byte> read(const std::byte* from, size_t bytes, void* behind) const {
    std::vector<std::byte> out(bytes);
    move_bytes(device, behind, out.data(), from, bytes);
    return out;
  }
  void* stream() const { return own_stream.handle(); }
  /// Returns the stream that reads parameters after waiting for each.
  void* forward() const { return forward_stream.handle(); }

  /// Gives the next step another stream, and gradients that the last step does not read.
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
  std::deque<Memory> own;
  std::vector<void*> arenas;
  std::vector<bool> in_arena;  // of each parameter's data
};

}  // namespace zero::test
