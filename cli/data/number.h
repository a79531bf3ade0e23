/* number.h - one element of a tensor, of any type: from a number and to one. Pure. */
#ifndef SH_CLI_DATA_NUMBER_H
#define SH_CLI_DATA_NUMBER_H

#include "common/dtype.h"

#include <stdbool.h>
#include <stddef.h>

bool number_is_float(enum sh_dtype t);
/* Element i of data = v, rounded to the nearest of its type. False: it is outside its range, or
 * not whole where it has to be; then nothing is written. */
bool number_put(enum sh_dtype t, void *data, size_t i, double v);
/* A whole number in full, where a double has no room for it. */
bool number_put_int(enum sh_dtype t, void *data, size_t i, int64_t v);
double number_get(enum sh_dtype t, const void *data, size_t i);

#endif
