/* The sequences that live on devices (leader_sequence_start): which there are, and the tokens that have come of them. */
#include "base/array.h"
#include "infer/cluster/leader_internal.h"
#include <stdlib.h>
#include <string.h>

static size_t message_max(const Leader *leader) { return request_decoded_max(&leader->setup); }

Status leader_sequences_allocate(Leader *leader) {
  LeaderSequences *q = &leader->sequences;
  const size_t devices = (size_t)leader->membership.count;
  bool memory = (q->list = calloc(devices * (size_t)leader->setup.sequences + LEADER_DEPTH, sizeof *q->list)) &&
                (q->stops = calloc(devices, sizeof *q->stops)) && (q->messages = calloc(devices, sizeof *q->messages));
  for (size_t m = 0; memory && m < devices && leader->setup.sequences > 0; m++)
    memory = (q->messages[m] = malloc(message_max(leader))) != NULL;
  return memory ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for %d sequences", leader->setup.sequences);
}

void leader_sequences_release(Leader *leader) {
  LeaderSequences *q = &leader->sequences;
  for (int m = 0; q->messages && m < leader->membership.count; m++) free(q->messages[m]);
  free(q->messages);
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

void leader_sequences_drop(Leader *leader) {
  LeaderSequences *q = &leader->sequences;
  if (leader->setup.sequences == 0) return;
  q->lost |= q->count > 0 || q->token_count > 0 || leader->queue.submitted > leader->queue.collected;
  q->count = q->token_count = 0;
  q->waits = false;
  leader->queue.collected = leader->queue.submitted; /* answers to these may still come, until the epoch has ended */
}

void leader_sequences_end(Leader *leader, LeaderSequence *sequence) {
  LeaderSequences *q = &leader->sequences;
  memmove(sequence, sequence + 1, (size_t)(q->list + q->count - (sequence + 1)) * sizeof *sequence);
  q->count--;
}

/* ---- messages of devices */

Status leader_sequences_place(Leader *leader, int node, const WireHeader *header, uint8_t **payload) {
  if (leader->setup.sequences == 0 || leader->epoch.setting_up || header->bytes > message_max(leader))
    return status_set(STATUS_BAD_VALUE, "sent %u bytes of tokens, which were not expected", header->bytes);
  *payload = leader->sequences.messages[leader->epoch.device_of[node]];
  return STATUS_OK;
}

/* Tokens of sequences that nobody wants any more may still come. */
static Status take_token(Leader *leader, int node, const DecodedToken *token) {
  LeaderSequences *q = &leader->sequences;
  LeaderSequence *sequence = leader_sequences_find(leader, token->sequence);
  if (!sequence && token->sequence >= 1 && token->sequence <= leader->queue.submitted - leader->epoch.base) return STATUS_OK;
  const bool prompt =
      sequence && token->end == SEQUENCE_PROMPT && !sequence->here && token->number >= 2 && token->number <= sequence->prompt;
  const bool next = sequence && sequence->node == node && !sequence->over && token->number == sequence->made + 1;
  if (!prompt && (!next || token->end == SEQUENCE_PROMPT || token->shared > (int64_t)sequence->prompt))
    return status_set(STATUS_BAD_VALUE, "sent token %u of sequence %u, which was not expected", token->number, token->sequence);
  sequence->made += !prompt;
  if (!sequence->unwanted) {
    TRY(ARRAY_RESERVE(q->tokens, (size_t)q->token_count, 1, q->token_capacity, "tokens"));
    q->tokens[q->token_count++] = *token;
  }
  sequence->over |= token->end != SEQUENCE_GOES_ON && !prompt;
  if (sequence->over && sequence->here) leader_sequences_end(leader, sequence);
  return STATUS_OK;
}

Status leader_sequences_deliver(Leader *leader, int node, const WireHeader *header, const uint8_t *payload) {
  const uint8_t *end = payload + header->bytes;
  ByteCursor at = byte_cursor_from(payload);
  uint32_t count = 0;
  while (at.at < end) {
    DecodedToken token = {.number = 0};
    TRY(request_decoded(&at, end, leader->setup.weights->config->vocabulary, &token));
    TRY(take_token(leader, node, &token));
    count++;
  }
  return count == header->count ? STATUS_OK
                                : status_set(STATUS_BAD_VALUE, "sent %u tokens that were announced as %u", count, header->count);
}

/* ---- messages to devices */

/* Those whose prompt is still being computed, and those for whose device too much is queued, are told later. */
Status leader_sequences_tell(Leader *leader) {
  LeaderSequences *q = &leader->sequences;
  for (int i = q->count - 1; i >= 0; i--) {
    LeaderSequence *sequence = &q->list[i];
    Connection *connection = leader->epoch.connections[sequence->node];
    if (!sequence->unwanted || !sequence->here || connection_queued(connection) > CONNECTION_QUEUE / 2) continue;
    uint8_t *message = q->stops[leader->epoch.device_of[sequence->node]][q->stop++ % CONNECTION_QUEUE];
    wire_pack(&(WireHeader){.kind = WIRE_STOP, .sender = WIRE_LEADER, .request = sequence->number}, message);
    TRY(connection_send(connection, message, WIRE_HEADER));
    leader_sequences_end(leader, sequence);
  }
  return STATUS_OK;
}
