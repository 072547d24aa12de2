! SPDX-License-Identifier: Apache-2.0
!> A character-level language model, trained by any number of ranks with libzero:
!>
!>     zero-run -n 4 char_lm --text LICENSE --steps 300 --save run/a
!>
!> It has the model, the data and the options of examples/c/char_lm.c, and ends with the same bits, because
!> it does the same operations in the same order. README.md in this folder has the commands that compile it.
module model
  use, intrinsic :: iso_fortran_env, only: int8, int64, real32, real64
  implicit none

  integer, parameter :: CONTEXT = 8, EMBED = 16, INPUTS = CONTEXT*EMBED, HIDDEN = 384, SYMBOLS = 256
  integer, parameter :: PARAMS = 5

  !> Parameters or gradients, in libzero's memory. A column here is a row in C.
  type tensors
    real(real32), pointer :: embedding(:, :), w1(:, :), b1(:), w2(:, :), b2(:)
  end type

contains

  !> Returns the 64 bits of a hexadecimal number. A literal of that size would be out of range.
  pure integer(int64) function hex(high, low)
    integer(int64), intent(in) :: high, low
    hex = ior(ishft(high, 32), low)
  end function

  pure integer(int64) function mix(value)
    integer(int64), intent(in) :: value
    mix = ieor(value, ishft(value, -30))*hex(int(z'bf58476d', int64), int(z'1ce4e5b9', int64))
    mix = ieor(mix, ishft(mix, -27))*hex(int(z'94d049bb', int64), int(z'133111eb', int64))
    mix = ieor(mix, ishft(mix, -31))
  end function

  !> Returns 64 random bits, the same on every rank and in every language.
  pure integer(int64) function draw(seed, a, b)
    integer(int64), intent(in) :: seed, a, b
    draw = mix(mix(mix(seed + hex(int(z'9e3779b9', int64), int(z'7f4a7c15', int64))) + a) + b)
  end function

  !> Returns the remainder of an unsigned number.
  pure integer(int64) function remainder(value, by)
    integer(int64), intent(in) :: value, by
    remainder = mod(mod(ishft(value, -1), by)*2 + iand(value, 1_int64), by)
  end function

  !> Draws weights uniformly in +-1/sqrt(fan in).
  subroutine fill(values, number, fan_in, seed)
    real(real32), intent(out) :: values(:, :)
    integer, intent(in) :: number, fan_in
    integer(int64), intent(in) :: seed
    integer(int64) :: i, j
    real(real64) :: unit
    do j = 1, size(values, 2)
      do i = 1, size(values, 1)
        unit = real(ishft(draw(seed, int(number, int64), (j - 1)*size(values, 1) + i - 1), -11), real64)
        unit = unit/9007199254740992.0_real64
        values(i, j) = real((2*unit - 1)/sqrt(real(fan_in, real64)), real32)
      end do
    end do
  end subroutine

  subroutine initialize(all, seed)
    type(tensors), intent(in) :: all
    integer(int64), intent(in) :: seed
    call fill(all%embedding, 0, 1, seed)
    call fill(all%w1, 1, INPUTS, seed)
    call fill(all%w2, 3, HIDDEN, seed)
    all%b1 = 0
    all%b2 = 0
  end subroutine

  pure real(real32) function dot(a, b)
    real(real32), intent(in) :: a(:), b(:)
    real(real32) :: lanes(8)
    integer :: i
    lanes = 0
    do i = 1, size(a), 8
      lanes = lanes + a(i:i + 7)*b(i:i + 7)
    end do
    dot = ((lanes(1) + lanes(5)) + (lanes(3) + lanes(7))) + ((lanes(2) + lanes(6)) + (lanes(4) + lanes(8)))
  end function

  !> exp for x <= 0 with only + and *, because math libraries differ in the last bits: its series at
  !> x/1024, squared ten times.
  elemental real(real64) function exponential(x)
    real(real64), intent(in) :: x
    real(real64) :: y
    integer :: i
    y = x/1024
    exponential = 1 + y*(1 + y/2*(1 + y/3*(1 + y/4*(1 + y/5*(1 + y/6)))))
    do i = 1, 10
      exponential = exponential*exponential
    end do
    if (x < -100) exponential = 0
  end function

  elemental real(real32) function hyperbolic_tangent(x)
    real(real32), intent(in) :: x
    real(real64) :: e
    e = exponential(-2*abs(real(x, real64)))
    hyperbolic_tangent = real((1 - e)/(1 + e), real32)
    if (x < 0) hyperbolic_tangent = -hyperbolic_tangent
  end function

  !> Writes the probabilities of the next character to `out`. `text` is a context and the character after it.
  subroutine forward(all, text, input, state, out)
    type(tensors), intent(in) :: all
    integer, intent(in) :: text(:)
    real(real32), intent(out) :: input(:), state(:), out(:)
    real(real32) :: total
    integer :: c, i
    do c = 1, CONTEXT
      input((c - 1)*EMBED + 1:c*EMBED) = all%embedding(:, text(c) + 1)
    end do
    state = all%b1
    do i = 1, INPUTS
      state = state + all%w1(:, i)*input(i)
    end do
    state = hyperbolic_tangent(state)
    out = all%b2
    do i = 1, HIDDEN
      out = out + all%w2(:, i)*state(i)
    end do
    out = real(exponential(real(out - maxval(out), real64)), real32)
    total = 0
    do i = 1, SYMBOLS
      total = total + out(i)
    end do
    out = out/total
  end subroutine

  !> Returns the loss of one example, and adds its gradient times `weight` to `grads`.
  real(real64) function example(all, grads, text, weight)
    type(tensors), intent(in) :: all, grads
    integer, intent(in) :: text(:)
    real(real32), intent(in) :: weight
    real(real32) :: input(INPUTS), state(HIDDEN), out(SYMBOLS), slope(HIDDEN)
    integer :: target, c, h, i, row
    target = text(CONTEXT + 1) + 1
    call forward(all, text, input, state, out)
    example = -log(real(out(target), real64) + 1e-30_real64) ! only printed

    out(target) = out(target) - 1 ! now the gradient of the loss by the logits
    out = out*weight
    grads%b2 = grads%b2 + out
    do h = 1, HIDDEN
      grads%w2(:, h) = grads%w2(:, h) + out*state(h)
      slope(h) = dot(all%w2(:, h), out)*(1 - state(h)*state(h))
    end do
    grads%b1 = grads%b1 + slope
    do i = 1, INPUTS
      grads%w1(:, i) = grads%w1(:, i) + slope*input(i)
      c = (i - 1)/EMBED + 1
      row = mod(i - 1, EMBED) + 1
      grads%embedding(row, text(c) + 1) = grads%embedding(row, text(c) + 1) + dot(all%w1(:, i), slope)
    end do
  end function

  subroutine clear(grads)
    type(tensors), intent(in) :: grads
    grads%embedding = 0
    grads%w1 = 0
    grads%b1 = 0
    grads%w2 = 0
    grads%b2 = 0
  end subroutine

  !> FNV-1a over the bytes of all parameters.
  integer(int64) function checksum(all)
    type(tensors), intent(in) :: all
    integer(int64) :: sum
    sum = hex(int(z'cbf29ce4', int64), int(z'84222325', int64))
    call add(reshape(all%embedding, [size(all%embedding)]))
    call add(reshape(all%w1, [size(all%w1)]))
    call add(all%b1)
    call add(reshape(all%w2, [size(all%w2)]))
    call add(all%b2)
    checksum = sum
  contains
    subroutine add(values)
      real(real32), intent(in) :: values(:)
      integer(int64), parameter :: PRIME = int(z'100000001b3', int64)
      integer(int8) :: bytes(4)
      integer :: i, j
      do i = 1, size(values)
        bytes = transfer(values(i), bytes)
        do j = 1, 4
          sum = ieor(sum, iand(int(bytes(j), int64), 255_int64))*PRIME
        end do
      end do
    end subroutine
  end function
end module

program char_lm
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int8, int64, real32, real64, error_unit, output_unit
  use model
  use libzero
  implicit none

  type settings
    character(:), allocatable :: text, save, load
    integer(int64) :: steps = 200, batch = 192, seed = 1
    real(c_double) :: lr = 2e-3_c_double
    logical :: progress = .false.
  end type

  type(settings) :: set
  type(c_ptr) :: comm, optim, weights, gradients
  type(tensors) :: all, grads
  integer(int8), allocatable :: text(:)
  integer(c_int32_t) :: rank, world

  call parse()
  call read_text()
  call zero_check(zero_set_log_callback(c_funloc(print_log), c_null_ptr, ZERO_LOG_WARNING), "zero_set_log_callback")
  call zero_check(zero_comm_create_env(comm, c_null_ptr), "zero_comm_create_env")
  rank = zero_comm_rank(comm)
  world = zero_comm_world(comm)
  call build()
  call begin()
  call train()
  call finish()

contains

  !> Prints warnings, for example that the other ranks have waited ten seconds for one rank.
  subroutine print_log(ctx, level, message) bind(C)
    type(c_ptr), value :: ctx, message
    integer(c_int32_t), value :: level
    if (c_associated(ctx)) return ! no ctx is given above
    write (error_unit, '(4a)') "libzero: ", trim(merge("error  ", "warning", level == ZERO_LOG_ERROR)), ": ", zero_text(message)
    flush (error_unit)
  end subroutine

  subroutine fail(what)
    character(*), intent(in) :: what
    write (error_unit, '(2a)') "char_lm: ", what
    stop 1, quiet=.true.
  end subroutine

  subroutine parse()
    character(4096) :: word, value
    integer :: i, problem
    set%text = "LICENSE"
    set%save = ""
    set%load = ""
    i = 1
    do while (i <= command_argument_count())
      call get_command_argument(i, word)
      call get_command_argument(i + 1, value)
      problem = 0
      i = i + 2
      select case (word)
      case ("--progress")
        set%progress = .true.
        i = i - 1
      case ("--text")
        set%text = trim(value)
      case ("--save")
        set%save = trim(value)
      case ("--load")
        set%load = trim(value)
      case ("--steps")
        read (value, *, iostat=problem) set%steps
      case ("--batch")
        read (value, *, iostat=problem) set%batch
      case ("--seed")
        read (value, *, iostat=problem) set%seed
      case ("--lr")
        read (value, *, iostat=problem) set%lr
      case default
        call fail(trim(word)//" is unknown; there are --text, --steps, --batch, --seed, --lr, --save, --load, --progress")
      end select
      if (problem /= 0) call fail(trim(word)//" needs a number")
    end do
    if (set%batch < 1 .or. set%steps < 0) call fail("--batch is at least 1, --steps at least 0")
  end subroutine

  subroutine read_text()
    integer :: unit, problem, bytes
    open (newunit=unit, file=set%text, access="stream", form="unformatted", status="old", action="read", iostat=problem)
    if (problem /= 0) call fail(set%text//": cannot be opened")
    inquire (unit=unit, size=bytes)
    if (bytes <= CONTEXT) call fail(set%text//": is too short to train on")
    allocate (text(bytes))
    read (unit, iostat=problem) text
    if (problem /= 0) call fail(set%text//": cannot be read")
    close (unit)
  end subroutine

  !> Places parameters and gradients where zero_partition_plan puts them, so that libzero copies nothing.
  subroutine build()
    character(kind=c_char, len=16), target, save :: names(PARAMS)
    character(kind=c_char, len=3), target, save :: lr_name = "lr"//c_null_char
    integer(c_int64_t), target, save :: shapes(2, PARAMS), offsets(PARAMS)
    type(c_ptr), target, save :: setting_names(1)
    real(c_double), target, save :: setting_values(1)
    type(zero_options), target, save :: options
    type(zero_param) :: list(PARAMS)
    type(zero_plan) :: plan
    integer(c_int32_t) :: group
    integer :: i
    names = [character(16) :: "embedding"//c_null_char, "hidden.weight"//c_null_char, "hidden.bias"//c_null_char, &
             "output.weight"//c_null_char, "output.bias"//c_null_char]
    shapes = reshape(int([SYMBOLS, EMBED, INPUTS, HIDDEN, HIDDEN, 0, HIDDEN, SYMBOLS, SYMBOLS, 0], c_int64_t), [2, PARAMS])

    setting_names(1) = c_loc(lr_name)
    setting_values(1) = set%lr
    options%names = c_loc(setting_names)
    options%values = c_loc(setting_values)
    options%setting_count = 1
    do i = 1, PARAMS
      list(i)%name = c_loc(names(i))
      list(i)%shape = c_loc(shapes(1, i))
      list(i)%ndim = merge(1, 2, shapes(2, i) == 0)
      list(i)%flags = ZERO_PARAM_PADDED
    end do
    plan%offsets = c_loc(offsets)
    call zero_check(zero_partition_plan(list, int(PARAMS, c_size_t), world, c_loc(options), plan), "zero_partition_plan")
    call zero_check(zero_arena_alloc(comm, plan%arena_bytes, ZERO_MEMORY_SHARED, weights), "zero_arena_alloc")
    call zero_check(zero_arena_alloc(comm, plan%arena_bytes, ZERO_MEMORY_PER_RANK, gradients), "zero_arena_alloc")
    do i = 1, PARAMS
      list(i)%data = at(weights, offsets(i))
      list(i)%grad = at(gradients, offsets(i))
    end do
    all = views(list%data)
    grads = views(list%grad)
    call zero_check(zero_create(optim, comm, c_loc(options)), "zero_create")
    call zero_check(zero_register_params(optim, c_null_ptr, list, int(PARAMS, c_size_t), group), "zero_register_params")
  end subroutine

  type(c_ptr) function at(arena, offset)
    type(c_ptr), intent(in) :: arena
    integer(c_int64_t), intent(in) :: offset
    at = transfer(transfer(arena, 0_c_intptr_t) + offset, arena)
  end function

  type(tensors) function views(addresses)
    type(c_ptr), intent(in) :: addresses(:)
    call c_f_pointer(addresses(1), views%embedding, [EMBED, SYMBOLS])
    call c_f_pointer(addresses(2), views%w1, [HIDDEN, INPUTS])
    call c_f_pointer(addresses(3), views%b1, [HIDDEN])
    call c_f_pointer(addresses(4), views%w2, [SYMBOLS, HIDDEN])
    call c_f_pointer(addresses(5), views%b2, [SYMBOLS])
  end function

  integer(int64) function steps_done()
    type(zero_result) :: result
    call zero_check(zero_step_result(optim, result), "zero_step_result")
    steps_done = result%step
  end function

  subroutine begin()
    if (set%load /= "") then
      call zero_check(zero_state_load(optim, set%load//c_null_char, c_null_ptr), "zero_state_load")
      if (rank == 0) write (output_unit, '(3a,i0,a,i0)') "loaded=", set%load, " step=", steps_done(), " world=", world
    else
      if (rank == 0) call initialize(all, set%seed)
      call zero_check(zero_broadcast_params(optim, 0, c_null_ptr), "zero_broadcast_params")
    end if
  end subroutine

  !> Trains on this rank's part of the batch. Gradients are weighted so that their mean over ranks is the
  !> mean over the batch, even if the number of ranks does not divide it.
  real(c_double) function forward_backward(step) result(loss)
    integer(int64), intent(in) :: step
    real(real32) :: weight
    integer(int64) :: i, first
    weight = real(world, real32)/real(set%batch, real32)
    loss = 0
    call clear(grads)
    do i = set%batch*rank/world, set%batch*(rank + 1)/world - 1
      first = remainder(draw(set%seed + 1, step, i), size(text, kind=int64) - CONTEXT)
      loss = loss + example(all, grads, iand(int(text(first + 1:first + CONTEXT + 1)), 255), weight)
    end do
    loss = loss/set%batch
  end function

  subroutine train()
    real(c_double), target :: loss
    integer(int64) :: step, every
    character(16) :: number
    every = merge(1_int64, (set%steps + 9)/10, set%progress)
    do step = steps_done() + 1, set%steps
      loss = forward_backward(step)
      call zero_check(zero_step(optim, c_null_ptr), "zero_step")
      call zero_check(zero_comm_all_reduce(comm, c_loc(loss), 1_c_size_t, ZERO_FLOAT64, ZERO_SUM), "zero_comm_all_reduce")
      if (rank == 0 .and. (mod(step, every) == 0 .or. step == set%steps)) then
        write (number, '(f16.4)') loss
        write (output_unit, '(a,i0,2a)') "step=", step, " loss=", trim(adjustl(number))
        flush (output_unit)
      end if
    end do
  end subroutine

  subroutine finish()
    type(zero_save_options), target :: options
    if (set%save /= "") then
      options%flags = ZERO_SAVE_REPLACE
      call zero_check(zero_state_save(optim, set%save//c_null_char, c_loc(options)), "zero_state_save")
    end if
    if (rank == 0) write (output_unit, '(a,z16.16)') "checksum=", checksum(all)
    call zero_check(zero_comm_barrier(comm), "zero_comm_barrier")
    call zero_check(zero_free(optim), "zero_free")
    call zero_check(zero_arena_free(weights), "zero_arena_free")
    call zero_check(zero_arena_free(gradients), "zero_arena_free")
    call zero_check(zero_comm_free(comm), "zero_comm_free")
  end subroutine
end program
