/* See plan_devices.h. */
#include "cli/plan_devices.h"
#include "cli/link_values.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Described {
  double speed, rate;
} Described;

static int faster_first(const void *a, const void *b) {
  const Described *x = a, *y = b;
  if (x->speed != y->speed) return x->speed < y->speed ? 1 : -1;
  return (x->rate < y->rate) - (x->rate > y->rate);
}

static Status read_rates(const char *text, double rates[WIRE_NODES], int *count) {
  char rate[32];
  for (const char *at = text; *count < WIRE_NODES; at++) {
    size_t length = strcspn(at, ",");
    snprintf(rate, sizeof rate, "%.*s", (int)length, at);
    TRY(link_values_rate("links", rate, &rates[(*count)++]));
    at += length;
    if (*at == '\0') return STATUS_OK;
  }
  return status_set(STATUS_BAD_USAGE, "--links: at most %d rates are accepted", WIRE_NODES);
}

static Status read_described(const char *speed_list, const char *link_list, PlanDevices *devices) {
  Described all[WIRE_NODES];
  double speeds[WIRE_NODES], rates[WIRE_NODES];
  int links = 0;
  if (speed_list) TRY(link_values_numbers("speeds", speed_list, speeds, WIRE_NODES, &devices->count));
  if (link_list) TRY(read_rates(link_list, rates, &links));
  if (speed_list && link_list && links != devices->count)
    return status_set(STATUS_BAD_USAGE, "--speeds names %d devices, --links %d: each needs both", devices->count, links);
  if (link_list) devices->count = links;
  for (int d = 0; d < devices->count; d++) all[d] = (Described){.speed = speed_list ? speeds[d] : 1, .rate = link_list ? rates[d] : 0};
  qsort(all, (size_t)devices->count, sizeof *all, faster_first);
  for (int d = 0; d < devices->count; d++) {
    devices->speeds[d] = all[d].speed;
    devices->ends[d] = (LinkEnd){.out = all[d].rate, .in = all[d].rate};
  }
  devices->linked = link_list != NULL;
  return STATUS_OK;
}

Status plan_devices_counts(const char *nodes, int count, const char *whose, uint64_t *tried) {
  int list[WIRE_NODES], listed = 0;
  *tried = ~0ull;
  if (!nodes) return STATUS_OK;
  TRY(link_values_list("nodes", nodes, 1, WIRE_NODES, list, WIRE_NODES, &listed));
  *tried = 0;
  for (int i = 0; i < listed; i++) {
    if (list[i] > count) return status_set(STATUS_BAD_USAGE, "--nodes %d: there are %d devices %s", list[i], count, whose);
    *tried |= 1ull << (list[i] - 1);
  }
  return STATUS_OK;
}

Status plan_devices_read(const char *nodes, const char *speeds, const char *links, PlanDevices *devices) {
  *devices = (PlanDevices){.count = 0};
  if (speeds || links) {
    TRY(read_described(speeds, links, devices));
    return plan_devices_counts(nodes, devices->count, speeds ? "in --speeds" : "in --links", &devices->counts_tried);
  }
  TRY(plan_devices_counts(nodes ? nodes : "2,4,8", WIRE_NODES, "at most", &devices->counts_tried));
  for (int d = 0; d < WIRE_NODES; d++) {
    devices->speeds[d] = 1;
    if (devices->counts_tried >> d & 1) devices->count = d + 1;
  }
  return STATUS_OK;
}
