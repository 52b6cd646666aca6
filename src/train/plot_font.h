/* The letters of charts as pen strokes, so that they scale to any size and stay smooth. */
#ifndef TRAIN_PLOT_FONT_H
#define TRAIN_PLOT_FONT_H

/* Vertical places of the grid that glyphs are drawn on; y grows downwards. */
enum { PLOT_FONT_CAP = 9 /* height of capitals and digits: y 0 is their top, y 9 the baseline, y 12 the lowest descender */ };

/* The first character is the glyph's width (a digit); then strokes, separated by blanks, each a list of points: x (a digit) and y (a
 * hexadecimal digit). A stroke of one point is a dot. Characters outside printable ASCII look like '?'. */
const char *plot_font_glyph(char character);

#endif
