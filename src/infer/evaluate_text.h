/* The perplexity of a cluster over a text, through the real processes: windows of the text's tokens, whole ones, many to a request. */
#ifndef INFER_EVALUATE_TEXT_H
#define INFER_EVALUATE_TEXT_H
#include "data/text/text_perplexity.h"
#include "infer/cluster/leader.h"
#include "infer/vocabulary.h"

typedef struct TextEvaluation {
  int64_t windows, context, stride;
  int64_t bytes; /* of text behind the predicted tokens; what stands between documents has none */
  RequestScore score;
  double seconds;
} TextEvaluation;

/* The first `windows` (0: all) windows, `batch` to a request; the next request is sent while the last one is computed. Each token but the
 * first is predicted once. A window at the end that is not full is filled up, so that every window is divided among the nodes alike; what
 * fills it counts nowhere and is seen by no token that does. The leader's tokens_max must be at least the windows' context. */
Status evaluate_text_run(Leader *leader, const Vocabulary *vocabulary, const TextWindows *windows, int64_t samples, int64_t batch,
                         bool quiet, TextEvaluation *evaluation);

double evaluate_text_perplexity(const TextEvaluation *evaluation);    /* exp(nats / predicted tokens) */
double evaluate_text_bits_per_byte(const TextEvaluation *evaluation); /* nats / (ln 2 bytes); 0 without bytes */

#endif
