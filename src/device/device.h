// SPDX-License-Identifier: Apache-2.0
// Device: memory, streams, events and launches of a processor with queues of its own. A call queues
// work, and its status is about that only. The next wait reports failures of the work.
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

/// A queue whose work is done in order: a cudaStream_t. nullptr is the device's default stream.
using StreamHandle = void*;
using EventHandle = void*;

/// A step of queued work on a word of the host's memory, which other processes see, too.
struct WordStep {
  enum Kind { write, wait };
  Kind kind;
  uint32_t* word;
  uint32_t value;  // to write; or the least value for which the stream waits
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;

  /// "cuda"
  virtual const char* kind() const = 0;
  virtual int32_t ordinal() const = 0;

  // ---- Queued work. Pointers are to this device's memory, or to a HostBuffer of it.

  virtual Status copy(StreamHandle stream, void* to, const void* from, size_t bytes) = 0;
  virtual Status fill(StreamHandle stream, void* to, int byte, size_t bytes) = 0;
  virtual Status launch(StreamHandle stream, const Launch& launch) = 0;

  /// Makes `event` done when all that is queued on `stream` so far is done.
  virtual Status record(EventHandle event, StreamHandle stream) = 0;
  /// Makes later work of `stream` begin when `event`, as last recorded, is done; at once if it was
  /// never recorded. `rule` names the order that this keeps, because a test device can forget one.
  virtual Status wait(StreamHandle stream, EventHandle event, const char* rule) = 0;
  /// Does steps in their order, on words in an OpenedHost. Others see a write after all that the
  /// stream did before. No processor is busy while a stream waits. `rule` is as above, for the
  /// waits. Fails with ZERO_ERR_UNSUPPORTED if the device cannot do this.
  virtual Status words(StreamHandle stream, std::span<const WordStep> steps, const char* rule) = 0;

  // ---- The host looks, and never blocks.

  /// Returns whether an event, as last recorded, is done, or an error if the work before it failed.
  virtual Result<bool> done(EventHandle event) = 0;

  /// Returns OK if [data, data + bytes) is memory that this device's work can read and write where
  /// it is. If not, ZERO_ERR_ARGUMENT, whose text says what it is instead. `what` names it:
  /// "gradient of 'wte'".
  virtual Status check(const void* data, size_t bytes, std::string_view what) = 0;
  /// Returns OK if `stream` is one of this device.
  virtual Status check_stream(StreamHandle stream) = 0;
  /// Returns the number of the capture that takes the work queued on `stream` now, or 0 if that
  /// work is simply done. Launches of the capture's graph do captured work. In a capture, copies
  /// may use only this device's memory, and waits only events that were recorded in it; a stream
  /// that waits for one takes part in the capture.
  virtual Result<uint64_t> capturing(StreamHandle stream) = 0;
  /// Runs `body` on this thread with the device as the thread's current one, for libraries that use
  /// the current device.
  virtual Status run_current(const std::function<Status()>& body) { return body(); }

  /// Says that work of this device may never end. From then on nothing of it is given back, because
  /// CUDA would wait for all work, also that of other users. Any thread may call it.
  void give_up() noexcept { given_up_->store(true); }
  bool given_up() const noexcept { return given_up_->load(); }

  /// Begins a range of this thread's time for tools that watch the device (NVTX). The last one
  /// that began ends first.
  virtual void begin_range(const char* name) noexcept = 0;
  virtual void end_range() noexcept = 0;

  // ---- Handles that the classes below own. Memory is aligned to 256 bytes or more, and not
  // cleared.

  virtual Result<void*> allocate(size_t bytes, std::string_view what) = 0;
  virtual void release(void* memory) noexcept = 0;
  virtual Result<void*> allocate_host(size_t bytes, std::string_view what) = 0;
  virtual void release_host(void* memory) noexcept = 0;
  /// Creates memory of the device, of `bytes` rounded up, as a descriptor. It lives as long as the
  /// descriptor or any mapping. Any process may map it if its device can reach this one; otherwise
  /// map_shared() fails with ZERO_ERR_UNSUPPORTED.
  virtual Result<Fd> create_shared(size_t bytes, std::string_view what) = 0;
  virtual Result<void*> map_shared(int fd, size_t bytes, std::string_view what) = 0;
  /// Allocates and maps memory of the same kind, which libraries that join devices can hand out.
  virtual Result<void*> allocate_shared(size_t bytes, std::string_view what) = 0;
  /// Unmaps either kind. No queued work may use it any more, because unlike release() it does not
  /// wait.
  virtual void unmap_shared(void* memory) noexcept = 0;
  /// Lets queued work read and write whole pages of the host's memory.
  virtual Result<void*> open_host(void* memory, size_t bytes) = 0;
  virtual void close_host(void* memory) noexcept = 0;
  virtual Result<void*> make_stream() = 0;
  virtual void free_stream(void* stream) noexcept = 0;
  virtual Result<void*> make_event() = 0;
  virtual void free_event(void* event) noexcept = 0;

 protected:
  Device() = default;
  /// For one of several objects of the same hardware, which share whether it is given up.
  explicit Device(std::atomic<bool>& given_up) : given_up_(&given_up) {}

 private:
  std::atomic<bool> own_given_up_{false};
  std::atomic<bool>* const given_up_ = &own_given_up_;
};

/// A range of this thread's time that ends with this object. `device` may be null: there is none.
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

/// Something of a device that is given back at the end; move-only.
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
/// Pages of the host's memory while queued work may use them. It does not own the pages.
using OpenedHost = Owned<&Device::close_host>;

/// These make what they are named after, or fail. Streams do not wait for the default stream.
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

/// Fills memory of the device with zeros, and waits for that.
Status clear(const std::shared_ptr<Device>& device, void* memory, size_t bytes,
             std::string_view what);

/// Memory that is given back at the end.
template <Result<void*> (Device::*take)(size_t bytes, std::string_view what),
          void (Device::*give_back)(void*) noexcept>
class OwnedMemory : public Owned<give_back> {
 public:
  OwnedMemory() = default;
  OwnedMemory(std::shared_ptr<Device> device, void* data, size_t bytes)
      : Owned<give_back>(std::move(device), data), bytes_(bytes) {}

  /// Fails with ZERO_ERR_MEMORY, which names `what` and the bytes. Zero bytes are an empty block.
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

/// Memory of the device.
using DeviceMemory = OwnedMemory<&Device::allocate, &Device::release>;
/// Memory of the host that the device can copy from and to while the host goes on.
using HostBuffer = OwnedMemory<&Device::allocate_host, &Device::release_host>;
/// A mapping of memory that other processes may map, too.
using SharedBlock = OwnedMemory<&Device::allocate_shared, &Device::unmap_shared>;

inline Result<SharedBlock> map_shared(const std::shared_ptr<Device>& device, int fd, size_t bytes,
                                      std::string_view what) {
  return SharedBlock(device, ZERO_TRY(device->map_shared(fd, bytes, what)), bytes);
}

/// Waits until `event` is done. After `timeout_ms` it only fails with ZERO_ERR_TIMEOUT, which names
/// `what` it waited for. It asks `stop`, which may be empty, in between, and ends with its error.
Status await(Device& device, EventHandle event, int64_t timeout_ms, std::string_view what,
             const std::function<Status()>& stop = {});
/// Does the same, for use before memory of the work is given back. It gives up the device if the
/// work has not ended: at the timeout or, if anything else ends the wait, 10 seconds later.
Status await_end(Device& device, EventHandle event, int64_t timeout_ms, std::string_view what,
                 const std::function<Status()>& stop = {});

/// Opens the CUDA device of that number. Fails with ZERO_ERR_UNSUPPORTED if this build has no CUDA,
/// or the machine has no driver or one that is too old; with ZERO_ERR_ARGUMENT, which says how many
/// devices there are, if there is none of that number.
Result<std::shared_ptr<Device>> open_cuda(int32_t ordinal);
/// Opens the only CUDA device that this process sees, or of several the one of that number. Fails
/// with ZERO_ERR_ARGUMENT if there are several and the number is -1 (unknown).
Result<std::shared_ptr<Device>> open_cuda_of(int32_t local_rank);
/// Says in a few words what open_cuda finds: "not built in", "no driver", "driver 13.0".
std::string cuda_info();

}  // namespace zero
