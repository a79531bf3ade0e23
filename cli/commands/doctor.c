/* doctor.c - `shunt doctor`: is this machine fit for a system, and what would make it fitter? */
#include "cli/commands.h"
#include "cli/host/gpus.h"
#include "cli/host/machine.h"
#include "cli/host/system.h"
#include "cli/text/field.h"
#include "cli/text/out.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

#define SMI "nvidia-smi"
#define RUN "shunt-run"

/* What was found and what to do, where not all is well: a column would cut it. */
static void print_advice(const struct cli *c, const json_t *list)
{
    const json_t *e;
    size_t i;
    bool any = false;

    json_array_foreach(list, i, e)
    {
        const char *advice = sh_json_text(e, "advice");

        if (strcmp(sh_json_text(e, "state"), "ok") == 0)
            continue;
        out_say(c, "%s%s, %s: %s%s%s", any ? "" : "\n", sh_json_text(e, "check"),
                sh_json_text(e, "state"), sh_json_text(e, "found"), advice[0] ? ". " : "", advice);
        any = true;
    }
}

static void check_devices(const char *device, struct gpus *g, struct checks *k)
{
    if (strcmp(device, "cuda") != 0) {
        gpus_try_cpu(RUN, k);
        return;
    }
    gpus_judge(g, k);
    gpus_try_cuda(g, RUN, sh_conf_env_raw("CUDA_VISIBLE_DEVICES"), k);
}

int doctor_main(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {
        {"CHECK", "check", OUT_TEXT}, {"STATE", "state", OUT_TEXT}, {"FOUND", "found", OUT_TEXT}};
    const char *device = c->conf->device;
    struct machine m;
    struct gpus g;
    struct checks k;
    int rc;

    if (device && strcmp(device, "cpu") != 0 && strcmp(device, "cuda") != 0)
        return cli_usage(c, err, "--device is cpu or cuda, not \"%.40s\"", device);
    rc = checks_init(&k, err);
    if (rc)
        return rc;
    gpus_read("", SMI, &g);
    if (!device)
        device = g.n || g.driver ? "cuda" : "cpu";
    machine_read("", &m);
    machine_judge(&m, strcmp(device, "cuda") == 0, &k);
    check_devices(device, &g, &k);
    system_check(c->conf, &k);
    rc = k.rc ? SH_FAIL(err, k.rc, "could not note all that was found")
              : out_list(c, k.list, COLS, SH_ARRAY_LEN(COLS), "check", err);
    if (!rc)
        print_advice(c, k.list);
    if (!rc && (k.n[CHECK_FAIL] || (c->conf->strict && k.n[CHECK_WARN])))
        rc = SH_FAIL(err, SH_E_UNAVAILABLE, "%zu of %zu checks failed, %zu are warnings",
                     k.n[CHECK_FAIL], json_array_size(k.list), k.n[CHECK_WARN]);
    checks_fini(&k);
    return rc;
}
