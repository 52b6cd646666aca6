/* The simulated network: closed forms of latency in a mesh, through a switch and over a shared medium; the recurrence of a block in parts;
 * what each kind of reliability makes of lost packets; timelines that cannot end. */
#include "base/order.h"
#include "infer/sim/simulate.h"
#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { MAX = 8 };
static const SimOptions PLAIN = {.scale = 1};

typedef struct Case {
  Timeline device[MAX];
  int count;
} Case;

static void near(double a, double b) {
  if (!(fabs(a - b) <= 1e-9)) fail_msg("%.12g is not %.12g", a, b);
}

static uint64_t all_but(int self, int count) { return ((1ull << count) - 1) & ~(1ull << self); }

static void add(Case *c, int device, Event event) { assert_int_equal(timeline_add(&c->device[device], &event), STATUS_OK); }
static void compute(Case *c, int device, double seconds) { add(c, device, (Event){.kind = EVENT_COMPUTE, .seconds = seconds}); }
static void send_to(Case *c, int device, int block, int part, uint32_t packets, uint32_t bytes, uint64_t peers) {
  add(c, device,
      (Event){.kind = EVENT_SEND, .block = (uint8_t)block, .part = (uint8_t)part, .packets = packets, .bytes = bytes, .peers = peers});
}
static void await(Case *c, int device, int block, int part, uint64_t peers) {
  add(c, device, (Event){.kind = EVENT_WAIT, .block = (uint8_t)block, .part = (uint8_t)part, .peers = peers});
}
static void release(Case *c) {
  for (int d = 0; d < MAX; d++) timeline_release(&c->device[d]);
}
static SimResult run(const Case *c, const LinkOptions *links, const SimOptions *options) {
  SimResult result;
  if (simulate_run(c->device, c->count, links, options, &result) != STATUS_OK) fail_msg("%s", status_message());
  return result;
}

/* Every device: compute a, one group to all, compute b, wait for all, compute c. */
static Case exchange(int count, double a, double b, double after, uint32_t packets, uint32_t bytes) {
  Case c = {.count = count};
  for (int d = 0; d < count; d++) {
    compute(&c, d, a);
    send_to(&c, d, 0, 0, packets, bytes, all_but(d, count));
    compute(&c, d, b);
    await(&c, d, 0, 0, all_but(d, count));
    compute(&c, d, after);
  }
  return c;
}

static void a_mesh_takes_one_copy_of_a_link(void **state) {
  (void)state;
  for (int count = 2; count <= MAX; count++) {
    Case c = exchange(count, 0.01, 0.002, 0.03, 4, 1000);
    const LinkOptions links = {.bits_per_second = 1e6, .latency = 0.005, .overhead = 50};
    SimResult result = run(&c, &links, &PLAIN);
    near(result.latency, 0.01 + 8 * 1200 / 1e6 + 0.005 + 0.03);
    for (int d = 0; d < count; d++) {
      const SimDevice *device = &result.device[d];
      near(device->compute, 0.042);
      near(device->wait, 0.0096 + 0.005 - 0.002);
      near(device->span, 0.0146);
      near(device->carried, 8 * 1200 / 1e6);
      near(simulate_hidden(device), 0.002 / 0.0146);
      assert_int_equal(device->bytes_sent, 1000 * (count - 1));
    }
    release(&c);
  }
}

/* What is sent to a device that computes passes its port meanwhile, whichever blocks it belongs to. */
static void blocks_without_messages_do_not_count(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 1e6, .topology = LINK_SWITCH};
  for (int block = 0; block < 12; block += 5) {
    Case c = {.count = 3};
    for (int d = 0; d < 2; d++) send_to(&c, d, block, d, 4, 10000, 1 << 2);
    compute(&c, 2, 1);
    for (int d = 0; d < 2; d++) await(&c, 2, block, d, 1ull << d);
    SimResult result = run(&c, &links, &PLAIN);
    near(result.latency, 1);
    assert_true(isnan(simulate_hidden(&result.device[2]))); /* it sends nothing */
    release(&c);
  }
}

static void the_last_device_makes_the_latency(void **state) {
  (void)state;
  Case c = {.count = 3};
  for (int d = 0; d < 3; d++) compute(&c, d, d == 1 ? 0.03 : 0.01);
  SimResult result = run(&c, &(LinkOptions){0}, &PLAIN);
  assert_ptr_equal(simulate_last(&result, 3), &result.device[1]);
  near(simulate_last(&result, 3)->end, result.latency);
  assert_ptr_equal(simulate_last(&result, 1), &result.device[0]);
  release(&c);
}

static void computing_hides_sending(void **state) {
  (void)state;
  Case c = exchange(2, 0.01, 0.02, 0.03, 4, 1000);
  const LinkOptions links = {.bits_per_second = 1e6};
  SimResult result = run(&c, &links, &PLAIN);
  near(result.latency, 0.06);
  near(result.device[0].wait, 0);
  near(simulate_hidden(&result.device[0]), 1);
  result = run(&c, &links, &(SimOptions){.scale = 0.1}); /* computing alone is scaled */
  near(result.latency, 0.001 + 0.008 + 0.003);
  result = run(&c, &(LinkOptions){0}, &PLAIN); /* without limits */
  near(result.latency, 0.06);
  release(&c);
}

static void a_switch_takes_a_copy_for_each_receiver(void **state) {
  (void)state;
  for (int count = 2; count <= MAX; count++) {
    Case c = exchange(count, 0.01, 0, 0, 3, 999);
    const LinkOptions links = {.bits_per_second = 1e6, .latency = 0.001, .overhead = 67, .topology = LINK_SWITCH};
    SimResult result = run(&c, &links, &PLAIN);
    near(result.latency, 0.01 + (count - 1) * 8 * 1200 / 1e6 + 0.001);
    for (int d = 0; d < count; d++) near(result.device[d].carried, (count - 1) * 8 * 1200 / 1e6);
    release(&c);
  }
}

static void many_senders_share_the_way_in(void **state) {
  (void)state;
  Case c = {.count = 4};
  for (int d = 1; d < 4; d++) send_to(&c, d, 0, 0, 1, 1000, 1);
  await(&c, 0, 0, 0, 14);
  const LinkOptions links = {.bits_per_second = 1e6, .topology = LINK_SWITCH};
  SimResult result = run(&c, &links, &PLAIN);
  near(result.latency, 3 * 0.008);
  near(result.device[0].carried, 3 * 0.008);
  const LinkOptions mesh = {.bits_per_second = 1e6};
  result = run(&c, &mesh, &PLAIN);
  near(result.latency, 0.008);
  near(result.device[0].carried, 0.008); /* it only hears */
  release(&c);
}

static void all_share_the_air(void **state) {
  (void)state;
  for (int count = 2; count <= MAX; count++) {
    Case c = exchange(count, 0.01, 0, 0, 2, 250);
    const LinkOptions links = {.bits_per_second = 1e6, .latency = 0.001, .topology = LINK_SHARED};
    SimResult result = run(&c, &links, &PLAIN);
    near(result.latency, 0.01 + count * (count - 1) * 0.002 + 0.001);
    near(result.device[0].carried, count * (count - 1) * 0.002);
    release(&c);
  }
}

/* Everybody sends device 0 a packet of 8,000 bits, and device 0 one to everybody. */
static Case star(void) {
  Case c = {.count = 4};
  send_to(&c, 0, 0, 0, 1, 1000, 14);
  await(&c, 0, 0, 0, 14);
  for (int d = 1; d < 4; d++) {
    send_to(&c, d, 0, 0, 1, 1000, 1);
    await(&c, d, 0, 0, 1);
  }
  return c;
}

static void each_device_has_ways_of_its_own(void **state) {
  (void)state;
  const LinkEnd ends[] = {{.out = 1e6, .in = 2e6}, {.out = 8e6, .in = 5e5, .latency = 0.003}, {.out = 1e5, .in = 8e6}, {.in = 8e6}};
  const SimOptions uneven = {.scale = 1, .ends = ends};
  const LinkOptions mesh = {0}, through = {.topology = LINK_SWITCH};
  Case c = star();
  SimResult result = run(&c, &mesh, &uneven);
  near(result.device[1].end, 8e3 / 5e5 + 0.003); /* the receiver's way in is the narrower one */
  near(result.device[2].end, 8e3 / 1e6);         /* the sender's way out */
  near(result.device[0].end, 8e3 / 1e5);         /* device 2 sends slowly */
  result = run(&c, &through, &uneven);
  near(result.device[1].end, 8e3 / 5e5 + 0.003);
  near(result.device[2].end, 2 * 8e3 / 1e6); /* behind the copy for device 1 */
  near(result.device[3].end, 3 * 8e3 / 1e6);
  near(result.device[0].end, 8e3 / 1e5);
  const LinkOptions slower = {.bits_per_second = 5e4}; /* the options are a limit still */
  near(run(&c, &slower, &uneven).latency, 8e3 / 5e4 + 0.003);
  release(&c);
}

/* The first question leaves when an answer to the one before could have come: later on the longer link. */
static void a_long_way_is_known_to_who_asks(void **state) {
  (void)state;
  const LinkEnd ends[] = {{.latency = 0.001}, {.latency = 0.05}};
  const Reliability rules = {.mode = RELIABILITY_RETRANSMIT, .timeout = 60};
  const SimOptions options = {.scale = 1, .ends = ends, .reliability = &rules};
  Case c = exchange(2, 0.01, 0, 0, 2, 1000);
  SimResult result = run(&c, &(LinkOptions){0}, &options);
  near(result.latency, 0.01 + 0.05);
  assert_int_equal(result.device[0].bytes_sent, 1000); /* no question */
  release(&c);
}

static void a_trace_counts_from_the_start(void **state) {
  (void)state;
  LinkTracePoint points[] = {{0, 1e6}, {10, 5e5}};
  const LinkOptions links = {.trace = {points, 2}};
  Case c = exchange(2, 0.01, 0, 0, 1, 1000);
  near(run(&c, &links, &PLAIN).latency, 0.018);
  near(run(&c, &links, &(SimOptions){.scale = 1, .start = 20}).latency, 0.026);
  near(run(&c, &links, &(SimOptions){.scale = 1, .start = 9.986}).latency, 0.01 + 0.004 + 0.008);
  release(&c);
}

/* ---- parts, against the recurrence that describes them */

typedef struct Parts {
  int count, parts, blocks;
  double qkv, project, tail, assign; /* seconds; the last three of a part */
  uint32_t packets, bytes;
  double rate;
  size_t overhead;
} Parts;

static Case in_parts(const Parts *p) {
  Case c = {.count = p->count};
  for (int d = 0; d < p->count; d++)
    for (int l = -1; l < p->blocks; l++) {
      if (l >= 0) compute(&c, d, p->qkv);
      for (int s = 0; l >= 0 && s < p->parts; s++) {
        await(&c, d, l, s, all_but(d, p->count));
        compute(&c, d, p->project);
      }
      for (int s = 0; s < p->parts; s++) {
        if (l >= 0) compute(&c, d, p->tail);
        if (l + 1 == p->blocks) continue;
        compute(&c, d, p->assign);
        send_to(&c, d, l + 1, s, p->packets, p->bytes, all_but(d, p->count));
      }
    }
  return c;
}

/* All devices are alike, so that one stands for all: cpu is its time, link that of its links. */
static double recurrence(const Parts *p, int copies) {
  double arrive[16], next[16], cpu = 0, link = 0, bits = 8.0 * copies * (p->bytes + p->packets * p->overhead) / p->rate;
  for (int s = 0; s < p->parts; s++) {
    cpu += p->assign;
    arrive[s] = link = fmax(cpu, link) + bits;
  }
  for (int l = 0; l < p->blocks; l++) {
    cpu += p->qkv;
    for (int s = 0; s < p->parts; s++) cpu = fmax(cpu, arrive[s]) + p->project;
    for (int s = 0; s < p->parts; s++) {
      cpu += p->tail;
      if (l + 1 == p->blocks) continue;
      cpu += p->assign;
      next[s] = link = fmax(cpu, link) + bits;
    }
    memcpy(arrive, next, sizeof next);
  }
  return cpu;
}

static void blocks_in_parts_follow_the_recurrence(void **state) {
  (void)state;
  static const Parts cases[] = {{4, 1, 12, .4e-3, .01e-3, 1.9e-3, .2e-3, 1, 320, 10e6, 78},
                                {4, 4, 12, .4e-3, .2e-3, .5e-3, .05e-3, 2, 1280, 10e6, 78},
                                {4, 8, 12, .4e-3, .1e-3, .3e-3, .02e-3, 1, 1280, 20e6, 78},
                                {8, 2, 3, .2e-3, .1e-3, .6e-3, .1e-3, 3, 2000, 1e6, 66},
                                {2, 16, 24, 1e-3, 2e-3, .5e-3, .3e-3, 5, 9999, 1e8, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Case c = in_parts(&cases[i]);
    LinkOptions links = {.bits_per_second = cases[i].rate, .overhead = cases[i].overhead};
    SimResult result = run(&c, &links, &PLAIN);
    near(result.latency, recurrence(&cases[i], 1));
    const double bits = 8.0 * (cases[i].bytes + cases[i].packets * cases[i].overhead);
    near(result.device[0].carried, cases[i].blocks * cases[i].parts * bits / cases[i].rate); /* pauses between the parts left out */
    links.topology = LINK_SWITCH;
    near(run(&c, &links, &PLAIN).latency, recurrence(&cases[i], cases[i].count - 1));
    release(&c);
  }
}

/* ---- loss */

/* How many of `count` packets of a link are lost, drawn as the simulation must have drawn them. */
static int fates(const LinkOptions *links, int from, int to, int count, bool *lost) {
  LinkModel link;
  int sum = 0;
  link_model_init(&link, links, from, to);
  for (int i = 0; i < count; i++) sum += lost[i] = link_model_loses(&link);
  return sum;
}

/* The next question of `by` to `whom`, or answer the other way round, is not lost: such packets have chances of their own. */
static bool heard(const LinkOptions *links, int from, int to, int nodes) {
  LinkModel link;
  link_model_init(&link, links, nodes + from, nodes + to);
  return !link_model_loses(&link);
}

/* Three times the transport's estimate of the time between packets, of which one leaves every `every` seconds: a silence that means loss.
 */
static double grace_of(const bool *lost, int count, double every) {
  double gap = 0;
  for (int i = 0, last = -1; i < count; i++) {
    if (lost[i]) continue;
    if (last >= 0) gap = policy_smooth(gap, (i - last) * every);
    last = i;
  }
  return 3 * gap;
}

/* A group that has not begun is asked for after 2 round trips, not at once, and 2 round trips after each answer, which takes one; each
 * question and answer takes the link's rate, headers and all. */
static void questions_take_their_time(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 1e6, .latency = 0.004, .overhead = 66};
  const Reliability rules = {.mode = RELIABILITY_DEADLINE, .timeout = 10};
  const double question = 8 * (12 + 66) / 1e6, answer = 8 * (16 + 66) / 1e6, round_trip = 0.008 + question + answer;
  const double left = 0.09, came = left + 8 * 316 / 1e6 + 0.004;
  int asked = 1 + (int)floor((came - 2 * round_trip) / (3 * round_trip));
  Case c = {.count = 2};
  compute(&c, 1, left);
  send_to(&c, 1, 0, 0, 1, 250, 1);
  await(&c, 0, 0, 0, 2);
  SimResult result = run(&c, &links, &(SimOptions){.reliability = &rules, .scale = 1});
  assert_true(asked == 3 && (2 + 3 * (asked - 1)) * round_trip + 0.004 + question < left); /* the last one is also too early */
  assert_int_equal(result.device[0].bytes_sent, 12 * asked);
  assert_int_equal(result.device[1].bytes_sent, 250 + 16 * asked);
  near(result.latency, came);
  release(&c);
}

/* The receiver comes when all that is not lost is there: it asks after a grace, hears that all was sent, and gives up a grace later. */
static void what_is_lost_is_missed_after_an_answer(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 1e6, .latency = 0.004, .loss = 0.3, .seed = 7, .overhead = 25};
  const Reliability rules = {.mode = RELIABILITY_DEADLINE, .timeout = 10};
  bool lost[20];
  int expected = fates(&links, 1, 0, 20, lost);
  assert_in_range(expected, 1, 19);
  assert_true(heard(&links, 0, 1, 2) && heard(&links, 1, 0, 2));
  Case c = {.count = 2};
  send_to(&c, 1, 0, 0, 20, 2000, 1);
  compute(&c, 0, 0.2);
  await(&c, 0, 0, 0, 2);
  SimResult result = run(&c, &links, &(SimOptions){.reliability = &rules, .scale = 1});
  double grace = grace_of(lost, 20, 0.001), told = 0.2 + grace + 8 * (12 + 3 + 25) / 1e6 + 8 * (16 + 3 + 25) / 1e6 + 0.008;
  assert_true(grace >= 0.003);
  near(result.latency, told + grace);
  assert_int_equal(result.device[0].bytes_sent, 12 + 3);
  assert_int_equal(result.device[1].bytes_sent, 2000 + 16 + 3);
  release(&c);
}

static void a_deadline_ends_the_waiting(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 1e6, .latency = 0.004};
  const Reliability rules = {.mode = RELIABILITY_DEADLINE, .deadline = 0.03};
  Case c = {.count = 2};
  send_to(&c, 1, 0, 0, 10, 10000, 1); /* a packet every 8 ms */
  await(&c, 0, 0, 0, 2);
  SimResult result = run(&c, &links, &(SimOptions){.reliability = &rules, .scale = 1});
  near(result.latency, 0.03);
  release(&c);
}

static void what_is_lost_is_sent_again(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 1e6, .latency = 0.004, .loss = 0.2, .seed = 5};
  const Reliability rules = {.mode = RELIABILITY_RETRANSMIT, .timeout = 10};
  bool lost[10], later[11];
  int again = fates(&links, 1, 0, 10, lost);
  LinkModel link; /* the answer, then what is sent again */
  link_model_init(&link, &links, 2 + 1, 2 + 0);
  for (int i = 0; i <= again; i++) later[i] = link_model_loses(&link);
  for (int i = 0; i <= again; i++) assert_false(later[i]);
  assert_true(again > 0 && heard(&links, 0, 1, 2));
  Case c = {.count = 2};
  send_to(&c, 1, 0, 0, 10, 1250, 1);
  compute(&c, 0, 0.2);
  await(&c, 0, 0, 0, 2);
  SimResult result = run(&c, &links, &(SimOptions){.reliability = &rules, .scale = 1});
  assert_int_equal(result.device[1].bytes_sent, 1250 + 16 + 2 + 125 * again);
  near(result.latency, 0.2 + grace_of(lost, 10, 0.001) + 8 * (12 + 2) / 1e6 + 0.004 + 8 * (16 + 2) / 1e6 + 0.001 * again + 0.004);
  release(&c);
}

/* ---- the same again, and what makes no sense */

static void a_seed_decides(void **state) {
  (void)state;
  const Reliability rules = {.mode = RELIABILITY_RETRANSMIT, .timeout = 10};
  const SimOptions options = {.reliability = &rules, .scale = 1};
  LinkOptions links = {.bits_per_second = 1e6, .latency = 0.002, .jitter = 0.002, .loss = 0.1, .seed = 9, .topology = LINK_SWITCH};
  Case c = in_parts(&(Parts){4, 2, 6, 1e-3, 1e-4, 1e-3, 1e-4, 3, 900, 1e6, 0});
  SimResult first = run(&c, &links, &options), second = run(&c, &links, &options);
  assert_memory_equal(&first, &second, sizeof first);
  links.seed = 10;
  assert_true(run(&c, &links, &options).latency != first.latency);
  release(&c);
}

/* The median of the draws, with the overhead of what travels. */
static void a_request_is_not_left_to_luck(void **state) {
  (void)state;
  const Reliability rules = {.mode = RELIABILITY_RETRANSMIT, .timeout = 10};
  const SimOptions options = {.reliability = &rules, .scale = 1};
  LinkOptions links = {.bits_per_second = 1e6, .latency = 0.002, .jitter = 0.002, .loss = 0.1, .topology = LINK_SWITCH};
  Case c = in_parts(&(Parts){4, 2, 6, 1e-3, 1e-4, 1e-3, 1e-4, 3, 900, 1e6, 0});
  SimResult result;
  for (int datagrams = 0; datagrams < 2; datagrams++) {
    double drawn[SIMULATE_DRAWS];
    LinkOptions one = links;
    one.overhead = datagrams ? SCHEDULE_DATAGRAM_OVERHEAD : LINK_SEGMENT_OVERHEAD;
    if (!datagrams) one.loss = 0;
    for (int i = 0; i < SIMULATE_DRAWS; i++, one.seed++) drawn[i] = run(&c, &one, datagrams ? &options : &PLAIN).latency;
    const double first = drawn[0], median = order_median(drawn, SIMULATE_DRAWS);
    assert_true(first != median);
    if (simulate_request(c.device, c.count, datagrams, &links, &options, &result) != STATUS_OK) fail_msg("%s", status_message());
    assert_true(result.latency == median);
  }
  links.jitter = 0; /* nothing is drawn of a stream */
  assert_int_equal(simulate_request(c.device, c.count, false, &links, &options, &result), STATUS_OK);
  links.loss = 0, links.overhead = LINK_SEGMENT_OVERHEAD;
  assert_true(result.latency == run(&c, &links, &PLAIN).latency);
  release(&c);
}

static void refused(const Case *c, const LinkOptions *links, const SimOptions *options, Status expected, const char *words) {
  SimResult result;
  assert_int_equal(simulate_run(c->device, c->count, links, options, &result), expected);
  if (!strstr(status_message(), words)) fail_msg("\"%s\" does not say \"%s\"", status_message(), words);
}

static void what_cannot_end_is_named(void **state) {
  (void)state;
  const LinkOptions links = {.bits_per_second = 1e6};
  Case c = {.count = 2};
  await(&c, 1, 3, 2, 1);
  refused(&c, &links, &PLAIN, STATUS_BAD_VALUE, "device 1 waits for block 3, site 0, part 2 of device 0, which never sends it");
  release(&c);
  c = (Case){.count = 2};
  for (int d = 0; d < 2; d++) {
    await(&c, d, 0, 0, all_but(d, 2));
    send_to(&c, d, 0, 0, 1, 100, all_but(d, 2));
  }
  refused(&c, &links, &PLAIN, STATUS_BAD_VALUE, "device 0 waits for ever for block 0, site 0, part 0 of device 1");
  release(&c);
  c = (Case){.count = 2};
  for (int i = 0; i < 2; i++) send_to(&c, 0, 0, 0, 1, 100, 2);
  refused(&c, &links, &PLAIN, STATUS_BAD_VALUE, "twice");
  release(&c);
}

static void senseless_cases_are_refused(void **state) {
  (void)state;
  const Reliability retransmit = {.mode = RELIABILITY_RETRANSMIT, .timeout = 0.1};
  Case c = exchange(2, 0.01, 0, 0, 1, 1000);
  refused(&c, &(LinkOptions){.loss = 0.1}, &PLAIN, STATUS_BAD_VALUE, "hides the loss");
  refused(&c, &(LinkOptions){.bits_per_second = NAN}, &PLAIN, STATUS_BAD_VALUE, "finite rate");
  refused(&c, &(LinkOptions){.latency = -1}, &PLAIN, STATUS_BAD_VALUE, "latency");
  refused(&c, &(LinkOptions){.loss = 1}, &(SimOptions){.reliability = &retransmit}, STATUS_BAD_VALUE, "below 1");
  refused(&c, &(LinkOptions){0}, &(SimOptions){.scale = NAN}, STATUS_BAD_VALUE, "scale");
  refused(&c, &(LinkOptions){.latency = 0.01, .loss = 0.9999}, &(SimOptions){.reliability = &retransmit}, STATUS_TIMEOUT, "within 0.1 s");
  c.count = 65;
  refused(&c, &(LinkOptions){0}, &PLAIN, STATUS_BAD_VALUE, "1 to 64");
  c.count = 2;
  send_to(&c, 0, 1, 0, 1, 10, 5);
  refused(&c, &(LinkOptions){0}, &PLAIN, STATUS_BAD_VALUE, "itself or unknown");
  release(&c);
  c = (Case){.count = 2};
  compute(&c, 1, -1);
  refused(&c, &(LinkOptions){0}, &PLAIN, STATUS_BAD_VALUE, "device 1 computes for -1");
  release(&c);
  c = (Case){.count = 2};
  send_to(&c, 0, 0, 0, 0, 10, 2);
  refused(&c, &(LinkOptions){0}, &PLAIN, STATUS_BAD_VALUE, "1 to 1024");
  release(&c);
}

/* A device that computes faster is no faster at packets, nor is its input. */
static void what_is_fixed_is_not_scaled(void **state) {
  (void)state;
  Case c = {.count = 1};
  const LinkOptions links = {.bits_per_second = 1e6};
  compute(&c, 0, 0.5);
  add(&c, 0, (Event){.kind = EVENT_FIXED, .seconds = 0.25});
  SimResult result = run(&c, &links, &(SimOptions){.scale = 0.1});
  near(result.latency, 0.05 + 0.25);
  near(result.device[0].compute, 0.05 + 0.25);
  near(timeline_seconds(&c.device[0]), 0.5);
  release(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_fixed_is_not_scaled),
                                     cmocka_unit_test(a_mesh_takes_one_copy_of_a_link),
                                     cmocka_unit_test(the_last_device_makes_the_latency),
                                     cmocka_unit_test(computing_hides_sending),
                                     cmocka_unit_test(blocks_without_messages_do_not_count),
                                     cmocka_unit_test(a_switch_takes_a_copy_for_each_receiver),
                                     cmocka_unit_test(many_senders_share_the_way_in),
                                     cmocka_unit_test(all_share_the_air),
                                     cmocka_unit_test(each_device_has_ways_of_its_own),
                                     cmocka_unit_test(a_long_way_is_known_to_who_asks),
                                     cmocka_unit_test(a_trace_counts_from_the_start),
                                     cmocka_unit_test(blocks_in_parts_follow_the_recurrence),
                                     cmocka_unit_test(questions_take_their_time),
                                     cmocka_unit_test(what_is_lost_is_missed_after_an_answer),
                                     cmocka_unit_test(a_deadline_ends_the_waiting),
                                     cmocka_unit_test(what_is_lost_is_sent_again),
                                     cmocka_unit_test(a_seed_decides),
                                     cmocka_unit_test(a_request_is_not_left_to_luck),
                                     cmocka_unit_test(what_cannot_end_is_named),
                                     cmocka_unit_test(senseless_cases_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
