/* Fuzz target: what a hostile leader may send to a node, and a hostile node to its leader: one message, a header and its payload, in a
 * cluster for texts and in one for images. Holds: a request that is accepted has as many bytes as its shape says, within what was agreed;
 * its ids are in the vocabulary, its settings in range; no answer to it is longer than the most that was set aside; numbers of an answer
 * that are accepted, and tokens of sequences, are possible by themselves, and pack to the same bytes. */
#include "fuzz/fuzz.h"
#include "infer/patches.h"
#include "infer/request.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCABULARY = 11, BATCH = 3, TOKENS = 7, NODES = 3, PIXELS = 3 * 4 * 4 };

static void check_ids(const uint8_t *bytes, int64_t count, int64_t min) {
  int32_t ids[BATCH * TOKENS];
  if (request_parse_ids(bytes, count, min, VOCABULARY, ids) != STATUS_OK) return;
  for (int64_t i = 0; i < count; i++) need(ids[i] >= min && ids[i] < VOCABULARY);
}

static void check_sampling(const uint8_t *bytes, const NodeSetup *setup) {
  Sampling s;
  if (request_sampling(byte_cursor_from(bytes), setup, &s) != STATUS_OK) return;
  need(s.max >= 0 && s.max <= TOKENS && s.vocabulary >= 1 && s.vocabulary <= VOCABULARY && s.top_k >= 0 && s.ends <= CONFIG_ENDS);
  need(isfinite(s.temperature) && s.temperature >= 0 && s.top_p > 0 && s.top_p <= 1 && s.min_p >= 0 && s.min_p < 1);
  need(isfinite(s.repetition_penalty) && s.repetition_penalty >= 0 && isfinite(s.frequency_penalty) && isfinite(s.presence_penalty));
  need(s.made >= 0 && s.made <= TOKENS && s.drawn <= (uint64_t)s.made && s.biases >= 0 && s.biases <= SAMPLING_BIASES);
  for (int i = 0; i < s.biases; i++) need(s.bias[i].id >= 0 && s.bias[i].id < VOCABULARY && isfinite((double)s.bias[i].add));
}

static void check_sequence(const uint8_t *bytes, const NodeSetup *setup) {
  SequenceOptions options = {.echo = false};
  check_sampling(bytes, setup);
  if (request_sequence(byte_cursor_from(bytes), setup, &options) != STATUS_OK) return;
  need(options.sampling.max >= 1 && options.top >= -1 && options.top <= SAMPLER_TOP && options.speculation < SPECULATION_MODE_COUNT);
  need(!options.echo || options.top >= 0);
}

/* In a buffer of the payload's own size, where one byte too many shows. */
static void check_payload(const Request *request, const NodeSetup *setup, const uint8_t *payload, size_t size) {
  int64_t count = request->batch * request->tokens;
  uint8_t *copy = malloc(size);
  need(copy != NULL);
  memcpy(copy, payload, size);
  if (request->kind == WIRE_PROMPT) check_sampling(copy, setup);
  if (request->kind == WIRE_SEQUENCE) check_sequence(copy, setup);
  check_ids(copy + (request->kind == WIRE_PROMPT ? REQUEST_SAMPLING : request->kind == WIRE_SEQUENCE ? REQUEST_SEQUENCE : 0), count, 0);
  if (request->kind == WIRE_SCORE) check_ids(copy + 4 * count, count, -1);
  free(copy);
}

/* Likewise: of a node with tokens 1 and 2 of the four of an image. What is read packs to the same bytes. */
static void check_patches(const Request *request, const NodeSetup *setup, const uint8_t *payload, size_t size) {
  const ModelConfig *config = setup->weights->config;
  int32_t tokens[] = {1, 2};
  const TokenLayout layout = {.rows = 2, .row_token = tokens};
  uint8_t *copy = malloc(size), *again = malloc(size);
  real pixels[BATCH * PIXELS] = {0};
  need(copy && again);
  memcpy(copy, payload, size);
  if (patches_parse(copy, config, &layout, request->batch, request->levels, pixels) == STATUS_OK && !request->levels && !REAL_IS_DOUBLE) {
    patches_pack(config, &layout, request->batch, (const float *)pixels, NULL, again);
    need(memcmp(again, copy, size) == 0);
  }
  free(copy);
  free(again);
}

static void check_request(const NodeSetup *setup, const uint8_t *data, size_t size) {
  const RequestShare own = {.class_rows = 1, .sent_rows = 4, .tokens = 2};
  WireHeader header;
  Request request;
  if (size < WIRE_HEADER || wire_parse(data, request_max_bytes(setup, &own), &header) != STATUS_OK) return;
  if (request_read(&request, setup, &own, &header) != STATUS_OK) return;
  need(request.batch >= 1 && request.batch <= BATCH && header.bytes == request_bytes(setup, &request, &own));
  for (int last = 0; last < 2; last++) {
    RequestShare max = {.sent_rows = TOKENS, .last = true}, share = {.sent_rows = last ? 0 : request.tokens, .last = last};
    if (!setup->split) max = share = own;
    need(request_answer_bytes(setup, &request, &share) <= request_max_answer_bytes(setup, &max));
  }
  if (size - WIRE_HEADER < header.bytes) return;
  if (!setup->split) {
    check_patches(&request, setup, data + WIRE_HEADER, header.bytes);
    return;
  }
  need(request.tokens >= 1 && request.tokens <= TOKENS);
  check_payload(&request, setup, data + WIRE_HEADER, header.bytes);
}

static void check_answers(const uint8_t *data, size_t size) {
  uint8_t again[REQUEST_DECODING];
  RequestDecoding decoding;
  RequestScore score;
  if (size >= REQUEST_DECODING && request_decoding(byte_cursor_from(data), &decoding) == STATUS_OK) {
    need(isfinite(decoding.seconds) && decoding.seconds >= 0);
    need((decoding.row_bytes | decoding.code_bytes | decoding.buffer_bytes) < (uint64_t)1 << 61);
    request_decoding(byte_cursor_to(again), &decoding);
    need(memcmp(again, data, REQUEST_DECODING) == 0);
  }
  if (size >= REQUEST_SCORE && request_score(byte_cursor_from(data), &score) == STATUS_OK) {
    need(isfinite(score.loss) && score.correct <= score.counted && (score.counted || score.loss >= 0));
    request_score(byte_cursor_to(again), &score);
    need(memcmp(again, data, REQUEST_SCORE) == 0);
  }
}

/* Of one step, in a buffer of their own size. */
static void check_decoded(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size + (size == 0)), again[DECODED_MAX];
  need(copy != NULL);
  if (size > 0) memcpy(copy, data, size);
  const uint8_t *end = copy + size;
  ByteCursor at = byte_cursor_from(copy);
  DecodedToken token = {.number = 0};
  while (at.at < end && request_decoded(&at, end, VOCABULARY, &token) == STATUS_OK) {
    need(at.at <= end && token.id >= 0 && token.id < VOCABULARY && token.end < SEQUENCE_END_COUNT && token.drawn <= token.number);
    need(token.top_count >= 0 && token.top_count <= SAMPLER_TOP && token.drafts >= 0 && token.drafts <= SPECULATION_MAX);
    need(token.wanted >= 0 && token.wanted <= SPECULATION_MAX);
    bool numbers = !isnan(token.logprob);
    for (int i = 0; i < token.top_count; i++) {
      need(token.top[i].id >= 0 && token.top[i].id < VOCABULARY);
      numbers &= !isnan(token.top[i].logprob);
    }
    ByteCursor packed = byte_cursor_to(again);
    need(request_decoded(&packed, NULL, 0, &token) == STATUS_OK);
    const size_t bytes = (size_t)(packed.at - again);
    need(!numbers || REAL_IS_DOUBLE || memcmp(again, at.at - bytes, bytes) == 0);
  }
  free(copy);
}

/* A DRAFT, DRAFTS or DRAFTED. */
static void check_draft(const NodeSetup *setup, const uint8_t *data, size_t size) {
  int32_t ids[TOKENS + SPECULATION_CHAIN];
  int64_t base, count;
  uint8_t again[4 + sizeof ids];
  if (size < 8 || size > 4 + sizeof ids) return; /* as the receivers check (node.c, leader_sequences.c) */
  if (request_parse_draft(data, (uint32_t)size, setup, &base, ids, &count) != STATUS_OK) return;
  need(base >= 0 && count >= 1 && base + count <= TOKENS + SPECULATION_CHAIN);
  for (int64_t i = 0; i < count; i++) need(ids[i] >= 0 && ids[i] < VOCABULARY);
  need(request_draft(again, base, ids, count) == size && memcmp(again, data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  ModelConfig classes = {.vocabulary = VOCABULARY, .context = TOKENS, .width = 4, .blocks = 2, .classes = 3},
              text = {.vocabulary = VOCABULARY, .context = TOKENS, .width = 4, .blocks = 2},
              image = {.channels = 3, .image = 4, .patch = 2, .width = 4, .blocks = 2, .image_std = {1, 1, 1}};
  Codebook book = {.groups = 2, .entries = 5, .width = 4};
  TokenSplit split = {.nodes = NODES, .weights = {1, 1, 1}};
  Partition partition = {.nodes = NODES, .tokens = 4};
  Weights texts = {.config = &text, .books = &book, .book_count = 2}, images = {.config = &image, .books = &book, .book_count = 2};
  NodeSetup setup = {.weights = &texts, .batch_max = BATCH, .keep_codes = true, .split = &split, .tokens_max = TOKENS};
  check_request(&setup, data, size);
  setup.sequences = 2;
  check_request(&setup, data, size);
  check_draft(&setup, data, size);
  texts.config = &classes;
  check_request(&setup, data, size);
  setup = (NodeSetup){.weights = &images, .partition = &partition, .batch_max = BATCH, .keep_codes = true};
  check_request(&setup, data, size);
  check_answers(data, size);
  check_decoded(data, size);
  return 0;
}
