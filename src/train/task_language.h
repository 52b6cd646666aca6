/* What evaluation asks of the task of next tokens beyond task.h. */
#ifndef TRAIN_TASK_LANGUAGE_H
#define TRAIN_TASK_LANGUAGE_H
#include "data/text/text_perplexity.h"
#include "data/tokenizer/tokenizer.h"
#include "train/session.h"

/* The tokenizer of a run on texts: where it lies, whether it fits the model, what the model learns of it. */

/* --tokenizer; or else the files in --init or --model where these are directories; or else those of an installed checkpoint of the model's
 * name. NOT_FOUND says where it was looked for. */
Status task_tokenizer_open(const Session *session, Tokenizer **tokenizer);

/* Into a configuration: a model that starts from scratch under a preset's name takes the tokenizer's vocabulary; any other one has to have
 * it, padded perhaps (BAD_VALUE names both). Ids of begin and end are set where the configuration has none. */
Status task_tokenizer_configure(const Session *session, const Tokenizer *tokenizer, ModelConfig *config);

/* The context of a run: --context, or the model's. A model that starts from scratch is made for that context, which of any other one has to
 * be within the model's (BAD_USAGE). */
Status task_tokenizer_context(const Session *session, ModelConfig *config, int64_t *context);

/* BAD_USAGE where an option is given that only images have. */
Status task_tokenizer_refuse_images(const TrainOptions *options);

const TokenCacheFacts *task_language_facts(const Session *session); /* of the test part, whole; not with PERPLEXITY_LM_EVAL */
const TextWindows *task_language_windows(const Session *session);   /* likewise, with any convention */

/* The name of an option that was given and means something for next tokens alone ("stride"); NULL: none. */
const char *task_language_option(const TrainOptions *options);

#endif
