/* Blocks divided by heads and columns: see tensor_parallel.h. The bias of a matrix whose inputs are divided, and the residual, belong into
 * the sum once: the first device starts its share with them. */
#include "nn/tensor_parallel.h"
#include "autograd/tape.h"
#include "base/share.h"
#include "nn/block_internal.h"
#include "nn/lowbit_weights.h"
#include "nn/model_internal.h"

/* ---- shares */

Status tensor_parallel_share(const ModelConfig *config, int device, int devices, HeadShare *share) {
  if (devices < 1 || device < 0 || device >= devices) return status_set(STATUS_BAD_VALUE, "device %d of %d", device, devices);
  if (devices > config->kv_heads || devices > config->mlp)
    return status_set(STATUS_BAD_VALUE,
                      "%d devices for %lld key and value heads and %lld hidden numbers of the MLP: each needs at least one, so up to %lld "
                      "are accepted",
                      devices, (long long)config->kv_heads, (long long)config->mlp,
                      (long long)(config->kv_heads < config->mlp ? config->kv_heads : config->mlp));
  *share = (HeadShare){.first_kv = share_even_begin(config->kv_heads, devices, device),
                       .kv_heads = share_even_count(config->kv_heads, devices, device),
                       .first_mlp = share_even_begin(config->mlp, devices, device),
                       .mlp = share_even_count(config->mlp, devices, device),
                       .first_column = share_even_begin(config->width, devices, device),
                       .width = share_even_count(config->width, devices, device)};
  return STATUS_OK;
}

/* ---- one block, shared out */

typedef struct Division {
  BlockContext context;
  const BlockParams *block;
  int index;
  HeadShare share;
  Reduce *reduce;
  bool summed; /* shares are summed; else this device goes on with its own */
  Tape *tape;
} Division;

/* Some outputs of a projection. */
static Tensor *outputs_of(const Division *d, Tensor *x, const Projection *p, int64_t first, int64_t count, Activation activation) {
  LinearPart part = {p->part.first + first, count, p->part.transposed};
  return op_linear_part(d->tape, x, block_param(&d->context, p->weight), block_param(&d->context, p->bias), &part, activation, NULL);
}

/* Some inputs of a projection, and the sum over all devices: + bias + residual. which: 0 attention, 1 MLP. */
static Tensor *inputs_of(const Division *d, Tensor *x, const Projection *p, int64_t first, Tensor *residual, int which) {
  bool starts = !d->summed || d->reduce->self == 0;
  Tensor *bias = starts ? block_param(&d->context, p->bias) : NULL;
  Tensor *y = op_linear_columns(d->tape, x, block_param(&d->context, p->weight), bias, &p->part, first, starts ? residual : NULL);
  if (y == NULL || !d->summed) return y;
  if (block_checked(&d->context, d->tape, d->index, y) == NULL) return NULL; /* or others would be told of it, and report this one */
  return block_status(d->tape, d->reduce->sum(d->reduce, d->tape, d->index, which, y)) ? y : NULL;
}

static Tensor *attention(const Division *d, Tensor *h, const BlockWanted *wanted, Tensor *residual) {
  const ModelConfig *config = d->context.config;
  const TokenLayout *layout = d->context.layout;
  const int64_t width = config->width / config->heads, per_kv = config->heads / config->kv_heads;
  const int64_t kv = d->share.kv_heads, heads = kv * per_kv, first = d->share.first_kv * per_kv;
  Tensor *asking = block_wanted_of(wanted, d->tape, h);
  Tensor *q = outputs_of(d, asking, &d->block->query, first * width, heads * width, ACTIVATION_NONE);
  Tensor *k = outputs_of(d, h, &d->block->key, d->share.first_kv * width, kv * width, ACTIVATION_NONE);
  Tensor *v = outputs_of(d, h, &d->block->value, d->share.first_kv * width, kv * width, ACTIVATION_NONE);
  ModelConfig mine = *config;
  mine.heads = heads, mine.kv_heads = kv;
  BlockContext context = d->context;
  context.config = &mine;
  q = block_rotate(&context, d->tape, q, heads, wanted->token);
  k = block_rotate(&context, d->tape, k, kv, layout->row_token);
  Tensor *mixed = block_attend(&context, d->tape, q, (BlockKeys){k, v}, (BlockKeys){NULL, NULL}, NULL, wanted);
  return inputs_of(d, mixed, &d->block->output, first * width, residual, 0);
}

static Tensor *divided_block(const Division *d, Tensor *x, ModelRows rows) {
  const BlockWanted wanted = block_wanted(d->context.layout, rows);
  Tensor *h = block_norm(&d->context, d->tape, x, d->block->norm1_weight, d->block->norm1_bias);
  if (h == NULL) return NULL;
  x = attention(d, h, &wanted, block_wanted_of(&wanted, d->tape, x));
  if (x == NULL) return NULL;
  h = block_norm(&d->context, d->tape, x, d->block->norm2_weight, d->block->norm2_bias);
  const int64_t first = d->share.first_mlp, count = d->share.mlp;
  const bool gated = d->block->gate.weight >= 0;
  Tensor *hidden = outputs_of(d, h, &d->block->up, first, count, gated ? ACTIVATION_NONE : d->context.config->activation);
  if (gated) hidden = op_swiglu(d->tape, outputs_of(d, h, &d->block->gate, first, count, ACTIVATION_NONE), hidden);
  return inputs_of(d, hidden, &d->block->down, first, x, 1);
}

/* ---- a retained block */

static Tensor *gather(const Division *d, int which, Tensor *own, int64_t rows) {
  Tensor *all = NULL;
  if (own == NULL || tape_status(d->tape) != STATUS_OK) return NULL;
  if (block_checked(&d->context, d->tape, d->index, own) == NULL) return NULL;
  return block_status(d->tape, d->reduce->gather(d->reduce, d->tape, d->index, which, own, rows, &all)) ? all : NULL;
}

/* to [B, columns, rows] = columns [first, first + columns) of from [B, rows, width], or the way back with the whole width. */
static Tensor *turned(Tape *tape, const Tensor *from, int64_t first, int64_t columns) {
  int64_t batch = from->shape[0], rows = from->shape[1], width = from->shape[2];
  Tensor *to = tape_tensor(tape, 3, (int64_t[]){batch, columns, rows});
  if (to == NULL || tape_planning(tape)) return to;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t c = 0; c < columns; c++)
      for (int64_t r = 0; r < rows; r++) to->value[(b * columns + c) * rows + r] = from->value[(b * rows + r) * width + first + c];
  return to;
}

/* Of the plain model: this device's share of the rows, with keys and values of all, then all rows joined. */
static Tensor *block_by_rows(const Division *d, Tensor *x) {
  const TokenLayout *layout = d->context.layout;
  BlockWanted mine = {.part = true,
                      .first = share_even_begin(layout->rows, d->reduce->devices, d->reduce->self),
                      .count = share_even_count(layout->rows, d->reduce->devices, d->reduce->self)};
  int32_t *row = tape_alloc(d->tape, (size_t)layout->rows * sizeof *row);
  if (row == NULL) return NULL;
  for (int64_t i = 0; i < mine.count; i++) row[i] = (int32_t)(mine.first + i);
  mine.row = row, mine.of_span = &mine.count, mine.token = layout->row_token + mine.first;
  Tensor *h = block_norm(&d->context, d->tape, x, d->block->norm1_weight, d->block->norm1_bias);
  BlockKeys own = block_keys(&d->context, d->block, d->tape, h);
  Tensor *q = NULL, *residual = NULL;
  if (mine.count > 0) {
    q = block_map(&d->context, d->tape, block_wanted_of(&mine, d->tape, h), &d->block->query);
    residual = block_wanted_of(&mine, d->tape, x);
  }
  q = block_rotate(&d->context, d->tape, q, d->context.config->heads, mine.token);
  own.k = block_rotate(&d->context, d->tape, own.k, d->context.config->kv_heads, layout->row_token);
  if (q == NULL) return gather(d, 1, tape_tensor(d->tape, 3, (int64_t[]){x->shape[0], 0, x->shape[2]}), layout->rows);
  Tensor *mixed = block_attend(&d->context, d->tape, q, own, (BlockKeys){NULL, NULL}, NULL, &mine);
  return gather(d, 1, block_tail(&d->context, d->block, d->index, d->tape, mixed, residual), layout->rows);
}

static Tensor *retained_block(const Division *d, Strategy strategy, Tensor *x, ModelRows rows) {
  /* The stream that all go on with: of each device its columns. As rows of the turned stream, since shares of columns can be uneven. */
  const Tensor *all = gather(d, 0, turned(d->tape, x, d->share.first_column, d->share.width), x->shape[2]);
  x = all == NULL ? NULL : turned(d->tape, all, 0, x->shape[1]);
  if (x == NULL) return NULL;
  if (strategy == STRATEGY_BP_AG) return block_forward(&d->context, d->block, d->index, rows, d->tape, x);
  const BlockWanted wanted = block_wanted(d->context.layout, rows);
  x = block_by_rows(d, x);
  return x == NULL ? NULL : block_wanted_of(&wanted, d->tape, x);
}

/* ---- the whole */

static bool is_retained(int64_t index, int64_t blocks, int64_t retained) {
  return (index + 1) * retained / blocks > index * retained / blocks;
}

int tensor_parallel_block_steps(const ModelConfig *config, const TensorParallel *how, int64_t index, int64_t batch, int64_t rows,
                                int64_t wanted, ReduceStep steps[TENSOR_PARALLEL_STEPS]) {
  if (how->strategy == STRATEGY_TP) {
    steps[0] = steps[1] = (ReduceStep){.sum = true, .samples = 1, .rows = batch * wanted, .width = config->width};
    return 2;
  }
  steps[0] = (ReduceStep){.samples = batch, .rows = config->width, .width = rows};
  steps[1] = (ReduceStep){.samples = batch, .rows = rows, .width = config->width};
  return !is_retained(index, config->blocks, how->retained) ? 0 : how->strategy == STRATEGY_BP_SP ? 2 : 1;
}

int tensor_parallel_steps(const ModelConfig *config, const TensorParallel *how, int64_t batch, const TokenLayout *layout, ModelRows rows,
                          ReduceStep *steps) {
  int count = 0;
  for (int64_t index = 0; index < config->blocks; index++) {
    const BlockWanted wanted = block_wanted(layout, index == config->blocks - 1 ? rows : MODEL_ROWS_ALL);
    ReduceStep of_block[TENSOR_PARALLEL_STEPS];
    int here = tensor_parallel_block_steps(config, how, index, batch, layout->rows, wanted.row ? wanted.count : layout->rows, of_block);
    for (int i = 0; steps != NULL && i < here; i++) steps[count + i] = of_block[i];
    count += here;
  }
  return count;
}

static Status check(const Model *model, const Tape *tape, const ModelInput *input, const TokenLayout *layout, const TensorParallel *how) {
  if (how->strategy != STRATEGY_TP && how->strategy != STRATEGY_BP_AG && how->strategy != STRATEGY_BP_SP)
    return status_set(STATUS_BAD_VALUE, "\"%s\" does not divide heads and columns", strategy_facts(how->strategy)->name);
  if (how->strategy != STRATEGY_TP) TRY(strategy_check_retained(how->retained, model->config.blocks));
  if (input->cache != NULL)
    return status_set(STATUS_UNSUPPORTED, "--strategy %s cannot go on after the first token", strategy_facts(how->strategy)->name);
  if (model->adapters_first > 0)
    return status_set(STATUS_UNSUPPORTED, "a division by heads with adapters: fold them into the weights first");
  if (layout->remote > 0 || layout->spans != 1 || tape_recording(tape))
    return status_set(STATUS_BAD_VALUE, "a division by heads is for the plain layout, and not for training");
  /* Block weights are cut between blocks only. */
  const LowbitKind kind = lowbit_weights_of(model);
  const int64_t head = model->config.width / model->config.heads, queries = model->config.heads / model->config.kv_heads;
  const bool in_blocks = kind == LOWBIT_Q4_0 || kind == LOWBIT_Q8_0;
  for (int d = 0; how->reduce && in_blocks && d < how->reduce->devices; d++) {
    HeadShare share = {0};
    TRY(tensor_parallel_share(&model->config, d, how->reduce->devices, &share));
    if (share.first_kv * queries * head % LOWBIT_BLOCK != 0 || share.first_mlp % LOWBIT_BLOCK != 0)
      return status_set(STATUS_UNSUPPORTED,
                        "%d devices would divide weights that are kept in blocks of %d inputs: use weights of int8, or another number",
                        how->reduce->devices, LOWBIT_BLOCK);
  }
  return STATUS_OK;
}

typedef struct BlockJob {
  Division division;
  const TensorParallel *how;
  ModelRows rows;
  bool whole;
} BlockJob;

static void run_block(Tape *tape, void *data, Tensor *const *input, Tensor **output) {
  const BlockJob *job = data;
  (void)tape; /* the division's */
  output[0] = job->whole ? retained_block(&job->division, job->how->strategy, input[0], job->rows)
                         : divided_block(&job->division, input[0], job->rows);
}

/* Values of a block are let go at its end, where the tape does so (tape.h). */
static Tensor *all_blocks(Division *d, const Model *model, const TensorParallel *how, ModelRows rows, Tensor *x) {
  const int64_t blocks = model->config.blocks;
  Exchange *watch = model->watch;
  for (int64_t index = 0; index < blocks && x != NULL; index++) {
    Tensor *output[TAPE_SEGMENT_ENDS];
    BlockJob *job = tape_alloc(d->tape, sizeof *job);
    d->index = (int)index;
    d->block = &model->block[index];
    if (job == NULL) return NULL;
    if (watch && !block_status(d->tape, watch->begin(watch, d->tape, d->context.layout, d->index, 0, (Tensor *[]){x, NULL}))) return NULL;
    bool whole = !d->summed && is_retained(index, blocks, how->retained);
    *job = (BlockJob){*d, how, index == blocks - 1 ? rows : MODEL_ROWS_ALL, whole};
    tape_segment(d->tape, &(TapeSegment){.run = run_block, .context = job, .input = {x}}, output);
    x = block_checked(&d->context, d->tape, (int)index, output[0]);
  }
  return x;
}

Tensor *tensor_parallel_encode(Model *model, Tape *tape, const ModelInput *input, const TokenLayout *layout, const TensorParallel *how,
                               ModelRows rows) {
  Division d = {.context = model_block_context(model), .reduce = how->reduce, .summed = how->strategy == STRATEGY_TP, .tape = tape};
  d.context.layout = layout;
  if (!block_status(tape, check(model, tape, input, layout, how))) return NULL;
  if (!block_status(tape, tensor_parallel_share(&model->config, how->reduce->self, how->reduce->devices, &d.share))) return NULL;
  model->not_finite = BLOCK_NONE;
  Tensor *x = block_checked(&d.context, tape, BLOCK_EMBEDDING, model_embed(model, tape, input, layout));
  if (x != NULL) x = all_blocks(&d, model, how, rows, x);
  return x == NULL ? NULL : block_norm(&d.context, tape, x, model->norm_weight, model->norm_bias);
}
