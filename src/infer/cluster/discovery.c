/* See discovery.h. */
#include "infer/cluster/discovery.h"

#ifdef ASTRA_AVAHI
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "infer/wire.h"
#include <arpa/inet.h>
#include <avahi-client/client.h>
#include <avahi-client/lookup.h>
#include <avahi-client/publish.h>
#include <avahi-common/alternative.h>
#include <avahi-common/domain.h>
#include <avahi-common/error.h>
#include <avahi-common/malloc.h>
#include <avahi-common/simple-watch.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char service_type[] = "_astra._tcp";
static const double find_seconds = 5, announce_seconds = 10; /* time limits; both usually take a second */
enum { PROOF = 16, PROOF_TEXT = 2 * PROOF + 1, NAME = AVAHI_LABEL_MAX, SAID = 256, MAX_DESCRIPTOR = 1 << 20 };

/* HMAC-SHA256(key, purpose | version | port | name), the first bytes in hexadecimal digits. */
static bool prove(const KeyFile *key, const char *name, uint16_t port, char text[PROOF_TEXT]) {
  static const char purpose[] = "astra discovery";
  uint8_t said[sizeof purpose + 3 + NAME], proof[EVP_MAX_MD_SIZE];
  size_t length = strnlen(name, NAME);
  memcpy(said, purpose, sizeof purpose);
  said[sizeof purpose] = WIRE_VERSION;
  said[sizeof purpose + 1] = (uint8_t)port;
  said[sizeof purpose + 2] = (uint8_t)(port >> 8);
  memcpy(said + sizeof purpose + 3, name, length);
  if (!HMAC(EVP_sha256(), key->bytes, KEY_FILE_BYTES, said, sizeof purpose + 3 + length, proof, NULL)) return false;
  text_hex(proof, PROOF, text);
  return true;
}

static Status no_daemon(int error) {
  return status_set(STATUS_NOT_FOUND, "avahi-daemon does not answer (%s): start it on this machine, or give addresses by hand",
                    avahi_strerror(error));
}

/* ---- announcing, in a process of its own */

typedef struct Announcer {
  const Announcement *what;
  AvahiSimplePoll *poll;
  AvahiClient *client;
  AvahiEntryGroup *group;
  AvahiIfIndex interface;
  AvahiProtocol protocol;
  char *name; /* avahi_free */
  int told;   /* where the first result is written; -1: it was */
} Announcer;

/* The parent learns the result: the name, or behind a NUL why not. */
static void tell(Announcer *a, bool announced, const char *text) {
  char said[SAID] = "";
  if (a->told < 0) return;
  int length = snprintf(said, sizeof said, "%c%s", announced ? '+' : '-', text);
  (void)!write(a->told, said, length < SAID ? (size_t)length : SAID - 1);
  close(a->told);
  a->told = -1;
}

static void fail(Announcer *a, int error) {
  tell(a, false, avahi_strerror(error));
  avahi_simple_poll_quit(a->poll);
}

static void group_changed(AvahiEntryGroup *group, AvahiEntryGroupState state, void *context);

/* taken: another device has the name; the next one is tried. */
static void announce(Announcer *a, bool taken) {
  char proof[PROOF_TEXT], text[PROOF_TEXT + 8];
  for (int error = taken ? AVAHI_ERR_COLLISION : AVAHI_OK;;) {
    if (error == AVAHI_ERR_COLLISION) {
      char *other = avahi_alternative_service_name(a->name);
      if (!other) {
        fail(a, AVAHI_ERR_NO_MEMORY);
        return;
      }
      avahi_free(a->name);
      a->name = other;
      avahi_entry_group_reset(a->group);
    }
    if (!a->group) a->group = avahi_entry_group_new(a->client, group_changed, a);
    if (!a->group || !prove(a->what->key, a->name, a->what->port, proof)) {
      fail(a, a->group ? AVAHI_ERR_FAILURE : avahi_client_errno(a->client));
      return;
    }
    snprintf(text, sizeof text, "proof=%s", proof);
    error =
        avahi_entry_group_add_service(a->group, a->interface, a->protocol, 0, a->name, service_type, NULL, NULL, a->what->port, text, NULL);
    if (error == AVAHI_OK) error = avahi_entry_group_commit(a->group);
    if (error == AVAHI_ERR_COLLISION) continue;
    if (error != AVAHI_OK) fail(a, error);
    return;
  }
}

static void group_changed(AvahiEntryGroup *group, AvahiEntryGroupState state, void *context) {
  Announcer *a = context;
  a->group = group;
  if (state == AVAHI_ENTRY_GROUP_ESTABLISHED) tell(a, true, a->name);
  if (state == AVAHI_ENTRY_GROUP_FAILURE) fail(a, avahi_client_errno(a->client));
  if (state == AVAHI_ENTRY_GROUP_COLLISION) announce(a, true);
}

static void client_changed(AvahiClient *client, AvahiClientState state, void *context) {
  Announcer *a = context;
  a->client = client; /* the first call comes before avahi_client_new returns */
  if (state == AVAHI_CLIENT_S_RUNNING) announce(a, false);
  if ((state == AVAHI_CLIENT_S_COLLISION || state == AVAHI_CLIENT_S_REGISTERING) && a->group) avahi_entry_group_reset(a->group);
  if (state == AVAHI_CLIENT_FAILURE) avahi_simple_poll_quit(a->poll);
}

/* Where a worker is announced that listens at a number: on the interface that has it, and over its protocol. */
static void choose_interface(Announcer *a) {
  const Address *listen = a->what->listen;
  struct in6_addr wanted, any = IN6ADDR_ANY_INIT;
  struct ifaddrs *all = NULL;
  a->interface = AVAHI_IF_UNSPEC;
  bool v4 = inet_pton(AF_INET, listen->name, &wanted) == 1, v6 = !v4 && inet_pton(AF_INET6, listen->name, &wanted) == 1;
  a->protocol = v4 ? AVAHI_PROTO_INET : v6 ? AVAHI_PROTO_INET6 : AVAHI_PROTO_UNSPEC;
  if ((!v4 && !v6) || memcmp(&wanted, &any, v4 ? 4 : 16) == 0 || getifaddrs(&all) != 0) return;
  for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
    const struct sockaddr *at = one->ifa_addr;
    bool same = at && v4 && at->sa_family == AF_INET && memcmp(&((const struct sockaddr_in *)(const void *)at)->sin_addr, &wanted, 4) == 0;
    same |= at && v6 && at->sa_family == AF_INET6 && memcmp(&((const struct sockaddr_in6 *)(const void *)at)->sin6_addr, &wanted, 16) == 0;
    if (same) a->interface = (AvahiIfIndex)if_nametoindex(one->ifa_name);
  }
  freeifaddrs(all);
}

/* In the child. Ends by a signal, or when the daemon was not there to begin with. */
static void run_announcer(const Announcement *what, int told) {
  Announcer a = {.what = what, .told = told};
  char name[NAME] = "";
  char host[NAME] = "";
  if (!what->name) gethostname(host, NAME - 1);
  const char *wanted = what->name ? what->name : host;
  size_t length = strnlen(wanted, NAME - 1);
  const bool cut = length == NAME - 1; /* then no part of a character is left at the end */
  while (cut && length > 0 && ((unsigned char)wanted[length] & 0xc0) == 0x80) length--;
  memcpy(name, wanted, length);
  choose_interface(&a);
  a.name = avahi_strdup(length ? name : "astra");
  if (!a.name) {
    tell(&a, false, "out of memory");
    _exit(1);
  }
  for (int error, first = 1;; first = 0) {
    a.poll = avahi_simple_poll_new();
    a.group = NULL;
    a.client =
        a.poll ? avahi_client_new(avahi_simple_poll_get(a.poll), first ? 0 : AVAHI_CLIENT_NO_FAIL, client_changed, &a, &error) : NULL;
    if (!a.client && first) {
      tell(&a, false, a.poll ? avahi_strerror(error) : "out of memory");
      _exit(1);
    }
    if (a.client) avahi_simple_poll_loop(a.poll); /* until the daemon goes */
    bool failed = a.told >= 0;
    if (a.client) avahi_client_free(a.client);
    if (a.poll) avahi_simple_poll_free(a.poll);
    if (failed) _exit(1);
    sleep(1);
  }
}

/* Sockets above all: the port is to be free when the worker has ended. Descriptors may have any number: the worker raises its limit. */
static void close_all_but(int kept) {
  const unsigned behind = kept < 3 ? 3 : (unsigned)kept + 1;
  struct rlimit limit = {.rlim_cur = MAX_DESCRIPTOR};
#ifdef SYS_close_range
  if ((kept <= 3 || syscall(SYS_close_range, 3U, (unsigned)kept - 1, 0U) == 0) && syscall(SYS_close_range, behind, ~0U, 0U) == 0) return;
#endif
  getrlimit(RLIMIT_NOFILE, &limit);
  for (int fd = 3; fd < MAX_DESCRIPTOR && (rlim_t)fd < limit.rlim_cur; fd++) /* before Linux 5.9 */
    if (fd != kept) close(fd);
}

Status discovery_announce(const Announcement *what, pid_t *pid) {
  char said[SAID + 1] = "";
  int told[2];
  pid_t parent = getpid();
  *pid = 0;
  if (pipe(told) != 0) return status_set(STATUS_IO, "cannot make a pipe: %s", strerror(errno));
  *pid = fork();
  if (*pid == 0) {
    static const int defaults[] = {SIGTERM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, 0}, ignored[] = {SIGINT, 0};
    if (!process_child(parent, SIGKILL, defaults, ignored)) _exit(1);
    close_all_but(told[1]);
    run_announcer(what, told[1]);
  }
  close(told[1]);
  struct pollfd waiting = {.fd = told[0], .events = POLLIN};
  ssize_t n = -1;
  double until = clock_now() + announce_seconds;
  while (*pid > 0 && n < 0 && clock_now() < until)
    if (poll(&waiting, 1, 200) > 0 && (n = read(told[0], said, SAID)) < 0 && errno != EINTR) break;
  close(told[0]);
  if (n > 0 && said[0] == '+') {
    log_info("announced as \"%s\" on port %u", said + 1, what->port);
    return STATUS_OK;
  }
  discovery_end(*pid > 0 ? *pid : 0);
  *pid = 0;
  return status_set(STATUS_NOT_FOUND,
                    "--announce: avahi-daemon does not answer (%s): start it, or leave --announce out and give leaders the address",
                    n > 1 ? said + 1 : "no answer");
}

void discovery_end(pid_t pid) {
  if (!pid) return;
  kill(pid, SIGKILL);
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
}

/* ---- finding */

typedef struct Found {
  char name[NAME];
  Address address;
  int rank; /* the smaller the better */
} Found;

typedef struct Finder {
  const KeyFile *key;
  AvahiSimplePoll *poll;
  AvahiClient *client;
  Found *found;
  int count, pending; /* pending: names that are not resolved yet */
  bool all;           /* every name that the daemon knew at the start has been told (AVAHI_BROWSER_ALL_FOR_NOW) */
  int error;
} Finder;

/* A service is resolved on each interface and for each protocol: IPv4 before IPv6, routed addresses before those of a link, this machine's
 * loopback last. */
static void keep(Finder *f, const char *name, const AvahiAddress *at, AvahiIfIndex interface, uint16_t port) {
  Address address = {.port = port};
  char number[AVAHI_ADDRESS_STR_MAX], link[IF_NAMESIZE] = "";
  avahi_address_snprint(number, sizeof number, at);
  bool v4 = at->proto == AVAHI_PROTO_INET, near = strncmp(number, v4 ? "169.254." : "fe80:", v4 ? 8 : 5) == 0;
  bool loopback = v4 ? strncmp(number, "127.", 4) == 0 : strcmp(number, "::1") == 0;
  bool scoped = near && !v4 && if_indextoname((unsigned)interface, link);
  int rank = loopback ? 4 : near ? (v4 ? 2 : 3) : (v4 ? 0 : 1), i = 0;
  snprintf(address.name, sizeof address.name, "%s%s%s", number, scoped ? "%" : "", link);
  while (i < f->count && strcmp(f->found[i].name, name) != 0) i++;
  if (i == WIRE_NODES) return;
  Found *found = &f->found[i];
  bool better = i == f->count || rank < found->rank || (rank == found->rank && strcmp(address.name, found->address.name) < 0);
  if (i == f->count) f->count++;
  if (!better) return;
  snprintf(found->name, sizeof found->name, "%s", name);
  found->address = address;
  found->rank = rank;
}

static bool is_proven(const Finder *f, AvahiStringList *texts, const char *name, uint16_t port) {
  char expected[PROOF_TEXT], *key = NULL, *value = NULL;
  size_t size = 0;
  AvahiStringList *entry = avahi_string_list_find(texts, "proof");
  if (!entry || avahi_string_list_get_pair(entry, &key, &value, &size) != 0) return false;
  bool proven = value && size == PROOF_TEXT - 1 && prove(f->key, name, port, expected) && CRYPTO_memcmp(value, expected, size) == 0;
  avahi_free(key);
  avahi_free(value);
  return proven;
}

static void name_resolved(AvahiServiceResolver *resolver, AvahiIfIndex interface, AvahiProtocol protocol, AvahiResolverEvent event,
                          const char *name, const char *type, const char *domain, const char *host, const AvahiAddress *at, uint16_t port,
                          AvahiStringList *texts, AvahiLookupResultFlags flags, void *context) {
  Finder *f = context;
  (void)protocol, (void)type, (void)domain, (void)host, (void)flags;
  if (event == AVAHI_RESOLVER_FOUND && is_proven(f, texts, name, port)) keep(f, name, at, interface, port);
  f->pending--;
  avahi_service_resolver_free(resolver);
}

static void name_found(AvahiServiceBrowser *browser, AvahiIfIndex interface, AvahiProtocol protocol, AvahiBrowserEvent event,
                       const char *name, const char *type, const char *domain, AvahiLookupResultFlags flags, void *context) {
  Finder *f = context;
  (void)browser, (void)flags;
  if (event == AVAHI_BROWSER_FAILURE) f->error = avahi_client_errno(f->client);
  if (event == AVAHI_BROWSER_ALL_FOR_NOW) f->all = true;
  if (event != AVAHI_BROWSER_NEW) return;
  /* An address of the protocol over which it is announced: the worker may listen to one alone. */
  f->pending += avahi_service_resolver_new(f->client, interface, protocol, name, type, domain, protocol, 0, name_resolved, f) != NULL;
}

static void finder_changed(AvahiClient *client, AvahiClientState state, void *context) {
  Finder *f = context;
  if (state == AVAHI_CLIENT_FAILURE) f->error = avahi_client_errno(client);
}

static int by_name(const void *a, const void *b) { return strcmp(((const Found *)a)->name, ((const Found *)b)->name); }

static Status find(Finder *f) {
  int error = AVAHI_ERR_NO_MEMORY;
  double until = clock_now() + find_seconds;
  f->poll = avahi_simple_poll_new();
  f->client = f->poll ? avahi_client_new(avahi_simple_poll_get(f->poll), 0, finder_changed, f, &error) : NULL;
  if (!f->client) return no_daemon(error);
  if (!avahi_service_browser_new(f->client, AVAHI_IF_UNSPEC, AVAHI_PROTO_UNSPEC, service_type, NULL, 0, name_found, f))
    return no_daemon(avahi_client_errno(f->client));
  while (f->error == 0 && !(f->all && f->pending == 0) && clock_now() < until)
    if (avahi_simple_poll_iterate(f->poll, 100) != 0) break;
  return f->error ? no_daemon(f->error) : STATUS_OK;
}

Status discovery_find(const KeyFile *key, Address *found, int *count) {
  Finder f = {.key = key, .found = calloc(WIRE_NODES, sizeof *f.found)};
  *count = 0;
  if (!f.found) return status_set(STATUS_NO_MEMORY, "no memory for %d workers", (int)WIRE_NODES);
  Status status = find(&f);
  if (f.client) avahi_client_free(f.client); /* with browser and resolvers */
  if (f.poll) avahi_simple_poll_free(f.poll);
  qsort(f.found, (size_t)f.count, sizeof *f.found, by_name);
  for (int i = 0; i < f.count; i++) found[i] = f.found[i].address;
  *count = f.count;
  free(f.found);
  if (status == STATUS_OK && *count == 0)
    return status_set(STATUS_NOT_FOUND, "no worker with this key announces itself on this network (astra-infer worker --announce)");
  return status;
}
#else
static Status missing(void) {
  return status_set(STATUS_UNSUPPORTED, "this build cannot discover devices: it was made without libavahi-client (make deps installs it "
                                        "where the system has it); give addresses by hand");
}

Status discovery_announce(const Announcement *announcement, pid_t *pid) {
  (void)announcement;
  *pid = 0;
  return missing();
}

void discovery_end(pid_t pid) { (void)pid; }

Status discovery_find(const KeyFile *key, Address *found, int *count) {
  (void)key, (void)found;
  *count = 0;
  return missing();
}
#endif
