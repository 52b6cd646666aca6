/* The download of one file: into NAME.part (resumed, locked), checked against its digest, renamed to NAME, unpacked if it is an archive.
 * Invariant: what bears its final name is complete and has passed its check. Archives are opened by download_unpack.c; names come from the
 * catalogue, never from a server. */
#include "data/download.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/text.h"
#include "data/data_paths.h"
#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- Catalogue ---- */

/* What astra-data can fetch: one row an item. Adding one (a text set, another checkpoint) is adding its files and its row.
 * Digests are the published ones; for files of the Hugging Face hub the hub itself tells the SHA-256 of each large file. */

#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))
#define HUB(repository, file)                                                                                                              \
  { .url = "https://huggingface.co/" repository "/resolve/main/" file, .name = file }
/* config.json is small: the limit keeps an error page or a lying server from filling the disk. */
#define HUB_TEXT(repository, file)                                                                                                         \
  { .url = "https://huggingface.co/" repository "/resolve/main/" file, .name = file, .max = 1 << 20 }
#define HUB_GPT2(repository)                                                                                                               \
  {                                                                                                                                        \
    HUB_TEXT(repository, "config.json"), HUB_WORDS(repository, "vocab.json"), HUB_WORDS(repository, "merges.txt"),                         \
        HUB_WORDS(repository, "tokenizer.json"), HUB(repository, "model.safetensors")                                                      \
  }
/* A tokenizer's files have a few megabytes at most. */
#define HUB_WORDS(repository, file)                                                                                                        \
  { .url = "https://huggingface.co/" repository "/resolve/main/" file, .name = file, .max = 1 << 26 }
#define HUB_VIT(repository)                                                                                                                \
  { HUB_TEXT(repository, "config.json"), HUB_TEXT(repository, "preprocessor_config.json"), HUB(repository, "model.safetensors") }

static const DownloadFile catalogue_cifar100[] = {{.url = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                                                   .name = "cifar-100-binary.tar.gz",
                                                   .check = DOWNLOAD_MD5,
                                                   .digest = "03b5dce01913d631647c71ecec9e9cb8",
                                                   .unpack = true,
                                                   .leaves = "cifar-100-binary"}};
static const DownloadFile catalogue_cifar10[] = {{.url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                                                  .name = "cifar-10-binary.tar.gz",
                                                  .check = DOWNLOAD_MD5,
                                                  .digest = "c32a1d4ab5d03f1284b67883e8d87530",
                                                  .unpack = true,
                                                  .leaves = "cifar-10-batches-bin"}};
static const DownloadFile catalogue_vit_base[] = HUB_VIT("google/vit-base-patch16-224-in21k");
static const DownloadFile catalogue_vit_base_imagenet[] = HUB_VIT("google/vit-base-patch16-224");
static const DownloadFile catalogue_vit_small[] = HUB_VIT("WinKawaks/vit-small-patch16-224");
static const DownloadFile catalogue_vit_tiny[] = HUB_VIT("WinKawaks/vit-tiny-patch16-224");
static const DownloadFile catalogue_gpt2[] = HUB_GPT2("openai-community/gpt2");
static const DownloadFile catalogue_gpt2_medium[] = HUB_GPT2("openai-community/gpt2-medium");

/* WikiText: the mirror kept by its first author; the digests are those that readers of the first address have published for years. */
#define WIKITEXT(folder, archive, sha256)                                                                                                  \
  {                                                                                                                                        \
    {                                                                                                                                      \
      .url = "https://wikitext.smerity.com/" archive, .name = archive, .check = DOWNLOAD_SHA256, .digest = sha256, .unpack = true,         \
      .leaves = folder                                                                                                                     \
    }                                                                                                                                      \
  }
static const DownloadFile catalogue_wikitext103[] =
    WIKITEXT("wikitext-103", "wikitext-103-v1.zip", "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590");
static const DownloadFile catalogue_wikitext2[] =
    WIKITEXT("wikitext-2", "wikitext-2-v1.zip", "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c");
static const DownloadFile catalogue_wikitext103_raw[] =
    WIKITEXT("wikitext-103-raw", "wikitext-103-raw-v1.zip", "91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794");
static const DownloadFile catalogue_wikitext2_raw[] =
    WIKITEXT("wikitext-2-raw", "wikitext-2-raw-v1.zip", "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11");
static const DownloadFile catalogue_tinyshakespeare[] = {
    {.url = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
     .name = "input.txt",
     .check = DOWNLOAD_SHA256,
     .digest = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"}};
static const DownloadFile catalogue_cola[] = {{.url = "https://dl.fbaipublicfiles.com/glue/data/CoLA.zip",
                                               .name = "CoLA.zip",
                                               .unpack = true,
                                               .leaves = "CoLA"}}; /* none published */
static const DownloadFile catalogue_sst2[] = {{.url = "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",
                                               .name = "SST-2.zip",
                                               .check = DOWNLOAD_MD5,
                                               .digest = "9f81648d4199384278b86e315dac217c",
                                               .unpack = true,
                                               .leaves = "SST-2"}};
#define AG_NEWS(file, md5)                                                                                                                 \
  {                                                                                                                                        \
    .url = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/" file, .name = file, .check = DOWNLOAD_MD5, \
    .digest = md5                                                                                                                          \
  }
static const DownloadFile catalogue_agnews[] = {AG_NEWS("train.csv", "b1a00f826fdfbd249f79597b59e1dc12"),
                                                AG_NEWS("test.csv", "d52ea96a97a2d943681189a97654912d")};

#define ROW(item, folder, text, terms, list)                                                                                               \
  { .name = item, .kind = folder, .about = text, .licence = terms, .files = list, .count = COUNT(list) }
#define CIFAR_TERMS    "research use; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
#define WIKITEXT_TERMS "CC BY-SA 3.0; cite Merity et al., Pointer Sentinel Mixture Models, 2016"

static const DownloadItem catalogue[] = {
    ROW("cifar100", "datasets", "60,000 images of 32x32 in 100 classes (161 MiB)", CIFAR_TERMS, catalogue_cifar100),
    ROW("cifar10", "datasets", "60,000 images of 32x32 in 10 classes (162 MiB)", CIFAR_TERMS, catalogue_cifar10),
    ROW("vit-base", "checkpoints", "ViT-Base/16, 224, ImageNet-21k, no classifier (330 MiB)", "Apache-2.0", catalogue_vit_base),
    ROW("vit-base-imagenet", "checkpoints", "ViT-Base/16, 224, fine-tuned on ImageNet-1k (330 MiB)", "Apache-2.0",
        catalogue_vit_base_imagenet),
    ROW("vit-small", "checkpoints", "ViT-Small/16, 224, fine-tuned on ImageNet-1k (84 MiB)", "Apache-2.0", catalogue_vit_small),
    ROW("vit-tiny", "checkpoints", "ViT-Tiny/16, 224, fine-tuned on ImageNet-1k (22 MiB)", "Apache-2.0", catalogue_vit_tiny),
    ROW("gpt2", "checkpoints", "GPT-2, 124M parameters, with its tokenizer (525 MiB)", "MIT", catalogue_gpt2),
    ROW("gpt2-medium", "checkpoints", "GPT-2 medium, 355M parameters, with its tokenizer (1.5 GiB)", "MIT", catalogue_gpt2_medium),
    ROW("wikitext-103", "datasets", "text: Wikipedia articles, rare words as <unk> (181 MiB)", WIKITEXT_TERMS, catalogue_wikitext103),
    ROW("wikitext-2", "datasets", "text: a small part of it (4 MiB)", WIKITEXT_TERMS, catalogue_wikitext2),
    ROW("wikitext-103-raw", "datasets", "text: Wikipedia articles, all words (183 MiB)", WIKITEXT_TERMS, catalogue_wikitext103_raw),
    ROW("wikitext-2-raw", "datasets", "text: a small part of it (5 MiB)", WIKITEXT_TERMS, catalogue_wikitext2_raw),
    ROW("tinyshakespeare", "datasets", "text: 40,000 lines of Shakespeare (1 MiB)", "public domain text", catalogue_tinyshakespeare),
    ROW("cola", "datasets", "labelled text: is a sentence grammatical? (GLUE CoLA)", "research use; see its README", catalogue_cola),
    ROW("sst2", "datasets", "labelled text: is a film liked? (GLUE SST-2, 7 MiB)", "research use; see its README", catalogue_sst2),
    ROW("agnews", "datasets", "labelled text: topics of news (AG News, 30 MiB)", "research use, not commercial", catalogue_agnews),
};

const DownloadItem *download_catalogue(int *count) {
  *count = COUNT(catalogue);
  return catalogue;
}

const DownloadItem *download_find(const char *name) {
  for (int i = 0; i < COUNT(catalogue); i++) {
    if (strcmp(catalogue[i].name, name) == 0) return &catalogue[i];
  }
  return NULL;
}

/* ---- Digests ---- */

/* SHA-256 and MD5 of files through OpenSSL, read in blocks. MD5 only finds accidents; it is here because some data sets publish no other.
 */

enum { DIGEST_BLOCK = 1 << 16, DOWNLOAD_DIGEST_TEXT = 65 /* 64 hexadecimal digits and a NUL */ };

static const char *download_digest_name(DownloadCheck check) { return check == DOWNLOAD_MD5 ? "MD5" : "SHA-256"; }

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

/* Reads fd from its start to its end; path is for messages. check is not DOWNLOAD_UNCHECKED. */
static Status download_digest_file(int fd, const char *path, DownloadCheck check, char text[DOWNLOAD_DIGEST_TEXT]) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  if (!context) return status_no_memory(path, "its digest");
  Status status = STATUS_OK;
  if (!EVP_DigestInit_ex(context, check == DOWNLOAD_MD5 ? EVP_md5() : EVP_sha256(), NULL))
    status =
        status_set(STATUS_UNSUPPORTED, "OpenSSL on this machine does not offer %s, needed to check %s", download_digest_name(check), path);
  if (status == STATUS_OK) status = digest_stream(context, fd, path);
  if (status == STATUS_OK && (!EVP_DigestFinal_ex(context, bytes, &size) || size > (DOWNLOAD_DIGEST_TEXT - 1) / 2))
    status = status_set(STATUS_UNSUPPORTED, "%s: computing its digest failed", path);
  EVP_MD_CTX_free(context);
  if (status == STATUS_OK) text_hex(bytes, size, text);
  return status;
}

/* A SHA-256 in an HTTP entity tag: "\"<64 hexadecimal digits>\"" (quotes optional, not weak), as lower-case text; false when it is none. */
static bool download_digest_from_tag(const char *tag, char text[DOWNLOAD_DIGEST_TEXT]) {
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

/* ---- One URL into one file ---- */

/* With libcurl: redirects, resuming, retries with growing waits, progress.
 *
 * Resuming is only done when the server named a validator (a strong ETag, else Last-Modified) for the bytes that are there: it is kept
 * beside the partial file and sent as If-Range, so that a changed file comes whole (200) instead of as a rest (206) that does not fit.
 * Invariant: the validator on disk belongs to the bytes in the file; on a new start the file is emptied first and the validator is
 * written before the first byte. Nothing the server sends becomes a file name. */

typedef struct TransferLimits {
  int tries;            /* in a row without getting further */
  double wait;          /* seconds before the second try; doubled for each further one */
  long connect_seconds; /* to reach the server */
  long slow_bytes;      /* fewer bytes a second than this ... */
  long slow_seconds;    /* ... for this long: given up */
} TransferLimits;

typedef struct Transfer {
  const char *url, *title; /* title: shown by the progress bar */
  const char *path;        /* of the file, for messages */
  const char *tag_path;    /* where the validator of a partial file is kept between runs ("NAME.part.etag") */
  int fd;                  /* opened for reading and writing; bytes already in it are resumed from, if the server can show they still fit */
  int64_t max;             /* bytes; more is an error */
  bool quiet;
  char sha256[DOWNLOAD_DIGEST_TEXT]; /* out: what the server says the file's SHA-256 is, or "" */
} Transfer;

enum {
  TRANSFER_HEADER = 256,         /* longest header value that is looked at */
  TRANSFER_ERROR_BODY = 1 << 20, /* bytes of an error page that are read past */
  TRANSFER_MAX_REDIRECTS = 10,
  TRANSFER_HEADWAY = 1 << 20 /* a try that got this much further does not count against the tries */
};

static const TransferLimits usual_limits = {.tries = 3, .wait = 1, .connect_seconds = 30, .slow_bytes = 1024, .slow_seconds = 60};

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
    if (!headers) return status_no_memory(NULL, "a request");
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
  if (!attempt.curl) return status_no_memory(NULL, "a download");
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

/* The file is complete, as far as the transport can tell, when this is OK. After an error what came so far is kept for a later try, unless
 * it is useless. */
static Status download_transfer(Transfer *transfer, const TransferLimits *limits) {
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

/* ---- The download of one file ---- */

static const int64_t download_max = (int64_t)64 << 30;

/* Where the file lives while and after it is fetched. */
typedef struct Place {
  char *final, *part, *tag; /* DIR/NAME, DIR/NAME.part, DIR/NAME.part.etag */
  int fd;                   /* of part, locked; -1 */
} Place;

static void place_release(Place *place) {
  if (place->fd >= 0) close(place->fd);
  free(place->final);
  free(place->part);
  free(place->tag);
}

static Status download_check_name(const char *name) {
  if (name[0] && name[0] != '.' && !strchr(name, '/')) return STATUS_OK;
  return status_set(STATUS_BAD_VALUE, "'%s' is no name for a downloaded file: a plain name is needed, without '/' and not hidden", name);
}

static Status place_name(Place *place, const DownloadFile *file, const char *directory) {
  place->final = files_join(directory, file->name);
  if (!place->final || asprintf(&place->part, "%s" DATA_PATHS_PART, place->final) < 0) place->part = NULL;
  if (!place->part || asprintf(&place->tag, "%s" DATA_PATHS_PART ".etag", place->final) < 0) place->tag = NULL;
  return place->tag ? STATUS_OK : status_no_memory(file->name, "its name");
}

/* Another process may have finished and renamed the file between our open and our lock: then the lock is on the wrong file. */
static bool place_still_there(const Place *place) {
  struct stat ours, named;
  return fstat(place->fd, &ours) == 0 && lstat(place->part, &named) == 0 && ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

static Status place_open(Place *place) {
  place->fd = open(place->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (place->fd < 0)
    return status_set(STATUS_IO, "%s: cannot be written: %s; choose another place with --dir", place->part, strerror(errno));
  bool busy = flock(place->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; /* file systems without locks: go on */
  if (busy || !place_still_there(place))
    return status_set(STATUS_IO, "%s: another process is downloading it; wait for it to finish", place->part);
  return STATUS_OK;
}

static Status download_mismatch(const Place *place, const char *url, DownloadCheck check, const char *expected, const char *found) {
  unlink(place->part);
  unlink(place->tag);
  return status_set(
      STATUS_BAD_FILE,
      "%s: the downloaded file is not the published one and was removed: %s expected %s, found %s. Download it again; if that "
      "does not help, the file on the server was replaced or the line is tampered with",
      url, download_digest_name(check), expected, found);
}

/* Nothing to compare with: size and digest are told, so that they can be compared by hand or with another machine's. */
static Status download_tell(const Place *place, const DownloadFile *file, bool quiet) {
  char found[DOWNLOAD_DIGEST_TEXT];
  struct stat part;
  if (quiet) return STATUS_OK;
  TRY(download_digest_file(place->fd, place->part, DOWNLOAD_SHA256, found));
  if (fstat(place->fd, &part) != 0) return status_set(STATUS_IO, "%s: cannot be examined: %s", place->part, strerror(errno));
  log_info("%s: not checked, because no checksum is published: %lld bytes, SHA-256 %s", file->name, (long long)part.st_size, found);
  return STATUS_OK;
}

/* Against the digest in the catalogue, else against the one the server published. */
static Status download_verify(const Place *place, const DownloadFile *file, const char *served, bool quiet) {
  DownloadCheck check = file->check;
  const char *expected = file->digest;
  if (check == DOWNLOAD_UNCHECKED && served[0]) check = DOWNLOAD_SHA256, expected = served;
  if (check == DOWNLOAD_UNCHECKED) return download_tell(place, file, quiet);
  char found[DOWNLOAD_DIGEST_TEXT];
  TRY(download_digest_file(place->fd, place->part, check, found));
  if (strcmp(found, expected) != 0) return download_mismatch(place, file->url, check, expected, found);
  if (!quiet)
    log_info("%s: %s is as %s (%s)", file->name, download_digest_name(check), file->digest ? "published" : "the server says", found);
  return STATUS_OK;
}

static Status download_to_part(Place *place, const DownloadFile *file, bool quiet, const TransferLimits *limits) {
  TRY(place_open(place));
  Transfer transfer = {.url = file->url,
                       .title = file->name,
                       .path = place->part,
                       .tag_path = place->tag,
                       .fd = place->fd,
                       .max = file->max ? file->max : download_max,
                       .quiet = quiet};
  Status status = download_transfer(&transfer, limits);
  struct stat part;
  if (status != STATUS_OK && fstat(place->fd, &part) == 0 && part.st_size == 0) unlink(place->part); /* nothing came: leave nothing */
  if (status != STATUS_OK) return status;
  TRY(download_verify(place, file, transfer.sha256, quiet));
  if (rename(place->part, place->final) != 0)
    return status_set(STATUS_IO, "%s: cannot be renamed to %s: %s", place->part, file->name, strerror(errno));
  unlink(place->tag);
  return STATUS_OK;
}

static bool download_file_present(const DownloadFile *file, const char *directory) {
  if (file->unpack && !file->leaves) return false;
  char *path = files_join(directory, file->unpack ? file->leaves : file->name);
  bool present = path && files_exists(path);
  free(path);
  return present;
}

bool download_present(const DownloadItem *item, const char *directory) {
  for (int i = 0; i < item->count; i++) {
    if (!download_file_present(&item->files[i], directory)) return false;
  }
  return true;
}

static Status download_into(Place *place, const DownloadFile *file, const char *directory, bool quiet, const TransferLimits *limits) {
  TRY(place_name(place, file, directory));
  TRY(files_make_dirs(directory));
  if (!files_exists(place->final)) TRY(download_to_part(place, file, quiet, limits)); /* else: a checked archive, not unpacked yet */
  if (!file->unpack) return STATUS_OK;
  if (!quiet) log_info("unpacking %s", place->final);
  Status status = download_unpack(place->final, directory);
  if (status == STATUS_BAD_FILE) {
    unlink(place->final);
    return status_wrap(status, "%s does not hold a usable archive, the downloaded file was removed", file->url);
  }
  TRY(status);
  if (unlink(place->final) != 0) return status_set(STATUS_IO, "%s: cannot be removed after unpacking: %s", place->final, strerror(errno));
  return STATUS_OK;
}

/* Fetches one file into directory (made when missing), resuming a "NAME.part" left by an earlier try, checks and (if so said) unpacks
 * it; what is there already is left alone. Two processes cannot fetch the same file at once: the second gets an error.
 * `limits` are varied by test_download, else usual_limits. */
static Status download_fetch(const DownloadFile *file, const char *directory, bool quiet, const TransferLimits *limits) {
  TRY(download_check_name(file->name));
  if (download_file_present(file, directory)) {
    if (!quiet) log_info("%s is there already; remove it to download it again", file->unpack ? file->leaves : file->name);
    return STATUS_OK;
  }
  const bool made = !files_exists(directory);
  Place place = {.fd = -1};
  Status status = download_into(&place, file, directory, quiet, limits);
  place_release(&place);
  if (status != STATUS_OK && made) rmdir(directory); /* where it is empty: data_paths_find would take it for the item */
  return status;
}

Status download_item(const DownloadItem *item, const char *directory, bool quiet) {
  for (int i = 0; i < item->count; i++) TRY(download_fetch(&item->files[i], directory, quiet, &usual_limits));
  return STATUS_OK;
}
