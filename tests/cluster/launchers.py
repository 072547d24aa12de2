# SPDX-License-Identifier: Apache-2.0
"""Starts ranks on the hosts of a cluster, with the launcher of an MPI or without a launcher. If one rank is killed,
the other ranks continue."""

import functools
import os
import shlex
import subprocess
import sys

import cluster

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "mpi"))
import mpis  # noqa: E402


class Launcher:
    def run(self, hosts, ranks_per_host, program, timeout_s=600, **environment):
        """Return the highest exit status, and the output of all processes."""
        started = self.start(hosts, ranks_per_host, program, **environment)
        said = [one.communicate(timeout=timeout_s)[0] for one in started]
        return max(abs(one.returncode) for one in started), "".join(said)


class NoLauncher(Launcher):
    """Starts ranks with the variables that torchrun sets."""

    def start(self, hosts, ranks_per_host, program, **environment):
        """Return the processes whose end is the end of the job, which are all ranks here."""
        return [popen(host.command(program), {**mpis.environment(), "RANK": str(number * ranks_per_host + local),
                                              "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(ranks_per_host),
                                              "WORLD_SIZE": str(len(hosts) * ranks_per_host),
                                              "MASTER_ADDR": hosts[0].name, "MASTER_PORT": "29500", **environment})
                for number, host in enumerate(hosts) for local in range(ranks_per_host)]


class Mpirun(Launcher):
    def __init__(self, mpi):
        self.mpi = mpi
        version = mpis.open_mpi(mpi.launcher)
        self.words = hydra if version == 0 else functools.partial(open_mpi, version)

    def start(self, hosts, ranks_per_host, program, ranks=None, **environment):
        """Start a job. `ranks` is its number of ranks, if the last host has fewer ranks than the others."""
        count = ["-n", str(ranks or len(hosts) * ranks_per_host)]
        return [popen([self.mpi.launcher, *count, *self.words(hosts, ranks_per_host), *program],
                      self.mpi.environment(**environment))]


def popen(words, environment):
    return subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def open_mpi(version, hosts, ranks_per_host):
    slots = ",".join(f"{host.name}:{ranks_per_host}" for host in hosts)
    network = "10.77.0.0/24"
    lives_on = "--mca orte_abort_on_non_zero_status 0" if version < 5 else "--with-ft ulfm"
    return shlex.split(f"--host {slots} --mca plm_rsh_agent {cluster.SSH} --mca oob_tcp_if_include {network} "
                       f"--mca btl_tcp_if_include {network} {lives_on} --bind-to none --allow-run-as-root")


# MPICH's proxy signals to ranks that a rank has died, and may kill the ranks on its host in spite of the option. This
# wrapper therefore hides from the proxy that a rank was killed.
KILLED_IN_SILENCE = 'trap "" USR1; "$@"; status=$?; [ $status -lt 128 ] || exit 0; exit $status'


def hydra(hosts, ranks_per_host):
    names = ",".join(host.name for host in hosts)
    words = shlex.split(f"-launcher ssh -launcher-exec {cluster.SSH} -hosts {names} -ppn {ranks_per_host} "
                        "-disable-auto-cleanup")
    return [*words, "sh", "-c", KILLED_IN_SILENCE, "sh"]
