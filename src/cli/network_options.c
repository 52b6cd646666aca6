/* Options of networks and their values: one table for all that simulate a network, a link as JSON. */
#include "cli/network_options.h"
#include "base/options.h"
#include "base/status.h"
#include "base/text.h"
#include "infer/transport/netem.h"
#include "infer/transport/policy.h"
#include "nn/strategy.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- A link as JSON ---- */

json_t *link_json(const LinkEnd *end) {
  if (!end) return json_null();
  return json_pack("{s:f, s:f, s:f}", "to_bits_per_second", end->in, "from_bits_per_second", end->out, "latency_ms", 1e3 * end->latency);
}

/* ---- Blocks of bp-ag and bp-sp ---- */

Status retained_check(int64_t retained, int64_t blocks) {
  if (retained == 0 || strategy_check_retained(retained, blocks) == STATUS_OK) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--retained %lld: the model has %lld block%s", (long long)retained, (long long)blocks,
                    text_plural(blocks));
}

/* ---- The options of a network ---- */

const char *network_options_topology(LinkTopology topology) {
  static const char *const names[] = {[LINK_MESH] = "mesh", [LINK_SWITCH] = "switch", [LINK_SHARED] = "shared-medium"};
  return names[topology];
}

int network_links_rows(NetworkLinks *o, Option rows[NETWORK_LINKS_COUNT]) {
  const Option table[NETWORK_LINKS_COUNT] = {
      {OPTION_CHOICE, "link-model", 0, &o->topology, .choices = LINK_MODELS, .old_choices = OLD_LINK_MODELS,
       .help = "one link per pair, per device, or (in virtual time alone) shared by all"},
      {OPTION_RATE, "bandwidth", 0, &o->bandwidth, "RATE", .help = "rate of a link in each direction: 20mbit, 1gbit, 500kbit"},
      {OPTION_TIME, "latency", 0, &o->latency, "TIME", .help = "one-way delay of a link: 2ms, 50us"},
      {OPTION_TIME, "jitter", 0, &o->jitter, "TIME", .help = "variation of the delay"},
      {OPTION_REAL, "loss", 0, &o->loss, "SHARE", .min = 0, .max = LINK_LOSS_MAX, .help = "share of packets (or tokens) lost: 5% or 0.05"},
      {OPTION_CHOICE, "loss-model", 0, &o->loss_model, .choices = LOSS_MODELS, .help = "independent losses, or bursts"},
      {OPTION_REAL, "loss-burst", 0, &o->loss_burst, "N", .min = 1, .max = LOSS_BURST_MAX,
       .help = "mean length of a burst, in packets (or tokens); auto: 4"},
      {OPTION_INT, "link-seed", 0, &o->seed, "N", .min = 0, .max = LINK_SEED_MAX, .help = "seed of losses, jitter and traces"},
      {OPTION_REMOVED, "fec", .help = "--datagrams spreads a block over more packets, at no cost in accuracy"},
      {OPTION_REMOVED, "multicast", .help = "each receiver is sent its own packets"}};
  memcpy(rows, table, sizeof table);
  return NETWORK_LINKS_COUNT;
}

Option network_options_datagrams(int64_t *datagrams) {
  *datagrams = MIN_PACKETS_DEFAULT;
  const Option table[] = {{OPTION_INT, "datagrams", 0, datagrams, "N", .min = 1, .max = MIN_PACKETS_MAX,
                           .help = "minimum number of packets per block and receiver"}};
  return table[0];
}

int network_options_rows(NetworkOptions *o, Option rows[NETWORK_OPTIONS_COUNT]) {
  *o = (NetworkOptions){.links.bandwidth = 20e6};
  const Option own[] = {{OPTION_GROUP, .help = "Simulated network"},
                        {OPTION_CHOICE, "reliability", 0, &o->reliability, .choices = "deadline|retransmit", .removed = "fec",
                         .help = "handling of lost packets"},
                        network_options_datagrams(&o->datagrams)};
  rows[0] = own[0];
  const int count = 1 + network_links_rows(&o->links, rows + 1);
  rows[count] = own[1];
  rows[count + 1] = own[2];
  return count + 2;
}

static Status check_bursts(double burst, LossModel model, double loss) {
  if (model == LOSS_GILBERT_ELLIOTT && loss <= 0)
    return status_set(STATUS_BAD_USAGE, "--loss-model gilbert-elliott is for --loss SHARE, e.g. --loss 5%%; without it nothing is lost");
  if (burst <= 0 || model == LOSS_GILBERT_ELLIOTT) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "--loss-burst %g is for --loss-model gilbert-elliott; otherwise packets are lost one by one", burst);
}

Status network_links_read(const NetworkLinks *o, bool lose_tokens, LinkOptions *links) {
  *links = (LinkOptions){.topology = (LinkTopology)o->topology,
                         .bits_per_second = fmax(o->bandwidth, 0),
                         .latency = fmax(o->latency, 0),
                         .jitter = fmax(o->jitter, 0),
                         .loss = o->loss,
                         .loss_model = (LossModel)o->loss_model,
                         .loss_burst = o->loss_burst > 0 ? o->loss_burst : LOSS_BURST_DEFAULT,
                         .seed = (uint64_t)o->seed,
                         .lose_tokens = lose_tokens};
  TRY(check_bursts(o->loss_burst, links->loss_model, links->loss));
  return link_loss_check(links) == STATUS_OK ? STATUS_OK : status_wrap(STATUS_BAD_USAGE, "--loss-model gilbert-elliott");
}

Status network_options_read(const NetworkOptions *o, LinkOptions *links, Reliability *reliability) {
  *reliability =
      (Reliability){.mode = (ReliabilityMode)(RELIABILITY_DEADLINE + o->reliability), .min_packets = (int)o->datagrams, .timeout = 60};
  return network_links_read(&o->links, false, links);
}
