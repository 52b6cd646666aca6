/* Frequencies of codes in a checkpoint. A file of their own, since they can be counted for a checkpoint that is there already, whose
 * weights need not be written again for it. */
#include "nn/checkpoint.h"
#include "nn/checkpoint_codebooks.h"
#include "nn/safetensors.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS = 2, TOTAL = 65536 };

/* ---- reading */

static Status check_group(const char *path, const char *name, int64_t group, const int32_t *numbers, int64_t entries) {
  int64_t sum = 0;
  bool zero = false;
  for (int64_t k = 0; k < entries; k++) sum += numbers[k], zero = zero || numbers[k] == 0;
  if (sum == TOTAL && !zero) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: tensor %s: the numbers of group %lld sum to %lld%s; %d and none of them 0 is accepted", path,
                    name, (long long)group, (long long)sum, zero ? " and one is 0" : "", TOTAL);
}

static Status read_one(const SafeFile *file, const char *name, const int64_t *shape, int32_t *wide, uint16_t *out) {
  const SafeTensor *tensor = safetensors_find(file, name);
  if (tensor == NULL || tensor->dims != DIMS || tensor->shape[0] != shape[0] || tensor->shape[1] != shape[1])
    return status_set(STATUS_BAD_FILE, "%s: the configuration asks for tensor %s of shape [%lld, %lld] (groups, codebook_size)", file->path,
                      name, (long long)shape[0], (long long)shape[1]);
  Status status = safetensors_to_int32(tensor, wide);
  if (status != STATUS_OK) return status_wrap(status, "%s", file->path);
  for (int64_t g = 0; g < shape[0]; g++) TRY(check_group(file->path, name, g, wide + g * shape[1], shape[1]));
  for (int64_t i = 0; i < tensor->count; i++) out[i] = (uint16_t)wide[i];
  return STATUS_OK;
}

static Status read_all(const SafeFile *file, const ModelConfig *config, uint16_t *frequencies) {
  int64_t shape[CODEBOOK_DIMS], numbers;
  codebooks_shape(config, shape);
  numbers = shape[0] * shape[1];
  int32_t *wide = malloc((size_t)numbers * sizeof *wide);
  Status status = wide ? STATUS_OK : status_no_memory(file->path, "frequencies of codes");
  for (int64_t i = 0; status == STATUS_OK && i < codebooks_count(config); i++) {
    char name[CODEBOOK_NAME];
    codebooks_frequencies_name(config, i, name);
    status = read_one(file, name, shape, wide, frequencies + i * numbers);
  }
  free(wide);
  return status;
}

Status checkpoint_load_frequencies(const ModelConfig *config, const char *directory, uint16_t *frequencies) {
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
  safetensors_close(&file);
  return status;
}

/* ---- writing */

static Status write_all(const ModelConfig *config, const char *path, const uint16_t *frequencies) {
  int64_t shape[CODEBOOK_DIMS], count = codebooks_count(config);
  codebooks_shape(config, shape);
  SafeItem *items = calloc((size_t)count, sizeof *items);
  char(*names)[CODEBOOK_NAME] = calloc((size_t)count, sizeof *names);
  Status status = items && names ? STATUS_OK : status_no_memory(path, "frequencies of codes");
  for (int64_t i = 0; status == STATUS_OK && i < count; i++) {
    codebooks_frequencies_name(config, i, names[i]);
    items[i] = (SafeItem){.name = names[i], .dtype = SAFE_U16, .source = SAFE_U16, .dims = DIMS, .shape = {shape[0], shape[1]}};
    items[i].data = frequencies + i * shape[0] * shape[1];
  }
  if (status == STATUS_OK) status = safetensors_save(path, items, (size_t)count, (const char *const[]){"format", "pt", NULL});
  free(items), free(names);
  return status;
}

static Status remove_file(const char *path) {
  if (remove(path) == 0 || errno == ENOENT) return STATUS_OK;
  return status_set(STATUS_IO, "%s: cannot be removed: %s", path, strerror(errno));
}

Status checkpoint_save_frequencies(const ModelConfig *config, const char *directory, const uint16_t *frequencies) {
  char *path = files_join(directory, CHECKPOINT_FREQUENCIES);
  if (path == NULL) return status_no_memory(directory, "frequencies of codes");
  Status status = STATUS_OK;
  if (frequencies == NULL)
    status = remove_file(path);
  else if (codebooks_count(config) == 0)
    status = status_set(STATUS_BAD_VALUE, "%s: a plain model (groups 0) has no codes", directory);
  else
    status = write_all(config, path, frequencies);
  free(path);
  return status;
}
