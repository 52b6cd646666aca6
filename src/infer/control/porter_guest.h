/* A porter's child with the connection of one leader: shows and checks the key, tells the porter, waits for its turn, and becomes the
 * session. Private to porter.c. */
#ifndef INFER_PORTER_GUEST_H
#define INFER_PORTER_GUEST_H
#include "infer/control/device_session.h"
#include "infer/control/handed.h"

typedef struct PorterGuest {
  SessionPlace place; /* all but control; handed leads to the porter */
  int fd;             /* of the leader, its preamble taken */
  uint8_t session[HANDED_SESSION];
} PorterGuest;

/* Returns the exit code of the process. */
int porter_guest_run(PorterGuest *guest);

#endif
