/* How devices find each other: over streams that are passed to them and by calls in TLS, in threads of this process; callers of another
 * epoch or key are no obstacle, another partition is named, and whoever does not come is named in time. */
#include "base/clock.h"
#include "infer/cluster/fd_passing.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/peer_handshake.c"
#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX = 3 };

typedef struct Side {
  PeerHandshake handshake;
  ClusterSetup setup;
  Connection control;
  int leader, listener; /* this test's ends */
  bool stop;
  Status status;
  char message[256];
} Side;

static Status refuse_all(void *context, Connection *link, const WireHeader *header, uint8_t **payload) {
  (void)context, (void)link, (void)header, (void)payload;
  return status_set(STATUS_BAD_VALUE, "nothing was due");
}

static void open_side(Side *side, int nodes, int self, bool together) {
  int control[2], passed[2];
  memset(side, 0, sizeof *side);
  ConnectionSink sink = {.place = refuse_all};
  assert_int_equal(connection_pair(control), STATUS_OK);
  assert_int_equal(fd_passing_pair(passed), STATUS_OK);
  assert_int_equal(connection_open(&side->control, control[1]), STATUS_OK);
  connection_receive(&side->control, -1, &sink);
  side->leader = control[0];
  side->listener = passed[0];
  side->setup = (ClusterSetup){.epoch = 3, .nodes = nodes, .self = self, .fingerprints.partition = 77};
  side->handshake = (PeerHandshake){
      .setup = &side->setup, .passed = passed[1], .together = together, .control = &side->control, .stop = &side->stop, .seconds = 10};
  memcpy(side->handshake.session, "0123456789abcdef", HELLO_SESSION);
}

static void close_side(Side *side) {
  for (int d = 0; d < MAX; d++) connection_free(side->handshake.connection[d]);
  connection_close(&side->control);
  close(side->handshake.passed);
  close(side->leader);
  close(side->listener);
}

static void *run(void *context) {
  Side *side = context;
  side->status = peer_handshake_run(&side->handshake);
  if (side->status != STATUS_OK) snprintf(side->message, sizeof side->message, "%s", status_message());
  return NULL;
}

static void run_all(Side *sides, int count) {
  pthread_t threads[MAX];
  for (int i = 0; i < count; i++) assert_int_equal(pthread_create(&threads[i], NULL, run, &sides[i]), 0);
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

static void pass(const Side *side, FdKind kind, uint16_t epoch, int number, int fd) {
  assert_int_equal(fd_passing_send(side->listener, &(PassedFd){.kind = kind, .epoch = epoch, .node = (uint16_t)number, .fd = fd}),
                   STATUS_OK);
  close(fd);
}

static void join(const Side *sides, int a, int b, uint16_t epoch) {
  int pair[2];
  assert_int_equal(connection_pair(pair), STATUS_OK);
  pass(&sides[a], FD_STREAM, epoch, b, pair[0]);
  pass(&sides[b], FD_STREAM, epoch, a, pair[1]);
}

/* The connection from a to b is the one from b to a. */
static void assert_joined(const Side *sides, int a, int b) {
  char text[] = "from a to b", got[sizeof text] = "";
  Connection *from = sides[a].handshake.connection[b], *to = sides[b].handshake.connection[a];
  assert_non_null(from);
  assert_non_null(to);
  assert_int_equal(connection_write(from, text, sizeof text), sizeof text);
  for (ssize_t n = -1; n < 0;) {
    poll(&(struct pollfd){.fd = connection_fd(to), .events = POLLIN}, 1, 1000);
    n = connection_read(to, got, sizeof got);
  }
  assert_string_equal(got, text);
}

static void passed_streams_join_all(void **state) {
  (void)state;
  static Side sides[3];
  for (int i = 0; i < 3; i++) open_side(&sides[i], 3, i, true);
  join(sides, 0, 1, 2); /* left over from the epoch before */
  for (int a = 0; a < 3; a++) {
    for (int b = a + 1; b < 3; b++) join(sides, a, b, 3);
  }
  run_all(sides, 3);
  for (int i = 0; i < 3; i++) {
    if (sides[i].status != STATUS_OK) fail_msg("%s", sides[i].message);
    assert_null(sides[i].handshake.connection[i]);
  }
  for (int a = 0; a < 3; a++) {
    for (int b = 0; b < 3; b++) {
      if (a != b) assert_joined(sides, a, b);
    }
  }
  for (int i = 0; i < 3; i++) close_side(&sides[i]);
}

/* ---- calls: a door for side 0, which hands on what comes */

typedef struct Door {
  Address address;
  int sockets[ADDRESS_SOCKETS], count;
  const Side *side;
  int expected; /* callers */
} Door;

static void *keep_door(void *context) {
  Door *door = context;
  for (int i = 0; i < door->expected; i++) {
    uint8_t hello[HELLO_BYTES];
    poll(&(struct pollfd){.fd = door->sockets[0], .events = POLLIN}, 1, 10000);
    int fd = accept(door->sockets[0], NULL, NULL);
    if (fd >= 0 && recv(fd, hello, sizeof hello, MSG_WAITALL) == sizeof hello)
      fd_passing_send(door->side->listener, &(PassedFd){.kind = FD_CONNECTION, .fd = fd});
    if (fd >= 0) close(fd);
  }
  return NULL;
}

static void open_door(Door *door, Side *sides, int expected) {
  *door = (Door){.side = &sides[0], .expected = expected};
  assert_int_equal(address_parse("127.0.0.1:0", &door->address), STATUS_OK);
  assert_int_equal(address_listen(&door->address, door->sockets, &door->count), STATUS_OK);
  door->address.port = address_port(door->sockets[0]);
  for (int i = 0; i < 2; i++) sides[i].setup.device[0] = (SetupDevice){.reachable = true, .address = door->address};
}

static void run_calls(Door *door, Side *sides) {
  pthread_t keeper;
  assert_int_equal(pthread_create(&keeper, NULL, keep_door, door), 0);
  run_all(sides, 2);
  pthread_join(keeper, NULL);
  address_close(&door->address, door->sockets, door->count);
}

static void calls_join_in_tls(void **state) {
  (void)state;
  static Side sides[2];
  static Door door;
  const KeyFile key = {.bytes = {1}}, other = {.bytes = {2}};
  for (int i = 0; i < 2; i++) {
    open_side(&sides[i], 2, i, false);
    sides[i].handshake.key = &key;
  }
  open_door(&door, sides, 1);
  /* More callers that say nothing than there are places, one with another key, and one that goes away: none of them matters. */
  int pair[2], silent[CALLERS + 1][2], gone[2];
  Connection *intruder;
  bool done;
  assert_true(connection_pair(pair) == STATUS_OK && connection_pair(gone) == STATUS_OK);
  assert_int_equal(connection_tls(&intruder, pair[0], CONNECTION_DIALS, &other), STATUS_OK);
  assert_int_equal(connection_step(intruder, &done), STATUS_OK);
  for (int i = 0; i < CALLERS + 1; i++) {
    assert_int_equal(connection_pair(silent[i]), STATUS_OK);
    pass(&sides[0], FD_CONNECTION, 0, 0, silent[i][1]);
  }
  pass(&sides[0], FD_CONNECTION, 0, 0, pair[1]);
  pass(&sides[0], FD_CONNECTION, 0, 0, gone[1]);
  close(gone[0]);
  run_calls(&door, sides);
  for (int i = 0; i < 2; i++) {
    if (sides[i].status != STATUS_OK) fail_msg("%s", sides[i].message);
  }
  assert_joined(sides, 0, 1);
  assert_joined(sides, 1, 0);
  assert_true(connection_is_secret(sides[0].handshake.connection[1]));
  connection_free(intruder);
  for (int i = 0; i < CALLERS + 1; i++) close(silent[i][0]);
  for (int i = 0; i < 2; i++) close_side(&sides[i]);
}

static void another_partition_is_named(void **state) {
  (void)state;
  static Side sides[2];
  for (int i = 0; i < 2; i++) open_side(&sides[i], 2, i, true);
  sides[1].setup.fingerprints.partition = 78;
  join(sides, 0, 1, 3);
  run_all(sides, 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(sides[i].status, STATUS_BAD_VALUE);
    assert_int_equal(sides[i].handshake.fault, 1 - i);
  }
  assert_non_null(strstr(sides[0].message, "node 1: another partition: 000000000000004e there, 000000000000004d here"));
  for (int i = 0; i < 2; i++) close_side(&sides[i]);
}

static void who_does_not_come_is_named(void **state) {
  (void)state;
  static Side sides[2];
  open_side(&sides[0], 2, 0, true);
  sides[0].handshake.seconds = 0.3;
  double start = clock_now();
  run(&sides[0]);
  assert_int_equal(sides[0].status, STATUS_TIMEOUT);
  assert_true(clock_now() - start < 5);
  assert_int_equal(sides[0].handshake.fault, 1);
  assert_non_null(strstr(sides[0].message, "node 1: did not connect within 0.3 s"));
  close_side(&sides[0]);
  open_side(&sides[1], 2, 1, false); /* nobody listens where node 0 should be */
  assert_int_equal(address_parse("unix:/nowhere/at/all", &sides[1].setup.device[0].address), STATUS_OK);
  sides[1].setup.device[0].reachable = true;
  run(&sides[1]);
  assert_int_equal(sides[1].status, STATUS_PEER);
  assert_int_equal(sides[1].handshake.fault, 0);
  assert_non_null(strstr(sides[1].message, "worker unix:/nowhere/at/all"));
  close_side(&sides[1]);
}

static void a_leader_that_changes_its_mind_ends_it(void **state) {
  (void)state;
  static Side side;
  open_side(&side, 2, 0, true);
  side.stop = true;
  run(&side);
  assert_int_equal(side.status, STATUS_INTERRUPTED);
  close_side(&side);
  Address *deaf = &side.setup.device[0].address; /* it is heard while a call is not answered: the queue there is full */
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), calls[8];
  open_side(&side, 2, 1, false);
  assert_int_equal(listen(listener, 0), 0);
  assert_int_equal(address_parse("127.0.0.1:1", deaf), STATUS_OK);
  deaf->port = address_port(listener);
  side.setup.device[0].reachable = true;
  for (int i = 0; i < 8; i++) assert_int_equal(address_call(deaf, &calls[i]), STATUS_OK);
  side.stop = true;
  double start = clock_now();
  run(&side);
  assert_int_equal(side.status, STATUS_INTERRUPTED);
  assert_true(clock_now() - start < 5);
  for (int i = 0; i < 8; i++) close(calls[i]);
  close(listener);
  close_side(&side);
  open_side(&side, 2, 0, true);
  shutdown(side.leader, SHUT_RDWR);
  run(&side);
  assert_int_equal(side.status, STATUS_PEER);
  close_side(&side);
}

static void what_meet_says_is_as_documented(void **state) {
  (void)state;
  uint8_t message[MESSAGE], again[MESSAGE], *bytes = message + WIRE_HEADER;
  PeerIdentity identity = {.epoch = 0x0102, .node = 5, .partition = 0x1122334455667788}, got = {0};
  pack_meet(&identity, message);
  assert_true(bytes[0] == 2 && bytes[1] == 1 && bytes[2] == 5 && bytes[20] == 0x88 && bytes[27] == 0x11);
  assert_int_equal(parse_meet(message, &got), STATUS_OK);
  pack_meet(&got, again);
  assert_memory_equal(message, again, sizeof message);
  bytes[2] = WIRE_NODES;
  assert_int_equal(parse_meet(message, &got), STATUS_BAD_VALUE);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(passed_streams_join_all),
                                     cmocka_unit_test(calls_join_in_tls),
                                     cmocka_unit_test(another_partition_is_named),
                                     cmocka_unit_test(who_does_not_come_is_named),
                                     cmocka_unit_test(a_leader_that_changes_its_mind_ends_it),
                                     cmocka_unit_test(what_meet_says_is_as_documented)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
