"""What the dashboards show. make.py turns it into grafana/*.json.

A panel: `title`; `text`, which question it answers, and what to do if it is red; `unit`, a name of
Grafana's; `of`, pairs of expression and legend; `kind`, timeseries unless said; `stack`; `width` of
24. In expressions [] is the interval that fits the panel, and selectors get their $job and $instance
by themselves. A question that two dashboards answer is one panel here.
"""
import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))
DEF = os.path.join(HERE, "..", "common", "metrics.def")
ROW = re.compile(r'^SH_METRIC\((\w+), *(\w+), *"([^"]*)"', re.M)

with open(DEF) as f:
    LABELS = {name: labels.split(",") for _, name, labels in ROW.findall(f.read())}


def p(title, unit, text, *of, **more):
    return {"title": title, "unit": unit, "text": text, "of": of, **more}


def quantiles(metric, by, legend, *qs):
    """Pairs for histogram quantiles."""
    return [("histogram_quantile(%g, sum by (%s, le) (rate(%s_bucket[])))" % (q, by, metric),
             "%s p%g" % (legend, q * 100)) for q in qs or (0.5, 0.99)]


def rate(by, metric):
    return "sum by (%s) (rate(%s[]))" % (by, metric)


def share(by, part, metric):
    """Part of all, between 0 and 1; 0 where there is no such part yet."""
    all_of = "sum by (%s) (rate(%s[]))" % (by, metric)
    return "(sum by (%s) (rate(%s{%s}[])) or 0 * %s) / %s" % (by, metric, part, all_of, all_of)


MODEL, TM = "{{tenant}}/{{model}}", "tenant, model"
SLO = "shunt_slo_requests_total"

# ------------------------------------------------------------------ shared by several dashboards
LEADER = p("Leader", "short",
           "Is there exactly one leading scheduler? 0: no scheduler holds the lease; see its log and the database.",
           ("sum(shunt_leader)", "leaders"), kind="stat")
EXECUTORS = p("Executors up", "short",
              "How many executors are connected? Fewer than expected: see the executor logs on that host.",
              ('sum(shunt_executors{state="up"})', "up"), kind="stat")
DATABASE = p("Database", "bool_yes_no",
             "Does PostgreSQL answer every process? No: requests go on from caches, jobs and the control plane wait.",
             ("min(shunt_db_up)", "up"), kind="stat")
OLDEST = p("Oldest waiting", "s",
           "How long has the oldest request or job waited? It grows while nothing of that tenant moves: "
           "`shunt explain` says why.",
           ("max by (tenant, kind) (shunt_oldest_waiting_seconds)", "{{tenant}} {{kind}}"))
OUTCOMES = p("Requests by outcome", "reqps",
             "How many requests end how? Anything but ok is a reason code; QUEUEFULL and SLO mean too little capacity.",
             (rate("outcome", "shunt_requests_total"), "{{outcome}}"))
LATENCY = p("Latency by model", "s",
            "How long do clients wait, median and 99th percentile? Compare with the stages of a switch.",
            *quantiles("shunt_request_duration_seconds", TM, MODEL))
ATTAINMENT = p("SLO attainment", "percentunit",
               "Which part of the requests meets its target? Below the objective: raise capacity, lower the load "
               "or change the target.", (share(TM, 'outcome="met"', SLO), MODEL))
BURN = p("Burn rate of the error budget", "short",
         "How many times faster than allowed is the budget used up? Above 14.4 for an hour, 2 % of a month's are "
         "gone: ShuntSloBurnsFast.",
         ("(1 - %s) / on (tenant, model) (1 - max by (tenant, model) (shunt_slo_objective_ratio))"
          % share(TM, 'outcome="met"', SLO), MODEL))
QUEUE = p("Waiting requests", "short",
          "Do requests pile up before the device? A steady queue means the device is the bottleneck.",
          ("sum by (tenant, model) (shunt_request_queue_length)", MODEL))
USES = p("Who has the device", "percentunit",
         "What does each device do, all of its time? Mostly switch: ShuntThrash. Mostly idle: there is room.",
         ("sum by (executor, use) (rate(shunt_device_seconds_total[]))", "{{executor}} {{use}}"), stack=True)
TENANTS = p("Device time by tenant", "percentunit",
            "Which tenant has how much of all devices, and for what? These are the numbers of the bills.",
            ('sum by (tenant, use) (rate(shunt_device_seconds_total{use=~"inference|training|batch"}[]))',
             "{{tenant}} {{use}}"), stack=True)
SWITCHING = p("Cost of switching by tenant", "percentunit",
              "How much of the devices' time goes by because somebody's requests come and go? On no bill.",
              ('sum by (tenant) (rate(shunt_device_seconds_total{use="switch"}[]))', "{{tenant}}"), stack=True)
WORKING_SET = p("Working set by tenant", "bytes",
                "Which tenant's models were used within a minute, and how large are they together? Above the arena's "
                "total they push each other out: more memory (--pool-bytes), fewer models, or "
                "gpu_memory_max_bytes for that tenant.",
                ("sum by (executor, tenant) (shunt_working_set_bytes)", "{{executor}} {{tenant}}"), stack=True)
FAULTS = p("Faults by tenant", "percentunit",
           "Which part of the runs of whose models had to wait for weights? High beside a small working set: others "
           "push it out; gpu_memory_min_bytes keeps a part for it.",
           (share("tenant", 'result!="full"', "shunt_residency_total"), "{{tenant}}"))
ENERGY = p("Power by tenant", "watt",
           "Who draws how much power? By device time; only where NVML is.",
           ("sum by (tenant, use) (rate(shunt_device_joules_total[]))", "{{tenant}} {{use}}"), stack=True)
JOBS = p("Jobs by state", "short", "What waits, what runs? QUEUED for long: `shunt get job` shows the reason.",
         ("sum by (tenant, state) (shunt_jobs)", "{{tenant}} {{state}}"))
SAMPLES = p("Samples per second", "wps", "How fast does training go on?",
            (rate(TM, "shunt_train_samples_total"), MODEL))
LOSS = p("Loss", "none", "Does it learn?", ("max by (tenant, model) (shunt_train_loss)", MODEL))
PREEMPTIONS = p("Preemptions", "ops",
                "How often is training stopped, and how? swap is the dearest: more memory or fewer models help, as "
                "where it is held off for images (shunt_training_held_off).",
                (rate("executor, way", "shunt_preemptions_total"), "{{executor}} {{way}}"),
                (rate("executor", "shunt_training_holds_total"), "{{executor}} held off for images"))
MEMORY = p("Memory of our processes", "bytes",
           "Does any process grow without end? A steady slope is a leak: report it with the process's name.",
           ("sum by (job, instance) (shunt_process_resident_bytes)", "{{job}} {{instance}}"))
ARENA = p("Arena", "bytes", "What fills the device's memory?",
          ('sum by (executor, kind) (shunt_arena_bytes{kind!="total"})', "{{executor}} {{kind}}"), stack=True)

# ------------------------------------------------------------------ the five
OVERVIEW = {
    "title": "Shunt overview", "text": "Is it healthy, who waits, and what do the devices do?",
    "rows": [
        ("Is it healthy?", [LEADER, EXECUTORS, DATABASE, p(
            "HTTP by status", "reqps",
            "Which statuses leave the API? A rise of 5xx: look at the reason codes beside it. 429: a tenant hits "
            "its quota.", (rate("code", "shunt_http_requests_total"), "{{code}}"), width=6), {**OLDEST, "width": 6}]),
        ("Requests", [OUTCOMES, LATENCY, ATTAINMENT, BURN, QUEUE]),
        ("Devices", [USES, TENANTS, ARENA]),
        ("Jobs", [JOBS, SAMPLES, MEMORY])]}

TENANT = {
    "title": "Shunt tenant", "text": "One tenant, or some: what they get, what they wait for, what they use.",
    "variables": ("tenant",),
    "rows": [
        ("Requests", [
            OUTCOMES, LATENCY, ATTAINMENT, BURN, QUEUE,
            p("Time in queue, p99", "s", "How long from ready to dispatched?",
              *quantiles("shunt_request_queue_wait_seconds", TM, MODEL, 0.99))]),
        ("What they use", [TENANTS, SWITCHING, WORKING_SET, FAULTS, ENERGY, p(
            "Uploads", "Bps", "Which tenants upload models and datasets?",
            (rate("tenant", "shunt_uploads_bytes_total"), "{{tenant}}"))]),
        ("Jobs", [JOBS, OLDEST, p(
            "Jobs that ended", "ops", "How do jobs end? FAILED: `shunt get job` has the reason.",
            (rate("tenant, state", "shunt_jobs_finished_total"), "{{tenant}} {{state}}")), SAMPLES, LOSS, p(
            "Samples of batch inference", "wps", "How fast does batch inference go on?",
            (rate(TM, "shunt_batch_samples_total"), MODEL))])]}

GPU = {
    "title": "Shunt GPU and switching", "text": "What each device does, what a switch costs, and what its memory holds.",
    "variables": ("executor",),
    "rows": [
        ("Time", [USES, TENANTS, SWITCHING, p(
            "Time accounted for", "percentunit",
            "Does all of the wall time have an owner? Below 99 % for minutes: runs take minutes, or it is a bug.",
            ("sum by (executor) (rate(shunt_device_seconds_total[])) / "
             "sum by (executor) (rate(shunt_device_wall_seconds_total[]))", "{{executor}}"))]),
        ("Switches", [
            p("Switch by stage, p99", "s",
              "Where does the time of a switch go? copy high: the model was not resident; drain high: operations of "
              "training are long.", *quantiles("shunt_switch_duration_seconds", "stage", "{{stage}}", 0.99)),
            p("Stop to drained", "s", "How fast does training leave the device?",
              *quantiles("shunt_stop_to_drained_seconds", "way", "{{way}}")),
            PREEMPTIONS,
            p("Runs by outcome", "ops", "How do runs on the device end? Anything but ok is a reason code.",
              (rate("outcome", "shunt_runs_total"), "{{outcome}}")),
            p("Samples per run", "short", "How well does batching work? Samples in a run, on average.",
              ("sum by (model) (rate(shunt_batch_size_sum[])) / sum by (model) (rate(shunt_batch_size_count[]))",
               "{{model}}"))]),
        ("Memory and links", [
            ARENA,
            p("Residency at dispatch", "ops", "How often was the model on the device already? none: too little memory, "
              "or too many models.", (rate("result", "shunt_residency_total"), "{{result}}")),
            p("Faults", "ops", "How often had weights to be copied (hard)? soft: only with the policy second-chance.",
              (rate("executor, kind", "shunt_residency_faults_total"), "{{executor}} {{kind}}")),
            WORKING_SET, FAULTS,
            p("Bytes copied", "Bps", "What travels over the links, and what for?",
              (rate("executor, direction, purpose", "shunt_copied_bytes_total"),
               "{{executor}} {{direction}} {{purpose}}")),
            p("Rate of the link", "Bps", "How fast are copies to the device? Half of what it was: ShuntLinkSlow.",
              ("max by (executor) (shunt_link_bytes_per_second)", "{{executor}}")),
            p("Resident bytes by model", "bytes", "Which models are on the device?",
              ("sum by (executor, model) (shunt_resident_bytes)", "{{executor}} {{model}}"))]),
        ("Workers", [
            p("Workers", "short", "Is the pool complete? DEAD or STARTING for long: see worker exits in the executor's "
              "log.", ("sum by (executor, state) (shunt_workers)", "{{executor}} {{state}}")),
            p("Host memory of models", "bytes", "What do images and programs take of the host's memory?",
              ("sum by (executor, kind) (shunt_model_host_bytes)", "{{executor}} {{kind}}"))]),
        ("NVML", [
            p("Utilisation", "percent", "Does a kernel run? 100 % says nothing of how well: see who has the device.",
              ("avg by (gpu, modelName) (DCGM_FI_DEV_GPU_UTIL)", "{{gpu}} {{modelName}}")),
            p("Power", "watt", "How much does each GPU draw?",
              ("sum by (gpu) (DCGM_FI_DEV_POWER_USAGE)", "{{gpu}}")), ENERGY,
            p("Temperature", "celsius", "Is one too hot? Above 87: ShuntGpuHot.",
              ("max by (gpu) (DCGM_FI_DEV_GPU_TEMP)", "{{gpu}}")),
            p("Clocks", "hertz", "Is one slowed down, by power or heat?",
              ("max by (gpu) (DCGM_FI_DEV_SM_CLOCK) * 1e6", "{{gpu}} SM"),
              ("max by (gpu) (DCGM_FI_DEV_MEM_CLOCK) * 1e6", "{{gpu}} memory")),
            p("Device memory in use", "mbytes", "How much is used, by whomever?",
              ("sum by (gpu) (DCGM_FI_DEV_FB_USED)", "{{gpu}} used"),
              ("sum by (gpu) (DCGM_FI_DEV_FB_FREE)", "{{gpu}} free"))])]}

TRAINING = {
    "title": "Shunt training", "text": "Jobs: do they go on, do they learn, and what would be lost?",
    "variables": ("tenant",),
    "rows": [
        ("Progress", [
            p("Committed steps", "ops", "How fast does training go on?",
              (rate(TM, "shunt_train_steps_total"), MODEL)), SAMPLES,
            p("Steps run again", "percentunit",
              "How much is computed twice, because a step was dropped or a worker died? Above a half: "
              "ShuntTrainingRedone.",
              ("(%s or 0 * %s) / %s" % (rate(TM, "shunt_train_steps_redone_total"),
                                        rate(TM, "shunt_train_steps_total"),
                                        rate(TM, "shunt_train_steps_total")), MODEL)),
            LOSS, p("Loss of evaluations", "none", "Does it learn what it has not seen?",
                    ("max by (tenant, model) (shunt_train_eval_loss)", MODEL))]),
        ("Checkpoints", [
            p("Age of the newest checkpoint", "s",
              "What would be lost if a worker (host) or a host (disk) died now? Old on disk: ShuntCheckpointOld.",
              ("max by (executor, kind) (shunt_checkpoint_age_seconds)", "{{executor}} {{kind}}")),
            p("Checkpoints", "ops", "Are checkpoints written? DISKFULL: free space under the state folder; training "
              "goes on with the last good one.",
              (rate("kind, outcome", "shunt_checkpoints_total"), "{{kind}} {{outcome}}")),
            p("Checkpoint time, p99", "s", "How long from commit to host slot, and from slot to disk?",
              *quantiles("shunt_checkpoint_duration_seconds", "kind", "{{kind}}", 0.99))]),
        ("Jobs", [JOBS, OLDEST, PREEMPTIONS, p(
            "Device time of training", "percentunit", "How much of all devices trains?",
            ('sum by (tenant, executor) (rate(shunt_device_seconds_total{use="training"}[]))',
             "{{tenant}} {{executor}}"), stack=True)])]}

CONTROL = {
    "title": "Shunt control plane", "text": "Schedulers, API, database: do they keep up?",
    "rows": [
        ("Leading", [LEADER, EXECUTORS, DATABASE, p(
            "Who leads", "bool_yes_no", "Which scheduler leads, and are there standbys? None: ShuntNoStandby.",
            ("max by (instance) (shunt_leader)", "{{instance}}"), width=12)]),
        ("Scheduler", [
            p("Pass, p99", "s", "How long does the scheduler think? Above 10 ms: it is a part of every latency.",
              *quantiles("shunt_scheduler_pass_seconds", "instance", "{{instance}}", 0.99)),
            p("Decisions against somebody", "ops", "Which rules refuse, delay or preempt? docs/rules.md explains each.",
              (rate("decision, rule", "shunt_decisions_total"), "{{decision}} {{rule}}")),
            p("Predictions that held", "percentunit",
              "Did runs take no longer than was predicted for a slow one? Admission is a promise as long as nearly all "
              "do.", (share("model", 'result="held"', "shunt_predictions_total"), "{{model}}")),
            p("Promises kept", "percentunit", "Were requests that were let in with a limit answered in time?",
              (share("model", 'result="kept"', "shunt_promises_total"), "{{model}}")),
            p("Load by placement", "percentunit", "How much of a device is the demand for its versions expected to take?",
              ("max by (executor) (shunt_placement_load)", "{{executor}}")), OLDEST]),
        ("Database", [
            p("Statements, p99", "s", "Which statements are slow? All of them: look at the database's disk.",
              *quantiles("shunt_db_query_seconds", "statement", "{{statement}}", 0.99)),
            p("Statements", "ops", "Which statements are many?",
              (rate("statement", "shunt_db_query_seconds_count"), "{{statement}}")),
            p("Partitions ahead", "s", "Is there a partition for tomorrow? Below a day: ShuntPartitionsMissing.",
              ("min by (table) (shunt_partition_ahead_seconds)", "{{table}}")),
            p("Usage that is not written", "s", "How old is the oldest? Above 15 min: ShuntUsageNotWritten.",
              ("max by (executor) (shunt_usage_unwritten_age_seconds)", "{{executor}}"))]),
        ("API and processes", [
            p("HTTP latency by route, p99", "s", "Which routes are slow?",
              *quantiles("shunt_http_request_duration_seconds", "route", "{{route}}", 0.99)),
            p("Connections", "short", "How many clients are there?",
              ("sum by (instance) (shunt_http_connections)", "{{instance}} connections"),
              ("sum by (instance) (shunt_http_streams)", "{{instance}} streams")),
            p("Payload slab", "bytes", "Is there room for bodies of requests? Full: ShuntPayloadFull.",
              ("sum by (instance, kind) (shunt_payload_bytes)", "{{instance}} {{kind}}")),
            p("Log lines", "ops", "Does somebody complain? error: a person must act.",
              (rate("job, instance, level", "shunt_log_lines_total"), "{{instance}} {{level}}")), MEMORY])]}

DASHBOARDS = {"overview": OVERVIEW, "tenant": TENANT, "gpu": GPU, "training": TRAINING, "control": CONTROL}
