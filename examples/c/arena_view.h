/* SPDX-License-Identifier: Apache-2.0 */
/* An arena as the host sees it: the arena itself or, of an arena on a GPU, a copy of it. For
 * programs that compute on the host while parameters and gradients are on a GPU. */
#ifndef ARENA_VIEW_H
#define ARENA_VIEW_H

#include <stddef.h>
#include <stdint.h>

struct arena_view {
  char *host;
  void *arena;
  size_t bytes;
};

/* Of an arena of a comm on `device`, a ZERO_DEVICE_*. These return NULL, or what went wrong. */
const char *arena_view_open(struct arena_view *view, void *arena, size_t bytes, int32_t device);
/* What the host wrote goes to the GPU; done on return. Nothing to do on the host. */
const char *arena_view_send(const struct arena_view *view);
/* The contrary, behind what is queued on the default stream. */
const char *arena_view_fetch(const struct arena_view *view);
void arena_view_close(struct arena_view *view);

#endif
