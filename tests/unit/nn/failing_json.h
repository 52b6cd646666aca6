/* Lets one allocation of the JSON library fail: include it in the program's only file. */
#ifndef TESTS_NN_FAILING_JSON_H
#define TESTS_NN_FAILING_JSON_H
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

static long failing_json_left;

static inline void *failing_json_malloc(size_t size) { return failing_json_left-- == 0 ? NULL : malloc(size); }

/* The one after this many; those behind it succeed again, so that what was lost is seen only by who looks at every result. */
static inline void failing_json_start(long allocations) {
  failing_json_left = allocations;
  json_set_alloc_funcs(failing_json_malloc, free);
}

/* Whether it came to that. */
static inline bool failing_json_stop(void) {
  json_set_alloc_funcs(malloc, free);
  return failing_json_left < 0;
}

#endif
