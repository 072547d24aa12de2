// SPDX-License-Identifier: Apache-2.0
// The MPI library of this process. libzero does not link to it, and never closes it.
#pragma once

#include <string>

#include "base/status.h"
#include "comm/link.h"
#include "comm/mpi/shim.h"

namespace zero::mpi {

struct Library {
  const mpi_functions* calls;
  std::string path;
  std::string shim = {};  // its path; "" if none is needed
};

/// Returns the MPI that is loaded in this process and initialized. Fails with ZERO_ERR_UNSUPPORTED
/// if none or two are loaded, or if it has its own ABI and no shim for it is found. Also fails as
/// check_running() does.
Result<const Library*> library();

/// Returns the loaded MPI, whether or not it is initialized.
Result<const Library*> loaded_library();
/// Returns true if any MPI is loaded.
bool is_any_loaded();

/// Fails if MPI cannot be called now, because it is not initialized or has been finalized.
Status check_running(const Library& library);

/// Returns OK if `error` is MPI_SUCCESS, and otherwise ZERO_ERR_COMM with MPI's message.
Status outcome(const Library& library, const char* what, int error);

/// Waits until MPI has completed `request`, in a rendezvous. Fails with ZERO_ERR_RENDEZVOUS at the
/// deadline, or with the failure of `bounds`. MPI may still use the request's buffers then.
Status await(const Library& library, const char* what, mpi_handle& request, const Bounds& bounds);

}  // namespace zero::mpi
