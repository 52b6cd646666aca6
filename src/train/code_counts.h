/* How often each code comes: counted on data, or taken from the averages that training keeps; for entropy coding (vq/code_frequencies.h).
 */
#ifndef TRAIN_CODE_COUNTS_H
#define TRAIN_CODE_COUNTS_H
#include "train/session.h"

/* The codes of the first `samples` pictures, windows or texts of a part (0: all), on the model's number of emulated devices, as the runner
 * places tokens: into the usage of each site of the emulation, which is cleared first. */
Status code_counts_run(Session *session, TaskPart part, int64_t samples);

/* Frequencies [blocks * sites][G, K] from what was counted. UNSUPPORTED where a codebook is too large for them. */
Status code_counts_fit(const Session *session, uint16_t *frequencies);

/* Bits of a token over all blocks: what was counted, coded with these frequencies. Packed they are config_bits_per_token. */
double code_counts_bits(const Session *session, const uint16_t *frequencies);

/* Frequencies of the moving averages, beside the checkpoint in `directory`; none where a codebook is too large. */
Status code_counts_export(const Session *session, const char *directory);

#endif
