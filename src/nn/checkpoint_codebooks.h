/* Inside the checkpoint code only: what the codebooks of a configuration are called and how they are shaped. */
#ifndef NN_CHECKPOINT_CODEBOOKS_H
#define NN_CHECKPOINT_CODEBOOKS_H
#include "nn/config.h"
#include <stdint.h>

enum { CODEBOOK_NAME = 64, CODEBOOK_DIMS = 3 };

int64_t codebooks_count(const ModelConfig *config);                                      /* blocks x sites; 0 for a plain model */
void codebooks_name(const ModelConfig *config, int64_t index, char name[CODEBOOK_NAME]); /* index = block * sites + site */
void codebooks_frequencies_name(const ModelConfig *config, int64_t index, char name[CODEBOOK_NAME]); /* of the same site */
void codebooks_shape(const ModelConfig *config, int64_t shape[CODEBOOK_DIMS]); /* [G, K, W/G]; not for a plain model */

#endif
