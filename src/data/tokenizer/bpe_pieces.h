/* The pieces of a vocabulary: the bytes of each id, and the id of given bytes. */
#ifndef DATA_BPE_PIECES_H
#define DATA_BPE_PIECES_H
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct BpePieces {
  int32_t count; /* ids are 0 .. count - 1 */
  char *text;    /* bytes of all pieces, a NUL behind each */
  size_t used, room;
  size_t *starts;  /* [count] into text */
  uint32_t *sizes; /* [count] */
  bool *present;   /* [count] */
  int32_t *slots;  /* [mask + 1]: open addressing, linear probing; -1: free */
  size_t mask;
} BpePieces;

/* Room for ids 0 .. count - 1, none of them present. Release with bpe_pieces_release, also after a failure. BAD_FILE: a count that is not
 * in 1 .. 2^24. */
Status bpe_pieces_init(BpePieces *pieces, int64_t count);
void bpe_pieces_release(BpePieces *pieces); /* accepts a zeroed one */

/* The bytes of an id (copied; any bytes, at least one). `findable`: bpe_pieces_find finds it; special tokens are not, so that plain text
 * never becomes one. BAD_FILE: id out of range or given twice, no bytes, or bytes that a findable piece has already. */
Status bpe_pieces_put(BpePieces *pieces, int64_t id, const char *bytes, size_t size, bool findable);

/* BAD_FILE: an id has no piece; the message names the first. */
Status bpe_pieces_check_whole(const BpePieces *pieces);

/* The id of exactly these bytes, or -1. */
int32_t bpe_pieces_find(const BpePieces *pieces, const char *bytes, size_t size);

/* The bytes of an id that is present; a NUL stands behind them. Valid until the next put. */
static inline const char *bpe_pieces_text(const BpePieces *pieces, int32_t id, size_t *size) {
  *size = pieces->sizes[id];
  return pieces->text + pieces->starts[id];
}

/* A piece for messages: quoted, bytes that are not printable ASCII as \xNN, cut after a few dozen characters. */
enum { BPE_PIECES_SHOWN = 96 };
const char *bpe_pieces_show(const char *bytes, size_t size, char shown[BPE_PIECES_SHOWN]);

#endif
