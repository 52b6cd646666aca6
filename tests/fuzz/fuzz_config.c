/* Fuzz target: config.json and preprocessor_config.json or generation_config.json, one after the other in the input with a NUL between. An
 * accepted configuration passes its own check and has a name for every class. */
#include "fuzz/fuzz.h"
#include "nn/config_json.c"
#include <stdlib.h>
#include <string.h>

static void check(const ModelConfig *config) {
  if (config_check(config) != STATUS_OK) abort();
  for (int64_t i = 0; i < config->classes; i++)
    if (!config->labels[i]) abort();
  if (config_tokens(config) < 1 || config_site_width(config) < 1 || config_bits_per_token(config) < (config->astra.groups > 0)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *split = size ? memchr(data, '\0', size) : NULL;
  size_t first = split ? (size_t)(split - data) : size;
  ModelConfig config;
  Status status = parse_config(&config, (const char *)data, first, "fuzz");
  if (status != STATUS_OK) {
    if (*status_message() == '\0' || config.labels) abort();
    return 0;
  }
  check(&config);
  bool text = config_is_decoder(&config);
  if (split && (text ? parse_generation : parse_preprocessor)(&config, (const char *)split + 1, size - first - 1, "fuzz") == STATUS_OK)
    check(&config);
  config_release(&config);
  return 0;
}
