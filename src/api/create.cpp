// SPDX-License-Identifier: Apache-2.0
// How comms are made.
#include "comm/create.h"

#include <cstring>

#include "api/guard.h"
#include "api/options.h"

namespace {

using namespace zero;
using namespace zero::api;

struct GivenOptions {
  CommOptions deadlines;
  int32_t device = ZERO_DEVICE_HOST;
  int32_t ordinal = 0;

  /// The device, opened; nullptr: the host.
  Result<std::shared_ptr<Device>> open() const {
    if (device == ZERO_DEVICE_HOST) return std::shared_ptr<Device>();
    if (ordinal == ZERO_ORDINAL_LOCAL_RANK)
      return bad_argument(
          "device_ordinal is ZERO_ORDINAL_LOCAL_RANK, which only zero_comm_create_env takes");
    return open_cuda(ordinal);
  }
  /// For the rank that a launcher started at this place among those of its host, -1 if unknown.
  Result<std::shared_ptr<Device>> open_of(int32_t local_rank) const {
    return ordinal == ZERO_ORDINAL_LOCAL_RANK ? open_cuda_of(local_rank) : open_cuda(ordinal);
  }
};

Status check_device(int32_t device, int32_t ordinal) {
  if (device != ZERO_DEVICE_HOST && device != ZERO_DEVICE_CUDA)
    return bad_argument("device is ", device, ", which is no ZERO_DEVICE_*");
  const int32_t least = device == ZERO_DEVICE_HOST ? 0 : ZERO_ORDINAL_LOCAL_RANK;
  if (ordinal < least || (device == ZERO_DEVICE_HOST && ordinal != 0))
    return bad_argument(
        "device_ordinal is ", ordinal,
        device == ZERO_DEVICE_HOST ? "; on the host it must be 0" : "; they begin with 0");
  return Status();
}

Status read_nccl_options(const zero_comm_options& read, CommOptions& options) {
  constexpr int32_t kMost = 64;  // of NCCL's channels
  if (read.reduce_ctas < 0 || read.reduce_ctas > kMost)
    return bad_argument("reduce_ctas is ", read.reduce_ctas, "; it must be 1 to ", kMost);
  if (read.gather_on_kernels != 0 && read.gather_on_kernels != 1)
    return bad_argument("gather_on_kernels is ", read.gather_on_kernels, "; it must be 0 or 1");
  if (read.reduce_ctas > 0) options.reduce_ctas = read.reduce_ctas;
  options.gathers_on_kernels = read.gather_on_kernels == 1;
  return Status();
}

/// Deadlines that are not given are those of `unset`.
Result<GivenOptions> read_comm_options(const zero_comm_options* given,
                                       const CommOptions& unset = {}) {
  GivenOptions all{.deadlines = unset};
  if (given == nullptr) return all;
  const zero_comm_options read = ZERO_TRY(read_struct(given));
  ZERO_TRY(check_device(read.device, read.device_ordinal));
  all.device = read.device;
  all.ordinal = read.device_ordinal;
  CommOptions& options = all.deadlines;
  ZERO_TRY(read_nccl_options(read, options));
  const struct {
    const char* name;
    int64_t value;
    int64_t& out;
  } rows[] = {{"timeout_ms", read.timeout_ms, options.timeout_ms},
              {"late_ms", read.late_ms, options.late_ms},
              {"rendezvous_ms", read.rendezvous_ms, options.rendezvous_ms}};
  for (const auto& row : rows) {
    if (row.value < 0 || row.value > int64_t{1} << 40)
      return bad_argument(row.name, " is ", row.value, "; it must be a number of milliseconds");
    if (row.value > 0) row.out = row.value;
  }
  return all;
}

/// What zero_comm_create_env looks for in the environment.
constexpr CommOptions kUnset = {.timeout_ms = -1, .late_ms = -1, .rendezvous_ms = -1};

using Made = Result<std::shared_ptr<Comm>>;

/// make(GivenOptions) -> Made.
template <class Make>
zero_status create(zero_comm** out, const zero_comm_options* options, const Make& make,
                   const CommOptions& unset = {}, ZERO_CALLER) {
  const auto guarded = [&]() -> Status {
    ZERO_TRY(check_out(out, "out"));
    const GivenOptions given = ZERO_TRY(read_comm_options(options, unset));
    NewHandle handle;
    *out = handle.hold(ZERO_TRY(make(given)));
    return Status();
  };
  return guard(guarded, caller);
}

}  // namespace

zero_status zero_comm_create_solo(zero_comm** out, const zero_comm_options* options) {
  return create(out, options, [&](const GivenOptions& given) -> Made {
    return create_solo(given.deadlines, ZERO_TRY(given.open()));
  });
}

zero_status zero_comm_create_local(zero_comm** out, const char* name, int32_t rank, int32_t world,
                                   const zero_comm_options* options) {
  return create(out, options, [&](const GivenOptions& given) -> Made {
    ZERO_TRY(check_out(name, "name"));
    return create_local(name, rank, world, given.deadlines, ZERO_TRY(given.open()),
                        world > 1 ? word_of_job() : std::string());
  });
}

zero_status zero_comm_create_env(zero_comm** out, const zero_comm_options* options) {
  const auto make = [](const GivenOptions& given) -> Made {
    OpenDevice open;
    if (given.device != ZERO_DEVICE_HOST)
      open = [&](int32_t local_rank) { return given.open_of(local_rank); };
    return create_env(given.deadlines, open);
  };
  return create(out, options, make, kUnset);
}

zero_status zero_comm_create_user(zero_comm** out, const zero_comm_functions* functions, void* ctx,
                                  int32_t rank, int32_t world, const zero_comm_options* options) {
  return create(out, options, [&](const GivenOptions& given) -> Made {
    ZERO_TRY(check_out(functions, "functions"));
    const zero_comm_functions read = ZERO_TRY(read_struct(functions));
    const UserFunctions own{.exchange = read.exchange,
                            .all_gather = read.all_gather,
                            .all_to_all = read.all_to_all,
                            .reduce_scatter = read.reduce_scatter,
                            .split = read.split,
                            .free = read.free};
    if (given.device != ZERO_DEVICE_HOST)
      return Status(
          ZERO_ERR_UNSUPPORTED,
          "a comm of your own collectives is on the host, and device is ZERO_DEVICE_CUDA");
    return create_user(own, ctx, rank, world, given.deadlines);
  });
}

zero_status zero_nccl_unique_id(void* id) {
  return guard([&]() -> Status {
    ZERO_TRY(check_out(id, "id"));
    const NcclId drawn = ZERO_TRY(nccl_unique_id());
    static_assert(sizeof drawn == ZERO_NCCL_ID_BYTES);
    std::memcpy(id, drawn.data(), sizeof drawn);
    return Status();
  });
}

zero_status zero_comm_create_nccl(zero_comm** out, const void* id, int32_t rank, int32_t world,
                                  const zero_comm_options* options) {
  return create(out, options, [&](const GivenOptions& given) -> Made {
    ZERO_TRY(check_out(id, "id"));
    if (given.device != ZERO_DEVICE_CUDA)
      return bad_argument("an nccl comm is on a GPU: device is not ZERO_DEVICE_CUDA");
    ZERO_TRY(check_seat(rank, world));
    NcclId own;
    std::memcpy(own.data(), id, sizeof own);
    return create_nccl(ZERO_TRY(given.open()), own, rank, world, given.deadlines);
  });
}

zero_status zero_comm_wrap_nccl(zero_comm** out, void* nccl_comm,
                                const zero_comm_options* options) {
  return create(out, options, [&](const GivenOptions& given) -> Made {
    ZERO_TRY(check_out(nccl_comm, "nccl_comm"));
    const int32_t ordinal = ZERO_TRY(nccl_device(nccl_comm));
    if (given.device == ZERO_DEVICE_CUDA && given.ordinal != ordinal)
      return bad_argument("device_ordinal is ", given.ordinal, "; nccl_comm is on GPU ", ordinal);
    return wrap_nccl(ZERO_TRY(open_cuda(ordinal)), nccl_comm, given.deadlines);
  });
}
