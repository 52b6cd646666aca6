/* Products with packed weights, divided into pieces of some rows by some strips, which threads take in order. See matmul_packed.h. */
#include "autograd/kernels/matmul_packed.h"
#include "autograd/kernels/lowbit_kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/onednn.h"
#include "base/threads.h"
#include <string.h>

enum {
  TILE_ROWS = 256,    /* their part of A stays in the second-level cache beside a strip */
  MIN_TILE = 48,      /* rows that a strip is read for, where many threads share few strips */
  PIECE_STRIPS = 4,   /* strips of a piece: its numbers are still in the cache when `after` gets them */
  PIECES_A_THREAD = 2 /* at least, where there are as many */
};

static int64_t strips_of(int64_t outputs) { return (outputs + PACKED_STRIP - 1) / PACKED_STRIP; }
static int64_t words_of(const PackedMatrix *matrix, int64_t inputs) {
  if (matrix->int8) return (inputs + LOWBIT_PIECE - 1) / LOWBIT_PIECE * (LOWBIT_PIECE / 4);
  return matrix->bf16 ? inputs / 2 : inputs;
}

_Static_assert((int)PACKED_STRIP == (int)ONEDNN_STRIP && LOWBIT_PIECE % 64 == 0, "int8 strips are laid out as onednn.h asks");

/* Tests it, since another version of oneDNN may not support strips of int8. */
static bool strips_multiply(void) {
  enum { SIZE = 64 };
  static _Alignas(SIZE) const uint8_t zeros[SIZE * SIZE];
  static _Thread_local int32_t result[SIZE * SIZE];
  return onednn_product(&(OnednnProduct){.inputs = ONEDNN_INT8,
                                         .output = ONEDNN_INT8,
                                         .m = SIZE,
                                         .n = SIZE,
                                         .k = SIZE,
                                         .lda = SIZE,
                                         .ldc = SIZE,
                                         .a = zeros,
                                         .b = zeros,
                                         .c = result});
}

/* AMX multiplies bf16 faster than vectors do: oneDNN uses it. */
bool matmul_packs(const PackedMatrix *matrix) {
  if (matmul_backend() != MATMUL_ONEDNN) return false;
  if (matrix->int8) return matmul_int8_in_onednn() && lowbit_kernels()->scale != NULL && strips_multiply();
  return kernels_product_packed(matrix->bf16) != NULL && (!matrix->bf16 || (matrix->inputs % 2 == 0 && !onednn_has_amx()));
}

/* ---- packing */

size_t matmul_packed_bytes(const PackedMatrix *matrix) {
  const int64_t of_output = words_of(matrix, matrix->inputs) + (matrix->int8 ? 1 : 0); /* and its sum */
  return (size_t)(strips_of(matrix->outputs) * of_output * PACKED_STRIP) * sizeof *matrix->words;
}

typedef struct Packing {
  PackedMatrix *matrix;
  const real *weight;
  bool transposed;
} Packing;

static uint32_t word_of(const Packing *job, int64_t output, int64_t word) {
  const PackedMatrix *matrix = job->matrix;
  const int64_t step = job->transposed ? matrix->outputs : 1, start = output * (job->transposed ? 1 : matrix->inputs);
  if (matrix->bf16) {
    const real *pair = job->weight + start + 2 * word * step;
    return (uint32_t)narrow_bfloat((float)pair[0]) | (uint32_t)narrow_bfloat((float)pair[step]) << 16;
  }
  const float number = (float)job->weight[start + word * step];
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

static void pack_strips(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Packing *job = context;
  const int64_t words = words_of(job->matrix, job->matrix->inputs);
  for (int64_t strip = begin; strip < end; strip++) {
    uint32_t *to = job->matrix->words + strip * words * PACKED_STRIP;
    for (int64_t word = 0; word < words; word++)
      for (int64_t output = strip * PACKED_STRIP; output < (strip + 1) * PACKED_STRIP; output++)
        *to++ = output < job->matrix->outputs ? word_of(job, output, word) : 0;
  }
}

typedef struct BytesPacking {
  PackedMatrix *matrix;
  const int8_t *numbers;
} BytesPacking;

static void pack_bytes(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const BytesPacking *job = context;
  const PackedMatrix *matrix = job->matrix;
  const int64_t words = words_of(matrix, matrix->inputs), outputs = matrix->outputs, inputs = matrix->inputs;
  for (int64_t output = begin * PACKED_STRIP; output < end * PACKED_STRIP; output++) {
    uint32_t *to = matrix->words + output / PACKED_STRIP * words * PACKED_STRIP + output % PACKED_STRIP;
    const int8_t *row = job->numbers + output * inputs;
    int32_t sum = 0;
    for (int64_t word = 0; word < words; word++, to += PACKED_STRIP) {
      const int64_t left = output < outputs ? inputs - 4 * word : 0;
      int8_t four[4] = {0};
      if (left > 0) memcpy(four, row + 4 * word, (size_t)matmul_lesser(4, left));
      memcpy(to, four, sizeof four);
      sum += four[0] + four[1] + four[2] + four[3];
    }
    matrix->offset_sums[output] = lowbit_offset(LOWBIT_INT8) * sum;
  }
}

void matmul_pack(PackedMatrix *matrix, const void *weight, bool transposed) {
  const int64_t strips = strips_of(matrix->outputs);
  if (!matrix->int8) {
    matrix->product = kernels_product_packed(matrix->bf16);
    threads_for(strips, 1, pack_strips, &(Packing){matrix, weight, transposed});
    return;
  }
  matrix->offset_sums = (int32_t *)matrix->words + strips * words_of(matrix, matrix->inputs) * PACKED_STRIP;
  threads_for(strips, 1, pack_bytes, &(BytesPacking){matrix, weight});
}

/* ---- products */

typedef struct Job {
  const MatmulPacked *p;
  int64_t strips, tile_rows;
} Job;

static void run_strip(const Job *job, int64_t row, int64_t rows, int64_t strip) {
  const MatmulPacked *p = job->p;
  const PackedMatrix *matrix = p->weight;
  const int64_t column = strip * PACKED_STRIP, number = matrix->bf16 ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
  const int64_t first = (p->first_output / PACKED_STRIP + strip) * words_of(matrix, matrix->inputs) + words_of(matrix, p->first_input);
  const Numbers c = numbers_from(p->c, row * p->outputs + column);
  matrix->product(&(PackedStrip){.rows = rows,
                                 .words = words_of(matrix, p->inputs),
                                 .a = (const uint8_t *)p->x + row * p->inputs * number,
                                 .row_bytes = p->inputs * number,
                                 .b = matrix->words + first * PACKED_STRIP,
                                 .bias = p->bias ? p->bias + column : NULL,
                                 .add = p->add,
                                 .wide = c.wide,
                                 .narrow = c.narrow,
                                 .ldc = p->outputs,
                                 .columns = matmul_lesser(PACKED_STRIP, p->outputs - column)});
}

/* Items are strips of the first tile of rows, of the second, ... */
static void run_items(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Job *job = context;
  const MatmulPacked *p = job->p;
  for (int64_t item = begin, count; item < end; item += count) {
    const int64_t row = item / job->strips * job->tile_rows, strip = item % job->strips, column = strip * PACKED_STRIP;
    const int64_t rows = matmul_lesser(job->tile_rows, p->rows - row);
    count = matmul_lesser(PIECE_STRIPS, matmul_lesser(end - item, job->strips - strip));
    const int64_t columns = matmul_lesser(count * PACKED_STRIP, p->outputs - column);
    if (p->before) p->before(p->context, row, rows, column, columns);
    for (int64_t i = 0; i < count; i++) run_strip(job, row, rows, strip + i);
    if (p->after) p->after(p->context, row, rows, column, columns);
  }
}

/* Even tiles; more than the cache needs where threads would otherwise have no strips. */
static int64_t tile_rows(int64_t rows, int64_t strips) {
  const int64_t wanted = PIECES_A_THREAD * threads_count() / strips, max = (rows + MIN_TILE - 1) / MIN_TILE;
  int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
  if (tiles < wanted) tiles = matmul_lesser(wanted, max);
  return (rows + tiles - 1) / tiles;
}

void matmul_packed(const MatmulPacked *p) {
  if (p->rows <= 0 || p->outputs <= 0) return;
  const double begun = matmul_count_begin();
  Job job = {.p = p, .strips = strips_of(p->outputs)};
  job.tile_rows = tile_rows(p->rows, job.strips);
  const int64_t items = job.strips * ((p->rows + job.tile_rows - 1) / job.tile_rows);
  const bool small = (double)p->rows * (double)p->outputs * (double)p->inputs < MATMUL_POOLED_MIN;
  threads_for(items, small ? items : 1, run_items, &job);
  matmul_count_end(p->rows, p->outputs, p->inputs, begun);
}
