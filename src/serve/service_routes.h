/* What the service answers at which path. The interface is OpenAI's where that has one:
 *
 *   /v1/models, /v1/completions, /v1/chat/completions    completion.h
 *   /tokenize, /detokenize                               text <-> ids, as vLLM and llama.cpp have them
 *   /v1/images/classify                                  image_request.h
 *   /v1/cluster, /v1/cluster/events                      state of the devices as JSON: once, or as server-sent events
 *   /health, /ready, /metrics                            for those who operate it (service_metrics.h)
 *   / and its files                                      page.h */
#ifndef SERVE_SERVICE_ROUTES_H
#define SERVE_SERVICE_ROUTES_H
#include "serve/service.h"

extern const HttpRoute service_routes[]; /* for HttpOptions, with the service as their context */

#endif
