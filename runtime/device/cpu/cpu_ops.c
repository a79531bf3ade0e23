/* cpu_ops.c - the back end "cpu". */
#include "runtime/device/cpu/cpu_wide.h"

static const struct dev_plan_ops PLAN = {
    .create = cpu__plan_new,
    .free = cpu__plan_free,
    .scratch_bytes = cpu__plan_scratch_bytes,
    .set_scratch = cpu__plan_set_scratch,
    .finish = cpu__plan_finish,
    .pack = cpu__plan_pack,
    .unpack = cpu__plan_unpack,
    .run = cpu__plan_run,
    .profile = cpu__plan_profile,
};

extern const struct dev_ops shunt_dev_ops;
__attribute__((visibility("default"))) const struct dev_ops shunt_dev_ops = {
    .abi = DEV_ABI,
    .name = "cpu",
    .mem = &CPU__MEM,
    .stream = &CPU__STREAM,
    .plan = &PLAN,
};
