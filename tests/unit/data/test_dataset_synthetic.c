/* Drawn images: counts and sizes, the same image every time, another one for another number or part, classes that look different, and
 * names that are not accepted. */
#include "data/dataset.h"
#include "data_testing.h"

enum { WIDTH = 20, HEIGHT = 12, NUMBERS = WIDTH * HEIGHT * 3 };

static Dataset *open_part(const char *name, DatasetPart part) {
  Dataset *set;
  assert_ok(dataset_open(&set, name, NULL, part));
  return set;
}

static void test_what_a_name_gives(void **state) {
  (void)state;
  Dataset *train = open_part("synthetic:20x12:3:40", DATASET_TRAIN), *test = open_part("synthetic:20x12:3:40", DATASET_TEST);
  int width, height;
  assert_true(dataset_fixed_size(train, &width, &height) && width == WIDTH && height == HEIGHT);
  assert_int_equal(dataset_count(train), 40);
  assert_int_equal(dataset_count(test), 10);
  assert_int_equal(dataset_classes(train), 3);
  assert_string_equal(dataset_labels(train)[2], "stripes_2");
  assert_string_equal(dataset_describe(test), "synthetic test, 10 images of 20x12, 3 classes");
  dataset_close(train);
  dataset_close(test);
  train = open_part("synthetic:8x8:2", DATASET_TRAIN);
  assert_int_equal(dataset_count(train), 2048);
  dataset_close(train);
}

static void read_at(Dataset *set, int64_t index, Image *image) {
  int32_t label;
  assert_ok(dataset_read(set, index, image, &label));
  assert_int_equal(label, index % dataset_classes(set));
  assert_int_equal(image->width, WIDTH);
  assert_int_equal(image->height, HEIGHT);
}

static void test_images_repeat(void **state) {
  (void)state;
  Dataset *train = open_part("synthetic:20x12:3:40", DATASET_TRAIN), *test = open_part("synthetic:20x12:3:40", DATASET_TEST);
  Image first = {0}, second = {0};
  read_at(train, 5, &first);
  read_at(train, 8, &second); /* of the same class */
  assert_memory_not_equal(first.rgb, second.rgb, NUMBERS);
  read_at(train, 5, &second);
  assert_memory_equal(first.rgb, second.rgb, NUMBERS);
  read_at(test, 5, &second);
  assert_memory_not_equal(first.rgb, second.rgb, NUMBERS);
  image_release(&first);
  image_release(&second);
  dataset_close(train);
  dataset_close(test);
}

/* Mean colour of an image. */
static void mean_colour(const Image *image, double colour[3]) {
  for (int c = 0; c < 3; c++) colour[c] = 0;
  for (int i = 0; i < NUMBERS; i++) colour[i % 3] += image->rgb[i] / (double)(WIDTH * HEIGHT);
}

static double distance(const double a[3], const double b[3]) {
  double sum = 0;
  for (int c = 0; c < 3; c++) sum += (a[c] - b[c]) * (a[c] - b[c]);
  return sum;
}

/* Images of a class lie nearer to each other than to those of other classes: the mean colour alone tells most of them. */
static void test_classes_can_be_told_apart(void **state) {
  (void)state;
  enum { CLASSES = 3, IMAGES = 30 };
  Dataset *set = open_part("synthetic:20x12:3:40", DATASET_TRAIN);
  Image image = {0};
  double known[CLASSES][3], colour[3];
  int right = 0;
  for (int i = 0; i < CLASSES; i++) {
    read_at(set, i, &image);
    mean_colour(&image, known[i]);
  }
  for (int i = CLASSES; i < IMAGES; i++) {
    int best = 0;
    read_at(set, i, &image);
    mean_colour(&image, colour);
    for (int class = 1; class < CLASSES; class ++)
      if (distance(colour, known[class]) < distance(colour, known[best])) best = class;
    right += best == i % CLASSES;
  }
  assert_true(right >= (IMAGES - CLASSES) * 3 / 4);
  image_release(&image);
  dataset_close(set);
}

static void test_bad_names(void **state) {
  (void)state;
  static const char *const names[] = {"synthetic:",        "synthetic:8",        "synthetic:8x8",       "synthetic:8x8:",
                                      "synthetic:8x8:0",   "synthetic:1x8:2",    "synthetic:8x-8:2",    "synthetic:8x4097:2",
                                      "synthetic:8x8:2:3", "synthetic:8x8:2:8x", "synthetic:8x8:2 ",    "synthetic:8x8:10001",
                                      "synthetic:8x8:2:",  "synthetic:8y8:2",    "synthetic:8x8:2:8:8", "synthetic:99999999999x8:2"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    Dataset *set = (Dataset *)1;
    assert_fails(dataset_open(&set, names[i], NULL, DATASET_TRAIN), STATUS_BAD_USAGE, "synthetic:WIDTHxHEIGHT:CLASSES");
    assert_null(set);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_a_name_gives), cmocka_unit_test(test_images_repeat),
                                     cmocka_unit_test(test_classes_can_be_told_apart), cmocka_unit_test(test_bad_names)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
