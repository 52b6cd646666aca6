/* The job: see ranks.h. Waiting is done here and not inside of MPI, which would keep a core busy that another rank may need.
 * Invariant: without ASTRA_MPI, or outside of a job, `world.count` is 1 and no function of MPI is called. */
#include "train/ranks.h"
#include "autograd/kernels/kernels.h"
#include "base/threads.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HOST = 128, MESSAGE = 2048 };

static struct Job {
  int self, count, machines, here;
  char host[HOST];
  bool common; /* the last failure is known to all ranks */
  bool apart;  /* from rank 0, on another machine */
  pid_t first; /* rank 0's process */
} world = {.count = 1, .machines = 1, .here = 1};

int ranks_self(void) { return world.self; }
int ranks_count(void) { return world.count; }
const char *ranks_host(void) { return world.host; }
int ranks_machines(void) { return world.machines; }
int ranks_here(void) { return world.here; }

Status ranks_common(Status status) {
  world.common = world.common || status != STATUS_OK;
  return status;
}

bool ranks_speaks(void) { return world.self == 0 || (world.self == 1 && (world.apart || kill(world.first, 0) != 0)); }

bool ranks_alone(Status status) { return world.count > 1 && status != STATUS_OK && !world.common; }

/* ---- what mpirun, srun and their kin tell a process before it starts MPI, so that a program which is not one of a job never does ---- */

/* The variables of Open MPI, MPICH and its kin, and PMIx. */
static int first_number(const char *const *names, int otherwise) {
  for (; *names != NULL; names++)
    if (getenv(*names)) return atoi(getenv(*names));
  return otherwise;
}

/* Of this process in its job; -1: it was not started as part of one, or it is the only one (a launcher may not say how many there are). */
static int told_rank(void) {
  if (first_number((const char *const[]){"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL}, 0) == 1) return -1;
  return first_number((const char *const[]){"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", NULL}, -1);
}

enum { SPINS = 2000, NAP = 50 /* microseconds */ };

/* For what waits in a loop of its own, when nothing has moved: the more often, the longer it sleeps. turns: how often already. */
static void idle(int turns) {
  if (turns < SPINS)
    sched_yield();
  else
    usleep(NAP);
}

/* Bytes from each rank to each, beside other work. */
typedef struct Piece {
  void *data;
  size_t bytes;
} Piece;

typedef struct Transfer Transfer;

#ifdef ASTRA_MPI
#include <mpi.h>

struct Transfer {
  int count;
  MPI_Request request[]; /* [2 (ranks - 1)] */
};

static void wait_for(MPI_Request *request) {
  int done = 0;
  for (int turns = 0; !done; turns++) {
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (!done) idle(turns);
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
  const Seat *own = &seats[world.self];
  int sharing = 0, before = 0, cores = CPU_COUNT(&own->cores), at = 0;
  for (int r = 0; r < world.count; r++) {
    bool same = strcmp(seats[r].host, own->host) == 0 && CPU_EQUAL(&seats[r].cores, &own->cores);
    sharing += same;
    before += same && r < world.self;
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
  Seat own = {.process = getpid()}, *seats = calloc((size_t)world.count, sizeof *seats);
  if (seats == NULL) return status_set(STATUS_NO_MEMORY, "no memory for %d ranks", world.count);
  gethostname(own.host, HOST - 1);
  sched_getaffinity(0, sizeof own.cores, &own.cores);
  ranks_gather(&own, seats, sizeof own);
  memcpy(world.host, own.host, HOST);
  world.first = seats[0].process;
  world.apart = strcmp(seats[0].host, own.host) != 0;
  for (int r = 1; r < world.count; r++) {
    bool fresh = true;
    for (int q = 0; q < r; q++) fresh &= strcmp(seats[q].host, seats[r].host) != 0;
    world.machines += fresh;
  }
  world.here = 0;
  for (int r = 0; r < world.count; r++) world.here += strcmp(seats[r].host, own.host) == 0;
  take_cores(seats);
  free(seats);
  return STATUS_OK;
}

Status ranks_join(void) {
  int provided;
  if (told_rank() < 0) return STATUS_OK;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return status_set(STATUS_IO, "MPI does not start");
  MPI_Comm_rank(MPI_COMM_WORLD, &world.self);
  MPI_Comm_size(MPI_COMM_WORLD, &world.count);
  return look_around();
}

void ranks_leave(void) {
  int begun, ended;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun && !ended) MPI_Finalize();
}

void ranks_abort(int exit_code) {
  if (world.count > 1) MPI_Abort(MPI_COMM_WORLD, exit_code);
  exit(exit_code);
}

/* ---- numbers and bytes */

void ranks_gather(const void *own, void *all, size_t each) {
  MPI_Request request;
  if (world.count == 1) {
    memcpy(all, own, each);
    return;
  }
  MPI_Iallgather(own, (int)each, MPI_BYTE, all, (int)each, MPI_BYTE, MPI_COMM_WORLD, &request);
  wait_for(&request);
}

void ranks_spread(int from, void *bytes, size_t count) {
  static const size_t max = (size_t)1 << 28; /* MPI counts in int */
  for (size_t at = 0; at < count && world.count > 1; at += max) {
    MPI_Request request;
    MPI_Ibcast((char *)bytes + at, (int)(count - at < max ? count - at : max), MPI_BYTE, from, MPI_COMM_WORLD, &request);
    wait_for(&request);
  }
}

void ranks_count_all(int64_t *numbers, int64_t count) {
  static const int64_t max = 1 << 24;
  for (int64_t at = 0; at < count && world.count > 1; at += max) {
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, numbers + at, (int)(count - at < max ? count - at : max), MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &request);
    wait_for(&request);
  }
}

/* ---- bytes beside other work */

static Transfer *transfer_new(void) { return calloc(1, sizeof(Transfer) + 2 * (size_t)(world.count - 1) * sizeof(MPI_Request)); }

/* Sends out[d] to rank d and receives in[d] from it, for every other rank; empty pieces are left out, on both sides. The memory stays as it
 * is until the transfer is done. Transfers of one tag (0 to 2^20) follow each other in the same order on all ranks; those of different tags
 * in any. */
static void transfer_begin(Transfer *transfer, int tag, const Piece *out, const Piece *in) {
  transfer->count = 0;
  for (int i = 1; i < world.count; i++) { /* each rank begins with another one */
    int from = (world.self + world.count - i) % world.count, to = (world.self + i) % world.count;
    if (in[from].bytes > 0)
      MPI_Irecv(in[from].data, (int)in[from].bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, &transfer->request[transfer->count++]);
    if (out[to].bytes > 0)
      MPI_Isend(out[to].data, (int)out[to].bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &transfer->request[transfer->count++]);
  }
}

/* Moves all transfers on; true without one under way. */
static bool transfer_done(Transfer *transfer) {
  int done;
  MPI_Testall(transfer->count, transfer->request, &done, MPI_STATUSES_IGNORE);
  return done;
}

#else /* one process alone */

struct Transfer {
  char nothing;
};

Status ranks_join(void) {
  if (told_rank() < 0) return STATUS_OK;
  return status_set(STATUS_UNSUPPORTED,
                    "this is process %d of a job, but the program was built without MPI: install Open MPI with its headers "
                    "(Debian: libopenmpi-dev openmpi-bin), and build it again with `make clean all`",
                    told_rank());
}
void ranks_leave(void) {}
void ranks_abort(int exit_code) { exit(exit_code); }
void ranks_gather(const void *own, void *all, size_t each) { memcpy(all, own, each); }
void ranks_spread(int from, void *bytes, size_t count) { (void)from, (void)bytes, (void)count; }
void ranks_count_all(int64_t *numbers, int64_t count) { (void)numbers, (void)count; }
static Transfer *transfer_new(void) { return calloc(1, sizeof(Transfer)); }
static void transfer_begin(Transfer *transfer, int tag, const Piece *out, const Piece *in) {
  (void)transfer, (void)tag, (void)out, (void)in;
}
static bool transfer_done(Transfer *transfer) {
  (void)transfer;
  return true;
}

#endif

/* ---------------------------------------------------------------- what follows from these */

enum { SUMS = 4096 };

void ranks_sum(double *numbers, int count) {
  int max = count < SUMS ? count : SUMS;
  if (world.count == 1 || count == 0) return;
  double *all = malloc((size_t)world.count * (size_t)max * sizeof *all);
  if (all == NULL) abort(); /* some kilobytes: MPI itself would not go on without them */
  for (int at = 0; at < count; at += max) {
    int part = count - at < max ? count - at : max;
    ranks_gather(numbers + at, all, (size_t)part * sizeof *all);
    for (int i = 0; i < part; i++) {
      numbers[at + i] = 0;
      for (int r = 0; r < world.count; r++) numbers[at + i] += all[r * part + i];
    }
  }
  free(all);
}

/* The failure of one rank, to all. */
static Status tell_all(Status status, int rank) {
  char message[MESSAGE + HOST] = "";
  int code = (int)status;
  if (world.self == rank && rank == 0) snprintf(message, sizeof message, "%s", status_message());
  if (world.self == rank && rank > 0) snprintf(message, sizeof message, "rank %d on %s: %s", rank, world.host, status_message());
  ranks_spread(rank, &code, sizeof code);
  ranks_spread(rank, message, sizeof message);
  world.common = true;
  return status_set((Status)code, "%s", message);
}

Status ranks_agree(Status status) {
  if (world.count == 1 || (status != STATUS_OK && world.common)) return status;
  int code = (int)status, *codes = calloc((size_t)world.count, sizeof *codes), failed = 0;
  if (codes == NULL) return status_set(STATUS_NO_MEMORY, "no memory for %d ranks", world.count);
  ranks_gather(&code, codes, sizeof code);
  while (failed < world.count && codes[failed] == STATUS_OK) failed++;
  free(codes);
  return failed < world.count ? tell_all(status, failed) : STATUS_OK;
}

Status ranks_follow(Status status) {
  if (world.count == 1) return status;
  int code = (int)status;
  ranks_spread(0, &code, sizeof code);
  return code == STATUS_OK ? STATUS_OK : tell_all(status, 0);
}

/* ---- Sums of a block, bucket by bucket ---- */

/* A bucket at work has a workspace, of which there are a few: more would take memory, and a link that is the bottleneck has enough with
 * these. */
enum { BUCKET = 1 << 20, PLACES = 8, GRAIN = 4096, ALIGN = 16 /* numbers: slices begin on a cache line */ };

typedef enum Stage { STAGE_FREE, STAGE_SCATTER, STAGE_GATHER } Stage;

typedef struct Place {
  Stage stage;
  int64_t bucket;
  Transfer *transfer;
  real *in;              /* fp32: [ranks - 1][slice] of the others; bf16: half of that */
  uint16_t *out;         /* bf16: [bucket] */
  Piece *send, *receive; /* [ranks] */
} Place;

struct AllReduce {
  real *numbers;
  int64_t total, buckets;
  int64_t *edge; /* [buckets][ranks + 1] */
  AllReduceOptions options;
  bool *ready;        /* [buckets] */
  int64_t next, done; /* to leave; back */
  int ranks, self;
  Place place[PLACES];
};

/* ---------------------------------------------------------------- where things are */

/* The last place up to `at` where a slice may begin. */
static int64_t snap(const AllReduceOptions *options, int64_t at) {
  int64_t low = 0, high = options->cut_count;
  if (options->cuts == NULL) return at / ALIGN * ALIGN;
  while (high - low > 1) { /* cuts[low] <= at < cuts[high] */
    int64_t middle = low + (high - low) / 2;
    if (options->cuts[middle] <= at)
      low = middle;
    else
      high = middle;
  }
  return options->cuts[low];
}

/* The edges of all slices [buckets][ranks + 1]; with NULL the buckets are only counted. */
static int64_t divide(const AllReduce *reduce, int64_t *edge) {
  int64_t buckets = 0;
  for (int64_t end = reduce->total; end > 0; buckets++) {
    int64_t begin = end > BUCKET ? snap(&reduce->options, end - BUCKET) : 0;
    for (int r = 0; edge != NULL && r <= reduce->ranks; r++) {
      int64_t at = snap(&reduce->options, begin + (end - begin) * r / reduce->ranks);
      edge[buckets * (reduce->ranks + 1) + r] = r == 0 || at < begin ? begin : r == reduce->ranks ? end : at;
    }
    end = begin;
  }
  return buckets;
}

typedef struct Slice {
  int64_t begin, count;
} Slice;

static Slice slice_of(const AllReduce *reduce, int64_t bucket, int rank) {
  const int64_t *edge = reduce->edge + bucket * (reduce->ranks + 1) + rank;
  return (Slice){edge[0], edge[1] - edge[0]};
}

int64_t all_reduce_buckets(const AllReduce *reduce) { return reduce->buckets; }

void all_reduce_bucket(const AllReduce *reduce, int64_t bucket, int64_t *begin, int64_t *end) {
  *begin = reduce->edge[bucket * (reduce->ranks + 1)];
  *end = reduce->edge[bucket * (reduce->ranks + 1) + reduce->ranks];
}

bool all_reduce_owns(const AllReduce *reduce, int64_t at) {
  for (int64_t bucket = 0; bucket < reduce->buckets; bucket++) {
    Slice own = slice_of(reduce, bucket, reduce->self);
    if (at >= own.begin && at < own.begin + own.count) return true;
  }
  return false;
}

/* ---------------------------------------------------------------- 16 bits */

typedef struct NarrowJob {
  const real *from;
  uint16_t *to;
} NarrowJob;

static void narrow_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const NarrowJob *job = context;
  kernels()->narrow(end - begin, job->from + begin, job->to + begin);
}

typedef struct WidenJob {
  const uint16_t *from;
  real *to;
} WidenJob;

static void widen_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const WidenJob *job = context;
  kernels()->widen(NARROW_BF16, end - begin, job->from + begin, job->to + begin);
}

/* ---------------------------------------------------------------- sums */

typedef struct SumJob {
  real *numbers;  /* of the own slice */
  const real *in; /* [ranks - 1][stride] */
  const uint16_t *narrow;
  int64_t stride;
  int ranks, self;
} SumJob;

static void sum_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const SumJob *job = context;
  real sum[GRAIN], other[GRAIN];
  for (int64_t at = begin; at < end; at += GRAIN) {
    int64_t count = end - at < GRAIN ? end - at : GRAIN;
    memset(sum, 0, (size_t)count * sizeof *sum);
    for (int r = 0; r < job->ranks; r++) {
      int64_t row = (r < job->self ? r : r - 1) * job->stride + at;
      const real *term = r == job->self ? job->numbers + at : job->in ? job->in + row : other;
      if (term == other) kernels()->widen(NARROW_BF16, count, job->narrow + row, other);
      kernels()->add(count, term, sum);
    }
    memcpy(job->numbers + at, sum, (size_t)count * sizeof *sum);
  }
}

static bool is_narrow(const AllReduce *reduce) { return reduce->options.wire == WIRE_BF16; }

/* ---------------------------------------------------------------- stages */

static void send_off(AllReduce *reduce, Place *place) {
  place->send[reduce->self] = place->receive[reduce->self] = (Piece){NULL, 0};
  int tag = reduce->options.tag + 2 * (int)(place->bucket % (1 << 14)) + (place->stage == STAGE_GATHER);
  transfer_begin(place->transfer, tag, place->send, place->receive);
}

/* What a rank keeps is rounded as what it sends is: the same numbers whoever adds them up, and in all ranks. */
static void round_own(AllReduce *reduce, Place *place) {
  int64_t begin, end;
  Slice own = slice_of(reduce, place->bucket, reduce->self);
  all_reduce_bucket(reduce, place->bucket, &begin, &end);
  uint16_t *narrow = place->out + (own.begin - begin);
  threads_for(own.count, GRAIN, narrow_body, &(NarrowJob){reduce->numbers + own.begin, narrow});
  threads_for(own.count, GRAIN, widen_body, &(WidenJob){narrow, reduce->numbers + own.begin});
}

static void begin_scatter(AllReduce *reduce, Place *place, int64_t bucket) {
  int64_t begin, end;
  Slice own = slice_of(reduce, bucket, reduce->self);
  place->bucket = bucket;
  place->stage = STAGE_SCATTER;
  all_reduce_bucket(reduce, bucket, &begin, &end);
  if (is_narrow(reduce)) threads_for(end - begin, GRAIN, narrow_body, &(NarrowJob){reduce->numbers + begin, place->out});
  if (is_narrow(reduce)) round_own(reduce, place);
  for (int r = 0; r < reduce->ranks; r++) {
    Slice slice = slice_of(reduce, bucket, r);
    int64_t row = (r < reduce->self ? r : r - 1) * own.count;
    if (is_narrow(reduce)) {
      place->send[r] = (Piece){place->out + (slice.begin - begin), (size_t)slice.count * sizeof *place->out};
      place->receive[r] = (Piece){(uint16_t *)place->in + row, (size_t)own.count * sizeof *place->out};
    } else {
      place->send[r] = (Piece){reduce->numbers + slice.begin, (size_t)slice.count * sizeof(real)};
      place->receive[r] = (Piece){place->in + row, (size_t)own.count * sizeof(real)};
    }
  }
  send_off(reduce, place);
}

static void begin_gather(AllReduce *reduce, Place *place) {
  int64_t begin, end;
  Slice own = slice_of(reduce, place->bucket, reduce->self);
  place->stage = STAGE_GATHER;
  all_reduce_bucket(reduce, place->bucket, &begin, &end);
  uint16_t *narrow = place->out; /* its place in `out` is the owner's, the others' are filled as they arrive */
  for (int r = 0; r < reduce->ranks; r++) {
    Slice slice = slice_of(reduce, place->bucket, r);
    if (is_narrow(reduce)) {
      place->send[r] = (Piece){narrow + (own.begin - begin), (size_t)own.count * sizeof *narrow};
      place->receive[r] = (Piece){narrow + (slice.begin - begin), (size_t)slice.count * sizeof *narrow};
    } else {
      place->send[r] = (Piece){reduce->numbers + own.begin, (size_t)own.count * sizeof(real)};
      place->receive[r] = (Piece){reduce->numbers + slice.begin, (size_t)slice.count * sizeof(real)};
    }
  }
  send_off(reduce, place);
}

/* Whether the place moved on. */
static bool move_on(AllReduce *reduce, Place *place) {
  if (place->stage == STAGE_FREE || !transfer_done(place->transfer)) return false;
  bool gathered = place->stage == STAGE_GATHER;
  if (!gathered) {
    const Slice own = slice_of(reduce, place->bucket, reduce->self);
    SumJob job = {.numbers = reduce->numbers + own.begin, .stride = own.count, .ranks = reduce->ranks, .self = reduce->self};
    if (is_narrow(reduce))
      job.narrow = (const uint16_t *)place->in;
    else
      job.in = place->in;
    threads_for(own.count, GRAIN, sum_body, &job);
  }
  if (!gathered && is_narrow(reduce)) round_own(reduce, place);
  if (!gathered && !reduce->options.scatter_only) {
    begin_gather(reduce, place);
    return true;
  }
  int64_t begin, end;
  all_reduce_bucket(reduce, place->bucket, &begin, &end);
  if (gathered && is_narrow(reduce)) threads_for(end - begin, GRAIN, widen_body, &(WidenJob){place->out, reduce->numbers + begin});
  place->stage = STAGE_FREE;
  reduce->done++;
  return true;
}

static Place *free_place(AllReduce *reduce) {
  for (int i = 0; i < PLACES; i++)
    if (reduce->place[i].stage == STAGE_FREE) return &reduce->place[i];
  return NULL;
}

/* Whether anything moved. */
static bool move_all(AllReduce *reduce) {
  bool moved = false;
  Place *place;
  for (int i = 0; i < PLACES; i++) moved |= move_on(reduce, &reduce->place[i]);
  while (reduce->next < reduce->buckets && reduce->ready[reduce->next] && (place = free_place(reduce)) != NULL) {
    begin_scatter(reduce, place, reduce->next++);
    moved = true;
  }
  return moved;
}

void all_reduce_poll(AllReduce *reduce) {
  if (reduce->ranks > 1) move_all(reduce);
}

void all_reduce_ready(AllReduce *reduce, int64_t bucket) {
  reduce->ready[bucket] = true;
  all_reduce_poll(reduce);
}

void all_reduce_finish(AllReduce *reduce) {
  for (int turns = 0; reduce->ranks > 1 && reduce->done < reduce->buckets; turns++) {
    if (move_all(reduce))
      turns = 0;
    else
      idle(turns);
  }
  memset(reduce->ready, 0, (size_t)reduce->buckets * sizeof *reduce->ready);
  reduce->next = reduce->done = 0;
}

/* ---------------------------------------------------------------- slices to all */

typedef struct Spread {
  char *values;
  size_t size;
  bool to_first;
} Spread;

static void begin_spread(AllReduce *reduce, Place *place, int64_t bucket, const Spread *spread) {
  Slice own = slice_of(reduce, bucket, reduce->self);
  place->bucket = bucket;
  place->stage = STAGE_GATHER;
  for (int r = 0; r < reduce->ranks; r++) {
    Slice slice = slice_of(reduce, bucket, r);
    bool sends = !spread->to_first || r == 0, receives = !spread->to_first || reduce->self == 0;
    place->send[r] = (Piece){spread->values + (size_t)own.begin * spread->size, sends ? (size_t)own.count * spread->size : 0};
    place->receive[r] = (Piece){spread->values + (size_t)slice.begin * spread->size, receives ? (size_t)slice.count * spread->size : 0};
  }
  send_off(reduce, place);
}

void all_reduce_gather(AllReduce *reduce, void *values, size_t size, bool to_first) {
  const Spread spread = {values, size, to_first};
  int64_t next = 0, done = 0;
  for (int turns = 0; reduce->ranks > 1 && done < reduce->buckets; turns++) {
    for (int i = 0; i < PLACES; i++) {
      Place *place = &reduce->place[i];
      if (place->stage != STAGE_FREE && transfer_done(place->transfer)) place->stage = STAGE_FREE, done++, turns = 0;
    }
    for (Place *place; next < reduce->buckets && (place = free_place(reduce)) != NULL; next++) begin_spread(reduce, place, next, &spread);
    idle(turns);
  }
}

void all_reduce_forget(const AllReduce *reduce, void *values, size_t size) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int64_t bucket = 0; bucket < reduce->buckets; bucket++)
    for (int r = 0; r < reduce->ranks; r++) {
      Slice slice = slice_of(reduce, bucket, r);
      uintptr_t begin = ((uintptr_t)values + (size_t)slice.begin * size + page - 1) / page * page;
      uintptr_t end = ((uintptr_t)values + (size_t)(slice.begin + slice.count) * size) / page * page;
      if (r != reduce->self && begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
}

/* ---------------------------------------------------------------- opening */

static bool open_all(AllReduce *reduce) {
  int64_t bucket = 0, slice = 0; /* the longest */
  reduce->buckets = divide(reduce, NULL);
  reduce->edge = calloc((size_t)(reduce->buckets * (reduce->ranks + 1) + 1), sizeof *reduce->edge);
  reduce->ready = calloc((size_t)reduce->buckets + 1, sizeof *reduce->ready);
  if (reduce->edge == NULL || reduce->ready == NULL) return false;
  divide(reduce, reduce->edge);
  for (int64_t b = 0; b < reduce->buckets; b++) {
    int64_t begin, end, own = slice_of(reduce, b, reduce->self).count;
    all_reduce_bucket(reduce, b, &begin, &end);
    if (end - begin > bucket) bucket = end - begin;
    if (own > slice) slice = own;
  }
  const bool narrow = is_narrow(reduce);
  const size_t ranks = (size_t)reduce->ranks;
  for (int i = 0; i < PLACES && i < reduce->buckets && ranks > 1; i++) {
    Place *place = &reduce->place[i];
    place->transfer = transfer_new();
    place->in = malloc(((ranks - 1) * (size_t)slice + 1) * (narrow ? sizeof *place->out : sizeof(real)));
    place->out = narrow ? malloc((size_t)bucket * sizeof *place->out) : NULL;
    place->send = calloc(ranks, sizeof *place->send);
    place->receive = calloc(ranks, sizeof *place->receive);
    if (!place->transfer || !place->in || !place->send || !place->receive || (narrow && !place->out)) return false;
  }
  return true;
}

Status all_reduce_new(AllReduce **reduce, real *numbers, int64_t total, const AllReduceOptions *options) {
  AllReduce *fresh = *reduce = calloc(1, sizeof *fresh);
  if (fresh == NULL) return status_no_memory(NULL, "sums over ranks");
  *fresh = (AllReduce){.numbers = numbers, .total = total, .options = *options, .ranks = ranks_count(), .self = ranks_self()};
  if (open_all(fresh)) return STATUS_OK;
  all_reduce_free(fresh);
  *reduce = NULL;
  return status_set(STATUS_NO_MEMORY, "no memory for sums of %lld numbers over %d ranks", (long long)total, ranks_count());
}

void all_reduce_free(AllReduce *reduce) {
  if (reduce == NULL) return;
  for (int i = 0; i < PLACES; i++) {
    Place *place = &reduce->place[i];
    free(place->transfer);
    free(place->in);
    free(place->out);
    free(place->send);
    free(place->receive);
  }
  free(reduce->ready);
  free(reduce->edge);
  free(reduce);
}
