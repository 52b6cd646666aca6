/* Messages over a connection, plain or in TLS: in pieces, in both directions at once, held back, refused, cut off. */
#include "base/clock.h"
#include "infer/cluster/connection.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { LONG = 1 << 20 };

typedef struct End {
  Connection *connection;
  uint8_t *buffer; /* LONG */
  bool full, refuse;
  int delivered;
  WireHeader last;
} End;

static Status place(void *context, Connection *from, const WireHeader *header, uint8_t **payload) {
  End *end = context;
  (void)from, (void)header;
  if (end->refuse) return status_set(STATUS_BAD_VALUE, "sent what nobody wants");
  *payload = end->full ? NULL : end->buffer;
  return STATUS_OK;
}

static Status deliver(void *context, Connection *from, const WireHeader *header, uint8_t *payload) {
  End *end = context;
  (void)from;
  assert_ptr_equal(payload, end->buffer);
  end->delivered++;
  end->last = *header;
  return STATUS_OK;
}

static void shake(Connection *a, Connection *b) {
  bool done[2] = {false, false};
  for (int turn = 0; turn < 10 && !(done[0] && done[1]); turn++) {
    assert_int_equal(connection_step(a, &done[0]), STATUS_OK);
    assert_int_equal(connection_step(b, &done[1]), STATUS_OK);
  }
  assert_true(done[0] && done[1]);
}

/* Both ends. */
static void open_both(void **state, Connection *ends[2]) {
  const bool secured = *(bool *)*state;
  int fd[2];
  assert_int_equal(connection_pair(fd), STATUS_OK);
  for (int i = 0; i < 2; i++) {
    Status status =
        secured ? connection_tls(&ends[i], fd[i], i ? CONNECTION_ANSWERS : CONNECTION_DIALS, NULL) : connection_plain(&ends[i], fd[i]);
    assert_int_equal(status, STATUS_OK);
  }
  shake(ends[0], ends[1]);
}

static void open_near(End *end, Connection *connection, int peer) {
  ConnectionSink sink = {end, WIRE_FROM_LEADER, LONG, place, deliver};
  *end = (End){.buffer = malloc(LONG)};
  end->connection = connection;
  connection_receive(connection, peer, &sink);
}

/* One end that takes messages, and the other. */
static Connection *open_end(void **state, End *end, int peer) {
  Connection *ends[2];
  open_both(state, ends);
  open_near(end, ends[0], peer);
  return ends[1];
}

static void put(Connection *to, const uint8_t *bytes, size_t size) { assert_int_equal(connection_write(to, bytes, size), (ssize_t)size); }

static void close_end(End *end) {
  connection_free(end->connection);
  free(end->buffer);
}

/* A message of `bytes` payload bytes that differ from place to place. */
static uint8_t *make_message(uint32_t bytes, uint8_t salt, uint32_t request) {
  uint8_t *message = malloc(WIRE_HEADER + bytes);
  wire_pack(&(WireHeader){.kind = WIRE_CLASSIFY, .sender = 1, .request = request, .count = 1, .bytes = bytes}, message);
  for (uint32_t i = 0; i < bytes; i++) message[WIRE_HEADER + i] = (uint8_t)(i * 31 + (i >> 8) + salt);
  return message;
}

static Status step(Connection *connection, double seconds) { return connections_step(&connection, 1, seconds); }

static void one_byte_at_a_time(void **state) {
  End end;
  uint8_t *message = make_message(50, 7, 1);
  Connection *other = open_end(state, &end, 1);
  for (size_t i = 0; i < WIRE_HEADER + 50; i++) {
    assert_int_equal(end.delivered, 0);
    put(other, message + i, 1);
    assert_int_equal(step(end.connection, 1), STATUS_OK);
  }
  assert_int_equal(end.delivered, 1);
  assert_memory_equal(end.buffer, message + WIRE_HEADER, 50);
  assert_int_equal(end.connection->received.bytes, WIRE_HEADER + 50);
  assert_int_equal(end.connection->received.messages, 1);
  connection_free(other);
  close_end(&end);
  free(message);
}

/* Both ends have more to say than the socket buffers hold: neither may wait for the other to read first. */
static void full_buffers_both_ways(void **state) {
  int small = 4096;
  Connection *ends[2];
  End a, b;
  uint8_t *from_a = make_message(LONG, 1, 1), *from_b = make_message(LONG - 1, 2, 2);
  open_both(state, ends);
  for (int i = 0; i < 2; i++) setsockopt(connection_fd(ends[i]), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  open_near(&a, ends[0], 1);
  open_near(&b, ends[1], 0);
  assert_int_equal(connection_send(a.connection, from_a, WIRE_HEADER + LONG), STATUS_OK);
  assert_int_equal(connection_send(b.connection, from_b, WIRE_HEADER + LONG - 1), STATUS_OK);
  assert_int_equal(step(a.connection, 0), STATUS_OK);
  assert_int_equal(connection_queued(a.connection), 1); /* it really did not fit */
  Connection *both[2] = {a.connection, b.connection};
  double until = clock_now() + 20;
  while ((!a.delivered || !b.delivered) && clock_now() < until) assert_int_equal(connections_step(both, 2, 1), STATUS_OK);
  assert_int_equal(a.delivered + b.delivered, 2);
  assert_memory_equal(b.buffer, from_a + WIRE_HEADER, LONG);
  assert_memory_equal(a.buffer, from_b + WIRE_HEADER, LONG - 1);
  assert_int_equal(connection_queued(a.connection), 0);
  assert_int_equal(a.connection->sent.bytes, WIRE_HEADER + LONG);
  assert_int_equal(a.connection->sent.messages, 1);
  close_end(&a);
  close_end(&b);
  free(from_a);
  free(from_b);
}

static void a_held_back_peer_waits_without_spinning(void **state) {
  End end;
  uint8_t *message = make_message(100, 3, 1);
  Connection *other = open_end(state, &end, 1);
  end.full = true;
  put(other, message, WIRE_HEADER + 100);
  assert_int_equal(step(end.connection, 1), STATUS_OK);
  double start = clock_now();
  assert_int_equal(step(end.connection, 0.1), STATUS_OK);
  assert_true(clock_now() - start > 0.09); /* data waits, yet nothing is to be done */
  assert_int_equal(end.delivered, 0);
  end.full = false;
  start = clock_now();
  assert_int_equal(step(end.connection, 20), STATUS_OK);
  assert_true(clock_now() - start < 10); /* what was held back has moved: that is an event, though no byte came just now */
  assert_int_equal(end.delivered, 1);
  assert_memory_equal(end.buffer, message + WIRE_HEADER, 100);
  connection_free(other);
  close_end(&end);
  free(message);
}

/* It has its turns, between which others have theirs; nobody waits for an event meanwhile, of which TLS, which has read a whole record,
 * would not hear. */
static void a_peer_that_sends_without_end_has_turns(void **state) {
  enum { SENT = 650 }; /* one record of TLS */
  End end;
  uint8_t *messages = malloc(SENT * WIRE_HEADER);
  Connection *other = open_end(state, &end, 1);
  for (int i = 0; i < SENT; i++)
    wire_pack(&(WireHeader){.kind = WIRE_CLASSIFY, .sender = 1, .request = 1 + (uint32_t)i, .count = 1}, messages + i * WIRE_HEADER);
  put(other, messages, SENT * WIRE_HEADER);
  const double start = clock_now();
  int turns = 0;
  for (int before = -1; end.delivered < SENT; turns++) {
    connections_wait(&end.connection, 1, -1, 20);
    assert_int_equal(step(end.connection, 20), STATUS_OK);
    assert_true(end.delivered > before);
    before = end.delivered;
    assert_int_equal(end.last.request, end.delivered);
  }
  assert_true(turns > 1 && clock_now() - start < 10);
  assert_int_equal(connection_send(end.connection, messages, WIRE_HEADER), STATUS_OK); /* and then it is written to again */
  assert_int_equal(step(end.connection, 0), STATUS_OK);
  assert_int_equal(connection_queued(end.connection), 0);
  connection_free(other);
  close_end(&end);
  free(messages);
}

/* As many as a peer that hung up has left, though something is to be sent to it. */
static void many_messages_before_a_hang_up_still_count(void **state) {
  enum { SENT = 650 };
  End end;
  uint8_t *messages = malloc(SENT * WIRE_HEADER);
  Connection *other = open_end(state, &end, 5);
  for (int i = 0; i < SENT; i++) wire_pack(&(WireHeader){.kind = WIRE_CLASSIFY, .sender = 1, .count = 1}, messages + i * WIRE_HEADER);
  put(other, messages, SENT * WIRE_HEADER);
  connection_free(other);
  assert_int_equal(connection_send(end.connection, messages, WIRE_HEADER), STATUS_OK);
  Status status = STATUS_OK;
  for (int turn = 0; turn < 10 && status == STATUS_OK; turn++) status = step(end.connection, 1);
  assert_int_equal(status, STATUS_PEER);
  assert_int_equal(end.delivered, SENT);
  close_end(&end);
  free(messages);
}

static void messages_before_a_hang_up_still_count(void **state) {
  End end;
  uint8_t *message = make_message(10, 3, 1);
  Connection *other = open_end(state, &end, 5);
  put(other, message, WIRE_HEADER + 10);
  connection_free(other);
  assert_int_equal(step(end.connection, 1), STATUS_PEER);
  assert_int_equal(end.delivered, 1);
  assert_string_equal(status_message(), "node 5: closed the connection");
  assert_int_equal(end.connection->status, STATUS_PEER);
  assert_false(connection_is_open(end.connection));
  assert_int_equal(connection_send(end.connection, message, WIRE_HEADER), STATUS_PEER);
  close_end(&end);
  free(message);
}

static void cut_off_in_a_message(void **state) {
  End end;
  uint8_t *message = make_message(10, 3, 1);
  Connection *other = open_end(state, &end, -1);
  put(other, message, WIRE_HEADER + 9);
  connection_free(other);
  assert_int_equal(step(end.connection, 1), STATUS_PEER);
  assert_int_equal(end.delivered, 0);
  assert_string_equal(status_message(), "the leader: closed the connection");
  close_end(&end);
  free(message);
}

/* Whoever waits for the other end to get on must not be kept waiting by his own signs of life. */
static void a_sign_of_life_counts_as_nothing(void **state) {
  End end;
  uint8_t ping[WIRE_HEADER], got[WIRE_HEADER];
  Connection *other = open_end(state, &end, 2);
  wire_pack(&(WireHeader){.kind = WIRE_PING}, ping);
  connection_ping(end.connection, ping);
  assert_true(end.connection->sent.bytes == 0 && end.connection->sent.messages == 0);
  assert_int_equal(connection_queued(end.connection), 0);
  connections_wait(&other, 1, -1, 10);
  assert_int_equal(connection_read(other, got, sizeof got), sizeof got);
  assert_memory_equal(got, ping, sizeof got);
  connection_free(other);
  close_end(&end);
}

static void hostile_headers_close_it(void **state) {
  for (int fault = 0; fault < 3; fault++) {
    End end;
    uint8_t *message = make_message(10, 3, 1);
    Connection *other = open_end(state, &end, 2);
    if (fault == 0) message[0] ^= 1;                                                             /* magic */
    if (fault == 1) wire_pack(&(WireHeader){.kind = WIRE_CLASSIFY, .bytes = LONG + 1}, message); /* too long */
    if (fault == 2) end.refuse = true;                                                           /* the owner */
    put(other, message, WIRE_HEADER);
    assert_int_equal(step(end.connection, 1), STATUS_BAD_VALUE);
    assert_non_null(strstr(status_message(), "node 2: "));
    assert_false(connection_is_open(end.connection));
    connection_free(other);
    close_end(&end);
    free(message);
  }
}

static void the_queue_has_an_end(void **state) {
  End end;
  uint8_t *message = make_message(LONG, 3, 1);
  Connection *other = open_end(state, &end, 2);
  for (int i = 0; i < CONNECTION_QUEUE; i++) assert_int_equal(connection_send(end.connection, message, WIRE_HEADER + LONG), STATUS_OK);
  assert_int_equal(connection_send(end.connection, message, WIRE_HEADER + LONG), STATUS_PEER);
  connection_free(other);
  close_end(&end);
  free(message);
}

int main(void) {
  static bool plain = false, secured = true;
#define BOTH(test)                                                                                                                         \
  {#test ", plain", test, NULL, NULL, &plain}, { #test ", secured", test, NULL, NULL, &secured }
  const struct CMUnitTest tests[] = {BOTH(one_byte_at_a_time),
                                     BOTH(full_buffers_both_ways),
                                     BOTH(a_held_back_peer_waits_without_spinning),
                                     BOTH(a_peer_that_sends_without_end_has_turns),
                                     BOTH(messages_before_a_hang_up_still_count),
                                     BOTH(many_messages_before_a_hang_up_still_count),
                                     BOTH(cut_off_in_a_message),
                                     BOTH(hostile_headers_close_it),
                                     BOTH(a_sign_of_life_counts_as_nothing),
                                     BOTH(the_queue_has_an_end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
