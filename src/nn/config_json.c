/* config.json and preprocessor_config.json, read and written as Hugging Face's ViT does, with our settings under "astra".
 * Fields that are not known are ignored; a known field with a value that is not understood is an error that names it.
 * Leaves out ranges (config_check) and the meaning of the fields (config.h). */
#include "base/files.h"
#include "nn/config.h"
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t MOST_BYTES = (size_t)64 << 20; /* of a JSON file: a million class names fit */

typedef struct Choice {
  const char *name;
  int value;
} Choice;

/* The first name of a value is the one that is written. */
static const Choice activations[] = {
    {"gelu", ACTIVATION_GELU}, {"gelu_new", ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH}, {NULL, 0}};
static const Choice sites[] = {{"x", SITE_X}, {"kv", SITE_KV}, {NULL, 0}};
static const Choice class_tokens[] = {{"distributed", CLASS_DISTRIBUTED}, {"single", CLASS_SINGLE}, {NULL, 0}};

/* ---- reading fields. An object and the words that name it in a message: "config.json: " or "config.json: astra." */

typedef struct Fields {
  const json_t *object;
  const char *origin, *prefix;
} Fields;

static Status bad_field(const Fields *fields, const char *key, const char *accepted) {
  return status_set(STATUS_BAD_FILE, "%s: field %s%s must be %s", fields->origin, fields->prefix, key, accepted);
}

/* The value of a key; NULL when absent or null, which Hugging Face writes for "not set". */
static const json_t *field(const Fields *fields, const char *key) {
  const json_t *value = json_object_get(fields->object, key);
  return json_is_null(value) ? NULL : value;
}

static Status read_whole(const Fields *fields, const char *key, int64_t *out) {
  const json_t *value = field(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_integer(value)) return bad_field(fields, key, "a whole number");
  *out = json_integer_value(value);
  return STATUS_OK;
}

static Status read_required(const Fields *fields, const char *key, int64_t *out) {
  if (!field(fields, key)) return status_set(STATUS_BAD_FILE, "%s: field %s%s is missing", fields->origin, fields->prefix, key);
  return read_whole(fields, key, out);
}

static Status read_int(const Fields *fields, const char *key, int *out) {
  int64_t value = *out;
  TRY(read_whole(fields, key, &value));
  if (value < 0 || value > 1 << 30) return bad_field(fields, key, "a whole number from 0 to 2^30");
  *out = (int)value;
  return STATUS_OK;
}

static Status read_number(const Fields *fields, const char *key, double *out) {
  const json_t *value = field(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_number(value)) return bad_field(fields, key, "a number");
  *out = json_number_value(value);
  return STATUS_OK;
}

static Status read_flag(const Fields *fields, const char *key, bool *out) {
  const json_t *value = field(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_boolean(value)) return bad_field(fields, key, "true or false");
  *out = json_is_true(value);
  return STATUS_OK;
}

static Status read_triple(const Fields *fields, const char *key, double *out) {
  const json_t *value = field(fields, key);
  if (!value) return STATUS_OK;
  if (!json_is_array(value) || json_array_size(value) != 3) return bad_field(fields, key, "a list of three numbers");
  for (size_t i = 0; i < 3; i++) {
    if (!json_is_number(json_array_get(value, i))) return bad_field(fields, key, "a list of three numbers");
    out[i] = json_number_value(json_array_get(value, i));
  }
  return STATUS_OK;
}

static Status read_choice(const Fields *fields, const char *key, const Choice *choices, int *out) {
  const json_t *value = field(fields, key);
  if (!value) return STATUS_OK;
  const char *text = json_string_value(value);
  char accepted[128] = "one of ";
  for (const Choice *choice = choices; choice->name; choice++) {
    if (text && strcmp(choice->name, text) == 0) return *out = choice->value, STATUS_OK;
    size_t used = strlen(accepted);
    snprintf(accepted + used, sizeof accepted - used, "%s%s", choice == choices ? "" : ", ", choice->name);
  }
  return bad_field(fields, key, accepted);
}

/* ---- class names */

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
static Status read_labels(const Fields *fields, ModelConfig *config) {
  int64_t classes = 2; /* Hugging Face's default */
  TRY(read_whole(fields, "num_labels", &classes));
  const json_t *map = field(fields, "id2label");
  if (!map) return config_set_labels(config, NULL, classes);
  if (!json_is_object(map) || json_object_size(map) == 0)
    return bad_field(fields, "id2label", "an object of class numbers and names, {\"0\": \"cat\", ...}");
  int64_t named = (int64_t)json_object_size(map);
  if (field(fields, "num_labels") && named != classes)
    return status_set(STATUS_BAD_FILE, "%s: num_labels is %lld but id2label names %lld classes", fields->origin, (long long)classes,
                      (long long)named);
  const char **labels = calloc((size_t)named, sizeof *labels);
  if (!labels) return status_set(STATUS_NO_MEMORY, "no memory for %lld class names", (long long)named);
  Status status = gather_labels(fields, map, labels, named);
  if (status == STATUS_OK) status = config_set_labels(config, (char *const *)(uintptr_t)labels, named);
  free(labels);
  return status;
}

/* ---- config.json */

static const char *const devices_accepted = "a whole number, \"LEAST-MOST\" or {\"least\": ..., \"most\": ...}";

/* 4, "4", "2-8" or {"least": 2, "most": 8} */
static Status read_devices(const Fields *fields, AstraConfig *astra) {
  const json_t *value = field(fields, "devices");
  if (!value) return STATUS_OK;
  if (json_is_object(value)) {
    Fields range = {value, fields->origin, "astra.devices."};
    TRY(read_int(&range, "least", &astra->devices_least));
    return read_int(&range, "most", &astra->devices);
  }
  if (json_is_string(value)) {
    int end = 0;
    const char *text = json_string_value(value);
    if (sscanf(text, "%5d-%5d%n", &astra->devices_least, &astra->devices, &end) == 2 && text[end] == '\0') return STATUS_OK;
    if (sscanf(text, "%5d%n", &astra->devices, &end) == 1 && text[end] == '\0') return astra->devices_least = astra->devices, STATUS_OK;
    return bad_field(fields, "devices", devices_accepted);
  }
  if (!json_is_integer(value)) return bad_field(fields, "devices", devices_accepted);
  TRY(read_int(fields, "devices", &astra->devices));
  astra->devices_least = astra->devices;
  return STATUS_OK;
}

static Status read_astra(const Fields *outer, AstraConfig *astra) {
  const json_t *object = field(outer, "astra");
  if (!object) return STATUS_OK;
  if (!json_is_object(object)) return bad_field(outer, "astra", "an object");
  Fields fields = {object, outer->origin, "astra."};
  int site = (int)astra->site, class_token = (int)astra->class_token;
  TRY(read_choice(&fields, "site", sites, &site));
  TRY(read_choice(&fields, "class_token", class_tokens, &class_token));
  astra->site = (Site)site;
  astra->class_token = (ClassToken)class_token;
  TRY(read_int(&fields, "groups", &astra->groups));
  TRY(read_int(&fields, "codebook_size", &astra->codebook_size));
  TRY(read_number(&fields, "commitment_weight", &astra->commitment_weight));
  TRY(read_number(&fields, "noise", &astra->noise));
  return read_devices(&fields, astra);
}

static Status read_kind(const Fields *fields) {
  const char *type = json_string_value(field(fields, "model_type"));
  if (!type)
    return status_set(STATUS_BAD_FILE, "%s: field model_type is missing; is this the config.json of a Hugging Face checkpoint?",
                      fields->origin);
  if (strcmp(type, "vit") == 0) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED, "%s: models of type '%.40s' are not supported; supported is vit", fields->origin, type);
}

static Status read_vit(const Fields *fields, ModelConfig *config) {
  int activation = (int)config->activation;
  bool qkv_bias = true;
  TRY(read_required(fields, "hidden_size", &config->width));
  TRY(read_required(fields, "num_hidden_layers", &config->blocks));
  TRY(read_required(fields, "num_attention_heads", &config->heads));
  TRY(read_required(fields, "intermediate_size", &config->mlp));
  config->kv_heads = config->heads;
  TRY(read_whole(fields, "image_size", &config->image));
  TRY(read_whole(fields, "patch_size", &config->patch));
  TRY(read_whole(fields, "num_channels", &config->channels));
  TRY(read_number(fields, "layer_norm_eps", &config->norm_eps));
  TRY(read_choice(fields, "hidden_act", activations, &activation));
  config->activation = (Activation)activation;
  TRY(read_flag(fields, "qkv_bias", &qkv_bias));
  if (!qkv_bias)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: qkv_bias is false; only models whose query, key and value projections have biases are supported",
                      fields->origin);
  TRY(read_labels(fields, config));
  return read_astra(fields, &config->astra);
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

static Status checked(const ModelConfig *config, const char *origin) {
  Status status = config_check(config);
  return status == STATUS_UNSUPPORTED ? status_wrap(status, "%s", origin) : blame_file(status, origin);
}

Status config_parse(ModelConfig *config, const char *json, size_t size, const char *origin) {
  memset(config, 0, sizeof *config);
  json_t *root;
  TRY(parse_object(json, size, origin, &root));
  config_defaults(config);
  Fields fields = {root, origin, ""};
  Status status = read_kind(&fields);
  if (status == STATUS_OK) status = blame_file(read_vit(&fields, config), origin);
  if (status == STATUS_OK) status = checked(config, origin);
  if (status != STATUS_OK) config_release(config);
  json_decref(root);
  return status;
}

/* ---- preprocessor_config.json */

static Status read_preprocessor(const Fields *fields, ModelConfig *config) {
  bool normalise = true, rescale = true;
  double factor = 1.0 / 255.0;
  TRY(read_int(fields, "resample", &config->resample));
  TRY(read_triple(fields, "image_mean", config->image_mean));
  TRY(read_triple(fields, "image_std", config->image_std));
  TRY(read_flag(fields, "do_normalize", &normalise));
  TRY(read_flag(fields, "do_rescale", &rescale));
  TRY(read_number(fields, "rescale_factor", &factor));
  if (!rescale || factor < 0.99 / 255.0 || factor > 1.01 / 255.0)
    return status_set(STATUS_UNSUPPORTED, "%s: only pictures rescaled by 1/255 are supported (do_rescale true, rescale_factor 0.00392...)",
                      fields->origin);
  for (int i = 0; i < 3 && !normalise; i++) {
    config->image_mean[i] = 0;
    config->image_std[i] = 1;
  }
  return checked(config, fields->origin);
}

Status config_parse_preprocessor(ModelConfig *config, const char *json, size_t size, const char *origin) {
  json_t *root;
  TRY(parse_object(json, size, origin, &root));
  Fields fields = {root, origin, ""};
  Status status = read_preprocessor(&fields, config);
  json_decref(root);
  return status;
}

/* ---- files */

typedef Status Parser(ModelConfig *config, const char *json, size_t size, const char *origin);

static Status no_memory(const char *path) {
  return status_set(STATUS_NO_MEMORY, "no memory to read or write the configuration in %s", path);
}

static Status parse_file(ModelConfig *config, const char *directory, const char *name, bool optional, Parser *parser) {
  char *path = files_join(directory, name), *text = NULL;
  if (!path) return no_memory(directory);
  size_t size = 0;
  Status status = STATUS_OK;
  if (!optional || files_exists(path)) {
    status = files_read(path, MOST_BYTES, &text, &size);
    if (status == STATUS_OK) status = parser(config, text, size, path);
  }
  free(text);
  free(path);
  return status;
}

Status config_load(ModelConfig *config, const char *directory) {
  memset(config, 0, sizeof *config);
  TRY(parse_file(config, directory, "config.json", false, config_parse));
  Status status = parse_file(config, directory, "preprocessor_config.json", true, config_parse_preprocessor);
  if (status != STATUS_OK) config_release(config);
  return status;
}

static const char *choice_name(const Choice *choices, int value) {
  while (choices->name && choices->value != value) choices++;
  return choices->name;
}

/* JSON holds UTF-8 alone; folder names may hold any bytes. */
static Status check_names(const ModelConfig *config, const char *directory) {
  for (int64_t i = 0; i < config->classes; i++) {
    json_t *name = json_string(config->labels[i]);
    json_decref(name);
    if (!name)
      return status_set(STATUS_BAD_VALUE, "%s/config.json: the name of class %lld, '%.60s', is not UTF-8; rename the class", directory,
                        (long long)i, config->labels[i]);
  }
  return STATUS_OK;
}

/* Takes root over; NULL is what is left of a value for which there was no memory. */
static Status write_json(json_t *root, const char *directory, const char *name) {
  char *path = files_join(directory, name);
  char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
  Status status = STATUS_OK;
  if (!path || !text)
    status = no_memory(directory);
  else
    status = files_write(path, text, strlen(text));
  free(text);
  free(path);
  json_decref(root);
  return status;
}

static json_t *labels_json(const ModelConfig *config, bool by_name) {
  json_t *map = json_object();
  for (int64_t i = 0; i < config->classes; i++) {
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)i);
    if (by_name)
      json_object_set_new(map, config->labels[i], json_integer(i));
    else
      json_object_set_new(map, number, json_string(config->labels[i]));
  }
  return map;
}

static json_t *devices_json(const AstraConfig *astra) {
  if (astra->devices_least == astra->devices) return json_integer(astra->devices);
  return json_pack("{s:i, s:i}", "least", astra->devices_least, "most", astra->devices);
}

static json_t *astra_json(const AstraConfig *astra) {
  return json_pack("{s:s, s:i, s:i, s:o, s:s, s:f, s:f}", "site", choice_name(sites, (int)astra->site), "groups", astra->groups,
                   "codebook_size", astra->codebook_size, "devices", devices_json(astra), "class_token",
                   choice_name(class_tokens, (int)astra->class_token), "commitment_weight", astra->commitment_weight, "noise",
                   astra->noise);
}

static json_t *config_json(const ModelConfig *config) {
  json_t *root =
      json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:s, s:f, s:b, s:I, s:I, s:I, s:o, s:o}", "architectures", "ViTForImageClassification",
                "model_type", "vit", "hidden_size", (json_int_t)config->width, "num_attention_heads", (json_int_t)config->heads,
                "num_hidden_layers", (json_int_t)config->blocks, "intermediate_size", (json_int_t)config->mlp, "hidden_act",
                choice_name(activations, (int)config->activation), "layer_norm_eps", config->norm_eps, "qkv_bias", 1, "image_size",
                (json_int_t)config->image, "patch_size", (json_int_t)config->patch, "num_channels", (json_int_t)config->channels,
                "id2label", labels_json(config, false), "label2id", labels_json(config, true));
  if (root && config->astra.groups > 0) json_object_set_new(root, "astra", astra_json(&config->astra));
  return root;
}

static json_t *preprocessor_json(const ModelConfig *config) {
  const double *mean = config->image_mean, *std = config->image_std;
  return json_pack("{s:s, s:b, s:b, s:b, s:f, s:[fff], s:[fff], s:i, s:{s:I, s:I}}", "image_processor_type", "ViTImageProcessor",
                   "do_resize", 1, "do_rescale", 1, "do_normalize", 1, "rescale_factor", 1.0 / 255.0, "image_mean", mean[0], mean[1],
                   mean[2], "image_std", std[0], std[1], std[2], "resample", config->resample, "size", "height", (json_int_t)config->image,
                   "width", (json_int_t)config->image);
}

Status config_save(const ModelConfig *config, const char *directory) {
  TRY(config_check(config));
  TRY(check_names(config, directory));
  TRY(files_make_dirs(directory));
  TRY(write_json(preprocessor_json(config), directory, "preprocessor_config.json"));
  return write_json(config_json(config), directory, "config.json");
}
