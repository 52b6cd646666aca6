/* config.json and preprocessor_config.json: presets, there and back, and values that are not accepted. */
#include "nn/config_json.c" /* texts are parsed where no file is */
#include "unit/nn/scratch.h"
#include <cmocka.h>
#include <math.h>

#define VIT   "\"model_type\":\"vit\",\"hidden_size\":48,\"num_attention_heads\":4,\"num_hidden_layers\":3,\"intermediate_size\":96,"
#define SMALL VIT "\"image_size\":32,\"patch_size\":8"

static Status parse(ModelConfig *config, const char *json) { return parse_config(config, json, strlen(json), "config.json"); }

static void assert_refused(const char *json, Status code, const char *words) {
  ModelConfig config;
  assert_int_equal(parse(&config, json), code);
  if (!strstr(status_message(), words) || !strstr(status_message(), "config.json"))
    fail_msg("'%s' should name the file and mention '%s'", status_message(), words);
  assert_null(config.labels);
}

static void test_presets(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int64_t tokens, width, blocks, heads, mlp;
  } want[] = {{"vit-base", 196, 768, 12, 12, 3072},
              {"vit-small", 196, 384, 12, 6, 1536},
              {"vit-tiny", 196, 192, 12, 3, 768},
              {"vit-cifar", 64, 192, 6, 3, 768}};
  for (size_t i = 0; i < 4; i++) {
    ModelConfig config;
    assert_int_equal(config_preset(&config, want[i].name, 100), STATUS_OK);
    assert_int_equal(config_check(&config), STATUS_OK);
    assert_true(config_tokens(&config) == want[i].tokens && config.width == want[i].width && config.blocks == want[i].blocks);
    assert_true(config.heads == want[i].heads && config.kv_heads == want[i].heads && config.mlp == want[i].mlp && config.classes == 100);
    assert_string_equal(config.labels[99], "LABEL_99");
    assert_non_null(strstr(config_preset_names(), want[i].name));
    config_release(&config);
  }
  ModelConfig config;
  assert_int_equal(config_preset(&config, "vit-huge", 2), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "vit-cifar"));
  assert_int_equal(config_preset(&config, "vit-base", 0), STATUS_BAD_VALUE);
}

/* The paper: ViT-Base with 32 groups of 1024 codes is compressed 76.8-fold. */
static void test_derived(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(config_preset(&config, "vit-base", 2), STATUS_OK);
  assert_true(config_compression(&config, 32) == 0 && config_bits_per_token(&config) == 0);
  config.astra.groups = 32;
  assert_true(config_bits_per_token(&config) == 12 * 32 * 10);
  assert_true(fabs(config_compression(&config, 32) - 76.8) < 1e-12);
  config.astra.site = SITE_KV;
  config.kv_heads = 4;
  assert_int_equal(config_sites(&config), 2);
  assert_int_equal(config_site_width(&config), 256);
  assert_true(config_bits_per_token(&config) == 2 * 12 * 32 * 10);
  assert_true(fabs(config_compression(&config, 32) - 32.0 * 256 / 320) < 1e-12);
  static const int sizes[] = {2, 3, 4, 5, 1000, 1024, 1025, 65536}, bits[] = {1, 2, 2, 3, 10, 10, 11, 16};
  for (size_t i = 0; i < 8; i++) {
    config.astra.codebook_size = sizes[i];
    assert_true(config_bits_per_token(&config) == 2 * 12 * 32 * bits[i]);
  }
  config_release(&config);
}

static void assert_equal(const ModelConfig *a, const ModelConfig *b) {
  assert_true(a->kind == b->kind && a->width == b->width && a->blocks == b->blocks && a->heads == b->heads && a->kv_heads == b->kv_heads);
  assert_true(a->mlp == b->mlp && a->activation == b->activation && a->norm_eps == b->norm_eps && a->image == b->image);
  assert_true(a->patch == b->patch && a->channels == b->channels && a->classes == b->classes && a->resample == b->resample);
  assert_memory_equal(a->image_mean, b->image_mean, sizeof a->image_mean);
  assert_memory_equal(a->image_std, b->image_std, sizeof a->image_std);
  for (int64_t i = 0; i < a->classes; i++) assert_string_equal(a->labels[i], b->labels[i]);
  const AstraConfig *x = &a->astra, *y = &b->astra;
  assert_true(x->groups == y->groups && x->codebook_size == y->codebook_size && x->devices == y->devices && x->site == y->site);
  assert_true(x->devices_min == y->devices_min && x->class_token == y->class_token && x->noise == y->noise);
  assert_true(x->commitment_weight == y->commitment_weight && x->layout.kind == y->layout.kind && x->layout.seed == y->layout.seed);
  assert_true(x->rotation == y->rotation && x->prediction == y->prediction && x->exact_first == y->exact_first);
  assert_true(x->position_mean == y->position_mean && x->class_bias == y->class_bias && x->class_mean_power == y->class_mean_power);
  assert_true(x->rate_count == y->rate_count && x->exchange_blocks == y->exchange_blocks);
  assert_memory_equal(x->rates, y->rates, sizeof x->rates);
}

static void test_round_trip(void **state) {
  (void)state;
  char *names[] = {"caf\xc3\xa9 \"au lait\"", "dog", "dog", ""};
  ModelConfig config, back, copy;
  assert_int_equal(config_preset(&config, "vit-cifar", 2), STATUS_OK);
  assert_int_equal(config_set_labels(&config, names, 4), STATUS_OK);
  config.resample = 3;
  config.activation = ACTIVATION_GELU_TANH;
  config.astra = (AstraConfig){.groups = 8,
                               .codebook_size = 1000,
                               .devices = 8,
                               .devices_min = 2,
                               .site = SITE_KV,
                               .class_token = CLASS_SINGLE,
                               .commitment_weight = 0.1,
                               .noise = 0.3,
                               .layout = {TOKEN_MAP_RANDOM, 9000000000000000}};
  for (int range = 0; range < 6; range++) {
    config.astra.devices_min = range ? 2 : 8;
    if (range == 2) config.astra.site = SITE_X, config.astra.rotation = true;
    if (range == 3) config.astra.prediction = config.astra.position_mean = true;
    if (range == 4) assert_int_equal(config_set_rates(&config, (int64_t[]){8, 1, 2}, 3), STATUS_OK);
    if (range == 5) config.astra.exchange_blocks = 2;
    if (range == 5) config.astra.class_token = CLASS_DISTRIBUTED, config.astra.class_bias = -0.25, config.astra.class_mean_power = 0.5;
    assert_int_equal(config_save(&config, scratch_path("new/deep")), STATUS_OK);
    assert_int_equal(config_load(&back, scratch_path("new/deep")), STATUS_OK);
    assert_equal(&config, &back);
    config_release(&back);
  }
  assert_int_equal(config_copy(&copy, &config), STATUS_OK);
  assert_equal(&config, &copy);
  assert_ptr_not_equal(copy.labels[0], config.labels[0]);
  config_release(&copy);
  config_release(&config);
}

/* There is nothing to bias or to average without a class token, or with one that all devices share. */
static void test_class_bias(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(config_preset(&config, "vit-tiny", 2), STATUS_OK);
  config.astra.groups = 4;
  config.astra.class_bias = -0.4;
  assert_int_equal(config_check(&config), STATUS_OK);
  config.astra.class_token = CLASS_SINGLE;
  assert_int_equal(config_check(&config), STATUS_UNSUPPORTED);
  config.astra.class_token = CLASS_DISTRIBUTED, config.astra.class_bias = -101;
  assert_int_equal(config_check(&config), STATUS_BAD_VALUE);
  config.astra.class_bias = (double)NAN;
  assert_int_equal(config_check(&config), STATUS_BAD_VALUE);
  config.astra.class_bias = 0, config.astra.class_mean_power = 0.5;
  assert_int_equal(config_check(&config), STATUS_OK);
  config.astra.class_token = CLASS_SINGLE;
  assert_int_equal(config_check(&config), STATUS_UNSUPPORTED);
  config.astra.class_token = CLASS_DISTRIBUTED, config.astra.class_mean_power = -0.5;
  assert_int_equal(config_check(&config), STATUS_BAD_VALUE);
  config_release(&config);
  assert_int_equal(config_preset(&config, "gpt2-mini", 0), STATUS_OK);
  config.astra.groups = 4;
  config.astra.class_bias = -0.4;
  assert_int_equal(config_check(&config), STATUS_UNSUPPORTED);
  config.astra.class_bias = 0, config.astra.class_mean_power = 0.5;
  assert_int_equal(config_check(&config), STATUS_UNSUPPORTED);
  config_release(&config);
}

/* Of images the last blocks may have no codes. */
static void test_exchange_blocks(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(config_preset(&config, "vit-cifar", 2), STATUS_OK);
  config.astra.groups = 4, config.astra.codebook_size = 1024;
  const int64_t blocks = config.blocks;
  assert_int_equal(config_end_coded(&config), blocks);
  assert_true(config_compression(&config, 32) == 32.0 * (double)config.width / 40);
  config.astra.exchange_blocks = 4;
  assert_int_equal(config_check(&config), STATUS_OK);
  assert_int_equal(config_end_coded(&config), 4);
  assert_int_equal(config_codebooks(&config), 4);
  assert_true(config_bits_per_token(&config) == 4 * 40);
  assert_true(config_compression(&config, 32) == 32.0 * (double)(config.width * blocks) / 160); /* rows of all blocks are what is saved */
  config.astra.site = SITE_KV;
  assert_int_equal(config_codebooks(&config), 8);
  config.astra.site = SITE_X, config.astra.exchange_blocks = blocks + 1;
  assert_int_equal(config_check(&config), STATUS_BAD_VALUE);
  config.astra.exchange_blocks = -1;
  assert_int_equal(config_check(&config), STATUS_BAD_VALUE);
  config_release(&config);
  assert_int_equal(config_preset(&config, "gpt2-mini", 0), STATUS_OK);
  config.astra.groups = 4, config.astra.exchange_blocks = 1;
  assert_int_equal(config_check(&config), STATUS_UNSUPPORTED);
  config_release(&config);
}

/* Of texts with predictions the first block has no codes; each device needs the ids of all tokens instead. */
static void test_exact_first(void **state) {
  (void)state;
  ModelConfig config, back;
  assert_int_equal(config_preset(&config, "gpt2-mini", 0), STATUS_OK);
  config.vocabulary = 5000; /* 13 bits */
  config.astra.groups = 4;
  config.astra.codebook_size = 1024;
  config.astra.rotation = config.astra.prediction = true;
  const int64_t blocks = config.blocks, width = config.width;
  assert_int_equal(config_codebooks(&config), blocks);
  assert_true(config_bits_per_token(&config) == (double)blocks * 40);
  assert_int_equal(config_prediction_inputs(&config, 1), width);
  config.astra.exact_first = true;
  assert_int_equal(config_codebooks(&config), blocks - 1);
  assert_int_equal(config_first_coded(&config), 1);
  assert_true(config_bits_per_token(&config) == (double)(blocks - 1) * 40 + 13);
  config.astra.site = SITE_KV;
  assert_int_equal(config_prediction_inputs(&config, 1), width);
  assert_int_equal(config_prediction_inputs(&config, 2), 2 * config_site_width(&config));
  assert_true(config_bits_per_token(&config) == (double)(blocks - 1) * 80 + 13);
  assert_int_equal(config_check(&config), STATUS_OK);
  assert_int_equal(config_save(&config, scratch_path("exact")), STATUS_OK);
  assert_int_equal(config_load(&back, scratch_path("exact")), STATUS_OK);
  assert_equal(&config, &back);
  config_release(&back);
  config.astra.prediction = false;
  assert_int_equal(config_check(&config), STATUS_UNSUPPORTED);
  config.astra.prediction = true, config.blocks = 1;
  assert_int_equal(config_check(&config), STATUS_UNSUPPORTED);
  config.astra.exact_first = false, config.blocks = blocks;
  assert_int_equal(config_check(&config), STATUS_OK);
  config.astra.position_mean = true; /* of texts */
  assert_int_equal(config_check(&config), STATUS_UNSUPPORTED);
  config_release(&config);
  assert_int_equal(config_preset(&config, "vit-tiny", 2), STATUS_OK);
  config.astra.groups = 4;
  config.astra.rotation = config.astra.prediction = config.astra.exact_first = true;
  assert_int_equal(config_check(&config), STATUS_UNSUPPORTED);
  config_release(&config);
}

/* What Hugging Face's own reader looks for. */
static void test_written_fields(void **state) {
  (void)state;
  ModelConfig config;
  char *text;
  size_t size;
  assert_int_equal(config_preset(&config, "vit-tiny", 2), STATUS_OK);
  assert_int_equal(config_save(&config, scratch_path("fields")), STATUS_OK);
  assert_int_equal(files_read(scratch_path("fields/config.json"), 1 << 20, &text, &size), STATUS_OK);
  static const char *const wanted[] = {"\"architectures\": [\n    \"ViTForImageClassification\"\n  ]",
                                       "\"model_type\": \"vit\"",
                                       "\"hidden_act\": \"gelu\"",
                                       "\"qkv_bias\": true",
                                       "\"id2label\": {\n    \"0\": \"LABEL_0\"",
                                       "\"label2id\": {\n    \"LABEL_0\": 0"};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) assert_non_null(strstr(text, wanted[i]));
  assert_null(strstr(text, "astra")); /* a plain model */
  free(text);
  assert_int_equal(files_read(scratch_path("fields/preprocessor_config.json"), 1 << 20, &text, &size), STATUS_OK);
  assert_non_null(strstr(text, "\"height\": 224"));
  assert_non_null(strstr(text, "\"do_normalize\": true"));
  free(text);
  config_release(&config);
}

static void test_defaults(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(parse(&config, "{" VIT "\"unknown\":[1,{\"x\":null}],\"id2label\":null}"), STATUS_OK);
  assert_true(config.image == 224 && config.patch == 16 && config.channels == 3 && config.norm_eps == 1e-12 && config.classes == 2);
  assert_true(config.activation == ACTIVATION_GELU && config.resample == 2 && config.image_mean[1] == 0.5);
  const AstraConfig *astra = &config.astra;
  assert_true(astra->groups == 0 && astra->codebook_size == 1024 && astra->devices == 4 && astra->devices_min == 4);
  assert_true(astra->site == SITE_X && astra->class_token == CLASS_DISTRIBUTED && astra->commitment_weight == 0.0005 && astra->noise == 1);
  config_release(&config);
}

static void test_astra_object(void **state) {
  (void)state;
  static const struct {
    const char *devices;
    int min, max;
  } cases[] = {{"3", 3, 3}, {"\"3\"", 3, 3}, {"\"2-8\"", 2, 8}, {"{\"least\":2,\"most\":8}", 2, 8}};
  for (size_t i = 0; i < 4; i++) {
    char json[512];
    snprintf(json, sizeof json,
             "{" SMALL
             ",\"num_labels\":10,\"astra\":{\"site\":\"kv\",\"groups\":8,\"codebook_size\":16,\"class_token\":\"single\",\"devices\":%s}}",
             cases[i].devices);
    ModelConfig config;
    assert_int_equal(parse(&config, json), STATUS_OK);
    assert_true(config.astra.devices_min == cases[i].min && config.astra.devices == cases[i].max && config.classes == 10);
    assert_true(config.astra.site == SITE_KV && config.astra.class_token == CLASS_SINGLE && config.astra.groups == 8);
    config_release(&config);
  }
}

static void test_layout(void **state) {
  (void)state;
  static const char *const names[] = {"raster", "strided", "checkerboard", "random:12"};
  const TokenMap usual = {(TokenMapKind)TOKEN_MAP_DEFAULT, 0};
  ModelConfig config;
  for (int i = 0; i < 4; i++) {
    char json[512];
    snprintf(json, sizeof json, "{" SMALL ",\"astra\":{\"groups\":8,\"layout\":\"%s\"}}", names[i]);
    assert_int_equal(parse(&config, json), STATUS_OK);
    assert_true(config.astra.layout.kind == (TokenMapKind)i && config.astra.layout.seed == (i == 3 ? 12 : 0));
    config_release(&config);
  }
  assert_int_equal(parse(&config, "{" SMALL ",\"astra\":{\"groups\":8}}"), STATUS_OK); /* written before there was a choice */
  assert_true(config.astra.layout.kind == usual.kind && config.astra.layout.seed == usual.seed);
  config_release(&config);
}

static void test_labels(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(parse(&config, "{" SMALL ",\"id2label\":{\"2\":\"c\",\"0\":\"a\",\"1\":\"b\"}}"), STATUS_OK);
  assert_true(config.classes == 3 && strcmp(config.labels[0], "a") == 0 && strcmp(config.labels[2], "c") == 0);
  config_release(&config);
  assert_refused("{" SMALL ",\"id2label\":{\"0\":\"a\",\"2\":\"b\"}}", STATUS_BAD_FILE, "'2'");
  assert_refused("{" SMALL ",\"id2label\":{\"0\":\"a\",\"00\":\"b\"}}", STATUS_BAD_FILE, "id2label");
  assert_refused("{" SMALL ",\"id2label\":{\"0\":\"a\",\"-1\":\"b\"}}", STATUS_BAD_FILE, "'-1'");
  assert_refused("{" SMALL ",\"id2label\":{\"0\":\"a\",\"x\":\"b\"}}", STATUS_BAD_FILE, "'x'");
  assert_refused("{" SMALL ",\"id2label\":{\"0\":\"a\",\"\":\"b\"}}", STATUS_BAD_FILE, "id2label");
  assert_refused("{" SMALL ",\"id2label\":{\"99999999999999999999\":\"b\"}}", STATUS_BAD_FILE, "id2label");
  assert_refused("{" SMALL ",\"id2label\":{\"0\":7}}", STATUS_BAD_FILE, "string");
  assert_refused("{" SMALL ",\"id2label\":{}}", STATUS_BAD_FILE, "id2label");
  assert_refused("{" SMALL ",\"id2label\":[\"a\"]}", STATUS_BAD_FILE, "id2label");
  assert_refused("{" SMALL ",\"id2label\":{\"0\":\"a\"},\"num_labels\":3}", STATUS_BAD_FILE, "num_labels");
}

/* One class of several, by a softmax: nothing else is computed. */
static void test_task(void **state) {
  (void)state;
  static const char *const accepted[] = {"", ",\"problem_type\":null", ",\"problem_type\":\"single_label_classification\"",
                                         ",\"problem_type\":null,\"id2label\":{\"0\":\"LABEL_0\",\"1\":\"LABEL_1\"}"};
  char json[512];
  ModelConfig config;
  for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
    snprintf(json, sizeof json, "{" SMALL "%s}", accepted[i]);
    assert_int_equal(parse(&config, json), STATUS_OK);
    assert_int_equal(config.classes, 2);
    config_release(&config);
  }
  assert_refused("{" SMALL ",\"problem_type\":\"regression\"}", STATUS_UNSUPPORTED, "problem_type is 'regression'");
  assert_refused("{" SMALL ",\"problem_type\":\"multi_label_classification\",\"num_labels\":5}", STATUS_UNSUPPORTED,
                 "only single_label_classification, or none, is supported");
  assert_refused("{" SMALL ",\"problem_type\":1}", STATUS_BAD_FILE, "problem_type must be a string");
  assert_refused("{" SMALL ",\"num_labels\":1}", STATUS_UNSUPPORTED, "num_labels has one class");
  assert_refused("{" SMALL ",\"id2label\":{\"0\":\"LABEL_0\"}}", STATUS_UNSUPPORTED, "id2label has one class");
  assert_int_equal(parse(&config, "{" SMALL ",\"num_labels\":1,\"astra\":{\"groups\":8}}"), STATUS_OK); /* codebooks, of no classes */
  assert_int_equal(config.classes, 1);
  config_release(&config);
}

static void test_refused(void **state) {
  (void)state;
  assert_refused("", STATUS_BAD_FILE, "");
  assert_refused("[]", STATUS_BAD_FILE, "object");
  assert_refused("{}", STATUS_BAD_FILE, "model_type");
  assert_refused("{\"model_type\":\"bert\"}", STATUS_UNSUPPORTED, "supported are vit, gpt2 and llama");
  assert_refused("{\"model_type\":\"vit\"}", STATUS_BAD_FILE, "hidden_size is missing");
  assert_refused("{" SMALL ",\"hidden_size\":96}", STATUS_BAD_FILE, "duplicate");
  assert_refused("{" SMALL ",\"hidden_act\":\"relu\"}", STATUS_BAD_FILE, "gelu, gelu_new, gelu_pytorch_tanh");
  assert_refused("{" SMALL ",\"hidden_act\":3}", STATUS_BAD_FILE, "hidden_act");
  assert_refused("{" SMALL ",\"qkv_bias\":false}", STATUS_UNSUPPORTED, "qkv_bias");
  assert_refused("{" SMALL ",\"num_channels\":1}", STATUS_BAD_FILE, "num_channels");
  assert_refused("{" SMALL ",\"layer_norm_eps\":\"small\"}", STATUS_BAD_FILE, "layer_norm_eps");
  assert_refused("{" SMALL ",\"layer_norm_eps\":-1}", STATUS_BAD_FILE, "layer_norm_eps");
  assert_refused("{" SMALL ",\"num_labels\":0}", STATUS_BAD_FILE, "classes");
  assert_refused("{" VIT "\"image_size\":33,\"patch_size\":8}", STATUS_BAD_FILE, "patch_size 8 does not divide image_size 33");
  assert_refused("{" VIT "\"image_size\":4,\"patch_size\":8}", STATUS_BAD_FILE, "patch_size");
  assert_refused("{" VIT "\"image_size\":0}", STATUS_BAD_FILE, "image_size");
  assert_refused("{" VIT "\"image_size\":224.5}", STATUS_BAD_FILE, "image_size");
  assert_refused("{" VIT "\"image_size\":9223372036854775807}", STATUS_BAD_FILE, "image_size");
  assert_refused("{" VIT "\"image_size\":16384,\"patch_size\":1}", STATUS_BAD_FILE, "patches");
  assert_refused("{\"model_type\":\"vit\",\"hidden_size\":50,\"num_attention_heads\":4,\"num_hidden_layers\":3,\"intermediate_size\":96}",
                 STATUS_BAD_FILE, "num_attention_heads 4 does not divide hidden_size 50");
  assert_refused("{\"model_type\":\"vit\",\"hidden_size\":48,\"num_attention_heads\":0,\"num_hidden_layers\":3,\"intermediate_size\":96}",
                 STATUS_BAD_FILE, "num_attention_heads");
  assert_refused(
      "{\"model_type\":\"vit\",\"hidden_size\":48,\"num_attention_heads\":4,\"num_hidden_layers\":100000,\"intermediate_size\":96}",
      STATUS_BAD_FILE, "num_hidden_layers");
}

#define ASTRA(fields) "{" SMALL ",\"astra\":{" fields "}}"

static void test_refused_astra(void **state) {
  (void)state;
  assert_refused("{" SMALL ",\"astra\":8}", STATUS_BAD_FILE, "astra");
  assert_refused(ASTRA("\"groups\":7"), STATUS_BAD_FILE, "astra.groups 7 does not divide");
  static const char *const rates[] = {"8",     "[]",    "[8]",    "[1,8,4]",     "[1,1,8]",
                                      "[1,4]", "[0,8]", "[1,16]", "[1,\"2\",8]", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,48]"};
  for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
    char json[256];
    snprintf(json, sizeof json, "{" SMALL ",\"astra\":{\"groups\":8,\"rates\":%s}}", rates[i]);
    assert_refused(json, STATUS_BAD_FILE, "astra.rates must be a list of 2 to 16 ascending numbers, of which astra.groups is the last");
  }
  assert_refused(ASTRA("\"groups\":8,\"rates\":[1,5,8]"), STATUS_BAD_FILE, "astra.rates 5 does not divide");
  assert_refused(ASTRA("\"groups\":-1"), STATUS_BAD_FILE, "astra.groups");
  assert_refused(ASTRA("\"groups\":1099511627776"), STATUS_BAD_FILE, "astra.groups");
  assert_refused(ASTRA("\"groups\":96"), STATUS_BAD_FILE, "astra.groups");
  assert_refused(ASTRA("\"codebook_size\":1"), STATUS_BAD_FILE, "astra.codebook_size");
  assert_refused(ASTRA("\"codebook_size\":65537"), STATUS_BAD_FILE, "65536");
  assert_refused(ASTRA("\"site\":\"q\""), STATUS_BAD_FILE, "x, kv");
  assert_refused(ASTRA("\"class_token\":\"none\""), STATUS_BAD_FILE, "distributed, single");
  assert_refused(ASTRA("\"layout\":\"diagonal\""), STATUS_BAD_FILE, "astra.layout must be raster, strided, checkerboard or random:SEED");
  assert_refused(ASTRA("\"layout\":\"random\""), STATUS_BAD_FILE, "astra.layout");
  assert_refused(ASTRA("\"layout\":\"trained\""), STATUS_BAD_FILE, "astra.layout");
  assert_refused(ASTRA("\"layout\":2"), STATUS_BAD_FILE, "astra.layout");
  assert_refused(ASTRA("\"devices\":0"), STATUS_BAD_FILE, "astra.devices");
  assert_refused(ASTRA("\"devices\":\"8-2\""), STATUS_BAD_FILE, "astra.devices");
  assert_refused(ASTRA("\"devices\":\"2-8x\""), STATUS_BAD_FILE, "astra.devices");
  assert_refused(ASTRA("\"devices\":\"\""), STATUS_BAD_FILE, "astra.devices");
  assert_refused(ASTRA("\"devices\":[2]"), STATUS_BAD_FILE, "astra.devices");
  assert_refused(ASTRA("\"groups\":8,\"devices\":17"), STATUS_BAD_FILE, "16 tokens");
  assert_refused(ASTRA("\"groups\":8,\"exchange_blocks\":-1"), STATUS_BAD_FILE, "astra.exchange_blocks");
  assert_refused(ASTRA("\"groups\":8,\"exchange_blocks\":1024"), STATUS_BAD_FILE, "astra.exchange_blocks");
  assert_refused(ASTRA("\"groups\":8,\"exchange_blocks\":\"2\""), STATUS_BAD_FILE, "astra.exchange_blocks must be a whole number");
  assert_refused(ASTRA("\"noise\":-1"), STATUS_BAD_FILE, "astra.noise");
  assert_refused(ASTRA("\"commitment_weight\":\"x\""), STATUS_BAD_FILE, "astra.commitment_weight");
}

static void test_preprocessor(void **state) {
  (void)state;
  static const struct {
    const char *json;
    Status status;
    const char *words;
  } cases[] = {
      {"{\"image_mean\":[0.1,0.2,0.3],\"image_std\":[1,2,3],\"resample\":3,\"size\":224,\"do_resize\":true}", STATUS_OK, ""},
      {"{\"do_normalize\":false}", STATUS_OK, ""},
      {"{\"resample\":1}", STATUS_UNSUPPORTED, "bicubic"},
      {"{\"image_mean\":[0.1,0.2]}", STATUS_BAD_FILE, "image_mean"},
      {"{\"image_mean\":[0.1,0.2,\"a\"]}", STATUS_BAD_FILE, "image_mean"},
      {"{\"image_std\":[0,1,1]}", STATUS_BAD_FILE, "image_std"},
      {"{\"do_rescale\":false}", STATUS_UNSUPPORTED, "do_rescale"},
      {"{\"rescale_factor\":1.0}", STATUS_UNSUPPORTED, "rescale_factor"},
      {"{\"do_center_crop\":false,\"size\":256}", STATUS_OK, ""},
      {"{\"do_center_crop\":true,\"size\":32}", STATUS_OK, ""},
      {"{\"do_center_crop\":true,\"size\":{\"height\":32,\"width\":32}}", STATUS_OK, ""},
      {"{\"do_center_crop\":true,\"size\":256,\"crop_size\":32}", STATUS_UNSUPPORTED,
       "do_center_crop is true, and size is not the 32 pixels"},
      {"{\"do_center_crop\":true,\"size\":{\"shortest_edge\":32}}", STATUS_UNSUPPORTED, "do_center_crop"},
      {"nonsense", STATUS_BAD_FILE, "line 1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig config;
    assert_int_equal(parse(&config, "{" SMALL "}"), STATUS_OK);
    assert_int_equal(parse_preprocessor(&config, cases[i].json, strlen(cases[i].json), "pre.json"), cases[i].status);
    if (cases[i].status != STATUS_OK && !strstr(status_message(), cases[i].words)) fail_msg("%s", status_message());
    if (i == 0) assert_true(config.image_mean[2] == 0.3 && config.image_std[1] == 2 && config.resample == 3);
    if (i == 1) assert_true(config.image_mean[0] == 0 && config.image_std[2] == 1);
    config_release(&config);
  }
}

static void test_files(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(config_load(&config, scratch_path("nowhere")), STATUS_NOT_FOUND);
  assert_non_null(strstr(status_message(), "config.json"));
  assert_int_equal(files_make_dirs(scratch_path("half")), STATUS_OK);
  assert_int_equal(files_write(scratch_path("half/config.json"), "{" SMALL "}", strlen("{" SMALL "}")), STATUS_OK);
  assert_int_equal(config_load(&config, scratch_path("half")), STATUS_OK); /* without a preprocessor */
  config_release(&config);
  assert_int_equal(files_write(scratch_path("half/preprocessor_config.json"), "{", 1), STATUS_OK);
  assert_int_equal(config_load(&config, scratch_path("half")), STATUS_BAD_FILE);
  assert_null(config.labels);
  char *odd[] = {"ok", "\xe9t\xe9"};
  assert_int_equal(config_preset(&config, "vit-cifar", 2), STATUS_OK);
  assert_int_not_equal(config_save(&config, scratch_path("half/config.json/below")), STATUS_OK); /* a file in the way */
  assert_int_equal(config_set_labels(&config, odd, 2), STATUS_OK);
  assert_int_equal(config_save(&config, scratch_path("odd")), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "UTF-8"));
  config_release(&config);
}

/* What readers and writers of codebooks, frequencies, predictions and self-tests all make their names of. */
static void test_names_of_tensors(void **state) {
  (void)state;
  ModelConfig config;
  char place[CONFIG_CODEBOOK_PLACE], prefix[CONFIG_RATE_PREFIX];
  assert_int_equal(config_preset(&config, "llama-mini", 0), STATUS_OK);
  assert_string_equal(config_rate_prefix(&config, 0, prefix), ""); /* plain */
  assert_int_equal(config_set_rates(&config, (int64_t[]){8, 1, 2}, 3), STATUS_OK);
  assert_string_equal(config_rate_prefix(&config, 0, prefix), "groups1.");
  assert_string_equal(config_rate_prefix(&config, 1, prefix), "groups2.");
  assert_string_equal(config_rate_prefix(&config, 2, prefix), "");
  config.astra.site = SITE_X;
  assert_string_equal(config_codebook_place(&config, 2, place), "astra.layers.2.x");
  config.astra.site = SITE_KV;
  assert_string_equal(config_codebook_place(&config, 2, place), "astra.layers.1.k");
  assert_string_equal(config_codebook_place(&config, 3, place), "astra.layers.1.v");
  config_release(&config);
}

static void test_golden(void **state) {
  (void)state;
  static const char *const names[] = {"vit-plain", "vit-g1-n4", "vit-g8-n3-uneven"};
  static const int groups[] = {0, 1, 8}, devices[] = {4, 4, 3};
  for (size_t i = 0; i < 3; i++) {
    const char *directory = golden_path(names[i]);
    ModelConfig config;
    assert_int_equal(config_load(&config, directory), STATUS_OK);
    assert_true(config.width == 48 && config.classes == 10 && config_tokens(&config) == 16);
    assert_true(config.astra.groups == groups[i] && config.astra.devices == devices[i]);
    config_release(&config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_presets),         cmocka_unit_test(test_derived),          cmocka_unit_test(test_class_bias),
      cmocka_unit_test(test_exchange_blocks), cmocka_unit_test(test_exact_first),      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_written_fields),  cmocka_unit_test(test_defaults),         cmocka_unit_test(test_astra_object),
      cmocka_unit_test(test_layout),          cmocka_unit_test(test_labels),           cmocka_unit_test(test_task),
      cmocka_unit_test(test_refused),         cmocka_unit_test(test_refused_astra),    cmocka_unit_test(test_preprocessor),
      cmocka_unit_test(test_files),           cmocka_unit_test(test_names_of_tensors), cmocka_unit_test(test_golden),
  };
  return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
