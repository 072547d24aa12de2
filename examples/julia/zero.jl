# SPDX-License-Identifier: Apache-2.0
"""
zero.h for Julia: the part that a training program needs, with the same names. zero.h describes each call.
tests/abi/check_bindings.py compares this file with it. Add other declarations in the same way. A struct may
lack fields at its end, because the library reads its size from struct_size.

LIBZERO_PATH names the library or its folder. Without it, the system's loader looks for libzero.so.0.2. A
library of another version is refused.

To C, a Julia array of size (n, m) has the shape {m, n}. Parameters and gradients that Julia allocates must
stay alive as long as they are registered: keep a reference to them.
"""
module Zero

const given = get(ENV, "LIBZERO_PATH", "libzero.so.0.2")
const libzero = isdir(given) ? joinpath(given, "libzero.so.0.2") : given

const ZERO_VERSION_MAJOR, ZERO_VERSION_MINOR = 0, 2
const ZERO_OK, ZERO_SKIPPED = 0, 1
const ZERO_FLOAT32, ZERO_FLOAT64, ZERO_INT32, ZERO_INT64 = 1, 2, 3, 4
const ZERO_BFLOAT16, ZERO_FLOAT16 = 5, 6
const ZERO_SUM, ZERO_MIN, ZERO_MAX = 1, 2, 3
const ZERO_DEVICE_HOST, ZERO_DEVICE_CUDA, ZERO_ORDINAL_LOCAL_RANK = 0, 1, -1
const ZERO_MEMORY_PER_RANK, ZERO_MEMORY_SHARED = 1, 2
const ZERO_OPTIMIZER_ADAMW, ZERO_OPTIMIZER_ADAM, ZERO_OPTIMIZER_SGD, ZERO_OPTIMIZER_LAMB = 0, 1, 2, 11
const ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY = 0, 1
const ZERO_NONFINITE_SKIP, ZERO_NONFINITE_ERROR = 1, 2
const ZERO_PARAM_PADDED, ZERO_PARAM_FROZEN, ZERO_PARAM_LR_SCALE, ZERO_PARAM_WEIGHT_DECAY = 2, 4, 8, 16
const ZERO_REDUCE_MEAN, ZERO_REDUCE_SUM, ZERO_REDUCE_NONE, ZERO_REDUCE_ACCUMULATE = 0, 1, 2, 4
const ZERO_SAVE_REPLACE, ZERO_LOAD_KEEP_SETTINGS = 1, 1
const ZERO_ALL_GROUPS, ZERO_ROOT_NONE = -1, -1

struct zero_comm_options
    struct_size::Csize_t
    timeout_ms::Int64
    late_ms::Int64
    rendezvous_ms::Int64
    device::Int32
    device_ordinal::Int32
    reduce_ctas::Int32
    gather_on_kernels::Int32
end

struct zero_options
    struct_size::Csize_t
    optimizer::Int32
    partition::Int32
    bucket_bytes::Int64
    max_grad_norm::Float64
    grad_norm_type::Float64
    nonfinite::Int32
    threads::Int32
    names::Ptr{Ptr{UInt8}}
    values::Ptr{Float64}
    setting_count::Csize_t
    master::Int32
    wire_dtype::Int32
    loss_scale::Float64
    growth_factor::Float64
    backoff_factor::Float64
    growth_interval::Int64
    uneven_inputs::Int32
    share_dtype::Int32
    predivide_factor::Float64
    custom::Ptr{Cvoid}
    overlap_gather::Int32
    instances::Int32
end

struct zero_group_options
    struct_size::Csize_t
    names::Ptr{Ptr{UInt8}}
    values::Ptr{Float64}
    setting_count::Csize_t
    optimizer::Ptr{UInt8}
    custom::Ptr{Cvoid}
    state_dtype::Int32
    reserved::Int32
end

struct zero_param
    struct_size::Csize_t
    name::Ptr{UInt8}
    data::Ptr{Cvoid}
    grad::Ptr{Cvoid}
    shape::Ptr{Int64}
    ndim::Int32
    dtype::Int32
    owner::Int32
    flags::Int32
    order::Int64
    grad_dtype::Int32
    reserved::Int32
    lr_scale::Float64
    weight_decay::Float64
end

struct zero_step_options
    struct_size::Csize_t
    grads::Ptr{Ptr{Cvoid}}
    grad_count::Csize_t
    reduce_flags::Int32
    reserved::Int32
    stream::Ptr{Cvoid}
end

struct zero_result
    struct_size::Csize_t
    step::Int64
    skipped::Int64
    nonfinite::Int64
    grad_norm::Float64
    clip_factor::Float64
    status::Int32
    reserved::Int32
    loss_scale::Float64
end

struct zero_save_options
    struct_size::Csize_t
    flags::Int32
    reserved::Int32
end

struct zero_load_options
    struct_size::Csize_t
    flags::Int32
    reserved::Int32
end

struct zero_plan
    struct_size::Csize_t
    offsets::Ptr{Int64}
    owners::Ptr{Int32}
    elements::Ptr{Int64}
    arena_bytes::Int64
    state_bytes::Int64
    grad_offsets::Ptr{Int64}
    grad_arena_bytes::Int64
end

struct zero_statistics
    struct_size::Csize_t
    parameter_elements::Int64
    owned_elements::Int64
    state_bytes::Int64
    staging_bytes::Int64
    control_bytes::Int64
    copied_bytes::Int64
    moved_bytes::Int64
    steps::Int64
    skipped::Int64
    nonfinite_elements::Int64
    gather_seconds::Float64
    vote_seconds::Float64
    apply_seconds::Float64
    publish_seconds::Float64
    save_seconds::Float64
    load_seconds::Float64
    early_elements::Int64
    early_updates::Int64
    host_waits::Int64
    idle_ranks::Int64
    sent_data_bytes::Int64
    sent_data_messages::Int64
    received_data_bytes::Int64
    received_data_messages::Int64
    sent_control_bytes::Int64
    sent_control_messages::Int64
    received_control_bytes::Int64
    received_control_messages::Int64
end

const Handle = Ptr{Cvoid}

zero_version() = @ccall libzero.zero_version()::UInt32

# Before 1.0 a minor version may break the ABI.
function __init__()
    found = Int(zero_version())
    major, minor = found ÷ 10000, found ÷ 100 % 100
    (major, minor) == (ZERO_VERSION_MAJOR, ZERO_VERSION_MINOR) ||
        error("$libzero is version $major.$minor, zero.jl needs $ZERO_VERSION_MAJOR.$ZERO_VERSION_MINOR")
end

zero_build_info() = @ccall libzero.zero_build_info()::Cstring
zero_last_error() = @ccall libzero.zero_last_error()::Cstring
zero_status_name(status) = @ccall libzero.zero_status_name(status::Int32)::Cstring

zero_comm_create_solo(out, options = C_NULL) =
    @ccall libzero.zero_comm_create_solo(out::Ref{Handle}, options::Ptr{zero_comm_options})::Int32
zero_comm_create_local(out, name, rank, world, options = C_NULL) =
    @ccall libzero.zero_comm_create_local(out::Ref{Handle}, name::Cstring, rank::Int32, world::Int32, options::Ptr{zero_comm_options})::Int32
zero_comm_create_env(out, options = C_NULL) =
    @ccall libzero.zero_comm_create_env(out::Ref{Handle}, options::Ptr{zero_comm_options})::Int32
zero_comm_rank(comm) = @ccall libzero.zero_comm_rank(comm::Handle)::Int32
zero_comm_world(comm) = @ccall libzero.zero_comm_world(comm::Handle)::Int32
zero_comm_barrier(comm) = @ccall libzero.zero_comm_barrier(comm::Handle)::Int32
zero_comm_broadcast(comm, data, bytes, root) =
    @ccall libzero.zero_comm_broadcast(comm::Handle, data::Ptr{Cvoid}, bytes::Csize_t, root::Int32)::Int32
zero_comm_all_reduce(comm, data, count, dtype, operation) =
    @ccall libzero.zero_comm_all_reduce(comm::Handle, data::Ptr{Cvoid}, count::Csize_t, dtype::Int32, operation::Int32)::Int32
zero_comm_abort(comm, reason) = @ccall libzero.zero_comm_abort(comm::Handle, reason::Cstring)::Int32
zero_comm_free(comm) = @ccall libzero.zero_comm_free(comm::Handle)::Int32

zero_arena_alloc(comm, bytes, kind, out) =
    @ccall libzero.zero_arena_alloc(comm::Handle, bytes::Csize_t, kind::Int32, out::Ref{Ptr{Cvoid}})::Int32
zero_arena_free(arena) = @ccall libzero.zero_arena_free(arena::Ptr{Cvoid})::Int32

zero_create(out, comm, options = C_NULL) =
    @ccall libzero.zero_create(out::Ref{Handle}, comm::Handle, options::Ptr{zero_options})::Int32
zero_register_params(optim, options, params, count, group) =
    @ccall libzero.zero_register_params(optim::Handle, options::Ptr{zero_group_options}, params::Ptr{zero_param}, count::Csize_t, group::Ptr{Int32})::Int32
zero_bind_params(optim, data, grads, count) =
    @ccall libzero.zero_bind_params(optim::Handle, data::Ptr{Ptr{Cvoid}}, grads::Ptr{Ptr{Cvoid}}, count::Csize_t)::Int32
zero_free(optim) = @ccall libzero.zero_free(optim::Handle)::Int32

zero_group_set(optim, group, name, value) =
    @ccall libzero.zero_group_set(optim::Handle, group::Int32, name::Cstring, value::Float64)::Int32
zero_group_get(optim, group, name, value) =
    @ccall libzero.zero_group_get(optim::Handle, group::Int32, name::Cstring, value::Ref{Float64})::Int32
zero_param_set_trainable(optim, param, trainable) =
    @ccall libzero.zero_param_set_trainable(optim::Handle, param::Int64, trainable::Int32)::Int32

zero_broadcast_params(optim, root, stream = C_NULL) =
    @ccall libzero.zero_broadcast_params(optim::Handle, root::Int32, stream::Ptr{Cvoid})::Int32
zero_grad_ready(optim, param, grad, stream = C_NULL) =
    @ccall libzero.zero_grad_ready(optim::Handle, param::Int64, grad::Ptr{Cvoid}, stream::Ptr{Cvoid})::Int32
zero_reduce_grads(optim, grads, count, flags, stream = C_NULL) =
    @ccall libzero.zero_reduce_grads(optim::Handle, grads::Ptr{Ptr{Cvoid}}, count::Csize_t, flags::Int32, stream::Ptr{Cvoid})::Int32
zero_clip_grad_value(optim, max_value, stream = C_NULL) =
    @ccall libzero.zero_clip_grad_value(optim::Handle, max_value::Float64, stream::Ptr{Cvoid})::Int32
zero_clip_grad_norm(optim, params, count, max_norm, norm_type, norm, stream = C_NULL) =
    @ccall libzero.zero_clip_grad_norm(optim::Handle, params::Ptr{Int64}, count::Csize_t, max_norm::Float64, norm_type::Float64, norm::Ptr{Float64}, stream::Ptr{Cvoid})::Int32
zero_step(optim, options = C_NULL) =
    @ccall libzero.zero_step(optim::Handle, options::Ptr{zero_step_options})::Int32
zero_step_result(optim, result) =
    @ccall libzero.zero_step_result(optim::Handle, result::Ref{zero_result})::Int32
zero_drop_grads(optim) = @ccall libzero.zero_drop_grads(optim::Handle)::Int32

zero_state_save(optim, directory, options = C_NULL) =
    @ccall libzero.zero_state_save(optim::Handle, directory::Cstring, options::Ptr{zero_save_options})::Int32
zero_state_load(optim, directory, options = C_NULL) =
    @ccall libzero.zero_state_load(optim::Handle, directory::Cstring, options::Ptr{zero_load_options})::Int32

zero_param_index(optim, name, index) =
    @ccall libzero.zero_param_index(optim::Handle, name::Cstring, index::Ref{Int64})::Int32
zero_partition_plan(params, count, world, options, plan) =
    @ccall libzero.zero_partition_plan(params::Ptr{zero_param}, count::Csize_t, world::Int32, options::Ptr{zero_options}, plan::Ref{zero_plan})::Int32
zero_stats(optim, statistics) =
    @ccall libzero.zero_stats(optim::Handle, statistics::Ref{zero_statistics})::Int32

struct Failure <: Exception
    status::Int32
    text::String
end
Base.showerror(io::IO, failure::Failure) = print(io, failure.text)

"A status as it is, or a Failure with the library's words."
function check(status)
    status >= 0 && return status
    name, text = unsafe_string(zero_status_name(status)), unsafe_string(zero_last_error())
    throw(Failure(status, "$name: $text"))
end

"A struct with the library's defaults, but for the fields that are given."
function made(T::Type; fields...)
    room = Ref{T}()
    @ccall memset(room::Ref{T}, 0::Cint, sizeof(T)::Csize_t)::Ptr{Cvoid}
    return with(room[]; struct_size = sizeof(T), fields...)
end

"A copy of a struct with other values for some fields."
with(value::T; fields...) where {T} = T((get(fields, name, getfield(value, name)) for name in fieldnames(T))...)

end
