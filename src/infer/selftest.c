/* Reads the samples, runs them through the nodes, emulates the nodes with the codes that were sent, and compares. "Image" stands for texts
 * too. */
#include "infer/selftest.h"
#include "autograd/ops/ops.h"
#include "autograd/tape.h"
#include "base/arena.h"
#include "infer/cluster/leader.h"
#include "nn/safetensors.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the samples, and training's results for them ---- */

typedef struct Samples {
  int64_t count, tokens, classes; /* B, T, numbers of an answer: classes or, where tokens are predicted, V */
  int64_t pixels;                 /* of an image */
  int64_t length;                 /* of a text in the file without its padding, which is left out here: T; 0 for images */
  int sets;                       /* of codes: blocks * sites; 0 for one node */
  int64_t groups;
  float *pixel_values; /* [count, pixels]; NULL for texts */
  int32_t *ids;        /* [count, tokens]; NULL for images */
  int32_t *labels;     /* [count, tokens], -1: does not count; NULL: there is no loss */
  double loss;         /* mean over the labels that count */
  real *logits;        /* [count, classes] */
  int32_t *device_of;  /* [tokens]; NULL for one node */
  int32_t **codes;     /* [sets] -> [count, tokens, groups] */
} Samples;

static Status find(const SafeFile *file, const char *name, int dims, const int64_t *shape, const SafeTensor **tensor) {
  *tensor = safetensors_find(file, name);
  if (!*tensor) return status_set(STATUS_BAD_FILE, "%s: there is no tensor %s", file->path, name);
  bool same = (*tensor)->dims == dims;
  for (int i = 0; same && i < dims; i++) same = (*tensor)->shape[i] == shape[i];
  if (same) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: the shape of %s does not fit this model", file->path, name);
}

static Status read_reals(const SafeFile *file, const char *name, int dims, const int64_t *shape, real **out) {
  const SafeTensor *tensor;
  TRY(find(file, name, dims, shape, &tensor));
  *out = malloc((size_t)tensor->count * sizeof(real));
  if (!*out) return status_no_memory(NULL, name);
  Status status = safetensors_to_real(tensor, *out);
  return status == STATUS_OK ? status : status_wrap(status, "%s", file->path);
}

static Status read_integers(const SafeFile *file, const char *name, int dims, const int64_t *shape, int32_t **out) {
  const SafeTensor *tensor;
  TRY(find(file, name, dims, shape, &tensor));
  *out = malloc((size_t)tensor->count * sizeof(int32_t));
  if (!*out) return status_no_memory(NULL, name);
  Status status = safetensors_to_int32(tensor, *out);
  return status == STATUS_OK ? status : status_wrap(status, "%s", file->path);
}

/* Of several bit rates the tensors of that with the most groups are called `name`, those of another one groupsR.NAME. */
enum { RATE_NAME = 96 };
static const char *rate_name(const ModelConfig *config, const char *name, char text[RATE_NAME]) {
  char rate[CONFIG_RATE_PREFIX];
  snprintf(text, RATE_NAME, "%s%s", config_rate_prefix(config, config_rate(config), rate), name);
  return text;
}

/* ---- images ---- */

static Status read_images(const SafeFile *file, const ModelConfig *config, Samples *samples) {
  const SafeTensor *pixels = safetensors_find(file, "pixel_values");
  if (!pixels || pixels->dims != 4 || pixels->shape[0] < 1)
    return status_set(STATUS_BAD_FILE, "%s: there is no tensor pixel_values [B, C, H, W]", file->path);
  const int64_t shape[4] = {samples->count = pixels->shape[0], config->channels, config->image, config->image};
  const int64_t answers[2] = {shape[0], config->classes};
  real *values = NULL;
  samples->pixels = shape[1] * shape[2] * shape[3];
  samples->tokens = config_tokens(config);
  samples->classes = config->classes;
  Status status = read_reals(file, "pixel_values", 4, shape, &values);
  if (status == STATUS_OK && !(samples->pixel_values = malloc((size_t)pixels->count * sizeof(float))))
    status = status_no_memory(NULL, "the sample images");
  for (int64_t i = 0; status == STATUS_OK && i < pixels->count; i++) samples->pixel_values[i] = (float)values[i];
  free(values);
  char name[RATE_NAME];
  return status == STATUS_OK ? read_reals(file, rate_name(config, "logits", name), 2, answers, &samples->logits) : status;
}

/* ---- texts ---- */

static Status check_ids(const SafeFile *file, const char *name, const int32_t *ids, int64_t count, int64_t min, int64_t vocabulary) {
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] < min || ids[i] >= vocabulary)
      return status_set(STATUS_BAD_FILE, "%s: %s holds id %d, the vocabulary has %lld tokens", file->path, name, (int)ids[i],
                        (long long)vocabulary);
  }
  return STATUS_OK;
}

static Status read_ids(const SafeFile *file, const ModelConfig *config, Samples *samples) {
  const char *name = safetensors_find(file, "ids") ? "ids" : "input_ids";
  const SafeTensor *ids = safetensors_find(file, name);
  if (!ids || ids->dims != 2 || ids->shape[0] < 1 || ids->shape[1] < 1)
    return status_set(STATUS_BAD_FILE, "%s: there is no tensor ids [B, T]", file->path);
  if (ids->shape[1] > config->context)
    return status_set(STATUS_BAD_FILE, "%s: texts of %lld tokens; the model takes at most %lld", file->path, (long long)ids->shape[1],
                      (long long)config->context);
  samples->count = ids->shape[0];
  samples->tokens = ids->shape[1];
  TRY(read_integers(file, name, 2, ids->shape, &samples->ids));
  return check_ids(file, name, samples->ids, ids->count, 0, config->vocabulary);
}

/* The reference implementation stores the losses of tokens and of codebooks separately: the first is meant. */
static Status read_loss(const SafeFile *file, const ModelConfig *config, Samples *samples) {
  char of_rate[RATE_NAME];
  const char *name = safetensors_find(file, "task_loss") ? "task_loss" : rate_name(config, "loss", of_rate);
  const int64_t shape[2] = {samples->count, samples->tokens}, one = 1;
  real *loss = NULL;
  if (!safetensors_find(file, "labels") || !safetensors_find(file, name)) return STATUS_OK;
  Status status = read_reals(file, name, 1, &one, &loss);
  if (status == STATUS_OK) samples->loss = (double)loss[0];
  free(loss);
  if (status == STATUS_OK) status = read_integers(file, "labels", 2, shape, &samples->labels);
  return status == STATUS_OK ? check_ids(file, "labels", samples->labels, shape[0] * shape[1], -1, config->vocabulary) : status;
}

/* Texts to classify have one length, and padding may follow: for a text with fewer tokens than devices training emulates one token per
 * device. Padding changes nothing before it, and is left out here. */
static Status read_length(const SafeFile *file, Samples *samples) {
  int32_t *lengths = NULL;
  samples->length = samples->tokens;
  if (!safetensors_find(file, "lengths")) return STATUS_OK;
  Status status = read_integers(file, "lengths", 1, &samples->count, &lengths);
  if (status == STATUS_OK) samples->length = lengths[0];
  if (status == STATUS_OK && (samples->length < 1 || samples->length > samples->tokens))
    status = status_set(STATUS_BAD_FILE, "%s: a text of %lld tokens in %lld places", file->path, (long long)samples->length,
                        (long long)samples->tokens);
  for (int64_t b = 1; status == STATUS_OK && b < samples->count; b++) {
    if (lengths[b] != lengths[0]) status = status_set(STATUS_BAD_FILE, "%s: lengths differ; texts of one length are expected", file->path);
  }
  free(lengths);
  return status;
}

/* The first `length` of `tokens` rows [B, tokens, width]. */
static void cut_rows(int32_t *rows, int64_t batch, int64_t tokens, int64_t length, int64_t width) {
  for (int64_t b = 1; b < batch; b++)
    memmove(rows + b * length * width, rows + b * tokens * width, (size_t)(length * width) * sizeof *rows);
}

static Status read_texts(const SafeFile *file, const ModelConfig *config, Samples *samples) {
  samples->classes = config->classes > 0 ? config->classes : config->vocabulary;
  TRY(read_ids(file, config, samples));
  TRY(read_length(file, samples));
  if (config->classes == 0) TRY(read_loss(file, config, samples));
  /* Logits of the last tokens [B, V], or the last rows of those of all tokens [B, T, V]. */
  char name[RATE_NAME];
  const char *logits = rate_name(config, "logits", name);
  const SafeTensor *tensor = safetensors_find(file, logits);
  const int64_t all[3] = {samples->count, samples->tokens, samples->classes}, last[2] = {samples->count, samples->classes};
  if (!tensor || tensor->dims != 3) return read_reals(file, logits, 2, last, &samples->logits);
  TRY(read_reals(file, logits, 3, all, &samples->logits));
  for (int64_t b = 0; b < samples->count; b++)
    memmove(samples->logits + b * samples->classes, samples->logits + ((b + 1) * samples->tokens - 1) * samples->classes,
            (size_t)samples->classes * sizeof(real));
  return STATUS_OK;
}

/* ---- codes ---- */

static Status read_codes(const SafeFile *file, const Weights *weights, Samples *samples) {
  int64_t shape[3] = {samples->count, samples->tokens, weights->config->astra.groups};
  char codes[64], place[CONFIG_CODEBOOK_PLACE], name[RATE_NAME];
  TRY(read_integers(file, "device_of", 1, &samples->tokens, &samples->device_of));
  samples->sets = weights->book_count;
  samples->groups = shape[2];
  samples->codes = calloc((size_t)samples->sets, sizeof(int32_t *));
  if (!samples->codes) return status_no_memory(NULL, "the sample codes");
  for (int i = 0; i < samples->sets; i++) {
    snprintf(codes, sizeof codes, "codes.%s", config_codebook_place(weights->config, i, place));
    TRY(read_integers(file, rate_name(weights->config, codes, name), 3, shape, &samples->codes[i]));
    for (int64_t j = 0; j < shape[0] * shape[1] * shape[2]; j++) {
      if (samples->codes[i][j] < 0 || samples->codes[i][j] >= weights->config->astra.codebook_size)
        return status_set(STATUS_BAD_FILE, "%s: %s holds code %d, the codebook has %d", file->path, codes, (int)samples->codes[i][j],
                          weights->config->astra.codebook_size);
    }
  }
  return STATUS_OK;
}

/* ---- the file ---- */

/* NOT_FOUND and BAD_FILE name the file and the tensor. Release the samples also after a failure. */
static Status read_samples(Samples *samples, const Weights *weights, const char *path) {
  SafeFile file;
  *samples = (Samples){.count = 0};
  TRY(safetensors_open(&file, path));
  Status status = (config_is_decoder(weights->config) ? read_texts : read_images)(&file, weights->config, samples);
  if (status == STATUS_OK && weights->books) status = read_codes(&file, weights, samples);
  if (status == STATUS_OK && samples->ids && samples->length < samples->tokens) {
    cut_rows(samples->ids, samples->count, samples->tokens, samples->length, 1);
    for (int i = 0; i < samples->sets; i++) cut_rows(samples->codes[i], samples->count, samples->tokens, samples->length, samples->groups);
    samples->tokens = samples->length;
  }
  safetensors_close(&file);
  return status;
}

/* ---- an emulation of all nodes with given codes: the input of every quantisation site, if those codes are what the nodes have sent. One
 * forward pass of all rows whose exchange looks up the given codes instead of finding them. Tokens without a code are quantised here: a
 * single class token, and the tokens of a text's last node, which no other node sees. ---- */

/* Called for each site with the content tokens' activations in their order, whole [B, T, W], and x [B, T, W], what is quantised of them:
 * with predictions less what is expected, else the same. */
typedef void ReplaySee(void *context, int block, int site, const real *x, const real *whole);

/* Images or texts, and how they are divided. */
typedef struct ReplayInput {
  int64_t batch, tokens;      /* B, T */
  const Partition *partition; /* of images; else NULL */
  const float *pixels;        /* [B, C, H, W] */
  const TokenSplit *split;    /* of texts; else NULL */
  const int32_t *ids;         /* [B, T] */
} ReplayInput;

typedef struct Replay {
  Exchange exchange; /* first */
  const Weights *weights;
  const int32_t *codes;
  ReplaySee *see;
  void *context;
  int64_t tokens;
  Tensor *remote[EXCHANGE_SITES]; /* of each site, of the last block that has begun */
  Tensor *known;                  /* of it, with predictions: exchange.h */
  int32_t *own_code;              /* [G] of the class token */
  void *scratch;
} Replay;

static const size_t replay_arena_bytes = (size_t)1 << 36;

/* Number of a site's codes and codebook. */
static int set_of(const ModelConfig *config, int block, int site) {
  return (block - config_first_coded(config)) * config_sites(config) + site;
}

static int32_t token_of(const TokenLayout *layout, int64_t shared) { return layout->row_token[layout->shared_row[shared]]; }

/* rows [B, shared, W] -> their codewords. */
static void look_up(const Replay *replay, const TokenLayout *layout, int set, const Tensor *rows, real *out) {
  const Codebook *book = &replay->weights->books[set];
  const int64_t batch = rows->shape[0];
  const int32_t *codes = replay->codes + (int64_t)set * batch * replay->tokens * book->groups;
  for (int64_t i = 0; i < batch * layout->shared; i++) {
    const int32_t token = token_of(layout, i % layout->shared);
    const int32_t *code = token < 0 ? replay->own_code : codes + (i / layout->shared * replay->tokens + token) * book->groups;
    if (token >= 0 && code[0] < 0) code = replay->own_code;
    if (code == replay->own_code) codebook_assign(book, rows->value + i * book->width, 1, replay->own_code, NULL, replay->scratch);
    codebook_lookup(book, code, 1, out + i * book->width);
  }
}

/* rows [B, shared, W] -> the content tokens in their order [B, T, W]; NULL: no memory, which fails the tape. */
static const real *in_order(const Replay *replay, Tape *tape, const TokenLayout *layout, const Tensor *rows) {
  const int64_t width = tensor_width(rows), shape[3] = {rows->shape[0], replay->tokens, width};
  Tensor *x = tape_tensor(tape, 3, shape);
  for (int64_t i = 0; x && i < rows->shape[0] * layout->shared; i++) {
    const int32_t token = token_of(layout, i % layout->shared);
    if (token >= 0)
      memcpy(x->value + (i / layout->shared * replay->tokens + token) * width, rows->value + i * width, (size_t)width * sizeof(real));
  }
  return x ? x->value : NULL;
}

static Status replay_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  Replay *replay = (Replay *)self;
  (void)part;
  for (int site = 0; site < EXCHANGE_SITES && h[site]; site++) {
    const int64_t batch = h[site]->shape[0], width = tensor_width(h[site]);
    const int64_t shape[3] = {batch, layout->shared, width};
    const int set = set_of(replay->weights->config, block, site);
    Tensor *whole = op_gather_rows_wide(tape, h[site], layout->shared_row, layout->shared), *rows = whole, *expected = NULL;
    if (self->predict_weight[site]) {
      expected =
          op_widen(tape, op_linear(tape, replay->known, self->predict_weight[site], self->predict_bias[site], ACTIVATION_NONE, NULL));
      rows = op_add_scaled(tape, whole, expected, -1);
    }
    Tensor *remote = tape_tensor(tape, 3, shape);
    if (!rows || !remote) return tape_status(tape);
    const real *x = in_order(replay, tape, layout, rows), *all = rows == whole ? x : in_order(replay, tape, layout, whole);
    if (!x || !all) return tape_status(tape);
    replay->see(replay->context, block, site, x, all);
    look_up(replay, layout, set, rows, remote->value);
    replay->remote[site] = expected ? op_add(tape, remote, expected) : remote;
  }
  if (!replay->weights->config->astra.prediction) return tape_status(tape);
  replay->known = h[1] ? op_join(tape, replay->remote[0], replay->remote[1]) : replay->remote[0];
  return tape_status(tape);
}

static Status replay_know(Exchange *self, Tape *tape, const TokenLayout *layout, int part, Tensor *own, Tensor *remote) {
  (void)layout, (void)part, (void)own;
  if (remote) ((Replay *)self)->known = op_widen(tape, remote);
  return tape_status(tape);
}

static Status replay_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]) {
  (void)tape, (void)layout, (void)block, (void)part;
  for (int site = 0; site < EXCHANGE_SITES; site++) rows[site].x = ((Replay *)self)->remote[site];
  return STATUS_OK;
}

static Tensor *classify(Replay *replay, Tape *tape, const TokenLayout *layout, const ReplayInput *given) {
  const ModelConfig *config = replay->weights->config;
  int64_t shape[4] = {given->batch, config->channels, config->image, config->image};
  Tensor *pixels = tape_tensor(tape, 4, shape);
  for (int64_t i = 0; pixels && i < tensor_count(pixels); i++) pixels->value[i] = (real)given->pixels[i];
  Model *model = replay->weights->model;
  Tensor *replicas = model_encode(model, tape, &(ModelInput){.pixels = pixels}, layout, &replay->exchange, MODEL_ROWS_CLASS);
  return model_classify_replicas(model, tape, replicas, layout->class_tokens);
}

static Tensor *predict(Replay *replay, Tape *tape, const TokenLayout *layout, const ReplayInput *given) {
  Model *model = replay->weights->model;
  ModelInput input = {.ids = given->ids, .batch = given->batch};
  Tensor *last = model_encode(model, tape, &input, layout, &replay->exchange, MODEL_ROWS_LAST);
  return (replay->weights->config->classes > 0 ? model_classify : model_logits)(model, tape, last);
}

/* codes [blocks * sites][B, T, G], -1: of a token that no node was sent -> logits [B, classes], or after the last tokens of texts [B, V].
 */
static Status replay_codes(const Weights *weights, const ReplayInput *input, const int32_t *codes, ReplaySee *see, void *context,
                           real *logits) {
  const Codebook *book = &weights->books[0];
  Replay replay = {.exchange = {.begin = replay_begin, .finish = replay_finish, .know = replay_know},
                   .weights = weights,
                   .codes = codes,
                   .see = see,
                   .context = context,
                   .tokens = input->tokens,
                   .own_code = malloc((size_t)book->groups * sizeof(int32_t)),
                   .scratch = malloc(codebook_assign_scratch(book, 1))};
  TokenLayout layout = {0};
  Arena *arena = arena_new(replay_arena_bytes);
  Tape *tape = arena ? tape_new(arena) : NULL;
  int64_t counts[WIRE_NODES];
  int nodes = input->split ? token_split_counts(input->split, input->tokens, counts) : 0;
  Status status;
  if (!replay.own_code || !replay.scratch || !tape)
    status = status_no_memory(NULL, "the emulation");
  else if (input->split)
    status = layout_build(&layout, input->tokens, nodes, counts, NULL, CLASS_NONE, -1);
  else
    status = partition_layout(input->partition, weights->config->astra.class_token, -1, &layout);
  if (status == STATUS_OK) {
    tape_record(tape, false);
    tape_use_bf16(tape, weights->bf16);
    Tensor *out = (input->split ? predict : classify)(&replay, tape, &layout, input);
    if (out) memcpy(logits, out->value, (size_t)tensor_count(out) * sizeof(real));
    if (!out) status = tape_status(tape);
  }
  layout_release(&layout);
  tape_free(tape);
  arena_free(arena);
  free(replay.own_code);
  free(replay.scratch);
  return status;
}

/* ---- the comparison ---- */

static const double tie_relative = 1e-4;    /* of the larger distance */
static const double tie_rounding = 1e-6;    /* of |x|^2: the rounding of float products, however small the distance is */
static const double logit_tolerance = 1e-4; /* absolute, and again relative */
/* Of all codes. max_rounded_ties is where nothing is expected of a token: what is quantised less what is expected is smaller, and its
 * rounding is not, so that so many times more codewords are equally near (Comparison.sizes). */
static const double max_ties = 1e-3, max_rounded_ties = 5e-3;
/* With weights of 8 or 4 bits a difference in a sum's last bit may move an activation by one step of 8 bits, 1/254 of its row's largest; in
 * bf16 by 1/256 of itself. */
static const double rounded_tolerance = 2e-2; /* in place of tie_relative, and of a row of logits: row_deviation */
static const double largest_of_row = 10;      /* of 128,256 normal differences it is 4.5 */
static const double step_of_bf16 = 1.0 / 256; /* relative error of an x */
enum { CHUNK = 32 };

typedef struct Comparison {
  const Weights *weights;
  const Samples *samples;
  SelftestReport *report;
  const Partition *partition; /* of images, or */
  const TokenSplit *split;    /* of texts */
  bool rounded;               /* bf16, or weights of 8 or 4 bits: the file's codes and logits belong to other weights */
  int64_t first, batch;       /* the chunk of images */
  int64_t sent;               /* tokens whose codes were sent: all, or of a text those before the last node's */
  const int32_t *actual;      /* [sets][batch, T, G] */
  bool *differs;              /* [batch] some code of the image differs */
  bool *tied;                 /* [batch] an earlier block has had a difference */
  double sizes, quantised;    /* sums over the codes checked of size_of and of |x| */
  int32_t *nearest;           /* [batch * T, G] */
  void *scratch;
} Comparison;

static const int32_t *actual_set(const Comparison *c, int set) {
  return c->actual + (int64_t)set * c->batch * c->samples->tokens * c->samples->groups;
}
static const int32_t *expected_set(const Comparison *c, int set) {
  return c->samples->codes[set] + c->first * c->samples->tokens * c->samples->groups;
}

/* A token's activations at a site [W]: ReplaySee. */
typedef struct Row {
  const real *x, *whole;
} Row;

/* Of x [W/G] from a codeword of all G K. */
static double distance(const Codebook *book, const real *x, int64_t word) {
  int64_t n = book->width / book->groups;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    real number = book->narrow ? (real)narrow_to_float(book->kind, book->narrow[word * n + i]) : book->codewords[word * n + i];
    sum += ((double)x[i] - (double)number) * ((double)x[i] - (double)number);
  }
  return sum;
}

/* |whole| + |whole - x| of n numbers: rounding of x = whole - expected is in proportion to what it is the difference of. */
static double size_of(const Row *row, int64_t first, int64_t n) {
  double whole = 0, expected = 0;
  for (int64_t i = first; i < first + n; i++) {
    const double all = (double)row->whole[i], told = all - (double)row->x[i];
    whole += all * all;
    expected += told * told;
  }
  return sqrt(whole) + sqrt(expected);
}

static double square_of(const real *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  return sum;
}

static void count_size(Comparison *c, const Codebook *book, const Row *row, int64_t g) {
  const int64_t n = book->width / book->groups;
  c->quantised += sqrt(square_of(row->x + g * n, n));
  c->sizes += size_of(row, g * n, n);
}

/* Whether codewords a and b of group g are equally near to the row's x but for rounding. */
static bool equally_near(const Comparison *c, const Codebook *book, const Row *row, int64_t g, int32_t a, int32_t b) {
  const double relative = c->rounded ? rounded_tolerance : tie_relative;
  const int64_t n = book->width / book->groups;
  const real *x = row->x + g * n;
  const double from_a = distance(book, x, g * book->entries + a), from_b = distance(book, x, g * book->entries + b);
  double allowed = relative * fmax(from_a, from_b) + tie_rounding * square_of(x, n);
  if (c->rounded)
    allowed += 2 * step_of_bf16 * size_of(row, g * n, n) * (sqrt(from_a) + sqrt(from_b)); /* |x - a|^2 - |x - b|^2 of an x so far off */
  return fabs(from_a - from_b) <= allowed;
}

/* One image's codes of one site. Against the emulation with the sent codes every one must be the nearest; against the file, the first
 * block that differs must differ by ties alone. */
static void check_image(Comparison *c, int set, int64_t b, const real *x, const real *whole) {
  const Codebook *book = &c->weights->books[set];
  int64_t tokens = c->samples->tokens, groups = book->groups, place = b * tokens * groups;
  const int32_t *actual = actual_set(c, set) + place, *expected = expected_set(c, set) + place, *nearest = c->nearest + place;
  bool any = false;
  for (int64_t i = 0; i < c->sent * groups; i++) {
    const int64_t at = (b * tokens + i / groups) * book->width;
    const Row row = {x + at, whole + at};
    count_size(c, book, &row, i % groups);
    bool right = actual[i] == nearest[i] || equally_near(c, book, &row, i % groups, actual[i], nearest[i]);
    bool same = c->rounded || actual[i] == expected[i];
    any |= !same;
    if (!right)
      c->report->wrong++;
    else if (c->rounded && actual[i] != nearest[i])
      c->report->ties++;
    else if (!same && c->tied[b])
      c->report->followed++;
    else if (!same && equally_near(c, book, &row, i % groups, actual[i], expected[i]))
      c->report->ties++;
    else if (!same)
      c->report->wrong++;
  }
  c->tied[b] |= any;
}

static void check_site(void *context, int block, int site, const real *x, const real *whole) {
  Comparison *c = context;
  int set = set_of(c->weights->config, block, site);
  codebook_assign(&c->weights->books[set], x, c->batch * c->samples->tokens, c->nearest, NULL, c->scratch);
  for (int64_t b = 0; b < c->batch; b++) check_image(c, set, b, x, whole);
}

/* The largest difference in units of what is allowed; INFINITY where one is not a number. */
static double deviation(const real *actual, const real *expected, int64_t count, double tolerance, double *absolute) {
  double worst = 0;
  for (int64_t i = 0; i < count; i++) {
    double difference = fabs((double)actual[i] - (double)expected[i]);
    double part = difference / (tolerance + tolerance * fabs((double)expected[i]));
    if (!(part <= worst)) worst = isnan(part) ? INFINITY : part;
    if (absolute && !(difference <= *absolute)) *absolute = isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

/* Roundings of activations move all logits of a row by about as much, however large each is, and the largest of thousands of such
 * differences is chance: rows are compared as wholes. Their root mean square in units of what is allowed, a share of the standard deviation
 * of the logits, or, of those that are nearer to each other, of 1; a single difference may be `largest_of_row` times as large. */
static double row_deviation(const real *actual, const real *expected, int64_t count) {
  double mean = 0, squares = 0, differences = 0, largest = 0;
  for (int64_t i = 0; i < count; i++) mean += (double)expected[i] / (double)count;
  for (int64_t i = 0; i < count; i++) {
    const double apart = (double)expected[i] - mean, difference = (double)actual[i] - (double)expected[i];
    squares += apart * apart / (double)count;
    differences += difference * difference / (double)count;
    largest = fmax(largest, fabs(difference));
  }
  const double part = fmax(sqrt(differences), largest / largest_of_row) / (rounded_tolerance * fmax(sqrt(squares), 1));
  return isfinite(differences) && isfinite(squares) ? part : INFINITY;
}

/* Of a row [classes] from the emulation's with the codes that were sent. */
static double replayed_deviation(const Comparison *c, const real *actual, const real *expected) {
  const int64_t count = c->samples->classes;
  return c->rounded ? row_deviation(actual, expected, count) : deviation(actual, expected, count, logit_tolerance, NULL);
}

static bool find_differences(Comparison *c) {
  int64_t numbers = c->samples->tokens * c->samples->groups, sent = c->sent * c->samples->groups;
  bool any = false;
  for (int64_t b = 0; b < c->batch; b++) {
    c->differs[b] = c->rounded;
    c->tied[b] = false;
    for (int i = 0; i < c->samples->sets && c->actual; i++)
      c->differs[b] |= memcmp(actual_set(c, i) + b * numbers, expected_set(c, i) + b * numbers, (size_t)sent * sizeof(int32_t)) != 0;
    any |= c->differs[b];
  }
  return any;
}

static void compare_logits(Comparison *c, const real *logits, const real *replayed) {
  SelftestReport *report = c->report;
  int64_t classes = c->samples->classes;
  for (int64_t b = 0; b < c->batch; b++) {
    const real *row = logits + b * classes;
    if (c->differs[b]) {
      report->worst_replayed = fmax(report->worst_replayed, replayed_deviation(c, row, replayed + b * classes));
    } else {
      double off = deviation(row, c->samples->logits + (c->first + b) * classes, classes, logit_tolerance, &report->worst_absolute);
      report->worst_same = fmax(report->worst_same, off);
      report->same_images++;
    }
  }
}

static Status compare_chunk(Comparison *c, const LeaderAnswer *answer, real *replayed) {
  const Samples *samples = c->samples;
  c->batch = answer->batch;
  c->actual = answer->codes;
  if (c->report->nodes > 1 && samples->sets > 0 && c->actual == NULL)
    return status_set(STATUS_PEER, "a single device is left, which exchanges no codes: there is nothing to compare");
  ReplayInput input = {.batch = c->batch, .tokens = samples->tokens, .partition = c->partition, .split = c->split};
  if (samples->ids) input.ids = samples->ids + c->first * samples->tokens;
  if (samples->pixel_values) input.pixels = samples->pixel_values + c->first * samples->pixels;
  if (find_differences(c)) TRY(replay_codes(c->weights, &input, c->actual, check_site, c, replayed));
  compare_logits(c, answer->logits, replayed);
  c->report->images += c->batch;
  c->report->codes += c->actual ? c->batch * samples->sets * c->sent * samples->groups : 0;
  return STATUS_OK;
}

static int64_t chunk_at(const Samples *samples, int64_t first) { return samples->count - first < CHUNK ? samples->count - first : CHUNK; }

/* The mean of -ln p over the labels that count, where every code is the file's: a tie would change it. */
static Status compare_loss(Leader *leader, const Samples *samples, SelftestReport *report) {
  RequestScore sum = {.loss = 0};
  if (!samples->labels || report->same_images < report->images) return STATUS_OK;
  for (int64_t first = 0; first < samples->count; first += CHUNK) {
    const int64_t at = first * samples->tokens, count = chunk_at(samples, first) * samples->tokens;
    LeaderAnswer answer;
    TRY(leader_text_score(leader, samples->ids + at, samples->labels + at, chunk_at(samples, first), samples->tokens));
    Status status = leader_collect(leader, &answer);
    if (status != STATUS_OK && status != STATUS_NUMERIC) return status;
    for (int64_t i = at; i < at + count; i++) sum.counted += samples->labels[i] >= 0;
    sum.loss = status == STATUS_OK ? sum.loss + answer.score.loss : INFINITY; /* a loss that is not a number is a result too */
    if (status != STATUS_OK) break;                                           /* its request is in flight still */
  }
  double mean = sum.counted ? sum.loss / (double)sum.counted : 0, off = fabs(mean - samples->loss);
  report->worst_loss = isfinite(off) ? off / (logit_tolerance + logit_tolerance * fabs(samples->loss)) : INFINITY;
  report->losses = (int64_t)sum.counted;
  return STATUS_OK;
}

static Status run_chunks(Leader *leader, Comparison *c, real *replayed) {
  const Samples *samples = c->samples;
  LeaderAnswer answer;
  for (c->first = 0; c->first < samples->count; c->first += CHUNK) {
    const int64_t batch = chunk_at(samples, c->first);
    const int32_t *ids = samples->ids ? samples->ids + c->first * samples->tokens : NULL;
    if (!ids)
      TRY(leader_submit(leader, samples->pixel_values + c->first * samples->pixels, batch));
    else if (c->weights->config->classes > 0)
      TRY(leader_text_classify(leader, ids, batch, samples->tokens));
    else
      TRY(leader_text_last(leader, ids, batch, samples->tokens));
    TRY(leader_collect(leader, &answer));
    TRY(compare_chunk(c, &answer, replayed));
  }
  TRY(compare_loss(leader, c->samples, c->report));
  SelftestReport *report = c->report;
  report->ties_allowed = c->rounded ? max_rounded_ties : max_ties;
  if (c->rounded && c->quantised > 0) report->ties_allowed *= c->sizes / c->quantised;
  const char *reason = NULL;
  if (report->wrong)
    reason = "codes differ that are no ties";
  else if ((double)report->ties > fmax(1, report->ties_allowed * (double)report->codes)) /* a single one is no sign, however few codes */
    reason = "too many codes differ by ties";
  else if (!(report->worst_same <= 1))
    reason = "logits differ from the file's";
  else if (!(report->worst_replayed <= 1))
    reason = "logits differ from those that follow from the codes sent";
  else if (!(report->worst_loss <= 1))
    reason = "the loss differs from the file's";
  report->passed = !reason;
  snprintf(report->reason, sizeof report->reason, "%s", reason ? reason : "");
  return STATUS_OK;
}

static Status compare(Leader *leader, Comparison *c) {
  const Samples *samples = c->samples;
  c->differs = calloc(CHUNK, sizeof(bool));
  c->tied = calloc(CHUNK, sizeof(bool));
  c->nearest = malloc((size_t)(CHUNK * samples->tokens * (samples->groups + 1)) * sizeof(int32_t));
  c->scratch = malloc(c->weights->books ? codebook_assign_scratch(&c->weights->books[0], CHUNK * samples->tokens) : 1);
  real *replayed = malloc((size_t)(CHUNK * samples->classes) * sizeof(real));
  bool memory = c->differs && c->tied && c->nearest && c->scratch && replayed;
  Status status = memory ? run_chunks(leader, c, replayed) : status_no_memory(NULL, "comparing codes");
  free(c->differs);
  free(c->tied);
  free(c->nearest);
  free(c->scratch);
  free(replayed);
  return status;
}

/* ---- on nodes ---- */

static Status run_samples(const Weights *weights, const Samples *samples, const char *path, const LeaderOptions *given,
                          SelftestReport *report) {
  LeaderOptions options = *given;
  Comparison c = {.weights = weights, .samples = samples, .report = report};
  c.rounded = weights->bf16 || lowbit_weights_of(weights->model) != LOWBIT_NONE;
  if (c.rounded && !weights->books)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: the logits of a plain model are those of its own weights in fp32, not of bf16 or of weights of 8 or 4 bits",
                      path);
  Partition partition = {0};
  TokenSplit split = {0};
  Leader *leader = NULL;
  options.batch_max = chunk_at(samples, 0);
  Status status;
  c.sent = samples->tokens;
  if (samples->ids) {
    int64_t counts[WIRE_NODES];
    status = samples->device_of ? token_split_map(&split, samples->device_of, samples->tokens) : token_split_init(&split, 1, NULL);
    if (status == STATUS_OK) token_split_counts(&split, samples->tokens, counts);
    c.split = &split;
    report->nodes = split.nodes;
    options.tokens_max = samples->tokens;
    if (status == STATUS_OK) c.sent -= counts[split.nodes - 1];
  } else {
    status = samples->device_of ? partition_map(&partition, samples->tokens, samples->device_of)
                                : partition_init(&partition, samples->tokens, 1, NULL);
    c.partition = &partition;
    report->nodes = partition.nodes;
  }
  options.codes = report->nodes > 1;
  if (status == STATUS_OK && c.rounded && !options.codes)
    status =
        status_set(STATUS_UNSUPPORTED, "its samples are of one device, which sends no codes: in bf16, and with weights of 8 or 4 bits, "
                                       "there is nothing to compare; without them the logits are");
  if (status == STATUS_OK && samples->ids) status = leader_start_text(&leader, weights, &split, &options);
  if (status == STATUS_OK && !samples->ids) status = leader_start(&leader, weights, &partition, &options);
  if (status == STATUS_OK) status = compare(leader, &c);
  if (status != STATUS_OK && !leader) status = status_wrap(status, "%s", path);
  leader_stop(leader);
  partition_release(&partition);
  return status;
}

Status selftest_run(const Weights *weights, const char *directory, const char *path, const LeaderOptions *options, SelftestReport *report) {
  *report = (SelftestReport){0};
  Samples samples = {0};
  char *inside = files_join(directory, CHECKPOINT_SELFTEST);
  if (!inside) return status_no_memory(NULL, "a path");
  Status status = STATUS_OK;
  if (!path && !files_exists(inside))
    status = status_set(STATUS_NOT_FOUND, "%s: not found; astra-train writes it beside the checkpoint, --file names another one", inside);
  if (status == STATUS_OK) status = read_samples(&samples, weights, path ? path : inside);
  if (status == STATUS_OK) status = run_samples(weights, &samples, path ? path : inside, options, report);
  for (int i = 0; samples.codes && i < samples.sets; i++) free(samples.codes[i]);
  free(samples.codes);
  free(samples.pixel_values);
  free(samples.ids);
  free(samples.labels);
  free(samples.logits);
  free(samples.device_of);
  free(inside);
  return status;
}
