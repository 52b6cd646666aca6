/* Low-rank adapters (Hu et al., 2022): see model.h. Each projection of a block that is adapted has an A and a B of its own, also where
 * several projections are parts of one weight (GPT-2's c_attn), so that the names of targets mean the same for all models.
 * Invariant: the adapters are the last entries of the parameter table, and what comes before them is frozen except a head of classes and
 * what is fitted to codebooks. */
#include "nn/model_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TARGETS = 7 };

static const char *const target_names[TARGETS] = {"query", "key", "value", "output", "gate", "up", "down"};

static Projection *projection_of(BlockParams *block, int target) {
  Projection *const list[TARGETS] = {&block->query, &block->key, &block->value, &block->output, &block->gate, &block->up, &block->down};
  return list[target];
}

/* ---- Which projections ---- */

typedef struct Group {
  const char *name;
  int first, count; /* of target_names */
} Group;

static bool has_target(Model *model, int target) { return projection_of(&model->block[0], target)->weight >= 0; }

/* One word of a list sets its flags; a group takes what the model has of it. */
static bool set_target(Model *model, const char *word, size_t length, bool *wanted) {
  static const Group groups[] = {{"all", 0, TARGETS}, {"attention", 0, 4}, {"mlp", 4, 3}};
  for (int i = 0; i < TARGETS; i++)
    if (strlen(target_names[i]) == length && strncmp(target_names[i], word, length) == 0) return wanted[i] = has_target(model, i);
  for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
    if (strlen(groups[g].name) != length || strncmp(groups[g].name, word, length) != 0) continue;
    for (int i = groups[g].first; i < groups[g].first + groups[g].count; i++) wanted[i] = wanted[i] || has_target(model, i);
    return true;
  }
  return false;
}

static Status read_targets(Model *model, const char *text, bool *wanted) {
  for (const char *word = text;; word++) {
    size_t length = strcspn(word, ",");
    if (!set_target(model, word, length, wanted))
      return status_set(STATUS_BAD_VALUE,
                        "'%.*s' has no matrices to adapt in this model; accepted are all, attention, mlp, or some of query, key, "
                        "value, output, %sup, down, with commas between",
                        length < 40 ? (int)length : 40, word, has_target(model, 4) ? "gate, " : "");
    word += length;
    if (*word == '\0') return STATUS_OK;
  }
}

/* ---- Adding ---- */

static int64_t inputs(Model *model, const Projection *projection) {
  return model_param(model, projection->weight)->shape[projection->part.transposed ? 0 : 1];
}

Status model_add_adapters(Model *model, int rank, double alpha, const char *targets) {
  const ParamSet *set = &model->params;
  bool wanted[TARGETS] = {false};
  if (rank < 1 || rank > MODEL_ADAPTERS_RANK_MAX || rank > model->config.width)
    return status_set(STATUS_BAD_VALUE, "adapters of rank %d: 1 to %d are accepted, and no more than the model's width %lld", rank,
                      (int)MODEL_ADAPTERS_RANK_MAX, (long long)model->config.width);
  if (!(alpha > 0 && isfinite(alpha))) return status_set(STATUS_BAD_VALUE, "alpha %g of adapters: a positive number is accepted", alpha);
  if (model->adapters_first > 0 || set->values || set->frozen_values)
    return status_set(STATUS_BAD_VALUE, "adapters are added once, before the parameters have memory");
  TRY(read_targets(model, targets, wanted));
  model->adapters_first = model->params.count;
  for (int64_t block = 0; block < model->config.blocks; block++)
    for (int target = 0; target < TARGETS; target++)
      if (wanted[target]) {
        Projection *projection = projection_of(&model->block[block], target);
        char prefix[64];
        snprintf(prefix, sizeof prefix, "astra.lora.%lld.%s", (long long)block, target_names[target]);
        ModelPart a = {PARAM_NORMAL, true, false, 2, {rank, inputs(model, projection)}};
        ModelPart b = {PARAM_ZEROS, true, false, 2, {projection->part.count, rank}};
        projection->lora_a = model_add_param(model, &a, prefix, ".a", "");
        projection->lora_b = model_add_param(model, &b, prefix, ".b", "");
      }
  if (model->incomplete) {
    for (int64_t i = 0; i < model->config.blocks * TARGETS; i++) {
      Projection *projection = projection_of(&model->block[i / TARGETS], (int)(i % TARGETS));
      projection->lora_a = projection->lora_b = -1;
    }
    model->params.count = model->adapters_first;
    model->adapters_first = 0;
    model->incomplete = false;
    return status_set(STATUS_NO_MEMORY, "no memory for adapters of rank %d", rank);
  }
  for (size_t i = 0; i < model->adapters_first; i++)
    model->params.list[i].frozen = !model->params.list[i].optional && !model->params.list[i].fitted;
  model->adapter_scale = alpha / rank;
  return STATUS_OK;
}

/* ---- Folding into the weights ---- */

bool model_is_adapter(const Model *model, size_t index) { return model->adapters_first > 0 && index >= model->adapters_first; }

const Projection *adapters_next(const Model *model, size_t index, const Projection *after) {
  bool seen = after == NULL;
  for (int64_t block = 0; block < model->config.blocks; block++)
    for (int target = 0; target < TARGETS; target++) {
      const Projection *projection = projection_of(&model->block[block], target);
      if (seen && projection->lora_a >= 0 && projection->weight == (int)index) return projection;
      seen = seen || projection == after;
    }
  return NULL;
}

bool adapters_has(const Model *model, size_t index) { return adapters_next(model, index, NULL) != NULL; }

const real *adapters_values(const Model *model, const real *values, int index) {
  return values ? values + param_offset(&model->params, (size_t)index) : model->params.list[index].tensor.value;
}

static void fold_one(Model *model, const real *values, const Projection *projection, int64_t first, int64_t count, real *out) {
  const Tensor *weight = model_param(model, projection->weight);
  const real *a = adapters_values(model, values, projection->lora_a), *b = adapters_values(model, values, projection->lora_b);
  const LinearPart *part = &projection->part;
  int64_t columns = weight->shape[1], in = inputs(model, projection), rank = model_param(model, projection->lora_a)->shape[0];
  for (int64_t i = 0; i < count; i++) {
    int64_t row = (first + i) / columns, column = (first + i) % columns;
    int64_t output = (part->transposed ? column : row) - part->first, input = part->transposed ? row : column;
    if (output < 0 || output >= part->count) continue;
    double sum = 0;
    for (int64_t r = 0; r < rank; r++) sum += (double)b[output * rank + r] * (double)a[r * in + input];
    out[i] = (real)((double)out[i] + model->adapter_scale * sum);
  }
}

void adapters_fold(Model *model, const real *values, size_t index, int64_t first, int64_t count, real *out) {
  for (const Projection *projection = adapters_next(model, index, NULL); projection; projection = adapters_next(model, index, projection))
    fold_one(model, values, projection, first, count, out);
}
