/* Operations on a tape that uses bf16 against the same in full width: values and gradients differ by roundings alone, gradients of
 * parameters and what goes along the residual are in full width. */
#include "autograd/kernels/matmul.h"
#include "autograd/ops/ops.h"
#include "autograd/param.h"
#include "base/rng.h"
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, ROWS = 40, WIDTH = 48, HIDDEN = 96, WORDS = 70, GROUPS = 8, ENTRIES = 16 };

typedef struct Net {
  ParamSet params;
  int up, up_bias, down, down_bias, norm, norm_bias, table;
  real *x;
} Net;

static void net_init(Net *net) {
  Rng rng;
  *net = (Net){0};
  net->up = param_add(&net->params, PARAM_NORMAL, true, 2, (int64_t[]){HIDDEN, WIDTH}, "up");
  net->up_bias = param_add(&net->params, PARAM_NORMAL, false, 1, (int64_t[]){HIDDEN}, "up.bias");
  net->down = param_add(&net->params, PARAM_NORMAL, true, 2, (int64_t[]){HIDDEN, WIDTH}, "down"); /* transposed */
  net->down_bias = param_add(&net->params, PARAM_NORMAL, false, 1, (int64_t[]){WIDTH}, "down.bias");
  net->norm = param_add(&net->params, PARAM_ONES, false, 1, (int64_t[]){WIDTH}, "norm");
  net->norm_bias = param_add(&net->params, PARAM_ZEROS, false, 1, (int64_t[]){WIDTH}, "norm.bias");
  net->table = param_add(&net->params, PARAM_NORMAL, false, 2, (int64_t[]){WORDS, WIDTH}, "table");
  net->params.list[net->up].narrow = net->params.list[net->down].narrow = net->params.list[net->table].narrow = true;
  assert_int_equal(param_allocate(&net->params, true), STATUS_OK);
  rng_init(&rng, 5, 1);
  param_initialise(&net->params, &rng);
  for (int64_t i = 0; i < net->params.total; i++) net->params.values[i] *= 10;
  net->x = malloc(BATCH * ROWS * WIDTH * sizeof *net->x);
  assert_non_null(net->x);
  for (int i = 0; i < BATCH * ROWS * WIDTH; i++) net->x[i] = (real)rng_normal(&rng);
}

static Tensor *param(Net *net, int index) { return &net->params.list[index].tensor; }

typedef struct Result {
  double loss;
  real *dx, *grads;
  size_t peak;
  bool narrow; /* what is between operations */
} Result;

/* norm, up with GELU, half of the rows gathered, SwiGLU of the two halves, down with a residual, next-token loss. */
static Tensor *run(Net *net, Tape *tape, Tensor *x, bool *narrow) {
  static int32_t rows[ROWS], labels[BATCH * ROWS];
  for (int i = 0; i < ROWS; i++) rows[i] = ROWS - 1 - i;
  for (int i = 0; i < BATCH * ROWS; i++) labels[i] = i * 7 % WORDS;
  tape_narrow(tape, true);
  Tensor *h = op_layer_norm(tape, x, param(net, net->norm), param(net, net->norm_bias), 1e-5);
  h = op_gather_rows(tape, h, rows, ROWS);
  Tensor *gate = op_linear(tape, h, param(net, net->up), param(net, net->up_bias), ACTIVATION_GELU, NULL);
  Tensor *up = op_linear(tape, h, param(net, net->up), param(net, net->up_bias), ACTIVATION_NONE, NULL);
  Tensor *both = op_swiglu(tape, gate, op_activate(tape, up, ACTIVATION_GELU_TANH));
  assert_int_equal(tape_status(tape), STATUS_OK);
  *narrow = h->narrow && gate->narrow && up->narrow && both->narrow && !h->value;
  const LinearPart part = {0, WIDTH, true};
  Tensor *y = op_linear_part(tape, both, param(net, net->down), param(net, net->down_bias), &part, ACTIVATION_NONE, x);
  assert_non_null(y->value); /* the residual stream */
  tape_narrow(tape, false);
  return op_vocab_loss(tape, y, param(net, net->table), &(VocabLoss){.labels = labels});
}

static Result compute(Net *net, bool bf16) {
  Result result = {0};
  Arena *arena = arena_new((size_t)1 << 30);
  Tape *tape = tape_new(arena);
  assert_non_null(tape);
  tape_use_bf16(tape, bf16);
  tape_record(tape, true);
  for (size_t i = 0; i < net->params.count; i++) net->params.list[i].tensor.grad_filled = false;
  Tensor *x = tape_constant(tape, 3, (int64_t[]){BATCH, ROWS, WIDTH}, net->x);
  x->needs_grad = true;
  Tensor *loss = run(net, tape, x, &result.narrow);
  result.loss = (double)loss->value[0];
  assert_int_equal(tape_backward(tape, loss), STATUS_OK);
  const size_t bytes = (size_t)net->params.total * sizeof(real);
  result.dx = malloc(BATCH * ROWS * WIDTH * sizeof(real));
  result.grads = malloc(bytes);
  assert_true(result.dx && result.grads && x->grad);
  memcpy(result.dx, x->grad, BATCH * ROWS * WIDTH * sizeof(real));
  memcpy(result.grads, net->params.grads, bytes);
  result.peak = tape_peak_bytes(tape);
  tape_free(tape);
  arena_free(arena);
  return result;
}

static double size_of(const real *a, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += (double)a[i] * (double)a[i];
  return sqrt(sum);
}

static double distance(const real *a, const real *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
  return sqrt(sum);
}

/* A rounding is at most 2^-9 of a number, 2^-9 / sqrt(3) on the mean square; a handful of them lie on each way. */
static void assert_rounded(const real *got, const real *want, int64_t count, const char *what) {
  const double size = size_of(want, count), off = distance(got, want, count);
  assert_true(size > 0);
  if (!(off <= size / 100)) fail_msg("%s: %g of %g", what, off, size);
}

static void check_against_full_width(void) {
  Net net;
  net_init(&net);
  Result full = compute(&net, false);
  assert_false(full.narrow);
  assert_int_equal(param_make_shadows(&net.params), STATUS_OK);
  Result bf16 = compute(&net, true);
  assert_true(bf16.narrow);
  assert_true(fabs(bf16.loss - full.loss) < 2e-3 * full.loss);
  assert_true(bf16.loss != full.loss); /* it is something else that ran */
  assert_rounded(bf16.dx, full.dx, BATCH * ROWS * WIDTH, "dx");
  for (size_t i = 0; i < net.params.count; i++) {
    const int64_t at = param_offset(&net.params, i);
    assert_rounded(bf16.grads + at, full.grads + at, tensor_count(&net.params.list[i].tensor), net.params.list[i].name);
  }
  free(full.dx), free(full.grads), free(bf16.dx), free(bf16.grads), free(net.x);
  param_release(&net.params);
}

static void bf16_differs_by_roundings(void **state) {
  (void)state;
  assert_int_equal(matmul_choose_backend("openblas"), STATUS_OK);
  check_against_full_width();
  assert_int_equal(matmul_choose_backend("auto"), STATUS_OK);
  check_against_full_width();
}

/* Without a shadow the weight is rounded each time: the same bits. A changed weight needs its shadow refreshed. */
static void shadows_follow_the_values(void **state) {
  (void)state;
  Net net;
  net_init(&net);
  assert_int_equal(param_make_shadows(&net.params), STATUS_OK);
  Tensor *up = param(&net, net.up);
  assert_int_equal(up->shadow[3], narrow_bfloat((float)up->value[3]));
  up->value[3] = 2.5;
  param_refresh_shadows(&net.params, false);
  assert_int_equal(up->shadow[3], narrow_bfloat(2.5f));
  assert_null(param(&net, net.up_bias)->shadow);
  Result with = compute(&net, true);
  for (size_t i = 0; i < net.params.count; i++) net.params.list[i].tensor.shadow = NULL;
  param(&net, net.table)->shadow = net.params.shadows + param_padded(&net.params.list[net.up]) + param_padded(&net.params.list[net.down]);
  Result without = compute(&net, true); /* x is narrow, so products are in bf16 all the same */
  assert_true(with.loss == without.loss);
  assert_memory_equal(with.grads, without.grads, (size_t)net.params.total * sizeof(real));
  free(with.dx), free(with.grads), free(without.dx), free(without.grads), free(net.x);
  param_release(&net.params);
}

/* Next-token loss of quantised rows of x, in bf16 where the tape is narrow, and their commitment: d x. The table has no shadow. */
static void quantised_gradient(Net *net, bool narrow, real *y, real *dx) {
  static int32_t codes[BATCH * ROWS * GROUPS], rows[ROWS], labels[BATCH * ROWS];
  for (int i = 0; i < BATCH * ROWS * GROUPS; i++) codes[i] = i * 5 % ENTRIES;
  for (int i = 0; i < ROWS; i++) rows[i] = ROWS - 1 - i;
  Arena *arena = arena_new((size_t)1 << 30);
  Tape *tape = tape_new(arena);
  assert_non_null(tape);
  tape_use_bf16(tape, true);
  tape_record(tape, true);
  tape_narrow(tape, narrow);
  Tensor *x = tape_activation(tape, 3, (int64_t[]){BATCH, ROWS, WIDTH}), *commitment;
  for (int i = 0; i < BATCH * ROWS * WIDTH; i++)
    if (narrow)
      x->narrow[i] = narrow_bfloat((float)net->x[i]);
    else
      x->value[i] = (real)narrow_bfloat_to_float(narrow_bfloat((float)net->x[i]));
  x->needs_grad = true;
  Tensor *shared = op_gather_rows_wide(tape, x, rows, ROWS);
  assert_non_null(shared->value); /* codes and sums are those of what is in full width */
  const Quantise options = {.codebook = net->params.values, .groups = GROUPS, .entries = ENTRIES, .codes = codes};
  Tensor *tokens = op_quantise(tape, shared, &options, &commitment);
  assert_true((tokens->narrow != NULL) == narrow);
  tensor_read(tokens, 0, BATCH * ROWS * WIDTH, y);
  Tensor *loss = op_vocab_loss(tape, tokens, param(net, net->table), &(VocabLoss){.labels = labels});
  assert_int_equal(tape_backward(tape, op_add_scaled(tape, loss, commitment, 0.01)), STATUS_OK);
  const Numbers grad = tensor_grad(x);
  const real *wide = numbers_read(grad, 0, BATCH * ROWS * WIDTH, dx);
  if (wide != dx) memcpy(dx, wide, BATCH * ROWS * WIDTH * sizeof *dx);
  tape_free(tape);
  arena_free(arena);
}

static void quantised_tokens_are_rounded(void **state) {
  (void)state;
  enum { COUNT = BATCH * ROWS * WIDTH };
  static real full_y[COUNT], full_dx[COUNT], y[COUNT], dx[COUNT];
  Net net;
  net_init(&net);
  quantised_gradient(&net, false, full_y, full_dx);
  quantised_gradient(&net, true, y, dx);
  for (int i = 0; i < COUNT; i++) assert_true(y[i] == (real)narrow_bfloat_to_float(narrow_bfloat((float)full_y[i])));
  assert_rounded(dx, full_dx, COUNT, "dx of quantised tokens");
  free(net.x);
  param_release(&net.params);
}

typedef enum InFull { LINEAR, DROP_PATH, MEAN_REPLICAS, CROSS_ENTROPY, OPERATIONS } InFull;

/* An operation that computes in full width, on x [BATCH, ROWS, WIDTH] and a weight [WIDTH, WIDTH]. */
static Tensor *operation_in_full(Tape *tape, InFull operation, Tensor *x, Tensor *weight) {
  static const real scale[BATCH] = {0, 2};
  static const int32_t labels[BATCH * ROWS] = {1, -1, 5};
  if (operation == LINEAR) return op_linear(tape, x, weight, NULL, ACTIVATION_NONE, x);
  if (operation == DROP_PATH) return op_drop_path(tape, x, x, scale);
  if (operation == MEAN_REPLICAS) return op_mean_replicas(tape, x, NULL);
  return op_cross_entropy(tape, x, &(CrossEntropy){.labels = labels});
}

/* What computes in full width takes inputs in bf16, widened. */
static void inputs_in_bf16_are_widened(void **state) {
  (void)state;
  Net net;
  net_init(&net);
  for (int operation = 0; operation < OPERATIONS; operation++) {
    Arena *arena = arena_new((size_t)4 << 20);
    Tape *tape = tape_new(arena);
    assert_non_null(tape);
    tape_use_bf16(tape, true);
    tape_record(tape, true);
    tape_narrow(tape, true);
    Tensor *x = tape_activation(tape, 3, (int64_t[]){BATCH, ROWS, WIDTH});
    kernels()->narrow(BATCH * ROWS * WIDTH, net.x, x->narrow);
    x->needs_grad = true;
    Tensor *weight = tape_constant(tape, 2, (int64_t[]){WIDTH, WIDTH}, net.x);
    weight->shadow = x->narrow; /* the same numbers: the product is in bf16, whatever x is in */
    Tensor *have = operation_in_full(tape, (InFull)operation, x, weight);
    const Tensor *want = operation_in_full(tape, (InFull)operation, op_widen(tape, x), weight);
    assert_true(have != NULL && want != NULL && have->value != NULL);
    assert_memory_equal(have->value, want->value, (size_t)tensor_count(want) * sizeof(real));
    if (operation == CROSS_ENTROPY) assert_int_equal(tape_backward(tape, have), STATUS_OK);
    if (operation == CROSS_ENTROPY) assert_non_null(x->narrow_grad);
    tape_free(tape);
    arena_free(arena);
  }
  free(net.x);
  param_release(&net.params);
}

/* An operation that knows reals alone must not get an array of half the size. */
static void full_gradients_of_bf16_are_refused(void **state) {
  (void)state;
  bool add;
  Arena *arena = arena_new((size_t)1 << 20);
  Tape *tape = tape_new(arena);
  assert_non_null(tape);
  tape_use_bf16(tape, true);
  tape_narrow(tape, true);
  Tensor *x = tape_activation(tape, 1, (int64_t[]){WIDTH});
  x->needs_grad = true;
  assert_null(tape_grad(tape, x, &add));
  assert_int_equal(tape_status(tape), STATUS_BAD_VALUE);
  tape_free(tape);
  arena_free(arena);
}

/* Logits, probabilities and their gradient, rounded, are one array. */
static void logits_are_in_memory_once(void **state) {
  (void)state;
  enum { COUNT = 128, TABLE = 4000, SMALL = 16 };
  static int32_t labels[COUNT];
  ParamSet params = {0};
  Rng rng;
  int index = param_add(&params, PARAM_NORMAL, false, 2, (int64_t[]){TABLE, SMALL}, "table");
  params.list[index].narrow = true;
  assert_int_equal(param_allocate(&params, true), STATUS_OK);
  rng_init(&rng, 5, 1);
  param_initialise(&params, &rng);
  assert_int_equal(param_make_shadows(&params), STATUS_OK);
  Arena *arena = arena_new((size_t)1 << 30);
  Tape *tape = tape_new(arena);
  assert_non_null(tape);
  tape_use_bf16(tape, true);
  tape_record(tape, true);
  Tensor *x = tape_tensor(tape, 2, (int64_t[]){COUNT, SMALL});
  for (int i = 0; i < COUNT * SMALL; i++) x->value[i] = (real)rng_normal(&rng);
  x->needs_grad = true;
  Tensor *loss = op_vocab_loss(tape, x, &params.list[index].tensor, &(VocabLoss){.labels = labels});
  assert_int_equal(tape_backward(tape, loss), STATUS_OK);
  const size_t logits = COUNT * TABLE * sizeof(real), table = TABLE * SMALL * sizeof(real);
  assert_true(tape_peak_bytes(tape) < logits + table + logits / 8);
  tape_free(tape);
  arena_free(arena);
  param_release(&params);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bf16_differs_by_roundings),    cmocka_unit_test(shadows_follow_the_values),
                                     cmocka_unit_test(quantised_tokens_are_rounded), cmocka_unit_test(full_gradients_of_bf16_are_refused),
                                     cmocka_unit_test(inputs_in_bf16_are_widened),   cmocka_unit_test(logits_are_in_memory_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
