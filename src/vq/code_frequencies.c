/* Frequencies of codes: see code_frequencies.h. */
#include "vq/code_frequencies.h"
#include "vq/rans.h"
#include <math.h>
#include <stdlib.h>

bool code_frequencies_possible(int64_t entries) { return entries >= 2 && entries <= CODE_FREQUENCIES_MOST; }

typedef struct Remainder {
  double rest;
  int64_t code;
} Remainder;

static int by_rest(const void *a, const void *b) {
  const Remainder *x = a, *y = b;
  if (x->rest != y->rest) return x->rest > y->rest ? -1 : 1;
  return x->code < y->code ? -1 : 1;
}

/* Each code has 1; what is left is shared out in proportion. */
static void share_out(const double *counts, int64_t entries, double total, Remainder *remainders, uint16_t *frequencies) {
  int64_t spare = RANS_TOTAL - entries, placed = 0;
  for (int64_t k = 0; k < entries; k++) {
    double quota = (total > 0 ? counts[k] / total : 1.0 / (double)entries) * (double)spare, whole = floor(quota);
    frequencies[k] = (uint16_t)(1 + whole);
    remainders[k] = (Remainder){quota - whole, k};
    placed += (int64_t)whole;
  }
  qsort(remainders, (size_t)entries, sizeof *remainders, by_rest);
  for (int64_t i = 0; placed < spare; placed++, i++) frequencies[remainders[i % entries].code]++;
}

Status code_frequencies_fit(const double *counts, int64_t entries, uint16_t *frequencies) {
  double total = 0;
  if (!code_frequencies_possible(entries))
    return status_set(STATUS_BAD_VALUE, "frequencies of %lld codes: between 2 and %d are accepted", (long long)entries,
                      CODE_FREQUENCIES_MOST);
  for (int64_t k = 0; k < entries; k++) {
    if (!(counts[k] >= 0)) return status_set(STATUS_BAD_VALUE, "code %lld was counted %g times", (long long)k, counts[k]);
    total += counts[k];
  }
  if (!isfinite(total)) return status_set(STATUS_BAD_VALUE, "codes were counted %g times in all", total);
  Remainder *remainders = malloc((size_t)entries * sizeof *remainders);
  if (remainders == NULL) return status_set(STATUS_NO_MEMORY, "no memory to sort %lld codes", (long long)entries);
  share_out(counts, entries, total, remainders, frequencies);
  free(remainders);
  return STATUS_OK;
}

Status code_frequencies_check(const uint16_t *frequencies, int64_t entries) {
  int64_t sum = 0;
  if (!code_frequencies_possible(entries))
    return status_set(STATUS_BAD_VALUE, "frequencies of %lld codes: between 2 and %d are accepted", (long long)entries,
                      CODE_FREQUENCIES_MOST);
  for (int64_t k = 0; k < entries; k++) {
    if (frequencies[k] == 0) return status_set(STATUS_BAD_VALUE, "code %lld has frequency 0: it could not be sent", (long long)k);
    sum += frequencies[k];
  }
  if (sum == RANS_TOTAL) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "the frequencies sum to %lld, not %d", (long long)sum, RANS_TOTAL);
}

double code_frequencies_bits(const double *counts, const uint16_t *frequencies, int64_t entries) {
  double total = 0, bits = 0;
  for (int64_t k = 0; k < entries; k++) {
    total += counts[k];
    bits += counts[k] * (RANS_BITS - log2((double)frequencies[k]));
  }
  return total > 0 ? bits / total : 0;
}

double code_frequencies_entropy(const uint16_t *frequencies, int64_t entries) {
  double bits = 0;
  for (int64_t k = 0; k < entries; k++) bits += frequencies[k] * (RANS_BITS - log2((double)frequencies[k]));
  return bits / RANS_TOTAL;
}
