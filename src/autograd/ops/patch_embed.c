/* The input of a vision transformer: patches as rows (im2col), one product, then bias and position, or class token and position.
 * A class-token row has a patch of zeros, so that the product and its weight gradient need no exception. Kept for backward: the patches. */
#include "autograd/ops/op_common.h"

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

static void start_row(const PatchEmbed *job, int32_t token, real *y) {
  const real *first = token < 0 ? job->class_token->value : job->bias->value;
  memcpy(y, first, (size_t)job->width * sizeof(real));
  kernels()->add(job->width, job->position->value + (token + 1) * job->width, y);
}

static void patches_body(void *context, int64_t begin, int64_t end, int thread) {
  PatchEmbed *job = context;
  real *stage = job->stage ? job->stage + thread * job->depth : NULL;
  for (int64_t row = begin; row < end; row++) {
    int32_t token = job->row_token[row % job->rows];
    cut_patch(job, row / job->rows, token, numbers_place(job->patches, row * job->depth, stage));
    numbers_written(job->patches, row * job->depth, job->depth, stage);
    start_row(job, token, job->y->value + row * job->width);
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
    tape_matmul(tape, false, true, rows, width, depth, 1, job->patches.wide, depth, job->weight->value, depth, 1, job->y->value, width);
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

static void weight_backward(Tape *tape, const PatchEmbed *job, real *dweight, bool add) {
  const int64_t rows = job->batch * job->rows, width = job->width, depth = job->depth;
  const size_t mark = tape_scratch_begin(tape);
  if (job->patches.narrow)
    op_matmul_bf16(tape, true, false, width, depth, rows, op_in_bf16(tape, tensor_grad(job->y), rows, width), width, job->patches.narrow,
                   depth, NULL, add, (Numbers){.wide = dweight}, depth);
  else
    tape_matmul(tape, true, false, width, depth, rows, 1, job->y->grad, width, job->patches.wide, depth, add ? 1 : 0, dweight, depth);
  tape_scratch_end(tape, mark);
}

static void patch_backward(Tape *tape, void *record) {
  PatchEmbed *job = record;
  bool add;
  real *dweight = tape_grad(tape, job->weight, &add);
  tape_grad_zeroed(tape, job->bias);
  tape_grad_zeroed(tape, job->position);
  tape_grad_zeroed(tape, job->class_token);
  if (dweight) weight_backward(tape, job, dweight, add);
  tape_for(tape, job->width, OP_ROW_GRAIN, rest_backward_body, job);
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
  tape_apply(tape, &PATCH_EMBED, job, y);
  return y;
}
