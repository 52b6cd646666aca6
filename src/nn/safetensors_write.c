/* Writing safetensors: one pass for the header, one for the data, converted a chunk at a time.
 *
 *   | length | header, padded with spaces to a multiple of 64 | tensors, those of rounder sizes first |
 *
 * The format allows no hole between tensors, so alignment comes from the order alone: a tensor whose size is a multiple of 2^k bytes (up to
 * 64) comes before those of smaller multiples and therefore starts at a multiple of 2^k. Each starts aligned for its own dtype. */
#include "nn/json_build.h"
#include "nn/safetensors.h"
#include "nn/safetensors_convert.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, LENGTH_BYTES = 8, CHUNK = 1 << 16 };

static Status no_memory(const char *path) { return status_set(STATUS_NO_MEMORY, "%s: no memory for its header", path); }

/* An item, its size in the file and its place in the caller's list. */
typedef struct Planned {
  const SafeItem *item;
  int64_t count;
  uint64_t bytes;
  size_t index;
} Planned;

static Status plan_item(Planned *planned, const SafeItem *item, size_t index, const char *path) {
  int64_t count = 1, bytes;
  bool sane = item->dims >= 0 && item->dims <= SAFE_DIMS && safe_dtype_agree(item->dtype, item->source);
  for (int i = 0; sane && i < item->dims; i++) sane = item->shape[i] >= 0 && !__builtin_mul_overflow(count, item->shape[i], &count);
  if (!sane || __builtin_mul_overflow(count, (int64_t)safe_dtype_bytes(item->dtype), &bytes))
    return status_set(STATUS_BAD_VALUE, "%s: tensor %.100s has a shape or dtype that cannot be written", path, item->name);
  *planned = (Planned){item, count, (uint64_t)bytes, index};
  return STATUS_OK;
}

static uint64_t roundness(uint64_t bytes) { return (bytes | ALIGN) & (~(bytes | ALIGN) + 1); }

static int by_roundness(const void *a, const void *b) {
  const Planned *x = a, *y = b;
  uint64_t rx = roundness(x->bytes), ry = roundness(y->bytes);
  if (rx != ry) return rx > ry ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

/* ---- the header */

static json_t *entry_json(const Planned *planned, uint64_t offset) {
  json_t *shape = json_array();
  for (int i = 0; i < planned->item->dims; i++) json_build_append(&shape, json_integer(planned->item->shape[i]));
  return json_pack("{s:s, s:o, s:[II]}", "dtype", safe_dtype_name(planned->item->dtype), "shape", shape, "data_offsets", (json_int_t)offset,
                   (json_int_t)(offset + planned->bytes));
}

static json_t *metadata_json(const char *const *metadata) {
  json_t *map = json_object();
  for (; metadata[0] && metadata[1]; metadata += 2) json_build_put(&map, metadata[0], json_string(metadata[1]));
  return map;
}

static Status fill_header(json_t *header, const Planned *plan, size_t count, const char *const *metadata, const char *path) {
  if (metadata && json_object_set_new(header, "__metadata__", metadata_json(metadata)) != 0) return no_memory(path);
  uint64_t offset = 0;
  for (size_t i = 0; i < count; i++) {
    const char *name = plan[i].item->name;
    if (json_object_get(header, name)) return status_set(STATUS_BAD_VALUE, "%s: two tensors are called %.100s", path, name);
    json_t *entry = entry_json(&plan[i], offset);
    if (!entry) return no_memory(path);
    if (json_object_set_new(header, name, entry) != 0)
      return status_set(STATUS_BAD_VALUE, "%s: cannot describe tensor %.100s (its name must be UTF-8)", path, name);
    offset += plan[i].bytes;
  }
  return STATUS_OK;
}

/* The text padded so that length and header together fill whole cache lines; caller frees. NULL: no memory. (json_dumps forgets some of its
 * own failures to allocate.) */
static char *padded_text(const json_t *header, uint64_t *length) {
  size_t used = json_dumpb(header, NULL, 0, JSON_COMPACT);
  *length = (used + LENGTH_BYTES + ALIGN - 1) / ALIGN * ALIGN - LENGTH_BYTES;
  char *padded = used ? malloc(*length) : NULL;
  if (!padded) return NULL;
  memset(padded, ' ', *length);
  if (json_dumpb(header, padded, used, JSON_COMPACT) == used) return padded;
  free(padded);
  return NULL;
}

static Status header_text(const Planned *plan, size_t count, const char *const *metadata, const char *path, char **text, uint64_t *length) {
  json_t *header = json_object();
  if (!header) return no_memory(path);
  Status status = fill_header(header, plan, count, metadata, path);
  if (status == STATUS_OK && !(*text = padded_text(header, length))) status = no_memory(path);
  json_decref(header);
  return status;
}

/* ---- the data. A failed write is kept by the stream and reported by files_commit. */

typedef struct Buffers {
  uint8_t *made, *converted; /* a chunk each */
} Buffers;

static Status write_item(FILE *stream, const Planned *planned, const Buffers *buffers) {
  const SafeItem *item = planned->item;
  size_t from = safe_dtype_bytes(item->source), to = safe_dtype_bytes(item->dtype);
  if (planned->count == 0) return STATUS_OK; /* an empty tensor may have no data at all */
  if (item->dtype == item->source && !item->fill) {
    fwrite(item->data, to, (size_t)planned->count, stream);
    return STATUS_OK;
  }
  for (int64_t done = 0; done < planned->count; done += CHUNK) {
    int64_t n = planned->count - done < CHUNK ? planned->count - done : CHUNK, at;
    const uint8_t *source = item->fill ? buffers->made : (const uint8_t *)item->data + (size_t)done * from;
    if (item->fill) item->fill(item->context, done, n, buffers->made);
    safe_convert(item->dtype, buffers->converted, item->source, source, n, &at);
    if (at >= 0)
      return status_set(STATUS_BAD_VALUE, "tensor %.100s: number %lld is too large for %s; choose a wider type", item->name,
                        (long long)(done + at), safe_dtype_name(item->dtype));
    fwrite(buffers->converted, to, (size_t)n, stream);
  }
  return STATUS_OK;
}

static Status write_data(FILE *stream, const Planned *plan, size_t count, const char *path) {
  const size_t bytes = (size_t)CHUNK * sizeof(int64_t);
  uint8_t *memory = malloc(2 * bytes);
  if (!memory) return status_set(STATUS_NO_MEMORY, "%s: no memory to write it", path);
  Buffers buffers = {memory, memory + bytes};
  Status status = STATUS_OK;
  for (size_t i = 0; i < count && status == STATUS_OK && !ferror(stream); i++) status = write_item(stream, &plan[i], &buffers);
  free(memory);
  return status;
}

static Status write_file(const char *path, const Planned *plan, size_t count, const char *const *metadata) {
  char *text = NULL;
  uint64_t length = 0;
  TRY(header_text(plan, count, metadata, path, &text, &length));
  FileWriter writer;
  Status status = files_create(&writer, path);
  if (status == STATUS_OK) {
    fwrite(&length, sizeof length, 1, writer.stream);
    fwrite(text, 1, length, writer.stream);
    status = write_data(writer.stream, plan, count, path);
    if (status == STATUS_OK)
      status = files_commit(&writer);
    else
      files_abort(&writer), status_wrap(status, "%s", path);
  }
  free(text);
  return status;
}

Status safetensors_save(const char *path, const SafeItem *items, size_t count, const char *const *metadata) {
  Planned *plan = malloc((count + 1) * sizeof *plan);
  if (!plan) return no_memory(path);
  Status status = STATUS_OK;
  for (size_t i = 0; i < count && status == STATUS_OK; i++) status = plan_item(&plan[i], &items[i], i, path);
  if (status == STATUS_OK) {
    qsort(plan, count, sizeof *plan, by_roundness);
    status = write_file(path, plan, count, metadata);
  }
  free(plan);
  return status;
}
