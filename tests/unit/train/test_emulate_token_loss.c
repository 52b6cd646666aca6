/* Lost tokens in training: how many are lost and in what runs, that a draw repeats, what the emulation masks, and
 * that a run without losses is what it was. Going on after an interruption is test_resume.c's. */
#include "train/emulate.c"
#include "train/validate.h"
#include "unit/float_equal.h"
#include "unit/train/tiny_run.h"
#include <math.h>

enum { SEQUENCES = 400, TOKENS = 256 };

static void shares_and_runs(void **state) {
  (void)state;
  static uint8_t lost[SEQUENCES * TOKENS];
  static const TokenLoss losses[] = {{0.05, 0}, {0.5, 0}, {0.05, 8}, {0.3, 4}, {0.5, 1}, {0, 0}};
  for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
    const TokenLoss *loss = &losses[i];
    token_loss_draw(loss, 42, 7, 0, SEQUENCES, TOKENS, lost);
    double sum = 0, begun = 0, first = 0, inside = 0;
    for (int at = 0; at < SEQUENCES * TOKENS; at++) {
      sum += lost[at];
      first += at % TOKENS == 0 && lost[at];
      if (at % TOKENS == 0) continue; /* a run that begins before the sequence cannot be seen */
      begun += lost[at] && !lost[at - 1];
      inside += lost[at];
    }
    double length = loss->span > 0 ? loss->span : 1 / (1 - loss->share), deviation = sqrt(loss->share * length * 2 / (SEQUENCES * TOKENS));
    assert_float_equal(sum / (SEQUENCES * TOKENS), loss->share, 4 * deviation + 1e-12);
    assert_float_equal(first / SEQUENCES, loss->share, 4 * sqrt(loss->share / SEQUENCES) + 1e-12);
    if (loss->share > 0) assert_float_equal(inside / begun, length, 0.1 * length);
  }
}

static void draws_repeat(void **state) {
  (void)state;
  static uint8_t a[SEQUENCES * TOKENS], b[SEQUENCES * TOKENS];
  const TokenLoss loss = {0.3, 3};
  token_loss_draw(&loss, 42, 7, 0, SEQUENCES, TOKENS, a);
  token_loss_draw(&loss, 42, 7, 0, SEQUENCES, TOKENS, b);
  assert_memory_equal(a, b, sizeof a);
  for (int s = 1; s < SEQUENCES; s++) assert_true(memcmp(a, a + s * TOKENS, TOKENS) != 0);
  token_loss_draw(&loss, 42, 8, 0, SEQUENCES, TOKENS, b);
  assert_true(memcmp(a, b, sizeof a) != 0);
  token_loss_draw(&loss, 43, 7, 0, SEQUENCES, TOKENS, b);
  assert_true(memcmp(a, b, sizeof a) != 0);
}

/* Each device loses tokens of its own, in each block others, while training by the one share and else by the other. */
static void check_masks(Session *session, bool training, double share) {
  static const int64_t counts[] = {5, 4, 7};
  TokenLayout layout = {0};
  Tape *tape = session->tape;
  Emulation *emulation = &session->emulation;
  enum { BATCH = 6, MASK = 3 * BATCH * TINY_TOKENS };
  const uint8_t *lost[TINY_BLOCKS];
  double sum = 0;
  tiny_check(layout_build(&layout, TINY_TOKENS, 3, counts, NULL, CLASS_DISTRIBUTED, -1));
  emulate_begin_step(emulation, training);
  for (int block = 0; block < TINY_BLOCKS; block++) {
    Tensor *h = tape_tensor(tape, 3, (int64_t[]){BATCH, layout.rows, TINY_WIDTH});
    for (int64_t i = 0; i < tensor_count(h); i++) h->value[i] = (real)sin((double)i);
    ExchangeRows rows[EXCHANGE_SITES] = {{.runs = 0}, {.runs = 0}};
    tiny_check(emulation->exchange.begin(&emulation->exchange, tape, &layout, block, 0, (Tensor *[EXCHANGE_SITES]){h, NULL}));
    tiny_check(emulation->exchange.finish(&emulation->exchange, tape, &layout, block, 0, rows));
    lost[block] = rows[0].lost;
    assert_int_equal(lost[block] != NULL, share > 0);
    for (int i = 0; share > 0 && i < MASK; i++) sum += lost[block][i];
  }
  assert_float_equal(sum / (TINY_BLOCKS * MASK), share, 4 * sqrt(share / (TINY_BLOCKS * MASK)) + 1e-12);
  if (share > 0) {
    assert_true(memcmp(lost[0], lost[1], MASK) != 0);
    assert_true(memcmp(lost[0], lost[0] + MASK / 3, MASK / 3) != 0);
  }
  layout_release(&layout);
  tape_clear(tape);
}

static void the_emulation_masks(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.token_loss = "0.4";
  options.eval_token_loss = 0.2;
  Session session;
  tiny_open(&session, &options);
  check_masks(&session, true, 0.4);
  check_masks(&session, false, 0.2);
  session_close(&session);
  options.token_loss = NULL, options.eval_token_loss = 0;
  tiny_open(&session, &options);
  check_masks(&session, true, 0);
  check_masks(&session, false, 0);
  session_close(&session);
}

static void train(Session *session, const char *token_loss, bool recompute) {
  TrainOptions options = tiny_options();
  options.token_loss = token_loss;
  options.recompute = recompute ? SESSION_ALL_BLOCKS : 0;
  tiny_open(session, &options);
  for (int step = 0; step < 3; step++) tiny_step(session);
}

/* A share of 0 is a run as it was; losses change it; computing blocks twice loses the same tokens twice. */
static void what_a_run_learns(void **state) {
  (void)state;
  Session none, zero, some, again;
  train(&none, NULL, false), train(&zero, "0", false), train(&some, "0.3,span:2", false), train(&again, "0.3,span:2", true);
  tiny_assert_same(&none, &zero);
  tiny_assert_same(&some, &again);
  size_t bytes = (size_t)model_params(none.model)->total * sizeof(real);
  assert_true(memcmp(model_params(none.model)->values, model_params(some.model)->values, bytes) != 0);
  session_close(&none), session_close(&zero), session_close(&some), session_close(&again);
}

/* An evaluation loses the same tokens whenever it is done, and those of training never. */
static void evaluations_repeat(void **state) {
  (void)state;
  TrainOptions options = tiny_options();
  options.eval_token_loss = 0.5;
  Session session;
  Validation first, second, without;
  tiny_open(&session, &options);
  tiny_check(validate_run(&session, 4, 12, &first));
  tiny_check(validate_run(&session, 4, 12, &second));
  assert_true(first.loss == second.loss);
  session.emulation.options.eval_loss.share = 0;
  session.emulation.options.loss.share = 0.5;
  tiny_check(validate_run(&session, 4, 12, &without));
  assert_true(without.loss != first.loss);
  session_close(&session);
}

static void a_plain_model_loses_nothing(void **state) {
  (void)state;
  for (int which = 0; which < 2; which++) {
    TrainOptions options = tiny_options();
    Session session;
    options.groups = 0;
    if (which == 0)
      options.token_loss = "0.1";
    else
      options.eval_token_loss = 0.1;
    assert_int_equal(session_open(&session, &options, SESSION_TRAIN), STATUS_BAD_USAGE);
    assert_non_null(strstr(status_message(), "plain model"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shares_and_runs),   cmocka_unit_test(draws_repeat),       cmocka_unit_test(the_emulation_masks),
      cmocka_unit_test(what_a_run_learns), cmocka_unit_test(evaluations_repeat), cmocka_unit_test(a_plain_model_loses_nothing),
  };
  return cmocka_run_group_tests(tests, tiny_make, tiny_remove);
}
