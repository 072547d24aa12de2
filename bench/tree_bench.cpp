// SPDX-License-Identifier: Apache-2.0
// What an exchange over connections costs with many ranks. They are threads of this process, over
// its loopback, in the tree of fan-out 16 and in a star. CPU time is that of all ranks, divided by
// ranks and exchanges.
#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/os.h"
#include "comm/exchange_record.h"
#include "comm/tcp/rendezvous.h"
#include "support/system_calls.h"

namespace zero::tcp {
namespace {

constexpr int kExchanges = 100;
const Patience kPatience{"tree_bench", "exchange", 600'000, false};

template <class Value>
Value must(Result<Value> result) {
  if (result.ok()) return std::move(*result);
  fprintf(stderr, "%s\n", result.failure().text().c_str());
  exit(1);
}

int64_t processor_ns() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

thread_local int64_t sent_bytes = 0;

ssize_t count_bytes(int fd, const msghdr* message, int flags) {
  const ssize_t sent = ::sendmsg(fd, message, flags);
  sent_bytes += std::max<ssize_t>(sent, 0);
  return sent;
}

void exchange(TcpComm& seat, int times) {
  std::vector<Sum> sums(sizeof(ExchangeRecord) / sizeof(Sum));
  for (int i = 0; i < times; ++i) {
    const Status status = seat.combine_bytes(std::as_writable_bytes(std::span(sums)),
                                             combining<Sum>.combine, kPatience);
    if (!status.ok()) (void)must(Result<int>(status));
  }
}

void measure(int32_t world, int32_t fan_out) {
  std::vector<Root> roots(static_cast<size_t>(world));
  std::vector<Offer> offers;
  for (int32_t place = 0; place < world; ++place) {
    Root& root = roots[static_cast<size_t>(place)];
    root = must(listen({place, world, fan_out}, place));
    offers.push_back(root.offer);
  }
  std::barrier<> together(world);
  std::vector<std::thread> ranks;
  const int64_t begin_ns = now_ns();
  for (int32_t place = 0; place < world; ++place)
    ranks.emplace_back([&, place] {
      const Bounds bounds{600'000, [] { return Status(); }};
      TcpComm seat(
          place, world, {}, nullptr,
          must(join(roots[static_cast<size_t>(place)], offers, {place, world, fan_out}, bounds)));
      exchange(seat, 5);
      together.arrive_and_wait();
      const int64_t met_ns = now_ns(), busy_ns = processor_ns();
      sent_bytes = 0;
      exchange(seat, kExchanges);
      together.arrive_and_wait();
      const int64_t end_ns = now_ns(), work_ns = processor_ns() - busy_ns;
      if (place == 0)
        printf(
            "%5d ranks, fan-out %4d: meet %8.3f s, exchange %8.3f ms, processor %6.1f us a rank, "
            "rank 0 sends %7.1f KiB\n",
            world, fan_out, double(met_ns - begin_ns) * 1e-9,
            double(end_ns - met_ns) / kExchanges * 1e-6,
            double(work_ns) / kExchanges / world * 1e-3, double(sent_bytes) / kExchanges / 1024);
      together.arrive_and_wait();
    });
  for (std::thread& one : ranks) one.join();
}

}  // namespace
}  // namespace zero::tcp

int main() {
  using namespace zero::tcp;
  zero::test::replace_call(&zero::SystemCalls::sendmsg, count_bytes);
  for (const int32_t world : {17, 64, 273})
    for (const int32_t fan_out : {Tree::kFanOut, world - 1}) measure(world, fan_out);
}
