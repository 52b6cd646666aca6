/* A device's side of being measured (probe_message.h): takes a PROBE in, and answers it. */
#ifndef INFER_SESSION_PROBE_H
#define INFER_SESSION_PROBE_H
#include "infer/cluster/connection.h"
#include "infer/cluster/probe_message.h"
#include <stdbool.h>

typedef struct SessionProbe {
  bool arrived;    /* one waits for its answer */
  WireHeader last; /* it */
  uint8_t *bytes;  /* [WIRE_HEADER + PROBE_MOST] from the first one on: its payload, then the answer */
} SessionProbe;

void session_probe_release(SessionProbe *probe); /* accepts a zeroed one */

/* Of a connection's sink. One at a time: the next is held back until this one is answered. */
Status session_probe_place(SessionProbe *probe, const ModelConfig *config, const WireHeader *header, uint8_t **payload);
void session_probe_deliver(SessionProbe *probe, const WireHeader *header);

/* Measures, on the threads that run, and sends the answer, which is in *probe until it has left. */
Status session_probe_answer(SessionProbe *probe, const ModelConfig *config, Connection *control);

#endif
