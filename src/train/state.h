/* DIRECTORY/training/state.safetensors: everything that a run needs to go on bit for bit: weights, optimizer moments, averaged weights,
 * codebooks with their moving averages, noise moments, random states, counters; of adapters also which weights they stand beside. One file,
 * written atomically: a state is whole or absent.
 */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H
#include "train/session.h"

Status state_save(const Session *session, const char *directory);

/* Into a session opened with the same model and options. A file that does not fit names the tensor and both shapes; adapters that were
 * trained beside other weights are refused as well. */
Status state_load(Session *session, const char *directory);

#endif
