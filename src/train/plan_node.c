/* Memory of a node: see plan_node.h. */
#include "train/plan_node.h"
#include <math.h>
#include <string.h>

enum { NARROW_BYTES = 2 };

static double weight_bytes(const ParamSet *params) {
  double bytes = 0;
  for (size_t i = 0; i < params->count && strncmp(params->list[i].name, "astra.lora.", 11) != 0; i++) /* adapters are folded in */
    bytes += (double)tensor_count(&params->list[i].tensor) * (params->list[i].narrow ? (double)NARROW_BYTES : (double)sizeof(float));
  return bytes;
}

/* 2 L d b for each of `tokens`: keys and values in full. */
static double full_bytes(const ModelConfig *config, double tokens, double number) {
  double width = (double)config->width / (double)config->heads * (double)config->kv_heads;
  return 2 * tokens * (double)config->blocks * width * number;
}

void plan_node_make(Model *model, int64_t tokens, PlanNode *node) {
  const ModelConfig *config = model_config(model);
  const AstraConfig *astra = &config->astra;
  int devices = astra->groups > 0 ? astra->devices : 1;
  double n = (double)tokens, own = ceil(n / devices), blocks = (double)config->blocks, sites = (double)config_sites(config);
  double packed = ceil((double)(astra->groups * config_code_bits(config)) / 8); /* bytes of a token's codes at a site */
  *node = (PlanNode){.tokens = tokens,
                     .weights = weight_bytes(model_params(model)),
                     .cache = full_bytes(config, own, sizeof(float)) + sites * (n - own) * blocks * packed,
                     .cache_full = full_bytes(config, n, sizeof(float)),
                     .paper = full_bytes(config, n / devices, NARROW_BYTES),
                     .paper_full = full_bytes(config, n, NARROW_BYTES)};
  if (astra->groups == 0) return;
  node->codebooks = blocks * sites * (double)astra->codebook_size * (double)config_site_width(config) * sizeof(float);
  node->paper += 2 * (devices - 1) * n / devices * blocks * astra->groups * log2(astra->codebook_size) / 8;
}
