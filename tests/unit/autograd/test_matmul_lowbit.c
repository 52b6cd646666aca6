/* Products with weights of 8 and 4 bits, by each table of kernels: against sums in double of the same quantised numbers, parts of matrices,
 * rows that do not depend on each other to the bit, and rows that hold no number. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/lowbit_kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/matmul_lowbit.h"
#include "autograd/narrow.h"
#include "base/rng.h"
#include "base/threads.h"
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/autograd/signal_flood.h"

static const char *const TABLES[] = {"portable", "avx2", "vnni", "neon"};
static const LowbitKind KINDS[] = {LOWBIT_INT8, LOWBIT_Q8_0, LOWBIT_Q4_0};
enum { TABLE_COUNT = 4, KIND_COUNT = 3 };

static const LowbitKernels *portable(void) { return lowbit_kernels_named("portable"); } /* the oracle */

/* A matrix of any bytes, with scales around 0.01. In a block of its own size, so that a sanitizer sees a byte too many. */
typedef struct Sample {
  LowbitMatrix matrix;
  uint8_t *bytes;
  float *scale;
} Sample;

static uint16_t half_scale(Rng *rng) { return (uint16_t)(0x2000 | (rng_next(rng) & 0x83ff)); } /* +-0.0078 to 0.0156 */

static Sample sample_new(LowbitKind kind, int64_t outputs, int64_t inputs, Rng *rng) {
  const size_t row = lowbit_row_bytes(kind, inputs), all = row * (size_t)outputs;
  Sample s = {.bytes = malloc(all), .scale = malloc((size_t)outputs * sizeof(float))};
  for (size_t i = 0; i < all; i++) s.bytes[i] = (uint8_t)rng_next(rng);
  for (int64_t o = 0; o < outputs; o++) s.scale[o] = (float)(0.005 + 0.01 * rng_uniform(rng));
  const size_t block = kind == LOWBIT_Q8_0 ? sizeof(LowbitQ8Block) : sizeof(LowbitQ4Block);
  for (size_t at = 0; kind != LOWBIT_INT8 && at < all; at += block) {
    const uint16_t half = half_scale(rng);
    memcpy(s.bytes + at, &half, sizeof half);
  }
  s.matrix = (LowbitMatrix){kind, outputs, inputs, s.bytes, kind == LOWBIT_INT8 ? s.scale : NULL};
  return s;
}

static void sample_free(Sample *s) {
  free(s->bytes);
  free(s->scale);
}

static real *random_reals(int64_t count, Rng *rng) {
  real *x = malloc((size_t)count * sizeof *x);
  for (int64_t i = 0; i < count; i++) x[i] = (real)(2 * rng_uniform(rng) - 1) * (i % 97 == 0 ? 5 : 1);
  return x;
}

/* The activations as they are quantised by their row or block: the definition, in double. */
static void quantised(const real *x, int64_t inputs, LowbitKind kind, double *value) {
  const int64_t size = kind == LOWBIT_INT8 ? inputs : LOWBIT_BLOCK;
  for (int64_t first = 0; first < inputs; first += size) {
    const int64_t end = first + size < inputs ? first + size : inputs;
    float peak = 0;
    for (int64_t i = first; i < end; i++) peak = fmaxf(peak, fabsf((float)x[i]));
    for (int64_t i = first; i < end; i++) value[i] = peak > 0 ? (double)rintf((float)x[i] * (127 / peak)) * (double)(peak / 127) : 0;
  }
}

typedef struct Case {
  int64_t rows, outputs, inputs, first_output, count, first_input, used;
} Case;

static const Case CASES[] = {{1, 1, 4, 0, 1, 0, 4},         {1, 40, 96, 0, 40, 0, 96},     {1, 70, 200, 3, 61, 64, 130},
                             {7, 33, 64, 0, 33, 0, 64},     {13, 50, 172, 0, 50, 0, 172},  {29, 300, 96, 16, 270, 32, 64},
                             {12, 31, 1000, 2, 29, 0, 999}, {14, 17, 3100, 0, 17, 0, 3100}};

static void packed_product(const Sample *s, const PackedMatrix *packed, const Case *c, int64_t rows, const real *x, bool add, real *y) {
  const MatmulLowbit p = {.weight = &s->matrix,
                          .packed = packed,
                          .first_output = c->first_output,
                          .outputs = c->count,
                          .first_input = c->first_input,
                          .inputs = c->used,
                          .rows = rows,
                          .x = x,
                          .ldx = c->used,
                          .add = add,
                          .c = y,
                          .ldc = c->count};
  void *scratch = NULL;
  const size_t bytes = matmul_lowbit_scratch(&p);
  assert_int_equal(posix_memalign(&scratch, 64, bytes), 0);
  memset(scratch, 0xa5, bytes);
  matmul_lowbit(&p, scratch);
  free(scratch);
}

static void product(const Sample *s, const Case *c, int64_t rows, const real *x, bool add, real *y) {
  packed_product(s, NULL, c, rows, x, add, y);
}

static void compare(const Sample *s, const Case *c, const real *x, real start, const real *y) {
  real *w = malloc((size_t)c->used * sizeof *w);
  double *a = malloc((size_t)(c->rows * c->used) * sizeof *a);
  for (int64_t r = 0; r < c->rows; r++) quantised(x + r * c->used, c->used, s->matrix.kind, a + r * c->used);
  for (int64_t o = 0; o < c->count; o++) {
    lowbit_widen(&s->matrix, c->first_output + o, c->first_input, c->used, w);
    for (int64_t r = 0; r < c->rows; r++) {
      double sum = (double)start, size = fabs(sum);
      for (int64_t i = 0; i < c->used; i++) {
        const double term = (double)w[i] * a[r * c->used + i];
        sum += term, size += fabs(term);
      }
      assert_true(fabs((double)y[r * c->count + o] - sum) <= 2e-6 * size); /* a few roundings of floats: scales, and sums of blocks */
    }
  }
  free(w);
  free(a);
}

static void check_case(LowbitKind kind, const Case *c, bool add, Rng *rng) {
  Sample s = sample_new(kind, c->outputs, c->inputs, rng);
  real *x = random_reals(c->rows * c->used, rng), *y = malloc((size_t)(c->rows * c->count) * sizeof *y);
  for (int64_t i = 0; i < c->rows * c->count; i++) y[i] = add ? 2 : NAN;
  product(&s, c, c->rows, x, add, y);
  compare(&s, c, x, add ? 2 : 0, y);
  sample_free(&s);
  free(x);
  free(y);
}

/* lowbit_kernels() follows kernels(), which is chosen once: the whole program is run by one table, and the others are called by name below.
 */
static void products_are_sums_of_the_quantised_numbers(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 5, 0);
  for (int k = 0; k < KIND_COUNT; k++)
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
      for (int add = 0; add < 2; add++) check_case(KINDS[k], &CASES[i], add, &rng);
}

static void a_row_does_not_depend_on_the_rows_beside_it(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 6, 0);
  const Case c = {31, 83, 224, 0, 83, 0, 224};
  for (int k = 0; k < KIND_COUNT; k++) {
    Sample s = sample_new(KINDS[k], c.outputs, c.inputs, &rng);
    real *x = random_reals(c.rows * c.used, &rng), *y = malloc((size_t)(c.rows * c.count) * sizeof *y), one[83 * 31];
    product(&s, &c, c.rows, x, false, y);
    for (int64_t rows = 1; rows <= 15; rows += 7)
      for (int64_t r = 0; r + rows <= c.rows; r++) {
        product(&s, &c, rows, x + r * c.used, false, one);
        assert_memory_equal(one, y + r * c.count, (size_t)(rows * c.count) * sizeof *y);
      }
    sample_free(&s);
    free(x);
    free(y);
  }
}

typedef struct Pieces {
  real *start, *y; /* [rows, outputs] */
  int64_t outputs;
} Pieces;

static void start_piece(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns, real *c, int64_t ldc) {
  const Pieces *p = context;
  for (int64_t r = 0; r < rows; r++) memcpy(c + r * ldc, p->start + (row + r) * p->outputs + column, (size_t)columns * sizeof *c);
}

static void keep_piece(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns, real *c, int64_t ldc) {
  const Pieces *p = context;
  for (int64_t r = 0; r < rows; r++) memcpy(p->y + (row + r) * p->outputs + column, c + r * ldc, (size_t)columns * sizeof *c);
}

/* Activations in bf16 and a result that is handed over piece by piece: the same bits as from the same numbers in full into a matrix. */
static void bf16_rows_and_pieces_give_the_same_bits(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 11, 0);
  for (int k = 0; k < KIND_COUNT; k++)
    for (int64_t rows = 1; rows < 40; rows += 19) {
      const Case c = {rows, 330, 224, 0, 330, 0, 224};
      const int64_t count = rows * c.count;
      Sample s = sample_new(KINDS[k], c.outputs, c.inputs, &rng);
      real *x = random_reals(rows * c.used, &rng), *want = random_reals(count, &rng);
      uint16_t *narrow = malloc((size_t)(rows * c.used) * sizeof *narrow);
      Pieces pieces = {malloc((size_t)count * sizeof *want), malloc((size_t)count * sizeof *want), c.count};
      kernels()->narrow(rows * c.used, x, narrow);
      kernels()->widen(NARROW_BF16, rows * c.used, narrow, x);
      memcpy(pieces.start, want, (size_t)count * sizeof *want);
      product(&s, &c, rows, x, true, want);
      const MatmulLowbit p = {.weight = &s.matrix,
                              .outputs = c.count,
                              .inputs = c.used,
                              .rows = rows,
                              .x_bf16 = narrow,
                              .ldx = c.used,
                              .add = true,
                              .before = start_piece,
                              .after = keep_piece,
                              .context = &pieces};
      void *scratch = NULL;
      assert_int_equal(posix_memalign(&scratch, 64, matmul_lowbit_scratch(&p)), 0);
      matmul_lowbit(&p, scratch);
      assert_memory_equal(pieces.y, want, (size_t)count * sizeof *want);
      free(scratch), free(narrow), free(x), free(want), free(pieces.start), free(pieces.y);
      sample_free(&s);
    }
}

static void no_number_and_infinities_are_not_hidden(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 7, 0);
  const Case c = {2, 20, 64, 0, 20, 0, 64};
  for (int k = 0; k < KIND_COUNT; k++)
    for (int infinite = 0; infinite < 2; infinite++) {
      Sample s = sample_new(KINDS[k], c.outputs, c.inputs, &rng);
      real *x = random_reals(c.rows * c.used, &rng), y[40];
      x[37] = infinite ? (real)INFINITY : (real)NAN;
      product(&s, &c, 2, x, false, y);
      for (int o = 0; o < 20; o++) assert_true(!isfinite(y[o]) && isfinite(y[20 + o]));
      product(&s, &c, 1, x, false, y);
      for (int o = 0; o < 20; o++) assert_false(isfinite(y[o]));
      sample_free(&s);
      free(x);
    }
}

static void rows_of_zeros_and_of_almost_nothing_give_zeros(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 8, 0);
  const Case c = {2, 5, 64, 0, 5, 0, 64};
  for (int k = 0; k < KIND_COUNT; k++) {
    Sample s = sample_new(KINDS[k], c.outputs, c.inputs, &rng);
    real x[128] = {0}, y[10];
    for (int i = 64; i < 128; i++) x[i] = (real)1e-40;
    product(&s, &c, 2, x, false, y);
    for (int o = 0; o < 10; o++) assert_true(y[o] == 0);
    sample_free(&s);
  }
}

/* ---- tables against the portable one ---- */

static void each_table_quantises_alike(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 9, 0);
  for (int t = 0; t < TABLE_COUNT; t++) {
    const LowbitKernels *table = lowbit_kernels_named(TABLES[t]);
    for (int64_t n = 1; table && n < 90; n++) {
      real *x = random_reals(n, &rng);
      int8_t want[90], have[90];
      float want_scale, have_scale;
      int32_t want_sum, have_sum;
      portable()->quantise(n, x, want, &want_scale, &want_sum);
      table->quantise(n, x, have, &have_scale, &have_sum);
      assert_memory_equal(want, have, (size_t)n);
      assert_true(want_scale == have_scale && want_sum == have_sum);
      free(x);
    }
  }
}

static void check_tile(const LowbitKernels *table, const Sample *s, int64_t rows, Rng *rng) {
  const LowbitMatrix *m = &s->matrix;
  const int64_t stride = (m->inputs + 63) / 64 * 64, groups = lowbit_groups(m->kind, m->inputs), panels = (m->outputs + 31) / 32 * 2;
  int8_t *a = calloc((size_t)(rows * stride), 1);
  uint8_t *panel = aligned_alloc(64, (size_t)(panels * 16 * stride));
  float *scales = malloc((size_t)(panels * 16 * groups) * sizeof *scales), *scale = malloc((size_t)(rows * groups) * sizeof *scale);
  int32_t *sum = malloc((size_t)(rows * groups) * sizeof *sum);
  real *c = calloc((size_t)(rows * m->outputs), sizeof *c), *want = calloc((size_t)(rows * m->outputs), sizeof *want);
  const int64_t size = groups == 1 ? m->inputs : LOWBIT_BLOCK;
  for (int64_t r = 0; r < rows; r++) {
    real *x = random_reals(m->inputs, rng);
    for (int64_t g = 0; g < groups; g++) {
      const int64_t left = m->inputs - g * size, n = left < size ? left : size;
      portable()->quantise(n, x + g * size, a + r * stride + g * size, &scale[r * groups + g], &sum[r * groups + g]);
    }
    free(x);
  }
  const int64_t row_bytes = (int64_t)lowbit_row_bytes(m->kind, m->inputs);
  memset(panel, 0x5a, (size_t)(panels * 16 * stride));
  for (int64_t p = 0; p * 16 < m->outputs; p++)
    table->panel(m->kind, m->outputs - p * 16, m->inputs, s->bytes + p * 16 * row_bytes, row_bytes, panel + p * 16 * stride,
                 scales + p * 16 * groups);
  LowbitTile tile = {.x = {a, stride, groups, scale, sum},
                     .rows = rows,
                     .inputs = m->inputs,
                     .offset = lowbit_offset(m->kind),
                     .panels = panel,
                     .panel_bytes = 16 * stride,
                     .scale = m->kind == LOWBIT_INT8 ? s->scale : scales,
                     .blocks = m->kind != LOWBIT_INT8,
                     .columns = m->outputs,
                     .c = c,
                     .ldc = m->outputs};
  table->tile(&tile);
  for (int64_t r = 0; r < rows; r++)
    portable()->dots(&(LowbitDots){.x = {a + r * stride, stride, groups, scale + r * groups, sum + r * groups},
                                   .kind = m->kind,
                                   .outputs = m->outputs,
                                   .inputs = m->inputs,
                                   .numbers = s->bytes,
                                   .row_bytes = row_bytes,
                                   .scale = s->scale,
                                   .y = want + r * m->outputs});
  for (int64_t i = 0; i < rows * m->outputs; i++)
    if (m->kind == LOWBIT_INT8)
      assert_true(c[i] == want[i]); /* whole numbers, scaled once */
    else
      assert_true(fabs((double)(c[i] - want[i])) <= 1e-5 * (1 + fabs((double)want[i])));
  free(a), free(panel), free(scales), free(scale), free(sum), free(c), free(want);
}

static void each_table_gives_what_the_portable_one_does(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 10, 0);
  static const int64_t inputs[] = {4, 32, 61, 64, 96, 200}, outputs[] = {1, 16, 31, 50};
  for (int t = 0; t < TABLE_COUNT; t++)
    for (int k = 0; lowbit_kernels_named(TABLES[t]) && k < KIND_COUNT; k++)
      for (int i = 0; i < 6; i++)
        for (int o = 0; o < 4; o++) {
          Sample s = sample_new(KINDS[k], outputs[o], inputs[i], &rng);
          for (int64_t rows = 1; rows <= LOWBIT_TILE_ROWS; rows++) check_tile(lowbit_kernels_named(TABLES[t]), &s, rows, &rng);
          sample_free(&s);
        }
}

/* Of the tables that the processor has the last is the fastest. */
static void the_fastest_table_is_chosen(void **state) {
  (void)state;
  const char *wanted = getenv("ASTRA_KERNELS");
  const LowbitKernels *best = portable();
  for (int t = 0; t < TABLE_COUNT; t++)
    if (lowbit_kernels_named(TABLES[t])) best = lowbit_kernels_named(TABLES[t]);
  if (wanted == NULL) assert_string_equal(lowbit_kernels()->name, best->name);
  if (wanted != NULL && strcmp(wanted, "portable") == 0) assert_string_equal(lowbit_kernels()->name, "portable");
}

/* The portable kernels are named where the processor has faster ones, be it for these products alone (arm64). */
static void slow_kernels_are_warned_of(void **state) {
  (void)state;
  const char *wanted = getenv("ASTRA_KERNELS");
  char *before = wanted ? strdup(wanted) : NULL, text[KERNELS_TEXT];
  bool faster = false;
  for (int t = 1; t < TABLE_COUNT; t++) faster |= lowbit_kernels_named(TABLES[t]) != NULL;
  (void)lowbit_kernels(); /* chosen once, by what the environment says now */
  setenv("ASTRA_KERNELS", "portable", 1);
  assert_int_equal(kernels_check("none", text, sizeof text), STATUS_OK);
  if (faster) assert_non_null(strstr(text, ": ASTRA_KERNELS=portable; unset it"));
  if (!faster) assert_string_equal(text, "");
  if (lowbit_kernels_named("neon")) assert_non_null(strstr(text, "dot products"));
  unsetenv("ASTRA_KERNELS");
  assert_int_equal(kernels_check("none", text, sizeof text), STATUS_OK);
  assert_string_equal(text, "");
  if (before) setenv("ASTRA_KERNELS", before, 1);
  free(before);
}

/* ---- int8 weights that oneDNN multiplies, here with whatever 8-bit dot products the processor has ---- */

static bool packs_int8(void) {
  if (matmul_choose_backend("onednn-int8") == STATUS_OK &&
      matmul_packed_bytes(&(PackedMatrix){.outputs = 64, .inputs = 64, .int8 = true}) > 0)
    return true;
  printf("skipped: this processor, build or table of kernels multiplies int8 in its own kernels alone\n");
  return false;
}

static PackedMatrix pack(const LowbitMatrix *matrix) {
  PackedMatrix packed = {.outputs = matrix->outputs, .inputs = matrix->inputs, .int8 = true};
  packed.words = aligned_alloc(64, (matmul_packed_bytes(&packed) + 63) / 64 * 64);
  assert_non_null(packed.words);
  matmul_pack(&packed, matrix->numbers, NARROW_NONE, false);
  return packed;
}

/* rows, outputs and inputs around the sizes of pieces, strips and padding. The last ones are cut where strips or inputs are not. */
static const Case PACKED_CASES[] = {{16, 1, 4, 0, 1, 0, 4},        {29, 70, 61, 0, 70, 0, 61},        {128, 64, 64, 0, 64, 0, 64},
                                    {131, 200, 96, 0, 200, 0, 96}, {300, 130, 1000, 64, 66, 0, 1000}, {40, 400, 200, 128, 130, 0, 200},
                                    {7, 80, 96, 0, 80, 0, 96},     {33, 300, 128, 3, 261, 0, 128},    {33, 128, 128, 64, 64, 64, 64},
                                    {33, 128, 128, 0, 64, 0, 64},  {50, 768, 3072, 0, 768, 0, 3072}};

static void packed_products_have_the_same_bits(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 12, 0);
  if (!packs_int8()) skip();
  for (size_t i = 0; i < sizeof PACKED_CASES / sizeof *PACKED_CASES; i++)
    for (int add = 0; add < 2; add++) {
      const Case *c = &PACKED_CASES[i];
      const int64_t count = c->rows * c->count;
      Sample s = sample_new(LOWBIT_INT8, c->outputs, c->inputs, &rng);
      PackedMatrix packed = pack(&s.matrix);
      real *x = random_reals(c->rows * c->used, &rng), *want = random_reals(count, &rng), *have = malloc((size_t)count * sizeof *have);
      memcpy(have, want, (size_t)count * sizeof *have);
      product(&s, c, c->rows, x, add, want);
      packed_product(&s, &packed, c, c->rows, x, add, have);
      assert_memory_equal(have, want, (size_t)count * sizeof *have);
      sample_free(&s);
      free(packed.words), free(x), free(want), free(have);
    }
}

/* Zeros where the packed numbers were tell which ones a product takes. */
static void many_rows_take_the_packed_numbers(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 13, 0);
  if (!packs_int8()) skip();
  const Case c = {20, 90, 100, 0, 90, 0, 100};
  Sample s = sample_new(LOWBIT_INT8, c.outputs, c.inputs, &rng);
  PackedMatrix packed = pack(&s.matrix);
  real *x = random_reals(c.rows * c.used, &rng), y[20 * 90], want[20 * 90];
  product(&s, &c, c.rows, x, false, want);
  memset(packed.words, 0, matmul_packed_bytes(&packed));
  packed_product(&s, &packed, &c, 1, x, false, y);
  assert_memory_equal(y, want, 90 * sizeof *y);
  packed_product(&s, &packed, &c, c.rows, x, false, y);
  for (int i = 0; i < 20 * 90; i++) assert_true(y[i] == 0);
  assert_int_equal(matmul_choose_backend("openblas"), STATUS_OK);
  assert_int_equal(matmul_packed_bytes(&(PackedMatrix){.outputs = 64, .inputs = 64, .int8 = true}), 0);
  sample_free(&s);
  free(packed.words), free(x);
}

/* A result that exists in pieces alone, of rows in bf16, and a row that is no number. */
static void packed_products_come_in_pieces(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 14, 0);
  if (!packs_int8()) skip();
  const Case c = {150, 330, 224, 0, 330, 0, 224};
  const int64_t count = c.rows * c.count;
  Sample s = sample_new(LOWBIT_INT8, c.outputs, c.inputs, &rng);
  PackedMatrix packed = pack(&s.matrix);
  real *x = random_reals(c.rows * c.used, &rng), *want = random_reals(count, &rng);
  uint16_t *narrow = malloc((size_t)(c.rows * c.used) * sizeof *narrow);
  Pieces pieces = {malloc((size_t)count * sizeof *want), malloc((size_t)count * sizeof *want), c.count};
  x[3 * c.used + 7] = (real)NAN;
  kernels()->narrow(c.rows * c.used, x, narrow);
  kernels()->widen(NARROW_BF16, c.rows * c.used, narrow, x);
  memcpy(pieces.start, want, (size_t)count * sizeof *want);
  product(&s, &c, c.rows, x, true, want);
  const MatmulLowbit p = {.weight = &s.matrix,
                          .packed = &packed,
                          .outputs = c.count,
                          .inputs = c.used,
                          .rows = c.rows,
                          .x_bf16 = narrow,
                          .ldx = c.used,
                          .add = true,
                          .before = start_piece,
                          .after = keep_piece,
                          .context = &pieces};
  void *scratch = NULL;
  assert_int_equal(posix_memalign(&scratch, 64, matmul_lowbit_scratch(&p)), 0);
  matmul_lowbit(&p, scratch);
  for (int64_t i = 0; i < count; i++)
    assert_true(i / c.count == 3 ? isnan((double)pieces.y[i]) && isnan((double)want[i]) : pieces.y[i] == want[i]);
  sample_free(&s);
  free(scratch), free(narrow), free(x), free(want), free(pieces.start), free(pieces.y), free(packed.words);
}

typedef struct Repeated {
  const Sample *sample;
  const PackedMatrix *packed;
  const Case *shape;
  const real *x;
  real *y;
} Repeated;

static void repeat(void *context) {
  const Repeated *r = context;
  packed_product(r->sample, r->packed, r->shape, r->shape->rows, r->x, false, r->y);
}

static void signals_change_no_packed_product(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 15, 0);
  if (!packs_int8()) skip();
  const Case c = {100, 150, 600, 0, 150, 0, 600};
  const size_t bytes = (size_t)(c.rows * c.count) * sizeof(real);
  Sample s = sample_new(LOWBIT_INT8, c.outputs, c.inputs, &rng);
  PackedMatrix packed = pack(&s.matrix);
  real *x = random_reals(c.rows * c.used, &rng), *want = malloc(bytes), *y = malloc(bytes);
  product(&s, &c, c.rows, x, false, want);
  flood(repeat, &(Repeated){&s, &packed, &c, x, y}, y, want, bytes);
  sample_free(&s);
  free(packed.words), free(x), free(want), free(y);
}

/* The largest numbers that there are: no sum may wrap. */
static void the_longest_rows_do_not_overflow(void **state) {
  (void)state;
  enum { N = LOWBIT_MAX_INPUTS };
  int8_t *numbers = malloc(2 * N);
  real *x = malloc(2 * N * sizeof *x), y[4];
  const float scale[2] = {1, 1};
  memset(numbers, 127, N);
  memset(numbers + N, -128, N);
  for (int i = 0; i < N; i++) x[i] = 127, x[N + i] = -127;
  Sample s = {.matrix = {LOWBIT_INT8, 2, N, numbers, scale}};
  const Case c = {2, 2, N, 0, 2, 0, N};
  product(&s, &c, 2, x, false, y);
  const real max = (real)(127.0 * 127 * N), min = (real)(-128.0 * 127 * N);
  assert_true(y[0] == max && y[1] == min && y[2] == -max && y[3] == -min);
  product(&s, &c, 1, x, false, y);
  assert_true(y[0] == max && y[1] == min);
  real *rows = malloc((size_t)16 * N * sizeof *rows), have[32];
  for (int64_t i = 0; i < 16 * N; i++) rows[i] = i / N % 2 == 0 ? 127 : -127;
  if (packs_int8()) { /* by unsigned numbers of up to 255 */
    PackedMatrix packed = pack(&s.matrix);
    packed_product(&s, &packed, &c, 16, rows, false, have);
    for (int r = 0; r < 16; r++) assert_true(have[2 * r] == (r % 2 ? -max : max) && have[2 * r + 1] == (r % 2 ? -min : min));
    free(packed.words);
  }
  free(rows);
  free(numbers);
  free(x);
}

int main(void) {
  threads_start(2);
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_fastest_table_is_chosen),
                                     cmocka_unit_test(slow_kernels_are_warned_of),
                                     cmocka_unit_test(products_are_sums_of_the_quantised_numbers),
                                     cmocka_unit_test(a_row_does_not_depend_on_the_rows_beside_it),
                                     cmocka_unit_test(bf16_rows_and_pieces_give_the_same_bits),
                                     cmocka_unit_test(no_number_and_infinities_are_not_hidden),
                                     cmocka_unit_test(rows_of_zeros_and_of_almost_nothing_give_zeros),
                                     cmocka_unit_test(each_table_quantises_alike),
                                     cmocka_unit_test(each_table_gives_what_the_portable_one_does),
                                     cmocka_unit_test(the_longest_rows_do_not_overflow),
                                     cmocka_unit_test(packed_products_have_the_same_bits),
                                     cmocka_unit_test(many_rows_take_the_packed_numbers),
                                     cmocka_unit_test(packed_products_come_in_pieces),
                                     cmocka_unit_test(signals_change_no_packed_product)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  threads_stop();
  return failed;
}
