/* An array whose numbers are kept in full or as bf16, and functions to read and write a part of it in full. */
#ifndef AUTOGRAD_NUMBERS_H
#define AUTOGRAD_NUMBERS_H
#include "autograd/kernels/kernels.h"

/* One of both is set; neither: there is no array. */
typedef struct Numbers {
  real *wide;
  uint16_t *narrow; /* bf16 */
} Numbers;

static inline bool numbers_exist(Numbers numbers) { return numbers.wide != NULL || numbers.narrow != NULL; }

static inline Numbers numbers_from(Numbers numbers, int64_t first) {
  return (Numbers){numbers.wide ? numbers.wide + first : NULL, numbers.narrow ? numbers.narrow + first : NULL};
}

/* `count` numbers in full: the array's own if it is, else widened into `stage` [count]. */
static inline const real *numbers_read(Numbers numbers, int64_t first, int64_t count, real *stage) {
  if (numbers.wide) return numbers.wide + first;
  kernels()->widen(NARROW_BF16, count, numbers.narrow + first, stage);
  return stage;
}

/* Where to write `count` numbers before numbers_written: in the array itself or, for bf16, in `stage` [count]. */
static inline real *numbers_place(Numbers numbers, int64_t first, real *stage) { return numbers.wide ? numbers.wide + first : stage; }

static inline void numbers_written(Numbers numbers, int64_t first, int64_t count, const real *stage) {
  if (numbers.narrow) kernels()->narrow(count, stage, numbers.narrow + first);
}

#endif
