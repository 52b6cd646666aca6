/* Rows of a table by id, plus rows of a table of positions. Backward adds rows in order on one thread for each slice of columns, so the
 * sum's order is fixed, whatever the thread count. */
#include "autograd/ops/op_common.h"

typedef struct TokenEmbed {
  Tensor *table, *position, *y; /* position may be NULL */
  const int32_t *ids, *positions;
  int64_t batch, rows, width;
} TokenEmbed;

static void lookup(const TokenEmbed *job, int32_t id, real *y) {
  const Tensor *table = job->table;
  if (table->lowbit != NULL)
    lowbit_widen(table->lowbit, id, 0, job->width, y);
  else if (table->narrow_kind != NARROW_NONE)
    kernels()->widen(table->narrow_kind, job->width, table->narrow + id * job->width, y);
  else
    memcpy(y, table->value + id * job->width, (size_t)job->width * sizeof(real));
}

static void lookup_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  TokenEmbed *job = context;
  for (int64_t i = begin; i < end; i++) {
    real *y = job->y->value + i * job->width;
    lookup(job, job->ids[i], y);
    if (job->position) kernels()->add(job->width, job->position->value + job->positions[i % job->rows] * job->width, y);
  }
}

static void embed_forward(Tape *tape, void *record) {
  TokenEmbed *job = record;
  tape_for(tape, job->batch * job->rows, OP_ROW_GRAIN, lookup_body, job);
}

static void table_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  TokenEmbed *job = context;
  for (int64_t i = 0; i < job->batch * job->rows; i++)
    kernels()->add(end - begin, job->y->grad + i * job->width + begin, job->table->grad + job->ids[i] * job->width + begin);
}

static void position_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  TokenEmbed *job = context;
  for (int64_t i = 0; i < job->batch * job->rows; i++)
    kernels()->add(end - begin, job->y->grad + i * job->width + begin,
                   job->position->grad + job->positions[i % job->rows] * job->width + begin);
}

static void embed_backward(Tape *tape, void *record) {
  TokenEmbed *job = record;
  if (tape_grad_zeroed(tape, job->table)) tape_for(tape, job->width, OP_ROW_GRAIN, table_backward_body, job);
  if (tape_grad_zeroed(tape, job->position)) tape_for(tape, job->width, OP_ROW_GRAIN, position_backward_body, job);
}

static const OpKind TOKEN_EMBED = {"token_embed", embed_forward, embed_backward};

Tensor *op_token_embed(Tape *tape, Tensor *table, Tensor *position, const int32_t *ids, const int32_t *positions, int64_t batch,
                       int64_t rows) {
  OP_REQUIRE(table, ids);
  int64_t entries = table->shape[0], width = tensor_width(table), reach = position ? position->shape[0] : 0;
  OP_CHECK(table->dims == 2 && (position == NULL || (position->dims == 2 && position->shape[1] == width)),
           "token_embed: the table of tokens is not [ids, width], or that of positions not of the same width");
  OP_CHECK((position == NULL) == (positions == NULL), "token_embed: positions and their table come together");
  for (int64_t i = 0; i < batch * rows && !tape_planning(tape); i++)
    OP_CHECK(ids[i] >= 0 && ids[i] < entries, "token id %d of row %lld is outside [0, %lld)", (int)ids[i], (long long)i,
             (long long)entries);
  for (int64_t s = 0; positions && s < rows && !tape_planning(tape); s++)
    OP_CHECK(positions[s] >= 0 && positions[s] < reach, "position %d of row %lld is outside [0, %lld)", (int)positions[s], (long long)s,
             (long long)reach);
  Tensor *y = tape_tensor(tape, 3, (int64_t[]){batch, rows, width});
  TokenEmbed *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (TokenEmbed){table, position, y, ids, positions, batch, rows, width};
  y->needs_grad = tape_recording(tape) && (op_wants(table) || op_wants(position));
  tape_apply(tape, &TOKEN_EMBED, job, y);
  return y;
}
