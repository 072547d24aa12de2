// SPDX-License-Identifier: Apache-2.0
// A rendezvous on one host, as rank 0 or another rank sees it. The other side sends arbitrary
// messages, and knows the job's secret. Everything runs on one thread: between two slices of its
// wait, the rank lets the other side send one message. A wait ends at once, and advances the clock
// by its length.
#include "comm/local/rendezvous.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <optional>
#include <vector>

#include "base/hash.h"
#include "fuzz/input.h"
#include "support/ranks.h"
#include "support/system_calls.h"

using namespace zero;
using namespace zero::local;

namespace {

int64_t waited_ns = 0;

int poll_now(struct pollfd* fds, nfds_t count, int timeout_ms) {
  const int ready = ::poll(fds, count, 0);
  if (ready == 0) waited_ns += std::max(timeout_ms, 1) * int64_t{1'000'000};
  return ready;
}

int futex_now(uint32_t*, int operation, uint32_t, const struct timespec* timeout) {
  if ((operation & FUTEX_CMD_MASK) == FUTEX_WAKE) return 0;
  waited_ns += timeout == nullptr ? 0 : timeout->tv_sec * 1'000'000'000 + timeout->tv_nsec;
  return errno = ETIMEDOUT, -1;
}

int time_waited(clockid_t, struct timespec* time) {
  waited_ns += 10'000;  // so that a loop that only looks at the time also ends
  time->tv_sec = 1 + waited_ns / 1'000'000'000;
  time->tv_nsec = waited_ns % 1'000'000'000;
  return 0;
}

constexpr std::string_view kWord = "word";
constexpr int64_t kLimitMs = 300;

/// One connection of the other side, and what it has received on it.
struct Line {
  std::unique_ptr<Link> link;
  Nonce heard{}, said{};
  int32_t rank = 1;  // that it claims to have
  void hear() {
    while (const std::optional<Frame> frame = link->take()) {
      if (const auto hello = read<Introduction>(*frame, FrameKind::hello)) heard = hello->nonce;
      if (const auto welcome = read<Welcome>(*frame, FrameKind::welcome))
        heard = welcome->root.nonce;
    }
  }
};

/// The other side of one rank's rendezvous.
class Other {
 public:
  Other(fuzz::Input& input, NamedMeeting& meeting, const Life& life)
      : input_(input), meeting_(meeting), life_(life) {
    if (meeting.rank != 0)
      fuzz::must(listen_at(place_of(meeting.address), &listener_) == 0, "the name is free");
  }

  Status say_one_thing() {
    if (input_.empty()) {
      lines_.clear();
      return {};
    }
    const size_t what = input_.below(16);
    if (lines_.empty() || what == 0) return connect();
    Line& line = lines_[input_.below(lines_.size())];
    line.hear();
    say(what, line);
    if (what == 1) std::erase_if(lines_, [&](const Line& one) { return &one == &line; });
    return {};
  }

 private:
  Status connect() {
    Fd connection;
    if (listener_.valid())
      connection = accept_connection(listener_.get());
    else if (start_connect(place_of(meeting_.address), &connection) != 0)
      return {};
    if (connection.valid() && lines_.size() < 4)
      lines_.push_back({std::make_unique<Link>(std::move(connection), 8192, 8)});
    return {};
  }

  std::vector<int> descriptors() {
    const int all[] = {life_.page(), life_.pidfd(), memory(true), memory(false), 0};
    std::vector<int> some;
    for (size_t i = input_.below(4); i > 0; i--) some.push_back(all[input_.below(std::size(all))]);
    return some;
  }

  /// Returns a segment of the right size, with zeros or formatted like a control segment.
  int memory(bool sealed) {
    Fd& fd = memory_[sealed];
    if (fd.valid()) return fd.get();
    if (sealed) {
      Result<ControlSegment> made = make_control_segment(meeting_.world);
      if (made.ok()) fd = std::move(made->fd);
    } else {
      fd = Fd(::memfd_create("unsealed", MFD_CLOEXEC));
    }
    return fd.get();
  }

  Introduction introduction(Line& line) {
    Introduction words = meeting_.introduction();
    line.rank = static_cast<int32_t>(input_.below(4)) - (input_.below(8) == 0);
    words.rank = meeting_.rank == 0 ? line.rank : 0;
    line.said = words.nonce = Nonce{std::byte{input_.take()}};
    if (input_.below(4) != 0) return words;
    words.world += input_.take<int8_t>();
    words.pid = input_.take<int64_t>();
    words.limit_ms = input_.take<int64_t>();
    words.remaining_ms = input_.take<int64_t>();
    const std::string_view name = input_.bytes(sizeof words.host);
    name.copy(words.host, name.size());
    return words;
  }

  void say(size_t what, Line& line) {
    const auto introduced = [&] { return std::vector{life_.page(), life_.pidfd()}; };
    const auto payload = [&](const auto& words) { return as_payload(words); };
    const std::span word = bytes_of(kWord);
    switch (what) {
      case 1:
        return;
      case 2:
        return line.link->send(FrameKind::hello, 0, payload(introduction(line)), introduced());
      case 3: {
        const Proof proof = prove(word, Role::guest, line.rank, {line.said, line.heard});
        return line.link->send(FrameKind::confirm, 0, payload(proof));
      }
      case 4: {
        Welcome words{introduction(line), {}};
        words.proof = prove(word, Role::root, meeting_.rank, {line.heard, words.root.nonce});
        return line.link->send(FrameKind::welcome, 0, payload(words));
      }
      case 5:
        return line.link->send(FrameKind::seated, 0, {}, introduced());
      case 6:
        return line.link->send(FrameKind::ready);
      case 7:
        return line.link->send(FrameKind::refusal, 0, bytes_of(input_.bytes(input_.take())));
      case 8: {
        struct {
          Generation generation{};
          uint32_t processes, unused = 0;
        } words;
        words.processes = static_cast<uint32_t>(input_.below(4));
        return line.link->send(FrameKind::group, 0, payload(words), std::vector{memory(true)});
      }
      case 9: {
        const int32_t words[] = {os().getpid(), 2, os().getpid(), 2};
        return line.link->send(FrameKind::processes, 0,
                               std::as_bytes(std::span(words)).first(input_.below(3) * 8),
                               introduced());
      }
      default: {
        const auto kind = static_cast<FrameKind>(input_.below(20));
        const std::string_view bytes = input_.bytes(input_.take());
        return line.link->send(kind, 0, bytes_of(bytes), descriptors());
      }
    }
  }

  fuzz::Input& input_;
  NamedMeeting& meeting_;
  const Life& life_;
  Fd listener_, memory_[2];
  std::vector<Line> lines_;
};

void meet_with(fuzz::Input& input, const Life& life, const std::string& address) {
  NamedMeeting meeting(address, life);
  meeting.title = "rendezvous 'fuzz'";
  meeting.rank = static_cast<int32_t>(input.below(2));
  meeting.world = 2 + static_cast<int32_t>(input.below(2));
  meeting.limit_ms = kLimitMs;
  meeting.deadline = Deadline(kLimitMs);
  meeting.word = bytes_of(kWord);
  meeting.device = "host";
  Other other(input, meeting, life);
  meeting.check = [&] { return other.say_one_thing(); };
  const Result<Seat> seat = meet(meeting);
  if (!seat.ok())
    fuzz::must_refuse(seat.failure(), {ZERO_ERR_RENDEZVOUS, ZERO_ERR_COMM, ZERO_ERR_SYSTEM});
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Life life = std::move(Life::begin()).value();
  static const std::string address = address_of_comm(test::unique_name());
  static const test::ReplacedCall poll(&SystemCalls::poll, poll_now);
  static const test::ReplacedCall futex(&SystemCalls::futex, futex_now);
  static const test::ReplacedCall time(&SystemCalls::clock_gettime, time_waited);
  const fuzz::SameDescriptors same;
  fuzz::Input input(data, size);
  meet_with(input, life, address);
  fuzz::must(mapped_segments() == 1, "no memory is left mapped");
  return 0;
}
