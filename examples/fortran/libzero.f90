! SPDX-License-Identifier: Apache-2.0
!> zero.h for Fortran: every constant, struct and call, by the same names. What each call means stands in
!> zero.h. Made of it by scripts/fortran_module.py; a test makes it again and compares.
!>
!> Handles, streams, addresses and options, which may be NULL, are type(c_ptr) by value: c_loc(options) or
!> c_null_ptr. Functions of yours are c_funloc(f) of a bind(C) procedure. What else may be NULL is optional.
!> Structs begin as zeros with their size. Texts that go to C end with c_null_char. A Fortran array of shape (n, m) is one of shape {m, n} to C.
module libzero
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int32_t), parameter :: ZERO_VERSION_MAJOR = 0
  integer(c_int32_t), parameter :: ZERO_VERSION_MINOR = 2
  integer(c_int32_t), parameter :: ZERO_VERSION_PATCH = 0
  integer(c_int32_t), parameter :: ZERO_OK = 0, ZERO_SKIPPED = 1, ZERO_ERR_ARGUMENT = -1, ZERO_ERR_STATE = -2
  integer(c_int32_t), parameter :: ZERO_ERR_BUSY = -3, ZERO_ERR_FORKED = -4, ZERO_ERR_UNSUPPORTED = -5
  integer(c_int32_t), parameter :: ZERO_ERR_MEMORY = -6, ZERO_ERR_MISMATCH = -7, ZERO_ERR_PEER = -8
  integer(c_int32_t), parameter :: ZERO_ERR_CKPT_IO = -9, ZERO_ERR_CKPT_INVALID = -10, ZERO_ERR_CKPT_MISMATCH = -11
  integer(c_int32_t), parameter :: ZERO_ERR_NOT_LOADED = -12, ZERO_ERR_RENDEZVOUS = -13, ZERO_ERR_TIMEOUT = -14
  integer(c_int32_t), parameter :: ZERO_ERR_PEER_DEAD = -15, ZERO_ERR_DESYNC = -16, ZERO_ERR_COMM = -17
  integer(c_int32_t), parameter :: ZERO_ERR_ABORTED = -18, ZERO_ERR_SYSTEM = -19, ZERO_ERR_NONFINITE = -20
  integer(c_int32_t), parameter :: ZERO_ERR_CALLBACK = -21, ZERO_ERR_INTERNAL = -99
  integer(c_int32_t), parameter :: ZERO_LOG_ERROR = 1, ZERO_LOG_WARNING = 2, ZERO_LOG_INFO = 3
  integer(c_int32_t), parameter :: ZERO_DEVICE_HOST = 0, ZERO_DEVICE_CUDA = 1
  integer(c_int32_t), parameter :: ZERO_ORDINAL_LOCAL_RANK = -1
  integer(c_int32_t), parameter :: ZERO_NCCL_ID_BYTES = 128
  integer(c_int32_t), parameter :: ZERO_FLOAT32 = 1, ZERO_FLOAT64 = 2, ZERO_INT32 = 3, ZERO_INT64 = 4, ZERO_BFLOAT16 = 5
  integer(c_int32_t), parameter :: ZERO_FLOAT16 = 6
  integer(c_int32_t), parameter :: ZERO_SUM = 1, ZERO_MIN = 2, ZERO_MAX = 3
  integer(c_int32_t), parameter :: ZERO_MEMORY_PER_RANK = 1, ZERO_MEMORY_SHARED = 2
  integer(c_int32_t), parameter :: ZERO_OPTIMIZER_ADAMW = 0, ZERO_OPTIMIZER_ADAM = 1, ZERO_OPTIMIZER_SGD = 2
  integer(c_int32_t), parameter :: ZERO_OPTIMIZER_RMSPROP = 3, ZERO_OPTIMIZER_ADAGRAD = 4, ZERO_OPTIMIZER_LION = 5
  integer(c_int32_t), parameter :: ZERO_OPTIMIZER_ADAMAX = 6, ZERO_OPTIMIZER_ADADELTA = 7, ZERO_OPTIMIZER_RADAM = 8
  integer(c_int32_t), parameter :: ZERO_OPTIMIZER_NADAM = 9, ZERO_OPTIMIZER_RPROP = 10, ZERO_OPTIMIZER_LAMB = 11
  integer(c_int32_t), parameter :: ZERO_OPTIMIZER_LARS = 12, ZERO_OPTIMIZER_ADAN = 13, ZERO_OPTIMIZER_ADEMAMIX = 14
  integer(c_int32_t), parameter :: ZERO_OPTIMIZER_CUSTOM = 100
  integer(c_int32_t), parameter :: ZERO_PARTITION_EVEN = 0, ZERO_PARTITION_GREEDY = 1
  integer(c_int32_t), parameter :: ZERO_PARTITION_GREEDY_IN_ORDER = 2, ZERO_PARTITION_MANUAL = 3
  integer(c_int32_t), parameter :: ZERO_NONFINITE_IGNORE = 0, ZERO_NONFINITE_SKIP = 1, ZERO_NONFINITE_ERROR = 2
  integer(c_int32_t), parameter :: ZERO_MASTER_FLOAT32 = 0, ZERO_MASTER_REMAINDER = 1, ZERO_MASTER_NONE = 2
  integer(c_int32_t), parameter :: ZERO_UNEVEN_OFF = 0, ZERO_UNEVEN_WORLD = 1, ZERO_UNEVEN_ACTIVE = 2
  integer(c_int32_t), parameter :: ZERO_UNEVEN_ERROR = 3
  integer(c_int32_t), parameter :: ZERO_CUSTOM_WHOLE_TENSORS = 1
  integer(c_int32_t), parameter :: ZERO_PARAM_ORDER = 1, ZERO_PARAM_PADDED = 2, ZERO_PARAM_FROZEN = 4
  integer(c_int32_t), parameter :: ZERO_PARAM_LR_SCALE = 8, ZERO_PARAM_WEIGHT_DECAY = 16
  integer(c_int32_t), parameter :: ZERO_ALL_GROUPS = -1
  integer(c_int32_t), parameter :: ZERO_ROOT_NONE = -1
  integer(c_int32_t), parameter :: ZERO_REDUCE_MEAN = 0, ZERO_REDUCE_SUM = 1, ZERO_REDUCE_NONE = 2
  integer(c_int32_t), parameter :: ZERO_REDUCE_ACCUMULATE = 4
  integer(c_int32_t), parameter :: ZERO_ALL_PARAMS = -1
  integer(c_int32_t), parameter :: ZERO_SHARE_KEEP_MASTERS = 1
  integer(c_int32_t), parameter :: ZERO_SAVE_REPLACE = 1
  integer(c_int32_t), parameter :: ZERO_LOAD_KEEP_SETTINGS = 1
  integer(c_int32_t), parameter :: ZERO_ALL_RANKS = -1
  integer(c_int32_t), parameter :: ZERO_OWNER_SPLIT = -1

  type, bind(C) :: zero_comm_options
    integer(c_size_t) :: struct_size = 48
    integer(c_int64_t) :: timeout_ms = 0
    integer(c_int64_t) :: late_ms = 0
    integer(c_int64_t) :: rendezvous_ms = 0
    integer(c_int32_t) :: device = 0
    integer(c_int32_t) :: device_ordinal = 0
    integer(c_int32_t) :: reduce_ctas = 0
    integer(c_int32_t) :: gather_on_kernels = 0
  end type

  type, bind(C) :: zero_comm_functions
    integer(c_size_t) :: struct_size = 56
    type(c_funptr) :: exchange = c_null_funptr
    type(c_funptr) :: all_gather = c_null_funptr
    type(c_funptr) :: all_to_all = c_null_funptr
    type(c_funptr) :: reduce_scatter = c_null_funptr
    type(c_funptr) :: split = c_null_funptr
    type(c_funptr) :: free = c_null_funptr
  end type

  type, bind(C) :: zero_failure
    integer(c_size_t) :: struct_size = 576
    integer(c_int32_t) :: status = 0
    integer(c_int32_t) :: rank = 0
    integer(c_int64_t) :: step = 0
    integer(c_int32_t) :: params_consistent = 0
    character(kind=c_char) :: phase(32) = c_null_char
    character(kind=c_char) :: text(512) = c_null_char
  end type

  type, bind(C) :: zero_rule
    integer(c_size_t) :: struct_size = 72
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: setting_names = c_null_ptr
    type(c_ptr) :: setting_defaults = c_null_ptr
    type(c_ptr) :: setting_ranges = c_null_ptr
    integer(c_size_t) :: setting_count = 0
    type(c_ptr) :: slots = c_null_ptr
    type(c_ptr) :: slot_settings = c_null_ptr
    integer(c_size_t) :: slot_count = 0
  end type

  type, bind(C) :: zero_update
    integer(c_size_t) :: struct_size = 152
    integer(c_int64_t) :: param = 0
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: shape = c_null_ptr
    integer(c_int32_t) :: ndim = 0
    integer(c_int32_t) :: dtype = 0
    integer(c_int64_t) :: first = 0
    integer(c_int64_t) :: count = 0
    type(c_ptr) :: values = c_null_ptr
    type(c_ptr) :: gradient = c_null_ptr
    type(c_ptr) :: slots = c_null_ptr
    integer(c_size_t) :: slot_count = 0
    integer(c_int64_t) :: step = 0
    real(c_double) :: lr = 0
    real(c_double) :: weight_decay = 0
    type(c_ptr) :: setting_names = c_null_ptr
    type(c_ptr) :: setting_values = c_null_ptr
    integer(c_size_t) :: setting_count = 0
    type(c_ptr) :: message = c_null_ptr
    integer(c_size_t) :: message_bytes = 0
  end type

  type, bind(C) :: zero_custom_optimizer
    integer(c_size_t) :: struct_size = 80
    type(c_ptr) :: name = c_null_ptr
    type(c_funptr) :: update = c_null_funptr
    type(c_ptr) :: ctx = c_null_ptr
    type(c_ptr) :: slots = c_null_ptr
    integer(c_size_t) :: slot_count = 0
    type(c_ptr) :: setting_names = c_null_ptr
    type(c_ptr) :: setting_values = c_null_ptr
    integer(c_size_t) :: setting_count = 0
    integer(c_int32_t) :: flags = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(C) :: zero_options
    integer(c_size_t) :: struct_size = 144
    integer(c_int32_t) :: optimizer = 0
    integer(c_int32_t) :: partition = 0
    integer(c_int64_t) :: bucket_bytes = 0
    real(c_double) :: max_grad_norm = 0
    real(c_double) :: grad_norm_type = 0
    integer(c_int32_t) :: nonfinite = 0
    integer(c_int32_t) :: threads = 0
    type(c_ptr) :: names = c_null_ptr
    type(c_ptr) :: values = c_null_ptr
    integer(c_size_t) :: setting_count = 0
    integer(c_int32_t) :: master = 0
    integer(c_int32_t) :: wire_dtype = 0
    real(c_double) :: loss_scale = 0
    real(c_double) :: growth_factor = 0
    real(c_double) :: backoff_factor = 0
    integer(c_int64_t) :: growth_interval = 0
    integer(c_int32_t) :: uneven_inputs = 0
    integer(c_int32_t) :: share_dtype = 0
    real(c_double) :: predivide_factor = 0
    type(c_ptr) :: custom = c_null_ptr
    integer(c_int32_t) :: overlap_gather = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(C) :: zero_group_options
    integer(c_size_t) :: struct_size = 32
    type(c_ptr) :: names = c_null_ptr
    type(c_ptr) :: values = c_null_ptr
    integer(c_size_t) :: setting_count = 0
  end type

  type, bind(C) :: zero_param
    integer(c_size_t) :: struct_size = 88
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: data = c_null_ptr
    type(c_ptr) :: grad = c_null_ptr
    type(c_ptr) :: shape = c_null_ptr
    integer(c_int32_t) :: ndim = 0
    integer(c_int32_t) :: dtype = 0
    integer(c_int32_t) :: owner = 0
    integer(c_int32_t) :: flags = 0
    integer(c_int64_t) :: order = 0
    integer(c_int32_t) :: grad_dtype = 0
    integer(c_int32_t) :: reserved = 0
    real(c_double) :: lr_scale = 0
    real(c_double) :: weight_decay = 0
  end type

  type, bind(C) :: zero_buffer
    integer(c_size_t) :: struct_size = 40
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: data = c_null_ptr
    type(c_ptr) :: shape = c_null_ptr
    integer(c_int32_t) :: ndim = 0
    integer(c_int32_t) :: dtype = 0
  end type

  type, bind(C) :: zero_step_options
    integer(c_size_t) :: struct_size = 40
    type(c_ptr) :: grads = c_null_ptr
    integer(c_size_t) :: grad_count = 0
    integer(c_int32_t) :: reduce_flags = 0
    integer(c_int32_t) :: reserved = 0
    type(c_ptr) :: stream = c_null_ptr
  end type

  type, bind(C) :: zero_result
    integer(c_size_t) :: struct_size = 64
    integer(c_int64_t) :: step = 0
    integer(c_int64_t) :: skipped = 0
    integer(c_int64_t) :: nonfinite = 0
    real(c_double) :: grad_norm = 0
    real(c_double) :: clip_factor = 0
    integer(c_int32_t) :: status = 0
    integer(c_int32_t) :: reserved = 0
    real(c_double) :: loss_scale = 0
  end type

  type, bind(C) :: zero_join_options
    integer(c_size_t) :: struct_size = 32
    type(c_ptr) :: grads = c_null_ptr
    integer(c_size_t) :: grad_count = 0
    type(c_ptr) :: stream = c_null_ptr
  end type

  type, bind(C) :: zero_save_options
    integer(c_size_t) :: struct_size = 16
    integer(c_int32_t) :: flags = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(C) :: zero_load_options
    integer(c_size_t) :: struct_size = 16
    integer(c_int32_t) :: flags = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(C) :: zero_plan
    integer(c_size_t) :: struct_size = 64
    type(c_ptr) :: offsets = c_null_ptr
    type(c_ptr) :: owners = c_null_ptr
    type(c_ptr) :: elements = c_null_ptr
    integer(c_int64_t) :: arena_bytes = 0
    integer(c_int64_t) :: state_bytes = 0
    type(c_ptr) :: grad_offsets = c_null_ptr
    integer(c_int64_t) :: grad_arena_bytes = 0
  end type

  type, bind(C) :: zero_statistics
    integer(c_size_t) :: struct_size = 160
    integer(c_int64_t) :: parameter_elements = 0
    integer(c_int64_t) :: owned_elements = 0
    integer(c_int64_t) :: state_bytes = 0
    integer(c_int64_t) :: staging_bytes = 0
    integer(c_int64_t) :: control_bytes = 0
    integer(c_int64_t) :: copied_bytes = 0
    integer(c_int64_t) :: moved_bytes = 0
    integer(c_int64_t) :: steps = 0
    integer(c_int64_t) :: skipped = 0
    integer(c_int64_t) :: nonfinite_elements = 0
    real(c_double) :: gather_seconds = 0
    real(c_double) :: vote_seconds = 0
    real(c_double) :: apply_seconds = 0
    real(c_double) :: publish_seconds = 0
    real(c_double) :: save_seconds = 0
    real(c_double) :: load_seconds = 0
    integer(c_int64_t) :: early_elements = 0
    integer(c_int64_t) :: early_updates = 0
    integer(c_int64_t) :: host_waits = 0
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
    function zero_set_log_callback(log, ctx, max_level) bind(C)
      import
      type(c_funptr), value :: log
      type(c_ptr), value :: ctx
      integer(c_int32_t), value :: max_level
      integer(c_int32_t) :: zero_set_log_callback
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
      integer(c_int32_t), value :: rank
      integer(c_int32_t), value :: world
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_comm_create_local
    end function
    function zero_comm_create_env(out, options) bind(C)
      import
      type(c_ptr), intent(out) :: out
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_comm_create_env
    end function
    function zero_comm_create_user(out, functions, ctx, rank, world, options) bind(C)
      import
      type(c_ptr), intent(out) :: out
      type(zero_comm_functions), intent(in) :: functions
      type(c_ptr), value :: ctx
      integer(c_int32_t), value :: rank
      integer(c_int32_t), value :: world
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_comm_create_user
    end function
    function zero_nccl_unique_id(id) bind(C)
      import
      type(c_ptr), value :: id
      integer(c_int32_t) :: zero_nccl_unique_id
    end function
    function zero_comm_create_nccl(out, id, rank, world, options) bind(C)
      import
      type(c_ptr), intent(out) :: out
      type(c_ptr), value :: id
      integer(c_int32_t), value :: rank
      integer(c_int32_t), value :: world
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_comm_create_nccl
    end function
    function zero_comm_wrap_nccl(out, nccl_comm, options) bind(C)
      import
      type(c_ptr), intent(out) :: out
      type(c_ptr), value :: nccl_comm
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_comm_wrap_nccl
    end function
    function zero_comm_split(out, parent, color, key) bind(C)
      import
      type(c_ptr), intent(out) :: out
      type(c_ptr), value :: parent
      integer(c_int32_t), value :: color
      integer(c_int32_t), value :: key
      integer(c_int32_t) :: zero_comm_split
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
      type(c_ptr), value :: comm
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
      integer(c_int32_t), value :: root
      integer(c_int32_t) :: zero_comm_broadcast
    end function
    function zero_comm_all_reduce(comm, data, count, dtype, operation) bind(C)
      import
      type(c_ptr), value :: comm
      type(c_ptr), value :: data
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: dtype
      integer(c_int32_t), value :: operation
      integer(c_int32_t) :: zero_comm_all_reduce
    end function
    function zero_comm_abort(comm, reason) bind(C)
      import
      type(c_ptr), value :: comm
      character(kind=c_char), intent(in), optional :: reason(*)
      integer(c_int32_t) :: zero_comm_abort
    end function
    function zero_comm_failure(comm, failure) bind(C)
      import
      type(c_ptr), value :: comm
      type(zero_failure), intent(inout) :: failure
      integer(c_int32_t) :: zero_comm_failure
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
    function zero_rule_info(optimizer, rule) bind(C)
      import
      integer(c_int32_t), value :: optimizer
      type(zero_rule), intent(inout) :: rule
      integer(c_int32_t) :: zero_rule_info
    end function
    function zero_create(out, comm, options) bind(C)
      import
      type(c_ptr), intent(out) :: out
      type(c_ptr), value :: comm
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_create
    end function
    function zero_register_params(optim, options, params, count, group) bind(C)
      import
      type(c_ptr), value :: optim
      type(c_ptr), value :: options
      type(zero_param), intent(in) :: params(*)
      integer(c_size_t), value :: count
      integer(c_int32_t), intent(out), optional :: group
      integer(c_int32_t) :: zero_register_params
    end function
    function zero_bind_params(optim, data, grads, count) bind(C)
      import
      type(c_ptr), value :: optim
      type(c_ptr), value :: data
      type(c_ptr), value :: grads
      integer(c_size_t), value :: count
      integer(c_int32_t) :: zero_bind_params
    end function
    function zero_register_buffers(optim, buffers, count) bind(C)
      import
      type(c_ptr), value :: optim
      type(zero_buffer), intent(in) :: buffers(*)
      integer(c_size_t), value :: count
      integer(c_int32_t) :: zero_register_buffers
    end function
    function zero_seal(optim) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t) :: zero_seal
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
    function zero_group_set_from(optim, group, name, data, dtype) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t), value :: group
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: data
      integer(c_int32_t), value :: dtype
      integer(c_int32_t) :: zero_group_set_from
    end function
    function zero_param_set_trainable(optim, param, trainable) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int64_t), value :: param
      integer(c_int32_t), value :: trainable
      integer(c_int32_t) :: zero_param_set_trainable
    end function
    function zero_rebalance(optim, owners, count, stream) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t), intent(in), optional :: owners(*)
      integer(c_size_t), value :: count
      type(c_ptr), value :: stream
      integer(c_int32_t) :: zero_rebalance
    end function
    function zero_broadcast_params(optim, root, stream) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t), value :: root
      type(c_ptr), value :: stream
      integer(c_int32_t) :: zero_broadcast_params
    end function
    function zero_broadcast_buffers(optim, root, stream) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t), value :: root
      type(c_ptr), value :: stream
      integer(c_int32_t) :: zero_broadcast_buffers
    end function
    function zero_grad_ready(optim, param, grad, stream) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int64_t), value :: param
      type(c_ptr), value :: grad
      type(c_ptr), value :: stream
      integer(c_int32_t) :: zero_grad_ready
    end function
    function zero_reduce_grads(optim, grads, count, flags, stream) bind(C)
      import
      type(c_ptr), value :: optim
      type(c_ptr), value :: grads
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: flags
      type(c_ptr), value :: stream
      integer(c_int32_t) :: zero_reduce_grads
    end function
    function zero_clip_grad_value(optim, max_value, stream) bind(C)
      import
      type(c_ptr), value :: optim
      real(c_double), value :: max_value
      type(c_ptr), value :: stream
      integer(c_int32_t) :: zero_clip_grad_value
    end function
    function zero_clip_grad_norm(optim, params, count, max_norm, norm_type, norm, stream) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int64_t), intent(in), optional :: params(*)
      integer(c_size_t), value :: count
      real(c_double), value :: max_norm
      real(c_double), value :: norm_type
      real(c_double), intent(out), optional :: norm
      type(c_ptr), value :: stream
      integer(c_int32_t) :: zero_clip_grad_norm
    end function
    function zero_step(optim, options) bind(C)
      import
      type(c_ptr), value :: optim
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_step
    end function
    function zero_step_begin(optim, options) bind(C)
      import
      type(c_ptr), value :: optim
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_step_begin
    end function
    function zero_step_result(optim, result) bind(C)
      import
      type(c_ptr), value :: optim
      type(zero_result), intent(inout) :: result
      integer(c_int32_t) :: zero_step_result
    end function
    function zero_param_wait(optim, param, stream) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int64_t), value :: param
      type(c_ptr), value :: stream
      integer(c_int32_t) :: zero_param_wait
    end function
    function zero_drop_grads(optim) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t) :: zero_drop_grads
    end function
    function zero_grad_get(optim, param, first, count, values) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int64_t), value :: param
      integer(c_int64_t), value :: first
      integer(c_int64_t), value :: count
      type(c_ptr), value :: values
      integer(c_int32_t) :: zero_grad_get
    end function
    function zero_share_params(optim, flags, stream) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t), value :: flags
      type(c_ptr), value :: stream
      integer(c_int32_t) :: zero_share_params
    end function
    function zero_join(optim, options, last_rank) bind(C)
      import
      type(c_ptr), value :: optim
      type(c_ptr), value :: options
      integer(c_int32_t), intent(out), optional :: last_rank
      integer(c_int32_t) :: zero_join
    end function
    function zero_state_save(optim, directory, options) bind(C)
      import
      type(c_ptr), value :: optim
      character(kind=c_char), intent(in) :: directory(*)
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_state_save
    end function
    function zero_state_load(optim, directory, options) bind(C)
      import
      type(c_ptr), value :: optim
      character(kind=c_char), intent(in) :: directory(*)
      type(c_ptr), value :: options
      integer(c_int32_t) :: zero_state_load
    end function
    function zero_state_info(optim, param, dtype, names, capacity, count) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int64_t), value :: param
      integer(c_int32_t), intent(out), optional :: dtype
      type(c_ptr), intent(inout) :: names(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: zero_state_info
    end function
    function zero_state_get(optim, param, name, first, count, values) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int64_t), value :: param
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: first
      integer(c_int64_t), value :: count
      type(c_ptr), value :: values
      integer(c_int32_t) :: zero_state_get
    end function
    function zero_state_set(optim, param, name, first, count, values) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int64_t), value :: param
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: first
      integer(c_int64_t), value :: count
      type(c_ptr), value :: values
      integer(c_int32_t) :: zero_state_set
    end function
    function zero_state_gather(optim, param, name, to, values, count) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int64_t), value :: param
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int32_t), value :: to
      type(c_ptr), value :: values
      integer(c_size_t), value :: count
      integer(c_int32_t) :: zero_state_gather
    end function
    function zero_param_index(optim, name, index) bind(C)
      import
      type(c_ptr), value :: optim
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(out) :: index
      integer(c_int32_t) :: zero_param_index
    end function
    function zero_owned_ranges(optim, rank, ranges, capacity, count) bind(C)
      import
      type(c_ptr), value :: optim
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(inout) :: ranges(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: zero_owned_ranges
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
    function zero_stats(optim, statistics) bind(C)
      import
      type(c_ptr), value :: optim
      type(zero_statistics), intent(inout) :: statistics
      integer(c_int32_t) :: zero_stats
    end function
  end interface

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
