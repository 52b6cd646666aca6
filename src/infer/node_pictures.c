/* Pictures on a node: patches in, class-token replicas out. */
#include "infer/node_parts.h"
#include "infer/patches.h"
#include <string.h>

/* What belongs to other nodes is nobody's input here: zeroes. */
static Status read_pixels(Node *node, const NodeRequest *request, Tensor **pixels) {
  const ModelConfig *config = node->setup->weights->config;
  const int64_t batch = request->request.batch, shape[4] = {batch, config->channels, config->image, config->image};
  *pixels = tape_tensor(node->tape, 4, shape);
  if (!*pixels) return tape_status(node->tape);
  memset((*pixels)->value, 0, (size_t)tensor_count(*pixels) * sizeof(real));
  return patches_parse(request->payload, config, &node->layout, batch, request->request.levels, (*pixels)->value);
}

Status node_pictures_answer(Node *node, const NodeRequest *request, uint8_t *out) {
  const Weights *weights = node->setup->weights;
  Tensor *pixels;
  TRY(read_pixels(node, request, &pixels));
  Tensor *replicas =
      model_encode(weights->model, node->tape, &(ModelInput){.pixels = pixels}, &node->layout, node_exchange(node), MODEL_ROWS_CLASS);
  TRY(tape_status(node->tape));
  if (replicas) wire_pack_reals(replicas->value, (size_t)tensor_count(replicas), out);
  return STATUS_OK;
}
