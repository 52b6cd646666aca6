/* Charts: the file decodes with the right size and shows something; ticks are round and labels distinct; extreme data does no harm.
 * How it looks is for eyes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/files.h"
#include "train/plot.c"
#include "unit/remove_tree.h"
#include <float.h>
#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 420, HEIGHT = 300 };

static char folder[TEMPORARY_PATH], path[TEMPORARY_PATH + 16];

static int enter(void **state) {
  (void)state;
  if (make_temporary_folder(folder) != 0) return -1;
  snprintf(path, sizeof path, "%s/plot.png", folder);
  return 0;
}

static int leave(void **state) {
  (void)state;
  return remove_tree(folder);
}

typedef struct Decoded {
  png_image image;
  uint8_t *rgb;
} Decoded;

static Decoded decode(void) {
  Decoded image = {.image = {.version = PNG_IMAGE_VERSION}};
  assert_int_not_equal(png_image_begin_read_from_file(&image.image, path), 0);
  image.image.format = PNG_FORMAT_RGB;
  image.rgb = malloc(PNG_IMAGE_SIZE(image.image));
  assert_non_null(image.rgb);
  assert_int_not_equal(png_image_finish_read(&image.image, NULL, image.rgb, 0, NULL), 0);
  return image;
}

/* Pixels that are clearly coloured: neither text, grid nor frame is. */
static int coloured(const Decoded *image) {
  int count = 0;
  for (size_t i = 0; i < (size_t)image->image.width * image->image.height; i++) {
    const uint8_t *p = image->rgb + 3 * i;
    const int max = p[0] > p[1] ? (p[0] > p[2] ? p[0] : p[2]) : (p[1] > p[2] ? p[1] : p[2]);
    const int min = p[0] < p[1] ? (p[0] < p[2] ? p[0] : p[2]) : (p[1] < p[2] ? p[1] : p[2]);
    count += max - min > 60;
  }
  return count;
}

/* Draws one series in one panel and returns the number of coloured pixels. */
static int draw(const double *x, const double *y, size_t count, bool log_x, bool log_y) {
  const PlotSeries series = {.name = "series", .x = x, .y = y, .count = count};
  const PlotPanel panel = {.title = "Panel", .x_label = "x", .y_label = "y", .series = &series, .count = 1, .log_x = log_x, .log_y = log_y};
  assert_int_equal(plot_save(path, "Title", &panel, 1, WIDTH, HEIGHT), STATUS_OK);
  Decoded image = decode();
  assert_true(image.image.width >= WIDTH && image.image.width < WIDTH + 64);
  assert_true(image.image.height >= HEIGHT && image.image.height < HEIGHT + 96);
  const int result = coloured(&image);
  free(image.rgb);
  return result;
}

static int swatch; /* coloured pixels of the legend alone */

static void empty_panels_are_drawn(void **state) {
  (void)state;
  const double x[] = {1, 2}, none[] = {(double)NAN, (double)NAN}, beyond[] = {(double)INFINITY, (double)-INFINITY}, negative[] = {-1, 0};
  swatch = draw(x, none, 2, false, false);
  assert_in_range(swatch, 20, 80);
  assert_int_equal(draw(NULL, NULL, 0, false, false), swatch);
  assert_int_equal(draw(x, beyond, 2, false, false), swatch);
  assert_int_equal(draw(x, negative, 2, false, true), swatch);
  const PlotPanel bare = {.title = "", .x_label = "", .y_label = ""};
  assert_int_equal(plot_save(path, "", &bare, 1, WIDTH, HEIGHT), STATUS_OK);
  assert_int_equal(plot_save(path, NULL, &(PlotPanel){0}, 1, WIDTH, HEIGHT), STATUS_OK);
}

static void extreme_data_is_drawn(void **state) {
  (void)state;
  const double x[] = {0, 1, 2, 3}, far[] = {-DBL_MAX, 0, 1, DBL_MAX};
  const double equal[] = {7, 7, 7, 7}, zero[] = {0, 0, 0, 0}, huge[] = {-DBL_MAX, DBL_MAX, 1e300, 0},
               tiny[] = {0, DBL_TRUE_MIN, DBL_MIN, 0};
  const double close[] = {1e15, 1e15 + 0.125, 1e15 + 0.25, 1e15}, one[] = {(double)NAN, 5, (double)NAN, (double)INFINITY};
  const double *const all[] = {equal, zero, huge, tiny, close};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) assert_true(draw(x, all[i], 4, false, false) > swatch + 200);
  assert_in_range(draw(x, one, 4, false, false) - swatch, 20, 60); /* a dot */
  assert_true(draw(far, equal, 4, false, false) > swatch + 200);
  assert_true(draw(x, huge, 4, true, true) > swatch + 10);
  assert_true(draw(x, tiny, 4, true, true) > swatch + 50);
}

static void arrangement_has_three_to_a_row(void **state) {
  (void)state;
  const double x[] = {1, 10, 100}, y[] = {3, 1, 2};
  const PlotSeries series[] = {{.name = "one", .x = x, .y = y, .count = 3, .points = true}, {.name = "two", .x = y, .y = x, .count = 3}};
  PlotPanel panels[5];
  for (int i = 0; i < 5; i++)
    panels[i] =
        (PlotPanel){.title = "Panel", .x_label = "x", .y_label = "y", .series = series, .count = 2, .log_x = i == 1, .log_y = i == 2};
  assert_int_equal(plot_save(path, "Five", panels, 5, WIDTH, HEIGHT), STATUS_OK);
  Decoded image = decode();
  assert_int_equal(image.image.width / WIDTH, 3);
  assert_int_equal(image.image.height / HEIGHT, 2);
  assert_true(coloured(&image) > 5 * 300);
  free(image.rgb);
}

/* A rising line stands lower at the left than at the right, and its colour is the first of the palette. */
static void curve_is_where_it_belongs(void **state) {
  (void)state;
  double x[100], y[100];
  for (int i = 0; i < 100; i++) x[i] = y[i] = i;
  const PlotSeries series = {.name = "", .x = x, .y = y, .count = 100};
  assert_int_equal(
      plot_save(path, "", &(PlotPanel){.title = "", .x_label = "", .y_label = "", .series = &series, .count = 1}, 1, WIDTH, HEIGHT),
      STATUS_OK);
  Decoded image = decode();
  int lowest[2] = {0}, column[2] = {(int)image.image.width / 3, (int)image.image.width * 3 / 4};
  for (int side = 0; side < 2; side++)
    for (int row = 100; row < (int)image.image.height; row++) {
      const uint8_t *p = image.rgb + 3 * ((size_t)row * image.image.width + (size_t)column[side]);
      if (p[2] > p[0] + 100) lowest[side] = row;
    }
  assert_true(lowest[1] > 0);
  assert_true(lowest[0] > lowest[1] + 60);
  free(image.rgb);
}

static void bad_requests_are_refused(void **state) {
  (void)state;
  const PlotPanel panel = {.title = "", .x_label = "", .y_label = ""};
  assert_int_equal(plot_save(path, "", &panel, 0, WIDTH, HEIGHT), STATUS_BAD_VALUE);
  assert_int_equal(plot_save(path, "", &panel, 1, 10, HEIGHT), STATUS_BAD_VALUE);
  assert_int_equal(plot_save(path, "", &panel, 1, WIDTH, 1 << 20), STATUS_BAD_VALUE);
  assert_int_not_equal(plot_save("/nonexistent/directory/x.png", "", &panel, 1, WIDTH, HEIGHT), STATUS_OK);
  assert_non_null(strstr(status_message(), "/nonexistent/directory/x.png"));
}

static void check_steps(double min, double max, bool log, double min_step, const char *labels) {
  PlotAxis axis;
  char text[PLOT_AXIS_TICKS * (PLOT_AXIS_LABEL + 1)] = "";
  plot_axis_fit(&axis, min, max, log, 6, min_step);
  assert_true(plot_axis_place(&axis, min) > 0 && plot_axis_place(&axis, max) < 1);
  for (int i = 0; i < axis.count; i++) {
    const double place = plot_axis_place(&axis, axis.tick[i]);
    assert_true(place >= -1e-9 && place <= 1 + 1e-9);
    strcat(strcat(text, i ? " " : ""), axis.label[i]);
  }
  assert_string_equal(text, labels);
}

static void check_axis(double min, double max, bool log, const char *labels) { check_steps(min, max, log, 0, labels); }

/* Bars reach down to the axis, one on the other without a gap, and side by side; a dashed line is thinner than a whole one. */
static void bars_stand_on_each_other(void **state) {
  (void)state;
  const double x[] = {1, 2}, low[] = {2, 2}, high[] = {3, 4}, other[] = {1, 1};
  PlotSeries series[] = {{.name = "low", .x = x, .y = low, .count = 2, .style = PLOT_BAR},
                         {.name = "high", .x = x, .y = high, .count = 2, .style = PLOT_ON_BAR},
                         {.name = "other", .x = x, .y = other, .count = 2, .style = PLOT_BAR}};
  int pixels[3];
  for (size_t count = 1; count <= 3; count++) {
    const PlotPanel panel = {.title = "Panel", .x_label = "x", .y_label = "y", .series = series, .count = count};
    assert_int_equal(plot_save(path, "Title", &panel, 1, WIDTH, HEIGHT), STATUS_OK);
    Decoded image = decode();
    pixels[count - 1] = coloured(&image);
    free(image.rgb);
  }
  assert_true(pixels[0] > 5000);
  assert_true(pixels[1] > 0.6 * pixels[0]); /* the axis is longer, and the whole bars are seen */
  assert_true(pixels[2] > 0.6 * pixels[1]); /* half as wide, and another colour beside */
  const double line_x[] = {0, 1}, line_y[] = {0, 1};
  int whole = draw(line_x, line_y, 2, false, false);
  const PlotSeries dashed = {.name = "series", .x = line_x, .y = line_y, .count = 2, .style = PLOT_DASHED};
  const PlotPanel panel = {.title = "Panel", .x_label = "x", .y_label = "y", .series = &dashed, .count = 1};
  assert_int_equal(plot_save(path, "Title", &panel, 1, WIDTH, HEIGHT), STATUS_OK);
  Decoded image = decode();
  int seen = coloured(&image);
  free(image.rgb);
  assert_true(seen > whole / 4 && seen < 3 * whole / 4);
}

static void ticks_are_round(void **state) {
  (void)state;
  check_axis(0, 1, false, "0 0.2 0.4 0.6 0.8 1.0");
  check_axis(1, 3, false, "1.0 1.5 2.0 2.5 3.0");
  check_steps(1, 3, false, 1, "1 2 3"); /* of what is counted */
  check_steps(0, 20000, false, 1, "0 5k 10k 15k 20k");
  check_axis(0, 20000, false, "0 5k 10k 15k 20k");
  check_axis(-3, 7, false, "-2 0 2 4 6");
  check_axis(0, 3e6, false, "0 1M 2M 3M");
  check_axis(1e-5, 4e-5, false, "1e-5 2e-5 3e-5 4e-5");
  check_axis(0, 3e-4, false, "0 1e-4 2e-4 3e-4");
  check_axis(0.9981, 0.9989, false, "0.9982 0.9984 0.9986 0.9988");
  check_axis(1, 1000, true, "1 10 100 1000");
  check_axis(1, 60, true, "1 2 5 10 20 50");
  check_axis(1e-6, 1e6, true, "1e-6 0.001 1 1000 1M");
  check_axis(1000000.25, 1000001.5, false, "1000000.5 1000001.0 1000001.5");
  check_axis(7, 7, false, "6.5 7.0 7.5");
}

/* Few x of a log axis are its ticks, each once; many have round ones. */
static void few_values_are_ticks(void **state) {
  (void)state;
  const double sizes[] = {2048, 256, 1024, 512, 256, -1, 614.4}, y[] = {1, 2, 3, 4, 5, 6, 7};
  PlotSeries series = {.name = "series", .x = sizes, .y = y, .count = 7};
  const PlotPanel panel = {.series = &series, .count = 1, .log_x = true};
  PlotAxis axis;
  plot_axis_fit(&axis, 256, 2048, true, 6, 0);
  tick_values(&axis, &panel, 5);
  assert_int_equal(axis.count, 5);
  const char *labels[] = {"256", "512", "614.4", "1024", "2048"};
  for (int i = 0; i < 5; i++) {
    assert_string_equal(axis.label[i], labels[i]);
    assert_true(fabs(axis.tick[i] - strtod(labels[i], NULL)) < 1e-9);
  }
  plot_axis_fit(&axis, 256, 2048, true, 6, 0);
  tick_values(&axis, &panel, 4);
  assert_string_equal(axis.label[0], "500");
}

static int inked(const PlotCanvas *canvas) {
  int count = 0;
  for (int i = 0; i < canvas->width * canvas->height; i++) count += canvas->rgb[3 * i] < 128;
  return count;
}

/* Every printable character but the blank leaves ink, within the width it claims. */
static void letters_have_shapes(void **state) {
  (void)state;
  PlotCanvas canvas;
  for (int code = ' '; code < 127; code++) {
    const char text[2] = {(char)code, 0};
    assert_int_equal(canvas_init(&canvas, 64, 64), STATUS_OK);
    canvas_text(&canvas, 10, 40, text, (PlotText){2, 2, {0, 0, 0}, false});
    assert_int_equal(inked(&canvas) > 0, code != ' ');
    const PlotBox claimed = {8, 20, 13 + (int)ceil(canvas_text_width(text, 2)), 50};
    canvas_rectangle(&canvas, claimed, (PlotColour){255, 255, 255});
    assert_int_equal(inked(&canvas), 0);
    canvas_release(&canvas);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(empty_panels_are_drawn),
      cmocka_unit_test(extreme_data_is_drawn),
      cmocka_unit_test(arrangement_has_three_to_a_row),
      cmocka_unit_test(curve_is_where_it_belongs),
      cmocka_unit_test(bad_requests_are_refused),
      cmocka_unit_test(bars_stand_on_each_other),
      cmocka_unit_test(ticks_are_round),
      cmocka_unit_test(few_values_are_ticks),
      cmocka_unit_test(letters_have_shapes),
  };
  return cmocka_run_group_tests(tests, enter, leave);
}
