/* Sums and joins over real sockets, each device a thread of this process: values and equal bits on all devices, also where some have no
 * rows; bytes as the formula says; what does not follow from what was agreed on, or is no number, is refused. */
#include "infer/cluster/connection.h"
#include "infer/cluster/peer_backend.h"
#include "infer/strategy/collective.h"
#include "infer/transport/packet.h"
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX = 4, STEPS = 4, WIDTH = 5, REQUESTS = 5 };

/* Of the largest request; the others have fewer rows, down to fewer than devices. */
static const ReduceStep largest[STEPS] = {{.sum = true, .samples = 1, .rows = 23, .width = WIDTH},
                                          {.samples = 3, .rows = 9, .width = 7},
                                          {.sum = true, .samples = 1, .rows = 23, .width = WIDTH},
                                          {.samples = 2, .rows = 11, .width = WIDTH}};

static void steps_of(uint32_t request, ReduceStep steps[STEPS]) {
  static const int64_t rows[REQUESTS][STEPS] = {{23, 9, 23, 11}, {1, 9, 23, 1}, {2, 1, 1, 3}, {23, 2, 1, 11}, {5, 9, 3, 2}};
  for (int i = 0; i < STEPS; i++) {
    steps[i] = largest[i];
    steps[i].rows = rows[(request - 1) % REQUESTS][i];
  }
}

/* Any number that depends on all of these. */
static real number_of(int node, uint32_t request, int step, int64_t i) {
  return (real)sin((double)(i + 1) * (1.3 + node) + 7.1 * (double)request + 3.7 * step);
}

typedef struct Side {
  int self, nodes, sockets[MAX];
  uint64_t dies; /* before this request; 0: never */
  TransportThread *transport;
  Collective collective;
  Arena *arena;
  Tape *tape;
  bool interrupted;
  Status status;
  int fault;
  char problem[256];
} Side;

static void open_side_with(Side *side, double timeout, const LinkOptions *links, Status (*open)(void *, Backend **), void *context) {
  CollectiveSetup setup = {.self = side->self, .nodes = side->nodes, .steps = STEPS, .max = largest};
  Reliability reliability = {.mode = RELIABILITY_STREAM, .timeout = timeout};
  TransportThreadSetup transport = {
      .transport.reliability = &reliability, .transport.timeout = timeout, .transport.links = links, .open = open, .open_context = context};
  assert_int_equal(collective_check(&setup), STATUS_OK);
  collective_transport(&setup, &transport.transport);
  assert_int_equal(transport_thread_start(&side->transport, &transport), STATUS_OK);
  setup.transport = side->transport;
  assert_int_equal(collective_init(&side->collective, &setup), STATUS_OK);
  side->arena = arena_new((size_t)1 << 24);
  side->tape = tape_new(side->arena);
  tape_record(side->tape, false);
}

static void open_side(Side *side, double timeout) {
  Connection *channels[MAX] = {0};
  for (int d = 0; d < side->nodes; d++) {
    if (d != side->self) assert_int_equal(connection_plain(&channels[d], side->sockets[d]), STATUS_OK);
  }
  /* 16 numbers per packet: messages of several */
  BackendPeers peers = {.self = side->self, .nodes = side->nodes, .channels = channels, .max_packet = PACKET_HEADER + 64};
  open_side_with(side, timeout, NULL, backend_open, &peers);
}

static void close_side(Side *side) {
  transport_thread_stop(side->transport);
  collective_release(&side->collective);
  tape_free(side->tape);
  arena_free(side->arena);
}

/* ---- one step, and what it must give */

static Status fail_step(Side *side, int step, const char *what) {
  return status_set(STATUS_NUMERIC, "step %d of request %u: %s", step, side->collective.request, what);
}

/* In the order of the devices, as everywhere. */
static Status run_sum(Side *side, uint32_t request, int step, const ReduceStep *s) {
  Tensor *x = tape_tensor(side->tape, 3, (int64_t[]){1, s->rows, s->width});
  for (int64_t i = 0; i < s->rows * s->width; i++) x->value[i] = number_of(side->self, request, step, i);
  TRY(side->collective.reduce.sum(&side->collective.reduce, side->tape, 0, 0, x));
  for (int64_t i = 0; i < s->rows * s->width; i++) {
    real sum = 0;
    for (int d = 0; d < side->nodes; d++) sum += number_of(d, request, step, i);
    if (x->value[i] != sum) return fail_step(side, step, "a sum is not right to the bit");
  }
  return STATUS_OK;
}

/* Number i of all [samples, rows, width] is anybody's the same. */
static Status run_gather(Side *side, uint32_t request, int step, const ReduceStep *s) {
  int64_t first = 0, own = s->rows / side->nodes + (side->self < s->rows % side->nodes);
  for (int d = 0; d < side->self; d++) first += s->rows / side->nodes + (d < s->rows % side->nodes);
  Tensor *x = tape_tensor(side->tape, 3, (int64_t[]){s->samples, own, s->width}), *all;
  for (int64_t i = 0; i < s->samples * own * s->width; i++) {
    int64_t b = i / (own * s->width), at = i % (own * s->width);
    x->value[i] = number_of(9, request, step, (b * s->rows + first) * s->width + at);
  }
  TRY(side->collective.reduce.gather(&side->collective.reduce, side->tape, 0, 0, x, s->rows, &all));
  for (int64_t i = 0; i < s->samples * s->rows * s->width; i++) {
    if (all->value[i] != number_of(9, request, step, i)) return fail_step(side, step, "a join is not right");
  }
  return STATUS_OK;
}

static Status run_request(Side *side, uint32_t request) {
  ReduceStep steps[STEPS];
  steps_of(request, steps);
  tape_clear(side->tape);
  TRY(collective_begin_request(&side->collective, request, steps));
  for (int i = 0; i < STEPS; i++) TRY(steps[i].sum ? run_sum(side, request, i, &steps[i]) : run_gather(side, request, i, &steps[i]));
  return STATUS_OK;
}

static Status run_requests(Side *side) {
  for (uint32_t request = 1; request <= 2 * REQUESTS && request != side->dies; request++) TRY(run_request(side, request));
  return STATUS_OK;
}

static void *run_side(void *argument) {
  Side *side = argument;
  side->status = run_requests(side);
  side->fault = side->collective.fault;
  snprintf(side->problem, sizeof side->problem, "%s", status_message());
  if (side->dies) { /* its streams end */
    transport_thread_stop(side->transport);
    side->transport = NULL;
  }
  return NULL;
}

static void join_sides(Side *sides, int nodes) {
  for (int i = 0; i < nodes; i++) {
    sides[i].self = i;
    sides[i].nodes = nodes;
    for (int j = 0; j < i; j++) {
      int pair[2];
      assert_int_equal(connection_pair(pair), STATUS_OK);
      sides[i].sockets[j] = pair[0];
      sides[j].sockets[i] = pair[1];
    }
  }
  for (int i = 0; i < nodes; i++) open_side(&sides[i], 20);
}

static void run_sides(Side *sides, int nodes) {
  pthread_t threads[MAX];
  for (int i = 0; i < nodes; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_side, &sides[i]), 0);
  for (int i = 0; i < nodes; i++) pthread_join(threads[i], NULL);
}

/* ---- what is right */

static int64_t share(int64_t rows, int nodes, int node) { return rows / nodes + (node < rows % nodes); }

/* The formula of collective.h. */
static uint64_t formula(int nodes, int self) {
  uint64_t bytes = 0;
  for (uint32_t request = 1; request <= 2 * REQUESTS; request++) {
    ReduceStep steps[STEPS];
    steps_of(request, steps);
    for (int i = 0; i < STEPS; i++) {
      int64_t own = share(steps[i].rows, nodes, self), numbers = own * (nodes - 1) + (steps[i].sum ? steps[i].rows - own : 0);
      bytes += (uint64_t)(4 * steps[i].samples * steps[i].width * numbers);
    }
  }
  return bytes;
}

static void all_hold_the_same_bits_and_send_what_the_formula_says(void **state) {
  (void)state;
  for (int nodes = 2; nodes <= MAX; nodes++) {
    Side sides[MAX] = {0};
    join_sides(sides, nodes);
    run_sides(sides, nodes);
    for (int i = 0; i < nodes; i++) {
      if (sides[i].status != STATUS_OK) fail_msg("node %d: %s", i, sides[i].problem);
      assert_true(transport_thread_state(sides[i].transport).payload_sent == formula(nodes, i));
      assert_int_equal(sides[i].fault, -1);
      assert_true(sides[i].collective.wait >= 0 && sides[i].collective.send >= 0);
    }
    for (int i = 0; i < nodes; i++) close_side(&sides[i]);
  }
}

/* ---- what goes wrong */

static void one_that_is_gone_is_named(void **state) {
  (void)state;
  Side sides[3] = {{.dies = 0}, {.dies = 3}, {.dies = 0}};
  join_sides(sides, 3);
  run_sides(sides, 3);
  assert_int_equal(sides[1].status, STATUS_OK);
  for (int i = 0; i < 3; i += 2) {
    assert_int_equal(sides[i].status, STATUS_PEER);
    assert_int_equal(sides[i].fault, 1);
    assert_non_null(strstr(sides[i].problem, "node 1"));
  }
  for (int i = 0; i < 3; i++) close_side(&sides[i]);
}

static Status interrupt(void *context) {
  ((Side *)context)->interrupted = true;
  return status_set(STATUS_INTERRUPTED, "not wanted any more");
}

static void waiting_can_be_interrupted(void **state) {
  (void)state;
  Side sides[2] = {0};
  join_sides(sides, 2);
  sides[0].collective.check = interrupt;
  sides[0].collective.check_context = &sides[0];
  assert_int_equal(run_request(&sides[0], 1), STATUS_INTERRUPTED);
  assert_true(sides[0].interrupted);
  for (int i = 0; i < 2; i++) close_side(&sides[i]);
}

/* A backend whose peers are silent: notes to which one the first packet goes. */
typedef struct Recorder {
  Backend backend;
  atomic_int first; /* -1: none was sent */
} Recorder;

static Status record_send(Backend *self, int peer, const uint8_t *packet, size_t bytes, bool *taken) {
  int none = -1;
  (void)packet, (void)bytes;
  *taken = true;
  atomic_compare_exchange_strong(&((Recorder *)self)->first, &none, peer);
  return STATUS_OK;
}

static Status record_receive(Backend *self, BackendTake *take, void *context) {
  (void)self, (void)take, (void)context;
  return STATUS_OK;
}

static int record_polls(Backend *self, struct pollfd *polls, int room) {
  (void)self, (void)polls, (void)room;
  return 0;
}

static bool record_pending(const Backend *self) {
  (void)self;
  return false;
}

static Status record_peer_status(const Backend *self, int peer, const char **why) {
  (void)self, (void)peer, (void)why;
  return STATUS_OK;
}

static void record_free(Backend *self) { (void)self; }

static Status open_recorder(void *context, Backend **backend) {
  *backend = &((Recorder *)context)->backend;
  return STATUS_OK;
}

static Status stop_when_sent(void *context) {
  return atomic_load(&((Recorder *)context)->first) < 0 ? STATUS_OK : status_set(STATUS_INTERRUPTED, "a packet was sent");
}

/* As the plan and the simulation assume (schedule_reduce): devices that send at once do not all begin with the same one. The link sends
 * packets one after another, the three of the first message within half a second. */
static void the_next_device_is_sent_its_rows_first(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 4000, .topology = LINK_SWITCH};
  Recorder recorder = {.first = -1,
                       .backend = {.max_packet = PACKET_HEADER + 64,
                                   .reliable = true,
                                   .ordered = true,
                                   .send = record_send,
                                   .receive = record_receive,
                                   .polls = record_polls,
                                   .pending = record_pending,
                                   .peer_status = record_peer_status,
                                   .free = record_free}};
  Side side = {.self = 1, .nodes = 3};
  open_side_with(&side, 20, &links, open_recorder, &recorder);
  side.collective.check = stop_when_sent;
  side.collective.check_context = &recorder;
  assert_int_equal(run_request(&side, 1), STATUS_INTERRUPTED);
  close_side(&side);
  assert_int_equal(atomic_load(&recorder.first), 2);
}

static void another_step_than_was_said_is_refused(void **state) {
  (void)state;
  Side sides[2] = {0};
  ReduceStep steps[STEPS], larger[STEPS];
  join_sides(sides, 2);
  Side *side = &sides[0];
  steps_of(1, steps);
  assert_int_equal(collective_begin_request(&side->collective, 1, steps), STATUS_OK);
  Tensor *x = tape_tensor(side->tape, 3, (int64_t[]){1, 22, WIDTH}), *all;
  assert_int_equal(side->collective.reduce.sum(&side->collective.reduce, side->tape, 0, 0, x), STATUS_BAD_VALUE);
  assert_int_equal(side->collective.reduce.gather(&side->collective.reduce, side->tape, 0, 0, x, 44, &all), STATUS_BAD_VALUE);
  memcpy(larger, steps, sizeof larger);
  larger[2].rows = 200;
  assert_int_equal(collective_begin_request(&side->collective, 2, larger), STATUS_BAD_VALUE);
  for (int i = 0; i < 2; i++) close_side(&sides[i]);
}

/* One packet from a peer that is this test. */
static void write_packet(int socket, const Packet *packet, const uint8_t *payload, size_t bytes) {
  uint8_t record[4 + PACKET_HEADER + 256];
  wire_put_u32(record, (uint32_t)(PACKET_HEADER + bytes));
  packet_pack(packet, record + 4);
  memcpy(record + 4 + PACKET_HEADER, payload, bytes);
  assert_int_equal(write(socket, record, 4 + PACKET_HEADER + bytes), (ssize_t)(4 + PACKET_HEADER + bytes));
}

/* Device 1 sends device 0 its 12 rows of the first sum (60 numbers in 4 packets of 15): `first` is the first packet. */
static void expect_refusal(const Packet *first, size_t bytes, bool finite, const char *what) {
  Side side = {.self = 0, .nodes = 2};
  uint8_t payload[64] = {0};
  int pair[2];
  assert_int_equal(connection_pair(pair), STATUS_OK);
  side.sockets[1] = pair[0];
  open_side(&side, 20);
  if (!finite) memset(payload, 0xff, sizeof payload);
  write_packet(pair[1], first, payload, bytes);
  for (uint16_t i = 1; i < 4; i++) {
    Packet packet = *first;
    packet.index = i;
    write_packet(pair[1], &packet, payload, bytes);
  }
  assert_int_equal(run_request(&side, 1), STATUS_BAD_VALUE);
  if (!strstr(status_message(), what) || !strstr(status_message(), "node 1")) fail_msg("\"%s\" lacks \"%s\"", status_message(), what);
  assert_int_equal(side.collective.fault, 1);
  close_side(&side);
  close(pair[1]);
}

static void hostile_packets_are_refused(void **state) {
  (void)state;
  const Packet right = {.request = 1, .type = PACKET_RAW, .count = 4};
  Packet other = right;
  expect_refusal(&right, 60, false, "not finite");
  expect_refusal(&right, 56, true, "56 bytes");
  other.type = PACKET_CODES;
  expect_refusal(&other, 60, true, "type 0");
  other = right, other.part = 1; /* rows that device 1 itself adds up */
  expect_refusal(&other, 60, true, "of 0 tokens");
  other = right, other.site = 2;
  expect_refusal(&other, 60, true, "site 2");
  other = right, other.block = 2;
  expect_refusal(&other, 60, true, "block 2");
}

static void more_than_packets_can_number_is_refused(void **state) {
  (void)state;
  assert_int_equal(collective_check(&(CollectiveSetup){.nodes = COLLECTIVE_NODES, .steps = COLLECTIVE_STEPS}), STATUS_OK);
  assert_int_equal(collective_check(&(CollectiveSetup){.nodes = COLLECTIVE_NODES + 1, .steps = 1}), STATUS_UNSUPPORTED);
  assert_int_equal(collective_check(&(CollectiveSetup){.nodes = 2, .steps = COLLECTIVE_STEPS + 1}), STATUS_UNSUPPORTED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_hold_the_same_bits_and_send_what_the_formula_says),
      cmocka_unit_test(one_that_is_gone_is_named),
      cmocka_unit_test(waiting_can_be_interrupted),
      cmocka_unit_test(the_next_device_is_sent_its_rows_first),
      cmocka_unit_test(another_step_than_was_said_is_refused),
      cmocka_unit_test(hostile_packets_are_refused),
      cmocka_unit_test(more_than_packets_can_number_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
