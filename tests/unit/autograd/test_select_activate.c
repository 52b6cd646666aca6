/* op_select_rows and op_activate: values, gradients, refusals. */
#include "unit/autograd/gradcheck.h"
#include "unit/float_equal.h"

static Tensor *build_select(Fixture *fixture, const void *context, Tensor **second) {
  *second = op_add(fixture->tape, &fixture->leaf[0], &fixture->leaf[0]); /* a gradient is there already when the selected one arrives */
  return op_select_rows(fixture->tape, &fixture->leaf[0], context);
}

static Tensor *build_activate(Fixture *fixture, const void *context, Tensor **second) {
  (void)second;
  Tensor *x = op_add(fixture->tape, &fixture->leaf[0], &fixture->leaf[0]);
  return op_activate(fixture->tape, x, *(const Activation *)context);
}

static void select_rows(void **state) {
  (void)state;
  static const int32_t rows[] = {4, 0, 4};
  Fixture fixture;
  fixture_open(&fixture, 1);
  const Tensor *x = fixture_leaf(&fixture, true, 3, 5, 7, 0);
  const Tensor *y = op_select_rows(fixture.tape, &fixture.leaf[0], rows);
  assert_true(y->dims == 3 && y->shape[0] == 3 && y->shape[1] == 1 && y->shape[2] == 7);
  for (int b = 0; b < 3; b++) assert_memory_equal(y->value + b * 7, x->value + (b * 5 + rows[b]) * 7, 7 * sizeof(real));
  gradcheck(&fixture, "select_rows", build_select, rows);
  tape_clear(fixture.tape);
  assert_null(op_select_rows(fixture.tape, &fixture.leaf[0], (int32_t[]){0, 5, 0}));
  assert_non_null(strstr(status_message(), "row 5 of sample 1"));
  fixture_close(&fixture);
}

/* The same as on the way of a product with the identity. */
static void activate(void **state) {
  (void)state;
  static const Activation kinds[] = {ACTIVATION_GELU, ACTIVATION_GELU_TANH};
  for (int i = 0; i < 2; i++) {
    Fixture fixture;
    fixture_open(&fixture, 2);
    const Tensor *x = fixture_leaf(&fixture, true, 6, 5, 0, 0);
    Tensor *unit = fixture_leaf(&fixture, false, 5, 5, 0, 0);
    for (int j = 0; j < 25; j++) unit->value[j] = j % 6 == 0;
    const Tensor *y = op_activate(fixture.tape, &fixture.leaf[0], kinds[i]);
    const Tensor *want = op_linear(fixture.tape, &fixture.leaf[0], unit, NULL, kinds[i], NULL);
    for (int j = 0; j < 30; j++) assert_float_equal((double)y->value[j], (double)want->value[j], 1e-6);
    assert_ptr_equal(op_activate(fixture.tape, &fixture.leaf[0], ACTIVATION_NONE), x);
    gradcheck(&fixture, "activate", build_activate, &kinds[i]);
    fixture_close(&fixture);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(select_rows), cmocka_unit_test(activate)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
