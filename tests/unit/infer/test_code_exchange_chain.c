/* Predictions in an exchange without a transport: what a receiver makes of a chain of codes, against a plain computation in double; the
 * first block known to both sides; a lost code leaves the prediction alone, which takes the token's place and from which later blocks go
 * on. And single tokens that are lost (CodeExchangeSetup.lose) at both sites. */
#include "autograd/ops/ops.h"
#include "base/arena.h"
#include "infer/code_exchange.h"
#include "unit/float_equal.h"
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

enum { CODED = 3, SITES = 2, WIDTH = 6, GROUPS = 2, ENTRIES = 7, ROWS = 6, MODEL_WIDTH = 10, KNOWN = SITES * WIDTH };

typedef struct Chain {
  Arena *arena;
  Tape *tape;
  Rng rng;
  TokenLayout layout[2];
  Codebook books[CODED * SITES];
  CodeExchange exchange[2];                     /* the sender, the receiver */
  Tensor *weight[SITES], *bias[SITES];          /* of the block at work */
  int lost_block;                               /* of those that are coded, whose first site loses a packet */
  double sent[ROWS][KNOWN], heard[ROWS][KNOWN]; /* what either side knows of each of the sender's tokens */
  double next_sent[ROWS][KNOWN], next_heard[ROWS][KNOWN];
} Chain;

static Tensor *drawn(Chain *c, int dims, int64_t a, int64_t b, int64_t n) {
  Tensor *tensor = tape_tensor(c->tape, dims, (int64_t[]){a, b, n});
  for (int64_t i = 0; i < tensor_count(tensor); i++) tensor->value[i] = (real)(0.5 * rng_normal(&c->rng));
  return tensor;
}

static void open_chain(Chain *c, int first, int lost_block) {
  const int64_t counts[2] = {ROWS, ROWS};
  *c = (Chain){.arena = arena_new((size_t)1 << 30), .lost_block = lost_block};
  c->tape = tape_new(c->arena);
  tape_record(c->tape, false);
  rng_init(&c->rng, 3, 0);
  for (int i = 0; i < CODED * SITES; i++) {
    assert_int_equal(codebook_init(&c->books[i], GROUPS, ENTRIES, WIDTH, NULL), STATUS_OK);
    for (int j = 0; j < ENTRIES * WIDTH; j++) c->books[i].codewords[j] = (real)rng_normal(&c->rng);
    codebook_refresh(&c->books[i]);
  }
  for (int d = 0; d < 2; d++) {
    assert_int_equal(layout_build(&c->layout[d], 2 * ROWS, 2, counts, NULL, CLASS_NONE, d), STATUS_OK);
    const CodeExchangeSetup setup = {.self = d,
                                     .nodes = 2,
                                     .layout = &c->layout[d],
                                     .books = c->books,
                                     .blocks = CODED,
                                     .first = first,
                                     .sites = SITES,
                                     .batch_max = 1,
                                     .min_packets = 2,
                                     .known_width = KNOWN,
                                     .causal = true,
                                     .max_packet = 1000};
    assert_int_equal(code_exchange_init(&c->exchange[d], &setup), STATUS_OK);
    assert_int_equal(code_exchange_begin_request(&c->exchange[d], &(CodeExchangeRequest){.number = 1, .batch = 1}), STATUS_OK);
  }
}

static void close_chain(Chain *c) {
  for (int d = 0; d < 2; d++) {
    code_exchange_release(&c->exchange[d]);
    layout_release(&c->layout[d]);
  }
  for (int i = 0; i < CODED * SITES; i++) codebook_release(&c->books[i]);
  tape_free(c->tape);
  arena_free(c->arena);
}

static double expected(const Chain *c, int site, const double *known, int64_t i) {
  if (c->weight[site] == NULL) return 0;
  const int64_t inputs = c->weight[site]->shape[1];
  double sum = (double)c->bias[site]->value[i];
  for (int64_t j = 0; j < inputs; j++) sum += (double)c->weight[site]->value[i * inputs + j] * known[j];
  return sum;
}

/* What both sides make of row t, y [W]; x: what the exchange says. */
static void check_row(Chain *c, int set, int site, int t, const real *y, bool lost, const real *x) {
  const int n = WIDTH / GROUPS;
  for (int g = 0; g < GROUPS; g++) {
    int best = 0;
    double least = INFINITY;
    for (int k = 0; k < ENTRIES; k++) {
      double distance = 0;
      for (int j = 0; j < n; j++) {
        const int i = g * n + j;
        const double e = (double)y[i] - expected(c, site, c->sent[t], i) - (double)c->books[set].codewords[(g * ENTRIES + k) * n + j];
        distance += e * e;
      }
      if (distance < least) least = distance, best = k;
    }
    for (int j = 0; j < n; j++) {
      const int i = g * n + j;
      const double word = (double)c->books[set].codewords[(g * ENTRIES + best) * n + j];
      c->next_sent[t][site * WIDTH + i] = expected(c, site, c->sent[t], i) + word;
      c->next_heard[t][site * WIDTH + i] = expected(c, site, c->heard[t], i) + (lost ? 0 : word);
      assert_float_equal((double)x[i], c->next_heard[t][site * WIDTH + i], 1e-4);
    }
  }
}

static void run_site(Chain *c, int block, int set, int site) {
  const TransportPacket *packets;
  TransportArrival arrivals[2] = {{.count = 0}};
  TransportPacket came[2];
  ExchangeRows rows = {.runs = 0};
  int count;
  const Tensor *h = drawn(c, 3, 1, ROWS, WIDTH);
  assert_int_equal(code_exchange_encode_part(&c->exchange[0], c->tape, &c->layout[0], block, site, 0, h, &packets, &count), STATUS_OK);
  assert_int_equal(count, 2);
  for (int f = 0; f < 2; f++) came[f] = packets[f];
  assert_int_equal(came[0].header.block, set / SITES); /* counted from the first coded one */
  const bool loses = set / SITES == c->lost_block && site == 0;
  if (loses) came[1].payload = NULL, came[1].bytes = 0;
  arrivals[0] = (TransportArrival){.packets = came, .count = 2, .missing = loses};
  assert_int_equal(code_exchange_decode_part(&c->exchange[1], c->tape, &c->layout[1], block, site, 0, arrivals, &rows), STATUS_OK);
  assert_null(rows.lost); /* what is expected takes the place of what was lost */
  for (int t = 0; t < ROWS; t++) {
    const bool lost = loses && t % 2 == 1; /* tokens are dealt out to the packets */
    check_row(c, set, site, t, h->value + t * WIDTH, lost, rows.x->value + t * WIDTH);
  }
}

static void run(int first, int lost_block) {
  Chain c;
  open_chain(&c, first, lost_block);
  if (first > 0) { /* the sender knows its own rows, the receiver the same */
    Tensor *h = drawn(&c, 3, 1, ROWS, MODEL_WIDTH);
    Exchange *sender = &c.exchange[0].exchange, *receiver = &c.exchange[1].exchange;
    assert_int_equal(sender->know(sender, c.tape, &c.layout[0], 0, h, NULL), STATUS_OK);
    assert_int_equal(receiver->know(receiver, c.tape, &c.layout[1], 0, NULL, h), STATUS_OK);
    for (int t = 0; t < ROWS; t++)
      for (int i = 0; i < MODEL_WIDTH; i++) c.sent[t][i] = c.heard[t][i] = (double)h->value[t * MODEL_WIDTH + i];
  } else {
    assert_null(c.exchange[0].exchange.know);
  }
  double differ = 0;
  for (int coded = 0; coded < CODED; coded++) {
    const int64_t inputs = coded > 0 ? KNOWN : MODEL_WIDTH;
    for (int site = 0; site < SITES; site++) {
      const bool predicts = coded > 0 || first > 0;
      c.weight[site] = predicts ? drawn(&c, 2, WIDTH, inputs, 0) : NULL;
      c.bias[site] = predicts ? drawn(&c, 1, WIDTH, 0, 0) : NULL;
      for (int d = 0; d < 2; d++) {
        c.exchange[d].exchange.predict_weight[site] = c.weight[site];
        c.exchange[d].exchange.predict_bias[site] = c.bias[site];
      }
    }
    for (int site = 0; site < SITES; site++) run_site(&c, first + coded, coded * SITES + site, site);
    memcpy(c.sent, c.next_sent, sizeof c.sent);
    memcpy(c.heard, c.next_heard, sizeof c.heard);
    for (int i = 0; i < KNOWN; i++) differ += fabs(c.sent[1][i] - c.heard[1][i]);
    assert_true((differ > 0.1) == (coded >= lost_block)); /* a token whose code was lost: its chain goes on, off by what was lost */
  }
  close_chain(&c);
}

static void chains_are_those_of_both_sides(void **state) {
  (void)state;
  for (int first = 0; first <= 1; first++)
    for (int lost_block = 0; lost_block < CODED; lost_block++) run(first, lost_block);
}

/* Keys and values of a token arrive, or not, together, as in training; the marks of two blocks differ. */
static void a_token_is_lost_at_all_sites(void **state) {
  enum { TOKENS = 2000, BATCH = 2, BLOCKS = 2 };
  const LinkOptions lose = {.loss = 0.2, .seed = 5, .lose_tokens = true};
  const int64_t counts[2] = {TOKENS, TOKENS};
  uint8_t marks[BLOCKS][SITES][BATCH * TOKENS];
  CodeExchange exchange[2];
  TokenLayout layout[2] = {{0}};
  Chain c;
  (void)state;
  open_chain(&c, 0, CODED);
  for (int d = 0; d < 2; d++) {
    assert_int_equal(layout_build(&layout[d], 2 * TOKENS, 2, counts, NULL, CLASS_NONE, d), STATUS_OK);
    const CodeExchangeSetup setup = {.self = d,
                                     .nodes = 2,
                                     .layout = &layout[d],
                                     .books = c.books,
                                     .blocks = CODED,
                                     .sites = SITES,
                                     .batch_max = BATCH,
                                     .causal = true,
                                     .lose = &lose,
                                     .max_packet = 10000};
    assert_int_equal(code_exchange_init(&exchange[d], &setup), STATUS_OK);
    assert_int_equal(code_exchange_begin_request(&exchange[d], &(CodeExchangeRequest){.number = 1, .batch = BATCH}), STATUS_OK);
  }
  for (int block = 0; block < BLOCKS; block++) {
    for (int site = 0; site < SITES; site++) {
      TransportArrival arrivals[2] = {{.count = 0}};
      ExchangeRows rows;
      const Tensor *h = drawn(&c, 3, BATCH, TOKENS, WIDTH);
      assert_int_equal(
          code_exchange_encode_part(&exchange[0], c.tape, &layout[0], block, site, 0, h, &arrivals[0].packets, &arrivals[0].count),
          STATUS_OK);
      assert_int_equal(code_exchange_decode_part(&exchange[1], c.tape, &layout[1], block, site, 0, arrivals, &rows), STATUS_OK);
      memcpy(marks[block][site], rows.lost, sizeof marks[block][site]);
    }
    assert_memory_equal(marks[block][0], marks[block][1], sizeof marks[block][0]);
  }
  assert_memory_not_equal(marks[0][0], marks[1][0], sizeof marks[0][0]);
  const double share = (double)exchange[1].statistics.masked / (BLOCKS * SITES * BATCH * TOKENS);
  assert_true(fabs(share - lose.loss) < 0.02); /* 4.5 standard deviations */
  for (int d = 0; d < 2; d++) {
    code_exchange_release(&exchange[d]);
    layout_release(&layout[d]);
  }
  close_chain(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(chains_are_those_of_both_sides), cmocka_unit_test(a_token_is_lost_at_all_sites)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
