/* The model's configuration as numbers: presets, ranges, class names and what follows from them. The JSON files are in config_json.c.
 * Invariant: every configuration that config_check accepts is small enough that no product of its fields overflows an int64_t. */
#include "nn/config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Preset {
  const char *name;
  int64_t image, patch, width, blocks, heads, mlp;
  double mean[3], std[3];
} Preset;

static const Preset presets[] = {
    {"vit-base", 224, 16, 768, 12, 12, 3072, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
    {"vit-small", 224, 16, 384, 12, 6, 1536, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
    {"vit-tiny", 224, 16, 192, 12, 3, 768, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
    {"vit-cifar", 32, 4, 192, 6, 3, 768, {0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}},
};
enum { PRESETS = sizeof presets / sizeof *presets };

const char *config_preset_names(void) { return "vit-base, vit-small, vit-tiny, vit-cifar"; }

/* The paper's settings, without groups: a plain model until somebody chooses them. */
static const AstraConfig paper_settings = {.groups = 0,
                                           .codebook_size = 1024,
                                           .devices = 4,
                                           .devices_least = 4,
                                           .site = SITE_X,
                                           .class_token = CLASS_DISTRIBUTED,
                                           .commitment_weight = 0.0005,
                                           .noise = 1.0};

void config_defaults(ModelConfig *config) {
  memset(config, 0, sizeof *config);
  config->kind = MODEL_VIT;
  config->activation = ACTIVATION_GELU;
  config->norm_eps = 1e-12;
  config->image = 224;
  config->patch = 16;
  config->channels = 3;
  for (int i = 0; i < 3; i++) config->image_mean[i] = config->image_std[i] = 0.5;
  config->resample = 2;
  config->astra = paper_settings;
}

Status config_preset(ModelConfig *config, const char *name, int64_t classes) {
  config_defaults(config);
  const Preset *preset = NULL;
  for (int i = 0; i < PRESETS; i++)
    if (strcmp(presets[i].name, name) == 0) preset = &presets[i];
  if (!preset) return status_set(STATUS_NOT_FOUND, "no model is called '%s'; known are %s", name, config_preset_names());
  config->image = preset->image;
  config->patch = preset->patch;
  config->width = preset->width;
  config->blocks = preset->blocks;
  config->heads = config->kv_heads = preset->heads;
  config->mlp = preset->mlp;
  memcpy(config->image_mean, preset->mean, sizeof preset->mean);
  memcpy(config->image_std, preset->std, sizeof preset->std);
  return config_set_labels(config, NULL, classes);
}

/* ---- ranges */

static Status check_range(const char *field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s is %lld; accepted is %lld to %lld", field, (long long)value, (long long)least, (long long)most);
}

static Status check_real(const char *field, double value, double least, double most) {
  if (value >= least && value <= most) return STATUS_OK; /* a NaN fails both */
  return status_set(STATUS_BAD_VALUE, "%s is %g; accepted is %g to %g", field, value, least, most);
}

static Status check_divides(const char *divisor_field, int64_t divisor, const char *field, int64_t value) {
  if (value % divisor == 0) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s %lld does not divide %s %lld", divisor_field, (long long)divisor, field, (long long)value);
}

static Status check_image(const ModelConfig *config) {
  TRY(check_range("image_size", config->image, 1, 16384));
  TRY(check_range("patch_size", config->patch, 1, config->image));
  TRY(check_divides("patch_size", config->patch, "image_size", config->image));
  TRY(check_range("the number of patches, (image_size / patch_size)^2,", config_tokens(config), 1, 1 << 20));
  if (config->channels != 3)
    return status_set(STATUS_BAD_VALUE, "num_channels is %lld; pictures are read as RGB, so it must be 3", (long long)config->channels);
  for (int i = 0; i < 3; i++) {
    TRY(check_real("image_mean", config->image_mean[i], -1e3, 1e3));
    TRY(check_real("image_std", config->image_std[i], 1e-6, 1e3));
  }
  if (config->resample != 2 && config->resample != 3)
    return status_set(STATUS_UNSUPPORTED, "resample is %d; supported are 2 (bilinear) and 3 (bicubic)", config->resample);
  return STATUS_OK;
}

static Status check_astra(const ModelConfig *config) {
  const AstraConfig *astra = &config->astra;
  int64_t width = config_site_width(config);
  TRY(check_range("astra.groups", astra->groups, 0, width));
  TRY(check_range("astra.codebook_size", astra->codebook_size, 2, 65536));
  TRY(check_range("astra.devices", astra->devices, 1, 1024));
  TRY(check_range("astra.devices (least)", astra->devices_least, 1, astra->devices));
  TRY(check_real("astra.commitment_weight", astra->commitment_weight, 0, 1e6));
  TRY(check_real("astra.noise", astra->noise, 0, 1e6));
  if (astra->class_token != CLASS_DISTRIBUTED && astra->class_token != CLASS_SINGLE)
    return status_set(STATUS_BAD_VALUE, "astra.class_token of a ViT must be distributed or single");
  if (astra->groups == 0) return STATUS_OK; /* a plain model: what is left concerns the exchange of codes */
  TRY(check_divides("astra.groups", astra->groups, astra->site == SITE_X ? "the width at site x," : "the width at site kv,", width));
  if (astra->devices > config_tokens(config))
    return status_set(STATUS_BAD_VALUE, "astra.devices is %d, but an image has only %lld tokens to share out; use fewer devices",
                      astra->devices, (long long)config_tokens(config));
  return STATUS_OK;
}

Status config_check(const ModelConfig *config) {
  if (config->kind != MODEL_VIT) return status_set(STATUS_UNSUPPORTED, "only models of type vit are supported");
  TRY(check_range("hidden_size", config->width, 1, 65536));
  TRY(check_range("num_hidden_layers", config->blocks, 1, 1024));
  TRY(check_range("num_attention_heads", config->heads, 1, config->width));
  TRY(check_divides("num_attention_heads", config->heads, "hidden_size", config->width));
  TRY(check_range("num_key_value_heads", config->kv_heads, 1, config->heads));
  TRY(check_divides("num_key_value_heads", config->kv_heads, "num_attention_heads", config->heads));
  TRY(check_range("intermediate_size", config->mlp, 1, 1 << 20));
  if (config->activation != ACTIVATION_GELU && config->activation != ACTIVATION_GELU_TANH)
    return status_set(STATUS_UNSUPPORTED, "hidden_act must be gelu or gelu_new");
  TRY(check_real("layer_norm_eps", config->norm_eps, 0, 1));
  TRY(check_range("the number of classes", config->classes, 1, 1 << 20));
  TRY(check_image(config));
  return check_astra(config);
}

/* ---- class names */

static void free_labels(char **labels, int64_t classes) {
  if (!labels) return;
  for (int64_t i = 0; i < classes; i++) free(labels[i]);
  free(labels);
}

static char *label_copy(char *const *labels, int64_t i) {
  if (labels) return strdup(labels[i]);
  char name[32];
  snprintf(name, sizeof name, "LABEL_%lld", (long long)i);
  return strdup(name);
}

Status config_set_labels(ModelConfig *config, char *const *labels, int64_t classes) {
  TRY(check_range("the number of classes", classes, 1, 1 << 20));
  char **fresh = calloc((size_t)classes, sizeof *fresh);
  if (!fresh) return status_set(STATUS_NO_MEMORY, "no memory for %lld class names", (long long)classes);
  for (int64_t i = 0; i < classes; i++) {
    fresh[i] = label_copy(labels, i);
    if (fresh[i]) continue;
    free_labels(fresh, classes);
    return status_set(STATUS_NO_MEMORY, "no memory for %lld class names", (long long)classes);
  }
  free_labels(config->labels, config->classes);
  config->labels = fresh;
  config->classes = classes;
  return STATUS_OK;
}

Status config_copy(ModelConfig *to, const ModelConfig *from) {
  *to = *from;
  to->labels = NULL;
  to->classes = 0;
  if (!from->labels) return to->classes = from->classes, STATUS_OK;
  return config_set_labels(to, from->labels, from->classes);
}

void config_release(ModelConfig *config) {
  free_labels(config->labels, config->classes);
  memset(config, 0, sizeof *config);
}

/* ---- what follows */

int64_t config_tokens(const ModelConfig *config) {
  int64_t side = config->image / config->patch;
  return side * side;
}

int config_sites(const ModelConfig *config) { return config->astra.site == SITE_KV ? 2 : 1; }

int64_t config_site_width(const ModelConfig *config) {
  return config->astra.site == SITE_KV ? config->width / config->heads * config->kv_heads : config->width;
}

int config_code_bits(const ModelConfig *config) {
  int bits = 0;
  while (((int64_t)1 << bits) < config->astra.codebook_size) bits++;
  return bits;
}

double config_bits_per_token(const ModelConfig *config) {
  return (double)config->blocks * config_sites(config) * config->astra.groups * config_code_bits(config);
}

double config_compression(const ModelConfig *config) {
  double bits = config_bits_per_token(config);
  return bits > 0 ? 32.0 * (double)config_site_width(config) * config_sites(config) * (double)config->blocks / bits : 0.0;
}
