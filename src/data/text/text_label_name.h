/* Inside of src/data only: what the name of a labelled set says. text_labels.h describes the names. */
#ifndef DATA_TEXT_LABEL_NAME_H
#define DATA_TEXT_LABEL_NAME_H
#include "data/text/text_table.h"

enum { TEXT_LABEL_MOST_CLASSES = 4 }; /* of the known sets */

/* A set whose files and columns are known. */
typedef struct TextLabelSet {
  const char *name, *title, *folder; /* "cola", "CoLA", the folder its archive leaves */
  const char *train, *test;          /* files */
  TextTableFormat format;
  const char *names_file; /* of class names, or NULL */
  bool by_hand;           /* `astra-data get` does not have it */
  bool dividable;         /* without the training file the test file serves for both parts */
  int classes;
  const char *labels[TEXT_LABEL_MOST_CLASSES]; /* as in the file, in the order of the classes */
  const char *names[TEXT_LABEL_MOST_CLASSES];
} TextLabelSet;

typedef struct TextLabelName {
  const TextLabelSet *set; /* NULL: tsv: or csv: */
  char *path;              /* DIR, "" for a set without; or FILE */
  char *test;              /* FILE or NULL */
  TextTableFormat format;
  char *owned; /* what path, test and the columns point into */
} TextLabelName;

bool text_label_name_knows(const char *name);
/* BAD_VALUE names the option that is wrong. Release also after a failure. */
Status text_label_name_parse(TextLabelName *parsed, const char *name);
void text_label_name_release(TextLabelName *parsed);

#endif
