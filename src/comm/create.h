// SPDX-License-Identifier: Apache-2.0
// Makes seats: one function for each backend, and one that chooses by the launcher's variables.
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

/// `device`: that of parameters and gradients; nullptr: they are in the host's memory.
Result<std::shared_ptr<Comm>> create_solo(const CommOptions& options,
                                          std::shared_ptr<Device> device = nullptr);

/// `word`: a secret that only the ranks of one job know; "": none. It keeps jobs apart that choose
/// one name, and keeps other users' processes away if the system cannot tell them.
Result<std::shared_ptr<Comm>> create_local(std::string_view name, int32_t rank, int32_t world,
                                           const CommOptions& options,
                                           std::shared_ptr<Device> device = nullptr,
                                           std::string_view word = {});

/// Returns the word of the job in which a launcher started this process, by the environment; "" if
/// there is none, as for a single rank.
std::string word_of_job();

/// Opens a rank's device by its place among the ranks of its host, -1 if unknown.
using OpenDevice = std::function<Result<std::shared_ptr<Device>>(int32_t local_rank)>;

/// Makes the comm that the environment asks for. -1 in `given` means the default, which ZERO_*_MS
/// variables may change. Without `open` the comm is on the host.
Result<std::shared_ptr<Comm>> create_env(CommOptions given, const OpenDevice& open);
/// Does the same by variables of the caller's choice.
Result<std::shared_ptr<Comm>> create_env(const Lookup& lookup, CommOptions given,
                                         const OpenDevice& open);

/// The engine's own collectives, in the library's own words; src/api makes them from zero.h's
/// vtable. Each returns ZERO_OK or the engine's code.
struct UserFunctions {
  Code (*exchange)(void* ctx, const void* send, void* recv, size_t bytes) = nullptr;
  Code (*all_gather)(void* ctx, const void* send, void* recv, size_t bytes, void* stream) = nullptr;
  Code (*all_to_all)(void* ctx, const void* send, void* recv, size_t bytes, void* stream) = nullptr;
  Code (*reduce_scatter)(void* ctx, const void* send, void* recv, size_t count, int32_t dtype,
                         void* stream) = nullptr;
  Code (*split)(void* ctx, int32_t color, int32_t rank, int32_t world, void** child) = nullptr;
  void (*free)(void* ctx) = nullptr;
};

/// An id that makes its ranks one group, drawn by one of them.
using NcclId = std::array<std::byte, 128>;
Result<NcclId> nccl_unique_id();

/// Fails with ZERO_ERR_ARGUMENT unless there is such a rank.
Status check_seat(int32_t rank, int32_t world);

/// Collective; every rank has a device of its own.
Result<std::shared_ptr<Comm>> create_nccl(std::shared_ptr<Device> device, const NcclId& id,
                                          int32_t rank, int32_t world, const CommOptions& options);

/// Makes an nccl comm of the ranks of an engine's ncclComm_t, which stays the engine's.
Result<std::shared_ptr<Comm>> wrap_nccl(std::shared_ptr<Device> device, void* nccl_comm,
                                        const CommOptions& options);
/// Returns the number of the CUDA device of an engine's ncclComm_t.
Result<int32_t> nccl_device(void* nccl_comm);

/// Makes an mpi comm of the ranks of the communicator at `mpi_comm`: an MPI_Comm or a Fortran
/// integer, by its size; nullptr: all ranks. If they are on one host, and `local` is true, it is a
/// local comm. Collective.
Result<std::shared_ptr<Comm>> create_mpi(const void* mpi_comm, size_t bytes,
                                         const CommOptions& options, bool local = true);

Result<std::shared_ptr<Comm>> create_user(const UserFunctions& functions, void* ctx, int32_t rank,
                                          int32_t world, const CommOptions& options);

}  // namespace zero
