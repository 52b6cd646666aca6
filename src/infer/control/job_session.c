/* See job_session.h. */
#include "infer/control/job_session.h"
#include "base/clock.h"
#include "base/log.h"
#include "infer/control/address.h"
#include "infer/control/preamble.h"
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static const double handshake_seconds = 5;
enum { SLICE = 50 /* ms */ };

/* The first bytes of whoever calls; TIMEOUT: they do not come. */
static Status hear_preamble(int fd) {
  PreambleTaken taken = {.got = 0};
  Preamble preamble;
  bool done = false;
  for (double until = clock_now() + handshake_seconds; !done;) {
    TRY(preamble_take(fd, &taken, &preamble, &done));
    if (clock_now() > until) return status_set(STATUS_TIMEOUT, "a caller said nothing");
    if (!done) poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, SLICE);
  }
  return preamble.role == PREAMBLE_LEADER ? STATUS_OK : status_set(STATUS_BAD_VALUE, "a caller that is no leader");
}

static Status answer(const JobSession *job, int fd, Channel **channel) {
  address_prepare(fd);
  Status status = hear_preamble(fd);
  if (status != STATUS_OK) {
    close(fd);
    return status;
  }
  TRY(channel_tls(channel, fd, CHANNEL_ANSWERS, job->place.key));
  status = channel_handshake(*channel, handshake_seconds);
  if (status == STATUS_OK) return STATUS_OK;
  channel_free(*channel);
  *channel = NULL;
  return status;
}

static Channel *wait_for_leader(const JobSession *job) {
  struct pollfd waiting[ADDRESS_SOCKETS];
  Channel *channel = NULL;
  for (int i = 0; i < job->socket_count; i++) waiting[i] = (struct pollfd){.fd = job->sockets[i], .events = POLLIN};
  while (!channel && !job->is_over(job->context)) {
    poll(waiting, (nfds_t)job->socket_count, SLICE);
    for (int i = 0; i < job->socket_count && !channel; i++) {
      int fd = waiting[i].revents ? accept4(job->sockets[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
      if (fd >= 0 && answer(job, fd, &channel) != STATUS_OK) log_warning("a caller was turned away: %s", status_message());
    }
  }
  return channel;
}

void job_session_run(JobSession *job) {
  job->place.control = wait_for_leader(job);
  job->place.handed = -1;
  if (job->place.control) session_run(&job->place);
}
