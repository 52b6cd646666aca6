/* What the service answers at which path. The interface is OpenAI's where that has one:
 *
 *   /v1/models, /v1/models/NAME                          the models, and one of them
 *   /v1/completions, /v1/chat/completions                completion.h
 *   /tokenize, /detokenize                               text <-> ids, as vLLM and llama.cpp have them
 *   /v1/images/classify                                  image_request.h
 *   /v1/cluster                                          {"models": [{"model", "ready", "queued", "prefilling", "decoding", "submitted"...,
 *                                                        "devices": [{"device", "name", "state", "share", "sequences", "decode_rate",
 *                                                        "tokens_decoded", "failures", "compute_seconds", "wait_seconds",
 *                                                        "bytes_sent"...}]}], "uptime_seconds"}
 *   /v1/cluster/groups                                   {"groups": N or "auto", "model"}: another bit rate
 *   /v1/cluster/events                                   the same as /v1/cluster every half second, as server-sent events
 *   /health, /ready, /metrics                            for those who operate it
 *   / and its files                                      page.h */
#ifndef SERVE_SERVICE_ROUTES_H
#define SERVE_SERVICE_ROUTES_H
#include "serve/service.h"

extern const HttpRoute *const service_routes[]; /* for HttpOptions, with the service as their context */

/* Wakes all streams of events whose next event is due: to be called by whoever has a clock, at least every quarter second. */
void service_routes_tick(Service *service);

#endif
