/* A text's perplexity under a convention: see perplexity_report.h. */
#include "cli/perplexity_report.h"
#include "nn/json_build.h"
#include <math.h>
#include <stdio.h>

void perplexity_report_print(const Perplexity *perplexity, const char *on, const char *end) {
  if (isnan(perplexity->nats)) return;
  printf("perplexity (%s) %.4f%s = exp(%.2f nats / %lld)%s\n", perplexity_name(perplexity->unit), perplexity->value, on, perplexity->nats,
         (long long)perplexity->units, end);
  if (perplexity->page_bytes > 0)
    printf("word_perplexity %.4f, byte_perplexity %.6f, bits_per_byte %.6f (%lld bytes)\n", perplexity->value, perplexity->byte_value,
           perplexity->bits_per_byte, (long long)perplexity->page_bytes);
}

void perplexity_report_json(const Perplexity *perplexity, json_t *object) {
  json_object_set_new(object, "perplexity", json_build_number(perplexity->value));
  json_object_set_new(object, "convention", json_string(perplexity_name(perplexity->unit)));
  json_object_set_new(object, "divided_by", json_string(perplexity_counts(perplexity->unit)));
  json_object_set_new(object, "units", json_integer((json_int_t)perplexity->units));
  if (perplexity->page_bytes == 0) return;
  json_object_set_new(object, "word_perplexity", json_build_number(perplexity->value));
  json_object_set_new(object, "byte_perplexity", json_build_number(perplexity->byte_value));
  json_object_set_new(object, "bits_per_byte", json_build_number(perplexity->bits_per_byte));
  json_object_set_new(object, "bytes", json_integer((json_int_t)perplexity->page_bytes));
}
