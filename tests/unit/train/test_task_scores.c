/* What the head of classes counts of a batch: answers of two classes, the confusion matrix, and labels that do not count. */
#include "autograd/tape.h"
#include "base/arena.h"
#include "train/task.c"
#include <cmocka.h>

static void labels_below_zero_count_nowhere(void **state) {
  (void)state;
  static Session session;
  static const real numbers[] = {2, 1, 0, 3, 1, 0}; /* three rows, whose answers are 0, 1, 0 */
  int32_t labels[] = {1, -1, 0};
  uint32_t cells[] = {7, 0, 0, 0, 0, 7}; /* a matrix of two classes between two that must stay */
  Arena *arena = arena_new((size_t)1 << 30);
  session.tape = tape_new(arena);
  assert_non_null(session.tape);
  Tensor *logits = tape_constant(session.tape, 2, (int64_t[]){3, 2}, numbers);
  TaskScore score = {.confusion = cells + 1};
  assert_non_null(class_loss(&session, &(TaskBatch){.count = 3, .labels = labels}, logits, &(CrossEntropy){0}, &score));
  assert_int_equal(score.correct, 1);
  assert_memory_equal(score.answers, ((int64_t[2][2]){{1, 0}, {1, 0}}), sizeof score.answers);
  assert_memory_equal(cells, ((uint32_t[]){7, 1, 0, 1, 0, 7}), sizeof cells);
  tape_free(session.tape);
  arena_free(arena);
}

/* However large it is: of a model that has diverged it has hundreds of digits, or is none that a double holds. */
static void any_perplexity_is_told_whole(void **state) {
  (void)state;
  static const struct {
    double loss; /* of ten tokens, of ten bytes */
    const char *text;
  } cases[] = {{30, "perplexity 20.09 per token (4.328 bits per byte)"},
               {2000, "perplexity 7.23e+86 per token (288.539 bits per byte)"},
               {8000, "perplexity inf per token (1154.156 bits per byte)"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[TASK_TEXT];
    task_find(NULL)->report->tell(&(TaskScore){.items = 10, .bytes = 10, .loss = cases[i].loss}, text);
    assert_string_equal(text, cases[i].text);
    assert_string_equal(task_value(text), cases[i].text + strlen("perplexity "));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(labels_below_zero_count_nowhere), cmocka_unit_test(any_perplexity_is_told_whole)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
