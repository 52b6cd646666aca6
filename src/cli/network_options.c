/* One table of options for all that compute a network. */
#include "cli/network_options.h"
#include "cli/link_values.h"

#define TOPOLOGIES "mesh|switch|shared-air"

const char *network_options_topology(LinkTopology topology) {
  static const char *const names[] = {[LINK_MESH] = "mesh", [LINK_SWITCH] = "switch", [LINK_AIR] = "shared-air"};
  return names[topology];
}

int network_options_rows(NetworkOptions *o, Option rows[NETWORK_OPTIONS_COUNT]) {
  *o = (NetworkOptions){.bandwidth = "20mbit", .latency = "0ms", .jitter = "0ms", .loss_burst = 4, .datagrams = 2};
  const Option table[NETWORK_OPTIONS_COUNT] = {
      {OPTION_GROUP, .help = "Network, which is computed"},
      {OPTION_CHOICE, "link-model", 0, &o->topology, .choices = TOPOLOGIES, .help = "a link for each pair, or each device, or one for all"},
      {OPTION_TEXT, "bandwidth", 0, &o->bandwidth, "RATE", .help = "of a link: 20mbit, 1gbit, 500kbit"},
      {OPTION_TEXT, "latency", 0, &o->latency, "TIME", .help = "of a link: 2ms, 50us"},
      {OPTION_TEXT, "jitter", 0, &o->jitter, "TIME", .help = "latency varies by so much up and down"},
      {OPTION_REAL, "loss", 0, &o->loss, "SHARE", .least = 0, .most = 0.9, .help = "of packets: 5% or 0.05"},
      {OPTION_CHOICE, "loss-model", 0, &o->loss_model, .choices = "bernoulli|gilbert-elliott", .help = "alone, or in bursts"},
      {OPTION_REAL, "loss-burst", 0, &o->loss_burst, "N", .least = 1, .most = 1000, .help = "packets of a burst, on average"},
      {OPTION_CHOICE, "reliability", 0, &o->reliability, .choices = "deadline|retransmit", .removed = "fec",
       .help = "what becomes of lost packets"},
      {OPTION_REMOVED, "fec", .help = "--datagrams spreads a block over more packets, at no cost in accuracy"},
      {OPTION_INT, "datagrams", 0, &o->datagrams, "N", .least = 1, .most = 64, .help = "least of a block and receiver"},
      {OPTION_REMOVED, "multicast", .help = "each receiver is sent its own packets"},
      {OPTION_INT, "link-seed", 0, &o->seed, "N", .least = 0, .most = 4294967295.0, .help = "of loss and jitter"},
  };
  for (int i = 0; i < NETWORK_OPTIONS_COUNT; i++) rows[i] = table[i];
  return NETWORK_OPTIONS_COUNT;
}

Status network_options_read(const NetworkOptions *o, LinkOptions *links, Reliability *reliability) {
  *links = (LinkOptions){.topology = (LinkTopology)o->topology,
                         .loss = o->loss,
                         .loss_model = (LossModel)o->loss_model,
                         .loss_burst = o->loss_burst,
                         .seed = (uint64_t)o->seed};
  *reliability =
      (Reliability){.mode = (ReliabilityMode)(RELIABILITY_DEADLINE + o->reliability), .least_packets = (int)o->datagrams, .timeout = 60};
  TRY(link_values_rate("bandwidth", o->bandwidth, &links->bits_per_second));
  TRY(link_values_time("latency", o->latency, &links->latency));
  return link_values_time("jitter", o->jitter, &links->jitter);
}
