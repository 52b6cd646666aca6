/* One forward pass of all rows whose exchange looks given codes up instead of finding them. What no code is given for is quantised here: a
 * single class token, and the tokens of a text's last node, which no other node sees. */
#include "infer/replay.h"
#include "autograd/tape.h"
#include "base/arena.h"
#include <stdlib.h>
#include <string.h>

typedef struct Replay {
  Exchange exchange; /* first */
  const Weights *weights;
  const int32_t *codes;
  ReplaySee *see;
  void *context;
  int64_t tokens;
  Tensor *remote[2]; /* of each site, between begin and finish */
  int32_t *own_code; /* [G] of the class token */
  void *scratch;
} Replay;

static const size_t arena_bytes = (size_t)1 << 36;

static int32_t token_of(const TokenLayout *layout, int64_t shared) { return layout->row_token[layout->shared_row[shared]]; }

static void look_up(const Replay *replay, const TokenLayout *layout, int set, int64_t sample, const Tensor *h, real *out) {
  const Codebook *book = &replay->weights->books[set];
  const int32_t *codes = replay->codes + (int64_t)set * h->shape[0] * replay->tokens * book->groups;
  for (int64_t i = 0; i < layout->shared; i++) {
    int32_t token = token_of(layout, i);
    const int32_t *code = token < 0 ? replay->own_code : codes + (sample * replay->tokens + token) * book->groups;
    if (token >= 0 && code[0] < 0) code = replay->own_code;
    real *row = out + i * book->width;
    if (code == replay->own_code) {
      tensor_read(h, (sample * layout->rows + layout->shared_row[i]) * book->width, book->width, row);
      codebook_assign(book, row, 1, replay->own_code, NULL, replay->scratch);
    }
    codebook_lookup(book, code, 1, row);
  }
}

static void show(const Replay *replay, const TokenLayout *layout, int block, int site, const Tensor *h, real *x) {
  int64_t width = tensor_width(h);
  for (int64_t b = 0; b < h->shape[0]; b++) {
    for (int64_t i = 0; i < layout->shared; i++) {
      int32_t token = token_of(layout, i);
      if (token < 0) continue;
      tensor_read(h, (b * layout->rows + layout->shared_row[i]) * width, width, x + (b * replay->tokens + token) * width);
    }
  }
  replay->see(replay->context, block, site, x);
}

static Status quantise(Replay *replay, Tape *tape, const TokenLayout *layout, int block, int site, Tensor *h) {
  int64_t shape[3] = {h->shape[0], layout->shared, tensor_width(h)}, content[3] = {h->shape[0], replay->tokens, tensor_width(h)};
  int set = block * config_sites(replay->weights->config) + site;
  Tensor *x = tape_tensor(tape, 3, content), *remote = replay->remote[site] = tape_tensor(tape, 3, shape);
  if (!x || !remote) return tape_status(tape);
  show(replay, layout, block, site, h, x->value);
  for (int64_t b = 0; b < h->shape[0]; b++) look_up(replay, layout, set, b, h, remote->value + b * layout->shared * shape[2]);
  return STATUS_OK;
}

static Status replay_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]) {
  (void)part;
  for (int site = 0; site < EXCHANGE_SITES && h[site]; site++) TRY(quantise((Replay *)self, tape, layout, block, site, h[site]));
  return STATUS_OK;
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
  return model_classify(model, tape,
                        model_encode(model, tape, &(ModelInput){.pixels = pixels}, layout, &replay->exchange, MODEL_ROWS_CLASS));
}

static Tensor *predict(Replay *replay, Tape *tape, const TokenLayout *layout, const ReplayInput *given) {
  Model *model = replay->weights->model;
  ModelInput input = {.ids = given->ids, .batch = given->batch};
  Tensor *last = model_encode(model, tape, &input, layout, &replay->exchange, MODEL_ROWS_LAST);
  return (replay->weights->config->classes > 0 ? model_classify : model_logits)(model, tape, last);
}

static Status run(Replay *replay, Tape *tape, const TokenLayout *layout, const ReplayInput *input, real *logits) {
  Tensor *out = (input->split ? predict : classify)(replay, tape, layout, input);
  if (!out) return tape_status(tape);
  memcpy(logits, out->value, (size_t)tensor_count(out) * sizeof(real));
  return STATUS_OK;
}

static Status build_layout(const Weights *weights, const ReplayInput *input, TokenLayout *layout) {
  int64_t counts[WIRE_NODES];
  if (!input->split) return partition_layout(input->partition, weights->config->astra.class_token, -1, layout);
  int nodes = token_split_counts(input->split, input->tokens, counts);
  return layout_build(layout, input->tokens, nodes, counts, NULL, CLASS_NONE, -1);
}

Status replay_run(const Weights *weights, const ReplayInput *input, const int32_t *codes, ReplaySee *see, void *context, real *logits) {
  const Codebook *book = &weights->books[0];
  Replay replay = {.exchange = {.begin = replay_begin, .finish = replay_finish},
                   .weights = weights,
                   .codes = codes,
                   .see = see,
                   .context = context,
                   .tokens = input->tokens,
                   .own_code = malloc((size_t)book->groups * sizeof(int32_t)),
                   .scratch = malloc(codebook_assign_scratch(book, 1))};
  TokenLayout layout = {0};
  Arena *arena = arena_new(arena_bytes);
  Tape *tape = arena ? tape_new(arena) : NULL;
  Status status = replay.own_code && replay.scratch && tape ? build_layout(weights, input, &layout)
                                                            : status_set(STATUS_NO_MEMORY, "no memory for the emulation");
  if (status == STATUS_OK) {
    tape_record(tape, false);
    tape_use_bf16(tape, weights->bf16);
    status = run(&replay, tape, &layout, input, logits);
  }
  layout_release(&layout);
  tape_free(tape);
  arena_free(arena);
  free(replay.own_code);
  free(replay.scratch);
  return status;
}
