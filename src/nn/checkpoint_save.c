/* Writing a checkpoint, or codebooks alone. Invariant: every file is written whole beside its place and renamed, config.json last, and
 * nothing is written at all when a parameter is not finite, so that what lies in the directory can always be loaded. */
#include "autograd/narrow.h"
#include "nn/adapters.h"
#include "nn/checkpoint.h"
#include "nn/checkpoint_codebooks.h"
#include "nn/checkpoint_shards.h"
#include "nn/lowbit_checkpoint.h"
#include "nn/safetensors_convert.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Folded {
  Model *model;
  const real *values; /* of the adapters */
  size_t index;       /* of the weight */
} Folded;

typedef struct Items {
  SafeItem *list;
  char (*names)[CODEBOOK_NAME];      /* of the codebooks */
  char (*scales)[LOWBIT_SCALE_NAME]; /* of the matrices of 8 bits */
  Folded *folded;                    /* [parameters] */
  size_t count;
} Items;

static Status not_finite(const char *name) {
  return status_set(STATUS_NUMERIC, "tensor %s holds a NaN or an infinity: nothing has been saved", name);
}

static bool all_finite(const real *value, int64_t count) {
  int bad = 0; /* no early exit: the loop becomes vector instructions */
  for (int64_t i = 0; i < count; i++) bad |= !isfinite(value[i]);
  return !bad;
}

static SafeItem *next_item(Items *items, const char *name, SafeDtype dtype, int dims, const int64_t *shape) {
  SafeItem *item = &items->list[items->count++];
  *item = (SafeItem){.name = name, .dtype = dtype, .source = SAFE_REAL, .dims = dims};
  memcpy(item->shape, shape, (size_t)dims * sizeof *shape);
  return item;
}

/* ---- parameters */

/* A weight with its adapters: 16-bit or real numbers as they are, plus alpha / rank B A. */
static void fill_folded(void *context, int64_t first, int64_t count, void *out) {
  const Folded *folded = context;
  const Tensor *tensor = &model_params(folded->model)->list[folded->index].tensor;
  real *numbers = out;
  for (int64_t i = 0; i < count; i++)
    numbers[i] = tensor->narrow ? (real)narrow_to_float(tensor->narrow_kind, tensor->narrow[first + i]) : tensor->value[first + i];
  adapters_fold(folded->model, folded->values, folded->index, first, count, numbers);
}

static Status check_folded(const SafeItem *item, int64_t count) {
  real numbers[256];
  for (int64_t done = 0; done < count; done += 256) {
    int64_t n = count - done < 256 ? count - done : 256;
    item->fill(item->context, done, n, numbers);
    if (!all_finite(numbers, n)) return not_finite(item->name);
  }
  return STATUS_OK;
}

static Status add_param(Items *items, Model *model, size_t index, const real *values, SafeDtype dtype) {
  const Param *param = &model_params(model)->list[index];
  const Tensor *tensor = &param->tensor;
  if (tensor->lowbit) { /* found finite when it was made or mapped */
    items->count += lowbit_checkpoint_items(param, items->scales[index], &items->list[items->count]);
    return STATUS_OK;
  }
  SafeItem *item = next_item(items, param->name, dtype, tensor->dims, tensor->shape);
  if (adapters_has(model, index)) {
    items->folded[index] = (Folded){model, values, index};
    item->fill = fill_folded;
    item->context = &items->folded[index];
    return check_folded(item, tensor_count(tensor));
  }
  if (tensor->narrow) { /* found finite when it was mapped */
    item->source = tensor->narrow_kind == NARROW_F16 ? SAFE_F16 : SAFE_BF16;
    item->data = tensor->narrow;
    return STATUS_OK;
  }
  const real *data = values && !param->frozen ? values + param_offset(model_params(model), index) : tensor->value;
  item->data = data;
  return all_finite(data, tensor_count(tensor)) ? STATUS_OK : not_finite(param->name);
}

static Status add_params(Items *items, Model *model, const real *values, SafeDtype dtype) {
  for (size_t i = 0; i < model_params(model)->count; i++)
    if (!adapters_is_one(model, i)) TRY(add_param(items, model, i, values, dtype));
  return STATUS_OK;
}

/* ---- codebooks */

static Status add_codebooks(Items *items, const ModelConfig *config, const real *codebooks, SafeDtype dtype) {
  int64_t shape[CODEBOOK_DIMS], count = codebooks ? codebooks_count(config) : 0;
  if (count == 0) return STATUS_OK;
  codebooks_shape(config, shape);
  for (int64_t i = 0; i < count; i++) {
    codebooks_name(config, i, items->names[i]);
    int64_t numbers = shape[0] * shape[1] * shape[2];
    next_item(items, items->names[i], dtype, CODEBOOK_DIMS, shape)->data = codebooks + i * numbers;
    if (!all_finite(codebooks + i * numbers, numbers)) return not_finite(items->names[i]);
  }
  return STATUS_OK;
}

/* ---- the whole */

static Status init_items(Items *items, size_t params, size_t codebooks, const char *directory) {
  *items = (Items){.list = calloc(2 * params + codebooks + 1, sizeof *items->list),
                   .names = calloc(codebooks + 1, sizeof *items->names),
                   .scales = calloc(params + 1, sizeof *items->scales),
                   .folded = calloc(params + 1, sizeof *items->folded)};
  if (items->list && items->names && items->scales && items->folded) return STATUS_OK;
  return status_set(STATUS_NO_MEMORY, "%s: no memory to save a checkpoint", directory);
}

static void release_items(Items *items) {
  free(items->list);
  free(items->names);
  free(items->scales);
  free(items->folded);
}

Status checkpoint_save_sharded(Model *model, const char *directory, const real *codebooks, const real *values, SafeDtype dtype,
                               int64_t most_bytes) {
  const ModelConfig *config = model_config(model);
  if (!safe_dtype_is_float(dtype)) return status_set(STATUS_BAD_VALUE, "a checkpoint's numbers are F32, F16 or BF16");
  Items items;
  Status status = init_items(&items, model_params(model)->count, (size_t)codebooks_count(config), directory);
  if (status == STATUS_OK) status = add_params(&items, model, values, dtype);
  if (status == STATUS_OK) status = add_codebooks(&items, config, codebooks, dtype);
  if (status == STATUS_OK) status = files_make_dirs(directory);
  if (status == STATUS_OK) status = checkpoint_shards_save(directory, items.list, items.count, most_bytes);
  if (status == STATUS_OK) status = config_save(config, directory);
  release_items(&items);
  return status;
}

Status checkpoint_save(Model *model, const char *directory, const real *codebooks, const real *values, SafeDtype dtype) {
  return checkpoint_save_sharded(model, directory, codebooks, values, dtype, CHECKPOINT_SHARD);
}

Status checkpoint_refuse_codebooks(const char *directory) {
  const char *name;
  TRY(checkpoint_find_weights(directory, &name));
  if (!name) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s holds a checkpoint (%s): codebooks alone go into a directory of their own", directory, name);
}

Status checkpoint_save_codebooks(const ModelConfig *config, const char *directory, const real *codebooks, SafeDtype dtype) {
  size_t count = (size_t)codebooks_count(config);
  if (!safe_dtype_is_float(dtype)) return status_set(STATUS_BAD_VALUE, "a checkpoint's numbers are F32, F16 or BF16");
  if (count == 0) return status_set(STATUS_BAD_VALUE, "%s: a plain model (groups 0) has no codebooks to save", directory);
  TRY(checkpoint_refuse_codebooks(directory));
  Items items;
  char *path = files_join(directory, "codebooks.safetensors");
  Status status = init_items(&items, 0, count, directory);
  if (!path) status = status_set(STATUS_NO_MEMORY, "%s: no memory to save codebooks", directory);
  if (status == STATUS_OK) status = add_codebooks(&items, config, codebooks, dtype);
  if (status == STATUS_OK) status = files_make_dirs(directory);
  if (status == STATUS_OK) status = safetensors_save(path, items.list, items.count, (const char *const[]){"format", "pt", NULL});
  if (status == STATUS_OK) status = config_save(config, directory);
  release_items(&items);
  free(path);
  return status;
}
