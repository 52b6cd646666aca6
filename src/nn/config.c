/* The model's configuration as numbers: presets, ranges, class names and what follows from them. config_json.c and gguf_model.c read and
 * write files.
 * Invariant: every configuration that config_check accepts is small enough that no product of its fields overflows an int64_t. */
#include "nn/config.h"
#include "base/text.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Presets ---- */

typedef struct Vision {
  const char *name;
  int64_t image, patch, width, blocks, heads;
  double mean[3], std[3];
} Vision;

static const Vision visions[] = {
    {"vit-base", 224, 16, 768, 12, 12, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
    {"vit-small", 224, 16, 384, 12, 6, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
    {"vit-tiny", 224, 16, 192, 12, 3, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}},
    {"vit-cifar", 32, 4, 192, 6, 3, {0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}},
};

typedef struct Decoder {
  const char *name;
  ModelKind kind;
  int64_t width, blocks, heads, kv_heads, mlp, vocabulary, context;
  double theta; /* Llama */
  bool tied;
  int64_t begin_id, end_id; /* -1: the tokenizer says */
} Decoder;

/* Of a small model an untied vocabulary would be a good part of all parameters, so the small ones are tied. */
static const Decoder decoders[] = {
    {"gpt2", MODEL_GPT2, 768, 12, 12, 12, 3072, 50257, 1024, 0, true, 50256, 50256},
    {"gpt2-medium", MODEL_GPT2, 1024, 24, 16, 16, 4096, 50257, 1024, 0, true, 50256, 50256},
    {"gpt2-mini", MODEL_GPT2, 256, 6, 4, 4, 1024, 4096, 512, 0, true, -1, -1},
    {"gpt2-15m", MODEL_GPT2, 384, 7, 6, 6, 1536, 4096, 512, 0, true, -1, -1},
    {"llama-3-8b", MODEL_LLAMA, 4096, 32, 32, 8, 14336, 128256, 8192, 500000, false, 128000, 128001},
    {"llama-mini", MODEL_LLAMA, 256, 6, 8, 4, 688, 4096, 512, 10000, true, -1, -1},
    {"llama-15m", MODEL_LLAMA, 384, 8, 6, 2, 1024, 4096, 512, 10000, true, -1, -1},
};

const char *config_preset_names(void) {
  return "vit-base, vit-small, vit-tiny, vit-cifar, gpt2, gpt2-medium, gpt2-mini, gpt2-15m, llama-3-8b, llama-mini, llama-15m";
}

/* The paper's settings, without groups: a plain model until they are chosen. */
static const AstraConfig paper_settings = {.groups = 0,
                                           .codebook_size = CONFIG_CODEBOOK_SIZE,
                                           .devices = 4,
                                           .devices_min = 4,
                                           .site = SITE_X,
                                           .class_token = CLASS_DISTRIBUTED,
                                           .commitment_weight = 0.0005,
                                           .noise = 1.0,
                                           .layout = {(TokenMapKind)TOKEN_MAP_DEFAULT, 0}};

void config_defaults(ModelConfig *config, ModelKind kind) {
  const bool llama = kind == MODEL_LLAMA;
  *config = (ModelConfig){.kind = kind, .astra = paper_settings};
  if (kind == MODEL_VIT) {
    config->activation = ACTIVATION_GELU;
    config->norm_eps = 1e-12;
    config->image = 224;
    config->patch = 16;
    config->channels = 3;
    for (int i = 0; i < 3; i++) config->image_mean[i] = config->image_std[i] = 0.5;
    config->resample = 2;
    return;
  }
  config->activation = llama ? ACTIVATION_NONE : ACTIVATION_GELU_TANH;
  config->norm_eps = llama ? 1e-6 : 1e-5;
  config->context = llama ? 2048 : 1024;
  config->tied = !llama;
  config->rope.theta = llama ? 10000 : 0;
  config->begin_id = config->pad_id = -1;
  config->astra.class_token = CLASS_NONE;
  config->astra.layout = (TokenMap){TOKEN_MAP_RASTER, 0};
  config->astra.site = llama ? SITE_KV : SITE_X;
}

static Status fill_decoder(ModelConfig *config, const Decoder *preset, int64_t classes) {
  ModelConfig kind;
  config_defaults(&kind, preset->kind);
  *config = (ModelConfig){.kind = preset->kind,
                          .width = preset->width,
                          .blocks = preset->blocks,
                          .heads = preset->heads,
                          .kv_heads = preset->kv_heads,
                          .mlp = preset->mlp,
                          .activation = kind.activation,
                          .norm_eps = 1e-5,
                          .vocabulary = preset->vocabulary,
                          .context = preset->context,
                          .tied = preset->tied,
                          .rope.theta = preset->theta,
                          .begin_id = preset->begin_id,
                          .pad_id = kind.pad_id,
                          .astra = kind.astra};
  if (preset->end_id >= 0) config->end_id[config->end_ids++] = preset->end_id;
  return classes == 0 ? STATUS_OK : config_set_labels(config, NULL, classes);
}

Status config_preset(ModelConfig *config, const char *name, int64_t classes) {
  for (size_t i = 0; i < sizeof visions / sizeof *visions; i++) {
    const Vision *preset = &visions[i];
    if (strcmp(preset->name, name) != 0) continue;
    config_defaults(config, MODEL_VIT);
    config->image = preset->image;
    config->patch = preset->patch;
    config->width = preset->width;
    config->blocks = preset->blocks;
    config->heads = config->kv_heads = preset->heads;
    config->mlp = 4 * preset->width;
    memcpy(config->image_mean, preset->mean, sizeof preset->mean);
    memcpy(config->image_std, preset->std, sizeof preset->std);
    return config_set_labels(config, NULL, classes);
  }
  for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
    if (strcmp(decoders[i].name, name) == 0) return fill_decoder(config, &decoders[i], classes);
  memset(config, 0, sizeof *config);
  return status_set(strchr(name, '/') ? STATUS_NOT_FOUND : STATUS_BAD_USAGE,
                    "no model is called '%s'; known are %s; a checkpoint is named by its directory or GGUF file, or the name of an "
                    "installed one (astra-data list)",
                    name, config_preset_names());
}

/* ---- Ranges ---- */

static const int64_t MAX_CONTEXT = 1 << 20, MAX_ROPE = 1 << 28;

static Status check_range(const char *field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s is %lld; accepted is %lld to %lld", field, (long long)value, (long long)min, (long long)max);
}

static Status check_real(const char *field, double value, double min, double max) {
  if (value >= min && value <= max) return STATUS_OK; /* a NaN fails both */
  return status_set(STATUS_BAD_VALUE, "%s is %g; accepted is %g to %g", field, value, min, max);
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
    return status_set(STATUS_BAD_VALUE, "num_channels is %lld; images are read as RGB, so it must be 3", (long long)config->channels);
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
                  config->context * (config->width / config->heads), 1, MAX_ROPE));
  TRY(check_real("rope_theta", rope->theta, 1, 1e12));
  if (!rope->llama3) return STATUS_OK;
  TRY(check_real("rope_scaling.factor", rope->factor, 1, 1e6));
  TRY(check_real("rope_scaling.low_freq_factor", rope->low_factor, 1e-6, 1e6));
  TRY(check_real("rope_scaling.high_freq_factor", rope->high_factor, 1e-6, 1e6));
  if (!(rope->high_factor > rope->low_factor))
    return status_set(STATUS_BAD_VALUE, "rope_scaling.high_freq_factor %g must be larger than low_freq_factor %g", rope->high_factor,
                      rope->low_factor);
  return check_range("rope_scaling.original_max_position_embeddings", rope->original, 1, MAX_CONTEXT);
}

static Status check_text(const ModelConfig *config) {
  static const char *const dropouts[CONFIG_DROPOUTS] = {"embd_pdrop", "resid_pdrop", "attn_pdrop"};
  TRY(check_range("vocab_size", config->vocabulary, 1, 1 << 24));
  TRY(check_range(config->kind == MODEL_GPT2 ? "n_positions" : "max_position_embeddings", config->context, 1, MAX_CONTEXT));
  for (int i = 0; i < CONFIG_DROPOUTS; i++) TRY(check_real(dropouts[i], config->dropout[i], 0, 1));
  if (config->kind == MODEL_LLAMA) TRY(check_rope(config));
  TRY(check_range("bos_token_id", config->begin_id, -1, config->vocabulary - 1));
  TRY(check_range("pad_token_id", config->pad_id, -1, config->vocabulary - 1));
  TRY(check_range("the number of ids in eos_token_id", config->end_ids, 0, CONFIG_ENDS));
  for (int i = 0; i < config->end_ids; i++) TRY(check_range("eos_token_id", config->end_id[i], 0, config->vocabulary - 1));
  return STATUS_OK;
}

static Status check_astra(const ModelConfig *config) {
  const AstraConfig *astra = &config->astra;
  const ClassToken class_token = astra->class_token;
  const bool decoder = config_is_decoder(config);
  int64_t width = config_site_width(config);
  TRY(check_range("astra.groups", astra->groups, 0, width));
  TRY(check_range("astra.codebook_size", astra->codebook_size, 2, 65536));
  TRY(check_range("astra.devices", astra->devices, 1, TOKEN_MAP_DEVICES));
  TRY(check_range("astra.devices (least)", astra->devices_min, 1, astra->devices));
  TRY(check_real("astra.commitment_weight", astra->commitment_weight, 0, 1e6));
  TRY(check_real("astra.noise", astra->noise, 0, 1e6));
  if (decoder && class_token != CLASS_NONE) return status_set(STATUS_BAD_VALUE, "astra.class_token: GPT-2 and Llama have no class token");
  if (!decoder && class_token != CLASS_DISTRIBUTED && class_token != CLASS_SINGLE)
    return status_set(STATUS_BAD_VALUE, "astra.class_token of a ViT must be distributed or single");
  TRY(check_real("astra.class_bias", astra->class_bias, -100, 100));
  TRY(check_real("astra.class_mean_power", astra->class_mean_power, 0, 4));
  if ((astra->class_bias != 0 || astra->class_mean_power != 0) && class_token != CLASS_DISTRIBUTED)
    return status_set(STATUS_UNSUPPORTED, "astra.%s is for images, models with one class token a device (astra.class_token distributed)",
                      astra->class_bias != 0 ? "class_bias" : "class_mean_power");
  if (decoder && astra->layout.kind != TOKEN_MAP_RASTER)
    return status_set(STATUS_BAD_VALUE, "astra.layout: the devices of GPT-2 and Llama hold contiguous spans of the text (raster)");
  TRY(check_range("astra.exchange_blocks", astra->exchange_blocks, 0, config->blocks));
  if (astra->groups == 0) return STATUS_OK; /* a plain model: what is left concerns the exchange of codes */
  if (astra->prediction && !astra->rotation) return status_set(STATUS_UNSUPPORTED, "astra.prediction is for models with astra.rotation");
  if (astra->position_mean && (!astra->prediction || decoder))
    return status_set(STATUS_UNSUPPORTED, "astra.position_mean is for images, models with astra.prediction");
  if (astra->exchange_blocks > 0 && decoder)
    return status_set(STATUS_UNSUPPORTED, "astra.exchange_blocks is for images; of a text every block exchanges codes");
  if (astra->exact_first && !(astra->prediction && decoder && config->blocks > 1))
    return status_set(STATUS_UNSUPPORTED, "astra.exact_first is for texts, models with astra.prediction and at least 2 blocks");
  const char *of = astra->site == SITE_X ? "the width at site x," : "the width at site kv,";
  TRY(check_divides("astra.groups", astra->groups, of, width));
  TRY(check_range("the number of astra.rates", astra->rate_count, 0, CONFIG_RATES));
  bool used = astra->rate_count == 0;
  for (int r = 0; r < astra->rate_count; r++) {
    TRY(check_range("astra.rates", astra->rates[r], r > 0 ? astra->rates[r - 1] + 1 : 1, width));
    TRY(check_divides("astra.rates", astra->rates[r], of, width));
    used = used || astra->rates[r] == astra->groups;
  }
  if (!used) return status_set(STATUS_BAD_VALUE, "astra.groups is %d, which is not one of astra.rates", astra->groups);
  if (astra->devices > config_tokens(config))
    return status_set(STATUS_BAD_VALUE, "astra.devices is %d, but %s has only %lld tokens to share out; use fewer devices", astra->devices,
                      decoder ? "the longest sequence" : "an image", (long long)config_tokens(config));
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

Status config_check(const ModelConfig *config) {
  if (config->kind != MODEL_VIT && config->kind != MODEL_GPT2 && config->kind != MODEL_LLAMA)
    return status_set(STATUS_UNSUPPORTED, "only models of type vit, gpt2 and llama are supported");
  if (config->kind == MODEL_GPT2 && config->kv_heads != config->heads)
    return status_set(STATUS_BAD_VALUE, "GPT-2 has as many key and value heads as heads (n_head)");
  const FieldNames *names = &field_names[config->kind];
  const Activation activation = config->activation;
  const bool llama = config->kind == MODEL_LLAMA;
  TRY(check_range(names->width, config->width, 1, 65536));
  TRY(check_range(names->blocks, config->blocks, 1, CONFIG_BLOCKS_MAX));
  TRY(check_range(names->heads, config->heads, 1, config->width));
  TRY(check_divides(names->heads, config->heads, names->width, config->width));
  TRY(check_range("num_key_value_heads", config->kv_heads, 1, config->heads));
  TRY(check_divides("num_key_value_heads", config->kv_heads, names->heads, config->heads));
  TRY(check_range(names->mlp, config->mlp, 1, 1 << 20));
  if (llama ? activation != ACTIVATION_NONE : activation != ACTIVATION_GELU && activation != ACTIVATION_GELU_TANH)
    return status_set(STATUS_UNSUPPORTED, "%s must be %s", names->activation, llama ? "silu" : "gelu or gelu_new");
  TRY(check_real(names->norm_eps, config->norm_eps, 0, 1));
  TRY(check_range("the number of classes", config->classes, config_is_decoder(config) ? 0 : 1, 1 << 20));
  TRY(config_is_decoder(config) ? check_text(config) : check_image(config));
  return check_astra(config);
}

Status config_check_file(const ModelConfig *config, const char *origin) {
  Status status = config_check(config);
  if (status == STATUS_BAD_VALUE) return status_wrap(STATUS_BAD_FILE, "%s", origin);
  return status == STATUS_UNSUPPORTED ? status_wrap(status, "%s", origin) : status;
}

/* ---- Class names ---- */

static void free_labels(char **labels, int64_t classes) {
  if (!labels) return;
  for (int64_t i = 0; i < classes; i++) free(labels[i]);
  free(labels);
}

Status config_set_labels(ModelConfig *config, char *const *labels, int64_t classes) {
  TRY(check_range("the number of classes", classes, 1, 1 << 20));
  char **fresh = calloc((size_t)classes, sizeof *fresh);
  if (!fresh) return status_set(STATUS_NO_MEMORY, "no memory for %lld class names", (long long)classes);
  for (int64_t i = 0; i < classes; i++) {
    char name[32];
    snprintf(name, sizeof name, "LABEL_%lld", (long long)i);
    fresh[i] = strdup(labels ? labels[i] : name);
    if (fresh[i]) continue;
    free_labels(fresh, classes);
    return status_set(STATUS_NO_MEMORY, "no memory for %lld class names", (long long)classes);
  }
  free_labels(config->labels, config->classes);
  config->labels = fresh;
  config->classes = classes;
  return STATUS_OK;
}

int64_t config_other_label(const ModelConfig *config, char *const *names) {
  for (int64_t i = 0; config->labels && names && i < config->classes; i++)
    if (strcmp(config->labels[i], names[i]) != 0) return i;
  return -1;
}

typedef struct NamedClass {
  const char *name;
  int32_t number;
} NamedClass;

static int compare_names(const void *a, const void *b) { return strcmp(((const NamedClass *)a)->name, ((const NamedClass *)b)->name); }

static void sort_names(char *const *names, int64_t classes, NamedClass *sorted) {
  for (int64_t i = 0; i < classes; i++) sorted[i] = (NamedClass){names[i], (int32_t)i};
  qsort(sorted, (size_t)classes, sizeof *sorted, compare_names);
}

Status config_match_labels(const ModelConfig *config, char *const *names, int32_t *class_of, bool *matched) {
  const int64_t classes = config->classes;
  NamedClass *ours = malloc(2 * (size_t)classes * sizeof *ours), *theirs = ours + classes;
  if (!ours) return status_set(STATUS_NO_MEMORY, "no memory to compare the names of %lld classes", (long long)classes);
  sort_names(config->labels, classes, ours);
  sort_names(names, classes, theirs);
  bool same = true;
  for (int64_t i = 0; i < classes && same; i++)
    same = strcmp(ours[i].name, theirs[i].name) == 0 && (i == 0 || strcmp(ours[i].name, ours[i - 1].name) != 0);
  for (int64_t i = 0; i < classes; i++) class_of[same ? theirs[i].number : i] = same ? ours[i].number : (int32_t)i;
  free(ours);
  *matched = same;
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

/* ---- Derived numbers ---- */

bool config_is_decoder(const ModelConfig *config) { return config->kind != MODEL_VIT; }

int64_t config_tokens(const ModelConfig *config) {
  if (config_is_decoder(config)) return config->context;
  int64_t side = config->image / config->patch;
  return side * side;
}

int config_sites(const ModelConfig *config) { return config->astra.site == SITE_KV ? 2 : 1; }

int64_t config_kv_width(const ModelConfig *config) { return config->width / config->heads * config->kv_heads; }

int64_t config_site_width(const ModelConfig *config) { return config->astra.site == SITE_KV ? config_kv_width(config) : config->width; }

int config_rates(const ModelConfig *config) {
  const AstraConfig *astra = &config->astra;
  return astra->groups == 0 ? 0 : astra->rate_count > 0 ? astra->rate_count : 1;
}

int config_rate_groups(const ModelConfig *config, int rate) {
  return config->astra.rate_count > 0 ? config->astra.rates[rate] : config->astra.groups;
}

int config_rate(const ModelConfig *config) {
  for (int r = 0; r < config->astra.rate_count; r++)
    if (config->astra.rates[r] == config->astra.groups) return r;
  return 0;
}

const char *config_rates_text(const ModelConfig *config, char text[CONFIG_RATES_TEXT]) {
  int at = snprintf(text, CONFIG_RATES_TEXT, "%d", config_rate_groups(config, 0));
  for (int r = 1; r < config_rates(config); r++)
    at += snprintf(text + at, CONFIG_RATES_TEXT - (size_t)at, ", %d", config_rate_groups(config, r));
  return text;
}

Status config_use_rate(ModelConfig *config, int groups) {
  char text[CONFIG_RATES_TEXT];
  if (config->astra.groups == 0) return status_set(STATUS_BAD_VALUE, "a plain model has no codebooks, and so no groups to choose");
  for (int r = 0; r < config_rates(config); r++)
    if (config_rate_groups(config, r) == groups) return config->astra.groups = groups, STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "there are no codebooks of %d group%s; the checkpoint has those of %s", groups, text_plural(groups),
                    config_rates_text(config, text));
}

static int compare_ints(const void *a, const void *b) {
  const int left = *(const int *)a, right = *(const int *)b;
  return (left > right) - (left < right);
}

Status config_set_rates(ModelConfig *config, const int64_t *groups, int count) {
  AstraConfig *astra = &config->astra;
  TRY(check_range("the number of astra.rates", count, 0, CONFIG_RATES));
  astra->rate_count = count > 1 ? count : 0;
  for (int r = 0; r < count; r++) {
    TRY(check_range("astra.rates", groups[r], 1, INT_MAX));
    astra->rates[r] = (int)groups[r];
  }
  qsort(astra->rates, (size_t)count, sizeof *astra->rates, compare_ints);
  if (count > 0) astra->groups = astra->rates[count - 1];
  return STATUS_OK;
}

int config_whole_sites(const ModelConfig *config) { return 2 * config_kv_width(config) < config->width ? 2 : 1; }
int64_t config_whole_width(const ModelConfig *config) { return config_whole_sites(config) == 2 ? config_kv_width(config) : config->width; }

int config_first_coded(const ModelConfig *config) { return config->astra.groups > 0 && config->astra.exact_first; }

int config_end_coded(const ModelConfig *config) {
  return (int)(config->astra.exchange_blocks > 0 ? config->astra.exchange_blocks : config->blocks);
}

Status config_check_exchange(int64_t exchange_blocks, int64_t blocks) {
  if (exchange_blocks <= blocks) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--exchange-blocks %lld: the model has %lld block%s; 0 means all of them", (long long)exchange_blocks,
                    (long long)blocks, text_plural(blocks));
}

int64_t config_codebooks(const ModelConfig *config) {
  return config->astra.groups > 0 ? (int64_t)(config_end_coded(config) - config_first_coded(config)) * config_sites(config) : 0;
}

const char *config_site_name(int sites, int64_t index) { return sites == 1 ? "x" : index % sites == 0 ? "k" : "v"; }

const char *config_codebook_place(const ModelConfig *config, int64_t index, char text[CONFIG_CODEBOOK_PLACE]) {
  const int sites = config_sites(config);
  snprintf(text, CONFIG_CODEBOOK_PLACE, "astra.layers.%lld.%s", (long long)(config_first_coded(config) + index / sites),
           config_site_name(sites, index));
  return text;
}

const char *config_rate_prefix(const ModelConfig *config, int rate, char text[CONFIG_RATE_PREFIX]) {
  text[0] = '\0';
  if (rate < config_rates(config) - 1) snprintf(text, CONFIG_RATE_PREFIX, "groups%d.", config_rate_groups(config, rate));
  return text;
}

int64_t config_prediction_inputs(const ModelConfig *config, int64_t block) {
  const bool after_exact = config_first_coded(config) > 0 && block == config_first_coded(config);
  return after_exact ? config->width : config_sites(config) * config_site_width(config);
}

bool config_plain_prediction(const AstraConfig *astra) { return astra->prediction && !astra->exact_first && !astra->position_mean; }

int64_t config_known_width(const ModelConfig *config) {
  const int64_t coded = config_sites(config) * config_site_width(config), exact = config_first_coded(config) > 0 ? config->width : 0;
  if (config->astra.groups == 0 || !config->astra.prediction) return 0;
  return exact > coded ? exact : coded;
}

/* ceil(log2 count) */
static int bits_of(int64_t count) {
  int bits = 0;
  while (((int64_t)1 << bits) < count) bits++;
  return bits;
}

double config_code_bits(const ModelConfig *config) { return (double)config->astra.groups * bits_of(config->astra.codebook_size); }

double config_bits_per_token(const ModelConfig *config) {
  const int id = config_first_coded(config) > 0 ? bits_of(config->vocabulary) : 0;
  return (double)config_codebooks(config) * config_code_bits(config) + id;
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

/* ---- Rotary positions ---- */

static const double TURN = 6.283185307179586477;

void config_rope_frequencies(const RopeConfig *rope, int64_t head_width, double *frequency) {
  const double original = (double)rope->original;
  for (int64_t i = 0; i < head_width / 2; i++) {
    const double full = pow(rope->theta, -2.0 * (double)i / (double)head_width), wavelength = TURN / full;
    frequency[i] = full;
    if (!rope->llama3 || wavelength < original / rope->high_factor) continue;
    frequency[i] = full / rope->factor;
    if (wavelength > original / rope->low_factor) continue;
    const double share = (original / wavelength - rope->low_factor) / (rope->high_factor - rope->low_factor);
    frequency[i] = (1 - share) * full / rope->factor + share * full;
  }
}
