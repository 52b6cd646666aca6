/* Packing of codes: round trips, the exact bit layout, sizes, and refusal of hostile bytes. */
#include "base/rng.h"
#include "base/status.h"
#include "unit/vq/vq_check.h"
#include "vq/pack.h"
#include <stdlib.h>

static void bits_and_sizes(void **state) {
  (void)state;
  const struct {
    int64_t entries;
    int bits;
  } cases[] = {{2, 1}, {3, 2}, {4, 2}, {5, 3}, {256, 8}, {257, 9}, {1000, 10}, {1024, 10}, {1025, 11}, {65535, 16}, {65536, 16}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(pack_bits(cases[i].entries), cases[i].bits);
    for (int64_t groups = 1; groups < 70; groups++)
      assert_int_equal(pack_bytes_per_token(groups, cases[i].entries), ((size_t)groups * (size_t)cases[i].bits + 7) / 8);
  }
  assert_int_equal(pack_bytes_per_token(32, 1024), 40);
}

/* 0x155 = 01 0101 0101, 0x2aa = 10 1010 1010, 1: the lowest bit first, codes across byte borders. */
static void known_bytes(void **state) {
  (void)state;
  const int32_t codes[3] = {0x155, 0x2aa, 1};
  const uint8_t wanted[4] = {0x55, 0xa9, 0x1a, 0x00};
  uint8_t bytes[4];
  memset(bytes, 0xff, sizeof bytes);
  pack_codes(codes, 1, 3, 1024, bytes);
  assert_memory_equal(bytes, wanted, 4);
}

/* The definition, a bit at a time: bit b of code i is bit (i bits + b) of the token's stream. */
static void every_bit_in_place(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 1, 1);
  int32_t codes[13];
  uint8_t bytes[13 * 2];
  for (int i = 0; i < 13; i++) codes[i] = (int32_t)rng_below(&rng, 1000);
  pack_codes(codes, 1, 13, 1000, bytes);
  for (int i = 0; i < 13; i++)
    for (int b = 0; b < 10; b++) assert_int_equal(bytes[(i * 10 + b) / 8] >> ((i * 10 + b) % 8) & 1, codes[i] >> b & 1);
}

static void round_trip(int64_t tokens, int64_t groups, int64_t entries, Rng *rng) {
  size_t size = (size_t)tokens * pack_bytes_per_token(groups, entries);
  int32_t *codes = malloc((size_t)(tokens * groups) * sizeof *codes), *back = malloc((size_t)(tokens * groups) * sizeof *back);
  uint8_t *bytes = malloc(size + 1);
  bytes[size] = 0x5a;
  for (int64_t i = 0; i < tokens * groups; i++) codes[i] = i % 7 == 0 ? (int32_t)(entries - 1) : (int32_t)rng_below(rng, (uint64_t)entries);
  pack_codes(codes, tokens, groups, entries, bytes);
  assert_int_equal(bytes[size], 0x5a);
  assert_int_equal(pack_unpack(bytes, tokens, groups, entries, back), STATUS_OK);
  assert_memory_equal(codes, back, (size_t)(tokens * groups) * sizeof *codes);
  free(codes);
  free(back);
  free(bytes);
}

static void round_trips(void **state) {
  (void)state;
  const int64_t entries[] = {2, 3, 5, 16, 255, 256, 257, 1000, 1024, 65535, 65536};
  Rng rng;
  rng_init(&rng, 2, 1);
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    round_trip(3, 1, entries[i], &rng);
    for (int n = 0; n < 40; n++) round_trip((int64_t)rng_below(&rng, 20), 1 + (int64_t)rng_below(&rng, 65), entries[i], &rng);
  }
}

static void too_large_a_code(void **state) {
  (void)state;
  const int32_t codes[4] = {1, 2, 3, 1000};
  uint8_t bytes[6];
  int32_t back[4];
  pack_codes(codes, 2, 2, 1024, bytes); /* 2 x 10 bits in 3 bytes a token */
  assert_int_equal(pack_unpack(bytes, 1, 2, 1000, back), STATUS_OK);
  uint8_t token[3];
  pack_codes(codes + 2, 1, 2, 1024, token);
  assert_int_equal(pack_unpack(token, 1, 2, 1000, back), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "group 1"));
  assert_non_null(strstr(status_message(), "code 1000"));
  assert_non_null(strstr(status_message(), "1000 entries"));
}

static void padding_that_is_set(void **state) {
  (void)state;
  int32_t back[2];
  for (int bit = 20; bit < 24; bit++) {
    uint8_t bytes[3] = {0, 0, 0};
    bytes[bit / 8] = (uint8_t)(1 << bit % 8);
    assert_int_equal(pack_unpack(bytes, 1, 2, 1024, back), STATUS_BAD_VALUE);
    assert_non_null(strstr(status_message(), "padding"));
  }
}

/* Whatever the bytes, either they are refused or packing the codes again gives the same bytes. */
static void any_bytes(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 3, 1);
  for (int n = 0; n < 20000; n++) {
    int64_t groups = 1 + (int64_t)rng_below(&rng, 9), entries = 2 + (int64_t)rng_below(&rng, 40);
    uint8_t bytes[16], again[16];
    int32_t codes[9];
    size_t size = pack_bytes_per_token(groups, entries);
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(rng_next(&rng) & rng_next(&rng));
    if (pack_unpack(bytes, 1, groups, entries, codes) != STATUS_OK) continue;
    for (int64_t g = 0; g < groups; g++) assert_in_range(codes[g], 0, entries - 1);
    pack_codes(codes, 1, groups, entries, again);
    assert_memory_equal(bytes, again, size);
  }
}

/* The definition again: code i of the packet begins at bit i bits, whatever token it belongs to. */
static void dense_codes_leave_no_gaps(void **state) {
  (void)state;
  Rng rng;
  rng_init(&rng, 4, 1);
  for (int n = 0; n < 400; n++) {
    int64_t tokens = 1 + (int64_t)rng_below(&rng, 20), groups = 1 + (int64_t)rng_below(&rng, 5),
            entries = 2 + (int64_t)rng_below(&rng, 2000);
    int bits = pack_bits(entries);
    int32_t codes[100], back[100];
    uint8_t bytes[220];
    size_t size = pack_dense_bytes(tokens, groups, entries);
    assert_int_equal(size, (size_t)(tokens * groups * bits + 7) / 8);
    for (int64_t i = 0; i < tokens * groups; i++) codes[i] = (int32_t)rng_below(&rng, (uint64_t)entries);
    bytes[size] = 0x5a;
    pack_dense(codes, tokens, groups, entries, bytes);
    assert_int_equal(bytes[size], 0x5a);
    for (int64_t i = 0; i < tokens * groups * bits; i++) assert_int_equal(bytes[i / 8] >> i % 8 & 1, codes[i / bits] >> i % bits & 1);
    assert_int_equal(pack_dense_unpack(bytes, tokens, groups, entries, back), STATUS_OK);
    assert_memory_equal(codes, back, (size_t)(tokens * groups) * sizeof *codes);
  }
  assert_int_equal(pack_dense_unpack(NULL, 0, 3, 5, NULL), STATUS_OK);
}

static void dense_faults_are_named(void **state) {
  (void)state;
  int32_t back[6];
  uint8_t bytes[3] = {0}; /* 3 tokens of 2 codes of 3 bits: 18 bits */
  bytes[1] = 0x70;        /* bits 12 to 14: the first code of token 2 */
  assert_int_equal(pack_dense_unpack(bytes, 3, 2, 5, back), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "token 2, group 0 holds code 7"));
  bytes[1] = 0;
  bytes[2] = 0x04; /* bit 18 */
  assert_int_equal(pack_dense_unpack(bytes, 3, 2, 5, back), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "token 2 ends in padding"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bits_and_sizes),
      cmocka_unit_test(known_bytes),
      cmocka_unit_test(every_bit_in_place),
      cmocka_unit_test(round_trips),
      cmocka_unit_test(too_large_a_code),
      cmocka_unit_test(padding_that_is_set),
      cmocka_unit_test(any_bytes),
      cmocka_unit_test(dense_codes_leave_no_gaps),
      cmocka_unit_test(dense_faults_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
