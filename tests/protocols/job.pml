/* job.pml - one job between two schedulers, two executors and the database.
 *
 * The lease itself is lease.pml's: here a scheduler that stands by may take it at any moment, its
 * former leader learns of that later, and no write of an old epoch is committed. Connections break
 * with all that is under way; executors and schedulers die; an executor's grace may be over at once.
 * All starts of the job have one attempt, as they do unless one fails: the hardest case.
 *
 * Checked: the job is DONE in the database only if an executor has finished it, and a final state
 * stays; a start is recorded before it is sent; of two executors that are connected to one leader
 * no two go on with the job. */
#define E 2
#define NONE 255
#ifndef FAULTS
#define FAULTS 3 /* a connection, an executor or a leader is lost, another takes the lease */
#endif
#ifndef WISHES
#define WISHES 2 /* it gives way to another job, or (once) a client cancels it */
#endif

byte faults = FAULTS, wishes = WISHES;

mtype = { QUEUED, STARTING, RUNNING, SUCCEEDED, CANCELLING, CANCELLED }; /* a job's state */
mtype = { none, live, suspends, cancels };                               /* of an executor's run */
mtype = { SYNCED, IS_LIVE, IS_DONE, IS_SUSPENDED, IS_CANCELLED, HAS_NOT }; /* to the leader */
mtype = { START, SUSPEND, CANCEL };                                      /* to an executor */
mtype = { idle, starts, changes };                                       /* a write under way */

/* The database. */
mtype row = QUEUED;
byte row_exec = NONE, newest = 1;

/* A scheduler. epoch 0: it stands by, and has forgotten all else. */
byte epoch[2];
mtype st[2] = QUEUED, known[2] = QUEUED; /* the job's state; as the database has it for all it knows */
byte at[2] = NONE;                       /* job.executor */
bool stopping[2];
mtype op[2] = idle, op_to[2] = QUEUED;

/* Of each executor's one connection: with whom; what that scheduler knows of it; its epoch. */
byte session[E] = NONE, of_epoch[E];
bool synced[E], heard[E], leaving[E];
chan to_exec[E] = [3] of { mtype };
chan to_sched[E] = [4] of { mtype };

/* An executor. */
mtype job[E] = none, words[E] = none; /* none: no last words; else live: done, suspends, cancels */
byte seen[E];

bool finished; /* an executor has done all of the job */

#define HAS_EXECUTOR(s) (s == STARTING || s == RUNNING || s == CANCELLING)
#define FINAL(s) (s == SUCCEEDED || s == CANCELLED)
#define UP(i, k) (session[k] == i && synced[k])
#define FREE(i, k) (UP(i, k) && !leaving[k])

inline flush(k)
{
    do
    :: nempty(to_exec[k]) -> to_exec[k] ? _
    :: nempty(to_sched[k]) -> to_sched[k] ? _
    :: empty(to_exec[k]) && empty(to_sched[k]) -> break
    od
}

/* Both sides hear of it; execs_on_close and jobs_on_exec_lost of the scheduler's. */
inline cut(k)
{
    if
    :: session[k] != NONE && at[session[k]] == k -> stopping[session[k]] = false
    :: else
    fi;
    session[k] = NONE; of_epoch[k] = 0;
    synced[k] = false; heard[k] = false; leaving[k] = false;
    flush(k)
}

inline sched_stand_down(i)
{
    epoch[i] = 0; st[i] = QUEUED; known[i] = QUEUED; at[i] = NONE; stopping[i] = false;
    op[i] = idle; op_to[i] = QUEUED;
    if
    :: session[0] == i -> cut(0)
    :: else
    fi;
    if
    :: session[1] == i -> cut(1)
    :: else
    fi
}

inline send(k, m)
{
    if
    :: !(to_exec[k] ?? [eval(m)]) -> to_exec[k] ! m
    :: else /* said again, before it was heard: as good as once */
    fi
}

inline jobs__leave(i)
{
    at[i] = NONE;
    stopping[i] = false
}

inline jobs__requeue(i)
{
    st[i] = (st[i] == CANCELLING -> CANCELLED : QUEUED);
    jobs__leave(i)
}

/* The job is where the message comes from, as far as this scheduler knows? */
#if defined(ANY_EXECUTOR)
#define IS_ITS_JOB(i, k) (op[i] != starts)
#elif defined(WHILE_STARTING)
#define IS_ITS_JOB(i, k) (at[i] == k)
#else
#define IS_ITS_JOB(i, k) (at[i] == k && op[i] != starts)
#endif

inline jobs_on_state(i, k, m)
{
    if
    :: m == IS_LIVE && IS_ITS_JOB(i, k) ->
        heard[k] = true;
        if
        :: st[i] == CANCELLING -> leaving[k] = true; send(k, CANCEL)
        :: st[i] == STARTING -> st[i] = RUNNING
        :: else
        fi
    :: m == IS_LIVE && !IS_ITS_JOB(i, k) -> /* a stray */
#ifndef STRAY_STAYS
        leaving[k] = true; send(k, CANCEL)
#endif
        skip
    :: m == IS_DONE && IS_ITS_JOB(i, k) ->
        leaving[k] = false;
        heard[k] = true;
        st[i] = (st[i] == CANCELLING -> CANCELLED : SUCCEEDED);
        jobs__leave(i)
    :: (m == IS_SUSPENDED || m == IS_CANCELLED || m == HAS_NOT) && IS_ITS_JOB(i, k) ->
        leaving[k] = false;
        heard[k] = true;
        jobs__requeue(i)
    :: m != IS_LIVE && !IS_ITS_JOB(i, k) -> leaving[k] = false
    fi
}

inline execs_on_msg(i, k, m)
{
    if
    :: m == SYNCED -> /* jobs_on_exec_synced */
        synced[k] = true;
        if
        :: at[i] == k && op[i] != starts && !heard[k] -> jobs__requeue(i)
        :: else
        fi
    :: m != SYNCED -> jobs_on_state(i, k, m)
    fi
}

/* Another state than ours, by a client: jobs__follow, on_conflict. */
inline jobs__follow(i)
{
    known[i] = row;
    st[i] = row;
    if
    :: row == CANCELLING && at[i] == NONE -> st[i] = CANCELLED
    :: row == CANCELLING && at[i] != NONE && session[at[i]] == i ->
        leaving[at[i]] = true;
        send(at[i], CANCEL)
    :: row == CANCELLED && at[i] != NONE ->
        if
        :: session[at[i]] == i -> leaving[at[i]] = true; send(at[i], CANCEL)
        :: else
        fi;
        jobs__leave(i)
    :: else
    fi
}

proctype Sched(byte i)
{
    byte k;
    mtype m;
end:
    do
    /* sched_lead, and the first look at the database */
    :: atomic { epoch[i] == 0 && (epoch[1 - i] == 0 || faults > 0) ->
        faults = (epoch[1 - i] == 0 -> faults : faults - 1);
        newest++;
        epoch[i] = newest;
        st[i] = row;
        known[i] = row;
        at[i] = (HAS_EXECUTOR(row) -> row_exec : NONE) }
    :: atomic { epoch[i] != 0 && epoch[i] < newest && op[i] == idle -> sched_stand_down(i) }
    :: atomic { epoch[i] != 0 && faults > 0 -> faults--; sched_stand_down(i) } /* dies */

    :: atomic { epoch[i] != 0 && session[0] == i && nempty(to_sched[0]) ->
        to_sched[0] ? m; execs_on_msg(i, 0, m) }
    :: atomic { epoch[i] != 0 && session[1] == i && nempty(to_sched[1]) ->
        to_sched[1] ? m; execs_on_msg(i, 1, m) }

    /* jobs_tick: its executor has been away for longer than --grace-ms */
    :: atomic { epoch[i] != 0 && at[i] != NONE && op[i] != starts && session[at[i]] != i ->
        jobs__requeue(i) }
    /* jobs_suspend */
    :: atomic { wishes > 0 && epoch[i] != 0 && st[i] == RUNNING && !stopping[i] && UP(i, at[i]) ->
        wishes--;
        stopping[i] = true;
        send(at[i], SUSPEND) }
    /* jobs_start: decide() takes one that is up and has its slot free */
    :: atomic { epoch[i] != 0 && st[i] == QUEUED && known[i] == QUEUED && op[i] == idle &&
            (FREE(i, 0) || FREE(i, 1)) ->
        if
        :: FREE(i, 0) -> at[i] = 0
        :: FREE(i, 1) -> at[i] = 1
        fi;
        st[i] = STARTING;
        op[i] = starts }
    /* jobs__flush */
    :: atomic { epoch[i] != 0 && st[i] != known[i] && op[i] == idle ->
        op[i] = changes;
        op_to[i] = st[i] }
    /* a look at the database: jobs_merge, of a job that nothing waits for */
    :: atomic { epoch[i] == newest && st[i] == known[i] && op[i] == idle && row != st[i] ->
        jobs__follow(i) }

    /* What was written is there, and heard of: on_started. It may have been written twice. */
    :: atomic { op[i] == starts && epoch[i] < newest -> sched_stand_down(i) }
    :: atomic { op[i] == starts && epoch[i] == newest ->
        op[i] = idle;
        if
        :: row == QUEUED ->
            assert(at[i] != NONE);
            row = STARTING;
            row_exec = at[i];
            known[i] = STARTING;
            if
            :: UP(i, at[i]) -> heard[at[i]] = true; send(at[i], START)
            :: else -> jobs__requeue(i)
            fi
        :: else -> jobs__leave(i); st[i] = row; known[i] = row
        fi }
    /* store_job_write, on_written */
    :: atomic { op[i] == changes && epoch[i] < newest -> sched_stand_down(i) }
    :: atomic { op[i] == changes && epoch[i] == newest ->
        op[i] = idle;
        if
        :: row == known[i] ->
            assert(!FINAL(row));
            assert(op_to[i] != SUCCEEDED || finished);
            row = op_to[i];
            row_exec = (HAS_EXECUTOR(row) -> row_exec : NONE);
            known[i] = row
        :: row != known[i] -> jobs__follow(i)
        fi;
        op_to[i] = QUEUED }
    od
}

#define SAY(k, what) if :: session[k] != NONE -> to_sched[k] ! what :: else fi

proctype Exec(byte k)
{
    mtype m;
end:
    do
    :: atomic { session[k] == NONE && (epoch[0] != 0 || epoch[1] != 0) -> /* on_up; WELCOME */
        if
        :: epoch[0] != 0 -> session[k] = 0; of_epoch[k] = epoch[0]
        :: epoch[1] != 0 -> session[k] = 1; of_epoch[k] = epoch[1]
        fi;
        seen[k] = (of_epoch[k] > seen[k] -> of_epoch[k] : seen[k]);
        if
        :: words[k] == live -> to_sched[k] ! IS_DONE
        :: words[k] == suspends -> to_sched[k] ! IS_SUSPENDED
        :: words[k] == cancels -> to_sched[k] ! IS_CANCELLED
        :: else
        fi;
        if
        :: job[k] != none -> to_sched[k] ! IS_LIVE
        :: else
        fi;
        to_sched[k] ! SYNCED }
    :: atomic { nempty(to_exec[k]) && nfull(to_sched[k]) ->
        to_exec[k] ? m;
        if
        :: of_epoch[k] < seen[k] /* is_current: no */
        :: of_epoch[k] >= seen[k] && m == START ->
            if
            :: job[k] == none -> /* train_on_start */
                words[k] = none; /* outcomes_forget */
                job[k] = live
            :: else
            fi;
            to_sched[k] ! IS_LIVE
        :: of_epoch[k] >= seen[k] && m != START -> /* train_on_stop */
            if
#ifdef STOP_ANSWERED
            :: job[k] == none -> to_sched[k] ! HAS_NOT
#endif
            :: m == SUSPEND && job[k] == live -> job[k] = suspends
            :: m == CANCEL && job[k] != none -> job[k] = cancels
            :: else
            fi
        fi }
    :: atomic { job[k] != none && empty(to_sched[k]) && session[k] != NONE -> to_sched[k] ! IS_LIVE }
    /* train__end_job */
    :: atomic { job[k] == live && nfull(to_sched[k]) ->
        job[k] = none; words[k] = live; finished = true; SAY(k, IS_DONE) }
    :: atomic { job[k] == suspends && nfull(to_sched[k]) ->
        job[k] = none; words[k] = suspends; SAY(k, IS_SUSPENDED) }
    :: atomic { job[k] == cancels && nfull(to_sched[k]) ->
        job[k] = none; words[k] = cancels; SAY(k, IS_CANCELLED) }
    :: atomic { faults > 0 && session[k] != NONE -> faults--; cut(k) }
    :: atomic { faults > 0 && (job[k] != none || words[k] != none || seen[k] != 0) -> /* dies */
        faults--;
        job[k] = none; words[k] = none; seen[k] = 0;
        cut(k) }
    od
}

/* api/spec/jobctl.c: cancel */
proctype Client()
{
end:
    atomic { wishes > 0 && !FINAL(row) ->
        wishes--;
        row = (HAS_EXECUTOR(row) -> CANCELLING : CANCELLED) }
}

#define GOES_ON(k) (job[k] == live && synced[k] && !(to_exec[k] ?? [CANCEL]))

proctype Monitor()
{
end:
    atomic { GOES_ON(0) && GOES_ON(1) && of_epoch[0] == newest && of_epoch[1] == newest -> assert(false) }
}

init
{
    atomic {
        run Sched(0); run Sched(1);
        run Exec(0); run Exec(1);
        run Client();
        run Monitor()
    }
}
