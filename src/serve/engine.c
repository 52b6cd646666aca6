/* The queue of a service's requests, and the thread that takes them to the cluster: see engine.h. Everything that callers and the thread
 * share is behind one lock, which is never held while the leader is called or a callback runs.
 *
 * Texts: a job waits in the queue, then runs as a sequence of the leader, several at the same time. When the cluster's devices change, all
 * that run are started again with the tokens that they have. Images: one request after another. */
#include "serve/engine.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/threads.h"
#include "serve/pace.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A request, from its submission to its on_end. */
typedef struct Job {
  struct Job *next;
  uint64_t ticket;
  bool text;
  EngineJob job;       /* ids are a copy */
  EngineImages images; /* pixels are a copy */
  bool cancelled;      /* under the lock, as the next: nobody wants it any more */
  bool enough;         /* nor more of it, but what there is is a whole text */
  double submitted, started, first;
  int64_t made; /* new tokens reported */
  int64_t shared;
  /* Of a text that runs, the engine's thread's alone: */
  int32_t *ids; /* [count + max] job.ids: the prompt, and behind it the new tokens */
  uint32_t sequence;
  int device;
  int64_t left;   /* tokens that it may still make, as they are counted in its device's pace */
  uint64_t drawn; /* random numbers that the new tokens took */
  int restarts;   /* after failures of devices, since its last token */
  /* With echo and log-probabilities: new tokens wait until those of the prompt are complete. */
  EngineToken *echo; /* [count] those of the prompt; NULL: reported, or not wanted */
  int64_t echoed;
  DecodedToken *held; /* [held_count] */
  int held_count;
  size_t held_capacity;
} Job;

struct Engine {
  EngineOptions options;
  Leader *leader;
  pthread_t thread;
  bool started;
  pthread_mutex_t lock;   /* of everything below */
  pthread_cond_t changed; /* a job has come, or the end */
  Job *queue, **last;     /* waiting, oldest first */
  Job *starting;          /* a text on its way from the one to the other, or back; NULL: none */
  Job **running;          /* [places] texts on devices; or the one request of images */
  int count, places;
  Pace pace[WIRE_NODES]; /* the thread's alone */
  int wake;              /* an eventfd: something has come, while the thread waits for devices */
  uint64_t tickets;
  bool stop;
  int groups;     /* of the bit rate that is wanted, 0: by the links; -1: as it is */
  Address *found; /* [found_count] workers; NULL: none since the last ones */
  int found_count;
  double rate;         /* requests finished a second, a moving average; 0: not known */
  char failure[512];   /* why the cluster is no more */
  EngineEnd failed_as; /* and what has become of its requests */
  EngineState state;
};

/* ---- what operators see */

/* Of keys and values in full. */
static int64_t token_bytes(const EngineOptions *options) {
  const ModelConfig *config = options->weights->config;
  return 2 * config->blocks * config_kv_width(config) * (int64_t)narrow_kind_bytes(options->weights->cache_kind);
}

/* By the engine's thread, or before it runs. */
static void note_cluster(Engine *engine) {
  const LeaderSums *sums = leader_sums(engine->leader);
  const int nodes = leader_nodes(engine->leader);
  uint64_t all = 0;
  pthread_mutex_lock(&engine->lock);
  EngineState *s = &engine->state;
  s->nodes = nodes;
  s->groups = leader_weights(engine->leader)->config->astra.groups;
  s->groups_wanted = engine->groups > 0 ? engine->groups : leader_groups(engine->leader);
  s->prefilling = leader_under_way(engine->leader);
  for (int d = 0; d < nodes; d++) all += (uint64_t)sums->last_tokens[d];
  int64_t held[WIRE_NODES] = {0};
  int texts = 0;
  s->cache_used = 0;
  for (int i = 0; i < engine->count; i++) {
    const Job *job = engine->running[i];
    if (!job->text) continue;
    texts++;
    held[job->device] += (job->job.count + job->made) * token_bytes(&engine->options);
    if (s->cache_used < held[job->device]) s->cache_used = held[job->device];
  }
  s->decoding = texts > s->prefilling ? texts - s->prefilling : 0;
  for (int d = 0; d < nodes; d++) {
    EngineDevice *device = &s->devices[d];
    const Address *address = leader_address(engine->leader, d);
    char text[ADDRESS_TEXT];
    const char *name = address ? address_text(address, text) : "here";
    if (strncmp(device->name, name, sizeof device->name - 1) != 0) { /* another worker has the place of one that was lost */
      *device = (EngineDevice){0};
      pace_restart(&engine->pace[d]);
    }
    const EngineDeviceState before = device->state;
    snprintf(device->name, sizeof device->name, "%s", name);
    if (!leader_worker(engine->leader, d, device->worker)) device->worker[0] = '\0';
    device->pid = (int)leader_pid(engine->leader, d);
    device->state = leader_is_here(engine->leader, d)      ? ENGINE_DEVICE_HERE
                    : leader_is_joining(engine->leader, d) ? ENGINE_DEVICE_JOINING
                                                           : ENGINE_DEVICE_GONE;
    device->failures += before == ENGINE_DEVICE_HERE && device->state == ENGINE_DEVICE_GONE;
    device->share = all > 0 ? (double)sums->last_tokens[d] / (double)all : 0;
    device->sum = sums->nodes[d];
    device->sequences = engine->options.split ? leader_sequences_on(engine->leader, d) : 0;
    device->decode_rate = engine->pace[d].rate;
  }
  pthread_mutex_unlock(&engine->lock);
}

void engine_state(Engine *engine, EngineState *state) {
  pthread_mutex_lock(&engine->lock);
  *state = engine->state;
  pthread_mutex_unlock(&engine->lock);
}

bool engine_has_failed(Engine *engine, char *why, size_t size) {
  pthread_mutex_lock(&engine->lock);
  const bool failed = engine->failure[0] && !engine->state.deserted;
  if (failed) snprintf(why, size, "%s", engine->failure);
  pthread_mutex_unlock(&engine->lock);
  return failed;
}

bool engine_is_deserted(Engine *engine) {
  pthread_mutex_lock(&engine->lock);
  const bool deserted = engine->state.deserted;
  pthread_mutex_unlock(&engine->lock);
  return deserted;
}

int engine_retry_seconds(Engine *engine) {
  enum { LEAST = 1, MOST = 60, RETURN = 5 /* of a worker: nobody knows */ };
  pthread_mutex_lock(&engine->lock);
  double wait = engine->rate > 0 ? ceil((double)(engine->state.queued + 1) / engine->rate) : LEAST;
  if (engine->state.deserted) wait = RETURN;
  pthread_mutex_unlock(&engine->lock);
  return wait < LEAST ? LEAST : wait > MOST ? MOST : (int)wait;
}

/* ---- the end of a request */

static void free_job(Job *job) {
  free(job->ids);
  free(job->echo);
  free(job->held);
  free((void *)job->images.pixels);
  free(job);
}

/* Reports it and frees it. */
static void end_job(Engine *engine, Job *job, EngineEnd end, const char *message, const real *logits, int decoder) {
  const double now = clock_now();
  EngineResult result = {.end = end,
                         .message = end == ENGINE_FAILED || end == ENGINE_DESERTED ? message : NULL,
                         .prompt_tokens = job->text ? job->job.count : 0,
                         .shared_tokens = job->shared,
                         .new_tokens = job->made,
                         .decoder = decoder,
                         .queued = (job->started > 0 ? job->started : now) - job->submitted,
                         .first = job->first > 0 ? job->first - job->submitted : 0,
                         .total = now - job->submitted};
  pthread_mutex_lock(&engine->lock);
  EngineState *s = &engine->state;
  const int together = engine->count;
  bool ran = false;
  for (int i = 0; i < engine->count && !ran; i++) {
    ran = engine->running[i] == job;
    if (ran) engine->running[i] = engine->running[--engine->count];
  }
  if (engine->starting == job) engine->starting = NULL;
  if (end == ENGINE_FAILED || end == ENGINE_DESERTED)
    s->failed++;
  else if (end == ENGINE_CANCELLED)
    s->cancelled++;
  else
    s->finished++;
  if (end != ENGINE_CANCELLED && ran && job->started > 0 && now > job->started) {
    const double rate = together / (now - job->started);
    engine->rate = engine->rate > 0 ? 0.8 * engine->rate + 0.2 * rate : rate;
  }
  pthread_mutex_unlock(&engine->lock);
  if (job->text)
    job->job.on_end(job->job.context, &result);
  else
    job->images.on_end(job->images.context, logits, &result);
  free_job(job);
}

static void end_failed(Engine *engine, Job *job) { end_job(engine, job, engine->failed_as, engine->failure, NULL, 0); }

/* After a failure of the leader nothing can be asked of it any more, or not until a worker is back. That it was interrupted is no failure:
 * the service ends. */
static void fail_all(Engine *engine, Status status) {
  const bool interrupted = status == STATUS_INTERRUPTED, deserted = !interrupted && leader_is_deserted(engine->leader);
  if (!interrupted) log_warning("the cluster has failed: %s%s", status_message(), deserted ? "; its workers are called again" : "");
  pthread_mutex_lock(&engine->lock);
  engine->failed_as = interrupted ? ENGINE_CANCELLED : deserted ? ENGINE_DESERTED : ENGINE_FAILED;
  engine->state.ready = false;
  engine->state.deserted = deserted;
  snprintf(engine->failure, sizeof engine->failure, "%s", status_message());
  pthread_mutex_unlock(&engine->lock);
  while (engine->count > 0) end_failed(engine, engine->running[0]);
  note_cluster(engine);
}

/* A worker is back where no device was left. */
static void serve_again(Engine *engine) {
  for (int d = 0; d < WIRE_NODES; d++) pace_restart(&engine->pace[d]);
  pthread_mutex_lock(&engine->lock);
  engine->state.deserted = false;
  engine->state.ready = !engine->stop;
  engine->failure[0] = 0;
  pthread_mutex_unlock(&engine->lock);
}

/* While nothing is asked of the leader. */
static void watch_cluster(Engine *engine) {
  const Status status = leader_watch(engine->leader);
  if (status == STATUS_BUSY) return;
  if (status != STATUS_OK) {
    fail_all(engine, status);
    return;
  }
  if (engine->failure[0]) serve_again(engine);
  note_cluster(engine);
}

/* ---- images, one request after another */

/* What fails by its own numbers, on whatever device, ends alone. */
static void fail_images(Engine *engine, Job *job, Status status) {
  char why[sizeof engine->failure];
  snprintf(why, sizeof why, "%s", status_message());
  if (status == STATUS_NUMERIC) {
    log_warning("%s", why);
    status = leader_forget(engine->leader);
  }
  if (status != STATUS_OK) {
    fail_all(engine, status);
    return;
  }
  note_cluster(engine);
  end_job(engine, job, ENGINE_FAILED, why, NULL, 0);
}

static void run_images(Engine *engine, Job *job) {
  LeaderAnswer answer;
  Status status = leader_submit(engine->leader, job->images.pixels, job->images.count);
  if (status == STATUS_OK) status = leader_collect(engine->leader, &answer);
  if (status != STATUS_OK) {
    fail_images(engine, job, status);
    return;
  }
  pthread_mutex_lock(&engine->lock);
  engine->state.images += (uint64_t)job->images.count;
  pthread_mutex_unlock(&engine->lock);
  note_cluster(engine);
  end_job(engine, job, ENGINE_LENGTH, NULL, answer.logits, 0);
}

/* ---- texts: sequences on devices */

enum { RESTARTS_MAX = 4 };

/* The device that would be done first with what it has: tokens left over its rate. -1: none has room. */
static int choose_device(Engine *engine, int64_t more) {
  double best = INFINITY, fastest = 0;
  int chosen = -1;
  for (int d = 0; d < leader_nodes(engine->leader); d++) fastest = fmax(fastest, engine->pace[d].speed);
  for (int d = leader_nodes(engine->leader) - 1; d >= 0; d--) {
    const double seconds = pace_seconds(&engine->pace[d], more, fastest);
    if (!leader_is_here(engine->leader, d) || seconds >= best) continue;
    if (leader_sequences_on(engine->leader, d) >= leader_setup(engine->leader)->sequences) continue;
    best = seconds;
    chosen = d;
  }
  return chosen;
}

/* Prompt and new tokens so far, as one. BUSY: not now. */
static Status start_sequence(Engine *engine, Job *job) {
  SequenceOptions options = {
      .sampling = job->job.sampling, .top = job->job.top, .echo = job->echo != NULL, .speculation = engine->options.speculation};
  Sampling *sampling = &options.sampling;
  sampling->max -= job->made;
  sampling->made += job->made;
  if (sampling->max < 1) sampling->max = 1; /* of an echo alone: it is not reported */
  if (job->made > 0) sampling->drawn = job->drawn;
  const int device = choose_device(engine, sampling->max);
  if (device < 0) return status_set(STATUS_BUSY, "no device has room");
  TRY(leader_sequence_start(engine->leader, job->ids, job->job.count + job->made, &options, device, &job->sequence));
  job->device = device;
  job->left = sampling->max;
  engine->pace[device].left += job->left;
  for (int d = 0; d < leader_nodes(engine->leader); d++) engine->pace[d].before = 0;
  return STATUS_OK;
}

static Job *find_running(Engine *engine, uint32_t sequence) {
  for (int i = 0; i < engine->count; i++) {
    if (engine->running[i]->sequence == sequence) return engine->running[i];
  }
  return NULL;
}

static EngineToken token_of(const DecodedToken *decoded) {
  EngineToken token = {.id = decoded->id,
                       .prompt = decoded->end == SEQUENCE_PROMPT,
                       .end = decoded->end == SEQUENCE_END,
                       .logprob = decoded->logprob,
                       .top_count = decoded->top_count};
  for (int i = 0; i < token.top_count; i++) token.top[i] = (EngineCandidate){decoded->top[i].id, decoded->top[i].logprob};
  return token;
}

static void report_token(Engine *engine, Job *job, const DecodedToken *decoded) {
  const EngineToken token = token_of(decoded);
  if (job->made == 0) job->first = clock_now();
  job->ids[job->job.count + job->made++] = decoded->id;
  job->drawn = decoded->drawn;
  job->restarts = 0;
  pthread_mutex_lock(&engine->lock);
  engine->state.new_tokens++;
  engine->state.drafts += (uint64_t)decoded->drafts;
  engine->state.drafted += decoded->drafted;
  engine->state.devices[job->device].tokens_decoded++;
  pthread_mutex_unlock(&engine->lock);
  job->job.on_token(job->job.context, &token);
}

/* It is no new token, but one that was predicted: clients that rate texts count on a log-probability for each of those. */
static void report_end_token(const Job *job, const DecodedToken *decoded) {
  const EngineToken token = token_of(decoded);
  if (job->job.top >= 0) job->job.on_token(job->job.context, &token);
}

/* The lock is held. Whether it is to end now, and as what. */
static bool is_unwanted(const Engine *engine, const Job *job, EngineEnd *end) {
  *end = job->enough ? ENGINE_STOP : ENGINE_CANCELLED;
  return job->enough || job->cancelled || engine->stop;
}

static bool ends_early(Engine *engine, const Job *job, EngineEnd *end) {
  pthread_mutex_lock(&engine->lock);
  const bool ends = is_unwanted(engine, job, end);
  pthread_mutex_unlock(&engine->lock);
  return ends;
}

/* Of a text that ends before it has made as many tokens as its device was to be busy with. */
static void forget_left(Engine *engine, Job *job) {
  engine->pace[job->device].left -= job->left;
  job->left = 0;
}

static void end_unwanted(Engine *engine) {
  for (int i = 0; i < engine->count;) {
    Job *job = engine->running[i];
    EngineEnd end;
    if (!ends_early(engine, job, &end)) {
      i++;
      continue;
    }
    leader_sequence_stop(engine->leader, job->sequence);
    forget_left(engine, job);
    end_job(engine, job, end, NULL, NULL, job->device);
  }
}

/* Prompts are computed by all devices. */
static bool has_prompt_under_way(const Engine *engine) {
  for (int i = 0; i < engine->count; i++)
    if (engine->running[i]->made == 0) return true;
  return false;
}

static void take_new(Engine *engine, Job *job, const DecodedToken *token) {
  static const EngineEnd ends[SEQUENCE_END_COUNT] = {[SEQUENCE_LENGTH] = ENGINE_LENGTH,
                                                     [SEQUENCE_END] = ENGINE_STOP,
                                                     [SEQUENCE_CONTEXT] = ENGINE_CONTEXT,
                                                     [SEQUENCE_NUMERIC] = ENGINE_FAILED};
  const int here = leader_sequences_on(engine->leader, job->device); /* without this one if it has ended */
  pace_note(&engine->pace[job->device], clock_now(), here > 0 ? here : 1, !has_prompt_under_way(engine));
  job->left--;
  if (job->made == 0) {
    job->shared = token->shared;
    pthread_mutex_lock(&engine->lock);
    engine->state.shared_tokens += (uint64_t)token->shared;
    pthread_mutex_unlock(&engine->lock);
  }
  const bool wanted = token->end != SEQUENCE_NUMERIC && job->made < job->job.sampling.max;
  if (wanted && token->end == SEQUENCE_END)
    report_end_token(job, token);
  else if (wanted)
    report_token(engine, job, token);
  if (token->end == SEQUENCE_GOES_ON) return;
  forget_left(engine, job);
  const bool whole = job->job.sampling.max == 0 && token->end != SEQUENCE_NUMERIC; /* an echo alone */
  static const char why[] =
      "no device can compute this text: the model's numbers are not finite, or it is too long for datagrams (the log has more)";
  end_job(engine, job, whole ? ENGINE_LENGTH : ends[token->end], why, NULL, job->device);
}

/* A token of the prompt, of those that are not complete; or one that waits for them. */
static Status take_echo(Job *job, const DecodedToken *token) {
  if (token->end == SEQUENCE_PROMPT) {
    job->echo[token->number - 1] = token_of(token);
    job->echoed++;
    return STATUS_OK;
  }
  TRY(ARRAY_RESERVE(job->held, (size_t)job->held_count, 1, job->held_capacity, "tokens"));
  job->held[job->held_count++] = *token;
  return STATUS_OK;
}

/* Reports the prompt when it is complete, and what waited for it. */
static void finish_echo(Engine *engine, Job *job) {
  const uint32_t sequence = job->sequence;
  if (job->echoed < job->job.count) return;
  for (int64_t i = 0; i < job->job.count; i++) job->job.on_token(job->job.context, &job->echo[i]);
  free(job->echo);
  job->echo = NULL;
  DecodedToken *held = job->held;
  const int count = job->held_count;
  job->held = NULL;
  job->held_count = 0, job->held_capacity = 0;
  for (int i = 0; i < count && (job = find_running(engine, sequence)); i++) {
    engine->pace[job->device].before = 0; /* it did not come now */
    take_new(engine, job, &held[i]);
  }
  free(held);
}

static void take_token(void *context, const DecodedToken *token) {
  Engine *engine = context;
  Job *job = find_running(engine, token->sequence);
  EngineEnd end;
  if (!job) return;
  if (ends_early(engine, job, &end)) {
    end_unwanted(engine);
  } else if (job->echo && token->end != SEQUENCE_NUMERIC) {
    if (take_echo(job, token) == STATUS_OK) {
      finish_echo(engine, job);
      return;
    }
    leader_sequence_stop(engine->leader, job->sequence);
    forget_left(engine, job);
    end_job(engine, job, ENGINE_FAILED, status_message(), NULL, 0);
  } else {
    take_new(engine, job, token);
  }
}

/* The lock is held. */
static void push_front(Engine *engine, Job *job) {
  job->next = engine->queue;
  if (!engine->queue) engine->last = &job->next;
  engine->queue = job;
  engine->state.queued++;
}

/* The devices have changed: all that run wait again, before those that wait already, oldest first. A text at which devices fail each time
 * would go on for ever; devices that come back or are added count for nothing. */
static void restart_all(Engine *engine, bool failed) {
  for (int i = 0; failed && i < engine->count;) {
    if (engine->running[i]->restarts++ < RESTARTS_MAX)
      i++;
    else
      end_job(engine, engine->running[i], ENGINE_FAILED, "the devices that computed it failed again and again", NULL, 0);
  }
  for (int d = 0; d < WIRE_NODES; d++) pace_restart(&engine->pace[d]);
  pthread_mutex_lock(&engine->lock);
  while (engine->count > 0) {
    int newest = 0;
    for (int i = 1; i < engine->count; i++) newest = engine->running[i]->ticket > engine->running[newest]->ticket ? i : newest;
    Job *job = engine->running[newest];
    engine->running[newest] = engine->running[--engine->count];
    job->sequence = 0;
    job->echoed = 1;
    job->held_count = 0;
    push_front(engine, job);
  }
  pthread_mutex_unlock(&engine->lock);
}

/* Waits for tokens and reports them. */
static void serve_texts(Engine *engine) {
  SequenceLoss lost;
  end_unwanted(engine);
  const Status status = leader_sequences_poll(engine->leader, engine->wake, 1, take_token, engine, &lost);
  if (status != STATUS_OK) {
    fail_all(engine, status);
    return;
  }
  if (lost != SEQUENCES_KEPT) restart_all(engine, lost == SEQUENCES_FAILED);
  note_cluster(engine);
}

static void echo_prompt(const Job *job) {
  for (int64_t i = 0; i < job->job.count; i++)
    job->job.on_token(job->job.context, &(EngineToken){.id = job->job.ids[i], .prompt = true, .logprob = NAN});
}

/* Takes a job that has been taken from the queue to the devices; false: it has to wait for a place. */
static bool start_text(Engine *engine, Job *job) {
  if (job->started <= 0 && job->job.sampling.max == 0 && !job->echo) {
    job->started = clock_now();
    pthread_mutex_lock(&engine->lock);
    engine->state.prompt_tokens += (uint64_t)job->job.count;
    pthread_mutex_unlock(&engine->lock);
    if (job->job.echo) echo_prompt(job);
    end_job(engine, job, ENGINE_LENGTH, NULL, NULL, 0);
    return true;
  }
  Status status = start_sequence(engine, job);
  if (status == STATUS_BUSY) return false;
  pthread_mutex_lock(&engine->lock);
  engine->starting = NULL;
  engine->running[engine->count++] = job;
  if (job->started <= 0) engine->state.prompt_tokens += (uint64_t)job->job.count;
  pthread_mutex_unlock(&engine->lock);
  if (job->started <= 0 && job->job.echo && !job->echo) echo_prompt(job);
  if (job->started <= 0) job->started = clock_now();
  if (status != STATUS_OK) fail_all(engine, status);
  return true;
}

/* ---- the thread */

/* The lock is held. Takes one out of the queue. */
static Job *take_at(Engine *engine, Job **at) {
  Job *job = *at;
  *at = job->next;
  if (!*at) engine->last = at;
  engine->state.queued--;
  return job;
}

static void put_back(Engine *engine, Job *job) {
  pthread_mutex_lock(&engine->lock);
  engine->starting = NULL;
  push_front(engine, job);
  pthread_mutex_unlock(&engine->lock);
}

/* Takes up one that is to end now, which needs no place, else the oldest that waits; false: there is none, or no place for it. */
static bool take_up(Engine *engine) {
  pthread_mutex_lock(&engine->lock);
  EngineEnd end = ENGINE_CANCELLED;
  Job **at = &engine->queue;
  while (*at && !is_unwanted(engine, *at, &end)) at = &(*at)->next;
  const bool unwanted = *at != NULL, gone = engine->failure[0] != 0;
  if (!unwanted) at = &engine->queue;
  Job *job = *at ? take_at(engine, at) : NULL;
  const bool taken = job && !unwanted && !gone;
  if (taken && !job->text) engine->running[engine->count++] = job;
  if (taken && job->text) engine->starting = job;
  pthread_mutex_unlock(&engine->lock);
  if (!job) return false;
  if (unwanted) {
    end_job(engine, job, end, NULL, NULL, 0);
  } else if (gone) {
    end_failed(engine, job);
  } else if (!job->text) {
    job->started = clock_now();
    run_images(engine, job);
  } else if (engine->count >= engine->places || !start_text(engine, job)) {
    put_back(engine, job);
    return false;
  }
  return true;
}

static void change_groups(Engine *engine) {
  pthread_mutex_lock(&engine->lock);
  const int groups = engine->groups;
  engine->groups = -1;
  pthread_mutex_unlock(&engine->lock);
  if (groups >= 0) leader_use_groups(engine->leader, groups);
}

static void take_found(Engine *engine) {
  pthread_mutex_lock(&engine->lock);
  Address *found = engine->found;
  const int count = engine->found_count;
  engine->found = NULL;
  pthread_mutex_unlock(&engine->lock);
  if (found) leader_add_workers(engine->leader, found, count);
  free(found);
}

/* For the leader: answers that are to come, and sequences that nobody wants any more, of which devices have to be told. */
static bool leader_has_work(const Engine *engine) {
  return leader_under_way(engine->leader) > 0 || leader_sequences_held(engine->leader) > 0;
}

/* Until the end, or until there is something to do; meanwhile devices may leave and come back. false: the end. */
static bool wait_for_work(Engine *engine) {
  const double watch_seconds = 0.25;
  uint64_t woken;
  pthread_mutex_lock(&engine->lock);
  while (!engine->queue && engine->count == 0 && (!leader_has_work(engine) || engine->failure[0]) && !engine->stop) {
    if (threads_wait(&engine->changed, &engine->lock, clock_now() + watch_seconds) || engine->stop) continue;
    if (engine->failure[0] && !engine->state.deserted) continue;
    pthread_mutex_unlock(&engine->lock);
    change_groups(engine);
    take_found(engine);
    watch_cluster(engine);
    pthread_mutex_lock(&engine->lock);
  }
  const bool over = engine->stop && !engine->queue && engine->count == 0;
  pthread_mutex_unlock(&engine->lock);
  (void)!read(engine->wake, &woken, sizeof woken); /* what has come until here is seen below */
  return !over;
}

static void *serve(void *context) {
  Engine *engine = context;
  while (wait_for_work(engine)) {
    change_groups(engine);
    take_found(engine);
    while (take_up(engine)) continue;
    if (engine->options.split && !engine->failure[0]) serve_texts(engine);
  }
  return NULL;
}

/* The lock is held. */
static void wake(Engine *engine) {
  pthread_cond_signal(&engine->changed);
  (void)!write(engine->wake, &(uint64_t){1}, sizeof(uint64_t));
}

/* ---- requests of clients */

static Status check_text(const Engine *engine, const EngineJob *job) {
  const int64_t vocabulary = engine->options.weights->config->vocabulary, max = leader_tokens_max(engine->leader);
  TRY(leader_check_takes(engine->leader, true));
  if (job->count < 1) return status_set(STATUS_BAD_VALUE, "the prompt is empty");
  if (job->count > max)
    return status_set(STATUS_BAD_VALUE, "the prompt has %lld tokens, but the context has room for %lld", (long long)job->count,
                      (long long)max);
  if (job->top < -1 || job->top > ENGINE_TOP)
    return status_set(STATUS_BAD_VALUE, "%d candidates for each token: at most %d are possible", job->top, ENGINE_TOP);
  TRY(leader_check_ids(job->ids, job->count, 0, vocabulary));
  for (int i = 0; i < job->sampling.biases; i++) {
    if (job->sampling.bias[i].id < 0 || job->sampling.bias[i].id >= vocabulary)
      return status_set(STATUS_BAD_VALUE, "a bias for id %d; the model's vocabulary has %lld tokens", (int)job->sampling.bias[i].id,
                        (long long)vocabulary);
  }
  return STATUS_OK;
}

static Status check_images(const Engine *engine, const EngineImages *images) {
  TRY(leader_check_takes(engine->leader, false));
  if (images->count >= 1 && images->count <= engine->options.leader->batch_max) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "a request of %lld images: 1 to %lld are possible", (long long)images->count,
                    (long long)engine->options.leader->batch_max);
}

/* Takes the job over. more: the length of the queue, which is a limit for new requests, does not matter. let_in: of no new request. */
static Status enqueue(Engine *engine, Job *job, bool more, bool let_in, uint64_t *ticket) {
  Status status = STATUS_OK;
  job->submitted = clock_now();
  pthread_mutex_lock(&engine->lock);
  if (engine->failure[0])
    status = status_set(engine->state.deserted ? STATUS_BUSY : STATUS_PEER, "%s", engine->failure);
  else if ((engine->state.queued >= engine->options.queue_max && !more) || engine->stop)
    status = status_set(STATUS_BUSY, "%d request%s waiting already", engine->state.queued, engine->state.queued == 1 ? " is" : "s are");
  if (status == STATUS_OK) {
    job->ticket = *ticket = ++engine->tickets;
    *engine->last = job;
    engine->last = &job->next;
    engine->state.queued++;
    engine->state.submitted++;
    wake(engine);
  } else if (!let_in) {
    engine->state.refused++;
  }
  pthread_mutex_unlock(&engine->lock);
  if (status != STATUS_OK) free_job(job);
  return status;
}

static bool is_full(Engine *engine) {
  pthread_mutex_lock(&engine->lock);
  const bool full = engine->state.queued >= engine->options.queue_max;
  pthread_mutex_unlock(&engine->lock);
  return full;
}

Status engine_submit(Engine *engine, const EngineJob *wanted, uint64_t *ticket) {
  TRY(check_text(engine, wanted));
  if (wanted->let_in && !wanted->more && is_full(engine)) /* it asks again at each of its tokens: the prompt is not copied for that */
    return status_set(STATUS_BUSY, "the queue is full");
  const int64_t max = leader_tokens_max(engine->leader), room = wanted->sampling.max < max ? wanted->sampling.max : max;
  Job *job = calloc(1, sizeof *job);
  int32_t *ids = malloc((size_t)(wanted->count + room) * sizeof *ids);
  if (!job || !ids) {
    free(job);
    free(ids);
    return status_set(STATUS_NO_MEMORY, "no memory for a prompt of %lld tokens", (long long)wanted->count);
  }
  memcpy(ids, wanted->ids, (size_t)wanted->count * sizeof *ids);
  job->text = true;
  job->job = *wanted;
  job->job.ids = job->ids = ids;
  Sampling *s = &job->job.sampling;
  s->max = room;
  if (job->job.echo && job->job.top >= 0) {
    job->echo = calloc((size_t)wanted->count, sizeof *job->echo);
    if (!job->echo) {
      free_job(job);
      return status_set(STATUS_NO_MEMORY, "no memory for a prompt of %lld tokens", (long long)wanted->count);
    }
    job->echo[0] = (EngineToken){.id = ids[0], .prompt = true, .logprob = NAN};
    job->echoed = 1;
  }
  if (s->vocabulary == 0) s->vocabulary = engine->options.weights->config->vocabulary;
  return enqueue(engine, job, wanted->more, wanted->let_in, ticket);
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
  return enqueue(engine, job, wanted->more, wanted->more, ticket);
}

/* The lock is held. NULL: it is over. */
static Job *find_job(const Engine *engine, uint64_t ticket) {
  for (Job *job = engine->queue; job; job = job->next)
    if (job->ticket == ticket) return job;
  for (int i = 0; i < engine->count; i++)
    if (engine->running[i]->ticket == ticket) return engine->running[i];
  return engine->starting && engine->starting->ticket == ticket ? engine->starting : NULL;
}

static void end_soon(Engine *engine, uint64_t ticket, bool enough) {
  pthread_mutex_lock(&engine->lock);
  Job *job = find_job(engine, ticket);
  if (job) *(enough ? &job->enough : &job->cancelled) = true;
  wake(engine);
  pthread_mutex_unlock(&engine->lock);
}

void engine_finish(Engine *engine, uint64_t ticket) { end_soon(engine, ticket, true); }

void engine_cancel(Engine *engine, uint64_t ticket) { end_soon(engine, ticket, false); }

Status engine_use_groups(Engine *engine, int groups) {
  const ModelConfig *config = engine->options.weights->config;
  char text[CONFIG_RATES_TEXT];
  bool known = groups == 0;
  if (config_rates(config) < 2) return status_set(STATUS_BAD_VALUE, "the model has one bit rate");
  for (int r = 0; r < config_rates(config); r++) known |= config_rate_groups(config, r) == groups;
  if (!known)
    return status_set(STATUS_BAD_VALUE, "%d group%s: the model has bit rates of %s", groups, text_plural(groups),
                      config_rates_text(config, text));
  pthread_mutex_lock(&engine->lock);
  engine->groups = groups;
  engine->state.follows = groups == 0;
  if (groups > 0) engine->state.groups_wanted = groups;
  pthread_mutex_unlock(&engine->lock);
  return STATUS_OK;
}

void engine_add_workers(Engine *engine, const Address *found, int count) {
  Address *copy = count > 0 ? malloc((size_t)count * sizeof *copy) : NULL;
  if (!copy) return; /* they will be found again */
  memcpy(copy, found, (size_t)count * sizeof *copy);
  pthread_mutex_lock(&engine->lock);
  free(engine->found);
  engine->found = copy;
  engine->found_count = count;
  pthread_mutex_unlock(&engine->lock);
}

/* ---- beginning and end */

static const double MAX_CACHE = 0x1p60; /* bytes, as of --cache-memory: where the system does not say what is available */

/* Sequences that a device has memory for, each as long as the longest, beside the one whose prompt it computes: its keys and values lie in
 * a cache of their own (node.c) until they are in pages. */
static int sequences_each(const EngineOptions *options) {
  const int64_t tokens = options->leader->tokens_max ? options->leader->tokens_max : options->weights->config->context;
  const int64_t each = tokens * token_bytes(options);
  const ClusterOptions *cluster = options->leader->cluster;
  const int here = cluster ? cluster->local : options->split->nodes; /* that share this machine's memory */
  int64_t bytes = options->cache_bytes;
  if (bytes <= 0) bytes = (int64_t)fmin(memory_available() / 4 / (here > 0 ? here : 1), MAX_CACHE);
  const int64_t max = bytes / each - 1, wanted = options->sequences_max < SETUP_SEQUENCES ? options->sequences_max : SETUP_SEQUENCES;
  return max < 1 || wanted < 1 ? 1 : (int)(max < wanted ? max : wanted);
}

Status engine_new(Engine **out, const EngineOptions *options) {
  *out = NULL;
  if (!options->split == !options->partition) return status_set(STATUS_BAD_VALUE, "an engine serves either texts or images");
  Engine *engine = calloc(1, sizeof *engine);
  if (!engine) return status_no_memory(NULL, "an engine");
  engine->options = *options;
  engine->last = &engine->queue;
  engine->groups = -1;
  engine->places = options->sequences_max > 0 ? options->sequences_max : 1;
  engine->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  pthread_mutex_init(&engine->lock, NULL);
  threads_condition_init(&engine->changed);
  LeaderOptions leader = *options->leader;
  Status status = STATUS_OK;
  engine->running = calloc((size_t)engine->places, sizeof(Job *));
  if (!engine->running || engine->wake < 0) status = status_set(STATUS_NO_MEMORY, "no memory for %d sequences", engine->places);
  if (status == STATUS_OK && options->split) {
    leader.sequences = sequences_each(options);
    status = leader_start_text(&engine->leader, options->weights, options->split, &leader);
  } else if (status == STATUS_OK) {
    status = leader_start(&engine->leader, options->weights, options->partition, &leader);
  }
  if (status != STATUS_OK) {
    engine_free(engine);
    return status;
  }
  engine->state.ready = true;
  engine->state.follows = options->leader->adapt_rate;
  if (options->split) engine->state.cache_bytes = leader.sequences * leader_tokens_max(engine->leader) * token_bytes(options);
  note_cluster(engine);
  *out = engine;
  return STATUS_OK;
}

Status engine_start(Engine *engine) {
  if (threads_spawn(&engine->thread, serve, engine) != 0) return status_set(STATUS_NO_MEMORY, "cannot start the engine's thread");
  engine->started = true;
  return STATUS_OK;
}

void engine_free(Engine *engine) {
  if (!engine) return;
  pthread_mutex_lock(&engine->lock);
  engine->stop = true;
  engine->state.ready = false;
  wake(engine);
  pthread_mutex_unlock(&engine->lock);
  if (engine->started) pthread_join(engine->thread, NULL);
  while (engine->queue) end_job(engine, take_at(engine, &engine->queue), ENGINE_CANCELLED, NULL, NULL, 0);
  leader_stop(engine->leader);
  if (engine->wake >= 0) close(engine->wake);
  free(engine->found);
  free(engine->running);
  pthread_cond_destroy(&engine->changed);
  pthread_mutex_destroy(&engine->lock);
  free(engine);
}
