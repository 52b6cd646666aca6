/* Which weights a digest tells apart: any change of a small one, a change of most numbers of a large one, names and sizes; not those that
 * learn. */
#include "train/state.c"
#include <cmocka.h>

enum { SMALL = 100, LARGE = 300000 };

static void make(ParamSet *set, const char *name) {
  *set = (ParamSet){0};
  assert_int_equal(param_add(set, PARAM_NORMAL, true, 1, (int64_t[]){SMALL}, "%s", name), 0);
  assert_int_equal(param_add(set, PARAM_NORMAL, true, 1, (int64_t[]){LARGE}, "large"), 1);
  assert_int_equal(param_add(set, PARAM_NORMAL, true, 1, (int64_t[]){SMALL}, "learns"), 2);
  set->list[0].frozen = set->list[1].frozen = true;
  assert_int_equal(param_allocate(set, false), STATUS_OK);
  assert_int_equal(param_allocate_frozen(set), STATUS_OK);
  for (int p = 0; p < 3; p++)
    for (int64_t i = 0; i < tensor_count(&set->list[p].tensor); i++) set->list[p].tensor.value[i] = (real)(i % 7 + p);
}

static void a_number_that_does_not_learn_counts(void **state) {
  (void)state;
  ParamSet set;
  make(&set, "small");
  int64_t first = frozen_digest(&set);
  assert_true(first > 0);
  for (int i = 0; i < SMALL; i += 33) {
    set.list[0].tensor.value[i] += 1;
    assert_true(frozen_digest(&set) != first);
    set.list[0].tensor.value[i] -= 1;
  }
  assert_true(frozen_digest(&set) == first);
  set.list[2].tensor.value[5] += 1; /* learns */
  assert_true(frozen_digest(&set) == first);
  param_release(&set);
}

/* The ends are looked at, and of what adapters change, which is nearly every number, some is. */
static void a_large_weight_is_sampled(void **state) {
  (void)state;
  ParamSet set;
  make(&set, "small");
  int64_t first = frozen_digest(&set);
  real *value = set.list[1].tensor.value;
  const int64_t places[] = {0, LARGE - 1};
  for (int i = 0; i < 2; i++) {
    value[places[i]] += 1;
    assert_true(frozen_digest(&set) != first);
    value[places[i]] -= 1;
  }
  for (int64_t part = 0; part < 10; part++) { /* rows of a tenth */
    for (int64_t i = part * LARGE / 10; i < (part + 1) * LARGE / 10; i++) value[i] += 1;
    assert_true(frozen_digest(&set) != first);
    for (int64_t i = part * LARGE / 10; i < (part + 1) * LARGE / 10; i++) value[i] -= 1;
  }
  assert_true(frozen_digest(&set) == first);
  param_release(&set);
}

static void names_count_and_nothing_frozen_is_none(void **state) {
  (void)state;
  ParamSet one, other;
  make(&one, "small");
  make(&other, "slight");
  assert_true(frozen_digest(&one) != frozen_digest(&other));
  other.list[0].frozen = other.list[1].frozen = false;
  assert_true(frozen_digest(&other) == 0);
  other.list[0].frozen = other.list[1].frozen = true;
  param_release(&one);
  param_release(&other);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_number_that_does_not_learn_counts), cmocka_unit_test(a_large_weight_is_sampled),
                                     cmocka_unit_test(names_count_and_nothing_frozen_is_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
