/* Checkpoints with matrices of 8 and 4 bits: there and back to the byte, and files that are wrong: shapes, scales, digests, training. */
#include "nn/checkpoint_save.c" /* shards of a few bytes */
#include "nn/lowbit_weights.h"
#include "nn/safetensors.h"
#include "unit/nn/bent_checkpoint.h"
#include "unit/nn/scratch.h"
#include "unit/nn/small_decoder.h"
#include <math.h>
#include <stdlib.h>

static const ModelKind MODELS[] = {MODEL_GPT2, MODEL_LLAMA};

static Model *rounded(ModelKind kind, LowbitKind bits, LowbitWeights **made) {
  Model *model = small_decoder(kind, false);
  assert_int_equal(lowbit_weights_make(model, bits, made), STATUS_OK);
  return model;
}

static Model *unloaded(ModelKind kind) {
  ModelConfig config;
  Model *model;
  small_config(&config, kind, 0);
  assert_int_equal(model_new(&model, &config), STATUS_OK);
  config_release(&config);
  return model;
}

static void matrices_come_back_as_they_were(void **state) {
  (void)state;
  for (int m = 0; m < 2; m++)
    for (int bits = 8; bits >= 4; bits -= 4) {
      LowbitWeights *made;
      CheckpointMapping *mapping;
      Model *model = rounded(MODELS[m], bits == 8 ? LOWBIT_INT8 : LOWBIT_Q4_0, &made), *back = unloaded(MODELS[m]);
      assert_int_equal(save_sharded(model, scratch_path("trip"), NULL, NULL, SAFE_F32, m ? 3000 : CHECKPOINT_SHARD), STATUS_OK);
      if (checkpoint_map_params(back, scratch_path("trip"), &mapping) != STATUS_OK) fail_msg("%s", status_message());
      for (size_t i = 0; i < model_params(model)->count; i++) {
        const Tensor *want = &model_params(model)->list[i].tensor, *have = &model_params(back)->list[i].tensor;
        assert_int_equal(have->lowbit != NULL, want->lowbit != NULL);
        if (want->lowbit == NULL) {
          for (int64_t j = 0; j < tensor_count(want); j++) assert_true((float)have->value[j] == (float)want->value[j]);
          continue;
        }
        const LowbitMatrix *a = want->lowbit, *b = have->lowbit;
        assert_true(a->kind == b->kind && a->outputs == b->outputs && a->inputs == b->inputs && (a->scale != NULL) == (b->scale != NULL));
        assert_memory_equal(a->numbers, b->numbers, (size_t)a->outputs * lowbit_row_bytes(a->kind, a->inputs));
        if (a->scale) assert_memory_equal(a->scale, b->scale, (size_t)a->outputs * sizeof *a->scale);
      }
      model_free(back);
      checkpoint_unmap(mapping);
      model_free(model);
      lowbit_weights_free(made);
    }
}

/* ---- wrong files: one tensor is another one */

enum { ITEMS = 128 };

static void write_with(const char *name, const SafeItem *instead, bool without) {
  SafeFile file;
  SafeItem items[ITEMS];
  size_t count = 0;
  assert_int_equal(safetensors_open(&file, scratch_path("good/model.safetensors")), STATUS_OK);
  for (size_t i = 0; i < file.count; i++) {
    const SafeTensor *t = &file.list[i];
    const bool chosen = strcmp(t->name, name) == 0;
    if (chosen && without) continue;
    items[count] = (SafeItem){.name = t->name, .dtype = t->dtype, .source = t->dtype, .dims = t->dims, .data = t->data};
    memcpy(items[count].shape, t->shape, sizeof t->shape);
    if (chosen && instead) items[count] = *instead;
    count++;
  }
  assert_int_equal(safetensors_save(scratch_path("bad/model.safetensors"), items, count, NULL), STATUS_OK);
  safetensors_close(&file);
}

static void refuse(const char *words) {
  CheckpointMapping *mapping;
  Model *model = unloaded(MODEL_GPT2);
  assert_int_equal(checkpoint_map_params(model, scratch_path("bad"), &mapping), STATUS_BAD_FILE);
  assert_message(words);
  assert_null(mapping);
  model_free(model);
}

static void good_checkpoint(LowbitKind bits) {
  LowbitWeights *made;
  Model *model = rounded(MODEL_GPT2, bits, &made);
  assert_int_equal(checkpoint_save(model, scratch_path("good"), NULL, NULL, SAFE_F32), STATUS_OK);
  assert_int_equal(checkpoint_save(model, scratch_path("bad"), NULL, NULL, SAFE_F32), STATUS_OK);
  model_free(model);
  lowbit_weights_free(made);
}

static void wrong_matrices_and_scales_are_refused(void **state) {
  (void)state;
  static const char weight[] = "transformer.h.1.mlp.c_fc.weight", scale[] = "transformer.h.1.mlp.c_fc.weight_scale";
  static const uint8_t bytes[4096];
  float scales[40] = {0};
  good_checkpoint(LOWBIT_INT8);
  SafeItem item = {weight, SAFE_I8, SAFE_I8, 2, {SMALL_WIDTH, 40}, bytes, NULL, NULL}; /* [in, out], as it is in float */
  write_with(weight, &item, false);
  refuse("[24, 40]");
  item = (SafeItem){weight, SAFE_U8, SAFE_U8, 2, {40, 33}, bytes, NULL, NULL};
  write_with(weight, &item, false);
  refuse("U8 [40, 34]");
  item = (SafeItem){weight, SAFE_U8, SAFE_U8, 1, {40 * 18}, bytes, NULL, NULL};
  write_with(weight, &item, false);
  refuse(weight);
  write_with(scale, NULL, true);
  refuse("a scale for each output");
  item = (SafeItem){scale, SAFE_F32, SAFE_F32, 1, {39}, scales, NULL, NULL};
  write_with(scale, &item, false);
  refuse("F32 [40]");
  item = (SafeItem){scale, SAFE_F16, SAFE_F16, 1, {40}, scales, NULL, NULL};
  write_with(scale, &item, false);
  refuse("F32 [40]");
  item = (SafeItem){scale, SAFE_F32, SAFE_F32, 1, {40}, scales, NULL, NULL};
  scales[39] = NAN;
  write_with(scale, &item, false);
  refuse("NaN");
  scales[39] = INFINITY;
  write_with(scale, &item, false);
  refuse("infinity");
}

static void scales_of_blocks_are_looked_at(void **state) {
  (void)state;
  static const char weight[] = "transformer.h.0.attn.c_proj.weight";
  uint8_t bytes[SMALL_WIDTH * 18] = {0};
  good_checkpoint(LOWBIT_Q4_0);
  const SafeItem item = {weight, SAFE_U8, SAFE_U8, 2, {SMALL_WIDTH, 18}, bytes, NULL, NULL};
  write_with(weight, &item, false);
  CheckpointMapping *mapping;
  Model *model = unloaded(MODEL_GPT2);
  assert_int_equal(checkpoint_map_params(model, scratch_path("bad"), &mapping), STATUS_OK);
  model_free(model);
  checkpoint_unmap(mapping);
  bytes[23 * 18 + 1] = 0x7c; /* the last row's scale is infinite */
  write_with(weight, &item, false);
  refuse("infinity");
}

static void a_changed_byte_is_noticed(void **state) {
  (void)state;
  good_checkpoint(LOWBIT_INT8);
  FILE *file = fopen(scratch_path("bad/model.safetensors"), "r+");
  assert_non_null(file);
  fseek(file, -3000, SEEK_END);
  int byte = fgetc(file);
  fseek(file, -1, SEEK_CUR);
  fputc(byte ^ 1, file);
  fclose(file);
  refuse("damaged");
}

static void nothing_is_trained_from_them(void **state) {
  (void)state;
  good_checkpoint(LOWBIT_INT8);
  Model *model = small_decoder(MODEL_GPT2, true);
  assert_int_equal(checkpoint_load_params(model, scratch_path("good"), NULL, NULL), STATUS_BAD_FILE);
  assert_message("not trained from");
  model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(matrices_come_back_as_they_were),
                                     cmocka_unit_test(wrong_matrices_and_scales_are_refused),
                                     cmocka_unit_test(scales_of_blocks_are_looked_at), cmocka_unit_test(a_changed_byte_is_noticed),
                                     cmocka_unit_test(nothing_is_trained_from_them)};
  return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
