/* Devices go on in the order of time: each computes, sends or waits as its timeline says, and packets that are due go from one transport
 * into another. Virtual time begins at 1, since 0 stands for never. */
#include "infer/sim/simulate.h"
#include "infer/transport/transport.h"
#include <math.h>
#include <stdlib.h>

static const double beginning = 1, usual_timeout = 60;

typedef struct Simulation Simulation;

typedef struct Device {
  Simulation *sim;
  int self, next; /* event of its timeline */
  Transport *transport;
  PacketRules rules;
  TransportPacket *packets; /* of all that it sends */
  int packets_used;
  double computes_until;
  bool waits; /* for `expected`, or for the memory of what it sends next */
  bool done;
  double since;
  Expected expected;
  uint64_t blocked; /* peers without room for the next message of an ordered link, until they are done with one (unblock_senders) */
} Device;

struct Simulation {
  const Timeline *timelines;
  int count, blocks, sites, parts;
  uint8_t rank[256]; /* of blocks in which something is sent: as sums and joins are numbered by those who make them, without gaps */
  const LinkOptions *links;
  const SimOptions *options;
  double scale, now;
  const Event **sent; /* [count, blocks, sites, parts] the event that sends it; NULL: there is none */
  LinkModel medium;
  Device *devices;         /* [count] */
  double wake[WIRE_NODES]; /* [count] when each is to be looked at again; INFINITY: something must come first */
  SimResult *result;
};

/* block: its rank. */
static const Event **sent_at(const Simulation *sim, int sender, int block, int site, int part) {
  return &sim->sent[((size_t)(sender * sim->blocks + block) * (size_t)sim->sites + (size_t)site) * (size_t)sim->parts + (size_t)part];
}

/* What the sender's event sends to this device; NULL: nothing. */
static const Event *heard(const Simulation *sim, int sender, int receiver, int block, int site, int part) {
  const Event *event = *sent_at(sim, sender, block, site, part);
  return event && event->peers >> receiver & 1 ? event : NULL;
}

static size_t payload_of(const Event *event) { return event->bytes - (size_t)event->packets * PACKET_HEADER; }

/* PacketRules.message_rows: a token is a byte. */
static int64_t bytes_of(const PacketRules *rules, int sender, int block, int site, int part) {
  const Device *device = rules->message_context;
  const Event *event = heard(device->sim, sender, device->self, block, site, part);
  return event ? (int64_t)payload_of(event) : 0;
}

/* ---- devices */

static MessageKey key_of(const Simulation *sim, const Event *event) {
  return (MessageKey){.request = 1, .block = sim->rank[event->block], .site = event->site, .part = event->part};
}

/* false: the memory of an earlier message is still being read. */
static Status send_message(Device *d, const Event *event, bool *sent) {
  const MessageKey key = key_of(d->sim, event);
  int holds_up, count = (int)event->packets;
  *sent = transport_reserve(d->transport, key, &holds_up) == 0;
  if (!*sent) return STATUS_OK;
  TransportPacket *packets = d->packets + d->packets_used;
  d->packets_used += count;
  for (int f = 0; f < count; f++) {
    Packet header = {.request = 1, .block = key.block, .site = key.site, .part = key.part, .index = (uint16_t)f, .count = (uint16_t)count};
    packets[f] = (TransportPacket){.header = header, .bytes = (size_t)interleave_count((int64_t)payload_of(event), count, f)};
  }
  return transport_submit(d->transport, key, packets, count, event->peers, d->sim->now);
}

/* Blocks in which nothing comes are done without having come: those behind the last one in which something did. */
static void pass_empty(Device *d, const Event *event) {
  for (uint64_t left = event->peers; left; left &= left - 1) {
    int peer = __builtin_ctzll(left), last = d->sim->rank[event->block], block = last;
    while (block > 0 && !heard(d->sim, peer, d->self, block - 1, event->site, event->part)) block--;
    for (; block < last; block++) {
      MessageKey key = {.request = 1, .block = (uint8_t)block, .site = event->site, .part = event->part};
      transport_done(d->transport, key, (uint64_t)1 << peer);
    }
  }
}

static void unblock_senders(const Device *d) {
  for (int s = 0; s < d->sim->count; s++) {
    Device *sender = &d->sim->devices[s];
    if (!(sender->blocked >> d->self & 1)) continue;
    sender->blocked &= ~((uint64_t)1 << d->self);
    d->sim->wake[s] = d->sim->now;
  }
}

/* What it waits for has come, or may still; *again: when to look again, if nothing happens before. */
static Status go_on_waiting(Device *d, double *again) {
  TransportArrival arrivals[WIRE_NODES];
  const Event *event = &d->sim->timelines[d->self].list[d->next];
  *again = INFINITY;
  if (event->kind == EVENT_SEND) {
    bool sent;
    TRY(send_message(d, event, &sent));
    d->waits = !sent;
  } else {
    Status status = transport_take(d->transport, &d->expected, d->sim->now, arrivals, again);
    if (status != STATUS_OK) return status_wrap(status, "simulated device %d", d->self);
    d->waits = d->expected.undecided != 0;
    if (!d->waits) transport_done(d->transport, d->expected.key, d->expected.peers);
    if (!d->waits) unblock_senders(d);
  }
  if (d->waits) return STATUS_OK;
  d->sim->result->device[d->self].wait += d->sim->now - d->since;
  d->next++;
  return STATUS_OK;
}

/* Until it computes, waits or is done. */
static Status run_device(Device *d, double *again) {
  Simulation *sim = d->sim;
  const Timeline *timeline = &sim->timelines[d->self];
  SimDevice *result = &sim->result->device[d->self];
  *again = INFINITY;
  for (;;) {
    if (d->waits) TRY(go_on_waiting(d, again));
    if (d->waits) return STATUS_OK;
    if (d->next == timeline->count) {
      if (!d->done) result->end = sim->now - beginning;
      d->done = true;
      return STATUS_OK;
    }
    const Event *event = &timeline->list[d->next];
    if (event->kind == EVENT_COMPUTE || event->kind == EVENT_FIXED) {
      double seconds = event->seconds * (event->kind == EVENT_COMPUTE ? sim->scale : 1);
      result->compute += seconds;
      d->computes_until = sim->now + seconds;
      d->next++;
      if (seconds > 0) return STATUS_OK;
      continue;
    }
    d->waits = true;
    d->since = sim->now;
    if (event->kind == EVENT_SEND && event->peers == 0) d->waits = false, d->next++;
    if (event->kind != EVENT_WAIT) continue;
    pass_empty(d, event);
    unblock_senders(d);
    d->expected = transport_expect(d->transport, key_of(sim, event), event->peers, sim->now);
  }
}

/* What is due goes into the others. */
static void send_due(Device *d) {
  Simulation *sim = d->sim;
  TransportOutput out;
  while (transport_output(d->transport, sim->now, d->blocked, &out)) {
    Device *peer = &sim->devices[out.peer];
    if (!transport_input(peer->transport, d->self, out.packet, out.bytes, sim->now)) {
      d->blocked |= (uint64_t)1 << out.peer;
      continue;
    }
    transport_sent(d->transport, out.peer);
    if (transport_changed(peer->transport) || transport_wants_driver(peer->transport)) sim->wake[out.peer] = sim->now;
    double next = transport_deadline(peer->transport, peer->blocked);
    if (next < sim->wake[out.peer]) sim->wake[out.peer] = next;
  }
}

static Status step(Device *d) {
  double again = INFINITY;
  transport_caught_up(d->transport, d->sim->now);
  send_due(d);
  if (d->computes_until <= d->sim->now) {
    TRY(run_device(d, &again));
    send_due(d); /* what it has just sent, and questions */
  }
  if (d->computes_until > d->sim->now) again = d->computes_until;
  d->sim->wake[d->self] = fmin(again, transport_deadline(d->transport, d->blocked));
  return STATUS_OK;
}

/* Of a mesh the links to this device are those on which the others send to it. */
static double carried(const Simulation *sim, int self) {
  const Transport *own = sim->devices[self].transport;
  double longest = transport_carried_in(own);
  for (int d = 0; d < sim->count; d++) {
    if (d == self) continue;
    longest = fmax(longest, transport_carried(own, d));
    if (sim->links->topology == LINK_MESH) longest = fmax(longest, transport_carried(sim->devices[d].transport, self));
  }
  return longest;
}

static Status run(Simulation *sim) {
  for (int d = 0; d < sim->count; d++) sim->wake[d] = beginning;
  for (;;) {
    int next = 0;
    double first = sim->wake[0];
    for (int d = 1; d < sim->count; d++)
      if (sim->wake[d] < first) first = sim->wake[d], next = d;
    if (first == INFINITY) break;
    sim->now = fmax(sim->now, first);
    TRY(step(&sim->devices[next]));
  }
  for (int d = 0; d < sim->count; d++) {
    const Device *device = &sim->devices[d];
    if (!device->waits) continue;
    const Event *event = &sim->timelines[d].list[device->next];
    int peer = event->kind == EVENT_WAIT ? __builtin_ctzll(device->expected.undecided) : d;
    return status_set(STATUS_BAD_VALUE, "device %d waits for ever for block %d, site %d, part %d of device %d, which itself waits", d,
                      event->block, event->site, event->part, peer);
  }
  for (int d = 0; d < sim->count; d++) {
    const TransportState *counts = transport_state(sim->devices[d].transport);
    SimDevice *result = &sim->result->device[d];
    result->span = counts->span;
    result->carried = carried(sim, d);
    result->bytes_sent = counts->bytes_sent;
    sim->result->latency = fmax(sim->result->latency, result->end);
  }
  return STATUS_OK;
}

/* ---- beginning and end */

static Status check_event(const Event *event, int device, int count) {
  const uint64_t others = schedule_partners(device, count, false, true);
  if (event->kind == EVENT_COMPUTE || event->kind == EVENT_FIXED) {
    if (isfinite(event->seconds) && event->seconds >= 0) return STATUS_OK;
    return status_set(STATUS_BAD_VALUE, "device %d computes for %g seconds: a timeline needs a finite time from 0 on", device,
                      event->seconds);
  }
  if (event->peers & ~others)
    return status_set(STATUS_BAD_VALUE, "device %d of %d deals with devices 0x%llx, itself or unknown ones among them", device, count,
                      (unsigned long long)event->peers);
  if (event->kind == EVENT_WAIT) return STATUS_OK;
  if (event->packets >= 1 && event->packets <= MAX_PACKETS && event->bytes >= event->packets * (PACKET_HEADER + 1)) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "device %d sends %u packets of %u bytes; a message has 1 to %d packets with something in them",
                    device, event->packets, event->bytes, MAX_PACKETS);
}

static Status index_sent(Simulation *sim) {
  sim->sent = calloc((size_t)(sim->count * sim->blocks) * (size_t)(sim->sites * sim->parts) + 1, sizeof *sim->sent);
  if (!sim->sent) return status_set(STATUS_NO_MEMORY, "no memory to simulate %d devices", sim->count);
  for (int d = 0; d < sim->count; d++) {
    for (int i = 0; i < sim->timelines[d].count; i++) {
      const Event *e = &sim->timelines[d].list[i];
      if (e->kind != EVENT_SEND) continue;
      const Event **sent = sent_at(sim, d, sim->rank[e->block], e->site, e->part);
      if (*sent) return status_set(STATUS_BAD_VALUE, "device %d sends block %d, site %d, part %d twice", d, e->block, e->site, e->part);
      *sent = e;
    }
  }
  return STATUS_OK;
}

/* That everything waited for is sent. */
static Status check_waited(const Simulation *sim) {
  for (int d = 0; d < sim->count; d++) {
    for (int i = 0; i < sim->timelines[d].count; i++) {
      const Event *e = &sim->timelines[d].list[i];
      for (int peer = 0; e->kind == EVENT_WAIT && peer < sim->count; peer++) {
        if (!(e->peers >> peer & 1) || heard(sim, peer, d, sim->rank[e->block], e->site, e->part)) continue;
        return status_set(STATUS_BAD_VALUE, "device %d waits for block %d, site %d, part %d of device %d, which never sends it", d,
                          e->block, e->site, e->part, peer);
      }
    }
  }
  return STATUS_OK;
}

static Status open_device(Simulation *sim, int self, size_t packets, uint64_t senders, TransportSetup *setup) {
  Device *d = &sim->devices[self];
  const uint64_t everybody = schedule_partners(self, sim->count, false, true);
  *d = (Device){.sim = sim, .self = self, .computes_until = beginning};
  d->rules = (PacketRules){.blocks = sim->blocks,
                           .sites = sim->sites,
                           .parts = sim->parts,
                           .groups = 1,
                           .entries = 256,
                           .width = 1,
                           .message_rows = bytes_of,
                           .message_context = d};
  if (!(d->packets = calloc(packets + 1, sizeof *d->packets))) return status_no_memory(NULL, "simulating a device");
  setup->self = self;
  TRY(transport_new(&d->transport, setup, beginning - sim->options->start));
  transport_begin_request(d->transport, 1, 1, &d->rules, senders, everybody);
  return STATUS_OK;
}

static Status survey(Simulation *sim, TransportSetup *setup, size_t *packets, uint64_t *receivers) {
  bool used[256] = {false};
  for (int d = 0; d < sim->count; d++) {
    uint64_t to = 0, from = 0;
    for (int i = 0; i < sim->timelines[d].count; i++) {
      const Event *e = &sim->timelines[d].list[i];
      TRY(check_event(e, d, sim->count));
      if (e->kind != EVENT_SEND && e->kind != EVENT_WAIT) continue;
      used[e->block] = true;
      sim->sites = e->site >= sim->sites ? e->site + 1 : sim->sites;
      sim->parts = e->part >= sim->parts ? e->part + 1 : sim->parts;
      *(e->kind == EVENT_SEND ? &to : &from) |= e->peers;
      if (e->kind == EVENT_WAIT) continue;
      packets[d] += e->packets;
      size_t payload = payload_of(e), packet = PACKET_HEADER + payload / e->packets + 1;
      if (payload > setup->max_message_bytes) setup->max_message_bytes = payload;
      if (packet > setup->max_packet) setup->max_packet = packet;
      if ((int)e->packets > setup->max_packets) setup->max_packets = (int)e->packets;
    }
    setup->ahead |= (to & ~from) != 0;
    receivers[d] = to;
  }
  sim->blocks = 0;
  for (int block = 0; block < 256; block++) {
    sim->rank[block] = (uint8_t)sim->blocks;
    sim->blocks += used[block];
  }
  if (sim->blocks == 0) sim->blocks = 1;
  return STATUS_OK;
}

static Status prepare(Simulation *sim, Reliability *rules) {
  size_t packets[WIRE_NODES] = {0};     /* that each device sends */
  uint64_t receivers[WIRE_NODES] = {0}; /* of what it sends */
  TransportSetup setup = {.nodes = sim->count,
                          .max_packets = 1,
                          .max_packet = PACKET_HEADER + PACKET_STATUS_HEAD,
                          .reliability = rules,
                          .links = sim->links,
                          .ends = sim->options->ends,
                          .medium = &sim->medium,
                          .lengths_only = true,
                          .settled = true};
  if (sim->options->reliability) *rules = *sim->options->reliability;
  if (rules->timeout <= 0) rules->timeout = usual_timeout;
  if (rules->mode == RELIABILITY_STREAM) rules->timeout = INFINITY;
  sim->sites = sim->parts = 1;
  TRY(survey(sim, &setup, packets, receivers));
  TRY(index_sent(sim));
  TRY(check_waited(sim));
  setup.blocks = sim->blocks, setup.sites = sim->sites, setup.parts = sim->parts;
  setup.reliable = setup.ordered = rules->mode == RELIABILITY_STREAM;
  setup.mask = rules->mode == RELIABILITY_DEADLINE;
  setup.timeout = rules->timeout;
  link_model_init(&sim->medium, sim->links, sim->count, 0);
  if (!(sim->devices = calloc((size_t)sim->count, sizeof *sim->devices)))
    return status_set(STATUS_NO_MEMORY, "no memory to simulate %d devices", sim->count);
  for (int d = 0; d < sim->count; d++) {
    uint64_t senders = 0;
    for (int peer = 0; peer < sim->count; peer++) senders |= (receivers[peer] >> d & 1) << peer;
    TRY(open_device(sim, d, packets[d], senders, &setup));
  }
  return STATUS_OK;
}

const SimDevice *simulate_last(const SimResult *result, int devices) {
  const SimDevice *last = &result->device[0];
  for (int d = 1; d < devices; d++) last = result->device[d].end > last->end ? &result->device[d] : last;
  return last;
}

double simulate_hidden(const SimDevice *device) { return device->span > 0 ? fmin(fmax(1 - device->wait / device->span, 0), 1) : NAN; }

Status simulate_run(const Timeline *devices, int count, const LinkOptions *links, const SimOptions *options, SimResult *result) {
  Reliability rules = {.mode = RELIABILITY_STREAM};
  *result = (SimResult){0};
  if (count < 1 || count > WIRE_NODES) return status_set(STATUS_BAD_VALUE, "%d devices: 1 to %d can be simulated", count, WIRE_NODES);
  if (!isfinite(options->scale) || options->scale < 0 || !isfinite(options->start) || options->start < 0)
    return status_set(STATUS_BAD_VALUE, "a scale of %g from %g s on: both must be finite and not negative", options->scale, options->start);
  if (links->loss > 0 && !links->lose_tokens && (!options->reliability || options->reliability->mode == RELIABILITY_STREAM))
    return status_set(STATUS_BAD_VALUE, "a stream hides the loss of packets: choose deadline or retransmit");
  Simulation sim = {.timelines = devices,
                    .count = count,
                    .links = links,
                    .options = options,
                    .scale = options->scale > 0 ? options->scale : 1,
                    .now = beginning,
                    .result = result};
  Status status = prepare(&sim, &rules);
  if (status == STATUS_OK) status = run(&sim);
  for (int d = 0; sim.devices && d < count; d++) {
    transport_free(sim.devices[d].transport);
    free(sim.devices[d].packets);
  }
  free(sim.devices);
  free(sim.sent);
  return status;
}

static int draws_by_latency(const void *a, const void *b) {
  double x = ((const SimResult *)a)->latency, y = ((const SimResult *)b)->latency;
  return (x > y) - (x < y);
}

Status simulate_request(const Timeline *devices, int count, bool datagrams, const LinkOptions *links, const SimOptions *options,
                        SimResult *result) {
  SimResult drawn[SIMULATE_DRAWS];
  LinkOptions used = *links;
  SimOptions how = *options;
  used.overhead = datagrams ? SCHEDULE_DATAGRAM_OVERHEAD : LINK_SEGMENT_OVERHEAD;
  if (!datagrams) used.loss = 0, how.reliability = NULL;
  const int draws = used.loss > 0 || used.jitter > 0 ? SIMULATE_DRAWS : 1;
  for (int i = 0; i < draws; i++, used.seed++) TRY(simulate_run(devices, count, &used, &how, &drawn[i]));
  qsort(drawn, (size_t)draws, sizeof *drawn, draws_by_latency);
  *result = drawn[draws / 2];
  return STATUS_OK;
}
