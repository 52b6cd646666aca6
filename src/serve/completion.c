/* See completion.h. A Completion belongs to its request and to each job that the engine has not ended: the last of these frees it.
 * `lock` guards what callbacks of the engine touch; all else is the HTTP thread's that has the request. */
#include "serve/completion.h"
#include "base/array.h"
#include "base/utf8.h"
#include "infer/text_stream.h"
#include "serve/completion_request.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- one text that is being made for a client: tokens come in from the engine, text, log-probabilities and the reason of its end go out
 * in the forms of OpenAI's interface. Text comes in whole characters and ends before a stop string (infer/text_stream.h). One thread at a
 * time.
 */

typedef struct ChoiceOptions {
  const Vocabulary *vocabulary;
  const char *const *stops; /* [stop_count] */
  int stop_count;
  bool chat;     /* the forms of chats */
  bool logprobs; /* are wanted */
} ChoiceOptions;

typedef struct Choice {
  const ChoiceOptions *options;
  int index;
  int32_t begin;      /* what a prompt may begin with that is no text of the client's; -1: nothing */
  bool first;         /* nothing but that stands before the next token */
  const char *finish; /* "stop", "length"; NULL: it goes on */
  int64_t new_tokens; /* whose text counts */
  TextStream stream;
  char *text; /* [bytes] since it was taken last */
  size_t bytes, room;
  size_t offset;    /* characters of all tokens so far */
  json_t *logprobs; /* since they were taken last; NULL: none */
  size_t entries;   /* of these, those of other candidates among them */
  bool failed;      /* no memory */
} Choice;

static void take_text(void *context, const char *text, size_t bytes) {
  Choice *c = context;
  if (ARRAY_RESERVE(c->text, c->bytes, bytes + 1, c->room, "text") != STATUS_OK) {
    c->failed = true;
    return;
  }
  memcpy(c->text + c->bytes, text, bytes);
  c->bytes += bytes;
}

/* first: the prompt holds nothing but `begin`, or its tokens are reported too. */
static void choice_init(Choice *c, const ChoiceOptions *options, int index, int32_t begin, bool first) {
  *c = (Choice){.options = options, .index = index, .begin = begin, .first = first};
  text_stream_init(&c->stream, options->stops, options->stop_count, take_text, c);
}

static void choice_release(Choice *c) {
  text_stream_release(&c->stream);
  free(c->text);
  json_decref(c->logprobs);
  *c = (Choice){.index = 0};
}

/* A token that is no whole character, or holds a NUL, which ends a name, is named by its bytes: tokens which differ have names which
 * differ. */
static json_t *token_name(const char *text, size_t bytes) {
  json_t *value = bytes > 0 && memchr(text, '\0', bytes) ? NULL : json_stringn(text, bytes);
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
  return json_pack("{s:o, s:o, s:o}", "token", service_text(text, bytes), "logprob", number(logprob), "bytes", list);
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
    if (token->top[i].id == token->id) continue; /* the first word of a text is named without its space: another name than its piece */
    const char *piece = piece_of(c, token->top[i].id, &size);
    json_t *other = token_name(piece, size);
    const char *key = other ? json_string_value(other) : NULL; /* special tokens may share one: it is the likeliest one's */
    if (key && !json_object_get(top, key)) json_object_set_new(top, key, number(token->top[i].logprob));
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

/* In completions it is the last one of the lists; the messages of chats do not contain it. */
static void add_end(Choice *c, const EngineToken *token) {
  size_t bytes;
  const char *name = piece_of(c, token->id, &bytes);
  if (c->options->logprobs && !c->options->chat) note_completion(c, token, name, bytes);
}

/* BAD_VALUE: an id that the tokenizer does not have. After a stop string tokens are ignored; finish says so. */
static Status choice_add(Choice *c, const EngineToken *token) {
  const Vocabulary *v = c->options->vocabulary;
  char *owned;
  const char *text;
  size_t bytes;
  if (c->finish) return STATUS_OK;
  if (token->end) return add_end(c, token), STATUS_OK;
  bool begin = token->prompt && c->first && token->id == c->begin;
  TRY(vocabulary_piece(v, token->id, c->first && !begin, &owned, &text, &bytes));
  if (begin) bytes = 0; /* it was put there, and is no text of the client's */
  Status status = STATUS_OK;
  if (c->options->logprobs) (c->options->chat ? note_chat : note_completion)(c, token, text, bytes);
  if (c->options->logprobs) c->entries += 1 + (size_t)token->top_count;
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

/* Bytes of text that can be shown: the tokens of a prompt that is echoed, and the new ones behind them, may each end within a character. */
static size_t complete_bytes(const Choice *c) { return utf8_complete(c->text, c->bytes); }

/* What is new, as a member of "choices": whole, or as a chunk of a stream (delta). opening: the first chunk of a chat, which says the role.
 * finish_reason is in it if `last`. NULL: no memory. */
static json_t *choice_take(Choice *c, bool chunk, bool opening, bool last) {
  const size_t bytes = last ? c->bytes : complete_bytes(c);
  json_t *text = service_text(c->text, bytes), *logprobs = c->logprobs ? c->logprobs : json_null();
  json_t *finish = last && c->finish ? json_string(c->finish) : json_null(), *value;
  bool empty = bytes == 0 && !opening;
  c->bytes -= bytes;
  if (c->bytes > 0) memmove(c->text, c->text + bytes, c->bytes);
  c->logprobs = NULL;
  c->entries = 0;
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

/* ---- all texts of a request */

typedef struct WaitingToken {
  int32_t id;
  float logprob;
  bool prompt, end;
  int top_count;
  size_t top; /* into Job.tops */
} WaitingToken;

typedef struct Completion Completion;

typedef struct Job {
  Completion *completion;
  Choice choice;
  uint64_t ticket; /* 0: not with the engine */
  bool done;       /* ended, and all its tokens were looked at */
  bool told;       /* the stream has said so */
  bool opened;     /* the stream has said who speaks */
  /* Taken from below, and looked at up to `taken_at`: */
  WaitingToken *taken;
  EngineCandidate *taken_tops;
  size_t taken_count, taken_at;
  bool taken_last; /* none came behind them */
  /* Under the lock: */
  WaitingToken *tokens;
  size_t count, room;
  EngineCandidate *tops;
  size_t top_count, top_room;
  bool ended;
  Status lost; /* why tokens were dropped: BUSY, the client reads too slowly; NO_MEMORY. OK: none were */
  EngineResult result;
  char *message;
} Job;

struct Completion {
  pthread_mutex_t lock;
  int references;
  HttpRequest *request; /* NULL: its client has been answered or is gone */
  bool wakes;           /* each token is of interest, not the end alone */
  Service *service;
  const ServiceModel *model;
  json_t *root; /* until the jobs are made */
  size_t body_bytes;
  CompletionRequest asked;
  ChoiceOptions options;
  char *own_stops[REQUEST_STOPS]; /* of the request, copied */
  const char *stops[REQUEST_STOPS + 1];
  TokenList *prompts; /* [prompt_count] */
  int prompt_count;
  Job *jobs; /* [count] */
  int count, next, with_engine, done;
  int64_t prompt_tokens, shared_tokens, new_tokens;
  int status_code;   /* of the first failure, which ends the answer; 0: there is none */
  const char *param; /* what of the request is at fault; NULL: what it asks to be continued, if anything */
  const char *code;  /* what clients know that failure by; NULL: nothing of its own */
  char message[256];
  char id[80];
  time_t created;
  bool over;
  char *out; /* [out_bytes] of the stream, from out_at on */
  size_t out_at, out_bytes;
};

static void free_taken(Job *job) {
  free(job->taken);
  free(job->taken_tops);
  job->taken = NULL;
  job->taken_tops = NULL;
  job->taken_count = job->taken_at = 0;
}

static void release(Completion *c) {
  pthread_mutex_lock(&c->lock);
  int left = --c->references;
  pthread_mutex_unlock(&c->lock);
  if (left > 0) return;
  for (int i = 0; i < c->count; i++) {
    choice_release(&c->jobs[i].choice);
    free(c->jobs[i].tokens);
    free(c->jobs[i].tops);
    free_taken(&c->jobs[i]);
    free(c->jobs[i].message);
  }
  for (int i = 0; i < c->prompt_count; i++) token_list_release(&c->prompts[i]);
  for (int i = 0; i < REQUEST_STOPS; i++) free(c->own_stops[i]);
  completion_request_release(&c->asked);
  json_decref(c->root);
  pthread_mutex_destroy(&c->lock);
  free(c->prompts);
  free(c->jobs);
  free(c->out);
  free(c);
}

/* ---- from the engine's thread */

static size_t waiting_bytes(const Job *job) { return job->count * sizeof *job->tokens + job->top_count * sizeof *job->tops; }

static Status keep(Job *job, const EngineToken *token) {
  size_t top = token->top_count > 0 ? (size_t)token->top_count : 0;
  if (waiting_bytes(job) > COMPLETION_WAITING) return STATUS_BUSY;
  TRY(ARRAY_RESERVE(job->tokens, job->count, 1, job->room, "tokens"));
  if (top > 0) TRY(ARRAY_RESERVE(job->tops, job->top_count, top, job->top_room, "tokens"));
  job->tokens[job->count++] = (WaitingToken){token->id, token->logprob, token->prompt, token->end, (int)top, job->top_count};
  if (top > 0) memcpy(job->tops + job->top_count, token->top, top * sizeof *token->top);
  job->top_count += top;
  return STATUS_OK;
}

static void on_token(void *context, const EngineToken *token) {
  Job *job = context;
  Completion *c = job->completion;
  pthread_mutex_lock(&c->lock);
  if (c->request && job->lost == STATUS_OK) job->lost = keep(job, token);
  if (c->request && (c->wakes || waiting_bytes(job) > COMPLETION_WAITING / 2)) http_wake(c->request);
  pthread_mutex_unlock(&c->lock);
}

static void on_end(void *context, const EngineResult *result) {
  Job *job = context;
  Completion *c = job->completion;
  service_count_result(c->service, result, false);
  pthread_mutex_lock(&c->lock);
  job->ended = true;
  job->result = *result;
  job->message = result->message ? strdup(result->message) : NULL;
  job->result.message = NULL;
  if (c->request) http_wake(c->request);
  pthread_mutex_unlock(&c->lock);
  release(c);
}

/* ---- jobs */

static void fail(Completion *c, int status_code, const char *code, const char *message) {
  if (c->status_code) return;
  c->status_code = status_code;
  c->code = code;
  snprintf(c->message, sizeof c->message, "%s", message);
}

static void fail_as(Completion *c, Status status) {
  const int status_code = service_status_code(status);
  const char *code = status == STATUS_BUSY ? service_busy_code(c->model) : status_code == 400 ? "invalid_value" : NULL;
  fail(c, status_code, code, status_message());
}

/* A request that has been let in always has a text with the engine, however full the queue: what it has made so far is not thrown away.
 * With more than one it waits for room like any other. */
static Status submit(Completion *c, Job *job) {
  const TokenList *ids = &c->prompts[job->choice.index / c->asked.n];
  EngineJob ask = {.ids = ids->ids,
                   .count = (int64_t)ids->count,
                   .sampling = c->asked.sampling,
                   .top = c->asked.top,
                   .echo = c->asked.echo,
                   .let_in = c->next > 0,
                   .more = c->next > 0 && c->with_engine == 0,
                   .on_token = on_token,
                   .on_end = on_end,
                   .context = job};
  int64_t room = c->model->tokens_max - (int64_t)ids->count;
  ask.sampling.max = c->asked.max_tokens < 0 || c->asked.max_tokens > room ? (room > 0 ? room : 0) : c->asked.max_tokens;
  ask.sampling.stream = (uint16_t)job->choice.index;
  pthread_mutex_lock(&c->lock);
  c->references++;
  pthread_mutex_unlock(&c->lock);
  Status status = engine_submit(c->model->engine, &ask, &job->ticket);
  if (status != STATUS_OK) release(c);
  return status;
}

static void submit_more(Completion *c) {
  while (c->next < c->count && c->with_engine < COMPLETION_JOBS && !c->status_code) {
    Status status = submit(c, &c->jobs[c->next]);
    if (status == STATUS_BUSY && c->with_engine > 0) return; /* one of its own ends, and makes room */
    if (status != STATUS_OK) {
      fail_as(c, status);
      return;
    }
    c->next++;
    c->with_engine++;
  }
}

/* What has come of a job since. */
static void take_tokens(Completion *c, Job *job) {
  free_taken(job);
  pthread_mutex_lock(&c->lock);
  job->taken = job->tokens;
  job->taken_tops = job->tops;
  job->taken_count = job->count;
  job->taken_last = job->ended;
  const Status lost = job->lost;
  job->tokens = NULL;
  job->tops = NULL;
  job->count = job->room = job->top_count = job->top_room = 0;
  pthread_mutex_unlock(&c->lock);
  if (lost == STATUS_BUSY) fail(c, 500, NULL, "the client reads too slowly");
  if (lost == STATUS_NO_MEMORY) fail_as(c, status_no_memory(NULL, "an answer"));
}

/* JSON of log-probabilities takes far more memory than waiting tokens, up to 1 KB each. */
static bool holds_many(const Completion *c) {
  size_t entries = 0;
  for (int i = 0; i < c->next; i++) entries += c->jobs[i].choice.entries;
  return entries > COMPLETION_ENTRIES;
}

static void add_token(Completion *c, Job *job) {
  const WaitingToken *t = &job->taken[job->taken_at++];
  EngineToken token = {.id = t->id, .prompt = t->prompt, .end = t->end, .logprob = t->logprob, .top_count = t->top_count};
  if (t->top_count > 0) memcpy(token.top, job->taken_tops + t->top, (size_t)t->top_count * sizeof *token.top);
  Status status = choice_add(&job->choice, &token);
  if (job->choice.failed) status = status_no_memory(NULL, "an answer");
  if (status == STATUS_NO_MEMORY)
    fail_as(c, status);
  else if (status != STATUS_OK)
    fail(c, 500, NULL, status_message());
}

/* Of a stream no more at a time than it may hold: the rest waits until that is written. */
static void look_at_tokens(Completion *c, Job *job) {
  if (job->taken_at == job->taken_count) take_tokens(c, job);
  while (job->taken_at < job->taken_count && !c->status_code) {
    if (c->options.logprobs && holds_many(c)) {
      if (c->asked.stream) return;
      c->param = "logprobs";
      fail(c, 400, "invalid_value",
           "the log-probabilities of this answer are too many: fewer texts (n), tokens or candidates are possible, or a stream");
      return;
    }
    add_token(c, job);
  }
}

static void look_at(Completion *c, Job *job) {
  bool stopped = job->choice.finish != NULL;
  look_at_tokens(c, job);
  const bool ended = job->taken_last && (c->status_code || job->taken_at == job->taken_count);
  if (!stopped && job->choice.finish && !ended) engine_finish(c->model->engine, job->ticket);
  if (!ended) return;
  job->done = true;
  free_taken(job);
  c->done++;
  c->with_engine--;
  const EngineResult *r = &job->result;
  if (job->choice.index % c->asked.n == 0) c->prompt_tokens += r->prompt_tokens, c->shared_tokens += r->shared_tokens;
  c->new_tokens += job->choice.new_tokens;
  const bool over = job->choice.finish != NULL; /* by a stop string: what comes then changes nothing */
  if (r->end == ENGINE_FAILED && !over) fail(c, 500, NULL, job->message ? job->message : "the cluster failed");
  if (r->end == ENGINE_DESERTED && !over) fail(c, 503, "no_device", job->message ? job->message : "no device is left");
  if (r->end == ENGINE_CANCELLED && !over) fail(c, 503, NULL, "the service is shutting down");
  if (c->status_code) return;
  text_stream_finish(&job->choice.stream); /* what was held back comes out */
  if (job->choice.failed) fail_as(c, status_no_memory(NULL, "an answer"));
  if (!job->choice.finish) job->choice.finish = r->end == ENGINE_STOP ? "stop" : "length";
}

static void look_at_all(Completion *c) {
  for (int i = 0; i < c->next; i++)
    if (!c->jobs[i].done) look_at(c, &c->jobs[i]);
  submit_more(c);
  if (c->request && http_late(c->request)) fail(c, 503, NULL, http_late_reason(c->request));
}

/* ---- answers */

static json_t *usage_json(const Completion *c) {
  return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)c->prompt_tokens, "completion_tokens",
                   (json_int_t)c->new_tokens, "total_tokens", (json_int_t)(c->prompt_tokens + c->new_tokens), "prompt_tokens_details",
                   "cached_tokens", (json_int_t)c->shared_tokens);
}

/* The answer, or a chunk of it, around its choices, which it takes over. */
static json_t *around(const Completion *c, bool chunk, json_t *choices) {
  const char *object = !c->asked.chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", c->id, "object", object, "created", (json_int_t)c->created, "model", c->model->name,
                   "choices", choices);
}

static void reply_whole(Completion *c, HttpRequest *request) {
  json_t *choices = json_array(), *usage = usage_json(c);
  for (int i = 0; i < c->count; i++) json_array_append_new(choices, choice_take(&c->jobs[i].choice, false, true, true));
  bool whole = json_array_size(choices) == (size_t)c->count;
  json_t *answer = whole ? around(c, false, choices) : NULL;
  if (!whole) json_decref(choices);
  if (answer)
    json_object_set_new(answer, "usage", usage);
  else
    json_decref(usage);
  http_reply_json(request, 200, answer);
}

/* Takes value over. NO_MEMORY: what was to be said is lost. */
static Status write_event(FILE *out, json_t *value) {
  char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
  if (text) fprintf(out, "data: %s\n\n", text);
  json_decref(value);
  if (!text) return status_no_memory(NULL, "a stream");
  free(text);
  return STATUS_OK;
}

static Status write_end(Completion *c, FILE *out) {
  Status status = STATUS_OK;
  if (c->status_code) {
    status = write_event(out, http_error_json(c->status_code, c->param, c->code, c->message));
  } else if (c->asked.include_usage) {
    json_t *chunk = around(c, true, json_array());
    if (chunk) json_object_set_new(chunk, "usage", usage_json(c));
    status = write_event(out, chunk);
  }
  fputs("data: [DONE]\n\n", out);
  c->over = true;
  return status;
}

static Status write_news(Completion *c) {
  free(c->out);
  c->out = NULL;
  c->out_at = c->out_bytes = 0;
  FILE *out = open_memstream(&c->out, &c->out_bytes);
  if (!out) return status_no_memory(NULL, "a stream");
  Status status = STATUS_OK;
  for (int i = 0; i < c->next && !c->status_code && status == STATUS_OK; i++) {
    Job *job = &c->jobs[i];
    bool opening = c->asked.chat && !job->opened, last = job->done && !job->told;
    if (!opening && !last && complete_bytes(&job->choice) == 0 && !job->choice.logprobs) continue;
    job->opened = true;
    job->told |= last;
    json_t *chunk = around(c, true, json_pack("[o]", choice_take(&job->choice, true, opening, last)));
    if (chunk && c->asked.include_usage) json_object_set_new(chunk, "usage", json_null()); /* it comes in a chunk of its own */
    status = write_event(out, chunk);
  }
  if (status == STATUS_OK && (c->status_code || c->done == c->count)) status = write_end(c, out);
  return fclose(out) == 0 ? status : status_no_memory(NULL, "a stream");
}

static ssize_t read_stream(void *context, HttpRequest *request, char *buffer, size_t room) {
  Completion *c = context;
  (void)request;
  if (c->out_at == c->out_bytes) {
    if (c->over) return HTTP_END;
    look_at_all(c);
    if (write_news(c) != STATUS_OK) return HTTP_BROKEN;
  }
  size_t bytes = c->out_bytes - c->out_at < room ? c->out_bytes - c->out_at : room;
  if (bytes > 0) memcpy(buffer, c->out + c->out_at, bytes);
  c->out_at += bytes;
  return (ssize_t)bytes;
}

/* What is refused before anything was computed is an answer with a status of its own, in a stream too. */
static bool ready(void *context, HttpRequest *request) {
  Completion *c = context;
  look_at_all(c);
  if (c->status_code) {
    bool refused = c->status_code == 400;
    if (c->status_code == 503) http_retry_after(request, engine_retry_seconds(c->model->engine));
    const char *continued = refused ? (c->asked.chat ? "messages" : "prompt") : NULL;
    http_reply_error(request, c->status_code, c->param ? c->param : continued, c->code, "%s", c->message);
    return true;
  }
  if (c->asked.stream) {
    http_stream(request);
    return true;
  }
  if (c->done < c->count) return false;
  reply_whole(c, request);
  return true;
}

static int64_t count_new(const WaitingToken *tokens, size_t count) {
  int64_t made = 0;
  for (size_t i = 0; i < count; i++) made += !tokens[i].prompt && !tokens[i].end;
  return made;
}

/* What a client that left took until then. Jobs that ended have been counted (look_at); the caller holds the lock. */
static void count_unfinished(Completion *c) {
  for (int i = 0; i < c->next; i++) {
    const Job *job = &c->jobs[i];
    if (job->done) continue;
    if (i % c->asked.n == 0) c->prompt_tokens += (int64_t)c->prompts[i / c->asked.n].count;
    c->new_tokens += job->choice.new_tokens;
    if (job->choice.finish) continue;
    c->new_tokens += count_new(job->taken + job->taken_at, job->taken_count - job->taken_at) + count_new(job->tokens, job->count);
  }
}

static void close_request(void *context, HttpRequest *request) {
  Completion *c = context;
  pthread_mutex_lock(&c->lock);
  c->request = NULL;
  count_unfinished(c);
  pthread_mutex_unlock(&c->lock);
  for (int i = 0; i < c->next; i++)
    if (!c->jobs[i].done && c->jobs[i].ticket) engine_cancel(c->model->engine, c->jobs[i].ticket);
  http_note(request, "model", json_string(c->model->name));
  http_note(request, "prompt_tokens", json_integer((json_int_t)c->prompt_tokens));
  http_note(request, "new_tokens", json_integer((json_int_t)c->new_tokens));
  if (c->status_code) http_note(request, "error", json_string(c->message));
  if (c->count > 0 && c->jobs[0].done) {
    const EngineResult *r = &c->jobs[0].result;
    http_note(request, "finish", json_string(c->jobs[0].choice.finish ? c->jobs[0].choice.finish : "error"));
    http_note(request, "queue_ms", json_real((double)(int64_t)(1e5 * r->queued) / 100));
    http_note(request, "first_ms", json_real((double)(int64_t)(1e5 * r->first) / 100));
    http_note(request, "device", json_integer(r->decoder));
  }
  release(c);
}

/* ---- the request */

/* The ids of a prompt. `code` of an error: what OpenAI's clients know it by. */
static Status encode_prompt(const Completion *c, const CompletionPrompt *prompt, TokenList *ids, const char **code) {
  const Vocabulary *v = c->model->vocabulary;
  if (prompt && prompt->text) TRY(service_check_text(c->model, prompt->bytes, code));
  if (!prompt)
    TRY(service_encode_messages(c->model, c->asked.messages, c->body_bytes, ids, code));
  else if (prompt->text)
    TRY(vocabulary_prompt(v, prompt->text, prompt->bytes, c->asked.special, ids));
  else
    for (int64_t i = 0; i < prompt->count; i++) TRY(token_list_add(ids, prompt->ids[i]));
  int64_t room = c->model->tokens_max - (c->asked.max_tokens == 0 ? 0 : 1);
  for (size_t i = 0; i < ids->count; i++)
    if (ids->ids[i] >= v->count)
      return status_set(STATUS_BAD_VALUE, "prompt: token %d; the vocabulary has %lld", (int)ids->ids[i], (long long)v->count);
  if ((int64_t)ids->count <= room) return STATUS_OK;
  *code = "context_length_exceeded";
  return status_set(STATUS_BAD_VALUE, "the prompt has %zu tokens; prompt and answer together can have %lld: shorten the prompt", ids->count,
                    (long long)c->model->tokens_max);
}

static Status encode(Completion *c, const char **code) {
  const CompletionRequest *a = &c->asked;
  int count = a->chat ? 1 : a->prompt_count;
  c->prompts = calloc((size_t)count, sizeof *c->prompts);
  if (!c->prompts) return status_no_memory(NULL, "prompts");
  c->prompt_count = count;
  for (int p = 0; p < count; p++) {
    Status status = encode_prompt(c, a->chat ? NULL : &a->prompts[p], &c->prompts[p], code);
    if (status != STATUS_OK) return count > 1 ? status_wrap(status, "prompt %d", p + 1) : status;
  }
  return STATUS_OK;
}

/* Devices would refuse these, and be taken for faulty. */
static Status check_biases(const Completion *c) {
  const Sampling *s = &c->asked.sampling;
  const int64_t count = c->model->vocabulary->count;
  for (int i = 0; i < s->biases; i++)
    if (s->bias[i].id >= count)
      return status_set(STATUS_BAD_VALUE, "logit_bias: there is no token %d; the vocabulary has %lld", (int)s->bias[i].id,
                        (long long)count);
  return STATUS_OK;
}

static Status keep_stops(Completion *c) {
  const char *of_chat = c->asked.chat ? chat_template_stop(c->model->chat) : NULL;
  int count = 0;
  for (; count < c->asked.stop_count; count++) {
    c->stops[count] = c->own_stops[count] = strdup(c->asked.stops[count]);
    if (!c->stops[count]) return status_no_memory(NULL, "a request");
  }
  if (of_chat) c->stops[count++] = of_chat;
  c->options = (ChoiceOptions){
      .vocabulary = c->model->vocabulary, .stops = c->stops, .stop_count = count, .chat = c->asked.chat, .logprobs = c->asked.top >= 0};
  c->wakes = c->asked.stream || count > 0;
  return STATUS_OK;
}

/* A request may wait for long, and its JSON takes many times the memory of its body, of which alone there is a limit (HttpOptions). */
static void forget_json(Completion *c) {
  completion_request_forget(&c->asked);
  json_decref(c->root);
  c->root = NULL;
}

/* What the engine does with each prompt, and a job for each of its texts. */
static Status make_jobs(Completion *c) {
  const Vocabulary *v = c->model->vocabulary;
  Sampling *s = &c->asked.sampling;
  vocabulary_sampling(v, s);
  if (!c->asked.seeded && getrandom(&s->seed, sizeof s->seed, 0) < 0) s->seed = (uint64_t)time(NULL);

  TRY(keep_stops(c));
  c->jobs = calloc((size_t)(c->prompt_count * c->asked.n), sizeof *c->jobs);
  if (!c->jobs) return status_no_memory(NULL, "a request");
  c->count = c->prompt_count * c->asked.n;
  for (int i = 0; i < c->count; i++) {
    const TokenList *ids = &c->prompts[i / c->asked.n];
    const CompletionPrompt *prompt = c->asked.chat ? NULL : &c->asked.prompts[i / c->asked.n];
    const bool empty = ids->count == 1 && ids->ids[0] == v->begin;
    /* For an empty text GPT-2 has its end of text, which is no beginning where a client sends it as an id. */
    const int32_t begin = prompt && prompt->text && prompt->bytes == 0 ? ids->ids[0] : v->begin;
    c->jobs[i].completion = c;
    choice_init(&c->jobs[i].choice, &c->options, i, begin, c->asked.echo || empty);
  }
  return STATUS_OK;
}

static void answer(Service *service, HttpRequest *request, bool chat) {
  char param[REQUEST_PARAM] = "";
  json_t *root = service_body(request);
  if (!root) return;
  Completion *c = calloc(1, sizeof *c);
  if (!c) {
    json_decref(root);
    service_refuse(request, NULL, status_no_memory(NULL, "a request"), NULL, NULL);
    return;
  }
  pthread_mutex_init(&c->lock, NULL);
  c->references = 1;
  c->service = service;
  c->root = root;
  http_body(request, &c->body_bytes);
  c->created = time(NULL);
  snprintf(c->id, sizeof c->id, "%s-%s", chat ? "chatcmpl" : "cmpl", http_id(request));
  Status status = completion_request_read(&c->asked, root, chat, param);
  if (status != STATUS_OK) {
    service_refuse(request, NULL, status, param, NULL);
    release(c);
    return;
  }
  c->model = service_find(service, request, c->asked.model, true);
  if (c->model) {
    const char *code = NULL;
    status = encode(c, &code);
    if (status != STATUS_OK) service_refuse(request, c->model, status, chat ? "messages" : "prompt", code);
  }
  if (c->model && status == STATUS_OK && (status = check_biases(c)) != STATUS_OK)
    service_refuse(request, c->model, status, "logit_bias", NULL);
  if (!c->model || status != STATUS_OK) {
    release(c);
    return;
  }
  status = make_jobs(c);
  if (status != STATUS_OK) {
    service_refuse(request, c->model, status, NULL, NULL);
    release(c);
    return;
  }
  forget_json(c);
  c->request = request;
  http_work(request, &(HttpWork){.ready = ready, .read = read_stream, .close = close_request, .context = c});
}

static void answer_text(void *service, HttpRequest *request) { answer(service, request, false); }
static void answer_chat(void *service, HttpRequest *request) { answer(service, request, true); }

const HttpRoute completion_text_route = {"POST", "/v1/completions", HTTP_WORK | HTTP_JSON_BODY, answer_text};
const HttpRoute completion_chat_route = {"POST", "/v1/chat/completions", HTTP_WORK | HTTP_JSON_BODY, answer_chat};
