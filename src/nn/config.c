/* The model's configuration as numbers: ranges, class names and what follows from them. Presets are in config_presets.c, the JSON files in
 * config_json.c.
 * Invariant: every configuration that config_check accepts is small enough that no product of its fields overflows an int64_t. */
#include "nn/config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MOST_CONTEXT = 1 << 20, MOST_ROPE = 1 << 28;

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

static Status check_rope(const ModelConfig *config) {
  const RopeConfig *rope = &config->rope;
  if (config->width / config->heads % 2 != 0)
    return status_set(STATUS_BAD_VALUE, "a head of %lld numbers (hidden_size / num_attention_heads) is odd; rotary positions turn pairs",
                      (long long)(config->width / config->heads));
  TRY(check_range("max_position_embeddings x hidden_size / num_attention_heads, the size of the table of rotary positions,",
                  config->context * (config->width / config->heads), 1, MOST_ROPE));
  TRY(check_real("rope_theta", rope->theta, 1, 1e12));
  if (!rope->llama3) return STATUS_OK;
  TRY(check_real("rope_scaling.factor", rope->factor, 1, 1e6));
  TRY(check_real("rope_scaling.low_freq_factor", rope->low_factor, 1e-6, 1e6));
  TRY(check_real("rope_scaling.high_freq_factor", rope->high_factor, 1e-6, 1e6));
  if (!(rope->high_factor > rope->low_factor))
    return status_set(STATUS_BAD_VALUE, "rope_scaling.high_freq_factor %g must be larger than low_freq_factor %g", rope->high_factor,
                      rope->low_factor);
  return check_range("rope_scaling.original_max_position_embeddings", rope->original, 1, MOST_CONTEXT);
}

static Status check_ids(const ModelConfig *config) {
  TRY(check_range("bos_token_id", config->begin_id, -1, config->vocabulary - 1));
  TRY(check_range("pad_token_id", config->pad_id, -1, config->vocabulary - 1));
  TRY(check_range("the number of ids in eos_token_id", config->end_ids, 0, CONFIG_ENDS));
  for (int i = 0; i < config->end_ids; i++) TRY(check_range("eos_token_id", config->end_id[i], 0, config->vocabulary - 1));
  return STATUS_OK;
}

static Status check_text(const ModelConfig *config) {
  static const char *const dropouts[CONFIG_DROPOUTS] = {"embd_pdrop", "resid_pdrop", "attn_pdrop"};
  TRY(check_range("vocab_size", config->vocabulary, 1, 1 << 24));
  TRY(check_range(config->kind == MODEL_GPT2 ? "n_positions" : "max_position_embeddings", config->context, 1, MOST_CONTEXT));
  for (int i = 0; i < CONFIG_DROPOUTS; i++) TRY(check_real(dropouts[i], config->dropout[i], 0, 1));
  if (config->kind == MODEL_LLAMA) TRY(check_rope(config));
  return check_ids(config);
}

static Status check_class_token(const ModelConfig *config) {
  ClassToken kind = config->astra.class_token;
  if (config_is_decoder(config))
    return kind == CLASS_NONE ? STATUS_OK : status_set(STATUS_BAD_VALUE, "astra.class_token: GPT-2 and Llama have no class token");
  if (kind == CLASS_DISTRIBUTED || kind == CLASS_SINGLE) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "astra.class_token of a ViT must be distributed or single");
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
  TRY(check_class_token(config));
  if (config_is_decoder(config) && astra->layout.kind != TOKEN_MAP_RASTER)
    return status_set(STATUS_BAD_VALUE, "astra.layout: the devices of GPT-2 and Llama hold contiguous spans of the text (raster)");
  if (astra->groups == 0) return STATUS_OK; /* a plain model: what is left concerns the exchange of codes */
  TRY(check_divides("astra.groups", astra->groups, astra->site == SITE_X ? "the width at site x," : "the width at site kv,", width));
  if (astra->devices > config_tokens(config))
    return status_set(STATUS_BAD_VALUE, "astra.devices is %d, but %s has only %lld tokens to share out; use fewer devices", astra->devices,
                      config_is_decoder(config) ? "the longest sequence" : "an image", (long long)config_tokens(config));
  return STATUS_OK;
}

/* What config.json of each kind calls the fields that all have. */
typedef struct FieldNames {
  const char *width, *blocks, *heads, *mlp, *activation, *norm_eps;
} FieldNames;

static const FieldNames field_names[] = {
    [MODEL_VIT] = {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act", "layer_norm_eps"},
    [MODEL_GPT2] = {"n_embd", "n_layer", "n_head", "n_inner", "activation_function", "layer_norm_epsilon"},
    [MODEL_LLAMA] = {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act", "rms_norm_eps"},
};

static Status check_activation(const ModelConfig *config, const char *field) {
  bool gated = config->activation == ACTIVATION_NONE;
  bool curved = config->activation == ACTIVATION_GELU || config->activation == ACTIVATION_GELU_TANH;
  if (config->kind == MODEL_LLAMA ? gated : curved) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED, "%s must be %s", field, config->kind == MODEL_LLAMA ? "silu" : "gelu or gelu_new");
}

static Status check_network(const ModelConfig *config) {
  const FieldNames *names = &field_names[config->kind];
  TRY(check_range(names->width, config->width, 1, 65536));
  TRY(check_range(names->blocks, config->blocks, 1, 1024));
  TRY(check_range(names->heads, config->heads, 1, config->width));
  TRY(check_divides(names->heads, config->heads, names->width, config->width));
  TRY(check_range("num_key_value_heads", config->kv_heads, 1, config->heads));
  TRY(check_divides("num_key_value_heads", config->kv_heads, names->heads, config->heads));
  TRY(check_range(names->mlp, config->mlp, 1, 1 << 20));
  TRY(check_activation(config, names->activation));
  return check_real(names->norm_eps, config->norm_eps, 0, 1);
}

Status config_check(const ModelConfig *config) {
  if (config->kind != MODEL_VIT && config->kind != MODEL_GPT2 && config->kind != MODEL_LLAMA)
    return status_set(STATUS_UNSUPPORTED, "only models of type vit, gpt2 and llama are supported");
  if (config->kind == MODEL_GPT2 && config->kv_heads != config->heads)
    return status_set(STATUS_BAD_VALUE, "GPT-2 has as many key and value heads as heads (n_head)");
  TRY(check_network(config));
  TRY(check_range("the number of classes", config->classes, config_is_decoder(config) ? 0 : 1, 1 << 20));
  TRY(config_is_decoder(config) ? check_text(config) : check_image(config));
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

bool config_is_decoder(const ModelConfig *config) { return config->kind != MODEL_VIT; }

int64_t config_tokens(const ModelConfig *config) {
  if (config_is_decoder(config)) return config->context;
  int64_t side = config->image / config->patch;
  return side * side;
}

int config_sites(const ModelConfig *config) { return config->astra.site == SITE_KV ? 2 : 1; }

static int64_t kv_width(const ModelConfig *config) { return config->width / config->heads * config->kv_heads; }

int64_t config_site_width(const ModelConfig *config) { return config->astra.site == SITE_KV ? kv_width(config) : config->width; }

int config_whole_sites(const ModelConfig *config) { return 2 * kv_width(config) < config->width ? 2 : 1; }
int64_t config_whole_width(const ModelConfig *config) { return config_whole_sites(config) == 2 ? kv_width(config) : config->width; }

int config_code_bits(const ModelConfig *config) {
  int bits = 0;
  while (((int64_t)1 << bits) < config->astra.codebook_size) bits++;
  return bits;
}

double config_bits_per_token(const ModelConfig *config) {
  return (double)config->blocks * config_sites(config) * config->astra.groups * config_code_bits(config);
}

int config_paper_bits(const ModelConfig *config) { return config->kind == MODEL_LLAMA ? 16 : 32; }

const char *config_compression_text(const ModelConfig *config, char text[CONFIG_COMPRESSION]) {
  static const char paper[] = " (the paper's baseline)";
  int bits = config_paper_bits(config);
  snprintf(text, CONFIG_COMPRESSION, "%.1f-fold compression of 32-bit numbers%s, %.1f-fold of 16-bit ones%s",
           config_compression(config, 32), bits == 32 ? paper : "", config_compression(config, 16), bits == 16 ? paper : "");
  return text;
}

double config_compression(const ModelConfig *config, int number_bits) {
  double bits = config_bits_per_token(config);
  return bits > 0 ? number_bits * (double)config_site_width(config) * config_sites(config) * (double)config->blocks / bits : 0.0;
}
