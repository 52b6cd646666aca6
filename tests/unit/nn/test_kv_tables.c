/* Tables of keys and values: what they give against products of the looked-up rows, how much memory they take, what is chosen, and what is
 * refused. */
#include "nn/kv_tables.h"
#include "nn/model_internal.h"
#include "unit/float_equal.h"
#include "unit/nn/small_decoder.h"
#include <math.h>
#include <stdlib.h>

enum { ENTRIES = 7, ROWS = 50 };
static const double CLOSE = REAL_IS_DOUBLE ? 1e-12 : 1e-5;

typedef struct Fixture {
  ModelConfig config;
  Model *model;
  real *words[SMALL_BLOCKS];
  SmallRun run;
} Fixture;

static void open_in(Fixture *f, ModelKind kind, Site site, bool rotation) {
  if (kind == MODEL_VIT) {
    assert_int_equal(config_preset(&f->config, "vit-cifar", 5), STATUS_OK);
    f->config.width = SMALL_WIDTH, f->config.blocks = SMALL_BLOCKS, f->config.heads = f->config.kv_heads = 3, f->config.mlp = 40;
  } else {
    small_config(&f->config, kind, 0);
  }
  f->config.astra.site = site;
  f->config.astra.groups = rotation; /* those of tables are the test's */
  f->config.astra.rotation = rotation;
  f->model = small_model(&f->config, false);
  Rng rng;
  rng_init(&rng, 3, 0);
  for (int block = 0; block < SMALL_BLOCKS; block++) {
    f->words[block] = malloc(ENTRIES * SMALL_WIDTH * sizeof(real));
    for (int i = 0; i < ENTRIES * SMALL_WIDTH; i++) f->words[block][i] = (real)rng_normal(&rng);
  }
  small_open(&f->run);
}

static void open(Fixture *f, ModelKind kind, Site site) { open_in(f, kind, site, false); }

static void close(Fixture *f) {
  for (int block = 0; block < SMALL_BLOCKS; block++) free(f->words[block]);
  small_close(&f->run);
  model_free(f->model);
  config_release(&f->config);
}

static KvTablesSetup setup_of(const Fixture *f, int64_t groups, size_t memory) {
  return (KvTablesSetup){.codewords = (const real *const *)f->words, .groups = groups, .entries = ENTRIES, .memory = memory};
}

/* [ROWS, D] on the tape */
static Tensor *looked_up(Fixture *f, int block, int64_t groups, const int32_t *codes) {
  int64_t part = SMALL_WIDTH / groups;
  Tensor *x = tape_tensor(f->run.tape, 2, (int64_t[]){ROWS, SMALL_WIDTH});
  for (int64_t i = 0; i < ROWS * groups; i++)
    memcpy(x->value + i * part, f->words[block] + (i % groups * ENTRIES + codes[i]) * part, (size_t)part * sizeof(real));
  return x;
}

static void check_side(Fixture *f, const Projection *p, Tensor *x, const real *got, int64_t stride) {
  const Tensor *y =
      op_linear_part(f->run.tape, x, model_param(f->model, p->weight), model_param(f->model, p->bias), &p->part, ACTIVATION_NONE, NULL);
  assert_non_null(y);
  int64_t width = tensor_width(y);
  for (int64_t row = 0; row < ROWS; row++) {
    small_assert_close(got + row * stride, y->value + row * width, width, CLOSE);
    for (int64_t e = width; e < stride; e++) assert_true(got[row * stride + e] == -1); /* beside the row nothing is written */
  }
}

static void check_tables(ModelKind kind, int64_t groups, bool rotation) {
  Fixture f;
  KvTables *tables;
  open_in(&f, kind, SITE_X, rotation);
  const KvTablesSetup setup = setup_of(&f, groups, SIZE_MAX);
  assert_int_equal(kv_tables_build(&tables, f.model, &setup), STATUS_OK);
  int64_t width = f.config.kv_heads * (f.config.width / f.config.heads), ldk = width + 3, ldv = width + 5;
  assert_int_equal(kv_tables_bytes(tables), (size_t)(SMALL_BLOCKS * groups * ENTRIES * 2 * width) * sizeof(real));
  int32_t codes[ROWS * SMALL_WIDTH];
  real k[ROWS * 2 * SMALL_WIDTH], v[ROWS * 2 * SMALL_WIDTH];
  for (int64_t i = 0; i < ROWS * groups; i++) codes[i] = (int32_t)(i * 5 + i / 7) % ENTRIES;
  for (int block = 0; block < SMALL_BLOCKS; block++) {
    assert_true(kv_tables_has(tables, block));
    for (int i = 0; i < ROWS * 2 * SMALL_WIDTH; i++) k[i] = v[i] = -1;
    kv_tables_sum(tables, block, codes, ROWS, k, ldk, v, ldv);
    Tensor *x = looked_up(&f, block, groups, codes);
    check_side(&f, block_remote_key(&f.model->block[block]), x, k, ldk);
    check_side(&f, block_remote_value(&f.model->block[block]), x, v, ldv);
  }
  assert_false(kv_tables_has(tables, SMALL_BLOCKS));
  assert_true(kv_tables_seconds(tables, true) == 0);
  kv_tables_free(tables);
  close(&f);
}

static void sums_are_products(void **state) {
  (void)state;
  static const int64_t groups[] = {1, 4, 12, 24};
  for (int kind = MODEL_VIT; kind <= MODEL_LLAMA; kind++)
    for (int g = 0; g < 8; g++) check_tables((ModelKind)kind, groups[g % 4], g >= 4);
}

/* Blocks get tables from the first on, while memory lasts. */
static void memory_is_a_bound(void **state) {
  (void)state;
  Fixture f;
  open(&f, MODEL_GPT2, SITE_X);
  const size_t each = 4 * ENTRIES * 2 * SMALL_WIDTH * sizeof(real);
  const size_t memory[] = {0, each - 1, each, 2 * each - 1, 2 * each, 100 * each};
  const int64_t blocks[] = {0, 0, 1, 1, 2, 2};
  for (int i = 0; i < 6; i++) {
    KvTables *tables;
    const KvTablesSetup setup = setup_of(&f, 4, memory[i]);
    assert_int_equal(kv_tables_build(&tables, f.model, &setup), STATUS_OK);
    assert_int_equal(kv_tables_bytes(tables), (size_t)blocks[i] * each);
    for (int block = 0; block < SMALL_BLOCKS; block++) assert_int_equal(kv_tables_has(tables, block), block < blocks[i]);
    kv_tables_free(tables);
  }
  assert_false(kv_tables_has(NULL, 0));
  assert_int_equal(kv_tables_bytes(NULL), 0);
  kv_tables_free(NULL);
  close(&f);
}

/* Of 12 x 768 as measured: 1, 4 and 16 groups, and 32; where it is too near to call; what is too short to matter; what stays in a cache. */
static void what_pays(void **state) {
  (void)state;
  const double product = 6.4e-3, flops = 6e8;
  const size_t large = (size_t)96 << 20;
  static const size_t cache = (size_t)1 << 20;
  const struct {
    KvTablesCase of;
    bool pays;
  } cases[] = {{{1, large, flops, product, product / 10}, true},    {{4, large, flops, product / 10, product}, true},
               {{16, large, flops, product / 2, product}, true},    {{32, large, flops, product * 0.97, product}, false},
               {{8, large, flops, product * 0.71, product}, false}, {{8, large, 4e7, product / 10, product}, false},
               {{8, cache, 4e7, product * 2, product}, true},       {{8, cache + 1, 4e7, product / 10, product}, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (kv_tables_pay(&cases[i].of) != cases[i].pays) fail_msg("case %zu", i);
}

/* Small tables stay whatever the times are, which are told. */
static void both_ways_are_timed(void **state) {
  (void)state;
  static const int64_t groups[] = {1, 4, 24};
  Fixture f;
  open(&f, MODEL_VIT, SITE_X);
  for (int g = 0; g < 3; g++) {
    KvTables *tables;
    KvTablesSetup setup = setup_of(&f, groups[g], SIZE_MAX);
    setup.measure = true;
    assert_int_equal(kv_tables_build(&tables, f.model, &setup), STATUS_OK);
    assert_true(kv_tables_seconds(tables, false) > 0 && kv_tables_seconds(tables, true) > 0);
    assert_true(kv_tables_has(tables, SMALL_BLOCKS - 1));
    kv_tables_free(tables);
  }
  close(&f);
}

static void what_is_refused(void **state) {
  (void)state;
  Fixture f;
  KvTables *tables;
  open(&f, MODEL_LLAMA, SITE_KV);
  KvTablesSetup setup = setup_of(&f, 1, SIZE_MAX);
  assert_int_equal(kv_tables_build(&tables, f.model, &setup), STATUS_UNSUPPORTED);
  assert_null(tables);
  close(&f);
  open(&f, MODEL_GPT2, SITE_X);
  setup = setup_of(&f, 5, SIZE_MAX);
  assert_int_equal(kv_tables_build(&tables, f.model, &setup), STATUS_BAD_VALUE);
  close(&f);
  small_config(&f.config, MODEL_GPT2, 0);
  assert_int_equal(model_new(&f.model, &f.config), STATUS_OK);
  assert_int_equal(model_add_adapters(f.model, 2, 4, "key"), STATUS_OK);
  setup.groups = 1;
  assert_int_equal(kv_tables_build(&tables, f.model, &setup), STATUS_UNSUPPORTED);
  assert_non_null(strstr(status_message(), "adapters"));
  model_free(f.model);
  config_release(&f.config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums_are_products),   cmocka_unit_test(memory_is_a_bound), cmocka_unit_test(what_pays),
      cmocka_unit_test(both_ways_are_timed), cmocka_unit_test(what_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
