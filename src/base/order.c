/* Two elements that are equal compare as 0: what tells them apart is not known here. */
#include "base/order.h"
#include <stdlib.h>
#include <string.h>

int order_by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int order_by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double order_median(double *values, size_t count) {
  qsort(values, count, sizeof *values, order_by_size);
  return (values[(count - 1) / 2] + values[count / 2]) / 2;
}
