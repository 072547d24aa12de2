# SPDX-License-Identifier: Apache-2.0
"""Parses the machine code of kernels from the output of nvdisasm: instructions, the paths between them, and what a
thread waits for on each path.

Since Volta, each instruction encodes the scoreboards that it waits for, and the scoreboard that signals its result.
There are six scoreboards.
"""
import re
from dataclasses import dataclass, field, replace

CODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+ )?\s*(\S+)(.*?)\s*;?\s*/\* 0x[0-9a-f]{16} \*/")
CONTROL = re.compile(r"\s+/\* 0x([0-9a-f]{16}) \*/")
SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


@dataclass
class Instruction:
    name: str                 # for example LDG.E.128
    operands: str
    guarded: bool             # a predicate lets some threads skip it
    waits: int = 0            # scoreboards, as bits
    result: int = 0           # a scoreboard, as a bit
    labels: list[str] = field(default_factory=list)  # possible targets, in addition to the next instruction

    def is_a(self, *mnemonics: str) -> bool:
        return self.name.split(".")[0] in mnemonics

    @property
    def size(self) -> int:
        """Return the number of bytes that a memory access reads or writes."""
        return next((SIZES[part] for part in self.name.split(".") if part in SIZES), 4)


@dataclass
class Kernel:
    code: list[Instruction] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # of labels


@dataclass
class Block:
    """Instructions [begin, end), all or none of which run."""
    begin: int
    end: int
    next: list[int]           # first instructions of other blocks
    before: list[int] = field(default_factory=list)


def read_kernels(text: str) -> dict[str, Kernel]:
    """Return the kernels by mangled name, from the output of nvdisasm -c -hex."""
    kernels: dict[str, Kernel] = {}
    kernel = Kernel()
    for line in text.splitlines():
        if found := re.match(r"\.text\.(\S+):", line):
            kernel = kernels[found[1]] = Kernel()
        elif found := re.match(r"(\.L_\S+):", line):
            kernel.places[found[1]] = len(kernel.code)
        elif found := CODE.search(line):
            guard, name, operands = found.groups()
            kernel.code.append(Instruction(name, operands.strip(), guard is not None))
            add_labels(kernel.code[-1])
        elif (found := CONTROL.fullmatch(line)) and kernel.code:
            bits = int(found[1], 16)
            result = bits >> 46 & 7
            kernel.code[-1].result = 1 << result if result < 6 else 0
            kernel.code[-1].waits = bits >> 52 & 63
    return kernels


def add_labels(instruction: Instruction) -> None:
    """Set the targets of a jump. BSSY names only the place where threads reconverge, and CALL returns."""
    if instruction.is_a("BRX", "BRXU"):
        instruction.labels = re.search(r"BRANCH_TARGETS ([^\"]*)", instruction.operands)[1].split(",")
    elif not instruction.is_a("BSSY", "CALL", "RET"):
        instruction.labels = re.findall(r"`\((\.L_\w+)\)", instruction.operands)


def ways_from(kernel: Kernel, at: int) -> list[int]:
    instruction = kernel.code[at]
    there = [kernel.places[label] for label in instruction.labels]
    always = instruction.is_a("EXIT", "RET", "BRX", "BRXU") or instruction.is_a("BRA") and instruction.operands[0] == "`"
    if always and not instruction.guarded or at + 1 == len(kernel.code):
        return there
    return [at + 1] + there


def blocks_of(kernel: Kernel) -> dict[int, Block]:
    """Return the blocks that a thread reaches without a call, by their first instruction. In their order, only loops
    jump backward."""
    firsts = {0, len(kernel.code)}
    for at, instruction in enumerate(kernel.code):
        if instruction.labels or instruction.is_a("EXIT", "RET"):
            firsts |= {at + 1, *ways_from(kernel, at)}
    firsts |= set(kernel.places.values())
    ends = sorted(firsts)
    blocks = {begin: Block(begin, end, ways_from(kernel, end - 1)) for begin, end in zip(ends, ends[1:])}
    done, seen, stack = [], {0}, [(0, iter(blocks[0].next))]
    while stack:
        begin, rest = stack[-1]
        to = next((one for one in rest if one not in seen), None)
        if to is None:
            done.append(begin)
            stack.pop()
        else:
            seen.add(to)
            stack.append((to, iter(blocks[to].next)))
    blocks = {begin: blocks[begin] for begin in reversed(done)}
    for begin, block in blocks.items():
        for to in block.next:
            blocks[to].before.append(begin)
    reached = sum(kernel.code[at].is_a("LDG", "STG") for one in blocks.values() for at in range(one.begin, one.end))
    if reached != sum(one.is_a("LDG", "STG") for one in kernel.code):
        raise ValueError("no way was found to some loads and stores")
    return blocks


def loops_of(blocks: dict[int, Block]) -> dict[int, set[int]]:
    """Return the blocks of each loop by its head, without the blocks of inner loops."""
    number = {begin: i for i, begin in enumerate(blocks)}
    loops: dict[int, set[int]] = {}
    for begin, block in blocks.items():
        for head in block.next:
            if number[head] > number[begin]:
                continue
            inside, stack = loops.setdefault(head, {head}), [begin]
            while stack:
                one = stack.pop()
                if one not in inside:
                    inside.add(one)
                    stack += blocks[one].before
    if any(0 in inside and head != 0 for head, inside in loops.items()):
        raise ValueError("a loop has more than one entry")
    return {head: inside - {one for other, within in loops.items() if other in inside - {head} for one in within}
            for head, inside in loops.items()}


@dataclass(frozen=True)
class Passed:
    """What a thread has done since it reached the head of a loop."""
    loads: int = 0
    first: int = 0            # loads before the first wait for a load
    rounds: int = 0           # waits for loads that were issued after the previous wait
    fresh: bool = False       # true if there is a load since the last wait
    pending: int = 0          # scoreboards of loads, as bits

    @property
    def waits_between(self) -> bool:
        return self.first < self.loads


def behind(passed: Passed, instruction: Instruction, size: int, others: bool) -> list[Passed]:
    """Return the possible states after an instruction."""
    if passed.pending & instruction.waits:
        passed = replace(passed, pending=passed.pending & ~instruction.waits,
                         rounds=passed.rounds + passed.fresh, fresh=False)
    counts = instruction.size == size
    if not (instruction.is_a("LDG") and (counts or others)):
        return [passed]
    loaded = replace(passed, loads=passed.loads + counts, first=passed.first + (counts and passed.rounds == 0),
                     fresh=True, pending=passed.pending | instruction.result)
    return [passed, loaded] if instruction.guarded else [loaded]


def passes(kernel: Kernel, blocks: dict[int, Block], head: int, inside: set[int], size: int,
           others: bool = False) -> set[Passed]:
    """Return what threads may have done at the end of one iteration of a loop, on any path in the code, including
    paths that no data takes. Loads of `size` bytes are counted, and waits for them. With `others`, waits for all
    loads are counted."""
    number = {begin: i for i, begin in enumerate(blocks)}
    states: dict[int, set[Passed]] = {head: {Passed()}}
    ended: set[Passed] = set()
    for begin in sorted(inside, key=number.__getitem__):
        current = states.get(begin, set())
        for instruction in kernel.code[begin:blocks[begin].end]:
            current = {to for state in current for to in behind(state, instruction, size, others)}
        for to in blocks[begin].next:
            if to in inside and number[to] > number[begin]:
                states.setdefault(to, set()).update(current)
            elif to == head:
                ended |= current
    return ended
