/* The commands fpar and class-token: two of the paper's claims, measured on a trained checkpoint with emulated devices: accuracy grows with
 * the full-precision attention rate (appendix, heterogeneous settings), and the mean of N class tokens has a smaller error than one of them
 * (theorem 2). Sessions are those of SESSION_EVALUATE, with codebooks. */
#include "autograd/tape.h"
#include "base/array.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/infer_run.h"
#include "cli/train_options.h"
#include "infer/wire.h"
#include "nn/json_build.h"
#include "train/codebooks.h"
#include "train/emulate.h"
#include "train/plot.h"
#include "train/session.h"
#include "train/task.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_SHARES = 21 };

static int64_t samples_of(const Session *session, int64_t samples) {
  const int64_t available = session->data.count[TASK_TEST];
  return samples <= 0 || samples > available ? available : samples;
}

/* The next batch of the test part, cut to what is left of `samples`. */
static Status next_batch(Session *session, int64_t done, int64_t samples, TaskBatch *batch) {
  TRY(session->task->source->next(session, TASK_TEST, batch));
  if (batch->count > samples - done) batch->count = (int)(samples - done);
  return STATUS_OK;
}

static Status none_read(const Session *session) {
  return status_set(STATUS_BAD_FILE, "%s: none of its %s could be read", session->data.about[TASK_TEST],
                    session->task->source->name.samples);
}

/* ---- Accuracy by full-precision attention rate ---- */

typedef struct FparBatch {
  double fpar; /* of its shares of tokens (layout_fpar) */
  TaskScore score;
} FparBatch;

/* Of content tokens: a single class token, which device 0 shares as well, does not count. */
static double fpar_of(const TokenLayout *layout) {
  int64_t counts[SESSION_DEVICES];
  for (int d = 0; d < layout->devices; d++) counts[d] = layout->device_shared[d + 1] - layout->device_shared[d];
  counts[0] -= layout->shared - layout->tokens;
  return layout_fpar(layout->tokens, layout->devices, counts);
}

static Status fpar_batch(Session *session, const TaskBatch *batch, const DeviceMapOptions *map, Rng *rng, FparBatch *to) {
  DeviceMapOptions shares = *map;
  *to = (FparBatch){.fpar = 0};
  if (shares.devices_max > batch->tokens) shares.devices_min = shares.devices_max = (int)batch->tokens; /* each device needs one */
  TRY(device_map_draw(&session->layout, batch->tokens, session->config->astra.class_token, &shares, rng, session->order));
  to->fpar = fpar_of(&session->layout);
  emulate_begin_step(&session->emulation, false);
  session->task->head->loss(session, batch, &session->layout, &session->emulation.exchange, &to->score);
  const Status status = tape_status(session->tape);
  tape_clear(session->tape);
  return status;
}

static int by_fpar(const void *a, const void *b) {
  const double x = ((const FparBatch *)a)->fpar, y = ((const FparBatch *)b)->fpar;
  return (x > y) - (x < y);
}

/* Each batch of the first `samples` (0: all) of the test part, which is gone through `draws` times, has shares of its own on `devices`
 * devices, from a Dirichlet distribution with this concentration, and of images a permutation of its own; both follow from options.seed.
 * *list [*count], one or more, in ascending order of their rates, the caller's to free, also after a failure. Batches of nothing but images
 * that cannot be read are left out. BAD_FILE: all are. */
static Status claims_fpar(Session *session, int devices, double concentration, int64_t samples, int64_t draws, FparBatch **list,
                          int64_t *count) {
  const DeviceMapOptions map = {.devices_min = devices,
                                .devices_max = devices,
                                .counts = COUNTS_DIRICHLET,
                                .concentration = concentration,
                                .permute = !config_is_decoder(session->config)};
  size_t room = 0;
  Rng rng;
  Progress progress;
  *list = NULL, *count = 0;
  samples = samples_of(session, samples);
  rng_init(&rng, (uint64_t)session->options.seed, STREAM_SHARES);
  tape_record(session->tape, false);
  session->emulation.look = 0;
  progress_start(&progress, "evaluating on unequal devices", samples * draws, session->options.quiet);
  Status status = STATUS_OK;
  for (int64_t draw = 0; draw < draws && status == STATUS_OK; draw++) {
    status = session->task->source->seek(session, TASK_TEST, 0, 0);
    for (int64_t done = 0; done < samples && status == STATUS_OK;) {
      TaskBatch batch;
      status = next_batch(session, done, samples, &batch);
      if (status == STATUS_OK) status = ARRAY_RESERVE(*list, *count, 1, room, "batches");
      if (status == STATUS_OK) status = fpar_batch(session, &batch, &map, &rng, &(*list)[*count]);
      if (status == STATUS_OK) *count += (*list)[*count].score.samples > 0;
      if (status == STATUS_OK) done += batch.count;
      if (progress.terminal) progress_update(&progress, draw * samples + done, NULL);
    }
  }
  progress_wipe(&progress);
  if (status == STATUS_OK && *count == 0) status = none_read(session);
  if (status == STATUS_OK) qsort(*list, (size_t)*count, sizeof **list, by_fpar);
  return status;
}

/* Batches of one range of rates. */
typedef struct FparBin {
  double low, high;
  TaskScore score;
} FparBin;

/* Cuts the list into `bins` of as many samples, as far as batches allow: bin b begins with the first batch that has b / bins of all samples
 * or more before it. A bin without a batch has no samples. */
static void claims_fpar_bins(const FparBatch *list, int64_t count, int bins, FparBin *bin) {
  int64_t all = 0, before = 0;
  for (int b = 0; b < bins; b++) bin[b] = (FparBin){.low = 0};
  for (int64_t i = 0; i < count; i++) all += list[i].score.samples;
  for (int64_t i = 0; i < count; i++) {
    FparBin *to = &bin[before * bins / all];
    if (to->score.samples == 0) to->low = list[i].fpar;
    to->high = list[i].fpar;
    to->score.loss += list[i].score.loss;
    to->score.samples += list[i].score.samples;
    to->score.items += list[i].score.items;
    to->score.correct += list[i].score.correct;
    before += list[i].score.samples;
  }
}

/* ---- Error of class tokens ---- */

/* Means over samples of squared distances from the class token that the same weights give on one device, with every token in full
 * precision. */
typedef struct ClassTokenError {
  double one, mean; /* of one device's class token, mean over devices; of the mean of all devices' class tokens */
} ClassTokenError;

/* Told of the class tokens of each block: first those of the plain model, which it keeps, then those of devices, which it compares. */
typedef struct ClassWatch {
  Exchange exchange;
  real *plain, *row; /* [blocks + 1, samples of a batch, W]; [W] */
  double *mean;      /* [W] */
  int64_t width, room;
  const int32_t *labels;   /* of the batch; -1: an image that cannot be read, which is left out */
  ClassTokenError *errors; /* [blocks + 1], to be added to; NULL: keep */
} ClassWatch;

/* rows [B, R, W], of which the class tokens are `at` [class tokens]; NULL: all. */
static void watch_class_tokens(ClassWatch *watch, const Tensor *rows, int64_t tokens, const int32_t *at, int64_t place) {
  const int64_t batch = rows->shape[0], all = rows->shape[1], width = tensor_width(rows);
  for (int64_t b = 0; b < batch; b++) {
    if (watch->labels[b] < 0) continue;
    real *plain = watch->plain + (place * watch->room + b) * watch->width;
    double one = 0, mean = 0;
    memset(watch->mean, 0, (size_t)width * sizeof *watch->mean);
    for (int64_t k = 0; k < tokens; k++) {
      real *row = watch->errors ? watch->row : plain;
      tensor_read(rows, (b * all + (at ? at[k] : k)) * width, width, row);
      for (int64_t i = 0; watch->errors && i < width; i++) {
        const double error = (double)row[i] - (double)plain[i];
        one += error * error / (double)tokens;
        watch->mean[i] += error / (double)tokens;
      }
    }
    for (int64_t i = 0; i < width; i++) mean += watch->mean[i] * watch->mean[i];
    if (watch->errors) watch->errors[place].one += one, watch->errors[place].mean += mean;
  }
}

static Status watch_block(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  (void)part;
  if (h[0] != NULL) watch_class_tokens((ClassWatch *)self, h[0], layout->class_rows, layout->class_row, block);
  return tape_status(tape);
}

/* Through all blocks: on `devices` devices into `errors`, or, with NULL, on one, to be kept. */
static Status watch_pass(Session *session, ClassWatch *watch, const TaskBatch *batch, int devices, ClassTokenError *errors) {
  const ModelInput input = task_input(session->tape, batch, session->config);
  watch->errors = errors;
  watch->labels = batch->labels;
  if (errors == NULL)
    TRY(task_lay_plain(session, batch->tokens));
  else
    TRY(device_map_place(&session->layout, session->config, batch->tokens, devices, session->order));
  if (errors != NULL) emulate_begin_step(&session->emulation, false);
  const TokenLayout *layout = errors ? &session->layout : &session->plain_layout;
  const Tensor *encoded =
      model_encode(session->model, session->tape, &input, layout, errors ? &session->emulation.exchange : NULL, MODEL_ROWS_CLASS);
  if (encoded != NULL) watch_class_tokens(watch, encoded, layout->class_rows, NULL, session->config->blocks);
  const Status status = tape_status(session->tape);
  tape_clear(session->tape);
  return status;
}

static Status watch_all(Session *session, ClassWatch *watch, int devices, int64_t samples, ClassTokenError *errors) {
  const int64_t places = session->config->blocks + 1;
  int64_t read = 0;
  Progress progress;
  Status status = session->task->source->seek(session, TASK_TEST, 0, 0);
  progress_start(&progress, "comparing class tokens", samples, session->options.quiet);
  for (int64_t done = 0; done < samples && status == STATUS_OK;) {
    TaskBatch batch;
    status = next_batch(session, done, samples, &batch);
    if (status == STATUS_OK) status = watch_pass(session, watch, &batch, 1, NULL);
    for (int n = 2; n <= devices && status == STATUS_OK; n++) status = watch_pass(session, watch, &batch, n, errors + (n - 2) * places);
    for (int64_t b = 0; status == STATUS_OK && b < batch.count; b++) read += batch.labels[b] >= 0;
    if (status == STATUS_OK) done += batch.count;
    if (progress.terminal) progress_update(&progress, done, NULL);
  }
  progress_wipe(&progress);
  if (status == STATUS_OK && read == 0) status = none_read(session);
  for (int64_t i = 0; status == STATUS_OK && i < (devices - 1) * places; i++) errors[i].one /= (double)read, errors[i].mean /= (double)read;
  return status;
}

/* errors [devices - 1, blocks + 1]: on 2, 3, ... `devices` devices, with even shares as the runner places them; of the rows that block b
 * quantises (or its keys), and at place `blocks` of what the head takes. The first `samples` images of the test part, 0: all. UNSUPPORTED
 * for models without a class token on each device. */
static Status claims_class_token(Session *session, int devices, int64_t samples, ClassTokenError *errors) {
  const int64_t width = session->config->width, room = session->options.batch, places = session->config->blocks + 1;
  ClassWatch watch = {.exchange = {.begin = watch_block, .whole_rows = true}, .width = width, .room = room};
  if (config_is_decoder(session->config) || session->config->astra.class_token != CLASS_DISTRIBUTED)
    return status_set(STATUS_UNSUPPORTED,
                      "this model has no class token on each device: images with --class-token distributed are accepted");
  memset(errors, 0, (size_t)((devices - 1) * places) * sizeof *errors);
  watch.plain = malloc((size_t)(places * room * width) * sizeof *watch.plain);
  watch.row = malloc((size_t)width * sizeof *watch.row);
  watch.mean = malloc((size_t)width * sizeof *watch.mean);
  Status status = watch.plain && watch.row && watch.mean ? STATUS_OK : status_no_memory(NULL, "class tokens");
  tape_record(session->tape, false);
  model_watch(session->model, &watch.exchange);
  if (status == STATUS_OK) status = watch_all(session, &watch, devices, samples_of(session, samples), errors);
  model_watch(session->model, NULL);
  free(watch.plain), free(watch.row), free(watch.mean);
  return status;
}

/* ---- The commands ---- */

enum { CLAIM_OPTIONS_MAX = 24, BINS = 5, COLUMNS = 24 };

typedef struct ClaimCommand {
  TrainCommand shared;
  const char *checkpoint;
  int64_t nodes, draws;
  double concentration, mean_power;
} ClaimCommand;

typedef struct Claim {
  const char *usage, *about, *nodes;
  bool shares; /* draws shares, and writes them to --out */
  Status (*work)(const ClaimCommand *command, Session *session);
} Claim;

static void claim_options(const Claim *claim, ClaimCommand *command, Option options[CLAIM_OPTIONS_MAX]) {
  static const char *const data[] = {"dataset", "data-dir", "validation-part", "context", "batch", NULL};
  static const char *const run[] = {"seed", "threads", "quiet", "json", NULL};
  Option table[TRAIN_OPTIONS_MAX];
  train_options_table(&command->shared, table);
  command->concentration = 1;
  command->draws = 1;
  command->mean_power = SESSION_AUTO;
  Option *to = options;
  *to++ = (Option){OPTION_GROUP, .help = "What to measure"};
  *to++ = (Option){OPTION_TEXT,          "checkpoint", 'c',
                   &command->checkpoint, "DIR",        .help = "directory of an ASTRA model, or the name of an installed one (required)"};
  to += train_options_select(table, data, to);
  *to++ = (Option){OPTION_INT, "samples", 0,           &command->shared.train.eval_samples,
                   "N",        .min = 0,  .max = 1e12, .help = "N images, texts or windows of the test part; 0: all"};
  *to++ = (Option){OPTION_INT, "nodes", 'n', &command->nodes, "N", .min = 0, .max = WIRE_NODES, .help = claim->nodes};
  if (claim->shares) {
    *to++ = (Option){
        OPTION_REAL, "concentration", 0,          &command->concentration,
        "A",         .min = 0.01,     .max = 1e6, .help = "concentration of the Dirichlet distribution of shares; smaller: more unequal"};
    *to++ = (Option){OPTION_INT, "draws",  0,           &command->draws,
                     "N",        .min = 1, .max = 1000, .help = "passes over the samples, each with other shares"};
    *to++ = (Option){
        OPTION_REAL, "class-mean-power", 0,        &command->mean_power,
        "P",         .min = 0,           .max = 4, .help = "weights of class tokens: token counts to this power; auto: the checkpoint's"};
  }
  *to++ = (Option){OPTION_GROUP, .help = "Running and results"};
  to += train_options_select(table, run, to);
  if (claim->shares)
    *to++ = (Option){OPTION_TEXT, "out", 'o', &command->shared.train.out, "DIR", .help = "write fpar.csv and fpar.png there"};
  *to = (Option){.kind = OPTION_GROUP};
}

static Status run_session(const Claim *claim, ClaimCommand *command) {
  Session session;
  TrainOptions *train = &command->shared.train;
  char *directory = NULL;
  TRY(cli_check_kernels(NULL));
  TRY(infer_run_find(command->checkpoint, &directory));
  Status status = train_options_inherit(train, directory);
  if (command->mean_power >= 0) train->class_mean_power = command->mean_power;
  if (status == STATUS_OK) status = threads_start((int)train->threads);
  if (status == STATUS_OK) {
    status = session_open(&session, train, SESSION_EVALUATE);
    if (status == STATUS_OK) {
      status = codebooks_read(&session, directory);
      if (status == STATUS_OK && session.tokens < command->nodes)
        status = status_set(STATUS_BAD_USAGE, "--nodes %lld: a sample has %lld tokens, and every device needs one",
                            (long long)command->nodes, (long long)session.tokens);
      if (status == STATUS_OK) status = claim->work(command, &session);
      session_close(&session);
    }
    threads_stop();
  }
  free(directory);
  return status;
}

static Status run_claim(const Claim *claim, int argc, char **argv) {
  ClaimCommand command = {.nodes = 0};
  Option options[CLAIM_OPTIONS_MAX];
  claim_options(claim, &command, options);
  if (cli_helped(options, claim->usage, claim->about, argc, argv)) return STATUS_OK;
  TRY(cli_parse(options, argc, argv));
  log_quiet(command.shared.train.quiet);
  if (command.checkpoint == NULL) return status_set(STATUS_BAD_USAGE, "--checkpoint DIR is missing: an ASTRA model to measure");
  if (command.shared.train.dataset == NULL)
    return status_set(STATUS_BAD_USAGE, "--dataset NAME is missing: the data to evaluate the model on");
  if (command.nodes == 1)
    return status_set(STATUS_BAD_USAGE, "--nodes 1: a device alone has nothing to be compared; 2 or more are accepted");
  return run_session(claim, &command);
}

/* ---- fpar */

static Status save_batches(const FparBatch *list, int64_t count, const char *folder) {
  FileWriter writer;
  char *path = files_join(folder, "fpar.csv");
  Status status = path ? files_create(&writer, path) : status_no_memory(NULL, "a path");
  if (status == STATUS_OK) {
    fputs("fpar,samples,items,correct,loss\n", writer.stream);
    for (int64_t i = 0; i < count; i++)
      fprintf(writer.stream, "%.9g,%lld,%lld,%lld,%.9g\n", list[i].fpar, (long long)list[i].score.samples, (long long)list[i].score.items,
              (long long)list[i].score.correct, task_mean_loss(&list[i].score));
    status = files_commit(&writer);
  }
  free(path);
  return status;
}

/* How many batches have which rate: columns between the least and the largest. */
static Status save_histogram(const FparBatch *list, int64_t count, const char *folder) {
  const double low = list[0].fpar, step = (list[count - 1].fpar - low) / COLUMNS;
  double x[COLUMNS], y[COLUMNS] = {0};
  for (int c = 0; c < COLUMNS; c++) x[c] = low + (c + 0.5) * step;
  for (int64_t i = 0; i < count; i++) {
    const int column = step > 0 ? (int)((list[i].fpar - low) / step) : 0;
    y[column < COLUMNS ? column : COLUMNS - 1]++;
  }
  const PlotSeries series = {.x = x, .y = y, .count = step > 0 ? COLUMNS : 1, .style = PLOT_BAR};
  const PlotPanel panel = {.title = "", .x_label = "full-precision attention rate", .y_label = "batches", .series = &series, .count = 1};
  char *path = files_join(folder, "fpar.png");
  Status status = path ? plot_save(path, "FPAR of evaluation batches", &panel, 1, 720, 460) : status_no_memory(NULL, "a path");
  free(path);
  return status;
}

/* Numbers of a bin without samples are null. */
static json_t *bin_json(const FparBin *bin) {
  const bool any = bin->score.samples > 0;
  return json_pack("{s:o, s:o, s:I, s:o, s:o}", "low", json_build_number(any ? bin->low : NAN), "high",
                   json_build_number(any ? bin->high : NAN), "samples", (json_int_t)bin->score.samples, "accuracy",
                   json_build_number(any ? task_accuracy(&bin->score) : NAN), "loss",
                   json_build_number(any ? task_mean_loss(&bin->score) : NAN));
}

static void print_bin(const FparBin *bin, const char *note) {
  if (bin->score.samples > 0)
    printf("%.4f to %.4f %13lld %9.2f%% %10.4f%s\n", bin->low, bin->high, (long long)bin->score.samples, 100 * task_accuracy(&bin->score),
           task_mean_loss(&bin->score), note);
  else
    printf("%-20s %9d %10s %10s\n", "-", 0, "-", "-");
}

static Status report_fpar(const ClaimCommand *command, const Session *session, int devices, const FparBatch *list, int64_t count) {
  FparBin bin[BINS], all;
  json_t *bins = json_array();
  claims_fpar_bins(list, count, BINS, bin);
  claims_fpar_bins(list, count, 1, &all);
  double mean = 0;
  for (int64_t i = 0; i < count; i++) mean += list[i].fpar * (double)list[i].score.samples / (double)all.score.samples;
  if (!command->shared.json)
    printf("%lld %s on %d device%s, %lld %s with shares of their own: FPAR %.4f to %.4f, mean %.4f\n%-20s %10s %10s %10s\n",
           (long long)all.score.samples, task_samples(session->task, all.score.samples), devices, text_plural(devices), (long long)count,
           count == 1 ? "batch" : "batches", all.low, all.high, mean, "FPAR", "samples", "accuracy", "loss");
  for (int b = 0; b < BINS; b++)
    if (command->shared.json)
      json_build_append(&bins, bin_json(&bin[b]));
    else
      print_bin(&bin[b], "");
  if (!command->shared.json) print_bin(&all, "  all");
  if (!command->shared.json) return json_decref(bins), STATUS_OK;
  return json_build_print(json_pack("{s:o, s:i, s:I, s:I, s:f, s:f, s:f, s:o}", "checkpoint", json_build_string(command->checkpoint),
                                    "nodes", devices, "samples", (json_int_t)all.score.samples, "batches", (json_int_t)count, "fpar", mean,
                                    "accuracy", task_accuracy(&all.score), "loss", task_mean_loss(&all.score), "bins", bins));
}

static Status measure_fpar(const ClaimCommand *command, Session *session) {
  const TrainOptions *train = &command->shared.train;
  const int devices = command->nodes > 0 ? (int)command->nodes : session->config->astra.devices;
  FparBatch *list;
  int64_t count;
  TRY(session_check_classes(session));
  Status status = train->out ? files_make_dirs(train->out) : STATUS_OK;
  TRY(status);
  status = claims_fpar(session, devices, command->concentration, train->eval_samples, command->draws, &list, &count);
  if (status == STATUS_OK && train->out) status = save_batches(list, count, train->out);
  if (status == STATUS_OK && train->out) status = save_histogram(list, count, train->out);
  if (status == STATUS_OK) status = report_fpar(command, session, devices, list, count);
  free(list);
  return status;
}

static Status run_fpar(int argc, char **argv) {
  static const Claim claim = {"astra-bench fpar --checkpoint DIR --dataset NAME [OPTION...]",
                              "Accuracy by full-precision attention rate: every batch with random, unequal shares of the tokens.",
                              "number of devices; 0: as many as the model was trained for", true, measure_fpar};
  return run_claim(&claim, argc, argv);
}

const CliCommand bench_fpar_command = {"fpar", "measure accuracy by full-precision attention rate, with unequal shares of the tokens",
                                       run_fpar};

/* ---- class-token */

static double ratio_of(const ClassTokenError *error) { return error->one > 0 ? error->mean / error->one : 0; }

/* errors [devices - 1, blocks + 1] */
static Status report_class_token(const ClaimCommand *command, const Session *session, int devices, const ClassTokenError *errors) {
  const int64_t blocks = session->config->blocks;
  json_t *list = json_array();
  if (!command->shared.json)
    printf(
        "squared distance of the class token from that of one device: of one token of N, of their mean, their ratio (1/N by theorem 2),\n"
        "and the correlation of two tokens' errors; at the head, and the ratio at each block's input\n%5s %12s %12s %8s %8s %12s  %s\n",
        "N", "one", "mean", "ratio", "1/N", "correlation", "blocks");
  for (int n = 2; n <= devices; n++) {
    const ClassTokenError *of = errors + (n - 2) * (blocks + 1), *head = &of[blocks];
    const double ratio = ratio_of(head), correlation = (n * ratio - 1) / (n - 1);
    json_t *places = json_array();
    for (int64_t b = 0; b < blocks; b++) json_build_append(&places, json_pack("{s:f, s:f}", "one", of[b].one, "mean", of[b].mean));
    if (command->shared.json)
      json_build_append(&list, json_pack("{s:i, s:f, s:f, s:f, s:f, s:o}", "nodes", n, "one", head->one, "mean", head->mean, "ratio", ratio,
                                         "correlation", correlation, "blocks", places));
    else
      json_decref(places);
    if (command->shared.json) continue;
    printf("%5d %12.5g %12.5g %8.3f %8.3f %12.3f ", n, head->one, head->mean, ratio, 1.0 / n, correlation);
    for (int64_t b = 1; b < blocks; b++) printf(" %.3f", ratio_of(&of[b]));
    putchar('\n');
  }
  if (!command->shared.json) return json_decref(list), STATUS_OK;
  return json_build_print(json_pack("{s:o, s:o}", "checkpoint", json_build_string(command->checkpoint), "devices", list));
}

static Status measure_class_token(const ClaimCommand *command, Session *session) {
  const int devices = command->nodes > 0 ? (int)command->nodes : 8;
  ClassTokenError *errors = calloc((size_t)(devices * (session->config->blocks + 1)), sizeof *errors);
  Status status = errors ? claims_class_token(session, devices, command->shared.train.eval_samples, errors)
                         : status_no_memory(NULL, "errors of class tokens");
  if (status == STATUS_OK) status = report_class_token(command, session, devices, errors);
  free(errors);
  return status;
}

static Status run_class_token(int argc, char **argv) {
  static const Claim claim = {"astra-bench class-token --checkpoint DIR --dataset NAME [OPTION...]",
                              "Error of the mean of N devices' class tokens, compared with that of one, for 2 to --nodes devices.",
                              "largest number of devices; 0: 8", false, measure_class_token};
  return run_claim(&claim, argc, argv);
}

const CliCommand bench_class_token_command = {"class-token", "measure the error of the mean of N class tokens", run_class_token};
