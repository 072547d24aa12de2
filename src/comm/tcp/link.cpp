// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/link.h"

#include <algorithm>
#include <cstring>

#include "comm/tcp/socket.h"

namespace zero::tcp {
namespace {

constexpr uint32_t kMagic = 0x325a7463;  // changes with the layout of any frame
constexpr size_t kPieceBytes = 64u << 10;

}  // namespace

struct Link::Header {
  uint32_t magic;
  FrameKind kind;
  uint64_t sequence;
  uint64_t bytes;  // that follow
};

void Link::send(FrameKind kind, uint64_t sequence, std::span<const std::byte> payload) {
  if (over_) return;
  const Header header{kMagic, kind, sequence, payload.size()};
  const std::span head = std::as_bytes(std::span(&header, 1));
  out_.insert(out_.end(), head.begin(), head.end());
  out_.insert(out_.end(), payload.begin(), payload.end());
  flush();
}

void Link::flush() {
  while (unsent()) {
    const ssize_t sent = send_some(fd_.get(), std::span(out_).subspan(sent_));
    if (sent < 0) sent_ = out_.size();  // the other end is gone: what it said before may be read
    if (sent <= 0) break;
    sent_ += static_cast<size_t>(sent);
  }
  if (sent_ < out_.size()) return;
  out_.clear();
  sent_ = 0;
}

void Link::receive() {
  in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  const size_t most = sizeof(Header) + most_bytes_;  // what comes behind waits in the system
  while (!ended_ && in_.size() < most) {
    const size_t had = in_.size();
    const size_t piece = std::min(kPieceBytes, most - had);
    in_.resize(had + piece);
    const ssize_t got = receive_some(fd_.get(), std::span(in_).subspan(had));
    in_.resize(had + static_cast<size_t>(got > 0 ? got : 0));
    if (got < 0) ended_ = true;
    if (got < static_cast<ssize_t>(piece)) return;
  }
}

bool Link::ended() {
  receive();
  return ended_;
}

std::optional<Frame> Link::parse() {
  Header header;
  if (in_.size() - taken_ < sizeof header) return std::nullopt;
  memcpy(&header, in_.data() + taken_, sizeof header);
  if (header.magic != kMagic || header.bytes > most_bytes_) {
    in_.clear();
    taken_ = 0;
    ended_ = over_ = true;
    return std::nullopt;
  }
  if (in_.size() - taken_ - sizeof header < header.bytes) return std::nullopt;
  const std::byte* const payload = in_.data() + taken_ + sizeof header;
  Frame frame{header.kind, header.sequence, {payload, payload + header.bytes}};
  taken_ += sizeof header + header.bytes;
  if (taken_ == in_.size()) {
    in_.clear();
    taken_ = 0;
  }
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

}  // namespace zero::tcp
