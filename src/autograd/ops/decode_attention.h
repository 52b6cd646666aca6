/* Attention of new tokens (decoding, no gradient): over the rows of their own device in full, from a cache or from pages, and over rows of
 * other devices that this process keeps as codes alone, without ever storing their keys and values. */
#ifndef AUTOGRAD_DECODE_ATTENTION_H
#define AUTOGRAD_DECODE_ATTENTION_H
#include "autograd/ops/ops.h"
#include <stdint.h>

/* Rows as codes: row r is codebook[g, codes[r, g]] for all groups side by side. */
typedef struct DecodeCodes {
  const int32_t *codes; /* [R, G] */
  const real *codebook; /* [G, K, W/G]; or else: */
  const uint16_t *narrow;
  NarrowKind kind; /* of narrow */
  int64_t groups, entries;
} DecodeCodes;

/* Outputs of a weight [in, out] or [out, in], real or 16-bit, and of its bias (may be NULL), as op_linear_part takes them. */
typedef struct DecodeProjection {
  const Tensor *weight, *bias;
  LinearPart part; /* count: kv_heads d */
} DecodeProjection;

/* One sequence. Rows in full are in pages: row r is in page r / page, at `keys` or `values` bytes from where that begins. */
typedef struct DecodeSequence {
  int64_t queries;                  /* rows of q, following each other: the last of the rows in full, each of which sees none behind it */
  const uint8_t *const *key_page;   /* [pages] */
  const uint8_t *const *value_page; /* [pages], may be the same */
  size_t keys, values;
  int64_t rows;             /* in full, those of the queries included; keys have been turned */
  const uint8_t *lost;      /* [marks] of the first tokens, as codes or in full, 1: never arrived and masked out; NULL: none lost */
  int64_t marks;            /* at most R + rows - queries */
  int64_t remote;           /* R: rows as codes, 0 for a plain model; the fields below are read only if there are any */
  const int32_t *x, *k, *v; /* their codes [R, G]: x, or k and v */
} DecodeSequence;

/* Rows as codes of all sequences. */
typedef struct DecodeBook {
  const real *codebook; /* [G, K, W/G]; or else: */
  const uint16_t *narrow;
  NarrowKind kind; /* of narrow */
  int64_t groups, entries;
} DecodeBook;

/* Site x: `x` (W = D) with `key` and `value`. Site kv: `k` and `v` (W = kv_heads d), and no weights, unless these rows are in another
 * basis: then `key` makes keys of those of `k`, and `value` values of those of `v`. Arrays outlive the call. */
typedef struct DecodeBatch {
  int heads, kv_heads;            /* kv_heads divides heads */
  NarrowKind kind;                /* of keys and values; NARROW_NONE: reals */
  int64_t page;                   /* rows of a page */
  int64_t row_step, head_step;    /* numbers from a row of a page to the next one, and from a kv head's to the next one's */
  const DecodeSequence *sequence; /* [count] */
  int count;
  DecodeBook x, k, v;
  DecodeProjection key, value;
  const Rope *rope;         /* turns the remote keys; NULL: none */
  const int32_t *positions; /* [largest R], with rope */
} DecodeBatch;

/* softmax(q [K^ | keys]^T / sqrt(d)) [V^ | values] for q [1, rows, heads d], the queries of one sequence after another -> the same shape,
 * with site x: K^ = X^ Wk^T + bk and V^ = X^ Wv^T + bv for the rows X^ [R, D], K^ turned by rope; site kv: K^, turned, and V^ are the rows,
 * or with weights their products alike.
 *
 * Without rope no row is projected: q.(Wk X^_r + bk) = (Wk^T q).X^_r + q.bk, and sum_r a_r (Wv X^_r + bv) = Wv (sum_r a_r X^_r) +
 * (sum_r a_r) bv, so a head costs 2 R D multiply-adds. With rope a key depends on its row's place, so keys are projected, tile by tile.
 * Only on a tape that does not record. A code or position outside of its table fails the tape. */
Tensor *op_decode_batch(Tape *tape, Tensor *q, const DecodeBatch *options);

/* One token of one sequence, whose rows in full are in one piece. */
typedef struct DecodeAttention {
  int heads, kv_heads;
  const void *keys, *values; /* [rows, kv_heads d] of `kind` */
  NarrowKind kind;
  int64_t rows, remote;
  const uint8_t *lost;
  int64_t marks;
  DecodeCodes x, k, v;
  DecodeProjection key, value;
  const Rope *rope;
  const int32_t *positions;
} DecodeAttention;

Tensor *op_decode_attention(Tape *tape, Tensor *q, const DecodeAttention *options);

#endif
