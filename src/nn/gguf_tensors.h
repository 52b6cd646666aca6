/* Inside the checkpoint code only: the tensors of a GGUF file as if they were those of a safetensors file of Hugging Face's.
 *
 *   names     blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight ...
 *   shapes    the other way round: outputs first
 *   rows      of attn_q and attn_k come in pairs that rotary positions turn together, 2 i and 2 i + 1 of a head;
 *             here they are rows i and i + d / 2 (d rows in a head)
 *   types     F32, F16, BF16, Q8_0, Q4_0: as they are (SafeTensor.dtype or .lowbit), in the file's mapping unless the
 *             order of rows changes
 *             Q4_K, Q6_K: converted to Q8_0
 *
 * Other types, and tensors that Llama does not have (biases), are UNSUPPORTED; the message names tensor and type. */
#ifndef NN_GGUF_TENSORS_H
#define NN_GGUF_TENSORS_H
#include "base/gguf.h"
#include "nn/safetensors.h"

Status gguf_tensors_open(SafeFile *file, const char *path);       /* safetensors_close closes it */
Status gguf_tensors_make(SafeFile *file, const GgufFile *source); /* on a parsed file that the caller keeps: fuzzed */

#endif
