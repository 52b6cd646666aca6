/* What it costs to send codes: datagrams sealed and opened, codes packed and unpacked (MB/s in time of the processor, the best of several
 * runs), and blocks that two transports exchange over the loopback, as streams and as datagrams (packets a second and time of a block). Not
 * a test. */
#include "base/clock.h"
#include "base/rng.h"
#include "infer/cluster/connection.h"
#include "infer/cluster/peer_backend.h"
#include "infer/transport/packet.h"
#include "infer/transport/seal.h"
#include "infer/transport/transport_thread.h"
#include "vq/pack.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 7, TIMES = 2000, TOKENS = 256, GROUPS = 16, ENTRIES = 1024, BLOCKS = 12, REQUESTS = 40, MAX = 9000, PACKETS = 64 };

static void must(Status status) {
  if (status == STATUS_OK) return;
  fprintf(stderr, "%s\n", status_message());
  exit(1);
}

/* ---- sealing ---- */

static void bench_seal(size_t bytes) {
  static const uint8_t key[SEAL_KEY + SEAL_IV] = {1, 2, 3};
  static uint8_t packet[MAX], datagrams[TIMES][MAX / 4];
  DatagramSender sender = {.self = 1};
  double best[2] = {INFINITY, INFINITY};
  must(seal_new(&sender.seal, key, true));
  for (int run = 0; run < RUNS; run++) {
    DatagramReceiver receiver = {0};
    size_t opened;
    must(seal_new(&receiver.seal, key, false));
    double begun = clock_spent();
    for (int i = 0; i < TIMES; i++) must(datagram_close(&sender, packet, bytes, datagrams[i]));
    double closed = clock_spent();
    for (int i = 0; i < TIMES; i++) {
      if (!datagram_open(&receiver, datagrams[i], bytes + DATAGRAM_AROUND, &opened)) abort();
    }
    best[0] = fmin(best[0], closed - begun);
    best[1] = fmin(best[1], clock_spent() - closed);
    seal_free(receiver.seal);
  }
  seal_free(sender.seal);
  double all = 1e-6 * TIMES * (double)bytes;
  printf("datagrams of %4zu bytes: sealed %8.1f MB/s (%.2f us each), opened %8.1f MB/s\n", bytes, all / best[0], 1e6 * best[0] / TIMES,
         all / best[1]);
}

/* ---- packing ---- */

static void bench_pack(void) {
  static int32_t codes[TOKENS * GROUPS];
  static uint8_t bytes[TOKENS * GROUPS * 2];
  double best[2] = {INFINITY, INFINITY};
  Rng rng;
  rng_init(&rng, 1, 0);
  for (int i = 0; i < TOKENS * GROUPS; i++) codes[i] = (int32_t)rng_below(&rng, ENTRIES);
  for (int run = 0; run < RUNS; run++) {
    double begun = clock_spent();
    for (int i = 0; i < TIMES / 10; i++) pack_dense(codes, TOKENS, GROUPS, ENTRIES, bytes);
    double packed = clock_spent();
    for (int i = 0; i < TIMES / 10; i++) must(pack_dense_unpack(bytes, TOKENS, GROUPS, ENTRIES, codes));
    best[0] = fmin(best[0], packed - begun);
    best[1] = fmin(best[1], clock_spent() - packed);
  }
  double all = 1e-6 * (TIMES / 10) * (double)pack_dense_bytes(TOKENS, GROUPS, ENTRIES);
  printf("codes of %d bits: packed %.1f MB/s, unpacked %.1f MB/s\n", pack_bits(ENTRIES), all / best[0], all / best[1]);
}

/* ---- transports ---- */

typedef struct Side {
  int self;
  Connection *channels[2];
  BackendPeers peers;
  TransportThread *transport;
  int64_t rows[2];
  PacketRules rules;
  TransportPacket packets[2][PACKETS];
  uint8_t bytes[2][TOKENS * GROUPS * 2];
  int count;
} Side;

/* Packets as code_exchange.c would cut them. */
static void fill(Side *side, MessageKey key) {
  int slot = key.block & 1;
  uint8_t *at = side->bytes[slot];
  for (int f = 0; f < side->count; f++) {
    size_t first = packet_offset(&side->rules, TOKENS, side->count, f),
           bytes = packet_offset(&side->rules, TOKENS, side->count, f + 1) - first;
    Packet header = {
        .request = key.request, .block = key.block, .type = PACKET_CODES, .index = (uint16_t)f, .count = (uint16_t)side->count};
    side->packets[slot][f] = (TransportPacket){.header = header, .payload = at, .bytes = bytes};
    at += bytes;
  }
}

static void exchange(Side *side, MessageKey key) {
  TransportArrival arrivals[2];
  uint64_t other = (uint64_t)1 << !side->self;
  must(transport_thread_reserve(side->transport, key, NULL, NULL));
  fill(side, key);
  must(transport_thread_submit(side->transport, key, side->packets[key.block & 1], side->count, other));
  must(transport_thread_take(side->transport, key, other, arrivals, NULL, NULL));
  transport_thread_done(side->transport, key, other);
}

static void *run_side(void *context) {
  Side *side = context;
  Reliability reliability = {.mode = side->peers.datagrams ? RELIABILITY_DEADLINE : RELIABILITY_STREAM, .min_packets = 2, .timeout = 30};
  TransportThreadSetup setup = {.transport.self = side->self,
                                .transport.nodes = 2,
                                .open = backend_open,
                                .open_context = &side->peers,
                                .transport.blocks = BLOCKS,
                                .transport.sites = 1,
                                .transport.parts = 1,
                                .transport.max_message_bytes = sizeof side->bytes[0],
                                .transport.max_packets = TOKENS,
                                .transport.reliability = &reliability,
                                .transport.timeout = 30};
  must(transport_thread_start(&side->transport, &setup));
  size_t max = transport_thread_max_packet(side->transport);
  side->count = interleave_packets(TOKENS, GROUPS * pack_bits(ENTRIES), max, 2);
  uint64_t other = (uint64_t)1 << !side->self;
  for (uint32_t request = 1; request <= REQUESTS; request++) {
    must(transport_thread_begin_request(side->transport, request, 1, &side->rules, other, other));
    for (int block = 0; block < BLOCKS; block++) exchange(side, (MessageKey){.request = request, .block = (uint8_t)block});
  }
  return NULL;
}

static void bench_transports(const char *name, bool datagrams, uint32_t mtu) {
  static Side sides[2];
  pthread_t thread;
  int pair[2];
  must(connection_pair(pair));
  for (int i = 0; i < 2; i++) {
    Side *side = &sides[i];
    *side = (Side){.self = i, .rows = {TOKENS, TOKENS}};
    must(connection_plain(&side->channels[!i], pair[i]));
    side->peers = (BackendPeers){.self = i,
                                 .nodes = 2,
                                 .channels = side->channels,
                                 .datagrams = datagrams,
                                 .mtu = mtu,
                                 .max_packet = PACKET_HEADER + sizeof side->bytes[0],
                                 .seconds = 10};
    side->rules = (PacketRules){
        .blocks = BLOCKS, .sites = 1, .parts = 1, .groups = GROUPS, .entries = ENTRIES, .width = GROUPS, .part_rows = side->rows};
  }
  double begun = clock_now();
  if (pthread_create(&thread, NULL, run_side, &sides[1]) != 0) abort();
  run_side(&sides[0]);
  pthread_join(thread, NULL);
  double taken = clock_now() - begun;
  TransportState counts = transport_thread_state(sides[0].transport);
  for (int i = 0; i < 2; i++) transport_thread_stop(sides[i].transport);
  printf("%s: %.1f us a block both ways, %.0f packets/s, %llu lost\n", name, 1e6 * taken / (REQUESTS * BLOCKS),
         2 * (double)counts.packets_sent / taken, (unsigned long long)counts.lost);
}

int main(void) {
  for (size_t bytes = 160; bytes < MAX / 4; bytes *= 3) bench_seal(bytes);
  bench_pack();
  bench_transports("streams", false, 0);
  bench_transports("datagrams of 9000 bytes", true, 9000);
  bench_transports("datagrams of 1500 bytes", true, 1500);
  bench_transports("datagrams of 576 bytes", true, 576);
  return 0;
}
