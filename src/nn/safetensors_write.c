/* Writing safetensors: a header without digests, then the data, converted and hashed a chunk at a time, then the header again, of the same
 * length.
 *
 *   | length | header, padded with spaces to a multiple of 64 | tensors, those of rounder sizes first |
 *
 * The format allows no hole between tensors, so alignment follows only from the order: a tensor whose size is a multiple of 2^k bytes (up
 * to 64) comes before those of smaller multiples and therefore starts at a multiple of 2^k. Each starts aligned for its own dtype. */
#include "nn/json_build.h"
#include "nn/safetensors.h"
#include "nn/safetensors_internal.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, LENGTH_BYTES = 8, CHUNK = 1 << 16, PIECE = 1 << 17 };

/* An item, its size in the file and its place in the caller's list. */
typedef struct Planned {
  const SafeItem *item;
  int64_t count;
  uint64_t bytes, digest;
  size_t index;
} Planned;

typedef struct FilePlan {
  const char *path;
  Planned *list; /* in the order in which they are written */
  size_t count;
  const char *const *metadata; /* the caller's */
  uint64_t digest;             /* of the header */
} FilePlan;

static Status plan_item(Planned *planned, const SafeItem *item, size_t index, const char *path) {
  int64_t count = 1, bytes;
  bool sane = item->dims >= 0 && item->dims <= SAFE_DIMS && (item->dtype == item->source || safe_dtype_agree(item->dtype, item->source));
  for (int i = 0; sane && i < item->dims; i++) sane = item->shape[i] >= 0 && !__builtin_mul_overflow(count, item->shape[i], &count);
  if (!sane || __builtin_mul_overflow(count, (int64_t)safe_dtype_bytes(item->dtype), &bytes))
    return status_set(STATUS_BAD_VALUE, "%s: tensor %.100s has a shape or dtype that cannot be written", path, item->name);
  *planned = (Planned){.item = item, .count = count, .bytes = (uint64_t)bytes, .index = index};
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

static json_t *digest_json(uint64_t digest) {
  char text[SAFE_DIGEST_TEXT];
  safe_digest_text(digest, text);
  return json_string(text);
}

static json_t *metadata_json(const FilePlan *plan) {
  json_t *map = json_object();
  for (const char *const *pair = plan->metadata; pair && pair[0] && pair[1]; pair += 2)
    if (!safe_digest_is_key(pair[0])) json_build_put(&map, pair[0], json_string(pair[1]));
  json_build_put(&map, SAFE_DIGEST_KEY, digest_json(plan->digest));
  for (size_t i = 0; i < plan->count; i++) {
    char *key = NULL;
    if (asprintf(&key, SAFE_DIGEST_PREFIX "%s", plan->list[i].item->name) < 0) key = NULL;
    if (key)
      json_build_put(&map, key, digest_json(plan->list[i].digest));
    else
      json_decref(map), map = NULL;
    free(key);
  }
  return map;
}

static Status fill_header(json_t *header, const FilePlan *plan) {
  uint64_t offset = 0;
  for (size_t i = 0; i < plan->count; i++) {
    const SafeItem *item = plan->list[i].item;
    const char *name = item->name;
    if (json_object_get(header, name)) return status_set(STATUS_BAD_VALUE, "%s: two tensors are called %.100s", plan->path, name);
    json_t *shape = json_array();
    for (int d = 0; d < item->dims; d++) json_build_append(&shape, json_integer(item->shape[d]));
    json_t *entry = json_pack("{s:s, s:o, s:[II]}", "dtype", safe_dtype_name(item->dtype), "shape", shape, "data_offsets",
                              (json_int_t)offset, (json_int_t)(offset + plan->list[i].bytes));
    if (!entry) return status_no_memory(plan->path, "its header");
    if (json_object_set_new(header, name, entry) != 0)
      return status_set(STATUS_BAD_VALUE, "%s: cannot describe tensor %.100s (its name must be UTF-8)", plan->path, name);
    offset += plan->list[i].bytes;
  }
  return json_object_set_new(header, "__metadata__", metadata_json(plan)) == 0 ? STATUS_OK : status_no_memory(plan->path, "its header");
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

/* At the beginning of the file: length and text. */
static Status write_header(FILE *stream, const FilePlan *plan) {
  char *text = NULL;
  uint64_t length = 0;
  json_t *header = json_object();
  if (!header) return status_no_memory(plan->path, "its header");
  Status status = fill_header(header, plan);
  if (status == STATUS_OK && !(text = padded_text(header, &length))) status = status_no_memory(plan->path, "its header");
  if (status == STATUS_OK && length > SAFE_HEADER_MAX)
    status = status_set(STATUS_BAD_VALUE, "its header would have %llu bytes, and no more than %d are read again",
                        (unsigned long long)length, (int)SAFE_HEADER_MAX);
  if (status == STATUS_OK && fseek(stream, 0, SEEK_SET) == 0) { /* else nothing can be written, and the commit says why */
    fwrite(&length, sizeof length, 1, stream);
    fwrite(text, 1, length, stream);
  }
  json_decref(header);
  free(text);
  return status;
}

/* ---- the digest of the header */

static int by_item_name(const void *a, const void *b) {
  return strcmp((*(const Planned *const *)a)->item->name, (*(const Planned *const *)b)->item->name);
}

static int by_key(const void *a, const void *b) { return strcmp(**(const char *const *const *)a, **(const char *const *const *)b); }

static Status digest_tensors(const FilePlan *plan, SafeDigest *digest) {
  const Planned **sorted = malloc((plan->count + 1) * sizeof *sorted);
  if (!sorted) return status_no_memory(plan->path, "its header");
  for (size_t i = 0; i < plan->count; i++) sorted[i] = &plan->list[i];
  qsort(sorted, plan->count, sizeof *sorted, by_item_name);
  for (size_t i = 0; i < plan->count; i++) {
    const SafeItem *item = sorted[i]->item;
    safe_digest_add_tensor(digest, item->name, item->dtype, item->dims, item->shape, sorted[i]->digest);
  }
  free(sorted);
  return STATUS_OK;
}

static Status digest_pairs(const FilePlan *plan, SafeDigest *digest) {
  const char *const *metadata = plan->metadata;
  size_t count = 0;
  while (metadata && metadata[2 * count] && metadata[2 * count + 1]) count++;
  const char *const **sorted = malloc((count + 1) * sizeof *sorted);
  if (!sorted) return status_no_memory(plan->path, "its header");
  for (size_t i = 0; i < count; i++) sorted[i] = metadata + 2 * i;
  qsort(sorted, count, sizeof *sorted, by_key);
  for (size_t i = 0; i < count; i++) safe_digest_add_pair(digest, sorted[i][0], sorted[i][1]);
  free(sorted);
  return STATUS_OK;
}

static Status digest_header(FilePlan *plan, SafeDigest *digest) {
  safe_digest_begin(digest);
  TRY(digest_tensors(plan, digest));
  TRY(digest_pairs(plan, digest));
  plan->digest = safe_digest_end(digest);
  return STATUS_OK;
}

/* ---- the data. A failed write is kept by the stream and reported by files_commit. */

typedef struct Output {
  FILE *stream;
  SafeDigest *digest;        /* of the tensor being written */
  uint8_t *made, *converted; /* a chunk each */
} Output;

static void put(const Output *output, const void *data, size_t bytes) {
  safe_digest_add(output->digest, data, bytes);
  fwrite(data, 1, bytes, output->stream);
}

static Status write_item(const Output *output, const Planned *planned) {
  const SafeItem *item = planned->item;
  size_t from = safe_dtype_bytes(item->source), to = safe_dtype_bytes(item->dtype);
  if (planned->count == 0) return STATUS_OK;        /* an empty tensor may have no data at all */
  if (item->dtype == item->source && !item->fill) { /* in pieces, so that what is hashed is still in the cache when it is written */
    const size_t bytes = (size_t)planned->count * to;
    for (size_t at = 0; at < bytes; at += PIECE) put(output, (const uint8_t *)item->data + at, bytes - at < PIECE ? bytes - at : PIECE);
    return STATUS_OK;
  }
  for (int64_t done = 0; done < planned->count; done += CHUNK) {
    int64_t n = planned->count - done < CHUNK ? planned->count - done : CHUNK, at;
    const uint8_t *source = item->fill ? output->made : (const uint8_t *)item->data + (size_t)done * from;
    if (item->fill) item->fill(item->context, done, n, output->made);
    safe_convert(item->dtype, output->converted, item->source, source, n, &at);
    if (at >= 0)
      return status_set(STATUS_BAD_VALUE, "tensor %.100s: number %lld is too large for %s; choose a wider type", item->name,
                        (long long)(done + at), safe_dtype_name(item->dtype));
    put(output, output->converted, (size_t)n * to);
  }
  return STATUS_OK;
}

static Status write_all(FILE *stream, FilePlan *plan) {
  const size_t bytes = (size_t)CHUNK * sizeof(int64_t);
  uint8_t *memory = malloc(2 * bytes);
  SafeDigest *digest = safe_digest_new();
  Status status = memory && digest ? STATUS_OK : status_no_memory(NULL, "writing it");
  if (status == STATUS_OK) status = write_header(stream, plan);
  const Output output = {stream, digest, memory, memory ? memory + bytes : NULL};
  for (size_t i = 0; i < plan->count && status == STATUS_OK && !ferror(stream); i++) {
    safe_digest_begin(digest);
    status = write_item(&output, &plan->list[i]);
    plan->list[i].digest = safe_digest_end(digest);
  }
  if (status == STATUS_OK) status = digest_header(plan, digest);
  if (status == STATUS_OK) status = write_header(stream, plan);
  safe_digest_free(digest);
  free(memory);
  return status;
}

Status safetensors_save(const char *path, const SafeItem *items, size_t count, const char *const *metadata) {
  FilePlan plan = {.path = path, .list = calloc(count + 1, sizeof *plan.list), .count = count, .metadata = metadata};
  if (!plan.list) return status_no_memory(path, "its header");
  Status status = STATUS_OK;
  for (size_t i = 0; i < count && status == STATUS_OK; i++) status = plan_item(&plan.list[i], &items[i], i, path);
  FileWriter writer;
  if (status == STATUS_OK) {
    qsort(plan.list, count, sizeof *plan.list, by_roundness);
    status = files_create(&writer, path);
  }
  if (status == STATUS_OK) {
    status = write_all(writer.stream, &plan);
    if (status == STATUS_OK) {
      status = files_commit(&writer);
    } else {
      files_abort(&writer);
      status = status_wrap(status, "%s", path);
    }
  }
  free(plan.list);
  return status;
}

/* ---- digests for a file that has none */

static int by_data(const void *a, const void *b) {
  const SafeItem *x = a, *y = b;
  return x->data == y->data ? 0 : (const uint8_t *)x->data < (const uint8_t *)y->data ? -1 : 1;
}

static Status save_again(const SafeFile *file, SafeItem *items, const char **pairs) {
  for (size_t i = 0; i < file->count; i++) {
    const SafeTensor *tensor = &file->list[i];
    items[i] =
        (SafeItem){.name = tensor->name, .dtype = tensor->dtype, .source = tensor->dtype, .dims = tensor->dims, .data = tensor->data};
    memcpy(items[i].shape, tensor->shape, sizeof items[i].shape);
  }
  for (size_t i = 0; i < file->metadata_count; i++) pairs[2 * i] = safe_metadata(file, i, &pairs[2 * i + 1]);
  qsort(items, file->count, sizeof *items, by_data);
  return safetensors_save(file->path, items, file->count, pairs);
}

Status safetensors_seal(const SafeFile *file) {
  SafeItem *items = malloc((file->count + 1) * sizeof *items);
  const char **pairs = calloc(2 * file->metadata_count + 1, sizeof *pairs);
  Status status = items && pairs ? save_again(file, items, pairs) : status_no_memory(file->path, "its header");
  free(items);
  free(pairs);
  return status;
}
