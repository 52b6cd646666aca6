/* Requests of texts to a leader that leader_start_text has made. ids [batch, tokens] are copied; one outside of the vocabulary, and more
 * tokens than the cluster was made for, are BAD_VALUE. leader_collect ends each request. */
#ifndef INFER_LEADER_TEXT_H
#define INFER_LEADER_TEXT_H
#include "infer/cluster/leader.h"

/* One sequence and how to go on from it. Tokens come by leader_text_next; only one prompt may be under way. */
Status leader_text_prompt(Leader *leader, const int32_t *ids, int64_t count, const Sampling *sampling);

/* Waits for the next new token of the prompt: *more is false when there is none any more. */
Status leader_text_next(Leader *leader, int32_t *id, bool *more);

/* No more tokens are wanted; some may be under way. */
Status leader_text_stop(Leader *leader);

/* The loss of each label [batch, tokens] (-1: does not count) as the token after the one at its place. */
Status leader_text_score(Leader *leader, const int32_t *ids, const int32_t *labels, int64_t batch, int64_t tokens);

/* The logits after the last token [batch, V]. */
Status leader_text_last(Leader *leader, const int32_t *ids, int64_t batch, int64_t tokens);

/* Of a model that classifies texts: logits [batch, classes]. Texts of a request have one length, so that each is divided among the nodes as
 * if it came alone, and its answer does not depend on its neighbours. */
Status leader_text_classify(Leader *leader, const int32_t *ids, int64_t batch, int64_t tokens);

#endif
