/* Beginning and end of a request of any kind. What its payload and the answers mean is leader_picture.c's and leader_text.c's. */
#include "infer/leader_parts.h"
#include <string.h>

int leader_under_way(const Leader *leader) { return (int)(leader->submitted - leader->collected); }

Status leader_request_open(Leader *leader, const Request *request, LeaderRequest **slot) {
  if (leader_under_way(leader) >= LEADER_DEPTH) return status_set(STATUS_BAD_VALUE, "%d requests are under way already", LEADER_DEPTH);
  if (request->batch < 1 || request->batch > leader->options.batch_most)
    return status_set(STATUS_BAD_VALUE, "a request of %lld %s; 1 to %lld are possible", (long long)request->batch, request_unit(request),
                      (long long)leader->options.batch_most);
  *slot = &leader->requests[(leader->submitted + 1) & 1];
  (*slot)->request = *request;
  return STATUS_OK;
}

Status leader_request_send(Leader *leader, LeaderRequest *slot) {
  slot->number = ++leader->submitted;
  memset(slot->arrived, 0, (size_t)leader->nodes * sizeof *slot->arrived);
  size_t bytes = request_bytes(&leader->setup, &slot->request);
  WireHeader header = {.kind = slot->request.kind,
                       .sender = WIRE_LEADER,
                       .flags = slot->request.codes ? WIRE_WANT_CODES : 0,
                       .request = slot->number,
                       .count = (uint32_t)slot->request.batch,
                       .bytes = (uint32_t)bytes};
  wire_pack(&header, slot->message);
  Status status = STATUS_OK;
  for (int d = 0; d < leader->nodes && status == STATUS_OK; d++)
    status = link_send(&leader->control[d], slot->message, WIRE_HEADER + bytes);
  if (status == STATUS_OK) status = links_step(leader->links, leader->nodes, 0);
  return status == STATUS_OK ? STATUS_OK : leader_wait_explain(leader, status);
}

LeaderRequest *leader_request_oldest(Leader *leader) { return &leader->requests[(leader->collected + 1) & 1]; }

static void add_totals(Leader *leader, const NodeStatistics *nodes) {
  for (int d = 0; d < leader->nodes; d++) wire_add_statistics(&leader->totals[d], &nodes[d]);
}

typedef Status Take(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer);

static Take *take_of(uint8_t kind) {
  static const struct {
    uint8_t kind;
    Take *take;
  } rows[] = {{WIRE_REQUEST, leader_picture_take},
              {WIRE_PROMPT, leader_text_take_prompt},
              {WIRE_SCORE, leader_text_take_score},
              {WIRE_LAST, leader_text_take_last}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].kind == kind) return rows[i].take;
  }
  return NULL;
}

Status leader_collect(Leader *leader, LeaderAnswer *answer) {
  if (!leader_under_way(leader)) return status_set(STATUS_BAD_VALUE, "no request is under way");
  LeaderRequest *slot = leader_request_oldest(leader);
  TRY(leader_wait(leader, leader_wait_all, slot->arrived));
  leader->collected++;
  slot->number = 0;
  *answer = (LeaderAnswer){.batch = slot->request.batch, .tokens = slot->request.tokens, .counts = slot->counts, .nodes = slot->nodes};
  TRY(take_of(slot->request.kind)(leader, slot, answer));
  add_totals(leader, slot->nodes);
  memcpy(leader->tokens, slot->counts, (size_t)leader->nodes * sizeof *leader->tokens);
  return STATUS_OK;
}
