/* switch.pml - giving the device to a run and back to training, in one executor.
 *
 * The executor's loop, two workers that train, the two copy lanes, and runs. A step is a forward
 * pass in the workspace and an update of the state in two halves, so that a torn state can be seen;
 * the device works off what was enqueued later than the worker enqueues it. A run comes at any
 * moment and needs to have training paused, its workspace, or all of its memory. A worker dies at
 * any moment.
 *
 * Checked: a forward pass, a copy to a slot that is published and what is left behind by any death
 * are of one step; steps are committed one after the other; there is always a whole state in host
 * memory; nobody writes memory, nor copies from it, that is another's; and (ltl stops) a stop ends,
 * (ltl trains) the job ends. */
#ifndef STEPS
#define STEPS 2
#endif
#define NONE 255
#ifndef RUNS
#define RUNS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef CKPTS
#define CKPTS 1 /* checkpoints that are asked for */
#endif

byte runs_left = RUNS, deaths = DEATHS, ckpts = CKPTS;

/* Memory of the device, and whose it is. */
mtype = { FREE, TRAINING, INFERENCE };
mtype state_of = FREE, ws_of = FREE;
byte half[2] = NONE; /* the state: of which step each half is; NONE: rubbish */
bool ws_is_full;     /* what the forward pass left for the update */

/* Slots of the host. */
#define SLOTS 2
byte slot_half_0[SLOTS], slot_half_1[SLOTS], slot_step[SLOTS];
bool valid[SLOTS];

/* Lanes: a copy takes two moments. */
byte in_slot = NONE, in_at;           /* to the device: from slot; halves done */
byte out_slot = NONE, out_at;         /* from the device */
bool out_ticket, landed, copied;      /* marks that have not been heard; whether a ticket follows */

/* The control page of each worker (worker_ctl.h). */
bool stop[2], stop_finish[2], ckpt_wanted[2]; /* stop: != stop_ack */
bool ckpt_ticket[2] = true, state_ticket = true; /* has come */

/* A worker. */
mtype = { IDLE, GO, GO_ON, WAITS, FORWARD, THRESHOLD, UPDATE, DEAD };
mtype w[2] = IDLE; /* what it does next */
byte w_op[2];      /* 0 forward, 1 and 2 halves of the update: next in this step */
byte w_step[2];    /* committed */
byte queue[2] = NONE; /* enqueued on the device, not done: an operation; at most one */
chan to_exec[2] = [3] of { mtype };
mtype = { STOPPED, CKPT };
byte said_step[2]; mtype = { AT_BOUNDARY, AT_STEP, AT_UPDATE }; mtype said_at[2] = AT_BOUNDARY;
bool dead[2];      /* died, and its death has not been heard of */

/* The executor: struct job, and the current run. */
byte jw = NONE;    /* j->w */
bool is_running, is_stop_raised, is_state_lost, has_state, has_ws, has_ended;
mtype at = AT_BOUNDARY;
byte step;
mtype = { NO_RUN, MEMORY, ACTIVE };
mtype run_is = NO_RUN;
mtype = { NOTHING, PAUSE, DROP, SWAP };
mtype needs = NOTHING, yield = NOTHING;

#define FILLING (out_slot != NONE || copied)
#define FLYING (in_slot != NONE || landed)
#define NEWEST (valid[0] && (!valid[1] || slot_step[0] > slot_step[1]) -> 0 : 1)
#define HAS_NEWEST (valid[0] || valid[1])

/* ------------------------------------------------------------------ lanes and the device */

proctype Lanes()
{
end:
    do
    :: atomic { in_slot != NONE && in_at < 2 ->
        assert(state_of == TRAINING);
        half[in_at] = (in_at == 0 -> slot_half_0[in_slot] : slot_half_1[in_slot]);
        in_at++ }
    :: atomic { in_slot != NONE && in_at == 2 -> in_slot = NONE; in_at = 0; landed = true;
        state_ticket = true }
    :: atomic { out_slot != NONE && out_at < 2 ->
        assert(state_of == TRAINING);
        if
        :: out_at == 0 -> slot_half_0[out_slot] = half[0]
        :: else -> slot_half_1[out_slot] = half[1]
        fi;
        out_at++ }
    :: atomic { out_slot != NONE && out_at == 2 -> out_at = 3;
        if
        :: out_ticket -> ckpt_ticket[0] = true; ckpt_ticket[1] = true; out_ticket = false
        :: else
        fi;
        copied = true }
    od
}

/* One operation of a worker, done by the device some time after it was enqueued. */
inline device(k)
{
    if
    :: queue[k] == 0 ->
        assert(ws_of == TRAINING && state_of == TRAINING);
        assert(half[0] == half[1] && half[0] == w_step[k]);
        ws_is_full = true
    :: queue[k] == 1 ->
        assert(ws_of == TRAINING && state_of == TRAINING && ws_is_full && half[0] == w_step[k]);
        half[0] = half[0] + 1
    :: queue[k] == 2 ->
        assert(ws_of == TRAINING && state_of == TRAINING && ws_is_full && half[1] == w_step[k]);
        half[1] = half[1] + 1;
        ws_is_full = false
    fi;
    queue[k] = NONE
}

/* ------------------------------------------------------------------ a worker */

/* must_stop of worker/train.c */
#define IN_UPDATE(k) (w_op[k] > 1 || w_op[k] == 1 && half[0] > w_step[k])
#ifndef STOP_TEARS
#define MUST_STOP(k, in_update) (stop[k] && (!(in_update) || !stop_finish[k]))
#else
#define MUST_STOP(k, in_update) stop[k]
#endif

/* worker_settle, answer_stopped */
inline answer_stopped(k)
{
    stop[k] = false;
    said_step[k] = w_step[k];
    said_at[k] = (w_op[k] == 0 -> AT_BOUNDARY : (w_op[k] == 2 -> AT_UPDATE : AT_STEP));
    to_exec[k] ! STOPPED;
    w[k] = IDLE
}

#ifndef NO_SETTLE
#define SETTLED(k) (queue[k] == NONE)
#else
#define SETTLED(k) true
#endif

proctype Worker(byte k)
{
end:
    do
    :: atomic { w[k] == GO -> w_op[k] = 0; w[k] = WAITS }
    :: atomic { w[k] == GO_ON -> w[k] = WAITS }
#ifndef STATE_TICKET_FORGOTTEN
    :: atomic { w[k] == WAITS && state_ticket -> w[k] = FORWARD }
#else
    :: atomic { w[k] == WAITS -> w[k] = FORWARD }
#endif
    /* run_steps: between two operations */
    :: atomic { w[k] == FORWARD && SETTLED(k) && (MUST_STOP(k, w_op[k] == 2) || w_step[k] == STEPS) ->
        answer_stopped(k) }
    :: atomic { w[k] == FORWARD && !MUST_STOP(k, w_op[k] == 2) && w_step[k] < STEPS &&
            queue[k] == NONE ->
        if
        :: w_op[k] == 0 -> queue[k] = 0; w_op[k] = 1
        :: w_op[k] == 1 -> w[k] = THRESHOLD
        :: w_op[k] == 2 -> queue[k] = 2; w[k] = UPDATE
        fi }
    /* before_update, wait_for_ckpt: a stop ends the wait */
#ifndef CKPT_TICKET_FORGOTTEN
    :: atomic { w[k] == THRESHOLD && ckpt_ticket[k] && queue[k] == NONE ->
#else
    :: atomic { w[k] == THRESHOLD && queue[k] == NONE ->
#endif
        queue[k] = 1; w_op[k] = 2; w[k] = FORWARD }
    :: atomic { w[k] == THRESHOLD && !ckpt_ticket[k] && MUST_STOP(k, false) && SETTLED(k) ->
        answer_stopped(k) }
    /* commit */
#ifndef COMMIT_EARLY
    :: atomic { w[k] == UPDATE && queue[k] == NONE && nfull(to_exec[k]) ->
#else
    :: atomic { w[k] == UPDATE && nfull(to_exec[k]) ->
#endif
        w_step[k] = w_step[k] + 1;
        w_op[k] = 0;
        w[k] = FORWARD;
        if
        :: ckpt_wanted[k] ->
            ckpt_wanted[k] = false;
            ckpt_ticket[k] = false;
            said_step[k] = w_step[k];
            to_exec[k] ! CKPT
        :: else
        fi }
    :: atomic { queue[k] != NONE -> device(k) }
    /* It dies, and the device forgets what it had enqueued. */
    :: atomic { deaths > 0 && w[k] != DEAD ->
        deaths--;
        w[k] = DEAD;
#ifndef DEATH_LEAVES_WORK
        queue[k] = NONE;
#endif
        dead[k] = true }
    od
}

/* ------------------------------------------------------------------ the executor */

inline raise_stop(finish)
{
    stop_finish[jw] = finish;
    stop[jw] = true;
    is_stop_raised = true
}

inline send_go(what)
{
    is_running = true;
    is_stop_raised = false;
    if
    :: w[jw] != DEAD -> w_step[jw] = step; w[jw] = what
    :: else /* nobody has heard of its death yet */
    fi;
    ckpt_wanted[jw] = (ckpts > 0 && !FILLING);
    ckpts = (ckpts > 0 && !FILLING -> ckpts - 1 : ckpts)
}

/* free_slot: not the newest, not one that is filled */
inline slots_copy_out(with_ticket)
{
    if
    :: !FILLING && has_state ->
#ifndef NEWEST_OVERWRITTEN
        out_slot = (HAS_NEWEST -> 1 - NEWEST : 0);
#else
        out_slot = (HAS_NEWEST -> NEWEST : 0);
#endif
        valid[out_slot] = false;
        slot_step[out_slot] = said;
        out_at = 0;
        out_ticket = with_ticket;
#ifdef PUBLISHED_EARLY
        valid[out_slot] = true
#endif
        skip
    :: else ->
        if
        :: with_ticket -> ckpt_ticket[0] = true; ckpt_ticket[1] = true /* dev_ticket_force */
        :: else
        fi
    fi
}

inline give_state()
{
    state_of = FREE; half[0] = NONE; half[1] = NONE;
    has_state = false
}

inline give_ws()
{
    ws_of = FREE; ws_is_full = false;
    has_ws = false
}

inline train__drop_workspace()
{
    if
#ifndef DROP_TEARS
    :: at == AT_UPDATE && jw != NONE -> /* torn: it finishes the step first */
        stop_finish[jw] = true; stop[jw] = true;
        is_running = true; is_stop_raised = true;
        w[jw] = (w[jw] == DEAD -> DEAD : GO_ON)
    :: !(at == AT_UPDATE && jw != NONE) ->
#else
    :: true ->
#endif
        at = AT_BOUNDARY;
        give_ws();
        jw = NONE
    fi
}

inline lose_worker()
{
    if
    :: is_running || at == AT_UPDATE -> is_state_lost = true
    :: else ->
        if
        :: has_ws -> give_ws()
        :: else
        fi
    fi;
    jw = NONE;
    is_running = false; is_stop_raised = false;
    at = AT_BOUNDARY
}

#define YIELDED(way) (!is_running && (way == PAUSE || !has_ws && (way == DROP || !has_state)))
#define WANTS_DROP (run_is != NO_RUN && yield == DROP)
#define WANTS_SWAP (run_is != NO_RUN && yield == SWAP || step == STEPS)
#define IS_IDLE(k) (w[k] == IDLE || w[k] == DEAD) /* as far as anybody has heard */
#define MAY_TRAIN (run_is == NO_RUN)

#ifndef FLIGHT_IGNORED
#define LANES_REST (!FILLING && !FLYING)
#else
#define LANES_REST (!FILLING)
#endif

proctype Executor()
{
    byte k, said;
    mtype m;
end:
    do
    /* a run is the current one: switch_turn, stop_training, train_yield */
    :: atomic { runs_left > 0 && run_is == NO_RUN && !has_ended ->
        runs_left--;
        run_is = MEMORY;
        if
        :: needs = PAUSE
        :: needs = DROP
        :: needs = SWAP
        fi;
        yield = PAUSE;
        if
        :: is_running && !is_stop_raised -> raise_stop(false)
        :: else
        fi }
    /* give_memory: it asks for more once training has yielded what it was asked for */
    :: atomic { run_is == MEMORY && YIELDED(yield) && yield != needs && !YIELDED(needs) ->
        yield = needs }
    :: atomic { run_is == MEMORY && YIELDED(needs) ->
#ifndef MEMORY_NOT_TAKEN
        ws_of = (needs != PAUSE -> INFERENCE : ws_of);
        state_of = (needs == SWAP -> INFERENCE : state_of);
#endif
        run_is = ACTIVE }
    /* the run's worker writes what it was given, and is done; or died and nobody has its model */
    :: atomic { run_is == ACTIVE ->
        assert(needs == PAUSE || ws_of == INFERENCE);
        assert(needs != SWAP || state_of == INFERENCE);
        ws_of = (ws_of == INFERENCE -> FREE : ws_of);
        state_of = (state_of == INFERENCE -> FREE : state_of);
        run_is = NO_RUN; needs = NOTHING; yield = NOTHING }

    /* steer_running: it is asked for more than it was told */
    :: atomic { is_running && is_stop_raised && (WANTS_DROP || WANTS_SWAP) && !stop_finish[jw] &&
            stop[jw] ->
        stop_finish[jw] = true }
    /* train_turn, of a job that does not run */
    :: atomic { !is_running && !has_ended && is_state_lost && LANES_REST -> /* forget_lost */
        if
        :: has_ws -> give_ws()
        :: else
        fi;
        if
        :: has_state -> give_state()
        :: else
        fi;
        is_state_lost = false;
        step = slot_step[NEWEST] }
    :: atomic { !is_running && !has_ended && !is_state_lost && has_ws && (WANTS_DROP || WANTS_SWAP) ->
        train__drop_workspace() }
    :: atomic { !is_running && !has_ended && !is_state_lost && !has_ws && has_state && WANTS_SWAP &&
            LANES_REST -> /* leave */
        jw = NONE;
        if
#ifndef SWAP_UNSAVED
        :: HAS_NEWEST && slot_step[NEWEST] == step -> give_state()
        :: else -> said = step; slots_copy_out(false); said = 0
#else
        :: true -> give_state()
#endif
        fi }
    :: atomic { !is_running && !has_ended && step == STEPS && !has_state && !has_ws &&
            !is_state_lost -> /* finish_end */
        assert(slot_step[NEWEST] == STEPS);
        has_ended = true }
    /* go_on: paused */
    :: atomic { !is_running && !has_ended && !is_state_lost && MAY_TRAIN && step < STEPS &&
            jw != NONE && has_ws ->
        send_go(GO_ON) }
    /* go_on: attach, load_state, take_device */
    :: atomic { !is_running && !has_ended && !is_state_lost && MAY_TRAIN && step < STEPS && !has_ws &&
#ifndef FILL_IGNORED
            !FILLING &&
#endif
            (IS_IDLE(0) || IS_IDLE(1)) ->
        if
        :: IS_IDLE(0) -> jw = 0
        :: IS_IDLE(1) -> jw = 1
        fi;
        if
        :: !has_state ->
            state_of = TRAINING; has_state = true;
            step = slot_step[NEWEST];
            in_slot = NEWEST; in_at = 0;
            state_ticket = false
        :: else
        fi;
        ws_of = TRAINING; has_ws = true; ws_is_full = false;
        send_go(GO) }

    /* on_copied, on_landed */
    :: atomic { copied && out_slot != NONE && out_at == 3 ->
        assert(slot_half_0[out_slot] == slot_half_1[out_slot]);
        assert(slot_half_0[out_slot] == slot_step[out_slot]);
        valid[out_slot] = true;
        copied = false; out_slot = NONE; out_at = 0 }
    :: atomic { landed -> landed = false }

    /* what workers say */
    :: atomic { nempty(to_exec[0]) -> k = 0; to_exec[0] ? m; goto said_something }
    :: atomic { nempty(to_exec[1]) -> k = 1; to_exec[1] ? m; goto said_something }
    /* on_death: its process was waited for; what it said and nobody has read is lost */
#ifdef DEATH_NOT_AWAITED
    :: atomic { deaths > 0 && is_running -> deaths--; lose_worker() } /* it was only sent a signal */
#endif
    :: atomic { dead[0] || dead[1] ->
        k = (dead[0] -> 0 : 1);
        dead[k] = false;
        do
        :: nempty(to_exec[k]) -> to_exec[k] ? _
        :: empty(to_exec[k]) -> break
        od;
        w[k] = IDLE; w_op[k] = 0; stop[k] = false; stop_finish[k] = false; ckpt_wanted[k] = false;
        ckpt_ticket[k] = true; said_step[k] = 0; said_at[k] = AT_BOUNDARY;
        if
        :: jw == k -> lose_worker()
        :: else
        fi;
        w_step[k] = 0;
        k = 0 }
    od;
said_something:
    atomic {
        if
        :: m == CKPT && jw == k -> said = said_step[k]; slots_copy_out(true); said = 0 /* train_on_ckpt */
        :: m == CKPT && jw != k -> ckpt_ticket[k] = true
        :: m == STOPPED && jw == k && is_running -> /* train_on_stopped */
            assert(said_step[k] == step || said_step[k] > step);
            is_running = false; is_stop_raised = false;
            at = said_at[k];
            step = said_step[k]
        :: m == STOPPED && !(jw == k && is_running)
        fi;
        k = 0
    }
    goto end
}

#define TORN(s) (valid[s] && (slot_half_0[s] != slot_step[s] || slot_half_1[s] != slot_step[s]))

proctype Monitor()
{
end:
    atomic { !HAS_NEWEST || TORN(0) || TORN(1) -> assert(false) }
}

init
{
    atomic {
        valid[0] = true; /* the initial state: slots_begin */
        run Lanes();
        run Worker(0); run Worker(1);
        run Executor();
        run Monitor()
    }
}

#ifdef LIVE_STOPS
ltl stops { [] (run_is == MEMORY -> <> (run_is == ACTIVE)) }
#endif
#ifdef LIVE_TRAINS
ltl trains { <> has_ended }
#endif
