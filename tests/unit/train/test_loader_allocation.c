/* Once a loader of images of one size is open, its workers ask for no memory: also those that come late to their first image. */
#include "data/loader.h"
#include "unit/count_allocations.h"
#include "unit/data/data_testing.h"

enum { WORKERS = 8, BATCHES = 60 };

static void assert_quiet(const LoaderOptions *options) {
  Dataset *set;
  Loader *loader;
  Batch batch;
  assert_ok(dataset_open(&set, "synthetic:20x12:3:40", NULL, DATASET_TRAIN));
  assert_ok(loader_new(&loader, set, options));
  const long before = allocations_so_far();
  for (int i = 0; i < BATCHES; i++) assert_ok(loader_next(loader, &batch));
  assert_int_equal(allocations_so_far() - before, 0);
  loader_free(loader);
  dataset_close(set);
}

static void test_no_worker_allocates(void **state) {
  (void)state;
  allocations_need_count();
  LoaderOptions options = {.image = 16, .filter = RESIZE_BICUBIC, .std = {1, 1, 1}, .shuffle = true, .batch = 4, .workers = WORKERS};
  assert_quiet(&options);
  options.augment.kind = AUGMENT_CROP;
  options.crop_min = 0.1;
  assert_quiet(&options);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_worker_allocates)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
