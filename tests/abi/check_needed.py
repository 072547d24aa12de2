# SPDX-License-Identifier: Apache-2.0
"""Checks that the library has its soname, and needs only libc, libm and the loader at run time.

A needed libstdc++ would break host programs that contain another one, and a needed libcuda or
libcudart would break machines without a GPU. With `cuda`, the runtime must therefore be inside the
library. With `zig`, the list may have the system's unwinder, to which scripts/wheels links, and the
libraries that were separate from libc before version 2.34. With `shared-runtime`
(-Dstatic_runtime=false), the list must have the system's libstdc++.

usage: check_needed.py libzero.so READELF [cuda] [zig] [shared-runtime]
"""
import re
import subprocess
import sys

library, readelf, *made = sys.argv[1:]
dynamic = subprocess.run([readelf, "--dynamic", "--wide", library],
                         check=True, capture_output=True, text=True).stdout
needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
soname = re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)
segments = subprocess.run([readelf, "--program-headers", "--wide", library],
                          check=True, capture_output=True, text=True).stdout

allowed = r"(libc|libm)\.so\.6|ld-linux[-\w]*\.so\.\d"
if "zig" in made:
    allowed += r"|lib(dl|pthread)\.so\.\d|libgcc_s\.so\.1"
if "shared-runtime" in made:
    allowed += r"|libstdc\+\+\.so\.6|libgcc_s\.so\.1"
faults = [f"needs {name}" for name in needed if not re.fullmatch(allowed, name)]
if "libc.so.6" not in needed:
    faults.append("does not need libc: was the list read?")
if "shared-runtime" in made and "libstdc++.so.6" not in needed:
    faults.append("has a C++ runtime inside, though static_runtime is off")
if "cuda" in made and b"libcuda.so.1" not in open(library, "rb").read():
    faults.append("has no CUDA runtime inside, which would open the driver by that name")
if soname != ["libzero.so.0.2"]:
    faults.append(f"soname is {soname}")
if "RUNPATH" in dynamic or "RPATH" in dynamic:
    faults.append("carries a run path")
if not re.search(r"FLAGS_1.*NODELETE", dynamic):
    faults.append("can be unloaded while its threads run")
if not re.search(r"FLAGS_1.*NOW", dynamic) or "GNU_RELRO" not in segments:
    faults.append("tables of addresses stay writable")
if re.search(r"GNU_STACK.*RWE", segments):
    faults.append("asks for an executable stack")
print("needs " + ", ".join(needed))
sys.exit("\n".join(faults) or 0)
