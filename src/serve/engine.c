/* The queue of a service's requests, and the thread that takes them to the cluster one after another: see engine.h. Everything that callers
 * and the thread share is behind one lock, which is never held while the leader is called or a callback runs. */
#include "serve/engine.h"
#include "base/clock.h"
#include "base/log.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* A request, from its submission to its on_end. */
typedef struct Job {
  struct Job *next;
  uint64_t ticket;
  bool text;
  EngineJob job;       /* ids are a copy */
  EngineImages images; /* pixels are a copy */
  bool cancelled;      /* under the lock */
  double submitted, started, first;
  int64_t made; /* new tokens reported */
} Job;

struct Engine {
  EngineOptions options;
  Leader *leader;
  pthread_t thread;
  bool running;
  pthread_mutex_t lock;   /* of everything below */
  pthread_cond_t changed; /* a job has come, or the end */
  Job *queue, **last;     /* waiting, oldest first */
  Job *active;
  uint64_t tickets;
  bool stop;
  double rate;       /* requests finished a second, a moving average; 0: not known */
  char failure[512]; /* why the cluster is no more */
  EngineState state;
};

/* ---- what operators see */

/* By the engine's thread, or before it runs. */
static void note_cluster(Engine *engine) {
  const LeaderSums *sums = leader_sums(engine->leader);
  const int nodes = leader_nodes(engine->leader), here = leader_nodes_here(engine->leader);
  uint64_t all = 0;
  pthread_mutex_lock(&engine->lock);
  engine->state.nodes = nodes;
  for (int d = 0; d < nodes; d++) all += (uint64_t)sums->tokens[d];
  for (int d = 0; d < nodes; d++) {
    EngineDevice *device = &engine->state.devices[d];
    const bool known = all > 0 || here == nodes, took_part = all == 0 || sums->tokens[d] > 0;
    const Address *address = leader_address(engine->leader, d);
    char text[ADDRESS_TEXT];
    snprintf(device->name, sizeof device->name, "%s", address ? address_text(address, text) : "here");
    device->pid = (int)leader_pid(engine->leader, d);
    device->share = all > 0 ? (double)sums->tokens[d] / (double)all : 0;
    device->sum = sums->nodes[d];
    if (here == nodes) device->state = ENGINE_DEVICE_HERE;
    if (here < nodes && known && !took_part && device->state == ENGINE_DEVICE_HERE) {
      device->state = ENGINE_DEVICE_GONE;
      device->failures++;
    }
  }
  pthread_mutex_unlock(&engine->lock);
}

void engine_state(Engine *engine, EngineState *state) {
  pthread_mutex_lock(&engine->lock);
  *state = engine->state;
  pthread_mutex_unlock(&engine->lock);
}

int engine_retry_seconds(Engine *engine) {
  enum { LEAST = 1, MOST = 60 };
  pthread_mutex_lock(&engine->lock);
  const double wait = engine->rate > 0 ? ceil((double)(engine->state.queued + 1) / engine->rate) : LEAST;
  pthread_mutex_unlock(&engine->lock);
  return wait < LEAST ? LEAST : wait > MOST ? MOST : (int)wait;
}

/* ---- the end of a request */

static void free_job(Job *job) {
  free((void *)job->job.ids);
  free((void *)job->images.pixels);
  free(job);
}

/* Reports it and frees it. */
static void end_job(Engine *engine, Job *job, EngineEnd end, const char *message, const real *logits, int decoder) {
  const double now = clock_now();
  EngineResult result = {.end = end,
                         .message = end == ENGINE_FAILED ? message : NULL,
                         .prompt_tokens = job->text ? job->job.count : 0,
                         .new_tokens = job->made,
                         .decoder = decoder,
                         .queued = (job->started > 0 ? job->started : now) - job->submitted,
                         .first = job->first > 0 ? job->first - job->submitted : 0,
                         .total = now - job->submitted};
  pthread_mutex_lock(&engine->lock);
  EngineState *s = &engine->state;
  if (engine->active == job) engine->active = NULL;
  s->prefilling = s->decoding = 0;
  if (end == ENGINE_FAILED)
    s->failed++;
  else if (end == ENGINE_CANCELLED)
    s->cancelled++;
  else
    s->finished++;
  if (end != ENGINE_CANCELLED && job->started > 0 && now > job->started) {
    const double rate = 1 / (now - job->started);
    engine->rate = engine->rate > 0 ? 0.8 * engine->rate + 0.2 * rate : rate;
  }
  pthread_mutex_unlock(&engine->lock);
  if (job->text)
    job->job.on_end(job->job.context, &result);
  else
    job->images.on_end(job->images.context, logits, &result);
  free_job(job);
}

static bool is_cancelled(Engine *engine, const Job *job) {
  pthread_mutex_lock(&engine->lock);
  const bool cancelled = job->cancelled || engine->stop;
  pthread_mutex_unlock(&engine->lock);
  return cancelled;
}

/* ---- one request on the cluster */

static bool ends_text(const Sampling *sampling, int32_t id) {
  for (int i = 0; i < sampling->ends; i++) {
    if (sampling->end[i] == id) return true;
  }
  return false;
}

static void report_token(Engine *engine, Job *job, int32_t id) {
  const EngineToken token = {.id = id, .logprob = NAN};
  if (job->made++ == 0) job->first = clock_now();
  pthread_mutex_lock(&engine->lock);
  engine->state.new_tokens++;
  engine->state.prefilling = 0;
  engine->state.decoding = 1;
  pthread_mutex_unlock(&engine->lock);
  job->job.on_token(job->job.context, &token);
}

static Status run_text(Engine *engine, Job *job, EngineEnd *end, int *decoder) {
  Leader *leader = engine->leader;
  LeaderAnswer answer;
  *end = ENGINE_LENGTH;
  for (int64_t i = 0; job->job.echo && i < job->job.count; i++)
    job->job.on_token(job->job.context, &(EngineToken){.id = job->job.ids[i], .prompt = true, .logprob = NAN});
  if (job->job.sampling.max == 0) return STATUS_OK;
  TRY(leader_text_prompt(leader, job->job.ids, job->job.count, &job->job.sampling));
  for (bool more = true, over = false; more;) {
    int32_t id;
    TRY(leader_text_next(leader, &id, &more));
    if (!more || over) continue;
    const bool cancelled = is_cancelled(engine, job);
    over = cancelled || ends_text(&job->job.sampling, id);
    if (over) *end = cancelled ? ENGINE_CANCELLED : ENGINE_STOP;
    if (!over) report_token(engine, job, id);
    if (cancelled) TRY(leader_text_stop(leader));
  }
  TRY(leader_collect(leader, &answer));
  for (int d = 0; d < leader_nodes(leader); d++) {
    if (answer.counts[d] > 0) *decoder = d;
  }
  if (*end == ENGINE_LENGTH && job->made < job->job.sampling.max) *end = ENGINE_CONTEXT;
  return STATUS_OK;
}

static Status run_images(Engine *engine, const Job *job, const real **logits) {
  LeaderAnswer answer;
  TRY(leader_submit(engine->leader, job->images.pixels, job->images.count));
  TRY(leader_collect(engine->leader, &answer));
  *logits = answer.logits;
  pthread_mutex_lock(&engine->lock);
  engine->state.images += (uint64_t)job->images.count;
  pthread_mutex_unlock(&engine->lock);
  return STATUS_OK;
}

/* After a failure of the leader nothing can be asked of it any more. */
static void run_job(Engine *engine, Job *job) {
  EngineEnd end = ENGINE_LENGTH;
  const real *logits = NULL;
  int decoder = 0;
  job->started = clock_now();
  Status status = job->text ? run_text(engine, job, &end, &decoder) : run_images(engine, job, &logits);
  if (status != STATUS_OK) {
    log_warning("the cluster has failed: %s", status_message());
    pthread_mutex_lock(&engine->lock);
    engine->state.ready = false;
    snprintf(engine->failure, sizeof engine->failure, "%s", status_message());
    pthread_mutex_unlock(&engine->lock);
    end_job(engine, job, ENGINE_FAILED, engine->failure, NULL, 0);
    return;
  }
  note_cluster(engine);
  end_job(engine, job, end, NULL, logits, decoder);
}

/* ---- the thread */

static Job *take_first(Engine *engine) {
  Job *job = engine->queue;
  engine->queue = job->next;
  if (!engine->queue) engine->last = &engine->queue;
  engine->state.queued--;
  return job;
}

static void *serve(void *context) {
  Engine *engine = context;
  pthread_mutex_lock(&engine->lock);
  for (;;) {
    while (!engine->queue && !engine->stop) pthread_cond_wait(&engine->changed, &engine->lock);
    if (!engine->queue) break;
    Job *job = take_first(engine);
    const bool unwanted = job->cancelled || engine->stop, gone = engine->failure[0] != 0;
    if (!unwanted && !gone) {
      engine->active = job;
      engine->state.prefilling = 1;
      if (job->text) engine->state.prompt_tokens += (uint64_t)job->job.count;
    }
    pthread_mutex_unlock(&engine->lock);
    if (unwanted)
      end_job(engine, job, ENGINE_CANCELLED, NULL, NULL, 0);
    else if (gone)
      end_job(engine, job, ENGINE_FAILED, engine->failure, NULL, 0);
    else
      run_job(engine, job);
    pthread_mutex_lock(&engine->lock);
  }
  pthread_mutex_unlock(&engine->lock);
  return NULL;
}

/* ---- requests of clients */

static Status check_text(const Engine *engine, const EngineJob *job) {
  const int64_t vocabulary = engine->options.weights->config->vocabulary, max = leader_tokens_max(engine->leader);
  if (!engine->options.split) return status_set(STATUS_BAD_VALUE, "a model of images takes no text");
  if (job->count < 1) return status_set(STATUS_BAD_VALUE, "the prompt is empty");
  if (job->count > max)
    return status_set(STATUS_BAD_VALUE, "the prompt has %lld tokens, but the context has room for %lld", (long long)job->count,
                      (long long)max);
  if (job->top < -1 || job->top > ENGINE_TOP)
    return status_set(STATUS_BAD_VALUE, "%d candidates for each token: at most %d are possible", job->top, ENGINE_TOP);
  for (int64_t i = 0; i < job->count; i++) {
    if (job->ids[i] < 0 || job->ids[i] >= vocabulary)
      return status_set(STATUS_BAD_VALUE, "id %d at place %lld; the model's vocabulary has %lld tokens", (int)job->ids[i], (long long)i,
                        (long long)vocabulary);
  }
  return STATUS_OK;
}

static Status check_images(const Engine *engine, const EngineImages *images) {
  if (!engine->options.partition) return status_set(STATUS_BAD_VALUE, "a language model takes no images");
  if (images->count >= 1 && images->count <= engine->options.leader->batch_max) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "a request of %lld images: 1 to %lld are possible", (long long)images->count,
                    (long long)engine->options.leader->batch_max);
}

/* Takes the job over. */
static Status enqueue(Engine *engine, Job *job, uint64_t *ticket) {
  Status status = STATUS_OK;
  job->submitted = clock_now();
  pthread_mutex_lock(&engine->lock);
  if (engine->failure[0])
    status = status_set(STATUS_PEER, "%s", engine->failure);
  else if (engine->state.queued >= engine->options.queue_max || engine->stop)
    status = status_set(STATUS_BUSY, "%d requests are waiting already", engine->state.queued);
  if (status == STATUS_OK) {
    job->ticket = *ticket = ++engine->tickets;
    *engine->last = job;
    engine->last = &job->next;
    engine->state.queued++;
    engine->state.submitted++;
    pthread_cond_signal(&engine->changed);
  } else {
    engine->state.refused++;
  }
  pthread_mutex_unlock(&engine->lock);
  if (status != STATUS_OK) free_job(job);
  return status;
}

Status engine_submit(Engine *engine, const EngineJob *wanted, uint64_t *ticket) {
  TRY(check_text(engine, wanted));
  const size_t bytes = (size_t)wanted->count * sizeof(int32_t);
  Job *job = calloc(1, sizeof *job);
  int32_t *ids = malloc(bytes);
  if (!job || !ids) {
    free(job);
    free(ids);
    return status_set(STATUS_NO_MEMORY, "no memory for a prompt of %lld tokens", (long long)wanted->count);
  }
  memcpy(ids, wanted->ids, bytes);
  job->text = true;
  job->job = *wanted;
  job->job.ids = ids;
  Sampling *s = &job->job.sampling;
  if (s->max > leader_tokens_max(engine->leader)) s->max = leader_tokens_max(engine->leader);
  if (s->vocabulary == 0) s->vocabulary = engine->options.weights->config->vocabulary;
  return enqueue(engine, job, ticket);
}

Status engine_classify(Engine *engine, const EngineImages *wanted, uint64_t *ticket) {
  TRY(check_images(engine, wanted));
  const size_t bytes = (size_t)(wanted->count * weights_pixels(engine->options.weights)) * sizeof(float);
  Job *job = calloc(1, sizeof *job);
  float *pixels = malloc(bytes);
  if (!job || !pixels) {
    free(job);
    free(pixels);
    return status_set(STATUS_NO_MEMORY, "no memory for %lld images", (long long)wanted->count);
  }
  memcpy(pixels, wanted->pixels, bytes);
  job->images = *wanted;
  job->images.pixels = pixels;
  return enqueue(engine, job, ticket);
}

/* One that waits ends at once, by the engine's thread. */
void engine_cancel(Engine *engine, uint64_t ticket) {
  Job *found = NULL;
  pthread_mutex_lock(&engine->lock);
  for (Job **at = &engine->queue; *at && !found;) {
    if ((*at)->ticket != ticket) {
      at = &(*at)->next;
      continue;
    }
    found = *at; /* to the front: it is over as soon as the thread comes */
    *at = found->next;
    if (!*at) engine->last = at;
    found->next = engine->queue;
    if (!engine->queue) engine->last = &found->next;
    engine->queue = found;
    found->cancelled = true;
  }
  if (!found && engine->active && engine->active->ticket == ticket) engine->active->cancelled = true;
  pthread_mutex_unlock(&engine->lock);
}

/* ---- beginning and end */

Status engine_new(Engine **out, const EngineOptions *options) {
  *out = NULL;
  if (!options->split == !options->partition) return status_set(STATUS_BAD_VALUE, "an engine serves either texts or images");
  Engine *engine = calloc(1, sizeof *engine);
  if (!engine) return status_set(STATUS_NO_MEMORY, "no memory for an engine");
  engine->options = *options;
  engine->last = &engine->queue;
  pthread_mutex_init(&engine->lock, NULL);
  pthread_cond_init(&engine->changed, NULL);
  Status status = options->split ? leader_start_text(&engine->leader, options->weights, options->split, options->leader)
                                 : leader_start(&engine->leader, options->weights, options->partition, options->leader);
  if (status != STATUS_OK) {
    engine_free(engine);
    return status;
  }
  engine->state.ready = true;
  note_cluster(engine);
  *out = engine;
  return STATUS_OK;
}

/* Signals are the other threads'. */
Status engine_start(Engine *engine) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int fault = pthread_create(&engine->thread, NULL, serve, engine);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (fault != 0) return status_set(STATUS_NO_MEMORY, "cannot start the engine's thread");
  engine->running = true;
  return STATUS_OK;
}

void engine_free(Engine *engine) {
  if (!engine) return;
  pthread_mutex_lock(&engine->lock);
  engine->stop = true;
  engine->state.ready = false;
  pthread_cond_signal(&engine->changed);
  pthread_mutex_unlock(&engine->lock);
  if (engine->running) pthread_join(engine->thread, NULL);
  while (engine->queue) end_job(engine, take_first(engine), ENGINE_CANCELLED, NULL, NULL, 0);
  leader_stop(engine->leader);
  pthread_cond_destroy(&engine->changed);
  pthread_mutex_destroy(&engine->lock);
  free(engine);
}
