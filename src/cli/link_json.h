/* A measured link in JSON output. */
#ifndef CLI_LINK_JSON_H
#define CLI_LINK_JSON_H
#include "infer/wire/link_model.h"
#include <jansson.h>

/* {to_bits_per_second, from_bits_per_second, latency_ms}, or null where there is no `end`. Fresh; NULL when out of memory. */
json_t *link_json(const LinkEnd *end);

#endif
