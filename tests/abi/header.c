/* SPDX-License-Identifier: Apache-2.0 */
/* zero.h alone, before any other header, in the strictest form of each language version. */
#include "zero.h"

/* Included twice: the guard. */
#include "zero.h"

uint32_t header_uses_the_library(const zero_options *options);
uint32_t header_uses_the_library(const zero_options *options) {
  return zero_version() + (uint32_t)(options->optimizer + ZERO_OPTIMIZER_SGD);
}
