/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the size, alignment, offsets and field sizes of every struct of zero.h as JSON. The tests
 * of bindings compare their own declarations with it. layout_rows.py generates the rows.
 */
#include <stddef.h>
#include <stdio.h>

#include "zero.h"

static const char* g_between = "";

static void begin_struct(const char* name, size_t size, size_t align) {
  printf("%s\n  \"%s\": {\"size\": %zu, \"align\": %zu, \"fields\": {", g_between, name, size,
         align);
  g_between = "";
}

static void print_field(const char* name, size_t offset, size_t size) {
  printf("%s\n    \"%s\": {\"offset\": %zu, \"size\": %zu}", g_between, name, offset, size);
  g_between = ",";
}

static void end_struct(void) {
  printf("}}");
  g_between = ",";
}

#define STRUCT(type)                \
  begin_struct(#type, sizeof(type), \
               offsetof(            \
                   struct {         \
                     char before;   \
                     type it;       \
                   },               \
                   it));
#define FIELD(type, field) print_field(#field, offsetof(type, field), sizeof(((type*)0)->field));
#define END() end_struct();

int main(void) {
  printf("{");
#include "layout_rows.h"
  printf("\n}\n");
  return 0;
}
