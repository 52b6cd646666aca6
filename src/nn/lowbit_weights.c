/* Rounds a model's matrices into one shared block: see lowbit_weights.h.
 *
 *   block | numbers of a matrix .... pad | its scales ... pad | numbers of the next ... |    (each on a cache line)
 *
 * Invariant: a success has made every page behind the matrices read-only. */
#include "nn/lowbit_weights.h"
#include "autograd/lowbit.h"
#include "base/threads.h"
#include "nn/model_internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE = 64, STRIP = 16 /* outputs that are gathered from a transposed matrix at a time: a cache line of each row */ };

struct LowbitWeights {
  LowbitMatrix *list; /* [parameters of the model], those that were made filled */
  uint8_t *block;
  size_t bytes;
};

static size_t lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* The form a matrix is kept in where weights of `kind` are asked for; LOWBIT_NONE: it is not rounded. index: of the parameter. */
static LowbitKind lowbit_weights_kind(const Model *model, size_t index, LowbitKind kind) {
  const Param *param = &model->params.list[index];
  if (!param->narrow || param->optional || param->tensor.dims != 2 || param_inputs(param) > LOWBIT_MAX_INPUTS) return LOWBIT_NONE;
  return kind == LOWBIT_Q4_0 && model_is_vocabulary(model, index) ? LOWBIT_Q8_0 : kind;
}

static size_t matrix_bytes(LowbitKind kind, const Param *param) {
  const size_t numbers = lines(lowbit_row_bytes(kind, param_inputs(param)) * (size_t)param_outputs(param));
  return numbers + (kind == LOWBIT_INT8 ? lines((size_t)param_outputs(param) * sizeof(float)) : 0);
}

/* ---- one matrix ---- */

typedef struct Rounding {
  const Param *param;
  LowbitMatrix *matrix;
  uint8_t *numbers;
  float *scale;
  float *rows; /* [threads][STRIP, inputs] */
} Rounding;

static float number_of(const Tensor *tensor, int64_t i) {
  return tensor->narrow ? narrow_to_float(tensor->narrow_kind, tensor->narrow[i]) : (float)tensor->value[i];
}

static void round_body(void *context, int64_t begin, int64_t end, int thread) {
  const Rounding *job = context;
  const LowbitMatrix *matrix = job->matrix;
  const Tensor *tensor = &job->param->tensor;
  const int64_t inputs = matrix->inputs, outputs = matrix->outputs;
  const size_t row_bytes = lowbit_row_bytes(matrix->kind, inputs);
  float *rows = job->rows + thread * STRIP * inputs, unused;
  for (int64_t first = begin; first < end; first += STRIP) {
    const int64_t count = end - first < STRIP ? end - first : STRIP;
    if (job->param->transposed)
      for (int64_t i = 0; i < inputs; i++)
        for (int64_t o = 0; o < count; o++) rows[o * inputs + i] = number_of(tensor, i * outputs + first + o);
    else
      for (int64_t i = 0; i < count * inputs; i++) rows[i] = number_of(tensor, first * inputs + i);
    for (int64_t o = 0; o < count; o++)
      lowbit_quantise(matrix->kind, inputs, rows + o * inputs, job->numbers + (size_t)(first + o) * row_bytes,
                      job->scale ? job->scale + first + o : &unused);
  }
}

static Status make_matrix(Param *param, LowbitMatrix *matrix, uint8_t *place) {
  Rounding job = {.param = param, .matrix = matrix, .numbers = place};
  job.rows = malloc((size_t)threads_count() * STRIP * (size_t)matrix->inputs * sizeof *job.rows);
  if (job.rows == NULL) return status_no_memory(param->name, "rounding it");
  if (matrix->kind == LOWBIT_INT8)
    job.scale = (float *)(void *)(place + lines(lowbit_row_bytes(matrix->kind, matrix->inputs) * (size_t)matrix->outputs));
  matrix->numbers = place;
  matrix->scale = job.scale;
  threads_for(matrix->outputs, STRIP, round_body, &job);
  free(job.rows);
  return STATUS_OK;
}

/* ---- the model ---- */

static bool is_made(const Model *model, size_t index, LowbitKind kind) {
  return model->params.list[index].tensor.lowbit == NULL && lowbit_weights_kind(model, index, kind) != LOWBIT_NONE;
}

static Status make_all(LowbitWeights *weights, Model *model, LowbitKind kind) {
  for (size_t i = 0; i < model->params.count; i++) { /* both must have 8 bits, in any layout, or 4 */
    const LowbitMatrix *have = model->params.list[i].tensor.lowbit;
    if (have != NULL && (have->kind == LOWBIT_Q4_0) != (kind == LOWBIT_Q4_0) && !model_is_vocabulary(model, i))
      return status_set(STATUS_BAD_USAGE, "--weights int%d: %s has %d bits in the file already; leave the option out",
                        kind == LOWBIT_Q4_0 ? 4 : 8, model->params.list[i].name, have->kind == LOWBIT_Q4_0 ? 4 : 8);
  }
  weights->list = calloc(model->params.count + 1, sizeof *weights->list);
  for (size_t i = 0; i < model->params.count; i++)
    if (is_made(model, i, kind)) weights->bytes += matrix_bytes(lowbit_weights_kind(model, i, kind), &model->params.list[i]);
  if (weights->list == NULL) return status_no_memory(NULL, "a list of matrices");
  if (weights->bytes > 0) {
    void *block = mmap(NULL, weights->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return status_set(STATUS_NO_MEMORY, "no memory for %.1f MB of weights", (double)weights->bytes / 1e6);
    (void)madvise(block, weights->bytes, MADV_HUGEPAGE); /* advice */
    weights->block = block;
  }
  uint8_t *place = weights->block;
  for (size_t i = 0; i < model->params.count; i++) {
    Param *param = &model->params.list[i];
    if (!is_made(model, i, kind)) continue;
    const LowbitKind own = lowbit_weights_kind(model, i, kind);
    weights->list[i] = (LowbitMatrix){.kind = own, .outputs = param_outputs(param), .inputs = param_inputs(param)};
    TRY(make_matrix(param, &weights->list[i], place));
    place += matrix_bytes(own, param);
  }
  if (weights->block && mprotect(weights->block, weights->bytes, PROT_READ) != 0)
    return status_set(STATUS_IO, "cannot make the rounded weights read-only");
  return STATUS_OK;
}

Status lowbit_weights_make(Model *model, LowbitKind kind, LowbitWeights **made) {
  LowbitWeights *weights = calloc(1, sizeof *weights);
  *made = NULL;
  if (weights == NULL) return status_no_memory(NULL, "rounded weights");
  Status status = make_all(weights, model, kind);
  if (status != STATUS_OK) {
    lowbit_weights_free(weights);
    return status;
  }
  for (size_t i = 0; i < model->params.count; i++) {
    Tensor *tensor = &model->params.list[i].tensor;
    if (weights->list[i].kind == LOWBIT_NONE) continue;
    tensor->lowbit = &weights->list[i];
    tensor->value = NULL;
    tensor->narrow = NULL;
    tensor->narrow_kind = NARROW_NONE;
  }
  *made = weights;
  return STATUS_OK;
}

void lowbit_weights_free(LowbitWeights *weights) {
  if (weights == NULL) return;
  if (weights->block) munmap(weights->block, weights->bytes);
  free(weights->list);
  free(weights);
}

int64_t lowbit_weights_bytes(const Tensor *tensor) {
  const LowbitMatrix *matrix = tensor->lowbit;
  if (matrix == NULL) return tensor_count(tensor) * (int64_t)(tensor->narrow ? sizeof *tensor->narrow : sizeof *tensor->value);
  const int64_t scales = matrix->kind == LOWBIT_INT8 ? (int64_t)sizeof *matrix->scale : 0;
  return matrix->outputs * ((int64_t)lowbit_row_bytes(matrix->kind, matrix->inputs) + scales);
}

int64_t lowbit_weights_all_bytes(const Model *model) {
  int64_t bytes = 0;
  for (size_t i = 0; i < model->params.count; i++) bytes += lowbit_weights_bytes(&model->params.list[i].tensor);
  return bytes;
}

LowbitKind lowbit_weights_of(const Model *model) {
  for (size_t i = 0; i < model->params.count; i++)
    if (model->params.list[i].tensor.lowbit != NULL && !model_is_vocabulary(model, i)) return model->params.list[i].tensor.lowbit->kind;
  return LOWBIT_NONE;
}
