/* astra-infer with prompts: text as it comes, what it took, and the same as JSON. */
#ifndef CLI_INFER_TEXT_H
#define CLI_INFER_TEXT_H
#include "cli/infer_run.h"

InferBody infer_text_generate; /* of a run whose checkpoint is not loaded yet, or is: both will do */

#endif
