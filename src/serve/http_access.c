/* Requests are counted by a bucket for each key or address, which fills at the allowed rate and is as large as a minute's requests. There
 * are BUCKETS of them: where more clients come in a minute, the place of the one not seen for longest, whose requests count least, is
 * given to the new one. */
#include "serve/http_access.h"
#include "base/array.h"
#include "base/files.h"
#include "base/text.h"
#include <arpa/inet.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024, PROBES = 16, WHO = 64, KEY_FILE_MAX = 1 << 21 };

typedef struct Bucket {
  char who[WHO];   /* "": free */
  double left;     /* requests that may come at once */
  double seen;     /* the latest time so far: calls of several threads may come in another order */
  bool is_counted; /* else nobody has taken of it yet */
} Bucket;

struct HttpAccess {
  bool wanted; /* keys are */
  char (*keys)[HTTP_KEY_MAX + 1];
  size_t count, room;
  double per_minute;
  pthread_mutex_t lock;
  Bucket buckets[BUCKETS];
};

static Status add_key(HttpAccess *access, const char *path, int line, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (text[i] <= ' ' || text[i] > '~')
      return status_set(STATUS_BAD_FILE, "%s, line %d: a key is one word of visible ASCII characters", path, line);
  if (length < HTTP_KEY_MIN || length > HTTP_KEY_MAX)
    return status_set(STATUS_BAD_FILE, "%s, line %d: a key of %zu character%s; %d to %d are accepted", path, line, length,
                      text_plural((int64_t)length), HTTP_KEY_MIN, HTTP_KEY_MAX);
  if (access->count == HTTP_KEYS_MAX) return status_set(STATUS_BAD_FILE, "%s: more than %d keys", path, HTTP_KEYS_MAX);
  TRY(ARRAY_RESERVE(access->keys, access->count, 1, access->room, "API keys"));
  memset(access->keys[access->count], 0, sizeof *access->keys);
  memcpy(access->keys[access->count++], text, length);
  return STATUS_OK;
}

/* A key file that is being read. */
typedef struct KeyFile {
  char *text; /* [size] */
  size_t size, at;
  int line; /* of `key`, from 1 */
  const char *key;
  size_t length;
} KeyFile;

static Status open_keys(KeyFile *file, const char *path) {
  *file = (KeyFile){0};
  return files_read(path, KEY_FILE_MAX, &file->text, &file->size);
}

/* The next line that is neither empty nor a comment, without what is blank at its end. */
static bool next_key(KeyFile *file) {
  while (file->at < file->size) {
    file->key = file->text + file->at;
    file->length = strcspn(file->key, "\n");
    file->at += file->length + 1;
    file->line++;
    while (file->length > 0 && strchr(" \t\r", file->key[file->length - 1])) file->length--;
    if (file->length > 0 && file->key[0] != '#') return true;
  }
  return false;
}

static Status refuse_empty(const char *path) { return status_set(STATUS_BAD_FILE, "%s: no key in it; give one a line", path); }

static Status read_keys(HttpAccess *access, const char *path) {
  KeyFile file;
  TRY(open_keys(&file, path));
  Status status = STATUS_OK;
  while (status == STATUS_OK && next_key(&file)) status = add_key(access, path, file.line, file.key, file.length);
  if (status == STATUS_OK && access->count == 0) status = refuse_empty(path);
  free(file.text);
  return status;
}

Status http_access_first_key(const char *path, char **key) {
  KeyFile file;
  *key = NULL;
  TRY(open_keys(&file, path));
  Status status = next_key(&file) ? STATUS_OK : refuse_empty(path);
  if (status == STATUS_OK && !(*key = strndup(file.key, file.length))) status = status_no_memory(NULL, "an API key");
  free(file.text);
  return status;
}

Status http_access_new(HttpAccess **out, const char *key_file, double per_minute) {
  HttpAccess *access = *out = calloc(1, sizeof *access);
  if (!access) return status_no_memory(NULL, "API keys");
  pthread_mutex_init(&access->lock, NULL);
  access->per_minute = per_minute;
  access->wanted = key_file != NULL;
  Status status = key_file ? read_keys(access, key_file) : STATUS_OK;
  if (status == STATUS_OK) return STATUS_OK;
  http_access_free(access);
  *out = NULL;
  return status;
}

void http_access_free(HttpAccess *access) {
  if (!access) return;
  pthread_mutex_destroy(&access->lock);
  free(access->keys);
  free(access);
}

/* Every key is compared, and each to the length that was given, so that the time says nothing of where they differ. */
int http_access_find(const HttpAccess *access, const char *authorization) {
  static const char scheme[] = "Bearer ";
  if (!access->wanted) return 0;
  if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0) return -1;
  const char *given = authorization + sizeof scheme - 1;
  size_t length = strlen(given);
  if (length > HTTP_KEY_MAX) return -1;
  int found = -1;
  for (size_t k = 0; k < access->count; k++) {
    volatile unsigned char differ = 0;
    for (size_t i = 0; i <= length; i++) differ |= (unsigned char)(access->keys[k][i] ^ given[i]);
    if (!differ) found = (int)k + 1;
  }
  return found;
}

static Bucket *find_bucket(HttpAccess *access, const char *who) {
  uint64_t hash = 14695981039346656037u;
  for (const char *at = who; *at; at++) hash = (hash ^ (unsigned char)*at) * 1099511628211u;
  Bucket *best = NULL;
  for (int i = 0; i < PROBES; i++) {
    Bucket *bucket = &access->buckets[(hash + (uint64_t)i) % BUCKETS];
    if (strncmp(bucket->who, who, WHO - 1) == 0) return bucket;
    bool freer = !best || (best->who[0] && (!bucket->who[0] || bucket->seen < best->seen));
    if (freer) best = bucket;
  }
  *best = (Bucket){0};
  snprintf(best->who, WHO, "%s", who);
  return best;
}

/* Of an IPv6 address its network of 64 bits, within which a client may take any address; of everything else itself, also of an IPv4
 * address in the form of IPv6. */
static void payer_of(const char *who, char payer[WHO]) {
  struct in6_addr address;
  if (inet_pton(AF_INET6, who, &address) != 1 || IN6_IS_ADDR_V4MAPPED(&address)) {
    snprintf(payer, WHO, "%s", who);
    return;
  }
  memset(address.s6_addr + 8, 0, 8);
  inet_ntop(AF_INET6, &address, payer, WHO);
}

double http_access_take(HttpAccess *access, const char *who, double now) {
  char payer[WHO];
  if (access->per_minute <= 0) return 0;
  double rate = access->per_minute / 60, room = access->per_minute < 1 ? 1 : access->per_minute, wait = 0;
  payer_of(who, payer);
  pthread_mutex_lock(&access->lock);
  Bucket *bucket = find_bucket(access, payer);
  if (!bucket->is_counted) bucket->left = room, bucket->seen = now, bucket->is_counted = true;
  if (now > bucket->seen) {
    bucket->left = fmin(room, bucket->left + (now - bucket->seen) * rate);
    bucket->seen = now;
  }
  if (bucket->left >= 1)
    bucket->left -= 1;
  else
    wait = (1 - bucket->left) / rate;
  pthread_mutex_unlock(&access->lock);
  return wait;
}
