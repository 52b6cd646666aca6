/* Finds the chat template of a checkpoint, and renders messages with it. Leaves out: tools and documents, which templates see as none;
 * images in messages. */
#include "serve/chat_template.h"
#include "base/files.h"
#include "base/gguf.h"
#include "data/tokenizer/tokenizer_config.h"
#include "serve/jinja.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX = 16 << 20 }; /* bytes of tokenizer_config.json, which lists every added token */

static const char chatml[] = "{% for message in messages %}"
                             "{{ '<|im_start|>' + message['role'] + '\n' + (message['content'] or '') + '<|im_end|>\n' }}"
                             "{% endfor %}"
                             "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct ChatTemplate {
  Jinja *jinja;
  json_t *tokens; /* bos_token, eos_token... */
  bool chatml;    /* for want of another */
  bool developer; /* it compares roles with that one */
};

/* A special token is a string or an object with its content. */
static Status keep_tokens(ChatTemplate *template, const json_t *config) {
  static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const json_t *token = json_object_get(config, names[i]);
    if (json_is_object(token)) token = json_object_get(token, "content");
    if (json_is_string(token) && json_object_set_new(template->tokens, names[i], json_copy((json_t *)token)) != 0)
      return status_no_memory(names[i], "the token");
  }
  return STATUS_OK;
}

/* chat_template in one of its two forms -> its text [size]; NULL where there is none. */
static Status choose_template(const json_t *config, const char *path, const char *name, const char **text, size_t *size) {
  const json_t *entry = json_object_get(config, "chat_template");
  *text = NULL;
  *size = 0;
  if (!entry || json_is_null(entry)) {
    return name ? status_set(STATUS_NOT_FOUND, "%s: it has no chat template, so none of the name %s", path, name) : STATUS_OK;
  }
  if (json_is_array(entry)) {
    const json_t *found = NULL, *row;
    size_t i;
    json_array_foreach((json_t *)entry, i, row) {
      const char *its = json_string_value(json_object_get(row, "name"));
      if (its && strcmp(its, name ? name : "default") == 0) found = row;
    }
    if (!found && !name && json_array_size(entry) == 1) found = json_array_get(entry, 0);
    if (!found) return status_set(STATUS_NOT_FOUND, "%s: it has no chat template of the name %s", path, name ? name : "default");
    entry = json_object_get(found, "template");
  } else if (name && strcmp(name, "default") != 0) {
    return status_set(STATUS_NOT_FOUND, "%s: it has a single chat template, without a name; none is called %s", path, name);
  }
  if (!json_is_string(entry))
    return status_set(STATUS_BAD_FILE, "%s: chat_template is no string, nor a list of {\"name\", \"template\"}", path);
  *text = json_string_value(entry);
  *size = json_string_length(entry);
  return STATUS_OK;
}

static Status read_config(const char *path, json_t **config) {
  char *data;
  size_t size;
  json_error_t error;
  *config = NULL;
  if (!files_exists(path)) return STATUS_OK;
  TRY(files_read(path, CONFIG_MAX, &data, &size));
  /* No number is read here, and model_max_length is 10^30, too big an integer for Jansson, where a tokenizer has no limit. */
  *config = json_loadb(data, size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
  free(data);
  if (!*config) return status_set(STATUS_BAD_FILE, "%s:%d: %s", path, error.line, error.text);
  return STATUS_OK;
}

/* text: NULL: there is none. */
static Status parse(ChatTemplate *template, const char *text, size_t size, const char *path) {
  template->chatml = !text;
  template->developer = text && (memmem(text, size, "'developer'", 11) || memmem(text, size, "\"developer\"", 11));
  Status status = text ? jinja_parse(&template->jinja, "chat template", text, size)
                       : jinja_parse(&template->jinja, "chat template", chatml, sizeof chatml - 1);
  return status == STATUS_OK ? status : status_wrap(status, "%s", path);
}

/* ---- open and close */

/* The path of the file with the template of this name alone, as a new string; *path is NULL where there is none. */
static Status find_file(const char *directory, const char *name, char **path) {
  char file[NAME_MAX + 1];
  const int size = snprintf(file, sizeof file, "%s/%s.jinja", TOKENIZER_CONFIG_TEMPLATES, name);
  *path = NULL;
  if (name[0] == '.' || strchr(name, '/') || size >= (int)sizeof file)
    return status_set(STATUS_BAD_VALUE, "chat template %.100s: a name is wanted, no path: without /, and not beginning with a dot", name);
  const char *const places[] = {TOKENIZER_CONFIG_TEMPLATE, file}; /* the first of the default one alone */
  for (size_t i = strcmp(name, "default") == 0 ? 0 : 1; i < sizeof places / sizeof *places; i++) {
    *path = files_join(directory, places[i]);
    if (!*path) return status_no_memory(directory, "the chat template");
    if (files_exists(*path)) return STATUS_OK;
    free(*path);
    *path = NULL;
  }
  return STATUS_OK;
}

static Status open_file(ChatTemplate *template, const char *path) {
  char *text;
  size_t size;
  TRY(files_read(path, JINJA_SOURCE_MAX, &text, &size));
  Status status = parse(template, text, size, path);
  free(text);
  return status;
}

static Status open_listed(ChatTemplate *template, const json_t *config, const char *path, const char *directory, const char *name) {
  const char *text;
  size_t size;
  Status status = choose_template(config, path, name, &text, &size);
  if (status == STATUS_NOT_FOUND && name)
    return status_set(status, "%s: it has no chat template of the name %s: neither a file %s, nor one in chat_template of %s", directory,
                      name, strcmp(name, "default") == 0 ? TOKENIZER_CONFIG_TEMPLATE : TOKENIZER_CONFIG_TEMPLATES "/NAME.jinja",
                      TOKENIZER_CONFIG);
  return status == STATUS_OK ? parse(template, text, size, path) : status;
}

static Status open_directory(ChatTemplate *template, const char *directory, const char *name) {
  char *config_path = files_join(directory, TOKENIZER_CONFIG), *file = NULL;
  json_t *config = NULL;
  Status status = config_path ? read_config(config_path, &config) : status_no_memory(directory, "the chat template");
  if (status == STATUS_OK) status = keep_tokens(template, config);
  if (status == STATUS_OK) status = find_file(directory, name ? name : "default", &file);
  if (status == STATUS_OK) status = file ? open_file(template, file) : open_listed(template, config, config_path, directory, name);
  json_decref(config);
  free(file);
  free(config_path);
  return status;
}

static Status open_gguf(ChatTemplate *template, const char *path, const char *name) {
  json_t *config;
  const char *text;
  size_t size;
  TRY(tokenizer_config_of_gguf(&config, path));
  Status status = keep_tokens(template, config);
  if (status == STATUS_OK) status = choose_template(config, path, name, &text, &size);
  if (status == STATUS_OK) status = parse(template, text, size, path);
  json_decref(config);
  return status;
}

Status chat_template_open(ChatTemplate **template, const char *directory, const char *name) {
  *template = NULL;
  ChatTemplate *fresh = calloc(1, sizeof *fresh);
  if (fresh) fresh->tokens = json_object();
  if (!fresh || !fresh->tokens) return free(fresh), status_no_memory(directory, "the chat template");
  Status status = gguf_is_file(directory) ? open_gguf(fresh, directory, name) : open_directory(fresh, directory, name);
  if (status == STATUS_OK)
    *template = fresh;
  else
    chat_template_free(fresh);
  return status;
}

void chat_template_free(ChatTemplate *template) {
  if (!template) return;
  jinja_free(template->jinja);
  json_decref(template->tokens);
  free(template);
}

/* ---- messages */

/* A fresh one with the same members; NULL: no memory, for want of which json_copy leaves members out. */
static json_t *copy_object(const json_t *object) {
  json_t *copy = json_copy((json_t *)object);
  if (!copy || json_object_size(copy) == json_object_size(object)) return copy;
  json_decref(copy);
  return NULL;
}

/* The texts of parts, joined by newlines, as a new string; *joined is NULL after a failure. */
static Status join_parts(const json_t *parts, size_t message, json_t **joined) {
  json_t *part;
  size_t i, size = 0, used = 0;
  *joined = NULL;
  json_array_foreach((json_t *)parts, i, part) {
    const json_t *type = json_object_get(part, "type"), *words = json_object_get(part, "text");
    if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0 || !json_is_string(words))
      return status_set(STATUS_BAD_VALUE,
                        "messages[%zu].content[%zu]: only parts of the form {\"type\": \"text\", \"text\": ...} are accepted", message, i);
    size += json_string_length(words) + 1;
  }
  char *text = malloc(size + 1);
  if (text) {
    json_array_foreach((json_t *)parts, i, part) {
      const json_t *words = json_object_get(part, "text");
      if (i > 0) text[used++] = '\n';
      memcpy(text + used, json_string_value(words), json_string_length(words));
      used += json_string_length(words);
    }
    *joined = json_stringn_nocheck(text, used); /* pieces of it were checked */
  }
  free(text);
  return *joined ? STATUS_OK : status_no_memory("messages", "their text");
}

/* The message as the template sees it, appended to `plain`: the caller's own, or a copy whose content is one string. OpenAI calls the
 * system "developer" today, which templates of other models take for nobody, or refuse. */
static Status append_plain(const ChatTemplate *template, json_t *plain, json_t *message, size_t i) {
  const json_t *content = json_object_get(message, "content"), *role = json_object_get(message, "role");
  if (!json_is_object(message) || !json_is_string(role))
    return status_set(STATUS_BAD_VALUE, "messages[%zu]: a message is an object with the members role, a string, and content", i);
  if (content && !json_is_string(content) && !json_is_null(content) && !json_is_array(content))
    return status_set(STATUS_BAD_VALUE, "messages[%zu].content: a string or an array of parts is accepted", i);
  const bool parts = json_is_array(content), renamed = !template->developer && strcmp(json_string_value(role), "developer") == 0;
  if (!parts && !renamed) return json_array_append(plain, message) == 0 ? STATUS_OK : status_no_memory("messages", "their list");
  json_t *joined = NULL;
  if (parts) TRY(join_parts(content, i, &joined));
  json_t *copy = copy_object(message);
  const bool kept = (!parts || json_object_set_new(copy, "content", joined) == 0) &&
                    (!renamed || json_object_set_new(copy, "role", json_string("system")) == 0) && json_array_append(plain, copy) == 0;
  json_decref(copy);
  return kept ? STATUS_OK : status_no_memory("messages", "their copy");
}

static Status plain_messages(const ChatTemplate *template, const json_t *messages, json_t *plain) {
  size_t i;
  json_t *message;
  if (!json_is_array(messages) || json_array_size(messages) == 0)
    return status_set(STATUS_BAD_VALUE, "messages: an array of at least one message is wanted");
  json_array_foreach((json_t *)messages, i, message) TRY(append_plain(template, plain, message, i));
  return STATUS_OK;
}

Status chat_template_render(const ChatTemplate *template, const json_t *messages, bool add_generation_prompt, char **text, size_t *size) {
  *text = NULL;
  json_t *plain = json_array(), *variables = copy_object(template->tokens);
  Status status = STATUS_OK;
  if (!plain || !variables || json_object_set(variables, "messages", plain) != 0 ||
      json_object_set_new(variables, "tools", json_null()) != 0 || json_object_set_new(variables, "documents", json_null()) != 0 ||
      json_object_set_new(variables, "add_generation_prompt", json_boolean(add_generation_prompt)) != 0)
    status = status_no_memory("chat template", "its variables");
  if (status == STATUS_OK) status = plain_messages(template, messages, plain);
  if (status == STATUS_OK) status = jinja_render(template->jinja, variables, &jinja_limits, text, size);
  json_decref(plain);
  json_decref(variables);
  return status;
}

Status chat_template_encode_text(const ChatTemplate *template, const Vocabulary *vocabulary, const char *text, size_t size,
                                 TokenList *ids) {
  return template->chatml ? vocabulary_prompt(vocabulary, text, size, true, ids)
                          : tokenizer_encode(vocabulary->tokenizer, text, size, true, ids);
}

Status chat_template_encode(const ChatTemplate *template, const Vocabulary *vocabulary, const json_t *messages, bool add_generation_prompt,
                            TokenList *ids) {
  char *text;
  size_t size;
  TRY(chat_template_render(template, messages, add_generation_prompt, &text, &size));
  Status status = chat_template_encode_text(template, vocabulary, text, size, ids);
  free(text);
  return status;
}

const char *chat_template_stop(const ChatTemplate *template) { return template->chatml ? "<|im_end|>" : NULL; }
