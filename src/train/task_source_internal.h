/* What the sources of samples (task_images.c, task_windows.c, task_labels.c) have in common. */
#ifndef TRAIN_TASK_SOURCE_INTERNAL_H
#define TRAIN_TASK_SOURCE_INTERNAL_H
#include "train/session.h"
#include "train/task.h"

/* The name of an option that was given and means something for a running text alone ("stride"); NULL: none. */
const char *task_source_option_of_windows(const TrainOptions *options);

/* BAD_USAGE where an option is given that only images have. */
Status task_source_refuse_image_options(const TrainOptions *options);

/* Names the options; train_share_choose refuses the same shares without knowing where they come from. */
Status task_source_check_parts(const TrainOptions *options);

/* Of the training part: batches of one size in training; all samples, each once, where K-means and counts look at them. */
bool task_source_drops_last(const Session *session, int64_t samples);

/* ---- of texts */

/* T of a batch of texts, the longest of which, in all ranks that share it, has `longest` tokens. A plan is for the longest of all; and each
 * device needs a token. */
int64_t task_source_width(const Session *session, int64_t longest);

/* --tokenizer; or else the files in --init or --model where these are directories; or else those of an installed checkpoint of the model's
 * name. NOT_FOUND says where it was looked for. */
Status task_source_open_tokenizer(Session *session);

/* Into a configuration: a model that starts from scratch under a preset's name takes the tokenizer's vocabulary; any other one has to have
 * it, padded perhaps (BAD_VALUE names both). Ids of begin and end are set where the configuration has none. */
Status task_source_configure_tokens(const Session *session, ModelConfig *config);

/* The context of a run: --context, or the model's. A model that starts from scratch is made for that context, which of any other one has to
 * be within the model's (BAD_USAGE). */
Status task_source_choose_context(const Session *session, ModelConfig *config, int64_t *context);

/* Prints "what: ..." with the beginning of a text, `max` bytes at most. */
Status task_source_show_excerpt(const char *what, const char *text, size_t size, size_t max);

#endif
