/* Range asymmetric numeral systems: see rans.h. Coding a symbol of frequency f takes the state x to about x 2^16 / f; decoding undoes it
 * step by step. Decoding is a search: by bucket and then binary it takes a third of the time of a search of all of 1,024 codes
 * (tests/bench/bench_rans.c); a table of all 2^16 slots would take 64 KiB per group, and those of 32 groups would fill the cache. */
#include "vq/rans.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t MIN = UINT32_C(1) << 23;

/* ---- tables */

Status rans_tables_new(RansTable **out, const uint16_t *frequencies, int64_t count, int64_t entries) {
  size_t starts = (size_t)(entries + 1) * sizeof(uint32_t), each = sizeof(RansTable) + starts + RANS_BUCKETS * sizeof(uint16_t);
  RansTable *tables = malloc((size_t)count * each);
  *out = tables;
  if (tables == NULL) return status_set(STATUS_NO_MEMORY, "no memory for %lld tables of %lld codes", (long long)count, (long long)entries);
  uint32_t *start = (uint32_t *)(tables + count);
  uint16_t *bucket = (uint16_t *)(start + count * (entries + 1));
  for (int64_t t = 0; t < count; t++, start += entries + 1, bucket += RANS_BUCKETS) {
    tables[t] = (RansTable){entries, start, bucket};
    start[0] = 0;
    for (int64_t k = 0; k < entries; k++) start[k + 1] = start[k] + frequencies[t * entries + k];
    int64_t code = 0;
    for (uint32_t b = 0; b < RANS_BUCKETS; b++) {
      while (start[code + 1] <= b * (RANS_TOTAL / RANS_BUCKETS)) code++;
      bucket[b] = (uint16_t)code;
    }
  }
  return STATUS_OK;
}

void rans_tables_free(RansTable *tables) { free(tables); }

/* ---- encoding */

/* One symbol; bytes that leave the state go before `at`. False: no room. */
static bool put(const RansTable *table, int32_t code, uint32_t *state, const uint8_t *begin, uint8_t **at) {
  uint32_t start = table->start[code], frequency = table->start[code + 1] - start, max = ((MIN >> RANS_BITS) << 8) * frequency;
  for (; *state >= max; *state >>= 8) {
    if (*at == begin) return false;
    *--*at = (uint8_t)*state;
  }
  *state = (*state / frequency << RANS_BITS) + *state % frequency + start;
  return true;
}

size_t rans_encode(const RansTable *tables, const int32_t *codes, int64_t tokens, int64_t groups, uint8_t *out, size_t room) {
  uint8_t *at = out + room;
  uint32_t state = MIN;
  for (int64_t i = tokens * groups - 1; i >= 0; i--)
    if (!put(&tables[i % groups], codes[i], &state, out, &at)) return 0;
  if (at - out < RANS_STATE) return 0;
  for (int b = RANS_STATE - 1; b >= 0; b--) *--at = (uint8_t)(state >> (8 * b));
  size_t size = room - (size_t)(at - out);
  memmove(out, at, size);
  return size;
}

/* ---- decoding */

/* The code whose slots hold this one. */
static int32_t find(const RansTable *table, uint32_t slot) {
  uint32_t b = slot / (RANS_TOTAL / RANS_BUCKETS);
  int64_t first = table->bucket[b], last = b + 1 < RANS_BUCKETS ? table->bucket[b + 1] : table->entries - 1, count = last - first + 1;
  while (count > 1) {
    int64_t half = count / 2;
    if (table->start[first + half] <= slot)
      first += half, count -= half;
    else
      count = half;
  }
  return (int32_t)first;
}

static Status damaged(const char *what) {
  return status_set(STATUS_BAD_VALUE, "coded codes: %s; the bytes are damaged, or belong to another codebook", what);
}

Status rans_decode(const RansTable *tables, int64_t tokens, int64_t groups, const uint8_t *in, size_t bytes, int32_t *codes) {
  if (bytes < RANS_STATE) return damaged("they are too short");
  const uint8_t *end = in + bytes;
  uint32_t state = 0;
  for (int b = 0; b < RANS_STATE; b++) state |= (uint32_t)*in++ << (8 * b);
  if (state < MIN || state >= MIN << 8) return damaged("they begin with no state");
  for (int64_t i = 0; i < tokens * groups; i++) {
    const RansTable *table = &tables[i % groups];
    uint32_t slot = state & (RANS_TOTAL - 1);
    int32_t code = codes[i] = find(table, slot);
    state = (table->start[code + 1] - table->start[code]) * (state >> RANS_BITS) + slot - table->start[code];
    for (; state < MIN; state = state << 8 | *in++)
      if (in == end) return damaged("they end too early");
  }
  return in == end && state == MIN ? STATUS_OK : damaged("they do not end where the last code does");
}

/* ---- frequencies of codes */

bool code_frequencies_possible(int64_t entries) { return entries >= 2 && entries <= CODE_FREQUENCIES_MAX; }

typedef struct Remainder {
  double rest;
  int64_t code;
} Remainder;

static int by_rest(const void *a, const void *b) {
  const Remainder *x = a, *y = b;
  if (x->rest != y->rest) return x->rest > y->rest ? -1 : 1;
  return x->code < y->code ? -1 : 1;
}

Status code_frequencies_fit(const double *counts, int64_t entries, uint16_t *frequencies) {
  double total = 0;
  if (!code_frequencies_possible(entries))
    return status_set(STATUS_BAD_VALUE, "frequencies of %lld codes: between 2 and %d are accepted", (long long)entries,
                      CODE_FREQUENCIES_MAX);
  for (int64_t k = 0; k < entries; k++) {
    if (!(counts[k] >= 0)) return status_set(STATUS_BAD_VALUE, "code %lld was counted %g times", (long long)k, counts[k]);
    total += counts[k];
  }
  if (!isfinite(total)) return status_set(STATUS_BAD_VALUE, "codes were counted %g times in all", total);
  Remainder *remainders = malloc((size_t)entries * sizeof *remainders);
  if (remainders == NULL) return status_set(STATUS_NO_MEMORY, "no memory to sort %lld codes", (long long)entries);
  int64_t spare = RANS_TOTAL - entries, placed = 0; /* each code has 1; the rest is distributed in proportion */
  for (int64_t k = 0; k < entries; k++) {
    double quota = (total > 0 ? counts[k] / total : 1.0 / (double)entries) * (double)spare, whole = floor(quota);
    frequencies[k] = (uint16_t)(1 + whole);
    remainders[k] = (Remainder){quota - whole, k};
    placed += (int64_t)whole;
  }
  qsort(remainders, (size_t)entries, sizeof *remainders, by_rest);
  for (int64_t i = 0; placed < spare; placed++, i++) frequencies[remainders[i % entries].code]++;
  free(remainders);
  return STATUS_OK;
}

double code_frequencies_bits(const double *counts, const uint16_t *frequencies, int64_t entries) {
  double total = 0, bits = 0;
  for (int64_t k = 0; k < entries; k++) {
    const double count = counts ? counts[k] : frequencies[k];
    total += count;
    bits += count * (RANS_BITS - log2((double)frequencies[k]));
  }
  return total > 0 ? bits / total : 0;
}
