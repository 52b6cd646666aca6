/* One node: the leader's messages, what is computed for each kind of request, and its life. What travels between nodes is the matter of
 * code_exchange.c, or of collective.c where they share heads and columns instead of tokens; what is agreed on before, of device_session.c.
 * Two requests can be in its memory at once: the one that is computed and the next one, which the leader sends ahead. */
#include "infer/node.h"
#include "autograd/tape.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/share.h"
#include "infer/cluster/peer_backend.h"
#include "infer/code_exchange.h"
#include "infer/drafter.h"
#include "infer/node_sequences.h"
#include "infer/node_share.h"
#include "infer/patches.h"
#include "infer/request.h"
#include "infer/strategy/collective.h"
#include "nn/model.h"
#include "nn/tensor_parallel.h"
#include "vq/pack.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const size_t arena_bytes = (size_t)1 << 36; /* of address space; pages come as they are touched */

typedef struct NodeRequest {
  uint8_t *payload;
  Request request;
  uint32_t number;
  bool arrived;
} NodeRequest;

/* What a language model has besides. */
typedef struct NodeText {
  KvCache cache;
  Sampler sampler;
  NodeSequences *sequences;                                         /* that live here; NULL: none can */
  Drafter *drafter;                                                 /* NULL: it has nothing to draft with */
  uint8_t *told;                                                    /* [4 + 4 tokens_max] a DRAFT */
  int32_t *told_ids;                                                /* [tokens_max] */
  uint8_t drafted[WIRE_DRAFTS_BYTES];                               /* a DRAFTED */
  uint8_t drafts[WIRE_HEADER + WIRE_DRAFTS_BYTES];                  /* stays here until it is sent */
  uint32_t stopped;                                                 /* number of the last request that the leader wants no more tokens of */
  int32_t token;                                                    /* the last one */
  uint8_t tokens[CONNECTION_QUEUE][WIRE_HEADER + WIRE_TOKEN_BYTES]; /* a ring: they stay here until they are sent */
} NodeText;

/* In place of a code exchange where the nodes divide heads and columns (nn/tensor_parallel.h): sums and joins over all of them. */
typedef struct NodeDivision {
  TensorParallel how;
  Collective collective;
  CollectiveSetup setup;
  ReduceStep *steps; /* of the current request */
} NodeDivision;

struct Node {
  const NodeSetup *setup;
  int self, nodes;
  RequestShare max;   /* of the largest request */
  TokenLayout layout; /* of a text: of the current request, empty when it has fewer tokens than there are nodes before this one */
  CodeExchange exchange;
  NodeDivision division;
  TransportThread *transport; /* of either */
  TransportState counts;      /* of it at the end of the last request */
  bool exchanges;             /* exchanges rows or codes of tokens: exchange */
  bool divided;               /* division */
  Exchange pulse;             /* reports progress to the leader where no exchange does so */
  Connection *control;
  bool cancelled;
  Arena *arena, *block_arena; /* the second: values of the current block, freed when it ends */
  Tape *tape;
  NodeRequest requests[2];
  uint32_t announced, answered; /* numbers of the last request that began to arrive, and that was answered */
  uint8_t *results[2];          /* header | statistics | answer | codes */
  size_t message_bytes;         /* of all four: two requests, two results */
  uint8_t progress[WIRE_HEADER];
  uint64_t gone; /* nodes, as bits, that the leader has said are: it knows that their tokens are masked */
  double began;  /* the current request */
  bool counted;  /* its statistics are complete */
  NodeText text;
};

/* ---- the leader's messages ---- */

static Status check_request(const Node *node, const WireHeader *header, Request *request) {
  if (header->request != node->announced + 1)
    return status_set(STATUS_BAD_VALUE, "sent request %u after request %u", header->request, node->announced);
  TRY(request_read(request, node->setup, &node->max, header));
  if (request->codes && !(node->exchanges && node->setup->keep_codes))
    return status_set(STATUS_BAD_VALUE, "asked for codes, which was not agreed");
  return STATUS_OK;
}

Status node_place(Node *node, const WireHeader *header, uint8_t **payload) {
  Request request;
  if (header->kind == WIRE_STOP && header->bytes == 0) {
    *payload = node->progress;
    return STATUS_OK;
  }
  if (header->kind == WIRE_DRAFT && node->text.drafter && header->bytes <= 4 + 4 * (size_t)node->setup->tokens_max) {
    *payload = node->text.told;
    return STATUS_OK;
  }
  if (header->kind == WIRE_DRAFTED && node->text.sequences) {
    *payload = node->text.drafted;
    return STATUS_OK;
  }
  TRY(check_request(node, header, &request));
  NodeRequest *slot = &node->requests[header->request & 1];
  *payload = slot->arrived ? NULL : slot->payload;
  return STATUS_OK;
}

static Status take_drafts(Node *node, const WireHeader *header) {
  int32_t ids[SPECULATION_CHAIN];
  int64_t base, count;
  if (header->kind == WIRE_DRAFT) {
    TRY(request_parse_draft(node->text.told, header->bytes, node->setup, &base, node->text.told_ids, &count));
    return drafter_tell(node->text.drafter, header->request, base, node->text.told_ids, count, header->count);
  }
  TRY(request_parse_draft(node->text.drafted, header->bytes, node->setup, &base, ids, &count));
  node_sequences_drafts(node->text.sequences, header->request, base, ids, count);
  return STATUS_OK;
}

Status node_deliver(Node *node, const WireHeader *header) {
  if (header->kind == WIRE_DRAFT || header->kind == WIRE_DRAFTED) return take_drafts(node, header);
  if (header->kind == WIRE_STOP) {
    node->text.stopped = header->request;
    node_sequences_stop(node->text.sequences, header->request);
    return STATUS_OK;
  }
  NodeRequest *slot = &node->requests[header->request & 1];
  TRY(check_request(node, header, &slot->request));
  slot->number = header->request;
  slot->arrived = true;
  node->announced = header->request;
  return STATUS_OK;
}

/* ---- messages to the leader ---- */

static Status send_message(Node *node, uint8_t *message, WireHeader header) {
  header.sender = (uint8_t)node->self;
  wire_pack(&header, message);
  TRY(connection_send(node->control, message, WIRE_HEADER + (size_t)header.bytes));
  return connections_step(&(Connection *){node->control}, 1, 0);
}

/* A sign of life: one that is still being sent counts for both, and while it is sent the leader is heard. Without a leader the
 * answer is of no use. */
static void report_progress(void *context, int block) {
  Node *node = context;
  if (!connection_is_open(node->control)) node->cancelled = true;
  if (!node->cancelled && connection_queued(node->control)) connections_step(&(Connection *){node->control}, 1, 0);
  if (node->cancelled || !connection_is_open(node->control) || connection_queued(node->control)) return;
  send_message(node, node->progress,
               (WireHeader){.kind = WIRE_PROGRESS, .block = (uint8_t)(block < 255 ? block : 255), .request = node->answered + 1});
}

static Status report_pulse(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  Node *node = (Node *)((char *)self - offsetof(Node, pulse));
  (void)tape, (void)layout, (void)part, (void)h;
  if (!node->counted) report_progress(node, block); /* while it decodes, tokens are signs of life */
  return node->cancelled ? status_set(STATUS_INTERRUPTED, "the request was cancelled") : STATUS_OK;
}

/* ---- what a request costs ---- */

/* Bytes that have passed since the last request. */
static void count_traffic(Node *node) {
  NodeStatistics *s = &node->exchange.statistics;
  const TransportState now = transport_thread_state(node->transport), *before = &node->counts;
  s->bytes_sent = now.bytes_sent - before->bytes_sent;
  s->bytes_received = now.bytes_received - before->bytes_received;
  s->payload_sent = now.payload_sent - before->payload_sent;
  s->messages_sent = now.packets_sent - before->packets_sent;
  s->messages_received = now.packets_received - before->packets_received;
  s->lost = now.lost - before->lost;
  s->late = now.late - before->late;
  s->lost_tokens = now.lost_tokens - before->lost_tokens;
  s->late_tokens = now.late_tokens - before->late_tokens;
  s->resent = now.resent - before->resent;
  s->span = now.span - before->span;
  node->counts = now;
}

static void finish_statistics(Node *node) {
  NodeStatistics *s = &node->exchange.statistics;
  if (node->counted) return;
  if (node->transport) count_traffic(node);
  if (node->divided) {
    s->wait = node->division.collective.wait;
    s->send = node->division.collective.send;
  }
  s->elapsed = clock_now() - node->began;
  s->compute = fmax(0, s->elapsed - s->quantise - s->send - s->wait);
  node->counted = true;
}

/* ---- the rows of a request, by whatever the nodes divide among themselves ---- */

/* NULL where the node has none of them. */
static Status encode(Node *node, const ModelInput *input, int64_t batch, ModelRows rows, Tensor **encoded) {
  *encoded = NULL;
  if (node->layout.rows == 0) return STATUS_OK;
  Model *model = node->setup->weights->model;
  NodeDivision *division = &node->division;
  if (node->divided) {
    tensor_parallel_steps(model_config(model), &division->how, batch, &node->layout, rows, division->steps);
    TRY(collective_begin_request(&division->collective, node->answered + 1, division->steps));
    *encoded = tensor_parallel_encode(model, node->tape, input, &node->layout, &division->how, rows);
  } else {
    *encoded = model_encode(model, node->tape, input, &node->layout, node->exchanges ? &node->exchange.exchange : NULL, rows);
  }
  return tape_status(node->tape);
}

static RequestShare own_share(const Node *node) { return node_share_of(node->setup, node->self, &node->layout); }

/* ---- images: patches in, class-token replicas out ---- */

static Status answer_images(Node *node, const NodeRequest *request, uint8_t *out) {
  const ModelConfig *config = node->setup->weights->config;
  const int64_t batch = request->request.batch, shape[4] = {batch, config->channels, config->image, config->image};
  Tensor *replicas;
  if (node->layout.rows == 0) return STATUS_OK;
  Tensor *pixels = tape_tensor(node->tape, 4, shape);
  if (!pixels) return tape_status(node->tape);
  memset(pixels->value, 0, (size_t)tensor_count(pixels) * sizeof(real)); /* patches of other nodes stay so: they are not read */
  TRY(patches_parse(request->payload, config, &node->layout, batch, request->request.levels, pixels->value));
  TRY(encode(node, &(ModelInput){.pixels = pixels}, batch, MODEL_ROWS_CLASS, &replicas));
  if (replicas && own_share(node).class_rows > 0) wire_pack_reals(replicas->value, (size_t)tensor_count(replicas), out);
  return STATUS_OK;
}

/* ---- texts: ids in; losses of the node's own rows, or, from the node with the last token, logits, classes or new tokens ---- */

static int64_t vocabulary(const Node *node) { return node->setup->weights->config->vocabulary; }

static Status read_ids(Node *node, const uint8_t *bytes, int64_t count, int64_t min, int32_t **ids) {
  *ids = tape_alloc(node->tape, (size_t)count * sizeof **ids);
  if (!*ids) return tape_status(node->tape);
  return request_parse_ids(bytes, count, min, vocabulary(node), *ids);
}

/* ---- logits or classes, from the row of the last token ---- */

typedef Tensor *Head(Model *model, Tape *tape, Tensor *encoded);

static Status answer_with(Node *node, const NodeRequest *request, Head *head, uint8_t *out) {
  int64_t batch = request->request.batch;
  int32_t *ids;
  Tensor *last;
  TRY(read_ids(node, request->payload, batch * request->request.tokens, 0, &ids));
  TRY(encode(node, &(ModelInput){.ids = ids, .batch = batch}, batch, MODEL_ROWS_LAST, &last));
  if (!last || !own_share(node).last) return STATUS_OK;
  report_progress(node, (int)node->setup->weights->config->blocks);
  Tensor *logits = head(node->setup->weights->model, node->tape, last);
  if (!logits) return tape_status(node->tape);
  wire_pack_reals(logits->value, (size_t)tensor_count(logits), out);
  return STATUS_OK;
}

/* ---- losses ---- */

/* Rows that go through the head between two signs of life: enough for large products, and seconds with a vocabulary of 128k. */
static int64_t rows_at_once(const Node *node) {
  enum { MIN = 64, MAX = 256, LOGITS = 1 << 24 };
  int64_t rows = LOGITS / vocabulary(node);
  return rows < MIN ? MIN : rows > MAX ? MAX : rows;
}

/* slice [rows, D]; labels of -1 do not count. Sums in double over row losses: the mean that the operation returns is of another precision,
 * and there is none where no row counts. */
static Status score_slice(Node *node, const int32_t *labels, Tensor *slice, RequestScore *score) {
  const int64_t rows = slice->shape[0];
  int64_t correct = 0;
  bool any = false;
  for (int64_t row = 0; row < rows; row++) any |= labels[row] >= 0;
  if (!any) return STATUS_OK;
  real *losses = tape_alloc(node->tape, (size_t)rows * sizeof *losses);
  if (!losses) return tape_status(node->tape);
  report_progress(node, (int)node->setup->weights->config->blocks);
  model_token_loss(node->setup->weights->model, node->tape, slice, &(VocabLoss){.labels = labels, .correct = &correct, .row_loss = losses});
  TRY(tape_status(node->tape));
  for (int64_t row = 0; row < rows; row++) {
    if (labels[row] < 0) continue;
    score->loss += (double)losses[row];
    score->counted++;
  }
  score->correct += (uint64_t)correct;
  return STATUS_OK;
}

/* labels [B, T] of all tokens, of which those of this node's rows are used. */
static Status score_rows(Node *node, const Request *request, const int32_t *labels, const Tensor *encoded, RequestScore *score) {
  const TokenLayout *layout = &node->layout;
  const int64_t rows = request->batch * layout->rows, width = encoded->shape[encoded->dims - 1];
  int32_t *own = tape_alloc(node->tape, (size_t)rows * sizeof *own);
  if (!own) return tape_status(node->tape);
  for (int64_t b = 0; b < request->batch; b++)
    memcpy(own + b * layout->rows, labels + b * request->tokens + layout->row_token[0], (size_t)layout->rows * sizeof *own);
  /* Where all nodes have all rows, each answers for its share of them. */
  int64_t begin = share_even_begin(rows, node->nodes, node->self), end = begin + share_even_count(rows, node->nodes, node->self);
  for (int64_t row = 0; node->divided && row < rows; row++) {
    if (row < begin || row >= end) own[row] = -1;
  }
  int64_t slices = (rows + rows_at_once(node) - 1) / rows_at_once(node);
  for (int64_t first = 0; first < rows; slices--) {
    int64_t count = (rows - first + slices - 1) / slices;
    Tensor slice = {.dims = 2, .shape = {count, width}, .value = encoded->value + first * width};
    TRY(score_slice(node, own + first, &slice, score));
    first += count;
  }
  return STATUS_OK;
}

static Status answer_score(Node *node, const NodeRequest *request, uint8_t *out) {
  int64_t count = request->request.batch * request->request.tokens;
  int32_t *ids, *labels;
  Tensor *encoded;
  RequestScore score = {0};
  TRY(read_ids(node, request->payload, count, 0, &ids));
  TRY(read_ids(node, request->payload + 4 * count, count, -1, &labels));
  TRY(encode(node, &(ModelInput){.ids = ids, .batch = request->request.batch}, request->request.batch, MODEL_ROWS_ALL, &encoded));
  if (encoded) TRY(score_rows(node, &request->request, labels, encoded, &score));
  request_score(byte_cursor_to(out), &score);
  return STATUS_OK;
}

/* ---- new tokens ---- */

/* Of the others' tokens a decoder keeps codes, unless it was asked for keys and values in full. With predictions the codes of one block say
 * too little, and all tokens are kept in full. */
static bool keeps_codes(const Node *node) {
  const Weights *weights = node->setup->weights;
  return node_share_strategy(node->setup) == STRATEGY_ASTRA && !weights->config->astra.prediction && !weights->cache_full;
}

static Status start_cache(Node *node) {
  const Weights *weights = node->setup->weights;
  const ModelConfig *config = weights->config;
  KvCacheSetup setup = {.blocks = config->blocks, .width = config_kv_width(config), .max = node->setup->tokens_max};
  setup.kind = weights->cache_kind;
  KvCodewords *codewords = calloc((size_t)(config->blocks * config_sites(config)) + 1, sizeof *codewords);
  if (!codewords) return status_set(STATUS_NO_MEMORY, "no memory for %d codebooks", weights->book_count);
  for (int i = 0; i < weights->book_count; i++)
    codewords[i] = (KvCodewords){weights->books[i].codewords, weights->books[i].narrow, weights->books[i].kind};
  if (keeps_codes(node)) {
    setup.sites = config_sites(config);
    setup.groups = config->astra.groups;
    setup.entries = config->astra.codebook_size;
    setup.token_bytes = pack_bytes_per_token(setup.groups, setup.entries);
    setup.codewords = codewords;
    setup.unpack = pack_unpack;
  }
  Status status = kv_cache_init(&node->text.cache, &setup);
  free(codewords);
  return status;
}

static void hear(void *context, int block, int site, int64_t first, int64_t tokens, const uint8_t *packed) {
  KvCache *cache = &((Node *)context)->text.cache;
  memcpy(kv_cache_codes(cache, block, site, first), packed, (size_t)tokens * cache->setup.token_bytes);
}

static Status send_token(Node *node, uint32_t request, uint32_t number) {
  uint8_t *message = node->text.tokens[number % CONNECTION_QUEUE];
  TRY(weights_unchanged(node->setup->weights));
  TRY(connection_await_room(node->control));
  wire_put_u32(message + WIRE_HEADER, (uint32_t)node->text.token);
  return send_message(node, message, (WireHeader){.kind = WIRE_TOKEN, .request = request, .count = number, .bytes = WIRE_TOKEN_BYTES});
}

/* Samples a token, sends it and computes the logits after it, until an end. */
static Status continue_text(Node *node, uint32_t request, const Tensor *logits, RequestDecoding *decoding) {
  NodeText *text = &node->text;
  double first = 0;
  for (;;) {
    TRY(sampler_pick(&text->sampler, logits->value, &text->token));
    TRY(send_token(node, request, (uint32_t)++decoding->tokens));
    if (decoding->tokens == 1) first = clock_now();
    decoding->seconds = clock_now() - first;
    bool enough = (int64_t)decoding->tokens >= text->sampler.sampling.max || sampler_ends(&text->sampler, text->token);
    if (enough || kv_cache_room(&text->cache) == 0) return STATUS_OK;
    connections_step(&(Connection *){node->control}, 1, 0); /* its failure shows where it is next waited for */
    if (node->cancelled || text->stopped == request || !connection_is_open(node->control)) return STATUS_OK;
    tape_clear(node->tape);
    logits = model_decode_step(node->setup->weights->model, node->tape, &text->cache, &text->token);
    if (!logits) return tape_status(node->tape);
  }
}

/* Which tokens of a prompt are wanted, and how. */
typedef struct PromptEcho {
  uint32_t number;
  int top;
  int64_t count; /* of the prompt */
} PromptEcho;

/* The node's own rows, encoded [1, rows, D], a few at a time. */
static Status echo_rows(Node *node, const PromptEcho *echo, const int32_t *ids, const Tensor *encoded) {
  const int64_t width = tensor_width(encoded), rows = node->layout.rows;
  for (int64_t first = 0, count; first < rows; first += count) {
    count = rows - first < DECODED_PROMPT ? rows - first : DECODED_PROMPT;
    const size_t mark = tape_scratch_begin(node->tape);
    Tensor slice = {.dims = 2, .shape = {count, width}, .value = encoded->value + first * width};
    report_progress(node, (int)node->setup->weights->config->blocks);
    Tensor *logits = model_logits(node->setup->weights->model, node->tape, &slice);
    if (!logits) return tape_status(node->tape);
    TRY(node_sequences_echo(node->text.sequences, echo->number, echo->top, ids, echo->count, node->layout.row_token[first], logits));
    tape_scratch_end(node->tape, mark);
  }
  return STATUS_OK;
}

/* On the node that has the last token its keys and values, and the codes that it receives, are in the cache then, and *logits follow it;
 * elsewhere *logits is NULL. */
static Status prefill(Node *node, const int32_t *ids, const PromptEcho *echo, Tensor **logits) {
  bool decodes = node->layout.last_rows > 0;
  Tensor *last;
  *logits = NULL;
  if (decodes && !node->text.cache.keys) TRY(start_cache(node));
  if (decodes) TRY(kv_cache_start(&node->text.cache, keeps_codes(node) ? node->layout.remote : 0));
  node->exchange.heard = decodes && keeps_codes(node) ? hear : NULL;
  node->exchange.heard_context = node;
  ModelInput input = {.ids = ids, .batch = 1, .cache = decodes ? &node->text.cache : NULL};
  Status status = encode(node, &input, 1, echo ? MODEL_ROWS_ALL : MODEL_ROWS_LAST, &last);
  node->exchange.heard = NULL;
  if (status != STATUS_OK || !last) return status;
  if (echo) TRY(echo_rows(node, echo, ids, last));
  Tensor end = {.dims = 3, .shape = {1, 1, tensor_width(last)}, .value = last->value + tensor_count(last) - tensor_width(last)};
  if (!decodes) return STATUS_OK;
  report_progress(node, (int)node->setup->weights->config->blocks);
  *logits = model_logits(node->setup->weights->model, node->tape, echo ? &end : last);
  return *logits ? STATUS_OK : tape_status(node->tape);
}

/* Memory allocated besides the cache's rows and codes. Of the tape: the maximum of this request. */
static size_t buffer_bytes(const Node *node) {
  const KvCacheSetup *cache = &node->text.cache.setup;
  size_t max = (size_t)cache->max, unpacked = (size_t)(cache->sites * cache->groups) * max * sizeof(int32_t),
         marks = (size_t)cache->blocks * max + max * sizeof(int32_t); /* which are lost; positions */
  return arena_watched(node->arena) + arena_watched(node->block_arena) + node->text.sampler.bytes + unpacked + marks +
         node->exchange.memory + node->message_bytes;
}

static Status answer_prompt(Node *node, const NodeRequest *request, uint8_t *out) {
  RequestDecoding decoding = {0};
  Sampling sampling;
  Tensor *logits;
  int32_t *ids;
  TRY(request_sampling(byte_cursor_from(request->payload), node->setup, &sampling));
  TRY(read_ids(node, request->payload + REQUEST_SAMPLING, request->request.tokens, 0, &ids));
  TRY(sampler_start(&node->text.sampler, &sampling, ids, request->request.tokens));
  TRY(prefill(node, ids, NULL, &logits));
  finish_statistics(node);
  if (logits) {
    if (sampling.max > 0) TRY(continue_text(node, request->number, logits, &decoding));
    int64_t code_bytes;
    decoding.row_bytes = (uint64_t)kv_cache_bytes(&node->text.cache, &code_bytes);
    decoding.code_bytes = (uint64_t)code_bytes;
  }
  decoding.buffer_bytes = (uint64_t)buffer_bytes(node);
  request_decoding(byte_cursor_to(out), &decoding);
  return STATUS_OK;
}

/* ---- sequences that stay ---- */

/* How the text is divided, as keys and values that are kept depend on it. */
static KvSpans spans_of(const Node *node) {
  const TokenLayout *layout = &node->layout;
  KvSpans spans = {.count = layout->remote > 0 ? layout->devices - 1 : 0, .in_full = layout->remote > 0 && !keeps_codes(node)};
  for (int i = 0; i < spans.count; i++) spans.begin[i] = layout->device_shared[i + 1];
  return spans;
}

/* What others must send is computed in any case; where there are no others, what is shared is not. */
static Status answer_sequence(Node *node, const NodeRequest *request) {
  const bool home = node->layout.last_rows > 0;
  const int64_t count = request->request.tokens;
  const KvSpans spans = spans_of(node);
  SequenceOptions options = {.echo = false};
  int64_t shared = 0;
  Tensor *logits;
  int32_t *ids;
  TRY(request_sequence(byte_cursor_from(request->payload), node->setup, &options));
  const PromptEcho echo = {request->number, options.top, count};
  TRY(read_ids(node, request->payload + REQUEST_SEQUENCE, count, 0, &ids));
  if (home) TRY(node_sequences_join(node->text.sequences, request->number, &options, ids, count, &spans, &shared));
  if (shared > 0 && !node->exchanges && !options.echo) {
    TRY(node_sequences_compute(node->text.sequences, node->tape, ids, count, shared, &logits));
  } else {
    TRY(prefill(node, ids, options.echo ? &echo : NULL, &logits));
    if (home) TRY(node_sequences_take(node->text.sequences, &node->text.cache, ids));
  }
  finish_statistics(node);
  return home ? node_sequences_begin(node->text.sequences, logits) : STATUS_OK;
}

bool node_decodes(const Node *node) { return node_sequences_any(node->text.sequences); }

Status node_decode(Node *node) {
  TRY(node_sequences_step(node->text.sequences, node->tape));
  return node->cancelled ? status_set(STATUS_INTERRUPTED, "the sequences were cancelled") : STATUS_OK;
}

double node_waits(const Node *node) { return node_sequences_wait(node->text.sequences); }

bool node_is_drafter(const Node *node) { return node->text.drafter != NULL; }
bool node_drafts(const Node *node) {
  return drafter_works(node->text.drafter) || (drafter_ready(node->text.drafter) && connection_queued(node->control) == 0);
}

/* Drafts that cannot be sent at once are sent with those that follow. */
Status node_draft(Node *node) {
  Drafter *drafter = node->text.drafter;
  int32_t ids[SPECULATION_CHAIN];
  WireHeader header = {.kind = WIRE_DRAFTS};
  int64_t base;
  if (!drafter_ready(drafter) || connection_queued(node->control) > 0) drafter_step(drafter);
  if (!drafter_ready(drafter) || connection_queued(node->control) > 0) return STATUS_OK;
  header.count = (uint32_t)drafter_take(drafter, &header.request, &base, ids);
  header.bytes = (uint32_t)request_draft(node->text.drafts + WIRE_HEADER, base, ids, header.count);
  return send_message(node, node->text.drafts, header);
}

/* ---- one request ---- */

static Status begin(Node *node, const NodeRequest *request) {
  if (node->setup->split) TRY(node_share_layout(node->setup, request->request.tokens, request->request.home, node->self, &node->layout));
  node->began = clock_now();
  node->counted = false;
  node->exchange.statistics = (NodeStatistics){0};
  tape_clear(node->tape);
  arena_watch(node->arena);
  arena_watch(node->block_arena);
  if (!node->exchanges) return STATUS_OK;
  CodeExchangeRequest exchange = {.number = request->number,
                                  .batch = request->request.batch,
                                  .keep = request->request.codes,
                                  .first = node_share_first(node->setup, request->request.tokens, request->request.home),
                                  .whole = request->request.kind == WIRE_PROMPT ||
                                           request->request.kind == WIRE_SEQUENCE}; /* rows that go to a cache */
  return code_exchange_begin_request(&node->exchange, &exchange);
}

/* Writes what follows the statistics at `out`, of the length that request.c defines, codes not included. */
static Status answer(Node *node, const NodeRequest *request, uint8_t *out) {
  switch (request->request.kind) {
  case WIRE_PROMPT:
    return answer_prompt(node, request, out);
  case WIRE_SEQUENCE:
    return answer_sequence(node, request);
  case WIRE_SCORE:
    return answer_score(node, request, out);
  case WIRE_LAST:
    return answer_with(node, request, model_logits, out);
  default:
    return node->setup->split ? answer_with(node, request, model_classify, out) : answer_images(node, request, out);
  }
}

/* Bytes that a peer sends ahead count where they arrive. */
static Status compute(Node *node, const NodeRequest *request, uint8_t *result) {
  const NodeSetup *setup = node->setup;
  RequestShare share = own_share(node);
  size_t codes = request_code_bytes(setup, &request->request, &share);
  TRY(answer(node, request, result + WIRE_STATISTICS));
  finish_statistics(node);
  request_statistics(byte_cursor_to(result), &node->exchange.statistics);
  if (codes) memcpy(result + request_answer_bytes(setup, &request->request, &share) - codes, node->exchange.kept, codes);
  return STATUS_OK;
}

bool node_has_request(const Node *node) { return node->requests[(node->answered + 1) & 1].arrived; }
void node_gone(Node *node, int other) {
  node->gone |= (uint64_t)1 << other;
  if (node->exchanges && other != node->self) transport_thread_gone(node->transport, other);
}
void node_cancel(Node *node) { node->cancelled = true; }

Status node_answer(Node *node, uint32_t *number, int *fault) {
  NodeRequest *slot = &node->requests[(node->answered + 1) & 1];
  const Request request = slot->request;
  uint8_t *result = node->results[slot->number & 1];
  *number = slot->number;
  *fault = -1;
  Status status = begin(node, slot);
  if (status == STATUS_OK) status = compute(node, slot, result + WIRE_HEADER);
  if (status == STATUS_OK) status = weights_unchanged(node->setup->weights); /* while this was computed, too */
  if (status != STATUS_OK) {
    if (node->exchanges || node->divided) *fault = node->exchanges ? node->exchange.fault : node->division.collective.fault;
    return status;
  }
  RequestShare share = own_share(node);
  slot->arrived = false;
  node->answered = slot->number;
  /* Masked tokens alone may have been lost in transit. */
  const bool gave_up = node->exchanges && node->exchange.statistics.masked > 0;
  const uint64_t left = gave_up ? transport_thread_state(node->transport).left & ~node->gone : 0;
  return send_message(node, result,
                      (WireHeader){.kind = WIRE_RESULT,
                                   .flags = request.codes ? WIRE_WANT_CODES : 0,
                                   .request = node->answered,
                                   .count = (uint32_t)request.batch,
                                   .block = left ? (uint8_t)(1 + __builtin_ctzll(left)) : 0,
                                   .bytes = (uint32_t)request_answer_bytes(node->setup, &request, &share)});
}

/* ---- beginning and end ---- */

static bool sends_codes(const NodeSetup *setup) { return !setup->network || strategy_facts(setup->network->strategy)->sends_codes; }

static CodeExchangeSetup exchange_setup(const Node *node) {
  const NodeSetup *setup = node->setup;
  EntropyChoice choice = setup->network && sends_codes(setup) ? setup->network->entropy : ENTROPY_OFF;
  bool pays = setup_message_codes_pay(choice, setup->weights->coded_share);
  CodeExchangeSetup exchange = code_exchange_setup_of(setup->weights->config, setup->strategy == STRATEGY_SP);
  exchange.self = node->self;
  exchange.nodes = node->nodes;
  exchange.layout = &node->layout;
  exchange.books = pays && setup->weights->constrained ? setup->weights->constrained : setup->weights->books;
  exchange.batch_max = setup->batch_max;
  exchange.keep_codes = setup->keep_codes;
  exchange.causal = setup->split != NULL;
  exchange.tokens_max = setup->tokens_max;
  exchange.parts = setup->network ? setup->network->parts : 1;
  exchange.min_packets = setup->network ? setup->network->reliability.min_packets : 1;
  exchange.lose = setup->network && setup->network->links.lose_tokens ? &setup->network->links : NULL;
  exchange.keys = sends_codes(setup) ? setup->weights->keys : NULL;
  exchange.coding = pays ? setup->weights->coding : NULL;
  return exchange;
}

/* While others are waited for, the leader may send messages or go away. */
static Status look_at_leader(void *context) { return connections_step(&(Connection *){((Node *)context)->control}, 1, 0); }

typedef struct Opening {
  Node *node;
  BackendPeers *backend;
} Opening;

/* The same while a transport waits for peers. */
static Status look_while_opening(void *context) {
  const Opening *opening = context;
  Status status = look_at_leader(opening->node);
  if (status == STATUS_OK && opening->node->cancelled) status = status_set(STATUS_INTERRUPTED, "given up before it began");
  if (status != STATUS_OK) atomic_store(&opening->backend->give_up, true);
  return status;
}

/* Over these connections, whose ownership is taken. transport: what the exchange or the division has set. */
static Status start_transport(Node *node, Connection **peers, TransportSetup *transport) {
  const ClusterSetup *wanted = node->setup->network;
  Reliability reliability = wanted ? wanted->reliability : (Reliability){.mode = RELIABILITY_STREAM};
  BackendPeers backend = {.self = node->self,
                          .nodes = node->nodes,
                          .channels = peers,
                          .datagrams = wanted && wanted->transport == TRANSPORT_UDP,
                          .mtu = wanted ? wanted->mtu : 0,
                          .port = wanted ? wanted->device[node->self].address.port : 0,
                          .seconds = node->setup->timeout,
                          .fault = -1};
  backend.agreed = node->setup->agreed;
  backend.agreed_bytes = sizeof node->setup->agreed;
  reliability.timeout = node->setup->timeout;
  transport->reliability = &reliability;
  transport->links = wanted && wanted->shaped ? &wanted->links : NULL;
  transport->timeout = reliability.timeout;
  backend.max_packet = PACKET_HEADER + transport->max_message_bytes;
  const TransportThreadSetup thread = {.transport = *transport,
                                       .open = backend_open,
                                       .open_context = &backend,
                                       .check = look_while_opening,
                                       .check_context = &(Opening){node, &backend}};
  Status status = transport_thread_start(&node->transport, &thread);
  if (status != STATUS_OK) node->exchange.fault = backend.fault;
  return status;
}

static Status start_code_exchange(Node *node, Connection **peers) {
  CodeExchangeSetup setup = exchange_setup(node);
  TransportSetup transport = {.mask = node->setup->mask};
  code_exchange_transport(&setup, &transport);
  TRY(start_transport(node, peers, &transport));
  setup.transport = node->transport;
  TRY(code_exchange_init(&node->exchange, &setup));
  node->exchange.cancelled = &node->cancelled;
  node->exchange.progress = report_progress;
  node->exchange.progress_context = node->exchange.check_context = node;
  node->exchange.check = look_at_leader;
  node->exchanges = true;
  return STATUS_OK;
}

static Status allocate(Node *node) {
  const NodeSetup *setup = node->setup;
  node->max = own_share(node);
  if (setup->split) node->max = (RequestShare){.sent_rows = setup->tokens_max, .last = true};
  size_t payload = request_max_bytes(setup, &node->max), result = WIRE_HEADER + request_max_answer_bytes(setup, &node->max);
  bool memory =
      (node->arena = arena_new(arena_bytes)) && (node->block_arena = arena_new(arena_bytes)) && (node->tape = tape_new(node->arena));
  node->message_bytes = 2 * (payload + result);
  for (int i = 0; i < 2; i++) memory = memory && (node->requests[i].payload = malloc(payload)) && (node->results[i] = malloc(result));
  if (!memory)
    return status_set(STATUS_NO_MEMORY, "no memory for requests of %lld; use a smaller --batch or --max-context",
                      (long long)setup->batch_max);
  tape_record(node->tape, false);
  tape_use_bf16(node->tape, setup->weights->bf16);
  tape_segment_use(node->tape, node->block_arena);
  return STATUS_OK;
}

static Status look_around(void *context) {
  Node *node = context;
  TRY(look_at_leader(node));
  return node->cancelled ? status_set(STATUS_INTERRUPTED, "the request was cancelled") : STATUS_OK;
}

static Status start_division(Node *node, Connection **peers) {
  const NodeSetup *setup = node->setup;
  const ModelConfig *config = setup->weights->config;
  NodeDivision *division = &node->division;
  TransportSetup transport = {.mask = false};
  division->how = (TensorParallel){.strategy = setup->strategy, .retained = setup->retained};
  int count = tensor_parallel_steps(config, &division->how, setup->batch_max, &node->layout, MODEL_ROWS_ALL, NULL);
  if (!(division->steps = calloc((size_t)count + 1, sizeof *division->steps)))
    return status_set(STATUS_NO_MEMORY, "no memory for %d sums", count);
  tensor_parallel_steps(config, &division->how, setup->batch_max, &node->layout, MODEL_ROWS_ALL, division->steps);
  division->setup = (CollectiveSetup){.self = node->self, .nodes = node->nodes, .steps = count, .max = division->steps};
  TRY(collective_check(&division->setup));
  collective_transport(&division->setup, &transport);
  TRY(start_transport(node, peers, &transport));
  division->setup.transport = node->transport;
  TRY(collective_init(&division->collective, &division->setup));
  division->collective.check = look_around;
  division->collective.check_context = node;
  division->how.reduce = &division->collective.reduce;
  node->divided = true;
  return STATUS_OK;
}

static Status start_drafter(Node *node) {
  const size_t max = (size_t)node->setup->tokens_max;
  if (!(node->text.told = malloc(4 + 4 * max)) || !(node->text.told_ids = malloc(max * sizeof *node->text.told_ids)))
    return status_no_memory(NULL, "a text to draft for");
  return drafter_new(&node->text.drafter, node->setup);
}

static Status start(Node *node, Connection **peers) {
  const NodeSetup *setup = node->setup;
  TRY(node_share_check(setup));
  /* Shorter texts fit into the memory of the longest. The cache comes with the first prompt that ends on this node. */
  TRY(node_share_layout(setup, setup->split ? setup->tokens_max : setup->partition->tokens, 0, node->self, &node->layout));
  if (setup->split && request_serves(setup, WIRE_PROMPT)) TRY(sampler_init(&node->text.sampler, vocabulary(node)));
  if (node_share_strategy(setup) != STRATEGY_SINGLE)
    TRY(node_share_everything(setup) ? start_division(node, peers) : start_code_exchange(node, peers));
  TRY(allocate(node));
  if (request_serves(setup, WIRE_SEQUENCE)) {
    TRY(start_cache(node));
    TRY(node_sequences_new(&node->text.sequences, setup, node->self, &node->text.cache.setup, node->control));
    if (setup->weights->drafts && node->nodes > 1) TRY(start_drafter(node));
  }
  if (!node->exchanges) model_watch(setup->weights->model, &node->pulse);
  return STATUS_OK;
}

Status node_new(Node **out, const NodeSetup *setup, int self, Connection *control, Connection **peers, int *fault) {
  Node *node = calloc(1, sizeof *node);
  *out = node;
  Status status = node ? STATUS_OK : status_no_memory(NULL, "a node");
  if (node)
    *node = (Node){.setup = setup,
                   .self = self,
                   .nodes = node_setup_count(setup),
                   .control = control,
                   .pulse = {.begin = report_pulse},
                   .exchange = {.fault = -1},
                   .division = {.collective = {.fault = -1}}};
  if (node) status = start(node, peers);
  for (int d = 0; d < node_setup_count(setup); d++) {
    connection_free(peers[d]);
    peers[d] = NULL;
  }
  if (status == STATUS_OK) {
    control->sink.max_payload = request_max_bytes(setup, &node->max);
    return STATUS_OK;
  }
  *fault = node ? node->exchange.fault : -1;
  node_free(node);
  *out = NULL;
  return status;
}

void node_free(Node *node) {
  if (!node) return;
  if (node->pulse.begin) model_watch(node->setup->weights->model, NULL);
  transport_thread_stop(node->transport);
  if (node->exchanges) code_exchange_release(&node->exchange);
  collective_release(&node->division.collective);
  free(node->division.steps);
  tape_free(node->tape);
  arena_free(node->arena);
  arena_free(node->block_arena);
  layout_release(&node->layout);
  kv_cache_release(&node->text.cache);
  node_sequences_free(node->text.sequences);
  drafter_free(node->text.drafter);
  free(node->text.told);
  free(node->text.told_ids);
  sampler_release(&node->text.sampler);
  for (int i = 0; i < 2; i++) {
    free(node->requests[i].payload);
    free(node->results[i]);
  }
  free(node);
}
