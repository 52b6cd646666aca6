/* See infer_prompts.h. */
#include "cli/infer_prompts.h"
#include "base/files.h"
#include "cli/infer_run.h"
#include <stdlib.h>
#include <string.h>

enum { PROMPT_BYTES = 64 << 20 };

/* A signal makes a read that waits return. */
Status infer_prompts_read_standard_input(char **text, size_t *bytes) {
  size_t capacity = 1 << 16;
  char *grown = malloc(capacity);
  for (*text = grown, *bytes = 0; grown; grown = *text) {
    size_t got = fread(*text + *bytes, 1, capacity - *bytes, stdin);
    *bytes += got;
    if (infer_run_interrupted()) return status_set(STATUS_INTERRUPTED, "interrupted");
    if (got == 0) break;
    if (*bytes < capacity) continue;
    if (capacity >= PROMPT_BYTES) return status_set(STATUS_BAD_VALUE, "standard input: more than %d MB of text", PROMPT_BYTES >> 20);
    grown = realloc(*text, capacity *= 2);
    if (!grown) break;
    *text = grown;
  }
  if (!grown) return status_set(STATUS_NO_MEMORY, "no memory for a prompt");
  return ferror(stdin) ? status_set(STATUS_IO, "standard input cannot be read") : STATUS_OK;
}

static Status check_text(const InferPrompt *prompt) {
  const char *nul = memchr(prompt->text, 0, prompt->bytes);
  if (!nul) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: a NUL byte at offset %zu; a prompt is text", prompt->name, (size_t)(nul - prompt->text));
}

static Status encode(const InferPrompts *prompts, InferPrompt *prompt) {
  TRY(check_text(prompt));
  Status status = vocabulary_prompt(prompts->vocabulary, prompt->text, prompt->bytes, prompts->special, &prompt->ids);
  if (status != STATUS_OK) return status_wrap(status, "%s", prompt->name);
  if ((int64_t)prompt->ids.count <= prompts->most) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s has %zu tokens, but the context has room for %lld", prompt->name, prompt->ids.count,
                    (long long)prompts->most);
}

Status infer_prompts_complete(const InferPrompts *prompts, InferPrompt *prompt) {
  if (!prompt->late) return STATUS_OK;
  TRY(infer_prompts_read_standard_input(&prompt->owned, &prompt->bytes));
  prompt->text = prompt->owned;
  prompt->late = false;
  return encode(prompts, prompt);
}

static Status add_text(InferPrompts *prompts, const char *text, bool alone) {
  InferPrompt *prompt = &prompts->list[prompts->count++];
  prompt->text = text;
  prompt->bytes = strlen(text);
  if (alone)
    snprintf(prompt->name, sizeof prompt->name, "the prompt");
  else
    snprintf(prompt->name, sizeof prompt->name, "prompt %d", prompts->count);
  return encode(prompts, prompt);
}

static Status add_file(InferPrompts *prompts, const char *path) {
  InferPrompt *prompt = &prompts->list[prompts->count++];
  prompt->late = strcmp(path, "-") == 0;
  snprintf(prompt->name, sizeof prompt->name, "%s", prompt->late ? "standard input" : path);
  if (prompt->late) return STATUS_OK;
  TRY(files_read(path, PROMPT_BYTES, &prompt->owned, &prompt->bytes));
  prompt->text = prompt->owned;
  return encode(prompts, prompt);
}

Status infer_prompts_open(InferPrompts *prompts, const InferSettings *s, const Vocabulary *vocabulary, int64_t most) {
  *prompts = (InferPrompts){.vocabulary = vocabulary, .most = most, .special = s->special};
  for (int i = 0; i < s->prompts.count; i++) TRY(add_text(prompts, s->prompts.list[i], s->prompts.count == 1));
  return s->prompt_file ? add_file(prompts, s->prompt_file) : STATUS_OK;
}

void infer_prompts_release(InferPrompts *prompts) {
  for (int i = 0; i < prompts->count; i++) {
    token_list_release(&prompts->list[i].ids);
    free(prompts->list[i].owned);
  }
  *prompts = (InferPrompts){.count = 0};
}
