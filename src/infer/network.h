/* The exchange of a node in a cluster (nn/exchange.h over a transport; paper section 3.1): begin quantises the node's shared tokens and
 * hands their codes, cut into packets, to the transport, finish waits for the peers' codes and looks their codewords up. Between nodes of a
 * language model codes go one way: a node sends to those behind it and hears those before it, since no token may see a later one.
 *
 * A group of tokens (a part of a block's, of all samples) is numbered as in [B, rows of the part]; packet f of F holds tokens f, f + F...
 * (interleave.h), their codes packed without gaps (pack_dense), or entropy-coded (rans.h). Tokens of packets that did not come are masked:
 * their rows hold some codeword, and their marks in `lost` are 1.
 *
 * Slots for what comes are the transport's, those for what leaves the network's: as many blocks as the transport keeps. Nothing is
 * allocated after network_init. */
#ifndef INFER_NETWORK_H
#define INFER_NETWORK_H
#include "infer/transport/transport_thread.h"
#include "infer/wire.h"
#include "nn/exchange.h"
#include "nn/kv_tables.h"
#include "vq/codebook.h"
#include "vq/rans.h"

typedef struct NetworkSetup {
  int self, nodes;
  const TokenLayout *layout; /* of this node; outlives the network; with tokens_max it may be another one for each request */
  const Codebook *books;     /* [blocks * sites], likewise; not looked at with whole_rows */
  int blocks, sites;
  int parts;                  /* that a block is cut into; 0 as 1 */
  int64_t batch_max;          /* samples of the largest request */
  int min_packets;            /* of a block and receiver, where there are tokens enough; 0 as 1; above 1, of each part 2 */
  bool whole_rows;            /* numbers travel as float32, no codes: sequence parallelism (config_whole_sites). One part, no loss */
  int64_t width;              /* of a token at a site of these */
  bool keep_codes;            /* room to keep all packed codes of a request (NetworkRequest.keep) */
  bool causal;                /* codes go to the nodes behind this one alone */
  int64_t tokens_max;         /* of the longest sequence; 0: every request has the layout's tokens */
  TransportThread *transport; /* outlives the network's use, not the network; NULL: only encode and decode are called */
  size_t max_packet;          /* without a transport: payload of a packet */
  const KvTables *keys;       /* of these codebooks: rows come as keys and values where a block is in them; NULL: none */
  const RansTable *coding;    /* [blocks * sites * G] of these codebooks, the same on all nodes: packets are entropy-coded where that makes
                               * them shorter; NULL: none is */
  const LinkOptions *lose;    /* with lose_tokens: single tokens are masked as they come, by this law; NULL: none */
} NetworkSetup;

/* Bits of a token in a packet. */
double network_token_bits(const NetworkSetup *setup);

/* A transport for this network: what of its setup follows from the network's. The layout is there by then, the transport not yet. */
void network_transport(const NetworkSetup *setup, TransportSetup *transport);

typedef struct NetworkRequest {
  uint32_t number; /* 1, 2, 3... */
  int64_t batch;
  bool keep;  /* keep its packed codes */
  bool whole; /* blocks are not cut into parts */
} NetworkRequest;

typedef struct NetworkGroup { /* what leaves */
  uint8_t *bytes;
  TransportPacket *packets;
} NetworkGroup;

typedef struct Network {
  Exchange exchange; /* first: give its address to model_encode */
  NetworkSetup setup;
  void (*progress)(void *context, int block); /* called as begin sends a block's first codes; may be NULL */
  void *progress_context;
  TransportCheck *check; /* called while finish waits (transport.h); may be NULL */
  void *check_context;
  const bool *cancelled; /* true: the request is not wanted any more, and ends as INTERRUPTED; may be NULL */
  /* Called with the codes of `tokens` remote rows from `first` on as finish takes them, each token's packed by itself (pack_codes), of one
   * sample; NULL: nobody keeps them. */
  void (*heard)(void *context, int block, int site, int64_t first, int64_t tokens, const uint8_t *packed);
  void *heard_context;
  size_t token_bytes;     /* of a token's codes packed by themselves */
  NetworkRequest request; /* the one under way; number 0 before the first */
  int parts;              /* its blocks are cut into */
  uint64_t senders, receivers;
  PacketRules rules[2]; /* of it: [number & 1] */
  int64_t *part_rows;   /* [2][nodes][parts] */
  NetworkGroup *groups; /* [ring][sites][parts] */
  int ring, max_packets /* of a group that leaves */;
  size_t group_bytes;
  TransportArrival *arrivals; /* [nodes] */
  real *gathered;             /* [tokens of this node, W] */
  int32_t *codes, *ordered;   /* [max tokens of any node, G]: in the order of tokens, and of packets */
  uint8_t *aligned;           /* [max tokens of any node][token_bytes] */
  void *scratch;              /* of codebook_assign */
  uint8_t *kept;              /* [blocks * sites][batch, own tokens][token_bytes] */
  LinkModel *losers;          /* [nodes] of tokens that come; NULL: none is lost */
  LinkOptions loss;           /* theirs */
  int fault;                  /* the peer that a failure is about; -1: none */
  TransportCounts before;     /* at the end of the last request */
  NodeStatistics statistics;  /* of the request under way; compute and elapsed are the owner's to fill in */
} Network;

Status network_init(Network *network, const NetworkSetup *setup);
void network_release(Network *network); /* after transport_thread_stop */

/* Before model_encode. setup.layout is that of the request by now. */
Status network_begin_request(Network *network, const NetworkRequest *request);

/* The leader has given this peer up: nobody waits for it, and the tokens that it has not sent are masked from here on. */
void network_gone(Network *network, int node);

/* Bytes that passed since the last call go to the statistics of this request. */
void network_finish_statistics(Network *network);
void network_count(NodeStatistics *statistics, TransportThread *transport,
                   TransportCounts *before); /* the same of any transport: since *before */

size_t network_bytes(const Network *network); /* of memory, the transport's included; 0 of a zeroed one */

/* One part of a block's site, for whoever carries the packets himself. h [B, rows of the part, W], row 0 is row `first` of the process;
 * packets are the network's until the group of the same site and part `ring` blocks later is encoded. *count 0: nothing to send. */
Status network_encode_part(Network *network, const TokenLayout *layout, int block, int site, int part, int64_t first, const Tensor *h,
                           const TransportPacket **packets, int *count);

/* What came of it from each node that sends [nodes] -> x, or k and v where there are tables, and marks on the tape (exchange.h). BAD_VALUE
 * names the node whose bytes are no codes. */
Status network_decode_part(Network *network, Tape *tape, const TokenLayout *layout, int block, int site, int part,
                           const TransportArrival *arrivals, ExchangeRows *rows);

/* Nodes that send something of this part (bits). */
uint64_t network_part_senders(const Network *network, int part);

/* Bytes of a group of `tokens` tokens in so many packets, their headers included: sum of PACKET_HEADER + ceil(n G ceil(log2 K) / 8) over
 * the packets, n tokens each. */
size_t network_group_bytes(int64_t groups, int64_t entries, int64_t tokens, int packets);

#endif
