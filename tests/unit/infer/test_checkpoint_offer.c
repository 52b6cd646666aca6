/* The offer of a checkpoint's files: exact layout, and what a worker does not accept. */
#include "infer/cluster/checkpoint_offer.h"
#include <cmocka.h>
#include <string.h>

static OfferList list, again;
static uint8_t bytes[WIRE_OFFER_BYTES + OFFER_FILE_BYTES];

static void offer(int count, const char *const *names, const uint64_t *sizes) {
  list = (OfferList){.count = count};
  for (int i = 0; i < count; i++) {
    list.files[i].size = sizes[i];
    memset(list.files[i].digest, 0x40 + i, OFFER_DIGEST);
    strncpy(list.files[i].name, names[i], OFFER_NAME - 1);
  }
  offer_list(byte_cursor_to(bytes), (size_t)count * OFFER_FILE_BYTES, &list);
}

static void the_layout_is_the_documented_one(void **state) {
  (void)state;
  const char *const names[] = {"config.json", "model.safetensors"};
  const uint64_t sizes[] = {0x0102, 7};
  uint8_t expected[OFFER_FILE_BYTES] = {2, 1};
  memset(expected + 8, 0x40, 32);
  memcpy(expected + 40, "config.json", 11);
  offer(2, names, sizes);
  assert_int_equal(OFFER_FILE_BYTES, 128);
  assert_memory_equal(bytes, expected, sizeof expected);
  assert_int_equal(offer_list(byte_cursor_from(bytes), 2 * OFFER_FILE_BYTES, &again), STATUS_OK);
  assert_int_equal(again.count, 2);
  assert_int_equal(again.bytes, 0x0102 + 7);
  assert_string_equal(again.files[1].name, "model.safetensors");
  assert_memory_equal(again.files[1].digest, list.files[1].digest, OFFER_DIGEST);
}

static void names_stay_in_the_folder(void **state) {
  (void)state;
  const char *const names[] = {"", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "a b", "a\nb", "a\x1b[2J", "a\\b", "caf\xc3\xa9"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    offer(1, &names[i], (uint64_t[]){1});
    assert_int_equal(offer_list(byte_cursor_from(bytes), OFFER_FILE_BYTES, &again), STATUS_BAD_VALUE);
  }
  const char *const good = "a";
  offer(1, &good, (uint64_t[]){1});
  assert_int_equal(offer_list(byte_cursor_from(bytes), OFFER_FILE_BYTES, &again), STATUS_OK);
  bytes[OFFER_FILE_BYTES - 1] = 'x'; /* behind the end of the name */
  assert_int_equal(offer_list(byte_cursor_from(bytes), OFFER_FILE_BYTES, &again), STATUS_BAD_VALUE);
  memset(bytes + 40, 'x', OFFER_NAME); /* a name without an end */
  assert_int_equal(offer_list(byte_cursor_from(bytes), OFFER_FILE_BYTES, &again), STATUS_BAD_VALUE);
}

static void lengths_and_sizes_are_limited(void **state) {
  (void)state;
  const char *const names[] = {"a", "b"}, *const twice[] = {"a", "a"};
  offer(2, names, (uint64_t[]){OFFER_MAX_BYTES - 1, 1});
  assert_int_equal(offer_list(byte_cursor_from(bytes), 2 * OFFER_FILE_BYTES, &again), STATUS_OK);
  offer(2, names, (uint64_t[]){OFFER_MAX_BYTES, 1});
  assert_int_equal(offer_list(byte_cursor_from(bytes), 2 * OFFER_FILE_BYTES, &again), STATUS_BAD_VALUE);
  offer(2, names, (uint64_t[]){2, UINT64_MAX});
  assert_int_equal(offer_list(byte_cursor_from(bytes), 2 * OFFER_FILE_BYTES, &again), STATUS_BAD_VALUE);
  offer(2, twice, (uint64_t[]){1, 1});
  assert_int_equal(offer_list(byte_cursor_from(bytes), 2 * OFFER_FILE_BYTES, &again), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "a twice"));
  offer(2, names, (uint64_t[]){1, 1});
  assert_int_equal(offer_list(byte_cursor_from(bytes), 0, &again), STATUS_BAD_VALUE);
  assert_int_equal(offer_list(byte_cursor_from(bytes), 2 * OFFER_FILE_BYTES - 1, &again), STATUS_BAD_VALUE);
  assert_int_equal(offer_list(byte_cursor_from(bytes), sizeof bytes, &again), STATUS_BAD_VALUE);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_layout_is_the_documented_one), cmocka_unit_test(names_stay_in_the_folder),
                                     cmocka_unit_test(lengths_and_sizes_are_limited)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
