/* The engine reports tokens on its thread; the caller's waits for them, makes text of them and looks whether it is to stop. */
#include "cli/chat_local.h"
#include "base/clock.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/infer_run.h"
#include "infer/text_stream.h"
#include "infer/vocabulary.h"
#include "serve/chat_template.h"
#include "serve/engine.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ChatLocal {
  const InferSettings *settings;
  InferRun run;
  Vocabulary vocabulary;
  ChatTemplate *template;
  LeaderOptions leader;
  Engine *engine;
  int64_t tokens_max;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  /* Of the answer under way, under the lock: */
  TokenList come; /* tokens that nobody has looked at */
  bool ended;
  Status token_status; /* of a token that could not be kept */
  EngineResult result;
  char message[512];
};

/* ---- open and close */

static Status open_all(ChatLocal *local, const char *template) {
  const InferSettings *s = local->settings;
  TRY(infer_run_network(s, &local->run));
  TRY(cli_check_kernels(s->backend));
  infer_run_tell_machine(s);
  TRY(infer_run_load(s, &local->run));
  TRY(infer_run_require(&local->run, INFER_KIND_LANGUAGE));
  TRY(infer_settings_check_decodes(s));
  TRY(infer_settings_check_parts(s));
  const ModelConfig *config = local->run.weights.config;
  TRY(infer_settings_context("--max-context", s->context, config, &local->tokens_max));
  TRY(vocabulary_open(&local->vocabulary, local->run.directory, config));
  TRY(chat_template_open(&local->template, local->run.directory, template));
  return infer_run_prepare(s, &local->run, &(LeaderOptions){.batch_max = 1, .tokens_max = local->tokens_max}, &local->leader);
}

Status chat_local_open(ChatLocal **local, const InferSettings *settings, const char *template) {
  *local = NULL;
  ChatLocal *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return status_no_memory(NULL, "a chat");
  fresh->settings = settings;
  pthread_mutex_init(&fresh->lock, NULL);
  threads_condition_init(&fresh->changed);
  Status status = open_all(fresh, template);
  if (status == STATUS_OK)
    *local = fresh;
  else
    chat_local_close(fresh);
  return status;
}

Status chat_local_start(ChatLocal *local, const volatile sig_atomic_t *stop) {
  const InferRun *run = &local->run;
  local->leader.stop = stop;
  const EngineOptions options = {
      .weights = &run->weights, .split = &run->split, .leader = &local->leader, .queue_max = 1, .sequences_max = 1};
  TRY(engine_new(&local->engine, &options));
  infer_run_tell_nodes(local->settings, local->engine);
  return engine_start(local->engine);
}

void chat_local_close(ChatLocal *local) {
  if (!local) return;
  engine_free(local->engine);
  chat_template_free(local->template);
  vocabulary_close(&local->vocabulary);
  infer_run_release(&local->run);
  token_list_release(&local->come);
  pthread_cond_destroy(&local->changed);
  pthread_mutex_destroy(&local->lock);
  free(local);
}

/* ---- the engine's thread */

static void on_token(void *context, const EngineToken *token) {
  ChatLocal *local = context;
  pthread_mutex_lock(&local->lock);
  if (local->token_status == STATUS_OK) local->token_status = token_list_add(&local->come, token->id);
  pthread_cond_signal(&local->changed);
  pthread_mutex_unlock(&local->lock);
}

static void on_end(void *context, const EngineResult *result) {
  ChatLocal *local = context;
  pthread_mutex_lock(&local->lock);
  local->result = *result;
  snprintf(local->message, sizeof local->message, "%s", result->message ? result->message : "the cluster failed");
  local->ended = true;
  pthread_cond_signal(&local->changed);
  pthread_mutex_unlock(&local->lock);
}

/* ---- an answer */

typedef struct Text {
  const ChatQuestion *question;
  ChatAnswer *answer;
  double begun;
} Text;

static void write_piece(void *context, const char *bytes, size_t size) {
  Text *text = context;
  if (size == 0) return;
  if (text->answer->bytes == 0) text->answer->first = clock_now() - text->begun;
  text->answer->bytes += size;
  text->question->write(text->question->context, bytes, size);
}

/* The tokens that have come since the last call, waited for at most a twentieth of a second; whether these were the last. */
static bool take_tokens(ChatLocal *local, TokenList *tokens) {
  pthread_mutex_lock(&local->lock);
  if (!local->ended && local->come.count == 0) threads_wait(&local->changed, &local->lock, clock_now() + 0.05);
  TokenList taken = local->come;
  local->come = *tokens;
  local->come.count = 0;
  *tokens = taken;
  bool ended = local->ended;
  pthread_mutex_unlock(&local->lock);
  return ended;
}

static Status add_tokens(ChatLocal *local, const TokenList *tokens, TextStream *stream) {
  for (size_t i = 0; i < tokens->count && !stream->stopped; i++) TRY(vocabulary_write(&local->vocabulary, tokens->ids[i], false, stream));
  return STATUS_OK;
}

/* Until the engine has ended, whatever happens: it holds on to *local until then. */
static Status follow(ChatLocal *local, uint64_t ticket, const ChatQuestion *question, TextStream *stream) {
  TokenList tokens = {0};
  Status status = STATUS_OK;
  for (bool ended = false; !ended;) {
    ended = take_tokens(local, &tokens);
    if (status == STATUS_OK) status = add_tokens(local, &tokens, stream);
    if (!ended && (status != STATUS_OK || stream->stopped || (question->stop && *question->stop))) engine_cancel(local->engine, ticket);
  }
  token_list_release(&tokens);
  return status;
}

static const char *name_end(const EngineResult *result, bool stopped) {
  static const char *const names[] = {
      [ENGINE_LENGTH] = "length", [ENGINE_STOP] = "stop", [ENGINE_CONTEXT] = "context", [ENGINE_CANCELLED] = "cancelled"};
  return stopped ? "stop" : names[result->end];
}

static Status generate(ChatLocal *local, const TokenList *ids, Text *text) {
  const ChatQuestion *q = text->question;
  const char *stop = chat_template_stop(local->template);
  TextStream stream;
  uint64_t ticket;
  EngineJob job = {.ids = ids->ids,
                   .count = (int64_t)ids->count,
                   .sampling = {.max = q->max_tokens, .temperature = q->temperature, .top_k = q->top_k, .top_p = q->top_p, .seed = q->seed},
                   .top = -1,
                   .on_token = on_token,
                   .on_end = on_end,
                   .context = local};
  vocabulary_sampling(&local->vocabulary, &job.sampling);
  local->come.count = 0;
  local->ended = false;
  local->token_status = STATUS_OK;
  TRY(engine_submit(local->engine, &job, &ticket));
  text_stream_init(&stream, &stop, stop != NULL, write_piece, text);
  Status status = follow(local, ticket, q, &stream);
  if (status == STATUS_OK) text_stream_finish(&stream);
  bool stopped = stream.stopped;
  text_stream_release(&stream);
  TRY(status);
  if (local->token_status != STATUS_OK) return status_no_memory(NULL, "new tokens");
  if (local->result.end == ENGINE_FAILED || local->result.end == ENGINE_DESERTED) return status_set(STATUS_PEER, "%s", local->message);
  text->answer->end = name_end(&local->result, stopped);
  text->answer->prompt_tokens = local->result.prompt_tokens;
  text->answer->new_tokens = local->result.new_tokens;
  return STATUS_OK;
}

Status chat_local_ask(ChatLocal *local, const ChatQuestion *question, ChatAnswer *answer) {
  Text text = {.question = question, .answer = answer, .begun = clock_now()};
  TokenList ids = {0};
  *answer = (ChatAnswer){.prompt_tokens = -1, .new_tokens = -1};
  Status status = chat_template_encode(local->template, &local->vocabulary, question->messages, true, &ids);
  if (status == STATUS_OK && (int64_t)ids.count >= local->tokens_max)
    status = status_set(STATUS_BAD_VALUE, "the messages have %zu tokens, but the context has room for %lld; /reset begins anew", ids.count,
                        (long long)local->tokens_max);
  if (status == STATUS_OK) status = generate(local, &ids, &text);
  answer->seconds = clock_now() - text.begun;
  token_list_release(&ids);
  return status;
}
