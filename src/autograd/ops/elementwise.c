/* Operations that touch each number once: sums, activations that cannot run inside the product before them (op_linear), and stochastic
 * depth. */
#include "autograd/ops/op_common.h"

enum { GRAIN = 4096 };

/* ---------------------------------------------------------------- widen */

typedef struct Widen {
  Tensor *x, *y;
} Widen;

static void widen_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Widen *job = context;
  tensor_read(job->x, begin, end - begin, job->y->value + begin);
}

static void widen_forward(Tape *tape, void *record) {
  Widen *job = record;
  tape_for(tape, tensor_count(job->x), GRAIN, widen_body, job);
}

static void widen_backward(Tape *tape, void *record) {
  Widen *job = record;
  tape_pass_grad(tape, job->y, job->x);
}

static const OpKind WIDEN = {"widen", widen_forward, widen_backward};

Tensor *op_widen(Tape *tape, Tensor *x) {
  OP_REQUIRE(x);
  if (x->value != NULL) return x;
  Tensor *y = tape_tensor(tape, x->dims, x->shape);
  Widen *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Widen){x, y};
  y->needs_grad = tape_recording(tape) && op_wants(x);
  return tape_apply(tape, &WIDEN, job, y);
}

/* ---------------------------------------------------------------- add: y = a + factor b */

typedef struct Add {
  Tensor *a, *b, *y;
  real factor;
} Add;

static void add_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Add *job = context;
  memcpy(job->y->value + begin, job->a->value + begin, (size_t)(end - begin) * sizeof(real));
  kernels()->axpy(end - begin, job->factor, job->b->value + begin, job->y->value + begin);
}

static void add_forward(Tape *tape, void *record) {
  Add *job = record;
  tape_for(tape, tensor_count(job->y), GRAIN, add_body, job);
}

static void add_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Add *job = context;
  kernels()->axpy(end - begin, job->factor, job->y->grad + begin, job->b->grad + begin);
}

static void add_backward(Tape *tape, void *record) {
  Add *job = record;
  if (tape_grad_zeroed(tape, job->b)) tape_for(tape, tensor_count(job->y), GRAIN, add_backward_body, job);
  tape_pass_grad(tape, job->y, job->a);
}

static const OpKind ADD = {"add", add_forward, add_backward};

static Tensor *add_scaled(Tape *tape, Tensor *a, Tensor *b, double factor) {
  a = op_widen(tape, a), b = op_widen(tape, b);
  if (a == NULL || b == NULL) return NULL;
  OP_CHECK(tensor_count(a) == tensor_count(b), "add: %lld and %lld numbers", (long long)tensor_count(a), (long long)tensor_count(b));
  Tensor *y = tape_tensor(tape, a->dims, a->shape);
  Add *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Add){a, b, y, (real)factor};
  y->needs_grad = tape_recording(tape) && (op_wants(a) || op_wants(b));
  return tape_apply(tape, &ADD, job, y);
}

Tensor *op_add(Tape *tape, Tensor *a, Tensor *b) {
  OP_REQUIRE(a, b);
  return add_scaled(tape, a, b, 1);
}

Tensor *op_add_scaled(Tape *tape, Tensor *a, Tensor *b, double factor) {
  OP_REQUIRE(a, b);
  return add_scaled(tape, a, b, factor);
}

/* ---------------------------------------------------------------- scale: y = factor x */

typedef struct Scale {
  Tensor *x, *y;
  real factor;
} Scale;

static void scale_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Scale *job = context;
  for (int64_t i = begin; i < end; i++) job->y->value[i] = job->factor * job->x->value[i];
}

static void scale_forward(Tape *tape, void *record) {
  Scale *job = record;
  tape_for(tape, tensor_count(job->y), GRAIN, scale_body, job);
}

static void scale_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Scale *job = context;
  for (int64_t i = begin; i < end; i++) job->y->grad[i] *= job->factor;
}

static void scale_backward(Tape *tape, void *record) {
  Scale *job = record;
  tape_for(tape, tensor_count(job->y), GRAIN, scale_backward_body, job);
  tape_pass_grad(tape, job->y, job->x);
}

static const OpKind SCALE = {"scale", scale_forward, scale_backward};

Tensor *op_scale(Tape *tape, Tensor *x, double factor) {
  OP_REQUIRE(x);
  if ((x = op_widen(tape, x)) == NULL) return NULL;
  Tensor *y = tape_tensor(tape, x->dims, x->shape);
  Scale *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Scale){x, y, (real)factor};
  y->needs_grad = tape_recording(tape) && op_wants(x);
  return tape_apply(tape, &SCALE, job, y);
}

/* ---------------------------------------------------------------- activations: x is kept for backward */

typedef struct Activate {
  Tensor *x, *y;
  Activation activation;
} Activate;

static void activate_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Activate *job = context;
  op_activate_numbers(job->activation, tensor_numbers(job->x), tensor_numbers(job->y), begin, end);
}

static void activate_forward(Tape *tape, void *record) {
  Activate *job = record;
  tape_for(tape, tensor_count(job->x), GRAIN, activate_body, job);
}

/* In place in dy, which then becomes dx. */
static void activate_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Activate *job = context;
  op_activate_backward(job->activation, tensor_numbers(job->x), tensor_grad(job->y), begin, end);
}

static void activate_backward(Tape *tape, void *record) {
  Activate *job = record;
  tape_for(tape, tensor_count(job->x), GRAIN, activate_backward_body, job);
  tape_pass_grad(tape, job->y, job->x);
}

static const OpKind ACTIVATE = {"activate", activate_forward, activate_backward};

Tensor *op_activate(Tape *tape, Tensor *x, Activation activation) {
  OP_REQUIRE(x);
  if (activation == ACTIVATION_NONE) return x;
  Tensor *y = tape_tensor_like(tape, x, x->dims, x->shape);
  Activate *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Activate){x, y, activation};
  y->needs_grad = tape_recording(tape) && op_wants(x);
  return tape_apply(tape, &ACTIVATE, job, y);
}

/* ---------------------------------------------------------------- SwiGLU: silu(gate) up */

/* Kept for backward: only gate and up; the sigmoid costs more to store than to compute again. The gradient of gate is computed in place in
 * that of y and passed on. */

typedef struct Swiglu {
  Tensor *gate, *up, *y;
  Numbers dup;
  bool add_up;
} Swiglu;

enum { SWIGLU_GRAIN = OP_PIECE };

static void swiglu_forward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Swiglu *job = context;
  const Numbers gate = tensor_numbers(job->gate), up = tensor_numbers(job->up), y = tensor_numbers(job->y);
  real gate_stage[SWIGLU_GRAIN], up_stage[SWIGLU_GRAIN], y_stage[SWIGLU_GRAIN];
  for (int64_t at = begin; at < end; at += SWIGLU_GRAIN) {
    const int64_t count = at + SWIGLU_GRAIN < end ? SWIGLU_GRAIN : end - at;
    kernels()->swiglu(count, numbers_read(gate, at, count, gate_stage), numbers_read(up, at, count, up_stage),
                      numbers_place(y, at, y_stage));
    numbers_written(y, at, count, y_stage);
  }
}

static void swiglu_forward(Tape *tape, void *record) {
  Swiglu *job = record;
  tape_for(tape, tensor_count(job->y), SWIGLU_GRAIN, swiglu_forward_body, job);
}

static void swiglu_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Swiglu *job = context;
  const Numbers gate = tensor_numbers(job->gate), up = tensor_numbers(job->up), grad = tensor_grad(job->y);
  real gate_stage[SWIGLU_GRAIN], up_stage[SWIGLU_GRAIN], dy_stage[SWIGLU_GRAIN], dup_stage[SWIGLU_GRAIN];
  for (int64_t at = begin; at < end; at += SWIGLU_GRAIN) {
    const int64_t count = at + SWIGLU_GRAIN < end ? SWIGLU_GRAIN : end - at;
    const real *dy = numbers_read(grad, at, count, dy_stage);
    real *dup = numbers_exist(job->dup) ? numbers_place(job->dup, at, dup_stage) : NULL;
    if (dup && job->add_up)
      numbers_read(job->dup, at, count, dup_stage);
    else if (dup)
      memset(dup, 0, (size_t)count * sizeof(real));
    kernels()->swiglu_backward(count, numbers_read(gate, at, count, gate_stage), numbers_read(up, at, count, up_stage), dy,
                               numbers_place(grad, at, dy_stage), dup);
    numbers_written(grad, at, count, dy_stage);
    if (dup) numbers_written(job->dup, at, count, dup_stage);
  }
}

static void swiglu_backward(Tape *tape, void *record) {
  Swiglu *job = record;
  job->dup = tape_grad_numbers(tape, job->up, &job->add_up);
  tape_for(tape, tensor_count(job->y), SWIGLU_GRAIN, swiglu_backward_body, job);
  tape_pass_grad(tape, job->y, job->gate);
}

static const OpKind SWIGLU = {"swiglu", swiglu_forward, swiglu_backward};

Tensor *op_swiglu(Tape *tape, Tensor *gate, Tensor *up) {
  OP_REQUIRE(gate, up);
  OP_CHECK(tensor_count(gate) == tensor_count(up), "swiglu: %lld and %lld numbers", (long long)tensor_count(gate),
           (long long)tensor_count(up));
  Tensor *y = tape_activation(tape, gate->dims, gate->shape);
  Swiglu *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Swiglu){.gate = gate, .up = up, .y = y};
  y->needs_grad = tape_recording(tape) && (op_wants(gate) || op_wants(up));
  return tape_apply(tape, &SWIGLU, job, y);
}

/* ---------------------------------------------------------------- stochastic depth */

/* A residual branch scaled or left out, sample by sample; nn/block.c draws the scales. */
typedef struct DropPath {
  Tensor *residual, *sum, *y;
  const real *scale; /* [B] */
  int64_t size;      /* numbers of a sample */
  real *to;          /* in backward: the gradient being computed, */
  bool add, branch;  /* whether it is added to, and whose it is: the sum's or the residual's */
} DropPath;

static void drop_path_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  DropPath *job = context;
  for (int64_t b = begin; b < end; b++) {
    const real *residual = job->residual->value + b * job->size, *sum = job->sum->value + b * job->size;
    real *y = job->y->value + b * job->size, scale = job->scale[b];
    if (scale == 0)
      memcpy(y, residual, (size_t)job->size * sizeof *y); /* also where the sum that is left out is infinite */
    else
      for (int64_t i = 0; i < job->size; i++) y[i] = residual[i] + scale * (sum[i] - residual[i]);
  }
}

static void drop_path_forward(Tape *tape, void *record) {
  DropPath *job = record;
  tape_for(tape, job->y->shape[0], 1, drop_path_body, job);
}

static void drop_path_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  DropPath *job = context;
  for (int64_t b = begin; b < end; b++) {
    const real *from = job->y->grad + b * job->size, scale = job->branch ? job->scale[b] : 1 - job->scale[b];
    real *to = job->to + b * job->size;
    if (job->add)
      kernels()->axpy(job->size, scale, from, to);
    else
      for (int64_t i = 0; i < job->size; i++) to[i] = scale * from[i];
  }
}

static void give_grad(Tape *tape, DropPath *job, Tensor *input, bool branch) {
  job->branch = branch;
  job->to = tape_grad(tape, input, &job->add);
  if (job->to != NULL) tape_for(tape, job->y->shape[0], 1, drop_path_backward_body, job);
}

static void drop_path_backward(Tape *tape, void *record) {
  DropPath *job = record;
  give_grad(tape, job, job->sum, true);
  give_grad(tape, job, job->residual, false);
}

static const OpKind DROP_PATH = {"drop_path", drop_path_forward, drop_path_backward};

Tensor *op_drop_path(Tape *tape, Tensor *residual, Tensor *sum, const real *scale) {
  OP_REQUIRE(residual, sum, scale);
  residual = op_widen(tape, residual), sum = op_widen(tape, sum);
  if (residual == NULL || sum == NULL) return NULL;
  OP_CHECK(tensor_count(residual) == tensor_count(sum), "drop path: %lld and %lld numbers", (long long)tensor_count(residual),
           (long long)tensor_count(sum));
  Tensor *y = tape_tensor(tape, sum->dims, sum->shape);
  DropPath *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (DropPath){.residual = residual, .sum = sum, .y = y, .scale = scale, .size = tensor_count(sum) / sum->shape[0]};
  y->needs_grad = tape_recording(tape) && (op_wants(residual) || op_wants(sum));
  return tape_apply(tape, &DROP_PATH, job, y);
}
