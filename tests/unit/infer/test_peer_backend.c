/* Backends of real sockets, each between two and three ends in this process: plain and secret channels, streams and datagrams; packets come
 * whole and from whom they are; a peer that goes is noticed; datagrams of unknown senders are dropped. */
#include "base/clock.h"
#include "infer/cluster/connection.h"
#include "infer/cluster/peer_backend.h"
#include "infer/transport/packet.h"
#include "shake_hands.h"
#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NODES = 3, BYTES = 400, FLOOD = 150 };

typedef struct End {
  BackendPeers peers;
  Connection *channels[NODES];
  int sockets[NODES];
  bool secret;
  Backend *backend;
  Status status;
  char problem[256];
  /* what came */
  int count[NODES], hold;
  uint8_t last[NODES][BYTES];
  size_t size[NODES];
} End;

/* Pairs in one order everywhere, so that no two ends wait for each other. */
static Status open_channel(End *end, int self, int d) {
  if (!end->secret) return connection_plain(&end->channels[d], end->sockets[d]);
  TRY(connection_tls(&end->channels[d], end->sockets[d], self < d ? CONNECTION_DIALS : CONNECTION_ANSWERS, NULL));
  return shake_hands(end->channels[d], 10);
}

static void *open_end(void *argument) {
  End *end = argument;
  end->status = STATUS_OK;
  for (int d = 0; d < end->peers.nodes && end->status == STATUS_OK; d++) {
    if (d != end->peers.self) end->status = open_channel(end, end->peers.self, d);
  }
  if (end->status == STATUS_OK) end->status = backend_open(&end->peers, &end->backend);
  snprintf(end->problem, sizeof end->problem, "%s", status_message());
  return NULL;
}

static uint16_t wanted_port; /* of all ends */

static void open_ends(End *ends, int nodes, bool secret, bool datagrams) {
  pthread_t threads[NODES];
  for (int i = 0; i < nodes; i++) {
    ends[i] = (End){.secret = secret, .peers = {.self = i, .nodes = nodes, .datagrams = datagrams, .max_packet = BYTES, .seconds = 10}};
    ends[i].peers.channels = ends[i].channels;
    ends[i].peers.port = wanted_port;
    for (int j = 0; j < i; j++) {
      int pair[2];
      assert_int_equal(connection_pair(pair), STATUS_OK);
      ends[i].sockets[j] = pair[0];
      ends[j].sockets[i] = pair[1];
    }
  }
  for (int i = 0; i < nodes; i++) assert_int_equal(pthread_create(&threads[i], NULL, open_end, &ends[i]), 0);
  for (int i = 0; i < nodes; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < nodes; i++) {
    if (ends[i].status != STATUS_OK) fail_msg("end %d: %s", i, ends[i].problem);
  }
}

static void close_ends(End *ends, int nodes) {
  for (int i = 0; i < nodes; i++) {
    if (ends[i].backend) ends[i].backend->free(ends[i].backend);
  }
}

static Status take(void *context, int peer, const uint8_t *packet, size_t bytes, double now, bool *taken) {
  End *end = context;
  (void)now;
  *taken = end->hold <= 0;
  if (!*taken) return STATUS_OK;
  end->count[peer]++;
  end->size[peer] = bytes;
  memcpy(end->last[peer], packet, bytes);
  return STATUS_OK;
}

static void receive(End *end, int peer, int wanted) {
  double until = clock_now() + 10;
  while (end->count[peer] < wanted && clock_now() < until) {
    struct pollfd polls[BACKEND_MAX_POLLS];
    assert_int_equal(end->backend->receive(end->backend, take, end), STATUS_OK);
    if (end->count[peer] >= wanted) return;
    poll(polls, (nfds_t)end->backend->polls(end->backend, polls, BACKEND_MAX_POLLS), 100);
  }
  assert_int_equal(end->count[peer], wanted);
}

static void send_one(End *end, int to, uint8_t fill, size_t bytes, bool *taken) {
  uint8_t packet[BYTES];
  memset(packet, fill, bytes);
  assert_int_equal(end->backend->send(end->backend, to, packet, bytes, taken), STATUS_OK);
}

static void packets_come_whole(void **state) {
  (void)state;
  for (int kind = 0; kind < 4; kind++) {
    End ends[NODES];
    bool datagrams = kind & 1, taken;
    open_ends(ends, NODES, kind & 2, datagrams);
    assert_int_equal(ends[0].backend->reliable, !datagrams);
    assert_int_equal(ends[0].backend->overhead, datagrams ? 24 : 4);
    if (!datagrams) assert_int_equal(ends[0].backend->max_packet, BYTES);
    for (int from = 0; from < NODES; from++) {
      for (int to = 0; to < NODES; to++) {
        if (from == to) continue;
        for (int i = 0; i < 5; i++) {
          size_t bytes = i == 4 ? PACKET_HEADER : (size_t)(BYTES - i);
          send_one(&ends[from], to, (uint8_t)(16 * from + i), bytes, &taken);
          assert_true(taken);
          receive(&ends[to], from, i + 1);
          assert_int_equal(ends[to].size[from], bytes);
          assert_int_equal(ends[to].last[from][bytes - 1], 16 * from + i);
        }
      }
    }
    close_ends(ends, NODES);
  }
}

static void a_peer_that_goes_is_noticed(void **state) {
  (void)state;
  for (int kind = 0; kind < 4; kind++) {
    End ends[NODES];
    const char *why;
    bool taken;
    open_ends(ends, NODES, kind & 2, kind & 1);
    assert_int_equal(ends[0].backend->peer_status(ends[0].backend, 1, &why), STATUS_OK);
    ends[1].backend->free(ends[1].backend);
    ends[1].backend = NULL;
    for (int i = 0; i < 100 && ends[0].backend->peer_status(ends[0].backend, 1, &why) == STATUS_OK; i++) {
      assert_int_equal(ends[0].backend->receive(ends[0].backend, take, &ends[0]), STATUS_OK);
      usleep(1000);
    }
    assert_int_equal(ends[0].backend->peer_status(ends[0].backend, 1, &why), STATUS_PEER);
    assert_string_equal(why, "closed the connection");
    assert_int_equal(ends[0].backend->peer_status(ends[0].backend, 2, &why), STATUS_OK);
    send_one(&ends[0], 1, 1, 20, &taken);
    assert_true(taken); /* and dropped */
    close_ends(ends, NODES);
  }
}

/* A stream holds back, packet by packet, what there is no room for; nothing is lost. */
static void a_full_stream_waits(void **state) {
  (void)state;
  for (int secret = 0; secret < 2; secret++) {
    End ends[2];
    bool taken = true;
    int sent = 0;
    open_ends(ends, 2, secret, false);
    ends[1].hold = 1;
    for (; taken && sent < 100000; sent += taken) {
      send_one(&ends[0], 1, (uint8_t)sent, BYTES, &taken);
      assert_int_equal(ends[1].backend->receive(ends[1].backend, take, &ends[1]), STATUS_OK);
    }
    assert_true(sent > 0 && sent < 100000);
    assert_true(ends[0].backend->pending(ends[0].backend));
    assert_int_equal(ends[1].count[0], 0);
    ends[1].hold = 0;
    for (int i = 0; ends[0].backend->pending(ends[0].backend) && i < 10000; i++) {
      assert_int_equal(ends[1].backend->receive(ends[1].backend, take, &ends[1]), STATUS_OK);
      assert_int_equal(ends[0].backend->receive(ends[0].backend, take, &ends[0]), STATUS_OK);
    }
    receive(&ends[1], 0, sent);
    assert_int_equal(ends[1].last[0][0], (uint8_t)(sent - 1));
    close_ends(ends, 2);
  }
}

static void what_is_too_long_for_a_stream_is_refused(void **state) {
  (void)state;
  End ends[2];
  uint8_t packet[BYTES + 1] = {0};
  bool taken;
  open_ends(ends, 2, false, false);
  assert_int_equal(ends[0].backend->send(ends[0].backend, 1, packet, BYTES + 1, &taken), STATUS_BAD_VALUE);
  assert_string_equal(status_message(), "a packet of 401 bytes for a stream that takes 400");
  close_ends(ends, 2);
}

/* Whoever can say nothing any more to a peer still hears what that one has said. */
static void the_last_words_are_heard(void **state) {
  (void)state;
  End ends[2];
  bool taken;
  const char *why;
  open_ends(ends, 2, false, false);
  for (int i = 0; i < 3; i++) send_one(&ends[1], 0, (uint8_t)i, BYTES, &taken);
  ends[1].backend->free(ends[1].backend);
  ends[1].backend = NULL;
  for (int i = 0; i < 2; i++) {
    send_one(&ends[0], 1, 0, BYTES, &taken);
    assert_true(taken);
  }
  receive(&ends[0], 1, 3);
  assert_int_equal(ends[0].last[1][0], 2);
  assert_int_equal(ends[0].backend->receive(ends[0].backend, take, &ends[0]), STATUS_OK);
  assert_int_equal(ends[0].backend->peer_status(ends[0].backend, 1, &why), STATUS_PEER);
  close_ends(ends, 2);
}

/* A peer that sends faster than one takes does not keep the others waiting. */
static void a_flood_is_taken_in_turns(void **state) {
  (void)state;
  End ends[NODES];
  bool taken;
  open_ends(ends, NODES, false, false);
  for (int i = 0; i < FLOOD; i++) {
    send_one(&ends[1], 0, 1, PACKET_HEADER, &taken);
    assert_true(taken);
  }
  send_one(&ends[2], 0, 2, BYTES, &taken);
  assert_int_equal(ends[0].backend->receive(ends[0].backend, take, &ends[0]), STATUS_OK);
  assert_true(ends[0].backend->more);
  assert_true(ends[0].count[1] > 0 && ends[0].count[1] < FLOOD);
  assert_int_equal(ends[0].count[2], 1);
  receive(&ends[0], 1, FLOOD);
  assert_int_equal(ends[0].backend->receive(ends[0].backend, take, &ends[0]), STATUS_OK);
  assert_false(ends[0].backend->more);
  close_ends(ends, NODES);
}

/* The port of a backend of datagrams: the only inet socket that it polls. */
static struct sockaddr_in address_of(End *end) {
  struct pollfd polls[BACKEND_MAX_POLLS];
  struct sockaddr_in address = {0};
  socklen_t bytes = sizeof address;
  assert_true(end->backend->polls(end->backend, polls, BACKEND_MAX_POLLS) > 0);
  assert_int_equal(getsockname(polls[0].fd, (struct sockaddr *)&address, &bytes), 0);
  assert_int_equal(address.sin_family, AF_INET);
  assert_int_equal(ntohl(address.sin_addr.s_addr), INADDR_LOOPBACK);
  return address;
}

/* One end gets the port that both want, the other one any. */
static void a_port_is_taken_where_it_is_free(void **state) {
  (void)state;
  End ends[2];
  struct sockaddr_in free_one = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t bytes = sizeof free_one;
  int probe = socket(AF_INET, SOCK_DGRAM, 0);
  assert_int_equal(bind(probe, (struct sockaddr *)&free_one, bytes), 0);
  assert_int_equal(getsockname(probe, (struct sockaddr *)&free_one, &bytes), 0);
  close(probe);
  wanted_port = ntohs(free_one.sin_port);
  open_ends(ends, 2, true, true);
  wanted_port = 0;
  int with = (address_of(&ends[0]).sin_port == free_one.sin_port) + (address_of(&ends[1]).sin_port == free_one.sin_port);
  assert_int_equal(with, 1);
  close_ends(ends, 2);
}

static void unknown_senders_are_dropped(void **state) {
  (void)state;
  End ends[2];
  bool taken;
  open_ends(ends, 2, true, true);
  struct sockaddr_in address = address_of(&ends[0]);
  int unknown = socket(AF_INET, SOCK_DGRAM, 0);
  uint8_t junk[BYTES] = {0x21, 1, 9};
  const size_t sizes[] = {0, 1, 23, 35, 36, BYTES};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    assert_int_equal(sendto(unknown, junk, sizes[i], 0, (struct sockaddr *)&address, sizeof address), sizes[i]);
  junk[1] = 0; /* in its own name */
  assert_int_equal(sendto(unknown, junk, BYTES, 0, (struct sockaddr *)&address, sizeof address), BYTES);
  junk[1] = 200;
  assert_int_equal(sendto(unknown, junk, BYTES, 0, (struct sockaddr *)&address, sizeof address), BYTES);
  send_one(&ends[1], 0, 7, 50, &taken);
  receive(&ends[0], 1, 1);
  assert_int_equal(ends[0].backend->dropped, 8);
  close(unknown);
  close_ends(ends, 2);
}

/* Of another epoch, say: what one sends does not open at the other. */
static void ends_that_disagree_hear_nothing(void **state) {
  (void)state;
  static const uint8_t agreed[2][3] = {{1, 2, 3}, {1, 2, 4}};
  for (int same = 0; same < 2; same++) {
    End ends[2];
    pthread_t thread;
    int pair[2];
    bool taken;
    assert_int_equal(connection_pair(pair), STATUS_OK);
    for (int i = 0; i < 2; i++) {
      ends[i] = (End){.secret = true, .peers = {.self = i, .nodes = 2, .datagrams = true, .seconds = 10}};
      ends[i].sockets[!i] = pair[i];
      ends[i].peers.channels = ends[i].channels;
      ends[i].peers.agreed = agreed[same ? 0 : i];
      ends[i].peers.agreed_bytes = 3;
    }
    assert_int_equal(pthread_create(&thread, NULL, open_end, &ends[1]), 0);
    open_end(&ends[0]);
    pthread_join(thread, NULL);
    assert_true(ends[0].status == STATUS_OK && ends[1].status == STATUS_OK);
    send_one(&ends[1], 0, 7, 50, &taken);
    for (double until = clock_now() + 10; ends[0].count[1] + (int)ends[0].backend->dropped == 0 && clock_now() < until;) {
      struct pollfd polls[BACKEND_MAX_POLLS];
      poll(polls, (nfds_t)ends[0].backend->polls(ends[0].backend, polls, BACKEND_MAX_POLLS), 100);
      assert_int_equal(ends[0].backend->receive(ends[0].backend, take, &ends[0]), STATUS_OK);
    }
    assert_int_equal(ends[0].count[1], same);
    assert_int_equal(ends[0].backend->dropped, !same);
    close_ends(ends, 2);
  }
}

static void the_mtu_is_the_smallest_wanted(void **state) {
  (void)state;
  End ends[2];
  open_ends(ends, 2, false, true);
  assert_int_equal(ends[0].backend->max_packet, UDP_MAX_MTU - 28 - 24); /* loopback lets more through */
  close_ends(ends, 2);
  pthread_t thread;
  int pair[2];
  for (int i = 0; i < 2; i++)
    ends[i] = (End){.peers = {.self = i, .nodes = 2, .datagrams = true, .seconds = 10, .mtu = i ? 1400 : 0, .channels = ends[i].channels}};
  assert_int_equal(connection_pair(pair), STATUS_OK);
  ends[0].sockets[1] = pair[0];
  ends[1].sockets[0] = pair[1];
  assert_int_equal(pthread_create(&thread, NULL, open_end, &ends[1]), 0);
  open_end(&ends[0]);
  pthread_join(thread, NULL);
  for (int i = 0; i < 2; i++) assert_int_equal(ends[i].backend->max_packet, 1400 - 28 - 24);
  close_ends(ends, 2);
}

static void a_silent_or_lying_end_is_named(void **state) {
  (void)state;
  static const uint8_t word[52] = {0, 0, 1};
  for (int lies = 0; lies < 2; lies++) {
    int pair[2];
    End end = {.peers = {.self = 0, .nodes = 2, .datagrams = true, .seconds = 0.2}};
    assert_int_equal(connection_pair(pair), STATUS_OK);
    end.peers.channels = end.channels;
    assert_int_equal(connection_plain(&end.channels[1], pair[0]), STATUS_OK);
    if (lies) assert_int_equal(write(pair[1], word, sizeof word), sizeof word);
    assert_int_equal(backend_open(&end.peers, &end.backend), lies ? STATUS_BAD_VALUE : STATUS_TIMEOUT);
    assert_int_equal(strncmp(status_message(), "node 1 ", 6), 0);
    assert_int_equal(end.peers.fault, 1);
    close(pair[1]);
  }
}

static void *give_up_soon(void *argument) {
  usleep(100000);
  atomic_store((atomic_bool *)argument, true);
  return NULL;
}

/* A peer that is suspended while the leader wants to go on without it. */
static void a_silent_end_is_given_up(void **state) {
  (void)state;
  int pair[2];
  pthread_t thread;
  End end = {.peers = {.self = 0, .nodes = 2, .datagrams = true, .seconds = 20}};
  assert_int_equal(connection_pair(pair), STATUS_OK);
  end.peers.channels = end.channels;
  assert_int_equal(connection_plain(&end.channels[1], pair[0]), STATUS_OK);
  assert_int_equal(pthread_create(&thread, NULL, give_up_soon, &end.peers.give_up), 0);
  double start = clock_now();
  assert_int_equal(backend_open(&end.peers, &end.backend), STATUS_INTERRUPTED);
  assert_true(clock_now() - start < 10);
  pthread_join(thread, NULL);
  close(pair[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(packets_come_whole),
                                     cmocka_unit_test(a_peer_that_goes_is_noticed),
                                     cmocka_unit_test(a_full_stream_waits),
                                     cmocka_unit_test(what_is_too_long_for_a_stream_is_refused),
                                     cmocka_unit_test(the_last_words_are_heard),
                                     cmocka_unit_test(a_flood_is_taken_in_turns),
                                     cmocka_unit_test(a_port_is_taken_where_it_is_free),
                                     cmocka_unit_test(unknown_senders_are_dropped),
                                     cmocka_unit_test(ends_that_disagree_hear_nothing),
                                     cmocka_unit_test(the_mtu_is_the_smallest_wanted),
                                     cmocka_unit_test(a_silent_or_lying_end_is_named),
                                     cmocka_unit_test(a_silent_end_is_given_up)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
