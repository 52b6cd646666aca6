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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(labels_below_zero_count_nowhere)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
