/* See device_session.h. Leaves out: what a request is (node.c), how connections to peers are made (peer_handshake.c). Messages are received
 * wherever connections progress, also in the middle of a request: delivery only records them, and the loop acts on them. */
#include "infer/cluster/device_session.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/threads.h"
#include "infer/cluster/connection.h"
#include "infer/cluster/hello.h"
#include "infer/cluster/peer_handshake.h"
#include "infer/node.h"
#include "infer/node_share.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double peers_seconds = 10; /* for connections to all others */

typedef struct Session {
  const SessionPlace *place;
  Connection *control;
  bool over, cancelled, setup_arrived;
  bool stop; /* the epoch is not wanted any more: any of over, cancelled, setup_arrived */
  bool failed;
  bool decoded; /* a step of decoding since the last request */
  bool threads_run;
  bool welcomed;        /* WELCOME has been sent: from now on failures are reported to the leader */
  uint8_t *setup_bytes; /* [setup_message_max] */
  size_t setup_size;
  bool probed;              /* a PROBE waits for its answer; the next one is held back until then */
  WireHeader probe;         /* its header */
  uint8_t *probe_message;   /* [WIRE_HEADER + PROBE_MAX] from the first one on: its payload, then the answer */
  IdleTimeout idle_timeout; /* with the leader, while the session waits for it */
  bool waits;
  double given_back; /* memory_give_back_at_times */
  /* The epoch: */
  ClusterSetup setup;
  Weights weights; /* the place's, at the bit rate of the epoch; borrowed */
  Partition partition;
  TokenSplit split;
  NodeSetup node_setup;
  Node *node; /* NULL: none is open */
  /* Messages being sent: */
  uint8_t welcome[WIRE_HEADER + WELCOME_BYTES], header[WIRE_HEADER], text[WIRE_HEADER + WIRE_TEXT];
} Session;

/* ---- messages from the leader */

static bool has_no_payload(const WireHeader *header) {
  return header->kind == WIRE_BYE || header->kind == WIRE_CANCEL || header->kind == WIRE_GONE || header->kind == WIRE_PING;
}

static Status place_message(void *context, Connection *from, const WireHeader *header, uint8_t **payload) {
  Session *s = context;
  const ModelConfig *config = s->place->weights->config;
  (void)from;
  *payload = s->header;
  if (has_no_payload(header)) return STATUS_OK;
  if (header->kind == WIRE_SETUP) {
    if (header->bytes > setup_message_max(config)) return status_set(STATUS_BAD_VALUE, "sent a set-up of %u bytes", header->bytes);
    *payload = s->setup_arrived ? NULL : s->setup_bytes;
    return STATUS_OK;
  }
  if (header->kind == WIRE_PROBE && !s->node) {
    TRY(hello_check_probe(header, config_tokens(config)));
    if (!s->probe_message) s->probe_message = calloc(1, WIRE_HEADER + PROBE_MAX);
    if (!s->probe_message) return status_no_memory(NULL, "a measurement");
    *payload = s->probed ? NULL : s->probe_message + WIRE_HEADER;
    return STATUS_OK;
  }
  if (s->node && !s->stop) return node_place(s->node, header, payload);
  return status_set(STATUS_BAD_VALUE, "sent a %s message where none was due", wire_kind_name(header->kind));
}

static Status deliver_message(void *context, Connection *from, const WireHeader *header, uint8_t *payload) {
  Session *s = context;
  (void)from, (void)payload;
  if (header->kind == WIRE_PROBE) {
    s->probe = *header;
    s->probed = true;
    return STATUS_OK;
  }
  if (header->kind == WIRE_SETUP) s->setup_size = header->bytes;
  s->over |= header->kind == WIRE_BYE;
  s->cancelled |= header->kind == WIRE_CANCEL;
  if (header->kind == WIRE_CANCEL) s->setup_arrived = false; /* the one that came before it */
  s->setup_arrived |= header->kind == WIRE_SETUP;
  s->stop = s->over || s->cancelled || s->setup_arrived;
  bool for_session = has_no_payload(header) || header->kind == WIRE_SETUP;
  /* A set-up between requests lets the current one finish. */
  if (s->node && (s->over || s->cancelled)) node_cancel(s->node);
  if (header->kind == WIRE_GONE) { /* a device that is itself reported as gone learns it from the end of its connection */
    if (header->count >= (uint32_t)s->setup.nodes) return status_set(STATUS_BAD_VALUE, "says that node %u is gone", header->count);
    if (s->node) node_gone(s->node, (int)header->count);
    return STATUS_OK;
  }
  return for_session ? STATUS_OK : node_deliver(s->node, header);
}

/* ---- waiting for the leader */

/* Waits once, for at most CONNECTION_IDLE_SLICE. A leader without a sign of life is given up: others may wait for this device. */
static Status wait_for_leader(Session *s, IdleTimeout *idle_timeout) {
  const double max = s->place->idle_timeout;
  TRY(connections_step(&s->control, 1, max > 0 ? CONNECTION_IDLE_SLICE : 3600));
  if (max <= 0 || !connection_idle_ends(idle_timeout, s->control->received.bytes, clock_now())) return STATUS_OK;
  return status_set(STATUS_TIMEOUT, "the leader gave no sign of life for %g s", max);
}

/* From when the leader was last heard, perhaps in the middle of a computation. */
static IdleTimeout start_waiting(const Session *s) {
  IdleTimeout idle_timeout;
  connection_idle_start(&idle_timeout, s->place->idle_timeout, s->control->received.bytes, clock_now());
  idle_timeout.heard = s->control->heard;
  return idle_timeout;
}

/* Until all messages are sent: their buffers are needed again. */
static Status flush(Session *s) {
  IdleTimeout idle_timeout = start_waiting(s);
  while (connection_queued(s->control)) TRY(wait_for_leader(s, &idle_timeout));
  return STATUS_OK;
}

/* ---- messages to the leader */

static Status send_message(Session *s, uint8_t *message, WireHeader header) {
  header.sender = (uint8_t)s->setup.self;
  wire_pack(&header, message);
  TRY(connection_send(s->control, message, WIRE_HEADER + (size_t)header.bytes));
  return connections_step(&s->control, 1, 0);
}

static Status send_header(Session *s, WireHeader header) {
  TRY(flush(s));
  return send_message(s, s->header, header);
}

/* Reports the failure of status_message(), caused by node `fault`; -1: by none. */
static Status send_failure(Session *s, uint8_t kind, uint8_t flags, uint32_t request, int fault) {
  const char *why = status_message();
  size_t length = strnlen(why, WIRE_TEXT);
  if (!connection_is_open(s->control)) return STATUS_PEER;
  TRY(flush(s));
  memcpy(s->text + WIRE_HEADER, why, length);
  return send_message(
      s, s->text,
      (WireHeader){.kind = kind, .flags = flags, .request = request, .count = (uint32_t)(fault + 1), .bytes = (uint32_t)length});
}

/* ---- threads: once, before the first epoch */

/* A process of several threads gets cores of its own where all together take every core: the pool then binds its workers to them. */
static void choose_cores(int number, int processes, int threads) {
  cpu_set_t allowed, own;
  if (threads < 2 || processes < 2 || sched_getaffinity(0, sizeof allowed, &allowed) != 0 || processes * threads != CPU_COUNT(&allowed))
    return;
  CPU_ZERO(&own);
  for (int core = 0, seen = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &allowed)) continue;
    if (seen / threads == number) CPU_SET(core, &own);
    seen++;
  }
  sched_setaffinity(0, sizeof own, &own); /* a refusal costs speed only */
}

static Status start_threads(Session *s) {
  const SessionPlace *place = s->place;
  if (s->threads_run || place->threads == 1) return STATUS_OK;
  choose_cores(place->number, place->siblings, place->threads);
  TRY(threads_start(place->threads));
  s->threads_run = true;
  return STATUS_OK;
}

/* ---- epochs */

static void close_epoch(Session *s) {
  node_free(s->node);
  s->node = NULL;
  s->failed = false;
  partition_release(&s->partition);
  setup_message_release(&s->setup);
}

/* Answers that are still being sent lie in the node's memory. */
static Status stop_epoch(Session *s) {
  TRY(flush(s));
  close_epoch(s);
  return STATUS_OK;
}

/* What leader and device must agree on; the partition as parsed here. */
static Status check_agreement(const ClusterSetup *setup, const Fingerprints *own) {
  int64_t counts[WIRE_NODES];
  double weights[WIRE_NODES];
  Fingerprints here = *own;
  for (int d = 0; d < setup->nodes; d++) {
    counts[d] = setup->device[d].tokens;
    weights[d] = setup->device[d].weight;
  }
  FingerprintShares shares = {.nodes = setup->nodes, .tokens = setup->tokens, .order = setup->order, .weights = weights};
  if (setup->tokens > 0) shares.counts = counts;
  TRY(fingerprint_shares(&shares, &here.partition));
  return hello_compare(&setup->fingerprints, &here, "the leader");
}

/* Parses the set-up, refuses what is impossible here, and takes the shares of tokens from it, in the form of partition.h. */
static Status take_setup(Session *s) {
  ClusterSetup *setup = &s->setup;
  TRY(setup_message_parse(s->setup_bytes, s->setup_size, s->place->weights, setup));
  TRY(check_agreement(setup, s->place->fingerprints));
  if (config_rates(s->weights.config) > 1) TRY(weights_use_rate(&s->weights, config_rate_groups(s->weights.config, setup->rate)));
  const StrategyFacts *facts = strategy_facts(setup->strategy);
  bool loses = setup->reliability.deadline > 0 || setup->links.lose_tokens || setup->mask;
  if (!facts->sends_codes && (setup->parts > 1 || loses))
    return status_set(STATUS_UNSUPPORTED, "strategy %s knows no parts of blocks, and needs every message", facts->name);
  if (setup->shaped && setup->links.topology == LINK_SHARED)
    return status_set(STATUS_UNSUPPORTED, "a medium that all devices share is for virtual time alone");
  s->split = (TokenSplit){.nodes = setup->nodes};
  for (int d = 0; d < setup->nodes; d++) s->split.weights[d] = setup->device[d].weight;
  if (setup->tokens == 0) return STATUS_OK;
  TRY(partition_init(&s->partition, setup->tokens, setup->nodes, NULL));
  for (int d = 0; d < setup->nodes; d++) s->partition.counts[d] = setup->device[d].tokens;
  memcpy(s->partition.order, setup->order, (size_t)setup->tokens * sizeof *setup->order);
  return STATUS_OK;
}

static NodeSetup node_setup_of(Session *s) {
  const ClusterSetup *setup = &s->setup;
  bool text = setup->tokens == 0;
  return (NodeSetup){.weights = &s->weights,
                     .partition = text ? NULL : &s->partition,
                     .split = text ? &s->split : NULL,
                     .batch_max = setup->batch_max,
                     .tokens_max = setup->tokens_max,
                     .sequences = setup->sequences,
                     .timeout = setup->reliability.timeout,
                     .strategy = setup->strategy,
                     .retained = setup->retained,
                     .keep_codes = setup->keep_codes,
                     .mask = setup->mask,
                     .class_token = setup->class_token,
                     .network = setup};
}

static Status open_epoch(Session *s, int *fault) {
  TRY(take_setup(s));
  TRY(start_threads(s));
  s->node_setup = node_setup_of(s);
  TRY(node_share_check_batch(&s->node_setup));
  setup_message_agreed(&s->setup, s->place->session, s->node_setup.agreed);
  PeerHandshake handshake = {.setup = &s->setup,
                             .passed = s->place->passed,
                             .together = s->place->together,
                             .key = s->place->key,
                             .control = s->control,
                             .stop = &s->stop,
                             .seconds = peers_seconds,
                             .fault = -1};
  memcpy(handshake.session, s->place->session, HELLO_SESSION);
  Status status = s->setup.nodes > 1 ? peer_handshake_run(&handshake) : STATUS_OK;
  *fault = handshake.fault;
  /* Of a service, which stays, and decodes many rows at a time. Not before the others are met: they wait for that for seconds alone. */
  if (status == STATUS_OK && s->setup.sequences > 0) status = weights_pack(&s->weights, true);
  if (status == STATUS_OK) return node_new(&s->node, &s->node_setup, s->setup.self, s->control, handshake.connection, fault);
  for (int d = 0; d < s->setup.nodes; d++) connection_free(handshake.connection[d]);
  return status;
}

static Status start_epoch(Session *s) {
  int fault = -1;
  TRY(stop_epoch(s));
  if (!s->setup_arrived || s->over) return STATUS_OK; /* called off meanwhile */
  s->setup_arrived = s->stop = false;
  Status status = open_epoch(s, &fault);
  size_t max = setup_message_max(s->place->weights->config);
  if (s->node && s->control->sink.max_payload < max) s->control->sink.max_payload = max;
  if (status == STATUS_OK)
    return send_header(s, (WireHeader){.kind = WIRE_READY, .flags = node_is_drafter(s->node) ? WIRE_DRAFTER : 0, .count = s->setup.epoch});
  if (!connection_is_open(s->control) || s->stop) return connection_is_open(s->control) ? STATUS_OK : status;
  return send_failure(s, WIRE_REFUSE, 0, 0, fault);
}

/* A failure is reported, unless the leader is gone or has cancelled. */
static Status end_work(Session *s, Status status, uint32_t number, int fault) {
  if (status == STATUS_OK || !connection_is_open(s->control)) return status;
  s->failed = true;
  if (s->over || s->cancelled) return STATUS_OK;
  const bool futile = status == STATUS_NUMERIC || status == STATUS_UNSUPPORTED;
  return send_failure(s, WIRE_ERROR, futile ? WIRE_FUTILE : 0, number, fault);
}

/* On the threads that will serve requests. */
static Status be_measured(Session *s) {
  WireHeader answer = {.kind = WIRE_PROFILE, .request = s->probe.request, .count = s->probe.count, .bytes = s->probe.count};
  DeviceProfile profile;
  TRY(start_threads(s));
  TRY(flush(s)); /* the answer before this one */
  if (answer.request == PROBE_COMPUTE) {
    TRY(probe_compute(s->place->weights->config, answer.count, PROBE_AS_IT_IS, &profile));
    hello_profile(byte_cursor_to(s->probe_message + WIRE_HEADER), &profile);
    answer.bytes = PROFILE_BYTES;
  }
  wire_pack(&answer, s->probe_message);
  TRY(connection_send(s->control, s->probe_message, WIRE_HEADER + (size_t)answer.bytes));
  TRY(flush(s));
  s->probed = false;
  return STATUS_OK;
}

/* Does the next thing that is due, or waits for it. */
static Status serve(Session *s) {
  bool open = s->node && !s->failed, waited = s->waits;
  s->waits = false;
  memory_give_back_at_times(&s->given_back);
  if (s->cancelled) {
    TRY(stop_epoch(s));
    s->cancelled = false;
    s->stop = s->over || s->setup_arrived;
    return send_header(s, (WireHeader){.kind = WIRE_CANCELLED});
  }
  /* Between two prompts there is a step of the sequences that live here, so that neither waits for long. */
  const bool decodes = open && node_decodes(s->node), asked = open && node_has_request(s->node);
  if (asked && (s->decoded || !decodes)) {
    uint32_t number;
    int fault;
    s->decoded = false;
    Status status = node_answer(s->node, &number, &fault);
    return end_work(s, status, number, fault);
  }
  if (s->probed) return be_measured(s);
  if (s->setup_arrived) return start_epoch(s);
  if (decodes) { /* a step of all sequences that live here, once the leader has been heard */
    const double max = s->place->idle_timeout;
    TRY(connections_step(&s->control, 1, 0));
    if (max > 0 && clock_now() - s->control->heard > max)
      return status_set(STATUS_TIMEOUT, "the leader gave no sign of life for %g s", max);
    if (s->stop || s->failed) return STATUS_OK;
    const double wait = node_waits(s->node);
    if (wait > 0) return connections_step(&s->control, 1, wait);
    s->decoded = true;
    return end_work(s, node_decode(s->node), 0, -1);
  }
  if (open && node_drafts(s->node)) { /* for others, while there is nothing else to do */
    TRY(connections_step(&s->control, 1, 0));
    return s->stop || s->failed ? STATUS_OK : end_work(s, node_draft(s->node), 0, -1);
  }
  if (!waited) s->idle_timeout = start_waiting(s);
  s->waits = true;
  return wait_for_leader(s, &s->idle_timeout);
}

/* ---- beginning and end */

static Status run(Session *s) {
  size_t max = setup_message_max(s->place->weights->config);
  ConnectionSink sink = {.context = s,
                         .from = WIRE_FROM_LEADER,
                         .max_payload = max > PROBE_MAX ? max : PROBE_MAX,
                         .place = place_message,
                         .deliver = deliver_message};
  s->control = s->place->control;
  connection_receive(s->control, -1, &sink);
  s->control->idle_timeout = s->place->idle_timeout;
  if (!(s->setup_bytes = malloc(max))) return status_no_memory(NULL, "a set-up");
  Welcome welcome = {.fingerprints = *s->place->fingerprints};
  snprintf(welcome.name, sizeof welcome.name, "%s", s->place->name ? s->place->name : "");
  hello_welcome(byte_cursor_to(s->welcome + WIRE_HEADER), &welcome);
  TRY(send_message(s, s->welcome, (WireHeader){.kind = WIRE_WELCOME, .bytes = WELCOME_BYTES}));
  s->welcomed = true;
  while (!s->over) {
    Status status = serve(s);
    if (!s->over) TRY(status); /* after BYE the leader may hang up */
  }
  return STATUS_OK;
}

/* Whether the leader, which is on this machine, says what there is to say: what it was told, or why it has left. */
static bool leader_tells(const Session *s, Status status) {
  const bool left = status == STATUS_PEER && !connection_is_open(s->control);
  return (s->place->together && s->welcomed) || (!s->place->leader && left);
}

int device_session_run(const SessionPlace *place) {
  /* What a terminal or a supervisor sends to the whole group reaches this process too, but its parent decides what that means; a fault ends
   * it, where a handler of its parent's would return. */
  static const int defaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, 0}, ignored[] = {SIGINT, SIGTERM, SIGPIPE, 0};
  if (!process_child(place->parent, SIGKILL, defaults, ignored)) _exit(1);
  Session *s = calloc(1, sizeof *s);
  if (!s) {
    log_warning("session pid %d: no memory for a session", (int)getpid());
    return 1;
  }
  s->place = place;
  s->weights = *place->weights;
  weights_guard(place->weights);
  Status status = run(s);
  if (status != STATUS_OK && !leader_tells(s, status))
    log_warning("session pid %d%s%s: %s", (int)getpid(), place->leader ? " of " : "", place->leader ? place->leader : "", status_message());
  /* That the leader is gone is no failure of this process. */
  bool failed = status != STATUS_OK && connection_is_open(s->control);
  threads_stop();
  close_epoch(s);
  connection_free(s->control);
  if (place->passed >= 0) close(place->passed);
  free(s->probe_message);
  free(s->setup_bytes);
  free(s);
  return failed ? 1 : 0;
}
