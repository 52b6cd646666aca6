/* What a chat needs of the tokenizer in a GGUF file besides its ids, in the form of Hugging Face's tokenizer_config.json: the template, and
 * the special tokens that templates name. Serving reads it, and training keeps it beside what it makes of such a file. */
#ifndef DATA_TOKENIZER_CONFIG_H
#define DATA_TOKENIZER_CONFIG_H
#include "base/status.h"
#include <jansson.h>

/* The names of the file, of one with the template alone, which counts where it is there, and of the folder of those that are not the
 * default, each in a file NAME.jinja. */
#define TOKENIZER_CONFIG           "tokenizer_config.json"
#define TOKENIZER_CONFIG_TEMPLATE  "chat_template.jinja"
#define TOKENIZER_CONFIG_TEMPLATES "additional_chat_templates"

/* Of the file at `path` a fresh object: bos_token, eos_token, unk_token and pad_token, each where the file names one that is UTF-8, and
 * chat_template, a string, or where there are named ones too a list of {"name", "template"}, in which tokenizer.chat_template is "default".
 * BAD_FILE: a template that is not UTF-8. *config is NULL after a failure. */
Status tokenizer_config_of_gguf(json_t **config, const char *path);

/* Writes it to tokenizer_config.json in the directory, which exists. */
Status tokenizer_config_save(json_t *config, const char *directory);

/* Copies the folder of templates of one directory into another, and removes that which an earlier tokenizer has left in one. */
Status tokenizer_config_copy_templates(const char *from, const char *to);
Status tokenizer_config_remove_templates(const char *directory);

#endif
