/* Making weights of 8 and 4 bits: one row, an output's weights, at a time. */
#ifndef AUTOGRAD_LOWBIT_QUANTISE_H
#define AUTOGRAD_LOWBIT_QUANTISE_H
#include "autograd/lowbit.h"

/* n finite numbers -> lowbit_row_bytes(kind, n) bytes at `numbers`, and *scale of LOWBIT_INT8 (else may be NULL).
 *
 *   INT8, Q8_0   scale = max |x| / 127, of the row or of each block
 *   Q4_0         of each block the scale with the smallest squared error among 27 around max / -8 (the number of the largest magnitude
 *                becomes q = 0, value -8) and max / 7, each refined once: for given q the best scale is sum x (q - 8) / sum (q - 8)^2
 *
 * Scales of blocks are rounded to half precision before numbers are; one too large for it is the largest half. */
void lowbit_quantise(LowbitKind kind, int64_t n, const float *x, void *numbers, float *scale);

#endif
