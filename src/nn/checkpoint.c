/* Reading a checkpoint's parameters into a model, with a new head and other position embeddings where the task differs.
 * Leaves out: which files there are (checkpoint_files.c), mapping for inference (checkpoint_map.c), codebooks (checkpoint_codebooks.c),
 * writing (checkpoint_save.c). Invariant: a success has filled every parameter with finite numbers; a failure may have filled some, and
 * the model must then not be used. */
#include "nn/checkpoint.h"
#include "nn/adapters.h"
#include "nn/checkpoint_files.h"
#include "nn/lowbit_checkpoint.h"
#include "nn/positions.h"
#include <stdlib.h>
#include <string.h>

static bool is_positions(const Param *param) {
  static const char ending[] = "position_embeddings";
  size_t length = strlen(param->name), tail = sizeof ending - 1;
  return length >= tail && strcmp(param->name + length - tail, ending) == 0;
}

static Status shape_error(const CheckpointFiles *files, const Param *param, const SafeTensor *tensor) {
  char have[SHAPE_TEXT], want[SHAPE_TEXT];
  const char *advice = "use the model (config.json or --model) that the checkpoint was made for";
  if (strstr(param->name, "patch_embeddings")) advice = "its patches are of another size: choose a model with the same patch size";
  if (strstr(param->name, "wte.") || strstr(param->name, "embed_tokens.") || strstr(param->name, "lm_head."))
    advice = "its vocabulary or width is another one: choose the model and tokenizer that belong together";
  if (is_positions(param)) advice = "only a square grid of patches of the same width can be interpolated to another image size";
  return status_set(STATUS_BAD_FILE, "%s: tensor %s has shape %s where the model has %s; %s", files->path, param->name,
                    checkpoint_shape_text(have, tensor->dims, tensor->shape),
                    checkpoint_shape_text(want, param->tensor.dims, param->tensor.shape), advice);
}

static Status absent_error(const CheckpointFiles *files, const Param *param) {
  char want[SHAPE_TEXT];
  const char *question = "is this a checkpoint of the same kind and depth as the model?";
  if (strcmp(param->name, "lm_head.weight") == 0)
    question = "is tie_word_embeddings true in its own config.json?";
  else if (files->index)
    return checkpoint_files_incomplete(files, param);
  return status_set(STATUS_BAD_FILE, "%s: there is no tensor %s of shape %s; %s", files->path, param->name,
                    checkpoint_shape_text(want, param->tensor.dims, param->tensor.shape), question);
}

static bool fits(const Param *param, const SafeTensor *tensor) {
  return checkpoint_same_shape(tensor, param->tensor.dims, param->tensor.shape);
}

/* ---- the head */

/* A head for another number of classes: all but the first dimension agree. */
static bool is_other_head(const Param *param, const SafeTensor *tensor) {
  const Tensor *own = &param->tensor;
  return tensor->dims == own->dims && memcmp(tensor->shape + 1, own->shape + 1, (size_t)(own->dims - 1) * sizeof *own->shape) == 0;
}

/* One part that is absent or of another class count makes the whole head new: halves of two heads do not belong together. */
static Status judge_head(const CheckpointFiles *files, const ParamSet *set, CheckpointReport *report) {
  for (size_t i = 0; i < set->count; i++) {
    const Param *param = &set->list[i];
    if (!param->optional) continue;
    const SafeTensor *tensor = checkpoint_files_find(files, param->name);
    if (tensor && fits(param, tensor)) continue;
    if (tensor && !is_other_head(param, tensor)) return shape_error(files, param, tensor);
    report->new_head = true;
    report->missing += !tensor;
  }
  return STATUS_OK;
}

/* ---- one parameter */

static Status resize_positions(const CheckpointFiles *files, Param *param, const SafeTensor *tensor) {
  const int64_t *have = tensor->shape, *want = param->tensor.shape;
  bool alike = tensor->dims == 3 && param->tensor.dims == 3 && have[0] == want[0] && have[2] == want[2];
  int64_t from_side = alike ? positions_side(have[1]) : 0, to_side = positions_side(want[1]);
  if (from_side == 0 || to_side == 0) return shape_error(files, param, tensor);
  real *grid = malloc((size_t)tensor->count * sizeof *grid);
  if (!grid) return status_set(STATUS_NO_MEMORY, "%s: no memory to interpolate %s", files->path, param->name);
  Status status = checkpoint_read(files, tensor, grid);
  if (status == STATUS_OK) positions_resize(grid, from_side, param->tensor.value, to_side, want[2]);
  free(grid);
  return status;
}

static Status load_one(const CheckpointFiles *files, Param *param, CheckpointReport *report, size_t *used) {
  const SafeTensor *tensor = checkpoint_files_find(files, param->name);
  if (!tensor) return absent_error(files, param);
  LowbitMatrix matrix;
  ++*used;
  TRY(lowbit_checkpoint_find(files, param, tensor, &matrix));
  if (matrix.kind != LOWBIT_NONE) return lowbit_checkpoint_refuse(files, param);
  if (fits(param, tensor)) return checkpoint_read(files, tensor, param->tensor.value);
  if (!is_positions(param)) return shape_error(files, param, tensor);
  report->resized_positions = true;
  return resize_positions(files, param, tensor);
}

static Status load_all(const CheckpointFiles *files, Model *model, Rng *rng, CheckpointReport *report) {
  ParamSet *set = model_params(model);
  size_t used = 0;
  TRY(judge_head(files, set, report));
  for (size_t i = 0; i < set->count; i++) {
    Param *param = &set->list[i];
    if (adapters_is_one(model, i)) continue;
    if (param->frozen && !set->frozen_values)
      used++; /* mapped, or to be */
    else if (param->optional && report->new_head)
      param_initialise_one(param, rng);
    else
      TRY(load_one(files, param, report, &used));
  }
  report->unused = (int)(checkpoint_files_parameters(files, model_config(model)) - used);
  return STATUS_OK;
}

Status checkpoint_load_params(Model *model, const char *path, Rng *rng, CheckpointReport *report) {
  CheckpointReport ignored;
  if (!report) report = &ignored;
  memset(report, 0, sizeof *report);
  CheckpointFiles files;
  TRY(checkpoint_files_open(&files, path));
  Status status = checkpoint_files_check_depth(&files, model_config(model));
  if (status == STATUS_OK) status = load_all(&files, model, rng, report);
  checkpoint_files_close(&files);
  return status;
}
