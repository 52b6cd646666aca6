/* Downloads against a local server that behaves well and badly: resuming, checks, limits, what is left on disk. */
#include "base/files.h"
#include "data/download.c" /* transfers in little time */
#include "unit/data/http_server.h"
#include "unit/obey_modes.h"
#include "unit/remove_tree.h"
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

static HttpServer server;
static char folder[TEMPORARY_PATH]; /* fresh for each test */
static const TransferLimits hasty = {.tries = 3, .wait = 0.01, .connect_seconds = 5, .slow_bytes = 1024, .slow_seconds = 1};

static void digest_of(const void *data, size_t size, const EVP_MD *kind, char *text) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned count = 0;
  assert_int_equal(EVP_Digest(data, size, bytes, &count, kind, NULL), 1);
  for (unsigned i = 0; i < count; i++) sprintf(text + 2 * i, "%02x", bytes[i]);
}

static const char *path_of(const char *name) {
  static char paths[4][256];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static Status fetch(const char *route, DownloadCheck check, const char *digest) {
  char url[128];
  snprintf(url, sizeof url, "http://127.0.0.1:%d/%s", server.port, route);
  return download_fetch(&(DownloadFile){.url = url, .name = "file.bin", .check = check, .digest = digest}, folder, true, &hasty);
}

static void put(const char *name, const void *data, size_t size) { assert_int_equal(files_write(path_of(name), data, size), STATUS_OK); }

static int names_left(void) {
  char **names = NULL;
  size_t count = 0;
  assert_int_equal(files_list(folder, &names, &count), STATUS_OK);
  files_list_free(names, count);
  return (int)count;
}

/* file.bin holds exactly the server's body, and nothing lies beside it. */
static void assert_body(void) {
  char *data = NULL;
  size_t size = 0;
  assert_int_equal(files_read(path_of("file.bin"), 1 << 20, &data, &size), STATUS_OK);
  assert_int_equal(size, HTTP_BODY);
  assert_memory_equal(data, server.shared->body, HTTP_BODY);
  free(data);
  assert_int_equal(names_left(), 1);
}

static void assert_says(const char *text) {
  if (!strstr(status_message(), text)) fail_msg("'%s' is not in '%s'", text, status_message());
}

static int begin(void **state) {
  (void)state;
  http_reset(&server);
  return make_temporary_folder(folder);
}

static int end(void **state) {
  char command[256];
  (void)state;
  snprintf(command, sizeof command, "chmod -R u+w %s && rm -rf %s", folder, folder);
  return system(command);
}

static void test_plain(void **state) {
  (void)state;
  assert_int_equal(fetch("normal", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
  assert_body();
  assert_int_equal(server.shared->requests, 1);
  assert_int_equal(fetch("normal", DOWNLOAD_UNCHECKED, NULL), STATUS_OK); /* there already */
  assert_int_equal(server.shared->requests, 1);
}

static void test_digests(void **state) {
  char md5[65], sha256[65];
  (void)state;
  digest_of(server.shared->body, HTTP_BODY, EVP_md5(), md5);
  digest_of(server.shared->body, HTTP_BODY, EVP_sha256(), sha256);
  assert_int_equal(fetch("normal", DOWNLOAD_MD5, md5), STATUS_OK);
  assert_body();
  unlink(path_of("file.bin"));
  assert_int_equal(fetch("normal", DOWNLOAD_SHA256, sha256), STATUS_OK);
  assert_body();
}

static void test_wrong_digest(void **state) {
  static const char wrong[] = "00000000000000000000000000000000";
  char md5[65];
  (void)state;
  digest_of(server.shared->body, HTTP_BODY, EVP_md5(), md5);
  assert_int_equal(fetch("normal", DOWNLOAD_MD5, wrong), STATUS_BAD_FILE);
  assert_says(wrong);
  assert_says(md5);
  assert_says("Download it again");
  assert_int_equal(names_left(), 0);
}

static void test_linked_digest(void **state) {
  char sha256[65];
  (void)state;
  digest_of(server.shared->body, HTTP_BODY, EVP_sha256(), sha256);
  snprintf(server.shared->linked, sizeof server.shared->linked, "\"%s\"", sha256);
  snprintf(server.shared->tag, sizeof server.shared->tag, "\"%064d\"", 0); /* the last hop's must not win over the first hop's */
  assert_int_equal(fetch("linked", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
  assert_body();
  unlink(path_of("file.bin"));
  snprintf(server.shared->linked, sizeof server.shared->linked, "\"%064d\"", 7);
  assert_int_equal(fetch("linked", DOWNLOAD_UNCHECKED, NULL), STATUS_BAD_FILE);
  assert_says(sha256);
  assert_int_equal(names_left(), 0);
  strcpy(server.shared->linked, "\"a40hexGitBlobOrAnythingElse\"");
  strcpy(server.shared->tag, "\"first\"");
  assert_int_equal(fetch("linked", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
}

/* What a loud download of /linked prints on standard error. */
static char *told(void) {
  static char text[4096];
  char url[128];
  int kept = dup(2), file = open(path_of("stderr"), O_RDWR | O_CREAT | O_TRUNC, 0600);
  assert_true(kept >= 0 && file >= 0 && dup2(file, 2) == 2);
  snprintf(url, sizeof url, "http://127.0.0.1:%d/linked", server.port);
  Status status = download_fetch(&(DownloadFile){.url = url, .name = "file.bin"}, folder, false, &hasty);
  assert_int_equal(dup2(kept, 2), 2);
  close(kept);
  ssize_t size = pread(file, text, sizeof text - 1, 0);
  close(file);
  assert_int_equal(status, STATUS_OK);
  assert_true(size > 0);
  text[size] = 0;
  return text;
}

/* Which digest was compared is said, and where there is none to compare with, size and digest are. */
static void test_tells_the_check(void **state) {
  char sha256[65], line[160];
  (void)state;
  digest_of(server.shared->body, HTTP_BODY, EVP_sha256(), sha256);
  snprintf(server.shared->linked, sizeof server.shared->linked, "\"%s\"", sha256);
  snprintf(line, sizeof line, "SHA-256 is as the server says (%s)", sha256);
  assert_non_null(strstr(told(), line));
  unlink(path_of("file.bin"));
  strcpy(server.shared->linked, "\"aGitBlob\"");
  snprintf(line, sizeof line, "not checked, because no checksum is published: %d bytes, SHA-256 %s", HTTP_BODY, sha256);
  assert_non_null(strstr(told(), line));
}

static void test_resume_after_cut(void **state) {
  (void)state;
  assert_int_equal(fetch("cut", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
  assert_body();
  assert_int_equal(server.shared->requests, 2);
  assert_string_equal(server.shared->range, "bytes=150000-");
  assert_string_equal(server.shared->if_range, "\"first\"");
}

static void test_cut_without_range(void **state) {
  (void)state;
  assert_int_equal(fetch("cut-norange", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
  assert_body();
  assert_int_equal(server.shared->ranged, 1);
}

static void test_cut_and_changed(void **state) {
  (void)state;
  assert_int_equal(fetch("cut-changed", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
  assert_body(); /* the second version, whole */
  assert_int_equal(server.shared->body[0], 'x');
}

static void test_liar(void **state) {
  (void)state;
  assert_int_equal(fetch("liar", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
  assert_body();
  assert_int_equal(server.shared->requests, 3);
}

static void test_resume_from_disk(void **state) {
  (void)state;
  put("file.bin.part", server.shared->body, 100000);
  put("file.bin.part.etag", "\"first\"", 7);
  assert_int_equal(fetch("normal", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
  assert_body();
  assert_string_equal(server.shared->range, "bytes=100000-");
}

static void test_whole_part_on_disk(void **state) {
  (void)state;
  put("file.bin.part", server.shared->body, HTTP_BODY);
  put("file.bin.part.etag", "\"first\"", 7);
  assert_int_equal(fetch("normal", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
  assert_body();
}

static void test_foreign_parts_on_disk(void **state) {
  (void)state;
  const char *tags[] = {NULL, "\"older\"", "\"fi\nrst\"", "\"first\""};
  for (size_t i = 0; i < 4; i++) {
    size_t size = i == 3 ? HTTP_BODY + 5 : 5000; /* 3: longer than the file */
    char *junk = calloc(1, size);
    put("file.bin.part", junk, size);
    free(junk);
    if (tags[i]) put("file.bin.part.etag", tags[i], strlen(tags[i]));
    assert_int_equal(fetch("normal", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
    assert_body();
    unlink(path_of("file.bin"));
  }
}

static void test_gives_up_and_keeps(void **state) {
  (void)state;
  server.shared->tag[0] = '\0';
  assert_int_equal(fetch("always-cut", DOWNLOAD_UNCHECKED, NULL), STATUS_IO);
  assert_int_equal(server.shared->requests, 3);
  assert_false(files_exists(path_of("file.bin")));
  assert_true(files_exists(path_of("file.bin.part")));
}

static void test_refusals(void **state) {
  (void)state;
  assert_int_equal(fetch("missing", DOWNLOAD_UNCHECKED, NULL), STATUS_NOT_FOUND);
  assert_says("404");
  assert_int_equal(server.shared->requests, 1); /* not tried again */
  assert_int_equal(names_left(), 0);
  assert_int_equal(fetch("to-file", DOWNLOAD_UNCHECKED, NULL), STATUS_UNSUPPORTED);
  assert_int_equal(fetch("circle", DOWNLOAD_UNCHECKED, NULL), STATUS_IO);
  assert_says("circle");
  assert_int_equal(names_left(), 0);
}

static void test_busy(void **state) {
  (void)state;
  assert_int_equal(fetch("busy", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
  assert_body();
  assert_int_equal(server.shared->requests, 3);
}

/* An error page on the way does not touch what is there. */
static void test_error_keeps_part(void **state) {
  (void)state;
  put("file.bin.part", server.shared->body, 100000);
  put("file.bin.part.etag", "\"first\"", 7);
  assert_int_equal(fetch("missing", DOWNLOAD_UNCHECKED, NULL), STATUS_NOT_FOUND);
  assert_int_equal(fetch("normal", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
  assert_body();
  assert_string_equal(server.shared->range, "bytes=100000-");
}

static void test_redirect(void **state) {
  (void)state;
  assert_int_equal(fetch("redirect", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
  assert_body();
}

static void test_empty(void **state) {
  (void)state;
  assert_int_equal(fetch("empty", DOWNLOAD_SHA256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"), STATUS_OK);
}

static void test_slow(void **state) {
  TransferLimits once = hasty;
  char url[128];
  (void)state;
  once.tries = 1;
  snprintf(url, sizeof url, "http://127.0.0.1:%d/slow", server.port);
  assert_int_equal(download_fetch(&(DownloadFile){.url = url, .name = "file.bin"}, folder, true, &once), STATUS_TIMEOUT);
}

static void test_too_large(void **state) {
  const char *routes[] = {"normal", "endless"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    char url[128];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/%s", server.port, routes[i]);
    assert_int_equal(download_fetch(&(DownloadFile){.url = url, .name = "file.bin", .max = 250000}, folder, true, &hasty), STATUS_BAD_FILE);
    assert_says("larger than");
    assert_false(files_exists(path_of("file.bin")));
  }
}

static void test_unreachable(void **state) {
  (void)state;
  DownloadFile file = {.url = "http://127.0.0.1:1/x", .name = "file.bin"};
  assert_int_equal(download_fetch(&file, folder, true, &hasty), STATUS_IO);
  assert_says("check the network");
  assert_int_equal(names_left(), 0);
}

static void test_names(void **state) {
  const char *names[] = {"", "../x", "a/b", ".hidden", "/abs"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    assert_int_equal(download_fetch(&(DownloadFile){.url = "http://127.0.0.1:1/x", .name = names[i]}, folder, true, &hasty),
                     STATUS_BAD_VALUE);
}

static void test_unwritable(void **state) {
  (void)state;
  put("taken", "x", 1);
  DownloadFile file = {.url = "http://127.0.0.1:1/x", .name = "file.bin"};
  assert_int_not_equal(download_fetch(&file, path_of("taken/below"), true, &hasty), STATUS_OK);
  assert_says("taken");
  chmod(folder, 0500);
  assert_true(obey_modes(true));
  Status status = download_fetch(&file, folder, true, &hasty);
  assert_true(obey_modes(false));
  assert_int_equal(status, STATUS_IO);
  assert_says(folder);
}

/* A full disk, stood in for by the limit on file sizes. */
static void test_disk_full(void **state) {
  struct rlimit old, small;
  (void)state;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  small.rlim_cur = 100000;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status = fetch("normal", DOWNLOAD_UNCHECKED, NULL);
  setrlimit(RLIMIT_FSIZE, &old);
  assert_int_equal(status, STATUS_IO);
  assert_says("file.bin.part");
  assert_int_equal(fetch("normal", DOWNLOAD_UNCHECKED, NULL), STATUS_OK); /* with room again it goes on */
  assert_body();
  assert_string_equal(server.shared->range, "bytes=100000-");
}

static void test_two_at_once(void **state) {
  (void)state;
  put("file.bin.part", "abc", 3);
  int fd = open(path_of("file.bin.part"), O_RDONLY);
  assert_int_equal(flock(fd, LOCK_EX), 0);
  assert_int_equal(fetch("normal", DOWNLOAD_UNCHECKED, NULL), STATUS_IO);
  assert_says("another process");
  close(fd);
  assert_int_equal(fetch("normal", DOWNLOAD_UNCHECKED, NULL), STATUS_OK);
}

static void test_file_url(void **state) {
  char url[300];
  (void)state;
  put("source", "hello", 5);
  put("file.bin.part", "xx", 2); /* never resumed: nothing shows that it fits */
  put("file.bin.part.etag", "\"first\"", 7);
  snprintf(url, sizeof url, "file://%s", path_of("source"));
  DownloadFile file = {.url = url, .name = "file.bin", .check = DOWNLOAD_MD5, .digest = "5d41402abc4b2a76b9719d911017c592"};
  assert_int_equal(download_fetch(&file, folder, true, &hasty), STATUS_OK);
  DownloadFile missing = {.url = "file:///nonexistent/file", .name = "other.bin"};
  assert_int_equal(download_fetch(&missing, folder, true, &hasty), STATUS_NOT_FOUND);
  char made[300];
  snprintf(made, sizeof made, "%s", path_of("made"));
  assert_int_equal(download_fetch(&missing, made, true, &hasty), STATUS_NOT_FOUND);
  assert_false(files_exists(made)); /* nor is an empty folder left */
}

static void test_tags(void **state) {
  char text[DOWNLOAD_DIGEST_TEXT];
  char good[] = "\"AB00000000000000000000000000000000000000000000000000000000000000\"";
  (void)state;
  assert_true(download_digest_from_tag(good, text));
  assert_int_equal(text[0], 'a');
  good[66 - 1] = 'x';
  assert_false(download_digest_from_tag(good, text));
  assert_false(download_digest_from_tag("", text));
  assert_false(download_digest_from_tag("\"", text));
  assert_false(download_digest_from_tag("W/\"AB00000000000000000000000000000000000000000000000000000000000000\"", text));
}

static void test_catalogue(void **state) {
  int count = 0;
  const DownloadItem *items = download_catalogue(&count);
  (void)state;
  assert_true(count >= 6);
  assert_null(download_find("no-such-thing"));
  for (int i = 0; i < count; i++) {
    assert_ptr_equal(download_find(items[i].name), &items[i]);
    assert_true(strcmp(items[i].kind, "datasets") == 0 || strcmp(items[i].kind, "checkpoints") == 0);
    for (int j = 0; j < items[i].count; j++) {
      const DownloadFile *file = &items[i].files[j];
      assert_memory_equal(file->url, "https://", 8);
      assert_null(strchr(file->name, '/'));
      assert_int_equal(file->digest != NULL, file->check != DOWNLOAD_UNCHECKED);
      if (file->digest) assert_int_equal(strspn(file->digest, "0123456789abcdef"), file->check == DOWNLOAD_MD5 ? 32 : 64);
      if (file->unpack) assert_non_null(file->leaves);
    }
  }
  assert_false(download_present(download_find("cifar100"), folder));
  static const char *const texts[] = {"gpt2", "gpt2-medium", "wikitext-103", "wikitext-2", "tinyshakespeare", "cola", "sst2", "agnews"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) assert_non_null(download_find(texts[i]));
}

/* An https server with a certificate nobody signed, whose files are whole answers. */
static pid_t tls_start(int *port) {
  int out[2];
  if (pipe(out) != 0) return -1;
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    dup2(out[1], 1);
    dup2(open("/dev/null", O_RDWR), 2);
    if (chdir(folder) != 0) _exit(127);
    execlp("openssl", "openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", "cert.pem", "-key", "key.pem", "-HTTP", (char *)NULL);
    _exit(127);
  }
  close(out[1]);
  FILE *lines = fdopen(out[0], "r");
  char line[256];
  *port = 0;
  while (pid > 0 && !*port && fgets(line, sizeof line, lines)) sscanf(line, "ACCEPT 127.0.0.1:%d", port);
  fclose(lines);
  return pid;
}

/* Refused, and accepted once its authority is named; but not where it leads to an open line. */
static void test_https(void **state) {
  char command[640];
  (void)state;
  snprintf(command, sizeof command,
           "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
           "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem 2>/dev/null",
           folder);
  if (system(command) != 0) {
    print_message("skipped: the program openssl is not there\n");
    skip();
  }
  static const char page[] = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello";
  char moved[128];
  snprintf(moved, sizeof moved, "HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:%d/normal\r\n\r\n", server.port);
  put("page", page, strlen(page));
  put("moved", moved, strlen(moved));
  int port = 0;
  pid_t pid = tls_start(&port);
  if (port == 0) {
    if (pid > 0) kill(pid, SIGKILL), waitpid(pid, NULL, 0);
    print_message("skipped: openssl s_server did not start\n");
    skip();
  }
  char url[64];
  snprintf(url, sizeof url, "https://127.0.0.1:%d/page", port);
  DownloadFile file = {.url = url, .name = "file.bin", .check = DOWNLOAD_MD5, .digest = "5d41402abc4b2a76b9719d911017c592"};
  Status refused = download_fetch(&file, folder, true, &hasty);
  char said[512];
  snprintf(said, sizeof said, "%s", status_message());
  setenv("SSL_CERT_FILE", path_of("cert.pem"), 1);
  Status accepted = download_fetch(&file, folder, true, &hasty);
  snprintf(url, sizeof url, "https://127.0.0.1:%d/moved", port);
  Status opened = download_fetch(&(DownloadFile){.url = url, .name = "open.bin"}, folder, true, &hasty);
  unsetenv("SSL_CERT_FILE");
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  assert_int_not_equal(refused, STATUS_OK);
  if (!strstr(said, "not trusted") && !strstr(said, "ca-certificates")) fail_msg("unclear: %s", said);
  assert_int_equal(accepted, STATUS_OK);
  assert_int_equal(opened, STATUS_UNSUPPORTED);
  assert_says("leads to, is not an https address");
  assert_int_equal(server.shared->requests, 0);
  assert_false(files_exists(path_of("open.bin")));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_plain),
                                     TEST(test_digests),
                                     TEST(test_wrong_digest),
                                     TEST(test_linked_digest),
                                     TEST(test_tells_the_check),
                                     TEST(test_resume_after_cut),
                                     TEST(test_cut_without_range),
                                     TEST(test_cut_and_changed),
                                     TEST(test_liar),
                                     TEST(test_resume_from_disk),
                                     TEST(test_whole_part_on_disk),
                                     TEST(test_foreign_parts_on_disk),
                                     TEST(test_gives_up_and_keeps),
                                     TEST(test_refusals),
                                     TEST(test_busy),
                                     TEST(test_error_keeps_part),
                                     TEST(test_redirect),
                                     TEST(test_empty),
                                     TEST(test_slow),
                                     TEST(test_too_large),
                                     TEST(test_unreachable),
                                     TEST(test_names),
                                     TEST(test_unwritable),
                                     TEST(test_disk_full),
                                     TEST(test_two_at_once),
                                     TEST(test_file_url),
                                     TEST(test_tags),
                                     TEST(test_catalogue),
                                     TEST(test_https)};
  /* Whatever this machine's network settings are: the tests talk to themselves. */
  for (const char *const *name = (const char *const[]){"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY",
                                                       "CURL_CA_BUNDLE", "SSL_CERT_FILE", NULL};
       *name; name++)
    unsetenv(*name);
  if (!http_start(&server)) {
    perror("the local server");
    return 1;
  }
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  http_stop(&server);
  return failed;
}
