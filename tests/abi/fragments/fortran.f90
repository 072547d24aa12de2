! SPDX-License-Identifier: Apache-2.0
!> The fragments of docs/languages.md for Fortran: an engine of one matrix, and of numbers called zero.
module numbers
  use, intrinsic :: iso_c_binding, only: c_float
  implicit none
  real(c_float), parameter :: zero = 0.0, one = 1.0
end module

program engine
  use, intrinsic :: iso_c_binding
  use numbers
  use libzero
  implicit none
  integer, parameter :: n = 3, m = 4
  integer(c_size_t), parameter :: bytes = 4*n*m
  integer(c_int64_t), target :: shape(2) = [m, n]
  character(kind=c_char, len=2), target :: name = "w"//c_null_char
  real(c_float), target :: dw(n, m) = one
  real(c_float), pointer :: w(:, :)
  type(zero_param) :: params(1)
  type(c_ptr) :: comm, optim, address

  call zero_check(zero_comm_create_solo(comm, c_null_ptr), "zero_comm_create_solo")
  call zero_check(zero_create(optim, comm, c_null_ptr), "zero_create")
  include 'languages/fortran-1.f90'
  w = zero
  include 'languages/fortran-2.f90'
  if (.not. all(w < zero)) stop 1
  call check_state()
  call check_the_rest()
  call zero_check(zero_free(optim), "zero_free")
  call zero_check(zero_arena_free(address), "zero_arena_free")
  call zero_check(zero_comm_free(comm), "zero_comm_free")

contains

  !> What may be NULL can be left out: the name of a state, the norm of a clipping.
  subroutine check_state()
    real(c_float), target :: values(n*m), moments(n*m)
    real(c_double) :: norm
    if (zero_state_get(optim, 0_c_int64_t, first=0_c_int64_t, count=12_c_int64_t, values=c_loc(values)) /= ZERO_OK) stop 2
    if (maxval(abs(values - reshape(w, [n*m]))) > zero) stop 3
    if (zero_state_get(optim, 0_c_int64_t, "exp_avg"//c_null_char, 0_c_int64_t, 12_c_int64_t, c_loc(moments)) /= ZERO_OK) stop 4
    if (any(moments <= zero)) stop 5
    if (zero_clip_grad_norm(optim, count=0_c_size_t, max_norm=1.0_c_double, norm_type=2.0_c_double, &
        stream=c_null_ptr) /= ZERO_OK) stop 6
    if (zero_clip_grad_norm(optim, [0_c_int64_t], 1_c_size_t, 1.0_c_double, 2.0_c_double, norm, c_null_ptr) /= ZERO_OK) stop 7
    if (abs(norm - 1) > 1e-5) stop 8
    if (zero_drop_grads(optim) /= ZERO_OK) stop 9
    if (zero_state_get(optim, 0_c_int64_t, "nothing"//c_null_char, 0_c_int64_t, 1_c_int64_t, c_loc(moments)) &
        /= ZERO_ERR_ARGUMENT) stop 10
  end subroutine

  !> Buffers, the seal, the loss scale, failures, joining, and a rule of the program's own.
  subroutine check_the_rest()
    character(kind=c_char, len=6), target, save :: names(2) = ["count"//c_null_char, "signs"//c_null_char]
    integer(c_int64_t), target, save :: batches = 3
    real(c_float), target, save :: x(4) = one, dx(4) = 2*one
    integer(c_int64_t), target, save :: four(1) = 4
    type(zero_custom_optimizer), target :: rule
    type(zero_options), target :: options
    type(zero_failure) :: failure
    type(zero_buffer) :: buffers(1)
    type(zero_param) :: own(1)
    type(c_ptr) :: other
    real(c_double) :: scale
    integer(c_int32_t) :: last_rank
    rule%name = c_loc(names(2))
    rule%update = c_funloc(signs)
    options%optimizer = ZERO_OPTIMIZER_CUSTOM
    options%custom = c_loc(rule)
    options%uneven_inputs = ZERO_UNEVEN_ACTIVE
    call zero_check(zero_create(other, comm, c_loc(options)), "zero_create")
    own(1)%name = c_loc(name)
    own(1)%shape = c_loc(four)
    own(1)%ndim = 1
    own(1)%data = c_loc(x)
    own(1)%grad = c_loc(dx)
    call zero_check(zero_register_params(other, c_null_ptr, own, 1_c_size_t), "zero_register_params")
    buffers(1)%name = c_loc(names(1))
    buffers(1)%data = c_loc(batches)
    buffers(1)%dtype = ZERO_INT64
    call zero_check(zero_register_buffers(other, buffers, 1_c_size_t), "zero_register_buffers")
    call zero_check(zero_seal(other), "zero_seal")
    call zero_check(zero_broadcast_params(other, 0, c_null_ptr), "zero_broadcast_params")
    call zero_check(zero_group_set(other, ZERO_ALL_GROUPS, "loss_scale"//c_null_char, 4.0_c_double), "zero_group_set")
    call zero_check(zero_group_get(other, ZERO_ALL_GROUPS, "loss_scale"//c_null_char, scale), "zero_group_get")
    if (nint(scale) /= 4) stop 11
    call zero_check(zero_step(other, c_null_ptr), "zero_step")
    if (any(abs(x - 0.5) > 1e-6)) stop 12 ! by the gradient, divided by the loss scale
    call zero_check(zero_join(other, c_null_ptr, last_rank), "zero_join")
    if (last_rank /= 0) stop 13
    call zero_check(zero_free(other), "zero_free")
    call zero_check(zero_comm_failure(comm, failure), "zero_comm_failure")
    if (failure%status /= ZERO_OK .or. failure%text(1) /= c_null_char) stop 14
  end subroutine

  integer(c_int32_t) function signs(ctx, update) bind(C)
    type(c_ptr), value :: ctx
    type(zero_update), intent(in) :: update
    real(c_float), pointer :: values(:), gradient(:)
    signs = ZERO_ERR_UNSUPPORTED
    if (c_associated(ctx) .or. update%dtype /= ZERO_FLOAT32) return
    call c_f_pointer(update%values, values, [update%count])
    call c_f_pointer(update%gradient, gradient, [update%count])
    values = values - gradient
    signs = ZERO_OK
  end function
end program
