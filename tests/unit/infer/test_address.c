/* Addresses: what is accepted and what it means, listening and dialling by number, name and path. */
#include "base/clock.h"
#include "infer/cluster/address.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void texts_are_taken_apart(void **state) {
  (void)state;
  static const struct {
    const char *text, *name, *again;
    int port;
    bool on_disk, local;
  } rows[] = {{"127.0.0.1:7433", "127.0.0.1", "127.0.0.1:7433", 7433, false, true},
              {"[::1]:80", "::1", "[::1]:80", 80, false, true},
              {"[fe80::1%lo]:0", "fe80::1%lo", "[fe80::1%lo]:0", 0, false, false},
              {"localhost:65535", "localhost", "localhost:65535", 65535, false, true},
              {"7000", "127.0.0.1", "127.0.0.1:7000", 7000, false, true},
              {"127.9.9.9:1", "127.9.9.9", "127.9.9.9:1", 1, false, true},
              {"0.0.0.0:7433", "0.0.0.0", "0.0.0.0:7433", 7433, false, false},
              {"[::]:7433", "::", "[::]:7433", 7433, false, false},
              {"10.0.0.2:7433", "10.0.0.2", "10.0.0.2:7433", 7433, false, false},
              {"unix:/tmp/a:b", "/tmp/a:b", "unix:/tmp/a:b", 0, true, true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Address address;
    char text[ADDRESS_TEXT];
    assert_int_equal(address_parse(rows[i].text, &address), STATUS_OK);
    assert_string_equal(address.name, rows[i].name);
    assert_int_equal(address.port, rows[i].port);
    assert_int_equal(address.on_disk, rows[i].on_disk);
    assert_string_equal(address_text(&address, text), rows[i].again);
    assert_int_equal(address_is_local(&address), rows[i].local);
  }
}

/* "local" listens in a folder that is made for this user alone, and trusts no other. */
static void the_own_folder_is_this_users_alone(void **state) {
  (void)state;
  char folder[] = "/tmp/astra-own-XXXXXX", inside[64], expected[96];
  int sockets[ADDRESS_SOCKETS], count, fd;
  struct stat file;
  Address address;
  assert_non_null(mkdtemp(folder));
  snprintf(inside, sizeof inside, "%s/astra", folder);
  snprintf(expected, sizeof expected, "%s/worker", inside);
  setenv("XDG_RUNTIME_DIR", folder, 1);
  assert_int_equal(address_parse("local", &address), STATUS_OK);
  assert_true(address.on_disk);
  assert_string_equal(address.name, expected);
  assert_int_equal(address_call(&address, &fd), STATUS_PEER); /* nobody listens yet */
  assert_int_equal(address_listen(&address, sockets, &count), STATUS_OK);
  assert_int_equal(stat(inside, &file), 0);
  assert_int_equal(file.st_mode & 0777, 0700);
  assert_int_equal(stat(address.name, &file), 0);
  assert_int_equal(file.st_mode & 0777, 0600);
  assert_int_equal(address_call(&address, &fd), STATUS_OK);
  close(fd);
  address_close(&address, sockets, count);
  assert_int_equal(chmod(inside, 0755), 0);
  assert_int_equal(address_listen(&address, sockets, &count), STATUS_BAD_VALUE);
  assert_int_equal(address_call(&address, &fd), STATUS_BAD_VALUE);
  assert_non_null(strstr(status_message(), "nobody else can enter (mode 700)"));
  assert_int_equal(rmdir(inside), 0);
  assert_int_equal(rmdir(folder), 0);
  unsetenv("XDG_RUNTIME_DIR");
}

/* Only a socket may be replaced. */
static void a_file_that_is_no_socket_stays(void **state) {
  (void)state;
  char path[] = "/tmp/astra-file-XXXXXX", where[64];
  int sockets[ADDRESS_SOCKETS], count;
  Address address;
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  snprintf(where, sizeof where, "unix:%s", path);
  assert_int_equal(address_parse(where, &address), STATUS_OK);
  assert_int_equal(address_listen(&address, sockets, &count), STATUS_IO);
  assert_non_null(strstr(status_message(), "what is there is no socket; remove it"));
  assert_int_equal(unlink(path), 0);
}

static void other_texts_are_refused(void **state) {
  (void)state;
  char longest[400];
  memset(longest, 'a', sizeof longest);
  memcpy(longest + 300, ":1", 3);
  const char *const texts[] = {"",      "host",    "host:", ":80",   "host:65536", "host:-1", "host:1x", "host: 1", "::1:80",
                               "[::1]", "[::1:80", "[]:80", "unix:", "70000",      "1e3",     "host:+1", longest,   "http://host:1"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    Address address;
    assert_int_equal(address_parse(texts[i], &address), STATUS_BAD_USAGE);
    assert_non_null(strstr(status_message(), "accepted are HOST:PORT"));
  }
  Address address;
  assert_int_equal(address_parse("localhost", &address), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "\"localhost\" is not an address: the port is missing"));
  assert_int_equal(address_parse("http://[::1]:80", &address), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "a scheme such as http:// is not part of one"));
  assert_int_equal(address_parse("70000", &address), STATUS_BAD_USAGE);
  assert_non_null(strstr(status_message(), "a port is a number from 0 to 65535"));
  snprintf(longest, sizeof longest, "unix:/%0120d", 1);
  assert_int_equal(address_parse(longest, &address), STATUS_BAD_USAGE);
}

/* On a thread: the same numbers, the same failure (whose cause may differ: a server of names may answer once and not again); and one that
 * nobody waits for. */
static void numbers_are_searched_for(void **state) {
  (void)state;
  const char *const texts[] = {"localhost:80", "127.0.0.1:7", "unix:/tmp/x", "no-such-name.invalid:80"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    Address address, numbers[ADDRESS_SOCKETS], found[ADDRESS_SOCKETS];
    AddressSearch *search, *other;
    Status status;
    char text[ADDRESS_TEXT];
    int count, found_count;
    assert_int_equal(address_parse(texts[i], &address), STATUS_OK);
    const Status expected = address_numbers(&address, numbers, &count);
    assert_int_equal(address_search(&search, &address), STATUS_OK);
    assert_int_equal(address_search(&other, &address), STATUS_OK);
    address_search_leave(&other);
    assert_null(other);
    const double until = clock_now() + 30;
    bool ended = false;
    while (!ended && clock_now() < until) ended = address_search_ended(&search, found, &found_count, &status);
    assert_true(ended);
    assert_null(search);
    assert_int_equal(status, expected);
    if (status != STATUS_OK) assert_non_null(strstr(status_message(), "no-such-name.invalid"));
    assert_int_equal(found_count, count);
    for (int n = 0; n < count; n++) {
      address_text(&numbers[n], text);
      char same[ADDRESS_TEXT];
      assert_string_equal(address_text(&found[n], same), text);
    }
  }
}

/* Somebody dials, and is accepted at one of the sockets. */
/* The first of its numbers that answers. */
static Status dial(const Address *address, double seconds, int *fd) {
  Address numbers[ADDRESS_SOCKETS];
  int count;
  Status status = address_numbers(address, numbers, &count);
  *fd = -1;
  for (int i = 0; i < count && *fd < 0; i++) {
    bool done = false;
    double until = clock_now() + seconds;
    status = address_call(&numbers[i], fd);
    while (status == STATUS_OK && !done) {
      if (clock_now() > until) status = STATUS_TIMEOUT;
      if (status == STATUS_OK) poll(&(struct pollfd){.fd = *fd, .events = POLLOUT}, 1, 20);
      if (status == STATUS_OK) status = address_called(&numbers[i], *fd, &done);
    }
    if (status != STATUS_OK && *fd >= 0) close(*fd);
    if (status != STATUS_OK) *fd = -1;
  }
  return status;
}

static void assert_meets(const Address *address, const int *sockets, int count) {
  int fd;
  struct pollfd waiting[ADDRESS_SOCKETS];
  assert_int_equal(dial(address, 5, &fd), STATUS_OK);
  for (int i = 0; i < count; i++) waiting[i] = (struct pollfd){.fd = sockets[i], .events = POLLIN};
  assert_int_equal(poll(waiting, (nfds_t)count, 5000), 1);
  for (int i = 0; i < count; i++) {
    if (!waiting[i].revents) continue;
    int other = accept(sockets[i], NULL, NULL);
    char byte = 0;
    assert_true(other >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(read(other, &byte, 1), 1);
    assert_int_equal(byte, 'x');
    close(other);
  }
  close(fd);
}

static bool speaks(const char *text) {
  Address address;
  int sockets[ADDRESS_SOCKETS], count;
  assert_int_equal(address_parse(text, &address), STATUS_OK);
  bool here = address_listen(&address, sockets, &count) == STATUS_OK;
  address_close(&address, sockets, count);
  return here;
}

static void one_dials_the_other(void **state) {
  (void)state;
  static const char *const texts[] = {"127.0.0.1:0", "localhost:0", "0", "[::1]:0"};
  int kinds = speaks("[::1]:0") ? 4 : 3;
  for (int i = 0; i < kinds; i++) {
    Address address;
    int sockets[ADDRESS_SOCKETS], count, fd;
    assert_int_equal(address_parse(texts[i], &address), STATUS_OK);
    assert_int_equal(address_listen(&address, sockets, &count), STATUS_OK);
    assert_in_range(count, 1, 2);
    address.port = address_port(sockets[0]);
    assert_int_not_equal(address.port, 0);
    for (int j = 1; j < count; j++) assert_int_equal(address_port(sockets[j]), address.port);
    assert_meets(&address, sockets, count);
    int others[ADDRESS_SOCKETS], other_count;
    assert_int_equal(address_listen(&address, others, &other_count), STATUS_IO);
    assert_int_equal(other_count, 0);
    address_close(&address, sockets, count);
    assert_int_equal(dial(&address, 5, &fd), STATUS_PEER);
    assert_int_equal(fd, -1);
    assert_non_null(strstr(status_message(), "connection refused"));
  }
}

static void paths_are_their_owners(void **state) {
  (void)state;
  char folder[TEMPORARY_PATH], text[TEMPORARY_PATH + 16];
  Address address;
  struct stat file;
  int sockets[ADDRESS_SOCKETS], others[ADDRESS_SOCKETS], count, other_count, fd;
  assert_int_equal(make_temporary_folder(folder), 0);
  snprintf(text, sizeof text, "unix:%s/s", folder);
  assert_int_equal(address_parse(text, &address), STATUS_OK);
  assert_int_equal(dial(&address, 5, &fd), STATUS_PEER);
  assert_int_equal(address_listen(&address, sockets, &count), STATUS_OK);
  assert_int_equal(stat(address.name, &file), 0);
  assert_int_equal(file.st_mode & 0777, 0600);
  assert_meets(&address, sockets, count);
  assert_int_equal(address_listen(&address, others, &other_count), STATUS_IO); /* it is in use */
  close(accept(sockets[0], NULL, NULL));                                       /* that it asked */
  assert_meets(&address, sockets, count);
  close(sockets[0]); /* as a process that was killed leaves it */
  assert_int_equal(stat(address.name, &file), 0);
  assert_int_equal(address_listen(&address, sockets, &count), STATUS_OK);
  assert_meets(&address, sockets, count);
  address_close(&address, sockets, count);
  assert_int_equal(stat(address.name, &file), -1);
  FILE *plain = fopen(address.name, "w"); /* what is no socket is nobody's to remove */
  assert_non_null(plain);
  fclose(plain);
  assert_int_equal(address_listen(&address, sockets, &count), STATUS_IO);
  assert_int_equal(stat(address.name, &file), 0);
  unlink(address.name);
  rmdir(folder);
}

/* A listener whose queue is full answers nobody. */
static void dialling_has_an_end(void **state) {
  (void)state;
  Address address;
  int listener = socket(AF_INET, SOCK_STREAM, 0), fds[64], made = 0;
  assert_int_equal(listen(listener, 0), 0);
  assert_int_equal(address_parse("127.0.0.1:1", &address), STATUS_OK);
  address.port = address_port(listener);
  Status status = STATUS_OK;
  double start = clock_now();
  while (status == STATUS_OK && made < 64) {
    start = clock_now();
    status = dial(&address, 0.2, &fds[made]);
    made += status == STATUS_OK;
  }
  assert_int_equal(status, STATUS_TIMEOUT);
  assert_true(clock_now() - start > 0.15 && clock_now() - start < 10);
  while (made > 0) close(fds[--made]);
  close(listener);
}

static Status call(const Address *address, int *fd) {
  bool done = false;
  TRY(address_call(address, fd));
  poll(&(struct pollfd){.fd = *fd, .events = POLLOUT}, 1, 5000);
  Status status = address_called(address, *fd, &done);
  return status != STATUS_OK || done ? status : STATUS_TIMEOUT;
}

/* Which each machine calls something else. */
static void link_local_numbers_need_a_link(void **state) {
  (void)state;
  struct ifaddrs *all, *i;
  Address address = {.on_disk = false}, bare;
  int sockets[ADDRESS_SOCKETS], count, fd;
  assert_int_equal(getifaddrs(&all), 0);
  for (i = all; i; i = i->ifa_next) {
    const struct sockaddr_in6 *number = (const struct sockaddr_in6 *)i->ifa_addr;
    if (number && number->sin6_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&number->sin6_addr)) break;
  }
  bool found = i && getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in6), address.name, sizeof address.name, NULL, 0, NI_NUMERICHOST) == 0;
  freeifaddrs(all);
  if (!found) {
    printf("skipped: no network interface has a link-local IPv6 address\n");
    skip();
  }
  address.port = 0;
  assert_int_equal(address_listen(&address, sockets, &count), STATUS_OK);
  address.port = address_port(sockets[0]);
  bare = address;
  strcpy(strchr(bare.name, '%'), "%nowhere"); /* as another machine calls it */
  assert_int_not_equal(call(&bare, &fd), STATUS_OK);
  assert_int_equal(call(&address, &fd), STATUS_OK);
  close(accept(sockets[0], NULL, NULL));
  address_on_link(&bare, fd);
  assert_meets(&bare, sockets, count);
  Address others[2];
  assert_int_equal(address_parse("[2001:db8::1]:80", &others[0]), STATUS_OK);
  others[1] = others[0];
  address_on_link(&others[1], fd);
  assert_string_equal(others[0].name, others[1].name);
  assert_true(others[0].port == others[1].port && others[0].on_disk == others[1].on_disk);
  close(fd);
  address_close(&address, sockets, count);
}

static void names_that_are_none(void **state) {
  (void)state;
  Address address;
  int fd, count, sockets[ADDRESS_SOCKETS];
  assert_int_equal(address_parse("no.such.name.invalid:80", &address), STATUS_OK);
  assert_int_equal(dial(&address, 1, &fd), STATUS_NOT_FOUND);
  assert_non_null(strstr(status_message(), "no.such.name.invalid:80: "));
  assert_int_equal(address_listen(&address, sockets, &count), STATUS_NOT_FOUND);
  assert_false(address_is_local(&address));
}

int main(void) {
  setenv("RES_OPTIONS", "timeout:1 attempts:1", 1); /* where no server of names answers */
  setenv("LOCALDOMAIN", "", 1);                     /* and none but the name itself is asked for */
  const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_are_searched_for),
                                     cmocka_unit_test(texts_are_taken_apart),
                                     cmocka_unit_test(the_own_folder_is_this_users_alone),
                                     cmocka_unit_test(a_file_that_is_no_socket_stays),
                                     cmocka_unit_test(other_texts_are_refused),
                                     cmocka_unit_test(one_dials_the_other),
                                     cmocka_unit_test(paths_are_their_owners),
                                     cmocka_unit_test(dialling_has_an_end),
                                     cmocka_unit_test(names_that_are_none),
                                     cmocka_unit_test(link_local_numbers_need_a_link)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
