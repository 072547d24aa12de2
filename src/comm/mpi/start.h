// SPDX-License-Identifier: Apache-2.0
// Begins MPI for programs that do not use it themselves.
#pragma once

#include "base/status.h"

namespace zero::mpi {

/// Makes sure that MPI is loaded and initialized. If nobody has loaded one and `may_open`, opens
/// the first that is found: $ZERO_MPI_PATH, or by its usual names. What it has initialized ends
/// when the process exits. Fails with ZERO_ERR_UNSUPPORTED, which says what is missing.
Status start(bool may_open);

}  // namespace zero::mpi
