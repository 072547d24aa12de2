# SPDX-License-Identifier: Apache-2.0
"""The machine code of kernels, as nvdisasm prints it: instructions, the ways between them, and what a
thread waits for on each way.

Since Volta each instruction names, in bits of its own, the scoreboards for which it waits, and the one
that tells when its result is there. There are six.
"""
import re
from dataclasses import dataclass, field, replace

CODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+ )?\s*(\S+)(.*?)\s*;?\s*/\* 0x[0-9a-f]{16} \*/")
CONTROL = re.compile(r"\s+/\* 0x([0-9a-f]{16}) \*/")
SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


@dataclass
class Instruction:
    name: str                 # LDG.E.128
    operands: str
    guarded: bool             # some threads pass it by
    waits: int = 0            # scoreboards, as bits
    result: int = 0           # a scoreboard, as a bit
    labels: list[str] = field(default_factory=list)  # where it may lead, beside the next one

    def is_a(self, *mnemonics: str) -> bool:
        return self.name.split(".")[0] in mnemonics

    @property
    def size(self) -> int:
        """Bytes that an access of memory takes."""
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
    next: list[int]           # the first instructions of other blocks
    before: list[int] = field(default_factory=list)


def read_kernels(text: str) -> dict[str, Kernel]:
    """By mangled name, of what nvdisasm -c -hex prints."""
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
    """The label of a BSSY is only where threads meet; a CALL comes back."""
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
    """Those that a thread comes to without a call, by their first instruction, in an order in which only
    loops lead back."""
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
    """The blocks of each loop by its head, without those of loops inside it."""
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
    """What a thread has done since it came to the head of a loop."""
    loads: int = 0
    first: int = 0            # of them, before it waited for one
    rounds: int = 0           # waits for a load that was made behind the last such wait
    fresh: bool = False       # a load is behind it
    pending: int = 0          # scoreboards of loads, as bits

    @property
    def waits_between(self) -> bool:
        return self.first < self.loads


def behind(passed: Passed, instruction: Instruction, size: int, others: bool) -> list[Passed]:
    """The possible states behind an instruction."""
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
    """What threads may have done at the end of one turn of a loop, on any way that the code has, also on
    those that no data takes. Loads of `size` bytes are counted, and waited for; with `others`, all are waited
    for."""
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
