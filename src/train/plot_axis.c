/* Choice of range and ticks. Invariant: low < high, and their difference is far above the rounding of either, whatever the data. */
#include "train/plot_axis.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double MARGIN = 0.04; /* of the range, beyond the data on either side */

static double magnitude(double number) { return pow(10, floor(log10(number) + 1e-9)); }

/* The smallest of 1, 2, 5 times a power of ten that is not below `least`. */
static double round_up(double least) {
  const double power = magnitude(least);
  for (int i = 0; i < 3; i++)
    if ((double[]){1, 2, 5}[i] * power >= least * (1 - 1e-9)) return (double[]){1, 2, 5}[i] * power;
  return 10 * power;
}

/* "2.0e-05" -> "2.0e-5" */
static void shorten_exponent(char *label) {
  char *digit = strchr(label, 'e');
  if (!digit) return;
  digit += digit[1] == '+' ? 1 : 2;
  char *first = digit[0] == '+' ? digit + 1 : digit;
  char *kept = first;
  while (*kept == '0' && kept[1]) kept++;
  memmove(digit, kept, strlen(kept) + 1);
}

/* `most` is the largest size on the axis and `step` the distance of ticks: they decide on the unit and the decimals for all. */
static void print_label(char *label, double value, double most, double step) {
  if (value == 0) {
    strcpy(label, "0");
    return;
  }
  if (most >= 1e10 || most < 1e-3) {
    const int digits = (int)fmin(fmax(floor(log10(most) + 1e-9) - floor(log10(step) + 1e-9), 0), 6);
    snprintf(label, PLOT_AXIS_LABEL, "%.*e", digits, value);
    shorten_exponent(label);
    return;
  }
  const bool mega = step >= 1e6 || (most >= 2e6 && step >= 1e4), kilo = step >= 1e4 || (most >= 2e4 && step >= 10);
  const double unit = mega ? 1e6 : kilo ? 1e3 : 1;
  const int decimals = (int)fmin(fmax(-floor(log10(step / unit) + 1e-9), 0), 9);
  snprintf(label, PLOT_AXIS_LABEL, "%.*f%s", decimals, value / unit, mega ? "M" : kilo ? "k" : "");
}

static void add_tick(PlotAxis *axis, double value, double most, double step) {
  if (axis->count == PLOT_AXIS_TICKS) return;
  axis->tick[axis->count] = value;
  print_label(axis->label[axis->count++], value, most, step);
}

static void linear_ticks(PlotAxis *axis, double low, double high, int wanted, double least_step) {
  const double step = fmax(round_up((high - low) / wanted), least_step), first = ceil(low / step), most = fmax(fabs(low), fabs(high));
  axis->count = 0;
  for (int i = 0; i < PLOT_AXIS_TICKS && (first + i) * step <= high; i++) add_tick(axis, (first + i) * step, most, step);
}

/* Decades, every second or third ... when they are many; with 2 and 5 between them when they are few. */
static void log_ticks(PlotAxis *axis, int wanted) {
  const double decades = axis->high - axis->low, stride = ceil(decades / wanted);
  axis->count = 0;
  for (double power = floor(axis->low / stride) * stride; power <= axis->high; power += stride)
    for (int i = 0; i < (decades * 3 <= wanted + 1 ? 3 : 1); i++) {
      const double value = (double[]){1, 2, 5}[i] * pow(10, power);
      if (log10(value) >= axis->low && log10(value) <= axis->high) add_tick(axis, value, value, magnitude(value));
    }
  if (axis->count < 2) linear_ticks(axis, pow(10, axis->low), pow(10, axis->high), wanted, 0);
}

static double clamp(double value) { return fmin(fmax(value, -1e300), 1e300); }

void plot_axis_fit(PlotAxis *axis, double least, double most, bool log, int wanted, double least_step) {
  memset(axis, 0, sizeof *axis);
  axis->log = log;
  least = log ? log10(least) : clamp(least);
  most = log ? log10(most) : clamp(most);
  const double size = fmax(fabs(least), fabs(most));
  double margin = MARGIN * (most - least);
  if (most - least <= 1e-9 * size || most == least) margin = log ? 0.5 : size > 0 ? 0.1 * size : 1; /* one value: amid the axis */
  axis->low = least - margin;
  axis->high = most + margin;
  if (log)
    log_ticks(axis, wanted);
  else
    linear_ticks(axis, axis->low, axis->high, wanted, least_step);
}

double plot_axis_place(const PlotAxis *axis, double value) {
  return ((axis->log ? log10(value) : clamp(value)) - axis->low) / (axis->high - axis->low);
}
