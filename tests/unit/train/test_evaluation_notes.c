/* What OUT/training/evaluations.txt has of an evaluation whose perplexity no number holds: a line that can be read again, never the best.
 */
#include "train/evaluations.c"
#include <cmocka.h>

static void an_infinite_perplexity_is_noted(void **state) {
  (void)state;
  char *line = NULL;
  size_t size;
  Note one;
  FILE *stream = open_memstream(&line, &size);
  assert_non_null(stream);
  put_note(stream, 5, (double)INFINITY, false, "samples:0,loss:0,layout:contiguous");
  assert_int_equal(fclose(stream), 0);
  assert_string_equal(line, "5 inf - samples:0,loss:0,layout:contiguous\n");
  assert_true(read_note(&one, line) && one.step == 5 && isinf(one.value) && strcmp(one.mark, "-") == 0);
  free(line);
}

static void an_infinite_perplexity_is_never_the_best(void **state) {
  (void)state;
  static Session language;
  const double values[] = {(double)INFINITY, 7, (double)INFINITY, 6, (double)NAN};
  const int64_t best[] = {-1, 1, 1, 3, 3}, since[] = {1, 0, 1, 0, 1};
  Evaluations found = {.step = -1, .kept = -1, .last = -1};
  language.task = task_find(NULL);
  for (int i = 0; i < 5; i++) {
    note(&found, &language, i, values[i], false);
    assert_int_equal(found.step, best[i]);
    assert_int_equal(found.since, since[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_infinite_perplexity_is_noted),
                                     cmocka_unit_test(an_infinite_perplexity_is_never_the_best)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
