/* A device that has nothing to decode drafts the next tokens of a text that another device decodes, greedily, with a copy of the model that
 * has 4 bits (Weights.drafts). It is told the text's ids as they are confirmed, keeps what it has drafted where that was right, and goes on
 * drafting while the other device checks. What it keeps is keys and values of one text, in pages of its own: rows behind the first id that
 * was wrong are forgotten.
 *
 * Nothing here waits; a drafter that fails to compute only has no more drafts. */
#ifndef INFER_DRAFTER_H
#define INFER_DRAFTER_H
#include "infer/node_share.h"
#include "infer/speculation.h"

typedef struct Drafter Drafter;

/* For texts of up to setup->tokens_max; setup outlives it, and has weights->drafts. */
Status drafter_new(Drafter **drafter, const NodeSetup *setup);
void drafter_free(Drafter *drafter); /* accepts NULL */

/* The text of `sequence` goes on with ids [count], count >= 1, from position base on; `wanted` drafts are wanted of what follows.
 * BAD_VALUE: base is neither 0 nor where the ids of this sequence end that it was told before, too many ids, wanted out of 1 to
 * SPECULATION_MAX. */
Status drafter_tell(Drafter *drafter, uint32_t sequence, int64_t base, const int32_t *ids, int64_t count, uint32_t wanted);

bool drafter_works(const Drafter *drafter); /* accepts NULL */

/* Computes the next draft, or a piece of what it was told; nothing where there is nothing to do. */
void drafter_step(Drafter *drafter);

/* There are as many drafts behind the confirmed ids as are wanted, or as there can be, and more than were taken before. */
bool drafter_ready(const Drafter *drafter); /* accepts NULL */

/* Those, all behind the confirmed ids -> their number; *sequence, *base: of what. */
int drafter_take(Drafter *drafter, uint32_t *sequence, int64_t *base, int32_t drafts[SPECULATION_CHAIN]);

#endif
