/* What a test of the exchange has of one node: its network over a transport, whose streams are socket pairs. */
#ifndef TESTS_CODE_EXCHANGE_SIDE_H
#define TESTS_CODE_EXCHANGE_SIDE_H
#include "infer/cluster/peer_backend.h"
#include "infer/code_exchange.h"
#include <cmocka.h>

typedef struct CodeExchangeSide {
  TransportThread *transport;
  TokenLayout layout; /* the test's to build, before code_exchange_side_open */
  CodeExchange network;
  Arena *arena;
  Tape *tape;
} CodeExchangeSide;

/* What set-ups lack is filled in. sockets [nodes]: to each other node; taken over. */
static inline void code_exchange_side_open(CodeExchangeSide *side, CodeExchangeSetup *setup, TransportThreadSetup *transport,
                                           const int *sockets) {
  Connection *channels[WIRE_NODES] = {0};
  code_exchange_transport(setup, &transport->transport);
  for (int d = 0; d < setup->nodes; d++) {
    if (d != setup->self) assert_int_equal(connection_plain(&channels[d], sockets[d]), STATUS_OK);
  }
  BackendPeers peers = {.self = setup->self,
                        .nodes = setup->nodes,
                        .channels = channels,
                        .max_packet = PACKET_HEADER + transport->transport.max_message_bytes};
  transport->open_context = &peers;
  assert_int_equal(transport_thread_start(&side->transport, transport), STATUS_OK);
  setup->transport = side->transport;
  assert_int_equal(code_exchange_init(&side->network, setup), STATUS_OK);
  side->arena = arena_new((size_t)1 << 24);
  side->tape = tape_new(side->arena);
  tape_record(side->tape, false);
}

static inline void code_exchange_side_close(CodeExchangeSide *side) {
  transport_thread_stop(side->transport);
  code_exchange_release(&side->network);
  layout_release(&side->layout);
  tape_free(side->tape);
  arena_free(side->arena);
}

#endif
