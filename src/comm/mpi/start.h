// SPDX-License-Identifier: Apache-2.0
// Begins MPI for programs that do not use it themselves.
#pragma once

#include "base/status.h"
#include "comm/mpi/library.h"

namespace zero::mpi {

/// Returns the MPI that is loaded. If nobody has loaded one, opens the first that is found:
/// $ZERO_MPI_PATH, or by its usual names. Fails with ZERO_ERR_UNSUPPORTED, which says what is
/// missing.
Result<const Library*> open();

/// Makes sure that MPI is loaded and initialized; if `may_open`, by open(). What it has initialized
/// ends when the process exits. Fails as open() does.
Status start(bool may_open);

}  // namespace zero::mpi
