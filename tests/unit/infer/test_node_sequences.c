/* Sequences of a device by themselves, with this test as its leader: a text whose numbers are not finite ends alone, whatever the others
 * have in the same step. */
#include "infer/node_sequences.h"
#include "sample_cluster.h"
#include "unit/param_named.h"
#include <cmocka.h>
#include <math.h>
#include <poll.h>
#include <unistd.h>

enum { SEQUENCES = 3, TOKENS = 40, VOCABULARY = 512, BAD_POSITION = 20, REPEATED = 6, MOST = SEQUENCES * (1 + SPECULATION_MAX) };

typedef struct Fixture {
  SampleCluster sample;
  Weights weights;
  TokenSplit split;
  NodeSetup setup;
  Connection *control;
  int leader; /* the other end */
  Arena *arena;
  Tape *tape;
  NodeSequences *sequences;
} Fixture;

/* Every row at the position is infinite. */
static void spoil_position(Model *model) {
  Tensor *table = &param_named(model_params(model), "transformer.wpe.weight")->tensor;
  const int64_t width = tensor_width(table);
  for (int64_t i = 0; i < width; i++) table->value[BAD_POSITION * width + i] = INFINITY;
}

/* This leader sends nothing. */
static Status place(void *context, Connection *from, const WireHeader *header, uint8_t **payload) {
  (void)context, (void)from, (void)header, (void)payload;
  return status_set(STATUS_BAD_VALUE, "no message is expected");
}

static void open_fixture(Fixture *f) {
  ModelConfig config = {0};
  int fd[2];
  assert_int_equal(sample_config(&config, "tiny-gpt2", 0, 2, 1, CLASS_NONE), STATUS_OK);
  assert_int_equal(sample_open(&f->sample, &config, 3), STATUS_OK);
  config_release(&config);
  spoil_position(f->sample.model);
  f->weights = (Weights){.model = f->sample.model, .config = model_config(f->sample.model)};
  assert_int_equal(token_split_init(&f->split, 1, NULL), STATUS_OK);
  f->setup = (NodeSetup){.weights = &f->weights, .split = &f->split, .batch_max = 1, .tokens_max = TOKENS, .sequences = SEQUENCES};
  assert_int_equal(connection_pair(fd), STATUS_OK);
  assert_int_equal(connection_plain(&f->control, fd[0]), STATUS_OK);
  connection_receive(f->control, -1, &(ConnectionSink){.from = WIRE_FROM_LEADER, .place = place});
  f->leader = fd[1];
  f->arena = arena_new((size_t)1 << 28);
  f->tape = tape_new(f->arena);
  tape_record(f->tape, false);
  const ModelConfig *of = f->weights.config;
  const KvCacheSetup cache = {.blocks = of->blocks, .width = of->width, .max = TOKENS};
  assert_int_equal(node_sequences_new(&f->sequences, &f->setup, 0, &cache, f->control), STATUS_OK);
}

static void close_fixture(Fixture *f) {
  node_sequences_free(f->sequences);
  tape_free(f->tape);
  arena_free(f->arena);
  connection_free(f->control);
  close(f->leader);
  sample_close(&f->sample);
}

/* The tokens of the next message -> their number. */
static int receive(const Fixture *f, DecodedToken token[MOST]) {
  static uint8_t bytes[MOST * DECODED_MAX];
  WireHeader header;
  struct pollfd waiting = {.fd = f->leader, .events = POLLIN};
  assert_int_equal(poll(&waiting, 1, 20000), 1);
  assert_int_equal(read(f->leader, bytes, WIRE_HEADER), WIRE_HEADER);
  assert_int_equal(wire_parse(bytes, sizeof bytes, &header), STATUS_OK);
  assert_true(header.kind == WIRE_DECODED && header.count <= MOST);
  assert_int_equal(read(f->leader, bytes, header.bytes), header.bytes);
  ByteCursor at = byte_cursor_from(bytes);
  for (uint32_t i = 0; i < header.count; i++)
    assert_int_equal(request_decoded(&at, bytes + header.bytes, VOCABULARY, &token[i]), STATUS_OK);
  return (int)header.count;
}

/* A text of one id, which is also the only one that is picked: all its drafts are right. */
static void begin(Fixture *f, uint32_t number, int64_t count, SpeculationMode mode) {
  const Sampling sampling = {.max = TOKENS, .vocabulary = VOCABULARY, .top_p = 1, .biases = 1, .bias = {{.id = REPEATED, .add = 1e6F}}};
  const SequenceOptions options = {.sampling = sampling, .top = -1, .speculation = mode};
  const KvSpans whole = {.count = 0};
  int32_t ids[TOKENS];
  DecodedToken token[MOST];
  Tensor *logits;
  int64_t shared;
  for (int64_t i = 0; i < count; i++) ids[i] = REPEATED;
  assert_int_equal(node_sequences_join(f->sequences, number, &options, ids, count, &whole, &shared), STATUS_OK);
  tape_clear(f->tape);
  assert_int_equal(node_sequences_compute(f->sequences, f->tape, ids, count, shared, &logits), STATUS_OK);
  assert_int_equal(node_sequences_begin(f->sequences, logits), STATUS_OK);
  assert_int_equal(receive(f, token), 1);
  assert_true(token[0].sequence == number && token[0].id == REPEATED && token[0].end == SEQUENCE_GOES_ON);
}

static int step(Fixture *f, DecodedToken token[MOST]) {
  if (node_sequences_step(f->sequences, f->tape) != STATUS_OK) fail_msg("%s", status_message());
  return receive(f, token);
}

/* The first text comes to the bad position itself, the third one with its first draft; the second one is far from it. */
static void one_text_fails_beside_drafts(void **state) {
  (void)state;
  Fixture f;
  DecodedToken token[MOST];
  open_fixture(&f);
  begin(&f, 1, BAD_POSITION, SPECULATION_OFF);
  begin(&f, 2, 4, SPECULATION_LOOKUP);
  begin(&f, 3, BAD_POSITION - 1, SPECULATION_LOOKUP);
  assert_int_equal(step(&f, token), 3);
  assert_true(token[0].sequence == 1 && token[0].end == SEQUENCE_NUMERIC);
  for (int i = 1; i < 3; i++) {
    assert_true(token[i].sequence == (uint32_t)i + 1 && token[i].end == SEQUENCE_GOES_ON);
    assert_true(token[i].id == REPEATED && token[i].number == 2 && token[i].drafts == 0);
  }
  assert_int_equal(step(&f, token), 2); /* the third one has come to it */
  assert_true(token[0].sequence == 2 && token[0].end == SEQUENCE_GOES_ON && token[0].drafts == 0);
  assert_true(token[1].sequence == 3 && token[1].end == SEQUENCE_NUMERIC);
  assert_int_equal(step(&f, token), 1 + SPECULATION_MAX);
  assert_true(token[0].sequence == 2 && token[0].number == 4 && token[0].drafts == SPECULATION_MAX && token[0].drafted);
  close_fixture(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_text_fails_beside_drafts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
