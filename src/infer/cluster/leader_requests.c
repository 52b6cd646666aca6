/* Requests: each node's share, and what the answers mean, for each kind; then the messages of devices, checked and stored. The wire format
 * of requests and answers is request.c's. */
#include "base/clock.h"
#include "base/log.h"
#include "base/printable.h"
#include "infer/cluster/leader_internal.h"
#include "infer/node_share.h"
#include "vq/pack.h"
#include <stdio.h>
#include <string.h>

static bool is_missing(const Leader *leader, const LeaderRequest *request, int node) {
  return request->missing >> leader->epoch.device_of[node] & 1;
}

/* ---- codes of all nodes, in the order of the tokens */

typedef struct NodeCodes {
  int64_t sent, count, first; /* rows sent, content tokens, where these begin in the order */
  int64_t batch, tokens, groups;
  const int32_t *order;
} NodeCodes;

/* Copies a node's codes of each block and site, [B, sent, G], to their positions in [B, T, G]. A single class token has codes too, but is
 * no content token. */
static Status unpack_node(Leader *leader, const LeaderRequest *request, int d, const NodeCodes *node) {
  const NodeSetup *setup = &leader->setup;
  const Codebook *book = &setup->weights->books[0];
  int64_t rows = node->batch * node->sent, set = node->batch * node->tokens * node->groups, skip = node->sent - node->count;
  size_t all = request_code_bytes(setup, &request->request, &request->shares[d]);
  const uint8_t *packed = request->results[d] + request_answer_bytes(setup, &request->request, &request->shares[d]) - all;
  for (int i = 0; i < setup->weights->book_count; i++, packed += all / (size_t)setup->weights->book_count) {
    if (pack_unpack(packed, rows, book->groups, book->entries, leader->node_codes) != STATUS_OK)
      return status_wrap(STATUS_BAD_VALUE, "node %d: codes of block %d", d, i);
    for (int64_t row = 0; row < rows; row++) {
      int64_t b = row / node->sent, place = node->first + row % node->sent - skip;
      if (place < node->first) continue;
      int64_t token = node->order ? node->order[place] : place;
      memcpy(leader->codes + i * set + (b * node->tokens + token) * node->groups, leader->node_codes + row * node->groups,
             (size_t)node->groups * sizeof(int32_t));
    }
  }
  return STATUS_OK;
}

static Status gather_codes(Leader *leader, const LeaderRequest *request, const int32_t *order) {
  NodeCodes node = {
      .batch = request->request.batch, .tokens = request->request.tokens, .groups = leader->setup.weights->books[0].groups, .order = order};
  int64_t numbers = leader->setup.weights->book_count * node.batch * node.tokens * node.groups;
  for (int64_t i = 0; i < numbers; i++) leader->codes[i] = -1;
  for (int d = 0; d < leader->epoch.nodes; node.first += request->counts[d++]) {
    node.sent = request->shares[d].sent_rows;
    node.count = request->counts[d];
    if (node.sent > 0 && !is_missing(leader, request, d)) TRY(unpack_node(leader, request, d, &node));
  }
  return STATUS_OK;
}

/* ---- images: replicas of the class token, to which the head is applied here */

static void share_images(Leader *leader, LeaderRequest *slot) {
  const ModelConfig *config = leader->setup.weights->config;
  size_t at = 0;
  node_share_counts(&leader->setup, leader->partition.tokens, 0, slot->counts);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    slot->shares[d] = node_share_of(&leader->setup, d, &leader->epoch.layout[d]);
    slot->offset[d] = at;
    slot->size[d] = WIRE_HEADER + request_bytes(&leader->setup, &slot->request, &slot->shares[d]);
    if (d > 0 && node_share_everything(&leader->setup)) {
      slot->offset[d] = 0; /* one message is for all */
      continue;
    }
    patches_pack(config, &leader->epoch.layout[d], slot->request.batch, slot->pixels, slot->request.levels ? slot->levels : NULL,
                 slot->message + at + WIRE_HEADER);
    at += slot->size[d];
  }
}

/* The head over all replicas [B, rows, D] that have come, in the order of the nodes, as the training emulation has them. */
static Status apply_head(Leader *leader, const LeaderRequest *request) {
  int64_t batch = request->request.batch, width = leader->setup.weights->config->width, all = 0, first = 0;
  for (int d = 0; d < leader->epoch.nodes; d++) all += is_missing(leader, request, d) ? 0 : request->shares[d].class_rows;
  for (int d = 0; d < leader->epoch.nodes; d++) {
    int64_t rows = is_missing(leader, request, d) ? 0 : request->shares[d].class_rows;
    const uint8_t *from = request->results[d] + WIRE_STATISTICS;
    for (int64_t b = 0; b < batch; b++)
      wire_parse_reals(from + (size_t)(b * rows * width) * 4, (size_t)(rows * width), leader->replicas + (b * all + first) * width);
    if (rows > 0) leader->class_tokens[first] = request->shares[d].tokens; /* one replica a device */
    first += rows;
  }
  tape_clear(leader->tape);
  Tensor *replicas = tape_constant(leader->tape, 3, (const int64_t[]){batch, all, width}, leader->replicas);
  Tensor *logits = model_classify_replicas(leader->setup.weights->model, leader->tape, replicas, leader->class_tokens);
  if (!logits) return tape_status(leader->tape);
  memcpy(leader->logits, logits->value, (size_t)tensor_count(logits) * sizeof(real));
  return STATUS_OK;
}

/* ---- texts */

/* The failure of a node's answer, with its name. */
static Status name_node(const Leader *leader, int node, Status status) {
  char name[MEMBERSHIP_NAME];
  return status_wrap(status, "%s", membership_name(&leader->membership, leader->epoch.device_of[node], name));
}

static Status take_prompt(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  memset(leader->decoding, 0, (size_t)leader->membership.count * sizeof *leader->decoding);
  for (int d = 0; d < leader->epoch.nodes; d++) {
    if (is_missing(leader, request, d)) continue;
    RequestDecoding *decoding = &leader->decoding[leader->epoch.device_of[d]];
    Status status = request_decoding(byte_cursor_from(request->results[d] + WIRE_STATISTICS), decoding);
    /* Only the node with the last token generates tokens, as many as it has sent. */
    uint64_t made = request->shares[d].last ? (uint64_t)leader->queue.made_count : 0;
    if (status == STATUS_OK && decoding->tokens != made)
      status = status_set(STATUS_BAD_VALUE, "says that it made %llu tokens; %llu came", (unsigned long long)decoding->tokens,
                          (unsigned long long)made);
    if (status != STATUS_OK) return name_node(leader, d, status);
  }
  answer->decoding = leader->decoding;
  return STATUS_OK;
}

static Status take_score(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  for (int d = 0; d < leader->epoch.nodes; d++) {
    RequestScore score;
    if (is_missing(leader, request, d)) continue;
    Status status = request_score(byte_cursor_from(request->results[d] + WIRE_STATISTICS), &score);
    uint64_t max = (uint64_t)(request->request.batch * request->counts[d]);
    if (status == STATUS_OK && score.counted > max)
      status = status_set(STATUS_BAD_VALUE, "counted %llu labels; it has %llu tokens", (unsigned long long)score.counted,
                          (unsigned long long)max);
    if (status != STATUS_OK) return name_node(leader, d, status);
    answer->score.loss += score.loss;
    answer->score.counted += score.counted;
    answer->score.correct += score.correct;
  }
  const int64_t count = request->request.batch * request->request.tokens;
  const uint8_t *labels = request->message + WIRE_HEADER + 4 * count;
  uint64_t sent = 0; /* labels that count: not -1 */
  for (int64_t i = 0; i < count; i++) sent += (int32_t)wire_get_u32(labels + 4 * i) >= 0;
  if (answer->score.counted == sent || (request->missing && answer->score.counted < sent)) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "the nodes counted %llu labels together; %llu were sent", (unsigned long long)answer->score.counted,
                    (unsigned long long)sent);
}

/* ---- any of them */

/* Logits, of images or of the last tokens of texts, and the codes where they were asked for. */
static Status take_logits(Leader *leader, const LeaderRequest *request, LeaderAnswer *answer) {
  const bool texts = leader->setup.split != NULL;
  const size_t numbers = (size_t)(request->request.batch * weights_outputs(leader->setup.weights));
  if (!texts) TRY(apply_head(leader, request));
  for (int d = 0; d < leader->epoch.nodes && texts; d++) {
    if (request->shares[d].last) wire_parse_reals(request->results[d] + WIRE_STATISTICS, numbers, leader->logits);
  }
  answer->logits = leader->logits;
  if (!request->request.codes) return STATUS_OK;
  answer->codes = leader->codes;
  return gather_codes(leader, request, texts ? NULL : leader->partition.order);
}

LeaderRequest *leader_requests_oldest(Leader *leader) { return &leader->queue.requests[(leader->queue.collected + 1) & 1]; }

/* Numbers begin anew with each epoch. */
Status leader_requests_send(Leader *leader, LeaderRequest *slot, uint32_t number) {
  slot->number = number;
  slot->sent = 0;
  memset(slot->arrived, 0, (size_t)leader->epoch.nodes * sizeof *slot->arrived);
  if (leader->setup.split) { /* each node's share as the node itself computes it (node.c); all get the same message */
    int answers = node_share_counts(&leader->setup, slot->request.tokens, slot->request.home, slot->counts);
    for (int d = 0; d < leader->epoch.nodes; d++) {
      slot->shares[d] = (RequestShare){.sent_rows = d == answers ? 0 : slot->counts[d], .last = d == answers};
      slot->offset[d] = 0;
      slot->size[d] = WIRE_HEADER + request_bytes(&leader->setup, &slot->request, &slot->shares[d]);
    }
  } else {
    share_images(leader, slot);
  }
  for (int d = 0; d < leader->epoch.nodes; d++) {
    WireHeader header = {.kind = slot->request.kind,
                         .sender = WIRE_LEADER,
                         .block = (uint8_t)slot->request.home,
                         .flags = slot->request.codes ? WIRE_WANT_CODES : 0,
                         .request = number,
                         .count = (uint32_t)slot->request.batch,
                         .bytes = (uint32_t)(slot->size[d] - WIRE_HEADER)};
    wire_pack(&header, slot->message + slot->offset[d]);
    TRY(connection_send(leader->epoch.connections[d], slot->message + slot->offset[d], slot->size[d]));
  }
  return connections_step(leader->epoch.connections, leader->epoch.nodes, 0);
}

Status leader_requests_take(Leader *leader, const LeaderRequest *slot, LeaderAnswer *answer) {
  switch (slot->request.kind) {
  case WIRE_PROMPT:
    return take_prompt(leader, slot, answer);
  case WIRE_SEQUENCE: /* its tokens come by themselves (leader_sequences.c) */
    return STATUS_OK;
  case WIRE_SCORE:
    return take_score(leader, slot, answer);
  default:
    return take_logits(leader, slot, answer);
  }
}

/* ---- messages of nodes of the epoch */

static LeaderRequest *find_request(Leader *leader, uint32_t number) {
  for (int i = 0; number && i < LEADER_DEPTH; i++) {
    if (leader->queue.requests[i].number == number) return &leader->queue.requests[i];
  }
  return NULL;
}

static Status place_result(Leader *leader, int node, const WireHeader *header, uint8_t **payload) {
  LeaderRequest *slot = find_request(leader, header->request);
  if (!slot || slot->arrived[node]) return status_set(STATUS_BAD_VALUE, "answered request %u, which was not expected", header->request);
  size_t expected = request_answer_bytes(&leader->setup, &slot->request, &slot->shares[node]);
  if (header->block > leader->epoch.nodes) return status_set(STATUS_BAD_VALUE, "has given up unknown node %d", header->block - 1);
  if (header->count != slot->request.batch || header->bytes != expected)
    return status_set(STATUS_BAD_VALUE, "answered with %u bytes for %u %s; %zu for %lld were expected", header->bytes, header->count,
                      request_unit(&leader->setup), expected, (long long)slot->request.batch);
  *payload = slot->results[node];
  return STATUS_OK;
}

static void note_progress(Leader *leader, int node, uint32_t request, uint64_t step) {
  leader->epoch.progress[node] = (uint64_t)request * (uint64_t)(leader->setup.weights->config->blocks + 3) + step;
}

static Status place_of_node(Leader *leader, LeaderDevice *device, const WireHeader *header, uint8_t **payload) {
  int node = device->node;
  if (node < 0 || header->sender != node) return status_set(STATUS_BAD_VALUE, "sent a message in the name of node %d", header->sender);
  if (header->kind == WIRE_DECODED || header->kind == WIRE_DRAFTS) return leader_sequences_place(leader, node, header, payload);
  bool answers = header->kind == WIRE_RESULT || header->kind == WIRE_TOKEN;
  if (answers && leader->epoch.setting_up) return status_set(STATUS_BAD_VALUE, "answered request %u before it was sent", header->request);
  if (header->kind == WIRE_RESULT) return place_result(leader, node, header, payload);
  *payload = leader->queue.token;   /* of a TOKEN; of others nothing is written there */
  if (header->kind == WIRE_TOKEN) { /* only the node with the last token of a prompt makes tokens, one after another */
    const LeaderRequest *slot = find_request(leader, header->request);
    bool due = slot && slot->request.kind == WIRE_PROMPT && slot->shares[node].last && !slot->arrived[node];
    if (due && header->count == leader->queue.made_count + 1 && leader->queue.made_count < leader->setup.tokens_max) return STATUS_OK;
    return status_set(STATUS_BAD_VALUE, "sent token %u of request %u, which was not expected", header->count, header->request);
  }
  bool ready = header->kind == WIRE_READY && header->count == leader->epoch.number && device->state == DEVICE_HERE;
  bool progress = header->kind == WIRE_PROGRESS && header->block <= leader->setup.weights->config->blocks;
  return ready || progress ? STATUS_OK : status_set(STATUS_BAD_VALUE, "sent an unexpected %s message", wire_kind_name(header->kind));
}

static Status deliver_of_node(Leader *leader, LeaderDevice *device, const WireHeader *header, uint8_t *payload) {
  int node = device->node;
  if (header->kind == WIRE_DECODED) return leader_sequences_deliver(leader, node, header, payload);
  if (header->kind == WIRE_DRAFTS) return leader_sequences_drafts(leader, node, header, payload);
  if (header->kind == WIRE_READY) {
    device->state = DEVICE_READY;
    device->drafts = header->flags & WIRE_DRAFTER;
  }
  if (header->kind == WIRE_PROGRESS) note_progress(leader, node, header->request, header->block + 1U);
  if (header->kind == WIRE_TOKEN) {
    LeaderQueue *queue = &leader->queue;
    TRY(request_parse_ids(payload, 1, 0, leader->setup.weights->config->vocabulary, &queue->made[queue->made_count]));
    queue->made_count++;
  }
  if (header->kind != WIRE_RESULT) return STATUS_OK;
  LeaderRequest *request = find_request(leader, header->request);
  TRY(request_statistics(byte_cursor_from(payload), &request->nodes[node]));
  request->arrived[node] = true;
  /* A node that is connected was given up by this one: they would continue without each other until a new epoch. */
  const LeaderDevice *given_up = header->block > 0 ? leader_device(leader, header->block - 1) : NULL;
  if (given_up && given_up->state == DEVICE_READY && connection_is_open(&given_up->connection)) {
    request->given_up |= (uint64_t)1 << leader->epoch.device_of[header->block - 1];
    leader->epoch.parted = true;
  }
  note_progress(leader, node, header->request, (uint64_t)leader->setup.weights->config->blocks + 2);
  return STATUS_OK;
}

/* ---- messages of any device */

static bool is_complaint(const WireHeader *header) {
  return header->kind == WIRE_ERROR || header->kind == WIRE_REFUSE || header->kind == WIRE_BUSY;
}

static void store_complaint(Leader *leader, int m, const WireHeader *header) {
  char *complaint = leader->epoch.complaints[m];
  complaint[header->bytes] = 0;
  printable_blank(complaint, strlen(complaint)); /* nothing that a terminal obeys comes to it from a socket */
}

/* The connection stays open: a node whose control stream ends exits, and would look like the one that died. Once CANCEL is on its way
 * nobody is blamed any more: devices that have read it close their connections to those that have not. */
static Status take_complaint(Leader *leader, int m, const WireHeader *header) {
  store_complaint(leader, m, header);
  bool futile = header->flags & WIRE_FUTILE; /* the cause, if others complain that its codes are missing */
  if (leader->membership.devices[m].asked && !futile) return STATUS_OK;
  if (leader->epoch.complainer >= 0 && (leader->epoch.futile || !futile)) return STATUS_OK;
  leader->epoch.futile = futile;
  leader->epoch.complainer = m;
  leader->epoch.complained = header->kind == WIRE_ERROR ? header->request : 0;
  leader->epoch.fault = header->count > 0 ? leader->epoch.device_of[header->count - 1] : -1;
  return STATUS_OK;
}

/* From a worker that does not take part yet: it concerns no others. A refusal is BAD_VALUE: calling again soon would not help. */
static Status take_refusal(Leader *leader, int m, const WireHeader *header) {
  char name[MEMBERSHIP_NAME];
  LeaderDevice *device = &leader->membership.devices[m];
  store_complaint(leader, m, header);
  uint32_t place = header->kind == WIRE_BUSY ? header->count : 0;
  bool waits_from_here_on = place > 0 && place != device->place && leader->epoch.number == 0; /* after the start nobody waits for it */
  if (waits_from_here_on) log_info("%s %s", membership_name(&leader->membership, m, name), leader->epoch.complaints[m]);
  device->place = place;
  device->refused = header->kind == WIRE_REFUSE;
  return device->place > 0 ? STATUS_OK : status_set(STATUS_BAD_VALUE, "%s", leader->epoch.complaints[m]);
}

/* The WELCOME in device->welcome. BAD_VALUE: it has another model. */
static Status take_welcome(Leader *leader, LeaderDevice *device) {
  char worker[MEMBERSHIP_WORKER], name[MEMBERSHIP_WORKER + 8] = "a process of this machine";
  Welcome welcome;
  TRY(hello_welcome(byte_cursor_from(device->welcome), &welcome));
  memcpy(device->name, welcome.name, sizeof device->name);
  if (!device->forked) snprintf(name, sizeof name, "worker %s", membership_worker(device, worker));
  device->place = 0;
  Status status = hello_compare(&welcome.fingerprints, leader->membership.fingerprints, name);
  device->refused = status != STATUS_OK;
  if (status != STATUS_OK) return status;
  device->refusal[0] = 0;
  device->state = DEVICE_HERE;
  device->since = clock_now();
  return STATUS_OK;
}

static Status place_message(void *context, Connection *from, const WireHeader *header, uint8_t **payload) {
  Leader *leader = context;
  LeaderDevice *device = &leader->membership.devices[from->peer];
  bool greeted = device->state == DEVICE_GREETED;
  /* The count of BUSY, which comes before WELCOME, is a position in a queue; that of other complaints is the node at fault. */
  bool sound = header->kind == WIRE_BUSY ? greeted : header->count <= (uint32_t)leader->epoch.nodes;
  *payload = device->welcome;
  if (header->kind == WIRE_WELCOME && greeted) return STATUS_OK;
  if (header->kind == WIRE_FETCH && greeted && !device->forked && header->bytes == 0 && header->count == 0) return STATUS_OK;
  if (header->kind == WIRE_CANCELLED && device->asked) return STATUS_OK;
  if (is_complaint(header) && sound) {
    *payload = (uint8_t *)leader->epoch.complaints[from->peer];
    return STATUS_OK;
  }
  return place_of_node(leader, device, header, payload);
}

static Status deliver_message(void *context, Connection *from, const WireHeader *header, uint8_t *payload) {
  Leader *leader = context;
  LeaderDevice *device = &leader->membership.devices[from->peer];
  device->heard = clock_now();
  if (header->kind == WIRE_WELCOME) return take_welcome(leader, device);
  device->fetches |= header->kind == WIRE_FETCH;
  if (header->kind == WIRE_FETCH) return STATUS_OK;
  if (header->kind == WIRE_CANCELLED) device->asked = false;
  if (header->kind == WIRE_CANCELLED) return STATUS_OK;
  if (!is_complaint(header)) return deliver_of_node(leader, device, header, payload);
  bool apart = device->state == DEVICE_GREETED || device->node < 0;
  return apart ? take_refusal(leader, from->peer, header) : take_complaint(leader, from->peer, header);
}

const ConnectionSink leader_requests_sink = {.from = WIRE_FROM_DEVICE, .place = place_message, .deliver = deliver_message};
