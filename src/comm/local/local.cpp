// SPDX-License-Identifier: Apache-2.0
#include "comm/local/local.h"

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"
#include "comm/create.h"

namespace zero {

Result<std::shared_ptr<Comm>> create_local(std::string_view name, int32_t rank, int32_t world,
                                           const CommOptions& options,
                                           std::shared_ptr<Device> device, std::string_view word) {
  if (name.empty()) return Status(ZERO_ERR_ARGUMENT, "the name of a local comm is empty");
  if (world < 1 || world > local::kMaxWorld)
    return Status(ZERO_ERR_ARGUMENT,
                  text("world is ", world, ": a local comm has 1 to ", local::kMaxWorld, " ranks"));
  if (rank < 0 || rank >= world)
    return Status(ZERO_ERR_ARGUMENT, text("rank is ", rank, " in a world of ", world));
  return local::join(text("rendezvous '", name, "'"), local::address_of_comm(name, word), word,
                     rank, world, options, std::move(device), [] { return Status(); });
}

namespace local {

Result<std::shared_ptr<Comm>> join(const std::string& title, const std::string& address,
                                   std::string_view word, int32_t rank, int32_t world,
                                   const CommOptions& options, std::shared_ptr<Device> device,
                                   std::function<Status()> check) {
  const int64_t deadline_ns = now_ns() + options.rendezvous_ms * 1'000'000;
  Life life = ZERO_TRY(Life::begin());
  NamedMeeting meeting(address, life);
  meeting.title = title;
  meeting.rank = rank;
  meeting.world = world;
  meeting.limit_ms = options.rendezvous_ms;
  meeting.deadline_ns = deadline_ns;
  meeting.word = bytes_of(word);
  meeting.check = std::move(check);
  meeting.device = device == nullptr ? "host" : device->kind();
  Seat seat = ZERO_TRY(meet(meeting));
  auto comm = std::make_shared<LocalComm>(rank, world, options, std::move(life), std::move(seat),
                                          std::move(device));
  ZERO_TRY(comm->join_devices());
  return std::shared_ptr<Comm>(std::move(comm));
}

LocalComm::LocalComm(int32_t rank, int32_t world, const CommOptions& options, Life life, Seat seat,
                     std::shared_ptr<Device> device)
    : Comm(rank, world, options, std::move(device)),
      life_(std::move(life)),
      control_(std::move(seat.control)),
      links_(std::move(seat.links)) {
  static_assert(kRecordBytes <= kRecordRoom);
  control_->set_steps(&steps);
}

Status LocalComm::exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                                 const Patience& patience) {
  return control_->exchange(mine, all, patience);
}

Status LocalComm::broadcast_bytes(std::span<std::byte> data, int32_t root,
                                  const Patience& patience) {
  return control_->broadcast(data, root, patience, later(patience));
}

// ---- Children.

Result<std::shared_ptr<Comm>> LocalComm::make_child(Call& call, std::span<const int32_t> members,
                                                    int32_t place, int32_t) {
  // The child's rank 0 draws the name; one that could not draws the empty one.
  std::string name;
  Status drawn;
  if (!members.empty() && members[0] == rank()) {
    Result<Generation> bits = draw_generation();
    if (bits.ok()) name = hex(Digest(*bits));
    drawn = std::move(bits).status();
  }
  const std::vector<std::string> names = ZERO_TRY(call.gather("child", name));
  ZERO_TRY(std::move(drawn));
  if (members.empty()) return std::shared_ptr<Comm>();
  const std::string& shared = names[static_cast<size_t>(members[0])];
  if (shared.empty())
    return Status(ZERO_ERR_PEER, text("rank ", members[0], " could not draw the child's name"));
  const Patience where{operation_name(call.operation()), "child", options().rendezvous_ms, false};
  // The other members may die before they come, or fail: this comm sees that, the child's
  // rendezvous could not. Who waits there shows progress here, where others may wait for it.
  const auto check = [&]() -> Status {
    control_->note_progress();
    ZERO_TRY(control_->check(where));
    if (!control_->any_withdrew(members)) return {};
    return Status(ZERO_ERR_PEER, "another rank could not take its seat");
  };
  Result<std::shared_ptr<Comm>> child =
      join(text("rendezvous of the child of a split"), address_of_comm(shared, shared), shared,
           place, static_cast<int32_t>(members.size()), options(), device(), check);
  if (child.ok()) return child;
  // The vote that comes tells why, in the words of who failed.
  if (control_->any_withdrew(members)) return std::shared_ptr<Comm>();
  control_->withdraw();
  return child;
}

}  // namespace local
}  // namespace zero
