// SPDX-License-Identifier: Apache-2.0
// One connection that carries frames, between hosts or between processes of one host. Between
// processes, descriptors travel with frames. A Link itself never waits: bytes that do not go at
// once stay queued.
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
  // For a rendezvous; comm/rendezvous.h.
  hello = 1,  // of a guest: who it is, and a nonce
  welcome,    // rank 0's answer: who it is, a nonce, and that it knows the word
  confirm,    // the guest knows it as well
  seated,     // the guest has its seat, and uses this connection and no other
  refusal,    // there will be no comm, and why

  // Between ranks of one host; comm/local.
  group,      // all ranks are there: the control segment
  processes,  // some of their processes
  ready,      // a rank can use what it got
  arena,      // the memory of an arena

  // For the exchanges between hosts; comm/tcp/tcp.h.
  record,    // of a rank and all below, to its parent
  records,   // what all get in return
  waiting,   // for whom, in the exchange of that number
  progress,  // a rank is alive and working
  cause,     // what broke the comm
  goodbye,   // a rank has freed its comm: its end is no death

  offer,  // where a rank listens, for its children in the tree; comm/tcp/rendezvous.h
};

/// Every frame begins with these words, so that versions that differ in everything else still
/// notice that they differ.
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
  /// Returns both versions, as errors name them.
  std::string version() const;
};

struct Frame {
  FrameKind kind;
  uint64_t sequence;  // of the exchange it belongs to
  std::vector<std::byte> payload;
  std::vector<Fd> descriptors;
};

/// At most this many descriptors travel with one frame (the kernel's limit is 253).
inline constexpr size_t kDescriptorsPerFrame = 200;

/// Says EMFILE in words.
Status too_many_descriptors();

class Link {
 public:
  /// A frame with more than `most_bytes` or `most_descriptors` ends the connection. It keeps not
  /// much more than that before frames are taken.
  explicit Link(Fd fd, size_t most_bytes = kStrangerBytes,
                size_t most_descriptors = kStrangerDescriptors)
      : fd_(std::move(fd)), most_bytes_(most_bytes), most_descriptors_(most_descriptors) {}
  /// Allows more, because the other end has shown who it is.
  void trust(size_t most_bytes) {
    most_bytes_ = most_bytes;
    most_descriptors_ = kDescriptorsPerFrame;
  }

  /// Queues a frame, and sends what goes now. The descriptors must stay open until nothing is
  /// unsent.
  void send(FrameKind kind, uint64_t sequence = 0, std::span<const std::byte> payload = {},
            std::span<const int> descriptors = {});
  /// Sends as much of the queue as goes now.
  void flush();
  bool unsent() const { return !over_ && !out_.empty(); }

  /// Returns the next frame that has come whole, or nothing.
  std::optional<Frame> take();
  /// True if nothing will come any more, and all that came has been taken.
  bool over() const { return over_; }
  /// True if the other end has closed the connection, though frames may still be taken.
  bool ended();
  /// Returns how the other end begins its frames, if it is of another version. Then nothing is
  /// taken.
  const std::optional<Prefix>& other_version() const { return other_version_; }
  /// Returns why it is over, or sends no more: ZERO_ERR_COMM, or ZERO_ERR_SYSTEM if this process
  /// lacks something. OK if neither is so.
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
  size_t sent_ = 0;              // bytes of the first of them
  std::vector<std::byte> in_;    // room that grows, so that a look in vain writes nothing
  size_t come_ = 0, taken_ = 0;  // bytes there
  std::vector<Fd> descriptors_;  // came with it
  std::optional<Prefix> other_version_;
  int error_ = 0;       // ended it, or made it unable to send
  bool ended_ = false;  // nothing more to receive
  bool over_ = false;
};

// ---- Words: what is trivially copyable travels as it lies in memory.

template <class Words>
std::span<const std::byte> as_payload(const Words& words) {
  static_assert(std::is_trivially_copyable_v<Words>);
  return std::as_bytes(std::span(&words, 1));
}

/// Returns what a frame of `kind` holds, or nothing if the frame is of another kind.
template <class Words>
std::optional<Words> read(const Frame& frame, FrameKind kind) {
  static_assert(std::is_trivially_copyable_v<Words>);
  Words words;
  if (frame.kind != kind || frame.payload.size() != sizeof words) return std::nullopt;
  std::copy(frame.payload.begin(), frame.payload.end(),
            std::as_writable_bytes(std::span(&words, 1)).begin());
  return words;
}

/// Returns the text of another process's refusal, whatever its bytes are.
std::string text_of(const Frame& frame);

/// Put a text into a place of a fixed size that another process reads, and read what another one
/// has put there, whatever its bytes are.
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

/// Bounds of a wait: how long it may take, and a check that is asked now and then. A failure of the
/// check ends the wait.
struct Bounds {
  int64_t limit_ms;
  std::function<Status()> check;
};

/// Sleeps, without using signals. If a signal ends the sleep early, that does no harm.
void sleep_ms(int milliseconds);
/// Pauses between two looks at work of another library's, which usually takes `usual_ns`, so that a
/// wait has few of them and lasts little longer than the work.
void pause_between_looks(int64_t waited_ns, int64_t usual_ns, int64_t most_ns);

/// deliver() waits until all that is queued has gone, hear() until the next frame is there. They
/// fail with what Link::problem says, with ZERO_ERR_TIMEOUT at the deadline, or with what `bounds`
/// say.
Status deliver(Link& link, const Bounds& bounds);
Result<Frame> hear(Link& link, const Bounds& bounds);

}  // namespace zero
