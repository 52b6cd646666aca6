/* Matrices of 8 and 4 bits in files: see lowbit_checkpoint.h. */
#include "nn/lowbit_checkpoint.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static int64_t outputs_of(const Param *param) { return param->tensor.shape[param->transposed ? 1 : 0]; }
static int64_t inputs_of(const Param *param) { return param->tensor.shape[param->transposed ? 0 : 1]; }

static const char *lowbit_checkpoint_scale_name(char text[LOWBIT_SCALE_NAME], const Param *param) {
  snprintf(text, LOWBIT_SCALE_NAME, "%s_scale", param->name);
  return text;
}

static bool has_shape(const SafeTensor *tensor, int64_t rows, size_t row_bytes) {
  return tensor->dims == 2 && tensor->shape[0] == rows && tensor->shape[1] == (int64_t)row_bytes;
}

static LowbitKind kind_of(const Param *param, const SafeTensor *tensor) {
  static const LowbitKind blocks[] = {LOWBIT_Q8_0, LOWBIT_Q4_0};
  if (tensor->dtype == SAFE_I8) return has_shape(tensor, outputs_of(param), (size_t)inputs_of(param)) ? LOWBIT_INT8 : LOWBIT_NONE;
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    if (has_shape(tensor, outputs_of(param), lowbit_row_bytes(blocks[i], inputs_of(param)))) return blocks[i];
  return LOWBIT_NONE;
}

static Status bad_shape(const CheckpointFiles *files, const Param *param, const SafeTensor *tensor) {
  char have[SHAPE_TEXT];
  return status_set(
      STATUS_BAD_FILE,
      "%s: tensor %s of 8-bit numbers has shape %s; the model's %lld outputs of %lld inputs are I8 [%lld, %lld], or U8 [%lld, %zu] "
      "or [%lld, %zu] in blocks",
      files->path, param->name, checkpoint_shape_text(have, tensor->dims, tensor->shape), (long long)outputs_of(param),
      (long long)inputs_of(param), (long long)outputs_of(param), (long long)inputs_of(param), (long long)outputs_of(param),
      lowbit_row_bytes(LOWBIT_Q8_0, inputs_of(param)), (long long)outputs_of(param), lowbit_row_bytes(LOWBIT_Q4_0, inputs_of(param)));
}

static Status find_scale(const CheckpointFiles *files, const Param *param, const float **scale) {
  char name[LOWBIT_SCALE_NAME];
  const SafeTensor *tensor = checkpoint_files_find(files, lowbit_checkpoint_scale_name(name, param));
  const int64_t shape[] = {outputs_of(param)};
  if (tensor == NULL || tensor->dtype != SAFE_F32 || !checkpoint_same_shape(tensor, 1, shape))
    return status_set(STATUS_BAD_FILE,
                      "%s: tensor %s needs %s, F32 [%lld]: a scale for each output; write the file again with astra-quantize", files->path,
                      param->name, name, (long long)shape[0]);
  if ((uintptr_t)tensor->data % sizeof(float) != 0)
    return status_set(STATUS_BAD_FILE, "%s: tensor %s is not aligned; write the file again with astra-quantize", files->path, name);
  *scale = (const float *)(const void *)tensor->data;
  return STATUS_OK;
}

Status lowbit_checkpoint_find(const CheckpointFiles *files, const Param *param, const SafeTensor *tensor, LowbitMatrix *matrix) {
  *matrix = (LowbitMatrix){.kind = LOWBIT_NONE};
  if (tensor == NULL || tensor->lowbit != LOWBIT_NONE || (tensor->dtype != SAFE_I8 && tensor->dtype != SAFE_U8)) return STATUS_OK;
  if (!param->narrow || param->tensor.dims != 2) return STATUS_OK;
  const LowbitKind kind = kind_of(param, tensor);
  if (kind == LOWBIT_NONE) return bad_shape(files, param, tensor);
  if (inputs_of(param) > LOWBIT_MAX_INPUTS)
    return status_set(STATUS_BAD_FILE, "%s: tensor %s of 8-bit numbers has more than %d inputs", files->path, param->name,
                      LOWBIT_MAX_INPUTS);
  if (kind != LOWBIT_INT8 && (uintptr_t)tensor->data % sizeof(uint16_t) != 0)
    return status_set(STATUS_BAD_FILE, "%s: tensor %s is not aligned; write the file again with astra-quantize", files->path, param->name);
  const float *scale = NULL;
  if (kind == LOWBIT_INT8) TRY(find_scale(files, param, &scale));
  *matrix = (LowbitMatrix){kind, outputs_of(param), inputs_of(param), tensor->data, scale};
  return STATUS_OK;
}

Status lowbit_checkpoint_refuse(const CheckpointFiles *files, const Param *param) {
  return status_set(
      STATUS_BAD_FILE,
      "%s: tensor %s has 8 or 4 bits, which can be run but not trained from: use the checkpoint that astra-quantize was given", files->path,
      param->name);
}

static bool scales_are_finite(const LowbitMatrix *matrix, const SafeTensor *tensor) {
  bool finite = true;
  if (matrix->kind == LOWBIT_INT8) {
    for (int64_t o = 0; o < matrix->outputs; o++) finite &= isfinite(matrix->scale[o]) != 0;
    return finite;
  }
  for (size_t at = 0; at < tensor->bytes; at += lowbit_row_bytes(matrix->kind, LOWBIT_BLOCK)) {
    uint16_t half;
    memcpy(&half, tensor->data + at, sizeof half);
    finite &= (half & 0x7c00) != 0x7c00;
  }
  return finite;
}

Status lowbit_checkpoint_check(const CheckpointFiles *files, const Param *param, const SafeTensor *tensor, const LowbitMatrix *matrix) {
  char name[LOWBIT_SCALE_NAME];
  Status status = safetensors_verify(tensor);
  if (status == STATUS_OK && matrix->kind == LOWBIT_INT8)
    status = safetensors_verify(checkpoint_files_find(files, lowbit_checkpoint_scale_name(name, param)));
  if (status != STATUS_OK) return status_wrap(status, "%s", files->path);
  if (scales_are_finite(matrix, tensor)) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: the scales of tensor %s hold a NaN or an infinity", files->path, param->name);
}

size_t lowbit_checkpoint_items(const Param *param, char scale_name[LOWBIT_SCALE_NAME], SafeItem items[2]) {
  const LowbitMatrix *matrix = param->tensor.lowbit;
  const SafeDtype dtype = matrix->kind == LOWBIT_INT8 ? SAFE_I8 : SAFE_U8;
  items[0] = (SafeItem){.name = param->name,
                        .dtype = dtype,
                        .source = dtype,
                        .dims = 2,
                        .shape = {matrix->outputs, (int64_t)lowbit_row_bytes(matrix->kind, matrix->inputs)},
                        .data = matrix->numbers};
  if (matrix->kind != LOWBIT_INT8) return 1;
  items[1] = (SafeItem){.name = lowbit_checkpoint_scale_name(scale_name, param),
                        .dtype = SAFE_F32,
                        .source = SAFE_F32,
                        .dims = 1,
                        .shape = {matrix->outputs},
                        .data = matrix->scale};
  return 2;
}
