/* Requests of texts and the answers to them: see leader_text.h. */
#include "infer/cluster/leader_text.h"
#include "infer/cluster/leader_codes.h"
#include "infer/node_share.h"
#include <string.h>

/* ---- requests ---- */

static Status check_ids(const Leader *leader, const int32_t *ids, int64_t count, int64_t least) {
  int64_t vocabulary = leader->setup.weights->config->vocabulary;
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] < least || ids[i] >= vocabulary)
      return status_set(STATUS_BAD_VALUE, "id %d at place %lld; the model's vocabulary has %lld tokens", (int)ids[i], (long long)i,
                        (long long)vocabulary);
  }
  return STATUS_OK;
}

/* Each node's part: the same computation as the node's own (node_text.c). One message is for all. */
void leader_text_share(Leader *leader, LeaderRequest *slot) {
  int answers = node_share_counts(&leader->setup, slot->request.tokens, slot->counts);
  for (int d = 0; d < leader->nodes; d++) {
    bool last = d == answers;
    slot->shares[d] = (RequestShare){.sent_rows = last ? 0 : slot->counts[d], .last = last};
    slot->offset[d] = 0;
    slot->size[d] = WIRE_HEADER + request_bytes(&leader->setup, &slot->request, &slot->shares[d]);
  }
}

static Status open_request(Leader *leader, const Request *request, const int32_t *ids, LeaderRequest **slot) {
  bool classes = leader->setup.weights->config->classes > 0;
  if (!leader->given_split) return status_set(STATUS_BAD_VALUE, "a model of pictures takes no text");
  if (classes != (request->kind == WIRE_CLASSIFY))
    return status_set(STATUS_BAD_VALUE, "the model %s", classes ? "classifies texts, and predicts no tokens" : "has no classes of texts");
  if (request->tokens < 1 || request->tokens > leader->setup.tokens_most)
    return status_set(STATUS_BAD_VALUE, "a text of %lld tokens; 1 to %lld are possible", (long long)request->tokens,
                      (long long)leader->setup.tokens_most);
  TRY(check_ids(leader, ids, request->batch * request->tokens, 0));
  return leader_request_open(leader, request, slot);
}

static bool prompt_under_way(Leader *leader) {
  return leader_under_way(leader) && leader_request_oldest(leader)->request.kind == WIRE_PROMPT;
}

Status leader_text_prompt(Leader *leader, const int32_t *ids, int64_t count, const Sampling *sampling) {
  LeaderRequest *slot;
  const StrategyFacts *strategy = strategy_facts(leader->setup.strategy);
  if (leader_under_way(leader)) return status_set(STATUS_BAD_VALUE, "another request is under way");
  if (!strategy->decodes)
    return status_set(STATUS_UNSUPPORTED, "strategy %s keeps nothing from token to token: astra and single go on from prompts",
                      strategy->name);
  TRY(open_request(leader, &(Request){.kind = WIRE_PROMPT, .batch = 1, .tokens = count}, ids, &slot));
  leader->made_count = leader->taken = 0;
  request_pack_sampling(sampling, leader_request_payload(slot));
  request_pack_ids(ids, count, leader_request_payload(slot) + REQUEST_SAMPLING);
  return leader_request_send(leader, slot);
}

Status leader_text_score(Leader *leader, const int32_t *ids, const int32_t *labels, int64_t batch, int64_t tokens) {
  LeaderRequest *slot;
  TRY(check_ids(leader, labels, batch * tokens, -1));
  TRY(open_request(leader, &(Request){.kind = WIRE_SCORE, .batch = batch, .tokens = tokens}, ids, &slot));
  request_pack_ids(ids, batch * tokens, leader_request_payload(slot));
  request_pack_ids(labels, batch * tokens, leader_request_payload(slot) + 4 * batch * tokens);
  return leader_request_send(leader, slot);
}

static Status ask_last(Leader *leader, uint8_t kind, const int32_t *ids, int64_t batch, int64_t tokens) {
  LeaderRequest *slot;
  TRY(open_request(leader, &(Request){.kind = kind, .codes = leader->options.codes, .batch = batch, .tokens = tokens}, ids, &slot));
  request_pack_ids(ids, batch * tokens, leader_request_payload(slot));
  return leader_request_send(leader, slot);
}

Status leader_text_last(Leader *leader, const int32_t *ids, int64_t batch, int64_t tokens) {
  return ask_last(leader, WIRE_LAST, ids, batch, tokens);
}

Status leader_text_classify(Leader *leader, const int32_t *ids, int64_t batch, int64_t tokens) {
  return ask_last(leader, WIRE_CLASSIFY, ids, batch, tokens);
}

/* ---- new tokens ---- */

static bool token_or_end(const Leader *leader, const bool *arrived) {
  return leader->taken < leader->made_count || leader_wait_all(leader, arrived);
}

Status leader_text_next(Leader *leader, int32_t *id, bool *more) {
  *more = false;
  if (!prompt_under_way(leader)) return status_set(STATUS_BAD_VALUE, "no prompt is under way");
  TRY(leader_failure_wait(leader, token_or_end, leader_request_oldest(leader)));
  *more = leader->taken < leader->made_count;
  if (*more) *id = leader->made[leader->taken++];
  return STATUS_OK;
}

Status leader_text_stop(Leader *leader) {
  if (!prompt_under_way(leader)) return status_set(STATUS_BAD_VALUE, "no prompt is under way");
  const LeaderRequest *slot = leader_request_oldest(leader);
  Status status = STATUS_OK;
  heartbeat_hold(leader->heartbeat);
  wire_pack(&(WireHeader){.kind = WIRE_STOP, .sender = WIRE_LEADER, .request = slot->number}, leader->stop);
  for (int d = 0; d < leader->nodes && status == STATUS_OK; d++) {
    if (slot->shares[d].last && !slot->arrived[d]) status = connection_send(leader->connections[d], leader->stop, WIRE_HEADER);
  }
  if (status == STATUS_OK) status = connections_step(leader->connections, leader->nodes, 0);
  if (status != STATUS_OK) status = leader_failure_recover(leader, leader_wait_explain(leader, status));
  heartbeat_release(leader->heartbeat);
  return status;
}

/* ---- answers ---- */

static bool is_missing(const Leader *leader, const LeaderRequest *request, int node) {
  return request->missing >> leader->member_of[node] & 1;
}

/* The node with the last token has made the tokens that it sent; the others have made none. */
static Status take_decoding(const Leader *leader, const LeaderRequest *request, int node) {
  RequestDecoding *decoding = &leader->decoding[leader->member_of[node]];
  TRY(request_parse_decoding(request->results[node] + WIRE_STATISTICS, decoding));
  uint64_t made = request->shares[node].last ? (uint64_t)leader->made_count : 0;
  if (decoding->tokens == made) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "says that it made %llu tokens; %llu came", (unsigned long long)decoding->tokens,
                    (unsigned long long)made);
}

static Status blame(const Leader *leader, int node, Status status) {
  char name[LEADER_NAME];
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "%s", leader_name(leader, leader->member_of[node], name));
}

Status leader_text_take_prompt(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  memset(leader->decoding, 0, (size_t)leader->member_count * sizeof *leader->decoding);
  for (int d = 0; d < leader->nodes; d++) {
    if (!is_missing(leader, request, d)) TRY(blame(leader, d, take_decoding(leader, request, d)));
  }
  answer->decoding = leader->decoding;
  return STATUS_OK;
}

static Status take_score(const LeaderRequest *request, int node, RequestScore *score) {
  TRY(request_parse_score(request->results[node] + WIRE_STATISTICS, score));
  uint64_t most = (uint64_t)(request->request.batch * request->counts[node]);
  if (score->counted <= most) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "counted %llu labels; it has %llu tokens", (unsigned long long)score->counted,
                    (unsigned long long)most);
}

Status leader_text_take_score(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  for (int d = 0; d < leader->nodes; d++) {
    RequestScore score;
    if (is_missing(leader, request, d)) continue;
    TRY(blame(leader, d, take_score(request, d, &score)));
    answer->score.loss += score.loss;
    answer->score.counted += score.counted;
    answer->score.correct += score.correct;
  }
  uint64_t sent = request_labels(&request->request, request->message + WIRE_HEADER);
  if (answer->score.counted == sent || (request->missing && answer->score.counted < sent)) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "the nodes counted %llu labels together; %llu were sent", (unsigned long long)answer->score.counted,
                    (unsigned long long)sent);
}

Status leader_text_take_last(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  size_t numbers = (size_t)(request->request.batch * weights_outputs(leader->setup.weights));
  for (int d = 0; d < leader->nodes; d++) {
    if (request->shares[d].last) wire_parse_reals(request->results[d] + WIRE_STATISTICS, numbers, leader->logits);
  }
  answer->logits = leader->logits;
  if (!request->request.codes) return STATUS_OK;
  answer->codes = leader->codes;
  return leader_codes_gather(leader, request, NULL);
}
