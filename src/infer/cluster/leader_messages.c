/* Messages of nodes to their leader: checked, put where they belong, noted. */
#include "base/clock.h"
#include "base/log.h"
#include "base/printable.h"
#include "infer/cluster/leader_internal.h"
#include <string.h>

LeaderRequest *leader_messages_request(Leader *leader, uint32_t number) {
  for (int i = 0; number && i < LEADER_DEPTH; i++) {
    if (leader->queue.requests[i].number == number) return &leader->queue.requests[i];
  }
  return NULL;
}

/* ---- results and tokens */

static Status place_result(Leader *leader, int node, const WireHeader *header, uint8_t **payload) {
  LeaderRequest *slot = leader_messages_request(leader, header->request);
  if (!slot || slot->arrived[node]) return status_set(STATUS_BAD_VALUE, "answered request %u, which nobody waits for", header->request);
  size_t expected = request_answer_bytes(&leader->setup, &slot->request, &slot->shares[node]);
  if (header->block > leader->epoch.nodes) return status_set(STATUS_BAD_VALUE, "has given up node %d, which is none", header->block - 1);
  if (header->count != slot->request.batch || header->bytes != expected)
    return status_set(STATUS_BAD_VALUE, "answered with %u bytes for %u %s; %zu for %lld were expected", header->bytes, header->count,
                      request_unit(&leader->setup), expected, (long long)slot->request.batch);
  *payload = slot->results[node];
  return STATUS_OK;
}

/* Only the node with the last token of a prompt makes tokens, one after another. */
static Status place_token(Leader *leader, int node, const WireHeader *header, uint8_t **payload) {
  const LeaderRequest *slot = leader_messages_request(leader, header->request);
  bool due = slot && slot->request.kind == WIRE_PROMPT && slot->shares[node].last && !slot->arrived[node];
  if (!due || header->count != leader->queue.made_count + 1 || leader->queue.made_count >= leader->setup.tokens_max)
    return status_set(STATUS_BAD_VALUE, "sent token %u of request %u, which nobody waits for", header->count, header->request);
  *payload = leader->queue.token;
  return STATUS_OK;
}

static Status take_token(Leader *leader, const uint8_t *payload) {
  TRY(request_parse_ids(payload, 1, 0, leader->setup.weights->config->vocabulary, &leader->queue.made[leader->queue.made_count]));
  leader->queue.made_count++;
  return STATUS_OK;
}

static void note_progress(Leader *leader, int node, uint32_t request, uint64_t step) {
  leader->epoch.progress[node] = (uint64_t)request * (uint64_t)(leader->setup.weights->config->blocks + 3) + step;
}

/* Both are there, and one was silent for longer than the other would wait: they would go on without each other for ever. */
static void note_given_up(Leader *leader, LeaderRequest *request, int node) {
  const LeaderMember *member = leader_member(leader, node);
  if (member->state != MEMBER_READY || !connection_is_open(&member->connection)) return;
  request->given_up |= (uint64_t)1 << leader->epoch.member_of[node];
  leader->epoch.parted = true;
}

/* ---- what a node of the epoch says */

static Status place_of_node(Leader *leader, LeaderMember *member, const WireHeader *header, uint8_t **payload) {
  int node = member->node;
  if (node < 0 || header->sender != node) return status_set(STATUS_BAD_VALUE, "sent a message in the name of node %d", header->sender);
  bool answers = header->kind == WIRE_RESULT || header->kind == WIRE_TOKEN;
  if (answers && leader->epoch.setting_up) return status_set(STATUS_BAD_VALUE, "answered request %u before it was sent", header->request);
  if (header->kind == WIRE_RESULT) return place_result(leader, node, header, payload);
  if (header->kind == WIRE_TOKEN) return place_token(leader, node, header, payload);
  bool ready = header->kind == WIRE_READY && header->count == leader->epoch.number && member->state == MEMBER_HERE;
  bool progress = header->kind == WIRE_PROGRESS && header->block <= leader->setup.weights->config->blocks;
  if (!ready && !progress) return status_set(STATUS_BAD_VALUE, "sent an unexpected %s message", wire_kind_name(header->kind));
  *payload = leader->word;
  return STATUS_OK;
}

static Status deliver_of_node(Leader *leader, LeaderMember *member, const WireHeader *header, uint8_t *payload) {
  int node = member->node;
  if (header->kind == WIRE_READY) member->state = MEMBER_READY;
  if (header->kind == WIRE_PROGRESS) note_progress(leader, node, header->request, header->block + 1U);
  if (header->kind == WIRE_TOKEN) return take_token(leader, payload);
  if (header->kind != WIRE_RESULT) return STATUS_OK;
  LeaderRequest *request = leader_messages_request(leader, header->request);
  TRY(wire_parse_statistics(payload, &request->nodes[node]));
  request->arrived[node] = true;
  if (header->block > 0) note_given_up(leader, request, header->block - 1);
  note_progress(leader, node, header->request, (uint64_t)leader->setup.weights->config->blocks + 2);
  return STATUS_OK;
}

/* ---- what a device says that may be none yet */

static bool is_complaint(const WireHeader *header) {
  return header->kind == WIRE_ERROR || header->kind == WIRE_REFUSE || header->kind == WIRE_BUSY;
}

/* The length of a complaint; whom it is about, of those that may be. Busy is whoever has not said WELCOME: its count is a place in a queue.
 */
static bool is_sound(const Leader *leader, const LeaderMember *member, const WireHeader *header) {
  bool count = header->kind == WIRE_BUSY ? member->state == MEMBER_GREETED : header->count <= (uint32_t)leader->epoch.nodes;
  return count;
}

static void store_complaint(Leader *leader, int m, const WireHeader *header) {
  char *complaint = leader->epoch.complaints[m];
  complaint[header->bytes] = 0;
  printable_blank(complaint, strlen(complaint)); /* nothing that a terminal obeys comes to it from a socket */
}

/* The connection stays open: a node whose control stream ends leaves, and then looks like the one that died. */
static Status take_complaint(Leader *leader, int m, const WireHeader *header) {
  store_complaint(leader, m, header);
  leader->membership.members[m].failed = true;
  bool not_finite = header->flags & WIRE_NOT_FINITE; /* the cause, where others miss its codes and complain of that */
  if (leader->epoch.complainer >= 0 && (leader->epoch.not_finite || !not_finite)) return STATUS_OK;
  leader->epoch.not_finite = not_finite;
  leader->epoch.complainer = m;
  leader->epoch.fault = header->count > 0 ? leader->epoch.member_of[header->count - 1] : -1;
  return STATUS_OK;
}

/* A worker that takes no part yet is no concern of the others. A no is BAD_VALUE: it is there, and calling again is of little use. */
static Status take_refusal(Leader *leader, int m, const WireHeader *header) {
  char name[LEADER_NAME];
  LeaderMember *member = &leader->membership.members[m];
  store_complaint(leader, m, header);
  uint32_t place = header->kind == WIRE_BUSY ? header->count : 0;
  bool waits_from_here_on = place > 0 && place != member->place && leader->epoch.number == 0; /* later on nobody waits for it */
  if (waits_from_here_on) log_info("%s %s", leader_name(leader, m, name), leader->epoch.complaints[m]);
  member->place = place;
  member->refused = header->kind == WIRE_REFUSE;
  return member->place > 0 ? STATUS_OK : status_set(STATUS_BAD_VALUE, "%s", leader->epoch.complaints[m]);
}

static Status place_message(void *context, Connection *from, const WireHeader *header, uint8_t **payload) {
  Leader *leader = context;
  LeaderMember *member = &leader->membership.members[from->peer];
  bool greeted = member->state == MEMBER_GREETED;
  *payload = member->welcome;
  if (header->kind == WIRE_WELCOME && greeted) return STATUS_OK;
  if (header->kind == WIRE_CANCELLED && member->asked) return STATUS_OK;
  if (header->kind == WIRE_PROFILE && leader->probe) return leader_probe_place(leader, from->peer, header, payload);
  if (is_complaint(header) && is_sound(leader, member, header)) {
    *payload = (uint8_t *)leader->epoch.complaints[from->peer];
    return STATUS_OK;
  }
  return place_of_node(leader, member, header, payload);
}

static Status deliver_message(void *context, Connection *from, const WireHeader *header, uint8_t *payload) {
  Leader *leader = context;
  LeaderMember *member = &leader->membership.members[from->peer];
  member->heard = clock_now();
  if (header->kind == WIRE_WELCOME) return leader_members_take_welcome(leader, from->peer);
  if (header->kind == WIRE_CANCELLED) member->asked = false;
  if (header->kind == WIRE_PROFILE) leader_probe_deliver(leader, from->peer);
  if (header->kind == WIRE_CANCELLED || header->kind == WIRE_PROFILE) return STATUS_OK;
  if (!is_complaint(header)) return deliver_of_node(leader, member, header, payload);
  bool apart = member->state == MEMBER_GREETED || member->node < 0;
  return apart ? take_refusal(leader, from->peer, header) : take_complaint(leader, from->peer, header);
}

const ConnectionSink leader_messages_sink = {.from = WIRE_FROM_DEVICE, .place = place_message, .deliver = deliver_message};
