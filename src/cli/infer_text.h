/* astra-infer with prompts: text as it comes to stdout, what it took to stderr; or both as JSON. */
#ifndef CLI_INFER_TEXT_H
#define CLI_INFER_TEXT_H
#include "cli/infer_run.h"

InferBody infer_text_generate; /* loads the checkpoint */

#endif
