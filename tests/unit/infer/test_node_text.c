/* A node process of a language model by itself, with this test as its leader: what it answers to the byte, what it says of ids and settings
 * that cannot be, and that a leader who breaks the protocol is left. */
#include "infer/request.h"
#include "session_child.h"
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

enum { VOCABULARY = 512, BATCH = 15, TOKENS = 20, MAX = 4096, SLICE_ROWS = 256 };

typedef struct Fixture {
  SampleFixture base;
  SessionChild child;
  int heads; /* signs of life from the head that receive has passed over */
} Fixture;

/* The next message that is no sign of life. */
static bool receive(Fixture *f, WireHeader *header, uint8_t payload[MAX]) {
  uint8_t bytes[WIRE_HEADER];
  for (f->heads = 0;;) {
    if (!session_child_read(f->child.control, bytes, sizeof bytes)) return false;
    assert_int_equal(wire_parse(bytes, MAX, header), STATUS_OK);
    if (header->bytes && !session_child_read(f->child.control, payload, header->bytes)) return false;
    if (header->kind != WIRE_PROGRESS) return true;
    f->heads += header->block == f->base.weights.config->blocks;
  }
}

static void open_fixture(Fixture *f) {
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, "tiny-gpt2", 0, 2, 1, CLASS_NONE), STATUS_OK);
  sample_fixture_open(&f->base, &config);
  assert_true(session_child_open(&f->child, &f->base.weights, BATCH, TOKENS));
}

static void close_fixture(Fixture *f) {
  session_child_close(&f->child);
  sample_fixture_close(&f->base);
}

/* A message of `bytes` of payload, of which at most MOST are sent. */
static void send_message(const Fixture *f, WireHeader header, const uint8_t *payload) {
  uint8_t message[WIRE_HEADER + MAX];
  size_t bytes = header.bytes < MAX ? header.bytes : MAX;
  header.sender = WIRE_LEADER;
  wire_pack(&header, message);
  memcpy(message + WIRE_HEADER, payload, bytes);
  (void)!write(f->child.control, message, WIRE_HEADER + bytes); /* it may have left: seen by what follows */
}

static void put_ids(uint8_t *at, const int32_t *ids, int count) { request_pack_ids(ids, count, at); }

static void answers_have_the_documented_size(void **state) {
  (void)state;
  Fixture f;
  WireHeader header;
  RequestScore score;
  uint8_t payload[MAX] = {0};
  const int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 511}, labels[8] = {-1, 2, 3, -1, 5, 6, 7, 511};
  open_fixture(&f);
  put_ids(payload, ids, 8);
  put_ids(payload + 32, labels, 8);
  send_message(&f, (WireHeader){.kind = WIRE_SCORE, .request = 1, .count = 2, .bytes = 64}, payload);
  assert_true(receive(&f, &header, payload));
  assert_int_equal(header.kind, WIRE_RESULT);
  assert_int_equal(header.count, 2);
  assert_int_equal(header.bytes, WIRE_STATISTICS + 24);
  assert_int_equal(request_score(byte_cursor_from(payload + WIRE_STATISTICS), &score), STATUS_OK);
  assert_int_equal(score.counted, 6);
  assert_true(score.loss > 6 * 3 && score.loss < 6 * 12); /* about ln 512 each */
  put_ids(payload, ids, 3);
  send_message(&f, (WireHeader){.kind = WIRE_LAST, .request = 2, .count = 1, .bytes = 12}, payload);
  assert_true(receive(&f, &header, payload));
  assert_int_equal(header.bytes, WIRE_STATISTICS + VOCABULARY * 4);
  close_fixture(&f);
}

static void tokens_come_one_by_one(void **state) {
  (void)state;
  Fixture f;
  WireHeader header;
  uint8_t payload[MAX] = {0};
  Sampling sampling = {.max = 4, .vocabulary = VOCABULARY, .top_p = 1};
  open_fixture(&f);
  request_sampling(byte_cursor_to(payload), NULL, &sampling);
  put_ids(payload + REQUEST_SAMPLING, (const int32_t[]){5, 6, 7}, 3);
  send_message(&f, (WireHeader){.kind = WIRE_PROMPT, .request = 1, .count = 1, .bytes = REQUEST_SAMPLING + 12}, payload);
  for (uint32_t i = 1; i <= 4; i++) {
    assert_true(receive(&f, &header, payload));
    assert_int_equal(header.kind, WIRE_TOKEN);
    assert_int_equal(header.count, i);
    assert_int_equal(header.bytes, 4);
    assert_true(wire_get_u32(payload) < VOCABULARY);
  }
  assert_true(receive(&f, &header, payload));
  assert_int_equal(header.kind, WIRE_RESULT);
  assert_int_equal(header.bytes, WIRE_STATISTICS + REQUEST_DECODING);
  close_fixture(&f);
}

static void samplings_arrive_as_they_are_sent(void **state) {
  (void)state;
  const ModelConfig config = {.vocabulary = VOCABULARY};
  const Weights weights = {.config = &config};
  const NodeSetup setup = {.weights = &weights, .tokens_max = TOKENS};
  uint8_t bytes[REQUEST_SAMPLING], again[REQUEST_SAMPLING];
  Sampling s = {.max = 4, .vocabulary = VOCABULARY, .temperature = 0.5, .top_k = 7, .top_p = 0.75, .min_p = 0.125, .seed = 9, .stream = 3};
  s.repetition_penalty = 1.5, s.frequency_penalty = -0.5, s.presence_penalty = 0.25, s.made = 5, s.drawn = 4;
  s.ends = 1, s.end[0] = 2;
  s.biases = SAMPLING_BIASES;
  for (int i = 0; i < SAMPLING_BIASES; i++) s.bias[i] = (SamplingBias){i * 3, (float)(i - 16)};
  Sampling parsed;
  request_sampling(byte_cursor_to(bytes), NULL, &s);
  assert_int_equal(request_sampling(byte_cursor_from(bytes), &setup, &parsed), STATUS_OK);
  request_sampling(byte_cursor_to(again), NULL, &parsed);
  assert_memory_equal(bytes, again, sizeof bytes);
  assert_true(parsed.min_p == s.min_p && parsed.repetition_penalty == s.repetition_penalty);
  assert_true(parsed.frequency_penalty == s.frequency_penalty && parsed.presence_penalty == s.presence_penalty);
  assert_true(parsed.made == 5 && parsed.drawn == 4 && parsed.biases == SAMPLING_BIASES);
  assert_memory_equal(parsed.bias, s.bias, sizeof s.bias);
}

/* Well-formed, but its content cannot be: the node says why. */
static void what_cannot_be_is_named(void **state) {
  (void)state;
  const struct {
    uint8_t kind;
    int place; /* of the 4 bytes that are changed */
    uint32_t value;
    const char *message;
  } faults[] = {{WIRE_LAST, 4, VOCABULARY, "id 512"},
                {WIRE_LAST, 0, UINT32_MAX, "id -1"},
                {WIRE_SCORE, 12, (uint32_t)-2, "id -2"},
                {WIRE_SCORE, 8, VOCABULARY, "id 512"},
                {WIRE_PROMPT, REQUEST_SAMPLING, VOCABULARY, "id 512"},
                {WIRE_PROMPT, 0, TOKENS + 1, "settings"},
                {WIRE_PROMPT, 4, 0, "settings"},
                {WIRE_PROMPT, 4, VOCABULARY + 1, "settings"},
                {WIRE_PROMPT, 12, CONFIG_ENDS + 1, "settings"},
                {WIRE_PROMPT, 24, 0x7fc00000, "settings"}, /* a temperature that is no number */
                {WIRE_PROMPT, 28, 0x40000000, "settings"}, /* top p 2 */
                {WIRE_PROMPT, 64, 0x3f800000, "settings"}, /* min p 1 */
                {WIRE_PROMPT, 68, 0xbf800000, "settings"}, /* penalties of -1, of 256 and of no number */
                {WIRE_PROMPT, 72, 0x43800000, "settings"},
                {WIRE_PROMPT, 76, 0x7fc00000, "settings"},
                {WIRE_PROMPT, 80, 1, "settings"}, /* a number drawn for no token */
                {WIRE_PROMPT, 88, TOKENS + 1, "settings"},
                {WIRE_PROMPT, 88, 3, "3 new tokens are not among 2"},
                {WIRE_PROMPT, 92, SAMPLING_BIASES + 1, "settings"},
                {WIRE_PROMPT, 96, VOCABULARY, "id 512"},
                {WIRE_PROMPT, 100, 0x7f800000, "bias of inf"}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    Fixture f;
    WireHeader header;
    uint8_t payload[MAX] = {0};
    Sampling sampling = {.max = 4, .vocabulary = VOCABULARY, .top_p = 1};
    uint32_t bytes = faults[i].kind == WIRE_PROMPT ? REQUEST_SAMPLING + 8 : faults[i].kind == WIRE_SCORE ? 16 : 8;
    open_fixture(&f);
    sampling.biases = 1;
    if (faults[i].kind == WIRE_PROMPT) request_sampling(byte_cursor_to(payload), NULL, &sampling);
    wire_put_u32(payload + faults[i].place, faults[i].value);
    send_message(&f, (WireHeader){.kind = faults[i].kind, .request = 1, .count = 1, .bytes = bytes}, payload);
    assert_true(receive(&f, &header, payload));
    assert_int_equal(header.kind, WIRE_ERROR);
    payload[header.bytes] = 0;
    if (!strstr((char *)payload, faults[i].message)) fail_msg("'%s' does not say '%s'", (char *)payload, faults[i].message);
    close_fixture(&f);
  }
}

static void a_leader_that_breaks_the_protocol_is_left(void **state) {
  (void)state;
  const WireHeader faults[] = {{.kind = WIRE_LAST, .request = 1, .count = 1, .bytes = 0},
                               {.kind = WIRE_LAST, .request = 1, .count = 0, .bytes = 8},
                               {.kind = WIRE_LAST, .request = 1, .count = 1, .bytes = 6},
                               {.kind = WIRE_LAST, .request = 1, .count = 3, .bytes = 16},
                               {.kind = WIRE_LAST, .request = 1, .count = 1, .bytes = 4 * (TOKENS + 1)},
                               {.kind = WIRE_LAST, .request = 1, .count = BATCH + 1, .bytes = 4 * (BATCH + 1)},
                               {.kind = WIRE_LAST, .request = 2, .count = 1, .bytes = 8},
                               {.kind = WIRE_LAST, .request = 1, .count = 1, .bytes = UINT32_MAX},
                               {.kind = WIRE_LAST, .flags = WIRE_WANT_CODES, .request = 1, .count = 1, .bytes = 8},
                               {.kind = WIRE_SCORE, .request = 1, .count = 1, .bytes = 12},
                               {.kind = WIRE_PROMPT, .request = 1, .count = 1, .bytes = REQUEST_SAMPLING},
                               {.kind = WIRE_PROMPT, .request = 1, .count = 2, .bytes = REQUEST_SAMPLING + 8},
                               {.kind = WIRE_PROMPT, .request = 1, .count = 1, .bytes = 8},
                               {.kind = WIRE_CLASSIFY, .request = 1, .count = 1, .bytes = 8},
                               {.kind = WIRE_TOKEN, .request = 1, .count = 1, .bytes = 4},
                               {.kind = WIRE_STOP, .request = 1, .bytes = 4}};
  signal(SIGPIPE, SIG_IGN);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    Fixture f;
    uint8_t end;
    const uint8_t payload[MAX] = {0};
    open_fixture(&f);
    send_message(&f, faults[i], payload);
    struct pollfd waiting = {.fd = f.child.control, .events = POLLIN};
    assert_int_equal(poll(&waiting, 1, 20000), 1);
    if (read(f.child.control, &end, 1) > 0) fail_msg("fault %d was answered", (int)i);
    close_fixture(&f);
  }
}

/* A score goes through the head in slices, and of each the node says that it has come to it; the sums are those of all rows. */
static void the_head_gives_signs_of_life(void **state) {
  (void)state;
  Fixture f;
  WireHeader header;
  RequestScore all, one = {0};
  uint8_t payload[MAX] = {0};
  int32_t ids[BATCH * TOKENS], labels[BATCH * TOKENS];
  const int count = BATCH * TOKENS, half = 8 * TOKENS;
  assert_true(count > SLICE_ROWS && count < 2 * SLICE_ROWS);
  for (int i = 0; i < count; i++) ids[i] = i * 7 % VOCABULARY, labels[i] = i % 11 ? i * 5 % VOCABULARY : -1;
  open_fixture(&f);
  put_ids(payload, ids, count);
  put_ids(payload + 4 * count, labels, count);
  send_message(&f, (WireHeader){.kind = WIRE_SCORE, .request = 1, .count = BATCH, .bytes = (uint32_t)(8 * count)}, payload);
  assert_true(receive(&f, &header, payload));
  assert_int_equal(header.kind, WIRE_RESULT);
  assert_int_equal(f.heads, 2);
  assert_int_equal(request_score(byte_cursor_from(payload + WIRE_STATISTICS), &all), STATUS_OK);
  assert_int_equal(all.counted, count - (count + 10) / 11);
  for (int part = 0; part < 2; part++) { /* the same rows in two requests */
    int first = part ? half : 0, rows = part ? count - half : half;
    RequestScore score;
    put_ids(payload, ids + first, rows);
    put_ids(payload + 4 * rows, labels + first, rows);
    send_message(
        &f,
        (WireHeader){.kind = WIRE_SCORE, .request = (uint32_t)part + 2, .count = (uint32_t)(rows / TOKENS), .bytes = (uint32_t)(8 * rows)},
        payload);
    assert_true(receive(&f, &header, payload));
    assert_int_equal(f.heads, 1);
    assert_int_equal(request_score(byte_cursor_from(payload + WIRE_STATISTICS), &score), STATUS_OK);
    one.loss += score.loss, one.counted += score.counted, one.correct += score.correct;
  }
  assert_int_equal(one.counted, all.counted);
  assert_int_equal(one.correct, all.correct);
  assert_true(all.loss > 100 && one.loss < all.loss * (1 + 1e-5) && one.loss > all.loss * (1 - 1e-5));
  put_ids(payload, ids, 3);
  send_message(&f, (WireHeader){.kind = WIRE_LAST, .request = 4, .count = 1, .bytes = 12}, payload);
  assert_true(receive(&f, &header, payload));
  assert_int_equal(f.heads, 1);
  close_fixture(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_have_the_documented_size),  cmocka_unit_test(tokens_come_one_by_one),
      cmocka_unit_test(samplings_arrive_as_they_are_sent), cmocka_unit_test(what_cannot_be_is_named),
      cmocka_unit_test(the_head_gives_signs_of_life),      cmocka_unit_test(a_leader_that_breaks_the_protocol_is_left)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
