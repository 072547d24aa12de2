// SPDX-License-Identifier: Apache-2.0
// The comms of ranks that a launcher started, each on a device: on one host they find out together
// which one serves them best; on several it is NCCL's, whose id has to reach them.
#include <algorithm>
#include <optional>

#include "base/text.h"
#include "comm/create.h"
#include "comm/nccl/library.h"
#include "comm/tcp/rendezvous.h"

namespace zero {
namespace {

using Seat = std::shared_ptr<Comm>;

constexpr int64_t kPortMs = 5'000;  // for a run before this one to give up its port
constexpr int64_t kPortSliceMs = 50;

/// Its own fault says more than that others did not come.
Status named(const Launched& launch, const Status& own, const Status& all) {
  return Status(own.ok() ? all : own)
      .within(
          text("rank ", launch.rank, " of ", launch.world, " that ", launch.launcher, " started"));
}

/// What a rank brings to NCCL's meeting: whether it can go on, and from rank 0 the id.
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

Result<Seat> join(const Launched& launch, std::string_view how, const CommOptions& options,
                  const std::shared_ptr<Device>& device) {
  return create_local(comm_name(text(launch.job, how)), launch.rank, launch.world, options, device,
                      launch.job);
}

/// A local comm, if no rank's device lacks what it takes; else nothing, on every rank.
Result<Seat> try_direct(Call& call, const Launched& launch, CommOptions options,
                        const std::shared_ptr<Device>& device) {
  options.stages = false;
  Result<Seat> local = join(launch, ", directly", options, device);
  const bool lacks = local.failure().code() == ZERO_ERR_UNSUPPORTED;
  const Status own = lacks ? Status() : Status(local.failure());
  const Status all = call.vote("memory", own);
  if (!all.ok()) return own.ok() ? all : own;  // also where the others did not come to hear it
  const std::vector<int32_t> lacking = ZERO_TRY(call.exchange("reach", int32_t{lacks}));
  const bool any =
      std::any_of(lacking.begin(), lacking.end(), [](int32_t one) { return one != 0; });
  return any ? Seat() : std::move(*local);
}

/// A comm, or NCCL's id if every rank has NCCL, or nothing.
struct Found {
  Seat comm;
  std::optional<NcclId> id = {};
};

/// By a comm on the host, for as long as the ranks find out.
Result<Found> find(const Launched& launch, const CommOptions& options,
                   const Result<std::shared_ptr<Device>>& device) {
  CommOptions patient = options;
  patient.late_ms = patient.timeout_ms = patient.rendezvous_ms;
  const Seat seat = ZERO_TRY(join(launch, ", on devices", patient, nullptr));
  Call call = ZERO_TRY(seat->begin(Operation::create_env));
  ZERO_TRY(call.vote("devices", device.failure()));
  Found found{ZERO_TRY(try_direct(call, launch, options, *device))};
  if (found.comm != nullptr) return found;
  const std::vector<int32_t> has = ZERO_TRY(call.exchange("nccl", int32_t{nccl::library().ok()}));
  if (!std::all_of(has.begin(), has.end(), [](int32_t one) { return one != 0; })) return found;
  Bringing mine = bring(launch.rank, {});
  ZERO_TRY(call.vote("ready", mine.ready));
  ZERO_TRY(call.broadcast("id", mine.id, 0));
  found.id = mine.id;
  return found;
}

// ---- Ranks of several hosts.

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
  char words[1024];
  put_text(words, ready.text());
  const Status told =
      control.broadcast(std::as_writable_bytes(std::span(words)), culprit, patience, patience);
  if (!ready.ok()) return Status(ready);
  ZERO_TRY(Status(told));
  const char* const name = code_name(*failed);
  return {ZERO_ERR_PEER, text("rank ", culprit, " in zero_comm_create_env: ",
                              name != nullptr ? name : "unknown status", ": ", text_in(words))};
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
  const auto rest = [&]() -> Bounds {
    return {std::max<int64_t>(deadline_ms - now_ms(), 0), [] { return Status(); }};
  };
  if (launch.rank != 0) return tcp::visit(offer, launch.rank, launch.world, rest());
  const tcp::Root root = ZERO_TRY(listen(offer, limit_ms));
  return tcp::seat_guests(root, launch.world, rest());
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

Result<Seat> create_launched_here(Result<std::shared_ptr<Device>> device, const Launched& launch,
                                  const CommOptions& options) {
  Result<Found> found = find(launch, options, device);
  if (!found.ok()) return named(launch, device.failure(), found.failure());
  if (found->comm != nullptr) return std::move(found->comm);
  if (found->id)
    return create_nccl(std::move(*device), *found->id, launch.rank, launch.world, options);
  Result<Seat> staged = join(launch, ", by the host", options, *device);
  if (!staged.ok()) return named(launch, {}, staged.failure());
  return staged;
}

Result<Seat> create_launched_at(const Meetpoint& point, Result<std::shared_ptr<Device>> device,
                                const Launched& launch, const CommOptions& options) {
  Bringing mine = bring(launch.rank, device.failure());
  const Status ready = mine.ready;
  Result<NcclId> id = meet_at(point, launch, options, std::move(mine));
  if (!id.ok()) return named(launch, ready, id.failure());
  return create_nccl(std::move(*device), *id, launch.rank, launch.world, options);
}

}  // namespace zero
