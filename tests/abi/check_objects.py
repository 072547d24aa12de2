# SPDX-License-Identifier: Apache-2.0
"""Checks the calls in each file of the compiled library, and the code that runs before main.

Every system call goes through the table of base/os.h, so that a test can make it fail. The library never prints
(except for the log, with write()), exits or forks. No code runs when it is loaded or unloaded, except the code that
nvcc adds to its object. That code registers the kernels with the CUDA runtime, and unregisters them.

usage: check_objects.py base/os.h NM READELF ARCHIVE
"""
import re
import subprocess
import sys

os_header, nm, readelf, archive = sys.argv[1:]

table = re.search(r"struct SystemCalls \{(.*?)\n\};", open(os_header, encoding="utf-8").read(), re.S)
calls = set(re.findall(r"\(\*(\w+)\)\(", table[1])) - {"reached"}
assert {"openat", "mmap", "futex", "clock_gettime"} <= calls, "base/os.h was not understood"
# Other names of calls in the table, and related calls that would bypass it.
calls |= {"syscall", "open", "creat", "read", "write", "readv", "writev", "rename", "renameat", "unlink",
          "mkdir", "rmdir", "stat", "lstat", "opendir", "fdatasync", "sync", "truncate", "send", "recv",
          "sendto", "recvfrom", "accept", "socketpair", "shm_open", "mprotect", "usleep", "nanosleep",
          "clock_nanosleep", "kill", "waitpid", "time", "gettimeofday", "posix_fallocate"}
FORBIDDEN = {
    "prints": {"printf", "puts", "putchar", "fputs", "fputc", "fprintf", "vfprintf", "perror", "fwrite",
               "_ZSt4cout", "_ZSt4cerr", "__printf_chk", "__fprintf_chk", "syslog"},
    "ends the process": {"exit", "_exit", "_Exit", "quick_exit", "abort", "_ZSt9terminatev"},
    "forks": {"fork", "vfork", "clone", "posix_spawn", "system", "popen", "execve", "execvp"},
    "takes a signal": {"signal", "sigaction", "bsd_signal"},
    "runs a destructor at exit": {"__cxa_atexit", "__cxa_thread_atexit", "__cxa_thread_atexit_impl",
                                  "atexit", "on_exit"},
}


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def undefined_symbols() -> dict[str, set[str]]:
    """Return the undefined symbols of every object in the archive, by its name."""
    symbols: dict[str, set[str]] = {}
    for line in output(nm, "--print-file-name", "--undefined-only", "--format=posix", archive).splitlines():
        place, symbol = re.fullmatch(r"(.*?): (\S+) .*", line).groups()
        name = re.search(r"[\[(](.*)[\])]$", place)[1].rsplit("/", 1)[-1]
        symbols.setdefault(name, set()).add(symbol.split("@")[0])
    return symbols


def plain(name: str) -> str:
    """Return pread for pread64, and fcntl for __fcntl_chk."""
    return re.sub(r"^__(\w+)_chk$", r"\1", re.sub(r"64(?=_|$)", "", name))


# These are allowed. The language itself terminates if a destructor throws.
LANGUAGE = {"_ZSt9terminatev"}
# The object to which nvcc adds code. A device-only function ends the host process that calls it.
KERNELS = "cuda_kernels.o"
ADDED = {"atexit", "exit"}
# If libzero has initialized MPI, it must finalize MPI before the process exits. Otherwise the launcher reports a
# crash.
ENDS_MPI = "comm_mpi_start."

faults = []
objects = undefined_symbols()
for name, symbols in objects.items():
    if not name.startswith("base_os."):
        used = sorted(s for s in symbols if plain(s) in calls)
        faults += [f"{name} calls {symbol} itself: take it from os()" for symbol in used]
    for what, names in FORBIDDEN.items():
        used = sorted((symbols & names) - LANGUAGE - (ADDED if name == KERNELS else set()) -
                      ({"on_exit"} if name.startswith(ENDS_MPI) else set()))
        faults += [f"{name} {what}: {symbol}" for symbol in used]
sections = output(readelf, "--sections", "--wide", archive)
for place, body in re.findall(r"^File: (.*?)$(.*?)(?=^File: |\Z)", sections, re.M | re.S):
    if re.search(rf"\b{re.escape(KERNELS)}\b", place):
        continue
    for section in re.findall(r"\s(\.(?:init_array|fini_array|ctors|dtors)\S*)", body):
        faults.append(f"{place} runs code when the library is loaded or unloaded: {section}")

print(f"{len(objects)} objects, {len(calls)} calls, {len(faults)} faults")
if len(objects) < 20:
    faults.append("too few objects: was the archive read?")
sys.exit("\n".join(faults) or 0)
