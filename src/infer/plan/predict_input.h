/* The way of a request's input from the leader to the devices, which the paper's latencies leave out. */
#ifndef INFER_PREDICT_INPUT_H
#define INFER_PREDICT_INPUT_H
#include "infer/plan/predict.h"

/* Seconds until every device has its input, from the leader, which sits where device 0 is and sends the others theirs one after the other:
 * of pictures the patches of the tokens that it computes, a byte a number (patches.h), of texts 4 bytes for every token. The links are as
 * between the devices, those of the leader its own; over streams, so that loss is left out. */
Status predict_input(const PlanCase *plan, double *seconds);

#endif
