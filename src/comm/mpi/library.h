// SPDX-License-Identifier: Apache-2.0
// The MPI of this process: never linked, never closed.
#pragma once

#include <string>

#include "base/status.h"
#include "comm/link.h"
#include "comm/mpi/shim.h"

namespace zero::mpi {

struct Library {
  const mpi_functions* calls;
  std::string path;
  std::string shim = {};  // its path; "": none is needed
};

/// Returns the MPI that is loaded in this process, initialized. Fails with ZERO_ERR_UNSUPPORTED if
/// none is, if two are, or if it has an ABI of its own and no shim for it is found; or as
/// check_running() does.
Result<const Library*> library();

/// Does the same, whether or not it is initialized.
Result<const Library*> loaded_library();
/// True if any is loaded.
bool is_any_loaded();

/// Returns why MPI cannot be called now: it is not initialized, or no longer.
Status check_running(const Library& library);

/// Returns OK if `error` is none; otherwise ZERO_ERR_COMM with MPI's words.
Status outcome(const Library& library, const char* what, int error);

/// Waits until MPI has ended what `request` is of, in a rendezvous. Fails with ZERO_ERR_RENDEZVOUS
/// at the deadline, or with what `bounds` say; then MPI may still use all that it was given.
Status await(const Library& library, const char* what, mpi_handle& request, const Bounds& bounds);

}  // namespace zero::mpi
