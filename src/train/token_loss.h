/* Tokens that are lost on their way between emulated devices, so that a model learns to do without some of them (paper, appendix on packet
 * loss). Which ones is a function of the numbers given alone: a run that goes on draws what it would have drawn. */
#ifndef TRAIN_TOKEN_LOSS_H
#define TRAIN_TOKEN_LOSS_H
#include "base/status.h"
#include <stdint.h>

typedef struct TokenLoss {
  double share; /* P of remote tokens, [0, 0.95]; 0: none */
  double span;  /* mean length of a run of lost tokens; 0: each one by itself */
} TokenLoss;

/* "P" or "P,span:S", "0.05,span:8": P of all tokens, in runs of S on the mean (a two-state chain: Gilbert, 1960). BAD_USAGE says what is
 * accepted; a run cannot be so short that so many tokens would not be lost. NULL: none. */
Status token_loss_parse(TokenLoss *loss, const char *text);

/* lost [sequences, tokens] of the sequences from `first` on: 1 for a token that does not arrive. Two draws are independent where seed,
 * stream or sequence differ. */
void token_loss_draw(const TokenLoss *loss, uint64_t seed, uint64_t stream, int64_t first, int64_t sequences, int64_t tokens,
                     uint8_t *lost);

#endif
