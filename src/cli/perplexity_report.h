/* A text's perplexity under --perplexity, as astra-train --eval-only and astra-infer eval tell it. */
#ifndef CLI_PERPLEXITY_REPORT_H
#define CLI_PERPLEXITY_REPORT_H
#include "data/text/text_perplexity.h"
#include <jansson.h>

/* A line, and with PERPLEXITY_LM_EVAL one of the harness's other two measures. `on` stands behind the figure (" plain"), `end` at the
 * line's end. Nothing where the nats are not known. */
void perplexity_report_print(const Perplexity *perplexity, const char *on, const char *end);

/* The same as members of an object: "perplexity", in place of that per token, "convention", "divided_by"... */
void perplexity_report_json(const Perplexity *perplexity, json_t *object);

#endif
