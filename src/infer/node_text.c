/* Texts on a node: ids in; losses of its own rows, or, from the node with the last token, logits, classes or new tokens. */
#include "base/arena.h"
#include "base/clock.h"
#include "infer/node_parts.h"
#include "infer/node_share.h"
#include "vq/pack.h"
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static int64_t vocabulary(const Node *node) { return node->setup->weights->config->vocabulary; }

static Status start_cache(Node *node) {
  const Weights *weights = node->setup->weights;
  const ModelConfig *config = weights->config;
  KvCacheSetup setup = {
      .blocks = config->blocks, .width = config->kv_heads * (config->width / config->heads), .max = node->setup->tokens_max};
  setup.kind = weights->cache_kind;
  KvCodewords *codewords = malloc((size_t)(weights->book_count + 1) * sizeof *codewords);
  if (!codewords) return status_set(STATUS_NO_MEMORY, "no memory for %d codebooks", weights->book_count);
  for (int i = 0; i < weights->book_count; i++)
    codewords[i] = (KvCodewords){weights->books[i].codewords, weights->books[i].narrow, weights->books[i].kind};
  if (node_share_strategy(node->setup) == STRATEGY_ASTRA) {
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

Status node_text_layout(Node *node, const Request *request) {
  return node_share_layout(node->setup, request->tokens, node->self, &node->layout);
}

/* The layout of the longest text: shorter ones fit into its memory. The cache comes with the first prompt that ends on this node. */
Status node_text_start(Node *node) {
  TRY(node_share_layout(node->setup, node->setup->tokens_max, node->self, &node->layout));
  if (!request_serves(node->setup, WIRE_PROMPT)) return STATUS_OK; /* nobody decodes */
  return sampler_init(&node->text.sampler, vocabulary(node));
}

void node_text_release(Node *node) {
  kv_cache_release(&node->text.cache);
  sampler_release(&node->text.sampler);
}

/* ---- what all requests begin with ---- */

static Status read_ids(Node *node, const uint8_t *bytes, int64_t count, int64_t min, int32_t **ids) {
  *ids = tape_alloc(node->tape, (size_t)count * sizeof **ids);
  if (!*ids) return tape_status(node->tape);
  return request_parse_ids(bytes, count, min, vocabulary(node), *ids);
}

static Status encode(Node *node, const Request *request, const int32_t *ids, KvCache *cache, ModelRows rows, Tensor **encoded) {
  ModelInput input = {.ids = ids, .batch = request->batch, .cache = cache};
  return node_encode(node, &input, request->batch, rows, encoded);
}

/* ---- what the row of the last token says ---- */

typedef Tensor *Head(Model *model, Tape *tape, Tensor *encoded);

static Status answer_last(Node *node, const NodeRequest *request, Head *head, uint8_t *out) {
  int64_t batch = request->request.batch;
  int32_t *ids;
  Tensor *last;
  TRY(read_ids(node, request->payload, batch * request->request.tokens, 0, &ids));
  TRY(encode(node, &request->request, ids, NULL, MODEL_ROWS_LAST, &last));
  if (!last || !node_share_of(node->setup, node->self, &node->layout).last) return STATUS_OK;
  node_report_progress(node, (int)node->setup->weights->config->blocks);
  Tensor *logits = head(node->setup->weights->model, node->tape, last);
  if (!logits) return tape_status(node->tape);
  wire_pack_reals(logits->value, (size_t)tensor_count(logits), out);
  return STATUS_OK;
}

Status node_text_last(Node *node, const NodeRequest *request, uint8_t *out) { return answer_last(node, request, model_logits, out); }
Status node_text_classify(Node *node, const NodeRequest *request, uint8_t *out) { return answer_last(node, request, model_classify, out); }

/* ---- losses ---- */

/* Labels of this node's rows [B, rows] of those of all tokens [B, T]. */
static int32_t *own_labels(Node *node, const Request *request, const int32_t *labels) {
  const TokenLayout *layout = &node->layout;
  int32_t *own = tape_alloc(node->tape, (size_t)(request->batch * layout->rows) * sizeof *own);
  for (int64_t b = 0; own && b < request->batch; b++)
    memcpy(own + b * layout->rows, labels + b * request->tokens + layout->row_token[0], (size_t)layout->rows * sizeof *own);
  return own;
}

/* Where all nodes have all rows, each answers for its share of them: the others' labels do not count here. */
static void leave_to_others(const Node *node, int64_t rows, int32_t *labels) {
  int64_t counts[WIRE_NODES], first = 0;
  if (!node->divided) return;
  layout_even_counts(rows, node->nodes, counts);
  for (int d = 0; d < node->self; d++) first += counts[d];
  for (int64_t row = 0; row < rows; row++) {
    if (row < first || row >= first + counts[node->self]) labels[row] = -1;
  }
}

/* Sums in double over row losses: the mean that the operation returns is of another precision, and of rows that count nothing there is
 * none. */
static void sum_losses(const int32_t *labels, const real *losses, int64_t rows, RequestScore *score) {
  for (int64_t row = 0; row < rows; row++) {
    if (labels[row] < 0) continue;
    score->loss += (double)losses[row];
    score->counted++;
  }
}

/* Rows that go through the head between two signs of life: enough for large products, and with a vocabulary of 128k still seconds. */
static int64_t rows_at_once(const Node *node) {
  enum { MIN = 64, MAX = 256, LOGITS = 1 << 24 };
  int64_t rows = LOGITS / vocabulary(node);
  return rows < MIN ? MIN : rows > MAX ? MAX : rows;
}

/* slice [rows, D], of which some may count. */
static Status score_slice(Node *node, const int32_t *labels, Tensor *slice, RequestScore *score) {
  const int64_t rows = slice->shape[0];
  int64_t correct = 0;
  bool any = false;
  for (int64_t row = 0; row < rows; row++) any |= labels[row] >= 0;
  if (!any) return STATUS_OK;
  real *losses = tape_alloc(node->tape, (size_t)rows * sizeof *losses);
  if (!losses) return tape_status(node->tape);
  node_report_progress(node, (int)node->setup->weights->config->blocks);
  model_token_loss(node->setup->weights->model, node->tape, slice, &(VocabLoss){.labels = labels, .correct = &correct, .row_loss = losses});
  TRY(tape_status(node->tape));
  sum_losses(labels, losses, rows, score);
  score->correct += (uint64_t)correct;
  return STATUS_OK;
}

static Status score_rows(Node *node, const Request *request, const int32_t *labels, const Tensor *encoded, RequestScore *score) {
  const int64_t rows = request->batch * node->layout.rows, width = encoded->shape[encoded->dims - 1];
  int32_t *own = own_labels(node, request, labels);
  if (!own) return tape_status(node->tape);
  leave_to_others(node, rows, own);
  int64_t slices = (rows + rows_at_once(node) - 1) / rows_at_once(node);
  for (int64_t first = 0; first < rows; slices--) {
    int64_t count = (rows - first + slices - 1) / slices;
    Tensor slice = {.dims = 2, .shape = {count, width}, .value = encoded->value + first * width};
    TRY(score_slice(node, own + first, &slice, score));
    first += count;
  }
  return STATUS_OK;
}

Status node_text_score(Node *node, const NodeRequest *request, uint8_t *out) {
  int64_t count = request->request.batch * request->request.tokens;
  int32_t *ids, *labels;
  Tensor *encoded;
  RequestScore score = {0};
  TRY(read_ids(node, request->payload, count, 0, &ids));
  TRY(read_ids(node, request->payload + 4 * count, count, -1, &labels));
  TRY(encode(node, &request->request, ids, NULL, MODEL_ROWS_ALL, &encoded));
  if (encoded) TRY(score_rows(node, &request->request, labels, encoded, &score));
  request_pack_score(&score, out);
  return STATUS_OK;
}

/* ---- new tokens ---- */

static void hear(void *context, int block, int site, int64_t first, int64_t tokens, const uint8_t *packed) {
  KvCache *cache = &((Node *)context)->text.cache;
  memcpy(kv_cache_codes(cache, block, site, first), packed, (size_t)tokens * cache->setup.token_bytes);
}

/* A leader whose reader is slow holds the node back: it has time, and if it goes away the connection says so. */
static Status send_token(Node *node, uint32_t request, uint32_t number) {
  uint8_t *message = node->text.tokens[number % CONNECTION_QUEUE];
  TRY(weights_unchanged(node->setup->weights));
  while (connection_queued(node->control) > CONNECTION_QUEUE / 2) {
    TRY(connections_step(&(Connection *){node->control}, 1, 1));
    bool silent = node->control->idle_timeout > 0 && clock_now() - node->control->heard > node->control->idle_timeout;
    if (silent) return status_set(STATUS_TIMEOUT, "the leader takes no tokens and gives no sign of life");
  }
  wire_put_u32(message + WIRE_HEADER, (uint32_t)node->text.token);
  return node_send(node, message, (WireHeader){.kind = WIRE_TOKEN, .request = request, .count = number, .bytes = WIRE_TOKEN_BYTES});
}

static bool is_stopped(Node *node, uint32_t request) {
  connections_step(&(Connection *){node->control}, 1, 0); /* its failure shows where it is next waited for */
  return node->cancelled || node->text.stopped == request || !connection_is_open(node->control);
}

/* Draws, sends, and goes on from what was drawn, until an end. */
static Status go_on(Node *node, uint32_t request, const Tensor *logits, RequestDecoding *decoding) {
  NodeText *text = &node->text;
  double start = clock_now();
  for (;;) {
    TRY(sampler_pick(&text->sampler, logits->value, &text->token));
    TRY(send_token(node, request, (uint32_t)++decoding->tokens));
    decoding->seconds = clock_now() - start;
    bool enough = (int64_t)decoding->tokens >= text->sampler.sampling.max || sampler_ends(&text->sampler, text->token);
    if (enough || kv_cache_room(&text->cache) == 0 || is_stopped(node, request)) return STATUS_OK;
    tape_clear(node->tape);
    logits = model_decode_step(node->setup->weights->model, node->tape, &text->cache, &text->token);
    if (!logits) return tape_status(node->tape);
  }
}

static Status decode(Node *node, const NodeRequest *request, Tensor *last, RequestDecoding *decoding) {
  node_report_progress(node, (int)node->setup->weights->config->blocks);
  Tensor *logits = model_logits(node->setup->weights->model, node->tape, last);
  if (!logits) return tape_status(node->tape);
  if (node->text.sampler.sampling.max > 0) TRY(go_on(node, request->number, logits, decoding));
  decoding->row_bytes = (uint64_t)kv_cache_row_bytes(&node->text.cache);
  decoding->code_bytes = (uint64_t)kv_cache_code_bytes(&node->text.cache);
  return STATUS_OK;
}

static Status prefill(Node *node, const NodeRequest *request, Tensor **last) {
  bool decodes = node->layout.last_rows > 0;
  int32_t *ids;
  TRY(read_ids(node, request->payload + REQUEST_SAMPLING, request->request.tokens, 0, &ids));
  if (decodes && !node->text.cache.keys) TRY(start_cache(node));
  if (decodes) TRY(kv_cache_start(&node->text.cache, node->layout.remote));
  node->network.heard = decodes ? hear : NULL;
  node->network.heard_context = node;
  Status status = encode(node, &request->request, ids, decodes ? &node->text.cache : NULL, MODEL_ROWS_LAST, last);
  node->network.heard = NULL;
  return status;
}

/* What the node has asked for beside the cache's rows and codes. Of the tape: the most of this request. */
static size_t buffer_bytes(const Node *node) {
  const KvCacheSetup *cache = &node->text.cache.setup;
  size_t max = (size_t)cache->max, unpacked = (size_t)(cache->sites * cache->groups) * max * sizeof(int32_t),
         marks = (size_t)cache->blocks * max + max * sizeof(int32_t); /* which are lost; positions */
  return arena_watched(node->arena) + arena_watched(node->block_arena) + sampler_bytes(&node->text.sampler) + unpacked + marks +
         code_exchange_bytes(&node->network) + node->message_bytes;
}

Status node_text_prompt(Node *node, const NodeRequest *request, uint8_t *out) {
  RequestDecoding decoding = {0};
  Sampling sampling;
  Tensor *last;
  TRY(request_parse_sampling(request->payload, node->setup, &sampling));
  sampler_start(&node->text.sampler, &sampling);
  TRY(prefill(node, request, &last));
  node_finish_statistics(node);
  if (last) TRY(decode(node, request, last, &decoding));
  decoding.buffer_bytes = (uint64_t)buffer_bytes(node);
  request_pack_decoding(&decoding, out);
  return STATUS_OK;
}
