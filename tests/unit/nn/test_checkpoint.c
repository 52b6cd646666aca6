/* Checkpoints: there and back in every dtype, names with and without "vit.", new heads, other image sizes, shards, mapping, codebooks,
 * and directories that do not fit their configuration. */
#include "nn/checkpoint.h"
#include "unit/nn/bent_checkpoint.h"
#include "unit/nn/scratch.h"
#include "unit/param_named.h"
#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>

enum { CLASSES = 5, GROUPS = 4, K = 6 };

/* A ViT of two blocks and four patches with values that all 16-bit types hold exactly. */
static Model *tiny_model(int64_t image, int64_t patch, int64_t classes) {
  ModelConfig config;
  assert_int_equal(config_preset(&config, "vit-cifar", classes), STATUS_OK);
  config.width = 16;
  config.heads = config.kv_heads = 2;
  config.blocks = 2;
  config.mlp = 24;
  config.image = image;
  config.patch = patch;
  config.astra.groups = GROUPS;
  config.astra.codebook_size = K;
  config.astra.devices = config.astra.devices_min = 2;
  Model *model;
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  config_release(&config);
  assert_int_equal(param_allocate(model_params(model), false), STATUS_OK);
  ParamSet *set = model_params(model);
  for (int64_t i = 0; i < set->total; i++) set->values[i] = (real)((i * 37 % 255) - 127) / 128;
  return model;
}

static Model *default_model(void) { return tiny_model(8, 4, CLASSES); }

static void blank(Model *model) {
  ParamSet *set = model_params(model);
  for (int64_t i = 0; i < set->total; i++) set->values[i] = -99;
}

static Rng fixed_rng(void) {
  Rng rng;
  rng_init(&rng, 7, 0);
  return rng;
}

static Status load(Model *model, const char *path, CheckpointReport *report) {
  Rng rng = fixed_rng();
  return checkpoint_load_params(model, path, &rng, report);
}

/* b's numbers may be 16-bit ones of the file. */
static void assert_same_param(Model *a, Model *b, size_t i) {
  const Tensor *x = &model_params(a)->list[i].tensor, *y = &model_params(b)->list[i].tensor;
  if (y->narrow == NULL) assert_memory_equal(x->value, y->value, (size_t)tensor_count(x) * sizeof(real));
  for (int64_t j = 0; y->narrow != NULL && j < tensor_count(x); j++)
    assert_true(x->value[j] == (real)narrow_to_float(y->narrow_kind, y->narrow[j]));
}

static void assert_same(Model *a, Model *b) {
  for (size_t i = 0; i < model_params(a)->count; i++) assert_same_param(a, b, i);
}

/* ---- files of one's own making: the model's parameters as items that a test may bend */

static SafeItem *item_named(Bent *bent, const char *name) {
  for (size_t i = 0; i < bent->count; i++)
    if (strcmp(bent->items[i].name, name) == 0) return &bent->items[i];
  fail_msg("no item %s", name);
  return NULL;
}

static void drop_item(Bent *bent, const char *name) {
  SafeItem *dropped = item_named(bent, name);
  *dropped = bent->items[--bent->count];
}

/* ---- there and back */

static void test_round_trip(void **state) {
  (void)state;
  static const SafeDtype dtypes[] = {SAFE_F32, SAFE_F16, SAFE_BF16};
  enum { NUMBERS = 2 * K * 16 };
  real books[NUMBERS], books_back[NUMBERS];
  for (int i = 0; i < NUMBERS; i++) books[i] = (real)(i - 90) / 64;
  for (size_t d = 0; d < 3; d++) {
    Model *model = default_model(), *back = default_model();
    CheckpointReport report;
    blank(back);
    assert_int_equal(checkpoint_save(model, scratch_path("trip"), books, NULL, dtypes[d]), STATUS_OK);
    assert_int_equal(load(back, scratch_path("trip"), &report), STATUS_OK);
    assert_true(!report.new_head && !report.resized_positions && report.unused == 0);
    assert_same(model, back);
    blank(back);
    assert_int_equal(load(back, scratch_path("trip/model.safetensors"), NULL), STATUS_OK);
    assert_same(model, back);
    ModelConfig config;
    assert_int_equal(config_load(&config, scratch_path("trip")), STATUS_OK);
    assert_true(config.width == 16 && config.astra.groups == GROUPS && config.classes == CLASSES);
    assert_int_equal(checkpoint_load_codebooks(&config, scratch_path("trip"), books_back), STATUS_OK);
    assert_memory_equal(books, books_back, sizeof books);
    config_release(&config);
    model_free(model);
    model_free(back);
  }
}

static void test_values_of_another_block(void **state) {
  (void)state;
  Model *model = default_model(), *back = default_model();
  ParamSet *set = model_params(model);
  real *ema = malloc((size_t)set->total * sizeof *ema);
  assert_non_null(ema);
  for (int64_t i = 0; i < set->total; i++) ema[i] = (real)(i % 100) / 4;
  assert_int_equal(checkpoint_save(model, scratch_path("ema"), NULL, ema, SAFE_F32), STATUS_OK);
  assert_int_equal(load(back, scratch_path("ema"), NULL), STATUS_OK);
  memcpy(set->values, ema, (size_t)set->total * sizeof *ema);
  assert_same(model, back);
  real none[1];
  assert_int_equal(checkpoint_load_codebooks(model_config(model), scratch_path("ema"), none), STATUS_NOT_FOUND);
  assert_message("astra-kmeans");
  free(ema);
  model_free(model);
  model_free(back);
}

/* ViTModel saves neither the prefix nor a head, but a pooler. */
static void test_bare_model(void **state) {
  (void)state;
  static const float pooler[16];
  Model *model = default_model(), *back = default_model();
  Bent bent;
  CheckpointReport report;
  items_of(&bent, model, "vit.");
  assert_int_equal(load(back, save_bent(&bent, "prefix.safetensors"), &report), STATUS_OK);
  assert_true(!report.new_head && report.unused == 0);
  assert_same(model, back);
  drop_item(&bent, "classifier.weight");
  drop_item(&bent, "classifier.bias");
  bent.items[bent.count++] = (SafeItem){.name = "pooler.dense.bias", .source = SAFE_F32, .dims = 1, .shape = {16}, .data = pooler};
  blank(back);
  assert_int_equal(load(back, save_bent(&bent, "bare.safetensors"), &report), STATUS_OK);
  assert_true(report.new_head && !report.resized_positions && report.unused == 0);
  for (size_t i = 0; i < model_params(model)->count; i++)
    if (!model_params(model)->list[i].optional) assert_same_param(model, back, i);
  model_free(model);
  model_free(back);
}

/* Adapters that nobody has merged, whose model would answer as the one below them; and what published files hold beside a model. */
static void test_tensors_of_no_parameter(void **state) {
  (void)state;
  static const float numbers[16];
  static const struct {
    const char *name;
    bool known;
  } beside[] = {{"vit.encoder.layer.0.attention.attention.query.lora_A.weight", false},
                {"encoder.layer.0.layernorm_after.bias", false}, /* a second one, without "vit." */
                {"distillation_classifier.weight", false},
                {"pooler.dense.weight", true},
                {"vit.pooler.dense.bias", true},
                {"vit.embeddings.position_ids", true},
                {"vit.embeddings.mask_token", true},
                {"astra.layers.0.k.groups2.codebook", true}};
  Model *model = default_model(), *back = default_model();
  for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
    Bent bent;
    CheckpointReport report;
    items_of(&bent, model, "");
    bent.items[bent.count++] = (SafeItem){.name = beside[i].name, .source = SAFE_F32, .dims = 1, .shape = {16}, .data = numbers};
    assert_int_equal(load(back, save_bent(&bent, "beside.safetensors"), &report), STATUS_OK);
    assert_int_equal(report.unused, beside[i].known ? 0 : 1);
    assert_same(model, back);
  }
  model_free(model);
  model_free(back);
}

/* The rest of a deeper model is no model. */
static void test_deeper(void **state) {
  (void)state;
  static const float ones[16];
  Model *model = default_model(), *back = default_model();
  const char *const prefix[] = {"", "vit."}; /* cut off the names, so: with it and without */
  for (int i = 0; i < 2; i++) {
    Bent bent;
    CheckpointReport report;
    items_of(&bent, model, prefix[i]);
    bent.items[bent.count++] =
        (SafeItem){.name = i ? "encoder.layer.2.layernorm_before.weight" : "vit.encoder.layer.2.layernorm_before.weight",
                   .source = SAFE_F32,
                   .dims = 1,
                   .shape = {16},
                   .data = ones};
    assert_int_equal(load(back, save_bent(&bent, "deeper.safetensors"), &report), STATUS_BAD_FILE);
    assert_message("more than the model's 2 blocks");
  }
  model_free(model);
  model_free(back);
}

static void test_new_head(void **state) {
  (void)state;
  Model *model = default_model(), *other = tiny_model(8, 4, 9);
  CheckpointReport report;
  blank(other);
  assert_int_equal(checkpoint_save(model, scratch_path("head"), NULL, NULL, SAFE_F32), STATUS_OK);
  assert_int_equal(load(other, scratch_path("head"), &report), STATUS_OK);
  assert_true(report.new_head && report.unused == 0);
  const Tensor *weight = &param_named(model_params(other), "classifier.weight")->tensor;
  const Tensor *bias = &param_named(model_params(other), "classifier.bias")->tensor;
  double squares = 0;
  for (int i = 0; i < 9 * 16; i++) {
    assert_true(fabs((double)weight->value[i]) <= 0.0400001);
    squares += (double)weight->value[i] * (double)weight->value[i];
  }
  assert_true(squares / (9 * 16) > 0.012 * 0.012);
  for (int i = 0; i < 9; i++) assert_true(bias->value[i] == 0);
  assert_same_param(model, other, 0);
  model_free(model);
  model_free(other);
}

static void test_half_a_head(void **state) {
  (void)state;
  Model *model = default_model();
  Bent bent;
  CheckpointReport report;
  items_of(&bent, model, "");
  drop_item(&bent, "classifier.bias");
  Model *back = default_model();
  assert_int_equal(load(back, save_bent(&bent, "half.safetensors"), &report), STATUS_OK);
  assert_true(report.new_head && report.unused == 0);
  items_of(&bent, model, "");
  item_named(&bent, "classifier.weight")->shape[0] = 10;
  item_named(&bent, "classifier.weight")->shape[1] = 8;
  assert_int_equal(load(back, save_bent(&bent, "thin.safetensors"), &report), STATUS_BAD_FILE);
  assert_message("classifier.weight has shape [10, 8] where the model has [5, 16]");
  model_free(model);
  model_free(back);
}

/* ---- position embeddings */

static void test_other_image_size(void **state) {
  (void)state;
  Model *model = default_model(), *large = tiny_model(16, 4, CLASSES);
  CheckpointReport report;
  real *position = param_named(model_params(model), "vit.embeddings.position_embeddings")->tensor.value;
  static const real corners[4] = {1, 2, 3, 5};
  for (int i = 0; i < 4; i++) position[(1 + i) * 16] = corners[i];
  assert_int_equal(checkpoint_save(model, scratch_path("grid"), NULL, NULL, SAFE_F32), STATUS_OK);
  assert_int_equal(load(large, scratch_path("grid"), &report), STATUS_OK);
  assert_true(report.resized_positions && !report.new_head && report.unused == 0);
  const real *resized = param_named(model_params(large), "vit.embeddings.position_embeddings")->tensor.value;
  assert_memory_equal(resized, position, 16 * sizeof(real));
  assert_true(fabs((double)resized[16] - 0.694717407) < 1e-6); /* as in test_checkpoint_positions.c */
  assert_true(fabs((double)resized[16 * 16] - 5.538467407) < 1e-5);
  model_free(model);
  model_free(large);
}

static void test_shapes_that_do_not_fit(void **state) {
  (void)state;
  Model *model = default_model(), *patches = tiny_model(4, 2, CLASSES);
  Bent bent;
  items_of(&bent, model, "");
  assert_int_equal(load(patches, save_bent(&bent, "patch.safetensors"), NULL), STATUS_BAD_FILE);
  assert_message("vit.embeddings.patch_embeddings.projection.weight has shape [16, 3, 4, 4] where the model has [16, 3, 2, 2]");
  assert_message("patch size");
  assert_message("patch.safetensors");
  item_named(&bent, "vit.embeddings.position_embeddings")->shape[1] = 4;
  assert_int_equal(load(model, save_bent(&bent, "square.safetensors"), NULL), STATUS_BAD_FILE);
  assert_message("position_embeddings has shape [1, 4, 16] where the model has [1, 5, 16]");
  items_of(&bent, model, "");
  drop_item(&bent, "vit.encoder.layer.1.output.dense.bias");
  assert_int_equal(load(model, save_bent(&bent, "short.safetensors"), NULL), STATUS_BAD_FILE);
  assert_message("vit.encoder.layer.1.output.dense.bias");
  items_of(&bent, model, "");
  item_named(&bent, "vit.layernorm.bias")->dims = 2;
  item_named(&bent, "vit.layernorm.bias")->shape[1] = 1;
  assert_int_equal(load(model, save_bent(&bent, "dims.safetensors"), NULL), STATUS_BAD_FILE);
  assert_message("[16, 1]");
  model_free(model);
  model_free(patches);
}

static void test_numbers_that_are_none(void **state) {
  (void)state;
  Model *model = default_model(), *back = default_model();
  real bad[16] = {0}, *value = param_named(model_params(model), "vit.layernorm.bias")->tensor.value;
  static const int32_t whole_numbers[16];
  Bent bent;
  for (int i = 0; i < 2; i++) {
    items_of(&bent, model, "");
    bad[15] = i ? (real)NAN : (real)-INFINITY;
    item_named(&bent, "vit.layernorm.bias")->data = bad;
    assert_int_equal(load(back, save_bent(&bent, "nan.safetensors"), NULL), STATUS_BAD_FILE);
    assert_message("vit.layernorm.bias holds a NaN");
  }
  items_of(&bent, model, "");
  SafeItem *item = item_named(&bent, "vit.layernorm.bias");
  item->dtype = item->source = SAFE_I32;
  item->data = whole_numbers;
  assert_int_equal(load(back, save_bent(&bent, "kind.safetensors"), NULL), STATUS_BAD_FILE);
  assert_message("vit.layernorm.bias is I32");
  value[3] = (real)NAN;
  assert_int_equal(checkpoint_save(model, scratch_path("refused"), NULL, NULL, SAFE_F32), STATUS_NUMERIC);
  assert_message("vit.layernorm.bias");
  assert_false(files_exists(scratch_path("refused")));
  value[3] = 70000;
  assert_int_equal(checkpoint_save(model, scratch_path("refused"), NULL, NULL, SAFE_F16), STATUS_BAD_VALUE);
  assert_false(files_exists(scratch_path("refused/model.safetensors")));
  assert_int_equal(checkpoint_save(model, scratch_path("refused"), NULL, NULL, SAFE_U8), STATUS_BAD_VALUE);
  model_free(model);
  model_free(back);
}

/* ---- directories */

static void write_text(const char *name, const char *text) {
  assert_int_equal(files_write(scratch_path(name), text, strlen(text)), STATUS_OK);
}

static void test_shards(void **state) {
  (void)state;
  Model *model = default_model(), *back = default_model();
  Bent bent;
  items_of(&bent, model, "");
  assert_int_equal(files_make_dirs(scratch_path("shards")), STATUS_OK);
  size_t half = bent.count / 2;
  assert_int_equal(safetensors_save(scratch_path("shards/a.safetensors"), bent.items, half, NULL), STATUS_OK);
  assert_int_equal(safetensors_save(scratch_path("shards/b.safetensors"), bent.items + half, bent.count - half, NULL), STATUS_OK);
  const char *index = "shards/model.safetensors.index.json";
  write_text(index, "{\"metadata\":{},\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\",\"z\":\"a.safetensors\"}}");
  blank(back);
  CheckpointReport report;
  assert_int_equal(load(back, scratch_path("shards"), &report), STATUS_OK);
  assert_same(model, back);
  assert_int_equal(report.unused, 0);
  for (int known = 0; known < 2; known++) { /* the first of b is also in a, as of an older checkpoint */
    char text[512], says[512];
    const char *twice = bent.items[half].name;
    assert_int_equal(safetensors_save(scratch_path("shards/a.safetensors"), bent.items, half + 1, NULL), STATUS_OK);
    snprintf(text, sizeof text, "{\"weight_map\":{\"%s\":\"b.safetensors\",\"z\":\"a.safetensors\"}}", known ? twice : "y");
    write_text(index, text);
    assert_int_equal(load(back, scratch_path("shards"), NULL), STATUS_BAD_FILE);
    snprintf(says, sizeof says,
             known ? "tensor %s lies in the shard a.safetensors, where the index has it in b.safetensors"
                   : "tensor %s lies in two shards, b.safetensors and a.safetensors",
             twice);
    assert_message(says);
  }
  assert_int_equal(safetensors_save(scratch_path("shards/a.safetensors"), bent.items, half, NULL), STATUS_OK);
  write_text(index, "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"c.safetensors\"}}");
  assert_int_equal(load(back, scratch_path("shards"), NULL), STATUS_BAD_FILE);
  assert_message("the shard c.safetensors is missing");
  static const char *const bad[] = {"{\"weight_map\":{\"x\":\"../head/model.safetensors\"}}",
                                    "{\"weight_map\":{\"x\":\"..\"}}",
                                    "{\"weight_map\":{\"x\":3}}",
                                    "{\"weight_map\":{}}",
                                    "{}",
                                    "[",
                                    "{\"weight_map\":[\"a.safetensors\"]}"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    write_text(index, bad[i]);
    assert_int_equal(load(back, scratch_path("shards"), NULL), STATUS_BAD_FILE);
    assert_message("index.json");
  }
  model_free(model);
  model_free(back);
}

static void test_absent_and_unwritable(void **state) {
  (void)state;
  Model *model = default_model();
  assert_int_equal(load(model, scratch_path("absent"), NULL), STATUS_NOT_FOUND);
  assert_message("absent");
  assert_int_equal(files_make_dirs(scratch_path("void")), STATUS_OK);
  assert_int_equal(load(model, scratch_path("void"), NULL), STATUS_NOT_FOUND);
  assert_message("model.safetensors");
  write_text("in-the-way", "x");
  assert_int_not_equal(checkpoint_save(model, scratch_path("in-the-way"), NULL, NULL, SAFE_F32), STATUS_OK);
  assert_message("in-the-way");
  assert_int_not_equal(checkpoint_save(model, "/proc/nowhere", NULL, NULL, SAFE_F32), STATUS_OK);
  assert_int_equal(load(model, scratch_path("in-the-way"), NULL), STATUS_BAD_FILE);
  model_free(model);
}

/* ---- mapping */

static Model *unallocated_model(Model *like) {
  Model *model;
  assert_int_equal(model_new(&model, model_config(like)), STATUS_OK);
  return model;
}

static void test_map(void **state) {
  (void)state;
  static const SafeDtype dtypes[] = {SAFE_F32, SAFE_F16, SAFE_BF16};
  Model *model = default_model();
  for (size_t d = 0; d < 3; d++) {
    Model *mapped = unallocated_model(model);
    CheckpointMapping *mapping;
    assert_int_equal(checkpoint_save(model, scratch_path("map"), NULL, NULL, dtypes[d]), STATUS_OK);
    assert_int_equal(checkpoint_map_params(mapped, scratch_path("map"), &mapping), STATUS_OK);
    assert_null(model_params(mapped)->values);
    assert_same(model, mapped);
    for (size_t i = 0; i < model_params(mapped)->count; i++) {
      const Param *param = &model_params(mapped)->list[i];
      assert_false(param->tensor.needs_grad);
      assert_int_equal(param->tensor.narrow != NULL, param->narrow && dtypes[d] != SAFE_F32);
      assert_int_equal(param->tensor.value == NULL, param->tensor.narrow != NULL);
    }
    assert_true(param_named(model_params(mapped), "classifier.weight")->narrow);
    assert_false(param_named(model_params(mapped), "vit.embeddings.patch_embeddings.projection.weight")->narrow);
    model_free(mapped);
    checkpoint_unmap(mapping);
  }
  model_free(model);
}

/* A write to a mapped weight must kill the process that tries. */
static void test_map_is_read_only(void **state) {
  (void)state;
  static const SafeDtype dtypes[] = {SAFE_F32, SAFE_BF16};
  Model *model = default_model();
  for (size_t d = 0; d < 2; d++) {
    Model *mapped = unallocated_model(model);
    CheckpointMapping *mapping;
    assert_int_equal(checkpoint_save(model, scratch_path("ro"), NULL, NULL, dtypes[d]), STATUS_OK);
    assert_int_equal(checkpoint_map_params(mapped, scratch_path("ro"), &mapping), STATUS_OK);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);
      *(volatile real *)model_params(mapped)->list[0].tensor.value = 1;
      _exit(0);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGSEGV);
    model_free(mapped);
    checkpoint_unmap(mapping);
  }
  model_free(model);
}

static void test_map_needs_an_exact_fit(void **state) {
  (void)state;
  Model *model = default_model(), *head = tiny_model(8, 4, 9), *grid = tiny_model(16, 4, CLASSES), *others[] = {head, grid};
  assert_int_equal(checkpoint_save(model, scratch_path("fit"), NULL, NULL, SAFE_F32), STATUS_OK);
  for (size_t i = 0; i < 2; i++) {
    Model *mapped = unallocated_model(others[i]);
    CheckpointMapping *mapping;
    assert_int_equal(checkpoint_map_params(mapped, scratch_path("fit"), &mapping), STATUS_BAD_FILE);
    assert_message("astra-train");
    assert_null(mapping);
    assert_null(model_params(mapped)->list[0].tensor.value);
    model_free(mapped);
  }
  checkpoint_unmap(NULL);
  model_free(model);
  model_free(head);
  model_free(grid);
}

/* Tensors in the middle of a word, as other writers may leave them. */
static void test_map_unaligned(void **state) {
  (void)state;
  static const uint8_t byte[1];
  Model *model = default_model(), *mapped = unallocated_model(model);
  Bent bent;
  char *text;
  size_t size;
  items_of(&bent, model, "");
  bent.items[bent.count++] = (SafeItem){.name = "odd", .dtype = SAFE_U8, .source = SAFE_U8, .dims = 1, .shape = {1}, .data = byte};
  assert_int_equal(files_read(save_bent(&bent, "even.safetensors"), 1 << 24, &text, &size), STATUS_OK);
  uint64_t length; /* one more space in the header moves all data by a byte */
  memcpy(&length, text, 8);
  char *moved = malloc(size + 1);
  assert_non_null(moved);
  memcpy(moved, text, 8 + length);
  moved[8 + length] = ' ';
  memcpy(moved + 9 + length, text + 8 + length, size - 8 - length);
  length++;
  memcpy(moved, &length, 8);
  assert_int_equal(files_write(scratch_path("moved.safetensors"), moved, size + 1), STATUS_OK);
  CheckpointMapping *mapping;
  assert_int_equal(checkpoint_map_params(mapped, scratch_path("moved.safetensors"), &mapping), STATUS_OK);
  assert_same(model, mapped);
  for (size_t i = 0; i < model_params(mapped)->count; i++)
    assert_int_equal((uintptr_t)model_params(mapped)->list[i].tensor.value % sizeof(real), 0);
  model_free(mapped);
  checkpoint_unmap(mapping);
  model_free(model);
  free(text);
  free(moved);
}

/* ---- codebooks */

static void save_books(const char *name, int64_t groups, int64_t codes, int64_t width, const real *books, int blocks) {
  SafeItem items[2] = {{.name = "astra.layers.0.x.codebook",
                        .dtype = SAFE_REAL,
                        .source = SAFE_REAL,
                        .dims = 3,
                        .shape = {groups, codes, width},
                        .data = books}};
  items[1] = items[0];
  items[1].name = "astra.layers.1.x.codebook";
  assert_int_equal(safetensors_save(scratch_path(name), items, (size_t)blocks, NULL), STATUS_OK);
}

static void test_codebooks(void **state) {
  (void)state;
  real books[K * 16] = {0}, out[2 * K * 16];
  Model *model = default_model();
  const ModelConfig *config = model_config(model);
  assert_int_equal(files_make_dirs(scratch_path("books")), STATUS_OK);
  assert_int_equal(checkpoint_load_codebooks(config, scratch_path("books"), out), STATUS_NOT_FOUND);
  for (int i = 0; i < K * 16; i++) books[i] = (real)i / 8;
  save_books("books/codebooks.safetensors", GROUPS, K, 16 / GROUPS, books, 2);
  assert_int_equal(checkpoint_load_codebooks(config, scratch_path("books"), out), STATUS_OK);
  assert_memory_equal(out, books, sizeof books);
  assert_memory_equal(out + K * 16, books, sizeof books);
  assert_int_equal(checkpoint_load_codebooks(config, scratch_path("books/codebooks.safetensors"), out), STATUS_OK);
  save_books("books/codebooks.safetensors", GROUPS, K, 16 / GROUPS, books, 1);
  assert_int_equal(checkpoint_load_codebooks(config, scratch_path("books"), out), STATUS_BAD_FILE);
  assert_message("astra.layers.1.x.codebook");
  save_books("books/codebooks.safetensors", GROUPS / 2, K, 16 / (GROUPS / 2), books, 2);
  assert_int_equal(checkpoint_load_codebooks(config, scratch_path("books"), out), STATUS_BAD_FILE);
  assert_message("[4, 6, 4] (groups, codebook_size, width / groups), the file has [2, 6, 8]");
  books[5] = (real)NAN;
  save_books("books/codebooks.safetensors", GROUPS, K, 16 / GROUPS, books, 2);
  assert_int_equal(checkpoint_load_codebooks(config, scratch_path("books"), out), STATUS_BAD_FILE);
  assert_message("NaN");
  ModelConfig plain = *config;
  plain.astra.groups = 0;
  assert_int_equal(checkpoint_load_codebooks(&plain, scratch_path("books"), out), STATUS_NOT_FOUND);
  model_free(model);
}

static void test_two_sites(void **state) {
  (void)state;
  enum { NUMBERS = 4 * K * 16 };
  real books[NUMBERS], back[NUMBERS];
  Model *model, *first = default_model();
  ModelConfig config;
  assert_int_equal(config_copy(&config, model_config(first)), STATUS_OK);
  config.astra.site = SITE_KV;
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  assert_int_equal(param_allocate(model_params(model), false), STATUS_OK);
  for (int i = 0; i < NUMBERS; i++) books[i] = (real)i / 64;
  assert_int_equal(checkpoint_save(model, scratch_path("kv"), books, NULL, SAFE_F32), STATUS_OK);
  assert_int_equal(checkpoint_load_codebooks(&config, scratch_path("kv"), back), STATUS_OK);
  assert_memory_equal(books, back, sizeof books);
  SafeFile file;
  assert_int_equal(safetensors_open(&file, scratch_path("kv/model.safetensors")), STATUS_OK);
  const SafeTensor *value = safetensors_find(&file, "astra.layers.1.v.codebook");
  assert_non_null(value);
  assert_int_equal(safetensors_to_real(value, back), STATUS_OK);
  assert_memory_equal(back, books + 3 * K * 16, K * 16 * sizeof(real));
  safetensors_close(&file);
  config_release(&config);
  model_free(model);
  model_free(first);
}

static void test_golden(void **state) {
  (void)state;
  static const char *const names[] = {"vit-plain", "vit-g1-n4", "vit-g8-n3-uneven"};
  for (size_t i = 0; i < 3; i++) {
    const char *directory = golden_path(names[i]);
    ModelConfig config;
    Model *model, *mapped;
    CheckpointReport report;
    CheckpointMapping *mapping;
    assert_int_equal(config_load(&config, directory), STATUS_OK);
    assert_int_equal(model_new(&model, &config), STATUS_OK);
    assert_int_equal(param_allocate(model_params(model), true), STATUS_OK);
    assert_int_equal(load(model, directory, &report), STATUS_OK);
    assert_true(!report.new_head && !report.resized_positions && report.unused == 0);
    mapped = unallocated_model(model);
    assert_int_equal(checkpoint_map_params(mapped, directory, &mapping), STATUS_OK);
    assert_same(model, mapped);
    if (config.astra.groups) {
      real *books = calloc((size_t)(config.blocks * config.astra.codebook_size * config.width), sizeof *books);
      assert_int_equal(checkpoint_load_codebooks(&config, directory, books), STATUS_OK);
      assert_true(books[config.blocks * config.astra.codebook_size * config.width - 1] != 0);
      free(books);
    }
    model_free(mapped);
    checkpoint_unmap(mapping);
    model_free(model);
    config_release(&config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_values_of_another_block),
      cmocka_unit_test(test_bare_model),
      cmocka_unit_test(test_tensors_of_no_parameter),
      cmocka_unit_test(test_deeper),
      cmocka_unit_test(test_new_head),
      cmocka_unit_test(test_half_a_head),
      cmocka_unit_test(test_other_image_size),
      cmocka_unit_test(test_shapes_that_do_not_fit),
      cmocka_unit_test(test_numbers_that_are_none),
      cmocka_unit_test(test_shards),
      cmocka_unit_test(test_absent_and_unwritable),
      cmocka_unit_test(test_map),
      cmocka_unit_test(test_map_is_read_only),
      cmocka_unit_test(test_map_needs_an_exact_fit),
      cmocka_unit_test(test_map_unaligned),
      cmocka_unit_test(test_codebooks),
      cmocka_unit_test(test_two_sites),
      cmocka_unit_test(test_golden),
  };
  return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
