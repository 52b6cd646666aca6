/* Products with weights of 8 and 4 bits beside those with floats and bf16, in turns: many rows (GFLOP/s) and one row (GB/s of weights
 * read, beside the rate at which this machine reads memory). Best of several runs; not a test. --threads N, 1 without it. */
#include "autograd/kernels/lowbit_kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/matmul_lowbit.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/threads.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 9, FORMS = 5, COLD_BYTES = 256 << 20 /* weights of one row's products, together: far more than any cache */ };
static const char *const FORM_NAMES[FORMS] = {"float", "bf16", "int8", "q8_0", "q4_0"};

/* On a cache line. */
static void *make(size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  void *block = aligned_alloc(64, bytes);
  if (block) return memset(block, 1, bytes);
  fprintf(stderr, "out of memory\n");
  exit(1);
}

typedef struct Shapes {
  int64_t m, n, k;
  real *a, *c;
  float *scale;
  uint8_t *weights; /* of one form at a time, again and again */
  void *scratch;
} Shapes;

static size_t weight_bytes(const Shapes *s, int form) {
  static const LowbitKind kinds[FORMS] = {[2] = LOWBIT_INT8, [3] = LOWBIT_Q8_0, [4] = LOWBIT_Q4_0};
  if (form < 2) return (size_t)(s->n * s->k) * (form == 0 ? sizeof(real) : 2);
  return (size_t)s->n * lowbit_row_bytes(kinds[form], s->k);
}

static void product(const Shapes *s, int form, const uint8_t *weights) {
  if (form == 0) {
    matmul(false, true, s->m, s->n, s->k, 1, s->a, s->k, (const real *)(const void *)weights, s->k, 0, s->c, s->n);
  } else if (form == 1 && s->m == 1) {
    matmul_narrow(true, 1, s->n, s->k, s->a, s->k, NARROW_BF16, (const uint16_t *)(const void *)weights, s->k, false, s->c, s->n,
                  s->scratch);
  } else if (form == 1) {
    const Numbers c = {.wide = s->c};
    matmul_bf16(false, true, s->m, s->n, s->k, (const uint16_t *)(const void *)s->a, s->k, (const uint16_t *)(const void *)weights, s->k,
                NULL, false, c, s->n);
  } else {
    const LowbitMatrix w = {(LowbitKind)(LOWBIT_INT8 + form - 2), s->n, s->k, weights, s->scale};
    matmul_lowbit(
        &(MatmulLowbit){.weight = &w, .outputs = s->n, .inputs = s->k, .rows = s->m, .x = s->a, .ldx = s->k, .c = s->c, .ldc = s->n},
        s->scratch);
  }
}

/* Seconds of a product; one row takes its weights from memory, many rows find them where the last run left them. */
static double seconds(const Shapes *s, int form) {
  const size_t bytes = weight_bytes(s, form), copies = s->m == 1 ? COLD_BYTES / bytes : 1;
  const double begun = clock_now();
  for (size_t i = 0; i < copies; i++) product(s, form, s->weights + i * bytes);
  return (clock_now() - begun) / (double)copies;
}

static void print_shape(int64_t m, int64_t n, int64_t k) {
  Shapes s = {m,
              n,
              k,
              make((size_t)(m * k) * sizeof(real)),
              make((size_t)(m * n) * sizeof(real)),
              make((size_t)n * sizeof(float)),
              make(COLD_BYTES),
              make(64 << 20)};
  double best[FORMS];
  for (int f = 0; f < FORMS; f++) best[f] = 1e30;
  for (int64_t i = 0; i < m * k; i++) s.a[i] = (real)(i % 17) - 8;
  for (int run = 0; run < RUNS; run++)
    for (int f = 0; f < FORMS; f++) {
      const double taken = seconds(&s, f);
      best[f] = taken < best[f] ? taken : best[f];
    }
  printf("%5d x %5d x %5d ", (int)m, (int)n, (int)k);
  for (int f = 0; f < FORMS; f++)
    printf("%10.1f", m == 1 ? 1e-9 * (double)weight_bytes(&s, f) / best[f] : 2e-9 * (double)m * (double)n * (double)k / best[f]);
  printf("    %s\n", m == 1 ? "GB/s" : "GFLOP/s");
  free(s.a), free(s.c), free(s.scale), free(s.weights), free(s.scratch);
}

/* Reads memory as fast as it comes: sums of words, one range a thread. */
typedef struct Reading {
  const uint64_t *words;
  uint64_t sum[64];
} Reading;

static void read_body(void *context, int64_t begin, int64_t end, int thread) {
  Reading *reading = context;
  uint64_t sum = 0;
  for (int64_t i = begin; i < end; i++) sum += reading->words[i];
  reading->sum[thread % 64] += sum;
}

static void print_read_rate(void) {
  Reading reading = {.words = make(COLD_BYTES)};
  double best = 1e30;
  for (int run = 0; run < RUNS; run++) {
    const double begun = clock_now();
    threads_for(COLD_BYTES / 8, 64, read_body, &reading);
    const double taken = clock_now() - begun;
    best = taken < best ? taken : best;
  }
  printf("reading memory: %.1f GB/s (sum %llu)\n", 1e-9 * COLD_BYTES / best, (unsigned long long)reading.sum[0]);
  free((void *)(uintptr_t)reading.words);
}

int main(int argc, char **argv) {
  const int threads = argc > 2 && strcmp(argv[1], "--threads") == 0 ? atoi(argv[2]) : 1;
  matmul_start();
  if (threads_start(threads) != STATUS_OK) return 1;
  printf("%d thread(s), kernels %s; ", threads, lowbit_kernels()->name);
  print_read_rate();
  printf("%-22s", "rows x outputs x inputs");
  for (int f = 0; f < FORMS; f++) printf("%10s", FORM_NAMES[f]);
  putchar('\n');
  static const int64_t shapes[][3] = {{1, 768, 768},    {1, 3072, 768},    {1, 768, 3072},   {1, 50257, 768},  {2, 768, 768},
                                      {8, 768, 768},    {49, 768, 768},    {197, 768, 768},  {197, 3072, 768}, {197, 768, 3072},
                                      {1024, 768, 768}, {1024, 3072, 768}, {1024, 768, 3072}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) print_shape(shapes[i][0], shapes[i][1], shapes[i][2]);
  threads_stop();
  return 0;
}
