// SPDX-License-Identifier: Apache-2.0
// The comm of a single rank. Every exchange is with itself, so all other code runs as on any comm.
#include <cstring>

#include "base/text.h"
#include "comm/create.h"

namespace zero {
namespace {

constexpr uint32_t kAnywhere =
    UINT32_MAX;  // arena of a Location whose offset is the address itself

class SoloComm final : public Comm {
 public:
  SoloComm(const CommOptions& options, std::shared_ptr<Device> device)
      : Comm(0, 1, options, std::move(device)) {}

  const char* kind() const override { return "solo"; }

  bool direct() const override { return true; }

  Location locate(const void* data, size_t) const override {
    return {kAnywhere, 0, reinterpret_cast<uintptr_t>(data)};
  }

  Result<std::byte*> resolve(int32_t rank, const Location& location, size_t bytes) const override {
    if (rank != 0 || location.arena != kAnywhere || bytes > UINT64_MAX - location.offset)
      return Status(ZERO_ERR_INTERNAL,
                    text("solo: rank ", rank, " does not have ", bytes, " bytes at offset ",
                         location.offset, " of arena ", location.arena));
    return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(location.offset));
  }

  std::shared_ptr<Arena> arena(const Location& location) const override {
    if (location.arena != kAnywhere) return nullptr;
    const void* const data = reinterpret_cast<const void*>(static_cast<uintptr_t>(location.offset));
    return find_arena(data, 1, this, nullptr);
  }

 protected:
  Status exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                        const Patience&) override {
    if (aborted()) return failure_status();
    if (!all.empty()) memmove(all.data(), mine.data(), mine.size());
    return {};
  }

  Status broadcast_bytes(std::span<std::byte>, int32_t, const Patience&) override {
    return aborted() ? failure_status() : Status();
  }

  Result<std::shared_ptr<Comm>> make_child(Call&, std::span<const int32_t> members, int32_t,
                                           int32_t) override {
    if (members.empty()) return std::shared_ptr<Comm>();
    return create_solo(options(), device());
  }
};

}  // namespace

Result<std::shared_ptr<Comm>> create_solo(const CommOptions& options,
                                          std::shared_ptr<Device> device) {
  return std::shared_ptr<Comm>(std::make_shared<SoloComm>(options, std::move(device)));
}

}  // namespace zero
