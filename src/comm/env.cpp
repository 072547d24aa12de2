// SPDX-License-Identifier: Apache-2.0
// Creates the comm that the launcher's variables describe. Ranks without devices get a local comm
// on one host, and an mpi comm on several. Ranks with devices on one host first find out together
// which comm is fastest. On several hosts they get an nccl comm, whose id must reach all ranks.
#include <stdlib.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/launch.h"
#include "comm/mpi/start.h"
#include "comm/nccl/library.h"
#include "comm/process.h"
#include "comm/tcp/rendezvous.h"

namespace zero {
namespace {

using Seat = std::shared_ptr<Comm>;

constexpr int64_t kPortMs = 5'000;  // time for the previous job to release its port
constexpr int64_t kPortSliceMs = 50;

// ---- The job.

const char* variable(const char* name) { return secure_getenv(name); }

/// Returns a name derived from Hydra's proxy, or "" if there is none. Hydra sets no variable that
/// is the same on all ranks and differs between jobs, but all ranks share the proxy that started
/// them. The proxy is not always their parent, because scripts may stand in between.
std::string hydra_job() {
  constexpr int kDeepest = 64;
  int64_t pid = os().getpid();
  for (int depth = 0; depth < kDeepest && pid > 0; ++depth) {
    const std::optional<ProcessStat> process = read_process_stat(pid);
    if (!process) return "";
    if (process->command.starts_with("hydra_")) return text("hydra:", pid, ':', process->started);
    pid = process->parent;
  }
  return "";
}

/// Sets `launch.job`. Fails, with advice, if nothing identifies the job.
Status name_job(Launched& launch) {
  if (launch.hydra) {
    std::string job = hydra_job();
    if (!job.empty()) launch.job = std::move(job);
  }
  if (!launch.job.empty()) return {};
  return {
      ZERO_ERR_ARGUMENT,
      text("rank ", launch.rank, " of ", launch.world, ": no variable of ", launch.launcher,
           " distinguishes this job from others on this host; set ZERO_JOB to the same word on all "
           "its ranks, and to a different word for each job")};
}

// ---- Ranks of one host.

Result<Seat> join(const Launched& launch, std::string_view how, const CommOptions& options,
                  const std::shared_ptr<Device>& device) {
  return create_local(comm_name(text(launch.job, how)), launch.rank, launch.world, options, device,
                      launch.job);
}

/// Creates a comm of all MPI ranks, which must be the ranks that the launcher's variables describe.
Result<Seat> create_over_mpi(const Launched& launch, const CommOptions& options) {
  const Status started = mpi::start(launch.brings_mpi);
  if (!started.ok())
    return Status(started.code(),
                  text(launch.launcher, " started ranks on several hosts (", launch.evidence,
                       "), which libzero joins only on GPUs or through MPI: ", started.text(),
                       "; or start them all on one host, set device to ZERO_DEVICE_CUDA, or supply "
                       "your own collectives with zero_comm_create_user"));
  Seat seat = ZERO_TRY(create_mpi(nullptr, 0, options));
  if (seat->rank() == launch.rank && seat->world() == launch.world) return seat;
  return Status(ZERO_ERR_ARGUMENT, text("this is rank ", seat->rank(), " of ", seat->world(),
                                        " according to MPI, but rank ", launch.rank, " of ",
                                        launch.world, " according to ", launch.launcher,
                                        ": start the ranks with the launcher of this MPI"));
}

Result<Seat> create_on_host(Launched launch, const CommOptions& options) {
  if (launch.hosts == Hosts::several) return create_over_mpi(launch, options);
  ZERO_TRY(name_job(launch));
  return join(launch, "", options, nullptr);
}

/// Returns this rank's own failure if there is one, because it says more than that other ranks did
/// not arrive.
Status named(const Launched& launch, const Status& own, const Status& all) {
  return Status(own.ok() ? all : own)
      .within(text("rank ", launch.rank, " of ", launch.world, ", started by ", launch.launcher));
}

/// Returns this rank's contribution to the NCCL rendezvous: the id from rank 0, or a failure if
/// this rank cannot continue.
Result<NcclId> bring(int32_t rank, const Status& device) {
  if (!device.ok()) return device;
  if (rank == 0) return nccl_unique_id();
  ZERO_TRY(nccl::library().status());
  return NcclId{};
}

/// Returns a local comm if all ranks' devices support it. Otherwise returns nullptr on every rank.
Result<Seat> try_direct(Call& call, const Launched& launch, CommOptions options,
                        const std::shared_ptr<Device>& device) {
  options.stages = false;
  Result<Seat> local = join(launch, ", directly", options, device);
  const Status own = local.failure();
  Result<std::string> lacking = call.find_lacking("memory", own);
  if (lacking.ok()) return lacking->empty() ? std::move(*local) : Seat();
  // A rank returns its own failure even if the other ranks did not arrive to receive it.
  return own.ok() || own.code() == ZERO_ERR_UNSUPPORTED ? lacking.failure() : own;
}

/// Returns NCCL's id if all ranks are ready.
Result<NcclId> broadcast_id(Call& call, Result<NcclId> mine) {
  NcclId id = ZERO_TRY(call.vote("ready", std::move(mine)));
  ZERO_TRY(call.broadcast("id", id, 0));
  return id;
}

/// A comm, or NCCL's id if every rank has NCCL, or nothing.
struct Found {
  Seat comm;
  std::optional<NcclId> id = {};
};

/// Finds one of these through a comm on the host.
Result<Found> find(const Launched& launch, const CommOptions& options,
                   const Result<std::shared_ptr<Device>>& device) {
  const Seat seat = ZERO_TRY(join(launch, ", on devices", options.patient(), nullptr));
  Call call = ZERO_TRY(seat->begin(Operation::create_env));
  ZERO_TRY(call.vote("devices", device.failure()));
  Found found{ZERO_TRY(try_direct(call, launch, options, *device))};
  if (found.comm != nullptr) return found;
  const Sum lack{nccl::library().ok() ? 0u : 1u};
  if (ZERO_TRY(call.combine("nccl", lack)).value == 0)
    found.id = ZERO_TRY(broadcast_id(call, bring(launch.rank, {})));
  return found;
}

/// Creates the comm of the ranks that a launcher started on this host, where they find each other
/// by the name of their job. It is a local comm if their devices can access each other's memory, or
/// if some rank does not find NCCL. Otherwise it is an nccl comm. A rank without a device joins the
/// others too, and reports why it has none.
Result<Seat> create_here(Result<std::shared_ptr<Device>> device, const Launched& launch,
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

// ---- Ranks of several hosts.

/// Listens at rank 0's port. Retries for a while, because a job that is just ending may still hold
/// the port.
Result<tcp::Root> listen(const tcp::Offer& offer, int64_t limit_ms) {
  const Deadline deadline(std::min(limit_ms, kPortMs));
  for (;;) {
    Result<tcp::Root> root = tcp::listen(offer);
    if (root.ok() || root.failure().code() != ZERO_ERR_RENDEZVOUS) return root;
    if (deadline.passed() || interrupted())
      return Status(ZERO_ERR_RENDEZVOUS,
                    text(root.failure().text(), ": set ZERO_MASTER_PORT to a free port"));
    // Wait: a slice of kPortMs.
    os().poll(nullptr, 0, kPortSliceMs);
  }
}

Result<tcp::Neighbours> connect(const Meetpoint& point, const Launched& launch, int64_t limit_ms) {
  const Deadline deadline(limit_ms);
  std::vector<tcp::Address> addresses = ZERO_TRY(tcp::resolve(point.host, limit_ms));
  // A host may resolve its own name to an address that no other host can reach. Rank 0 drops such
  // addresses, and listens at all of its addresses if none is left.
  if (launch.rank == 0 && !tcp::to_address(point.host))
    std::erase_if(addresses, [](const tcp::Address& one) { return one.is_loopback(); });
  const tcp::Offer offer = tcp::make_offer(addresses, point.port, launch.job_of_all_hosts);
  const auto rest = [&]() -> Bounds { return {deadline.left_ms(), [] { return Status(); }}; };
  if (launch.rank != 0) return tcp::visit(offer, launch.rank, launch.world, rest());
  const tcp::Root root = ZERO_TRY(listen(offer, limit_ms));
  return tcp::seat_guests(root, launch.world, rest());
}

Result<NcclId> meet_at(const Meetpoint& point, const Launched& launch, const CommOptions& options,
                       const Result<NcclId>& mine) {
  Result<tcp::Neighbours> met = connect(point, launch, options.rendezvous_ms);
  if (!met.ok())
    return Status(met.failure().code(), text(met.failure().text(), " (", point.origin, ")"));
  const auto seat = std::make_shared<tcp::TcpComm>(launch.rank, launch.world, options.patient(),
                                                   nullptr, std::move(*met));
  Call call = ZERO_TRY(seat->begin(Operation::create_env));
  return broadcast_id(call, mine);
}

/// Creates an nccl comm of the ranks that find each other at `point`.
Result<Seat> create_at(const Meetpoint& point, Result<std::shared_ptr<Device>> device,
                       const Launched& launch, const CommOptions& options) {
  const Result<NcclId> mine = bring(launch.rank, device.failure());
  const Result<NcclId> id = meet_at(point, launch, options, mine);
  if (!id.ok()) return named(launch, mine.failure(), id.failure());
  return create_nccl(std::move(*device), *id, launch.rank, launch.world, options);
}

// ---- All ranks.

Result<Seat> create_launched(const Lookup& lookup, Launched launch, const CommOptions& options,
                             const OpenDevice& open) {
  if (launch.world == 1)
    return create_solo(options, open ? ZERO_TRY(open(launch.local_rank)) : nullptr);
  if (!open) return create_on_host(std::move(launch), options);
  // NCCL works across hosts. On one host there may be a faster comm.
  const std::optional<Meetpoint> point = ZERO_TRY(read_meetpoint(lookup, launch));
  if (point) return create_at(*point, open(launch.local_rank), launch, options);
  ZERO_TRY(name_job(launch));
  return create_here(open(launch.local_rank), launch, options);
}

}  // namespace

Result<std::shared_ptr<Comm>> create_env(const Lookup& lookup, CommOptions given,
                                         const OpenDevice& open) {
  const CommOptions options = ZERO_TRY(read_timeouts(lookup, given));
  const Launched launch = ZERO_TRY(read_launch(lookup));
  log_as(launch.rank);
  log(ZERO_LOG_INFO,
      text("zero_comm_create_env: ", launch.launcher == nullptr ? "no launcher" : launch.launcher,
           ", rank ", launch.rank, " of ", launch.world));
  return create_launched(lookup, launch, options, open);
}

std::string word_of_job() {
  if (const char* job = value_of(variable, "ZERO_JOB")) return job;
  Result<Launched> launch = read_launch(variable);
  const bool several = launch.ok() && launch->world > 1;
  return several && name_job(*launch).ok() ? launch->job : std::string();
}

Result<std::shared_ptr<Comm>> create_env(CommOptions given, const OpenDevice& open) {
  return create_env(variable, given, open);
}

}  // namespace zero
