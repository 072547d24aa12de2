// SPDX-License-Identifier: Apache-2.0
#include "step/alike.h"

#include <algorithm>

#include "base/hash.h"
#include "base/text.h"
#include "step/tables.h"
#include "step/walk.h"

namespace zero {
namespace {

constexpr size_t kPartBytes = size_t{1} << 20;  // what a window of a device shows at once

struct Part {
  size_t param;
  size_t offset;
};

/// All ranks hold the same bytes, not equal ones.
Result<bool> is_one_copy(const Optimizer& optim, const StepMemory& memory, size_t param) {
  if (memory.tables == nullptr) return false;
  const Location own = memory.placements[param].data;
  const std::shared_ptr<Arena> arena = optim.comm->arena(own);
  if (arena == nullptr || !arena->one_copy()) return false;
  for (int32_t rank = 0; rank < optim.world(); rank++) {
    const auto index = static_cast<int64_t>(param);
    if (ZERO_TRY(placement_of(optim, memory, rank, index)).data != own) return false;
  }
  return true;
}

/// What is to be compared, in parts that threads share out.
Result<std::vector<Part>> parts_of(const Optimizer& optim, const StepMemory& memory) {
  std::vector<Part> parts;
  for (size_t i = optim.alike_params; i < optim.sealed_params(); i++) {
    if (ZERO_TRY(is_one_copy(optim, memory, i))) continue;
    for (size_t at = 0; at < optim.params[i].bytes(); at += kPartBytes) parts.push_back({i, at});
  }
  return parts;
}

std::span<const std::byte> bytes_of(const Optimizer& optim, const Part& part) {
  const Param& of = optim.params[part.param];
  return {of.data + part.offset, std::min(kPartBytes, of.bytes() - part.offset)};
}

/// A checksum of each parameter that is compared; 0 for those of which there is one copy.
Result<std::vector<uint64_t>> checksums(Call& call, Optimizer& optim) {
  const std::vector<Part> parts = ZERO_TRY(parts_of(optim, step_memory(optim)));
  std::vector<std::span<const std::byte>> bytes;
  for (const Part& part : parts) bytes.push_back(bytes_of(optim, part));
  std::vector<uint64_t> hashes(parts.size());
  ZERO_TRY(make_walk(call, optim)->hash(bytes, hashes));
  std::vector<uint64_t> sums(optim.sealed_params() - optim.alike_params);
  for (size_t i = 0; i < parts.size();) {
    const size_t first = i;
    while (i < parts.size() && parts[i].param == parts[first].param) i++;
    sums[parts[first].param - optim.alike_params] =
        hash64(std::as_bytes(std::span(hashes).subspan(first, i - first)));
  }
  return sums;
}

/// The first parameter that differs, by name.
Status name_difference(Call& call, const Optimizer& optim, std::span<const uint64_t> sums) {
  std::string lines;
  for (size_t i = 0; i < sums.size(); i++)
    lines += text("parameter '", optim.params[optim.alike_params + i].name, "' of checksum ",
                  hex(sums[i]), "\n");
  return call.agree("parameters",
                    "ranks do not begin with the same parameters, call zero_broadcast_params "
                    "before the first step",
                    lines);
}

}  // namespace

Status vote_ready(Call& call, Optimizer& optim, Status ready) {
  const bool compares =
      optim.world() > 1 && optim.alike_params < optim.sealed_params() && call.capture() == 0;
  std::vector<uint64_t> sums;
  if (compares && ready.ok()) {
    Result<std::vector<uint64_t>> made = checksums(call, optim);
    if (made.ok()) sums = std::move(*made);
    ready = made.failure();
  }
  const uint64_t mine = compares ? hash64(std::as_bytes(std::span(sums))) : 0;
  std::vector<uint64_t> all(static_cast<size_t>(call.world()));
  ZERO_TRY(call.vote("ready", ready, std::as_bytes(std::span(&mine, 1)),
                     std::as_writable_bytes(std::span(all))));
  if (std::count(all.begin(), all.end(), all[0]) != call.world())
    return name_difference(call, optim, sums);
  if (compares) optim.alike_params = optim.sealed_params();
  return Status();
}

}  // namespace zero
