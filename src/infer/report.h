/* Output of astra-infer: predictions, statistics of the nodes, accuracy, the decision of a self-test; as text or as JSON. */
#ifndef INFER_REPORT_H
#define INFER_REPORT_H
#include "infer/evaluate.h"
#include <jansson.h>
#include <stdio.h>

/* Each writes text to `out`, or, where that is NULL, returns the same as a fresh JSON value: NULL when out of memory. */
json_t *report_evaluation(FILE *out, const Leader *leader, const Evaluation *evaluation);
json_t *report_text_evaluation(FILE *out, const Leader *leader, const TextEvaluation *evaluation);
json_t *report_label_evaluation(FILE *out, const Leader *leader, const Texts *texts, const LabelEvaluation *evaluation);

/* The devices: the table with the sums of all requests, or a fresh JSON value. */
void report_nodes(FILE *out, const Leader *leader);
json_t *report_nodes_json(const Leader *leader);

/* Seconds of one sample, as predicted and as measured: the fastest of all requests; 0: there was none. */
void report_plan_line(FILE *out, double predicted, double measured);

/* Full-precision attention rate of the tokens' shares, sum n^2 / T^2. */
double report_fpar(const Leader *leader);

/* Payload bytes (without headers) per content token, summed over all nodes, receivers and blocks, as counted and by the formula of
 * docs/MATH.md; all answers so far were of images, or of losses of texts of one length (all_rows: every row of the last block is needed).
 * One line, none with one node; "bytes_per_token" and "bytes_per_token_formula". */
void report_traffic(FILE *out, const Leader *leader, int64_t samples, bool all_rows);
void report_traffic_json(json_t *value, const Leader *leader, int64_t samples, bool all_rows);

#endif
