/* Codebooks in a checkpoint: tensors astra.layers.L.<site>.codebook [G, K, W/G], in model.safetensors or in codebooks.safetensors. */
#include "nn/checkpoint_codebooks.h"
#include "nn/checkpoint.h"
#include "nn/checkpoint_files.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t codebooks_count(const ModelConfig *config) { return config->astra.groups > 0 ? config->blocks * config_sites(config) : 0; }

static void name_of(const ModelConfig *config, int64_t index, const char *what, char name[CODEBOOK_NAME]) {
  static const char *const both[] = {"k", "v"};
  int64_t sites = config_sites(config);
  snprintf(name, CODEBOOK_NAME, "astra.layers.%lld.%s.%s", (long long)(index / sites), sites == 1 ? "x" : both[index % sites], what);
}

void codebooks_name(const ModelConfig *config, int64_t index, char name[CODEBOOK_NAME]) { name_of(config, index, "codebook", name); }

void codebooks_frequencies_name(const ModelConfig *config, int64_t index, char name[CODEBOOK_NAME]) {
  name_of(config, index, "frequencies", name);
}

void codebooks_shape(const ModelConfig *config, int64_t shape[CODEBOOK_DIMS]) {
  shape[0] = config->astra.groups;
  shape[1] = config->astra.codebook_size;
  shape[2] = config_site_width(config) / config->astra.groups;
}

static Status read_codebook(const CheckpointFiles *files, const char *name, const int64_t *shape, real *out) {
  char have[SHAPE_TEXT] = "none", want[SHAPE_TEXT];
  const SafeTensor *tensor = checkpoint_files_find(files, name);
  if (tensor && checkpoint_same_shape(tensor, CODEBOOK_DIMS, shape)) return checkpoint_read(files, tensor, out);
  if (tensor) checkpoint_shape_text(have, tensor->dims, tensor->shape);
  return status_set(STATUS_BAD_FILE,
                    "%s: the configuration asks for tensor %s of shape %s (groups, codebook_size, width / groups), the file has %s",
                    files->path, name, checkpoint_shape_text(want, CODEBOOK_DIMS, shape), have);
}

static Status read_codebooks(const CheckpointFiles *files, const ModelConfig *config, real *out) {
  int64_t shape[CODEBOOK_DIMS], count = codebooks_count(config);
  codebooks_shape(config, shape);
  for (int64_t i = 0; i < count; i++) {
    char name[CODEBOOK_NAME];
    codebooks_name(config, i, name);
    TRY(read_codebook(files, name, shape, out + i * shape[0] * shape[1] * shape[2]));
  }
  return STATUS_OK;
}

/* NOT_FOUND, with nothing open, when the files are absent or hold no codebook at all. */
static Status open_with_codebooks(CheckpointFiles *files, const char *path) {
  TRY(checkpoint_files_open(files, path));
  if (checkpoint_files_codebooks(files) > 0) return STATUS_OK;
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
    char *beside = files_join(directory, "codebooks.safetensors");
    if (!beside) return status_set(STATUS_NO_MEMORY, "%s: no memory to open its codebooks", directory);
    if (files_exists(beside)) status = open_with_codebooks(&files, beside);
    free(beside);
  }
  if (status != STATUS_OK) return status;
  status = read_codebooks(&files, config, codebooks);
  checkpoint_files_close(&files);
  return status;
}
