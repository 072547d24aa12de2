// SPDX-License-Identifier: Apache-2.0
// Removes what the headers of glibc 2.28 and Linux 4.18 do not have. Included before all else.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#undef F_SEAL_FUTURE_WRITE
#undef MADV_POPULATE_READ
#undef MADV_POPULATE_WRITE
#undef SYS_pidfd_getfd
#undef SYS_pidfd_open
#undef SYS_close_range
