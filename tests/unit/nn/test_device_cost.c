/* Costs by formula against what the blocks really multiply, against the paper's table of traffic and the figures of ViT-Base. */
#include "autograd/kernels/matmul.h"
#include "nn/device_cost.h"
#include "unit/nn/loop_exchange.h"
#include "unit/nn/small_decoder.h"
#include <math.h>

enum { TOKENS = 16, DEVICES = 3 };

static void vit_config(ModelConfig *config, ClassToken class_token, Site site) {
  assert_int_equal(config_preset(config, "vit-cifar", 5), STATUS_OK);
  config->image = 16, config->width = SMALL_WIDTH, config->heads = config->kv_heads = 3, config->mlp = 40, config->blocks = SMALL_BLOCKS;
  config->astra.class_token = class_token, config->astra.site = site;
}

/* Products of a forward pass of all rows, for each block. */
static double products(Model *model, SmallRun *run, const TokenLayout *layout, Exchange *exchange) {
  Tensor *rows = tape_tensor(run->tape, 3, (int64_t[]){1, layout->rows, SMALL_WIDTH});
  for (int64_t i = 0; i < tensor_count(rows); i++) rows->value[i] = (real)sin((double)i);
  matmul_reset_count();
  assert_non_null(model_encode(model, run->tape, &(ModelInput){.rows = rows}, layout, exchange, MODEL_ROWS_ALL));
  return matmul_counted().flops / SMALL_BLOCKS;
}

/* The exchanges of the tests assign no codewords, and a look-up multiplies nothing. */
static void check_products(ClassToken class_token, Site site) {
  static const int64_t counts[DEVICES] = {5, 1, 10};
  ModelConfig config;
  SmallRun run;
  LoopExchange loop;
  TokenLayout layout = {0};
  vit_config(&config, class_token, site);
  Model *model = small_model(&config, false);
  small_open(&run);
  loop_open(&loop, config_sites(&config), 0);
  assert_int_equal(layout_build(&layout, TOKENS, DEVICES, counts, NULL, class_token, -1), STATUS_OK);
  products(model, &run, &layout, &loop.exchange);
  for (int self = 0; self < (class_token == CLASS_SINGLE ? 1 : DEVICES); self++) {
    assert_int_equal(layout_build(&layout, TOKENS, DEVICES, counts, NULL, class_token, self), STATUS_OK);
    const DeviceCost cost = device_cost(&config, STRATEGY_ASTRA, counts[self], TOKENS, DEVICES, false);
    assert_float_equal(products(model, &run, &layout, loop_as_node(&loop, 4)), cost.linear + cost.attention, 0.5);
  }
  assert_int_equal(layout_build_plain(&layout, TOKENS, CLASS_DISTRIBUTED), STATUS_OK);
  const DeviceCost single = device_cost(&config, STRATEGY_SINGLE, TOKENS, TOKENS, 1, false);
  assert_float_equal(products(model, &run, &layout, NULL), single.linear + single.attention, 0.5);
  layout_release(&layout);
  loop_close(&loop);
  small_close(&run);
  model_free(model);
  config_release(&config);
}

static void products_are_counted(void **state) {
  (void)state;
  check_products(CLASS_DISTRIBUTED, SITE_X);
  check_products(CLASS_DISTRIBUTED, SITE_KV);
  check_products(CLASS_SINGLE, SITE_X);
}

/* 12 x 768, T = 1,024 on 4 devices, in GFLOP a block. */
static void figures_of_vit_base(void **state) {
  (void)state;
  ModelConfig c;
  assert_int_equal(config_preset(&c, "vit-base", 10), STATUS_OK);
  c.astra.groups = 16, c.astra.codebook_size = 1024;
  const DeviceCost whole = device_cost(&c, STRATEGY_SINGLE, 1024, 1024, 1, false);
  assert_float_equal(whole.linear / 1e9, 14.5, 0.05); /* 24 D^2 a row */
  assert_float_equal(whole.attention / 1e9, 3.22, 0.02);
  const DeviceCost product = device_cost(&c, STRATEGY_ASTRA, 256, 1024, 4, false);
  const DeviceCost tables = device_cost(&c, STRATEGY_ASTRA, 256, 1024, 4, true);
  assert_float_equal(tables.linear / 1e9, 3.62, 0.03);
  assert_float_equal(tables.attention / 1e9, 0.81, 0.01);
  assert_float_equal(tables.assign / 1e9, 0.40, 0.01);
  assert_float_equal((product.linear - tables.linear) / 1e9, 1.81, 0.01); /* 4 D^2 a remote token */
  assert_float_equal(tables.table_bytes, 768.0 * 16 * 2 * 768 * 4, 0.5);
  assert_true(product.table_bytes == 0 && tables.sent_bits == 256 * 160);
  config_release(&c);
}

/* Bits to one receiver, with U = T / N rows of D floats: sp U, tp 4 U, bp 1 and 2 U for each retained block; class rows besides. */
static void traffic(void **state) {
  (void)state;
  for (int decoder = 0; decoder < 2; decoder++) {
    ModelConfig c;
    assert_int_equal(config_preset(&c, decoder ? "gpt2" : "vit-base", decoder ? 0 : 10), STATUS_OK);
    const double row = 32.0 * (double)c.width, rows = decoder ? 256 : 256.25, l = (double)c.blocks;
    assert_float_equal(device_cost(&c, STRATEGY_SP, 256, 1024, 4, false).sent_bits, row * (decoder ? 256 : 257), 0.5);
    assert_float_equal(device_cost(&c, STRATEGY_TP, 256, 1024, 4, false).sent_bits, 4 * rows * row, 0.5);
    assert_float_equal(l * device_cost(&c, STRATEGY_BP_AG, 256, 1024, 4, false).sent_bits, rows * row, 0.5);
    assert_float_equal(l * device_cost_retained(&c, STRATEGY_BP_SP, 256, 1024, 4, 3).sent_bits, 6 * rows * row, 0.5);
    assert_true(device_cost(&c, STRATEGY_SINGLE, 256, 1024, 4, false).sent_bits == 0);
    for (int s = 0; s < STRATEGY_COUNT; s++) assert_true(device_cost(&c, (Strategy)s, 1024, 1024, 1, false).sent_bits == 0);
    config_release(&c);
  }
}

/* Of one device every strategy is the plain model; of several, tp's products are a share of it. */
static void shares(void **state) {
  (void)state;
  ModelConfig c;
  assert_int_equal(config_preset(&c, "llama-mini", 0), STATUS_OK);
  const DeviceCost whole = device_cost(&c, STRATEGY_SINGLE, 64, 64, 1, false);
  for (int s = 0; s < STRATEGY_COUNT; s++) {
    const DeviceCost one = device_cost(&c, (Strategy)s, 64, 64, 1, false);
    assert_true(one.linear == whole.linear && one.attention == whole.attention && one.assign == 0);
  }
  const DeviceCost half = device_cost(&c, STRATEGY_TP, 32, 64, 2, false);
  assert_float_equal(2 * (half.linear + half.attention), whole.linear + whole.attention, 1);
  assert_true(2 * half.other_bytes > whole.other_bytes);
  config_release(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_are_counted),
      cmocka_unit_test(figures_of_vit_base),
      cmocka_unit_test(traffic),
      cmocka_unit_test(shares),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
