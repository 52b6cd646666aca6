/* See checkpoint_fetch.h. Nothing that the leader sends becomes a path before offer_list has accepted it. */
#include "infer/cluster/checkpoint_fetch.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "infer/cluster/checkpoint_offer.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { AHEAD = 8 /* pieces that are asked for before they come */, CHUNK = 1 << 18, PATH_TEXT = 4096 };
static const double report_seconds = 5; /* between two lines of progress */
static const double last_seconds = 2;   /* for the leader to read the last message */

typedef struct Fetch {
  const FetchPlace *place;
  Connection *control;
  char partial[PATH_TEXT];
  int folder; /* descriptor of it, locked; -1 */
  OfferList list;
  bool offered;
  Status failed; /* of what the leader has sent, once it is not OK; */
  char why[WIRE_TEXT + 1];
  /* The file that comes: */
  int number; /* from 1; 0: none */
  int fd;
  EVP_MD_CTX *digest;        /* of its bytes so far */
  uint64_t at, asked, began; /* written, asked for; where this run began */
  /* Of all: */
  uint64_t done, came; /* bytes that are there; bytes that have come in this run */
  double started, reported;
  uint8_t payload[WIRE_OFFER_BYTES > WIRE_PIECE_BYTES ? WIRE_OFFER_BYTES : WIRE_PIECE_BYTES];
  uint8_t requests[AHEAD][WIRE_HEADER + 8], last[WIRE_HEADER + WIRE_TEXT];
  unsigned next;
} Fetch;

Status checkpoint_fetch_find(const char *directory, char **checkpoint) {
  char **names, *config = files_join(directory, "config.json");
  size_t count;
  *checkpoint = NULL;
  if (!config) return status_no_memory(NULL, "a path");
  bool whole = files_exists(config);
  free(config);
  if (!files_exists(directory)) return STATUS_OK;
  TRY(files_list(directory, &names, &count));
  if (whole) *checkpoint = strdup(directory);
  for (size_t i = 0; i < count && !*checkpoint; i++)
    if (strcmp(names[i], "model.gguf") == 0) *checkpoint = files_join(directory, names[i]);
  files_list_free(names, count);
  if (*checkpoint || count == 0) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "--fetch %s: the directory has files in it, but no checkpoint; give one that is empty or absent",
                    directory);
}

static Status refuse_mount_point(const char *place, const char *directory) {
  struct stat own, above;
  char *parent = files_join(place, "..");
  if (!parent) return status_no_memory(NULL, "a path");
  const bool known = stat(place, &own) == 0 && stat(parent, &above) == 0;
  free(parent);
  if (!known || own.st_dev == above.st_dev) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE,
                    "--fetch %s: a file system is mounted there, so that the directory cannot be replaced by what is fetched; "
                    "give a directory in it, such as %s/model",
                    directory, directory);
}

Status checkpoint_fetch_resolve(const char *directory, char **place) {
  struct stat link;
  *place = realpath(directory, NULL);
  if (!*place && errno != ENOENT) return status_set(STATUS_IO, "--fetch %s: %s", directory, strerror(errno));
  if (*place) {
    const Status status = refuse_mount_point(*place, directory);
    if (status != STATUS_OK) free(*place), *place = NULL;
    return status;
  }
  *place = strdup(directory);
  if (!*place) return status_no_memory(NULL, "a path");
  for (size_t end = strlen(*place); end > 1 && (*place)[end - 1] == '/'; end--) (*place)[end - 1] = 0;
  if (lstat(*place, &link) != 0) return STATUS_OK;
  free(*place);
  *place = NULL;
  return status_set(STATUS_BAD_VALUE, "--fetch %s: a link to nothing; make the directory that it points to, or give another one",
                    directory);
}

/* ---- the folder */

/* The name of a file that is not complete. */
static void part_name(const OfferFile *file, char name[OFFER_NAME]) {
  text_hex(file->digest, 12, name);
  snprintf(name + 24, OFFER_NAME - 24, ".part");
}

static uint64_t size_at(const Fetch *f, const char *name) {
  struct stat facts;
  return fstatat(f->folder, name, &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(facts.st_mode) ? (uint64_t)facts.st_size : 0;
}

/* The files that a fetch has given their names, a line each; it lies beside them, under a name that no offer can have. */
static const char record[] = ".astra-fetched";
enum { MAX_RECORD = 1 << 20 };

/* Synced before the file gets its name: a power loss must not leave a file that no record names. */
static Status record_file(const Fetch *f, const char *name) {
  int fd = openat(f->folder, record, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
  const bool kept = fd >= 0 && dprintf(fd, "%s\n", name) > 0 && fsync(fd) == 0 && fsync(f->folder) == 0;
  const Status status = kept ? STATUS_OK : status_set(STATUS_IO, "cannot write to %s: %s", f->partial, strerror(errno));
  if (fd >= 0) close(fd);
  return status;
}

/* The record's text, caller frees. */
static Status read_record(const Fetch *f, char **lines) {
  char *path = files_join(f->partial, record);
  size_t size;
  *lines = NULL;
  if (!path) return status_no_memory(NULL, "a path");
  Status status = STATUS_OK;
  if (files_exists(path))
    status = files_read(path, MAX_RECORD, lines, &size);
  else if (!(*lines = strdup("")))
    status = status_no_memory(NULL, "a list of files");
  free(path);
  return status;
}

static bool is_made(const char *name, const char *lines) {
  const size_t length = strlen(name);
  if (strcmp(name, record) == 0 || (strspn(name, "0123456789abcdef") == 24 && strcmp(name + 24, ".part") == 0)) return true;
  for (size_t line; *lines; lines += line + (lines[line] == '\n')) {
    line = strcspn(lines, "\n");
    if (line == length && memcmp(lines, name, line) == 0) return true;
  }
  return false;
}

/* Removes what earlier fetches left that is not part of this offer. Where there is something else, whose owner may want it, nothing is
 * touched: BAD_VALUE. */
static Status remove_others(const Fetch *f) {
  char **names, *lines, part[OFFER_NAME];
  size_t count;
  TRY(read_record(f, &lines));
  Status status = files_list(f->partial, &names, &count);
  if (status != STATUS_OK) {
    free(lines);
    return status;
  }
  for (size_t i = 0; i < count && status == STATUS_OK; i++)
    if (!is_made(names[i], lines))
      status =
          status_set(STATUS_BAD_VALUE, "%s has %s in it, which no fetch has written: move it elsewhere, or give --fetch another directory",
                     f->partial, names[i]);
  for (size_t i = 0; i < count && status == STATUS_OK; i++) {
    bool wanted = strcmp(names[i], record) == 0;
    for (int n = 0; n < f->list.count && !wanted; n++) {
      part_name(&f->list.files[n], part);
      wanted = strcmp(names[i], part) == 0 || strcmp(names[i], f->list.files[n].name) == 0;
    }
    if (!wanted) unlinkat(f->folder, names[i], 0);
  }
  files_list_free(names, count);
  free(lines);
  return status;
}

static Status check_room(const Fetch *f) {
  struct statvfs space;
  uint64_t there = 0;
  char part[OFFER_NAME];
  for (int n = 0; n < f->list.count; n++) {
    part_name(&f->list.files[n], part);
    there += size_at(f, part) + size_at(f, f->list.files[n].name);
  }
  if (fstatvfs(f->folder, &space) != 0) return status_set(STATUS_IO, "%s: %s", f->partial, strerror(errno));
  uint64_t room = (uint64_t)space.f_bavail * space.f_frsize, missing = f->list.bytes > there ? f->list.bytes - there : 0;
  if (missing <= room) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "has room for %.1f MB in %s, and %.1f MB of the checkpoint are missing there", (double)room / 1e6,
                    f->place->directory, (double)missing / 1e6);
}

/* ---- one file */

static Status digest_failed(void) { return status_set(STATUS_IO, "OpenSSL cannot compute SHA-256"); }

/* Adds what is there already to the digest. f->at: how much. */
static Status take_part(Fetch *f, const OfferFile *file) {
  uint8_t *chunk = f->payload;
  f->at = 0;
  if (!EVP_DigestInit_ex(f->digest, EVP_sha256(), NULL)) return digest_failed();
  for (ssize_t n = 1; f->at < file->size;) {
    size_t size = file->size - f->at < CHUNK ? (size_t)(file->size - f->at) : CHUNK;
    n = pread(f->fd, chunk, size, (off_t)f->at);
    if (n < 0) return status_set(STATUS_IO, "%s in %s: %s", file->name, f->partial, strerror(errno));
    if (n == 0) break;
    if (!EVP_DigestUpdate(f->digest, chunk, (size_t)n)) return digest_failed();
    f->at += (uint64_t)n;
  }
  f->asked = f->began = f->at;
  return STATUS_OK;
}

static Status check_digest(Fetch *f, const OfferFile *file, bool *same) {
  uint8_t digest[EVP_MAX_MD_SIZE];
  if (!EVP_DigestFinal_ex(f->digest, digest, NULL)) return digest_failed();
  *same = memcmp(digest, file->digest, OFFER_DIGEST) == 0;
  return STATUS_OK;
}

static void close_file(Fetch *f) {
  if (f->fd >= 0) close(f->fd);
  f->fd = -1;
  f->number = 0;
}

/* *there: it is complete from an earlier run. Otherwise it is open for the rest. */
static Status open_file(Fetch *f, int number, bool *there) {
  const OfferFile *file = &f->list.files[number - 1];
  char part[OFFER_NAME];
  *there = false;
  f->fd = openat(f->folder, file->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (f->fd >= 0) {
    if (size_at(f, file->name) == file->size) {
      TRY(take_part(f, file));
      TRY(check_digest(f, file, there));
    }
    close_file(f);
    if (*there) return STATUS_OK;
    unlinkat(f->folder, file->name, 0);
  }
  part_name(file, part);
  f->fd = openat(f->folder, part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (f->fd < 0) return status_set(STATUS_IO, "cannot write to %s: %s", f->partial, strerror(errno));
  if (size_at(f, part) > file->size && ftruncate(f->fd, 0) != 0) return status_set(STATUS_IO, "%s: %s", f->partial, strerror(errno));
  TRY(take_part(f, file));
  if (f->at > 0) log_info("%s: %.1f of %.1f MB are here from before", file->name, (double)f->at / 1e6, (double)file->size / 1e6);
  f->number = number;
  return STATUS_OK;
}

static Status append(Fetch *f, const uint8_t *bytes, size_t size) {
  for (size_t written = 0; written < size;) {
    ssize_t n = pwrite(f->fd, bytes + written, size - written, (off_t)(f->at + written));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return status_set(STATUS_IO, "cannot write to %s: %s", f->partial, strerror(errno));
    written += (size_t)n;
  }
  f->at += size;
  f->came += size;
  return EVP_DigestUpdate(f->digest, bytes, size) ? STATUS_OK : digest_failed();
}

/* Gives a complete file its name. *again: what was left of an earlier run was wrong, and the file is to be fetched from its beginning. */
static Status finish_file(Fetch *f, bool *again) {
  const OfferFile *file = &f->list.files[f->number - 1];
  char part[OFFER_NAME];
  bool same = false;
  TRY(check_digest(f, file, &same));
  part_name(file, part);
  *again = !same && f->began > 0;
  if (!same) unlinkat(f->folder, part, 0);
  if (*again) log_warning("%s: what an earlier run has left is damaged; fetching it from the beginning", file->name);
  if (!same && !*again)
    return status_set(STATUS_BAD_VALUE, "%s did not arrive as it was offered: its SHA-256 is another one (was it changed meanwhile?)",
                      file->name);
  if (same) TRY(record_file(f, file->name));
  if (same && (fsync(f->fd) != 0 || renameat(f->folder, part, f->folder, file->name) != 0))
    return status_set(STATUS_IO, "%s in %s: %s", file->name, f->partial, strerror(errno));
  close_file(f);
  return STATUS_OK;
}

/* ---- messages */

static Status place_message(void *context, Connection *from, const WireHeader *header, uint8_t **payload) {
  Fetch *f = context;
  (void)from;
  *payload = f->payload;
  if (header->kind == WIRE_PING) return STATUS_OK;
  if (header->kind == WIRE_OFFER && !f->offered && header->bytes == header->count * (uint64_t)OFFER_FILE_BYTES) return STATUS_OK;
  if (header->kind == WIRE_PIECE && f->number > 0 && header->count == (uint32_t)f->number && f->asked > f->at) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "sent a %s message where none was due", wire_kind_name(header->kind));
}

/* A failure is kept for step: the connection stays open, so that the leader learns why. */
static Status deliver_message(void *context, Connection *from, const WireHeader *header, uint8_t *payload) {
  Fetch *f = context;
  (void)from;
  if (f->failed != STATUS_OK) return STATUS_OK;
  if (header->kind == WIRE_PIECE) {
    const OfferFile *file = &f->list.files[f->number - 1];
    const uint64_t left = f->asked - f->at, begins = wire_get_u64(payload);
    const size_t due = left < OFFER_PIECE ? (size_t)left : OFFER_PIECE, size = header->bytes - 8;
    if (begins == f->at && size == due)
      f->failed = append(f, payload + 8, size);
    else
      f->failed = status_set(STATUS_BAD_VALUE, "sent %zu bytes of %s from %llu on, where %zu from %llu on were due", size, file->name,
                             (unsigned long long)begins, due, (unsigned long long)f->at);
  }
  if (header->kind == WIRE_OFFER) f->failed = offer_list(byte_cursor_from(payload), header->bytes, &f->list);
  f->offered |= header->kind == WIRE_OFFER;
  if (f->failed != STATUS_OK) snprintf(f->why, sizeof f->why, "%s", status_message());
  return STATUS_OK;
}

static Status step(Fetch *f) {
  TRY(connections_step(&f->control, 1, CONNECTION_IDLE_SLICE));
  if (f->failed != STATUS_OK) return status_set(f->failed, "%s", f->why);
  if (clock_now() - f->control->heard <= f->place->idle_timeout) return STATUS_OK;
  return status_set(STATUS_TIMEOUT, "gave no sign of life for %g s", f->place->idle_timeout);
}

static Status send_message(Fetch *f, uint8_t *message, WireHeader header) {
  wire_pack(&header, message);
  return connection_send(f->control, message, WIRE_HEADER + (size_t)header.bytes);
}

static void report(Fetch *f, bool last) {
  double now = clock_now(), all = (double)f->list.bytes, here = (double)(f->done + (f->number ? f->at : 0));
  if (!last && now - f->reported < report_seconds) return;
  f->reported = now;
  log_info("fetched %.1f of %.1f MB (%.0f%%, %.1f MB/s)", here / 1e6, all / 1e6, all > 0 ? 100 * here / all : 100,
           (double)f->came / 1e6 / (now - f->started + 1e-9));
}

/* The rest of the file that is open, several pieces ahead. A message that is still queued has its buffer. */
static Status fetch_rest(Fetch *f) {
  const OfferFile *file = &f->list.files[f->number - 1];
  while (f->at < file->size) {
    while (f->asked < file->size && f->asked - f->at < (uint64_t)AHEAD * OFFER_PIECE && connection_queued(f->control) < AHEAD - 1) {
      uint8_t *message = f->requests[f->next++ % AHEAD];
      wire_put_u64(message + WIRE_HEADER, f->asked);
      TRY(send_message(f, message, (WireHeader){.kind = WIRE_FETCH, .count = (uint32_t)f->number, .bytes = 8}));
      f->asked += file->size - f->asked < OFFER_PIECE ? file->size - f->asked : OFFER_PIECE;
    }
    TRY(step(f));
    report(f, false);
  }
  return STATUS_OK;
}

/* ---- all of it */

static Status fetch_files(Fetch *f) {
  for (int number = 1; number <= f->list.count; number++) {
    for (bool there = false, again = true; again;) {
      again = false;
      TRY(open_file(f, number, &there));
      if (there) continue;
      TRY(fetch_rest(f));
      TRY(finish_file(f, &again));
    }
    f->done += f->list.files[number - 1].size;
    f->control->heard = clock_now(); /* looking at a large file takes long */
  }
  return STATUS_OK;
}

static Status fetch(Fetch *f) {
  const char *directory = f->place->directory;
  char *earlier = NULL;
  size_t length = strlen(directory);
  while (length > 1 && directory[length - 1] == '/') length--;
  if (length + 16 > sizeof f->partial) return status_set(STATUS_BAD_VALUE, "%s: the name is too long", directory);
  snprintf(f->partial, sizeof f->partial, "%.*s.partial", (int)length, directory);
  TRY(files_make_dirs(f->partial));
  f->folder = open(f->partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (f->folder < 0) return status_set(STATUS_IO, "%s: %s", f->partial, strerror(errno));
  TRY(send_message(f, f->last, (WireHeader){.kind = WIRE_FETCH}));
  while (!f->offered) TRY(step(f));
  while (flock(f->folder, LOCK_EX | LOCK_NB) != 0) { /* another process fetches into the folder */
    if (errno != EWOULDBLOCK && errno != EINTR) return status_set(STATUS_IO, "%s: cannot be locked: %s", f->partial, strerror(errno));
    TRY(step(f));
  }
  TRY(checkpoint_fetch_find(directory, &earlier));
  if (earlier) { /* it has completed it */
    free(earlier);
    rmdir(f->partial);
    return STATUS_OK;
  }
  log_info("fetching the checkpoint of the leader at %s into %s: %d file%s, %.1f MB", f->place->leader, directory, f->list.count,
           text_plural(f->list.count), (double)f->list.bytes / 1e6);
  f->started = f->reported = clock_now();
  TRY(remove_others(f));
  TRY(check_room(f));
  TRY(fetch_files(f));
  report(f, true);
  if (fsync(f->folder) != 0 || rename(f->partial, directory) != 0)
    return status_set(STATUS_IO, "cannot rename %s to %s: %s", f->partial, directory, strerror(errno));
  unlinkat(f->folder, record, 0);
  return STATUS_OK;
}

int checkpoint_fetch_run(const FetchPlace *place) {
  static const int defaults[] = {SIGTERM, 0}, ignored[] = {SIGINT /* its parent decides what that means */, SIGPIPE, 0};
  if (!process_child(place->parent, SIGKILL, defaults, ignored)) return 1;
  Fetch *f = calloc(1, sizeof *f);
  if (!f) return 1;
  const ConnectionSink sink = {
      .context = f, .from = WIRE_FROM_LEADER, .max_payload = sizeof f->payload, .place = place_message, .deliver = deliver_message};
  f->place = place;
  f->control = place->control;
  f->folder = f->fd = -1;
  f->digest = EVP_MD_CTX_new();
  connection_receive(f->control, -1, &sink);
  Status status = f->digest ? fetch(f) : status_no_memory(NULL, "a digest");
  WireHeader last = {.kind = WIRE_FETCHED};
  if (status != STATUS_OK) {
    log_warning("fetching from the leader at %s: %s", place->leader, status_message());
    last = (WireHeader){.kind = WIRE_REFUSE, .bytes = (uint32_t)strnlen(status_message(), WIRE_TEXT)};
    memcpy(f->last + WIRE_HEADER, status_message(), last.bytes);
  }
  const double until = clock_now() + last_seconds;
  bool hears = connection_is_open(f->control) && connection_queued(f->control) < CONNECTION_QUEUE;
  hears = hears && send_message(f, f->last, last) == STATUS_OK;
  while (hears && clock_now() < until) /* the leader hangs up when it has read the last message */
    hears = connection_is_open(f->control) && connections_step(&f->control, 1, CONNECTION_IDLE_SLICE) == STATUS_OK;
  close_file(f);
  if (f->folder >= 0) close(f->folder);
  EVP_MD_CTX_free(f->digest);
  connection_free(f->control);
  free(f);
  return status == STATUS_OK ? 0 : 1;
}
