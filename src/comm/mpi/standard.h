/* SPDX-License-Identifier: Apache-2.0 */
/* The table of shim.h for an MPI with the standard ABI. */
#pragma once

#include "comm/mpi/shim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Looks up the functions of the MPI with the dlopen handle `library`. If one is missing, returns
 * NULL and stores its name in `missing`. */
const struct mpi_functions *mpi_standard(void *library, const char **missing);

#ifdef __cplusplus
}
#endif
