/* Output that several commands of astra-infer share: statistics of the nodes and their traffic, as text or as JSON. */
#ifndef INFER_REPORT_H
#define INFER_REPORT_H
#include "infer/cluster/leader.h"
#include <jansson.h>
#include <stdio.h>

/* What all nodes sent together, and of it per token, block, site and receiver (0 where none sends codes). */
typedef struct ReportSent {
  uint64_t bytes;
  bool codes; /* several nodes, whose strategy sends codes */
  double token_bytes, coded_bits, packed_bits;
} ReportSent;

ReportSent report_sent(const Leader *leader, int64_t samples);

/* A line with the saving of entropy coding, if there is one. */
void report_bits(FILE *out, const ReportSent *sent);

/* The devices: the table with the sums of all requests, or a fresh JSON value. */
void report_nodes(FILE *out, const Leader *leader);
json_t *report_nodes_json(const Leader *leader);

/* Seconds of one sample, as predicted and as measured: the fastest of all requests; 0: there was none. */
void report_plan_line(FILE *out, double predicted, double measured);

/* Full-precision attention rate of the tokens' shares, sum n^2 / T^2. */
double report_fpar(const Leader *leader);

/* Payload bytes (without headers) per content token, summed over all nodes, receivers and blocks, as counted and by the formula of
 * docs/MATH.md; all answers so far were of images, or of losses of texts (all_rows: every row of the last block is needed).
 * One line, none with one node; "bytes_per_token" and "bytes_per_token_formula". */
void report_traffic(FILE *out, const Leader *leader, int64_t samples, bool all_rows);
void report_traffic_json(json_t *value, const Leader *leader, int64_t samples, bool all_rows);

/* Of texts of several lengths, for which the formula gives no one number: how many were computed with each bit rate. One line where several
 * were used; "rates", of a model with several. */
void report_rates(FILE *out, const Leader *leader);
void report_rates_json(json_t *value, const Leader *leader);

#endif
