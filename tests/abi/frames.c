/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the frames from zero_step to the loop of its rule. That loop is the first to write a
 * parameter, whose page is read-only, and the handler of the fault reads the stack. Compilers hide
 * frames; a build with -Doptimization=0 has them all. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tap.h"

enum { COUNT = 1024, BYTES = COUNT * (int)sizeof(float), MOST = 14 };

static float *g_params;
static void *g_stack[64];
static int g_depth;

static void look(int number) {
  (void)number;
  g_depth = backtrace(g_stack, 64);
  mprotect(g_params, BYTES, PROT_READ | PROT_WRITE);
}

static void print_frame(const Dl_info *library, const void *address) {
  char command[1024];
  const unsigned long place =
      (unsigned long)((const char *)address - (const char *)library->dli_fbase);
  snprintf(command, sizeof command, "addr2line -Cfe '%s' %#lx 2>&1 | head -n 1 | sed 's/^/# /'",
           library->dli_fname, place - 1); /* in the call, not after it */
  fflush(stdout);
  if (system(command) != 0) printf("# %#lx\n", place);
}

static int frames_of_the_library(void) {
  Dl_info library, of;
  int frames = 0;
  zero_status (*const step)(zero_optim *, const zero_step_options *) = zero_step;
  void *address;
  memcpy(&address, &step, sizeof address);
  if (!dladdr(address, &library)) return 0;
  for (int i = 0; i < g_depth; i++) {
    if (!dladdr(g_stack[i], &of) || of.dli_fbase != library.dli_fbase) continue;
    print_frame(&library, g_stack[i]);
    frames++;
  }
  return frames;
}

static void depth(void) {
  static float grads[COUNT];
  static const int64_t shape[] = {COUNT};
  const struct sigaction on_fault = {.sa_handler = look};
  struct sigaction before;
  zero_comm *comm = NULL;
  zero_optim *optim = NULL;
  zero_options options;
  zero_param param;
  int frames;

  backtrace(g_stack, 1); /* loads its library outside of a handler */
  g_params = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(g_params != MAP_FAILED);
  ZERO_INIT(options);
  options.threads = 1; /* that of the caller */
  ZERO_INIT(param);
  param.name = "weight";
  param.data = g_params;
  param.grad = grads;
  param.shape = shape;
  param.ndim = 1;
  CHECK_STATUS(ZERO_OK, zero_comm_create_solo(&comm, NULL));
  CHECK_STATUS(ZERO_OK, zero_create(&optim, comm, &options));
  CHECK_STATUS(ZERO_OK, zero_register_params(optim, NULL, &param, 1, NULL));
  CHECK_STATUS(ZERO_OK, zero_step(optim, NULL)); /* the first step allocates */

  sigaction(SIGSEGV, &on_fault, &before);
  mprotect(g_params, BYTES, PROT_READ);
  CHECK_STATUS(ZERO_OK, zero_step(optim, NULL));
  sigaction(SIGSEGV, &before, NULL);
  frames = frames_of_the_library();
  printf("# %d frames\n", frames);
  CHECK(frames > 0 && frames <= MOST);
  zero_free(optim);
  zero_comm_free(comm);
  munmap(g_params, BYTES);
}

int main(void) {
  phase("a step reaches its rule in at most 14 frames", depth);
  return finish();
}
