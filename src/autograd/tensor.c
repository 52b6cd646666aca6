/* Sizes of a tensor, from its shape. */
#include "autograd/tensor.h"

int64_t tensor_count(const Tensor *tensor) { return tensor_rows(tensor) * tensor_width(tensor); }

int64_t tensor_rows(const Tensor *tensor) {
  int64_t rows = 1;
  for (int d = 0; d + 1 < tensor->dims; d++) rows *= tensor->shape[d];
  return rows;
}

int64_t tensor_width(const Tensor *tensor) { return tensor->dims > 0 ? tensor->shape[tensor->dims - 1] : 1; }
