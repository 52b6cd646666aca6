/* Which class is taken for which: counts, names that CSV obeys, and the bounds on classes. */
#include "base/files.h"
#include "train/confusion.h"
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
  Confusion confusion;
  assert_int_equal(confusion_init(&confusion, 3), STATUS_OK);
  confusion_add(&confusion, 0, 0);
  confusion_clear(&confusion);
  for (int i = 0; i < 5; i++) confusion_add(&confusion, 1, 2);
  confusion_add(&confusion, 0, 1);
  confusion_add(&confusion, 2, 2);
  confusion_add(&confusion, 3, 0); /* nothing outside the matrix is touched */
  confusion_add(&confusion, 0, -1);
  assert_int_equal(confusion_save(&confusion, names, directory), STATUS_OK);
  char *text = text_of("confusion.csv");
  assert_string_equal(text, "label,cat,\"a, \"\"b\"\"\",dog\ncat,0,1,0\n\"a, \"\"b\"\"\",0,0,5\ndog,0,0,1\n");
  free(text);
  text = text_of("confusion.png");
  assert_memory_equal(text, "\x89PNG", 4);
  free(text);
  confusion_release(&confusion);
}

static void many_classes_have_a_image_still(void **state) {
  (void)state;
  static char *names[CONFUSION_CLASSES];
  static const int sizes[] = {2, 41, CONFUSION_CLASSES};
  for (int i = 0; i < CONFUSION_CLASSES; i++) names[i] = "a class with a name that is longer than any image wants";
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    Confusion confusion;
    assert_int_equal(confusion_init(&confusion, sizes[i]), STATUS_OK);
    for (int c = 0; c < sizes[i]; c++) confusion_add(&confusion, c, c);
    assert_int_equal(confusion_save(&confusion, names, directory), STATUS_OK);
    free(text_of("confusion.png"));
    confusion_release(&confusion);
  }
}

static void too_many_or_too_few_are_not_counted(void **state) {
  (void)state;
  static const int sizes[] = {0, 1, CONFUSION_CLASSES + 1};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    Confusion confusion;
    assert_int_equal(confusion_init(&confusion, sizes[i]), STATUS_OK);
    confusion_add(&confusion, 0, 0);
    assert_int_equal(confusion.classes, 0);
    assert_int_equal(confusion_save(&confusion, NULL, "/nowhere"), STATUS_OK);
    confusion_release(&confusion);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(counts_become_rows_of_labels), cmocka_unit_test(many_classes_have_a_image_still),
                                     cmocka_unit_test(too_many_or_too_few_are_not_counted)};
  return cmocka_run_group_tests(tests, make, clear);
}
