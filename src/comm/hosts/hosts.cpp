// SPDX-License-Identifier: Apache-2.0
#include "comm/hosts/hosts.h"

#include <algorithm>
#include <cstring>

#include "base/keep.h"
#include "base/text.h"
#include "comm/hosts/form.h"
#include "comm/hosts/room.h"

namespace zero::hosts {

/// A leader's connections. While the leader waits for other hosts, it monitors its own host.
class HostsComm::Links final : public tcp::TcpComm {
 public:
  Links(HostsComm& of, tcp::Neighbours leaders)
      : TcpComm(of.seat_.host, of.layout_.hosts(), of.options(), nullptr, std::move(leaders)),
        of_(of) {}
  Traffic& traffic() override { return of_.traffic(); }
  const StepsSoFar& steps_so_far() const override { return of_.steps; }
  void heed_interrupt(std::string_view where) override {
    of_.look_from_links();
    of_.heed_interrupt(where);
  }

 private:
  HostsComm& of_;
};

HostsComm::HostsComm(int32_t rank, const CommOptions& options, Layout layout,
                     std::shared_ptr<local::LocalComm> host, tcp::Neighbours leaders,
                     std::string words, std::unique_ptr<Messages> messages)
    : Comm(rank, static_cast<int32_t>(layout.ranks.size()), options),
      layout_(std::move(layout)),
      seat_(layout_.seat(rank)),
      host_(std::move(host)),
      links_(seat_.place == 0 ? std::make_shared<Links>(*this, std::move(leaders)) : nullptr),
      words_(std::move(words)),
      messages_(std::move(messages)) {
  const std::span<const int32_t> names = layout_.on(seat_.host);
  host_->be_part({.ranks = {names.begin(), names.end()},
                  .world = world(),
                  .steps = &steps,
                  .look = [this](std::span<const Missing> missing) { look_from_host(missing); }});
}

HostsComm::~HostsComm() {
  tell();
  host_->be_part({});
  for (Room& room : rooms_)
    if (!room.messages.empty()) keep_for_ever(std::move(room));
}

// ---- Failures.

/// Passes failures of the links on to the host, and the reverse. Also informs the carrier of
/// messages, which may shut down at the program's end before the comm is freed.
void HostsComm::tell() const {
  if (links_ != nullptr && links_->aborted() && !host_->aborted()) host_->abort(links_->failure());
  if (!host_->aborted()) return;
  if (links_ != nullptr) links_->abort(host_->failure());
  messages_->give_up();
}

/// A leader that finds the comm broken stops, so it informs the other hosts first.
bool HostsComm::aborted() const {
  if (!host_->aborted()) return false;
  tell();
  return true;
}

void HostsComm::abort(const Failure& cause) {
  host_->abort(cause);
  tell();
}

Failure HostsComm::failure() const {
  Failure failure = host_->failure();
  if ((undecided_ || host_->may_have_ended()) && steps.deciding) failure.params_consistent = false;
  return failure;
}

Status HostsComm::check() {
  (void)host_->check_alive();
  if (links_ != nullptr) (void)links_->check();
  tell();
  return Comm::check();
}

void HostsComm::heed_interrupt(std::string_view where) {
  messages_->progress();
  Comm::heed_interrupt(where);
}

/// Called while this rank waits for ranks of its host.
void HostsComm::look_from_host(std::span<const Missing> missing) {
  messages_->progress();
  if (links_ == nullptr) return;
  if (!missing.empty()) {
    const Missing& one = *std::ranges::min_element(missing, {}, &Missing::since_ns);
    links_->tell_waiting(layout_.rank(seat_.host, one.rank), host_->name_of(one.rank),
                         one.since_ns);
  }
  (void)links_->check();
  tell();
}

/// Called while a leader waits for other hosts. The ranks of its host wait for it meanwhile.
void HostsComm::look_from_links() {
  note_progress();
  (void)host_->check_alive();
  tell();
}

// ---- The control plane. A leader that waits for other hosts reports progress itself.

/// Returns the status of an operation on this host or between hosts, after passing a failure on.
Status HostsComm::told(Status done) {
  if (done.ok()) return done;
  tell();
  return failure_status();
}

/// Runs `between` on the leader, and broadcasts the outcome on this host.
template <class Between>
Status HostsComm::decide(std::span<std::byte> outcome, const Patience& patience,
                         const Between& between) {
  undecided_ = true;
  if (links_ != nullptr) ZERO_TRY(told(between()));
  ZERO_TRY(told(host_->broadcast_bytes(outcome, 0, later(patience))));
  undecided_ = false;
  return {};
}

Status HostsComm::combine_bytes(std::span<std::byte> data, const Combine& combine,
                                const Patience& patience) {
  return told(host_->combine_through(data, combine, patience, [&](std::span<std::byte> all) {
    return told(links_->combine_bytes(all, combine, patience));
  }));
}

Status HostsComm::exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                                 const Patience& patience) {
  const size_t bytes = mine.size(), places = static_cast<size_t>(layout_.places);
  std::vector<std::byte> on_this(places * bytes), of_place(all.size() / places);
  ZERO_TRY(told(host_->exchange_bytes(mine, on_this, patience)));
  return decide(all, patience, [&]() -> Status {
    for (size_t place = 0; place < places; ++place) {
      const auto row = std::span(on_this).subspan(place * bytes, bytes);
      ZERO_TRY(links_->exchange_bytes(row, of_place, patience));
      for (int32_t host = 0; host < layout_.hosts() && bytes > 0; ++host)
        memcpy(all.data() +
                   bytes * static_cast<size_t>(layout_.rank(host, static_cast<int32_t>(place))),
               of_place.data() + bytes * static_cast<size_t>(host), bytes);
    }
    return {};
  });
}

Status HostsComm::broadcast_bytes(std::span<std::byte> data, int32_t root,
                                  const Patience& patience) {
  const auto [host, place] = layout_.seat(root);
  const bool here = host == seat_.host;
  if (here) ZERO_TRY(told(host_->broadcast_bytes(data, place, patience)));
  return decide(here ? std::span<std::byte>() : data, patience,
                [&, from = host] { return links_->broadcast_bytes(data, from, patience); });
}

void HostsComm::note_progress() {
  host_->note_progress();
  if (links_ != nullptr) links_->note_progress();
}

// ---- Memory, and children.

Result<std::shared_ptr<Arena>> HostsComm::allocate(Call& call, uint32_t number, size_t bytes,
                                                   int32_t kind, Side side) {
  Call inner = ZERO_TRY(host_->begin(call.operation()));
  return std::shared_ptr<Arena>(std::make_shared<HostArena>(
      shared_from_this(), number,
      std::static_pointer_cast<local::LocalArena>(ZERO_TRY(inner.allocate(bytes, kind, side)))));
}

Result<std::shared_ptr<Comm>> HostsComm::make_child(Call& call, std::span<const int32_t> members,
                                                    int32_t place, int32_t) {
  Result<std::unique_ptr<Messages>> messages = messages_->of_some(call, members);
  ZERO_TRY(call.vote("messages", messages.failure()));
  return form(call, members, place, options(), words_, [&] { return std::move(messages); });
}

}  // namespace zero::hosts
