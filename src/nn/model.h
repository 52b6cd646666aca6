/* A model: its configuration, its parameters and one forward pass, the same for training emulation and for a node of a cluster. */
#ifndef NN_MODEL_H
#define NN_MODEL_H
#include "autograd/param.h"
#include "autograd/tape.h"
#include "nn/config.h"
#include "nn/exchange.h"
#include "nn/layout.h"
#include "nn/safetensors.h"

typedef struct Model Model; /* opaque: vit.c */

/* Describes the parameters of `config` (copied). No memory for values yet. */
Status model_new(Model **model, const ModelConfig *config);
void model_free(Model *model);
const ModelConfig *model_config(const Model *model);
ParamSet *model_params(Model *model);

/* Random weights for training from scratch on little data (after Trockman and Kolter, 2023, "Mimetic initialization of self-attention
 * layers"): query and key weights alike, so that tokens first look at tokens like themselves; the output weight minus the transposed value
 * weight; sine and cosine position embeddings. The parameters must be allocated and initialised (param_initialise). */
void model_initialise_mimetic(Model *model, Rng *rng);

/* Content tokens -> class-token replicas after the final LayerNorm: pixels [B, C, H, W] -> [B, class_rows, D].
 * exchange may be NULL when the layout has no remote rows. The last block computes class-token rows only: nothing else is wanted of it.
 * A node without a class-token replica (single class token, not device 0) gets NULL while tape_status stays OK. */
Tensor *model_encode(Model *model, Tape *tape, Tensor *pixels, const TokenLayout *layout, Exchange *exchange);

/* Mean over replicas and the head: [B, N, D] -> logits [B, classes]. */
Tensor *model_classify(Model *model, Tape *tape, Tensor *replicas);

/* Called with each site's activations h of the plain model (all rows, class token first), for K-means: an Exchange for layout_build_plain
 * is not asked for remote tokens but its begin is called when `watch` is set. */
void model_watch(Model *model, Exchange *watch);

#endif
