/* route.c - see route.h. */
#include "scheduler/route.h"

#include "scheduler/apis.h"
#include "scheduler/models/serving.h"
#include "scheduler/sched.h"

static int on_hello(struct sched *s, struct session *x, const struct sh_msg *m, struct sh_err *err)
{
    if (m->type == MSG_API_HELLO)
        return apis_on_hello(s, x, &m->u.api_hello, err);
    if (m->type == MSG_EXEC_HELLO)
        return execs_on_hello(s, x, &m->u.exec_hello, err);
    return SH_FAIL(err, SH_E_PROTO, "the first message is %s, not a hello", sh_msg_name(m->type));
}

static void on_welcomed(struct sched *s, struct session *x)
{
    if (!x->api)
        return;
    execs_tell_api(s, x);
    serving_tell_api(s, x);
}

static void on_msg(struct sched *s, struct session *x, const struct sh_msg *m)
{
    if (x->api)
        apis_on_msg(s, x->api, m);
    else
        execs_on_msg(s, x->exec, m);
}

static void on_close(struct sched *s, struct session *x, const char *why)
{
    if (x->api)
        apis_on_close(s, x->api, why);
    if (x->exec)
        execs_on_close(s, x->exec, why);
}

const struct sched_route SCHED_ROUTE = {
    .poll = sched__poll,
    .stand_down = sched_stand_down,
    .on_hello = on_hello,
    .on_welcomed = on_welcomed,
    .on_msg = on_msg,
    .on_close = on_close,
    .on_model = jobs_on_model,
    .on_model_away = requests_on_model_away,
    .on_shape_away = requests_on_shape_away,
    .on_unready = requests_on_unready,
};
