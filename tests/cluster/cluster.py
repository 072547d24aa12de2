# SPDX-License-Identifier: Apache-2.0
"""A cluster on one machine: each host is namespaces of its own (network, name, processes, mounts, shared memory),
on a link that tc shapes to a bridge. Programs start there by nsenter, which stands in for ssh.

Hosts share the kernel with its clock and boot id, the cores, and all files but /dev/shm. So this shows what goes
over links and what a lost link does, and not how fast many machines are.
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
# What a cluster takes, tried where it does no harm.
TRIAL = ("ip link add trial type bridge && ip link add one type veth peer name other && tc qdisc add dev one "
         + SHAPE.format("1gbit") + " && mount -t tmpfs none /dev/shm")
INSIDE = "ZERO_CLUSTER_INSIDE"
HEADER_BYTES = 66  # of a packet: Ethernet's, IPv4's and TCP's with times


class Traffic(collections.namedtuple("Traffic", "bytes_out packets_out bytes_in packets_in")):
    def since(self, before):
        return Traffic(*(now - then for now, then in zip(self, before)))

    def payload(self):
        """Of TCP, out and in."""
        return (self.bytes_out - HEADER_BYTES * self.packets_out, self.bytes_in - HEADER_BYTES * self.packets_in)


def traffic(interface):
    counted = json.loads(run("ip", "-json", "-statistics", "link", "show", interface))[0]["stats64"]
    return Traffic(*(counted[way][what] for way in ("tx", "rx") for what in ("bytes", "packets")))


def unshare():
    return ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), *NAMESPACES]


def why_not():
    """Why there can be no cluster here, or ""."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [tool for tool in ("unshare", "nsenter", "ip", "tc", "mount") if shutil.which(tool) is None]
    if missing:
        return f"no cluster without {', '.join(missing)}"
    trial = subprocess.run([*unshare(), "sh", "-c", TRIAL], capture_output=True, text=True, check=False)
    return "" if trial.returncode == 0 else f"no cluster of namespaces: {trial.stderr.strip()}"


inside = []  # something, once enter() has been there: each module of tests calls it


def enter():
    """Starts this program anew, as root of namespaces of its own: when it ends, however it does, so does all that it
    has started. Returns "" in there; elsewhere it returns why that cannot be."""
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
    # The shell takes leave of orphans, for which namespaces of processes wait.
    return os.execvp("unshare", [*unshare(), "sh", "-c", '"$@"; exit $?', "sh", sys.executable, *arguments])


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Host:
    """Lives as long as its first process, which waits for the end of a pipe."""

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
        # Packets as they would be on a wire, so that the counters count those. They take much time of this machine.
        if packets:
            self.run("ip link set eth0 gso_max_segs 1")
        self.run(f"tc qdisc add dev eth0 {SHAPE.format(rate)}")
        run("tc", "qdisc", "add", "dev", self.port, *SHAPE.format(rate).split())

    def command(self, words):
        return [SSH, self.name, "exec " + shlex.join(words)]

    def run(self, line):
        return run(*self.command(shlex.split(line)))

    def pids(self):
        """Of its processes, as the front sees them."""
        here = os.readlink(f"/proc/{self.first.pid}/ns/pid_for_children")
        return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if link_of(f"/proc/{pid}/ns/pid") == here]


def link_of(path):
    try:
        return os.readlink(path)
    except OSError:  # it has ended
        return None


class Cluster:
    """Hosts, and the front, where launchers run. Its links are shaped to `rate` in each direction. `packets`:
    their counters see each as on a wire."""

    def __init__(self, hosts, rate="1gbit", packets=True):
        self.folder = tempfile.TemporaryDirectory()  # of no other user's launchers
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
            run("ip", "link", "delete", host.port)  # it would outlive the host for a while
            host.first.stdin.close()
            host.first.wait()
            host.first.stdout.close()
        run("ip", "link", "delete", "bridge")
        run("umount", "/etc/hosts")
        self.folder.cleanup()

    def cut(self, host):
        """As where a host loses its cable or its power: its link is down."""
        run("ip", "link", "set", self.hosts[host].port, "down")

    def drop(self, host):
        """As where a firewall drops all that a host sends and gets: its link is up, and nothing passes."""
        run("ip", "link", "set", self.hosts[host].port, "nomaster")

    def bytes_between_hosts(self):
        """By host. The front's are among them."""
        ports = [traffic(host.port) for host in self.hosts]
        return [Traffic(*port[2:], *port[:2]) for port in ports]  # a port receives what its host sends

    def pids(self, variable, value):
        """Of the processes on hosts that have the variable of that value, such as a rank, and have started none."""
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
