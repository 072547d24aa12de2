// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/rendezvous.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/hash.h"
#include "base/secret.h"
#include "base/text.h"
#include "comm/proof.h"

namespace zero::tcp {
namespace {

constexpr int kSliceMs = 10;
constexpr int64_t kNextMs = 250;  // to the next address, while those before may still answer
constexpr int kAcceptsAtOnce = 64;
constexpr size_t kMostStrangers = 256;   // beside one for every rank
constexpr size_t kStrangerBytes = 4096;  // of a frame, until its sender has proved who it is

/// What each side says first.
struct Introduction {
  Nonce nonce{};
  int32_t rank = 0;
  int32_t world = 0;
  int32_t pid = 0;
  char host[68] = {};
};

/// Rank 0's has a proof with it.
struct Welcome {
  Introduction root;
  Proof proof{};
};

size_t most_bytes(int32_t world) {
  return std::max(kPieceBytes, static_cast<size_t>(world) * 16384) + 4096;
}

/// But for the nonce, which every connection has of its own.
Introduction introduce(const Meeting& meeting) {
  Introduction mine{{}, meeting.rank, meeting.world, os().getpid(), {}};
  const Fd file(os().openat(AT_FDCWD, "/proc/sys/kernel/hostname", O_RDONLY | O_CLOEXEC, 0));
  if (file.valid()) (void)os().pread(file.get(), mine.host, sizeof mine.host - 1, 0);
  return mine;
}

/// What another host says is shown as far as it is plain.
std::string name_of(const Introduction& one) {
  std::string_view host(one.host, strnlen(one.host, sizeof one.host));
  host =
      host.substr(0, static_cast<size_t>(std::find_if(host.begin(), host.end(),
                                                      [](char c) { return c < '!' || c > '~'; }) -
                                         host.begin()));
  return text("rank ", one.rank, " (process ", one.pid, " on ", host, ")");
}

template <class Words>
void say(Link& link, FrameKind kind, const Words& words) {
  static_assert(std::is_trivially_copyable_v<Words>);
  link.send(kind, 0, std::as_bytes(std::span(&words, 1)));
}

/// What a frame of `kind` holds.
template <class Words>
std::optional<Words> read(const Frame& frame, FrameKind kind) {
  Words words;
  if (frame.kind != kind || frame.payload.size() != sizeof words) return std::nullopt;
  memcpy(&words, frame.payload.data(), sizeof words);
  return words;
}

Status wait_slice(std::vector<pollfd> polls, const Meeting& meeting) {
  ZERO_TRY(meeting.check());
  // Wait: a slice: the meeting has the deadline.
  os().poll(polls.data(), polls.size(), kSliceMs);
  return {};
}

// ---- Rank 0.

class Host {
 public:
  Host(const Root& root, const Meeting& meeting)
      : root_(root),
        meeting_(meeting),
        mine_(introduce(meeting)),
        deadline_ms_(now_ms() + meeting.limit_ms),
        peers_(static_cast<size_t>(meeting.world - 1)) {}

  Result<std::unique_ptr<Control>> run() {
    for (;;) {
      ZERO_TRY(accept());
      ZERO_TRY(hear());
      if (ZERO_TRY(all_seated())) break;
      if (now_ms() >= deadline_ms_) return missing();
      ZERO_TRY(wait_slice(polls(), meeting_));
    }
    return std::make_unique<Control>(0, meeting_.world, std::move(peers_));
  }

 private:
  /// Who has not proved yet to be a rank.
  struct Stranger {
    std::unique_ptr<Link> link;
    std::optional<Introduction> guest = {};  // once it has said so
    Nonce nonce = {};                        // it is to confirm that
  };

  /// A rank that has confirmed uses no other connection, so one that has ended is a rank's end.
  Result<bool> all_seated() {
    bool all = true;
    for (const Peer& peer : peers_) {
      all = all && peer.link != nullptr;
      if (peer.link != nullptr && peer.link->ended())
        return Status(ZERO_ERR_RENDEZVOUS, text(peer.name, " died: its connection has ended"));
    }
    return all;
  }

  Status accept() {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      Fd guest = accept_guest(root_.listener.fd.get());
      if (const int error = errno; !guest.valid() && (error == EMFILE || error == ENFILE)) {
        // The system says so before it looks whether anybody has come.
        pollfd one{root_.listener.fd.get(), POLLIN, 0};
        if (os().poll(&one, 1, 0) <= 0) return {};
        if (strangers_.empty())
          return {ZERO_ERR_SYSTEM,
                  text("accepting a rank's connection: ", errno_text(error), ": raise ulimit -n")};
        drop_a_stranger();
        continue;
      }
      if (!guest.valid()) return {};
      tune(guest.get());
      if (strangers_.size() == peers_.size() + kMostStrangers) drop_a_stranger();
      strangers_.push_back({std::make_unique<Link>(std::move(guest), kStrangerBytes)});
    }
    return {};
  }

  /// Who has said nothing goes first, so that many who never do cannot crowd out a rank.
  void drop_a_stranger() {
    const auto silent = std::find_if(strangers_.begin(), strangers_.end(),
                                     [](const Stranger& one) { return !one.guest; });
    strangers_.erase(silent == strangers_.end() ? strangers_.begin() : silent);
  }

  Status hear() {
    for (Stranger& one : strangers_) {
      const std::optional<Frame> frame = one.link->take();
      if (frame && !ZERO_TRY(hear(one, *frame))) one.link.reset();
      if (one.link != nullptr && one.link->over()) one.link.reset();
    }
    std::erase_if(strangers_, [](const Stranger& one) { return one.link == nullptr; });
    return {};
  }

  /// False: it is no rank, or has its seat.
  Result<bool> hear(Stranger& one, const Frame& frame) {
    if (!one.guest) {
      one.guest = read<Introduction>(frame, FrameKind::hello);
      if (!one.guest) return false;
      ZERO_TRY(draw_random(one.nonce));
      Welcome welcome{mine_, prove(root_.offer.key, Role::root, one.guest->rank,
                                   {one.guest->nonce, one.nonce})};
      welcome.root.nonce = one.nonce;
      say(*one.link, FrameKind::welcome, welcome);
      return true;
    }
    const std::optional<Proof> proof = read<Proof>(frame, FrameKind::confirm);
    if (proof && proves(*proof, root_.offer.key, Role::guest, one.guest->rank,
                        {one.guest->nonce, one.nonce}))
      ZERO_TRY(seat(*one.guest, one));
    return false;
  }

  Status seat(const Introduction& guest, Stranger& one) {
    if (guest.world != meeting_.world || guest.rank < 1 || guest.rank >= meeting_.world)
      return Status(ZERO_ERR_RENDEZVOUS, text(name_of(guest), " of a world of ", guest.world,
                                              " came to a world of ", meeting_.world));
    Peer& peer = peers_[static_cast<size_t>(guest.rank - 1)];
    if (peer.link != nullptr)
      return Status(ZERO_ERR_RENDEZVOUS,
                    text(peer.name, " and ", name_of(guest), " both came as rank ", guest.rank));
    peer.rank = guest.rank;
    peer.name = name_of(guest);
    peer.link = std::move(one.link);
    peer.link->set_most_bytes(most_bytes(meeting_.world));
    return {};
  }

  std::vector<pollfd> polls() const {
    std::vector<pollfd> all = {{root_.listener.fd.get(), POLLIN, 0}};
    for (const Stranger& one : strangers_) all.push_back({one.link->fd(), POLLIN, 0});
    return all;
  }

  Status missing() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < peers_.size(); ++i)
      if (peers_[i].link == nullptr) names.push_back(text("rank ", i + 1));
    return Status(ZERO_ERR_RENDEZVOUS, text(list_some(names), " did not connect to rank 0 within ",
                                            meeting_.limit_ms, " ms"));
  }

  const Root& root_;
  const Meeting& meeting_;
  const Introduction mine_;
  const int64_t deadline_ms_;
  std::vector<Peer> peers_;
  std::vector<Stranger> strangers_;
};

// ---- The other ranks.

/// Tries all addresses beside each other and gives none up while it may still answer: rank 0 may
/// come to its connections late.
class Guest {
 public:
  Guest(const Offer& offer, const Meeting& meeting)
      : offer_(offer),
        meeting_(meeting),
        mine_(introduce(meeting)),
        deadline_ms_(now_ms() + meeting.limit_ms),
        doors_(std::min<size_t>(offer.count, Offer::kAddresses)) {
    for (size_t i = 0; i < doors_.size(); ++i)
      doors_[i].next_ms = now_ms() + static_cast<int64_t>(i) * kNextMs;
  }

  Result<std::unique_ptr<Control>> run() {
    for (;;) {
      for (size_t i = 0; i < doors_.size(); ++i) {
        std::optional<Peer> root = ZERO_TRY(knock(offer_.addresses[i], doors_[i]));
        if (!root) continue;
        std::vector<Peer> peers;
        peers.push_back(std::move(*root));
        return std::make_unique<Control>(meeting_.rank, meeting_.world, std::move(peers));
      }
      if (now_ms() >= deadline_ms_) return unreached();
      ZERO_TRY(wait_slice(polls(), meeting_));
    }
  }

 private:
  /// One address, and how far this rank has come there.
  struct Door {
    int64_t next_ms = 0;  // when to connect
    Fd connecting;
    std::unique_ptr<Link> link;
    Nonce nonce{};
    bool tried = false;
    std::string obstacle = "not tried";  // the last one
  };
  using Answer = std::optional<Peer>;

  /// Rank 0, once it has answered there.
  Result<Answer> knock(const Address& address, Door& door) {
    if (door.link != nullptr) return listen_at(door);
    if (door.connecting.valid()) return greet(door);
    if (now_ms() < door.next_ms) return Answer();
    Result<Fd> started = start_connect(address, offer_.port);
    if (!started.ok()) return leave(door, started.failure().text());
    door.connecting = std::move(*started);
    if (!std::exchange(door.tried, true)) door.obstacle = "no answer";
    return Answer();
  }

  Result<Answer> greet(Door& door) {
    pollfd one{door.connecting.get(), POLLOUT, 0};
    if (os().poll(&one, 1, 0) <= 0) return Answer();
    if (const int error = connect_error(door.connecting.get()))
      return leave(door, errno_text(error));
    tune(door.connecting.get());
    door.link = std::make_unique<Link>(std::move(door.connecting), kStrangerBytes);
    ZERO_TRY(draw_random(door.nonce));
    Introduction hello = mine_;
    hello.nonce = door.nonce;
    say(*door.link, FrameKind::hello, hello);
    return Answer();
  }

  Result<Answer> listen_at(Door& door) {
    const std::optional<Frame> frame = door.link->take();
    if (!frame && !door.link->over()) return Answer();
    if (!frame || door.link->ended())
      return leave(door, "what answers there closes the connection, as another job's rank 0 does");
    const std::optional<Welcome> welcome = read<Welcome>(*frame, FrameKind::welcome);
    const Nonces nonces{door.nonce, welcome ? welcome->root.nonce : Nonce()};
    if (!welcome || !proves(welcome->proof, offer_.key, Role::root, meeting_.rank, nonces))
      return leave(door, "what answers there is not rank 0");
    say(*door.link, FrameKind::confirm, prove(offer_.key, Role::guest, meeting_.rank, nonces));
    if (welcome->root.world != meeting_.world)  // which it tells rank 0 by the same
      return Status(ZERO_ERR_RENDEZVOUS,
                    text("rank ", meeting_.rank, " of a world of ", meeting_.world, " came to ",
                         name_of(welcome->root), " of a world of ", welcome->root.world));
    Peer root;
    root.name = name_of(welcome->root);
    root.link = std::move(door.link);
    root.link->set_most_bytes(most_bytes(meeting_.world));
    return Answer(std::move(root));
  }

  /// To come again soon.
  static Answer leave(Door& door, std::string obstacle) {
    door.obstacle = std::move(obstacle);
    door.connecting.reset();
    door.link.reset();
    door.next_ms = now_ms() + kSliceMs;
    return {};
  }

  std::vector<pollfd> polls() const {
    std::vector<pollfd> all;
    for (const Door& door : doors_) {
      if (door.link != nullptr) all.push_back({door.link->fd(), POLLIN, 0});
      if (door.connecting.valid()) all.push_back({door.connecting.get(), POLLOUT, 0});
    }
    return all;
  }

  Status unreached() const {
    std::string places;
    for (size_t i = 0; i < doors_.size(); ++i)
      places +=
          text(i == 0 ? "" : ", ", to_text(offer_.addresses[i]), " (", doors_[i].obstacle, ")");
    return Status(ZERO_ERR_RENDEZVOUS, text("rank 0 was not reached within ", meeting_.limit_ms,
                                            " ms at port ", offer_.port, " of ", places));
  }

  const Offer& offer_;
  const Meeting& meeting_;
  const Introduction mine_;
  const int64_t deadline_ms_;
  std::vector<Door> doors_;  // by address
};

}  // namespace

Result<Root> listen() {
  Root root;
  root.listener = ZERO_TRY(listen_anywhere());
  root.offer.port = root.listener.port;
  const std::vector<Address> addresses = ZERO_TRY(own_addresses(Offer::kAddresses));
  std::copy(addresses.begin(), addresses.end(), root.offer.addresses.begin());
  root.offer.count = static_cast<uint16_t>(addresses.size());
  ZERO_TRY(draw_random(root.offer.key));
  return root;
}

Offer make_offer(std::span<const Address> addresses, uint16_t port, std::string_view secret) {
  Offer offer;
  const size_t count = std::min(addresses.size(), Offer::kAddresses);
  std::copy_n(addresses.begin(), count, offer.addresses.begin());
  offer.count = static_cast<uint16_t>(count);
  offer.port = port;
  offer.key = sha256(bytes_of(secret));
  return offer;
}

Result<Root> listen(const Offer& offer) {
  Root root;
  root.listener = ZERO_TRY(listen_at(std::span(offer.addresses).first(offer.count), offer.port));
  root.offer = offer;
  return root;
}

Result<std::unique_ptr<Control>> seat_guests(const Root& root, const Meeting& meeting) {
  return Host(root, meeting).run();
}

Result<std::unique_ptr<Control>> visit(const Offer& offer, const Meeting& meeting) {
  return Guest(offer, meeting).run();
}

}  // namespace zero::tcp
