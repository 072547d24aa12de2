! SPDX-License-Identifier: Apache-2.0
!> The fragments of docs/integrate.md for Fortran: an engine of one matrix, and of numbers called zero.
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
  call zero_check(zero_param_init(params(1), c_sizeof(params(1))), "zero_param_init")
  params(1)%name = c_loc(name)
  params(1)%shape = c_loc(shape)
  params(1)%ndim = 2
  include 'integrate/fortran-1.f90'
  w = zero
  call zero_check(zero_register_params(optim, c_null_ptr, params, 1_c_size_t), "zero_register_params")
  include 'integrate/fortran-2.f90'
  if (.not. all(w < zero)) stop 1
  call check_state()
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
    if (zero_clip_grad_norm(optim, 1.0_c_double, 2.0_c_double, stream=c_null_ptr) /= ZERO_OK) stop 6
    if (zero_clip_grad_norm(optim, 1.0_c_double, 2.0_c_double, norm, c_null_ptr) /= ZERO_OK) stop 7
    if (abs(norm - 1) > 1e-5) stop 8
    if (zero_drop_grads(optim) /= ZERO_OK) stop 9
    if (zero_state_get(optim, 0_c_int64_t, "nothing"//c_null_char, 0_c_int64_t, 1_c_int64_t, c_loc(moments)) &
        /= ZERO_ERR_ARGUMENT) stop 10
  end subroutine
end program
