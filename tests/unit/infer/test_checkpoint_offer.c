/* The offer of a checkpoint's files: exact layout, what a worker does not accept, and that a checkpoint which could not be read is
 * offered once it can. */
#include "base/files.h"
#include <openssl/evp.h>
#include <stdbool.h>

static bool digests_fail; /* as where memory is short */
#define EVP_MD_CTX_new() (digests_fail ? NULL : EVP_MD_CTX_new())
#include "infer/cluster/checkpoint_offer.c"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* While a worker looks through 13 GB that it has from before, which on an SD card takes long, it is not given up. */
static void slow_storage_has_time(void **state) {
  (void)state;
  const OfferList large = {.bytes = 13000000000}, small = {.bytes = 1000};
  assert_true(max_silence(&large) > 13e9 / 10e6);
  assert_true(max_silence(&small) == 300);
}

static bool go_on(void *context) { return context == NULL; }

static void want_of_memory_is_told_as_such(void **state) {
  (void)state;
  OfferFile file = {.name = "config.json"};
  int fd = open("/dev/null", O_RDONLY);
  digests_fail = true;
  assert_int_equal(hash_file(fd, &file, go_on, NULL), STATUS_NO_MEMORY);
  assert_string_equal(status_message(), "no memory for the digest of a file");
  digests_fail = false;
  assert_int_equal(hash_file(fd, &file, go_on, NULL), STATUS_OK);
  close(fd);
}

static Status end_offer(Offer **ends) {
  Status status;
  while ((status = offer_end(ends, false)) == STATUS_BUSY) usleep(1000);
  return status;
}

/* Of the next message that is no sign of life. */
static int next_kind(int fd) {
  uint8_t message[WIRE_HEADER];
  WireHeader header;
  do {
    assert_int_equal(read(fd, message, sizeof message), sizeof message);
    assert_int_equal(wire_parse(message, WIRE_OFFER_BYTES, &header), STATUS_OK);
  } while (header.kind == WIRE_PING);
  return header.kind;
}

/* Offers the catalogue to a worker whose end is pair[1]. */
static Offer *offer_to_pair(OfferCatalogue *catalogue, int pair[2]) {
  Connection connection;
  Offer *made;
  assert_int_equal(connection_pair(pair), STATUS_OK);
  assert_int_equal(connection_open(&connection, pair[0]), STATUS_OK);
  assert_int_equal(offer_start(&made, catalogue, &connection, "a worker"), STATUS_OK);
  return made;
}

/* A folder that is not there yet, or cannot be read for a while, is offered to the next worker that asks. */
static void what_failed_is_tried_again(void **state) {
  (void)state;
  char folder[TEMPORARY_PATH], checkpoint[TEMPORARY_PATH + 8], path[TEMPORARY_PATH + 24];
  OfferCatalogue *catalogue = NULL;
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(checkpoint, sizeof checkpoint, "%s/model", folder);
  snprintf(path, sizeof path, "%s/config.json", checkpoint);
  assert_int_equal(offer_catalogue_open(&catalogue, checkpoint), STATUS_OK);
  for (int made = 0; made < 2; made++) {
    int pair[2];
    if (made) assert_int_equal(files_make_dirs(checkpoint), STATUS_OK);
    if (made) assert_int_equal(files_write(path, "{}", 2), STATUS_OK);
    Offer *offer = offer_to_pair(catalogue, pair);
    if (made) assert_int_equal(next_kind(pair[1]), WIRE_OFFER);
    if (made) close(pair[1]);
    assert_int_equal(end_offer(&offer), made ? STATUS_PEER : STATUS_BAD_VALUE);
    if (!made) assert_non_null(strstr(status_message(), "cannot be offered"));
    if (!made) close(pair[1]);
  }
  offer_catalogue_free(catalogue);
  assert_int_equal(remove_tree(folder), 0);
}

/* A directory with one tensor of one number. */
static void write_model(const char *folder, char number) {
  static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  char path[TEMPORARY_PATH + 32], file[8 + sizeof header - 1 + 4] = {sizeof header - 1};
  memcpy(file + 8, header, sizeof header - 1);
  file[sizeof file - 1] = number;
  snprintf(path, sizeof path, "%s/%s", folder, CHECKPOINT_WHOLE);
  assert_int_equal(files_write(path, file, sizeof file), STATUS_OK); /* beside it and renamed */
}

/* Whom the leader would refuse with such a model must not be given it. */
static void another_model_in_its_place_is_not_offered(void **state) {
  (void)state;
  char folder[TEMPORARY_PATH];
  OfferCatalogue *catalogue;
  assert_int_equal(make_temporary_folder(folder), 0);
  write_model(folder, 1);
  assert_int_equal(offer_catalogue_open(&catalogue, folder), STATUS_OK);
  for (int same = 0; same < 2; same++) {
    int pair[2];
    write_model(folder, same ? 1 : 2);
    Offer *offer = offer_to_pair(catalogue, pair);
    if (same) assert_int_equal(next_kind(pair[1]), WIRE_OFFER);
    if (same) close(pair[1]);
    assert_int_equal(end_offer(&offer), same ? STATUS_PEER : STATUS_BAD_VALUE);
    if (!same) assert_non_null(strstr(status_message(), "holds another model than when this command started: start it again"));
    if (!same) close(pair[1]);
  }
  offer_catalogue_free(catalogue);
  assert_int_equal(remove_tree(folder), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_layout_is_the_documented_one),
                                     cmocka_unit_test(names_stay_in_the_folder),
                                     cmocka_unit_test(lengths_and_sizes_are_limited),
                                     cmocka_unit_test(slow_storage_has_time),
                                     cmocka_unit_test(want_of_memory_is_told_as_such),
                                     cmocka_unit_test(what_failed_is_tried_again),
                                     cmocka_unit_test(another_model_in_its_place_is_not_offered)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
