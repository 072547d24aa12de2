/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ZERO_H
#define ZERO_H

/* libzero: ZeRO stage 1 for any training engine.
 *
 * Every rank of a group holds the same parameters and computes its own gradients. libzero splits
 * the optimizer state over the ranks. It reduces each gradient to the rank that owns it, updates
 * the owned shard, and copies the new parameters to every rank:
 *
 *     zero_comm *comm;    zero_comm_create_env(&comm, NULL);
 *     zero_optim *optim;  zero_create(&optim, comm, NULL);
 *     zero_register_params(optim, NULL, params, count, NULL);
 *     zero_broadcast_params(optim, 0, NULL);
 *     for (int step = 0; step < 1000; step++) { forward_backward(); zero_step(optim, NULL); }
 *     zero_state_save(optim, "run/step-1000", NULL);
 *
 * The comments in this header define the contract of each call. docs/calls.md adds details, and
 * docs/gpu.md describes what differs on GPUs, in CUDA graphs and over NCCL. A call named
 * zero_VERB[_THINGS] works on a whole optimizer. A call named zero_THING_VERB works on a comm,
 * group, parameter, gradient or state.
 *
 *  1. A call that can fail returns a zero_status. ZERO_OK is 0. A positive status reports success
 *     with additional information, and a negative status reports failure. zero_last_error() then
 *     gives the call, the cause and the remedy.
 *  2. A call that failed has changed nothing and has written no results, unless its comment names
 *     an exception. A call that aborted its comm may have written some of its results.
 *  3. Handles are opaque, and each call checks them. A handle returned through `**out` is freed
 *     with its _free call, which is local and ignores NULL. Handles may be freed in any order. With
 *     a handle from another copy of the library, a call returns ZERO_ERR_ARGUMENT.
 *  4. Structs begin with struct_size. ZERO_INIT(object) fills a struct with zeros and sets its
 *     size; set the other fields after that. A field that is 0 selects the default, which the
 *     field's comment shows in parentheses. A struct_size that is larger than the library knows is
 *     accepted if the rest of the struct is zero. All structs in an array must have the same size
 *     as the first.
 *  5. Every rank of the comm must make its "collective" calls in the same order, and one at a time
 *     across all optimizers of the comm. "Local" calls wait for no other rank.
 *  6. Only one thread at a time may use a handle. A call from a second thread returns
 *     ZERO_ERR_BUSY and has no effect. Any thread may call zero_comm_abort, zero_comm_failure,
 *     zero_param_wait and zero_grad_ready at any time.
 *  7. libzero uses a pointer only until the call returns, unless the comment names a later time.
 *     Arrays are copied.
 *  8. No call waits without a deadline (zero_comm_options), except inside your own functions.
 *     On the host, `stream` is NULL, and the work of a call is complete when the call returns. On
 *     a GPU, a call queues its work on `stream`.
 *  9. A rank is a handle and not a process, so threads may be ranks. A forked child cannot use the
 *     handles of its parent.
 * 10. If a rank is at fault in a collective call, that rank returns its own status, and all other
 *     ranks return ZERO_ERR_PEER with the same message. Nothing has changed, and the comm remains
 *     usable. A comm is aborted only by the death of a rank, a missed deadline, a wrong order of
 *     calls, a failure of the transport, memory that runs out while others wait, or your own
 *     request. Every later collective call then returns the first cause. */

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

/* Return the version of the loaded library as major * 10000 + minor * 100 + patch. */
ZERO_API uint32_t zero_version(void);

/* Return one line of "key: value; ..." that lists the comms, devices and instruction sets of this
 * build, and the instruction set that this machine uses. The string has static storage. */
ZERO_API const char *zero_build_info(void);

/* Fill a struct of this header with zeros and set its struct_size. `object` may be any lvalue. */
#define ZERO_INIT(object) zero_init_object(&(object), sizeof(object))
static inline void zero_init_object(void *object, size_t bytes)
{
    memset(object, 0, bytes);
    memcpy(object, &bytes, sizeof bytes);
}

typedef int32_t zero_status;
enum {
    ZERO_OK = 0,
    ZERO_SKIPPED = 1,             /* success: all ranks agreed to skip the update                 */
    /* Errors of the caller. The call had no effect. */
    ZERO_ERR_ARGUMENT = -1,       /* a wrong argument, handle, struct_size or setting             */
    ZERO_ERR_STATE = -2,          /* a valid call at the wrong moment                             */
    ZERO_ERR_BUSY = -3,           /* another thread uses this handle, or a save is in progress    */
    ZERO_ERR_FORKED = -4,         /* the handle was created before this process forked            */
    ZERO_ERR_UNSUPPORTED = -5,    /* this build, device or comm does not support the request      */
    ZERO_ERR_MEMORY = -6,         /* memory ran out                                               */
    ZERO_ERR_MISMATCH = -7,       /* this rank's arguments or registrations differ from others'   */
    ZERO_ERR_PEER = -8,           /* another rank failed: the message names it and the cause      */
    /* Checkpoint errors. */
    ZERO_ERR_CKPT_IO = -9,        /* the operating system refused a file operation                */
    ZERO_ERR_CKPT_INVALID = -10,  /* missing, incomplete, damaged or not a checkpoint             */
    ZERO_ERR_CKPT_MISMATCH = -11, /* a valid checkpoint of another model or optimizer             */
    ZERO_ERR_NOT_LOADED = -12,    /* a load failed halfway: load again before the next step       */
    /* Errors of the group. The comm is aborted or, with RENDEZVOUS, was not formed. */
    ZERO_ERR_RENDEZVOUS = -13,    /* the ranks did not find each other                            */
    ZERO_ERR_TIMEOUT = -14,       /* a rank made no progress before the deadline                  */
    ZERO_ERR_PEER_DEAD = -15,     /* a rank's process exited                                      */
    ZERO_ERR_DESYNC = -16,        /* the ranks made different calls                               */
    ZERO_ERR_COMM = -17,          /* the transport or a function of a user comm failed            */
    ZERO_ERR_ABORTED = -18,       /* zero_comm_abort was called                                   */
    /* All other errors. */
    ZERO_ERR_SYSTEM = -19,        /* the operating system or a device refused a request           */
    ZERO_ERR_NONFINITE = -20,     /* gradients are not finite, and ZERO_NONFINITE_ERROR is set    */
    ZERO_ERR_CALLBACK = -21,      /* zero_custom_optimizer.update failed, and nothing has changed */
    ZERO_ERR_INTERRUPTED = -22,   /* the interrupt callback of this rank ended the call           */
    ZERO_ERR_INTERNAL = -99       /* a bug in libzero: please report it                           */
};

/* Return the name of the last call that failed on this thread, and the reason for the failure:
 * "zero_step: ...". The text has at most 4,095 bytes of UTF-8, and is valid until the next failing
 * call on this thread. Before the first failure it is "". */
ZERO_API const char *zero_last_error(void);

/* Return the name of a status, such as "ZERO_ERR_PEER_DEAD". The string has static storage. */
ZERO_API const char *zero_status_name(zero_status status);

enum { ZERO_LOG_ERROR = 1, ZERO_LOG_WARNING = 2, ZERO_LOG_INFO = 3 };
typedef void (*zero_log_fn)(void *ctx, int32_t level, const char *message);
typedef int32_t (*zero_interrupt_fn)(void *ctx);

/* Send messages up to `max_level` to `log`, for the whole process. `log` runs inside libzero calls.
 * It must return, and it must not call libzero. `message` is valid until `log` returns. `ctx` must
 * stay valid until another function has been set and no call is in flight. NULL, the initial value,
 * removes the callback; the library then prints messages only if ZERO_LOG is set in the
 * environment. ZERO_LOG=error, warning or info prints messages up to that level on standard error.
 * A callback overrides ZERO_LOG. */
ZERO_API zero_status zero_set_log_callback(zero_log_fn log, void *ctx, int32_t max_level);

/* Let `ask` interrupt the main thread of the process, for example after Ctrl-C, while that thread
 * waits for other ranks or runs a save, load or prune. libzero calls `ask` every 50 ms. `ask` must
 * return, and it must not call libzero. Any result except 0 ends the call and the comm: the call
 * returns ZERO_ERR_INTERRUPTED on this rank and ZERO_ERR_ABORTED on the other ranks. NULL, the
 * initial value, removes the callback. `ctx` must stay valid until another function has been set
 * and no call is in flight. */
ZERO_API zero_status zero_set_interrupt_callback(zero_interrupt_fn ask, void *ctx);

/* ---- Comm: one rank's handle to a group of ranks ------------------------------------ */

typedef struct zero_comm zero_comm;

/* The device that holds a comm's arenas and the tensors that its optimizers train. All other memory
 * is host memory. */
enum { ZERO_DEVICE_HOST = 0, ZERO_DEVICE_CUDA = 1 };

/* A device_ordinal for zero_comm_create_env: the index of this rank among the ranks of its host. */
#define ZERO_ORDINAL_LOCAL_RANK (-1)

typedef struct zero_comm_options {
    size_t struct_size;
    int64_t timeout_ms;         /* limit without progress once every rank called  (300,000)       */
    int64_t late_ms;            /* limit for a live rank to enter the call        (1,800,000)     */
    int64_t rendezvous_ms;      /* limit for all ranks to find each other         (120,000)       */
    int32_t device;             /* ZERO_DEVICE_*                                  (HOST)          */
    int32_t device_ordinal;     /* number of the device in this process           (0)             */
    int32_t reduce_ctas;        /* nccl comms: thread blocks per reduction, 1 to 64 (16)          */
    int32_t gather_on_kernels;  /* nccl comms: 1 gathers with kernels, not copy engines (0)       */
} zero_comm_options;

/* Create a group of one rank. It does not communicate, but it uses the same code path and writes
 * the same files as other comms. */
ZERO_API zero_status zero_comm_create_solo(zero_comm **out, const zero_comm_options *options);

/* Join the `world` ranks (1 to 1,024) of this host that pass the same `name`, which must not be
 * empty. The ranks are processes or threads of one user, and all of them must select the same type
 * of device. If ranks do not arrive within rendezvous_ms, the call returns ZERO_ERR_RENDEZVOUS and
 * names these ranks, and the user, network namespace and name that this rank used. It returns this
 * status at once if a rank dies, joins twice, passes a different `world` or has a different libzero
 * version, or if another user holds the name. If the operating system refuses a request of one
 * rank, that rank returns ZERO_ERR_SYSTEM or ZERO_ERR_MEMORY. The other ranks return
 * ZERO_ERR_RENDEZVOUS. Collective. */
ZERO_API zero_status zero_comm_create_local(zero_comm **out, const char *name, int32_t rank,
                                            int32_t world, const zero_comm_options *options);

/* Join the ranks that a launcher has started: zero-run, torchrun, Open MPI, MPICH or Slurm. libzero
 * looks for the environment variables of these launchers in this order, and uses the first complete
 * set. Without a complete set, or in a world of one rank, the comm is solo. Otherwise the comm is
 * local if all ranks are on one host, and mpi if they are on several hosts and the launcher
 * provides MPI. On GPUs the comm is local or nccl. If the program has not initialized MPI, libzero
 * initializes it, and finalizes it when the process exits.
 *
 * ZERO_TIMEOUT_MS, ZERO_LATE_MS and ZERO_RENDEZVOUS_MS in the environment replace zeros in
 * `options`. ZERO_ERR_ARGUMENT names a variable that is wrong or missing, or reports that no
 * variable distinguishes this job from other jobs. Collective. */
ZERO_API zero_status zero_comm_create_env(zero_comm **out, const zero_comm_options *options);

/* Your own collectives, on host memory. Each function receives `ctx` as its first argument. It
 * returns ZERO_OK or a negative code, which aborts this rank's comm with ZERO_ERR_COMM. It must
 * return, and it must not throw. libzero calls it in the thread that made the collective call, and
 * holds no lock during the call. The calls have the same order and the same sizes on every rank. No
 * size is 0, and `stream` is NULL. `send` and `recv` overlap only if `send` is this rank's own part
 * of `recv`. */
typedef struct zero_comm_functions {
    size_t struct_size;
    /* Required. Gather `bytes` bytes of host memory from every rank into `recv`, in rank order. */
    zero_status (*exchange)(void *ctx, const void *send, void *recv, size_t bytes);
    /* Required. Gather `bytes` bytes from every rank's `send` into `recv`, in rank order. */
    zero_status (*all_gather)(void *ctx, const void *send, void *recv, size_t bytes, void *stream);
    /* Either this function or reduce_scatter is required. Send block number r of `send` to rank r.
     * Each block has `bytes` bytes. Write the blocks that this rank receives to `recv`, in rank
     * order. libzero then computes the sums, which are bitwise identical to those of a local
     * comm. */
    zero_status (*all_to_all)(void *ctx, const void *send, void *recv, size_t bytes, void *stream);
    /* Sum `send` over all ranks, and write this rank's `count` elements of the sum to `recv`.
     * `send` has `count` elements for each rank, in rank order. `dtype` is ZERO_FLOAT32 or
     * ZERO_FLOAT64. You choose the order of the summation. */
    zero_status (*reduce_scatter)(void *ctx, const void *send, void *recv, size_t count,
                                  int32_t dtype, void *stream);
    /* Optional. Create the ctx of the sub-group with this `color`, in which this rank has number
     * `rank` and `world` is the number of ranks. If `color` is negative, `rank` and `world` are 0,
     * and the function creates no ctx. libzero calls this function on every rank of the parent. */
    zero_status (*split)(void *ctx, int32_t color, int32_t rank, int32_t world, void **child_ctx);
    /* Optional. Free a ctx. libzero calls this function once for each ctx, after the comm and every
     * object made on that comm have been freed. */
    void (*free)(void *ctx);
} zero_comm_functions;

/* Create a comm from these functions. `functions` is copied. `ctx` must stay valid until `free` is
 * called. Local: ranks do not communicate until the first collective call. */
ZERO_API zero_status zero_comm_create_user(zero_comm **out, const zero_comm_functions *functions,
                                           void *ctx, int32_t rank, int32_t world,
                                           const zero_comm_options *options);

/* Write a new id of ZERO_NCCL_ID_BYTES bytes to `id`. One rank of a group makes this call, and your
 * own code sends the id to the other ranks. The ranks that pass the id to zero_comm_create_nccl
 * form the group. Each group needs its own id. The message of ZERO_ERR_UNSUPPORTED lists the places
 * where libzero looked for NCCL (2.27.3 or later). Local. */
enum { ZERO_NCCL_ID_BYTES = 128 };
ZERO_API zero_status zero_nccl_unique_id(void *id);

/* Join the `world` ranks that pass the same `id`, on any number of hosts. Each rank uses its own
 * GPU, and `options` must select ZERO_DEVICE_CUDA. NCCL chooses the order of sums. The text of
 * ZERO_ERR_COMM includes NCCL's own message. Collective. */
ZERO_API zero_status zero_comm_create_nccl(zero_comm **out, const void *id, int32_t rank,
                                           int32_t world, const zero_comm_options *options);

/* Create an nccl comm of the ranks of your ncclComm_t, on the same GPU. libzero splits two
 * communicators from yours. It uses your communicator only during this call, and never aborts or
 * destroys it. Do not use the communicator for anything else during the call. The call returns
 * ZERO_ERR_ARGUMENT if `options` select another GPU. Collective over all ranks of the
 * communicator. */
ZERO_API zero_status zero_comm_wrap_nccl(zero_comm **out, void *nccl_comm,
                                         const zero_comm_options *options);

/* Join the ranks of an MPI communicator, on any number of hosts. `mpi_comm` points to an MPI_Comm
 * or to a Fortran integer. `mpi_comm_bytes` is the size of that object, and shows which of the two
 * it is. NULL selects all ranks of MPI. libzero uses a duplicate of the communicator. If all ranks
 * are on one host, they get a local comm.
 *
 * libzero uses the MPI that this process has loaded and initialized. An MPI without the standard
 * ABI needs zero-mpi-shim (docs/clusters.md). Below MPI_THREAD_SERIALIZED, only the thread that
 * initialized MPI may make collective calls.
 *
 * The call returns ZERO_ERR_STATE if MPI is not initialized or has been finalized, or if another
 * thread must make the call. It returns ZERO_ERR_ARGUMENT for MPI_COMM_NULL, an intercommunicator
 * or a wrong size. The message of ZERO_ERR_UNSUPPORTED names the missing part. The text of
 * ZERO_ERR_COMM includes MPI's own message. Collective. */
ZERO_API zero_status zero_comm_create_mpi(zero_comm **out, const void *mpi_comm,
                                          size_t mpi_comm_bytes, const zero_comm_options *options);

/* Split `comm` into one group for each `color`. The ranks of a group are ordered by `key`, and by
 * their rank in `comm` if keys are equal. A rank with a negative `color` joins no group: it returns
 * ZERO_OK and writes NULL to `*out`. Either all ranks get their comm, or the call fails on all
 * ranks. If a group does not form, `comm` remains usable; if NCCL or MPI fails to split, `comm` is
 * aborted. The new comm has its own ranks, deadlines and failures. `comm` may be freed first.
 * Collective on `comm`. */
ZERO_API zero_status zero_comm_split(zero_comm **out, zero_comm *comm, int32_t color, int32_t key);

/* Return this rank's number in its group, and the number of ranks in the group. With a bad handle,
 * these calls return a negative zero_status. They also work on an aborted comm. Local. */
ZERO_API int32_t zero_comm_rank(const zero_comm *comm);
ZERO_API int32_t zero_comm_world(const zero_comm *comm);

/* Wait until every rank has made this call. Collective. */
ZERO_API zero_status zero_comm_barrier(zero_comm *comm);

/* Copy `bytes` bytes at `data` from rank `root` to every rank. `bytes` and `root` must be the same
 * on every rank. This call is meant for small values. Collective. */
ZERO_API zero_status zero_comm_broadcast(zero_comm *comm, void *data, size_t bytes, int32_t root);

/* Element types. Gradients and trainable parameters have floating-point types. zero_comm_all_reduce
 * accepts only the first four types. */
enum {
    ZERO_FLOAT32 = 1, ZERO_FLOAT64 = 2, ZERO_INT32 = 3, ZERO_INT64 = 4,
    ZERO_BFLOAT16 = 5, ZERO_FLOAT16 = 6
};
enum { ZERO_SUM = 1, ZERO_MIN = 2, ZERO_MAX = 3 };

/* Combine the `count` elements at `data` over all ranks, element by element and in rank order. The
 * result replaces the elements at `data`, and is bitwise identical on every rank. In ZERO_MIN and
 * ZERO_MAX, NaN takes precedence over numbers. Integer sums wrap around. This call is meant for
 * small values. Collective. */
ZERO_API zero_status zero_comm_all_reduce(zero_comm *comm, void *data, size_t count, int32_t dtype,
                                          int32_t operation);

/* Abort the comm. On every rank, running and later collective calls on the comm return
 * ZERO_ERR_ABORTED with the text `reason`, which may be NULL. A user comm is aborted only on this
 * rank, and only after your running function has returned. A second abort has no effect. Local. */
ZERO_API zero_status zero_comm_abort(zero_comm *comm, const char *reason);

typedef struct zero_failure {
    size_t struct_size;
    zero_status status;        /* ZERO_OK while the comm is intact                                */
    int32_t rank;              /* the rank whose death, absence or abort broke it, or -1          */
    int64_t step;              /* steps done by then, on the rank that detected it                */
    int32_t params_consistent; /* 1: the last step happened completely or not at all; 0: perhaps
                                  partly, so load before you continue                             */
    char phase[32];            /* "zero_step: publish"                                            */
    char text[512];            /* as in zero_last_error, without the call's name                  */
} zero_failure;

/* Write the failure that aborted the comm to `*failure`. On local, nccl and mpi comms it is the
 * same on every rank, except for params_consistent, which describes this rank's own parameters.
 * Local. */
ZERO_API zero_status zero_comm_failure(const zero_comm *comm, zero_failure *failure);

/* Record what this rank does, and which ranks it waits for, in a file in `directory`. The directory
 * is created if its parent exists. The file holds trace events for Perfetto, chrome://tracing and
 * `zero trace`. No call waits for the disk: events that do not fit into memory are dropped and
 * counted. ZERO_TRACE=DIRECTORY in the environment starts a trace of each comm. The call returns
 * ZERO_ERR_SYSTEM if the file cannot be created, and ZERO_ERR_STATE during a trace. Local; any
 * thread may make this call at any time. */
ZERO_API zero_status zero_trace_start(zero_comm *comm, const char *directory);

/* End the trace, and complete the file within 10 s. A trace also ends with its comm. A program that
 * exits before the end of the trace loses up to 50 ms of events. The call returns ZERO_ERR_SYSTEM
 * if the file is incomplete, and ZERO_ERR_STATE if there is no trace. Local; any thread may make
 * this call at any time. */
ZERO_API zero_status zero_trace_stop(zero_comm *comm);

/* Leave the group. This takes effect once the comm's optimizers and arenas have been freed as well.
 * Collective calls of the other ranks then return ZERO_ERR_DESYNC and name this rank. Local. */
ZERO_API zero_status zero_comm_free(zero_comm *comm);

/* ---- Memory ------------------------------------------------------------------------- */

enum {
    ZERO_MEMORY_PER_RANK = 1, /* one copy per rank: gradients, or a private copy of parameters    */
    ZERO_MEMORY_SHARED = 2    /* one copy for all ranks of a local comm on the host: parameters   */
};

/* Allocate `bytes` bytes of zeroed memory, aligned to 64 bytes or more. `bytes` must be the same on
 * every rank, and must not be 0. libzero reduces gradients and updates parameters in place in this
 * memory. Between calls, SHARED memory may be written by one rank, or by all ranks with the same
 * bytes. After zero_broadcast_params all ranks may read it. You may also use your own memory, but
 * this costs copies, which zero_stats counts. Collective. */
ZERO_API zero_status zero_arena_alloc(zero_comm *comm, size_t bytes, int32_t kind, void **out);

/* Release this rank's reference to memory from zero_arena_alloc. If ranks are threads, each thread
 * frees the pointer that it got. The memory is freed once no optimizer has a tensor registered in
 * it. If this rank owns a parameter that another rank keeps in the arena, a step returns
 * ZERO_ERR_STATE once the memory has been freed on this rank. NULL is ignored. Local. */
ZERO_API zero_status zero_arena_free(void *arena);

/* ---- Build an optimizer ------------------------------------------------------------- */

/* The sharded optimizer state of one model on one rank. */
typedef struct zero_optim zero_optim;

/* The update rules. LION, LAMB, LARS, ADAN and ADEMAMIX follow their papers. All other rules use
 * the formulas of torch.optim. docs/optimizers.md describes the differences, and zero_rule_info
 * returns the range of each setting. zero_options, zero_group_options and zero_group_set take
 * settings by name. Every rule has the setting maximize, which is 0 by default. The other settings
 * have these defaults:
 *
 *   ADAMW    lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0.01, amsgrad 0
 *   ADAM     lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, amsgrad 0
 *   SGD      lr 1e-3, momentum 0, dampening 0, weight_decay 0, nesterov 0
 *   RMSPROP  lr 1e-2, alpha 0.99, eps 1e-8, weight_decay 0, momentum 0, centered 0
 *   ADAGRAD  lr 1e-2, lr_decay 0, weight_decay 0, initial_accumulator_value 0, eps 1e-10
 *   LION     lr 1e-4, beta1 0.9, beta2 0.99, weight_decay 0
 *   ADAMAX   lr 2e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0
 *   ADADELTA lr 1, rho 0.9, eps 1e-6, weight_decay 0
 *   RADAM    lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, decoupled_weight_decay 0
 *   NADAM    lr 2e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, momentum_decay 4e-3,
 *            decoupled_weight_decay 0
 *   RPROP    lr 1e-2, eta_minus 0.5, eta_plus 1.2, step_size_min 1e-6, step_size_max 50
 *   LAMB     lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-6, weight_decay 0.01, always_adapt 0
 *   LARS     lr 1, momentum 0, weight_decay 0, nesterov 0, trust_coefficient 1e-3, eps 1e-8,
 *            always_adapt 0
 *   ADAN     lr 1e-3, beta1 0.98, beta2 0.92, beta3 0.99, eps 1e-8, weight_decay 0
 *   ADEMAMIX lr 1e-3, beta1 0.9, beta2 0.999, beta3 0.9999, alpha 5, alpha_warmup 0,
 *            beta3_warmup 0, eps 1e-8, weight_decay 0 */
enum {
    ZERO_OPTIMIZER_ADAMW = 0, ZERO_OPTIMIZER_ADAM = 1, ZERO_OPTIMIZER_SGD = 2,
    ZERO_OPTIMIZER_RMSPROP = 3, ZERO_OPTIMIZER_ADAGRAD = 4, ZERO_OPTIMIZER_LION = 5,
    ZERO_OPTIMIZER_ADAMAX = 6, ZERO_OPTIMIZER_ADADELTA = 7, ZERO_OPTIMIZER_RADAM = 8,
    ZERO_OPTIMIZER_NADAM = 9, ZERO_OPTIMIZER_RPROP = 10, ZERO_OPTIMIZER_LAMB = 11,
    ZERO_OPTIMIZER_LARS = 12, ZERO_OPTIMIZER_ADAN = 13, ZERO_OPTIMIZER_ADEMAMIX = 14,
    ZERO_OPTIMIZER_CUSTOM = 100 /* zero_options.custom: your own function                         */
};

/* The description of a rule. Its pointers are valid as long as the library is loaded. */
typedef struct zero_rule {
    size_t struct_size;
    const char *name;                  /* its name in checkpoints, such as "adamw"                */
    const char *const *setting_names;  /* in the order of the table above, and maximize           */
    const double *setting_defaults;
    const char *const *setting_ranges; /* as text: "in [0, 1)"                                    */
    size_t setting_count;
    const char *const *slots;          /* names of a parameter's state, if all settings are on    */
    const char *const *slot_settings;  /* the setting that turns each on, or NULL                 */
    size_t slot_count;
} zero_rule;

/* Write the description of the rule number `optimizer` to `*rule`. The call returns
 * ZERO_ERR_ARGUMENT if there is no such rule, and for ZERO_OPTIMIZER_CUSTOM. Local; any thread may
 * make this call at any time. */
ZERO_API zero_status zero_rule_info(int32_t optimizer, zero_rule *rule);

/* The assignment of parameters to owners. The owner of an element holds its state and updates it.
 *
 * EVEN lays out parameters without gaps, except that each is padded to a multiple of 16 elements,
 * and cuts them into blocks of 1,024 elements. It does this separately for each combination of
 * dtype and grad_dtype, and for the parameters of each seal (zero_seal). If N ranks divide B
 * blocks, each rank owns B / N blocks, rounded down, and ranks 0 to B % N - 1 own one more block
 * each. Small models are therefore not split evenly. If all parameters fit into one block, rank 0
 * owns all of them, and the other ranks hold no state. zero_statistics.idle_ranks counts these
 * other ranks. */
enum {
    ZERO_PARTITION_EVEN = 0,            /* buckets split evenly in blocks of 1,024 elements       */
    ZERO_PARTITION_GREEDY = 1,          /* whole tensors, largest first, to the least loaded rank */
    ZERO_PARTITION_GREEDY_IN_ORDER = 2, /* whole tensors in order, to the least loaded rank       */
    ZERO_PARTITION_MANUAL = 3           /* whole tensors, to zero_param.owner                     */
};

/* The effect that infinities and NaNs in the reduced gradients have on a step. */
enum {
    ZERO_NONFINITE_IGNORE = 0, /* as in torch.optim, they reach the parameters; they are counted  */
    ZERO_NONFINITE_SKIP = 1,   /* all ranks skip the update and zero_step returns ZERO_SKIPPED    */
    ZERO_NONFINITE_ERROR = 2   /* all ranks skip the update; zero_step returns ZERO_ERR_NONFINITE */
};

/* 16-bit parameters, and fp32 parameters with share_dtype, have fp32 master weights. A step updates
 * the master weights and rounds them to get the parameters. The seal (zero_seal) and
 * zero_broadcast_params set the master weights from the parameters. */
enum {
    ZERO_MASTER_FLOAT32 = 0,   /* stored whole; the parameter is rounded to nearest, ties to even */
    ZERO_MASTER_REMAINDER = 1, /* bf16: only the 16 bits that bf16 lacks; ties away from zero     */
    ZERO_MASTER_NONE = 2       /* no master weights: each step loses the bits cut off by rounding */
};

/* The type in which the state of a group is stored, apart from master weights. Updates compute in
 * fp32, and round state in bf16 up or down at random so that its expected value is exact. Slow
 * averages therefore do not stop, but single elements scatter around their fp32 values. The random
 * bits depend only on the step of a parameter, the position of an element and the parameters
 * registered before it, so results are the same with any number of ranks. */
enum {
    ZERO_STATE_DTYPE_FULL = 0,    /* fp64 for fp64 parameters, and fp32 for all others            */
    ZERO_STATE_DTYPE_BFLOAT16 = 1 /* bf16; not for fp64 parameters or your own function           */
};

/* Modes for ranks that have different numbers of batches; see zero_join. */
enum {
    ZERO_UNEVEN_OFF = 0,    /* every rank makes every call                                        */
    ZERO_UNEVEN_WORLD = 1,  /* a mean divides by the number of ranks                              */
    ZERO_UNEVEN_ACTIVE = 2, /* a mean divides by the number of ranks that still have inputs       */
    ZERO_UNEVEN_ERROR = 3   /* all ranks stop with an error when the first runs out of inputs     */
};

/* The input of your own update rule: elements `first` to first + count - 1 of one parameter. The
 * arrays are row-major, have `count` elements and are aligned to 64 bytes. `values` and `slots` are
 * copies, which take effect once the functions of all ranks have succeeded. */
typedef struct zero_update {
    size_t struct_size;
    int64_t param;                /* its number in order of registration                          */
    const char *name;
    const int64_t *shape;         /* of the whole parameter, `ndim` dimensions                    */
    int32_t ndim;
    int32_t dtype;                /* of the arrays: ZERO_FLOAT64 if the parameter is, or _FLOAT32 */
    int64_t first;
    int64_t count;                /* at least 1                                                   */
    void *values;                 /* in and out: the master weights or, without them, parameters  */
    void *gradient;               /* in: averaged, unscaled, clipped; you may overwrite it        */
    void *const *slots;           /* in and out: its state, in the declared order; zeros at first */
    size_t slot_count;
    int64_t step;                 /* of this parameter; 1 for its first step                      */
    double lr;                    /* of its group, times its lr_scale                             */
    double weight_decay;          /* its own, or its group's                                      */
    const char *const *setting_names; /* lr, weight_decay and the declared settings               */
    const double *setting_values;
    size_t setting_count;
    char *message;                /* out: the cause of a failure, UTF-8 with a NUL; "" at first   */
    size_t message_bytes;         /* room for it, including the NUL                               */
} zero_update;

enum { ZERO_CUSTOM_WHOLE_TENSORS = 1 }; /* each call gets a whole parameter                       */

/* Your own update rule. Once the ranks have agreed to take a step, zero_step calls `update` for
 * each range of elements that this rank owns and that has a gradient, one range at a time and in
 * any order. The thread inside zero_step or zero_join makes these calls, even with overlap_gather.
 * Frozen parameters, missing gradients and skipped steps cause no call. Ranges depend on the world,
 * the partition and bucket_bytes. With ZERO_CUSTOM_WHOLE_TENSORS each range is a whole tensor, and
 * ZERO_PARTITION_EVEN divides the parameters of these groups like ZERO_PARTITION_GREEDY.
 *
 * `update` must return, because the other ranks wait for up to timeout_ms per range. It must not
 * touch the memory of parameters and gradients. It may store any value, even NaN. The update fails
 * if the function returns a value other than ZERO_OK, throws a C++ exception, or writes within 64
 * bytes outside its arrays. zero_step then returns ZERO_ERR_CALLBACK on this rank and ZERO_ERR_PEER
 * on the other ranks, and nothing has changed. The text names the parameter and the range.
 *
 * `update` may call zero_group_get, zero_param_index, zero_owned_ranges, zero_step_result,
 * zero_stats and zero_last_error. Other calls on this optimizer, and collective calls on its comm,
 * return ZERO_ERR_BUSY. */
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
    const char *const *names;      /* settings of groups without their own rule, once each: names */
    const double *values;          /* and values                                                  */
    size_t setting_count;
    int32_t master;                /* ZERO_MASTER_*                                  (FLOAT32)    */
    int32_t wire_dtype;            /* gradients are sent in this type: bf16 or fp16 (unchanged)   */
    double loss_scale;             /* initial dynamic loss scale, 2^-100 to 2^100        (off)    */
    double growth_factor;          /* multiplies the scale when it grows, at least 1 (2)          */
    double backoff_factor;         /* multiplies it after a skipped step, in (0, 1]  (0.5)        */
    int64_t growth_interval;       /* steps without a skip after which it grows      (2,000)      */
    int32_t uneven_inputs;         /* ZERO_UNEVEN_*: whether ranks may call zero_join (OFF)       */
    int32_t share_dtype;           /* rounds fp32 parameters, see ZERO_MASTER_*     (unchanged)   */
    double predivide_factor;       /* power of 2: divides data in transit, multiplies sums (1)    */
    const zero_custom_optimizer *custom; /* with ZERO_OPTIMIZER_CUSTOM; copied       (NULL)       */
    int32_t overlap_gather;        /* 1: zero_step returns early, see zero_param_wait (0)         */
    int32_t instances;             /* k: world / k ranks divide the state, see below (1)          */
} zero_options;

/* With k instances, each block of world / k consecutive ranks forms one instance. Rank r owns the
 * same shard as rank r % (world / k), so k ranks hold each shard. The gradients of all ranks are
 * summed, and an owner sends parameters only within its instance. Results and checkpoints match
 * those of a single instance.
 *
 * All copies of a shard must stay bitwise identical. Your own functions, the state that you set,
 * and gradients that you pass as already reduced must therefore be the same on all ranks that hold
 * a copy. A save compares the copies, and returns ZERO_ERR_MISMATCH on ranks whose copies differ.
 * libzero refuses more than one instance (ZERO_ERR_UNSUPPORTED) for parameters in
 * ZERO_MEMORY_SHARED, over NCCL, and for GPUs that cannot reach each other's memory. */

/* Create an optimizer without parameters on `comm`. NULL `options` selects the defaults. The call
 * returns ZERO_ERR_ARGUMENT and names the setting if a setting is unknown or out of range, or if
 * `instances` does not divide the world. Local, but every rank must create its optimizers in the
 * same order and with the same options, except for `threads`. */
ZERO_API zero_status zero_create(zero_optim **out, zero_comm *comm, const zero_options *options);

typedef struct zero_group_options {
    size_t struct_size;
    const char *const *names; /* settings that differ from the optimizer's, each once             */
    const double *values;
    size_t setting_count;
    const char *optimizer; /* the name of its own rule, such as "sgd"    (the optimizer's)        */
    const zero_custom_optimizer *custom; /* its own function, instead of a name; copied (NULL)    */
    int32_t state_dtype;   /* ZERO_STATE_DTYPE_*                                     (FULL)       */
    int32_t reserved;      /* zero                                                                */
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
    int32_t dtype;        /* a floating-point type; any type if frozen (FLOAT32)                  */
    int32_t owner;        /* its rank, in the first instance, with ZERO_PARTITION_MANUAL          */
    int32_t flags;        /* ZERO_PARAM_*                                                         */
    int64_t order;        /* place in the forward pass; later ones are sent first (registration)  */
    int32_t grad_dtype;   /* a floating-point type; set it if the parameter's differs    (dtype)  */
    int32_t reserved;     /* zero                                                                 */
    double lr_scale;      /* with its flag: multiplies the group's lr                             */
    double weight_decay;  /* with its flag: replaces the group's value                            */
} zero_param;

/* Add `count` parameters as one group, and write the number of the group to `*group` unless `group`
 * is NULL. A group that names its own rule starts with the defaults of that rule, not with the
 * settings of the optimizer. All groups share the clip norm, the loss scale and the checkpoint.
 * Names, shapes and order must be the same on every rank. Parameters stay registered until
 * zero_free. You may call this again, even after steps. If the call fails, no parameter is added.
 * The message of ZERO_ERR_ARGUMENT gives the parameter and the fault. The call returns
 * ZERO_ERR_UNSUPPORTED if a parameter is not frozen and has a dtype that cannot be trained, or if a
 * GPU does not support the rule of the group. Local. */
ZERO_API zero_status zero_register_params(zero_optim *optim, const zero_group_options *options,
                                          const zero_param *params, size_t count, int32_t *group);

/* Set new addresses for all `count` registered parameters and their gradients. NULL `data` keeps
 * the addresses of all parameters, and NULL `grads` keeps the addresses of all gradients. A NULL
 * entry of `data` keeps the address of that parameter. A NULL entry of `grads` means that the
 * parameter has no gradient. The call copies nothing. If an entry is refused, no address changes.
 * The call returns ZERO_ERR_STATE if gradients have been announced or reduced. Local. */
ZERO_API zero_status zero_bind_params(zero_optim *optim, void *const *data, void *const *grads,
                                      size_t count);

/* A tensor of the model that is not trained. Steps do not change it, and checkpoints include it. */
typedef struct zero_buffer {
    size_t struct_size;
    const char *name;     /* unique among buffers and parameters, UTF-8, 1 to 4,096 bytes         */
    void *data;           /* dense; borrowed until zero_free                                      */
    const int64_t *shape; /* `ndim` dimensions, each >= 0; NULL with ndim 0 is a scalar           */
    int32_t ndim;         /* at most 16                                                           */
    int32_t dtype;        /* any type above (FLOAT32)                                             */
} zero_buffer;

/* Add `count` buffers, which must be the same on every rank. You may call this again. If the call
 * fails, no buffer is added. Local. */
ZERO_API zero_status zero_register_buffers(zero_optim *optim, const zero_buffer *buffers,
                                           size_t count);

/* Fix the owners of the registered tensors, compare the registrations of all ranks, and allocate
 * the state. The first collective call after a registration does this implicitly. If registrations
 * differ, ZERO_ERR_MISMATCH (ZERO_ERR_PEER on other ranks) names the first difference and shows
 * both sides. The call returns ZERO_ERR_STATE if no parameter is registered, or if a parameter has
 * no memory. Collective. */
ZERO_API zero_status zero_seal(zero_optim *optim);

/* Free the optimizer and its state. Parameters keep their values. Local. */
ZERO_API zero_status zero_free(zero_optim *optim);

/* ---- Settings ----------------------------------------------------------------------- */

#define ZERO_ALL_GROUPS (-1)
/* Set one setting of one group, or with ZERO_ALL_GROUPS of all groups whose rules have it and of
 * future groups without their own rule, from the next step on. Every rank must set the same value;
 * otherwise a later collective call returns ZERO_ERR_MISMATCH. amsgrad and centered are fixed at
 * registration, and setting them returns ZERO_ERR_STATE. With ZERO_ALL_GROUPS, zero_group_get
 * returns the value that new groups get. Local.
 *
 * ZERO_ALL_GROUPS also has the setting "loss_scale", from 2^-100 to 2^100. A value of 1 means that
 * losses are not scaled. Gradients that are reduced after the call are divided by the loss scale
 * before any norm is computed. zero_options.loss_scale makes the loss scale dynamic. Each step then
 * adjusts it, like torch's GradScaler: a step whose gradients are not all finite is skipped and
 * lowers the loss scale. Checkpoints contain a dynamic loss scale, but not one that you set
 * here. */
ZERO_API zero_status zero_group_set(zero_optim *optim, int32_t group, const char *name,
                                    double value);
ZERO_API zero_status zero_group_get(const zero_optim *optim, int32_t group, const char *name,
                                    double *value);

/* On a GPU, let each step read a setting from device memory. `data` points to one number of type
 * `dtype`, which is ZERO_FLOAT32 or ZERO_FLOAT64. NULL restores the value of zero_group_set.
 * Local. */
ZERO_API zero_status zero_group_set_from(zero_optim *optim, int32_t group, const char *name,
                                         const void *data, int32_t dtype);

/* Freeze parameter number `param` if `trainable` is 0, or train it again if `trainable` is 1, from
 * the next step on. Every rank must pass the same value; otherwise the next collective call returns
 * ZERO_ERR_MISMATCH and names the parameter. A frozen parameter keeps its owner and its state. Its
 * gradient is ignored on every rank: the parameter is neither updated nor decayed, its step count
 * does not change, and it does not contribute to norms. Training an integer parameter returns
 * ZERO_ERR_UNSUPPORTED. Local. */
ZERO_API zero_status zero_param_set_trainable(zero_optim *optim, int64_t param, int32_t trainable);

/* Assign all registered parameters to new owners: first the trained parameters, then the frozen
 * ones. Owners are chosen as if all parameters had been registered at once, so that all ranks
 * update and keep the same amount. With ZERO_PARTITION_MANUAL, `owners` has one rank for each of
 * the `count` parameters, or is NULL to keep the owners. The state is moved unchanged, and
 * parameters do not move in memory. No other call changes owners.
 *
 * If you have written parameters with zero_state_set, call zero_share_params first. The call
 * returns ZERO_ERR_STATE if gradients have been announced or reduced. It returns ZERO_ERR_ARGUMENT
 * if `owners` is given under another partition, `count` is wrong, or an owner is not a rank.
 * Collective. */
ZERO_API zero_status zero_rebalance(zero_optim *optim, const int32_t *owners, size_t count,
                                    void *stream);

/* ---- Training loop ------------------------------------------------------------------ */

/* From zero_grad_ready, zero_reduce_grads or zero_step_begin until the end of the step, some calls
 * return ZERO_ERR_STATE. These are the calls that register, bind, broadcast or rebalance
 * parameters, and the calls that set, save or load state. docs/integrate.md has a table of the
 * calls that each phase allows. */

#define ZERO_ROOT_NONE (-1)
/* Copy every parameter from rank `root` to all ranks. ZERO_ROOT_NONE copies nothing, and declares
 * that all ranks wrote the same values. Without this call, the first call that uses gradients
 * compares the parameters of all ranks. If they differ, it returns ZERO_ERR_MISMATCH and names a
 * parameter. If this call aborts the comm, all parameters except root's are unspecified.
 * Collective. */
ZERO_API zero_status zero_broadcast_params(zero_optim *optim, int32_t root, void *stream);

/* Copy every buffer from rank `root` to all ranks, bit for bit. Call this whenever your engine
 * needs it. The call returns ZERO_ERR_STATE if there are no buffers. If it aborts the comm, all
 * buffers except root's are unspecified. Collective. */
ZERO_API zero_status zero_broadcast_buffers(zero_optim *optim, int32_t root, void *stream);

enum {
    ZERO_REDUCE_MEAN = 0,      /* divide the sum by the number of ranks                           */
    ZERO_REDUCE_SUM = 1,
    ZERO_REDUCE_NONE = 2,      /* gradients have already been reduced; each owner uses its own    */
    ZERO_REDUCE_ACCUMULATE = 4 /* with one of these: adds to the sums of earlier calls            */
};

/* Announce during the backward pass that this rank's gradient of parameter number `param` is final.
 * `grad` is the gradient, or NULL if there is no gradient. On local comms on the host, libzero sums
 * the gradient once every rank has announced it. The sum is bitwise identical to the sum of
 * zero_reduce_grads. The announced gradients are used by the next call that reduces gradients, or
 * are discarded by zero_drop_grads. Until one of these calls returns, do not change the gradient or
 * the parameter. zero_grad_ready returns ZERO_ERR_STATE if the gradient has already been announced,
 * and ZERO_ERR_BUSY while another call on this optimizer runs. Local; any number of threads may
 * call it at once. */
ZERO_API zero_status zero_grad_ready(zero_optim *optim, int64_t param, void *grad, void *stream);

/* Sum every gradient over the ranks, in rank order, and give each sum to its owners. Sums are fp32,
 * or fp64 for ZERO_FLOAT64 parameters. `grads` has one pointer for each of the `count` parameters.
 * NULL selects the registered gradients. A NULL entry means that this rank has no gradient. If only
 * some ranks have a gradient, the gradients of the other ranks count as zeros. If no rank has a
 * gradient, the parameter is neither updated nor decayed, and its step count does not change. The
 * call returns ZERO_ERR_STATE if no rank has any gradient. After the call, gradients in arenas
 * belong to libzero until zero_step or zero_drop_grads returns.
 *
 * A second reduction returns ZERO_ERR_STATE, unless each call passes ZERO_REDUCE_ACCUMULATE. This
 * flag accumulates gradients over micro-batches, and leaves the gradients of each rank unchanged. A
 * mean then divides by the number of ranks only once. A reduction with different flags, or after
 * clipping, returns ZERO_ERR_STATE and keeps the sums. Collective. */
ZERO_API zero_status zero_reduce_grads(zero_optim *optim, void *const *grads, size_t count,
                                       int32_t flags, void *stream);

/* Clamp every element of the reduced gradients to [-max_value, max_value], after unscaling and
 * averaging. NaN remains NaN. An element that was not finite before the call still causes the step
 * to be skipped or to fail. If gradients have not been reduced, the call first reduces the
 * registered gradients to means. Collective. */
ZERO_API zero_status zero_clip_grad_value(zero_optim *optim, double max_value, void *stream);

/* Write the p-norm of all reduced gradients, taken as one vector, to `*norm` unless `norm` is NULL.
 * p is `norm_type`. If the norm exceeds `max_norm`, scale the gradients by max_norm / (norm +
 * 1e-6). Nothing is scaled if the norm is not finite, or if `max_norm` is INFINITY. The norm is
 * bitwise identical on every rank, and for every partition, instruction set and number of threads.
 *
 * NULL `params` selects all parameters. Otherwise only the `count` parameters of this list are
 * measured and scaled. The list must be the same on every rank, and must contain each number only
 * once. If gradients have not been reduced, the call reduces them first, like zero_clip_grad_value.
 * A second call measures the clipped gradients. Collective. */
ZERO_API zero_status zero_clip_grad_norm(zero_optim *optim, const int64_t *params, size_t count,
                                         double max_norm, double norm_type, double *norm,
                                         void *stream);

typedef struct zero_step_options {
    size_t struct_size;
    void *const *grads;   /* as in zero_reduce_grads; not after a reduction (registered ones)     */
    size_t grad_count;
    int32_t reduce_flags; /* flags of zero_reduce_grads (MEAN). _ACCUMULATE: add to earlier sums  */
    int32_t reserved;     /* zero                                                                 */
    void *stream;
} zero_step_options;

/* Reduce the gradients if they have not been reduced, agree with all ranks to take the step, clip
 * (max_grad_norm), update the owned shard, and copy the new parameters to every rank. Gradients and
 * parameters belong to libzero until the call returns. Gradients in arenas are then unspecified:
 * clear or overwrite them. If the call fails before the ranks have agreed, nothing has changed, and
 * a later zero_step may continue. ZERO_ERR_CALLBACK also discards the reduced gradients. A failure
 * after the agreement aborts the comm, and zero_comm_failure reports whether parameters are
 * consistent. The call returns ZERO_ERR_STATE if you pass gradients although gradients have already
 * been reduced, or if no rank has a gradient. Collective. */
ZERO_API zero_status zero_step(zero_optim *optim, const zero_step_options *options);

/* Begin a step before the backward pass. This call fixes the settings, the loss scale and the
 * reduce flags of the step, and zero_step ends the step. On local comms, an owner updates its part
 * of a parameter, and copies it to every rank, as soon as all ranks have announced the gradient. On
 * other comms zero_step does all the work. After you have announced a gradient, even as NULL, do
 * not read or write its parameter until zero_step returns. The results are bitwise identical to
 * those of zero_step alone.
 *
 * `options->grads` must be NULL. The zero_step that ends the step may pass gradients that have not
 * been announced. Its reduce_flags must be the same, or 0. If it fails, another zero_step must end
 * the step, unless no rank had any gradient. In that case the step has ended. zero_step_begin
 * returns ZERO_ERR_STATE if all parameters are frozen, and with features that need all gradients
 * first: clipping, skipping, dynamic loss scaling, LAMB, LARS and custom rules. Collective. */
ZERO_API zero_status zero_step_begin(zero_optim *optim, const zero_step_options *options);

typedef struct zero_result {
    size_t struct_size;
    int64_t step;          /* steps done, without skipped ones; saved with the state              */
    int64_t skipped;       /* steps skipped since zero_create                                     */
    int64_t nonfinite;     /* elements that were not finite in the last reduced gradients         */
    double grad_norm;      /* of the last step, before clipping; -1 if no norm was computed       */
    double clip_factor;    /* the factor by which all gradients were clipped; 1 if not clipped    */
    zero_status status;    /* of the latest zero_step: ZERO_OK, ZERO_SKIPPED, or its error        */
    int32_t reserved;
    double loss_scale;     /* for the next loss; 1 without loss scaling                           */
} zero_result;

/* Write the outcome of the last step that was taken or skipped to `*result`. It is the same on
 * every rank, except for `status`, which is the status of this rank's latest zero_step. This call
 * also returns that status, or ZERO_OK before the first step. It writes `*result` even if that
 * status is an error, but not if the call itself fails. It fails if an argument is wrong, if
 * another thread uses the optimizer (ZERO_ERR_BUSY), or if waiting for the GPU fails. Local. */
ZERO_API zero_status zero_step_result(const zero_optim *optim, zero_result *result);

#define ZERO_ALL_PARAMS (-1)
/* Wait until parameter number `param`, or every parameter with ZERO_ALL_PARAMS, has the value that
 * the latest zero_step gave it. The parameter and its gradient may then be read and written. With
 * overlap_gather, zero_step returns when the ranks have agreed, and the new parameters arrive
 * later, in the order of the forward pass. Other calls on the optimizer, and collective calls on
 * its comm, wait for the whole step. A failure aborts the comm; this call, zero_step_result and the
 * next collective call return it. On a GPU, `stream` waits. Local; any thread may make this
 * call. */
ZERO_API zero_status zero_param_wait(zero_optim *optim, int64_t param, void *stream);

/* Discard the announced and the reduced gradients. Unless every rank does so, the next collective
 * call fails. Local. */
ZERO_API zero_status zero_drop_grads(zero_optim *optim);

/* To take a step manually, call zero_reduce_grads, read gradients with zero_grad_get, write new
 * values into the elements that this rank owns of its own parameters, and call
 * zero_share_params. */

/* Copy elements `first` to first + count - 1 of a parameter's reduced gradient into `values`. This
 * rank must own these elements. The type of `values` is double for ZERO_FLOAT64 parameters and
 * float for all others. The call returns ZERO_ERR_STATE if no rank had the gradient. Local. */
ZERO_API zero_status zero_grad_get(const zero_optim *optim, int64_t param, int64_t first,
                                   int64_t count, void *values);

enum { ZERO_SHARE_KEEP_MASTERS = 1 }; /* do not set master weights from the parameters            */

/* Copy the ranges that this rank owns from its own parameters to every rank. The call does not
 * count as a step, and it discards the reduced gradients. In the state it changes only master
 * weights. If it aborts the comm, parameters are unspecified. Collective. */
ZERO_API zero_status zero_share_params(zero_optim *optim, int32_t flags, void *stream);

typedef struct zero_join_options {
    size_t struct_size;
    void *const *grads; /* of an unfinished step: they count in the first reduction (NULL)        */
    size_t grad_count;
    void *stream;
} zero_join_options;

/* Call this on a rank that has run out of inputs. It matches the other ranks' collective calls on
 * this optimizer, contributing zero gradients, until every rank has called zero_join. It then
 * copies buffers to all ranks from the highest-numbered of the ranks that joined last, and writes
 * the number of that rank to `*last_rank` unless `last_rank` is NULL. It returns ZERO_ERR_STATE
 * without zero_options.uneven_inputs. Calls that need data from a rank that has joined return
 * ZERO_ERR_STATE on all ranks. Collective with any call on this optimizer. */
ZERO_API zero_status zero_join(zero_optim *optim, const zero_join_options *options,
                               int32_t *last_rank);

/* ---- State -------------------------------------------------------------------------- */

enum { ZERO_SAVE_REPLACE = 1 };       /* replace an old checkpoint, in one atomic exchange        */
typedef struct zero_save_options {
    size_t struct_size;
    int32_t flags; /* ZERO_SAVE_*                                                                 */
    int32_t reserved;
} zero_save_options;

/* Save the parameters, rank 0's buffers, the state, the settings and the step count as the
 * checkpoint `directory`, which must be the same path on every rank. A missing parent directory is
 * created. The checkpoint consists of safetensors files and a manifest, and any number of ranks can
 * load it. It appears complete or not at all, and is on stable storage when the call returns
 * ZERO_OK.
 *
 * ZERO_SAVE_REPLACE replaces the checkpoint that was there when the save began. The call returns
 * ZERO_ERR_STATE if that checkpoint has been replaced meanwhile, if `directory` exists and
 * ZERO_SAVE_REPLACE is not set, or if `directory` holds other files. The message of
 * ZERO_ERR_CKPT_IO gives the file, the operation and the reason. An old checkpoint is then
 * untouched, unless the text reports that the new one is complete, and the comm remains usable.
 * Collective. */
ZERO_API zero_status zero_state_save(zero_optim *optim, const char *directory,
                                     const zero_save_options *options);

/* Begin the save that zero_state_save makes, and let libzero's own threads write it while training
 * continues. The checkpoint contains the state at the time of this call. Data that a call is about
 * to change is copied first, so this rank needs memory for a copy of its part. libzero keeps that
 * memory for the next save, until zero_free. The call returns ZERO_ERR_MEMORY if the machine or a
 * control group clearly lacks memory for the copies of all its ranks. A second save returns
 * ZERO_ERR_BUSY.
 *
 * Until zero_state_save_wait returns, change parameters only with calls on the optimizer. Changes
 * by your own code, zero_comm_all_reduce and zero_comm_broadcast may end up in the checkpoint. The
 * checkpoint appears once all ranks have written and a later call on the optimizer has detected
 * this. A failure before that leaves the previous checkpoint in place. zero_free drops an
 * incomplete save. A save that is reported as failed does not appear later, unless the message
 * includes "outcome unknown". Collective. */
ZERO_API zero_status zero_state_save_begin(zero_optim *optim, const char *directory,
                                           const zero_save_options *options);

/* Write 1 to `*done` if collective calls on the optimizer have detected that the save has ended, or
 * that it has failed on some rank. Otherwise write 0. The result is the same on all ranks, because
 * only collective calls update it. Local. */
ZERO_API zero_status zero_state_save_poll(zero_optim *optim, int32_t *done);

/* Wait until the save in progress has ended. The call returns the same statuses as zero_state_save.
 * On ZERO_OK the checkpoint is on stable storage; otherwise the status gives the reason. If the
 * disk makes no progress for timeout_ms, the call returns ZERO_ERR_CKPT_IO. If the deadline of
 * another rank expires first, it returns ZERO_ERR_TIMEOUT, and the comm is aborted. Collective. */
ZERO_API zero_status zero_state_save_wait(zero_optim *optim);

enum { ZERO_LOAD_KEEP_SETTINGS = 1 }; /* keep the current settings, and ignore the saved ones     */

typedef struct zero_load_options {
    size_t struct_size;
    int32_t flags; /* ZERO_LOAD_*                                                                 */
    int32_t reserved;
} zero_load_options;

/* Load the checkpoint `directory` or, if `directory` is a folder of checkpoints, the checkpoint
 * with the highest step in it. Any world size and any partition can load a checkpoint, bit for bit.
 * All files are verified before anything changes. ZERO_ERR_CKPT_INVALID reports where the damage
 * is, and ZERO_ERR_CKPT_MISMATCH lists every difference. If reading fails after the verification,
 * parameters, buffers and state are undefined, and steps and saves return ZERO_ERR_NOT_LOADED until
 * a load succeeds. Collective. */
ZERO_API zero_status zero_state_load(zero_optim *optim, const char *directory,
                                     const zero_load_options *options);

/* Extras are your own bytes in a checkpoint, such as the state of a random number generator or the
 * position in the data. They may be set at any time. Ranks that have joined save their extras as
 * well. */

/* Include `count` bytes of this rank under `name` in every later save. The bytes are copied, and
 * they replace earlier bytes of that name. NULL `bytes` with a `count` of 0 removes the name.
 * `name` has 1 to 255 bytes of UTF-8. A rank may have at most 256 names and 16 MiB in total, and a
 * checkpoint at most 1 GiB from all ranks. If you set a value on one rank, all ranks can get it
 * after a load. The call returns ZERO_ERR_ARGUMENT for 0 bytes, an invalid name or too many bytes;
 * a save may return this status as well. A failed call changes no extras. Local. */
ZERO_API zero_status zero_state_extra_set(zero_optim *optim, const char *name, const void *bytes,
                                          size_t count);

/* After a load at any world size, get the extra that rank number `rank` of the saving job had set
 * under `name`. The call copies at most `capacity` bytes of the extra to `bytes`, and writes its
 * size to `*count`. With a `capacity` of 0, `bytes` may be NULL, and the call writes only the size.
 * A load replaces this rank's extras with the extras that the same rank number saved. After a load,
 * set the values that should differ. The call returns ZERO_ERR_ARGUMENT if nothing was loaded for
 * that rank and name. Local. */
ZERO_API zero_status zero_state_extra_get(const zero_optim *optim, int32_t rank, const char *name,
                                          void *bytes, size_t capacity, size_t *count);

/* List all loaded extras, sorted by rank and name. The call writes ranks to `ranks` and names to
 * `names`, at most `capacity` of each, and the number of extras to `*count`. Names are valid until
 * the next load. Local. */
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

/* List the complete checkpoints in the folder `directory`, newest first. This is the order in which
 * zero_state_load prefers them. If steps are equal, the later name comes first. The call writes at
 * most `capacity` entries to `checkpoints`, and the number of checkpoints to `*count`. Prepare each
 * entry with ZERO_INIT. A missing folder has no checkpoints. The call reads only manifests. Local;
 * any thread may make this call at any time. */
ZERO_API zero_status zero_state_list(const char *directory, zero_checkpoint *checkpoints,
                                     size_t capacity, size_t *count);

/* Delete the complete checkpoints in the folder `directory`, except for the newest `keep_last` (at
 * least 1) and for checkpoints at steps that are multiples of `keep_every` (0 keeps no others).
 * Write the number of deleted checkpoints to `*deleted` unless `deleted` is NULL. If there is a
 * checkpoint to delete, the newest one is first verified, byte by byte. If it is damaged, nothing
 * is deleted. The call never deletes anything except checkpoints. After ZERO_ERR_CKPT_IO the
 * remaining checkpoints are kept. Make this call on one rank after a save, but not while a save is
 * replacing a checkpoint in the folder. Local; any thread may make this call at any time. */
ZERO_API zero_status zero_state_prune(const char *directory, int64_t keep_last, int64_t keep_every,
                                      size_t *deleted);

/* The state entries of a parameter have torch's names, such as "exp_avg"
 * (docs/checkpoint-format.md), or the name "master". A NULL name selects the updated values, which
 * are the master weights or, without them, the parameter itself. Elements are double for
 * ZERO_FLOAT64 parameters, integers for integer parameters, and float for all others. The entry
 * "step" is the number of updates of a parameter or, with ZERO_ALL_PARAMS, of the optimizer. The
 * entries "step" and, for NADAM, "mu_product" each hold one double, so `first` must be 0 and
 * `count` must be 1. */

/* Write the names of the existing state entries of a parameter to `names` (at most `capacity` of
 * them), and the number of names to `*count`. Write the element type to `*dtype` unless `dtype` is
 * NULL. The names belong to the optimizer, and are the same on every rank. Local. */
ZERO_API zero_status zero_state_info(const zero_optim *optim, int64_t param, int32_t *dtype,
                                     const char **names, size_t capacity, size_t *count);

/* Copy elements `first` to first + count - 1 of a state entry into `values`. This rank must own
 * these elements. Local. */
ZERO_API zero_status zero_state_get(const zero_optim *optim, int64_t param, const char *name,
                                    int64_t first, int64_t count, void *values);

/* Set elements `first` to first + count - 1 of a state entry. The call ignores elements that this
 * rank does not own. The range may be the whole tensor, a part of it, or no elements with NULL
 * `values`. An entry that does not exist is created with zeros. Before the next collective call,
 * every rank must make this call for the same parameters and names, and with the same "step" and
 * "mu_product"; otherwise that call returns ZERO_ERR_MISMATCH.
 *
 * Master weights and values are also rounded and written to this rank's own parameter.
 * zero_share_params with ZERO_SHARE_KEEP_MASTERS then copies them to all ranks. For a parameter in
 * a ZERO_MEMORY_SHARED arena, this call returns ZERO_ERR_BUSY while a save is written. Local. */
ZERO_API zero_status zero_state_set(zero_optim *optim, int64_t param, const char *name,
                                    int64_t first, int64_t count, const void *values);

#define ZERO_ALL_RANKS (-1)
/* Copy a whole tensor from its owners into `values` on the rank given by `to`, or on every rank if
 * `to` is ZERO_ALL_RANKS. `values` must have room for all `count` elements of the tensor. Ranks
 * that receive nothing ignore `values` and `count`. All ranks return ZERO_ERR_STATE if the entry
 * does not exist yet. Collective. */
ZERO_API zero_status zero_state_gather(zero_optim *optim, int64_t param, const char *name,
                                       int32_t to, void *values, size_t count);

/* ---- Look inside -------------------------------------------------------------------- */

/* Write the number of the parameter `name`, which is its position in registration order, to
 * `*index`. Local. */
ZERO_API zero_status zero_param_index(const zero_optim *optim, const char *name, int64_t *index);

/* Write the ranges that the given rank owns to `ranges` (at most `capacity` of them), and the
 * number of ranges to `*count`. Each range is a triple (parameter, first element, count). The
 * triples are sorted, and cover the sealed parameters. Before the seal the call returns
 * ZERO_ERR_STATE. With `instances`, all ranks that keep a copy own the same ranges. Local. */
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
    const zero_comm *comm;    /* in:  the comm of the plan, which may need less room (any)        */
    const zero_group_options *groups; /* in:  the options of each group     (one without options) */
    const size_t *group_ends; /* in:  for each group, the number of parameters up to its end      */
    size_t group_count;
} zero_plan;

/* Compute how an optimizer with these options would divide these parameters, in consecutive groups.
 * Also compute a memory layout that can be sent without packing. To use the layout, put parameter i
 * at offsets[i] of an arena and its gradient at grad_offsets[i] of another arena. Register all
 * groups with ZERO_PARAM_PADDED before the seal (docs/memory.md explains padding). The call does
 * not read `data`, `grad` and `name`. plan->comm must have `world` ranks. Local. */
ZERO_API zero_status zero_partition_plan(const zero_param *params, size_t count, int32_t world,
                                         const zero_options *options, zero_plan *plan);

/* The last word of a name is the unit; seconds are wall-clock time. parameter_elements,
 * owned_elements, idle_ranks, and the bytes of state, staging and control are the present values.
 * All other fields are totals since zero_create. "Other hosts" are all other ranks if the comm is a
 * user comm, because libzero does not know its hosts. */
typedef struct zero_statistics {
    size_t struct_size;
    int64_t parameter_elements;        /* elements of all registered parameters                   */
    int64_t owned_elements;            /* elements that this rank owns and updates                */
    int64_t state_bytes;               /* optimizer state on this rank, with master weights       */
    int64_t staging_bytes;             /* staging for reductions, own rules, data outside arenas  */
    int64_t control_bytes;             /* tables that other ranks read                            */
    int64_t copied_bytes;              /* bytes copied into and out of staging and host memory    */
    int64_t moved_bytes;               /* bytes read and written to reduce, update and publish    */
    int64_t steps;                     /* steps taken, including steps of a loaded checkpoint     */
    int64_t skipped;                   /* steps skipped                                           */
    int64_t nonfinite_elements;        /* gradient elements that were not finite, over all steps  */
    double gather_seconds;             /* on the host: time summing gradients before the update   */
    double vote_seconds;               /* time spent waiting for the other ranks                  */
    double apply_seconds;              /* on the host: time updating, including sums made there   */
    double publish_seconds;            /* on the host: time copying new parameters to all ranks   */
    double save_seconds;               /* time in zero_state_save, _save_begin and _save_wait     */
    double load_seconds;               /* time in zero_state_load                                 */
    int64_t early_elements;            /* gradient elements summed before a call needed them      */
    int64_t early_updates;             /* parameter elements updated before their zero_step       */
    int64_t host_waits;                /* on a GPU: how often a call made the host wait           */
    int64_t idle_ranks;                /* ranks that own nothing because the model is too small   */
    int64_t sent_data_bytes;           /* gradients and parameters sent to other hosts            */
    int64_t sent_data_messages;        /* messages that carried sent_data_bytes                   */
    int64_t received_data_bytes;       /* gradients and parameters received from other hosts      */
    int64_t received_data_messages;    /* messages that carried received_data_bytes               */
    int64_t sent_control_bytes;        /* control messages and broadcasts sent to other hosts     */
    int64_t sent_control_messages;     /* messages that carried sent_control_bytes                */
    int64_t received_control_bytes;    /* control messages and broadcasts from other hosts        */
    int64_t received_control_messages; /* messages that carried received_control_bytes            */
} zero_statistics;

/* Write the statistics of this rank since zero_create to `*statistics`. Local. */
ZERO_API zero_status zero_stats(const zero_optim *optim, zero_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif /* ZERO_H */
