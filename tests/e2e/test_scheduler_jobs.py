#!/usr/bin/env python3
"""Jobs from their submission to their end: shunt-scheduler with a real PostgreSQL; this file plays its
executors.

Without it: a job could run on two executors or on none after a failure, a cancelled job could go on, an
attempt could be used up by what was not the job's fault, and batch inference could begin from its start
again, or succeed without a result.

Usage: test_scheduler_jobs.py [-v] [name ...]   (sched_world.py)
"""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from sched_world import (  # noqa: E402
    CANCELLED, COMPLETING, DONE, GRACE_S, JOB_FAILED, NAN, PREEMPTED, RESULT, RUNNING, STARTING,
    SUSPENDED, URL, Case, main, sql, wait)


class Jobs(Case):
    # ------------------------------------------------------------ jobs

    def test_a_job_goes_all_the_way_and_its_model_is_the_next_version(self):
        self.start()
        e = self.ready_executor()
        job = self.submit()
        m = e.expect("JOB_START", job=job)
        self.assertEqual(m.dataset, "datasets/b.safetensors")
        self.assertEqual((m.dir, m.resume, m.eval_dataset), (str(job), "", ""))
        self.assertEqual(json.loads(m.spec), {"batch": 4})
        e.job(job, RUNNING, step=1)
        e.send("JOB_CHECKPOINT", job=job, attempt=1, step=50, path="%d/ckpt-50" % job, digest="d",
               bytes=10)
        e.job(job, PREEMPTED, step=60)
        e.job(job, RUNNING, step=60, preemptions=1, busy_ns=5000000)
        e.job(job, COMPLETING, step=100)
        e.job(job, DONE, step=100, preemptions=1, busy_ns=9000000, result=json.dumps(RESULT))
        self.state(job, "SUCCEEDED")
        self.assertEqual(self.chain(job), ["STARTING", "RUNNING", "PREEMPTED", "RUNNING",
                                           "COMPLETING", "SUCCEEDED"])
        self.assertEqual(json.loads(sql("SELECT result FROM job")),
                         {"accuracy": 0.98, "eval_loss": 0.1, "final_loss": 0.01, "steps": 100,
                          "version": 2})
        self.assertEqual(sql("SELECT preemptions, busy_ns, step FROM job"), "1|9000000|100")
        self.assertEqual(sql("SELECT path FROM checkpoint"), "%d/ckpt-50" % job)
        e.load(2)
        wait("READY", lambda: sql("SELECT state FROM model_version WHERE id = 2") == "READY")
        self.assertEqual(json.loads(sql("SELECT meta FROM model_version WHERE id = 2")),
                         {"opset": 18})
        e.used(2, (job, 9000000, 100, 4))
        e.stored(2)
        self.assertEqual(sql("SELECT class, sum(gpu_ns), sum(requests), sum(samples) FROM usage GROUP BY 1"),
                         "training|9000000|0|400")

    def test_a_result_that_the_database_refuses_ends_the_job(self):
        """It would be refused after every other attempt too."""
        self.start()
        e = self.ready_executor()
        sql("UPDATE model_version SET version = 2147483647")  # behind which there is none
        job = self.running(e)
        e.job(job, COMPLETING, step=100)
        e.job(job, DONE, step=100, result=json.dumps(RESULT))
        self.state(job, "FAILED")
        self.assertEqual(self.chain(job)[-2:], ["COMPLETING", "FAILED"])
        self.assertEqual(sql("SELECT error_code || ': ' || error FROM job"),
                         "INVALID: the result cannot be recorded: the database refused a value")
        self.running(e, spec='{"publish": false}')  # the slot is free again

    def test_a_failure_worth_a_try_uses_up_an_attempt_and_resumes(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e, max_attempts=2)
        e.send("JOB_CHECKPOINT", job=job, attempt=1, step=40, path="%d/ckpt-40" % job, digest="d",
               bytes=10)
        e.job(job, JOB_FAILED, step=45, rc=-12, msg="device lost")
        m = e.expect("JOB_START", job=job, attempt=2)
        self.assertEqual(m.resume, "%d/ckpt-40" % job)
        self.assertEqual(m.resume_step, 40)
        wait("redone", lambda: sql("SELECT steps_redone FROM job") == "5")
        e.job(job, JOB_FAILED, attempt=2, step=45, rc=-12, msg="device lost again")
        self.state(job, "FAILED")
        self.assertEqual(sql("SELECT error_code, error FROM job"), "DEVLOST|device lost again")

    def test_a_job_too_large_for_one_device_uses_up_no_attempt_and_starts_on_a_larger(self):
        self.start()
        large = self.ready_executor(pool_bytes=4 << 20)
        other = self.running(large)
        small = self.exec(name="e1", pool_bytes=1 << 20)
        job = self.submit(max_attempts=2)
        m = small.expect("JOB_START", job=job)
        small.job(job, JOB_FAILED, attempt=m.attempt, rc=-6, msg="the pool has 1 MiB", need_bytes=2 << 20)
        self.state(job, "QUEUED")
        wait("its error", lambda: sql("SELECT error FROM job WHERE id = %d" % job) == "the pool has 1 MiB")
        self.assertEqual(len(small.all("JOB_START")), 1)
        large.job(other, JOB_FAILED, rc=-7, msg="no more")
        self.assertEqual(large.expect("JOB_START", job=job).attempt, 1)
        large.job(job, JOB_FAILED, rc=-6, msg="the pool has 4 MiB", need_bytes=5 << 20)
        wait("FAILED", lambda: sql("SELECT state, reason, error_code, attempt FROM job WHERE id = %d" % job)
             == "FAILED|TOOBIG|TOOBIG|1")

    def test_nan_fails_at_once_and_names_the_step_and_the_checkpoint(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        e.send("JOB_CHECKPOINT", job=job, attempt=1, step=40, path="%d/ckpt-40" % job, digest="d",
               bytes=10)
        e.job(job, JOB_FAILED, step=44, rc=NAN, msg="the loss is not a number", loss=float("nan"))
        self.state(job, "FAILED")
        text = sql("SELECT error_code || error FROM job")
        self.assertIn("NAN", text)
        self.assertIn("step 44", text)
        self.assertIn("checkpoint of step 40 is kept", text)
        self.assertEqual(sql("SELECT step FROM checkpoint"), "40")

    def test_what_an_executor_says_at_length_is_cut_between_two_characters(self):
        """Inside of one it would be no text: the database would refuse the end of the job with it."""
        self.start()
        e = self.ready_executor()
        for begin in ("", "x"):
            job = self.running(e)
            sql("UPDATE job SET save_asked = save_asked + 1 WHERE id = %d" % job)
            m = e.expect("JOB_SAVE", job=job)
            e.send("JOB_SAVED", job=job, attempt=1, asked=m.asked, step=0, rc=NAN, msg=begin + "ä" * 240)
            wait("answered", lambda: sql("SELECT save_done FROM job WHERE id = %d" % job) == "1")
            e.job(job, JOB_FAILED, step=44, rc=NAN, msg=begin + "ä" * 240)
            self.state(job, "FAILED")
            self.assertIn("ä (after step 44)", sql("SELECT error FROM job WHERE id = %d" % job))

    def test_cancelling_reaches_the_executor_and_ends_the_job(self):
        self.start()
        e, a = self.ready_executor(), self.api()
        job = self.running(e)
        self.cancel(job)
        a.send("HINT", what="jobs")
        m = e.expect("JOB_STOP", job=job)
        self.assertEqual(m.how, 0)
        e.job(job, CANCELLED, step=9)
        self.state(job, "CANCELLED")
        self.assertEqual(self.chain(job)[-1], "CANCELLED")

    def test_done_and_cancel_at_the_same_time_ends_cancelled(self):
        self.start("s1", "--poll-ms=60000")
        e = self.ready_executor_hinted()
        job = self.submit()
        self.hint.send("HINT", what="jobs")
        e.expect("JOB_START", job=job)
        e.job(job, RUNNING, step=1)
        self.state(job, "RUNNING")
        self.cancel(job)
        e.job(job, DONE, step=100, result=json.dumps(RESULT))
        self.state(job, "CANCELLED")
        self.assertEqual(sql("SELECT count(*) FROM model_version"), "1")

    def ready_executor_hinted(self):
        e = self.exec()
        self.hint = self.api()
        e.load(1)
        wait("READY", lambda: sql("SELECT state FROM model_version WHERE id = 1") == "READY")
        self.hint.send("HINT", what="models")
        return e

    def test_a_job_that_waits_says_why(self):
        self.start()
        e = self.ready_executor()
        self.running(e)
        second = self.submit()
        wait("Resources", lambda: sql("SELECT reason FROM job WHERE id = %d" % second) ==
             "Resources")
        sql("UPDATE queue SET state = 'HELD'")
        wait("QueueHeld", lambda: sql("SELECT reason FROM job WHERE id = %d" % second) ==
             "QueueHeld")

    def test_a_row_that_somebody_has_locked_keeps_no_other_job_from_starting(self):
        self.start()
        e, other = self.ready_executor(), self.exec(name="e1")
        job = self.running(e)
        holder = subprocess.Popen(["psql", "-Xq", URL], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  text=True)
        holder.stdin.write("BEGIN; SELECT FROM job WHERE id = %d FOR UPDATE;\n" % job)
        holder.stdin.flush()
        wait("it is locked", lambda: sql("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in"
                                         " transaction' AND query LIKE '%FOR UPDATE%'") == "1")
        e.job(job, PREEMPTED, step=2)
        wait("the leader waits for it", lambda: sql("SELECT count(*) FROM pg_locks WHERE NOT granted") != "0")
        for _ in range(2):
            m = other.expect("JOB_START", job=self.submit(tenant=2))
            other.job(m.job, JOB_FAILED, attempt=m.attempt, rc=-7, msg="no more")
            self.state(m.job, "FAILED")
        self.assertEqual(sql("SELECT state FROM job WHERE id = %d" % job), "RUNNING")
        holder.communicate("ROLLBACK;\n")
        self.state(job, "PREEMPTED")

    def test_a_higher_priority_suspends_after_the_minimum_run_and_the_other_resumes(self):
        self.start()
        e = self.ready_executor()
        low = self.running(e)
        began = time.monotonic()
        high = self.submit(priority=9)
        self.assertEqual(e.expect("JOB_STOP", job=low).how, 1)
        self.assertGreater(time.monotonic() - began, 0.3)
        self.assertFalse(e.find("JOB_START", job=high))
        e.job(low, SUSPENDED, step=7)
        e.expect("JOB_START", job=high)
        self.state(low, "QUEUED")
        e.job(high, JOB_FAILED, rc=-1, msg="bad")
        e.inbox.clear()
        e.expect("JOB_START", job=low, attempt=1)

    def test_a_job_of_a_lost_executor_starts_elsewhere_after_the_grace(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        began = time.monotonic()
        e.close()
        f = self.exec(name="e1")
        f.load(1)
        f.expect("JOB_START", job=job, attempt=1)
        self.assertGreater(time.monotonic() - began, GRACE_S)
        self.assertEqual(self.chain(job)[2:], ["QUEUED", "STARTING"])

    def test_an_executor_that_comes_back_with_its_job_keeps_it(self):
        self.start("s1", "--grace-ms=3000")
        e = self.ready_executor()
        job = self.running(e)
        e.close()
        e = self.exec(models=[1], jobs=[(job, 1, RUNNING)])
        time.sleep(3.5)  # longer than the grace
        self.assertFalse(e.find("JOB_START"))
        self.assertFalse(e.find("JOB_STOP"))
        self.assertEqual(self.chain(job), ["STARTING", "RUNNING"])

    def test_an_executor_that_comes_back_without_its_job_gets_it_again(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        e.close()
        e = self.exec(incarnation=2, models=[1])
        e.expect("JOB_START", job=job, attempt=1)

    def test_a_job_that_is_not_the_executors_is_stopped_and_holds_its_slot_until_then(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e)
        e.close()
        self.state(job, "QUEUED")
        e = self.exec(models=[1], jobs=[(job, 1, RUNNING)])
        e.expect("JOB_STOP", job=job)
        time.sleep(0.3)
        self.assertFalse(e.find("JOB_START"))
        e.job(job, CANCELLED)
        e.expect("JOB_START", job=job)

    # ------------------------------------------------------------ batch inference

    def batch(self, e, **k):
        return self.running(e, "BATCH_START", kind="batch_inference", **k)

    def part(self, e, job, step, digest="d" * 64, attempt=1):
        e.send("JOB_CHECKPOINT", job=job, attempt=attempt, step=step, path="%d/result-0.part" % job,
               digest=digest, bytes=10)
        wait("checkpoint", lambda: sql("SELECT count(*) FROM checkpoint WHERE digest = '%s'" %
                                       digest) == "1")

    def test_batch_inference_goes_all_the_way_and_makes_no_version(self):
        sql("""UPDATE model_version SET inputs = '[{"name": "x"}]', outputs = '[{"name": "y"}]'""")
        self.start()
        e = self.ready_executor()
        job = self.batch(e)
        m = e.find("BATCH_START", job=job)
        self.assertEqual((json.loads(m.inputs), json.loads(m.outputs)), ([{"name": "x"}],
                                                                         [{"name": "y"}]))
        self.assertEqual((m.version_id, m.attempt, m.resume_step, m.resume_digest), (1, 1, 0, ""))
        self.assertEqual(json.loads(m.spec), {"batch": 4})
        self.assertEqual(m.dataset, "datasets/b.safetensors")
        self.assertEqual(m.dir, str(job))
        self.assertFalse(e.find("JOB_START"))
        e.job(job, PREEMPTED, step=8, steps=10, busy_ns=4000000, preemptions=1)
        self.state(job, "PREEMPTED")
        e.job(job, COMPLETING, step=10, steps=10, busy_ns=9000000)
        e.job(job, DONE, step=10, steps=10, busy_ns=9000000, loss=float("nan"), result=json.dumps(
            {"samples": 10, "bytes": 480, "digest": "e" * 64, "seconds": 0.5}))
        self.state(job, "SUCCEEDED")
        self.assertEqual(self.chain(job), ["STARTING", "RUNNING", "PREEMPTED", "COMPLETING",
                                           "SUCCEEDED"])
        self.assertEqual(json.loads(sql("SELECT result FROM job")),
                         {"samples": 10, "bytes": 480, "digest": "e" * 64, "seconds": 0.5})
        self.assertEqual(sql("SELECT count(*) FROM model_version"), "1")
        e.used(2, (job, 9000000, 10, 1))
        e.stored(2)
        self.assertEqual(sql("SELECT class, sum(gpu_ns), sum(samples) FROM usage GROUP BY 1"),
                         "inference|9000000|10")

    def test_batch_inference_goes_on_from_its_last_part_with_its_digest(self):
        self.start()
        e = self.ready_executor()
        job = self.batch(e, max_attempts=3)
        self.part(e, job, 8)
        e.job(job, JOB_FAILED, step=9, rc=-12, msg="device lost")
        m = e.expect("BATCH_START", job=job, attempt=2)
        self.assertEqual((m.resume_step, m.resume_digest), (8, "d" * 64))
        # That one was damaged, so it began again: what it had then counts.
        self.part(e, job, 4, "f" * 64, attempt=2)
        e.close()
        e = self.exec(incarnation=2, models=[1])
        m = e.expect("BATCH_START", job=job, attempt=2)
        self.assertEqual((m.resume_step, m.resume_digest), (4, "f" * 64))
        self.cancel(job)
        e.expect("JOB_STOP", job=job, how=0)
        e.job(job, CANCELLED, attempt=2, step=4)
        self.state(job, "CANCELLED")

    def test_batch_inference_without_a_file_has_not_succeeded(self):
        self.start()
        e = self.ready_executor()
        job = self.batch(e, max_attempts=1)
        e.job(job, DONE, step=10, result=json.dumps({"samples": 10}))
        self.state(job, "FAILED")
        self.assertIn("names no file", sql("SELECT error FROM job"))

    def test_training_that_does_not_publish_makes_no_version(self):
        self.start()
        e = self.ready_executor()
        job = self.running(e, spec='{"batch": 4, "publish": false}')
        r = {"accuracy": None, "final_loss": 0.01, "digest": "e" * 64, "bytes": 9}
        e.job(job, COMPLETING, step=100)
        e.job(job, DONE, step=100, result=json.dumps(r))
        self.state(job, "SUCCEEDED")
        self.assertEqual(json.loads(sql("SELECT result FROM job")), r)
        self.assertEqual(sql("SELECT count(*) FROM model_version"), "1")
        second = self.running(e, spec='{"publish": true}', max_attempts=1)
        e.job(second, COMPLETING, step=100)
        e.job(second, DONE, step=100, result=json.dumps(r))
        self.state(second, "FAILED")  # it should have named a package


if __name__ == "__main__":
    main()
