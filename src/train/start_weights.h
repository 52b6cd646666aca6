/* The weights a run starts from: random ones, or those of a checkpoint. */
#ifndef TRAIN_START_WEIGHTS_H
#define TRAIN_START_WEIGHTS_H
#include "train/session.h"

/* Sets session->origin: a path, "random" or "mimetic"; NULL where there are none for a plan, which needs none. */
Status start_weights_find(Session *session);

/* What the shapes of weights do not show (heads, epsilon, ids of special tokens...) is taken from the config.json and the
 * preprocessor_config.json in their directory, where these are: a preset of the same name may differ. */
Status start_weights_adopt(const Session *session, ModelConfig *config);

/* Into the session's model, whose parameters that learn have memory; frozen ones are mapped into session->frozen. */
Status start_weights_load(Session *session);

#endif
