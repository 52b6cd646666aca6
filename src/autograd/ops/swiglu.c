/* silu(gate) up. Kept for backward: gate and up alone; the sigmoid is dearer to store than to compute again. The gradient of gate is made
 * in place in that of y and handed on. */
#include "autograd/ops/op_common.h"

typedef struct Swiglu {
  Tensor *gate, *up, *y;
  Numbers dup;
  bool add_up;
} Swiglu;

enum { GRAIN = OP_PIECE };

static void forward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Swiglu *job = context;
  const Numbers gate = tensor_numbers(job->gate), up = tensor_numbers(job->up), y = tensor_numbers(job->y);
  real gate_stage[GRAIN], up_stage[GRAIN], y_stage[GRAIN];
  for (int64_t at = begin; at < end; at += GRAIN) {
    const int64_t count = at + GRAIN < end ? GRAIN : end - at;
    kernels()->swiglu(count, numbers_read(gate, at, count, gate_stage), numbers_read(up, at, count, up_stage),
                      numbers_place(y, at, y_stage));
    numbers_written(y, at, count, y_stage);
  }
}

static void swiglu_forward(Tape *tape, void *record) {
  Swiglu *job = record;
  tape_for(tape, tensor_count(job->y), GRAIN, forward_body, job);
}

static void backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Swiglu *job = context;
  const Numbers gate = tensor_numbers(job->gate), up = tensor_numbers(job->up), grad = tensor_grad(job->y);
  real gate_stage[GRAIN], up_stage[GRAIN], dy_stage[GRAIN], dup_stage[GRAIN];
  for (int64_t at = begin; at < end; at += GRAIN) {
    const int64_t count = at + GRAIN < end ? GRAIN : end - at;
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
  tape_for(tape, tensor_count(job->y), GRAIN, backward_body, job);
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
