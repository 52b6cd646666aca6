/* What a leader takes from nodes that it did not ask: results and tokens of the wrong node, request, number or length, names that are not
 * theirs, ids that no vocabulary has. No processes: messages go straight to where the connections would bring them. */
#include "base/clock.h"
#include "infer/cluster/leader.h"
#include "infer/cluster/leader_internal.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 3, VOCABULARY = 11, TOKENS = 9, BATCH = 2 };

typedef struct Fixture {
  ModelConfig config;
  Weights weights;
  TokenSplit split;
  Leader leader;
  LeaderDevice devices[NODES];
  int device_of[NODES];
  bool arrived[NODES];
  uint64_t progress[NODES];
  char complaints[NODES][WIRE_TEXT + 1];
  NodeStatistics nodes[NODES];
  RequestShare shares[NODES];
  uint8_t results[NODES][1024], *result_of[NODES];
  int32_t made[TOKENS];
  Connection connection;
} Fixture;

/* Request 1 is under way, of 5 tokens; node 2 has the last one. */
static void open_fixture(Fixture *f, uint8_t kind) {
  *f = (Fixture){.config = {.vocabulary = VOCABULARY, .context = TOKENS, .blocks = 2, .width = 4}, .split = {NODES, {1, 1, 1}}};
  f->weights.config = &f->config;
  f->leader = (Leader){.setup = {.weights = &f->weights, .split = &f->split, .batch_max = BATCH, .tokens_max = TOKENS},
                       .epoch.nodes = NODES,
                       .queue.submitted = 1,
                       .membership.devices = f->devices,
                       .epoch.device_of = f->device_of,
                       .membership.count = NODES,
                       .epoch.number = 4,
                       .epoch.progress = f->progress,
                       .epoch.complainer = -1,
                       .epoch.fault = -1,
                       .epoch.complaints = f->complaints,
                       .queue.made = f->made};
  f->leader.membership.cluster = &f->leader.cluster;
  for (int d = 0; d < NODES; d++) {
    f->result_of[d] = f->results[d];
    f->device_of[d] = d;
    f->devices[d] = (LeaderDevice){.state = DEVICE_READY, .forked = true, .pid = 101 + d, .node = d};
    f->shares[d] = (RequestShare){.sent_rows = d < 2 ? 2 : 0, .last = d == 2};
  }
  f->leader.queue.requests[1] = (LeaderRequest){.number = 1,
                                                .results = f->result_of,
                                                .arrived = f->arrived,
                                                .nodes = f->nodes,
                                                .shares = f->shares,
                                                .request = {.kind = kind, .batch = 1, .tokens = 5}};
  connection_init(&f->connection);
  for (int m = 0; m < NODES; m++) connection_init(&f->devices[m].connection);
}

static Status hand_over(Fixture *f, int node, WireHeader header, const uint8_t *payload) {
  uint8_t *place = NULL, bytes[WIRE_HEADER];
  f->connection.peer = node;
  wire_pack(&header, bytes);
  TRY(wire_parse(bytes, 1 << 20, &header));
  TRY(wire_check_sender(&header, WIRE_FROM_DEVICE));
  TRY(leader_requests_sink.place(&f->leader, &f->connection, &header, &place));
  assert_non_null(place);
  if (payload) memcpy(place, payload, header.bytes);
  return leader_requests_sink.deliver(&f->leader, &f->connection, &header, place);
}

static Status hand_token(Fixture *f, int node, uint32_t request, uint32_t number, uint32_t id, uint32_t bytes) {
  uint8_t payload[8] = {0};
  wire_put_u32(payload, id);
  return hand_over(f, node, (WireHeader){.kind = WIRE_TOKEN, .sender = (uint8_t)node, .request = request, .count = number, .bytes = bytes},
                   payload);
}

static void tokens_of_the_last_node_in_order(void **state) {
  (void)state;
  Fixture f;
  open_fixture(&f, WIRE_PROMPT);
  for (uint32_t i = 1; i <= TOKENS; i++) assert_int_equal(hand_token(&f, 2, 1, i, i, 4), STATUS_OK);
  assert_int_equal(f.leader.queue.made_count, TOKENS);
  for (int i = 0; i < TOKENS; i++) assert_int_equal(f.made[i], i + 1);
  assert_int_equal(hand_token(&f, 2, 1, TOKENS + 1, 1, 4), STATUS_BAD_VALUE); /* more than fit */
}

static void tokens_that_nobody_waits_for(void **state) {
  (void)state;
  const struct {
    int node;
    uint32_t request, number, id, bytes;
  } faults[] = {{0, 1, 1, 1, 4}, {2, 2, 1, 1, 4}, {2, 0, 1, 1, 4},          {2, 1, 2, 1, 4},         {2, 1, 0, 1, 4},
                {2, 1, 1, 1, 8}, {2, 1, 1, 1, 0}, {2, 1, 1, VOCABULARY, 4}, {2, 1, 1, UINT32_MAX, 4}};
  Fixture f;
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    open_fixture(&f, WIRE_PROMPT);
    if (hand_token(&f, faults[i].node, faults[i].request, faults[i].number, faults[i].id, faults[i].bytes) != STATUS_BAD_VALUE)
      fail_msg("fault %d was accepted", (int)i);
    assert_int_equal(f.leader.queue.made_count, 0);
  }
  open_fixture(&f, WIRE_SCORE); /* no prompt */
  assert_int_equal(hand_token(&f, 2, 1, 1, 1, 4), STATUS_BAD_VALUE);
  open_fixture(&f, WIRE_PROMPT);
  f.arrived[2] = true; /* its result is there: it has said that it is done */
  assert_int_equal(hand_token(&f, 2, 1, 1, 1, 4), STATUS_BAD_VALUE);
}

static void results_have_the_length_of_their_request(void **state) {
  (void)state;
  const struct {
    uint8_t kind;
    int node;
    uint32_t bytes;
  } rows[] = {{WIRE_PROMPT, 0, WIRE_STATISTICS + REQUEST_DECODING},
              {WIRE_PROMPT, 2, WIRE_STATISTICS + REQUEST_DECODING},
              {WIRE_SCORE, 1, WIRE_STATISTICS + REQUEST_SCORE},
              {WIRE_LAST, 0, WIRE_STATISTICS},
              {WIRE_LAST, 2, WIRE_STATISTICS + 4 * VOCABULARY}};
  const uint8_t payload[1024] = {0};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Fixture f;
    WireHeader header = {.kind = WIRE_RESULT, .sender = (uint8_t)rows[i].node, .request = 1, .count = 1, .bytes = rows[i].bytes};
    open_fixture(&f, rows[i].kind);
    WireHeader wrong = header;
    wrong.bytes -= 4;
    assert_int_equal(hand_over(&f, rows[i].node, wrong, payload), STATUS_BAD_VALUE);
    wrong = header, wrong.bytes += 4;
    assert_int_equal(hand_over(&f, rows[i].node, wrong, payload), STATUS_BAD_VALUE);
    wrong = header, wrong.count = 2;
    assert_int_equal(hand_over(&f, rows[i].node, wrong, payload), STATUS_BAD_VALUE);
    wrong = header, wrong.request = 2;
    assert_int_equal(hand_over(&f, rows[i].node, wrong, payload), STATUS_BAD_VALUE);
    wrong = header, wrong.sender = (uint8_t)((rows[i].node + 1) % NODES);
    assert_int_equal(hand_over(&f, rows[i].node, wrong, payload), STATUS_BAD_VALUE);
    wrong = header, wrong.block = NODES + 1; /* a node that it has given up */
    assert_int_equal(hand_over(&f, rows[i].node, wrong, payload), STATUS_BAD_VALUE);
    f.leader.epoch.setting_up = true; /* the request is of the epoch before */
    assert_int_equal(hand_over(&f, rows[i].node, header, payload), STATUS_BAD_VALUE);
    f.leader.epoch.setting_up = false;
    assert_false(f.arrived[rows[i].node]);
    assert_int_equal(hand_over(&f, rows[i].node, header, payload), STATUS_OK);
    assert_true(f.arrived[rows[i].node]);
    assert_int_equal(hand_over(&f, rows[i].node, header, payload), STATUS_BAD_VALUE); /* once */
  }
}

static void a_complaint_shows_no_control_characters(void **state) {
  (void)state;
  Fixture f;
  const char text[] = "bad\x1b[2Jthing\n\x7f\xc2\x9b\x9b!";
  open_fixture(&f, WIRE_PROMPT);
  WireHeader header = {.kind = WIRE_ERROR, .sender = 1, .count = 3, .bytes = sizeof text - 1};
  assert_int_equal(hand_over(&f, 1, header, (const uint8_t *)text), STATUS_OK);
  assert_string_equal(f.complaints[1], "bad [2Jthing     !");
  assert_int_equal(f.leader.epoch.complainer, 1);
  assert_int_equal(f.leader.epoch.fault, 2);
  header.count = NODES + 1;
  assert_int_equal(hand_over(&f, 1, header, (const uint8_t *)text), STATUS_BAD_VALUE);
}

/* Node 0 has closed its connections, as CANCEL told it, before node 1 has read it: the epoch's fault stays the one that was found. */
static void a_complaint_behind_cancel_blames_nobody(void **state) {
  (void)state;
  const char text[] = "node 0 closed the connection";
  const WireHeader header = {.kind = WIRE_ERROR, .sender = 1, .count = 1, .bytes = sizeof text - 1};
  for (int fault = -1; fault <= 2; fault += 3) {
    Fixture f;
    open_fixture(&f, WIRE_PROMPT);
    f.leader.epoch.fault = fault;
    f.devices[0].asked = f.devices[1].asked = true;
    assert_int_equal(hand_over(&f, 1, header, (const uint8_t *)text), STATUS_OK);
    assert_int_equal(f.leader.epoch.complainer, -1);
    assert_int_equal(f.leader.epoch.fault, fault);
    f.devices[1].asked = false; /* in the next one its word counts again */
    assert_int_equal(hand_over(&f, 1, header, (const uint8_t *)text), STATUS_OK);
    assert_int_equal(f.leader.epoch.complainer, 1);
    assert_int_equal(f.leader.epoch.fault, 0);
  }
}

/* Without device 1 the nodes are numbered otherwise; users know devices. */
static void a_complaint_is_told_in_the_users_numbers(void **state) {
  (void)state;
  Fixture f;
  const char text[] = "node 1 did not answer within 5 s";
  open_fixture(&f, WIRE_PROMPT);
  f.leader.epoch.nodes = 2;
  f.device_of[1] = 2;
  f.devices[1] = (LeaderDevice){.state = DEVICE_LOST, .forked = true, .node = -1};
  f.devices[2].node = 1;
  WireHeader header = {.kind = WIRE_ERROR, .sender = 0, .count = 2, .bytes = sizeof text - 1};
  assert_int_equal(hand_over(&f, 0, header, (const uint8_t *)text), STATUS_OK);
  assert_int_equal(leader_epoch_recover(&f.leader, STATUS_PEER), STATUS_PEER);
  assert_string_equal(status_message(), "node 2 (pid 103) did not answer within 5 s (reported by node 0)");
}

static size_t write_message(uint8_t *to, WireHeader header, const void *payload) {
  wire_pack(&header, to);
  memcpy(to + WIRE_HEADER, payload, header.bytes);
  return WIRE_HEADER + (size_t)header.bytes;
}

/* A token and the complaint behind it are read in one step: the token is given out, and only then is the request a failure. */
static void what_came_before_a_complaint_counts(void **state) {
  (void)state;
  const uint8_t id[4] = {7};
  const char text[] = "out of numbers";
  uint8_t bytes[256];
  int pair[2];
  Connection *connections[NODES];
  Fixture f;
  open_fixture(&f, WIRE_PROMPT);
  ConnectionSink sink = leader_requests_sink;
  sink.context = &f.leader;
  sink.max_payload = WIRE_TEXT;
  for (int d = 0; d < NODES; d++) {
    connections[d] = &f.devices[d].connection;
    connection_init(connections[d]);
  }
  assert_int_equal(connection_pair(pair), STATUS_OK);
  assert_int_equal(connection_open(connections[2], pair[0]), STATUS_OK);
  connection_receive(connections[2], 2, &sink);
  f.leader.epoch.connections = connections;
  f.leader.options.timeout = 10;
  size_t size = write_message(bytes, (WireHeader){.kind = WIRE_TOKEN, .sender = 2, .request = 1, .count = 1, .bytes = 4}, id);
  size += write_message(bytes + size, (WireHeader){.kind = WIRE_ERROR, .sender = 2, .request = 1, .bytes = sizeof text - 1}, text);
  assert_int_equal(write(pair[1], bytes, size), size);

  int32_t made = 0;
  bool more = false;
  assert_int_equal(leader_text_next(&f.leader, &made, &more), STATUS_OK);
  assert_true(more && made == 7);
  assert_int_equal(leader_text_next(&f.leader, &made, &more), STATUS_PEER);
  assert_string_equal(status_message(), "node 2 (pid 103): out of numbers");
  connection_close(connections[2]);
  close(pair[1]);
}

static void say(int fd, WireHeader header) {
  uint8_t bytes[WIRE_HEADER];
  wire_pack(&header, bytes);
  assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
}

/* Node 2 owes its part of a prompt, the others have done theirs, and node 0 goes on decoding: that is no sign of life of node 2, to which
 * drafts are sent besides. As long as it shows progress it has time. */
static void whoever_owes_a_prompt_shows_progress_itself(void **state) {
  (void)state;
  enum { HOME = 2 };
  const double timeout = 0.2, progresses = 1.6; /* the leader adds a second */
  Fixture f;
  int pair[NODES][2];
  Connection *connections[NODES];
  uint8_t draft[WIRE_HEADER], taken[4 * WIRE_HEADER];
  open_fixture(&f, WIRE_SEQUENCE);
  ConnectionSink sink = leader_requests_sink;
  sink.context = &f.leader;
  sink.max_payload = WIRE_TEXT;
  for (int d = 0; d < NODES; d++) {
    connections[d] = &f.devices[d].connection;
    assert_int_equal(connection_pair(pair[d]), STATUS_OK);
    assert_int_equal(connection_open(connections[d], pair[d][0]), STATUS_OK);
    connection_receive(connections[d], d, &sink);
    f.arrived[d] = d != HOME;
  }
  f.leader.epoch.connections = connections;
  f.leader.setup.sequences = 1;
  f.leader.options.timeout = timeout;
  wire_pack(&(WireHeader){.kind = WIRE_DRAFT, .sender = WIRE_LEADER}, draft);
  const double start = clock_now();
  double last = start;
  Status status = STATUS_OK;
  while (status == STATUS_OK && clock_now() < start + 8) {
    say(pair[0][1], (WireHeader){.kind = WIRE_PROGRESS, .sender = 0, .request = 2});
    if (clock_now() < start + progresses) {
      say(pair[HOME][1], (WireHeader){.kind = WIRE_PROGRESS, .sender = HOME, .request = 1});
      last = clock_now();
    }
    assert_int_equal(connection_send(connections[HOME], draft, sizeof draft), STATUS_OK);
    status = leader_epoch_poll(&f.leader, -1, 0.05);
    (void)!recv(pair[HOME][1], taken, sizeof taken, MSG_DONTWAIT); /* as the system of a process that hangs does */
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  assert_int_equal(status, STATUS_TIMEOUT);
  assert_string_equal(status_message(), "node 2 (pid 103) did not answer within 0.2 s; --timeout gives it longer");
  assert_int_equal(f.leader.epoch.fault, HOME);
  assert_true(clock_now() - last > timeout + 1 && last > start + timeout + 1);
  for (int d = 0; d < NODES; d++) {
    connection_close(connections[d]);
    close(pair[d][1]);
  }
}

static void what_no_node_says(void **state) {
  (void)state;
  Fixture f;
  const uint8_t kinds[] = {WIRE_CLASSIFY, WIRE_WELCOME, WIRE_BYE, WIRE_PROMPT, WIRE_SCORE, WIRE_LAST, WIRE_STOP};
  open_fixture(&f, WIRE_PROMPT);
  for (size_t i = 0; i < sizeof kinds; i++)
    assert_int_equal(hand_over(&f, 1, (WireHeader){.kind = kinds[i], .sender = 1, .request = 1}, NULL), STATUS_BAD_VALUE);
  assert_int_equal(hand_over(&f, 1, (WireHeader){.kind = WIRE_PROGRESS, .sender = 1, .block = 3, .request = 1}, NULL), STATUS_BAD_VALUE);
  assert_int_equal(hand_over(&f, 1, (WireHeader){.kind = WIRE_PROGRESS, .sender = 1, .block = 2, .request = 1}, NULL),
                   STATUS_OK); /* head */
  assert_int_equal(hand_over(&f, 1, (WireHeader){.kind = WIRE_PROGRESS, .sender = 1, .block = 1, .request = 1}, NULL), STATUS_OK);
}

/* WELCOME once, READY of this epoch once, CANCELLED of those who were asked. */
static void what_a_device_says_of_itself(void **state) {
  (void)state;
  Fixture f;
  Welcome right = {.fingerprints = {7, 8, 0}, .name = "board"};
  Welcome other = right;
  uint8_t bytes[WELCOME_BYTES];
  const WireHeader welcome = {.kind = WIRE_WELCOME, .bytes = WELCOME_BYTES}, ready = {.kind = WIRE_READY, .sender = 1, .count = 4};
  WireHeader early = ready;
  open_fixture(&f, WIRE_PROMPT);
  f.leader.membership.fingerprints = &right.fingerprints;
  hello_welcome(byte_cursor_to(bytes), &right);
  assert_int_equal(hand_over(&f, 1, welcome, bytes), STATUS_BAD_VALUE); /* it is in the cluster already */
  f.devices[1].state = DEVICE_GREETED;
  assert_int_equal(hand_over(&f, 1, ready, NULL), STATUS_BAD_VALUE);
  assert_int_equal(hand_over(&f, 1, welcome, bytes), STATUS_OK);
  assert_int_equal(f.devices[1].state, DEVICE_HERE);
  assert_string_equal(f.devices[1].name, "board");
  early.count = 3;
  assert_int_equal(hand_over(&f, 1, early, NULL), STATUS_BAD_VALUE);
  assert_int_equal(hand_over(&f, 1, ready, NULL), STATUS_OK);
  assert_int_equal(f.devices[1].state, DEVICE_READY);
  assert_int_equal(hand_over(&f, 1, ready, NULL), STATUS_BAD_VALUE);
  assert_int_equal(hand_over(&f, 1, (WireHeader){.kind = WIRE_CANCELLED, .sender = 1}, NULL), STATUS_BAD_VALUE); /* not asked */
  f.devices[1].asked = true;
  assert_int_equal(hand_over(&f, 1, (WireHeader){.kind = WIRE_CANCELLED, .sender = 1}, NULL), STATUS_OK);
  assert_false(f.devices[1].asked);
  assert_int_equal(hand_over(&f, 1, (WireHeader){.kind = WIRE_CANCELLED, .sender = 1}, NULL), STATUS_BAD_VALUE); /* once */
  f.devices[2].state = DEVICE_GREETED;
  other.fingerprints.codebook = 9;
  hello_welcome(byte_cursor_to(bytes), &other);
  assert_int_equal(hand_over(&f, 2, welcome, bytes), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "another codebook: 0000000000000009 there, 0000000000000008 here"));
  assert_true(f.devices[2].refused);
}

/* A worker that is not in the cluster yet concerns itself alone. */
static void a_worker_that_is_busy_or_refuses(void **state) {
  (void)state;
  Fixture f;
  const uint8_t text[] = "is busy with another leader";
  WireHeader busy = {.kind = WIRE_BUSY, .count = 2, .bytes = sizeof text - 1};
  open_fixture(&f, WIRE_PROMPT);
  f.devices[1].state = DEVICE_GREETED;
  assert_int_equal(hand_over(&f, 1, busy, text), STATUS_OK);
  assert_int_equal(f.devices[1].place, 2);
  busy.count = 0;
  assert_int_equal(hand_over(&f, 1, busy, text), STATUS_BAD_VALUE);
  assert_string_equal(status_message(), "is busy with another leader");
  assert_false(f.devices[1].refused);
  assert_int_equal(hand_over(&f, 1, (WireHeader){.kind = WIRE_REFUSE, .bytes = sizeof text - 1}, text), STATUS_BAD_VALUE);
  assert_true(f.devices[1].refused);
  assert_int_equal(f.leader.epoch.complainer, -1);
}

/* Its count is a place in a queue, and names no node. */
static void a_device_that_takes_part_is_not_busy(void **state) {
  (void)state;
  Fixture f;
  const DeviceState states[] = {DEVICE_HERE, DEVICE_READY};
  open_fixture(&f, WIRE_PROMPT);
  for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
    for (int node = -1; node <= 1; node += 2) { /* of the epoch, or between two of them */
      f.devices[1].state = states[i];
      f.devices[1].node = node;
      for (uint32_t place = 0; place <= 1000000; place += 1000000)
        assert_int_equal(hand_over(&f, 1, (WireHeader){.kind = WIRE_BUSY, .sender = 1, .count = place}, NULL), STATUS_BAD_VALUE);
      assert_true(f.leader.epoch.complainer == -1 && f.leader.epoch.fault == -1 && f.devices[1].place == 0);
    }
  }
}

/* ---- numbers that cannot be */

/* Labels of 5 tokens, of which 3 count: nodes 0 and 1 have two tokens each, node 2 one. */
static void open_answers(Fixture *f, uint8_t kind, uint8_t message[256]) {
  static int64_t counts[NODES] = {2, 2, 1};
  static RequestDecoding decoding[NODES];
  open_fixture(f, kind);
  memset(message, 0, 256);
  request_pack_ids((const int32_t[]){1, 2, 3, 4, 5}, 5, message + WIRE_HEADER);
  request_pack_ids((const int32_t[]){-1, 2, 3, -1, 5}, 5, message + WIRE_HEADER + 20);
  f->leader.queue.requests[1].message = message;
  f->leader.queue.requests[1].counts = counts;
  f->leader.decoding = decoding;
}

static Status take_scores(const RequestScore sent[NODES]) {
  Fixture f;
  uint8_t message[256];
  LeaderAnswer answer = {.batch = 1};
  open_answers(&f, WIRE_SCORE, message);
  for (int d = 0; d < NODES; d++)
    request_score(byte_cursor_to(f.results[d] + WIRE_STATISTICS), &(RequestScore){sent[d].loss, sent[d].counted, sent[d].correct});
  return leader_requests_take(&f.leader, &f.leader.queue.requests[1], &answer);
}

static void sums_of_labels_must_be_possible(void **state) {
  (void)state;
  const struct {
    RequestScore nodes[NODES];
    Status status;
    const char *message;
  } rows[] = {
      {{{3, 1, 0}, {4, 1, 1}, {5, 1, 1}}, STATUS_OK, NULL},
      {{{3, 1, 0}, {4, 1, 1}, {0, 0, 0}}, STATUS_BAD_VALUE, "counted 2 labels together; 3 were sent"},
      {{{3, 2, 0}, {4, 1, 1}, {5, 1, 1}}, STATUS_BAD_VALUE, "counted 4 labels together"},
      {{{3, 1, 2}, {4, 1, 1}, {5, 1, 1}}, STATUS_BAD_VALUE, "node 0 (pid 101): answered with 2 right of 1"},
      {{{3, UINT64_MAX, 0}, {4, 2, 1}, {5, 2, 1}}, STATUS_BAD_VALUE, "node 0 (pid 101): counted"},
      {{{3, 1, 0}, {4, 0, 0}, {5, 2, 1}}, STATUS_BAD_VALUE, "node 2 (pid 103): counted 2 labels; it has 1 tokens"},
      {{{3, 1, 0}, {-4, 1, 1}, {5, 1, 1}}, STATUS_BAD_VALUE, "node 1 (pid 102): answered with 1 right of 1 tokens and a loss of -4"},
      {{{3, 1, 0}, {4, 1, 1}, {INFINITY, 1, 1}}, STATUS_NUMERIC, "node 2 (pid 103): the loss is not a finite number"},
      {{{NAN, 1, 0}, {4, 1, 1}, {5, 1, 1}}, STATUS_NUMERIC, "node 0"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Status status = take_scores(rows[i].nodes);
    if (status != rows[i].status) fail_msg("row %d: %s", (int)i, status_text(status));
    if (rows[i].message && !strstr(status_message(), rows[i].message)) fail_msg("'%s' lacks '%s'", status_message(), rows[i].message);
  }
}

static Status take_decodings(RequestDecoding decodings[NODES], int64_t made) {
  Fixture f;
  uint8_t message[256];
  LeaderAnswer answer = {.batch = 1};
  open_answers(&f, WIRE_PROMPT, message);
  f.leader.queue.made_count = made;
  for (int d = 0; d < NODES; d++) request_decoding(byte_cursor_to(f.results[d] + WIRE_STATISTICS), &decodings[d]);
  return leader_requests_take(&f.leader, &f.leader.queue.requests[1], &answer);
}

static void tokens_made_are_tokens_that_came(void **state) {
  (void)state;
  const RequestDecoding none = {.buffer_bytes = 9}, four = {.seconds = 1, .tokens = 4, .row_bytes = 5};
  RequestDecoding vast = four;
  assert_int_equal(take_decodings((RequestDecoding[]){none, none, four}, 4), STATUS_OK);
  assert_int_equal(take_decodings((RequestDecoding[]){none, none, four}, 3), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "node 2 (pid 103): says that it made 4 tokens; 3 came"));
  assert_int_equal(take_decodings((RequestDecoding[]){four, none, four}, 4), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "node 0"));
  vast.code_bytes = UINT64_MAX;
  assert_int_equal(take_decodings((RequestDecoding[]){none, none, vast}, 4), STATUS_BAD_VALUE);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_of_the_last_node_in_order),
                                     cmocka_unit_test(tokens_that_nobody_waits_for),
                                     cmocka_unit_test(results_have_the_length_of_their_request),
                                     cmocka_unit_test(a_complaint_shows_no_control_characters),
                                     cmocka_unit_test(a_complaint_behind_cancel_blames_nobody),
                                     cmocka_unit_test(a_complaint_is_told_in_the_users_numbers),
                                     cmocka_unit_test(what_came_before_a_complaint_counts),
                                     cmocka_unit_test(whoever_owes_a_prompt_shows_progress_itself),
                                     cmocka_unit_test(what_no_node_says),
                                     cmocka_unit_test(what_a_device_says_of_itself),
                                     cmocka_unit_test(a_worker_that_is_busy_or_refuses),
                                     cmocka_unit_test(a_device_that_takes_part_is_not_busy),
                                     cmocka_unit_test(sums_of_labels_must_be_possible),
                                     cmocka_unit_test(tokens_made_are_tokens_that_came)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
