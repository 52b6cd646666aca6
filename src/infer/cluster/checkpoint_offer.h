/* A leader's checkpoint, offered to workers that lack it (docs/FORMATS.md). A worker without a checkpoint answers a leader, where it would
 * say WELCOME, with FETCH:
 *
 *   worker   FETCH        FETCH 1 from 0, FETCH 1 from 262144...                  FETCHED
 *   leader         OFFER                                        PIECE, PIECE...
 *
 * OFFER lists files with sizes and SHA-256; FETCH asks for a piece of one of them. The worker (checkpoint_fetch.h) asks for several pieces
 * ahead, so that a long way costs little, and hangs up after FETCHED; then it loads the checkpoint, and the leader calls it again.
 *
 * Each worker is served by a thread of its own, with a megabyte of buffers, while the cluster computes on other devices. The digests are
 * computed when the first worker asks. */
#ifndef INFER_CHECKPOINT_OFFER_H
#define INFER_CHECKPOINT_OFFER_H
#include "infer/cluster/connection.h"

enum {
  OFFER_FILES = WIRE_OFFER_BYTES / 128, /* at most */
  OFFER_NAME = 88,
  OFFER_DIGEST = 32,
  OFFER_FILE_BYTES = 8 + OFFER_DIGEST + OFFER_NAME, /* on the wire */
  OFFER_PIECE = WIRE_PIECE_BYTES - 8                /* bytes of a file in a PIECE, behind u64 offset */
};
#define OFFER_MAX_BYTES ((uint64_t)1 << 44) /* of all files together */

typedef struct OfferFile {
  uint64_t size;
  uint8_t digest[OFFER_DIGEST]; /* SHA-256 */
  char name[OFFER_NAME];        /* ends with a NUL */
} OfferFile;

typedef struct OfferList {
  int count;
  uint64_t bytes; /* of all files */
  OfferFile files[OFFER_FILES];
} OfferList;

/* The payload of an OFFER, `size` bytes: packed, or parsed from hostile bytes. BAD_VALUE: no file, too many, or too large; a name that is
 * not made of letters, digits, "-", "_" and "." or begins with "." (so it names no other folder), or that comes twice. */
Status offer_list(ByteCursor cursor, size_t size, OfferList *list);

/* ---- the leader's side */

/* The files of the checkpoint, looked at when they are first asked for: another model in its place by then is not offered. */
typedef struct OfferCatalogue OfferCatalogue;

/* checkpoint: a directory or a GGUF file, as the leader has just loaded it; copied. NO_MEMORY. */
Status offer_catalogue_open(OfferCatalogue **catalogue, const char *checkpoint);
void offer_catalogue_free(OfferCatalogue *catalogue); /* accepts NULL; after all threads have ended */

/* A thread that serves one worker. */
typedef struct Offer Offer;

/* Takes over the connection of a worker that has sent its first FETCH; *connection is closed from then on. The catalogue outlives the
 * offer. name: of the worker, copied. */
Status offer_start(Offer **offer, OfferCatalogue *catalogue, Connection *connection, const char *name);
/* Once the thread has ended: OK if the worker has all files; BAD_VALUE: it refuses them, or they cannot be read; PEER, TIMEOUT; *offer
 * becomes NULL. While it serves: BUSY, or with `wait` it is asked to stop, and waited for. */
Status offer_end(Offer **offer, bool wait);

#endif
