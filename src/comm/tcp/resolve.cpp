// SPDX-License-Identifier: Apache-2.0
// The system's resolver cannot be told when to give up: a thread asks it, and is left behind where
// the answer comes too late.
#include "comm/tcp/resolve.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "base/text.h"
#include "base/worker_thread.h"

namespace zero::tcp {
namespace {

constexpr int64_t kAgainMs = 200;

struct Question {
  explicit Question(std::string name) : host(std::move(name)) {}

  const std::string host;
  std::mutex mutex;
  std::condition_variable answered;
  std::optional<int> error;  // once there is an answer: 0, or one of the resolver's
  std::vector<Address> addresses;
};

int ask(const std::string& host, std::vector<Address>& addresses) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  // Wait: as long as the resolver likes, on a thread that is left behind.
  if (const int error = os().getaddrinfo(host.c_str(), nullptr, &hints, &found)) return error;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const std::optional<Address> address = to_address(one->ai_addr);
    if (address) addresses.push_back(*address);
  }
  os().freeaddrinfo(found);
  return addresses.empty() ? EAI_NONAME : 0;
}

void answer(Question& question) {
  std::vector<Address> addresses;
  int error = EAI_MEMORY;
  try {
    error = ask(question.host, addresses);
  } catch (...) {  // memory ran out
  }
  const std::lock_guard lock(question.mutex);
  question.addresses = std::move(addresses);
  question.error = error;
  question.answered.notify_all();
}

/// One answer of the resolver; nothing if none came within `limit_ms`.
Result<std::shared_ptr<Question>> ask_in_time(const std::string& host, int64_t limit_ms) {
  auto question = std::make_shared<Question>(host);
  ZERO_TRY(start_detached([question] { answer(*question); }));
  std::unique_lock lock(question->mutex);
  // Wait: limit_ms.
  const bool came = question->answered.wait_for(lock, std::chrono::milliseconds(limit_ms),
                                                [&] { return question->error.has_value(); });
  return came ? question : nullptr;
}

}  // namespace

Result<std::vector<Address>> resolve(const std::string& host, int64_t limit_ms) {
  if (const std::optional<Address> address = to_address(host)) return std::vector{*address};
  const int64_t deadline_ms = now_ms() + limit_ms;
  const auto left_ms = [&] { return std::max<int64_t>(deadline_ms - now_ms(), 0); };
  for (;;) {
    const std::shared_ptr<Question> question = ZERO_TRY(ask_in_time(host, left_ms()));
    const auto failed = [&](std::string_view why) {
      return Status(ZERO_ERR_RENDEZVOUS, text("no address of host '", host, "' was found within ",
                                              limit_ms, " ms: ", why));
    };
    if (question == nullptr) return failed("the resolver did not answer");
    if (*question->error == 0) return std::move(question->addresses);
    if (left_ms() == 0) return failed(gai_strerror(*question->error));
    // Wait: a slice of limit_ms.
    os().poll(nullptr, 0, static_cast<int>(std::min(kAgainMs, left_ms())));
  }
}

}  // namespace zero::tcp
