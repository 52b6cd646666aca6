/* Writing a model's adapters alone, in PEFT's layout, which knows only whole weights: where several projections with adapters are parts of
 * one weight (GPT-2's c_attn), A holds theirs one below the other, B holds theirs as blocks, and rank_pattern and alpha_pattern give that
 * weight a larger rank at the same alpha / rank.
 * Invariant: weight + lora_alpha / r * lora_B lora_A (transposed with fan_in_fan_out) is the weight that checkpoint_save writes. */
#include "nn/checkpoint_internal.h"
#include "nn/json_build.h"
#include "nn/model_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 160, PARTS = 3 };

/* A weight with the projections of it that have adapters. */
typedef struct Adapted {
  char module[NAME]; /* its name without ".weight" */
  char a_name[NAME], b_name[NAME];
  const Projection *part[PARTS];
  int parts;
  int64_t in, out, rank; /* rank: of all parts together */
  real *a, *b;           /* [rank, in], [out, rank]; owned */
} Adapted;

typedef struct Export {
  Adapted *list;
  SafeItem *items;
  size_t count, item_count;
  char (*heads)[NAME]; /* names of what learns beside adapters */
  size_t head_count;
} Export;

static Status fill_adapted(Model *model, const real *values, Adapted *adapted) {
  const Tensor *weight = model_param(model, adapted->part[0]->weight);
  bool transposed = adapted->part[0]->part.transposed;
  int64_t rank = model_param(model, adapted->part[0]->lora_a)->shape[0];
  adapted->in = weight->shape[transposed ? 0 : 1];
  adapted->out = weight->shape[transposed ? 1 : 0];
  adapted->rank = rank * adapted->parts;
  adapted->a = calloc((size_t)(adapted->rank * adapted->in), sizeof *adapted->a);
  adapted->b = calloc((size_t)(adapted->out * adapted->rank), sizeof *adapted->b);
  if (adapted->a == NULL || adapted->b == NULL) return status_no_memory(NULL, "exporting adapters");
  for (int p = 0; p < adapted->parts; p++) {
    const Projection *projection = adapted->part[p];
    const real *a = adapters_values(model, values, projection->lora_a), *b = adapters_values(model, values, projection->lora_b);
    memcpy(adapted->a + p * rank * adapted->in, a, (size_t)(rank * adapted->in) * sizeof *a);
    for (int64_t o = 0; o < projection->part.count; o++)
      memcpy(adapted->b + (projection->part.first + o) * adapted->rank + p * rank, b + o * rank, (size_t)rank * sizeof *b);
  }
  return STATUS_OK;
}

/* columns 0: a vector. */
static Status add_matrix(Export *export, const char *name, int64_t rows, int64_t columns, const real *data) {
  TRY(checkpoint_save_check(name, data, rows * (columns > 0 ? columns : 1)));
  export->items[export->item_count++] =
      (SafeItem){.name = name, .dtype = SAFE_F32, .source = SAFE_REAL, .dims = columns > 0 ? 2 : 1, .shape = {rows, columns}, .data = data};
  return STATUS_OK;
}

static Status add_weight(Export *export, Model *model, const real *values, size_t index) {
  Adapted *adapted = &export->list[export->count];
  const Projection *part = NULL;
  while (adapted->parts < PARTS && (part = adapters_next(model, index, part)) != NULL) adapted->part[adapted->parts++] = part;
  if (adapted->parts == 0) return STATUS_OK;
  export->count++;
  const char *name = model->params.list[index].name;
  const size_t length = strlen(name);
  snprintf(adapted->module, NAME, "%s", name);
  if (length > 7 && length < NAME && strcmp(name + length - 7, ".weight") == 0) adapted->module[length - 7] = '\0';
  snprintf(adapted->a_name, NAME, "base_model.model.%.110s.lora_A.weight", adapted->module);
  snprintf(adapted->b_name, NAME, "base_model.model.%.110s.lora_B.weight", adapted->module);
  TRY(fill_adapted(model, values, adapted));
  TRY(add_matrix(export, adapted->a_name, adapted->rank, adapted->in, adapted->a));
  return add_matrix(export, adapted->b_name, adapted->out, adapted->rank, adapted->b);
}

/* A head of classes, which learns as a whole. The bases of codebooks, which are fitted, are of no use to other programs. */
static Status add_head(Export *export, Model *model, const real *values, size_t index) {
  const Param *param = &model->params.list[index];
  char *name = export->heads[export->head_count];
  if (param->frozen || param->fitted) return STATUS_OK;
  export->head_count++;
  snprintf(name, NAME, "base_model.model.%.120s", param->name);
  const real *data = adapters_values(model, values, (int)index);
  TRY(add_matrix(export, name, tensor_count(&param->tensor), 0, data));
  SafeItem *item = &export->items[export->item_count - 1];
  item->dims = param->tensor.dims;
  memcpy(item->shape, param->tensor.shape, (size_t)item->dims * sizeof *item->shape);
  return STATUS_OK;
}

/* ---- adapter_config.json */

static Status save_config(const Export *export, Model *model, const char *directory, const char *base) {
  const Projection *first = export->list[0].part[0];
  int64_t rank = model_param(model, first->lora_a)->shape[0];
  const char *task = !config_is_decoder(&model->config) ? NULL : model->config.classes > 0 ? "SEQ_CLS" : "CAUSAL_LM";
  json_t *root = json_object(), *targets = json_array(), *ranks = json_object(), *alphas = json_object();
  for (size_t i = 0; i < export->count; i++) {
    const Adapted *adapted = &export->list[i];
    json_build_append(&targets, json_string(adapted->module));
    if (adapted->rank == rank) continue;
    json_build_put(&ranks, adapted->module, json_integer(adapted->rank));
    json_build_put(&alphas, adapted->module, json_build_number(model->adapter_scale * (double)adapted->rank));
  }
  json_build_put(&root, "peft_type", json_string("LORA"));
  json_build_put(&root, "task_type", task ? json_string(task) : json_null());
  json_build_put(&root, "base_model_name_or_path", base ? json_string(base) : json_null());
  json_build_put(&root, "inference_mode", json_true());
  json_build_put(&root, "r", json_integer(rank));
  json_build_put(&root, "lora_alpha", json_build_number(model->adapter_scale * (double)rank));
  json_build_put(&root, "lora_dropout", json_build_number(0));
  json_build_put(&root, "bias", json_string("none"));
  json_build_put(&root, "fan_in_fan_out", json_boolean(first->part.transposed));
  json_build_put(&root, "target_modules", targets);
  json_build_put(&root, "rank_pattern", ranks);
  json_build_put(&root, "alpha_pattern", alphas);
  json_t *heads = export->head_count > 0 ? json_array() : json_null();
  char last[NAME] = "";
  for (size_t i = 0; i < export->head_count; i++) { /* modules of whole parameters, each once: "classifier" for its weight and its bias */
    char module[NAME];
    snprintf(module, NAME, "%s", export->heads[i] + strlen("base_model.model."));
    *strrchr(module, '.') = '\0';
    if (strcmp(module, last) != 0) json_build_append(&heads, json_string(module));
    strcpy(last, module);
  }
  json_build_put(&root, "modules_to_save", heads);
  return json_build_save(root, directory, "adapter_config.json");
}

Status checkpoint_save_adapters(Model *model, const char *directory, const real *values, const char *base) {
  if (model->adapters_first == 0) return status_set(STATUS_BAD_VALUE, "%s: a model without adapters has none to save", directory);
  const size_t max = model->adapters_first + 1;
  Export export = {
      .list = calloc(max, sizeof *export.list), .items = calloc(2 * max, sizeof *export.items), .heads = calloc(max, sizeof *export.heads)};
  char *path = files_join(directory, "adapter_model.safetensors");
  Status status = STATUS_OK;
  if (!path || !export.list || !export.items || !export.heads) status = status_no_memory(NULL, "exporting adapters");
  for (size_t i = 0; i < model->adapters_first && status == STATUS_OK; i++) {
    status = add_weight(&export, model, values, i);
    if (status == STATUS_OK) status = add_head(&export, model, values, i);
  }
  if (status == STATUS_OK) status = files_make_dirs(directory);
  if (status == STATUS_OK) status = safetensors_save(path, export.items, export.item_count, (const char *const[]){"format", "pt", NULL});
  if (status == STATUS_OK) status = save_config(&export, model, directory, base);
  for (size_t i = 0; i < export.count; i++) free(export.list[i].a), free(export.list[i].b);
  free(export.list), free(export.items), free(export.heads);
  free(path);
  return status;
}
