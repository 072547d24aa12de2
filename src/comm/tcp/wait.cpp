// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/wait.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "comm/tcp/cause.h"

namespace zero::tcp {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kWarnNs = 10'000 * kMillisecond;
constexpr int64_t kAbsenceNs = 1'000 * kMillisecond;
constexpr int64_t kSliceMs = 20;
constexpr int64_t kGraceMs = 1'000;  // for rank 0 to answer a rank whose deadline has passed
constexpr size_t kNamed = 8;         // ranks in one sentence

}  // namespace

Star::Wait::Wait(Star& star, const Patience& patience) : star_(star), patience_(patience) {
  start_ns_ = last_ns_ = told_ns_ = now_ns();
}

/// When this process itself was stopped (a job put to sleep as a whole), that time is held against
/// nobody.
void Star::Wait::excuse_own_absence(int64_t now) {
  const int64_t absent = now - last_ns_;
  last_ns_ = now;
  if (absent < kAbsenceNs) return;
  start_ns_ += absent;
  for (Peer& peer : star_.peers_) peer.sign_ns += absent;
}

std::vector<Star::Wait::Missing> Star::Wait::missing() const {
  std::vector<Missing> ranks;
  const auto add = [&](int32_t rank, const std::string& name, int64_t sign_ns) {
    const int64_t since = patience_.extended_by_progress ? std::max(start_ns_, sign_ns) : start_ns_;
    ranks.push_back({rank, name, since});
  };
  if (star_.rank_ == 0) {
    const bool answered = star_.answered_ == star_.sequence_;
    for (const Peer& peer : star_.peers_)
      if (answered ? peer.link->unsent() : !peer.record) add(peer.rank, peer.name, peer.sign_ns);
  } else if (star_.awaited_) {
    add(star_.awaited_->rank, star_.awaited_->name, star_.awaited_->quiet_since_ns);
  } else {
    add(0, star_.peers_[0].name, star_.peers_[0].sign_ns);
  }
  return ranks;
}

void Star::Wait::look_for_left() {
  for (const Peer& peer : star_.peers_)
    if (peer.left && (star_.rank_ != 0 || !peer.record))
      return star_.break_for(ZERO_ERR_DESYNC, peer.rank,
                             text("rank ", peer.rank, " has freed its comm"));
}

std::string Star::Wait::look() {
  const int64_t now = now_ns();
  excuse_own_absence(now);
  if (!star_.decided()) look_for_left();
  if (star_.aborted()) return {};
  const std::vector<Missing> ranks = missing();
  if (star_.rank_ == 0) tell_guests(now, ranks);
  be_late(now, ranks);
  return warning(now, ranks);
}

/// So that a rank whose deadline comes first can name who is missing.
void Star::Wait::tell_guests(int64_t now, const std::vector<Missing>& ranks) {
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
  for (Peer& peer : star_.peers_)
    if (peer.record) peer.link->send(FrameKind::waiting, star_.sequence_, payload);
}

void Star::Wait::be_late(int64_t now, const std::vector<Missing>& ranks) {
  std::vector<const Missing*> late;
  for (const Missing& one : ranks)
    if (now - one.since_ns >= patience_.limit_ms * kMillisecond) late.push_back(&one);
  if (late.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min(late.size(), kNamed); ++i)
    names += text(i == 0 ? "" : ", ", late[i]->name);
  if (late.size() > kNamed) names += text(" and ", late.size() - kNamed, " more");
  const std::string sentence = text(
      names, patience_.extended_by_progress ? " made no progress for " : " did not come within ",
      patience_.limit_ms, " ms");
  if (star_.rank_ == 0) return star_.break_for(ZERO_ERR_TIMEOUT, late[0]->rank, sentence);
  if (asked_ns_ == 0) {
    asked_ns_ = now;
    const Failure cause = star_.make_failure(ZERO_ERR_TIMEOUT, late[0]->rank, sentence);
    star_.peers_[0].link->send(FrameKind::cause, star_.sequence_, pack(cause));
  }
  if (now - asked_ns_ >= std::min(patience_.limit_ms, kGraceMs) * kMillisecond)
    star_.break_for(ZERO_ERR_TIMEOUT, late[0]->rank, sentence);
}

std::string Star::Wait::warning(int64_t now, const std::vector<Missing>& ranks) {
  if (warned_ || ranks.empty() || now - start_ns_ < kWarnNs) return {};
  warned_ = true;
  return text(star_.where_, ": rank ", star_.rank_, " has been waiting for 10 s for ",
              ranks[0].name, ranks.size() > 1 ? text(" and ", ranks.size() - 1, " more") : "");
}

int Star::Wait::slice_ms() const {
  const int64_t left_ms = patience_.limit_ms - (last_ns_ - start_ns_) / kMillisecond;
  return static_cast<int>(std::clamp<int64_t>(left_ms, 1, kSliceMs));
}

}  // namespace zero::tcp
