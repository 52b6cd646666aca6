/* Encoding and checking of SETUP, in three steps: the head, whose counts give the length; the lists after it; then what must be consistent.
 */
#include "infer/cluster/setup_message.h"
#include "infer/byte_cursor.h"
#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FLAG_CODES = 1, FLAG_LOSE_TOKENS = 2, FLAG_MASK = 4, FLAG_SHAPED = 8, FLAGS = 15 };
enum { FAMILY_NONE = 0, FAMILY_DISK = 1, FAMILY_V4 = 4, FAMILY_V6 = 6 };
static const double max_seconds = 86400;

/* Decoding goes at about 60 MB/s of packed codes for each peer (tests/bench/bench_rans.c), so that on links of 10 Mbit/s and more a saving
 * below a twentieth takes longer than it saves. All devices have the same frequencies, and choose alike. */
static const double auto_share = 0.95;

bool setup_message_codes_pay(EntropyChoice choice, double coded_share) {
  return choice == ENTROPY_ON || (choice == ENTROPY_AUTO && coded_share <= auto_share);
}

static size_t bytes_of(size_t points, size_t nodes, size_t tokens) {
  return SETUP_HEAD + SETUP_POINT * points + SETUP_DEVICE * nodes + 4 * tokens;
}

size_t setup_message_bytes(const ClusterSetup *setup) {
  return bytes_of((size_t)setup->links.trace.count, (size_t)setup->nodes, (size_t)setup->tokens);
}

size_t setup_message_max(const ModelConfig *config) {
  return bytes_of(MAX_TRACE_POINTS, WIRE_NODES, config_is_decoder(config) ? 0 : (size_t)config_tokens(config));
}

/* ---- the head, stated once for both directions */

/* Of the message alone. */
typedef struct HeadRest {
  uint32_t flags, points;
  double zero; /* reserved */
} HeadRest;

static void head_fields(ByteCursor *c, ClusterSetup *s, HeadRest *rest) {
  LinkOptions *l = &s->links;
  BYTE_CURSOR_FIELD(c, 16, s->epoch);
  BYTE_CURSOR_FIELD(c, 16, s->nodes);
  BYTE_CURSOR_FIELD(c, 16, s->self);
  BYTE_CURSOR_FIELD(c, 8, s->strategy);
  BYTE_CURSOR_FIELD(c, 8, s->transport);
  BYTE_CURSOR_FIELD(c, 8, s->reliability.mode);
  BYTE_CURSOR_FIELD(c, 8, s->parts);
  BYTE_CURSOR_FIELD(c, 8, s->class_token);
  BYTE_CURSOR_FIELD(c, 8, s->entropy);
  BYTE_CURSOR_FIELD(c, 16, s->sequences);
  BYTE_CURSOR_FIELD(c, 16, s->retained);
  BYTE_CURSOR_FIELD(c, 32, s->batch_max);
  BYTE_CURSOR_FIELD(c, 32, s->tokens_max);
  byte_cursor_double(c, &s->reliability.timeout);
  byte_cursor_double(c, &s->reliability.deadline);
  byte_cursor_u32(c, &s->mtu);
  byte_cursor_u32(c, &rest->flags);
  byte_cursor_u64(c, &s->fingerprints.model);
  byte_cursor_u64(c, &s->fingerprints.codebook);
  byte_cursor_u64(c, &s->fingerprints.partition);
  BYTE_CURSOR_FIELD(c, 8, l->topology);
  BYTE_CURSOR_FIELD(c, 8, l->loss_model);
  BYTE_CURSOR_FIELD(c, 8, s->reliability.min_packets);
  BYTE_CURSOR_FIELD(c, 8, s->rate);
  BYTE_CURSOR_FIELD(c, 32, l->overhead);
  byte_cursor_double(c, &l->bits_per_second);
  byte_cursor_double(c, &rest->zero);
  byte_cursor_double(c, &l->latency);
  byte_cursor_double(c, &l->jitter);
  byte_cursor_double(c, &l->loss);
  byte_cursor_double(c, &l->loss_burst);
  byte_cursor_u64(c, &l->seed);
  byte_cursor_u32(c, &rest->points);
  BYTE_CURSOR_FIELD(c, 32, s->tokens);
}

/* ---- packing */

/* A link-local number needs the name of its link, which takes the place of a path: the leader's name of it, for processes of its machine.
 */
static bool pack_v6(const char *name, uint8_t *number, uint8_t *path) {
  char digits[INET6_ADDRSTRLEN];
  size_t length = strcspn(name, "%"), link = name[length] ? strlen(name + length + 1) : 0;
  snprintf(digits, sizeof digits, "%.*s", (int)length, name);
  if (length >= sizeof digits || link >= SETUP_LINK || inet_pton(AF_INET6, digits, number) != 1) return false;
  memcpy(path, name + length + (link > 0), link);
  return true;
}

/* Writes family, number and path of an address; the rest is zero. */
static Status pack_address(const SetupDevice *device, uint8_t *family, uint8_t *number, uint8_t *path) {
  const char *name = device->address.name;
  if (!device->reachable) return STATUS_OK;
  if (device->address.on_disk) {
    if (strlen(name) >= SETUP_PATH)
      return status_set(STATUS_BAD_VALUE, "unix:%s: a path that other devices are told has fewer than %d bytes", name, SETUP_PATH);
    *family = FAMILY_DISK;
    memcpy(path, name, strlen(name));
    return STATUS_OK;
  }
  *family = inet_pton(AF_INET, name, number) == 1 ? FAMILY_V4 : pack_v6(name, number, path) ? FAMILY_V6 : FAMILY_NONE;
  if (*family) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s: other devices are told numbers, not names", name);
}

Status setup_message_pack(const ClusterSetup *setup, uint8_t *bytes) {
  ClusterSetup s = *setup;
  ByteCursor c = byte_cursor_to(bytes);
  HeadRest rest = {.points = (uint32_t)s.links.trace.count,
                   .flags = (s.keep_codes ? FLAG_CODES : 0U) | (s.links.lose_tokens ? FLAG_LOSE_TOKENS : 0U) | (s.mask ? FLAG_MASK : 0U) |
                            (s.shaped ? FLAG_SHAPED : 0U)};
  head_fields(&c, &s, &rest);
  for (int i = 0; i < s.links.trace.count; i++) {
    LinkTracePoint point = s.links.trace.points[i];
    byte_cursor_double(&c, &point.seconds);
    byte_cursor_double(&c, &point.bits_per_second);
  }
  for (int d = 0; d < s.nodes; d++) {
    SetupDevice *device = &s.device[d];
    uint8_t *record = c.at;
    uint16_t port = device->reachable && !device->address.on_disk ? device->address.port : 0;
    memset(record, 0, SETUP_DEVICE);
    TRY(pack_address(device, record, record + 16, record + 32));
    c.at += 2;
    byte_cursor_u16(&c, &port);
    BYTE_CURSOR_FIELD(&c, 32, device->tokens);
    byte_cursor_double(&c, &device->weight);
    c.at = record + SETUP_DEVICE;
  }
  for (int64_t i = 0; i < s.tokens; i++, c.at += 4) wire_put_u32(c.at, (uint32_t)s.order[i]);
  return STATUS_OK;
}

void setup_message_agreed(const ClusterSetup *setup, const uint8_t session[SETUP_SESSION], uint8_t agreed[SETUP_AGREED]) {
  ByteCursor c = byte_cursor_to(agreed);
  Fingerprints f = setup->fingerprints;
  uint16_t epoch = setup->epoch, version = WIRE_VERSION;
  memcpy(c.at, session, SETUP_SESSION);
  c.at += SETUP_SESSION;
  byte_cursor_u16(&c, &epoch);
  byte_cursor_u16(&c, &version);
  byte_cursor_u64(&c, &f.model);
  byte_cursor_u64(&c, &f.codebook);
  byte_cursor_u64(&c, &f.partition);
}

/* ---- parsing */

/* NaN is in no range, and -0 would be encoded differently from the 0 of a fixed field. */
static Status need(const char *what, double value, double min, double max) {
  if (value >= min && value <= max && !signbit(value)) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a set-up with %s %g; %g to %g are possible here", what, value, min, max);
}
static Status refuse(const char *why) { return status_set(STATUS_BAD_VALUE, "sent a set-up %s", why); }

static Status parse_head(ByteCursor *c, const ModelConfig *config, ClusterSetup *s) {
  const bool text = config_is_decoder(config);
  const double tokens = text ? 0 : (double)config_tokens(config);
  LinkOptions *l = &s->links;
  HeadRest rest = {0};
  head_fields(c, s, &rest);
  TRY(need("epoch", s->epoch, 1, UINT16_MAX));
  TRY(need("devices", s->nodes, 1, WIRE_NODES));
  TRY(need("device number", s->self, 0, s->nodes - 1));
  TRY(need("strategy", s->strategy, 0, STRATEGY_COUNT - 1));
  TRY(need("transport", s->transport, 0, TRANSPORT_COUNT - 1));
  TRY(need("reliability", s->reliability.mode, RELIABILITY_STREAM, RELIABILITY_RETRANSMIT));
  TRY(need("parts", s->parts, 1, MAX_PARTS));
  TRY(need("class token", s->class_token, text ? CLASS_NONE : CLASS_DISTRIBUTED, text ? CLASS_NONE : CLASS_SINGLE));
  TRY(need("entropy coding", s->entropy, 0, ENTROPY_COUNT - 1));
  TRY(need("sequences", s->sequences, 0, text ? SETUP_SEQUENCES : 0));
  TRY(need("retained blocks", s->retained, 0, (double)config->blocks));
  TRY(need("batch", (double)s->batch_max, 1, INT32_MAX));
  TRY(need("tokens of a text", (double)s->tokens_max, text, text ? (double)config->context : 0));
  TRY(need("time-out", s->reliability.timeout, 1e-3, max_seconds));
  TRY(need("deadline", s->reliability.deadline, 0, max_seconds));
  if (s->mtu) TRY(need("MTU", s->mtu, 576, UINT16_MAX));
  TRY(need("flags", rest.flags, 0, FLAGS));
  TRY(need("bandwidth", l->bits_per_second, 0, 1e15));
  TRY(need("reserved number", rest.zero, 0, 0));
  TRY(need("latency", l->latency, 0, 3600));
  TRY(need("jitter", l->jitter, 0, 3600));
  TRY(need("loss", l->loss, 0, LINK_LOSS_MAX));
  TRY(need("burst of losses", l->loss_burst, 0, 1e6));
  TRY(need("link model", l->topology, LINK_MESH, LINK_SHARED));
  TRY(need("loss model", l->loss_model, LOSS_BERNOULLI, LOSS_GILBERT_ELLIOTT));
  TRY(need("bit rate", s->rate, 0, fmax(config_rates(config) - 1, 0)));
  TRY(need("overhead", (double)l->overhead, 0, UINT16_MAX));
  TRY(need("points of a trace", rest.points, 0, MAX_TRACE_POINTS));
  TRY(need("tokens of an image", (double)s->tokens, tokens, tokens));
  s->keep_codes = rest.flags & FLAG_CODES;
  l->lose_tokens = rest.flags & FLAG_LOSE_TOKENS;
  l->segment = s->transport == TRANSPORT_TCP ? LINK_SEGMENT_MAX : 0;
  s->mask = rest.flags & FLAG_MASK;
  s->shaped = rest.flags & FLAG_SHAPED;
  l->trace.count = (int)rest.points;
  return STATUS_OK;
}

static Status parse_trace(ByteCursor *c, LinkTrace *trace) {
  if (trace->count == 0) return STATUS_OK;
  trace->points = calloc((size_t)trace->count, sizeof *trace->points);
  if (!trace->points) return status_set(STATUS_NO_MEMORY, "no memory for a trace of %d points", trace->count);
  double last = 0;
  for (int i = 0; i < trace->count; i++) {
    LinkTracePoint *point = &trace->points[i];
    byte_cursor_double(c, &point->seconds);
    byte_cursor_double(c, &point->bits_per_second);
    TRY(need("a time of the trace", point->seconds, last, i == 0 ? 0 : 1e9));
    if (i > 0 && point->seconds <= last) return refuse("with a trace whose times do not rise");
    TRY(need("a rate of the trace", point->bits_per_second, i + 1 == trace->count ? 1 : 0, 1e15));
    last = point->seconds;
  }
  return STATUS_OK;
}

/* The length of the path, or of the link's name in its place; SETUP_PATH: invalid. */
static size_t length_of_path(uint8_t family, const uint8_t *number, const uint8_t *path) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  if (family == FAMILY_NONE || family == FAMILY_V4) return 0;
  size_t length = strnlen((const char *)path, SETUP_PATH);
  if (family == FAMILY_DISK) return length > 0 ? length : SETUP_PATH;
  if (length == 0) return 0;
  bool link = number[0] == 0xfe && (number[1] & 0xc0) == 0x80 && length < SETUP_LINK && strspn((const char *)path, letters) == length;
  return link ? length : SETUP_PATH;
}

static Status parse_address(const uint8_t *record, uint16_t port, SetupDevice *device) {
  const uint8_t *number = record + 16, *path = record + 32, *end = record + SETUP_DEVICE;
  Address *address = &device->address;
  uint8_t family = record[0];
  device->reachable = family != FAMILY_NONE;
  size_t used = family == FAMILY_V4 ? 4 : family == FAMILY_V6 ? 16 : 0;
  size_t length = length_of_path(family, number, path);
  bool known = length < SETUP_PATH && (!device->reachable || used || family == FAMILY_DISK);
  bool clean = record[1] == 0 && byte_cursor_is_zero(number + used, path) && (known && byte_cursor_is_zero(path + length, end)) &&
               (used ? port > 0 : port == 0);
  if (!known || !clean) return refuse("with an invalid address");
  address->on_disk = family == FAMILY_DISK;
  address->port = port;
  if (address->on_disk) memcpy(address->name, path, length);
  if (used) inet_ntop(family == FAMILY_V4 ? AF_INET : AF_INET6, number, address->name, ADDRESS_NAME);
  size_t digits = strlen(address->name);
  if (used && length > 0) snprintf(address->name + digits, ADDRESS_NAME - digits, "%%%s", (const char *)path);
  return STATUS_OK;
}

static Status parse_device(ByteCursor *c, const ClusterSetup *s, SetupDevice *device) {
  const uint8_t *record = c->at;
  bool text = s->tokens == 0;
  uint16_t port = 0;
  c->at += 2;
  byte_cursor_u16(c, &port);
  BYTE_CURSOR_FIELD(c, 32, device->tokens);
  byte_cursor_double(c, &device->weight);
  c->at += SETUP_DEVICE - 16;
  TRY(parse_address(record, port, device));
  TRY(need("tokens of a device", (double)device->tokens, text ? 0 : 1, (double)s->tokens));
  return need("the weight of a device", device->weight, text ? 1e-9 : 0, text ? 1e9 : 0);
}

/* ---- consistency */

static Status parse_order(const uint8_t *bytes, ClusterSetup *s) {
  if (s->tokens == 0) return STATUS_OK;
  s->order = calloc((size_t)s->tokens, sizeof *s->order);
  uint8_t *seen = calloc((size_t)s->tokens, 1);
  bool memory = s->order && seen, right = true;
  for (int64_t i = 0; memory && right && i < s->tokens; i++) {
    uint32_t token = wire_get_u32(bytes + 4 * i);
    right = token < s->tokens && !seen[token];
    if (right) seen[token] = 1;
    s->order[i] = (int32_t)token;
  }
  free(seen);
  if (!memory) return status_set(STATUS_NO_MEMORY, "no memory for an order of %lld tokens", (long long)s->tokens);
  return right ? STATUS_OK : refuse("whose order of tokens is no permutation");
}

static Status check_strategy(const ClusterSetup *s, const Weights *weights) {
  const StrategyFacts *facts = strategy_facts(s->strategy);
  if (s->nodes > 1 && facts->needs_codebooks && !weights->books)
    return status_set(STATUS_BAD_VALUE, "sent a set-up with strategy %s, which a model without codebooks cannot", facts->name);
  if (s->transport == TRANSPORT_UDP && !facts->sends_codes)
    return status_set(STATUS_BAD_VALUE, "sent a set-up with strategy %s over datagrams, which lose what it cannot do without", facts->name);
  bool stream = s->reliability.mode == RELIABILITY_STREAM;
  if (stream == (s->transport == TRANSPORT_UDP)) return refuse("whose reliability does not go with its transport");
  if (s->keep_codes && !(facts->sends_codes && s->nodes > 1)) return refuse("that keeps codes where none are sent");
  if (s->entropy == ENTROPY_ON && !weights->coding)
    return refuse("that asks for entropy coding, for which the checkpoint has no frequencies (astra-kmeans frequencies)");
  return STATUS_OK;
}

Status setup_message_parse(const uint8_t *bytes, size_t size, const Weights *weights, ClusterSetup *s) {
  ByteCursor c = byte_cursor_from(bytes);
  int64_t sum = 0;
  *s = (ClusterSetup){.epoch = 0};
  if (size < SETUP_HEAD) return refuse("that is too short");
  TRY(parse_head(&c, weights->config, s));
  if (size != setup_message_bytes(s))
    return status_set(STATUS_BAD_VALUE, "sent a set-up of %zu bytes where %zu follow from it", size, setup_message_bytes(s));
  TRY(parse_trace(&c, &s->links.trace));
  for (int d = 0; d < s->nodes; d++) TRY(parse_device(&c, s, &s->device[d]));
  for (int d = 0; d < s->nodes; d++) sum += s->device[d].tokens;
  if (sum != s->tokens) return refuse("whose devices' tokens do not sum to those of an image");
  TRY(parse_order(c.at, s));
  return check_strategy(s, weights);
}

void setup_message_release(ClusterSetup *setup) {
  link_trace_release(&setup->links.trace);
  free(setup->order);
  setup->order = NULL;
}
