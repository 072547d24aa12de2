// SPDX-License-Identifier: Apache-2.0
#include "support/hosts_ranks.h"

#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>

#include "base/text.h"
#include "comm/create.h"
#include "comm/hosts/form.h"
#include "comm/link.h"

namespace zero::test {

/// The connections of one rank to all others.
class Post {
 public:
  explicit Post(size_t world) : links(world), came(world) {}

  /// Receives what has arrived.
  void pump() {
    for (size_t r = 0; r < links.size(); ++r) {
      if (links[r] == nullptr) continue;
      links[r]->flush();
      while (std::optional<Frame> frame = links[r]->take())
        came[r][frame->sequence].push_back(std::move(frame->payload));
    }
  }

  std::mutex mutex;
  std::vector<std::unique_ptr<Link>> links;
  std::vector<std::map<uint64_t, std::deque<std::vector<std::byte>>>> came;  // by rank and tag
  uint64_t last_tag = 0;
};

namespace {

class PostMessages final : public hosts::Messages {
 public:
  PostMessages(std::shared_ptr<Post> post, uint64_t tag, std::vector<int32_t> ranks)
      : post_(std::move(post)), tag_(tag), ranks_(std::move(ranks)) {}

  const char* kind() const override { return "hosts"; }

  Result<Request> send(int32_t to, std::span<const std::byte> data) override {
    const std::lock_guard lock(post_->mutex);
    post_->links[place(to)]->send(FrameKind::record, tag_, data);
    return Request{0};
  }
  Result<Request> receive(int32_t from, std::span<std::byte> data) override {
    const std::lock_guard lock(post_->mutex);
    waiting_.push_back({++requests_, place(from), data});
    return requests_;
  }
  /// A message from a rank completes the first request that waits for it.
  Result<bool> has_ended(Request& request) override {
    const std::lock_guard lock(post_->mutex);
    post_->pump();
    for (auto one = waiting_.begin(); one != waiting_.end();) {
      auto& all = post_->came[one->from][tag_];
      if (all.empty()) {
        ++one;
        continue;
      }
      if (all.front().size() != one->data.size())
        return Status(ZERO_ERR_COMM,
                      text(all.front().size(), " bytes came in place of ", one->data.size()));
      std::ranges::copy(all.front(), one->data.begin());
      all.pop_front();
      one = waiting_.erase(one);
    }
    if (request == 0) return true;
    return std::ranges::none_of(waiting_,
                                [&](const Waiting& one) { return one.request == request; });
  }
  void progress() override {
    const std::lock_guard lock(post_->mutex);
    post_->pump();
  }
  Result<std::unique_ptr<Messages>> of_some(Call& call,
                                            std::span<const int32_t> members) const override {
    return make(call, post_, ranks_, members);
  }

  static Result<std::unique_ptr<Messages>> make(Call& call, const std::shared_ptr<Post>& post,
                                                std::span<const int32_t> ranks,
                                                std::span<const int32_t> members) {
    struct Most {
      uint64_t value;
      void add(const Most& other) { value = std::max(value, other.value); }
    };
    post->last_tag = ZERO_TRY(call.combine("tag", Most{post->last_tag})).value + 1;
    std::vector<int32_t> some;
    for (const int32_t member : members) some.push_back(ranks[static_cast<size_t>(member)]);
    return std::unique_ptr<Messages>(
        std::make_unique<PostMessages>(post, post->last_tag, std::move(some)));
  }

 private:
  struct Waiting {
    Request request;
    size_t from;
    std::span<std::byte> data;
  };
  size_t place(int32_t rank) const {
    return static_cast<size_t>(ranks_[static_cast<size_t>(rank)]);
  }

  const std::shared_ptr<Post> post_;
  const uint64_t tag_;
  const std::vector<int32_t> ranks_;
  Request requests_ = 0;
  std::deque<Waiting> waiting_;
};

}  // namespace

std::vector<int> hosts_of(int32_t world, int32_t hosts) {
  if (hosts == 0) hosts = world > 2 && world % 2 == 0 ? 2 : world;
  std::vector<int> all;
  for (int32_t rank = 0; rank < world; ++rank) all.push_back(rank % hosts);
  return all;
}

HostsRanks::HostsRanks(int32_t world, int32_t hosts)
    : world_(world), hosts_(hosts_of(world, hosts)) {
  const auto ranks = static_cast<size_t>(world);
  for (size_t r = 0; r < ranks; ++r) posts_.push_back(std::make_shared<Post>(ranks));
  for (size_t a = 0; a < ranks; ++a) {
    for (size_t b = 0; b < a; ++b) {
      if (hosts > 0 && a / static_cast<size_t>(hosts) != b / static_cast<size_t>(hosts)) continue;
      int ends[2];
      constexpr int kKind = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
      if (socketpair(AF_UNIX, kKind, 0, ends) != 0) {
        std::perror("socketpair");
        std::abort();
      }
      posts_[a]->links[b] = std::make_unique<Link>(Fd(ends[0]), 16u << 20);
      posts_[b]->links[a] = std::make_unique<Link>(Fd(ends[1]), 16u << 20);
      for (const int end : ends) kept_.emplace_back(end);
    }
  }
}

HostsRanks::~HostsRanks() = default;

Result<std::shared_ptr<Comm>> HostsRanks::join(int32_t rank, const std::string& name,
                                               const CommOptions& options) const {
  const std::shared_ptr<Comm> first = ZERO_TRY(create_local(name, rank, world_, options));
  std::vector<int32_t> all(static_cast<size_t>(world_));
  std::iota(all.begin(), all.end(), 0);
  Call call = ZERO_TRY(first->begin(Operation::create));
  Result<std::shared_ptr<Comm>> made = hosts::form(
      call, all, rank, options, text("host ", hosts_[static_cast<size_t>(rank)]),
      [&] { return PostMessages::make(call, posts_[static_cast<size_t>(rank)], all, all); });
  return call.vote("ready", std::move(made));
}

}  // namespace zero::test
