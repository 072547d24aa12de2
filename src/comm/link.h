// SPDX-License-Identifier: Apache-2.0
// A connection that carries frames between hosts or between processes of one host. Between
// processes, frames can carry descriptors. A Link never waits: bytes that cannot be sent at once
// stay queued.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/os.h"
#include "base/status.h"
#include "base/text.h"

namespace zero {

enum class FrameKind : uint32_t {
  // For a rendezvous; see comm/rendezvous.h.
  hello = 1,  // from a guest: its identity and a nonce
  welcome,    // rank 0's answer: its identity, a nonce, and a proof that it knows the secret
  confirm,    // the guest's proof that it knows the secret
  seated,     // the guest is accepted on this connection and no other
  refusal,    // why there will be no comm

  // Between ranks of one host; see comm/local.
  group,      // all ranks have arrived: the control segment
  processes,  // descriptors of some of the processes
  ready,      // a rank can use what it received
  arena,      // the memory of an arena

  // For exchanges between hosts; see comm/tcp/tcp.h.
  record,    // of a rank and all ranks below it, to its parent
  records,   // the result for all ranks
  waiting,   // for which rank the sender waits, in the exchange of this number
  progress,  // the rank is alive and working
  cause,     // the failure that broke the comm
  goodbye,   // a rank has freed its comm, so its end is not a failure

  offer,  // where a rank listens for its children in the tree; see comm/tcp/rendezvous.h
};

/// The start of every frame. It never changes its layout, so that versions that differ in
/// everything else can detect that they differ.
struct Prefix {
  static constexpr uint64_t kMagic = 0x7a65726f6c6f6361;
  static constexpr uint32_t kProtocol = 9;
  static constexpr uint32_t kLibrary =
      ZERO_VERSION_MAJOR * 10000 + ZERO_VERSION_MINOR * 100 + ZERO_VERSION_PATCH;

  uint64_t magic = kMagic;
  uint32_t protocol = kProtocol;
  uint32_t library = kLibrary;
  FrameKind kind = FrameKind::hello;
  uint32_t unused = 0;

  bool same_version() const { return protocol == kProtocol && library == kLibrary; }
  /// Returns both versions as text for error messages.
  std::string version() const;
};

struct Frame {
  FrameKind kind;
  uint64_t sequence;  // of the exchange to which the frame belongs
  std::vector<std::byte> payload;
  std::vector<Fd> descriptors;
};

/// The most descriptors that one frame carries. The kernel's limit is 253.
inline constexpr size_t kDescriptorsPerFrame = 200;

/// Returns the failure for EMFILE.
Status too_many_descriptors();

class Link {
 public:
  /// A frame with more than `most_bytes` or `most_descriptors` ends the connection. Frames that
  /// have not been taken use little more memory than that.
  explicit Link(Fd fd, size_t most_bytes = kStrangerBytes,
                size_t most_descriptors = kStrangerDescriptors)
      : fd_(std::move(fd)), most_bytes_(most_bytes), most_descriptors_(most_descriptors) {}
  /// Raises the limits after the other end has proved its identity.
  void trust(size_t most_bytes) {
    most_bytes_ = most_bytes;
    most_descriptors_ = kDescriptorsPerFrame;
  }

  /// Queues a frame, and sends what can be sent at once. The descriptors must stay open until
  /// unsent() is false.
  void send(FrameKind kind, uint64_t sequence = 0, std::span<const std::byte> payload = {},
            std::span<const int> descriptors = {});
  /// Sends as much of the queue as can be sent at once.
  void flush();
  bool unsent() const { return !over_ && !out_.empty(); }

  /// Returns the next complete frame, or nothing.
  std::optional<Frame> take();
  /// Returns true if no more data will arrive and everything that arrived has been taken.
  bool over() const { return over_; }
  /// Returns true if the other end has closed the connection, even if frames can still be taken.
  bool ended();
  /// Returns the prefix of the other end's frames if it has another version. No frame can be taken
  /// then.
  const std::optional<Prefix>& other_version() const { return other_version_; }
  /// Returns why the connection is over or can no longer send: ZERO_ERR_COMM, or ZERO_ERR_SYSTEM if
  /// this process lacks a resource. Returns OK while it works.
  Status problem() const;

  int fd() const { return fd_.get(); }

 private:
  static constexpr size_t kStrangerBytes = 4096;
  static constexpr size_t kStrangerDescriptors = 2;
  struct Header;
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::vector<int> descriptors;
  };

  ssize_t send_some(const Outgoing& frame);
  void receive();
  size_t receive_some(std::span<std::byte> room);
  std::optional<Frame> parse();
  void end(int error);

  Fd fd_;
  size_t most_bytes_, most_descriptors_;
  std::deque<Outgoing> out_;
  size_t sent_ = 0;              // bytes of the first frame that have been sent
  std::vector<std::byte> in_;    // never shrinks, so that an empty receive writes nothing
  size_t come_ = 0, taken_ = 0;  // bytes in in_ that have been received, and taken
  std::vector<Fd> descriptors_;  // received with in_
  std::optional<Prefix> other_version_;
  int error_ = 0;       // ended the connection, or stopped it from sending
  bool ended_ = false;  // no more data to receive
  bool over_ = false;
};

// ---- Payloads: trivially copyable values are sent as they lie in memory.

template <class Words>
std::span<const std::byte> as_payload(const Words& words) {
  static_assert(std::is_trivially_copyable_v<Words>);
  return std::as_bytes(std::span(&words, 1));
}

/// Returns the payload of a frame of `kind`, or nothing if the frame has another kind or size.
template <class Words>
std::optional<Words> read(const Frame& frame, FrameKind kind) {
  static_assert(std::is_trivially_copyable_v<Words>);
  Words words;
  if (frame.kind != kind || frame.payload.size() != sizeof words) return std::nullopt;
  std::copy(frame.payload.begin(), frame.payload.end(),
            std::as_writable_bytes(std::span(&words, 1)).begin());
  return words;
}

/// Returns the text of another process's refusal as valid UTF-8, whatever bytes it contains.
std::string text_of(const Frame& frame);

/// Write a text into a fixed-size field that another process reads, and read such a field as valid
/// UTF-8, whatever bytes it contains.
template <size_t size>
void put_text(char (&to)[size], std::string_view from) {
  const std::string_view part = utf8_prefix(from, size - 1);
  part.copy(to, part.size());
  to[part.size()] = 0;
}
template <size_t size>
std::string text_in(const char (&from)[size]) {
  const std::string_view room(from, size);
  return as_utf8(room.substr(0, room.find('\0')));
}

// ---- Waits.

/// Bounds of a wait: its maximum duration, and a check that runs from time to time. If the check
/// fails, the wait ends.
struct Bounds {
  int64_t limit_ms;
  std::function<Status()> check;
};

/// Sleeps without the use of signals. A signal may end the sleep early, which is harmless.
void sleep_ms(int milliseconds);
/// Pauses between two polls of another library's work, which usually takes `usual_ns`. The pause is
/// chosen so that a wait polls rarely and ends shortly after the work does.
void pause_between_looks(int64_t waited_ns, int64_t usual_ns, int64_t most_ns);

/// deliver() waits until everything queued has been sent, and hear() waits for the next frame. They
/// fail with Link::problem(), with ZERO_ERR_TIMEOUT at the deadline, or with the failure of the
/// check in `bounds`.
Status deliver(Link& link, const Bounds& bounds);
Result<Frame> hear(Link& link, const Bounds& bounds);

}  // namespace zero
