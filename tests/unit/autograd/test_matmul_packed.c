/* Products with packed weights: against sums in double, and operations with packed weights against the same with plain ones. */
#include "autograd/kernels/matmul.h"
#include "autograd/param.h"
#include "base/threads.h"
#include "tape_fixture.h"
#include <stdio.h>

typedef struct Case {
  int64_t rows, outputs, inputs;
  bool bf16, transposed, bias, add, narrow; /* narrow: C in bf16 */
  int64_t first_output, first_input;        /* of the part that is multiplied, which is all from there on */
} Case;

static double rounded(bool bf16, real number) {
  return bf16 ? (double)narrow_bfloat_to_float(narrow_bfloat((float)number)) : (double)number;
}

static real *random_reals(int64_t count, Rng *rng) {
  real *numbers = malloc((size_t)(count > 0 ? count : 1) * sizeof *numbers);
  assert_non_null(numbers);
  for (int64_t i = 0; i < count; i++) numbers[i] = (real)rng_normal(rng);
  return numbers;
}

static uint16_t *in_bf16(const real *numbers, int64_t count) {
  uint16_t *narrow = malloc((size_t)(count > 0 ? count : 1) * sizeof *narrow);
  assert_non_null(narrow);
  for (int64_t i = 0; i < count; i++) narrow[i] = narrow_bfloat((float)numbers[i]);
  return narrow;
}

typedef struct Calls {
  int64_t before, after; /* numbers of C that were announced */
} Calls;

static void count_before(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  (void)row, (void)column;
  __atomic_fetch_add(&((Calls *)context)->before, rows * columns, __ATOMIC_RELAXED);
}

static void count_after(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  (void)row, (void)column;
  __atomic_fetch_add(&((Calls *)context)->after, rows * columns, __ATOMIC_RELAXED);
}

static void check(const Case *c) {
  enum { BEHIND = 70 }; /* numbers behind C, which stay */
  const int64_t n = c->outputs - c->first_output, k = c->inputs - c->first_input, count = c->rows * n + BEHIND;
  Rng rng;
  rng_init(&rng, 3, (uint64_t)(c->rows * 1000 + c->inputs));
  real *weight = random_reals(c->outputs * c->inputs, &rng), *x = random_reals(c->rows * k, &rng), *bias = random_reals(n, &rng);
  real *start = random_reals(count, &rng), *wide = malloc((size_t)count * sizeof *wide);
  uint16_t *narrow_x = in_bf16(x, c->rows * k), *narrow = in_bf16(start, count);
  PackedMatrix matrix = {.outputs = c->outputs, .inputs = c->inputs, .bf16 = c->bf16};
  matrix.words = malloc(matmul_packed_bytes(&matrix));
  assert_true(wide && matrix.words);
  memcpy(wide, start, (size_t)count * sizeof *wide);
  matmul_pack(&matrix, weight, NARROW_NONE, c->transposed);
  Calls calls = {0, 0};
  matmul_packed(&(MatmulPacked){.weight = &matrix,
                                .first_output = c->first_output,
                                .outputs = n,
                                .first_input = c->first_input,
                                .inputs = k,
                                .rows = c->rows,
                                .x = c->bf16 ? (const void *)narrow_x : x,
                                .bias = c->bias ? bias : NULL,
                                .add = c->add,
                                .c = c->narrow ? (Numbers){.narrow = narrow} : (Numbers){.wide = wide},
                                .before = count_before,
                                .after = count_after,
                                .context = &calls});
  assert_int_equal(calls.before, c->rows * n);
  assert_int_equal(calls.after, c->rows * n);
  for (int64_t at = 0; at < count; at++) {
    const double found = c->narrow ? (double)narrow_bfloat_to_float(narrow[at]) : (double)wide[at];
    const int64_t row = at / n, output = at % n;
    double sum = row >= c->rows ? rounded(c->narrow, start[at]) : c->add ? (double)start[at] : c->bias ? (double)bias[output] : 0;
    double size = fabs(sum);
    for (int64_t i = 0; row < c->rows && i < k; i++) {
      const int64_t o = output + c->first_output, in = i + c->first_input;
      const double product =
          rounded(c->bf16, x[row * k + i]) * rounded(c->bf16, weight[c->transposed ? in * c->outputs + o : o * c->inputs + in]);
      sum += product, size += fabs(product);
    }
    const double allowed = row >= c->rows ? 0 : size * 1e-6 + (c->narrow ? fabs(sum) / 256 : 0);
    if (!(fabs(found - sum) <= allowed))
      fail_msg("%lld x [%lld, %lld]%s at %lld: %g instead of %g", (long long)c->rows, (long long)c->outputs, (long long)c->inputs,
               c->bf16 ? " in bf16" : "", (long long)at, found, sum);
  }
  free(weight), free(x), free(bias), free(start), free(wide), free(narrow_x), free(narrow), free(matrix.words);
}

static void require_packing(bool bf16) {
  if (matmul_packed_bytes(&(PackedMatrix){.outputs = 64, .inputs = 2, .bf16 = bf16}) > 0) return;
  printf("skipped: this processor, build or backend multiplies plain weights%s\n", bf16 ? " in bf16" : "");
  skip();
}

static void check_all(bool bf16) {
  static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 13, 263}, outputs[] = {1, 64, 170}, inputs[] = {2, 770, 1600};
  require_packing(bf16);
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++)
      for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        const int form = (int)(r + o + i) % 3; /* nothing, a bias, added to what is there */
        check(&(Case){.rows = rows[r],
                      .outputs = outputs[o],
                      .inputs = inputs[i],
                      .bf16 = bf16,
                      .transposed = (r + i) % 2,
                      .bias = form == 1,
                      .add = form == 2,
                      .narrow = bf16 && form < 2});
      }
  check(&(Case){.rows = 50, .outputs = 200, .inputs = 130, .bf16 = bf16, .first_output = 128, .first_input = 34, .bias = true});
  check(&(Case){.rows = 7, .outputs = 128, .inputs = 96, .bf16 = bf16, .first_output = 64, .first_input = 2, .transposed = true});
}

static void floats_are_multiplied(void **state) {
  (void)state;
  check_all(false);
}

static void bf16_is_multiplied(void **state) {
  (void)state;
  check_all(true);
}

static void threads_share_the_work(void **state) {
  (void)state;
  require_packing(false);
  for (int threads = 2; threads <= 5; threads += 3) {
    assert_int_equal(threads_start(threads), STATUS_OK);
    check(&(Case){.rows = 197, .outputs = 100, .inputs = 96, .bias = true}); /* few strips: rows are cut */
    check(&(Case){.rows = 40, .outputs = 700, .inputs = 96, .add = true});
    threads_stop();
  }
}

/* Halves are packed as the floats that they stand for, by parts: 200 inputs and 100 outputs are no multiple of any of them. */
static void halves_are_packed(void **state) {
  (void)state;
  enum { OUTPUTS = 100, INPUTS = 200 };
  static uint16_t halves[OUTPUTS * INPUTS];
  static real wide[OUTPUTS * INPUTS];
  require_packing(true);
  Rng rng;
  rng_init(&rng, 5, 0);
  for (int i = 0; i < OUTPUTS * INPUTS; i++) {
    halves[i] = narrow_half((float)rng_normal(&rng));
    wide[i] = (real)narrow_to_float(NARROW_F16, halves[i]);
  }
  for (int transposed = 0; transposed < 2; transposed++) {
    PackedMatrix matrix = {.outputs = OUTPUTS, .inputs = INPUTS, .bf16 = true};
    const size_t bytes = matmul_packed_bytes(&matrix);
    uint32_t *expected = matrix.words = malloc(bytes);
    assert_non_null(expected);
    matmul_pack(&matrix, wide, NARROW_NONE, transposed == 1);
    matrix.words = malloc(bytes);
    assert_non_null(matrix.words);
    matmul_pack(&matrix, halves, NARROW_F16, transposed == 1);
    assert_memory_equal(matrix.words, expected, bytes);
    free(matrix.words), free(expected);
  }
}

/* ---- in operations */

enum { ROWS = 50, WIDTH = 128, HIDDEN = 256 };

typedef struct Net {
  Fixture fixture;
  ParamSet params;
  Tensor *x, *up, *up_bias, *down, *down_bias;
} Net;

static void add_param(Net *net, bool narrow, int dims, int64_t first, int64_t second) {
  const int index = param_add(&net->params, PARAM_NORMAL, false, dims, (int64_t[]){first, second}, "p%zu", net->params.count);
  assert_true(index >= 0);
  net->params.list[index].narrow = narrow;
}

static void open_net(Net *net, bool bf16) {
  *net = (Net){.params = {0}};
  fixture_open(&net->fixture, 8);
  tape_record(net->fixture.tape, false);
  tape_use_bf16(net->fixture.tape, bf16);
  add_param(net, true, 2, HIDDEN, WIDTH), add_param(net, false, 1, HIDDEN, 0);
  add_param(net, true, 2, HIDDEN, WIDTH), add_param(net, false, 1, WIDTH, 0); /* transposed */
  net->params.list[2].transposed = true;
  assert_int_equal(param_allocate(&net->params, false), STATUS_OK);
  fixture_randomise(&net->fixture, net->params.values, net->params.total);
  net->up = &net->params.list[0].tensor, net->up_bias = &net->params.list[1].tensor;
  net->down = &net->params.list[2].tensor, net->down_bias = &net->params.list[3].tensor;
  net->x = fixture_leaf(&net->fixture, false, 1, ROWS, WIDTH, 0);
}

/* An MLP with a residual, and the outputs of two heads of `up` alone; count numbers to y. */
static void compute(Net *net, real *y) {
  Tape *tape = net->fixture.tape;
  const LinearPart whole = {.count = HIDDEN}, back = {.count = WIDTH, .transposed = true}, part = {.first = 64, .count = 128};
  tape_clear(tape);
  tape_narrow(tape, true);
  Tensor *mlp = op_mlp(tape, net->x, &(LinearMap){net->up, net->up_bias, &whole}, ACTIVATION_GELU,
                       &(LinearMap){net->down, net->down_bias, &back}, net->x);
  Tensor *heads = op_linear_part(tape, net->x, net->up, net->up_bias, &part, ACTIVATION_NONE, NULL);
  tape_narrow(tape, false);
  assert_int_equal(tape_status(tape), STATUS_OK);
  tensor_read(mlp, 0, ROWS * WIDTH, y);
  tensor_read(heads, 0, ROWS * 128, y + ROWS * WIDTH);
}

static void operations_compute_the_same(bool bf16) {
  enum { COUNT = ROWS * (WIDTH + 128) };
  static real plain[COUNT], packed[COUNT];
  require_packing(bf16);
  Net net;
  open_net(&net, bf16);
  if (bf16) assert_int_equal(param_make_shadows(&net.params), STATUS_OK);
  compute(&net, plain);
  for (size_t i = 0; i < net.params.count; i++) assert_int_equal(param_pack(&net.params, i, bf16), STATUS_OK);
  assert_true(net.up->packed != NULL && net.down->packed != NULL && net.up_bias->packed == NULL);
  assert_int_equal(net.params.packed_bytes, 2 * HIDDEN * WIDTH * (bf16 ? 2 : 4));
  compute(&net, packed);
  double apart = 0, size = 0;
  for (int i = 0; i < COUNT; i++) {
    apart += (double)(packed[i] - plain[i]) * (double)(packed[i] - plain[i]);
    size += (double)plain[i] * (double)plain[i];
  }
  assert_true(size > 0);
  if (!(sqrt(apart / size) < (bf16 ? 2e-3 : 1e-6))) fail_msg("off by %.3g of the size", sqrt(apart / size));
  fixture_close(&net.fixture);
  param_release(&net.params);
}

static void operations_compute_the_same_in_full(void **state) {
  (void)state;
  operations_compute_the_same(false);
}

static void operations_compute_the_same_in_bf16(void **state) {
  (void)state;
  operations_compute_the_same(true);
}

/* What is packed has no shadow besides; what cannot be packed has one. */
static void packed_weights_take_the_place_of_shadows(void **state) {
  (void)state;
  require_packing(true);
  Net net;
  open_net(&net, true);
  assert_int_equal(param_pack(&net.params, 0, true), STATUS_OK);
  assert_int_equal(param_make_shadows(&net.params), STATUS_OK);
  assert_true(net.up->packed != NULL && net.up->shadow == NULL);
  assert_true(net.down->packed == NULL && net.down->shadow != NULL);
  fixture_close(&net.fixture);
  param_release(&net.params);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(floats_are_multiplied),
                                     cmocka_unit_test(bf16_is_multiplied),
                                     cmocka_unit_test(threads_share_the_work),
                                     cmocka_unit_test(halves_are_packed),
                                     cmocka_unit_test(operations_compute_the_same_in_full),
                                     cmocka_unit_test(operations_compute_the_same_in_bf16),
                                     cmocka_unit_test(packed_weights_take_the_place_of_shadows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
