/* The wire format between nodes (docs/FORMATS.md): fixed little-endian headers, no pointers, shapes or graphs. Parsing trusts nothing.
 *
 *   offset  0 magic u32 | 4 version u8 | 5 kind u8 | 6 sender u8 | 7 block u8 | 8 zero u8 | 9 flags u8 | 10 zero u16
 *          12 request u32 | 16 count u32 | 20 bytes u32 | 24 payload
 *
 * A length that does not follow from the negotiated model is refused by the code that knows the model (packet.c, request.c,
 * leader_requests.c).
 */
#ifndef INFER_WIRE_H
#define INFER_WIRE_H
#include "autograd/real.h"
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { WIRE_MAGIC = 0x41525453, WIRE_VERSION = 7, WIRE_HEADER = 24 };
enum { WIRE_HELLO_BYTES = 72, WIRE_WELCOME_BYTES = 64, WIRE_MEET_BYTES = 28, WIRE_PROBE_BYTES = 1 << 18 /* at most */ };
enum {
  WIRE_STATISTICS = 168,
  WIRE_TEXT = 512,
  WIRE_TOKEN_BYTES = 4,
  WIRE_DECODED_BYTES = 40 /* of a token, at least */,
  WIRE_OFFER_BYTES = 1 << 15,       /* most of an OFFER */
  WIRE_PIECE_BYTES = 8 + (1 << 18), /* most of a PIECE */
  WIRE_DRAFTS_BYTES = 4 + 4 * 17,   /* most of a DRAFTS: where they begin, and SPECULATION_CHAIN ids */
  WIRE_NODES = 64                   /* most nodes of a cluster */
};
enum {
  WIRE_WANT_CODES = 1, /* flag of a CLASSIFY or LAST and of the RESULT that answers it: the sender's codes follow the replicas */
  WIRE_FUTILE = 2,     /* flag of an ERROR: it would come at any try: numbers that are not finite, or more packets than there can be */
  WIRE_DRAFTER = 4     /* flag of a READY: it has a copy of the model to draft with */
};

/* Every kind of message: who may send it (WireSide), the minimum and maximum bytes of its payload, and the flags that it may have. Its
 * receiver checks the rest (cluster/leader_requests.c, device_session.c). */
#define WIRE_KINDS(X)                                                                                                                      \
  X(HELLO, 1, CALLER, 0, WIRE_HELLO_BYTES, 0) /* first on a connection to a worker, in clear: who calls; or that it is not let in */       \
  X(CLASSIFY, 2, LEADER, 0, UINT32_MAX, WIRE_WANT_CODES) /* count images, or sequences of ids to a model that classifies texts */          \
  X(PING, 3, LEADER, 0, 0, 0)                            /* it is still there */                                                           \
  X(RESULT, 4, DEVICE, WIRE_STATISTICS, UINT32_MAX, WIRE_WANT_CODES) /* statistics, class-token replicas, codes if wanted */               \
  X(ERROR, 5, DEVICE, 0, WIRE_TEXT, WIRE_FUTILE)                     /* text; count: 1 + the node that is at fault, 0: the sender */       \
  X(BYE, 6, LEADER, 0, 0, 0)                                         /* stop */                                                            \
  X(PROGRESS, 7, DEVICE, 0, 0, 0)                                    /* has reached this block */                                          \
  X(PROMPT, 8, LEADER, 1, UINT32_MAX, 0)                             /* one sequence: how to go on, ids */                                 \
  X(SCORE, 9, LEADER, 1, UINT32_MAX, 0)                              /* count sequences of ids, then their labels */                       \
  X(LAST, 10, LEADER, 1, UINT32_MAX, WIRE_WANT_CODES)                /* count sequences of ids */                                          \
  X(TOKEN, 11, DEVICE, WIRE_TOKEN_BYTES, WIRE_TOKEN_BYTES, 0)        /* the count-th new token of a PROMPT: its id */                      \
  X(STOP, 12, LEADER, 0, 0, 0)                                       /* no more tokens of this text */                                     \
  X(WELCOME, 13, DEVICE, WIRE_WELCOME_BYTES, WIRE_WELCOME_BYTES, 0)  /* first: which model it has */                                       \
  X(BUSY, 14, DEVICE, 0, WIRE_TEXT, 0)                   /* another leader is served; count: place in the queue, 0: there is none; text */ \
  X(REFUSE, 15, DEVICE, 0, WIRE_TEXT, 0)                 /* why not; count: 1 + the node that is at fault, 0: none; text */                \
  X(SETUP, 16, LEADER, 1, UINT32_MAX, 0)                 /* the cluster (cluster/setup_message.h); count: nodes */                         \
  X(READY, 17, DEVICE, 0, 0, WIRE_DRAFTER)               /* count: the epoch of the SETUP */                                               \
  X(MEET, 18, PEER, WIRE_MEET_BYTES, WIRE_MEET_BYTES, 0) /* first: who it is (cluster/peer_handshake.h); count: the epoch */               \
  X(CANCEL, 19, LEADER, 0, 0, 0)                         /* end the epoch, whatever is in progress */                                      \
  X(CANCELLED, 20, DEVICE, 0, 0, 0)                      /* it has */                                                                      \
  X(GONE, 21, LEADER, 0, 0, 0)                           /* count: the node that is not waited for any more */                             \
  X(PROBE, 22, LEADER, 0, WIRE_PROBE_BYTES, 0)           /* before the first epoch: measure (cluster/hello.h) */                           \
  X(PROFILE, 23, DEVICE, 0, WIRE_PROBE_BYTES, 0)         /* what was measured, or bytes that were asked for */                             \
  X(SEQUENCE, 24, LEADER, 1, UINT32_MAX, 0)              /* as PROMPT, but the sequence then lives on a node, which decodes it   */        \
  X(DECODED, 25, DEVICE, WIRE_DECODED_BYTES, UINT32_MAX, 0) /* count new tokens of its sequences */                                        \
  X(FETCH, 26, DEVICE, 0, 8, 0)                   /* in place of WELCOME: the checkpoint is wanted (cluster/checkpoint_offer.h) */         \
  X(OFFER, 27, LEADER, 1, WIRE_OFFER_BYTES, 0)    /* count files of it */                                                                  \
  X(PIECE, 28, LEADER, 9, WIRE_PIECE_BYTES, 0)    /* of file number count */                                                               \
  X(FETCHED, 29, DEVICE, 0, 0, 0)                 /* all are there */                                                                      \
  X(DRAFT, 30, LEADER, 8, UINT32_MAX, 0)          /* new ids of a sequence that another device decodes; count: drafts that are wanted */   \
  X(DRAFTS, 31, DEVICE, 8, WIRE_DRAFTS_BYTES, 0)  /* count drafts of it */                                                                 \
  X(DRAFTED, 32, LEADER, 8, WIRE_DRAFTS_BYTES, 0) /* the same, to the device that decodes it */

typedef enum WireKind {
#define WIRE_ENUM(name, number, from, min, max, flags) WIRE_##name = number,
  WIRE_KINDS(WIRE_ENUM)
#undef WIRE_ENUM
      WIRE_KIND_END
} WireKind;

/* Who sends: a caller of a worker, a leader to its devices, a device to its leader, a device to another. */
typedef enum WireSide { WIRE_FROM_CALLER = 1, WIRE_FROM_LEADER, WIRE_FROM_DEVICE, WIRE_FROM_PEER } WireSide;

typedef struct WireHeader {
  uint8_t kind;
  uint8_t sender; /* node; 255: the leader */
  uint8_t
      block; /* WIRE_PROGRESS: block; WIRE_RESULT: 1 + a node that the sender has given up; WIRE_SEQUENCE: 1 + the node that decodes it */
  uint8_t flags;
  uint32_t request; /* number of the request, from 1 */
  uint32_t count;   /* see docs/FORMATS.md */
  uint32_t bytes;   /* of the payload behind the header */
} WireHeader;

enum { WIRE_LEADER = 255 };

/* A node's statistics of one request, WIRE_STATISTICS bytes on the wire (request.h): seconds of wall time, then counts. The struct, its
 * bytes and its sums are made from these lists. */
#define WIRE_SECONDS(X)                                                                                                                    \
  X(compute)                                                                                                                               \
  X(quantise) /* nearest codewords, packing, unpacking, look-up */                                                                         \
  X(send)                                                                                                                                  \
  X(wait)    /* for others, idle */                                                                                                        \
  X(span)    /* from a block's first send to its last arrival, summed over blocks; 0 where it is not measured */                           \
  X(elapsed) /* of the whole request */                                                                                                    \
  X(tables)  /* sums of keys and values from tables, part of quantise */
#define WIRE_COUNTS(X)                                                                                                                     \
  X(bytes_sent) /* on the links between nodes, headers included */                                                                         \
  X(bytes_received)                                                                                                                        \
  X(payload_sent)  /* without headers */                                                                                                   \
  X(messages_sent) /* or packets */                                                                                                        \
  X(messages_received)                                                                                                                     \
  X(lost)        /* packets that were sent and never arrived */                                                                            \
  X(late)        /* packets that were given up */                                                                                          \
  X(lost_tokens) /* of theirs, summed over blocks and samples */                                                                           \
  X(late_tokens)                                                                                                                           \
  X(masked) /* missing tokens, summed over blocks and samples */                                                                           \
  X(resent)                                                                                                                                \
  X(coded_bits)  /* of codes, as they were sent */                                                                                         \
  X(packed_bits) /* of the same codes without entropy coding */                                                                            \
  X(parts)       /* that blocks were cut into, summed over blocks */

typedef struct NodeStatistics {
#define WIRE_SECONDS_FIELD(name) double name;
#define WIRE_COUNTS_FIELD(name)  uint64_t name;
  WIRE_SECONDS(WIRE_SECONDS_FIELD)
  WIRE_COUNTS(WIRE_COUNTS_FIELD)
#undef WIRE_SECONDS_FIELD
#undef WIRE_COUNTS_FIELD
} NodeStatistics;

void wire_add_statistics(NodeStatistics *sum, const NodeStatistics *more);

void wire_pack(const WireHeader *header, uint8_t bytes[WIRE_HEADER]);
Status wire_parse(const uint8_t bytes[WIRE_HEADER], size_t max_payload,
                  WireHeader *header);                             /* BAD_VALUE on magic, version, kind, flags, length */
const char *wire_kind_name(uint8_t kind);                          /* "RESULT" */
Status wire_check_sender(const WireHeader *header, WireSide from); /* BAD_VALUE: a kind that others send */

/* Single numbers, little-endian; doubles and floats as their IEEE 754 bits. */
void wire_put_u32(uint8_t *bytes, uint32_t value);
uint32_t wire_get_u32(const uint8_t *bytes);
void wire_put_u64(uint8_t *bytes, uint64_t value);
uint64_t wire_get_u64(const uint8_t *bytes);
void wire_put_double(uint8_t *bytes, double value);

/* Arrays of little-endian float32. */
void wire_pack_floats(const float *values, size_t count, uint8_t *bytes);
void wire_pack_reals(const real *values, size_t count, uint8_t *bytes);
void wire_parse_reals(const uint8_t *bytes, size_t count, real *values);

#endif
