/* Nearest codewords against plain loops in double, ties, distortion, lookup, limits, and independence of the thread count. */
#include "base/threads.h"
#include "unit/vq/vq_check.h"
#include "unit/vq/vq_points.h"
#include "vq/codebook.h"
#include "vq/rans.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Case {
  int64_t groups, entries, width, rows;
} Case;

static double squared(const real *a, const real *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
  return sum;
}

/* The chosen codeword is nearest, up to the rounding of two that are equally near. */
static void check_nearest(const Codebook *book, const real *x, int64_t rows, const int32_t *codes, double distortion) {
  int64_t d = book->width / book->groups;
  double sum = 0, slack = (REAL_IS_DOUBLE ? 1e-12 : 1e-5) * (double)d;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t g = 0; g < book->groups; g++) {
      const real *sample = x + r * book->width + g * d, *words = book->codewords + g * book->entries * d;
      int32_t code = codes[r * book->groups + g];
      assert_in_range(code, 0, book->entries - 1);
      double chosen = squared(sample, words + code * d, d), min = INFINITY;
      for (int64_t k = 0; k < book->entries; k++) min = fmin(min, squared(sample, words + k * d, d));
      CHECK_NEAR(chosen, min, slack);
      sum += chosen;
    }
  CHECK_NEAR(distortion, sum, 1e-9 * sum);
}

static void run_case(const Case *c) {
  Codebook book;
  real *words = points_normal(c->entries * c->width, 1), *x = points_normal(c->rows * c->width, 2);
  assert_int_equal(codebook_init(&book, c->groups, c->entries, c->width, words), STATUS_OK);
  int32_t *codes = malloc((size_t)(c->rows * c->groups) * sizeof *codes);
  void *scratch = malloc(codebook_assign_scratch(&book, c->rows));
  double distortion;
  codebook_assign(&book, x, c->rows, codes, &distortion, scratch);
  check_nearest(&book, x, c->rows, codes, distortion);
  real *q = malloc((size_t)(c->rows * c->width) * sizeof *q);
  codebook_lookup(&book, codes, c->rows, q);
  CHECK_NEAR(squared(x, q, c->rows * c->width), distortion, 1e-9 * distortion);
  free(q);
  free(scratch);
  free(codes);
  codebook_release(&book);
  free(words);
  free(x);
}

/* A multiple of 1/64 below 2: a number of float16 and of bfloat16. */
static real coarse(real x) { return (real)(round(fmin(fmax((double)x, -1.9), 1.9) * 64) / 64 + 0.0); } /* no -0 */

/* Codewords of 16 bits choose, measure and give back what the same numbers as reals do, bit for bit. */
static void narrow_case(const Case *c, NarrowKind kind) {
  Codebook book, wide;
  int64_t numbers = c->entries * c->width, picks = c->rows * c->groups;
  real *words = points_normal(numbers, 1), *x = points_normal(c->rows * c->width, 2);
  uint16_t *narrow = malloc((size_t)numbers * sizeof *narrow);
  for (int64_t i = 0; i < numbers; i++) {
    float number = (float)(words[i] = coarse(words[i]));
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    uint32_t exponent = bits >> 23 & 255, half = number == 0 ? 0 : (bits >> 16 & 0x8000) | (exponent - 112) << 10 | (bits >> 13 & 0x3ff);
    narrow[i] = (uint16_t)(kind == NARROW_BF16 ? bits >> 16 : half);
    assert_true((real)narrow_to_float(kind, narrow[i]) == words[i]);
  }
  assert_int_equal(codebook_init(&wide, c->groups, c->entries, c->width, words), STATUS_OK);
  codebook_refresh(&wide);
  assert_int_equal(codebook_init_narrow(&book, c->groups, c->entries, c->width, kind, narrow), STATUS_OK);
  assert_memory_equal(book.half_norms, wide.half_norms, (size_t)(c->groups * c->entries) * sizeof(real));
  const int64_t d = c->width / c->groups, first = c->groups * c->entries / 2;
  real *word = malloc((size_t)(numbers - first * d) * sizeof *word);
  codebook_words(&book, first, c->groups * c->entries - first, word);
  assert_memory_equal(word, words + first * d, (size_t)(numbers - first * d) * sizeof *word);
  free(word);
  int32_t *codes[2] = {calloc((size_t)picks, sizeof **codes), calloc((size_t)picks, sizeof **codes)};
  real *out[2] = {malloc((size_t)(c->rows * c->width) * sizeof(real)), malloc((size_t)(c->rows * c->width) * sizeof(real))};
  double distortion[2];
  for (int way = 0; way < 2; way++) {
    const Codebook *used = way ? &wide : &book;
    void *scratch = malloc(codebook_assign_scratch(used, c->rows));
    codebook_assign(used, x, c->rows, codes[way], &distortion[way], scratch);
    codebook_lookup(used, codes[way], c->rows, out[way]);
    free(scratch);
  }
  assert_memory_equal(codes[0], codes[1], (size_t)picks * sizeof **codes);
  assert_memory_equal(out[0], out[1], (size_t)(c->rows * c->width) * sizeof(real));
  assert_true(distortion[0] == distortion[1]);
  for (int way = 0; way < 2; way++) free(codes[way]), free(out[way]);
  codebook_release(&book);
  codebook_release(&wide);
  free(narrow);
  free(words);
  free(x);
}

static void sixteen_bits_choose_alike(void **state) {
  (void)state;
  const Case cases[] = {{3, 3, 9, 130}, {8, 16, 48, 257}, {1, 1000, 48, 200}, {1, 512, 96, 64}, {2, 1100, 192, 150}, {5, 77, 5, 900}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (NarrowKind kind = NARROW_F16; kind <= NARROW_BF16; kind++) narrow_case(&cases[i], kind);
}

static void nearest(void **state) {
  (void)state;
  const Case cases[] = {{1, 2, 1, 5},     {1, 2, 7, 1},     {3, 3, 9, 130},   {8, 16, 48, 257},  {1, 1000, 48, 200},
                        {4, 513, 12, 65}, {2, 1024, 6, 97}, {1, 512, 96, 64}, {32, 33, 96, 300}, {5, 77, 5, 9000}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i]);
}

/* With frequencies that fall from code to code: the least of distance and cost, by plain loops in double; a weight of 0 changes nothing. */
static void constrained_case(const Case *c, double weight) {
  Codebook book;
  const int64_t d = c->width / c->groups;
  real *words = points_normal(c->entries * c->width, 1), *x = points_normal(c->rows * c->width, 2);
  uint16_t *frequencies = malloc((size_t)(c->groups * c->entries) * sizeof *frequencies);
  double *counts = malloc((size_t)c->entries * sizeof *counts);
  int32_t *codes = malloc((size_t)(c->rows * c->groups) * sizeof *codes);
  assert_int_equal(codebook_init(&book, c->groups, c->entries, c->width, words), STATUS_OK);
  for (int64_t g = 0; g < c->groups; g++) {
    for (int64_t k = 0; k < c->entries; k++) counts[k] = pow(1 + (double)((k + g) % c->entries), -1.2);
    assert_int_equal(code_frequencies_fit(counts, c->entries, frequencies + g * c->entries), STATUS_OK);
  }
  codebook_constrain(&book, frequencies, weight);
  void *scratch = malloc(codebook_assign_scratch(&book, c->rows));
  double distortion, sum = 0;
  codebook_assign(&book, x, c->rows, codes, &distortion, scratch);
  for (int64_t g = 0; g < c->groups; g++) {
    const real *of = words + g * c->entries * d;
    const uint16_t *f = frequencies + g * c->entries;
    double mean = 0;
    for (int64_t k = 0; k < c->entries; k++)
      for (int64_t i = 0; i < d; i++) mean += f[k] / 65536.0 * (double)of[k * d + i] * (double)of[k * d + i];
    for (int64_t r = 0; r < c->rows; r++) {
      const real *sample = x + r * c->width + g * d;
      const int32_t code = codes[r * c->groups + g];
      double min = INFINITY;
      for (int64_t k = 0; k < c->entries; k++) min = fmin(min, squared(sample, of + k * d, d) + weight * mean * (16 - log2(f[k])));
      CHECK_NEAR(squared(sample, of + code * d, d) + weight * mean * (16 - log2(f[code])), min,
                 (REAL_IS_DOUBLE ? 1e-12 : 1e-5) * (double)d);
      sum += squared(sample, of + code * d, d);
    }
  }
  CHECK_NEAR(distortion, sum, 1e-9 * sum); /* the error alone */
  if (weight == 0) check_nearest(&book, x, c->rows, codes, distortion);
  codebook_refresh(&book);
  codebook_assign(&book, x, c->rows, codes, &distortion, scratch);
  check_nearest(&book, x, c->rows, codes, distortion);
  free(scratch), free(codes), free(counts), free(frequencies);
  codebook_release(&book);
  free(words), free(x);
}

static void cheaper_codes(void **state) {
  (void)state;
  const Case cases[] = {{1, 2, 7, 1}, {3, 3, 9, 130}, {8, 16, 48, 257}, {1, 1000, 48, 200}, {2, 1024, 6, 97}, {5, 77, 5, 9000}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) constrained_case(&cases[i], 0), constrained_case(&cases[i], 0.05);
}

/* Two copies of each codeword, 700 apart, so that they fall into different tiles: the first copy must win. */
static void ties_to_the_lowest(void **state) {
  (void)state;
  enum { HALF = 700, D = 4, ROWS = 500 };
  real *words = points_normal(2 * HALF * D, 3), *x = points_normal(ROWS * D, 4);
  memcpy(words + HALF * D, words, HALF * D * sizeof *words);
  Codebook book;
  assert_int_equal(codebook_init(&book, 1, 2 * HALF, D, words), STATUS_OK);
  int32_t codes[ROWS];
  void *scratch = malloc(codebook_assign_scratch(&book, ROWS));
  codebook_assign(&book, x, ROWS, codes, NULL, scratch);
  for (int r = 0; r < ROWS; r++) assert_in_range(codes[r], 0, HALF - 1);
  for (int i = 0; i < 2 * HALF * D; i++) words[i] = 1; /* all alike: code 0 for everybody */
  codebook_refresh(&book);
  codebook_assign(&book, x, ROWS, codes, NULL, scratch);
  for (int r = 0; r < ROWS; r++) assert_int_equal(codes[r], 0);
  free(scratch);
  codebook_release(&book);
  free(words);
  free(x);
}

/* Every codeword finds itself among 65,536, and nothing is lost at distance zero. */
static void largest_codebook(void **state) {
  (void)state;
  enum { K = CODEBOOK_MAX, ROWS = 200, STEP = 327 };
  Codebook book;
  assert_int_equal(codebook_init(&book, 2, K, 4, NULL), STATUS_OK);
  for (int64_t g = 0; g < 2; g++)
    for (int64_t k = 0; k < K; k++) { /* a grid of 256 x 256 */
      book.codewords[(g * K + k) * 2] = (real)(k % 256 - 128);
      book.codewords[(g * K + k) * 2 + 1] = (real)(k / 256 - 128) * (g == 0 ? 1 : -1);
    }
  codebook_refresh(&book);
  int32_t wanted[ROWS * 2], codes[ROWS * 2];
  for (int32_t i = 0; i < ROWS * 2; i++) wanted[i] = (i * STEP + 65535 - 2 * STEP * ROWS / 2) % K;
  wanted[0] = K - 1;
  real x[ROWS * 4];
  codebook_lookup(&book, wanted, ROWS, x);
  void *scratch = malloc(codebook_assign_scratch(&book, ROWS));
  double distortion;
  codebook_assign(&book, x, ROWS, codes, &distortion, scratch);
  assert_memory_equal(codes, wanted, sizeof codes);
  CHECK_NEAR(distortion, 0, 0);
  free(scratch);
  codebook_release(&book);
}

static void same_for_any_thread_count(void **state) {
  (void)state;
  enum { G = 3, K = 600, W = 24, ROWS = 1111 };
  real *x = points_normal(ROWS * W, 5), *words = points_normal(K * W, 6);
  Codebook book;
  assert_int_equal(codebook_init(&book, G, K, W, words), STATUS_OK);
  int32_t *codes = malloc(ROWS * G * sizeof *codes), *first = malloc(ROWS * G * sizeof *first);
  double distortion, first_distortion = 0;
  for (int threads = 1; threads <= 4; threads++) {
    assert_int_equal(threads_start(threads), STATUS_OK);
    void *scratch = malloc(codebook_assign_scratch(&book, ROWS));
    codebook_assign(&book, x, ROWS, codes, &distortion, scratch);
    free(scratch);
    threads_stop();
    if (threads == 1) {
      memcpy(first, codes, ROWS * G * sizeof *first);
      first_distortion = distortion;
    }
    assert_memory_equal(codes, first, ROWS * G * sizeof *first);
    assert_memory_equal(&distortion, &first_distortion, sizeof distortion);
  }
  free(codes);
  free(first);
  codebook_release(&book);
  free(words);
  free(x);
}

static void not_a_number(void **state) {
  (void)state;
  real x[4] = {(real)NAN, 1, (real)INFINITY, 0}, *words = points_normal(40, 7);
  Codebook book;
  assert_int_equal(codebook_init(&book, 2, 20, 2, words), STATUS_OK);
  int32_t codes[4] = {-1, -1, -1, -1};
  void *scratch = malloc(codebook_assign_scratch(&book, 2));
  codebook_assign(&book, x, 2, codes, NULL, scratch);
  for (int i = 0; i < 4; i++) assert_in_range(codes[i], 0, 19);
  free(scratch);
  codebook_release(&book);
  free(words);
}

static void what_is_refused(void **state) {
  (void)state;
  Codebook book;
  assert_int_equal(codebook_init(&book, 5, 16, 48, NULL), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "5 groups do not divide the width 48"));
  assert_int_equal(codebook_init(&book, 0, 16, 48, NULL), STATUS_BAD_VALUE);
  assert_int_equal(codebook_init(&book, 4, 1, 48, NULL), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "1 entries are not in 2 to 65536"));
  assert_int_equal(codebook_init(&book, 4, 65537, 48, NULL), STATUS_BAD_VALUE);
  assert_int_equal(codebook_init(&book, 1, 16, 0, NULL), STATUS_BAD_VALUE);
  assert_int_equal(codebook_init(&book, 1, 16, INT64_MAX, NULL), STATUS_BAD_VALUE);
  codebook_release(&book);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nearest),          cmocka_unit_test(sixteen_bits_choose_alike),
      cmocka_unit_test(cheaper_codes),    cmocka_unit_test(ties_to_the_lowest),
      cmocka_unit_test(largest_codebook), cmocka_unit_test(not_a_number),
      cmocka_unit_test(what_is_refused),  cmocka_unit_test(same_for_any_thread_count),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
