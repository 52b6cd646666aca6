/* The heap: see sim_queue.h. */
#include "infer/virtual/sim_queue.h"
#include <limits.h>
#include <stdlib.h>

static bool before(const SimEvent *a, const SimEvent *b) { return a->time < b->time || (a->time == b->time && a->order < b->order); }

static Status grow(SimQueue *queue) {
  if (queue->count < queue->capacity) return STATUS_OK;
  int capacity = queue->capacity ? 2 * queue->capacity : 256;
  SimEvent *heap = queue->capacity > INT_MAX / 2 ? NULL : realloc(queue->heap, (size_t)capacity * sizeof *heap);
  if (!heap) return status_set(STATUS_NO_MEMORY, "no memory for %d events of a simulation", queue->count);
  queue->heap = heap;
  queue->capacity = capacity;
  return STATUS_OK;
}

Status sim_queue_put(SimQueue *queue, SimEvent event) {
  TRY(grow(queue));
  int at = queue->count++;
  event.order = queue->order++;
  for (; at > 0 && before(&event, &queue->heap[(at - 1) / 2]); at = (at - 1) / 2) queue->heap[at] = queue->heap[(at - 1) / 2];
  queue->heap[at] = event;
  return STATUS_OK;
}

bool sim_queue_take(SimQueue *queue, SimEvent *event) {
  if (queue->count == 0) return false;
  *event = queue->heap[0];
  const SimEvent last = queue->heap[--queue->count];
  int at = 0;
  for (int child; (child = 2 * at + 1) < queue->count; at = child) {
    if (child + 1 < queue->count && before(&queue->heap[child + 1], &queue->heap[child])) child++;
    if (!before(&queue->heap[child], &last)) break;
    queue->heap[at] = queue->heap[child];
  }
  if (queue->count > 0) queue->heap[at] = last;
  return true;
}

void sim_queue_release(SimQueue *queue) {
  free(queue->heap);
  *queue = (SimQueue){0};
}
