/* Rows of a table by id. Backward adds rows in order on one thread for each slice of columns, so the sum's order is fixed. */
#include "autograd/ops/op_common.h"

typedef struct Embedding {
  Tensor *table, *y;
  const int32_t *ids;
  int64_t count, width;
} Embedding;

static void lookup_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Embedding *job = context;
  for (int64_t i = begin; i < end; i++)
    memcpy(job->y->value + i * job->width, job->table->value + job->ids[i] * job->width, (size_t)job->width * sizeof(real));
}

static void embedding_forward(Tape *tape, void *record) {
  Embedding *job = record;
  tape_for(tape, job->count, OP_ROW_GRAIN, lookup_body, job);
}

static void scatter_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  Embedding *job = context;
  for (int64_t i = 0; i < job->count; i++)
    kernels()->add(end - begin, job->y->grad + i * job->width + begin, job->table->grad + job->ids[i] * job->width + begin);
}

static void embedding_backward(Tape *tape, void *record) {
  Embedding *job = record;
  if (tape_grad_zeroed(tape, job->table)) tape_for(tape, job->width, OP_ROW_GRAIN, scatter_body, job);
}

static const OpKind EMBEDDING = {"embedding", embedding_forward, embedding_backward};

Tensor *op_embedding(Tape *tape, Tensor *table, const int32_t *ids, int64_t count) {
  OP_REQUIRE(table, ids);
  int64_t entries = table->shape[0], width = tensor_width(table);
  OP_CHECK(table->dims == 2, "embedding: the table has %d dimensions, not 2", table->dims);
  for (int64_t i = 0; i < count && !tape_planning(tape); i++)
    OP_CHECK(ids[i] >= 0 && ids[i] < entries, "embedding: id %d is outside [0, %lld)", (int)ids[i], (long long)entries);
  Tensor *y = tape_tensor(tape, 2, (int64_t[]){count, width});
  Embedding *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Embedding){table, y, ids, count, width};
  y->needs_grad = tape_recording(tape) && op_wants(table);
  tape_apply(tape, &EMBEDDING, job, y);
  return y;
}
