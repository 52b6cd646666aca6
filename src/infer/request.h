/* The kinds of requests: what each carries and what a node answers. Payload lengths follow from the setup, the request and a node's share,
 * and both sides compute them here. */
#ifndef INFER_REQUEST_H
#define INFER_REQUEST_H
#include "infer/byte_cursor.h"
#include "infer/node_share.h"
#include "infer/sampler.h"
#include "infer/speculation.h"
#include "infer/wire.h"

/* What a node computes, and what an answer holds, by the kind of the message that carries the request (wire.h):
 *
 *   CLASSIFY   a class-token replica of each image; of texts the logits of the classes of each
 *   PROMPT     new tokens of one text
 *   SEQUENCE   nothing: its tokens come one by one (WIRE_DECODED)
 *   SCORE      the loss of each label
 *   LAST       logits after the last token
 *
 * node.c computes them, cluster/leader_requests.c combines the answers of all nodes. */
typedef struct Request {
  uint8_t kind;   /* WIRE_CLASSIFY, WIRE_PROMPT, WIRE_SEQUENCE, WIRE_SCORE, WIRE_LAST */
  bool codes;     /* the answer carries the nodes' codes */
  int64_t batch;  /* images or sequences */
  int64_t tokens; /* T of each */
  int home;       /* 1 + the node that has the last span, and decodes; 0: spans are in the order of the nodes, as of all but a SEQUENCE */
  bool levels;    /* of images: 8 bits a number instead of 32 (patches.h) */
} Request;

/* Of a header from the wire to a node: kind, count and length must go together and fit the setup and the node's share. BAD_VALUE says what
 * does not. */
Status request_read(Request *request, const NodeSetup *setup, const RequestShare *share, const WireHeader *header);

/* Bytes that follow the header: of the request to this node, and of the node's answer. */
size_t request_bytes(const NodeSetup *setup, const Request *request, const RequestShare *share);
size_t request_answer_bytes(const NodeSetup *setup, const Request *request, const RequestShare *share);

/* The most that any request of this setup needs. */
size_t request_max_bytes(const NodeSetup *setup, const RequestShare *max);
size_t request_max_answer_bytes(const NodeSetup *setup, const RequestShare *max);

size_t request_code_bytes(const NodeSetup *setup, const Request *request, const RequestShare *share); /* of all sites, 0 unless wanted */

/* Whether the setup's model answers requests of this kind: images, texts to classify and texts to continue are for a model each. */
bool request_serves(const NodeSetup *setup, uint8_t kind);

/* "images", "sequences": what count counts. */
const char *request_unit(const NodeSetup *setup);

/* ---- the fixed part of a WIRE_PROMPT: how to go on */

enum { REQUEST_SAMPLING = 96 + 8 * SAMPLING_BIASES };
/* Of hostile bytes BAD_VALUE: a number out of range for this setup (NULL where it is packed). That there are as many ids as new tokens is
 * sampler_start's to check. */
Status request_sampling(ByteCursor cursor, const NodeSetup *setup, Sampling *sampling);

/* ---- sequences that stay on a node: the fixed part of a WIRE_SEQUENCE, and its tokens in WIRE_DECODED */

enum { REQUEST_SEQUENCE = REQUEST_SAMPLING + 8 };
typedef struct SequenceOptions {
  Sampling sampling;
  int top;   /* candidates to report with each token, 0 to SAMPLER_TOP; -1: no log-probabilities */
  bool echo; /* with top >= 0: the tokens of the prompt, too, each by the node that has the token before it */
  SpeculationMode speculation;
} SequenceOptions;
Status request_sequence(ByteCursor cursor, const NodeSetup *setup, SequenceOptions *options); /* as request_sampling */

#define SEQUENCE_ENDS(X)                                                                                                                   \
  X(GOES_ON)                                                                                                                               \
  X(LENGTH)  /* as many tokens as were wanted */                                                                                           \
  X(END)     /* this token ends the text */                                                                                                \
  X(CONTEXT) /* there is no room for more */                                                                                               \
  X(NUMERIC) /* the logits are not finite: there is no token */                                                                            \
  X(PROMPT)  /* a token of the prompt, `number` from 2 on: the first one has no probability */
typedef enum SequenceEnd {
#define SEQUENCE_ENUM(name) SEQUENCE_##name,
  SEQUENCE_ENDS(SEQUENCE_ENUM)
#undef SEQUENCE_ENUM
      SEQUENCE_END_COUNT
} SequenceEnd;

typedef struct DecodedToken {
  uint32_t sequence; /* number of its request */
  uint32_t number;   /* of its new tokens, from 1 */
  int32_t id;
  SequenceEnd end; /* neither GOES_ON nor PROMPT: the last one, and the sequence is no more */
  uint64_t drawn;  /* random numbers so far (Sampler.drawn) */
  int drafts;      /* that were checked in its step; told with the first token of a step */
  int wanted;      /* drafts that its device wants of another one for the next step */
  bool drafted;    /* it is one of them */
  int64_t shared;  /* tokens of the prompt whose keys and values were there already; told with the sequence's first new token */
  float logprob;   /* NAN where none was wanted */
  int top_count;
  SamplerCandidate top[SAMPLER_TOP];
} DecodedToken;

enum { DECODED_MAX = WIRE_DECODED_BYTES + 8 * SAMPLER_TOP, DECODED_PROMPT = 64 /* most tokens of a prompt in a message */ };
size_t request_decoded_max(const NodeSetup *setup); /* bytes of a WIRE_DECODED; 0: there are none */
/* A token of a message that ends there, moving the cursor behind it. Of hostile bytes BAD_VALUE; end and vocabulary are not read where it
 * is packed. */
Status request_decoded(ByteCursor *cursor, const uint8_t *end, int64_t vocabulary, DecodedToken *token);

/* Ids of a text, confirmed or drafts, from position `base` on: of a DRAFT, DRAFTS and DRAFTED, 4 + 4 count bytes. Of hostile bytes
 * BAD_VALUE; ids has room for as many as their size says. */
size_t request_draft(uint8_t *bytes, int64_t base, const int32_t *ids, int64_t count);
Status request_parse_draft(const uint8_t *bytes, uint32_t size, const NodeSetup *setup, int64_t *base, int32_t *ids, int64_t *count);

/* Ids as int32. Of hostile bytes one outside of [min, vocabulary) is BAD_VALUE. */
void request_pack_ids(const int32_t *ids, int64_t count, uint8_t *bytes);
Status request_parse_ids(const uint8_t *bytes, int64_t count, int64_t min, int64_t vocabulary, int32_t *ids);

/* ---- what answers begin with: statistics, which follow the header of every RESULT, and more in those of texts. All of them are packed, or
 * parsed: then hostile bytes are BAD_VALUE */

Status request_statistics(ByteCursor cursor, NodeStatistics *statistics); /* BAD_VALUE: a time that is none */

/* Of a WIRE_PROMPT: what decoding took, on the node that did it; but for buffer_bytes zeroes from the others. Of the cache the bytes that
 * are in use at its end. */
enum { REQUEST_DECODING = 40 };
typedef struct RequestDecoding {
  double seconds;                 /* from the first token to the last */
  uint64_t tokens;                /* made */
  uint64_t row_bytes, code_bytes; /* of the cache */
  uint64_t buffer_bytes;          /* the most that the tape held in this request, and what else was asked for: the sampler, room for
                                   * unpacked codes, for messages of codes, for requests and answers. Of each node */
} RequestDecoding;
Status request_decoding(ByteCursor cursor, RequestDecoding *decoding); /* BAD_VALUE: a time that is none, or bytes that no machine has */

/* Of a WIRE_SCORE: sums over the node's own rows. */
enum { REQUEST_SCORE = 24 };
typedef struct RequestScore {
  double loss; /* nats */
  uint64_t counted, correct;
} RequestScore;
/* BAD_VALUE: more right than counted, or less than no loss; NUMERIC: a loss that is no finite number. */
Status request_score(ByteCursor cursor, RequestScore *score);

#endif
