/* Bicubic interpolation of position embeddings against torch.nn.functional.interpolate(mode="bicubic", align_corners=False) in double. */
#include "nn/checkpoint.c" /* the interpolation by itself */
#include <cmocka.h>
#include <math.h>

/* Two channels, [[1, 2], [3, 5]] and [[-1, 0.5], [0.25, 2]], to 4 x 4. */
static const double upscaled[2][16] = {
    {0.694717407, 0.991729736, 1.480926514, 1.777938843, 1.323760986, 1.731018066, 2.401794434, 2.809051514, 2.359832764, 2.948669434,
     3.918518066, 4.507354736, 2.988876343, 3.687957764, 4.839385986, 5.538467407},
    {-1.287258148, -0.797966003, 0.007926941, 0.497219086, -0.880973816, -0.364120483, 0.487167358, 1.004020691, -0.211799622, 0.350448608,
     1.276504517, 1.838752747, 0.194484711, 0.784294128, 1.755744934, 2.345554352}};

static void test_upscale(void **state) {
  (void)state;
  const real from[] = {7, 8, 1, -1, 2, (real)0.5, 3, (real)0.25, 5, 2}; /* class token first */
  real to[17 * 2];
  positions_resize(from, 2, to, 4, 2);
  assert_true(to[0] == 7 && to[1] == 8);
  for (int i = 0; i < 16; i++)
    for (int c = 0; c < 2; c++) assert_true(fabs((double)to[2 + 2 * i + c] - upscaled[c][i]) < 1e-6);
}

static void test_downscale(void **state) {
  (void)state;
  static const double want[] = {1.430755615, 6.522369385, 32.397369385, 53.180755615};
  real from[10] = {-3}, to[5];
  for (int i = 0; i < 9; i++) from[1 + i] = (real)(i * i);
  positions_resize(from, 3, to, 2, 1);
  assert_true(to[0] == -3);
  for (int i = 0; i < 4; i++) assert_true(fabs((double)to[1 + i] - want[i]) < 1e-5);
}

static void test_same_size_is_identity(void **state) {
  (void)state;
  real from[1 + 9], to[1 + 9];
  for (int i = 0; i < 10; i++) from[i] = (real)sin(i);
  positions_resize(from, 3, to, 3, 1);
  assert_memory_equal(from, to, sizeof from);
}

static void test_side(void **state) {
  (void)state;
  assert_int_equal(positions_side(197), 14);
  assert_int_equal(positions_side(2), 1);
  assert_int_equal(positions_side(196), 0);
  assert_int_equal(positions_side(1), 0);
  assert_int_equal(positions_side(-5), 0);
  assert_int_equal(positions_side(INT64_MAX), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_upscale),
      cmocka_unit_test(test_downscale),
      cmocka_unit_test(test_same_size_is_identity),
      cmocka_unit_test(test_side),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
