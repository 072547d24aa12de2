// SPDX-License-Identifier: Apache-2.0
// Device: memory, streams, events and launches of a processor with queues. Functions queue work,
// and their status covers only the queuing. The next wait reports failures of the work.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/os.h"
#include "base/status.h"
#include "kernels/launches.h"

namespace zero {

/// A queue that executes work in order, such as a cudaStream_t. nullptr is the default stream.
using StreamHandle = void*;
using EventHandle = void*;

/// A queued operation on a word of host memory that other processes may share.
struct WordStep {
  enum Kind { write, wait };
  Kind kind;
  uint32_t* word;
  uint32_t value;  // the value to write, or the least value that ends the wait
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;

  /// For example "cuda".
  virtual const char* kind() const = 0;
  virtual int32_t ordinal() const = 0;

  // ---- Queued work. Pointers are to this device's memory, or to a HostBuffer of it.

  virtual Status copy(StreamHandle stream, void* to, const void* from, size_t bytes) = 0;
  virtual Status fill(StreamHandle stream, void* to, int byte, size_t bytes) = 0;
  virtual Status launch(StreamHandle stream, const Launch& launch) = 0;

  /// Makes `event` complete when the work queued on `stream` so far is complete.
  virtual Status record(EventHandle event, StreamHandle stream) = 0;
  /// Makes later work on `stream` wait until `event`, as last recorded, is complete. Does nothing
  /// if it was never recorded. `rule` names the ordering that this enforces, because a test device
  /// can omit one.
  virtual Status wait(StreamHandle stream, EventHandle event, const char* rule) = 0;
  /// Executes operations in order on words in an OpenedHost. Others see a write only after all
  /// earlier work of the stream. A waiting stream occupies no processor. `rule` applies to the
  /// waits. Fails with ZERO_ERR_UNSUPPORTED if the device does not support this.
  virtual Status words(StreamHandle stream, std::span<const WordStep> steps, const char* rule) = 0;

  // ---- Queries by the host, which never block.

  /// Returns whether an event, as last recorded, is complete, or the failure of the work before it.
  virtual Result<bool> done(EventHandle event) = 0;

  /// Returns OK if this device's work can access [data, data + bytes) in place. Otherwise returns
  /// ZERO_ERR_ARGUMENT and says what memory it is. `what` names it, as in "gradient of 'wte'".
  virtual Status check(const void* data, size_t bytes, std::string_view what) = 0;
  /// Returns OK if `stream` belongs to this device.
  virtual Status check_stream(StreamHandle stream) = 0;
  /// Returns a number that no other stream has had. The handle of a stream that has been freed may
  /// come back as that of another.
  virtual Result<uint64_t> number_of(StreamHandle stream) = 0;
  /// Returns the number of the capture that records the work queued on `stream`, or 0 if the work
  /// is executed. Captured work is executed by launches of the capture's graph. In a capture,
  /// copies may use only this device's memory. Waits may use only events that were recorded in the
  /// capture. A stream that waits for such an event joins the capture.
  virtual Result<uint64_t> capturing(StreamHandle stream) = 0;
  /// Runs `body` with the device as this thread's current one, for libraries that need it.
  virtual Status run_current(const std::function<Status()>& body) { return body(); }

  /// Records that work of this device may never end. From then on none of its resources are freed,
  /// because CUDA would wait for all work, including that of other users. Any thread may call it.
  void give_up() noexcept { given_up_->store(true); }
  bool given_up() const noexcept { return given_up_->load(); }

  /// Begins a range on this thread for tools that watch the device (NVTX). Ranges must be nested.
  virtual void begin_range(const char* name) noexcept = 0;
  virtual void end_range() noexcept = 0;

  // ---- Handles that the classes below own. Memory is aligned to at least 256 bytes and not
  // cleared.

  virtual Result<void*> allocate(size_t bytes, std::string_view what) = 0;
  virtual void release(void* memory) noexcept = 0;
  virtual Result<void*> allocate_host(size_t bytes, std::string_view what) = 0;
  virtual void release_host(void* memory) noexcept = 0;
  /// Creates device memory of at least `bytes` as a descriptor. It exists as long as the descriptor
  /// or any mapping. Any process may map it if its device can access this one. Otherwise
  /// map_shared() fails with ZERO_ERR_UNSUPPORTED.
  virtual Result<Fd> create_shared(size_t bytes, std::string_view what) = 0;
  virtual Result<void*> map_shared(int fd, size_t bytes, std::string_view what) = 0;
  /// Allocates and maps memory of the same type, which communication libraries can share.
  virtual Result<void*> allocate_shared(size_t bytes, std::string_view what) = 0;
  /// Unmaps either kind. No queued work may use it, because unlike release() this does not wait.
  virtual void unmap_shared(void* memory) noexcept = 0;
  /// Gives queued work access to whole pages of host memory.
  virtual Result<void*> open_host(void* memory, size_t bytes) = 0;
  virtual void close_host(void* memory) noexcept = 0;
  virtual Result<void*> make_stream() = 0;
  virtual void free_stream(void* stream) noexcept = 0;
  virtual Result<void*> make_event() = 0;
  virtual void free_event(void* event) noexcept = 0;

 protected:
  Device() = default;
  /// For several objects of the same hardware, which share the flag `given_up`.
  explicit Device(std::atomic<bool>& given_up) : given_up_(&given_up) {}

 private:
  std::atomic<bool> own_given_up_{false};
  std::atomic<bool>* const given_up_ = &own_given_up_;
};

/// A range on this thread that ends with this object. `device` may be null, which makes no range.
class DeviceRange {
 public:
  DeviceRange(Device* device, const char* name) : device_(device) {
    if (device_ != nullptr) device_->begin_range(name);
  }
  DeviceRange(DeviceRange&& other) noexcept : device_(std::exchange(other.device_, nullptr)) {}
  DeviceRange& operator=(DeviceRange&&) = delete;
  ~DeviceRange() {
    if (device_ != nullptr) device_->end_range();
  }

 private:
  Device* device_;
};

/// A device resource that the destructor frees. Move-only.
template <void (Device::*give_back)(void*) noexcept>
class Owned {
 public:
  Owned() = default;
  Owned(std::shared_ptr<Device> device, void* handle)
      : device_(std::move(device)), handle_(handle) {}
  Owned(Owned&& other) noexcept { swap(other); }
  Owned& operator=(Owned&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr && !device_->given_up()) (device_.get()->*give_back)(handle_);
  }

  void* handle() const { return handle_; }

 private:
  void swap(Owned& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
  }

  std::shared_ptr<Device> device_;
  void* handle_ = nullptr;
};

using Stream = Owned<&Device::free_stream>;
using Event = Owned<&Device::free_event>;
/// Access of queued work to pages of host memory. Does not own the pages.
using OpenedHost = Owned<&Device::close_host>;

/// Create what they are named after, or fail. Streams do not wait for the default stream.
inline Result<Stream> make_stream(const std::shared_ptr<Device>& device) {
  return Stream(device, ZERO_TRY(device->make_stream()));
}
inline Result<Event> make_event(const std::shared_ptr<Device>& device) {
  return Event(device, ZERO_TRY(device->make_event()));
}
inline Result<OpenedHost> open_host(const std::shared_ptr<Device>& device, void* memory,
                                    size_t bytes) {
  return OpenedHost(device, ZERO_TRY(device->open_host(memory, bytes)));
}

/// Fills device memory with zeros, and waits until this is complete.
Status clear(const std::shared_ptr<Device>& device, void* memory, size_t bytes,
             std::string_view what);

/// Memory that the destructor frees.
template <Result<void*> (Device::*take)(size_t bytes, std::string_view what),
          void (Device::*give_back)(void*) noexcept>
class OwnedMemory : public Owned<give_back> {
 public:
  OwnedMemory() = default;
  OwnedMemory(std::shared_ptr<Device> device, void* data, size_t bytes)
      : Owned<give_back>(std::move(device), data), bytes_(bytes) {}

  /// Fails with ZERO_ERR_MEMORY, naming `what` and the size. An allocation of zero bytes is empty.
  static Result<OwnedMemory> allocate(const std::shared_ptr<Device>& device, size_t bytes,
                                      std::string_view what) {
    if (bytes == 0) return OwnedMemory();
    return OwnedMemory(device, ZERO_TRY((device.get()->*take)(bytes, what)), bytes);
  }
  /// Does the same, and fills the memory with zeros before it returns.
  static Result<OwnedMemory> allocate_zeroed(const std::shared_ptr<Device>& device, size_t bytes,
                                             std::string_view what) {
    OwnedMemory memory = ZERO_TRY(allocate(device, bytes, what));
    ZERO_TRY(clear(device, memory.data(), bytes, what));
    return memory;
  }

  std::byte* data() const { return static_cast<std::byte*>(this->handle()); }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

/// Device memory.
using DeviceMemory = OwnedMemory<&Device::allocate, &Device::release>;
/// Host memory that the device can copy from and to asynchronously.
using HostBuffer = OwnedMemory<&Device::allocate_host, &Device::release_host>;
/// A mapping of memory that other processes may also map.
using SharedBlock = OwnedMemory<&Device::allocate_shared, &Device::unmap_shared>;

inline Result<SharedBlock> map_shared(const std::shared_ptr<Device>& device, int fd, size_t bytes,
                                      std::string_view what) {
  return SharedBlock(device, ZERO_TRY(device->map_shared(fd, bytes, what)), bytes);
}

/// Waits until `event` is complete. Fails with ZERO_ERR_TIMEOUT, naming `what`, after `timeout_ms`,
/// but does not give up the device. Calls `stop`, which may be empty, and returns its failure.
Status await(Device& device, EventHandle event, int64_t timeout_ms, std::string_view what,
             const std::function<Status()>& stop = {});
/// Does the same before memory used by the work is freed. Gives up the device if the work has not
/// ended at the timeout, or 10 seconds after any other failure.
Status await_end(Device& device, EventHandle event, int64_t timeout_ms, std::string_view what,
                 const std::function<Status()>& stop = {});

/// Opens the CUDA device with this number. Fails with ZERO_ERR_UNSUPPORTED if this build has no
/// CUDA, or if the driver is missing or too old. Fails with ZERO_ERR_ARGUMENT, which says how many
/// devices there are, if there is no device with this number.
Result<std::shared_ptr<Device>> open_cuda(int32_t ordinal);
/// Opens the only CUDA device that this process sees, or the one with number `local_rank` if there
/// are several. Fails with ZERO_ERR_ARGUMENT if there are several and the number is -1 (unknown).
Result<std::shared_ptr<Device>> open_cuda_of(int32_t local_rank);
/// Describes the available CUDA: "not built in", "no driver" or "driver 13.0".
std::string cuda_info();

}  // namespace zero
