/* A language model's run in miniature: sentences drawn from a small grammar as train.txt and valid.txt, the bundled vocabulary of 512
 * pieces, and untrained models of two blocks on windows of 24 tokens. */
#ifndef TESTS_TINY_TEXT_H
#define TESTS_TINY_TEXT_H
#include "unit/train/tiny_run.h"

/* Widths are multiples of 16: in tiny products of other widths OpenBLAS asks the system for memory, which test_step_allocation would count.
 */
enum { TEXT_CONTEXT = 24, TEXT_WIDTH = 32, TEXT_PIECES = 512 };

#define TEXT_TOKENIZER "tests/golden/stories260K"

static inline void tiny_text_write(const char *path, int sentences, uint64_t seed) {
  static const char *const who[] = {"Lily", "Tom", "The cat", "A bird"}, *const does[] = {"sees", "likes", "finds"};
  static const char *const what[] = {"a ball", "the big tree", "her mom", "some cake", "the sun"};
  Rng rng;
  rng_init(&rng, seed, 0);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  for (int i = 0; i < sentences; i++)
    fprintf(file, "%s %s %s.%s", who[rng_below(&rng, 4)], does[rng_below(&rng, 3)], what[rng_below(&rng, 5)], i % 4 == 3 ? "\n" : " ");
  assert_int_equal(fclose(file), 0);
}

static inline void tiny_text_model(const char *directory, ModelKind kind, int64_t classes) {
  ModelConfig config;
  Model *model;
  Rng rng;
  assert_int_equal(config_preset(&config, kind == MODEL_GPT2 ? "gpt2-mini" : "llama-mini", classes), STATUS_OK);
  config.width = TEXT_WIDTH;
  config.blocks = TINY_BLOCKS;
  config.heads = 4;
  config.kv_heads = kind == MODEL_GPT2 ? 4 : 2;
  config.mlp = 48;
  config.vocabulary = TEXT_PIECES;
  config.context = 2 * TEXT_CONTEXT;
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  assert_int_equal(param_allocate(model_params(model), false), STATUS_OK);
  rng_init(&rng, 12, 0);
  model_initialise(model, &rng);
  for (int64_t i = 0; i < model_params(model)->total; i++) model_params(model)->values[i] *= (real)1.5; /* livelier */
  assert_int_equal(checkpoint_save(model, directory, NULL, NULL, SAFE_F32), STATUS_OK);
  model_free(model);
  config_release(&config);
}

enum { TEXTS_TRAIN = 90, TEXTS_TEST = 30 };

/* Texts of any length; the class is whether the cat is there. */
static inline void tiny_table_write(const char *path, int rows, uint64_t seed) {
  static const char *const words[] = {"the sun", "a ball", "some cake", "her mom", "Lily"};
  Rng rng;
  rng_init(&rng, seed, 0);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  fprintf(file, "sentence\tlabel\n");
  for (int row = 0; row < rows; row++) {
    int cat = (int)rng_below(&rng, 2), length = 1 + (int)rng_below(&rng, 4), place = (int)rng_below(&rng, (uint64_t)length);
    for (int i = 0; i < length; i++) fprintf(file, "%s%s", i ? " and " : "", cat && i == place ? "the cat" : words[rng_below(&rng, 5)]);
    fprintf(file, "\t%d\n", cat);
  }
  assert_int_equal(fclose(file), 0);
}

/* Into the test's directory, which is there. */
static inline void tiny_text_files(void) {
  assert_int_equal(setenv("XDG_CACHE_HOME", tiny_path("cache"), 1), 0);
  tiny_check(files_make_dirs(tiny_path("text")));
  tiny_text_write(tiny_path("text/train.txt"), 120, 1);
  tiny_text_write(tiny_path("text/valid.txt"), 21, 2);
  tiny_table_write(tiny_path("train.tsv"), TEXTS_TRAIN, 1);
  tiny_table_write(tiny_path("test.tsv"), TEXTS_TEST, 2);
  tiny_text_model(tiny_path("gpt2"), MODEL_GPT2, 0);
  tiny_text_model(tiny_path("llama"), MODEL_LLAMA, 0);
}

static inline int tiny_text_make(void **state) {
  (void)state;
  log_quiet(true);
  if (make_temporary_folder(tiny_dir) != 0) return -1;
  tiny_text_files();
  return 0;
}

/* Everything on, as in tiny_options: groups, noise, spans of random lengths on 2 to 4 devices. */
static inline TrainOptions tiny_text_options(ModelKind kind) {
  static char model[2][256], dataset[256], out[256];
  TrainOptions options = tiny_shared_options();
  snprintf(model[kind == MODEL_LLAMA], sizeof model[0], "%s/%s", tiny_dir, kind == MODEL_GPT2 ? "gpt2" : "llama");
  snprintf(dataset, sizeof dataset, "text:%s/text", tiny_dir);
  snprintf(out, sizeof out, "%s/text-out", tiny_dir);
  options.model = model[kind == MODEL_LLAMA];
  options.dataset = dataset;
  options.tokenizer = TEXT_TOKENIZER;
  options.out = out;
  options.context = TEXT_CONTEXT;
  options.batch = 3;
  options.max_steps = 8;
  options.kmeans_samples = 128;
  return options;
}

/* Texts of two classes. */
static inline TrainOptions tiny_table_options(ModelKind kind) {
  static char dataset[700];
  TrainOptions options = tiny_text_options(kind);
  snprintf(dataset, sizeof dataset, "tsv:%s:text=sentence:label=label:test=%s", tiny_path("train.tsv"), tiny_path("test.tsv"));
  options.dataset = dataset;
  options.context = 2 * TEXT_CONTEXT;
  options.batch = 8;
  return options;
}

#endif
