/* TensorBoard event files: a sequence of TFRecords, each an Event message of its protocol (tensorflow/core/util/event.proto), encoded by
 * hand as only four kinds of fields are needed. Private to metrics.c. */
#ifndef TRAIN_EVENT_FILE_H
#define TRAIN_EVENT_FILE_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct EventFile EventFile;

/* Creates DIRECTORY/events.out.tfevents.SECONDS.HOST.PID.astra with its version record. On resume (resume_step >= 0) a session-start
 * record follows, which makes TensorBoard forget what earlier files of the directory hold beyond that step. */
Status event_file_open(EventFile **file, const char *directory, int64_t resume_step);
/* One event with a scalar for each value that is not NAN; flushed. Nothing is written when all are. */
Status event_file_scalars(EventFile *file, int64_t step, const char *const *tags, const double *values, size_t count);
void event_file_close(EventFile *file); /* accepts NULL */

/* CRC-32C (Castagnoli), as TFRecords use it before masking. */
uint32_t event_file_crc(const void *data, size_t size);

#endif
