/* What evaluation asks of the task of next tokens beyond task.h. */
#ifndef TRAIN_TASK_LANGUAGE_H
#define TRAIN_TASK_LANGUAGE_H
#include "data/text/text_perplexity.h"
#include "train/session.h"

const TokenCacheFacts *task_language_facts(const Session *session); /* of the test part, whole; not with PERPLEXITY_LM_EVAL */
const TextWindows *task_language_windows(const Session *session);   /* likewise, with any convention */

/* The name of an option that was given and means something for next tokens alone ("stride"); NULL: none. */
const char *task_language_option(const TrainOptions *options);

#endif
