/* shortage.h - memory, descriptors and places in queues that an executor asks for and does not get:
 * calls of its own objects that can fail for want of them (the linker puts these in their place).
 * What the simulated world allocates in its name is spared.
 */
#ifndef SH_TESTS_SIM_SHORTAGE_H
#define SH_TESTS_SIM_SHORTAGE_H

#include "common/err.h"

/* Of every executor: the chance of each such call, and of one that allocates. 0: all is there. */
extern double sim_shortage;
uint64_t sim_shortage_n(void); /* calls that failed, so far */

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int __wrap_sh_asprintf(struct sh_err *err, char **out, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
