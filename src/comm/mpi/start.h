// SPDX-License-Identifier: Apache-2.0
// Starts MPI for programs that do not use it themselves.
#pragma once

#include "base/status.h"
#include "comm/mpi/library.h"

namespace zero::mpi {

/// Returns the loaded MPI. If none is loaded, opens $ZERO_MPI_PATH, or the first of the usual
/// names. Fails with ZERO_ERR_UNSUPPORTED, which says what is missing.
Result<const Library*> open();

/// Makes sure that MPI is loaded and initialized. If `may_open` is true, it opens and initializes
/// MPI itself where necessary, and finalizes it when the process exits. Fails as open() does.
Status start(bool may_open);

}  // namespace zero::mpi
