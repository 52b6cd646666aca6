/* Vector quantisation with assignments already made, as two operations: the quantised tokens (what attention sees) and the commitment loss.
 * The gradient paths are chosen by QuantiseGradient; none leads to the codebook or the noise. Kept for backward: x and the codes.
 *
 * For gradient checks `frozen_x` replaces the stopped gradients by constants: with q0 and x0 the codewords and inputs at that point,
 * straight-through is x + (q0 - x0), rotation is a fixed linear map of x, none is q0: functions whose true derivative is what backward
 * gives. */
#include "autograd/ops/op_common.h"

typedef struct Quantisation {
  Tensor *x, *y; /* y: the quantised tokens, or the commitment loss */
  Quantise options;
  int64_t rows, width, group_width;
  double *partial; /* commitment: sums over chunks of rows, added in order */
} Quantisation;

enum { CHUNK = 64 };

static const real *codeword(const Quantisation *job, int64_t row, int64_t group) {
  const Quantise *options = &job->options;
  return options->codebook + (group * options->entries + options->codes[row * options->groups + group]) * job->group_width;
}

/* ---------------------------------------------------------------- rotation */

static const real *rotation_origin(const Quantisation *job) { return job->options.frozen_x ? job->options.frozen_x : job->x->value; }

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

static void tokens_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Quantisation *job = context;
  for (int64_t row = begin; row < end; row++) {
    for (int64_t group = 0; group < job->options.groups; group++) {
      int64_t at = row * job->width + group * job->group_width;
      if (job->options.frozen_x)
        frozen_group(job, at, codeword(job, row, group), job->y->value + at);
      else
        memcpy(job->y->value + at, codeword(job, row, group), (size_t)job->group_width * sizeof(real));
    }
    if (job->options.noise) kernels()->add(job->width, job->options.noise + row * job->width, job->y->value + row * job->width);
  }
}

static void tokens_forward(Tape *tape, void *record) {
  Quantisation *job = record;
  tape_for(tape, job->rows, OP_ROW_GRAIN, tokens_body, job);
}

static void tokens_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Quantisation *job = context;
  if (job->options.gradient == QUANTISE_STRAIGHT) {
    kernels()->add((end - begin) * job->width, job->y->grad + begin * job->width, job->x->grad + begin * job->width);
    return;
  }
  const real *origin = rotation_origin(job);
  for (int64_t row = begin; row < end; row++)
    for (int64_t group = 0; group < job->options.groups; group++) {
      int64_t at = row * job->width + group * job->group_width;
      Rotation rotation = rotation_of(job->group_width, origin + at, codeword(job, row, group));
      rotate(&rotation, job->group_width, true, job->y->grad + at, job->x->grad + at);
    }
}

static void tokens_backward(Tape *tape, void *record) {
  Quantisation *job = record;
  if (tape_grad_zeroed(tape, job->x)) tape_for(tape, job->rows, OP_ROW_GRAIN, tokens_backward_body, job);
}

static const OpKind QUANTISE = {"quantise", tokens_forward, tokens_backward};

/* ---------------------------------------------------------------- commitment: mean over rows of |x - sg(q)|^2 */

static void commitment_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Quantisation *job = context;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    int64_t stop = (chunk + 1) * CHUNK < job->rows ? (chunk + 1) * CHUNK : job->rows;
    double sum = 0;
    for (int64_t row = chunk * CHUNK; row < stop; row++)
      for (int64_t group = 0; group < job->options.groups; group++) {
        const real *x = job->x->value + row * job->width + group * job->group_width, *q = codeword(job, row, group);
        real part = 0;
        for (int64_t i = 0; i < job->group_width; i++) part += (x[i] - q[i]) * (x[i] - q[i]);
        sum += (double)part;
      }
    job->partial[chunk] = sum;
  }
}

static void commitment_forward(Tape *tape, void *record) {
  Quantisation *job = record;
  if (tape_planning(tape)) return;
  int64_t chunks = (job->rows + CHUNK - 1) / CHUNK;
  threads_for(chunks, 1, commitment_body, job);
  double sum = 0;
  for (int64_t chunk = 0; chunk < chunks; chunk++) sum += job->partial[chunk];
  job->y->value[0] = (real)(sum / (double)job->rows);
}

static void commitment_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Quantisation *job = context;
  real factor = job->y->grad[0] * 2 / (real)job->rows;
  for (int64_t row = begin; row < end; row++)
    for (int64_t group = 0; group < job->options.groups; group++) {
      int64_t at = row * job->width + group * job->group_width;
      const real *q = codeword(job, row, group);
      for (int64_t i = 0; i < job->group_width; i++) job->x->grad[at + i] += factor * (job->x->value[at + i] - q[i]);
    }
}

static void commitment_backward(Tape *tape, void *record) {
  Quantisation *job = record;
  if (tape_grad_zeroed(tape, job->x)) tape_for(tape, job->rows, OP_ROW_GRAIN, commitment_backward_body, job);
}

static const OpKind COMMITMENT = {"commitment", commitment_forward, commitment_backward};

/* ---------------------------------------------------------------- both */

static bool codes_fit(const Quantise *options, int64_t rows) {
  for (int64_t i = 0; i < rows * options->groups; i++)
    if (options->codes[i] < 0 || options->codes[i] >= options->entries) return false;
  return true;
}

static Quantisation *new_job(Tape *tape, Tensor *x, Tensor *y, const Quantise *options) {
  Quantisation *job = tape_alloc(tape, sizeof *job);
  if (job == NULL || y == NULL) return NULL;
  int64_t width = tensor_width(x);
  *job =
      (Quantisation){.x = x, .y = y, .options = *options, .rows = tensor_rows(x), .width = width, .group_width = width / options->groups};
  return job;
}

Tensor *op_quantise(Tape *tape, Tensor *x, const Quantise *options, Tensor **commitment) {
  OP_REQUIRE(x, options, options->codebook, options->codes, commitment);
  int64_t rows = tensor_rows(x);
  OP_CHECK(options->groups > 0 && tensor_width(x) % options->groups == 0, "quantise: %lld groups do not divide the width %lld",
           (long long)options->groups, (long long)tensor_width(x));
  OP_CHECK(tape_planning(tape) || codes_fit(options, rows), "quantise: a code is outside [0, %lld)", (long long)options->entries);
  Tensor *y = tape_tensor(tape, x->dims, x->shape), *loss = tape_tensor(tape, 1, (int64_t[]){1});
  Quantisation *tokens = new_job(tape, x, y, options), *commit = new_job(tape, x, loss, options);
  if (tokens == NULL || commit == NULL) return NULL;
  commit->partial = tape_alloc(tape, (size_t)((rows + CHUNK - 1) / CHUNK) * sizeof(double));
  if (commit->partial == NULL) return NULL;
  loss->needs_grad = tape_recording(tape) && op_wants(x);
  y->needs_grad = loss->needs_grad && options->gradient != QUANTISE_NONE;
  tape_apply(tape, &COMMITMENT, commit, loss);
  tape_apply(tape, &QUANTISE, tokens, y);
  *commitment = loss;
  return y;
}
