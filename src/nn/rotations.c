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

/* Room for one projection, and a row of either side. */
typedef struct Room {
  double *weight, *bias; /* [outputs, inputs], [outputs] */
  real *row;
  int64_t outputs, inputs;
} Room;

static Status room_new(Room *room, int64_t outputs, int64_t inputs) {
  const int64_t longest = outputs > inputs ? outputs : inputs;
  *room = (Room){.weight = malloc((size_t)(outputs * inputs) * sizeof(double)),
                 .bias = malloc((size_t)outputs * sizeof(double)),
                 .row = malloc((size_t)longest * sizeof(real)),
                 .outputs = outputs,
                 .inputs = inputs};
  return room->weight && room->bias && room->row ? STATUS_OK : status_no_memory(NULL, "a rotation");
}

static void room_free(Room *room) {
  free(room->weight);
  free(room->bias);
  free(room->row);
}

/* metric [n, n] += w w^T */
static void add_outer(int64_t n, const double *w, double *metric, int64_t stride) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) metric[i * stride + j] += w[i] * w[j];
}

static Status input_metric(Model *model, const BlockParams *block, double *metric) {
  const Projection *const sides[] = {&block->key, &block->value};
  const int64_t n = model->config.width, outputs = config_kv_width(&model->config);
  Room room;
  Status status = room_new(&room, outputs, n);
  for (int side = 0; side < 2 && status == STATUS_OK; side++) {
    read_projection(model, sides[side], n, room.row, room.weight, room.bias);
    for (int64_t o = 0; o < outputs; o++) add_outer(n, room.weight + o * n, metric, n);
  }
  room_free(&room);
  return status;
}

/* Second moments of queries, [d, d] for each kv head on the diagonal of metric. */
static Status key_metric(Model *model, const BlockParams *block, double *metric) {
  const ModelConfig *c = &model->config;
  const int64_t n = c->width, d = n / c->heads, shared = c->heads / c->kv_heads, stride = config_kv_width(c);
  const Tensor *scale = model_param(model, block->norm1_weight), *shift = model_param(model, block->norm1_bias);
  Room room;
  double *column = malloc((size_t)d * sizeof *column);
  Status status = room_new(&room, n, n);
  if (column == NULL && status == STATUS_OK) status = status_no_memory(NULL, "a rotation");
  if (status == STATUS_OK) read_projection(model, &block->query, n, room.row, room.weight, room.bias);
  for (int64_t h = 0; h < c->heads && status == STATUS_OK; h++) {
    const int64_t first = h * d;
    double *of_head = metric + h / shared * d * (stride + 1);
    for (int64_t i = 0; i < n; i++) {
      real factor, offset = 0;
      tensor_read(scale, i, 1, &factor);
      if (shift != NULL) tensor_read(shift, i, 1, &offset);
      for (int64_t o = 0; o < d; o++) {
        column[o] = room.weight[(first + o) * n + i] * (double)factor;
        room.bias[first + o] += room.weight[(first + o) * n + i] * (double)offset;
      }
      add_outer(d, column, of_head, stride);
    }
    add_outer(d, room.bias + first, of_head, stride);
  }
  free(column);
  room_free(&room);
  return status;
}

static Status value_metric(Model *model, const BlockParams *block, double *metric) {
  const ModelConfig *c = &model->config;
  const int64_t n = c->width, d = n / c->heads, shared = c->heads / c->kv_heads, stride = config_kv_width(c);
  Room room;
  Status status = room_new(&room, n, n);
  if (status == STATUS_OK) read_projection(model, &block->output, n, room.row, room.weight, room.bias);
  for (int64_t h = 0; h < c->heads && status == STATUS_OK; h++)
    for (int64_t o = 0; o < n; o++) add_outer(d, room.weight + o * n + h * d, metric + h / shared * d * (stride + 1), stride);
  room_free(&room);
  return status;
}

Status model_rotation_metric(Model *model, int64_t block, int site, double *metric) {
  const BlockParams *params = &model->block[block];
  const int64_t width = config_site_width(&model->config);
  memset(metric, 0, (size_t)(width * width) * sizeof *metric);
  if (model->config.astra.site == SITE_X) return input_metric(model, params, metric);
  if (site == 1) return value_metric(model, params, metric);
  TRY(key_metric(model, params, metric));
  if (model->rope.cosine == NULL) return STATUS_OK;
  /* Their mean over all angles by which rotary positions turn numbers i and i + d / 2 of each head. */
  const int64_t d = model->config.width / model->config.heads;
  for (int64_t i = 0; i < width * width; i++)
    if (i / width != i % width) metric[i] = 0;
  for (int64_t i = 0; i < width; i++) {
    if (i % d >= d / 2) continue;
    double *one = metric + i * (width + 1), *other = metric + (i + d / 2) * (width + 1);
    *one = *other = (*one + *other) / 2;
  }
  return STATUS_OK;
}

/* to <- the projection behind x = from y + mean: W from, and W mean + b. */
static void fold(Model *model, const Room *room, const double *from, const double *mean, const Projection *to) {
  const int64_t n = room->inputs;
  real *weight = model_param(model, to->weight)->value, *bias = model_param(model, to->bias)->value;
  for (int64_t o = 0; o < room->outputs; o++) {
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

Status model_set_rotation(Model *model, int64_t index, int site, const double *to, const double *from, const double *mean) {
  const BlockParams *block = &model->block[index];
  const bool site_x = model->config.astra.site == SITE_X;
  const int64_t n = config_site_width(&model->config);
  const Projection *rotation = site == 0 ? &block->rotation : &block->rotation_value;
  const Projection *const plain[] = {&block->key, &block->value}, *const remote[] = {&block->remote_key, &block->remote_value};
  real *weight = model_param(model, rotation->weight)->value, *bias = model_param(model, rotation->bias)->value;
  Room room;
  Status status = room_new(&room, config_kv_width(&model->config), n);
  for (int64_t i = 0; i < n && status == STATUS_OK; i++) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
      weight[i * n + j] = (real)to[i * n + j];
      sum -= to[i * n + j] * mean[j];
    }
    bias[i] = (real)sum;
  }
  for (int side = 0; side < 2 && status == STATUS_OK; side++) {
    if (!site_x && side != site) continue;
    if (site_x) {
      read_projection(model, plain[side], n, room.row, room.weight, room.bias);
    } else { /* what is rotated are keys or values already: W = 1 */
      memset(room.bias, 0, (size_t)n * sizeof *room.bias);
      for (int64_t i = 0; i < n * n; i++) room.weight[i] = i / n == i % n;
    }
    fold(model, &room, from, mean, remote[side]);
  }
  room_free(&room);
  return status;
}

static const Projection *prediction_of(const Model *model, int64_t index, int site) {
  return site == 0 ? &model->block[index].prediction : &model->block[index].prediction_value;
}

void model_set_prediction(Model *model, int64_t index, int site, const double *weight, const double *bias) {
  const Projection *prediction = prediction_of(model, index, site);
  Tensor *to = model_param(model, prediction->weight), *offset = model_param(model, prediction->bias);
  for (int64_t i = 0; i < tensor_count(to); i++) to->value[i] = (real)weight[i];
  for (int64_t i = 0; i < tensor_count(offset); i++) offset->value[i] = bias != NULL ? (real)bias[i] : 0;
}

void model_set_position_mean(Model *model, int64_t index, int site, const double *means) {
  Tensor *table = model_param(model, model->block[index].position_mean[site]);
  const int64_t width = tensor_width(table);
  memset(table->value, 0, (size_t)width * sizeof *table->value); /* of a class token nothing is known */
  for (int64_t i = width; i < tensor_count(table); i++) table->value[i] = (real)means[i - width];
}

const real *model_position_mean(Model *model, int64_t index, int site) {
  const Tensor *table = model_param(model, model->block[index].position_mean[site]);
  return table->value + tensor_width(table); /* behind the class token's */
}

void model_expect(Model *model, int64_t index, int site, const real *before, int64_t rows, real *expected) {
  const Projection *prediction = prediction_of(model, index, site);
  const Tensor *weight = model_param(model, prediction->weight);
  const int64_t n = weight->shape[0], inputs = weight->shape[1];
  const real *bias = model_param(model, prediction->bias)->value;
  for (int64_t row = 0; row < rows; row++) memcpy(expected + row * n, bias, (size_t)n * sizeof *bias);
  matmul(false, true, rows, n, inputs, 1, before, inputs, weight->value, inputs, 1, expected, n);
}
