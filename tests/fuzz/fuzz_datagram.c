/* Fuzz target: datagrams from anybody, and packets from a peer that has the key but keeps to nothing. The input is cut into records: a byte
 * that says what is done with it (as it is, sealed, sealed twice under one number), a length, bytes. Node 0 of two takes them while a
 * request is under way. Holds: nothing is read or written past its buffers; unsealed bytes never come through; the request ends with a
 * status. */
#include "base/clock.h"
#include "infer/transport/seal.h"
#include "infer/transport/transport_thread.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCKS = 2, TOKENS = 9, MOST = 128, RECORDS = 32 };

static void need(bool holds) {
  if (!holds) abort();
}

/* A backend whose datagrams are the input. */
typedef struct Source {
  Backend backend; /* first */
  const uint8_t *data;
  size_t size, at;
  DatagramSender sender;
  DatagramReceiver receiver;
} Source;

static Status take_bytes(Source *s, uint8_t *datagram, size_t size, bool honest, BackendTake *take, void *context) {
  size_t bytes;
  bool taken;
  if (datagram_sender(datagram, size) < 0) return STATUS_OK;
  const uint8_t *packet = datagram_open(&s->receiver, datagram, size, &bytes);
  need(honest || !packet);
  return packet ? take(context, 1, packet, bytes, clock_now(), &taken) : STATUS_OK;
}

static Status receive(Backend *self, BackendTake *take, void *context) {
  Source *s = (Source *)self;
  for (int i = 0; i < RECORDS && s->at + 2 <= s->size; i++) {
    uint8_t datagram[MOST + DATAGRAM_AROUND], again[MOST + DATAGRAM_AROUND], what = s->data[s->at] % 3;
    size_t bytes = s->data[s->at + 1] % MOST;
    s->at += 2;
    if (bytes > s->size - s->at) bytes = s->size - s->at;
    const uint8_t *from = s->data + s->at;
    s->at += bytes;
    if (what == 0) {
      memcpy(datagram, from, bytes);
      TRY(take_bytes(s, datagram, bytes, false, take, context));
      continue;
    }
    need(datagram_close(&s->sender, from, bytes, datagram) == STATUS_OK);
    memcpy(again, datagram, bytes + DATAGRAM_AROUND);
    TRY(take_bytes(s, datagram, bytes + DATAGRAM_AROUND, true, take, context));
    if (what == 2) TRY(take_bytes(s, again, bytes + DATAGRAM_AROUND, false, take, context));
  }
  return STATUS_OK;
}

static Status swallow(Backend *self, int peer, const uint8_t *packet, size_t bytes, bool *taken) {
  (void)self, (void)packet;
  need(peer == 1 && bytes <= MOST);
  *taken = true;
  return STATUS_OK;
}

static int no_polls(Backend *self, struct pollfd *polls, int room) {
  (void)self, (void)polls, (void)room;
  return 0;
}
static bool not_pending(const Backend *self) { return self == NULL; }
static Status is_open(const Backend *self, int peer, const char **why) {
  (void)self, (void)peer;
  *why = "";
  return STATUS_OK;
}
static void forget(Backend *self) { (void)self; }

static Status open_source(void *context, Backend **backend) {
  *backend = &((Source *)context)->backend;
  return STATUS_OK;
}

/* Strict deadlines, or patience that ends soon, so that nothing is waited for. */
static void serve(Source *source, ReliabilityMode mode) {
  static const int64_t part_rows[2] = {TOKENS, TOKENS};
  static const PacketRules rules = {
      .nodes = 2, .blocks = BLOCKS, .sites = 1, .parts = 1, .groups = 2, .entries = 256, .width = 4, .part_rows = part_rows, .coded = true};
  static uint8_t payload[2 * TOKENS];
  static const TransportPacket packet = {.header = {.request = 1, .count = 1}, .payload = payload, .bytes = sizeof payload};
  Reliability reliability = {.mode = mode, .deadline = 1e-4, .timeout = 5e-3};
  TransportThreadSetup setup = {.transport.nodes = 2,
                                .open = open_source,
                                .open_context = source,
                                .transport.blocks = BLOCKS,
                                .transport.sites = 1,
                                .transport.parts = 1,
                                .transport.max_message_bytes = 3 * TOKENS,
                                .transport.max_packets = TOKENS,
                                .transport.ahead = true,
                                .transport.reliability = &reliability,
                                .transport.timeout = 5e-3};
  TransportThread *transport;
  TransportArrival arrivals[2];
  Status status = transport_thread_start(&transport, &setup);
  need(status == STATUS_OK);
  for (uint32_t request = 1; request <= 2 && status == STATUS_OK; request++) {
    status = transport_thread_begin_request(transport, request, 1, &rules, 2, 2);
    for (int block = 0; block < BLOCKS && status == STATUS_OK; block++) {
      MessageKey key = {.request = request, .block = (uint8_t)block};
      status = transport_thread_reserve(transport, key, NULL, NULL);
      if (status == STATUS_OK) status = transport_thread_submit(transport, key, &packet, 1, 2);
      if (status == STATUS_OK) status = transport_thread_take(transport, key, 2, arrivals, NULL, NULL);
      for (int f = 0; status == STATUS_OK && f < arrivals[1].count; f++) {
        const TransportPacket *came = &arrivals[1].packets[f];
        uint8_t copy[2 * TOKENS]; /* a sanitizer is to see every byte */
        need(came->bytes <= sizeof copy);
        if (came->payload) memcpy(copy, came->payload, came->bytes);
        need(!came->payload || memcmp(copy, came->payload, came->bytes) == 0);
      }
      if (status == STATUS_OK) transport_thread_done(transport, key, 2);
    }
  }
  transport_thread_stop(transport);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t key[SEAL_KEY + SEAL_IV] = {1, 2, 3};
  Source source = {.data = data, .size = size > 2048 ? 2048 : size, .sender = {.self = 1}};
  source.backend = (Backend){.max_packet = MOST,
                             .overhead = DATAGRAM_AROUND,
                             .send = swallow,
                             .receive = receive,
                             .polls = no_polls,
                             .pending = not_pending,
                             .peer_status = is_open,
                             .free = forget};
  need(seal_new(&source.sender.seal, key, true) == STATUS_OK && seal_new(&source.receiver.seal, key, false) == STATUS_OK);
  serve(&source, size % 2 ? RELIABILITY_DEADLINE : RELIABILITY_RETRANSMIT);
  seal_free(source.sender.seal);
  seal_free(source.receiver.seal);
  return 0;
}
