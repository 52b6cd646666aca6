/* Mixup and CutMix: what becomes of each number of a batch, and the labels' weights that go with it. */
#include "autograd/tape.h"
#include "base/arena.h"
#include "train/task.c"
#include "unit/float_equal.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { COUNT = 5, CHANNELS = 3, HEIGHT = 6, WIDTH = 9, PLANE = HEIGHT * WIDTH, SIZE = CHANNELS * PLANE, BATCHES = 600 };

typedef struct Bench {
  Session session;
  Arena *arena;
  Tape *tape;
  real pixels[COUNT * SIZE];
  int32_t labels[COUNT];
} Bench;

static Bench bench;

static void open_bench(double mixup, double cutmix) {
  bench.arena = arena_new((size_t)1 << 30);
  bench.tape = tape_new(bench.arena);
  assert_non_null(bench.tape);
  bench.session.options.mixup = mixup;
  bench.session.options.cutmix = cutmix;
  rng_init(&bench.session.mixup_rng, 3, 4);
  for (int i = 0; i < COUNT * SIZE; i++) bench.pixels[i] = (real)(i + 1); /* no two alike */
  for (int i = 0; i < COUNT; i++) bench.labels[i] = 10 * i;
}

static void close_bench(void) {
  tape_free(bench.tape);
  arena_free(bench.arena);
}

static const real *mix(CrossEntropy *target) {
  const int64_t shape[] = {COUNT, CHANNELS, HEIGHT, WIDTH};
  *target = (CrossEntropy){0};
  tape_clear(bench.tape);
  Tensor *pixels = tape_constant(bench.tape, 4, shape, bench.pixels);
  const Tensor *mixed = mixup(&bench.session, bench.tape, &(TaskBatch){.count = COUNT, .labels = bench.labels}, pixels, target);
  assert_non_null(mixed);
  assert_memory_equal(mixed->shape, shape, sizeof shape);
  for (int i = 0; i < COUNT; i++) {
    assert_int_equal(target->other[i], 10 * (COUNT - 1 - i));
    assert_true(target->mix[i] == target->mix[0] && target->mix[0] >= 0 && target->mix[0] <= 1);
  }
  return mixed->value;
}

static real own(int image, int i) { return bench.pixels[image * SIZE + i]; }

static bool is_blend(const real *mixed, real share) {
  for (int i = 0; i < COUNT * SIZE; i++) {
    real expected = share * own(i / SIZE, i % SIZE) + (1 - share) * own(COUNT - 1 - i / SIZE, i % SIZE);
    if (!(fabs((double)(mixed[i] - expected)) <= 1e-2)) return false;
  }
  return true;
}

/* Every number is its own image's or the other's at the same place; the other's fill one box, the same in all channels and images,
 * whose area is the other label's weight. */
static void check_pasted(const real *mixed, real share) {
  int left = WIDTH, right = 0, top = HEIGHT, bottom = 0, pasted = 0;
  for (int i = 0; i < PLANE; i++) {
    bool other = mixed[i] == own(COUNT - 1, i);
    for (int image = 0; image < COUNT; image++)
      for (int c = 0; c < CHANNELS; c++)
        assert_true(mixed[image * SIZE + c * PLANE + i] == own(other ? COUNT - 1 - image : image, c * PLANE + i));
    if (!other) continue;
    int x = i % WIDTH, y = i / WIDTH;
    left = x < left ? x : left, right = x >= right ? x + 1 : right, top = y < top ? y : top, bottom = y >= bottom ? y + 1 : bottom;
    pasted++;
  }
  if (pasted > 0) assert_int_equal(pasted, (right - left) * (bottom - top));
  assert_float_equal(share, 1 - (double)pasted / PLANE, 1e-6);
}

static void mixup_alone_blends(void **state) {
  (void)state;
  CrossEntropy target;
  open_bench(0.8, 0);
  for (int i = 0; i < 50; i++) {
    const real *mixed = mix(&target);
    assert_true(is_blend(mixed, target.mix[0]));
  }
  close_bench();
}

/* A small alpha mixes next to nothing, however small it is: nearly all shares are at 0 or 1, each as often. */
static void a_small_alpha_takes_one_image_or_the_other(void **state) {
  (void)state;
  CrossEntropy target;
  int own_images = 0, between = 0; /* of which 2 are to be expected */
  open_bench(0.001, 0);
  for (int i = 0; i < BATCHES; i++) {
    mix(&target);
    between += target.mix[0] >= 0.01 && target.mix[0] <= 0.99;
    own_images += target.mix[0] > 0.5;
  }
  assert_in_range(own_images, BATCHES / 2 - 75, BATCHES / 2 + 75);
  assert_in_range(between, 0, 12);
  close_bench();
}

/* With alpha = 1 shares are uniform: as a box that is cut off at a border is smaller, the mean is above a half. */
static void cutmix_alone_pastes(void **state) {
  (void)state;
  CrossEntropy target;
  double sum = 0;
  open_bench(0, 1);
  for (int i = 0; i < BATCHES; i++) {
    const real *mixed = mix(&target);
    check_pasted(mixed, target.mix[0]);
    sum += (double)target.mix[0];
  }
  assert_true(sum / BATCHES > 0.58 && sum / BATCHES < 0.75);
  close_bench();
}

static void both_take_turns_at_random(void **state) {
  (void)state;
  CrossEntropy target;
  int blends = 0;
  open_bench(0.8, 1);
  for (int i = 0; i < BATCHES; i++) {
    const real *mixed = mix(&target);
    bool blend = target.mix[0] < 1 && is_blend(mixed, target.mix[0]);
    if (!blend) check_pasted(mixed, target.mix[0]);
    blends += blend;
  }
  assert_in_range(blends, BATCHES / 2 - 50, BATCHES / 2 + 50);
  close_bench();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mixup_alone_blends), cmocka_unit_test(a_small_alpha_takes_one_image_or_the_other),
                                     cmocka_unit_test(cutmix_alone_pastes), cmocka_unit_test(both_take_turns_at_random)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
