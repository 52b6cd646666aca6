/* See profile_table.h. */
#include "cli/profile_table.h"
#include <stdio.h>
#include <stdlib.h>

static const char *const phase_names[] = {[TAPE_FORWARD] = "forward", [TAPE_BACKWARD] = "backward", [TAPE_AROUND] = "around"};

static int by_time(const void *a, const void *b) {
  double x = ((const BenchPart *)a)->seconds, y = ((const BenchPart *)b)->seconds;
  return (x < y) - (x > y);
}

static void print_sum(const char *name, double all, double products, double step) {
  printf("  %-34s %10.2f %10.2f %10.2f %8.1f\n", name, all, products, all - products, 100 * (all - products) / step);
}

void profile_table_print(BenchProfile *profile, const char *title, int64_t repetitions, double step, double peak_part) {
  double each = 1e3 / (double)repetitions, all = 0, products = 0;
  step *= 1e3;
  qsort(profile->part, (size_t)profile->parts, sizeof *profile->part, by_time);
  printf("\n%-36s %10s %10s %10s %8s %8s\n", title, "ms a step", "products", "the rest", "% rest", "calls");
  for (const BenchPart *part = profile->part; part < profile->part + profile->parts; part++) {
    double whole = each * part->seconds, inside = each * part->product_seconds;
    printf("  %-24s %-9s %10.2f %10.2f %10.2f %8.1f %8.0f\n", part->name, phase_names[part->phase], whole, inside, whole - inside,
           100 * (whole - inside) / step, (double)part->calls / (double)repetitions);
    all += whole;
    products += inside;
  }
  print_sum("between operations", step - all, 0, step);
  print_sum("mean step", step, products, step);
  printf("  inside products %.1f%% of a step, at %.1f%% of the best rate; outside %.1f%%\n", 100 * products / step, 100 * peak_part,
         100 - 100 * products / step);
}

json_t *profile_table_json(const BenchProfile *profile, int64_t repetitions) {
  json_t *list = json_array();
  double count = (double)repetitions;
  for (const BenchPart *part = profile->part; part < profile->part + profile->parts; part++)
    json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", part->name, "phase", phase_names[part->phase],
                                          "milliseconds", 1e3 * part->seconds / count, "product_milliseconds",
                                          1e3 * part->product_seconds / count, "calls", (double)part->calls / count));
  return list;
}
