/* Parameters: layout of the blocks, initial values, bad descriptions. */
#include "autograd/param.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

static ParamSet described(void) {
  ParamSet set = {0};
  assert_int_equal(param_add(&set, PARAM_NORMAL, true, 2, (const int64_t[]){1000, 37}, "layer.%d.weight", 3), 0);
  assert_int_equal(param_add(&set, PARAM_ZEROS, false, 1, (const int64_t[]){37}, "layer.%d.bias", 3), 1);
  assert_int_equal(param_add(&set, PARAM_ONES, false, 3, (const int64_t[]){1, 1, 16}, "norm"), 2);
  assert_int_equal(param_add(&set, PARAM_NORMAL, true, 2, (const int64_t[]){1000, 37}, "twin"), 3);
  return set;
}

static void test_layout(void **state) {
  (void)state;
  for (int grads = 0; grads < 2; grads++) {
    ParamSet set = described();
    assert_int_equal(param_allocate(&set, grads), STATUS_OK);
    assert_int_equal(param_count_numbers(&set), 2 * 37000 + 37 + 16);
    assert_int_equal(param_padded(&set.list[1]), 48);
    set.list[3].transposed = true;
    assert_true(param_outputs(&set.list[0]) == 1000 && param_inputs(&set.list[0]) == 37);
    assert_true(param_outputs(&set.list[3]) == 37 && param_inputs(&set.list[3]) == 1000);
    assert_true((set.grads != NULL) == grads);
    int64_t offset = 0;
    for (size_t i = 0; i < set.count; i++) {
      const Tensor *tensor = &set.list[i].tensor;
      assert_ptr_equal(tensor->value, set.values + offset);
      assert_true(grads ? tensor->grad == set.grads + offset : !tensor->grad);
      assert_int_equal((uintptr_t)tensor->value % 64, 0);
      assert_true(tensor->needs_grad == grads && !tensor->grad_filled);
      offset += param_padded(&set.list[i]);
    }
    assert_int_equal(offset, set.total);
    for (int64_t i = 0; i < set.total; i++) assert_true(set.values[i] == 0 && (!grads || set.grads[i] == 0));
    param_release(&set);
    assert_null(set.list);
  }
}

/* Address space is laid out as memory is; what is allocated afterwards is memory. */
static void test_reserve(void **state) {
  (void)state;
  ParamSet set = described(), real_one = described();
  set.list[3].frozen = real_one.list[3].frozen = true;
  assert_int_equal(param_reserve(&set, true), STATUS_OK);
  assert_int_equal(param_allocate(&real_one, true), STATUS_OK);
  assert_int_equal(set.total, real_one.total);
  for (size_t i = 0; i < set.count; i++) {
    const Tensor *tensor = &set.list[i].tensor, *other = &real_one.list[i].tensor;
    assert_non_null(tensor->value);
    assert_true((tensor->grad != NULL) == !set.list[i].frozen && tensor->needs_grad == !set.list[i].frozen);
    if (!set.list[i].frozen) assert_int_equal(tensor->value - set.values, other->value - real_one.values);
  }
  set.list[0].narrow = true;
  assert_int_equal(param_make_shadows(&set), STATUS_OK);
  assert_int_equal(param_allocate(&set, false), STATUS_OK);
  assert_null(set.frozen_values);
  assert_true(set.shadows == NULL && set.list[0].tensor.shadow == NULL); /* were address space, too */
  assert_true(set.values[set.total - 1] == 0);
  assert_int_equal(param_make_shadows(&set), STATUS_OK);
  assert_int_equal(param_reserve(&set, false), STATUS_OK);
  assert_true(set.shadows == NULL && set.list[0].tensor.shadow == NULL);
  assert_null(set.grads);
  assert_int_equal(param_allocate_frozen(&set), STATUS_OK);
  assert_true(set.frozen_values[set.frozen_total - 1] == 0);
  param_release(&set);
  param_release(&real_one);
  ParamSet huge = {0};
  assert_int_equal(param_add(&huge, PARAM_NORMAL, true, 2, (const int64_t[]){1 << 20, 1 << 18}, "a"), 0); /* a terabyte */
  assert_int_equal(param_reserve(&huge, false), STATUS_OK);
  param_release(&huge);
}

static void test_described(void **state) {
  (void)state;
  ParamSet set = described();
  assert_string_equal(set.list[1].name, "layer.3.bias"); /* of a format and its number */
  assert_true(set.list[0].decay && !set.list[1].decay && !set.list[0].optional);
  param_release(&set);
}

static void test_initialise(void **state) {
  (void)state;
  ParamSet set = described(), again = described();
  Rng rng, same;
  rng_init(&rng, 42, 0);
  rng_init(&same, 42, 0);
  assert_int_equal(param_allocate(&set, false), STATUS_OK);
  assert_int_equal(param_allocate(&again, false), STATUS_OK);
  param_initialise(&set, &rng);
  param_initialise(&again, &same);
  assert_memory_equal(set.values, again.values, (size_t)set.total * sizeof(real));
  double sum = 0, squares = 0, max = 0;
  const real *value = set.list[0].tensor.value;
  for (int i = 0; i < 37000; i++) {
    sum += (double)value[i];
    squares += (double)value[i] * (double)value[i];
    max = fmax(max, fabs((double)value[i]));
  }
  assert_true(max <= 0.0400001 && max > 0.0395);
  assert_true(fabs(sum / 37000) < 0.02 * 0.025);
  assert_true(fabs(sqrt(squares / 37000) - 0.02 * 0.8796) < 0.0002); /* deviation of a normal cut at two */
  for (int i = 0; i < 37; i++) assert_true(set.list[1].tensor.value[i] == 0);
  for (int i = 0; i < 16; i++) assert_true(set.list[2].tensor.value[i] == 1);
  assert_memory_not_equal(value, set.list[3].tensor.value, 64); /* each parameter has numbers of its own */
  param_initialise(&again, &same);
  assert_memory_not_equal(value, again.list[0].tensor.value, 64); /* and the generator has moved on */
  real kept = again.list[0].tensor.value[0];
  param_initialise_one(&again.list[3], &same);
  for (int i = 0; i < 37000; i++) assert_true(fabs((double)again.list[3].tensor.value[i]) <= 0.0400001);
  assert_memory_not_equal(again.list[3].tensor.value, set.list[3].tensor.value, 64);
  assert_true(again.list[0].tensor.value[0] == kept); /* of one alone */
  param_release(&set);
  param_release(&again);
}

static void test_zero_grads(void **state) {
  (void)state;
  ParamSet set = described();
  assert_int_equal(param_allocate(&set, true), STATUS_OK);
  for (int64_t i = 0; i < set.total; i++) set.grads[i] = 1;
  param_zero_grads(&set);
  for (int64_t i = 0; i < set.total; i++) assert_true(set.grads[i] == 0);
  for (size_t i = 0; i < set.count; i++) assert_true(set.list[i].tensor.grad_filled);
  param_release(&set);
}

/* What got a gradient since param_empty_grads keeps it, all others are zero. */
static void empty_grads_are_filled(void **state) {
  (void)state;
  ParamSet set = described();
  assert_int_equal(param_allocate(&set, true), STATUS_OK);
  for (int64_t i = 0; i < set.total; i++) set.grads[i] = 1;
  param_zero_grads(&set);
  for (int64_t i = 0; i < set.total; i++) set.grads[i] = 1;
  param_empty_grads(&set);
  for (size_t i = 0; i < set.count; i++) assert_false(set.list[i].tensor.grad_filled);
  set.list[0].tensor.grad_filled = true;
  param_fill_grads(&set);
  for (size_t p = 0; p < set.count; p++)
    for (int64_t i = 0; i < tensor_count(&set.list[p].tensor); i++) assert_true(set.list[p].tensor.grad[i] == (p == 0));
  param_release(&set);
}

static void test_bad_descriptions(void **state) {
  (void)state;
  ParamSet set = {0};
  const int64_t huge = (int64_t)1 << 40;
  char name[200];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  assert_int_equal(param_add(&set, PARAM_ZEROS, false, 1, (const int64_t[]){0}, "a"), -1);
  assert_int_equal(param_add(&set, PARAM_ZEROS, false, 1, (const int64_t[]){-1}, "a"), -1);
  assert_int_equal(param_add(&set, PARAM_ZEROS, false, 5, (const int64_t[]){1, 1, 1, 1, 1}, "a"), -1);
  assert_int_equal(param_add(&set, PARAM_ZEROS, false, 2, (const int64_t[]){huge, huge}, "a"), -1);
  assert_int_equal(param_add(&set, PARAM_ZEROS, false, 1, (const int64_t[]){1}, "%s", name), -1);
  assert_int_equal(set.count, 0);
  assert_int_equal(param_add(&set, PARAM_ZEROS, false, 2, (const int64_t[]){huge, 200}, "a"), 0);
  assert_int_equal(param_allocate(&set, true), STATUS_NO_MEMORY);
  assert_non_null(strstr(status_message(), "MB"));
  assert_null(set.values);
  param_release(&set);
}

/* Frozen ones have no place in the blocks, no gradient, and a block of their own only when it is asked for. */
static void frozen_ones_stand_apart(void **state) {
  (void)state;
  ParamSet set = described();
  set.list[0].frozen = set.list[2].frozen = true;
  assert_int_equal(param_allocate(&set, true), STATUS_OK);
  assert_true(!set.list[0].tensor.value && !set.list[2].tensor.value && !set.frozen_values);
  assert_ptr_equal(set.list[1].tensor.value, set.values);
  assert_ptr_equal(set.list[3].tensor.value, set.values + param_padded(&set.list[1]));
  assert_int_equal(param_offset(&set, 3), param_padded(&set.list[1]));
  assert_int_equal(set.total, param_padded(&set.list[1]) + param_padded(&set.list[3]));
  assert_int_equal(param_count_trainable(&set), 37 + 37000);
  assert_int_equal(param_count_numbers(&set), 2 * 37000 + 37 + 16);
  Rng rng;
  rng_init(&rng, 1, 0);
  param_initialise(&set, &rng); /* what has no memory is left out */
  param_zero_grads(&set);
  assert_int_equal(param_allocate_frozen(&set), STATUS_OK);
  for (size_t i = 0; i < 4; i++) {
    const Tensor *tensor = &set.list[i].tensor;
    assert_non_null(tensor->value);
    assert_int_equal(tensor->grad != NULL, !set.list[i].frozen);
    assert_true(tensor->needs_grad == !set.list[i].frozen && tensor->grad_filled == !set.list[i].frozen);
  }
  assert_ptr_equal(set.list[2].tensor.value, set.frozen_values + param_offset(&set, 2));
  param_release(&set);
}

/* Address space and memory are given back each in its own way, shadows with the values. */
static void shadows_go_with_the_values(void **state) {
  (void)state;
  ParamSet set = {0};
  assert_int_equal(param_add(&set, PARAM_NORMAL, true, 2, (int64_t[]){8, 24}, "matrix"), 0);
  set.list[0].narrow = true;
  for (int round = 0; round < 2; round++) {
    assert_int_equal(param_reserve(&set, true), STATUS_OK);
    assert_null(set.list[0].tensor.shadow);
    assert_int_equal(param_make_shadows(&set), STATUS_OK);
    assert_int_equal(param_allocate(&set, true), STATUS_OK);
    assert_null(set.list[0].tensor.shadow);
    assert_int_equal(param_make_shadows(&set), STATUS_OK);
    memset(set.list[0].tensor.shadow, 1, 8 * 24 * sizeof *set.list[0].tensor.shadow);
  }
  param_release(&set);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layout),
      cmocka_unit_test(test_reserve),
      cmocka_unit_test(test_described),
      cmocka_unit_test(test_initialise),
      cmocka_unit_test(test_zero_grads),
      cmocka_unit_test(empty_grads_are_filled),
      cmocka_unit_test(test_bad_descriptions),
      cmocka_unit_test(frozen_ones_stand_apart),
      cmocka_unit_test(shadows_go_with_the_values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
