# SPDX-License-Identifier: Apache-2.0
"""neural-fortran: its images become ranks, and its update becomes zero_step. Programs do not change."""

import graphlib
import re
import sys
from pathlib import Path

PROJECT = "modern-fortran/neural-fortran"
COMMIT = "91819e3c93db58707842c017f40d2329f844ac98"
PROGRAMS = ["gfortran"]
RANKS = 3
NETWORK, PARALLEL = "src/nf/nf_network", "src/nf/nf_parallel"
UPDATE = (f"{NETWORK}_submodule.f90", r"call self % update\(optimizer=optimizer, batch_size=batch_size\)")
INPUTS, HIDDEN, OUTPUTS, ROWS, BATCH = 64, 256, 10, 480, 48

LAYERS = "".join(f"""\
        type is({kind}_layer)
          call this_layer % get_params_ptr(weights, biases)
          call this_layer % get_gradients_ptr(dw, db)
""" for kind in ("dense", "conv1d", "conv2d", "locally_connected2d", "linear2d", "layernorm"))

EDITS = [
    # Ranks replace images.
    (f"{PARALLEL}.f90", r"(module nf_parallel\n)(.*?)  public :: tile_indices\n", r"""\1
  use libzero
\2  public :: tile_indices, ranks
"""),
    (f"{PARALLEL}.f90", r"pure module function", "module function"),
    (f"{PARALLEL}.f90", r"(?=^end module nf_parallel$)", """contains

  type(c_ptr) function ranks()
    type(c_ptr), save :: comm = c_null_ptr
    if (.not. c_associated(comm)) call zero_check(zero_comm_create_env(comm, c_null_ptr), 'zero_comm_create_env')
    ranks = comm
  end function ranks

"""),
    (f"{PARALLEL}_submodule.f90", r"#ifndef PARALLEL\n.*?#endif\n", """\
#define num_images() zero_comm_world(ranks())
#define this_image() (zero_comm_rank(ranks()) + 1)
"""),
    (f"{PARALLEL}_submodule.f90", r"pure module function", "module function"),
    (f"{NETWORK}_submodule.f90", r"only: tile_indices$", "only: tile_indices, ranks\n  use libzero"),
    (f"{NETWORK}_submodule.f90", r"integer :: batch_start$", "integer, target :: batch_start"),
    (f"{NETWORK}_submodule.f90", r"#ifdef PARALLEL\n[^#]*call co_broadcast\(batch_start, 1\)\n#endif\n", """\
        call zero_check(zero_comm_broadcast(ranks(), c_loc(batch_start), 4_c_size_t, 0), 'zero_comm_broadcast')
"""),
    # The update, which registers the arrays of the layers.
    (f"{NETWORK}.f90", r"(^module nf_network\n)", "\\1\n  use libzero, only: c_ptr\n"),
    (f"{NETWORK}.f90", r"^  type :: network\n", """\
  type :: tensor
    real, pointer :: values(:)
  end type tensor

  type :: network

    type(c_ptr) :: optim
    type(tensor), allocatable :: gradients(:)
"""),
    (f"{NETWORK}_submodule.f90", r"(module subroutine update\(.*?integer :: batch_size_)\n.*?"
     r"(    ! You can optionally.*?)"
     r"    if \(\.not\. alloc.*?(    if \(present\(batch_size\)\).*?end if\n).*\Z", r"""\1
    type(zero_step_options), target :: options
    integer :: n

\2    if (.not. allocated(self % gradients)) call start(self, optimizer)

\3
    ! Gradients are sums over the batch.
    call set(self, 'loss_scale', real(batch_size_))
    options % reduce_flags = ZERO_REDUCE_SUM
    call zero_check(zero_step(self % optim, c_loc(options)), 'zero_step')
    do n = 1, size(self % gradients)
      self % gradients(n) % values = 0
    end do

  end subroutine update


  subroutine start(self, optimizer)
    class(network), intent(in out) :: self
    class(optimizer_base_type), intent(in), optional :: optimizer
    type(zero_options), target :: options
    type(sgd) :: rule
    real, pointer :: weights(:), biases(:), dw(:), db(:)
    integer :: n

    if (present(optimizer)) then
      select type(optimizer)
        type is(sgd)
          rule = optimizer
        class default
          error stop 'libzero: this optimizer is not there'
      end select
    end if
    options % optimizer = ZERO_OPTIMIZER_SGD
    call zero_check(zero_create(self % optim, ranks(), c_loc(options)), 'zero_create')
    call set(self, 'lr', rule % learning_rate)
    call set(self, 'momentum', rule % momentum)
    call set(self, 'nesterov', merge(1., 0., rule % nesterov))
    allocate(self % gradients(0))
    do n = 2, size(self % layers)
      select type(this_layer => self % layers(n) % p)
LAYERS        class default
          cycle
      end select
      call register(self, weights, dw)
      call register(self, biases, db)
    end do
    call zero_check(zero_broadcast_params(self % optim, 0, c_null_ptr), 'zero_broadcast_params')
  end subroutine start


  subroutine register(self, values, gradient)
    class(network), intent(in out) :: self
    real, pointer, intent(in) :: values(:), gradient(:)
    type(zero_param) :: param
    character(kind=c_char, len=16), target :: name
    integer(c_int64_t), target :: shape(1)
    write (name, '(a, i0, a)') 'tensor', size(self % gradients), c_null_char
    shape = size(values)
    param % name = c_loc(name)
    param % shape = c_loc(shape)
    param % ndim = 1
    param % data = c_loc(values)
    param % grad = c_loc(gradient)
    call zero_check(zero_register_params(self % optim, c_null_ptr, [param], 1_c_size_t), 'zero_register_params')
    self % gradients = [self % gradients, tensor(gradient)]
  end subroutine register


  subroutine set(self, name, value)
    class(network), intent(in) :: self
    character(*), intent(in) :: name
    real, intent(in) :: value
    call zero_check(zero_group_set(self % optim, ZERO_ALL_GROUPS, name // c_null_char, real(value, c_double)), name)
  end subroutine set

end submodule nf_network_submodule
""".replace("LAYERS", LAYERS)),
]


def settings(steps):
    """Replaces one of its examples: random numbers, the same in each process."""
    return [("example/simple.f90", r"\A.*\Z", f"""\
program small
  use nf, only: dense, input, network, sgd
  implicit none
  type(network) :: net
  real :: x({INPUTS}, {ROWS}), y({OUTPUTS}, {ROWS})
  call random_init(repeatable=.true., image_distinct=.false.)
  call random_number(x)
  call random_number(y)
  net = network([input({INPUTS}), dense({HIDDEN}), dense({OUTPUTS})])
  call net % train(x, y, {BATCH}, {max(1, steps * BATCH // ROWS)}, sgd(learning_rate=1.))
  print '(es15.8)', net % get_params()
end program small
""")]


def prepare(_):
    pass


def build(run, folder, libraries):
    binary = folder / "train"
    files = {path.stem: path for path in (folder / "src").rglob("*.f90")}
    modules = {name: re.findall(r"^ *use (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
               for name, path in files.items() if not name.endswith("_submodule")}
    if libraries:
        files["libzero"], script = folder / "libzero.f90", Path(__file__).parents[2] / "scripts/fortran_module.py"
        files["libzero"].write_text(run(sys.executable, script), encoding="utf-8")
    order = [name for name in graphlib.TopologicalSorter(modules).static_order() if name in files]
    order += files.keys() - order
    run("gfortran", "-cpp", "-O2", "-w", "-J", folder, *(files[name] for name in order), folder / "example/simple.f90",
        "-o", binary, *libraries)
    return [str(binary)]


def numbers(_, said):
    return [float(value) for value in re.findall(r"^ *(-?\d\.\d+E[+-]\d+)$", said, re.MULTILINE)]
