/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles shim.c with function pointers that have MPI's names and are set at run time. */
#include "comm/mpi/standard.h"

#include <dlfcn.h>
#include <string.h>

#include "comm/mpi/abi.h"

#define DECLARE(type, name, arguments) static type(*MPI_##name) arguments;
MPI_FUNCTIONS(DECLARE)
/* Its name in older MPIs. */
#define MPI_Comm_f2c MPI_Comm_fromint

#include "comm/mpi/shim.c"

const struct mpi_functions *mpi_standard(void *library, const char **missing) {
#define ROW(type, name, arguments) {"MPI_" #name, &MPI_##name},
  const struct {
    const char *name;
    void *function;
  } rows[] = {MPI_FUNCTIONS(ROW)};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    void *const found = dlsym(library, rows[i].name);
    *missing = rows[i].name;
    if (found == NULL) return NULL;
    memcpy(rows[i].function, &found, sizeof found);
  }
  return &table;
}
