/* The training-time exchange: all N devices in one process. It quantises each site's shared tokens, adds NAVQ noise while training, sums
 * the commitment loss, loses tokens if asked to and, after the step, moves codebooks and noise moments (order in a step: assign with the
 * old codebook, loss, EMA, revive dead codes). */
#ifndef TRAIN_EMULATE_H
#define TRAIN_EMULATE_H
#include "nn/config.h"
#include "nn/exchange.h"
#include "train/token_loss.h"
#include "vq/codebook.h"
#include "vq/ema.h"
#include "vq/navq.h"
#include "vq/usage.h"

typedef struct EmulateOptions {
  double noise; /* lambda; 0: none */
  NoiseCovariance covariance;
  QuantiseGradient gradient;
  EmaOptions ema;
  uint64_t seed;             /* of noise and losses */
  TokenLoss loss, eval_loss; /* of remote tokens, for each device by itself: while training, and else */
} EmulateOptions;

/* One quantisation site of one block. */
typedef struct EmulateSite {
  Codebook book;
  CodebookEma ema;
  Navq navq;
  CodeUsage usage; /* since the last emulate_clear_usage */
  const real *x;   /* of the step under way: [B shared, W], in the tape's arena */
  int32_t *codes;  /* [B, shared, G] */
  int64_t rows;
  Tensor *remote;
} EmulateSite;

typedef struct Emulation {
  Exchange exchange; /* give its address to model_encode */
  EmulateOptions options;
  int blocks, sites;
  EmulateSite *site;             /* [blocks * sites] */
  bool training;                 /* noise on, statistics kept for emulate_update */
  uint64_t step;                 /* numbers noise and losses */
  uint64_t look;                 /* numbers the losses of an evaluation: batches since emulate_begin_look */
  int64_t first_sample, samples; /* of a batch that is a rank's share: where it begins in the whole one, of so many; 0, 0: it is whole */
  Tensor *commitment;            /* sum over sites of the step under way; NULL before the first site */
  int64_t revived;               /* codewords since the last emulate_clear_usage */
  real *codewords;               /* all codebooks in one block: [blocks * sites][G, K, W/G] */
} Emulation;

/* An emulation must not be moved once it is initialised. */
Status emulate_init(Emulation *emulation, const ModelConfig *config, const EmulateOptions *options); /* codebooks zeroed */
void emulate_release(Emulation *emulation);
/* Batches are shares from `first` on of whole ones of `samples`; they are whole from 0 on of as many as they have. */
void emulate_share(Emulation *emulation, int64_t first, int64_t samples);
void emulate_begin_look(Emulation *emulation); /* an evaluation begins: it loses the same tokens every time */
void emulate_begin_step(Emulation *emulation, bool training);
/* After backward, before tape_clear: noise moments, then EMA and revival, of every site. Scratch comes from the tape. */
Status emulate_update(Emulation *emulation, Tape *tape, Rng *rng);
/* The part of a batch's `rows` rows at a site that its noise moments are taken of: how many, from *first on. */
int64_t emulate_moment_rows(const Emulation *emulation, const EmulateSite *site, int64_t rows, int64_t *first);
void emulate_clear_usage(Emulation *emulation);

/* "block 3" or, where a block has two codebooks, "block 3 k", "block 3 v"; returns text. */
enum { EMULATE_PLACE = 32 };
const char *emulate_place(const Emulation *emulation, int index, char text[EMULATE_PLACE]);

Status emulate_start_ema(Emulation *emulation, int64_t rows_per_batch); /* once codebooks are set: refresh norms, n = rows / K */

#endif
