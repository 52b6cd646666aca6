/* Parameters that do not learn, shared by forked processes: F32 tensors stay where they are in the file's mapping, and so do 16-bit
 * matrices whose operations widen them; all others are widened once into one block that is then made read-only.
 *
 *   block | widened 0 .... pad | widened 3 ... pad |        (anonymous, shared, each on a cache line)
 *
 * Invariant: no page behind a mapped parameter is writable, and every number in it is finite. */
#include "base/gguf.h"
#include "nn/checkpoint.h"
#include "nn/checkpoint_files.h"
#include "nn/lowbit_checkpoint.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct CheckpointMapping {
  CheckpointFiles files;
  LowbitMatrix *matrices; /* [matrix_count] of as many as there are parameters: those that are kept in blocks */
  size_t matrix_count;
  real *block;
  size_t bytes;
};

static bool usable_in_place(const SafeTensor *tensor) {
  return tensor->lowbit == LOWBIT_NONE && tensor->dtype == SAFE_REAL && !REAL_IS_DOUBLE && (uintptr_t)tensor->data % sizeof(real) == 0;
}

static NarrowKind kept_narrow(const Param *param, const SafeTensor *tensor) {
  if (!param->narrow || tensor->lowbit != LOWBIT_NONE || (uintptr_t)tensor->data % sizeof(uint16_t) != 0) return NARROW_NONE;
  return tensor->dtype == SAFE_F16 ? NARROW_F16 : tensor->dtype == SAFE_BF16 ? NARROW_BF16 : NARROW_NONE;
}

/* For inference alone: nothing goes backward through blocks. */
static bool kept_lowbit(const ParamSet *set, const Param *param, const SafeTensor *tensor) {
  bool taken = param->narrow && tensor->lowbit != LOWBIT_NONE && tensor->shape[1] <= LOWBIT_MAX_INPUTS;
  return taken && !set->values && (uintptr_t)tensor->data % sizeof(uint16_t) == 0;
}

/* Of astra-quantize: find_fitting has looked at its shape. */
static bool is_lowbit_file(const Param *param, const SafeTensor *tensor) {
  return param->narrow && tensor->lowbit == LOWBIT_NONE && (tensor->dtype == SAFE_I8 || tensor->dtype == SAFE_U8);
}

/* What has a place in the set's own blocks is not mapped. */
static bool is_mapped(const ParamSet *set, const Param *param) { return param->frozen ? !set->frozen_values : !set->values; }

/* Inference changes nothing: what does not fit as it is has to be trained first. */
static Status find_fitting(const CheckpointFiles *files, const Param *param, const SafeTensor **tensor) {
  char have[SHAPE_TEXT] = "none", want[SHAPE_TEXT];
  *tensor = checkpoint_files_find(files, param->name);
  LowbitMatrix matrix;
  TRY(lowbit_checkpoint_find(files, param, *tensor, &matrix));
  if (matrix.kind != LOWBIT_NONE) return STATUS_OK;
  if (*tensor && checkpoint_same_shape(*tensor, param->tensor.dims, param->tensor.shape)) return STATUS_OK;
  if (!*tensor && files->index) return checkpoint_files_incomplete(files, param);
  if (*tensor) checkpoint_shape_text(have, (*tensor)->dims, (*tensor)->shape);
  if (gguf_is_file(files->path))
    return status_set(STATUS_BAD_FILE, "%s: its metadata ask for tensor %s of shape %s, the file has %s; is it a whole model's file?",
                      files->path, param->name, checkpoint_shape_text(want, param->tensor.dims, param->tensor.shape), have);
  return status_set(STATUS_BAD_FILE,
                    "%s: config.json asks for tensor %s of shape %s, the file has %s; run astra-train with --init on this checkpoint first",
                    files->path, param->name, checkpoint_shape_text(want, param->tensor.dims, param->tensor.shape), have);
}

static Status make_block(CheckpointMapping *mapping, const ParamSet *set) {
  int64_t numbers = 0;
  for (size_t i = 0; i < set->count; i++) {
    const SafeTensor *tensor;
    if (!is_mapped(set, &set->list[i])) continue;
    TRY(find_fitting(&mapping->files, &set->list[i], &tensor));
    if (!usable_in_place(tensor) && !kept_narrow(&set->list[i], tensor) && !kept_lowbit(set, &set->list[i], tensor) &&
        !is_lowbit_file(&set->list[i], tensor))
      numbers += param_padded(&set->list[i]);
  }
  if (numbers == 0) return STATUS_OK;
  mapping->bytes = (size_t)numbers * sizeof(real);
  void *block = mmap(NULL, mapping->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED)
    return status_set(STATUS_NO_MEMORY, "%s: no memory for %.1f MB of parameters", mapping->files.path, (double)mapping->bytes / 1e6);
  mapping->block = block;
  return STATUS_OK;
}

static Status check_scales(const CheckpointMapping *mapping, const SafeTensor *tensor) {
  size_t block = lowbit_row_bytes(tensor->lowbit, LOWBIT_BLOCK);
  int bad = 0;
  for (size_t at = 0; at < tensor->bytes; at += block) {
    uint16_t scale;
    memcpy(&scale, tensor->data + at, sizeof scale);
    bad |= (scale & 0x7c00) == 0x7c00;
  }
  if (!bad) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: tensor %.100s holds a NaN or an infinity", mapping->files.path, tensor->name);
}

/* Of numbers that stay in the file, looked at piece by piece beside their digest, which is when their pages are first touched. */
typedef struct FiniteCheck {
  NarrowKind kind;
  int bad;
} FiniteCheck;

/* Bits of an exponent that is all ones: an infinity or a NaN. No early exit: the loops become vector instructions. */
static void check_piece(void *context, const uint8_t *data, size_t bytes) {
  FiniteCheck *check = context;
  const uint16_t exponent = check->kind == NARROW_F16 ? 0x7c00 : 0x7f80, *narrow = (const uint16_t *)(const void *)data;
  const real *wide = (const real *)(const void *)data;
  int bad = 0;
  if (check->kind != NARROW_NONE)
    for (size_t i = 0; i < bytes / sizeof *narrow; i++) bad |= (narrow[i] & exponent) == exponent;
  else
    for (size_t i = 0; i < bytes / sizeof *wide; i++) bad |= !isfinite(wide[i]);
  check->bad |= bad;
}

static Status check_in_place(const CheckpointMapping *mapping, const SafeTensor *tensor, NarrowKind kind) {
  FiniteCheck check = {.kind = kind};
  Status status = safetensors_walk(tensor, check_piece, &check);
  if (status != STATUS_OK) return status_wrap(status, "%s", mapping->files.path);
  if (!check.bad) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: tensor %.100s holds a NaN or an infinity", mapping->files.path, tensor->name);
}

static Status place_lowbit(CheckpointMapping *mapping, const ParamSet *set, Param *param, const SafeTensor *tensor) {
  LowbitMatrix *matrix = &mapping->matrices[mapping->matrix_count++];
  if (set->values) return lowbit_checkpoint_refuse(&mapping->files, param);
  TRY(lowbit_checkpoint_find(&mapping->files, param, tensor, matrix));
  param->tensor.lowbit = matrix;
  return lowbit_checkpoint_check(&mapping->files, param, tensor, matrix);
}

/* The numbers of one parameter, in the file or at *free_place, which moves on. */
static Status place_numbers(CheckpointMapping *mapping, const ParamSet *set, Param *param, const SafeTensor *tensor, real **free_place) {
  NarrowKind kind = kept_narrow(param, tensor);
  if (is_lowbit_file(param, tensor)) return place_lowbit(mapping, set, param, tensor);
  if (kept_lowbit(set, param, tensor)) {
    LowbitMatrix *matrix = &mapping->matrices[mapping->matrix_count++];
    *matrix = (LowbitMatrix){tensor->lowbit, tensor->shape[0], tensor->shape[1], tensor->data, NULL};
    param->tensor.lowbit = matrix;
    return check_scales(mapping, tensor);
  }
  if (kind) {
    param->tensor.narrow = (uint16_t *)(uintptr_t)tensor->data; /* frozen: never written */
    param->tensor.narrow_kind = kind;
    return check_in_place(mapping, tensor, kind);
  }
  if (usable_in_place(tensor)) {
    param->tensor.value = (real *)(uintptr_t)tensor->data;
    return check_in_place(mapping, tensor, NARROW_NONE);
  }
  param->tensor.value = *free_place;
  *free_place += param_padded(param);
  return checkpoint_read(&mapping->files, tensor, param->tensor.value);
}

static void forget(Param *param) {
  Tensor *tensor = &param->tensor;
  tensor->value = tensor->grad = NULL;
  tensor->narrow = NULL;
  tensor->narrow_kind = NARROW_NONE;
  tensor->lowbit = NULL;
  tensor->needs_grad = tensor->grad_filled = false;
}

static Status place_param(CheckpointMapping *mapping, const ParamSet *set, Param *param, real **free_place) {
  const SafeTensor *tensor;
  TRY(find_fitting(&mapping->files, param, &tensor));
  forget(param);
  return place_numbers(mapping, set, param, tensor, free_place);
}

static Status map_all(CheckpointMapping *mapping, Model *model, const char *directory) {
  ParamSet *set = model_params(model);
  TRY(checkpoint_files_open(&mapping->files, directory));
  TRY(checkpoint_files_check_depth(&mapping->files, model_config(model)));
  TRY(make_block(mapping, set));
  mapping->matrices = malloc((set->count + 1) * sizeof *mapping->matrices);
  if (!mapping->matrices) return status_set(STATUS_NO_MEMORY, "%s: no memory to open it", directory);
  real *free_place = mapping->block;
  for (size_t i = 0; i < set->count; i++)
    if (is_mapped(set, &set->list[i])) TRY(place_param(mapping, set, &set->list[i], &free_place));
  if (mapping->block && mprotect(mapping->block, mapping->bytes, PROT_READ) != 0)
    return status_set(STATUS_IO, "%s: cannot make the parameters read-only", directory);
  return STATUS_OK;
}

Status checkpoint_map_params(Model *model, const char *directory, CheckpointMapping **mapping) {
  *mapping = calloc(1, sizeof **mapping);
  if (!*mapping) return status_set(STATUS_NO_MEMORY, "%s: no memory to open it", directory);
  Status status = map_all(*mapping, model, directory);
  if (status == STATUS_OK) return status;
  ParamSet *set = model_params(model);
  for (size_t i = 0; i < set->count; i++)
    if (is_mapped(set, &set->list[i])) forget(&set->list[i]); /* what was placed goes away now */
  checkpoint_unmap(*mapping);
  *mapping = NULL;
  return status;
}

void checkpoint_unmap(CheckpointMapping *mapping) {
  if (!mapping) return;
  if (mapping->block) munmap(mapping->block, mapping->bytes);
  checkpoint_files_close(&mapping->files);
  free(mapping->matrices);
  free(mapping);
}

Status checkpoint_unchanged(const CheckpointMapping *mapping) {
  for (size_t i = 0; i < mapping->files.count; i++) TRY(files_unchanged(&mapping->files.list[i].map, mapping->files.list[i].path));
  return STATUS_OK;
}

const char *checkpoint_file_at(const CheckpointMapping *mapping, const void *address) {
  for (size_t i = 0; i < mapping->files.count; i++) {
    const FileMap *map = &mapping->files.list[i].map;
    if ((const uint8_t *)address >= map->data && (const uint8_t *)address < map->data + map->size) return mapping->files.list[i].path;
  }
  return NULL;
}
