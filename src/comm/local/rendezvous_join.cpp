// SPDX-License-Identifier: Apache-2.0
// The rendezvous as every rank but rank 0 sees it.
#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/text.h"
#include "comm/local/rendezvous.h"
#include "comm/local/wire.h"

namespace zero::local {
namespace {

constexpr int kFirstRetryMs = 1;
constexpr int kLastRetryMs = 20;
constexpr int64_t kGraceNs = 250'000'000;  // for rank 0's verdict, which names who never came, to arrive
constexpr int kSettleMs = 100;

class Joiner {
 public:
  explicit Joiner(const Meeting& meeting) : meeting_(meeting) {}

  Result<Seat> run() {
    ZERO_TRY(greet());
    os().reached("rendezvous.accepted");
    ZERO_TRY(take_welcome());
    os().reached("rendezvous.welcome");
    Result<Seat> seat = take_seat();
    ZERO_TRY(report(seat.failure()));
    os().reached("rendezvous.ready");
    return seat;
  }

 private:
  Status greet();
  Result<bool> try_root(int* error);
  Result<bool> introduce();
  Status take_welcome();
  Status take_processes(const Processes& part, std::span<Fd> descriptors);
  Result<Seat> take_seat();
  Status report(const Status& outcome);

  Status hear(Message what);
  Vigil vigil() const;
  Status closed() const;
  Status root_never_came() const;
  std::string root_name() const { return text("rank 0 (process ", root_pid_, ")"); }

  const Meeting& meeting_;
  Fd connection_;
  pid_t root_pid_ = 0;
  Fd root_pidfd_;
  std::shared_ptr<Peer> root_;  // from its ack on
  std::string obstacle_;        // what was in the way the last time
  Welcome welcome_;
  Fd control_;
  std::vector<std::shared_ptr<Peer>> processes_;
  MessageBuffer buffer_;
  std::vector<Fd> descriptors_;
};

}  // namespace
}  // namespace zero::local
