// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/rendezvous.h"

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"
#include "comm/rendezvous.h"

namespace zero::tcp {
namespace {

struct AddressedMeeting final : Meeting {
  AddressedMeeting(const Offer& of, int32_t rank_of, int32_t world_of, const Bounds& bounds)
      : offer(of) {
    rank = rank_of;
    world = world_of;
    limit_ms = bounds.limit_ms;
    deadline = Deadline(limit_ms);
    check = bounds.check;
    word = of.key;
    most_bytes = std::max(kPartBytes, static_cast<size_t>(world) * 16384) + 4096;
    host = read_small_file("/proc/sys/kernel/hostname");
  }

  std::string absent(std::string_view ranks, int64_t limit) const override {
    return text(ranks, " did not connect to rank 0 within ", limit, " ms");
  }

  std::string unreached(std::span<const std::string> obstacles) const override {
    std::string places;
    for (size_t i = 0; i < obstacles.size(); ++i)
      places += text(i == 0 ? "" : ", ", to_text(offer.addresses[i]), " (", obstacles[i], ")");
    return text("rank 0 was not reached within ", limit_ms, " ms at port ", offer.port, " of ",
                places);
  }

  const Offer& offer;
};

Peer peer_of(int32_t rank, Partner partner) {
  Peer peer;
  peer.rank = rank;
  peer.name = partner.said->name();
  peer.link = std::move(partner.link);
  return peer;
}

}  // namespace

Result<Root> listen() {
  Root root{ZERO_TRY(listen_anywhere()), {}};
  root.offer = make_offer(ZERO_TRY(own_addresses(Offer::kAddresses)), root.listener.port, {});
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
  return Root{ZERO_TRY(listen_at(std::span(offer.addresses).first(offer.count), offer.port)),
              offer};
}

Result<std::vector<Peer>> seat_guests(const Root& root, int32_t world, const Bounds& bounds) {
  const AddressedMeeting meeting(root.offer, 0, world, bounds);
  Reception reception(meeting, root.listener.fd);
  if (Status met = reception.gather(); !met.ok()) {
    reception.dismiss(reception.explain(met));
    return met;
  }
  std::vector<Peer> peers;
  for (int32_t r = 1; r < world; ++r) peers.push_back(peer_of(r, std::move(reception.guest(r))));
  return peers;
}

Result<std::vector<Peer>> visit(const Offer& offer, int32_t rank, int32_t world,
                                const Bounds& bounds) {
  const AddressedMeeting meeting(offer, rank, world, bounds);
  std::vector<Place> places;
  for (size_t i = 0; i < std::min<size_t>(offer.count, Offer::kAddresses); ++i)
    places.push_back(place_of(offer.addresses[i], offer.port));
  std::vector<Peer> peers;
  peers.push_back(peer_of(0, ZERO_TRY(zero::visit(meeting, places))));
  return peers;
}

}  // namespace zero::tcp
