/* config.json of GPT-2 and Llama: presets, there and back, Hugging Face's defaults, and what is refused. */
#include "nn/config_json.c" /* texts are parsed where no file is */
#include "unit/float_equal.h"
#include "unit/nn/failing_json.h"
#include "unit/nn/scratch.h"
#include <cmocka.h>
#include <math.h>

#define GPT2 "\"model_type\":\"gpt2\",\"n_embd\":32,\"n_head\":4,\"n_layer\":2,\"vocab_size\":61"
#define LLAMA                                                                                                                              \
  "\"model_type\":\"llama\",\"hidden_size\":48,\"num_attention_heads\":6,\"num_hidden_layers\":2,\"intermediate_size\":112,\"vocab_"       \
  "size\":53"
#define ROPE                                                                                                                               \
  "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\""

static Status parse(ModelConfig *config, const char *json) { return parse_config(config, json, strlen(json), "config.json"); }

static void assert_refused(const char *json, Status code, const char *words) {
  ModelConfig config;
  assert_int_equal(parse(&config, json), code);
  if (!strstr(status_message(), words) || !strstr(status_message(), "config.json"))
    fail_msg("'%s' should name the file and mention '%s'", status_message(), words);
  assert_true(config.labels == NULL && config.width == 0);
}

/* ---- presets */

static void presets(void **state) {
  (void)state;
  static const struct {
    const char *name;
    ModelKind kind;
    int64_t width, blocks, heads, kv_heads, mlp, vocabulary, context;
    bool tied;
  } want[] = {{"gpt2", MODEL_GPT2, 768, 12, 12, 12, 3072, 50257, 1024, true},
              {"gpt2-medium", MODEL_GPT2, 1024, 24, 16, 16, 4096, 50257, 1024, true},
              {"gpt2-mini", MODEL_GPT2, 256, 6, 4, 4, 1024, 4096, 512, true},
              {"gpt2-15m", MODEL_GPT2, 384, 7, 6, 6, 1536, 4096, 512, true},
              {"llama-3-8b", MODEL_LLAMA, 4096, 32, 32, 8, 14336, 128256, 8192, false},
              {"llama-mini", MODEL_LLAMA, 256, 6, 8, 4, 688, 4096, 512, true},
              {"llama-15m", MODEL_LLAMA, 384, 8, 6, 2, 1024, 4096, 512, true}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    ModelConfig config;
    assert_int_equal(config_preset(&config, want[i].name, 0), STATUS_OK);
    assert_int_equal(config_check(&config), STATUS_OK);
    assert_true(config.kind == want[i].kind && config.width == want[i].width && config.blocks == want[i].blocks);
    assert_true(config.heads == want[i].heads && config.kv_heads == want[i].kv_heads && config.mlp == want[i].mlp);
    assert_true(config.vocabulary == want[i].vocabulary && config_tokens(&config) == want[i].context && config.tied == want[i].tied);
    assert_true(config.classes == 0 && config.labels == NULL && config.norm_eps == 1e-5 && config_is_decoder(&config));
    assert_int_equal(config.astra.site, want[i].kind == MODEL_LLAMA ? SITE_KV : SITE_X);
    assert_int_equal(config.astra.class_token, CLASS_NONE);
    assert_non_null(strstr(config_preset_names(), want[i].name));
    config_release(&config);
    assert_int_equal(config_preset(&config, want[i].name, 2), STATUS_OK);
    assert_true(config_check(&config) == STATUS_OK && config.classes == 2);
    config_release(&config);
  }
}

/* The paper's figures: GPT-2 with 32 groups is compressed 76.8-fold and GPT2-M 102.4-fold, of 32-bit numbers, Llama-3-8B's keys and values
 * with 1, 16 and 32 groups 1,638.4, 102.4 and 51.2-fold, of 16-bit ones; ours: gpt2-mini with 8 groups 102.4-fold. */
static void compression(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int groups;
    int number_bits;
    double compression, bits;
  } want[] = {{"gpt2", 32, 32, 76.8, 12 * 320},     {"gpt2-medium", 32, 32, 102.4, 24 * 320}, {"llama-3-8b", 1, 16, 1638.4, 640},
              {"llama-3-8b", 16, 16, 102.4, 10240}, {"llama-3-8b", 32, 16, 51.2, 20480},      {"gpt2-mini", 8, 32, 102.4, 6 * 80}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    char text[CONFIG_COMPRESSION], expected[CONFIG_COMPRESSION];
    ModelConfig config;
    assert_int_equal(config_preset(&config, want[i].name, 0), STATUS_OK);
    config.astra.groups = want[i].groups;
    assert_int_equal(config_check(&config), STATUS_OK);
    assert_int_equal(config_kv_width(&config), strcmp(want[i].name, "llama-3-8b") == 0 ? 1024 : config.width); /* 8 of 32 heads */
    assert_int_equal(config_paper_bits(&config), want[i].number_bits);
    assert_float_equal(config_compression(&config, want[i].number_bits), want[i].compression, 1e-12);
    assert_float_equal(config_compression(&config, 32), 2 * config_compression(&config, 16), 1e-12);
    snprintf(expected, sizeof expected, "%.1f-fold%s of %d-bit %s (the paper's baseline)", want[i].compression,
             want[i].number_bits == 32 ? " compression" : "", want[i].number_bits, want[i].number_bits == 32 ? "numbers" : "ones");
    assert_non_null(strstr(config_compression_text(&config, text), expected));
    assert_float_equal(config_bits_per_token(&config), want[i].bits, 0);
    config_release(&config);
  }
}

/* ---- there and back */

static void assert_equal(const ModelConfig *a, const ModelConfig *b) {
  assert_true(a->kind == b->kind && a->width == b->width && a->blocks == b->blocks && a->heads == b->heads && a->kv_heads == b->kv_heads);
  assert_true(a->mlp == b->mlp && a->activation == b->activation && a->norm_eps == b->norm_eps && a->classes == b->classes);
  assert_true(a->vocabulary == b->vocabulary && a->context == b->context && a->tied == b->tied);
  assert_true(a->begin_id == b->begin_id && a->pad_id == b->pad_id && a->end_ids == b->end_ids);
  for (int i = 0; i < a->end_ids; i++) assert_int_equal(a->end_id[i], b->end_id[i]);
  for (int i = 0; i < CONFIG_DROPOUTS; i++) assert_true(a->dropout[i] == b->dropout[i]);
  assert_true(a->rope.theta == b->rope.theta && a->rope.llama3 == b->rope.llama3 && a->rope.factor == b->rope.factor);
  assert_true(a->rope.low_factor == b->rope.low_factor && a->rope.high_factor == b->rope.high_factor);
  assert_int_equal(a->rope.original, b->rope.original);
  assert_true(a->astra.groups == b->astra.groups && a->astra.site == b->astra.site && a->astra.class_token == b->astra.class_token);
}

static void assert_round_trip(const ModelConfig *config) {
  ModelConfig back;
  assert_int_equal(config_save(config, scratch_path("trip")), STATUS_OK);
  assert_false(files_exists(scratch_path("trip/preprocessor_config.json")));
  assert_int_equal(config_load(&back, scratch_path("trip")), STATUS_OK);
  assert_equal(config, &back);
  config_release(&back);
}

static void round_trips(void **state) {
  (void)state;
  static const char *const names[] = {"gpt2", "llama-3-8b"};
  for (int i = 0; i < 2; i++)
    for (int classes = 0; classes < 3; classes += 2) {
      ModelConfig config;
      assert_int_equal(config_preset(&config, names[i], classes), STATUS_OK);
      assert_round_trip(&config);
      config.astra.groups = 8;
      config.astra.site = i == 0 ? SITE_KV : SITE_X;
      config.tied = !config.tied;
      config.pad_id = 7;
      config.end_ids = 3;
      for (int id = 0; id < 3; id++) config.end_id[id] = 10 + id;
      if (i == 0) config.activation = ACTIVATION_GELU;
      if (i == 0) config.dropout[1] = 0.1;
      if (i == 1) config.rope = (RopeConfig){500000, true, 8, 1, 4, 8192};
      config.mlp = 500;
      assert_round_trip(&config);
      config.begin_id = -1;
      config.end_ids = 0;
      assert_round_trip(&config);
      config_release(&config);
    }
}

static void written_fields(void **state) {
  (void)state;
  static const char *const gpt2[] = {"\"GPT2LMHeadModel\"",     "\"n_embd\": 768",
                                     "\"n_ctx\": 1024",         "\"activation_function\": \"gelu_new\"",
                                     "\"eos_token_id\": 50256", "\"tie_word_embeddings\": true"};
  static const char *const llama[] = {"\"LlamaForSequenceClassification\"",
                                      "\"num_key_value_heads\": 8",
                                      "\"head_dim\": 128",
                                      "\"rope_scaling\": null",
                                      "\"hidden_act\": \"silu\"",
                                      "\"id2label\": {\n    \"0\": \"LABEL_0\""};
  for (int kind = 0; kind < 2; kind++) {
    ModelConfig config;
    char *text;
    size_t size;
    assert_int_equal(config_preset(&config, kind ? "llama-3-8b" : "gpt2", kind ? 2 : 0), STATUS_OK);
    assert_int_equal(config_save(&config, scratch_path("fields")), STATUS_OK);
    assert_int_equal(files_read(scratch_path("fields/config.json"), 1 << 20, &text, &size), STATUS_OK);
    for (int i = 0; i < 6; i++)
      if (!strstr(text, kind ? llama[i] : gpt2[i])) fail_msg("%s is not in %s", kind ? llama[i] : gpt2[i], text);
    assert_null(strstr(text, "astra"));
    free(text);
    config_release(&config);
  }
}

/* ---- defaults */

static void defaults(void **state) {
  (void)state;
  ModelConfig config;
  assert_int_equal(parse(&config, "{" GPT2 ",\"n_inner\":null,\"id2label\":{\"0\":\"a\"}}"), STATUS_OK);
  assert_true(config.mlp == 128 && config.context == 1024 && config.norm_eps == 1e-5 && config.tied && config.classes == 0);
  assert_true(config.activation == ACTIVATION_GELU_TANH && config.begin_id == -1 && config.end_ids == 0 && config.dropout[0] == 0);
  config_release(&config);
  assert_int_equal(parse(&config, "{" LLAMA "}"), STATUS_OK);
  assert_true(config.kv_heads == 6 && config.context == 2048 && config.norm_eps == 1e-6 && !config.tied && config.rope.theta == 10000);
  assert_true(config.activation == ACTIVATION_NONE && !config.rope.llama3 && config.astra.site == SITE_KV);
  config_release(&config);
  assert_int_equal(parse(&config, "{" GPT2 ",\"architectures\":[\"GPT2ForSequenceClassification\"]}"), STATUS_OK);
  assert_int_equal(config.classes, 2);
  config_release(&config);
}

/* One class of several, by a softmax: nothing else is computed. What predicts tokens has no classes, whatever the fields say. */
static void tasks(void **state) {
  (void)state;
#define CLASSIFIER GPT2 ",\"architectures\":[\"GPT2ForSequenceClassification\"]"
  static const char *const accepted[] = {
      "{" CLASSIFIER ",\"problem_type\":null}", "{" CLASSIFIER ",\"problem_type\":\"single_label_classification\"}",
      "{" GPT2 ",\"problem_type\":\"regression\",\"num_labels\":1}", "{" LLAMA ",\"id2label\":{\"0\":\"LABEL_0\",\"1\":\"LABEL_1\"}}"};
  static const int classes[] = {2, 2, 0, 0};
  for (int i = 0; i < 4; i++) {
    ModelConfig config;
    assert_int_equal(parse(&config, accepted[i]), STATUS_OK);
    assert_int_equal(config.classes, classes[i]);
    config_release(&config);
  }
  assert_refused("{" CLASSIFIER ",\"problem_type\":\"regression\"}", STATUS_UNSUPPORTED, "problem_type is 'regression'");
  assert_refused("{" CLASSIFIER ",\"problem_type\":\"multi_label_classification\"}", STATUS_UNSUPPORTED, "problem_type");
  assert_refused("{" CLASSIFIER ",\"id2label\":{\"0\":\"LABEL_0\"}}", STATUS_UNSUPPORTED, "id2label has one class");
  assert_refused("{" LLAMA ",\"architectures\":[\"LlamaForSequenceClassification\"],\"num_labels\":1}", STATUS_UNSUPPORTED,
                 "num_labels has one class");
}

static void scaled_rope(void **state) {
  (void)state;
  static const char *const ways[] = {"{" LLAMA ",\"rope_theta\":500000,\"rope_scaling\":{" ROPE "}}",
                                     "{" LLAMA ",\"rope_parameters\":{\"rope_theta\":500000," ROPE "}}",
                                     "{" LLAMA ",\"rope_theta\":500000,\"rope_scaling\":{\"type\":\"default\"," ROPE "}}"};
  for (int i = 0; i < 3; i++) {
    ModelConfig config;
    assert_int_equal(parse(&config, ways[i]), STATUS_OK);
    assert_true(config.rope.llama3 && config.rope.theta == 500000 && config.rope.factor == 8 && config.rope.original == 8192);
    assert_true(config.rope.low_factor == 1 && config.rope.high_factor == 4);
    config_release(&config);
  }
  ModelConfig config;
  assert_int_equal(parse(&config, "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"default\"}}"), STATUS_OK);
  assert_false(config.rope.llama3);
  config_release(&config);
  assert_refused("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}", STATUS_UNSUPPORTED, "'yarn'");
  assert_refused("{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}", STATUS_UNSUPPORTED, "'linear'");
  assert_refused("{" LLAMA ",\"rope_scaling\":{\"factor\":4}}", STATUS_BAD_FILE, "rope_scaling.rope_type");
  assert_refused("{" LLAMA ",\"rope_scaling\":4}", STATUS_BAD_FILE, "rope_scaling");
  assert_refused("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", STATUS_BAD_FILE, "low_freq_factor");
  assert_refused("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":0.5,\"low_freq_factor\":1,\"high_freq_factor\":4,"
                 "\"original_max_position_embeddings\":8192}}",
                 STATUS_BAD_FILE, "rope_scaling.factor");
  assert_refused("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4,"
                 "\"original_max_position_embeddings\":8192}}",
                 STATUS_BAD_FILE, "high_freq_factor");
}

/* ---- refused */

static void refused_gpt2(void **state) {
  (void)state;
  assert_refused("{\"model_type\":\"gpt2\"}", STATUS_BAD_FILE, "n_embd is missing");
  assert_refused("{\"model_type\":\"gpt2\",\"n_embd\":32,\"n_head\":4,\"n_layer\":2}", STATUS_BAD_FILE, "vocab_size is missing");
  assert_refused("{\"model_type\":\"gpt2\",\"n_embd\":30,\"n_head\":4,\"n_layer\":2,\"vocab_size\":5}", STATUS_BAD_FILE,
                 "n_head 4 does not divide n_embd 30");
  assert_refused("{\"model_type\":\"gpt2\",\"n_embd\":9223372036854775807,\"n_head\":4,\"n_layer\":2,\"vocab_size\":5}", STATUS_BAD_FILE,
                 "n_embd");
  assert_refused("{" GPT2 ",\"n_positions\":0}", STATUS_BAD_FILE, "n_positions");
  assert_refused("{" GPT2 ",\"n_inner\":-4}", STATUS_BAD_FILE, "n_inner");
  assert_refused("{" GPT2 ",\"activation_function\":\"relu\"}", STATUS_BAD_FILE, "activation_function");
  assert_refused("{" GPT2 ",\"layer_norm_epsilon\":2}", STATUS_BAD_FILE, "layer_norm_epsilon");
  assert_refused("{" GPT2 ",\"attn_pdrop\":1.5}", STATUS_BAD_FILE, "attn_pdrop");
  assert_refused("{" GPT2 ",\"scale_attn_weights\":false}", STATUS_UNSUPPORTED, "scale_attn_weights");
  assert_refused("{" GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}", STATUS_UNSUPPORTED, "scale_attn_by_inverse_layer_idx");
  assert_refused("{" GPT2 ",\"architectures\":[\"GPT2DoubleHeadsModel\"]}", STATUS_UNSUPPORTED, "GPT2DoubleHeadsModel");
  assert_refused("{" GPT2 ",\"architectures\":[\"LlamaForCausalLM\"]}", STATUS_UNSUPPORTED, "LlamaForCausalLM");
  assert_refused("{" GPT2 ",\"architectures\":\"GPT2LMHeadModel\"}", STATUS_BAD_FILE, "architectures");
  assert_refused("{" GPT2 ",\"bos_token_id\":61}", STATUS_BAD_FILE, "bos_token_id");
  assert_refused("{" GPT2 ",\"eos_token_id\":[1,99]}", STATUS_BAD_FILE, "eos_token_id");
  assert_refused("{" GPT2 ",\"eos_token_id\":[]}", STATUS_BAD_FILE, "eos_token_id");
  assert_refused("{" GPT2 ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", STATUS_BAD_FILE, "eos_token_id");
  assert_refused("{" GPT2 ",\"eos_token_id\":\"end\"}", STATUS_BAD_FILE, "eos_token_id");
  assert_refused("{" GPT2 ",\"n_positions\":32,\"astra\":{\"groups\":8,\"devices\":33}}", STATUS_BAD_FILE, "32 tokens");
  assert_refused("{" GPT2 ",\"astra\":{\"groups\":7}}", STATUS_BAD_FILE, "astra.groups 7 does not divide");
}

static void refused_llama(void **state) {
  (void)state;
  assert_refused("{\"model_type\":\"llama\",\"hidden_size\":48}", STATUS_BAD_FILE, "num_hidden_layers is missing");
  assert_refused("{" LLAMA ",\"num_key_value_heads\":4}", STATUS_BAD_FILE, "num_key_value_heads 4 does not divide num_attention_heads 6");
  assert_refused("{" LLAMA ",\"head_dim\":16}", STATUS_UNSUPPORTED, "head_dim is 16");
  assert_refused("{" LLAMA ",\"attention_bias\":true}", STATUS_UNSUPPORTED, "attention_bias");
  assert_refused("{" LLAMA ",\"mlp_bias\":true}", STATUS_UNSUPPORTED, "mlp_bias");
  assert_refused("{" LLAMA ",\"hidden_act\":\"gelu\"}", STATUS_BAD_FILE, "hidden_act");
  assert_refused("{" LLAMA ",\"rms_norm_eps\":-1}", STATUS_BAD_FILE, "rms_norm_eps");
  assert_refused("{" LLAMA ",\"rope_theta\":0}", STATUS_BAD_FILE, "rope_theta");
  assert_refused("{" LLAMA ",\"max_position_embeddings\":1099511627776}", STATUS_BAD_FILE, "max_position_embeddings");
  assert_refused("{" LLAMA ",\"tie_word_embeddings\":1}", STATUS_BAD_FILE, "tie_word_embeddings");
  assert_refused("{\"model_type\":\"llama\",\"hidden_size\":30,\"num_attention_heads\":6,\"num_hidden_layers\":2,\"intermediate_size\":9,"
                 "\"vocab_size\":53}",
                 STATUS_BAD_FILE, "odd");
  assert_refused(
      "{\"model_type\":\"llama\",\"hidden_size\":65536,\"num_attention_heads\":1,\"num_hidden_layers\":2,\"intermediate_size\":9,"
      "\"vocab_size\":53,\"max_position_embeddings\":1048576}",
      STATUS_BAD_FILE, "rotary");
}

/* ---- without memory */

static char *saved(void) {
  char *text;
  size_t size;
  assert_int_equal(files_read(scratch_path("few/config.json"), 1 << 20, &text, &size), STATUS_OK);
  assert_int_equal(remove(scratch_path("few/config.json")), 0);
  return text;
}

static void assert_saved(const char *whole) {
  char *text = saved();
  assert_string_equal(text, whole);
  free(text);
}

/* Whichever allocation fails: the whole file, or a failure and none. */
static void assert_whole_or_nothing(const char *json) {
  ModelConfig config;
  assert_int_equal(parse(&config, json), STATUS_OK);
  assert_int_equal(config_save(&config, scratch_path("few")), STATUS_OK);
  char *whole = saved();
  bool failed = true;
  for (long allocations = 0; failed; allocations++) {
    failing_json_start(allocations);
    Status status = config_save(&config, scratch_path("few"));
    failed = failing_json_stop();
    assert_int_equal(files_exists(scratch_path("few/config.json")), status == STATUS_OK);
    if (status == STATUS_OK) assert_saved(whole);
  }
  free(whole);
  config_release(&config);
}

static void whole_or_nothing(void **state) {
  (void)state;
  assert_whole_or_nothing("{" GPT2 ",\"architectures\":[\"GPT2ForSequenceClassification\"],\"pad_token_id\":3,\"eos_token_id\":[1,2],"
                          "\"id2label\":{\"0\":\"good\",\"1\":\"bad\"},\"astra\":{\"groups\":4,\"devices\":\"2-4\"}}");
  assert_whole_or_nothing("{" LLAMA ",\"rope_scaling\":{" ROPE "},\"astra\":{\"groups\":4}}");
  assert_whole_or_nothing("{\"model_type\":\"vit\",\"hidden_size\":48,\"num_attention_heads\":4,\"num_hidden_layers\":3,"
                          "\"intermediate_size\":96,\"image_size\":32,\"patch_size\":8,\"astra\":{\"groups\":4}}");
}

/* ---- the golden models' own */

static void golden(void **state) {
  (void)state;
  static const struct {
    const char *name;
    ModelKind kind;
    int groups;
    Site site;
  } cases[] = {{"gpt2-plain", MODEL_GPT2, 0, SITE_X},
               {"gpt2-g4-n4", MODEL_GPT2, 4, SITE_X},
               {"llama-plain", MODEL_LLAMA, 0, SITE_KV},
               {"llama-g2-n2-uneven", MODEL_LLAMA, 2, SITE_KV},
               {"stories260K", MODEL_LLAMA, 0, SITE_KV}};
  for (size_t i = 0; i < 5; i++) {
    char path[64];
    ModelConfig config;
    snprintf(path, sizeof path, "tests/golden/%s", cases[i].name);
    assert_int_equal(config_load(&config, path), STATUS_OK);
    assert_true(config.kind == cases[i].kind && config.astra.groups == cases[i].groups && config.astra.site == cases[i].site);
    config_release(&config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(presets),       cmocka_unit_test(compression), cmocka_unit_test(round_trips),      cmocka_unit_test(written_fields),
      cmocka_unit_test(defaults),      cmocka_unit_test(tasks),       cmocka_unit_test(scaled_rope),      cmocka_unit_test(refused_gpt2),
      cmocka_unit_test(refused_llama), cmocka_unit_test(golden),      cmocka_unit_test(whole_or_nothing),
  };
  return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
