// SPDX-License-Identifier: Apache-2.0
// The comm over an engine's own collectives. Ranks share neither memory nor a decision word. If a
// function fails here, its result on other ranks is unknown, so only this rank's comm breaks.
#include <cxxabi.h>

#include <algorithm>
#include <cstring>

#include "base/float_environment.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/rank_sum.h"

namespace zero {
namespace {

constexpr size_t kBroadcastBytes = 256u << 10;  // of one rank, in one exchange

class UserComm final : public Comm {
 public:
  UserComm(const UserFunctions& functions, void* ctx, int32_t rank, int32_t world,
           const CommOptions& options)
      : Comm(rank, world, options), functions_(functions), ctx_(ctx), sum_(world) {}

  ~UserComm() override { release(ctx_); }

  const char* kind() const override { return "user"; }

  bool direct() const override { return false; }

  Status all_gather(Call& call, std::span<const Gathered> all) override {
    for (const auto& [send, recv, bytes, owners] : all) {
      if (bytes == 0) continue;
      count_all(traffic().data, bytes);
      ZERO_TRY(run("all_gather", data_plane(call, "all_gather"),
                   [&, from = send, to = recv, each = bytes] {
                     return functions_.all_gather(ctx_, from, to, each, nullptr);
                   }));
    }
    return {};
  }

  bool sums_itself() const override { return functions_.all_to_all != nullptr; }

  Status reduce_scatter(Call& call, std::span<const Scattered> all, void* scratch) override {
    for (const Scattered& one : all)
      if (one.count > 0) ZERO_TRY(reduce_one(data_plane(call, "reduce_scatter"), one, scratch));
    return {};
  }

 protected:
  Status exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                        const Patience& patience) override {
    count_all(traffic().control, mine.size());
    return run("exchange", patience,
               [&] { return functions_.exchange(ctx_, mine.data(), all.data(), mine.size()); });
  }

  Status broadcast_bytes(std::span<std::byte> data, int32_t root,
                         const Patience& patience) override {
    const size_t most = std::min(data.size(), kBroadcastBytes);
    const std::unique_ptr<std::byte[]> all(new std::byte[most * static_cast<size_t>(world())]);
    for (size_t done = 0; done < data.size(); done += most) {
      const std::span<std::byte> part = data.subspan(done, std::min(most, data.size() - done));
      ZERO_TRY(
          exchange_bytes(part, {all.get(), part.size() * static_cast<size_t>(world())}, patience));
      memcpy(part.data(), all.get() + part.size() * static_cast<size_t>(root), part.size());
    }
    return {};
  }

  Result<std::shared_ptr<Comm>> make_child(Call& call, std::span<const int32_t> members,
                                           int32_t place, int32_t color) override {
    // A rank without the function must not leave the other ranks inside it.
    const bool able = functions_.split != nullptr;
    ZERO_TRY(call.vote(
        "able",
        able ? Status() : Status(ZERO_ERR_UNSUPPORTED, "this user comm has no split function")));
    const auto child_world = static_cast<int32_t>(members.size());
    ChildCtx child{*this};
    const std::string problem =
        stopped([&] { return functions_.split(ctx_, color, place, child_world, &child.ctx); });
    if (!problem.empty()) child.ctx = nullptr;
    ZERO_TRY(tell_split(call, problem));
    if (members.empty()) return std::shared_ptr<Comm>();
    std::shared_ptr<Comm> made =
        std::make_shared<UserComm>(functions_, child.ctx, place, child_world, options());
    child.ctx = nullptr;
    return made;
  }

 private:
  Status reduce_one(const Patience& patience, const Scattered& one, void* scratch) {
    const auto& [types, send, recv, count, owners] = one;
    count_all(traffic().data, count * size_of(sums_itself() ? types.from : types.sum));
    if (!sums_itself())
      return run("reduce_scatter", patience, [&] {
        return functions_.reduce_scatter(ctx_, one.send, one.recv, one.count,
                                         static_cast<int32_t>(one.types.sum), nullptr);
      });
    const size_t bytes = count * size_of(types.from);
    ZERO_TRY(run("all_to_all", patience,
                 [&] { return functions_.all_to_all(ctx_, one.send, scratch, bytes, nullptr); }));
    sum_(types, scratch, recv, count);
    return {};
  }

  /// Counts the bytes that every rank sends to every other rank, even if the engine sends fewer.
  void count_all(Traffic::Flow& flow, size_t bytes) const {
    flow.sent.add(bytes, world() - 1);
    flow.received.add(bytes, world() - 1);
  }

  /// The context that the engine created for a child, until a comm owns it.
  struct ChildCtx {
    const UserComm& of;
    void* ctx = nullptr;
    ~ChildCtx() {
      if (ctx != nullptr) of.release(ctx);
    }
  };

  /// Calls an engine's function. Returns what went wrong, or an empty string, because an exception
  /// of the engine must not unwind libzero.
  template <class Function>
  static std::string stopped(Function&& function) {
    const FloatEnvironment environment;  // restores what the engine changes
    try {
      const Code code = function();
      return code == ZERO_OK ? std::string() : text("returned ", code);
#ifdef __GLIBCXX__
    } catch (const abi::__forced_unwind&) {
      // The thread is being cancelled, which must continue. libc++ enters no handler in this case.
      throw;
#endif
    } catch (...) {
      return "threw an exception";
    }
  }

  template <class Function>
  Status run(const char* name, const Patience& patience, Function&& function) {
    if (aborted()) return failure_status();
    const std::string problem = stopped(function);
    if (!problem.empty())
      return broken(patience, text("the engine's ", name, " ", problem,
                                   "; the outcome on other ranks is unknown"));
    return aborted() ? failure_status() : Status();
  }

  Status broken(const Patience& patience, std::string_view sentence) {
    cause_.set(
        steps.fail(ZERO_ERR_COMM, -1, patience.where(), text(patience.where(), ": ", sentence)));
    return failure_status();
  }

  /// Reports to all ranks if the split failed on some rank. Exchanges still work, so all ranks'
  /// comms break at once with the same message.
  Status tell_split(Call& call, const std::string& problem) {
    const std::vector<std::string> problems = ZERO_TRY(call.gather("split", problem));
    for (size_t r = 0; r < problems.size(); ++r)
      if (!problems[r].empty())
        return broken(data_plane(call, "split"),
                      text("the engine's split ", problems[r], " on rank ", r));
    return {};
  }

  static Patience data_plane(const Call& call, const char* phase) {
    return {operation_name(call.operation()), phase, call.comm().options().timeout_ms, true};
  }

  void release(void* ctx) const {
    if (functions_.free == nullptr) return;
    (void)stopped([&] {
      functions_.free(ctx);
      return Code{ZERO_OK};
    });
  }

  const UserFunctions functions_;
  void* const ctx_;
  RankSum sum_;
};

}  // namespace

Status check_seat(int32_t rank, int32_t world) {
  if (world >= 1 && rank >= 0 && rank < world) return {};
  return Status(ZERO_ERR_ARGUMENT, text("rank ", rank, " does not exist in a world of ", world));
}

Result<std::shared_ptr<Comm>> create_user(const UserFunctions& functions, void* ctx, int32_t rank,
                                          int32_t world, const CommOptions& options) {
  ZERO_TRY(check_seat(rank, world));
  const char* missing = functions.exchange == nullptr     ? "exchange"
                        : functions.all_gather == nullptr ? "all_gather"
                                                          : nullptr;
  if (functions.all_to_all == nullptr && functions.reduce_scatter == nullptr)
    missing = "all_to_all or reduce_scatter";
  if (missing != nullptr)
    return Status(ZERO_ERR_ARGUMENT, text("a user comm needs the function ", missing));
  return std::shared_ptr<Comm>(std::make_shared<UserComm>(functions, ctx, rank, world, options));
}

}  // namespace zero
