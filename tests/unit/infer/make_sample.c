/* make_sample DIR [PRESET [GROUPS [ENTRIES [DEVICES [IMAGE PATCH]]]]]: writes a random ASTRA checkpoint with its selftest.safetensors, for
 * the scripts under tests/network and tests/cli. PRESET: tiny (the default), tiny-gpt2, tiny-llama, vit-cifar... IMAGE and PATCH: pictures
 * and patches of so many pixels a side instead of the preset's, for models that are only timed: those get no self-test, which takes long.
 */
#include "sample_text.h"

static Status write_sample(const char *directory, const ModelConfig *config, bool with_test) {
  SampleCluster cluster;
  TRY(sample_open(&cluster, config, 42));
  Status status = sample_save(&cluster, directory);
  bool text = config_is_decoder(config);
  if (status == STATUS_OK && config->astra.groups && with_test)
    status = text ? sample_save_text_selftest(&cluster, directory, 4, config->context) : sample_save_selftest(&cluster, directory, 4);
  sample_close(&cluster);
  return status;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: make_sample DIR [PRESET [GROUPS [ENTRIES [DEVICES [IMAGE PATCH]]]]]\n");
    return 2;
  }
  ModelConfig config = {0};
  int groups = argc > 3 ? atoi(argv[3]) : 4, entries = argc > 4 ? atoi(argv[4]) : 64, devices = argc > 5 ? atoi(argv[5]) : 4;
  Status status = sample_config(&config, argc > 2 ? argv[2] : "tiny", groups, entries, devices, CLASS_DISTRIBUTED);
  if (argc > 7) config.image = atoi(argv[6]), config.patch = atoi(argv[7]);
  if (status == STATUS_OK) status = write_sample(argv[1], &config, argc <= 7);
  config_release(&config);
  if (status != STATUS_OK) fprintf(stderr, "make_sample: %s\n", status_message());
  return status == STATUS_OK ? 0 : 1;
}
