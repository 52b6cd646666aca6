/* --groups auto: which rate follows from predicted latencies, and how it follows what devices wait for codes. */
#include "infer/rate_choice.h"
#include <cmocka.h>

static ModelConfig four_rates(void) {
  ModelConfig config = {.astra = {.groups = 8, .rates = {1, 2, 4, 8}, .rate_count = 4}};
  return config;
}

static int note(RateChoice *choice, double share, int answers) {
  int groups = 0;
  for (int i = 0; i < answers; i++) groups = rate_choice_note(choice, 0.01, 0.01 * share);
  return groups;
}

static void the_most_groups_within_a_tenth_are_chosen(void **state) {
  (void)state;
  const ModelConfig config = four_rates();
  assert_int_equal(rate_choice_predicted(&config, (double[]){1, 1.02, 1.05, 1.09}), 8);
  assert_int_equal(rate_choice_predicted(&config, (double[]){1, 1.02, 1.09, 1.3}), 4);
  assert_int_equal(rate_choice_predicted(&config, (double[]){1, 1.2, 1.4, 2}), 1);
  assert_int_equal(rate_choice_predicted(&config, (double[]){1.3, 1.2, 1, 2}), 4); /* a smaller rate may be slower by accident */
}

static void waiting_lowers_the_rate_as_far_as_it_has_to(void **state) {
  (void)state;
  const ModelConfig config = four_rates();
  RateChoice choice;
  rate_choice_init(&choice, &config, 8);
  assert_int_equal(note(&choice, 1.8, 2), 8);
  assert_int_equal(note(&choice, 0.9, 1), 8); /* it is not in a row */
  assert_int_equal(note(&choice, 1.8, 2), 8);
  assert_int_equal(note(&choice, 1.8, 1), 4); /* 1.8 / 2 */
  assert_int_equal(note(&choice, 0.9, 100), 4);
  rate_choice_init(&choice, &config, 8);
  assert_int_equal(note(&choice, 7, 3), 1);
  assert_int_equal(note(&choice, 7, 100), 1); /* there is none below */
}

static void idle_links_raise_it_one_by_one(void **state) {
  (void)state;
  const ModelConfig config = four_rates();
  RateChoice choice;
  rate_choice_init(&choice, &config, 1);
  assert_int_equal(note(&choice, 0.3, 100), 1); /* 0.6 is expected of the next */
  assert_int_equal(note(&choice, 0.1, 7), 1);
  assert_int_equal(note(&choice, 0.1, 1), 2);
  assert_int_equal(note(&choice, 0, 8), 4);
  assert_int_equal(note(&choice, 0, 8), 8);
  assert_int_equal(note(&choice, 0, 100), 8);
}

/* Waiting that does not follow the number of groups as expected. */
static void a_rate_that_was_too_much_is_tried_less_often(void **state) {
  (void)state;
  const ModelConfig config = four_rates();
  RateChoice choice;
  int tries = 0, before = 1;
  rate_choice_init(&choice, &config, 1);
  for (int answer = 0; answer < 4000; answer++) {
    const int groups = note(&choice, before > 1 ? 3 : 0, 1);
    tries += groups > before;
    before = groups;
  }
  assert_in_range(tries, 5, 12); /* after 8, 16, 32... answers */
  /* Once it has proven itself, as few answers are needed as at first. */
  while (choice.used == 0) note(&choice, 0, 1);
  note(&choice, 0.9, 64);
  assert_int_equal(note(&choice, 3, 3), 1);
  assert_int_equal(note(&choice, 0, 8), 2);
}

static void one_rate_stays(void **state) {
  (void)state;
  const ModelConfig config = {.astra = {.groups = 8}};
  RateChoice choice;
  rate_choice_init(&choice, &config, 8);
  assert_int_equal(note(&choice, 9, 100), 8);
  assert_int_equal(note(&choice, 0, 100), 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_most_groups_within_a_tenth_are_chosen),
      cmocka_unit_test(waiting_lowers_the_rate_as_far_as_it_has_to),
      cmocka_unit_test(idle_links_raise_it_one_by_one),
      cmocka_unit_test(a_rate_that_was_too_much_is_tried_less_often),
      cmocka_unit_test(one_rate_stays),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
