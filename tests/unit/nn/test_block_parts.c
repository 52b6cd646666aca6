/* Blocks in parts: several give the same as one within rounding, and the same codes; images and texts, both sites, lost tokens, parts
 * without rows; rows that come with and without runs. */
#include "nn/block_internal.h"
#include "nn/model_internal.h"
#include "unit/nn/loop_exchange.h"
#include "unit/nn/small_decoder.h"
#include <stdio.h>

enum { TOKENS = 16, DEVICES = 3, BLOCKS = 3 };
static const double CLOSE = REAL_IS_DOUBLE ? 1e-12 : 1e-4;
static const int64_t counts[DEVICES] = {5, 1, 10};

typedef struct Case {
  ModelKind kind;
  Site site;
  ClassToken class_token;
  unsigned lose;
  int64_t batch;
  bool each; /* every device has losses of its own */
  bool rotation;
  int exchange_blocks; /* of the three; 0: all */
} Case;

static int with_codes(const Case *c) { return c->exchange_blocks > 0 ? c->exchange_blocks : BLOCKS; }

typedef struct Fixture {
  ModelConfig config;
  Model *model;
  SmallRun run;
  LoopExchange loop;
  int32_t order[TOKENS], ids[2 * TOKENS];
  real *pixels;
} Fixture;

static Model *make_model(ModelConfig *config, const Case *c) {
  if (c->kind == MODEL_VIT) {
    assert_int_equal(config_preset(config, "vit-cifar", 5), STATUS_OK);
    config->image = 16, config->width = 24, config->heads = config->kv_heads = 3, config->mlp = 40;
    config->astra.groups = 1, config->astra.codebook_size = 5, config->astra.devices = config->astra.devices_min = 2;
  } else {
    small_config(config, c->kind, 0);
  }
  config->blocks = BLOCKS;
  config->astra.site = c->site;
  config->astra.class_token = c->class_token;
  config->astra.rotation = c->rotation;
  config->astra.exchange_blocks = c->exchange_blocks;
  if (c->rotation) config->astra.groups = 1;
  return small_model(config, false);
}

static void open(Fixture *f, const Case *c) {
  *f = (Fixture){.model = NULL};
  f->model = make_model(&f->config, c);
  small_open(&f->run);
  small_ids(f->ids, 2 * TOKENS);
  loop_open(&f->loop, config_sites(&f->config), c->lose);
  f->loop.each = f->loop.exchange.lost_of_spans = c->each;
  for (int i = 0; i < TOKENS; i++) f->order[i] = (int32_t)(i * 5 + 3) % TOKENS;
  int64_t numbers = 2 * 3 * 16 * 16;
  f->pixels = malloc((size_t)numbers * sizeof *f->pixels);
  Rng rng;
  rng_init(&rng, 4, 0);
  for (int64_t i = 0; i < numbers; i++) f->pixels[i] = (real)rng_normal(&rng);
}

static void close(Fixture *f) {
  loop_close(&f->loop);
  small_close(&f->run);
  model_free(f->model);
  config_release(&f->config);
  free(f->pixels);
}

static void build(Fixture *f, TokenLayout *layout, const Case *c, int self) {
  const int32_t *order = c->kind == MODEL_VIT ? f->order : NULL;
  assert_int_equal(layout_build(layout, TOKENS, DEVICES, counts, order, c->kind == MODEL_VIT ? c->class_token : CLASS_NONE, self),
                   STATUS_OK);
}

static Tensor *encode(Fixture *f, const Case *c, const TokenLayout *layout, Exchange *exchange, ModelRows rows) {
  ModelInput input = {.ids = f->ids, .batch = c->batch};
  if (c->kind == MODEL_VIT) input = (ModelInput){.pixels = tape_constant(f->run.tape, 4, (int64_t[]){c->batch, 3, 16, 16}, f->pixels)};
  Tensor *x = model_encode(f->model, f->run.tape, &input, layout, exchange, rows);
  if (tape_status(f->run.tape) != STATUS_OK) fail_msg("%s", status_message());
  return x;
}

static real *kept(const Tensor *x) {
  real *copy = malloc((size_t)tensor_count(x) * sizeof *copy);
  memcpy(copy, x->value, (size_t)tensor_count(x) * sizeof *copy);
  return copy;
}

/* Row i of node `self` among the emulation's rows, where node 0 comes first. */
static int64_t row_in_emulation(const TokenLayout *all, int self) { return all->span[self].begin; }

static void check_node(Fixture *f, const Case *c, const TokenLayout *all, const real *want, int self, int parts) {
  TokenLayout layout = {0};
  build(f, &layout, c, self);
  const Tensor *x = encode(f, c, &layout, loop_as_node(&f->loop, parts), MODEL_ROWS_ALL);
  assert_non_null(x);
  assert_int_equal(f->loop.off, 0);
  assert_true(f->loop.sent > 0);
  for (int block = 0; block < BLOCKS; block++) assert_int_equal(f->loop.passed[block], block >= with_codes(c));
  for (int64_t b = 0; b < c->batch; b++)
    small_assert_close(x->value + b * layout.rows * SMALL_WIDTH, want + (b * all->rows + row_in_emulation(all, self)) * SMALL_WIDTH,
                       layout.rows * SMALL_WIDTH, CLOSE);
  layout_release(&layout);
}

static Tensor *emulate(Fixture *f, const Case *c, TokenLayout *all) {
  build(f, all, c, -1);
  return encode(f, c, all, &f->loop.exchange, MODEL_ROWS_ALL);
}

static const Case cases[] = {
    {MODEL_VIT, SITE_X, CLASS_DISTRIBUTED, 0, 1, false, false, 0}, {MODEL_VIT, SITE_X, CLASS_SINGLE, 0, 1, false, false, 0},
    {MODEL_VIT, SITE_X, CLASS_DISTRIBUTED, 4, 1, false, false, 0}, {MODEL_VIT, SITE_KV, CLASS_DISTRIBUTED, 0, 1, false, false, 0},
    {MODEL_VIT, SITE_KV, CLASS_SINGLE, 3, 1, false, false, 0},     {MODEL_GPT2, SITE_X, CLASS_NONE, 0, 1, false, false, 0},
    {MODEL_GPT2, SITE_KV, CLASS_NONE, 4, 1, false, false, 0},      {MODEL_LLAMA, SITE_X, CLASS_NONE, 4, 1, false, false, 0},
    {MODEL_LLAMA, SITE_KV, CLASS_NONE, 0, 1, false, false, 0},     {MODEL_VIT, SITE_X, CLASS_DISTRIBUTED, 4, 1, true, false, 0},
    {MODEL_LLAMA, SITE_KV, CLASS_NONE, 3, 1, true, false, 0},      {MODEL_VIT, SITE_X, CLASS_DISTRIBUTED, 4, 1, true, true, 0},
    {MODEL_GPT2, SITE_X, CLASS_NONE, 4, 1, false, true, 0},        {MODEL_LLAMA, SITE_KV, CLASS_NONE, 3, 1, false, true, 0},
    {MODEL_VIT, SITE_KV, CLASS_SINGLE, 0, 1, true, true, 0},       {MODEL_VIT, SITE_X, CLASS_DISTRIBUTED, 4, 1, true, true, 2},
    {MODEL_VIT, SITE_KV, CLASS_SINGLE, 0, 1, false, false, 1},
};

static void several_parts_equal_the_emulation(void **state) {
  (void)state;
  static const int parts[] = {1, 2, 4, 8};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Fixture f;
    TokenLayout all = {0};
    open(&f, &cases[i]);
    real *want = kept(emulate(&f, &cases[i], &all));
    for (int p = 0; p < 4; p++)
      for (int self = 0; self < DEVICES; self++) check_node(&f, &cases[i], &all, want, self, parts[p]);
    free(want);
    layout_release(&all);
    close(&f);
  }
}

/* What a lost token changes is seen at all: otherwise the cases above would prove less. */
static void losses_matter(void **state) {
  (void)state;
  real *with = NULL, *without = NULL;
  for (int lose = 0; lose < 2; lose++) {
    Case c = {MODEL_VIT, SITE_X, CLASS_DISTRIBUTED, lose ? 4 : 0, 1, false, false, 0};
    Fixture f;
    TokenLayout all = {0};
    open(&f, &c);
    *(lose ? &with : &without) = kept(emulate(&f, &c, &all));
    layout_release(&all);
    close(&f);
  }
  double max = 0;
  for (int64_t i = 0; i < TOKENS * SMALL_WIDTH; i++) max = fmax(max, fabs((double)with[i] - (double)without[i]));
  assert_true(max > 0.01);
  free(with), free(without);
}

/* Without codes a device computes what it does where all of the others' tokens are lost. */
static void blocks_apart_equal_lost_tokens(void **state) {
  (void)state;
  for (int blocks = 1; blocks < BLOCKS; blocks++)
    for (int kind = 0; kind < 4; kind++) {
      real *rows[3];
      int64_t numbers = 0;
      for (int run = 0; run < 3; run++) { /* as it is, apart, lost */
        const Case c = {MODEL_VIT, kind & 1 ? SITE_KV : SITE_X, kind & 2 ? CLASS_SINGLE : CLASS_DISTRIBUTED, 0, 2, true,
                        false,     run == 1 ? blocks : 0};
        Fixture f;
        TokenLayout all = {0};
        open(&f, &c);
        f.loop.lost_from = run == 2 ? blocks : 0;
        const Tensor *x = emulate(&f, &c, &all);
        numbers = tensor_count(x);
        rows[run] = kept(x);
        layout_release(&all);
        close(&f);
      }
      small_assert_close(rows[1], rows[2], numbers, CLOSE);
      double max = 0;
      for (int64_t i = 0; i < numbers; i++) max = fmax(max, fabs((double)rows[0][i] - (double)rows[1][i]));
      assert_true(max > 0.01);
      for (int run = 0; run < 3; run++) free(rows[run]);
    }
}

static void check_bits(Fixture *f, const Case *c, int self, ModelRows rows) {
  TokenLayout layout = {0};
  build(f, &layout, c, self);
  f->loop.bare = true;
  const Tensor *whole = encode(f, c, &layout, loop_as_node(&f->loop, 1), rows);
  f->loop.bare = false;
  const Tensor *parts = encode(f, c, &layout, loop_as_node(&f->loop, 1), rows);
  assert_int_equal(whole != NULL, parts != NULL);
  if (whole != NULL) {
    assert_int_equal(tensor_count(whole), tensor_count(parts));
    assert_memory_equal(whole->value, parts->value, (size_t)tensor_count(whole) * sizeof(real));
  }
  for (int block = 0; block < BLOCKS; block++) assert_int_equal(f->loop.begun[block], block < with_codes(c));
  layout_release(&layout);
}

static void runs_say_where_rows_are_bit_by_bit(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int64_t batch = 1; batch <= 2; batch++) {
      Case c = cases[i];
      c.batch = batch;
      Fixture f;
      TokenLayout all = {0};
      open(&f, &c);
      emulate(&f, &c, &all);
      for (int self = 0; self < DEVICES; self++) {
        check_bits(&f, &c, self, MODEL_ROWS_ALL);
        check_bits(&f, &c, self, c.kind == MODEL_VIT ? MODEL_ROWS_CLASS : MODEL_ROWS_LAST);
      }
      layout_release(&all);
      close(&f);
    }
}

/* The last block carries class tokens, or the last token, alone; a node that has none of them sends its codes all the same. */
static void the_rows_that_are_wanted(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *c = &cases[i];
    ModelRows rows = c->kind == MODEL_VIT ? MODEL_ROWS_CLASS : MODEL_ROWS_LAST;
    Fixture f;
    TokenLayout all = {0}, layout = {0};
    open(&f, c);
    emulate(&f, c, &all);
    for (int self = 0; self < DEVICES; self++) {
      build(&f, &layout, c, self);
      const Tensor *whole = encode(&f, c, &layout, loop_as_node(&f.loop, 1), rows);
      int64_t sent = f.loop.sent;
      const Tensor *parts = encode(&f, c, &layout, loop_as_node(&f.loop, 4), rows);
      assert_int_equal(f.loop.sent, sent);
      assert_int_equal(f.loop.off, 0);
      assert_int_equal(whole != NULL, parts != NULL);
      bool here = rows == MODEL_ROWS_LAST ? self == DEVICES - 1 : c->class_token == CLASS_DISTRIBUTED || self == 0;
      assert_int_equal(parts != NULL, here);
      if (parts != NULL) small_assert_close(parts->value, whole->value, tensor_count(whole), CLOSE);
      for (int block = 0; block < BLOCKS; block++)
        assert_int_equal(f.loop.finished[block], layout.remote > 0 && block < with_codes(c) ? 4 : 0);
    }
    layout_release(&layout), layout_release(&all);
    close(&f);
  }
}

/* A decoder's last node keeps the same keys and values for the tokens to come. */
static void the_cache_is_filled_alike(void **state) {
  (void)state;
  const Case c = {MODEL_LLAMA, SITE_KV, CLASS_NONE, 0, 1, false, false, 0};
  Fixture f;
  TokenLayout all = {0}, layout = {0};
  KvCache cache[2];
  open(&f, &c);
  emulate(&f, &c, &all);
  build(&f, &layout, &c, DEVICES - 1);
  int64_t width = f.config.kv_heads * (f.config.width / f.config.heads);
  static KvCodewords words[BLOCKS * 2];
  const KvCacheSetup setup = {
      .blocks = BLOCKS, .width = width, .max = TOKENS, .sites = 2, .groups = 1, .entries = 5, .token_bytes = 1, .codewords = words};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(kv_cache_init(&cache[i], &setup), STATUS_OK);
    assert_int_equal(kv_cache_start(&cache[i], layout.remote), STATUS_OK);
    ModelInput input = {.ids = f.ids, .batch = 1, .cache = &cache[i]};
    assert_non_null(model_encode(f.model, f.run.tape, &input, &layout, loop_as_node(&f.loop, i ? 4 : 1), MODEL_ROWS_LAST));
    assert_int_equal(cache[i].rows, counts[DEVICES - 1]);
  }
  for (int block = 0; block < BLOCKS; block++) {
    const KvCacheBlock one = kv_cache_block(&cache[1], block), other = kv_cache_block(&cache[0], block);
    small_assert_close(one.keys, other.keys, cache[0].rows * width, CLOSE);
    small_assert_close(one.values, other.values, cache[0].rows * width, CLOSE);
  }
  kv_cache_release(&cache[0]), kv_cache_release(&cache[1]);
  layout_release(&layout), layout_release(&all);
  close(&f);
}

/* Keys and values that are handed over ready are used as they are. */
static void make_keys(LoopExchange *loop, Tape *tape, int block, ExchangeRows *rows) {
  Model *model = loop->keys;
  const Projection *side[2] = {block_remote_key(&model->block[block]), block_remote_value(&model->block[block])};
  Tensor **to[2] = {&rows->k, &rows->v};
  for (int i = 0; i < 2; i++)
    *to[i] = op_linear_part(tape, rows->x, model_param(model, side[i]->weight), model_param(model, side[i]->bias), &side[i]->part,
                            ACTIVATION_NONE, NULL);
  rows->x = NULL;
}

static void keys_may_be_ready(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (cases[i].site == SITE_KV) continue;
    Fixture f;
    TokenLayout all = {0};
    open(&f, &cases[i]);
    f.loop.keys = f.model, f.loop.make_keys = make_keys;
    real *want = kept(emulate(&f, &cases[i], &all));
    for (int parts = 1; parts <= 4; parts += 3)
      for (int self = 0; self < DEVICES; self++) check_node(&f, &cases[i], &all, want, self, parts);
    free(want);
    layout_release(&all);
    close(&f);
  }
}

/* Several parts of several samples, or of all devices at once, are refused. */
static void what_is_refused(void **state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    const Case c = {MODEL_GPT2, SITE_X, CLASS_NONE, 0, kind == 0 ? 2 : 1, false, false, 0};
    Fixture f;
    TokenLayout all = {0}, layout = {0};
    open(&f, &c);
    emulate(&f, &c, &all);
    build(&f, &layout, &c, kind == 0 ? 1 : -1);
    ModelInput input = {.ids = f.ids, .batch = c.batch};
    assert_null(model_encode(f.model, f.run.tape, &input, &layout, loop_as_node(&f.loop, 2), MODEL_ROWS_ALL));
    assert_int_equal(tape_status(f.run.tape), STATUS_BAD_VALUE);
    assert_non_null(strstr(status_message(), "one sample on a node"));
    layout_release(&layout), layout_release(&all);
    close(&f);
  }
}

/* Rows that an exchange hands over wrongly are an error, not memory that is written. */
static int64_t bad_place, bad_rows;

static void misplace(LoopExchange *loop, Tape *tape, int block, ExchangeRows *rows) {
  (void)loop, (void)tape, (void)block;
  ((ExchangeRun *)(uintptr_t)rows->run)[0].place += bad_place;
  if (bad_rows) rows->x = NULL;
}

static void take_away(LoopExchange *loop, Tape *tape, int block, ExchangeRows *rows) {
  (void)loop, (void)tape, (void)block;
  rows->x = NULL;
}

static void bad_rows_are_refused(void **state) {
  (void)state;
  static const struct {
    int64_t place, rows;
    const char *word;
  } bad[] = {{1000, 0, "rows from"}, {-1000, 0, "rows from"}, {INT64_MAX / 2, 0, "rows from"}, {0, 1, "no rows"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const Case c = {MODEL_VIT, SITE_X, CLASS_DISTRIBUTED, 0, 1, false, false, 0};
    Fixture f;
    TokenLayout all = {0}, layout = {0};
    open(&f, &c);
    emulate(&f, &c, &all);
    build(&f, &layout, &c, 0);
    bad_place = bad[i].place, bad_rows = bad[i].rows;
    f.loop.make_keys = misplace;
    ModelInput input = {.pixels = tape_constant(f.run.tape, 4, (int64_t[]){1, 3, 16, 16}, f.pixels)};
    assert_null(model_encode(f.model, f.run.tape, &input, &layout, loop_as_node(&f.loop, 2), MODEL_ROWS_ALL));
    assert_int_equal(tape_status(f.run.tape), STATUS_BAD_VALUE);
    if (!strstr(status_message(), bad[i].word)) fail_msg("%s", status_message());
    tape_clear(f.run.tape);
    if (bad[i].rows) { /* of a whole block as well */
      input.pixels = tape_constant(f.run.tape, 4, (int64_t[]){1, 3, 16, 16}, f.pixels);
      f.loop.make_keys = take_away;
      assert_null(model_encode(f.model, f.run.tape, &input, &layout, loop_as_node(&f.loop, 1), MODEL_ROWS_ALL));
      assert_non_null(strstr(status_message(), bad[i].word));
    }
    layout_release(&layout), layout_release(&all);
    close(&f);
  }
}

/* Rows in place of the embedding: any number of tokens, the same blocks. */
static void rows_are_given(void **state) {
  (void)state;
  const Case c = {MODEL_VIT, SITE_X, CLASS_DISTRIBUTED, 0, 1, false, false, 0};
  Fixture f;
  TokenLayout layout = {0};
  open(&f, &c);
  assert_int_equal(layout_build_plain(&layout, 7, CLASS_DISTRIBUTED), STATUS_OK);
  Tensor *rows = tape_constant(f.run.tape, 3, (int64_t[]){1, 8, SMALL_WIDTH}, f.pixels);
  const Tensor *x = model_encode(f.model, f.run.tape, &(ModelInput){.rows = rows}, &layout, NULL, MODEL_ROWS_ALL);
  assert_non_null(x);
  assert_int_equal(x->shape[1], 8);
  assert_int_equal(layout_build_plain(&layout, 6, CLASS_DISTRIBUTED), STATUS_OK);
  assert_null(model_encode(f.model, f.run.tape, &(ModelInput){.rows = rows}, &layout, NULL, MODEL_ROWS_ALL));
  layout_release(&layout);
  close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(several_parts_equal_the_emulation),
      cmocka_unit_test(losses_matter),
      cmocka_unit_test(blocks_apart_equal_lost_tokens),
      cmocka_unit_test(runs_say_where_rows_are_bit_by_bit),
      cmocka_unit_test(the_rows_that_are_wanted),
      cmocka_unit_test(the_cache_is_filled_alike),
      cmocka_unit_test(keys_may_be_ready),
      cmocka_unit_test(what_is_refused),
      cmocka_unit_test(bad_rows_are_refused),
      cmocka_unit_test(rows_are_given),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
