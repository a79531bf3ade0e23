/* cpu_wide.h - plans that compute in double, for the back end "oracle" of the tests
 * (tests/device/oracle). The product has none.
 */
#ifndef SH_RUNTIME_DEVICE_CPU_CPU_WIDE_H
#define SH_RUNTIME_DEVICE_CPU_CPU_WIDE_H

#include "runtime/device/cpu/cpu.h"

extern const struct dev_mem_ops CPU__MEM;
extern const struct dev_stream_ops CPU__STREAM;

struct cpu_wide {
    void (*begin)(struct cpu_plan *p); /* says which tensors are stored as doubles */
    bool (*has)(const struct dev_graph *g, const struct dev_op *op); /* false: as at fp32 */
    cpu_builder *build; /* for all operations that it has */
    void (*convert)(const void *from, void *to, size_t n, bool to_doubles); /* floats */
};

/* wide: BORROWED, static; or NULL. */
int cpu__plan_make(struct dev *d, struct dev_graph *g, const struct cpu_wide *wide,
                   const struct dev_plan *layout_of, struct dev_plan **out, struct sh_err *err);

#endif
