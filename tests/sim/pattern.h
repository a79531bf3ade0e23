/* pattern.h - what a simulated worker makes of its inputs, and a client expects.
 *
 * A function of the version and of all bytes of one request's inputs, so that outputs of another
 * request, of another version or of nobody are seen. */
#ifndef SH_TESTS_SIM_PATTERN_H
#define SH_TESTS_SIM_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* Feed the version's id, then the inputs in their order. */
uint64_t sim_pattern_begin(int64_t version_id);
uint64_t sim_pattern_add(uint64_t state, const void *in, size_t n);
void sim_pattern_write(uint64_t state, void *out, size_t n); /* the outputs, one after another */
/* Where the first byte differs; n: none does. */
size_t sim_pattern_check(uint64_t state, const void *out, size_t n);

#endif
