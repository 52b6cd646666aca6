/* Whole numbers compared. */
#ifndef BASE_NUMBER_H
#define BASE_NUMBER_H
#include <stdint.h>

static inline int64_t number_lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t number_greater(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
