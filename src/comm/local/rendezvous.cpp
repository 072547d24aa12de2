// SPDX-License-Identifier: Apache-2.0
#include "comm/local/rendezvous.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/hash.h"
#include "base/secret.h"
#include "base/text.h"

namespace zero::local {
namespace {

constexpr size_t kPlainNameBytes = 64;
constexpr int64_t kNameMs = 1'000;  // for another holder of the name to release it
constexpr int kRetryMs = 2;

/// Announces that all ranks are there, with the control segment. The life pages of `processes`
/// follow.
struct Group {
  Generation generation{};
  uint32_t processes = 0;
  uint32_t unused = 0;
};

/// One process in a frame of FrameKind::processes. The frame also carries the life page of each
/// process, and its pidfd if it has one.
struct Process {
  static constexpr size_t kMost = kDescriptorsPerFrame / 2;  // in one frame
  int32_t pid = 0;
  uint32_t descriptors = 0;
};

/// Returns true if this process has the user id with which the kernel replaces all ids that the
/// user namespace does not map.
bool users_look_alike() {
  std::string overflow = read_small_file("/proc/sys/kernel/overflowuid");
  if (overflow.empty()) overflow = "65534\n";  // the usual value, if the kernel does not report it
  if (text(os().geteuid(), "\n") != overflow) return false;
  // The line "first-here first-outside count" has the whole range if the namespace maps every user.
  return !read_small_file("/proc/self/uid_map").ends_with(text(" ", UINT32_MAX, "\n"));
}

// ---- Rank 0.

/// Connects to the process that holds the name. If it is another rank 0, both report that there are
/// two. Returns OK if the holder has left.
Status contest_name(const NamedMeeting& meeting, Deadline deadline) {
  NamedMeeting contest = meeting;
  contest.deadline = deadline;
  const Place place = place_of(meeting.address);
  Status said = visit(contest, {&place, 1}).failure();
  return said.code() == ZERO_ERR_COMM ? Status() : said;
}

Result<Fd> take_name(const NamedMeeting& meeting) {
  const Deadline deadline = std::min(meeting.deadline, Deadline(kNameMs));
  for (;;) {
    ZERO_TRY(meeting.look());
    Fd listener;
    const int error = listen_at(place_of(meeting.address), &listener);
    if (error == 0) return listener;
    if (error != EADDRINUSE) return Status(ZERO_ERR_SYSTEM, text("listening: ", errno_text(error)));
    ZERO_TRY(contest_name(meeting, deadline));
    if (deadline.passed()) return meeting.failed("another process holds this name");
    // Wait: a slice of kNameMs.
    sleep_ms(kRetryMs);
  }
}

/// Sends a guest the control segment and the processes as descriptors.
void hand_out(Link& link, const ControlSegment& segment, const Control& control,
              std::span<const Process> processes, std::span<const int> descriptors) {
  const int memory = segment.fd.get();
  const Group group{control.generation(), static_cast<uint32_t>(processes.size())};
  link.send(FrameKind::group, 0, as_payload(group), {&memory, 1});
  while (!processes.empty()) {
    const auto part = processes.first(std::min(processes.size(), Process::kMost));
    size_t count = 0;
    for (const Process& one : part) count += one.descriptors;
    link.send(FrameKind::processes, 0, std::as_bytes(part), descriptors.first(count));
    processes = processes.subspan(part.size());
    descriptors = descriptors.subspan(count);
  }
}

/// Creates the comm after all ranks have arrived, and sends it to them. `control` is set before any
/// other rank may have the segment.
Status form(const NamedMeeting& meeting, Reception& reception, ControlSegment& segment,
            std::unique_ptr<Control>& control) {
  segment = ZERO_TRY(make_control_segment(meeting.world));
  const auto self = ZERO_TRY(Peer::meet(meeting.descriptors[0], Fd(), os().getpid()));
  std::vector<std::shared_ptr<Peer>> different{self};  // one peer of each process
  std::vector<int> descriptors = meeting.descriptors;
  std::vector<Process> processes{{os().getpid(), static_cast<uint32_t>(descriptors.size())}};
  std::vector<std::shared_ptr<Peer>> peers{self};
  for (int32_t r = 1; r < meeting.world; ++r) {
    const Partner& one = reception.guest(r);
    peers.push_back(std::static_pointer_cast<Peer>(one.witness));
    if (one.descriptors.empty() || peers.back() == self) continue;
    different.push_back(peers.back());
    for (const Fd& fd : one.descriptors) descriptors.push_back(fd.get());
    processes.push_back(
        {static_cast<int32_t>(one.said->pid), static_cast<uint32_t>(one.descriptors.size())});
  }
  for (int32_t r = 0; r < meeting.world; ++r) {
    Slot& slot = Control::slot_of(segment.mapping->data(), r);
    const auto known = std::ranges::find(different, peers[static_cast<size_t>(r)]);
    const auto process = static_cast<size_t>(known - different.begin());
    slot.process.store(static_cast<uint32_t>(process));
    slot.pid.store(processes[process].pid);
  }
  control = std::make_unique<Control>(segment.mapping, 0, meeting.world, std::move(peers));
  os().reached("rendezvous.formed");
  for (int32_t r = 1; r < meeting.world; ++r) {
    hand_out(*reception.guest(r).link, segment, *control, processes, descriptors);
    os().reached("rendezvous.welcomed");
  }
  return reception.await_ready();
}

Result<Seat> meet_as_root(const NamedMeeting& meeting) {
  Fd listener;  // a single rank needs no name
  if (meeting.world > 1) listener = ZERO_TRY(take_name(meeting));
  os().reached("rendezvous.listening");
  ControlSegment segment;  // stays open while it may be in transit
  Seat seat;
  Reception reception(meeting, listener);
  Status outcome = reception.gather();
  if (outcome.ok()) {
    listener.reset();
    os().reached("rendezvous.gathered");
    outcome = form(meeting, reception, segment, seat.control);
  }
  if (outcome.ok()) {
    os().reached("rendezvous.all_ready");
    seat.links.resize(1);
    for (int32_t r = 1; r < meeting.world; ++r)
      seat.links.push_back(std::move(reception.guest(r).link));
    return seat;
  }
  std::string why = reception.explain(outcome);
  if (seat.control != nullptr) {
    // Ranks that have already joined receive the failure through the control segment. If one of
    // them broke the comm first, its cause is kept.
    seat.control->abort(kNoSteps.fail(ZERO_ERR_RENDEZVOUS, -1, meeting.title, why));
    why = seat.control->failure().text;
    if (outcome.code() == ZERO_ERR_RENDEZVOUS) outcome = seat.control->failure_status();
  }
  reception.dismiss(why);
  return outcome;
}

// ---- The other ranks.

/// Receives the processes of all ranks, in rank order.
Result<std::vector<std::shared_ptr<Peer>>> take_processes(const NamedMeeting& meeting,
                                                          Partner& root, size_t count) {
  const auto incomplete = [&] {
    return meeting.failed("rank 0 sent an incomplete list of processes");
  };
  std::vector<std::shared_ptr<Peer>> processes;
  while (processes.size() < count) {
    Frame frame = ZERO_TRY(hear_root(meeting, root, FrameKind::processes));
    std::span<Fd> descriptors = frame.descriptors;
    std::vector<Process> part(frame.payload.size() / sizeof(Process));
    if (part.empty() || part.size() > count - processes.size()) return incomplete();
    std::memcpy(part.data(), frame.payload.data(), part.size() * sizeof(Process));
    for (const Process& one : part) {
      if (one.descriptors > descriptors.size()) return incomplete();
      processes.push_back(std::static_pointer_cast<Peer>(
          ZERO_TRY(meeting.meet(descriptors.first(one.descriptors), one.pid))));
      descriptors = descriptors.subspan(one.descriptors);
    }
  }
  return processes;
}

/// Checks and maps the received memory.
Result<std::unique_ptr<Control>> take_seat(const NamedMeeting& meeting, const Frame& frame,
                                           const Group& group,
                                           std::span<const std::shared_ptr<Peer>> processes) {
  const int memory = frame.descriptors[0].get();
  const size_t bytes = control_bytes(meeting.world);
  ZERO_TRY(check_segment(memory, bytes));
  std::shared_ptr<Mapping> mapping = ZERO_TRY(map_segment(memory, bytes, Access::hidden));
  const Header& header = Control::header_of(mapping->data());
  if (header.magic != kControlMagic || header.world != meeting.world ||
      header.generation != group.generation)
    return meeting.failed("rank 0 sent the memory of another comm");

  std::vector<std::shared_ptr<Peer>> peers;
  for (int32_t r = 0; r < meeting.world; ++r) {
    const uint32_t process = Control::slot_of(mapping->data(), r).process.load();
    if (process >= processes.size())
      return meeting.failed(text("rank 0 named process ", process, " of ", processes.size()));
    peers.push_back(processes[process]);
  }
  os().reached("rendezvous.mapped");
  return std::make_unique<Control>(std::move(mapping), meeting.rank, meeting.world,
                                   std::move(peers));
}

Result<Seat> meet_at_root(const NamedMeeting& meeting) {
  const Place place = place_of(meeting.address);
  Partner root = ZERO_TRY(visit(meeting, {&place, 1}));
  os().reached("rendezvous.accepted");
  const Frame frame = ZERO_TRY(hear_root(meeting, root, FrameKind::group));
  const std::optional<Group> group = read<Group>(frame, FrameKind::group);
  if (!group || frame.descriptors.size() != 1 || group->processes == 0 ||
      group->processes > static_cast<uint32_t>(meeting.world))
    return meeting.failed("rank 0 sent an invalid reply");
  const std::vector<std::shared_ptr<Peer>> processes =
      ZERO_TRY(take_processes(meeting, root, group->processes));
  os().reached("rendezvous.welcome");
  Result<std::unique_ptr<Control>> control = take_seat(meeting, frame, *group, processes);
  // Rank 0 waits for this reply, good or bad, and the last step waits for rank 0.
  const std::string& problem = control.failure().text();
  root.link->send(control.ok() ? FrameKind::ready : FrameKind::refusal, 0, bytes_of(problem));
  const Status sent = deliver_to_root(meeting, root);
  Seat seat{ZERO_TRY(std::move(control)), {}};
  ZERO_TRY(Status(sent));
  seat.links.push_back(std::move(root.link));
  os().reached("rendezvous.ready");
  return seat;
}

}  // namespace

// ---- How ranks of one host identify each other.

NamedMeeting::NamedMeeting(std::string address_of, const Life& life)
    : address(std::move(address_of)) {
  one_host = true;
  knows_users = !users_look_alike();
  descriptors.push_back(life.page());
  if (life.pidfd() >= 0) descriptors.push_back(life.pidfd());
}

/// Returns the peer for a life page and, if present, a pidfd, which is duplicated.
Result<std::shared_ptr<Witness>> NamedMeeting::meet(std::span<Fd> given, pid_t pid) const {
  if (given.empty()) return Status(ZERO_ERR_COMM, "it sent no life page");
  Fd pidfd;
  if (given.size() > 1 && given[1].valid()) {
    pidfd = Fd::open([&] { return os().fcntl(given[1].get(), F_DUPFD_CLOEXEC, 0); });
    if (!pidfd.valid()) return too_many_descriptors();
  }
  return std::shared_ptr<Witness>(ZERO_TRY(Peer::meet(given[0].get(), std::move(pidfd), pid)));
}

/// Also says where this rank looked for others, which a user needs if no rank arrived.
std::string NamedMeeting::absent(std::string_view ranks, int64_t limit_ms) const {
  struct stat space {};
  const bool known = os().fstatat(AT_FDCWD, "/proc/self/ns/net", &space, 0) == 0;
  return text(ranks, " did not arrive within ", limit_ms, " ms; this rank looked as user ",
              os().geteuid(), " in network namespace ", known ? text(space.st_ino) : "unknown",
              " for the name '", address, "': all three must be the same on all ranks of a comm");
}

std::string NamedMeeting::unreached(std::span<const std::string>) const {
  return absent("rank 0", limit_ms);
}

Result<Seat> meet(const NamedMeeting& meeting) {
  os().reached("rendezvous.begun");
  if (meeting.world > 1 && meeting.word.empty() && !meeting.knows_users)
    return meeting.failed(
        text("user ", os().geteuid(),
             " stands for every user unknown to this user namespace, so the ranks "
             "of this job cannot be told from other users' processes: start them "
             "with a launcher, or set ZERO_JOB to a word that others cannot guess"));
  Result<Seat> met = meeting.rank == 0 ? meet_as_root(meeting) : meet_at_root(meeting);
  const Code code = met.failure().code();
  if (code == ZERO_ERR_SYSTEM || code == ZERO_ERR_MEMORY || code == ZERO_ERR_COMM)
    return std::move(met).status().within(meeting.title);
  Seat seat = ZERO_TRY(std::move(met));
  os().reached("rendezvous.seated");
  // Rank 0 may still wait for a rank, and knows which ranks to name, so other ranks wait longer.
  const int64_t limit_ms = meeting.deadline.left_ms() + (meeting.rank == 0 ? 0 : kVerdictMs);
  ZERO_TRY(seat.control->exchange({}, {},
                                  {.operation = meeting.title.c_str(),
                                   .phase = "last step",
                                   .limit_ms = limit_ms,
                                   .extended_by_progress = false,
                                   .code = ZERO_ERR_RENDEZVOUS}));
  os().reached("rendezvous.done");
  return seat;
}

std::string address_of_comm(std::string_view name, std::string_view word) {
  std::string tail(name);
  if (!word.empty()) {
    const Sha256 mac = hmac_sha256(bytes_of(word), bytes_of(name));
    Digest half;
    static_assert(sizeof half <= sizeof mac);
    std::memcpy(half.data(), mac.data(), sizeof half);
    tail = text("#", hex(half));
  } else if (name.size() > kPlainNameBytes) {  // may not fit in a socket address
    tail = text("#", hex(hash128(bytes_of(name))));
  }
  return text("zero/", os().geteuid(), "/", tail);
}

Result<Generation> draw_generation() {
  Generation bits;
  ZERO_TRY(draw_random(std::as_writable_bytes(std::span(bits))));
  return bits;
}

Result<ControlSegment> make_control_segment(int32_t world) {
  const size_t bytes = control_bytes(world);
  const Generation generation = ZERO_TRY(draw_generation());
  ControlSegment made;
  made.fd = ZERO_TRY(create_segment("zero.control", bytes));
  made.mapping = ZERO_TRY(map_segment(made.fd.get(), bytes, Access::hidden));
  ZERO_TRY(reserve(made.fd.get(), *made.mapping, 0, bytes));
  Control::format(made.mapping->data(), world, generation);
  return made;
}

}  // namespace zero::local
