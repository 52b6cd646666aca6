/* make_sample DIR [PRESET [GROUPS [ENTRIES [DEVICES [IMAGE PATCH [BLOCK]]]]]]: writes a random ASTRA checkpoint with its
 * selftest.safetensors, for the scripts under tests/network and tests/cli. PRESET: tiny (the default), tiny-gpt2, tiny-llama,
 * tiny-gpt2:3 (3 classes of texts), vit-cifar...
 * GROUPS with letters behind the number, 4r: tokens are quantised in another basis (AstraConfig.rotation); rp: with predictions, too; rpx:
 * with those of texts as training makes them, the first block being exact, rpm: of images, with means of positions; k: at site kv.
 * IMAGE and PATCH: images and patches of so many pixels a side instead of the preset's (0: the preset's), for models that are only timed:
 * those get no self-test, which takes long. BLOCK: one whose weights are finite, but so large that its output is not. */
#include "sample_text.h"

static void overflow(Model *model, int block) {
  ParamSet *params = model_params(model);
  char part[16];
  snprintf(part, sizeof part, ".%d.", block);
  for (size_t i = 0; i < params->count; i++) {
    Tensor *tensor = &params->list[i].tensor;
    if (!strstr(params->list[i].name, part) || tensor->dims < 2) continue;
    for (int64_t k = 0; k < tensor_count(tensor); k++) tensor->value[k] *= (real)1e30;
  }
}

static Status write_sample(const char *directory, const ModelConfig *config, bool with_test, int block) {
  SampleCluster cluster;
  TRY(sample_open(&cluster, config, 42));
  if (block >= 0) overflow(cluster.model, block);
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
  config.astra.rotation = argc > 3 && strchr(argv[3], 'r') != NULL;
  config.astra.prediction = argc > 3 && strchr(argv[3], 'p') != NULL;
  config.astra.exact_first = argc > 3 && strchr(argv[3], 'x') != NULL;
  config.astra.position_mean = argc > 3 && strchr(argv[3], 'm') != NULL;
  if (argc > 3 && strchr(argv[3], 'k') != NULL) config.astra.site = SITE_KV;
  if (argc > 7 && atoi(argv[6]) > 0) config.image = atoi(argv[6]), config.patch = atoi(argv[7]);
  if (status == STATUS_OK) status = write_sample(argv[1], &config, argc <= 7, argc > 8 ? atoi(argv[8]) : -1);
  config_release(&config);
  if (status != STATUS_OK) fprintf(stderr, "make_sample: %s\n", status_message());
  return status == STATUS_OK ? 0 : 1;
}
