/* One row of each sample, another one in each: the last token of texts of different lengths. */
#include "autograd/ops/op_common.h"

typedef struct Select {
  Tensor *x, *y;
  const int32_t *rows; /* [B] */
  int64_t batch, from, width;
} Select;

static int64_t source(const Select *job, int64_t b) { return (b * job->from + job->rows[b]) * job->width; }

static void select_forward(Tape *tape, void *record) {
  Select *job = record;
  for (int64_t b = 0; b < job->batch && !tape_planning(tape); b++)
    op_copy_numbers(job->y, b * job->width, job->x, source(job, b), job->width);
}

static void select_backward(Tape *tape, void *record) {
  Select *job = record;
  const Numbers dx = tape_grad_numbers_zeroed(tape, job->x);
  for (int64_t b = 0; numbers_exist(dx) && b < job->batch && !tape_planning(tape); b++)
    op_add_numbers(tensor_grad(job->y), b * job->width, dx, source(job, b), job->width);
}

static const OpKind SELECT_ROWS = {"select_rows", select_forward, select_backward};

Tensor *op_select_rows(Tape *tape, Tensor *x, const int32_t *rows) {
  OP_REQUIRE(x, rows);
  OP_CHECK(x->dims == 3, "select_rows: x has %d dimensions, not 3", x->dims);
  for (int64_t b = 0; b < x->shape[0] && !tape_planning(tape); b++)
    OP_CHECK(rows[b] >= 0 && rows[b] < x->shape[1], "select_rows: row %d of sample %lld is outside [0, %lld)", (int)rows[b], (long long)b,
             (long long)x->shape[1]);
  Tensor *y = tape_tensor_like(tape, x, 3, (int64_t[]){x->shape[0], 1, x->shape[2]});
  Select *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Select){x, y, rows, x->shape[0], x->shape[1], x->shape[2]};
  y->needs_grad = tape_recording(tape) && op_wants(x);
  tape_apply(tape, &SELECT_ROWS, job, y);
  return y;
}
