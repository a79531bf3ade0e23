/* jobctl.c - see jobctl.h. */
#include "api/spec/jobctl.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

#define ARROWS(list) list, SH_ARRAY_LEN(list)

static const struct jobctl_arrow HOLD[] = {{"QUEUED", "HELD"}};
static const struct jobctl_arrow RELEASE[] = {{"HELD", "QUEUED"}};
static const struct jobctl_arrow GIVE_UP[] = {
    {"STARTING", "STARTING"}, {"RUNNING", "RUNNING"}, {"PREEMPTED", "PREEMPTED"}};
static const struct jobctl_arrow RESUME[] = {{"SUSPENDED", "QUEUED"},
                                             {"STARTING+SUSPEND", "STARTING"},
                                             {"RUNNING+SUSPEND", "RUNNING"},
                                             {"PREEMPTED+SUSPEND", "PREEMPTED"},
                                             {"COMPLETING+SUSPEND", "COMPLETING"}};
static const struct jobctl_arrow SAVE[] = {{"RUNNING", "RUNNING"}, {"PREEMPTED", "PREEMPTED"}};
static const struct jobctl_arrow CANCEL[] = {{"QUEUED", "CANCELLED"},
                                             {"HELD", "CANCELLED"},
                                             {"SUSPENDED", "CANCELLED"},
                                             {"STARTING", "CANCELLING"},
                                             {"STARTING+SUSPEND", "CANCELLING"},
                                             {"STARTING+REQUEUE", "CANCELLING"},
                                             {"RUNNING", "CANCELLING"},
                                             {"RUNNING+SUSPEND", "CANCELLING"},
                                             {"RUNNING+REQUEUE", "CANCELLING"},
                                             {"PREEMPTED", "CANCELLING"},
                                             {"PREEMPTED+SUSPEND", "CANCELLING"},
                                             {"PREEMPTED+REQUEUE", "CANCELLING"},
                                             {"COMPLETING", "CANCELLING"},
                                             {"COMPLETING+SUSPEND", "CANCELLING"},
                                             {"COMPLETING+REQUEUE", "CANCELLING"}};

static const struct jobctl ACTIONS[] = {
    {"hold", "", "Held", false, ARROWS(HOLD), "HELD"},
    {"release", "", "Released", false, ARROWS(RELEASE), "QUEUED"},
    {"suspend", "SUSPEND", "SuspendAsked", false, ARROWS(GIVE_UP),
     "SUSPENDED STARTING+SUSPEND RUNNING+SUSPEND PREEMPTED+SUSPEND COMPLETING+SUSPEND"},
    {"resume", "", "Resumed", false, ARROWS(RESUME), "QUEUED"},
    {"requeue", "REQUEUE", "RequeueAsked", false, ARROWS(GIVE_UP),
     "STARTING+REQUEUE RUNNING+REQUEUE PREEMPTED+REQUEUE COMPLETING+REQUEUE"},
    {"checkpoint", "", "CheckpointAsked", true, ARROWS(SAVE), ""},
    {"cancel", "", "CancelledByUser", false, ARROWS(CANCEL), "CANCELLING CANCELLED"},
};

const struct jobctl *jobctl_find(const char *name)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(ACTIONS); i++)
        if (strcmp(ACTIONS[i].name, name) == 0)
            return &ACTIONS[i];
    return NULL;
}

bool jobctl_has_flag(const json_t *job, const char *flag)
{
    const json_t *v;
    size_t i;

    json_array_foreach(json_object_get(job, "flags"), i, v)
    {
        if (strcmp(json_string_value(v), flag) == 0)
            return true;
    }
    return false;
}

static void job_place(const json_t *job, char *out, size_t size)
{
    const char *state = json_string_value(json_object_get(job, "state"));

    snprintf(out, size, "%s%s", state ? state : "",
             jobctl_has_flag(job, "SUSPEND_PENDING")   ? "+SUSPEND"
             : jobctl_has_flag(job, "REQUEUE_PENDING") ? "+REQUEUE"
                                                       : "");
}

static bool is_word_in(const char *words, const char *word)
{
    size_t len = strlen(word);

    for (const char *p = words; len && (p = strstr(p, word)); p += len)
        if ((p == words || p[-1] == ' ') && (p[len] == ' ' || p[len] == '\0'))
            return true;
    return false;
}

bool jobctl_is_done(const struct jobctl *c, const json_t *job)
{
    char place[48];

    job_place(job, place, sizeof(place));
    return is_word_in(c->done, place);
}

int jobctl_choices(const json_t *job, json_t **out, struct sh_err *err)
{
    json_t *allowed = json_array();
    char place[48];

    job_place(job, place, sizeof(place));
    for (size_t i = 0; i < SH_ARRAY_LEN(ACTIONS); i++)
        for (size_t k = 0; k < ACTIONS[i].n_arrows; k++)
            if (strcmp(ACTIONS[i].arrows[k].from, place) == 0)
                json_array_append_new(allowed, json_string(ACTIONS[i].name));
    *out = json_pack("{s:O?, s:O?, s:o}", "state", json_object_get(job, "state"), "flags",
                     json_object_get(job, "flags"), "allowed", allowed);
    return *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a reply");
}

void jobctl_say(const json_t *choices, char *out, size_t size)
{
    const json_t *allowed = json_object_get(choices, "allowed"), *flags, *v;
    const char *state = json_string_value(json_object_get(choices, "state"));
    size_t n, i;

    flags = json_object_get(choices, "flags");
    n = (size_t)snprintf(out, size, "it is %s", state ? state : "?");
    json_array_foreach(flags, i, v)
    {
        n += (size_t)snprintf(out + n, n < size ? size - n : 0, " %s", json_string_value(v));
    }
    if (json_array_size(allowed) == 0)
        snprintf(out + n, n < size ? size - n : 0, " and has ended or is about to");
    json_array_foreach(allowed, i, v)
    {
        if (n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s",
                                  i ? ", " : "; allowed: ", json_string_value(v));
    }
}
