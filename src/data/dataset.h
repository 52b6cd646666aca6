/* Sets of labelled images behind one interface: CIFAR-10/100 binary, image folders, CSV manifests, drawn ones. Records are read by index,
 * by any thread at once. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H
#include "base/status.h"
#include "data/image.h"
#include <stdbool.h>
#include <stdint.h>

enum { DATASET_HINT = 640 };

typedef enum DatasetKind { DATASET_ANY, DATASET_IMAGES, DATASET_TEXTS } DatasetKind;

/* A sentence to put behind an error, with a blank before it: " Did you mean folder:clothing?"; "" without an idea of this kind. Looked at
 * are a file or folder of that name, here, in data_dir (or NULL) and where data sets are found, with another prefix than was given, and the
 * names that astra-data can get, however they are spelt. Returns `text`. */
const char *dataset_hint(const char *name, const char *data_dir, DatasetKind kind, char text[DATASET_HINT]);

/* Which records of a training part are held out for validation: a rule that knows neither seed nor order, so that every run, and every
 * later evaluation, means the same records by "5,000 held out".
 *
 * Class c with n_c of n records gives floor(N n_c / n) of them; the rest of N comes from the classes with the largest fractional parts
 * (lower class first), one each. A class keeps at least one. Within a class the records with the smallest hash of their number
 * (splitmix64's finaliser) are taken. */

/* held[i] = 1 for `wanted` of the records, else 0. labels [count] in [0, classes). BAD_VALUE: the classes cannot spare so many. */
Status held_out_choose(const int32_t *labels, int64_t count, int64_t classes, int64_t wanted, uint8_t *held /* [count] */);

/* Part of a training part: the records that are held out when `of` are wanted (0: all records), except those that are held out when
 * `without` are wanted. The latter are among the former where `without` < `of`, but for single records where classes are of unequal
 * sizes (the largest remainders of another number may be those of other classes). A record is never in both parts. */
typedef struct TrainShare {
  int64_t of, without;
} TrainShare;

/* keep[i] = 1 for the records of the share, else 0. Otherwise as held_out_choose; BAD_VALUE also where no record is left. */
Status train_share_choose(const int32_t *labels, int64_t count, int64_t classes, TrainShare share, uint8_t *keep /* [count] */);

enum { TRAIN_SHARE_TEXT = 96 };

/* The beginning of a share's description, before that of the whole part: "49 images held out from". noun: "images", "texts"; count: of
 * the records kept. Returns `text`. */
const char *train_share_text(TrainShare share, int64_t count, const char *noun, char text[TRAIN_SHARE_TEXT]);

typedef enum DatasetPart { DATASET_TRAIN, DATASET_TEST } DatasetPart;

typedef struct Dataset Dataset;

/* name: "cifar100", "cifar10", "cifar100-sample" (bundled), "folder:DIR", "csv:FILE", "synthetic:...". data_dir: where to look for named
 * sets (NULL: the defaults, see data_paths.h); a named set is looked for as DATA_DIR/NAME/..., then DATA_DIR itself. NOT_FOUND says where
 * it looked and how to get it. folder: DIR/train/CLASS/... and DIR/test|val/CLASS/...; with no such split DIR/CLASS/..., of
 * which every fifth image of a class (sorted by name) is the test part. csv: rows path,label (header optional; paths relative to the
 * file), a third column "split" optional, else every fifth row is the test part. synthetic:WIDTHxHEIGHT:CLASSES[:IMAGES]: drawn images,
 * for benchmarks, tests and demonstrations: stripes whose colour, direction and width tell the class, under noise; the same ones every
 * time. IMAGES (2,048) for training, a quarter of it for testing. Unreadable images are found when read (dataset_read), not here. */
Status dataset_open(Dataset **set, const char *name, const char *data_dir, DatasetPart part);
void dataset_close(Dataset *set);

/* A share of the training part. Which records it has is a function of their numbers and labels (held_out_choose): the same in every run,
 * and in proportion to the classes. BAD_VALUE: more than the classes can spare, or nothing. */
Status dataset_open_share(Dataset **set, const char *name, const char *data_dir, TrainShare share);

/* BAD_USAGE about a name whose form no set of images has, with what may have been meant (dataset_hint). */
Status dataset_check_name(const char *name, const char *data_dir);

int64_t dataset_count(const Dataset *set);
int64_t dataset_classes(const Dataset *set);
size_t dataset_mapped(const Dataset *set);       /* bytes of mapped files: a data set that is read in place */
char *const *dataset_labels(const Dataset *set); /* [classes] */
bool dataset_is_grouped(const Dataset *set);     /* records of a class may stand together: folders and lists of files */
bool dataset_fixed_size(const Dataset *set, int *width, int *height); /* true when all images have one size */
const char *dataset_describe(const Dataset *set);                     /* "CIFAR-100 train, 50000 images of 32x32, 100 classes, from PATH" */
/* Tells the records from others: of the classes' number, the labels in their order and what else the source knows of a record without
 * decoding it: the file's name without folders, some bytes of a CIFAR record (base/hash.h). The same wherever the files lie. */
uint64_t dataset_digest(const Dataset *set);
void dataset_mean_std(const Dataset *set, double mean[3], double std[3]); /* CIFAR: the published ones; others: 0.5 each (as ViT) */

/* One record; image is reused (its buffer is grown when needed). A broken image is BAD_FILE: the caller names it, counts it and goes on.
 */
Status dataset_read(Dataset *set, int64_t index, Image *image, int32_t *label);

#endif
