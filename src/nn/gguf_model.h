/* A Llama model in a GGUF file, presented like a Hugging Face checkpoint. The metadata (keys "llama.*") take the place of config.json; the
 * tensors become those of a safetensors file:
 *
 *   names     blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight ...
 *   shapes    reversed: outputs first
 *   rows      of attn_q and attn_k come in pairs that rotary positions rotate together, 2 i and 2 i + 1 of a head;
 *             here they are rows i and i + d / 2 (d rows in a head)
 *   types     F32, F16, BF16, Q8_0, Q4_0: as they are (SafeTensor.dtype or .lowbit), in the file's mapping unless the
 *             order of rows changes
 *             Q4_K, Q6_K: converted to Q8_0
 *
 * Other types, and tensors that Llama does not have (biases), are UNSUPPORTED; the message names tensor and type. */
#ifndef NN_GGUF_MODEL_H
#define NN_GGUF_MODEL_H
#include "base/gguf.h"
#include "nn/config.h"
#include "nn/safetensors.h"

/* All zeroes after a failure. UNSUPPORTED: another architecture, one part of a split file, experts, scalings of rotary positions other than
 * Llama 3's. */
Status gguf_model_config(ModelConfig *config, const GgufFile *file);

Status gguf_model_open(SafeFile *file, const char *path); /* the tensors; safetensors_close closes it */

#endif
