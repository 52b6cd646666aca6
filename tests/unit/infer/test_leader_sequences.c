/* Sequences that live on devices, on real processes: each goes on as in the emulation of devices whose last one is its own, several at the
 * same time, whatever else its device decodes; log-probabilities; ends, stops, limits; with drafts the texts are the same; a process that
 * dies loses them all, once. */
#include "base/clock.h"
#include "infer/cluster/leader_internal.h"
#include "infer/node_share.c"
#include "sample_fixture.h"
#include "sample_text.h"
#include <signal.h>
#include <unistd.h>

enum { GROUPS = 4, ENTRIES = 50, VOCABULARY = 512, CONTEXT = 48, NODES = 3, EACH = 3, MOST = 16, DRAFTED = 6 };
static const double MOST_SECONDS = 30;

typedef struct Fixture {
  SampleFixture base;
  TokenSplit split;
  ClusterOptions cluster;
  int32_t ids[CONTEXT];
  Leader *leader;
} Fixture;

/* What has come of a sequence. */
typedef struct Text {
  uint32_t number;
  int32_t ids[2 * CONTEXT];
  int64_t prompt, count;
  SequenceEnd end;
  DecodedToken last;
  int drafts, drafted;
  int64_t shared;
  bool is_drafted[2 * CONTEXT];
} Text;

typedef struct Texts {
  Text text[MOST];
  int count;
} Texts;

static void open_fixture(Fixture *f, const char *preset, int groups, Site site) {
  ModelConfig config = {0};
  *f = (Fixture){.cluster = {.local = NODES, .on_failure = ON_FAILURE_RERUN}};
  assert_int_equal(sample_config(&config, preset, groups, ENTRIES, 4, CLASS_NONE), STATUS_OK);
  config.astra.site = site;
  sample_fixture_open(&f->base, &config);
  sample_ids(&f->base.sample.config, 5, CONTEXT, f->ids);
}

static void start(Fixture *f, int nodes, const char *list) {
  f->cluster.local = nodes;
  const LeaderOptions options = {.batch_max = 1, .timeout = 20, .threads = 1, .sequences = EACH, .cluster = &f->cluster};
  assert_int_equal(token_split_init(&f->split, nodes, list), STATUS_OK);
  if (leader_start_text(&f->leader, &f->base.weights, &f->split, &options) != STATUS_OK) fail_msg("%s", status_message());
}

static void stop(Fixture *f) {
  leader_stop(f->leader);
  sample_fixture_no_children();
}

static void take(void *context, const DecodedToken *token) {
  Texts *texts = context;
  for (int i = 0; i < texts->count; i++) {
    Text *text = &texts->text[i];
    if (text->number != token->sequence || text->end != SEQUENCE_GOES_ON) continue;
    text->drafts += token->drafts;
    text->drafted += token->drafted;
    text->shared += token->shared;
    text->is_drafted[text->count] = token->drafted;
    text->ids[text->count++] = token->id;
    assert_int_equal(token->number, text->count);
    text->end = token->end;
    text->last = *token;
    return;
  }
  fail_msg("a token of sequence %u, which is not wanted", token->sequence);
}

/* One poll; whether sequences were lost, and why. */
static SequenceLoss poll_once(Fixture *f, Texts *texts) {
  SequenceLoss lost;
  if (leader_sequences_poll(f->leader, -1, 1, take, texts, &lost) != STATUS_OK) fail_msg("%s", status_message());
  return lost;
}

static Text *begin_as(Fixture *f, Texts *texts, int64_t prompt, const SequenceOptions *options, int device) {
  Text *text = &texts->text[texts->count++];
  *text = (Text){.prompt = prompt};
  while (!leader_takes_more(f->leader)) assert_int_equal(poll_once(f, texts), SEQUENCES_KEPT);
  Status status = leader_sequence_start(f->leader, f->ids, prompt, options, device, &text->number);
  if (status != STATUS_OK) fail_msg("%s", status_message());
  return text;
}

static Text *begin_text(Fixture *f, Texts *texts, int64_t prompt, int64_t max, int top, int device) {
  const SequenceOptions options = {.sampling = {.max = max, .vocabulary = VOCABULARY, .top_p = 1}, .top = top};
  return begin_as(f, texts, prompt, &options, device);
}

static void finish(Fixture *f, Texts *texts) {
  const double began = clock_now();
  for (bool more = true; more;) {
    more = false;
    for (int i = 0; i < texts->count; i++) more |= texts->text[i].end == SEQUENCE_GOES_ON;
    if (more) assert_int_equal(poll_once(f, texts), SEQUENCES_KEPT);
    if (clock_now() - began > MOST_SECONDS) fail_msg("sequences do not end");
  }
}

static void compare(Fixture *f, const Text *text, int64_t max, int device) {
  int32_t expected[2 * CONTEXT];
  int64_t counts[SAMPLE_NODES], made = text->prompt + max <= CONTEXT + 1 ? max : CONTEXT + 1 - text->prompt;
  TokenSplit rotated;
  rotate(&f->split, text->prompt, 1 + device, &rotated);
  int spans = token_split_counts(&rotated, text->prompt, counts);
  memcpy(expected, f->ids, (size_t)text->prompt * sizeof *expected);
  assert_int_equal(sample_go_on(&f->base.sample, spans, counts, expected, text->prompt, made), STATUS_OK);
  assert_int_equal(text->count, made);
  assert_memory_equal(text->ids, expected + text->prompt, (size_t)made * sizeof *expected);
  assert_int_equal(text->end, made == max ? SEQUENCE_LENGTH : SEQUENCE_CONTEXT);
}

/* Tokens of a prompt that are codes on the device that decodes it. */
static int64_t remote_of(const Fixture *f, int64_t prompt, int device) {
  int64_t counts[SAMPLE_NODES];
  TokenSplit rotated;
  rotate(&f->split, prompt, 1 + device, &rotated);
  return prompt - counts[token_split_counts(&rotated, prompt, counts) - 1];
}

static void compare_homes(Fixture *f, const char *list) {
  const int64_t prompts[] = {13, 2, 1, CONTEXT - 4, CONTEXT}, max = 9;
  start(f, NODES, list);
  for (size_t p = 0; p < sizeof prompts / sizeof *prompts; p++) {
    Texts texts = {.count = 0};
    for (int d = 0; d < NODES; d++) begin_text(f, &texts, prompts[p], max, -1, d);
    begin_text(f, &texts, prompts[p], max, -1, 1); /* shares what the first of its device has */
    finish(f, &texts);
    for (int d = 0; d < NODES; d++) compare(f, &texts.text[d], max, d);
    compare(f, &texts.text[NODES], max, 1);
    for (int d = 0; d < NODES; d++) assert_int_equal(texts.text[d].shared, 0);
    assert_int_equal(texts.text[NODES].shared, f->base.weights.config->astra.prediction ? 0 : remote_of(f, prompts[p], 1));
    for (int d = 0; d < NODES; d++) assert_int_equal(leader_sequences_on(f->leader, d), 0);
  }
  stop(f);
}

static void each_home_has_the_last_span(void **state) {
  const char *const presets[] = {"tiny-gpt2", "tiny-llama"};
  (void)state;
  for (int i = 0; i < 4; i++) {
    Fixture f;
    open_fixture(&f, presets[i / 2], GROUPS, i % 2 ? SITE_KV : SITE_X);
    compare_homes(&f, NULL);
    compare_homes(&f, "3,1,2");
    sample_fixture_close(&f.base);
  }
}

/* With predictions the others' tokens are kept in full, and nothing is shared between texts; also where the first block's are exact. */
static void all_tokens_are_in_full(void **state) {
  (void)state;
  for (int exact = 0; exact < 2; exact++) {
    Fixture f = {.cluster = {.local = NODES, .on_failure = ON_FAILURE_RERUN}};
    ModelConfig config = {0};
    assert_int_equal(sample_config(&config, "tiny-gpt2", GROUPS, ENTRIES, 4, CLASS_NONE), STATUS_OK);
    config.astra.rotation = config.astra.prediction = true;
    config.astra.exact_first = exact;
    sample_fixture_open(&f.base, &config);
    sample_ids(&f.base.sample.config, 5, CONTEXT, f.ids);
    compare_homes(&f, NULL);
    sample_fixture_close(&f.base);
  }
}

/* The rule by which leader and devices know who has what. */
static void spans_are_rotated(void **state) {
  TokenSplit split, rotated;
  (void)state;
  assert_int_equal(token_split_init(&split, 3, "1,2,4"), STATUS_OK);
  assert_int_equal(rotate(&split, 9, 0, &rotated), 0);
  assert_memory_equal(rotated.weights, split.weights, 3 * sizeof(double));
  assert_int_equal(rotate(&split, 9, 3, &rotated), 0);
  assert_int_equal(rotate(&split, 9, 1, &rotated), 1);
  assert_true(rotated.weights[0] == split.weights[1] && rotated.weights[2] == split.weights[0]);
  assert_int_equal(rotate(&split, 1, 2, &rotated), 1); /* one token: the home alone */
  assert_int_equal(rotate(&split, 2, 1, &rotated), 2);
  assert_true(rotated.weights[0] == split.weights[2] && rotated.weights[1] == split.weights[0]);
}

static void on_one_device(void **state) {
  Fixture f;
  Texts texts = {.count = 0};
  uint32_t number;
  const SequenceOptions options = {.sampling = {.max = 3, .vocabulary = VOCABULARY, .top_p = 1}, .top = -1};
  (void)state;
  open_fixture(&f, "tiny-llama", 0, SITE_X);
  start(&f, 1, NULL);
  begin_text(&f, &texts, 40, 8, 3, 0);
  begin_text(&f, &texts, 40, 8, 0, 0);
  begin_text(&f, &texts, 35, 8, -1, 0);
  while (!leader_takes_more(f.leader)) poll_once(&f, &texts);
  if (leader_sequences_on(f.leader, 0) == EACH)
    assert_int_equal(leader_sequence_start(f.leader, f.ids, 5, &options, 0, &number), STATUS_BUSY);
  finish(&f, &texts);
  compare(&f, &texts.text[0], 8, 0);
  compare(&f, &texts.text[1], 8, 0);
  compare(&f, &texts.text[2], 8, 0);
  const DecodedToken *last = &texts.text[0].last;
  assert_int_equal(last->top_count, 3);
  assert_int_equal(last->top[0].id, last->id); /* greedy */
  assert_true(last->logprob < 0 && last->logprob == last->top[0].logprob && last->top[1].logprob >= last->top[2].logprob);
  assert_true(texts.text[1].last.logprob < 0 && texts.text[1].last.top_count == 0);
  assert_true(isnan(texts.text[2].last.logprob));
  assert_int_equal(leader_sequence_start(f.leader, f.ids, CONTEXT + 1, &options, 0, &number), STATUS_BAD_VALUE);
  stop(&f);
  sample_fixture_close(&f.base);
}

/* Texts of several prompts at the same time: greedy and drawn, some with penalties, as long as the context and shorter, ended by any of
 * `ends`, where there are some. */
static void run_texts(Fixture *f, SpeculationMode mode, const int32_t *ends, Texts *texts) {
  *texts = (Texts){.count = 0};
  for (int i = 0; i < DRAFTED; i++) {
    SequenceOptions options = {
        .sampling = {.max = i == 1 ? 17 : CONTEXT, .vocabulary = VOCABULARY, .top_p = 1}, .top = i, .speculation = mode};
    Sampling *s = &options.sampling;
    if (i >= 3) s->temperature = 0.05, s->seed = (uint64_t)i, s->top_k = 3;
    if (i == 4) s->frequency_penalty = 0.01;
    if (ends) s->end[s->ends++] = ends[i];
    begin_as(f, texts, 3 + 3 * i, &options, i % 2);
  }
  finish(f, texts);
}

static void drafts_change_no_text(void **state) {
  const char *const presets[] = {"tiny-gpt2", "tiny-llama"};
  (void)state;
  for (int p = 0; p < 2; p++) {
    Fixture f;
    Texts plain, texts;
    int32_t ends[DRAFTED];
    int drafted = 0, ended = 0;
    open_fixture(&f, presets[p], GROUPS, SITE_X);
    for (int i = 6; i < CONTEXT; i++) f.ids[i] = f.ids[i % 6]; /* a text that quotes itself */
    start(&f, 2, NULL);
    run_texts(&f, SPECULATION_OFF, NULL, &plain);
    for (int i = 0; i < DRAFTED; i++) assert_int_equal(plain.text[i].drafts, 0);
    run_texts(&f, SPECULATION_LOOKUP, NULL, &texts);
    for (int i = 0; i < DRAFTED; i++) {
      const Text *text = &texts.text[i], *expected = &plain.text[i];
      int at = 0;
      assert_int_equal(text->count, expected->count);
      assert_memory_equal(text->ids, expected->ids, (size_t)text->count * sizeof(int32_t));
      assert_int_equal(text->end, expected->end);
      assert_int_equal(text->last.drawn, expected->last.drawn);
      assert_true(text->drafts >= text->drafted);
      drafted += text->drafted;
      while (at < text->count && !text->is_drafted[at]) at++;
      ends[i] = at < text->count ? text->ids[at] : -1;
      ended += at + 1 < text->count;
    }
    assert_true(drafted > 20 && ended > 2);
    run_texts(&f, SPECULATION_OFF, ends, &plain);
    for (int m = SPECULATION_AUTO; m <= SPECULATION_LOOKUP; m++) {
      run_texts(&f, (SpeculationMode)m, ends, &texts);
      for (int i = 0; i < DRAFTED; i++) {
        assert_int_equal(texts.text[i].count, plain.text[i].count);
        assert_memory_equal(texts.text[i].ids, plain.text[i].ids, (size_t)plain.text[i].count * sizeof(int32_t));
        assert_int_equal(texts.text[i].end, plain.text[i].end);
      }
    }
    stop(&f);
    sample_fixture_close(&f.base);
  }
}

/* One text at a time, on a device with an idle one beside it, until drafts of that were right; greedy, and drawn. */
static void an_idle_device_drafts(void **state) {
  Fixture f;
  int drafted[2] = {0};
  (void)state;
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  if (weights_make_drafts(&f.base.weights, f.base.directory) != STATUS_OK) fail_msg("%s", status_message());
  start(&f, 2, NULL);
  for (int try = 0; try < 200 && (try < 12 || drafted[0] == 0 || drafted[1] == 0); try++) {
    static const SpeculationMode modes[] = {SPECULATION_OFF, SPECULATION_DRAFT, SPECULATION_AUTO};
    Texts texts = {.count = 0};
    const bool draws = try % 2;
    const int device = try / 2 % 2;
    for (int m = 0; m < 3; m++) {
      SequenceOptions options = {.sampling = {.max = CONTEXT, .vocabulary = VOCABULARY, .top_p = 1}, .top = -1, .speculation = modes[m]};
      if (draws) options.sampling.temperature = 0.05, options.sampling.seed = 3, options.sampling.top_k = 3;
      const Text *text = begin_as(&f, &texts, 3 + try % 5, &options, device);
      finish(&f, &texts);
      assert_int_equal(text->count, texts.text[0].count);
      assert_memory_equal(text->ids, texts.text[0].ids, (size_t)text->count * sizeof *text->ids);
      assert_int_equal(text->last.drawn, texts.text[0].last.drawn);
      if (modes[m] == SPECULATION_DRAFT) drafted[draws] += text->drafted;
      if (modes[m] == SPECULATION_OFF) assert_int_equal(text->drafts, 0);
    }
    if (!draws) compare(&f, &texts.text[0], CONTEXT, device);
  }
  assert_true(drafted[0] > 0 && drafted[1] > 0);
  stop(&f);
  sample_fixture_close(&f.base);
}

/* What a hostile device may say of drafts, and an honest one too late. */
static void drafts_of_devices_are_checked(void **state) {
  enum { SEQUENCE = 2, OVER = 3, DRAFTER = 1, TEXT = 10 };
  const struct {
    int node;
    uint32_t sequence, announced, base;
    int32_t id;
    Status status;
    bool taken;
  } cases[] = {{DRAFTER, SEQUENCE, 3, TEXT, 5, STATUS_OK, true},
               {DRAFTER, SEQUENCE, 3, TEXT - 2, 5, STATUS_OK, true},
               {DRAFTER + 1, SEQUENCE, 3, TEXT, 5, STATUS_OK, false},
               {DRAFTER, OVER, 3, TEXT, 5, STATUS_OK, false},
               {DRAFTER, 0, 3, TEXT, 5, STATUS_BAD_VALUE, false},
               {DRAFTER, OVER + 1, 3, TEXT, 5, STATUS_BAD_VALUE, false},
               {DRAFTER, SEQUENCE, 4, TEXT, 5, STATUS_BAD_VALUE, false},
               {DRAFTER, SEQUENCE, 3, TEXT + 1, 5, STATUS_BAD_VALUE, false},
               {DRAFTER, SEQUENCE, 3, TEXT, -1, STATUS_BAD_VALUE, false},
               {DRAFTER, SEQUENCE, 3, UINT32_MAX, 5, STATUS_BAD_VALUE, false},
               {DRAFTER, SEQUENCE, 3, TEXT, VOCABULARY, STATUS_BAD_VALUE, false}};
  Fixture f;
  (void)state;
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    LeaderSequence sequence = {.number = SEQUENCE, .node = 0, .count = TEXT, .drafter = DRAFTER};
    Leader leader = {.setup = {.weights = &f.base.weights, .tokens_max = CONTEXT, .sequences = EACH},
                     .queue.submitted = OVER,
                     .sequences = {.list = &sequence, .count = 1}};
    const int32_t ids[] = {1, cases[i].id, 3};
    uint8_t payload[WIRE_DRAFTS_BYTES];
    const uint32_t bytes = (uint32_t)request_draft(payload, cases[i].base, ids, 3);
    const WireHeader header = {.kind = WIRE_DRAFTS, .request = cases[i].sequence, .count = cases[i].announced, .bytes = bytes};
    assert_int_equal(leader_sequences_drafts(&leader, cases[i].node, &header, payload), cases[i].status);
    assert_int_equal(sequence.chained, cases[i].taken ? 3 : 0);
    if (cases[i].taken) assert_int_equal(sequence.base, cases[i].base);
    leader.epoch.setting_up = true; /* of the epoch before */
    sequence.chained = 0;
    assert_int_equal(leader_sequences_drafts(&leader, cases[i].node, &header, payload), STATUS_OK);
    assert_int_equal(sequence.chained, 0);
    /* Tokens likewise: a device may be in a step when the bit rate changes. */
    const WireHeader decoded = {.kind = WIRE_DECODED, .count = 1, .bytes = bytes};
    assert_int_equal(leader_sequences_deliver(&leader, cases[i].node, &decoded, payload), STATUS_OK);
    assert_int_equal(leader.sequences.token_count, 0);
  }
  sample_fixture_close(&f.base);
}

/* A device that goes on behind the end of a text, or tells a prompt again and again, would fill the leader's memory. */
static void no_more_tokens_come_than_there_can_be(void **state) {
  enum { MADE = 3, MAX = 4, PROMPT = 5 };
  Fixture f;
  (void)state;
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  for (int echo = 0; echo < 2; echo++) {
    LeaderSequence sequence = {.number = 1, .prompt = PROMPT, .made = MADE, .max = MADE + MAX, .drafter = -1};
    Leader leader = {.setup = {.weights = &f.base.weights, .tokens_max = CONTEXT, .sequences = EACH},
                     .queue.submitted = 1,
                     .sequences = {.list = &sequence, .count = 1}};
    const int fit = echo ? PROMPT - 1 : MAX;
    for (int i = 0; i <= fit; i++) {
      uint8_t payload[WIRE_DECODED_BYTES];
      const uint32_t number = echo ? PROMPT : MADE + 1 + (uint32_t)i;
      DecodedToken token = {.sequence = 1, .number = number, .id = 7, .end = echo ? SEQUENCE_PROMPT : SEQUENCE_GOES_ON};
      ByteCursor at = byte_cursor_to(payload);
      assert_int_equal(request_decoded(&at, NULL, 0, &token), STATUS_OK);
      const WireHeader header = {.kind = WIRE_DECODED, .count = 1, .bytes = WIRE_DECODED_BYTES};
      assert_int_equal(leader_sequences_deliver(&leader, 0, &header, payload), i < fit ? STATUS_OK : STATUS_BAD_VALUE);
    }
    assert_int_equal(leader.sequences.token_count, fit);
    free(leader.sequences.tokens);
  }
  sample_fixture_close(&f.base);
}

/* No token of it is reported after that, and there is room for others. */
static void one_is_stopped(void **state) {
  Fixture f;
  Texts texts = {.count = 0};
  (void)state;
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  start(&f, NODES, NULL);
  for (int i = 0; i < 3 * EACH; i++) {
    Text *text = begin_text(&f, &texts, 5, 43, -1, 1);
    leader_sequence_stop(f.leader, text->number);
    text->end = SEQUENCE_LENGTH;
    const double began = clock_now();
    while (leader_sequences_on(f.leader, 1) > 0) {
      poll_once(&f, &texts);
      if (clock_now() - began > MOST_SECONDS) fail_msg("a sequence does not end");
    }
  }
  begin_text(&f, &texts, 5, 4, -1, 1);
  finish(&f, &texts);
  compare(&f, &texts.text[texts.count - 1], 4, 1);
  leader_sequence_stop(f.leader, 1000);
  stop(&f);
  sample_fixture_close(&f.base);
}

/* More at a time than a connection queues, of which the first and the last are of one device. */
static void each_is_told_to_stop(void **state) {
  static const int nodes[] = {0, 1, 1, 1, 2, 2, 2, 0, 0};
  enum { COUNT = sizeof nodes / sizeof *nodes };
  Fixture f;
  bool told[COUNT] = {false};
  (void)state;
  assert_true((int)COUNT > (int)CONNECTION_QUEUE);
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  start(&f, NODES, NULL);
  LeaderSequences *q = &f.leader->sequences;
  for (uint32_t i = 0; i < COUNT; i++)
    q->list[q->count++] = (LeaderSequence){.number = 1 + i, .node = nodes[i], .here = true, .unwanted = true};
  assert_int_equal(leader_sequences_held(f.leader), COUNT);
  assert_int_equal(leader_sequences_tell(f.leader), STATUS_OK);
  assert_int_equal(leader_sequences_held(f.leader), 0);
  for (int node = 0; node < NODES; node++) {
    const Connection *c = f.leader->epoch.connections[node];
    assert_int_equal(c->queued, COUNT / NODES);
    for (int i = 0; i < c->queued; i++) {
      WireHeader header;
      assert_int_equal(wire_parse(c->queue[(c->first + i) % CONNECTION_QUEUE].bytes, 0, &header), STATUS_OK);
      assert_int_equal(header.kind, WIRE_STOP);
      assert_in_range(header.request, 1, COUNT);
      assert_int_equal(nodes[header.request - 1], node);
      assert_false(told[header.request - 1]);
      told[header.request - 1] = true;
    }
  }
  stop(&f);
  sample_fixture_close(&f.base);
}

static void a_death_loses_them_once(void **state) {
  Fixture f;
  Texts texts = {.count = 0};
  SequenceLoss lost = SEQUENCES_KEPT;
  (void)state;
  open_fixture(&f, "tiny-gpt2", GROUPS, SITE_X);
  start(&f, NODES, NULL);
  begin_text(&f, &texts, 5, 40, -1, 0);
  while (texts.text[0].count < 2 || leader_under_way(f.leader) > 0) assert_int_equal(poll_once(&f, &texts), SEQUENCES_KEPT);
  assert_int_equal(kill(leader_pid(f.leader, 1), SIGSTOP), 0); /* the other two texts cannot end before it dies */
  for (int d = 1; d < NODES; d++) begin_text(&f, &texts, 5, 40, -1, d);
  assert_int_equal(kill(leader_pid(f.leader, 1), SIGKILL), 0);
  const double began = clock_now();
  while (lost == SEQUENCES_KEPT) {
    lost = poll_once(&f, &texts);
    if (clock_now() - began > MOST_SECONDS) fail_msg("a dead process is not noticed");
  }
  assert_int_equal(lost, SEQUENCES_FAILED);
  assert_false(leader_is_here(f.leader, 1));
  for (int d = 0; d < NODES; d++) assert_int_equal(leader_sequences_on(f.leader, d), 0);
  texts.count = 0;
  begin_text(&f, &texts, 13, 6, -1, 0);
  begin_text(&f, &texts, 13, 6, -1, 2);
  finish(&f, &texts);
  assert_int_equal(token_split_init(&f.split, 2, NULL), STATUS_OK);
  compare(&f, &texts.text[0], 6, 0);
  compare(&f, &texts.text[1], 6, 1);
  leader_stop(f.leader);
  sample_fixture_no_children();
  sample_fixture_close(&f.base);
}

/* Number 0 of every token is 0, but at one position it is all there is: there alone the keys of block 0 are too large for 16 bits. */
static void break_position(ParamSet *params, int64_t position, int64_t width) {
  int found = 0;
  for (size_t i = 0; i < params->count; i++) {
    const char *name = params->list[i].name;
    real *value = params->list[i].tensor.value;
    const int64_t rows = params->list[i].tensor.shape[0];
    const bool keys = strcmp(name, "transformer.h.0.attn.c_attn.weight") == 0;
    const bool positions = strcmp(name, "transformer.wpe.weight") == 0;
    if (positions || strcmp(name, "transformer.wte.weight") == 0)
      for (int64_t row = 0; row < rows; row++) value[row * width] = 0;
    if (positions) value[position * width] = 1e4;
    for (int64_t key = width; keys && key < 2 * width; key++) value[rows == width ? key : key * width] = 1e5;
    found += keys || positions;
  }
  assert_int_equal(found, 2);
}

/* One whose prompt cannot be computed: it alone ends with that, and the others are started again. */
static void check_broken_text(OnFailure policy) {
  enum { BROKEN = 40 };
  Fixture f = {.cluster = {.on_failure = policy}};
  ModelConfig config = {0};
  assert_int_equal(sample_config(&config, "tiny-gpt2", GROUPS, ENTRIES, 4, CLASS_NONE), STATUS_OK);
  sample_fixture_make(&f.base, &config);
  break_position(model_params(f.base.sample.model), BROKEN, f.base.sample.config.width);
  sample_fixture_save(&f.base);
  sample_ids(&f.base.sample.config, 5, CONTEXT, f.ids);
  f.base.weights.cache_kind = NARROW_F16;
  start(&f, NODES, "1,1,1");
  Texts texts = {.count = 0};
  begin_text(&f, &texts, 13, 20, -1, 0);
  const Text *broken = begin_text(&f, &texts, BROKEN + 2, 3, -1, 1);
  const double until = clock_now() + MOST_SECONDS;
  SequenceLoss lost = SEQUENCES_KEPT;
  while (lost == SEQUENCES_KEPT && clock_now() < until) lost = poll_once(&f, &texts);
  assert_int_equal(lost, SEQUENCES_MOVED); /* no device has failed */
  assert_int_equal(broken->end, SEQUENCE_NUMERIC);
  assert_int_equal(broken->count, 1);
  texts.count = 0;
  const Text *text = begin_text(&f, &texts, 13, 20, -1, 1);
  broken = begin_text(&f, &texts, BROKEN - 2, 9, -1, 1); /* beside it on a device, and in the middle of decoding */
  finish(&f, &texts);
  assert_int_equal(text->end, SEQUENCE_LENGTH);
  assert_int_equal(text->count, 20);
  assert_int_equal(broken->end, SEQUENCE_NUMERIC);
  assert_int_equal(broken->count, 4); /* of positions 37, 38 and 39, and the end */
  stop(&f);
  sample_fixture_close(&f.base);
}

/* Whatever is done where a device fails: none has. */
static void a_text_that_cannot_be_computed_ends_alone(void **state) {
  (void)state;
  check_broken_text(ON_FAILURE_RERUN);
  check_broken_text(ON_FAILURE_ABORT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(spans_are_rotated),
      cmocka_unit_test(each_home_has_the_last_span),
      cmocka_unit_test(all_tokens_are_in_full),
      cmocka_unit_test(on_one_device),
      cmocka_unit_test(drafts_change_no_text),
      cmocka_unit_test(one_is_stopped),
      cmocka_unit_test(each_is_told_to_stop),
      cmocka_unit_test(a_death_loses_them_once),
      cmocka_unit_test(an_idle_device_drafts),
      cmocka_unit_test(a_text_that_cannot_be_computed_ends_alone),
      cmocka_unit_test(drafts_of_devices_are_checked),
      cmocka_unit_test(no_more_tokens_come_than_there_can_be),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
