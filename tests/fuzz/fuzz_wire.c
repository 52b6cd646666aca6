/* Fuzz target: what a hostile peer may send. The input is the byte stream of node 1 as node 0 of two reads it: headers, then a network
 * that takes part in two requests of a small model; and the statistics of a result.
 * Holds: a header that is accepted packs to the same bytes; no input is read or written past its buffers; the node ends with a status. */
#include "fuzz/fuzz.h"
#include "infer/cluster/connection.h"
#include "infer/cluster/peer_backend.h"
#include "infer/code_exchange.h"
#include "infer/request.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCKS = 2, WIDTH = 4, GROUPS = 2, ENTRIES = 5, TOKENS = 5, BATCH = 2 };

static void parse_header(const uint8_t *data, size_t size) {
  uint8_t again[WIRE_HEADER], statistics[WIRE_STATISTICS];
  WireHeader header;
  NodeStatistics parsed;
  if (size < WIRE_HEADER) return;
  if (wire_parse(data, 1 << 16, &header) == STATUS_OK) {
    wire_pack(&header, again);
    if (memcmp(again, data, WIRE_HEADER) != 0) abort();
  }
  if (size < WIRE_STATISTICS || request_statistics(byte_cursor_from(data), &parsed) != STATUS_OK) return;
  request_statistics(byte_cursor_to(statistics), &parsed);
  if (memcmp(statistics, data, WIRE_STATISTICS) != 0) abort();
}

static Status exchange(CodeExchange *network, Tape *tape, const TokenLayout *layout, int64_t batch, int block) {
  int64_t shape[3] = {batch, layout->rows, WIDTH};
  Tensor *h = tape_tensor(tape, 3, shape);
  ExchangeRows rows[EXCHANGE_SITES];
  memset(h->value, 0, (size_t)tensor_count(h) * sizeof(real));
  TRY(network->exchange.begin(&network->exchange, tape, layout, block, 0, (Tensor *[EXCHANGE_SITES]){h, NULL}));
  return network->exchange.finish(&network->exchange, tape, layout, block, 0, rows);
}

static Status serve(CodeExchange *network, Tape *tape, const TokenLayout *layout) {
  for (uint32_t request = 1; request <= 2; request++) {
    TRY(code_exchange_begin_request(network, &(CodeExchangeRequest){.number = request, .batch = 3 - request, .keep = true}));
    for (int block = 0; block < BLOCKS; block++) TRY(exchange(network, tape, layout, 3 - request, block));
  }
  return STATUS_OK;
}

/* All input is in the socket before the node begins, so what has not come then never will: nothing is waited for. */
static void feed(const uint8_t *data, size_t size, CodeExchange *network, Tape *tape, const TokenLayout *layout, const Codebook *books) {
  int pair[2];
  Connection *channels[2] = {0};
  if (connection_pair(pair) != STATUS_OK || connection_plain(&channels[1], pair[0]) != STATUS_OK) abort();
  CodeExchangeSetup setup = {
      .nodes = 2, .layout = layout, .books = books, .blocks = BLOCKS, .sites = 1, .batch_max = BATCH, .keep_codes = true};
  Reliability reliability = {.mode = RELIABILITY_STREAM, .timeout = 1e-3};
  TransportThreadSetup transport = {.transport.reliability = &reliability, .transport.timeout = 1e-3, .open = backend_open};
  code_exchange_transport(&setup, &transport.transport);
  BackendPeers peers = {.self = 0, .nodes = 2, .channels = channels, .max_packet = PACKET_HEADER + transport.transport.max_message_bytes};
  transport.open_context = &peers;
  (void)!send(pair[1], data, size < 4096 ? size : 4096, MSG_NOSIGNAL);
  if (transport_thread_start(&setup.transport, &transport) != STATUS_OK || code_exchange_init(network, &setup) != STATUS_OK) abort();
  serve(network, tape, layout);
  transport_thread_stop(setup.transport);
  code_exchange_release(network);
  close(pair[1]);
  tape_clear(tape);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static Codebook books[BLOCKS];
  static TokenLayout layout;
  static Tape *tape;
  static CodeExchange network;
  const int64_t counts[2] = {2, 3};
  if (!tape) {
    Arena *arena = arena_new((size_t)1 << 20);
    if (!arena || !(tape = tape_new(arena))) abort();
    tape_record(tape, false);
    for (int i = 0; i < BLOCKS; i++) {
      if (codebook_init(&books[i], GROUPS, ENTRIES, WIDTH, NULL) != STATUS_OK) abort();
      memset(books[i].codewords, 0, ENTRIES * WIDTH * sizeof(real));
      codebook_refresh(&books[i]);
    }
    if (layout_build(&layout, TOKENS, 2, counts, NULL, CLASS_DISTRIBUTED, 0) != STATUS_OK) abort();
  }
  parse_header(data, size);
  feed(data, size, &network, tape, &layout, books);
  return 0;
}
