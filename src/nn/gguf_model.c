/* A Llama model in a GGUF file: see gguf_model.h. Two passes over the tensors: which there are and which of them need a place of their own,
 * then these are written into one shared block, each on a cache line, which is made read-only: processes that are forked later share it as
 * they share the file. Left out: the container (base/gguf.h) and the tokenizer (data/tokenizer/tokenizer_llama.c). */
#include "nn/gguf_model.h"
#include "autograd/lowbit.h"
#include "autograd/narrow.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- Configuration ---- */

/* A setting that would change the result and is not supported is refused; unknown keys are ignored, as they are many and mostly say where
 * the model comes from. */

enum { MAX_HEAD = 4096 }; /* width of a head whose rotary factors are checked */

static Status missing(const GgufFile *file, const char *key) {
  return status_set(STATUS_BAD_FILE, "%s: the metadata key %s is missing; is this the file of a whole Llama model?", file->path, key);
}

static Status required(const GgufFile *file, const char *key, int64_t *out) {
  return gguf_entry(file, key) ? gguf_whole(file, key, out) : missing(file, key);
}

static Status check_kind(const GgufFile *file) {
  GgufText architecture = {0};
  int64_t parts = 1, experts = 0;
  bool causal = true;
  TRY(gguf_text(file, "general.architecture", &architecture));
  TRY(gguf_whole(file, "split.count", &parts));
  TRY(gguf_whole(file, "llama.expert_count", &experts));
  TRY(gguf_flag(file, "llama.attention.causal", &causal));
  if (!architecture.bytes) return missing(file, "general.architecture");
  if (!gguf_text_is(architecture, "llama"))
    return status_set(STATUS_UNSUPPORTED, "%s: a model of architecture '%.*s'; of GGUF files those of architecture llama are supported",
                      file->path, architecture.size < 40 ? (int)architecture.size : 40, architecture.bytes);
  if (parts > 1)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: one of %lld parts of a model; join them first: llama-gguf-split --merge FIRST-PART WHOLE.gguf", file->path,
                      (long long)parts);
  if (experts > 0) return status_set(STATUS_UNSUPPORTED, "%s: a mixture of %lld experts is not supported", file->path, (long long)experts);
  if (causal) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED, "%s: attention to later tokens (llama.attention.causal false) is not supported", file->path);
}

/* ---- rotary positions */

/* Whether these settings divide the frequencies by the factors of the file, to a float's precision. */
static bool explains(const RopeConfig *rope, int64_t head, const float *factor) {
  double plain[MAX_HEAD / 2], slowed[MAX_HEAD / 2];
  RopeConfig without = *rope;
  without.llama3 = false;
  config_rope_frequencies(&without, head, plain);
  config_rope_frequencies(rope, head, slowed);
  for (int64_t i = 0; i < head / 2; i++)
    if (!(fabs(plain[i] / slowed[i] - (double)factor[i]) <= 1e-5 * plain[i] / slowed[i])) return false; /* nor by one that is infinite */
  return true;
}

/* The file has a factor for each frequency where config.json has what they follow from: those settings are looked for among the published
 * ones, since they can be stated exactly. */
static Status find_llama3(const GgufFile *file, int64_t head, const float *factor, RopeConfig *rope) {
  double largest = 1;
  bool ones = true; /* nothing is slowed down */
  int64_t original = 8192;
  TRY(gguf_whole(file, "llama.rope.scaling.original_context_length", &original));
  for (int64_t i = 0; i < head / 2; i++) {
    if ((double)factor[i] > largest) largest = (double)factor[i]; /* with fmax gcc 12 for arm64 fails on this loop */
    ones = ones && factor[i] == 1;
  }
  if (ones) return STATUS_OK;
  const double factors[] = {largest, 8, 32}; /* a small head may have no frequency that is slowed down in full */
  const int64_t originals[] = {original, 8192};
  for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
    for (size_t j = 0; j < sizeof originals / sizeof *originals; j++) {
      RopeConfig tried = {rope->theta, true, factors[i], 1, 4, originals[j]};
      if (originals[j] > 0 && explains(&tried, head, factor)) return *rope = tried, STATUS_OK;
    }
  return status_set(STATUS_UNSUPPORTED,
                    "%s: the factors of rotary frequencies in tensor rope_freqs.weight are not those of Llama 3 (low_freq_factor 1, "
                    "high_freq_factor 4)",
                    file->path);
}

static Status read_rope(const GgufFile *file, ModelConfig *config) {
  static const char *const widths[] = {"llama.rope.dimension_count", "llama.attention.key_length", "llama.attention.value_length"};
  if (config->heads < 1 || config->width < config->heads) return STATUS_OK; /* config_check says so */
  const int64_t head = config->width / config->heads;
  TRY(gguf_number(file, "llama.rope.freq_base", &config->rope.theta));
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    int64_t given = head;
    TRY(gguf_whole(file, widths[i], &given));
    if (given != head)
      return status_set(STATUS_UNSUPPORTED, "%s: %s is %lld; only embedding_length / attention.head_count = %lld is supported", file->path,
                        widths[i], (long long)given, (long long)head);
  }
  GgufText type = {"linear", 6}; /* what a factor without a type means, also under its older name; 0 and 1 scale nothing */
  double scaling = 0;
  TRY(gguf_text(file, "llama.rope.scaling.type", &type));
  TRY(gguf_number(file, "llama.rope.scale_linear", &scaling));
  TRY(gguf_number(file, "llama.rope.scaling.factor", &scaling));
  if (!gguf_text_is(type, "none") && !(gguf_text_is(type, "linear") && (scaling == 0 || scaling == 1)))
    return status_set(STATUS_UNSUPPORTED,
                      "%s: rotary positions scaled by '%.*s' are not supported; Llama 3's (tensor rope_freqs.weight) are", file->path,
                      type.size < 40 ? (int)type.size : 40, type.bytes);
  const GgufTensor *tensor = gguf_tensor(file, "rope_freqs.weight");
  float factor[MAX_HEAD / 2];
  if (!tensor) return STATUS_OK;
  if (tensor->type != GGUF_DATA_F32 || tensor->count != head / 2 || head > MAX_HEAD)
    return status_set(STATUS_BAD_FILE, "%s: tensor rope_freqs.weight has %lld numbers of type %s, expected %lld of F32", file->path,
                      (long long)tensor->count, tensor->format->name, (long long)head / 2);
  memcpy(factor, tensor->data, tensor->bytes);
  return find_llama3(file, head, factor, &config->rope);
}

/* ---- the rest */

static Status read_network(const GgufFile *file, ModelConfig *config) {
  static const char *const eps = "llama.attention.layer_norm_rms_epsilon";
  char text[32];
  int64_t window = 0;
  TRY(required(file, "llama.embedding_length", &config->width));
  TRY(required(file, "llama.block_count", &config->blocks));
  TRY(required(file, "llama.attention.head_count", &config->heads));
  TRY(required(file, "llama.feed_forward_length", &config->mlp));
  config->kv_heads = config->heads;
  TRY(gguf_whole(file, "llama.attention.head_count_kv", &config->kv_heads));
  TRY(required(file, "llama.context_length", &config->context));
  TRY(gguf_whole(file, "llama.attention.sliding_window", &window));
  if (window > 0 && window < config->context) config->context = window; /* within the window attention is the ordinary one */
  if (!gguf_entry(file, eps)) return missing(file, eps);
  TRY(gguf_number(file, eps, &config->norm_eps));
  snprintf(text, sizeof text, "%.7g", config->norm_eps); /* a float that stands for a decimal number, such as 1e-5: that number */
  config->norm_eps = strtod(text, NULL);
  return STATUS_OK;
}

static Status read_ids(const GgufFile *file, ModelConfig *config) {
  static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
  TRY(gguf_whole(file, "tokenizer.ggml.bos_token_id", &config->begin_id));
  TRY(gguf_whole(file, "tokenizer.ggml.padding_token_id", &config->pad_id));
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    int64_t id = -1;
    TRY(gguf_whole(file, ends[i], &id));
    bool known = id < 0;
    for (int j = 0; j < config->end_ids; j++) known |= config->end_id[j] == id;
    if (!known) config->end_id[config->end_ids++] = id;
  }
  return STATUS_OK;
}

static Status read_config(const GgufFile *file, ModelConfig *config) {
  TRY(check_kind(file));
  config_defaults(config, MODEL_LLAMA);
  config->end_ids = 0;
  TRY(read_network(file, config));
  TRY(read_rope(file, config));
  const GgufTensor *table = gguf_tensor(file, "token_embd.weight");
  if (!table || table->dims != 2)
    return status_set(STATUS_BAD_FILE, "%s: there is no tensor token_embd.weight of two dimensions", file->path);
  config->vocabulary = table->shape[1];
  config->tied = !gguf_tensor(file, "output.weight");
  TRY(read_ids(file, config));
  return config_check_file(config, file->path);
}

Status gguf_model_config(ModelConfig *config, const GgufFile *file) {
  memset(config, 0, sizeof *config);
  Status status = read_config(file, config);
  if (status != STATUS_OK) config_release(config);
  return status;
}

/* ---- Blocks of numbers ---- */

/* Blocks of 256 numbers of GGUF files (ggml's "K-quants"), and their conversion to the blocks that are computed with. Fields in their order
 * in the file, d and dmin half-precision, little-endian:
 *
 *   Q4_K  144 bytes: d, dmin, 12 bytes of scales, 128 bytes of numbers   w = d s q - dmin m     s, m in 0..63 for 32 numbers, q in 0..15
 *   Q6_K  210 bytes: 128 bytes of low, 64 of high bits, 16 int8 scales, d     w = d s (q - 32)       s for 16 numbers, q in 0..63
 *
 *   q of Q4_K, number i:  low nibble of byte 32 (i / 64) + i % 32 where i / 32 is even, else the high one
 *   q of Q6_K, number i of each half of 128:  low 4 bits from byte 64 half + i % 64, its low nibble where i < 64, else the high one;
 *                                             high 2 bits from byte 32 half + i % 32, bits 2 (i / 32) and the next
 *   s_j of Q4_K, bytes b, j < 4:  b[j] & 63, m_j:  b[j + 4] & 63;  j >= 4:  the nibbles of b[j + 4] (s low, m high) with bits 6 and 7 of
 *   b[j - 4] (s) and of b[j] (m) above them */

/* A few operations per number, once per load: written to be read; the inner loops run over 32 or 16 neighbours. */

enum { GGUF_BLOCK = 256 };

static float half_at(const uint8_t *bytes) {
  uint16_t half;
  memcpy(&half, bytes, sizeof half);
  return narrow_half_to_float(half);
}

static void widen_q4(const uint8_t *block, float *value) {
  const float d = half_at(block), min = half_at(block + 2);
  const uint8_t *b = block + 4, *numbers = block + 16;
  for (int j = 0; j < GGUF_BLOCK / 32; j++) {
    /* Scale and minimum of 32 numbers, of 6 bits each: the last four pairs are spread over all twelve bytes. */
    const int scale = j < 4 ? b[j] & 63 : (b[j + 4] & 15) | (b[j - 4] >> 6) << 4;
    const int minimum = j < 4 ? b[j + 4] & 63 : b[j + 4] >> 4 | (b[j] >> 6) << 4;
    const float step = d * (float)scale, offset = min * (float)minimum;
    const uint8_t *pairs = numbers + 32 * (j / 2);
    for (int i = 0; i < 32; i++) value[32 * j + i] = step * (float)(pairs[i] >> 4 * (j % 2) & 15) - offset;
  }
}

static void widen_q6(const uint8_t *block, float *value) {
  const uint8_t *low = block, *high = block + 128;
  const int8_t *scales = (const int8_t *)block + 192;
  const float d = half_at(block + 208);
  for (int j = 0; j < GGUF_BLOCK / 16; j++) {
    const int half = j / 8, first = 16 * (j % 8); /* of 16 numbers in a half of 128 */
    const uint8_t *nibbles = low + 64 * half + first % 64, *pairs = high + 32 * half + first % 32;
    const int low_shift = first < 64 ? 0 : 4, high_shift = 2 * (first / 32);
    const float step = d * (float)scales[j];
    for (int i = 0; i < 16; i++) {
      const int q = (nibbles[i] >> low_shift & 15) | (pairs[i] >> high_shift & 3) << 4;
      value[16 * j + i] = step * (float)(q - 32);
    }
  }
}

/* value [GGUF_BLOCK] of one block of type GGUF_DATA_Q4_K or GGUF_DATA_Q6_K, computed in float. */
static void widen_block(uint32_t type, const uint8_t *block, float *value) {
  if (type == GGUF_DATA_Q4_K)
    widen_q4(block, value);
  else
    widen_q6(block, value);
}

/* count numbers, a multiple of LOWBIT_BLOCK, to blocks of 8 bits: the scale is the largest magnitude / 127 as a half, numbers are rounded
 * to nearest. Numbers that are not finite, or too large for it, make a scale that is not finite.
 * Magnitudes are compared as whole numbers, which orders infinities and NaNs above all others, and rounded by an addition: every load of a
 * file runs through here for billions of numbers, and such loops become vector instructions. */
static void block_to_q8(const float *value, int64_t count, LowbitQ8Block *out) {
  const float rounding = 0x1.8p23f; /* a float of this size has its last bit at 1 */
  for (; count > 0; count -= LOWBIT_BLOCK, value += LOWBIT_BLOCK, out++) {
    uint32_t bits = 0;
    for (int i = 0; i < LOWBIT_BLOCK; i++) {
      const uint32_t magnitude = narrow_bits_of_float(value[i]) & 0x7fffffffu;
      bits = magnitude > bits ? magnitude : bits;
    }
    const float largest = narrow_float_of_bits(bits);
    out->scale = lowbit_q8_scale(narrow_half(largest / 127), largest);
    const float scale = narrow_half_to_float(out->scale), per = isfinite(scale) && scale > 0 ? 1 / scale : 0;
    for (int i = 0; i < LOWBIT_BLOCK; i++) out->number[i] = (int8_t)(uint8_t)narrow_bits_of_float(value[i] * per + rounding);
  }
}

/* ---- Tensors ---- */

enum { NAME = 96, LINE = 64 };

typedef struct Rename {
  const char *from, *to; /* NULL: known, and not used as a parameter */
} Rename;

static const Rename outer[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}, {"rope_freqs", NULL}, {NULL, NULL}};
static const Rename inner[] = {{"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
                               {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
                               {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
                               {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
                               {"ffn_down", "mlp.down_proj"},       {NULL, NULL}};

typedef struct Source {
  const GgufTensor *tensor;
  char name[NAME];
  int64_t heads; /* whose rows are paired; 0: rows stay */
} Source;

/* ---- names */

/* PART.weight in the list; false: not there. */
static bool rename_part(const Rename *list, const char *part, const char **to) {
  for (; list->from; list++) {
    size_t length = strlen(list->from);
    if (strncmp(part, list->from, length) == 0 && strcmp(part + length, ".weight") == 0) return *to = list->to, true;
  }
  return false;
}

/* *used false: a known tensor that is no parameter. */
static Status rename_tensor(const GgufFile *file, const ModelConfig *config, Source *source, bool *used) {
  const char *name = source->tensor->name, *to = NULL;
  int block, digits = 0;
  bool known;
  source->heads = 0;
  if (sscanf(name, "blk.%6d.%n", &block, &digits) == 1 && digits > 0 && block >= 0) {
    known = rename_part(inner, name + digits, &to);
    if (known && to) snprintf(source->name, NAME, "model.layers.%d.%s.weight", block, to);
    if (known && strcmp(to, "self_attn.q_proj") == 0) source->heads = config->heads;
    if (known && strcmp(to, "self_attn.k_proj") == 0) source->heads = config->kv_heads;
  } else {
    known = rename_part(outer, name, &to);
    if (known && to) snprintf(source->name, NAME, "%s.weight", to);
  }
  *used = to != NULL;
  if (known) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED, "%s: tensor %s is none of a Llama model's; models with biases or other additions are not supported",
                    file->path, name);
}

/* ---- kinds of numbers */

static LowbitKind lowbit_of(uint32_t type) {
  return type == GGUF_DATA_Q4_0                                                       ? LOWBIT_Q4_0
         : type == GGUF_DATA_Q8_0 || type == GGUF_DATA_Q4_K || type == GGUF_DATA_Q6_K ? LOWBIT_Q8_0
                                                                                      : LOWBIT_NONE;
}

static bool is_converted(uint32_t type) { return type == GGUF_DATA_Q4_K || type == GGUF_DATA_Q6_K; }

static Status check_type(const GgufFile *file, const GgufTensor *tensor, SafeDtype *dtype) {
  *dtype = tensor->type == GGUF_DATA_F32 ? SAFE_F32 : tensor->type == GGUF_DATA_F16 ? SAFE_F16 : SAFE_BF16;
  if (tensor->type == GGUF_DATA_F32 || tensor->type == GGUF_DATA_F16 || tensor->type == GGUF_DATA_BF16) return STATUS_OK;
  if (lowbit_of(tensor->type) != LOWBIT_NONE && tensor->dims == 2) return STATUS_OK;
  if (lowbit_of(tensor->type) != LOWBIT_NONE)
    return status_set(STATUS_UNSUPPORTED, "%s: tensor %s of %d dimension(s) is stored as %s; only matrices may be", file->path,
                      tensor->name, tensor->dims, tensor->format->name);
  return status_set(STATUS_UNSUPPORTED,
                    "%s: tensor %s is stored as %s; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K: convert the file with "
                    "'llama-quantize --allow-requantize FILE.gguf NEW.gguf Q8_0' (or from the original model, which loses less)",
                    file->path, tensor->name, tensor->format->name);
}

/* ---- tensors */

/* Also blocks at an odd address, which the file's general.alignment may ask for: no struct begins there. */
static bool needs_place(const Source *source) {
  const GgufTensor *tensor = source->tensor;
  bool odd = lowbit_of(tensor->type) != LOWBIT_NONE && (uintptr_t)tensor->data % sizeof(uint16_t) != 0;
  return source->heads > 0 || is_converted(tensor->type) || odd;
}

static Status describe(const GgufFile *file, const Source *source, SafeTensor *out) {
  const GgufTensor *tensor = source->tensor;
  TRY(check_type(file, tensor, &out->dtype));
  out->dims = tensor->dims;
  for (int i = 0; i < tensor->dims; i++) out->shape[i] = tensor->shape[tensor->dims - 1 - i];
  out->count = tensor->count;
  out->lowbit = lowbit_of(tensor->type);
  out->data = tensor->data;
  out->bytes = is_converted(tensor->type) ? (size_t)out->shape[0] * lowbit_row_bytes(LOWBIT_Q8_0, out->shape[1]) : tensor->bytes;
  if (source->heads == 0 || (tensor->dims == 2 && out->shape[0] % (2 * source->heads) == 0)) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: the rows of tensor %s are not those of %lld heads", file->path, tensor->name,
                    (long long)source->heads);
}

static void write_rows(const Source *source, const SafeTensor *tensor, uint8_t *to) {
  const uint32_t type = source->tensor->type;
  const int64_t rows = tensor->shape[0], head = source->heads ? rows / source->heads : 0;
  size_t from_bytes = source->tensor->bytes / (size_t)rows, to_bytes = tensor->bytes / (size_t)rows;
  for (int64_t row = 0; row < rows; row++, to += to_bytes) {
    const int64_t in_head = head ? row % head : 0; /* rows of a head come in pairs: gguf_model.h */
    const int64_t in_file = head ? row - in_head + 2 * (in_head % (head / 2)) + in_head / (head / 2) : row;
    const uint8_t *from = source->tensor->data + (size_t)in_file * from_bytes;
    LowbitQ8Block *block = (LowbitQ8Block *)(void *)to;
    float value[GGUF_BLOCK];
    if (!is_converted(type)) memcpy(to, from, to_bytes);
    for (int64_t at = 0; is_converted(type) && at < source->tensor->shape[0]; at += GGUF_BLOCK) {
      widen_block(type, from, value);
      block_to_q8(value, GGUF_BLOCK, block);
      from += source->tensor->format->bytes, block += GGUF_BLOCK / LOWBIT_BLOCK;
    }
  }
}

static Status fill_block(SafeFile *file, const Source *sources) {
  for (size_t i = 0; i < file->count; i++)
    if (needs_place(&sources[i])) file->block_bytes += (file->list[i].bytes + LINE - 1) / LINE * LINE;
  if (file->block_bytes == 0) return STATUS_OK;
  void *block = mmap(NULL, file->block_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED)
    return status_set(STATUS_NO_MEMORY, "%s: no memory for %.1f MB of weights", file->path, (double)file->block_bytes / 1e6);
  file->block = block;
  uint8_t *place = block;
  for (size_t i = 0; i < file->count; i++) {
    SafeTensor *tensor = &file->list[i];
    if (!needs_place(&sources[i])) continue;
    write_rows(&sources[i], tensor, place);
    tensor->data = place;
    place += (tensor->bytes + LINE - 1) / LINE * LINE;
  }
  if (mprotect(block, file->block_bytes, PROT_READ) == 0) return STATUS_OK;
  return status_set(STATUS_IO, "%s: cannot make the weights read-only", file->path);
}

static int by_name(const void *a, const void *b) { return strcmp(((const Source *)a)->name, ((const Source *)b)->name); }

static Status gather(SafeFile *file, const GgufFile *gguf, const ModelConfig *config, Source *sources) {
  size_t count = 0, text = 0;
  for (size_t i = 0; i < gguf->tensor_count; i++) {
    bool used;
    sources[count].tensor = &gguf->tensors[i];
    TRY(rename_tensor(gguf, config, &sources[count], &used));
    count += used;
  }
  qsort(sources, count, sizeof *sources, by_name);
  for (; file->count < count; file->count++) {
    SafeTensor *tensor = &file->list[file->count];
    const Source *source = &sources[file->count];
    if (file->count > 0 && by_name(source, source - 1) == 0)
      return status_set(STATUS_BAD_FILE, "%s: tensors %s and %s are the same parameter", file->path, source[-1].tensor->name,
                        source->tensor->name);
    TRY(describe(gguf, source, tensor));
    tensor->name = strcpy(file->text + text, source->name);
    text += strlen(source->name) + 1;
  }
  return STATUS_OK;
}

static Status make(SafeFile *file, const GgufFile *gguf) {
  ModelConfig config;
  TRY(gguf_model_config(&config, gguf));
  Source *sources = calloc(gguf->tensor_count + 1, sizeof *sources);
  file->path = strdup(gguf->path);
  file->list = calloc(gguf->tensor_count + 1, sizeof *file->list);
  file->text = malloc(gguf->tensor_count * NAME + 1);
  Status status = sources && file->path && file->list && file->text ? gather(file, gguf, &config, sources)
                                                                    : status_no_memory(gguf->path, "its tensors");
  if (status == STATUS_OK) status = fill_block(file, sources);
  free(sources);
  config_release(&config);
  return status;
}

/* On a parsed file that the caller keeps. */
static Status make_tensors(SafeFile *file, const GgufFile *source) {
  memset(file, 0, sizeof *file);
  Status status = make(file, source);
  if (status != STATUS_OK) safetensors_close(file);
  return status;
}

Status gguf_model_open(SafeFile *file, const char *path) {
  GgufFile source;
  memset(file, 0, sizeof *file);
  TRY(gguf_open(&source, path));
  Status status = make_tensors(file, &source);
  if (status == STATUS_OK) {
    file->map = source.map;
    source.map = (FileMap){.data = NULL};
  }
  gguf_close(&source);
  return status;
}
