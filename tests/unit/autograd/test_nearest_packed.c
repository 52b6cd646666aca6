/* The search in 8 bits finds the codewords that a search in float finds: bit for bit beside nearest_words in narrow groups, beside doubles
 * in wide ones; with ties, words that all but agree, far from the origin, rows out of proportion, and numbers that are not finite. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/nearest_packed.h"
#include "base/rng.h"
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 150, APART = 3, UNTOUCHED = -7 };

typedef enum Kind { NORMAL, TIES, FAR, PROPORTIONS, TWINS, NOT_FINITE, BAD_WORDS, KINDS } Kind;

typedef struct Sample {
  int64_t k, d, ldx;
  real *x, *words, *half_norm;
  int32_t *codes, *expected; /* [ROWS, 2]: every other one is to be left alone */
  void *pack, *memory;
} Sample;

static const NearestPacked *packed(void) {
  if (kernels_native()->nearest_packed == NULL) {
    printf("skipped: this processor, build or table of kernels does not search in 8 bits\n");
    skip();
  }
  return kernels_native()->nearest_packed;
}

static Sample sample_new(int64_t k, int64_t d) {
  const NearestPacked *table = packed();
  Sample s = {.k = k, .d = d, .ldx = d + APART};
  s.x = malloc((size_t)(ROWS * s.ldx) * sizeof *s.x), s.words = malloc((size_t)(k * d) * sizeof *s.words);
  s.half_norm = malloc((size_t)k * sizeof *s.half_norm);
  s.codes = malloc(2 * ROWS * sizeof *s.codes), s.expected = malloc(2 * ROWS * sizeof *s.expected);
  s.pack = aligned_alloc(64, table->pack_bytes(k, d)), s.memory = aligned_alloc(64, table->search_bytes(k, d));
  assert_true(s.x && s.words && s.half_norm && s.codes && s.expected && s.pack && s.memory);
  return s;
}

static void sample_free(Sample *s) {
  free(s->x), free(s->words), free(s->half_norm), free(s->codes), free(s->expected), free(s->pack), free(s->memory);
}

static void fill(Sample *s, Kind kind, Rng *rng) {
  const bool ties = kind == TIES;
  for (int64_t i = 0; i < ROWS * s->ldx; i++) s->x[i] = (real)(ties ? (double)rng_below(rng, 3) - 1 : rng_normal(rng));
  for (int64_t i = 0; i < s->k * s->d; i++) s->words[i] = (real)(ties ? (double)rng_below(rng, 3) - 1 : 0.7 * rng_normal(rng));
  for (int64_t i = 0; kind == FAR && i < ROWS * s->ldx; i++) s->x[i] += 300;
  for (int64_t i = 0; kind == FAR && i < s->k * s->d; i++) s->words[i] += 300;
  for (int64_t r = 0; kind == PROPORTIONS && r < ROWS; r++)
    for (int64_t i = 0; i < s->d; i++) s->x[r * s->ldx + i] *= (real)pow(10, (double)(r % 32) - 16);
  for (int64_t i = s->d; kind == TWINS && i < s->k * s->d; i++) /* each word but for the last bits its neighbour */
    if (i / s->d % 2 == 1) s->words[i] = s->words[i - s->d] * (1 + (real)(i % 3 - 1) * (real)FLT_EPSILON);
  for (int64_t k = 0; k < s->k; k++) {
    double sum = 0;
    for (int64_t i = 0; i < s->d; i++) sum += (double)s->words[k * s->d + i] * (double)s->words[k * s->d + i];
    s->half_norm[k] = (real)(0.5 * sum);
  }
  if (kind == NOT_FINITE) s->x[70 * s->ldx] = (real)NAN, s->x[3 * s->ldx + s->d - 1] = (real)INFINITY, s->x[149 * s->ldx] = (real)1e30;
  if (kind == BAD_WORDS) s->words[s->d] = (real)NAN, s->half_norm[1] = (real)NAN, s->half_norm[0] = (real)INFINITY;
  for (int i = 0; i < 2 * ROWS; i++) s->codes[i] = s->expected[i] = UNTOUCHED;
}

static void search(const Sample *s, int64_t rows) {
  packed()->pack(s->k, s->d, s->words, s->half_norm, s->pack);
  packed()->search(s->pack, rows, s->x, s->ldx, s->codes, 2, s->memory);
}

static void equal_to_float_in_narrow_groups(void **state) {
  (void)state;
  packed();
  static const int64_t widths[] = {5, 6, 8, 9, 12, 24, 33, NEAREST_MAX_WIDTH}, entries[] = {2, 16, 17, 131, 1024};
  Rng rng;
  rng_init(&rng, 1, 1);
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
    for (size_t e = 0; e < sizeof entries / sizeof *entries; e++) {
      Sample s = sample_new(entries[e], widths[w]);
      for (Kind kind = NORMAL; kind < KINDS; kind++) {
        int64_t rows = kind == NORMAL ? ROWS : ROWS - (int64_t)rng_below(&rng, 70) * (kind != NOT_FINITE);
        fill(&s, kind, &rng);
        kernels()->nearest_words(rows, s.k, s.d, s.x, s.ldx, s.words, s.half_norm, s.expected, 2);
        search(&s, rows);
        assert_memory_equal(s.codes, s.expected, 2 * ROWS * sizeof *s.codes);
      }
      sample_free(&s);
    }
}

static double score(const Sample *s, int64_t row, int64_t word) {
  double sum = -(double)s->half_norm[word];
  for (int64_t i = 0; i < s->d; i++) sum += (double)s->x[row * s->ldx + i] * (double)s->words[word * s->d + i];
  return sum;
}

/* Whole numbers are summed exactly, so that the lowest of equal words must be found; others up to rounding. */
static void check_wide(const Sample *s, Kind kind) {
  for (int64_t row = 0; row < ROWS; row++) {
    int32_t best = 0;
    double length = 0;
    for (int64_t i = 0; i < s->d; i++) length += (double)s->x[row * s->ldx + i] * (double)s->x[row * s->ldx + i];
    if (!isfinite(length)) {
      assert_in_range(s->codes[2 * row], 0, s->k - 1);
      continue;
    }
    for (int32_t k = 1; k < s->k; k++)
      if (score(s, row, k) > score(s, row, best)) best = k;
    if (kind == TIES) assert_int_equal(s->codes[2 * row], best);
    double slack = 1e-6 * sqrt(length * 2 * (double)s->half_norm[best]);
    if (!(score(s, row, s->codes[2 * row]) >= score(s, row, best) - slack)) fail_msg("kind %d, row %d", (int)kind, (int)row);
    assert_int_equal(s->codes[2 * row + 1], UNTOUCHED);
  }
}

static void nearest_in_wide_groups(void **state) {
  (void)state;
  packed();
  static const int64_t widths[] = {65, 192, 263}, entries[] = {2, 17, 300};
  Rng rng;
  rng_init(&rng, 2, 2);
  for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
    for (size_t e = 0; e < sizeof entries / sizeof *entries; e++) {
      Sample s = sample_new(entries[e], widths[w]);
      for (Kind kind = NORMAL; kind < BAD_WORDS; kind++) {
        fill(&s, kind, &rng);
        search(&s, ROWS);
        check_wide(&s, kind);
      }
      sample_free(&s);
    }
}

/* A tile's step follows from its rows, a code from its own row alone. */
static void a_row_decides_alone(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 3, 3);
  for (int64_t d = 24; d < 300; d += 140) {
    Sample s = sample_new(300, d);
    fill(&s, NORMAL, &rng);
    search(&s, ROWS);
    for (int64_t row = 0; row < ROWS; row++) {
      int32_t code;
      packed()->search(s.pack, 1, s.x + row * s.ldx, s.ldx, &code, 1, s.memory);
      assert_int_equal(code, s.codes[2 * row]);
    }
    sample_free(&s);
  }
}

/* 20 words are two chunks of 16, of which the second is padded. Words in pairs on both sides of a mean far from the origin, rows near that
 * mean: padding, which is zero, lies where all scores of words are low. */
static void padding_is_never_nearest(void **state) {
  (void)state;
  packed();
  Rng rng;
  rng_init(&rng, 4, 4);
  Sample s = sample_new(20, 16384);
  for (int64_t k = 0; k < s.k; k++) {
    double sum = 0;
    for (int64_t i = 0; i < s.d; i++) {
      real *word = &s.words[k * s.d + i];
      *word = k % 2 == 1 ? -2 - word[-s.d] : rng_below(&rng, 2) == 1 ? 0 : -2;
      sum += (double)*word * (double)*word;
    }
    s.half_norm[k] = (real)(0.5 * sum);
  }
  for (int64_t row = 0; row < ROWS; row++)
    for (int64_t i = 0; i < s.d; i++) s.x[row * s.ldx + i] = -1 + (real)0.05 * (s.words[row % s.k * s.d + i] + 1);
  search(&s, ROWS);
  for (int64_t row = 0; row < ROWS; row++) assert_int_equal(s.codes[2 * row], row % s.k);
  sample_free(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_to_float_in_narrow_groups), cmocka_unit_test(nearest_in_wide_groups),
                                     cmocka_unit_test(a_row_decides_alone), cmocka_unit_test(padding_is_never_nearest)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
