/* The job: see ranks.h. Waiting is done here and not inside of MPI, which would keep a core busy that another rank may need.
 * Invariant: without ASTRA_MPI, or outside of a job, `job.count` is 1 and no function of MPI is called. */
#include "train/ranks.h"
#include "base/launcher.h"
#include "base/share.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST = 128, MESSAGE = 2048 };

static struct Job {
  int self, count, machines;
  char host[HOST];
  bool common; /* the last failure is known to all ranks */
  bool apart;  /* from rank 0, on another machine */
  pid_t first; /* rank 0's process */
} job = {.count = 1, .machines = 1};

int ranks_self(void) { return job.self; }
int ranks_count(void) { return job.count; }
const char *ranks_host(void) { return job.host; }
int ranks_machines(void) { return job.machines; }

int64_t ranks_begin(int64_t count, int rank) { return share_begin(count, (Share){rank, job.count}); }

Status ranks_common(Status status) {
  job.common = job.common || status != STATUS_OK;
  return status;
}

bool ranks_alone(Status status) { return job.count > 1 && status != STATUS_OK && !job.common; }

/* A process that was lost is gone when its launcher ends the others. */
bool ranks_speaks(void) { return job.self == 0 || (job.self == 1 && (job.apart || kill(job.first, 0) != 0)); }

enum { SPINS = 2000, NAP = 50 /* microseconds */ };

void ranks_idle(int turns) {
  if (turns < SPINS)
    sched_yield();
  else
    usleep(NAP);
}

#ifdef ASTRA_MPI
#include <mpi.h>

struct RanksExchange {
  int count;
  MPI_Request request[]; /* [2 (ranks - 1)] */
};

static void wait_for(MPI_Request *request) {
  int done = 0;
  for (int turns = 0; !done; turns++) {
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (!done) ranks_idle(turns);
  }
}

/* ---- the job */

typedef struct Seat {
  char host[HOST];
  pid_t process;
  cpu_set_t cores;
} Seat;

/* Ranks that may run on the same cores take an equal part of them each: threads are bound to cores, and two ranks would choose the same. */
static void take_cores(const Seat *seats) {
  const Seat *own = &seats[job.self];
  int sharing = 0, before = 0, cores = CPU_COUNT(&own->cores), at = 0;
  for (int r = 0; r < job.count; r++) {
    bool same = strcmp(seats[r].host, own->host) == 0 && CPU_EQUAL(&seats[r].cores, &own->cores);
    sharing += same;
    before += same && r < job.self;
  }
  if (sharing < 2) return;
  cpu_set_t part;
  CPU_ZERO(&part);
  int first = cores * before / sharing, last = cores * (before + 1) / sharing;
  if (cores < sharing) first = before % cores, last = first + 1; /* more ranks than cores take turns */
  for (int core = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &own->cores) && at++ >= first && at <= last) CPU_SET(core, &part);
  (void)sched_setaffinity(0, sizeof part, &part); /* refusal costs speed only */
}

static Status look_around(void) {
  Seat own = {.process = getpid()}, *seats = calloc((size_t)job.count, sizeof *seats);
  if (seats == NULL) return status_set(STATUS_NO_MEMORY, "no memory for %d ranks", job.count);
  gethostname(own.host, HOST - 1);
  sched_getaffinity(0, sizeof own.cores, &own.cores);
  ranks_gather(&own, seats, sizeof own);
  memcpy(job.host, own.host, HOST);
  job.first = seats[0].process;
  job.apart = strcmp(seats[0].host, own.host) != 0;
  for (int r = 1; r < job.count; r++) {
    bool fresh = true;
    for (int q = 0; q < r; q++) fresh &= strcmp(seats[q].host, seats[r].host) != 0;
    job.machines += fresh;
  }
  take_cores(seats);
  free(seats);
  return STATUS_OK;
}

Status ranks_join(void) {
  int provided;
  if (launcher_rank() < 0 || launcher_ranks() == 1) return STATUS_OK;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return status_set(STATUS_IO, "MPI does not start");
  MPI_Comm_rank(MPI_COMM_WORLD, &job.self);
  MPI_Comm_size(MPI_COMM_WORLD, &job.count);
  return look_around();
}

void ranks_leave(void) {
  int begun, ended;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun && !ended) MPI_Finalize();
}

void ranks_abort(int exit_code) {
  if (job.count > 1) MPI_Abort(MPI_COMM_WORLD, exit_code);
  exit(exit_code);
}

/* ---- numbers and bytes */

void ranks_gather(const void *own, void *all, size_t each) {
  MPI_Request request;
  if (job.count == 1) {
    memcpy(all, own, each);
    return;
  }
  MPI_Iallgather(own, (int)each, MPI_BYTE, all, (int)each, MPI_BYTE, MPI_COMM_WORLD, &request);
  wait_for(&request);
}

void ranks_spread(int from, void *bytes, size_t count) {
  static const size_t max = (size_t)1 << 28; /* MPI counts in int */
  for (size_t at = 0; at < count && job.count > 1; at += max) {
    MPI_Request request;
    MPI_Ibcast((char *)bytes + at, (int)(count - at < max ? count - at : max), MPI_BYTE, from, MPI_COMM_WORLD, &request);
    wait_for(&request);
  }
}

void ranks_count_all(int64_t *numbers, int64_t count) {
  static const int64_t max = 1 << 24;
  for (int64_t at = 0; at < count && job.count > 1; at += max) {
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, numbers + at, (int)(count - at < max ? count - at : max), MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &request);
    wait_for(&request);
  }
}

/* ---- exchanges */

RanksExchange *ranks_exchange_new(void) { return calloc(1, sizeof(RanksExchange) + 2 * (size_t)(job.count - 1) * sizeof(MPI_Request)); }

void ranks_exchange_free(RanksExchange *exchange) { free(exchange); }

void ranks_exchange_begin(RanksExchange *exchange, int tag, const RanksPiece *out, const RanksPiece *in) {
  exchange->count = 0;
  for (int i = 1; i < job.count; i++) { /* each rank begins with another one */
    int from = (job.self + job.count - i) % job.count, to = (job.self + i) % job.count;
    if (in[from].bytes > 0)
      MPI_Irecv(in[from].data, (int)in[from].bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, &exchange->request[exchange->count++]);
    if (out[to].bytes > 0)
      MPI_Isend(out[to].data, (int)out[to].bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &exchange->request[exchange->count++]);
  }
}

bool ranks_exchange_done(RanksExchange *exchange) {
  int done;
  MPI_Testall(exchange->count, exchange->request, &done, MPI_STATUSES_IGNORE);
  return done;
}

#else /* one process alone */

struct RanksExchange {
  char nothing;
};

Status ranks_join(void) {
  if (launcher_rank() < 0 || launcher_ranks() == 1) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED,
                    "this is process %d of a job, but the program was built without MPI: install Open MPI with its headers "
                    "(Debian: libopenmpi-dev openmpi-bin), and build it again with `make clean all`",
                    launcher_rank());
}
void ranks_leave(void) {}
void ranks_abort(int exit_code) { exit(exit_code); }
void ranks_gather(const void *own, void *all, size_t each) { memcpy(all, own, each); }
void ranks_spread(int from, void *bytes, size_t count) { (void)from, (void)bytes, (void)count; }
void ranks_count_all(int64_t *numbers, int64_t count) { (void)numbers, (void)count; }
RanksExchange *ranks_exchange_new(void) { return calloc(1, sizeof(RanksExchange)); }
void ranks_exchange_free(RanksExchange *exchange) { free(exchange); }
void ranks_exchange_begin(RanksExchange *exchange, int tag, const RanksPiece *out, const RanksPiece *in) {
  (void)exchange, (void)tag, (void)out, (void)in;
}
bool ranks_exchange_done(RanksExchange *exchange) {
  (void)exchange;
  return true;
}

#endif

/* ---------------------------------------------------------------- what follows from these */

enum { SUMS = 4096 };

void ranks_sum(double *numbers, int count) {
  int max = count < SUMS ? count : SUMS;
  if (job.count == 1 || count == 0) return;
  double *all = malloc((size_t)job.count * (size_t)max * sizeof *all);
  if (all == NULL) abort(); /* some kilobytes: MPI itself would not go on without them */
  for (int at = 0; at < count; at += max) {
    int part = count - at < max ? count - at : max;
    ranks_gather(numbers + at, all, (size_t)part * sizeof *all);
    for (int i = 0; i < part; i++) {
      numbers[at + i] = 0;
      for (int r = 0; r < job.count; r++) numbers[at + i] += all[r * part + i];
    }
  }
  free(all);
}

/* The failure of one rank, to all. */
static Status tell_all(Status status, int rank) {
  char message[MESSAGE + HOST] = "";
  int code = (int)status;
  if (job.self == rank && rank == 0) snprintf(message, sizeof message, "%s", status_message());
  if (job.self == rank && rank > 0) snprintf(message, sizeof message, "rank %d on %s: %s", rank, job.host, status_message());
  ranks_spread(rank, &code, sizeof code);
  ranks_spread(rank, message, sizeof message);
  job.common = true;
  return status_set((Status)code, "%s", message);
}

Status ranks_agree(Status status) {
  if (job.count == 1 || (status != STATUS_OK && job.common)) return status;
  int code = (int)status, *codes = calloc((size_t)job.count, sizeof *codes), failed = 0;
  if (codes == NULL) return status_set(STATUS_NO_MEMORY, "no memory for %d ranks", job.count);
  ranks_gather(&code, codes, sizeof code);
  while (failed < job.count && codes[failed] == STATUS_OK) failed++;
  free(codes);
  return failed < job.count ? tell_all(status, failed) : STATUS_OK;
}

Status ranks_follow(Status status) {
  if (job.count == 1) return status;
  int code = (int)status;
  ranks_spread(0, &code, sizeof code);
  return code == STATUS_OK ? STATUS_OK : tell_all(status, 0);
}
