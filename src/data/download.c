/* The way of one file: into NAME.part (resumed, locked), checked against its digest, renamed to NAME, unpacked if it is an archive.
 * Invariant: what bears its final name is complete and has passed its check. The bytes are moved by download_transfer.c, digests are
 * computed by download_transfer.c, archives opened by download_unpack.c; names come from the catalogue, never from a server. */
#include "data/download.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status.h"
#include "data/download_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
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
  if (!place->final || asprintf(&place->part, "%s.part", place->final) < 0) place->part = NULL;
  if (!place->part || asprintf(&place->tag, "%s.part.etag", place->final) < 0) place->tag = NULL;
  return place->tag ? STATUS_OK : status_set(STATUS_NO_MEMORY, "out of memory for the name of %s", file->name);
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

Status download_fetch(const DownloadFile *file, const char *directory, bool quiet, const TransferLimits *limits) {
  TRY(download_check_name(file->name));
  if (download_file_present(file, directory)) {
    if (!quiet) log_info("%s is there already; remove it to download it again", file->unpack ? file->leaves : file->name);
    return STATUS_OK;
  }
  Place place = {.fd = -1};
  Status status = download_into(&place, file, directory, quiet, limits);
  place_release(&place);
  return status;
}

/* Fetches one file into directory (made when missing), resuming a "NAME.part" left by an earlier try, checks and (if so said) unpacks
 * it; what is there already is left alone. Two processes cannot fetch the same file at once: the second gets an error. */
static Status download_file(const DownloadFile *file, const char *directory, bool quiet) {
  return download_fetch(file, directory, quiet, &download_transfer_limits);
}

Status download_item(const DownloadItem *item, const char *directory, bool quiet) {
  for (int i = 0; i < item->count; i++) TRY(download_file(&item->files[i], directory, quiet));
  return STATUS_OK;
}
