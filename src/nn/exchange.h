/* Where a block needs the other devices' tokens. The training exchange (src/train/emulate.h) holds all devices in one process; the
 * network exchange (src/infer) sends codes and waits. The block calls begin, computes its local q, k and v, then calls finish. */
#ifndef NN_EXCHANGE_H
#define NN_EXCHANGE_H
#include "autograd/tape.h"
#include "nn/layout.h"

typedef struct Exchange Exchange;
struct Exchange {
  /* h [B, S, W]: this site's activations of all local rows (the shared ones are taken through the layout).
   * block: 0-based; site: 0, or for `site kv` 0 = k and 1 = v. Between a begin and its finish no other begin of the same block and site. */
  Status (*begin)(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int site, Tensor *h);
  /* The quantised remote tokens, [B, layout->remote, W], in shared order; *lost gets NULL or a [B, remote] mask. */
  Status (*finish)(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int site, Tensor **remote, const uint8_t **lost);
  /* A tensor that it leads from block to block (the commitment so far), for blocks that are computed twice; NULL: none. */
  Tensor **carried;
};

#endif
