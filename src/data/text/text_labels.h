/* Labelled texts: rows of a text, or of a pair of texts, and its class, held in memory as they stand in the file.
 *
 *   cola:DIR    GLUE CoLA: train.tsv, dev.tsv without header; text in column 4, label in 2: 0 unacceptable, 1 acceptable
 *   sst2:DIR    GLUE SST-2: train.tsv, dev.tsv with header; sentence, label: 0 negative, 1 positive
 *   qqp:DIR     GLUE QQP: train.tsv, dev.tsv with header; the pair question1 and question2, is_duplicate: 0 not_duplicate, 1 duplicate.
 *               Rows that a line break cuts in two are passed over and counted
 *   mrpc:DIR    GLUE MRPC: train.tsv, dev.tsv with header; the pair in columns 4 and 5, label in 1: 0 not_equivalent, 1 equivalent
 *   agnews:DIR  AG News: train.csv, test.csv without header; class 1 to 4, title and text, joined with a space; names from classes.txt, a
 *               line a class, where it is. Without train.csv every fifth row of test.csv is the test part and the rest for training
 *   tsv:FILE[:KEY=VALUE]...   rows divided by tabs, without quotes
 *   csv:FILE:text=COLUMN[:KEY=VALUE]...   quoted rows; "text=" is needed, since csv:FILE alone is a list of images (dataset.h)
 *       text=COLUMN    a name in the header or a number from 1; several to be joined: text=2+3. Unless given: text
 *       pair=COLUMN    the second of two texts, where rows have pairs (text_loader_sample says what is made of them)
 *       label=COLUMN   unless given: label
 *       header=yes|no  whether the first row names the columns; unless given: yes if one of them is given by name
 *       test=FILE      rows of the test part; without it every fifth row of FILE
 *     Classes are the distinct labels of FILE, sorted by value when all are whole numbers, else bytewise; a label that only the test part
 *     has is an error.
 *
 * The known sets without ":DIR" are looked for where downloads go (data_paths.h); DIR may also be the folder around CoLA, SST-2, QQP, MRPC
 * or agnews. A file FILE.gz takes the place of FILE where that is missing. At most 1 GiB a file. Read only after opening: any thread. */
#ifndef DATA_TEXT_LABELS_H
#define DATA_TEXT_LABELS_H
#include "data/dataset.h"
#include <stddef.h>

typedef struct LabelledText LabelledText;

bool text_labels_knows(const char *name);

/* The known sets, for messages: "cola:DIR, sst2:DIR" with the suffix ":DIR". Returns list. */
enum { TEXT_LABELS_LIST = 128 };
const char *text_labels_list(const char *suffix, char list[TEXT_LABELS_LIST]);

/* data_dir: looked at first for a set without DIR, or NULL. *set is NULL after a failure. */
Status text_labels_open(LabelledText **set, const char *name, const char *data_dir, DatasetPart part);
/* A share of the training part, as dataset_open_share. */
Status text_labels_open_share(LabelledText **set, const char *name, const char *data_dir, TrainShare share);
void text_labels_close(LabelledText *set); /* accepts NULL */

int64_t text_labels_count(const LabelledText *set);
int64_t text_labels_classes(const LabelledText *set);
bool text_labels_are_grouped(const LabelledText *set);     /* texts of a class may stand together: tsv: and csv: */
char *const *text_labels_names(const LabelledText *set);   /* [classes] */
const char *text_labels_describe(const LabelledText *set); /* "CoLA train, 8551 texts, 2 classes, from PATH" */
const char *text_labels_text(const LabelledText *set, int64_t index, int32_t *label); /* index in [0, count); label in [0, classes) */
const char *text_labels_pair(const LabelledText *set, int64_t index);                 /* the second text; NULL where rows have one */
uint64_t text_labels_digest(const LabelledText *set); /* of labels and texts in their order (base/hash.h), wherever the files lie */

/* Matthews' correlation (1975) of label and answer of two classes: answers[label][answer], two of each; 0 where either never varies. */
double text_labels_matthews(const int64_t (*answers)[2]);

#endif
