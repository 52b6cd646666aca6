/* A checkpoint directory in the Hugging Face layout: config.json, preprocessor_config.json, model.safetensors. Codebooks are tensors
 * "astra.layers.L.<site>.codebook" [G, K, D/G] in model.safetensors (or in codebooks.safetensors beside it). */
#ifndef NN_CHECKPOINT_H
#define NN_CHECKPOINT_H
#include "nn/model.h"

typedef struct CheckpointReport {
  bool new_head;          /* the head was absent or of another class count and has been initialised anew */
  bool resized_positions; /* position embeddings were interpolated (bicubic) to another image size */
  int missing, unused;    /* optional tensors absent; tensors in the file that no parameter takes */
} CheckpointReport;

/* Reads parameters of `model` (allocated) from path: a directory or a .safetensors file. Accepts F32, F16, BF16; names with and without the
 * "vit." prefix; with and without a classifier. Shapes that fit neither exactly nor through a new head or interpolation are BAD_FILE,
 * naming the tensor, both shapes and what to do. `rng` initialises a new head; `report` may be NULL. After a failure values are undefined.
 */
Status checkpoint_load_params(Model *model, const char *path, Rng *rng, CheckpointReport *report);

/* For inference: as above but values point into a shared read-only mapping where the file is F32 and aligned, and into one fresh shared
 * read-only block (widened once) otherwise, so that forked processes share them. Keep *mapping until the model is freed. */
typedef struct CheckpointMapping CheckpointMapping;
Status checkpoint_map_params(Model *model, const char *directory, CheckpointMapping **mapping);
void checkpoint_unmap(CheckpointMapping *mapping);

/* codebooks[block * sites + site] -> [G, K, W/G] in one block of memory, which must hold blocks * sites * K * W numbers; NOT_FOUND when
 * absent (or the model is plain). `directory` may be a .safetensors file, too. Some missing, shapes other than config's, or a NaN:
 * BAD_FILE. */
Status checkpoint_load_codebooks(const ModelConfig *config, const char *directory, real *codebooks);

/* Writes config.json, preprocessor_config.json and model.safetensors (parameters and, if not NULL, codebooks) with dtype F32, F16 or BF16
 * for parameters and codebooks. Creates the directory. Everything atomic; `values` may replace the parameters' own (EMA weights): a block
 * laid out like ParamSet.values (param_padded), or NULL. A number that is not finite is NUMERIC and names the tensor; nothing is written
 * then. */
Status checkpoint_save(Model *model, const char *directory, const real *codebooks, const real *values, SafeDtype dtype);

/* Codebooks alone: config.json, preprocessor_config.json and codebooks.safetensors, which checkpoint_load_codebooks reads. A directory that
 * holds a model.safetensors is BAD_VALUE: its own configuration and codebooks would be hidden or lost. */
Status checkpoint_save_codebooks(const ModelConfig *config, const char *directory, const real *codebooks, SafeDtype dtype);
Status checkpoint_refuse_codebooks(const char *directory); /* that check alone, for before the work */

#endif
