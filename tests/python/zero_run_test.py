# SPDX-License-Identifier: Apache-2.0
"""Tests what ranks of zero-run find, how they end, signals, and options."""

import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from zero_run_cases import (PATIENCE, READY, ZERO_RUN, TerminalTest, ZeroRunTest, alive, state,
                            zero_run)


class Environment(ZeroRunTest):
    def test_each_rank_is_told_who_it_is(self):
        show = "echo $ZERO_RANK $ZERO_LOCAL_RANK $ZERO_WORLD_SIZE $ZERO_LOCAL_WORLD_SIZE"
        done = zero_run("-n", "3", script=show)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         ["[0] 0 0 3 3", "[1] 1 1 3 3", "[2] 2 2 3 3"])

    def test_ranks_share_a_job_that_no_other_job_has(self):
        environment = dict(os.environ, ZERO_JOB="outer", ZERO_RANK="7")
        show = "echo $ZERO_JOB"
        runs = [zero_run("--no-prefix", "-n2", script=show, env=environment).stdout.split()
                for _ in range(2)]
        self.assertEqual(runs[0][0], runs[0][1])
        self.assertNotEqual(runs[0][0], runs[1][0])
        self.assertNotIn("outer", runs[0])
        self.assertLessEqual(len(runs[0][0]), 64)

    def test_ranks_have_signals_and_descriptors_as_without_zero_run(self):
        for look in (["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"], ["ls", "/proc/self/fd"]):
            plain = subprocess.run(look, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                   check=True)
            self.assertEqual(zero_run("--no-prefix", "-n", "1", *look).stdout, plain.stdout)

    def test_stdin_goes_to_rank_0_and_the_others_are_at_its_end(self):
        script = "[ $ZERO_RANK = 0 ] && sleep 0.5; cat"
        done = subprocess.run([ZERO_RUN, "-n", "3", "sh", "-c", script], input="one\ntwo\n",
                              capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(done.stdout, "[0] one\n[0] two\n")


class Failures(ZeroRunTest):
    def test_all_ranks_succeeding_is_success(self):
        self.assertEqual(zero_run("-n", "4", script="exit 0").returncode, 0)

    def test_a_failing_rank_ends_the_others_by_sigterm_and_gives_its_code(self):
        started = time.monotonic()
        done = zero_run("-n", "3", script="[ $ZERO_RANK = 1 ] && exit 3; exec sleep 60")
        self.assertEqual(done.returncode, 3)
        self.assertIn("zero-run: rank 1 (process ", done.stderr)
        self.assertIn(") exited with code 3", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertGreater(time.monotonic() - started, 1.5, "the others were given no time")
        self.assertLess(time.monotonic() - started, 6)

    def test_a_signal_gives_128_plus_its_number(self):
        done = zero_run("-n", "2", script="[ $ZERO_RANK = 1 ] && kill -SEGV $$; exec sleep 60")
        self.assertEqual(done.returncode, 128 + signal.SIGSEGV)
        self.assertRegex(done.stderr, r"rank 1 \(process \d+\) was killed by signal 11 "
                                      r"\(Segmentation fault\)")

    def test_a_death_counts_before_an_exit_that_is_seen_first(self):
        done = zero_run("-n", "2", script="[ $ZERO_RANK = 0 ] && exit 5; sleep 0.3; kill -KILL $$")
        self.assertEqual(done.returncode, 128 + signal.SIGKILL)

    def test_the_first_of_several_exits_counts(self):
        done = zero_run("-n", "3", script="case $ZERO_RANK in 1) exit 7;; 0) sleep 0.4; exit 8;; "
                                          "2) sleep 0.8; exit 9;; esac")
        self.assertEqual(done.returncode, 7)

    def test_others_may_finish_after_a_failure(self):
        done = zero_run("-n", "2", script="[ $ZERO_RANK = 0 ] && exit 4; sleep 1; echo saved")
        self.assertEqual((done.returncode, done.stdout), (4, "[1] saved\n"))

    def test_a_rank_that_ignores_sigterm_is_killed(self):
        started = time.monotonic()
        done = zero_run("-n", "2", script="[ $ZERO_RANK = 0 ] && exit 6; trap '' TERM; "
                                          "while :; do sleep 1; done")
        self.assertEqual(done.returncode, 6)
        self.assertGreater(time.monotonic() - started, 6.5)
        self.assertLess(time.monotonic() - started, 15)

    def test_a_stopped_rank_is_ended_too(self):
        started = time.monotonic()
        done = zero_run("-n", "2", script="[ $ZERO_RANK = 0 ] && { sleep 0.2; exit 6; }; "
                                          "kill -STOP $$")
        self.assertEqual(done.returncode, 6)
        self.assertLess(time.monotonic() - started, 6, "SIGTERM did not end it")

    def test_what_a_rank_leaves_running_is_ended(self):
        done = zero_run("-n", "2", script="sleep 61 & echo $! >> $FOLDER/pids; exit 0",
                        env=self.environment)
        self.assertEqual(done.returncode, 0)
        self.until(lambda: not any(alive(pid) for pid in self.pids("pids")))

    def test_what_a_rank_leaves_running_may_end_by_itself(self):
        done = zero_run("-n", "1", script="(sleep 0.5; echo cleaned up) & exit 0")
        self.assertEqual(done.stdout, "[0] cleaned up\n")

    def test_a_process_that_left_its_group_does_not_keep_zero_run(self):
        done = zero_run("-n", "1", script="setsid sleep 20 & exit 0")
        self.assertEqual(done.returncode, 0)

    def test_a_program_that_is_not_there_is_127(self):
        done = zero_run("-n", "2", "/no/such/program")
        self.assertEqual(done.returncode, 127)
        self.assertEqual(done.stderr, "zero-run: program '/no/such/program' was not found\n")

    def test_a_program_that_cannot_run_is_126(self):
        done = zero_run("-n", "2", self.folder)
        self.assertEqual(done.returncode, 126)
        self.assertIn("cannot be executed", done.stderr)

    def test_an_ignored_sigchld_is_no_trouble(self):
        done = zero_run("-n", "2", script="exit 3",
                        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 3)


# Records each signal that it receives, and exits with 0 shortly afterwards.
NOTE = ("for s in INT TERM HUP USR1; do "
        "trap \"echo $s >> $FOLDER/got.$ZERO_RANK; stop=1\" $s; done; " + READY
        + "while [ -z \"$stop\" ]; do sleep 0.05; done; sleep 0.3; exit 0")


class Signals(ZeroRunTest):
    def test_each_is_passed_on_once_to_all_ranks(self):
        for name in ("INT", "TERM", "HUP", "USR1"):
            with self.subTest(name):
                process = self.start(3, NOTE)
                process.send_signal(getattr(signal, "SIG" + name))
                process.communicate(timeout=PATIENCE)
                self.assertEqual(process.returncode, 0)
                for rank in range(3):
                    self.assertEqual(self.read(f"got.{rank}"), name + "\n")
                    os.remove(f"{self.folder}/got.{rank}")

    def test_ranks_that_die_of_it_give_128_plus_its_number(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                process = self.start(2, READY + "exec sleep 60")
                process.send_signal(number)
                _, errors = process.communicate(timeout=PATIENCE)
                self.assertEqual(process.returncode, 128 + number)
                self.assertEqual(errors, "")

    def test_a_checkpoint_after_sigterm_is_not_cut_short(self):
        process = self.start(2, "trap 'sleep 3; echo saved; exit 0' TERM; "
                             "[ $ZERO_RANK = 1 ] && trap - TERM; " + READY
                             + "while :; do sleep 0.1; done")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(output, "[0] saved\n")
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)

    def test_ranks_that_ignore_sigint_are_ended(self):
        process = self.start(2, "trap '' INT; " + READY + "while :; do sleep 0.2; done")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)

    def test_a_second_sigint_kills_at_once(self):
        process = self.start(2, "trap '' INT TERM; " + READY + "while :; do sleep 0.2; done")
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertLess(time.monotonic() - started, 4)

    def test_what_ranks_have_started_gets_signals_too(self):
        process = self.start(2, "sleep 60 & echo $! >> $FOLDER/pids; " + READY + "wait; wait")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        self.assertFalse(any(alive(pid) for pid in self.pids("pids")))

    def test_sigkill_of_zero_run_ends_ranks_and_what_they_started(self):
        process = self.start(3, "trap '' HUP TERM INT; sleep 60 & echo $! $$ >> $FOLDER/pids; "
                             + READY + "wait")
        self.assertEqual(len(self.pids("pids")), 6)
        process.kill()
        self.until(lambda: not any(alive(pid) for pid in self.pids("pids")))

    def test_a_signal_that_was_ignored_before_is_not_acted_on(self):
        process = self.start(2, READY + "sleep 0.7; exit 0",
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0)


class Terminal(TerminalTest):
    def test_ctrl_c_reaches_each_rank_once_and_ends_everything(self):
        pid, terminal = self.start_there(3, NOTE)
        os.write(terminal, b"\x03")
        self.assertEqual(self.wait(pid, terminal)[0], 0)
        self.assertEqual([self.read(f"got.{rank}") for rank in range(3)], ["INT\n"] * 3)

    def test_rank_0_reads_what_is_typed(self):
        script = READY + "read word; echo got $word.; read more; echo then $more."
        pid, terminal = self.start_there(2, script)
        os.write(terminal, b"hello\n\x04")
        code, text = self.wait(pid, terminal)
        self.assertIn("[0] got hello.\n", text)
        self.assertIn("[0] then .\n", text)
        self.assertIn("[1] got .\n", text)
        self.assertEqual(code, 0)

    def test_ctrl_z_stops_ranks_too(self):
        pid, terminal = self.start_there(2, "echo $$ >> $FOLDER/pids; " + READY + "exec sleep 60")

        def states():
            return [state(one) for one in self.pids("pids") + [pid]]

        os.write(terminal, b"\x1a")
        self.until(lambda: states() == ["T"] * 3)
        os.kill(pid, signal.SIGCONT)
        self.until(lambda: "T" not in states())
        os.write(terminal, b"\x03")
        self.assertEqual(self.wait(pid, terminal)[0], 128 + signal.SIGINT)


class Usage(ZeroRunTest):
    def test_help_and_version_go_to_stdout(self):
        done = zero_run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("-n, --ranks RANKS", done.stdout)
        self.assertTrue(all(len(line) <= 100 for line in done.stdout.splitlines()))
        self.assertRegex(zero_run("--version").stdout, r"^zero-run \d+\.\d+\.\d+\n$")

    def test_the_manual_page_has_all_that_help_has(self):
        page = pathlib.Path(__file__).parents[2] / "packaging/man/zero-run.1"
        words = page.read_text(encoding="utf-8").replace("\\-", "-")
        said = zero_run("--help").stdout
        for word in re.findall(r"--[a-z-]+|ZERO_\w+|SIG\w+|\b\d+(?= seconds)|\b\d+(?=:)", said):
            self.assertIn(word, words)

    def test_mistakes_are_told_and_are_2(self):
        for arguments, words in [
            ([], "number of ranks is missing"),
            (["-n", "2"], "program is missing"),
            (["true"], "number of ranks is missing"),
            (["-n"], "-n needs a number of ranks"),
            (["-n", "0", "true"], "'0' is not a number of ranks from 1 to 1024"),
            (["-n", "2x", "true"], "'2x' is not a number"),
            (["-n", "1025", "true"], "'1025' is not a number"),
            (["--fast", "-n", "2", "true"], "unknown option '--fast'"),
        ]:
            with self.subTest(arguments):
                done = zero_run(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(words, done.stderr)

    def test_all_spellings_of_the_number_work(self):
        for spelling in (["-n", "2"], ["-n2"], ["--ranks", "2"], ["--ranks=2"], ["-n", "2", "--"]):
            self.assertEqual(len(zero_run(*spelling, "echo", "x").stdout.splitlines()), 2)

    def test_words_of_other_launchers_that_mean_the_same_are_understood(self):
        for words in ("-np 2", "--np 2", "--np=2", "--nproc-per-node 2", "--nproc_per_node=2",
                      "--ntasks=2 --label", "--standalone --nnodes=1 --nproc-per-node=2",
                      "-n2 --ntasks-per-node=2", "--oversubscribe --bind-to none -np 2"):
            with self.subTest(words):
                done = zero_run(*words.split(), "echo", "x")
                self.assertEqual((sorted(done.stdout.splitlines()), done.stderr),
                                 (["[0] x", "[1] x"], ""))

    def test_words_of_other_launchers_that_mean_more_are_answered_by_name(self):
        for words, answer in [
            ("-N 2", "-N: srun counts hosts with it, and mpirun ranks per host: use -n RANKS"),
            ("-N2", "-N2: srun counts hosts with it, and mpirun ranks per host: use -n RANKS"),
            ("--nnodes=2", "--nnodes=2: zero-run starts ranks on this host only: use mpirun, srun "
                           "or torchrun for several hosts"),
            ("--master_port 29500", "--master_port: ranks of zero-run are on one host and find "
                                    "each other without an address: leave it out"),
            ("-m train", "-m: zero-run starts programs, not modules: use python -m MODULE as "
                         "PROGRAM"),
            ("-n 4 -np 2", "'-np' contradicts the 4 ranks given before it; see zero-run --help"),
            ("-np", "-np needs a number of ranks; see zero-run --help"),
            ("--nproc-per-node=gpu", "'gpu' is not a number of ranks from 1 to 1024; see zero-run "
                                     "--help"),
            ("-n 2 train.py", "program 'train.py' was not found; use python3 train.py"),
        ]:
            with self.subTest(words):
                arguments = words.split() + (["true"] if len(words) > 3 else [])
                done = zero_run(*arguments)
                self.assertEqual((done.stdout, done.stderr), ("", f"zero-run: {answer}\n"))

    def test_options_behind_the_program_are_the_programs(self):
        done = zero_run("-n", "1", "echo", "--version", "-n", "3")
        self.assertEqual(done.stdout, "[0] --version -n 3\n")


if __name__ == "__main__":
    unittest.main()
