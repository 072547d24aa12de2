# SPDX-License-Identifier: Apache-2.0
"""Simulates a cluster on one machine. Each host consists of separate namespaces (network, name, processes, mounts,
shared memory), and is connected to a bridge by a link that tc shapes. nsenter replaces ssh to start programs on a
host.

Hosts share the kernel with its clock and boot id, the cores, and all files except /dev/shm. The simulation shows what
is sent over links and how a lost link behaves, and does not show the speed of many machines.
"""

import collections
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile

SSH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ssh")
NAMESPACES = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
SHAPE = "root tbf rate {} burst 128kb latency 50ms"
# Tries what a cluster needs, in a harmless way.
TRIAL = ("ip link add trial type bridge && ip link add one type veth peer name other && tc qdisc add dev one "
         + SHAPE.format("1gbit") + " && mount -t tmpfs none /dev/shm")
INSIDE = "ZERO_CLUSTER_INSIDE"
HEADER_BYTES = 66  # the Ethernet, IPv4 and TCP headers of a packet, with timestamps


class Traffic(collections.namedtuple("Traffic", "bytes_out packets_out bytes_in packets_in")):
    def since(self, before):
        return Traffic(*(now - then for now, then in zip(self, before)))

    def payload(self):
        """Return the bytes of TCP data sent and received."""
        return (self.bytes_out - HEADER_BYTES * self.packets_out, self.bytes_in - HEADER_BYTES * self.packets_in)


def traffic(interface):
    counted = json.loads(run("ip", "-json", "-statistics", "link", "show", interface))[0]["stats64"]
    return Traffic(*(counted[way][what] for way in ("tx", "rx") for what in ("bytes", "packets")))


def unshare():
    return ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), *NAMESPACES]


def why_not():
    """Return the reason why a cluster is not possible on this machine, or ""."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [tool for tool in ("unshare", "nsenter", "ip", "tc", "mount") if shutil.which(tool) is None]
    if missing:
        return f"no cluster without {', '.join(missing)}"
    trial = subprocess.run([*unshare(), "sh", "-c", TRIAL], capture_output=True, text=True, check=False)
    return "" if trial.returncode == 0 else f"no cluster of namespaces: {trial.stderr.strip()}"


# This is not empty after enter() has succeeded. Each test module calls enter().
inside = []


def enter():
    """Restart this program as root of separate namespaces. When it ends, for any reason, all processes that it has
    started also end. Return "" inside the namespaces, and the reason if they cannot be created."""
    if inside:
        return ""
    if os.environ.pop(INSIDE, ""):
        inside.append(True)
        socket.sethostname("front")
        return ""
    if reason := why_not():
        return reason
    with open("/proc/self/cmdline", encoding="utf-8") as file:
        arguments = file.read().split("\0")[1:-1]
    os.environ[INSIDE] = "yes"
    sys.stdout.flush()
    # The shell reaps orphans, for which PID namespaces wait.
    return os.execvp("unshare", [*unshare(), "sh", "-c", '"$@"; exit $?', "sh", sys.executable, *arguments])


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Host:
    """A host, which lives as long as its first process. That process waits for the end of a pipe."""

    def __init__(self, number, rate, packets):
        self.name, self.address, self.port = f"node{number}", f"10.77.0.{number + 1}", f"port{number}"
        prepare = f"hostname {self.name} && mount -t tmpfs none /dev/shm"
        self.first = subprocess.Popen(["unshare", *NAMESPACES, "sh", "-c", f"{prepare} && echo there && exec cat"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.first.stdout.readline() != "there\n":
            raise RuntimeError(f"{self.name} did not start")
        os.environ[f"ZERO_CLUSTER_{self.name}"] = str(self.first.pid)
        run("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", str(self.first.pid))
        run("ip", "link", "set", self.port, "master", "bridge", "up")
        self.run("ip link set lo up")
        self.run(f"ip address add {self.address}/24 dev eth0")
        self.run("ip link set eth0 up")
        # Send packets of the size that a wire has, so that counters count them correctly. This costs much processing
        # time.
        if packets:
            self.run("ip link set eth0 gso_max_segs 1")
        self.run(f"tc qdisc add dev eth0 {SHAPE.format(rate)}")
        run("tc", "qdisc", "add", "dev", self.port, *SHAPE.format(rate).split())

    def command(self, words):
        return [SSH, self.name, "exec " + shlex.join(words)]

    def run(self, line):
        return run(*self.command(shlex.split(line)))

    def pids(self):
        """Return the ids of its processes, as seen outside of the host."""
        here = os.readlink(f"/proc/{self.first.pid}/ns/pid_for_children")
        return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if link_of(f"/proc/{pid}/ns/pid") == here]


def link_of(path):
    try:
        return os.readlink(path)
    except OSError:  # the process has ended
        return None


class Cluster:
    """Hosts, and the front node on which launchers run. Links are shaped to `rate` in each direction. If `packets` is
    set, the counters count packets of the size that a wire has."""

    def __init__(self, hosts, rate="1gbit", packets=True):
        self.folder = tempfile.TemporaryDirectory()  # separate from the files of other users' launchers
        os.environ["TMPDIR"] = self.folder.name
        names = "".join(f"10.77.0.{number + 1} node{number}\n" for number in range(hosts))
        with open(f"{self.folder.name}/hosts", "w", encoding="utf-8") as file:
            file.write(f"127.0.0.1 localhost\n10.77.0.254 front\n{names}")
        run("mount", "--bind", file.name, "/etc/hosts")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "address", "add", "10.77.0.254/24", "dev", "bridge")
        run("ip", "link", "set", "bridge", "up")
        self.hosts = [Host(number, rate, packets) for number in range(hosts)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            run("ip", "link", "delete", host.port)  # the link would outlive the host for a short time
            host.first.stdin.close()
            host.first.wait()
            host.first.stdout.close()
        run("ip", "link", "delete", "bridge")
        run("umount", "/etc/hosts")
        self.folder.cleanup()

    def cut(self, host):
        """Lose the cable or the power of a host: its link goes down."""
        run("ip", "link", "set", self.hosts[host].port, "down")

    def drop(self, host):
        """Drop all packets to and from a host, like a firewall. Its link stays up."""
        run("ip", "link", "set", self.hosts[host].port, "nomaster")

    def bytes_between_hosts(self):
        """Return the traffic of each host, which includes traffic with the front node."""
        ports = [traffic(host.port) for host in self.hosts]
        return [Traffic(*port[2:], *port[:2]) for port in ports]  # a port receives what its host sends

    def pids(self, variable, value):
        """Return the processes on hosts that have this value of a variable, such as a rank, and that have no child
        processes."""
        word = f"{variable}={value}".encode()
        found = {int(pid): int(read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
                 for host in self.hosts for pid in host.pids()
                 if word in read_bytes(f"/proc/{pid}/environ").split(b"\0")}
        return sorted(found.keys() - found.values())


def read_bytes(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
