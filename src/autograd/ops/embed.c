/* Images and ids become rows with positions: patch embedding, token embedding, rotary positions. */
#include "autograd/ops/op_common.h"

/* ---------------------------------------------------------------- patches */

/* The input of a vision transformer: patches as rows (im2col), one product, then bias and position, or class token and position.
 * A class-token row has a patch of zeros, so that the product and its weight gradient need no exception. Kept for backward: the patches. */
typedef struct PatchEmbed {
  Tensor *pixels, *weight, *bias, *position, *class_token, *y;
  const int32_t *row_token;
  Numbers patches;                                  /* [B, S, C P P]; in bf16 where the product runs in it */
  real *stage;                                      /* [threads, C P P], of forward in bf16 */
  int64_t batch, rows, width, patch, across, depth; /* across: patches in an image's row; depth: C P P */
} PatchEmbed;

static void cut_patch(const PatchEmbed *job, int64_t sample, int32_t token, real *to) {
  if (token < 0) {
    memset(to, 0, (size_t)job->depth * sizeof(real));
    return;
  }
  const int64_t *shape = job->pixels->shape;
  int64_t top = token / job->across * job->patch, left = token % job->across * job->patch;
  for (int64_t channel = 0; channel < shape[1]; channel++)
    for (int64_t line = 0; line < job->patch; line++, to += job->patch)
      memcpy(to, job->pixels->value + ((sample * shape[1] + channel) * shape[2] + top + line) * shape[3] + left,
             (size_t)job->patch * sizeof(real));
}

static void patches_body(void *context, int64_t begin, int64_t end, int thread) {
  PatchEmbed *job = context;
  real *stage = job->stage ? job->stage + thread * job->depth : NULL;
  for (int64_t row = begin; row < end; row++) {
    int32_t token = job->row_token[row % job->rows];
    real *y = job->y->value + row * job->width;
    cut_patch(job, row / job->rows, token, numbers_place(job->patches, row * job->depth, stage));
    numbers_written(job->patches, row * job->depth, job->depth, stage);
    memcpy(y, token < 0 ? job->class_token->value : job->bias->value, (size_t)job->width * sizeof(real));
    kernels()->add(job->width, job->position->value + (token + 1) * job->width, y);
  }
}

static void patch_forward(Tape *tape, void *record) {
  PatchEmbed *job = record;
  const int64_t rows = job->batch * job->rows, width = job->width, depth = job->depth;
  const size_t mark = tape_scratch_begin(tape);
  if (job->patches.narrow && (job->stage = tape_alloc(tape, (size_t)(threads_count() * depth) * sizeof(real))) == NULL) return;
  tape_for(tape, rows, OP_ROW_GRAIN, patches_body, job);
  if (job->patches.narrow)
    op_matmul_bf16(tape, false, true, rows, width, depth, job->patches.narrow, depth, job->weight->shadow, depth, NULL, true,
                   tensor_numbers(job->y), width);
  else
    tape_matmul(tape, false, true, rows, width, depth, job->patches.wide, depth, job->weight->value, depth, 1, job->y->value, width);
  tape_scratch_end(tape, mark);
}

static void add_columns(const PatchEmbed *job, Tensor *to, int64_t at, int64_t begin, int64_t end, const real *dy) {
  if (to->grad) kernels()->add(end - begin, dy + begin, to->grad + at * job->width + begin);
}

static void rest_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  PatchEmbed *job = context;
  for (int64_t row = 0; row < job->batch * job->rows; row++) {
    const real *dy = job->y->grad + row * job->width;
    int32_t token = job->row_token[row % job->rows];
    add_columns(job, token < 0 ? job->class_token : job->bias, 0, begin, end, dy);
    add_columns(job, job->position, token + 1, begin, end, dy);
  }
}

static void patch_backward(Tape *tape, void *record) {
  PatchEmbed *job = record;
  const int64_t rows = job->batch * job->rows, width = job->width, depth = job->depth;
  bool add;
  real *dweight = tape_grad(tape, job->weight, &add);
  tape_grad_zeroed(tape, job->bias);
  tape_grad_zeroed(tape, job->position);
  tape_grad_zeroed(tape, job->class_token);
  const size_t mark = tape_scratch_begin(tape);
  if (dweight && job->patches.narrow)
    op_matmul_bf16(tape, true, false, width, depth, rows, op_in_bf16(tape, tensor_grad(job->y), rows, width), width, job->patches.narrow,
                   depth, NULL, add, (Numbers){.wide = dweight}, depth);
  else if (dweight)
    tape_matmul(tape, true, false, width, depth, rows, job->y->grad, width, job->patches.wide, depth, add ? 1 : 0, dweight, depth);
  tape_scratch_end(tape, mark);
  tape_for(tape, width, OP_ROW_GRAIN, rest_backward_body, job);
}

static const OpKind PATCH_EMBED = {"patch_embed", patch_forward, patch_backward};

Tensor *op_patch_embed(Tape *tape, Tensor *pixels, Tensor *weight, Tensor *bias, Tensor *position, Tensor *class_token, int64_t patch,
                       const int32_t *row_token, int64_t rows) {
  OP_REQUIRE(pixels, weight, bias, position, class_token, row_token);
  OP_CHECK(pixels->dims == 4 && patch > 0 && pixels->shape[2] % patch == 0 && pixels->shape[3] % patch == 0,
           "patch_embed: images of %lldx%lld cannot be cut into patches of %lld", (long long)pixels->shape[3], (long long)pixels->shape[2],
           (long long)patch);
  int64_t width = weight->shape[0], depth = pixels->shape[1] * patch * patch, across = pixels->shape[3] / patch;
  int64_t tokens = pixels->shape[2] / patch * across, batch = pixels->shape[0];
  OP_CHECK(tensor_count(weight) == width * depth && tensor_count(position) == (tokens + 1) * width && tensor_count(bias) == width &&
               tensor_count(class_token) == width,
           "patch_embed: %lld tokens of width %lld do not fit the parameters' shapes", (long long)tokens, (long long)width);
  for (int64_t row = 0; row < rows; row++)
    OP_CHECK(row_token[row] >= -1 && row_token[row] < tokens, "patch_embed: token %d is outside [-1, %lld)", (int)row_token[row],
             (long long)tokens);
  Tensor *y = tape_tensor(tape, 3, (int64_t[]){batch, rows, width});
  PatchEmbed *job = tape_alloc(tape, sizeof *job);
  const size_t numbers = (size_t)(batch * rows * depth);
  const Numbers patches = tape_uses_bf16(tape) && weight->shadow ? (Numbers){.narrow = tape_alloc(tape, numbers * sizeof(uint16_t))}
                                                                 : (Numbers){.wide = tape_alloc(tape, numbers * sizeof(real))};
  if (y == NULL || job == NULL || !numbers_exist(patches)) return NULL;
  *job = (PatchEmbed){pixels, weight, bias, position, class_token, y, row_token, patches, NULL, batch, rows, width, patch, across, depth};
  y->needs_grad = tape_recording(tape) && (op_wants(weight) || op_wants(bias) || op_wants(position) || op_wants(class_token));
  return tape_apply(tape, &PATCH_EMBED, job, y);
}

/* ---------------------------------------------------------------- tokens */

/* Rows of a table by id, plus rows of a table of positions. Backward adds rows in order on one thread for each slice of columns, so the
 * sum's order is fixed, whatever the thread count. */
typedef struct TokenEmbed {
  Tensor *table, *position, *y; /* position may be NULL */
  const int32_t *ids, *positions;
  int64_t batch, rows, width;
} TokenEmbed;

static void lookup_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  TokenEmbed *job = context;
  const Tensor *table = job->table;
  for (int64_t i = begin; i < end; i++) {
    const int64_t id = job->ids[i];
    real *y = job->y->value + i * job->width;
    if (table->lowbit != NULL)
      lowbit_widen(table->lowbit, id, 0, job->width, y);
    else if (table->narrow_kind != NARROW_NONE)
      kernels()->widen(table->narrow_kind, job->width, table->narrow + id * job->width, y);
    else
      memcpy(y, table->value + id * job->width, (size_t)job->width * sizeof(real));
    if (job->position) kernels()->add(job->width, job->position->value + job->positions[i % job->rows] * job->width, y);
  }
}

static void token_forward(Tape *tape, void *record) {
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

static void token_backward(Tape *tape, void *record) {
  TokenEmbed *job = record;
  if (tape_grad_zeroed(tape, job->table)) tape_for(tape, job->width, OP_ROW_GRAIN, table_backward_body, job);
  if (tape_grad_zeroed(tape, job->position)) tape_for(tape, job->width, OP_ROW_GRAIN, position_backward_body, job);
}

static const OpKind TOKEN_EMBED = {"token_embed", token_forward, token_backward};

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
  return tape_apply(tape, &TOKEN_EMBED, job, y);
}

/* ---------------------------------------------------------------- rotary positions */

/* Rotary position embedding, Hugging Face's half rotation. A rotation is orthogonal, so backward rotates the gradient back, in place, and
 * passes it on: nothing is kept and nothing copied. */
enum { MAX_HEAD = 1024 /* width of a head in bf16 */ };

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

static void rope_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Turn *job = context;
  for (int64_t row = begin; row < end; row++) turn_row(job, row, 1, tensor_numbers(job->x), tensor_numbers(job->y));
}

static void rope_forward(Tape *tape, void *record) {
  Turn *job = record;
  tape_for(tape, tensor_rows(job->y), OP_ROW_GRAIN, rope_body, job);
}

static void rope_backward_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Turn *job = context;
  for (int64_t row = begin; row < end; row++) turn_row(job, row, -1, tensor_grad(job->y), tensor_grad(job->y));
}

static void rope_backward(Tape *tape, void *record) {
  Turn *job = record;
  tape_for(tape, tensor_rows(job->y), OP_ROW_GRAIN, rope_backward_body, job);
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
  OP_CHECK((x->value && !tape_is_narrow(tape)) || width / rope->heads <= MAX_HEAD,
           "rope: heads of %lld numbers in bf16; at most %d are possible", (long long)(width / rope->heads), MAX_HEAD);
  Tensor *y = tape_activation(tape, x->dims, x->shape);
  Turn *job = tape_alloc(tape, sizeof *job);
  if (y == NULL || job == NULL) return NULL;
  *job = (Turn){x, y, *rope, positions, rows, width / rope->heads / 2};
  y->needs_grad = tape_recording(tape) && op_wants(x);
  return tape_apply(tape, &ROPE, job, y);
}
