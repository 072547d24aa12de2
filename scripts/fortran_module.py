#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates the Fortran module libzero from include/zero.h: every constant, struct and call.

usage: scripts/fortran_module.py > libzero.f90
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.dont_write_bytecode = True
import zero_header  # noqa: E402
from zero_header import fields_of, words_of  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]

KINDS = {
    "int32_t": "integer(c_int32_t)",
    "zero_status": "integer(c_int32_t)",
    "uint32_t": "integer(c_int32_t)",  # Fortran has no unsigned numbers
    "int64_t": "integer(c_int64_t)",
    "size_t": "integer(c_size_t)",
    "double": "real(c_double)",
    "char": "character(kind=c_char)",
}
# Arguments that may be NULL according to zero.h, and that are not pointers in Fortran. Omitting
# them passes NULL.
OPTIONAL = {
    ("zero_comm_abort", "reason"),
    ("zero_register_params", "group"),
    ("zero_rebalance", "owners"),
    ("zero_clip_grad_norm", "params"),
    ("zero_clip_grad_norm", "norm"),
    ("zero_join", "last_rank"),
    ("zero_state_prune", "deleted"),
    ("zero_state_info", "dtype"),
    ("zero_state_get", "name"),
    ("zero_state_set", "name"),
    ("zero_state_gather", "name"),
}
# Arrays that a call fills.
FILLED = {"ranges", "names", "ranks"}
WIDTH = 120

TOP = """\
! SPDX-License-Identifier: Apache-2.0
!> zero.h for Fortran: every constant, struct and call, by the same names. What each call means stands in
!> zero.h, of which scripts/fortran_module.py of the same version makes this file.
!>
!> Handles, streams, addresses and options, which may be NULL, are type(c_ptr) by value: c_loc(options) or
!> c_null_ptr. Functions of yours are c_funloc(f) of a bind(C) procedure. What else may be NULL is optional.
!> Structs begin as zeros with their size. Texts that go to C end with c_null_char. A Fortran array of shape (n, m) is one of shape {m, n} to C.
module libzero
  use, intrinsic :: iso_c_binding
  implicit none
  public
"""

BOTTOM = """
contains

  !> A C text as a Fortran one.
  function zero_text(from) result(text)
    type(c_ptr), intent(in) :: from
    character(:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i
    interface
      pure function strlen(text) bind(C)
        import
        type(c_ptr), value, intent(in) :: text
        integer(c_size_t) :: strlen
      end function
    end interface
    call c_f_pointer(from, letters, [strlen(from)])
    allocate (character(size(letters)) :: text)
    do i = 1, size(letters)
      text(i:i) = letters(i)
    end do
  end function

  !> Ends the program, with the library's words, where a status is a failure.
  subroutine zero_check(status, call)
    use, intrinsic :: iso_fortran_env, only: error_unit
    integer(c_int32_t), intent(in) :: status
    character(*), intent(in) :: call
    if (status >= 0) return
    write (error_unit, '(5a)') call, ": ", zero_text(zero_status_name(status)), ": ", zero_text(zero_last_error())
    stop 1, quiet=.true.
  end subroutine
end module
"""


def constants_of(header: zero_header.Header) -> list[str]:
    """Return statements, each with as many constants of one enum as fit on a line."""
    lines = []
    for family in header.families:
        line = ""
        for name in family:
            word = f"{name} = {header.constants[name]}"
            if line and len(line) + 2 + len(word) <= WIDTH:
                line += f", {word}"
            else:
                lines += [line] if line else []
                line = f"  integer(c_int32_t), parameter :: {word}"
        lines.append(line)
    return lines


BYTES = {"int32_t": 4, "zero_status": 4, "uint32_t": 4, "char": 1}  # all other types have 8
ZEROS = {"double": "0", "char": "c_null_char"}


def size_of(kinds: Iterable[str]) -> int:
    """Return the size of a C struct with these fields. Each field is aligned to its size."""
    end = 0
    for kind in kinds:
        base, _, count = kind.removesuffix("]").partition("[")
        each = 8 if "*" in base or "fn(" in base else BYTES.get(base, 8)
        end = -(-end // each) * each + each * int(count or 1)
    return -(-end // 8) * 8


def field_of(kind: str, name: str) -> str:
    if kind.startswith("fn("):
        return f"type(c_funptr) :: {name} = c_null_funptr"
    if "*" in kind:
        return f"type(c_ptr) :: {name} = c_null_ptr"
    base, _, size = kind.removesuffix("]").partition("[")
    return f"{KINDS[base]} :: {name}{f'({size})' if size else ''} = {ZEROS.get(base, '0')}"


def argument_of(header: zero_header.Header, function: str, kind: str, name: str) -> str:
    words = kind.split()
    base, stars, constant = words[0], words.count("*"), "const" in words
    if base in header.typedefs:
        return f"type(c_funptr), value :: {name}"
    if stars == 0:
        return f"{KINDS[base]}, value :: {name}"
    optional = ", optional" if (function, name) in OPTIONAL else ""
    if name in FILLED:
        return f"{'type(c_ptr)' if stars == 2 else KINDS[base]}, intent(inout) :: {name}(*)"
    if stars == 2 and not constant:
        return f"type(c_ptr), intent(out) :: {name}"  # a new handle or address
    if base in header.structs and name != "options":
        intent = "in" if constant else "inout"
        return f"type({base}), intent({intent}) :: {name}{'(*)' if name in ('params', 'buffers', 'checkpoints') else ''}"
    if stars == 1 and base in KINDS:
        array = "(*)" if constant else ""
        return f"{KINDS[base]}, intent({'in' if constant else 'out'}){optional} :: {name}{array}"
    return f"type(c_ptr), value :: {name}"


def function_of(header: zero_header.Header, name: str) -> list[str]:
    result, text = header.functions[name]
    arguments = [words_of(word) for word in text.split(",")] if text != "void" else []
    declared = [argument_of(header, name, *argument) for argument in arguments]
    returned = "type(c_ptr)" if "*" in result else KINDS[result.split()[0]]
    return [
        f"    function {name}({', '.join(word for _, word in arguments)}) bind(C)",
        "      import",
        *(f"      {line}" for line in declared),
        f"      {returned} :: {name}",
        "    end function",
    ]


def module() -> str:
    header = zero_header.read(ROOT / "include/zero.h")
    names = [name.lower() for name in (*header.constants, *header.structs, *header.functions)]
    twice = {name for name in names if names.count(name) > 1}
    if twice:  # Fortran names are not case-sensitive
        sys.exit(f"one name for two things: {sorted(twice)}")
    lines = constants_of(header)
    for name, body in header.structs.items():
        lines += ["", f"  type, bind(C) :: {name}"]
        fields = fields_of(body)
        lines += [f"    {field_of(kind, field)}" for field, kind in fields.items()]
        lines[-len(fields)] = f"    integer(c_size_t) :: struct_size = {size_of(fields.values())}"
        lines += ["  end type"]
    lines += ["", "  interface"]
    for name in header.functions:
        lines += function_of(header, name)
    lines += ["  end interface"]
    return TOP + "\n" + "\n".join(lines) + "\n" + BOTTOM


if __name__ == "__main__":
    sys.stdout.write(module())
