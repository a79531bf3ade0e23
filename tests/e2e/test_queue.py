#!/usr/bin/env python3
"""Very many jobs that wait, changes that commit late, schedulers killed in between: shunt-scheduler with
a real PostgreSQL; this file plays its executors.

Without it: the jobs of one tenant, queue or version could keep those of others from ever being looked
at, a job could start before one that goes first, a submission that commits late could wait for ever, and
a new leader could miss what changed while nobody led.

Usage: test_queue.py [-v] [name ...]   (sched_world.py)
"""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from sched_world import DONE, RESULT, URL, Case, main, sql, wait  # noqa: E402

WINDOW = 128  # LINES_MAX_WINDOW


class Queue(Case):
    def setUp(self):
        super().setUp()
        sql("UPDATE quota SET max_queued_jobs = 1000000")

    def fill(self, n, tenant=1, queue=1, version=1, state="QUEUED", priority="0"):
        sql("INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec, state, priority)"
            " SELECT %d, %d, 'training', %d, 1, '{\"batch\": 4}', '%s', %s FROM generate_series(1, %d) i"
            % (tenant, queue, version, state, priority, n))

    def quota(self, tenant, jobs):
        sql("UPDATE quota SET max_running_jobs = %d WHERE tenant_id = %d" % (jobs, tenant))

    def next_start(self, e):
        """The job that starts next on this executor, from start to end."""
        m = wait("a start", lambda: len(e.all("JOB_START")) > e.n_started and
                 e.all("JOB_START")[e.n_started])
        e.n_started += 1
        e.job(m.job, DONE, attempt=m.attempt, step=100, result=json.dumps(RESULT))
        return m.job

    def executor(self, **k):
        e = self.ready_executor(**k)
        e.n_started = 0
        return e

    def psql(self):
        p = subprocess.Popen(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", URL], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, bufsize=1)
        self.addCleanup(lambda: (p.stdin.close(), p.wait(10), p.stdout.close()))
        return p

    def say(self, p, text):
        p.stdin.write(text + ";\n\\echo done\n")
        p.stdin.flush()
        while p.stdout.readline().strip() != "done":
            self.assertIsNone(p.poll())

    # ------------------------------------------------------------ order

    def test_a_long_line_runs_in_its_order_past_every_window(self):
        n = 3 * WINDOW + 10
        self.fill(n, priority="i % 3")
        self.start()
        e = self.executor()
        want = sql("SELECT id FROM job ORDER BY priority DESC, id").split()
        self.assertEqual([self.next_start(e) for _ in range(n)], [int(x) for x in want])
        wait("all of them", lambda: sql("SELECT count(*) FROM job WHERE state = 'SUCCEEDED'") == str(n))

    def test_one_that_comes_late_and_goes_first_goes_before_all_that_wait(self):
        self.fill(5 * WINDOW)
        self.quota(1, 0)
        self.start()
        e = self.executor()
        last = int(sql("SELECT max(id) FROM job"))
        sql("UPDATE job SET priority = 5 WHERE id = %d" % last)  # behind what is held
        first = self.submit(priority=9)
        self.quota(1, 1)
        self.assertEqual([self.next_start(e) for _ in range(3)], [first, last, 1])

    def test_nobody_waits_behind_the_window_of_others(self):
        """A tenant with 20,000 jobs, a queue that is held, a version that nobody has compiled, an
        array of failures: each fills its own line, and others start at once."""
        sql("INSERT INTO queue (name, state) VALUES ('night', 'HELD'); INSERT INTO model_version"
            " (model_id, version, state, digest, package) VALUES (1, 2, 'UPLOADING', repeat('c', 64), 'c');"
            " INSERT INTO tenant (name) VALUES ('third'); INSERT INTO quota (tenant_id) VALUES (3)")
        self.fill(20000, priority="1000")
        self.quota(1, 0)
        self.fill(2000, tenant=2, queue=2, priority="1000")
        self.fill(2000, tenant=2, version=2, priority="1000")
        self.fill(500, tenant=2, priority="900")
        sql("UPDATE job SET not_before = now() + interval '1 h', attempt = 2 WHERE priority = 900")
        self.start()
        e = self.executor()
        for tenant in (2, 3, 2, 3):
            job = self.submit(tenant=tenant)
            self.assertEqual(self.next_start(e), job)
            self.state(job, "SUCCEEDED")
        self.quota(1, 100)
        self.assertEqual(self.next_start(e), 1)  # and they were not forgotten
        sql("UPDATE queue SET state = 'OPEN' WHERE id = 2; UPDATE quota SET max_running_jobs = 0"
            " WHERE tenant_id <> 2")
        wait("the queue that was opened", lambda: sql(
            "SELECT queue_id FROM job WHERE id = %d" % self.next_start(e)) == "2")

    def test_an_array_at_its_limit_stands_in_nobodys_way(self):
        sql("INSERT INTO job_array (tenant_id, indices, n_jobs, max_parallel, template) VALUES"
            " (1, '0-599', 600, 1, '{}'); INSERT INTO job (tenant_id, queue_id, kind, version_id,"
            " dataset_id, spec, priority, array_id, array_index) SELECT 1, 1, 'training', 1, 1,"
            " '{}', 1000, 1, i FROM generate_series(0, 599) i")
        self.start()
        first, second = self.executor(), self.exec(name="e1", models=[1])
        second.n_started = 0
        taken = wait("one of it", lambda: (first.all("JOB_START") + second.all("JOB_START")))[0].job
        self.assertEqual(taken, 1)
        e = second if first.find("JOB_START") else first
        for _ in range(5):
            job = self.submit()
            self.assertEqual(self.next_start(e), job)
        sql("UPDATE job_array SET max_parallel = 2")
        self.assertEqual(self.next_start(e), 2)

    def test_tenants_with_long_lines_take_turns(self):
        self.fill(1000)
        self.fill(1000, tenant=2, priority="1000")  # counts among its own jobs only
        self.start()
        e, starts = self.executor(), []
        for _ in range(30):
            m = wait("a start", lambda: len(e.all("JOB_START")) > len(starts) and
                     e.all("JOB_START")[len(starts)])
            starts.append(m.job)
            e.job(m.job, DONE, attempt=m.attempt, step=100, busy_ns=int(1e9), result=json.dumps(RESULT))
        of_first = sum(j <= 1000 for j in starts)
        self.assertTrue(12 <= of_first <= 18, starts)

    def test_a_deadline_counts_far_behind_the_window(self):
        self.fill(10 * WINDOW)
        self.quota(1, 0)
        self.start()
        self.executor()
        last, held = int(sql("SELECT max(id) FROM job")), self.submit()
        sql("UPDATE job SET state = 'HELD', deadline = now() + interval '300 ms' WHERE id = %d; UPDATE job"
            " SET deadline = now() + interval '300 ms' WHERE id = %d" % (held, last))
        self.state(held, "EXPIRED")
        self.state(last, "EXPIRED")

    def test_cancelled_behind_the_window_and_in_it_starts_nowhere(self):
        self.fill(2 * WINDOW)
        self.quota(1, 0)
        self.start()
        e = self.executor()
        sql("UPDATE job SET state = 'CANCELLED', finished_at = now() WHERE id % 2 = 1")
        self.quota(1, 1)
        self.assertEqual([self.next_start(e) for _ in range(WINDOW)],
                         [2 * i for i in range(1, WINDOW + 1)])

    # ------------------------------------------------------------ late commits, leaders

    def test_a_submission_that_commits_late_starts_and_others_do_not_wait_for_it(self):
        self.start()
        e, late, reader = self.executor(), self.psql(), self.psql()
        self.say(reader, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM job")
        self.quota(1, 0)
        self.fill(15)
        self.say(late, "BEGIN; INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec,"
                       " priority) VALUES (1, 1, 'training', 1, 1, '{}', 0)")
        self.quota(1, 1)  # others of its tenant start too
        self.assertEqual([self.next_start(e) for _ in range(15)], list(range(1, 16)))
        end, n = time.monotonic() + 3, 0
        while time.monotonic() < end or n <= 10:  # many looks, full ones too
            job = self.submit(tenant=2)
            self.assertEqual(self.next_start(e), job)
            n += 1
        self.say(late, "COMMIT")
        self.assertEqual(self.next_start(e), 16)
        self.say(reader, "COMMIT")

    def test_changes_of_several_open_transactions_survive_the_leaders_death(self):
        """Killed at any moment between reading and using: the next one has it all."""
        leader = self.start("s1")
        self.executor().close()
        late = [self.psql() for _ in range(4)]
        for i, p in enumerate(late):
            wait("a leader", lambda: sql("SELECT epoch FROM lease") == str(i + 1))
            self.say(p, "BEGIN; INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec)"
                        " VALUES (2, 1, 'training', 1, 1, '{}')")
            self.fill(10)
            if i % 2 == 0:
                self.say(p, "COMMIT")
            time.sleep(0.03 * i)
            leader.kill()
            leader.wait()
            if i % 2:
                self.say(p, "COMMIT")
            leader = self.start("s%d" % (i + 2))
        e = wait("the last leader", lambda: sql("SELECT epoch FROM lease") == "5" and self.again())
        n = 44
        starts = [self.next_start(e) for _ in range(n)]
        self.assertEqual(sorted(starts), [int(x) for x in sql("SELECT id FROM job ORDER BY id").split()])
        wait("all of them", lambda: sql("SELECT count(*) FROM job WHERE state = 'SUCCEEDED'") == str(n))
        self.assertEqual(sql("SELECT count(*), count(DISTINCT job_id) FROM job_event WHERE to_state ="
                             " 'STARTING'"), "%d|%d" % (n, n))

    def again(self):
        try:
            e = self.exec(incarnation=2, models=[1])
            e.n_started = 0
            return e
        except OSError:
            return None

    def test_what_was_seen_is_removed_from_the_table_of_changes(self):
        self.start()
        e = self.executor()
        self.fill(30)
        for _ in range(30):
            self.next_start(e)
        wait("an empty table", lambda: sql("SELECT count(*) FROM hot_change") == "0")

    def test_thousands_at_once_are_taken_up_by_a_full_look(self):
        self.start()
        e = self.executor()
        self.quota(1, 0)
        self.fill(12000)
        job = self.submit(priority=9)
        self.quota(1, 1)
        self.assertEqual([self.next_start(e) for _ in range(2)], [job, 1])


if __name__ == "__main__":
    main()
