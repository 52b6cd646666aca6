/* What N devices must make of a text, emulated in one process like sample_cluster.h's images: losses, the logits after the last token,
 * and how the text goes on. Contiguous spans in order; the last device's span grows with every new token. */
#ifndef TESTS_SAMPLE_TEXT_H
#define TESTS_SAMPLE_TEXT_H
#include "sample_cluster.h"

enum { SAMPLE_NODES = 64 };

typedef struct SampleText {
  SampleAnswer answer; /* codes in token order, logits [B, V] after the last token, or [B, classes] */
  double loss;         /* sum over the labels that count, nats */
  int64_t counted, correct;
  int64_t length; /* of a text to classify, without its padding */
} SampleText;

static inline void sample_ids(const ModelConfig *config, uint64_t seed, int64_t count, int32_t *ids) {
  Rng rng;
  rng_init(&rng, seed, 2);
  for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)rng_below(&rng, (uint64_t)config->vocabulary);
}

static inline void sample_losses(SampleText *text, const int32_t *labels, const real *losses, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    if (labels[i] < 0) continue;
    text->loss += (double)losses[i];
    text->counted++;
  }
}

/* On a tape that is there; labels may be NULL. */
static inline Status sample_text_pass(SampleCluster *cluster, Tape *tape, const TokenLayout *layout, const int32_t *ids,
                                      const int32_t *labels, SampleText *text) {
  Exchange *exchange = layout->devices > 1 ? &text->answer.exchange : NULL;
  int64_t rows = text->answer.batch * layout->tokens;
  ModelInput input = {.ids = ids, .batch = text->answer.batch};
  Tensor *logits;
  if (cluster->config.classes > 0) { /* as training does it: of all rows that of the last token, which padding may follow */
    int32_t *last = tape_alloc(tape, (size_t)input.batch * sizeof *last);
    for (int64_t b = 0; b < input.batch; b++) last[b] = (int32_t)text->length - 1;
    Tensor *all = model_encode(cluster->model, tape, &input, layout, exchange, MODEL_ROWS_ALL);
    logits = model_classify(cluster->model, tape, op_select_rows(tape, all, last));
  } else {
    logits = model_logits(cluster->model, tape, model_encode(cluster->model, tape, &input, layout, exchange, MODEL_ROWS_LAST));
  }
  if (!logits) return tape_status(tape);
  memcpy(text->answer.logits, logits->value, (size_t)tensor_count(logits) * sizeof(real));
  if (!labels) return STATUS_OK;
  VocabLoss options = {.labels = labels, .correct = &text->correct, .row_loss = tape_alloc(tape, (size_t)rows * sizeof(real))};
  model_token_loss(cluster->model, tape, model_encode(cluster->model, tape, &input, layout, exchange, MODEL_ROWS_ALL), &options);
  TRY(tape_status(tape));
  sample_losses(text, labels, options.row_loss, rows);
  return STATUS_OK;
}

/* ids, labels [batch, tokens]; counts [devices]; length: tokens of a text to classify without its padding. */
static inline Status sample_padded_text(SampleCluster *cluster, int devices, const int64_t *counts, const int32_t *ids,
                                        const int32_t *labels, int64_t batch, int64_t tokens, int64_t length, SampleText *text) {
  const ModelConfig *config = &cluster->config;
  TokenLayout layout = {0};
  const Exchange exchange = {.begin = sample_begin, .finish = sample_finish, .know = sample_know};
  *text = (SampleText){.answer = {.exchange = exchange, .cluster = cluster, .batch = batch}, .length = length};
  text->answer.codes =
      calloc((size_t)(config->blocks * config_sites(config) * batch * tokens * (config->astra.groups + 1)), sizeof(int32_t));
  text->answer.logits = calloc((size_t)(batch * config->vocabulary), sizeof(real));
  Arena *arena = arena_new((size_t)1 << 32);
  Tape *tape = tape_new(arena);
  tape_record(tape, false);
  Status status =
      devices > 1 ? layout_build(&layout, tokens, devices, counts, NULL, CLASS_NONE, -1) : layout_build_plain(&layout, tokens, CLASS_NONE);
  if (status == STATUS_OK) status = sample_text_pass(cluster, tape, &layout, ids, labels, text);
  layout_release(&layout);
  tape_free(tape);
  arena_free(arena);
  return status;
}

static inline Status sample_text(SampleCluster *cluster, int devices, const int64_t *counts, const int32_t *ids, const int32_t *labels,
                                 int64_t batch, int64_t tokens, SampleText *text) {
  return sample_padded_text(cluster, devices, counts, ids, labels, batch, tokens, tokens, text);
}

static inline void sample_text_release(SampleText *text) { sample_answer_release(&text->answer); }

static inline int32_t sample_likeliest(const real *logits, int64_t count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; i++) {
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

/* ids [prompt + most]: the prompt's on entry, the new ones behind it on return. A pass over all of it for every token. */
static inline Status sample_go_on(SampleCluster *cluster, int devices, const int64_t *counts, int32_t *ids, int64_t prompt, int64_t max) {
  int64_t spans[SAMPLE_NODES];
  memcpy(spans, counts, (size_t)devices * sizeof *spans);
  for (int64_t tokens = prompt; tokens < prompt + max; tokens++, spans[devices - 1]++) {
    SampleText text;
    Status status = sample_text(cluster, devices, spans, ids, NULL, 1, tokens, &text);
    if (status == STATUS_OK) ids[tokens] = sample_likeliest(text.answer.logits, cluster->config.vocabulary);
    sample_text_release(&text);
    if (status != STATUS_OK) return status;
  }
  return STATUS_OK;
}

/* selftest.safetensors of `batch` texts of that many tokens, as training writes it, over even spans of config.astra.devices. Of texts to
 * classify `length` tokens are no padding. */
static inline Status sample_save_padded_selftest(SampleCluster *cluster, const char *directory, int64_t batch, int64_t tokens,
                                                 int64_t length) {
  const ModelConfig *config = &cluster->config;
  bool classes = config->classes > 0;
  int32_t lengths[64];
  for (int64_t b = 0; b < batch; b++) lengths[b] = (int32_t)length;
  int devices = config->astra.groups ? config->astra.devices : 1, sites = config_sites(config);
  int sets = devices > 1 ? (int)config_codebooks(config) : 0;
  int64_t counts[SAMPLE_NODES], numbers = batch * tokens;
  int32_t *ids = malloc((size_t)numbers * sizeof *ids), *labels = malloc((size_t)numbers * sizeof *labels), device_of[1024];
  SafeItem items[64];
  char names[56][48], path[4096];
  SampleText text;
  size_t count = 0;
  sample_ids(config, 7, numbers, ids);
  sample_ids(config, 9, numbers, labels);
  for (int64_t i = 0; i < numbers; i += 7) labels[i] = -1;
  for (int64_t i = 0; i < numbers; i++) ids[i] = i % tokens < length ? ids[i] : 0;
  layout_even_counts(tokens, devices, counts);
  for (int64_t d = 0, i = 0; d < devices; i += counts[d++]) {
    for (int64_t j = 0; j < counts[d]; j++) device_of[i + j] = (int32_t)d;
  }
  TRY(sample_padded_text(cluster, devices, counts, ids, classes ? NULL : labels, batch, tokens, length, &text));
  real loss = (real)(text.loss / (double)text.counted);
  items[count++] = (SafeItem){.name = "ids", .dtype = SAFE_I32, .source = SAFE_I32, .dims = 2, .shape = {batch, tokens}, .data = ids};
  if (classes)
    items[count++] = (SafeItem){.name = "lengths", .dtype = SAFE_I32, .source = SAFE_I32, .dims = 1, .shape = {batch}, .data = lengths};
  else
    items[count++] =
        (SafeItem){.name = "labels", .dtype = SAFE_I32, .source = SAFE_I32, .dims = 2, .shape = {batch, tokens}, .data = labels};
  if (!classes) items[count++] = (SafeItem){.name = "loss", .dtype = SAFE_F32, .source = SAFE_REAL, .dims = 1, .shape = {1}, .data = &loss};
  items[count++] = (SafeItem){.name = "logits",
                              .dtype = SAFE_F32,
                              .source = SAFE_REAL,
                              .dims = 2,
                              .shape = {batch, classes ? config->classes : config->vocabulary},
                              .data = text.answer.logits};
  if (sets)
    items[count++] =
        (SafeItem){.name = "device_of", .dtype = SAFE_I32, .source = SAFE_I32, .dims = 1, .shape = {tokens}, .data = device_of};
  for (int i = 0; i < sets && i < 56; i++) {
    snprintf(names[i], sizeof names[i], "codes.astra.layers.%d.%s", config_first_coded(config) + i / sites,
             sites == 1 ? "x"
             : i % 2    ? "v"
                        : "k");
    items[count++] = (SafeItem){.name = names[i],
                                .dtype = SAFE_I32,
                                .source = SAFE_I32,
                                .dims = 3,
                                .shape = {batch, tokens, config->astra.groups},
                                .data = text.answer.codes + i * numbers * config->astra.groups};
  }
  snprintf(path, sizeof path, "%s/selftest.safetensors", directory);
  Status status = safetensors_save(path, items, count, NULL);
  free(ids);
  free(labels);
  sample_text_release(&text);
  return status;
}

static inline Status sample_save_text_selftest(SampleCluster *cluster, const char *directory, int64_t batch, int64_t tokens) {
  return sample_save_padded_selftest(cluster, directory, batch, tokens, tokens);
}

#endif
