#!/usr/bin/env python3
"""What partitions of the events cost and save, beside the same events in one table.

Two databases on DATABASE_URL's server (a throw-away one, whose user may make databases: `tests/pg.sh run
bench/history.py`), one with the migrations up to 8 and one with all; the same jobs and events, 14 weeks
of them, in both. In turns, by pgbench with one connection and prepared statements:

  insert   an event of a job, with its number, in a transaction of its own
  job      the events of a job
  newest   the number of a job's newest event
  day      the newest 100 events of the last day
  stream   what is new for 50 streams of one job each
  all      what is new for 50 streams of all jobs

and then the end of all of them: deleted in batches of 1000, each in its transaction; dropped by
history_step().

Standard library only. --events for another number than 5,000,000.
"""
import argparse
import os
import re
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
URL = os.environ["DATABASE_URL"]
PGBENCH = os.path.join(os.environ["SHUNT_PG_BIN"], "pgbench")
FINAL = "('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXPIRED')"
FILL = """
SET session_replication_role = replica;
INSERT INTO tenant (name) VALUES ('lab'); INSERT INTO model (tenant_id, name) VALUES (1, 'm');
INSERT INTO model_version (model_id, version, state, digest, package) VALUES (1, 1, 'READY', repeat('a', 64), 'p');
INSERT INTO dataset (tenant_id, name, state, digest, path, n_samples) VALUES (1, 'd', 'READY', repeat('b', 64), 'd', 1);
INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec, state, created_at, finished_at)
    SELECT 1, 1, 'training', 1, 1, '{{}}', CASE WHEN i %% 2000 = 0 THEN 'HELD' ELSE 'SUCCEEDED' END, at,
    CASE WHEN i %% 2000 = 0 THEN NULL ELSE at + interval '1 minute' END FROM (SELECT i, now() - interval '98 days'
    + i * interval '98 days' / {jobs} AS at FROM generate_series(1, {jobs}) i) x;
INSERT INTO job_event (job_id, at, to_state, reason, detail) SELECT j.id, j.created_at + k * interval '1 s',
    'RUNNING', 'Priority', '{{"executor": "gpu-0", "attempt": 1, "step": 1000}}'
    FROM job j, generate_series(0, 4) k ORDER BY 2;
""".replace("%%", "%")
WEEKS = """
ALTER TABLE job_event DETACH PARTITION job_event_first;
DO $$ DECLARE a timestamptz := date_trunc('week', now() - interval '98 days', 'UTC'); BEGIN
    FOR k IN 0 .. 17 LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF job_event FOR VALUES FROM (%L) TO (%L)', 'job_event_w' || k,
            a + k * interval '7 days', a + (k + 1) * interval '7 days');
    END LOOP; END $$;
SET session_replication_role = replica;
INSERT INTO job_event OVERRIDING SYSTEM VALUE SELECT * FROM job_event_first ORDER BY id;
DROP TABLE job_event_first;
"""
JOB = "\\set job random(1, {jobs})\n"
LOADS = {
    "insert": JOB + "INSERT INTO job_event (job_id, to_state) VALUES (:job, 'RUNNING');",
    "job": JOB + "SELECT e.* FROM job_event e JOIN job j ON j.id = e.job_id WHERE j.tenant_id = 1 AND j.id = "
           ":job AND (NULL::bigint IS NULL OR e.id > NULL::bigint) ORDER BY e.id LIMIT 101;",
    "newest": JOB + "SELECT coalesce((SELECT max(e.id) FROM job_event e WHERE e.job_id = j.id), 0) FROM job j WHERE "
              "j.id = :job;",
    "day": "SELECT e.* FROM job_event e JOIN job j ON j.id = e.job_id WHERE e.at >= coalesce(NULL::timestamptz, now() "
           "- interval '1 day') ORDER BY e.id DESC LIMIT 101;",
    "stream": JOB + "SELECT e.* FROM unnest((SELECT array_agg(:job::bigint + g) FROM generate_series(1, 50) g), "
              "array_fill(100000000::bigint, ARRAY[50])) WITH ORDINALITY w (job, after, place) CROSS JOIN LATERAL "
              "(SELECT * FROM job_event x WHERE x.job_id = w.job AND x.id > w.after ORDER BY x.id LIMIT 100) e "
              "ORDER BY e.id;",
    "all": "WITH w AS MATERIALIZED (SELECT * FROM jsonb_to_recordset((SELECT jsonb_agg(jsonb_build_object('xid', "
           "pg_snapshot_xmin(pg_current_snapshot())::text)) FROM generate_series(1, 50) g)) AS w (xid text)) SELECT "
           "e.* FROM (SELECT DISTINCT xid FROM w) p CROSS JOIN LATERAL (SELECT * FROM job_event x WHERE (x.xid, "
           "x.id) > (p.xid::xid8, 0) AND x.xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY x.xid, x.id LIMIT "
           "100) e JOIN w ON w.xid = p.xid;",
}
DELETE = """PREPARE d AS DELETE FROM job_event WHERE id IN (SELECT e.id FROM job_event e WHERE e.at < now() + interval
    '1 day' AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id = e.job_id AND j.finished_at IS NULL) ORDER BY e.at
    LIMIT 1000 FOR UPDATE OF e SKIP LOCKED);
"""


def database(name):
    return re.sub(r"(://[^/]*/)[^?]*", r"\g<1>" + name, URL)


def psql(name, text, *args):
    p = subprocess.run(["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", database(name), *args], input=text,
                       stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PGTZ": "UTC"})
    return p.stdout.strip()


def migrate(name, numbers):
    for f in sorted(os.listdir(os.path.join(ROOT, "migrations"))):
        if f.endswith(".sql") and int(f[:4]) in numbers:
            psql(name, "", "-1", "-f", os.path.join(ROOT, "migrations", f))


def load(name, text, seconds):
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as f:
        f.write(text)
        f.flush()
        out = subprocess.run([PGBENCH, "-n", "-M", "prepared", "-f", f.name, "-T", str(seconds), database(name)],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    return float(re.search(r"latency average = ([\d.]+)", out).group(1))


def end(name, text):
    lsn = psql(name, "SELECT pg_current_wal_insert_lsn()")
    before = time.monotonic()
    steps = len(psql(name, text).splitlines())
    took = time.monotonic() - before
    wal = int(psql(name, "SELECT pg_current_wal_insert_lsn() - '%s'::pg_lsn" % lsn))
    size, dead = psql(name, "SELECT sum(pg_total_relation_size(c.oid)), sum(pg_stat_get_dead_tuples(c.oid)) FROM "
                            "pg_class c WHERE c.relname ~ '^job_event' AND c.relkind = 'r'").split("|")
    rows = psql(name, "SELECT count(*) FROM job_event")
    print("%-8s %8.2f s, %7.1f MB of WAL, %d steps; left: %s rows, %s dead, %.1f MB"
          % (name, took, wal / 1e6, steps, rows, dead, int(size) / 1e6))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--events", type=int, default=5000000)
    p.add_argument("--seconds", type=int, default=5)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    jobs = a.events // 5
    psql("postgres", "DROP DATABASE IF EXISTS one; DROP DATABASE IF EXISTS parts; CREATE DATABASE one")
    migrate("one", range(1, 9))
    psql("one", FILL.format(jobs=jobs))
    psql("postgres", "CREATE DATABASE parts TEMPLATE one")
    before = time.monotonic()
    migrate("parts", [9])
    print("migration of %d events: %.1f s" % (a.events, time.monotonic() - before))
    psql("parts", WEEKS)
    for name in ("one", "parts"):
        psql(name, "VACUUM ANALYZE; INSERT INTO lease VALUES ('scheduler', 'bench', 1, now() + '1 day')")
    print("%-8s %10s %10s %8s" % ("ms", "one table", "partitions", "ratio"))
    for what, text in LOADS.items():
        got = {"one": [], "parts": []}
        for _ in range(a.rounds):
            for name, times in got.items():
                times.append(load(name, text.format(jobs=jobs), a.seconds))
        one, parts = min(got["one"]), min(got["parts"])
        print("%-8s %10.3f %10.3f %8.2f" % (what, one, parts, parts / one))
    end("one", DELETE + "EXECUTE d;\n" * (a.events // 1000) + "SELECT generate_series(1, %d)" % (a.events // 1000))
    end("parts", "SELECT did FROM history_step('bench', 1, 'job_event', 'week', 0, 1, 1000);\n" * 14)


if __name__ == "__main__":
    main()
