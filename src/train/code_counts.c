/* Frequencies of codes: see code_counts.h. */
#include "train/code_counts.h"
#include "train/interrupt.h"
#include "vq/code_frequencies.h"
#include <stdlib.h>

static int64_t sites_of(const Session *session) { return session->emulation.blocks * session->emulation.sites; }

/* ---- counting */

static Status count_batch(Session *session, const TaskBatch *batch) {
  int devices = session->config->astra.devices;
  TaskScore score = {0};
  if (devices > batch->tokens) devices = (int)batch->tokens;
  TRY(device_map_place(&session->layout, session->config, batch->tokens, devices, session->order));
  emulate_begin_step(&session->emulation, false);
  session->task->loss(session, batch, &session->layout, &session->emulation.exchange, &score);
  Status status = tape_status(session->tape);
  tape_clear(session->tape);
  return status;
}

Status code_counts_run(Session *session, TaskPart part, int64_t samples) {
  int64_t available = session->task->count(session, part), done = 0;
  if (samples <= 0 || samples > available) samples = available;
  tape_record(session->tape, false);
  emulate_clear_usage(&session->emulation);
  emulate_begin_look(&session->emulation);
  TRY(session->task->seek(session, part, 0, 0));
  while (done < samples) {
    TaskBatch batch;
    if (interrupt_asked()) return status_set(STATUS_INTERRUPTED, "counting was interrupted");
    TRY(session->task->next(session, part, &batch));
    if (batch.count > samples - done) batch.count = (int)(samples - done);
    TRY(count_batch(session, &batch));
    done += batch.count;
  }
  return STATUS_OK;
}

/* ---- what follows from it */

/* One group's numbers, counted or averaged, as doubles. */
static void counted(const EmulateSite *site, bool averaged, int64_t group, double *counts) {
  int64_t entries = site->book.entries;
  for (int64_t k = 0; k < entries; k++)
    counts[k] = averaged ? (double)site->ema.sizes[group * entries + k] : (double)site->usage.counts[group * entries + k];
}

static Status fit(const Session *session, bool averaged, uint16_t *frequencies) {
  int64_t groups = session->config->astra.groups, entries = session->config->astra.codebook_size;
  double *counts = malloc((size_t)entries * sizeof *counts);
  Status status = counts ? STATUS_OK : status_set(STATUS_NO_MEMORY, "no memory to count %lld codes", (long long)entries);
  for (int64_t i = 0; status == STATUS_OK && i < sites_of(session) * groups; i++) {
    counted(&session->emulation.site[i / groups], averaged, i % groups, counts);
    for (int64_t k = 0; !averaged && k < entries; k++) counts[k] += 1; /* Laplace: a code that was not seen is not impossible */
    status = code_frequencies_fit(counts, entries, frequencies + i * entries);
  }
  free(counts);
  return status;
}

Status code_counts_fit(const Session *session, uint16_t *frequencies) {
  int64_t entries = session->config->astra.codebook_size;
  if (!code_frequencies_possible(entries))
    return status_set(STATUS_UNSUPPORTED, "codebooks of %lld codewords have no frequencies: at most %d are accepted", (long long)entries,
                      CODE_FREQUENCIES_MOST);
  return fit(session, false, frequencies);
}

double code_counts_bits(const Session *session, const uint16_t *frequencies) {
  int64_t groups = session->config->astra.groups, entries = session->config->astra.codebook_size;
  double bits = 0, *counts = malloc((size_t)entries * sizeof *counts);
  for (int64_t i = 0; counts != NULL && i < sites_of(session) * groups; i++) {
    counted(&session->emulation.site[i / groups], false, i % groups, counts);
    bits += code_frequencies_bits(counts, frequencies + i * entries, entries);
  }
  free(counts);
  return bits;
}

Status code_counts_export(const Session *session, const char *directory) {
  const AstraConfig *astra = &session->config->astra;
  if (!code_frequencies_possible(astra->codebook_size)) return checkpoint_save_frequencies(session->config, directory, NULL);
  size_t numbers = (size_t)sites_of(session) * (size_t)astra->groups * (size_t)astra->codebook_size;
  uint16_t *frequencies = malloc(numbers * sizeof *frequencies);
  Status status = frequencies ? fit(session, true, frequencies) : status_set(STATUS_NO_MEMORY, "no memory for %zu frequencies", numbers);
  if (status == STATUS_OK) status = checkpoint_save_frequencies(session->config, directory, frequencies);
  free(frequencies);
  return status;
}
