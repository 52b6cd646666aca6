/* Whole rows between nodes (sequence parallelism) over sockets: the same bits as the sender has them, in one packet and in several, bytes
 * to the number; nothing takes the place of rows that do not come, and what is no number is refused. */
#include "code_exchange_side.h"
#include "infer/cluster/connection.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCKS = 3, WIDTH = 12, TOKENS = 11, BATCH = 4, REQUESTS = 3, NODES = 3 };
static const int64_t counts_of_three[NODES] = {5, 2, 4}, counts_of_two[2] = {4, 7};

typedef struct Side {
  int self, nodes, sockets[NODES], packets;
  const int64_t *counts;
  bool causal, mask;
  CodeExchangeSide base;
  Status status;
  char problem[256];
} Side;

static CodeExchangeSetup setup_of(const Side *side) {
  return (CodeExchangeSetup){.self = side->self,
                             .nodes = side->nodes,
                             .layout = &side->base.layout,
                             .blocks = BLOCKS,
                             .sites = 1,
                             .batch_max = BATCH,
                             .whole_rows = true,
                             .width = WIDTH,
                             .min_packets = side->packets,
                             .causal = side->causal};
}

static void open_side(Side *side) {
  Reliability reliability = {.mode = RELIABILITY_STREAM, .timeout = 20};
  TransportThreadSetup transport = {
      .transport.reliability = &reliability, .transport.timeout = 20, .transport.mask = side->mask, .open = backend_open};
  ClassToken class_token = side->causal ? CLASS_NONE : CLASS_SINGLE;
  assert_int_equal(layout_build(&side->base.layout, TOKENS, side->nodes, side->counts, NULL, class_token, side->self), STATUS_OK);
  CodeExchangeSetup setup = setup_of(side);
  code_exchange_side_open(&side->base, &setup, &transport, side->sockets);
  assert_true(side->base.network.exchange.whole_rows);
}

static void close_side(Side *side) { code_exchange_side_close(&side->base); }

static void connect_sides(Side *sides, int nodes, const int64_t *counts, int packets, bool causal) {
  for (int i = 0; i < nodes; i++) {
    sides[i] = (Side){.self = i, .nodes = nodes, .counts = counts, .packets = packets, .causal = causal};
    for (int j = 0; j < i; j++) {
      int pair[2];
      assert_int_equal(connection_pair(pair), STATUS_OK);
      sides[i].sockets[j] = pair[0];
      sides[j].sockets[i] = pair[1];
    }
  }
  for (int i = 0; i < nodes; i++) open_side(&sides[i]);
}

/* ---- a request */

/* Of a token (-1: the class token) at a block of a request. */
static real activation(int request, int block, int64_t b, int32_t token, int64_t i) {
  return (real)sin(3.1 * request + 1.7 * block + 0.9 * (double)b + 0.37 * token + 0.11 * (double)i);
}

static Tensor *make_h(Side *side, int request, int block, int64_t batch) {
  Tensor *h = tape_tensor(side->base.tape, 3, (int64_t[]){batch, side->base.layout.rows, WIDTH});
  for (int64_t row = 0; row < batch * side->base.layout.rows; row++) {
    for (int64_t i = 0; i < WIDTH; i++)
      h->value[row * WIDTH + i] =
          activation(request, block, row / side->base.layout.rows, side->base.layout.row_token[row % side->base.layout.rows], i);
  }
  return h;
}

static bool is_right(const Side *side, int request, int block, int64_t batch, const Tensor *x) {
  const TokenLayout *layout = &side->base.layout;
  if (x->shape[0] != batch || x->shape[1] != layout->remote || x->shape[2] != WIDTH) return false;
  for (int64_t row = 0; row < batch * layout->remote; row++) {
    for (int64_t i = 0; i < WIDTH; i++) {
      if (x->value[row * WIDTH + i] != activation(request, block, row / layout->remote, layout->remote_token[row % layout->remote], i))
        return false;
    }
  }
  return true;
}

static Status exchange_block(Side *side, int request, int block, int64_t batch, Tensor **remote) {
  Exchange *exchange = &side->base.network.exchange;
  Tensor *const h[EXCHANGE_SITES] = {make_h(side, request, block, batch), NULL};
  ExchangeRows rows[EXCHANGE_SITES];
  *remote = NULL;
  TRY(exchange->begin(exchange, side->base.tape, &side->base.layout, block, 0, h));
  TRY(exchange->finish(exchange, side->base.tape, &side->base.layout, block, 0, rows));
  *remote = rows[0].x;
  return rows[0].lost ? status_set(STATUS_NUMERIC, "rows are marked as lost") : STATUS_OK;
}

static int64_t batch_of(int request) { return request % 2 ? BATCH : 1; }

static Status run_requests(Side *side) {
  for (int request = 1; request <= REQUESTS; request++) {
    tape_clear(side->base.tape);
    TRY(code_exchange_begin_request(&side->base.network, &(CodeExchangeRequest){.number = (uint32_t)request, .batch = batch_of(request)}));
    for (int block = 0; block < BLOCKS; block++) {
      Tensor *remote;
      TRY(exchange_block(side, request, block, batch_of(request), &remote));
      if (!is_right(side, request, block, batch_of(request), remote))
        return status_set(STATUS_NUMERIC, "request %d block %d", request, block);
    }
  }
  return STATUS_OK;
}

static void *run_side(void *argument) {
  Side *side = argument;
  side->status = run_requests(side);
  snprintf(side->problem, sizeof side->problem, "%s", status_message());
  return NULL;
}

/* The class token's row is sent with those of device 0; of a text nothing goes to the devices before. */
static uint64_t expected_payload(const Side *side) {
  uint64_t rows = 0, receivers = (uint64_t)(side->causal ? side->nodes - 1 - side->self : side->nodes - 1);
  int64_t own = side->counts[side->self] + (!side->causal && side->self == 0);
  for (int request = 1; request <= REQUESTS; request++) rows += (uint64_t)(batch_of(request) * own);
  return BLOCKS * rows * WIDTH * 4 * receivers;
}

static void rows_come_as_they_are(void **state) {
  (void)state;
  for (int packets = 1; packets <= 3; packets += 2) {
    for (int causal = 0; causal < 2; causal++) {
      Side sides[NODES];
      pthread_t threads[NODES];
      connect_sides(sides, NODES, counts_of_three, packets, causal);
      for (int i = 0; i < NODES; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_side, &sides[i]), 0);
      for (int i = 0; i < NODES; i++) pthread_join(threads[i], NULL);
      for (int i = 0; i < NODES; i++) {
        if (sides[i].status != STATUS_OK) fail_msg("node %d: %s", i, sides[i].problem);
        assert_int_equal(transport_thread_state(sides[i].base.transport).payload_sent, expected_payload(&sides[i]));
      }
      for (int i = 0; i < NODES; i++) close_side(&sides[i]);
    }
  }
}

/* ---- this test as node 1, with 7 rows */

typedef struct Hostile {
  Side side; /* node 0 of two */
  int wire;  /* node 1's end */
} Hostile;

static void open_hostile(Hostile *hostile, bool mask) {
  int pair[2];
  assert_int_equal(connection_pair(pair), STATUS_OK);
  hostile->side = (Side){.nodes = 2, .counts = counts_of_two, .sockets = {-1, pair[0]}, .packets = 1, .mask = mask};
  hostile->wire = pair[1];
  open_side(&hostile->side);
  assert_int_equal(code_exchange_begin_request(&hostile->side.base.network, &(CodeExchangeRequest){.number = 1, .batch = 1}), STATUS_OK);
}

static void write_packet(const Hostile *hostile, PacketType type, size_t bytes, const float *rows) {
  uint8_t record[4 + PACKET_HEADER + 8 * WIDTH * 4] = {0};
  wire_put_u32(record, (uint32_t)(PACKET_HEADER + bytes));
  packet_pack(&(Packet){.request = 1, .type = type, .count = 1}, record + 4);
  if (rows) wire_pack_floats(rows, bytes / 4, record + 4 + PACKET_HEADER);
  assert_int_equal(write(hostile->wire, record, 4 + PACKET_HEADER + bytes), (ssize_t)(4 + PACKET_HEADER + bytes));
}

static void expect_failure(Hostile *hostile, Status status, const char *what) {
  Tensor *remote;
  assert_int_equal(exchange_block(&hostile->side, 1, 0, 1, &remote), status);
  if (!strstr(status_message(), what) || strncmp(status_message(), "node 1: ", 8) != 0)
    fail_msg("\"%s\" lacks \"%s\"", status_message(), what);
  assert_int_equal(hostile->side.base.network.fault, 1);
  close(hostile->wire);
  close_side(&hostile->side);
}

static void what_is_no_row_is_refused(void **state) {
  (void)state;
  Hostile hostile;
  float rows[7 * WIDTH] = {0};
  rows[5 * WIDTH + 3] = INFINITY;
  open_hostile(&hostile, false);
  write_packet(&hostile, PACKET_RAW, sizeof rows, rows);
  expect_failure(&hostile, STATUS_BAD_VALUE, "not finite");
  open_hostile(&hostile, false);
  write_packet(&hostile, PACKET_RAW, sizeof rows - 4, rows);
  expect_failure(&hostile, STATUS_BAD_VALUE, "332 bytes where 336 to 336");
  open_hostile(&hostile, false);
  write_packet(&hostile, PACKET_CODES, 8, NULL);
  expect_failure(&hostile, STATUS_BAD_VALUE, "type 0");
}

/* Not even where codes would be masked. */
static void nothing_takes_the_place_of_rows(void **state) {
  (void)state;
  for (int mask = 0; mask < 2; mask++) {
    Hostile hostile;
    open_hostile(&hostile, mask);
    shutdown(hostile.wire, SHUT_RDWR);
    expect_failure(&hostile, STATUS_PEER, mask ? "nothing can take the place" : "closed the connection");
  }
}

static void only_plain_set_ups_are_possible(void **state) {
  (void)state;
  Side side = {.nodes = 2, .counts = counts_of_two};
  CodeExchange network;
  assert_int_equal(layout_build(&side.base.layout, TOKENS, 2, counts_of_two, NULL, CLASS_SINGLE, 0), STATUS_OK);
  CodeExchangeSetup setup = setup_of(&side);
  setup.max_packet = 4096;
  assert_int_equal(code_exchange_init(&network, &setup), STATUS_OK);
  code_exchange_release(&network);
  setup.parts = 2;
  assert_int_equal(code_exchange_init(&network, &setup), STATUS_BAD_VALUE);
  setup.parts = 1, setup.sites = 2; /* keys and values */
  assert_int_equal(code_exchange_init(&network, &setup), STATUS_OK);
  code_exchange_release(&network);
  setup.sites = 1, setup.keep_codes = true;
  assert_int_equal(code_exchange_init(&network, &setup), STATUS_BAD_VALUE);
  setup.keep_codes = false, setup.max_packet = WIDTH * 4 - 1; /* a row does not fit */
  assert_int_equal(code_exchange_init(&network, &setup), STATUS_BAD_VALUE);
  layout_release(&side.base.layout);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_come_as_they_are),
      cmocka_unit_test(what_is_no_row_is_refused),
      cmocka_unit_test(nothing_takes_the_place_of_rows),
      cmocka_unit_test(only_plain_set_ups_are_possible),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
