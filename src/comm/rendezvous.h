// SPDX-License-Identifier: Apache-2.0
// How ranks find each other, over any Link: rank 0 listens, the others are its guests. A guest says
// hello with a nonce; rank 0 welcomes it with a nonce of its own and a proof that it knows the
// job's word; the guest confirms by its proof and is seated. A word never travels, and what does is
// good for one connection. What only one backend has to say stands in its own rendezvous.h.
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

#include "base/secret.h"
#include "comm/link.h"
#include "comm/socket.h"

namespace zero {

using Nonce = std::array<std::byte, 16>;
using Proof = Sha256;

struct Nonces {
  Nonce guest{}, root{};
};

enum class Role : uint32_t { guest = 1, root };

/// Past the deadline, for rank 0's verdict to arrive: it names who never came.
inline constexpr int64_t kVerdictMs = 250;

/// What `role` sends on the connection of the guest `rank`.
Proof prove(std::span<const std::byte> word, Role role, int32_t rank, const Nonces& nonces);

/// What each side says of itself.
struct Introduction {
  Nonce nonce{};
  int32_t rank = 0;
  int32_t world = 0;
  int64_t pid = 0;
  int64_t limit_ms = 0;  // of its rendezvous, and what is left of that
  int64_t remaining_ms = 0;
  char device[16] = {};  // what its memory is on: "host", "cuda"; "" where that is not compared
  char host[64] = {};    // "" where all ranks are on one

  std::string process() const;         // "process 1234 on host-b"
  std::string name() const;            // "rank 2 (process 1234 on host-b)"
  std::string name_and_state() const;  // "rank 2 (process 1234, stopped)"
};
/// Rank 0's has a proof with it.
struct Welcome {
  Introduction root;
  Proof proof{};
};

/// Who can tell that a process has ended where its connection does not, as a child of it may keep
/// that open.
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
  int64_t limit_ms = 0;
  int64_t deadline_ns = 0;
  std::span<const std::byte> word;  // what only ranks of this job know; empty: nothing
  std::function<Status()> check;    // a failure ends the rendezvous
  size_t most_bytes = 4096;         // of one frame, once the other end has shown who it is

  // Of ranks on one host, whose kernel says which user's a process is.
  bool one_host = false;
  bool knows_users = false;      // so somebody of this user may end it, also without a proof
  std::vector<int> descriptors;  // that introduce this process to others
  std::string device, host;      // as in Introduction

  virtual ~Meeting() = default;
  /// The witness of a process, by the descriptors that introduced it. ZERO_ERR_COMM where they
  /// introduce nobody.
  virtual Result<std::shared_ptr<Witness>> meet(std::span<Fd>, pid_t) const {
    return std::shared_ptr<Witness>();
  }
  /// Who did not come to rank 0, and what a rank says that did not find it, having met with the
  /// last obstacle at each place: sentences.
  virtual std::string absent(std::string_view ranks, int64_t limit_ms) const = 0;
  virtual std::string unreached(std::span<const std::string> obstacles) const = 0;

  Status failed(std::string_view sentence) const;
  int64_t remaining_ms() const;
  Introduction introduction() const;
};

/// Another rank, or who may be one.
struct Partner {
  std::unique_ptr<Link> link;
  pid_t pid = 0;                     // as the kernel tells it
  std::optional<Introduction> said;  // once it has
  Nonce nonce{};                     // it is to prove itself by that
  std::vector<Fd> descriptors;       // that introduced it
  std::shared_ptr<Witness> witness;
  bool ready = false;

  bool spoke() const { return said || link->other_version(); }
  /// Of one whose connection has ended: has its process, too? Waits a moment for the kernel's word.
  bool died() const;
  std::string end() const;  // " died", " gave up its rendezvous"
};

/// Rank 0's side.
class Reception {
 public:
  /// `listener` outlives this; once it is closed nobody else comes.
  Reception(const Meeting& meeting, const Fd& listener) : meeting_(meeting), listener_(listener) {}

  /// Until all other ranks are seated. ZERO_ERR_RENDEZVOUS names who is missing, who disagrees and
  /// who died.
  Status gather();
  /// Until all guests have said FrameKind::ready.
  Status await_ready();
  /// Tell everybody `why` there will be no comm, and for a while those who come then.
  void dismiss(const std::string& why);
  /// What dismiss() is to say of `failure`.
  std::string explain(const Status& failure) const;

  Partner& guest(int32_t rank) { return guests_[static_cast<size_t>(rank)]; }
  Status gone(int32_t rank) const;

 private:
  Status turn();
  Status accept();
  void drop_a_stranger();
  Status hear_strangers();
  Result<bool> greet(Partner& stranger, Frame frame);
  Result<bool> confirm(Partner& stranger, const Frame& frame);
  Status disagreement(const Partner& stranger) const;
  Status lost(const Partner& stranger) const;
  void seat(Partner& stranger);
  Status hear_guest(int32_t rank);
  Status deadline_passed() const;
  void refuse(Link& link, std::string_view why) const;
  void tell(Partner& one, std::string_view why);
  void linger(const std::string& why);

  const Meeting& meeting_;
  const Introduction mine_ = meeting_.introduction();
  const Fd& listener_;
  std::vector<Partner> strangers_;
  // By rank; the first is nobody.
  std::vector<Partner> guests_ = std::vector<Partner>(static_cast<size_t>(meeting_.world));
  int32_t seated_ = 0;
  bool formed_ = false;                // all were
  int32_t expected_ = meeting_.world;  // ranks that there may be: some may say more than this one
  std::set<int32_t> told_;             // ranks, that there will be no comm
  // The earliest of all ranks', and how long that rank's whole limit was.
  int64_t deadline_ns_ = meeting_.deadline_ns;
  int64_t limit_ms_ = meeting_.limit_ms;
};

/// Another rank's side: rank 0, once it has given this rank a seat. It is looked for at all places
/// beside each other, and none is given up while it may still answer: rank 0 may come to its
/// connections late. Where this is rank 0, looking who holds its place: ZERO_ERR_COMM if the holder
/// has gone.
Result<Partner> visit(const Meeting& meeting, std::span<const Place> places);

/// The next frame from rank 0, which is to be of `kind`. Its refusals, death and silence are
/// ZERO_ERR_RENDEZVOUS.
Result<Frame> hear_root(const Meeting& meeting, Partner& root, FrameKind kind);
/// All that was sent to it has gone; else why not, as above.
Status deliver_to_root(const Meeting& meeting, Partner& root);

}  // namespace zero
