/* Images on a node: patches in, class-token replicas out. */
#include "infer/node_parts.h"
#include "infer/node_share.h"
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

Status node_images_answer(Node *node, const NodeRequest *request, uint8_t *out) {
  Tensor *pixels, *replicas;
  if (node->layout.rows == 0) return STATUS_OK;
  TRY(read_pixels(node, request, &pixels));
  TRY(node_encode(node, &(ModelInput){.pixels = pixels}, request->request.batch, MODEL_ROWS_CLASS, &replicas));
  if (replicas && node_share_of(node->setup, node->self, &node->layout).class_rows > 0)
    wire_pack_reals(replicas->value, (size_t)tensor_count(replicas), out);
  return STATUS_OK;
}
