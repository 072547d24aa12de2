// SPDX-License-Identifier: Apache-2.0
#include "step/one_copy.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/hash.h"
#include "base/refusals.h"
#include "optim/tensor_checks.h"
#include "step/tables.h"

namespace zero {
namespace {

/// A parameter or gradient in memory with one copy, in the form that ranks exchange.
struct Tenant {
  Location place;
  uint64_t bytes = 0;
  int64_t param = 0;
  int32_t rank = 0;
  int32_t grad = 0;
  uint64_t end() const { return place.offset + bytes; }
};

TensorName tensor_name_of(const Optimizer& optim, const Tenant& one) {
  return {one.grad != 0 ? kGradientOf : "parameter", optim.param(one.param).name};
}

Status two_places(const Optimizer& optim, int64_t param, int32_t rank, uint64_t at, int32_t other,
                  uint64_t there) {
  return Status(
      ZERO_ERR_MISMATCH,
      text("parameter '", optim.param(param).name, "' lies at byte ", at,
           " of a ZERO_MEMORY_SHARED arena on rank ", rank, " and at byte ", there, " on rank ",
           other, ": there is one copy for all ranks, so use the same place on every rank, or use ",
           "ZERO_MEMORY_PER_RANK"));
}

Status overlap(const Optimizer& optim, const Tenant& a, const Tenant& b) {
  const char* const way_out =
      a.grad != 0 || b.grad != 0 ? "put gradients into ZERO_MEMORY_PER_RANK"
                                 : "give each parameter its own place, or use ZERO_MEMORY_PER_RANK";
  return bad_argument(tensor_name_of(optim, a), " of rank ", a.rank, " overlaps ",
                      tensor_name_of(optim, b), " of rank ", b.rank,
                      " in a ZERO_MEMORY_SHARED arena, which has one ",
                      "copy for all ranks: ", way_out);
}

/// Returns the first error among the tensors of all ranks, in an order that is the same on every
/// rank. Ranks that are not involved in the error get OK.
Status check(const Optimizer& optim, std::vector<Tenant>& all) {
  const int32_t own = optim.comm->rank();
  const auto order = [](const Tenant& one) {
    return std::make_tuple(one.grad, one.param, one.place.arena, one.rank);
  };
  std::ranges::sort(all, {}, order);
  for (size_t i = 1, first = 0; i < all.size() && all[i].grad == 0; i++) {
    const bool same =
        all[i].param == all[first].param && all[i].place.arena == all[first].place.arena;
    if (!same) first = i;
    if (all[i].place == all[first].place) continue;
    if (all[i].rank != own) return Status();
    return two_places(optim, all[i].param, own, all[i].place.offset, all[first].rank,
                      all[first].place.offset);
  }
  const auto place = [](const Tenant& one) {
    return std::make_tuple(one.place.arena, one.place.offset, one.rank);
  };
  std::ranges::sort(all, {}, place);
  for (size_t i = 1, last = 0; i < all.size(); i++) {
    const Tenant& before = all[last];
    const bool ends =
        before.place.arena != all[i].place.arena || before.end() <= all[i].place.offset;
    const bool same = before.grad == 0 && all[i].grad == 0 && before.param == all[i].param;
    if (!ends && !same && before.rank != all[i].rank)
      return before.rank == own || all[i].rank == own ? overlap(optim, before, all[i]) : Status();
    if (ends || all[i].end() > before.end()) last = i;
  }
  return Status();
}

/// Returns the tensors that this rank has registered in memory with one copy. Gradients follow the
/// parameters. Gradients of frozen parameters are left out, because they are not used.
std::vector<Tenant> registered(const Optimizer& optim) {
  std::vector<Tenant> tenants;
  const auto add = [&](const std::byte* memory, size_t bytes, size_t param, int32_t grad) {
    if (memory == nullptr || bytes == 0) return;
    const Location place = optim.comm->locate(memory, bytes);
    if (in_one_copy(*optim.comm, place))
      tenants.push_back({place, bytes, static_cast<int64_t>(param), 0, grad});
  };
  const std::vector<Param>& params = optim.params;
  for (size_t i = 0; i < params.size(); i++) add(params[i].data, params[i].bytes(), i, 0);
  for (size_t i = 0; i < params.size(); i++)
    if (optim.trains(i)) add(params[i].grad, params[i].grad_bytes(), i, 1);
  return tenants;
}

/// Returns true if all ranks have the same parameters in such memory and at most one rank has
/// gradients there, so that there cannot be an error. A rank has checked its own tensors at
/// registration.
Result<bool> plainly_sound(Call& call, std::span<const Tenant> mine) {
  struct Gist {
    Same<uint64_t> params;
    Sum with_grads;
    void add(const Gist& other) {
      params.add(other.params);
      with_grads.add(other.with_grads);
    }
  };
  const auto grads = std::ranges::find(mine, 1, &Tenant::grad);
  const auto count = static_cast<size_t>(grads - mine.begin());
  const Gist all =
      ZERO_TRY(call.combine("seal: shared memory", Gist{hash64(std::as_bytes(mine.first(count))),
                                                        {count < mine.size() ? 1u : 0u}}));
  return all.with_grads.value < 2 && all.params.differs == 0;
}

}  // namespace

bool in_one_copy(const Comm& comm, const Location& place) {
  const std::shared_ptr<Arena> arena = comm.arena(place);
  return arena != nullptr && arena->one_copy();
}

Status check_one_copy(Call& call, const Optimizer& optim) {
  if (!optim.comm->direct() || optim.world() == 1) return Status();
  const std::vector<Tenant> mine = registered(optim);
  if (ZERO_TRY(plainly_sound(call, mine))) return Status();
  const auto* const bytes = reinterpret_cast<const char*>(mine.data());
  const std::vector<std::string> told =
      ZERO_TRY(call.gather("seal: shared memory", {bytes, mine.size() * sizeof(Tenant)}));
  std::vector<Tenant> all;
  for (size_t rank = 0; rank < told.size(); rank++) {
    const size_t before = all.size();
    all.resize(before + told[rank].size() / sizeof(Tenant));
    if (!told[rank].empty()) std::memcpy(&all[before], told[rank].data(), told[rank].size());
    for (size_t i = before; i < all.size(); i++) all[i].rank = static_cast<int32_t>(rank);
  }
  return call.vote("seal: shared memory", check(optim, all));
}

Status check_grads_apart(const Optimizer& optim, const StepMemory& memory) {
  std::vector<Tenant> all;
  for (size_t i = 0; i < optim.params.size(); i++) {
    const Param& param = optim.params[i];
    if (param.count == 0) continue;
    const auto index = static_cast<int64_t>(i);
    for (int32_t rank = 0; rank < optim.world(); rank++) {
      const Location place = ZERO_TRY(placement_of(optim, memory, rank, index)).grad;
      if (in_one_copy(*optim.comm, place))
        all.push_back({place, param.grad_bytes(), index, rank, 1});
    }
  }
  return check(optim, all);
}

Status check_same_place(const Optimizer& optim, int64_t param, const Location& own, int32_t rank,
                        const Location& theirs) {
  if (own.arena != theirs.arena || own.offset == theirs.offset) return Status();
  if (!in_one_copy(*optim.comm, own)) return Status();
  return two_places(optim, param, optim.comm->rank(), own.offset, rank, theirs.offset);
}

Writers find_writers(const Comm& comm, std::span<const Location> locations, int32_t root) {
  Writers writers;
  const Location at_root = locations[static_cast<size_t>(root)];
  const auto own = locations.begin() + comm.rank();
  if (in_one_copy(comm, at_root))
    writers.any = std::ranges::count(locations, at_root) != comm.world();
  if (comm.rank() == root || !in_one_copy(comm, *own)) return writers;
  writers.mine = *own != at_root && std::find(locations.begin(), own, *own) == own;
  return writers;
}

}  // namespace zero
