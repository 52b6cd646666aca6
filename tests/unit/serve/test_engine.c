/* The engine on real processes: texts are those that the leader generates, in whatever order clients ask; a full queue refuses, a cancel
 * ends what waits and what runs, each request ends exactly once. */
#include "base/clock.h"
#include "serve/engine.c" /* steps of the thread, one by one */
#include "unit/infer/fake_worker.h"
#include "unit/infer/sample_fixture.h"
#include "unit/infer/sample_text.h"
#include <float.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum { GROUPS = 4, ENTRIES = 50, PROMPT = 9, NEW = 12, NODES = 3, JOBS = 6, MOST = 64 };
static const double MOST_SECONDS = 30;

typedef struct Fixture {
  SampleFixture base;
  TokenSplit split;
  Partition partition; /* of classify_two, to be released behind the engine */
  LeaderOptions leader;
  Engine *engine;
  SpeculationMode speculation;
} Fixture;

/* What a client has got. */
typedef struct Client {
  pthread_mutex_t lock;
  int32_t ids[MOST];
  double loss; /* of the prompt's tokens, their log-probabilities taken away */
  bool ordered;
  EngineToken end_token;
  int count, prompt, ends;
  EngineResult result;
  char message[256];
  real logits[64];
  bool held;        /* waits behind its third token until it is let go */
  bool waits;       /* does so now, or has done */
  int kills, after; /* a process that is killed behind so many tokens; 0: none */
} Client;

/* On the engine's thread, which does nothing else meanwhile. */
static void await_go(Client *client) {
  const double start = clock_now();
  for (bool held = true; held && clock_now() - start < MOST_SECONDS; usleep(1000)) {
    pthread_mutex_lock(&client->lock);
    held = client->held;
    client->waits |= held;
    pthread_mutex_unlock(&client->lock);
  }
}

static void let_go(Client *client) {
  pthread_mutex_lock(&client->lock);
  client->held = false;
  pthread_mutex_unlock(&client->lock);
}

static void keep_token(void *context, const EngineToken *token) {
  Client *client = context;
  if (client->count == 3) await_go(client);
  if (client->kills && client->count == client->after) kill(client->kills, SIGKILL);
  pthread_mutex_lock(&client->lock);
  assert_int_equal(client->ends, 0);
  if (token->prompt) {
    client->ordered = client->count == 0 && (client->prompt > 0) == !isnan(token->logprob);
    if (client->prompt++ > 0 && token->top_count > 0) {
      client->loss -= (double)token->logprob;
      assert_true(token->top[0].logprob >= token->logprob);
    }
  }
  if (token->end) client->end_token = *token;
  if (!token->prompt && !token->end && client->count < MOST) client->ids[client->count++] = token->id;
  pthread_mutex_unlock(&client->lock);
}

static void take_end(void *context, const EngineResult *result) {
  Client *client = context;
  pthread_mutex_lock(&client->lock);
  client->result = *result;
  if (result->message) snprintf(client->message, sizeof client->message, "%s", result->message);
  client->ends++;
  pthread_mutex_unlock(&client->lock);
}

static void take_images(void *context, const real *logits, const EngineResult *result) {
  Client *client = context;
  if (logits) memcpy(client->logits, logits, 2 * 7 * sizeof(real));
  take_end(context, result);
}

static void clients_init(Client *clients, int count) {
  for (int i = 0; i < count; i++) {
    clients[i] = (Client){.count = 0};
    pthread_mutex_init(&clients[i].lock, NULL);
  }
}

/* Until the engine's thread waits for it: not before, or what the engine is told meanwhile comes first. */
static void await_held(Client *client) {
  const double start = clock_now();
  for (bool waits = false; !waits; usleep(1000)) {
    pthread_mutex_lock(&client->lock);
    waits = client->waits;
    pthread_mutex_unlock(&client->lock);
    if (clock_now() - start > MOST_SECONDS) fail_msg("a text does not come to its fourth token");
  }
}

static bool is_over(Client *client) {
  pthread_mutex_lock(&client->lock);
  bool over = client->ends > 0;
  pthread_mutex_unlock(&client->lock);
  return over;
}

static void await_end(Client *client) {
  const double start = clock_now();
  while (!is_over(client)) {
    if (clock_now() - start > MOST_SECONDS) fail_msg("a request does not end");
    usleep(1000);
  }
}

/* What clients have been told, the engine notes a moment later; and a device that is killed takes a moment to go. gone: -1: none. */
static void await_idle(Engine *engine, int gone, EngineState *seen) {
  const double start = clock_now();
  for (bool idle = false; !idle; usleep(1000)) {
    engine_state(engine, seen);
    idle = seen->queued + seen->prefilling + seen->decoding == 0 && seen->cache_used == 0;
    idle = idle && (gone < 0 || seen->devices[gone].state == ENGINE_DEVICE_GONE);
    if (clock_now() - start > MOST_SECONDS) fail_msg("an engine without requests does not come to rest");
  }
}

static void open_fixture(Fixture *f, const char *preset) {
  ModelConfig config = {0};
  *f = (Fixture){.leader = {.batch_max = 2, .timeout = 20, .threads = 1}};
  assert_int_equal(sample_config(&config, preset, GROUPS, ENTRIES, 4, strcmp(preset, "tiny") ? CLASS_NONE : CLASS_DISTRIBUTED), STATUS_OK);
  sample_fixture_open(&f->base, &config);
}

static void start_text_on(Fixture *f, int nodes, int queue_max) {
  assert_int_equal(token_split_init(&f->split, nodes, NULL), STATUS_OK);
  const EngineOptions options = {.weights = &f->base.weights,
                                 .split = &f->split,
                                 .leader = &f->leader,
                                 .queue_max = queue_max,
                                 .sequences_max = 6,
                                 .speculation = f->speculation};
  if (engine_new(&f->engine, &options) != STATUS_OK) fail_msg("%s", status_message());
}

static void start_texts(Fixture *f, int queue_max) { start_text_on(f, NODES, queue_max); }

static void close_fixture(Fixture *f) {
  engine_free(f->engine);
  sample_fixture_no_children();
  sample_fixture_close(&f->base);
}

static EngineJob job_of(const int32_t *ids, Client *client) {
  return (EngineJob){.ids = ids,
                     .count = PROMPT,
                     .sampling = {.max = NEW, .top_p = 1},
                     .top = -1,
                     .on_token = keep_token,
                     .on_end = take_end,
                     .context = client};
}

/* What one leader by itself makes of each prompt. */
static void expect(Fixture *f, int32_t ids[JOBS][PROMPT], int32_t expected[JOBS][NEW]) {
  Leader *leader;
  assert_int_equal(token_split_init(&f->split, NODES, NULL), STATUS_OK);
  if (leader_start_text(&leader, &f->base.weights, &f->split, &f->leader) != STATUS_OK) fail_msg("%s", status_message());
  for (int j = 0; j < JOBS; j++) {
    const Sampling sampling = {.max = NEW, .top_p = 1, .vocabulary = f->base.weights.config->vocabulary};
    LeaderAnswer answer;
    bool more = true;
    sample_ids(f->base.weights.config, (uint64_t)(20 + j), PROMPT, ids[j]);
    assert_int_equal(leader_text_prompt(leader, ids[j], PROMPT, &sampling), STATUS_OK);
    for (int i = 0; more && i <= NEW; i++) {
      int32_t id;
      assert_int_equal(leader_text_next(leader, &id, &more), STATUS_OK);
      if (more) expected[j][i] = id;
    }
    assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  }
  leader_stop(leader);
}

/* ---- */

static void texts_are_the_leaders(void **state) {
  Fixture f;
  Client clients[JOBS];
  int32_t ids[JOBS][PROMPT], expected[JOBS][NEW];
  EngineState seen;
  (void)state;
  open_fixture(&f, "tiny-gpt2");
  expect(&f, ids, expected);
  start_texts(&f, JOBS);
  clients_init(clients, JOBS);
  for (int j = 0; j < JOBS; j++) {
    uint64_t ticket;
    EngineJob job = job_of(ids[j], &clients[j]);
    job.echo = j == 1;
    job.sampling.ends = j == 2;
    job.sampling.end[0] = expected[2][5]; /* ends at its first occurrence */
    job.top = j == 2 ? 2 : -1;
    assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_OK);
    assert_int_equal(ticket, j + 1);
    if (j == 2) assert_int_equal(engine_start(f.engine), STATUS_OK);
  }
  for (int j = 0; j < JOBS; j++) {
    int count = NEW;
    await_end(&clients[j]);
    for (int i = 0; j == 2 && i < NEW && count == NEW; i++) count = expected[2][i] == expected[2][5] ? i : NEW;
    assert_int_equal(clients[j].ends, 1);
    assert_int_equal(clients[j].result.end, j == 2 ? ENGINE_STOP : ENGINE_LENGTH);
    assert_int_equal(clients[j].count, count);
    assert_memory_equal(clients[j].ids, expected[j], (size_t)count * sizeof(int32_t));
    assert_int_equal(clients[j].prompt, j == 1 ? PROMPT : 0);
    assert_int_equal(clients[j].end_token.end, j == 2);
    assert_int_equal(clients[j].result.prompt_tokens, PROMPT);
    assert_int_equal(clients[j].result.new_tokens, count);
    assert_true(clients[j].result.first > 0 && clients[j].result.total >= clients[j].result.first);
  }
  assert_int_equal(clients[2].end_token.id, expected[2][5]); /* greedy: its own probability is the largest */
  assert_true(clients[2].end_token.top_count == 2 && clients[2].end_token.logprob == clients[2].end_token.top[0].logprob);
  await_idle(f.engine, -1, &seen);
  assert_true(seen.ready);
  assert_int_equal(seen.nodes, NODES);
  assert_int_equal(seen.submitted, JOBS);
  assert_int_equal(seen.finished, JOBS);
  assert_int_equal(seen.prompt_tokens, JOBS * PROMPT);
  assert_true(seen.shared_tokens == 0 && seen.cache_bytes > 0);
  for (int d = 0; d < NODES; d++) {
    assert_true(seen.devices[d].state == ENGINE_DEVICE_HERE && seen.devices[d].sum.elapsed > 0);
    assert_int_equal(f.engine->pace[d].left, 0); /* one text had an end token */
  }
  close_fixture(&f);
}

typedef struct Ending {
  Engine *engine;
  Client *client;
  pthread_t thread;
} Ending;

/* When engine_free has begun, which waits for the client. */
static void *let_go_at_the_end(void *context) {
  const Ending *ending = context;
  EngineState seen = {.ready = true};
  for (const double start = clock_now(); seen.ready && clock_now() - start < MOST_SECONDS; usleep(1000))
    engine_state(ending->engine, &seen);
  let_go(ending->client);
  return NULL;
}

static void limits_are_kept(void **state) {
  Fixture f;
  Client clients[5];
  int32_t ids[PROMPT];
  uint64_t first, second, ticket;
  EngineState seen;
  (void)state;
  open_fixture(&f, "tiny-gpt2");
  sample_ids(f.base.weights.config, 1, PROMPT, ids);
  start_texts(&f, 2);
  clients_init(clients, 5);
  EngineJob job = job_of(ids, &clients[0]);
  job.count = 0;
  assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_BAD_VALUE);
  job.count = f.base.weights.config->context + 1;
  assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_BAD_VALUE);
  job.count = PROMPT;
  ids[3] = (int32_t)f.base.weights.config->vocabulary;
  assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_BAD_VALUE);
  ids[3] = 3;
  job.sampling.max = 1000; /* until the context is full */
  clients[0].held = true;
  assert_int_equal(engine_submit(f.engine, &job, &first), STATUS_OK);
  job = job_of(ids, &clients[1]);
  assert_int_equal(engine_submit(f.engine, &job, &second), STATUS_OK);
  job = job_of(ids, &clients[2]);
  assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_BUSY);
  job.let_in = true; /* of a request that is there already: it asks again later */
  assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_BUSY);
  engine_state(f.engine, &seen);
  assert_int_equal(seen.refused, 1);
  job = job_of(ids, &clients[4]);
  job.let_in = job.more = true; /* or has nothing under way */
  assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_OK);
  engine_cancel(f.engine, ticket);
  assert_true(engine_retry_seconds(f.engine) >= 1 && engine_retry_seconds(f.engine) <= 60);
  engine_cancel(f.engine, second); /* it waits */
  engine_cancel(f.engine, 1000);   /* there is none */
  assert_int_equal(engine_start(f.engine), STATUS_OK);
  await_end(&clients[1]);
  assert_int_equal(clients[1].result.end, ENGINE_CANCELLED);
  assert_int_equal(clients[1].count, 0);
  await_held(&clients[0]);
  engine_cancel(f.engine, first); /* it decodes */
  let_go(&clients[0]);
  await_end(&clients[0]);
  assert_int_equal(clients[0].result.end, ENGINE_CANCELLED);
  assert_true(clients[0].count < 30);
  job = job_of(ids, &clients[2]);
  job.sampling.max = 1000;
  assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_OK);
  await_end(&clients[2]);
  assert_int_equal(clients[2].result.end, ENGINE_CONTEXT);
  engine_state(f.engine, &seen);
  assert_int_equal(clients[4].result.end, ENGINE_CANCELLED);
  assert_int_equal(seen.cancelled, 3);
  assert_int_equal(seen.refused, 1);
  job = job_of(ids, &clients[3]);
  clients[3].held = true;
  assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_OK);
  await_held(&clients[3]);
  Ending ending = {.engine = f.engine, .client = &clients[3]};
  assert_int_equal(pthread_create(&ending.thread, NULL, let_go_at_the_end, &ending), 0);
  close_fixture(&f); /* ends what runs */
  pthread_join(ending.thread, NULL);
  assert_int_equal(clients[3].ends, 1);
  assert_int_equal(clients[3].result.end, ENGINE_CANCELLED);
}

/* A text whose client has found a stop string in it is finished, and tells how long others wait. */
static void what_is_enough_is_finished(void **state) {
  enum { HELD = 1200000 /* microseconds */ };
  Fixture f;
  Client client;
  int32_t ids[PROMPT];
  uint64_t ticket;
  EngineState seen;
  (void)state;
  open_fixture(&f, "tiny-gpt2");
  sample_ids(f.base.weights.config, 1, PROMPT, ids);
  start_texts(&f, 2);
  clients_init(&client, 1);
  client.held = true;
  const EngineJob job = job_of(ids, &client);
  assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_OK);
  assert_int_equal(engine_start(f.engine), STATUS_OK);
  await_held(&client);
  usleep(HELD);
  engine_finish(f.engine, ticket);
  engine_cancel(f.engine, ticket); /* the client has its answer, and leaves */
  let_go(&client);
  await_end(&client);
  assert_int_equal(client.result.end, ENGINE_STOP);
  assert_true(client.count < NEW);
  await_idle(f.engine, -1, &seen);
  assert_true(seen.finished == 1 && seen.cancelled == 0);
  for (int d = 0; d < NODES; d++) assert_int_equal(f.engine->pace[d].left, 0);
  assert_true(engine_retry_seconds(f.engine) > 1); /* one text took longer than a second */
  close_fixture(&f);
}

/* Of four texts at the same time one ends, on average, in less time than one takes: one at a time would make a retry of that time. */
static void a_retry_reckons_with_parallel_texts(void **state) {
  enum { TEXTS = 4, SECONDS = 8 };
  Fixture f;
  Client clients[TEXTS];
  int32_t ids[PROMPT];
  uint64_t ticket;
  (void)state;
  open_fixture(&f, "tiny-gpt2");
  sample_ids(f.base.weights.config, 1, PROMPT, ids);
  start_texts(&f, TEXTS);
  clients_init(clients, TEXTS);
  for (int j = 0; j < TEXTS; j++) {
    const EngineJob job = job_of(ids, &clients[j]);
    assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_OK);
  }
  while (f.engine->queue) { /* the thread does not run: how long they take is the test's to say */
    Job *job = f.engine->running[f.engine->count++] = take_at(f.engine, &f.engine->queue);
    job->started = job->submitted = clock_now() - SECONDS;
  }
  while (f.engine->count > 0) end_job(f.engine, f.engine->running[0], ENGINE_STOP, NULL, NULL, 0);
  for (int j = 0; j < TEXTS; j++) assert_true(clients[j].result.total >= SECONDS);
  assert_true(engine_retry_seconds(f.engine) < SECONDS);
  close_fixture(&f);
}

/* One that is cancelled ends at once, though another one that waits for a place has meanwhile been put back before it. */
static void a_cancelled_text_needs_no_place(void **state) {
  enum { RUNS, WAITS, CANCELLED, CLIENTS };
  Fixture f;
  Client clients[CLIENTS];
  int32_t ids[PROMPT];
  uint64_t tickets[CLIENTS];
  (void)state;
  open_fixture(&f, "tiny-gpt2");
  sample_ids(f.base.weights.config, 1, PROMPT, ids);
  start_texts(&f, CLIENTS);
  f.engine->places = 1;
  clients_init(clients, CLIENTS);
  for (int j = 0; j < CLIENTS; j++) {
    const EngineJob job = job_of(ids, &clients[j]);
    assert_int_equal(engine_submit(f.engine, &job, &tickets[j]), STATUS_OK);
  }
  assert_true(take_up(f.engine)); /* the first */
  Job *taken = f.engine->starting = take_at(f.engine, &f.engine->queue);
  assert_int_equal(taken->ticket, tickets[WAITS]);
  engine_cancel(f.engine, tickets[CANCELLED]);
  put_back(f.engine, taken);
  while (take_up(f.engine)) continue;
  assert_true(is_over(&clients[CANCELLED]));
  assert_int_equal(clients[CANCELLED].result.end, ENGINE_CANCELLED);
  assert_false(is_over(&clients[WAITS]));
  assert_int_equal(engine_start(f.engine), STATUS_OK);
  for (int j = RUNS; j <= WAITS; j++) {
    await_end(&clients[j]);
    assert_int_equal(clients[j].result.end, ENGINE_LENGTH);
  }
  close_fixture(&f);
}

static void images_are_classified(void **state) {
  Fixture f;
  Client clients[2];
  Partition partition = {0};
  uint64_t ticket;
  (void)state;
  open_fixture(&f, "tiny");
  const ModelConfig *config = f.base.weights.config;
  float *pixels = malloc((size_t)(2 * weights_pixels(&f.base.weights)) * sizeof *pixels);
  int64_t counts[NODES];
  SampleAnswer expected;
  sample_pixels(config, 4, 2, pixels);
  assert_int_equal(partition_init(&partition, config_tokens(config), NODES, NULL), STATUS_OK);
  layout_even_counts(config_tokens(config), NODES, counts);
  assert_int_equal(sample_answer(&f.base.sample, NODES, counts, NULL, pixels, 2, &expected), STATUS_OK);
  const EngineOptions options = {.weights = &f.base.weights, .partition = &partition, .leader = &f.leader, .queue_max = 2};
  if (engine_new(&f.engine, &options) != STATUS_OK) fail_msg("%s", status_message());
  clients_init(clients, 2);
  EngineImages images = {.pixels = pixels, .count = 3, .on_end = take_images, .context = &clients[0]};
  assert_int_equal(engine_classify(f.engine, &images, &ticket), STATUS_BAD_VALUE);
  images.count = 2;
  assert_int_equal(engine_classify(f.engine, &images, &ticket), STATUS_OK);
  images.context = &clients[1];
  assert_int_equal(engine_classify(f.engine, &images, &ticket), STATUS_OK);
  assert_int_equal(engine_start(f.engine), STATUS_OK);
  for (int i = 0; i < 2; i++) {
    await_end(&clients[i]);
    assert_int_equal(clients[i].result.end, ENGINE_LENGTH);
    sample_fixture_close_to(clients[i].logits, expected.logits, 2 * config->classes, 1e-5, 0.01);
  }
  EngineState seen = {.decoding = 1};
  for (const double start = clock_now(); seen.finished < 2 || seen.decoding > 0; usleep(1000)) { /* decoding: texts alone */
    engine_state(f.engine, &seen);
    if (clock_now() - start > MOST_SECONDS) fail_msg("%d images are decoded for ever", seen.decoding);
  }
  sample_answer_release(&expected);
  close_fixture(&f);
  partition_release(&partition);
  free(pixels);
}

/* Two requests of an image each, the second `apart` numbers behind the first: what becomes of them. */
static void classify_two(Fixture *f, int nodes, const float *pixels, int64_t apart, Client clients[2]) {
  uint64_t ticket;
  assert_int_equal(partition_init(&f->partition, config_tokens(f->base.weights.config), nodes, NULL), STATUS_OK);
  const EngineOptions options = {.weights = &f->base.weights, .partition = &f->partition, .leader = &f->leader, .queue_max = 2};
  if (engine_new(&f->engine, &options) != STATUS_OK) fail_msg("%s", status_message());
  clients_init(clients, 2);
  for (int i = 0; i < 2; i++) {
    const EngineImages images = {.pixels = pixels + i * apart, .count = 1, .on_end = take_images, .context = &clients[i]};
    assert_int_equal(engine_classify(f->engine, &images, &ticket), STATUS_OK);
  }
  assert_int_equal(engine_start(f->engine), STATUS_OK);
  for (int i = 0; i < 2; i++) await_end(&clients[i]);
}

/* An image whose numbers overflow fails, and the one behind it is answered. */
static void an_image_that_overflows_fails_alone(void **state) {
  Fixture f;
  Client clients[2];
  EngineState seen;
  (void)state;
  open_fixture(&f, "tiny");
  const int64_t count = weights_pixels(&f.base.weights);
  float *pixels = malloc((size_t)(2 * count) * sizeof *pixels);
  sample_pixels(f.base.weights.config, 4, 2, pixels);
  for (int64_t i = 0; i < count; i++) pixels[i] = FLT_MAX;
  classify_two(&f, NODES, pixels, count, clients);
  assert_int_equal(clients[0].result.end, ENGINE_FAILED);
  if (!strstr(clients[0].message, "not finite")) fail_msg("%s", clients[0].message);
  assert_int_equal(clients[1].result.end, ENGINE_LENGTH);
  engine_state(f.engine, &seen);
  assert_true(seen.ready);
  close_fixture(&f);
  partition_release(&f.partition);
  free(pixels);
}

/* Another device's answer to it, which comes later, is no fault of that device. */
static void an_image_that_overflows_costs_no_device(void **state) {
  Fixture f;
  Client clients[2];
  FakeWorker workers[] = {{.overflows = true}, {.slow = 1}};
  Address peers[2];
  const ClusterOptions cluster = {.peers = peers, .peer_count = 2, .on_failure = ON_FAILURE_RERUN};
  EngineState seen;
  (void)state;
  open_fixture(&f, "tiny");
  for (int i = 0; i < 2; i++) {
    fake_worker_start(&workers[i], &f.base, i);
    peers[i] = workers[i].address;
  }
  f.leader.cluster = &cluster;
  float *pixels = calloc((size_t)weights_pixels(&f.base.weights), sizeof *pixels);
  classify_two(&f, 2, pixels, 0, clients);
  assert_int_equal(clients[0].result.end, ENGINE_FAILED);
  if (!strstr(clients[0].message, "overflows")) fail_msg("%s", clients[0].message);
  if (clients[1].result.end != ENGINE_LENGTH) fail_msg("%s", clients[1].message);
  engine_state(f.engine, &seen);
  for (int d = 0; d < 2; d++) {
    assert_int_equal(seen.devices[d].state, ENGINE_DEVICE_HERE);
    assert_int_equal(seen.devices[d].failures, 0);
    assert_int_equal(workers[d].calls[0], 1);
  }
  engine_free(f.engine);
  for (int i = 0; i < 2; i++) fake_worker_stop(&workers[i]);
  sample_fixture_no_children();
  sample_fixture_close(&f.base);
  partition_release(&f.partition);
  free(pixels);
}

/* A process that dies with --on-failure abort ends the cluster: what runs and what waits fails, and what comes is refused. */
static void a_lost_cluster_fails_its_requests(void **state) {
  Fixture f;
  Client clients[2];
  int32_t ids[PROMPT];
  uint64_t ticket;
  (void)state;
  open_fixture(&f, "tiny-gpt2");
  sample_ids(f.base.weights.config, 1, PROMPT, ids);
  start_texts(&f, 4);
  clients_init(clients, 2);
  EngineState seen;
  engine_state(f.engine, &seen);
  assert_true(seen.ready);
  assert_int_equal(kill(seen.devices[1].pid, SIGKILL), 0);
  for (int i = 0; i < 2; i++) {
    const EngineJob job = job_of(ids, &clients[i]);
    assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_OK);
  }
  assert_int_equal(engine_start(f.engine), STATUS_OK);
  for (int i = 0; i < 2; i++) {
    await_end(&clients[i]);
    assert_int_equal(clients[i].result.end, ENGINE_FAILED);
    assert_non_null(strstr(clients[i].message, "node 1"));
  }
  const EngineJob job = job_of(ids, &clients[0]);
  assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_PEER);
  engine_state(f.engine, &seen);
  assert_false(seen.ready);
  close_fixture(&f);
}

/* What clients that rate texts ask for: the log-probability of each token of the prompt, whichever device it is on, in order. */
static void prompts_are_rated(void **state) {
  Fixture f;
  Client clients[3];
  int32_t ids[PROMPT], labels[PROMPT], expected[JOBS][NEW], prompts[JOBS][PROMPT];
  Leader *leader;
  LeaderAnswer answer;
  uint64_t ticket;
  (void)state;
  open_fixture(&f, "tiny-llama");
  expect(&f, prompts, expected);
  memcpy(ids, prompts[0], sizeof ids);
  for (int i = 0; i < PROMPT; i++) labels[i] = i + 1 < PROMPT ? ids[i + 1] : -1;
  assert_int_equal(token_split_init(&f.split, NODES, NULL), STATUS_OK);
  if (leader_start_text(&leader, &f.base.weights, &f.split, &f.leader) != STATUS_OK) fail_msg("%s", status_message());
  assert_int_equal(leader_text_score(leader, ids, labels, 1, PROMPT), STATUS_OK);
  assert_int_equal(leader_collect(leader, &answer), STATUS_OK);
  const double loss = answer.score.loss;
  leader_stop(leader);
  start_texts(&f, 4);
  clients_init(clients, 3);
  for (int i = 0; i < 3; i++) {
    EngineJob job = job_of(ids, &clients[i]);
    job.count = i == 2 ? 1 : PROMPT;
    job.echo = true;
    job.top = 3;
    if (i == 0) job.sampling.max = 0;
    assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_OK);
  }
  assert_int_equal(engine_start(f.engine), STATUS_OK);
  for (int i = 0; i < 3; i++) {
    await_end(&clients[i]);
    assert_int_equal(clients[i].result.end, ENGINE_LENGTH);
    assert_int_equal(clients[i].prompt, i == 2 ? 1 : PROMPT);
    assert_int_equal(clients[i].count, i == 0 ? 0 : NEW);
    assert_true(clients[i].ordered);
    if (i < 2) assert_true(loss > 1 && fabs(clients[i].loss - loss) < 1e-4 * loss);
  }
  assert_memory_equal(clients[1].ids, expected[0], sizeof expected[0]);
  close_fixture(&f);
}

/* Texts of clients that ask for random tokens, some with penalties, on a plain model that each device runs alone: where a text goes on, how
 * often it began, or how many of its tokens were guessed, does not show in it. */
static void run_single(Fixture *f, int doomed, int after, Client clients[JOBS]) {
  const ClusterSetup network = {.strategy = STRATEGY_SINGLE, .reliability.mode = RELIABILITY_STREAM, .parts = 1};
  const ClusterOptions cluster = {.local = NODES, .on_failure = ON_FAILURE_RERUN};
  int32_t ids[PROMPT];
  EngineState seen;
  int decoders = 0;
  f->leader.network = &network;
  f->leader.cluster = &cluster;
  start_texts(f, JOBS);
  clients_init(clients, JOBS);
  engine_state(f->engine, &seen);
  if (doomed >= 0) clients[0].kills = seen.devices[doomed].pid, clients[0].after = after;
  for (int j = 0; j < JOBS; j++) {
    uint64_t ticket;
    EngineJob job = job_of(ids, &clients[j]);
    sample_ids(f->base.weights.config, (uint64_t)(40 + j / 2), PROMPT, ids); /* pairs have the same prompt */
    for (int i = 4; i < PROMPT && j >= 2; i++) ids[i] = ids[i - 4];          /* that quotes itself */
    job.sampling.max = 30;
    job.sampling.temperature = j < 2 ? 1.1 : j % 2 ? 0.05 : 0.02;
    job.sampling.seed = (uint64_t)j;
    job.sampling.frequency_penalty = j >= 2 ? 0 : 0.5;
    job.sampling.repetition_penalty = j >= 2 ? 1 : 1.2;
    job.top = 2;
    assert_int_equal(engine_submit(f->engine, &job, &ticket), STATUS_OK);
  }
  assert_int_equal(engine_start(f->engine), STATUS_OK);
  for (int j = 0; j < JOBS; j++) {
    await_end(&clients[j]);
    assert_int_equal(clients[j].ends, 1);
    if (clients[j].result.end != ENGINE_LENGTH) fail_msg("request %d: %s", j, clients[j].message);
    assert_int_equal(clients[j].count, 30);
    assert_int_equal(clients[j].result.new_tokens, 30);
  }
  await_idle(f->engine, doomed, &seen);
  assert_int_equal(seen.finished, JOBS);
  assert_int_equal(seen.new_tokens, JOBS * 30);
  for (int d = 0; d < NODES; d++) {
    assert_int_equal(seen.devices[d].state, d == doomed ? ENGINE_DEVICE_GONE : ENGINE_DEVICE_HERE);
    assert_int_equal(seen.devices[d].failures, d == doomed);
    decoders += seen.devices[d].tokens_decoded > 0;
  }
  assert_true(decoders >= 2);
  assert_true(f->speculation == SPECULATION_OFF ? seen.drafts == 0 : seen.drafts > seen.drafted && seen.drafted > 10);
  engine_free(f->engine);
  sample_fixture_no_children();
}

static void a_lost_device_shows_in_no_text(void **state) {
  Fixture f;
  Client expected[JOBS], clients[JOBS];
  ModelConfig config = {0};
  (void)state;
  f = (Fixture){.leader = {.batch_max = 2, .timeout = 20, .threads = 1}};
  assert_int_equal(sample_config(&config, "tiny-llama", 0, ENTRIES, 4, CLASS_NONE), STATUS_OK);
  sample_fixture_open(&f.base, &config);
  f.speculation = SPECULATION_OFF;
  run_single(&f, -1, 0, expected);
  f.speculation = SPECULATION_LOOKUP;
  for (int doomed = NODES - 1; doomed >= 0; doomed--) {
    run_single(&f, doomed, 1 + 9 * (NODES - 1 - doomed), clients); /* early, in the middle, late */
    for (int j = 0; j < JOBS; j++) {
      assert_memory_equal(clients[j].ids, expected[j].ids, 30 * sizeof(int32_t));
      if (j % 2) assert_memory_not_equal(expected[j].ids, expected[j - 1].ids, 30 * sizeof(int32_t));
    }
  }
  sample_fixture_close(&f.base);
}

/* ---- fake workers, which compute texts for ever */

typedef struct Fakes {
  FakeWorker workers[2];
  Address peers[2];
  ClusterOptions cluster;
  volatile sig_atomic_t stop;
} Fakes;

/* The second one hangs up at so many texts. */
static void start_fakes(Fixture *f, Fakes *fakes, int loses) {
  *fakes = (Fakes){.workers = {{0}, {.loses = loses}}, .cluster = {.peers = fakes->peers, .peer_count = 2, .on_failure = ON_FAILURE_RERUN}};
  open_fixture(f, "tiny-gpt2");
  for (int i = 0; i < 2; i++) {
    fake_worker_start(&fakes->workers[i], &f->base, i);
    fakes->peers[i] = fakes->workers[i].address;
  }
  f->leader.cluster = &fakes->cluster;
  f->leader.stop = &fakes->stop;
  start_text_on(f, 2, 2);
}

static void stop_fakes(Fixture *f, Fakes *fakes) {
  engine_free(f->engine);
  for (int i = 0; i < 2; i++) fake_worker_stop(&fakes->workers[i]);
  sample_fixture_no_children();
  sample_fixture_close(&f->base);
}

/* A worker that leaves and comes back takes a text from its devices twice. Two failures more would end the text; that the worker is back is
 * none. */
static void workers_that_come_back_end_no_text(void **state) {
  enum { FAILURES = 3 };
  Fixture f;
  Fakes fakes;
  Client client;
  int32_t ids[PROMPT];
  uint64_t ticket;
  EngineState seen = {.ready = false};
  (void)state;
  start_fakes(&f, &fakes, FAILURES);
  sample_ids(f.base.weights.config, 1, PROMPT, ids);
  clients_init(&client, 1);
  const EngineJob job = job_of(ids, &client);
  assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_OK);
  assert_int_equal(engine_start(f.engine), STATUS_OK);
  for (const double start = clock_now(); seen.devices[1].failures < FAILURES; usleep(1000)) {
    if (is_over(&client)) fail_msg("%s", client.message);
    if (clock_now() - start > MOST_SECONDS) fail_msg("a worker does not come back");
    engine_state(f.engine, &seen);
  }
  assert_int_equal(*fakes.workers[1].calls, FAILURES);
  engine_cancel(f.engine, ticket);
  await_end(&client);
  assert_int_equal(client.result.end, ENGINE_CANCELLED);
  stop_fakes(&f, &fakes);
}

/* A leader that is told to stop has not failed, nor has what runs on it or waits for it. */
static void an_interrupted_cluster_cancels_its_requests(void **state) {
  Fixture f;
  Fakes fakes;
  Client clients[2];
  int32_t ids[PROMPT];
  uint64_t ticket;
  (void)state;
  start_fakes(&f, &fakes, 0);
  f.engine->places = 1;
  sample_ids(f.base.weights.config, 1, PROMPT, ids);
  clients_init(clients, 2);
  for (int i = 0; i < 2; i++) {
    const EngineJob job = job_of(ids, &clients[i]);
    assert_int_equal(engine_submit(f.engine, &job, &ticket), STATUS_OK);
  }
  assert_true(take_up(f.engine));
  fakes.stop = 1;
  assert_int_equal(engine_start(f.engine), STATUS_OK);
  for (int i = 0; i < 2; i++) {
    await_end(&clients[i]);
    assert_int_equal(clients[i].result.end, ENGINE_CANCELLED);
  }
  stop_fakes(&f, &fakes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(texts_are_the_leaders, sample_fixture_end_children),
      cmocka_unit_test_teardown(limits_are_kept, sample_fixture_end_children),
      cmocka_unit_test_teardown(images_are_classified, sample_fixture_end_children),
      cmocka_unit_test_teardown(an_image_that_overflows_fails_alone, sample_fixture_end_children),
      cmocka_unit_test(an_image_that_overflows_costs_no_device),
      cmocka_unit_test_teardown(a_lost_cluster_fails_its_requests, sample_fixture_end_children),
      cmocka_unit_test_teardown(what_is_enough_is_finished, sample_fixture_end_children),
      cmocka_unit_test_teardown(a_retry_reckons_with_parallel_texts, sample_fixture_end_children),
      cmocka_unit_test_teardown(prompts_are_rated, sample_fixture_end_children),
      cmocka_unit_test_teardown(a_lost_device_shows_in_no_text, sample_fixture_end_children),
      cmocka_unit_test_teardown(workers_that_come_back_end_no_text, sample_fixture_end_children),
      cmocka_unit_test_teardown(a_cancelled_text_needs_no_place, sample_fixture_end_children),
      cmocka_unit_test_teardown(an_interrupted_cluster_cancels_its_requests, sample_fixture_end_children),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
