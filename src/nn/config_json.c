/* Configurations in Hugging Face's files: config.json, preprocessor_config.json and generation_config.json, read and written. A setting
 * that would change the computation and is not supported is refused by name. Objects that are returned are new references; NULL: no
 * memory. */
#include "base/files.h"
#include "base/log.h"
#include "nn/config.h"
#include "nn/gguf_model.h"
#include "nn/json_build.h"
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Fields of JSON objects ---- */

/* A field that is absent, or null, which Hugging Face writes for "not set", leaves *out as it is; one of another type is BAD_FILE and
 * named. */

/* An object and the words that name it in a message: "config.json: " or "config.json: astra." */
typedef struct Fields {
  const json_t *object;
  const char *origin, *prefix;
} Fields;

/* A list of words and their meanings ends with {NULL, 0}. The first word of a meaning is the one that is written. */
typedef struct Choice {
  const char *name;
  int value;
} Choice;

static Status fields_bad(const Fields *fields, const char *key, const char *accepted) {
  return status_set(STATUS_BAD_FILE, "%s: field %s%s must be %s", fields->origin, fields->prefix, key, accepted);
}

static const json_t *fields_value(const Fields *fields, const char *key) {
  const json_t *value = json_object_get(fields->object, key);
  return json_is_null(value) ? NULL : value;
}

static Status fields_whole(const Fields *fields, const char *key, int64_t *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_integer(value)) return fields_bad(fields, key, "a whole number");
  *out = json_integer_value(value);
  return STATUS_OK;
}

static Status fields_required(const Fields *fields, const char *key, int64_t *out) {
  if (!fields_value(fields, key)) return status_set(STATUS_BAD_FILE, "%s: field %s%s is missing", fields->origin, fields->prefix, key);
  return fields_whole(fields, key, out);
}

static Status fields_int(const Fields *fields, const char *key, int *out) {
  int64_t value = *out;
  TRY(fields_whole(fields, key, &value));
  if (value < 0 || value > 1 << 30) return fields_bad(fields, key, "a whole number from 0 to 2^30");
  *out = (int)value;
  return STATUS_OK;
}

static Status fields_number(const Fields *fields, const char *key, double *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_number(value)) return fields_bad(fields, key, "a number");
  *out = json_number_value(value);
  return STATUS_OK;
}

static Status fields_flag(const Fields *fields, const char *key, bool *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_boolean(value)) return fields_bad(fields, key, "true or false");
  *out = json_is_true(value);
  return STATUS_OK;
}

static Status fields_triple(const Fields *fields, const char *key, double *out) {
  const json_t *value = fields_value(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_array(value) || json_array_size(value) != 3) return fields_bad(fields, key, "a list of three numbers");
  for (size_t i = 0; i < 3; i++) {
    if (!json_is_number(json_array_get(value, i))) return fields_bad(fields, key, "a list of three numbers");
    out[i] = json_number_value(json_array_get(value, i));
  }
  return STATUS_OK;
}

static Status fields_choice(const Fields *fields, const char *key, const Choice *choices, int *out) {
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

static const char *fields_choice_name(const Choice *choices, int value) {
  while (choices->name && choices->value != value) choices++;
  return choices->name;
}

/* ---- Class names: id2label, label2id, num_labels ---- */

/* A class number as id2label writes it: only decimal digits. -1 when it is no such number below `classes`. */
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
static Status read_labels(const Fields *fields, ModelConfig *config) {
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

/* Classes are ranked by a softmax: a regression or reward model, whose one output is a value, and labels of which several are true at once
 * are refused. astra-kmeans writes one class, too, beside codebooks from images that nobody sorted: those have no head. */
static Status check_task(const Fields *fields, const ModelConfig *config) {
  static const char only[] = "single_label_classification";
  const json_t *task = fields_value(fields, "problem_type");
  if (task && !json_is_string(task)) return fields_bad(fields, "problem_type", "a string");
  if (task && strcmp(json_string_value(task), only) != 0)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: problem_type is '%.40s'; only %s, or none, is supported: one class of at least 2, by a softmax. To train "
                      "a new head on its other weights, remove it there",
                      fields->origin, json_string_value(task), only);
  if (config->classes > 1 || fields_value(fields, "astra")) return STATUS_OK;
  return status_set(
      STATUS_UNSUPPORTED,
      "%s: %s has one class, as of a regression or reward model, which is not supported; supported are classifiers of at least "
      "2 classes. To train a new head on its other weights, give it 2 there",
      fields->origin, fields_value(fields, "id2label") ? "id2label" : "num_labels");
}

static json_t *labels_json(const ModelConfig *config, bool by_name) {
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

/* ---- Image models ---- */

static const Choice activations[] = {
    {"gelu", ACTIVATION_GELU}, {"gelu_new", ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH}, {NULL, 0}};

static Status read_vision(const Fields *fields, ModelConfig *config) {
  int activation = (int)config->activation;
  bool qkv_bias = true;
  TRY(fields_required(fields, "hidden_size", &config->width));
  TRY(fields_required(fields, "num_hidden_layers", &config->blocks));
  TRY(fields_required(fields, "num_attention_heads", &config->heads));
  TRY(fields_required(fields, "intermediate_size", &config->mlp));
  config->kv_heads = config->heads;
  TRY(fields_whole(fields, "image_size", &config->image));
  TRY(fields_whole(fields, "patch_size", &config->patch));
  TRY(fields_whole(fields, "num_channels", &config->channels));
  TRY(fields_number(fields, "layer_norm_eps", &config->norm_eps));
  TRY(fields_choice(fields, "hidden_act", activations, &activation));
  config->activation = (Activation)activation;
  TRY(fields_flag(fields, "qkv_bias", &qkv_bias));
  if (!qkv_bias)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: qkv_bias is false; only models whose query, key and value projections have biases are supported",
                      fields->origin);
  TRY(read_labels(fields, config));
  return check_task(fields, config);
}

/* Images are resized whole, to the model's size. A crop of the middle leaves them so where they had that size before. */
static Status check_crop(const Fields *fields, const ModelConfig *config) {
  bool crop = false;
  TRY(fields_flag(fields, "do_center_crop", &crop));
  const json_t *size = json_object_get(fields->object, "size"), *height = json_is_object(size) ? json_object_get(size, "height") : size;
  if (!crop || json_integer_value(height) == config->image) return STATUS_OK;
  return status_set(
      STATUS_UNSUPPORTED,
      "%s: do_center_crop is true, and size is not the %lld pixels of the model: cropping the middle is not supported. Set it "
      "to false, and images are resized whole instead, which changes answers a little",
      fields->origin, (long long)config->image);
}

static Status read_preprocessor(const Fields *fields, ModelConfig *config) {
  bool normalise = true, rescale = true;
  double factor = 1.0 / 255.0;
  TRY(fields_int(fields, "resample", &config->resample));
  TRY(fields_triple(fields, "image_mean", config->image_mean));
  TRY(fields_triple(fields, "image_std", config->image_std));
  TRY(fields_flag(fields, "do_normalize", &normalise));
  TRY(fields_flag(fields, "do_rescale", &rescale));
  TRY(fields_number(fields, "rescale_factor", &factor));
  if (!rescale || factor < 0.99 / 255.0 || factor > 1.01 / 255.0)
    return status_set(STATUS_UNSUPPORTED, "%s: only images rescaled by 1/255 are supported (do_rescale true, rescale_factor 0.00392...)",
                      fields->origin);
  TRY(check_crop(fields, config));
  for (int i = 0; i < 3 && !normalise; i++) {
    config->image_mean[i] = 0;
    config->image_std[i] = 1;
  }
  return STATUS_OK;
}

static json_t *vision_json(const ModelConfig *config) {
  return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:s, s:f, s:b, s:I, s:I, s:I, s:o, s:o}", "architectures", "ViTForImageClassification",
                   "model_type", "vit", "hidden_size", (json_int_t)config->width, "num_attention_heads", (json_int_t)config->heads,
                   "num_hidden_layers", (json_int_t)config->blocks, "intermediate_size", (json_int_t)config->mlp, "hidden_act",
                   fields_choice_name(activations, (int)config->activation), "layer_norm_eps", config->norm_eps, "qkv_bias", 1,
                   "image_size", (json_int_t)config->image, "patch_size", (json_int_t)config->patch, "num_channels",
                   (json_int_t)config->channels, "id2label", labels_json(config, false), "label2id", labels_json(config, true));
}

static json_t *preprocessor_json(const ModelConfig *config) {
  const double *mean = config->image_mean, *std = config->image_std;
  return json_pack("{s:s, s:b, s:b, s:b, s:f, s:[fff], s:[fff], s:i, s:{s:I, s:I}}", "image_processor_type", "ViTImageProcessor",
                   "do_resize", 1, "do_rescale", 1, "do_normalize", 1, "rescale_factor", 1.0 / 255.0, "image_mean", mean[0], mean[1],
                   mean[2], "image_std", std[0], std[1], std[2], "resample", config->resample, "size", "height", (json_int_t)config->image,
                   "width", (json_int_t)config->image);
}

/* ---- Decoders: the head */

typedef struct Architecture {
  const char *name;
  ModelKind kind;
  bool classifies;
} Architecture;

/* The first of a kind and head is the one that is written. A bare model has no head: it is read as one that predicts tokens. */
static const Architecture architectures[] = {
    {"GPT2LMHeadModel", MODEL_GPT2, false}, {"GPT2ForSequenceClassification", MODEL_GPT2, true},
    {"GPT2Model", MODEL_GPT2, false},       {"LlamaForCausalLM", MODEL_LLAMA, false},
    {"LlamaModel", MODEL_LLAMA, false},     {"LlamaForSequenceClassification", MODEL_LLAMA, true},
};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

static Status read_architecture(const Fields *fields, ModelKind kind, bool *classifies) {
  const json_t *list = fields_value(fields, "architectures");
  *classifies = false;
  if (!list || (json_is_array(list) && json_array_size(list) == 0)) return STATUS_OK;
  const char *name = json_string_value(json_array_get(list, 0));
  if (!name) return fields_bad(fields, "architectures", "a list of names");
  for (int i = 0; i < ARCHITECTURES; i++)
    if (architectures[i].kind == kind && strcmp(architectures[i].name, name) == 0)
      return *classifies = architectures[i].classifies, STATUS_OK;
  return status_set(STATUS_UNSUPPORTED,
                    "%s: the architecture '%.60s' is not supported; supported are GPT2LMHeadModel, GPT2ForSequenceClassification, "
                    "LlamaForCausalLM and LlamaForSequenceClassification, each with its model_type",
                    fields->origin, name);
}

/* ---- ids of special tokens */

static const char ids_accepted[] = "a token's id, or a list of 1 to 8 of them";

/* Adds to those that are there already. */
static Status read_end_ids(const Fields *fields, ModelConfig *config) {
  const json_t *value = fields_value(fields, "eos_token_id");
  size_t count = json_is_array(value) ? json_array_size(value) : 1;
  if (!value || (json_is_integer(value) && json_integer_value(value) == -1)) return STATUS_OK;
  if (count < 1 || count > CONFIG_ENDS) return fields_bad(fields, "eos_token_id", ids_accepted);
  for (size_t i = 0; i < count; i++) {
    const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
    if (!json_is_integer(id)) return fields_bad(fields, "eos_token_id", ids_accepted);
    int same = 0;
    while (same < config->end_ids && config->end_id[same] != json_integer_value(id)) same++;
    if (same < config->end_ids) continue;
    if (config->end_ids == CONFIG_ENDS) return fields_bad(fields, "eos_token_id", "with config.json's at most 8 ids");
    config->end_id[config->end_ids++] = json_integer_value(id);
  }
  return STATUS_OK;
}

/* ---- fields that must have one value */

typedef struct Fixed {
  const char *key;
  bool value; /* the only one that is supported, and Hugging Face's default */
} Fixed;

static Status check_fixed(const Fields *fields, const Fixed *fixed) {
  for (; fixed->key; fixed++) {
    bool value = fixed->value;
    TRY(fields_flag(fields, fixed->key, &value));
    if (value != fixed->value)
      return status_set(STATUS_UNSUPPORTED, "%s: %s is %s; only %s is supported", fields->origin, fixed->key, value ? "true" : "false",
                        value ? "false" : "true");
  }
  return STATUS_OK;
}

/* ---- GPT-2 */

static const char *const dropout_fields[CONFIG_DROPOUTS] = {"embd_pdrop", "resid_pdrop", "attn_pdrop"};

static Status read_gpt2(const Fields *fields, ModelConfig *config) {
  static const Fixed fixed[] = {
      {"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}, {"add_cross_attention", false}, {NULL, false}};
  int activation = (int)config->activation;
  TRY(check_fixed(fields, fixed));
  TRY(fields_required(fields, "n_embd", &config->width));
  TRY(fields_required(fields, "n_layer", &config->blocks));
  TRY(fields_required(fields, "n_head", &config->heads));
  config->kv_heads = config->heads;
  if (config->width > 0 && config->width <= INT64_MAX / 4) config->mlp = 4 * config->width; /* n_inner null; others are refused later */
  TRY(fields_whole(fields, "n_inner", &config->mlp));
  TRY(fields_whole(fields, "n_positions", &config->context));
  TRY(fields_choice(fields, "activation_function", activations, &activation));
  config->activation = (Activation)activation;
  for (int i = 0; i < CONFIG_DROPOUTS; i++) TRY(fields_number(fields, dropout_fields[i], &config->dropout[i]));
  return fields_number(fields, "layer_norm_epsilon", &config->norm_eps);
}

static void write_gpt2(json_t **root, const ModelConfig *config) {
  json_build_put(root, "n_embd", json_integer(config->width));
  json_build_put(root, "n_head", json_integer(config->heads));
  json_build_put(root, "n_layer", json_integer(config->blocks));
  json_build_put(root, "n_inner", json_integer(config->mlp));
  json_build_put(root, "n_positions", json_integer(config->context));
  json_build_put(root, "n_ctx", json_integer(config->context));
  json_build_put(root, "activation_function", json_string(fields_choice_name(activations, (int)config->activation)));
  json_build_put(root, "layer_norm_epsilon", json_real(config->norm_eps));
  for (int i = 0; i < CONFIG_DROPOUTS; i++) json_build_put(root, dropout_fields[i], json_real(config->dropout[i]));
}

/* ---- Llama */

static const Choice gates[] = {{"silu", ACTIVATION_NONE}, {"swish", ACTIVATION_NONE}, {NULL, 0}};

/* rope_scaling, or rope_parameters, which newer files have instead of it and of rope_theta. */
static Status read_rope(const Fields *outer, const char *key, RopeConfig *rope) {
  const json_t *object = fields_value(outer, key);
  if (!object) return STATUS_OK;
  if (!json_is_object(object)) return fields_bad(outer, key, "an object");
  char prefix[32];
  snprintf(prefix, sizeof prefix, "%s.", key);
  Fields fields = {object, outer->origin, prefix};
  const char *type = json_string_value(fields_value(&fields, "rope_type"));
  if (!type) type = json_string_value(fields_value(&fields, "type")); /* as older files call it */
  if (!type) return fields_bad(&fields, "rope_type", "\"llama3\" or \"default\"");
  TRY(fields_number(&fields, "rope_theta", &rope->theta));
  if (strcmp(type, "default") == 0) return STATUS_OK;
  if (strcmp(type, "llama3") != 0)
    return status_set(STATUS_UNSUPPORTED, "%s: %srope_type '%.40s' is not supported; supported are llama3 and default", outer->origin,
                      prefix, type);
  static const char *const factors[] = {"factor", "low_freq_factor", "high_freq_factor"};
  double *const values[] = {&rope->factor, &rope->low_factor, &rope->high_factor};
  rope->llama3 = true;
  for (int i = 0; i < 3; i++) {
    if (!fields_value(&fields, factors[i])) return fields_bad(&fields, factors[i], "a number; it is missing");
    TRY(fields_number(&fields, factors[i], values[i]));
  }
  return fields_required(&fields, "original_max_position_embeddings", &rope->original);
}

static Status read_llama(const Fields *fields, ModelConfig *config) {
  static const Fixed fixed[] = {{"attention_bias", false}, {"mlp_bias", false}, {NULL, false}};
  int gate = ACTIVATION_NONE;
  TRY(check_fixed(fields, fixed));
  TRY(fields_required(fields, "hidden_size", &config->width));
  TRY(fields_required(fields, "num_hidden_layers", &config->blocks));
  TRY(fields_required(fields, "num_attention_heads", &config->heads));
  TRY(fields_required(fields, "intermediate_size", &config->mlp));
  config->kv_heads = config->heads;
  TRY(fields_whole(fields, "num_key_value_heads", &config->kv_heads));
  const int64_t head_width = config->heads > 0 ? config->width / config->heads : 0;
  int64_t head_dim = head_width;
  TRY(fields_whole(fields, "head_dim", &head_dim));
  if (head_dim != head_width)
    return status_set(STATUS_UNSUPPORTED, "%s: head_dim is %lld; only hidden_size / num_attention_heads = %lld is supported",
                      fields->origin, (long long)head_dim, (long long)head_width);
  TRY(fields_whole(fields, "max_position_embeddings", &config->context));
  TRY(fields_choice(fields, "hidden_act", gates, &gate));
  TRY(fields_number(fields, "rms_norm_eps", &config->norm_eps));
  TRY(fields_number(fields, "rope_theta", &config->rope.theta));
  TRY(read_rope(fields, "rope_scaling", &config->rope));
  return read_rope(fields, "rope_parameters", &config->rope);
}

static void write_llama(json_t **root, const ModelConfig *config) {
  const RopeConfig *rope = &config->rope;
  json_t *scaling = json_null();
  if (rope->llama3)
    scaling = json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", rope->factor, "low_freq_factor", rope->low_factor,
                        "high_freq_factor", rope->high_factor, "original_max_position_embeddings", (json_int_t)rope->original);
  json_build_put(root, "hidden_size", json_integer(config->width));
  json_build_put(root, "intermediate_size", json_integer(config->mlp));
  json_build_put(root, "num_hidden_layers", json_integer(config->blocks));
  json_build_put(root, "num_attention_heads", json_integer(config->heads));
  json_build_put(root, "num_key_value_heads", json_integer(config->kv_heads));
  json_build_put(root, "head_dim", json_integer(config->width / config->heads));
  json_build_put(root, "max_position_embeddings", json_integer(config->context));
  json_build_put(root, "hidden_act", json_string(fields_choice_name(gates, (int)config->activation)));
  json_build_put(root, "rms_norm_eps", json_real(config->norm_eps));
  json_build_put(root, "rope_theta", json_real(config->rope.theta));
  json_build_put(root, "rope_scaling", scaling);
  json_build_put(root, "attention_bias", json_false());
  json_build_put(root, "mlp_bias", json_false());
}

/* ---- both */

static Status read_decoder(const Fields *fields, ModelConfig *config) {
  bool classifies;
  TRY(config->kind == MODEL_GPT2 ? read_gpt2(fields, config) : read_llama(fields, config));
  TRY(fields_required(fields, "vocab_size", &config->vocabulary));
  TRY(fields_flag(fields, "tie_word_embeddings", &config->tied));
  TRY(fields_whole(fields, "bos_token_id", &config->begin_id));
  TRY(fields_whole(fields, "pad_token_id", &config->pad_id));
  TRY(read_end_ids(fields, config));
  TRY(read_architecture(fields, config->kind, &classifies));
  if (!classifies) return STATUS_OK;
  TRY(read_labels(fields, config));
  return check_task(fields, config);
}

static json_t *decoder_json(const ModelConfig *config) {
  const Architecture *architecture = architectures;
  while (architecture->kind != config->kind || architecture->classifies != (config->classes > 0)) architecture++;
  json_t *root =
      json_pack("{s:[s], s:s, s:I, s:b}", "architectures", architecture->name, "model_type", config->kind == MODEL_GPT2 ? "gpt2" : "llama",
                "vocab_size", (json_int_t)config->vocabulary, "tie_word_embeddings", (int)config->tied);
  if (config->kind == MODEL_GPT2)
    write_gpt2(&root, config);
  else
    write_llama(&root, config);
  json_build_put(&root, "bos_token_id", config->begin_id < 0 ? json_null() : json_integer(config->begin_id));
  if (config->pad_id >= 0) json_build_put(&root, "pad_token_id", json_integer(config->pad_id));
  json_t *ends = config->end_ids == 0 ? json_null() : config->end_ids == 1 ? json_integer(config->end_id[0]) : json_array();
  for (int i = 0; config->end_ids > 1 && i < config->end_ids; i++) json_build_append(&ends, json_integer(config->end_id[i]));
  json_build_put(&root, "eos_token_id", ends);
  if (config->classes == 0) return root;
  json_build_put(&root, "id2label", labels_json(config, false));
  json_build_put(&root, "label2id", labels_json(config, true));
  return root;
}

/* ---- "astra" ---- */

static const Choice sites[] = {{"x", SITE_X}, {"kv", SITE_KV}, {NULL, 0}};
static const Choice class_tokens[] = {{"distributed", CLASS_DISTRIBUTED}, {"single", CLASS_SINGLE}, {NULL, 0}};

static const char *const devices_accepted = "a whole number, \"LEAST-MOST\" or {\"least\": ..., \"most\": ...}";

/* 4, "4", "2-8" or {"least": 2, "most": 8} */
static Status read_devices(const Fields *fields, AstraConfig *astra) {
  const json_t *value = fields_value(fields, "devices");
  if (!value) return STATUS_OK;
  if (json_is_object(value)) {
    Fields range = {value, fields->origin, "astra.devices."};
    TRY(fields_int(&range, "least", &astra->devices_min));
    return fields_int(&range, "most", &astra->devices);
  }
  if (json_is_string(value)) {
    int end = 0;
    const char *text = json_string_value(value);
    if (sscanf(text, "%5d-%5d%n", &astra->devices_min, &astra->devices, &end) == 2 && text[end] == '\0') return STATUS_OK;
    if (sscanf(text, "%5d%n", &astra->devices, &end) == 1 && text[end] == '\0') return astra->devices_min = astra->devices, STATUS_OK;
    return fields_bad(fields, "devices", devices_accepted);
  }
  if (!json_is_integer(value)) return fields_bad(fields, "devices", devices_accepted);
  TRY(fields_int(fields, "devices", &astra->devices));
  astra->devices_min = astra->devices;
  return STATUS_OK;
}

/* Several bit rates. `groups`, which programs that know one use, is the largest. */
static Status read_rates(const Fields *fields, AstraConfig *astra) {
  static const char accepted[] = "a list of 2 to 16 ascending numbers, of which astra.groups is the last";
  const json_t *value = fields_value(fields, "rates");
  if (!value) return STATUS_OK;
  const size_t count = json_array_size(value);
  if (!json_is_array(value) || count < 2 || count > CONFIG_RATES) return fields_bad(fields, "rates", accepted);
  for (size_t i = 0; i < count; i++) {
    const json_t *groups = json_array_get(value, i);
    const json_int_t min = i > 0 ? astra->rates[i - 1] + 1 : 1;
    if (!json_is_integer(groups) || json_integer_value(groups) < min || json_integer_value(groups) > astra->groups)
      return fields_bad(fields, "rates", accepted);
    astra->rates[i] = (int)json_integer_value(groups);
  }
  if (astra->rates[count - 1] != astra->groups) return fields_bad(fields, "rates", accepted);
  astra->rate_count = (int)count;
  return STATUS_OK;
}

static Status read_astra(const Fields *outer, ModelConfig *config) {
  const json_t *object = fields_value(outer, "astra");
  if (!object) return STATUS_OK;
  if (!json_is_object(object)) return fields_bad(outer, "astra", "an object");
  Fields fields = {object, outer->origin, "astra."};
  AstraConfig *astra = &config->astra;
  int site = (int)astra->site, class_token = (int)astra->class_token;
  TRY(fields_choice(&fields, "site", sites, &site));
  astra->site = (Site)site;
  if (!config_is_decoder(config)) {
    const json_t *layout = fields_value(&fields, "layout");
    TRY(fields_choice(&fields, "class_token", class_tokens, &class_token));
    astra->class_token = (ClassToken)class_token;
    TRY(fields_number(&fields, "class_bias", &astra->class_bias));
    TRY(fields_number(&fields, "class_mean_power", &astra->class_mean_power));
    TRY(fields_whole(&fields, "exchange_blocks", &astra->exchange_blocks));
    if (layout && !(json_is_string(layout) && token_map_parse(json_string_value(layout), &astra->layout)))
      return fields_bad(&fields, "layout", token_map_names);
  }
  TRY(fields_int(&fields, "groups", &astra->groups));
  TRY(read_rates(&fields, astra));
  TRY(fields_int(&fields, "codebook_size", &astra->codebook_size));
  TRY(fields_number(&fields, "commitment_weight", &astra->commitment_weight));
  TRY(fields_number(&fields, "noise", &astra->noise));
  TRY(fields_flag(&fields, "rotation", &astra->rotation));
  TRY(fields_flag(&fields, "prediction", &astra->prediction));
  TRY(fields_flag(&fields, "exact_first", &astra->exact_first));
  TRY(fields_flag(&fields, "position_mean", &astra->position_mean));
  return read_devices(&fields, astra);
}

static json_t *astra_json(const ModelConfig *config) {
  const AstraConfig *astra = &config->astra;
  char layout[TOKEN_MAP_NAME];
  json_t *devices = astra->devices_min == astra->devices ? json_integer(astra->devices)
                                                         : json_pack("{s:i, s:i}", "least", astra->devices_min, "most", astra->devices);
  const int groups = config_rate_groups(config, config_rates(config) - 1); /* the largest, whichever is in use */
  json_t *object =
      json_pack("{s:s, s:i, s:i, s:o, s:f, s:f}", "site", fields_choice_name(sites, (int)astra->site), "groups", groups, "codebook_size",
                astra->codebook_size, "devices", devices, "commitment_weight", astra->commitment_weight, "noise", astra->noise);
  json_t *rates = astra->rate_count > 0 ? json_array() : NULL;
  for (int r = 0; r < astra->rate_count; r++) json_build_append(&rates, json_integer(astra->rates[r]));
  if (astra->rate_count > 0) json_build_put(&object, "rates", rates);
  if (astra->rotation) json_build_put(&object, "rotation", json_true());
  if (astra->prediction) json_build_put(&object, "prediction", json_true());
  if (astra->exact_first) json_build_put(&object, "exact_first", json_true());
  if (astra->position_mean) json_build_put(&object, "position_mean", json_true());
  if (config_is_decoder(config)) return object;
  json_build_put(&object, "class_token", json_string(fields_choice_name(class_tokens, (int)astra->class_token)));
  if (astra->class_bias != 0) json_build_put(&object, "class_bias", json_real(astra->class_bias));
  if (astra->class_mean_power != 0) json_build_put(&object, "class_mean_power", json_real(astra->class_mean_power));
  if (astra->exchange_blocks > 0) json_build_put(&object, "exchange_blocks", json_integer(astra->exchange_blocks));
  token_map_name(&astra->layout, layout);
  json_build_put(&object, "layout", json_string(layout));
  return object;
}

/* ---- Files ---- */

static const size_t MAX_BYTES = (size_t)8 << 20; /* a hundred thousand class names fit; the tree takes up to 45 times that */

static Status read_kind(const Fields *fields, ModelKind *kind) {
  static const Choice kinds[] = {{"vit", MODEL_VIT}, {"gpt2", MODEL_GPT2}, {"llama", MODEL_LLAMA}, {NULL, 0}};
  const char *type = json_string_value(fields_value(fields, "model_type"));
  if (!type)
    return status_set(STATUS_BAD_FILE, "%s: field model_type is missing; is this the config.json of a Hugging Face checkpoint?",
                      fields->origin);
  for (const Choice *choice = kinds; choice->name; choice++)
    if (strcmp(choice->name, type) == 0) return *kind = (ModelKind)choice->value, STATUS_OK;
  return status_set(STATUS_UNSUPPORTED, "%s: models of type '%.40s' are not supported; supported are vit, gpt2 and llama", fields->origin,
                    type);
}

static Status parse_object(const char *json, size_t size, const char *origin, json_t **root) {
  json_error_t error;
  *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);
  if (!*root) return status_set(STATUS_BAD_FILE, "%s: line %d: %s", origin, error.line, error.text);
  if (json_is_object(*root)) return STATUS_OK;
  json_decref(*root);
  return status_set(STATUS_BAD_FILE, "%s: must hold one JSON object", origin);
}

static Status parse_config(ModelConfig *config, const char *json, size_t size, const char *origin) {
  memset(config, 0, sizeof *config);
  json_t *root;
  TRY(parse_object(json, size, origin, &root));
  Fields fields = {root, origin, ""};
  ModelKind kind = MODEL_VIT;
  Status status = read_kind(&fields, &kind);
  if (status == STATUS_OK) {
    config_defaults(config, kind);
    status = config_is_decoder(config) ? read_decoder(&fields, config) : read_vision(&fields, config);
  }
  if (status == STATUS_OK) status = read_astra(&fields, config);
  if (status == STATUS_BAD_VALUE) status = status_wrap(STATUS_BAD_FILE, "%s", origin); /* of a number of labels */
  if (status == STATUS_OK) status = config_check_file(config, origin);
  if (status != STATUS_OK) config_release(config);
  json_decref(root);
  return status;
}

typedef Status Reader(const Fields *fields, ModelConfig *config);

static Status parse_more(ModelConfig *config, const char *json, size_t size, const char *origin, Reader *reader) {
  json_t *root;
  TRY(parse_object(json, size, origin, &root));
  Fields fields = {root, origin, ""};
  Status status = reader(&fields, config);
  if (status == STATUS_OK) status = config_check_file(config, origin);
  json_decref(root);
  return status;
}

static Status parse_preprocessor(ModelConfig *config, const char *json, size_t size, const char *origin) {
  return parse_more(config, json, size, origin, read_preprocessor);
}

static Status parse_generation(ModelConfig *config, const char *json, size_t size, const char *origin) {
  return parse_more(config, json, size, origin, read_end_ids);
}

typedef Status Parser(ModelConfig *config, const char *json, size_t size, const char *origin);

static Status parse_file(ModelConfig *config, const char *directory, const char *name, bool optional, Parser *parser) {
  char *path = files_join(directory, name), *text = NULL;
  if (!path) return status_no_memory(directory, "reading the configuration");
  size_t size = 0;
  Status status = STATUS_OK;
  if (!optional && !files_exists(path)) {
    if (errno == ENOENT || errno == ENOTDIR)
      status = status_set(STATUS_NOT_FOUND, "%s: there is no config.json; give the directory of a model", directory);
    else
      status = status_set(STATUS_IO, "%s: %s", path, strerror(errno));
  } else if (files_exists(path)) {
    status = files_read(path, MAX_BYTES, &text, &size);
    if (status == STATUS_OK) status = parser(config, text, size, path);
  }
  free(text);
  free(path);
  return status;
}

static const char image_file[] = "preprocessor_config.json";

void config_warn_no_preprocessor(const ModelConfig *config, const char *directory) {
  char *path = config_is_decoder(config) ? NULL : files_join(directory, image_file);
  if (path && !files_exists(path))
    log_warning(
        "%s has no %s: images are resized bilinearly, and normalised with mean and deviation 0.5, which changes answers if the model "
        "was trained otherwise; put that file of the model there",
        directory, image_file);
  free(path);
}

static Status read_gguf(void *config, const GgufFile *file) { return gguf_model_config(config, file); }

Status config_load(ModelConfig *config, const char *directory) {
  memset(config, 0, sizeof *config);
  if (gguf_is_file(directory)) return gguf_read_path(directory, read_gguf, config);
  TRY(parse_file(config, directory, "config.json", false, parse_config));
  bool text = config_is_decoder(config);
  Status status =
      parse_file(config, directory, text ? "generation_config.json" : image_file, true, text ? parse_generation : parse_preprocessor);
  if (status != STATUS_OK) config_release(config);
  return status;
}

Status config_check_labels(const ModelConfig *config) {
  for (int64_t i = 0; i < config->classes; i++) { /* folder names may hold any bytes */
    json_t *name = json_string(config->labels[i]);
    json_decref(name);
    if (!name)
      return status_set(STATUS_BAD_VALUE, "the name of class %lld, '%.60s', is not UTF-8; rename the class", (long long)i,
                        config->labels[i]);
  }
  return STATUS_OK;
}

Status config_save(const ModelConfig *config, const char *directory) {
  TRY(config_check(config));
  Status named = config_check_labels(config);
  if (named != STATUS_OK) return status_wrap(named, "%s/config.json", directory);
  TRY(files_make_dirs(directory));
  const bool decoder = config_is_decoder(config);
  if (!decoder) TRY(json_build_save(preprocessor_json(config), directory, image_file));
  json_t *root = decoder ? decoder_json(config) : vision_json(config);
  if (config->astra.groups > 0) json_build_put(&root, "astra", astra_json(config));
  return json_build_save(root, directory, "config.json");
}
