/* How a codebook is used. Counts are exact; the summary is computed on demand. */
#include "vq/usage.h"
#include "base/threads.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Status usage_init(CodeUsage *usage, int64_t groups, int64_t entries) {
  *usage = (CodeUsage){.groups = groups, .entries = entries};
  usage->counts = calloc((size_t)(groups * entries), sizeof *usage->counts);
  if (!usage->counts) return status_set(STATUS_NO_MEMORY, "no memory to count %" PRId64 " x %" PRId64 " codes", groups, entries);
  return STATUS_OK;
}

void usage_clear(CodeUsage *usage) {
  memset(usage->counts, 0, (size_t)(usage->groups * usage->entries) * sizeof *usage->counts);
  usage->rows = 0;
  usage->distortion = 0;
}

void usage_release(CodeUsage *usage) {
  free(usage->counts);
  memset(usage, 0, sizeof *usage);
}

typedef struct AddJob {
  CodeUsage *usage;
  const int32_t *codes; /* [rows, G] */
  int64_t rows;
} AddJob;

static void add_groups(void *context, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const AddJob *job = context;
  const CodeUsage *usage = job->usage;
  for (int64_t r = 0; r < job->rows; r++)
    for (int64_t g = begin; g < end; g++) usage->counts[g * usage->entries + job->codes[r * usage->groups + g]]++;
}

void usage_add(CodeUsage *usage, const int32_t *codes, int64_t rows, double distortion) {
  threads_for(usage->groups, 1, add_groups, &(AddJob){usage, codes, rows});
  usage->rows += rows;
  usage->distortion += distortion;
}

/* Entropy of one group's codes in nats; adds the codes in use to *used. */
static double group_entropy(const int64_t *counts, int64_t entries, int64_t rows, int64_t *used) {
  double entropy = 0;
  for (int64_t k = 0; k < entries; k++) {
    if (counts[k] == 0) continue;
    double share = (double)counts[k] / (double)rows;
    entropy -= share * log(share);
    ++*used;
  }
  return entropy;
}

UsageSummary usage_summary(const CodeUsage *usage) {
  UsageSummary summary = {.dead = 1};
  if (usage->rows == 0) return summary;
  int64_t used = 0;
  for (int64_t g = 0; g < usage->groups; g++) {
    double entropy = group_entropy(usage->counts + g * usage->entries, usage->entries, usage->rows, &used);
    summary.perplexity += exp(entropy) / (double)usage->groups;
    summary.entropy_bits += entropy / log(2) / (double)usage->groups;
  }
  summary.used = (double)used / (double)(usage->groups * usage->entries);
  summary.dead = 1 - summary.used;
  summary.distortion = usage->distortion / (double)usage->rows;
  return summary;
}
