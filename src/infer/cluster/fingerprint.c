/* Numbers are added to the digest little-endian, so that machines of either byte order agree; weights as they are in the file, which is
 * little-endian on every machine that can map it. */
#include "infer/cluster/fingerprint.h"
#include "infer/wire.h"
#include <openssl/evp.h>
#include <string.h>

typedef struct Digest {
  EVP_MD_CTX *context;
  bool right;
} Digest;

static void begin(Digest *digest) {
  digest->context = EVP_MD_CTX_new();
  digest->right = digest->context && EVP_DigestInit_ex(digest->context, EVP_sha256(), NULL);
}

static void add(Digest *digest, const void *data, size_t bytes) {
  digest->right = digest->right && EVP_DigestUpdate(digest->context, data, bytes);
}

static void add_number(Digest *digest, uint64_t number) {
  uint8_t bytes[8];
  wire_put_u64(bytes, number);
  add(digest, bytes, sizeof bytes);
}

static void add_real(Digest *digest, double number) {
  uint8_t bytes[8];
  wire_put_double(bytes, number);
  add(digest, bytes, sizeof bytes);
}

/* All of them, once per start: 0.22 s of a core with SHA instructions for 380 MB, 0.9 s without. Pages picked from large tensors took no
 * time, but were equal for files that differ elsewhere. */
static void add_bytes(Digest *digest, const void *data, size_t bytes) {
  add_number(digest, bytes);
  add(digest, data, bytes);
}

/* 0 means that there is none. */
static Status end(Digest *digest, uint64_t *number) {
  uint8_t bytes[EVP_MAX_MD_SIZE];
  digest->right = digest->right && EVP_DigestFinal_ex(digest->context, bytes, NULL);
  EVP_MD_CTX_free(digest->context);
  if (!digest->right) return status_set(STATUS_IO, "OpenSSL cannot compute SHA-256");
  *number = 0;
  for (int i = 0; i < 8; i++) *number = *number << 8 | bytes[i];
  *number += *number == 0;
  return STATUS_OK;
}

/* ---- models */

/* Everything that affects the computation from pixels or ids to the last row, and that parameters do not show. The mean of the class
 * tokens is the leader's alone. */
static void add_config(Digest *digest, const ModelConfig *c) {
  const int max_groups = c->astra.groups > 0 ? config_rate_groups(c, config_rates(c) - 1) : 0; /* whichever rate is in use */
  const int64_t facts[] = {c->kind,
                           c->width,
                           c->blocks,
                           c->heads,
                           c->kv_heads,
                           c->mlp,
                           c->activation,
                           c->classes,
                           c->image,
                           c->patch,
                           c->channels,
                           c->vocabulary,
                           c->tied,
                           c->context,
                           c->rope.llama3,
                           c->rope.original,
                           max_groups,
                           c->astra.codebook_size,
                           c->astra.site,
                           c->astra.class_token,
                           c->astra.exact_first};
  const double reals[] = {c->norm_eps, c->rope.theta, c->rope.factor, c->rope.low_factor, c->rope.high_factor, c->astra.class_bias};
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) add_number(digest, (uint64_t)facts[i]);
  for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) add_real(digest, reals[i]);
  if (config_end_coded(c) < c->blocks) add_number(digest, (uint64_t)config_end_coded(c)); /* other models keep their numbers */
  for (int i = 0; i < 3; i++) add_real(digest, c->image_mean[i]), add_real(digest, c->image_std[i]);
}

static void add_param(Digest *digest, const Param *param) {
  const Tensor *tensor = &param->tensor;
  const LowbitMatrix *lowbit = tensor->lowbit;
  size_t count = (size_t)tensor_count(tensor);
  add(digest, param->name, strlen(param->name) + 1);
  add_number(digest, (uint64_t)tensor->narrow_kind);
  for (int i = 0; i < tensor->dims; i++) add_number(digest, (uint64_t)tensor->shape[i]);
  if (lowbit) {
    add_number(digest, (uint64_t)lowbit->kind);
    add_bytes(digest, lowbit->numbers, (size_t)lowbit->outputs * lowbit_row_bytes(lowbit->kind, lowbit->inputs));
    if (lowbit->scale) add_bytes(digest, lowbit->scale, (size_t)lowbit->outputs * sizeof *lowbit->scale);
  } else if (tensor->narrow) {
    add_bytes(digest, tensor->narrow, count * sizeof *tensor->narrow);
  } else {
    add_bytes(digest, tensor->value, count * sizeof *tensor->value);
  }
}

Status fingerprint_weights(const Weights *weights, Fingerprints *fingerprints) {
  enum { CHUNK = 1024 };
  real chunk[CHUNK];
  const ParamSet *params = model_params(weights->model);
  Digest digest;
  *fingerprints = (Fingerprints){0};
  begin(&digest);
  add_config(&digest, weights->config);
  if (weights->bf16) add_number(&digest, weights->bf16);
  for (size_t i = 0; i < params->count; i++) add_param(&digest, &params->list[i]);
  TRY(end(&digest, &fingerprints->model));
  if (!weights->books) return STATUS_OK;
  begin(&digest);
  const int rates = config_rates(weights->config);
  for (int i = 0; i < rates * weights->book_count; i++) {
    const Codebook *books = rates > 1 ? weights->rate[i / weights->book_count].books : weights->books,
                   *book = &books[i % weights->book_count];
    const int64_t count = book->entries * book->width;
    add_number(&digest, (uint64_t)book->groups);
    /* As reals, in whatever form a device keeps them: devices whose forms differ still understand each other. */
    add_number(&digest, (size_t)count * sizeof *chunk);
    if (!book->narrow) add(&digest, book->codewords, (size_t)count * sizeof *chunk);
    for (int64_t at = 0; book->narrow && at < count; at += CHUNK) {
      int64_t n = count - at < CHUNK ? count - at : CHUNK;
      for (int64_t j = 0; j < n; j++) chunk[j] = (real)narrow_to_float(book->kind, book->narrow[at + j]);
      add(&digest, chunk, (size_t)n * sizeof *chunk);
    }
  }
  if (weights->frequencies) {
    const size_t numbers = (size_t)checkpoint_frequencies(weights->config);
    for (size_t i = 0; i < numbers; i++) add_number(&digest, weights->frequencies[i]);
    if (weights->entropy_weight > 0) add_real(&digest, (double)weights->entropy_weight);
  }
  return end(&digest, &fingerprints->codebook);
}

/* ---- partitions */

Status fingerprint_shares(const FingerprintShares *shares, uint64_t *partition) {
  Digest digest;
  begin(&digest);
  add_number(&digest, (uint64_t)shares->nodes);
  add_number(&digest, shares->counts != NULL);
  for (int d = 0; d < shares->nodes; d++) {
    if (shares->counts)
      add_number(&digest, (uint64_t)shares->counts[d]);
    else
      add_real(&digest, shares->weights[d]);
  }
  for (int64_t i = 0; shares->counts && i < shares->tokens; i++) add_number(&digest, (uint64_t)(shares->order ? shares->order[i] : i));
  return end(&digest, partition);
}
