/* A model of any kind: its table of parameters, their initial values, and the forward pass. A kind is a description of its table, whose
 * names are Hugging Face's, and of its first rows; everything between is the same blocks. */
#include "autograd/ops/ops.h"
#include "nn/block.h"
#include "nn/block_internal.h"
#include "nn/model_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Entries of the table ---- */

int model_add_param(Model *model, const ModelPart *part, const char *prefix, const char *name, const char *suffix) {
  int index = param_add(&model->params, part->init, part->decay, part->dims, part->shape, "%s%s%s", prefix, name, suffix);
  if (index < 0)
    model->incomplete = true;
  else
    model->params.list[index].narrow = part->narrow;
  return index;
}

static void add_bias(Model *model, int64_t width, const char *prefix, const char *name) {
  model_add_param(model, &(ModelPart){.init = PARAM_ZEROS, .dims = 1, .shape = {width}}, prefix, name, ".bias");
}

/* Weight and bias: index of the weight; the bias follows it. */
static int add_norm(Model *model, bool bias, const char *prefix, const char *name) {
  int64_t width = model->config.width;
  int index = model_add_param(model, &(ModelPart){.init = PARAM_ONES, .dims = 1, .shape = {width}}, prefix, name, ".weight");
  if (bias) add_bias(model, width, prefix, name);
  return index;
}

static int add_matrix(Model *model, int64_t out, int64_t in, bool transposed, bool bias, const char *prefix, const char *name) {
  ModelPart part = {PARAM_NORMAL, true, true, 2, {transposed ? in : out, transposed ? out : in}};
  int index = model_add_param(model, &part, prefix, name, ".weight");
  if (index >= 0) model->params.list[index].transposed = transposed;
  if (bias) add_bias(model, out, prefix, name);
  return index;
}

/* That matrix, all outputs. */
static Projection add_linear(Model *model, int64_t out, int64_t in, bool transposed, bool bias, const char *prefix, const char *name) {
  int weight = add_matrix(model, out, in, transposed, bias, prefix, name);
  if (weight >= 0) model->params.list[weight].hidden = true;
  return (Projection){weight, bias ? weight + 1 : -1, {0, out, transposed}, -1, -1};
}

/* For a projection that the kind does not have. */
static Projection absent(void) { return (Projection){-1, -1, {0, 0, false}, -1, -1}; }

Tensor *model_param(Model *model, int index) { return index < 0 ? NULL : &model->params.list[index].tensor; }

/* ---- Vision transformers (Dosovitskiy et al., 2021) ---- */

static void vit_block(Model *model, int64_t index) {
  int64_t width = model->config.width, hidden = model->config.mlp;
  char prefix[64];
  snprintf(prefix, sizeof prefix, "vit.encoder.layer.%lld.", (long long)index);
  BlockParams *block = &model->block[index];
  block->norm1_bias = (block->norm1_weight = add_norm(model, true, prefix, "layernorm_before")) + 1;
  block->query = add_linear(model, width, width, false, true, prefix, "attention.attention.query");
  block->key = add_linear(model, width, width, false, true, prefix, "attention.attention.key");
  block->value = add_linear(model, width, width, false, true, prefix, "attention.attention.value");
  block->output = add_linear(model, width, width, false, true, prefix, "attention.output.dense");
  block->norm2_bias = (block->norm2_weight = add_norm(model, true, prefix, "layernorm_after")) + 1;
  block->gate = absent();
  block->up = add_linear(model, hidden, width, false, true, prefix, "intermediate.dense");
  block->down = add_linear(model, width, hidden, false, true, prefix, "output.dense");
}

static void vit_describe(Model *model) {
  const ModelConfig *c = &model->config;
  const char *prefix = "vit.embeddings.";
  ModelPart class_token = {PARAM_NORMAL, false, false, 3, {1, 1, c->width}};
  ModelPart position = {PARAM_NORMAL, false, false, 3, {1, config_tokens(c) + 1, c->width}};
  ModelPart patch = {PARAM_NORMAL, true, false, 4, {c->width, c->channels, c->patch, c->patch}};
  ModelPart patch_bias = {PARAM_ZEROS, false, false, 1, {c->width}};
  model->class_token = model_add_param(model, &class_token, prefix, "cls_token", "");
  model->position = model_add_param(model, &position, prefix, "position_embeddings", "");
  model->patch_weight = model_add_param(model, &patch, prefix, "patch_embeddings.projection", ".weight");
  model->patch_bias = model_add_param(model, &patch_bias, prefix, "patch_embeddings.projection", ".bias");
  for (int64_t index = 0; index < c->blocks; index++) vit_block(model, index);
  model->norm_bias = (model->norm_weight = add_norm(model, true, "vit.", "layernorm")) + 1;
  model->head_bias = (model->head_weight = add_matrix(model, c->classes, c->width, false, true, "", "classifier")) + 1;
  if (model->incomplete) return;
  model->params.list[model->head_weight].optional = model->params.list[model->head_bias].optional = true;
}

/* ---- Rotations ---- */

/* Tokens are quantised in another basis, in which groups of numbers are independent and equally hard: y = T (h - mean). Receivers make keys
 * and values of y with projections of their own, which begin as key and value after the inverse of T (train/codebooks.c). At site kv keys
 * and values have a basis each, and receivers begin with its inverse. */
static void describe_rotations(Model *model) {
  const ModelConfig *c = &model->config;
  const int64_t keys = config_kv_width(c);
  const size_t first = model->params.count;
  const bool rotates = c->astra.groups > 0 && c->astra.rotation;
  for (int64_t index = 0; index < c->blocks; index++) {
    BlockParams *block = &model->block[index];
    block->rotation = block->rotation_value = block->remote_key = block->remote_value = absent();
    block->prediction = block->prediction_value = absent();
    block->position_mean[0] = block->position_mean[1] = -1;
    if (!rotates || index < config_first_coded(c) || index >= config_end_coded(c)) continue;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "astra.layers.%lld.", (long long)index);
    const int64_t width = config_site_width(c), inputs = config_prediction_inputs(c, index);
    const bool two = config_sites(c) == 2;
    block->rotation = add_linear(model, width, width, false, true, prefix, two ? "rotation_key" : "rotation");
    if (two) block->rotation_value = add_linear(model, width, width, false, true, prefix, "rotation_value");
    if (c->astra.prediction && index > 0) {
      block->prediction = add_linear(model, width, inputs, false, true, prefix, two ? "prediction_key" : "prediction");
      if (two) block->prediction_value = add_linear(model, width, inputs, false, true, prefix, "prediction_value");
      for (int rate = 0; rate < config_rates(c) - 1; rate++) { /* the order of prediction_place */
        char name[48], which[CONFIG_RATE_PREFIX];
        config_rate_prefix(c, rate, which);
        snprintf(name, sizeof name, "%s%s", which, two ? "prediction_key" : "prediction");
        add_linear(model, width, inputs, false, true, prefix, name);
        snprintf(name, sizeof name, "%sprediction_value", which);
        if (two) add_linear(model, width, inputs, false, true, prefix, name);
      }
    }
    const ModelPart means = {PARAM_ZEROS, false, false, 2, {config_tokens(c) + 1, width}};
    for (int site = 0; c->astra.position_mean && site < config_sites(c); site++)
      block->position_mean[site] = model_add_param(model, &means, prefix,
                                                   !two        ? "position_mean"
                                                   : site == 0 ? "position_mean_key"
                                                               : "position_mean_value",
                                                   "");
    block->remote_key = add_linear(model, keys, width, false, true, prefix, "remote_key");
    block->remote_value = add_linear(model, keys, width, false, true, prefix, "remote_value");
  }
  for (size_t i = first; i < model->params.count; i++) model->params.list[i].fitted = true;
}

/* The parameters of a block's predictions are those of the rate with the most groups, then those of the others in their order. */
static int prediction_place(const ModelConfig *config) {
  const int rate = config_rate(config);
  return rate == config_rates(config) - 1 ? 0 : 2 * config_sites(config) * (rate + 1);
}

Status model_use_rate(Model *model, int groups) {
  const int before = prediction_place(&model->config);
  TRY(config_use_rate(&model->config, groups));
  const int step = prediction_place(&model->config) - before;
  for (int64_t index = 0; index < model->config.blocks; index++) {
    Projection *const of[] = {&model->block[index].prediction, &model->block[index].prediction_value};
    for (int site = 0; site < 2; site++)
      if (of[site]->weight >= 0) of[site]->weight += step, of[site]->bias += step;
  }
  return STATUS_OK;
}

/* ---- Decoders ---- */

/* Of a decoder: lm_head or score, where there is one. */
static void describe_head(Model *model) {
  const ModelConfig *c = &model->config;
  if (c->classes > 0)
    model->head_weight = add_matrix(model, c->classes, c->width, false, false, "", "score");
  else if (!c->tied)
    model->head_weight = add_matrix(model, c->vocabulary, c->width, false, false, "", "lm_head");
  if (model->incomplete) return;
  if (c->classes > 0) model->params.list[model->head_weight].optional = true;
  model->params.list[model->token_table].looked_up = c->classes > 0 || !c->tied;
}

/* GPT-2 (Radford et al., 2019) with Hugging Face's parameter names. Its matrices are stored [in, out] (Conv1D), and one matrix holds the
 * query, key and value projections side by side; both stay as they are, and operations take parts of them. */

static void gpt2_block(Model *model, int64_t index) {
  int64_t width = model->config.width, hidden = model->config.mlp;
  char prefix[64];
  snprintf(prefix, sizeof prefix, "transformer.h.%lld.", (long long)index);
  BlockParams *block = &model->block[index];
  block->norm1_bias = (block->norm1_weight = add_norm(model, true, prefix, "ln_1")) + 1;
  block->query = block->key = block->value = add_linear(model, 3 * width, width, true, true, prefix, "attn.c_attn");
  block->query.part = (LinearPart){0, width, true};
  block->key.part = (LinearPart){width, width, true};
  block->value.part = (LinearPart){2 * width, width, true};
  block->output = add_linear(model, width, width, true, true, prefix, "attn.c_proj");
  block->norm2_bias = (block->norm2_weight = add_norm(model, true, prefix, "ln_2")) + 1;
  block->gate = absent();
  block->up = add_linear(model, hidden, width, true, true, prefix, "mlp.c_fc");
  block->down = add_linear(model, width, hidden, true, true, prefix, "mlp.c_proj");
}

static void gpt2_describe(Model *model) {
  const ModelConfig *c = &model->config;
  ModelPart table = {PARAM_NORMAL, false, true, 2, {c->vocabulary, c->width}};
  ModelPart position = {PARAM_NORMAL, false, false, 2, {c->context, c->width}};
  model->token_table = model_add_param(model, &table, "transformer.", "wte", ".weight");
  model->position = model_add_param(model, &position, "transformer.", "wpe", ".weight");
  for (int64_t index = 0; index < c->blocks; index++) gpt2_block(model, index);
  model->norm_bias = (model->norm_weight = add_norm(model, true, "transformer.", "ln_f")) + 1;
  describe_head(model);
}

/* Llama (Touvron et al., 2023; Llama 3: Grattafiori et al., 2024) with Hugging Face's parameter names: RMSNorm, rotary positions, keys and
 * values for fewer heads than queries, SwiGLU, no biases. */

static void llama_block(Model *model, int64_t index) {
  const ModelConfig *c = &model->config;
  int64_t width = c->width, keys = config_kv_width(c);
  char prefix[64];
  snprintf(prefix, sizeof prefix, "model.layers.%lld.", (long long)index);
  BlockParams *block = &model->block[index];
  block->norm1_weight = add_norm(model, false, prefix, "input_layernorm");
  block->query = add_linear(model, width, width, false, false, prefix, "self_attn.q_proj");
  block->key = add_linear(model, keys, width, false, false, prefix, "self_attn.k_proj");
  block->value = add_linear(model, keys, width, false, false, prefix, "self_attn.v_proj");
  block->output = add_linear(model, width, width, false, false, prefix, "self_attn.o_proj");
  block->norm2_weight = add_norm(model, false, prefix, "post_attention_layernorm");
  block->gate = add_linear(model, c->mlp, width, false, false, prefix, "mlp.gate_proj");
  block->up = add_linear(model, c->mlp, width, false, false, prefix, "mlp.up_proj");
  block->down = add_linear(model, width, c->mlp, false, false, prefix, "mlp.down_proj");
  block->norm1_bias = block->norm2_bias = -1;
}

static void llama_describe(Model *model) {
  const ModelConfig *c = &model->config;
  ModelPart table = {PARAM_NORMAL, false, true, 2, {c->vocabulary, c->width}};
  model->token_table = model_add_param(model, &table, "model.", "embed_tokens", ".weight");
  for (int64_t index = 0; index < c->blocks; index++) llama_block(model, index);
  model->norm_weight = add_norm(model, false, "model.", "norm");
  describe_head(model);
}

/* ---- Making ---- */

static void release_rope(RopeTable *table) {
  free(table->cosine);
  *table = (RopeTable){0};
}

/* Angles are computed in double: in float they are off by 1e-3 at position 8192. On one thread, since models are made before processes are
 * forked, when no pool may run yet. */
static Status init_rope(RopeTable *table, const ModelConfig *config) {
  int64_t head_width = config->width / config->heads, half = head_width / 2, numbers = config->context * half;
  double *frequency = malloc((size_t)half * sizeof *frequency);
  *table = (RopeTable){malloc(2 * (size_t)numbers * sizeof(real)), NULL, config->context};
  if (!frequency || !table->cosine) {
    free(frequency);
    release_rope(table);
    return status_set(STATUS_NO_MEMORY, "no memory for the table of %lld rotary positions", (long long)config->context);
  }
  table->sine = table->cosine + numbers;
  config_rope_frequencies(&config->rope, head_width, frequency);
  for (int64_t at = 0; at < numbers; at++) {
    double angle = (double)(at / half) * frequency[at % half];
    table->cosine[at] = (real)cos(angle);
    table->sine[at] = (real)sin(angle);
  }
  free(frequency);
  return STATUS_OK;
}

static Status build(Model *model, const ModelConfig *config) {
  static void (*const describers[])(Model *) = {[MODEL_VIT] = vit_describe, [MODEL_GPT2] = gpt2_describe, [MODEL_LLAMA] = llama_describe};
  TRY(config_copy(&model->config, config));
  model->block = calloc((size_t)config->blocks, sizeof *model->block);
  if (model->block == NULL) return status_set(STATUS_NO_MEMORY, "no memory for a model of %lld blocks", (long long)config->blocks);
  model->class_token = model->position = model->patch_weight = model->patch_bias = model->token_table = -1;
  model->norm_bias = model->head_weight = model->head_bias = -1;
  model->recomputed = (int)config->blocks;
  describers[config->kind](model);
  describe_rotations(model);
  if (model->incomplete) return status_no_memory(NULL, "the parameter table");
  if (config->astra.rate_count > 0) { /* predictions are so far those of the rate with the most groups */
    model->config.astra.groups = config_rate_groups(config, config->astra.rate_count - 1);
    TRY(model_use_rate(model, config->astra.groups));
  }
  return config->kind == MODEL_LLAMA ? init_rope(&model->rope, config) : STATUS_OK;
}

Status model_new(Model **out, const ModelConfig *config) {
  *out = NULL;
  TRY(config_check(config));
  Model *model = calloc(1, sizeof *model);
  if (model == NULL) return status_no_memory(NULL, "a model");
  Status status = build(model, config);
  if (status != STATUS_OK)
    model_free(model);
  else
    *out = model;
  return status;
}

void model_free(Model *model) {
  if (model == NULL) return;
  param_release(&model->params);
  config_release(&model->config);
  release_rope(&model->rope);
  free(model->block);
  free(model);
}

const ModelConfig *model_config(const Model *model) { return &model->config; }
ParamSet *model_params(Model *model) { return &model->params; }
void model_recompute(Model *model, int blocks) { model->recomputed = blocks; }
void model_watch(Model *model, Exchange *watch) { model->watch = watch; }

/* ---- Initial values ---- */

static void scale(Tensor *tensor, double factor) {
  for (int64_t i = 0; tensor->value && i < tensor_count(tensor); i++) tensor->value[i] = (real)(factor * (double)tensor->value[i]);
}

void model_initialise_adapters(Model *model, Rng *rng) {
  for (size_t i = model->adapters_first; model->adapters_first > 0 && i < model->params.count; i++) {
    Param *param = &model->params.list[i];
    double deviation = param->init == PARAM_NORMAL ? 1 / sqrt(3 * (double)tensor_width(&param->tensor)) : 0;
    for (int64_t j = 0; j < tensor_count(&param->tensor); j++) param->tensor.value[j] = (real)(deviation * rng_normal(rng));
  }
}

void model_initialise(Model *model, Rng *rng) {
  param_initialise(&model->params, rng);
  double residual = 1 / sqrt(2 * (double)model->config.blocks);
  for (int64_t i = 0; model->config.kind == MODEL_GPT2 && i < model->config.blocks; i++) {
    scale(model_param(model, model->block[i].output.weight), residual);
    scale(model_param(model, model->block[i].down.weight), residual);
  }
  model_initialise_adapters(model, rng);
}

/* Mimetic initialisation of a vision transformer: see model.h. With G a matrix of independent normal numbers, G^T G is the identity plus
 * noise, which is the structure that trained attention layers are found to have; no decomposition is needed. */

static const double LOOK_ALIKE = 0.25;            /* of the identity in query^T key */
static const double TAKE_AWAY = 0.4;              /* of the identity in output value, with a minus sign */
static const double POSITION = 0.35, PATCH = 0.5; /* deviations of the two parts of an input token */

static real *values(Model *model, int index) { return model->params.list[index].tensor.value; }
static int64_t count(Model *model, int index) { return tensor_count(&model->params.list[index].tensor); }

static void fill_normal(Model *model, int index, double deviation, Rng *rng) {
  for (int64_t i = 0; i < count(model, index); i++) values(model, index)[i] = (real)(deviation * rng_normal(rng));
}

Status model_initialise_mimetic(Model *model, Rng *rng) {
  if (config_is_decoder(&model->config))
    return status_set(STATUS_BAD_VALUE, "mimetic weights are for vision transformers; use random ones (--init random)");
  const int64_t width = model->config.width;
  for (int64_t index = 0; index < model->config.blocks; index++) {
    const BlockParams *block = &model->block[index];
    fill_normal(model, block->key.weight, sqrt(LOOK_ALIKE / (double)(width / model->config.heads)), rng);
    for (int64_t i = 0; i < width * width; i++) values(model, block->query.weight)[i] = values(model, block->key.weight)[i];
    fill_normal(model, block->value.weight, sqrt(TAKE_AWAY / (double)width), rng);
    for (int64_t row = 0; row < width; row++)
      for (int64_t column = 0; column < width; column++)
        values(model, block->output.weight)[row * width + column] = -values(model, block->value.weight)[column * width + row];
  }
  int64_t depth = model->config.channels * model->config.patch * model->config.patch;
  fill_normal(model, model->patch_weight, PATCH / sqrt((double)depth), rng);
  /* Positions: the first half of the numbers follows the patch's column, the second its row; each half is sines, then cosines. */
  const int64_t across = model->config.image / model->config.patch, quarter = width / 4;
  for (int64_t token = 0; token < across * across; token++) {
    real *position = values(model, model->position) + (token + 1) * width;
    for (int64_t i = 0; i < 4 * quarter; i++) {
      double place = (double)(i < 2 * quarter ? token % across : token / across);
      double angle = place / pow(100, (double)(i % quarter) / (double)quarter);
      position[i] = (real)(POSITION * sqrt(2) * (i % (2 * quarter) < quarter ? sin(angle) : cos(angle)));
    }
  }
  return STATUS_OK;
}

/* ---- Weights for inference ---- */

Status model_pack_weights(Model *model, bool bf16) {
  for (size_t i = 0; i < model->params.count; i++)
    if (!model_is_vocabulary(model, i)) TRY(param_pack(&model->params, i, bf16));
  return bf16 ? param_make_shadows(&model->params) : STATUS_OK;
}

/* ---- First rows ---- */

/* The rows of some tokens, token [rows], of those whose ids are given: [B, rows, D]. */
static Tensor *embed_tokens(Model *model, Tape *tape, const ModelInput *input, int64_t tokens, const int32_t *token, int64_t rows) {
  Tensor *position = model_param(model, model->position);
  const int32_t *ids = input->ids;
  if (rows != tokens) {
    int32_t *some = tape_alloc(tape, (size_t)(input->batch * rows) * sizeof *some);
    if (some == NULL) return NULL;
    for (int64_t b = 0; b < input->batch && !tape_planning(tape); b++)
      for (int64_t row = 0; row < rows; row++) some[b * rows + row] = ids[b * tokens + token[row]];
    ids = some;
  }
  return op_token_embed(tape, model_param(model, model->token_table), position, ids, position ? token : NULL, input->batch, rows);
}

Tensor *model_embed(Model *model, Tape *tape, const ModelInput *input, const TokenLayout *layout) {
  Tensor *rows = input->rows;
  if (rows != NULL && rows->dims == 3 && rows->shape[1] == layout->rows && rows->shape[2] == model->config.width) return rows;
  if (rows != NULL)
    return tape_fail(tape, STATUS_BAD_VALUE, "rows of %lld numbers are given; the model takes %lld rows of %lld",
                     (long long)tensor_width(rows), (long long)layout->rows, (long long)model->config.width),
           NULL;
  if (config_is_decoder(&model->config)) {
    long long tokens = (long long)layout->tokens, context = (long long)model->config.context;
    if (input->ids == NULL || input->batch < 1 || layout->class_token != CLASS_NONE)
      return tape_fail(tape, STATUS_BAD_VALUE, "a language model takes the ids of tokens, in a layout without a class token"), NULL;
    if (tokens > context)
      return tape_fail(tape, STATUS_BAD_VALUE, "a sequence of %lld tokens is longer than the model's context of %lld", tokens, context),
             NULL;
    return embed_tokens(model, tape, input, layout->tokens, layout->row_token, layout->rows);
  }
  if (input->pixels == NULL) return tape_fail(tape, STATUS_BAD_VALUE, "a vision transformer takes pixels"), NULL;
  /* Rows are sorted by device here and stay so to the end; only class-token rows come out. */
  return op_patch_embed(tape, input->pixels, model_param(model, model->patch_weight), model_param(model, model->patch_bias),
                        model_param(model, model->position), model_param(model, model->class_token), model->config.patch, layout->row_token,
                        layout->rows);
}

/* ---- Forward pass ---- */

BlockContext model_block_context(Model *model) {
  return (BlockContext){.config = &model->config,
                        .params = &model->params,
                        .rope = model->rope.cosine ? &model->rope : NULL,
                        .causal = config_is_decoder(&model->config),
                        .adapter_scale = model->adapter_scale,
                        .not_finite = &model->not_finite};
}

Tensor *model_encode(Model *model, Tape *tape, const ModelInput *input, const TokenLayout *layout, Exchange *exchange, ModelRows rows) {
  bool decoder = config_is_decoder(&model->config);
  if (rows == (decoder ? MODEL_ROWS_CLASS : MODEL_ROWS_LAST))
    return tape_fail(tape, STATUS_BAD_VALUE, "this kind of model has no %s", decoder ? "class token" : "last token"), NULL;
  BlockContext context = model_block_context(model);
  context.drop_path = tape_recording(tape) ? model->drop_path : 0;
  context.drop_seed = model->drop_seed;
  context.drop_first = model->drop_first;
  context.layout = layout;
  context.exchange = exchange;
  context.watch = model->watch;
  context.outputs = input->outputs;
  context.cache = input->cache;
  model->not_finite = BLOCK_NONE;
  Tensor *x = block_checked(&context, tape, BLOCK_EMBEDDING, model_embed(model, tape, input, layout));
  if (config_first_coded(&model->config) > 0 && exchange != NULL && exchange->know != NULL && layout->self >= 0 && layout->remote > 0 &&
      x != NULL && input->ids != NULL)
    context.known = embed_tokens(model, tape, input, layout->tokens, layout->remote_token, layout->remote);
  x = block_encode_all(&context, model->block, model->recomputed, rows, tape, x);
  if (x != NULL && input->cache != NULL)
    kv_cache_advance(input->cache, layout->rows + (input->cache->setup.sites == 0 ? layout->remote : 0));
  return x == NULL ? NULL : block_norm(&context, tape, x, model->norm_weight, model->norm_bias);
}

void model_drop_path(Model *model, double rate, uint64_t seed, int64_t first) {
  model->drop_path = rate;
  model->drop_first = first;
  model->drop_seed = seed;
}

int model_not_finite(const Model *model) { return model->not_finite; }

/* ---- Heads ---- */

static Tensor *checked_head(Model *model, Tape *tape, Tensor *logits) {
  const BlockContext context = {.config = &model->config, .not_finite = &model->not_finite};
  return block_checked(&context, tape, (int)model->config.blocks, logits);
}

/* Weights of replicas in their mean, [replicas]; NULL: all alike. */
static const real *replica_weights(const Model *model, Tape *tape, int64_t replicas, const int64_t *tokens) {
  const double power = model->config.astra.class_mean_power;
  if (power == 0 || replicas < 2) return NULL;
  real *weights = tape_alloc(tape, (size_t)replicas * sizeof *weights);
  double sum = 0;
  bool alike = true;
  for (int64_t i = 0; weights && i < replicas; i++) {
    sum += pow((double)tokens[i], power);
    alike = alike && tokens[i] == tokens[0];
  }
  for (int64_t i = 0; weights && i < replicas; i++) weights[i] = (real)(pow((double)tokens[i], power) / sum);
  return alike ? NULL : weights;
}

Tensor *model_classify_replicas(Model *model, Tape *tape, Tensor *encoded, const int64_t *tokens) {
  if (model->config.classes == 0) return tape_fail(tape, STATUS_BAD_VALUE, "this model predicts tokens; it has no head of classes"), NULL;
  if (encoded != NULL && config_is_decoder(&model->config) && encoded->shape[1] != 1)
    return tape_fail(tape, STATUS_BAD_VALUE, "a text is classified by one row, that of its last token"), NULL;
  const real *weights = encoded && tokens ? replica_weights(model, tape, encoded->shape[1], tokens) : NULL;
  return checked_head(model, tape,
                      op_linear(tape, op_mean_replicas(tape, encoded, weights), model_param(model, model->head_weight),
                                model_param(model, model->head_bias), ACTIVATION_NONE, NULL));
}

Tensor *model_classify(Model *model, Tape *tape, Tensor *encoded) { return model_classify_replicas(model, tape, encoded, NULL); }

Tensor *model_token_table(Model *model, Tape *tape) {
  if (!config_is_decoder(&model->config) || model->config.classes > 0)
    return tape_fail(tape, STATUS_BAD_VALUE, "this model classifies; it does not predict tokens"), NULL;
  return model_param(model, model->config.tied ? model->token_table : model->head_weight);
}

Tensor *model_logits(Model *model, Tape *tape, Tensor *encoded) {
  return checked_head(model, tape, op_linear(tape, encoded, model_token_table(model, tape), NULL, ACTIVATION_NONE, NULL));
}

Tensor *model_token_loss(Model *model, Tape *tape, Tensor *encoded, const VocabLoss *options) {
  return op_vocab_loss(tape, encoded, model_token_table(model, tape), options);
}

Tensor *model_decode_step(Model *model, Tape *tape, KvCache *cache, const int32_t *token) {
  int32_t position = (int32_t)(cache->remote + cache->rows), first_row = 0;
  int64_t none = 0;
  AttentionSpan span = {.begin = 0, .count = 1};
  TokenLayout layout = {.devices = 1,
                        .tokens = 1,
                        .class_token = CLASS_NONE,
                        .rows = 1,
                        .row_token = &position,
                        .spans = 1,
                        .span = &span,
                        .class_of_span = &none,
                        .shared = 1,
                        .shared_rows = 1,
                        .shared_row = &first_row};
  if (cache->rows == 0) return tape_fail(tape, STATUS_BAD_VALUE, "decoding needs a prompt before it"), NULL;
  ModelInput input = {.ids = token, .batch = 1, .cache = cache};
  return model_logits(model, tape, model_encode(model, tape, &input, &layout, NULL, MODEL_ROWS_ALL));
}
