/* Configurations in files: config.json and the metadata of a GGUF file. */
#include "base/files.h"
#include "base/gguf.h"
#include "nn/config.h"
#include "nn/config_internal.h"
#include "nn/json_build.h"
#include "nn/positions.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- config.json ---- */

static const size_t MAX_BYTES =
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
static Status wrap_with_file(Status status, const char *origin) {
  return status == STATUS_BAD_VALUE ? status_wrap(STATUS_BAD_FILE, "%s", origin) : status;
}

/* config_check, its messages turned into ones about a file. */
static Status config_checked(const ModelConfig *config, const char *origin) {
  Status status = config_check(config);
  return status == STATUS_UNSUPPORTED ? status_wrap(status, "%s", origin) : wrap_with_file(status, origin);
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
  if (status == STATUS_OK) status = wrap_with_file(read_config(&fields, config, kind), origin);
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
    status = files_read(path, MAX_BYTES, &text, &size);
    if (status == STATUS_OK) status = parser(config, text, size, path);
  }
  free(text);
  free(path);
  return status;
}

static Status read_gguf(void *config, const GgufFile *file) { return config_gguf_read(config, file); }

Status config_load(ModelConfig *config, const char *directory) {
  memset(config, 0, sizeof *config);
  if (gguf_is_file(directory)) return gguf_read_path(directory, read_gguf, config);
  TRY(parse_file(config, directory, "config.json", false, config_parse));
  bool text = config_is_decoder(config);
  Status status = parse_file(config, directory, text ? "generation_config.json" : "preprocessor_config.json", true,
                             text ? config_parse_generation : config_parse_preprocessor);
  if (status != STATUS_OK) config_release(config);
  return status;
}

static json_t *devices_json(const AstraConfig *astra) {
  if (astra->devices_min == astra->devices) return json_integer(astra->devices);
  return json_pack("{s:i, s:i}", "least", astra->devices_min, "most", astra->devices);
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

/* ---- GGUF ---- */

/* The model's configuration from a GGUF file: its metadata say of a Llama model what config.json says elsewhere. All zeroes after a
 * failure. UNSUPPORTED: another architecture, one part of a split file, experts, scalings of rotary positions other than Llama 3's. */
/* The configuration that a GGUF file's metadata and tensors describe: Llama's, keys "llama.*". What would change the result and is not
 * understood is refused; keys that are not known are ignored, as they are many and mostly say where the model comes from.
 * Left out: the tensors' data (gguf_tensors.c) and the tokenizer (data/tokenizer/tokenizer_llama.c). */

enum { MAX_HEAD = 4096 }; /* numbers of a head, whose rotary factors are looked at */

static Status missing(const GgufFile *file, const char *key) {
  return status_set(STATUS_BAD_FILE, "%s: the metadata key %s is missing; is this the file of a whole Llama model?", file->path, key);
}

static Status required(const GgufFile *file, const char *key, int64_t *out) {
  return gguf_entry(file, key) ? gguf_whole(file, key, out) : missing(file, key);
}

static Status check_kind(const GgufFile *file) {
  GgufText architecture = {0};
  int64_t parts = 1, experts = 0;
  TRY(gguf_text(file, "general.architecture", &architecture));
  TRY(gguf_whole(file, "split.count", &parts));
  TRY(gguf_whole(file, "llama.expert_count", &experts));
  if (!architecture.bytes) return missing(file, "general.architecture");
  if (!gguf_text_is(architecture, "llama"))
    return status_set(STATUS_UNSUPPORTED, "%s: a model of architecture '%.*s'; of GGUF files those of architecture llama are supported",
                      file->path, architecture.size < 40 ? (int)architecture.size : 40, architecture.bytes);
  if (parts > 1)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: one of %lld parts of a model; join them first: llama-gguf-split --merge FIRST-PART WHOLE.gguf", file->path,
                      (long long)parts);
  if (experts > 0) return status_set(STATUS_UNSUPPORTED, "%s: a mixture of %lld experts is not supported", file->path, (long long)experts);
  return STATUS_OK;
}

/* ---- rotary positions */

static Status check_scaling(const GgufFile *file) {
  GgufText type = {0};
  TRY(gguf_text(file, "llama.rope.scaling.type", &type));
  if (!type.bytes || gguf_text_is(type, "none")) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED, "%s: rotary positions scaled by '%.*s' are not supported; Llama 3's (tensor rope_freqs.weight) are",
                    file->path, type.size < 40 ? (int)type.size : 40, type.bytes);
}

/* Whether these settings divide the frequencies by the factors of the file, to a float's precision. */
static bool explains(const RopeConfig *rope, int64_t head, const float *factor) {
  double plain[MAX_HEAD / 2], slowed[MAX_HEAD / 2];
  RopeConfig without = *rope;
  without.llama3 = false;
  rope_table_frequencies(&without, head, plain);
  rope_table_frequencies(rope, head, slowed);
  for (int64_t i = 0; i < head / 2; i++)
    if (!(fabs(plain[i] / slowed[i] - (double)factor[i]) <= 1e-5 * plain[i] / slowed[i])) return false; /* nor by one that is infinite */
  return true;
}

/* The file has a factor for each frequency where config.json has what they follow from: those settings are looked for among the published
 * ones, since they can be stated exactly. */
static Status find_llama3(const GgufFile *file, int64_t head, const float *factor, RopeConfig *rope) {
  double largest = 1;
  int64_t original = 8192;
  TRY(gguf_whole(file, "llama.rope.scaling.original_context_length", &original));
  for (int64_t i = 0; i < head / 2; i++)
    if ((double)factor[i] > largest) largest = (double)factor[i]; /* with fmax gcc 12 for arm64 fails on this loop */
  if (largest == 1) return STATUS_OK;
  const double factors[] = {largest, 8, 32}; /* a small head may have no frequency that is slowed down in full */
  const int64_t originals[] = {original, 8192};
  for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
    for (size_t j = 0; j < sizeof originals / sizeof *originals; j++) {
      RopeConfig tried = {rope->theta, true, factors[i], 1, 4, originals[j]};
      if (originals[j] > 0 && explains(&tried, head, factor)) return *rope = tried, STATUS_OK;
    }
  return status_set(STATUS_UNSUPPORTED,
                    "%s: the factors of rotary frequencies in tensor rope_freqs.weight are not those of Llama 3 (low_freq_factor 1, "
                    "high_freq_factor 4)",
                    file->path);
}

static Status read_factors(const GgufFile *file, const ModelConfig *config, RopeConfig *rope) {
  const GgufTensor *tensor = gguf_tensor(file, "rope_freqs.weight");
  int64_t head = config->width / config->heads;
  float factor[MAX_HEAD / 2];
  if (!tensor) return STATUS_OK;
  if (tensor->type != GGUF_DATA_F32 || tensor->count != head / 2 || head > MAX_HEAD)
    return status_set(STATUS_BAD_FILE, "%s: tensor rope_freqs.weight has %lld numbers of type %s, expected %lld of F32", file->path,
                      (long long)tensor->count, gguf_type_name(tensor->type), (long long)head / 2);
  memcpy(factor, tensor->data, tensor->bytes);
  return find_llama3(file, head, factor, rope);
}

/* Keys that must agree with the width of a head. */
static Status check_heads(const GgufFile *file, const ModelConfig *config) {
  static const char *const keys[] = {"llama.rope.dimension_count", "llama.attention.key_length", "llama.attention.value_length"};
  int64_t head = config->width / config->heads;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    int64_t given = head;
    TRY(gguf_whole(file, keys[i], &given));
    if (given != head)
      return status_set(STATUS_UNSUPPORTED, "%s: %s is %lld; only embedding_length / attention.head_count = %lld is supported", file->path,
                        keys[i], (long long)given, (long long)head);
  }
  return STATUS_OK;
}

static Status read_rope(const GgufFile *file, ModelConfig *config) {
  if (config->heads < 1 || config->width < config->heads) return STATUS_OK; /* config_check says so */
  TRY(gguf_number(file, "llama.rope.freq_base", &config->rope.theta));
  TRY(check_heads(file, config));
  TRY(check_scaling(file));
  return read_factors(file, config, &config->rope);
}

/* ---- the rest */

/* A float that stands for a decimal number, 1e-5 say: that number. */
static double decimal(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.7g", value);
  return strtod(text, NULL);
}

static Status read_network(const GgufFile *file, ModelConfig *config) {
  static const char *const eps = "llama.attention.layer_norm_rms_epsilon";
  int64_t window = 0;
  TRY(required(file, "llama.embedding_length", &config->width));
  TRY(required(file, "llama.block_count", &config->blocks));
  TRY(required(file, "llama.attention.head_count", &config->heads));
  TRY(required(file, "llama.feed_forward_length", &config->mlp));
  config->kv_heads = config->heads;
  TRY(gguf_whole(file, "llama.attention.head_count_kv", &config->kv_heads));
  TRY(required(file, "llama.context_length", &config->context));
  TRY(gguf_whole(file, "llama.attention.sliding_window", &window));
  if (window > 0 && window < config->context) config->context = window; /* within the window attention is the ordinary one */
  if (!gguf_entry(file, eps)) return missing(file, eps);
  TRY(gguf_number(file, eps, &config->norm_eps));
  config->norm_eps = decimal(config->norm_eps);
  return STATUS_OK;
}

static Status read_head(const GgufFile *file, ModelConfig *config) {
  const GgufTensor *table = gguf_tensor(file, "token_embd.weight");
  if (!table || table->dims != 2)
    return status_set(STATUS_BAD_FILE, "%s: there is no tensor token_embd.weight of two dimensions", file->path);
  config->vocabulary = table->shape[1];
  config->tied = !gguf_tensor(file, "output.weight");
  return STATUS_OK;
}

static Status read_ids(const GgufFile *file, ModelConfig *config) {
  static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
  TRY(gguf_whole(file, "tokenizer.ggml.bos_token_id", &config->begin_id));
  TRY(gguf_whole(file, "tokenizer.ggml.padding_token_id", &config->pad_id));
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    int64_t id = -1;
    TRY(gguf_whole(file, ends[i], &id));
    bool known = id < 0;
    for (int j = 0; j < config->end_ids; j++) known |= config->end_id[j] == id;
    if (!known) config->end_id[config->end_ids++] = id;
  }
  return STATUS_OK;
}

static Status read_all(const GgufFile *file, ModelConfig *config) {
  TRY(check_kind(file));
  config_defaults(config, MODEL_LLAMA);
  config->end_ids = 0;
  TRY(read_network(file, config));
  TRY(read_rope(file, config));
  TRY(read_head(file, config));
  TRY(read_ids(file, config));
  return config_checked(config, file->path);
}

Status config_gguf_read(ModelConfig *config, const GgufFile *file) {
  memset(config, 0, sizeof *config);
  Status status = read_all(file, config);
  if (status != STATUS_OK) config_release(config);
  return status;
}
