/* Examples of what is installed: see example.h. Leaves out: what was got later (astra-data list shows that). */
#include "cli/example.h"
#include "data/data_paths.h"
#include "nn/config.h"
#include <stdio.h>
#include <stdlib.h>

static Status with_example(const char *what, const char *example) {
  return status_set(STATUS_BAD_USAGE, "%s%s%s", what, example[0] ? ". For example: " : "", example);
}

static bool found(const char *kind, const char *name) {
  char *path;
  if (data_paths_find(kind, name, NULL, &path) != STATUS_OK) return false;
  free(path);
  return true;
}

static Status from_training_set(const char *what, const char *command) {
  char text[256] = "";
  if (found("checkpoints", "vit-cifar") && found("datasets", "cifar100-sample"))
    snprintf(text, sizeof text, "%s --model vit-cifar --dataset cifar100-sample --groups 8", command);
  return with_example(what, text);
}

Status example_train(const char *what) { return from_training_set(what, "astra-train"); }
Status example_kmeans(const char *what) { return from_training_set(what, "astra-kmeans init"); }

/* The first bundled model of pictures, in a fresh string; one with codebooks before a plain one. */
static char *find_model(bool *astra) {
  static const char *const names[] = {"vit-cifar-g8", "vit-cifar"};
  char *path;
  ModelConfig config;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (data_paths_find("checkpoints", names[i], NULL, &path) != STATUS_OK) continue;
    if (config_load(&config, path) == STATUS_OK) {
      *astra = config.astra.groups > 0;
      config_release(&config);
      return path;
    }
    free(path);
  }
  return NULL;
}

/* A plain model runs on several nodes by other strategies only. */
Status example_infer(const char *what, int64_t nodes) {
  char text[1024] = "", *pictures = NULL;
  bool astra = false;
  char *model = find_model(&astra);
  if (model != NULL && data_paths_find("datasets", "pictures", NULL, &pictures) == STATUS_OK)
    snprintf(text, sizeof text, "astra-infer --nodes %lld%s --checkpoint %s %s", (long long)nodes,
             astra || nodes == 1 ? "" : " --strategy sp", model, pictures);
  free(model);
  free(pictures);
  return with_example(what, text);
}
