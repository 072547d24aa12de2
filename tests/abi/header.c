/* SPDX-License-Identifier: Apache-2.0 */
/* zero.h alone, before any other header, in the strictest form of each language version. */
#include "zero.h"

/* Included twice: the guard. */
#include "zero.h"

uint32_t header_uses_the_library(void);
uint32_t header_uses_the_library(void) {
  zero_options options = {0};
  options.struct_size = sizeof options;
  return zero_version() + (uint32_t)(options.optimizer + ZERO_OK);
}
