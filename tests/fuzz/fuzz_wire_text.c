/* Fuzz target: what a hostile node may send to the one behind it while texts of different lengths are read. The input is the byte stream of
 * node 0 as node 1 of two reads it, in four requests; in the third node 1 takes no part.
 * Holds: no input is read or written past its buffers; codes that are handed on are codes; the node ends with a status. */
#include "fuzz/fuzz.h"
#include "infer/cluster/connection.h"
#include "infer/cluster/peer_backend.h"
#include "infer/code_exchange.h"
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCKS = 2, SITES = 2, WIDTH = 4, GROUPS = 2, ENTRIES = 5, TOKENS = 5, BATCH = 2, REQUESTS = 4 };

/* A code of five takes three bits: two codes fill six of a byte. */
static void hear(void *context, int block, int site, int64_t first, int64_t tokens, const uint8_t *packed) {
  (void)context;
  need(block >= 0 && block < BLOCKS && site >= 0 && site < SITES && first == 0 && tokens > 0 && tokens < TOKENS);
  for (int64_t i = 0; i < tokens; i++) need((packed[i] & 7) < ENTRIES && (packed[i] >> 3) < ENTRIES);
}

static Status exchange(CodeExchange *network, Tape *tape, const TokenLayout *layout, int64_t batch, int block) {
  int64_t shape[3] = {batch, layout->rows, WIDTH};
  Tensor *h = tape_tensor(tape, 3, shape);
  ExchangeRows rows[EXCHANGE_SITES] = {{.runs = 0}, {.runs = 0}};
  memset(h->value, 0, (size_t)tensor_count(h) * sizeof(real));
  TRY(network->exchange.begin(&network->exchange, tape, layout, block, 0, (Tensor *[EXCHANGE_SITES]){h, h}));
  TRY(network->exchange.finish(&network->exchange, tape, layout, block, 0, rows));
  for (int site = 0; site < SITES; site++) need(rows[site].x->shape[0] == batch && rows[site].x->shape[1] == layout->remote);
  return STATUS_OK;
}

static Status build(TokenLayout *layout, int64_t tokens) {
  const int64_t counts[2] = {tokens - tokens / 2, tokens / 2};
  if (tokens > 1) return layout_build(layout, tokens, 2, counts, NULL, CLASS_NONE, 1);
  TRY(layout_build(layout, tokens, 1, counts, NULL, CLASS_NONE, -1));
  layout->rows = layout->shared_rows = layout->last_rows = 0;
  return STATUS_OK;
}

static Status serve(CodeExchange *network, Tape *tape, TokenLayout *layout) {
  const int64_t tokens[REQUESTS] = {TOKENS, 3, 1, 4}, batch[REQUESTS] = {1, BATCH, 1, 1};
  for (uint32_t request = 1; request <= REQUESTS; request++) {
    need(build(layout, tokens[request - 1]) == STATUS_OK);
    TRY(code_exchange_begin_request(network, &(CodeExchangeRequest){.number = request, .batch = batch[request - 1]}));
    network->heard = batch[request - 1] == 1 ? hear : NULL; /* of one sample, as a cache wants them */
    for (int block = 0; block < BLOCKS && layout->rows > 0; block++) TRY(exchange(network, tape, layout, batch[request - 1], block));
  }
  return STATUS_OK;
}

/* All input is in the socket before the node begins, so what has not come then never will: nothing is waited for long. */
static void feed(const uint8_t *data, size_t size, CodeExchange *network, Tape *tape, TokenLayout *layout, const Codebook *books) {
  int pair[2];
  Connection *channels[2] = {0};
  need(connection_pair(pair) == STATUS_OK && connection_plain(&channels[0], pair[0]) == STATUS_OK);
  CodeExchangeSetup setup = {.self = 1,
                             .nodes = 2,
                             .layout = layout,
                             .books = books,
                             .blocks = BLOCKS,
                             .sites = SITES,
                             .batch_max = BATCH,
                             .causal = true,
                             .tokens_max = TOKENS};
  Reliability reliability = {.mode = RELIABILITY_STREAM, .timeout = 1e-3};
  TransportThreadSetup transport = {.transport.reliability = &reliability, .transport.timeout = 1e-3, .open = backend_open};
  code_exchange_transport(&setup, &transport.transport);
  BackendPeers peers = {.self = 1, .nodes = 2, .channels = channels, .max_packet = PACKET_HEADER + transport.transport.max_message_bytes};
  transport.open_context = &peers;
  (void)!send(pair[1], data, size < 4096 ? size : 4096, MSG_NOSIGNAL);
  need(transport_thread_start(&setup.transport, &transport) == STATUS_OK && code_exchange_init(network, &setup) == STATUS_OK);
  serve(network, tape, layout);
  transport_thread_stop(setup.transport);
  code_exchange_release(network);
  close(pair[1]);
  tape_clear(tape);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static Codebook books[BLOCKS * SITES];
  static TokenLayout layout;
  static Tape *tape;
  static CodeExchange network;
  if (!tape) {
    Arena *arena = arena_new((size_t)1 << 20);
    need(arena && (tape = tape_new(arena)));
    tape_record(tape, false);
    for (int i = 0; i < BLOCKS * SITES; i++) {
      need(codebook_init(&books[i], GROUPS, ENTRIES, WIDTH, NULL) == STATUS_OK);
      memset(books[i].codewords, 0, ENTRIES * WIDTH * sizeof(real));
      codebook_refresh(&books[i]);
    }
  }
  need(build(&layout, TOKENS) == STATUS_OK);
  feed(data, size, &network, tape, &layout, books);
  return 0;
}
