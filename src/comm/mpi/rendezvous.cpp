// SPDX-License-Identifier: Apache-2.0
// Makes a seat: ranks tell each other by MPI where they listen, connect, and then agree on the way
// of their data.
#include "comm/tcp/rendezvous.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/hash.h"
#include "base/interrupt.h"
#include "base/keep.h"
#include "base/log.h"
#include "base/os.h"
#include "base/secret.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/local/local.h"
#include "comm/mpi/mpi.h"

namespace zero {
namespace mpi {
namespace {

constexpr uint32_t kMagic = 0x4d70697a;  // changes with anything that ranks say to each other
constexpr int64_t kTrialMs = 5'000;      // for ranks that seem to be on one host to meet there

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

/// Returns words that ranks of one host share, and most others do not.
std::string host_words() {
  struct stat network {};
  os().fstatat(AT_FDCWD, "/proc/self/ns/net", &network, 0);
  return text(read_small_file("/proc/sys/kernel/random/boot_id"), network.st_ino, " ",
              os().geteuid());
}

/// Returns a local comm, if the ranks are on one host; otherwise nothing, on every rank. That is
/// tried, because different hosts may say the same of themselves.
Result<std::shared_ptr<Comm>> try_local(Call& call, const CommOptions& options) {
  if (call.world() > local::kMaxWorld) return std::shared_ptr<Comm>();
  const std::vector<std::string> hosts = ZERO_TRY(call.gather("host", host_words()));
  if (std::set(hosts.begin(), hosts.end()).size() != 1) return std::shared_ptr<Comm>();
  Digest drawn{};
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(drawn));
  ZERO_TRY(call.vote("name", draw_random(bytes)));
  ZERO_TRY(call.broadcast("name", bytes, 0));
  const std::string name = hex(drawn);
  const Deadline trial(std::min(options.rendezvous_ms, kTrialMs));
  const auto check = [&]() -> Status {
    if (trial.passed()) return Status(ZERO_ERR_UNSUPPORTED, "ranks did not meet on one host");
    return call.comm().check();
  };
  Result<std::shared_ptr<Comm>> made =
      local::join("rendezvous of the ranks of MPI", local::address_of_comm(name, name), name,
                  call.rank(), call.world(), options, nullptr, check);
  const std::string lacking = ZERO_TRY(call.find_lacking(
      "local", made.ok() ? Status() : Status(ZERO_ERR_UNSUPPORTED, made.failure().text())));
  if (lacking.empty()) return made;
  log(ZERO_LOG_INFO, text("ranks of one host will use MPI: ", lacking));
  return std::shared_ptr<Comm>();
}

Result<std::shared_ptr<Comm>> create(const Library& library, mpi_handle handle,
                                     const mpi_group& group, const CommOptions& options,
                                     bool local) {
  const Bounds bounds = rendezvous(options.rendezvous_ms);
  const std::shared_ptr<MpiComm> comm = ZERO_TRY(take_seat(
      library, group.rank, group.world, options, connect(library, handle, group, bounds)));
  Call call = ZERO_TRY(comm->begin(Operation::create));
  if (local) {
    std::shared_ptr<Comm> made = ZERO_TRY(try_local(call, options));
    if (made != nullptr) return made;
  }
  Result<Duplicates*> all = Duplicates::of(library, handle);
  const Idle idle =
      ZERO_TRY(call.vote("communicators", all.failure(), Idle{all.ok() ? (*all)->idle() : 0}));
  const Bounds watched{options.rendezvous_ms, [&] { return comm->check(); }};
  Result<Duplicate*> own = (*all)->take(idle.on_all, watched);
  ZERO_TRY(call.vote("ready", own.ok() ? comm->open(**own) : own.failure()));
  return std::shared_ptr<Comm>(comm);
}

}  // namespace

Result<std::shared_ptr<MpiComm>> take_seat(const Library& library, int32_t rank, int32_t world,
                                           const CommOptions& options,
                                           Result<tcp::Neighbours> neighbours) {
  const std::string who = text("rank ", rank, " of an mpi comm of ", world);
  if (!neighbours.ok()) return std::move(neighbours).status().within(who);
  auto comm = std::make_shared<MpiComm>(library, rank, world, options, std::move(*neighbours));
  ZERO_TRY(
      comm->exchange_bytes({}, {}, {"zero_comm_create_mpi", "seated", options.rendezvous_ms, false})
          .within(who));
  return comm;
}

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
