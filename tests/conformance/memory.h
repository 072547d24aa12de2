// SPDX-License-Identifier: Apache-2.0
// Memory that a test owns, on the host or on a device.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "device/device.h"
#include "support/expect.h"

namespace zero::test {

/// Copies in the order of a stream. Without a device, both sides are host memory.
inline void move_bytes(const std::shared_ptr<Device>& device, StreamHandle stream, void* to,
                       const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (device == nullptr) {
    std::memcpy(to, from, bytes);
  } else {
    EXPECT_OK(device->copy(stream, to, from, bytes));
  }
}

class Memory {
 public:
  Memory(std::shared_ptr<Device> device, size_t bytes) : device_(std::move(device)), bytes_(bytes) {
    // Allocates some memory even for 0 bytes.
    if (device_ == nullptr) {
      host_.resize(bytes / sizeof(double) + 1);
    } else {
      there_ = DeviceMemory::allocate(device_, bytes + sizeof(double), "a tensor").value();
    }
  }

  std::byte* at() const {
    return device_ != nullptr
               ? there_.data()
               : const_cast<std::byte*>(reinterpret_cast<const std::byte*>(host_.data()));
  }
  size_t bytes() const { return bytes_; }
  void write(const std::vector<std::byte>& bytes, StreamHandle stream = nullptr) const {
    move_bytes(device_, stream, at(), bytes.data(), bytes.size());
  }
  std::vector<std::byte> read(StreamHandle stream = nullptr) const {
    std::vector<std::byte> bytes(bytes_);
    move_bytes(device_, stream, bytes.data(), at(), bytes_);
    return bytes;
  }

 private:
  std::shared_ptr<Device> device_;
  size_t bytes_;
  std::vector<double> host_;  // aligned for any type
  DeviceMemory there_;
};

/// Waits until the work on the stream is complete, if there is a device.
inline void finish(const std::shared_ptr<Device>& device, StreamHandle stream) {
  if (device == nullptr) return;
  const Event done = make_event(device).value();
  EXPECT_OK(device->record(done.handle(), stream));
  EXPECT_OK(await(*device, done.handle(), 30'000, "a test's work"));
}

}  // namespace zero::test
