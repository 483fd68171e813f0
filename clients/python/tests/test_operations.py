"""Workers, definitions, pauses and schedules."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from longshore import Conflict, InvalidRequest, NotFound

from .cluster import JOBS, ClientCase, Cluster, ClusterCase, until


class Operations(ClusterCase):
    def test_a_worker_is_cordoned_and_drained_with_a_reason(self) -> None:
        until("the worker is ready", lambda: [worker["state"] for worker in self.client.workers()] == ["ready"])
        cordoned = self.client.cordon("w1", "disk swap", lasts="2h")
        self.assertIn("until", cordoned["cordon"])
        self.assertEqual((cordoned["cordoned"], cordoned["cordon"]["reason"]), (True, "disk swap"))
        job = self.client.submit("quick")
        until("it waits for a worker", lambda: self.client.job(job["id"])["pending_reason"]["code"] == "cordoned")
        number = cordoned["id"]
        self.assertFalse(self.client.uncordon(number)["cordoned"])
        self.assertEqual(self.client.wait(job["id"], 60)["state"], "succeeded")
        running = self.client.submit("forever")
        until("it runs", lambda: self.client.job(running["id"])["state"] == "running")
        drained = self.client.drain("w1", "new kernel", deadline=3600)
        self.assertEqual((drained["state"], drained["cordon"]["reason"]), ("draining", "new kernel"))
        self.assertIn("drain_deadline", drained)
        self.assertFalse(self.client.uncordon("w1")["cordoned"])
        until("the drain is taken back", lambda: self.client.worker("w1")["state"] == "ready")
        self.assertEqual(self.client.worker("w1")["name"], self.client.worker(number)["name"])
        self.client.cancel(running["id"])
        self.client.wait(running["id"], 60)
        with self.assertRaisesRegex(NotFound, "no worker with the name 'w9'"):
            self.client.cordon("w9")
        for worker in ("w9", 1_000_000):
            with self.assertRaises(NotFound) as unknown:
                self.client.drain(worker)
            self.assertEqual((unknown.exception.status, unknown.exception.code), (404, "unknown_worker"))

    def test_a_definition_is_shown_paused_and_resumed(self) -> None:
        self.assertTrue(self.client.pause_definition("quick", "the database moves"))
        self.assertFalse(self.client.pause_definition("quick", "the database moves"))
        (pause,) = self.client.definition("quick")["pauses"]
        self.assertEqual((pause["of"], pause["reason"]), ("definition", "the database moves"))
        job = self.client.submit("quick")
        self.assertEqual(job["pending_reason"]["code"], "paused")
        self.assertEqual([pause["name"] for pause in self.client.pauses()], ["quick"])
        self.assertTrue(self.client.resume_definition("quick"))
        self.assertFalse(self.client.resume_definition("quick"))
        self.assertEqual(self.client.wait(job["id"], 60)["state"], "succeeded")
        self.assertEqual(self.client.definition("quick")["last_ended"]["id"], job["id"])
        with self.assertRaises(NotFound):
            self.client.definition("quack")
        with self.assertRaises(InvalidRequest) as long:
            self.client.pause_definition("quick", "x" * 301)
        self.assertEqual(long.exception.code, "too_long")

    def test_a_pause_ends_by_itself(self) -> None:
        self.assertTrue(self.client.pause_definition("quick", "the database moves", lasts=3600))
        (pause,) = self.client.pauses()
        since, end = (datetime.fromisoformat(pause[key].replace("Z", "+00:00")) for key in ("since", "until"))
        self.assertLess(abs(end - since - timedelta(hours=1)), timedelta(seconds=1))
        later = (datetime.now(timezone.utc) + timedelta(days=1)).replace(microsecond=0)
        self.assertTrue(self.client.pause_definition("quick", until=later))
        self.assertEqual(self.client.pauses()[0]["until"][:19], later.isoformat()[:19])
        with self.assertRaises(InvalidRequest) as refused:
            self.client.pause_all(lasts="1h", until=later)
        self.assertEqual(refused.exception.code, "invalid_time")
        self.assertTrue(self.client.resume_definition("quick"))
        self.client.pause_group("db", lasts=1)
        until("the pause has ended", lambda: not self.client.pauses())

    def test_a_batch_is_paused_and_resumed(self) -> None:
        batch = self.client.submit_batch("forever", count=2, concurrency=1)["batch"]
        self.assertTrue(self.client.pause_batch(batch, "wrong input", lasts="1h"))
        self.assertEqual(self.client.batch(batch)["pause"]["reason"], "wrong input")
        self.assertEqual([(pause["of"], pause["batch"]) for pause in self.client.pauses()], [("batch", batch)])
        until("it waits", lambda: self.client.job(batch + 1)["pending_reason"]["code"] == "paused")
        self.assertTrue(self.client.resume_batch(batch))
        self.assertFalse(self.client.resume_batch(batch))
        self.client.cancel_batch(batch)
        self.client.wait_batch(batch, 60)
        with self.assertRaises(Conflict):
            self.client.pause_batch(batch)

    def test_groups_schedules_and_the_server_are_paused(self) -> None:
        self.assertTrue(self.client.pause_group("db", "backup"))
        self.assertTrue(self.client.pause_schedules("holidays"))
        self.assertTrue(self.client.pause_definition("yearly", schedule="main"))
        self.assertTrue(self.client.pause_all("move"))
        pauses = {(pause["of"], pause.get("name"), pause.get("schedule"), pause.get("reason")) for pause in self.client.pauses()}
        expected = {("server", None, None, "move"), ("schedules", None, None, "holidays")}
        self.assertEqual(pauses, expected | {("group", "db", None, "backup"), ("schedule", "yearly", "main", None)})
        self.assertTrue(self.client.resume_all())
        self.assertTrue(self.client.resume_schedules())
        self.assertTrue(self.client.resume_group("db"))
        self.assertTrue(self.client.resume_definition("yearly", schedule="main"))
        self.assertEqual(self.client.pauses(), [])

    def test_the_next_slots_of_a_schedule_are_shown(self) -> None:
        self.assertEqual([it["name"] for it in self.client.definitions(tag="report")], ["yearly"])
        (schedule,) = self.client.schedules(name="yearly", next=2, start=datetime(2040, 6, 1, tzinfo=timezone.utc))
        self.assertEqual(schedule["next"], ["2041-01-01T02:00:00.000Z", "2042-01-01T02:00:00.000Z"])
        self.assertEqual((schedule["id"], schedule["state"]), ("main", "active"))
        self.assertEqual([*self.client.fires("yearly", schedule="main")], [])
        with self.assertRaises(NotFound):
            next(self.client.fires("nightly"))


class Definitions(ClientCase):
    def setUp(self) -> None:
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)
        self.cluster.start_server("--allow-deploy")
        self.client = self.cluster.client()

    def test_definitions_are_planned_deployed_and_reloaded_with_a_reason(self) -> None:
        more = JOBS + "  more: { runtime: fake }\n"
        plan = self.client.plan(more)
        self.assertEqual([added["name"] for added in plan["added"]], ["more"])
        self.assertEqual(self.client.plan({"a.yaml": JOBS, "b.yaml": "jobs: { more: { runtime: fake } }"})["unchanged"], plan["unchanged"])
        self.assertTrue(self.client.deploy(more, dry_run=True)["dry_run"])
        deployed = self.client.deploy(more, reason="commit 5c1e", expect=plan["current_revision"], max_removed=0)
        self.assertEqual((deployed["revision"], deployed["previous_file"]), (plan["revision"], "jobs.yaml.previous"))
        with self.assertRaises(Conflict) as refused:
            self.client.deploy(JOBS, max_removed=0)
        self.assertEqual(refused.exception.code, "too_many_removed")
        self.cluster.path("jobs.yaml").write_text(JOBS)
        with self.assertRaises(Conflict):
            self.client.reload(expect_new=plan["revision"])
        self.assertEqual(self.client.reload(reason="back", expect=plan["revision"])["removed"], ["more"])
        changes = list(self.client.definition_changes(name="more", page_size=1))
        facts = [(change["cause"], change["reason"], change["added"], change["removed"]) for change in changes]
        self.assertEqual(facts, [("reload", "back", [], ["more"]), ("deploy", "commit 5c1e", ["more"], [])])
        with self.assertRaises(InvalidRequest):
            self.client.plan("jobs: [")
