/* Models with packed weights compute what they compute with plain ones: all kinds, in full, in bf16 and in int8, also where a projection is
 * a part of a matrix that does not begin with a whole strip of packed outputs. */
#include "autograd/kernels/matmul.h"
#include "nn/lowbit_weights.h"
#include "nn/model_internal.h"
#include "unit/nn/small_decoder.h"
#include <math.h>
#include <stdio.h>

enum { TOKENS = 17, PATCHES = 16 };

static void require_packing(bool bf16) {
  const PackedMatrix matrix = {.outputs = 64, .inputs = 64, .bf16 = bf16};
  if (!REAL_IS_DOUBLE && matmul_choose_backend("onednn") == STATUS_OK && matmul_packed_bytes(&matrix) > 0) return;
  printf("skipped: this processor, build or backend multiplies plain weights%s\n", bf16 ? " in bf16" : "");
  skip();
}

static Model *make(ModelKind kind, int64_t width) {
  ModelConfig config;
  if (kind == MODEL_VIT) {
    assert_int_equal(config_preset(&config, "vit-cifar", 10), STATUS_OK);
    config.image = 16; /* PATCHES of 4 x 4 */
  } else {
    small_config(&config, kind, 0);
  }
  config.width = width;
  config.blocks = 2;
  config.heads = 4;
  config.kv_heads = kind == MODEL_LLAMA ? 2 : 4;
  config.mlp = 2 * width;
  Model *model = small_model(&config, false);
  ParamSet *set = model_params(model);
  for (size_t i = 0; i < set->count; i++) /* rows keep their size on their way */
    for (int64_t j = 0; set->list[i].tensor.dims == 2 && j < tensor_count(&set->list[i].tensor); j++)
      set->list[i].tensor.value[j] *= (real)(5 / sqrt((double)width));
  config_release(&config);
  return model;
}

/* All rows behind the last norm. */
static int64_t compute(Model *model, bool bf16, real *rows) {
  SmallRun run;
  TokenLayout layout = {0};
  int32_t ids[TOKENS];
  ModelInput input = {.ids = ids, .batch = 1};
  bool decoder = config_is_decoder(model_config(model));
  small_ids(ids, TOKENS);
  small_open(&run);
  tape_use_bf16(run.tape, bf16);
  if (!decoder) {
    Tensor *pixels = tape_tensor(run.tape, 4, (int64_t[]){1, 3, 16, 16});
    for (int64_t i = 0; i < tensor_count(pixels); i++) pixels->value[i] = (real)sin((double)(i * i % 101));
    input = (ModelInput){.pixels = pixels};
  }
  assert_int_equal(layout_build_plain(&layout, decoder ? TOKENS : PATCHES, decoder ? CLASS_NONE : CLASS_DISTRIBUTED), STATUS_OK);
  Tensor *x = model_encode(model, run.tape, &input, &layout, NULL, MODEL_ROWS_ALL);
  if (x == NULL) fail_msg("%s", status_message());
  int64_t count = tensor_count(x);
  tensor_read(x, 0, count, rows);
  layout_release(&layout);
  small_close(&run);
  return count;
}

static double distance(const real *a, const real *b, int64_t count) {
  double apart = 0, size = 0;
  for (int64_t i = 0; i < count; i++) {
    apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    size += (double)b[i] * (double)b[i];
  }
  assert_true(size > 0);
  return sqrt(apart / size);
}

/* Block matrices are packed, whoever looks rows up in a matrix finds it as it was. */
static int assert_packed(const Model *model, bool bf16) {
  int packed = 0;
  for (size_t i = 0; i < model->params.count; i++) {
    const Param *param = &model->params.list[i];
    bool matrix = param->narrow && !model_is_vocabulary(model, i);
    assert_int_equal(param->tensor.packed != NULL, matrix);
    const bool table = model->config.kind != MODEL_VIT && i == (size_t)model->token_table; /* of an untied model in no product */
    assert_int_equal(param->looked_up, table && !model->config.tied);
    if (bf16) assert_int_equal(param->tensor.shadow != NULL, (param->narrow && !matrix && !param->looked_up) || param->tensor.dims == 4);
    packed += matrix;
  }
  return packed;
}

static void check_kinds(bool bf16) {
  static const int64_t widths[] = {128, 96}; /* parts of GPT-2's c_attn begin at whole strips of 64 outputs, and between them */
  static real plain[TOKENS * 128], packed[TOKENS * 128];
  require_packing(bf16);
  for (int kind = MODEL_VIT; kind <= MODEL_LLAMA; kind++)
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
      Model *model = make((ModelKind)kind, widths[w]);
      if (bf16) assert_int_equal(param_make_shadows(model_params(model)), STATUS_OK);
      int64_t count = compute(model, bf16, plain);
      model_free(model);
      model = make((ModelKind)kind, widths[w]);
      assert_int_equal(model_pack_weights(model, bf16), STATUS_OK);
      assert_true(assert_packed(model, bf16) >= 8);
      assert_int_equal(compute(model, bf16, packed), count);
      double off = distance(packed, plain, count);
      if (!(off < (bf16 ? 1e-2 : 1e-5))) fail_msg("kind %d of width %d: off by %.3g", kind, (int)widths[w], off);
      PackedMatrix *down = &model->params.list[model->block[0].down.weight].packed;
      memset(down->words, 0, matmul_packed_bytes(down)); /* it is what is multiplied */
      compute(model, bf16, packed);
      assert_true(distance(packed, plain, count) > 0.05);
      model_free(model);
    }
}

static void in_full(void **state) {
  (void)state;
  check_kinds(false);
}

static void in_bf16(void **state) {
  (void)state;
  check_kinds(true);
}

/* The same bits: in int8 the sums are whole numbers. */
static void in_int8(void **state) {
  (void)state;
  static const int64_t widths[] = {128, 96};
  static real plain[TOKENS * 128], packed[TOKENS * 128];
  if (matmul_choose_backend("onednn-int8") != STATUS_OK ||
      matmul_packed_bytes(&(PackedMatrix){.outputs = 64, .inputs = 64, .int8 = true}) == 0) {
    printf("skipped: this processor, build or table of kernels multiplies int8 in its own kernels alone\n");
    skip();
  }
  for (int kind = MODEL_VIT; kind <= MODEL_LLAMA; kind++)
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
      Model *model = make((ModelKind)kind, widths[w]);
      LowbitWeights *made;
      assert_int_equal(lowbit_weights_make(model, LOWBIT_INT8, &made), STATUS_OK);
      int64_t count = compute(model, false, plain);
      assert_int_equal(model_pack_weights(model, false), STATUS_OK);
      for (size_t i = 0; i < model->params.count; i++) {
        const Tensor *tensor = &model->params.list[i].tensor;
        if (tensor->lowbit) assert_int_equal(tensor->packed != NULL && tensor->packed->int8, !model_is_vocabulary(model, i));
      }
      assert_int_equal(compute(model, false, packed), count);
      assert_memory_equal(packed, plain, (size_t)count * sizeof *plain);
      PackedMatrix *down = &model->params.list[model->block[0].down.weight].packed;
      memset(down->words, 0, matmul_packed_bytes(down)); /* it is what is multiplied */
      compute(model, false, packed);
      assert_true(distance(packed, plain, count) > 0.05);
      model_free(model);
      lowbit_weights_free(made);
    }
}

int main(void) {
  matmul_start();
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_full), cmocka_unit_test(in_bf16), cmocka_unit_test(in_int8)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
