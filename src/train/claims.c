/* Claims of the paper on a trained model: see claims.h. */
#include "train/claims.h"
#include "autograd/tape.h"
#include "base/array.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/rng.h"
#include "train/emulate.h"
#include "train/ranks.h"
#include "train/task.h"
#include <stdlib.h>
#include <string.h>

enum { STREAM_SHARES = 21 };

static int64_t samples_of(const Session *session, int64_t samples) {
  const int64_t available = session->data.count[TASK_TEST];
  return samples <= 0 || samples > available ? available : samples;
}

/* The next batch of the test part, cut to what is left of `samples`. */
static Status next_batch(Session *session, int64_t done, int64_t samples, TaskBatch *batch) {
  if (interrupt_asked()) return status_set(STATUS_INTERRUPTED, "the measurement was interrupted");
  TRY(session->task->source->next(session, TASK_TEST, batch));
  if (batch->count > samples - done) batch->count = (int)(samples - done);
  return STATUS_OK;
}

/* ---- Accuracy by full-precision attention rate ---- */

static double fpar_of(const TokenLayout *layout) {
  int64_t counts[SESSION_DEVICES];
  for (int d = 0; d < layout->devices; d++) counts[d] = layout->device_shared[d + 1] - layout->device_shared[d];
  return layout_fpar(layout->shared, layout->devices, counts);
}

static Status fpar_batch(Session *session, const TaskBatch *batch, const DeviceMapOptions *map, Rng *rng, FparBatch *to) {
  *to = (FparBatch){.fpar = 0};
  TRY(device_map_draw(&session->layout, batch->tokens, session->config->astra.class_token, map, rng, session->order));
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

Status claims_fpar(Session *session, int devices, double concentration, int64_t samples, int64_t draws, FparBatch **list, int64_t *count) {
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
      if (status == STATUS_OK) status = fpar_batch(session, &batch, &map, &rng, &(*list)[(*count)++]);
      if (status == STATUS_OK) done += batch.count;
      if (progress.terminal) progress_update(&progress, draw * samples + done, NULL);
    }
  }
  progress_wipe(&progress);
  if (status == STATUS_OK) qsort(*list, (size_t)*count, sizeof **list, by_fpar);
  return status;
}

void claims_fpar_bins(const FparBatch *list, int64_t count, int bins, FparBin *bin) {
  int64_t all = 0, before = 0;
  for (int b = 0; b < bins; b++) bin[b] = (FparBin){.low = 0};
  for (int64_t i = 0; i < count; i++) all += list[i].score.samples;
  for (int64_t i = 0; i < count; i++) {
    FparBin *to = &bin[all > 0 ? before * bins / all : 0];
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

/* Told of the class tokens of each block: first those of the plain model, which it keeps, then those of devices, which it compares. */
typedef struct ClassWatch {
  Exchange exchange;
  real *plain, *row; /* [blocks + 1, samples of a batch, W]; [W] */
  double *mean;      /* [W] */
  int64_t width, room;
  ClassTokenError *errors; /* [blocks + 1], to be added to; NULL: keep */
} ClassWatch;

/* rows [B, R, W], of which the class tokens are `at` [class tokens]; NULL: all. */
static void watch_class_tokens(ClassWatch *watch, const Tensor *rows, int64_t tokens, const int32_t *at, int64_t place) {
  const int64_t batch = rows->shape[0], all = rows->shape[1], width = tensor_width(rows);
  for (int64_t b = 0; b < batch; b++) {
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
  Progress progress;
  Status status = session->task->source->seek(session, TASK_TEST, 0, 0);
  progress_start(&progress, "comparing class tokens", samples, session->options.quiet);
  for (int64_t done = 0; done < samples && status == STATUS_OK;) {
    TaskBatch batch;
    status = next_batch(session, done, samples, &batch);
    if (status == STATUS_OK) status = watch_pass(session, watch, &batch, 1, NULL);
    for (int n = 2; n <= devices && status == STATUS_OK; n++) status = watch_pass(session, watch, &batch, n, errors + (n - 2) * places);
    if (status == STATUS_OK) done += batch.count;
    if (progress.terminal) progress_update(&progress, done, NULL);
  }
  progress_wipe(&progress);
  for (int64_t i = 0; i < (devices - 1) * places; i++) errors[i].one /= (double)samples, errors[i].mean /= (double)samples;
  return status;
}

Status claims_class_token(Session *session, int devices, int64_t samples, ClassTokenError *errors) {
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
