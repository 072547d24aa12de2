// SPDX-License-Identifier: Apache-2.0
// The guest's side of a rendezvous. It connects to its root: rank 0, or another rank in a tree.
#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/text.h"
#include "comm/process.h"
#include "comm/rendezvous.h"

namespace zero {
namespace {

constexpr int64_t kFirstRetryMs = 1;
constexpr int64_t kLastRetryMs = 20;
constexpr int64_t kNextMs = 250;  // before the next place; earlier ones may still answer
constexpr const char* kNotTried = "not tried";
constexpr int kDeathMs = 100;  // from a connection's end to the report of the pidfd

/// One place, and the state of this rank's attempt there.
struct Door {
  Deadline pause{0};  // before the next attempt
  int64_t retry_ms = kFirstRetryMs;
  Fd connecting;
  Partner root;  // the rank that answers there
  Fd pidfd;
  Nonce nonce{};
};

std::string name_of(const Partner& root) {
  return root.said && root.pid == 0 ? root.said->name() : text("rank 0 (process ", root.pid, ")");
}

/// Converts a failure to the message that rank 0 does not answer, or has ended.
Status explain(const Meeting& meeting, const Partner& root, Status failure) {
  if (failure.code() == ZERO_ERR_COMM) return meeting.failed(text(name_of(root), root.end()));
  if (failure.code() != ZERO_ERR_TIMEOUT) return failure;
  const std::string who =
      root.pid == 0 ? name_of(root)
                    : text("rank 0 (process ", root.pid, ", ", process_state(root.pid), ")");
  return meeting.failed(text(who, " did not answer within ", meeting.limit_ms, " ms"));
}

Bounds until_verdict(const Meeting& meeting, const Partner& root) {
  return {meeting.deadline.left_ms() + kVerdictMs, [&]() -> Status {
            ZERO_TRY(meeting.look());
            if (root.witness == nullptr || !root.witness->ask()) return {};
            return meeting.failed(text(name_of(root), " died"));
          }};
}

class Visit {
 public:
  Visit(const Meeting& meeting, std::span<const Place> places)
      : meeting_(meeting), places_(places), doors_(places.size()) {
    for (size_t i = 0; i < doors_.size(); ++i)
      doors_[i].pause = Deadline(static_cast<int64_t>(i) * kNextMs);
  }

  Result<Partner> run() {
    for (;;) {
      ZERO_TRY(meeting_.look());
      for (size_t i = 0; i < doors_.size(); ++i) {
        if (confirmed_ && confirmed_ != i) continue;
        if (ZERO_TRY(knock(i))) return std::move(doors_[i].root);
        const bool left = doors_[i].root.link == nullptr && !doors_[i].connecting.valid();
        if (meeting_.rank == 0 && left) return Status(ZERO_ERR_COMM, obstacles_[i]);
      }
      const bool met = meeting_.one_host && doors_[0].root.link != nullptr;
      if (meeting_.deadline.passed(met ? kVerdictMs : 0)) return unreached();
      watch_.look();
      if (watch_.warns())
        log(ZERO_LOG_WARNING,
            watch_.warning(meeting_.called(meeting_.rank),
                           met ? name_of(doors_[0].root) : text("rank ", meeting_.root)));
      wait_slice();
    }
  }

 private:
  /// Tries one place. Returns true if rank 0 has seated this rank there.
  Result<bool> knock(size_t at) {
    Door& door = doors_[at];
    if (door.root.link != nullptr) return listen_at(at);
    if (door.connecting.valid()) return greet(at);
    if (!door.pause.passed()) return false;
    if (const int error = start_connect(places_[at], &door.connecting)) {
      if (meeting_.one_host && error != ECONNREFUSED && error != EAGAIN && error != EINTR)
        return Status(ZERO_ERR_SYSTEM, text("connecting: ", errno_text(error)));
      return leave(at, errno_text(error));
    }
    if (obstacles_[at] == kNotTried) obstacles_[at] = "no answer";
    return meeting_.one_host ? greet(at) : Result<bool>(false);
  }

  Result<bool> greet(size_t at) {
    Door& door = doors_[at];
    pollfd one{door.connecting.get(), POLLOUT, 0};
    if (os().poll(&one, 1, 0) <= 0) return false;
    if (const int error = connect_error(door.connecting.get())) return leave(at, errno_text(error));
    os().reached("rendezvous.connected");
    if (meeting_.one_host) {
      const Identity holder = ZERO_TRY(identity_of(door.connecting.get()));
      if (holder.uid != os().geteuid())
        return meeting_.failed(text("the name is held by a process of user ", holder.uid,
                                    ": set ZERO_JOB on all ranks to a word that others cannot "
                                    "guess, which gives this job its own name"));
      door.root.pid = holder.pid;
      door.pidfd = Fd::open([&] { return os().pidfd_open(holder.pid, 0); });
    }
    door.root.link = std::make_unique<Link>(std::move(door.connecting));
    ZERO_TRY(draw_random(door.nonce));
    Introduction hello = meeting_.introduction();
    hello.nonce = door.nonce;
    door.root.link->send(FrameKind::hello, 0, as_payload(hello), meeting_.descriptors);
    os().reached("rendezvous.greeted");
    return false;
  }

  Result<bool> listen_at(size_t at) {
    Door& door = doors_[at];
    Link& link = *door.root.link;
    link.flush();
    if (std::optional<Frame> frame = link.take()) return hear(at, std::move(*frame));
    if (const auto& other = link.other_version())
      return not_rank_0(at, text(name_of(door.root), " has ", other->version(), ", rank ",
                                 meeting_.rank, " has ", Prefix().version()));
    if (!link.over()) return false;
    if (Status why = link.problem(); why.code() == ZERO_ERR_SYSTEM) return why;
    if (door.pidfd.valid() && pidfd_ended(door.pidfd.get(), kDeathMs))
      return meeting_.failed(text(name_of(door.root), " died"));
    return leave(at, text("the process there closed the connection, as rank ", meeting_.root,
                          " of another job does"));
  }

  Result<bool> hear(size_t at, Frame frame) {
    Door& door = doors_[at];
    // Between hosts any process may answer. On one host it is a process of this user.
    if (frame.kind == FrameKind::refusal && (meeting_.one_host || confirmed_))
      return Status(ZERO_ERR_RENDEZVOUS, text_of(frame));
    if (frame.kind == FrameKind::seated && confirmed_) {
      door.root.witness = ZERO_TRY(meeting_.meet(frame.descriptors, door.root.pid));
      door.root.link->trust(meeting_.most_bytes);
      return true;
    }
    const std::optional<Welcome> welcome = read<Welcome>(frame, FrameKind::welcome);
    if (!welcome || confirmed_)
      return not_rank_0(at, text(name_of(door.root), " sent an invalid reply"));
    const Nonces nonces{door.nonce, welcome->root.nonce};
    if (!equal_in_constant_time(welcome->proof,
                                prove(meeting_.word, Role::root, meeting_.rank, nonces)))
      return not_rank_0(
          at, text("process ", door.root.pid, ", which holds this name, belongs to another job"));
    door.root.said = welcome->root;
    confirmed_ = at;
    for (size_t i = 0; i < doors_.size(); ++i)
      if (i != at) doors_[i] = Door();
    door.root.link->send(FrameKind::confirm, 0,
                         as_payload(prove(meeting_.word, Role::guest, meeting_.rank, nonces)));
    return false;
  }

  /// Leaves a place that is not rank 0's. Fails on one host, where only rank 0 has the name.
  Result<bool> not_rank_0(size_t at, std::string_view what) {
    if (meeting_.one_host) return meeting_.failed(what);
    return leave(at, text("the process there is not rank ", meeting_.root));
  }

  /// Leaves a place for now, and schedules the next attempt.
  Result<bool> leave(size_t at, std::string obstacle) {
    confirmed_.reset();
    obstacles_[at] = std::move(obstacle);
    Door& door = doors_[at];
    const int64_t retry_ms = door.retry_ms;
    door = Door();
    door.pause = Deadline(retry_ms);
    door.retry_ms = std::min(2 * retry_ms, kLastRetryMs);
    return false;
  }

  void wait_slice() const {
    int64_t slice_ms = watch_.slice_ms();
    std::vector<pollfd> polls;
    for (const Door& door : doors_) {
      if (door.root.link != nullptr) {
        polls.push_back({door.root.link->fd(), POLLIN, 0});
      } else if (door.connecting.valid()) {
        polls.push_back({door.connecting.get(), POLLOUT, 0});
      } else if (!confirmed_) {
        slice_ms = std::clamp<int64_t>(door.pause.left_ms(), 1, slice_ms);
      }
    }
    // Wait: a slice: the meeting has the deadline.
    os().poll(polls.data(), polls.size(), static_cast<int>(slice_ms));
  }

  Status unreached() const {
    const Door& door = doors_[0];
    if (!meeting_.one_host || door.root.link == nullptr)
      return meeting_.failed(meeting_.unreached(obstacles_));
    if (meeting_.rank == 0)
      return meeting_.failed(text("process ", door.root.pid, " (", process_state(door.root.pid),
                                  ") holds this name: is it another rank 0?"));
    return explain(meeting_, door.root, Status(ZERO_ERR_TIMEOUT, {}));
  }

  const Meeting& meeting_;
  const std::span<const Place> places_;
  Watch watch_{meeting_.patience()};
  std::vector<Door> doors_;  // by place
  std::vector<std::string> obstacles_ = std::vector<std::string>(places_.size(), kNotTried);
  std::optional<size_t> confirmed_;  // the only place at which this rank has asked for its seat
};

}  // namespace

Result<Partner> visit(const Meeting& meeting, std::span<const Place> places) {
  return Visit(meeting, places).run();
}

Result<Frame> hear_root(const Meeting& meeting, Partner& root, FrameKind kind) {
  Result<Frame> frame = hear(*root.link, until_verdict(meeting, root));
  if (!frame.ok()) return explain(meeting, root, std::move(frame).status());
  if (frame->kind == FrameKind::refusal) return Status(ZERO_ERR_RENDEZVOUS, text_of(*frame));
  if (frame->kind != kind) return meeting.failed(text(name_of(root), " sent an invalid reply"));
  return frame;
}

Status deliver_to_root(const Meeting& meeting, Partner& root) {
  Status sent = deliver(*root.link, until_verdict(meeting, root));
  // Rank 0 may already have left, but its last frames can still be read.
  if (sent.code() == ZERO_ERR_COMM) return hear_root(meeting, root, FrameKind::ready).failure();
  return explain(meeting, root, std::move(sent));
}

}  // namespace zero
