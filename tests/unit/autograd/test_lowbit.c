/* Weights of 8 and 4 bits: the exact bytes of each layout, and what they stand for. */
#include "autograd/lowbit.h"
#include <cmocka.h>
#include <string.h>

static void blocks_have_the_sizes_of_gguf(void **state) {
  (void)state;
  assert_int_equal(sizeof(LowbitQ8Block), 34);
  assert_int_equal(sizeof(LowbitQ4Block), 18);
  assert_int_equal(lowbit_row_bytes(LOWBIT_INT8, 70), 70);
  assert_int_equal(lowbit_row_bytes(LOWBIT_Q8_0, 64), 68);
  assert_int_equal(lowbit_row_bytes(LOWBIT_Q4_0, 65), 3 * 18);
  assert_int_equal(lowbit_row_bytes(LOWBIT_NONE, 65), 0);
}

static void int8_numbers_have_a_scale_an_output(void **state) {
  (void)state;
  const int8_t numbers[] = {1, -2, 3, -128, 127, 0};
  const float scale[] = {0.5f, 2};
  real value[3];
  const LowbitMatrix matrix = {LOWBIT_INT8, 2, 3, numbers, scale};
  lowbit_widen(&matrix, 1, 0, 3, value);
  assert_true(value[0] == -256 && value[1] == 254 && value[2] == 0);
  lowbit_widen(&matrix, 0, 1, 2, value);
  assert_true(value[0] == -1 && value[1] == (real)1.5);
}

static void q8_blocks_stand_after_each_other(void **state) {
  (void)state;
  uint8_t bytes[2 * 2 * 34] = {0};
  uint8_t *block = bytes + 3 * 34; /* the second row's second block */
  block[1] = 0x40;                 /* half 2.0, little-endian */
  block[2] = 3, block[2 + 31] = 0x80;
  real value[32];
  const LowbitMatrix matrix = {LOWBIT_Q8_0, 2, 64, bytes, NULL};
  lowbit_widen(&matrix, 1, 32, 32, value);
  assert_true(value[0] == 6 && value[1] == 0 && value[31] == -256);
}

static void q4_blocks_hold_low_nibbles_first(void **state) {
  (void)state;
  uint8_t block[18] = {0, 0x3c}; /* half 1.0 */
  memset(block + 2, 0x88, 16);
  block[2] = 0xf0, block[17] = 0x1b;
  real value[32];
  const LowbitMatrix matrix = {LOWBIT_Q4_0, 1, 32, block, NULL};
  lowbit_widen(&matrix, 0, 0, 32, value);
  assert_true(value[0] == -8 && value[16] == 7 && value[15] == 3 && value[31] == -7);
  for (int i = 1; i < 15; i++) assert_true(value[i] == 0 && value[16 + i] == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_have_the_sizes_of_gguf), cmocka_unit_test(int8_numbers_have_a_scale_an_output),
                                     cmocka_unit_test(q8_blocks_stand_after_each_other),
                                     cmocka_unit_test(q4_blocks_hold_low_nibbles_first)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
