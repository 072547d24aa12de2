// SPDX-License-Identifier: Apache-2.0
// The nccl comm of the ranks that a launcher started: how the id that rank 0 draws reaches them.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"
#include "comm/create.h"
#include "comm/nccl/library.h"
#include "comm/tcp/rendezvous.h"
#include "comm/tcp/resolve.h"

namespace zero {
namespace {

constexpr int64_t kPortMs = 5'000;  // for a run before this one to give up its port
constexpr int64_t kPortSliceMs = 50;

/// What a rank brings to the meeting: whether it can go on, and from rank 0 the id.
struct Bringing {
  Status ready;
  NcclId id{};
};

Bringing bring(int32_t rank, const Status& device) {
  if (!device.ok()) return {device, {}};
  if (rank != 0) return {nccl::library().status(), {}};
  Result<NcclId> id = nccl_unique_id();
  return id.ok() ? Bringing{{}, *id} : Bringing{std::move(id).status(), {}};
}

// ---- Ranks of one host.

Result<NcclId> meet_here(const Launched& launch, CommOptions options, Bringing mine) {
  options.late_ms = options.timeout_ms = options.rendezvous_ms;
  const std::string name = comm_name(text(launch.job, ", on GPUs"));
  const std::shared_ptr<Comm> seat =
      ZERO_TRY(create_local(name, launch.rank, launch.world, options, nullptr, launch.job));
  Call call = ZERO_TRY(seat->begin(Operation::create_env));
  ZERO_TRY(call.vote("devices", mine.ready));
  ZERO_TRY(call.broadcast("id", mine.id, 0));
  return mine.id;
}

// ---- Ranks of several hosts.

using Words = std::array<char, 1024>;

/// Every rank learns whether all are ready; if not, from the lowest one that is not, why.
Status agree(tcp::Control& control, const Launched& launch, const Status& ready,
             const Patience& patience) {
  const Code mine = ready.code();
  std::vector<Code> codes(static_cast<size_t>(launch.world));
  ZERO_TRY(control.exchange(std::as_bytes(std::span(&mine, 1)),
                            std::as_writable_bytes(std::span(codes)), patience));
  const auto failed =
      std::find_if(codes.begin(), codes.end(), [](Code code) { return code != ZERO_OK; });
  if (failed == codes.end()) return {};
  const auto culprit = static_cast<int32_t>(failed - codes.begin());
  Words words{};
  utf8_prefix(ready.text(), words.size() - 1).copy(words.data(), words.size() - 1);
  const Status told =
      control.broadcast(std::as_writable_bytes(std::span(words)), culprit, patience, patience);
  if (!ready.ok()) return Status(ready);
  ZERO_TRY(Status(told));
  words.back() = '\0';
  const char* const name = code_name(*failed);
  return {ZERO_ERR_PEER,
          text("rank ", culprit, " in zero_comm_create_env: ",
               name != nullptr ? name : "unknown status", ": ", as_utf8(words.data()))};
}

/// Rank 0's port, which a run that is just ending may still have.
Result<tcp::Root> listen(const tcp::Offer& offer, int64_t limit_ms) {
  const int64_t until_ms = now_ms() + std::min(limit_ms, kPortMs);
  for (;;) {
    Result<tcp::Root> root = tcp::listen(offer);
    if (root.ok() || root.failure().code() != ZERO_ERR_RENDEZVOUS) return root;
    if (now_ms() >= until_ms)
      return Status(ZERO_ERR_RENDEZVOUS,
                    text(root.failure().text(), ": set ZERO_MASTER_PORT to one that is free"));
    // Wait: a slice of kPortMs.
    os().poll(nullptr, 0, kPortSliceMs);
  }
}

Result<std::unique_ptr<tcp::Control>> connect(const Meetpoint& point, const Launched& launch,
                                              int64_t limit_ms) {
  const int64_t deadline_ms = now_ms() + limit_ms;
  std::vector<tcp::Address> addresses = ZERO_TRY(tcp::resolve(point.host, limit_ms));
  // A host may know itself by an address that no other host reaches: then rank 0 is to be found at
  // any that it has.
  if (launch.rank == 0 && !tcp::to_address(point.host))
    std::erase_if(addresses, [](const tcp::Address& one) { return one.is_loopback(); });
  const tcp::Offer offer = tcp::make_offer(addresses, point.port, launch.job_of_all_hosts);
  tcp::Meeting meeting{launch.rank, launch.world, limit_ms, [] { return Status(); }};
  if (launch.rank != 0) {
    meeting.limit_ms = std::max<int64_t>(deadline_ms - now_ms(), 0);
    return tcp::visit(offer, meeting);
  }
  const tcp::Root root = ZERO_TRY(listen(offer, limit_ms));
  meeting.limit_ms = std::max<int64_t>(deadline_ms - now_ms(), 0);
  return tcp::seat_guests(root, meeting);
}

Result<NcclId> meet_at(const Meetpoint& point, const Launched& launch, const CommOptions& options,
                       Bringing mine) {
  Result<std::unique_ptr<tcp::Control>> met = connect(point, launch, options.rendezvous_ms);
  if (!met.ok())
    return Status(met.failure().code(), text(met.failure().text(), " (", point.origin, ")"));
  tcp::Control& control = **met;
  const Patience patience{"zero_comm_create_env", "id", options.rendezvous_ms, false};
  ZERO_TRY(agree(control, launch, mine.ready, patience));
  ZERO_TRY(control.broadcast(mine.id, 0, patience, patience));
  return mine.id;
}

}  // namespace

Status check_nccl() { return nccl::library().status(); }

Result<std::shared_ptr<Comm>> create_launched_nccl(Result<std::shared_ptr<Device>> device,
                                                   const Launched& launch,
                                                   const std::optional<Meetpoint>& point,
                                                   const CommOptions& options) {
  Bringing mine = bring(launch.rank, device.failure());
  const Status ready = mine.ready;
  Result<NcclId> id = point ? meet_at(*point, launch, options, std::move(mine))
                            : meet_here(launch, options, std::move(mine));
  if (!id.ok()) {
    // Its own fault says more than that others did not come.
    return Status(ready.ok() ? id.failure() : ready)
        .within(text("rank ", launch.rank, " of ", launch.world, " that ", launch.launcher,
                     " started"));
  }
  return create_nccl(std::move(*device), *id, launch.rank, launch.world, options);
}

}  // namespace zero
