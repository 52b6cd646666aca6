/* astra-data verify: the digests of a checkpoint's files, compared or written. */
#ifndef CLI_DATA_VERIFY_H
#define CLI_DATA_VERIFY_H
#include "base/status.h"

Status data_verify_run(int argc, char **argv);

#endif
