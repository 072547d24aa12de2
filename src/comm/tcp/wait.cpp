// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/wait.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace zero::tcp {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kSliceMs = 20;
constexpr int64_t kGraceMs = 1'000;  // for rank 0 to answer a rank whose deadline has passed

}  // namespace

Control::Wait::Wait(Control& control, const Patience& patience)
    : control_(control), patience_(patience), watch_(patience), told_ns_(watch_.now_ns()) {}

std::vector<Control::Wait::Missing> Control::Wait::missing() const {
  std::vector<Missing> ranks;
  const auto add = [&](int32_t rank, const std::string& name, int64_t sign_ns) {
    const int64_t start_ns = watch_.start_ns();
    ranks.push_back(
        {rank, name, patience_.extended_by_progress ? std::max(start_ns, sign_ns) : start_ns});
  };
  if (control_.rank_ == 0) {
    const bool answered = control_.answered_ == control_.sequence_;
    for (const Peer& peer : control_.peers_)
      if (answered ? peer.link->unsent() : !peer.record) add(peer.rank, peer.name, peer.sign_ns);
  } else if (control_.awaited_) {
    add(control_.awaited_->rank, control_.awaited_->name, control_.awaited_->quiet_since_ns);
  } else {
    add(0, control_.peers_[0].name, control_.peers_[0].sign_ns);
  }
  return ranks;
}

void Control::Wait::look_for_left() {
  for (const Peer& peer : control_.peers_)
    if (peer.left && (control_.rank_ != 0 || !peer.record))
      return control_.break_for(ZERO_ERR_DESYNC, peer.rank,
                                text("rank ", peer.rank, " has freed its comm"));
}

std::string Control::Wait::look() {
  const int64_t absent_ns = watch_.look();
  for (Peer& peer : control_.peers_) peer.sign_ns += absent_ns;
  if (!control_.decided()) look_for_left();
  if (control_.aborted()) return {};
  const std::vector<Missing> ranks = missing();
  if (control_.rank_ == 0) tell_guests(ranks);
  be_late(ranks);
  if (ranks.empty() || !watch_.warns()) return {};
  std::vector<std::string> names;
  for (const Missing& one : ranks) names.push_back(one.name);
  return watch_.warning(control_.rank_, list_some(names));
}

/// So that a rank whose deadline comes first can name who is missing.
void Control::Wait::tell_guests(const std::vector<Missing>& ranks) {
  const int64_t now = watch_.now_ns();
  const int64_t interval = std::clamp<int64_t>(patience_.limit_ms / 4, 5, 1'000) * kMillisecond;
  if (ranks.empty() || now - told_ns_ < interval) return;
  told_ns_ = now;
  const Missing& quietest =
      *std::min_element(ranks.begin(), ranks.end(),
                        [](const Missing& a, const Missing& b) { return a.since_ns < b.since_ns; });
  const int64_t words[] = {quietest.rank, (now - quietest.since_ns) / kMillisecond};
  std::vector<std::byte> payload(sizeof words + quietest.name.size());
  memcpy(payload.data(), words, sizeof words);
  memcpy(payload.data() + sizeof words, quietest.name.data(), quietest.name.size());
  for (Peer& peer : control_.peers_)
    if (peer.record) peer.link->send(FrameKind::waiting, control_.sequence_, payload);
}

void Control::Wait::be_late(const std::vector<Missing>& ranks) {
  std::vector<std::string> late;
  int32_t first = -1;
  for (const Missing& one : ranks) {
    if (!watch_.is_late(one.since_ns)) continue;
    if (late.empty()) first = one.rank;
    late.push_back(one.name);
  }
  if (late.empty()) return;
  const std::string sentence = watch_.late(list_some(late));
  if (control_.rank_ == 0) return control_.break_for(ZERO_ERR_TIMEOUT, first, sentence);
  const int64_t now = watch_.now_ns();
  if (asked_ns_ == 0) {
    asked_ns_ = now;
    const Failure cause = control_.make_failure(ZERO_ERR_TIMEOUT, first, sentence);
    control_.peers_[0].link->send(FrameKind::cause, control_.sequence_, pack(cause));
  }
  if (now - asked_ns_ >= std::min(patience_.limit_ms, kGraceMs) * kMillisecond)
    control_.break_for(ZERO_ERR_TIMEOUT, first, sentence);
}

int Control::Wait::slice_ms() const {
  const int64_t left_ms = patience_.limit_ms - (watch_.now_ns() - watch_.start_ns()) / kMillisecond;
  return static_cast<int>(std::clamp<int64_t>(left_ms, 1, kSliceMs));
}

}  // namespace zero::tcp
