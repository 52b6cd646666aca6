/* See node_sequences.h. Keys and values are in pages (nn/kv_pages.h); everything else that a sequence needs is its sampler, and
 * its text for drafts (speculation.h). */
#include "infer/node_sequences.h"
#include "base/clock.h"
#include "infer/request.h"
#include "infer/speculation.h"
#include "nn/decode_batch.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Seconds: a reply of which nothing is known yet, and the longest wait for one; and how many times the usual reply that is. */
static const double first_reply = 0.05, longest_wait = 0.25, wait_replies = 4;

typedef struct NodeSequence {
  uint32_t number; /* of its request; 0: the place is free */
  int place;       /* in the pages */
  Sampler sampler; /* allocated with the first sequence of this place */
  int top;
  int32_t *text;  /* [setup->tokens_max + 1] prompt and new tokens; keys and values of the last one are computed next */
  int64_t count;  /* of text */
  int64_t shared; /* of the prompt; 0 when it is told */
  uint32_t made;  /* new tokens, those of before it came here included */
  uint32_t enough;
  bool stopped;
  SpeculationMode mode;
  SpeculationRecord record;
  int drafts, length; /* of a step: tokens behind the last one, and of the occurrence that they followed */
  bool foreign;       /* they are another device's */
  int asked;          /* drafts that another device is asked for; 0: none */
  bool hears;         /* that device has drafts in time */
  bool answered;      /* it has, since it was asked */
  double told;        /* clock_now: when it was asked, with the last tokens */
  double waited;      /* since then, for the drafts of this step; < 0: they were not waited for */
  int64_t base;       /* of the text, where its chain begins */
  int chained;        /* ids of the chain; 0: there is none */
  int32_t chain[SPECULATION_CHAIN];
  int32_t next[1 + SPECULATION_MAX]; /* of a step: the last token, and drafts of what follows it */
} NodeSequence;

struct NodeSequences {
  const NodeSetup *setup;
  int self;
  Connection *control;
  KvPages *pages;
  NodeSequence *list;   /* [setup->sequences] */
  NodeSequence *newest; /* the one that joined last */
  DecodeRows *rows;     /* [setup->sequences] of a step */
  int *row_of;          /* [setup->sequences] whose rows these are */
  SpeculationCosts costs;
  SpeculationDrafter drafter;
  double reply;         /* seconds that another device usually takes to draft */
  uint8_t *messages;    /* a ring of CONNECTION_QUEUE: they stay here until they are sent */
  size_t message_bytes; /* of one */
  int message;
};

/* ---- beginning and end ---- */

/* Of as many sequences as were agreed on. Their memory is committed as it is used. */
static Status make_pages(NodeSequences *q, const KvCacheSetup *cache) {
  KvPagesSetup setup = {
      .cache = *cache, .heads = (int)q->setup->weights->config->kv_heads, .page = KV_PAGES_TOKENS, .sequences = q->setup->sequences};
  setup.bytes = kv_pages_bytes(&setup);
  return kv_pages_new(&q->pages, &setup);
}

Status node_sequences_new(NodeSequences **out, const NodeSetup *setup, int self, const KvCacheSetup *cache, Connection *control) {
  const size_t count = (size_t)setup->sequences;
  NodeSequences *q = *out = calloc(1, sizeof *q);
  if (!q) return status_no_memory(NULL, "sequences");
  *q = (NodeSequences){
      .setup = setup, .self = self, .control = control, .reply = first_reply, .message_bytes = WIRE_HEADER + request_decoded_max(setup)};
  const bool memory = (q->list = calloc(count, sizeof *q->list)) && (q->rows = calloc(count, sizeof *q->rows)) &&
                      (q->row_of = calloc(count, sizeof *q->row_of)) && (q->messages = malloc(CONNECTION_QUEUE * q->message_bytes));
  Status status = memory ? make_pages(q, cache) : status_set(STATUS_NO_MEMORY, "no memory for %d sequences", setup->sequences);
  if (status == STATUS_OK) return STATUS_OK;
  node_sequences_free(q);
  *out = NULL;
  return status;
}

void node_sequences_free(NodeSequences *q) {
  if (!q) return;
  for (int i = 0; q->list && i < q->setup->sequences; i++) {
    sampler_release(&q->list[i].sampler);
    free(q->list[i].text);
  }
  kv_pages_free(q->pages);
  free(q->list);
  free(q->rows);
  free(q->row_of);
  free(q->messages);
  free(q);
}

/* ---- prompts ---- */

static void leave(NodeSequences *q, NodeSequence *s) {
  kv_pages_leave(q->pages, s->place);
  s->number = 0;
}

Status node_sequences_join(NodeSequences *q, uint32_t number, const SequenceOptions *options, const int32_t *ids, int64_t count,
                           const KvSpans *spans, int64_t *shared) {
  const Sampling *sampling = &options->sampling;
  const int64_t max = q->setup->tokens_max, room = count + sampling->max < max ? count + sampling->max : max;
  NodeSequence *s = NULL;
  for (int i = 0; i < q->setup->sequences; i++) {
    if (q->list[i].number > 0 && q->list[i].stopped) leave(q, &q->list[i]);
  }
  for (int i = 0; i < q->setup->sequences && !s; i++) s = q->list[i].number == 0 ? &q->list[i] : NULL;
  if (!s) return status_set(STATUS_BUSY, "%d sequences are decoded already", q->setup->sequences);
  if (!s->sampler.order) TRY(sampler_init(&s->sampler, q->setup->weights->config->vocabulary));
  if (!s->text && !(s->text = malloc((size_t)(max + 1) * sizeof *s->text))) return status_no_memory(NULL, "the ids of a text");
  TRY(sampler_start(&s->sampler, sampling, ids, count));
  TRY(kv_pages_join(q->pages, ids, count, spans, room, &s->place, shared));
  s->shared = *shared;
  memcpy(s->text, ids, (size_t)count * sizeof *ids);
  s->count = count;
  s->mode = options->speculation;
  s->record = (SpeculationRecord){0};
  s->number = number;
  s->top = options->top;
  s->made = (uint32_t)sampling->made;
  s->enough = s->made + (uint32_t)sampling->max;
  s->stopped = false;
  s->hears = false;
  s->chained = 0;
  q->newest = s;
  return STATUS_OK;
}

Status node_sequences_take(NodeSequences *q, const KvCache *cache, const int32_t *ids) {
  return kv_pages_take(q->pages, q->newest->place, cache, ids);
}

Status node_sequences_compute(NodeSequences *q, Tape *tape, const int32_t *ids, int64_t count, int64_t shared, Tensor **logits) {
  const DecodeRows rows = {.sequence = q->newest->place, .ids = ids + shared, .count = count - shared, .logits = 1};
  *logits = decode_batch(q->setup->weights->model, tape, q->pages, &rows, 1);
  if (!*logits) return tape_status(tape);
  kv_pages_keep(q->pages, q->newest->place, ids + shared, count - shared);
  return STATUS_OK;
}

/* ---- the rows of a step ---- */

/* Drafts end where the text does in any case: there is nothing to pick after its last token. */
static int max_drafts(const NodeSequences *q, const NodeSequence *s) {
  const int64_t wanted = s->enough - s->made - 1, room = kv_pages_room(q->pages, s->place) - 1, min = wanted < room ? wanted : room;
  return min < 0 ? 0 : min < SPECULATION_MAX ? (int)min : SPECULATION_MAX;
}

/* Drafts of another device where they are there, unless look-up has more, of which as many are right. */
static DecodeRows rows_of(const NodeSequences *q, NodeSequence *s) {
  const int max = max_drafts(q, s), asked = s->asked < max ? s->asked : max;
  const bool looks_up = s->mode == SPECULATION_AUTO || s->mode == SPECULATION_LOOKUP;
  const int here = speculation_follow(s->text, s->count, s->base, s->chain, s->chained), foreign = here < asked ? here : asked;
  s->next[0] = s->text[s->count - 1];
  s->drafts = looks_up ? speculation_look_up(s->text, s->count, max, s->next + 1, &s->length) : 0;
  if (s->mode == SPECULATION_AUTO) s->drafts = speculation_worth(&q->costs, &s->record, s->length, s->drafts);
  s->foreign = foreign > 0 && (foreign >= s->drafts || speculation_prefers(&q->drafter, &s->record, s->length));
  if (s->foreign) {
    s->drafts = foreign;
    memcpy(s->next + 1, s->chain + s->chained - here, (size_t)foreign * sizeof *s->chain);
  }
  return (DecodeRows){.sequence = s->place, .ids = s->next, .count = 1 + s->drafts, .logits = 1 + s->drafts};
}

/* ---- drafts of another device ---- */

/* The sequence, where it is the only one: no other waits with it. */
static NodeSequence *only_one(const NodeSequences *q) {
  NodeSequence *only = NULL;
  for (int i = 0; i < q->setup->sequences; i++) {
    if (q->list[i].number == 0 || q->list[i].stopped) continue;
    if (only) return NULL;
    only = &q->list[i];
  }
  return only;
}

/* How many are wanted for the next step, told with this one's tokens. */
static void ask(NodeSequences *q, NodeSequence *s) {
  const bool asks = (s->mode == SPECULATION_AUTO || s->mode == SPECULATION_DRAFT) && node_setup_count(q->setup) > 1 && only_one(q) == s;
  s->asked = asks ? speculation_ask(&q->costs, &q->drafter, s->mode == SPECULATION_DRAFT) : 0;
  s->hears &= s->asked > 0;
  s->answered = false;
  s->waited = -1;
  s->told = clock_now();
}

void node_sequences_drafts(NodeSequences *q, uint32_t number, int64_t base, const int32_t *ids, int64_t count) {
  for (int i = 0; i < q->setup->sequences; i++) {
    NodeSequence *s = &q->list[i];
    if (number == 0 || s->number != number || speculation_follow(s->text, s->count, base, ids, (int)count) == 0) continue;
    if (base == s->count && !s->answered) q->reply = 0.8 * q->reply + 0.2 * fmin(clock_now() - s->told, longest_wait);
    s->answered |= base == s->count;
    s->hears = true;
    s->base = base;
    s->chained = (int)count;
    memcpy(s->chain, ids, (size_t)count * sizeof *ids);
  }
}

/* Where it was asked and has not answered, though the step waited, it is not waited for until it is heard again. */
double node_sequences_wait(NodeSequences *q) {
  NodeSequence *s = only_one(q);
  if (!s || !s->hears || s->asked == 0) return 0;
  const double max = fmin(wait_replies * q->reply, longest_wait), left = s->told + max - clock_now();
  const int enough = max_drafts(q, s);
  s->waited = max - fmax(left, 0);
  rows_of(q, s);
  if (s->drafts >= (s->asked < enough ? s->asked : enough) && (s->foreign || !speculation_prefers(&q->drafter, &s->record, s->length)))
    return 0;
  s->hears = left > 0;
  return fmax(left, 0);
}

/* ---- new tokens ---- */

/* The next token of a sequence, which ends with it perhaps. Logits that are no numbers end this sequence alone. */
static DecodedToken pick(NodeSequences *q, NodeSequence *s, const real *logits) {
  DecodedToken token = {.sequence = s->number, .number = ++s->made, .shared = s->shared, .logprob = NAN};
  s->shared = 0;
  if (sampler_pick(&s->sampler, logits, &token.id) != STATUS_OK)
    token.end = SEQUENCE_NUMERIC;
  else if (sampler_ends(&s->sampler, token.id))
    token.end = SEQUENCE_END;
  else if (s->made >= s->enough)
    token.end = SEQUENCE_LENGTH;
  else if (kv_pages_room(q->pages, s->place) == 0)
    token.end = SEQUENCE_CONTEXT;
  s->text[s->count++] = token.id;
  if (token.end != SEQUENCE_NUMERIC && s->top >= 0)
    token.top_count = sampler_logprobs(logits, q->setup->weights->config->vocabulary, token.id, &token.logprob, s->top, token.top);
  token.drawn = s->sampler.drawn;
  token.wanted = s->asked;
  if (token.end != SEQUENCE_GOES_ON) leave(q, s);
  return token;
}

static uint8_t *next_message(NodeSequences *q) {
  q->message = (q->message + 1) % CONNECTION_QUEUE;
  return q->messages + (size_t)q->message * q->message_bytes;
}

static Status send_tokens(NodeSequences *q, uint8_t *message, const uint8_t *end, int count) {
  const WireHeader header = {
      .kind = WIRE_DECODED, .sender = (uint8_t)q->self, .count = (uint32_t)count, .bytes = (uint32_t)(end - message - WIRE_HEADER)};
  TRY(weights_unchanged(q->setup->weights));
  TRY(connection_await_room(q->control));
  wire_pack(&header, message);
  TRY(connection_send(q->control, message, (size_t)(end - message)));
  return connections_step(&q->control, 1, 0);
}

Status node_sequences_echo(NodeSequences *q, uint32_t number, int top, const int32_t *ids, int64_t count, int64_t first,
                           const Tensor *logits) {
  const int64_t vocabulary = q->setup->weights->config->vocabulary, rows = tensor_count(logits) / vocabulary;
  uint8_t *message = next_message(q);
  ByteCursor at = byte_cursor_to(message + WIRE_HEADER);
  int sent = 0;
  for (int64_t i = 0; i < rows && first + i + 1 < count; i++, sent++) {
    const int64_t position = first + i + 1;
    DecodedToken token = {.sequence = number, .number = (uint32_t)position + 1, .id = ids[position], .end = SEQUENCE_PROMPT};
    token.top_count = sampler_logprobs(logits->value + i * vocabulary, vocabulary, token.id, &token.logprob, top, token.top);
    TRY(request_decoded(&at, NULL, 0, &token));
  }
  return sent > 0 ? send_tokens(q, message, at.at, sent) : STATUS_OK;
}

Status node_sequences_begin(NodeSequences *q, const Tensor *logits) {
  uint8_t *message = next_message(q);
  ByteCursor at = byte_cursor_to(message + WIRE_HEADER);
  ask(q, q->newest);
  DecodedToken token = pick(q, q->newest, logits->value);
  TRY(request_decoded(&at, NULL, 0, &token));
  return send_tokens(q, message, at.at, 1);
}

void node_sequences_stop(NodeSequences *q, uint32_t number) {
  for (int i = 0; q && number > 0 && i < q->setup->sequences; i++) q->list[i].stopped |= q->list[i].number == number;
}

bool node_sequences_any(const NodeSequences *q) {
  for (int i = 0; q && i < q->setup->sequences; i++) {
    if (q->list[i].number > 0) return true;
  }
  return false;
}

/* The tokens that follow from a sequence's logits [1 + drafts, V]: one, and as many more as drafts were right packed at the cursor. */
static int take_rows(NodeSequences *q, NodeSequence *s, const real *logits, ByteCursor *at) {
  const int64_t vocabulary = q->setup->weights->config->vocabulary;
  const int drafts = s->drafts, asked = s->foreign || s->waited >= 0 ? s->asked : 0;
  const double waited = fmax(s->waited, 0);
  int count = 0;
  ask(q, s);
  for (bool more = true; more; count++) {
    kv_pages_keep(q->pages, s->place, &s->next[count], 1);
    DecodedToken token = pick(q, s, logits + count * vocabulary);
    token.drafts = count == 0 ? drafts : 0;
    token.drafted = count < drafts && token.end != SEQUENCE_NUMERIC && token.id == s->next[1 + count];
    (void)request_decoded(at, NULL, 0, &token); /* packing does not fail */
    more = token.drafted && token.end == SEQUENCE_GOES_ON;
    if (more) continue;
    const int right = count + token.drafted;
    if (!s->foreign) speculation_note(&s->record, s->length, drafts, right);
    if (asked > 0) speculation_drafted(&q->drafter, asked, s->foreign ? drafts : 0, s->foreign ? right : 0, waited);
  }
  return count;
}

/* A sequence of which keys, values or anything else that it computes has no finite number. */
static DecodedToken fail_one(NodeSequences *q, NodeSequence *s) {
  DecodedToken token = {.sequence = s->number, .number = ++s->made, .end = SEQUENCE_NUMERIC, .logprob = NAN, .drawn = s->sampler.drawn};
  leave(q, s);
  return token;
}

/* Where a step of all came to such numbers: each by itself and without drafts, of which it may have been one, so that none but those at
 * fault end. *made: tokens packed at the cursor. */
static Status step_singly(NodeSequences *q, Tape *tape, int count, ByteCursor *at, int *made) {
  for (int i = 0; i < count; i++) {
    NodeSequence *s = &q->list[q->row_of[i]];
    s->drafts = 0;
    q->rows[i].count = q->rows[i].logits = 1;
    tape_clear(tape);
    const Tensor *logits = decode_batch(q->setup->weights->model, tape, q->pages, &q->rows[i], 1);
    if (!logits && tape_status(tape) != STATUS_NUMERIC) return tape_status(tape);
    if (logits) {
      *made += take_rows(q, s, logits->value, at);
      continue;
    }
    DecodedToken end = fail_one(q, s);
    (void)request_decoded(at, NULL, 0, &end); /* packing does not fail */
    ++*made;
  }
  return STATUS_OK;
}

Status node_sequences_step(NodeSequences *q, Tape *tape) {
  const int64_t vocabulary = q->setup->weights->config->vocabulary;
  const double began = clock_now();
  uint8_t *message = next_message(q);
  ByteCursor at = byte_cursor_to(message + WIRE_HEADER);
  int count = 0, made = 0, rows = 0;
  for (int i = 0; i < q->setup->sequences; i++) {
    NodeSequence *s = &q->list[i];
    if (s->number > 0 && s->stopped) leave(q, s);
    if (s->number == 0) continue;
    q->rows[count] = rows_of(q, s);
    q->row_of[count++] = i;
  }
  if (count == 0) return STATUS_OK;
  tape_clear(tape);
  const Tensor *logits = decode_batch(q->setup->weights->model, tape, q->pages, q->rows, count);
  if (!logits && tape_status(tape) == STATUS_NUMERIC) {
    TRY(step_singly(q, tape, count, &at, &made));
    return send_tokens(q, message, at.at, made);
  }
  if (!logits) return tape_status(tape);
  for (int i = 0; i < count; i++) {
    made += take_rows(q, &q->list[q->row_of[i]], logits->value + rows * vocabulary, &at);
    rows += (int)q->rows[i].count;
  }
  speculation_measure(&q->costs, rows, made, clock_now() - began);
  return send_tokens(q, message, at.at, made);
}
