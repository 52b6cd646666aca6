/* Ports and links. A switch cuts through: a packet begins to enter the receiver's port as it begins to leave the sender's, unless that port
 * is taken. What is lost is lost behind the links: it has taken its time on them. */
#include "infer/virtual/sim_network.h"
#include <math.h>
#include <stdlib.h>

enum { PARITY_LENGTH = 2 /* bytes of a parity packet's sum of lengths */ };

static Status check(const LinkOptions *o) {
  if (!(o->bits_per_second >= 0) || !isfinite(o->bits_per_second))
    return status_set(STATUS_BAD_VALUE, "a link of %g bits a second: it needs a finite rate, or 0 for no limit", o->bits_per_second);
  if (!(o->latency >= 0 && o->jitter >= 0 && isfinite(o->latency + o->jitter)))
    return status_set(STATUS_BAD_VALUE, "latency %g s and jitter %g s: both must be finite and not negative", o->latency, o->jitter);
  if (!(o->loss >= 0 && o->loss < 1)) return status_set(STATUS_BAD_VALUE, "a loss of %g: it must be from 0 to below 1", o->loss);
  return STATUS_OK;
}

static int ports_of(const LinkOptions *options, int nodes) {
  return options->topology == LINK_SWITCH ? 2 * nodes : options->topology == LINK_AIR ? 1 : 0;
}

Status sim_network_init(SimNetwork *network, const LinkOptions *options, int nodes, bool multicast) {
  *network = (SimNetwork){.options = options, .nodes = nodes};
  TRY(check(options));
  network->multicast = multicast && options->topology != LINK_MESH;
  int ports = ports_of(options, nodes);
  network->pair = calloc((size_t)nodes * (size_t)nodes, sizeof *network->pair);
  network->port = calloc((size_t)ports + 1, sizeof *network->port);
  if (!network->pair || !network->port) {
    sim_network_release(network);
    return status_set(STATUS_NO_MEMORY, "no memory for the links of %d devices", nodes);
  }
  for (int i = 0; i < nodes * nodes; i++) link_model_init(&network->pair[i], options, i / nodes, i % nodes);
  for (int i = 0; i < ports; i++) link_model_init(&network->port[i], options, nodes, i); /* of a port only the rate is used */
  return STATUS_OK;
}

void sim_network_release(SimNetwork *network) {
  free(network->pair);
  free(network->port);
  *network = (SimNetwork){0};
}

static LinkModel *pair_of(const SimNetwork *network, const SimGroup *group) {
  return &network->pair[group->sender * network->nodes + group->receiver];
}

/* Bytes are shared out as evenly as tokens are; a parity packet is as long as the longest of those it covers. */
static size_t packet_bytes(const Event *event, int packet) {
  uint32_t each = event->bytes / event->packets, rest = event->bytes % event->packets;
  if (packet < (int)event->packets) return each + ((uint32_t)packet < rest);
  return each + (rest > 0) + PARITY_LENGTH;
}

static Status arrive(SimNetwork *network, SimQueue *queue, const SimGroups *groups, SimGroup *group, int packet, bool lost, double left) {
  double at = link_model_arrive(pair_of(network, group), left);
  return sim_queue_put(queue,
                       (SimEvent){.time = at, .kind = SIM_ARRIVE, .what = (int)(group - groups->list), .packet = packet, .lost = lost});
}

/* On its way out at `from`, off it at `left`. */
static Status launch(SimNetwork *network, SimQueue *queue, const SimGroups *groups, SimGroup *group, int packet, double from, double left) {
  bool lost = link_model_loses(pair_of(network, group));
  group->under_way++;
  group->left = fmax(group->left, left);
  if (network->options->topology != LINK_SWITCH) return arrive(network, queue, groups, group, packet, lost, left);
  return sim_queue_put(
      queue,
      (SimEvent){.time = from, .kind = SIM_ENTER, .what = (int)(group - groups->list), .packet = packet, .lost = lost, .left = left});
}

static LinkModel *way_out(const SimNetwork *network, const SimGroup *group) {
  switch (network->options->topology) {
  case LINK_SWITCH:
    return &network->port[network->nodes + group->sender];
  case LINK_AIR:
    return &network->port[0];
  default:
    return pair_of(network, group);
  }
}

Status sim_network_send(SimNetwork *network, SimQueue *queue, double now, SimGroups *groups, SimGroup *const *to, int count, int packet,
                        uint64_t *bytes) {
  double from = now, left = now;
  for (int i = 0; i < count; i++) {
    SimGroup *group = to[i];
    size_t size = packet_bytes(group->event, packet);
    if (i == 0 || !network->multicast) {
      LinkModel *link = way_out(network, group);
      from = fmax(now, link->busy);
      left = link_model_leave(link, now, size);
      *bytes += size;
    }
    TRY(launch(network, queue, groups, group, packet, from, left));
  }
  return STATUS_OK;
}

Status sim_network_enter(SimNetwork *network, SimQueue *queue, const SimGroups *groups, const SimEvent *event) {
  SimGroup *group = &groups->list[event->what];
  double in = link_model_leave(&network->port[group->receiver], event->time, packet_bytes(group->event, event->packet));
  return arrive(network, queue, groups, group, event->packet, event->lost, fmax(in, event->left));
}
