/* The model's configuration from a GGUF file: its metadata say of a Llama model what config.json says elsewhere. All zeroes after a
 * failure. UNSUPPORTED: another architecture, one part of a split file, experts, scalings of rotary positions other than Llama 3's. */
#ifndef NN_CONFIG_GGUF_H
#define NN_CONFIG_GGUF_H
#include "base/gguf.h"
#include "nn/config.h"

Status config_gguf_read(ModelConfig *config, const GgufFile *file);
Status config_gguf_load(ModelConfig *config, const char *path); /* opens the file, and closes it again */

#endif
