/* Workers that leaders find by themselves, through Avahi (multicast DNS, "_astra._tcp"). What is announced: the device's name, the port,
 * the version of the protocol, and a proof that the announcer has the cluster's key (docs/FORMATS.md); leaders pass over announcements
 * without it. The proof does not cover the address, and can be repeated by others: it only keeps clusters apart. Who a device is, the TLS
 * handshake shows.
 *
 * UNSUPPORTED everywhere: this build has no libavahi-client. */
#ifndef INFER_DISCOVERY_H
#define INFER_DISCOVERY_H
#include "infer/cluster/address.h"
#include "infer/cluster/key_file.h"
#include <sys/types.h>

typedef struct Announcement {
  const char *name;      /* of the device; NULL: the host's; another one on the network with the same name gets a number */
  const Address *listen; /* a number of one interface: announced there alone */
  uint16_t port;
  const KeyFile *key;
} Announcement;

/* Forks a process that announces until it is ended, or its parent ends, and announces again when the daemon comes back. Call while few
 * descriptors are open and before any thread is started. NOT_FOUND: no daemon runs. */
Status discovery_announce(const Announcement *announcement, pid_t *pid);
void discovery_end(pid_t pid); /* 0: none */

/* found [WIRE_NODES]: the workers that announce themselves with this key, in order of their names; takes a second or two. NOT_FOUND: there
 * are none, or no daemon runs. */
Status discovery_find(const KeyFile *key, Address *found, int *count);

#endif
