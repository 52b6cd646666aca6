/* What astra-train prints at the end of a run or of --eval-only: a line for people, one JSON object for programs. */
#ifndef CLI_EVALUATION_REPORT_H
#define CLI_EVALUATION_REPORT_H
#include "train/trainer.h"

/* The task's own measures or, with --perplexity, that convention's, plain and on the emulated devices, and what it divides by what. */
Status evaluation_report_text(const Session *session, const TrainResult *result);

/* One line. `checkpoint`: what was evaluated or written. */
Status evaluation_report_json(const Session *session, const TrainResult *result, const char *checkpoint);

#endif
