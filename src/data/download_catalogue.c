/* What astra-data can fetch: one row an item. Adding one (a text set, another checkpoint) is adding its files and its row.
 * Digests are the published ones; for files of the Hugging Face hub the hub itself tells the SHA-256 of each large file. */
#include "data/download.h"
#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))
#define HUB(repository, file)                                                                                                              \
  { .url = "https://huggingface.co/" repository "/resolve/main/" file, .name = file }
/* config.json is small: the limit keeps an error page or a lying server from filling the disk. */
#define HUB_TEXT(repository, file)                                                                                                         \
  { .url = "https://huggingface.co/" repository "/resolve/main/" file, .name = file, .most = 1 << 20 }
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

#define ROW(item, folder, text, terms, list)                                                                                               \
  { .name = item, .kind = folder, .about = text, .licence = terms, .files = list, .count = COUNT(list) }
#define CIFAR_TERMS "research use; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"

static const DownloadItem catalogue[] = {
    ROW("cifar100", "datasets", "60,000 pictures of 32x32 in 100 classes (161 MiB)", CIFAR_TERMS, catalogue_cifar100),
    ROW("cifar10", "datasets", "60,000 pictures of 32x32 in 10 classes (162 MiB)", CIFAR_TERMS, catalogue_cifar10),
    ROW("vit-base", "checkpoints", "ViT-Base/16, 224, ImageNet-21k, no classifier (330 MiB)", "Apache-2.0", catalogue_vit_base),
    ROW("vit-base-imagenet", "checkpoints", "ViT-Base/16, 224, fine-tuned on ImageNet-1k (330 MiB)", "Apache-2.0",
        catalogue_vit_base_imagenet),
    ROW("vit-small", "checkpoints", "ViT-Small/16, 224, fine-tuned on ImageNet-1k (84 MiB)", "Apache-2.0", catalogue_vit_small),
    ROW("vit-tiny", "checkpoints", "ViT-Tiny/16, 224, fine-tuned on ImageNet-1k (22 MiB)", "Apache-2.0", catalogue_vit_tiny),
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
