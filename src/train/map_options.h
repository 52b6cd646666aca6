/* Where tokens live: in training --devices, --map, --counts, --concentration and --layout, in evaluation --eval-layout. */
#ifndef TRAIN_MAP_OPTIONS_H
#define TRAIN_MAP_OPTIONS_H
#include "train/session.h"

/* Sets session->fixed_map, which training uses unless it permutes, and config->astra.layout, that of evaluations and of the checkpoint:
 * --eval-layout, else a fixed --layout, else what config has. BAD_USAGE: a layout that is none, or one for a decoder or a plain model. */
Status map_options_layout(Session *session, ModelConfig *config);

/* Fills session->map: of pictures as --layout says, of a decoder contiguous spans in order. BAD_USAGE names the option. */
Status map_options_set(Session *session);

#endif
