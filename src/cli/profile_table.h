/* A profile (train/bench_profile.h) as a table and as JSON: where the time of a step goes, and what of it lies outside of products. */
#ifndef CLI_PROFILE_TABLE_H
#define CLI_PROFILE_TABLE_H
#include "train/bench_profile.h"
#include <jansson.h>

/* `step`: seconds of the mean repetition, of which the shares are; peak_part: rate of the products over the machine's best. Sorts the parts
 * by time. */
void profile_table_print(BenchProfile *profile, const char *title, int64_t repetitions, double step, double peak_part);

json_t *profile_table_json(const BenchProfile *profile, int64_t repetitions);

#endif
