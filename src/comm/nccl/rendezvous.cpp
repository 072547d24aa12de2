// SPDX-License-Identifier: Apache-2.0
// Creates an nccl comm: first NCCL's communicators, then an exchange through them of the place
// where rank 0 listens, and then the connections.
#include "comm/tcp/rendezvous.h"

#include <bit>
#include <cstring>

#include "base/interrupt.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/nccl/nccl.h"

namespace zero {
namespace nccl {
namespace {

constexpr uint32_t kMagic = 0x335a636e;  // changes with every change of the messages
constexpr int64_t kEndMs = 10'000;       // for queued work after its communicator has ended

/// The first message of every rank, sent through NCCL. The offer is rank 0's.
struct Greeting {
  uint32_t magic = kMagic;
  int32_t code = ZERO_OK;  // result of rank 0's listening
  int32_t reduce_ctas = 0, gathers_on_kernels = 0;
  tcp::Offer offer;
};

/// Returns the greetings of all ranks, gathered on the device.
Result<std::vector<Greeting>> gather_greetings(const Formation& of, Channels& channels,
                                               const Greeting& mine) {
  const std::shared_ptr<Device>& device = of.device;
  const size_t ranks = static_cast<size_t>(of.world);
  const size_t bytes = sizeof mine;
  const DeviceMemory memory = ZERO_TRY(
      DeviceMemory::allocate(device, ranks * bytes, "the greetings of an nccl comm's ranks"));
  const HostBuffer host = ZERO_TRY(
      HostBuffer::allocate(device, ranks * bytes, "the greetings of an nccl comm's ranks"));
  const Stream stream = ZERO_TRY(make_stream(device));
  const Event done = ZERO_TRY(make_event(device));
  const size_t own = static_cast<size_t>(of.rank) * bytes;
  memcpy(host.data() + own, &mine, bytes);
  const auto talk = [&]() -> Status {
    ZERO_TRY(device->copy(stream.handle(), memory.data() + own, host.data() + own, bytes));
    ZERO_TRY(channels.gather().run("ncclAllGather", of.bounds, [&](Handle handle) {
      return of.library.all_gather(memory.data() + own, memory.data(), bytes, kUint8, handle,
                                   stream.handle());
    }));
    ZERO_TRY(device->copy(stream.handle(), host.data(), memory.data(), ranks * bytes));
    ZERO_TRY(device->record(done.handle(), stream.handle()));
    return await(*device, done.handle(), of.bounds.limit_ms, "gathering the ranks' greetings", [&] {
      ZERO_TRY(of.bounds.check());
      return channels.gather().error();
    });
  };
  if (Status status = talk(); !status.ok()) {
    (void)channels.end(true);  // before the memory that its work may use is freed
    const bool ended = device->record(done.handle(), stream.handle()).ok() &&
                       await(*device, done.handle(), kEndMs, "gathering the ranks' greetings").ok();
    if (!ended) device->give_up();
    return status;
  }
  std::vector<Greeting> all(ranks);
  memcpy(all.data(), host.data(), ranks * bytes);
  return all;
}

/// Checks that communicators are configured in the same way. Otherwise ranks would wait for each
/// other in the first call.
Status check_greetings(const std::vector<Greeting>& all, const Status& listening) {
  const auto way = [](const Greeting& one) {
    return text("reduce_ctas ", one.reduce_ctas, ", gather_on_kernels ", one.gathers_on_kernels);
  };
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].magic != kMagic)
      return Status(ZERO_ERR_RENDEZVOUS, text("rank ", r, " runs another libzero"));
    if (way(all[r]) != way(all[0]))
      return Status(ZERO_ERR_MISMATCH, text("zero_comm_options differ: rank ", r, " has ",
                                            way(all[r]), ", rank 0 has ", way(all[0])));
  }
  ZERO_TRY(Status(listening));
  if (all[0].code != ZERO_OK)
    return Status(ZERO_ERR_PEER, "rank 0 could not listen for the other ranks");
  return {};
}

Result<tcp::Neighbours> connect(const Formation& of, Channels& channels) {
  Result<tcp::Root> root = of.rank == 0 ? tcp::listen() : Result<tcp::Root>(tcp::Root());
  Greeting mine;
  mine.code = root.failure().code();
  mine.reduce_ctas = of.options.reduce_ctas;
  mine.gathers_on_kernels = of.options.gathers_on_kernels ? 1 : 0;
  if (root.ok()) mine.offer = root->offer;
  const std::vector<Greeting> all = ZERO_TRY(gather_greetings(of, channels, mine));
  ZERO_TRY(check_greetings(all, root.failure()));
  return of.rank == 0 ? tcp::seat_guests(*root, of.world, of.bounds)
                      : tcp::visit(all[0].offer, of.rank, of.world, of.bounds);
}

/// Explains why a comm was not formed. Replaces ZERO_ERR_TIMEOUT by ZERO_ERR_RENDEZVOUS.
Status never_formed(const Formation& of, Status status, const char* come) {
  if (status.code() == ZERO_ERR_TIMEOUT)
    status = Status(ZERO_ERR_RENDEZVOUS,
                    text(status.text(), ": have all ", of.world, " ranks ", come, "?"));
  return std::move(status).within(text("rank ", of.rank, " of an nccl comm of ", of.world));
}

Bounds rendezvous(const CommOptions& options) {
  return {options.rendezvous_ms, [] {
            return interrupted() ? Status(ZERO_ERR_RENDEZVOUS, "this rank was interrupted")
                                 : Status();
          }};
}

Status outcome(const Library& library, const char* what, int code) {
  return code == kSuccess ? Status() : problem(library, nullptr, what, code);
}

}  // namespace

Result<std::shared_ptr<Comm>> take_seat(const Formation& of,
                                        Result<std::unique_ptr<Channels>> channels,
                                        const char* come) {
  if (!channels.ok()) return never_formed(of, std::move(channels).status(), come);
  Result<tcp::Neighbours> neighbours = connect(of, **channels);
  if (!neighbours.ok()) return never_formed(of, std::move(neighbours).status(), kSameId);
  const auto comm = std::make_shared<NcclComm>(of, std::move(*channels), std::move(*neighbours));
  Status seated =
      comm->exchange_bytes({}, {}, {"zero_comm_create_nccl", "seated", of.bounds.limit_ms, false});
  if (!seated.ok()) return never_formed(of, std::move(seated), kSameId);
  return std::shared_ptr<Comm>(comm);
}

}  // namespace nccl

Result<NcclId> nccl_unique_id() {
  const nccl::Library& library = *ZERO_TRY(nccl::library());
  nccl::UniqueId id;
  ZERO_TRY(nccl::outcome(library, "ncclGetUniqueId", library.get_unique_id(&id)));
  return std::bit_cast<NcclId>(id);
}

Result<std::shared_ptr<Comm>> create_nccl(std::shared_ptr<Device> device, const NcclId& id,
                                          int32_t rank, int32_t world, const CommOptions& options) {
  ZERO_TRY(check_seat(rank, world));
  const nccl::Formation of{*ZERO_TRY(nccl::library()), std::move(device), rank, world, options,
                           nccl::rendezvous(options)};
  return nccl::take_seat(of, nccl::form(of.library, of.device, std::bit_cast<nccl::UniqueId>(id),
                                        rank, world, options, of.bounds));
}

Result<std::shared_ptr<Comm>> wrap_nccl(std::shared_ptr<Device> device, void* nccl_comm,
                                        const CommOptions& options) {
  const nccl::Library& library = *ZERO_TRY(nccl::library());
  const auto handle = static_cast<nccl::Handle>(nccl_comm);
  int rank = 0, world = 0;
  ZERO_TRY(device->run_current([&]() -> Status {
    ZERO_TRY(nccl::outcome(library, "ncclCommUserRank", library.user_rank(handle, &rank)));
    return nccl::outcome(library, "ncclCommCount", library.count(handle, &world));
  }));
  nccl::Channel engines(library, device, handle, true);
  const nccl::Formation of{library, std::move(device), rank,
                           world,   options,           nccl::rendezvous(options)};
  return nccl::take_seat(of, nccl::split(library, engines, 0, rank, options, of.bounds),
                         "made this call");
}

Result<int32_t> nccl_device(void* nccl_comm) {
  const nccl::Library& library = *ZERO_TRY(nccl::library());
  int ordinal = 0;
  ZERO_TRY(nccl::outcome(library, "ncclCommCuDevice",
                         library.device(static_cast<nccl::Handle>(nccl_comm), &ordinal)));
  return int32_t{ordinal};
}

}  // namespace zero
