/* Vector quantisation with assignments already made, as two operations: the quantised tokens (what attention sees) and the commitment loss.
 * The gradient paths are chosen by QuantiseGradient; none leads to the codebook or the noise. Kept for backward: x and the codes.
 *
 * For gradient checks `frozen_x` replaces the stopped gradients by constants: with q0 and x0 the codewords and inputs at that point,
 * straight-through is x + (q0 - x0), rotation is a fixed linear map of x, none is q0: functions whose true derivative is what backward
 * gives. */
#include "autograd/ops/op_common.h"

typedef struct Quantisation {
  Tensor *x, *y, *loss; /* x in full width; y: the quantised tokens; loss: the commitment */
  Quantise options;
  int64_t rows, width, group_width;
  double *partial; /* sums of distances over chunks of QUANTISE_ROWS rows, added in order */
  real *stage;     /* [threads, STAGES, QUANTISE_ROWS, width] of forward: the noise, and what it is drawn with or a row in full */
  bool pulled;     /* the commitment's gradient went with that of the tokens */
} Quantisation;

enum { STAGES = 2 };

static int64_t chunks_of(int64_t rows) { return (rows + QUANTISE_ROWS - 1) / QUANTISE_ROWS; }

static const real *codeword(const Quantisation *job, int64_t row, int64_t group) {
  const Quantise *options = &job->options;
  return options->codebook + (group * options->entries + options->codes[row * options->groups + group]) * job->group_width;
}

/* ---------------------------------------------------------------- rotation */

/* The map x -> (|q|/|x|) R x of one group, R turning x/|x| to q/|q|: R v = v - 2 r (r.v) + 2 q^ (x^.v) with r = (x^ + q^)/|x^ + q^|.
 * Its transpose swaps x^ and q^ in the last term. A zero vector, or opposite ones, have no such rotation: straight-through then. */
typedef struct Rotation {
  const real *x, *q;
  real x_inverse, q_inverse, r_inverse2, scale; /* 1/|x|, 1/|q|, 1/|x^ + q^|^2, |q|/|x| */
  bool plain;
} Rotation;

static Rotation rotation_of(int64_t n, const real *x, const real *q) {
  real x2 = kernels()->dot(n, x, x), q2 = kernels()->dot(n, q, q), xq = kernels()->dot(n, x, q);
  Rotation rotation = {.x = x, .q = q, .plain = true};
  if (!(x2 > 0) || !(q2 > 0)) return rotation;
  real x_norm = (real)sqrt((double)x2), q_norm = (real)sqrt((double)q2), r2 = 2 + 2 * xq / (x_norm * q_norm);
  if (!(r2 > (real)1e-6)) return rotation;
  return (Rotation){x, q, 1 / x_norm, 1 / q_norm, 1 / r2, q_norm / x_norm, false};
}

/* out += scale R v, or its transpose. */
static void rotate(const Rotation *rotation, int64_t n, bool transpose, const real *v, real *out) {
  if (rotation->plain) {
    kernels()->add(n, v, out);
    return;
  }
  real x_v = rotation->x_inverse * kernels()->dot(n, rotation->x, v), q_v = rotation->q_inverse * kernels()->dot(n, rotation->q, v);
  real along_r = 2 * rotation->r_inverse2 * (x_v + q_v);
  real along_x = -along_r + (transpose ? 2 * q_v : 0), along_q = -along_r + (transpose ? 0 : 2 * x_v);
  kernels()->axpy(n, rotation->scale, v, out);
  kernels()->axpy(n, rotation->scale * along_x * rotation->x_inverse, rotation->x, out);
  kernels()->axpy(n, rotation->scale * along_q * rotation->q_inverse, rotation->q, out);
}

/* ---------------------------------------------------------------- quantised tokens */

static void frozen_group(const Quantisation *job, int64_t at, const real *q, real *y) {
  int64_t n = job->group_width;
  const real *x = job->x->value + at, *origin = job->options.frozen_x + at;
  if (job->options.gradient == QUANTISE_ROTATION) {
    Rotation rotation = rotation_of(n, origin, q);
    memset(y, 0, (size_t)n * sizeof(real));
    rotate(&rotation, n, false, x, y);
    if (!rotation.plain) return;
  }
  memcpy(y, q, (size_t)n * sizeof(real));
  if (job->options.gradient == QUANTISE_NONE) return;
  kernels()->add(n, x, y);
  kernels()->axpy(n, -1, origin, y);
}

/* The groups of one row. */
static WordList words_of(const Quantisation *job, int64_t row) {
  const Quantise *options = &job->options;
  int64_t d = job->group_width;
  return (WordList){options->groups, d, d, options->codebook, options->entries * d, options->codes + row * options->groups, 1};
}

/* Codewords of a row, in full width, at `y`; returns |x - q|^2. */
static double look_up(const Quantisation *job, int64_t row, real *y) {
  const WordList words = words_of(job, row), whole = {1, job->width, job->width, y, 0, (const int32_t[]){0}, 0};
  kernels()->words_copy(&words, y, job->group_width);
  const double distance = kernels()->words_distance(&whole, job->x->value + row * job->width, job->width);
  for (int64_t group = 0; job->options.frozen_x && group < job->options.groups; group++)
    frozen_group(job, row * job->width + group * job->group_width, codeword(job, row, group), y + group * job->group_width);
  return distance;
}

/* The tokens of a chunk of rows, with their noise, and, while a row is in the cache, its distance. */
static void tokens_body(void *context, int64_t begin, int64_t end, int thread) {
  Quantisation *job = context;
  const Numbers y = tensor_numbers(job->y);
  const int64_t width = job->width;
  real *noise = job->stage + thread * STAGES * QUANTISE_ROWS * width, *scratch = noise + QUANTISE_ROWS * width;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    const int64_t first = chunk * QUANTISE_ROWS, rows = job->rows - first < QUANTISE_ROWS ? job->rows - first : QUANTISE_ROWS;
    if (job->options.noise) job->options.noise->draw(job->options.noise, first, rows, noise, scratch);
    double sum = 0;
    for (int64_t row = 0; row < rows; row++) {
      real *to = numbers_place(y, (first + row) * width, scratch); /* the noise is drawn: scratch is free */
      sum += look_up(job, first + row, to);
      if (job->options.noise) kernels()->add(width, noise + row * width, to);
      numbers_written(y, (first + row) * width, width, to);
    }
    job->partial[chunk] = sum;
  }
}

static void tokens_forward(Tape *tape, void *record) {
  Quantisation *job = record;
  const int64_t chunks = chunks_of(job->rows);
  const size_t mark = tape_scratch_begin(tape);
  job->stage = tape_alloc(tape, (size_t)(threads_count() * STAGES * QUANTISE_ROWS * job->width) * sizeof(real));
  if (job->stage != NULL) tape_for(tape, chunks, 1, tokens_body, job);
  tape_scratch_end(tape, mark);
  if (job->stage == NULL || tape_planning(tape)) return;
  double sum = 0;
  for (int64_t chunk = 0; chunk < chunks; chunk++) sum += job->partial[chunk];
  job->loss->value[0] = (real)(sum / (double)job->rows);
  if (job->options.distance) *job->options.distance = sum;
  job->options.distance = NULL; /* the caller's, for this call, as is the noise */
  job->options.noise = NULL;
}

static void tokens_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Quantisation *job = context;
  const real *origin = job->options.frozen_x ? job->options.frozen_x : job->x->value;
  for (int64_t row = begin; row < end; row++)
    for (int64_t group = 0; group < job->options.groups; group++) {
      int64_t at = row * job->width + group * job->group_width;
      Rotation rotation = rotation_of(job->group_width, origin + at, codeword(job, row, group));
      rotate(&rotation, job->group_width, true, job->y->grad + at, job->x->grad + at);
    }
}

static real pull_of(const Quantisation *job) { return job->loss->grad[0] * 2 / (real)job->rows; }

/* d x += factor (x - q) of a row. */
static void pull_row(const Quantisation *job, real factor, int64_t row) {
  const WordList words = words_of(job, row);
  kernels()->words_pull(&words, factor, job->x->value + row * job->width, job->group_width, job->x->grad + row * job->width);
}

/* Straight through from tokens in bf16, and the commitment's gradient while a row is in the cache. */
static void widen_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Quantisation *job = context;
  for (int64_t row = begin; row < end; row++) {
    kernels()->widen(NARROW_BF16, job->width, job->y->narrow_grad + row * job->width, job->x->grad + row * job->width);
    if (job->pulled) pull_row(job, pull_of(job), row);
  }
}

static void tokens_backward(Tape *tape, void *record) {
  Quantisation *job = record;
  bool add;
  if (job->options.gradient == QUANTISE_STRAIGHT && job->y->narrow_grad != NULL && !job->x->grad_filled && tape_grad(tape, job->x, &add)) {
    job->pulled = job->loss->grad != NULL;
    tape_for(tape, job->rows, OP_ROW_GRAIN, widen_backward_body, job);
  } else if (job->options.gradient == QUANTISE_STRAIGHT) {
    tape_pass_grad(tape, job->y, job->x);
  } else if (tape_grad_zeroed(tape, job->x)) {
    tape_for(tape, job->rows, OP_ROW_GRAIN, tokens_backward_body, job);
  }
}

static const OpKind QUANTISE = {"quantise", tokens_forward, tokens_backward};

/* ---------------------------------------------------------------- commitment: mean over rows of |x - sg(q)|^2 */

/* Its value is computed with the tokens. */
static void commitment_forward(Tape *tape, void *record) {
  (void)tape;
  (void)record;
}

static void commitment_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Quantisation *job = context;
  for (int64_t row = begin; row < end; row++) pull_row(job, pull_of(job), row);
}

static void commitment_backward(Tape *tape, void *record) {
  Quantisation *job = record;
  if (!job->pulled && tape_grad_zeroed(tape, job->x)) tape_for(tape, job->rows, OP_ROW_GRAIN, commitment_backward_body, job);
}

static const OpKind COMMITMENT = {"commitment", commitment_forward, commitment_backward};

/* ---------------------------------------------------------------- both */

Tensor *op_quantise(Tape *tape, Tensor *x, const Quantise *options, Tensor **commitment) {
  OP_REQUIRE(x, options, options->codebook, options->codes, commitment);
  if ((x = op_widen(tape, x)) == NULL) return NULL;
  int64_t rows = tensor_rows(x), width = tensor_width(x);
  OP_CHECK(options->groups > 0 && width % options->groups == 0, "quantise: %lld groups do not divide the width %lld",
           (long long)options->groups, (long long)width);
  bool outside = false; /* no early exit: the loop becomes vector instructions */
  const int64_t count = tape_planning(tape) ? 0 : rows * options->groups;
  for (int64_t i = 0; i < count; i++) outside |= (uint32_t)options->codes[i] >= (uint32_t)options->entries;
  OP_CHECK(!outside, "quantise: a code is outside [0, %lld)", (long long)options->entries);
  Tensor *y = options->gradient == QUANTISE_ROTATION ? tape_tensor(tape, x->dims, x->shape) : tape_activation(tape, x->dims, x->shape);
  Tensor *loss = tape_tensor(tape, 1, (int64_t[]){1});
  Quantisation *job = tape_alloc(tape, sizeof *job);
  double *partial = tape_alloc(tape, (size_t)chunks_of(rows) * sizeof *partial);
  if (y == NULL || loss == NULL || job == NULL || partial == NULL) return NULL;
  *job = (Quantisation){.x = x,
                        .y = y,
                        .loss = loss,
                        .options = *options,
                        .rows = rows,
                        .width = width,
                        .group_width = width / options->groups,
                        .partial = partial};
  loss->needs_grad = tape_recording(tape) && op_wants(x);
  y->needs_grad = loss->needs_grad && options->gradient != QUANTISE_NONE;
  tape_apply(tape, &COMMITMENT, job, loss); /* first, so that its gradient is added to what the tokens' backward leaves */
  *commitment = loss;
  return tape_apply(tape, &QUANTISE, job, y);
}
