/* Memory of a node: see plan_node.h. The prompt is planned on a tape (everything allocated, nothing computed), so that its memory is what
 * the same code takes on a node. */
#include "train/plan_node.h"
#include "autograd/tape_segment.h"
#include "nn/kv_cache.h"
#include "vq/pack.h"
#include <stdlib.h>

enum { NARROW_BYTES = 2, PAPER_SITES = 2 };
static const size_t ARENA_BYTES = (size_t)1 << 40; /* address space, not memory */

/* Stands in for the others: their tokens take the place that they will have. */
typedef struct Silence {
  Exchange exchange; /* first */
  int64_t width;     /* W */
} Silence;

static Status begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int site, Tensor *h) {
  (void)self, (void)layout, (void)block, (void)site, (void)h;
  return tape_status(tape);
}

static Status finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int site, Tensor **remote, const uint8_t **lost) {
  (void)block, (void)site;
  *remote = tape_tensor(tape, 3, (int64_t[]){1, layout->remote, ((Silence *)self)->width});
  *lost = NULL;
  return tape_status(tape);
}

static Status plan_prompt(Model *model, Tape *tape, const TokenLayout *layout, double *bytes) {
  Silence silence = {{.begin = begin, .finish = finish}, config_site_width(model_config(model))};
  tape_record(tape, false);
  tape_plan(tape, true);
  int32_t *ids = tape_alloc(tape, (size_t)layout->tokens * sizeof *ids);
  ModelInput input = {.ids = ids, .batch = 1};
  if (ids == NULL) return tape_status(tape);
  model_logits(model, tape, model_encode(model, tape, &input, layout, layout->devices > 1 ? &silence.exchange : NULL, MODEL_ROWS_LAST));
  *bytes = (double)tape_peak_bytes(tape);
  return tape_status(tape);
}

static Status plan_on_tape(Model *model, const TokenLayout *layout, double *bytes) {
  Arena *arena = arena_new(ARENA_BYTES), *block_arena = arena_new(ARENA_BYTES);
  Tape *tape = arena && block_arena ? tape_new(arena) : NULL;
  Status status = status_set(STATUS_NO_MEMORY, "no memory to plan a node");
  if (tape != NULL) {
    arena_small_pages(arena);
    arena_small_pages(block_arena);
    tape_segment_use(tape, block_arena);
    status = plan_prompt(model, tape, layout, bytes);
  }
  tape_free(tape);
  arena_free(block_arena);
  arena_free(arena);
  return status;
}

static double weight_bytes(const ParamSet *params) {
  double bytes = 0;
  for (size_t i = 0; i < params->count; i++)
    bytes += (double)tensor_count(&params->list[i].tensor) * (params->list[i].narrow ? (double)NARROW_BYTES : (double)sizeof(float));
  return bytes;
}

static Status plan_model(const ModelConfig *config, const TokenLayout *layout, PlanNode *node) {
  Model *model;
  TRY(model_new(&model, config));
  Status status = param_reserve(model_params(model), false);
  node->weights = weight_bytes(model_params(model));
  if (status == STATUS_OK) status = plan_on_tape(model, layout, &node->work);
  model_free(model);
  return status;
}

static double cache_bytes(KvShape shape, int64_t local, int64_t sites, int64_t number_bytes) {
  shape.local = local;
  shape.sites = sites;
  shape.number_bytes = number_bytes;
  return (double)kv_cache_predict(&shape);
}

/* own: tokens of the node, of node->tokens. */
static void plan_caches(const ModelConfig *config, int64_t own, PlanNode *node) {
  const AstraConfig *astra = &config->astra;
  int64_t all = node->tokens, sites = config_sites(config);
  KvShape shape = {.tokens = all, .blocks = config->blocks, .width = config->width / config->heads * config->kv_heads};
  if (astra->groups > 0) shape.token_bytes = (int64_t)pack_bytes_per_token(astra->groups, astra->codebook_size);
  node->cache = cache_bytes(shape, own, sites, NARROW_BYTES);
  node->cache_full = cache_bytes(shape, all, sites, NARROW_BYTES);
  node->paper = cache_bytes(shape, own, PAPER_SITES, NARROW_BYTES);
  node->paper_full = cache_bytes(shape, all, PAPER_SITES, NARROW_BYTES);
  if (astra->groups > 0)
    node->codebooks = (double)(config->blocks * sites) * astra->codebook_size * (double)config_site_width(config) * NARROW_BYTES;
}

/* The last node's, or the plain model's. */
static Status lay_out(const ModelConfig *config, int64_t tokens, TokenLayout *layout) {
  int devices = config->astra.groups > 0 ? config->astra.devices : 1;
  int64_t *counts = calloc((size_t)devices, sizeof *counts);
  if (counts == NULL) return status_set(STATUS_NO_MEMORY, "no memory to plan a node");
  layout_even_counts(tokens, devices, counts);
  Status status = layout_build(layout, tokens, devices, counts, NULL, CLASS_NONE, devices - 1);
  free(counts);
  return status;
}

Status plan_node_make(const ModelConfig *config, int64_t tokens, PlanNode *node) {
  TokenLayout layout = {0};
  *node = (PlanNode){.tokens = tokens};
  TRY(lay_out(config, tokens, &layout));
  plan_caches(config, layout.rows, node);
  Status status = plan_model(config, &layout, node);
  node->together = node->weights + node->codebooks + node->cache + node->work;
  layout_release(&layout);
  return status;
}
