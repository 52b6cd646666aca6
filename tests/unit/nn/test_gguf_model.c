/* GGUF files of Llama models: the configuration is the one that config.json states, parameters are the checkpoint's, number for number
 * where the type holds them and as the format's definition says where it does not, and so are logits. Refusals name what is not taken. */
#include "nn/checkpoint.h"
#include "nn/gguf_model.c" /* blocks of numbers by themselves */
#include "unit/gguf_llama.h"
#include "unit/nn/small_decoder.h"
#include "unit/remove_tree.h"
#include <stdlib.h>

enum { STORY_IDS = 40 };
static const char stories[] = "tests/golden/stories260K";
static const uint32_t types[] = {GL_F32, GL_F16, GL_BF16, GL_Q8_0, GL_Q4_0, GL_Q4_K, GL_Q6_K};
enum { TYPES = sizeof types / sizeof *types };

/* ---- what the tests have in common */

static Model *trained_model(void) {
  ModelConfig config;
  Model *model;
  Rng rng;
  rng_init(&rng, 1, 0);
  assert_int_equal(config_load(&config, stories), STATUS_OK);
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  assert_int_equal(param_allocate(model_params(model), false), STATUS_OK);
  assert_int_equal(checkpoint_load_params(model, stories, &rng, NULL), STATUS_OK);
  config_release(&config);
  return model;
}

/* Rows of whole blocks of 256; an untied head; Llama 3's rotary positions. */
static void wide_config(ModelConfig *config) {
  small_config(config, MODEL_LLAMA, 0);
  config->width = 256;
  config->mlp = 512;
  config->heads = 4;
  config->kv_heads = 2;
  config->blocks = 1;
  config->context = 300;
  config->tied = false;
  config->rope = (RopeConfig){500000, true, 8, 1, 4, 8192};
}

/* Matrices of about 1 / sqrt(width), so that a rounding stays small on its way. */
static Model *wide_model(void) {
  ModelConfig config;
  wide_config(&config);
  Model *model = small_model(&config, false);
  ParamSet *set = model_params(model);
  for (size_t i = 0; i < set->count; i++)
    for (int64_t j = 0; set->list[i].tensor.dims == 2 && j < tensor_count(&set->list[i].tensor); j++)
      set->list[i].tensor.value[j] *= (real)0.3;
  config_release(&config);
  return model;
}

typedef struct Saved {
  char path[TEMPORARY_PATH + 16];
} Saved;

static void save(Saved *saved, Model *model, uint32_t type) {
  char folder[TEMPORARY_PATH];
  GgufWriter writer;
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(saved->path, sizeof saved->path, "%s/model.gguf", folder);
  gguf_writer_init(&writer);
  gguf_llama_write(&writer, model, type);
  assert_true(gguf_writer_save(&writer, saved->path));
  gguf_writer_release(&writer);
}

static Model *load(const char *path) {
  ModelConfig config;
  Model *model;
  Rng rng;
  rng_init(&rng, 1, 0);
  if (config_load(&config, path) != STATUS_OK) fail_msg("%s", status_message());
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  assert_int_equal(param_allocate(model_params(model), false), STATUS_OK);
  if (checkpoint_load_params(model, path, &rng, NULL) != STATUS_OK) fail_msg("%s", status_message());
  config_release(&config);
  return model;
}

static Tensor *logits_of(Model *model, SmallRun *run) {
  int32_t ids[STORY_IDS];
  for (int i = 0; i < STORY_IDS; i++) ids[i] = (int32_t)(i * i * 7 + 3 * i + 1) % (int32_t)model_config(model)->vocabulary;
  Tensor *logits = model_logits(model, run->tape, small_encode(model, run, ids, 1, STORY_IDS, MODEL_ROWS_ALL));
  assert_non_null(logits);
  return logits;
}

static double distance(const Tensor *a, const Tensor *b) {
  double sum = 0, size = 0;
  assert_int_equal(tensor_count(a), tensor_count(b));
  for (int64_t i = 0; i < tensor_count(a); i++) {
    double off = (double)a->value[i] - (double)b->value[i];
    sum += off * off, size += (double)b->value[i] * (double)b->value[i];
  }
  return sqrt(sum / size);
}

/* ---- configuration */

static void the_configuration_is_that_of_config_json(void **state) {
  (void)state;
  Model *trained = trained_model(), *wide = wide_model();
  Model *const models[] = {trained, wide};
  for (int i = 0; i < 2; i++) {
    const ModelConfig *expected = model_config(models[i]);
    ModelConfig config;
    Saved saved;
    save(&saved, models[i], GL_F16);
    if (config_load(&config, saved.path) != STATUS_OK) fail_msg("%s", status_message());
    assert_true(config.kind == MODEL_LLAMA && config.width == expected->width && config.blocks == expected->blocks);
    assert_true(config.heads == expected->heads && config.kv_heads == expected->kv_heads && config.mlp == expected->mlp);
    assert_true(config.vocabulary == expected->vocabulary && config.context == expected->context && config.tied == expected->tied);
    assert_true(config.norm_eps == expected->norm_eps && config.classes == 0 && config.astra.groups == 0);
    assert_true(config.begin_id == -1 && config.pad_id == -1 && config.end_ids == 0);
    assert_true(config.rope.theta == expected->rope.theta && config.rope.llama3 == expected->rope.llama3);
    if (config.rope.llama3)
      assert_true(config.rope.factor == 8 && config.rope.low_factor == 1 && config.rope.high_factor == 4 && config.rope.original == 8192);
    config_release(&config);
  }
  model_free(trained);
  model_free(wide);
}

static Status config_of(GgufWriter *writer, ModelConfig *config) {
  GgufFile file;
  uint8_t *data = gguf_writer_parse(writer, &file);
  Status status = gguf_model_config(config, &file);
  gguf_close(&file);
  free(data);
  return status;
}

/* The keys of a small model and a token table; `without` is left out. */
static void write_keys(GgufWriter *writer, const char *without) {
  static const struct {
    const char *key;
    uint32_t value;
  } list[] = {{"llama.block_count", 1},
              {"llama.context_length", 64},
              {"llama.embedding_length", 8},
              {"llama.feed_forward_length", 16},
              {"llama.attention.head_count", 2}};
  static const float table[5 * 8];
  gguf_writer_init(writer);
  gguf_add_text(writer, "general.architecture", "llama");
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (!without || strcmp(without, list[i].key) != 0) gguf_add_u32(writer, list[i].key, list[i].value);
  if (!without || strcmp(without, "llama.attention.layer_norm_rms_epsilon") != 0)
    gguf_add_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  if (!without || strcmp(without, "token_embd.weight") != 0)
    gguf_add_tensor(writer, "token_embd.weight", GL_F32, 2, (int64_t[]){8, 5}, table, sizeof table);
}

static void ids_and_defaults_are_read(void **state) {
  (void)state;
  GgufWriter writer;
  ModelConfig config;
  write_keys(&writer, NULL);
  gguf_add_u32(&writer, "tokenizer.ggml.bos_token_id", 1);
  gguf_add_u32(&writer, "tokenizer.ggml.eos_token_id", 2);
  gguf_add_u32(&writer, "tokenizer.ggml.eot_token_id", 3);
  gguf_add_u32(&writer, "tokenizer.ggml.eom_token_id", 2);
  gguf_add_u32(&writer, "tokenizer.ggml.padding_token_id", 4);
  gguf_add_u32(&writer, "llama.attention.sliding_window", 32);
  gguf_add_text(&writer, "llama.rope.scaling.type", "linear"); /* by 1 */
  gguf_add_f32(&writer, "llama.rope.scaling.factor", 1);
  gguf_add_flag(&writer, "llama.attention.causal", true);
  gguf_add_tensor(&writer, "rope_freqs.weight", GL_F32, 1, (int64_t[]){2}, (float[]){1, 1}, 8); /* nothing is slowed down */
  assert_int_equal(config_of(&writer, &config), STATUS_OK);
  assert_true(config.begin_id == 1 && config.pad_id == 4 && config.end_ids == 2 && config.end_id[0] == 2 && config.end_id[1] == 3);
  assert_true(config.kv_heads == 2 && config.rope.theta == 10000 && !config.rope.llama3 && config.tied && config.vocabulary == 5);
  assert_int_equal(config.context, 32);
  config_release(&config);
}

static void assert_refused(GgufWriter *writer, Status status, const char *message) {
  ModelConfig config;
  assert_int_equal(config_of(writer, &config), status);
  if (!strstr(status_message(), message)) fail_msg("%s", status_message());
  assert_int_equal(config.width, 0);
}

static void configurations_that_are_not_understood(void **state) {
  (void)state;
  static const char *const needed[] = {"llama.block_count",         "llama.context_length",       "llama.embedding_length",
                                       "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon",
                                       "token_embd.weight"};
  GgufWriter writer;
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    write_keys(&writer, needed[i]);
    assert_refused(&writer, STATUS_BAD_FILE, needed[i]);
  }
  gguf_writer_init(&writer);
  gguf_add_text(&writer, "general.architecture", "qwen2");
  assert_refused(&writer, STATUS_UNSUPPORTED, "architecture 'qwen2'; of GGUF files those of architecture llama are supported");
  write_keys(&writer, NULL);
  gguf_put_value(&writer, "split.count", 2, &(uint16_t){3}, 2);
  assert_refused(&writer, STATUS_UNSUPPORTED, "one of 3 parts of a model; join them first: llama-gguf-split --merge");
  write_keys(&writer, NULL);
  gguf_add_u32(&writer, "llama.expert_count", 8);
  assert_refused(&writer, STATUS_UNSUPPORTED, "8 experts");
  write_keys(&writer, NULL);
  gguf_add_text(&writer, "llama.rope.scaling.type", "yarn");
  assert_refused(&writer, STATUS_UNSUPPORTED, "'yarn'");
  static const char *const factors[] = {"llama.rope.scaling.factor", "llama.rope.scale_linear"};
  for (int i = 0; i < 2; i++) {
    write_keys(&writer, NULL);
    gguf_add_f32(&writer, factors[i], 4);
    assert_refused(&writer, STATUS_UNSUPPORTED, "scaled by 'linear'");
  }
  write_keys(&writer, NULL);
  gguf_add_flag(&writer, "llama.attention.causal", false);
  assert_refused(&writer, STATUS_UNSUPPORTED, "llama.attention.causal false");
  write_keys(&writer, NULL);
  gguf_add_u32(&writer, "llama.rope.dimension_count", 2);
  assert_refused(&writer, STATUS_UNSUPPORTED, "llama.rope.dimension_count is 2; only");
  write_keys(&writer, NULL);
  gguf_add_u32(&writer, "llama.attention.head_count_kv", 3);
  assert_refused(&writer, STATUS_BAD_FILE, "sample: num_key_value_heads is 3; accepted is 1 to 2");
  static const float others[][2] = {{1, 1.7f}, {1, INFINITY}, {1, 0.5f}, {0.5f, 0.5f}, {1, NAN}, {NAN, NAN}, {1, 0}, {1, -1}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    write_keys(&writer, NULL);
    gguf_add_tensor(&writer, "rope_freqs.weight", GL_F32, 1, (int64_t[]){2}, others[i], 8);
    assert_refused(&writer, STATUS_UNSUPPORTED, "rope_freqs.weight are not those of Llama 3");
  }
  write_keys(&writer, NULL);
  gguf_add_tensor(&writer, "rope_freqs.weight", GL_F32, 1, (int64_t[]){3}, (float[]){1, 1, 1}, 12);
  assert_refused(&writer, STATUS_BAD_FILE, "rope_freqs.weight has 3 numbers of type F32, expected 2");
}

/* ---- parameters */

/* Row of the file that a row of ours is in; the definition of the converter's order, read backwards. */
static int64_t file_row(const ModelConfig *config, const char *name, int64_t rows, int64_t row) {
  int64_t heads = strstr(name, "q_proj") ? config->heads : strstr(name, "k_proj") ? config->kv_heads : 0;
  if (heads == 0) return row;
  int64_t d = rows / heads, h = row / d, s = row % d / (d / 2), i = row % (d / 2);
  return h * d + 2 * i + s;
}

/* Of numbers in K-quants, which become Q8_0: half a step of 8 bits of the largest in 32 neighbours, and some for the half-precision scale.
 */
static double allowed(uint32_t type, const uint8_t *data, int64_t i) {
  double largest = 0;
  if (type != GL_Q4_K && type != GL_Q6_K) return REAL_IS_DOUBLE ? 0 : 1e-7 * fabs(gguf_llama_decode(type, data, i));
  for (int64_t j = i / 32 * 32; j < i / 32 * 32 + 32; j++) largest = fmax(largest, fabs(gguf_llama_decode(type, data, j)));
  return largest / 127 * 0.51 + 127 * 0x1p-25;
}

static void assert_numbers(Model *loaded, const GgufFile *file, uint32_t type) {
  const ParamSet *set = model_params(loaded);
  for (size_t p = 0; p < set->count; p++) {
    const Tensor *tensor = &set->list[p].tensor;
    char name[64];
    gguf_llama_name(set->list[p].name, name);
    const GgufTensor *stored = gguf_tensor(file, name);
    assert_non_null(stored);
    assert_int_equal(stored->type, gguf_llama_type(tensor, type));
    int64_t columns = tensor_width(tensor), rows = tensor_rows(tensor);
    for (int64_t row = 0; row < rows; row++)
      for (int64_t i = 0; i < columns; i++) {
        int64_t at = file_row(model_config(loaded), set->list[p].name, rows, row) * columns + i;
        double expected = gguf_llama_decode(stored->type, stored->data, at), got = (double)tensor->value[row * columns + i];
        if (!(fabs(got - expected) <= allowed(stored->type, stored->data, at)))
          fail_msg("%s [%d, %d] of type %u: %.9g, expected %.9g", name, (int)row, (int)i, stored->type, got, expected);
      }
  }
}

static void parameters_are_those_of_the_file(void **state) {
  (void)state;
  Model *trained = trained_model(), *wide = wide_model();
  for (int i = 0; i < TYPES; i++)
    for (int j = 0; j < 2; j++) {
      Saved saved;
      GgufFile file;
      save(&saved, j == 0 ? trained : wide, types[i]);
      Model *loaded = load(saved.path);
      assert_int_equal(gguf_open(&file, saved.path), STATUS_OK);
      assert_numbers(loaded, &file, types[i]);
      gguf_close(&file);
      model_free(loaded);
    }
  model_free(trained);
  model_free(wide);
}

/* Any bytes, not only what an encoder makes: all scales, minima and numbers. */
static void blocks_are_widened_as_defined(void **state) {
  (void)state;
  static const uint32_t kinds[] = {GL_Q4_K, GL_Q6_K};
  Rng rng;
  rng_init(&rng, 7, 0);
  for (int k = 0; k < 2; k++)
    for (int round = 0; round < 200; round++) {
      uint8_t block[210];
      float value[256];
      for (int i = 0; i < 210; i++) block[i] = (uint8_t)rng_below(&rng, 256);
      gl_put_half(block + (k == 0 ? 0 : 208), (float)rng_normal(&rng) * 0.01f);
      if (k == 0) gl_put_half(block + 2, (float)rng_normal(&rng) * 0.01f);
      widen_block(kinds[k], block, value);
      for (int i = 0; i < 256; i++) {
        double expected = gguf_llama_number(kinds[k], block, i);
        assert_true(fabs((double)value[i] - expected) <= 2e-7 * (fabs(expected) + (k == 0 ? 126 * fabs((double)gl_half(block + 2)) : 0)));
      }
    }
}

/* Numbers as weights have them: what the second rounding adds, beside what the first one did. Printed with SHOW=1, bfloat16 for comparison:
 * it would add less and take nearly twice the memory. */
static void eight_bits_add_little(void **state) {
  (void)state;
  static const uint32_t kinds[] = {GL_Q4_K, GL_Q6_K};
  static const double max[] = {0.15, 0.45};
  Rng rng;
  rng_init(&rng, 9, 0);
  for (int k = 0; k < 2; k++) {
    double first = 0, second = 0, brain = 0;
    for (int round = 0; round < 500; round++) {
      float value[256], exact[256];
      uint8_t block[210];
      LowbitQ8Block eight[8];
      for (int i = 0; i < 256; i++) value[i] = (float)(0.02 * rng_normal(&rng));
      gguf_llama_encode(kinds[k], value, 256, block);
      widen_block(kinds[k], block, exact);
      block_to_q8(exact, 256, eight);
      for (int i = 0; i < 256; i++) {
        double x = (double)exact[i], narrow = (double)narrow_bfloat_to_float(safetensors_float_to_bfloat(exact[i]));
        first += (x - (double)value[i]) * (x - (double)value[i]);
        second += pow(gguf_llama_decode(GL_Q8_0, (const uint8_t *)eight, i) - x, 2);
        brain += (narrow - x) * (narrow - x);
      }
    }
    if (getenv("SHOW"))
      print_message("type %u: error of Q8_0 %.3f, of bfloat16 %.3f of its own; both together %.4f\n", kinds[k], sqrt(second / first),
                    sqrt(brain / first), sqrt((first + second) / first));
    assert_true(sqrt(second / first) < max[k]);
  }
}

static void eight_bits_take_any_scale(void **state) {
  (void)state;
  static const float sizes[] = {0, 1e-9f, 3e-6f, 1e-5f, 1e-3f, 1, 1e4f, 8e6f};
  Rng rng;
  rng_init(&rng, 8, 0);
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    float value[32], largest = 0;
    LowbitQ8Block block;
    for (int i = 0; i < 32; i++) value[i] = sizes[s] * (float)(2 * rng_uniform(&rng) - 1), largest = fmaxf(largest, fabsf(value[i]));
    block_to_q8(value, 32, &block);
    double scale = (double)narrow_half_to_float(block.scale);
    assert_true(scale * 127.5 >= (double)largest * 0.9999);
    for (int i = 0; i < 32; i++) assert_true(fabs(scale * block.number[i] - (double)value[i]) <= 0.5001 * scale + 1e-12);
    assert_true(scale <= (double)largest / 127 * 1.001 + 0x1p-24);
  }
  float bad[32] = {NAN, 1}, huge[32] = {1e9f};
  LowbitQ8Block block;
  block_to_q8(bad, 32, &block);
  assert_false(isfinite(narrow_half_to_float(block.scale)));
  block_to_q8(huge, 32, &block);
  assert_false(isfinite(narrow_half_to_float(block.scale)));
}

/* ---- logits: of a file against the checkpoint that it was made from */

static double logits_distance(Model *original, uint32_t type) {
  Saved saved;
  SmallRun run;
  save(&saved, original, type);
  Model *loaded = load(saved.path);
  small_open(&run);
  double off = distance(logits_of(loaded, &run), logits_of(original, &run));
  small_close(&run);
  model_free(loaded);
  return off;
}

static void logits_of_floats_are_equal(void **state) {
  (void)state;
  Model *trained = trained_model();
  assert_true(logits_distance(trained, GL_F32) == 0);
  model_free(trained);
  Model *wide = wide_model();
  ParamSet *set = model_params(wide);
  static const uint32_t kinds[] = {GL_F32, GL_F16, GL_BF16};
  for (size_t i = 0; i < set->count; i++) /* numbers that all three hold */
    for (int64_t j = 0; j < tensor_count(&set->list[i].tensor); j++) {
      real *value = &set->list[i].tensor.value[j];
      *value = (real)(rint((double)*value * 128) / 128);
    }
  for (int i = 0; i < 3; i++) assert_true(logits_distance(wide, kinds[i]) == 0);
  model_free(wide);
}

/* Rounding to b bits is off by about 2^-b of a block's largest number in each weight; a wrong row order or scale is off by 100%. */
static void logits_of_blocks_are_near(void **state) {
  (void)state;
  Model *trained = trained_model(), *wide = wide_model();
  assert_true(logits_distance(trained, GL_F16) < 0.002);
  assert_true(logits_distance(trained, GL_BF16) < 0.02);
  assert_true(logits_distance(trained, GL_Q8_0) < 0.03);
  assert_true(logits_distance(trained, GL_Q4_0) < 0.4);
  assert_true(logits_distance(wide, GL_Q8_0) < 0.03);
  assert_true(logits_distance(wide, GL_Q6_K) < 0.1);
  assert_true(logits_distance(wide, GL_Q4_K) < 0.3);
  assert_true(logits_distance(wide, GL_Q4_0) < 0.4);
  if (getenv("SHOW"))
    for (int i = 0; i < TYPES; i++)
      print_message("%u: %g %g\n", types[i], logits_distance(trained, types[i]), logits_distance(wide, types[i]));
  model_free(trained);
  model_free(wide);
}

/* ---- mapped, for inference */

static void floats_stay_in_the_file(void **state) {
  (void)state;
  if (REAL_IS_DOUBLE) return;
  Model *trained = trained_model(), *mapped;
  CheckpointMapping *mapping;
  ModelConfig config;
  SmallRun run;
  static const uint32_t kinds[] = {GL_F32, GL_BF16};
  for (int k = 0; k < 2; k++) {
    Saved saved;
    save(&saved, trained, kinds[k]);
    assert_int_equal(config_load(&config, saved.path), STATUS_OK);
    assert_int_equal(model_new(&mapped, &config), STATUS_OK);
    if (checkpoint_map_params(mapped, saved.path, &mapping) != STATUS_OK) fail_msg("%s", status_message());
    const ParamSet *set = model_params(mapped);
    for (size_t i = 0; i < set->count; i++) {
      const Tensor *tensor = &set->list[i].tensor;
      const void *data = tensor->value ? (const void *)tensor->value : (const void *)tensor->narrow;
      bool turned = strstr(set->list[i].name, "q_proj") || strstr(set->list[i].name, "k_proj");
      assert_int_equal(checkpoint_file_at(mapping, data) != NULL, !turned);
      assert_int_equal(tensor->narrow_kind, tensor->dims == 2 && kinds[k] == GL_BF16 ? NARROW_BF16 : NARROW_NONE);
    }
    assert_int_equal(checkpoint_unchanged(mapping), STATUS_OK);
    small_open(&run);
    assert_true(distance(logits_of(mapped, &run), logits_of(trained, &run)) < (kinds[k] == GL_F32 ? 1e-12 : 0.02));
    small_close(&run);
    model_free(mapped);
    checkpoint_unmap(mapping);
    config_release(&config);
  }
  model_free(trained);
}

static Model *map(const char *path, CheckpointMapping **mapping) {
  ModelConfig config;
  Model *model;
  assert_int_equal(config_load(&config, path), STATUS_OK);
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  if (checkpoint_map_params(model, path, mapping) != STATUS_OK) fail_msg("%s", status_message());
  config_release(&config);
  return model;
}

/* Computed with as they are: products round activations to 8 bits, too, which moves logits by some percent of what 4 bits do. */
static void blocks_stay_blocks(void **state) {
  (void)state;
  static const uint32_t kinds[] = {GL_Q8_0, GL_Q4_0, GL_Q4_K, GL_Q6_K};
  static const LowbitKind kept[] = {LOWBIT_Q8_0, LOWBIT_Q4_0, LOWBIT_Q8_0, LOWBIT_Q8_0};
  Model *wide = wide_model();
  for (int k = 0; k < 4; k++) {
    Saved saved;
    SmallRun run;
    CheckpointMapping *mapping;
    save(&saved, wide, kinds[k]);
    Model *loaded = load(saved.path), *mapped = map(saved.path, &mapping);
    const ParamSet *set = model_params(mapped);
    for (size_t i = 0; i < set->count; i++) {
      const Tensor *tensor = &set->list[i].tensor;
      bool turned = strstr(set->list[i].name, "q_proj") || strstr(set->list[i].name, "k_proj");
      if (tensor->dims == 1) continue;
      assert_true(tensor->lowbit && !tensor->value && !tensor->narrow);
      assert_int_equal(tensor->lowbit->kind, kept[k]);
      assert_true(tensor->lowbit->outputs == tensor->shape[0] && tensor->lowbit->inputs == tensor->shape[1]);
      assert_int_equal(checkpoint_file_at(mapping, tensor->lowbit->numbers) != NULL, !turned && k < 2);
    }
    small_open(&run);
    double off = distance(logits_of(mapped, &run), logits_of(loaded, &run));
    if (getenv("SHOW")) print_message("type %u: products of blocks against products of floats %g\n", kinds[k], off);
    assert_true(off < (REAL_IS_DOUBLE ? 0.1 : 0.05));
    small_close(&run);
    model_free(loaded);
    model_free(mapped);
    checkpoint_unmap(mapping);
  }
  model_free(wide);
}

/* A file may align its data to a byte: blocks at odd addresses are kept as blocks, at even ones. */
static void blocks_at_odd_addresses_stay_blocks(void **state) {
  (void)state;
  Model *wide = wide_model();
  int odd = 0;
  for (int padding = 0; padding < 2; padding++) {
    char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 16];
    GgufWriter writer;
    GgufFile file;
    CheckpointMapping *mapping;
    assert_int_equal(make_temporary_folder(folder), 0);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    gguf_writer_init(&writer);
    writer.alignment = 1;
    gguf_add_u32(&writer, "general.alignment", 1);
    gguf_add_text(&writer, "general.author", padding ? "a" : "");
    gguf_llama_write(&writer, wide, GL_Q8_0);
    assert_true(gguf_writer_save(&writer, path));
    gguf_writer_release(&writer);
    assert_int_equal(gguf_open(&file, path), STATUS_OK);
    odd += (int)((uintptr_t)gguf_tensor(&file, "output.weight")->data % 2);
    gguf_close(&file);
    Model *mapped = map(path, &mapping), *loaded = load(path);
    const ParamSet *set = model_params(mapped);
    for (size_t i = 0; i < set->count; i++) {
      if (set->list[i].tensor.dims == 1) continue;
      assert_non_null(set->list[i].tensor.lowbit);
      assert_int_equal((uintptr_t)set->list[i].tensor.lowbit->numbers % 2, 0);
    }
    model_free(mapped);
    model_free(loaded);
    checkpoint_unmap(mapping);
    remove_tree(folder);
  }
  assert_int_equal(odd, 1);
  model_free(wide);
}

/* ---- refusals */

static Status open_changed(Model *model, const char *path, void change(GgufWriter *writer)) {
  GgufWriter writer;
  ModelConfig config;
  Model *loaded;
  CheckpointMapping *mapping;
  gguf_writer_init(&writer);
  gguf_llama_write(&writer, model, GL_Q8_0);
  change(&writer);
  assert_true(gguf_writer_save(&writer, path));
  gguf_writer_release(&writer);
  assert_int_equal(config_load(&config, path), STATUS_OK);
  assert_int_equal(model_new(&loaded, &config), STATUS_OK);
  Status status = checkpoint_map_params(loaded, path, &mapping);
  if (status == STATUS_OK) checkpoint_unmap(mapping);
  model_free(loaded);
  config_release(&config);
  return status;
}

static void add_bias(GgufWriter *writer) { gguf_add_tensor(writer, "blk.0.attn_q.bias", GL_F32, 1, (int64_t[]){1}, (float[]){1}, 4); }
static void add_again(GgufWriter *writer) {
  gguf_add_tensor(writer, "blk.00.attn_norm.weight", GL_F32, 1, (int64_t[]){1}, (float[]){1}, 4);
}
static void add_block(GgufWriter *writer) {
  float norm[256] = {0};
  gguf_add_tensor(writer, "blk.1.attn_norm.weight", GL_F32, 1, (int64_t[]){256}, norm, sizeof norm);
}
static void infinite_scale(GgufWriter *writer) {
  GgufBytes *data = &writer->data; /* the last tensor is the head's, in blocks */
  memcpy(data->data + data->size - 34, &(uint16_t){0x7c00}, 2);
}
static void nothing(GgufWriter *writer) { (void)writer; }

static void what_is_not_llama_is_refused(void **state) {
  (void)state;
  Model *wide = wide_model();
  Saved saved;
  save(&saved, wide, GL_F16);
  const struct {
    void (*change)(GgufWriter *writer);
    Status status;
    const char *message;
  } list[] = {{nothing, STATUS_OK, ""},
              {add_bias, STATUS_UNSUPPORTED, "tensor blk.0.attn_q.bias is none of a Llama model's"},
              {add_again, STATUS_BAD_FILE, "are the same parameter"},
              {add_block, STATUS_BAD_FILE, "there are more than the model's 1 block (tensor model.layers.1."},
              {infinite_scale, STATUS_BAD_FILE, "tensor lm_head.weight holds a NaN or an infinity"}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    assert_int_equal(open_changed(wide, saved.path, list[i].change), list[i].status);
    if (list[i].status != STATUS_OK && !strstr(status_message(), list[i].message)) fail_msg("%s", status_message());
  }
  model_free(wide);
}

/* A table of five tokens in a type that is known and not taken. */
static void other_types_are_named(void **state) {
  (void)state;
  GgufWriter writer;
  char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 16];
  CheckpointMapping *mapping;
  ModelConfig config;
  Model *model;
  uint8_t blocks[5 * 24] = {0};
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(path, sizeof path, "%s/model.gguf", folder);
  write_keys(&writer, "token_embd.weight");
  gguf_add_tensor(&writer, "token_embd.weight", 7, 2, (int64_t[]){32, 5}, blocks, sizeof blocks);
  assert_true(gguf_writer_save(&writer, path));
  gguf_writer_release(&writer);
  assert_int_equal(config_load(&config, path), STATUS_OK);
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  assert_int_equal(checkpoint_map_params(model, path, &mapping), STATUS_UNSUPPORTED);
  assert_non_null(
      strstr(status_message(), "tensor token_embd.weight is stored as Q5_1; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K"));
  assert_non_null(strstr(status_message(), "llama-quantize --allow-requantize"));
  model_free(model);
  config_release(&config);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_configuration_is_that_of_config_json),
                                     cmocka_unit_test(ids_and_defaults_are_read),
                                     cmocka_unit_test(configurations_that_are_not_understood),
                                     cmocka_unit_test(parameters_are_those_of_the_file),
                                     cmocka_unit_test(blocks_are_widened_as_defined),
                                     cmocka_unit_test(eight_bits_add_little),
                                     cmocka_unit_test(eight_bits_take_any_scale),
                                     cmocka_unit_test(logits_of_floats_are_equal),
                                     cmocka_unit_test(logits_of_blocks_are_near),
                                     cmocka_unit_test(floats_stay_in_the_file),
                                     cmocka_unit_test(blocks_stay_blocks),
                                     cmocka_unit_test(blocks_at_odd_addresses_stay_blocks),
                                     cmocka_unit_test(what_is_not_llama_is_refused),
                                     cmocka_unit_test(other_types_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
