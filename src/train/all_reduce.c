/* Buckets on their way: see all_reduce.h. A bucket at work has a workspace, of which there are a few: more would take memory, and a link
 * that is the bottleneck has enough with these. */
#include "train/all_reduce.h"
#include "autograd/kernels/kernels.h"
#include "base/clock.h"
#include "base/threads.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BUCKET = 1 << 20, PLACES = 8, GRAIN = 4096, ALIGN = 16 /* numbers: slices begin on a cache line */ };

typedef enum Stage { STAGE_FREE, STAGE_SCATTER, STAGE_GATHER } Stage;

typedef struct Place {
  Stage stage;
  int64_t bucket;
  RanksExchange *exchange;
  real *in;                   /* fp32: [ranks - 1][slice] of the others; bf16: half of that */
  uint16_t *out;              /* bf16: [bucket] */
  RanksPiece *send, *receive; /* [ranks] */
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

static uint16_t to_bfloat(real number) {
  float narrow = (float)number;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u); /* no number: stays none */
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);                  /* to nearest, ties to even */
}

typedef struct NarrowJob {
  const real *from;
  uint16_t *to;
} NarrowJob;

static void narrow_body(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const NarrowJob *job = context;
  for (int64_t i = begin; i < end; i++) job->to[i] = to_bfloat(job->from[i]);
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

static int other_index(const AllReduce *reduce, int rank) { return rank < reduce->self ? rank : rank - 1; }

static bool is_narrow(const AllReduce *reduce) { return reduce->options.wire == WIRE_BF16; }

static void add_up(AllReduce *reduce, Place *place) {
  Slice own = slice_of(reduce, place->bucket, reduce->self);
  SumJob job = {.numbers = reduce->numbers + own.begin, .stride = own.count, .ranks = reduce->ranks, .self = reduce->self};
  if (is_narrow(reduce))
    job.narrow = (const uint16_t *)place->in;
  else
    job.in = place->in;
  threads_for(own.count, GRAIN, sum_body, &job);
}

/* ---------------------------------------------------------------- stages */

static int tag_of(const AllReduce *reduce, const Place *place) {
  return reduce->options.tag + 2 * (int)(place->bucket % (1 << 14)) + (place->stage == STAGE_GATHER);
}

static void send_off(AllReduce *reduce, Place *place) {
  place->send[reduce->self] = place->receive[reduce->self] = (RanksPiece){NULL, 0};
  ranks_exchange_begin(place->exchange, tag_of(reduce, place), place->send, place->receive);
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
    int64_t row = other_index(reduce, r) * own.count;
    if (is_narrow(reduce)) {
      place->send[r] = (RanksPiece){place->out + (slice.begin - begin), (size_t)slice.count * sizeof *place->out};
      place->receive[r] = (RanksPiece){(uint16_t *)place->in + row, (size_t)own.count * sizeof *place->out};
    } else {
      place->send[r] = (RanksPiece){reduce->numbers + slice.begin, (size_t)slice.count * sizeof(real)};
      place->receive[r] = (RanksPiece){place->in + row, (size_t)own.count * sizeof(real)};
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
      place->send[r] = (RanksPiece){narrow + (own.begin - begin), (size_t)own.count * sizeof *narrow};
      place->receive[r] = (RanksPiece){narrow + (slice.begin - begin), (size_t)slice.count * sizeof *narrow};
    } else {
      place->send[r] = (RanksPiece){reduce->numbers + own.begin, (size_t)own.count * sizeof(real)};
      place->receive[r] = (RanksPiece){reduce->numbers + slice.begin, (size_t)slice.count * sizeof(real)};
    }
  }
  send_off(reduce, place);
}

static void end_gather(const AllReduce *reduce, const Place *place) {
  int64_t begin, end;
  all_reduce_bucket(reduce, place->bucket, &begin, &end);
  if (is_narrow(reduce)) threads_for(end - begin, GRAIN, widen_body, &(WidenJob){place->out, reduce->numbers + begin});
}

/* Whether the place moved on. */
static bool move_on(AllReduce *reduce, Place *place) {
  if (place->stage == STAGE_FREE || !ranks_exchange_done(place->exchange)) return false;
  bool gathered = place->stage == STAGE_GATHER;
  if (!gathered) add_up(reduce, place);
  if (!gathered && is_narrow(reduce)) round_own(reduce, place);
  if (!gathered && !reduce->options.scatter_only) {
    begin_gather(reduce, place);
    return true;
  }
  if (gathered) end_gather(reduce, place);
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
      ranks_idle(turns);
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
    place->send[r] = (RanksPiece){spread->values + (size_t)own.begin * spread->size, sends ? (size_t)own.count * spread->size : 0};
    place->receive[r] =
        (RanksPiece){spread->values + (size_t)slice.begin * spread->size, receives ? (size_t)slice.count * spread->size : 0};
  }
  send_off(reduce, place);
}

void all_reduce_gather(AllReduce *reduce, void *values, size_t size, bool to_first) {
  const Spread spread = {values, size, to_first};
  int64_t next = 0, done = 0;
  for (int turns = 0; reduce->ranks > 1 && done < reduce->buckets; turns++) {
    for (int i = 0; i < PLACES; i++) {
      Place *place = &reduce->place[i];
      if (place->stage != STAGE_FREE && ranks_exchange_done(place->exchange)) place->stage = STAGE_FREE, done++, turns = 0;
    }
    for (Place *place; next < reduce->buckets && (place = free_place(reduce)) != NULL; next++) begin_spread(reduce, place, next, &spread);
    ranks_idle(turns);
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

static bool open_place(const AllReduce *reduce, Place *place, int64_t bucket, int64_t slice) {
  size_t others = (size_t)(reduce->ranks - 1);
  place->exchange = ranks_exchange_new();
  place->in = malloc((others * (size_t)slice + 1) * (is_narrow(reduce) ? sizeof *place->out : sizeof(real)));
  place->out = is_narrow(reduce) ? malloc((size_t)bucket * sizeof *place->out) : NULL;
  place->send = calloc((size_t)reduce->ranks, sizeof *place->send);
  place->receive = calloc((size_t)reduce->ranks, sizeof *place->receive);
  return place->exchange && place->in && place->send && place->receive && (place->out || !is_narrow(reduce));
}

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
  for (int i = 0; i < PLACES && i < reduce->buckets && reduce->ranks > 1; i++)
    if (!open_place(reduce, &reduce->place[i], bucket, slice)) return false;
  return true;
}

Status all_reduce_new(AllReduce **reduce, real *numbers, int64_t total, const AllReduceOptions *options) {
  AllReduce *fresh = *reduce = calloc(1, sizeof *fresh);
  if (fresh == NULL) return status_set(STATUS_NO_MEMORY, "no memory for sums over ranks");
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
    ranks_exchange_free(place->exchange);
    free(place->in);
    free(place->out);
    free(place->send);
    free(place->receive);
  }
  free(reduce->ready);
  free(reduce->edge);
  free(reduce);
}
