/* A worker that fetches, in a process of its own, with the test as its leader: what a leader may send, and what it may not, each time with
 * nothing written but in the directory that was asked for. */
#include "base/files.h"
#include "infer/cluster/checkpoint_fetch.h"
#include "infer/cluster/checkpoint_offer.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = OFFER_PIECE + 1000 };
static char folder[TEMPORARY_PATH], directory[TEMPORARY_PATH + 8];
static uint8_t content[SIZE];

static int make_folder(void **state) {
  (void)state;
  if (make_temporary_folder(folder) != 0) return -1;
  snprintf(directory, sizeof directory, "%s/model", folder);
  for (int i = 0; i < SIZE; i++) content[i] = (uint8_t)(i * 7 + i / 251);
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  remove_tree(folder);
  return 0;
}

/* ---- a leader that does as a test says */

typedef struct Leader {
  OfferList list;
  int64_t shift;   /* added to the offset of each piece */
  size_t shorter;  /* bytes that are left out of each */
  uint32_t number; /* added to the number of its file */
  size_t pieces;   /* that were asked for */
  char refusal[WIRE_TEXT + 1];
  bool fetched;
  uint8_t payload[WIRE_TEXT], message[WIRE_HEADER + WIRE_PIECE_BYTES];
  Connection *connection;
} Leader;

static Status place(void *context, Connection *from, const WireHeader *header, uint8_t **payload) {
  Leader *leader = context;
  (void)header;
  *payload = connection_queued(from) ? NULL : leader->payload;
  return STATUS_OK;
}

static Status deliver(void *context, Connection *from, const WireHeader *header, uint8_t *payload) {
  Leader *leader = context;
  WireHeader answer = {.sender = WIRE_LEADER};
  if (header->kind == WIRE_REFUSE) memcpy(leader->refusal, payload, header->bytes);
  leader->fetched |= header->kind == WIRE_FETCHED;
  if (header->kind == WIRE_REFUSE || header->kind == WIRE_FETCHED) return status_set(STATUS_INTERRUPTED, "over");
  assert_int_equal(header->kind, WIRE_FETCH);
  if (header->count == 0) {
    answer = (WireHeader){.kind = WIRE_OFFER, .sender = WIRE_LEADER, .count = (uint32_t)leader->list.count};
    answer.bytes = answer.count * OFFER_FILE_BYTES;
    offer_list(byte_cursor_to(leader->message + WIRE_HEADER), answer.bytes, &leader->list);
  } else {
    uint64_t at = wire_get_u64(payload);
    size_t size = SIZE - at < OFFER_PIECE ? (size_t)(SIZE - at) : OFFER_PIECE;
    assert_true(at < SIZE && header->count <= (uint32_t)leader->list.count);
    leader->pieces++;
    wire_put_u64(leader->message + WIRE_HEADER, at + (uint64_t)leader->shift);
    memcpy(leader->message + WIRE_HEADER + 8, content + at, size);
    answer = (WireHeader){.kind = WIRE_PIECE, .sender = WIRE_LEADER, .count = header->count + leader->number};
    answer.bytes = (uint32_t)(8 + size - leader->shorter);
  }
  wire_pack(&answer, leader->message);
  return connection_send(from, leader->message, WIRE_HEADER + (size_t)answer.bytes);
}

/* The exit code of a worker that fetches from it. */
static int serve(Leader *leader) {
  int pair[2], ended = 0;
  pid_t parent = getpid();
  assert_int_equal(connection_pair(pair), STATUS_OK);
  pid_t pid = fork();
  if (pid == 0) {
    FetchPlace place = {.parent = parent, .directory = directory, .leader = "the test", .idle_timeout = 20};
    close(pair[0]);
    _exit(connection_plain(&place.control, pair[1]) == STATUS_OK ? checkpoint_fetch_run(&place) : 2);
  }
  close(pair[1]);
  const ConnectionSink sink = {.context = leader, .from = WIRE_FROM_DEVICE, .max_payload = WIRE_TEXT, .place = place, .deliver = deliver};
  assert_int_equal(connection_plain(&leader->connection, pair[0]), STATUS_OK);
  connection_receive(leader->connection, 1, &sink);
  while (connections_step(&leader->connection, 1, 10) == STATUS_OK && connection_is_open(leader->connection)) continue;
  connection_free(leader->connection);
  assert_int_equal(waitpid(pid, &ended, 0), pid);
  assert_true(WIFEXITED(ended));
  return WEXITSTATUS(ended);
}

static void offer(Leader *leader, const char *name, uint64_t size) {
  OfferFile *file = &leader->list.files[leader->list.count++];
  *file = (OfferFile){.size = size};
  strncpy(file->name, name, OFFER_NAME - 1);
  EVP_Digest(content, SIZE, file->digest, NULL, EVP_sha256(), NULL);
}

static bool exists(const char *name) {
  char path[TEMPORARY_PATH + 64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return access(path, F_OK) == 0;
}

/* ---- */

static void put(const char *name, const char *text) {
  char path[TEMPORARY_PATH + 64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_int_equal(files_write(path, text, strlen(text)), STATUS_OK);
}

static void drop(const char *name) {
  char path[TEMPORARY_PATH + 64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_int_equal(unlink(path), 0);
}

/* In bytes: a gigabyte more, which others may free meanwhile. */
static uint64_t more_than_fits(void) {
  struct statvfs space;
  assert_int_equal(statvfs(folder, &space), 0);
  return (uint64_t)space.f_bavail * space.f_frsize + ((uint64_t)1 << 30);
}

static void bad_offers_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *name;
    uint64_t size;
    const char *why;
  } rows[] = {{"../../escape", SIZE, "under a name that is not accepted"},
              {"/tmp/escape", SIZE, "under a name that is not accepted"},
              {".bashrc", SIZE, "under a name that is not accepted"},
              {"config.json", SIZE, "config.json twice"},
              {"huge.json", (uint64_t)1 << 50, "at most"},
              {"large.json", 0, "has room for"}}; /* 0: more than there is room for */
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const uint64_t size = rows[i].size ? rows[i].size : more_than_fits();
    if (size > OFFER_MAX_BYTES - SIZE && !rows[i].size) {
      print_message("skipped: there is room for every checkpoint that is accepted\n");
      continue;
    }
    Leader *leader = calloc(1, sizeof *leader);
    offer(leader, "config.json", SIZE);
    offer(leader, rows[i].name, size);
    assert_int_equal(serve(leader), 1);
    assert_non_null(strstr(leader->refusal, rows[i].why));
    assert_int_equal(leader->pieces, 0);
    assert_false(exists("model") || exists("escape") || exists("model.partial/config.json"));
    free(leader);
  }
}

static void other_pieces_are_refused(void **state) {
  (void)state;
  const Leader rows[] = {{.shift = 1}, {.shift = -OFFER_PIECE}, {.shorter = 1}, {.number = 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Leader *leader = calloc(1, sizeof *leader);
    leader->shift = rows[i].shift;
    leader->shorter = rows[i].shorter;
    leader->number = rows[i].number;
    offer(leader, "config.json", SIZE);
    offer(leader, "other.json", SIZE);
    assert_int_equal(serve(leader), 1);
    if (!leader->number) assert_non_null(strstr(leader->refusal, "were due")); /* a message that is not due ends the connection */
    assert_false(exists("model") || exists("model.partial/config.json"));
    free(leader);
  }
}

static void what_arrives_otherwise_than_offered_is_refused(void **state) {
  (void)state;
  Leader *leader = calloc(1, sizeof *leader);
  offer(leader, "config.json", SIZE);
  leader->list.files[0].digest[31] ^= 1;
  assert_int_equal(serve(leader), 1);
  assert_non_null(strstr(leader->refusal, "config.json did not arrive as it was offered"));
  assert_false(exists("model") || exists("model.partial/config.json"));
  free(leader);
}

/* What somebody keeps where the files are to come is left alone, also under a name of the offer. */
static void files_of_others_stay(void **state) {
  (void)state;
  static const char *const mine[] = {"notes.txt", "config.json", "0123456789abcdef01234567.part.txt", ".profile"};
  for (size_t i = 0; i < sizeof mine / sizeof *mine; i++) {
    char name[64];
    Leader *leader = calloc(1, sizeof *leader);
    snprintf(name, sizeof name, "model.partial/%s", mine[i]);
    offer(leader, "config.json", SIZE);
    put(name, "mine");
    put("model.partial/0123456789abcdef01234567.part", "of another offer");
    assert_int_equal(serve(leader), 1);
    assert_non_null(strstr(leader->refusal, mine[i]));
    assert_non_null(strstr(leader->refusal, "which no fetch has written"));
    assert_true(leader->pieces == 0 && exists(name) && exists("model.partial/0123456789abcdef01234567.part"));
    drop(name);
    free(leader);
  }
}

/* Of a fetch of other files that was interrupted nothing is left in the checkpoint. */
static void files_of_earlier_offers_go(void **state) {
  (void)state;
  Leader *leader = calloc(1, sizeof *leader);
  offer(leader, "older.json", SIZE);
  offer(leader, "config.json", SIZE);
  leader->list.files[1].digest[31] ^= 1;
  assert_int_equal(serve(leader), 1);
  assert_true(exists("model.partial/older.json"));
  put("model.partial/0123456789abcdef01234567.part", "of another offer");
  *leader = (Leader){0};
  offer(leader, "config.json", SIZE);
  offer(leader, "bad.json", SIZE);
  leader->list.files[1].digest[31] ^= 1;
  assert_int_equal(serve(leader), 1);
  assert_true(exists("model.partial/config.json") && !exists("model.partial/older.json"));
  assert_false(exists("model.partial/0123456789abcdef01234567.part"));
  drop("model.partial/config.json");
  free(leader);
}

static void it_comes_once(void **state) {
  (void)state;
  char path[TEMPORARY_PATH + 64], *checkpoint = NULL;
  struct stat file;
  Leader *leader = calloc(1, sizeof *leader);
  offer(leader, "config.json", SIZE);
  offer(leader, "empty.json", 0);
  EVP_Digest("", 0, leader->list.files[1].digest, NULL, EVP_sha256(), NULL);
  assert_int_equal(serve(leader), 0);
  assert_true(leader->fetched && leader->pieces == 2);
  snprintf(path, sizeof path, "%s/config.json", directory);
  assert_true(stat(path, &file) == 0 && file.st_size == SIZE);
  assert_true(exists("model/empty.json") && !exists("model.partial") && !exists("model/.astra-fetched"));
  assert_int_equal(checkpoint_fetch_find(directory, &checkpoint), STATUS_OK);
  assert_string_equal(checkpoint, directory);
  free(checkpoint);
  /* Another process has fetched it meanwhile: nothing is asked for. */
  leader->pieces = 0;
  leader->fetched = false;
  assert_int_equal(serve(leader), 0);
  assert_true(leader->fetched && leader->pieces == 0 && !exists("model.partial"));
  free(leader);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bad_offers_are_refused),
                                     cmocka_unit_test(other_pieces_are_refused),
                                     cmocka_unit_test(what_arrives_otherwise_than_offered_is_refused),
                                     cmocka_unit_test(files_of_others_stay),
                                     cmocka_unit_test(files_of_earlier_offers_go),
                                     cmocka_unit_test(it_comes_once)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
