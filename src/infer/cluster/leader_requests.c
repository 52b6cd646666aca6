/* Requests: the nodes' shares of each kind and what their answers mean, then beginning and end of any. One table has a row for each kind
 * (what a request and its answer are on the wire: request.c). */
#include "base/clock.h"
#include "base/log.h"
#include "infer/cluster/leader_internal.h"
#include "infer/cluster/leader_text.h"
#include "infer/node_share.h"
#include "vq/pack.h"
#include <string.h>

static bool is_missing(const Leader *leader, const LeaderRequest *request, int node) {
  return request->missing >> leader->epoch.member_of[node] & 1;
}

/* ---- codes of all nodes, into the order of the tokens */

typedef struct NodeCodes {
  int64_t sent, count, first; /* rows sent, content tokens, where these begin in the order */
  int64_t batch, tokens, groups;
  const int32_t *order;
} NodeCodes;

/* A node's codes of one block and site, [B, sent, G] -> their places in [B, T, G]. A single class token has codes too, but no place among
 * the content tokens. */
static void place_codes(const NodeCodes *node, const int32_t *from, int32_t *out) {
  int64_t skip = node->sent - node->count;
  for (int64_t b = 0; b < node->batch; b++) {
    for (int64_t i = skip; i < node->sent; i++) {
      int64_t place = node->first + i - skip, token = node->order ? node->order[place] : place;
      memcpy(out + (b * node->tokens + token) * node->groups, from + (b * node->sent + i) * node->groups,
             (size_t)node->groups * sizeof(int32_t));
    }
  }
}

static Status unpack_node(Leader *leader, const LeaderRequest *request, int d, const NodeCodes *node) {
  const NodeSetup *setup = &leader->setup;
  const Codebook *book = &setup->weights->books[0];
  int64_t rows = node->batch * node->sent, set = node->batch * node->tokens * node->groups;
  size_t all = request_code_bytes(setup, &request->request, &request->shares[d]);
  const uint8_t *packed = request->results[d] + request_answer_bytes(setup, &request->request, &request->shares[d]) - all;
  for (int i = 0; i < setup->weights->book_count; i++, packed += all / (size_t)setup->weights->book_count) {
    if (pack_unpack(packed, rows, book->groups, book->entries, leader->node_codes) != STATUS_OK)
      return status_wrap(STATUS_BAD_VALUE, "node %d: codes of block %d", d, i);
    place_codes(node, leader->node_codes, leader->codes + i * set);
  }
  return STATUS_OK;
}

static Status gather_codes(Leader *leader, const LeaderRequest *request, const int32_t *order) {
  NodeCodes node = {
      .batch = request->request.batch, .tokens = request->request.tokens, .groups = leader->setup.weights->books[0].groups, .order = order};
  int64_t numbers = leader->setup.weights->book_count * node.batch * node.tokens * node.groups;
  for (int64_t i = 0; i < numbers; i++) leader->codes[i] = -1;
  for (int d = 0; d < leader->epoch.nodes; node.first += request->counts[d++]) {
    node.sent = request->shares[d].sent_rows;
    node.count = request->counts[d];
    bool missing = request->missing >> leader->epoch.member_of[d] & 1;
    if (node.sent > 0 && !missing) TRY(unpack_node(leader, request, d, &node));
  }
  return STATUS_OK;
}

/* ---- images: replicas of the class token, to which the head is applied here */

/* Kept until it is answered: a request that is computed anew may be cut otherwise. */
static void keep_pixels(Leader *leader, LeaderRequest *slot, const float *pixels) {
  const ModelConfig *config = leader->setup.weights->config;
  int64_t numbers = slot->request.batch * weights_pixels(leader->setup.weights);
  slot->request.levels = patches_find_levels(&leader->levels, config, pixels, slot->request.batch, slot->levels);
  if (!slot->request.levels) memcpy(slot->pixels, pixels, (size_t)numbers * sizeof *slot->pixels);
}

static void share_images(Leader *leader, LeaderRequest *slot) {
  const ModelConfig *config = leader->setup.weights->config;
  size_t at = 0;
  node_share_counts(&leader->setup, leader->partition.tokens, slot->counts);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    slot->shares[d] = node_share_of(&leader->setup, d, &leader->epoch.layout[d]);
    slot->offset[d] = at;
    slot->size[d] = WIRE_HEADER + request_bytes(&leader->setup, &slot->request, &slot->shares[d]);
    if (d > 0 && node_share_everything(&leader->setup)) {
      slot->offset[d] = 0; /* one message is for all */
      continue;
    }
    patches_pack(config, &leader->epoch.layout[d], slot->request.batch, slot->pixels, slot->request.levels ? slot->levels : NULL,
                 slot->message + at + WIRE_HEADER);
    at += slot->size[d];
  }
}

/* Of those that have answered. */
static int64_t class_rows(const Leader *leader, const LeaderRequest *request) {
  int64_t rows = 0;
  for (int d = 0; d < leader->epoch.nodes; d++) rows += is_missing(leader, request, d) ? 0 : request->shares[d].class_rows;
  return rows;
}

/* All replicas [B, rows, D], in the order of the nodes, as the training emulation has them. */
static void gather_replicas(Leader *leader, const LeaderRequest *request, int64_t all) {
  int64_t width = leader->setup.weights->config->width, first = 0;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    int64_t rows = is_missing(leader, request, d) ? 0 : request->shares[d].class_rows;
    const uint8_t *from = request->results[d] + WIRE_STATISTICS;
    for (int64_t b = 0; b < request->request.batch; b++)
      wire_parse_reals(from + (size_t)(b * rows * width) * 4, (size_t)(rows * width), leader->replicas + (b * all + first) * width);
    first += rows;
  }
}

static Status apply_head(Leader *leader, const LeaderRequest *request) {
  int64_t rows = class_rows(leader, request), shape[3] = {request->request.batch, rows, leader->setup.weights->config->width};
  gather_replicas(leader, request, rows);
  tape_clear(leader->tape);
  Tensor *replicas = tape_constant(leader->tape, 3, shape, leader->replicas);
  Tensor *logits = model_classify(leader->setup.weights->model, leader->tape, replicas);
  if (!logits) return tape_status(leader->tape);
  memcpy(leader->logits, logits->value, (size_t)tensor_count(logits) * sizeof(real));
  return STATUS_OK;
}

static Status take_images(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  TRY(apply_head(leader, request));
  answer->logits = leader->logits;
  if (!request->request.codes) return STATUS_OK;
  answer->codes = leader->codes;
  return gather_codes(leader, request, leader->partition.order);
}

/* ---- texts */

/* Each node's part: the same computation as the node's own (node_text.c). One message is for all. */
static void share_text(Leader *leader, LeaderRequest *slot) {
  int answers = node_share_counts(&leader->setup, slot->request.tokens, slot->counts);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    bool last = d == answers;
    slot->shares[d] = (RequestShare){.sent_rows = last ? 0 : slot->counts[d], .last = last};
    slot->offset[d] = 0;
    slot->size[d] = WIRE_HEADER + request_bytes(&leader->setup, &slot->request, &slot->shares[d]);
  }
}

/* The node with the last token has made the tokens that it sent; the others have made none. */
static Status take_decoding(const Leader *leader, const LeaderRequest *request, int node) {
  RequestDecoding *decoding = &leader->decoding[leader->epoch.member_of[node]];
  TRY(request_parse_decoding(request->results[node] + WIRE_STATISTICS, decoding));
  uint64_t made = request->shares[node].last ? (uint64_t)leader->queue.made_count : 0;
  if (decoding->tokens == made) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "says that it made %llu tokens; %llu came", (unsigned long long)decoding->tokens,
                    (unsigned long long)made);
}

static Status name_node(const Leader *leader, int node, Status status) {
  char name[LEADER_NAME];
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "%s", leader_name(leader, leader->epoch.member_of[node], name));
}

static Status take_prompt(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  memset(leader->decoding, 0, (size_t)leader->membership.count * sizeof *leader->decoding);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    if (!is_missing(leader, request, d)) TRY(name_node(leader, d, take_decoding(leader, request, d)));
  }
  answer->decoding = leader->decoding;
  return STATUS_OK;
}

static Status take_score(const LeaderRequest *request, int node, RequestScore *score) {
  TRY(request_parse_score(request->results[node] + WIRE_STATISTICS, score));
  uint64_t max = (uint64_t)(request->request.batch * request->counts[node]);
  if (score->counted <= max) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "counted %llu labels; it has %llu tokens", (unsigned long long)score->counted,
                    (unsigned long long)max);
}

static Status take_scores(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  for (int d = 0; d < leader->epoch.nodes; d++) {
    RequestScore score;
    if (is_missing(leader, request, d)) continue;
    TRY(name_node(leader, d, take_score(request, d, &score)));
    answer->score.loss += score.loss;
    answer->score.counted += score.counted;
    answer->score.correct += score.correct;
  }
  uint64_t sent = request_labels(&request->request, request->message + WIRE_HEADER);
  if (answer->score.counted == sent || (request->missing && answer->score.counted < sent)) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "the nodes counted %llu labels together; %llu were sent", (unsigned long long)answer->score.counted,
                    (unsigned long long)sent);
}

static Status take_last(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  size_t numbers = (size_t)(request->request.batch * weights_outputs(leader->setup.weights));
  for (int d = 0; d < leader->epoch.nodes; d++) {
    if (request->shares[d].last) wire_parse_reals(request->results[d] + WIRE_STATISTICS, numbers, leader->logits);
  }
  answer->logits = leader->logits;
  if (!request->request.codes) return STATUS_OK;
  answer->codes = leader->codes;
  return gather_codes(leader, request, NULL);
}

/* ---- kinds */

typedef Status Take(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer);

typedef struct Kind {
  uint8_t kind;
  bool text;
  void (*share)(Leader *leader, LeaderRequest *request);
  Take *take;
} Kind;

static const Kind *kind_of(const Leader *leader, uint8_t kind) {
  static const Kind rows[] = {{WIRE_CLASSIFY, false, share_images, take_images},
                              {WIRE_PROMPT, true, share_text, take_prompt},
                              {WIRE_SCORE, true, share_text, take_scores},
                              {WIRE_LAST, true, share_text, take_last},
                              {WIRE_CLASSIFY, true, share_text, take_last}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].kind == kind && rows[i].text == (leader->setup.split != NULL)) return &rows[i];
  }
  return NULL;
}

/* ---- beginning */

int leader_under_way(const Leader *leader) { return (int)(leader->queue.submitted - leader->queue.collected); }

bool leader_takes_more(const Leader *leader) {
  return leader_under_way(leader) == 0 || (leader_under_way(leader) < LEADER_DEPTH && !leader_failure_rests(leader));
}

static Status open_request(Leader *leader, const Request *request, LeaderRequest **slot) {
  if (leader_under_way(leader) >= LEADER_DEPTH) return status_set(STATUS_BAD_VALUE, "%d requests are under way already", LEADER_DEPTH);
  if (request->batch < 1 || request->batch > leader->options.batch_max)
    return status_set(STATUS_BAD_VALUE, "a request of %lld %s; 1 to %lld are possible", (long long)request->batch,
                      request_unit(&leader->setup), (long long)leader->options.batch_max);
  heartbeat_hold(leader->heartbeat);
  Status status = leader_failure_rejoin(leader);
  heartbeat_release(leader->heartbeat);
  TRY(status);
  *slot = &leader->queue.requests[(leader->queue.submitted + 1) & 1];
  (*slot)->request = *request;
  return STATUS_OK;
}

static uint8_t *payload_of(LeaderRequest *slot) { return slot->message + WIRE_HEADER; }

/* Numbers begin anew with each epoch. */
static Status send(Leader *leader, LeaderRequest *slot, uint32_t number) {
  slot->number = number;
  slot->sent = 0;
  memset(slot->arrived, 0, (size_t)leader->epoch.nodes * sizeof *slot->arrived);
  kind_of(leader, slot->request.kind)->share(leader, slot);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    WireHeader header = {.kind = slot->request.kind,
                         .sender = WIRE_LEADER,
                         .flags = slot->request.codes ? WIRE_WANT_CODES : 0,
                         .request = number,
                         .count = (uint32_t)slot->request.batch,
                         .bytes = (uint32_t)(slot->size[d] - WIRE_HEADER)};
    wire_pack(&header, slot->message + slot->offset[d]);
    TRY(connection_send(leader->epoch.connections[d], slot->message + slot->offset[d], slot->size[d]));
  }
  return connections_step(leader->epoch.connections, leader->epoch.nodes, 0);
}

static Status send_request(Leader *leader, LeaderRequest *slot) {
  slot->missing = slot->given_up = 0;
  slot->reruns = 0;
  slot->began = clock_now();
  leader->queue.submitted++;
  heartbeat_hold(leader->heartbeat);
  Status status = send(leader, slot, leader->queue.submitted - leader->epoch.base);
  if (status != STATUS_OK) status = leader_failure_recover(leader, leader_wait_explain(leader, status));
  heartbeat_release(leader->heartbeat);
  return status;
}

Status leader_requests_resend(Leader *leader) {
  for (uint32_t i = leader->queue.collected + 1; i <= leader->queue.submitted; i++) {
    LeaderRequest *slot = &leader->queue.requests[i & 1];
    slot->request.codes = leader->setup.keep_codes;
    slot->missing = slot->given_up = 0;
    slot->reruns++;
    if (slot->request.kind == WIRE_PROMPT) leader->queue.made_count = 0;
    Status status = send(leader, slot, i - leader->epoch.base);
    if (status != STATUS_OK) return leader_wait_explain(leader, status);
  }
  return STATUS_OK;
}

/* ---- what callers ask */

Status leader_submit(Leader *leader, const float *pixels, int64_t batch) {
  if (!leader->given) return status_set(STATUS_BAD_VALUE, "a language model takes no images");
  Request request = {.kind = WIRE_CLASSIFY, .codes = leader->options.codes, .batch = batch, .tokens = leader->given->tokens};
  LeaderRequest *slot = NULL;
  TRY(open_request(leader, &request, &slot));
  keep_pixels(leader, slot, pixels);
  return send_request(leader, slot);
}

static Status check_ids(const Leader *leader, const int32_t *ids, int64_t count, int64_t min) {
  int64_t vocabulary = leader->setup.weights->config->vocabulary;
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] < min || ids[i] >= vocabulary)
      return status_set(STATUS_BAD_VALUE, "id %d at place %lld; the model's vocabulary has %lld tokens", (int)ids[i], (long long)i,
                        (long long)vocabulary);
  }
  return STATUS_OK;
}

static Status open_text(Leader *leader, const Request *request, const int32_t *ids, LeaderRequest **slot) {
  bool classes = leader->setup.weights->config->classes > 0;
  if (!leader->given_split) return status_set(STATUS_BAD_VALUE, "a model of images takes no text");
  if (classes != (request->kind == WIRE_CLASSIFY))
    return status_set(STATUS_BAD_VALUE, "the model %s", classes ? "classifies texts, and predicts no tokens" : "has no classes of texts");
  if (request->tokens < 1 || request->tokens > leader->setup.tokens_max)
    return status_set(STATUS_BAD_VALUE, "a text of %lld tokens; 1 to %lld are possible", (long long)request->tokens,
                      (long long)leader->setup.tokens_max);
  TRY(check_ids(leader, ids, request->batch * request->tokens, 0));
  return open_request(leader, request, slot);
}

Status leader_text_prompt(Leader *leader, const int32_t *ids, int64_t count, const Sampling *sampling) {
  LeaderRequest *slot = NULL;
  const StrategyFacts *strategy = strategy_facts(leader->setup.strategy);
  if (leader_under_way(leader)) return status_set(STATUS_BAD_VALUE, "another request is under way");
  if (!strategy->decodes)
    return status_set(STATUS_UNSUPPORTED, "strategy %s keeps nothing from token to token: astra and single go on from prompts",
                      strategy->name);
  TRY(open_text(leader, &(Request){.kind = WIRE_PROMPT, .batch = 1, .tokens = count}, ids, &slot));
  leader->queue.made_count = leader->queue.taken = 0;
  request_pack_sampling(sampling, payload_of(slot));
  request_pack_ids(ids, count, payload_of(slot) + REQUEST_SAMPLING);
  return send_request(leader, slot);
}

Status leader_text_score(Leader *leader, const int32_t *ids, const int32_t *labels, int64_t batch, int64_t tokens) {
  LeaderRequest *slot = NULL;
  TRY(check_ids(leader, labels, batch * tokens, -1));
  TRY(open_text(leader, &(Request){.kind = WIRE_SCORE, .batch = batch, .tokens = tokens}, ids, &slot));
  request_pack_ids(ids, batch * tokens, payload_of(slot));
  request_pack_ids(labels, batch * tokens, payload_of(slot) + 4 * batch * tokens);
  return send_request(leader, slot);
}

static Status ask_last(Leader *leader, uint8_t kind, const int32_t *ids, int64_t batch, int64_t tokens) {
  LeaderRequest *slot = NULL;
  TRY(open_text(leader, &(Request){.kind = kind, .codes = leader->options.codes, .batch = batch, .tokens = tokens}, ids, &slot));
  request_pack_ids(ids, batch * tokens, payload_of(slot));
  return send_request(leader, slot);
}

Status leader_text_last(Leader *leader, const int32_t *ids, int64_t batch, int64_t tokens) {
  return ask_last(leader, WIRE_LAST, ids, batch, tokens);
}

Status leader_text_classify(Leader *leader, const int32_t *ids, int64_t batch, int64_t tokens) {
  return ask_last(leader, WIRE_CLASSIFY, ids, batch, tokens);
}

/* ---- new tokens */

static bool prompt_under_way(Leader *leader) {
  return leader_under_way(leader) && leader_requests_oldest(leader)->request.kind == WIRE_PROMPT;
}

static bool token_or_end(const Leader *leader, const bool *arrived) {
  return leader->queue.taken < leader->queue.made_count || leader_wait_all(leader, arrived);
}

Status leader_text_next(Leader *leader, int32_t *id, bool *more) {
  *more = false;
  if (!prompt_under_way(leader)) return status_set(STATUS_BAD_VALUE, "no prompt is under way");
  TRY(leader_failure_wait(leader, token_or_end, leader_requests_oldest(leader)));
  *more = leader->queue.taken < leader->queue.made_count;
  if (*more) *id = leader->queue.made[leader->queue.taken++];
  return STATUS_OK;
}

Status leader_text_stop(Leader *leader) {
  if (!prompt_under_way(leader)) return status_set(STATUS_BAD_VALUE, "no prompt is under way");
  const LeaderRequest *slot = leader_requests_oldest(leader);
  Status status = STATUS_OK;
  heartbeat_hold(leader->heartbeat);
  wire_pack(&(WireHeader){.kind = WIRE_STOP, .sender = WIRE_LEADER, .request = slot->number}, leader->queue.stop);
  for (int d = 0; d < leader->epoch.nodes && status == STATUS_OK; d++) {
    if (slot->shares[d].last && !slot->arrived[d]) status = connection_send(leader->epoch.connections[d], leader->queue.stop, WIRE_HEADER);
  }
  if (status == STATUS_OK) status = connections_step(leader->epoch.connections, leader->epoch.nodes, 0);
  if (status != STATUS_OK) status = leader_failure_recover(leader, leader_wait_explain(leader, status));
  heartbeat_release(leader->heartbeat);
  return status;
}

/* ---- end */

LeaderRequest *leader_requests_oldest(Leader *leader) { return &leader->queue.requests[(leader->queue.collected + 1) & 1]; }

/* From when the last node began, all of which end together, to the end; a sample's share of it. */
static void note_time(Leader *leader, const LeaderRequest *slot) {
  double min = 0;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    double elapsed = slot->nodes[d].elapsed / (double)slot->request.batch;
    if (!(slot->missing >> leader->epoch.member_of[d] & 1) && (min <= 0 || elapsed < min)) min = elapsed;
  }
  double request = (clock_now() - slot->began) / (double)slot->request.batch;
  if (leader->sums.fastest <= 0 || min < leader->sums.fastest) leader->sums.fastest = min;
  if (leader->sums.fastest_request <= 0 || request < leader->sums.fastest_request) leader->sums.fastest_request = request;
}

/* What nodes have said, by members. Whoever has taken part is in good standing again. */
static void sum_up(Leader *leader, const LeaderRequest *slot) {
  memset(leader->sums.tokens, 0, (size_t)leader->membership.count * sizeof *leader->sums.tokens);
  memset(leader->sums.last, 0, (size_t)leader->membership.count * sizeof *leader->sums.last);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    int m = leader->epoch.member_of[d];
    if (slot->missing >> m & 1) continue;
    leader->sums.tokens[m] = slot->counts[d];
    leader->sums.last[m] = slot->nodes[d];
    leader->membership.members[m].pause = leader->membership.members[m].faults = 0;
    wire_add_statistics(&leader->sums.totals[m], &slot->nodes[d]);
  }
}

static void warn_of_given_up(const Leader *leader, const LeaderRequest *slot) {
  char name[LEADER_NAME];
  for (int m = 0; m < leader->membership.count; m++) {
    if (slot->given_up >> m & 1)
      log_warning("%s was silent for too long: others went on without its tokens, and this answer is incomplete",
                  leader_name(leader, m, name));
  }
}

Status leader_requests_take(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  return kind_of(leader, request->request.kind)->take(leader, request, answer);
}

Status leader_collect(Leader *leader, LeaderAnswer *answer) {
  if (!leader_under_way(leader)) return status_set(STATUS_BAD_VALUE, "no request is under way");
  LeaderRequest *slot = leader_requests_oldest(leader);
  TRY(leader_failure_wait(leader, leader_wait_all, slot));
  leader->queue.collected++;
  slot->number = 0;
  sum_up(leader, slot);
  warn_of_given_up(leader, slot);
  note_time(leader, slot);
  leader->sums.reruns += slot->reruns;
  leader->sums.masked += (slot->missing | slot->given_up) != 0;
  *answer = (LeaderAnswer){.batch = slot->request.batch,
                           .tokens = slot->request.tokens,
                           .counts = leader->sums.tokens,
                           .nodes = leader->sums.last,
                           .missing = slot->missing | slot->given_up,
                           .reruns = slot->reruns,
                           .input_seconds = slot->sent > 0 ? slot->sent - slot->began : 0};
  TRY(leader_requests_take(leader, slot, answer));
  return weights_unchanged(leader->setup.weights); /* of which the leader computes the head */
}
