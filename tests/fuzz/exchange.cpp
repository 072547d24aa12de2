// SPDX-License-Identifier: Apache-2.0
// Exchanges over a connection whose other end is a rank that sends arbitrary frames.
#include <sys/socket.h>

#include "base/hash.h"
#include "comm/tcp/tcp.h"
#include "fuzz/input.h"

using namespace zero;

namespace {

/// Sends a frame of any kind, usually with the size of some kind.
void send_frame(fuzz::Input& input, Link& link) {
  constexpr size_t kSizes[] = {0, 8, 16, 144, sizeof(Cause)};
  const auto kind = static_cast<FrameKind>(input.below(20));
  const uint64_t sequence = input.below(5);
  const size_t choice = input.take();
  std::vector<std::byte> payload(choice < 200 ? kSizes[choice % std::size(kSizes)] : choice);
  const std::string_view given = input.bytes(std::min<size_t>(payload.size(), 32));
  std::ranges::copy(bytes_of(given), payload.begin());
  link.send(kind, sequence, payload);
}

void exchange(fuzz::Input& input) {
  int ends[2];
  fuzz::must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
  const auto rank = static_cast<int32_t>(input.below(2));
  tcp::Neighbours neighbours{.rank = rank, .peers = std::vector<tcp::Peer>(1)};
  tcp::Peer& peer = neighbours.peers[0];
  peer.place = peer.rank = 1 - rank;
  peer.name = "the other rank";
  peer.link = std::make_unique<Link>(Fd(ends[0]), tcp::kPartBytes);
  tcp::TcpComm comm(rank, 2, {}, nullptr, std::move(neighbours));
  {
    Link other{Fd(ends[1])};
    while (!input.empty()) send_frame(input, other);
  }
  // The other side is closed by now, so that each call ends at once.
  const std::byte mine[8] = {};
  std::byte all[16];
  const Patience patience{"zero_step", "vote", 60'000, true};
  for (int i = 0; i < 2; i++) {
    (void)comm.exchange_bytes(mine, all, patience);
    (void)comm.check();
    (void)comm.broadcast_bytes(all, i, patience);
  }
  const Status end = comm.exchange_bytes(mine, all, patience);
  if (!end.ok()) fuzz::must(comm.failure().code == end.code(), "a comm keeps why it broke");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::SameDescriptors same;
  fuzz::Input input(data, size);
  exchange(input);
  return 0;
}
