/* Ports and links. A switch cuts through: a packet begins to enter the receiver's port as it begins to leave the sender's, unless that port
 * is taken. What is lost is lost behind the links: it has taken its time on them. */
#include "infer/virtual/sim_network.h"
#include <math.h>
#include <stdlib.h>

static Status check(const LinkOptions *o) {
  if (!(o->bits_per_second >= 0) || !isfinite(o->bits_per_second))
    return status_set(STATUS_BAD_VALUE, "a link of %g bits a second: it needs a finite rate, or 0 for no limit", o->bits_per_second);
  if (!(o->latency >= 0 && o->jitter >= 0 && isfinite(o->latency + o->jitter)))
    return status_set(STATUS_BAD_VALUE, "latency %g s and jitter %g s: both must be finite and not negative", o->latency, o->jitter);
  if (!(o->loss >= 0 && o->loss < 1)) return status_set(STATUS_BAD_VALUE, "a loss of %g: it must be from 0 to below 1", o->loss);
  return STATUS_OK;
}

static int ports_of(const LinkOptions *options, int nodes) {
  return options->topology == LINK_SWITCH ? 2 * nodes : options->topology == LINK_SHARED ? 1 : 0;
}

static void limit_links(SimNetwork *network, const LinkEnd *ends) {
  int nodes = network->nodes;
  for (int i = 0; i < nodes * nodes; i++) {
    const LinkEnd *from = &ends[i / nodes], *to = &ends[i % nodes];
    link_model_limit(&network->pair[i], link_slower(from->out, to->in), fmax(from->latency, to->latency));
  }
  for (int d = 0; network->options->topology == LINK_SWITCH && d < nodes; d++) {
    link_model_limit(&network->port[d], ends[d].in, 0);
    link_model_limit(&network->port[nodes + d], ends[d].out, 0);
  }
}

Status sim_network_init(SimNetwork *network, const LinkOptions *options, const LinkEnd *ends, int nodes) {
  *network = (SimNetwork){.options = options, .nodes = nodes};
  TRY(check(options));
  int ports = ports_of(options, nodes);
  network->pair = calloc((size_t)nodes * (size_t)nodes, sizeof *network->pair);
  network->port = calloc((size_t)ports + 1, sizeof *network->port);
  network->rest = calloc((size_t)nodes * (size_t)nodes, sizeof *network->rest);
  if (!network->pair || !network->port || !network->rest) {
    sim_network_release(network);
    return status_set(STATUS_NO_MEMORY, "no memory for the links of %d devices", nodes);
  }
  for (int i = 0; i < nodes * nodes; i++) link_model_init(&network->pair[i], options, i / nodes, i % nodes);
  for (int i = 0; i < nodes * nodes; i++) link_model_init(&network->rest[i], options, nodes + i / nodes, nodes + i % nodes);
  for (int i = 0; i < ports; i++) link_model_init(&network->port[i], options, nodes, i); /* of a port only the rate is used */
  if (ends) limit_links(network, ends);
  return STATUS_OK;
}

void sim_network_release(SimNetwork *network) {
  free(network->pair);
  free(network->port);
  free(network->rest);
  *network = (SimNetwork){0};
}

/* Who sends and who hears a packet of a group, or one about it. */
typedef struct Way {
  int from, to;
} Way;

static Way way_of(const SimGroup *group, int packet) {
  return packet == SIM_QUESTION ? (Way){group->receiver, group->sender} : (Way){group->sender, group->receiver};
}

static LinkModel *of_pair(const SimNetwork *network, LinkModel *links, Way way) { return &links[way.from * network->nodes + way.to]; }

double sim_network_idle(const SimNetwork *network, int from, int to, size_t bytes) {
  const LinkModel *link = of_pair(network, network->pair, (Way){from, to});
  double bits = 8 * (double)(bytes + network->options->overhead);
  return link->latency + (link->rate > 0 ? bits / link->rate : 0);
}

/* Bytes are shared out as evenly as tokens are. */
static size_t packet_bytes(const Event *event, int packet) {
  return event->bytes / event->packets + ((uint32_t)packet < event->bytes % event->packets);
}

static Status arrive(SimNetwork *network, SimQueue *queue, SimEvent packet, Way way, double left) {
  packet.kind = SIM_ARRIVE;
  packet.time = link_model_arrive(of_pair(network, network->pair, way), left);
  return sim_queue_put(queue, packet);
}

/* On its way out at `from`, off it at packet.left. */
static Status launch(SimNetwork *network, SimQueue *queue, SimEvent packet, Way way, double from) {
  if (network->options->topology != LINK_SWITCH) return arrive(network, queue, packet, way, packet.left);
  packet.kind = SIM_ENTER;
  packet.time = from;
  return sim_queue_put(queue, packet);
}

static LinkModel *way_out(const SimNetwork *network, Way way) {
  switch (network->options->topology) {
  case LINK_SWITCH:
    return &network->port[network->nodes + way.from];
  case LINK_SHARED:
    return &network->port[0];
  default:
    return of_pair(network, network->pair, way);
  }
}

static void count_out(SimGroup *group, double left) {
  group->under_way++;
  group->left = fmax(group->left, left);
}

Status sim_network_send(SimNetwork *network, SimQueue *queue, double now, SimGroups *groups, SimGroup *const *to, int count, int packet,
                        uint64_t *bytes) {
  for (int i = 0; i < count; i++) {
    SimGroup *group = to[i];
    Way way = way_of(group, packet);
    size_t size = packet_bytes(group->event, packet);
    LinkModel *link = way_out(network, way);
    double from = fmax(now, link->busy), left = link_model_leave(link, now, size);
    *bytes += size;
    bool lost = link_model_loses(of_pair(network, network->pair, way));
    count_out(group, left);
    TRY(launch(network, queue, (SimEvent){.what = (int)(group - groups->list), .packet = packet, .lost = lost, .bytes = size, .left = left},
               way, from));
  }
  return STATUS_OK;
}

/* To one receiver, with a chance of its own. */
static Status send_one(SimNetwork *network, SimQueue *queue, double now, const SimGroups *groups, const SimGroup *group, SimEvent *packet) {
  Way way = way_of(group, packet->packet);
  LinkModel *link = way_out(network, way);
  double from = fmax(now, link->busy);
  packet->what = (int)(group - groups->list);
  packet->left = link_model_leave(link, now, packet->bytes);
  packet->lost = link_model_loses(of_pair(network, network->rest, way));
  return launch(network, queue, *packet, way, from);
}

Status sim_network_again(SimNetwork *network, SimQueue *queue, double now, SimGroups *groups, SimGroup *group, int packet,
                         uint64_t *bytes) {
  SimEvent sent = {.packet = packet, .bytes = packet_bytes(group->event, packet)};
  *bytes += sent.bytes;
  TRY(send_one(network, queue, now, groups, group, &sent));
  count_out(group, sent.left);
  return STATUS_OK;
}

Status sim_network_tell(SimNetwork *network, SimQueue *queue, double now, SimGroups *groups, SimGroup *group, int what, size_t size,
                        uint64_t *bytes) {
  *bytes += size;
  return send_one(network, queue, now, groups, group, &(SimEvent){.packet = what, .bytes = size});
}

Status sim_network_enter(SimNetwork *network, SimQueue *queue, const SimGroups *groups, const SimEvent *event) {
  Way way = way_of(&groups->list[event->what], event->packet);
  double in = link_model_leave(&network->port[way.to], event->time, event->bytes);
  return arrive(network, queue, *event, way, fmax(in, event->left));
}
