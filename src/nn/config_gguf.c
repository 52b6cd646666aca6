/* The configuration that a GGUF file's metadata and tensors describe: Llama's, keys "llama.*". What would change the result and is not
 * understood is refused; keys that are not known are ignored, as they are many and mostly say where the model comes from.
 * Left out: the tensors' data (gguf_tensors.c) and the tokenizer (data/tokenizer/tokenizer_gguf.c). */
#include "nn/config_gguf.h"
#include "nn/config_parts.h"
#include "nn/rope_table.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEAD = 4096 }; /* numbers of a head, whose rotary factors are looked at */

static Status missing(const GgufFile *file, const char *key) {
  return status_set(STATUS_BAD_FILE, "%s: the metadata key %s is missing; is this the file of a whole Llama model?", file->path, key);
}

static Status required(const GgufFile *file, const char *key, int64_t *out) {
  return gguf_entry(file, key) ? gguf_whole(file, key, out) : missing(file, key);
}

static Status check_kind(const GgufFile *file) {
  GgufText architecture = {0};
  int64_t parts = 1, experts = 0;
  TRY(gguf_text(file, "general.architecture", &architecture));
  TRY(gguf_whole(file, "split.count", &parts));
  TRY(gguf_whole(file, "llama.expert_count", &experts));
  if (!architecture.bytes) return missing(file, "general.architecture");
  if (!gguf_text_is(architecture, "llama"))
    return status_set(STATUS_UNSUPPORTED, "%s: a model of architecture '%.*s'; of GGUF files those of architecture llama are supported",
                      file->path, architecture.size < 40 ? (int)architecture.size : 40, architecture.bytes);
  if (parts > 1)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: one of %lld parts of a model; join them first: llama-gguf-split --merge FIRST-PART WHOLE.gguf", file->path,
                      (long long)parts);
  if (experts > 0) return status_set(STATUS_UNSUPPORTED, "%s: a mixture of %lld experts is not supported", file->path, (long long)experts);
  return STATUS_OK;
}

/* ---- rotary positions */

static Status check_scaling(const GgufFile *file) {
  GgufText type = {0};
  TRY(gguf_text(file, "llama.rope.scaling.type", &type));
  if (!type.bytes || gguf_text_is(type, "none")) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED, "%s: rotary positions scaled by '%.*s' are not supported; Llama 3's (tensor rope_freqs.weight) are",
                    file->path, type.size < 40 ? (int)type.size : 40, type.bytes);
}

/* Whether these settings divide the frequencies by the factors of the file, to a float's precision. */
static bool explains(const RopeConfig *rope, int64_t head, const float *factor) {
  double plain[MAX_HEAD / 2], slowed[MAX_HEAD / 2];
  RopeConfig without = *rope;
  without.llama3 = false;
  rope_table_frequencies(&without, head, plain);
  rope_table_frequencies(rope, head, slowed);
  for (int64_t i = 0; i < head / 2; i++)
    if (!(fabs(plain[i] / slowed[i] - (double)factor[i]) <= 1e-5 * plain[i] / slowed[i])) return false; /* nor by one that is infinite */
  return true;
}

/* The file has a factor for each frequency where config.json has what they follow from: those settings are looked for among the published
 * ones, since they can be stated exactly. */
static Status find_llama3(const GgufFile *file, int64_t head, const float *factor, RopeConfig *rope) {
  double largest = 1;
  int64_t original = 8192;
  TRY(gguf_whole(file, "llama.rope.scaling.original_context_length", &original));
  for (int64_t i = 0; i < head / 2; i++)
    if ((double)factor[i] > largest) largest = (double)factor[i]; /* with fmax gcc 12 for arm64 fails on this loop */
  if (largest == 1) return STATUS_OK;
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

static Status read_factors(const GgufFile *file, const ModelConfig *config, RopeConfig *rope) {
  const GgufTensor *tensor = gguf_tensor(file, "rope_freqs.weight");
  int64_t head = config->width / config->heads;
  float factor[MAX_HEAD / 2];
  if (!tensor) return STATUS_OK;
  if (tensor->type != GGUF_DATA_F32 || tensor->count != head / 2 || head > MAX_HEAD)
    return status_set(STATUS_BAD_FILE, "%s: tensor rope_freqs.weight has %lld numbers of type %s, expected %lld of F32", file->path,
                      (long long)tensor->count, gguf_type_name(tensor->type), (long long)head / 2);
  memcpy(factor, tensor->data, tensor->bytes);
  return find_llama3(file, head, factor, rope);
}

/* Keys that must agree with the width of a head. */
static Status check_heads(const GgufFile *file, const ModelConfig *config) {
  static const char *const keys[] = {"llama.rope.dimension_count", "llama.attention.key_length", "llama.attention.value_length"};
  int64_t head = config->width / config->heads;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    int64_t given = head;
    TRY(gguf_whole(file, keys[i], &given));
    if (given != head)
      return status_set(STATUS_UNSUPPORTED, "%s: %s is %lld; only embedding_length / attention.head_count = %lld is supported", file->path,
                        keys[i], (long long)given, (long long)head);
  }
  return STATUS_OK;
}

static Status read_rope(const GgufFile *file, ModelConfig *config) {
  if (config->heads < 1 || config->width < config->heads) return STATUS_OK; /* config_check says so */
  TRY(gguf_number(file, "llama.rope.freq_base", &config->rope.theta));
  TRY(check_heads(file, config));
  TRY(check_scaling(file));
  return read_factors(file, config, &config->rope);
}

/* ---- the rest */

/* A float that stands for a decimal number, 1e-5 say: that number. */
static double decimal(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.7g", value);
  return strtod(text, NULL);
}

static Status read_network(const GgufFile *file, ModelConfig *config) {
  static const char *const eps = "llama.attention.layer_norm_rms_epsilon";
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
  config->norm_eps = decimal(config->norm_eps);
  return STATUS_OK;
}

static Status read_head(const GgufFile *file, ModelConfig *config) {
  const GgufTensor *table = gguf_tensor(file, "token_embd.weight");
  if (!table || table->dims != 2)
    return status_set(STATUS_BAD_FILE, "%s: there is no tensor token_embd.weight of two dimensions", file->path);
  config->vocabulary = table->shape[1];
  config->tied = !gguf_tensor(file, "output.weight");
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

static Status read_all(const GgufFile *file, ModelConfig *config) {
  TRY(check_kind(file));
  config_defaults(config, MODEL_LLAMA);
  config->end_ids = 0;
  TRY(read_network(file, config));
  TRY(read_rope(file, config));
  TRY(read_head(file, config));
  TRY(read_ids(file, config));
  return config_checked(config, file->path);
}

Status config_gguf_read(ModelConfig *config, const GgufFile *file) {
  memset(config, 0, sizeof *config);
  Status status = read_all(file, config);
  if (status != STATUS_OK) config_release(config);
  return status;
}

static Status read_into(void *config, const GgufFile *file) { return config_gguf_read(config, file); }

Status config_gguf_load(ModelConfig *config, const char *path) {
  memset(config, 0, sizeof *config);
  return gguf_read_path(path, read_into, config);
}
