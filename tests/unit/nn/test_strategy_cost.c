/* Costs by formula against what the blocks really multiply, against the paper's table of traffic and the figures of ViT-Base. */
#include "autograd/kernels/matmul.h"
#include "nn/strategy.h"
#include "unit/float_equal.h"
#include "unit/nn/loop_exchange.h"
#include "unit/nn/small_decoder.h"
#include <math.h>

enum { TOKENS = 16, DEVICES = 3 };

static void vit_config(ModelConfig *config, ClassToken class_token, Site site) {
  assert_int_equal(config_preset(config, "vit-cifar", 5), STATUS_OK);
  config->image = 16, config->width = SMALL_WIDTH, config->heads = config->kv_heads = 3, config->mlp = 40, config->blocks = SMALL_BLOCKS;
  config->astra.class_token = class_token, config->astra.site = site;
}

/* Products of a forward pass. */
static double products(Model *model, SmallRun *run, const TokenLayout *layout, Exchange *exchange, ModelRows wanted) {
  Tensor *rows = tape_tensor(run->tape, 3, (int64_t[]){1, layout->rows, SMALL_WIDTH});
  for (int64_t i = 0; i < tensor_count(rows); i++) rows->value[i] = (real)sin((double)i);
  matmul_reset_count();
  model_encode(model, run->tape, &(ModelInput){.rows = rows}, layout, exchange, wanted);
  assert_int_equal(tape_status(run->tape), STATUS_OK);
  return matmul_counted().flops;
}

static double counted(const DeviceCost *cost) { return cost->linear + cost->attention; }

static void check_share(Model *model, SmallRun *run, const TokenLayout *layout, LoopExchange *loop, const ModelConfig *config,
                        Strategy strategy, DeviceShare share) {
  for (int last = 0; last < 2; last++) {
    share.last = last;
    const DeviceCost cost = device_cost_all(config, strategy, &share, 1);
    const double all = products(model, run, layout, loop ? loop_as_node(loop, 4) : NULL, last ? MODEL_ROWS_CLASS : MODEL_ROWS_ALL);
    assert_float_equal(all, counted(&cost), 0.5);
  }
}

/* The exchanges of the tests assign no codewords, and a look-up multiplies nothing. All rows, and the class token's of the last block. */
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
  products(model, &run, &layout, &loop.exchange, MODEL_ROWS_ALL);
  for (int self = 0; self < DEVICES; self++) {
    assert_int_equal(layout_build(&layout, TOKENS, DEVICES, counts, NULL, class_token, self), STATUS_OK);
    check_share(model, &run, &layout, &loop, &config, STRATEGY_ASTRA,
                (DeviceShare){.device = self, .devices = DEVICES, .own = counts[self], .tokens = TOKENS});
  }
  assert_int_equal(layout_build_plain(&layout, TOKENS, CLASS_DISTRIBUTED), STATUS_OK);
  check_share(model, &run, &layout, NULL, &config, STRATEGY_SINGLE, (DeviceShare){.devices = 1, .own = TOKENS, .tokens = TOKENS});
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
  check_products(CLASS_SINGLE, SITE_KV); /* keys and values are sent also where no row of the last block is wanted */
}

/* An even share of 1,024 tokens. */
static DeviceShare quarter(int device) {
  return (DeviceShare){.device = device, .devices = 4, .own = 256, .before = 256 * device, .tokens = 1024};
}
static DeviceShare alone(int64_t tokens) { return (DeviceShare){.devices = 1, .own = tokens, .tokens = tokens}; }

static DeviceCost cost_of(const ModelConfig *c, Strategy strategy, DeviceShare share, bool tables) {
  return device_cost(c, strategy, &share, tables);
}

/* 12 x 768, T = 1,024 on 4 devices, in GFLOP a block. */
static void figures_of_vit_base(void **state) {
  (void)state;
  ModelConfig c;
  assert_int_equal(config_preset(&c, "vit-base", 10), STATUS_OK);
  c.astra.groups = 16, c.astra.codebook_size = 1024;
  const DeviceCost whole = cost_of(&c, STRATEGY_SINGLE, alone(1024), false);
  assert_float_equal(whole.linear / 1e9, 14.5, 0.05); /* 24 D^2 a row */
  assert_float_equal(whole.attention / 1e9, 3.22, 0.02);
  const DeviceCost product = cost_of(&c, STRATEGY_ASTRA, quarter(1), false);
  const DeviceCost tables = cost_of(&c, STRATEGY_ASTRA, quarter(1), true);
  assert_float_equal(tables.linear / 1e9, 3.62, 0.03);
  assert_float_equal(tables.attention / 1e9, 0.81, 0.01);
  assert_float_equal(tables.assign / 1e9, 0.40, 0.01);
  assert_float_equal((product.linear - tables.linear) / 1e9, 1.81, 0.01); /* 4 D^2 a remote token */
  assert_float_equal(tables.table_bytes, 768.0 * 16 * 2 * 768 * 4, 0.5);
  assert_true(product.table_bytes == 0 && tables.sent_bits == 256 * 160);
  config_release(&c);
}

/* What is neither queries, keys and values nor a change of basis: output projection and MLP of the rows that are wanted. */
static void check_parts(const ModelConfig *c, Strategy strategy, DeviceShare share) {
  const double d = (double)c->width, mlp = 2.0 * (c->activation == ACTIVATION_NONE ? 3 : 2) * d * (double)c->mlp;
  for (int tables = 0; tables < 2; tables++) {
    const DeviceCost cost = cost_of(c, strategy, share, tables);
    const double rest = cost.linear - cost.queries - cost.keys - cost.remote - cost.basis;
    if (strategy_facts(strategy)->divides_tokens || share.devices == 1)
      assert_true(rest == cost.wanted * (2 * d * d + mlp) && cost.queries == cost.wanted * 2 * d * d);
    assert_true(rest >= 0 && cost.queries >= 0 && cost.keys >= 0 && cost.remote >= 0 && cost.basis >= 0);
  }
}

static void products_have_parts(void **state) {
  (void)state;
  static const char *const models[] = {"vit-base", "gpt2", "llama-3-8b"};
  for (int m = 0; m < 3; m++)
    for (int bits = 0; bits < 16; bits++) {
      ModelConfig c;
      assert_int_equal(config_preset(&c, models[m], m ? 0 : 10), STATUS_OK);
      c.astra.groups = 8, c.astra.codebook_size = 1024;
      c.astra.rotation = bits & 1, c.astra.prediction = bits >> 1 & 1, c.astra.site = bits >> 2 & 1 ? SITE_KV : SITE_X;
      if (m == 0 && bits >> 3) c.astra.class_token = CLASS_SINGLE;
      for (int s = 0; s < STRATEGY_COUNT; s++)
        for (int kind = 0; kind < 2 * 3 * 4; kind++) {
          DeviceShare share = quarter(kind / 6);
          share.last = kind % 2, share.known = kind / 2 % 3 == 1, share.apart = kind / 2 % 3 == 2;
          check_parts(&c, (Strategy)s, share);
          check_parts(&c, (Strategy)s, alone(1024));
        }
      config_release(&c);
    }
}

/* Bits to one receiver, with U = T / N rows of D floats: sp U, tp 4 U, bp 1 and 2 U for each retained block; class rows besides, of sp on
 * device 0 alone, so that the others send 4 D L bytes a token. */
static void traffic(void **state) {
  (void)state;
  for (int decoder = 0; decoder < 2; decoder++) {
    ModelConfig c;
    assert_int_equal(config_preset(&c, decoder ? "gpt2" : "vit-base", decoder ? 0 : 10), STATUS_OK);
    const double row = 32.0 * (double)c.width, rows = decoder ? 256 : 256.25, l = (double)c.blocks;
    const DeviceShare second = quarter(1);
    assert_float_equal(cost_of(&c, STRATEGY_SP, quarter(0), false).sent_bits, row * (decoder ? 256 : 257), 0.5);
    for (int device = 1; device < 4; device++)
      assert_float_equal(cost_of(&c, STRATEGY_SP, quarter(device), false).sent_bits, row * 256, 0.5);
    assert_float_equal(l * cost_of(&c, STRATEGY_SP, second, false).sent_bits / 8 / 256, 4 * l * (double)c.width, 0.5);
    assert_float_equal(cost_of(&c, STRATEGY_TP, second, false).sent_bits, 4 * rows * row, 0.5);
    assert_float_equal(device_cost_all(&c, STRATEGY_BP_AG, &second, 1).sent_bits, rows * row, 0.5);
    assert_float_equal(device_cost_all(&c, STRATEGY_BP_SP, &second, 3).sent_bits, 6 * rows * row, 0.5);
    assert_true(cost_of(&c, STRATEGY_SINGLE, second, false).sent_bits == 0);
    for (int s = 0; s < STRATEGY_COUNT; s++) assert_true(cost_of(&c, (Strategy)s, alone(1024), false).sent_bits == 0);
    config_release(&c);
  }
}

/* Of images whose last blocks exchange nothing, codes of the others; and there a device computes its own tokens alone. */
static void nothing_is_sent_behind_the_exchanging_blocks(void **state) {
  (void)state;
  ModelConfig c;
  assert_int_equal(config_preset(&c, "vit-base", 10), STATUS_OK);
  c.astra.groups = 8, c.astra.codebook_size = 1024, c.astra.rotation = c.astra.prediction = true;
  DeviceShare second = quarter(1);
  for (int last = 0; last < 2; last++) {
    second.last = last;
    c.astra.exchange_blocks = 0;
    assert_true(device_cost_all(&c, STRATEGY_ASTRA, &second, 1).sent_bits == 12 * 256 * 80);
    for (int blocks = 1; blocks < 12; blocks++) {
      c.astra.exchange_blocks = blocks;
      DeviceShare usual = second, apart = second;
      usual.last = false, apart.apart = true;
      DeviceShare between = usual;
      between.apart = true;
      const DeviceCost sum = device_cost_all(&c, STRATEGY_ASTRA, &second, 1), coded = cost_of(&c, STRATEGY_ASTRA, usual, false),
                       inner = cost_of(&c, STRATEGY_ASTRA, between, false), end = cost_of(&c, STRATEGY_ASTRA, apart, false);
      assert_true(sum.sent_bits == blocks * 256 * 80.0);
      assert_true(inner.sent_bits == 0 && inner.assign == 0 && inner.remote == 0 && end.sent_bits == 0 && end.remote == 0);
      assert_float_equal(sum.linear / (blocks * coded.linear + (11 - blocks) * inner.linear + end.linear), 1, 1e-9);
      assert_float_equal(inner.attention, 4 * 768.0 * 257 * 257, 0.5); /* 256 tokens and a class token look at each other */
    }
  }
  c.astra.exchange_blocks = 3; /* the others send rows of all blocks */
  second.last = false;
  assert_true(device_cost_all(&c, STRATEGY_SP, &second, 1).sent_bits == 12 * 256 * 768 * 32.0);
  config_release(&c);
}

/* Of texts whose first block is exact, codes of the others; what receivers compute in that one is what they do without codes. */
static void nothing_is_sent_of_an_exact_block(void **state) {
  (void)state;
  ModelConfig c;
  assert_int_equal(config_preset(&c, "gpt2", 0), STATUS_OK);
  c.astra.groups = 8, c.astra.codebook_size = 1024, c.astra.rotation = c.astra.prediction = true;
  DeviceShare second = quarter(1);
  const DeviceCost coded = cost_of(&c, STRATEGY_ASTRA, second, false), all = device_cost_all(&c, STRATEGY_ASTRA, &second, 1);
  assert_true(all.sent_bits == 12 * 256 * 80);
  c.astra.exact_first = true;
  const DeviceCost fewer = device_cost_all(&c, STRATEGY_ASTRA, &second, 1);
  assert_true(fewer.sent_bits == 11 * 256 * 80);
  second.known = true;
  const DeviceCost known = cost_of(&c, STRATEGY_ASTRA, second, false);
  assert_true(known.sent_bits == 0 && known.assign == 0 && known.remote == 4 * 768.0 * 768 * 256);
  assert_float_equal((all.linear - fewer.linear) / (coded.linear - known.linear), 1, 1e-9);
  config_release(&c);
}

/* Llama-3-8B: 8 of 32 heads have keys and values, 2 x 1,024 numbers of 4,096, which receivers need not project; the sender does so also in
 * a last block of which it computes no row. */
static void grouped_queries_send_keys(void **state) {
  (void)state;
  ModelConfig c;
  assert_int_equal(config_preset(&c, "llama-3-8b", 0), STATUS_OK);
  assert_int_equal(config_whole_sites(&c), 2);
  assert_int_equal(config_whole_width(&c), 1024);
  DeviceShare share = quarter(1);
  const DeviceCost whole = cost_of(&c, STRATEGY_SINGLE, alone(1024), false), cost = cost_of(&c, STRATEGY_SP, share, false);
  assert_float_equal(cost.sent_bits, 256 * 2048 * 32, 0.5);
  assert_float_equal(cost.linear, whole.linear / 4, 1e4);
  assert_true(cost.remote == 0);
  share.last = true;
  assert_float_equal(cost_of(&c, STRATEGY_SP, share, false).linear, 256 * 2 * 2 * 4096.0 * 1024, 1);
  c.kv_heads = 16; /* as many numbers: rows, which need no care */
  assert_int_equal(config_whole_sites(&c), 1);
  assert_float_equal(cost_of(&c, STRATEGY_SP, share, false).sent_bits, 256 * 4096 * 32, 0.5);
  config_release(&c);
}

/* Of one device every strategy is the plain model; of several, tp's products are a share of it. */
static void shares(void **state) {
  (void)state;
  ModelConfig c;
  assert_int_equal(config_preset(&c, "llama-mini", 0), STATUS_OK);
  const DeviceCost whole = cost_of(&c, STRATEGY_SINGLE, alone(64), false);
  for (int s = 0; s < STRATEGY_COUNT; s++) {
    const DeviceCost one = cost_of(&c, (Strategy)s, alone(64), false);
    assert_true(one.linear == whole.linear && one.attention == whole.attention && one.assign == 0);
  }
  const DeviceCost half = cost_of(&c, STRATEGY_TP, (DeviceShare){.devices = 2, .tokens = 64}, false);
  assert_float_equal(2 * (half.linear + half.attention), whole.linear + whole.attention, 1);
  assert_true(2 * half.other_bytes > whole.other_bytes);
  config_release(&c);
}

/* 12 heads on 8 devices: the first four have 2, the others 1; 3,072 columns divide evenly. Together they are the plain model. */
static void heads_are_whole(void **state) {
  (void)state;
  ModelConfig c;
  assert_int_equal(config_preset(&c, "vit-base", 10), STATUS_OK);
  const DeviceCost whole = cost_of(&c, STRATEGY_SINGLE, alone(1024), false);
  double attention = 0, linear = 0;
  for (int device = 0; device < 8; device++) {
    const DeviceShare share = {.device = device, .devices = 8, .tokens = 1024};
    const DeviceCost cost = cost_of(&c, STRATEGY_TP, share, false), free = device_cost_decoupled(&c, &share);
    double some = (device < 4 ? 2 : 1) / 12.0, d = 768, mlp = 1025 * 16 * d * d / 8;
    assert_float_equal(cost.attention, some * whole.attention, 1);
    assert_float_equal(cost.linear, some * 1025 * 8 * d * d + mlp, 1);
    assert_true(free.linear == cost.linear && free.attention == cost.attention);
    attention += cost.attention, linear += cost.linear;
  }
  assert_float_equal(attention, whole.attention, 1);
  assert_float_equal(linear, whole.linear, 1);
  config_release(&c);
}

/* A decoder's device sees what is before it: the first one nothing, and together they see what one sees alone. */
static void a_decoder_looks_back(void **state) {
  (void)state;
  ModelConfig c;
  assert_int_equal(config_preset(&c, "gpt2", 0), STATUS_OK);
  const DeviceCost whole = cost_of(&c, STRATEGY_SINGLE, alone(1024), false);
  double attention = 0, kv = 4 * 768.0 * 768;
  for (int device = 0; device < 4; device++) {
    const DeviceCost cost = cost_of(&c, STRATEGY_SP, quarter(device), false);
    assert_float_equal(cost.linear, whole.linear / 4 + 256 * device * kv, 1);
    attention += cost.attention;
  }
  assert_float_equal(attention, whole.attention, 1);
  config_release(&c);
}

/* Of a row that goes on 8 D numbers of norms and residuals, of one that does not 2 D, and what the activation reads and writes; of remote
 * tokens the vectors that are looked up, unless tables have their keys and values. */
static void memory_is_read_and_written(void **state) {
  (void)state;
  ModelConfig c;
  assert_int_equal(config_preset(&c, "vit-base", 10), STATUS_OK);
  c.astra.groups = 16, c.astra.codebook_size = 1024;
  DeviceShare share = alone(1024);
  const double d = 768, mlp = 3072;
  assert_float_equal(cost_of(&c, STRATEGY_SINGLE, share, false).other_bytes, 4 * 1025 * (8 * d + 2 * mlp), 0.5);
  share.last = true;
  assert_float_equal(cost_of(&c, STRATEGY_SINGLE, share, false).other_bytes, 4 * (1024 * 2 * d + 8 * d + 2 * mlp), 0.5);
  for (int device = 0; device < 4; device++) {
    assert_float_equal(cost_of(&c, STRATEGY_ASTRA, quarter(device), true).other_bytes, 4 * 257 * (8 * d + 2 * mlp), 0.5);
    assert_float_equal(cost_of(&c, STRATEGY_ASTRA, quarter(device), false).other_bytes, 4 * (257 * (8 * d + 2 * mlp) + 768 * 2 * d), 0.5);
    const DeviceShare columns = {.device = device, .devices = 4, .tokens = 1024};
    assert_float_equal(cost_of(&c, STRATEGY_TP, columns, false).other_bytes, 4 * 1025 * (8 * d + 2 * mlp / 4), 0.5);
  }
  config_release(&c);
  assert_int_equal(config_preset(&c, "llama-3-8b", 0), STATUS_OK); /* SwiGLU reads two */
  assert_float_equal(cost_of(&c, STRATEGY_SINGLE, alone(10), false).other_bytes, 4 * 10 * (8 * 4096.0 + 3 * 14336.0), 0.5);
  config_release(&c);
}

/* A class token that is the only one has its codes sent, by the device that has it; one on each device is not sent. */
static void a_single_class_token_is_sent(void **state) {
  (void)state;
  ModelConfig c;
  assert_int_equal(config_preset(&c, "vit-base", 10), STATUS_OK);
  c.astra.groups = 16, c.astra.codebook_size = 1024;
  for (int single = 0; single < 2; single++)
    for (int device = 0; device < 4; device++) {
      c.astra.class_token = single ? CLASS_SINGLE : CLASS_DISTRIBUTED;
      const DeviceCost cost = cost_of(&c, STRATEGY_ASTRA, quarter(device), true);
      const double rows = 256 + (single && device == 0);
      assert_true(cost.sent_bits == rows * 16 * 10 && cost.assign == rows * 2 * 1024 * 768);
    }
  config_release(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_are_counted),
      cmocka_unit_test(figures_of_vit_base),
      cmocka_unit_test(products_have_parts),
      cmocka_unit_test(traffic),
      cmocka_unit_test(nothing_is_sent_of_an_exact_block),
      cmocka_unit_test(nothing_is_sent_behind_the_exchanging_blocks),
      cmocka_unit_test(grouped_queries_send_keys),
      cmocka_unit_test(shares),
      cmocka_unit_test(heads_are_whole),
      cmocka_unit_test(a_decoder_looks_back),
      cmocka_unit_test(memory_is_read_and_written),
      cmocka_unit_test(a_single_class_token_is_sent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
