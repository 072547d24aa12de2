# SPDX-License-Identifier: Apache-2.0
"""Checks that char_lm prints the same losses and has bitwise identical parameters on a GPU and on the host. Without a
GPU, char_lm must give the reason and fail.

usage: check_gpu_example.py char_lm TEXT [--gpu]      (--gpu: there is a GPU)
"""

import pathlib
import re
import subprocess
import sys
import tempfile

char_lm, text, *rest = sys.argv[1:]
WHY = (
    r"char_lm: zero_comm_create_env\(.*\): ZERO_ERR_UNSUPPORTED: zero_comm_create_env: "
    r"(no CUDA driver is installed|this libzero was built without CUDA|there is no CUDA device)"
)


def run(device: str, dump: pathlib.Path) -> subprocess.CompletedProcess[str]:
    command = [char_lm, "--text", text, "--steps", "20", "--progress", "--device", device]
    return subprocess.run([*command, "--dump", dump], text=True, capture_output=True, check=False)


def losses(output: str) -> list[str]:
    return re.findall(r"^step=.*$", output, re.M)


with tempfile.TemporaryDirectory() as folder:
    dumps = [pathlib.Path(folder) / device for device in ("host", "cuda")]
    host, cuda = run("host", dumps[0]), run("cuda", dumps[1])
    if host.returncode != 0:
        sys.exit(host.stderr)
    if cuda.returncode == 0:
        if len(losses(host.stdout)) != 20 or losses(host.stdout) != losses(cuda.stdout):
            sys.exit(f"the losses differ:\n{host.stdout}\n{cuda.stdout}")
        if dumps[0].read_bytes() != dumps[1].read_bytes():
            sys.exit("the parameters differ")
        print("the same on host and GPU")
    elif "--gpu" in rest or cuda.returncode != 1 or not re.search(WHY, cuda.stderr):
        sys.exit(f"exit {cuda.returncode}:\n{cuda.stderr}")
    else:
        print(cuda.stderr, end="")
