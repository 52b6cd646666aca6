/* silu(gate) up. Kept for backward: gate and up alone; the sigmoid is dearer to store than to compute again. The gradient of gate is made
 * in place in that of y and handed on. */
#include "autograd/ops/op_common.h"

typedef struct Swiglu {
  Tensor *gate, *up, *y;
  real *dup;
  bool add_up;
} Swiglu;

enum { GRAIN = 1024 /* numbers whose pieces of all arrays stay in the first-level cache */ };

static void forward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Swiglu *job = context;
  kernels()->swiglu(end - begin, job->gate->value + begin, job->up->value + begin, job->y->value + begin);
}

static void swiglu_forward(Tape *tape, void *record) {
  Swiglu *job = record;
  tape_for(tape, tensor_count(job->y), GRAIN, forward_body, job);
}

static void backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Swiglu *job = context;
  for (int64_t at = begin; at < end; at += GRAIN) {
    int64_t count = at + GRAIN < end ? GRAIN : end - at;
    real *dup = job->dup ? job->dup + at : NULL, *dy = job->y->grad + at;
    if (dup && !job->add_up) memset(dup, 0, (size_t)count * sizeof(real));
    kernels()->swiglu_backward(count, job->gate->value + at, job->up->value + at, dy, dy, dup);
  }
}

static void swiglu_backward(Tape *tape, void *record) {
  Swiglu *job = record;
  job->dup = tape_grad(tape, job->up, &job->add_up);
  tape_for(tape, tensor_count(job->y), GRAIN, backward_body, job);
  tape_pass_grad(tape, job->y, job->gate);
}

static const OpKind SWIGLU = {"swiglu", swiglu_forward, swiglu_backward};

Tensor *op_swiglu(Tape *tape, Tensor *gate, Tensor *up) {
  OP_REQUIRE(gate, up);
  OP_CHECK(tensor_count(gate) == tensor_count(up), "swiglu: %lld and %lld numbers", (long long)tensor_count(gate),
           (long long)tensor_count(up));
  Tensor *y = tape_tensor(tape, gate->dims, gate->shape);
  Swiglu *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Swiglu){.gate = gate, .up = up, .y = y};
  y->needs_grad = tape_recording(tape) && (op_wants(gate) || op_wants(up));
  tape_apply(tape, &SWIGLU, job, y);
  return y;
}
