/* Divides a product along the outputs, one range per thread. A thread interleaves the weights of some panels into scratch, which fits the
 * second-level cache, and multiplies all rows with them, twelve at a time; interleaving reads each weight once and costs as much as three
 * to four rows. Weights therefore stay as they are in memory, for one row (which reads them there) and for many, mapped from a file or not.
 * Measured against keeping them interleaved: 197 rows by 768 x 3,072 within 3%, at half the memory.
 *
 * Tiles of AMX are several times as fast, and interleaving would take a good part of the time: there, weights that were packed once
 * (matmul_pack) go to oneDNN, rows and outputs in pieces. It multiplies unsigned by signed bytes, of which here the activations are
 * the unsigned ones (a + 128). Its sums are scaled as those of our own kernels are, and give the same bits.
 *
 *   scratch | a [rows, stride] | scale [rows, groups] | sum [rows, groups] | of each thread: panels, their scales, or sums | pieces of C |
 *   (each on cache lines) */
#include "autograd/kernels/matmul_lowbit.h"
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/lowbit_kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/kernels/onednn.h"
#include "base/number.h"
#include "base/threads.h"
#include <string.h>

enum {
  LINE = 64,
  GROUP_BYTES = 384 << 10, /* of interleaved weights: with twelve rows of activations and of results, less than a second-level cache */
  MAX_GROUP = 128,         /* outputs; all groups of a thread except the first are read ahead */
  MIN_GROUP = 2 * LOWBIT_PANEL,
  MIN_PACKED_ROWS = 16, /* a tile of AMX; fewer are bound by reading the weights */
  PACKED_ROWS = 128,    /* rows and outputs of a piece: sums and weights stay in the second-level cache */
  PACKED_OUTPUTS = 128
};

typedef struct Job {
  const MatmulLowbit *p;
  const LowbitKernels *kernels;
  LowbitKind kind;
  bool packed;
  int64_t stride, groups, group_outputs, piece_rows;
  int64_t row_bytes;
  const uint8_t *numbers; /* of the first output, from the first input on */
  int8_t *a;
  float *scale;
  int32_t *sum;
  uint8_t *panels; /* [threads][thread_bytes] */
  size_t thread_bytes;
  real *pieces; /* C is NULL: one row whole, or [threads][piece_rows, group_outputs] */
} Job;

static int64_t whole(int64_t count, int64_t of) { return (count + of - 1) / of * of; }
static size_t lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

static size_t panel_bytes(const Job *job) { return (size_t)(job->group_outputs * job->stride); }

static Job describe(const MatmulLowbit *p) {
  Job job = {.p = p, .kernels = lowbit_kernels(), .kind = p->weight->kind};
  job.stride = whole(p->inputs, LOWBIT_PIECE);
  job.groups = lowbit_groups(job.kind, p->inputs);
  job.row_bytes = (int64_t)lowbit_row_bytes(job.kind, p->weight->inputs);
  const bool whole_inputs = p->first_input == 0 && p->inputs == p->weight->inputs, strips = p->first_output % PACKED_STRIP == 0;
  if (p->packed != NULL && p->rows >= MIN_PACKED_ROWS && whole_inputs && strips && job.kernels->scale != NULL) {
    const int64_t tiles = (p->rows + PACKED_ROWS - 1) / PACKED_ROWS;
    job.packed = true;
    job.piece_rows = (p->rows + tiles - 1) / tiles;
    job.group_outputs = PACKED_OUTPUTS;
    job.thread_bytes = lines((size_t)(job.piece_rows * PACKED_OUTPUTS) * sizeof(int32_t));
    const size_t wide = lines((size_t)p->inputs * sizeof(real)); /* quantise_rows */
    if (job.thread_bytes < wide) job.thread_bytes = wide;
    return job;
  }
  job.piece_rows = LOWBIT_TILE_ROWS;
  job.group_outputs = number_lesser(GROUP_BYTES / job.stride / MIN_GROUP * MIN_GROUP, MAX_GROUP);
  if (job.group_outputs < MIN_GROUP) job.group_outputs = MIN_GROUP;
  if (p->rows > 1) {
    job.thread_bytes = lines(panel_bytes(&job));
    if (job.kind != LOWBIT_INT8) job.thread_bytes += lines((size_t)(job.group_outputs * job.groups) * sizeof(float));
  } else if (p->x == NULL) {
    job.thread_bytes = lines((size_t)p->inputs * sizeof(real));
  }
  return job;
}

size_t matmul_lowbit_scratch(const MatmulLowbit *p) {
  const Job job = describe(p);
  const size_t facts = lines((size_t)(p->rows * job.groups) * sizeof(float)), threads = (size_t)threads_count();
  const size_t piece = p->rows > 1 ? threads * (size_t)(job.piece_rows * job.group_outputs) : (size_t)p->outputs; /* where C is NULL */
  return lines((size_t)(p->rows * job.stride)) + 2 * facts + threads * job.thread_bytes + (p->c == NULL ? piece * sizeof(real) : 0);
}

/* ---- activations ---- */

/* Rows in bf16 are widened one at a time, into the memory of the panels to come. */
static void quantise_rows(void *context, int64_t begin, int64_t end, int thread) {
  const Job *job = context;
  const MatmulLowbit *p = job->p;
  const int64_t inputs = p->inputs, size = job->groups == 1 ? inputs : LOWBIT_BLOCK;
  real *wide = (real *)(void *)(job->panels + (size_t)thread * job->thread_bytes);
  for (int64_t r = begin; r < end; r++) {
    int8_t *a = job->a + r * job->stride;
    const real *x = p->x ? p->x + r * p->ldx : wide;
    if (p->x == NULL) kernels()->widen(NARROW_BF16, inputs, p->x_bf16 + r * p->ldx, wide);
    for (int64_t g = 0; g < job->groups; g++)
      job->kernels->quantise(number_lesser(size, inputs - g * size), x + g * size, a + g * size, &job->scale[r * job->groups + g],
                             &job->sum[r * job->groups + g]);
    memset(a + inputs, 0, (size_t)(job->stride - inputs));
    for (int64_t i = 0; job->packed && i < job->stride; i++) a[i] = (int8_t)(a[i] ^ -128); /* as unsigned ones: a + 128 */
  }
}

static LowbitRows rows_from(const Job *job, int64_t r) {
  return (LowbitRows){job->a + r * job->stride, job->stride, job->groups, job->scale + r * job->groups, job->sum + r * job->groups};
}

static const float *scale_of(const Job *job, int64_t output) {
  return job->kind == LOWBIT_INT8 ? job->p->weight->scale + job->p->first_output + output : NULL;
}

/* ---- products ---- */

static void one_row(const Job *job, int64_t begin, int64_t end) {
  const MatmulLowbit *p = job->p;
  real *y = (p->c ? p->c : job->pieces) + begin;
  if (p->before) p->before(p->context, 0, 1, begin, end - begin, y, p->ldc);
  job->kernels->dots(&(LowbitDots){.x = rows_from(job, 0),
                                   .kind = job->kind,
                                   .outputs = end - begin,
                                   .inputs = p->inputs,
                                   .numbers = job->numbers + begin * job->row_bytes,
                                   .row_bytes = job->row_bytes,
                                   .scale = scale_of(job, begin),
                                   .add = p->add,
                                   .y = y});
  if (p->after) p->after(p->context, 0, 1, begin, end - begin, y, p->ldc);
}

/* ahead: bytes of the outputs that this thread computes next. Reading them from memory takes a tenth as long as the products. */
static void many_rows(const Job *job, int64_t column, int64_t columns, int thread, int64_t ahead) {
  const MatmulLowbit *p = job->p;
  uint8_t *panels = job->panels + (size_t)thread * job->thread_bytes;
  float *scales = (float *)(void *)(panels + lines(panel_bytes(job)));
  LowbitTile tile = {.inputs = p->inputs,
                     .offset = lowbit_offset(job->kind),
                     .panels = panels,
                     .panel_bytes = LOWBIT_PANEL * job->stride,
                     .scale = job->kind == LOWBIT_INT8 ? scale_of(job, column) : scales,
                     .blocks = job->kind != LOWBIT_INT8,
                     .columns = columns,
                     .add = p->add,
                     .c = job->pieces + thread * LOWBIT_TILE_ROWS * job->group_outputs,
                     .ldc = p->c ? p->ldc : job->group_outputs};
  const int64_t tiles = (p->rows + LOWBIT_TILE_ROWS - 1) / LOWBIT_TILE_ROWS;
  for (int64_t o = 0; o < columns; o += LOWBIT_PANEL) /* interleaves outputs [column, column + columns) */
    job->kernels->panel(job->kind, columns - o, p->inputs, job->numbers + (column + o) * job->row_bytes, job->row_bytes,
                        panels + o * job->stride, scales + o * job->groups);
  for (int64_t r = 0; r < p->rows; r += LOWBIT_TILE_ROWS) {
    tile.rows = number_lesser(LOWBIT_TILE_ROWS, p->rows - r);
    tile.x = rows_from(job, r);
    if (p->c) tile.c = p->c + r * p->ldc + column;
    tile.ahead = job->numbers + (column + columns) * job->row_bytes + ahead / tiles * (r / LOWBIT_TILE_ROWS);
    tile.ahead_bytes = ahead / tiles;
    if (p->before) p->before(p->context, r, tile.rows, column, columns, tile.c, tile.ldc);
    job->kernels->tile(&tile);
    if (p->after) p->after(p->context, r, tile.rows, column, columns, tile.c, tile.ldc);
  }
}

static void outputs_body(void *context, int64_t begin, int64_t end, int thread) {
  const Job *job = context;
  if (job->p->rows == 1) {
    one_row(job, begin, end);
    return;
  }
  for (int64_t column = begin, columns; column < end; column += columns) {
    columns = number_lesser(job->group_outputs, end - column);
    many_rows(job, column, columns, thread, number_lesser(job->group_outputs, end - column - columns) * job->row_bytes);
  }
}

/* ---- products with packed weights ---- */

/* If oneDNN has no memory. */
static void sum_products(const OnednnProduct *p) {
  const uint8_t *a = p->a, *b = p->b;
  int32_t *c = p->c;
  for (int64_t r = 0; r < p->m; r++)
    for (int64_t o = 0; o < p->n; o++) {
      const uint8_t *strip = b + (o / PACKED_STRIP * p->k * PACKED_STRIP) + o % PACKED_STRIP * 4;
      int32_t sum = 0;
      for (int64_t i = 0; i < p->k; i++) sum += a[r * p->lda + i] * (int8_t)strip[i / 4 * 4 * PACKED_STRIP + i % 4];
      c[r * p->ldc + o] = sum;
    }
}

static void packed_piece(const Job *job, int64_t row, int64_t column, int thread) {
  const MatmulLowbit *p = job->p;
  const int64_t rows = number_lesser(job->piece_rows, p->rows - row), columns = number_lesser(PACKED_OUTPUTS, p->outputs - column);
  const int64_t first = p->first_output + column, ldc = p->c ? p->ldc : PACKED_OUTPUTS;
  real *c = p->c ? p->c + row * ldc + column : job->pieces + thread * job->piece_rows * PACKED_OUTPUTS;
  int32_t *sums = (int32_t *)(void *)(job->panels + (size_t)thread * job->thread_bytes);
  const OnednnProduct product = {.inputs = ONEDNN_INT8,
                                 .output = ONEDNN_INT8,
                                 .m = rows,
                                 .n = whole(columns, PACKED_STRIP),
                                 .k = job->stride,
                                 .lda = job->stride,
                                 .ldc = PACKED_OUTPUTS,
                                 .a = job->a + row * job->stride,
                                 .b = p->packed->words + first * (job->stride / 4),
                                 .c = sums};
  if (!onednn_product(&product)) sum_products(&product);
  if (p->before) p->before(p->context, row, rows, column, columns, c, ldc);
  for (int64_t r = 0; r < rows; r++)
    job->kernels->scale(columns, sums + r * PACKED_OUTPUTS, p->packed->offset_sums + first, scale_of(job, column), job->scale[row + r],
                        p->add, c + r * ldc);
  if (p->after) p->after(p->context, row, rows, column, columns, c, ldc);
}

/* Pieces of the first outputs come first: all rows are multiplied with weights that are in the cache. */
static void pieces_body(void *context, int64_t begin, int64_t end, int thread) {
  const Job *job = context;
  const int64_t tiles = (job->p->rows + job->piece_rows - 1) / job->piece_rows;
  for (int64_t i = begin; i < end; i++) packed_piece(job, i % tiles * job->piece_rows, i / tiles * PACKED_OUTPUTS, thread);
}

static int64_t pieces_of(const Job *job) {
  const MatmulLowbit *p = job->p;
  return (p->rows + job->piece_rows - 1) / job->piece_rows * ((p->outputs + PACKED_OUTPUTS - 1) / PACKED_OUTPUTS);
}

void matmul_lowbit(const MatmulLowbit *p, void *scratch) {
  if (p->rows <= 0 || p->outputs <= 0) return;
  const double begun = matmul_count_begin();
  Job job = describe(p);
  const size_t facts = lines((size_t)(p->rows * job.groups) * sizeof(float));
  uint8_t *at = scratch;
  job.a = (int8_t *)at;
  at += lines((size_t)(p->rows * job.stride));
  job.scale = (float *)(void *)at;
  job.sum = (int32_t *)(void *)(at + facts);
  job.panels = at + 2 * facts;
  job.pieces = (real *)(void *)(job.panels + (size_t)threads_count() * job.thread_bytes);
  const int64_t start = job.kind == LOWBIT_INT8 ? p->first_input : (int64_t)lowbit_row_bytes(job.kind, p->first_input);
  job.numbers = (const uint8_t *)p->weight->numbers + p->first_output * job.row_bytes + start;
  const bool small = (double)p->rows * (double)p->outputs * (double)p->inputs < MATMUL_POOLED_MIN;
  threads_for(p->rows, small ? p->rows : 4, quantise_rows, &job);
  if (job.packed)
    threads_for(pieces_of(&job), small ? pieces_of(&job) : 1, pieces_body, &job);
  else
    threads_for(p->outputs, small ? p->outputs : MIN_GROUP, outputs_body, &job); /* inside a body it knows whose scratch is free */
  matmul_count_end(p->rows, p->outputs, p->inputs, begun);
}

/* ---- products whose activations stay in full ---- */

typedef struct Widened {
  const LowbitMatrix *weight;
  bool back;
  int64_t first, count, m;
  const real *a;
  int64_t lda;
  bool add;
  real *c;
  int64_t ldc;
  real *scratch;
} Widened;

static void widened_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)begin, (void)end;
  const Widened *w = context;
  const int64_t inputs = w->weight->inputs, room = matmul_narrow_scratch() / threads_count(), max = room > inputs ? room / inputs : 1;
  real *wide = w->scratch + thread * room;
  for (int64_t done = 0, n; done < w->count; done += n) {
    n = number_lesser(max, w->count - done);
    for (int64_t i = 0; i < n; i++) lowbit_widen(w->weight, w->first + done + i, 0, inputs, wide + i * inputs);
    if (w->back)
      matmul_single(false, false, w->m, inputs, n, 1, w->a + done, w->lda, wide, inputs, w->add || done > 0 ? 1 : 0, w->c, w->ldc);
    else
      matmul_single(false, true, w->m, n, inputs, 1, w->a, w->lda, wide, inputs, w->add ? 1 : 0, w->c + done, w->ldc);
  }
}

void matmul_lowbit_widened(const LowbitMatrix *weight, bool back, int64_t first, int64_t count, int64_t m, const real *a, int64_t lda,
                           bool add, real *c, int64_t ldc, real *scratch) {
  Widened job = {weight, back, first, count, m, a, lda, add, c, ldc, scratch};
  threads_for(1, 1, widened_body, &job); /* inside a body it knows whose scratch is free */
}
