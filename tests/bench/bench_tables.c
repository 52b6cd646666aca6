/* Keys and values of remote tokens: as a product of looked-up codewords, or as sums of rows of tables (nn/kv_tables.h). ViT-Base, K =
 * 1,024, one block; best of several runs; not a test. */
#include "autograd/kernels/matmul.h"
#include "base/clock.h"
#include "base/threads.h"
#include "bench_model.h"
#include "nn/kv_tables.h"
#include <stdio.h>
#include <stdlib.h>

enum { ENTRIES = 1024, RUNS = 5, MAX_ROWS = 768 };

static void *make(size_t bytes) {
  void *block = malloc(bytes);
  if (block) return block;
  fprintf(stderr, "out of memory\n");
  exit(1);
}

/* Seconds of the fastest run over so many rows. */
static double time_sums(const KvTables *tables, int64_t width, int64_t groups, int64_t rows, real *k, real *v) {
  int32_t *codes = make((size_t)(rows * groups) * sizeof *codes);
  Rng rng;
  double best = 1e30;
  rng_init(&rng, 2, 0);
  for (int64_t i = 0; i < rows * groups; i++) codes[i] = (int32_t)rng_below(&rng, ENTRIES);
  for (int run = 0; run < RUNS; run++) {
    double begun = clock_spent();
    kv_tables_sum(tables, 0, codes, rows, k, width, v, width);
    double taken = clock_spent() - begun;
    best = taken < best ? taken : best;
  }
  free(codes);
  return best;
}

int main(void) {
  static const int64_t groups[] = {1, 4, 16, 32}, rows[] = {64, 256, MAX_ROWS};
  matmul_start();
  Model *model = make_model(1);
  int64_t width = model_config(model)->width;
  real *words = make((size_t)(ENTRIES * width) * sizeof *words), *k = make((size_t)(MAX_ROWS * width) * sizeof *k);
  real *v = make((size_t)(MAX_ROWS * width) * sizeof *v);
  const real *const codewords[] = {words};
  Rng rng;
  rng_init(&rng, 3, 0);
  for (int64_t i = 0; i < ENTRIES * width; i++) words[i] = (real)rng_normal(&rng);
  printf("%6s%12s%8s%14s%14s%10s\n", "G", "table MiB", "rows", "product ms", "tables ms", "chosen");
  for (int g = 0; g < 4; g++) {
    KvTables *tables, *chosen;
    KvTablesSetup setup = {.codewords = codewords, .groups = groups[g], .entries = ENTRIES, .memory = SIZE_MAX};
    must(kv_tables_build(&tables, model, &setup));
    setup.measure = true;
    must(kv_tables_build(&chosen, model, &setup));
    for (int r = 0; r < 3; r++)
      printf("%6d%12.0f%8d%14.2f%14.2f%10s\n", (int)groups[g], (double)kv_tables_bytes(tables) / (1 << 20), (int)rows[r],
             1e3 * kv_tables_seconds(chosen, true) * (double)rows[r] / KV_TABLES_ROWS,
             1e3 * time_sums(tables, width, groups[g], rows[r], k, v), kv_tables_has(chosen, 0) ? "tables" : "product");
    kv_tables_free(tables);
    kv_tables_free(chosen);
  }
  free(words), free(k), free(v);
  model_free(model);
  return 0;
}
