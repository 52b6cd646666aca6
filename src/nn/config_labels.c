/* Class names in config.json: id2label, label2id, num_labels. */
#include "nn/config_parts.h"
#include "nn/json_build.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
