/* Stochastic depth: a residual branch scaled or left out, sample by sample. Leaves out: which sample gets which scale (nn/block.c).
 */
#include "autograd/ops/op_common.h"

typedef struct DropPath {
  Tensor *residual, *sum, *y;
  const real *scale; /* [B] */
  int64_t size;      /* numbers of a sample */
  real *to;          /* of backward: the gradient under way, */
  bool add, branch;  /* whether it is added to, and whose: the sum's or the residual's */
} DropPath;

static void forward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  DropPath *job = context;
  for (int64_t b = begin; b < end; b++) {
    const real *residual = job->residual->value + b * job->size, *sum = job->sum->value + b * job->size;
    real *y = job->y->value + b * job->size, scale = job->scale[b];
    for (int64_t i = 0; i < job->size; i++) y[i] = residual[i] + scale * (sum[i] - residual[i]);
  }
}

static void drop_path_forward(Tape *tape, void *record) {
  DropPath *job = record;
  tape_for(tape, job->y->shape[0], 1, forward_body, job);
}

static void backward_body(void *context, int64_t begin, int64_t end, int thread) {
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
  if (job->to != NULL) tape_for(tape, job->y->shape[0], 1, backward_body, job);
}

static void drop_path_backward(Tape *tape, void *record) {
  DropPath *job = record;
  give_grad(tape, job, job->sum, true);
  give_grad(tape, job, job->residual, false);
}

static const OpKind DROP_PATH = {"drop_path", drop_path_forward, drop_path_backward};

Tensor *op_drop_path(Tape *tape, Tensor *residual, Tensor *sum, const real *scale) {
  OP_REQUIRE(residual, sum, scale);
  OP_CHECK(tensor_count(residual) == tensor_count(sum), "drop path: %lld and %lld numbers", (long long)tensor_count(residual),
           (long long)tensor_count(sum));
  Tensor *y = tape_tensor(tape, sum->dims, sum->shape);
  DropPath *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (DropPath){.residual = residual, .sum = sum, .y = y, .scale = scale, .size = tensor_count(sum) / sum->shape[0]};
  y->needs_grad = tape_recording(tape) && (op_wants(residual) || op_wants(sum));
  tape_apply(tape, &DROP_PATH, job, y);
  return y;
}
