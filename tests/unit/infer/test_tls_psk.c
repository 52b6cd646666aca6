/* Secured connections over socket pairs: who has the key gets in, nobody else does; both ends derive the same keys; bytes arrive whole. And
 * the same of a plain connection, as far as it promises it. */
#include "infer/cluster/connection.h"
#include "shake_hands.h"
#include <cmocka.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct Pair {
  Connection *dials, *answers;
} Pair;

static KeyFile key_of(uint8_t first) { return (KeyFile){.bytes = {first, 2, 3}}; }

static void open_pair(Pair *pair, const KeyFile *dials, const KeyFile *answers) {
  int fd[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
  assert_int_equal(connection_tls(&pair->dials, fd[0], CONNECTION_DIALS, dials), STATUS_OK);
  assert_int_equal(connection_tls(&pair->answers, fd[1], CONNECTION_ANSWERS, answers), STATUS_OK);
}

static void close_pair(Pair *pair) {
  connection_free(pair->dials);
  connection_free(pair->answers);
}

/* Both in turn, until both are done or one fails. first [2] and messages [2]: the end of the dialler and of the other one. */
static void shake(Pair *pair, Status status[2], char messages[2][512]) {
  Connection *ends[2] = {pair->dials, pair->answers};
  bool done[2] = {false, false};
  status[0] = status[1] = STATUS_OK;
  for (int turn = 0; turn < 40; turn++) {
    for (int i = 0; i < 2; i++) {
      if (done[i] || status[i] != STATUS_OK) continue;
      status[i] = connection_step(ends[i], &done[i]);
      if (status[i] != STATUS_OK) snprintf(messages[i], 512, "%s", status_message());
    }
  }
  for (int i = 0; i < 2; i++) assert_true(done[i] == (status[i] == STATUS_OK));
}

static void connect_pair(Pair *pair, const KeyFile *key) {
  Status status[2];
  char messages[2][512];
  open_pair(pair, key, key);
  shake(pair, status, messages);
  assert_int_equal(status[0], STATUS_OK);
  assert_int_equal(status[1], STATUS_OK);
}

static void assert_moves(Connection *from, Connection *to, const char *text) {
  char got[64] = "";
  size_t length = strlen(text);
  assert_int_equal(connection_write(from, text, length), (ssize_t)length);
  assert_int_equal(connection_read(to, got, sizeof got), (ssize_t)length);
  assert_string_equal(got, text);
}

static void the_right_key_opens(void **state) {
  (void)state;
  const KeyFile key = key_of(1), none = key_file_open();
  for (int i = 0; i < 2; i++) {
    Pair pair;
    connect_pair(&pair, i ? &none : &key);
    assert_true(connection_is_secret(pair.dials));
    assert_moves(pair.dials, pair.answers, "there");
    assert_moves(pair.answers, pair.dials, "and back");
    close_pair(&pair);
  }
}

static void assert_refused(const KeyFile *dials, const KeyFile *answers, const char *why_dials, const char *why_answers) {
  Pair pair;
  Status status[2];
  char messages[2][512] = {"", ""}, byte;
  open_pair(&pair, dials, answers);
  shake(&pair, status, messages);
  assert_int_equal(status[0], STATUS_BAD_VALUE);
  assert_int_equal(status[1], STATUS_BAD_VALUE);
  assert_non_null(strstr(messages[0], why_dials));
  assert_non_null(strstr(messages[1], why_answers));
  assert_int_equal(connection_write(pair.dials, "x", 1), -1);
  assert_int_equal(errno, ENOTCONN);
  assert_int_equal(connection_read(pair.answers, &byte, 1), -1);
  assert_int_equal(errno, ENOTCONN);
  close_pair(&pair);
}

static void other_keys_do_not(void **state) {
  (void)state;
  const KeyFile one = key_of(1), two = key_of(2), zero = {.open = false}, none = key_file_open();
  assert_refused(&one, &two, "refuses this one's key", "another key");
  assert_refused(&none, &zero, "refuses this one's key", "has no key"); /* the bytes are the same, the name is another */
  assert_refused(&zero, &none, "refuses this one's key", "has a key and this one has none");
  assert_refused(&none, &one, "refuses this one's key", "has no key");
  assert_refused(NULL, &one, "refuses this one's key", "has no key");
}

/* One who speaks TLS as it is spoken elsewhere: an earlier version, no key, or a key without the ephemeral exchange. */
static unsigned int old_key(SSL *ssl, const char *hint, char *identity, unsigned int max, unsigned char *psk, unsigned int room) {
  (void)ssl, (void)hint, (void)max, (void)room;
  const KeyFile key = key_of(1);
  memcpy(identity, "astra-2", 8);
  memcpy(psk, key.bytes, KEY_FILE_BYTES);
  return KEY_FILE_BYTES;
}

static void assert_outsider_refused(int version, bool knows_key) {
  int fd[2];
  Connection *connection;
  const KeyFile key = key_of(1);
  Status status = STATUS_OK;
  bool done = false;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
  assert_int_equal(connection_tls(&connection, fd[0], CONNECTION_ANSWERS, &key), STATUS_OK);
  SSL_CTX *context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, version);
  if (knows_key) SSL_CTX_set_psk_client_callback(context, old_key);
  SSL *ssl = SSL_new(context);
  SSL_set_fd(ssl, fd[1]);
  for (int turn = 0; turn < 10 && status == STATUS_OK; turn++) {
    SSL_connect(ssl);
    status = connection_step(connection, &done);
  }
  assert_int_equal(status, STATUS_PEER);
  assert_false(done);
  SSL_free(ssl);
  SSL_CTX_free(context);
  connection_free(connection);
  close(fd[1]);
}

static void outsiders_are_refused(void **state) {
  (void)state;
  assert_outsider_refused(TLS1_2_VERSION, true);
  assert_outsider_refused(TLS1_3_VERSION, false);
  assert_outsider_refused(TLS1_3_VERSION, true); /* the old callback's key goes with SHA-256 only */
}

static void noise_is_refused(void **state) {
  (void)state;
  for (int role = CONNECTION_DIALS; role <= CONNECTION_ANSWERS; role++) {
    int fd[2];
    Connection *connection;
    bool done;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(connection_tls(&connection, fd[0], (ConnectionRole)role, NULL), STATUS_OK);
    assert_int_equal(connection_step(connection, &done), STATUS_OK);
    assert_int_equal(write(fd[1], "GET / HTTP/1.1\r\n\r\n", 18), 18);
    assert_int_equal(connection_step(connection, &done), STATUS_PEER);
    connection_free(connection);
    close(fd[1]);
  }
}

static void a_handshake_has_an_end(void **state) {
  (void)state;
  int fd[2];
  Connection *connection;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
  assert_int_equal(connection_tls(&connection, fd[0], CONNECTION_DIALS, NULL), STATUS_OK);
  assert_int_equal(shake_hands(connection, 0.05), STATUS_TIMEOUT);
  close(fd[1]);
  assert_int_equal(shake_hands(connection, 5), STATUS_PEER);
  assert_non_null(strstr(status_message(), "closed the connection"));
  connection_free(connection);
}

/* Both ends alike, another session or another context otherwise. */
static void exporters_are_equal_and_bound(void **state) {
  (void)state;
  const KeyFile key = key_of(1);
  const uint8_t context[3] = {1, 2, 3}, other[3] = {1, 2, 4};
  uint8_t here[88], there[88];
  Pair pair, second;
  connect_pair(&pair, &key);
  connect_pair(&second, &key);
  assert_int_equal(connection_export(pair.dials, "EXPORTER-astra-2 data", context, 3, here, 88), STATUS_OK);
  assert_int_equal(connection_export(pair.answers, "EXPORTER-astra-2 data", context, 3, there, 88), STATUS_OK);
  assert_memory_equal(here, there, 88);
  assert_int_equal(connection_export(pair.answers, "EXPORTER-astra-2 data", other, 3, there, 88), STATUS_OK);
  assert_memory_not_equal(here, there, 88);
  assert_int_equal(connection_export(pair.answers, "EXPORTER-astra-2 other", context, 3, there, 88), STATUS_OK);
  assert_memory_not_equal(here, there, 88);
  assert_int_equal(connection_export(second.answers, "EXPORTER-astra-2 data", context, 3, there, 88), STATUS_OK);
  assert_memory_not_equal(here, there, 88);
  close_pair(&pair);
  close_pair(&second);
  open_pair(&pair, &key, &key);
  assert_int_equal(connection_export(pair.dials, "EXPORTER-astra-2 data", context, 3, here, 88), STATUS_BAD_VALUE);
  close_pair(&pair);
}

/* More than the socket takes, each end both reading and writing, in pieces of many sizes. */
static void much_moves_both_ways(Connection *ends[2]) {
  enum { MUCH = 1 << 20 };
  uint8_t *sent[2], *got[2];
  size_t written[2] = {0, 0}, read[2] = {0, 0}, tried[2] = {0, 0};
  bool was_full = false;
  for (int i = 0; i < 2; i++) {
    sent[i] = malloc(MUCH), got[i] = calloc(1, MUCH);
    for (size_t j = 0; j < MUCH; j++) sent[i][j] = (uint8_t)(j * 7 + (j >> 9) + (size_t)i);
  }
  for (int turn = 0; turn < 1000000 && (read[0] < MUCH || read[1] < MUCH); turn++) {
    int i = turn & 1;
    size_t piece = 1 + (size_t)turn * 977 % 40000, left = MUCH - written[i];
    size_t wanted = piece < tried[i] ? tried[i] : piece < left ? piece : left;
    ssize_t n = left ? connection_write(ends[i], sent[i] + written[i], wanted) : 0;
    tried[i] = n < 0 ? wanted : 0; /* a retry is no shorter */
    assert_true(n >= 0 || errno == EAGAIN);
    was_full |= n < 0;
    written[i] += n > 0 ? (size_t)n : 0;
    if (turn % 7) continue; /* slower than it is written */
    left = MUCH - read[!i];
    n = left ? connection_read(ends[i], got[i] + read[!i], piece < left ? piece : left) : 0;
    assert_true(n > 0 || !left || errno == EAGAIN);
    read[!i] += n > 0 ? (size_t)n : 0;
  }
  assert_true(was_full);
  assert_memory_equal(got[0], sent[1], MUCH);
  assert_memory_equal(got[1], sent[0], MUCH);
  for (int i = 0; i < 2; i++) free(sent[i]), free(got[i]);
}

static void bytes_arrive_whole(void **state) {
  (void)state;
  const KeyFile key = key_of(9);
  Pair pair;
  int fd[2];
  connect_pair(&pair, &key);
  much_moves_both_ways((Connection *[2]){pair.dials, pair.answers});
  close_pair(&pair);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
  assert_int_equal(connection_plain(&pair.dials, fd[0]), STATUS_OK);
  assert_int_equal(connection_plain(&pair.answers, fd[1]), STATUS_OK);
  much_moves_both_ways((Connection *[2]){pair.dials, pair.answers});
  close_pair(&pair);
}

static void ends_and_forgeries_show(void **state) {
  (void)state;
  const KeyFile key = key_of(9);
  char byte;
  Pair pair;
  connect_pair(&pair, &key);
  connection_free(pair.dials); /* in order: with a goodbye */
  assert_int_equal(connection_read(pair.answers, &byte, 1), 0);
  assert_int_equal(connection_write(pair.answers, "a", 1), -1); /* and no SIGPIPE */
  assert_true(errno == EPIPE || errno == ECONNRESET);
  connection_free(pair.answers);
  connect_pair(&pair, &key);
  shutdown(connection_fd(pair.dials), SHUT_WR); /* cut off */
  assert_int_equal(connection_read(pair.answers, &byte, 1), 0);
  close_pair(&pair);
  connect_pair(&pair, &key);
  const uint8_t forged[24] = {0x17, 3, 3, 0, 19, 1, 2, 3};
  assert_int_equal(send(connection_fd(pair.dials), forged, 24, MSG_NOSIGNAL), 24);
  assert_int_equal(connection_read(pair.answers, &byte, 1), -1);
  assert_int_equal(errno, EPROTO);
  close_pair(&pair);
}

static void plain_connections_have_no_secrets(void **state) {
  (void)state;
  int fd[2];
  uint8_t out[8];
  bool done = false;
  Pair pair;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
  assert_int_equal(connection_plain(&pair.dials, fd[0]), STATUS_OK);
  assert_int_equal(connection_plain(&pair.answers, fd[1]), STATUS_OK);
  assert_int_equal(connection_step(pair.dials, &done), STATUS_OK);
  assert_true(done && !connection_is_secret(pair.dials));
  assert_moves(pair.dials, pair.answers, "as it is");
  assert_int_equal(connection_export(pair.dials, "EXPORTER-astra-2 data", NULL, 0, out, 8), STATUS_UNSUPPORTED);
  connection_free(pair.dials);
  assert_int_equal(connection_read(pair.answers, out, 8), 0);
  connection_free(pair.answers);
  connection_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_right_key_opens),
                                     cmocka_unit_test(other_keys_do_not),
                                     cmocka_unit_test(outsiders_are_refused),
                                     cmocka_unit_test(noise_is_refused),
                                     cmocka_unit_test(a_handshake_has_an_end),
                                     cmocka_unit_test(exporters_are_equal_and_bound),
                                     cmocka_unit_test(bytes_arrive_whole),
                                     cmocka_unit_test(ends_and_forgeries_show),
                                     cmocka_unit_test(plain_connections_have_no_secrets)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
