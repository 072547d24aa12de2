// SPDX-License-Identifier: Apache-2.0
// How ranks find each other over Links. Rank 0 listens, and the other ranks are its guests. A guest
// sends a hello with a nonce. Rank 0 replies with a welcome that contains its own nonce and a proof
// that it knows the secret of the job. The guest confirms with its own proof and is seated. The
// secret is never sent, and each proof is valid for one connection only. Backend-specific parts are
// in each backend's rendezvous.h. In a tree, any rank can listen for its children as rank 0 does.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/interrupt.h"
#include "base/secret.h"
#include "comm/failure.h"
#include "comm/link.h"
#include "comm/socket.h"
#include "comm/watch.h"

namespace zero {

using Nonce = std::array<std::byte, 16>;
using Proof = Sha256;

struct Nonces {
  Nonce guest{}, root{};
};

enum class Role : uint32_t { guest = 1, root };

/// How long after the deadline to wait for rank 0's verdict, which names the missing ranks.
inline constexpr int64_t kVerdictMs = 250;

/// Returns the proof that `role` sends on the connection of the guest `rank`.
Proof prove(std::span<const std::byte> word, Role role, int32_t rank, const Nonces& nonces);

/// What each side sends about itself.
struct Introduction {
  Nonce nonce{};
  int32_t rank = 0;
  int32_t world = 0;
  int32_t called = -1;  // the rank's number in error messages, or -1 if it is the same
  uint32_t unused = 0;
  int64_t pid = 0;
  int64_t limit_ms = 0;  // of its rendezvous; remaining_ms is what is left of it
  int64_t remaining_ms = 0;
  char device[16] = {};  // of its memory: "host" or "cuda"; "" if it is not compared
  char host[64] = {};    // "" if all ranks are on one host

  int32_t called_rank() const { return called < 0 ? rank : called; }
  std::string process() const;         // "process 1234 on host-b"
  std::string name() const;            // "rank 2 (process 1234 on host-b)"
  std::string name_and_state() const;  // "rank 2 (process 1234, stopped)"
};
/// Rank 0's introduction with a proof.
struct Welcome {
  Introduction root;
  Proof proof{};
};

/// Detects the end of a process. Its connection does not always show this, because a child process
/// may keep the connection open.
class Witness {
 public:
  virtual ~Witness() = default;
  virtual bool ask() const = 0;
};

/// One rank's parameters of a rendezvous.
struct Meeting {
  std::string title;  // "rendezvous 'job'", the start of error messages; may be ""
  int32_t rank = 0;
  int32_t world = 1;
  int32_t root = 0;  // the rank that listens
  int64_t limit_ms = 0;
  Deadline deadline{0};
  std::span<const std::byte> word;  // known only to ranks of this job; may be empty
  std::function<Status()> check;    // a failure ends the rendezvous, as an interrupt does
  size_t most_bytes = 4096;         // of one frame, after the other end has proved its identity

  // For ranks on one host, where the kernel knows the user of each process.
  bool one_host = false;
  bool knows_users = false;      // then processes of this user can end it even without a proof
  std::vector<int> descriptors;  // sent to other ranks to introduce this process
  std::string device, host;      // as in Introduction

  virtual ~Meeting() = default;
  /// Returns the witness for a process, from the descriptors that introduced it. Fails with
  /// ZERO_ERR_COMM if they do not introduce a process.
  virtual Result<std::shared_ptr<Witness>> meet(std::span<Fd>, pid_t) const {
    return std::shared_ptr<Witness>();
  }
  /// Returns the number of a rank in error messages.
  virtual int32_t called(int32_t of) const { return of; }
  /// Return error messages: one says that `ranks` did not join rank 0, and the other says that this
  /// rank did not find rank 0, with the last obstacle at each place.
  virtual std::string absent(std::string_view ranks, int64_t limit_ms) const = 0;
  virtual std::string unreached(std::span<const std::string> obstacles) const = 0;

  /// Returns why the rendezvous must end now, or OK. Called between two slices of a wait.
  Status look() const {
    if (interrupted()) return failed(interruption_of(called(rank)));
    return check();
  }

  Status failed(std::string_view sentence) const;
  Introduction introduction() const;
  /// Returns the patience with ranks that have not arrived.
  Patience patience() const {
    return {title.empty() ? "rendezvous" : title.c_str(), "arrival", limit_ms, false};
  }
};

/// Another rank, or a process that may be one.
struct Partner {
  std::unique_ptr<Link> link;
  pid_t pid = 0;                     // as the kernel reports it
  std::optional<Introduction> said;  // after it has introduced itself
  Nonce nonce{};                     // its proof must use this nonce
  std::vector<Fd> descriptors;       // introduced it; empty if another partner holds them
  std::shared_ptr<Witness> witness;
  bool ready = false;

  bool spoke() const { return said || link->other_version(); }
  /// Returns true if the partner's process has ended and not only its connection. Waits briefly for
  /// the kernel to report this.
  bool died() const;
  std::string end() const;  // " died", " gave up its rendezvous"
};

/// The side of rank 0, or of another rank that listens.
class Reception {
 public:
  /// The guests are `count` ranks from `first` on, or all other ranks. `listener` must outlive this
  /// object. After the listener is closed, no further guest can join.
  Reception(const Meeting& meeting, const Fd& listener, int32_t first, int32_t count)
      : meeting_(meeting),
        listener_(listener),
        first_(first),
        guests_(static_cast<size_t>(count)) {}
  Reception(const Meeting& meeting, const Fd& listener)
      : Reception(meeting, listener, 1, meeting.world - 1) {}

  /// Waits until all guests are seated. Fails with ZERO_ERR_RENDEZVOUS, naming the ranks that are
  /// missing, disagree or died.
  Status gather();
  /// Waits until all guests have sent FrameKind::ready.
  Status await_ready();
  /// Tells all guests `why` there will be no comm, and for a short time also those that come later.
  void dismiss(const std::string& why);
  /// Returns the text that dismiss() should send for `failure`.
  std::string explain(const Status& failure) const;

  Partner& guest(int32_t rank) { return guests_[static_cast<size_t>(rank - first_)]; }
  /// Waits for a guest's next frame.
  Result<Frame> hear(Partner& guest, FrameKind kind);

 private:
  Status wait_and_look();
  Status accept();
  void drop_a_stranger();
  Status hear_strangers();
  Result<bool> greet(Partner& stranger, Frame frame);
  Result<bool> confirm(Partner& stranger, const Frame& frame);
  Status disagreement(const Partner& stranger) const;
  Status lost(const Partner& stranger) const;
  void seat(Partner& stranger);
  Status check(const Partner& guest, const Frame& frame, FrameKind kind) const;
  Status gone(Partner& guest) const;
  std::string missing() const;
  Status deadline_passed() const;
  void refuse(Link& link, std::string_view why) const;
  void tell(Partner& one, std::string_view why);
  void linger(const std::string& why);

  const Meeting& meeting_;
  const Introduction mine_ = meeting_.introduction();
  const Fd& listener_;
  std::vector<Partner> strangers_;
  const int32_t first_;
  std::vector<Partner> guests_;  // by rank, starting at first_
  size_t seated_ = 0;
  bool formed_ = false;                // all guests have been seated
  int32_t expected_ = meeting_.world;  // number of possible ranks; guests may report more
  std::set<int32_t> told_;             // ranks that know that there will be no comm
  // The earliest deadline of all ranks, and the whole limit of the rank that has it.
  Deadline deadline_ = meeting_.deadline;
  int64_t limit_ms_ = meeting_.limit_ms;
};

/// Joins the rendezvous as a guest, and returns rank 0 after it has seated this rank. Tries all
/// places at the same time, and abandons none that may still answer, because rank 0 may accept
/// connections late. Rank 0 also uses this to find the process that holds its place. It gets
/// ZERO_ERR_COMM if that process has left.
Result<Partner> visit(const Meeting& meeting, std::span<const Place> places);

/// Returns the next frame from rank 0, which must be of `kind`. Fails with ZERO_ERR_RENDEZVOUS if
/// rank 0 refuses, dies or does not answer.
Result<Frame> hear_root(const Meeting& meeting, Partner& root, FrameKind kind);
/// Waits until everything queued for rank 0 has been sent. Fails as hear_root() does.
Status deliver_to_root(const Meeting& meeting, Partner& root);

}  // namespace zero
