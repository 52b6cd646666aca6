/* Inside the configuration code only: what config.c, config_kinds.c and config_files.c share. Objects that are returned are new references;
 * NULL: no memory. */
#ifndef NN_CONFIG_INTERNAL_H
#define NN_CONFIG_INTERNAL_H
#include "base/gguf.h"
#include "nn/config.h"
#include <jansson.h>

Status config_gguf_read(ModelConfig *config, const GgufFile *file);

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

const json_t *fields_value(const Fields *fields, const char *key); /* NULL: absent or null */
Status fields_bad(const Fields *fields, const char *key, const char *accepted);
Status fields_whole(const Fields *fields, const char *key, int64_t *out);
Status fields_required(const Fields *fields, const char *key, int64_t *out); /* absent: BAD_FILE */
Status fields_int(const Fields *fields, const char *key, int *out);          /* 0 to 2^30 */
Status fields_number(const Fields *fields, const char *key, double *out);
Status fields_flag(const Fields *fields, const char *key, bool *out);
Status fields_triple(const Fields *fields, const char *key, double *out); /* [3] */
Status fields_choice(const Fields *fields, const char *key, const Choice *choices, int *out);
const char *fields_choice_name(const Choice *choices, int value);

extern const Choice config_activations[]; /* gelu and its approximation */

/* Everything of config.json but "astra". */
Status config_vision_read(const Fields *fields, ModelConfig *config);
Status config_decoder_read(const Fields *fields, ModelConfig *config);
json_t *config_vision_json(const ModelConfig *config);
json_t *config_decoder_json(const ModelConfig *config);

/* preprocessor_config.json */
Status config_vision_read_preprocessor(const Fields *fields, ModelConfig *config);
json_t *config_vision_preprocessor(const ModelConfig *config);

/* generation_config.json */
Status config_decoder_read_generation(const Fields *fields, ModelConfig *config);

Status config_labels_read(const Fields *fields, ModelConfig *config);
json_t *config_labels_json(const ModelConfig *config, bool by_name);          /* label2id, or id2label */
Status config_labels_check(const ModelConfig *config, const char *directory); /* BAD_VALUE: a name that JSON cannot hold */

#endif
