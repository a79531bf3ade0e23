/* program.c - see program.h. */
#include "executor/program.h"

#include "common/conf.h"
#include "common/log.h"
#include "common/metrics.h"
#include "executor/hooks.h"

#include <signal.h>
#include <stdlib.h>

static void on_term(struct sh_loop *l, void *arg)
{
    (void)l;
    SH_INFO("executor.term", "msg=\"stopping\"");
    exec_stop(arg);
}

static void on_hup(struct sh_loop *l, void *arg)
{
    const struct exec *x = arg;

    (void)l;
    HOOK_TELL(x->hooks, hang_up);
}

static int run_program(struct exec *x, const struct exec_program *p, struct sh_err *err)
{
    const struct exec_conf *conf = p->conf;
    const struct exec_hooks *hooks = NULL;
    struct sh_metrics_http *http = NULL;
    struct sh_otlp *otlp = NULL;
    struct sh_loop *loop = NULL;
    int rc = p->begin ? p->begin(p->conf, &hooks, err) : SH_OK;

    if (!rc)
        rc = sh_loop_new(&loop, err);
    if (rc)
        return rc;
    rc = sh_loop_signals(loop, on_term, on_hup, x, err);
    if (!rc)
        rc = sh_otlp_start(&conf->otlp, "shunt-executor", conf->name, &otlp, err);
    if (!rc && conf->metrics_addr && conf->metrics_addr[0])
        rc = sh_metrics_http_start('e', conf->metrics_addr, &http, err);
    if (!rc && http)
        SH_INFO("metrics.listen", "port=%d", sh_metrics_http_port(http));
    if (!rc)
        rc = exec_start(x, conf, hooks, loop, err);
    if (!rc)
        rc = sh_loop_run(loop, err);
    exec_fini(x);
    sh_otlp_stop(otlp);
    sh_metrics_http_stop(http);
    sh_loop_free(loop);
    return rc;
}

int exec_program(const struct exec_program *p, int argc, char **argv)
{
    enum sh_conf_action action = SH_CONF_RUN;
    enum sh_log_level level = SH_LOG_INFO;
    struct exec x = {0};
    struct sh_err err = {0};
    int rc;

    sh_log_init("shunt-executor", SH_LOG_INFO);
    signal(SIGPIPE, SIG_IGN); /* an API that closes while it is written to */
    rc = sh_conf_load(p->options, p->conf, argc, argv, NULL, NULL, &action, &err);
    if (!rc && action == SH_CONF_RUN) {
        rc = sh_log_level_parse(p->conf->log_level, &level, &err);
        if (!rc) {
            sh_log_set_level(level);
            sh_conf_log(p->options, p->conf);
            rc = run_program(&x, p, &err);
        }
    }
    if (rc)
        sh_log_err(SH_LOG_ERROR, "executor.fail", &err);
    sh_conf_free(p->options, p->conf);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
