/* Where a block needs the other devices' tokens. The training exchange (src/train/emulate.h) holds all devices in one process; the
 * network exchange (src/infer) sends codes and waits. The block calls begin, computes its local q, k and v, then calls finish. */
#ifndef NN_EXCHANGE_H
#define NN_EXCHANGE_H
#include "autograd/tape.h"
#include "nn/layout.h"

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
  const ExchangeRun *run; /* [runs], one for each peer, the same for every sample and for both sites of a part */
  Tensor *x;              /* [B, R, W], still to be projected (site kv: the keys or values themselves); NULL with k and v */
  Tensor *k, *v;          /* [B, R, kv width], ready (kv_tables.h); NULL with x */
  const uint8_t *lost;    /* [B, R], 1: masked; NULL: none */
} ExchangeRows;

/* The same exchange in parts, so that codes of a part leave while the next one is computed. The rows of a process are cut by layout_part;
 * part p of a block is begun as soon as its rows are known (one without rows is not), and the parts of a block are finished in order, each
 * site of a part together, also those in which nobody has rows. All processes cut alike. With one part the rows, and the order of
 * computation, are those of begin and finish above. */
typedef struct ExchangeParts {
  /* How many parts for this layout and batch: at least 1, and 1 for several samples. */
  int (*count)(Exchange *self, const TokenLayout *layout, int64_t batch);
  /* h[site] [B, rows, W]: the activations of rows [first, first + rows) of this process; NULL beyond the sites of the model. */
  Status (*begin)(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, int64_t first, int64_t rows,
                  Tensor *const h[2]);
  /* The others' rows of that part, for each site. */
  Status (*finish)(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part, ExchangeRows rows[2]);
} ExchangeParts;

struct Exchange {
  /* h [B, S, W]: this site's activations of all local rows (the shared ones are taken through the layout).
   * block: 0-based; site: 0, or for `site kv` 0 = k and 1 = v. Between a begin and its finish no other begin of the same block and site. */
  Status (*begin)(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int site, Tensor *h);
  /* The quantised remote tokens, [B, layout->remote, W], in shared order; *lost gets NULL or a [B, remote] mask. */
  Status (*finish)(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int site, Tensor **remote, const uint8_t **lost);
  /* As finish at site x, for keys and values that are ready (kv_tables.h): one run of [B, layout->remote], x or k and v. NULL: rows alone.
   */
  Status (*finish_rows)(Exchange *self, Tape *tape, const TokenLayout *layout, int block, ExchangeRows *rows);
  /* A tensor that it leads from block to block (the commitment so far), for blocks that are computed twice; NULL: none. */
  Tensor **carried;
  /* NULL: whole blocks only (training). */
  const ExchangeParts *parts;
  /* What finish says is lost is [spans, B, remote]: each device of this process has losses of its own. */
  bool lost_of_spans;
  /* Rows after the first norm, or keys and values where they are fewer numbers, travel in full, whatever the model's site: sequence
   * parallelism (strategy.h; config_whole_sites). */
  bool whole_rows;
};

#endif
