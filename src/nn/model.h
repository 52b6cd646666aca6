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

typedef struct Codebooks Codebooks; /* of src/vq; nn only carries names */

/* Describes the parameters of `config` (copied). No memory for values yet. */
Status model_new(Model **model, const ModelConfig *config);
void model_free(Model *model);
const ModelConfig *model_config(const Model *model);
ParamSet *model_params(Model *model);

/* Content tokens -> class-token replicas after the final LayerNorm: pixels [B, C, H, W] -> [B, class_rows, D].
 * exchange may be NULL when the layout has no remote rows. */
Tensor *model_encode(Model *model, Tape *tape, Tensor *pixels, const TokenLayout *layout, Exchange *exchange);

/* Mean over replicas and the head: [B, N, D] -> logits [B, classes]. */
Tensor *model_classify(Model *model, Tape *tape, Tensor *replicas);

/* Called with each site's activations h of the plain model (all rows, class token first), for K-means: an Exchange for layout_build_plain
 * is not asked for remote tokens but its begin is called when `watch` is set. */
void model_watch(Model *model, Exchange *watch);

#endif
