/* Fuzz target: a file of a link's rate.
 * Holds: what is accepted has times that rise from 0 and rates that are none below 0 and end above it; integrating it comes to an end. */
#include "fuzz/fuzz.h"
#include "infer/transport/netem.c"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  LinkTrace trace;
  char *text = malloc(size ? size : 1); /* exact, so that a sanitizer sees a byte too many */
  need(text != NULL);
  memcpy(text, data, size);
  if (parse(&trace, text, size) == STATUS_OK) {
    need(trace.count > 0 && trace.count <= MAX_TRACE_POINTS && trace.points[0].seconds == 0);
    need(trace.points[trace.count - 1].bits_per_second > 0);
    for (int i = 0; i < trace.count; i++) {
      need(trace.points[i].bits_per_second >= 0 && isfinite(trace.points[i].bits_per_second));
      need(i == 0 || trace.points[i].seconds > trace.points[i - 1].seconds);
    }
    const LinkOptions options = {.trace = trace};
    Netem netem;
    bool lost;
    double left;
    need(netem_init(&netem, &options, NULL, NULL, 0, 2, 0) == STATUS_OK);
    need(netem_send(&netem, 1, 0.25, 1500, true, &left, &lost) >= 0.25 && left >= 0.25);
    netem_release(&netem);
    link_trace_release(&trace);
  } else {
    need(trace.points == NULL);
  }
  free(text);
  return 0;
}
