/* Sums and dropout: operations that touch each number once. */
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
  tape_apply(tape, &WIDEN, job, y);
  return y;
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
  tape_apply(tape, &ADD, job, y);
  return y;
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
  tape_apply(tape, &SCALE, job, y);
  return y;
}

/* ---------------------------------------------------------------- dropout */

typedef struct Dropout {
  Tensor *x, *y;
  uint64_t seed, threshold;
  real scale;
} Dropout;

/* splitmix64's finaliser: a number's fate depends on the seed and its place alone, so backward draws the same mask again. */
static bool kept(const Dropout *job, int64_t index) {
  uint64_t z = job->seed + (uint64_t)(index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (z ^ (z >> 31)) >> 11 >= job->threshold;
}

static void dropout_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Dropout *job = context;
  for (int64_t i = begin; i < end; i++) job->y->value[i] = kept(job, i) ? job->x->value[i] * job->scale : 0;
}

static void dropout_forward(Tape *tape, void *record) {
  Dropout *job = record;
  tape_for(tape, tensor_count(job->x), GRAIN, dropout_body, job);
}

static void dropout_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Dropout *job = context;
  for (int64_t i = begin; i < end; i++) job->x->grad[i] += kept(job, i) ? job->y->grad[i] * job->scale : 0;
}

static void dropout_backward(Tape *tape, void *record) {
  Dropout *job = record;
  if (tape_grad_zeroed(tape, job->x)) tape_for(tape, tensor_count(job->x), GRAIN, dropout_backward_body, job);
}

static const OpKind DROPOUT = {"dropout", dropout_forward, dropout_backward};

Tensor *op_dropout(Tape *tape, Tensor *x, double p, uint64_t seed) {
  OP_REQUIRE(x);
  OP_CHECK(p >= 0 && p < 1, "dropout: the probability %g is outside [0, 1)", p);
  if (p == 0 || !tape_recording(tape) || (x = op_widen(tape, x)) == NULL) return x;
  Tensor *y = tape_tensor(tape, x->dims, x->shape);
  Dropout *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Dropout){x, y, seed, (uint64_t)(p * 9007199254740992.0), (real)(1 / (1 - p))};
  y->needs_grad = op_wants(x);
  tape_apply(tape, &DROPOUT, job, y);
  return y;
}
