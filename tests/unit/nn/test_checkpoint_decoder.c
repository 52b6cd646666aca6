/* Checkpoints of language models: there and back in every dtype, in shards, without a prefix, with and without a head of its own; what
 * other writers leave in them; numbers that stay 16-bit in the file against the same ones widened. */
#include "nn/checkpoint.h"
#include "nn/checkpoint_save.c" /* shards of a few bytes */
#include "unit/nn/bent_checkpoint.h"
#include "unit/nn/failing_json.h"
#include "unit/nn/scratch.h"
#include "unit/nn/small_decoder.h"
#include "unit/param_named.h"
#include "unit/unseal.h"
#include <math.h>

enum { TOKENS = 9 };
static const double CLOSE = REAL_IS_DOUBLE ? 1e-12 : 2e-5;

/* Values that all 16-bit types hold exactly. */
static Model *exact_model(const ModelConfig *config) {
  Model *model = small_model(config, false);
  for (int64_t i = 0; i < model_params(model)->total; i++) model_params(model)->values[i] = (real)((i * 37 % 255) - 127) / 128;
  return model;
}

static Model *empty_model(const ModelConfig *config) {
  Model *model = small_model(config, false);
  for (int64_t i = 0; i < model_params(model)->total; i++) model_params(model)->values[i] = -99;
  return model;
}

static void assert_same(Model *a, Model *b) {
  for (size_t i = 0; i < model_params(a)->count; i++) {
    const Tensor *x = &model_params(a)->list[i].tensor, *y = &model_params(b)->list[i].tensor;
    assert_memory_equal(x->value, y->value, (size_t)tensor_count(x) * sizeof(real));
  }
}

static void encode(Model *model, real *out) {
  SmallRun run;
  int32_t ids[TOKENS];
  small_ids(ids, TOKENS);
  small_open(&run);
  Tensor *x = model_logits(model, run.tape, small_encode(model, &run, ids, 1, TOKENS, MODEL_ROWS_ALL));
  assert_non_null(x);
  memcpy(out, x->value, TOKENS * SMALL_VOCABULARY * sizeof *out);
  small_close(&run);
}

/* ---- there and back */

static void every_dtype_and_shards(void **state) {
  (void)state;
  static const SafeDtype dtypes[] = {SAFE_F32, SAFE_F16, SAFE_BF16};
  static const int64_t max[] = {CHECKPOINT_SHARD, 4000};
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    ModelConfig config;
    small_config(&config, (ModelKind)kind, 0);
    for (size_t d = 0; d < 6; d++) {
      Model *model = exact_model(&config), *back = empty_model(&config);
      CheckpointReport report;
      assert_int_equal(save_sharded(model, scratch_path("trip"), NULL, NULL, dtypes[d / 2], max[d % 2]), STATUS_OK);
      assert_int_equal(files_exists(scratch_path("trip/model.safetensors")), d % 2 == 0);
      assert_int_equal(files_exists(scratch_path("trip/model.safetensors.index.json")), d % 2 == 1);
      assert_int_equal(checkpoint_load_params(back, scratch_path("trip"), NULL, &report), STATUS_OK);
      assert_true(!report.new_head && report.unused == 0);
      assert_same(model, back);
      model_free(model);
      model_free(back);
    }
    config_release(&config);
  }
}

static void shards_are_limited_and_complete(void **state) {
  (void)state;
  ModelConfig config;
  char **names, *text;
  size_t count, size, shards = 0;
  small_config(&config, MODEL_LLAMA, 0);
  Model *model = exact_model(&config);
  assert_int_equal(save_sharded(model, scratch_path("parts"), NULL, NULL, SAFE_F32, 6000), STATUS_OK);
  assert_int_equal(files_list(scratch_path("parts"), &names, &count), STATUS_OK);
  for (size_t i = 0; i < count; i++) {
    assert_null(strstr(names[i], ".part"));
    if (strncmp(names[i], "model-", 6) != 0) continue;
    SafeFile file;
    char path[64];
    snprintf(path, sizeof path, "parts/%s", names[i]);
    assert_int_equal(safetensors_open(&file, scratch_path(path)), STATUS_OK);
    size_t bytes = 0;
    for (size_t j = 0; j < file.count; j++) bytes += file.list[j].bytes;
    assert_true(file.count > 0 && (bytes <= 6000 || file.count == 1));
    safetensors_close(&file);
    shards++;
  }
  assert_true(shards > 3);
  assert_int_equal(files_read(scratch_path("parts/model.safetensors.index.json"), 1 << 20, &text, &size), STATUS_OK);
  char total[64];
  snprintf(total, sizeof total, "\"total_size\": %lld", (long long)(4 * param_count_numbers(model_params(model))));
  assert_non_null(strstr(text, total));
  char shard[64];
  snprintf(shard, sizeof shard, "\"model.embed_tokens.weight\": \"model-00001-of-%05zu.safetensors\"", shards);
  assert_non_null(strstr(text, shard));
  snprintf(shard, sizeof shard, "parts/model-00002-of-%05zu.safetensors", shards);
  assert_int_equal(remove(scratch_path(shard)), 0);
  assert_int_equal(checkpoint_load_params(model, scratch_path("parts"), NULL, NULL), STATUS_BAD_FILE);
  assert_message("model-00002-of-");
  assert_int_equal(save_sharded(model, scratch_path("parts"), NULL, NULL, SAFE_F32, 1), STATUS_OK); /* a tensor each */
  files_list_free(names, count);
  free(text);
  model_free(model);
  config_release(&config);
}

static size_t count_shard_files(const char *directory) {
  char **names;
  size_t count, shards = 0;
  assert_int_equal(files_list(scratch_path(directory), &names, &count), STATUS_OK);
  for (size_t i = 0; i < count; i++) shards += strncmp(names[i], "model-", 6) == 0;
  files_list_free(names, count);
  return shards;
}

/* Another count of shards, or none: the old ones go, under those who read them, too. */
static void old_shards_go(void **state) {
  (void)state;
  ModelConfig config;
  Model *mapped;
  CheckpointMapping *mapping;
  small_config(&config, MODEL_LLAMA, 0);
  Model *model = exact_model(&config), *other = small_model(&config, false);
  assert_int_equal(save_sharded(model, scratch_path("old"), NULL, NULL, SAFE_F32, 6000), STATUS_OK);
  size_t many = count_shard_files("old");
  assert_int_equal(files_write(scratch_path("old/model-1-of-2.safetensors"), "mine", 4), STATUS_OK); /* no shard's name */
  assert_int_equal(model_new(&mapped, &config), STATUS_OK);
  assert_int_equal(checkpoint_map_params(mapped, scratch_path("old"), &mapping), STATUS_OK);
  assert_int_equal(save_sharded(other, scratch_path("old"), NULL, NULL, SAFE_F32, 36000), STATUS_OK);
  assert_true(many > 2);
  assert_int_equal(count_shard_files("old"), 2 + 1);
  assert_int_equal(save_sharded(other, scratch_path("old"), NULL, NULL, SAFE_F32, 6000), STATUS_OK);
  assert_int_equal(count_shard_files("old"), many + 1);
  assert_int_equal(checkpoint_save(other, scratch_path("old"), NULL, NULL, SAFE_F32), STATUS_OK);
  assert_int_equal(count_shard_files("old"), 0 + 1);
  assert_same(model, mapped);
  checkpoint_unmap(mapping);
  model_free(mapped);
  model_free(other);
  model_free(model);
}

/* Stopped while shards get their names (one of them cannot): what is left must not be read as a checkpoint of either. */
static void no_mixture_of_two(void **state) {
  (void)state;
  ModelConfig config;
  small_config(&config, MODEL_LLAMA, 0);
  Model *model = exact_model(&config), *other = empty_model(&config);
  assert_int_equal(save_sharded(model, scratch_path("mixed"), NULL, NULL, SAFE_F32, 36000), STATUS_OK);
  const char *second = "mixed/model-00002-of-00002.safetensors";
  assert_int_equal(rename(scratch_path(second), scratch_path("mixed/kept")), 0);
  assert_int_equal(files_make_dirs(scratch_path(second)), STATUS_OK);
  assert_int_equal(save_sharded(other, scratch_path("mixed"), NULL, NULL, SAFE_F32, 36000), STATUS_IO);
  assert_int_equal(remove(scratch_path(second)), 0);
  assert_int_equal(rename(scratch_path("mixed/kept"), scratch_path(second)), 0);
  assert_int_equal(checkpoint_load_params(model, scratch_path("mixed"), NULL, NULL), STATUS_NOT_FOUND);
  assert_int_equal(save_sharded(other, scratch_path("mixed"), NULL, NULL, SAFE_F32, 36000), STATUS_OK);
  assert_int_equal(checkpoint_load_params(model, scratch_path("mixed"), NULL, NULL), STATUS_OK);
  assert_same(model, other);
  model_free(other);
  model_free(model);
}

static void assert_text(const char *path, const char *expected) {
  char *text;
  size_t size;
  assert_int_equal(files_read(path, 1 << 20, &text, &size), STATUS_OK);
  assert_string_equal(text, expected);
  free(text);
}

/* Whichever allocation fails: an index of all tensors over shards that can be read, or a failure and none. */
static void no_index_that_is_a_part(void **state) {
  (void)state;
  static const float numbers[2] = {1, 2};
  SafeItem first = {.name = "t0", .dtype = SAFE_F32, .source = SAFE_F32, .dims = 2, .shape = {1, 2}, .data = numbers}, second = first;
  second.name = "t1";
  const SafeItem items[2] = {first, second};
  char *whole;
  size_t size;
  const char *index = "few/model.safetensors.index.json";
  assert_int_equal(files_make_dirs(scratch_path("few")), STATUS_OK);
  assert_int_equal(save_tensors(scratch_path("few"), items, 2, 8), STATUS_OK);
  assert_int_equal(files_read(scratch_path(index), 1 << 20, &whole, &size), STATUS_OK);
  bool failed = true;
  for (long allocations = 0; failed; allocations++) {
    remove(scratch_path(index));
    failing_json_start(allocations);
    Status status = save_tensors(scratch_path("few"), items, 2, 8);
    failed = failing_json_stop();
    assert_int_equal(files_exists(scratch_path(index)), status == STATUS_OK);
    if (status == STATUS_OK) assert_text(scratch_path(index), whole);
    SafeFile file;
    assert_int_equal(safetensors_open(&file, scratch_path("few/model-00002-of-00002.safetensors")), STATUS_OK);
    assert_true(file.count == 1 && file.list[0].dims == 2);
    safetensors_close(&file);
  }
  free(whole);
}

/* A save in shards that was killed before it renamed them leaves parts, which the next one removes, whatever their number. */
static void parts_of_a_killed_save(void **state) {
  (void)state;
  static const char *const parts[] = {"killed/model-00001-of-00009.safetensors.part", "killed/model-00002-of-00002.safetensors.part"};
  static const char *const other = "killed/model-1-of-9.safetensors.part";
  ModelConfig config;
  small_config(&config, MODEL_LLAMA, 0);
  Model *model = exact_model(&config);
  assert_int_equal(files_make_dirs(scratch_path("killed")), STATUS_OK);
  assert_int_equal(files_write(scratch_path(other), "", 0), STATUS_OK);
  static const int64_t most[] = {36000, INT64_MAX}; /* bytes of a file: shards, and one */
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < 2; i++) assert_int_equal(files_write(scratch_path(parts[i]), "x", 1), STATUS_OK);
    assert_int_equal(save_sharded(model, scratch_path("killed"), NULL, NULL, SAFE_F32, most[k]), STATUS_OK);
    for (int i = 0; i < 2; i++) assert_false(files_exists(scratch_path(parts[i])));
    assert_true(files_exists(scratch_path(other)));
  }
  model_free(model);
}

/* An index that does not name a shard is at fault, not the kind or depth of the model. */
static void an_index_that_lacks_a_shard(void **state) {
  (void)state;
  static const char index[] = "{\"weight_map\": {\"model.norm.weight\": \"model-00001-of-00002.safetensors\"}}";
  ModelConfig config;
  Model *mapped;
  CheckpointMapping *mapping;
  small_config(&config, MODEL_LLAMA, 0);
  Model *model = exact_model(&config);
  assert_int_equal(save_sharded(model, scratch_path("lacks"), NULL, NULL, SAFE_F32, 36000), STATUS_OK);
  assert_true(files_exists(scratch_path("lacks/model-00002-of-00002.safetensors")));
  assert_int_equal(files_write(scratch_path("lacks/model.safetensors.index.json"), index, sizeof index - 1), STATUS_OK);
  assert_int_equal(checkpoint_load_params(model, scratch_path("lacks"), NULL, NULL), STATUS_BAD_FILE);
  assert_message("none of the shards that ");
  assert_message("lacks/model.safetensors.index.json names holds tensor model.");
  assert_message(" of shape [24");
  assert_message("]: is a shard missing from it?");
  assert_int_equal(model_new(&mapped, &config), STATUS_OK);
  assert_int_equal(checkpoint_map_params(mapped, scratch_path("lacks"), &mapping), STATUS_BAD_FILE);
  assert_message("lacks/model.safetensors.index.json names holds tensor model.");
  model_free(mapped);
  model_free(model);
}

/* Codebooks alone would hide what belongs to the shards. */
static void codebooks_stay_out_of_a_checkpoint(void **state) {
  (void)state;
  static const int64_t max[] = {CHECKPOINT_SHARD, 6000};
  static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
  static real books[5 * SMALL_WIDTH * SMALL_BLOCKS];
  ModelConfig config;
  const char *name = "";
  small_config(&config, MODEL_LLAMA, 0);
  config.astra.groups = 2;
  Model *model = exact_model(&config);
  assert_int_equal(checkpoint_find_weights(scratch_path("nowhere"), &name), STATUS_OK);
  assert_null(name);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(save_sharded(model, scratch_path("taken"), NULL, NULL, SAFE_F32, max[i]), STATUS_OK);
    assert_int_equal(checkpoint_find_weights(scratch_path("taken"), &name), STATUS_OK);
    assert_string_equal(name, names[i]);
    assert_int_equal(checkpoint_save_codebooks(&config, scratch_path("taken"), books, SAFE_F32), STATUS_BAD_VALUE);
    assert_message(names[i]);
    assert_false(files_exists(scratch_path("taken/codebooks.safetensors")));
  }
  model_free(model);
}

/* Another number, shape or member of config.json is another model; the same numbers are the same one, with digests in their file or not. */
static void models_are_told_apart(void **state) {
  (void)state;
  char first[SAFE_DIGEST_TEXT], other[SAFE_DIGEST_TEXT];
  ModelConfig config;
  SafeFile file;
  small_config(&config, MODEL_LLAMA, 0);
  Model *model = exact_model(&config);
  assert_int_equal(checkpoint_digest(scratch_path("nowhere"), first), STATUS_OK);
  assert_string_equal(first, "");
  const char *path = strdup(scratch_path("told"));
  char *weights = files_join(path, "model.safetensors"), *settings = files_join(path, "config.json"), *text;
  size_t size;
  assert_int_equal(checkpoint_save(model, path, NULL, NULL, SAFE_F32), STATUS_OK);
  assert_int_equal(checkpoint_digest(path, first), STATUS_OK);
  assert_int_equal(strlen(first), SAFE_DIGEST_TEXT - 1);

  assert_int_equal(files_read(weights, (size_t)1 << 24, &text, &size), STATUS_OK);
  unseal(text, size);
  assert_int_equal(files_write(weights, text, size), STATUS_OK);
  free(text);
  assert_int_equal(checkpoint_digest(path, other), STATUS_OK);
  assert_string_equal(other, first);
  assert_int_equal(safetensors_open(&file, weights), STATUS_OK);
  assert_int_equal(safetensors_seal(&file), STATUS_OK);
  safetensors_close(&file);
  assert_int_equal(checkpoint_digest(path, other), STATUS_OK);
  assert_string_equal(other, first);

  param_named(model_params(model), "model.layers.1.mlp.up_proj.weight")->tensor.value[3] += (real)0.5;
  assert_int_equal(checkpoint_save(model, path, NULL, NULL, SAFE_F32), STATUS_OK);
  assert_int_equal(checkpoint_digest(path, other), STATUS_OK);
  assert_string_not_equal(other, first);

  assert_int_equal(checkpoint_digest(path, first), STATUS_OK);
  assert_int_equal(files_read(settings, (size_t)1 << 20, &text, &size), STATUS_OK);
  memcpy(memmem(text, size, "rms_norm_eps", 12), "rms_norm_EPS", 12);
  assert_int_equal(files_write(settings, text, size), STATUS_OK);
  free(text);
  assert_int_equal(checkpoint_digest(path, other), STATUS_OK);
  assert_string_not_equal(other, first);
  assert_int_equal(files_write(weights, "{", 1), STATUS_OK); /* what cannot be read is for those to tell who open it */
  assert_int_equal(checkpoint_digest(path, other), STATUS_OK);
  assert_string_equal(other, "");
  model_free(model);
  free(weights), free(settings), free((char *)(uintptr_t)path);
}

/* ---- what other writers leave */

static void add_item(Bent *bent, const char *name, int64_t rows, int64_t columns, const real *data) {
  bent->items[bent->count++] =
      (SafeItem){.name = name, .dtype = SAFE_REAL, .source = SAFE_REAL, .dims = 2, .shape = {rows, columns}, .data = data};
}

/* Without a prefix, with masks and frequencies, and with a second copy of the tied head that is ignored. */
static void bare_models_and_buffers(void **state) {
  (void)state;
  static const real buffer[SMALL_VOCABULARY * SMALL_WIDTH] = {1, 2, 3};
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    ModelConfig config;
    Bent bent;
    CheckpointReport report;
    small_config(&config, (ModelKind)kind, 0);
    Model *model = exact_model(&config), *back = empty_model(&config);
    items_of(&bent, model, kind == MODEL_GPT2 ? "transformer." : "model.");
    if (kind == MODEL_GPT2) add_item(&bent, "h.0.attn.bias", 3, 1, buffer);
    if (kind == MODEL_GPT2) add_item(&bent, "transformer.h.1.attn.masked_bias", 1, 1, buffer);
    if (kind == MODEL_LLAMA) add_item(&bent, "layers.0.self_attn.rotary_emb.inv_freq", 2, 1, buffer);
    add_item(&bent, "lm_head.weight", SMALL_VOCABULARY, SMALL_WIDTH, buffer);
    assert_int_equal(checkpoint_load_params(back, save_bent(&bent, "bare.safetensors"), NULL, &report), STATUS_OK);
    assert_int_equal(report.unused, 0);
    assert_same(model, back);
    add_item(&bent, "attn.biases", 1, 1, buffer);
    assert_int_equal(checkpoint_load_params(back, save_bent(&bent, "bare.safetensors"), NULL, &report), STATUS_OK);
    assert_int_equal(report.unused, 1);
    model_free(model);
    model_free(back);
    config_release(&config);
  }
}

/* The dtype of the file's only tensor of bytes becomes another one of a byte. */
static void make_signed(const char *path) {
  char *image;
  size_t size;
  assert_int_equal(files_read(path, 1 << 24, &image, &size), STATUS_OK);
  char *dtype = memmem(image, size, "\"U8\"", 4);
  assert_non_null(dtype);
  dtype[1] = 'I';
  unseal(image, size);
  assert_int_equal(files_write(path, image, size), STATUS_OK);
  free(image);
}

/* A mask may have a dtype that is never converted; a parameter may not, and is named. */
static void dtypes_that_are_not_converted(void **state) {
  (void)state;
  static const uint8_t mask[SMALL_WIDTH] = {1};
  ModelConfig config;
  CheckpointReport report;
  Bent bent;
  small_config(&config, MODEL_GPT2, 0);
  Model *model = exact_model(&config), *back = empty_model(&config);
  items_of(&bent, model, "");
  bent.items[bent.count++] =
      (SafeItem){.name = "transformer.h.0.attn.bias", .dtype = SAFE_U8, .source = SAFE_U8, .dims = 2, .shape = {4, 4}, .data = mask};
  save_bent(&bent, "mask.safetensors");
  make_signed(scratch_path("mask.safetensors"));
  assert_int_equal(checkpoint_load_params(back, scratch_path("mask.safetensors"), NULL, &report), STATUS_OK);
  assert_int_equal(report.unused, 0);
  assert_same(model, back);
  bent.count--;
  for (size_t i = 0; i < bent.count; i++)
    if (strcmp(bent.items[i].name, "transformer.ln_f.weight") == 0)
      bent.items[i].dtype = bent.items[i].source = SAFE_U8, bent.items[i].data = mask;
  save_bent(&bent, "signed.safetensors");
  make_signed(scratch_path("signed.safetensors"));
  assert_int_equal(checkpoint_load_params(back, scratch_path("signed.safetensors"), NULL, NULL), STATUS_BAD_FILE);
  assert_message("signed.safetensors: tensor transformer.ln_f.weight is I8");
  model_free(model);
  model_free(back);
}

static void heads_tied_and_not(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    ModelConfig config, untied;
    small_config(&config, (ModelKind)kind, 0);
    small_config(&untied, (ModelKind)kind, 0);
    untied.tied = false;
    Model *model = exact_model(&config), *own = exact_model(&untied), *back = empty_model(&untied);
    assert_null(param_named(model_params(model), "lm_head.weight"));
    assert_int_equal(model_params(own)->count, model_params(model)->count + 1);
    assert_int_equal(checkpoint_save(own, scratch_path("untied"), NULL, NULL, SAFE_F32), STATUS_OK);
    assert_int_equal(checkpoint_load_params(back, scratch_path("untied"), NULL, NULL), STATUS_OK);
    assert_same(own, back);
    assert_int_equal(checkpoint_save(model, scratch_path("tied"), NULL, NULL, SAFE_F32), STATUS_OK);
    assert_int_equal(checkpoint_load_params(back, scratch_path("tied"), NULL, NULL), STATUS_BAD_FILE);
    assert_message("lm_head.weight");
    assert_message("tie_word_embeddings");
    Model *mapped;
    CheckpointMapping *mapping;
    assert_int_equal(model_new(&mapped, &untied), STATUS_OK);
    assert_int_equal(checkpoint_map_params(mapped, scratch_path("tied"), &mapping), STATUS_BAD_FILE);
    assert_message("model.safetensors: there is no tensor lm_head.weight");
    assert_message("tie_word_embeddings");
    model_free(mapped);
    ModelConfig read;
    assert_int_equal(config_load(&read, scratch_path("untied")), STATUS_OK);
    assert_false(read.tied);
    model_free(model);
    model_free(own);
    model_free(back);
  }
}

static void misfits(void **state) {
  (void)state;
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++) {
    ModelConfig config;
    CheckpointMapping *mapping;
    small_config(&config, (ModelKind)kind, 0);
    Model *model = exact_model(&config);
    assert_int_equal(checkpoint_save(model, scratch_path("base"), NULL, NULL, SAFE_F32), STATUS_OK);
    config.vocabulary++;
    Model *other = empty_model(&config);
    assert_int_equal(checkpoint_load_params(other, scratch_path("base"), NULL, NULL), STATUS_BAD_FILE);
    assert_message("vocabulary");
    model_free(other);
    config.vocabulary--;
    config.blocks--;
    other = empty_model(&config);
    assert_int_equal(checkpoint_load_params(other, scratch_path("base"), NULL, NULL), STATUS_BAD_FILE);
    assert_message("more than the model's 1 block (");
    model_free(other);
    assert_int_equal(model_new(&other, &config), STATUS_OK);
    assert_int_equal(checkpoint_map_params(other, scratch_path("base"), &mapping), STATUS_BAD_FILE);
    model_free(other);
    model_params(model)->values[7] = (real)INFINITY;
    assert_int_equal(checkpoint_save(model, scratch_path("base"), NULL, NULL, SAFE_F32), STATUS_NUMERIC);
    model_free(model);
  }
}

/* A language model begins as a classifier of texts: its own head is left over and a new one put in. */
static void a_classifier_from_a_language_model(void **state) {
  (void)state;
  ModelConfig config, labelled;
  CheckpointReport report;
  Rng rng;
  rng_init(&rng, 1, 0);
  small_config(&config, MODEL_LLAMA, 0);
  small_config(&labelled, MODEL_LLAMA, 3);
  config.tied = labelled.tied = false;
  Model *model = exact_model(&config), *classifier = empty_model(&labelled), *back = empty_model(&labelled);
  assert_int_equal(checkpoint_save(model, scratch_path("lm"), NULL, NULL, SAFE_F32), STATUS_OK);
  assert_int_equal(checkpoint_load_params(classifier, scratch_path("lm"), &rng, &report), STATUS_OK);
  assert_true(report.new_head && report.unused == 0);
  const Tensor *score = &param_named(model_params(classifier), "score.weight")->tensor;
  assert_true(score->shape[0] == 3 && score->value[0] != -99);
  assert_int_equal(checkpoint_save(classifier, scratch_path("classes"), NULL, NULL, SAFE_REAL), STATUS_OK);
  assert_int_equal(checkpoint_load_params(back, scratch_path("classes"), NULL, &report), STATUS_OK);
  assert_false(report.new_head);
  assert_same(classifier, back);
  ModelConfig read;
  assert_int_equal(config_load(&read, scratch_path("classes")), STATUS_OK);
  assert_true(read.classes == 3 && strcmp(read.labels[2], "LABEL_2") == 0);
  config_release(&read);
  config_release(&labelled);
  model_free(model);
  model_free(classifier);
  model_free(back);
}

/* ---- 16-bit numbers in place */

static void narrow_equals_widened(void **state) {
  (void)state;
  static const SafeDtype dtypes[] = {SAFE_F16, SAFE_BF16};
  for (int kind = MODEL_GPT2; kind <= MODEL_LLAMA; kind++)
    for (int d = 0; d < 2; d++) {
      real wide[TOKENS * SMALL_VOCABULARY], narrow[TOKENS * SMALL_VOCABULARY];
      ModelConfig config;
      Model *mapped, *again;
      CheckpointMapping *mapping;
      small_config(&config, (ModelKind)kind, 0);
      config.tied = d == 0;
      Model *model = small_model(&config, false), *loaded = empty_model(&config);
      assert_int_equal(checkpoint_save(model, scratch_path("narrow"), NULL, NULL, dtypes[d]), STATUS_OK);
      assert_int_equal(checkpoint_load_params(loaded, scratch_path("narrow"), NULL, NULL), STATUS_OK);
      assert_int_equal(model_new(&mapped, &config), STATUS_OK);
      assert_int_equal(checkpoint_map_params(mapped, scratch_path("narrow"), &mapping), STATUS_OK);
      size_t kept = 0;
      for (size_t i = 0; i < model_params(mapped)->count; i++) kept += model_params(mapped)->list[i].tensor.narrow != NULL;
      assert_int_equal(kept, SMALL_BLOCKS * (kind == MODEL_GPT2 ? 4 : 7) + (config.tied ? 1 : 2)); /* all but norms, biases, positions */
      encode(loaded, wide);
      encode(mapped, narrow);
      small_assert_close(wide, narrow, TOKENS * SMALL_VOCABULARY, CLOSE);
      assert_int_equal(checkpoint_save(mapped, scratch_path("again"), NULL, NULL, dtypes[d]), STATUS_OK); /* straight from the mapping */
      again = empty_model(&config);
      assert_int_equal(checkpoint_load_params(again, scratch_path("again"), NULL, NULL), STATUS_OK);
      assert_same(loaded, again);
      model_free(again);
      model_free(mapped);
      model_free(loaded);
      model_free(model);
      checkpoint_unmap(mapping);
    }
}

/* An exponent of all ones in a matrix that nobody widens at load. */
static void narrow_numbers_that_are_none(void **state) {
  (void)state;
  static const SafeDtype dtypes[] = {SAFE_F16, SAFE_BF16};
  for (int d = 0; d < 2; d++) {
    ModelConfig config;
    Bent bent;
    Model *mapped;
    CheckpointMapping *mapping;
    small_config(&config, MODEL_LLAMA, 0);
    Model *model = exact_model(&config);
    param_named(model_params(model), "model.layers.1.mlp.up_proj.weight")->tensor.value[77] = (real)(d ? NAN : INFINITY);
    items_of(&bent, model, "");
    for (size_t i = 0; i < bent.count; i++) bent.items[i].dtype = dtypes[d];
    assert_int_equal(model_new(&mapped, &config), STATUS_OK);
    assert_int_equal(checkpoint_map_params(mapped, save_bent(&bent, "none.safetensors"), &mapping), STATUS_BAD_FILE);
    assert_message("model.layers.1.mlp.up_proj.weight");
    assert_null(mapping);
    for (size_t i = 0; i < model_params(mapped)->count; i++) assert_null(model_params(mapped)->list[i].tensor.narrow);
    model_free(mapped);
    model_free(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_dtype_and_shards),
      cmocka_unit_test(shards_are_limited_and_complete),
      cmocka_unit_test(old_shards_go),
      cmocka_unit_test(no_mixture_of_two),
      cmocka_unit_test(no_index_that_is_a_part),
      cmocka_unit_test(parts_of_a_killed_save),
      cmocka_unit_test(an_index_that_lacks_a_shard),
      cmocka_unit_test(codebooks_stay_out_of_a_checkpoint),
      cmocka_unit_test(models_are_told_apart),
      cmocka_unit_test(bare_models_and_buffers),
      cmocka_unit_test(dtypes_that_are_not_converted),
      cmocka_unit_test(heads_tied_and_not),
      cmocka_unit_test(misfits),
      cmocka_unit_test(a_classifier_from_a_language_model),
      cmocka_unit_test(narrow_equals_widened),
      cmocka_unit_test(narrow_numbers_that_are_none),
  };
  return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
