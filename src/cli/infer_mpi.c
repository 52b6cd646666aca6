/* See infer_mpi.h. */
#include "cli/infer_mpi.h"
#include "base/launcher.h"
#include "cli/cli.h"
#include "cli/infer_tables.h"
#include "infer/control/mpi_job.h"
#include "infer/wire/carrier_mpi.h"
#include <stdlib.h>
#include <string.h>

static Status check_usage(const InferSettings *s) {
  TRY(carrier_mpi_possible());
  if (launcher_rank() < 0)
    return status_set(STATUS_BAD_USAGE, "--transport mpi: start it as a job, with a process for each node: mpirun -n 4 astra-infer ...");
  if (s->peers || s->nodes > 0)
    return status_set(STATUS_BAD_USAGE, "--%s: with --transport mpi the processes of the job are the nodes", s->peers ? "peers" : "nodes");
  if (s->on_failure != INFER_ON_FAILURE_AUTO && s->on_failure != INFER_ABORT)
    return status_set(STATUS_BAD_USAGE, "--on-failure: an MPI job ends with the first process that fails; others go on over --peers");
  return STATUS_OK;
}

static void take_cluster(const InferSettings *s, const MpiJob *job, InferCluster *cluster) {
  *cluster = (InferCluster){.key = job->key};
  memcpy(cluster->peers, job->node, sizeof job->node);
  cluster->options = (ClusterOptions){.peers = cluster->peers,
                                      .peer_count = job->ranks,
                                      .key = &cluster->key,
                                      .on_failure = ON_FAILURE_ABORT,
                                      .request_timeout = s->request_timeout};
}

Status infer_mpi_enter(const InferSettings *s, InferRun *run) {
  MpiJob job;
  bool leads;
  int code;
  TRY(check_usage(s));
  TRY(infer_run_load(s, run));
  if (strategy_facts(run->network.strategy)->sends_codes) TRY(infer_tables_make(s->links.table_memory, s->verbose, &run->weights));
  Status status = mpi_job_enter(&run->weights, s->threads > 0 ? (int)s->threads : 1, &job, &leads, &code);
  if (!leads) {
    int own = cli_finish(status);
    exit(code ? code : own);
  }
  TRY(status);
  take_cluster(s, &job, &run->cluster);
  return STATUS_OK;
}
