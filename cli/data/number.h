/* number.h - converts one element of a tensor of any type from and to a number. Pure. */
#ifndef SH_CLI_DATA_NUMBER_H
#define SH_CLI_DATA_NUMBER_H

#include "common/dtype.h"

#include <stdbool.h>
#include <stddef.h>

bool number_is_float(enum sh_dtype t);
/* Sets element i of data to v, rounded to the nearest value of its type. False: v is out of range,
 * or not an integer where it must be; nothing is then written. */
bool number_put(enum sh_dtype t, void *data, size_t i, double v);
/* The same for an integer that a double cannot hold exactly. */
bool number_put_int(enum sh_dtype t, void *data, size_t i, int64_t v);
double number_get(enum sh_dtype t, const void *data, size_t i);

#endif
