/* A model: its configuration, its parameters and one forward pass, the same for training emulation and for a node of a cluster. */
#ifndef NN_MODEL_H
#define NN_MODEL_H
#include "autograd/param.h"
#include "autograd/tape.h"
#include "nn/block.h"
#include "nn/config.h"
#include "nn/exchange.h"
#include "nn/layout.h"
#include "nn/safetensors.h"

typedef struct Model Model; /* opaque: model_internal.h */

/* Describes the parameters of `config` (copied). No memory for values yet. */
Status model_new(Model **model, const ModelConfig *config);
void model_free(Model *model);
const ModelConfig *model_config(const Model *model);
ParamSet *model_params(Model *model);

/* Random weights for training from scratch: as each parameter's init says (normal, 0.02); of GPT-2 the matrices that write into the
 * residual stream are divided by sqrt(2 L), adapters as model_initialise_adapters has them. The parameters must be allocated. */
void model_initialise(Model *model, Rng *rng);

/* For inference, once the weights are final and before any fork: packs the matrices where the processor multiplies packed ones
 * faster (param_pack), and with bf16 gives the others shadows. In full packed weights take as much memory once more; in bf16 they take the
 * place of the shadows; those of int8 are packed where oneDNN multiplies them (MatmulBackend.int8), and take as much memory once more.
 * Matrices in bf16, in fp16 unless with bf16, of 4 bits, of 8 bits in blocks, and vocabularies (but for shadows) stay as they are. */
Status model_pack_weights(Model *model, bool bf16);

/* Initial weights of a ViT for training on little data (after Trockman and Kolter, 2023, "Mimetic initialization of self-attention
 * layers"): query and key weights alike, so that tokens initially attend to similar tokens; the output weight minus the transposed value
 * weight; sine and cosine position embeddings. The parameters must be allocated and initialised (model_initialise). BAD_VALUE, and nothing
 * changed, for another kind of model. */
Status model_initialise_mimetic(Model *model, Rng *rng);

/* Low-rank adapters (Hu et al., 2022) beside projections of all blocks: W x + b becomes W x + b + alpha / rank B A x, with A [rank, in] and
 * B [out, rank] as parameters "astra.lora.BLOCK.TARGET.a" and ".b" after all others. All others except a head of classes are frozen. To be
 * called before the parameters have memory; then param_allocate, model_initialise_adapters (A random, B 0: the model computes the same as
 * before) and checkpoint_map_params or, with param_allocate_frozen, checkpoint_load_params. targets: "all", "attention", "mlp", or a list
 * of "query", "key", "value", "output", "gate", "up", "down" with commas between; a target that the model does not have, a rank outside 1
 * to MODEL_ADAPTERS_RANK_MAX (or above the width), or a second call is BAD_VALUE. checkpoint_save folds the adapters into the weights it
 * writes. */
enum { MODEL_ADAPTERS_RANK_MAX = 1024 };
Status model_add_adapters(Model *model, int rank, double alpha, const char *targets);
void model_initialise_adapters(Model *model, Rng *rng);
bool model_is_adapter(const Model *model, size_t index); /* parameter `index` is an A or a B */

/* The input of a forward pass: pixels of a ViT, ids of a decoder, or the rows themselves. */
typedef struct ModelInput {
  Tensor *rows;       /* [B, S, D] in place of the embedding: for measurements, with any number of tokens; NULL: pixels or ids. With
                       * AstraConfig.exact_first ids are needed besides, for the others' tokens */
  Tensor *pixels;     /* [B, C, H, W]; NULL for a decoder */
  const int32_t *ids; /* [B, T] of the whole sequences, T = layout->tokens, also on a node, which takes those of its own rows; they outlive
                       * the step. NULL for a ViT */
  int64_t batch;      /* B of ids */
  KvCache *cache;     /* of a decoder with B = 1: takes the rows' keys and values (kv_cache_start first); NULL: they are not kept */
  BlockOutputs *outputs; /* NULL: nobody is told. Where something is told, blocks are not cut into parts */
} ModelInput;

/* All blocks and the final norm, of this process's rows:
 *   MODEL_ROWS_ALL    [B, S, D]            for the token loss of training
 *   MODEL_ROWS_CLASS  [B, class_rows, D]   ViT
 *   MODEL_ROWS_LAST   [B, 1, D]            decoders: the row of the last token, for the next one
 * The last block computes no other rows. exchange may be NULL when the layout has no remote rows. A node that has none of the wanted rows
 * gets NULL while tape_status stays OK. A sequence longer than the model's context, or an id outside of its vocabulary, fails the tape. */
Tensor *model_encode(Model *model, Tape *tape, const ModelInput *input, const TokenLayout *layout, Exchange *exchange, ModelRows rows);

/* Mean over replicas and the head of classes: [B, N, D] -> logits [B, classes]. Of a decoder N = 1: MODEL_ROWS_LAST, or op_select_rows
 * where the texts of a batch end at different places. */
Tensor *model_classify(Model *model, Tape *tape, Tensor *encoded);

/* The same of replicas from devices that have tokens [N] content tokens each (TokenLayout.class_tokens; NULL: as many): in the mean they
 * count in proportion to that number to the power of astra.class_mean_power (MATH.md, Class token). tokens are read at once. */
Tensor *model_classify_replicas(Model *model, Tape *tape, Tensor *encoded, const int64_t *tokens);

/* The head that predicts tokens, its own matrix or the token table: [B, S, D] -> logits [B, S, V]. */
Tensor *model_logits(Model *model, Tape *tape, Tensor *encoded);

/* The matrix [V, D] that it multiplies with; NULL, with a failed tape, where the model does not predict tokens. */
Tensor *model_token_table(Model *model, Tape *tape);

/* The same fused with its loss (op_vocab_loss): [B, S, D] -> [1]. */
Tensor *model_token_loss(Model *model, Tape *tape, Tensor *encoded, const VocabLoss *options);

/* The bit rate whose codes are exchanged from now on (config_use_rate): G of model_config, and predictions. The rate of a new model is that
 * of its configuration. BAD_VALUE lists those that the model has. */
Status model_use_rate(Model *model, int groups);

/* ---- The basis that tokens are quantised in (AstraConfig.rotation; vq/basis.h) */

/* metric M [W, W], W = config_site_width: what an error e of a row that is quantised costs is e^T M e.
 *   site x: M = Wk^T Wk + Wv^T Wv [D, D]: the squared error of keys and values.
 *   site kv, by kv head and zero between them, with the query heads h that share it:
 *     site 0, keys: sum_h E[q_h q_h^T], the squared error of scores before scaling, where q = Wq x + bq of the norm's output x = g n + b
 *       with E[n n^T] = I. Rotary positions turn each pair of numbers by angles that are taken to be uniform: M then is the diagonal, alike
 *       for both numbers of a pair.
 *     site 1, values: sum_h Wo_h^T Wo_h: that of the output projection where a head attends to this token alone. */
Status model_rotation_metric(Model *model, int64_t block, int site, double *metric);

/* y = to (x - mean), x = from y + mean: sets the rotation of a block's site, and its projections of remote rows so that they give the keys
 * and values of x; at site kv that of keys (site 0) or values (1) alone. All of them learn. */
Status model_set_rotation(Model *model, int64_t block, int site, const double *to, const double *from, const double *mean);

/* Of a site of a block with a prediction (AstraConfig.prediction; not the first): y^ weight^T + bias is expected of its y, where y^ are the
 * P = config_prediction_inputs numbers of the block before as receivers know them. weight [W, P]; bias [W], NULL: 0. Both learn. Each bit
 * rate has its own: those of the rate in use are meant. */
void model_set_prediction(Model *model, int64_t block, int site, const double *weight, const double *bias);
/* Of an image's tokens (AstraConfig.position_mean): means [T, W] of y by position, which are quantised without them. They learn. */
void model_set_position_mean(Model *model, int64_t block, int site, const double *means);
const real *model_position_mean(Model *model, int64_t block, int site); /* [T, W]; before it, at -1, that of a single class token */
void model_expect(Model *model, int64_t block, int site, const real *before, int64_t rows, real *expected); /* [rows, P] -> [rows, W] */

/* Stochastic depth (Huang et al., 2016) in the passes that are recorded from now on: each sample leaves out each branch (attention, MLP) of
 * block l of L with probability rate l / (L - 1), rate in [0, 1), and scales those that stay by 1 / (1 - probability). The draws follow
 * only from the seed: another one for each batch, of which the samples from `first` on are passed (0: all). What is exchanged with other
 * devices is exchanged all the same. */
void model_drop_path(Model *model, double rate, uint64_t seed, int64_t first);

/* Where the last forward pass (from model_encode on) first produced a value that is not finite (block_place); BLOCK_NONE: nowhere. A pass
 * that is not recorded fails in that case, NUMERIC with a message that names the place. */
int model_not_finite(const Model *model);

/* While a tape that uses segments (autograd/tape.h) records, the first `blocks` blocks are segments; initially all of them. While it does
 * not record, all are, which costs nothing. */
void model_recompute(Model *model, int blocks);

/* Called with each site's activations of the plain model (all rows, class token first), for K-means: an Exchange for layout_build_plain
 * is not asked for remote tokens but its begin is called when `watch` is set. Steps of decoding (decode_batch.h) have no layout: begin is
 * called with each block's input. */
void model_watch(Model *model, Exchange *watch);

/* Decoding, by the device that has the last token (paper section 3.1): it sees its own device's tokens in full and those of the others as
 * their codes. The next token of the sequence that the cache holds: its row goes through all blocks, its keys and values into the cache ->
 * logits [1, 1, V]. The cache was filled by model_encode with the same cache (ModelInput.cache), or by earlier steps; *token outlives the
 * step. A full cache, or an id outside of the vocabulary, fails the tape. */
Tensor *model_decode_step(Model *model, Tape *tape, KvCache *cache, const int32_t *token);

#endif
