/* Tables of keys and values: see kv_tables.h. A table gives the same as the product; whether it is faster depends on G: each token reads G
 * rows of 2 kv width numbers, which for many groups takes longer than the product. Therefore it is measured where it matters. */
#include "nn/kv_tables.h"
#include "autograd/kernels/kernels.h"
#include "base/clock.h"
#include "nn/lowbit_weights.h"
#include "nn/model_internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MEASURED_RUNS = 3, ROW_GRAIN = 16, HUGE_PAGE = 2 << 20 };

struct KvTables {
  int64_t blocks, groups, entries, width; /* blocks that have one; G, K, kv width */
  real *rows;                             /* [blocks][G][K][2 kv width] */
  double seconds[2];                      /* of KV_TABLES_ROWS: from the tables, as a product */
};

static int64_t block_numbers(const KvTables *tables) { return tables->groups * tables->entries * 2 * tables->width; }

static const real *row_of(const KvTables *tables, int block, int64_t group, int32_t code) {
  return tables->rows + block * block_numbers(tables) + (group * tables->entries + code) * 2 * tables->width;
}

/* ---- building */

typedef struct Builder {
  KvTables *tables;
  Model *model;
  const KvTablesSetup *setup;
  Arena *arena;
  Tape *tape;
} Builder;

/* One side of a group's rows: the group's codewords times the columns of the projection that they meet. */
static Status fill_side(const Builder *builder, int block, int64_t group, const Projection *projection, real *rows) {
  const KvTables *tables = builder->tables;
  int64_t part = builder->model->config.width / tables->groups;
  const real *words = builder->setup->codewords[block] + group * tables->entries * part;
  Tensor *x = tape_constant(builder->tape, 2, (int64_t[]){tables->entries, part}, words);
  Tensor *bias = group == 0 ? model_param(builder->model, projection->bias) : NULL;
  const Tensor *y =
      op_linear_columns(builder->tape, x, model_param(builder->model, projection->weight), bias, &projection->part, group * part, NULL);
  for (int64_t k = 0; y != NULL && k < tables->entries; k++)
    memcpy(rows + k * 2 * tables->width, y->value + k * tables->width, (size_t)tables->width * sizeof(real));
  Status status = tape_status(builder->tape);
  tape_clear(builder->tape);
  return status;
}

/* ---- measuring, on block 0 */

static Status run_product(const Builder *builder, const int32_t *codes) {
  const BlockParams *block = &builder->model->block[0];
  const int64_t groups = builder->tables->groups, width = builder->model->config.width, part = width / groups;
  Tensor *x = tape_tensor(builder->tape, 2, (int64_t[]){KV_TABLES_ROWS, width});
  for (int64_t i = 0; x != NULL && i < KV_TABLES_ROWS * groups; i++)
    memcpy(x->value + i * part, builder->setup->codewords[0] + (i % groups * builder->tables->entries + codes[i]) * part,
           (size_t)part * sizeof(real));
  for (int side = 0; side < 2; side++) {
    const Projection *p = side == 0 ? block_remote_key(block) : block_remote_value(block);
    op_linear_part(builder->tape, x, model_param(builder->model, p->weight), model_param(builder->model, p->bias), &p->part,
                   ACTIVATION_NONE, NULL);
  }
  return tape_status(builder->tape);
}

static Status run_tables(const Builder *builder, const int32_t *codes) {
  int64_t width = builder->tables->width;
  Tensor *k = tape_tensor(builder->tape, 2, (int64_t[]){KV_TABLES_ROWS, width});
  Tensor *v = tape_tensor(builder->tape, 2, (int64_t[]){KV_TABLES_ROWS, width});
  if (k != NULL && v != NULL) kv_tables_sum(builder->tables, 0, codes, KV_TABLES_ROWS, k->value, width, v->value, width);
  return tape_status(builder->tape);
}

/* The fastest of a few runs, in time of this thread: other programs can slow one down, the longer one more often. Each has codes of its
 * own: rows that an earlier run has read would come from a cache, where a request finds them in memory. */
static Status measure(const Builder *builder) {
  static Status (*const run[2])(const Builder *, const int32_t *) = {run_tables, run_product};
  const int64_t each = KV_TABLES_ROWS * builder->tables->groups, count = 2 * MEASURED_RUNS * each;
  int32_t *codes = malloc((size_t)count * sizeof *codes); /* [2 MEASURED_RUNS] [ROWS, G] */
  if (codes == NULL) return status_set(STATUS_NO_MEMORY, "no memory to time %lld codes", (long long)count);
  Rng rng;
  rng_init(&rng, 1, 0);
  for (int64_t i = 0; i < count; i++) codes[i] = (int32_t)rng_below(&rng, (uint64_t)builder->tables->entries);
  Status status = STATUS_OK;
  for (int i = 0; i < 2 * MEASURED_RUNS && status == STATUS_OK; i++) {
    double begun = clock_spent();
    status = run[i % 2](builder, codes + i * each);
    double taken = clock_spent() - begun, *best = &builder->tables->seconds[i % 2];
    if (*best == 0 || taken < *best) *best = taken;
    tape_clear(builder->tape);
  }
  free(codes);
  return status;
}

/* ---- choosing */

bool kv_tables_pay(const KvTablesCase *of) {
  const size_t own_cache = (size_t)1 << 20;
  const double min_flops = 1e8 /* about 3 ms */, min_gain = 0.7;
  if (of->groups == 1 || of->bytes <= own_cache) return true;
  return of->flops >= min_flops && of->table_time <= min_gain * of->product_time;
}

/* ---- the whole */

static Status check(const Model *model, const KvTablesSetup *setup) {
  if (model->config.astra.site != SITE_X)
    return status_set(STATUS_UNSUPPORTED, "keys and values are what travels: there is nothing to make a table of");
  for (int64_t i = 0; i < model->config.blocks; i++)
    if (block_remote_key(&model->block[i])->lora_a >= 0 || block_remote_value(&model->block[i])->lora_a >= 0)
      return status_set(STATUS_UNSUPPORTED, "tables of keys with adapters: fold them into the weights first");
  if (lowbit_weights_of(model) != LOWBIT_NONE) /* products round whole rows to 8 bits, tables would not */
    return status_set(STATUS_UNSUPPORTED, "tables of keys with weights of 8 or 4 bits");
  if (setup->groups < 1 || setup->entries < 1 || model->config.width % setup->groups != 0)
    return status_set(STATUS_BAD_VALUE, "tables of %lld groups of %lld codewords for a width of %lld", (long long)setup->groups,
                      (long long)setup->entries, (long long)model->config.width);
  return STATUS_OK;
}

/* Fills the table of each block; after the first, drops them all where they are measured and do not pay. */
static Status fill(const Builder *builder) {
  KvTables *tables = builder->tables;
  for (int block = 0; block < tables->blocks; block++) {
    const BlockParams *params = &builder->model->block[block];
    for (int64_t group = 0; group < tables->groups; group++) {
      real *rows = tables->rows + block * block_numbers(tables) + group * tables->entries * 2 * tables->width;
      TRY(fill_side(builder, block, group, block_remote_key(params), rows));
      TRY(fill_side(builder, block, group, block_remote_value(params), rows + tables->width));
    }
    if (block > 0 || !builder->setup->measure) continue;
    TRY(measure(builder));
    const KvTablesCase measured = {.groups = tables->groups,
                                   .bytes = (size_t)block_numbers(tables) * sizeof(real),
                                   .flops = 2.0 * KV_TABLES_ROWS * (double)builder->model->config.width * 2.0 * (double)tables->width,
                                   .table_time = tables->seconds[0],
                                   .product_time = tables->seconds[1]};
    if (kv_tables_pay(&measured)) continue;
    free(tables->rows);
    tables->rows = NULL;
    tables->blocks = 0;
  }
  return STATUS_OK;
}

int64_t kv_tables_room(const ModelConfig *config, int64_t groups, int64_t entries, double memory) {
  if (config->astra.prediction) return 0; /* a token is more than the codewords of this block */
  int64_t width = config_kv_width(config);
  double fit = memory / ((double)(groups * entries * 2 * width) * sizeof(real));
  const int64_t blocks = config_end_coded(config);
  return fit < (double)blocks ? (int64_t)fit : blocks;
}

Status kv_tables_build(KvTables **out, Model *model, const KvTablesSetup *setup) {
  *out = NULL;
  TRY(check(model, setup));
  KvTables *tables = calloc(1, sizeof *tables);
  if (tables == NULL) return status_no_memory(NULL, "tables of keys and values");
  const ModelConfig *config = &model->config;
  tables->groups = setup->groups, tables->entries = setup->entries;
  tables->width = config_kv_width(config);
  tables->blocks = kv_tables_room(config, tables->groups, tables->entries, (double)setup->memory);
  const size_t bytes = (size_t)(tables->blocks * block_numbers(tables)) * sizeof(real);
  if (tables->blocks > 0) tables->rows = aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
  *out = tables;
  if (tables->rows == NULL) { /* without tables keys and values are computed as products */
    tables->blocks = 0;
    return STATUS_OK;
  }
  /* Rows are read in no order: with small pages each would cost a walk through the page table as well. Only advice. */
  (void)madvise(tables->rows, bytes, MADV_HUGEPAGE);
  const int64_t rows = tables->entries + KV_TABLES_ROWS; /* enough for one side's product, or for what is measured */
  Builder builder = {.tables = tables, .model = model, .setup = setup};
  builder.arena = arena_new((size_t)(rows * (config->width + 2 * tables->width)) * sizeof(real) + ((size_t)64 << 20));
  builder.tape = builder.arena ? tape_new(builder.arena) : NULL;
  Status status = builder.tape ? fill(&builder) : status_no_memory(NULL, "making tables of keys and values");
  tape_free(builder.tape);
  arena_free(builder.arena);
  if (status == STATUS_OK) return STATUS_OK;
  kv_tables_free(tables);
  *out = NULL;
  return status;
}

void kv_tables_free(KvTables *tables) {
  if (tables == NULL) return;
  free(tables->rows);
  free(tables);
}

bool kv_tables_has(const KvTables *tables, int block) { return tables != NULL && block < tables->blocks; }
int64_t kv_tables_blocks(const KvTables *tables) { return tables == NULL ? 0 : tables->blocks; }
int64_t kv_tables_width(const KvTables *tables) { return tables->width; }

size_t kv_tables_bytes(const KvTables *tables) {
  return tables == NULL ? 0 : (size_t)(tables->blocks * block_numbers(tables)) * sizeof(real);
}

double kv_tables_seconds(const KvTables *tables, bool product) { return tables->seconds[product]; }

/* ---- use */

typedef struct Sum {
  const KvTables *tables;
  int block;
  const int32_t *codes;
  real *k, *v;
  int64_t ldk, ldv;
} Sum;

static void sum_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const Sum *sum = context;
  const KvTables *tables = sum->tables;
  int64_t width = tables->width;
  for (int64_t row = begin; row < end; row++) {
    const int32_t *codes = sum->codes + row * tables->groups;
    const real *first = row_of(tables, sum->block, 0, codes[0]);
    real *k = sum->k + row * sum->ldk, *v = sum->v + row * sum->ldv;
    memcpy(k, first, (size_t)width * sizeof *k);
    memcpy(v, first + width, (size_t)width * sizeof *v);
    for (int64_t group = 1; group < tables->groups; group++) {
      const real *more = row_of(tables, sum->block, group, codes[group]);
      kernels()->add(width, more, k);
      kernels()->add(width, more + width, v);
    }
  }
}

void kv_tables_sum(const KvTables *tables, int block, const int32_t *codes, int64_t rows, real *k, int64_t ldk, real *v, int64_t ldv) {
  threads_for(rows, ROW_GRAIN, sum_body, &(Sum){tables, block, codes, k, v, ldk, ldv});
}
