/* Reading GGUF files: see gguf.h. A first walk checks and keeps where each value lies; getters then read without further checks.
 * Invariant: nothing is allocated by a count that the file is too short for. */
#include "base/gguf.h"
#include "base/text.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GGUF files are little-endian here and so must this machine be"
#endif

enum { MAGIC_BYTES = 4, MAX_KEY = 65535, MAX_KEY_SHOWN = 100, MAX_NESTING = 4, ALIGNMENT = 32, MAX_ALIGNMENT = 1 << 16 };
/* The fewest bytes of an entry (length of the key, type, one byte) and of a tensor's description. */
enum { MIN_ENTRY = 8 + 4 + 1, MIN_TENSOR = 8 + 4 + 8 + 4 + 8 };
static const char magic[] = "GGUF";

/* ---- storage types */

/* Those that are never read are here for their names and sizes; no name: no such type, or one that was given up. */
static const GgufFormat formats[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},      [3] = {"Q4_1", 32, 20},
    [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},      [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},
    [10] = {"Q2_K", 256, 84},    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},   [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},   [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},        [29] = {"IQ1_M", 256, 56},
    [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},   [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17}};
enum { FORMATS = sizeof formats / sizeof *formats };

/* ---- walking */

typedef struct Cursor {
  const uint8_t *at, *end;
  const char *origin;
} Cursor;

static Status cut_short(const Cursor *cursor, const char *where) {
  return status_set(STATUS_BAD_FILE, "%s: the file ends within %s; is it complete?", cursor->origin, where);
}

static size_t left_of(const Cursor *cursor) { return (size_t)(cursor->end - cursor->at); }

static Status take(Cursor *cursor, void *out, size_t bytes, const char *where) {
  if (left_of(cursor) < bytes) return cut_short(cursor, where);
  memcpy(out, cursor->at, bytes);
  cursor->at += bytes;
  return STATUS_OK;
}

static Status take_text(Cursor *cursor, GgufText *text, const char *where) {
  uint64_t size = 0;
  TRY(take(cursor, &size, sizeof size, where));
  if (size > left_of(cursor)) return cut_short(cursor, where);
  *text = (GgufText){(const char *)cursor->at, (size_t)size};
  cursor->at += size;
  return STATUS_OK;
}

/* ---- metadata */

static const size_t value_bytes[GGUF_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};

static Status take_type(Cursor *cursor, GgufType *type) {
  uint32_t number = 0;
  TRY(take(cursor, &number, sizeof number, "its metadata"));
  if (number >= GGUF_TYPES)
    return status_set(STATUS_BAD_FILE, "%s: its metadata hold a value of type %u, which the format does not have", cursor->origin, number);
  *type = (GgufType)number;
  return STATUS_OK;
}

static Status skip_array(Cursor *cursor, GgufEntry *entry, int depth);

static Status skip_value(Cursor *cursor, GgufType type, int depth) {
  GgufText text;
  GgufEntry inner;
  if (type == GGUF_STRING) return take_text(cursor, &text, "its metadata");
  if (type == GGUF_ARRAY) return skip_array(cursor, &inner, depth + 1);
  if (left_of(cursor) < value_bytes[type]) return cut_short(cursor, "its metadata");
  cursor->at += value_bytes[type];
  return STATUS_OK;
}

static Status skip_array(Cursor *cursor, GgufEntry *entry, int depth) {
  if (depth > MAX_NESTING)
    return status_set(STATUS_BAD_FILE, "%s: its metadata hold arrays nested more than %d deep", cursor->origin, MAX_NESTING);
  TRY(take_type(cursor, &entry->element));
  TRY(take(cursor, &entry->count, sizeof entry->count, "its metadata"));
  entry->data = cursor->at;
  size_t bytes = value_bytes[entry->element];
  if (bytes > 0) {
    if (entry->count > left_of(cursor) / bytes) return cut_short(cursor, "an array of its metadata");
    cursor->at += entry->count * bytes;
    return STATUS_OK;
  }
  for (uint64_t i = 0; i < entry->count; i++) TRY(skip_value(cursor, entry->element, depth)); /* each takes bytes: ends with the file */
  return STATUS_OK;
}

static Status take_entry(Cursor *cursor, GgufEntry *entry) {
  *entry = (GgufEntry){.count = 1};
  TRY(take_text(cursor, &entry->key, "its metadata"));
  if (entry->key.size == 0 || entry->key.size > MAX_KEY)
    return status_set(STATUS_BAD_FILE, "%s: its metadata hold a key of %zu bytes; 1 to %d are allowed", cursor->origin, entry->key.size,
                      MAX_KEY);
  TRY(take_type(cursor, &entry->type));
  entry->data = cursor->at;
  return entry->type == GGUF_ARRAY ? skip_array(cursor, entry, 1) : skip_value(cursor, entry->type, 0);
}

static int compare_keys(GgufText a, GgufText b) {
  int order = memcmp(a.bytes, b.bytes, a.size < b.size ? a.size : b.size);
  return order ? order : a.size < b.size ? -1 : a.size > b.size;
}

static int by_key(const void *a, const void *b) { return compare_keys(((const GgufEntry *)a)->key, ((const GgufEntry *)b)->key); }

static Status take_entries(Cursor *cursor, GgufFile *file, uint64_t count) {
  if (count > left_of(cursor) / MIN_ENTRY)
    return status_set(STATUS_BAD_FILE, "%s: claims %llu metadata entries in a file of %zu bytes; is it complete?", file->path,
                      (unsigned long long)count, (size_t)left_of(cursor));
  file->entries = calloc((size_t)count + 1, sizeof *file->entries);
  if (!file->entries) return status_no_memory(file->path, "its metadata");
  for (; file->entry_count < count; file->entry_count++) TRY(take_entry(cursor, &file->entries[file->entry_count]));
  qsort(file->entries, file->entry_count, sizeof *file->entries, by_key);
  for (size_t i = 1; i < file->entry_count; i++)
    if (by_key(&file->entries[i - 1], &file->entries[i]) == 0)
      return status_set(STATUS_BAD_FILE, "%s: the metadata key %.*s is given twice", file->path,
                        (int)(file->entries[i].key.size < MAX_KEY_SHOWN ? file->entries[i].key.size : MAX_KEY_SHOWN),
                        file->entries[i].key.bytes);
  return STATUS_OK;
}

/* ---- tensors */

static Status take_name(Cursor *cursor, GgufTensor *tensor) {
  GgufText name = {0};
  TRY(take_text(cursor, &name, "its tensor descriptions"));
  if (name.size == 0 || name.size >= GGUF_NAME || memchr(name.bytes, '\0', name.size))
    return status_set(STATUS_BAD_FILE, "%s: a tensor's name has %zu bytes; 1 to %d, none of them 0, are allowed", cursor->origin, name.size,
                      GGUF_NAME - 1);
  memcpy(tensor->name, name.bytes, name.size);
  return STATUS_OK;
}

static Status take_shape(Cursor *cursor, GgufTensor *tensor) {
  uint32_t dims = 0;
  TRY(take(cursor, &dims, sizeof dims, "its tensor descriptions"));
  if (dims < 1 || dims > GGUF_DIMS)
    return status_set(STATUS_BAD_FILE, "%s: tensor %s has %u dimensions; 1 to %d are allowed", cursor->origin, tensor->name, dims,
                      GGUF_DIMS);
  tensor->dims = (int)dims;
  tensor->count = 1;
  for (int i = 0; i < tensor->dims; i++) {
    uint64_t size = 0;
    TRY(take(cursor, &size, sizeof size, "its tensor descriptions"));
    if (size < 1 || size > (uint64_t)(INT64_MAX / 8 / tensor->count))
      return status_set(STATUS_BAD_FILE, "%s: tensor %s has a dimension of %llu", cursor->origin, tensor->name, (unsigned long long)size);
    tensor->shape[i] = (int64_t)size;
    tensor->count *= tensor->shape[i];
  }
  return STATUS_OK;
}

static Status take_storage(Cursor *cursor, GgufTensor *tensor) {
  TRY(take(cursor, &tensor->type, sizeof tensor->type, "its tensor descriptions"));
  if (tensor->type >= FORMATS || formats[tensor->type].name == NULL)
    return status_set(STATUS_UNSUPPORTED,
                      "%s: tensor %s is stored as type %u, which is not known here; convert the file with llama-quantize, "
                      "to Q8_0 for example",
                      cursor->origin, tensor->name, tensor->type);
  const GgufFormat *format = tensor->format = &formats[tensor->type];
  if (tensor->shape[0] % format->numbers != 0)
    return status_set(STATUS_BAD_FILE, "%s: tensor %s has rows of %lld numbers, no multiple of a %s block's %d", cursor->origin,
                      tensor->name, (long long)tensor->shape[0], format->name, format->numbers);
  const int64_t blocks = tensor->count / format->numbers;
  if (blocks > INT64_MAX / 2 / format->bytes) return cut_short(cursor, tensor->name);
  tensor->bytes = (size_t)blocks * (size_t)format->bytes;
  return STATUS_OK;
}

/* Tensors follow one another in the order of their descriptions, each at a multiple of the alignment; *offset: where the next one starts.
 */
static Status take_place(Cursor *cursor, const GgufTensor *tensor, uint64_t alignment, uint64_t *offset) {
  uint64_t place = 0;
  TRY(take(cursor, &place, sizeof place, "its tensor descriptions"));
  if (place != *offset)
    return status_set(STATUS_BAD_FILE, "%s: the data of tensor %s begin at %llu, expected %llu: the file is damaged", cursor->origin,
                      tensor->name, (unsigned long long)place, (unsigned long long)*offset);
  if (tensor->bytes > UINT64_MAX / 4 - *offset) return cut_short(cursor, tensor->name);
  *offset = (*offset + tensor->bytes + alignment - 1) / alignment * alignment;
  return STATUS_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(((const GgufTensor *)a)->name, ((const GgufTensor *)b)->name); }

/* `data` is set when all descriptions are read, since it begins behind them. */
static Status place_tensors(const Cursor *cursor, const uint8_t *begin, GgufFile *file, uint64_t alignment) {
  size_t head = (size_t)(cursor->at - begin), size = (size_t)(cursor->end - begin);
  uint64_t offset = (head + alignment - 1) / alignment * alignment;
  for (size_t i = 0; i < file->tensor_count; i++) {
    GgufTensor *tensor = &file->tensors[i];
    if (offset > size || tensor->bytes > size - offset)
      return status_set(STATUS_BAD_FILE, "%s: the data of tensor %s extends past the end of the file of %zu bytes; is it complete?",
                        file->path, tensor->name, size);
    tensor->data = begin + offset;
    offset = (offset + tensor->bytes + alignment - 1) / alignment * alignment;
  }
  return STATUS_OK;
}

static Status read_alignment(const GgufFile *file, uint64_t *alignment) {
  int64_t number = ALIGNMENT;
  TRY(gguf_whole(file, "general.alignment", &number));
  *alignment = (uint64_t)number;
  if (number >= 1 && number <= MAX_ALIGNMENT && (number & (number - 1)) == 0) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: general.alignment is %lld; accepted is a power of two up to %d", file->path, (long long)number,
                    MAX_ALIGNMENT);
}

static Status take_tensors(Cursor *cursor, const uint8_t *begin, GgufFile *file, uint64_t count) {
  uint64_t alignment, offset = 0;
  TRY(read_alignment(file, &alignment));
  if (count > left_of(cursor) / MIN_TENSOR)
    return status_set(STATUS_BAD_FILE, "%s: claims %llu tensors in a file of %zu bytes; is it complete?", file->path,
                      (unsigned long long)count, (size_t)(cursor->end - begin));
  file->tensors = calloc((size_t)count + 1, sizeof *file->tensors);
  if (!file->tensors) return status_no_memory(file->path, "its tensors");
  for (; file->tensor_count < count; file->tensor_count++) {
    GgufTensor *tensor = &file->tensors[file->tensor_count];
    TRY(take_name(cursor, tensor));
    TRY(take_shape(cursor, tensor));
    TRY(take_storage(cursor, tensor));
    TRY(take_place(cursor, tensor, alignment, &offset));
  }
  TRY(place_tensors(cursor, begin, file, alignment));
  qsort(file->tensors, file->tensor_count, sizeof *file->tensors, by_name);
  for (size_t i = 1; i < file->tensor_count; i++)
    if (by_name(&file->tensors[i - 1], &file->tensors[i]) == 0)
      return status_set(STATUS_BAD_FILE, "%s: tensor %s is described twice", file->path, file->tensors[i].name);
  return STATUS_OK;
}

/* ---- the whole file */

static Status check_version(const char *origin, uint32_t version) {
  if (version == 2 || version == 3) return STATUS_OK;
  if ((version & 0xffff) == 0 && version != 0)
    return status_set(STATUS_UNSUPPORTED, "%s: a big-endian GGUF file; only little-endian ones are supported", origin);
  return status_set(STATUS_UNSUPPORTED,
                    "%s: GGUF version %u; versions 2 and 3 are supported: convert the model again with a newer llama.cpp", origin, version);
}

static Status parse(GgufFile *file, const uint8_t *data, size_t size) {
  Cursor cursor = {data, data + size, file->path};
  uint32_t version = 0;
  uint64_t tensors = 0, entries = 0;
  if (size < MAGIC_BYTES || memcmp(data, magic, MAGIC_BYTES) != 0)
    return status_set(STATUS_BAD_FILE, "%s: not a GGUF file: it does not begin with \"GGUF\"", file->path);
  cursor.at += MAGIC_BYTES;
  TRY(take(&cursor, &version, sizeof version, "its head"));
  TRY(check_version(file->path, version));
  TRY(take(&cursor, &tensors, sizeof tensors, "its head"));
  TRY(take(&cursor, &entries, sizeof entries, "its head"));
  TRY(take_entries(&cursor, file, entries));
  return take_tensors(&cursor, data, file, tensors);
}

Status gguf_parse(GgufFile *file, const uint8_t *data, size_t size, const char *origin) {
  *file = (GgufFile){.path = strdup(origin)};
  Status status = file->path ? parse(file, data, size) : status_no_memory(origin, "its name");
  if (status != STATUS_OK) gguf_close(file);
  return status;
}

Status gguf_open(GgufFile *file, const char *path) {
  *file = (GgufFile){0};
  FileMap map;
  TRY(files_map(&map, path));
  Status status = gguf_parse(file, map.data, map.size, path);
  if (status == STATUS_OK)
    file->map = map;
  else
    files_unmap(&map);
  return status;
}

void gguf_close(GgufFile *file) {
  free(file->entries);
  free(file->tensors);
  free(file->path);
  if (file->map.data) files_unmap(&file->map);
  *file = (GgufFile){0};
}

Status gguf_read_path(const char *path, GgufReader *read, void *out) {
  GgufFile file;
  TRY(gguf_open(&file, path));
  Status status = read(out, &file);
  gguf_close(&file);
  return status;
}

static bool begins_like_one(const char *path) {
  char head[MAGIC_BYTES];
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return false;
  bool same = read(descriptor, head, sizeof head) == (ssize_t)sizeof head && memcmp(head, magic, sizeof head) == 0;
  close(descriptor);
  return same;
}

bool gguf_is_file(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return false;
  return text_ends_with(path, ".gguf") || begins_like_one(path);
}

/* ---- looking up */

const GgufTensor *gguf_tensor(const GgufFile *file, const char *name) {
  GgufTensor key = {.dims = 0};
  if (strlen(name) >= GGUF_NAME || file->tensor_count == 0) return NULL;
  strcpy(key.name, name);
  return bsearch(&key, file->tensors, file->tensor_count, sizeof *file->tensors, by_name);
}

const GgufEntry *gguf_entry(const GgufFile *file, const char *key) {
  GgufEntry wanted = {.key = {key, strlen(key)}};
  return file->entry_count ? bsearch(&wanted, file->entries, file->entry_count, sizeof *file->entries, by_key) : NULL;
}

static Status wrong_type(const GgufFile *file, const char *key, const char *wanted) {
  return status_set(STATUS_BAD_FILE, "%s: the metadata key %s must hold %s", file->path, key, wanted);
}

static bool is_integer(GgufType type) { return type <= GGUF_I32 || type == GGUF_U64 || type == GGUF_I64; }

/* false: beyond int64_t */
static bool integer_at(GgufType type, const uint8_t *data, int64_t *out) {
  uint64_t bits = 0;
  memcpy(&bits, data, value_bytes[type]);
  switch (type) {
  case GGUF_I8:
    *out = (int8_t)bits;
    return true;
  case GGUF_I16:
    *out = (int16_t)bits;
    return true;
  case GGUF_I32:
    *out = (int32_t)bits;
    return true;
  case GGUF_U64:
    *out = (int64_t)bits;
    return bits <= INT64_MAX;
  default:
    *out = (int64_t)bits;
    return true;
  }
}

Status gguf_whole(const GgufFile *file, const char *key, int64_t *out) {
  const GgufEntry *entry = gguf_entry(file, key);
  if (!entry) return STATUS_OK;
  if (is_integer(entry->type) && integer_at(entry->type, entry->data, out)) return STATUS_OK;
  return wrong_type(file, key, "a whole number");
}

Status gguf_number(const GgufFile *file, const char *key, double *out) {
  const GgufEntry *entry = gguf_entry(file, key);
  float single;
  int64_t whole;
  if (!entry) return STATUS_OK;
  if (entry->type == GGUF_F64) {
    memcpy(out, entry->data, sizeof *out);
  } else if (entry->type == GGUF_F32) {
    memcpy(&single, entry->data, sizeof single);
    *out = (double)single;
  } else if (is_integer(entry->type) && integer_at(entry->type, entry->data, &whole)) {
    *out = (double)whole;
  } else {
    return wrong_type(file, key, "a number");
  }
  return STATUS_OK;
}

Status gguf_flag(const GgufFile *file, const char *key, bool *out) {
  const GgufEntry *entry = gguf_entry(file, key);
  if (!entry) return STATUS_OK;
  if (entry->type != GGUF_BOOL || *entry->data > 1) return wrong_type(file, key, "true or false");
  *out = *entry->data;
  return STATUS_OK;
}

Status gguf_text(const GgufFile *file, const char *key, GgufText *out) {
  const GgufEntry *entry = gguf_entry(file, key);
  if (!entry) return STATUS_OK;
  if (entry->type != GGUF_STRING) return wrong_type(file, key, "a string");
  const uint8_t *at = entry->data;
  *out = gguf_next_text(&at);
  return STATUS_OK;
}

Status gguf_array(const GgufFile *file, const char *key, GgufType element, const GgufEntry **out) {
  static const char *const names[GGUF_TYPES] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                "bool", "string", "array", "u64", "i64", "f64"};
  const GgufEntry *entry = gguf_entry(file, key);
  char wanted[64];
  if (!entry) return STATUS_OK;
  snprintf(wanted, sizeof wanted, "an array of type %s", names[element]);
  if (entry->type != GGUF_ARRAY || entry->element != element) return wrong_type(file, key, wanted);
  *out = entry;
  return STATUS_OK;
}

GgufText gguf_next_text(const uint8_t **at) {
  uint64_t size = 0;
  memcpy(&size, *at, sizeof size);
  GgufText text = {(const char *)*at + sizeof size, (size_t)size};
  *at += sizeof size + size;
  return text;
}

int64_t gguf_integer_at(const GgufEntry *array, uint64_t index) {
  int64_t number;
  (void)integer_at(array->element, array->data + index * value_bytes[array->element], &number);
  return number;
}

float gguf_float_at(const GgufEntry *array, uint64_t index) {
  float number;
  memcpy(&number, array->data + index * sizeof number, sizeof number);
  return number;
}

bool gguf_text_is(GgufText text, const char *word) { return text.size == strlen(word) && memcmp(text.bytes, word, text.size) == 0; }
