// SPDX-License-Identifier: Apache-2.0
// Makes a seat: rank 0 tells by MPI where it listens, the others connect, and then they agree on
// the way of their data.
#include "comm/tcp/rendezvous.h"

#include <memory>
#include <numeric>

#include "base/interrupt.h"
#include "base/keep.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/hosts/form.h"
#include "comm/mpi/messages.h"

namespace zero {
namespace mpi {
namespace {

constexpr uint32_t kMagic = 0x4d70697a;  // changes with anything that ranks say to each other

/// Duplicates that no comm uses, a bit each, as ranks agree on them.
struct Idle {
  uint64_t on_all = 0;
  void add(const Idle& other) { on_all &= other.on_all; }
};

/// Rank 0's words.
struct Greeting {
  uint32_t magic = kMagic;
  int32_t code = ZERO_OK;  // of its listening
  tcp::Offer offer;
};

/// The ranks of a communicator that libzero can use.
Result<mpi_group> group_of(const Library& library, mpi_handle comm, size_t bytes) {
  if (comm == 0)
    return Status(ZERO_ERR_ARGUMENT,
                  text("mpi_comm_bytes is ", bytes,
                       ", the size of neither an MPI_Comm nor a Fortran integer"));
  mpi_group group{};
  ZERO_TRY(outcome(library, "the communicator", library.calls->group(comm, &group)));
  if (group.is_null != 0) return Status(ZERO_ERR_ARGUMENT, "the communicator is MPI_COMM_NULL");
  if (group.is_inter != 0)
    return Status(
        ZERO_ERR_ARGUMENT,
        "the communicator is an intercommunicator: merge it by MPI_Intercomm_merge first");
  return group;
}

Bounds rendezvous(int64_t limit_ms) {
  return {limit_ms, [] {
            return interrupted() ? Status(ZERO_ERR_RENDEZVOUS, "this rank was interrupted")
                                 : Status();
          }};
}

/// Returns rank 0's words on every rank.
Result<Greeting> hear_greeting(const Library& library, mpi_handle comm, const Greeting& mine,
                               const Bounds& bounds) {
  struct Words {
    Greeting greeting;
    mpi_handle request = 0;
  };
  auto words = std::make_unique<Words>(Words{mine});
  ZERO_TRY(outcome(
      library, "MPI_Ibcast",
      library.calls->broadcast(&words->greeting, sizeof words->greeting, comm, &words->request)));
  Status heard = await(library, "MPI_Ibcast", words->request, bounds);
  if (!heard.ok()) {
    keep_for_ever(std::move(words));
    return heard;
  }
  if (words->greeting.magic != kMagic)
    return Status(ZERO_ERR_RENDEZVOUS, "rank 0 has another libzero");
  if (words->greeting.code != ZERO_OK && mine.code == ZERO_OK)
    return Status(ZERO_ERR_PEER, "rank 0 could not listen for the other ranks");
  return words->greeting;
}

Result<std::vector<tcp::Peer>> connect(const Library& library, mpi_handle comm,
                                       const mpi_group& group, const Bounds& bounds) {
  Result<tcp::Root> root = group.rank == 0 ? tcp::listen() : Result<tcp::Root>(tcp::Root());
  Greeting mine;
  mine.code = root.failure().code();
  if (root.ok()) mine.offer = root->offer;
  const Greeting greeting = ZERO_TRY(hear_greeting(library, comm, mine, bounds));
  ZERO_TRY(Status(root.failure()));
  return group.rank == 0 ? tcp::seat_guests(*root, group.world, bounds)
                         : tcp::visit(greeting.offer, group.rank, group.world, bounds);
}

/// Takes a duplicate that is idle on all ranks, or makes one.
Result<std::unique_ptr<hosts::Messages>> make_messages(Call& call, const Library& library,
                                                       mpi_handle handle) {
  Result<Duplicates*> all = Duplicates::of(library, handle);
  const Idle idle =
      ZERO_TRY(call.vote("communicators", all.failure(), Idle{all.ok() ? (*all)->idle() : 0}));
  const Bounds watched{call.comm().options().rendezvous_ms, [&] { return call.comm().check(); }};
  Result<Duplicate*> own = (*all)->take(idle.on_all, watched);
  ZERO_TRY(call.vote("communicator", own.failure()));
  return std::unique_ptr<hosts::Messages>(
      std::make_unique<MpiMessages>(library, **own, call.world()));
}

/// Makes the comm by one over connections alone, which all ranks have first.
Result<std::shared_ptr<Comm>> create(const Library& library, mpi_handle handle,
                                     const mpi_group& group, const CommOptions& options,
                                     bool local) {
  const Bounds bounds = rendezvous(options.rendezvous_ms);
  const std::string who = text("rank ", group.rank, " of an mpi comm of ", group.world);
  Result<std::vector<tcp::Peer>> peers = connect(library, handle, group, bounds);
  if (!peers.ok()) return std::move(peers).status().within(who);
  const auto connected =
      std::make_shared<tcp::TcpComm>(group.rank, group.world, options, nullptr, std::move(*peers));
  Call call = ZERO_TRY(connected->begin(Operation::create));
  std::vector<int32_t> all(static_cast<size_t>(group.world));
  std::iota(all.begin(), all.end(), 0);
  Result<std::shared_ptr<Comm>> made =
      hosts::form(call, all, group.rank, options, local ? hosts::host_words() : "",
                  [&] { return make_messages(call, library, handle); });
  return call.vote("ready", std::move(made));
}

}  // namespace
}  // namespace mpi

Result<std::shared_ptr<Comm>> create_mpi(const void* mpi_comm, size_t bytes,
                                         const CommOptions& options, bool local) {
  const mpi::Library& library = *ZERO_TRY(mpi::library());
  const mpi_handle handle = library.calls->find(mpi_comm, bytes);
  const mpi_group group = ZERO_TRY(mpi::group_of(library, handle, bytes));
  ZERO_TRY(mpi::check_thread(library));
  log_as(group.rank);
  if (group.world == 1) return create_solo(options);
  return mpi::create(library, handle, group, options, local);
}

}  // namespace zero
