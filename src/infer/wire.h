/* The wire format between nodes (docs/FORMATS.md): fixed little-endian headers, no pointers, shapes or graphs. Parsing trusts nothing.
 *
 *   offset  0 magic u32 | 4 version u8 | 5 kind u8 | 6 sender u8 | 7 block u8 | 8 zero u8 | 9 flags u8 | 10 zero u16
 *          12 request u32 | 16 count u32 | 20 bytes u32 | 24 payload
 *
 * A length that does not follow from the negotiated model is refused by whoever knows the model (network.c, node.c, leader.c). */
#ifndef INFER_WIRE_H
#define INFER_WIRE_H
#include "autograd/real.h"
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { WIRE_MAGIC = 0x41525453, WIRE_VERSION = 4, WIRE_HEADER = 24 };
enum { WIRE_STATISTICS = 168, WIRE_TEXT = 512, WIRE_TOKEN_BYTES = 4, WIRE_NODES = 64 /* most nodes of a cluster */ };
enum {
  WIRE_WANT_CODES = 1, /* flag of a REQUEST and of the RESULT that answers it: the sender's codes follow the replicas */
  WIRE_NOT_FINITE = 2  /* flag of an ERROR: computing came to numbers that are not finite, as it would on any device */
};

#define WIRE_KINDS(X)                                                                                                                      \
  X(HELLO, 1)      /* first on a connection to a worker, in clear: who calls; or why it is not let in (cluster/hello.h) */                 \
  X(REQUEST, 2)    /* leader to node: count pictures, float32 pixels */                                                                    \
  X(PING, 3)       /* leader to device: it is still there; no payload */                                                                   \
  X(RESULT, 4)     /* node to leader: statistics, class-token replicas, codes if wanted */                                                 \
  X(ERROR, 5)      /* node to leader: text; count: 1 + the node that is to blame, 0: the sender */                                         \
  X(BYE, 6)        /* leader to node: stop */                                                                                              \
  X(PROGRESS, 7)   /* node to leader: has reached this block; no payload */                                                                \
  X(PROMPT, 8)     /* leader to node: one sequence: how to go on, ids */                                                                   \
  X(SCORE, 9)      /* leader to node: count sequences of ids, then their labels */                                                         \
  X(LAST, 10)      /* leader to node: count sequences of ids */                                                                            \
  X(TOKEN, 11)     /* node to leader: the count-th new token of a PROMPT: its id */                                                        \
  X(STOP, 12)      /* leader to node: no more tokens of this PROMPT; no payload */                                                         \
  X(WELCOME, 13)   /* device to leader, first: which model it has (cluster/hello.h) */                                                     \
  X(BUSY, 14)      /* device to leader: another leader is served; count: place in the queue, 0: there is none; text */                     \
  X(REFUSE, 15)    /* device to leader: why not; count: 1 + the node that is to blame, 0: nobody; text */                                  \
  X(SETUP, 16)     /* leader to device: the cluster (control/setup_message.h); count: nodes */                                             \
  X(READY, 17)     /* device to leader: count: the epoch of the SETUP */                                                                   \
  X(MEET, 18)      /* device to device, first: who it is (control/peer_handshake.h); count: the epoch */                                   \
  X(CANCEL, 19)    /* leader to device: give the epoch up, whatever is under way; no payload */                                            \
  X(CANCELLED, 20) /* device to leader: it has; no payload */                                                                              \
  X(GONE, 21)      /* leader to device: count: the node that nobody waits for any more; no payload */                                      \
  X(PROBE, 22)     /* leader to device, before the first epoch: measure (control/probe_message.h) */                                       \
  X(PROFILE, 23)   /* device to leader: what was measured, or bytes that were asked for */                                                 \
  X(CLASSIFY, 24)  /* leader to node: count sequences of ids, to a model that classifies texts */

typedef enum WireKind {
#define WIRE_ENUM(name, number) WIRE_##name = number,
  WIRE_KINDS(WIRE_ENUM)
#undef WIRE_ENUM
      WIRE_KIND_END
} WireKind;

typedef struct WireHeader {
  uint8_t kind;
  uint8_t sender; /* node; 255: the leader */
  uint8_t block;  /* WIRE_PROGRESS: block; WIRE_RESULT: 1 + a node that the sender has given up; 0 otherwise */
  uint8_t flags;
  uint32_t request; /* number of the request, from 1 */
  uint32_t count;   /* see docs/FORMATS.md */
  uint32_t bytes;   /* of the payload behind the header */
} WireHeader;

enum { WIRE_LEADER = 255 };

/* What a node says of one request, WIRE_STATISTICS bytes on the wire: seconds of wall time, then counts. One list each makes the struct,
 * its bytes and its sums. */
#define WIRE_SECONDS(X)                                                                                                                    \
  X(compute)                                                                                                                               \
  X(quantise) /* nearest codewords, packing, unpacking, look-up */                                                                         \
  X(send)                                                                                                                                  \
  X(wait)    /* for others with nothing else to do */                                                                                      \
  X(span)    /* from a block's first send to its last arrival, summed over blocks; 0 where nobody measures it */                           \
  X(elapsed) /* of the whole request */                                                                                                    \
  X(tables)  /* sums of keys and values from tables, part of quantise */
#define WIRE_COUNTS(X)                                                                                                                     \
  X(bytes_sent) /* on the links between nodes, headers included */                                                                         \
  X(bytes_received)                                                                                                                        \
  X(payload_sent)  /* headers left out */                                                                                                  \
  X(messages_sent) /* or packets */                                                                                                        \
  X(messages_received)                                                                                                                     \
  X(lost)        /* packets that were sent and never came */                                                                               \
  X(late)        /* packets that were given up */                                                                                          \
  X(lost_tokens) /* of theirs, summed over blocks and samples */                                                                           \
  X(late_tokens)                                                                                                                           \
  X(masked) /* tokens that were not there, summed over blocks and samples */                                                               \
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
Status wire_parse(const uint8_t bytes[WIRE_HEADER], size_t most_payload,
                  WireHeader *header);    /* BAD_VALUE on magic, version, kind, length */
const char *wire_kind_name(uint8_t kind); /* "CODES" */

void wire_pack_statistics(const NodeStatistics *statistics, uint8_t bytes[WIRE_STATISTICS]);
Status wire_parse_statistics(const uint8_t bytes[WIRE_STATISTICS], NodeStatistics *statistics); /* BAD_VALUE: times negative or no number */

/* Single numbers, little-endian; doubles and floats as their IEEE 754 bits. */
void wire_put_u32(uint8_t *bytes, uint32_t value);
uint32_t wire_get_u32(const uint8_t *bytes);
void wire_put_u64(uint8_t *bytes, uint64_t value);
uint64_t wire_get_u64(const uint8_t *bytes);
void wire_put_double(uint8_t *bytes, double value);
double wire_get_double(const uint8_t *bytes);

/* Arrays of little-endian float32. */
void wire_pack_floats(const float *values, size_t count, uint8_t *bytes);
void wire_pack_reals(const real *values, size_t count, uint8_t *bytes);
void wire_parse_reals(const uint8_t *bytes, size_t count, real *values);

#endif
