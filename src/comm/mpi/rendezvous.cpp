// SPDX-License-Identifier: Apache-2.0
// Creates an mpi comm. Ranks exchange through MPI where they listen, connect, and then agree on how
// their data is transferred.
#include "comm/tcp/rendezvous.h"

#include <memory>
#include <numeric>
#include <utility>

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

/// A bit mask of the duplicates that no comm uses, combined over the ranks.
struct Idle {
  uint64_t on_all = 0;
  void add(const Idle& other) { on_all &= other.on_all; }
};

/// The first message of every rank, sent through MPI.
struct Greeting {
  Prefix prefix;
  int64_t code = ZERO_OK;  // result of listening
  tcp::Offer offer;
};

/// Returns the group of a communicator, or a failure if libzero cannot use it.
Result<mpi_group> group_of(const Library& library, mpi_handle comm, size_t bytes) {
  if (comm == 0)
    return Status(
        ZERO_ERR_ARGUMENT,
        text("the ", bytes,
             " bytes at mpi_comm are neither an MPI_Comm nor the Fortran integer of one"));
  mpi_group group{};
  ZERO_TRY(outcome(library, "the communicator", library.calls->group(comm, &group)));
  if (group.is_null != 0) return Status(ZERO_ERR_ARGUMENT, "the communicator is MPI_COMM_NULL");
  if (group.is_inter != 0)
    return Status(
        ZERO_ERR_ARGUMENT,
        "the communicator is an intercommunicator: merge it with MPI_Intercomm_merge first");
  return group;
}

Bounds rendezvous(int64_t limit_ms) {
  return {limit_ms, [] {
            return interrupted() ? Status(ZERO_ERR_RENDEZVOUS, "this rank was interrupted")
                                 : Status();
          }};
}

}  // namespace

/// The message of this rank to all others through MPI, and theirs. MPI cannot withdraw it, so a
/// call that ends before there is a comm leaves it to the next call, with the listening socket.
/// Ranks that arrive late, or left and return, can then find this rank.
struct Meeting : Begun {
  Result<tcp::Root> own;
  Greeting mine;
  std::vector<Greeting> all;
  // The second call finds ranks that arrived while this rank was in no call. There is no third
  // call, so that ranks whose latest calls ended differently meet in one meeting again.
  int joins_left = 2;

  explicit Meeting(const tcp::Tree& tree)
      : own(tcp::listen(tree, tree.place)), all(static_cast<size_t>(tree.world)) {
    mine.code = own.failure().code();
    if (own.ok()) mine.offer = own->offer;
  }
};

namespace {

Result<std::shared_ptr<Meeting>> begin_meeting(const Library& library, mpi_handle comm,
                                               const tcp::Tree& tree) {
  auto made = std::make_shared<Meeting>(tree);
  ZERO_TRY(outcome(library, "MPI_Iallgather",
                   library.calls->all_gather(&made->mine, made->all.data(), sizeof made->mine, comm,
                                             &made->request)));
  return made;
}

/// Returns a meeting to which all ranks have come.
Result<std::shared_ptr<Meeting>> meet(const Library& library, mpi_handle comm,
                                      std::shared_ptr<Meeting>& begun, const tcp::Tree& tree,
                                      const Bounds& bounds) {
  if (begun == nullptr) begun = ZERO_TRY(begin_meeting(library, comm, tree));
  Status came = await(library, "MPI_Iallgather", begun->request, bounds);
  if (came.code() == ZERO_ERR_RENDEZVOUS) return came;
  std::shared_ptr<Meeting> meeting = begun;
  if (came.ok()) meeting->end();
  if (!came.ok() || --meeting->joins_left == 0) begun.reset();
  if (came.ok()) return meeting;
  keep_for_ever(std::move(meeting));
  return came;
}

/// Returns why these ranks cannot form a comm, or OK. All ranks get the same result.
Status check_all(const Meeting& meeting) {
  for (size_t rank = 0; rank < meeting.all.size(); ++rank) {
    const Greeting& one = meeting.all[rank];
    if (!one.prefix.same_version())
      return Status(ZERO_ERR_RENDEZVOUS, text("rank ", rank, " has ", one.prefix.version(),
                                              ", this rank has ", Prefix().version()));
    if (one.code != ZERO_OK && meeting.own.ok())
      return Status(ZERO_ERR_PEER, text("rank ", rank, " could not listen for the other ranks"));
  }
  return meeting.own.failure();
}

Result<tcp::Neighbours> connect(const Library& library, mpi_handle comm, const mpi_group& group,
                                std::shared_ptr<Meeting>& begun, const Bounds& bounds) {
  const tcp::Tree tree{group.rank, group.world};
  const std::shared_ptr<Meeting> meeting = ZERO_TRY(meet(library, comm, begun, tree, bounds));
  if (Status all = check_all(*meeting); !all.ok()) {
    begun.reset();
    return all;
  }
  std::vector<tcp::Offer> offers;
  for (const Greeting& one : meeting->all) offers.push_back(one.offer);
  return tcp::join(*meeting->own, offers, tree, bounds);
}

/// Takes a duplicate that is idle on all ranks, or creates one.
Result<std::unique_ptr<hosts::Messages>> make_messages(Call& call, const Library& library,
                                                       Duplicates& all) {
  const Bounds watched{call.comm().options().rendezvous_ms, [&] { return call.comm().check(); }};
  const Status finished = all.finish(watched);
  const Idle idle = ZERO_TRY(call.vote("communicators", finished, Idle{all.idle()}));
  Result<Duplicate*> own = all.take(idle.on_all, watched);
  Status taken = call.vote("communicator", own.failure());
  if (!taken.ok() && own.ok()) (*own)->end_use();
  ZERO_TRY(std::move(taken));
  return std::unique_ptr<hosts::Messages>(
      std::make_unique<MpiMessages>(library, **own, call.world()));
}

/// Makes MPI return errors on a communicator whose own error handler may end the program.
class ErrorsReturned {
 public:
  ErrorsReturned(const Library& library, mpi_handle comm)
      : calls_(*library.calls), comm_(comm), is_taken_(calls_.take_over(comm, &handler_) == 0) {}
  ErrorsReturned(const ErrorsReturned&) = delete;
  ErrorsReturned& operator=(const ErrorsReturned&) = delete;
  ~ErrorsReturned() {
    if (is_taken_) (void)calls_.hand_back(comm_, handler_);
  }

 private:
  const mpi_functions& calls_;
  const mpi_handle comm_;
  mpi_handle handler_ = 0;
  const bool is_taken_;
};

/// Creates the comm through a tcp comm of all ranks.
Result<std::shared_ptr<Comm>> create(const Library& library, mpi_handle handle,
                                     const mpi_group& group, const CommOptions& options,
                                     bool local) {
  const ErrorsReturned returned(library, handle);
  const Bounds bounds = rendezvous(options.rendezvous_ms);
  const std::string who = text("rank ", group.rank, " of an mpi comm of ", group.world);
  Duplicates& duplicates = *ZERO_TRY(Duplicates::of(library, handle));
  Result<tcp::Neighbours> neighbours = connect(library, handle, group, duplicates.meeting, bounds);
  if (!neighbours.ok()) return std::move(neighbours).status().within(who);
  const auto connected = std::make_shared<tcp::TcpComm>(group.rank, group.world, options.patient(),
                                                        nullptr, std::move(*neighbours));
  Call call = ZERO_TRY(connected->begin(Operation::create));
  std::vector<int32_t> all(static_cast<size_t>(group.world));
  std::iota(all.begin(), all.end(), 0);
  Result<std::shared_ptr<Comm>> made =
      hosts::form(call, all, group.rank, options, local ? hosts::host_words() : "",
                  [&] { return make_messages(call, library, duplicates); });
  made = call.vote("ready", std::move(made));
  if (made.ok()) duplicates.meeting.reset();
  return made;
}

}  // namespace
}  // namespace mpi

Result<std::shared_ptr<Comm>> create_mpi(const void* mpi_comm, size_t bytes,
                                         const CommOptions& options, bool local) {
  const mpi::Library& library = *ZERO_TRY(mpi::library());
  ZERO_TRY(mpi::check_thread(library));
  const mpi_handle handle = library.calls->find(mpi_comm, bytes);
  const mpi_group group = ZERO_TRY(mpi::group_of(library, handle, bytes));
  log_as(group.rank);
  if (group.world == 1) return create_solo(options);
  return mpi::create(library, handle, group, options, local);
}

}  // namespace zero
