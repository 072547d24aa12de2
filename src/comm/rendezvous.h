// SPDX-License-Identifier: Apache-2.0
// How ranks find each other, over any Link: rank 0 listens, the others are its guests. A guest says
// hello with a nonce; rank 0 welcomes it with a nonce of its own and a proof that it knows the
// job's word; the guest confirms by its proof and is seated. A word never travels, and proofs are
// good for one connection. Each backend's own part stands in its own rendezvous.h. In a tree any
// rank listens, for its children, as rank 0 does.
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

/// How long after the deadline rank 0's verdict may still arrive. It names who never came.
inline constexpr int64_t kVerdictMs = 250;

/// Returns the proof that `role` sends on the connection of the guest `rank`.
Proof prove(std::span<const std::byte> word, Role role, int32_t rank, const Nonces& nonces);

/// Each side's words about itself.
struct Introduction {
  Nonce nonce{};
  int32_t rank = 0;
  int32_t world = 0;
  int32_t called = -1;  // the rank as errors call it, if that is another number
  uint32_t unused = 0;
  int64_t pid = 0;
  int64_t limit_ms = 0;  // of its rendezvous, and what is left of that
  int64_t remaining_ms = 0;
  char device[16] = {};  // of its memory: "host", "cuda"; "" if that is not compared
  char host[64] = {};    // "" if all ranks are on one

  int32_t called_rank() const { return called < 0 ? rank : called; }
  std::string process() const;         // "process 1234 on host-b"
  std::string name() const;            // "rank 2 (process 1234 on host-b)"
  std::string name_and_state() const;  // "rank 2 (process 1234, stopped)"
};
/// Rank 0's words, with a proof.
struct Welcome {
  Introduction root;
  Proof proof{};
};

/// Tells whether a process has ended. Its connection may not tell that, because a child of it may
/// keep the connection open.
class Witness {
 public:
  virtual ~Witness() = default;
  virtual bool ask() const = 0;
};

/// One rank's part in a rendezvous.
struct Meeting {
  std::string title;  // "rendezvous 'job'", in front of errors; "": nothing
  int32_t rank = 0;
  int32_t world = 1;
  int32_t root = 0;  // the rank that listens
  int64_t limit_ms = 0;
  Deadline deadline{0};
  std::span<const std::byte> word;  // only ranks of this job know it; empty: none
  std::function<Status()> check;    // a failure ends the rendezvous, as an interrupt does
  size_t most_bytes = 4096;         // of one frame, once the other end has shown who it is

  // For ranks on one host. Its kernel tells the user of a process.
  bool one_host = false;
  bool knows_users = false;      // so a process of this user may end it, even without a proof
  std::vector<int> descriptors;  // introduce this process to others
  std::string device, host;      // as in Introduction

  virtual ~Meeting() = default;
  /// Returns the witness of a process, by the descriptors that introduced it. Fails with
  /// ZERO_ERR_COMM if they introduce nobody.
  virtual Result<std::shared_ptr<Witness>> meet(std::span<Fd>, pid_t) const {
    return std::shared_ptr<Witness>();
  }
  /// Returns a rank as errors call it.
  virtual int32_t called(int32_t of) const { return of; }
  /// Return sentences: that `ranks` did not come to rank 0; and that a rank did not find rank 0,
  /// with the last obstacle at each place.
  virtual std::string absent(std::string_view ranks, int64_t limit_ms) const = 0;
  virtual std::string unreached(std::span<const std::string> obstacles) const = 0;

  /// Returns why the rendezvous must end now, or OK. To be called between two slices of a wait.
  Status look() const {
    if (interrupted()) return failed(interruption_of(called(rank)));
    return check();
  }

  Status failed(std::string_view sentence) const;
  Introduction introduction() const;
  /// Returns the patience with ranks that have not come.
  Patience patience() const {
    return {title.empty() ? "rendezvous" : title.c_str(), "arrival", limit_ms, false};
  }
};

/// Another rank, or a process that may be one.
struct Partner {
  std::unique_ptr<Link> link;
  pid_t pid = 0;                     // as the kernel tells it
  std::optional<Introduction> said;  // once it has
  Nonce nonce{};                     // it must prove itself by that
  std::vector<Fd> descriptors;       // introduced it, if no other one of its process has them
  std::shared_ptr<Witness> witness;
  bool ready = false;

  bool spoke() const { return said || link->other_version(); }
  /// True if the partner's process has ended as well as its connection. Waits a moment for the
  /// kernel's word.
  bool died() const;
  std::string end() const;  // " died", " gave up its rendezvous"
};

/// The side of rank 0, or of another one that listens.
class Reception {
 public:
  /// The guests are `count` ranks from `first` on, without these all others. `listener` must
  /// outlive this. Once it is closed, nobody else comes.
  Reception(const Meeting& meeting, const Fd& listener, int32_t first, int32_t count)
      : meeting_(meeting),
        listener_(listener),
        first_(first),
        guests_(static_cast<size_t>(count)) {}
  Reception(const Meeting& meeting, const Fd& listener)
      : Reception(meeting, listener, 1, meeting.world - 1) {}

  /// Waits until all guests are seated. Fails with ZERO_ERR_RENDEZVOUS, which names who is
  /// missing, who disagrees or who died.
  Status gather();
  /// Waits until all guests have said FrameKind::ready.
  Status await_ready();
  /// Tells everybody `why` there will be no comm, and for a while also those who come then.
  void dismiss(const std::string& why);
  /// Returns what dismiss() should say of `failure`.
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
  std::vector<Partner> guests_;  // by rank, from first_ on
  size_t seated_ = 0;
  bool formed_ = false;                // all were seated
  int32_t expected_ = meeting_.world;  // ranks that there may be: some may say more than this one
  std::set<int32_t> told_;             // ranks that know that there will be no comm
  // The earliest deadline of all ranks, and that rank's whole limit.
  Deadline deadline_ = meeting_.deadline;
  int64_t limit_ms_ = meeting_.limit_ms;
};

/// Returns rank 0, once it has given this rank a seat: another rank's side. It looks at all places
/// at the same time, and gives up none that may still answer, because rank 0 may come to its
/// connections late. Rank 0 itself looks this way who holds its place: it gets ZERO_ERR_COMM if the
/// holder has gone.
Result<Partner> visit(const Meeting& meeting, std::span<const Place> places);

/// Returns the next frame from rank 0, which must be of `kind`. Fails with ZERO_ERR_RENDEZVOUS if
/// rank 0 refuses, dies or is silent.
Result<Frame> hear_root(const Meeting& meeting, Partner& root, FrameKind kind);
/// Waits until all that was sent to rank 0 has gone. Fails as hear_root() does.
Status deliver_to_root(const Meeting& meeting, Partner& root);

}  // namespace zero
