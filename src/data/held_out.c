/* The rule of what is held out: see held_out.h. */
#include "data/held_out.h"
#include <stdlib.h>
#include <string.h>

typedef struct Record {
  uint64_t hash;
  int64_t index;
  int32_t label;
} Record;

typedef struct Share {
  int64_t records, quota;
  int64_t rest; /* what the quota is short of the exact share, in parts of the count */
} Share;

static uint64_t hash_of(int64_t index) {
  uint64_t z = ((uint64_t)index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static int by_label_and_hash(const void *a, const void *b) {
  const Record *x = a, *y = b;
  if (x->label != y->label) return x->label < y->label ? -1 : 1;
  return x->hash < y->hash ? -1 : x->hash > y->hash; /* a bijection: no two are equal */
}

static Status refuse(int64_t wanted, int64_t count) {
  return status_set(STATUS_BAD_VALUE, "%lld of %lld records cannot be held out for validation: every class keeps one for training",
                    (long long)wanted, (long long)count);
}

/* Quotas in proportion, by largest remainders. */
static Status share_out(Share *share, int64_t classes, int64_t count, int64_t wanted) {
  int64_t left = wanted;
  for (int64_t c = 0; c < classes; c++) {
    share[c].quota = wanted * share[c].records / count;
    share[c].rest = wanted * share[c].records % count;
    left -= share[c].quota;
  }
  for (; left > 0; left--) {
    Share *most = NULL;
    for (int64_t c = 0; c < classes; c++) {
      bool spare = share[c].quota + 1 < share[c].records;
      if (spare && (!most || share[c].rest > most->rest)) most = &share[c];
    }
    if (!most) return refuse(wanted, count);
    most->quota++;
    most->rest -= count;
  }
  return STATUS_OK;
}

Status held_out_choose(const int32_t *labels, int64_t count, int64_t classes, int64_t wanted, uint8_t *held) {
  if (wanted >= count) return refuse(wanted, count);
  Record *record = malloc((size_t)count * sizeof *record);
  Share *share = calloc((size_t)classes, sizeof *share);
  Status status = record && share ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory for the order of %lld records", (long long)count);
  for (int64_t i = 0; status == STATUS_OK && i < count; i++) {
    record[i] = (Record){hash_of(i), i, labels[i]};
    share[labels[i]].records++;
  }
  if (status == STATUS_OK) status = share_out(share, classes, count, wanted);
  if (status == STATUS_OK) {
    qsort(record, (size_t)count, sizeof *record, by_label_and_hash);
    memset(held, 0, (size_t)count);
    for (int64_t i = 0; i < count; i++)
      if (share[record[i].label].quota-- > 0) held[record[i].index] = 1;
  }
  free(record);
  free(share);
  return status;
}
