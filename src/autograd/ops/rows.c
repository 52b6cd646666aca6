/* Moving, joining and averaging rows: gather_rows, join, mean_replicas. */
#include "autograd/ops/op_common.h"

/* to += from */
static void add_numbers(Numbers from, int64_t from_at, Numbers to, int64_t to_at, int64_t count) {
  real from_stage[OP_PIECE], to_stage[OP_PIECE];
  for (int64_t at = 0; at < count; at += OP_PIECE) {
    const int64_t n = count - at < OP_PIECE ? count - at : OP_PIECE;
    const real *addend = numbers_read(from, from_at + at, n, from_stage);
    real *sum = (real *)(uintptr_t)numbers_read(to, to_at + at, n, to_stage);
    kernels()->add(n, addend, sum);
    numbers_written(to, to_at + at, n, to_stage);
  }
}

/* ---------------------------------------------------------------- gather */

typedef struct Gather {
  Tensor *x, *y;
  const int32_t *rows;
  int64_t from, count, width; /* rows of a sample before and after */
} Gather;

static int64_t source_row(const Gather *job, int64_t row) { return row / job->count * job->from + job->rows[row % job->count]; }

static void gather_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Gather *job = context;
  for (int64_t row = begin; row < end; row++)
    op_copy_numbers(job->y, row * job->width, job->x, source_row(job, row) * job->width, job->width);
}

static void gather_forward(Tape *tape, void *record) {
  Gather *job = record;
  tape_for(tape, tensor_rows(job->y), OP_ROW_GRAIN, gather_body, job);
}

static void gather_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Gather *job = context;
  for (int64_t row = begin; row < end; row++)
    add_numbers(tensor_grad(job->y), row * job->width, tensor_grad(job->x), source_row(job, row) * job->width, job->width);
}

static void gather_backward(Tape *tape, void *record) {
  Gather *job = record;
  if (numbers_exist(tape_grad_numbers_zeroed(tape, job->x))) tape_for(tape, tensor_rows(job->y), OP_ROW_GRAIN, gather_backward_body, job);
}

static const OpKind GATHER_ROWS = {"gather_rows", gather_forward, gather_backward};

static Tensor *gather(Tape *tape, Tensor *x, const int32_t *rows, int64_t count, bool wide) {
  OP_REQUIRE(x, rows);
  OP_CHECK(x->dims == 3, "gather_rows: x has %d dimensions, not 3", x->dims);
  for (int64_t i = 0; i < count; i++)
    OP_CHECK(rows[i] >= 0 && rows[i] < x->shape[1], "gather_rows: row %d is outside [0, %lld)", (int)rows[i], (long long)x->shape[1]);
  const int64_t shape[] = {x->shape[0], count, x->shape[2]};
  Tensor *y = wide ? tape_tensor(tape, 3, shape) : tape_tensor_like(tape, x, 3, shape);
  Gather *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Gather){x, y, rows, x->shape[1], count, x->shape[2]};
  y->needs_grad = tape_recording(tape) && op_wants(x);
  return tape_apply(tape, &GATHER_ROWS, job, y);
}

Tensor *op_gather_rows(Tape *tape, Tensor *x, const int32_t *rows, int64_t count) { return gather(tape, x, rows, count, false); }
Tensor *op_gather_rows_wide(Tape *tape, Tensor *x, const int32_t *rows, int64_t count) { return gather(tape, x, rows, count, true); }

/* ---------------------------------------------------------------- side by side */

typedef struct Join {
  Tensor *part[2], *y;
} Join;

static void join_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Join *job = context;
  const int64_t first = tensor_width(job->part[0]), second = tensor_width(job->part[1]);
  for (int64_t row = begin; row < end; row++) {
    op_copy_numbers(job->y, row * (first + second), job->part[0], row * first, first);
    op_copy_numbers(job->y, row * (first + second) + first, job->part[1], row * second, second);
  }
}

static void join_forward(Tape *tape, void *record) {
  Join *job = record;
  tape_for(tape, tensor_rows(job->y), OP_ROW_GRAIN, join_body, job);
}

static void join_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Join *job = context;
  const int64_t width = tensor_width(job->y);
  for (int64_t row = begin; row < end; row++)
    for (int i = 0; i < 2; i++) {
      const int64_t own = tensor_width(job->part[i]);
      if (op_wants(job->part[i]))
        add_numbers(tensor_grad(job->y), row * width + i * (width - own), tensor_grad(job->part[i]), row * own, own);
    }
}

static void join_backward(Tape *tape, void *record) {
  Join *job = record;
  bool any = false;
  for (int i = 0; i < 2; i++)
    if (op_wants(job->part[i])) any |= numbers_exist(tape_grad_numbers_zeroed(tape, job->part[i]));
  if (any) tape_for(tape, tensor_rows(job->y), OP_ROW_GRAIN, join_backward_body, job);
}

static const OpKind JOIN = {"join", join_forward, join_backward};

Tensor *op_join(Tape *tape, Tensor *a, Tensor *b) {
  OP_REQUIRE(a, b);
  int64_t shape[TENSOR_DIMS];
  OP_CHECK(a->dims == b->dims && tensor_rows(a) == tensor_rows(b), "join: %lld rows beside %lld", (long long)tensor_rows(a),
           (long long)tensor_rows(b));
  for (int i = 0; i < a->dims; i++) shape[i] = a->shape[i];
  shape[a->dims - 1] += tensor_width(b);
  Tensor *y = tape_tensor(tape, a->dims, shape);
  Join *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Join){{a, b}, y};
  y->needs_grad = tape_recording(tape) && (op_wants(a) || op_wants(b));
  return tape_apply(tape, &JOIN, job, y);
}

/* ---------------------------------------------------------------- mean over replicas */

typedef struct Mean {
  Tensor *x, *y;
  const real *weights; /* [replicas]; NULL: all alike */
  int64_t batch, replicas, width;
} Mean;

static real replica_weight(const Mean *job, int64_t row) {
  return job->weights ? job->weights[row % job->replicas] : (real)1 / (real)job->replicas;
}

static void mean_forward(Tape *tape, void *record) {
  Mean *job = record;
  if (tape_planning(tape)) return;
  memset(job->y->value, 0, (size_t)(job->batch * job->width) * sizeof(real));
  for (int64_t row = 0; row < job->batch * job->replicas; row++)
    kernels()->axpy(job->width, replica_weight(job, row), job->x->value + row * job->width,
                    job->y->value + row / job->replicas * job->width);
}

static void mean_backward(Tape *tape, void *record) {
  Mean *job = record;
  real *dx = tape_grad_zeroed(tape, job->x);
  if (dx == NULL || tape_planning(tape)) return;
  for (int64_t row = 0; row < job->batch * job->replicas; row++)
    kernels()->axpy(job->width, replica_weight(job, row), job->y->grad + row / job->replicas * job->width, dx + row * job->width);
}

static const OpKind MEAN_REPLICAS = {"mean_replicas", mean_forward, mean_backward};

Tensor *op_mean_replicas(Tape *tape, Tensor *x, const real *weights) {
  OP_REQUIRE(x);
  OP_CHECK(x->dims == 3 && x->shape[1] > 0, "mean_replicas: x has %d dimensions, not 3", x->dims);
  if ((x = op_widen(tape, x)) == NULL) return NULL;
  Tensor *y = tape_tensor(tape, 2, (int64_t[]){x->shape[0], x->shape[2]});
  Mean *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Mean){x, y, weights, x->shape[0], x->shape[1], x->shape[2]};
  y->needs_grad = tape_recording(tape) && op_wants(x);
  return tape_apply(tape, &MEAN_REPLICAS, job, y);
}

/* ---- Chosen rows ---- */

/* One row of each sample, another one in each: the last token of texts of different lengths. */

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
    add_numbers(tensor_grad(job->y), b * job->width, dx, source(job, b), job->width);
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
  return tape_apply(tape, &SELECT_ROWS, job, y);
}
