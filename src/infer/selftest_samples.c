/* Tensors of a self-test's file: shapes, ids and codes are checked here, what they mean is selftest.c's. */
#include "infer/selftest_samples.h"
#include "nn/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Status find(const SafeFile *file, const char *name, int dims, const int64_t *shape, const SafeTensor **tensor) {
  *tensor = safetensors_find(file, name);
  if (!*tensor) return status_set(STATUS_BAD_FILE, "%s: there is no tensor %s", file->path, name);
  bool same = (*tensor)->dims == dims;
  for (int i = 0; same && i < dims; i++) same = (*tensor)->shape[i] == shape[i];
  if (same) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: the shape of %s does not fit this model", file->path, name);
}

static Status read_reals(const SafeFile *file, const char *name, int dims, const int64_t *shape, real **out) {
  const SafeTensor *tensor;
  TRY(find(file, name, dims, shape, &tensor));
  *out = malloc((size_t)tensor->count * sizeof(real));
  if (!*out) return status_set(STATUS_NO_MEMORY, "no memory for %s", name);
  Status status = safetensors_to_real(tensor, *out);
  return status == STATUS_OK ? status : status_wrap(status, "%s", file->path);
}

static Status read_integers(const SafeFile *file, const char *name, int dims, const int64_t *shape, int32_t **out) {
  const SafeTensor *tensor;
  TRY(find(file, name, dims, shape, &tensor));
  *out = malloc((size_t)tensor->count * sizeof(int32_t));
  if (!*out) return status_set(STATUS_NO_MEMORY, "no memory for %s", name);
  Status status = safetensors_to_int32(tensor, *out);
  return status == STATUS_OK ? status : status_wrap(status, "%s", file->path);
}

/* ---- images ---- */

static Status read_pixels(const SafeFile *file, const ModelConfig *config, SelftestSamples *samples) {
  const SafeTensor *pixels = safetensors_find(file, "pixel_values");
  if (!pixels || pixels->dims != 4 || pixels->shape[0] < 1)
    return status_set(STATUS_BAD_FILE, "%s: there is no tensor pixel_values [B, C, H, W]", file->path);
  const int64_t shape[4] = {samples->count = pixels->shape[0], config->channels, config->image, config->image};
  real *values = NULL;
  samples->pixels = shape[1] * shape[2] * shape[3];
  Status status = read_reals(file, "pixel_values", 4, shape, &values);
  if (status == STATUS_OK && !(samples->pixel_values = malloc((size_t)pixels->count * sizeof(float))))
    status = status_set(STATUS_NO_MEMORY, "no memory for the sample images");
  for (int64_t i = 0; status == STATUS_OK && i < pixels->count; i++) samples->pixel_values[i] = (float)values[i];
  free(values);
  return status;
}

static Status read_images(const SafeFile *file, const ModelConfig *config, SelftestSamples *samples) {
  samples->tokens = config_tokens(config);
  samples->classes = config->classes;
  TRY(read_pixels(file, config, samples));
  const int64_t shape[2] = {samples->count, samples->classes};
  return read_reals(file, "logits", 2, shape, &samples->logits);
}

/* ---- texts ---- */

static Status check_ids(const SafeFile *file, const char *name, const int32_t *ids, int64_t count, int64_t min, int64_t vocabulary) {
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] < min || ids[i] >= vocabulary)
      return status_set(STATUS_BAD_FILE, "%s: %s holds id %d, the vocabulary has %lld tokens", file->path, name, (int)ids[i],
                        (long long)vocabulary);
  }
  return STATUS_OK;
}

static Status read_ids(const SafeFile *file, const ModelConfig *config, SelftestSamples *samples) {
  const char *name = safetensors_find(file, "ids") ? "ids" : "input_ids";
  const SafeTensor *ids = safetensors_find(file, name);
  if (!ids || ids->dims != 2 || ids->shape[0] < 1 || ids->shape[1] < 1)
    return status_set(STATUS_BAD_FILE, "%s: there is no tensor ids [B, T]", file->path);
  if (ids->shape[1] > config->context)
    return status_set(STATUS_BAD_FILE, "%s: texts of %lld tokens; the model takes at most %lld", file->path, (long long)ids->shape[1],
                      (long long)config->context);
  samples->count = ids->shape[0];
  samples->tokens = ids->shape[1];
  TRY(read_integers(file, name, 2, ids->shape, &samples->ids));
  return check_ids(file, name, samples->ids, ids->count, 0, config->vocabulary);
}

/* The reference implementation keeps the losses of tokens and of codebooks apart: the first is meant. */
static Status read_loss(const SafeFile *file, const ModelConfig *config, SelftestSamples *samples) {
  const char *name = safetensors_find(file, "task_loss") ? "task_loss" : "loss";
  const int64_t shape[2] = {samples->count, samples->tokens}, one = 1;
  real *loss = NULL;
  if (!safetensors_find(file, "labels") || !safetensors_find(file, name)) return STATUS_OK;
  Status status = read_reals(file, name, 1, &one, &loss);
  if (status == STATUS_OK) samples->loss = (double)loss[0];
  free(loss);
  if (status == STATUS_OK) status = read_integers(file, "labels", 2, shape, &samples->labels);
  return status == STATUS_OK ? check_ids(file, "labels", samples->labels, shape[0] * shape[1], -1, config->vocabulary) : status;
}

/* Logits of the last tokens [B, V], or the last rows of those of all tokens [B, T, V]. */
static Status read_last_logits(const SafeFile *file, SelftestSamples *samples) {
  const SafeTensor *tensor = safetensors_find(file, "logits");
  const int64_t all[3] = {samples->count, samples->tokens, samples->classes}, last[2] = {samples->count, samples->classes};
  if (!tensor || tensor->dims != 3) return read_reals(file, "logits", 2, last, &samples->logits);
  TRY(read_reals(file, "logits", 3, all, &samples->logits));
  for (int64_t b = 0; b < samples->count; b++)
    memmove(samples->logits + b * samples->classes, samples->logits + ((b + 1) * samples->tokens - 1) * samples->classes,
            (size_t)samples->classes * sizeof(real));
  return STATUS_OK;
}

/* Texts to classify are of one length, which padding may follow: of a text with fewer tokens than devices training emulates a token for
 * each device. What stands behind the text changes nothing before it, and is left out here. */
static Status read_length(const SafeFile *file, SelftestSamples *samples) {
  int32_t *lengths = NULL;
  samples->length = samples->tokens;
  if (!safetensors_find(file, "lengths")) return STATUS_OK;
  Status status = read_integers(file, "lengths", 1, &samples->count, &lengths);
  if (status == STATUS_OK) samples->length = lengths[0];
  if (status == STATUS_OK && (samples->length < 1 || samples->length > samples->tokens))
    status = status_set(STATUS_BAD_FILE, "%s: a text of %lld tokens in %lld places", file->path, (long long)samples->length,
                        (long long)samples->tokens);
  for (int64_t b = 1; status == STATUS_OK && b < samples->count; b++) {
    if (lengths[b] != lengths[0]) status = status_set(STATUS_BAD_FILE, "%s: lengths differ; texts of one length are expected", file->path);
  }
  free(lengths);
  return status;
}

/* The first `length` of `tokens` rows [B, tokens, width]. */
static void cut_rows(int32_t *rows, int64_t batch, int64_t tokens, int64_t length, int64_t width) {
  for (int64_t b = 1; b < batch; b++)
    memmove(rows + b * length * width, rows + b * tokens * width, (size_t)(length * width) * sizeof *rows);
}

static void leave_padding_out(SelftestSamples *samples) {
  if (samples->length == samples->tokens) return;
  cut_rows(samples->ids, samples->count, samples->tokens, samples->length, 1);
  for (int i = 0; i < samples->sets; i++) cut_rows(samples->codes[i], samples->count, samples->tokens, samples->length, samples->groups);
  samples->tokens = samples->length;
}

static Status read_texts(const SafeFile *file, const ModelConfig *config, SelftestSamples *samples) {
  samples->classes = config->classes > 0 ? config->classes : config->vocabulary;
  TRY(read_ids(file, config, samples));
  TRY(read_length(file, samples));
  if (config->classes == 0) TRY(read_loss(file, config, samples));
  return read_last_logits(file, samples);
}

/* ---- codes ---- */

static void code_name(const Weights *weights, int set, char *name, size_t room) {
  static const char *const kv[2] = {"k", "v"};
  int sites = config_sites(weights->config);
  snprintf(name, room, "codes.astra.layers.%d.%s", set / sites, sites == 1 ? "x" : kv[set % sites]);
}

static Status read_codes(const SafeFile *file, const Weights *weights, SelftestSamples *samples) {
  int64_t shape[3] = {samples->count, samples->tokens, weights->config->astra.groups};
  char name[64];
  TRY(read_integers(file, "device_of", 1, &samples->tokens, &samples->device_of));
  samples->sets = weights->book_count;
  samples->groups = shape[2];
  samples->codes = calloc((size_t)samples->sets, sizeof(int32_t *));
  if (!samples->codes) return status_set(STATUS_NO_MEMORY, "no memory for the sample codes");
  for (int i = 0; i < samples->sets; i++) {
    code_name(weights, i, name, sizeof name);
    TRY(read_integers(file, name, 3, shape, &samples->codes[i]));
    for (int64_t j = 0; j < shape[0] * shape[1] * shape[2]; j++) {
      if (samples->codes[i][j] < 0 || samples->codes[i][j] >= weights->config->astra.codebook_size)
        return status_set(STATUS_BAD_FILE, "%s: %s holds code %d, the codebook has %d", file->path, name, (int)samples->codes[i][j],
                          weights->config->astra.codebook_size);
    }
  }
  return STATUS_OK;
}

/* ---- the file ---- */

Status selftest_samples_read(SelftestSamples *samples, const Weights *weights, const char *path) {
  SafeFile file;
  *samples = (SelftestSamples){.count = 0};
  TRY(safetensors_open(&file, path));
  Status status = (config_is_decoder(weights->config) ? read_texts : read_images)(&file, weights->config, samples);
  if (status == STATUS_OK && weights->books) status = read_codes(&file, weights, samples);
  if (status == STATUS_OK && samples->ids) leave_padding_out(samples);
  safetensors_close(&file);
  return status;
}

void selftest_samples_release(SelftestSamples *samples) {
  for (int i = 0; samples->codes && i < samples->sets; i++) free(samples->codes[i]);
  free(samples->codes);
  free(samples->pixel_values);
  free(samples->ids);
  free(samples->labels);
  free(samples->logits);
  free(samples->device_of);
  *samples = (SelftestSamples){.count = 0};
}
