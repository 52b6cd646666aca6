/* See choice.h. */
#include "serve/choice.h"
#include "base/array.h"
#include "base/utf8.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void take_text(void *context, const char *text, size_t bytes) {
  Choice *c = context;
  if (ARRAY_RESERVE(c->text, c->bytes, bytes + 1, c->room, "text") != STATUS_OK) {
    c->failed = true;
    return;
  }
  memcpy(c->text + c->bytes, text, bytes);
  c->bytes += bytes;
}

void choice_init(Choice *c, const ChoiceOptions *options, int index, bool first) {
  *c = (Choice){.options = options, .index = index, .first = first};
  text_stream_init(&c->stream, options->stops, options->stop_count, take_text, c);
}

void choice_release(Choice *c) {
  text_stream_release(&c->stream);
  free(c->text);
  json_decref(c->logprobs);
  *c = (Choice){.index = 0};
}

/* ---- text as JSON */

json_t *choice_text_json(const char *text, size_t bytes) {
  size_t bad = 0, used = 0;
  for (size_t at = 0, size; at < bytes; at += size ? size : 1) bad += (size = utf8_size(text + at, bytes - at)) == 0;
  if (bad == 0) return json_stringn(text ? text : "", bytes);
  char *clean = malloc(bytes + 2 * bad + 1);
  if (!clean) return NULL;
  for (size_t at = 0; at < bytes;) {
    size_t size = utf8_size(text + at, bytes - at);
    memcpy(clean + used, size ? text + at : "\xef\xbf\xbd", size ? size : 3);
    used += size ? size : 3;
    at += size ? size : 1;
  }
  json_t *value = json_stringn(clean, used);
  free(clean);
  return value;
}

/* A token that is no whole character is named by its bytes, so that tokens which differ have names which differ. */
static json_t *token_name(const char *text, size_t bytes) {
  json_t *value = json_stringn(text, bytes);
  if (value) return value;
  char *name = malloc(4 * bytes + 7);
  size_t used = name ? (size_t)sprintf(name, "bytes:") : 0;
  for (size_t i = 0; name && i < bytes; i++) used += (size_t)sprintf(name + used, "\\x%02x", (unsigned char)text[i]);
  value = name ? json_stringn(name, used) : NULL;
  free(name);
  return value;
}

static json_t *number(float value) { return isfinite(value) ? json_real(value) : isnan(value) ? json_null() : json_real(-9999); }

/* ---- log-probabilities */

static const char *piece_of(const Choice *c, int32_t id, size_t *bytes) {
  const char *text = tokenizer_piece(c->options->vocabulary->tokenizer, id, bytes);
  return text ? text : "";
}

/* {"token", "logprob", "bytes"} */
static json_t *chat_entry(const char *text, size_t bytes, float logprob) {
  json_t *list = json_array();
  for (size_t i = 0; i < bytes; i++) json_array_append_new(list, json_integer((unsigned char)text[i]));
  return json_pack("{s:o, s:o, s:o}", "token", choice_text_json(text, bytes), "logprob", number(logprob), "bytes", list);
}

static void note_chat(Choice *c, const EngineToken *token, const char *text, size_t bytes) {
  json_t *entry = chat_entry(text, bytes, token->logprob), *top = json_array();
  for (int i = 0; i < token->top_count; i++) {
    size_t size;
    const char *piece = piece_of(c, token->top[i].id, &size);
    json_array_append_new(top, chat_entry(piece, size, token->top[i].logprob));
  }
  json_object_set_new(entry, "top_logprobs", top);
  if (!c->logprobs) c->logprobs = json_pack("{s:[]}", "content");
  if (json_array_append_new(json_object_get(c->logprobs, "content"), entry) != 0) c->failed = true;
}

/* Four lists; of the first token of a text, which nothing predicts, null. */
static void note_completion(Choice *c, const EngineToken *token, const char *text, size_t bytes) {
  json_t *name = token_name(text, bytes), *top = isnan(token->logprob) ? json_null() : json_object();
  if (json_is_object(top) && name && isfinite(token->logprob)) json_object_set_new(top, json_string_value(name), number(token->logprob));
  for (int i = 0; i < token->top_count && json_is_object(top); i++) {
    size_t size;
    const char *piece = piece_of(c, token->top[i].id, &size);
    json_t *other = token_name(piece, size);
    if (other) json_object_set_new(top, json_string_value(other), number(token->top[i].logprob));
    json_decref(other);
  }
  if (!c->logprobs) c->logprobs = json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs", "text_offset");
  int failed = json_array_append_new(json_object_get(c->logprobs, "tokens"), name);
  failed |= json_array_append_new(json_object_get(c->logprobs, "token_logprobs"), number(token->logprob));
  failed |= json_array_append_new(json_object_get(c->logprobs, "top_logprobs"), top);
  failed |= json_array_append_new(json_object_get(c->logprobs, "text_offset"), json_integer((json_int_t)c->offset));
  if (failed) c->failed = true;
}

/* ---- tokens */

Status choice_add(Choice *c, const EngineToken *token) {
  const Vocabulary *v = c->options->vocabulary;
  char *owned;
  const char *text;
  size_t bytes;
  if (c->finish) return STATUS_OK;
  bool begin = token->prompt && c->first && token->id == v->begin;
  TRY(vocabulary_piece(v, token->id, c->first && !begin, &owned, &text, &bytes));
  if (begin) bytes = 0; /* it was put there, and is no text of the client's */
  Status status = STATUS_OK;
  if (c->options->logprobs) (c->options->chat ? note_chat : note_completion)(c, token, text, bytes);
  for (size_t i = 0; i < bytes; i++) c->offset += ((unsigned char)text[i] & 0xc0) != 0x80;
  if (token->prompt)
    take_text(c, text, bytes);
  else
    status = text_stream_add(&c->stream, text, bytes);
  free(owned);
  if (!begin) c->first = false;
  c->new_tokens += !token->prompt;
  if (c->stream.stopped) c->finish = "stop";
  return status;
}

void choice_end(Choice *c, EngineEnd end) {
  text_stream_finish(&c->stream);
  if (!c->finish) c->finish = end == ENGINE_STOP ? "stop" : "length";
}

bool choice_has_news(const Choice *c) { return c->bytes > 0 || c->logprobs; }

json_t *choice_take(Choice *c, bool chunk, bool opening, bool last) {
  json_t *text = choice_text_json(c->text, c->bytes), *logprobs = c->logprobs ? c->logprobs : json_null();
  json_t *finish = last && c->finish ? json_string(c->finish) : json_null(), *value;
  bool empty = c->bytes == 0 && !opening;
  c->bytes = 0;
  c->logprobs = NULL;
  if (!c->options->chat)
    return json_pack("{s:i, s:o, s:o, s:o}", "index", c->index, "text", text, "logprobs", logprobs, "finish_reason", finish);
  if (chunk && empty) {
    json_decref(text);
    value = json_object();
  } else {
    value = json_pack("{s:o}", "content", text);
  }
  if (!chunk || opening) json_object_set_new(value, "role", json_string("assistant"));
  return json_pack("{s:i, s:o, s:o, s:o}", "index", c->index, chunk ? "delta" : "message", value, "logprobs", logprobs, "finish_reason",
                   finish);
}
