/* A Llama model as the GGUF file that llama.cpp's converter would make of it: its names, shapes, row order and keys; matrices in a type of
 * one's choice where their rows are whole blocks of it, else in F16. The encoders round to nearest; what they mean is written down once
 * more, number by number, in gguf_llama_number, from the format's definition. */
#ifndef UNIT_GGUF_LLAMA_H
#define UNIT_GGUF_LLAMA_H
#include "nn/model.h"
#include "nn/safetensors.h"
#include "unit/gguf_writer.h"
#include <math.h>

enum { GL_F32 = 0, GL_F16 = 1, GL_Q4_0 = 2, GL_Q8_0 = 8, GL_Q4_K = 12, GL_Q6_K = 14, GL_BF16 = 30 };

static inline int64_t gguf_llama_block(uint32_t type) {
  return type == GL_Q4_0 || type == GL_Q8_0 ? 32 : type == GL_Q4_K || type == GL_Q6_K ? 256 : 1;
}

static inline size_t gguf_llama_bytes(uint32_t type) {
  switch (type) {
  case GL_F32:
    return 4;
  case GL_Q4_0:
    return 18;
  case GL_Q8_0:
    return 34;
  case GL_Q4_K:
    return 144;
  case GL_Q6_K:
    return 210;
  default:
    return 2;
  }
}

static inline float gl_half(const uint8_t *at) {
  uint16_t bits;
  memcpy(&bits, at, sizeof bits);
  return narrow_half_to_float(bits);
}

static inline float gl_put_half(uint8_t *at, float value) {
  uint16_t bits = narrow_half(value);
  memcpy(at, &bits, sizeof bits);
  return narrow_half_to_float(bits);
}

/* ---- what a block means: number i of it */

static inline double gguf_llama_number(uint32_t type, const uint8_t *block, int i) {
  if (type == GL_Q8_0) return (double)gl_half(block) * (double)(int8_t)block[2 + i];
  if (type == GL_Q4_0) return (double)gl_half(block) * (double)((i < 16 ? block[2 + i] % 16 : block[2 + i - 16] / 16) - 8);
  if (type == GL_Q4_K) {
    const uint8_t *s = block + 4;
    int j = i / 32, pair = block[16 + 32 * (i / 64) + i % 32];
    int scale = j < 4 ? s[j] % 64 : s[j + 4] % 16 + 16 * (s[j - 4] / 64), min = j < 4 ? s[j + 4] % 64 : s[j + 4] / 16 + 16 * (s[j] / 64);
    return (double)gl_half(block) * scale * (j % 2 == 0 ? pair % 16 : pair / 16) - (double)gl_half(block + 2) * min;
  }
  int half = i / 128, k = i % 128, low = block[64 * half + k % 64], high = block[128 + 32 * half + k % 32];
  int q = (k < 64 ? low % 16 : low / 16) + 16 * (high / (1 << 2 * (k / 32)) % 4);
  return (double)gl_half(block + 208) * (int8_t)block[192 + i / 16] * (q - 32);
}

/* ---- encoders of one block */

static inline int gl_round(double value, int min, int max) {
  long rounded = lrint(value);
  return rounded < min ? min : rounded > max ? max : (int)rounded;
}

static inline void gl_encode_32(uint32_t type, const float *value, uint8_t *block) {
  float largest = 0;
  for (int i = 0; i < 32; i++)
    if (fabsf(value[i]) > fabsf(largest)) largest = value[i];
  float d = gl_put_half(block, type == GL_Q8_0 ? fabsf(largest) / 127 : largest / -8), per = d != 0 ? 1 / d : 0;
  if (type == GL_Q8_0)
    for (int i = 0; i < 32; i++) block[2 + i] = (uint8_t)gl_round((double)(value[i] * per), -127, 127);
  else
    for (int i = 0; i < 16; i++)
      block[2 + i] = (uint8_t)(gl_round((double)(value[i] * per), -8, 7) + 8 + 16 * (gl_round((double)(value[i + 16] * per), -8, 7) + 8));
}

static inline void gl_encode_q4_k(const float *value, uint8_t *block) {
  float min[8], span[8], max_min = 0, max_span = 0;
  for (int j = 0; j < 8; j++) {
    float low = 0, high = 0;
    for (int i = 0; i < 32; i++) low = fminf(low, value[32 * j + i]), high = fmaxf(high, value[32 * j + i]);
    min[j] = -low, span[j] = (high - low) / 15;
    max_min = fmaxf(max_min, min[j]), max_span = fmaxf(max_span, span[j]);
  }
  memset(block, 0, 144);
  float d = gl_put_half(block, max_span / 63), m = gl_put_half(block + 2, max_min / 63);
  uint8_t *s = block + 4;
  for (int j = 0; j < 8; j++) {
    int scale = d > 0 ? gl_round((double)(span[j] / d), 0, 63) : 0, offset = m > 0 ? gl_round((double)(min[j] / m), 0, 63) : 0;
    if (j < 4)
      s[j] |= (uint8_t)scale, s[j + 4] |= (uint8_t)offset;
    else
      s[j + 4] |= (uint8_t)(scale % 16 + 16 * (offset % 16)), s[j - 4] |= (uint8_t)(scale / 16 * 64), s[j] |= (uint8_t)(offset / 16 * 64);
    for (int i = 0; i < 32; i++) {
      float step = d * (float)scale;
      int q = step > 0 ? gl_round((double)((value[32 * j + i] + m * (float)offset) / step), 0, 15) : 0;
      block[16 + 32 * (j / 2) + i] |= (uint8_t)(j % 2 == 0 ? q : q * 16);
    }
  }
}

static inline void gl_encode_q6_k(const float *value, uint8_t *block) {
  float span[16], max = 0;
  memset(block, 0, 210);
  for (int j = 0; j < 16; j++) {
    span[j] = 0;
    for (int i = 0; i < 16; i++)
      if (fabsf(value[16 * j + i]) > fabsf(span[j])) span[j] = value[16 * j + i];
    span[j] /= -32, max = fmaxf(max, fabsf(span[j]));
  }
  float d = gl_put_half(block + 208, max / 127);
  for (int i = 0; i < 256; i++) {
    int scale = d > 0 ? gl_round((double)(span[i / 16] / d), -127, 127) : 0, half = i / 128, k = i % 128;
    float step = d * (float)scale;
    int q = (step != 0 ? gl_round((double)(value[i] / step), -32, 31) : 0) + 32;
    block[192 + i / 16] = (uint8_t)scale;
    block[64 * half + k % 64] |= (uint8_t)(k < 64 ? q % 16 : q % 16 * 16);
    block[128 + 32 * half + k % 32] |= (uint8_t)(q / 16 << 2 * (k / 32));
  }
}

/* count numbers, whole blocks. */
static inline void gguf_llama_encode(uint32_t type, const float *value, int64_t count, uint8_t *out) {
  for (int64_t at = 0; at < count; at += gguf_llama_block(type), out += gguf_llama_bytes(type)) {
    uint16_t bits = type == GL_F16 ? narrow_half(value[at]) : safetensors_float_to_bfloat(value[at]);
    if (type == GL_F32)
      memcpy(out, &value[at], 4);
    else if (type == GL_F16 || type == GL_BF16)
      memcpy(out, &bits, 2);
    else if (type == GL_Q4_K)
      gl_encode_q4_k(value + at, out);
    else if (type == GL_Q6_K)
      gl_encode_q6_k(value + at, out);
    else
      gl_encode_32(type, value + at, out);
  }
}

static inline double gguf_llama_decode(uint32_t type, const uint8_t *data, int64_t i) {
  const uint8_t *block = data + (size_t)(i / gguf_llama_block(type)) * gguf_llama_bytes(type);
  float single;
  uint32_t bits = 0;
  if (gguf_llama_block(type) > 1) return gguf_llama_number(type, block, (int)(i % gguf_llama_block(type)));
  if (type == GL_F16) return (double)gl_half(block);
  memcpy((uint8_t *)&bits + (type == GL_BF16 ? 2 : 0), block, gguf_llama_bytes(type));
  memcpy(&single, &bits, sizeof single);
  return (double)single;
}

/* ---- names, rows, keys */

static inline void gguf_llama_name(const char *ours, char name[64]) {
  static const char *const parts[][2] = {
      {"input_layernorm", "attn_norm"}, {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},   {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},    {"mlp.up_proj", "ffn_up"},           {"mlp.down_proj", "ffn_down"}};
  int block;
  if (strcmp(ours, "model.embed_tokens.weight") == 0) strcpy(name, "token_embd.weight");
  if (strcmp(ours, "model.norm.weight") == 0) strcpy(name, "output_norm.weight");
  if (strcmp(ours, "lm_head.weight") == 0) strcpy(name, "output.weight");
  if (sscanf(ours, "model.layers.%d", &block) != 1) return;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strstr(ours, parts[i][0])) snprintf(name, 64, "blk.%d.%s.weight", block, parts[i][1]);
}

/* Rows [heads][2][half] become [heads][half][2], as the converter's reshape(heads, 2, half, columns).swapaxes(1, 2) does. */
static inline void gguf_llama_pair_rows(const float *from, float *to, int64_t heads, int64_t rows, int64_t columns) {
  int64_t half = rows / heads / 2;
  for (int64_t h = 0; h < heads; h++)
    for (int64_t s = 0; s < 2; s++)
      for (int64_t i = 0; i < half; i++)
        memcpy(to + (h * 2 * half + 2 * i + s) * columns, from + (h * 2 * half + s * half + i) * columns, (size_t)columns * sizeof *to);
}

static inline uint32_t gguf_llama_type(const Tensor *tensor, uint32_t wanted) {
  if (tensor->dims == 1) return GL_F32;
  return tensor->shape[1] % gguf_llama_block(wanted) == 0 ? wanted : GL_F16;
}

static inline void gguf_llama_add(GgufWriter *writer, const ModelConfig *config, const Param *param, uint32_t type) {
  const Tensor *tensor = &param->tensor;
  int64_t count = tensor_count(tensor), columns = tensor->shape[tensor->dims - 1], rows = count / columns;
  float *value = malloc((size_t)count * sizeof *value), *paired = malloc((size_t)count * sizeof *paired);
  uint8_t *data = malloc((size_t)count * 4);
  char name[64] = "";
  if (!value || !paired || !data) abort();
  for (int64_t i = 0; i < count; i++) value[i] = (float)tensor->value[i];
  memcpy(paired, value, (size_t)count * sizeof *value);
  if (strstr(param->name, "q_proj")) gguf_llama_pair_rows(value, paired, config->heads, rows, columns);
  if (strstr(param->name, "k_proj")) gguf_llama_pair_rows(value, paired, config->kv_heads, rows, columns);
  type = gguf_llama_type(tensor, type);
  gguf_llama_encode(type, paired, count, data);
  gguf_llama_name(param->name, name);
  gguf_add_tensor(writer, name, type, tensor->dims, tensor->dims == 1 ? (int64_t[]){columns} : (int64_t[]){columns, rows}, data,
                  (size_t)(count / gguf_llama_block(type)) * gguf_llama_bytes(type));
  free(value);
  free(paired);
  free(data);
}

static inline void gguf_llama_add_keys(GgufWriter *writer, const ModelConfig *config) {
  gguf_add_text(writer, "general.architecture", "llama");
  gguf_add_text(writer, "general.name", "a test's");
  gguf_add_u32(writer, "llama.block_count", (uint32_t)config->blocks);
  gguf_add_u32(writer, "llama.context_length", (uint32_t)config->context);
  gguf_add_u32(writer, "llama.embedding_length", (uint32_t)config->width);
  gguf_add_u32(writer, "llama.feed_forward_length", (uint32_t)config->mlp);
  gguf_add_u32(writer, "llama.attention.head_count", (uint32_t)config->heads);
  gguf_add_u32(writer, "llama.attention.head_count_kv", (uint32_t)config->kv_heads);
  gguf_add_f32(writer, "llama.attention.layer_norm_rms_epsilon", (float)config->norm_eps);
  gguf_add_f32(writer, "llama.rope.freq_base", (float)config->rope.theta);
  gguf_add_u32(writer, "llama.rope.dimension_count", (uint32_t)(config->width / config->heads));
  gguf_add_u32(writer, "llama.vocab_size", (uint32_t)config->vocabulary);
}

/* The tensor that stands for rope_scaling of type llama3. */
static inline void gguf_llama_add_factors(GgufWriter *writer, const ModelConfig *config) {
  int64_t half = config->width / config->heads / 2;
  double plain[256], slowed[256];
  float factor[256];
  RopeConfig without = config->rope;
  without.llama3 = false;
  config_rope_frequencies(&without, 2 * half, plain);
  config_rope_frequencies(&config->rope, 2 * half, slowed);
  for (int64_t i = 0; i < half; i++) factor[i] = (float)(plain[i] / slowed[i]);
  gguf_add_tensor(writer, "rope_freqs.weight", GL_F32, 1, (int64_t[]){half}, factor, (size_t)half * sizeof *factor);
}

/* All of a model whose parameters have values; keys of a tokenizer may follow. */
static inline void gguf_llama_write(GgufWriter *writer, Model *model, uint32_t type) {
  const ModelConfig *config = model_config(model);
  const ParamSet *set = model_params(model);
  gguf_llama_add_keys(writer, config);
  if (config->rope.llama3) gguf_llama_add_factors(writer, config);
  for (size_t i = 0; i < set->count; i++) gguf_llama_add(writer, config, &set->list[i], type);
}

#endif
