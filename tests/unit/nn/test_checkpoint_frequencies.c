/* Frequencies of codes beside a checkpoint: there and back, absent, removed, and files that are damaged or belong to another model. */
#include "nn/checkpoint.h"
#include "nn/safetensors.h"
#include "unit/nn/scratch.h"
#include <cmocka.h>

enum { GROUPS = 2, ENTRIES = 5, BLOCKS = 2, MAX = BLOCKS * 2 * GROUPS * ENTRIES };

static void make_config(ModelConfig *config, Site site) {
  assert_int_equal(config_preset(config, "vit-cifar", 5), STATUS_OK);
  config->blocks = BLOCKS;
  config->astra.groups = GROUPS;
  config->astra.codebook_size = ENTRIES;
  config->astra.site = site;
}

static void fill(uint16_t *numbers, int count) {
  for (int i = 0; i < count; i++) numbers[i] = (uint16_t)(i % ENTRIES == 0 ? 65536 - 4 * 100 : 100);
}

static void there_and_back(void **state) {
  (void)state;
  for (int site = SITE_X; site <= SITE_KV; site++) {
    ModelConfig config;
    uint16_t numbers[MAX], back[MAX];
    real weight;
    int count = BLOCKS * (site == SITE_KV ? 2 : 1) * GROUPS * ENTRIES;
    make_config(&config, (Site)site);
    fill(numbers, count);
    assert_int_equal(checkpoint_load_frequencies(&config, scratch, back, &weight), STATUS_NOT_FOUND);
    assert_int_equal(checkpoint_save_frequencies(&config, scratch, numbers, 0), STATUS_OK);
    assert_int_equal(checkpoint_load_frequencies(&config, scratch, back, &weight), STATUS_OK);
    assert_memory_equal(numbers, back, (size_t)count * sizeof *numbers);
    assert_int_equal(checkpoint_save_frequencies(&config, scratch, NULL, 0), STATUS_OK);
    assert_int_equal(checkpoint_save_frequencies(&config, scratch, NULL, 0), STATUS_OK); /* none is there to remove */
    assert_int_equal(checkpoint_load_frequencies(&config, scratch, back, &weight), STATUS_NOT_FOUND);
    config_release(&config);
  }
}

static void check_refused(const ModelConfig *config, const char *word) {
  uint16_t back[MAX];
  real weight;
  assert_int_equal(checkpoint_load_frequencies(config, scratch, back, &weight), STATUS_BAD_FILE);
  if (!strstr(status_message(), word)) fail_msg("\"%s\" does not say \"%s\"", status_message(), word);
}

static void wrong_numbers(void **state) {
  (void)state;
  ModelConfig config;
  uint16_t numbers[MAX];
  make_config(&config, SITE_X);
  fill(numbers, MAX);
  numbers[7]++;
  assert_int_equal(checkpoint_save_frequencies(&config, scratch, numbers, 0), STATUS_OK);
  check_refused(&config, "sum to 65537");
  numbers[7] = 0, numbers[5] = (uint16_t)(numbers[5] + 100);
  assert_int_equal(checkpoint_save_frequencies(&config, scratch, numbers, 0), STATUS_OK);
  check_refused(&config, "the minimum is 0");
  config_release(&config);
}

/* A file in another type can hold what 16 bits without a sign cannot, with the right sum. */
static void negative_numbers(void **state) {
  (void)state;
  ModelConfig config;
  char path[512], head[256], text[160];
  int32_t numbers[GROUPS * ENTRIES];
  make_config(&config, SITE_X);
  for (int i = 0; i < GROUPS * ENTRIES; i++)
    numbers[i] = i % ENTRIES == 0 ? 65536 + 65536 + 4 : i % ENTRIES == 1 ? -65536 - 4 - (ENTRIES - 2) : 1;
  int length =
      snprintf(text, sizeof text, "{\"astra.layers.0.x.frequencies\":{\"dtype\":\"I32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]}}",
               GROUPS, ENTRIES, (int)sizeof numbers);
  memset(head, 0, 8);
  head[0] = (char)length;
  memcpy(head + 8, text, (size_t)length);
  snprintf(path, sizeof path, "%s/frequencies.safetensors", scratch);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(head, 1, (size_t)length + 8, file), length + 8);
  assert_int_equal(fwrite(numbers, 1, sizeof numbers, file), sizeof numbers);
  assert_int_equal(fclose(file), 0);
  check_refused(&config, "sum to 65536, the minimum is -65543");
  config_release(&config);
}

/* Another G, K or depth than the file's; a shallower model is whole. */
static void another_model(void **state) {
  (void)state;
  ModelConfig config;
  uint16_t numbers[MAX];
  real weight;
  make_config(&config, SITE_X);
  fill(numbers, MAX);
  assert_int_equal(checkpoint_save_frequencies(&config, scratch, numbers, 0), STATUS_OK);
  config.astra.codebook_size = ENTRIES - 1;
  check_refused(&config, "astra.layers.0.x.frequencies");
  config.astra.codebook_size = ENTRIES, config.astra.groups = 1;
  check_refused(&config, "[1, 5]");
  config.astra.groups = GROUPS, config.blocks = BLOCKS + 1;
  check_refused(&config, "astra.layers.2.x.frequencies");
  config.blocks = BLOCKS, config.astra.site = SITE_KV;
  check_refused(&config, "astra.layers.0.k.frequencies");
  config.astra.groups = 0;
  assert_int_equal(checkpoint_load_frequencies(&config, scratch, numbers, &weight), STATUS_NOT_FOUND);
  assert_int_equal(checkpoint_save_frequencies(&config, scratch, numbers, 0), STATUS_BAD_VALUE);
  config_release(&config);
}

static void weights_of_bits(void **state) {
  (void)state;
  ModelConfig config;
  uint16_t numbers[MAX], back[MAX];
  real weight = 1;
  make_config(&config, SITE_X);
  fill(numbers, MAX);
  assert_int_equal(checkpoint_save_frequencies(&config, scratch, numbers, 0), STATUS_OK);
  assert_int_equal(checkpoint_load_frequencies(&config, scratch, back, &weight), STATUS_OK);
  assert_true(weight == 0);
  assert_int_equal(checkpoint_save_frequencies(&config, scratch, numbers, (real)0.0625), STATUS_OK);
  assert_int_equal(checkpoint_load_frequencies(&config, scratch, back, &weight), STATUS_OK);
  assert_true(weight == (real)0.0625);
  assert_int_equal(checkpoint_save_frequencies(&config, scratch, numbers, 11), STATUS_OK);
  check_refused(&config, "astra.entropy_weight");
  config_release(&config);
}

static void a_damaged_file(void **state) {
  (void)state;
  ModelConfig config;
  make_config(&config, SITE_X);
  FILE *file = fopen(scratch_path(CHECKPOINT_FREQUENCIES), "wb");
  assert_non_null(file);
  fputs("no tensors", file);
  fclose(file);
  uint16_t back[MAX];
  real weight;
  assert_int_equal(checkpoint_load_frequencies(&config, scratch, back, &weight), STATUS_BAD_FILE);
  config_release(&config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(there_and_back), cmocka_unit_test(wrong_numbers),   cmocka_unit_test(negative_numbers),
      cmocka_unit_test(another_model),  cmocka_unit_test(weights_of_bits), cmocka_unit_test(a_damaged_file),
  };
  return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
