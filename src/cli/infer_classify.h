/* astra-infer with texts to classify: --text, --text-pair and --text-file, and eval over texts with classes. */
#ifndef CLI_INFER_CLASSIFY_H
#define CLI_INFER_CLASSIFY_H
#include "cli/infer_run.h"

InferBody infer_classify_texts; /* both load the checkpoint */
InferBody infer_classify_eval;

#endif
