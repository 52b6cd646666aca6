/* Beginning and end of a request of any kind. What its payload and the answers mean is leader_picture.c's and leader_text.c's. */
#include "base/clock.h"
#include "base/log.h"
#include "infer/cluster/leader_internal.h"
#include <string.h>

/* ---- kinds */

typedef struct Kind {
  uint8_t kind;
  bool text;
  void (*share)(Leader *leader, LeaderRequest *request);
  LeaderTake *take;
} Kind;

static const Kind *kind_of(const Leader *leader, uint8_t kind) {
  static const Kind rows[] = {{WIRE_CLASSIFY, false, leader_picture_share, leader_picture_take},
                              {WIRE_PROMPT, true, leader_text_share, leader_text_take_prompt},
                              {WIRE_SCORE, true, leader_text_share, leader_text_take_score},
                              {WIRE_LAST, true, leader_text_share, leader_text_take_last},
                              {WIRE_CLASSIFY, true, leader_text_share, leader_text_take_last}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].kind == kind && rows[i].text == (leader->given_split != NULL)) return &rows[i];
  }
  return NULL;
}

/* ---- beginning */

int leader_under_way(const Leader *leader) { return (int)(leader->submitted - leader->collected); }

bool leader_takes_more(const Leader *leader) {
  return leader_under_way(leader) == 0 || (leader_under_way(leader) < LEADER_DEPTH && !leader_failure_rests(leader));
}

Status leader_request_open(Leader *leader, const Request *request, LeaderRequest **slot) {
  if (leader_under_way(leader) >= LEADER_DEPTH) return status_set(STATUS_BAD_VALUE, "%d requests are under way already", LEADER_DEPTH);
  if (request->batch < 1 || request->batch > leader->options.batch_most)
    return status_set(STATUS_BAD_VALUE, "a request of %lld %s; 1 to %lld are possible", (long long)request->batch,
                      request_unit(&leader->setup), (long long)leader->options.batch_most);
  heartbeat_hold(leader->heartbeat);
  Status status = leader_failure_rejoin(leader);
  heartbeat_release(leader->heartbeat);
  TRY(status);
  *slot = &leader->requests[(leader->submitted + 1) & 1];
  (*slot)->request = *request;
  return STATUS_OK;
}

/* Numbers begin anew with each epoch. */
static Status send(Leader *leader, LeaderRequest *slot, uint32_t number) {
  slot->number = number;
  slot->sent = 0;
  memset(slot->arrived, 0, (size_t)leader->nodes * sizeof *slot->arrived);
  kind_of(leader, slot->request.kind)->share(leader, slot);
  for (int d = 0; d < leader->nodes; d++) {
    WireHeader header = {.kind = slot->request.kind,
                         .sender = WIRE_LEADER,
                         .flags = slot->request.codes ? WIRE_WANT_CODES : 0,
                         .request = number,
                         .count = (uint32_t)slot->request.batch,
                         .bytes = (uint32_t)(slot->size[d] - WIRE_HEADER)};
    wire_pack(&header, slot->message + slot->offset[d]);
    TRY(connection_send(leader->connections[d], slot->message + slot->offset[d], slot->size[d]));
  }
  return connections_step(leader->connections, leader->nodes, 0);
}

Status leader_request_send(Leader *leader, LeaderRequest *slot) {
  slot->missing = slot->given_up = 0;
  slot->reruns = 0;
  slot->began = clock_now();
  leader->submitted++;
  heartbeat_hold(leader->heartbeat);
  Status status = send(leader, slot, leader->submitted - leader->base);
  if (status != STATUS_OK) status = leader_failure_recover(leader, leader_wait_explain(leader, status));
  heartbeat_release(leader->heartbeat);
  return status;
}

Status leader_request_resend(Leader *leader) {
  for (uint32_t i = leader->collected + 1; i <= leader->submitted; i++) {
    LeaderRequest *slot = &leader->requests[i & 1];
    slot->request.codes = leader->setup.keep_codes;
    slot->missing = slot->given_up = 0;
    slot->reruns++;
    if (slot->request.kind == WIRE_PROMPT) leader->made_count = 0;
    Status status = send(leader, slot, i - leader->base);
    if (status != STATUS_OK) return leader_wait_explain(leader, status);
  }
  return STATUS_OK;
}

/* ---- end */

LeaderRequest *leader_request_oldest(Leader *leader) { return &leader->requests[(leader->collected + 1) & 1]; }

/* From when the last node began, all of which end together, to the end; a sample's share of it. */
static void note_time(Leader *leader, const LeaderRequest *slot) {
  double least = 0;
  for (int d = 0; d < leader->nodes; d++) {
    double elapsed = slot->nodes[d].elapsed / (double)slot->request.batch;
    if (!(slot->missing >> leader->member_of[d] & 1) && (least <= 0 || elapsed < least)) least = elapsed;
  }
  double request = (clock_now() - slot->began) / (double)slot->request.batch;
  if (leader->fastest <= 0 || least < leader->fastest) leader->fastest = least;
  if (leader->fastest_request <= 0 || request < leader->fastest_request) leader->fastest_request = request;
}

/* What nodes have said, by members. Whoever has taken part is in good standing again. */
static void sum_up(Leader *leader, const LeaderRequest *slot) {
  memset(leader->tokens, 0, (size_t)leader->member_count * sizeof *leader->tokens);
  memset(leader->last, 0, (size_t)leader->member_count * sizeof *leader->last);
  for (int d = 0; d < leader->nodes; d++) {
    int m = leader->member_of[d];
    if (slot->missing >> m & 1) continue;
    leader->tokens[m] = slot->counts[d];
    leader->last[m] = slot->nodes[d];
    leader->members[m].pause = leader->members[m].blamed = 0;
    wire_add_statistics(&leader->totals[m], &slot->nodes[d]);
  }
}

static void warn_of_given_up(const Leader *leader, const LeaderRequest *slot) {
  char name[LEADER_NAME];
  for (int m = 0; m < leader->member_count; m++) {
    if (slot->given_up >> m & 1)
      log_warning("%s was silent for too long: others went on without its tokens, and this answer is incomplete",
                  leader_name(leader, m, name));
  }
}

Status leader_collect(Leader *leader, LeaderAnswer *answer) {
  if (!leader_under_way(leader)) return status_set(STATUS_BAD_VALUE, "no request is under way");
  LeaderRequest *slot = leader_request_oldest(leader);
  TRY(leader_failure_wait(leader, leader_wait_all, slot));
  leader->collected++;
  slot->number = 0;
  sum_up(leader, slot);
  warn_of_given_up(leader, slot);
  note_time(leader, slot);
  leader->reruns += slot->reruns;
  leader->masked += (slot->missing | slot->given_up) != 0;
  *answer = (LeaderAnswer){.batch = slot->request.batch,
                           .tokens = slot->request.tokens,
                           .counts = leader->tokens,
                           .nodes = leader->last,
                           .missing = slot->missing | slot->given_up,
                           .reruns = slot->reruns,
                           .input_seconds = slot->sent > 0 ? slot->sent - slot->began : 0};
  TRY(kind_of(leader, slot->request.kind)->take(leader, slot, answer));
  return weights_unchanged(leader->setup.weights); /* of which the leader computes the head */
}
