/* Writing a checkpoint, or codebooks alone. Invariant: every file is written whole beside its place and renamed, config.json last, and
 * nothing is written at all when a parameter is not finite, so that what lies in the directory can always be loaded. */
#include "nn/checkpoint.h"
#include "nn/checkpoint_codebooks.h"
#include "nn/safetensors_convert.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Items {
  SafeItem *list;
  char (*names)[CODEBOOK_NAME]; /* of the codebooks */
  size_t count;
} Items;

static Status add_item(Items *items, const char *name, SafeDtype dtype, int dims, const int64_t *shape, const real *data) {
  SafeItem *item = &items->list[items->count++];
  *item = (SafeItem){.name = name, .dtype = dtype, .source = SAFE_REAL, .dims = dims, .data = data};
  int64_t count = 1;
  for (int i = 0; i < dims; i++) count *= item->shape[i] = shape[i];
  int bad = 0;
  for (int64_t i = 0; i < count; i++) bad |= !isfinite(data[i]);
  return bad ? status_set(STATUS_NUMERIC, "tensor %s holds a NaN or an infinity: nothing has been saved", name) : STATUS_OK;
}

static Status add_params(Items *items, const ParamSet *set, const real *values, SafeDtype dtype) {
  for (size_t i = 0; i < set->count; i++) {
    const Param *param = &set->list[i];
    TRY(add_item(items, param->name, dtype, param->tensor.dims, param->tensor.shape, values ? values : param->tensor.value));
    if (values) values += param_padded(param);
  }
  return STATUS_OK;
}

static Status add_codebooks(Items *items, const ModelConfig *config, const real *codebooks, SafeDtype dtype) {
  int64_t shape[CODEBOOK_DIMS], count = codebooks ? codebooks_count(config) : 0;
  if (count == 0) return STATUS_OK;
  codebooks_shape(config, shape);
  for (int64_t i = 0; i < count; i++) {
    codebooks_name(config, i, items->names[i]);
    TRY(add_item(items, items->names[i], dtype, CODEBOOK_DIMS, shape, codebooks + i * shape[0] * shape[1] * shape[2]));
  }
  return STATUS_OK;
}

static Status save_tensors(const char *directory, const char *name, const Items *items) {
  static const char *const metadata[] = {"format", "pt", NULL};
  char *path = files_join(directory, name);
  if (!path) return status_set(STATUS_NO_MEMORY, "%s: no memory to save a checkpoint", directory);
  Status status = safetensors_save(path, items->list, items->count, metadata);
  free(path);
  return status;
}

Status checkpoint_save(Model *model, const char *directory, const real *codebooks, const real *values, SafeDtype dtype) {
  const ModelConfig *config = model_config(model);
  const ParamSet *set = model_params(model);
  size_t count = (size_t)codebooks_count(config);
  if (!safe_dtype_is_float(dtype)) return status_set(STATUS_BAD_VALUE, "a checkpoint's numbers are F32, F16 or BF16");
  Items items = {calloc(set->count + count + 1, sizeof *items.list), calloc(count + 1, sizeof *items.names), 0};
  Status status = STATUS_OK;
  if (!items.list || !items.names) status = status_set(STATUS_NO_MEMORY, "%s: no memory to save a checkpoint", directory);
  if (status == STATUS_OK) status = add_params(&items, set, values, dtype);
  if (status == STATUS_OK) status = add_codebooks(&items, config, codebooks, dtype);
  if (status == STATUS_OK) status = files_make_dirs(directory);
  if (status == STATUS_OK) status = save_tensors(directory, "model.safetensors", &items);
  if (status == STATUS_OK) status = config_save(config, directory);
  free(items.list);
  free(items.names);
  return status;
}

Status checkpoint_refuse_codebooks(const char *directory) {
  char *path = files_join(directory, "model.safetensors");
  if (!path) return status_set(STATUS_NO_MEMORY, "%s: no memory to save codebooks", directory);
  bool there = files_exists(path);
  free(path);
  if (!there) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s holds a checkpoint (model.safetensors): codebooks alone go into a directory of their own",
                    directory);
}

Status checkpoint_save_codebooks(const ModelConfig *config, const char *directory, const real *codebooks, SafeDtype dtype) {
  size_t count = (size_t)codebooks_count(config);
  if (!safe_dtype_is_float(dtype)) return status_set(STATUS_BAD_VALUE, "a checkpoint's numbers are F32, F16 or BF16");
  if (count == 0) return status_set(STATUS_BAD_VALUE, "%s: a plain model (groups 0) has no codebooks to save", directory);
  TRY(checkpoint_refuse_codebooks(directory));
  Items items = {calloc(count, sizeof *items.list), calloc(count, sizeof *items.names), 0};
  Status status = STATUS_OK;
  if (!items.list || !items.names) status = status_set(STATUS_NO_MEMORY, "%s: no memory to save codebooks", directory);
  if (status == STATUS_OK) status = add_codebooks(&items, config, codebooks, dtype);
  if (status == STATUS_OK) status = files_make_dirs(directory);
  if (status == STATUS_OK) status = save_tensors(directory, "codebooks.safetensors", &items);
  if (status == STATUS_OK) status = config_save(config, directory);
  free(items.list);
  free(items.names);
  return status;
}
