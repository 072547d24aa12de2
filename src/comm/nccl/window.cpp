// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/window.h"

#include "base/log.h"
#include "base/text.h"
#include "base/unthrown.h"

namespace zero::nccl {
namespace {

constexpr int64_t kLeaveMs = 2'000;

class WindowAttachment final : public PrivateArena::Attachment {
 public:
  WindowAttachment(const Library& library, Channel& channel, Window window)
      : library_(library), channel_(channel), window_(window) {}

  /// Local. A communicator that has ended knows nothing any more. As long as one does, other memory
  /// must not come to this address: NCCL would take it for the window.
  bool leave() noexcept override {
    const bool left = succeeds([&] {
      return channel_.run_alone(
          kLeaveMs, [&](Handle handle) { return library_.window_deregister(handle, window_); });
    });
    if (!left) log(ZERO_LOG_WARNING, "NCCL did not give back an arena: its memory stays");
    return left;
  }

 private:
  const Library& library_;
  Channel& channel_;  // of the arena's comm, which outlives it
  const Window window_;
};

}  // namespace

Status open_window(const Library& library, Channel& channel, PrivateArena& arena,
                   const Bounds& bounds) {
  Slot<Window> slot;
  ZERO_TRY(channel.run("ncclCommWindowRegister", bounds, [&](Handle handle) {
    return library.window_register(handle, arena.data(), arena.bytes(), slot.place(), kSymmetric);
  }));
  const Window window = slot.take();
  if (window == nullptr) {
    log(ZERO_LOG_INFO, text("NCCL ", version_text(library.version),
                            " has no windows on these GPUs: transfers go through its buffers"));
    return {};
  }
  arena.attach(std::make_unique<WindowAttachment>(library, channel, window));
  return {};
}

}  // namespace zero::nccl
