// SPDX-License-Identifier: Apache-2.0
#include "device/window.h"

#include <algorithm>
#include <cstring>

namespace zero {

Result<Window> Window::create(const std::shared_ptr<Device>& device, int64_t timeout_ms) {
  Window window;
  if (device == nullptr) return window;
  window.buffer_ = ZERO_TRY(HostBuffer::allocate(device, kBytes, "tensors in transit"));
  window.stream_ = ZERO_TRY(make_stream(device));
  window.done_ = ZERO_TRY(make_event(device));
  window.device_ = device;
  window.timeout_ms_ = timeout_ms;
  return window;
}

int64_t Window::most(size_t element_bytes) const {
  return device_ == nullptr ? INT64_MAX : static_cast<int64_t>(kBytes / element_bytes);
}

Status Window::finish() {
  ZERO_TRY(device_->record(done_.handle(), stream_.handle()));
  return await_end(*device_, done_.handle(), timeout_ms_, "copying tensors");
}

Result<const std::byte*> Window::show(const std::byte* from, size_t bytes) {
  if (device_ == nullptr || bytes == 0) return from;
  ZERO_TRY(device_->copy(stream_.handle(), buffer_.data(), from, bytes));
  ZERO_TRY(finish());
  return static_cast<const std::byte*>(buffer_.data());
}

Result<std::byte*> Window::room(std::byte* to) {
  if (device_ == nullptr) return to;
  // A call that failed may have left a copy that still reads the buffer.
  ZERO_TRY(await(*device_, done_.handle(), timeout_ms_, "copying tensors"));
  return buffer_.data();
}

Status Window::store(std::byte* to, size_t bytes) {
  if (device_ == nullptr || bytes == 0) return Status();
  ZERO_TRY(device_->copy(stream_.handle(), to, buffer_.data(), bytes));
  return finish();
}

Status Window::show_all(const std::byte* from, size_t bytes,
                        const std::function<Status(std::span<const std::byte>)>& visit) {
  for (size_t done = 0, part = 0; done < bytes; done += part) {
    part = std::min(static_cast<size_t>(most(1)), bytes - done);
    ZERO_TRY(visit({ZERO_TRY(show(from + done, part)), part}));
  }
  return Status();
}

Status Window::fill_all(std::byte* to, size_t bytes,
                        const std::function<Status(std::span<std::byte>)>& fill) {
  for (size_t done = 0, part = 0; done < bytes; done += part) {
    part = std::min(static_cast<size_t>(most(1)), bytes - done);
    ZERO_TRY(fill({ZERO_TRY(room(to + done)), part}));
    ZERO_TRY(store(to + done, part));
  }
  return Status();
}

Status Window::read(void* values, const std::byte* from, size_t bytes) {
  return show_all(from, bytes, [&](std::span<const std::byte> shown) {
    std::memcpy(values, shown.data(), shown.size());
    values = static_cast<std::byte*>(values) + shown.size();
    return Status();
  });
}

Status Window::write(std::byte* to, const void* values, size_t bytes) {
  return fill_all(to, bytes, [&](std::span<std::byte> room) {
    std::memcpy(room.data(), values, room.size());
    values = static_cast<const std::byte*>(values) + room.size();
    return Status();
  });
}

Status Window::copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (device_ == nullptr && bytes > 0) std::memcpy(to, from, bytes);
  if (device_ == nullptr || bytes == 0) return Status();
  ZERO_TRY(device_->copy(stream_.handle(), to, from, bytes));
  return finish();
}

Status Window::clear(std::byte* to, size_t bytes) {
  if (device_ == nullptr && bytes > 0) std::memset(to, 0, bytes);
  if (device_ == nullptr || bytes == 0) return Status();
  ZERO_TRY(device_->fill(stream_.handle(), to, 0, bytes));
  return finish();
}

}  // namespace zero
