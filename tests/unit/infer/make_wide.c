/* make_wide FROM DIR [FACTOR [BLOCKS]]: a GPT-2 that says the same as the checkpoint FROM, FACTOR times as wide (default 3) and with BLOCKS
 * blocks (12): gpt2-mini's texts at the cost of GPT-2 small's blocks, for measurements in which it matters what a model says. Every number
 * of the residual stream is there FACTOR times, so that norms stay what they are; a matrix is repeated in both directions and divided by
 * FACTOR; heads are repeated; further blocks add nothing. */
#include "nn/checkpoint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const Tensor *find(Model *model, const char *name) {
  const ParamSet *params = model_params(model);
  for (size_t i = 0; i < params->count; i++) {
    if (strcmp(params->list[i].name, name) == 0) return &params->list[i].tensor;
  }
  return NULL;
}

/* Where column `to` of a repeated row comes from; one of three parts that are repeated each by itself, as queries, keys and values are. */
static int64_t column(int64_t to, int64_t from_columns, int64_t factor, int64_t parts) {
  const int64_t part = from_columns / parts, of = to / (part * factor);
  return of * part + to % part;
}

static void widen(const char *name, const Tensor *from, int64_t factor, Tensor *to) {
  const bool table = strstr(name, "wte") || strstr(name, "wpe"), matrix = from->dims == 2 && !table;
  const int64_t columns = from->shape[from->dims - 1], rows = from->dims == 2 ? from->shape[0] : 1;
  const int64_t wide = columns * factor, all = matrix ? rows * factor : rows, parts = strstr(name, "c_attn") ? 3 : 1;
  const real scale = matrix || strstr(name, "ln_f") ? (real)1 / (real)factor : 1; /* logits are sums over all copies, too */
  for (int64_t r = 0; r < all; r++)
    for (int64_t c = 0; c < wide; c++)
      to->value[r * wide + c] = scale * from->value[r % rows * columns + column(c, columns, factor, parts)];
}

static Status write_wide(const char *from_path, const char *to_path, int factor, int blocks) {
  ModelConfig config = {0};
  Model *from, *to;
  TRY(config_load(&config, from_path));
  if (config.kind != MODEL_GPT2 || config.astra.groups > 0) return status_set(STATUS_BAD_VALUE, "%s: a plain GPT-2 is wanted", from_path);
  TRY(model_new(&from, &config));
  TRY(param_allocate(model_params(from), false));
  TRY(checkpoint_load_params(from, from_path, NULL, NULL));
  const int64_t before = config.blocks;
  config.width *= factor, config.heads *= factor, config.kv_heads *= factor, config.mlp *= factor;
  config.blocks = blocks;
  TRY(model_new(&to, &config));
  TRY(param_allocate(model_params(to), false));
  for (size_t i = 0; i < model_params(to)->count; i++) {
    Param *param = &model_params(to)->list[i];
    char name[2 * sizeof param->name], rest[sizeof param->name];
    int block = -1;
    snprintf(name, sizeof name, "%s", param->name);
    const char *at = strstr(name, "h.");
    if (at && sscanf(at, "h.%d.%s", &block, rest) == 2 && block >= before) {
      snprintf(name, sizeof name, "%.*sh.%d.%s", (int)(strstr(param->name, "h.") - param->name), param->name, (int)(block % before), rest);
      if (strstr(name, "c_proj")) continue; /* zeros */
    }
    const Tensor *known = find(from, name);
    if (!known) return status_set(STATUS_NOT_FOUND, "%s: no %s", from_path, name);
    widen(name, known, factor, &param->tensor);
  }
  return checkpoint_save(to, to_path, NULL, NULL, SAFE_F32);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: make_wide FROM DIR [FACTOR [BLOCKS]]\n");
    return 2;
  }
  Status status = write_wide(argv[1], argv[2], argc > 3 ? atoi(argv[3]) : 3, argc > 4 ? atoi(argv[4]) : 12);
  if (status != STATUS_OK) fprintf(stderr, "make_wide: %s\n", status_message());
  return status == STATUS_OK ? 0 : 1;
}
