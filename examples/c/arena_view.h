/* SPDX-License-Identifier: Apache-2.0 */
/* The host's view of an arena: the arena itself or, for an arena on a GPU, a copy. It is for
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

/* Opens a view of an arena; `device` is the comm's, a ZERO_DEVICE_*. All calls return NULL on
 * success, and the text of the error otherwise. */
const char *arena_view_open(struct arena_view *view, void *arena, size_t bytes, int32_t device);
/* Copies the host's data to the GPU before it returns. On the host it does nothing. */
const char *arena_view_send(const struct arena_view *view);
/* Copies the GPU's data to the host, after the work that is queued on the default stream. */
const char *arena_view_fetch(const struct arena_view *view);
void arena_view_close(struct arena_view *view);

#endif
