/* A checkpoint as a node uses it: configuration, parameters and codebooks, loaded once before the processes are forked and never written
 * again, so that all of them share one copy. */
#ifndef INFER_WEIGHTS_H
#define INFER_WEIGHTS_H
#include "data/loader.h"
#include "nn/checkpoint.h"
#include "nn/kv_tables.h"
#include "nn/lowbit_weights.h"
#include "vq/codebook.h"
#include "vq/rans.h"

/* What belongs to one bit rate (config_rates). */
typedef struct WeightsRate {
  Codebook *books;       /* [blocks * sites]; NULL for a plain model */
  Codebook *constrained; /* the same with entropy-constrained assignment, for entropy coding; NULL: no entropy_weight */
  uint16_t *frequencies; /* [blocks * sites][G, K] of codes, borrowed; NULL: the checkpoint has none */
  RansTable *coding;     /* [blocks * sites * G]; NULL: none */
  double coded_share;    /* entropy-coded bits per packed bit by these frequencies; 1 without them */
  KvTables *keys;        /* NULL: weights_make_tables was not called, or this model has none */
} WeightsRate;

typedef struct Weights {
  Model *model;
  const ModelConfig *config; /* the model's own */
  CheckpointMapping *mapping;
  LowbitWeights *lowbit; /* made by weights_quantise; NULL: none */
  void *codewords;       /* read-only mapping of codeword_bytes: reals, or numbers of 16 bits (books[].kind) */
  size_t codeword_bytes;
  int book_count; /* config_codebooks */
  WeightsRate rate[CONFIG_RATES];
  uint16_t *frequencies; /* of all rates */
  real entropy_weight;   /* with which they were counted (codebook_constrain); 0: without */
  Codebook *books;       /* these five are those of the rate in use (weights_use_rate) */
  Codebook *constrained;
  RansTable *coding;
  double coded_share;
  KvTables *keys;
  bool one_rate;          /* no other rate will be used than that in use: the others get no tables */
  NarrowKind cache_kind;  /* of keys and values that decoding caches; NARROW_NONE: reals */
  bool cache_full;        /* decoding caches keys and values of other devices' tokens, not their codes (set after loading) */
  bool packed;            /* weights_pack */
  bool bf16;              /* weights_use_precision: tapes of these weights use bf16 */
  struct Weights *drafts; /* weights_make_drafts; NULL: none. Copies of this struct borrow it */
} Weights;

/* Type of cached keys and values, and of codebooks where it holds their numbers exactly. Auto: 16 bits where the checkpoint's matrices have
 * them. */
typedef enum WeightsType { WEIGHTS_AUTO, WEIGHTS_FLOAT32, WEIGHTS_FLOAT16, WEIGHTS_BFLOAT16 } WeightsType;
#define WEIGHTS_TYPES "auto|float32|float16|bfloat16"
#define REMOTE_CACHES "codes|full" /* Weights.cache_full: the second */

/* Reads a checkpoint directory. A model that says groups > 0 but has no codebooks is BAD_FILE. */
Status weights_load(Weights *weights, const char *directory); /* WEIGHTS_AUTO */
Status weights_load_as(Weights *weights, const char *directory, WeightsType type);
void weights_release(Weights *weights);

/* The bit rate whose codes are sent from now on; at first that with the most groups. BAD_VALUE lists those that the checkpoint has. A copy
 * of the struct may change its rate, too, where no other user of the model in this process minds. */
Status weights_use_rate(Weights *weights, int groups);

/* Storage of matrices: as in the checkpoint, or rounded to 8 or 4 bits (nn/lowbit_weights.h). Call after loading, before tables of keys
 * and before any fork, whose children share the copy. BAD_USAGE where the checkpoint has other bits already. */
typedef enum WeightsBits { WEIGHTS_AS_THEY_ARE, WEIGHTS_INT8, WEIGHTS_INT4 } WeightsBits;
#define WEIGHTS_BITS "file|int8|int4"
Status weights_quantise(Weights *weights, WeightsBits bits);

/* Precision of products with weights and of the activations between them; AUTO: bf16 where it is measured to be faster. With bf16 matrices
 * in full width or in fp16 are rounded once, into memory that forked children share. Call after loading and weights_quantise, before tables
 * of keys and before any fork. All devices of a cluster use the same: the precision is part of a fingerprint. */
typedef enum WeightsPrecision { WEIGHTS_FP32, WEIGHTS_BF16, WEIGHTS_FASTER } WeightsPrecision;
#define WEIGHTS_PRECISIONS "fp32|bf16|auto"
Status weights_use_precision(Weights *weights, WeightsPrecision precision);

/* A second copy of the model with 4 bits, of the same checkpoint, with which a device drafts for others (drafter.h); no part of a
 * fingerprint. Call after weights_quantise and before any fork. BAD_USAGE where the matrices have so few bits already that it would be no
 * faster. */
Status weights_make_drafts(Weights *weights, const char *directory);

/* Packs matrices in full width for faster products (model_pack_weights), into memory that forked children share: as much as they take
 * already. Worth it for many requests: packing takes about as long as a forward pass of 200 tokens. Call after weights_use_precision, which
 * packs those in bf16 itself; a second time nothing happens. where_roomy: for what runs for long, only where they take less than a quarter
 * of the free memory; a step of 8 texts then takes a quarter less time than from the file's pages (shape of GPT-2 small in fp32). */
Status weights_pack(Weights *weights, bool where_roomy);

/* The weights are mapped from files, which may be written to while they are in use. weights_unchanged: BAD_FILE when that has happened,
 * after which no answer may be given; called after computing and before answering, it misses nothing. weights_guard: from now on reading
 * beyond the end of a file that was truncated ends this process with a line on stderr that names it and exit code 1, instead of SIGBUS;
 * `weights` must stay. */
Status weights_unchanged(const Weights *weights);
void weights_guard(const Weights *weights);

/* Tables of keys and values of the codewords in at most `memory` bytes, for the blocks where they are measured to be faster than products
 * (kv_tables_build), of all bit rates in equal parts, or of the one in use where one_rate is set. A model without codebooks, at site kv, or
 * with adapters has none, which is no failure. Existing tables stay. Call before any fork, whose children share their pages, and before
 * threads. */
Status weights_make_tables(Weights *weights, size_t memory);

/* Preparation of images for this model: resize to its image size, its normalisation, no augmentation. */
void weights_loader_options(const Weights *weights, LoaderOptions *options);
int64_t weights_pixels(const Weights *weights); /* numbers of one image: C H W */

int64_t weights_outputs(const Weights *weights); /* numbers of an answer: classes or, where tokens are predicted, V */

#endif
