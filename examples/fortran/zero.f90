! SPDX-License-Identifier: Apache-2.0
!> zero.h for Fortran: what a training program needs of it, by the same names. What each call means
!> stands in zero.h. tests/abi/check_bindings.py compares what is here with it; take what is missing over
!> in the same way.
!>
!> Handles, and pointers that may be NULL, are type(c_ptr) by value. Texts that go to C end with
!> c_null_char. A Fortran array of shape (n, m) is one of shape {m, n} to C.
module zero
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int32_t), parameter :: ZERO_OK = 0, ZERO_SKIPPED = 1
  integer(c_int32_t), parameter :: ZERO_FLOAT32 = 1, ZERO_FLOAT64 = 2, ZERO_INT32 = 3, ZERO_INT64 = 4
  integer(c_int32_t), parameter :: ZERO_BFLOAT16 = 5, ZERO_FLOAT16 = 6
  integer(c_int32_t), parameter :: ZERO_SUM = 1, ZERO_MIN = 2, ZERO_MAX = 3
  integer(c_int32_t), parameter :: ZERO_DEVICE_HOST = 0, ZERO_DEVICE_CUDA = 1
  integer(c_int32_t), parameter :: ZERO_ORDINAL_LOCAL_RANK = -1
  integer(c_int32_t), parameter :: ZERO_MEMORY_PER_RANK = 1, ZERO_MEMORY_SHARED = 2
  integer(c_int32_t), parameter :: ZERO_OPTIMIZER_ADAMW = 0, ZERO_OPTIMIZER_ADAM = 1
  integer(c_int32_t), parameter :: ZERO_OPTIMIZER_SGD = 2, ZERO_OPTIMIZER_LAMB = 11
  integer(c_int32_t), parameter :: ZERO_PARTITION_EVEN = 0, ZERO_PARTITION_GREEDY = 1
  integer(c_int32_t), parameter :: ZERO_NONFINITE_SKIP = 1, ZERO_NONFINITE_ERROR = 2
  integer(c_int32_t), parameter :: ZERO_PARAM_PADDED = 2, ZERO_PARAM_FROZEN = 4
  integer(c_int32_t), parameter :: ZERO_PARAM_LR_SCALE = 8, ZERO_PARAM_WEIGHT_DECAY = 16
  integer(c_int32_t), parameter :: ZERO_REDUCE_MEAN = 0, ZERO_REDUCE_SUM = 1, ZERO_REDUCE_NONE = 2
  integer(c_int32_t), parameter :: ZERO_REDUCE_ACCUMULATE = 4
  integer(c_int32_t), parameter :: ZERO_SAVE_REPLACE = 1, ZERO_LOAD_KEEP_SETTINGS = 1
  integer(c_int32_t), parameter :: ZERO_ALL_GROUPS = -1, ZERO_ROOT_NONE = -1

  type, bind(C) :: zero_comm_options
    integer(c_size_t) :: struct_size
    integer(c_int64_t) :: timeout_ms
    integer(c_int64_t) :: late_ms
    integer(c_int64_t) :: rendezvous_ms
    integer(c_int32_t) :: device
    integer(c_int32_t) :: device_ordinal
    integer(c_int32_t) :: reduce_ctas
    integer(c_int32_t) :: gather_on_kernels
  end type

  type, bind(C) :: zero_options
    integer(c_size_t) :: struct_size
    integer(c_int32_t) :: optimizer
    integer(c_int32_t) :: partition
    integer(c_int64_t) :: bucket_bytes
    real(c_double) :: max_grad_norm
    real(c_double) :: grad_norm_type
    integer(c_int32_t) :: nonfinite
    integer(c_int32_t) :: threads
    type(c_ptr) :: names
    type(c_ptr) :: values
    integer(c_size_t) :: setting_count
    integer(c_int32_t) :: master
    integer(c_int32_t) :: wire_dtype
    real(c_double) :: loss_scale
    real(c_double) :: growth_factor
    real(c_double) :: backoff_factor
    integer(c_int64_t) :: growth_interval
    integer(c_int32_t) :: uneven_inputs
    integer(c_int32_t) :: share_dtype
    real(c_double) :: predivide_factor
    type(c_ptr) :: custom
    integer(c_int32_t) :: overlap_gather
    integer(c_int32_t) :: reserved
  end type

  type, bind(C) :: zero_group_options
    integer(c_size_t) :: struct_size
    type(c_ptr) :: names
    type(c_ptr) :: values
    integer(c_size_t) :: setting_count
  end type

  type, bind(C) :: zero_param
    integer(c_size_t) :: struct_size
    type(c_ptr) :: name
    type(c_ptr) :: data
    type(c_ptr) :: grad
    type(c_ptr) :: shape
    integer(c_int32_t) :: ndim
    integer(c_int32_t) :: dtype
    integer(c_int32_t) :: owner
    integer(c_int32_t) :: flags
    integer(c_int64_t) :: order
    integer(c_int32_t) :: grad_dtype
    integer(c_int32_t) :: reserved
    real(c_double) :: lr_scale
    real(c_double) :: weight_decay
  end type

  type, bind(C) :: zero_step_options
    integer(c_size_t) :: struct_size
    type(c_ptr) :: grads
    integer(c_size_t) :: grad_count
    integer(c_int32_t) :: reduce_flags
    integer(c_int32_t) :: reserved
    type(c_ptr) :: stream
  end type

  type, bind(C) :: zero_result
    integer(c_size_t) :: struct_size
    integer(c_int64_t) :: step
    integer(c_int64_t) :: skipped
    integer(c_int64_t) :: nonfinite
    real(c_double) :: grad_norm
    real(c_double) :: clip_factor
    integer(c_int32_t) :: status
    integer(c_int32_t) :: reserved
    real(c_double) :: loss_scale
  end type

  type, bind(C) :: zero_save_options
    integer(c_size_t) :: struct_size
    integer(c_int32_t) :: flags
    integer(c_int32_t) :: reserved
  end type

  type, bind(C) :: zero_load_options
    integer(c_size_t) :: struct_size
    integer(c_int32_t) :: flags
    integer(c_int32_t) :: reserved
  end type

  type, bind(C) :: zero_plan
    integer(c_size_t) :: struct_size
    type(c_ptr) :: offsets
    type(c_ptr) :: owners
    type(c_ptr) :: elements
    integer(c_int64_t) :: arena_bytes
    integer(c_int64_t) :: state_bytes
    type(c_ptr) :: grad_offsets
    integer(c_int64_t) :: grad_arena_bytes
  end type

  type, bind(C) :: zero_statistics
    integer(c_size_t) :: struct_size
    integer(c_int64_t) :: parameter_elements
    integer(c_int64_t) :: owned_elements
    integer(c_int64_t) :: state_bytes
    integer(c_int64_t) :: staging_bytes
    integer(c_int64_t) :: control_bytes
    integer(c_int64_t) :: copied_bytes
    integer(c_int64_t) :: moved_bytes
    integer(c_int64_t) :: steps
    integer(c_int64_t) :: skipped
    integer(c_int64_t) :: nonfinite_elements
    real(c_double) :: gather_seconds
    real(c_double) :: vote_seconds
    real(c_double) :: apply_seconds
    real(c_double) :: publish_seconds
    real(c_double) :: save_seconds
    real(c_double) :: load_seconds
    integer(c_int64_t) :: early_elements
    integer(c_int64_t) :: early_updates
    integer(c_int64_t) :: host_waits
  end type

  interface
    function zero_version() bind(C)
      import
      integer(c_int32_t) :: zero_version
    end function
    function zero_build_info() bind(C)
      import
      type(c_ptr) :: zero_build_info
    end function
    function zero_last_error() bind(C)
      import
      type(c_ptr) :: zero_last_error
    end function
    function zero_status_name(status) bind(C)
      import
      integer(c_int32_t), value :: status
      type(c_ptr) :: zero_status_name
    end function
    function zero_comm_options_init(options, struct_size) bind(C)
      import
      type(zero_comm_options), intent(out) :: options
      integer(c_size_t), value :: struct_size
      integer(c_int32_t) :: zero_comm_options_init
    end function
    function zero_comm_create_solo(out, options) bind(C)
      import
      type(c_ptr), intent(out) :: out
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_comm_create_solo
    end function
    function zero_comm_create_local(out, name, rank, world, options) bind(C)
      import
      type(c_ptr), intent(out) :: out
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int32_t), value :: rank, world
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_comm_create_local
    end function
    function zero_comm_create_env(out, options) bind(C)
      import
      type(c_ptr), intent(out) :: out
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_comm_create_env
    end function
    function zero_comm_rank(comm) bind(C)
      import
      type(c_ptr), value :: comm
      integer(c_int32_t) :: zero_comm_rank
    end function
    function zero_comm_world(comm) bind(C)
      import
      type(c_ptr), value :: comm
      integer(c_int32_t) :: zero_comm_world
    end function
    function zero_comm_barrier(comm) bind(C)
      import
      type(c_ptr), value :: comm
      integer(c_int32_t) :: zero_comm_barrier
    end function
    function zero_comm_broadcast(comm, data, bytes, root) bind(C)
      import
      type(c_ptr), value :: comm, data
      integer(c_size_t), value :: bytes
      integer(c_int32_t), value :: root
      integer(c_int32_t) :: zero_comm_broadcast
    end function
    function zero_comm_all_reduce(comm, data, count, dtype, operation) bind(C)
      import
      type(c_ptr), value :: comm, data
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: dtype, operation
      integer(c_int32_t) :: zero_comm_all_reduce
    end function
    function zero_comm_abort(comm, reason) bind(C)
      import
      type(c_ptr), value :: comm
      character(kind=c_char), intent(in) :: reason(*)
      integer(c_int32_t) :: zero_comm_abort
    end function
    function zero_comm_free(comm) bind(C)
      import
      type(c_ptr), value :: comm
      integer(c_int32_t) :: zero_comm_free
    end function
    function zero_arena_alloc(comm, bytes, kind, out) bind(C)
      import
      type(c_ptr), value :: comm
      integer(c_size_t), value :: bytes
      integer(c_int32_t), value :: kind
      type(c_ptr), intent(out) :: out
      integer(c_int32_t) :: zero_arena_alloc
    end function
    function zero_arena_free(arena) bind(C)
      import
      type(c_ptr), value :: arena
      integer(c_int32_t) :: zero_arena_free
    end function
    function zero_options_init(options, struct_size) bind(C)
      import
      type(zero_options), intent(out) :: options
      integer(c_size_t), value :: struct_size
      integer(c_int32_t) :: zero_options_init
    end function
    function zero_create(out, comm, options) bind(C)
      import
      type(c_ptr), intent(out) :: out
      type(c_ptr), value :: comm, options
      integer(c_int32_t) :: zero_create
    end function
    function zero_group_options_init(options, struct_size) bind(C)
      import
      type(zero_group_options), intent(out) :: options
      integer(c_size_t), value :: struct_size
      integer(c_int32_t) :: zero_group_options_init
    end function
    function zero_param_init(param, struct_size) bind(C)
      import
      type(zero_param), intent(out) :: param
      integer(c_size_t), value :: struct_size
      integer(c_int32_t) :: zero_param_init
    end function
    function zero_register_params(optim, options, params, count, group) bind(C)
      import
      type(c_ptr), value :: optim, options
      type(zero_param), intent(in) :: params(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), intent(out) :: group
      integer(c_int32_t) :: zero_register_params
    end function
    function zero_bind_params(optim, data, grads, count) bind(C)
      import
      type(c_ptr), value :: optim, data, grads
      integer(c_size_t), value :: count
      integer(c_int32_t) :: zero_bind_params
    end function
    function zero_free(optim) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t) :: zero_free
    end function
    function zero_group_set(optim, group, name, value) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t), value :: group
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), value :: value
      integer(c_int32_t) :: zero_group_set
    end function
    function zero_group_get(optim, group, name, value) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t), value :: group
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), intent(out) :: value
      integer(c_int32_t) :: zero_group_get
    end function
    function zero_set_trainable(optim, param, trainable) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int64_t), value :: param
      integer(c_int32_t), value :: trainable
      integer(c_int32_t) :: zero_set_trainable
    end function
    function zero_broadcast_params(optim, root, stream) bind(C)
      import
      type(c_ptr), value :: optim, stream
      integer(c_int32_t), value :: root
      integer(c_int32_t) :: zero_broadcast_params
    end function
    function zero_grad_ready(optim, param, grad, stream) bind(C)
      import
      type(c_ptr), value :: optim, grad, stream
      integer(c_int64_t), value :: param
      integer(c_int32_t) :: zero_grad_ready
    end function
    function zero_reduce_grads(optim, grads, count, flags, stream) bind(C)
      import
      type(c_ptr), value :: optim, grads, stream
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: flags
      integer(c_int32_t) :: zero_reduce_grads
    end function
    function zero_clip_grad_value(optim, max_value, stream) bind(C)
      import
      type(c_ptr), value :: optim, stream
      real(c_double), value :: max_value
      integer(c_int32_t) :: zero_clip_grad_value
    end function
    function zero_clip_grad_norm(optim, max_norm, norm_type, norm, stream) bind(C)
      import
      type(c_ptr), value :: optim, norm, stream
      real(c_double), value :: max_norm, norm_type
      integer(c_int32_t) :: zero_clip_grad_norm
    end function
    function zero_step_options_init(options, struct_size) bind(C)
      import
      type(zero_step_options), intent(out) :: options
      integer(c_size_t), value :: struct_size
      integer(c_int32_t) :: zero_step_options_init
    end function
    function zero_step(optim, options) bind(C)
      import
      type(c_ptr), value :: optim, options
      integer(c_int32_t) :: zero_step
    end function
    function zero_result_init(result, struct_size) bind(C)
      import
      type(zero_result), intent(out) :: result
      integer(c_size_t), value :: struct_size
      integer(c_int32_t) :: zero_result_init
    end function
    function zero_step_result(optim, result) bind(C)
      import
      type(c_ptr), value :: optim
      type(zero_result), intent(inout) :: result
      integer(c_int32_t) :: zero_step_result
    end function
    function zero_drop_grads(optim) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t) :: zero_drop_grads
    end function
    function zero_save_options_init(options, struct_size) bind(C)
      import
      type(zero_save_options), intent(out) :: options
      integer(c_size_t), value :: struct_size
      integer(c_int32_t) :: zero_save_options_init
    end function
    function zero_state_save(optim, directory, options) bind(C)
      import
      type(c_ptr), value :: optim, options
      character(kind=c_char), intent(in) :: directory(*)
      integer(c_int32_t) :: zero_state_save
    end function
    function zero_load_options_init(options, struct_size) bind(C)
      import
      type(zero_load_options), intent(out) :: options
      integer(c_size_t), value :: struct_size
      integer(c_int32_t) :: zero_load_options_init
    end function
    function zero_state_load(optim, directory, options) bind(C)
      import
      type(c_ptr), value :: optim, options
      character(kind=c_char), intent(in) :: directory(*)
      integer(c_int32_t) :: zero_state_load
    end function
    function zero_param_index(optim, name, index) bind(C)
      import
      type(c_ptr), value :: optim
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(out) :: index
      integer(c_int32_t) :: zero_param_index
    end function
    function zero_plan_init(plan, struct_size) bind(C)
      import
      type(zero_plan), intent(out) :: plan
      integer(c_size_t), value :: struct_size
      integer(c_int32_t) :: zero_plan_init
    end function
    function zero_partition_plan(params, count, world, options, plan) bind(C)
      import
      type(zero_param), intent(in) :: params(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: world
      type(c_ptr), value :: options
      type(zero_plan), intent(inout) :: plan
      integer(c_int32_t) :: zero_partition_plan
    end function
    function zero_statistics_init(statistics, struct_size) bind(C)
      import
      type(zero_statistics), intent(out) :: statistics
      integer(c_size_t), value :: struct_size
      integer(c_int32_t) :: zero_statistics_init
    end function
    function zero_stats(optim, statistics) bind(C)
      import
      type(c_ptr), value :: optim
      type(zero_statistics), intent(inout) :: statistics
      integer(c_int32_t) :: zero_stats
    end function
  end interface

  interface
    pure function c_strlen(text) bind(C, name="strlen")
      import
      type(c_ptr), value, intent(in) :: text
      integer(c_size_t) :: c_strlen
    end function
  end interface

contains

  !> A C text as a Fortran one.
  function zero_text(from) result(text)
    type(c_ptr), intent(in) :: from
    character(:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i
    call c_f_pointer(from, letters, [c_strlen(from)])
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
