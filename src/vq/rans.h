/* Entropy coding: each code takes about -log2 of its frequency in bits (range asymmetric numeral systems: Duda, 2013). Integer arithmetic
 * only, so that all machines agree. Frequencies are 16 bits wide, the state stays in [2^23, 2^31) and is refilled by bytes.
 *
 *   bytes   the state after the last symbol coded, 4, little-endian | bytes that refill it
 *
 * Symbols are the codes of token 0's groups, then of token 1's...; they are coded from the last to the first and read from the first on. A
 * stream is canonical: rans_decode accepts only what rans_encode makes of the codes. Thread-safe. */
#ifndef VQ_RANS_H
#define VQ_RANS_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RANS_BITS = 16, RANS_TOTAL = 1 << RANS_BITS, RANS_STATE = 4 /* bytes before the first symbol */, RANS_BUCKETS = 256 };

/* Of one group: code k has the slots [start[k], start[k + 1]), at least one; start[entries] = RANS_TOTAL. */
typedef struct RansTable {
  int64_t entries;        /* K */
  const uint32_t *start;  /* [K + 1] */
  const uint16_t *bucket; /* [RANS_BUCKETS] the code of each 256th slot: where a search begins */
} RansTable;

/* Tables of frequencies [count, K], each at least 1 and each group summing to RANS_TOTAL: [count], in one block of memory. */
Status rans_tables_new(RansTable **tables, const uint16_t *frequencies, int64_t count, int64_t entries);
void rans_tables_free(RansTable *tables); /* accepts NULL */

/* codes [tokens, groups], tables [groups] -> number of bytes written; 0: more than `room` (the contents of out are undefined). Zero tokens
 * take RANS_STATE bytes. */
size_t rans_encode(const RansTable *tables, const int32_t *codes, int64_t tokens, int64_t groups, uint8_t *out, size_t room);

/* Untrusted bytes: BAD_VALUE unless they are exactly what rans_encode makes of this many tokens. */
Status rans_decode(const RansTable *tables, int64_t tokens, int64_t groups, const uint8_t *in, size_t bytes, int32_t *codes);

/* Code frequencies for entropy coding: for each group K 16-bit numbers that sum to 2^16, each at least 1, so that every code can be sent.
 * They belong to a codebook: both sides need the same ones. */

enum { CODE_FREQUENCIES_MAX = 16384 /* K: beyond it the minimum frequency of 1 costs more than coding gains */ };

bool code_frequencies_possible(int64_t entries);

/* counts [K], not negative (all 0: equally often) -> frequencies [K], by largest remainders, the lowest code first among equals. */
Status code_frequencies_fit(const double *counts, int64_t entries, uint16_t *frequencies);

/* Mean bits per code for the counted distribution: sum of p log2(2^16 / frequency); 0 for no counts. counts NULL: for the distribution that
 * the frequencies state, which is its entropy. */
double code_frequencies_bits(const double *counts, const uint16_t *frequencies, int64_t entries);

#endif
