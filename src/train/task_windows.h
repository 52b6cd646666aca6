/* What only a running text has (task.h says what all sources have): its perplexity under a convention (data/text/text_perplexity.h). */
#ifndef TRAIN_TASK_WINDOWS_H
#define TRAIN_TASK_WINDOWS_H
#include "data/text/text_perplexity.h"
#include "train/session.h"

/* BAD_USAGE where the options ask for words of a part of the windows alone, as only the whole text's are counted: for before the
 * evaluation. */
Status task_windows_perplexity_check(const Session *session);

/* Of a score over the test part of a text. BAD_USAGE as above. */
Status task_windows_perplexity(const Session *session, const TaskScore *score, PerplexityUnit unit, Perplexity *result);

#endif
