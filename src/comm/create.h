// SPDX-License-Identifier: Apache-2.0
// Creates comms: one function for each backend, and one that chooses by the launcher's variables.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/comm.h"
#include "comm/launch.h"

namespace zero {

/// `device` holds parameters and gradients. nullptr means that they are in host memory.
Result<std::shared_ptr<Comm>> create_solo(const CommOptions& options,
                                          std::shared_ptr<Device> device = nullptr);

/// `word` is a secret known only to the ranks of one job, or "". It separates jobs that choose the
/// same name, and rejects processes of other users where the system cannot identify users.
Result<std::shared_ptr<Comm>> create_local(std::string_view name, int32_t rank, int32_t world,
                                           const CommOptions& options,
                                           std::shared_ptr<Device> device = nullptr,
                                           std::string_view word = {});

/// Returns the secret of the job whose launcher started this process, read from the environment.
/// Returns "" if there is none, as for a single rank.
std::string word_of_job();

/// Opens the device of a rank, given its index among the ranks of its host, or -1 if unknown.
using OpenDevice = std::function<Result<std::shared_ptr<Device>>(int32_t local_rank)>;

/// Creates the comm that the environment describes. -1 in `given` means the default, which
/// ZERO_*_MS variables can change. If `open` is empty, the comm is on the host.
Result<std::shared_ptr<Comm>> create_env(CommOptions given, const OpenDevice& open);
/// Creates the comm as above, with variables from `lookup`.
Result<std::shared_ptr<Comm>> create_env(const Lookup& lookup, CommOptions given,
                                         const OpenDevice& open);

/// Collectives supplied by an engine, with libzero's own types. src/api creates them from the
/// function table in zero.h. Each returns ZERO_OK or an error code of the engine.
struct UserFunctions {
  Code (*exchange)(void* ctx, const void* send, void* recv, size_t bytes) = nullptr;
  Code (*all_gather)(void* ctx, const void* send, void* recv, size_t bytes, void* stream) = nullptr;
  Code (*all_to_all)(void* ctx, const void* send, void* recv, size_t bytes, void* stream) = nullptr;
  Code (*reduce_scatter)(void* ctx, const void* send, void* recv, size_t count, int32_t dtype,
                         void* stream) = nullptr;
  Code (*split)(void* ctx, int32_t color, int32_t rank, int32_t world, void** child) = nullptr;
  void (*free)(void* ctx) = nullptr;
};

/// An id that joins ranks into one NCCL communicator. One of the ranks generates it.
using NcclId = std::array<std::byte, 128>;
Result<NcclId> nccl_unique_id();

/// Fails with ZERO_ERR_ARGUMENT unless `rank` is valid in a world of `world` ranks.
Status check_seat(int32_t rank, int32_t world);

/// Collective. Every rank has a device of its own.
Result<std::shared_ptr<Comm>> create_nccl(std::shared_ptr<Device> device, const NcclId& id,
                                          int32_t rank, int32_t world, const CommOptions& options);

/// Creates an nccl comm of the ranks of an engine's ncclComm_t, which the engine still owns.
Result<std::shared_ptr<Comm>> wrap_nccl(std::shared_ptr<Device> device, void* nccl_comm,
                                        const CommOptions& options);
/// Returns the CUDA device number of an engine's ncclComm_t.
Result<int32_t> nccl_device(void* nccl_comm);

/// Creates an mpi comm of the ranks of the communicator at `mpi_comm`, which is an MPI_Comm or a
/// Fortran integer of size `bytes`; nullptr means all ranks. If the ranks are on one host and
/// `local` is true, creates a local comm instead. Collective.
Result<std::shared_ptr<Comm>> create_mpi(const void* mpi_comm, size_t bytes,
                                         const CommOptions& options, bool local = true);

Result<std::shared_ptr<Comm>> create_user(const UserFunctions& functions, void* ctx, int32_t rank,
                                          int32_t world, const CommOptions& options);

}  // namespace zero
