/* Texts to classify, through a running cluster. A request holds texts of one length, so that each is divided among the nodes as if it came
 * alone: what a text is answered depends on no other text. Answers come with the numbers that the texts were added by. */
#ifndef INFER_TEXTS_H
#define INFER_TEXTS_H
#include "data/tokenizer/tokenizer.h"
#include "infer/cluster/leader.h"

typedef struct Texts {
  TokenList tokens; /* of all texts, one behind the other */
  size_t *begin;    /* [count + 1] */
  int64_t count;
  size_t room;
  int64_t longest, shortest; /* tokens of a text */
  int64_t cut;               /* texts that were longer than the context */
} Texts;

/* Begin with a zeroed one. As text_loader_sample; pair may be NULL. */
Status texts_add(Texts *texts, const TextEncoder *encoder, const char *text, const char *pair, int64_t context);
void texts_release(Texts *texts); /* accepts a zeroed one */
int64_t texts_length(const Texts *texts, int64_t index);

/* Called for each text, shorter ones first: logits [classes], valid during the call; seconds: of the request that it was part of. */
typedef Status TextsTake(void *context, int64_t index, const real *logits, double seconds);

/* At most `batch` texts to a request; the next request is sent while the last one is computed. The leader's tokens_max must be at least
 * the longest text. quiet: no progress. *seconds: wall time of all. */
Status texts_classify(Leader *leader, const Texts *texts, int64_t batch, bool quiet, TextsTake *take, void *context, double *seconds);

#endif
