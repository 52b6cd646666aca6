/* This machine as a device of clusters that others lead, and the key that all devices of a cluster share. */
#include "base/log.h"
#include "base/status.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "cli/infer_run.h"
#include "cli/infer_settings.h"
#include "infer/cluster/checkpoint_fetch.h"
#include "infer/cluster/key_file.h"
#include "infer/cluster/listener.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- astra-infer keygen ---- */

/* The key goes to a file that only its owner can read, or to standard output, for those who keep secrets elsewhere. */

static Status make_key(const char *path) {
  char text[KEY_FILE_LINE + 1];
  TRY(key_file_make(path, text));
  if (path)
    log_info("%s: copy it to each device of the cluster, readable only by its owner", path);
  else if (fputs(text, stdout) < 0 || fflush(stdout) != 0)
    return status_set(STATUS_IO, "cannot write the key to standard output");
  return STATUS_OK;
}

static Status run_keygen(int argc, char **argv) {
  Option options[] = {{.kind = OPTION_GROUP}};
  const char **files;
  int count;
  if (cli_helped(options, "astra-infer keygen [FILE]",
                 "Makes the key that the devices of a cluster share: into a new FILE of mode 600, or to standard output.", argc, argv))
    return STATUS_OK;
  TRY(cli_parse_arguments(options, argc, argv, 0, 1, "makes one key, in one FILE", &files, &count));
  const char *file = count ? files[0] : NULL;
  free(files);
  return file && !file[0] ? status_set(STATUS_BAD_USAGE, "keygen: the name of FILE is empty") : make_key(file);
}

const CliCommand infer_keygen_command = {"keygen", "create the key shared by the devices of a cluster", run_keygen};

/* ---- astra-infer worker ---- */

enum { BUSY_QUEUE, BUSY_REFUSE };

typedef struct Worker {
  const char *checkpoint, *fetch, *listen, *key_file, *name;
  InferMemory memory;
  const char *backend;
  int weights;   /* WeightsBits */
  int precision; /* WeightsPrecision */
  int64_t threads, queue;
  double idle_timeout;
  int busy;
  bool drafts, announce, once, quiet;
} Worker;

static const char usage[] = "astra-infer worker --checkpoint DIR|--fetch DIR [OPTION...]",
                  about[] = "Serves this machine as a device of clusters: loads the model once, and computes for the leaders that call "
                            "(astra-infer --peers), one at a time.";

static void make_table(Worker *w, Option table[CLI_OPTIONS_MAX]) {
  const Option model[] = {
      {OPTION_GROUP, .help = "What to run:"},
      {OPTION_TEXT, "checkpoint", 'c', &w->checkpoint, "DIR",
       .help = "directory or GGUF file of the model, or the name of an installed one (this or --fetch is required)"},
      {OPTION_TEXT, "fetch", 0, &w->fetch, "DIR",
       .help = "directory of the model; while it is absent or empty, the first leader's checkpoint is fetched into it"},
      {OPTION_CHOICE, "weights", 0, &w->weights, .choices = WEIGHTS_BITS,
       .help = "int8, int4: quantise matrices to 8 or 4 bits, as the leader does; file: as stored"},
      {OPTION_CHOICE, "precision", 0, &w->precision, .choices = WEIGHTS_PRECISIONS,
       .help = "precision of products and activations, as the leader's; auto: bf16 where it is faster"},
      {OPTION_TEXT, "backend", 0, &w->backend, "NAME", .help = CLI_BACKEND_HELP},
      {OPTION_INT, "threads", 't', &w->threads, "N", .min = 0, .max = THREADS_MAX, .help = "compute threads; 0: one per core"},
      {OPTION_FLAG, "drafts", 0, &w->drafts,
       .help = "hold a copy of a language model in 4 bits, to draft tokens for other devices while there is nothing to do (astra-serve)"},
  };
  const Option service[] = {
      {OPTION_GROUP, .help = "Listening:"},
      {OPTION_TEXT, "listen", 'l', &w->listen, "ADDRESS",
       .help = "HOST:PORT, [IPV6]:PORT, PORT (on this machine), unix:PATH, or local (this user only)"},
      {OPTION_TEXT, "key-file", 0, &w->key_file, "FILE", .help = "the cluster's key (astra-infer keygen); UNIX sockets need none"},
      {OPTION_CHOICE, "busy", 0, &w->busy, .choices = "queue|refuse",
       .help = "a leader that calls while another is served waits or is refused"},
      {OPTION_INT, "queue", 0, &w->queue, "N", .min = 1, .max = LISTENER_MAX_QUEUE, .help = "maximum number of waiting leaders"},
      {OPTION_TIMEOUT, "idle-timeout", 0, &w->idle_timeout, "TIME", .min = 5, .max = 86400,
       .help = "disconnect a leader that is silent for this long"},
      {OPTION_FLAG, "announce", 0, &w->announce, .help = "let leaders of this key find this device (--peers auto), through avahi-daemon"},
      {OPTION_FLAG, "once", 0, &w->once, .help = "exit after the first leader"},
      {OPTION_GROUP, .help = "Output:"},
      {OPTION_TEXT, "name", 0, &w->name, "NAME",
       .help = "name of the device in messages of leaders, and for --announce (default there: the host name)"},
      {OPTION_FLAG, "quiet", 'q', &w->quiet, .help = "do not log each leader"},
      {OPTION_GROUP, .help = NULL}};
  memcpy(table, model, sizeof model);
  table += sizeof model / sizeof *model;
  table += infer_settings_memory_rows(&w->memory, table);
  memcpy(table, service, sizeof service);
}

static Status load(const Worker *w, const char *checkpoint, Weights *weights) {
  char *directory = NULL;
  Status status = infer_run_find(checkpoint, &directory);
  if (status == STATUS_OK) status = weights_load_as(weights, directory, (WeightsType)w->memory.cache_type);
  if (status == STATUS_OK && w->drafts && !config_is_decoder(weights->config))
    status =
        status_set(STATUS_BAD_USAGE, "--drafts: %s is a model of images, of which nothing can be drafted; leave --drafts out", checkpoint);
  if (status == STATUS_OK) status = weights_quantise(weights, (WeightsBits)w->weights);
  if (status == STATUS_OK && w->drafts) status = weights_make_drafts(weights, directory);
  if (status == STATUS_OK) status = weights_use_precision(weights, (WeightsPrecision)w->precision);
  if (status == STATUS_OK) status = infer_tables_make(w->memory.tables, !w->quiet, weights);
  weights->cache_full = w->memory.remote_cache != 0;
  free(directory);
  return status;
}

typedef struct Fetched {
  const Worker *worker;
  Weights *weights;
} Fetched;

static Status load_fetched(void *context) {
  const Fetched *fetched = context;
  char *checkpoint = NULL;
  TRY(checkpoint_fetch_find(fetched->worker->fetch, &checkpoint));
  if (!checkpoint) return status_set(STATUS_NOT_FOUND, "--fetch %s: the directory is gone", fetched->worker->fetch);
  Status status = load(fetched->worker, checkpoint, fetched->weights);
  free(checkpoint);
  return status;
}

/* What the options say is checked before the model is loaded, which may take long. */
static Status run(const Worker *w) {
  Weights weights = {0};
  KeyFile key = key_file_open();
  ListenerOptions options = {.weights = &weights,
                             .name = w->name,
                             .key = &key,
                             .threads = (int)w->threads,
                             .idle_timeout = w->idle_timeout,
                             .queue = w->busy == BUSY_QUEUE ? (int)w->queue : 0,
                             .announce = w->announce,
                             .once = w->once,
                             .stop = infer_run_stop_flag()};
  Fetched fetched = {.worker = w, .weights = &weights};
  ListenerFetch fetch = {.load = load_fetched, .context = &fetched};
  char *found = NULL /* what was fetched before */, *place = NULL;
  if (!w->checkpoint && !w->fetch)
    return status_set(STATUS_BAD_USAGE, "--checkpoint DIR is missing: the directory of the model to run, or --fetch DIR, into which the "
                                        "leader's is fetched");
  if (w->checkpoint && w->fetch) return status_set(STATUS_BAD_USAGE, "--checkpoint and --fetch: give one of the two");
  signal(SIGPIPE, SIG_IGN); /* a worker outlives what reads its log */
  log_quiet(w->quiet);
  Status listen = address_parse(w->listen, &options.listen);
  if (listen != STATUS_OK) return status_wrap(listen, "--listen");
  if (w->key_file) TRY(key_file_read(&key, w->key_file));
  TRY(listener_check(&options));
  log_times(true);
  TRY(cli_check_kernels(w->backend));
  Status status = w->fetch ? checkpoint_fetch_find(w->fetch, &found) : STATUS_OK;
  bool lacks = w->fetch && !found;
  if (lacks) options.fetch = &fetch;
  if (status == STATUS_OK && lacks) status = checkpoint_fetch_resolve(w->fetch, &place);
  fetch.directory = place;
  if (status == STATUS_OK && !lacks) status = load(w, found ? found : w->checkpoint, &weights);
  infer_run_catch_signals();
  if (status == STATUS_OK) status = listener_run(&options);
  free(found);
  free(place);
  weights_release(&weights);
  return status;
}

static Status run_worker(int argc, char **argv) {
  Worker worker = {.listen = "local", .queue = 8, .idle_timeout = 30};
  Option table[CLI_OPTIONS_MAX];
  make_table(&worker, table);
  if (cli_helped(table, usage, about, argc, argv)) return STATUS_OK;
  TRY(cli_parse(table, argc, argv));
  if (worker.busy == BUSY_REFUSE && options_given(table, "queue"))
    return status_set(STATUS_BAD_USAGE, "--queue is for --busy queue: with --busy refuse no leader waits");
  return run(&worker);
}

const CliCommand infer_worker_command = {"worker", "serve as a device for leaders that call with --peers", run_worker};
