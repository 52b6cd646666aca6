/* See link_json.h. */
#include "cli/link_json.h"

json_t *link_json(const LinkEnd *end) {
  if (!end) return json_null();
  return json_pack("{s:f, s:f, s:f}", "to_bits_per_second", end->in, "from_bits_per_second", end->out, "latency_ms", 1e3 * end->latency);
}
