// SPDX-License-Identifier: Apache-2.0
// Rank 0's side of the rendezvous, while it lasts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "comm/local/rendezvous.h"
#include "comm/local/wire.h"

namespace zero::local {

/// What somebody's hello came with, checked.
struct Guest {
  Fd page, pidfd;
  std::shared_ptr<Peer> peer;
};

/// Somebody who has connected and has not shown yet that it is a rank of this job.
struct Stranger {
  Fd connection;
  pid_t pid;
  int64_t since_ms;
  bool spoke = false;  // and waits for an answer
  // Once its hello makes sense:
  Hello hello = {};
  Guest guest = {};
  Nonce nonce = {};  // it is to answer that
};

/// A rank of this job.
struct Member {
  Fd connection;
  pid_t pid = 0;
  std::shared_ptr<Peer> peer;
  Fd page;
  Fd pidfd;
  bool ready = false;
};

class Root {
 public:
  explicit Root(const Meeting& meeting)
      : meeting_(meeting),
        members_(static_cast<size_t>(meeting.world)),
        expected_(meeting.world),
        told_(kMaxWorld, false),
        deadline_ns_(meeting.deadline_ns),
        limit_ms_(meeting.limit_ms) {
    members_[0].pid = os().getpid();
  }

  Result<Seat> run();

 private:
  Status take_name();
  Result<bool> contest_name(int64_t until_ms);

  Status gather();
  Status turn();
  Status accept_strangers();
  void drop_a_stranger();
  Status hear_strangers();
  Status hear(Stranger& stranger, bool* keep);
  Status hear_hello(Stranger& stranger, const MessageBuffer& buffer, std::vector<Fd> descriptors,
                    bool* keep);
  Status hear_answer(Stranger& stranger, const MessageBuffer& buffer);
  Result<Guest> meet(const Stranger& stranger, std::vector<Fd> descriptors) const;
  Status lost(const Stranger& stranger) const;
  Status challenge(Stranger& stranger);
  Status seat(Stranger& stranger);
  Status disagreement(const Stranger& stranger) const;
  Status watch_members();
  Status hear_members();
  Status hear_member(int32_t rank);
  Status gone(int32_t rank) const;

  Status form();
  Status welcome(int32_t rank);
  Status send_processes(int32_t rank);
  Status collect_ready();

  Status dismiss(Status failure);
  void dismiss(Fd& connection, const std::string& sentence);
  void linger(const std::string& sentence);
  bool still_silent(const Stranger& stranger, const std::string& sentence);
  void refuse(int connection, const std::string& sentence) const;

  Vigil vigil();
  Status deadline_passed() const;
  std::string name_of(int32_t rank) const {
    return text("rank ", rank, " (process ", members_[static_cast<size_t>(rank)].pid, ")");
  }

  const Meeting& meeting_;
  Fd listener_;
  std::vector<Stranger> strangers_;
  std::vector<Member> members_;  // by rank
  int32_t expected_;             // how many ranks there may be: some may say more than this one
  std::vector<bool> told_;       // by rank: that there will be no comm
  int32_t present_ = 1;
  int64_t deadline_ns_;  // the earliest of all ranks', and how long that rank's whole limit was
  int64_t limit_ms_;
  ControlSegment segment_;
  std::vector<const Member*> processes_;  // one member of each
  std::unique_ptr<Control> control_;
};

}  // namespace zero::local
