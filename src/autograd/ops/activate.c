/* An activation by itself, where it cannot run inside the product before it (op_linear). Kept for backward: x. */
#include "autograd/ops/op_common.h"

enum { GRAIN = 4096 };

typedef struct Activate {
  Tensor *x, *y;
  Activation activation;
} Activate;

static void forward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Activate *job = context;
  if (job->activation == ACTIVATION_GELU)
    kernels()->bias_gelu(end - begin, NULL, job->x->value + begin, job->y->value + begin);
  else
    kernels()->bias_gelu_tanh(end - begin, NULL, job->x->value + begin, job->y->value + begin);
}

static void activate_forward(Tape *tape, void *record) {
  Activate *job = record;
  tape_for(tape, tensor_count(job->x), GRAIN, forward_body, job);
}

/* In place in dy, which then becomes dx. */
static void backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Activate *job = context;
  real *dy = job->y->grad + begin;
  if (job->activation == ACTIVATION_GELU)
    kernels()->gelu_backward(end - begin, job->x->value + begin, dy, dy);
  else
    kernels()->gelu_tanh_backward(end - begin, job->x->value + begin, dy, dy);
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
  Tensor *y = tape_tensor(tape, x->dims, x->shape);
  Activate *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Activate){x, y, activation};
  y->needs_grad = tape_recording(tape) && op_wants(x);
  tape_apply(tape, &ACTIVATE, job, y);
  return y;
}
