/* The exchange of a node in a cluster (nn/exchange.h over a transport; paper section 3.1): begin quantises the node's shared tokens and
 * hands their codes, cut into packets, to the transport, finish waits for the peers' codes and looks their codewords up. Between nodes of a
 * language model codes go in one direction: a node sends to those after it and receives from those before it, since no token attends to a
 * later one.
 *
 * A message of tokens (a part of a block's, of all samples) is numbered as in [B, rows of the part]; packet f of F holds tokens f, f + F...
 * (packet.h), their codes packed without gaps (pack_dense), or entropy-coded (rans_encode). Tokens of missing packets are masked: their
 * rows hold some codeword, and their marks in `lost` are 1. With predictions (AstraConfig.prediction) what is expected takes their place,
 * and they are not marked.
 *
 * The transport holds the messages that arrive, the exchange those that are sent, of as many blocks as the transport keeps. Nothing is
 * allocated after code_exchange_init. */
#ifndef INFER_CODE_EXCHANGE_H
#define INFER_CODE_EXCHANGE_H
#include "infer/transport/transport_thread.h"
#include "infer/wire.h"
#include "nn/exchange.h"
#include "nn/kv_tables.h"
#include "vq/codebook.h"
#include "vq/pack.h"
#include "vq/rans.h"

typedef struct CodeExchangeSetup {
  int self, nodes;
  const TokenLayout *layout; /* of this node; outlives the exchange; with tokens_max it may be another one for each request. Its devices are
                              * spans: span s is node (CodeExchangeRequest.first + s) mod nodes */
  const Codebook *books;     /* [blocks * sites], likewise; not looked at with whole_rows */
  int blocks, sites;         /* blocks whose tokens travel */
  int first;                 /* the first of them (config_first_coded); on the wire it is block 0 */
  int parts;                 /* that a block is cut into; 0 as 1 */
  int64_t batch_max;         /* samples of the largest request */
  int min_packets;           /* of a block and receiver, where there are tokens enough; 0 as 1; above 1, of each part 2 */
  bool whole_rows;           /* numbers travel as float32, no codes: sequence parallelism (config_whole_sites). One part, no loss */
  int64_t width;             /* of a token at a site of these */
  bool keep_codes;           /* room to keep all packed codes of a request (CodeExchangeRequest.keep) */
  int64_t known_width;       /* with predictions (AstraConfig.prediction), numbers of a token that both sides know at most: P (exchange.h);
                              * 0: none */
  bool causal;               /* codes go to the nodes of later spans alone */
  int64_t tokens_max;        /* of the longest sequence; 0: every request has the layout's tokens */
  TransportThread *transport; /* outlives the exchange's use, not the exchange; NULL: only encode and decode are called */
  size_t max_packet;          /* without a transport: payload of a packet */
  const KvTables *keys;       /* of these codebooks: rows come as keys and values where a block is in them; NULL: none */
  const RansTable *coding;    /* [blocks * sites * G] of these codebooks, the same on all nodes: packets are entropy-coded where that makes
                               * them shorter; NULL: none is */
  const LinkOptions *lose;    /* with lose_tokens: single tokens are masked as they come, by this law; NULL: none */
} CodeExchangeSetup;

/* What a model's blocks exchange: blocks, first, sites, width and known_width of its codes, or with `whole` of numbers in whole_rows; the
 * other fields are zero. */
CodeExchangeSetup code_exchange_setup_of(const ModelConfig *config, bool whole);

/* Sets the fields of a transport's setup that follow from the exchange's: its layout is set, setup->transport is not used. */
void code_exchange_transport(const CodeExchangeSetup *setup, TransportSetup *transport);

typedef struct CodeExchangeRequest {
  uint32_t number; /* 1, 2, 3... */
  int64_t batch;
  int first;  /* node of the first span */
  bool keep;  /* keep its packed codes */
  bool whole; /* blocks are not cut into parts */
} CodeExchangeRequest;

typedef struct CodeMessage { /* what leaves */
  uint8_t *bytes;
  TransportPacket *packets;
} CodeMessage;

typedef struct CodeExchange {
  Exchange exchange; /* first: give its address to model_encode */
  CodeExchangeSetup setup;
  void (*progress)(void *context, int block); /* called as begin sends a block's first codes; may be NULL */
  void *progress_context;
  TransportCheck *check; /* called while begin waits for room, or finish for codes (transport_thread.h); may be NULL */
  void *check_context;
  const bool *cancelled; /* true: the request ends as INTERRUPTED; may be NULL */
  /* Called with the codes of `tokens` remote rows from `first` on as finish takes them, each token's packed by itself (pack_codes), of one
   * sample; NULL: nobody keeps them. */
  void (*heard)(void *context, int block, int site, int64_t first, int64_t tokens, const uint8_t *packed);
  void *heard_context;
  size_t token_bytes;          /* of a token's codes packed by themselves */
  CodeExchangeRequest request; /* the current one; number 0 before the first */
  uint64_t senders, receivers;
  PacketRules rules[2];  /* of it: [number & 1] */
  int64_t *part_rows;    /* [2][nodes][parts] */
  CodeMessage *messages; /* [ring][sites][parts] */
  int ring, max_packets /* of a message that leaves */;
  size_t max_packet; /* payload of a packet at the start; routes may turn out to be narrower */
  size_t message_bytes;
  double token_bits;          /* of a token in a packet */
  size_t memory;              /* bytes, the transport's included */
  TransportArrival *arrivals; /* [nodes] */
  real *gathered;             /* [tokens of this node, W] */
  int32_t *codes, *ordered;   /* [max tokens of any node, G]: in the order of tokens, and of packets */
  /* With predictions, tokens of the block before as receivers know them: [B, own, known_width] and [B, remote, known_width], of which the
   * first P numbers count. pending [max tokens, W]: those of site 0 until site 1 of the same part is known, too. In one block of memory. */
  real *own, *remote, *pending;
  uint8_t *aligned;          /* [max tokens of any node][token_bytes] */
  void *scratch;             /* of codebook_assign */
  uint8_t *kept;             /* [blocks * sites][batch, own tokens][token_bytes] */
  LinkModel *losers;         /* [nodes] of tokens that come; NULL: none is lost */
  uint8_t *lost;             /* [max tokens of the others] marks of a part, drawn at site 0 for all sites */
  LinkOptions loss;          /* theirs */
  int fault;                 /* the peer that a failure is about; -1: none */
  NodeStatistics statistics; /* of the current request; the owner fills in compute, elapsed and the transport's counts */
} CodeExchange;

Status code_exchange_init(CodeExchange *exchange, const CodeExchangeSetup *setup);
void code_exchange_release(CodeExchange *exchange); /* after transport_thread_stop */

/* Before model_encode. setup.layout is that of the request by now. BAD_VALUE: a text so long that this node's tokens make more than
 * MAX_PACKETS packets. */
Status code_exchange_begin_request(CodeExchange *exchange, const CodeExchangeRequest *request);

/* One part of a block's site, for a caller that moves the packets itself. h [B, rows of the part, W];
 * packets are the exchange's until the message of the same site and part `ring` blocks later is encoded. *count 0: nothing to send. */
Status code_exchange_encode_part(CodeExchange *exchange, Tape *tape, const TokenLayout *layout, int block, int site, int part,
                                 const Tensor *h, const TransportPacket **packets, int *count);

/* The part's arrivals from each node that sends [nodes] -> x, or k and v where there are tables, and marks on the tape (exchange.h).
 * BAD_VALUE names the node whose bytes are no codes. */
Status code_exchange_decode_part(CodeExchange *exchange, Tape *tape, const TokenLayout *layout, int block, int site, int part,
                                 const TransportArrival *arrivals, ExchangeRows *rows);

#endif
