/* Sizes, packing and checks of requests and their answers: see request.h. */
#include "infer/request.h"
#include "infer/patches.h"
#include "vq/pack.h"
#include <math.h>

static const double min_loss = 1e-6; /* of a token: what rounding may take off 0 */

/* ---- the table ---- */

typedef struct RequestForm {
  uint8_t kind;
  bool text, classes; /* it is of texts; the model must have classes */
  size_t fixed;       /* bytes before the samples */
  size_t token_bytes; /* for each token of a text */
} RequestForm;

static const RequestForm forms[] = {{.kind = WIRE_CLASSIFY, .classes = true},
                                    {.kind = WIRE_CLASSIFY, .text = true, .classes = true, .token_bytes = 4},
                                    {.kind = WIRE_PROMPT, .text = true, .fixed = REQUEST_SAMPLING, .token_bytes = 4},
                                    {.kind = WIRE_SEQUENCE, .text = true, .fixed = REQUEST_SEQUENCE, .token_bytes = 4},
                                    {.kind = WIRE_SCORE, .text = true, .token_bytes = 8},
                                    {.kind = WIRE_LAST, .text = true, .token_bytes = 4}};

enum { FORMS = sizeof forms / sizeof *forms };

/* NULL: the setup's model has no such requests. */
static const RequestForm *form_of(const NodeSetup *setup, uint8_t message) {
  for (int i = 0; i < FORMS; i++) {
    if (forms[i].kind == message && forms[i].text == (setup->split != NULL)) return &forms[i];
  }
  return NULL;
}

const char *request_unit(const NodeSetup *setup) { return setup->split ? "sequences" : "images"; }

/* ---- sizes ---- */

size_t request_bytes(const NodeSetup *setup, const Request *request, const RequestShare *share) {
  const RequestForm *form = form_of(setup, request->kind);
  if (!form->text) return patches_bytes(setup->weights->config, request->batch, share->tokens, request->levels);
  return form->fixed + (size_t)(request->batch * request->tokens) * form->token_bytes;
}

size_t request_code_bytes(const NodeSetup *setup, const Request *request, const RequestShare *share) {
  const Weights *weights = setup->weights;
  if (!request->codes) return 0;
  return (size_t)weights->book_count * (size_t)(request->batch * share->sent_rows) *
         pack_bytes_per_token(weights->books[0].groups, weights->books[0].entries);
}

size_t request_answer_bytes(const NodeSetup *setup, const Request *request, const RequestShare *share) {
  size_t bytes = WIRE_STATISTICS + request_code_bytes(setup, request, share);
  switch (request->kind) {
  case WIRE_PROMPT:
    return bytes + REQUEST_DECODING;
  case WIRE_SEQUENCE:
    return bytes;
  case WIRE_SCORE:
    return bytes + REQUEST_SCORE;
  default: /* of images class-token replicas; of texts logits, or those of classes, from the node with the last token */
    if (!form_of(setup, request->kind)->text)
      return bytes + (size_t)(request->batch * share->class_rows * setup->weights->config->width) * 4;
    return bytes + (share->last ? (size_t)(request->batch * weights_outputs(setup->weights)) * 4 : 0);
  }
}

static bool serves(const NodeSetup *setup, const RequestForm *form) {
  bool decodes = strategy_facts(setup->strategy)->decodes && (form->kind == WIRE_PROMPT || setup->sequences > 0);
  bool possible = decodes || (form->kind != WIRE_PROMPT && form->kind != WIRE_SEQUENCE);
  bool head = form->classes == (setup->weights->config->classes > 0);
  return form->text == (setup->split != NULL) && (head || !form->text) && possible;
}

bool request_serves(const NodeSetup *setup, uint8_t kind) {
  const RequestForm *form = form_of(setup, kind);
  return form != NULL && serves(setup, form);
}

/* One text a request. */
static bool is_single(const RequestForm *form) { return form->kind == WIRE_PROMPT || form->kind == WIRE_SEQUENCE; }

typedef size_t RequestBytes(const NodeSetup *setup, const Request *request, const RequestShare *share);

static size_t max_of_all(const NodeSetup *setup, const RequestShare *share, RequestBytes *bytes_of) {
  size_t max = 0;
  for (int i = 0; i < FORMS; i++) {
    const int64_t batch = is_single(&forms[i]) ? 1 : setup->batch_max;
    const Request largest = {.kind = forms[i].kind, .codes = setup->keep_codes, .batch = batch, .tokens = setup->tokens_max};
    size_t bytes = serves(setup, &forms[i]) ? bytes_of(setup, &largest, share) : 0;
    if (bytes > max) max = bytes;
  }
  return max;
}

size_t request_max_bytes(const NodeSetup *setup, const RequestShare *share) { return max_of_all(setup, share, request_bytes); }

size_t request_max_answer_bytes(const NodeSetup *setup, const RequestShare *share) {
  return max_of_all(setup, share, request_answer_bytes);
}

/* ---- a header from the wire ---- */

Status request_read(Request *request, const NodeSetup *setup, const RequestShare *share, const WireHeader *header) {
  const RequestForm *form = form_of(setup, header->kind);
  if (!form || !serves(setup, form)) return status_set(STATUS_BAD_VALUE, "sent an unexpected %s message", wire_kind_name(header->kind));
  int64_t max = is_single(form) ? 1 : setup->batch_max;
  *request = (Request){.kind = header->kind, .codes = header->flags & WIRE_WANT_CODES, .batch = header->count};
  if (header->kind == WIRE_SEQUENCE) request->home = header->block;
  if (header->kind == WIRE_SEQUENCE && (request->home < 1 || request->home > node_setup_count(setup)))
    return status_set(STATUS_BAD_VALUE, "sent a sequence for node %d of %d", request->home - 1, node_setup_count(setup));
  if (header->count < 1 || header->count > max)
    return status_set(STATUS_BAD_VALUE, "sent a request of %u %s; 1 to %lld were agreed", header->count, request_unit(setup),
                      (long long)max);
  if (!form->text) { /* either of two lengths: which form they have follows from it */
    for (int levels = 0; levels < 2; levels++) {
      request->levels = levels;
      if (header->bytes == request_bytes(setup, request, share)) return STATUS_OK;
    }
    return status_set(STATUS_BAD_VALUE, "sent %u bytes of patches for %u images", header->bytes, header->count);
  }
  /* T from the length, which must be a whole number of tokens for each sequence. */
  int64_t each = request->batch * (int64_t)form->token_bytes, bytes = (int64_t)header->bytes - (int64_t)form->fixed;
  if (bytes < each || bytes % each)
    return status_set(STATUS_BAD_VALUE, "sent %u bytes for %u sequences of ids", header->bytes, header->count);
  request->tokens = bytes / each;
  if (request->tokens <= setup->tokens_max) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a sequence of %lld tokens; at most %lld were agreed", (long long)request->tokens,
                    (long long)setup->tokens_max);
}

/* ---- fixed parts ---- */

enum { MAX_PENALTY = 100 }; /* more than logits differ by; a product of tokens and penalty stays finite */
static bool is_penalty(double value) { return isfinite(value) && fabs(value) <= MAX_PENALTY; }

/* offset 0 max u32 | 4 vocabulary u32 | 8 top k u32 | 12 ends u16 | 14 stream u16 | 16 seed u64 | 24 temperature f32 | 28 top p f32 | 32
 * ends i32 [8] | 64 min p f32 | 68 repetition penalty f32 | 72 frequency penalty f32 | 76 presence penalty f32 | 80 drawn u64 | 88 made u32
 * | 92 biases u32 | 96 (id i32, bias f32) [32] */
Status request_sampling(ByteCursor c, const NodeSetup *setup, Sampling *s) {
  if (c.parses) *s = (Sampling){0};
  BYTE_CURSOR_FIELD(&c, 32, s->max);
  BYTE_CURSOR_FIELD(&c, 32, s->vocabulary);
  BYTE_CURSOR_FIELD(&c, 32, s->top_k);
  BYTE_CURSOR_FIELD(&c, 16, s->ends);
  BYTE_CURSOR_FIELD(&c, 16, s->stream);
  BYTE_CURSOR_FIELD(&c, 64, s->seed);
  byte_cursor_float(&c, &s->temperature);
  byte_cursor_float(&c, &s->top_p);
  for (int i = 0; i < CONFIG_ENDS; i++) {
    int32_t end = i < s->ends ? s->end[i] : 0;
    BYTE_CURSOR_FIELD(&c, 32, end);
    if (i < s->ends) s->end[i] = end;
  }
  byte_cursor_float(&c, &s->min_p);
  byte_cursor_float(&c, &s->repetition_penalty);
  byte_cursor_float(&c, &s->frequency_penalty);
  byte_cursor_float(&c, &s->presence_penalty);
  BYTE_CURSOR_FIELD(&c, 64, s->drawn);
  BYTE_CURSOR_FIELD(&c, 32, s->made);
  uint32_t biases = (uint32_t)s->biases;
  byte_cursor_u32(&c, &biases);
  s->biases = biases <= SAMPLING_BIASES ? (int)biases : SAMPLING_BIASES + 1;
  for (int i = 0; i < SAMPLING_BIASES; i++) {
    SamplingBias bias = i < s->biases ? s->bias[i] : (SamplingBias){0};
    double add = (double)bias.add;
    BYTE_CURSOR_FIELD(&c, 32, bias.id);
    byte_cursor_float(&c, &add);
    if (i < s->biases) s->bias[i] = (SamplingBias){bias.id, (float)add};
  }
  if (!c.parses) return STATUS_OK;
  const int64_t vocabulary = setup->weights->config->vocabulary;
  bool sound = s->max <= setup->tokens_max && s->vocabulary >= 1 && s->vocabulary <= vocabulary && isfinite(s->temperature) &&
               s->temperature >= 0 && s->top_p > 0 && s->top_p <= 1 && s->ends <= CONFIG_ENDS && s->min_p >= 0 && s->min_p < 1 &&
               s->repetition_penalty >= 0 && is_penalty(s->repetition_penalty) && is_penalty(s->frequency_penalty) &&
               is_penalty(s->presence_penalty) && s->made <= setup->tokens_max && s->drawn <= (uint64_t)s->made &&
               s->biases <= SAMPLING_BIASES;
  if (!sound) return status_set(STATUS_BAD_VALUE, "sent a prompt with settings out of range");
  for (int i = 0; i < s->biases; i++) {
    const SamplingBias *bias = &s->bias[i];
    if (bias->id < 0 || bias->id >= vocabulary || !is_penalty((double)bias->add))
      return status_set(STATUS_BAD_VALUE, "sent a bias of %g for id %d; the model's vocabulary has %lld tokens", (double)bias->add,
                        (int)bias->id, (long long)vocabulary);
  }
  return STATUS_OK;
}

/* offset 352 top i32 | 356 echo u16 | 358 speculation u16 */
Status request_sequence(ByteCursor c, const NodeSetup *setup, SequenceOptions *o) {
  uint16_t echo = o->echo, mode = (uint16_t)o->speculation;
  TRY(request_sampling(c, setup, &o->sampling));
  c.at += REQUEST_SAMPLING;
  BYTE_CURSOR_FIELD(&c, 32, o->top);
  byte_cursor_u16(&c, &echo);
  byte_cursor_u16(&c, &mode);
  if (!c.parses) return STATUS_OK;
  o->echo = echo == 1;
  o->speculation = (SpeculationMode)mode;
  const bool sound = o->top >= -1 && o->top <= SAMPLER_TOP && echo <= 1 && (echo == 0 || o->top >= 0) && mode < SPECULATION_MODE_COUNT;
  if (sound && o->sampling.max >= 1) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a sequence with settings out of range");
}

size_t request_decoded_max(const NodeSetup *setup) {
  const int step = setup->sequences * (1 + SPECULATION_MAX);
  return setup->sequences > 0 ? (size_t)(step > DECODED_PROMPT ? step : DECODED_PROMPT) * DECODED_MAX : 0;
}

/* offset 0 sequence u32 | 4 number u32 | 8 id i32 | 12 end u16 | 14 candidates u16 | 16 drawn u64 | 24 log-probability f32 | 28 drafts u8 |
 * 29 drafted u8 | 30 wanted u16 | 32 shared u32 | 36 zero u32 | 40 (id i32, log-probability f32) [candidates] */
Status request_decoded(ByteCursor *c, const uint8_t *end, int64_t vocabulary, DecodedToken *t) {
  uint8_t drafted = c->parses ? 0 : t->drafted; /* what is read is not looked at before */
  uint32_t zeroes = 0;
  double logprob = c->parses ? 0 : (double)t->logprob;
  if (c->parses && end - c->at < WIRE_DECODED_BYTES) return status_set(STATUS_BAD_VALUE, "sent a part of a token");
  BYTE_CURSOR_FIELD(c, 32, t->sequence);
  BYTE_CURSOR_FIELD(c, 32, t->number);
  BYTE_CURSOR_FIELD(c, 32, t->id);
  BYTE_CURSOR_FIELD(c, 16, t->end);
  BYTE_CURSOR_FIELD(c, 16, t->top_count);
  BYTE_CURSOR_FIELD(c, 64, t->drawn);
  byte_cursor_float(c, &logprob);
  BYTE_CURSOR_FIELD(c, 8, t->drafts);
  byte_cursor_u8(c, &drafted);
  BYTE_CURSOR_FIELD(c, 16, t->wanted);
  BYTE_CURSOR_FIELD(c, 32, t->shared);
  byte_cursor_u32(c, &zeroes);
  t->drafted = drafted == 1;
  t->logprob = (float)logprob;
  bool sound = !c->parses || (t->end < SEQUENCE_END_COUNT && t->id >= 0 && t->id < vocabulary && t->top_count <= SAMPLER_TOP &&
                              t->drawn <= (uint64_t)t->number && t->drafts <= SPECULATION_MAX && drafted <= 1 &&
                              t->wanted <= SPECULATION_MAX && zeroes == 0 && end - c->at >= 8 * t->top_count);
  for (int i = 0; sound && i < t->top_count; i++) {
    double candidate = (double)t->top[i].logprob;
    BYTE_CURSOR_FIELD(c, 32, t->top[i].id);
    byte_cursor_float(c, &candidate);
    t->top[i].logprob = (float)candidate;
    sound = !c->parses || (t->top[i].id >= 0 && t->top[i].id < vocabulary);
  }
  return sound ? STATUS_OK : status_set(STATUS_BAD_VALUE, "sent an invalid token");
}

_Static_assert(WIRE_DRAFTS_BYTES == 4 + 4 * SPECULATION_CHAIN, "a chain of drafts");

/* offset 0 base u32 | 4 ids i32 [count] */
size_t request_draft(uint8_t *bytes, int64_t base, const int32_t *ids, int64_t count) {
  wire_put_u32(bytes, (uint32_t)base);
  request_pack_ids(ids, count, bytes + 4);
  return (size_t)(4 + 4 * count);
}

Status request_parse_draft(const uint8_t *bytes, uint32_t size, const NodeSetup *setup, int64_t *base, int32_t *ids, int64_t *count) {
  *base = wire_get_u32(bytes);
  *count = ((int64_t)size - 4) / 4;
  if (size < 8 || size % 4 != 0 || *base + *count > setup->tokens_max + SPECULATION_CHAIN)
    return status_set(STATUS_BAD_VALUE, "sent %u bytes of drafts from token %lld on; a text has at most %lld", size, (long long)*base,
                      (long long)setup->tokens_max);
  return request_parse_ids(bytes + 4, *count, 0, setup->weights->config->vocabulary, ids);
}

void request_pack_ids(const int32_t *ids, int64_t count, uint8_t *bytes) {
  for (int64_t i = 0; i < count; i++) wire_put_u32(bytes + 4 * i, (uint32_t)ids[i]);
}

Status request_parse_ids(const uint8_t *bytes, int64_t count, int64_t min, int64_t vocabulary, int32_t *ids) {
  for (int64_t i = 0; i < count; i++) {
    ids[i] = (int32_t)wire_get_u32(bytes + 4 * i);
    if (ids[i] < min || ids[i] >= vocabulary)
      return status_set(STATUS_BAD_VALUE, "sent id %d; the model's vocabulary has %lld tokens", (int)ids[i], (long long)vocabulary);
  }
  return STATUS_OK;
}

/* ---- what answers begin with ---- */

Status request_statistics(ByteCursor c, NodeStatistics *s) {
  bool times = true;
#define REQUEST_FIELD(name) byte_cursor_double(&c, &s->name), times = times && isfinite(s->name) && s->name >= 0;
  WIRE_SECONDS(REQUEST_FIELD)
#undef REQUEST_FIELD
#define REQUEST_FIELD(name) byte_cursor_u64(&c, &s->name);
  WIRE_COUNTS(REQUEST_FIELD)
#undef REQUEST_FIELD
  return times || !c.parses ? STATUS_OK : status_set(STATUS_BAD_VALUE, "statistics with an invalid time");
}

Status request_decoding(ByteCursor c, RequestDecoding *d) {
  byte_cursor_double(&c, &d->seconds);
  byte_cursor_u64(&c, &d->tokens);
  byte_cursor_u64(&c, &d->row_bytes);
  byte_cursor_u64(&c, &d->code_bytes);
  byte_cursor_u64(&c, &d->buffer_bytes);
  if (!c.parses) return STATUS_OK;
  if (!isfinite(d->seconds) || d->seconds < 0) return status_set(STATUS_BAD_VALUE, "answered with an invalid time");
  const uint64_t max = (uint64_t)1 << 60;
  if (d->row_bytes <= max && d->code_bytes <= max && d->buffer_bytes <= max) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "answered with more bytes of memory than there can be");
}

Status request_score(ByteCursor c, RequestScore *s) {
  byte_cursor_double(&c, &s->loss);
  byte_cursor_u64(&c, &s->counted);
  byte_cursor_u64(&c, &s->correct);
  if (!c.parses) return STATUS_OK;
  if (!isfinite(s->loss)) return status_set(STATUS_NUMERIC, "the loss is not a finite number");
  if (s->correct <= s->counted && s->loss >= -min_loss * (double)s->counted) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "answered with %llu right of %llu tokens and a loss of %g", (unsigned long long)s->correct,
                    (unsigned long long)s->counted, s->loss);
}
