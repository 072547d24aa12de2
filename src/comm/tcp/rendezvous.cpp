// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/rendezvous.h"

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"
#include "comm/rendezvous.h"

namespace zero::tcp {
namespace {

/// A rendezvous at the place that `offer` describes.
struct AddressedMeeting final : Meeting {
  AddressedMeeting(const Tree& tree, int32_t root_of, const Offer& offer_of,
                   std::span<const Offer> offers_of, const Bounds& bounds, Deadline until)
      : offer(offer_of), offers(offers_of) {
    rank = tree.place;
    world = tree.world;
    root = called(root_of);
    limit_ms = bounds.limit_ms;
    deadline = until;
    check = bounds.check;
    word = offer.key;
    most_bytes = std::max(kPartBytes, static_cast<size_t>(world) * 16384) + 4096;
    host = read_small_file("/proc/sys/kernel/hostname");
  }

  int32_t called(int32_t place) const override {
    const int32_t rank_there = offers.empty() ? -1 : offers[static_cast<size_t>(place)].rank;
    return rank_there < 0 ? place : rank_there;
  }

  std::string absent(std::string_view ranks, int64_t limit) const override {
    return text(ranks, " did not connect to rank ", root, " within ", limit, " ms");
  }

  std::string unreached(std::span<const std::string> obstacles) const override {
    std::string places;
    for (size_t i = 0; i < obstacles.size(); ++i)
      places += text(i == 0 ? "" : ", ", to_text(offer.addresses[i]), " (", obstacles[i], ")");
    return text("rank ", root, " could not be reached within ", limit_ms, " ms at port ",
                offer.port, " of ", places);
  }

  const Offer& offer;
  const std::span<const Offer> offers;
};

/// The connection of one rank to its neighbours.
class Joining {
 public:
  /// If `offers` is empty, places are ranks.
  Joining(const Tree& tree, std::span<const Offer> offers, const Bounds& bounds)
      : tree_(tree), offers_(offers), bounds_(bounds) {}

  AddressedMeeting at(int32_t place, const Offer& offer) const {
    return {tree_, place, offer, offers_, bounds_, deadline_};
  }

  Result<Partner> visit(int32_t place, const Offer& offer) const {
    std::vector<Place> places;
    for (size_t i = 0; i < std::min<size_t>(offer.count, Offer::kAddresses); ++i)
      places.push_back(place_of(offer.addresses[i], offer.port));
    return zero::visit(at(place, offer), places);
  }

  void add(Partner partner) {
    Peer peer;
    peer.place = partner.said->rank;
    peer.rank = partner.said->called_rank();
    peer.name = partner.said->name();
    peer.link = std::move(partner.link);
    peers_.push_back(std::move(peer));
  }

  /// Connects to the parent. If that fails, informs the children when they connect.
  Status go_to_parent(const Offer& offer, const Root& own) {
    Result<Partner> parent = visit(tree_.parent(), offer);
    if (parent.ok()) return add(std::move(*parent)), Status();
    AddressedMeeting meeting = at(tree_.place, own.offer);
    meeting.deadline = Deadline(kVerdictMs);
    Reception reception(meeting, own.listener.fd, tree_.first_child(), tree_.children());
    (void)reception.gather();
    reception.dismiss(reception.explain(parent.failure()));
    return std::move(parent).status();
  }

  /// Seats the children, after the parent has been reached. Reports a failure to all neighbours.
  Status seat_children(const Root& own) {
    if (tree_.children() == 0) return {};
    const AddressedMeeting meeting = at(tree_.place, own.offer);
    return seat(meeting, own, tree_.children(), [](Reception&) { return Status(); });
  }

  /// Seats the `count` ranks from the first child on. `refer` then redirects the others. Keeps only
  /// the connections to the children.
  template <class Refer>
  Status seat(const AddressedMeeting& meeting, const Root& own, int32_t count, const Refer& refer) {
    Reception reception(meeting, own.listener.fd, tree_.first_child(), count);
    Status met = reception.gather();
    if (met.ok()) met = refer(reception);
    if (!met.ok()) {
      const std::string why = reception.explain(met);
      for (Peer& parent : peers_) parent.link->send(FrameKind::refusal, 0, bytes_of(why));
      reception.dismiss(why);
      return met;
    }
    for (int32_t i = 0; i < tree_.children(); ++i)
      add(std::move(reception.guest(tree_.first_child() + i)));
    return {};
  }

  Neighbours neighbours() && {
    return {at(tree_.place, {}).called(tree_.place), std::move(peers_), tree_.fan_out};
  }

 private:
  const Tree tree_;
  const std::span<const Offer> offers_;
  const Bounds& bounds_;
  // Ranks further down wait longer, so that those above can report why they failed.
  const Deadline deadline_{bounds_.limit_ms + kVerdictMs * std::max(tree_.depth() - 1, 0)};
  std::vector<Peer> peers_;
};

/// Tells the grandchildren and the ranks below them where their parents listen.
Status refer(Reception& reception, const Tree& tree) {
  for (int32_t parent = 1; tree.at(parent).children() > 0; ++parent) {
    const Frame offer = ZERO_TRY(reception.hear(reception.guest(parent), FrameKind::offer));
    const Tree there = tree.at(parent);
    for (int32_t i = 0; i < there.children(); ++i)
      reception.guest(there.first_child() + i).link->send(FrameKind::offer, 0, offer.payload);
  }
  return {};
}

}  // namespace

Result<Root> listen() {
  Root root{ZERO_TRY(listen_anywhere()), {}};
  root.offer = make_offer(ZERO_TRY(own_addresses(Offer::kAddresses)), root.listener.port, {});
  ZERO_TRY(draw_random(root.offer.key));
  return root;
}

Result<Root> listen(const Tree& tree, int32_t rank) {
  Root root = tree.children() > 0 ? ZERO_TRY(listen()) : Root();
  root.offer.rank = rank;
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

Result<Neighbours> join(const Root& own, std::span<const Offer> offers, const Tree& tree,
                        const Bounds& bounds) {
  Joining joining(tree, offers, bounds);
  if (!tree.is_root())
    ZERO_TRY(joining.go_to_parent(offers[static_cast<size_t>(tree.parent())], own));
  ZERO_TRY(joining.seat_children(own));
  return std::move(joining).neighbours();
}

Result<Neighbours> seat_guests(const Root& root, int32_t world, const Bounds& bounds,
                               int32_t fan_out) {
  const Tree tree{0, world, fan_out};
  Joining joining(tree, {}, bounds);
  const AddressedMeeting meeting = joining.at(0, root.offer);
  ZERO_TRY(joining.seat(meeting, root, world - 1,
                        [&](Reception& reception) { return refer(reception, tree); }));
  return std::move(joining).neighbours();
}

Result<Neighbours> visit(const Offer& offer, int32_t rank, int32_t world, const Bounds& bounds,
                         int32_t fan_out) {
  const Tree tree{rank, world, fan_out};
  Joining joining(tree, {}, bounds);
  Partner host = ZERO_TRY(joining.visit(0, offer));
  Result<Root> own = listen(tree, -1);
  if (!own.ok()) {
    host.link->send(FrameKind::refusal, 0, bytes_of(own.failure().text()));
    return own.failure();
  }
  if (tree.children() > 0) host.link->send(FrameKind::offer, 0, as_payload(own->offer));
  if (tree.parent() != 0) {
    const Frame frame = ZERO_TRY(hear_root(joining.at(0, offer), host, FrameKind::offer));
    const std::optional<Offer> next = read<Offer>(frame, FrameKind::offer);
    if (!next) return Status(ZERO_ERR_RENDEZVOUS, "rank 0 sent an invalid reply");
    ZERO_TRY(joining.go_to_parent(*next, *own));
  } else {
    joining.add(std::move(host));
  }
  ZERO_TRY(joining.seat_children(*own));
  return std::move(joining).neighbours();
}

}  // namespace zero::tcp
