/* lab.c - the laboratory's options and what they change, except ablations. */
#include "tests/lab/lab.h"

#include "common/clock.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

const struct sh_conf_opt LAB_OPTIONS[] = {
    SH_OPT_STR(struct lab_conf, lab.switch_mode, "debug-switch-mode", "optimum", 0,
               "grouping of copies: optimum, per-layer, one-group or fixed-2mb"),
    SH_OPT_STR(struct lab_conf, lab.stop_way, "debug-stop-way", "auto", 0,
               "how training stops for a run: auto (by the memory needed), pause, drop, swap or "
               "turns (one after the other)"),
    SH_OPT_STR(struct lab_conf, lab.ablation, "debug-ablation", "none", 0,
               "leaves out what makes a switch fast (tests/lab/lab.h): none, no-daemon, ipc, "
               "pageable, one-process, two-processes, new-process or a debug-switch-mode; several "
               "with commas: SIGHUP goes on to the next"),
    SH_OPT_INT(struct lab_conf, lab.hold_ms, "debug-hold-ms", 0, 0, 86400000, 0,
               "training is held off for a quarter of the time, so long at a time, ms; 0: where "
               "images are worth more"),
    SH_OPT_BOOL(struct lab_conf, lab.is_cold, "debug-cold", false, 0,
                "a model leaves the device when its run ends"),
};
const size_t LAB_N_OPTIONS = SH_ARRAY_LEN(LAB_OPTIONS);

static void begin(void *arg, struct exec *x)
{
    struct lab *l = arg;

    l->x = x;
    lab_set_mode(x->tx, l->steps[0].mode);
}

static bool drops_idle(void *arg)
{
    const struct lab *l = arg;

    return l->is_cold;
}

static bool stops_early(void *arg)
{
    const struct lab *l = arg;

    return !l->takes_turns && l->way == STOP_N_WAYS;
}

static enum stop_way way_beside(void *arg)
{
    struct lab *l = arg;

    if (l->takes_turns)
        return (enum stop_way)(l->n_stops++ % STOP_N_WAYS);
    return l->way == STOP_N_WAYS ? STOP_PAUSE : l->way;
}

static bool holds_off(void *arg, bool does)
{
    const struct lab *l = arg;

    return l->hold_ns ? sh_clock_ns() / l->hold_ns % 4 == 0 : does;
}

static int parse_way(struct lab *l, const char *name, struct sh_err *err)
{
    l->way = STOP_N_WAYS;
    l->takes_turns = strcmp(name, "turns") == 0;
    if (l->takes_turns || strcmp(name, "auto") == 0)
        return SH_OK;
    for (int w = 0; w < STOP_N_WAYS; w++)
        if (strcmp(name, stop_way_name((enum stop_way)w)) == 0) {
            l->way = (enum stop_way)w;
            return SH_OK;
        }
    return SH_FAIL(err, SH_E_INVALID,
                   "debug-stop-way \"%.32s\" is unknown; use auto, pause, drop, swap or turns",
                   name);
}

int lab_init(struct lab *l, const struct lab_wishes *w, const struct exec_hooks **hooks,
             struct sh_err *err)
{
    enum lab_mode mode = LAB_OPTIMUM;
    int rc = SH_OK;

    *hooks = NULL;
    *l = (struct lab){.is_cold = w->is_cold,
                      .hold_ns = w->hold_ms * 1000000,
                      .hooks = {.begin = begin,
                                .arg = l,
                                .pool.arg = l,
                                .models = {.drops_idle = drops_idle, .arg = l},
                                .runs = {.stops_early = stops_early,
                                         .holds_off = holds_off,
                                         .way_beside = way_beside,
                                         .arg = l}}};
    ablation_fill(&l->hooks);
    if (w->switch_mode)
        rc = lab_mode_parse(w->switch_mode, &mode, err);
    if (!rc)
        rc = parse_way(l, w->stop_way ? w->stop_way : "auto", err);
    if (!rc)
        rc = ablation_parse(l, w->ablation ? w->ablation : "none", mode, err);
    if (rc)
        return rc;
    if (l->is_cold || l->hold_ns || l->takes_turns || l->way != STOP_N_WAYS || l->n_steps > 1 ||
        l->now != ABLATION_NONE || l->steps[0].mode != LAB_OPTIMUM)
        *hooks = &l->hooks;
    return SH_OK;
}
