/* What the nodes have sent each other beside what the formulas of docs/MATH.md say. */
#ifndef INFER_REPORT_TRAFFIC_H
#define INFER_REPORT_TRAFFIC_H
#include "infer/cluster/leader.h"
#include <jansson.h>
#include <stdio.h>

/* Payload bytes (headers left out) a content token, summed over all nodes, receivers and blocks; all answers so far were of images, or
 * of losses of texts of one length (all_rows: every row of the last block was wanted). */
double report_traffic_measured(const Leader *leader, int64_t samples);
double report_traffic_formula(const Leader *leader, bool all_rows);

void report_traffic(FILE *out, const Leader *leader, int64_t samples, bool all_rows); /* one line; none with one node */

/* "bytes_per_token" and "bytes_per_token_formula". */
void report_traffic_json(json_t *value, const Leader *leader, int64_t samples, bool all_rows);

#endif
