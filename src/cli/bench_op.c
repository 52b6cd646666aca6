/* The command op: times each operation, forward and backward, and says how near it comes to what the machine can do: to the rate of its
 * products, or to that of memory where it has none. Arrays that fit in the caches may pass faster than memory does. */
#include "autograd/kernels/kernels.h"
#include "autograd/kernels/matmul.h"
#include "autograd/ops/decode_attention.h"
#include "autograd/ops/ops.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/number.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "nn/json_build.h"
#include "train/session.h"
#include "vq/codebook.h"
#include "vq/navq.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The operations ---- */

/* The operations that astra-bench op times, one by one: what each is given, and what it has to compute and move at least. */
typedef struct OpSizes {
  int64_t rows, width; /* of the input */
  int64_t outputs;     /* of a matrix */
  int64_t tokens;      /* of a sample: rows / tokens samples attend to themselves */
  int64_t heads;
  int64_t entries, groups; /* of a codebook */
  int64_t vocabulary;
  bool causal;
} OpSizes;

enum { OP_INPUTS = 3, OP_WEIGHTS = 4, PATCH = 16, PATCH_NUMBERS = 3 * PATCH * PATCH /* of a vision transformer: colour */ };

/* Everything that the operations take, made once. */
typedef struct OpBench {
  OpSizes sizes;
  Tensor input[OP_INPUTS];     /* [samples, tokens, width], with gradients */
  real *values[OP_INPUTS];     /* theirs */
  uint16_t *narrow[OP_INPUTS]; /* the same in bf16; NULL: everything is computed in float */
  Tensor weight[OP_WEIGHTS];   /* of the operation under way: matrices and biases, or scale and shift; with gradients */
  real *pool;                  /* of their values and gradients; [pool_numbers] */
  int64_t pool_numbers;
  uint16_t *shadows; /* the pool in bf16, as models that compute in bf16 keep their matrices; NULL: everything is computed in float */
  int32_t *ids, *codes, *zeros; /* [rows] tokens and their labels; [rows, groups]; [rows] labels of the loss behind an operation */
  int32_t *order;               /* [tokens] rows of a sample in another order */
  real *cosine, *sine, *output, *moments; /* [tokens, d/2]; [rows, width]; [2 rows, width] */
  real *pixels, *keep;                    /* [samples, 3, 16 tokens, 16], NULL until asked for; [samples] what branches count */
  Tensor *penalty; /* of the call under way: one number that the loss has besides what follows from the output; NULL: none */
  Codebook book;
  Navq navq;
  void *scratch;
  Tape *tape;
} OpBench;

/* The least that one call computes and moves, each array once: floating-point operations of its products, bytes of memory. */
typedef struct OpWork {
  double flops, bytes;
} OpWork;

enum OpUse { USES_TOKENS = 1, USES_HEADS = 2, USES_GROUPS = 4 };

typedef struct OpCase {
  const char *name;
  Tensor *(*apply)(OpBench *bench); /* on the tape; NULL for what is none of its operations: */
  void (*run)(OpBench *bench);
  bool is_loss; /* apply gives the loss itself */
  bool narrow;  /* in a model that computes in bf16 its inputs are in bf16, and what it gives */
  int uses;     /* OpUse: of what not all operations have */
  void (*work)(const OpSizes *sizes, OpWork *forward, OpWork *backward);
} OpCase;

extern const OpCase OP_CASES[]; /* ends with a NULL name */

/* ---------------------------------------------------------------- inputs */

static int64_t samples(const OpSizes *s) { return s->rows / s->tokens; }
static int64_t head_width(const OpSizes *s) { return s->width / s->heads; }

static Status open_arrays(OpBench *b, Rng *rng) {
  const OpSizes *s = &b->sizes;
  int64_t half = head_width(s) / 2;
  for (int i = 0; i < OP_INPUTS; i++) {
    if ((b->values[i] = bench_random_numbers(s->rows * s->width, rng)) == NULL) return status_no_memory(NULL, "the operations' inputs");
  }
  /* Two matrices with their biases, a token table, or patches with their positions, and as many gradients. */
  const int64_t matrices = number_greater(2 * s->outputs, number_greater(s->vocabulary, PATCH_NUMBERS + s->tokens + 1));
  b->pool_numbers = 2 * (matrices * s->width + number_greater(s->outputs, s->width) + s->width);
  b->pool = bench_random_numbers(b->pool_numbers, rng);
  /* As small as a model's, so that logits are of size 1: softmax of larger ones has gradients below the normal numbers, which are slow. */
  for (int64_t i = 0; b->pool != NULL && i < b->pool_numbers; i++) b->pool[i] /= (real)sqrt((double)s->width);
  b->cosine = bench_random_numbers(s->tokens * half, rng), b->sine = bench_random_numbers(s->tokens * half, rng);
  b->output = bench_random_numbers(s->rows * s->width, rng), b->moments = calloc((size_t)(2 * s->rows * s->width), sizeof *b->moments);
  b->ids = malloc((size_t)s->rows * sizeof *b->ids), b->zeros = calloc((size_t)s->rows, sizeof *b->zeros);
  b->codes = malloc((size_t)(s->rows * s->groups) * sizeof *b->codes), b->order = malloc((size_t)s->tokens * sizeof *b->order);
  b->keep = calloc((size_t)samples(s), sizeof *b->keep);
  if (!b->pool || !b->cosine || !b->sine || !b->output || !b->moments || !b->ids || !b->zeros || !b->codes || !b->order || !b->keep)
    return status_no_memory(NULL, "the operations' inputs");
  for (int64_t i = 0; i < s->tokens; i++) b->order[i] = (int32_t)(s->tokens - 1 - i);
  for (int64_t i = 0; i < samples(s); i++) b->keep[i] = (real)(i % 2); /* every other branch is left out */
  for (int64_t i = 0; i < s->rows; i++) b->ids[i] = (int32_t)rng_below(rng, (uint64_t)s->vocabulary);
  for (int64_t i = 0; i < s->rows * s->groups; i++) b->codes[i] = (int32_t)rng_below(rng, (uint64_t)s->entries);
  return STATUS_OK;
}

/* Inputs of `which` as they are in a model of this precision, without gradients. */
static void bench_op_prepare(OpBench *b, const OpCase *which) {
  bool narrow = which->narrow && b->narrow[0] != NULL;
  for (int i = 0; i < OP_INPUTS; i++) {
    Tensor *input = &b->input[i];
    *input = (Tensor){.dims = 3, .shape = {samples(&b->sizes), b->sizes.tokens, b->sizes.width}, .needs_grad = true};
    if (narrow)
      input->narrow = b->narrow[i], input->narrow_kind = NARROW_BF16;
    else
      input->value = b->values[i];
  }
  tape_narrow(b->tape, narrow);
}

static Status open_codebook(OpBench *b, Rng *rng) {
  const OpSizes *s = &b->sizes;
  TRY(codebook_init(&b->book, s->groups, s->entries, s->width, NULL));
  for (int64_t i = 0; i < s->entries * s->width; i++) b->book.codewords[i] = (real)rng_normal(rng);
  codebook_refresh(&b->book);
  TRY(navq_init(&b->navq, s->groups, s->width, NOISE_FULL));
  size_t bytes = codebook_assign_scratch(&b->book, s->rows), noise = navq_scratch(&b->navq, s->rows);
  if ((b->scratch = malloc(bytes > noise ? bytes : noise)) == NULL) return status_no_memory(NULL, "the operations' inputs");
  navq_update(&b->navq, b->values[0], b->values[1], s->rows, b->scratch);
  return STATUS_OK;
}

/* Random inputs for all cases that use no more. BAD_USAGE where sizes do not go together. bench_op_close accepts what a failure leaves. */
static Status bench_op_open(OpBench *bench, const OpSizes *s, int uses, uint64_t seed, Tape *tape, bool bf16) {
  Rng rng;
  rng_init(&rng, seed, 0);
  *bench = (OpBench){.sizes = *s, .tape = tape};
  if (s->rows % s->tokens != 0)
    return status_set(STATUS_BAD_USAGE, "--tokens %lld does not divide --rows %lld", (long long)s->tokens, (long long)s->rows);
  if (s->width % s->heads != 0 || ((uses & USES_HEADS) && head_width(s) % 2 != 0))
    return status_set(STATUS_BAD_USAGE, "--heads %lld: --width %lld must be a multiple of it, with an even width per head",
                      (long long)s->heads, (long long)s->width);
  TRY(open_arrays(bench, &rng));
  if (bf16) tape_use_bf16(tape, true);
  for (int i = 0; bf16 && i < OP_INPUTS; i++) {
    bench->narrow[i] = malloc((size_t)(s->rows * s->width) * sizeof *bench->narrow[i]);
    if (bench->narrow[i] == NULL) return status_no_memory(NULL, "the operations' inputs");
    kernels()->narrow(s->rows * s->width, bench->values[i], bench->narrow[i]);
  }
  if (bf16) {
    bench->shadows = malloc((size_t)bench->pool_numbers * sizeof *bench->shadows);
    if (bench->shadows == NULL) return status_no_memory(NULL, "the operations' weights");
    kernels()->narrow(bench->pool_numbers, bench->pool, bench->shadows);
  }
  return uses & USES_GROUPS ? open_codebook(bench, &rng) : STATUS_OK;
}

static void bench_op_close(OpBench *bench) {
  for (int i = 0; i < OP_INPUTS; i++) free(bench->values[i]), free(bench->narrow[i]);
  free(bench->pool);
  free(bench->shadows);
  free(bench->cosine);
  free(bench->sine);
  free(bench->output);
  free(bench->moments);
  free(bench->ids);
  free(bench->codes);
  free(bench->order);
  free(bench->pixels);
  free(bench->keep);
  free(bench->zeros);
  free(bench->scratch);
  codebook_release(&bench->book);
  navq_release(&bench->navq);
}

/* Weight `index` with values and a gradient to add to, from the pool behind the weights before it, as parameters have them in training. */
static Tensor *weight(OpBench *b, int index, int dims, const int64_t *shape) {
  Tensor *tensor = &b->weight[index];
  *tensor = (Tensor){.dims = dims, .needs_grad = true, .grad_filled = true};
  memcpy(tensor->shape, shape, (size_t)dims * sizeof *shape);
  int64_t count = tensor_count(tensor), used = 0;
  for (int i = 0; i < index; i++) used += 2 * tensor_count(&b->weight[i]);
  tensor->value = b->pool + used;
  tensor->grad = b->pool + used + count;
  if (b->shadows != NULL && dims != 1 && dims != 3) tensor->shadow = b->shadows + used; /* what is multiplied with: matrices, patches */
  return tensor;
}

static Tensor *matrix(OpBench *b, int index, int64_t rows, int64_t columns) {
  return weight(b, index, 2, (const int64_t[]){rows, columns});
}
static Tensor *vector(OpBench *b, int index, int64_t count) { return weight(b, index, 1, &count); }

/* ---------------------------------------------------------------- operations of the tape */

static Tensor *apply_linear(OpBench *b) {
  Tensor *w = matrix(b, 0, b->sizes.outputs, b->sizes.width);
  return op_linear(b->tape, &b->input[0], w, vector(b, 1, b->sizes.outputs), ACTIVATION_NONE, NULL);
}

static Tensor *apply_linear_gelu(OpBench *b) {
  Tensor *w = matrix(b, 0, b->sizes.outputs, b->sizes.width);
  return op_linear(b->tape, &b->input[0], w, vector(b, 1, b->sizes.outputs), ACTIVATION_GELU, NULL);
}

/* Half as many outputs, of the second half of the inputs: work and weights are those of half a linear map. */
static Tensor *apply_linear_columns(OpBench *b) {
  const LinearPart all = {.count = number_greater(1, b->sizes.outputs / 2)};
  Tensor *w = matrix(b, 0, all.count, 2 * b->sizes.width);
  return op_linear_columns(b->tape, &b->input[0], w, NULL, &all, b->sizes.width, NULL);
}

static Tensor *apply_mlp(OpBench *b) {
  const LinearPart inner = {.count = b->sizes.outputs}, outer = {.count = b->sizes.width};
  Tensor *up = matrix(b, 0, inner.count, outer.count), *up_bias = vector(b, 1, inner.count);
  Tensor *down = matrix(b, 2, outer.count, inner.count), *down_bias = vector(b, 3, outer.count);
  return op_mlp(b->tape, &b->input[0], &(LinearMap){up, up_bias, &inner}, ACTIVATION_GELU, &(LinearMap){down, down_bias, &outer}, NULL);
}

static Tensor *apply_attention(OpBench *b) {
  int heads = (int)b->sizes.heads;
  AttentionSpan *span = tape_alloc(b->tape, sizeof *span); /* outlives the step */
  if (span == NULL) return NULL;
  *span = (AttentionSpan){.count = b->sizes.tokens};
  AttentionOptions options = {.heads = heads, .kv_heads = heads, .causal = b->sizes.causal, .spans = 1, .span = span};
  return op_attention(b->tape, &b->input[0], &b->input[1], &b->input[2], NULL, NULL, &options);
}

static Tensor *apply_layer_norm(OpBench *b) {
  Tensor *scale = vector(b, 0, b->sizes.width);
  return op_layer_norm(b->tape, &b->input[0], scale, vector(b, 1, b->sizes.width), 1e-6);
}

static Tensor *apply_rms_norm(OpBench *b) { return op_rms_norm(b->tape, &b->input[0], vector(b, 0, b->sizes.width), 1e-6); }
static Tensor *apply_gelu(OpBench *b) { return op_activate(b->tape, &b->input[0], ACTIVATION_GELU); }
static Tensor *apply_swiglu(OpBench *b) { return op_swiglu(b->tape, &b->input[0], &b->input[1]); }
static Tensor *apply_add(OpBench *b) { return op_add(b->tape, &b->input[0], &b->input[1]); }
static Tensor *apply_add_scaled(OpBench *b) { return op_add_scaled(b->tape, &b->input[0], &b->input[1], 0.5); }
static Tensor *apply_scale(OpBench *b) { return op_scale(b->tape, &b->input[0], 0.5); }
static Tensor *apply_drop_path(OpBench *b) { return op_drop_path(b->tape, &b->input[0], &b->input[1], b->keep); }
static Tensor *apply_widen(OpBench *b) { return op_widen(b->tape, &b->input[0]); }
static Tensor *apply_gather_rows(OpBench *b) { return op_gather_rows(b->tape, &b->input[0], b->order, b->sizes.tokens); }
static Tensor *apply_select_rows(OpBench *b) { return op_select_rows(b->tape, &b->input[0], b->zeros); }
static Tensor *apply_join(OpBench *b) { return op_join(b->tape, &b->input[0], &b->input[1]); }
static Tensor *apply_mean_replicas(OpBench *b) { return op_mean_replicas(b->tape, &b->input[0], NULL); }

static Tensor *apply_rope(OpBench *b) {
  int32_t *positions = tape_alloc(b->tape, (size_t)b->sizes.tokens * sizeof *positions);
  for (int64_t i = 0; positions && i < b->sizes.tokens; i++) positions[i] = (int32_t)i;
  if (positions == NULL) return NULL;
  return op_rope(b->tape, &b->input[0], &(Rope){b->cosine, b->sine, b->sizes.tokens, (int)b->sizes.heads}, positions);
}

static Tensor *apply_cross_entropy(OpBench *b) { return op_cross_entropy(b->tape, &b->input[0], &(CrossEntropy){.labels = b->zeros}); }

static Tensor *apply_row_error(OpBench *b) { return op_row_error(b->tape, &b->input[0], b->values[1], b->sizes.tokens, b->zeros, NULL); }

static Tensor *apply_vocab_loss(OpBench *b) {
  Tensor *table = matrix(b, 0, b->sizes.vocabulary, b->sizes.width);
  return op_vocab_loss(b->tape, &b->input[0], table, &(VocabLoss){.labels = b->ids});
}

static Tensor *apply_token_embed(OpBench *b) {
  Tensor *table = matrix(b, 0, b->sizes.vocabulary, b->sizes.width);
  return op_token_embed(b->tape, table, NULL, b->ids, NULL, samples(&b->sizes), b->sizes.tokens);
}

/* Images one patch wide; each token's row is that of a patch. */
static Tensor *apply_patch_embed(OpBench *b) {
  const OpSizes *s = &b->sizes;
  Rng rng;
  rng_init(&rng, 1, 0);
  if (b->pixels == NULL) b->pixels = bench_random_numbers(s->rows * PATCH_NUMBERS, &rng); /* too many to be made for other operations */
  if (b->pixels == NULL) tape_fail(b->tape, STATUS_NO_MEMORY, "no memory for images of %lld patches", (long long)s->rows);
  Tensor pixels = {.dims = 4, .shape = {samples(s), 3, PATCH * s->tokens, PATCH}, .value = b->pixels};
  Tensor *input = tape_alloc(b->tape, sizeof *input); /* outlives the step */
  if (input == NULL || b->pixels == NULL) return NULL;
  *input = pixels;
  Tensor *w = weight(b, 0, 4, (const int64_t[]){s->width, 3, PATCH, PATCH}), *bias = vector(b, 1, s->width);
  Tensor *position = weight(b, 2, 3, (const int64_t[]){1, 1 + s->tokens, s->width});
  Tensor *class_token = weight(b, 3, 3, (const int64_t[]){1, 1, s->width});
  return op_patch_embed(b->tape, input, w, bias, position, class_token, PATCH, b->order, s->tokens);
}

/* The noise is measured by itself. */
static Tensor *apply_quantise(OpBench *b) {
  Quantise options = {.codebook = b->book.codewords, .groups = b->sizes.groups, .entries = b->sizes.entries, .codes = b->codes};
  return op_quantise(b->tape, &b->input[0], &options, &b->penalty);
}

/* ---------------------------------------------------------------- what is none */

static void run_nearest(OpBench *b) { codebook_assign(&b->book, b->values[0], b->sizes.rows, b->codes, NULL, b->scratch); }
static void run_lookup(OpBench *b) { codebook_lookup(&b->book, b->codes, b->sizes.rows, b->output); }
static void run_noise(OpBench *b) { navq_sample(&b->navq, 1, 1, 1, b->sizes.rows, b->output, b->scratch); }

static void softmax_rows(void *context, int64_t begin, int64_t end, int thread) {
  OpBench *b = context;
  (void)thread;
  for (int64_t row = begin; row < end; row++) kernels()->softmax(b->sizes.width, 1, b->output + row * b->sizes.width);
}

static void run_softmax(OpBench *b) { threads_for(b->sizes.rows, 1, softmax_rows, b); }

static void adamw_numbers(void *context, int64_t begin, int64_t end, int thread) {
  static const AdamwStep step = {
      .scale = 1, .rate = (real)1e-4, .b1 = (real)0.9, .b2 = (real)0.999, .c1 = (real)0.1, .c2 = (real)0.001, .eps = (real)1e-8};
  OpBench *b = context;
  (void)thread;
  real *m = b->moments + begin, *v = m + b->sizes.rows * b->sizes.width;
  kernels()->adamw(end - begin, b->output + begin, b->values[0] + begin, m, v, &step);
}

static void run_adamw(OpBench *b) { threads_for(b->sizes.rows * b->sizes.width, 4096, adamw_numbers, b); }

/* One row times a matrix, as in decoding. */
static void run_row(OpBench *b) {
  Tensor row = {.dims = 2, .shape = {1, b->sizes.width}, .value = b->values[0]};
  Tensor *w = matrix(b, 0, b->sizes.outputs, b->sizes.width);
  tape_record(b->tape, false);
  op_linear(b->tape, &row, w, NULL, ACTIVATION_NONE, NULL);
}

static void run_decode_attention(OpBench *b) {
  Tensor q = {.dims = 3, .shape = {1, 1, b->sizes.width}, .value = b->output};
  int heads = (int)b->sizes.heads;
  tape_record(b->tape, false);
  op_decode_attention(
      b->tape, &q,
      &(DecodeAttention){.heads = heads, .kv_heads = heads, .keys = b->values[1], .values = b->values[2], .rows = b->sizes.tokens});
}

/* ---------------------------------------------------------------- work */

static double numbers(const OpSizes *s) { return (double)s->rows * (double)s->width; }

/* Arrays of the input's size that pass the memory, forward and backward. */
static void set_passes(const OpSizes *s, double forward, double backward, OpWork *f, OpWork *b) {
  f->bytes = forward * numbers(s) * sizeof(real);
  b->bytes = backward * numbers(s) * sizeof(real);
}

static void work_linear(const OpSizes *s, OpWork *f, OpWork *b) {
  double in = numbers(s), out = (double)s->rows * (double)s->outputs, w = (double)s->outputs * (double)s->width;
  *f = (OpWork){2 * in * (double)s->outputs, (in + out + w) * sizeof(real)};
  *b = (OpWork){2 * f->flops, (2 * in + out + 3 * w) * sizeof(real)}; /* gradients of weights are added to */
}

static void work_linear_columns(const OpSizes *s, OpWork *f, OpWork *b) {
  OpSizes half = *s;
  half.outputs = number_greater(1, s->outputs / 2);
  work_linear(&half, f, b);
}

/* Two maps; what is between them is not counted as memory, but backward computes the activation again. */
static void work_mlp(const OpSizes *s, OpWork *f, OpWork *b) {
  double in = numbers(s), w = 2 * (double)s->outputs * (double)s->width;
  *f = (OpWork){4 * in * (double)s->outputs, (2 * in + w) * sizeof(real)};
  *b = (OpWork){2 * f->flops, (3 * in + 3 * w) * sizeof(real)};
}

/* Forward q k^T and p v; backward the scores again, and four products: those that the gradients need. */
static void work_attention(const OpSizes *s, OpWork *f, OpWork *b) {
  double product = 2 * numbers(s) * (double)s->tokens * (s->causal ? 0.5 : 1);
  set_passes(s, 4, 8, f, b);
  f->flops = 2 * product;
  b->flops = 5 * product;
}

static void work_norm(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 2, 3, f, b); }
static void work_swiglu(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 3, 5, f, b); }
static void work_add(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 3, 2, f, b); }
static void work_rope(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 2, 2, f, b); }
static void work_quantise(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 4, 3, f, b); }
static void work_one_pass(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 1, 0, f, b); }
static void work_scale(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 2, 1, f, b); } /* the gradient in place */
static void work_three_passes(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 3, 3, f, b); }
static void work_join(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 4, 4, f, b); }
static void work_mean(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 1, 1, f, b); }
static void work_two_passes(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 2, 0, f, b); }
static void work_adamw(const OpSizes *s, OpWork *f, OpWork *b) { set_passes(s, 7, 0, f, b); }

/* The gradients are made in the forward pass; backward adds that of the table. */
static void work_vocab_loss(const OpSizes *s, OpWork *f, OpWork *b) {
  double table = (double)s->vocabulary * (double)s->width;
  *f = (OpWork){6 * numbers(s) * (double)s->vocabulary, (2 * numbers(s) + 2 * table) * sizeof(real)};
  *b = (OpWork){0, 3 * table * sizeof(real)};
}

/* A row of each sample is read and written; backward fills the gradient of all rows. */
static void work_select(const OpSizes *s, OpWork *f, OpWork *b) {
  set_passes(s, 0, 1, f, b);
  f->bytes = 2 * (double)samples(s) * (double)s->width * sizeof(real);
}

static void work_patch_embed(const OpSizes *s, OpWork *f, OpWork *b) { /* pixels have no gradient */
  double in = (double)s->rows * PATCH_NUMBERS, w = (double)(PATCH_NUMBERS + s->tokens) * (double)s->width;
  *f = (OpWork){2 * in * (double)s->width, (in + numbers(s) + w) * sizeof(real)};
  *b = (OpWork){f->flops, (in + numbers(s) + 2 * w) * sizeof(real)};
}

static void work_nearest(const OpSizes *s, OpWork *f, OpWork *b) {
  set_passes(s, 1, 0, f, b);
  f->flops = 2 * numbers(s) * (double)s->entries;
}

static void work_noise(const OpSizes *s, OpWork *f, OpWork *b) {
  set_passes(s, 1, 0, f, b);
  f->flops = 2 * numbers(s) * (double)s->width / (double)s->groups;
}

static void work_row(const OpSizes *s, OpWork *f, OpWork *b) {
  double w = (double)s->outputs * (double)s->width;
  *f = (OpWork){2 * w, w * sizeof(real)};
  *b = (OpWork){0, 0};
}

static void work_decode_attention(const OpSizes *s, OpWork *f, OpWork *b) {
  double keys = (double)s->tokens * (double)s->width;
  *f = (OpWork){4 * keys, 2 * keys * sizeof(real)};
  *b = (OpWork){0, 0};
}

const OpCase OP_CASES[] = {
    {.name = "linear", .apply = apply_linear, .narrow = true, .work = work_linear},
    {.name = "linear-gelu", .apply = apply_linear_gelu, .narrow = true, .work = work_linear},
    {.name = "linear-columns", .apply = apply_linear_columns, .narrow = true, .work = work_linear_columns},
    {.name = "linear-row", .run = run_row, .work = work_row},
    {.name = "mlp", .apply = apply_mlp, .narrow = true, .work = work_mlp},
    {.name = "attention", .apply = apply_attention, .narrow = true, .uses = USES_TOKENS | USES_HEADS, .work = work_attention},
    {.name = "decode-attention", .run = run_decode_attention, .uses = USES_TOKENS | USES_HEADS, .work = work_decode_attention},
    {.name = "layer-norm", .apply = apply_layer_norm, .work = work_norm},
    {.name = "rms-norm", .apply = apply_rms_norm, .work = work_norm},
    {.name = "gelu", .apply = apply_gelu, .narrow = true, .work = work_norm},
    {.name = "swiglu", .apply = apply_swiglu, .narrow = true, .work = work_swiglu},
    {.name = "rope", .apply = apply_rope, .narrow = true, .uses = USES_TOKENS | USES_HEADS, .work = work_rope},
    {.name = "add", .apply = apply_add, .work = work_add},
    {.name = "add-scaled", .apply = apply_add_scaled, .work = work_add},
    {.name = "scale", .apply = apply_scale, .work = work_scale},
    {.name = "drop-path", .apply = apply_drop_path, .uses = USES_TOKENS, .work = work_three_passes},
    {.name = "widen", .apply = apply_widen, .narrow = true, .work = work_three_passes},
    {.name = "gather-rows", .apply = apply_gather_rows, .narrow = true, .uses = USES_TOKENS, .work = work_rope},
    {.name = "select-rows", .apply = apply_select_rows, .narrow = true, .uses = USES_TOKENS, .work = work_select},
    {.name = "join", .apply = apply_join, .uses = USES_TOKENS, .work = work_join},
    {.name = "mean-replicas", .apply = apply_mean_replicas, .uses = USES_TOKENS, .work = work_mean},
    {.name = "softmax", .run = run_softmax, .work = work_two_passes},
    {.name = "cross-entropy", .apply = apply_cross_entropy, .is_loss = true, .work = work_rope},
    {.name = "row-error", .apply = apply_row_error, .is_loss = true, .uses = USES_TOKENS, .work = work_norm},
    {.name = "vocab-loss", .apply = apply_vocab_loss, .is_loss = true, .work = work_vocab_loss},
    {.name = "token-embed", .apply = apply_token_embed, .uses = USES_TOKENS, .work = work_norm},
    {.name = "patch-embed", .apply = apply_patch_embed, .uses = USES_TOKENS, .work = work_patch_embed},
    {.name = "nearest", .run = run_nearest, .uses = USES_GROUPS, .work = work_nearest},
    {.name = "lookup", .run = run_lookup, .uses = USES_GROUPS, .work = work_one_pass},
    {.name = "noise", .run = run_noise, .uses = USES_GROUPS, .work = work_noise},
    {.name = "quantise", .apply = apply_quantise, .uses = USES_GROUPS, .work = work_quantise},
    {.name = "adamw", .run = run_adamw, .work = work_adamw},
    {.name = NULL}};

/* ---- The command ---- */

static const BenchUsage USAGE = {"astra-bench op [--op NAME,...] [--rows M] [--width D] [options]",
                                 "Times each operation by itself, beside the peak rates of products and memory."};

static const size_t ARENA_BYTES = (size_t)1 << 36; /* of address space; pages come as they are touched */

enum { MAX_SIZE = 1 << 24, NAMES_TEXT = 512 };

typedef struct OpCommand {
  const char *names;
  OpSizes sizes;
  int uses; /* OpUse, of the operations named */
  int64_t repeats, warm_up;
  int precision; /* TrainPrecision */
  BenchRun run;
} OpCommand;

typedef struct OpFigures {
  BenchTiming timing;
  OpWork work;
  PeakNumbers numbers; /* of its inputs: with bf16 half the bytes, but for weights' gradients */
} OpFigures;

typedef struct OpRun {
  const OpCommand *command;
  OpBench bench;
  Arena *arena;
  double *seconds[TAPE_BACKWARD + 1]; /* [repeats]: forward and backward */
  BenchPeak peak;
  json_t *list; /* with --json */
} OpRun;

static bool in_bf16(const OpCommand *command) {
  return command->precision == PRECISION_BF16 || (command->precision == PRECISION_AUTO && matmul_bf16_is_faster());
}

/* ---------------------------------------------------------------- measuring */

/* A part of the loss that is put behind an operation, not of the operation itself. */
static bool is_behind(const OpBench *bench, const OpCase *which, const char *part) {
  if (which->is_loss) return false;
  if (strcmp(part, "widen") == 0) return which->apply != apply_widen;
  return strcmp(part, "cross_entropy") == 0 || (strcmp(part, "add") == 0 && bench->penalty);
}

static Status call_on_tape(OpBench *bench, const OpCase *which, double seconds[]) {
  BenchProfile profile = {.parts = 0};
  bench_op_prepare(bench, which);
  bench->penalty = NULL;
  tape_record(bench->tape, true);
  bench_profile_watch(&profile, bench->tape);
  Tensor *output = which->apply(bench);
  Tensor *loss = output;
  if (output && !which->is_loss) /* one number behind it, so that a gradient flows into it */
    loss = op_cross_entropy(bench->tape, op_widen(bench->tape, output), &(CrossEntropy){.labels = bench->zeros});
  if (loss && bench->penalty) loss = op_add_scaled(bench->tape, loss, bench->penalty, 0.5);
  Status status = loss ? tape_backward(bench->tape, loss) : tape_status(bench->tape);
  bench_profile_watch(NULL, bench->tape);
  seconds[TAPE_FORWARD] = seconds[TAPE_BACKWARD] = 0;
  for (const BenchPart *part = profile.part; part < profile.part + profile.parts; part++)
    if (part->phase <= TAPE_BACKWARD && !is_behind(bench, which, part->name)) seconds[part->phase] += part->seconds;
  return status;
}

static Status call(OpBench *bench, const OpCase *which, double seconds[]) {
  if (which->apply != NULL) return call_on_tape(bench, which, seconds);
  double begun = clock_now();
  which->run(bench);
  seconds[TAPE_FORWARD] = clock_now() - begun;
  seconds[TAPE_BACKWARD] = 0;
  return tape_status(bench->tape);
}

static Status measure_case(OpRun *run, const OpCase *which) {
  const OpCommand *command = run->command;
  for (int64_t i = -command->warm_up; i < command->repeats; i++) {
    double seconds[TAPE_BACKWARD + 1];
    Status status = call(&run->bench, which, seconds);
    tape_clear(run->bench.tape);
    if (status != STATUS_OK) return status_wrap(status, "%s", which->name);
    for (int phase = TAPE_FORWARD; i >= 0 && phase <= TAPE_BACKWARD; phase++) run->seconds[phase][i] = seconds[phase];
  }
  return STATUS_OK;
}

/* ---------------------------------------------------------------- what is printed */

/* The part of the time that the machine would need at its best. */
static double limit_share(const OpRun *run, const OpFigures *figures) {
  double products = figures->work.flops / bench_peak_products(&run->peak, figures->numbers),
         memory = figures->work.bytes / run->peak.read.all;
  return fmax(products, memory) / figures->timing.median;
}

static void report_case(OpRun *run, const OpCase *which) {
  static const char *const phases[] = {[TAPE_FORWARD] = "forward", [TAPE_BACKWARD] = "backward"};
  OpFigures figures[TAPE_BACKWARD + 1] = {0};
  which->work(&run->command->sizes, &figures[TAPE_FORWARD].work, &figures[TAPE_BACKWARD].work);
  if (which->apply == apply_widen && !in_bf16(run->command)) { /* numbers in full width are passed on as they are */
    if (!run->list) printf("  %-18s nothing to do in fp32\n", which->name);
    return;
  }
  PeakNumbers numbers = which->narrow && in_bf16(run->command) ? PEAK_BF16 : PEAK_F32;
  for (int phase = TAPE_FORWARD; phase <= TAPE_BACKWARD; phase++) {
    OpFigures *f = &figures[phase];
    f->timing = bench_timing_of(run->seconds[phase], run->command->repeats);
    f->numbers = numbers;
    if (numbers == PEAK_BF16) f->work.bytes /= 2;
    if (f->timing.median <= 0) continue; /* there is no such phase */
    const double gflops = f->work.flops / f->timing.median / 1e9, gigabytes = f->work.bytes / f->timing.median / 1e9;
    const double limit = 100 * limit_share(run, f);
    if (!run->list) {
      printf("  %-18s %-9s %10.4f %10.4f %6.1f %10.1f %10.1f %8.1f\n", which->name, phases[phase], 1e3 * f->timing.median,
             1e3 * f->timing.min, 100 * f->timing.spread, gflops, gigabytes, limit);
      continue;
    }
    json_t *object = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f}", "name", which->name, "numbers", bench_peak_numbers_name(f->numbers),
                               "phase", phases[phase], "gflop_per_second", gflops, "gb_per_second", gigabytes, "limit_percent", limit);
    if (object) bench_timing_json(&f->timing, object);
    json_build_append(&run->list, object);
  }
}

static void print_head(const OpRun *run) {
  const OpSizes *s = &run->command->sizes;
  bench_peak_print(&run->peak);
  printf("sizes:   %lld row%s of %lld, %lld output%s, ", (long long)s->rows, text_plural(s->rows), (long long)s->width,
         (long long)s->outputs, text_plural(s->outputs));
  if (run->command->uses & USES_TOKENS) printf("%lld token%s per sample, ", (long long)s->tokens, text_plural(s->tokens));
  if (run->command->uses & USES_HEADS) printf("%lld head%s%s, ", (long long)s->heads, text_plural(s->heads), s->causal ? " (causal)" : "");
  printf("%lld group%s of %lld codewords, vocabulary %lld\n", (long long)s->groups, text_plural(s->groups), (long long)s->entries,
         (long long)s->vocabulary);
  printf("%-30s %10s %10s %6s %10s %10s %8s\n", "operation", "ms, median", "ms, min", "+-%", "GFLOP/s", "GB/s", "% limit");
}

static Status print_json(OpRun *run) {
  const OpSizes *s = &run->command->sizes;
  json_t *object =
      json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "rows", (json_int_t)s->rows, "width", (json_int_t)s->width, "outputs",
                (json_int_t)s->outputs, "tokens", (json_int_t)s->tokens, "heads", (json_int_t)s->heads, "groups", (json_int_t)s->groups,
                "entries", (json_int_t)s->entries, "vocabulary", (json_int_t)s->vocabulary, "causal", s->causal);
  if (object) bench_peak_json(&run->peak, object);
  json_build_put(&object, "operations", run->list);
  run->list = NULL;
  return json_build_print(object);
}

/* ---------------------------------------------------------------- the command */

static bool names_case(const char *names, const char *name) {
  size_t length = strlen(name);
  for (const char *at = names; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, name, length) == 0 && (at[length] == '\0' || at[length] == ',')) return true;
  return strcmp(names, "all") == 0;
}

static Status check_names(const char *names) {
  char known[NAMES_TEXT] = "all";
  size_t used = strlen(known);
  int64_t wanted = 1, found = 0;
  for (const OpCase *which = OP_CASES; which->name; which++) {
    used += (size_t)snprintf(known + used, sizeof known - used, ", %s", which->name);
    found += names_case(names, which->name);
  }
  for (const char *at = names; (at = strchr(at, ',')) != NULL; at++) wanted++;
  if (strcmp(names, "all") == 0 || found == wanted) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--op %s: accepted are %s, several with commas between", names, known);
}

/* What the chosen operations use. Samples and heads that none of them has become one of a row each, which goes with all other sizes: the
 * defaults are those of all operations. */
static int choose_sizes(const char *names, OpSizes *sizes) {
  int uses = 0;
  for (const OpCase *which = OP_CASES; which->name; which++) uses |= names_case(names, which->name) ? which->uses : 0;
  if (!(uses & USES_TOKENS)) sizes->tokens = 1;
  if (!(uses & USES_HEADS)) sizes->heads = 1;
  return uses;
}

static Status open_run(OpRun *run) {
  run->arena = arena_new(ARENA_BYTES);
  Tape *tape = run->arena ? tape_new(run->arena) : NULL;
  for (int phase = TAPE_FORWARD; phase <= TAPE_BACKWARD; phase++)
    run->seconds[phase] = calloc((size_t)run->command->repeats, sizeof(double));
  if (!tape || !run->seconds[TAPE_FORWARD] || !run->seconds[TAPE_BACKWARD]) {
    tape_free(tape);
    return status_no_memory(NULL, "the operations");
  }
  run->bench.tape = tape;
  return bench_op_open(&run->bench, &run->command->sizes, run->command->uses, (uint64_t)run->command->run.seed, tape,
                       in_bf16(run->command));
}

static Status measure(OpRun *run) {
  const OpCommand *command = run->command;
  TRY(open_run(run));
  TRY(bench_peak_memory(&run->peak));
  TRY(bench_peak_measure(&run->peak));
  if (command->run.json && (run->list = json_array()) == NULL) return status_no_memory(NULL, "JSON");
  if (!command->run.json) print_head(run);
  for (const OpCase *which = OP_CASES; which->name; which++) {
    if (!names_case(command->names, which->name)) continue;
    TRY(measure_case(run, which));
    report_case(run, which);
  }
  return command->run.json ? print_json(run) : STATUS_OK;
}

static Status run_op(int argc, char **argv) {
  OpCommand c = {
      .names = "all",
      .sizes = {.rows = 1576, .width = 768, .outputs = 3072, .tokens = 197, .heads = 12, .entries = 1024, .groups = 32, .vocabulary = 4096},
      .repeats = 9,
      .warm_up = 1};
  OpSizes *s = &c.sizes;
  const Option own[] = {
      {OPTION_GROUP, .help = "What to run"},
      {OPTION_TEXT, "op", 0, &c.names, "NAMES", .help = "operations, separated by commas: linear, attention, layer-norm, ..., or all"},
      {OPTION_INT, "rows", 0, &s->rows, "M", .min = 1, .max = MAX_SIZE, .help = "rows of the input (of 8 images of ViT-Base)"},
      {OPTION_INT, "width", 0, &s->width, "D", .min = 2, .max = 65536, .help = "width of a row"},
      {OPTION_INT, "outputs", 0, &s->outputs, "N", .min = 1, .max = MAX_SIZE, .help = "output width of a matrix"},
      {OPTION_INT, "tokens", 0, &s->tokens, "N", .min = 1, .max = MAX_SIZE, .help = "tokens per sample"},
      {OPTION_INT, "heads", 0, &s->heads, "N", .min = 1, .max = 4096, .help = "attention heads"},
      {OPTION_FLAG, "causal", 0, &s->causal, .help = "causal attention"},
      {OPTION_INT, "entries", 'k', &s->entries, "K", .min = CODEBOOK_MIN, .max = CODEBOOK_MAX, .help = "codewords per group"},
      {OPTION_INT, "groups", 'g', &s->groups, "G", .min = 1, .max = 65536, .help = "groups per codebook"},
      {OPTION_INT, "vocabulary", 0, &s->vocabulary, "V", .min = 2, .max = MAX_SIZE, .help = "rows of the token table"},
      {OPTION_CHOICE, "precision", 0, &c.precision, .choices = "fp32|bf16|auto", .help = "precision of operations and activations"},
      {OPTION_GROUP, .help = "Measuring"},
      {OPTION_INT, "repeats", 0, &c.repeats, "N", .min = 1, .max = BENCH_REPEATS_MAX, .help = "measured calls of each operation"},
      {OPTION_INT, "warm-up", 0, &c.warm_up, "N", .min = 0, .max = BENCH_REPEATS_MAX, .help = "unmeasured calls before them"},
      {.kind = OPTION_GROUP}};
  bool helped;
  TRY(bench_run_parse(&c.run, NULL, own, &USAGE, argc, argv, &helped));
  if (helped) return STATUS_OK;
  TRY(check_names(c.names));
  c.uses = choose_sizes(c.names, s);
  TRY(bench_run_start(&c.run));
  OpRun run = {.command = &c};
  Status status = measure(&run);
  for (int phase = TAPE_FORWARD; phase <= TAPE_BACKWARD; phase++) free(run.seconds[phase]);
  tape_free(run.bench.tape);
  arena_free(run.arena);
  bench_op_close(&run.bench);
  json_decref(run.list);
  threads_stop();
  return status;
}

const CliCommand bench_op_command = {"op", "time each operation by itself", run_op};
