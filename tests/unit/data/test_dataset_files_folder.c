/* Image folders: with and without a split, order, odd entries, and what is refused. */
#include "data/dataset.h"
#include "data_testing.h"

static Status open_folder(Dataset **set, const char *relative, DatasetPart part) {
  char name[600];
  snprintf(name, sizeof name, "folder:%s", testing_path(relative));
  return dataset_open(set, name, NULL, part);
}

/* The image's red level tells which one it is. */
static void assert_image(Dataset *set, int64_t index, int red, int want_label) {
  Image image = {0};
  int32_t label = -1;
  assert_ok(dataset_read(set, index, &image, &label));
  assert_int_equal(image.rgb[0], red);
  assert_int_equal(label, want_label);
  image_release(&image);
}

static void test_split(void **state) {
  (void)state;
  testing_image("s/train/dog/b.png", 5, 4, 1, 0, 0);
  testing_image("s/train/dog/a.PNG", 6, 4, 2, 0, 0);
  testing_image("s/train/cat/deeper/x.png", 5, 9, 3, 0, 0);
  testing_image("s/train/.hidden/x.png", 5, 4, 4, 0, 0);
  testing_image("s/train/cat/y.jfif", 5, 4, 6, 0, 0); /* whose content is looked at, not its name */
  testing_image("s/train/dog/c.JPE", 5, 4, 7, 0, 0);
  testing_write("s/train/cat/notes.txt", "no image", 8);
  testing_write("s/train/readme.png", "no folder", 9);
  testing_image("s/val/dog/c.png", 5, 4, 5, 0, 0);
  Dataset *train, *test;
  assert_ok(open_folder(&train, "s", DATASET_TRAIN));
  assert_int_equal(dataset_count(train), 5);
  assert_non_null(strstr(dataset_describe(train), "image folder train, 5 images (1 other file passed over), 2 classes, from "));
  assert_int_equal(dataset_classes(train), 2);
  assert_string_equal(dataset_labels(train)[0], "cat");
  assert_string_equal(dataset_labels(train)[1], "dog");
  assert_image(train, 0, 3, 0);
  assert_image(train, 1, 6, 0);
  assert_image(train, 2, 2, 1); /* a.PNG before b.png */
  assert_image(train, 3, 1, 1);
  assert_image(train, 4, 7, 1);
  int width, height;
  assert_false(dataset_fixed_size(train, &width, &height));
  double mean[3], deviation[3];
  dataset_mean_std(train, mean, deviation);
  assert_true(mean[1] == 0.5 && deviation[1] == 0.5);
  assert_ok(open_folder(&test, "s", DATASET_TEST));
  assert_int_equal(dataset_count(test), 1);
  assert_int_equal(dataset_classes(test), 2); /* those of the training part */
  assert_image(test, 0, 5, 1);
  dataset_close(train);
  dataset_close(test);
}

static void make_eleven(const char *class) {
  for (int i = 0; i < 11; i++) {
    char name[64];
    snprintf(name, sizeof name, "%s/%02d.png", class, i);
    testing_image(name, 3, 3, (uint8_t)i, 0, 0);
  }
}

/* Without a test folder every fifth image of each class is held out, with a train folder or without. */
static void test_every_fifth(void **state) {
  (void)state;
  static const char *const folders[] = {"f", "g"};
  make_eleven("f/one");
  make_eleven("f/two");
  make_eleven("g/train/one");
  make_eleven("g/train/two");
  for (int k = 0; k < 2; k++) {
    Dataset *train, *test;
    assert_ok(open_folder(&train, folders[k], DATASET_TRAIN));
    assert_ok(open_folder(&test, folders[k], DATASET_TEST));
    assert_int_equal(dataset_count(train), 18);
    assert_int_equal(dataset_count(test), 4);
    assert_image(test, 0, 4, 0);
    assert_image(test, 1, 9, 0);
    assert_image(test, 2, 4, 1);
    assert_image(train, 4, 5, 0);
    assert_image(train, 8, 10, 0);
    assert_image(train, 9, 0, 1);
    dataset_close(train);
    dataset_close(test);
  }
}

static void test_other_names_of_splits(void **state) {
  (void)state;
  static const char *const splits[][2] = {{"training", "validation"}, {"Train", "Test"}, {"train", "testing"}};
  for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
    char name[64];
    char hint[DATASET_HINT];
    Dataset *train, *test;
    for (int part = 0; part < 2; part++) {
      snprintf(name, sizeof name, "n%zu/%s/cat/a.png", i, splits[i][part]);
      testing_image(name, 2, 2, (uint8_t)part, 0, 0);
    }
    snprintf(name, sizeof name, "n%zu", i);
    assert_ok(open_folder(&train, name, DATASET_TRAIN));
    assert_ok(open_folder(&test, name, DATASET_TEST));
    assert_int_equal(dataset_classes(train), 1);
    assert_string_equal(dataset_labels(train)[0], "cat");
    assert_int_equal(dataset_count(train), 1);
    assert_int_equal(dataset_count(test), 1);
    assert_image(train, 0, 0, 0);
    assert_image(test, 0, 1, 0);
    dataset_close(train);
    dataset_close(test);
    assert_non_null(strstr(dataset_hint(testing_path(name), NULL, DATASET_ANY, hint), "Did you mean folder:"));
  }
}

/* With its images directly in it, beside another class. */
static void test_class_with_the_name_of_a_part(void **state) {
  (void)state;
  Dataset *set;
  testing_image("c/exam/a.png", 2, 2, 0, 0, 0);
  testing_image("c/test/a.png", 2, 2, 0, 0, 0);
  assert_ok(open_folder(&set, "c", DATASET_TRAIN));
  assert_int_equal(dataset_classes(set), 2);
  assert_string_equal(dataset_labels(set)[1], "test");
  dataset_close(set);
}

static void test_refused(void **state) {
  (void)state;
  Dataset *set;
  assert_fails(open_folder(&set, "none", DATASET_TRAIN), STATUS_NOT_FOUND, "no such folder");
  testing_write("e/file.png", "x", 1);
  assert_fails(open_folder(&set, "e", DATASET_TRAIN), STATUS_BAD_FILE, "no class folders");
  assert_fails(open_folder(&set, "e/file.png", DATASET_TRAIN), STATUS_NOT_FOUND, "no such folder");
  testing_image("h/full/a.png", 2, 2, 0, 0, 0);
  testing_write("h/hollow/a.txt", "x", 1);
  assert_fails(open_folder(&set, "h", DATASET_TRAIN), STATUS_BAD_FILE, "h/hollow: a class without images");
  assert_fails(open_folder(&set, "h", DATASET_TEST), STATUS_BAD_FILE, "h/hollow: a class without images");
  testing_image("l/test/cat/a.png", 2, 2, 0, 0, 0);
  assert_fails(open_folder(&set, "l", DATASET_TRAIN), STATUS_BAD_FILE, "l: a part \"test\" without one to train on");
  testing_image("l/Validation/cat/a.png", 2, 2, 0, 0, 0);
  assert_fails(open_folder(&set, "l", DATASET_TEST), STATUS_BAD_FILE, "l: a part \"Validation\" without one to train on");
  testing_image("l2/cat/a.png", 2, 2, 0, 0, 0); /* also beside classes: held-out images are no class "test" */
  testing_image("l2/test/cat/a.png", 2, 2, 0, 0, 0);
  assert_fails(open_folder(&set, "l2", DATASET_TRAIN), STATUS_BAD_FILE, "l2: a part \"test\" without one to train on");
  assert_fails(open_folder(&set, "l2", DATASET_TEST), STATUS_BAD_FILE, "rename \"test\" if it is a class");
  testing_image("m/train/cat/a.png", 2, 2, 0, 0, 0);
  testing_image("m/training/cat/a.png", 2, 2, 0, 0, 0);
  assert_fails(open_folder(&set, "m", DATASET_TRAIN), STATUS_BAD_FILE, "m: the folders \"train\" and \"training\" are of the same part");
  testing_image("i/few/a.png", 2, 2, 0, 0, 0);
  assert_fails(open_folder(&set, "i", DATASET_TEST), STATUS_BAD_FILE, "no images for the test part");
  testing_image("j/train/cat/a.png", 2, 2, 0, 0, 0);
  testing_image("j/test/dog/a.png", 2, 2, 0, 0, 0);
  assert_fails(open_folder(&set, "j", DATASET_TEST), STATUS_BAD_FILE, "class \"dog\"");
  assert_null(set);
}

/* A link in a class to the class itself would bring each image into it many times, copies of one into both parts. */
static void test_circle(void **state) {
  (void)state;
  Dataset *set;
  make_eleven("k/one");
  assert_int_equal(symlink(".", testing_path("k/one/loop")), 0);
  assert_fails(open_folder(&set, "k", DATASET_TRAIN), STATUS_BAD_FILE, "a link in a circle?");
  assert_fails(open_folder(&set, "k", DATASET_TEST), STATUS_BAD_FILE, "a link in a circle?");
}

static void test_broken_image(void **state) {
  (void)state;
  testing_write("b/x/broken.jpg", "\xff\xd8\xff\xe0", 4);
  Dataset *set;
  assert_ok(open_folder(&set, "b", DATASET_TRAIN));
  Image image = {0};
  int32_t label = 7;
  assert_ok(image_new(&image, 2, 2)); /* a failed read leaves it alone */
  assert_fails(dataset_read(set, 0, &image, &label), STATUS_BAD_FILE, "b/x/broken.jpg");
  assert_int_equal(image.width, 2);
  image_release(&image);
  dataset_close(set);
}

static void test_real_photographs(void **state) {
  (void)state;
  char name[600];
  snprintf(name, sizeof name, "folder:%s", testing_shared("data/clothing"));
  Dataset *train, *test;
  assert_ok(dataset_open(&train, name, NULL, DATASET_TRAIN));
  assert_ok(dataset_open(&test, name, NULL, DATASET_TEST));
  assert_int_equal(dataset_classes(train), 10);
  assert_int_equal(dataset_count(train) + dataset_count(test), 77);
  assert_string_equal(dataset_labels(train)[9], "t-shirt");
  Image image = {0};
  for (int64_t i = 0; i < dataset_count(test); i++) {
    int32_t label;
    assert_ok(dataset_read(test, i, &image, &label));
    assert_true(image.width >= 200 && image.height >= 200);
  }
  image_release(&image);
  dataset_close(train);
  dataset_close(test);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_split),
      cmocka_unit_test(test_every_fifth),
      cmocka_unit_test(test_other_names_of_splits),
      cmocka_unit_test(test_class_with_the_name_of_a_part),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_circle),
      cmocka_unit_test(test_broken_image),
      cmocka_unit_test(test_real_photographs),
  };
  return cmocka_run_group_tests(tests, testing_make_folder, testing_remove_folder);
}
