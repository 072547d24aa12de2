#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Translates PTX, the output of nvcc, to C++ that does the same thread by thread (see machine.h).

    translate.py KERNELS.ptx > kernels.cpp

Registers become variables, instructions become statements, and memory accesses become calls of the Thread, which
checks them. An instruction whose full name is not known here is an error: nothing is guessed.
"""

import re
import sys

# How registers of each declared type are stored: floats as such, and the rest as unsigned integers.
REGISTERS = {"pred": "bool", "b16": "u16", "b32": "u32", "b64": "u64", "f32": "f32", "f64": "f64"}
REGISTER_OF_PREFIX = {"p": "pred", "rs": "b16", "r": "b32", "rd": "b64", "f": "f32", "fd": "f64"}
SPECIAL = {"%tid.x": "t.tid", "%ntid.x": "t.ntid", "%ctaid.x": "t.ctaid", "%nctaid.x": "t.nctaid"}
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
BITWISE = {"and": "&", "or": "|", "xor": "^"}


class Unknown(Exception):
    """An input that this translation does not know."""


def bits_of(kind: str) -> int:
    return int(kind[1:])


def unsigned(kind: str) -> str:
    return f"u{bits_of(kind)}"


def split_operands(text: str) -> list[str]:
    """Splits at commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^{\[]*[}\]])", text)] if text.strip() else []


class Kernel:
    """One .entry: its declarations, and the statements of its body."""

    def __init__(self, name: str, parameters: str, threads: int, body: str, first_line: int, shared: str) -> None:
        self.name = name
        self.threads = threads
        self.parameters: dict[str, tuple[int, int]] = {}  # offset and bytes
        self.parameter_bytes = 0
        self.registers: list[tuple[str, str, int]] = []  # type, prefix, count
        self.shared: dict[str, int] = {}  # offsets
        self.shared_bytes = 0
        self.local: dict[str, int] = {}  # bytes
        self.suspensions = 0
        self.declare_parameters(parameters)
        self.statements: list[str] = []
        for line in shared.split("\n"):  # declared for all kernels of the file; only those that use it have it
            if line and re.findall(r"\w+", line.split("[")[0])[-1] in body:
                self.take(line)
        for number, line in enumerate(body.split("\n"), first_line):
            self.line = number
            try:
                self.take(line.strip())
            except (Unknown, KeyError, ValueError) as error:
                raise Unknown(f"line {number}: {line.strip()!r}: {error}") from error

    def declare_parameters(self, text: str) -> None:
        pattern = r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w\d+)\s+(\w+)(?:\[(\d+)\])?"
        for align, kind, name, count in re.findall(pattern, text):
            size = bits_of(kind) // 8
            at = -(-self.parameter_bytes // int(align or size)) * int(align or size)
            self.parameters[name] = (at, size * int(count or 1))
            self.parameter_bytes = at + size * int(count or 1)

    def take(self, line: str) -> None:
        if not line or line.startswith((".pragma", ".maxntid", ".minnctapersm")):
            return
        if match := re.fullmatch(r"\.reg \.(\w+)\s+%(\w+)<(\d+)>;", line):
            kind, prefix, count = match.groups()
            if REGISTER_OF_PREFIX[prefix] != kind:
                raise Unknown(f"registers %{prefix} of {kind}")
            self.registers.append((kind, prefix, int(count)))
        elif re.fullmatch(r"\.reg \.b64\s+%SPL?;", line):
            pass
        elif match := re.fullmatch(r"\.(local|shared) \.align (\d+) \.(\w\d+)\s+(\w+)(?:\[(\d+)\])?;", line):
            space, align, kind, name, count = match.groups()
            size = bits_of(kind) // 8 * int(count or 1)
            if space == "local":
                self.local[name] = size
            else:
                at = -(-self.shared_bytes // int(align)) * int(align)
                self.shared[name] = at
                self.shared_bytes = at + size
        elif match := re.fullmatch(r"\$(\w+):", line):
            self.statements.append(f"{match[1]}:;")
        elif match := re.fullmatch(r"(?:@(!?)%p(\d+)\s+)?([a-z][\w.:]*)\s*(.*);", line):
            negated, predicate, name, operands = match.groups()
            done = self.instruction(name, split_operands(operands))
            self.statements.append(f"if ({negated}p_{predicate}) {{ {done} }}" if predicate else done)
        else:
            raise Unknown("no statement of PTX that is known")

    # ---- Operands

    def register(self, operand: str) -> str:
        if match := re.fullmatch(r"%(p|rs|rd|r|fd|f)(\d+)", operand):
            return f"{match[1]}_{match[2]}"
        if operand in ("%SP", "%SPL"):
            return operand[1:]
        if operand == "_":
            return "t.sink"
        raise Unknown(f"register {operand}")

    def value(self, operand: str, kind: str) -> str:
        """Returns the operand as a C++ expression of that PTX type."""
        if match := re.fullmatch(r"0([fd])([0-9A-Fa-f]+)", operand):
            literal = f"f{len(match[2]) * 4}_of(0x{match[2]}u{'ll' if match[1] == 'd' else ''})"
            return literal if kind[0] == "f" else f"bits({literal})"
        if re.fullmatch(r"-?\d+", operand):
            if kind[0] == "f":
                raise Unknown(f"integer {operand} as {kind}")
            return f"({'u' if kind[0] == 'b' else kind[0]}{bits_of(kind)}){int(operand) % 2**64}ull"
        if operand in self.local:
            return operand
        if operand in self.shared:
            return f"{self.shared[operand]}u"
        if operand in SPECIAL:
            return SPECIAL[operand]
        name = self.register(operand)
        held = REGISTER_OF_PREFIX.get(name.split("_")[0], "b64")
        if held[0] == "f" and kind[0] != "f":
            return f"bits({name})"
        if held[0] != "f" and kind[0] == "f":
            return f"{kind}_of({name})"
        if kind[0] == "s" or (kind[0] in "ub" and bits_of(kind) < bits_of(held)):
            return f"({kind[0].replace('b', 'u')}{bits_of(kind)}){name}"
        return name

    def set(self, operand: str, expression: str, kind: str) -> str:
        """Assigns an expression of that type to a register. Sign or zeros fill the remaining bits."""
        name = self.register(operand)
        if name == "t.sink":
            return f"(void)({expression});"
        held = REGISTER_OF_PREFIX.get(name.split("_")[0], "b64")
        if held[0] == "f" and kind[0] != "f":
            return f"{name} = {held}_of({unsigned(held)}({expression}));"
        if held[0] != "f" and kind[0] == "f":
            return f"{name} = bits({expression});"
        if held[0] == "f":
            return f"{name} = {expression};"
        if kind[0] == "s" and bits_of(kind) < bits_of(held):
            return f"{name} = {unsigned(held)}(s{bits_of(held)}(s{bits_of(kind)}({expression})));"
        return f"{name} = {unsigned(kind)}({expression});"

    def address(self, operand: str, space: str) -> str:
        match = re.fullmatch(r"\[([^+]+?)(?:\+(-?\d+))?\]", operand)
        if match is None:
            raise Unknown(f"address {operand}")
        base, offset = match[1], int(match[2] or 0)
        kind = "u32" if base in self.shared or base.startswith("%r") and not base.startswith("%rd") else "u64"
        if kind == "u32" and space != "shared":
            raise Unknown(f"address {operand} of 32 bits")
        return f"u64({self.value(base, kind)}) + u64({offset}ll)"

    # ---- Instructions

    def instruction(self, name: str, operands: list[str]) -> str:
        family, *rest = name.split(".")
        method = getattr(self, "on_" + family, None)
        if method is None:
            raise Unknown(f"instruction {name}")
        done = method(rest, operands)
        if done is None:
            raise Unknown(f"instruction {name}")
        return done

    def on_ret(self, rest, operands):
        return "return t.end();" if not rest else None

    def on_bra(self, rest, operands):
        return f"goto {operands[0].lstrip('$')};" if rest in ([], ["uni"]) else None

    def suspended(self, reason: str) -> str:
        """The thread returns, and resumes after this place."""
        self.suspensions += 1
        return f"{reason}; t.resume = {self.suspensions}; return; case {self.suspensions}:;"

    def on_bar(self, rest, operands):
        if rest != ["sync"] or operands != ["0"]:
            return None
        return self.suspended(f"t.meets({self.line})")

    def on_shfl(self, rest, operands):
        if rest != ["sync", "bfly", "b32"]:
            return None
        to, found = operands[0].split("|")
        source, lanes, clamp, mask = (self.value(operand, "u32") for operand in operands[1:])
        return (self.suspended(f"t.offers({self.line}, {source}, {lanes}, {clamp}, {mask})")
                + f" {self.set(to, 't.given', 'u32')} {self.register(found)} = t.given_there;")

    def on_mov(self, rest, operands):
        (kind,) = rest
        to, source = operands
        if kind == "pred":
            known = {"-1": "true", "1": "true", "0": "false"}
            return f"{self.register(to)} = {known.get(source) or self.register(source)};"
        if to.startswith("{"):
            parts = split_operands(to[1:-1])
            width = bits_of(kind) // len(parts)
            return f"{{ const auto whole = {self.value(source, f'b{bits_of(kind)}')}; " + " ".join(
                self.set(part, f"u{width}(whole >> {i * width})", f"u{width}") for i, part in enumerate(parts)) + " }"
        if source.startswith("{"):
            parts = split_operands(source[1:-1])
            width = bits_of(kind) // len(parts)
            whole = " | ".join(f"{unsigned(kind)}({self.value(part, f'b{width}')}) << {i * width}"
                               for i, part in enumerate(parts))
            return self.set(to, whole, f"b{bits_of(kind)}")
        return self.set(to, self.value(source, kind), kind)

    def on_cvta(self, rest, operands):
        return self.set(operands[0], self.value(operands[1], "u64"), "u64") if rest == ["to", "global", "u64"] else None

    def moved(self, rest, operands, loads):
        """Translates ld (`loads`) and st."""
        *how, kind = rest
        width = {"v2": 2, "v4": 4}.get(how[-1], 1) if how else 1
        if width > 1:
            how.pop()
        volatile = how[:1] == ["volatile"]
        if volatile:
            how.pop(0)
        space = how.pop(0) if how else "generic"
        if how == ["cs"] and space == "global":  # streaming, a cache hint
            how = []
        if how or space not in ("global", "shared", "local", "param", "generic") or (space == "param" and not loads):
            return None
        values, place = (operands[0], operands[1]) if loads else (operands[1], operands[0])
        parts = split_operands(values[1:-1]) if width > 1 else [values]
        size = bits_of(kind) // 8
        if space == "param":
            at = self.parameter_at(place, size * width)
            return " ".join(self.set(part, f"peek<{unsigned(kind)}>(t.parameters + {at + i * size})", kind
                                     if kind[0] == "s" else unsigned(kind)) for i, part in enumerate(parts))
        call = f"t.{space}({'Use::' + ('loads' if loads else 'stores')}{', true' if volatile else ''})"
        at = f"const auto at = {call}.at({self.address(place, space)}, {size * width}, {self.line});"
        if loads:
            moves = [self.set(part, f"peek<{unsigned(kind)}>(at + {i * size})", kind if kind[0] == "s" else unsigned(kind))
                     for i, part in enumerate(parts)]
        else:
            moves = [f"poke<{unsigned(kind)}>(at + {i * size}, {self.value(part, f'b{bits_of(kind)}')});"
                     for i, part in enumerate(parts)]
        return f"{{ {at} {' '.join(moves)} }}"

    def parameter_at(self, place, size):
        match = re.fullmatch(r"\[(\w+)(?:\+(\d+))?\]", place)
        first, there = self.parameters[match[1]]
        offset = int(match[2] or 0)
        if offset + size > there:
            raise Unknown(f"beyond the parameter's {there} bytes")
        return first + offset

    def on_ld(self, rest, operands):
        return self.moved(rest, operands, True)

    def on_st(self, rest, operands):
        return self.moved(rest, operands, False)

    def on_atom(self, rest, operands):
        space, operation, kind = rest
        changed = {"add.u32": "{old} + value", "add.u64": "{old} + value", "max.u64": "{old} > value ? {old} : value",
                   "exch.b32": "value"}.get(f"{operation}.{kind}")
        if space not in ("global", "shared") or changed is None:
            return None
        to, place, value = operands
        word = unsigned(kind)
        return (f"{{ const {word} value = {self.value(value, kind)}; const auto at = t.{space}(Use::atomic)"
                f".at({self.address(place, space)}, {bits_of(kind) // 8}, {self.line}); const {word} old = peek<{word}>(at);"
                f" poke<{word}>(at, {word}({changed.format(old='old')})); {self.set(to, 'old', kind)} }}")

    def on_membar(self, rest, operands):
        return "t.fences();" if rest in (["gl"], ["sys"]) else None

    def on_fence(self, rest, operands):
        return "t.fences();" if rest in (["acq_rel", "gpu"], ["sc", "gpu"], ["acq_rel", "sys"], ["sc", "sys"]) else None

    # ---- Arithmetic. `rounded`: to nearest, ties to even, like the host. .ftz and .approx are not known.

    def rounded(self, rest):
        kind = rest[-1]
        return kind if kind in ("f32", "f64") and rest[:-1] == ["rn"] else None

    def infix(self, sign, rest, operands):
        kind = self.rounded(rest) or (rest[0] if len(rest) == 1 and rest[0][0] in "us" else None)
        if kind is None:
            return None
        wrapped = kind if kind[0] == "f" else unsigned(kind)
        first, second = (self.value(operand, wrapped) for operand in operands[1:])
        result = f"{first} {sign} {second}"
        return self.set(operands[0], f"result({result})" if kind == "f32" else result, wrapped)

    def on_add(self, rest, operands):
        return self.infix("+", rest, operands)

    def on_sub(self, rest, operands):
        return self.infix("-", rest, operands)

    def on_mul(self, rest, operands):
        if self.rounded(rest):
            return self.infix("*", rest, operands)
        if len(rest) != 2:  # floats without .rn: ptxas may fuse it with an addition
            return None
        how, kind = rest
        first, second = (self.value(operand, kind) for operand in operands[1:])
        if how == "lo":
            return self.set(operands[0], f"{unsigned(kind)}({first}) * {unsigned(kind)}({second})", unsigned(kind))
        if how == "wide" and bits_of(kind) == 32:
            double = f"{kind[0]}64"
            return self.set(operands[0], f"{double}({first}) * {double}({second})", double)
        return None

    def on_mad(self, rest, operands):
        how, kind = rest
        first, second, third = (self.value(operand, unsigned(kind)) for operand in operands[1:])
        return self.set(operands[0], f"{first} * {second} + {third}", unsigned(kind)) if how == "lo" else None

    def on_rem(self, rest, operands):
        (kind,) = rest
        first, second = (self.value(operand, kind) for operand in operands[1:])
        return self.set(operands[0], f"{first} % {second}", kind) if kind[0] in "us" else None

    def on_div(self, rest, operands):
        kind = self.rounded(rest)
        if kind is None and (len(rest) != 1 or rest[0][0] not in "us"):
            return None
        kind = kind or rest[0]
        first, second = (self.value(operand, kind) for operand in operands[1:])
        return self.set(operands[0], f"{'result' if kind == 'f32' else ''}({first} / {second})", kind)

    def on_fma(self, rest, operands):
        kind = self.rounded(rest)
        return kind and self.set(operands[0], "fused(" + ", ".join(self.value(o, kind) for o in operands[1:]) + ")", kind)

    def on_rcp(self, rest, operands):
        kind = self.rounded(rest)
        return kind and self.set(operands[0], f"result({kind}(1) / {self.value(operands[1], kind)})", kind)

    def on_sqrt(self, rest, operands):
        kind = self.rounded(rest)
        return kind and self.set(operands[0], f"result(root({self.value(operands[1], kind)}))", kind)

    def on_abs(self, rest, operands):
        return self.set(operands[0], f"magnitude({self.value(operands[1], rest[0])})", rest[0]) \
            if rest in (["f32"], ["f64"]) else None

    def on_neg(self, rest, operands):
        (kind,) = rest
        if kind[0] == "f":
            return self.set(operands[0], f"-{self.value(operands[1], kind)}", kind)
        return self.set(operands[0], f"0 - {self.value(operands[1], unsigned(kind))}", unsigned(kind))

    def extreme(self, sign, rest, operands):
        (kind,) = rest
        first, second = (self.value(operand, kind) for operand in operands[1:])
        return self.set(operands[0], f"{first} {sign} {second} ? {first} : {second}", kind) if kind[0] in "us" else None

    def on_min(self, rest, operands):
        return self.extreme("<", rest, operands)

    def on_max(self, rest, operands):
        return self.extreme(">", rest, operands)

    def bitwise(self, sign, rest, operands):
        (kind,) = rest
        if kind == "pred":
            to, first, second = map(self.register, operands)
            return f"{to} = {first} {sign} {second};"
        first, second = (self.value(operand, kind) for operand in operands[1:])
        return self.set(operands[0], f"{first} {sign} {second}", kind) if kind[0] == "b" else None

    def on_and(self, rest, operands):
        return self.bitwise("&", rest, operands)

    def on_or(self, rest, operands):
        return self.bitwise("|", rest, operands)

    def on_xor(self, rest, operands):
        return self.bitwise("^", rest, operands)

    def on_not(self, rest, operands):
        (kind,) = rest
        if kind == "pred":
            return f"{self.register(operands[0])} = !{self.register(operands[1])};"
        return self.set(operands[0], f"~{self.value(operands[1], kind)}", kind)

    def shifted(self, name, rest, operands):
        (kind,) = rest
        return self.set(operands[0], f"{name}({self.value(operands[1], kind)}, {self.value(operands[2], 'u32')})", kind)

    def on_shl(self, rest, operands):
        return self.shifted("shifted_left", rest, operands)

    def on_shr(self, rest, operands):
        return self.shifted("shifted_right", rest, operands)

    def on_bfi(self, rest, operands):
        (kind,) = rest
        first, second = (self.value(operand, kind) for operand in operands[1:3])
        at, length = (self.value(operand, "u32") for operand in operands[3:])
        return self.set(operands[0], f"inserted({first}, {second}, {at}, {length})", kind)

    def on_clz(self, rest, operands):
        return self.set(operands[0], f"leading_zeros({self.value(operands[1], rest[0])})", "u32") \
            if rest in (["b32"], ["b64"]) else None

    def on_prmt(self, rest, operands):
        if rest != ["b32"]:
            return None
        return self.set(operands[0], "permuted(" + ", ".join(self.value(o, "u32") for o in operands[1:]) + ")", "u32")

    def on_selp(self, rest, operands):
        (kind,) = rest
        first, second = (self.value(operand, kind) for operand in operands[1:3])
        return self.set(operands[0], f"{self.register(operands[3])} ? {first} : {second}", kind)

    def on_setp(self, rest, operands):
        how, kind = rest
        first, second = (self.value(operand, kind) for operand in operands[1:])
        if kind[0] != "f":
            test = f"{first} {COMPARED[how]} {second}"
        elif how in ("nan", "num"):
            test = f"{'!' if how == 'num' else ''}unordered({first}, {second})"
        elif how[-1] == "u" and how[:-1] in COMPARED:
            test = f"unordered({first}, {second}) || {first} {COMPARED[how[:-1]]} {second}"
        elif how == "ne":
            test = f"!unordered({first}, {second}) && {first} != {second}"
        else:
            test = f"{first} {COMPARED[how]} {second}"
        return f"{self.register(operands[0])} = {test};"

    def on_cvt(self, rest, operands):
        *how, to, source = rest
        narrows = to[0] == "f" and (source[0] != "f" or bits_of(to) < bits_of(source))
        if how != (["rn"] if narrows else []) or (to[0] != "f" and source[0] == "f"):
            return None
        value = self.value(operands[1], source)
        return self.set(operands[0], f"{to}({value})" if to[0] == "f" else f"{to}({value})", to)

    # ---- C++

    def text(self, number: int) -> str:
        names = [(REGISTERS[kind], f"{prefix}_{i}") for kind, prefix, count in self.registers for i in range(count)]
        declared = "".join(f"  {kind} {name}{{}};\n" for kind, name in names)
        body = "".join(f"  {statement}\n" for statement in self.statements)
        if self.suspensions == 0:
            depots = "".join(f"  alignas(16) std::byte depot_{name}[{size}];\n"
                             f"  const u64 {name} = t.depot(depot_{name}, {size});\n" for name, size in self.local.items())
            return f"void kernel{number}(Thread& t) {{\n{declared}  u64 SP = 0, SPL = 0;\n{depots}{body}}}\n"
        if self.local:
            raise Unknown("local memory in a kernel that waits")
        kept = "".join(f"  {kind}& {name} = frame.{name};\n" for kind, name in names)
        return (f"struct Frame{number} {{\n{declared}}};\nvoid kernel{number}(Thread& t) {{\n"
                f"  auto& frame = t.frame<Frame{number}>();\n{kept}  switch (t.resume) {{\n  case 0:;\n{body}  }}\n}}\n")


def threads_of(bounds: str) -> int:
    """Returns the most threads of a block according to the launch bounds."""
    named = re.search(r"\.maxntid (\d+)(, 1, 1)?\s*$", bounds, re.M)
    return int(named[1]) if named else 1024


def kernels_of(source: str) -> list[Kernel]:
    source = re.sub(r"//[^\n]*", "", source)
    pattern = r"\.entry\s+(\w+)\(([^)]*)\)((?:\s*\.(?:maxntid|minnctapersm)[^\n]*)*)\s*\{\n(.*?)\n\}"
    shared = "\n".join(re.findall(r"^\.shared [^\n]*", source, re.M))
    found = [Kernel(match[1], match[2], threads_of(match[3]), match[4], source.count("\n", 0, match.start(4)) + 1, shared)
             for match in re.finditer(pattern, source, re.S)]
    if len(found) != source.count(".entry") or re.search(r"^\s*(\.visible\s+)?\.(func|global|const|extern)\b", source, re.M):
        raise Unknown("something beside kernels, or a kernel whose head is not known")
    return found


def main() -> None:
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        source = file.read()
    try:
        kernels = kernels_of(source)
        texts = [kernel.text(number) for number, kernel in enumerate(kernels)]
    except Unknown as error:
        sys.exit(f"{path}: {error}")
    print('#include "support/ptx/machine.h"\n\nnamespace zero::test::ptx {\nnamespace {\n')
    print("\n".join(texts))
    print("}  // namespace\n\nstd::span<const Kernel> all_kernels() {\n  static constexpr Kernel kernels[] = {")
    for number, kernel in enumerate(kernels):
        waits = "true" if kernel.suspensions else "false"
        print(f'      {{"{kernel.name}", kernel{number}, {kernel.parameter_bytes}, {kernel.shared_bytes}, {waits}, {kernel.threads}}},')
    print("  };\n  return kernels;\n}\n\n}  // namespace zero::test::ptx")


if __name__ == "__main__":
    main()
