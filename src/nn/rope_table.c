/* Rotary positions: see rope_table.h. Angles are computed in double: in float they are off by 1e-3 at position 8192.
 * On one thread, since models are made before processes are forked, when no pool may run yet. */
#include "nn/rope_table.h"
#include <math.h>
#include <stdlib.h>

static const double TURN = 6.283185307179586477;

static double slowed(const RopeConfig *rope, double frequency) {
  double wavelength = TURN / frequency, original = (double)rope->original;
  if (wavelength < original / rope->high_factor) return frequency;
  if (wavelength > original / rope->low_factor) return frequency / rope->factor;
  double share = (original / wavelength - rope->low_factor) / (rope->high_factor - rope->low_factor);
  return (1 - share) * frequency / rope->factor + share * frequency;
}

void rope_table_frequencies(const RopeConfig *rope, int64_t head_width, double *frequency) {
  for (int64_t i = 0; i < head_width / 2; i++) {
    frequency[i] = pow(rope->theta, -2.0 * (double)i / (double)head_width);
    if (rope->llama3) frequency[i] = slowed(rope, frequency[i]);
  }
}

static void fill(RopeTable *table, const double *frequency, int64_t half) {
  for (int64_t at = 0; at < table->count * half; at++) {
    double angle = (double)(at / half) * frequency[at % half];
    table->cosine[at] = (real)cos(angle);
    table->sine[at] = (real)sin(angle);
  }
}

Status rope_table_init(RopeTable *table, const ModelConfig *config) {
  int64_t head_width = config->width / config->heads, half = head_width / 2, numbers = config->context * half;
  double *frequency = malloc((size_t)half * sizeof *frequency);
  *table = (RopeTable){malloc(2 * (size_t)numbers * sizeof(real)), NULL, config->context};
  if (!frequency || !table->cosine) {
    free(frequency);
    rope_table_release(table);
    return status_set(STATUS_NO_MEMORY, "no memory for the table of %lld rotary positions", (long long)config->context);
  }
  table->sine = table->cosine + numbers;
  rope_table_frequencies(&config->rope, head_width, frequency);
  fill(table, frequency, half);
  free(frequency);
  return STATUS_OK;
}

void rope_table_release(RopeTable *table) {
  free(table->cosine);
  *table = (RopeTable){0};
}
