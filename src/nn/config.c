/* The model's configuration as numbers: ranges, class names and what follows from them. The files are in
 * config_files.c.
 * Invariant: every configuration that config_check accepts is small enough that no product of its fields overflows an int64_t. */
#include "nn/config.h"
#include "autograd/ops/ops.h"
#include "base/status.h"
#include "nn/config_internal.h"
#include "nn/json_build.h"
#include "nn/layout.h"
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Fields of JSON objects ---- */

/* Inside the configuration code only: typed fields of a JSON object. A field that is absent, or null, which Hugging Face writes for "not
 * set", leaves *out as it is; one of another type is BAD_FILE and named. */
Status fields_bad(const Fields *fields, const char *key, const char *accepted) {
  return status_set(STATUS_BAD_FILE, "%s: field %s%s must be %s", fields->origin, fields->prefix, key, accepted);
}

const json_t *fields_value(const Fields *fields, const char *key) {
  const json_t *value = json_object_get(fields->object, key);
  return json_is_null(value) ? NULL : value;
}

Status fields_whole(const Fields *fields, const char *key, int64_t *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_integer(value)) return fields_bad(fields, key, "a whole number");
  *out = json_integer_value(value);
  return STATUS_OK;
}

Status fields_required(const Fields *fields, const char *key, int64_t *out) {
  if (!fields_value(fields, key)) return status_set(STATUS_BAD_FILE, "%s: field %s%s is missing", fields->origin, fields->prefix, key);
  return fields_whole(fields, key, out);
}

Status fields_int(const Fields *fields, const char *key, int *out) {
  int64_t value = *out;
  TRY(fields_whole(fields, key, &value));
  if (value < 0 || value > 1 << 30) return fields_bad(fields, key, "a whole number from 0 to 2^30");
  *out = (int)value;
  return STATUS_OK;
}

Status fields_number(const Fields *fields, const char *key, double *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_number(value)) return fields_bad(fields, key, "a number");
  *out = json_number_value(value);
  return STATUS_OK;
}

Status fields_flag(const Fields *fields, const char *key, bool *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_boolean(value)) return fields_bad(fields, key, "true or false");
  *out = json_is_true(value);
  return STATUS_OK;
}

Status fields_triple(const Fields *fields, const char *key, double *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_array(value) || json_array_size(value) != 3) return fields_bad(fields, key, "a list of three numbers");
  for (size_t i = 0; i < 3; i++) {
    if (!json_is_number(json_array_get(value, i))) return fields_bad(fields, key, "a list of three numbers");
    out[i] = json_number_value(json_array_get(value, i));
  }
  return STATUS_OK;
}

Status fields_choice(const Fields *fields, const char *key, const Choice *choices, int *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  const char *text = json_string_value(value);
  char accepted[128] = "one of ";
  for (const Choice *choice = choices; choice->name; choice++) {
    if (text && strcmp(choice->name, text) == 0) return *out = choice->value, STATUS_OK;
    size_t used = strlen(accepted);
    snprintf(accepted + used, sizeof accepted - used, "%s%s", choice == choices ? "" : ", ", choice->name);
  }
  return fields_bad(fields, key, accepted);
}

const char *fields_choice_name(const Choice *choices, int value) {
  while (choices->name && choices->value != value) choices++;
  return choices->name;
}

/* ---- Labels ---- */

/* Class names in config.json: id2label, label2id, num_labels. */

/* A class number as id2label writes it: decimal digits alone. -1 when it is no such number below `classes`. */
static int64_t class_number(const char *key, int64_t classes) {
  int64_t number = 0;
  if (!*key) return -1;
  for (; *key; key++) {
    if (!isdigit((unsigned char)*key)) return -1;
    number = 10 * number + (*key - '0');
    if (number >= classes) return -1;
  }
  return number;
}

static Status gather_labels(const Fields *fields, const json_t *map, const char **labels, int64_t classes) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)map, key, value) {
    int64_t number = class_number(key, classes);
    if (number < 0 || labels[number])
      return status_set(STATUS_BAD_FILE, "%s: id2label has the key '%.40s'; its %lld keys must be the numbers 0 to %lld, each once",
                        fields->origin, key, (long long)classes, (long long)classes - 1);
    labels[number] = json_string_value(value);
    if (!labels[number]) return status_set(STATUS_BAD_FILE, "%s: id2label of class %.40s must be a string", fields->origin, key);
  }
  return STATUS_OK;
}

/* As many keys as classes, each a different number below that: no hole is possible. */
Status config_labels_read(const Fields *fields, ModelConfig *config) {
  int64_t classes = 2; /* Hugging Face's default */
  TRY(fields_whole(fields, "num_labels", &classes));
  const json_t *map = fields_value(fields, "id2label");
  if (!map) return config_set_labels(config, NULL, classes);
  if (!json_is_object(map) || json_object_size(map) == 0)
    return fields_bad(fields, "id2label", "an object of class numbers and names, {\"0\": \"cat\", ...}");
  int64_t named = (int64_t)json_object_size(map);
  if (fields_value(fields, "num_labels") && named != classes)
    return status_set(STATUS_BAD_FILE, "%s: num_labels is %lld but id2label names %lld classes", fields->origin, (long long)classes,
                      (long long)named);
  const char **labels = calloc((size_t)named, sizeof *labels);
  if (!labels) return status_set(STATUS_NO_MEMORY, "no memory for %lld class names", (long long)named);
  Status status = gather_labels(fields, map, labels, named);
  if (status == STATUS_OK) status = config_set_labels(config, (char *const *)(uintptr_t)labels, named);
  free(labels);
  return status;
}

json_t *config_labels_json(const ModelConfig *config, bool by_name) {
  json_t *map = json_object();
  for (int64_t i = 0; i < config->classes; i++) {
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)i);
    if (by_name)
      json_build_put(&map, config->labels[i], json_integer(i));
    else
      json_build_put(&map, number, json_string(config->labels[i]));
  }
  return map;
}

/* JSON holds UTF-8 alone; folder names may hold any bytes. */
Status config_labels_check(const ModelConfig *config, const char *directory) {
  for (int64_t i = 0; i < config->classes; i++) {
    json_t *name = json_string(config->labels[i]);
    json_decref(name);
    if (!name)
      return status_set(STATUS_BAD_VALUE, "%s/config.json: the name of class %lld, '%.60s', is not UTF-8; rename the class", directory,
                        (long long)i, config->labels[i]);
  }
  return STATUS_OK;
}

/* ---- Presets ---- */

/* Models by name, and what holds of each kind where nothing is said. */

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

/* Of a small model an untied vocabulary would be a good part of all parameters, so llama-mini is tied. */
static const Decoder decoders[] = {
    {"gpt2", MODEL_GPT2, 768, 12, 12, 12, 3072, 50257, 1024, 0, true, 50256, 50256},
    {"gpt2-medium", MODEL_GPT2, 1024, 24, 16, 16, 4096, 50257, 1024, 0, true, 50256, 50256},
    {"gpt2-mini", MODEL_GPT2, 256, 6, 4, 4, 1024, 4096, 512, 0, true, -1, -1},
    {"llama-3-8b", MODEL_LLAMA, 4096, 32, 32, 8, 14336, 128256, 8192, 500000, false, 128000, 128001},
    {"llama-mini", MODEL_LLAMA, 256, 6, 8, 4, 688, 4096, 512, 10000, true, -1, -1},
};

const char *config_preset_names(void) {
  return "vit-base, vit-small, vit-tiny, vit-cifar, gpt2, gpt2-medium, gpt2-mini, llama-3-8b, llama-mini";
}

/* The paper's settings, without groups: a plain model until somebody chooses them. */
static const AstraConfig paper_settings = {.groups = 0,
                                           .codebook_size = 1024,
                                           .devices = 4,
                                           .devices_min = 4,
                                           .site = SITE_X,
                                           .class_token = CLASS_DISTRIBUTED,
                                           .commitment_weight = 0.0005,
                                           .noise = 1.0,
                                           .layout = {(TokenMapKind)TOKEN_MAP_DEFAULT, 0}};

static void default_vision(ModelConfig *config) {
  config->activation = ACTIVATION_GELU;
  config->norm_eps = 1e-12;
  config->image = 224;
  config->patch = 16;
  config->channels = 3;
  for (int i = 0; i < 3; i++) config->image_mean[i] = config->image_std[i] = 0.5;
  config->resample = 2;
}

static void default_decoder(ModelConfig *config) {
  bool llama = config->kind == MODEL_LLAMA;
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

void config_defaults(ModelConfig *config, ModelKind kind) {
  memset(config, 0, sizeof *config);
  config->kind = kind;
  config->astra = paper_settings;
  if (kind == MODEL_VIT)
    default_vision(config);
  else
    default_decoder(config);
}

static Status fill_vision(ModelConfig *config, const Vision *preset, int64_t classes) {
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

static Status fill_decoder(ModelConfig *config, const Decoder *preset, int64_t classes) {
  config_defaults(config, preset->kind);
  config->width = preset->width;
  config->blocks = preset->blocks;
  config->heads = preset->heads;
  config->kv_heads = preset->kv_heads;
  config->mlp = preset->mlp;
  config->vocabulary = preset->vocabulary;
  config->context = preset->context;
  config->norm_eps = 1e-5;
  config->rope.theta = preset->theta;
  config->tied = preset->tied;
  config->begin_id = preset->begin_id;
  if (preset->end_id >= 0) config->end_id[config->end_ids++] = preset->end_id;
  return classes == 0 ? STATUS_OK : config_set_labels(config, NULL, classes);
}

Status config_preset(ModelConfig *config, const char *name, int64_t classes) {
  for (size_t i = 0; i < sizeof visions / sizeof *visions; i++)
    if (strcmp(visions[i].name, name) == 0) return fill_vision(config, &visions[i], classes);
  for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
    if (strcmp(decoders[i].name, name) == 0) return fill_decoder(config, &decoders[i], classes);
  memset(config, 0, sizeof *config);
  return status_set(STATUS_NOT_FOUND, "no model is called '%s'; known are %s; a checkpoint's directory or a GGUF file is accepted as well",
                    name, config_preset_names());
}

/* ---- Configurations ---- */

static const int64_t MAX_CONTEXT = 1 << 20, MAX_ROPE = 1 << 28;

/* ---- ranges */

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
  TRY(check_range(config->kind == MODEL_GPT2 ? "n_positions" : "max_position_embeddings", config->context, 1, MAX_CONTEXT));
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
  TRY(check_range("astra.devices (least)", astra->devices_min, 1, astra->devices));
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
