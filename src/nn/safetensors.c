/* Reading safetensors: the header is checked once, whole, and after that every SafeTensor may be trusted.
 * Leaves out the conversion of numbers (safetensors_convert.c) and writing (safetensors_write.c).
 * Invariant of an open file: names are unique and sorted; bytes = count x size of the dtype; the tensors' bytes lie in the data part, do
 * not overlap and fill it without a hole, so that no byte of the file is unaccounted for. */
#include "nn/safetensors.h"
#include "nn/safetensors_convert.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t MOST_HEADER = 100000000; /* as the format's own library has it */
enum { LENGTH_BYTES = 8 };

typedef struct DataPart {
  const uint8_t *begin;
  uint64_t size;
  const char *origin;
} DataPart;

/* ---- one entry of the header */

static Status read_shape(SafeTensor *tensor, const json_t *shape, const DataPart *part) {
  if (!json_is_array(shape) || json_array_size(shape) > SAFE_DIMS)
    return status_set(STATUS_BAD_FILE, "%s: the shape of tensor %.100s must be a list of at most %d numbers", part->origin, tensor->name,
                      (int)SAFE_DIMS);
  tensor->dims = (int)json_array_size(shape);
  tensor->count = 1;
  for (int i = 0; i < tensor->dims; i++) {
    const json_t *number = json_array_get(shape, (size_t)i);
    int64_t value = json_is_integer(number) ? json_integer_value(number) : -1;
    if (value < 0 || __builtin_mul_overflow(tensor->count, value, &tensor->count))
      return status_set(STATUS_BAD_FILE, "%s: the shape of tensor %.100s holds a number that is out of range", part->origin, tensor->name);
    tensor->shape[i] = value;
  }
  return STATUS_OK;
}

static Status read_offsets(SafeTensor *tensor, const json_t *offsets, const DataPart *part) {
  const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
    return status_set(STATUS_BAD_FILE, "%s: data_offsets of tensor %.100s must be two whole numbers", part->origin, tensor->name);
  int64_t begin = json_integer_value(first), end = json_integer_value(last);
  if (begin < 0 || end < begin || (uint64_t)end > part->size)
    return status_set(STATUS_BAD_FILE, "%s: tensor %.100s claims bytes %lld to %lld of %llu; is the file truncated?", part->origin,
                      tensor->name, (long long)begin, (long long)end, (unsigned long long)part->size);
  tensor->data = part->begin + begin;
  tensor->bytes = (size_t)(end - begin);
  int64_t needed;
  if (__builtin_mul_overflow(tensor->count, (int64_t)safe_dtype_bytes(tensor->dtype), &needed) || needed != end - begin)
    return status_set(STATUS_BAD_FILE, "%s: tensor %.100s has %lld bytes, which is not what its shape and dtype need", part->origin,
                      tensor->name, (long long)(end - begin));
  return STATUS_OK;
}

static Status read_entry(SafeTensor *tensor, const char *name, const json_t *entry, const DataPart *part) {
  const char *dtype = json_string_value(json_object_get(entry, "dtype"));
  if (!dtype) return status_set(STATUS_BAD_FILE, "%s: tensor %.100s has no dtype", part->origin, name);
  if (!safe_dtype_find(dtype, &tensor->dtype))
    return status_set(STATUS_BAD_FILE, "%s: dtype %.20s of tensor %.100s is not known; known are %s", part->origin, dtype, name,
                      safe_dtype_names());
  tensor->name = strdup(name);
  if (!tensor->name) return status_set(STATUS_NO_MEMORY, "%s: no memory for its header", part->origin);
  TRY(read_shape(tensor, json_object_get(entry, "shape"), part));
  return read_offsets(tensor, json_object_get(entry, "data_offsets"), part);
}

static Status check_metadata(const json_t *metadata, const char *origin) {
  const char *key;
  json_t *value;
  if (!json_is_object(metadata)) return status_set(STATUS_BAD_FILE, "%s: __metadata__ must be an object of strings", origin);
  json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
    if (!json_is_string(value)) return status_set(STATUS_BAD_FILE, "%s: __metadata__ entry %.100s must be a string", origin, key);
  }
  return STATUS_OK;
}

static Status read_entries(SafeFile *file, json_t *header, const DataPart *part) {
  file->list = calloc(json_object_size(header) + 1, sizeof *file->list);
  if (!file->list) return status_set(STATUS_NO_MEMORY, "%s: no memory for its header", part->origin);
  const char *name;
  json_t *entry;
  json_object_foreach(header, name, entry) {
    if (strcmp(name, "__metadata__") == 0)
      TRY(check_metadata(entry, part->origin));
    else
      TRY(read_entry(&file->list[file->count++], name, entry, part));
  }
  return STATUS_OK;
}

/* ---- all entries together */

static int by_name(const void *a, const void *b) { return strcmp(((const SafeTensor *)a)->name, ((const SafeTensor *)b)->name); }

static int by_place(const void *a, const void *b) {
  const SafeTensor *x = *(const SafeTensor *const *)a, *y = *(const SafeTensor *const *)b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty tensors first */
  return 0;
}

static Status check_tiling(const SafeTensor *const *ordered, size_t count, const DataPart *part) {
  const uint8_t *reached = part->begin;
  const char *before = "the header";
  for (size_t i = 0; i < count; i++) {
    if (ordered[i]->data != reached)
      return status_set(STATUS_BAD_FILE, "%s: the data of tensor %.100s %s %.100s", part->origin, ordered[i]->name,
                        ordered[i]->data < reached ? "overlaps that of" : "leaves a hole after", before);
    reached += ordered[i]->bytes;
    before = ordered[i]->name;
  }
  if (reached == part->begin + part->size) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: %llu bytes at the end belong to no tensor", part->origin,
                    (unsigned long long)(part->begin + part->size - reached));
}

static Status check_places(const SafeFile *file, const DataPart *part) {
  const SafeTensor **ordered = malloc((file->count + 1) * sizeof *ordered);
  if (!ordered) return status_set(STATUS_NO_MEMORY, "%s: no memory for its header", part->origin);
  for (size_t i = 0; i < file->count; i++) ordered[i] = &file->list[i];
  qsort(ordered, file->count, sizeof *ordered, by_place);
  Status status = check_tiling(ordered, file->count, part);
  free(ordered);
  return status;
}

static Status parse_header(SafeFile *file, const uint8_t *data, uint64_t length, const DataPart *part) {
  json_error_t error;
  json_t *header = json_loadb((const char *)data, (size_t)length, JSON_REJECT_DUPLICATES, &error);
  if (!header) return status_set(STATUS_BAD_FILE, "%s: its header is no JSON: %s", part->origin, error.text);
  Status status = STATUS_OK;
  if (!json_is_object(header)) status = status_set(STATUS_BAD_FILE, "%s: its header is no JSON object", part->origin);
  if (status == STATUS_OK) status = read_entries(file, header, part);
  json_decref(header);
  if (status != STATUS_OK) return status;
  qsort(file->list, file->count, sizeof *file->list, by_name);
  return check_places(file, part);
}

static Status parse(SafeFile *file, const uint8_t *data, size_t size, const char *origin) {
  if (size < LENGTH_BYTES + 2) return status_set(STATUS_BAD_FILE, "%s: %zu bytes are too few for a safetensors file", origin, size);
  uint64_t length;
  memcpy(&length, data, sizeof length);
  if (length > size - LENGTH_BYTES || length > MOST_HEADER)
    return status_set(STATUS_BAD_FILE, "%s: claims a header of %llu bytes in a file of %zu; is it a safetensors file, and complete?",
                      origin, (unsigned long long)length, size);
  if (length == 0 || data[LENGTH_BYTES] != '{') return status_set(STATUS_BAD_FILE, "%s: has no safetensors header", origin);
  DataPart part = {data + LENGTH_BYTES + length, size - LENGTH_BYTES - length, origin};
  return parse_header(file, data + LENGTH_BYTES, length, &part);
}

/* ---- the public side */

Status safetensors_parse(SafeFile *file, const uint8_t *data, size_t size, const char *origin) {
  memset(file, 0, sizeof *file);
  file->path = strdup(origin);
  Status status = file->path ? parse(file, data, size, origin) : status_set(STATUS_NO_MEMORY, "%s: no memory for its name", origin);
  if (status != STATUS_OK) safetensors_close(file);
  return status;
}

Status safetensors_open(SafeFile *file, const char *path) {
  memset(file, 0, sizeof *file);
  FileMap map;
  TRY(files_map(&map, path));
  Status status = safetensors_parse(file, map.data, map.size, path);
  if (status == STATUS_OK)
    file->map = map;
  else
    files_unmap(&map);
  return status;
}

void safetensors_close(SafeFile *file) {
  for (size_t i = 0; i < file->count; i++) free(file->list[i].name);
  free(file->list);
  free(file->path);
  if (file->map.data) files_unmap(&file->map);
  memset(file, 0, sizeof *file);
}

const SafeTensor *safetensors_find(const SafeFile *file, const char *name) {
  if (file->count == 0) return NULL;
  SafeTensor key = {.name = (char *)(uintptr_t)name};
  return bsearch(&key, file->list, file->count, sizeof *file->list, by_name);
}

static Status convert(const SafeTensor *tensor, SafeDtype to, void *out) {
  if (!safe_dtype_agree(tensor->dtype, to))
    return status_set(STATUS_BAD_FILE, "tensor %.100s is %s where %s is needed", tensor->name, safe_dtype_name(tensor->dtype),
                      safe_dtype_is_float(to) ? "F32, F16, BF16 or F64" : "I32, I64 or U8");
  int64_t at;
  safe_convert(to, out, tensor->dtype, tensor->data, tensor->count, &at);
  if (at < 0) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "tensor %.100s: number %lld, a %s, does not fit into %s", tensor->name, (long long)at,
                    safe_dtype_name(tensor->dtype), safe_dtype_name(to));
}

Status safetensors_to_real(const SafeTensor *tensor, real *out) { return convert(tensor, SAFE_REAL, out); }
Status safetensors_to_int32(const SafeTensor *tensor, int32_t *out) { return convert(tensor, SAFE_I32, out); }
