/* The training-time exchange: all N devices in one process. It quantises each site's shared tokens, adds NAVQ noise while training, sums
 * the commitment loss, loses tokens if asked to and, after the step, moves codebooks and noise moments (order in a step: assign with the
 * old codebook, loss, EMA, revive dead codes). */
#ifndef TRAIN_EMULATE_H
#define TRAIN_EMULATE_H
#include "base/rng.h"
#include "base/status.h"
#include "nn/config.h"
#include "nn/exchange.h"
#include "vq/codebook.h"
#include "vq/ema.h"
#include "vq/navq.h"
#include <stdint.h>

/* Tokens that are lost on their way between emulated devices, so that a model learns to do without some of them (paper, appendix on packet
 * loss). Which ones is a function of the numbers given alone: a run that goes on draws what it would have drawn. */

typedef struct TokenLoss {
  double share; /* P of remote tokens, [0, 0.95]; 0: none */
  double span;  /* mean length of a run of lost tokens; 0: each one by itself */
} TokenLoss;

/* Token-to-device maps: in training drawn anew for each batch (paper section 4.1: "randomised token-to-device mapping"), in evaluation as
 * the runner places tokens. */

typedef enum MapCounts { COUNTS_EVEN, COUNTS_FIXED, COUNTS_DIRICHLET } MapCounts;
typedef struct DeviceMapOptions {
  int devices_min, devices_max; /* N is drawn uniformly from the range */
  MapCounts counts;
  const int64_t *fixed; /* [devices_max], COUNTS_FIXED, which needs devices_min = devices_max */
  double concentration; /* of the Dirichlet, all parameters equal */
  bool permute;         /* any token anywhere; else which tokens a device has follows from their numbers alone: */
  TokenMap map;         /* on a grid of */
  int64_t side;         /* tokens in width and height; 0: contiguous spans (decoders) */
} DeviceMapOptions;

/* Draws one map and builds the layout (all devices in this process). order_buffer holds `tokens` numbers. The tokens of a device keep
 * their raster order among each other. Allocates nothing once the layout has seen as many tokens. A range beyond T, fixed counts
 * that do not sum to T or a concentration that is not positive is STATUS_BAD_VALUE. */
Status device_map_draw(TokenLayout *layout, int64_t tokens, ClassToken class_token, const DeviceMapOptions *options, Rng *rng,
                       int32_t *order_buffer);

/* Even shares over `devices`, placed as config's astra.layout says (of a decoder contiguous spans): as `astra-infer` without --split and
 * --layout. order_buffer and memory as above. */
Status device_map_place(TokenLayout *layout, const ModelConfig *config, int64_t tokens, int devices, int32_t *order_buffer);

typedef struct EmulateOptions {
  double noise;         /* lambda; 0: none */
  int64_t noise_warmup; /* batches over which it grows from 0 to lambda */
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
  CodeUsage aside; /* emulate_swap_usage */
  const real *x;   /* of the step under way: [B shared, W], in the tape's arena */
  int32_t *codes;  /* [B, shared, G] */
  int64_t rows;
  Tensor *remote, *exact; /* as attention sees it; with predictions the same without noise */
} EmulateSite;

typedef enum EmulateCarried {
  EMULATE_COMMITMENT, /* sum over sites so far */
  EMULATE_REMOTE      /* with predictions: the tokens of the block before, all sites side by side, [B, shared, P] (exchange.h) */
} EmulateCarried;

typedef struct Emulation {
  Exchange exchange; /* give its address to model_encode */
  EmulateOptions options;
  int blocks, block_sites;       /* blocks: those whose tokens travel as codes, from `first` on; sites of a block: 1 or 2 */
  int first;                     /* config_first_coded */
  bool predicts;                 /* AstraConfig.prediction */
  EmulateSite *site;             /* [emulate_sites] of the bit rate in use */
  int rates;                     /* config_rates */
  EmulateSite *all;              /* [rates][emulate_sites] */
  bool training;                 /* noise on, statistics kept for emulate_update */
  uint64_t step;                 /* numbers noise and losses */
  uint64_t look;                 /* numbers the losses of an evaluation: its batches so far; each begins with 0 and loses the same tokens */
  int64_t first_sample, samples; /* of a batch that is a rank's share: its place in the whole one and the samples of that; 0, 0: whole */
  Tensor *carried[EXCHANGE_CARRIED]; /* of the step under way, EmulateCarried; NULL before the first site */
  int64_t revived;                   /* codewords since the last emulate_clear_usage */
  int64_t revived_aside;             /* emulate_swap_usage */
  real *codewords;                   /* all codebooks in one block: [rates][emulate_sites][G, K, W/G] */
} Emulation;

/* An emulation must not be moved once it is initialised. */
Status emulate_init(Emulation *emulation, const ModelConfig *config, const EmulateOptions *options); /* codebooks zeroed */
void emulate_release(Emulation *emulation);
int emulate_sites(const Emulation *emulation);         /* of one bit rate, in all blocks */
int emulate_all_sites(const Emulation *emulation);     /* of all rates */
void emulate_use_rate(Emulation *emulation, int rate); /* what comes next is quantised at this one; the first in use is config's */
/* The bit rate that a batch is computed at in training, [0, rates), of the seed and emulation->step: half of all batches have the most
 * groups, the rate that is used by default and that an even draw loses most at; the others share the rest alike. */
int emulate_draw_rate(const Emulation *emulation);
/* Batches are shares from `first` on of whole ones of `samples`; they are whole from 0 on of as many as they have. */
void emulate_share(Emulation *emulation, int64_t first, int64_t samples);
void emulate_begin_step(Emulation *emulation, bool training);
/* After backward, before tape_clear: noise moments, then EMA and revival, of every site. Scratch comes from the tape. */
Status emulate_update(Emulation *emulation, Tape *tape, Rng *rng);
/* The part of a batch's `rows` rows at a site that its noise moments are taken of: how many, from *first on. */
int64_t emulate_moment_rows(const Emulation *emulation, const EmulateSite *site, int64_t rows, int64_t *first);
void emulate_clear_usage(Emulation *emulation); /* of all rates */
/* Exchanges the counts of all rates with other ones, 0 at first: an evaluation within an interval of training counts apart. */
void emulate_swap_usage(Emulation *emulation);

/* "block 3" or, where a block has two codebooks, "block 3 k", "block 3 v"; returns text. */
enum { EMULATE_PLACE = 32 };
const char *emulate_place(const Emulation *emulation, int index, char text[EMULATE_PLACE]);

/* Once the codebooks of all rates are set: refresh norms, n = rows / K */
Status emulate_start_ema(Emulation *emulation, int64_t rows_per_batch);

#endif
