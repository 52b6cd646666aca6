/* generation_config.json: its end ids join config.json's, and what it may hold. */
#include "base/files.h"
#include "nn/config.h"
#include "unit/nn/scratch.h"
#include <cmocka.h>
#include <string.h>

static void its_ids_join_those_of_the_configuration(void **state) {
  (void)state;
  static const struct {
    const char *json;
    Status status;
    int ends;
    int64_t last;
  } rows[] = {{"{}", STATUS_OK, 1, 50256},
              {"{\"eos_token_id\": null, \"top_p\": 0.9}", STATUS_OK, 1, 50256},
              {"{\"eos_token_id\": 50256}", STATUS_OK, 1, 50256},
              {"{\"eos_token_id\": 7}", STATUS_OK, 2, 7},
              {"{\"eos_token_id\": [7, 50256, 9, 7]}", STATUS_OK, 3, 9},
              {"{\"eos_token_id\": [1, 2, 3, 4, 5, 6, 7]}", STATUS_OK, 8, 7},
              {"{\"eos_token_id\": [1, 2, 3, 4, 5, 6, 7, 8]}", STATUS_BAD_FILE, 0, 0},
              {"{\"eos_token_id\": []}", STATUS_BAD_FILE, 0, 0},
              {"{\"eos_token_id\": \"7\"}", STATUS_BAD_FILE, 0, 0},
              {"{\"eos_token_id\": 50257}", STATUS_BAD_FILE, 0, 0},
              {"[7]", STATUS_BAD_FILE, 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ModelConfig config;
    assert_int_equal(config_preset(&config, "gpt2", 0), STATUS_OK);
    assert_int_equal(config_save(&config, scratch_path("generation")), STATUS_OK);
    config_release(&config);
    assert_int_equal(files_write(scratch_path("generation/generation_config.json"), rows[i].json, strlen(rows[i].json)), STATUS_OK);
    Status status = config_load(&config, scratch_path("generation"));
    if (status != rows[i].status) fail_msg("%s: %s", rows[i].json, status_text(status));
    if (status != STATUS_OK) assert_non_null(strstr(status_message(), "generation_config.json"));
    if (status != STATUS_OK) continue;
    assert_int_equal(config.end_ids, rows[i].ends);
    assert_int_equal(config.end_id[config.end_ids - 1], rows[i].last);
    config_release(&config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(its_ids_join_those_of_the_configuration)};
  return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
