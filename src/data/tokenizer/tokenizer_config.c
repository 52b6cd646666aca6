/* tokenizer_config.json made from the metadata of a GGUF file, and the folder of templates beside one. Leaves out: what other programs keep
 * there besides a chat's needs. */
#include "data/tokenizer/tokenizer_config.h"
#include "base/files.h"
#include "base/gguf.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_internal.h"
#include <stdlib.h>

static Status keep_token(json_t *config, const GgufFile *file, const char *name, const char *key) {
  int64_t id = -1;
  const GgufEntry *tokens = NULL;
  GgufText text = {"", 0};
  TRY(gguf_whole(file, key, &id));
  TRY(gguf_array(file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens));
  if (!tokens || id < 0 || (uint64_t)id >= tokens->count) return STATUS_OK;
  const uint8_t *at = tokens->data;
  for (int64_t i = 0; i <= id; i++) text = gguf_next_text(&at);
  if (!utf8_is_whole(text.bytes, text.size)) return STATUS_OK; /* it can be in no template */
  return json_object_set_new(config, name, json_stringn(text.bytes, text.size)) == 0 ? STATUS_OK : status_no_memory(file->path, "a token");
}

/* ---- tokenizer.chat_template and tokenizer.chat_template.NAME */

static const char template_key[] = "tokenizer.chat_template";

/* Whether the key is that of a template, and the template's name. */
static bool names_template(GgufText key, GgufText *name) {
  const size_t stem = sizeof template_key - 1;
  *name = (GgufText){"default", strlen("default")};
  if (gguf_text_is(key, template_key)) return true;
  if (key.size <= stem || memcmp(key.bytes, template_key, stem) != 0 || key.bytes[stem] != '.') return false;
  *name = (GgufText){key.bytes + stem + 1, key.size - stem - 1};
  return true;
}

static Status append_template(json_t *templates, const GgufFile *file, const GgufEntry *entry, GgufText name) {
  if (entry->type != GGUF_STRING) return status_set(STATUS_BAD_FILE, "%s: a chat template is not a string", file->path);
  const uint8_t *at = entry->data;
  const GgufText text = gguf_next_text(&at);
  if (!utf8_is_whole(name.bytes, name.size) || !utf8_is_whole(text.bytes, text.size))
    return status_set(STATUS_BAD_FILE, "%s: a chat template or its name is not UTF-8", file->path);
  json_t *row = json_pack("{s:o, s:o}", "name", json_stringn(name.bytes, name.size), "template", json_stringn(text.bytes, text.size));
  return json_array_append_new(templates, row) == 0 ? STATUS_OK : status_no_memory(file->path, "the chat template");
}

static Status list_templates(json_t *templates, const GgufFile *file) {
  for (size_t i = 0; i < file->entry_count; i++) {
    GgufText name;
    if (names_template(file->entries[i].key, &name)) TRY(append_template(templates, file, &file->entries[i], name));
  }
  return STATUS_OK;
}

static Status keep_templates(json_t *config, const GgufFile *file) {
  json_t *templates = json_array();
  Status status = templates ? list_templates(templates, file) : status_no_memory(file->path, "the chat template");
  if (status == STATUS_OK && json_array_size(templates) > 0) {
    const bool alone = json_array_size(templates) == 1 && gguf_entry(file, template_key);
    json_t *value = alone ? json_object_get(json_array_get(templates, 0), "template") : templates;
    if (json_object_set(config, "chat_template", value) != 0) status = status_no_memory(file->path, "the chat template");
  }
  json_decref(templates);
  return status;
}

/* ---- the whole */

static Status read_gguf(void *config, const GgufFile *file) {
  static const char *const tokens[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                          {"eos_token", "tokenizer.ggml.eos_token_id"},
                                          {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                          {"pad_token", "tokenizer.ggml.padding_token_id"}};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) TRY(keep_token(config, file, tokens[i][0], tokens[i][1]));
  return keep_templates(config, file);
}

Status tokenizer_config_of_gguf(json_t **config, const char *path) {
  *config = NULL;
  json_t *fresh = json_object();
  Status status = fresh ? gguf_read_path(path, read_gguf, fresh) : status_no_memory(path, "the chat template");
  if (status == STATUS_OK)
    *config = fresh;
  else
    json_decref(fresh);
  return status;
}

Status tokenizer_config_save(json_t *config, const char *directory) {
  char *path = files_join(directory, TOKENIZER_CONFIG);
  Status status = path ? tokenizer_write_json(json_incref(config), JSON_INDENT(2), path) : status_no_memory(directory, "a path");
  free(path);
  return status;
}

/* ---- templates in files of their own */

static bool is_template(const char *name) { return name[0] != '.' && text_ends_with(name, ".jinja"); }

static Status copy_folder(const char *from, const char *to) {
  TRY(files_make_dirs(to));
  return files_copy_chosen(from, to, is_template);
}

Status tokenizer_config_copy_templates(const char *from, const char *to) {
  char *source = files_join(from, TOKENIZER_CONFIG_TEMPLATES), *target = files_join(to, TOKENIZER_CONFIG_TEMPLATES);
  Status status = source && target ? STATUS_OK : status_no_memory(NULL, "a path");
  if (status == STATUS_OK && files_is_dir(source) && !files_same(source, target)) status = copy_folder(source, target);
  free(source);
  free(target);
  return status;
}

Status tokenizer_config_remove_templates(const char *directory) {
  char *folder = files_join(directory, TOKENIZER_CONFIG_TEMPLATES);
  const Status status = folder ? files_remove_dir(folder) : status_no_memory(NULL, "a path");
  free(folder);
  return status;
}
