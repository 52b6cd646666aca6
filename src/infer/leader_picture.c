/* Requests of pictures and the answers to them: replicas of the class token, to which the head is applied here. */
#include "infer/leader_codes.h"
#include "infer/leader_parts.h"
#include <string.h>

Status leader_submit(Leader *leader, const float *pixels, int64_t batch) {
  if (!leader->setup.partition) return status_set(STATUS_BAD_VALUE, "a language model takes no pictures");
  Request request = {.kind = WIRE_REQUEST, .codes = leader->options.codes, .batch = batch, .tokens = leader->setup.partition->tokens};
  LeaderRequest *slot;
  TRY(leader_request_open(leader, &request, &slot));
  for (int d = 0; d < leader->nodes; d++) {
    slot->counts[d] = leader->setup.partition->counts[d];
    slot->shares[d] = request_share(&leader->layout[d]);
  }
  wire_pack_floats(pixels, (size_t)(batch * weights_pixels(leader->setup.weights)), leader_request_payload(slot));
  return leader_request_send(leader, slot);
}

/* All replicas [B, class_rows, D], in the order of the nodes, as the training emulation has them. */
static void gather_replicas(Leader *leader, const LeaderRequest *request) {
  int64_t width = leader->setup.weights->config->width, first = 0;
  for (int d = 0; d < leader->nodes; d++) {
    int64_t rows = leader->layout[d].class_rows;
    const uint8_t *from = request->results[d] + WIRE_STATISTICS;
    for (int64_t b = 0; b < request->request.batch; b++)
      wire_parse_reals(from + (size_t)(b * rows * width) * 4, (size_t)(rows * width),
                       leader->replicas + (b * leader->class_rows + first) * width);
    first += rows;
  }
}

static Status classify(Leader *leader, const LeaderRequest *request) {
  int64_t shape[3] = {request->request.batch, leader->class_rows, leader->setup.weights->config->width};
  gather_replicas(leader, request);
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
  return leader_codes_gather(leader, request, leader->setup.partition->order);
}
