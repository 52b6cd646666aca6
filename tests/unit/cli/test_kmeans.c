/* Norms and duplicates of a small codebook that is written down here. */
int astra_kmeans_main(int argc, char **argv);
#define main astra_kmeans_main
#include "cli/astra-kmeans.c" /* they are inside of it */
#undef main
#include "unit/float_equal.h"
#include <cmocka.h>

static void test_facts(void **state) {
  (void)state;
  /* two groups of four codewords of two numbers */
  static const real codewords[] = {3, 4, 0, 0, 3, 4, 3, 4, /* 5, 0, 5, 5: two duplicates */
                                   0, 1, 1, 0, 6, 8, 0, 1 /* 1, 1, 10, 1: one */};
  CodebookFacts facts;
  assert_int_equal(codebook_facts(codewords, 2, 4, 2, &facts), STATUS_OK);
  assert_float_equal(facts.norm_min, 0, 0);
  assert_float_equal(facts.norm_mean, 28.0 / 8, 1e-12);
  assert_float_equal(facts.norm_max, 10, 1e-12);
  assert_int_equal(facts.duplicates, 3);
}

/* Equal codewords of different groups are no duplicates. */
static void test_groups_are_apart(void **state) {
  (void)state;
  static const real codewords[] = {1, 2, 1, 2};
  CodebookFacts facts;
  assert_int_equal(codebook_facts(codewords, 2, 2, 1, &facts), STATUS_OK);
  assert_int_equal(facts.duplicates, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_facts), cmocka_unit_test(test_groups_are_apart)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
