// SPDX-License-Identifier: Apache-2.0
#include "comm/local/rendezvous.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/hash.h"
#include "base/secret.h"
#include "base/text.h"

namespace zero::local {
namespace {

constexpr size_t kPlainNameBytes = 64;
constexpr int64_t kSettleMs =
    100;  // between a connection's end and the kernel's word about a death

Result<Seat> meet_alone(const Meeting& meeting) {
  ControlSegment segment = ZERO_TRY(make_control_segment(1));
  Control::slot_of(segment.mapping->data(), 0).pid.store(os().getpid());
  std::vector<std::shared_ptr<Peer>> peers;
  peers.push_back(ZERO_TRY(Peer::meet(meeting.life->page(), Fd(), os().getpid())));
  Seat seat;
  seat.control = std::make_unique<Control>(segment.mapping, 0, 1, std::move(peers));
  return seat;
}

}  // namespace

bool users_look_alike() {
  const auto read = [](const char* path) {
    std::array<char, 64> words{};
    const Fd file(os().openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0));
    if (file.valid()) (void)os().pread(file.get(), words.data(), words.size() - 1, 0);
    return std::string(words.data());
  };
  std::string overflow = read("/proc/sys/kernel/overflowuid");
  if (overflow.empty()) overflow = "65534\n";  // the usual one, where nobody tells
  if (text(os().geteuid(), "\n") != overflow) return false;
  // "first-here first-outside how-many": the whole range where no namespace leaves any out.
  return !read("/proc/self/uid_map").ends_with(text(" ", UINT32_MAX, "\n"));
}

Status Meeting::failed(std::string_view sentence) const {
  return Status(ZERO_ERR_RENDEZVOUS, text(title, ": ", sentence));
}

int64_t Meeting::remaining_ms() const {
  return std::max<int64_t>(0,
                           (deadline_ns - now_ns() + 999'999) / 1'000'000);  // never a moment early
}

Hello Meeting::hello() const {
  Hello hello;
  hello.rank = rank;
  hello.world = world;
  hello.pid = os().getpid();
  hello.limit_ms = limit_ms;
  hello.remaining_ms = remaining_ms();
  put_wire_text(hello.device, device);
  return hello;
}

std::string Meeting::whereabouts() const {
  struct stat space {};
  const bool known = os().fstatat(AT_FDCWD, "/proc/self/ns/net", &space, 0) == 0;
  return text("; this rank looked as user ", os().geteuid(), " in network namespace ",
              known ? text(space.st_ino) : "unknown", " for the name '", address,
              "': ranks of one comm have all three in common");
}

Result<std::optional<Answer>> answer_to(const MessageBuffer& message, const Hello& hello,
                                        const Meeting& meeting, pid_t root) {
  Challenge challenge;
  if (!message.read(&challenge)) return std::optional<Answer>();
  const Nonces nonces{hello.nonce, challenge.nonce};
  if (!proves(challenge.proof, meeting.key(), Role::root, hello.rank, nonces))
    return meeting.failed(text("process ", root, ", which has this name, is of another job"));
  Answer answer;
  answer.proof = prove(meeting.key(), Role::guest, hello.rank, nonces);
  return std::optional(answer);
}

Result<Seat> meet(const Meeting& meeting) {
  os().reached("rendezvous.begun");
  if (meeting.world > 1 && meeting.word.empty() && users_look_alike())
    return meeting.failed(
        text("user ", os().geteuid(),
             " stands for every user that this user namespace does not "
             "know, so nothing tells the ranks of this job from other users' processes: start them "
             "with a launcher, or set ZERO_JOB to a word that others cannot guess"));
  Result<Seat> met = meeting.world == 1  ? meet_alone(meeting)
                     : meeting.rank == 0 ? meet_as_root(meeting)
                                         : meet_at_root(meeting);
  switch (met.failure().code()) {
    case ZERO_ERR_SYSTEM:
    case ZERO_ERR_MEMORY:
    case ZERO_ERR_COMM:
      return std::move(met).status().within(meeting.title);
    default:
      break;
  }
  Seat seat = ZERO_TRY(std::move(met));
  os().reached("rendezvous.seated");
  // Rank 0 may still be waiting for another one, and knows whom to name: the others give it time
  // to.
  const int64_t limit_ms = meeting.remaining_ms() + (meeting.rank == 0 ? 0 : kVerdictMs);
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
  } else if (name.size() > kPlainNameBytes) {  // might not fit a socket's address
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

bool ended_by_now(const Peer& peer) {
  const int64_t until = now_ms() + kSettleMs;
  while (!peer.ask()) {
    if (now_ms() >= until) return false;
    // Wait: a slice of kSettleMs.
    sleep_ms(1);
  }
  return true;
}

std::vector<int> life_descriptors(const Life& life) {
  std::vector<int> descriptors{life.page()};
  if (life.pidfd() >= 0) descriptors.push_back(life.pidfd());
  return descriptors;
}

}  // namespace zero::local
