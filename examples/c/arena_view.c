/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the CUDA driver at run time, so that the program needs no CUDA to be built, or to run on
 * the host. */
#include "arena_view.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "zero.h"

/* Declarations from cuda.h; comments have the driver's names. */
typedef int result;            /* CUresult */
typedef unsigned long long at; /* CUdeviceptr */
enum { DEVICE_ORDINAL = 9 };   /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */

static struct {
  result (*copy)(at to, at from, size_t bytes);
  result (*synchronize)(void);
  result (*words)(result error, const char **text);
} cuda;

/* dlsym() returns an object pointer, but C needs a function pointer. */
static int find(void *library, const char *name, void *function) {
  *(void **)function = dlsym(library, name);
  return *(void **)function != NULL;
}

static const char *problem(result error) {
  const char *text = "unknown";
  if (error == 0) return NULL;
  (void)cuda.words(error, &text);
  return text;
}

/* Makes this thread use the GPU of `arena`. */
static const char *use_gpu_of(void *arena) {
  result (*attribute)(void *out, int which, at address);
  result (*retain)(void **context, int device);
  result (*set_current)(void *context);
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
  void *context = NULL;
  int ordinal = 0;
  result error;
  if (driver == NULL) return dlerror();
  if (!find(driver, "cuPointerGetAttribute", &attribute) ||
      !find(driver, "cuDevicePrimaryCtxRetain", &retain) ||
      !find(driver, "cuCtxSetCurrent", &set_current) || !find(driver, "cuMemcpy", &cuda.copy) ||
      !find(driver, "cuCtxSynchronize", &cuda.synchronize) ||
      !find(driver, "cuGetErrorString", &cuda.words)) {
    return dlerror();
  }
  /* A CUdevice is its ordinal. */
  error = attribute(&ordinal, DEVICE_ORDINAL, (at)(uintptr_t)arena);
  if (error == 0) error = retain(&context, ordinal);
  if (error == 0) error = set_current(context);
  return problem(error);
}

const char *arena_view_open(struct arena_view *view, void *arena, size_t bytes, int32_t device) {
  view->arena = arena;
  view->bytes = bytes;
  view->host = device == ZERO_DEVICE_HOST ? arena : calloc(1, bytes);
  if (view->host == NULL) return "out of memory";
  return device == ZERO_DEVICE_HOST ? NULL : use_gpu_of(arena);
}

static const char *copy(const struct arena_view *view, void *to, const void *from) {
  result error;
  if (view->host == view->arena) return NULL;
  error = cuda.copy((at)(uintptr_t)to, (at)(uintptr_t)from, view->bytes);
  if (error == 0) error = cuda.synchronize();
  return problem(error);
}

const char *arena_view_send(const struct arena_view *view) {
  return copy(view, view->arena, view->host);
}

const char *arena_view_fetch(const struct arena_view *view) {
  return copy(view, view->host, view->arena);
}

void arena_view_close(struct arena_view *view) {
  if (view->host != view->arena) free(view->host);
  view->host = NULL;
}
