/* How often each code comes, as the numbers that entropy coding (rans.h) goes by: of each group K numbers of 16 bits that sum to 2^16, each
 * at least 1, so that every code can be sent. They belong to a codebook, as both sides need the same ones. */
#ifndef VQ_CODE_FREQUENCIES_H
#define VQ_CODE_FREQUENCIES_H
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { CODE_FREQUENCIES_MOST = 16384 /* K: beyond it the least frequency of 1 costs more than coding gains */ };

bool code_frequencies_possible(int64_t entries);

/* counts [K], not negative (all 0: equally often) -> frequencies [K], by largest remainders, the lowest code first among equals. */
Status code_frequencies_fit(const double *counts, int64_t entries, uint16_t *frequencies);

/* BAD_VALUE, saying why, when they are no such numbers: from a file. */
Status code_frequencies_check(const uint16_t *frequencies, int64_t entries);

/* Mean bits of a code where codes come as counted: sum of p log2(2^16 / frequency); 0 for no counts. */
double code_frequencies_bits(const double *counts, const uint16_t *frequencies, int64_t entries);

/* The same where codes come as the frequencies say: their entropy. */
double code_frequencies_entropy(const uint16_t *frequencies, int64_t entries);

#endif
