/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles zero.h alone, before any other header, in the strictest mode of each language version.
 */
#include "zero.h"

/* Included twice, to test the guard. */
#include "zero.h"

/* ZERO_INIT accepts any lvalue, and evaluates it once. */
struct outer {
  zero_param array[2];
  zero_param* pointer;
};
void header_makes_structs(struct outer* outer, int i);
void header_makes_structs(struct outer* outer, int i) {
  zero_options options;
  ZERO_INIT(options);
  ZERO_INIT(outer->array[i]);
  ZERO_INIT(*outer->pointer++);
  if (i == 0)
    ZERO_INIT(outer->array[1]);
  else
    ZERO_INIT((*outer).pointer[options.struct_size != sizeof options]);
}

uint32_t header_uses_the_library(const zero_options* options);
uint32_t header_uses_the_library(const zero_options* options) {
  return zero_version() + (uint32_t)(options->optimizer + ZERO_OPTIMIZER_SGD);
}
