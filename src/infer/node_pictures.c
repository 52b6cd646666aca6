/* Pictures on a node: pixels in, class-token replicas out. */
#include "infer/node_parts.h"

Status node_pictures_answer(Node *node, const NodeRequest *request, uint8_t *out) {
  const Weights *weights = node->setup->weights;
  const ModelConfig *config = weights->config;
  int64_t shape[4] = {request->request.batch, config->channels, config->image, config->image};
  Tensor *pixels = tape_tensor(node->tape, 4, shape);
  if (!pixels) return tape_status(node->tape);
  wire_parse_reals(request->payload, (size_t)tensor_count(pixels), pixels->value);
  Tensor *replicas =
      model_encode(weights->model, node->tape, &(ModelInput){.pixels = pixels}, &node->layout, node_exchange(node), MODEL_ROWS_CLASS);
  TRY(tape_status(node->tape));
  if (replicas) wire_pack_reals(replicas->value, (size_t)tensor_count(replicas), out);
  return STATUS_OK;
}
