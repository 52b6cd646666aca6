/* Fields, ranges and defaults of the configurations of each kind of model: image models and decoders. */
#include "nn/config_internal.h"
#include "nn/json_build.h"
#include <stdio.h>
#include <string.h>

/* ---- Image models ---- */

Status config_vision_read(const Fields *fields, ModelConfig *config) {
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
  TRY(fields_choice(fields, "hidden_act", config_activations, &activation));
  config->activation = (Activation)activation;
  TRY(fields_flag(fields, "qkv_bias", &qkv_bias));
  if (!qkv_bias)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: qkv_bias is false; only models whose query, key and value projections have biases are supported",
                      fields->origin);
  return config_labels_read(fields, config);
}

Status config_vision_read_preprocessor(const Fields *fields, ModelConfig *config) {
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
  for (int i = 0; i < 3 && !normalise; i++) {
    config->image_mean[i] = 0;
    config->image_std[i] = 1;
  }
  return STATUS_OK;
}

json_t *config_vision_json(const ModelConfig *config) {
  return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:s, s:f, s:b, s:I, s:I, s:I, s:o, s:o}", "architectures", "ViTForImageClassification",
                   "model_type", "vit", "hidden_size", (json_int_t)config->width, "num_attention_heads", (json_int_t)config->heads,
                   "num_hidden_layers", (json_int_t)config->blocks, "intermediate_size", (json_int_t)config->mlp, "hidden_act",
                   fields_choice_name(config_activations, (int)config->activation), "layer_norm_eps", config->norm_eps, "qkv_bias", 1,
                   "image_size", (json_int_t)config->image, "patch_size", (json_int_t)config->patch, "num_channels",
                   (json_int_t)config->channels, "id2label", config_labels_json(config, false), "label2id",
                   config_labels_json(config, true));
}

json_t *config_vision_preprocessor(const ModelConfig *config) {
  const double *mean = config->image_mean, *std = config->image_std;
  return json_pack("{s:s, s:b, s:b, s:b, s:f, s:[fff], s:[fff], s:i, s:{s:I, s:I}}", "image_processor_type", "ViTImageProcessor",
                   "do_resize", 1, "do_rescale", 1, "do_normalize", 1, "rescale_factor", 1.0 / 255.0, "image_mean", mean[0], mean[1],
                   mean[2], "image_std", std[0], std[1], std[2], "resample", config->resample, "size", "height", (json_int_t)config->image,
                   "width", (json_int_t)config->image);
}

/* ---- Decoders ---- */

/* config.json's fields of the decoders, GPT-2 and Llama. What would change the computation and is not supported is refused by name. */

/* ---- the head */

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

static const char *architecture_name(const ModelConfig *config) {
  int i = 0;
  while (architectures[i].kind != config->kind || architectures[i].classifies != (config->classes > 0)) i++;
  return architectures[i].name;
}

static Status read_head(const Fields *fields, ModelConfig *config) {
  bool classifies;
  TRY(read_architecture(fields, config->kind, &classifies));
  return classifies ? config_labels_read(fields, config) : STATUS_OK;
}

/* ---- ids of special tokens */

static const char ids_accepted[] = "a token's id, or a list of 1 to 8 of them";

static bool has_end(const ModelConfig *config, int64_t id) {
  for (int i = 0; i < config->end_ids; i++) {
    if (config->end_id[i] == id) return true;
  }
  return false;
}

/* Beside those that are there. */
static Status read_end_ids(const Fields *fields, ModelConfig *config) {
  const json_t *value = fields_value(fields, "eos_token_id");
  size_t count = json_is_array(value) ? json_array_size(value) : 1;
  if (!value || (json_is_integer(value) && json_integer_value(value) == -1)) return STATUS_OK;
  if (count < 1 || count > CONFIG_ENDS) return fields_bad(fields, "eos_token_id", ids_accepted);
  for (size_t i = 0; i < count; i++) {
    const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
    if (!json_is_integer(id)) return fields_bad(fields, "eos_token_id", ids_accepted);
    if (has_end(config, json_integer_value(id))) continue;
    if (config->end_ids == CONFIG_ENDS) return fields_bad(fields, "eos_token_id", "with config.json's at most 8 ids");
    config->end_id[config->end_ids++] = json_integer_value(id);
  }
  return STATUS_OK;
}

Status config_decoder_read_generation(const Fields *fields, ModelConfig *config) { return read_end_ids(fields, config); }

static Status read_ids(const Fields *fields, ModelConfig *config) {
  TRY(fields_whole(fields, "bos_token_id", &config->begin_id));
  TRY(fields_whole(fields, "pad_token_id", &config->pad_id));
  return read_end_ids(fields, config);
}

static void write_ids(json_t **root, const ModelConfig *config) {
  json_build_put(root, "bos_token_id", config->begin_id < 0 ? json_null() : json_integer(config->begin_id));
  if (config->pad_id >= 0) json_build_put(root, "pad_token_id", json_integer(config->pad_id));
  if (config->end_ids <= 1) {
    json_build_put(root, "eos_token_id", config->end_ids == 0 ? json_null() : json_integer(config->end_id[0]));
    return;
  }
  json_t *list = json_array();
  for (int i = 0; i < config->end_ids; i++) json_build_append(&list, json_integer(config->end_id[i]));
  json_build_put(root, "eos_token_id", list);
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
  TRY(fields_choice(fields, "activation_function", config_activations, &activation));
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
  json_build_put(root, "activation_function", json_string(fields_choice_name(config_activations, (int)config->activation)));
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

static Status check_head_width(const Fields *fields, const ModelConfig *config) {
  int64_t own = config->heads > 0 ? config->width / config->heads : 0, given = own;
  TRY(fields_whole(fields, "head_dim", &given));
  if (given == own) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED, "%s: head_dim is %lld; only hidden_size / num_attention_heads = %lld is supported", fields->origin,
                    (long long)given, (long long)own);
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
  TRY(check_head_width(fields, config));
  TRY(fields_whole(fields, "max_position_embeddings", &config->context));
  TRY(fields_choice(fields, "hidden_act", gates, &gate));
  TRY(fields_number(fields, "rms_norm_eps", &config->norm_eps));
  TRY(fields_number(fields, "rope_theta", &config->rope.theta));
  TRY(read_rope(fields, "rope_scaling", &config->rope));
  return read_rope(fields, "rope_parameters", &config->rope);
}

static json_t *rope_json(const RopeConfig *rope) {
  if (!rope->llama3) return json_null();
  return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", rope->factor, "low_freq_factor", rope->low_factor,
                   "high_freq_factor", rope->high_factor, "original_max_position_embeddings", (json_int_t)rope->original);
}

static void write_llama(json_t **root, const ModelConfig *config) {
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
  json_build_put(root, "rope_scaling", rope_json(&config->rope));
  json_build_put(root, "attention_bias", json_false());
  json_build_put(root, "mlp_bias", json_false());
}

/* ---- both */

Status config_decoder_read(const Fields *fields, ModelConfig *config) {
  TRY(config->kind == MODEL_GPT2 ? read_gpt2(fields, config) : read_llama(fields, config));
  TRY(fields_required(fields, "vocab_size", &config->vocabulary));
  TRY(fields_flag(fields, "tie_word_embeddings", &config->tied));
  TRY(read_ids(fields, config));
  return read_head(fields, config);
}

json_t *config_decoder_json(const ModelConfig *config) {
  json_t *root = json_pack("{s:[s], s:s, s:I, s:b}", "architectures", architecture_name(config), "model_type",
                           config->kind == MODEL_GPT2 ? "gpt2" : "llama", "vocab_size", (json_int_t)config->vocabulary,
                           "tie_word_embeddings", (int)config->tied);
  if (config->kind == MODEL_GPT2)
    write_gpt2(&root, config);
  else
    write_llama(&root, config);
  write_ids(&root, config);
  if (config->classes == 0) return root;
  json_build_put(&root, "id2label", config_labels_json(config, false));
  json_build_put(&root, "label2id", config_labels_json(config, true));
  return root;
}
