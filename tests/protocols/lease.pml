/* lease.pml - who may act: the lease, its epochs, fenced writes, and executors that obey epochs.
 *
 * No clock is trusted: the lease may end at any moment, so whatever holds here holds with clocks
 * that go apart, and for a leader that was stopped and wakes. README.md: which C is which step.
 *
 * Checked: each epoch is led once; a write is committed only in the newest epoch; an executor acts
 * on no command of an epoch older than one that it has accepted; and (ltl leads) once faults cease a
 * scheduler leads, with the newest epoch, for good. */
#define S 2 /* schedulers */
#define E 1 /* executors: they have nothing to do with each other here */
#define NONE 255
#ifndef FAULTS
#define FAULTS 3 /* in all, in any order */
#endif
#define MAX_EPOCH 8

byte faults = FAULTS;

/* The database. A holder is a process: one that starts again is another one. */
byte holder = NONE, newest = 0;
bool ended = true;
bool shared[S]; /* the transaction of this scheduler holds the lease's row FOR SHARE */

/* A scheduler's loop. */
byte life[S];   /* how often it was started: part of its name as a holder */
byte epoch[S];  /* 0: stands by */
bool asking[S];
byte asked[S];
/* Its database thread: the lease's operation, and one write. */
mtype = { idle, queued, begun, answered, failed, refused };
mtype lease_op[S] = idle, write_op[S] = idle;
bool held[S];
byte lease_epoch[S], lease_holder[S], write_epoch[S], write_holder[S];

/* Executors. */
byte session[E] = NONE; /* with which scheduler */
byte seen[E];
chan command[E] = [1] of { byte };

bool led[MAX_EPOCH];     /* an epoch was led once */
byte accepted[E];        /* newest epoch of which a command was acted on */

#define HOLDER(i) (i + S * life[i])
#define LEADS(i) (epoch[i] != 0 && epoch[i] == newest && holder == HOLDER(i))

inline sched_lead(i, e)
{
    assert(!led[e]);
    led[e] = true;
    epoch[i] = e
}

inline drop_sessions(i)
{
    byte k;
    for (k : 0 .. E - 1) {
        if
        :: session[k] == i -> session[k] = NONE; flush(k)
        :: else
        fi
    }
    k = 0
}

inline flush(k)
{
    do
    :: nempty(command[k]) -> command[k] ? _
    :: empty(command[k]) -> break
    od
}

/* A queued write is dropped; one that has begun goes on. */
inline sched_stand_down(i)
{
    epoch[i] = 0;
    drop_sessions(i);
    if
    :: write_op[i] == queued -> write_op[i] = idle; write_epoch[i] = 0; write_holder[i] = 0
    :: else
    fi
}

#ifndef ANSWER_LATE
#define IS_LATE(i) (epoch[i] != asked[i]) /* it has stood down since it asked */
#else
#define IS_LATE(i) false
#endif

inline on_answer(i)
{
    asking[i] = false;
    if
    :: lease_op[i] == failed || IS_LATE(i)
    :: lease_op[i] == answered && !IS_LATE(i) && epoch[i] == 0 && held[i] ->
        sched_lead(i, lease_epoch[i])
    :: lease_op[i] == answered && !IS_LATE(i) && epoch[i] != 0 && !held[i] -> sched_stand_down(i)
    :: else
    fi;
    held[i] = false;
    asked[i] = 0;
    lease_epoch[i] = 0;
    lease_holder[i] = 0;
    lease_op[i] = idle
}

/* leader.c: asks again and again. */
proctype Leader(byte i)
{
end:
    do
    :: atomic { !asking[i] -> /* try_now */
        asking[i] = true;
        asked[i] = epoch[i];
        lease_epoch[i] = epoch[i];
        lease_holder[i] = HOLDER(i);
        lease_op[i] = queued }
    :: atomic { lease_op[i] == answered || lease_op[i] == failed -> on_answer(i) }
    od
}

/* The rest of its loop. */
proctype Sched(byte i)
{
end:
    do
    :: atomic { epoch[i] != 0 && write_op[i] == idle -> /* sched_submit */
        write_epoch[i] = epoch[i];
        write_holder[i] = HOLDER(i);
        write_op[i] = queued }
    :: atomic { write_op[i] == answered || write_op[i] == refused -> /* sched_op_ok */
        if
        :: write_op[i] == refused && write_epoch[i] == epoch[i] -> sched_stand_down(i)
        :: else
        fi;
        write_epoch[i] = 0;
        write_holder[i] = 0;
        write_op[i] = idle }
    :: atomic { faults > 0 && epoch[i] != 0 -> faults--; sched_stand_down(i) }
    :: atomic { faults > 0 -> /* it is killed, and starts again: what it was writing is rolled back */
        faults--;
        drop_sessions(i);
        shared[i] = false;
        asking[i] = false; asked[i] = 0; epoch[i] = 0; held[i] = false;
        lease_op[i] = idle; lease_epoch[i] = 0; lease_holder[i] = 0;
        write_op[i] = idle; write_epoch[i] = 0; write_holder[i] = 0;
        life[i]++ }
    /* session_send of a command, to an executor that is connected */
    :: atomic { epoch[i] != 0 && session[0] == i && nfull(command[0]) -> command[0] ! epoch[i] }
    od
}

#define UNLOCKED (!shared[0] && !shared[1])
#define MAY_ACQUIRE(i) (ended || holder == lease_holder[i])
#ifndef RENEW_ANY
#define MAY_RENEW(i) (holder == lease_holder[i] && newest == lease_epoch[i])
#else
#define MAY_RENEW(i) true
#endif
#define MAY_TAKE(i) (lease_epoch[i] == 0 -> MAY_ACQUIRE(i) : MAY_RENEW(i))

/* The database thread of scheduler i, and what the database makes of its statements. The lease goes
 * first (DBOP_FRONT). */
proctype Db(byte i)
{
end:
    do
    :: atomic { lease_op[i] == queued && faults > 0 -> faults--; lease_op[i] = failed }
    :: atomic { lease_op[i] == queued && (UNLOCKED || !MAY_TAKE(i)) ->
        held[i] = MAY_TAKE(i);
        if
        :: held[i] && lease_epoch[i] == 0 -> /* store_lease_acquire; else store_lease_renew */
            holder = lease_holder[i];
#ifndef EPOCH_STAYS
            newest++;
#else
            newest = (newest == 0 -> 1 : newest);
#endif
            lease_epoch[i] = newest
        :: else
        fi;
        ended = (held[i] -> false : ended);
        if
        :: lease_op[i] = answered
        :: faults > 0 -> faults--; lease_op[i] = failed /* done, and nobody has heard of it */
        fi }
    :: atomic { write_op[i] == queued && lease_op[i] != queued -> /* store__fence */
        if
#ifndef NO_FENCE
        :: !(holder == write_holder[i] && newest == write_epoch[i]) -> write_op[i] = refused
        :: holder == write_holder[i] && newest == write_epoch[i] ->
#else
        :: true ->
#endif
            write_op[i] = begun;
#ifndef FENCE_UNLOCKED
            shared[i] = true
#endif
        fi }
    :: atomic { write_op[i] == begun -> /* the commit */
        assert(write_epoch[i] == newest);
        shared[i] = false;
        if
        :: write_op[i] = answered
        :: faults > 0 -> faults--; write_op[i] = queued /* unknown: the same once more */
        fi }
    od
}

proctype Exec(byte k)
{
    byte e;
end:
    do
    :: atomic { session[k] == NONE -> /* on_up; WELCOME is the first command */
        if
        :: epoch[0] != 0 -> session[k] = 0; command[k] ! epoch[0]
        :: epoch[1] != 0 -> session[k] = 1; command[k] ! epoch[1]
        fi }
    :: atomic { command[k] ? e -> /* is_current */
        if
#ifndef OLD_ACCEPTED
        :: e < seen[k]
        :: e >= seen[k] ->
#else
        :: true ->
#endif
            seen[k] = e;
            assert(e >= accepted[k]);
            accepted[k] = e
        fi;
        e = 0 }
    :: atomic { faults > 0 && session[k] != NONE -> faults--; session[k] = NONE; flush(k) }
    od
}

proctype Clock()
{
end:
    do
    :: atomic { faults > 0 && !ended && holder != NONE -> faults--; ended = true }
    /* A holder that is dead renews nothing: its lease ends in any case. */
    :: atomic { !ended && holder != NONE && holder != HOLDER(holder % S) -> ended = true }
    od
}

init
{
    atomic {
        byte k;
        for (k : 0 .. S - 1) { run Leader(k); run Sched(k); run Db(k) }
        for (k : 0 .. E - 1) { run Exec(k) }
        k = 0;
        run Clock()
    }
}

#ifdef LIVE_LEADS
ltl leads { <> [] ((LEADS(0) && epoch[1] == 0) || (LEADS(1) && epoch[0] == 0)) }
#endif
