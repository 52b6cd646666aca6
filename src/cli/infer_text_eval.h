/* astra-infer eval on a text: tokens of the data set through the nodes, perplexity as text or JSON. */
#ifndef CLI_INFER_TEXT_EVAL_H
#define CLI_INFER_TEXT_EVAL_H
#include "cli/infer_run.h"

bool infer_text_eval_knows(const char *dataset); /* text:..., text-lines:... */

InferBody infer_text_eval;

#endif
