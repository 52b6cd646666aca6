/* --transport mpi: from the command line to a job (infer/control/mpi_job.h). */
#ifndef CLI_INFER_MPI_H
#define CLI_INFER_MPI_H
#include "cli/infer_run.h"

/* Returns in the leader alone, with the checkpoint loaded and run->cluster filled in. The nodes serve it and then exit, rank 0 with the
 * leader's exit code. In all of them: BAD_USAGE outside of a job or with options of other clusters, UNSUPPORTED without MPI, and failures
 * of loading. Call before any thread is started. */
Status infer_mpi_enter(const InferSettings *settings, InferRun *run);

#endif
