/* GGUF files for tests, put together in memory: entries and tensors in the order of the calls, then the file. What it writes follows the
 * specification and nothing of src/base/gguf.c; broken files are made by changing bytes afterwards. */
#ifndef UNIT_GGUF_WRITER_H
#define UNIT_GGUF_WRITER_H
#include "base/gguf.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct GgufBytes {
  uint8_t *data;
  size_t size, room;
} GgufBytes;

typedef struct GgufWriter {
  GgufBytes entries, infos, data;
  uint64_t entry_count, tensor_count;
  size_t alignment;
  uint32_t version;
} GgufWriter;

static inline void gguf_put(GgufBytes *bytes, const void *data, size_t size) {
  if (bytes->size + size > bytes->room) {
    bytes->room = 2 * (bytes->size + size);
    bytes->data = realloc(bytes->data, bytes->room);
    if (!bytes->data) abort();
  }
  if (size > 0) memcpy(bytes->data + bytes->size, data, size);
  bytes->size += size;
}

static inline void gguf_put_u32(GgufBytes *bytes, uint32_t number) { gguf_put(bytes, &number, sizeof number); }
static inline void gguf_put_u64(GgufBytes *bytes, uint64_t number) { gguf_put(bytes, &number, sizeof number); }

static inline void gguf_put_text(GgufBytes *bytes, const char *text, size_t size) {
  gguf_put_u64(bytes, size);
  gguf_put(bytes, text, size);
}

static inline void gguf_pad(GgufBytes *bytes, size_t alignment) {
  while (bytes->size % alignment != 0) gguf_put(bytes, "", 1);
}

static inline void gguf_writer_init(GgufWriter *writer) { *writer = (GgufWriter){.alignment = 32, .version = 3}; }

static inline void gguf_writer_release(GgufWriter *writer) {
  free(writer->entries.data);
  free(writer->infos.data);
  free(writer->data.data);
}

/* ---- entries. The types' numbers: u8 0, i8 1, u16 2, i16 3, u32 4, i32 5, f32 6, bool 7, string 8, array 9, u64 10, i64 11, f64 12. */

static inline void gguf_put_key(GgufWriter *writer, const char *key, uint32_t type) {
  gguf_put_text(&writer->entries, key, strlen(key));
  gguf_put_u32(&writer->entries, type);
  writer->entry_count++;
}

static inline void gguf_put_value(GgufWriter *writer, const char *key, uint32_t type, const void *value, size_t size) {
  gguf_put_key(writer, key, type);
  gguf_put(&writer->entries, value, size);
}

static inline void gguf_add_u32(GgufWriter *writer, const char *key, uint32_t value) {
  gguf_put_value(writer, key, 4, &value, sizeof value);
}
static inline void gguf_add_f32(GgufWriter *writer, const char *key, float value) { gguf_put_value(writer, key, 6, &value, sizeof value); }

static inline void gguf_add_flag(GgufWriter *writer, const char *key, bool value) {
  uint8_t byte = value;
  gguf_put_value(writer, key, 7, &byte, sizeof byte);
}

static inline void gguf_add_text(GgufWriter *writer, const char *key, const char *text) {
  gguf_put_key(writer, key, 8);
  gguf_put_text(&writer->entries, text, strlen(text));
}

/* The elements are put behind it by the caller. */
static inline void gguf_add_array(GgufWriter *writer, const char *key, uint32_t element, uint64_t count) {
  gguf_put_key(writer, key, 9);
  gguf_put_u32(&writer->entries, element);
  gguf_put_u64(&writer->entries, count);
}

/* ---- tensors. shape: neighbours in memory first. */

static inline void gguf_add_tensor(GgufWriter *writer, const char *name, uint32_t type, int dims, const int64_t *shape, const void *data,
                                   size_t bytes) {
  gguf_pad(&writer->data, writer->alignment);
  gguf_put_text(&writer->infos, name, strlen(name));
  gguf_put_u32(&writer->infos, (uint32_t)dims);
  for (int i = 0; i < dims; i++) gguf_put_u64(&writer->infos, (uint64_t)shape[i]);
  gguf_put_u32(&writer->infos, type);
  gguf_put_u64(&writer->infos, writer->data.size);
  gguf_put(&writer->data, data, bytes);
  writer->tensor_count++;
}

/* The whole file; the caller frees *data. */
static inline void gguf_writer_file(GgufWriter *writer, uint8_t **data, size_t *size) {
  GgufBytes file = {0};
  gguf_put(&file, "GGUF", 4);
  gguf_put_u32(&file, writer->version);
  gguf_put_u64(&file, writer->tensor_count);
  gguf_put_u64(&file, writer->entry_count);
  gguf_put(&file, writer->entries.data, writer->entries.size);
  gguf_put(&file, writer->infos.data, writer->infos.size);
  gguf_pad(&file, writer->alignment);
  gguf_pad(&writer->data, writer->alignment);
  gguf_put(&file, writer->data.data, writer->data.size);
  *data = file.data;
  *size = file.size;
}

/* Parsed as "sample"; ends the writer. The caller closes the file, then frees what is returned. */
static inline uint8_t *gguf_writer_parse(GgufWriter *writer, GgufFile *file) {
  uint8_t *data;
  size_t size;
  gguf_writer_file(writer, &data, &size);
  if (gguf_parse(file, data, size, "sample") != STATUS_OK) abort();
  gguf_writer_release(writer);
  return data;
}

static inline bool gguf_writer_save(GgufWriter *writer, const char *path) {
  uint8_t *data;
  size_t size;
  gguf_writer_file(writer, &data, &size);
  FILE *stream = fopen(path, "wb");
  bool written = stream && fwrite(data, 1, size, stream) == size;
  if (stream) written = fclose(stream) == 0 && written;
  free(data);
  return written;
}

#endif
