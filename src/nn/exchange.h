/* Where a block needs the other devices' tokens. The training exchange (src/train/emulate.h) holds all devices in one process; the
 * network exchange (src/infer/code_exchange.h) sends codes and waits. A block begins its parts, computes its local q, k and v, then
 * finishes them; in training, and unless an exchange says otherwise, a block is one part. */
#ifndef NN_EXCHANGE_H
#define NN_EXCHANGE_H
#include "autograd/tape.h"
#include "nn/layout.h"

enum { EXCHANGE_SITES = 2 }; /* of a block at most: site 0 alone or, for `site kv`, 0 = k and 1 = v */

typedef struct Exchange Exchange;

/* Rows of one peer and one sample that follow each other in the remote sequence. */
typedef struct ExchangeRun {
  int64_t place; /* the first one's place among the sample's remote rows */
  int64_t count;
} ExchangeRun;

/* What the others hold of one part at one site: rows that have come, or their marks. Arrays and tensors live until the tape is cleared, or
 * longer. R: the sum of the runs' counts. */
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
   * block are finished in order, also those in which nobody has rows. */
  Status (*finish)(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[EXCHANGE_SITES]);
  /* That a block is cut into, so that codes of a part leave while the next one is computed; 0 as 1. Several: one sample on a node, where
   * nothing is recorded. All processes cut alike. */
  int parts;
  /* A tensor that it leads from block to block (the commitment so far), for blocks that are computed twice; NULL: none. */
  Tensor **carried;
  /* What finish says is lost is [spans, B, remote]: each device of this process has losses of its own. One part without runs. */
  bool lost_of_spans;
  /* Rows after the first norm, or keys and values where they are fewer numbers, travel in full, whatever the model's site: sequence
   * parallelism (strategy.h; config_whole_sites). */
  bool whole_rows;
};

#endif
