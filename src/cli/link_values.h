/* Values of options about links: rates and times with their unit, sizes, and lists. */
#ifndef CLI_LINK_VALUES_H
#define CLI_LINK_VALUES_H
#include "base/status.h"

/* "20mbit", "1gbit", "500kbit", "9600bit": bits a second. BAD_USAGE names the option and what is accepted. */
Status link_values_rate(const char *option, const char *text, double *bits_per_second);

/* "2ms", "1s", "50us": seconds. */
Status link_values_time(const char *option, const char *text, double *seconds);

/* "512M", "1.5G", "64k" or plain bytes; powers of 1,024. */
Status link_values_size(const char *option, const char *text, double *bytes);

/* "1,16,32": whole numbers in [least, most], at most `room` of them. */
Status link_values_list(const char *option, const char *text, int least, int most, int *list, int room, int *count);

/* "1,1,0.5": positive numbers; likewise. */
Status link_values_numbers(const char *option, const char *text, double *list, int room, int *count);

#endif
