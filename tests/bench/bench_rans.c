/* Entropy coding of codes: MB/s of packed codes coded and decoded, and bits a code, for even and uneven frequencies. Best of several runs,
 * in time of the processor; not a test. */
#include "base/clock.h"
#include "base/rng.h"
#include "vq/rans.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ENTRIES = 1024, BITS = 10, GROUPS = 32, TOKENS = 1024, RUNS = 5 };

static void must(Status status) {
  if (status == STATUS_OK) return;
  fprintf(stderr, "%s\n", status_message());
  exit(1);
}

static int32_t draw(const RansTable *table, Rng *rng) {
  uint32_t slot = (uint32_t)rng_below(rng, RANS_TOTAL);
  int32_t k = 0;
  while (table->start[k + 1] <= slot) k++;
  return k;
}

static void run(double steepness) {
  static uint16_t frequencies[GROUPS * ENTRIES];
  static int32_t codes[TOKENS * GROUPS];
  static uint8_t bytes[TOKENS * GROUPS * 2];
  static double counts[ENTRIES];
  RansTable *tables;
  Rng rng;
  rng_init(&rng, 1, 0);
  for (int k = 0; k < ENTRIES; k++) counts[k] = pow(k + 1, -steepness);
  for (int g = 0; g < GROUPS; g++) must(code_frequencies_fit(counts, ENTRIES, frequencies + g * ENTRIES));
  must(rans_tables_new(&tables, frequencies, GROUPS, ENTRIES));
  for (int i = 0; i < TOKENS * GROUPS; i++) codes[i] = draw(&tables[i % GROUPS], &rng);
  double best[2] = {1e30, 1e30};
  size_t size = 0;
  for (int i = 0; i < 2 * RUNS; i++) {
    double begun = clock_spent();
    if (i % 2 == 0)
      size = rans_encode(tables, codes, TOKENS, GROUPS, bytes, sizeof bytes);
    else
      must(rans_decode(tables, TOKENS, GROUPS, bytes, size, codes));
    double taken = clock_spent() - begun;
    best[i % 2] = taken < best[i % 2] ? taken : best[i % 2];
  }
  double packed = 1e-6 * TOKENS * GROUPS * BITS / 8;
  printf("%10.1f%14.2f%16.1f%16.1f\n", steepness, 8.0 * (double)size / (TOKENS * GROUPS), packed / best[0], packed / best[1]);
  rans_tables_free(tables);
}

int main(void) {
  printf("%10s%14s%16s%16s\n", "steepness", "bits a code", "coded MB/s", "decoded MB/s");
  for (double steepness = 0; steepness < 1.3; steepness += 0.3) run(steepness);
  return 0;
}
