/* Two exchanges for tests, without processes: one that emulates all devices in one pass and remembers what was shared, and one for a node,
 * whole or in parts, that delivers it and compares what the node would have sent. Numbers are quantised by rounding to quarters. */
#ifndef TESTS_NN_LOOP_EXCHANGE_H
#define TESTS_NN_LOOP_EXCHANGE_H
#include "nn/exchange.h"
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LOOP_BLOCKS = 8, LOOP_SITES = 2, LOOP_DEVICES = 8 };

typedef struct LoopExchange LoopExchange;
struct LoopExchange {
  Exchange exchange;                     /* first */
  real *shared[LOOP_BLOCKS][LOOP_SITES]; /* [B, shared, W] */
  int64_t batch, width;
  int sites;         /* of the model */
  unsigned lose;     /* every so many-th token is lost, another one in each block and site; 0: none */
  bool each;         /* and another one for each receiver */
  int lost_from;     /* all tokens of this block and those behind it are lost; 0: no more than that */
  bool bare;         /* a node of one part hands over rows without runs */
  int64_t sent, off; /* numbers that a node sent, and those that were not what the emulation shared */
  int begun[LOOP_BLOCKS], finished[LOOP_BLOCKS], passed[LOOP_BLOCKS];
  /* What the remote rows of a part, or of a whole block, become instead of x; NULL: x. For tables of keys and values. */
  void (*make_keys)(LoopExchange *loop, Tape *tape, int block, ExchangeRows *rows);
  void *keys;
};

static inline real loop_quantise(real x) { return (real)(round(4 * (double)x) / 4); }

static inline bool loop_loses(const LoopExchange *loop, int block, int site, int64_t place, int receiver) {
  if (loop->lost_from > 0 && block >= loop->lost_from) return true;
  return loop->lose > 0 && (unsigned)(place * 7 + block * 3 + site + (loop->each ? receiver * 5 : 0)) % loop->lose == 0;
}

/* ---- all devices in one process */

static inline void loop_share(LoopExchange *loop, const TokenLayout *layout, int block, int site, const Tensor *h) {
  int64_t width = tensor_width(h), batch = h->shape[0];
  real *to = realloc(loop->shared[block][site], (size_t)(batch * layout->shared * width) * sizeof *to);
  assert_non_null(to);
  loop->shared[block][site] = to;
  loop->width = width, loop->batch = batch;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < layout->shared; i++)
      for (int64_t e = 0; e < width; e++)
        to[(b * layout->shared + i) * width + e] = loop_quantise(h->value[(b * layout->rows + layout->shared_row[i]) * width + e]);
}

static inline Status loop_emulate_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part,
                                        Tensor *const h[EXCHANGE_SITES]) {
  LoopExchange *loop = (LoopExchange *)self;
  (void)tape;
  assert_int_equal(part, 0);
  for (int site = 0; site < EXCHANGE_SITES; site++) assert_int_equal(h[site] != NULL, site < loop->sites);
  for (int site = 0; site < loop->sites; site++) loop_share(loop, layout, block, site, h[site]);
  return STATUS_OK;
}

static inline Status loop_emulate_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part,
                                         ExchangeRows rows[EXCHANGE_SITES]) {
  LoopExchange *loop = (LoopExchange *)self;
  int64_t each = loop->batch * layout->shared, masks = loop->each ? layout->spans : 1;
  (void)part;
  for (int site = 0; site < loop->sites; site++) {
    uint8_t *mask = tape_alloc(tape, (size_t)(masks * each));
    for (int64_t i = 0; i < masks * each; i++) mask[i] = loop_loses(loop, block, site, i % layout->shared, (int)(i / each));
    rows[site].lost = loop->lose || loop->lost_from ? mask : NULL;
    rows[site].x = tape_constant(tape, 3, (int64_t[]){loop->batch, layout->shared, loop->width}, loop->shared[block][site]);
  }
  return tape_status(tape);
}

/* ---- a node */

/* Place of a device's first shared row among node `self`'s remote rows. */
static inline int64_t loop_place(const TokenLayout *layout, int device) {
  int64_t own = layout->device_shared[layout->self + 1] - layout->device_shared[layout->self];
  return layout->device_shared[device] - (device > layout->self ? own : 0);
}

static inline bool loop_hears(const TokenLayout *layout, int device) {
  return device < layout->self || (device > layout->self && layout->class_token != CLASS_NONE);
}

/* h [B, ...] holds rows from `first` on; the shared ones among them are [from, from + count) of shared_row. */
static inline void loop_compare(LoopExchange *loop, const TokenLayout *layout, int block, int site, const Tensor *h, int64_t first,
                                int64_t from, int64_t count) {
  int64_t width = tensor_width(h), begin = layout->self < 0 ? 0 : layout->device_shared[layout->self];
  for (int64_t b = 0; b < h->shape[0]; b++)
    for (int64_t i = from; i < from + count; i++)
      for (int64_t e = 0; e < width; e++) {
        real sent = loop_quantise(h->value[(b * h->shape[1] + layout->shared_row[i] - first) * width + e]);
        loop->sent++;
        loop->off += sent != loop->shared[block][site][(b * layout->shared + begin + i) * width + e];
      }
}

/* Shared rows [first, first + count) of a device, all samples, to `to` and their fates to `lost`, `stride` rows apart. */
static inline void loop_copy(const LoopExchange *loop, const TokenLayout *layout, int block, int site, int64_t first, int64_t count,
                             int64_t stride, real *to, uint8_t *lost) {
  for (int64_t b = 0; b < loop->batch; b++)
    for (int64_t i = 0; i < count; i++) {
      memcpy(to + (b * stride + i) * loop->width, loop->shared[block][site] + (b * layout->shared + first + i) * loop->width,
             (size_t)loop->width * sizeof(real));
      lost[b * stride + i] = loop_loses(loop, block, site, first + i, layout->self);
    }
}

static inline Status loop_node_begin(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part,
                                     Tensor *const h[EXCHANGE_SITES]) {
  (void)tape;
  LoopExchange *loop = (LoopExchange *)self;
  int64_t first, rows, first_shared, shared;
  layout_part(layout, loop->exchange.parts, part, &first, &rows, &first_shared, &shared);
  assert_true(rows > 0);
  assert_true(loop->begun[block] <= part && loop->finished[block] == 0); /* in order, before any is awaited */
  loop->begun[block] = part + 1;
  for (int site = 0; site < EXCHANGE_SITES; site++) {
    assert_int_equal(h[site] != NULL, site < loop->sites);
    if (h[site] == NULL) continue;
    assert_int_equal(h[site]->shape[1], rows);
    loop_compare(loop, layout, block, site, h[site], first, first_shared, shared);
  }
  return STATUS_OK;
}

static inline Status loop_node_finish(Exchange *self, Tape *tape, const TokenLayout *layout, int block, int part,
                                      ExchangeRows rows[EXCHANGE_SITES]) {
  LoopExchange *loop = (LoopExchange *)self;
  assert_int_equal(loop->finished[block], part);
  loop->finished[block]++;
  ExchangeRun *run = tape_alloc(tape, LOOP_DEVICES * sizeof *run);
  int64_t runs = 0, total = 0, from[LOOP_DEVICES];
  for (int d = 0; d < layout->devices; d++) {
    int64_t first, count;
    layout_part_shared(layout, d, loop->exchange.parts, part, &first, &count);
    if (!loop_hears(layout, d)) continue;
    run[runs] = (ExchangeRun){loop_place(layout, d) + first, count};
    from[runs++] = layout->device_shared[d] + first;
    total += count;
  }
  for (int site = 0; site < loop->sites; site++) {
    if (!(loop->bare && loop->exchange.parts == 1)) rows[site] = (ExchangeRows){.runs = runs, .run = run};
    if (total == 0) continue;
    uint8_t *mask = tape_alloc(tape, (size_t)(loop->batch * total));
    rows[site].x = tape_tensor(tape, 3, (int64_t[]){loop->batch, total, loop->width});
    for (int64_t r = 0, at = 0; r < runs; at += run[r++].count)
      loop_copy(loop, layout, block, site, from[r], run[r].count, total, rows[site].x->value + at * loop->width, mask + at);
    rows[site].lost = loop->lose ? mask : NULL;
    if (loop->make_keys) loop->make_keys(loop, tape, block, &rows[site]);
  }
  return tape_status(tape);
}

static inline Status loop_node_pass(Exchange *self, int block) {
  ((LoopExchange *)self)->passed[block]++;
  return STATUS_OK;
}

/* ---- life */

/* For the emulation. sites: of the model. */
static inline void loop_open(LoopExchange *loop, int sites, unsigned lose) {
  *loop = (LoopExchange){.exchange = {.begin = loop_emulate_begin, .finish = loop_emulate_finish}, .sites = sites, .lose = lose};
}

/* From now on for a node, whose blocks are cut into so many parts. */
static inline Exchange *loop_as_node(LoopExchange *loop, int parts) {
  loop->exchange = (Exchange){.begin = loop_node_begin, .finish = loop_node_finish, .pass = loop_node_pass, .parts = parts};
  loop->sent = loop->off = 0;
  memset(loop->begun, 0, sizeof loop->begun);
  memset(loop->finished, 0, sizeof loop->finished);
  memset(loop->passed, 0, sizeof loop->passed);
  return &loop->exchange;
}

static inline void loop_close(LoopExchange *loop) {
  for (int block = 0; block < LOOP_BLOCKS; block++)
    for (int site = 0; site < LOOP_SITES; site++) free(loop->shared[block][site]);
}

#endif
