/* The paper's table of quantisation: checkpoints (the original on one device, ASTRA on as many as it was trained for) with weights as they
 * are, computed in 32 bits, of 8 and of 4 bits; accuracy or perplexity through the real processes, and the time of one image or window.
 * All nodes are processes of this machine and share its cores: latency compares widths of numbers, not numbers of devices
 * (astra-bench latency does). */
#include "base/clock.h"
#include "base/printable.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/infer_run.h"
#include "data/text/text_source.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/evaluate.h"
#include "nn/json_build.h"
#include <stdlib.h>
#include <string.h>

enum { WIDTHS = 3, IMAGE_BATCH = 64, TEXT_BATCH_TOKENS = 4096, DEFAULT_IMAGES = 1000, DEFAULT_WINDOWS = 32, TABLE_BYTES = 512 << 20 };
static const int bits_of[WIDTHS] = {32, 8, 4};
static const WeightsBits weights_of[WIDTHS] = {WEIGHTS_AS_THEY_ARE, WEIGHTS_INT8, WEIGHTS_INT4};

typedef struct QuantizeBench {
  OptionTexts checkpoints;
  const char *dataset, *data_dir;
  int64_t samples, nodes, repeats, threads;
  bool json;
} QuantizeBench;

/* One checkpoint at one width. */
typedef struct Cell {
  bool text; /* a language model: quality is a perplexity, else the share of right answers */
  int nodes;
  int64_t samples, bytes; /* of the parameters */
  double quality;
  BenchTiming latency;
} Cell;

/* ---- one cell ---- */

typedef struct Running {
  const QuantizeBench *bench;
  const char *directory;
  Weights weights;
  Partition partition;
  TokenSplit split;
  Leader *leader;
  Cell *cell;
} Running;

static LeaderOptions leader_options(const Running *r, int64_t batch) {
  const int threads = r->bench->threads > 0 ? (int)r->bench->threads : r->cell->nodes == 1 ? 0 : 1;
  return (LeaderOptions){.batch_max = batch, .timeout = 60, .threads = threads};
}

/* Time of one request after another; the first is left out. */
static Status time_requests(Running *r, Status (*submit)(Running *r, void *input), void *input) {
  const int64_t repeats = r->bench->repeats;
  double *seconds = malloc((size_t)repeats * sizeof *seconds);
  if (seconds == NULL) return status_no_memory(NULL, "times");
  Status status = STATUS_OK;
  for (int64_t i = -1; i < repeats && status == STATUS_OK; i++) {
    LeaderAnswer answer;
    const double begun = clock_now();
    status = submit(r, input);
    if (status == STATUS_OK) status = leader_collect(r->leader, &answer);
    if (i >= 0) seconds[i] = clock_now() - begun;
  }
  if (status == STATUS_OK) r->cell->latency = bench_timing_of(seconds, repeats);
  free(seconds);
  return status;
}

static Status submit_image(Running *r, void *pixels) { return leader_submit(r->leader, pixels, 1); }

static Status run_images(Running *r) {
  const ModelConfig *config = r->weights.config;
  const int64_t side = config->image / config->patch, pixels = weights_pixels(&r->weights);
  Dataset *set;
  Evaluation evaluation;
  TRY(partition_init(&r->partition, config_tokens(config), r->cell->nodes, NULL));
  TRY(partition_place(&r->partition, &config->astra.layout, side, side));
  const LeaderOptions options = leader_options(r, IMAGE_BATCH);
  TRY(leader_start(&r->leader, &r->weights, &r->partition, &options));
  TRY(dataset_open(&set, r->bench->dataset, r->bench->data_dir, DATASET_TEST));
  Status status =
      evaluate_run(r->leader, set, r->bench->samples > 0 ? r->bench->samples : DEFAULT_IMAGES, IMAGE_BATCH, true, NULL, &evaluation);
  dataset_close(set);
  if (status != STATUS_OK) return status;
  r->cell->samples = evaluation.scores.samples;
  r->cell->quality = (double)evaluation.scores.correct1 / (double)evaluation.scores.samples;
  float *image = calloc((size_t)pixels, sizeof *image); /* what it shows takes no more and no less time */
  if (image == NULL) return status_no_memory(NULL, "an image");
  status = time_requests(r, submit_image, image);
  free(image);
  return status;
}

typedef struct TextInput {
  int32_t *ids;
  int64_t tokens;
} TextInput;

static Status submit_text(Running *r, void *input) {
  const TextInput *text = input;
  return leader_text_last(r->leader, text->ids, 1, text->tokens);
}

static Status run_windows(Running *r, const Vocabulary *vocabulary, const TextWindows *windows) {
  const int64_t context = windows->context, batch = context < TEXT_BATCH_TOKENS ? TEXT_BATCH_TOKENS / context : 1;
  TextEvaluation evaluation;
  LeaderOptions options = leader_options(r, batch);
  options.tokens_max = context;
  TRY(token_split_init(&r->split, r->cell->nodes, NULL));
  TRY(leader_start_text(&r->leader, &r->weights, &r->split, &options));
  const int64_t samples = r->bench->samples > 0 ? r->bench->samples : DEFAULT_WINDOWS;
  TRY(evaluate_text_run(r->leader, vocabulary, windows, samples, batch, true, NULL, &evaluation));
  r->cell->samples = evaluation.windows;
  r->cell->quality = evaluation.perplexity;
  TextInput input = {.ids = malloc((size_t)context * sizeof *input.ids), .tokens = context};
  if (input.ids == NULL) return status_no_memory(NULL, "a window");
  for (int64_t i = 0; i < context; i++) input.ids[i] = (int32_t)(i * 7 % r->weights.config->vocabulary);
  Status status = time_requests(r, submit_text, &input);
  free(input.ids);
  return status;
}

static Status run_text(Running *r) {
  Vocabulary vocabulary;
  TextEncoder encoder;
  TextSource *source;
  TokenCache *cache = NULL;
  TextWindows windows;
  TRY(vocabulary_open(&vocabulary, r->directory, r->weights.config));
  Status status = tokenizer_encoder(&encoder, vocabulary.tokenizer);
  if (status == STATUS_OK)
    status = text_source_open(&source, r->bench->dataset, r->bench->data_dir, text_source_eval_part(r->bench->dataset, r->bench->data_dir));
  if (status == STATUS_OK) {
    status = token_cache_open(&cache, source, &encoder, &(TokenCacheOptions){.quiet = true});
    text_source_close(source);
  }
  if (status == STATUS_OK) status = text_windows_init(&windows, cache, r->weights.config->context, r->weights.config->context);
  if (status == STATUS_OK) status = run_windows(r, &vocabulary, &windows);
  token_cache_close(cache);
  vocabulary_close(&vocabulary);
  return status;
}

static Status run_loaded(Running *r, WeightsBits bits) {
  const ModelConfig *config = r->weights.config;
  const bool text = config_is_decoder(config) && config->classes == 0;
  if (config_is_decoder(config) && !text)
    return status_set(STATUS_UNSUPPORTED, "%s classifies texts: quantize takes models of images and of the next token", r->directory);
  if (text_source_knows(r->bench->dataset) != text)
    return status_set(STATUS_BAD_USAGE, "--dataset %s: %s takes %s", r->bench->dataset, r->directory,
                      text ? "a text (text:PATH)" : "images (cifar100, folder:DIR)");
  TRY(weights_quantise(&r->weights, bits));
  r->cell->text = text;
  r->cell->bytes = lowbit_weights_all_bytes(r->weights.model);
  r->cell->nodes = r->weights.books == NULL    ? 1
                   : r->bench->nodes > 0       ? (int)r->bench->nodes
                   : config->astra.devices > 0 ? config->astra.devices
                                               : 1;
  if (r->cell->nodes > 1) TRY(weights_make_tables(&r->weights, (size_t)TABLE_BYTES)); /* as astra-infer does */
  return text ? run_text(r) : run_images(r);
}

/* ---- the table ---- */

static void print_row(const char *checkpoint, int width, const Cell *cell, const Cell *full) {
  printf("%-24s %4d %6d %10.1f", width == 0 ? printable(checkpoint) : "", bits_of[width], cell->nodes, (double)cell->bytes / 1e6);
  if (cell->text)
    printf("  %10.4f %+8.2f%%", cell->quality, 100 * (cell->quality / full->quality - 1));
  else
    printf("  %9.2f%% %+8.2f ", 100 * cell->quality, 100 * (cell->quality - full->quality));
  printf(" %12.2f %10.2f %8.2f\n", 1e3 * cell->latency.median, 1e3 * cell->latency.min, full->latency.median / cell->latency.median);
  fflush(stdout);
}

static json_t *cell_json(const char *checkpoint, int width, const Cell *cell, const Cell *full) {
  json_t *object =
      json_pack("{s:o, s:i, s:i, s:I, s:I, s:f}", "checkpoint", json_build_string(checkpoint), "bits", bits_of[width], "nodes", cell->nodes,
                "bytes", (json_int_t)cell->bytes, "samples", (json_int_t)cell->samples, cell->text ? "perplexity" : "top1", cell->quality);
  if (object == NULL) return NULL;
  bench_timing_json(&cell->latency, object);
  json_object_set_new(object, "speedup", json_real(full->latency.median / cell->latency.median));
  return object;
}

static Status run_checkpoint(const QuantizeBench *bench, const char *checkpoint, json_t **rows) {
  Cell cells[WIDTHS] = {0};
  char *directory = NULL;
  TRY(infer_run_find(checkpoint, &directory));
  Status status = STATUS_OK;
  for (int width = 0; width < WIDTHS && status == STATUS_OK; width++) {
    Running r = {.bench = bench, .directory = directory, .cell = &cells[width]};
    status = weights_load(&r.weights, directory);
    if (status == STATUS_OK) status = run_loaded(&r, weights_of[width]);
    leader_stop(r.leader);
    partition_release(&r.partition);
    weights_release(&r.weights);
    if (status == STATUS_OK && rows) json_build_append(rows, cell_json(checkpoint, width, &cells[width], &cells[0]));
    if (status == STATUS_OK && !rows) print_row(checkpoint, width, &cells[width], &cells[0]);
  }
  free(directory);
  return status;
}

static Status run_all(const QuantizeBench *bench) {
  json_t *rows = bench->json ? json_array() : NULL;
  if (!bench->json)
    printf("%-24s %4s %6s %10s  %10s %9s %12s %10s %8s\n", "checkpoint", "bits", "nodes", "MB", "quality", "against 32", "ms, median",
           "ms, min", "speed-up");
  Status status = STATUS_OK;
  for (int i = 0; i < bench->checkpoints.count && status == STATUS_OK; i++)
    status = run_checkpoint(bench, bench->checkpoints.list[i], bench->json ? &rows : NULL);
  if (!bench->json || status != STATUS_OK) {
    json_decref(rows);
    return status;
  }
  return json_build_print(json_pack("{s:o, s:o}", "dataset", json_build_string(bench->dataset), "rows", rows));
}

static Status run_quantize(int argc, char **argv) {
  QuantizeBench bench = {.repeats = 20};
  Option options[] = {
      {OPTION_GROUP, .help = "What to run:"},
      {OPTION_TEXTS, "checkpoint", 'c', &bench.checkpoints, "DIR",
       .help = "directory of a model, or the name of an installed one; several: the original, and ASTRA (required)"},
      {OPTION_TEXT, "dataset", 'd', &bench.dataset, "NAME", .help = "data set, as for astra-infer eval (required)"},
      {OPTION_TEXT, "data-dir", 0, &bench.data_dir, "DIR", .help = "directory searched first for the data set"},
      {OPTION_INT, "samples", 's', &bench.samples, "N", .min = 0, .max = 1e12,
       .help = "number of images or windows to evaluate; 0: 1,000 or 32"},
      {OPTION_INT, "nodes", 'n', &bench.nodes, "N", .min = 0, .max = WIRE_NODES,
       .help = "number of nodes for ASTRA; 0: as many as it was trained for"},
      {OPTION_GROUP, .help = "Measuring:"},
      {OPTION_INT, "repeats", 0, &bench.repeats, "N", .min = 1, .max = BENCH_REPEATS_MAX, .help = "timed requests of one image or window"},
      {OPTION_INT, "threads", 't', &bench.threads, "N", .min = 0, .max = THREADS_MAX,
       .help = "threads per node; 0: one, or all cores for a single node"},
      {OPTION_FLAG, "json", 'j', &bench.json, .help = "print one JSON object instead of text"},
      {.kind = OPTION_GROUP}};
  if (cli_helped(options, "astra-bench quantize --checkpoint DIR [--checkpoint DIR...] --dataset NAME [OPTION...]",
                 "Accuracy and latency of checkpoints with weights of 32, 8 and 4 bits.", argc, argv))
    return STATUS_OK;
  TRY(cli_parse(options, argc, argv));
  if (bench.checkpoints.count == 0) return status_set(STATUS_BAD_USAGE, "--checkpoint DIR is missing: a model to measure");
  if (bench.dataset == NULL)
    return status_set(STATUS_BAD_USAGE, "--dataset NAME is missing: the images or the text to evaluate the models on");
  TRY(cli_check_kernels(NULL));
  return run_all(&bench);
}

const CliCommand bench_quantize_command = {"quantize", "measure accuracy and latency of checkpoints with weights of 32, 8 and 4 bits",
                                           run_quantize};
