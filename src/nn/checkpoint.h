/* A checkpoint directory in the Hugging Face layout: config.json, for a ViT preprocessor_config.json, and model.safetensors or shards with
 * an index. Codebooks are tensors "astra.layers.L.<site>.codebook" [G, K, D/G] in model.safetensors (or in codebooks.safetensors beside
 * it). */
#ifndef NN_CHECKPOINT_H
#define NN_CHECKPOINT_H
#include "nn/model.h"
#include "nn/safetensors.h"

/* The names of its files beside config.json. Weights in one file, or the index of shards, of which readers take the first; codebooks alone;
 * frequencies of codes; samples for the self-test. */
#define CHECKPOINT_WHOLE       "model.safetensors"
#define CHECKPOINT_INDEX       "model.safetensors.index.json"
#define CHECKPOINT_CODEBOOKS   "codebooks.safetensors"
#define CHECKPOINT_FREQUENCIES "frequencies.safetensors"
#define CHECKPOINT_SELFTEST    "selftest.safetensors"

/* Whether a path names a checkpoint rather than a preset or an installed model: an existing directory or a GGUF file (nn/gguf_model.h),
 * which holds a Llama model and its tokenizer and is accepted wherever a checkpoint directory is read. */
bool checkpoint_is_path(const char *path);

/* *name: the file with a directory's weights that a reader would open first, model.safetensors or else model.safetensors.index.json; NULL:
 * there is neither. Does not open the file. NO_MEMORY is the only failure. */
Status checkpoint_find_weights(const char *directory, const char **name);

/* Whether all shards of a directory's weights are there; none is opened. BAD_FILE names the index and one that is missing, or what is wrong
 * with the index. *index: its path (caller frees, also after a failure); NULL where the weights are no shards. */
Status checkpoint_check_shards(const char *directory, char **index);

/* Tells the model of a directory or file from another one in its place, as digits (safe_digest_text): of config.json and of the names,
 * shapes and first bytes of all tensors of weights and codebooks (of a GGUF file, its ends), so that it costs little whatever their size.
 * Digests in the files do not count. "" where there are no weights or codebooks, or none that can be read. NO_MEMORY is the only failure.
 */
Status checkpoint_digest(const char *path, char digest[SAFE_DIGEST_TEXT]);

typedef struct CheckpointReport {
  bool new_head;          /* the head was absent or had another number of classes and was initialised */
  bool resized_positions; /* position embeddings were interpolated (bicubic) to another image size */
  int unfitted;           /* parameters of rotations that are absent, as in a plain model's file, or of another shape, as for other image
                           * sizes: they come with the codebooks */
  size_t unused;          /* tensors of the files that belong to no parameter and are not known beside them; there is a warning then */
} CheckpointReport;

/* Reads parameters of `model` (allocated) from path: a directory, a .safetensors or a GGUF file. Accepts F32, F16, BF16, of GGUF files also
 * blocks; names with and without the "vit.", "transformer." or "model." in front; with and without a classifier. Adapters are in no file
 * and are left alone, as are frozen parameters without memory of their own (checkpoint_map_params). Tensors that belong to no parameter
 * are ignored: with a warning, unless published checkpoints usually hold them, as a second copy of a tied head. Shapes that fit neither
 * exactly nor through a new head or interpolation are BAD_FILE; the message names the tensor, both shapes and what to do. `rng` initialises
 * a new head; `report` may be NULL. After a failure values are undefined.
 */
Status checkpoint_load_params(Model *model, const char *path, Rng *rng, CheckpointReport *report);

/* Whether those parameters are there in shapes that would be read, or mapped where they are frozen, and the same report; reads no number.
 */
Status checkpoint_check_params(Model *model, const char *path, CheckpointReport *report);

/* BAD_FILE that names the tensor when a number is not finite. */
Status checkpoint_check_finite(const char *path, const char *name, const real *value, int64_t count);

/* Parameters that do not learn, of all processes on a machine together: all of a model that has no memory for parameters (inference), or
 * only the frozen ones (adapters). Values point into a shared read-only mapping where the file is F32 and aligned; F16 and BF16 matrices
 * whose operations take them stay there as they are (Tensor.narrow), as do blocks of GGUF files and what astra-quantize wrote
 * (Tensor.lowbit); all others are widened once into one fresh shared read-only block. Names and shapes must be exactly those of the
 * configuration; a warning names a tensor that belongs to none, as above. Keep *mapping until the model is freed. */
typedef struct CheckpointMapping CheckpointMapping;
Status checkpoint_map_params(Model *model, const char *directory, CheckpointMapping **mapping);
void checkpoint_unmap(CheckpointMapping *mapping);

/* Whether the mapped files are unchanged: BAD_FILE names one that was modified, in which case results computed since then may be wrong.
 * Costs a stat per file. */
Status checkpoint_unchanged(const CheckpointMapping *mapping);
/* The file that this address is mapped from, or NULL. Async-signal-safe. */
const char *checkpoint_file_at(const CheckpointMapping *mapping, const void *address);

/* All codebooks: of each bit rate (config_rates) those that config_codebooks counts -> [G, K, W/G] each in one block of memory, which must
 * hold K * W numbers of each (NULL: only names and shapes are checked); NOT_FOUND when absent (or the model is plain). `directory` may be a
 * .safetensors file, too. Some missing, shapes other than config's, or a NaN: BAD_FILE. */
Status checkpoint_load_codebooks(const ModelConfig *config, const char *directory, real *codebooks);

/* Writes config.json, preprocessor_config.json and model.safetensors (parameters, with adapters folded into them, and, if not NULL,
 * codebooks) with dtype F32, F16 or BF16 for parameters and codebooks; above CHECKPOINT_SHARD bytes in shards, as Hugging Face does.
 * Creates the directory. Everything atomic; `values` may replace the parameters' own (EMA weights): a block laid out like ParamSet.values
 * (param_padded), or NULL. Matrices of 8 and 4 bits (Tensor.lowbit) are written as they are. A number that is not finite is NUMERIC and
 * names the tensor; nothing is written then. */
Status checkpoint_save(Model *model, const char *directory, const real *codebooks, const real *values, SafeDtype dtype);
#define CHECKPOINT_SHARD ((int64_t)5000000000)

/* Only the adapters, in the layout of Hugging Face's PEFT: adapter_config.json and adapter_model.safetensors (F32) with
 * "base_model.model.MODULE.lora_A.weight" [r, in] and ".lora_B.weight" [out, r]; a head of classes that learns beside them whole. `base` is
 * the name of the weights that they belong to, or NULL; `values` as in checkpoint_save. BAD_VALUE without adapters. */
Status checkpoint_save_adapters(Model *model, const char *directory, const real *values, const char *base);

/* Code frequencies (vq/rans.h): for each rate, block and site [G, K], checkpoint_frequencies in all, in frequencies.safetensors beside the
 * weights, whose codebooks they belong to: tensors "astra.layers.L.<site>.frequencies", U16. Reading: NOT_FOUND when there is no such file
 * (or the model is plain); some missing, other shapes, a 0, or numbers of a group that do not sum to 2^16: BAD_FILE. Writing replaces the
 * file; NULL removes it. weight: with which codes were chosen when they were counted (codebook_constrain), 0 where by distance alone;
 * tensor "astra.entropy_weight", F32 [1], not there for 0. */
enum { CHECKPOINT_ENTROPY_WEIGHT_MAX = 10 };
int64_t checkpoint_frequencies(const ModelConfig *config);
Status checkpoint_load_frequencies(const ModelConfig *config, const char *directory, uint16_t *frequencies, real *weight);
Status checkpoint_save_frequencies(const ModelConfig *config, const char *directory, const uint16_t *frequencies, real weight);

/* Only codebooks: config.json, preprocessor_config.json and codebooks.safetensors, which checkpoint_load_codebooks reads. A directory that
 * holds weights (checkpoint_find_weights) is BAD_VALUE: its own configuration and codebooks would be hidden or lost. */
Status checkpoint_save_codebooks(const ModelConfig *config, const char *directory, const real *codebooks, SafeDtype dtype);
Status checkpoint_refuse_codebooks(const char *directory); /* only that check, before the work starts */

#endif
