/* The basis that tokens are quantised in, as parameters of the model: see model.h. */
#include "autograd/kernels/matmul.h"
#include "nn/model_internal.h"
#include <stdlib.h>
#include <string.h>

/* A projection's weight [count, in] and bias [count] (zeroes where it has none), wherever and however they are stored. */
static void read_projection(Model *model, const Projection *projection, int64_t in, real *row, double *weight, double *bias) {
  const Tensor *from = model_param(model, projection->weight), *own = model_param(model, projection->bias);
  const LinearPart *part = &projection->part;
  const int64_t stride = tensor_width(from);
  for (int64_t r = 0; r < (part->transposed ? in : part->count); r++) {
    const int64_t at = part->transposed ? r * stride + part->first : (part->first + r) * stride;
    const int64_t numbers = part->transposed ? part->count : in;
    tensor_read(from, at, numbers, row);
    for (int64_t i = 0; i < numbers; i++) weight[part->transposed ? i * in + r : r * in + i] = (double)row[i];
  }
  memset(bias, 0, (size_t)part->count * sizeof *bias);
  if (own == NULL) return;
  tensor_read(own, part->first, part->count, row);
  for (int64_t i = 0; i < part->count; i++) bias[i] = (double)row[i];
}

/* Room for one projection of `kv` outputs, and a row of either side. */
typedef struct Room {
  double *weight, *bias; /* [kv, D], [kv] */
  real *row;
  int64_t width, kv;
} Room;

static Status room_new(Room *room, const ModelConfig *config) {
  const int64_t width = config->width, kv = width / config->heads * config->kv_heads;
  *room = (Room){malloc((size_t)(kv * width) * sizeof(double)), malloc((size_t)kv * sizeof(double)), malloc((size_t)width * sizeof(real)),
                 width, kv};
  return room->weight && room->bias && room->row ? STATUS_OK : status_no_memory(NULL, "a rotation");
}

static void room_free(Room *room) {
  free(room->weight);
  free(room->bias);
  free(room->row);
}

Status model_key_value_metric(Model *model, int64_t block, double *metric) {
  const Projection *const sides[] = {&model->block[block].key, &model->block[block].value};
  Room room;
  Status status = room_new(&room, &model->config);
  const int64_t n = model->config.width;
  memset(metric, 0, (size_t)(n * n) * sizeof *metric);
  for (int side = 0; side < 2 && status == STATUS_OK; side++) {
    read_projection(model, sides[side], n, room.row, room.weight, room.bias);
    for (int64_t o = 0; o < room.kv; o++) {
      const double *w = room.weight + o * n;
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) metric[i * n + j] += w[i] * w[j];
    }
  }
  room_free(&room);
  return status;
}

/* to <- the projection behind x = from y + mean: W from, and W mean + b. */
static void fold(Model *model, const Room *room, const double *from, const double *mean, const Projection *to) {
  const int64_t n = room->width;
  real *weight = model_param(model, to->weight)->value, *bias = model_param(model, to->bias)->value;
  for (int64_t o = 0; o < room->kv; o++) {
    const double *w = room->weight + o * n;
    double sum = room->bias[o];
    for (int64_t i = 0; i < n; i++) sum += w[i] * mean[i];
    bias[o] = (real)sum;
    for (int64_t j = 0; j < n; j++) {
      double product = 0;
      for (int64_t i = 0; i < n; i++) product += w[i] * from[i * n + j];
      weight[o * n + j] = (real)product;
    }
  }
}

Status model_set_rotation(Model *model, int64_t index, const double *to, const double *from, const double *mean) {
  const BlockParams *block = &model->block[index];
  Room room;
  Status status = room_new(&room, &model->config);
  const int64_t n = model->config.width;
  real *weight = model_param(model, block->rotation.weight)->value, *bias = model_param(model, block->rotation.bias)->value;
  for (int64_t i = 0; i < n && status == STATUS_OK; i++) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
      weight[i * n + j] = (real)to[i * n + j];
      sum -= to[i * n + j] * mean[j];
    }
    bias[i] = (real)sum;
  }
  if (status == STATUS_OK) {
    read_projection(model, &block->key, n, room.row, room.weight, room.bias);
    fold(model, &room, from, mean, &block->remote_key);
    read_projection(model, &block->value, n, room.row, room.weight, room.bias);
    fold(model, &room, from, mean, &block->remote_value);
  }
  room_free(&room);
  return status;
}

void model_set_prediction(Model *model, int64_t index, const double *weight) {
  const Projection *prediction = &model->block[index].prediction;
  const int64_t n = model->config.width;
  real *to = model_param(model, prediction->weight)->value;
  for (int64_t i = 0; i < n * n; i++) to[i] = (real)weight[i];
  memset(model_param(model, prediction->bias)->value, 0, (size_t)n * sizeof *to);
}

void model_expect(Model *model, int64_t index, const real *before, int64_t rows, real *expected) {
  const Projection *prediction = &model->block[index].prediction;
  const int64_t n = model->config.width;
  const real *bias = model_param(model, prediction->bias)->value;
  for (int64_t row = 0; row < rows; row++) memcpy(expected + row * n, bias, (size_t)n * sizeof *bias);
  matmul(false, true, rows, n, n, 1, before, n, model_param(model, prediction->weight)->value, n, 1, expected, n);
}
