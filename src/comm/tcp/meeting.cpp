// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/meeting.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/hash.h"
#include "base/text.h"

namespace zero::tcp {
namespace {

constexpr int kSliceMs = 10;
constexpr int64_t kAttemptMs = 3'000;    // for one address to answer
constexpr int64_t kStrangerMs = 5'000;   // for a connection to introduce itself
constexpr size_t kMostStrangers = 1024;  // beside one for every rank
constexpr size_t kNamed = 8;

/// What each side says first.
struct Introduction {
  Key key{};
  int32_t rank = 0;
  int32_t world = 0;
  int32_t pid = 0;
  char host[68] = {};
};

size_t most_bytes(int32_t world) {
  return std::max(kPieceBytes, static_cast<size_t>(world) * 16384) + 4096;
}

Introduction introduce(const Key& key, const Meeting& meeting) {
  Introduction mine{key, meeting.rank, meeting.world, os().getpid()};
  const Fd file(os().openat(AT_FDCWD, "/proc/sys/kernel/hostname", O_RDONLY | O_CLOEXEC, 0));
  if (file.valid()) (void)os().pread(file.get(), mine.host, sizeof mine.host - 1, 0);
  for (char* c = mine.host; *c != 0; ++c)
    if (*c < '!' || *c > '~') *c = 0;
  return mine;
}

std::string name_of(const Introduction& one) {
  return text("rank ", one.rank, " (process ", one.pid, " on ",
              std::string_view(one.host, strnlen(one.host, sizeof one.host)), ")");
}

/// In a time that does not depend on where they differ.
bool equal(const Key& a, const Key& b) {
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

Status draw(Key& key) {
  const ssize_t got =
      uninterrupted([&] { return os().getrandom(key.data(), key.size(), 0); }, kInterruptedMs);
  if (got == static_cast<ssize_t>(key.size())) return {};
  return Status(ZERO_ERR_SYSTEM, text("drawing random bits: ", errno_text(errno)));
}

Key key_of(std::string_view role, std::string_view secret) {
  const Digest digest = hash128(bytes_of(text(role, secret)));
  Key key;
  static_assert(sizeof key == sizeof digest);
  memcpy(key.data(), digest.data(), sizeof key);
  return key;
}

void say(Link& link, FrameKind kind, const Introduction& mine) {
  link.send(kind, 0, std::as_bytes(std::span(&mine, 1)));
}

/// The introduction in a frame of `kind` that proves `key`.
std::optional<Introduction> read(const Frame& frame, FrameKind kind, const Key& key) {
  Introduction other;
  if (frame.kind != kind || frame.payload.size() != sizeof other) return std::nullopt;
  memcpy(&other, frame.payload.data(), sizeof other);
  if (!equal(other.key, key)) return std::nullopt;
  return other;
}

Status wait_slice(std::vector<pollfd> polls, const Meeting& meeting) {
  ZERO_TRY(meeting.check());
  os().poll(polls.data(), polls.size(), kSliceMs);
  return {};
}

// ---- Rank 0.

class Host {
 public:
  Host(const Root& root, const Meeting& meeting)
      : root_(root),
        meeting_(meeting),
        mine_(introduce(root.offer.root, meeting)),
        deadline_ms_(now_ms() + meeting.limit_ms),
        peers_(static_cast<size_t>(meeting.world - 1)) {}

  Result<std::unique_ptr<Star>> run() {
    while (!all_seated()) {
      if (now_ms() >= deadline_ms_) return missing();
      accept();
      ZERO_TRY(hear());
      ZERO_TRY(wait_slice(polls(), meeting_));
    }
    return std::make_unique<Star>(0, meeting_.world, std::move(peers_));
  }

 private:
  struct Stranger {
    std::unique_ptr<Link> link;
    int64_t until_ms;
  };

  bool all_seated() const {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const Peer& peer) { return peer.link != nullptr; });
  }

  void accept() {
    while (strangers_.size() < peers_.size() + kMostStrangers) {
      Fd guest = accept_guest(root_.listener.fd.get());
      if (!guest.valid()) return;
      tune(guest.get());
      strangers_.push_back({std::make_unique<Link>(std::move(guest), most_bytes(meeting_.world)),
                            now_ms() + kStrangerMs});
    }
  }

  Status hear() {
    for (Stranger& one : strangers_) {
      const std::optional<Frame> frame = one.link->take();
      if (frame) {
        if (const auto guest = read(*frame, FrameKind::hello, root_.offer.guests))
          ZERO_TRY(seat(*guest, one));
        one.link.reset();
      } else if (one.link->over() || now_ms() >= one.until_ms) {
        one.link.reset();
      }
    }
    std::erase_if(strangers_, [](const Stranger& one) { return one.link == nullptr; });
    return {};
  }

  /// A rank that comes again has given up its first connection.
  Status seat(const Introduction& guest, Stranger& one) {
    if (guest.world != meeting_.world || guest.rank < 1 || guest.rank >= meeting_.world)
      return Status(ZERO_ERR_RENDEZVOUS, text(name_of(guest), " of a world of ", guest.world,
                                              " came to a world of ", meeting_.world));
    Peer& peer = peers_[static_cast<size_t>(guest.rank - 1)];
    const bool there = peer.link != nullptr && (peer.link->take() || !peer.link->over());
    if (there && peer.name != name_of(guest))
      return Status(ZERO_ERR_RENDEZVOUS,
                    text(peer.name, " and ", name_of(guest), " both came as rank ", guest.rank));
    peer.rank = guest.rank;
    peer.name = name_of(guest);
    peer.link = std::move(one.link);
    say(*peer.link, FrameKind::welcome, mine_);
    return {};
  }

  std::vector<pollfd> polls() const {
    std::vector<pollfd> all = {{root_.listener.fd.get(), POLLIN, 0}};
    for (const Stranger& one : strangers_) all.push_back({one.link->fd(), POLLIN, 0});
    return all;
  }

  Status missing() const {
    std::string names;
    size_t count = 0;
    for (size_t i = 0; i < peers_.size(); ++i)
      if (peers_[i].link == nullptr && ++count <= kNamed)
        names += text(count == 1 ? "" : ", ", "rank ", i + 1);
    if (count > kNamed) names += text(" and ", count - kNamed, " more");
    return Status(ZERO_ERR_RENDEZVOUS,
                  text(names, " did not connect to rank 0 within ", meeting_.limit_ms, " ms"));
  }

  const Root& root_;
  const Meeting& meeting_;
  const Introduction mine_;
  const int64_t deadline_ms_;
  std::vector<Peer> peers_;
  std::vector<Stranger> strangers_;
};

// ---- The other ranks.

class Guest {
 public:
  Guest(const Offer& offer, const Meeting& meeting)
      : offer_(offer),
        meeting_(meeting),
        mine_(introduce(offer.guests, meeting)),
        deadline_ms_(now_ms() + meeting.limit_ms) {}

  Result<std::unique_ptr<Star>> run() {
    const size_t count = std::min<size_t>(offer_.count, Offer::kAddresses);
    obstacles_.assign(count, "not tried");
    for (;;) {
      for (size_t i = 0; i < count && now_ms() < deadline_ms_; ++i) {
        std::optional<Peer> root = ZERO_TRY(attempt(offer_.addresses[i], obstacles_[i]));
        if (!root) continue;
        std::vector<Peer> peers;
        peers.push_back(std::move(*root));
        return std::make_unique<Star>(meeting_.rank, meeting_.world, std::move(peers));
      }
      if (now_ms() >= deadline_ms_) return unreached();
      ZERO_TRY(wait_slice({}, meeting_));
    }
  }

 private:
  Result<std::optional<Peer>> attempt(const Address& address, std::string& obstacle) {
    const auto nothing = [&](std::string why) {
      obstacle = std::move(why);
      return std::optional<Peer>();
    };
    const int64_t until_ms = std::min(deadline_ms_, now_ms() + kAttemptMs);
    Result<Fd> started = start_connect(address, offer_.port);
    if (!started.ok()) return nothing(started.failure().text());
    pollfd one{started->get(), POLLOUT, 0};
    while (os().poll(&one, 1, kSliceMs) <= 0) {
      ZERO_TRY(meeting_.check());
      if (now_ms() >= until_ms) return nothing("no answer");
    }
    if (const int error = connect_error(started->get())) return nothing(errno_text(error));
    tune(started->get());
    Peer root;
    root.link = std::make_unique<Link>(std::move(*started), most_bytes(meeting_.world));
    say(*root.link, FrameKind::hello, mine_);
    while (!root.link->over() && now_ms() < until_ms) {
      if (const std::optional<Frame> frame = root.link->take()) {
        const auto other = read(*frame, FrameKind::welcome, offer_.root);
        if (!other) return nothing("what answers there is not rank 0");
        root.name = name_of(*other);
        return std::optional<Peer>(std::move(root));
      }
      ZERO_TRY(wait_slice({{root.link->fd(), POLLIN, 0}}, meeting_));
    }
    return nothing(root.link->over()
                       ? "what answers there closes the connection, as another job's rank 0 does"
                       : "no answer");
  }

  Status unreached() const {
    std::string places;
    for (size_t i = 0; i < obstacles_.size(); ++i)
      places += text(i == 0 ? "" : ", ", to_text(offer_.addresses[i]), " (", obstacles_[i], ")");
    return Status(ZERO_ERR_RENDEZVOUS, text("rank 0 was not reached within ", meeting_.limit_ms,
                                            " ms at port ", offer_.port, " of ", places));
  }

  const Offer& offer_;
  const Meeting& meeting_;
  const Introduction mine_;
  const int64_t deadline_ms_;
  std::vector<std::string> obstacles_;  // of each address, the last one
};

}  // namespace

Result<Root> listen() {
  Root root;
  root.listener = ZERO_TRY(listen_anywhere());
  root.offer.port = root.listener.port;
  const std::vector<Address> addresses = ZERO_TRY(own_addresses(Offer::kAddresses));
  std::copy(addresses.begin(), addresses.end(), root.offer.addresses.begin());
  root.offer.count = static_cast<uint16_t>(addresses.size());
  ZERO_TRY(draw(root.offer.guests));
  ZERO_TRY(draw(root.offer.root));
  return root;
}

Offer make_offer(std::span<const Address> addresses, uint16_t port, std::string_view secret) {
  Offer offer;
  const size_t count = std::min(addresses.size(), Offer::kAddresses);
  std::copy_n(addresses.begin(), count, offer.addresses.begin());
  offer.count = static_cast<uint16_t>(count);
  offer.port = port;
  offer.guests = key_of("a rank of ", secret);
  offer.root = key_of("rank 0 of ", secret);
  return offer;
}

Result<Root> listen(const Offer& offer) {
  Root root;
  root.listener = ZERO_TRY(listen_at(std::span(offer.addresses).first(offer.count), offer.port));
  root.offer = offer;
  return root;
}

Result<std::unique_ptr<Star>> seat_guests(const Root& root, const Meeting& meeting) {
  return Host(root, meeting).run();
}

Result<std::unique_ptr<Star>> visit(const Offer& offer, const Meeting& meeting) {
  return Guest(offer, meeting).run();
}

}  // namespace zero::tcp
