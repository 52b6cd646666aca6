/* Address parsing, name resolution, listening and connecting. */
#include "infer/cluster/address.h"
#include "base/threads.h"
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 }; /* the system's maximum: a flood of calls must not fill it before the listener accepts */

/* ---- text */

static Status refuse(const char *text, const char *why) {
  return status_set(STATUS_BAD_USAGE,
                    "\"%s\" is not an address: %s; accepted are HOST:PORT, [IPV6]:PORT, unix:PATH, PORT and, for workers, local", text,
                    why);
}

static Status parse_path(const char *text, const char *path, Address *address) {
  address->on_disk = true;
  if (!*path) return refuse(text, "the path is missing");
  if (strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path) return refuse(text, "the system takes no path of that length");
  snprintf(address->name, sizeof address->name, "%s", path);
  return STATUS_OK;
}

Status address_parse(const char *text, Address *address) {
  *address = (Address){.on_disk = false};
  if (strcmp(text, "local") == 0) {
    /* $XDG_RUNTIME_DIR is this user's alone and is removed at the end of the session; where there is none, a folder for temporary files. */
    char path[ADDRESS_NAME];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int bytes = runtime && *runtime == '/' ? snprintf(path, sizeof path, "%s/astra/worker", runtime)
                                           : snprintf(path, sizeof path, "/tmp/astra-%ld/worker", (long)geteuid());
    if (bytes >= (int)sizeof path) return refuse(text, "XDG_RUNTIME_DIR is too long");
    address->own_folder = true;
    return parse_path(text, path, address);
  }
  if (strncmp(text, "unix:", 5) == 0) return parse_path(text, text + 5, address);
  if (strstr(text, "://")) return refuse(text, "a scheme such as http:// is not part of one");
  const char *colon = strrchr(text, ':'), *host = text;
  size_t length = colon ? (size_t)(colon - text) : 0;
  bool brackets = *text == '[';
  if (brackets && (length < 3 || text[length - 1] != ']')) return refuse(text, "a ] and a port must follow the [");
  if (brackets) host++, length -= 2;
  if (!brackets && memchr(host, ':', length)) return refuse(text, "an IPv6 address must be in brackets");
  if (colon && length == 0) return refuse(text, "the host is missing");
  if (length >= ADDRESS_NAME) return refuse(text, "the name is too long");
  const char *port = colon ? colon + 1 : text;
  size_t digits = strspn(port, "0123456789");
  if (!colon && text[digits]) return refuse(text, "the port is missing, as in localhost:7433");
  long value = digits > 0 && digits < 6 && port[digits] == 0 ? strtol(port, NULL, 10) : -1;
  if (value < 0 || value > UINT16_MAX) return refuse(text, "a port is a number from 0 to 65535");
  address->port = (uint16_t)value;
  snprintf(address->name, sizeof address->name, "%.*s", colon ? (int)length : 9, colon ? host : "127.0.0.1");
  return STATUS_OK;
}

const char *address_text(const Address *address, char text[ADDRESS_TEXT]) {
  bool v6 = strchr(address->name, ':') != NULL;
  if (address->on_disk)
    snprintf(text, ADDRESS_TEXT, "unix:%s", address->name);
  else
    snprintf(text, ADDRESS_TEXT, v6 ? "[%s]:%u" : "%s:%u", address->name, (unsigned)address->port);
  return text;
}

/* ---- names */

/* The list is to be freed with freeaddrinfo. */
static Status resolve(const Address *address, bool listen, struct addrinfo **list) {
  char port[8], text[ADDRESS_TEXT];
  const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | (listen ? AI_PASSIVE : 0)};
  snprintf(port, sizeof port, "%u", (unsigned)address->port);
  int fault = getaddrinfo(address->name, port, &wanted, list);
  if (fault == 0) return STATUS_OK;
  return status_set(STATUS_NOT_FOUND, "%s: %s", address_text(address, text), fault == EAI_SYSTEM ? strerror(errno) : gai_strerror(fault));
}

/* address_parse has checked that it fits. */
static struct sockaddr_un path_of(const Address *address) {
  struct sockaddr_un path = {.sun_family = AF_UNIX};
  memcpy(path.sun_path, address->name, strnlen(address->name, sizeof path.sun_path - 1));
  return path;
}

bool address_number_is_local(const struct sockaddr *number) {
  if (number->sa_family == AF_INET) return ntohl(((const struct sockaddr_in *)number)->sin_addr.s_addr) >> 24 == 127;
  return number->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)number)->sin6_addr);
}

bool address_is_local(const Address *address) {
  struct addrinfo *list;
  if (address->on_disk) return true;
  if (resolve(address, true, &list) != STATUS_OK) return false;
  bool local = true;
  for (const struct addrinfo *i = list; i && local; i = i->ai_next) local = address_number_is_local(i->ai_addr);
  freeaddrinfo(list);
  return local;
}

/* ---- listening */

static int open_socket(int family) { return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

static Status cannot_listen(const Address *address) {
  const int error = errno;
  char text[ADDRESS_TEXT];
  return status_set(STATUS_IO, "cannot listen on %s: %s%s", address_text(address, text), strerror(error),
                    error == EADDRINUSE ? "; end the program that listens there, or choose another address with --listen" : "");
}

/* A socket whose process is gone: connecting to it is refused. */
static bool is_stale(const struct sockaddr_un *path) {
  struct stat file;
  if (lstat(path->sun_path, &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  int fd = open_socket(AF_UNIX);
  if (fd < 0) return false; /* not known */
  const bool alive = connect(fd, (const struct sockaddr *)path, sizeof *path) == 0 || errno != ECONNREFUSED;
  close(fd);
  return !alive;
}

/* Another user could have made a folder of this name, and listen there. */
static Status check_own_folder(const Address *address, bool make) {
  char folder[ADDRESS_NAME];
  struct stat file;
  snprintf(folder, sizeof folder, "%s", address->name);
  *strrchr(folder, '/') = 0;
  if (make && mkdir(folder, S_IRWXU) != 0 && errno != EEXIST)
    return status_set(STATUS_IO, "cannot make the folder %s: %s (--listen unix:PATH chooses another)", folder, strerror(errno));
  if (lstat(folder, &file) != 0) return make ? status_set(STATUS_IO, "%s: %s", folder, strerror(errno)) : STATUS_OK;
  if (S_ISDIR(file.st_mode) && file.st_uid == geteuid() && !(file.st_mode & (S_IRWXG | S_IRWXO))) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "%s must be a folder of this user's that nobody else can enter (mode 700)", folder);
}

/* The mode is set before listen, and no process can connect before that. */
static Status listen_on_disk(const Address *address, int *fd) {
  const struct sockaddr_un path = path_of(address);
  if (address->own_folder) TRY(check_own_folder(address, true));
  if (is_stale(&path)) unlink(path.sun_path);
  struct stat file;
  if (lstat(path.sun_path, &file) == 0 && !S_ISSOCK(file.st_mode))
    return status_set(STATUS_IO, "cannot listen on unix:%s: what is there is no socket; remove it, or choose another address with --listen",
                      path.sun_path);
  *fd = open_socket(AF_UNIX);
  bool bound = *fd >= 0 && bind(*fd, (const struct sockaddr *)&path, sizeof path) == 0;
  if (bound && chmod(path.sun_path, S_IRUSR | S_IWUSR) == 0 && listen(*fd, BACKLOG) == 0) return STATUS_OK;
  Status status = cannot_listen(address);
  if (bound) unlink(path.sun_path);
  if (*fd >= 0) close(*fd);
  return status;
}

static int listen_at(const struct addrinfo *where) {
  const int yes = 1;
  int fd = open_socket(where->ai_family);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (where->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  if (bind(fd, where->ai_addr, where->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
  int fault = errno;
  close(fd);
  errno = fault;
  return -1;
}

Status address_listen(const Address *address, int sockets[ADDRESS_SOCKETS], int *count) {
  struct addrinfo *list;
  *count = 0;
  if (address->on_disk) {
    TRY(listen_on_disk(address, &sockets[0]));
    *count = 1;
    return STATUS_OK;
  }
  TRY(resolve(address, true, &list));
  Status status = STATUS_OK;
  for (struct addrinfo *i = list; i && status == STATUS_OK && *count < ADDRESS_SOCKETS; i = i->ai_next) {
    const uint16_t port = *count > 0 ? htons(address_port(sockets[0])) : 0; /* all listen on the port of the first one */
    if (port && i->ai_family == AF_INET) ((struct sockaddr_in *)i->ai_addr)->sin_port = port;
    if (port && i->ai_family == AF_INET6) ((struct sockaddr_in6 *)i->ai_addr)->sin6_port = port;
    int fd = listen_at(i);
    if (fd >= 0)
      sockets[(*count)++] = fd;
    else if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) /* a name may stand for numbers of a family that this machine lacks */
      status = cannot_listen(address);
  }
  if (status == STATUS_OK && *count == 0) status = cannot_listen(address);
  freeaddrinfo(list);
  if (status == STATUS_OK) return STATUS_OK;
  while (*count > 0) close(sockets[--*count]);
  return status;
}

void address_remove(const Address *address) {
  if (address->on_disk) unlink(address->name);
}

void address_close(const Address *address, int sockets[ADDRESS_SOCKETS], int count) {
  if (count > 0) address_remove(address);
  for (int i = 0; i < count; i++) close(sockets[i]);
}

uint16_t address_port(int fd) {
  struct sockaddr_storage own;
  socklen_t bytes = sizeof own;
  if (getsockname(fd, (struct sockaddr *)&own, &bytes) != 0) return 0;
  if (own.ss_family == AF_INET) return ntohs(((const struct sockaddr_in *)&own)->sin_port);
  return own.ss_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)&own)->sin6_port) : 0;
}

/* ---- calling */

void address_limit_silence(int fd, bool limited) {
  const unsigned milliseconds = limited ? 20000 : 0;
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds); /* a UNIX socket needs none */
}

/* -1: errno says why. */
static int connect_to(const struct sockaddr *to, socklen_t bytes) {
  int fd = open_socket(to->sa_family);
  if (fd < 0) return -1;
  if (connect(fd, to, bytes) == 0 || errno == EINPROGRESS) return fd;
  int fault = errno;
  close(fd);
  errno = fault;
  return -1;
}

static Status cannot_call(const Address *address) {
  char text[ADDRESS_TEXT];
  address_text(address, text);
  if (errno == ECONNREFUSED || errno == ENOENT)
    return status_set(STATUS_PEER, "%s: connection refused; astra-infer worker must run on that device", text);
  return status_set(STATUS_IO, "%s: cannot connect: %s", text, strerror(errno));
}

Status address_call(const Address *address, int *fd) {
  const struct sockaddr_un path = path_of(address);
  struct addrinfo *list = NULL;
  *fd = -1;
  if (address->own_folder) TRY(check_own_folder(address, false));
  if (!address->on_disk) TRY(resolve(address, false, &list));
  *fd = list ? connect_to(list->ai_addr, list->ai_addrlen) : connect_to((const struct sockaddr *)&path, sizeof path);
  Status status = *fd >= 0 ? STATUS_OK : cannot_call(address);
  if (list) freeaddrinfo(list);
  return status;
}

Status address_called(const Address *address, int fd, bool *done) {
  struct sockaddr_storage peer;
  socklen_t bytes = sizeof(int), peer_bytes = sizeof peer;
  int fault = 0;
  *done = true;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &bytes) != 0) fault = errno;
  if (fault == 0 && getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0) return STATUS_OK;
  *done = fault != 0;
  if (!*done) return STATUS_OK; /* in progress: it has no other end yet */
  errno = fault;
  return cannot_call(address);
}

/* Into the form of a number, or of a path from the root. */
Status address_of_peer(int fd, const Address *address, Address *reached) {
  struct sockaddr_storage peer;
  socklen_t bytes = sizeof peer;
  char path[PATH_MAX];
  *reached = *address;
  if (address->on_disk) {
    if (realpath(address->name, path) && strlen(path) < sizeof reached->name) memcpy(reached->name, path, strlen(path) + 1);
    return STATUS_OK;
  }
  bool known = getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0 &&
               getnameinfo((struct sockaddr *)&peer, bytes, reached->name, sizeof reached->name, NULL, 0, NI_NUMERICHOST) == 0;
  return known ? STATUS_OK : status_set(STATUS_PEER, "closed the connection at once");
}

/* Behind a UNIX socket there is no address, but a process. */
const char *address_caller(int socket, char text[ADDRESS_TEXT]) {
  struct sockaddr_storage peer;
  struct ucred process;
  socklen_t bytes = sizeof peer, room = sizeof process;
  Address caller = {0};
  char port[8];
  snprintf(text, ADDRESS_TEXT, "an unknown address");
  if (getpeername(socket, (struct sockaddr *)&peer, &bytes) != 0) return text;
  if (peer.ss_family == AF_UNIX) {
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &process, &room) == 0) snprintf(text, ADDRESS_TEXT, "pid %d", (int)process.pid);
    return text;
  }
  if (getnameinfo((struct sockaddr *)&peer, bytes, caller.name, sizeof caller.name, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) !=
      0)
    return text;
  caller.port = (uint16_t)strtoul(port, NULL, 10);
  return address_text(&caller, text);
}

Status address_numbers(const Address *address, Address numbers[ADDRESS_SOCKETS], int *count) {
  struct addrinfo *list = NULL;
  *count = 0;
  if (address->on_disk)
    numbers[(*count)++] = *address;
  else
    TRY(resolve(address, false, &list));
  for (const struct addrinfo *i = list; i && *count < ADDRESS_SOCKETS; i = i->ai_next) {
    Address *number = &numbers[*count];
    *number = *address;
    *count += getnameinfo(i->ai_addr, i->ai_addrlen, number->name, sizeof number->name, NULL, 0, NI_NUMERICHOST) == 0;
  }
  if (list) freeaddrinfo(list);
  return *count > 0 ? STATUS_OK : status_set(STATUS_NOT_FOUND, "%s stands for no number", address->name);
}

/* Freed by whoever leaves it last. */
struct AddressSearch {
  pthread_mutex_t lock; /* of what follows; address is constant */
  bool ended, left;
  Status status;
  char message[256];
  Address address, numbers[ADDRESS_SOCKETS];
  int count;
};

static void search_free(AddressSearch *search) {
  pthread_mutex_destroy(&search->lock);
  free(search);
}

static void *search_run(void *context) {
  AddressSearch *search = context;
  Address numbers[ADDRESS_SOCKETS];
  int count;
  const Status status = address_numbers(&search->address, numbers, &count);
  pthread_mutex_lock(&search->lock);
  search->status = status;
  search->count = count;
  memcpy(search->numbers, numbers, (size_t)count * sizeof *numbers);
  snprintf(search->message, sizeof search->message, "%s", status_message());
  search->ended = true;
  const bool left = search->left;
  pthread_mutex_unlock(&search->lock);
  if (left) search_free(search);
  return NULL;
}

Status address_search(AddressSearch **search, const Address *address) {
  pthread_t thread;
  AddressSearch *made = *search = calloc(1, sizeof *made);
  if (!made) return status_no_memory(address->name, "looking it up");
  made->address = *address;
  pthread_mutex_init(&made->lock, NULL);
  const int failed = threads_spawn(&thread, search_run, made);
  if (!failed) pthread_detach(thread);
  if (!failed) return STATUS_OK;
  search_free(made);
  *search = NULL;
  return status_set(STATUS_IO, "cannot start a thread to look up %s: %s", address->name, strerror(failed));
}

bool address_search_ended(AddressSearch **search, Address numbers[ADDRESS_SOCKETS], int *count, Status *status) {
  AddressSearch *s = *search;
  pthread_mutex_lock(&s->lock);
  const bool ended = s->ended;
  pthread_mutex_unlock(&s->lock);
  if (!ended) return false;
  *status = s->status == STATUS_OK ? STATUS_OK : status_set(s->status, "%s", s->message);
  *count = s->count;
  memcpy(numbers, s->numbers, (size_t)s->count * sizeof *numbers);
  search_free(s);
  *search = NULL;
  return true;
}

void address_search_leave(AddressSearch **search) {
  AddressSearch *s = *search;
  *search = NULL;
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  const bool ended = s->ended;
  s->left = true;
  pthread_mutex_unlock(&s->lock);
  if (ended) search_free(s);
}

void address_on_link(Address *address, int socket) {
  struct sockaddr_storage peer;
  struct in6_addr number;
  socklen_t bytes = sizeof peer;
  char text[INET6_ADDRSTRLEN];
  size_t digits = strcspn(address->name, "%");
  snprintf(text, sizeof text, "%.*s", (int)digits, address->name);
  bool known = getpeername(socket, (struct sockaddr *)&peer, &bytes) == 0 && peer.ss_family == AF_INET6;
  unsigned link = known ? ((const struct sockaddr_in6 *)&peer)->sin6_scope_id : 0;
  if (!link || address->on_disk || digits >= sizeof text || inet_pton(AF_INET6, text, &number) != 1) return;
  if (IN6_IS_ADDR_LINKLOCAL(&number)) snprintf(address->name + digits, sizeof address->name - digits, "%%%u", link);
}
