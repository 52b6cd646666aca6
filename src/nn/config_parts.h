/* Inside the configuration code only: what config_json.c is put together from. Objects that are returned are new references; NULL: no
 * memory. */
#ifndef NN_CONFIG_PARTS_H
#define NN_CONFIG_PARTS_H
#include "nn/config.h"
#include "nn/fields.h"

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

/* config_check, its messages turned into ones about a file. */
Status config_checked(const ModelConfig *config, const char *origin);

Status config_labels_read(const Fields *fields, ModelConfig *config);
json_t *config_labels_json(const ModelConfig *config, bool by_name);          /* label2id, or id2label */
Status config_labels_check(const ModelConfig *config, const char *directory); /* BAD_VALUE: a name that JSON cannot hold */

#endif
