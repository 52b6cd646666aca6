/* A list of events. Who measures them is elsewhere. */
#include "infer/virtual/timeline.h"
#include <stdlib.h>

Status timeline_add(Timeline *timeline, const Event *event) {
  if (timeline->count == timeline->capacity) {
    int capacity = timeline->capacity ? 2 * timeline->capacity : 64;
    Event *list = realloc(timeline->list, (size_t)capacity * sizeof *list);
    if (!list) return status_set(STATUS_NO_MEMORY, "no memory for a timeline of %d events", capacity);
    timeline->list = list;
    timeline->capacity = capacity;
  }
  timeline->list[timeline->count++] = *event;
  return STATUS_OK;
}

double timeline_seconds(const Timeline *timeline) {
  double sum = 0;
  for (int i = 0; i < timeline->count; i++) sum += timeline->list[i].kind == EVENT_COMPUTE ? timeline->list[i].seconds : 0;
  return sum;
}

void timeline_release(Timeline *timeline) {
  free(timeline->list);
  *timeline = (Timeline){0};
}
