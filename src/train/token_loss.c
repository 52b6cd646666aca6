/* Lost tokens: see token_loss.h. */
#include "train/token_loss.h"
#include "autograd/kernels/philox.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const double SHARE_MOST = 0.95, SPAN_MOST = 1e6;

/* ---- the option */

static Status malformed(const char *text) {
  return status_set(
      STATUS_BAD_USAGE,
      "--token-loss \"%s\": a share of the tokens between 0 and %g is accepted, and behind it \",span:\" and the mean length of "
      "a run of lost ones, between share / (1 - share), 1 at least, and %g",
      text, SHARE_MOST, SPAN_MOST);
}

static double least_span(double share) { return share / (1 - share) > 1 ? share / (1 - share) : 1; }

Status token_loss_parse(TokenLoss *loss, const char *text) {
  static const char behind[] = ",span:";
  char *end;
  *loss = (TokenLoss){0, 0};
  if (text == NULL) return STATUS_OK;
  loss->share = strtod(text, &end);
  if (end == text || !(loss->share >= 0 && loss->share <= SHARE_MOST)) return malformed(text);
  if (*end == '\0') return STATUS_OK;
  if (strncmp(end, behind, sizeof behind - 1) != 0) return malformed(text);
  const char *number = end + sizeof behind - 1;
  loss->span = strtod(number, &end);
  bool fits = end != number && *end == '\0' && loss->span >= least_span(loss->share) && loss->span <= SPAN_MOST;
  return fits ? STATUS_OK : malformed(text);
}

/* ---- the draw */

/* [0, 1), number `at` of the stream's. */
static double uniform(uint64_t key, uint64_t at) {
  uint32_t word[PHILOX_WORDS];
  philox(key, at, word);
  return ((double)word[0] + (double)word[1] * 0x1p-32) * 0x1p-32;
}

/* The chain starts as it is in the long run, so that every token is lost with the same probability. */
static void draw_runs(const TokenLoss *loss, uint64_t key, uint64_t first, int64_t tokens, uint8_t *lost) {
  double ends = 1 / loss->span, begins = ends * loss->share / (1 - loss->share);
  for (int64_t t = 0; t < tokens; t++) {
    double draw = uniform(key, first + (uint64_t)t);
    if (t == 0)
      lost[t] = draw < loss->share;
    else
      lost[t] = lost[t - 1] ? draw >= ends : draw < begins;
  }
}

void token_loss_draw(const TokenLoss *loss, uint64_t seed, uint64_t stream, int64_t first, int64_t sequences, int64_t tokens,
                     uint8_t *lost) {
  uint64_t key = seed ^ (stream * UINT64_C(0x9E3779B97F4A7C15) + UINT64_C(0xD1B54A32D192ED03));
  for (int64_t s = 0; s < sequences; s++) {
    uint64_t counter = (uint64_t)((first + s) * tokens);
    uint8_t *to = lost + s * tokens;
    if (loss->span > 0)
      draw_runs(loss, key, counter, tokens, to);
    else
      for (int64_t t = 0; t < tokens; t++) to[t] = uniform(key, counter + (uint64_t)t) < loss->share;
  }
}
