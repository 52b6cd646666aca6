/* DIRECTORY/training/state.safetensors: everything that a run needs to go on bit for bit: weights, optimizer moments, averaged weights,
 * codebooks with their moving averages, noise moments, random states, counters; also which weights adapters stand beside, which a teacher
 * has, and a digest of the data. One file, written atomically: a state is whole or absent.
 */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H
#include "train/session.h"

Status state_save(const Session *session, const char *directory);

size_t state_bytes(const Session *session); /* of the numbers in the file */

/* Removes it, and what evaluations were noted beside it, if they are there: a run that begins anew in the directory of another one must not
 * be taken for that one before its first checkpoint. IO names the file that cannot be removed. */
Status state_forget(const char *directory);

/* Into a session opened with the same model and options. NOT_FOUND of a run that had no checkpoint yet. A file that does not fit names the
 * tensor and both shapes; adapters that were trained beside other weights, a run with another teacher, or one with other data, are
 * refused as well. */
Status state_load(Session *session, const char *directory);

#endif
