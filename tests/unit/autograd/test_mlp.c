/* op_mlp: the bits of the two linear maps that it stands for, in values and gradients, in less memory. */
#include "unit/autograd/tape_fixture.h"

enum { ROWS = 40, IN = 24, HIDDEN = 96, LAYERS = 5 };

typedef struct Case {
  Activation activation;
  bool transposed, residual, bias, bf16;
} Case;

static Tensor *two_maps(Tape *tape, Tensor *x, const LinearMap *up, Activation activation, const LinearMap *down, Tensor *residual) {
  Tensor *hidden = op_linear_part(tape, x, up->weight, up->bias, up->part, activation, NULL);
  return op_linear_part(tape, hidden, down->weight, down->bias, down->part, ACTIVATION_NONE, residual);
}

/* LAYERS times the same weights, so that gradients add up. Returns the most bytes that the tape took. */
static size_t run(const Case *c, bool fused, bool recording, bool planning, real *values, real *gradients) {
  Fixture fixture;
  fixture_open(&fixture, 5);
  Tape *tape = fixture.tape;
  Tensor *x = fixture_leaf(&fixture, true, 2, ROWS / 2, IN, 0);
  Tensor *up = fixture_leaf(&fixture, true, c->transposed ? IN : HIDDEN, c->transposed ? HIDDEN : IN, 0, 0);
  Tensor *down = fixture_leaf(&fixture, true, c->transposed ? HIDDEN : IN, c->transposed ? IN : HIDDEN, 0, 0);
  Tensor *up_bias = fixture_leaf(&fixture, true, HIDDEN, 0, 0, 0), *down_bias = fixture_leaf(&fixture, true, IN, 0, 0, 0);
  for (int64_t i = 0; i < IN * HIDDEN; i++) up->value[i] *= (real)0.1, down->value[i] *= (real)0.1;
  tape_record(tape, recording);
  tape_plan(tape, planning);
  tape_use_bf16(tape, c->bf16);
  tape_narrow(tape, true);
  const LinearPart up_part = {.count = HIDDEN, .transposed = c->transposed}, down_part = {.count = IN, .transposed = c->transposed};
  const LinearMap first = {up, c->bias ? up_bias : NULL, &up_part}, second = {down, c->bias ? down_bias : NULL, &down_part};
  Tensor *y = x;
  for (int i = 0; i < LAYERS; i++) {
    Tensor *residual = c->residual || c->bf16 ? y : NULL; /* with a residual the output is in full width */
    y = (fused ? op_mlp : two_maps)(tape, y, &first, c->activation, &second, residual);
  }
  Tensor *loss = planning ? op_mean_replicas(tape, y, NULL) : weigh(tape, y);
  assert_int_equal(tape_status(tape), STATUS_OK);
  if (values != NULL) memcpy(values, y->value, (size_t)tensor_count(y) * sizeof(real));
  if (gradients != NULL) {
    assert_int_equal(tape_backward(tape, loss), STATUS_OK);
    for (int i = 0; i < fixture.leaves; i++) {
      const Tensor *leaf = &fixture.leaf[i];
      if (leaf->grad == NULL) continue;
      memcpy(gradients, leaf->grad, (size_t)tensor_count(leaf) * sizeof(real));
      gradients += tensor_count(leaf);
    }
  }
  size_t peak = tape_peak_bytes(tape);
  fixture_close(&fixture);
  return peak;
}

static void the_same_bits_in_less_memory(void **state) {
  (void)state;
  enum { GRADIENTS = ROWS * IN + 2 * IN * HIDDEN + HIDDEN + IN };
  static real values[2][ROWS * IN], gradients[2][GRADIENTS];
  for (int number = 0; number < 32; number++) {
    const Case c = {.activation = number & 1 ? ACTIVATION_GELU : ACTIVATION_GELU_TANH,
                    .transposed = number & 2,
                    .residual = number & 4,
                    .bias = number & 8,
                    .bf16 = number & 16};
    memset(gradients, 0, sizeof gradients);
    size_t apart = run(&c, false, true, false, values[0], gradients[0]), fused = run(&c, true, true, false, values[1], gradients[1]);
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    assert_memory_equal(gradients[0], gradients[1], sizeof gradients[0]);
    size_t hidden = ROWS * HIDDEN * (c.bf16 && !REAL_IS_DOUBLE ? sizeof(uint16_t) : sizeof(real));
    assert_true(fused + (LAYERS - 2) * hidden <= apart);
    run(&c, false, false, false, values[0], NULL);
    run(&c, true, false, false, values[1], NULL);
    assert_memory_equal(values[0], values[1], sizeof values[0]);
  }
}

static void shapes_are_checked(void **state) {
  (void)state;
  Fixture fixture;
  fixture_open(&fixture, 5);
  Tensor *x = fixture_leaf(&fixture, true, 3, 4, 0, 0), *up = fixture_leaf(&fixture, true, 8, 4, 0, 0);
  Tensor *down = fixture_leaf(&fixture, true, 4, 7, 0, 0);
  const LinearPart eight = {.count = 8}, four = {.count = 4};
  const LinearMap first = {up, NULL, &eight}, second = {down, NULL, &four};
  assert_null(op_mlp(fixture.tape, x, &first, ACTIVATION_GELU, &second, NULL));
  assert_int_equal(tape_status(fixture.tape), STATUS_BAD_VALUE);
  fixture_clear(&fixture);
  assert_null(op_mlp(fixture.tape, x, &first, ACTIVATION_NONE, &first, NULL));
  assert_int_equal(tape_status(fixture.tape), STATUS_BAD_VALUE);
  fixture_close(&fixture);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_same_bits_in_less_memory),
      cmocka_unit_test(shapes_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
