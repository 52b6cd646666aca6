/* Descriptors in control messages (SCM_RIGHTS). */
#include "infer/cluster/fd_passing.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Both ends run the same program: the struct is its own format. */
typedef struct Note {
  uint8_t kind;
  uint16_t epoch, node;
} Note;

typedef union Rights {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
} Rights;

Status fd_passing_pair(int pair[2]) {
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0) return STATUS_OK;
  pair[0] = pair[1] = -1;
  return status_set(STATUS_IO, "cannot make a pair of sockets: %s%s", strerror(errno),
                    errno == EMFILE ? " (raise the limit with ulimit -n, or use fewer nodes)" : "");
}

Status fd_passing_send(int socket, const PassedFd *passed) {
  Note note = {.kind = (uint8_t)passed->kind, .epoch = passed->epoch, .node = passed->node};
  struct iovec part = {.iov_base = &note, .iov_len = sizeof note};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  Rights rights = {.bytes = {0}};
  ssize_t sent;
  if (passed->fd >= 0) {
    rights.header.cmsg_level = SOL_SOCKET;
    rights.header.cmsg_type = SCM_RIGHTS;
    rights.header.cmsg_len = CMSG_LEN(sizeof passed->fd);
    memcpy(CMSG_DATA(&rights.header), &passed->fd, sizeof passed->fd);
    message.msg_control = rights.bytes;
    message.msg_controllen = sizeof rights.bytes;
  }
  do sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  if (sent == (ssize_t)sizeof note) return STATUS_OK;
  return status_set(STATUS_PEER, "cannot pass a descriptor to another process: %s", strerror(errno));
}

Status fd_passing_receive(int socket, PassedFd *passed, bool *any) {
  Note note;
  Rights rights;
  struct iovec part = {.iov_base = &note, .iov_len = sizeof note};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = rights.bytes, .msg_controllen = sizeof rights.bytes};
  ssize_t got;
  *any = false;
  do got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return STATUS_OK;
  if (got != (ssize_t)sizeof note || note.kind < FD_STREAM || note.kind >= FD_KIND_END)
    return status_set(STATUS_PEER, "the process that passes descriptors is gone");
  *passed = (PassedFd){.kind = (FdKind)note.kind, .epoch = note.epoch, .node = note.node, .fd = -1};
  *any = true;
  const struct cmsghdr *control = CMSG_FIRSTHDR(&message);
  if (control && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS && control->cmsg_len == CMSG_LEN(sizeof passed->fd))
    memcpy(&passed->fd, CMSG_DATA(control), sizeof passed->fd);
  return STATUS_OK;
}
