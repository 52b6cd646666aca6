/* Which class is taken for which: counts, names that CSV obeys, and the bounds on classes. */
#include "base/files.h"
#include "train/metrics.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char directory[TEMPORARY_PATH];

static int make(void **state) {
  (void)state;
  return make_temporary_folder(directory);
}

static int clear(void **state) {
  (void)state;
  return remove_tree(directory);
}

static char *text_of(const char *name) {
  char *path = files_join(directory, name), *text;
  size_t size;
  assert_int_equal(files_read(path, 1 << 22, &text, &size), STATUS_OK);
  free(path);
  return text;
}

static void counts_become_rows_of_labels(void **state) {
  (void)state;
  static char *names[] = {"cat", "a, \"b\"", "dog"};
  static const uint32_t counts[] = {0, 1, 0, 0, 0, 5, 0, 0, 1};
  assert_int_equal(metrics_confusion_save(counts, 3, names, directory), STATUS_OK);
  char *text = text_of("confusion.csv");
  assert_string_equal(text, "label,cat,\"a, \"\"b\"\"\",dog\ncat,0,1,0\n\"a, \"\"b\"\"\",0,0,5\ndog,0,0,1\n");
  free(text);
  text = text_of("confusion.png");
  assert_memory_equal(text, "\x89PNG", 4);
  free(text);
}

static void many_classes_still_have_an_image(void **state) {
  (void)state;
  static char *names[METRICS_CLASSES];
  static const int sizes[] = {2, 41, METRICS_CLASSES};
  for (int i = 0; i < METRICS_CLASSES; i++) names[i] = "a class with a name that is longer than any image wants";
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    uint32_t *counts;
    assert_int_equal(metrics_confusion_new(&counts, sizes[i]), STATUS_OK);
    assert_non_null(counts);
    for (int c = 0; c < sizes[i]; c++) counts[c * sizes[i] + c]++;
    assert_int_equal(metrics_confusion_save(counts, sizes[i], names, directory), STATUS_OK);
    free(text_of("confusion.png"));
    free(counts);
  }
}

static void too_many_or_too_few_are_not_counted(void **state) {
  (void)state;
  static const int sizes[] = {0, 1, METRICS_CLASSES + 1};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    uint32_t *counts;
    assert_int_equal(metrics_confusion_new(&counts, sizes[i]), STATUS_OK);
    assert_null(counts);
    assert_int_equal(metrics_confusion_save(counts, sizes[i], NULL, "/nowhere"), STATUS_OK);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(counts_become_rows_of_labels), cmocka_unit_test(many_classes_still_have_an_image),
                                     cmocka_unit_test(too_many_or_too_few_are_not_counted)};
  return cmocka_run_group_tests(tests, make, clear);
}
