/* Keys and values of many sequences of a decoder, in pages from one pool: for continuous batching, where sequences join and leave between
 * steps, and for prompts that begin alike, whose beginning is computed and held once.
 *
 *   a sequence   | codes of tokens 0 ... remote | rows in full: page | page | page, the last one partly filled |
 *   a page       [blocks][keys, values][kv heads][page tokens, head width] of setup.cache.kind: what a head reads lies together
 *
 * As in a KvCache (kv_cache.h) the tokens of the other devices, which all precede, are kept as packed codes. They never grow after the
 * prompt and lie in one piece, a "head", for each sequence; rows are in pages of a fixed number of tokens, which begin at `remote`.
 *
 * What is shared. The keys and values of a token are a function of the ids up to it and of where the spans of the devices before it begin
 * (each span sees the earlier ones as codes), and of nothing behind it. A head, and every full page in its turn, can therefore be found by
 * the sequences that follow under all ids up to its end and all span begins before it, both compared number by number. Hence:
 *   - prompts that one device computed share whatever they begin with, in whole pages, also what was generated: the next turn of a chat;
 *   - with codes a prefix is shared if its spans begin at the same tokens: prompts divided by their own lengths do not share, a
 *     continuation that keeps the division of its beginning does (kv_pages_join with spans NULL takes any);
 *   - what has lost tokens is not shared, nor what stands behind it;
 *   - a shared prefix is what one sequence computed from its first token to its last, bit for bit: a sequence that finds an equal page when
 * it completes one of its own keeps both and shares no more. Full pages are not written again. A partly filled one belongs to one sequence.
 *
 * Shared pages that nobody uses stay until their memory is wanted, then the least recently used go first. A sequence is promised its pages
 * when it joins, so that it never fails later. All memory is asked for by kv_pages_new, and committed when it is touched. Single-threaded
 * but for kv_pages_store of different sequences or blocks, and reading. */
#ifndef NN_KV_PAGES_H
#define NN_KV_PAGES_H
#include "nn/kv_cache.h"

typedef struct KvPages KvPages; /* of one model on one device */

typedef struct KvPagesSetup {
  KvCacheSetup cache; /* max: tokens of the longest sequence */
  int64_t page;       /* tokens of a page */
  int64_t heads;      /* kv heads */
  int64_t bytes;      /* limit for rows and codes together */
  int sequences;      /* at the same time */
} KvPagesSetup;

enum { KV_PAGES_TOKENS = 32 /* the usual page */, KV_PAGES_SPANS = 64 };

/* `bytes` of a setup whose other members are set: of as many sequences as it says, each of them the longest, so that none ever waits for
 * another's memory. */
int64_t kv_pages_bytes(const KvPagesSetup *setup);

/* NO_MEMORY, or BAD_VALUE: fewer bytes than the longest sequence takes. */
Status kv_pages_new(KvPages **pages, const KvPagesSetup *setup);
void kv_pages_free(KvPages *pages); /* accepts NULL */
const KvPagesSetup *kv_pages_setup(const KvPages *pages);

/* How a text is divided: where the spans begin, but for the first, ascending, above 0. remote is begin[count - 1]; with count 0 one device
 * has all in full. */
typedef struct KvSpans {
  int count;
  int64_t begin[KV_PAGES_SPANS];
  bool in_full; /* pages without codes: rows of all tokens are in full though they were computed in spans. remote is 0, nothing is shared */
} KvSpans;

/* A sequence for the text ids [count] that will never have more than `room` tokens, new ones included. *sequence: its number, below
 * setup.sequences. Its first *shared tokens are there already, 0 or at least `remote` and less than count: the rest is computed next. Where
 * nothing was found and there are remote tokens, their codes come next (kv_pages_codes or kv_pages_take). spans NULL: divided as what
 * shares most is, else undivided. BUSY: there is no place or no memory until another sequence leaves; BAD_VALUE: spans or room do not fit.
 */
Status kv_pages_join(KvPages *pages, const int32_t *ids, int64_t count, const KvSpans *spans, int64_t room, int *sequence, int64_t *shared);

void kv_pages_leave(KvPages *pages, int sequence);

/* ---- filling */

/* Where the packed codes of remote token `position` and its successors are stored, token_bytes each, before any row: of a head that was not
 * found alone. */
uint8_t *kv_pages_codes(KvPages *pages, int sequence, int block, int site, int64_t position);

/* Takes over what a prompt left in a cache of the same setup (model_encode): codes, marks and rows. ids [remote + rows of the cache]: those
 * of the text. Of what the sequence shares nothing is written again, codes and marks included, and what is computed where tokens are lost
 * is not shared. BAD_VALUE when the cache's remote tokens are not the sequence's. */
Status kv_pages_take(KvPages *pages, int sequence, const KvCache *cache, const int32_t *ids);

/* Writes rows k, v [count, width] of a block behind those that are kept. They count only when they are kept: a step stores rows of drafts,
 * too, and what was rejected is written over by the next step. BAD_VALUE: more than the room; NUMERIC as kv_cache_store.
 *
 * kv_pages_extend must have been called for as many rows, once for all blocks. */
Status kv_pages_extend(KvPages *pages, int sequence, int64_t count);
Status kv_pages_store(KvPages *pages, int sequence, int block, int64_t count, const real *k, const real *v);

/* The first `count` rows stored behind those kept are kept: tokens ids [count]. Full pages can then be found by others. */
void kv_pages_keep(KvPages *pages, int sequence, const int32_t *ids, int64_t count);

/* Of a sequence that shares nothing (KvSpans.in_full) all but the first `tokens` are forgotten; fewer stay as they are. */
void kv_pages_truncate(KvPages *pages, int sequence, int64_t tokens);

/* ---- reading */

/* Rows of a block: keys of row r and kv head h are [head width] numbers at page[r / page] + keys, and (h page + r % page) head widths
 * behind it; values likewise. Valid until the sequence changes. */
typedef struct KvPagesBlock {
  const uint8_t *const *page; /* [those of all rows, stored ones included] */
  size_t keys, values;        /* bytes from a page's begin */
  int64_t remote, rows;       /* rows that are kept */
  const uint8_t *lost;        /* [marks] of the first tokens, or NULL */
  int64_t marks;
} KvPagesBlock;
KvPagesBlock kv_pages_block(const KvPages *pages, int sequence, int block);

/* The codes of a block's site -> codes [remote, G]. BAD_VALUE: a code is not one of the codebook's, or padding is not zero. */
Status kv_pages_unpack(const KvPages *pages, int sequence, int block, int site, int32_t *codes);

int64_t kv_pages_tokens(const KvPages *pages, int sequence); /* remote + rows: where the next token stands */
int64_t kv_pages_room(const KvPages *pages, int sequence);   /* tokens that can still be added */

#endif
