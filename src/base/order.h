/* The common orders for qsort and bsearch, and the median. */
#ifndef BASE_ORDER_H
#define BASE_ORDER_H
#include <stddef.h>

int order_by_bytes(const void *a, const void *b); /* of elements that are char *, each up to its NUL */
int order_by_size(const void *a, const void *b);  /* of doubles, the least first; none is NAN */

/* Sorts values [count >= 1] by size; of an even count the mean of the two in the middle. */
double order_median(double *values, size_t count);

#endif
