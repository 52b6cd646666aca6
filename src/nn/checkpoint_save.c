/* Writing a checkpoint, or only codebooks. Invariant: every file is written whole beside its place and renamed, config.json last, and
 * nothing is written at all when a parameter is not finite, so that what lies in the directory can always be loaded. */
#include "autograd/narrow.h"
#include "base/text.h"
#include "nn/checkpoint_internal.h"
#include "nn/json_build.h"
#include "nn/model_internal.h"
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tensors in one file, or in shards with an index ---- */

enum { NAME = 64 };
static const char *const metadata[] = {"format", "pt", NULL};

static int64_t item_bytes(const SafeItem *item) {
  int64_t bytes = (int64_t)safe_dtype_bytes(item->dtype);
  for (int i = 0; i < item->dims; i++) bytes *= item->shape[i];
  return bytes;
}

static int64_t total_bytes(const SafeItem *items, size_t count) {
  int64_t total = 0;
  for (size_t i = 0; i < count; i++) total += item_bytes(&items[i]);
  return total;
}

/* How many of the items go into the next shard: at least one. */
static size_t shard_length(const SafeItem *items, size_t count, int64_t max) {
  int64_t bytes = item_bytes(&items[0]);
  size_t length = 1;
  while (length < count && bytes + item_bytes(&items[length]) <= max) bytes += item_bytes(&items[length++]);
  return length;
}

static void shard_name(char name[NAME], size_t shard, size_t shards) {
  snprintf(name, NAME, "model-%05zu-of-%05zu.safetensors", shard + 1, shards);
}

static void part_name(char part[NAME + 8], size_t shard, size_t shards) {
  char name[NAME];
  shard_name(name, shard, shards);
  snprintf(part, NAME + 8, "%s.part", name);
}

static Status save_file(const char *directory, const char *name, const SafeItem *items, size_t count) {
  char *path = files_join(directory, name);
  if (!path) return status_no_memory(directory, "saving a checkpoint");
  Status status = safetensors_save(path, items, count, metadata);
  free(path);
  return status;
}

static Status remove_file(const char *directory, const char *name) {
  char *path = files_join(directory, name);
  if (!path) return status_no_memory(directory, "saving a checkpoint");
  Status status = files_remove(path);
  free(path);
  return status;
}

/* ---- what an earlier checkpoint left */

/* All but the `shards` new ones, and parts of a save that was killed. Processes that have them mapped keep them. */
static Status remove_old_shards(const char *directory, size_t shards) {
  char **names;
  size_t count;
  TRY(files_list(directory, &names, &count));
  Status status = STATUS_OK;
  for (size_t i = 0; i < count && status == STATUS_OK; i++) {
    size_t shard, of;
    char same[NAME], part[NAME + 8];
    if (sscanf(names[i], "model-%5zu-of-%5zu.", &shard, &of) != 2) continue;
    shard_name(same, shard - 1, of);
    part_name(part, shard - 1, of);
    const bool is_new = of == shards && shard >= 1 && shard <= shards;
    if ((strcmp(names[i], same) == 0 && !is_new) || strcmp(names[i], part) == 0) status = remove_file(directory, names[i]);
  }
  files_list_free(names, count);
  return status;
}

/* ---- shards: first NAME.part, so that no shard of the old checkpoint is replaced before all of the new one are on the disk */

static Status save_index(const char *directory, const SafeItem *items, size_t count, int64_t max, size_t shards) {
  json_t *map = json_object();
  for (size_t at = 0, shard = 0, length; at < count; at += length, shard++) {
    char name[NAME];
    length = shard_length(items + at, count - at, max);
    shard_name(name, shard, shards);
    for (size_t i = at; i < at + length; i++) json_build_put(&map, items[i].name, json_string(name));
  }
  const json_int_t total = (json_int_t)total_bytes(items, count);
  return json_build_save(json_pack("{s:{s:I}, s:o}", "metadata", "total_size", total, "weight_map", map), directory, CHECKPOINT_INDEX);
}

static Status save_shards(const char *directory, const SafeItem *items, size_t count, int64_t max) {
  size_t shards = 0;
  for (size_t at = 0; at < count; at += shard_length(items + at, count - at, max)) shards++;
  if (shards > SHARD_INDEX_MAX)
    return status_set(STATUS_BAD_VALUE, "%s: %zu shards, where at most %d are accepted; choose larger ones", directory, shards,
                      (int)SHARD_INDEX_MAX);
  Status status = STATUS_OK;
  char part[NAME + 8];
  for (size_t at = 0, shard = 0, length; at < count && status == STATUS_OK; at += length, shard++) {
    length = shard_length(items + at, count - at, max);
    part_name(part, shard, shards);
    status = save_file(directory, part, items + at, length);
  }
  if (status == STATUS_OK) status = remove_file(directory, CHECKPOINT_INDEX); /* half renamed, it would name shards of two checkpoints */
  for (size_t shard = 0; shard < shards && status == STATUS_OK; shard++) {
    char name[NAME];
    shard_name(name, shard, shards);
    part_name(part, shard, shards);
    char *from = files_join(directory, part), *to = files_join(directory, name);
    status = from && to ? STATUS_OK : status_no_memory(directory, "saving a checkpoint");
    if (status == STATUS_OK && rename(from, to) != 0) status = status_set(STATUS_IO, "cannot rename %s: %s", from, strerror(errno));
    free(from);
    free(to);
  }
  for (size_t shard = 0; shard < shards && status != STATUS_OK; shard++) {
    part_name(part, shard, shards);
    (void)remove_file(directory, part);
  }
  TRY(status);
  TRY(save_index(directory, items, count, max, shards));
  TRY(remove_file(directory, CHECKPOINT_WHOLE)); /* a reader would take it first */
  return remove_old_shards(directory, shards);
}

/* model.safetensors, or, when the tensors take more than `max` bytes, model-00001-of-0000N.safetensors of at most that (except for a single
 * tensor that is larger) and model.safetensors.index.json. Shards get their names when all are written, and an old index is gone before the
 * first of them does: a save that is interrupted leaves shards that no reader takes for a checkpoint, not a mixture. What the directory
 * held before, in either form, is removed at the end. `max` is varied by test_checkpoint_decoder (save_sharded). */
static Status save_tensors(const char *directory, const SafeItem *items, size_t count, int64_t max) {
  if (total_bytes(items, count) > max) return save_shards(directory, items, count, max);
  TRY(save_file(directory, CHECKPOINT_WHOLE, items, count));
  TRY(remove_file(directory, CHECKPOINT_INDEX));
  return remove_old_shards(directory, 0);
}

/* ---- Codebooks ---- */

/* Tensors astra.layers.L.<site>.codebook [G, K, W/G], in model.safetensors or in codebooks.safetensors. Of several bit rates the one with
 * the most groups has these names, so that programs that know one rate use it, and the others astra.layers.L.<site>.groupsG.codebook. */

enum { CODEBOOK_NAME = 96, CODEBOOK_DIMS = 3 };

/* Of all rates; 0 for a plain model. */
static int64_t codebooks_count(const ModelConfig *config) { return config_rates(config) * config_codebooks(config); }

/* The rate that a codebook is of. */
static int rate_of(const ModelConfig *config, int64_t index) { return (int)(index / config_codebooks(config)); }

static void name_of(const ModelConfig *config, int64_t index, const char *what, char name[CODEBOOK_NAME]) {
  char place[CONFIG_CODEBOOK_PLACE], rate[CONFIG_RATE_PREFIX];
  snprintf(name, CODEBOOK_NAME, "%s.%s%s", config_codebook_place(config, index % config_codebooks(config), place),
           config_rate_prefix(config, rate_of(config, index), rate), what);
}

/* index: as config_codebooks counts, the rates behind one another */
static void codebooks_name(const ModelConfig *config, int64_t index, char name[CODEBOOK_NAME]) { name_of(config, index, "codebook", name); }

/* of the same site */
static void codebooks_frequencies_name(const ModelConfig *config, int64_t index, char name[CODEBOOK_NAME]) {
  name_of(config, index, "frequencies", name);
}

/* [G, K, W/G]; not for a plain model. All have as many numbers. */
static void codebooks_shape(const ModelConfig *config, int64_t index, int64_t shape[CODEBOOK_DIMS]) {
  shape[0] = config_rate_groups(config, rate_of(config, index));
  shape[1] = config->astra.codebook_size;
  shape[2] = config_site_width(config) / shape[0];
}

static Status read_codebooks(const CheckpointFiles *files, const ModelConfig *config, real *out) {
  int64_t shape[CODEBOOK_DIMS], count = codebooks_count(config);
  for (int64_t i = 0; i < count; i++) {
    codebooks_shape(config, i, shape);
    char name[CODEBOOK_NAME], have[SHAPE_TEXT] = "none", want[SHAPE_TEXT];
    codebooks_name(config, i, name);
    const SafeTensor *tensor = checkpoint_files_find(files, name);
    if (tensor) checkpoint_shape_text(have, tensor->dims, tensor->shape);
    if (!tensor || !checkpoint_same_shape(tensor, CODEBOOK_DIMS, shape))
      return status_set(STATUS_BAD_FILE,
                        "%s: the configuration asks for tensor %s of shape %s (groups, codebook_size, width / groups), the file has %s",
                        files->path, name, checkpoint_shape_text(want, CODEBOOK_DIMS, shape), have);
    if (out) TRY(checkpoint_read(files, tensor, out + i * shape[0] * shape[1] * shape[2]));
  }
  return STATUS_OK;
}

static bool is_codebook(const char *name) { return strncmp(name, "astra.layers.", 13) == 0 && text_ends_with(name, ".codebook"); }

/* NOT_FOUND, with nothing open, when the files are absent or hold no codebook at all. */
static Status open_with_codebooks(CheckpointFiles *files, const char *path) {
  TRY(checkpoint_files_open(files, path));
  for (size_t i = 0; i < files->count; i++)
    for (size_t j = 0; j < files->list[i].count; j++)
      if (is_codebook(files->list[i].list[j].name)) return STATUS_OK;
  checkpoint_files_close(files);
  return status_set(STATUS_NOT_FOUND,
                    "%s holds no codebooks (tensors astra.layers.L.<site>.codebook); make them with astra-kmeans init or astra-train",
                    path);
}

Status checkpoint_load_codebooks(const ModelConfig *config, const char *directory, real *codebooks) {
  if (codebooks_count(config) == 0) return status_set(STATUS_NOT_FOUND, "%s: a plain model (groups 0) has no codebooks", directory);
  CheckpointFiles files;
  Status status = open_with_codebooks(&files, directory);
  if (status == STATUS_NOT_FOUND && files_is_dir(directory)) {
    char *beside = files_join(directory, CHECKPOINT_CODEBOOKS);
    if (!beside) return status_no_memory(directory, "opening its codebooks");
    if (files_exists(beside)) status = open_with_codebooks(&files, beside);
    free(beside);
  }
  if (status != STATUS_OK) return status;
  status = read_codebooks(&files, config, codebooks);
  checkpoint_files_close(&files);
  return status;
}

/* ---- Frequencies of codes ---- */

/* In a file of their own, since they can be counted for an existing checkpoint, whose weights need not be written again for that. */

enum { DIMS = 2, TOTAL = 65536 };
#define ENTROPY_WEIGHT "astra.entropy_weight"

/* ---- reading */

static Status read_one(const SafeFile *file, const char *name, const int64_t *shape, int32_t *wide, uint16_t *out) {
  const SafeTensor *tensor = safetensors_find(file, name);
  if (tensor == NULL || tensor->dims != DIMS || tensor->shape[0] != shape[0] || tensor->shape[1] != shape[1])
    return status_set(STATUS_BAD_FILE, "%s: the configuration asks for tensor %s of shape [%lld, %lld] (groups, codebook_size)", file->path,
                      name, (long long)shape[0], (long long)shape[1]);
  Status status = safetensors_to_int32(tensor, wide);
  if (status != STATUS_OK) return status_wrap(status, "%s", file->path);
  for (int64_t g = 0; g < shape[0]; g++) {
    int64_t sum = 0;
    int32_t min = INT32_MAX; /* with it at 1 or more, the sum keeps all below 65,536 */
    for (int64_t k = g * shape[1]; k < (g + 1) * shape[1]; k++) sum += wide[k], min = wide[k] < min ? wide[k] : min;
    if (sum != TOTAL || min < 1)
      return status_set(STATUS_BAD_FILE,
                        "%s: tensor %s: the numbers of group %lld sum to %lld, the minimum is %d; a sum of %d and none below 1 is accepted",
                        file->path, name, (long long)g, (long long)sum, (int)min, TOTAL);
  }
  for (int64_t i = 0; i < tensor->count; i++) out[i] = (uint16_t)wide[i];
  return STATUS_OK;
}

static Status read_weight(const SafeFile *file, real *weight) {
  const SafeTensor *tensor = safetensors_find(file, ENTROPY_WEIGHT);
  *weight = 0;
  if (tensor == NULL) return STATUS_OK;
  if (tensor->count == 1) TRY(safetensors_to_real(tensor, weight));
  if (tensor->count != 1 || !(*weight >= 0 && *weight <= CHECKPOINT_ENTROPY_WEIGHT_MAX))
    return status_set(STATUS_BAD_FILE, "%s: tensor " ENTROPY_WEIGHT ": one number from 0 to %d is accepted", file->path,
                      CHECKPOINT_ENTROPY_WEIGHT_MAX);
  return STATUS_OK;
}

static Status read_all(const SafeFile *file, const ModelConfig *config, uint16_t *frequencies) {
  int64_t shape[CODEBOOK_DIMS];
  const int64_t count = codebooks_count(config);
  codebooks_shape(config, count - 1, shape); /* the most groups */
  int32_t *wide = malloc((size_t)(shape[0] * shape[1]) * sizeof *wide);
  Status status = wide ? STATUS_OK : status_no_memory(file->path, "frequencies of codes");
  for (int64_t i = 0; status == STATUS_OK && i < count; i++) {
    char name[CODEBOOK_NAME];
    codebooks_shape(config, i, shape);
    codebooks_frequencies_name(config, i, name);
    status = read_one(file, name, shape, wide, frequencies);
    frequencies += shape[0] * shape[1];
  }
  free(wide);
  return status;
}

int64_t checkpoint_frequencies(const ModelConfig *config) {
  int64_t groups = 0;
  for (int r = 0; r < config_rates(config); r++) groups += config_rate_groups(config, r);
  return groups * config_codebooks(config) * config->astra.codebook_size;
}

Status checkpoint_load_frequencies(const ModelConfig *config, const char *directory, uint16_t *frequencies, real *weight) {
  if (codebooks_count(config) == 0) return status_set(STATUS_NOT_FOUND, "%s: a plain model (groups 0) has no codes", directory);
  char *path = files_join(directory, CHECKPOINT_FREQUENCIES);
  if (path == NULL) return status_no_memory(directory, "frequencies of codes");
  SafeFile file;
  Status status =
      files_exists(path)
          ? safetensors_open(&file, path)
          : status_set(STATUS_NOT_FOUND, "%s holds no " CHECKPOINT_FREQUENCIES ", which astra-kmeans frequencies makes", directory);
  free(path);
  if (status != STATUS_OK) return status;
  status = read_all(&file, config, frequencies);
  if (status == STATUS_OK) status = read_weight(&file, weight);
  safetensors_close(&file);
  return status;
}

/* ---- writing */

static Status write_all(const ModelConfig *config, const char *path, const uint16_t *frequencies, real weight) {
  int64_t shape[CODEBOOK_DIMS], count = codebooks_count(config);
  SafeItem *items = calloc((size_t)count + 1, sizeof *items);
  char(*names)[CODEBOOK_NAME] = calloc((size_t)count, sizeof *names);
  Status status = items && names ? STATUS_OK : status_no_memory(path, "frequencies of codes");
  for (int64_t i = 0; status == STATUS_OK && i < count; i++) {
    codebooks_shape(config, i, shape);
    codebooks_frequencies_name(config, i, names[i]);
    items[i] = (SafeItem){.name = names[i], .dtype = SAFE_U16, .source = SAFE_U16, .dims = DIMS, .shape = {shape[0], shape[1]}};
    items[i].data = frequencies;
    frequencies += shape[0] * shape[1];
  }
  if (status == STATUS_OK)
    items[count] = (SafeItem){.name = ENTROPY_WEIGHT, .dtype = SAFE_F32, .source = SAFE_REAL, .dims = 1, .shape = {1}, .data = &weight};
  if (status == STATUS_OK)
    status = safetensors_save(path, items, (size_t)count + (weight > 0), (const char *const[]){"format", "pt", NULL});
  free(items), free(names);
  return status;
}

Status checkpoint_save_frequencies(const ModelConfig *config, const char *directory, const uint16_t *frequencies, real weight) {
  char *path = files_join(directory, CHECKPOINT_FREQUENCIES);
  if (path == NULL) return status_no_memory(directory, "frequencies of codes");
  Status status = STATUS_OK;
  if (frequencies != NULL && codebooks_count(config) == 0)
    status = status_set(STATUS_BAD_VALUE, "%s: a plain model (groups 0) has no codes", directory);
  else if (frequencies != NULL)
    status = write_all(config, path, frequencies, weight);
  else
    status = files_remove(path);
  free(path);
  return status;
}

/* ---- Saving ---- */

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

Status checkpoint_save_check(const char *name, const real *value, int64_t count) {
  if (tensor_all_finite(value, count)) return STATUS_OK;
  return status_set(STATUS_NUMERIC, "tensor %s holds a NaN or an infinity: nothing has been saved", name);
}

static SafeItem *next_item(Items *items, const char *name, SafeDtype dtype, int dims, const int64_t *shape) {
  SafeItem *item = &items->list[items->count++];
  *item = (SafeItem){.name = name, .dtype = dtype, .source = SAFE_REAL, .dims = dims};
  memcpy(item->shape, shape, (size_t)dims * sizeof *shape);
  return item;
}

/* ---- parameters */

/* The entries of a matrix: 1 or 2, into items; scale_name receives the name of the second. Returns how many. */
static size_t lowbit_items(const Param *param, char scale_name[LOWBIT_SCALE_NAME], SafeItem items[2]) {
  const LowbitMatrix *matrix = param->tensor.lowbit;
  const SafeDtype dtype = matrix->kind == LOWBIT_INT8 ? SAFE_I8 : SAFE_U8;
  items[0] = (SafeItem){.name = param->name,
                        .dtype = dtype,
                        .source = dtype,
                        .dims = 2,
                        .shape = {matrix->outputs, (int64_t)lowbit_row_bytes(matrix->kind, matrix->inputs)},
                        .data = matrix->numbers};
  if (matrix->kind != LOWBIT_INT8) return 1;
  items[1] = (SafeItem){.name = checkpoint_scale_name(scale_name, param),
                        .dtype = SAFE_F32,
                        .source = SAFE_F32,
                        .dims = 1,
                        .shape = {matrix->outputs},
                        .data = matrix->scale};
  return 2;
}

/* A weight with its adapters: 16-bit or real numbers as they are, plus alpha / rank B A. */
static void fill_folded(void *context, int64_t first, int64_t count, void *out) {
  const Folded *folded = context;
  const Tensor *tensor = &model_params(folded->model)->list[folded->index].tensor;
  real *numbers = out;
  for (int64_t i = 0; i < count; i++)
    numbers[i] = tensor->narrow ? (real)narrow_to_float(tensor->narrow_kind, tensor->narrow[first + i]) : tensor->value[first + i];
  adapters_fold(folded->model, folded->values, folded->index, first, count, numbers);
}

static Status add_param(Items *items, Model *model, size_t index, const real *values, SafeDtype dtype) {
  const Param *param = &model_params(model)->list[index];
  const Tensor *tensor = &param->tensor;
  if (tensor->lowbit) { /* found finite when it was made or mapped */
    items->count += lowbit_items(param, items->scales[index], &items->list[items->count]);
    return STATUS_OK;
  }
  SafeItem *item = next_item(items, param->name, dtype, tensor->dims, tensor->shape);
  if (adapters_has(model, index)) {
    items->folded[index] = (Folded){model, values, index};
    item->fill = fill_folded;
    item->context = &items->folded[index];
    real numbers[256];
    const int64_t count = tensor_count(tensor);
    for (int64_t done = 0; done < count; done += 256) {
      const int64_t n = count - done < 256 ? count - done : 256;
      item->fill(item->context, done, n, numbers);
      TRY(checkpoint_save_check(item->name, numbers, n));
    }
    return STATUS_OK;
  }
  if (tensor->narrow) { /* found finite when it was mapped */
    item->source = tensor->narrow_kind == NARROW_F16 ? SAFE_F16 : SAFE_BF16;
    item->data = tensor->narrow;
    return STATUS_OK;
  }
  const real *data = values && !param->frozen ? values + param_offset(model_params(model), index) : tensor->value;
  item->data = data;
  return checkpoint_save_check(param->name, data, tensor_count(tensor));
}

/* ---- codebooks */

static Status add_codebooks(Items *items, const ModelConfig *config, const real *codebooks, SafeDtype dtype) {
  int64_t shape[CODEBOOK_DIMS], count = codebooks ? codebooks_count(config) : 0;
  for (int64_t i = 0; i < count; i++) {
    codebooks_shape(config, i, shape);
    codebooks_name(config, i, items->names[i]);
    int64_t numbers = shape[0] * shape[1] * shape[2];
    next_item(items, items->names[i], dtype, CODEBOOK_DIMS, shape)->data = codebooks + i * numbers;
    TRY(checkpoint_save_check(items->names[i], codebooks + i * numbers, numbers));
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
  return status_no_memory(directory, "saving a checkpoint");
}

static void release_items(Items *items) {
  free(items->list);
  free(items->names);
  free(items->scales);
  free(items->folded);
}

/* max_bytes: of a shard; varied by test_checkpoint_decoder and test_lowbit_checkpoint, else CHECKPOINT_SHARD. */
static Status save_sharded(Model *model, const char *directory, const real *codebooks, const real *values, SafeDtype dtype,
                           int64_t max_bytes) {
  const ModelConfig *config = model_config(model);
  if (!safe_dtype_is_float(dtype)) return status_set(STATUS_BAD_VALUE, "a checkpoint's numbers are F32, F16 or BF16");
  Items items;
  Status status = init_items(&items, model_params(model)->count, (size_t)codebooks_count(config), directory);
  for (size_t i = 0; i < model_params(model)->count && status == STATUS_OK; i++)
    if (!model_is_adapter(model, i)) status = add_param(&items, model, i, values, dtype);
  if (status == STATUS_OK) status = add_codebooks(&items, config, codebooks, dtype);
  if (status == STATUS_OK) status = files_make_dirs(directory);
  if (status == STATUS_OK) status = save_tensors(directory, items.list, items.count, max_bytes);
  if (status == STATUS_OK) status = config_save(config, directory);
  release_items(&items);
  return status;
}

Status checkpoint_save(Model *model, const char *directory, const real *codebooks, const real *values, SafeDtype dtype) {
  return save_sharded(model, directory, codebooks, values, dtype, CHECKPOINT_SHARD);
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
  char *path = files_join(directory, CHECKPOINT_CODEBOOKS);
  Status status = init_items(&items, 0, count, directory);
  if (!path) status = status_no_memory(directory, "saving codebooks");
  if (status == STATUS_OK) status = add_codebooks(&items, config, codebooks, dtype);
  if (status == STATUS_OK) status = files_make_dirs(directory);
  if (status == STATUS_OK) status = safetensors_save(path, items.list, items.count, (const char *const[]){"format", "pt", NULL});
  if (status == STATUS_OK) status = config_save(config, directory);
  release_items(&items);
  free(path);
  return status;
}
