/* Record layout: u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data, all little-endian.
 * Leaves out reading. Invariant: a record is encoded in memory and written with one call, so a killed run leaves at most one torn record
 * at the end, which readers skip; one that a full disk tore is taken back. */
#include "train/event_file.h"
#include "base/array.h"
#include "base/files.h"
#include "train/append_file.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Bytes under construction; failure to grow is sticky and found at the end. */
typedef struct Bytes {
  uint8_t *data;
  size_t size, capacity;
  bool failed;
} Bytes;

struct EventFile {
  AppendFile file;
  Bytes record, event, summary, value; /* kept from row to row */
};

enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };                                            /* protobuf wire types */
enum { EVENT_WALL_TIME = 1, EVENT_STEP, EVENT_VERSION, EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 }; /* field numbers */
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

uint32_t event_file_crc(const void *data, size_t size) {
  const uint8_t *bytes = data; /* bit by bit: a record has a few hundred bytes and is written once in seconds */
  uint32_t crc = ~UINT32_C(0);
  for (size_t i = 0; i < size; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (UINT32_C(0x82F63B78) & (0 - (crc & 1)));
  }
  return ~crc;
}

static uint32_t masked_crc(const void *data, size_t size) {
  uint32_t crc = event_file_crc(data, size);
  return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}

static void put(Bytes *bytes, const void *data, size_t size) {
  if (bytes->failed) return;
  if (ARRAY_RESERVE(bytes->data, bytes->size, size, bytes->capacity, "an event") != STATUS_OK) {
    bytes->failed = true;
    return;
  }
  memcpy(bytes->data + bytes->size, data, size);
  bytes->size += size;
}

static void put_little_endian(Bytes *bytes, uint64_t number, size_t size) {
  uint8_t out[8];
  for (size_t i = 0; i < size; i++) out[i] = (uint8_t)(number >> (8 * i));
  put(bytes, out, size);
}

static void put_varint(Bytes *bytes, uint64_t number) {
  for (; number >= 128; number >>= 7) put_little_endian(bytes, (number & 127) | 128, 1);
  put_little_endian(bytes, number, 1);
}

static void put_field(Bytes *bytes, unsigned field, unsigned wire) { put_varint(bytes, field << 3 | wire); }

static void put_bytes(Bytes *bytes, unsigned field, const void *data, size_t size) {
  put_field(bytes, field, WIRE_BYTES);
  put_varint(bytes, size);
  put(bytes, data, size);
}

static void put_message(Bytes *bytes, unsigned field, const Bytes *message) {
  bytes->failed = bytes->failed || message->failed;
  put_bytes(bytes, field, message->data, message->size);
}

static void start_event(EventFile *file, int64_t step) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
  uint64_t bits;
  memcpy(&bits, &seconds, sizeof bits);
  file->event.size = 0;
  put_field(&file->event, EVENT_WALL_TIME, WIRE_64);
  put_little_endian(&file->event, bits, 8);
  put_field(&file->event, EVENT_STEP, WIRE_VARINT);
  put_varint(&file->event, (uint64_t)step);
}

static Status write_event(EventFile *file) {
  Bytes *record = &file->record;
  record->size = 0;
  put_little_endian(record, file->event.size, 8);
  if (!record->failed) put_little_endian(record, masked_crc(record->data, 8), 4);
  put(record, file->event.data, file->event.size);
  put_little_endian(record, masked_crc(file->event.data, file->event.size), 4);
  if (record->failed || file->event.failed) return status_set(STATUS_NO_MEMORY, "%s: out of memory for a record", file->file.path);
  return append_file_add(&file->file, record->data, record->size);
}

/* A name that no earlier file has, so that TensorBoard reads the files of resumed runs in order. */
static Status create(EventFile *file, const char *directory) {
  enum { ATTEMPTS = 100, NAME = 384 };
  char host[128] = "host", name[NAME];
  if (gethostname(host, sizeof host - 1) != 0 || !host[0]) strcpy(host, "localhost");
  for (char *c = host; *c; c++)
    if (*c == '/') *c = '-';
  long long seconds = (long long)time(NULL);
  for (int i = 0; i < ATTEMPTS; i++) {
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.astra", seconds + i, host, (long)getpid());
    char *path = files_join(directory, name);
    if (!path) return status_set(STATUS_NO_MEMORY, "out of memory for the name of an event file");
    Status status = append_file_open(&file->file, path, true);
    bool taken = status == STATUS_IO && errno == EEXIST;
    free(path);
    if (!taken) return status;
    append_file_close(&file->file);
  }
  return status_set(STATUS_IO, "cannot create an event file in %s: %d names are taken", directory, (int)ATTEMPTS);
}

static Status write_head(EventFile *file, int64_t resume_step) {
  static const char version[] = "brain.Event:2";
  start_event(file, 0);
  put_bytes(&file->event, EVENT_VERSION, version, sizeof version - 1);
  TRY(write_event(file));
  if (resume_step < 0) return STATUS_OK;
  start_event(file, resume_step + 1);
  file->value.size = 0;
  put_field(&file->value, SESSION_STATUS, WIRE_VARINT);
  put_varint(&file->value, SESSION_START);
  put_message(&file->event, EVENT_SESSION_LOG, &file->value);
  return write_event(file);
}

Status event_file_open(EventFile **opened, const char *directory, int64_t resume_step) {
  *opened = NULL;
  EventFile *file = calloc(1, sizeof *file);
  if (!file) return status_set(STATUS_NO_MEMORY, "out of memory for an event file");
  file->file.fd = -1;
  Status status = create(file, directory);
  if (status == STATUS_OK) status = write_head(file, resume_step);
  if (status == STATUS_OK)
    *opened = file;
  else
    event_file_close(file);
  return status;
}

static void put_scalar(EventFile *file, const char *tag, double number) {
  float simple = (float)number;
  uint32_t bits;
  memcpy(&bits, &simple, sizeof bits);
  file->value.size = 0;
  put_bytes(&file->value, VALUE_TAG, tag, strlen(tag));
  put_field(&file->value, VALUE_SIMPLE, WIRE_32);
  put_little_endian(&file->value, bits, 4);
  put_message(&file->summary, SUMMARY_VALUE, &file->value);
}

Status event_file_scalars(EventFile *file, int64_t step, const char *const *tags, const double *values, size_t count) {
  file->summary.size = 0;
  for (size_t i = 0; i < count; i++)
    if (!isnan(values[i])) put_scalar(file, tags[i], values[i]);
  if (file->summary.size == 0 && !file->summary.failed) return STATUS_OK;
  start_event(file, step);
  put_message(&file->event, EVENT_SUMMARY, &file->summary);
  return write_event(file);
}

void event_file_close(EventFile *file) {
  if (!file) return;
  append_file_close(&file->file);
  free(file->record.data);
  free(file->event.data);
  free(file->summary.data);
  free(file->value.data);
  free(file);
}
