/* astra-infer plan: which way of dividing a model over devices is fastest. */
#ifndef CLI_INFER_PLAN_H
#define CLI_INFER_PLAN_H
#include "base/status.h"

Status infer_plan_run(int argc, char **argv);

#endif
