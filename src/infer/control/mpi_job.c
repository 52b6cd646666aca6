/* See mpi_job.h. The leader is forked before MPI begins, since a process that has begun must not be. */
#include "infer/control/mpi_job.h"
#include "base/launcher.h"
#include "infer/control/job_session.h"
#include "infer/wire/carrier_mpi.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOST = 128 };

typedef struct Rank {
  int rank, ranks;
  pid_t leader; /* of rank 0 */
  int exit_code, to_leader;
  bool ended; /* it has exited */
} Rank;

/* ---- the leader */

static Status read_job(int from, MpiJob *job) {
  size_t got = 0;
  while (got < sizeof *job) {
    ssize_t n = read(from, (char *)job + got, sizeof *job - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return status_set(STATUS_PEER, "the MPI job did not come about");
    got += (size_t)n;
  }
  return STATUS_OK;
}

static Status lead(int from, MpiJob *job) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  Status status = read_job(from, job);
  close(from);
  return status;
}

/* ---- the nodes */

/* Where each can be reached from rank 0's machine; where all are on one machine, from there alone. */
static Status find_each_other(int rank, int ranks, int sockets[ADDRESS_SOCKETS], int *count, MpiJob *job) {
  char own[HOST] = "", hosts[WIRE_NODES][HOST];
  uint16_t ports[WIRE_NODES], port;
  bool together = true;
  gethostname(own, HOST - 1);
  carrier_mpi_gather(own, hosts, HOST);
  for (int d = 0; d < ranks; d++) together &= strcmp(hosts[d], hosts[0]) == 0;
  Address listen = {.name = "0.0.0.0"};
  if (together) strcpy(listen.name, "127.0.0.1");
  Status status = address_listen(&listen, sockets, count);
  port = status == STATUS_OK ? address_port(sockets[0]) : 0;
  carrier_mpi_gather(&port, ports, sizeof port);
  job->ranks = ranks;
  for (int d = 0; d < ranks; d++) {
    job->node[d] = (Address){.name = "127.0.0.1", .port = ports[d]};
    if (strcmp(hosts[d], hosts[rank]) != 0) memcpy(job->node[d].name, hosts[d], HOST);
    if (status == STATUS_OK && ports[d] == 0) status = status_set(STATUS_PEER, "process %d of the job cannot listen", d);
  }
  return status;
}

static bool leader_has_ended(Rank *rank) {
  int how;
  if (!rank->ended && waitpid(rank->leader, &how, WNOHANG) == rank->leader) {
    rank->exit_code = WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    rank->ended = true;
  }
  return rank->ended;
}

static bool is_over(void *context) {
  Rank *rank = context;
  return rank->rank == 0 ? leader_has_ended(rank) : carrier_mpi_is_over();
}

static Status tell_leader(const Rank *rank, const MpiJob *job) {
  if (rank->rank > 0 || write(rank->to_leader, job, sizeof *job) == (ssize_t)sizeof *job) return STATUS_OK;
  return status_set(STATUS_IO, "cannot tell the leader where the nodes are: %s", strerror(errno));
}

static Status meet(Rank *rank, int sockets[ADDRESS_SOCKETS], int *count, MpiJob *job) {
  if (rank->ranks > WIRE_NODES)
    return status_set(STATUS_BAD_USAGE, "a job of %d processes; a cluster has at most %d nodes", rank->ranks, WIRE_NODES);
  Status drawn = rank->rank == 0 ? key_file_random(&job->key) : STATUS_OK;
  carrier_mpi_spread(&job->key, sizeof job->key);
  TRY(drawn);
  TRY(find_each_other(rank->rank, rank->ranks, sockets, count, job));
  return tell_leader(rank, job);
}

static Status serve(const Weights *weights, int threads, Rank *rank, const Fingerprints *fingerprints) {
  int sockets[ADDRESS_SOCKETS], count = 0;
  MpiJob *job = calloc(1, sizeof *job);
  if (!job) return status_set(STATUS_NO_MEMORY, "no memory for a job");
  Status status = meet(rank, sockets, &count, job);
  JobSession session = {
      .place = {.weights = weights, .fingerprints = fingerprints, .key = &job->key, .threads = threads, .siblings = 1, .job = true},
      .sockets = sockets,
      .socket_count = count,
      .is_over = is_over,
      .context = rank};
  if (status == STATUS_OK) job_session_run(&session);
  for (int i = 0; i < count; i++) close(sockets[i]);
  free(job);
  return status;
}

static Status join(const Weights *weights, int threads, Rank *rank) {
  Fingerprints fingerprints;
  TRY(fingerprint_weights(weights, &fingerprints));
  TRY(carrier_mpi_join(&rank->rank, &rank->ranks));
  Status status = serve(weights, threads, rank, &fingerprints);
  if (rank->to_leader >= 0) close(rank->to_leader); /* which ends one that has not been told anything */
  while (rank->leader > 0 && !leader_has_ended(rank)) usleep(1000);
  carrier_mpi_leave();
  return status;
}

static Status be_node(const Weights *weights, int threads, Rank *rank, int *exit_code) {
  signal(SIGINT, SIG_IGN); /* the leader decides what it means */
  signal(SIGPIPE, SIG_IGN);
  Status status = join(weights, threads, rank);
  *exit_code = rank->exit_code;
  return status;
}

Status mpi_job_enter(const Weights *weights, int threads, MpiJob *job, bool *leads, int *exit_code) {
  int ends[2] = {-1, -1};
  Rank rank = {.to_leader = -1};
  *leads = false;
  *exit_code = 0;
  if (launcher_rank() > 0) return be_node(weights, threads, &rank, exit_code);
  if (pipe(ends) != 0 || (rank.leader = fork()) < 0) return status_set(STATUS_IO, "cannot start the leader: %s", strerror(errno));
  *leads = rank.leader == 0;
  close(ends[*leads ? 1 : 0]);
  if (*leads) return lead(ends[0], job);
  rank.to_leader = ends[1];
  return be_node(weights, threads, &rank, exit_code);
}
