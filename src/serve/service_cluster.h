/* /v1/cluster: the state of each model's cluster as JSON, for the page and for programs; /v1/cluster/events: the same every half second, as
 * server-sent events. */
#ifndef SERVE_SERVICE_CLUSTER_H
#define SERVE_SERVICE_CLUSTER_H
#include "serve/service.h"

/* {"models": [{"model", "ready", "queued", "prefilling", "decoding", "submitted"..., "devices": [{"device", "name", "state", "share",
 * "sequences", "decode_rate", "tokens_decoded", "failures", "compute_seconds", "wait_seconds", "bytes_sent"...}]}], "uptime_seconds"} */
json_t *service_cluster_json(Service *service); /* fresh; NULL: no memory */

void service_cluster_answer(void *service, HttpRequest *request);
void service_cluster_events(void *service, HttpRequest *request);

/* Wakes all streams of events whose next event is due: to be called by whoever has a clock, at least every quarter second. */
void service_cluster_tick(Service *service);

#endif
