/* One link model for each peer, and two for the ports of a switch. */
#include "infer/wire/shaper.h"
#include <math.h>
#include <stdlib.h>

Status shaper_init(Shaper *shaper, const LinkOptions *options, int self, int nodes, double start) {
  *shaper = (Shaper){.active = options != NULL, .start = start};
  if (!options) return STATUS_OK;
  if (options->topology == LINK_AIR)
    return status_set(STATUS_UNSUPPORTED, "--link-model shared-air needs virtual time (astra-infer plan, astra-bench latency)");
  shaper->options = *options;
  shaper->links = malloc((size_t)nodes * sizeof *shaper->links);
  shaper->fates = malloc((size_t)nodes * sizeof *shaper->fates);
  if (!shaper->links || !shaper->fates) return status_set(STATUS_NO_MEMORY, "no memory for %d links", nodes);
  for (int d = 0; d < nodes; d++) {
    link_model_init(&shaper->links[d], &shaper->options, self, d);
    link_model_init(&shaper->fates[d], &shaper->options, nodes + self, nodes + d);
  }
  link_model_init(&shaper->out, &shaper->options, self, self);
  link_model_init(&shaper->in, &shaper->options, self, self);
  return STATUS_OK;
}

void shaper_release(Shaper *shaper) {
  free(shaper->links);
  free(shaper->fates);
  *shaper = (Shaper){0};
}

double shaper_send(Shaper *shaper, int peer, double ready, size_t bytes, bool planned, bool *lost) {
  *lost = false;
  if (!shaper->active) return ready;
  LinkModel *link = &shaper->links[peer];
  double left = link_model_leave(shaper->options.topology == LINK_SWITCH ? &shaper->out : link, ready - shaper->start, bytes);
  LinkModel *chance = planned ? link : &shaper->fates[peer];
  *lost = link_model_loses(chance);
  chance->arrived = link->arrived; /* nothing overtakes */
  link->arrived = link_model_arrive(chance, left);
  return shaper->start + link->arrived;
}

/* Cut through: a packet takes the port from when its first bit came, so that one by itself is not delayed twice. */
double shaper_receive(Shaper *shaper, double reached, size_t bytes) {
  if (!shaper->active || shaper->options.topology != LINK_SWITCH) return reached;
  LinkModel alone = shaper->in;
  double at = reached - shaper->start;
  alone.busy = -INFINITY;
  double takes = link_model_leave(&alone, at, bytes) - at;
  return shaper->start + fmax(at, link_model_leave(&shaper->in, at - takes, bytes));
}
