/* Classification of texts by a running cluster, and the best classes of any answer. */
#ifndef INFER_CLASSIFY_H
#define INFER_CLASSIFY_H
#include "data/tokenizer/tokenizer.h"
#include "infer/cluster/leader.h"

enum { RANKING_MAX = 100 };

/* The `count` largest of logits [classes], best first (ties to the lowest index), with their softmax probabilities (may be NULL).
 * count <= classes. */
void ranking_top(const real *logits, int64_t classes, int count, int32_t *index, double *probability);

/* ---- texts to classify. A request holds texts of one length, so that each is divided among the nodes as if it came alone: its answer does
 * not depend on other texts. Texts are numbered in the order in which they were added. ---- */

typedef struct Texts {
  TokenList tokens; /* of all texts, one after another */
  size_t *begin;    /* [count + 1] */
  int64_t count;
  size_t room;
  int64_t longest, shortest; /* tokens of a text */
  int64_t cut;               /* texts that were longer than the context */
} Texts;

/* Begin with a zeroed one. As text_loader_sample; pair may be NULL. */
Status texts_add(Texts *texts, const TextEncoder *encoder, const char *text, const char *pair, int64_t context);
void texts_release(Texts *texts); /* accepts a zeroed one */
static inline int64_t texts_length(const Texts *texts, int64_t index) { return (int64_t)(texts->begin[index + 1] - texts->begin[index]); }

/* Called for each text, shorter ones first: logits [classes], valid during the call; seconds: of the request that it was part of. */
typedef Status TextsTake(void *context, int64_t index, const real *logits, double seconds);

/* At most `batch` texts to a request; the next request is sent while the last one is computed. The leader's tokens_max must be at least
 * the longest text. quiet: no progress. *seconds: wall time of all. */
Status texts_classify(Leader *leader, const Texts *texts, int64_t batch, bool quiet, TextsTake *take, void *context, double *seconds);

#endif
