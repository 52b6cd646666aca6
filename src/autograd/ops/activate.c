/* An activation by itself, where it cannot run inside the product before it (op_linear). Kept for backward: x. */
#include "autograd/ops/op_common.h"

enum { GRAIN = 4096 };

typedef struct Activate {
  Tensor *x, *y;
  Activation activation;
} Activate;

static void forward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Activate *job = context;
  const Numbers x = tensor_numbers(job->x), y = tensor_numbers(job->y);
  real x_stage[OP_PIECE], y_stage[OP_PIECE];
  for (int64_t at = begin; at < end; at += OP_PIECE) {
    const int64_t count = end - at < OP_PIECE ? end - at : OP_PIECE;
    real *from = (real *)(uintptr_t)numbers_read(x, at, count, x_stage), *to = numbers_place(y, at, y_stage); /* x stays as it is */
    if (job->activation == ACTIVATION_GELU)
      kernels()->bias_gelu(count, NULL, from, to);
    else
      kernels()->bias_gelu_tanh(count, NULL, from, to);
    numbers_written(y, at, count, y_stage);
  }
}

static void activate_forward(Tape *tape, void *record) {
  Activate *job = record;
  tape_for(tape, tensor_count(job->x), GRAIN, forward_body, job);
}

/* In place in dy, which then becomes dx. */
static void backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Activate *job = context;
  const Numbers x = tensor_numbers(job->x), grad = tensor_grad(job->y);
  real x_stage[OP_PIECE], dy_stage[OP_PIECE];
  for (int64_t at = begin; at < end; at += OP_PIECE) {
    const int64_t count = end - at < OP_PIECE ? end - at : OP_PIECE;
    const real *from = numbers_read(x, at, count, x_stage), *dy = numbers_read(grad, at, count, dy_stage);
    real *dx = numbers_place(grad, at, dy_stage);
    if (job->activation == ACTIVATION_GELU)
      kernels()->gelu_backward(count, from, dy, dx);
    else
      kernels()->gelu_tanh_backward(count, from, dy, dx);
    numbers_written(grad, at, count, dy_stage);
  }
}

static void activate_backward(Tape *tape, void *record) {
  Activate *job = record;
  tape_for(tape, tensor_count(job->x), GRAIN, backward_body, job);
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
  tape_apply(tape, &ACTIVATE, job, y);
  return y;
}

/* ---- SwiGLU ---- */

/* silu(gate) up. Kept for backward: gate and up alone; the sigmoid is dearer to store than to compute again. The gradient of gate is made
 * in place in that of y and handed on. */

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
  tape_apply(tape, &SWIGLU, job, y);
  return y;
}
