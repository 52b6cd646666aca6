/* Codes as bits, each in about -log2 of its frequency (range asymmetric numeral systems: Duda, 2013): pure integers, so that all machines
 * agree. Frequencies are 16 bits wide, the state stays in [2^23, 2^31) and is refilled by bytes.
 *
 *   bytes   the state after the last symbol coded, 4, little-endian | bytes that refill it
 *
 * Symbols are the codes of token 0's groups, then of token 1's...; they are coded from the last to the first and read from the first. A
 * stream has one form alone: what rans_decode accepts is what rans_encode makes of the codes. Threads: anybody's. */
#ifndef VQ_RANS_H
#define VQ_RANS_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { RANS_BITS = 16, RANS_TOTAL = 1 << RANS_BITS, RANS_STATE = 4 /* bytes before the first symbol */, RANS_BUCKETS = 256 };

/* Of one group: code k has the slots [start[k], start[k + 1]), at least one; start[entries] = RANS_TOTAL. */
typedef struct RansTable {
  int64_t entries;        /* K */
  const uint32_t *start;  /* [K + 1] */
  const uint16_t *bucket; /* [RANS_BUCKETS] the code of each 256th slot: where a search begins */
} RansTable;

/* Tables of frequencies [count, K] (code_frequencies.h), which must be right (code_frequencies_check): [count], in one block of memory. */
Status rans_tables_new(RansTable **tables, const uint16_t *frequencies, int64_t count, int64_t entries);
void rans_tables_free(RansTable *tables); /* accepts NULL */

/* codes [tokens, groups], tables [groups] -> the bytes it takes; 0: more than `room`, whose contents are then undefined. No tokens take
 * RANS_STATE bytes. */
size_t rans_encode(const RansTable *tables, const int32_t *codes, int64_t tokens, int64_t groups, uint8_t *out, size_t room);

/* Hostile bytes: BAD_VALUE unless they are exactly what rans_encode makes of so many tokens. */
Status rans_decode(const RansTable *tables, int64_t tokens, int64_t groups, const uint8_t *in, size_t bytes, int32_t *codes);

#endif
