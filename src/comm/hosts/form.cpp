// SPDX-License-Identifier: Apache-2.0
#include "comm/hosts/form.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <numeric>

#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/secret.h"
#include "base/text.h"
#include "comm/hosts/hosts.h"
#include "comm/tcp/rendezvous.h"

namespace zero::hosts {
namespace {

// Time for ranks that seem to be on one host to find each other: a constant, and an amount for each
// rank, because many ranks do not arrive at the same moment.
constexpr int64_t kTrialMs = 5'000, kTrialOfEachMs = 4;

/// One rank's part in the creation of a comm.
struct Forming {
  Call& call;
  const std::span<const int32_t> members;
  const int32_t place;
  const CommOptions& options;

  bool takes_part() const { return !members.empty(); }
  /// Returns the entries of the members in `all`, which has an entry for each rank of the call.
  template <class Said>
  std::vector<Said> of_members(const std::vector<Said>& all) const {
    std::vector<Said> some;
    for (const int32_t member : members) some.push_back(all[static_cast<size_t>(member)]);
    return some;
  }
};

/// Returns a name that only ranks on this rank's host, by the layout, have. Only ranks of the call
/// know it.
Result<std::string> agree_on_name(const Forming& forming, const Layout& layout) {
  Digest drawn{};
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(drawn));
  ZERO_TRY(forming.call.vote("name", forming.call.rank() == 0 ? draw_random(bytes) : Status()));
  ZERO_TRY(forming.call.broadcast("name", bytes, 0));
  if (!forming.takes_part()) return std::string();
  const int32_t leader = layout.rank(layout.seat(forming.place).host, 0);
  return text(hex(drawn), ".", forming.members[static_cast<size_t>(leader)]);
}

/// Joins the ranks of this host, if they really are on this host.
Result<std::shared_ptr<local::LocalComm>> join_host(const Forming& forming, const Layout& layout) {
  const std::string name = ZERO_TRY(agree_on_name(forming, layout));
  if (!forming.takes_part()) return std::shared_ptr<local::LocalComm>();
  if (layout.places > local::kMaxWorld)
    return Status(ZERO_ERR_UNSUPPORTED, text(layout.places, " ranks on one host; at most ",
                                             local::kMaxWorld, " can share memory"));
  const Deadline trial(std::min(forming.options.rendezvous_ms,
                                kTrialMs + kTrialOfEachMs * forming.call.comm().world()));
  const auto check = [&]() -> Status {
    if (trial.passed()) return Status(ZERO_ERR_UNSUPPORTED, "the ranks did not meet on this host");
    return forming.call.comm().check();
  };
  return local::join("rendezvous of the ranks on a host", local::address_of_comm(name, name), name,
                     layout.seat(forming.place).place, layout.places, forming.options, nullptr,
                     check);
}

/// Connects the leaders of the hosts.
Result<tcp::Neighbours> join_leaders(const Forming& forming, const Layout& layout) {
  const Layout::Seat seat = forming.takes_part() ? layout.seat(forming.place) : Layout::Seat{0, -1};
  const tcp::Tree tree{seat.host, layout.hosts()};
  const bool leads = seat.place == 0;
  const tcp::Root own = ZERO_TRY(forming.call.vote(
      "listen", leads ? tcp::listen(tree, forming.place) : Result<tcp::Root>(tcp::Root())));
  const std::vector<tcp::Offer> all =
      forming.of_members(ZERO_TRY(forming.call.exchange("offers", own.offer)));
  if (!leads) return tcp::Neighbours();
  std::vector<tcp::Offer> offers;
  for (int32_t host = 0; host < layout.hosts(); ++host)
    offers.push_back(all[static_cast<size_t>(layout.rank(host, 0))]);
  return tcp::join(own, offers, tree,
                   {forming.options.rendezvous_ms, [&] { return forming.call.comm().check(); }});
}

/// Exchanges an empty message with each rank with which this rank will trade, while all ranks are
/// present. Some MPI libraries connect two ranks only at their first message, and then MPI_Isend
/// may wait for the other rank, which may later have left a broken comm.
Status greet(const Forming& forming, const Layout& layout, Messages& messages) {
  const Layout::Seat seat = layout.seat(forming.place);
  std::vector<std::pair<int32_t, Messages::Request>> greetings;
  for (int32_t host = 0; host < layout.hosts(); ++host) {
    if (host == seat.host) continue;
    const int32_t fellow = layout.rank(host, seat.place);
    greetings.emplace_back(fellow, ZERO_TRY(messages.receive(fellow, {})));
    greetings.emplace_back(fellow, ZERO_TRY(messages.send(fellow, {})));
  }
  constexpr int64_t kMostNs = 20'000'000;
  const Deadline deadline(forming.options.rendezvous_ms);
  const int64_t start_ns = now_ns();
  for (auto& [fellow, request] : greetings) {
    while (!ZERO_TRY(messages.has_ended(request))) {
      ZERO_TRY(forming.call.comm().check());
      if (deadline.passed())
        return Status(ZERO_ERR_RENDEZVOUS, text("no message to or from rank ", fellow, " within ",
                                                forming.options.rendezvous_ms, " ms"));
      // Wait: a slice of rendezvous_ms.
      pause_between_looks(now_ns() - start_ns, 0, kMostNs);
    }
  }
  return {};
}

}  // namespace

std::string host_words() {
  struct stat network {};
  os().fstatat(AT_FDCWD, "/proc/self/ns/net", &network, 0);
  return text(read_small_file("/proc/sys/kernel/random/boot_id"), network.st_ino, " ",
              os().geteuid());
}

Result<std::shared_ptr<Comm>> form(Call& call, std::span<const int32_t> members, int32_t place,
                                   const CommOptions& options, std::string_view host,
                                   const MakeMessages& make_messages) {
  const Forming forming{call, members, place, options};
  std::vector<uint64_t> hosts =
      forming.of_members(ZERO_TRY(call.exchange("host", hash64(bytes_of(host)))));
  const auto count_each = [&] { std::iota(hosts.begin(), hosts.end(), 0); };
  if (host.empty()) count_each();
  Layout layout = hosts.empty() ? Layout() : Layout::of(hosts);
  if (!layout.is_even && place == 0)
    log(ZERO_LOG_WARNING,
        "hosts have different numbers of ranks, so libzero treats each rank as a separate host: "
        "each rank sends and receives data that a host would send and receive once");
  Result<std::shared_ptr<local::LocalComm>> own = join_host(forming, layout);
  const Status trial = own.ok() ? Status() : Status(ZERO_ERR_UNSUPPORTED, own.failure().text());
  const std::string lacking = ZERO_TRY(call.find_lacking("local", trial));
  if (!lacking.empty()) {
    log(ZERO_LOG_WARNING, text("ranks on the same host cannot share memory (", lacking,
                               "), so libzero treats each rank as a separate host"));
    count_each();
    if (!hosts.empty()) layout = Layout::of(hosts);
    own = join_host(forming, layout);
  }
  std::shared_ptr<local::LocalComm> host_comm = ZERO_TRY(call.vote("host", std::move(own)));
  tcp::Neighbours leaders = ZERO_TRY(call.vote("leaders", join_leaders(forming, layout)));
  if (!forming.takes_part()) return std::shared_ptr<Comm>();
  if (layout.hosts() == 1 && !host.empty()) return std::shared_ptr<Comm>(std::move(host_comm));
  std::unique_ptr<Messages> messages = ZERO_TRY(make_messages());
  if (Status greeted = greet(forming, layout, *messages); !greeted.ok()) {
    messages->give_up();
    return greeted;
  }
  return std::shared_ptr<Comm>(std::make_shared<HostsComm>(place, options, std::move(layout),
                                                           std::move(host_comm), std::move(leaders),
                                                           std::string(host), std::move(messages)));
}

}  // namespace zero::hosts
