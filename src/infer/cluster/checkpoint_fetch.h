/* The worker's side of checkpoint_offer.h: fetches a leader's checkpoint into a directory. Files are written in "DIRECTORY.partial", each
 * as the beginning of its digest with ".part" until its SHA-256 is right; when all are there, the directory gets its name. A fetch that was
 * interrupted goes on where it was, also from another leader with the same files. Of what lies in "DIRECTORY.partial" only files that a
 * fetch has written are removed; with anything else in it nothing is fetched. */
#ifndef INFER_CHECKPOINT_FETCH_H
#define INFER_CHECKPOINT_FETCH_H
#include "infer/cluster/connection.h"
#include <sys/types.h>

/* What to load of a directory that was fetched, caller frees: the directory itself, or the GGUF file in it. NULL: nothing was fetched yet,
 * the directory is absent or empty. */
Status checkpoint_fetch_find(const char *directory, char **checkpoint);

/* Where to fetch into: what a link points to, as DIRECTORY.partial is renamed to that. Caller frees. BAD_VALUE: a link to nothing, or a
 * mount point, to which nothing can be renamed. */
Status checkpoint_fetch_resolve(const char *directory, char **place);

typedef struct FetchPlace {
  pid_t parent;          /* process that forked this one, which ends with it */
  Connection *control;   /* to the leader, handshake done; ownership is taken */
  const char *directory; /* checkpoint_fetch_resolve */
  const char *leader;    /* its address, for messages */
  double idle_timeout;   /* seconds without a sign of life from the leader */
} FetchPlace;

/* The main function of a forked process. Returns its exit code: 0 once the directory is complete. Failures are logged, and told to the
 * leader unless they are its own. */
int checkpoint_fetch_run(const FetchPlace *place);

#endif
