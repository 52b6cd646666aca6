/* The exchange of a node in a cluster (nn/exchange.h over sockets; paper section 3.1): begin quantises the node's shared tokens and sends
 * their codes to every peer, finish waits for the peers' codes and looks their codewords up. Between nodes of a language model codes go one
 * way: a node sends to those behind it and hears those before it, since no token may see a later one.
 *
 * Buffers. Messages are numbered by sequence = (request - 1) blocks + block. A picture's peer can be at most one sequence ahead (to begin
 * the next block it needs this node's codes of the present one), one of a text as far as the sockets take it. Two slots a site are enough
 * both ways:
 *
 *   outgoing  [2][sites]          header | packed codes of this node's tokens     read by all links, never copied
 *   incoming  [nodes][2][sites]   packed codes of that node's tokens              the sockets write into them
 *
 * A message that is not the next one of its site, or whose length does not follow from the model and the layout, is refused. While a slot
 * is taken its sender is held back by the socket. Texts differ in length, and not every node takes part in every one: there a message of a
 * later request waits until this node begins it, and its length is checked in full when it is taken. Nothing is allocated after
 * network_init, but on the tape the marks of tokens whose node is gone. */
#ifndef INFER_NETWORK_H
#define INFER_NETWORK_H
#include "infer/link.h"
#include "nn/exchange.h"
#include "vq/codebook.h"

typedef struct NetworkSetup {
  int self, nodes;
  const TokenLayout *layout; /* of this node; outlives the network; with tokens_most it may be another one for each request */
  const Codebook *books;     /* [blocks * sites], likewise */
  int blocks, sites;
  int64_t batch_most;  /* pictures of the largest request */
  double timeout;      /* seconds that finish waits without hearing from a peer */
  Channel **channels;  /* [nodes] greeted; those that are taken over become NULL, also when it fails; [self] is ignored */
  bool keep_codes;     /* room to keep all packed codes of a request (see network_begin_request) */
  bool causal;         /* codes go to the nodes behind this one alone */
  int64_t tokens_most; /* of the longest sequence; 0: every request has the layout's tokens */
  bool mask;           /* a peer that fails or falls silent is gone: the requests go on, its tokens masked; else that is a failure */
} NetworkSetup;

typedef struct NetworkPeer {
  Link link;
  int64_t tokens;       /* that it shares, of one sample; 0: it takes no part in the request */
  bool sends, hears;    /* in this request: codes come from it, go to it */
  bool gone;            /* nobody waits for it any more */
  uint64_t *next;       /* [sites] sequence of the message expected next */
  uint64_t *taken;      /* [sites] sequence that finish takes next */
  uint8_t *slots;       /* [2][sites][slot_bytes] */
  uint32_t *slot_count; /* [2][sites] tokens received */
  size_t slot_bytes;
} NetworkPeer;

typedef struct Network {
  Exchange exchange; /* first: give its address to model_encode */
  NetworkSetup setup;
  NetworkPeer *peers;                         /* [nodes]; [self] has no link */
  Link **links;                               /* [nodes + 1]: peers, then the control link or NULL */
  void (*progress)(void *context, int block); /* called as begin sends a block's first codes; may be NULL */
  void *progress_context;
  const bool *cancelled; /* true: the request is not wanted any more, and ends as INTERRUPTED; may be NULL */
  /* Called with the packed codes of `tokens` remote rows from `first` on as finish takes them, of one sample; NULL: nobody keeps them. */
  void (*heard)(void *context, int block, int site, int64_t first, int64_t tokens, const uint8_t *packed);
  void *heard_context;
  size_t token_bytes; /* of a token's packed codes */
  uint32_t request;   /* the one under way; 0 before the first */
  int64_t batch;
  bool keep;         /* codes of this request */
  bool heard_by_any; /* some peer hears this node in this request */
  uint8_t *outgoing;
  size_t outgoing_bytes;     /* of one slot, header included */
  real *gathered;            /* [batch_most, own tokens, W] */
  int32_t *codes;            /* [batch_most, most tokens of any node, G] */
  void *scratch;             /* of codebook_assign */
  uint8_t *kept;             /* [blocks * sites][batch, own tokens][token_bytes] */
  int accused;               /* the peer that a failure is about; -1: none */
  NodeStatistics statistics; /* of the request under way; compute is the owner's to fill in */
} Network;

/* links[nodes] is the owner's to set. Channels are closed by network_release. */
Status network_init(Network *network, const NetworkSetup *setup);
void network_release(Network *network);

/* Before model_encode: the next request (numbers run 1, 2, 3...), its samples, and whether to keep its packed codes. setup.layout is that
 * of the request by now. */
Status network_begin_request(Network *network, uint32_t request, int64_t batch, bool keep);
size_t network_bytes(const Network *network); /* that network_init asked for; 0 of a zeroed one */

/* The leader has given this peer up: nobody waits for it, and the tokens that it has not sent are masked from here on. */
void network_gone(Network *network, int node);

/* Sends what is still queued for peers (they may need it to finish the request). */
Status network_flush(Network *network);

/* Bytes of a CODES message of `tokens` tokens, header included: WIRE_HEADER + tokens ceil(G log2 K / 8). */
size_t network_message_bytes(int64_t groups, int64_t entries, int64_t tokens);

#endif
