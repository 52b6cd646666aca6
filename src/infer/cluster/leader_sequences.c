/* The sequences that live on devices (leader_sequence_start): which there are, and the tokens that have come of them. */
#include "base/array.h"
#include "infer/cluster/leader_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t message_max(const Leader *leader) { return request_decoded_max(&leader->setup); }

Status leader_sequences_allocate(Leader *leader) {
  LeaderSequences *q = &leader->sequences;
  const size_t devices = (size_t)leader->membership.room;
  q->devices = (int)devices;
  bool memory = (q->list = calloc(devices * (size_t)leader->setup.sequences + LEADER_DEPTH, sizeof *q->list)) &&
                (q->stops = calloc(devices, sizeof *q->stops)) && (q->messages = calloc(devices, sizeof *q->messages)) &&
                (q->drafts = calloc(devices, sizeof *q->drafts));
  const size_t text = WIRE_HEADER + WIRE_DRAFTS_BYTES + 4 * (size_t)leader->setup.tokens_max;
  for (size_t m = 0; memory && m < devices && leader->setup.sequences > 0; m++)
    memory = (q->messages[m] = malloc(message_max(leader))) && (q->drafts[m] = malloc(text));
  return memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for %d sequences", leader->setup.sequences);
}

void leader_sequences_release(Leader *leader) {
  LeaderSequences *q = &leader->sequences;
  for (int m = 0; q->messages && m < q->devices; m++) free(q->messages[m]);
  for (int m = 0; q->drafts && m < q->devices; m++) free(q->drafts[m]);
  for (int i = 0; i < q->count; i++) free(q->list[i].text);
  free(q->messages);
  free(q->drafts);
  free(q->list);
  free(q->stops);
  free(q->tokens);
}

LeaderSequence *leader_sequences_find(const Leader *leader, uint32_t number) {
  for (int i = 0; number > 0 && i < leader->sequences.count; i++) {
    if (leader->sequences.list[i].number == number) return &leader->sequences.list[i];
  }
  return NULL;
}

void leader_sequences_drop(Leader *leader, SequenceLoss why) {
  LeaderSequences *q = &leader->sequences;
  if (leader->setup.sequences == 0) return;
  for (int i = 0; i < q->count; i++) free(q->list[i].text);
  const bool any = q->count > 0 || q->token_count > 0 || leader->queue.submitted > leader->queue.collected;
  if (any && q->lost < why) q->lost = why;
  q->count = q->token_count = 0;
  memset(q->wishes, 0, sizeof q->wishes);
  q->waits = false;
  leader->queue.collected = leader->queue.submitted; /* answers to these may still come, until the epoch has ended */
}

Status leader_sequences_drop_one(Leader *leader, uint32_t number) {
  LeaderSequences *q = &leader->sequences;
  const LeaderSequence *sequence = leader_sequences_find(leader, number);
  const bool wanted = sequence && !sequence->unwanted;
  const DecodedToken end = {.sequence = number, .number = wanted ? sequence->made + 1 : 0, .end = SEQUENCE_NUMERIC, .logprob = NAN};
  leader_sequences_drop(leader, sequence ? SEQUENCES_MOVED : SEQUENCES_FAILED);
  if (!wanted) return STATUS_OK;
  TRY(ARRAY_RESERVE(q->tokens, (size_t)q->token_count, 1, q->token_capacity, "tokens"));
  q->tokens[q->token_count++] = end;
  return STATUS_OK;
}

void leader_sequences_end(Leader *leader, LeaderSequence *sequence) {
  LeaderSequences *q = &leader->sequences;
  free(sequence->text);
  memmove(sequence, sequence + 1, (size_t)(q->list + q->count - (sequence + 1)) * sizeof *sequence);
  q->count--;
}

/* ---- messages of devices */

Status leader_sequences_place(Leader *leader, int node, const WireHeader *header, uint8_t **payload) {
  if (leader->setup.sequences == 0 || header->bytes > message_max(leader))
    return status_set(STATUS_BAD_VALUE, "sent %u bytes of tokens, which were not expected", header->bytes);
  *payload = leader->sequences.messages[leader->epoch.device_of[node]];
  return STATUS_OK;
}

/* Tokens of sequences that nobody wants any more may still come. */
static Status take_token(Leader *leader, int node, const DecodedToken *token) {
  LeaderSequences *q = &leader->sequences;
  LeaderSequence *sequence = leader_sequences_find(leader, token->sequence);
  if (!sequence && token->sequence >= 1 && token->sequence <= leader->queue.submitted - leader->epoch.base) return STATUS_OK;
  const bool prompt = sequence && token->end == SEQUENCE_PROMPT && !sequence->here && token->number >= 2 &&
                      token->number <= sequence->prompt && sequence->echoed + 1 < sequence->prompt;
  const bool next =
      sequence && sequence->node == node && !sequence->over && token->number == sequence->made + 1 && sequence->made < sequence->max;
  if (!prompt && (!next || token->end == SEQUENCE_PROMPT || token->shared > (int64_t)sequence->prompt))
    return status_set(STATUS_BAD_VALUE, "sent token %u of sequence %u, which was not expected", token->number, token->sequence);
  sequence->made += !prompt;
  sequence->echoed += prompt;
  if (!prompt) sequence->wanted = q->wishes[node] = token->wanted;
  if (sequence->text && !prompt && sequence->count < leader->setup.tokens_max) sequence->text[sequence->count++] = token->id;
  if (!sequence->unwanted) {
    TRY(ARRAY_RESERVE(q->tokens, (size_t)q->token_count, 1, q->token_capacity, "tokens"));
    q->tokens[q->token_count++] = *token;
  }
  sequence->over |= token->end != SEQUENCE_GOES_ON && !prompt;
  if (sequence->over && sequence->here) leader_sequences_end(leader, sequence);
  return STATUS_OK;
}

/* Of the last epoch are the tokens of a step that a device was in when it was told to stop. */
Status leader_sequences_deliver(Leader *leader, int node, const WireHeader *header, const uint8_t *payload) {
  const uint8_t *end = payload + header->bytes;
  ByteCursor at = byte_cursor_from(payload);
  uint32_t count = 0;
  if (leader->epoch.setting_up) return STATUS_OK;
  while (at.at < end) {
    DecodedToken token = {.number = 0};
    TRY(request_decoded(&at, end, leader->setup.weights->config->vocabulary, &token));
    TRY(take_token(leader, node, &token));
    count++;
  }
  return count == header->count ? STATUS_OK
                                : status_set(STATUS_BAD_VALUE, "sent %u tokens that were announced as %u", count, header->count);
}

/* Drafts of a device that has meanwhile been given something else to do, of a sequence that is over, or of the last epoch, are of no use.
 */
Status leader_sequences_drafts(Leader *leader, int node, const WireHeader *header, const uint8_t *payload) {
  LeaderSequence *sequence = leader_sequences_find(leader, header->request);
  int32_t ids[SPECULATION_CHAIN];
  int64_t base, count;
  if (leader->epoch.setting_up) return STATUS_OK;
  TRY(request_parse_draft(payload, header->bytes, &leader->setup, &base, ids, &count));
  if (count != header->count || header->request < 1 || header->request > leader->queue.submitted - leader->epoch.base)
    return status_set(STATUS_BAD_VALUE, "sent %lld drafts of sequence %u, announced as %u, which were not expected", (long long)count,
                      header->request, header->count);
  if (!sequence || sequence->drafter != node) return STATUS_OK;
  if (base > sequence->count) return status_set(STATUS_BAD_VALUE, "sent drafts of tokens that it was not told");
  sequence->base = base;
  sequence->chained = (int)count;
  memcpy(sequence->chain, ids, (size_t)count * sizeof *ids);
  return STATUS_OK;
}

/* ---- messages to devices */

/* Nothing lives there, and it drafts for no other sequence. */
static bool can_draft(const Leader *leader, int node, const LeaderSequence *sequence) {
  const LeaderSequences *q = &leader->sequences;
  const LeaderDevice *device = leader_device(leader, node);
  bool idle = device->drafts && device->state == DEVICE_READY && connection_is_open(&device->connection);
  for (int i = 0; idle && i < q->count; i++)
    idle = (q->list[i].over || q->list[i].node != node) && (&q->list[i] == sequence || q->list[i].drafter != node);
  return idle;
}

/* A message of drafts to a node, which the next step sends; false: one is on its way already. */
static bool send_drafts(Leader *leader, int node, WireHeader header, int64_t base, const int32_t *ids, int64_t count) {
  Connection *connection = leader->epoch.connections[node];
  uint8_t *message = leader->sequences.drafts[leader->epoch.device_of[node]];
  if (!connection_is_open(connection) || connection_queued(connection) > 0) return false;
  header.sender = WIRE_LEADER;
  header.bytes = (uint32_t)request_draft(message + WIRE_HEADER, base, ids, count);
  wire_pack(&header, message);
  return connection_send(connection, message, WIRE_HEADER + (size_t)header.bytes) == STATUS_OK;
}

/* What is new of a text to a node that drafts, and its drafts to the node that decodes. */
static void pass_drafts(Leader *leader, LeaderSequence *s) {
  if (!s->text || s->over || s->unwanted) return;
  if (s->drafter >= 0 && !can_draft(leader, s->drafter, s)) s->drafter = -1;
  for (int d = 0; d < leader->epoch.nodes && s->drafter < 0 && s->wanted > 0; d++) {
    if (!can_draft(leader, d, s)) continue;
    s->drafter = d;
    s->told = s->chained = 0;
  }
  WireHeader header = {.kind = WIRE_DRAFT, .request = s->number, .count = (uint32_t)s->wanted};
  if (s->drafter >= 0 && s->wanted > 0 && s->told < s->count &&
      send_drafts(leader, s->drafter, header, s->told, s->text + s->told, s->count - s->told))
    s->told = s->count;
  header = (WireHeader){.kind = WIRE_DRAFTED, .request = s->number, .count = (uint32_t)s->chained};
  if (s->chained > 0 && s->here && send_drafts(leader, s->node, header, s->base, s->chain, s->chained)) s->chained = 0;
}

/* Those whose prompt is still being computed, and those for whose device too much is queued, are told later. */
Status leader_sequences_tell(Leader *leader) {
  LeaderSequences *q = &leader->sequences;
  for (int i = 0; i < q->count; i++) pass_drafts(leader, &q->list[i]);
  for (int i = q->count - 1; i >= 0; i--) {
    LeaderSequence *sequence = &q->list[i];
    Connection *connection = leader->epoch.connections[sequence->node];
    if (!sequence->unwanted || !sequence->here || connection_queued(connection) > CONNECTION_QUEUE / 2) continue;
    StopRing *ring = &q->stops[leader->epoch.device_of[sequence->node]];
    uint8_t *message = ring->message[ring->next++ % CONNECTION_QUEUE];
    wire_pack(&(WireHeader){.kind = WIRE_STOP, .sender = WIRE_LEADER, .request = sequence->number}, message);
    TRY(connection_send(connection, message, WIRE_HEADER));
    leader_sequences_end(leader, sequence);
  }
  return STATUS_OK;
}
