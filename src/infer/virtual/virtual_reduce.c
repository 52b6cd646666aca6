/* A sum is a reduce-scatter by rows and a join. */
#include "infer/virtual/virtual_reduce.h"
#include "base/clock.h"
#include "infer/sim/schedule.h"
#include "nn/layout.h"
#include <stdlib.h>
#include <string.h>

static Status note_compute(VirtualReduce *virtual) { return schedule_compute(virtual->timeline, clock_spent() - virtual->since); }

/* Rows of each device where `rows` are divided; first: where this one's begin. */
static int64_t divide(const VirtualReduce *virtual, int64_t rows, int64_t *counts) {
  int64_t first = 0;
  layout_even_counts(rows, virtual->reduce.devices, counts);
  for (int d = 0; d < virtual->reduce.self; d++) first += counts[d];
  return first;
}

static Status sum(Reduce *self, Tape *tape, int block, int which, Tensor *partial) {
  VirtualReduce *virtual = (VirtualReduce *)self;
  int64_t counts[WIRE_NODES], width = tensor_width(partial), first = divide(virtual, tensor_rows(partial), counts);
  double bytes[WIRE_NODES];
  (void)tape;
  for (int d = 0; d < self->devices; d++) bytes[d] = 4.0 * (double)(counts[d] * width);
  memcpy(virtual->own, partial->value, (size_t)tensor_count(partial) * sizeof(real)); /* all rows but its own leave */
  TRY(note_compute(virtual));
  double begun = clock_spent();
  for (int d = 1; d < self->devices; d++)
    for (int64_t i = 0; i < counts[self->self] * width; i++) partial->value[first * width + i] += virtual->came[i];
  TRY(schedule_sum(virtual->timeline, block, which, self->self, self->devices, bytes, clock_spent() - begun));
  virtual->since = clock_spent();
  memcpy(virtual->own, virtual->came, (size_t)tensor_count(partial) * sizeof(real)); /* as many come in from the others */
  return STATUS_OK;
}

static Status gather(Reduce *self, Tape *tape, int block, int which, const Tensor *own, int64_t rows, Tensor **all) {
  VirtualReduce *virtual = (VirtualReduce *)self;
  int64_t counts[WIRE_NODES], width = tensor_width(own), first = divide(virtual, rows, counts);
  double bytes[WIRE_NODES];
  for (int d = 0; d < self->devices; d++) bytes[d] = 4.0 * (double)(own->shape[0] * counts[d] * width);
  TRY(note_compute(virtual));
  TRY(schedule_gather(virtual->timeline, block, which, self->self, self->devices, bytes));
  virtual->since = clock_spent();
  *all = tape_tensor(tape, 3, (int64_t[]){own->shape[0], rows, width});
  if (!*all) return tape_status(tape);
  memcpy((*all)->value, virtual->came, (size_t)tensor_count(*all) * sizeof(real));
  memcpy((*all)->value + first * width, own->value, (size_t)tensor_count(own) * sizeof(real));
  return STATUS_OK;
}

void virtual_reduce_start(VirtualReduce *virtual, Timeline *timeline) {
  virtual->timeline = timeline;
  virtual->since = clock_spent();
}

Status virtual_reduce_stop(VirtualReduce *virtual) { return note_compute(virtual); }

Status virtual_reduce_init(VirtualReduce *virtual, int self, int devices, int64_t rows_most, int64_t width) {
  size_t count = (size_t)(rows_most * width);
  *virtual = (VirtualReduce){.reduce = {.self = self, .devices = devices, .sum = sum, .gather = gather}};
  virtual->came = calloc(count, sizeof *virtual->came);
  virtual->own = calloc(count, sizeof *virtual->own);
  if (virtual->came && virtual->own) return STATUS_OK;
  virtual_reduce_release(virtual);
  return status_set(STATUS_NO_MEMORY, "no memory for rows to measure with");
}

void virtual_reduce_release(VirtualReduce *virtual) {
  free(virtual->came);
  free(virtual->own);
  *virtual = (VirtualReduce){0};
}
