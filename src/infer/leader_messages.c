/* Messages of nodes to their leader: checked, put where they belong, noted. */
#include "infer/leader_parts.h"

LeaderRequest *leader_messages_request(Leader *leader, uint32_t number) {
  LeaderRequest *request = &leader->requests[number & 1];
  return number && request->number == number ? request : NULL;
}

static Status place_result(Leader *leader, int node, const WireHeader *header, uint8_t **payload) {
  LeaderRequest *slot = leader_messages_request(leader, header->request);
  if (!slot || slot->arrived[node]) return status_set(STATUS_BAD_VALUE, "answered request %u, which nobody waits for", header->request);
  size_t expected = request_answer_bytes(&leader->setup, &slot->request, &slot->shares[node]);
  if (header->count != slot->request.batch || header->bytes != expected)
    return status_set(STATUS_BAD_VALUE, "answered with %u bytes for %u %s; %zu for %lld were expected", header->bytes, header->count,
                      request_unit(&slot->request), expected, (long long)slot->request.batch);
  *payload = slot->results[node];
  return STATUS_OK;
}

/* Only the node with the last token of a prompt makes tokens, one after another. */
static Status place_token(Leader *leader, int node, const WireHeader *header, uint8_t **payload) {
  const LeaderRequest *slot = leader_messages_request(leader, header->request);
  bool due = slot && slot->request.kind == WIRE_PROMPT && slot->shares[node].last && !slot->arrived[node];
  if (!due || header->count != leader->made_count + 1 || leader->made_count >= leader->setup.tokens_most ||
      header->bytes != WIRE_TOKEN_BYTES)
    return status_set(STATUS_BAD_VALUE, "sent token %u of request %u, which nobody waits for", header->count, header->request);
  *payload = leader->token;
  return STATUS_OK;
}

static Status take_token(Leader *leader, const uint8_t *payload) {
  TRY(request_parse_ids(payload, 1, 0, leader->setup.weights->config->vocabulary, &leader->made[leader->made_count]));
  leader->made_count++;
  return STATUS_OK;
}

static Status place_message(void *context, Link *link, const WireHeader *header, uint8_t **payload) {
  Leader *leader = context;
  int node = link->peer;
  if (header->sender != node) return status_set(STATUS_BAD_VALUE, "sent a message in the name of node %d", header->sender);
  if (header->kind == WIRE_RESULT) return place_result(leader, node, header, payload);
  if (header->kind == WIRE_TOKEN) return place_token(leader, node, header, payload);
  if (header->kind == WIRE_ERROR && header->bytes <= WIRE_TEXT && header->count <= (uint32_t)leader->nodes) {
    *payload = (uint8_t *)leader->complaints[node];
    return STATUS_OK;
  }
  bool known = header->kind == WIRE_HELLO || (header->kind == WIRE_PROGRESS && header->block <= leader->setup.weights->config->blocks);
  if (!known || header->bytes) return status_set(STATUS_BAD_VALUE, "sent an unexpected %s message", wire_kind_name(header->kind));
  *payload = leader->bye;
  return STATUS_OK;
}

static void note_progress(Leader *leader, int node, uint32_t request, uint64_t step) {
  leader->progress[node] = (uint64_t)request * (uint64_t)(leader->setup.weights->config->blocks + 3) + step;
}

/* The link stays open: a node whose control stream ends leaves, and then looks like the one that died. */
static void take_complaint(Leader *leader, int node, const WireHeader *header) {
  if (leader->complainer < 0) {
    leader->complainer = node;
    leader->accused = (int)header->count - 1;
  }
  char *complaint = leader->complaints[node];
  complaint[header->bytes] = 0;
  for (char *c = complaint; *c; c++) {
    if ((unsigned char)*c < ' ') *c = ' '; /* no control characters from a socket to a terminal */
  }
}

static Status deliver_message(void *context, Link *link, const WireHeader *header, uint8_t *payload) {
  Leader *leader = context;
  int node = link->peer;
  if (header->kind == WIRE_ERROR) take_complaint(leader, node, header);
  if (header->kind == WIRE_HELLO) leader->ready[node] = true;
  if (header->kind == WIRE_PROGRESS) note_progress(leader, node, header->request, header->block + 1U);
  if (header->kind == WIRE_TOKEN) return take_token(leader, payload);
  if (header->kind != WIRE_RESULT) return STATUS_OK;
  LeaderRequest *request = leader_messages_request(leader, header->request);
  TRY(wire_parse_statistics(payload, &request->nodes[node]));
  request->arrived[node] = true;
  note_progress(leader, node, header->request, (uint64_t)leader->setup.weights->config->blocks + 2);
  return STATUS_OK;
}

const LinkSink leader_messages_sink = {.place = place_message, .deliver = deliver_message};
