/* `mpirun -n N astra-infer --transport mpi ...`: every process of the job is a node, by its rank, and codes travel as MPI messages. The
 * leader is a child of rank 0, which knows nothing of MPI: it calls all nodes over TLS, with a key that was drawn for the job, as it calls
 * workers. */
#ifndef INFER_MPI_JOB_H
#define INFER_MPI_JOB_H
#include "infer/control/address.h"
#include "infer/control/key_file.h"
#include "infer/weights.h"
#include "infer/wire.h"

/* What the leader must know: where the nodes listen. */
typedef struct MpiJob {
  int ranks;
  Address node[WIRE_NODES]; /* [ranks] */
  KeyFile key;
} MpiJob;

/* Call in every process of a job, before any thread is started. The leader comes back at once, with *job filled in; the nodes when they
 * have served it and left MPI, rank 0 with the leader's exit code (others: 0): they have nothing left to do but exit. UNSUPPORTED without
 * MPI; BAD_USAGE: more processes than a cluster can have nodes; PEER, IO: they do not find each other. */
Status mpi_job_enter(const Weights *weights, int threads, MpiJob *job, bool *leads, int *exit_code);

#endif
