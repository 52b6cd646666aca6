/* Where tokens live in training: --devices, --map, --counts, --concentration. */
#ifndef TRAIN_MAP_OPTIONS_H
#define TRAIN_MAP_OPTIONS_H
#include "train/session.h"

/* Fills session->map: of pictures any token anywhere, of a decoder contiguous spans in order. BAD_USAGE names the option. */
Status map_options_set(Session *session);

#endif
