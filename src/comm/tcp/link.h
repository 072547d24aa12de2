// SPDX-License-Identifier: Apache-2.0
// One connection that carries frames. Nothing here waits: what does not go at once stays queued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/os.h"

namespace zero::tcp {

enum class FrameKind : uint32_t {
  hello = 1,  // of a guest: who it is, and a nonce
  welcome,    // rank 0's answer: who it is, a nonce, and that it knows the key
  confirm,    // the guest knows it as well, and takes this connection and no other
  record,     // of one rank, to rank 0
  records,    // what all get in return
  waiting,    // from rank 0: for whom, in the exchange of that number
  progress,   // a rank is alive and working
  cause,      // what broke the comm
  goodbye,    // a rank has freed its comm: its end is no death
};

struct Frame {
  FrameKind kind;
  uint64_t sequence;  // of the exchange it belongs to
  std::vector<std::byte> payload;
};

class Link {
 public:
  /// A frame of more than `most_bytes` ends the connection, and not much more than that is kept
  /// here before it is taken.
  Link(Fd fd, size_t most_bytes) : fd_(std::move(fd)), most_bytes_(most_bytes) {}
  void set_most_bytes(size_t most_bytes) { most_bytes_ = most_bytes; }

  void send(FrameKind kind, uint64_t sequence, std::span<const std::byte> payload = {});
  /// Send of what is queued as much as goes now.
  void flush();
  bool unsent() const { return !over_ && sent_ < out_.size(); }

  /// The next frame that has come whole.
  std::optional<Frame> take();
  /// Nothing will come any more, and all that came has been taken.
  bool over() const { return over_; }
  /// The other end has closed the connection, whatever may still be taken.
  bool ended();

  int fd() const { return fd_.get(); }

 private:
  struct Header;

  void receive();
  std::optional<Frame> parse();

  Fd fd_;
  size_t most_bytes_;
  std::vector<std::byte> out_;
  size_t sent_ = 0;
  std::vector<std::byte> in_;
  size_t taken_ = 0;
  bool ended_ = false;  // nothing more to receive
  bool over_ = false;
};

}  // namespace zero::tcp
