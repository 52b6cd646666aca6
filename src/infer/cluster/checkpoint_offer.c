/* See checkpoint_offer.h. */
#include "infer/cluster/checkpoint_offer.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "data/tokenizer/tokenizer.h"
#include "nn/checkpoint.h"
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUFFERS = 4, CHUNK = 1 << 20 /* that is hashed between two signs of life */ };
static const double slice_seconds = 0.25, ping_seconds = 2;
/* A worker says nothing while it looks through what it has from before: as long as slow storage takes for all of it. */
static const double silence_seconds = 300, slow_storage = 5e6; /* bytes/s */

/* ---- OFFER */

static bool is_name(const char name[OFFER_NAME]) {
  static const char accepted[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
  size_t length = strnlen(name, OFFER_NAME);
  return length > 0 && length < OFFER_NAME && name[0] != '.' && strspn(name, accepted) == length;
}

Status offer_list(ByteCursor c, size_t size, OfferList *list) {
  if (size == 0 || size % OFFER_FILE_BYTES != 0 || size / OFFER_FILE_BYTES > OFFER_FILES)
    return status_set(STATUS_BAD_VALUE, "offers files in %zu bytes; 1 to %d files of %d bytes each are accepted", size, OFFER_FILES,
                      OFFER_FILE_BYTES);
  if (c.parses) *list = (OfferList){0};
  for (int i = 0; i < (int)(size / OFFER_FILE_BYTES); i++) {
    OfferFile *file = &list->files[i];
    byte_cursor_u64(&c, &file->size);
    byte_cursor_bytes(&c, file->digest, OFFER_DIGEST);
    byte_cursor_bytes(&c, file->name, OFFER_NAME);
    if (!c.parses) continue;
    if (!is_name(file->name) || !byte_cursor_is_zero(c.at - OFFER_NAME + strlen(file->name), c.at))
      return status_set(STATUS_BAD_VALUE,
                        "offers file %d under a name that is not accepted: letters, digits, \"-\", \"_\" and \".\" are, and none that "
                        "begins with \".\"",
                        i + 1);
    for (int earlier = 0; earlier < i; earlier++)
      if (strcmp(list->files[earlier].name, file->name) == 0) return status_set(STATUS_BAD_VALUE, "offers %s twice", file->name);
    if (file->size > OFFER_MAX_BYTES - list->bytes)
      return status_set(STATUS_BAD_VALUE, "offers %llu bytes as %s; at most %llu are accepted together", (unsigned long long)file->size,
                        file->name, (unsigned long long)OFFER_MAX_BYTES);
    list->bytes += file->size;
    list->count++;
  }
  return STATUS_OK;
}

/* ---- the catalogue */

typedef enum CatalogueState { CATALOGUE_NEW, CATALOGUE_IS_MADE, CATALOGUE_READY } CatalogueState;

struct OfferCatalogue {
  char *checkpoint;
  char digest[SAFE_DIGEST_TEXT]; /* of the model that the leader has (checkpoint_digest); "": not known */
  pthread_mutex_t lock;          /* of state; the rest is written by the thread that makes it, and read by all once it is ready */
  CatalogueState state;
  OfferList list;
  int descriptors[OFFER_FILES];
};

/* A sign of life while a file is looked at; false: stop. */
typedef bool Pulse(void *context);

static Status hash_file(int fd, OfferFile *file, Pulse *pulse, void *context) {
  EVP_MD_CTX *digest = EVP_MD_CTX_new();
  uint8_t *chunk = malloc(CHUNK);
  const bool memory = chunk && digest;
  bool right = memory && EVP_DigestInit_ex(digest, EVP_sha256(), NULL), stopped = false;
  ssize_t n = 1;
  for (file->size = 0; right && n > 0 && !stopped; file->size += (uint64_t)n) {
    n = pread(fd, chunk, CHUNK, (off_t)file->size);
    if (n < 0) break;
    right = EVP_DigestUpdate(digest, chunk, (size_t)n);
    stopped = !pulse(context);
  }
  right = right && EVP_DigestFinal_ex(digest, file->digest, NULL);
  EVP_MD_CTX_free(digest);
  free(chunk);
  if (!memory) return status_no_memory(NULL, "the digest of a file");
  if (stopped) return status_set(STATUS_INTERRUPTED, "interrupted");
  if (n < 0) return status_set(STATUS_IO, "%s: %s", file->name, strerror(errno));
  return right ? STATUS_OK : status_set(STATUS_IO, "OpenSSL cannot compute SHA-256");
}

typedef struct Listing {
  OfferCatalogue *catalogue;
  const char *folder;
  bool (*is_wanted)(const char *name);
  Pulse *pulse;
  void *context;
} Listing;

static Status add_file(OfferCatalogue *catalogue, const char *path, const char *name, Pulse *pulse, void *context) {
  OfferList *list = &catalogue->list;
  struct stat facts;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for its writer */
  if (fd < 0) return status_set(STATUS_IO, "%s: %s", path, strerror(errno));
  bool is_file = fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
  if (!is_file || list->count == OFFER_FILES) {
    close(fd);
    return is_file ? status_set(STATUS_BAD_FILE, "%s: more than %d files", catalogue->checkpoint, OFFER_FILES) : STATUS_OK;
  }
  OfferFile *file = &list->files[list->count];
  snprintf(file->name, sizeof file->name, "%s", name);
  catalogue->descriptors[list->count++] = fd;
  TRY(hash_file(fd, file, pulse, context));
  list->bytes += file->size;
  return STATUS_OK;
}

static Status add_if_wanted(void *context, const char *name) {
  const Listing *listing = context;
  char shown[OFFER_NAME] = "";
  if (!listing->is_wanted(name) || strlen(name) >= sizeof shown || !is_name(memcpy(shown, name, strlen(name)))) return STATUS_OK;
  char *path = files_join(listing->folder, name);
  if (!path) return status_no_memory(NULL, "a path");
  Status status = add_file(listing->catalogue, path, name, listing->pulse, listing->context);
  free(path);
  return status;
}

static bool is_beside_gguf(const char *name) {
  static const char *const names[] = {CHECKPOINT_CODEBOOKS, CHECKPOINT_FREQUENCIES, CHECKPOINT_SELFTEST};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) return true;
  return false;
}

/* What a device or a user of the checkpoint reads; not the state of training, its metrics and charts. */
static bool is_of_folder(const char *name) {
  static const char *const patterns[] = {"*.json", "*.jinja", CHECKPOINT_WHOLE, "model-*-of-*.safetensors"};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    if (fnmatch(patterns[i], name, 0) == 0) return true;
  return is_beside_gguf(name) || tokenizer_is_file(name);
}

static Status list_files(OfferCatalogue *catalogue, Pulse *pulse, void *context) {
  bool folder = files_is_dir(catalogue->checkpoint);
  Listing listing = {.catalogue = catalogue, .is_wanted = folder ? is_of_folder : is_beside_gguf, .pulse = pulse, .context = context};
  char *where = files_folder(catalogue->checkpoint);
  listing.folder = where;
  Status status = where ? STATUS_OK : status_no_memory(NULL, "a path");
  if (status == STATUS_OK && !folder) status = add_file(catalogue, catalogue->checkpoint, "model.gguf", pulse, context);
  if (status == STATUS_OK) status = files_each(where, add_if_wanted, &listing);
  free(where);
  return status;
}

static void forget_files(OfferCatalogue *catalogue) {
  for (int i = 0; i < catalogue->list.count; i++) close(catalogue->descriptors[i]);
  catalogue->list = (OfferList){0};
}

Status offer_catalogue_open(OfferCatalogue **catalogue, const char *checkpoint) {
  OfferCatalogue *made = *catalogue = calloc(1, sizeof *made);
  if (made == NULL) return status_no_memory(NULL, "offering a checkpoint");
  pthread_mutex_init(&made->lock, NULL);
  made->checkpoint = strdup(checkpoint);
  const Status status = made->checkpoint ? checkpoint_digest(checkpoint, made->digest) : status_no_memory(NULL, "offering a checkpoint");
  if (status == STATUS_OK) return STATUS_OK;
  offer_catalogue_free(made);
  *catalogue = NULL;
  return status;
}

void offer_catalogue_free(OfferCatalogue *catalogue) {
  if (!catalogue) return;
  forget_files(catalogue);
  pthread_mutex_destroy(&catalogue->lock);
  free(catalogue->checkpoint);
  free(catalogue);
}

static CatalogueState change_state(OfferCatalogue *catalogue, CatalogueState from, CatalogueState to) {
  pthread_mutex_lock(&catalogue->lock);
  CatalogueState before = catalogue->state;
  if (before == from) catalogue->state = to;
  pthread_mutex_unlock(&catalogue->lock);
  return before;
}

/* Once the files are open: a checkpoint that is written beside the old one and renamed leaves the leader with what it has mapped. */
static Status check_model(const OfferCatalogue *catalogue) {
  char digest[SAFE_DIGEST_TEXT];
  TRY(checkpoint_digest(catalogue->checkpoint, digest));
  if (catalogue->digest[0] == '\0' || strcmp(catalogue->digest, digest) == 0) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s holds another model than when this command started: start it again", catalogue->checkpoint);
}

static Status make_catalogue(OfferCatalogue *catalogue, Pulse *pulse, void *context) {
  char why[512];
  Status status = list_files(catalogue, pulse, context);
  if (status == STATUS_OK) status = check_model(catalogue);
  snprintf(why, sizeof why, "%s", status == STATUS_OK ? "" : status_message());
  if (status != STATUS_OK) forget_files(catalogue);
  change_state(catalogue, CATALOGUE_IS_MADE, status == STATUS_OK ? CATALOGUE_READY : CATALOGUE_NEW);
  if (status == STATUS_OK || status == STATUS_INTERRUPTED) return status;
  return status_set(STATUS_BAD_VALUE, "the checkpoint cannot be offered: %s", why);
}

/* The first thread that gets here makes it; the others wait. What has failed once is tried again by the next one. */
static Status catalogue_ready(OfferCatalogue *catalogue, Pulse *pulse, void *context) {
  CatalogueState state;
  while ((state = change_state(catalogue, CATALOGUE_NEW, CATALOGUE_IS_MADE)) == CATALOGUE_IS_MADE) {
    if (!pulse(context)) return status_set(STATUS_INTERRUPTED, "interrupted");
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  return state == CATALOGUE_READY ? STATUS_OK : make_catalogue(catalogue, pulse, context);
}

/* ---- serving one worker */

struct Offer {
  OfferCatalogue *catalogue;
  Connection connection;
  pthread_t thread;
  atomic_bool stop, over;
  Status status; /* once it is over, with its message: */
  char said[WIRE_TEXT + 64];
  char name[ADDRESS_TEXT + 48];
  double next_ping;
  bool done; /* FETCHED, or REFUSE */
  uint8_t ping[WIRE_HEADER];
  uint8_t wanted[8], refusal[WIRE_TEXT + 1];
  unsigned next; /* buffer */
  uint8_t offer[WIRE_HEADER + WIRE_OFFER_BYTES];
  uint8_t buffers[BUFFERS][WIRE_HEADER + WIRE_PIECE_BYTES];
};

static bool pulse(void *context) {
  Offer *offer = context;
  double now = clock_now();
  if (now >= offer->next_ping) {
    offer->next_ping = now + ping_seconds;
    connection_ping(&offer->connection, offer->ping);
  }
  return !atomic_load(&offer->stop);
}

static Status place_message(void *context, Connection *from, const WireHeader *header, uint8_t **payload) {
  Offer *offer = context;
  const OfferList *list = &offer->catalogue->list;
  if (header->kind == WIRE_REFUSE || header->kind == WIRE_FETCHED) {
    *payload = offer->refusal;
    return STATUS_OK;
  }
  if (header->kind != WIRE_FETCH || header->bytes != sizeof offer->wanted || header->count < 1 || header->count > (uint32_t)list->count)
    return status_set(STATUS_BAD_VALUE, "sent a %s message where none was due", wire_kind_name(header->kind));
  *payload = connection_queued(from) < BUFFERS ? offer->wanted : NULL; /* else asked again when a buffer is free */
  return STATUS_OK;
}

static Status send_piece(Offer *offer, uint32_t number, uint64_t at) {
  const OfferFile *file = &offer->catalogue->list.files[number - 1];
  uint8_t *message = offer->buffers[offer->next++ % BUFFERS], *payload = message + WIRE_HEADER;
  if (at >= file->size) return status_set(STATUS_BAD_VALUE, "wants %s from byte %llu on", file->name, (unsigned long long)at);
  size_t size = file->size - at < OFFER_PIECE ? (size_t)(file->size - at) : OFFER_PIECE;
  for (size_t got = 0; got < size;) {
    ssize_t n = pread(offer->catalogue->descriptors[number - 1], payload + 8 + got, size - got, (off_t)(at + got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return status_set(STATUS_IO, "%s: %s", file->name, n < 0 ? strerror(errno) : "became shorter");
    got += (size_t)n;
  }
  wire_put_u64(payload, at);
  wire_pack(&(WireHeader){.kind = WIRE_PIECE, .sender = WIRE_LEADER, .count = number, .bytes = (uint32_t)(8 + size)}, message);
  return connection_send(&offer->connection, message, WIRE_HEADER + 8 + size);
}

static Status deliver_message(void *context, Connection *from, const WireHeader *header, uint8_t *payload) {
  Offer *offer = context;
  (void)from;
  if (header->kind == WIRE_FETCH) return send_piece(offer, header->count, wire_get_u64(payload));
  offer->done = true;
  if (header->kind == WIRE_FETCHED) return STATUS_OK;
  offer->refusal[header->bytes] = 0;
  return status_set(STATUS_BAD_VALUE, "%s", (char *)offer->refusal);
}

static double max_silence(const OfferList *list) { return fmax(silence_seconds, (double)list->bytes / slow_storage); }

static Status serve(Offer *offer) {
  Connection *connection = &offer->connection;
  const ConnectionSink sink = {
      .context = offer, .from = WIRE_FROM_DEVICE, .max_payload = WIRE_TEXT, .place = place_message, .deliver = deliver_message};
  wire_pack(&(WireHeader){.kind = WIRE_PING, .sender = WIRE_LEADER}, offer->ping);
  connection_receive(connection, connection->peer, &sink);
  connection->nameless = true;
  TRY(catalogue_ready(offer->catalogue, pulse, offer));
  const OfferList *list = &offer->catalogue->list;
  const uint32_t bytes = (uint32_t)list->count * OFFER_FILE_BYTES;
  log_info("%s fetches the checkpoint: %d file%s, %.1f MB", offer->name, list->count, text_plural(list->count), (double)list->bytes / 1e6);
  OfferList packed = *list;
  TRY(offer_list(byte_cursor_to(offer->offer + WIRE_HEADER), bytes, &packed));
  wire_pack(&(WireHeader){.kind = WIRE_OFFER, .sender = WIRE_LEADER, .count = (uint32_t)list->count, .bytes = bytes}, offer->offer);
  TRY(connection_send(connection, offer->offer, WIRE_HEADER + bytes));
  double began = clock_now();
  connection->heard = began;
  while (!offer->done) {
    TRY(connections_step(&connection, 1, slice_seconds));
    if (!pulse(offer)) return status_set(STATUS_INTERRUPTED, "interrupted");
    if (clock_now() - connection->heard <= max_silence(list)) continue;
    return status_set(STATUS_TIMEOUT, "asked for nothing for %.0f s", max_silence(list));
  }
  log_info("%s has fetched the checkpoint in %.1f s (%.1f MB were sent)", offer->name, clock_now() - began,
           (double)connection->sent.bytes / 1e6);
  return STATUS_OK;
}

static void *run(void *context) {
  Offer *offer = context;
  offer->status = serve(offer);
  if (offer->status != STATUS_OK) snprintf(offer->said, sizeof offer->said, "%s", status_message());
  connection_close(&offer->connection);
  atomic_store(&offer->over, true);
  return NULL;
}

Status offer_start(Offer **out, OfferCatalogue *catalogue, Connection *connection, const char *name) {
  Offer *offer = *out = calloc(1, sizeof *offer);
  if (!offer) return status_no_memory(NULL, "offering a checkpoint");
  offer->catalogue = catalogue;
  snprintf(offer->name, sizeof offer->name, "%s", name);
  offer->connection = *connection; /* nothing refers to its address between two messages */
  connection_init(connection);
  int fault = threads_spawn(&offer->thread, run, offer);
  if (fault == 0) return STATUS_OK;
  connection_close(&offer->connection);
  free(offer);
  *out = NULL;
  return status_set(STATUS_NO_MEMORY, "cannot start a thread to offer a checkpoint: %s", strerror(fault));
}

Status offer_end(Offer **ends, bool wait) {
  Offer *offer = *ends;
  if (!wait && !atomic_load(&offer->over)) return STATUS_BUSY;
  atomic_store(&offer->stop, true);
  pthread_join(offer->thread, NULL);
  Status status = offer->status == STATUS_OK ? STATUS_OK : status_set(offer->status, "%s", offer->said);
  free(offer);
  *ends = NULL;
  return status;
}
