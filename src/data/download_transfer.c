/* One URL into one file with libcurl: redirects, resuming, retries with growing waits, progress.
 *
 * Resuming is only done when the server named a validator (a strong ETag, else Last-Modified) for the bytes that are there: it is kept
 * beside the partial file and sent as If-Range, so that a changed file comes whole (200) instead of as a rest (206) that does not fit.
 * Invariant: the validator on disk belongs to the bytes in the file; on a new start the file is emptied first and the validator is
 * written before the first byte. Nothing the server sends becomes a file name. */
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "data/download.h"
#include "data/download_internal.h"
#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- Digests ---- */

/* SHA-256 and MD5 of files through OpenSSL, read in blocks. MD5 only finds accidents; it is here because some data sets publish no other.
 */

enum { DIGEST_BLOCK = 1 << 16 };

const char *download_digest_name(DownloadCheck check) { return check == DOWNLOAD_MD5 ? "MD5" : "SHA-256"; }

static void digest_hex(const unsigned char *bytes, unsigned size, char text[DOWNLOAD_DIGEST_TEXT]) {
  static const char digits[] = "0123456789abcdef";
  for (unsigned i = 0; i < size; i++) {
    text[2 * i] = digits[bytes[i] >> 4];
    text[2 * i + 1] = digits[bytes[i] & 15];
  }
  text[2 * size] = '\0';
}

static Status digest_stream(EVP_MD_CTX *context, int fd, const char *path) {
  unsigned char block[DIGEST_BLOCK];
  for (off_t at = 0;;) {
    ssize_t got = pread(fd, block, sizeof block, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return status_set(STATUS_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (got == 0) return STATUS_OK;
    if (!EVP_DigestUpdate(context, block, (size_t)got)) return status_set(STATUS_UNSUPPORTED, "%s: computing its digest failed", path);
    at += got;
  }
}

Status download_digest_file(int fd, const char *path, DownloadCheck check, char text[DOWNLOAD_DIGEST_TEXT]) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  if (!context) return status_set(STATUS_NO_MEMORY, "out of memory for the digest of %s", path);
  Status status = STATUS_OK;
  if (!EVP_DigestInit_ex(context, check == DOWNLOAD_MD5 ? EVP_md5() : EVP_sha256(), NULL))
    status =
        status_set(STATUS_UNSUPPORTED, "OpenSSL on this machine does not offer %s, needed to check %s", download_digest_name(check), path);
  if (status == STATUS_OK) status = digest_stream(context, fd, path);
  if (status == STATUS_OK && (!EVP_DigestFinal_ex(context, bytes, &size) || size > (DOWNLOAD_DIGEST_TEXT - 1) / 2))
    status = status_set(STATUS_UNSUPPORTED, "%s: computing its digest failed", path);
  EVP_MD_CTX_free(context);
  if (status == STATUS_OK) digest_hex(bytes, size, text);
  return status;
}

bool download_digest_from_tag(const char *tag, char text[DOWNLOAD_DIGEST_TEXT]) {
  const size_t digits = DOWNLOAD_DIGEST_TEXT - 1;
  bool quoted = tag[0] == '"';
  tag += quoted;
  if (strlen(tag) != digits + quoted || (quoted && tag[digits] != '"')) return false;
  for (size_t i = 0; i < digits; i++) {
    if (!isxdigit((unsigned char)tag[i])) return false;
    text[i] = (char)tolower((unsigned char)tag[i]);
  }
  text[digits] = '\0';
  return true;
}

enum {
  TRANSFER_HEADER = 256,         /* longest header value that is looked at */
  TRANSFER_ERROR_BODY = 1 << 20, /* bytes of an error page that are read past */
  TRANSFER_MAX_REDIRECTS = 10,
  TRANSFER_HEADWAY = 1 << 20 /* a try that got this much further does not count against the tries */
};

const TransferLimits download_transfer_limits = {.tries = 3, .wait = 1, .connect_seconds = 30, .slow_bytes = 1024, .slow_seconds = 60};

/* One try. */
typedef struct Attempt {
  Transfer *transfer;
  CURL *curl;
  Progress *progress;
  int64_t offset;               /* bytes that were there when the try began; 0 on a new start */
  int64_t at;                   /* where the next byte goes */
  bool begun;                   /* the body's first byte has been prepared for */
  bool restart;                 /* what is there does not fit what the server has */
  Status status;                /* of a failure of ours inside a callback */
  char stored[TRANSFER_HEADER]; /* validator of the bytes there, or "" */
  /* Of the hop being read (the last one when it is over): */
  char tag[TRANSFER_HEADER], modified[TRANSFER_HEADER], range[TRANSFER_HEADER];
  char linked[TRANSFER_HEADER]; /* X-Linked-ETag of the first hop that has one */
  char error[CURL_ERROR_SIZE];
} Attempt;

static Status transfer_write_error(const Transfer *transfer) {
  int code = errno;
  const char *help = code == ENOSPC || code == EDQUOT ? "; free some space there or choose another place, what came so far is kept" : "";
  return status_set(STATUS_IO, "%s: cannot be written: %s%s", transfer->path, strerror(code), help);
}

/* The text of "NAME: value\r\n" when the line has that name, into value; too long or with control characters: "". */
static bool transfer_header_is(const char *line, size_t size, const char *name, char value[TRANSFER_HEADER]) {
  size_t length = strlen(name);
  if (size <= length || line[length] != ':' || strncasecmp(line, name, length) != 0) return false;
  const char *first = line + length + 1, *last = line + size;
  while (first < last && isspace((unsigned char)*first)) first++;
  while (last > first && isspace((unsigned char)last[-1])) last--;
  size_t count = (size_t)(last - first);
  value[0] = '\0';
  if (count >= TRANSFER_HEADER) return true;
  for (size_t i = 0; i < count; i++) {
    if (!isprint((unsigned char)first[i])) return true;
  }
  memcpy(value, first, count);
  value[count] = '\0';
  return true;
}

static size_t transfer_on_header(char *line, size_t one, size_t size, void *context) {
  Attempt *attempt = context;
  char value[TRANSFER_HEADER];
  if (size >= 5 && memcmp(line, "HTTP/", 5) == 0) attempt->tag[0] = attempt->modified[0] = attempt->range[0] = '\0';
  if (transfer_header_is(line, size, "ETag", value)) memcpy(attempt->tag, value, sizeof value);
  if (transfer_header_is(line, size, "Last-Modified", value)) memcpy(attempt->modified, value, sizeof value);
  if (transfer_header_is(line, size, "Content-Range", value)) memcpy(attempt->range, value, sizeof value);
  if (transfer_header_is(line, size, "X-Linked-ETag", value) && !attempt->linked[0]) memcpy(attempt->linked, value, sizeof value);
  return one * size;
}

/* What may be sent as If-Range: a weak tag ("W/...") may not. */
static const char *transfer_validator(const Attempt *attempt) { return attempt->tag[0] == '"' ? attempt->tag : attempt->modified; }

static long transfer_code(const Attempt *attempt) {
  long code = 0;
  curl_easy_getinfo(attempt->curl, CURLINFO_RESPONSE_CODE, &code);
  return code;
}

static bool transfer_is_good(long code) { return code == 0 || code == 200 || code == 206; } /* 0: file:// */

/* Does the 206 begin where we stopped, in the very file we have the beginning of? */
static bool transfer_rest_fits(const Attempt *attempt) {
  if (strncasecmp(attempt->range, "bytes ", 6) != 0 || !isdigit((unsigned char)attempt->range[6])) return false;
  char *end = NULL;
  errno = 0;
  long long first = strtoll(attempt->range + 6, &end, 10);
  if (errno || *end != '-' || first != attempt->offset) return false;
  const char *now = attempt->stored[0] == '"' ? attempt->tag : attempt->modified; /* a 206 may leave out Last-Modified */
  return !now[0] || strcmp(now, attempt->stored) == 0;
}

/* A 416 to a request for "the rest" of a file that is whole already: "bytes * / SIZE". */
static bool transfer_is_whole(const Attempt *attempt) {
  if (!attempt->offset || strncasecmp(attempt->range, "bytes */", 8) != 0 || !isdigit((unsigned char)attempt->range[8])) return false;
  return strtoll(attempt->range + 8, NULL, 10) == attempt->offset;
}

static Status transfer_start_anew(Attempt *attempt) {
  const Transfer *transfer = attempt->transfer;
  attempt->offset = attempt->at = 0;
  unlink(transfer->tag_path);
  if (ftruncate(transfer->fd, 0) != 0) return transfer_write_error(transfer);
  const char *validator = transfer_validator(attempt);
  return validator[0] ? files_write(transfer->tag_path, validator, strlen(validator)) : STATUS_OK;
}

/* Before the first byte of a good answer: is it the rest, or the whole? */
static Status transfer_begin(Attempt *attempt) {
  attempt->begun = true;
  if (transfer_code(attempt) != 206) return transfer_start_anew(attempt);
  attempt->restart = !transfer_rest_fits(attempt);
  if (!attempt->restart) return STATUS_OK;
  return status_set(STATUS_BAD_FILE, "%s: the server sent another part than was asked for", attempt->transfer->url);
}

static Status transfer_store(Attempt *attempt, const char *bytes, size_t size) {
  const Transfer *transfer = attempt->transfer;
  if ((int64_t)size > transfer->max - attempt->at)
    return status_set(STATUS_BAD_FILE, "%s: larger than the %lld bytes accepted for %s", transfer->url, (long long)transfer->max,
                      transfer->title);
  while (size > 0) {
    ssize_t written = pwrite(transfer->fd, bytes, size, attempt->at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return transfer_write_error(transfer);
    bytes += written, size -= (size_t)written, attempt->at += written;
  }
  return STATUS_OK;
}

static size_t transfer_on_body(char *bytes, size_t one, size_t size, void *context) {
  Attempt *attempt = context;
  (void)one;
  if (!transfer_is_good(transfer_code(attempt))) return size; /* an error page: read past, its size is watched by the progress call */
  if (!attempt->begun) attempt->status = transfer_begin(attempt);
  if (attempt->status == STATUS_OK) attempt->status = transfer_store(attempt, bytes, size);
  return attempt->status == STATUS_OK ? size : 0;
}

static int transfer_on_progress(void *context, curl_off_t total, curl_off_t done, curl_off_t upload_total, curl_off_t uploaded) {
  Attempt *attempt = context;
  (void)upload_total, (void)uploaded;
  if (!transfer_is_good(transfer_code(attempt))) return done > TRANSFER_ERROR_BODY;
  if (total > 0) attempt->progress->total = attempt->offset + total;
  curl_off_t rate = 0;
  char note[64];
  curl_easy_getinfo(attempt->curl, CURLINFO_SPEED_DOWNLOAD_T, &rate);
  snprintf(note, sizeof note, "%.1f MB at %.1f MB/s", (double)attempt->at / 1e6, (double)rate / 1e6);
  progress_update(attempt->progress, attempt->at, note);
  return 0;
}

static struct curl_slist *transfer_ask_for_rest(Attempt *attempt) {
  char range[32], header[TRANSFER_HEADER + 16];
  snprintf(range, sizeof range, "%lld-", (long long)attempt->offset);
  snprintf(header, sizeof header, "If-Range: %s", attempt->stored);
  curl_easy_setopt(attempt->curl, CURLOPT_RANGE, range);
  return curl_slist_append(NULL, header);
}

static void transfer_set_options(Attempt *attempt, const TransferLimits *limits) {
  CURL *curl = attempt->curl;
  const Transfer *transfer = attempt->transfer;
  const char *authorities = getenv("CURL_CA_BUNDLE");
  if (!authorities || !authorities[0]) authorities = getenv("SSL_CERT_FILE");
  if (authorities && authorities[0]) curl_easy_setopt(curl, CURLOPT_CAINFO, authorities);
  bool secure = strncasecmp(transfer->url, "https:", 6) == 0;
  curl_easy_setopt(curl, CURLOPT_URL, transfer->url);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https,http,file");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "https,http"); /* never from a protected line to an open one */
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)TRANSFER_MAX_REDIRECTS);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "astra-data");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, limits->connect_seconds);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, limits->slow_bytes);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, limits->slow_seconds);
  curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)transfer->max);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, attempt->error);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, transfer_on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, attempt);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, transfer_on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, attempt);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, transfer_on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, attempt);
}

typedef struct CurlFault {
  CURLcode code;
  Status status;
  bool again; /* may be different a moment later */
  const char *advice;
} CurlFault;

static const CurlFault transfer_faults[] = {
    {CURLE_COULDNT_RESOLVE_HOST, STATUS_IO, true, "check the network; a proxy is given as https_proxy=http://HOST:PORT"},
    {CURLE_COULDNT_RESOLVE_PROXY, STATUS_IO, false, "check the variable https_proxy"},
    {CURLE_COULDNT_CONNECT, STATUS_IO, true, "check the network; a proxy is given as https_proxy=http://HOST:PORT"},
    {CURLE_OPERATION_TIMEDOUT, STATUS_TIMEOUT, true, "try again later: what came so far is kept and resumed"},
    {CURLE_PARTIAL_FILE, STATUS_IO, true, "try again later: what came so far is kept and resumed"},
    {CURLE_RECV_ERROR, STATUS_IO, true, "try again later: what came so far is kept and resumed"},
    {CURLE_SEND_ERROR, STATUS_IO, true, "try again later"},
    {CURLE_GOT_NOTHING, STATUS_IO, true, "try again later"},
    {CURLE_SSL_CONNECT_ERROR, STATUS_IO, true, "try again later, or from another network"},
    {CURLE_HTTP2, STATUS_IO, true, "try again later"},
    {CURLE_HTTP2_STREAM, STATUS_IO, true, "try again later"},
    {CURLE_PEER_FAILED_VERIFICATION, STATUS_PEER, false,
     "the server's certificate is not trusted, nothing was downloaded; behind a proxy with its own authority set SSL_CERT_FILE to its "
     "certificate, and check the clock"},
    {CURLE_SSL_CACERT_BADFILE, STATUS_NOT_FOUND, false,
     "the list of trusted authorities cannot be read: install ca-certificates, or correct "
     "CURL_CA_BUNDLE or SSL_CERT_FILE"},
    {CURLE_FILE_COULDNT_READ_FILE, STATUS_NOT_FOUND, false, "there is no such file"},
    {CURLE_FILESIZE_EXCEEDED, STATUS_BAD_FILE, false, "larger than is accepted for this file"},
    {CURLE_TOO_MANY_REDIRECTS, STATUS_IO, false, "the address leads in a circle"},
    {CURLE_UNSUPPORTED_PROTOCOL, STATUS_UNSUPPORTED, false, "it, or where it leads to, is not an https address; nothing was downloaded"},
};

static Status transfer_fault(const Attempt *attempt, CURLcode code, bool *again) {
  CurlFault fault = {code, STATUS_IO, false, "try again later"};
  for (size_t i = 0; i < sizeof transfer_faults / sizeof transfer_faults[0]; i++) {
    if (transfer_faults[i].code == code) fault = transfer_faults[i];
  }
  *again = fault.again;
  const char *text = attempt->error[0] ? attempt->error : curl_easy_strerror(code);
  return status_set(fault.status, "%s: download failed: %s (%s)", attempt->transfer->url, text, fault.advice);
}

/* Judges an answer that arrived whole. */
static Status transfer_answer(Attempt *attempt, bool *again) {
  long code = transfer_code(attempt);
  const char *url = attempt->transfer->url;
  if (code == 416 && transfer_is_whole(attempt)) return STATUS_OK;
  if (code == 416 && attempt->offset) {
    attempt->restart = *again = true;
    return status_set(STATUS_BAD_FILE, "%s: the server does not have the rest of what was downloaded earlier", url);
  }
  if (code == 404 || code == 410) return status_set(STATUS_NOT_FOUND, "%s: the server has no such file (HTTP %ld)", url, code);
  if (code == 401 || code == 403) return status_set(STATUS_PEER, "%s: the server refuses access (HTTP %ld)", url, code);
  if (!transfer_is_good(code)) {
    *again = code == 408 || code == 429 || code >= 500;
    return status_set(STATUS_PEER, "%s: the server answered HTTP %ld; try again later", url, code);
  }
  return attempt->begun ? STATUS_OK : transfer_begin(attempt); /* an empty file has no first byte */
}

static Status transfer_perform(Attempt *attempt, const TransferLimits *limits, bool *again) {
  struct curl_slist *headers = NULL;
  transfer_set_options(attempt, limits);
  if (attempt->offset) {
    headers = transfer_ask_for_rest(attempt);
    if (!headers) return status_set(STATUS_NO_MEMORY, "out of memory for a request");
    curl_easy_setopt(attempt->curl, CURLOPT_HTTPHEADER, headers);
  }
  CURLcode code = curl_easy_perform(attempt->curl);
  curl_slist_free_all(headers);
  *again = attempt->restart;
  if (attempt->status != STATUS_OK) return attempt->status;
  if (code != CURLE_OK && !(code == CURLE_ABORTED_BY_CALLBACK && !transfer_is_good(transfer_code(attempt))))
    return transfer_fault(attempt, code, again);
  Status status = transfer_answer(attempt, again);
  *again = *again || attempt->restart;
  return status;
}

/* How much is there, and the validator that goes with it; no validator: from the start. */
static Status transfer_prepare(Attempt *attempt) {
  const Transfer *transfer = attempt->transfer;
  struct stat file;
  if (fstat(transfer->fd, &file) != 0) return transfer_write_error(transfer);
  char *text = NULL;
  size_t size = 0;
  bool remote = strncasecmp(transfer->url, "file:", 5) != 0;
  if (remote && file.st_size > 0 && file.st_size <= transfer->max && files_exists(transfer->tag_path) &&
      files_read(transfer->tag_path, TRANSFER_HEADER - 1, &text, &size) == STATUS_OK && strlen(text) == size) {
    memcpy(attempt->stored, text, size + 1);
    for (size_t i = 0; i < size; i++) {
      if (!isprint((unsigned char)text[i])) attempt->stored[0] = '\0';
    }
  }
  free(text);
  attempt->offset = attempt->at = attempt->stored[0] ? file.st_size : 0;
  return STATUS_OK;
}

/* One try; *reached is how far it came, *again whether another makes sense. */
static Status transfer_try(Transfer *transfer, const TransferLimits *limits, Progress *progress, bool *again, int64_t *reached) {
  Attempt attempt = {.transfer = transfer, .progress = progress};
  *again = false;
  TRY(transfer_prepare(&attempt));
  attempt.curl = curl_easy_init();
  if (!attempt.curl) return status_set(STATUS_NO_MEMORY, "out of memory for a download");
  Status status = transfer_perform(&attempt, limits, again);
  curl_easy_cleanup(attempt.curl);
  if (attempt.restart) unlink(transfer->tag_path); /* without its validator the partial file is not used again */
  *reached = attempt.at;
  transfer->sha256[0] = '\0';
  if (!download_digest_from_tag(attempt.linked, transfer->sha256)) download_digest_from_tag(attempt.tag, transfer->sha256);
  if (status == STATUS_OK && fsync(transfer->fd) != 0) status = transfer_write_error(transfer);
  return status;
}

static void transfer_wait(double seconds) {
  struct timespec left = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

static pthread_once_t transfer_once = PTHREAD_ONCE_INIT;
static CURLcode transfer_ready;
static void transfer_init(void) { transfer_ready = curl_global_init(CURL_GLOBAL_DEFAULT); }

Status download_transfer(Transfer *transfer, const TransferLimits *limits) {
  pthread_once(&transfer_once, transfer_init);
  if (transfer_ready != CURLE_OK)
    return status_set(STATUS_UNSUPPORTED, "libcurl cannot be started: %s", curl_easy_strerror(transfer_ready));
  Progress progress;
  progress_start(&progress, transfer->title, 0, transfer->quiet);
  double wait = limits->wait;
  int64_t best = 0, reached = 0;
  for (int try = 1;; try++, wait *= 2) {
    bool again = false;
    Status status = transfer_try(transfer, limits, &progress, &again, &reached);
    if (status == STATUS_OK) break;
    if (reached > best + TRANSFER_HEADWAY) try = 1, wait = limits->wait;
    if (reached > best) best = reached;
    if (!again || try >= limits->tries) {
      progress_finish(&progress, reached, "stopped");
      return status;
    }
    if (!transfer->quiet) log_warning("%s; trying again in %.0f s", status_message(), wait);
    transfer_wait(wait);
  }
  progress_finish(&progress, reached, NULL);
  return STATUS_OK;
}
