// SPDX-License-Identifier: Apache-2.0
// Implements the calls that make comms, and the calls on comms and arenas.
#include "comm/comm.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "api/guard.h"
#include "api/options.h"
#include "base/checked.h"
#include "base/log.h"
#include "comm/arena.h"
#include "comm/create.h"

namespace {

using namespace zero;
using namespace zero::api;

// ---- Calls that make comms.

struct GivenOptions {
  CommOptions deadlines;
  int32_t device = ZERO_DEVICE_HOST;
  int32_t ordinal = 0;

  Status check_host(const char* what) const {
    if (device == ZERO_DEVICE_HOST) return {};
    return unsupported(what, " runs on the host, but device is ZERO_DEVICE_CUDA");
  }
  /// Opens the device. Returns nullptr for the host.
  Result<std::shared_ptr<Device>> open() const {
    if (device == ZERO_DEVICE_HOST) return std::shared_ptr<Device>();
    if (ordinal == ZERO_ORDINAL_LOCAL_RANK)
      return bad_argument(
          "device_ordinal is ZERO_ORDINAL_LOCAL_RANK, which only zero_comm_create_env takes");
    return open_cuda(ordinal);
  }
  /// Opens the device of a rank. `local_rank` is its number among the ranks of its host, or -1 if
  /// that is unknown.
  Result<std::shared_ptr<Device>> open_of(int32_t local_rank) const {
    return ordinal == ZERO_ORDINAL_LOCAL_RANK ? open_cuda_of(local_rank) : open_cuda(ordinal);
  }
};

Status check_device(int32_t device, int32_t ordinal) {
  if (device != ZERO_DEVICE_HOST && device != ZERO_DEVICE_CUDA)
    return bad_argument("device is ", device, ", which is not a ZERO_DEVICE_* value");
  const int32_t least = device == ZERO_DEVICE_HOST ? 0 : ZERO_ORDINAL_LOCAL_RANK;
  if (ordinal < least || (device == ZERO_DEVICE_HOST && ordinal != 0))
    return bad_argument(
        "device_ordinal is ", ordinal,
        device == ZERO_DEVICE_HOST ? "; on the host it must be 0" : "; ordinals start at 0");
  return Status();
}

Status read_nccl_options(const zero_comm_options& read, CommOptions& options) {
  constexpr int32_t kMost = 64;  // of NCCL's channels
  if (read.reduce_ctas < 0 || read.reduce_ctas > kMost)
    return bad_argument("reduce_ctas is ", read.reduce_ctas, "; it must be from 1 to ", kMost);
  if (read.gather_on_kernels != 0 && read.gather_on_kernels != 1)
    return bad_argument("gather_on_kernels is ", read.gather_on_kernels, "; it must be 0 or 1");
  if (read.reduce_ctas > 0) options.reduce_ctas = read.reduce_ctas;
  options.gathers_on_kernels = read.gather_on_kernels == 1;
  return Status();
}

/// Reads the options. Takes the deadlines that are not set from `unset`.
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
      return bad_argument(row.name, " is ", row.value, "; it must be from 0 to 2^40 milliseconds");
    if (row.value > 0) row.out = row.value;
  }
  return all;
}

/// The deadlines that zero_comm_create_env looks up in the environment.
constexpr CommOptions kUnset = {.timeout_ms = -1, .late_ms = -1, .rendezvous_ms = -1};

using MadeComm = Result<std::shared_ptr<Comm>>;

/// Makes a comm and its handle. make(GivenOptions) returns MadeComm.
template <class Make>
zero_status create(zero_comm** out, const zero_comm_options* options, const Make& make,
                   const CommOptions& unset = {}, ZERO_CALLER) {
  const auto guarded = [&]() -> Status {
    ZERO_TRY(check_out(out, "out"));
    const GivenOptions given = ZERO_TRY(read_comm_options(options, unset));
    NewHandle handle;
    const std::shared_ptr<Comm> made = ZERO_TRY(make(given));
    *out = handle.hold(made);
    (void)succeeds([&] {
      log(ZERO_LOG_INFO, text(caller, ": rank ", made->rank(), " of ", made->world(), " of a ",
                              made->kind(), " comm"));
      made->start_asked_trace();
      return true;
    });
    return Status();
  };
  return guard(guarded, caller);
}

// ---- Calls on comms.

template <class Body>
zero_status on_comm(zero_comm* comm, Operation operation, const Body& body, ZERO_CALLER) {
  const auto guarded = [&]() -> Status {
    const std::shared_ptr<Comm> found = ZERO_TRY(find_handle(comm));
    Call call = ZERO_TRY(found->begin(operation));
    return body(call);
  };
  return guard(guarded, caller);
}

/// Returns a property of the comm, or an error code if the handle is not valid.
int32_t number_of(const zero_comm* comm, int32_t (Comm::*number)() const, ZERO_CALLER) {
  const auto guarded = [&]() -> Result<Code> { return (*ZERO_TRY(find_handle(comm)).*number)(); };
  return guard(guarded, caller);
}

Status check_data(const void* data, size_t size) {
  if (data == nullptr && size > 0) return bad_argument("data is NULL");
  return check_host_memory(data, "data");
}

/// Returns the size of an element in bytes, or 0 if its type has no sums.
size_t element_bytes(int32_t dtype) {
  const size_t bytes = size_of(static_cast<DType>(dtype));
  return bytes == 2 ? 0 : bytes;
}

constexpr const char* kReductions[] = {"ZERO_SUM", "ZERO_MIN", "ZERO_MAX"};

template <class Number>
Number combine(Number a, Number b, int32_t operation) {
  if (operation == ZERO_SUM) {
    if constexpr (std::is_integral_v<Number>) {
      using Unsigned = std::make_unsigned_t<Number>;
      return static_cast<Number>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
  if constexpr (!std::is_integral_v<Number>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return (operation == ZERO_MIN) == (b < a) ? b : a;
}

/// Folds `other` into `data`, element by element.
void fold(void* data, const char* other, size_t count, int32_t dtype, int32_t operation) {
  const auto loop = [&]<class Number>(Number) {
    auto* values = static_cast<Number*>(data);
    for (size_t i = 0; i < count; i++) {
      Number b;
      std::memcpy(&b, other + i * sizeof b, sizeof b);
      values[i] = combine(values[i], b, operation);
    }
  };
  switch (dtype) {
    case ZERO_FLOAT32:
      return loop(float{});
    case ZERO_FLOAT64:
      return loop(double{});
    case ZERO_INT32:
      return loop(int32_t{});
    default:
      return loop(int64_t{});
  }
}

Status check_all_reduce(const void* data, size_t count, int32_t dtype, int32_t operation) {
  const size_t element = element_bytes(dtype);
  if (element == 0) return bad_argument("dtype ", dtype, " is unknown");
  if (operation < ZERO_SUM || operation > ZERO_MAX)
    return bad_argument("operation ", operation, " is unknown");
  if (!checked_multiply(count, element)) return bad_argument("count ", count, " is too large");
  return check_data(data, count);
}

Status all_reduce(Call& call, void* data, size_t count, int32_t dtype, int32_t operation) {
  ZERO_TRY(call.vote("arguments", check_all_reduce(data, count, dtype, operation)));
  ZERO_TRY(call.agree("arguments", "zero_comm_all_reduce",
                      text("count ", count, "\tdtype ", dtype_name(static_cast<DType>(dtype)),
                           "\toperation ", kReductions[operation - ZERO_SUM])));
  const size_t bytes = count * element_bytes(dtype);
  const std::vector<std::string> all =
      ZERO_TRY(call.gather("values", std::string_view(static_cast<const char*>(data), bytes)));
  if (bytes == 0) return Status();
  std::memcpy(data, all[0].data(), bytes);
  for (size_t rank = 1; rank < all.size(); rank++)
    fold(data, all[rank].data(), count, dtype, operation);
  return Status();
}

void copy_text(char* out, size_t size, const std::string& text) {
  const size_t bytes = std::min(size - 1, text.size());
  std::memcpy(out, text.data(), bytes);
  out[bytes] = '\0';
}

}  // namespace

zero_status zero_comm_create_solo(zero_comm** out, const zero_comm_options* options) {
  return create(out, options, [&](const GivenOptions& given) -> MadeComm {
    return create_solo(given.deadlines, ZERO_TRY(given.open()));
  });
}

zero_status zero_comm_create_local(zero_comm** out, const char* name, int32_t rank, int32_t world,
                                   const zero_comm_options* options) {
  return create(out, options, [&](const GivenOptions& given) -> MadeComm {
    ZERO_TRY(check_out(name, "name"));
    return create_local(name, rank, world, given.deadlines, ZERO_TRY(given.open()),
                        world > 1 ? word_of_job() : std::string());
  });
}

zero_status zero_comm_create_env(zero_comm** out, const zero_comm_options* options) {
  const auto make = [](const GivenOptions& given) -> MadeComm {
    OpenDevice open;
    if (given.device != ZERO_DEVICE_HOST)
      open = [&](int32_t local_rank) { return given.open_of(local_rank); };
    return create_env(given.deadlines, open);
  };
  return create(out, options, make, kUnset);
}

zero_status zero_comm_create_user(zero_comm** out, const zero_comm_functions* functions, void* ctx,
                                  int32_t rank, int32_t world, const zero_comm_options* options) {
  return create(out, options, [&](const GivenOptions& given) -> MadeComm {
    ZERO_TRY(check_out(functions, "functions"));
    const zero_comm_functions read = ZERO_TRY(read_struct(functions));
    const UserFunctions own{.exchange = read.exchange,
                            .all_gather = read.all_gather,
                            .all_to_all = read.all_to_all,
                            .reduce_scatter = read.reduce_scatter,
                            .split = read.split,
                            .free = read.free};
    ZERO_TRY(given.check_host("a user comm"));
    return create_user(own, ctx, rank, world, given.deadlines);
  });
}

zero_status zero_comm_create_mpi(zero_comm** out, const void* mpi_comm, size_t mpi_comm_bytes,
                                 const zero_comm_options* options) {
  return create(out, options, [&](const GivenOptions& given) -> MadeComm {
    ZERO_TRY(given.check_host("an mpi comm"));
    return create_mpi(mpi_comm, mpi_comm_bytes, given.deadlines);
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
  return create(out, options, [&](const GivenOptions& given) -> MadeComm {
    ZERO_TRY(check_out(id, "id"));
    if (given.device != ZERO_DEVICE_CUDA)
      return bad_argument("an nccl comm runs on a GPU: set device to ZERO_DEVICE_CUDA");
    ZERO_TRY(check_seat(rank, world));
    NcclId own;
    std::memcpy(own.data(), id, sizeof own);
    return create_nccl(ZERO_TRY(given.open()), own, rank, world, given.deadlines);
  });
}

zero_status zero_comm_wrap_nccl(zero_comm** out, void* nccl_comm,
                                const zero_comm_options* options) {
  return create(out, options, [&](const GivenOptions& given) -> MadeComm {
    ZERO_TRY(check_out(nccl_comm, "nccl_comm"));
    const int32_t ordinal = ZERO_TRY(nccl_device(nccl_comm));
    if (given.device == ZERO_DEVICE_CUDA && given.ordinal != ordinal)
      return bad_argument("device_ordinal is ", given.ordinal, "; nccl_comm is on GPU ", ordinal);
    return wrap_nccl(ZERO_TRY(open_cuda(ordinal)), nccl_comm, given.deadlines);
  });
}

zero_status zero_comm_split(zero_comm** out, zero_comm* parent, int32_t color, int32_t key) {
  return on_comm(parent, Operation::split, [&](Call& call) -> Status {
    ZERO_TRY(call.vote("arguments", check_out(out, "out")));
    NewHandle handle;
    *out = handle.hold(ZERO_TRY(call.split(color, key)));
    return Status();
  });
}

int32_t zero_comm_rank(const zero_comm* comm) { return number_of(comm, &Comm::rank); }

int32_t zero_comm_world(const zero_comm* comm) { return number_of(comm, &Comm::world); }

zero_status zero_comm_barrier(zero_comm* comm) {
  return on_comm(comm, Operation::barrier,
                 [&](Call& call) { return call.vote("barrier", Status()); });
}

zero_status zero_comm_broadcast(zero_comm* comm, void* data, size_t bytes, int32_t root) {
  return on_comm(comm, Operation::broadcast, [&](Call& call) -> Status {
    const bool is_rank = root >= 0 && root < call.world();
    ZERO_TRY(call.vote(
        "arguments",
        is_rank ? check_data(data, bytes)
                : bad_argument("root ", root, " is not a rank in a world of ", call.world())));
    ZERO_TRY(
        call.agree("arguments", "zero_comm_broadcast", text("bytes ", bytes, "\troot ", root)));
    if (bytes == 0) return Status();
    return call.broadcast("values", std::span(static_cast<std::byte*>(data), bytes), root);
  });
}

zero_status zero_comm_all_reduce(zero_comm* comm, void* data, size_t count, int32_t dtype,
                                 int32_t operation) {
  return on_comm(comm, Operation::all_reduce,
                 [&](Call& call) { return all_reduce(call, data, count, dtype, operation); });
}

zero_status zero_comm_abort(zero_comm* comm, const char* reason) {
  return guard([&]() -> Status {
    const std::shared_ptr<Comm> found = ZERO_TRY(find_handle(comm));
    if (reason != nullptr && !is_utf8(reason)) reason = "the reason given is not UTF-8";
    found->abort(found->steps.fail(ZERO_ERR_ABORTED, found->rank(), "zero_comm_abort",
                                   text("rank ", found->rank(), " aborted the comm: ",
                                        reason != nullptr ? reason : "no reason given")));
    return Status();
  });
}

zero_status zero_comm_failure(const zero_comm* comm, zero_failure* failure) {
  return guard([&]() -> Status {
    const Failure broken = ZERO_TRY(find_handle(comm))->failure();
    zero_failure out{};
    out.status = broken.code;
    out.rank = broken.rank;
    out.step = broken.step;
    out.params_consistent = broken.params_consistent ? 1 : 0;
    copy_text(out.phase, sizeof out.phase, broken.phase);
    copy_text(out.text, sizeof out.text, broken.text);
    return write_struct(failure, out, "failure");
  });
}

zero_status zero_trace_start(zero_comm* comm, const char* directory) {
  return guard([&]() -> Status {
    const std::shared_ptr<Comm> found = ZERO_TRY(find_handle(comm));
    ZERO_TRY(check_out(directory, "directory"));
    return found->start_trace(directory);
  });
}

zero_status zero_trace_stop(zero_comm* comm) {
  return guard([&]() -> Status { return ZERO_TRY(find_handle(comm))->trace.stop(); });
}

zero_status zero_comm_free(zero_comm* comm) {
  if (comm == nullptr) return ZERO_OK;
  return guard([&] { return take_handle(comm).failure(); });
}

zero_status zero_arena_alloc(zero_comm* comm, size_t bytes, int32_t kind, void** out) {
  return on_comm(comm, Operation::arena_alloc, [&](Call& call) -> Status {
    const auto check = [&]() -> Status {
      ZERO_TRY(check_out(out, "out"));
      if (bytes == 0) return bad_argument("bytes is 0");
      if (kind == ZERO_MEMORY_PER_RANK || kind == ZERO_MEMORY_SHARED) return Status();
      return bad_argument("kind ", kind, " is unknown");
    };
    ZERO_TRY(call.vote("arguments", check()));
    const std::shared_ptr<Arena> arena = ZERO_TRY(call.allocate(bytes, kind));
    claim_arena(arena);
    *out = arena->data();
    return Status();
  });
}

zero_status zero_arena_free(void* arena) {
  if (arena == nullptr) return ZERO_OK;
  return guard([&]() { return give_up_arena(arena); });
}
