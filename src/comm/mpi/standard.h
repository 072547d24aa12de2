/* SPDX-License-Identifier: Apache-2.0 */
/* The table of shim.h for an MPI of the standard ABI. */
#pragma once

#include "comm/mpi/shim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the functions of the MPI that `library`, a handle of dlopen's, names. Returns NULL, and the
 * name of a function in `missing`, if it lacks one. */
const struct mpi_functions *mpi_standard(void *library, const char **missing);

#ifdef __cplusplus
}
#endif
