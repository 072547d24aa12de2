// SPDX-License-Identifier: Apache-2.0
#include "comm/link.h"

#include <linux/futex.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "comm/watch.h"

namespace zero {
namespace {

constexpr size_t kReadBytes = 64u << 10;

/// A buffer for the descriptors of one message, with the alignment that the kernel requires.
struct ControlBuffer {
  alignas(cmsghdr) char bytes[CMSG_SPACE(kDescriptorsPerFrame * sizeof(int))];
};

void take_descriptors(msghdr& message, std::vector<Fd>& out) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      out.push_back(Fd(fd));
    }
  }
}

Watch watch_for(const Bounds& bounds) { return Watch({"", "", bounds.limit_ms, false}); }

/// Returns why a wait must end, or OK.
Status look(const Bounds& bounds, Watch& watch) {
  ZERO_TRY(bounds.check());
  watch.look();
  return watch.is_late(watch.since_ns(0)) ? Status(ZERO_ERR_TIMEOUT, "the deadline passed")
                                          : Status();
}

}  // namespace

struct Link::Header {
  Prefix prefix;
  uint64_t sequence;
  uint64_t bytes;  // of the payload, which follows
};

std::string Prefix::version() const {
  return text("libzero ", library / 10000, ".", library / 100 % 100, ".", library % 100,
              " (protocol ", protocol, ")");
}

// ---- Sending.

void Link::send(FrameKind kind, uint64_t sequence, std::span<const std::byte> payload,
                std::span<const int> descriptors) {
  if (over_) return;
  Prefix prefix;
  prefix.kind = kind;
  const Header header{prefix, sequence, payload.size()};
  const std::span head = as_payload(header);
  Outgoing frame{{head.begin(), head.end()}, {descriptors.begin(), descriptors.end()}};
  frame.bytes.insert(frame.bytes.end(), payload.begin(), payload.end());
  out_.push_back(std::move(frame));
  flush();
}

void Link::flush() {
  while (unsent()) {
    const ssize_t sent = send_some(out_.front());
    if (sent < 0) {
      const int error = errno;
      // ETOOMANYREFS is temporary: descriptors in transit count against a limit until they are
      // received.
      if (error == EAGAIN || error == ENOBUFS || error == EINTR || error == ETOOMANYREFS) return;
      error_ = error;  // the last frames of the other end can still be read
      out_.clear();
      sent_ = 0;
      return;
    }
    sent_ += static_cast<size_t>(sent);
    if (sent_ < out_.front().bytes.size()) continue;
    out_.pop_front();
    sent_ = 0;
  }
}

ssize_t Link::send_some(const Outgoing& frame) {
  ControlBuffer control{};
  const std::span rest = std::span(frame.bytes).subspan(sent_);
  iovec part{const_cast<std::byte*>(rest.data()), rest.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (const size_t bytes = frame.descriptors.size() * sizeof(int); bytes != 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(rights), frame.descriptors.data(), bytes);
  }
  return os().sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// ---- Receiving.

void Link::receive() {
  if (taken_ > 0)
    std::copy(in_.begin() + static_cast<ptrdiff_t>(taken_),
              in_.begin() + static_cast<ptrdiff_t>(come_), in_.begin());
  come_ -= std::exchange(taken_, 0);
  const size_t most = sizeof(Header) + most_bytes_;  // further bytes wait in the kernel
  while (!ended_ && come_ < most) {
    const size_t part = std::min(kReadBytes, most - come_);
    if (in_.size() < come_ + part) in_.resize(come_ + part);
    const size_t got = receive_some(std::span(in_).subspan(come_, part));
    come_ += got;
    if (got < part) return;
  }
}

/// Returns the number of received bytes, or 0 if there are none or the connection has ended.
size_t Link::receive_some(std::span<std::byte> room) {
  ControlBuffer control;
  iovec part{room.data(), room.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(most_descriptors_ * sizeof(int));
  std::vector<Fd> received;  // reserves memory first, so that no descriptor can leak
  received.reserve(most_descriptors_ + 1);
  descriptors_.reserve(descriptors_.size() + most_descriptors_ + 1);
  const ssize_t got = [&] {
    const DescriptorChange change;
    const ssize_t bytes = os().recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes >= 0) take_descriptors(message, received);
    return bytes;
  }();
  if (got < 0) {
    if (const int error = errno; error != EAGAIN && error != EINTR) end(error);
    return 0;
  }
  // The kernel drops descriptors that do not fit, or that this process may not open.
  if ((message.msg_flags & MSG_CTRUNC) != 0 && received.size() < most_descriptors_) {
    end(EMFILE);
  } else if ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
    end(EMSGSIZE);
  } else if (got == 0) {
    end(0);
  } else {
    std::move(received.begin(), received.end(), std::back_inserter(descriptors_));
    return static_cast<size_t>(got);
  }
  return 0;
}

void Link::end(int error) {
  ended_ = true;
  if (error != 0) error_ = error;
}

bool Link::ended() {
  receive();
  return ended_;
}

std::optional<Frame> Link::parse() {
  const std::span there = std::span(in_).first(come_).subspan(taken_);
  Header header{};
  if (there.size() < sizeof(Prefix)) return std::nullopt;
  memcpy(static_cast<void*>(&header), there.data(), std::min(there.size(), sizeof header));
  const bool ours = header.prefix.magic == Prefix::kMagic;
  if (ours && !header.prefix.same_version()) {
    other_version_ = header.prefix;
    return std::nullopt;
  }
  if (ours && there.size() < sizeof header) return std::nullopt;
  if (!ours || header.bytes > most_bytes_) {
    come_ = taken_ = 0;
    ended_ = over_ = true;
    return std::nullopt;
  }
  if (there.size() - sizeof header < header.bytes) return std::nullopt;
  const std::span payload = there.subspan(sizeof header, header.bytes);
  Frame frame{header.prefix.kind,
              header.sequence,
              {payload.begin(), payload.end()},
              std::exchange(descriptors_, {})};
  taken_ += sizeof header + header.bytes;
  return frame;
}

std::optional<Frame> Link::take() {
  if (over_) return std::nullopt;
  if (std::optional<Frame> frame = parse()) return frame;
  receive();
  std::optional<Frame> frame = parse();
  if (!frame && ended_) over_ = true;
  return frame;
}

Status too_many_descriptors() {
  return Status(
      ZERO_ERR_SYSTEM,
      "this process cannot open as many file descriptors as the ranks need: raise ulimit -n");
}

Status Link::problem() const {
  if (error_ == 0 && !over_) return {};
  if (error_ == EMFILE) return too_many_descriptors();
  if (error_ == ENOMEM || error_ == ENOBUFS)
    return Status(ZERO_ERR_SYSTEM, text("communicating with a rank: ", errno_text(error_)));
  return Status(ZERO_ERR_COMM, "the connection is closed");
}

std::string text_of(const Frame& frame) {
  if (frame.payload.empty()) return "it gave no reason";
  return as_utf8({reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size()});
}

// ---- Waits.

// Wait: as long as the caller says.
void sleep_ms(int milliseconds) { os().poll(nullptr, 0, milliseconds); }

void pause_between_looks(int64_t waited_ns, int64_t usual_ns, int64_t most_ns) {
  constexpr int64_t kShortestNs = 20'000;
  uint32_t nobody_wakes = 0;
  const timespec time{
      0, std::clamp(std::max(usual_ns / 2 - waited_ns, waited_ns / 4), kShortestNs, most_ns)};
  // Wait: most_ns.
  os().futex(&nobody_wakes, FUTEX_WAIT_PRIVATE, 0, &time);
}

Status deliver(Link& link, const Bounds& bounds) {
  for (Watch watch = watch_for(bounds); link.unsent(); link.flush()) {
    ZERO_TRY(look(bounds, watch));
    // Wait: a slice of bounds.limit_ms.
    sleep_ms(1);
  }
  return link.problem();
}

Result<Frame> hear(Link& link, const Bounds& bounds) {
  for (Watch watch = watch_for(bounds);; link.flush()) {
    if (std::optional<Frame> frame = link.take()) return std::move(*frame);
    if (link.over()) return link.problem();
    if (Status ended = look(bounds, watch); !ended.ok()) {
      // The other end may have sent its reason before it left.
      if (std::optional<Frame> frame = link.take()) return std::move(*frame);
      return ended;
    }
    pollfd one{link.fd(), POLLIN, 0};
    // Wait: a slice of bounds.limit_ms.
    os().poll(&one, 1, static_cast<int>(watch.slice_ms()));
  }
}

}  // namespace zero
