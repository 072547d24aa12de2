/* SPDX-License-Identifier: Apache-2.0 */
/* Support for C tests: named phases, each of which prints a line of TAP, and checks that print
 * their expression. */
#ifndef TAP_H
#define TAP_H

#include <stdio.h>
#include <string.h>

#include "zero.h"

static int g_phases, g_failures, g_failed_here;

#define CHECK(condition)                                       \
  do {                                                         \
    if (!(condition)) {                                        \
      printf("# %s:%d: %s\n", __FILE__, __LINE__, #condition); \
      g_failed_here++;                                         \
    }                                                          \
  } while (0)

/* Checks that the status is as expected, and that the text of a failure contains `words`. */
#define CHECK_STATUS(expected, call) check_status((expected), (call), NULL, #call, __LINE__)
#define CHECK_REFUSED(expected, words, call) \
  check_status((expected), (call), (words), #call, __LINE__)

static inline void check_status(zero_status expected, zero_status got, const char *words,
                                const char *call, int line) {
  if (got == expected && (words == NULL || strstr(zero_last_error(), words) != NULL)) return;
  printf("# line %d: %s: %s, wanted %s%s%s; last error: %s\n", line, call, zero_status_name(got),
         zero_status_name(expected), words ? " saying " : "", words ? words : "",
         zero_last_error());
  g_failed_here++;
}

static inline void phase(const char *name, void (*body)(void)) {
  g_failed_here = 0;
  body();
  printf("%s %d - %s\n", g_failed_here ? "not ok" : "ok", ++g_phases, name);
  fflush(stdout);
  g_failures += g_failed_here != 0;
}

static inline int finish(void) {
  printf("1..%d\n", g_phases);
  return g_failures != 0;
}

#endif
