/* The exchange over sockets by itself: two and three nodes as threads of this process, and a hostile peer that is this test. */
#include "base/clock.h"
#include "infer/network.h"
#include "vq/pack.h"
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCKS = 3, WIDTH = 12, GROUPS = 3, ENTRIES = 5, TOKENS = 11, BATCH = 4, REQUESTS = 3, MOST = 3 };
static const int64_t counts_of_two[2] = {4, 7}, counts_of_three[3] = {5, 2, 4};

static Codebook books[BLOCKS];

static int open_books(void **state) {
  Rng rng;
  (void)state;
  rng_init(&rng, 1, 0);
  for (int i = 0; i < BLOCKS; i++) {
    assert_int_equal(codebook_init(&books[i], GROUPS, ENTRIES, WIDTH, NULL), STATUS_OK);
    for (int j = 0; j < ENTRIES * WIDTH; j++) books[i].codewords[j] = (real)rng_normal(&rng);
    codebook_refresh(&books[i]);
  }
  return 0;
}

static int close_books(void **state) {
  (void)state;
  for (int i = 0; i < BLOCKS; i++) codebook_release(&books[i]);
  return 0;
}

/* The activation of token t of sample b at a block of a request: any function of these. */
static real activation(int request, int block, int64_t b, int token, int64_t i) {
  Rng rng;
  rng_init(&rng, (uint64_t)(((request * 8 + block) * 64 + b) * 64 + token), (uint64_t)i);
  return (real)rng_normal(&rng);
}

static int64_t batch_of(int request) { return request % 2 ? BATCH : 1; }

typedef struct Side {
  int self, nodes, sockets[MOST], most_batch, blocks_done;
  const int64_t *counts;
  TokenLayout layout;
  Network network;
  Arena *arena;
  Tape *tape;
  bool right;
  char problem[256];
} Side;

static void open_side(Side *side, double timeout) {
  Channel *channels[MOST] = {NULL};
  for (int i = 0; i < side->nodes; i++) {
    if (i != side->self) assert_int_equal(channel_plain(&channels[i], side->sockets[i]), STATUS_OK);
  }
  NetworkSetup setup = {.self = side->self,
                        .nodes = side->nodes,
                        .layout = &side->layout,
                        .books = books,
                        .blocks = BLOCKS,
                        .sites = 1,
                        .batch_most = BATCH,
                        .timeout = timeout,
                        .channels = channels,
                        .keep_codes = true};
  assert_int_equal(layout_build(&side->layout, TOKENS, side->nodes, side->counts, NULL, CLASS_DISTRIBUTED, side->self), STATUS_OK);
  assert_int_equal(network_init(&side->network, &setup), STATUS_OK);
  side->arena = arena_new((size_t)1 << 24);
  side->tape = tape_new(side->arena);
  tape_record(side->tape, false);
}

static void close_side(Side *side) {
  network_release(&side->network);
  layout_release(&side->layout);
  tape_free(side->tape);
  arena_free(side->arena);
}

static Tensor *make_h(Side *side, int request, int block, int64_t batch) {
  int64_t shape[3] = {batch, side->layout.rows, WIDTH};
  Tensor *h = tape_tensor(side->tape, 3, shape);
  for (int64_t b = 0; b < batch; b++) {
    for (int64_t r = 0; r < side->layout.rows; r++) {
      for (int64_t i = 0; i < WIDTH; i++)
        h->value[(b * side->layout.rows + r) * WIDTH + i] = activation(request, block, b, side->layout.row_token[r] + 1, i);
    }
  }
  return h;
}

/* What every other token must look like. */
static bool remote_is_right(const Side *side, int request, int block, int64_t batch, const Tensor *remote) {
  int32_t codes[GROUPS];
  real x[WIDTH], q[WIDTH];
  void *scratch = malloc(codebook_assign_scratch(&books[block]));
  bool right = remote->shape[0] == batch && remote->shape[1] == side->layout.remote && remote->shape[2] == WIDTH;
  for (int64_t b = 0; b < batch && right; b++) {
    int64_t place = 0;
    for (int token = 0; token < TOKENS; token++) {
      if (token >= side->layout.device_shared[side->self] && token < side->layout.device_shared[side->self + 1]) continue;
      for (int64_t i = 0; i < WIDTH; i++) x[i] = activation(request, block, b, token + 1, i);
      codebook_assign(&books[block], x, 1, codes, NULL, scratch);
      codebook_lookup(&books[block], codes, 1, q);
      right = right && memcmp(q, remote->value + (b * side->layout.remote + place++) * WIDTH, sizeof q) == 0;
    }
  }
  free(scratch);
  return right;
}

static Status exchange_block(Side *side, int request, int block, int64_t batch, Tensor **remote) {
  const uint8_t *lost;
  Exchange *exchange = &side->network.exchange;
  TRY(exchange->begin(exchange, side->tape, &side->layout, block, 0, make_h(side, request, block, batch)));
  return exchange->finish(exchange, side->tape, &side->layout, block, 0, remote, &lost);
}

static Status run_requests(Side *side) {
  for (int request = 1; request <= REQUESTS; request++) {
    int64_t batch = batch_of(request);
    tape_clear(side->tape);
    TRY(network_begin_request(&side->network, (uint32_t)request, batch, request == 1));
    for (int block = 0; block < BLOCKS; block++) {
      Tensor *remote;
      TRY(exchange_block(side, request, block, batch, &remote));
      if (!remote_is_right(side, request, block, batch, remote)) return status_set(STATUS_NUMERIC, "request %d block %d", request, block);
      side->blocks_done++;
    }
  }
  return network_flush(&side->network);
}

static void *run_side(void *argument) {
  Side *side = argument;
  Status status = run_requests(side);
  side->right = status == STATUS_OK;
  if (!side->right) snprintf(side->problem, sizeof side->problem, "%s", status_message());
  return NULL;
}

static void connect_sides(Side *sides, int nodes, const int64_t *counts) {
  for (int i = 0; i < nodes; i++) {
    sides[i] = (Side){.self = i, .nodes = nodes, .counts = counts};
    sides[i].sockets[i] = -1;
    for (int j = 0; j < i; j++) {
      int pair[2];
      assert_int_equal(link_pair(pair), STATUS_OK);
      sides[i].sockets[j] = pair[0];
      sides[j].sockets[i] = pair[1];
    }
  }
}

/* The formula, written out: n_t ceil(G log2 K / 8) a sample, block and receiver, and a header. 3 groups of 3 bits: 2 bytes. */
static uint64_t expected_bytes(int nodes, int64_t own) {
  uint64_t sum = 0;
  for (int request = 1; request <= REQUESTS; request++)
    sum += BLOCKS * (uint64_t)(nodes - 1) * (uint64_t)(24 + batch_of(request) * own * 2);
  return sum;
}

static void exchange_among(int nodes, const int64_t *counts, int socket_buffer) {
  Side sides[MOST];
  pthread_t threads[MOST];
  connect_sides(sides, nodes, counts);
  for (int i = 0; i < nodes; i++) {
    for (int j = 0; socket_buffer && j < nodes; j++)
      if (j != i) setsockopt(sides[i].sockets[j], SOL_SOCKET, SO_SNDBUF, &socket_buffer, sizeof socket_buffer);
    open_side(&sides[i], 20);
  }
  for (int i = 0; i < nodes; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_side, &sides[i]), 0);
  for (int i = 0; i < nodes; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < nodes; i++) {
    if (!sides[i].right) fail_msg("node %d: %s", i, sides[i].problem);
    assert_int_equal(sides[i].blocks_done, BLOCKS * REQUESTS);
    uint64_t sent = 0, messages = 0;
    for (int j = 0; j < nodes; j++)
      sent += sides[i].network.peers[j].link.sent.bytes, messages += sides[i].network.peers[j].link.sent.messages;
    assert_int_equal(sent, expected_bytes(nodes, counts[i]));
    assert_int_equal(messages, BLOCKS * REQUESTS * (nodes - 1));
  }
  for (int i = 0; i < nodes; i++) close_side(&sides[i]);
}

static void two_nodes(void **state) {
  (void)state;
  exchange_among(2, counts_of_two, 0);
}

static void three_uneven_nodes(void **state) {
  (void)state;
  exchange_among(3, counts_of_three, 0);
}

static void tiny_socket_buffers(void **state) {
  (void)state;
  exchange_among(3, counts_of_three, 1);
}

/* ---- this test as node 1 ---- */

typedef struct Hostile {
  Side side; /* node 0 of two */
  int wire;  /* node 1's end */
} Hostile;

static void open_hostile(Hostile *hostile, double timeout) {
  int pair[2];
  assert_int_equal(link_pair(pair), STATUS_OK);
  hostile->side = (Side){.nodes = 2, .counts = counts_of_two, .sockets = {-1, pair[0]}};
  hostile->wire = pair[1];
  open_side(&hostile->side, timeout);
  assert_int_equal(network_begin_request(&hostile->side.network, 1, 1, false), STATUS_OK);
}

static void close_hostile(Hostile *hostile) {
  if (hostile->wire >= 0) close(hostile->wire);
  close_side(&hostile->side);
}

/* An honest message of node 1 for one sample: 7 tokens of 2 bytes, all codes 4. */
enum { PAYLOAD = 14 };
static size_t honest(uint8_t *message, uint32_t request, int block) {
  int32_t codes[7 * GROUPS];
  for (int i = 0; i < 7 * GROUPS; i++) codes[i] = 4;
  wire_pack(&(WireHeader){.kind = WIRE_CODES, .sender = 1, .block = (uint8_t)block, .request = request, .count = 7, .bytes = PAYLOAD},
            message);
  pack_codes(codes, 7, GROUPS, ENTRIES, message + WIRE_HEADER);
  return WIRE_HEADER + PAYLOAD;
}

static Status receive_first_block(Hostile *hostile) {
  Tensor *remote;
  return exchange_block(&hostile->side, 1, 0, 1, &remote);
}

static void forged_messages_are_refused(void **state) {
  (void)state;
  const struct {
    const char *what, *message;
    int offset;
    uint8_t value;
  } faults[] = {{"magic", "magic", 1, 0},
                {"version", "version", 4, 9},
                {"kind", "only codes", 5, WIRE_RESULT},
                {"sender", "in the name of node 0", 6, 0},
                {"block out of the model", "block 3", 7, BLOCKS},
                {"block out of turn", "block 1 where request 1, block 0", 7, 1},
                {"site", "site 1", 8, 1},
                {"request zero", "block 0", 12, 0},
                {"request out of turn", "request 2, block 0 where", 12, 2},
                {"count", "8 tokens", 16, 8},
                {"count zero", "0 tokens", 16, 0},
                {"count of another batch", "7 tokens, 14", 20, 28},
                {"length", "13 bytes", 20, 13},
                {"huge length", "announces", 23, 0x7F},
                {"code above K", "block 0", WIRE_HEADER, 0xFF},
                {"padding", "block 0", WIRE_HEADER + 1, 0x80}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    Hostile hostile;
    uint8_t message[WIRE_HEADER + PAYLOAD];
    open_hostile(&hostile, 5);
    size_t size = honest(message, 1, 0);
    message[faults[i].offset] = faults[i].value;
    assert_int_equal(write(hostile.wire, message, size), size);
    Status status = receive_first_block(&hostile);
    if (status != STATUS_BAD_VALUE) fail_msg("%s: %s", faults[i].what, status == STATUS_OK ? "was accepted" : status_message());
    if (!strstr(status_message(), faults[i].message) && i != 11) fail_msg("%s: %s", faults[i].what, status_message());
    assert_non_null(strstr(status_message(), "node 1: "));
    assert_int_equal(hostile.side.network.accused, 1);
    close_hostile(&hostile);
  }
}

static void an_honest_peer_may_run_one_block_ahead(void **state) {
  (void)state;
  Hostile hostile;
  uint8_t message[WIRE_HEADER + PAYLOAD];
  Tensor *remote;
  open_hostile(&hostile, 5);
  for (int block = 0; block < BLOCKS; block++) { /* all at once: the third is held back until the first is used */
    size_t size = honest(message, 1, block);
    assert_int_equal(write(hostile.wire, message, size), size);
  }
  for (int block = 0; block < BLOCKS; block++) assert_int_equal(exchange_block(&hostile.side, 1, block, 1, &remote), STATUS_OK);
  assert_memory_equal(remote->value, books[BLOCKS - 1].codewords + 4 * (WIDTH / GROUPS), WIDTH / GROUPS * sizeof(real));
  close_hostile(&hostile);
}

static void a_replayed_message_is_refused(void **state) {
  (void)state;
  Hostile hostile;
  uint8_t message[WIRE_HEADER + PAYLOAD];
  Tensor *remote;
  size_t size = honest(message, 1, 0);
  open_hostile(&hostile, 5);
  assert_int_equal(write(hostile.wire, message, size), size);
  assert_int_equal(receive_first_block(&hostile), STATUS_OK);
  assert_int_equal(write(hostile.wire, message, size), size);
  assert_int_equal(exchange_block(&hostile.side, 1, 1, 1, &remote), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "request 1, block 0 where request 1, block 1"));
  close_hostile(&hostile);
}

static void a_message_of_another_batch_is_refused(void **state) {
  (void)state;
  Hostile hostile;
  uint8_t message[WIRE_HEADER + 2 * PAYLOAD] = {0};
  wire_pack(&(WireHeader){.kind = WIRE_CODES, .sender = 1, .request = 1, .count = 14, .bytes = 2 * PAYLOAD}, message);
  open_hostile(&hostile, 5);
  assert_int_equal(write(hostile.wire, message, sizeof message), sizeof message);
  assert_int_equal(receive_first_block(&hostile), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "node 1: sent codes of 14 tokens, 7 were expected"));
  close_hostile(&hostile);
}

/* Node 1 says its first block and no more, in three ways: from then on its tokens, and no others, are masked, and nothing fails. */
static void tokens_of_one_that_is_gone_are_masked(void **state) {
  (void)state;
  enum { CLOSES, GIVEN_UP, SILENT, WAYS };
  for (int way = 0; way < WAYS; way++) {
    Hostile hostile;
    uint8_t message[WIRE_HEADER + PAYLOAD];
    size_t size = honest(message, 1, 0);
    open_hostile(&hostile, 0.2);
    Network *net = &hostile.side.network;
    net->setup.mask = true;
    assert_int_equal(write(hostile.wire, message, size), size);
    for (int block = 0; block < BLOCKS; block++) {
      Tensor *remote;
      const uint8_t *lost;
      Tensor *h = make_h(&hostile.side, 1, block, 1);
      assert_int_equal(net->exchange.begin(&net->exchange, hostile.side.tape, &hostile.side.layout, block, 0, h), STATUS_OK);
      assert_int_equal(net->exchange.finish(&net->exchange, hostile.side.tape, &hostile.side.layout, block, 0, &remote, &lost), STATUS_OK);
      if (block == 0) {
        assert_null(lost);
        if (way == CLOSES) close(hostile.wire), hostile.wire = -1;
        if (way == GIVEN_UP) network_gone(net, 1);
        continue;
      }
      assert_non_null(lost);
      for (int i = 0; i < 7; i++) assert_int_equal(lost[i], 1);
      for (int i = 0; i < 7 * WIDTH; i++) assert_true(remote->value[i] == 0);
    }
    assert_int_equal(net->statistics.masked, 7 * (BLOCKS - 1));
    assert_int_equal(network_flush(net), STATUS_OK);
    close_hostile(&hostile);
  }
}

static void silence_ends_at_the_deadline(void **state) {
  (void)state;
  Hostile hostile;
  open_hostile(&hostile, 0.2);
  double start = clock_now();
  assert_int_equal(receive_first_block(&hostile), STATUS_TIMEOUT);
  assert_true(clock_now() - start >= 0.2 && clock_now() - start < 5);
  assert_string_equal(status_message(), "node 1 did not answer within 0.2 s; --timeout gives it longer");
  assert_int_equal(hostile.side.network.accused, 1);
  close_hostile(&hostile);
}

static void a_closed_peer_is_named(void **state) {
  (void)state;
  Hostile hostile;
  open_hostile(&hostile, 5);
  close(hostile.wire);
  hostile.wire = -1;
  assert_int_equal(receive_first_block(&hostile), STATUS_PEER);
  assert_non_null(strstr(status_message(), "node 1: "));
  assert_int_equal(hostile.side.network.accused, 1);
  close_hostile(&hostile);
}

static void requests_come_in_order(void **state) {
  (void)state;
  Hostile hostile;
  open_hostile(&hostile, 1);
  assert_int_equal(network_begin_request(&hostile.side.network, 1, 1, false), STATUS_BAD_VALUE);
  assert_int_equal(network_begin_request(&hostile.side.network, 3, 1, false), STATUS_BAD_VALUE);
  assert_int_equal(network_begin_request(&hostile.side.network, 2, BATCH + 1, false), STATUS_BAD_VALUE);
  assert_int_equal(network_begin_request(&hostile.side.network, 2, 0, false), STATUS_BAD_VALUE);
  assert_int_equal(network_begin_request(&hostile.side.network, 2, BATCH, true), STATUS_OK);
  close_hostile(&hostile);
}

static void message_bytes_follow_the_formula(void **state) {
  (void)state;
  assert_int_equal(network_message_bytes(8, 1024, 64 * 16), 24 + 64 * 16 * 10);
  assert_int_equal(network_message_bytes(1, 1024, 49), 24 + 49 * 2);
  assert_int_equal(network_message_bytes(32, 1000, 49), 24 + 49 * 40);
  assert_int_equal(network_message_bytes(3, 5, 1), 24 + 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(two_nodes),
                                     cmocka_unit_test(three_uneven_nodes),
                                     cmocka_unit_test(tiny_socket_buffers),
                                     cmocka_unit_test(forged_messages_are_refused),
                                     cmocka_unit_test(an_honest_peer_may_run_one_block_ahead),
                                     cmocka_unit_test(a_replayed_message_is_refused),
                                     cmocka_unit_test(a_message_of_another_batch_is_refused),
                                     cmocka_unit_test(tokens_of_one_that_is_gone_are_masked),
                                     cmocka_unit_test(silence_ends_at_the_deadline),
                                     cmocka_unit_test(a_closed_peer_is_named),
                                     cmocka_unit_test(requests_come_in_order),
                                     cmocka_unit_test(message_bytes_follow_the_formula)};
  return cmocka_run_group_tests(tests, open_books, close_books);
}
