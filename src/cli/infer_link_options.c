/* See infer_link_options.h. */
#include "cli/infer_link_options.h"
#include "cli/link_values.h"
#include "infer/weights.h"
#include "infer/wire/packet.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OVERHEAD_UDP = 28 + 14, OVERHEAD_TCP = 40 + 14 /* IP, UDP or TCP, Ethernet: what a token bucket of the system counts */ };

int infer_link_options_rows(InferLinkOptions *o, Option rows[INFER_LINK_ROWS]) {
  const Option table[] = {
      {OPTION_GROUP, .help = "Codes between nodes:"},
      {OPTION_CHOICE, "transport", 0, &o->transport, .choices = "auto|tcp|udp", .removed = "mpi",
       .help = "streams or sealed datagrams; auto: udp with --peers, else tcp"},
      {OPTION_CHOICE, "reliability", 0, &o->reliability, .choices = "auto|deadline|retransmit", .removed = "fec",
       .help = "of datagrams: go on without what was lost, or ask for it; auto: deadline"},
      {OPTION_TEXT, "deadline", 0, &o->deadline, "TIME", .help = "longest wait for codes, e.g. 30ms; auto: as long as the sender lives"},
      {OPTION_INT, "datagrams", 0, &o->datagrams, "N", .least = 1, .most = 255, .help = "packets of a block and receiver, at least"},
      {OPTION_INT, "parts", 0, &o->parts, "N", .least = 0, .most = PARTS_MOST,
       .help = "parts of a block whose codes leave by themselves; 0: what --split auto predicts to be best, else 1"},
      {OPTION_CHOICE, "entropy", 0, &o->entropy, .choices = "off|auto|on",
       .help = "code by the checkpoint's frequencies; auto: where they save a twentieth"},
      {OPTION_TEXT, "table-memory", 0, &o->table_memory, "SIZE", .help = "for keys and values of all codewords, e.g. 2G; 0: none are kept"},
      {OPTION_CHOICE, "cache-type", 0, &o->cache_type, .choices = WEIGHTS_TYPES,
       .help = "numbers of cached keys and values, and of codebooks where exact; auto: the checkpoint's"},
      {OPTION_INT, "mtu", 0, &o->mtu, "BYTES", .least = 0, .most = 9000, .help = "longest datagram with all headers; 0: the route's"},
      {OPTION_GROUP, .help = "Links, as if they were so (seeded):"},
      {OPTION_TEXT, "bandwidth", 0, &o->bandwidth, "RATE", .help = "e.g. 20mbit, each way"},
      {OPTION_TEXT, "latency", 0, &o->latency, "TIME", .help = "e.g. 2ms, one way"},
      {OPTION_TEXT, "jitter", 0, &o->jitter, "TIME", .help = "latency is that much more or less"},
      {OPTION_TEXT, "loss", 0, &o->loss, "SHARE", .help = "e.g. 5%, of packets or tokens"},
      {OPTION_CHOICE, "loss-model", 0, &o->loss_model, .choices = "bernoulli|gilbert-elliott", .help = "each by itself, or in bursts of 4"},
      {OPTION_CHOICE, "loss-unit", 0, &o->loss_unit, .choices = "packet|token", .help = "what is lost"},
      {OPTION_TEXT, "trace", 0, &o->trace, "FILE", .help = "lines SECONDS MBIT, or markov:20-100mbit[:SECONDS]"},
      {OPTION_CHOICE, "link-model", 0, &o->link_model, .choices = "mesh|switch|shared-air",
       .help = "a link for each pair, or for each node"},
      {OPTION_INT, "link-seed", 0, &o->link_seed, "N", .least = 0, .most = 9e15, .help = "of losses, jitter and traces"},
      {OPTION_REMOVED, "fec", .help = "--datagrams spreads a block over more packets, at no cost in accuracy"},
      {OPTION_REMOVED, "multicast", .help = "each receiver is sent its own packets"}};
  *o = (InferLinkOptions){.datagrams = 2, .entropy = ENTROPY_AUTO, .table_memory = "512M", .link_seed = 42, .loss_burst = 4};
  memcpy(rows, table, sizeof table);
  return (int)(sizeof table / sizeof *table);
}

/* ---- numbers with units ---- */

typedef struct Unit {
  const char *name;
  double factor;
} Unit;

/* A number, and one of the units behind it. */
static bool read_units(const char *text, const Unit *units, int count, double *value) {
  char *end;
  double number = strtod(text, &end);
  if (end == text || !isfinite(number) || number < 0 || text[0] == '-' || text[0] == ' ') return false;
  for (int i = 0; i < count; i++) {
    if (strcmp(end, units[i].name) != 0) continue;
    *value = number * units[i].factor;
    return true;
  }
  return false;
}

Status infer_link_options_rate(const char *text, double *rate) {
  static const Unit units[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
  if (read_units(text, units, 4, rate) && *rate >= 1 && *rate <= 1e12) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "%s is no rate: 20mbit, 1gbit, 500kbit and the like, up to 1000gbit", text);
}

Status infer_link_options_time(const char *text, double *seconds) {
  static const Unit units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
  if (read_units(text, units, 3, seconds) && *seconds <= 3600) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "%s is no time: 2ms, 1s, 50us and the like, up to 3600s", text);
}

Status infer_link_options_share(const char *text, double *share) {
  static const Unit units[] = {{"%", 1e-2}, {"", 1}};
  if (read_units(text, units, 2, share) && *share < 1) return STATUS_OK;
  return status_set(STATUS_BAD_USAGE, "%s is no share: 5%%, 0.05 and the like, less than 100%%", text);
}

/* ---- what was given ---- */

typedef Status Reader(const char *text, double *value);
static Status read_given(const char *name, const char *text, Reader *reader, double *value) {
  if (!text || reader(text, value) == STATUS_OK) return STATUS_OK;
  return status_wrap(STATUS_BAD_USAGE, "--%s", name);
}

static Status read_links(const InferLinkOptions *o, LinkOptions *links) {
  *links = (LinkOptions){.loss_model = (LossModel)o->loss_model,
                         .loss_burst = o->loss_burst,
                         .topology = (LinkTopology)o->link_model,
                         .seed = (uint64_t)o->link_seed,
                         .lose_tokens = o->loss_unit == 1};
  TRY(read_given("bandwidth", o->bandwidth, infer_link_options_rate, &links->bits_per_second));
  TRY(read_given("latency", o->latency, infer_link_options_time, &links->latency));
  TRY(read_given("jitter", o->jitter, infer_link_options_time, &links->jitter));
  TRY(read_given("loss", o->loss, infer_link_options_share, &links->loss));
  if (o->trace && o->bandwidth) return status_set(STATUS_BAD_USAGE, "--trace says what the rate is: leave out --bandwidth");
  if (o->trace && link_trace_open(&links->trace, o->trace, links->seed) != STATUS_OK) return status_wrap(STATUS_BAD_USAGE, "--trace");
  return STATUS_OK;
}

static Status read_reliability(const InferLinkOptions *o, Transport transport, double timeout, Reliability *r) {
  bool datagrams = transport == TRANSPORT_UDP;
  if (!datagrams && o->reliability) return status_set(STATUS_BAD_USAGE, "--reliability is for --transport udp: a stream loses nothing");
  *r = (Reliability){.mode = datagrams ? (ReliabilityMode)(o->reliability ? o->reliability : RELIABILITY_DEADLINE) : RELIABILITY_STREAM,
                     .least_packets = datagrams ? (int)o->datagrams : 1,
                     .timeout = timeout};
  if (!o->deadline || strcmp(o->deadline, "auto") == 0) return STATUS_OK;
  if (r->mode == RELIABILITY_RETRANSMIT)
    return status_set(STATUS_BAD_USAGE, "--deadline does not go with --reliability retransmit, which waits until all is there");
  TRY(read_given("deadline", o->deadline, infer_link_options_time, &r->deadline));
  return r->deadline > 0 ? STATUS_OK : status_set(STATUS_BAD_USAGE, "--deadline 0: give a time above it, or auto");
}

static Status check_together(const ClusterSetup *setup) {
  const LinkOptions *links = &setup->links;
  if (links->topology == LINK_AIR)
    return status_set(STATUS_BAD_USAGE, "--link-model shared-air needs virtual time (astra-infer plan, astra-bench latency)");
  if (links->loss > 0 && !links->lose_tokens && setup->transport != TRANSPORT_UDP)
    return status_set(STATUS_BAD_USAGE, "--loss needs --transport udp (a stream hides what is lost), or --loss-unit token");
  return STATUS_OK;
}

Status infer_link_options_read(const InferLinkOptions *o, Transport usual, double timeout, ClusterSetup *setup) {
  double table_bytes;
  TRY(link_values_size("table-memory", o->table_memory, &table_bytes)); /* read again where tables are made */
  setup->transport = o->transport ? (Transport)(o->transport - 1) : usual;
  setup->parts = o->parts > 0 ? (int)o->parts : 1;
  setup->mtu = (uint32_t)o->mtu;
  setup->entropy = (EntropyChoice)o->entropy;
  if (o->mtu && o->mtu < 576) return status_set(STATUS_BAD_USAGE, "--mtu %d: 576 to 9000, or 0", (int)o->mtu);
  TRY(read_links(o, &setup->links));
  Status status = read_reliability(o, setup->transport, timeout, &setup->reliability);
  setup->links.overhead = setup->transport == TRANSPORT_UDP ? OVERHEAD_UDP : OVERHEAD_TCP;
  bool packets_lost = setup->links.loss > 0 && !setup->links.lose_tokens;
  setup->shaped = o->bandwidth || o->latency || o->jitter || o->trace || packets_lost;
  return status == STATUS_OK ? check_together(setup) : status;
}
