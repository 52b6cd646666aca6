/* What every fuzz target is and uses: the function that an engine, or replay_main.c, calls with one input, and what must hold of it. */
#ifndef FUZZ_H
#define FUZZ_H
#include <stdbool.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void need(bool holds) {
  if (!holds) abort();
}

#endif
