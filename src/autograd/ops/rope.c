/* Rotary position embedding, Hugging Face's half rotation. A rotation is orthogonal, so backward turns the gradient back, in place, and
 * hands it on: nothing is kept and nothing copied. */
#include "autograd/ops/op_common.h"

enum { MAX_HEAD = 1024 /* numbers of a head in bf16 */ };

typedef struct Turn {
  Tensor *x, *y;
  Rope rope;
  const int32_t *positions;
  int64_t rows, half; /* S, d/2 */
} Turn;

/* from and to may be the same numbers. */
static void turn_row(const Turn *job, int64_t row, real direction, Numbers from, Numbers to) {
  const int64_t angles = job->positions[row % job->rows] * job->half, width = 2 * job->half;
  real from_stage[MAX_HEAD], to_stage[MAX_HEAD];
  for (int64_t head = 0; head < job->rope.heads; head++) {
    const int64_t at = (row * job->rope.heads + head) * width;
    kernels()->rotate(job->half, direction, job->rope.cosine + angles, job->rope.sine + angles, numbers_read(from, at, width, from_stage),
                      numbers_place(to, at, to_stage));
    numbers_written(to, at, width, to_stage);
  }
}

static void forward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Turn *job = context;
  for (int64_t row = begin; row < end; row++) turn_row(job, row, 1, tensor_numbers(job->x), tensor_numbers(job->y));
}

static void rope_forward(Tape *tape, void *record) {
  Turn *job = record;
  tape_for(tape, tensor_rows(job->y), OP_ROW_GRAIN, forward_body, job);
}

static void backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Turn *job = context;
  for (int64_t row = begin; row < end; row++) turn_row(job, row, -1, tensor_grad(job->y), tensor_grad(job->y));
}

static void rope_backward(Tape *tape, void *record) {
  Turn *job = record;
  tape_for(tape, tensor_rows(job->y), OP_ROW_GRAIN, backward_body, job);
  tape_pass_grad(tape, job->y, job->x);
}

static const OpKind ROPE = {"rope", rope_forward, rope_backward};

Tensor *op_rope(Tape *tape, Tensor *x, const Rope *rope, const int32_t *positions) {
  OP_REQUIRE(x, rope, positions);
  int64_t rows = x->dims == 3 ? x->shape[1] : 0, width = tensor_width(x);
  OP_CHECK(x->dims == 3 && rope->heads > 0 && width % (2 * rope->heads) == 0, "rope: %lld columns are not %d heads of an even width",
           (long long)width, rope->heads);
  for (int64_t s = 0; s < rows && !tape_planning(tape); s++)
    OP_CHECK(positions[s] >= 0 && positions[s] < rope->count, "position %d of row %lld is outside [0, %lld)", (int)positions[s],
             (long long)s, (long long)rope->count);
  OP_CHECK(x->value || width / rope->heads <= MAX_HEAD, "rope: heads of %lld numbers in bf16; at most %d are possible",
           (long long)(width / rope->heads), MAX_HEAD);
  Tensor *y = tape_activation(tape, x->dims, x->shape);
  Turn *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Turn){x, y, *rope, positions, rows, width / rope->heads / 2};
  y->needs_grad = tape_recording(tape) && op_wants(x);
  tape_apply(tape, &ROPE, job, y);
  return y;
}
