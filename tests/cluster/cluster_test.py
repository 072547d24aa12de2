# SPDX-License-Identifier: Apache-2.0
"""Tests the cluster of namespaces, and that ranks on its hosts pass the tests of comms and of equivalence."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster  # noqa: E402
import launchers  # noqa: E402
import mpis  # noqa: E402

WHY_NOT = cluster.enter()
HERE = os.path.dirname(os.path.abspath(__file__))
LAYOUTS = [(2, 3), (2, 2), (3, 1)]  # hosts, and ranks per host
TIMEOUT_S = 100


def until(condition):
    """Wait until the condition is true, and fail after a time limit."""
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


def stream(hosts, count):
    """Send `count` bytes from each of two hosts to the other. Return the time in seconds for each host."""
    ends = [subprocess.Popen(host.command([sys.executable, f"{HERE}/stream.py", way, hosts[0].address, str(count)]),
                             stdout=subprocess.PIPE, text=True)
            for host, way in zip(hosts, ("listen", "connect"))]
    return [float(end.communicate(timeout=TIMEOUT_S)[0]) for end in ends]


def reaches(host, address):
    """Return whether a connection attempt gets an answer, which may be a refusal."""
    ask = f"import socket; socket.socket().connect_ex(('{address}', 9)) == 111 or exit(1)"
    try:
        return subprocess.run(host.command([sys.executable, "-c", ask]), timeout=1, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Cluster(unittest.TestCase):
    def test_hosts_have_names_addresses_and_processes_of_their_own(self):
        with cluster.Cluster(2) as made:
            for number, host in enumerate(made.hosts):
                self.assertEqual(host.run("hostname"), f"node{number}\n")
                self.assertEqual(host.run("sh -c 'echo $$'").strip().isdigit(), True)
                self.assertIn(f"10.77.0.{number + 1}/24", host.run("ip -brief address"))
                self.assertTrue(reaches(host, made.hosts[1 - number].address))
            made.hosts[0].run("touch /dev/shm/one")
            self.assertEqual(made.hosts[1].run("ls /dev/shm"), "")

    def test_counters_tell_the_bytes_that_went_between_hosts(self):
        count = 20_000_000
        with cluster.Cluster(2) as made:
            for _ in range(5):  # a busy machine acknowledges late, and TCP then retransmits
                before = made.bytes_between_hosts()
                stream(made.hosts, count)
                all_went = [now.since(was) for was, now in zip(before, made.bytes_between_hosts())]
                if max(payload for went in all_went for payload in went.payload()) <= 1.01 * count:
                    break
            for went in all_went:
                for payload in went.payload():
                    self.assertAlmostEqual(payload / count, 1, delta=0.01)
                self.assertLessEqual(went.bytes_out / went.packets_out, 1514)  # the limit of a wire
                self.assertLessEqual(went.bytes_in / went.packets_in, 1514)

    def test_a_link_carries_no_more_than_its_rate(self):
        with cluster.Cluster(2, rate="80mbit") as made:
            self.assertGreater(min(stream(made.hosts, 5_000_000)), 0.4)

    def test_nobody_reaches_a_host_that_is_cut_or_behind_a_firewall_and_others_reach_each_other(self):
        for lose in (cluster.Cluster.cut, cluster.Cluster.drop):
            with self.subTest(lose.__name__), cluster.Cluster(3) as made:
                lose(made, 1)
                self.assertFalse(reaches(made.hosts[0], made.hosts[1].address))
                self.assertFalse(reaches(made.hosts[1], made.hosts[2].address))
                self.assertTrue(reaches(made.hosts[0], made.hosts[2].address))

    def test_all_that_runs_on_hosts_ends_with_a_test_that_is_killed(self):
        code = ("import cluster; cluster.enter(); made = cluster.Cluster(1); "
                "made.hosts[0].run('sleep 987654')")
        test = subprocess.Popen([sys.executable, "-c", code], cwd=HERE, env={**os.environ, "PYTHONPATH": HERE})
        sleeps = [b"sleep", b"987654", b""]

        def asleep():
            return any(cluster.read_bytes(f"/proc/{pid}/cmdline").split(b"\0") == sleeps
                       for pid in filter(str.isdigit, os.listdir("/proc")))

        until(asleep)
        test.kill()
        test.wait()
        until(lambda: not asleep())


class OnHosts:
    """The tests for all ranks, with any MPI that starts them."""

    name = ""

    def setUp(self):
        mpi = None if WHY_NOT else mpis.find(self.name)
        if mpi is None:
            self.skipTest(WHY_NOT or mpis.why_not(self.name))
        self.started_by = launchers.Mpirun(mpi)

    def test_ranks_keep_the_promises_of_comms_and_equal_one_process(self):
        number = mpis.NAMES.index(self.name)
        for hosts, ranks_per_host in LAYOUTS if mpis.NIGHTLY else [LAYOUTS[number]]:
            with cluster.Cluster(hosts) as made:
                for suite, program, variables in mpis.suites(36, number):
                    if self.name == "debian_mpich" and suite == "comm_failure":
                        continue  # MPICH 4.0 over UCX waits forever in MPI_Finalize for messages of broken comms
                    with self.subTest(suite, hosts=hosts, ranks_per_host=ranks_per_host):
                        # The exit status of launchers that let ranks die is not reliable.
                        _, said = self.started_by.run(made.hosts, ranks_per_host, program, **variables)
                        self.assertEqual(mpis.failure(hosts * ranks_per_host, said), "")

    def test_a_program_without_a_line_of_its_own_is_joined_by_mpi(self):
        say = "import os, libzero; os.write(1, b'world %d\\n' % libzero.Comm.from_env().world)"
        with cluster.Cluster(2) as made:
            _, said = self.started_by.run(made.hosts, 2, [sys.executable, "-c", say],
                                          ZERO_MPI_PATH=str(self.started_by.mpi.library))
        self.assertEqual(said.count("world 4"), 4, said)

    def test_a_child_of_a_rank_does_not_end_mpi_with_itself(self):
        say = """import os, libzero
comm = libzero.Comm.from_env(timeout_ms=5000)
memory = libzero.allocate(comm, {"w": (3000,)})
optimizer = libzero.Optimizer(comm, "sgd", lr=0.1)
optimizer.register(memory.params)
optimizer.step()
if os.fork() == 0:
    raise SystemExit
os.wait()
optimizer.step()
os.write(1, b"went on\\n")
"""
        with cluster.Cluster(2) as made:
            _, said = self.started_by.run(made.hosts, 2, [sys.executable, "-c", say], timeout_s=TIMEOUT_S,
                                          ZERO_MPI_PATH=str(self.started_by.mpi.library))
        self.assertEqual(said.count("went on"), 4, said)

    def test_what_ranks_of_two_hosts_save_three_hosts_and_one_rank_load_bit_for_bit(self):
        if self.name != "mpich" and not mpis.NIGHTLY:
            self.skipTest("by day with one MPI")
        ends = set()
        with tempfile.TemporaryDirectory() as folder, cluster.Cluster(3) as made:
            for hosts, ranks_per_host, steps in ((2, 2, 3), (3, 1, 1), (1, 1, 1)):
                _, said = self.started_by.run(made.hosts[:hosts], ranks_per_host,
                                              [sys.executable, f"{HERE}/trainer.py", f"{folder}/saved", str(steps)],
                                              ZERO_MPI_PATH=str(self.started_by.mpi.library))
                digests = re.findall("digest ([0-9a-f]{64})", said)
                self.assertEqual(len(digests), hosts * ranks_per_host, said)
                ends.update(digests)
        self.assertEqual(len(ends), 1, ends)

    def test_ranks_of_hosts_that_have_different_numbers_of_them_are_summed_in_their_order(self):
        if self.name != "mpich" and not mpis.NIGHTLY:
            self.skipTest("by day with one MPI")
        say = """import os, libzero
comm = libzero.Comm.from_env()
memory = libzero.allocate(comm, {"w": (3000,)})
optimizer = libzero.Optimizer(comm, "sgd", lr=3)  # times the mean
optimizer.register(memory.params)
view = memoryview(memory.grads["w"])
for i in range(len(view)):
    view[i] = (2.0**24, -(2.0**24), 1)[comm.rank]  # of which the first and the last add up to the first
optimizer.step()
os.write(1, f"all are {set(memoryview(memory.data['w']))}\\n".encode())
"""
        # MPICH's launcher places ranks on hosts in turn, so that the first and the last rank share a host. Open MPI's
        # launcher fills one host after another.
        ranks_per_host = 2 if mpis.open_mpi(self.started_by.mpi.launcher) else 1
        with cluster.Cluster(2) as made:
            _, said = self.started_by.run(made.hosts, ranks_per_host, [sys.executable, "-c", say], ranks=3,
                                          ZERO_MPI_PATH=str(self.started_by.mpi.library))
        self.assertEqual(said.count("all are {-1.0}"), 3, said)

    def test_a_rank_that_ends_with_an_error_is_dead_to_the_others_and_waits_for_none_in_mpi(self):
        say = """import ctypes, os, libzero
comm = libzero.Comm.from_env()
if comm.rank == 1:
    ctypes.CDLL(None).exit(3)  # as a C program that frees nothing
try:
    comm.barrier()
except libzero.ZeroError as error:
    os.write(1, f"{error.name} of {comm.failure().rank}\\n".encode())
    raise SystemExit(1)
"""
        with cluster.Cluster(2) as made:
            _, said = self.started_by.run(made.hosts, 2, [sys.executable, "-c", say], timeout_s=TIMEOUT_S,
                                          ZERO_MPI_PATH=str(self.started_by.mpi.library))
        self.assertEqual(said.count("ZERO_ERR_PEER_DEAD of 1"), 3, said)

    def test_ranks_live_on_when_one_is_killed(self):
        rank = self.started_by.mpi.rank
        with tempfile.TemporaryDirectory() as folder:
            with cluster.Cluster(2) as made:
                jobs = self.started_by.start(made.hosts, 2, [sys.executable, f"{HERE}/waiter.py", folder, rank])
                until(lambda: len(os.listdir(folder)) == 4)
                victims = made.pids(rank, "1")
                self.assertEqual(len(victims), 1)
                os.kill(victims[0], signal.SIGKILL)
                time.sleep(3)  # a launcher that ends all ranks needs time
                open(f"{folder}/go", "w", encoding="utf-8").close()
                until(lambda: {"lives.0", "lives.2", "lives.3"} <= set(os.listdir(folder)))
            for job in jobs:
                job.kill()
                job.communicate()


globals().update(mpis.of_each(OnHosts))


@unittest.skipIf(WHY_NOT, WHY_NOT)
class NoLauncher(unittest.TestCase):
    def test_hosts_that_share_a_boot_id_are_not_taken_for_one(self):
        with cluster.Cluster(2) as made:
            program = [sys.executable, "-c", "import libzero; libzero.Comm.from_env()"]
            status, said = launchers.NoLauncher().run(made.hosts, 1, ["env", "--unset=LOCAL_WORLD_SIZE", *program],
                                                      ZERO_RENDEZVOUS_MS="1000")
            self.assertNotEqual(status, 0)
            for missing in "01":
                self.assertIn(f"rank {missing} did not arrive within 1000 ms; "
                              "this rank looked as user 0 in network", said)


if __name__ == "__main__":
    unittest.main()
