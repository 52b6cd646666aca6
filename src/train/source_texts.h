/* What evaluations and other sources ask of texts beyond task.h. */
#ifndef TRAIN_SOURCE_TEXTS_H
#define TRAIN_SOURCE_TEXTS_H
#include "data/text/text_perplexity.h"
#include "train/session.h"

/* The windows of the test part of a running text (source_windows), whatever the convention of its perplexity. */
const TextWindows *source_windows_of(const Session *session);

/* The name of an option that was given and means something for a running text alone ("stride"); NULL: none. */
const char *source_windows_option(const TrainOptions *options);

#endif
