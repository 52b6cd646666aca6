/* Where a block needs the other devices' tokens. The training exchange (src/train/emulate.h) holds all devices in one process; the
 * network exchange (src/infer/code_exchange.h) sends codes and waits. A block begins its parts, computes its local q, k and v, then
 * finishes them; in training, and unless an exchange says otherwise, a block is one part. */
#ifndef NN_EXCHANGE_H
#define NN_EXCHANGE_H
#include "autograd/tape.h"
#include "nn/layout.h"
#include <stdbool.h>

enum {
  EXCHANGE_SITES = 2,  /* maximum per block: only site 0 or, for `site kv`, 0 = k and 1 = v */
  EXCHANGE_CARRIED = 2 /* tensors that an exchange may carry from block to block */
};

typedef struct Exchange Exchange;

/* Rows of one peer and one sample that follow each other in the remote sequence. */
typedef struct ExchangeRun {
  int64_t place; /* the first one's place among the sample's remote rows */
  int64_t count;
} ExchangeRun;

/* The others' rows of one part at one site: rows that have arrived, or that take their place, and marks of those that are missing. Arrays
 * and tensors live until the tape is cleared, or longer. R: the sum of the runs' counts. */
typedef struct ExchangeRows {
  int64_t runs;
  const ExchangeRun *run; /* [runs], one for each peer, the same for every sample and for both sites of a part; NULL, and runs 0: all remote
                           * rows in their order */
  Tensor *x;              /* [B, R, W], still to be projected (site kv: the keys or values themselves); NULL with k and v */
  Tensor *k, *v;          /* [B, R, kv width], ready (kv_tables.h); NULL with x */
  const uint8_t *lost;    /* [B, R], 1: masked; NULL: none */
} ExchangeRows;

struct Exchange {
  /* h[site] [B, rows, W]: the activations of this part's rows of the process (layout_part; with one part all of them, of which the shared
   * ones are found through the layout); NULL beyond the sites of the model. A part is begun as soon as its rows are known, and one without
   * rows is not. */
  Status (*begin)(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, Tensor *const h[EXCHANGE_SITES]);
  /* The others' rows of that part, for each site of the model; the other rows stay zero, as they are when it is called. The parts of a
   * block are finished in order, also those in which no device has rows. */
  Status (*finish)(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]);
  /* In place of both in the first block where every device computes its tokens itself (AstraConfig.exact_first): nothing is sent, but the
   * next block's tokens are predicted from these. Rows after the first norm: of a part's own rows [B, rows, D] as they are known, then of
   * the remote ones [B, remote, D], all at once; the other is NULL. NULL: begin and finish are called there, too. */
  Status (*know)(Exchange *self, Tape *tape, const TokenLayout *layout, int part, Tensor *own, Tensor *remote);
  /* In place of both in a block that exchanges nothing (AstraConfig.exchange_blocks), as its first part begins. NULL: not called. */
  Status (*pass)(Exchange *self, int block);
  /* Number of parts of a block, so that codes of a part are sent while the next one is computed; 0 counts as 1. Several: one sample on a
   * node, where nothing is recorded. All processes have the same parts. */
  int parts;
  /* [EXCHANGE_CARRIED] tensors that it carries from block to block (the commitment so far), for blocks that are computed twice; NULL: none.
   */
  Tensor **carried;
  /* Set by the block before it calls begin or finish: of the rows y^ of the block before, as receivers know them, y^ weight^T + bias is
   * expected at each site now, and what differs from that is quantised (AstraConfig.prediction). [W, P], [W], P numbers of a row y^: those
   * of all sites, side by side, or D of one that `know` was told; NULL: nothing is expected. */
  Tensor *predict_weight[EXCHANGE_SITES], *predict_bias[EXCHANGE_SITES];
  /* The marks of lost rows are [spans, B, remote]: each device of this process has losses of its own. One part without runs. */
  bool lost_of_spans;
  /* Rows after the first norm, or keys and values where they are fewer numbers, travel in full, whatever the model's site: sequence
   * parallelism (strategy.h; config_whole_sites). */
  bool whole_rows;
};

/* Sums and joins of whole tensors over all devices, for strategies that divide a block by heads and columns (tensor_parallel.h).
 * Implemented in src/infer/strategy/collective.h. All devices make the same calls in the same order. */

typedef struct Reduce Reduce;

/* One of the calls below, which are known in advance: the implementation refuses any other. */
typedef struct ReduceStep {
  bool sum;            /* else a gather */
  int64_t samples;     /* of a gather: B; a sum takes the rows of all samples together: 1 */
  int64_t rows, width; /* of each sample, over all devices */
} ReduceStep;

struct Reduce {
  int self, devices;
  /* partial [B, rows, W] becomes the sum of all devices' partial tensors, added in the order of the devices: equal bits everywhere. which:
   * a number that tells the sums of one block apart, from 0. */
  Status (*sum)(Reduce *self, Tape *tape, int block, int which, Tensor *partial);
  /* own [B, this device's share of `rows`, W] -> *all [B, rows, W], in the order of the devices, on the tape. The shares are those of
   * layout_even_counts(rows, devices). which: a number that tells the joins of one block apart, from 0. */
  Status (*gather)(Reduce *self, Tape *tape, int block, int which, const Tensor *own, int64_t rows, Tensor **all);
};

#endif
