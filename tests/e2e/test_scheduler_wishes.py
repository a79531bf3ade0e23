#!/usr/bin/env python3
"""What clients wish of jobs (suspend, resume, requeue, checkpoint, a deadline, an explanation): a
shunt-scheduler with a real PostgreSQL carries it out; this file plays executors and APIs.

Without it: a wish could be lost with an executor or a leader, a leader that was replaced could answer
one, a deadline could pass unseen behind a job that runs, and an explanation could name what is another
tenant's.

Usage: test_scheduler_wishes.py [-v] [name ...]   (sched_world.py)
"""
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from sched_world import (  # noqa: E402
    DONE, JOB_FAILED, LONG_GRACE, MIN_RUN_S, RESULT, RUNNING, SUSPENDED, Case, main, sql, wait)


class Wishes(Case):
    def wish(self, job, text):
        """What the API writes: a column and an event without a change of state."""
        sql("UPDATE job SET wish = '%s', row_version = row_version + 1 WHERE id = %d; INSERT INTO"
            " job_event (job_id, from_state, to_state, reason) SELECT id, state, state, 'Asked' FROM"
            " job WHERE id = %d" % (text, job, job))

    def test_a_suspended_job_gives_its_slot_to_the_next_and_goes_on_when_resumed(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        second = self.submit()
        self.wish(job, "SUSPEND")
        self.assertEqual(e.expect("JOB_STOP", job=job).how, 1)
        e.send("JOB_CHECKPOINT", job=job, attempt=1, step=9, path="%d/ckpt-9" % job, digest="d",
               bytes=1)
        e.job(job, SUSPENDED, step=9)
        self.state(job, "SUSPENDED")
        e.expect("JOB_START", job=second)
        self.assertEqual(sql("SELECT reason, wish, executor FROM job WHERE id = %d" % job),
                         "Suspended||")
        e.job(second, JOB_FAILED, rc=-1, msg="bad")
        self.state(second, "FAILED")
        e.inbox.clear()
        time.sleep(0.5)
        self.assertFalse(e.find("JOB_START"))  # not before it is resumed
        sql("UPDATE job SET state = 'QUEUED' WHERE id = %d" % job)
        m = e.expect("JOB_START", job=job, attempt=1)
        self.assertEqual(m.resume_step, 9)

    def test_a_requeued_job_starts_after_its_equals(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        second = self.submit()
        self.wish(job, "REQUEUE")
        e.expect("JOB_STOP", job=job)
        e.job(job, SUSPENDED, step=3)
        e.expect("JOB_START", job=second)
        self.state(job, "QUEUED")
        self.assertIn("Requeued", sql("SELECT string_agg(reason, ' ') FROM job_event WHERE job_id ="
                                      " %d" % job))

    def test_a_wish_is_told_again_to_an_executor_that_was_away(self):
        self.start("s1", LONG_GRACE)
        e = self.ready_executor()
        job = self.running(e)
        self.wish(job, "SUSPEND")
        e.expect("JOB_STOP", job=job)
        e.close()
        e = self.exec(models=[1], jobs=[(job, 1, RUNNING)])
        self.assertEqual(e.expect("JOB_STOP", job=job).how, 1)
        e.job(job, SUSPENDED)
        self.state(job, "SUSPENDED")

    def test_a_job_whose_executor_is_lost_while_it_is_suspended_stays_suspended(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        self.wish(job, "SUSPEND")
        e.expect("JOB_STOP", job=job)
        e.close()
        self.state(job, "SUSPENDED")

    def test_a_new_leader_carries_out_what_the_old_one_was_asked(self):
        leader = self.start("s1")
        e = self.ready_executor()
        job = self.running(e)
        leader.kill()
        self.wish(job, "SUSPEND")
        self.start("s2", LONG_GRACE)
        e = self.exec(models=[1], jobs=[(job, 1, RUNNING)])
        self.assertEqual(e.expect("WELCOME").epoch, 2)
        self.assertEqual(e.expect("JOB_STOP", job=job).epoch, 2)
        e.job(job, SUSPENDED)
        self.state(job, "SUSPENDED")

    def test_a_leader_that_lost_the_lease_does_not_carry_out_a_wish(self):
        self.start("s1", "--lease-ttl-ms=60000")
        e = self.ready_executor()
        job = self.running(e)
        sql("UPDATE lease SET holder = 'other/1', epoch = epoch + 1")
        self.wish(job, "SUSPEND")
        e.job(job, SUSPENDED, step=3)
        wait("the loss", lambda: e.closed)
        self.assertEqual(sql("SELECT state, wish FROM job"), "RUNNING|SUSPEND")
        sql("UPDATE lease SET expires_at = now() - interval '1 s'")

    def test_a_checkpoint_on_demand_is_asked_once_and_answered_in_the_row(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        sql("UPDATE job SET save_asked = 1")
        m = e.expect("JOB_SAVE", job=job, asked=1)
        self.assertEqual((m.attempt, m.epoch), (1, 1))
        time.sleep(0.4)
        self.assertEqual(len(e.all("JOB_SAVE")), 1)
        e.send("JOB_SAVED", job=job, attempt=1, asked=1, step=12, rc=0, msg="")
        wait("the answer", lambda: sql("SELECT save_done FROM job") == "1")
        sql("UPDATE job SET save_asked = 2")
        e.expect("JOB_SAVE", job=job, asked=2)
        e.send("JOB_SAVED", job=job, attempt=1, asked=2, step=13, rc=-5, msg="disk full")
        wait("the answer", lambda: sql("SELECT save_done FROM job") == "2")
        self.assertEqual(sql("SELECT string_agg(reason || (detail ->> 'step'), ' ' ORDER BY id) FROM"
                             " job_event WHERE reason LIKE 'Check%'"),
                         "CheckpointWritten12 CheckpointFailed13")

    def test_a_job_that_is_not_preemptible_keeps_its_place_and_needs_a_guarantee(self):
        self.start()
        e = self.ready_executor()
        job = self.submit()
        e.expect("JOB_START", job=job)
        e.job(job, RUNNING, step=1)
        fixed = self.submit()
        sql("UPDATE job SET preemptible = false, priority = 5 WHERE id = %d" % fixed)
        wait("the reason", lambda: sql("SELECT reason FROM job WHERE id = %d" % fixed) ==
             "QuotaGuaranteed")
        sql("UPDATE quota SET guaranteed_gpus = 1 WHERE tenant_id = 1")
        e.expect("JOB_STOP", job=job)
        e.job(job, SUSPENDED)
        e.expect("JOB_START", job=fixed)
        e.job(fixed, RUNNING, step=1)
        self.submit(priority=9)
        time.sleep(2 * MIN_RUN_S)
        self.assertFalse(e.find("JOB_STOP", job=fixed))

    def test_a_job_that_has_had_much_goes_behind_later_ones_until_a_leader_has_no_levels(self):
        leader = self.start()
        e, a = self.ready_executor(), self.api()
        job = self.running(e)
        second = self.submit()
        e.job(job, RUNNING, step=5, busy_ns=61 * 10**9)
        e.expect("JOB_STOP", job=job)
        e.job(job, SUSPENDED, step=5, busy_ns=61 * 10**9)
        e.expect("JOB_START", job=second)
        e.job(second, RUNNING, step=1)
        self.assertEqual(sql("SELECT reason FROM job_event WHERE job_id = %d ORDER BY id DESC LIMIT 1" % job),
                         "AttainedTime")
        third = self.submit()  # it comes later than the first, and goes before it
        wait("the place", lambda: (x := self.explain(a, job)).get("position") == 2 and
             "as if it had been queued 78080 s later" in x["text"])
        self.assertEqual(self.explain(a, third)["position"], 1)
        wait("the reason", lambda: sql("SELECT reason FROM job WHERE id = %d" % job) == "AttainedTime")
        leader.kill()
        wait("the loss", lambda: e.closed and a.closed)
        self.start("s2", LONG_GRACE, "--level-ms=0")
        e = self.exec(models=[1], jobs=[(second, 1, RUNNING)])
        self.assertEqual(e.expect("WELCOME").epoch, 2)
        a = self.api()
        wait("its place", lambda: self.explain(a, job).get("position") == 1)
        self.assertEqual(sql("SELECT handicap_us FROM job WHERE id = %d" % job), "0")
        e.job(second, DONE, step=100, busy_ns=61 * 10**9, result=json.dumps(RESULT))
        e.expect("JOB_START", job=job)
        self.assertFalse(e.find("JOB_START", job=third))

    def test_a_jobs_own_minimum_run_counts_up_to_the_limit(self):
        self.start("s1", "--max-min-run-ms=4000")
        e = self.ready_executor()
        job = self.submit()
        sql("UPDATE job SET min_runtime_ms = 86400000")
        e.expect("JOB_START", job=job)
        began = time.monotonic()
        e.job(job, RUNNING, step=1)
        high = self.submit(priority=9)
        wait("the reason", lambda: sql("SELECT reason FROM job WHERE id = %d" % high) ==
             "MinRuntimeProtected")
        e.expect("JOB_STOP", job=job)
        self.assertGreater(time.monotonic() - began, 2)  # not after the 0.5 s of --min-run-ms

    def test_a_job_that_cannot_end_in_time_expires_whoever_keeps_it_waiting(self):
        self.start()
        e = self.ready_executor()
        runs = self.running(e)
        sql("UPDATE job SET deadline = now() + interval '1 s'")
        waits, held = self.submit(), self.submit()
        tight = int(sql("INSERT INTO job (tenant_id, queue_id, kind, version_id, dataset_id, spec,"
                        " deadline, step, steps, busy_ns) VALUES (1, 1, 'training', 1, 1, '{}', now()"
                        " + interval '1 h', 10, 100000, 10000000000) RETURNING id"))
        sql("UPDATE job SET deadline = now() + interval '1 s' WHERE id = %d; UPDATE job SET state ="
            " 'HELD', deadline = now() + interval '1 s' WHERE id = %d" % (waits, held))
        for job in (waits, held, tight):
            self.state(job, "EXPIRED")
        self.assertEqual(sql("SELECT reason FROM job WHERE id = %d" % tight), "DeadlineUnreachable")
        self.assertEqual(sql("SELECT reason, error_code FROM job WHERE id = %d" % held),
                         "DeadlinePassed|TIMEOUT")
        self.assertIn("QUEUED: Resources", sql("SELECT error FROM job WHERE id = %d" % waits))
        self.assertEqual(sql("SELECT state FROM job WHERE id = %d" % runs), "RUNNING")

    def explain(self, a, job):
        a.next_ask = getattr(a, "next_ask", 0) + 1
        a.send("JOB_EXPLAIN", rid=a.next_ask, job=job)
        m = a.expect("JOB_EXPLAINED", rid=a.next_ask)
        return m.rc or json.loads(m.text)

    def test_an_explanation_has_place_holders_and_an_estimate_from_measured_rates(self):
        self.start()
        e, a = self.ready_executor(), self.api()
        job = self.submit()
        e.expect("JOB_START", job=job)
        e.job(job, RUNNING, step=0)
        self.state(job, "RUNNING")
        first, second, blocked = self.submit(), self.submit(tenant=2), self.submit()
        sql("INSERT INTO queue (name, state) VALUES ('night', 'HELD'); UPDATE job SET queue_id = 2"
            " WHERE id = %d" % blocked)
        wait("the reasons", lambda: re.fullmatch(r"\w+ \w+ QueueHeld", sql(
            "SELECT string_agg(reason, ' ' ORDER BY id) FROM job WHERE state = 'QUEUED' AND"
            " reason <> ''")))
        x = self.explain(a, first)
        self.assertEqual((x["position"], x["waiting"]), (1, 2))
        self.assertNotIn("estimated_wait_ms", x)
        self.assertIn("no measured rate", x["basis"])
        time.sleep(0.5)
        e.job(job, RUNNING, step=20, steps=100, busy_ns=500000000)
        x = wait("an estimate", lambda: "estimated_wait_ms" in self.explain(a, second) and
                 self.explain(a, second))
        self.assertEqual((x["position"], x["reason"]), (1, "Resources"))
        self.assertGreater(x["estimated_wait_ms"], 1500)  # 80 steps at 20 in a little over 0.5 s
        self.assertLess(x["estimated_wait_ms"], 600000)
        self.assertEqual(x["waits_for"][0]["steps_left"], 80)
        self.assertNotIn("job", x["waits_for"][0])  # another tenant's
        y = self.explain(a, first)
        self.assertEqual(y["position"], 2)  # its tenant has used something by now
        self.assertEqual(y["waits_for"][0]["job"], job)
        self.assertGreater(y["estimated_wait_ms"], x["estimated_wait_ms"])
        # The one ahead takes 10 steps and not the 100 of what runs: 5 epochs of 10 / 4 samples.
        self.assertGreater(y["estimated_wait_ms"], 1.7 * x["estimated_wait_ms"])
        sql("""UPDATE job SET spec = '{"batch": 4, "epochs": 5}' WHERE id = %d""" % second)
        y = wait("its steps", lambda: (y := self.explain(a, first))["estimated_wait_ms"] <
                 1.5 * self.explain(a, second)["estimated_wait_ms"] and y)
        self.assertGreater(y["estimated_wait_ms"], x["estimated_wait_ms"])
        self.assertNotIn("deadline", y["text"])
        sql("UPDATE job SET deadline = now() + interval '1 h' WHERE id = %d" % second)
        sql("UPDATE job SET deadline = now() + interval '4 s' WHERE id = %d" % first)
        x = wait("the deadline", lambda: (x := self.explain(a, first))["text"].endswith("priority.") and x)
        self.assertRegex(x["text"], r"By the estimate it starts in \d+ s, too late to end by its deadline, "
                                    r"which comes in \d s")
        self.assertNotIn("too late", self.explain(a, second)["text"])
        sql("UPDATE job SET deadline = NULL WHERE id IN (%d, %d)" % (first, second))
        x = self.explain(a, blocked)
        self.assertEqual(x["reason"], "QueueHeld")
        self.assertNotIn("position", x)
        sql("UPDATE quota SET max_gpus = 1, max_running_jobs = 16 WHERE tenant_id = 1")
        x = wait("the limit", lambda: (x := self.explain(a, first))["reason"] == "QuotaLimit" and x)
        self.assertIn("used up: max_gpus: 1 of 1 in use. It starts", x["text"])
        sql("UPDATE quota SET max_running_jobs = 0 WHERE tenant_id = 1")
        wait("both", lambda: "used up: max_running_jobs: 1 of 0 in use, max_gpus: 1 of 1 in use."
             in self.explain(a, first)["text"])
        sql("UPDATE quota SET max_running_jobs = 16, max_gpus = NULL, over_quota_weight = 0,"
            " guaranteed_gpus = 1 WHERE tenant_id = 1")
        wait("the third", lambda: "used up: guaranteed_gpus (with over_quota_weight 0): 1 of 1 in"
             " use." in self.explain(a, first)["text"])
        x = self.explain(a, job)
        self.assertIn("priority 0", x["text"])
        self.assertEqual(x["factors"]["tenant_running_jobs"], 1)
        self.assertEqual(self.explain(a, 999), -4)

    def test_an_estimate_goes_by_what_jobs_like_it_took_that_have_ended(self):
        self.start()
        e, a = self.ready_executor(), self.api()
        spec = '{"batch": 4, "steps": 100}'

        def ends(busy_s, **k):
            job = self.submit(**k)
            e.expect("JOB_START", job=job)
            e.job(job, RUNNING)
            e.job(job, DONE, step=100, busy_ns=int(busy_s * 1e9), result=json.dumps(RESULT))
            self.state(job, "SUCCEEDED")
        for _ in range(6):
            ends(50, spec=spec)
        runs = self.submit(spec=spec)  # it has not measured anything, and says nothing
        e.expect("JOB_START", job=runs)
        first, second, other = (self.submit(spec=s) for s in (spec, spec, '{"batch": 8, "steps": 100}'))
        wait("all wait", lambda: self.explain(a, other) != -4 and self.explain(a, other)["waiting"] == 3)
        x, y, z = (self.explain(a, j) for j in (first, second, other))
        for job, times in ((x, 1), (y, 2), (z, 3)):
            self.assertLessEqual(job["estimated_wait_ms"], times * 50000)
            self.assertGreater(job["estimated_wait_ms"], times * 50000 - 30000)
            self.assertIn("the time that similar jobs took", job["basis"])
        self.assertIn("left_ms", x["waits_for"][0])
        # A leader that was not there then knows it from the database.
        e.job(runs, RUNNING)
        self.state(runs, "RUNNING")
        self.procs[-1].terminate()
        self.procs[-1].wait()
        self.start()
        e = self.exec(jobs=[(runs, 1, RUNNING)], models=(1,))
        a = self.api()
        z = wait("an estimate", lambda: (z := self.explain(a, second)) != -4 and
                 "estimated_wait_ms" in z and z)
        self.assertGreater(z["estimated_wait_ms"], 70000)


if __name__ == "__main__":
    main()
