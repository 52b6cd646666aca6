/* The exchange over sockets by itself: two and three nodes as threads of this process, and a hostile peer that is this test. */
#include "base/clock.h"
#include "code_exchange_side.h"
#include "infer/cluster/connection.h"
#include "vq/pack.h"
#include "vq/rans.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCKS = 3, WIDTH = 12, GROUPS = 3, ENTRIES = 5, TOKENS = 11, BATCH = 4, REQUESTS = 3, MAX = 3 };
static const int64_t counts_of_two[2] = {4, 7}, counts_of_three[3] = {5, 2, 4};

static Codebook books[BLOCKS];
static RansTable *coding; /* [BLOCKS * GROUPS]: code 4 comes in half of the cases, and so on, more often in later blocks */

static int open_books(void **state) {
  Rng rng;
  (void)state;
  rng_init(&rng, 1, 0);
  for (int i = 0; i < BLOCKS; i++) {
    assert_int_equal(codebook_init(&books[i], GROUPS, ENTRIES, WIDTH, NULL), STATUS_OK);
    for (int j = 0; j < ENTRIES * WIDTH; j++) books[i].codewords[j] = (real)rng_normal(&rng);
    codebook_refresh(&books[i]);
  }
  uint16_t frequencies[BLOCKS * GROUPS * ENTRIES];
  for (int i = 0; i < BLOCKS * GROUPS; i++) {
    double counts[ENTRIES] = {1, 2, 4, 8, 16 * (1 + i / GROUPS)};
    assert_int_equal(code_frequencies_fit(counts, ENTRIES, frequencies + i * ENTRIES), STATUS_OK);
  }
  assert_int_equal(rans_tables_new(&coding, frequencies, BLOCKS * GROUPS, ENTRIES), STATUS_OK);
  return 0;
}

static int close_books(void **state) {
  (void)state;
  for (int i = 0; i < BLOCKS; i++) codebook_release(&books[i]);
  rans_tables_free(coding);
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
  int self, nodes, parts, sockets[MAX], blocks_done;
  const int64_t *counts;
  CodeExchangeSide base;
  bool right, mask, coded;
  char problem[256];
} Side;

static void open_side(Side *side, double timeout) {
  CodeExchangeSetup setup = {.self = side->self,
                             .nodes = side->nodes,
                             .layout = &side->base.layout,
                             .books = books,
                             .blocks = BLOCKS,
                             .sites = 1,
                             .batch_max = BATCH,
                             .parts = side->parts,
                             .keep_codes = true,
                             .coding = side->coded ? coding : NULL};
  Reliability reliability = {.mode = RELIABILITY_STREAM, .timeout = timeout};
  TransportThreadSetup transport = {
      .transport.reliability = &reliability, .transport.timeout = timeout, .transport.mask = side->mask, .open = backend_open};
  assert_int_equal(layout_build(&side->base.layout, TOKENS, side->nodes, side->counts, NULL, CLASS_DISTRIBUTED, side->self), STATUS_OK);
  code_exchange_side_open(&side->base, &setup, &transport, side->sockets);
}

static void close_side(Side *side) { code_exchange_side_close(&side->base); }

static Tensor *make_h(Side *side, int request, int block, int64_t batch) {
  int64_t shape[3] = {batch, side->base.layout.rows, WIDTH};
  Tensor *h = tape_tensor(side->base.tape, 3, shape);
  for (int64_t b = 0; b < batch; b++) {
    for (int64_t r = 0; r < side->base.layout.rows; r++) {
      for (int64_t i = 0; i < WIDTH; i++)
        h->value[(b * side->base.layout.rows + r) * WIDTH + i] = activation(request, block, b, side->base.layout.row_token[r] + 1, i);
    }
  }
  return h;
}

/* What every other token must look like. */
static bool remote_is_right(const Side *side, int request, int block, int64_t batch, const Tensor *remote) {
  int32_t codes[GROUPS];
  real x[WIDTH], q[WIDTH];
  void *scratch = malloc(codebook_assign_scratch(&books[block], 1));
  bool right = remote->shape[0] == batch && remote->shape[1] == side->base.layout.remote && remote->shape[2] == WIDTH;
  for (int64_t b = 0; b < batch && right; b++) {
    int64_t place = 0;
    for (int token = 0; token < TOKENS; token++) {
      if (token >= side->base.layout.device_shared[side->self] && token < side->base.layout.device_shared[side->self + 1]) continue;
      for (int64_t i = 0; i < WIDTH; i++) x[i] = activation(request, block, b, token + 1, i);
      codebook_assign(&books[block], x, 1, codes, NULL, scratch);
      codebook_lookup(&books[block], codes, 1, q);
      right = right && memcmp(q, remote->value + (b * side->base.layout.remote + place++) * WIDTH, sizeof q) == 0;
    }
  }
  free(scratch);
  return right;
}

static Status exchange_block(Side *side, int request, int block, int64_t batch, Tensor **remote) {
  Exchange *exchange = &side->base.network.exchange;
  Tensor *const h[EXCHANGE_SITES] = {make_h(side, request, block, batch), NULL};
  ExchangeRows rows[EXCHANGE_SITES];
  *remote = NULL;
  TRY(exchange->begin(exchange, side->base.tape, &side->base.layout, block, 0, h));
  TRY(exchange->finish(exchange, side->base.tape, &side->base.layout, block, 0, rows));
  *remote = rows[0].x;
  return STATUS_OK;
}

static Status run_requests(Side *side) {
  for (int request = 1; request <= REQUESTS; request++) {
    int64_t batch = batch_of(request);
    tape_clear(side->base.tape);
    TRY(code_exchange_begin_request(&side->base.network,
                                    &(CodeExchangeRequest){.number = (uint32_t)request, .batch = batch, .keep = request == 1}));
    for (int block = 0; block < BLOCKS; block++) {
      Tensor *remote;
      TRY(exchange_block(side, request, block, batch, &remote));
      if (!remote_is_right(side, request, block, batch, remote)) return status_set(STATUS_NUMERIC, "request %d block %d", request, block);
      side->blocks_done++;
    }
  }
  return STATUS_OK;
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
      assert_int_equal(connection_pair(pair), STATUS_OK);
      sides[i].sockets[j] = pair[0];
      sides[j].sockets[i] = pair[1];
    }
  }
}

/* Written out: all tokens of a block's 9 bits without gaps (3 groups of 3), behind a length and a header, for each receiver. */
static uint64_t expected_bytes(int nodes, int64_t own) {
  uint64_t sum = 0;
  for (int request = 1; request <= REQUESTS; request++)
    sum += BLOCKS * (uint64_t)(nodes - 1) * (uint64_t)(4 + 12 + (batch_of(request) * own * 9 + 7) / 8);
  return sum;
}

static void exchange_among(int nodes, const int64_t *counts, int socket_buffer) {
  Side sides[MAX];
  pthread_t threads[MAX];
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
    TransportState counted = transport_thread_state(sides[i].base.transport);
    assert_int_equal(counted.bytes_sent, expected_bytes(nodes, counts[i]));
    assert_int_equal(counted.packets_sent, BLOCKS * REQUESTS * (nodes - 1));
    assert_int_equal(sides[i].base.network.statistics.masked, 0);
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

/* ---- blocks in parts ---- */

/* What finish says of one part, against the codewords of the tokens whose places it names. */
static bool part_is_right(const Side *side, int request, int block, const ExchangeRows *rows, bool *seen) {
  int32_t codes[GROUPS];
  real x[WIDTH], q[WIDTH];
  void *scratch = malloc(codebook_assign_scratch(&books[block], 1));
  bool right = rows->lost == NULL && rows->x != NULL;
  int64_t row = 0;
  for (int64_t r = 0; r < rows->runs && right; r++) {
    for (int64_t i = 0; i < rows->run[r].count; i++, row++) {
      int64_t place = rows->run[r].place + i, before = side->base.layout.device_shared[side->self];
      int64_t token = place < before ? place : place + side->base.layout.shared_rows;
      for (int64_t k = 0; k < WIDTH; k++) x[k] = activation(request, block, 0, (int)token + 1, k);
      codebook_assign(&books[block], x, 1, codes, NULL, scratch);
      codebook_lookup(&books[block], codes, 1, q);
      right = right && !seen[place] && memcmp(q, rows->x->value + row * WIDTH, sizeof q) == 0;
      seen[place] = true;
    }
  }
  free(scratch);
  return right && row == rows->x->shape[1];
}

static Status begin_parts(Side *side, int request, int block, int parts) {
  Exchange *exchange = &side->base.network.exchange;
  Tensor *h = make_h(side, request, block, 1);
  for (int p = 0; p < parts; p++) {
    int64_t first, rows, first_shared, shared;
    layout_part(&side->base.layout, parts, p, &first, &rows, &first_shared, &shared);
    Tensor part = {.dims = 3, .shape = {1, rows, WIDTH}, .value = h->value + first * WIDTH};
    TRY(exchange->begin(exchange, side->base.tape, &side->base.layout, block, p, (Tensor *[EXCHANGE_SITES]){&part, NULL}));
  }
  return STATUS_OK;
}

static Status run_parts(Side *side) {
  Exchange *exchange = &side->base.network.exchange;
  for (int request = 1; request <= REQUESTS; request++) {
    TRY(code_exchange_begin_request(&side->base.network, &(CodeExchangeRequest){.number = (uint32_t)request, .batch = 1}));
    int parts = exchange->parts;
    if (parts != 3) return status_set(STATUS_NUMERIC, "%d parts", parts);
    tape_clear(side->base.tape);
    for (int block = 0; block < BLOCKS; block++) {
      bool seen[TOKENS] = {0};
      TRY(begin_parts(side, request, block, parts));
      for (int p = 0; p < parts; p++) {
        ExchangeRows rows[EXCHANGE_SITES];
        TRY(exchange->finish(exchange, side->base.tape, &side->base.layout, block, p, rows));
        if (!part_is_right(side, request, block, rows, seen))
          return status_set(STATUS_NUMERIC, "request %d block %d part %d", request, block, p);
      }
      for (int64_t i = 0; i < side->base.layout.remote; i++) {
        if (!seen[i]) return status_set(STATUS_NUMERIC, "request %d block %d: row %d never came", request, block, (int)i);
      }
    }
  }
  return STATUS_OK;
}

static void *run_side_in_parts(void *argument) {
  Side *side = argument;
  Status status = run_parts(side);
  side->right = status == STATUS_OK;
  if (!side->right) snprintf(side->problem, sizeof side->problem, "%s", status_message());
  return NULL;
}

/* Three parts of 5, 2 and 4 tokens: some parts of the second node are empty. */
static void blocks_in_parts(void **state) {
  (void)state;
  Side sides[3];
  pthread_t threads[3];
  connect_sides(sides, 3, counts_of_three);
  for (int i = 0; i < 3; i++) {
    sides[i].parts = 3;
    open_side(&sides[i], 20);
  }
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_side_in_parts, &sides[i]), 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 3; i++) {
    if (!sides[i].right) fail_msg("node %d: %s", i, sides[i].problem);
  }
  Tensor *remote;
  assert_int_equal(code_exchange_begin_request(&sides[0].base.network, &(CodeExchangeRequest){.number = REQUESTS + 1, .batch = 1}),
                   STATUS_OK);
  assert_int_equal(exchange_block(&sides[0], 1, 0, 1, &remote), STATUS_BAD_VALUE); /* not by whole blocks then */
  assert_int_equal(
      code_exchange_begin_request(&sides[0].base.network, &(CodeExchangeRequest){.number = REQUESTS + 2, .batch = 1, .whole = true}),
      STATUS_OK);
  assert_int_equal(sides[0].base.network.exchange.parts, 1);
  for (int i = 0; i < 3; i++) close_side(&sides[i]);
}

/* ---- this test as node 1 ---- */

typedef struct Hostile {
  Side side; /* node 0 of two */
  int wire;  /* node 1's end */
} Hostile;

static Status begin_request(Side *side, uint32_t number, int64_t batch, bool keep) {
  return code_exchange_begin_request(&side->base.network, &(CodeExchangeRequest){.number = number, .batch = batch, .keep = keep});
}

static void open_masking(Hostile *hostile, double timeout, bool mask) {
  int pair[2];
  assert_int_equal(connection_pair(pair), STATUS_OK);
  hostile->side = (Side){.nodes = 2, .counts = counts_of_two, .sockets = {-1, pair[0]}, .mask = mask};
  hostile->wire = pair[1];
  open_side(&hostile->side, timeout);
  assert_int_equal(begin_request(&hostile->side, 1, 1, false), STATUS_OK);
}

static void open_hostile(Hostile *hostile, double timeout) { open_masking(hostile, timeout, false); }

static void close_hostile(Hostile *hostile) {
  if (hostile->wire >= 0) close(hostile->wire);
  close_side(&hostile->side);
}

/* An honest packet of node 1 for one sample behind its length: 7 tokens of 9 bits, all codes 4. */
enum { PAYLOAD = 8, LENGTH = 4, MESSAGE = LENGTH + PACKET_HEADER + PAYLOAD };
static void honest(uint8_t message[MESSAGE], uint32_t request, int block) {
  int32_t codes[7 * GROUPS];
  for (int i = 0; i < 7 * GROUPS; i++) codes[i] = 4;
  wire_put_u32(message, PACKET_HEADER + PAYLOAD);
  packet_pack(&(Packet){.request = request, .block = (uint8_t)block, .count = 1}, message + LENGTH);
  pack_dense(codes, 7, GROUPS, ENTRIES, message + LENGTH + PACKET_HEADER);
}

static Status cancel(void *cancelled) {
  *(bool *)cancelled = true;
  return STATUS_OK;
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
  } faults[] = {{"no length", "a packet of 0 bytes", 0, 0},
                {"huge length", "a packet of 2130706452 bytes", 3, 0x7F},
                {"shorter", "7 bytes where 8 to 8", 0, 19},
                {"block out of the model", "block 3", LENGTH + 4, BLOCKS},
                {"block out of turn", "block 1 where request 1, block 0", LENGTH + 4, 1},
                {"site", "site 1", LENGTH + 5, 1},
                {"rows", "type 1", LENGTH + 5, 1 << 4},
                {"a question", "a question", LENGTH + 5, 2 << 4},
                {"an answer", "an answer", LENGTH + 5, 3 << 4},
                {"no type", "type 9", LENGTH + 5, 9 << 4},
                {"part", "part 1", LENGTH + 6, 1},
                {"flags", "flags 1", LENGTH + 7, 1},
                {"request zero", "request 0", LENGTH + 0, 0},
                {"request out of turn", "request 2, block 0 where", LENGTH + 0, 2},
                {"index", "packet 1 of 1 where packet 0", LENGTH + 8, 1},
                {"count zero", "packet 0 of 0", LENGTH + 10, 0},
                {"count above the tokens", "packet 0 of 8", LENGTH + 10, 8},
                {"count of others", "8 bytes where 5 to 5", LENGTH + 10, 2},
                {"code above K", "block 0", LENGTH + PACKET_HEADER, 0xFF},
                {"padding", "block 0", LENGTH + PACKET_HEADER + 7, 0x84}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    Hostile hostile;
    uint8_t message[MESSAGE];
    open_hostile(&hostile, 5);
    honest(message, 1, 0);
    message[faults[i].offset] = faults[i].value;
    assert_int_equal(write(hostile.wire, message, sizeof message), sizeof message);
    Status status = receive_first_block(&hostile);
    if (status != STATUS_BAD_VALUE) fail_msg("%s: %s", faults[i].what, status == STATUS_OK ? "was accepted" : status_message());
    if (!strstr(status_message(), faults[i].message)) fail_msg("%s: %s", faults[i].what, status_message());
    if (strncmp(status_message(), "node 1: ", 8) != 0) fail_msg("%s: %s", faults[i].what, status_message());
    assert_int_equal(hostile.side.base.network.fault, 1);
    close_hostile(&hostile);
  }
}

/* ---- entropy-coded packets ---- */

/* The same codes coded, with the header's flag; the bytes of the message. */
static size_t coded_honest(uint8_t message[MESSAGE], int block) {
  int32_t codes[7 * GROUPS];
  for (int i = 0; i < 7 * GROUPS; i++) codes[i] = 4;
  size_t bytes = rans_encode(coding + block * GROUPS, codes, 7, GROUPS, message + LENGTH + PACKET_HEADER, PAYLOAD - 1);
  assert_in_range(bytes, RANS_STATE, PAYLOAD - 1);
  wire_put_u32(message, (uint32_t)(PACKET_HEADER + bytes));
  packet_pack(&(Packet){.request = 1, .block = (uint8_t)block, .flags = PACKET_CODED, .count = 1}, message + LENGTH);
  return LENGTH + PACKET_HEADER + bytes;
}

static void open_coded(Hostile *hostile) {
  int pair[2];
  assert_int_equal(connection_pair(pair), STATUS_OK);
  hostile->side = (Side){.nodes = 2, .counts = counts_of_two, .sockets = {-1, pair[0]}, .coded = true};
  hostile->wire = pair[1];
  open_side(&hostile->side, 5);
  assert_int_equal(begin_request(&hostile->side, 1, 1, false), STATUS_OK);
}

/* Packed packets among them are as good. Each block has frequencies of its own. */
static void coded_packets_are_codes(void **state) {
  (void)state;
  Hostile hostile;
  uint8_t message[MESSAGE];
  open_coded(&hostile);
  for (int block = 0; block < BLOCKS; block++) {
    size_t size = block == 1 ? MESSAGE : coded_honest(message, block);
    Tensor *remote;
    if (block == 1) honest(message, 1, block);
    assert_int_equal(write(hostile.wire, message, size), size);
    assert_int_equal(exchange_block(&hostile.side, 1, block, 1, &remote), STATUS_OK);
    for (int token = 0; token < 7; token++)
      assert_memory_equal(remote->value + token * WIDTH, books[block].codewords + 4 * (WIDTH / GROUPS), WIDTH / GROUPS * sizeof(real));
  }
  close_hostile(&hostile);
}

/* Every bit of the payload flipped, every shorter length, and a block's bytes in another block: none is what the encoder makes. */
static void damaged_coded_packets_are_refused(void **state) {
  (void)state;
  uint8_t whole[MESSAGE];
  int size = (int)coded_honest(whole, 0), payload = LENGTH + PACKET_HEADER, bits = 8 * (size - payload);
  for (int fault = 0; fault <= bits + size - payload; fault++) {
    Hostile hostile;
    uint8_t message[MESSAGE];
    int sent = size;
    memcpy(message, whole, sizeof message);
    if (fault < bits) message[payload + fault / 8] ^= (uint8_t)(1 << fault % 8);
    if (fault >= bits && fault < bits + size - payload) sent = payload + fault - bits;
    if (fault == bits + size - payload) sent = (int)coded_honest(message, 2), message[LENGTH + 4] = 0;
    wire_put_u32(message, (uint32_t)(sent - LENGTH));
    open_coded(&hostile);
    assert_int_equal(write(hostile.wire, message, (size_t)sent), sent);
    Status status = receive_first_block(&hostile);
    if (status != STATUS_BAD_VALUE) fail_msg("fault %d: %s", fault, status == STATUS_OK ? "was accepted" : status_message());
    assert_int_equal(hostile.side.base.network.fault, 1);
    close_hostile(&hostile);
  }
}

static void an_honest_peer_may_run_one_block_ahead(void **state) {
  (void)state;
  Hostile hostile;
  uint8_t message[MESSAGE];
  Tensor *remote;
  open_hostile(&hostile, 5);
  for (int block = 0; block < BLOCKS; block++) { /* all at once: the third is held back until the first is used */
    honest(message, 1, block);
    assert_int_equal(write(hostile.wire, message, MESSAGE), MESSAGE);
  }
  for (int block = 0; block < BLOCKS; block++) assert_int_equal(exchange_block(&hostile.side, 1, block, 1, &remote), STATUS_OK);
  assert_memory_equal(remote->value, books[BLOCKS - 1].codewords + 4 * (WIDTH / GROUPS), WIDTH / GROUPS * sizeof(real));
  close_hostile(&hostile);
}

static void a_replayed_message_is_refused(void **state) {
  (void)state;
  Hostile hostile;
  uint8_t message[MESSAGE];
  Tensor *remote;
  honest(message, 1, 0);
  open_hostile(&hostile, 5);
  assert_int_equal(write(hostile.wire, message, MESSAGE), MESSAGE);
  assert_int_equal(receive_first_block(&hostile), STATUS_OK);
  assert_int_equal(write(hostile.wire, message, MESSAGE), MESSAGE);
  assert_int_equal(exchange_block(&hostile.side, 1, 1, 1, &remote), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "request 1, block 0 where request 1, block 1"));
  close_hostile(&hostile);
}

/* What is sent ahead is checked once its request begins. */
static void a_packet_of_another_batch_is_refused(void **state) {
  (void)state;
  Hostile hostile;
  uint8_t message[MESSAGE + PAYLOAD] = {0};
  Tensor *remote;
  open_hostile(&hostile, 5);
  for (int block = 0; block < BLOCKS; block++) {
    honest(message, 1, block);
    assert_int_equal(write(hostile.wire, message, MESSAGE), MESSAGE);
  }
  wire_put_u32(message, PACKET_HEADER + 2 * PAYLOAD); /* two samples */
  packet_pack(&(Packet){.request = 2, .count = 1}, message + LENGTH);
  assert_int_equal(write(hostile.wire, message, sizeof message), sizeof message);
  for (int block = 0; block < BLOCKS; block++) assert_int_equal(exchange_block(&hostile.side, 1, block, 1, &remote), STATUS_OK);
  Status status = begin_request(&hostile.side, 2, 1, false);
  if (status == STATUS_OK) status = exchange_block(&hostile.side, 2, 0, 1, &remote);
  assert_int_equal(status, STATUS_BAD_VALUE);
  assert_string_equal(status_message(), "node 1: sent a packet with 16 bytes where 8 to 8 are possible");
  close_hostile(&hostile);
}

/* Node 1 says its first block and no more, in three ways: from then on its tokens, and no others, are masked, and nothing fails. */
static void tokens_of_one_that_is_gone_are_masked(void **state) {
  (void)state;
  enum { CLOSES, GIVEN_UP, SILENT, WAYS };
  for (int way = 0; way < WAYS; way++) {
    Hostile hostile;
    uint8_t message[MESSAGE];
    honest(message, 1, 0);
    open_masking(&hostile, 5, true);
    CodeExchange *net = &hostile.side.base.network;
    assert_int_equal(write(hostile.wire, message, MESSAGE), MESSAGE);
    for (uint32_t request = 1; request <= 2; request++) {
      if (request > 1) assert_int_equal(begin_request(&hostile.side, request, 1, false), STATUS_OK);
      for (int block = 0; block < BLOCKS; block++) {
        Tensor *const h[EXCHANGE_SITES] = {make_h(&hostile.side, 1, block, 1), NULL};
        ExchangeRows rows[EXCHANGE_SITES];
        double start = clock_now();
        assert_int_equal(net->exchange.begin(&net->exchange, hostile.side.base.tape, &hostile.side.base.layout, block, 0, h), STATUS_OK);
        assert_int_equal(net->exchange.finish(&net->exchange, hostile.side.base.tape, &hostile.side.base.layout, block, 0, rows),
                         STATUS_OK);
        const uint8_t *lost = rows[0].lost;
        if (request == 1 && block == 0) {
          assert_null(lost);
          if (way == CLOSES) close(hostile.wire), hostile.wire = -1;
          if (way == GIVEN_UP) transport_thread_gone(hostile.side.base.transport, 1);
          continue;
        }
        assert_non_null(lost);
        for (int i = 0; i < 7; i++) assert_int_equal(lost[i], 1);
        if (request > 1 || block > 1) assert_true(clock_now() - start < 4); /* nobody waits for it again */
      }
    }
    assert_int_equal(net->statistics.masked, 7 * BLOCKS);
    assert_int_equal(net->fault, -1);
    close_hostile(&hostile);
  }
}

static void a_request_that_is_cancelled_ends(void **state) {
  (void)state;
  Hostile hostile;
  bool cancelled = false;
  open_hostile(&hostile, 20);
  CodeExchange *net = &hostile.side.base.network;
  net->cancelled = &cancelled;
  net->check_context = &cancelled;
  net->check = cancel;
  double start = clock_now();
  assert_int_equal(receive_first_block(&hostile), STATUS_INTERRUPTED);
  assert_true(clock_now() - start < 10);
  assert_int_equal(receive_first_block(&hostile), STATUS_INTERRUPTED);
  assert_int_equal(net->fault, -1);
  assert_int_equal(net->exchange.pass(&net->exchange, 7), STATUS_INTERRUPTED); /* also where nothing is waited for */
  cancelled = false;
  assert_int_equal(net->exchange.pass(&net->exchange, 7), STATUS_OK);
  close_hostile(&hostile);
}

/* The leader hears of blocks that exchange nothing as of others. */
static void note_block(void *context, int block) { *(int *)context = block; }

static void blocks_without_codes_are_reported(void **state) {
  (void)state;
  Hostile hostile;
  int reported = -1;
  open_hostile(&hostile, 20);
  CodeExchange *net = &hostile.side.base.network;
  net->progress = note_block;
  net->progress_context = &reported;
  assert_int_equal(net->exchange.pass(&net->exchange, 7), STATUS_OK);
  assert_int_equal(reported, 7);
  close_hostile(&hostile);
}

static void silence_ends_at_the_deadline(void **state) {
  (void)state;
  Hostile hostile;
  open_hostile(&hostile, 0.2);
  double start = clock_now();
  assert_int_equal(receive_first_block(&hostile), STATUS_TIMEOUT);
  assert_true(clock_now() - start >= 0.2 && clock_now() - start < 5);
  assert_string_equal(status_message(), "node 1 did not answer within 0.2 s; --timeout gives it longer");
  assert_int_equal(hostile.side.base.network.fault, 1);
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
  assert_int_equal(hostile.side.base.network.fault, 1);
  close_hostile(&hostile);
}

static void requests_come_in_order(void **state) {
  (void)state;
  Hostile hostile;
  open_hostile(&hostile, 1);
  assert_int_equal(begin_request(&hostile.side, 1, 1, false), STATUS_BAD_VALUE);
  assert_int_equal(begin_request(&hostile.side, 3, 1, false), STATUS_BAD_VALUE);
  assert_int_equal(begin_request(&hostile.side, 2, BATCH + 1, false), STATUS_BAD_VALUE);
  assert_int_equal(begin_request(&hostile.side, 2, 0, false), STATUS_BAD_VALUE);
  assert_int_equal(begin_request(&hostile.side, 2, BATCH, true), STATUS_OK);
  close_hostile(&hostile);
}

/* Bytes of the packets, headers included, into which a node cuts the codes of so many tokens: PACKET_HEADER + ceil(n G ceil(log2 K) / 8) of
 * a packet of n tokens. */
static size_t cut_bytes(int64_t groups, int64_t entries, int64_t tokens, int packets) {
  const int64_t counts[] = {tokens, 1};
  TokenLayout layout = {0};
  Codebook book;
  CodeExchange exchange;
  const TransportPacket *cut;
  int count;
  size_t bytes = 0;
  assert_int_equal(layout_build(&layout, tokens + 1, 2, counts, NULL, CLASS_DISTRIBUTED, 0), STATUS_OK);
  assert_int_equal(codebook_init(&book, groups, entries, groups, NULL), STATUS_OK);
  for (int64_t i = 0; i < entries * groups; i++) book.codewords[i] = (real)(i % entries);
  codebook_refresh(&book);
  const CodeExchangeSetup setup = {
      .nodes = 2, .layout = &layout, .books = &book, .blocks = 1, .sites = 1, .batch_max = 1, .min_packets = packets, .max_packet = 65536};
  assert_int_equal(code_exchange_init(&exchange, &setup), STATUS_OK);
  assert_int_equal(code_exchange_begin_request(&exchange, &(CodeExchangeRequest){.number = 1, .batch = 1}), STATUS_OK);
  real *rows = calloc((size_t)(layout.rows * groups), sizeof *rows);
  const Tensor h = {.dims = 3, .shape = {1, layout.rows, groups}, .value = rows};
  assert_int_equal(code_exchange_encode_part(&exchange, NULL, &layout, 0, 0, 0, &h, &cut, &count), STATUS_OK);
  assert_int_equal(count, packets);
  for (int f = 0; f < count; f++) bytes += PACKET_HEADER + cut[f].bytes;
  free(rows);
  code_exchange_release(&exchange);
  codebook_release(&book);
  layout_release(&layout);
  return bytes;
}

static void bytes_of_packets_follow_the_formula(void **state) {
  (void)state;
  assert_int_equal(cut_bytes(8, 1024, 64 * 16, 1), 12 + 64 * 16 * 10);
  assert_int_equal(cut_bytes(1, 1024, 49, 1), 12 + 62); /* 490 bits */
  assert_int_equal(cut_bytes(1, 1024, 49, 2), 2 * 12 + 32 + 30);
  assert_int_equal(cut_bytes(32, 1000, 49, 3), 3 * 12 + 49 * 40);
  assert_int_equal(cut_bytes(3, 5, 1, 1), 12 + 2);
}

/* A node of texts of up to 2 `max` tokens, half of them its own, in packets of 100 bytes: what becomes of one of 2 `tokens`. */
static Status begin_text(int64_t max, int64_t tokens) {
  TokenLayout layout = {0};
  CodeExchange exchange;
  const CodeExchangeSetup setup = {.nodes = 2,
                                   .layout = &layout,
                                   .books = books,
                                   .blocks = 1,
                                   .sites = 1,
                                   .batch_max = 1,
                                   .causal = true,
                                   .tokens_max = 2 * max,
                                   .max_packet = 100};
  assert_int_equal(layout_build(&layout, 2 * max, 2, (int64_t[]){max, max}, NULL, CLASS_NONE, 0), STATUS_OK);
  assert_int_equal(code_exchange_init(&exchange, &setup), STATUS_OK);
  assert_int_equal(layout_build(&layout, 2 * tokens, 2, (int64_t[]){tokens, tokens}, NULL, CLASS_NONE, 0), STATUS_OK);
  Status status = code_exchange_begin_request(&exchange, &(CodeExchangeRequest){.number = 1, .batch = 1, .whole = true});
  code_exchange_release(&exchange);
  layout_release(&layout);
  return status;
}

static void a_long_context_does_not_keep_short_texts_out(void **state) {
  const int64_t most = (int64_t)MAX_PACKETS * (100 * 8 / (GROUPS * 3)); /* codes of 3 bits, for 5 entries */
  (void)state;
  assert_int_equal(begin_text(most, most), STATUS_OK);
  assert_int_equal(begin_text(4 * most, 10), STATUS_OK);
  assert_int_equal(begin_text(4 * most, most), STATUS_OK);
  assert_int_equal(begin_text(4 * most, most + 1), STATUS_UNSUPPORTED); /* by any device */
  assert_non_null(strstr(status_message(), "--transport tcp"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(two_nodes),
                                     cmocka_unit_test(three_uneven_nodes),
                                     cmocka_unit_test(tiny_socket_buffers),
                                     cmocka_unit_test(blocks_in_parts),
                                     cmocka_unit_test(forged_messages_are_refused),
                                     cmocka_unit_test(coded_packets_are_codes),
                                     cmocka_unit_test(damaged_coded_packets_are_refused),
                                     cmocka_unit_test(an_honest_peer_may_run_one_block_ahead),
                                     cmocka_unit_test(a_replayed_message_is_refused),
                                     cmocka_unit_test(a_packet_of_another_batch_is_refused),
                                     cmocka_unit_test(tokens_of_one_that_is_gone_are_masked),
                                     cmocka_unit_test(a_request_that_is_cancelled_ends),
                                     cmocka_unit_test(blocks_without_codes_are_reported),
                                     cmocka_unit_test(silence_ends_at_the_deadline),
                                     cmocka_unit_test(a_closed_peer_is_named),
                                     cmocka_unit_test(requests_come_in_order),
                                     cmocka_unit_test(bytes_of_packets_follow_the_formula),
                                     cmocka_unit_test(a_long_context_does_not_keep_short_texts_out)};
  return cmocka_run_group_tests(tests, open_books, close_books);
}
