/* astra-infer worker: this machine as a device of clusters that others lead. */
#ifndef CLI_INFER_WORKER_H
#define CLI_INFER_WORKER_H
#include "base/status.h"

Status infer_worker_run(int argc, char **argv);

#endif
