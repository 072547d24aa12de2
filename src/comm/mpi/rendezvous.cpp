// SPDX-License-Identifier: Apache-2.0
// Makes a seat: ranks tell each other by MPI where they listen, connect, and then agree on the way
// of their data.
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

/// What every rank says first, through MPI.
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

/// Returns the greetings of all ranks.
Result<std::vector<Greeting>> gather_greetings(const Library& library, mpi_handle comm,
                                               int32_t world, const Greeting& mine,
                                               const Bounds& bounds) {
  struct Words {
    Greeting mine;
    std::vector<Greeting> all;
    mpi_handle request = 0;
  };
  auto words = std::make_unique<Words>(Words{mine, std::vector<Greeting>(size_t(world))});
  ZERO_TRY(outcome(library, "MPI_Iallgather",
                   library.calls->all_gather(&words->mine, words->all.data(), sizeof mine, comm,
                                             &words->request)));
  Status heard = await(library, "MPI_Iallgather", words->request, bounds);
  if (heard.ok()) return std::move(words->all);
  keep_for_ever(std::move(words));
  return heard;
}

Result<tcp::Neighbours> connect(const Library& library, mpi_handle comm, const mpi_group& group,
                                const Bounds& bounds) {
  const tcp::Tree tree{group.rank, group.world};
  Result<tcp::Root> own = tcp::listen(tree, group.rank);
  Greeting mine;
  mine.code = own.failure().code();
  if (own.ok()) mine.offer = own->offer;
  std::vector<tcp::Offer> offers;
  for (const Greeting& one : ZERO_TRY(gather_greetings(library, comm, group.world, mine, bounds))) {
    const size_t rank = offers.size();
    if (one.magic != kMagic)
      return Status(ZERO_ERR_RENDEZVOUS, text("rank ", rank, " has another libzero"));
    if (one.code != ZERO_OK && own.ok())
      return Status(ZERO_ERR_PEER, text("rank ", rank, " could not listen for the other ranks"));
    offers.push_back(one.offer);
  }
  ZERO_TRY(Status(own.failure()));
  return tcp::join(*own, offers, tree, bounds);
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
  Result<tcp::Neighbours> neighbours = connect(library, handle, group, bounds);
  if (!neighbours.ok()) return std::move(neighbours).status().within(who);
  const auto connected = std::make_shared<tcp::TcpComm>(group.rank, group.world, options, nullptr,
                                                        std::move(*neighbours));
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
