/* Stands in for src/serve/engine.c: one thread that gives each job the tokens of a script, at once or when it is let, and keeps what it was
 * asked. The same script for all jobs, over and over up to sampling.max. */
#ifndef UNIT_SERVE_FAKE_ENGINE_H
#define UNIT_SERVE_FAKE_ENGINE_H
#include "serve/engine.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FAKE_JOBS = 1024, FAKE_CLASSES = 3 };

typedef struct FakeJob {
  EngineJob text;
  EngineImages images;
  int32_t *ids;
  uint64_t ticket;
  bool is_text, cancelled, enough, taken, ended;
} FakeJob;

struct Engine {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t thread;
  FakeJob jobs[FAKE_JOBS];
  atomic_int count, queue_max, ended, cancelled, enough, max_queued;
  atomic_bool no_memory; /* for another job */
  atomic_bool hold;      /* tokens wait until it is cleared */
  atomic_int hold_after; /* tokens of a job that come in spite of it */
  atomic_int hold_echo;  /* tokens of a prompt that come before it holds; 0: all */
  bool stop;
  const char *_Atomic failure; /* jobs fail after their tokens */
  const int32_t *script;
  int script_count;
  EngineEnd end;         /* of jobs whose tokens run out */
  int64_t script_rounds; /* 0: as often as it takes */
  int32_t end_token;     /* reported behind a text that ends with ENGINE_STOP, if log-probabilities are wanted; 0: none */
  EngineState state;
};

static inline bool fake_waits(Engine *e, FakeJob *job, int64_t made) {
  return e->hold && made >= e->hold_after && !job->cancelled && !job->enough && !e->stop;
}

/* Token id has ln p = -id / 100, and the candidates id, id + 1... as far as they are wanted. */
static inline EngineToken fake_token(int32_t id, int top, bool prompt, bool first) {
  EngineToken token = {.id = id, .prompt = prompt, .logprob = first ? NAN : -(float)id / 100};
  if (top < 0) token.logprob = NAN;
  for (int i = 0; i < top && !first; i++) token.top[token.top_count++] = (EngineCandidate){.id = id + i, .logprob = -(float)(id + i) / 100};
  return token;
}

static inline void fake_run_text(Engine *e, FakeJob *job) {
  EngineResult result = {.end = ENGINE_LENGTH, .prompt_tokens = job->text.count, .queued = 0.001, .first = 0.002, .total = 0.01};
  for (int64_t i = 0; job->text.echo && i < job->text.count; i++) {
    EngineToken token = fake_token(job->ids[i], job->text.top, true, i == 0);
    pthread_mutex_lock(&e->lock);
    while (e->hold_echo > 0 && i >= e->hold_echo && fake_waits(e, job, e->hold_after)) pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
    job->text.on_token(job->text.context, &token);
  }
  int64_t max = job->text.sampling.max;
  if (e->script_rounds > 0 && max > e->script_rounds * e->script_count) max = e->script_rounds * e->script_count, result.end = e->end;
  for (int64_t made = 0; made < max; made++) {
    pthread_mutex_lock(&e->lock);
    while (fake_waits(e, job, made)) pthread_cond_wait(&e->changed, &e->lock);
    bool over = job->cancelled || job->enough || e->stop;
    if (over) result.end = job->enough ? ENGINE_STOP : ENGINE_CANCELLED;
    e->enough += over && job->enough;
    pthread_mutex_unlock(&e->lock);
    if (over) break;
    EngineToken token = fake_token(e->script[made % e->script_count], job->text.top, false, false);
    result.new_tokens++;
    job->text.on_token(job->text.context, &token);
  }
  if (result.end == ENGINE_STOP && e->end_token && job->text.top >= 0) {
    EngineToken token = fake_token(e->end_token, job->text.top, false, false);
    token.end = true;
    job->text.on_token(job->text.context, &token);
  }
  if (e->failure) result.end = ENGINE_FAILED, result.message = e->failure;
  pthread_mutex_lock(&e->lock);
  e->cancelled += result.end == ENGINE_CANCELLED;
  pthread_mutex_unlock(&e->lock);
  job->text.on_end(job->text.context, &result);
}

/* At once, or when it is let. Class 1 is likeliest where the first pixel is dark, else class 2. */
static inline void fake_run_images(Engine *e, FakeJob *job) {
  EngineResult result = {.end = e->failure ? ENGINE_FAILED : ENGINE_LENGTH, .message = e->failure, .total = 0.01};
  real logits[64 * FAKE_CLASSES];
  pthread_mutex_lock(&e->lock);
  while (fake_waits(e, job, 0)) pthread_cond_wait(&e->changed, &e->lock);
  if (job->cancelled || e->stop) result.end = ENGINE_CANCELLED, e->cancelled++;
  pthread_mutex_unlock(&e->lock);
  for (int64_t i = 0; i < job->images.count; i++) {
    logits[i * FAKE_CLASSES] = 0;
    logits[i * FAKE_CLASSES + 1] = job->images.pixels[0] < 0 ? 2 : 1;
    logits[i * FAKE_CLASSES + 2] = job->images.pixels[0] < 0 ? 1 : 2;
  }
  job->images.on_end(job->images.context, result.end == ENGINE_LENGTH ? logits : NULL, &result);
}

static inline void *fake_run(void *argument) {
  Engine *e = argument;
  pthread_mutex_lock(&e->lock);
  for (;;) {
    FakeJob *job = NULL;
    for (int i = 0; i < e->count && !job; i++)
      if (!e->jobs[i].taken) job = &e->jobs[i];
    if (!job && e->stop) break;
    if (!job) {
      pthread_cond_wait(&e->changed, &e->lock);
      continue;
    }
    job->taken = true;
    pthread_mutex_unlock(&e->lock);
    (job->is_text ? fake_run_text : fake_run_images)(e, job);
    pthread_mutex_lock(&e->lock);
    job->ended = true;
    e->ended++;
  }
  pthread_mutex_unlock(&e->lock);
  return NULL;
}

static inline void fake_engine_init(Engine *e, const int32_t *script, int count) {
  memset(e, 0, sizeof *e);
  e->script = script;
  e->script_count = count;
  e->queue_max = FAKE_JOBS;
  e->state = (EngineState){.ready = true, .nodes = 2};
  snprintf(e->state.devices[0].name, sizeof e->state.devices[0].name, "here");
  snprintf(e->state.devices[1].name, sizeof e->state.devices[1].name, "a\"b\\c");
  e->state.devices[1].state = ENGINE_DEVICE_GONE;
  e->state.devices[1].sum.bytes_sent = 12345;
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->changed, NULL);
  pthread_create(&e->thread, NULL, fake_run, e);
}

static inline void fake_engine_set(Engine *e, bool hold) {
  pthread_mutex_lock(&e->lock);
  e->hold = hold;
  pthread_cond_broadcast(&e->changed);
  pthread_mutex_unlock(&e->lock);
}

static inline void fake_engine_release(Engine *e) {
  pthread_mutex_lock(&e->lock);
  e->stop = true;
  pthread_cond_broadcast(&e->changed);
  pthread_mutex_unlock(&e->lock);
  pthread_join(e->thread, NULL);
  for (int i = 0; i < e->count; i++) free(e->jobs[i].ids);
  pthread_cond_destroy(&e->changed);
  pthread_mutex_destroy(&e->lock);
}

static inline Status fake_add(Engine *e, FakeJob job, uint64_t *ticket) {
  pthread_mutex_lock(&e->lock);
  int open = e->count - e->ended;
  const bool more = job.is_text ? job.text.more : job.images.more;
  if (e->no_memory) {
    pthread_mutex_unlock(&e->lock);
    free(job.ids);
    return status_no_memory(NULL, "another job");
  }
  if ((open >= e->queue_max && !more) || e->count == FAKE_JOBS) {
    pthread_mutex_unlock(&e->lock);
    free(job.ids);
    return status_set(STATUS_BUSY, "the queue is full");
  }
  if (open + 1 > e->max_queued) e->max_queued = open + 1;
  *ticket = job.ticket = (uint64_t)e->count + 1;
  e->jobs[e->count++] = job;
  pthread_cond_broadcast(&e->changed);
  pthread_mutex_unlock(&e->lock);
  return STATUS_OK;
}

Status engine_submit(Engine *e, const EngineJob *text, uint64_t *ticket) {
  FakeJob job = {.text = *text, .is_text = true, .ids = malloc((size_t)text->count * sizeof *text->ids)};
  memcpy(job.ids, text->ids, (size_t)text->count * sizeof *text->ids);
  return fake_add(e, job, ticket);
}

Status engine_classify(Engine *e, const EngineImages *images, uint64_t *ticket) {
  FakeJob job = {.images = *images};
  static float first[FAKE_JOBS]; /* all that is looked at */
  first[e->count % FAKE_JOBS] = images->pixels[0];
  job.images.pixels = &first[e->count % FAKE_JOBS];
  return fake_add(e, job, ticket);
}

Status engine_use_groups(Engine *e, int groups) {
  e->state.groups = groups;
  return STATUS_OK;
}

static inline void fake_end(Engine *e, uint64_t ticket, bool enough) {
  pthread_mutex_lock(&e->lock);
  FakeJob *job = ticket >= 1 && ticket <= (uint64_t)e->count ? &e->jobs[ticket - 1] : NULL;
  if (job) *(enough ? &job->enough : &job->cancelled) = true;
  pthread_cond_broadcast(&e->changed);
  pthread_mutex_unlock(&e->lock);
}

void engine_finish(Engine *e, uint64_t ticket) { fake_end(e, ticket, true); }
void engine_cancel(Engine *e, uint64_t ticket) { fake_end(e, ticket, false); }

void engine_state(Engine *e, EngineState *state) { *state = e->state; }

bool engine_is_deserted(Engine *e) { return e->state.deserted; }

int engine_retry_seconds(Engine *e) {
  (void)e;
  return 7;
}

#endif
