# SPDX-License-Identifier: Apache-2.0
"""Checks the code that nvcc generated for the kernels, for promises that tests on a host cannot check.

usage: check_device_code.py ptx ROOT LIBRARY.PTX
       check_device_code.py sass ROOT TOOLS CUBIN...   exits with 77 if TOOLS is empty
       check_device_code.py table ROOT TOOLS CUBIN...  for bench/results
       check_device_code.py tools FOLDER...            prints TOOLS, the folder of cuobjdump and nvdisasm

TOOLS are part of the toolkit. They can also be installed with pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm
for this Python.
"""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass, field

import sass

# Arithmetic whose result IEEE defines. Because of .rn, ptxas may not contract it to fma.
ROUNDED = re.compile(r"(add|sub|mul|div|rcp|sqrt)\.rn\.f(32|64)")
ARITHMETIC = re.compile(r"(add|sub|mul|mad|fma|div|rcp|sqrt|rsqrt|sin|cos|tanh|ex2|lg2)\.(\w+\.)*(b?f16(x2)?|f32|f64)|"
                        r"\w+\.(\w+\.)*(ftz|approx|full)\b.*")
# Kernels with exact sums count leading zeros. nvcc once replaced a host function for that with a constant.
COUNTS_ZEROS = {"decide_kernel"}
# Kernels that may use a stack, with the reason.
STACKS = {"decide_kernel": "one thread turns over a copy of an exact sum, 560 bytes"}
# The sizes of words that a thread reads one by one, for fp32 and for 16 bits. Update kernels read 16 bytes at a time.
NARROW, WIDE = (4, 2), 16
TOOLS = ("cuobjdump", "nvdisasm")
ONE_SLOT = {"sgd", "rmsprop", "adagrad", "lion", "lars"}  # unless an option adds another slot


def short_name(mangled: str) -> str:
    """Return update_kernel<adamw, float> for _ZN...13update_kernelIN4zero5rules5AdamwEfEEvNS_6launch6UpdateE. State in
    bf16 is a third argument."""
    name, arguments = re.search(r"\d+([a-z]+_kernel)(?:I(.+?)EE?v)?", mangled).groups()
    if arguments is None:
        return name
    told = [rule.lower() or number or {"f": "float", "d": "double"}[real] for rule, number, real in
            re.findall(r"N\w*?5rules\d+([A-Z][a-z]+)|Lj(\d+)|([fd])(?=[EL])", arguments + "E")]
    state = ["bf16"] if "SlotFormatE1" in arguments else []
    return f"{name}<{', '.join(told + state)}>"


# ---- PTX

def ptx_faults(text: str) -> list[str]:
    faults = []
    kernels = re.findall(r"^\.visible \.entry (\w+)\(|^\.entry (\w+)\(", text, re.M)
    bodies = re.split(r"^(?:\.visible )?\.entry \w+\(", text, flags=re.M)[1:]
    for names, body in zip(kernels, bodies):
        name = short_name(names[0] or names[1])
        used = set(re.findall(r"^\s*(?:@!?%p\d+ )?([a-z]\w*(?:\.\w+)+)", body, re.M))
        faults += [f"{name}: {one} is not the host's arithmetic" for one in sorted(used)
                   if ARITHMETIC.fullmatch(one) and not ROUNDED.fullmatch(one)]
        if name in COUNTS_ZEROS and not any(one.startswith("clz.") for one in used):
            faults.append(f"{name}: no clz: what became of width_of()?")
    print(f"{len(bodies)} kernels")
    return faults if len(bodies) > 20 else faults + ["too few kernels: was the PTX read?"]


# ---- SASS

@dataclass
class Turn:
    """One iteration of a loop that loads data."""
    size: int                    # of one load
    passes: set[sass.Passed]

    @property
    def most(self) -> int:
        return max(one.loads for one in self.passes)


@dataclass
class Facts:
    """The known facts about one kernel."""
    registers: int
    stack: int
    spills: int
    loads: int                   # of 16 bytes
    stores: int
    turns: list[Turn] = field(default_factory=list)  # with the loop over groups first
    rereads: bool = False        # true if the loop waits for pointers and similar values before it loads data


def tools_folder(folders: list[str]) -> str:
    package = importlib.util.find_spec("nvidia")
    folders = folders + os.environ["PATH"].split(":") + [
        str(path) for place in (package.submodule_search_locations if package else [])
        for path in pathlib.Path(place).glob("*/bin")]
    return next((one for one in folders if all(os.access(f"{one}/{name}", os.X_OK) for name in TOOLS)), "")


def tool(folder: str, name: str, *arguments: str) -> str:
    command = [str(pathlib.Path(folder) / name), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def add_turns(facts: Facts, kernel: sass.Kernel, sizes: tuple[int, ...]) -> None:
    """Add the loops that load more than one word of these sizes."""
    blocks = sass.blocks_of(kernel)
    loops = sass.loops_of(blocks)
    turns = [(Turn(size, sass.passes(kernel, blocks, head, inside, size)), head)
             for head, inside in loops.items() for size in sizes]
    turns = sorted((one for one in turns if one[0].most > 1), key=lambda one: -one[0].most)
    facts.turns = [turn for turn, _ in turns]
    for turn, head in turns[:1]:
        strict = sass.passes(kernel, blocks, head, loops[head], turn.size, others=True)
        facts.rereads = any(one.waits_between for one in strict)


def facts_of(tools: str, cubin: str) -> dict[str, Facts]:
    resources = re.findall(r"Function (\w+):\s+REG:(\d+) STACK:(\d+)",
                           tool(tools, "cuobjdump", "-res-usage", cubin))
    code = sass.read_kernels(tool(tools, "nvdisasm", "-c", "-hex", cubin))
    facts = {}
    for mangled, registers, stack in resources:
        name, kernel = short_name(mangled), code[mangled]
        of_stack = [one for one in kernel.code if one.is_a("LDL", "STL")]
        facts[name] = Facts(int(registers), int(stack), sum("SpillRefill" in one.operands for one in of_stack),
                            sum(one.is_a("LDG") and one.size == WIDE for one in kernel.code),
                            sum(one.is_a("STG") and one.size == WIDE for one in kernel.code))
        if name.startswith("update_kernel"):
            add_turns(facts[name], kernel, (WIDE,))
        elif name.startswith("reduce_kernel"):
            add_turns(facts[name], kernel, NARROW)
        if of_stack and int(stack) == 0:
            raise ValueError(f"{name} uses a stack that cuobjdump does not tell of")
    return facts


def sass_faults(name: str, of: Facts) -> list[str]:
    faults = []
    if of.spills:
        faults.append(f"{of.spills} accesses of spilled registers")
    if of.stack and name not in STACKS:
        faults.append(f"a stack of {of.stack} bytes")
    for turn in of.turns:
        if late := [one for one in turn.passes if one.waits_between]:
            worst = max(late, key=lambda one: one.rounds)
            faults.append(f"waits for data before it asks for more: a turn with {worst.loads} loads of {turn.size} "
                          f"bytes makes {worst.first}, waits, and so {worst.rounds} times")
    if name.startswith("update_kernel"):
        # Pointers to additional sources are read where they are used, and all other pointers are read once.
        if of.rereads:
            faults.append("waits for something that it reads for each group before it asks for data")
        # The kernel loads 32 bytes each of a parameter, a gradient and at least one slot. Additional sources count
        # together.
        if not of.turns or of.turns[0].most < 6 or of.stores < 4:
            faults.append(f"{of.loads} loads and {of.stores} stores of 16 bytes are too few")
        faults += [f"a loop has only {turn.most} loads: sources are not asked for together"
                   for turn in of.turns if turn.most < 4]
    return [f"{name}: {fault}" for fault in faults]


def threads_of(root: pathlib.Path) -> int:
    source = (root / "src/device/cuda_kernels.cu").read_text(encoding="utf-8")
    return int(re.search(r"kThreads = (\d+);", source)[1])


def resident_blocks(registers: int, threads: int) -> int:
    """Return the number of resident blocks on a multiprocessor of sm_80, 90 and 100, which has 65,536 registers,
    allocated to warps in units of 256, and 2,048 threads."""
    of_warp = -(-registers * 32 // 256) * 256
    return min(65536 // of_warp // (threads // 32), 2048 // threads)


def spread(values: list[int]) -> str:
    return " to ".join(f"{one:,}" for one in sorted({min(values), max(values)}))


def row_of(name: str, of: Facts, threads: int) -> list[str]:
    row = [name, str(of.registers), "-" if name in STACKS else str(resident_blocks(of.registers, threads)),
           str(of.stack), str(of.spills), str(of.loads), str(of.stores)]
    if not of.turns:
        return row + [""] * 5
    group, further = of.turns[0], of.turns[1:]
    wanted = group.most
    if name.startswith("update_kernel"):
        wanted = 4 + 2 * (1 if re.split(r"[<,]", name)[1] in ONE_SLOT else 2)
    like = [one for one in group.passes if one.loads == wanted]
    size, waits = group.size, [one.rounds for one in like]
    return row + [f"{spread([size * one.first for one in like])} of {size * wanted}",
                  str(max((size * one.most for one in further if one.size == size), default="")),
                  *(spread([unit * one for one in waits]) for unit in (1, 650, 1000))]


COLUMNS = ["kernel", "registers", "blocks", "stack", "spills", "LDG.128", "STG.128", "bytes asked for before a wait",
           "bytes of further sources together", "waits", "ns at 650", "ns at 1,000"]


def check_sass(root: pathlib.Path, tools: str, cubins: list[str], as_table: bool) -> list[str]:
    threads, faults = threads_of(root), []
    for cubin in cubins:
        facts = facts_of(tools, cubin)
        if len(facts) < 20:
            faults.append(f"{cubin}: too few kernels")
        print(f"\n{pathlib.Path(cubin).stem}, blocks of {threads} threads\n")
        if as_table:
            print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
        for name, of in facts.items():
            row = row_of(name, of, threads)
            print(f"| {' | '.join(row)} |" if as_table else
                  f"{name:34} {of.registers:3} registers, {row[2]} resident blocks")
            faults += [f"{pathlib.Path(cubin).stem}: {fault}" for fault in sass_faults(name, of)]
    return [] if as_table else faults


def main() -> int:
    mode, *rest = sys.argv[1:]
    if mode == "tools":
        print(tools_folder(rest))
        return 0
    root, first, *cubins = rest
    if mode == "ptx":
        faults = ptx_faults(pathlib.Path(first).read_text(encoding="utf-8"))
    elif first == "":
        print("skipped: cuobjdump and nvdisasm are not here; see this script's first lines")
        return 77
    else:
        faults = check_sass(pathlib.Path(root), first, cubins, mode == "table")
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
