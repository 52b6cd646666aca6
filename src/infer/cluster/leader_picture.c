/* Requests of pictures and the answers to them: replicas of the class token, to which the head is applied here. */
#include "infer/cluster/leader_codes.h"
#include "infer/cluster/leader_internal.h"
#include "infer/node_share.h"
#include <string.h>

/* Kept until it is answered: a request that is computed anew may be cut otherwise. */
static void keep_pixels(Leader *leader, LeaderRequest *slot, const float *pixels) {
  const ModelConfig *config = leader->setup.weights->config;
  int64_t numbers = slot->request.batch * weights_pixels(leader->setup.weights);
  slot->request.levels = patches_find_levels(&leader->levels, config, pixels, slot->request.batch, slot->levels);
  if (!slot->request.levels) memcpy(slot->pixels, pixels, (size_t)numbers * sizeof *slot->pixels);
}

Status leader_submit(Leader *leader, const float *pixels, int64_t batch) {
  if (!leader->given) return status_set(STATUS_BAD_VALUE, "a language model takes no pictures");
  Request request = {.kind = WIRE_CLASSIFY, .codes = leader->options.codes, .batch = batch, .tokens = leader->given->tokens};
  LeaderRequest *slot;
  TRY(leader_request_open(leader, &request, &slot));
  keep_pixels(leader, slot, pixels);
  return leader_request_send(leader, slot);
}

void leader_picture_share(Leader *leader, LeaderRequest *slot) {
  const ModelConfig *config = leader->setup.weights->config;
  size_t at = 0;
  node_share_counts(&leader->setup, leader->partition.tokens, slot->counts);
  for (int d = 0; d < leader->nodes; d++) {
    slot->shares[d] = node_share_of(&leader->setup, d, &leader->layout[d]);
    slot->offset[d] = at;
    slot->size[d] = WIRE_HEADER + request_bytes(&leader->setup, &slot->request, &slot->shares[d]);
    if (d > 0 && node_share_everything(&leader->setup)) {
      slot->offset[d] = 0; /* one message is for all */
      continue;
    }
    patches_pack(config, &leader->layout[d], slot->request.batch, slot->pixels, slot->request.levels ? slot->levels : NULL,
                 slot->message + at + WIRE_HEADER);
    at += slot->size[d];
  }
}

static bool is_missing(const Leader *leader, const LeaderRequest *request, int node) {
  return request->missing >> leader->member_of[node] & 1;
}

/* Of those that have answered. */
static int64_t class_rows(const Leader *leader, const LeaderRequest *request) {
  int64_t rows = 0;
  for (int d = 0; d < leader->nodes; d++) rows += is_missing(leader, request, d) ? 0 : request->shares[d].class_rows;
  return rows;
}

/* All replicas [B, rows, D], in the order of the nodes, as the training emulation has them. */
static void gather_replicas(Leader *leader, const LeaderRequest *request, int64_t all) {
  int64_t width = leader->setup.weights->config->width, first = 0;
  for (int d = 0; d < leader->nodes; d++) {
    int64_t rows = is_missing(leader, request, d) ? 0 : request->shares[d].class_rows;
    const uint8_t *from = request->results[d] + WIRE_STATISTICS;
    for (int64_t b = 0; b < request->request.batch; b++)
      wire_parse_reals(from + (size_t)(b * rows * width) * 4, (size_t)(rows * width), leader->replicas + (b * all + first) * width);
    first += rows;
  }
}

static Status classify(Leader *leader, const LeaderRequest *request) {
  int64_t rows = class_rows(leader, request), shape[3] = {request->request.batch, rows, leader->setup.weights->config->width};
  gather_replicas(leader, request, rows);
  tape_clear(leader->tape);
  Tensor *replicas = tape_constant(leader->tape, 3, shape, leader->replicas);
  Tensor *logits = model_classify(leader->setup.weights->model, leader->tape, replicas);
  if (!logits) return tape_status(leader->tape);
  memcpy(leader->logits, logits->value, (size_t)tensor_count(logits) * sizeof(real));
  return STATUS_OK;
}

Status leader_picture_take(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  TRY(classify(leader, request));
  answer->logits = leader->logits;
  if (!request->request.codes) return STATUS_OK;
  answer->codes = leader->codes;
  return leader_codes_gather(leader, request, leader->partition.order);
}
