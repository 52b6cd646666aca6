/* A model that was really trained (tests/golden/stories260K) says what it is known to say: the likeliest next token, 200 times. */
#include "nn/checkpoint.h"
#include "unit/nn/small_decoder.h"

static const char directory[] = "tests/golden/stories260K";

static int32_t likeliest(const Tensor *logits) {
  int32_t best = 0;
  for (int32_t i = 1; i < tensor_width(logits); i++)
    if (logits->value[i] > logits->value[best]) best = i;
  return best;
}

static void assert_tells(Model *model, const int32_t *expected) {
  SmallRun run;
  int32_t ids[SMALL_STORY] = {1};
  small_open(&run);
  for (int count = 1; count < SMALL_STORY; count++) {
    Tensor *logits = model_logits(model, run.tape, small_encode(model, &run, ids, 1, count, MODEL_ROWS_LAST));
    assert_non_null(logits);
    ids[count] = likeliest(logits);
    assert_int_equal(ids[count], expected[count]);
    tape_clear(run.tape);
  }
  small_close(&run);
}

static void the_story(void **state) {
  (void)state;
  int32_t expected[SMALL_STORY];
  ModelConfig config;
  Model *mapped;
  CheckpointMapping *mapping;
  small_story_ids(expected);
  assert_int_equal(config_load(&config, directory), STATUS_OK);
  assert_true(config.tied && config.begin_id == 1 && config.end_ids == 1 && config.end_id[0] == 2 && config.vocabulary == 512);
  assert_int_equal(model_new(&mapped, &config), STATUS_OK);
  assert_int_equal(checkpoint_map_params(mapped, directory, &mapping), STATUS_OK);
  assert_tells(mapped, expected);
  model_free(mapped);
  checkpoint_unmap(mapping);
  config_release(&config);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_story)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
