/* config.json, preprocessor_config.json and generation_config.json, as Hugging Face writes them, with our settings under "astra".
 * Fields that are not known are ignored; a known field with a value that is not understood is an error that names it.
 * Leaves out the fields of each kind of model (config_vision.c, config_decoder.c), ranges (config_check) and their meaning (config.h). */
#include "base/files.h"
#include "base/gguf.h"
#include "nn/config_gguf.h"
#include "nn/config_parts.h"
#include "nn/json_build.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t MOST_BYTES =
    (size_t)8 << 20; /* of a JSON file: a hundred thousand class names fit; its tree takes up to 45 times that */

const Choice config_activations[] = {
    {"gelu", ACTIVATION_GELU}, {"gelu_new", ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH}, {NULL, 0}};
static const Choice sites[] = {{"x", SITE_X}, {"kv", SITE_KV}, {NULL, 0}};
static const Choice class_tokens[] = {{"distributed", CLASS_DISTRIBUTED}, {"single", CLASS_SINGLE}, {NULL, 0}};

/* ---- config.json */

static const char *const devices_accepted = "a whole number, \"LEAST-MOST\" or {\"least\": ..., \"most\": ...}";

/* 4, "4", "2-8" or {"least": 2, "most": 8} */
static Status read_devices(const Fields *fields, AstraConfig *astra) {
  const json_t *value = fields_value(fields, "devices");
  if (!value) return STATUS_OK;
  if (json_is_object(value)) {
    Fields range = {value, fields->origin, "astra.devices."};
    TRY(fields_int(&range, "least", &astra->devices_least));
    return fields_int(&range, "most", &astra->devices);
  }
  if (json_is_string(value)) {
    int end = 0;
    const char *text = json_string_value(value);
    if (sscanf(text, "%5d-%5d%n", &astra->devices_least, &astra->devices, &end) == 2 && text[end] == '\0') return STATUS_OK;
    if (sscanf(text, "%5d%n", &astra->devices, &end) == 1 && text[end] == '\0') return astra->devices_least = astra->devices, STATUS_OK;
    return fields_bad(fields, "devices", devices_accepted);
  }
  if (!json_is_integer(value)) return fields_bad(fields, "devices", devices_accepted);
  TRY(fields_int(fields, "devices", &astra->devices));
  astra->devices_least = astra->devices;
  return STATUS_OK;
}

static Status read_class_token(const Fields *fields, AstraConfig *astra) {
  int class_token = (int)astra->class_token;
  TRY(fields_choice(fields, "class_token", class_tokens, &class_token));
  astra->class_token = (ClassToken)class_token;
  return STATUS_OK;
}

static Status read_layout(const Fields *fields, AstraConfig *astra) {
  const json_t *value = fields_value(fields, "layout");
  if (!value || (json_is_string(value) && token_map_parse(json_string_value(value), &astra->layout))) return STATUS_OK;
  return fields_bad(fields, "layout", token_map_names);
}

static json_t *layout_json(const AstraConfig *astra) {
  char name[TOKEN_MAP_NAME];
  token_map_name(&astra->layout, name);
  return json_string(name);
}

static Status read_astra(const Fields *outer, ModelConfig *config) {
  const json_t *object = fields_value(outer, "astra");
  if (!object) return STATUS_OK;
  if (!json_is_object(object)) return fields_bad(outer, "astra", "an object");
  Fields fields = {object, outer->origin, "astra."};
  AstraConfig *astra = &config->astra;
  int site = (int)astra->site;
  TRY(fields_choice(&fields, "site", sites, &site));
  astra->site = (Site)site;
  if (!config_is_decoder(config)) TRY(read_class_token(&fields, astra));
  if (!config_is_decoder(config)) TRY(read_layout(&fields, astra));
  TRY(fields_int(&fields, "groups", &astra->groups));
  TRY(fields_int(&fields, "codebook_size", &astra->codebook_size));
  TRY(fields_number(&fields, "commitment_weight", &astra->commitment_weight));
  TRY(fields_number(&fields, "noise", &astra->noise));
  return read_devices(&fields, astra);
}

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

/* A value out of range is the file's fault here. */
static Status blame_file(Status status, const char *origin) {
  return status == STATUS_BAD_VALUE ? status_wrap(STATUS_BAD_FILE, "%s", origin) : status;
}

Status config_checked(const ModelConfig *config, const char *origin) {
  Status status = config_check(config);
  return status == STATUS_UNSUPPORTED ? status_wrap(status, "%s", origin) : blame_file(status, origin);
}

static Status read_config(const Fields *fields, ModelConfig *config, ModelKind kind) {
  config_defaults(config, kind);
  TRY(config_is_decoder(config) ? config_decoder_read(fields, config) : config_vision_read(fields, config));
  return read_astra(fields, config);
}

Status config_parse(ModelConfig *config, const char *json, size_t size, const char *origin) {
  memset(config, 0, sizeof *config);
  json_t *root;
  TRY(parse_object(json, size, origin, &root));
  Fields fields = {root, origin, ""};
  ModelKind kind = MODEL_VIT;
  Status status = read_kind(&fields, &kind);
  if (status == STATUS_OK) status = blame_file(read_config(&fields, config, kind), origin);
  if (status == STATUS_OK) status = config_checked(config, origin);
  if (status != STATUS_OK) config_release(config);
  json_decref(root);
  return status;
}

/* ---- preprocessor_config.json, generation_config.json */

typedef Status Reader(const Fields *fields, ModelConfig *config);

static Status parse_more(ModelConfig *config, const char *json, size_t size, const char *origin, Reader *reader) {
  json_t *root;
  TRY(parse_object(json, size, origin, &root));
  Fields fields = {root, origin, ""};
  Status status = reader(&fields, config);
  if (status == STATUS_OK) status = config_checked(config, origin);
  json_decref(root);
  return status;
}

Status config_parse_preprocessor(ModelConfig *config, const char *json, size_t size, const char *origin) {
  return parse_more(config, json, size, origin, config_vision_read_preprocessor);
}

Status config_parse_generation(ModelConfig *config, const char *json, size_t size, const char *origin) {
  return parse_more(config, json, size, origin, config_decoder_read_generation);
}

/* ---- files */

typedef Status Parser(ModelConfig *config, const char *json, size_t size, const char *origin);

static Status parse_file(ModelConfig *config, const char *directory, const char *name, bool optional, Parser *parser) {
  char *path = files_join(directory, name), *text = NULL;
  if (!path) return status_no_memory(directory, "reading the configuration");
  size_t size = 0;
  Status status = STATUS_OK;
  if (!optional && !files_exists(path)) {
    status = status_set(STATUS_NOT_FOUND, "%s: there is no config.json; give the directory of a model", directory);
  } else if (files_exists(path)) {
    status = files_read(path, MOST_BYTES, &text, &size);
    if (status == STATUS_OK) status = parser(config, text, size, path);
  }
  free(text);
  free(path);
  return status;
}

Status config_load(ModelConfig *config, const char *directory) {
  memset(config, 0, sizeof *config);
  if (gguf_is_file(directory)) return config_gguf_load(config, directory);
  TRY(parse_file(config, directory, "config.json", false, config_parse));
  bool text = config_is_decoder(config);
  Status status = parse_file(config, directory, text ? "generation_config.json" : "preprocessor_config.json", true,
                             text ? config_parse_generation : config_parse_preprocessor);
  if (status != STATUS_OK) config_release(config);
  return status;
}

static json_t *devices_json(const AstraConfig *astra) {
  if (astra->devices_least == astra->devices) return json_integer(astra->devices);
  return json_pack("{s:i, s:i}", "least", astra->devices_least, "most", astra->devices);
}

static json_t *astra_json(const ModelConfig *config) {
  const AstraConfig *astra = &config->astra;
  json_t *object = json_pack("{s:s, s:i, s:i, s:o, s:f, s:f}", "site", fields_choice_name(sites, (int)astra->site), "groups", astra->groups,
                             "codebook_size", astra->codebook_size, "devices", devices_json(astra), "commitment_weight",
                             astra->commitment_weight, "noise", astra->noise);
  if (config_is_decoder(config)) return object;
  json_build_put(&object, "class_token", json_string(fields_choice_name(class_tokens, (int)astra->class_token)));
  json_build_put(&object, "layout", layout_json(astra));
  return object;
}

static json_t *config_json(const ModelConfig *config) {
  json_t *root = config_is_decoder(config) ? config_decoder_json(config) : config_vision_json(config);
  if (config->astra.groups > 0) json_build_put(&root, "astra", astra_json(config));
  return root;
}

Status config_save(const ModelConfig *config, const char *directory) {
  TRY(config_check(config));
  TRY(config_labels_check(config, directory));
  TRY(files_make_dirs(directory));
  if (!config_is_decoder(config)) TRY(json_build_save(config_vision_preprocessor(config), directory, "preprocessor_config.json"));
  return json_build_save(config_json(config), directory, "config.json");
}
