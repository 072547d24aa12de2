/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ZERO_H
#define ZERO_H

/* libzero: ZeRO stage 1 for any training engine.
 *
 * Every rank of a group holds the same parameters and computes its own gradients. libzero splits
 * the optimizer state over the ranks. It reduces each gradient to the rank that owns it, updates
 * the owned share, and copies the new parameters to every rank:
 *
 *     zero_comm *comm;    zero_comm_create_env(&comm, NULL);
 *     zero_optim *optim;  zero_create(&optim, comm, NULL);
 *     zero_register_params(optim, NULL, params, count, NULL);
 *     zero_broadcast_params(optim, 0, NULL);
 *     for (int step = 0; step < 1000; step++) { forward_backward(); zero_step(optim, NULL); }
 *     zero_state_save(optim, "run/step-1000", NULL);
 *
 * This header is the short form. docs/calls.md has the full contract of each call. docs/gpu.md
 * describes what differs on GPUs, in CUDA graphs and over NCCL. A call named zero_VERB[_THINGS]
 * works on a whole optimizer; one named zero_THING_VERB works on a comm, group, parameter, gradient
 * or state.
 *
 *  1. A call that can fail returns a zero_status. 0 is ZERO_OK; positive means done, with news;
 *     negative means failed. zero_last_error() then gives the call, the cause and the remedy.
 *  2. A call that failed has changed nothing, and written no results, unless its comment names an
 *     exception. A call that aborted its comm may have written some of its results.
 *  3. Handles are opaque and checked in each call. A handle returned through `**out` is freed
 *     with its _free call, which ignores NULL and is local. Handles may be freed in any order.
 *  4. Structs begin with struct_size. ZERO_INIT(object) writes zeros and the size into any of
 *     them; then set fields. A zero field selects the default, which its comment shows in
 *     brackets. A struct_size that is larger than the library knows is accepted if the rest is
 *     zero.
 *  5. Every rank of the comm makes "collective" calls, in the same order, one at a time. "Local"
 *     calls wait for no other rank.
 *  6. One thread at a time uses a handle; a second thread's call returns ZERO_ERR_BUSY and has
 *     no effect. Any thread may call zero_comm_abort, zero_comm_failure, zero_param_wait and
 *     zero_grad_ready.
 *  7. Pointers are borrowed for the call, unless the comment says longer. Arrays are copied.
 *  8. No call waits without a deadline (zero_comm_options), except inside your own functions.
 *     On the host a call is complete when it returns, and `stream` is NULL. A GPU's work is
 *     queued on `stream`.
 *  9. A rank is a handle, not a process: threads may be ranks. A forked child has no handles.
 * 10. If a rank is at fault in a collective call, it gets its own code, and all others return
 *     ZERO_ERR_PEER with the same message. Nothing has changed, and the comm stays usable. A
 *     comm is aborted only by a death, a deadline, a broken order of calls or transport, or
 *     memory that runs out while others wait. Every later collective call then returns the
 *     first cause. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(ZERO_STATIC) || !defined(__GNUC__)
#define ZERO_API
#else
#define ZERO_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version, structs, errors, log -------------------------------------------------- */

#define ZERO_VERSION_MAJOR 0
#define ZERO_VERSION_MINOR 2
#define ZERO_VERSION_PATCH 0

/* The version of the loaded library: major * 10000 + minor * 100 + patch. */
ZERO_API uint32_t zero_version(void);

/* One line of "key: value; ..." with comms, devices and instruction sets. Static storage. */
ZERO_API const char *zero_build_info(void);

/* Write zeros and struct_size into any struct of this header. `object` may be any lvalue. */
#define ZERO_INIT(object) zero_init_object(&(object), sizeof(object))
static inline void zero_init_object(void *object, size_t bytes)
{
    memset(object, 0, bytes);
    memcpy(object, &bytes, sizeof bytes);
}

typedef int32_t zero_status;
enum {
    ZERO_OK = 0,
    ZERO_SKIPPED = 1,             /* done: all ranks agreed to skip the update                    */
    /* The caller's errors. The call had no effect. */
    ZERO_ERR_ARGUMENT = -1,       /* a wrong argument, handle, struct_size or setting             */
    ZERO_ERR_STATE = -2,          /* a valid call at the wrong moment                             */
    ZERO_ERR_BUSY = -3,           /* another thread is inside this handle, or a save has begun    */
    ZERO_ERR_FORKED = -4,         /* the handle was created before this process forked            */
    ZERO_ERR_UNSUPPORTED = -5,    /* not in this build, on this device, or with this comm         */
    ZERO_ERR_MEMORY = -6,         /* memory ran out                                               */
    ZERO_ERR_MISMATCH = -7,       /* this rank's arguments or registrations differ                */
    ZERO_ERR_PEER = -8,           /* another rank failed: the message names it and the cause      */
    /* Checkpoints. */
    ZERO_ERR_CKPT_IO = -9,        /* the operating system refused a file operation                */
    ZERO_ERR_CKPT_INVALID = -10,  /* missing, incomplete, damaged or not a checkpoint             */
    ZERO_ERR_CKPT_MISMATCH = -11, /* a valid checkpoint of another model or optimizer             */
    ZERO_ERR_NOT_LOADED = -12,    /* a load failed half way: load again before stepping           */
    /* The group. The comm is aborted (RENDEZVOUS: it never formed). */
    ZERO_ERR_RENDEZVOUS = -13,    /* the ranks did not find each other                            */
    ZERO_ERR_TIMEOUT = -14,       /* a rank made no progress before the deadline                  */
    ZERO_ERR_PEER_DEAD = -15,     /* a rank's process exited                                      */
    ZERO_ERR_DESYNC = -16,        /* the ranks made different calls                               */
    ZERO_ERR_COMM = -17,          /* the transport failed, or a user comm's function did          */
    ZERO_ERR_ABORTED = -18,       /* zero_comm_abort was called                                   */
    /* All other errors. */
    ZERO_ERR_SYSTEM = -19,        /* the operating system or a device refused a request           */
    ZERO_ERR_NONFINITE = -20,     /* gradients are not finite, and ZERO_NONFINITE_ERROR is set    */
    ZERO_ERR_CALLBACK = -21,      /* zero_custom_optimizer.update failed, and nothing changed     */
    ZERO_ERR_INTERRUPTED = -22,   /* zero_set_interrupt_callback's function ended a wait          */
    ZERO_ERR_INTERNAL = -99       /* a bug in libzero: please report it                           */
};

/* Why the last failing call on this thread failed, after its name: "zero_step: ...". At most 4,095
 * bytes of UTF-8, valid until the next failing call on this thread; "" before the first one. */
ZERO_API const char *zero_last_error(void);

/* "ZERO_ERR_PEER_DEAD" and so on. Static storage. */
ZERO_API const char *zero_status_name(zero_status status);

enum { ZERO_LOG_ERROR = 1, ZERO_LOG_WARNING = 2, ZERO_LOG_INFO = 3 };
typedef void (*zero_log_fn)(void *ctx, int32_t level, const char *message);
typedef int32_t (*zero_interrupt_fn)(void *ctx);

/* Send messages up to `max_level` to `log`, for the whole process. NULL, the initial value, turns
 * this off: the library then prints only if ZERO_LOG is set. ZERO_LOG=error, warning or info in the
 * environment prints messages up to that level on standard error. `log` runs inside libzero calls,
 * must return, and must not call libzero; `message` is valid until it returns. `ctx` must stay
 * valid until another function is set and no call is in flight. */
ZERO_API zero_status zero_set_log_callback(zero_log_fn log, void *ctx, int32_t max_level);

/* Let `ask` interrupt the main thread, as for Ctrl-C, while it waits for other ranks or runs a
 * save, load or prune. libzero calls `ask` every 50 ms; it must not call libzero. Any result but 0
 * ends the call and the comm: this rank's call returns ZERO_ERR_INTERRUPTED, the others'
 * ZERO_ERR_ABORTED. NULL, the initial value, turns this off. `ctx` stays valid as above. */
ZERO_API zero_status zero_set_interrupt_callback(zero_interrupt_fn ask, void *ctx);

/* ---- Comm: one rank's handle on a group of ranks ------------------------------------ */

typedef struct zero_comm zero_comm;

/* The device of a comm's arenas and of the tensors that its optimizers train. All other memory is
 * on the host. */
enum { ZERO_DEVICE_HOST = 0, ZERO_DEVICE_CUDA = 1 };

/* A device_ordinal for zero_comm_create_env: this rank's index among the ranks of its host. */
#define ZERO_ORDINAL_LOCAL_RANK (-1)

typedef struct zero_comm_options {
    size_t struct_size;
    int64_t timeout_ms;         /* limit without progress, all ranks in the call  (300,000)       */
    int64_t late_ms;            /* limit for a live rank to enter the call        (1,800,000)     */
    int64_t rendezvous_ms;      /* limit for all ranks to find each other         (120,000)       */
    int32_t device;             /* ZERO_DEVICE_*                                  (HOST)          */
    int32_t device_ordinal;     /* the device, as this process numbers them       (0)             */
    int32_t reduce_ctas;        /* nccl comms: thread blocks per reduction, 1 to 64 (16)          */
    int32_t gather_on_kernels;  /* nccl comms: 1 gathers by kernels, no copy engine (0)           */
} zero_comm_options;

/* A group of one rank: no communication, with the same code path and files as other comms. */
ZERO_API zero_status zero_comm_create_solo(zero_comm **out, const zero_comm_options *options);

/* Join the `world` ranks (1 to 1,024) of this host that pass the same `name`: processes or threads
 * of one user, all on the host or all on GPUs. ZERO_ERR_RENDEZVOUS names the ranks that did not
 * arrive within rendezvous_ms, and the place where this rank looked. Collective. */
ZERO_API zero_status zero_comm_create_local(zero_comm **out, const char *name, int32_t rank,
                                            int32_t world, const zero_comm_options *options);

/* Join the ranks that the launcher started: zero-run, torchrun, Open MPI, MPICH or Slurm. The first
 * complete set of their variables counts. Without one, or in a world of one, the comm is solo.
 * Otherwise it is local on one host, or mpi on several hosts if the launcher provides MPI; libzero
 * initializes MPI if it is not initialized. On GPUs it is local or nccl. ZERO_ERR_ARGUMENT names a
 * variable that is wrong or missing. Collective. */
ZERO_API zero_status zero_comm_create_env(zero_comm **out, const zero_comm_options *options);

/* Your own collectives, on host memory. Each function gets `ctx` first and returns ZERO_OK or a
 * negative code, which aborts this rank's comm (ZERO_ERR_COMM). It must return and must not throw.
 * Calls have the same order and the same sizes on every rank, and never 0 bytes; `stream` is NULL.
 * Buffers overlap only if `send` is this rank's own part of `recv`. */
typedef struct zero_comm_functions {
    size_t struct_size;
    /* Required. Gather `bytes` bytes of host memory of every rank into `recv`, in rank order. */
    zero_status (*exchange)(void *ctx, const void *send, void *recv, size_t bytes);
    /* Required. Gather `bytes` bytes of every rank's `send` into `recv`, in rank order. */
    zero_status (*all_gather)(void *ctx, const void *send, void *recv, size_t bytes, void *stream);
    /* Either this or the next is required. Send the r-th `bytes` of `send` to rank r; `recv`
     * receives one part from each rank, in rank order. libzero then sums, with the same bits as
     * other comms. */
    zero_status (*all_to_all)(void *ctx, const void *send, void *recv, size_t bytes, void *stream);
    /* Sum over ranks and write this rank's `count` elements (ZERO_FLOAT32 or _FLOAT64) to `recv`.
     * `send` has `count` elements for each rank, in rank order. You choose the order of the sum. */
    zero_status (*reduce_scatter)(void *ctx, const void *send, void *recv, size_t count,
                                  int32_t dtype, void *stream);
    /* Optional. Make the ctx of the sub-group of this `color`, in which this rank is `rank` of
     * `world`. With a negative color both are 0, and the function makes no ctx. Every rank of the
     * parent calls it. */
    zero_status (*split)(void *ctx, int32_t color, int32_t rank, int32_t world, void **child_ctx);
    /* Optional. Called once for each ctx, after its comm and every object made on that comm are
     * freed. */
    void (*free)(void *ctx);
} zero_comm_functions;

/* Create a comm from these functions. `functions` is copied; `ctx` must stay valid until `free` is
 * called. Local: the ranks first communicate in the first collective call. */
ZERO_API zero_status zero_comm_create_user(zero_comm **out, const zero_comm_functions *functions,
                                           void *ctx, int32_t rank, int32_t world,
                                           const zero_comm_options *options);

/* Write an id of ZERO_NCCL_ID_BYTES bytes to `id`. Ranks that pass it to zero_comm_create_nccl form
 * one group. One rank creates it and sends it to the others by your own means. ZERO_ERR_UNSUPPORTED
 * names the places where libzero looked for NCCL (2.27.3 or later). Local. */
enum { ZERO_NCCL_ID_BYTES = 128 };
ZERO_API zero_status zero_nccl_unique_id(void *id);

/* Join the `world` ranks that pass the same `id`, on any number of hosts. Each rank uses its own
 * GPU. Sums have NCCL's order. Collective. */
ZERO_API zero_status zero_comm_create_nccl(zero_comm **out, const void *id, int32_t rank,
                                           int32_t world, const zero_comm_options *options);

/* The same for the ranks of your ncclComm_t, on its GPU. libzero splits two communicators off it
 * and leaves yours to you. Collective over all its ranks. */
ZERO_API zero_status zero_comm_wrap_nccl(zero_comm **out, void *nccl_comm,
                                         const zero_comm_options *options);

/* Join the ranks of the MPI communicator at `mpi_comm`, on any number of hosts. It is an MPI_Comm
 * or a Fortran integer; libzero tells them apart by `mpi_comm_bytes`, its sizeof. NULL selects all
 * ranks of MPI. libzero duplicates the communicator and leaves yours to you. Ranks of one host get
 * a local comm. libzero uses the MPI that this process has loaded and initialized: one with the
 * standard ABI, or another through zero-mpi-shim (docs/clusters.md). Below MPI_THREAD_SERIALIZED,
 * only the thread that initialized MPI makes collective calls. ZERO_ERR_UNSUPPORTED names the
 * missing part. Collective. */
ZERO_API zero_status zero_comm_create_mpi(zero_comm **out, const void *mpi_comm,
                                          size_t mpi_comm_bytes, const zero_comm_options *options);

/* Split `comm` into sub-groups of the ranks that pass the same `color`, ordered by `key`, then by
 * rank. With a negative color this rank joins no group: ZERO_OK, and `*out` is NULL. All ranks get
 * their comm, or the call fails on all. `comm` may be freed first. Collective on `comm`. */
ZERO_API zero_status zero_comm_split(zero_comm **out, zero_comm *comm, int32_t color, int32_t key);

/* This rank's position in its group, and the group's size; negative for a bad handle. Local. */
ZERO_API int32_t zero_comm_rank(const zero_comm *comm);
ZERO_API int32_t zero_comm_world(const zero_comm *comm);

/* Return once every rank has called. Collective. */
ZERO_API zero_status zero_comm_barrier(zero_comm *comm);

/* Copy `bytes` bytes at `data` from `root` to every rank, for small values. Collective. */
ZERO_API zero_status zero_comm_broadcast(zero_comm *comm, void *data, size_t bytes, int32_t root);

/* Element types. Gradients and trained parameters are floating; all-reduces accept the first 4. */
enum {
    ZERO_FLOAT32 = 1, ZERO_FLOAT64 = 2, ZERO_INT32 = 3, ZERO_INT64 = 4,
    ZERO_BFLOAT16 = 5, ZERO_FLOAT16 = 6
};
enum { ZERO_SUM = 1, ZERO_MIN = 2, ZERO_MAX = 3 };

/* Combine `count` elements at `data` over all ranks, in rank order, in place. Every rank gets the
 * same bits. NaN wins in ZERO_MIN and ZERO_MAX; integer sums wrap. Collective. */
ZERO_API zero_status zero_comm_all_reduce(zero_comm *comm, void *data, size_t count, int32_t dtype,
                                          int32_t operation);

/* Break the comm: on every rank, every collective call on it, running or later, returns
 * ZERO_ERR_ABORTED with `reason`, which may be NULL. A user comm breaks only on this rank.
 * Local. */
ZERO_API zero_status zero_comm_abort(zero_comm *comm, const char *reason);

typedef struct zero_failure {
    size_t struct_size;
    zero_status status;        /* ZERO_OK while the comm is intact                                */
    int32_t rank;              /* the rank whose death, absence or abort broke it, or -1          */
    int64_t step;              /* steps done by then, on the rank that found out                  */
    int32_t params_consistent; /* 1: the last step happened completely or not at all; 0: perhaps
                                  partly, so load before you continue                             */
    char phase[32];            /* "zero_step: publish"                                            */
    char text[512];            /* as in zero_last_error, without the call's name                  */
} zero_failure;

/* Report the failure that broke the comm; the same on every rank, except for params_consistent.
 * Local. */
ZERO_API zero_status zero_comm_failure(const zero_comm *comm, zero_failure *failure);

/* Record what this rank does, and which ranks it waits for, in its own file in `directory`, which
 * is created if necessary. The file holds trace events for Perfetto, chrome://tracing and
 * `zero trace`. No call waits for the disk: events that do not fit are dropped and counted.
 * ZERO_TRACE=DIRECTORY in the environment starts a trace of each comm. ZERO_ERR_STATE during a
 * trace. Local. */
ZERO_API zero_status zero_trace_start(zero_comm *comm, const char *directory);

/* End the trace. The end of the comm does so too; a program that exits before either loses up to 50
 * ms of the trace. ZERO_ERR_SYSTEM if the file is incomplete. Local. */
ZERO_API zero_status zero_trace_stop(zero_comm *comm);

/* Leave the group. This takes effect once the comm's optimizers and arenas are freed too; then the
 * other ranks' collective calls fail and name this rank. Local. */
ZERO_API zero_status zero_comm_free(zero_comm *comm);

/* ---- Memory ------------------------------------------------------------------------- */

enum {
    ZERO_MEMORY_PER_RANK = 1, /* one copy per rank: gradients, or a private copy of parameters    */
    ZERO_MEMORY_SHARED = 2    /* one copy for all ranks of a local comm on the host: parameters   */
};

/* Allocate `bytes` zeroed bytes (the same number on every rank), aligned to 64 bytes or more.
 * libzero reduces and updates in place there. Between calls, either one rank writes SHARED memory
 * or all ranks write the same bytes; after zero_broadcast_params all ranks may read it. Your own
 * memory works too, but costs copies, which zero_stats counts. Collective. */
ZERO_API zero_status zero_arena_alloc(zero_comm *comm, size_t bytes, int32_t kind, void **out);

/* Release this rank's hold on memory from zero_arena_alloc. The memory is freed once no optimizer
 * has a tensor registered in it. NULL is ignored. Local. */
ZERO_API zero_status zero_arena_free(void *arena);

/* ---- Build an optimizer ------------------------------------------------------------- */

/* One model's sharded optimizer state on one rank. */
typedef struct zero_optim zero_optim;

/* The update rules, with the formulas of torch.optim; LION, LAMB, LARS, ADAN and ADEMAMIX follow
 * their papers. docs/optimizers.md and zero_rule_info list their settings and defaults. */
enum {
    ZERO_OPTIMIZER_ADAMW = 0, ZERO_OPTIMIZER_ADAM = 1, ZERO_OPTIMIZER_SGD = 2,
    ZERO_OPTIMIZER_RMSPROP = 3, ZERO_OPTIMIZER_ADAGRAD = 4, ZERO_OPTIMIZER_LION = 5,
    ZERO_OPTIMIZER_ADAMAX = 6, ZERO_OPTIMIZER_ADADELTA = 7, ZERO_OPTIMIZER_RADAM = 8,
    ZERO_OPTIMIZER_NADAM = 9, ZERO_OPTIMIZER_RPROP = 10, ZERO_OPTIMIZER_LAMB = 11,
    ZERO_OPTIMIZER_LARS = 12, ZERO_OPTIMIZER_ADAN = 13, ZERO_OPTIMIZER_ADEMAMIX = 14,
    ZERO_OPTIMIZER_CUSTOM = 100 /* zero_options.custom: your own function                         */
};

/* A rule's description. Its pointers are valid as long as the library is loaded. */
typedef struct zero_rule {
    size_t struct_size;
    const char *name;                  /* "adamw": its name in checkpoints                        */
    const char *const *setting_names;  /* in the order of docs/optimizers.md                      */
    const double *setting_defaults;
    const char *const *setting_ranges; /* as text: "in [0, 1)"                                    */
    size_t setting_count;
    const char *const *slots;          /* names of a parameter's state, if all settings are on    */
    const char *const *slot_settings;  /* the setting that turns each on, or NULL                 */
    size_t slot_count;
} zero_rule;

/* ZERO_ERR_ARGUMENT if there is no such rule. Local, from any thread. */
ZERO_API zero_status zero_rule_info(int32_t optimizer, zero_rule *rule);

/* The assignment of parameters to owners. An element's owner holds its state and updates it. */
enum {
    ZERO_PARTITION_EVEN = 0,            /* buckets split evenly in blocks of 1,024 elements       */
    ZERO_PARTITION_GREEDY = 1,          /* whole tensors, largest first, to the least loaded rank */
    ZERO_PARTITION_GREEDY_IN_ORDER = 2, /* the same without the sort                              */
    ZERO_PARTITION_MANUAL = 3           /* whole tensors, to zero_param.owner                     */
};

/* The effect of infinities and NaNs in the reduced gradient on a step. */
enum {
    ZERO_NONFINITE_IGNORE = 0, /* as in torch.optim, they reach the parameters; they are counted  */
    ZERO_NONFINITE_SKIP = 1,   /* all ranks skip the update and zero_step returns ZERO_SKIPPED    */
    ZERO_NONFINITE_ERROR = 2   /* all ranks skip it, and zero_step returns ZERO_ERR_NONFINITE     */
};

/* Parameters of 16 bits, and fp32 ones with share_dtype, are the rounding of an fp32 master, which
 * a step updates. The seal and zero_broadcast_params set masters from the parameters. */
enum {
    ZERO_MASTER_FLOAT32 = 0,   /* stored whole; the parameter is rounded to nearest, ties to even */
    ZERO_MASTER_REMAINDER = 1, /* bf16: stores only the 16 bits that it lacks; ties away from 0   */
    ZERO_MASTER_NONE = 2       /* no master: each step loses the bits that rounding cuts off      */
};

/* Ranks with different numbers of batches: see zero_join. */
enum {
    ZERO_UNEVEN_OFF = 0,    /* every rank makes every call                                        */
    ZERO_UNEVEN_WORLD = 1,  /* a mean divides by the number of ranks                              */
    ZERO_UNEVEN_ACTIVE = 2, /* a mean divides by the number of ranks that still have inputs       */
    ZERO_UNEVEN_ERROR = 3   /* all ranks stop with an error when the first runs out of inputs     */
};

/* The input of your own update rule: elements `first` to first + count - 1 of one parameter. Values
 * and slots are copies; they take effect once every rank's function has succeeded. */
typedef struct zero_update {
    size_t struct_size;
    int64_t param;                /* its number in order of registration                          */
    const char *name;
    const int64_t *shape;         /* of the whole parameter, `ndim` dimensions                    */
    int32_t ndim;
    int32_t dtype;                /* of the arrays: _FLOAT64 if the parameter is, or _FLOAT32     */
    int64_t first;
    int64_t count;                /* at least 1                                                   */
    void *values;                 /* in and out: the master, or the parameter if it has no master */
    void *gradient;               /* in: averaged, unscaled, clipped; you may write over it       */
    void *const *slots;           /* in and out: its state, in the declared order; zeros at first */
    size_t slot_count;
    int64_t step;                 /* of this parameter; 1 for its first step                      */
    double lr;                    /* of its group, times its lr_scale                             */
    double weight_decay;          /* its own, or its group's                                      */
    const char *const *setting_names; /* lr and weight_decay, as above, and the declared ones     */
    const double *setting_values;
    size_t setting_count;
    char *message;                /* out: why it failed, UTF-8 with a NUL; "" at first            */
    size_t message_bytes;         /* room for it, including the NUL                               */
} zero_update;

enum { ZERO_CUSTOM_WHOLE_TENSORS = 1 }; /* each call gets a whole parameter                       */

/* Your own update rule. Once the ranks have agreed to make a step, zero_step calls `update` for
 * each range of elements that this rank owns and that has a gradient, one range at a time. Ranges
 * depend on world, partition and bucket_bytes. With ZERO_CUSTOM_WHOLE_TENSORS they are whole
 * tensors, which needs a partition that never cuts one. `update` returns ZERO_OK; for any other
 * value zero_step returns ZERO_ERR_CALLBACK on this rank and ZERO_ERR_PEER on the others, and
 * nothing has changed. `update` may call zero_group_get, zero_param_index, zero_owned_ranges,
 * zero_step_result, zero_stats and zero_last_error. Other calls on this optimizer, and collective
 * calls on its comm, return ZERO_ERR_BUSY. */
typedef struct zero_custom_optimizer {
    size_t struct_size;
    const char *name;                 /* 1 to 64 of A-Z a-z 0-9 _ - .                             */
    zero_status (*update)(void *ctx, const zero_update *update);
    void *ctx;                        /* passed to `update`; must stay valid until zero_free      */
    const char *const *slots;         /* names of its state: 1 to 64 of A-Z a-z 0-9 _             */
    size_t slot_count;                /* at most 8                                                */
    const char *const *setting_names; /* settings besides lr (1e-3) and weight_decay (0)          */
    const double *setting_values;     /* their defaults                                           */
    size_t setting_count;
    int32_t flags;                    /* ZERO_CUSTOM_*                                            */
    int32_t reserved;                 /* zero                                                     */
} zero_custom_optimizer;

typedef struct zero_options {
    size_t struct_size;
    int32_t optimizer;             /* ZERO_OPTIMIZER_*                               (ADAMW)      */
    int32_t partition;             /* ZERO_PARTITION_*                               (EVEN)       */
    int64_t bucket_bytes;          /* size of one transfer, at least 4,096           (33,554,432) */
    double max_grad_norm;          /* > 0: zero_step clips the total norm to this    (off)        */
    double grad_norm_type;         /* p of that norm: any p > 0, or INFINITY         (2)          */
    int32_t nonfinite;             /* ZERO_NONFINITE_*                               (IGNORE)     */
    int32_t threads;               /* for updates on this rank        (its part of the cores)     */
    const char *const *names;      /* settings for every group, each once: names ...              */
    const double *values;          /* ... and values                                              */
    size_t setting_count;
    int32_t master;                /* ZERO_MASTER_*                                  (FLOAT32)    */
    int32_t wire_dtype;            /* gradients travel as this: bf16 or fp16        (unchanged)   */
    double loss_scale;             /* initial dynamic loss scale, 2^-100 to 2^100        (off)    */
    double growth_factor;          /* multiplies the scale when it grows, at least 1 (2)          */
    double backoff_factor;         /* multiplies it after a skipped step, in (0, 1]  (0.5)        */
    int64_t growth_interval;       /* steps without a skip after which it grows      (2,000)      */
    int32_t uneven_inputs;         /* ZERO_UNEVEN_*: whether ranks may zero_join     (OFF)        */
    int32_t share_dtype;           /* rounds fp32 parameters, see ZERO_MASTER_*     (unchanged)   */
    double predivide_factor;       /* power of 2: divides what travels, multiplies sums (1)       */
    const zero_custom_optimizer *custom; /* with ZERO_OPTIMIZER_CUSTOM; copied       (NULL)       */
    int32_t overlap_gather;        /* 1: zero_step returns early, see zero_param_wait (0)         */
    int32_t instances;             /* k: world / k ranks divide the state, see below (1)          */
} zero_options;

/* With k instances, each run of world / k neighbouring ranks forms one. Rank r owns the same share
 * as rank r % (world / k), so k ranks hold each share. Gradients of all ranks are summed, and an
 * owner sends parameters only within its instance. Results and checkpoints match a single instance.
 * Copies stay identical, bit for bit, so your own functions, the state that you set and gradients
 * that you pass as already reduced must be the same on all of them. A save compares the copies; it
 * returns ZERO_ERR_MISMATCH on ranks whose copies differ. More than one instance is refused
 * (ZERO_ERR_UNSUPPORTED) for parameters in ZERO_MEMORY_SHARED, over NCCL, and for GPUs that cannot
 * reach each other's memory. */

/* Create an empty optimizer on `comm`; NULL options select the defaults. Local, but every rank
 * creates its optimizers in the same order, with the same options except for `threads`. */
ZERO_API zero_status zero_create(zero_optim **out, zero_comm *comm, const zero_options *options);

typedef struct zero_group_options {
    size_t struct_size;
    const char *const *names; /* settings that differ from the optimizer's, each once             */
    const double *values;
    size_t setting_count;
} zero_group_options;

enum {
    ZERO_PARAM_ORDER = 1,        /* `order` is given                                              */
    ZERO_PARAM_PADDED = 2,       /* libzero may use up to the next multiple of 16 elements        */
    ZERO_PARAM_FROZEN = 4,       /* not trained until zero_param_set_trainable turns it on        */
    ZERO_PARAM_LR_SCALE = 8,     /* `lr_scale` is given                                           */
    ZERO_PARAM_WEIGHT_DECAY = 16 /* `weight_decay` is given                                       */
};

typedef struct zero_param {
    size_t struct_size;
    const char *name;     /* unique in the optimizer, UTF-8, 1 to 4,096 bytes                     */
    void *data;           /* dense; borrowed until zero_free or a new bind. NULL: bound later     */
    void *grad;           /* its gradient, same shape. NULL: passed per call, or no gradient      */
    const int64_t *shape; /* `ndim` dimensions, each >= 0; NULL with ndim 0 is a scalar           */
    int32_t ndim;         /* at most 16                                                           */
    int32_t dtype;        /* a floating type; any if frozen (FLOAT32)                             */
    int32_t owner;        /* its rank, in the first instance, with ZERO_PARTITION_MANUAL          */
    int32_t flags;        /* ZERO_PARAM_*                                                         */
    int64_t order;        /* position in the forward pass; later ones travel first (registration) */
    int32_t grad_dtype;   /* a floating type; set it if it differs from the parameter's   (dtype) */
    int32_t reserved;     /* zero                                                                 */
    double lr_scale;      /* with its flag: multiplies the group's lr                             */
    double weight_decay;  /* with its flag: replaces the group's value                            */
} zero_param;

/* Add `count` parameters as one group and write its number to `*group`, unless `group` is NULL.
 * Names, shapes and order are the same on every rank. May be called again, even after steps. On
 * failure no parameter is added: ZERO_ERR_ARGUMENT names the parameter and the fault. Local. */
ZERO_API zero_status zero_register_params(zero_optim *optim, const zero_group_options *options,
                                          const zero_param *params, size_t count, int32_t *group);

/* Set new addresses for all `count` registered parameters: `data`, `grads` or both (NULL keeps the
 * old ones). Copies nothing. ZERO_ERR_STATE while gradients are announced or reduced. Local. */
ZERO_API zero_status zero_bind_params(zero_optim *optim, void *const *data, void *const *grads,
                                      size_t count);

/* A tensor of the model that is not trained. Steps leave it alone; checkpoints include it. */
typedef struct zero_buffer {
    size_t struct_size;
    const char *name;     /* unique among buffers and parameters, UTF-8, 1 to 4,096 bytes         */
    void *data;           /* dense; borrowed until zero_free                                      */
    const int64_t *shape; /* `ndim` dimensions, each >= 0; NULL with ndim 0 is a scalar           */
    int32_t ndim;         /* at most 16                                                           */
    int32_t dtype;        /* any type above (FLOAT32)                                             */
} zero_buffer;

/* Add `count` buffers, the same on every rank. May be called again. On failure no buffer is added.
 * Local. */
ZERO_API zero_status zero_register_buffers(zero_optim *optim, const zero_buffer *buffers,
                                           size_t count);

/* Fix the owners of the registered tensors, compare the registration over all ranks, and allocate
 * the state. The first collective call after a registration does this implicitly. ZERO_ERR_MISMATCH
 * (ZERO_ERR_PEER on other ranks) names the first difference, with both sides. Collective. */
ZERO_API zero_status zero_seal(zero_optim *optim);

/* Free the optimizer and its state. Parameters keep their values. Local. */
ZERO_API zero_status zero_free(zero_optim *optim);

/* ---- Settings ----------------------------------------------------------------------- */

#define ZERO_ALL_GROUPS (-1)
/* Set one setting of one group, or of all present and future groups, from the next step on. Every
 * rank sets the same value (ZERO_ERR_MISMATCH). amsgrad and centered are fixed at registration.
 * Local.
 *
 * ZERO_ALL_GROUPS also has "loss_scale", 2^-100 to 2^100: gradients reduced after the call are
 * divided by it before any norm is computed. With zero_options.loss_scale each step adjusts it,
 * like torch's GradScaler: a step whose gradients are not all finite is skipped and lowers it. */
ZERO_API zero_status zero_group_set(zero_optim *optim, int32_t group, const char *name,
                                    double value);
ZERO_API zero_status zero_group_get(const zero_optim *optim, int32_t group, const char *name,
                                    double *value);

/* On a GPU: each step reads that setting from `data`, one number of `dtype` (ZERO_FLOAT32 or
 * ZERO_FLOAT64) in device memory. NULL restores the value of zero_group_set. Local. */
ZERO_API zero_status zero_group_set_from(zero_optim *optim, int32_t group, const char *name,
                                         const void *data, int32_t dtype);

/* Freeze parameter number `param` (`trainable` 0), or train it again (1), from the next step on.
 * Every rank passes the same value. A frozen parameter's gradient is ignored; its owner and state
 * stay. Local. */
ZERO_API zero_status zero_param_set_trainable(zero_optim *optim, int64_t param, int32_t trainable);

/* Assign all registered parameters to new owners: first the trained ones, then the frozen ones.
 * With ZERO_PARTITION_MANUAL, `owners` has one rank for each of `count` parameters, or is NULL to
 * keep the owners. State moves bit for bit. No other call changes owners. ZERO_ERR_STATE while
 * gradients are announced or reduced. Collective. */
ZERO_API zero_status zero_rebalance(zero_optim *optim, const int32_t *owners, size_t count,
                                    void *stream);

/* ---- Training loop ------------------------------------------------------------------ */

/* From zero_grad_ready, zero_reduce_grads or zero_step_begin until the end of the step, calls that
 * register, bind, broadcast or rebalance parameters, or that set, save or load state, return
 * ZERO_ERR_STATE. docs/integrate.md has the table. */

#define ZERO_ROOT_NONE (-1)
/* Copy every parameter from `root` to all ranks. ZERO_ROOT_NONE copies nothing and declares that
 * all ranks wrote the same values. If you forget both, the first step detects it
 * (ZERO_ERR_MISMATCH). If the call aborts the comm, all parameters except root's are unspecified.
 * Collective. */
ZERO_API zero_status zero_broadcast_params(zero_optim *optim, int32_t root, void *stream);

/* Copy every buffer from `root` to all ranks. Call it whenever your engine needs it. Collective. */
ZERO_API zero_status zero_broadcast_buffers(zero_optim *optim, int32_t root, void *stream);

enum {
    ZERO_REDUCE_MEAN = 0,      /* divide the sum by the number of ranks                           */
    ZERO_REDUCE_SUM = 1,
    ZERO_REDUCE_NONE = 2,      /* gradients are already reduced: each owner uses its own          */
    ZERO_REDUCE_ACCUMULATE = 4 /* with one of these: add to the sums of earlier calls with this   */
};

/* Announce during the backward pass that this rank's gradient of a parameter is final. `grad` is
 * the gradient, or NULL if there is no gradient. On local comms on the host, libzero sums it once
 * every rank has announced it, with the same bits. The next call that reduces uses the announced
 * gradients. Change neither gradient nor parameter until that call returns. Local; any number of
 * threads may call it at once. */
ZERO_API zero_status zero_grad_ready(zero_optim *optim, int64_t param, void *grad, void *stream);

/* Sum every gradient over the ranks, in rank order, to its owners, in fp32 (fp64 for ZERO_FLOAT64).
 * `grads` has one pointer for each of `count` parameters; NULL selects the registered ones. A NULL
 * entry means no gradient on this rank. If no rank has one, the parameter is not updated; if only
 * some ranks have one, the others count as zeros. After this call, gradients in arenas are
 * libzero's until zero_step or zero_drop_grads. A second reduction returns ZERO_ERR_STATE, unless
 * each call passes ZERO_REDUCE_ACCUMULATE, which adds up micro-batches and leaves gradients
 * unchanged. Collective. */
ZERO_API zero_status zero_reduce_grads(zero_optim *optim, void *const *grads, size_t count,
                                       int32_t flags, void *stream);

/* Clamp every element of the reduced gradients, unscaled and averaged, to [-max_value, max_value].
 * If no gradients are reduced, first reduce the registered ones to means. Collective. */
ZERO_API zero_status zero_clip_grad_value(zero_optim *optim, double max_value, void *stream);

/* Write the p-norm of all reduced gradients, taken as one vector, to `*norm` unless `norm` is NULL.
 * If it exceeds `max_norm`, scale them by max_norm / (norm + 1e-6). The norm has the same bits on
 * every rank, for every partition and instruction set. NULL `params` selects all; otherwise only
 * these `count` parameters are measured and scaled. Reduces first, as above. Collective. */
ZERO_API zero_status zero_clip_grad_norm(zero_optim *optim, const int64_t *params, size_t count,
                                         double max_norm, double norm_type, double *norm,
                                         void *stream);

typedef struct zero_step_options {
    size_t struct_size;
    void *const *grads;   /* as in zero_reduce_grads; not after a reduction (registered ones)     */
    size_t grad_count;
    int32_t reduce_flags; /* its flags (MEAN). ZERO_REDUCE_ACCUMULATE: add to earlier sums        */
    int32_t reserved;     /* zero                                                                 */
    void *stream;
} zero_step_options;

/* Reduce the gradients if they are not reduced, agree, clip (max_grad_norm), update the owned
 * share, and copy the new parameters to every rank. Until it returns, gradients and parameters are
 * libzero's. If it fails before the ranks have agreed, nothing has changed. A later failure aborts
 * the comm, and zero_comm_failure reports whether parameters are consistent. Collective. */
ZERO_API zero_status zero_step(zero_optim *optim, const zero_step_options *options);

/* Begin a step before the backward pass. On local comms an owner updates its part of a parameter,
 * and copies it to every rank, as soon as all ranks have announced its gradient. Do not read or
 * write a parameter after its announcement until zero_step, which does the rest, returns. The
 * results have the same bits as zero_step alone. A NULL in zero_grad_ready is an announcement too.
 * options->grads is NULL. ZERO_ERR_STATE for
 * features that need all gradients first: clipping, skipping, dynamic loss scaling, LAMB, LARS, and
 * custom rules. Collective. */
ZERO_API zero_status zero_step_begin(zero_optim *optim, const zero_step_options *options);

typedef struct zero_result {
    size_t struct_size;
    int64_t step;          /* steps done, without skipped ones; saved with the state              */
    int64_t skipped;       /* steps skipped since zero_create                                     */
    int64_t nonfinite;     /* elements that were not finite in the last reduced gradients         */
    double grad_norm;      /* of the last step, before clipping; -1 if no norm was computed       */
    double clip_factor;    /* the factor of clipping by the norm of all; 1 if not clipped         */
    zero_status status;    /* of the latest zero_step: ZERO_OK, ZERO_SKIPPED, or its error        */
    int32_t reserved;
    double loss_scale;     /* for the next loss; 1 without loss scaling                           */
} zero_result;

/* Report the outcome that the ranks agreed on in the last step done or skipped; it is the same on
 * every rank. Only `status` is local: it is the status of this rank's latest zero_step. This call
 * returns it too, and writes `*result` even if it is a failure. Local. */
ZERO_API zero_status zero_step_result(const zero_optim *optim, zero_result *result);

#define ZERO_ALL_PARAMS (-1)
/* Wait until parameter number `param` (ZERO_ALL_PARAMS: every one) has its value of the latest
 * zero_step and, like its gradient, may be read and written. With overlap_gather, zero_step returns
 * when the ranks have agreed, and the new parameters arrive later, in the order of the forward
 * pass. Other calls on the optimizer, and collective calls on its comm, wait for the whole step. A
 * failure breaks the comm; this call, zero_step_result and the next collective call return it. On a
 * GPU, `stream` waits. Local; from any thread. */
ZERO_API zero_status zero_param_wait(zero_optim *optim, int64_t param, void *stream);

/* Discard the reduced gradients. Unless every rank does so, the next collective call fails.
 * Local. */
ZERO_API zero_status zero_drop_grads(zero_optim *optim);

/* A step by hand: call zero_reduce_grads, then zero_grad_get, write new values into the owned
 * elements of this rank's own parameters, and call zero_share_params. */

/* Copy elements `first` to first + count - 1 of a parameter's reduced gradient, which this rank
 * owns, into `values`: double for ZERO_FLOAT64 parameters, else float. Local. */
ZERO_API zero_status zero_grad_get(const zero_optim *optim, int64_t param, int64_t first,
                                   int64_t count, void *values);

enum { ZERO_SHARE_KEEP_MASTERS = 1 }; /* do not set masters from the parameters                   */

/* Copy this rank's owned ranges from its own parameters to every rank. Counts no step; discards the
 * reduced gradients. Collective. */
ZERO_API zero_status zero_share_params(zero_optim *optim, int32_t flags, void *stream);

typedef struct zero_join_options {
    size_t struct_size;
    void *const *grads; /* of an unfinished step: they count in the first reduction (NULL)        */
    size_t grad_count;
    void *stream;
} zero_join_options;

/* Call this when a rank runs out of inputs. It joins the other ranks' collective calls on this
 * optimizer, contributing zero gradients, until every rank has called it. It then copies the
 * buffers of the highest of the last ranks to join to all ranks, and writes that rank to
 * `*last_rank`, unless `last_rank` is NULL. Needs zero_options.uneven_inputs. Calls that need data
 * from a rank that has joined return ZERO_ERR_STATE on all ranks. Collective with any call on this
 * optimizer. */
ZERO_API zero_status zero_join(zero_optim *optim, const zero_join_options *options,
                               int32_t *last_rank);

/* ---- State -------------------------------------------------------------------------- */

enum { ZERO_SAVE_REPLACE = 1 };       /* replace an old checkpoint, in one atomic exchange        */
typedef struct zero_save_options {
    size_t struct_size;
    int32_t flags; /* ZERO_SAVE_*                                                                 */
    int32_t reserved;
} zero_save_options;

/* Save parameters, rank 0's buffers, state, settings and step as the checkpoint `directory` (the
 * same path on every rank): safetensors files and a manifest, for any number of ranks. It appears
 * complete or not at all, and is on stable storage when the call returns ZERO_OK. ZERO_ERR_CKPT_IO
 * names the file, the operation and the reason; the comm stays usable. ZERO_SAVE_REPLACE replaces
 * the checkpoint that was there when the save began; ZERO_ERR_STATE if that has changed.
 * Collective. */
ZERO_API zero_status zero_state_save(zero_optim *optim, const char *directory,
                                     const zero_save_options *options);

/* Begin the same save, and write it while training continues. It saves the state at this moment, on
 * libzero's own threads. Data that a call is about to change is copied first, so this rank needs
 * memory for a copy of its part; libzero keeps that memory for the next save. Until
 * zero_state_save_wait, change parameters only by calls on the optimizer: changes by your own code,
 * and by zero_comm_all_reduce and zero_comm_broadcast, may end up in the checkpoint. A second save
 * returns ZERO_ERR_BUSY. The checkpoint appears once all ranks have written and a later call on the
 * optimizer has found that out; a failure before then leaves the previous checkpoint. zero_free
 * drops an incomplete save. A save that is reported as failed never appears later, unless the
 * message says "outcome unknown": then rank 0 was already renaming. Collective. */
ZERO_API zero_status zero_state_save_begin(zero_optim *optim, const char *directory,
                                           const zero_save_options *options);

/* Write 1 to `*done` if collective calls on the optimizer have found that the save has ended, or
 * has failed on some rank. Otherwise write 0. The result is the same on all ranks, and only such
 * calls update it. Local. */
ZERO_API zero_status zero_state_save_poll(zero_optim *optim, int32_t *done);

/* Wait until the save in progress has ended, with the same results as zero_state_save. On ZERO_OK
 * the checkpoint is on stable storage; otherwise the status gives the reason. Collective. */
ZERO_API zero_status zero_state_save_wait(zero_optim *optim);

enum { ZERO_LOAD_KEEP_SETTINGS = 1 }; /* keep lr and the rest, and ignore the saved settings      */

typedef struct zero_load_options {
    size_t struct_size;
    int32_t flags; /* ZERO_LOAD_*                                                                 */
    int32_t reserved;
} zero_load_options;

/* Load the checkpoint `directory`, or the one with the highest step in a folder of checkpoints. Any
 * world size and any partition can load it, bit for bit. All files are verified before anything
 * changes: ZERO_ERR_CKPT_INVALID names the place of damage, ZERO_ERR_CKPT_MISMATCH every
 * difference. If reading fails after that, steps and saves return ZERO_ERR_NOT_LOADED until a load
 * succeeds. Collective. */
ZERO_API zero_status zero_state_load(zero_optim *optim, const char *directory,
                                     const zero_load_options *options);

/* Extras: your own bytes in a checkpoint, such as a random state or the position in the data. */

/* Include `count` bytes (copied) of this rank under `name`, UTF-8 of 1 to 255 bytes, in every later
 * save. They replace earlier bytes of that name; a NULL `bytes` with a `count` of 0 removes them. A
 * rank has at most 256 names and 16 MiB, a checkpoint 1 GiB from all ranks. Set a value on one rank
 * to make it available to all. Local. */
ZERO_API zero_status zero_state_extra_set(zero_optim *optim, const char *name, const void *bytes,
                                          size_t count);

/* After a load, in any world size, copy the bytes that `rank` of the saving ranks had set to
 * `bytes`, at most `capacity` of them, and write their number to `*count`. A load replaces this
 * rank's values with those saved by the same rank number. Set anything that should differ
 * afterwards. ZERO_ERR_ARGUMENT if nothing was loaded for that rank and name. Local. */
ZERO_API zero_status zero_state_extra_get(const zero_optim *optim, int32_t rank, const char *name,
                                          void *bytes, size_t capacity, size_t *count);

/* Write the ranks and names of all loaded extras, sorted, to `ranks` and `names`, at most
 * `capacity` of each, and their number to `*count`. Names are valid until the next load. Local. */
ZERO_API zero_status zero_state_extra_list(const zero_optim *optim, int32_t *ranks,
                                           const char **names, size_t capacity, size_t *count);

/* A complete checkpoint in a folder of checkpoints. */
typedef struct zero_checkpoint {
    size_t struct_size;
    int64_t step;
    int64_t bytes;    /* of all its files                                                         */
    int32_t world;    /* ranks that saved it                                                      */
    int32_t reserved;
    char name[256];   /* of its directory in the folder                                           */
} zero_checkpoint;

/* Write the complete checkpoints in the folder `directory` to `checkpoints`, at most `capacity` of
 * them, newest first, in the order in which zero_state_load prefers them; write their number to
 * `*count`. A missing folder has no checkpoints. Local, from any thread. */
ZERO_API zero_status zero_state_list(const char *directory, zero_checkpoint *checkpoints,
                                     size_t capacity, size_t *count);

/* Delete the complete checkpoints in the folder `directory`, except the newest `keep_last` (at
 * least 1) and the ones at steps that are multiples of `keep_every` (0: no others). Write the
 * number deleted to `*deleted`, unless `deleted` is NULL. The newest is first verified, byte by
 * byte; if it is damaged, nothing is deleted. Only checkpoints are ever deleted. One rank calls it
 * after a save. Local, from any thread. */
ZERO_API zero_status zero_state_prune(const char *directory, int64_t keep_last, int64_t keep_every,
                                      size_t *deleted);

/* Each parameter's state has torch's names: "exp_avg" and so on (docs/checkpoint-format.md), and
 * "master". NULL selects the updated values: the master, or the parameter itself. Elements are
 * double for ZERO_FLOAT64 parameters, integers for integers and float for all others. "step" is the
 * number of updates of a parameter (ZERO_ALL_PARAMS: the optimizer's own count). It and
 * "mu_product" of NADAM are one double each: `first` is 0, `count` is 1. */

/* Write the names of a parameter's existing state to `names`, at most `capacity` of them, their
 * number to `*count`, and their element type to `*dtype` unless `dtype` is NULL. The names are the
 * optimizer's, and the same on every rank. Local. */
ZERO_API zero_status zero_state_info(const zero_optim *optim, int64_t param, int32_t *dtype,
                                     const char **names, size_t capacity, size_t *count);

/* Copy elements `first` to first + count - 1, which this rank owns, into `values`. Local. */
ZERO_API zero_status zero_state_get(const zero_optim *optim, int64_t param, const char *name,
                                    int64_t first, int64_t count, void *values);

/* Set those of these elements that this rank owns. Missing state is created, as zeros. Every rank
 * makes this call for the same parameters and names. Masters and values are also written to this
 * rank's own parameter; zero_share_params with ZERO_SHARE_KEEP_MASTERS then copies them to all
 * ranks. For a parameter in a ZERO_MEMORY_SHARED arena, this call returns ZERO_ERR_BUSY while a
 * save is written. Local. */
ZERO_API zero_status zero_state_set(zero_optim *optim, int64_t param, const char *name,
                                    int64_t first, int64_t count, const void *values);

#define ZERO_ALL_RANKS (-1)
/* Copy a whole tensor from its owners into `values`, which has room for its `count` elements, on
 * rank `to`, or on every rank for ZERO_ALL_RANKS. Collective. */
ZERO_API zero_status zero_state_gather(zero_optim *optim, int64_t param, const char *name,
                                       int32_t to, void *values, size_t count);

/* ---- Look inside -------------------------------------------------------------------- */

/* Write a parameter's number, its position in registration order, to `*index`. Local. */
ZERO_API zero_status zero_param_index(const zero_optim *optim, const char *name, int64_t *index);

/* Write the ranges that `rank` owns to `ranges`, at most `capacity` of them, as triples (parameter,
 * first element, count), and their number to `*count`. Local. */
ZERO_API zero_status zero_owned_ranges(const zero_optim *optim, int32_t rank, int64_t *ranges,
                                       size_t capacity, size_t *count);

#define ZERO_OWNER_SPLIT (-1)
typedef struct zero_plan {
    size_t struct_size;
    int64_t *offsets;         /* in:  NULL, or room for one byte offset per parameter             */
    int32_t *owners;          /* in:  NULL, or room for one rank per parameter, or _SPLIT         */
    int64_t *elements;        /* in:  NULL, or room for one count of owned elements per rank      */
    int64_t arena_bytes;      /* out: size of an arena with that layout                           */
    int64_t state_bytes;      /* out: of the busiest rank                                         */
    int64_t *grad_offsets;    /* in:  NULL, or room for one byte offset per gradient              */
    int64_t grad_arena_bytes; /* out: size of an arena of gradients with that layout              */
    const zero_comm *comm;    /* in:  the comm it is for, which may need less room (any)          */
} zero_plan;

/* Compute how an optimizer with these options would divide these parameters as one group, and a
 * layout that travels unpacked. To use it, put parameter i at offsets[i] of an arena and its
 * gradient at grad_offsets[i] of another, and register it with ZERO_PARAM_PADDED. Local. */
ZERO_API zero_status zero_partition_plan(const zero_param *params, size_t count, int32_t world,
                                         const zero_options *options, zero_plan *plan);

typedef struct zero_statistics {
    size_t struct_size;
    int64_t parameter_elements; /* registered                                                     */
    int64_t owned_elements;     /* the part that this rank owns                                   */
    int64_t state_bytes;        /* optimizer state on this rank                                   */
    int64_t staging_bytes;      /* for memory outside arenas, reduction and your own rules        */
    int64_t control_bytes;      /* tables that other ranks read                                   */
    int64_t copied_bytes;       /* into and out of staging and the host's memory                  */
    int64_t moved_bytes;        /* read and written by reducing, updating and publishing          */
    int64_t steps;
    int64_t skipped;
    int64_t nonfinite_elements; /* over all steps                                                 */
    double gather_seconds;
    double vote_seconds;        /* waiting for the other ranks                                    */
    double apply_seconds;
    double publish_seconds;
    double save_seconds;
    double load_seconds;
    int64_t early_elements;     /* of gradients summed before a call needed them                  */
    int64_t early_updates;      /* of parameters updated before their zero_step                   */
    int64_t host_waits;         /* on a GPU: how often calls made the host wait for a stream      */
    int64_t idle_ranks;         /* ranks that own nothing because the model is too small          */
    int64_t sent_data_bytes;    /* of the comm, to ranks of other hosts: gradients and parameters */
    int64_t sent_data_messages;
    int64_t received_data_bytes;
    int64_t received_data_messages;
    int64_t sent_control_bytes; /* the same, for agreement among ranks and for broadcasts         */
    int64_t sent_control_messages;
    int64_t received_control_bytes;
    int64_t received_control_messages;
} zero_statistics;

/* Statistics of this rank since zero_create. Local. */
ZERO_API zero_status zero_stats(const zero_optim *optim, zero_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif /* ZERO_H */
