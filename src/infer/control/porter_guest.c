/* See porter_guest.h. */
#include "infer/control/porter_guest.h"
#include "base/clock.h"
#include "base/log.h"
#include "infer/control/address.h"
#include "infer/wire.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double handshake_seconds = 5, word_seconds = 1, last_word_seconds = 2;

typedef struct Wait {
  Channel *channel;
  int porter;
  int place;   /* in the queue; 0: to be refused */
  bool told;   /* the porter has said something */
  bool starts; /* it is our turn */
  uint8_t message[WIRE_HEADER + WIRE_TEXT];
  size_t size, sent; /* of the message on its way */
} Wait;

static void make_word(Wait *wait) {
  char text[WIRE_TEXT];
  int length = wait->place ? snprintf(text, sizeof text, "serves somebody else; this run is number %d in its queue", wait->place)
                           : snprintf(text, sizeof text, "serves somebody else, and nobody may wait");
  wire_pack(&(WireHeader){.kind = WIRE_BUSY, .count = (uint32_t)wait->place, .bytes = (uint32_t)length}, wait->message);
  memcpy(wait->message + WIRE_HEADER, text, (size_t)length);
  wait->size = WIRE_HEADER + (size_t)length;
  wait->sent = 0;
}

/* False: the leader is gone. */
static bool send_some(Wait *wait) {
  while (wait->sent < wait->size) {
    ssize_t n = channel_write(wait->channel, wait->message + wait->sent, wait->size - wait->sent);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    wait->sent += (size_t)n;
  }
  return true;
}

/* False: the porter is gone. */
static bool hear_porter(Wait *wait) {
  Handed handed;
  bool any = true;
  while (!wait->starts) {
    if (handed_receive(wait->porter, &handed, &any) != STATUS_OK) return false;
    if (!any) return true;
    if (handed.fd >= 0) close(handed.fd);
    wait->told = true;
    wait->starts = handed.kind == HANDED_START;
    wait->place = handed.kind == HANDED_WAIT ? handed.number : 0;
  }
  return true;
}

/* Of a leader that waits nothing is read but its end: what it says is for the session. */
static bool leader_is_there(const Wait *wait) {
  struct pollfd waiting = {.fd = channel_fd(wait->channel), .events = POLLRDHUP};
  return poll(&waiting, 1, 0) == 0 || !(waiting.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void pause_for(const Wait *wait, double seconds) {
  struct pollfd waiting[2] = {{.fd = wait->porter, .events = POLLIN},
                              {.fd = channel_fd(wait->channel), .events = (short)(POLLRDHUP | (wait->sent < wait->size ? POLLOUT : 0))}};
  poll(waiting, 2, (int)(seconds * 1000));
}

/* Until it is our turn, or there is none. A message that has begun is said to its end, or TLS would not go on. */
static bool wait_for_turn(Wait *wait) {
  double next = clock_now() + word_seconds / 4, over = 0;
  while (!(wait->starts && wait->sent == wait->size)) {
    if (!hear_porter(wait) || !leader_is_there(wait) || !send_some(wait)) return false;
    double now = clock_now();
    bool refused = wait->told && !wait->starts && wait->place == 0, quiet = wait->told && !wait->starts && wait->sent == wait->size;
    if (over > 0 && now > over) return false;
    if (quiet && (refused ? over <= 0 : now >= next)) {
      make_word(wait);
      next = now + word_seconds;
      if (refused) over = now + last_word_seconds; /* for the leader to hang up: what it has sent lies here unread */
      continue;
    }
    if (!wait->starts || wait->sent < wait->size) pause_for(wait, word_seconds / 4);
  }
  return true;
}

int porter_guest_run(PorterGuest *guest) {
  Wait wait = {.porter = guest->place.handed};
  Handed greeted = {.kind = HANDED_GREETED, .fd = -1};
  address_limit_silence(guest->fd);
  Status status = channel_tls(&wait.channel, guest->fd, CHANNEL_ANSWERS, guest->place.key);
  if (status == STATUS_OK) status = channel_handshake(wait.channel, handshake_seconds);
  if (status != STATUS_OK) {
    log_warning("a leader at %s was turned away: %s", guest->place.leader, status_message());
    channel_free(wait.channel);
    return 1;
  }
  memcpy(greeted.session, guest->session, HANDED_SESSION);
  if (handed_send(wait.porter, &greeted) != STATUS_OK || !wait_for_turn(&wait)) {
    channel_free(wait.channel);
    return 1;
  }
  guest->place.control = wait.channel;
  return session_run(&guest->place);
}
