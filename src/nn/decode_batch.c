/* The forward pass of new tokens of many sequences: see decode_batch.h. The steps of a block are block.c's, of rows that belong to
 * different sequences; what differs is where keys and values go, and what attention sees. */
#include "nn/decode_batch.h"
#include "autograd/ops/decode_attention.h"
#include "nn/block_internal.h"
#include "nn/model_internal.h"

typedef struct Step {
  BlockContext context;
  Model *model;
  Tape *tape;
  KvPages *pages;
  const DecodeRows *list;
  int count;
  int64_t rows, wanted;     /* of all sequences; those whose logits are wanted */
  int32_t *id, *position;   /* [rows] */
  int32_t *last;            /* [wanted] their rows; of none wanted the last row of each sequence */
  DecodeSequence *sequence; /* [count] */
  int32_t *positions;       /* [largest remote]: 0, 1, 2... */
} Step;

static bool begin_rows(Step *step) {
  Tape *tape = step->tape;
  int64_t remote = 0, row = 0, last = 0;
  for (int i = 0; i < step->count; i++) step->rows += step->list[i].count, step->wanted += step->list[i].logits;
  const bool any = step->wanted > 0;
  if (!any) step->wanted = step->count;
  step->id = tape_alloc(tape, (size_t)step->rows * sizeof *step->id);
  step->position = tape_alloc(tape, (size_t)step->rows * sizeof *step->position);
  step->last = tape_alloc(tape, (size_t)step->wanted * sizeof *step->last);
  step->sequence = tape_alloc(tape, (size_t)step->count * sizeof *step->sequence);
  if (tape_status(tape) != STATUS_OK) return false;
  for (int i = 0; i < step->count; i++) {
    const DecodeRows *rows = &step->list[i];
    const int64_t before = kv_pages_tokens(step->pages, rows->sequence);
    if (rows->count < 1 || rows->logits < 0 || rows->logits > rows->count || before + rows->count > step->model->config.context)
      return tape_fail(tape, STATUS_BAD_VALUE, "%lld tokens, %lld of them to be predicted from, after %lld: the model's context is %lld",
                       (long long)rows->count, (long long)rows->logits, (long long)before,
                       (long long)step->model->config.context) == STATUS_OK;
    if (!block_status(tape, kv_pages_extend(step->pages, rows->sequence, rows->count))) return false;
    for (int64_t r = 0; r < rows->count; r++, row++) {
      step->id[row] = rows->ids[r];
      step->position[row] = (int32_t)(before + r);
      if (any ? r >= rows->count - rows->logits : r == rows->count - 1) step->last[last++] = (int32_t)row;
    }
    const int64_t codes = kv_pages_block(step->pages, rows->sequence, 0).remote;
    if (remote < codes) remote = codes;
  }
  step->positions = tape_alloc(tape, (size_t)remote * sizeof *step->positions);
  for (int64_t i = 0; step->positions && i < remote; i++) step->positions[i] = (int32_t)i;
  return tape_status(tape) == STATUS_OK;
}

/* Keys and values of the new rows into the pages of their sequences. */
static bool store(const Step *step, int index, Tensor *k, Tensor *v) {
  k = k ? op_widen(step->tape, k) : NULL, v = v ? op_widen(step->tape, v) : NULL;
  if (k == NULL || v == NULL) return false;
  const int64_t width = tensor_width(k);
  for (int64_t i = 0, row = 0; i < step->count; row += step->list[i++].count)
    if (!block_status(step->tape, kv_pages_store(step->pages, step->list[i].sequence, index, step->list[i].count, k->value + row * width,
                                                 v->value + row * width)))
      return false;
  return true;
}

/* Codes of a sequence's remote tokens; NULL, and a tape that has failed, where they are none. */
static const int32_t *codes_of(const Step *step, int sequence, int64_t remote, int index, int site) {
  int32_t *codes = tape_alloc(step->tape, (size_t)(remote * kv_pages_setup(step->pages)->cache.groups) * sizeof *codes);
  if (codes == NULL || !block_status(step->tape, kv_pages_unpack(step->pages, sequence, index, site, codes))) return NULL;
  return codes;
}

static bool see(Step *step, int index, bool site_kv) {
  for (int i = 0; i < step->count; i++) {
    const DecodeRows *rows = &step->list[i];
    const KvPagesBlock held = kv_pages_block(step->pages, rows->sequence, index);
    DecodeSequence *s = &step->sequence[i];
    *s = (DecodeSequence){.queries = rows->count,
                          .key_page = held.page,
                          .value_page = held.page,
                          .keys = held.keys,
                          .values = held.values,
                          .rows = held.rows + rows->count,
                          .lost = held.lost,
                          .marks = held.marks,
                          .remote = held.remote};
    if (held.remote == 0) continue;
    const int32_t *first = codes_of(step, rows->sequence, held.remote, index, 0);
    s->x = s->k = first;
    if (site_kv) s->v = codes_of(step, rows->sequence, held.remote, index, 1);
    if (tape_status(step->tape) != STATUS_OK) return false;
  }
  return true;
}

static DecodeBook book_of(const KvCacheSetup *setup, int index, int site) {
  const KvCodewords *words = &setup->codewords[index * setup->sites + site];
  return (DecodeBook){words->reals, words->narrow, words->kind, setup->groups, setup->entries};
}

static Tensor *attend(Step *step, const BlockParams *block, int index, Tensor *q) {
  const BlockContext *context = &step->context;
  const ModelConfig *config = context->config;
  const KvPagesSetup *setup = kv_pages_setup(step->pages);
  const RopeTable *table = context->rope;
  const Rope rope = table ? (Rope){table->cosine, table->sine, table->count, (int)config->heads} : (Rope){.count = 0};
  const int64_t head_width = config->width / config->heads;
  const bool site_kv = config->astra.site == SITE_KV;
  if (!see(step, index, site_kv)) return NULL;
  DecodeBatch options = {.heads = (int)config->heads,
                         .kv_heads = (int)config->kv_heads,
                         .kind = setup->cache.kind,
                         .page = setup->page,
                         .row_step = head_width,
                         .head_step = setup->page * head_width,
                         .sequence = step->sequence,
                         .count = step->count,
                         .rope = table ? &rope : NULL,
                         .positions = step->positions};
  if (setup->cache.sites > 0 && site_kv) {
    options.k = book_of(&setup->cache, index, 0);
    options.v = book_of(&setup->cache, index, 1);
  } else if (setup->cache.sites > 0) {
    options.x = book_of(&setup->cache, index, 0);
  }
  const bool projected = setup->cache.sites > 0 && (!site_kv || block->rotation.weight >= 0);
  if (projected && !block_decode_projections(context, block, step->tape, &options.key, &options.value)) return NULL;
  return op_decode_batch(step->tape, q, &options);
}

static Tensor *run_block(Step *step, int index, Tensor *x) {
  const BlockContext *context = &step->context;
  const ModelConfig *config = context->config;
  const BlockParams *block = &step->model->block[index];
  Tape *tape = step->tape;
  Tensor *h = block_norm(context, tape, x, block->norm1_weight, block->norm1_bias);
  Tensor *q = block_map(context, tape, h, &block->query);
  const BlockKeys keys = block_keys(context, block, tape, h);
  q = block_rotate(context, tape, q, config->heads, step->position);
  if (!store(step, index, block_rotate(context, tape, keys.k, config->kv_heads, step->position), keys.v)) return NULL;
  Tensor *mixed = q ? attend(step, block, index, q) : NULL;
  return block_checked(context, tape, index, block_tail(context, block, index, tape, mixed, x));
}

Tensor *decode_batch(Model *model, Tape *tape, KvPages *pages, const DecodeRows *list, int count) {
  Step step = {.context = model_block_context(model), .model = model, .tape = tape, .pages = pages, .list = list, .count = count};
  if (!config_is_decoder(&model->config) || count < 1)
    return tape_fail(tape, STATUS_BAD_VALUE, "decoding takes a language model and a sequence at least"), NULL;
  model->not_finite = BLOCK_NONE;
  if (!begin_rows(&step)) return NULL;
  Tensor *position = model_param(model, model->position);
  Tensor *x =
      op_token_embed(tape, model_param(model, model->token_table), position, step.id, position ? step.position : NULL, 1, step.rows);
  x = block_checked(&step.context, tape, BLOCK_EMBEDDING, x);
  for (int index = 0; x != NULL && index < model->config.blocks; index++) {
    /* Rows may be the rest of a long prompt, which takes as long as one: whoever reports progress is told of each block. */
    Exchange *watch = model->watch;
    if (watch != NULL && !block_status(tape, watch->begin(watch, tape, NULL, index, 0, (Tensor *[]){x, NULL}))) return NULL;
    x = run_block(&step, index, x);
  }
  if (x != NULL && step.wanted < step.rows) x = op_gather_rows(tape, x, step.last, step.wanted);
  if (x == NULL) return NULL;
  x = block_norm(&step.context, tape, x, model->norm_weight, model->norm_bias);
  bool wants = false;
  for (int i = 0; i < count; i++) wants |= list[i].logits > 0;
  return wants ? model_logits(model, tape, x) : x;
}
