// SPDX-License-Identifier: Apache-2.0
// The comm of one rank: every exchange is with itself, so all else runs as on any other comm.
#include <cstring>

#include "base/text.h"
#include "comm/create.h"
#include "comm/private_arena.h"
#include "kernels/kernels.h"

namespace zero {
namespace {

constexpr uint32_t kAnywhere =
    UINT32_MAX;  // arena of a Location whose offset is the address itself

class SoloComm final : public Comm {
 public:
  SoloComm(const CommOptions& options, std::shared_ptr<Device> device)
      : Comm(0, 1, options, std::move(device)) {}

  const char* kind() const override { return "solo"; }

  bool aborted() const override { return cause_.is_set(); }
  Failure failure() const override { return cause_.get(); }
  void abort(const Failure& cause) override { cause_.set(cause); }

  bool direct() const override { return true; }

  Location locate(const void* data, size_t) const override {
    return {kAnywhere, 0, reinterpret_cast<uintptr_t>(data)};
  }

  Result<std::byte*> resolve(int32_t rank, const Location& location, size_t bytes) const override {
    if (rank != 0 || location.arena != kAnywhere || bytes > UINT64_MAX - location.offset)
      return Status(ZERO_ERR_INTERNAL,
                    text("solo: rank ", rank, " has no ", bytes, " bytes at offset ",
                         location.offset, " of arena ", location.arena));
    return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(location.offset));
  }

  std::shared_ptr<Arena> arena(const Location& location) const override {
    if (location.arena != kAnywhere) return nullptr;
    const void* const data = reinterpret_cast<const void*>(static_cast<uintptr_t>(location.offset));
    return find_arena(data, 1, this, nullptr);
  }

  Status all_gather(Call&, const void* send, void* recv, size_t bytes) override {
    return copy(send, recv, bytes);
  }

  Status reduce_scatter(Call&, SumTypes types, const void* send, void* recv, size_t count,
                        void*) override {
    if (aborted()) return failure_status();
    kernels_.reduction(types.sum, types.from, Norm::none)(recv, &send, 1, count);
    return {};
  }

 protected:
  Status exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                        const Patience&) override {
    return copy(mine.data(), all.data(), mine.size());
  }

  Status broadcast_bytes(std::span<std::byte>, int32_t, const Patience&) override {
    return copy(nullptr, nullptr, 0);
  }

  Result<std::shared_ptr<Arena>> allocate(Call&, size_t bytes, int32_t kind, Side) override {
    return std::shared_ptr<Arena>(
        ZERO_TRY(PrivateArena::allocate(shared_from_this(), ++arenas_, bytes, kind)));
  }

  Result<std::shared_ptr<Comm>> make_child(Call&, std::span<const int32_t> members,
                                           int32_t) override {
    if (members.empty()) return std::shared_ptr<Comm>();
    return create_solo(options(), device());
  }

 private:
  Status copy(const void* from, void* to, size_t bytes) const {
    if (aborted()) return failure_status();
    if (bytes != 0 && from != to) memmove(to, from, bytes);
    return {};
  }

  const KernelTable& kernels_ = kernel_table(best_isa());
  FirstCause cause_;
  uint32_t arenas_ = 0;
};

}  // namespace

Result<std::shared_ptr<Comm>> create_solo(const CommOptions& options,
                                          std::shared_ptr<Device> device) {
  return std::shared_ptr<Comm>(std::make_shared<SoloComm>(options, std::move(device)));
}

}  // namespace zero
