/* astra-serve: models behind HTTP. Options, the order of start and end, signals; what is answered is src/serve's. */
#include "autograd/kernels/matmul.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/infer_run.h"
#include "cli/infer_settings.h"
#include "infer/cluster/discovery.h"
#include "infer/cluster/key_file.h"
#include "infer/notify.h"
#include "infer/vocabulary.h"
#include "serve/engine.h"
#include "serve/http.h"
#include "serve/service_routes.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct Serve {
  OptionTexts checkpoints;
  const char *listen, *keys, *certificate, *secret, *cors, *template;
  int64_t queue, sequences, connections, per_address, threads;
  double max_body, max_header, cache, rate, request_seconds, head_seconds, body_seconds, stall_seconds, drain;
  bool log, drafts;
  int speculation;
} Serve;

enum { OWN_ROWS = 32, HTTP_BODIES = 16 /* of the largest size, that are held at a time */ };

static const char
    usage[] = "astra-serve --checkpoint [NAME=]DIR [OPTION...]",
    about[] = "Serves models over HTTP, with the interface of OpenAI's API, on processes of this machine or on a cluster of workers.";

static int own_options(Serve *s, Option rows[OWN_ROWS]) {
  *s = (Serve){.listen = "127.0.0.1:8080",
               .queue = 64,
               .sequences = 16,
               .connections = 1024,
               .per_address = 256,
               .threads = 2,
               .max_body = 32 << 20,
               .max_header = 16 << 10,
               .cache = 0,
               .request_seconds = 600,
               .head_seconds = 15,
               .body_seconds = 60,
               .stall_seconds = 30,
               .drain = 30,
               .log = true};
  const Option table[] = {
      {OPTION_GROUP, .help = "What to serve:"},
      {OPTION_TEXTS, "checkpoint", 'c', &s->checkpoints, "[NAME=]DIR",
       .help = "directory or GGUF file of a model, or the name of an installed one; may be repeated (required)"},
      {OPTION_TEXT, "chat-template", 0, &s->template, "NAME", .help = "name of the template, where a checkpoint has several"},
      {OPTION_GROUP, .help = "Listening:"},
      {OPTION_TEXT, "listen", 'l', &s->listen, "ADDRESS", .help = "HOST:PORT, [IPV6]:PORT, PORT (on this machine) or unix:PATH"},
      {OPTION_TEXT, "api-key-file", 0, &s->keys, "FILE", .help = "accept only clients with one of these keys, one per line"},
      {OPTION_TEXT, "tls-certificate", 0, &s->certificate, "FILE", .help = "certificate chain (PEM): serve HTTPS"},
      {OPTION_TEXT, "tls-key", 0, &s->secret, "FILE", .help = "private key of the certificate (PEM)"},
      {OPTION_TEXT, "cors", 0, &s->cors, "ORIGIN", .help = "let pages of this origin use the service; *: of any"},
      {OPTION_GROUP, .help = "Limits:"},
      {OPTION_INT, "queue", 0, &s->queue, "N", .min = 1, .max = 100000, .help = "requests waiting for a place; more get 503"},
      {OPTION_INT, "sequences", 0, &s->sequences, "N", .min = 1, .max = 4096, .help = "texts decoded at a time"},
      {OPTION_SIZE, "cache-memory", 0, &s->cache, "SIZE", .help = "memory of a device for keys and values; 0: a quarter of what is free"},
      {OPTION_CHOICE, "speculate", 0, &s->speculation, .choices = "auto|lookup|off|draft",
       .help = "speculative decoding; auto: where it pays; lookup: always, from the text so far; draft: always, by an idle device"},
      {OPTION_FLAG, "drafts", 0, &s->drafts,
       .help = "hold a copy of each language model in 4 bits, with which devices here that have nothing to do draft for others"},
      {OPTION_REAL, "rate", 0, &s->rate, "N", .min = 0, .max = 1e6, .help = "requests per minute of a key or address; 0: any"},
      {OPTION_TIMEOUT, "request-timeout", 0, &s->request_seconds, "TIME", .help = "time limit per request, its stream included; 0: none"},
      {OPTION_SIZE, "max-body", 0, &s->max_body, "SIZE", .help = "maximum size of a request's body"},
      {OPTION_SIZE, "max-header", 0, &s->max_header, "SIZE", .help = "maximum size of a request's header"},
      {OPTION_TIMEOUT, "header-timeout", 0, &s->head_seconds, "TIME", .help = "time for a request's header, and between two requests"},
      {OPTION_TIMEOUT, "body-timeout", 0, &s->body_seconds, "TIME", .help = "time for a request's body"},
      {OPTION_TIMEOUT, "stall-timeout", 0, &s->stall_seconds, "TIME", .help = "disconnect a client that reads nothing for this long"},
      {OPTION_INT, "max-connections", 0, &s->connections, "N", .min = 1, .max = 100000, .help = "open connections"},
      {OPTION_INT, "max-connections-per-address", 0, &s->per_address, "N", .min = 0, .max = 100000,
       .help = "open connections of one address; 0: any"},
      {OPTION_INT, "http-threads", 0, &s->threads, "N", .min = 1, .max = 64, .help = "threads that read requests and write answers"},
      {OPTION_TIMEOUT, "drain", 0, &s->drain, "TIME", .help = "time for requests under way when the service is stopped"},
      {OPTION_FLAG, "log", 0, &s->log, .help = "write a line of JSON to standard error for each request"}};
  memcpy(rows, table, sizeof table);
  return (int)(sizeof table / sizeof *table);
}

/* ---- models ---- */

/* A checkpoint with its cluster; the service's models point into it. */
typedef struct Served {
  InferSettings settings;
  InferRun run;
  Vocabulary vocabulary;
  ChatTemplate *chat;
  LeaderOptions leader;
  Engine *engine;
} Served;

static volatile sig_atomic_t signals, hard_stop /* of all leaders */, phase;

/* What a signal finds. While a model is loaded nothing looks at flags; a leader that starts looks at hard_stop. */
enum { PHASE_LOADING, PHASE_STARTING, PHASE_SERVING };

/* "NAME=DIR", or "DIR", whose last part is the name. */
static void split_name(const char *given, char name[SERVICE_NAME], const char **directory) {
  const char *equals = strchr(given, '='), *slash = strchr(given, '/');
  size_t length;
  if (equals && equals > given && (!slash || equals < slash)) {
    *directory = equals + 1;
    length = (size_t)(equals - given);
    snprintf(name, SERVICE_NAME, "%.*s", (int)length, given);
    return;
  }
  *directory = given;
  length = strlen(given);
  while (length > 1 && given[length - 1] == '/') length--;
  size_t begin = length;
  while (begin > 0 && given[begin - 1] != '/') begin--;
  snprintf(name, SERVICE_NAME, "%.*s", (int)(length - begin), given + begin);
}

static Status open_texts(const Serve *s, Served *served, ServiceModel *model) {
  const ModelConfig *config = served->run.weights.config;
  if (config->classes > 0)
    return status_set(STATUS_UNSUPPORTED, "%s classifies texts, which astra-serve does not offer: astra-infer --text does",
                      served->run.directory);
  TRY(infer_settings_check_decodes(&served->settings));
  if (s->checkpoints.count == 1) TRY(infer_settings_check_parts(&served->settings)); /* of several another may be of images */
  Status status = infer_settings_context("--max-context", served->settings.context, config, &model->tokens_max);
  if (status != STATUS_OK) return status_wrap(status, "%s", served->run.directory);
  TRY(vocabulary_open(&served->vocabulary, served->run.directory, config));
  TRY(chat_template_open(&served->chat, served->run.directory, s->template));
  model->vocabulary = &served->vocabulary;
  model->chat = served->chat;
  return STATUS_OK;
}

/* The copy for the devices of this machine; workers have their own. */
static Status make_drafts(const Serve *s, InferRun *run) {
  const ClusterOptions *cluster = &run->cluster.options;
  if (cluster->local + cluster->peer_count < 2)
    return status_set(STATUS_BAD_USAGE, "%s: a device drafts for another one; with --nodes or --peers there are several",
                      s->drafts ? "--drafts" : "--speculate draft");
  return cluster->local > 0 ? weights_make_drafts(&run->weights, run->directory) : STATUS_OK;
}

static Status open_model(const Serve *s, const InferSettings *settings, const char *given, Served *served, ServiceModel *model) {
  const char *directory;
  split_name(given, model->name, &directory);
  served->settings = *settings;
  served->settings.checkpoint = directory;
  TRY(infer_run_network(&served->settings, &served->run));
  TRY(infer_run_load(&served->settings, &served->run));
  InferRun *run = &served->run;
  if (s->checkpoints.count == 1) TRY(infer_run_require_options(&served->settings, run)); /* of several each may be for another */
  bool text = config_is_decoder(run->weights.config);
  if (!text) config_warn_no_preprocessor(run->weights.config, run->directory);
  if (text) TRY(open_texts(s, served, model));
  if (text) TRY(weights_pack(&run->weights, true)); /* before its devices fork, which share it */
  model->weights = &run->weights;
  model->images_max = text ? 0 : settings->batch;
  LeaderOptions wanted = {.batch_max = text ? 1 : settings->batch, .tokens_max = model->tokens_max};
  TRY(infer_run_prepare(&served->settings, run, &wanted, &served->leader));
  if (s->drafts && !text && s->checkpoints.count == 1)
    return status_set(STATUS_BAD_USAGE, "--drafts: %s is a model of images, of which nothing can be drafted; leave --drafts out",
                      directory);
  if (text && (s->drafts || s->speculation == SPECULATION_DRAFT)) TRY(make_drafts(s, run));
  served->leader.stop = &hard_stop;
  run->cluster.options.grows = run->cluster.options.discovered;
  const EngineOptions options = {.weights = &run->weights,
                                 .partition = text ? NULL : &run->partition,
                                 .split = text ? &run->split : NULL,
                                 .leader = &served->leader,
                                 .queue_max = (int)s->queue,
                                 .sequences_max = (int)s->sequences,
                                 .speculation = (SpeculationMode)s->speculation,
                                 .cache_bytes = (int64_t)s->cache};
  phase = PHASE_STARTING;
  Status status = engine_new(&served->engine, &options);
  if (status == STATUS_OK) infer_run_tell_nodes(&served->settings, served->engine);
  phase = PHASE_LOADING; /* the next model */
  model->engine = served->engine;
  if (status == STATUS_OK && signals > 0) status = status_set(STATUS_INTERRUPTED, "interrupted");
  return status == STATUS_OK ? STATUS_OK : status_wrap(status, "%s", model->name);
}

static Status open_models(const Serve *s, const InferSettings *settings, Service *service, Served *served) {
  for (int i = 0; i < s->checkpoints.count; i++, service->count++) {
    const char *directory;
    const char *name = service->models[i].name;
    split_name(s->checkpoints.list[i], service->models[i].name, &directory);
    if (!utf8_is_whole(name, strlen(name))) /* requests, answers and metrics hold it */
      return status_set(STATUS_BAD_USAGE,
                        "--checkpoint %s: the name '%s' is not UTF-8: rename the directory, or give another name: "
                        "--checkpoint NAME=DIR",
                        s->checkpoints.list[i], name);
    for (int j = 0; j < i; j++)
      if (strcmp(name, service->models[j].name) == 0)
        return status_set(STATUS_BAD_USAGE, "--checkpoint: two models are called %s; give one another name: --checkpoint NAME=DIR", name);
  }
  for (int i = 0; i < service->count; i++) TRY(open_model(s, settings, s->checkpoints.list[i], &served[i], &service->models[i]));
  return STATUS_OK;
}

static void close_models(Service *service, Served *served) {
  for (int i = service->count - 1; i >= 0; i--) {
    engine_free(served[i].engine);
    chat_template_free(served[i].chat);
    vocabulary_close(&served[i].vocabulary);
    infer_run_release(&served[i].run);
  }
}

/* ---- workers that announce themselves later (--peers auto) ---- */

static const double find_seconds = 10, stopping_seconds = 30 /* after the requests, for devices to end */;

typedef struct Finder {
  Engine *engine;
  const KeyFile *key;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t stops;
  bool runs, stop;
} Finder;

/* Asking takes a second or two, for which no request waits. */
static void *find_workers(void *context) {
  Finder *f = context;
  pthread_mutex_lock(&f->lock);
  while (!f->stop) {
    Address found[WIRE_NODES];
    int count;
    if (threads_wait(&f->stops, &f->lock, clock_now() + find_seconds) || f->stop) continue;
    pthread_mutex_unlock(&f->lock);
    if (discovery_find(f->key, found, &count) == STATUS_OK) engine_add_workers(f->engine, found, count);
    pthread_mutex_lock(&f->lock);
  }
  pthread_mutex_unlock(&f->lock);
  return NULL;
}

static Status finder_start(Finder *f, const Served *served) {
  if (!served->run.cluster.options.grows) return STATUS_OK;
  *f = (Finder){.engine = served->engine, .key = &served->run.cluster.key};
  pthread_mutex_init(&f->lock, NULL);
  threads_condition_init(&f->stops);
  f->runs = threads_spawn(&f->thread, find_workers, f) == 0;
  return f->runs ? STATUS_OK : status_no_memory(NULL, "a thread that looks for workers");
}

static void finder_stop(Finder *f) {
  if (!f->runs) return;
  pthread_mutex_lock(&f->lock);
  f->stop = true;
  pthread_cond_signal(&f->stops);
  pthread_mutex_unlock(&f->lock);
  pthread_join(f->thread, NULL);
  pthread_cond_destroy(&f->stops);
  pthread_mutex_destroy(&f->lock);
}

/* ---- HTTP ---- */

typedef struct Texts {
  char *certificate, *secret;
} Texts;

static Status read_pem(const char *path, char **text) {
  size_t size;
  return path ? files_read(path, 1 << 20, text, &size) : STATUS_OK;
}

static Status check_listening(const Serve *s, const Address *address) {
  struct stat info;
  if (address->own_folder)
    return status_set(STATUS_BAD_USAGE, "--listen local is where a worker of this machine listens; give a PORT or unix:PATH");
  if (!s->certificate != !s->secret) return status_set(STATUS_BAD_USAGE, "--tls-certificate and --tls-key belong together: give both");
  if (!s->keys && !address_is_local(address))
    log_warning("--listen %s: anyone who reaches this address may use the service; --api-key-file restricts it", s->listen);
  if (s->keys && !s->certificate && !address_is_local(address))
    log_warning("API keys travel in clear: give --tls-certificate and --tls-key, or put a proxy with TLS in front");
  if (s->keys && stat(s->keys, &info) == 0 && (key_file_exposed(s->keys, info.st_mode) & (S_IRGRP | S_IROTH)))
    log_warning("%s can be read by other users: chmod 600 %s", s->keys, s->keys);
  return STATUS_OK;
}

static Status start_http(const Serve *s, Service *service, HttpAccess *access, const Texts *texts, const Address *address,
                         int sockets[ADDRESS_SOCKETS], int *count) {
  const HttpOptions options = {.routes = service_routes,
                               .context = service,
                               .access = access,
                               .threads = (int)s->threads,
                               .max_body = (size_t)s->max_body,
                               .max_header = (size_t)s->max_header,
                               .bodies = (size_t)s->max_body * HTTP_BODIES,
                               .connections = (int)s->connections,
                               .per_address = (int)s->per_address,
                               .head_seconds = s->head_seconds,
                               .body_seconds = s->body_seconds,
                               .stall_seconds = s->stall_seconds,
                               .request_seconds = s->request_seconds,
                               .certificate = texts->certificate,
                               .secret = texts->secret,
                               .cors = s->cors,
                               .log = s->log ? stderr : NULL,
                               .finished = service_finished};
  TRY(address_listen(address, sockets, count));
  uint16_t port = address_port(sockets[0]);
  TRY(http_start(&service->http, &options, sockets, *count));
  if (address->on_disk)
    log_info("listening on unix:%s", address->name);
  else
    log_info("listening on %s://%s%s%s:%d", s->certificate ? "https" : "http", strchr(address->name, ':') ? "[" : "", address->name,
             strchr(address->name, ':') ? "]" : "", (int)port);
  return STATUS_OK;
}

/* ---- from start to end ---- */

static const char *volatile last_line = ""; /* of a process that ends while a model is loaded */

/* Requests under way have time to end. Before the models are open there are none, and a busy worker may be waited for (--wait). While one
 * is loaded the process ends here: no file is to be removed, and the devices of models before it end with their parent. */
static void on_signal(int number) {
  if (phase == PHASE_LOADING) {
    const ssize_t written = write(STDERR_FILENO, last_line, strlen(last_line));
    (void)written; /* nothing else can be done */
    _exit(CLI_OK);
  }
  if (signals_note(number) != SIGNAL_DOUBLED && signals < 2) signals++;
  if (phase == PHASE_STARTING) hard_stop = 1;
}

/* A model whose cluster nothing brings back: somebody has to start the service anew, which its end tells them. */
static Status check_clusters(const Service *service) {
  char why[512];
  for (int i = 0; i < service->count; i++)
    if (engine_has_failed(service->models[i].engine, why, sizeof why))
      return status_set(STATUS_PEER, "the cluster of %s has failed (%s); start the service again", service->models[i].name, why);
  return STATUS_OK;
}

typedef struct Upkeep {
  double alive, given_back; /* clock_now of the last WATCHDOG; memory_give_back_at_times */
} Upkeep;

static void keep_up(Service *service, Upkeep *upkeep, long nanoseconds) {
  const double interval = notify_interval();
  nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
  service_routes_tick(service);
  memory_give_back_at_times(&upkeep->given_back);
  if (interval <= 0 || clock_now() <= upkeep->alive + interval) return;
  notify_send("WATCHDOG=1");
  upkeep->alive = clock_now();
}

/* Until a signal comes, or a cluster fails for good. */
static Status wait_for_end(Service *service) {
  Upkeep upkeep = {0};
  while (signals == 0) {
    keep_up(service, &upkeep, 100000000);
    TRY(check_clusters(service));
  }
  return STATUS_OK;
}

/* Until no request is left, or there is no more time for them, or a second signal comes, which may have come with the first. */
static void wait_for_requests(Service *service, double seconds) {
  const double end = clock_now() + seconds;
  Upkeep upkeep = {0};
  while (signals < 2 && clock_now() < end && http_counts(service->http).requests > 0) keep_up(service, &upkeep, 20000000);
}

static Status run_service(const Serve *s, Service *service, const Address *address) {
  char why[1024] = "";
  notify_send("READY=1");
  const Status status = wait_for_end(service);
  if (status != STATUS_OK) snprintf(why, sizeof why, "%s", status_message());
  notify_send("STOPPING=1\nEXTEND_TIMEOUT_USEC=%.0f", 1e6 * (s->drain + stopping_seconds));
  address_remove(address); /* from here on calls are refused, and who starts anew takes the path */
  http_drain(service->http);
  service_routes_tick(service);
  int left = http_counts(service->http).requests;
  if (left > 0) log_info("stopping: %d request%s under way, at most %g s", left, text_plural(left), s->drain);
  if (signals == 0) signals = 1; /* a cluster has failed: one that comes now is the second */
  wait_for_requests(service, s->drain);
  if (http_counts(service->http).requests > 0) log_info("stopping: %d cancelled", http_counts(service->http).requests);
  http_expire(service->http);
  signals = 1;
  wait_for_requests(service, 2);
  return status == STATUS_OK ? status : status_set(status, "%s", why);
}

static Status serve(const Serve *s, const InferSettings *settings) {
  Service *service = calloc(1, sizeof *service);
  Served *served = calloc(SERVICE_MODELS, sizeof *served);
  HttpAccess *access = NULL;
  Finder finder = {0};
  Texts texts = {0};
  Address address;
  int sockets[ADDRESS_SOCKETS], count = 0;
  if (!service || !served) return free(service), free(served), status_no_memory(NULL, "the service");
  memory_few_heaps();
  service_init(service);
  Status status = address_parse(s->listen, &address);
  if (status != STATUS_OK) status = status_wrap(status, "--listen");
  if (status == STATUS_OK) status = check_listening(s, &address);
  if (status == STATUS_OK) status = http_access_new(&access, s->keys, s->rate);
  if (status == STATUS_OK) status = read_pem(s->certificate, &texts.certificate);
  if (status == STATUS_OK) status = read_pem(s->secret, &texts.secret);
  if (status == STATUS_OK) status = cli_check_kernels(settings->backend);
  if (status == STATUS_OK) infer_run_tell_machine(settings);
  if (!settings->quiet) last_line = "astra-serve: stopped before it served\n";
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  if (!signals_hangup_ignored()) sigaction(SIGHUP, &action, NULL);
  signal(SIGPIPE, SIG_IGN);
  if (status == STATUS_OK) status = open_models(s, settings, service, served);
  phase = PHASE_SERVING;
  for (int i = 0; status == STATUS_OK && i < service->count; i++) status = engine_start(served[i].engine);
  if (status == STATUS_OK) status = finder_start(&finder, &served[0]);
  if (status == STATUS_OK) status = start_http(s, service, access, &texts, &address, sockets, &count);
  const bool served_any = status == STATUS_OK;
  if (served_any) status = run_service(s, service, &address);
  if (status == STATUS_INTERRUPTED && signals > 0) {
    log_info("stopped before it served");
    status = STATUS_OK; /* as after a signal at any other time */
  }
  if (count > 0 && !served_any) address_remove(&address); /* nobody has served there */
  http_stop(service->http);
  hard_stop = 1;
  finder_stop(&finder);
  close_models(service, served);
  service_release(service);
  http_access_free(access);
  free(texts.certificate);
  free(texts.secret);
  free(served);
  free(service);
  return status;
}

/* What a browser sends as Origin: a scheme and a host, perhaps a port, and no path. No longer than an answer has room for. */
static bool is_origin(const char *text) {
  enum { LONGEST = 256 };
  const char *host = strstr(text, "://");
  if (!host) return strcmp(text, "*") == 0 || strcmp(text, "null") == 0;
  const size_t scheme = (size_t)(host - text);
  host += 3;
  return scheme > 0 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+-.") == scheme && strlen(text) <= LONGEST && *host &&
         !host[strcspn(host, "/?# ,\r\n")];
}

static Status check_size(const char *option, double size, double max, const char *max_text) {
  if (size >= 1024 && size <= max) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--%s: from 1k to %s; %.0f bytes were given%s", option, max_text, size,
                    size < 1024 ? ": was a unit left out, as in 32M?" : "");
}

/* With a time of 0 a client would be cut off at once, or never. */
static Status check_limits(const Serve *s) {
  const struct {
    const char *option;
    double seconds;
  } times[] = {{"header-timeout", s->head_seconds}, {"body-timeout", s->body_seconds}, {"stall-timeout", s->stall_seconds}};
  for (size_t i = 0; i < sizeof times / sizeof *times; i++)
    if (times[i].seconds <= 0) return status_set(STATUS_BAD_USAGE, "--%s 0: give a time above it, such as 15s", times[i].option);
  if (s->cors && !is_origin(s->cors))
    return status_set(STATUS_BAD_USAGE, "--cors %s: give an origin, a scheme and a host, as https://example.org:8443, or * for any",
                      s->cors);
  TRY(check_size("max-body", s->max_body, 4.0 * (1 << 30), "4G"));
  return check_size("max-header", s->max_header, 1 << 20, "1M");
}

/* infer_run_require_options refuses options of this program for another kind of model as it does those of astra-infer. */
static void note_language(InferSettings *settings, const Option *own, int count) {
  static const char *const names[] = {"chat-template", "sequences", "cache-memory", "speculate", NULL};
  const char *option = options_first_given(own, count, names);
  if (!option) return;
  settings->not_for[INFER_KIND_IMAGES].option = option;
  settings->not_for[INFER_KIND_IMAGES].kinds = 1 << INFER_KIND_LANGUAGE;
}

static Status run(int argc, char **argv) {
  Serve s;
  InferSettings settings;
  Option rows[OWN_ROWS];
  int count = own_options(&s, rows);
  TRY(infer_settings_service_parse(&settings, INFER_SERVE, rows, count, argc, argv));
  note_language(&settings, rows, count);
  if (s.checkpoints.count == 0) return status_set(STATUS_BAD_USAGE, "--checkpoint DIR is missing: the directory of the model to serve");
  if (s.checkpoints.count > SERVICE_MODELS) return status_set(STATUS_BAD_USAGE, "--checkpoint: more than %d models", SERVICE_MODELS);
  if (settings.peers && s.checkpoints.count > 1)
    return status_set(STATUS_BAD_USAGE, "--peers: a worker holds one model; give one --checkpoint, or --nodes");
  if (settings.on_failure == INFER_ON_FAILURE_AUTO) settings.on_failure = INFER_RERUN;
  TRY(check_limits(&s));
  log_times(!settings.quiet);
  return serve(&s, &settings);
}

static void help(FILE *stream) {
  Serve s;
  Option rows[OWN_ROWS];
  int count = own_options(&s, rows);
  infer_settings_service_help(INFER_SERVE, rows, count, usage, about, stream);
}

static void table(Option options[CLI_OPTIONS_MAX]) {
  static Serve s;
  static InferSettings settings;
  Option rows[OWN_ROWS];
  int count = own_options(&s, rows);
  infer_settings_service_table(&settings, INFER_SERVE, rows, count, options);
}

int main(int argc, char **argv) {
  matmul_start();
  const CliProgram program = {"astra-serve", NULL, run, help, table};
  return cli_run(argc, argv, &program);
}
