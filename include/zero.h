/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ZERO_H
#define ZERO_H

/* libzero: ZeRO stage 1 for any training engine.
 *
 * Every rank of a group holds the same parameters and computes its own gradients. libzero
 * splits the optimizer state over the ranks, reduces each gradient to the rank that owns it,
 * updates the owned share, and puts the new parameters on every rank:
 *
 *     zero_comm *comm;    zero_comm_create_env(&comm, NULL);
 *     zero_optim *optim;  zero_create(&optim, comm, NULL);
 *     zero_register_params(optim, NULL, params, count, NULL);
 *     zero_broadcast_params(optim, 0, NULL);
 *     for (int step = 0; step < 1000; step++) { forward_backward(); zero_step(optim, NULL); }
 *     zero_state_save(optim, "run/step-1000", NULL);
 *
 * Conventions
 *
 *  1. Every call that can fail returns a zero_status: 0 is ZERO_OK, positive is done with news,
 *     negative failed. zero_last_error() then says what, which and what to do.
 *  2. A call that failed changed nothing, unless its comment says so. Out-parameters are written
 *     only on success. A call that aborted its comm may have written a part.
 *  3. Handles are opaque tokens, checked on entry; a closed, foreign or NULL handle is
 *     ZERO_ERR_ARGUMENT. Who gets one by `**out` frees it with its _free, which ignores NULL.
 *     Frees are local, never wait for another rank (but see zero_param_wait), and may come in any
 *     order: a comm lives on inside its optimizers and arenas.
 *  4. Structs begin with struct_size. Call the matching _init first, then set fields. A field that
 *     is zero means its default. An array of structs has the stride of its first struct_size.
 *  5. "Collective" calls are made by every rank of the comm, in the same order. A comm takes one
 *     collective call at a time, whichever of its optimizers makes it.
 *  6. One thread at a time per handle: a second one gets ZERO_ERR_BUSY, without effect. So does a
 *     collective call on a comm that another thread is in. zero_comm_abort, zero_comm_failure,
 *     zero_param_wait, zero_grad_ready and zero_last_error may come from any thread.
 *  7. Pointers passed in are borrowed for the call, unless the comment says longer. Names, shapes
 *     and arrays are copied.
 *  8. No call waits without a deadline (zero_comm_options), except inside your own functions. On
 *     the host a call is done on return (zero_step unless overlap_gather is set), and `stream` must
 *     be NULL. On a device with streams, what a call does to parameters and gradients is queued on
 *     `stream` (a cudaStream_t of the primary context of the comm's device, not cudaStreamPerThread;
 *     NULL is the default stream), behind what is queued there already, and ZERO_OK says only that. Calls without
 *     `stream` that read or write tensors, and zero_rebalance, zero_share_params and
 *     zero_broadcast_*, are done on return; what you queued on those tensors, and launches of graphs
 *     in which you captured calls, have ended before a call without `stream`. The thread's current
 *     device stays what it is.
 *  9. A rank is a handle, not a process: threads may be ranks. After a fork every call in the
 *     child returns ZERO_ERR_FORKED where the parent held handles, or another thread of it was
 *     inside a call; fork and exec is safe.
 * 10. Inside a collective call the rank that is at fault gets its own code and all others get
 *     ZERO_ERR_PEER with the same sentence; nothing has changed and the comm stays usable. Only a
 *     death, a deadline, a broken order of calls, a broken transport, or memory that runs out where
 *     the others already wait, aborts a comm; the first cause wins, is returned by every later
 *     collective call, and an aborted comm stays aborted. zero_comm_failure tells the two apart.
 */

#include <stddef.h>
#include <stdint.h>

#if defined(ZERO_STATIC) || !defined(__GNUC__)
#define ZERO_API
#else
#define ZERO_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version, errors, log ----------------------------------------------------------- */

#define ZERO_VERSION_MAJOR 0
#define ZERO_VERSION_MINOR 1
#define ZERO_VERSION_PATCH 0

/* The version of the library that was loaded: major * 10000 + minor * 100 + patch. */
ZERO_API uint32_t zero_version(void);

/* One line of "key: value; ..." saying which comms, devices and instruction sets this build has and
 * which instruction set this machine uses. Static storage. */
ZERO_API const char *zero_build_info(void);

typedef int32_t zero_status;
enum {
    ZERO_OK = 0,
    ZERO_SKIPPED = 1,              /* done: all ranks agreed to skip the update                   */

    /* The caller's side. The call had no effect. */
    ZERO_ERR_ARGUMENT = -1,        /* a wrong argument, handle, struct size or setting            */
    ZERO_ERR_STATE = -2,           /* a right call at the wrong moment                            */
    ZERO_ERR_BUSY = -3,            /* another thread is inside this handle                        */
    ZERO_ERR_FORKED = -4,          /* this process was forked from the one that made the handle   */
    ZERO_ERR_UNSUPPORTED = -5,     /* not in this build, on this device, or of this comm          */
    ZERO_ERR_MEMORY = -6,          /* memory ran out                                              */
    ZERO_ERR_MISMATCH = -7,        /* this rank passed or registered something else than the rest */
    ZERO_ERR_PEER = -8,            /* another rank failed in this call: the text says which, why  */

    /* Checkpoints. */
    ZERO_ERR_CKPT_IO = -9,         /* the operating system refused a file operation               */
    ZERO_ERR_CKPT_INVALID = -10,   /* missing, incomplete, damaged or not a checkpoint            */
    ZERO_ERR_CKPT_MISMATCH = -11,  /* a sound checkpoint of another model or optimizer            */
    ZERO_ERR_NOT_LOADED = -12,     /* a load failed half way: load again before stepping          */

    /* The group. The comm is aborted (RENDEZVOUS: it never formed). */
    ZERO_ERR_RENDEZVOUS = -13,     /* the ranks did not find each other                           */
    ZERO_ERR_TIMEOUT = -14,        /* a rank made no progress until the deadline                  */
    ZERO_ERR_PEER_DEAD = -15,      /* a rank's process ended                                      */
    ZERO_ERR_DESYNC = -16,         /* the ranks made different calls                              */
    ZERO_ERR_COMM = -17,           /* the transport, or a user comm's function, failed            */
    ZERO_ERR_ABORTED = -18,        /* zero_comm_abort was called                                  */

    /* The machine's side, and libzero's own. */
    ZERO_ERR_SYSTEM = -19,         /* the operating system, or a device, refused something        */

    /* The numbers. */
    ZERO_ERR_NONFINITE = -20,      /* gradients are not finite, and ZERO_NONFINITE_ERROR is set   */

    /* Your own functions. */
    ZERO_ERR_CALLBACK = -21,       /* zero_custom_optimizer.update failed; nothing has changed    */

    ZERO_ERR_INTERNAL = -99        /* a bug in libzero: please report it                          */
};

/* Why the latest failing call on this thread failed, behind its name: "zero_step: ...". "" before
 * any failure. Owned by the library, valid until the next failing call on this thread. At most 4095
 * bytes of UTF-8. */
ZERO_API const char *zero_last_error(void);

/* "ZERO_ERR_PEER_DEAD" and so on; "unknown status" for any other number. Static storage. */
ZERO_API const char *zero_status_name(zero_status status);

enum { ZERO_LOG_ERROR = 1, ZERO_LOG_WARNING = 2, ZERO_LOG_INFO = 3 };

/* `message`, at most 4,095 bytes, is valid during the call only. Must not call libzero and must return. */
typedef void (*zero_log_fn)(void *ctx, int32_t level, const char *message);

/* Send messages up to `max_level` to `log`, for the whole process; NULL turns them off, which is the
 * start. The library itself never prints, so set one: warnings are what is no error of a call yet, such as a
 * rank for which this one has been waiting for 10 s. Runs on a thread that is inside a libzero call. `ctx` must
 * stay valid until another callback is set and no call is in flight. */
ZERO_API zero_status zero_set_log_callback(zero_log_fn log, void *ctx, int32_t max_level);

/* ---- Comm: one rank's seat in a group of ranks -------------------------------------- */

typedef struct zero_comm zero_comm;

/* Where a comm's arenas are, and the parameters, gradients and buffers of its optimizers, whose state
 * stands there, too. A split inherits it. All else that calls read or write is memory of the host: names,
 * numbers, values that are copied one tensor at a time, and what zero_comm_broadcast and
 * zero_comm_all_reduce take; a GPU's is ZERO_ERR_ARGUMENT there, as far as a CUDA driver that the process
 * has loaded tells. */
enum {
    ZERO_DEVICE_HOST = 0,
    ZERO_DEVICE_CUDA = 1 /* one GPU. Pointers are to what any kernel of it can use: memory of that GPU,
                            managed, or pinned and mapped                                          */
};

/* A device_ordinal for zero_comm_create_env: the only GPU that this process sees; of several the one whose
 * number is this rank's place among the ranks of its host. */
#define ZERO_ORDINAL_LOCAL_RANK (-1)

typedef struct zero_comm_options {
    size_t struct_size;
    int64_t timeout_ms;    /* without progress, once all ranks are in the call    (300,000)   */
    int64_t late_ms;       /* for a live rank that is not in the call yet         (1,800,000) */
    int64_t rendezvous_ms; /* for all ranks to find each other                    (120,000)   */
    int32_t device;         /* ZERO_DEVICE_*                                       (HOST)     */
    int32_t device_ordinal; /* which of them, as this process numbers them         (0)        */
    /* Of nccl comms, the same on all ranks. */
    int32_t reduce_ctas;       /* thread blocks that reductions may have, 1 to 64 (16)        */
    int32_t gather_on_kernels; /* 1: copy engines gather nothing                  (0)         */
} zero_comm_options;

/* Write the defaults into the first `struct_size` bytes of `*options`. Every _init does so. */
ZERO_API zero_status zero_comm_options_init(zero_comm_options *options, size_t struct_size);

/* A group of one: no communication, and the same code path and files as any other comm. On the host or
 * on a GPU: ZERO_ERR_UNSUPPORTED says why there is none, be it that this build is without CUDA or that
 * the machine has no driver; an ordinal beyond those that there are is ZERO_ERR_ARGUMENT. */
ZERO_API zero_status zero_comm_create_solo(zero_comm **out, const zero_comm_options *options);

/* Join the `world` ranks (1 to 1,024) of this host that pass the same `name` (not empty), as processes
 * or threads of one user in one network namespace. Collective. ZERO_ERR_RENDEZVOUS, naming the ranks that
 * never came, and as which user, in which namespace, by which name this one looked for them, when they
 * are not all there after rendezvous_ms, or at once when a rank dies, comes twice, disagrees about
 * `world`, or is of another libzero version, and when another user holds the name. A rank whose own machine
 * refuses gets ZERO_ERR_SYSTEM or ZERO_ERR_MEMORY, the others ZERO_ERR_RENDEZVOUS. Nothing is left behind.
 *
 * Where a launcher started the ranks (see zero_comm_create_env), or ZERO_JOB is set, the name goes with the
 * word of the job, which ranks prove to each other and never send: jobs that choose one name do not meet, and
 * nobody who cannot guess the word takes the name or a seat. Ranks of separate launches that are to meet need
 * the same ZERO_JOB. Without a word two jobs of one name at once disturb each other. In a user namespace that
 * does not know this user (it is 65534 there) ranks without a word are refused.
 *
 * All ranks are on the host, or all on GPUs: each on one of its own, or several on one, up to 64. GPUs read
 * and write each other's arenas then, and their streams wait for each other without the host: what keeps one
 * stream keeps those of the other ranks, until timeout_ms, or until a rank dies. For that every process sees
 * the GPUs of all ranks.
 *
 * What one rank's GPU cannot do, the hosts of all ranks do inside each call that needs it, with the same bits:
 * where streams cannot wait for words of the host's memory, hosts wait between launches; where GPUs do not
 * reach each other's memory, gradients and parameters go through the host's, of which each rank takes 8 MiB,
 * and arenas are its own GPU's memory. A warning in the log says why, zero_statistics.host_waits and
 * copied_bytes count, and no call can be captured.
 *
 * Ranks that are threads of one process on one GPU share its queues and locks: set
 * CUDA_DEVICE_MAX_CONNECTIONS to 32 and CUDA_MODULE_LOADING to EAGER, and free and allocate nothing while a
 * rank's stream waits for another. */
ZERO_API zero_status zero_comm_create_local(zero_comm **out, const char *name, int32_t rank,
                                            int32_t world, const zero_comm_options *options);

/* Join the ranks that the launcher started. Reads, first complete set wins: ZERO_RANK, ZERO_WORLD_SIZE and
 * ZERO_LOCAL_RANK (zero-run); RANK, WORLD_SIZE and LOCAL_RANK (torchrun); OMPI_COMM_WORLD_RANK, _SIZE and
 * _LOCAL_RANK; PMI_RANK, PMI_SIZE and MPI_LOCALRANKID (MPICH, Hydra); SLURM_PROCID, SLURM_NTASKS and
 * SLURM_LOCALID, which count within a step; ZERO_LOCAL_RANK goes with any. None set, or a world of one: a
 * solo comm. Where the set that wins says a world of one and a later one more, as when a shell still has RANK
 * and WORLD_SIZE, ZERO_ERR_ARGUMENT names both: unset the wrong one, or set ZERO_RANK and ZERO_WORLD_SIZE;
 * torchrun itself (TORCHELASTIC_RUN_ID) may have one process within other launchers. ZERO_LOG_INFO says
 * launcher, rank, world and kind of comm. On the host: a local comm, whose name is ZERO_JOB, or comes from the
 * launcher's job; ranks on several hosts are ZERO_ERR_UNSUPPORTED.
 *
 * On GPUs, each on that of its options, ranks on one host find each other as those of a local comm. They are
 * one where their GPUs reach each other's memory, as one kernel then does the whole step, and several ranks
 * may share a GPU; else an nccl comm, or, if a rank has no NCCL, a local comm through the host's memory. They
 * are a local comm also where their streams cannot wait for words: then hosts wait between launches, and no
 * call can be captured. Ranks with a GPU each that are to have NCCL there, too, set ZERO_MASTER_ADDR. Ranks
 * on several hosts are an nccl comm. They connect to rank 0 (TCP) at a port of its host: ZERO_MASTER_ADDR,
 * which asks for the same on one host, too; else torchrun's MASTER_ADDR; else the first of Slurm's list. The
 * port is ZERO_MASTER_PORT; else the one above MASTER_PORT, which is torch's own; else made from the job.
 * Both sides prove that they know the word that this job alone has (ZERO_JOB, or the launcher's), which does
 * not travel; who connects without it is sent away, who guesses it could still take a rank's seat. Nothing is
 * encrypted, and who relays between them is not noticed. A rank without its GPU or without NCCL gets its own
 * code, all others ZERO_ERR_PEER. ZERO_ERR_RENDEZVOUS names the ranks that did not come within rendezvous_ms,
 * or the place where rank 0 was not found.
 *
 * ZERO_ERR_ARGUMENT names a variable that is half of a set, no number, or needed and not set, or says that
 * nothing tells this job from others. ZERO_TIMEOUT_MS, ZERO_LATE_MS and ZERO_RENDEZVOUS_MS are read for what
 * `options` leaves at its default. Collective. */
ZERO_API zero_status zero_comm_create_env(zero_comm **out, const zero_comm_options *options);

/* Collectives of your own. Each gets `ctx` first, returns ZERO_OK or any negative code, must not throw,
 * and must return: libzero cannot interrupt it, so deadlines are yours. A failure aborts this rank's comm:
 * the caller of libzero gets ZERO_ERR_COMM with that code in the text, and the other ranks find out when
 * their own function fails. They are called from the thread that is inside the collective call, with no
 * lock held, in the same order with the same sizes on every rank, never with 0 bytes; `stream` is NULL.
 * Buffers never overlap, except where `send` lies inside `recv` at its own rank's place (over MPI that is
 * MPI_IN_PLACE; examples/c/mpi_comm.c is such a comm). */
typedef struct zero_comm_functions {
    size_t struct_size;
    /* Required. Gather `bytes` bytes of host memory of every rank into `recv`, in rank order. */
    zero_status (*exchange)(void *ctx, const void *send, void *recv, size_t bytes);
    /* Required. Gather `bytes` bytes of every rank's `send` into `recv`, in rank order. */
    zero_status (*all_gather)(void *ctx, const void *send, void *recv, size_t bytes, void *stream);
    /* One of the next two. Send the r-th `bytes` of `send` to rank r; `recv` gets one piece of each
     * rank, in rank order. libzero then sums in rank order, so bits equal those of other comms. */
    zero_status (*all_to_all)(void *ctx, const void *send, void *recv, size_t bytes, void *stream);
    /* Sum over ranks; this rank's `count` elements of the sum into `recv`. `send` has as many for each
     * rank, in rank order; `dtype` is ZERO_FLOAT32, or ZERO_FLOAT64 for parameters of that type. Order of
     * sums is yours. */
    zero_status (*reduce_scatter)(void *ctx, const void *send, void *recv, size_t count, int32_t dtype,
                                  void *stream);
    /* Optional. Make the ctx of a sub-group of the ranks that pass the same `color`, in which this one is
     * `rank` of `world`; called on every rank of the parent, with 0 of 0 where the color is negative and
     * no ctx is wanted. A failure on one rank aborts the parent on all. NULL: zero_comm_split is
     * ZERO_ERR_UNSUPPORTED. */
    zero_status (*split)(void *ctx, int32_t color, int32_t rank, int32_t world, void **child_ctx);
    /* Optional. Called once for each ctx, when its comm and all that lives on it is gone, on the thread
     * that freed the last of that. Not called when zero_comm_create_user fails. */
    void (*free)(void *ctx);
} zero_comm_functions;

ZERO_API zero_status zero_comm_functions_init(zero_comm_functions *functions, size_t struct_size);

/* Use your own collectives on host memory. `functions` is copied; `ctx` must live until `free`. Local:
 * the first collective call meets the other ranks. The deadlines of `options` have no effect here, and a
 * device other than the host is ZERO_ERR_UNSUPPORTED. */
ZERO_API zero_status zero_comm_create_user(zero_comm **out, const zero_comm_functions *functions,
                                           void *ctx, int32_t rank, int32_t world,
                                           const zero_comm_options *options);

/* Write an id that makes its ranks one group into the ZERO_NCCL_ID_BYTES bytes at `id`. One rank draws
 * it and sends it to the others by a way of yours: a file, a socket, another comm. For one group: a
 * second one needs another id. Local. ZERO_ERR_UNSUPPORTED where no NCCL of version 2.27.3 or later is
 * found, with all that was tried: the one that is loaded already, libnccl.so.2 and libnccl.so as the
 * loader finds them, $ZERO_NCCL_PATH, the Python package nvidia-nccl in $VIRTUAL_ENV and
 * $CONDA_PREFIX; and where NCCL_COMM_BLOCKING=1 has NCCL wait without deadlines. */
enum { ZERO_NCCL_ID_BYTES = 128 };
ZERO_API zero_status zero_nccl_unique_id(void *id);

/* Join the `world` ranks, on any number of hosts, that pass the same `id`, each on a GPU of its own, as
 * processes or threads: `options` says which, device must be ZERO_DEVICE_CUDA. Gradients and parameters
 * travel by NCCL; all else goes through connections (TCP) of every rank to rank 0, whose addresses they
 * learn by NCCL. Sums are in NCCL's order. Collective. ZERO_ERR_RENDEZVOUS when the ranks are not all
 * there after rendezvous_ms; ZERO_ERR_UNSUPPORTED without a GPU, or without NCCL as in
 * zero_nccl_unique_id; ZERO_ERR_MISMATCH where options of nccl comms differ; ZERO_ERR_COMM with NCCL's own
 * words. A rank that dies, is late or aborts breaks the comm on all; work of NCCL's that is queued then ends
 * without a result.
 *
 * From NCCL 2.28.7 on the arenas in which gradients or parameters lie as zero_partition_plan says, on every
 * rank at the same place of an arena, are mapped on all ranks by the first call that uses them so and is not
 * captured, each for one of the two: as NCCL's symmetric windows, where the GPUs have them (all of them linked
 * by NVLink; NCCL_WIN_ENABLE=0 is NCCL's own switch). Where not, all is the same but the time. Gathers into
 * such an arena are left to the GPUs' copy engines, if their driver can (12.5), and take no multiprocessor from
 * a forward. NCCL cannot end one whose rank has died: streams of the others wait in it for good, and after the
 * error a process cannot use its GPU any more. With gather_on_kernels they are kernels, which an abort ends. */
ZERO_API zero_status zero_comm_create_nccl(zero_comm **out, const void *id, int32_t rank,
                                           int32_t world, const zero_comm_options *options);

/* The same among the ranks of your ncclComm_t, on its GPU: two communicators are split off it, with
 * nothing shared. It stays yours: libzero does not use it after this call, and never aborts or
 * destroys it; you use it for nothing else during the call. ZERO_ERR_RENDEZVOUS when a rank does not make
 * this call in rendezvous_ms; where the communicator is blocking (ncclConfig_t), NCCL then still waits in it
 * for that rank, on a thread that is left behind, until you abort it. ZERO_ERR_ARGUMENT where `options` names
 * another GPU. Collective over all its ranks. */
ZERO_API zero_status zero_comm_wrap_nccl(zero_comm **out, void *nccl_comm,
                                         const zero_comm_options *options);

/* Split `parent` into sub-groups of the ranks that pass the same `color`, ordered by `key`, then by rank.
 * A negative color takes no seat: ZERO_OK and `*out` is NULL. The child has its own ranks, deadlines and
 * failures; `parent` may be freed first. All seats are taken or none: where one child does not form
 * (ZERO_ERR_RENDEZVOUS; ZERO_ERR_PEER at once with the words of a rank that could not take its seat),
 * `parent` stays usable; where NCCL fails to split, it breaks. Collective on the parent. */
ZERO_API zero_status zero_comm_split(zero_comm **out, zero_comm *parent, int32_t color, int32_t key);

/* This seat's position in its group, and the group's size; a negative zero_status on a bad handle.
 * Local, also on an aborted comm. */
ZERO_API int32_t zero_comm_rank(const zero_comm *comm);
ZERO_API int32_t zero_comm_world(const zero_comm *comm);

/* Return once every rank has called. Collective. */
ZERO_API zero_status zero_comm_barrier(zero_comm *comm);

/* Copy `bytes` bytes at `data` from `root` to every rank; `bytes` and `root` are the same on all of them.
 * For small values of your own. Collective. */
ZERO_API zero_status zero_comm_broadcast(zero_comm *comm, void *data, size_t bytes, int32_t root);

/* Element types. Gradients and what is trained are of a floating type; zero_comm_all_reduce takes the
 * first four. */
enum {
    ZERO_FLOAT32 = 1,
    ZERO_FLOAT64 = 2,
    ZERO_INT32 = 3,
    ZERO_INT64 = 4,
    ZERO_BFLOAT16 = 5,
    ZERO_FLOAT16 = 6
};
enum { ZERO_SUM = 1, ZERO_MIN = 2, ZERO_MAX = 3 };

/* Combine `count` elements at `data` over all ranks, in rank order, in place; the same bits on every
 * rank. NaN wins over numbers in ZERO_MIN and ZERO_MAX; sums of integers wrap. For small values of your
 * own. Collective. */
ZERO_API zero_status zero_comm_all_reduce(zero_comm *comm, void *data, size_t count, int32_t dtype,
                                          int32_t operation);

/* Break the comm: every collective call on it, running or later, on every rank, returns ZERO_ERR_ABORTED
 * with `reason` (NULL is allowed). On a user comm this rank's alone, and a function of yours that runs has
 * to come back first. Local, from any thread, at any time; no effect on an aborted comm. */
ZERO_API zero_status zero_comm_abort(zero_comm *comm, const char *reason);

typedef struct zero_failure {
    size_t struct_size;
    zero_status status;        /* ZERO_OK while the comm is sound                                  */
    int32_t rank;              /* whose death, absence or abort broke it, -1 if nobody's           */
    int64_t step;              /* steps that the optimizer which stepped last had done by then, on
                                  the rank that found out                                          */
    int32_t params_consistent; /* 0: it broke while parameters were being published, or on a device while
                                  steps were queued whose end no call had waited for: load before
                                  going on. 1: nothing or everything of the last step has happened */
    char phase[32];            /* "zero_step: publish"                                             */
    char text[512];            /* as in zero_last_error behind the call's name                     */
} zero_failure;

ZERO_API zero_status zero_failure_init(zero_failure *failure, size_t struct_size);

/* What broke the comm: the same on every rank of a local or nccl comm, but for params_consistent, which counts
 * this rank too. Local, from any thread; only the first failure->struct_size bytes are written. */
ZERO_API zero_status zero_comm_failure(const zero_comm *comm, zero_failure *failure);

/* Give up this seat. It ends when its optimizers and arenas are freed too; then a collective call of the
 * other ranks is ZERO_ERR_DESYNC on a local or nccl comm, which names this one. Local. */
ZERO_API zero_status zero_comm_free(zero_comm *comm);

/* ---- Memory -------------------------------------------------------------------------- */

enum {
    ZERO_MEMORY_PER_RANK = 1, /* one copy a rank: for gradients, or a private copy of parameters  */
    ZERO_MEMORY_SHARED = 2    /* one copy for all ranks of a local comm on the host: for parameters.
                                 Other comms give one each                                         */
};

/* Allocate `bytes` zeroed bytes (same number on every rank), aligned to 64 bytes or more, that libzero
 * reduces and updates in place; on a local comm the other ranks read and write them directly. The
 * memory is reserved here, not at first touch: ZERO_ERR_MEMORY, and no rank has an arena. 0 bytes are
 * ZERO_ERR_ARGUMENT. Outside calls, SHARED memory is written by one rank, or by all with the same bytes,
 * and zero_broadcast_params is then the barrier. Memory of your own (malloc, numpy) works too, at the
 * price of copies that zero_stats shows. Collective. */
ZERO_API zero_status zero_arena_alloc(zero_comm *comm, size_t bytes, int32_t kind, void **out);

/* Give up this rank's claim on an arena, by the pointer that zero_arena_alloc returned. The memory goes
 * once no optimizer has parameters, gradients or buffers registered in it; on a GPU what you queued on it has
 * ended by then. Ranks that are threads each give up their own claim. NULL is ignored. Local. */
ZERO_API zero_status zero_arena_free(void *arena);

/* ---- Build an optimizer -------------------------------------------------------------- */

/* One model's sharded optimizer state on one rank. */
typedef struct zero_optim zero_optim;

/* The update rules and their settings (name: default), by the formulas of torch.optim; LION, LAMB
 * and LARS by their papers. weight_decay is added to the gradient, except in ADAMW, LION, LAMB and where
 * decoupled_weight_decay is 1.
 * ADAMW     lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, amsgrad: 0, maximize: 0
 * ADAM      the same, weight_decay: 0
 * SGD       lr: 1e-3, momentum: 0, dampening: 0, weight_decay: 0, nesterov: 0, maximize: 0
 * RMSPROP   lr: 1e-2, alpha: 0.99, eps: 1e-8, weight_decay: 0, momentum: 0, centered: 0, maximize: 0
 * ADAGRAD   lr: 1e-2, lr_decay: 0, weight_decay: 0, initial_accumulator_value: 0, eps: 1e-10, maximize: 0
 * LION      lr: 1e-4, beta1: 0.9, beta2: 0.99, weight_decay: 0, maximize: 0
 * ADAMAX    lr: 2e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0, maximize: 0
 * ADADELTA  lr: 1, rho: 0.9, eps: 1e-6, weight_decay: 0, maximize: 0
 * RADAM     lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0, decoupled_weight_decay: 0,
 *           maximize: 0
 * NADAM     lr: 2e-3, then as RADAM, with momentum_decay: 4e-3 behind weight_decay
 * RPROP     lr: 1e-2 (a parameter's first step size, later unused), eta_minus: 0.5, eta_plus: 1.2,
 *           step_size_min: 1e-6, step_size_max: 50, maximize: 0; a NaN gradient moves nothing, as in torch
 * LAMB      lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-6, weight_decay: 0.01, always_adapt: 0, maximize: 0
 * LARS      lr: 1, momentum: 0, weight_decay: 0, nesterov: 0, trust_coefficient: 1e-3, eps: 1e-8,
 *           always_adapt: 0, maximize: 0
 * ADAN      lr: 1e-3, beta1: 0.98, beta2: 0.92, beta3: 0.99, eps: 1e-8, weight_decay: 0, maximize: 0; betas are
 *           what is kept of averages (the paper's are 1 minus that); its decay divides by 1 + lr * weight_decay
 * ADEMAMIX  lr: 1e-3, beta1: 0.9, beta2: 0.999, beta3: 0.9999, alpha: 5, alpha_warmup: 0, beta3_warmup: 0,
 *           eps: 1e-8, weight_decay: 0 (decoupled), maximize: 0; warm-ups in steps, 0 for none
 * LAMB and LARS scale the step of each parameter by a trust ratio of norms (p = 2) of the whole tensor,
 * whoever owns its parts: LAMB by |p| / |u|, u being Adam's direction with weight_decay * p in it; LARS what
 * enters its momentum by trust_coefficient * |p| / (|g| + weight_decay * |p| + eps). The ratio is 1 where a
 * norm is 0, and where weight_decay is 0 unless always_adapt is 1. p is the master where there is one. */
enum {
    ZERO_OPTIMIZER_ADAMW = 0,
    ZERO_OPTIMIZER_ADAM = 1,
    ZERO_OPTIMIZER_SGD = 2,
    ZERO_OPTIMIZER_RMSPROP = 3,
    ZERO_OPTIMIZER_ADAGRAD = 4,
    ZERO_OPTIMIZER_LION = 5,
    ZERO_OPTIMIZER_ADAMAX = 6,
    ZERO_OPTIMIZER_ADADELTA = 7,
    ZERO_OPTIMIZER_RADAM = 8,
    ZERO_OPTIMIZER_NADAM = 9,
    ZERO_OPTIMIZER_RPROP = 10,
    ZERO_OPTIMIZER_LAMB = 11,
    ZERO_OPTIMIZER_LARS = 12,
    ZERO_OPTIMIZER_ADAN = 13,
    ZERO_OPTIMIZER_ADEMAMIX = 14,
    ZERO_OPTIMIZER_CUSTOM = 100 /* zero_options.custom: a function of yours */
};

/* What a rule is, so that bindings and tools need no tables of their own. All that it points to lives as long
 * as the library. */
typedef struct zero_rule {
    size_t struct_size;                /* sizeof(zero_rule), before the call                        */
    const char *name;                  /* "adamw", as it stands in checkpoints                      */
    const char *const *setting_names;  /* in the order above                                        */
    const double *setting_defaults;
    const char *const *setting_ranges; /* in words: "in [0, 1)"                                     */
    size_t setting_count;
    const char *const *slots;          /* names of the state of a parameter, with every option      */
    const char *const *slot_settings;  /* what a slot needs to be other than 0; NULL: it is always there */
    size_t slot_count;
} zero_rule;

/* ZERO_OPTIMIZER_* are numbered from 0 on; ZERO_ERR_ARGUMENT where there is no such rule, and of
 * ZERO_OPTIMIZER_CUSTOM. Local, from any thread. */
ZERO_API zero_status zero_rule_info(int32_t optimizer, zero_rule *rule);

/* Who owns what. The state of an element lives on its owner, which updates it. */
enum {
    ZERO_PARTITION_EVEN = 0,            /* buckets split evenly in blocks of 1,024 elements        */
    ZERO_PARTITION_GREEDY = 1,          /* whole tensors, largest first, to the least loaded rank:
                                           torch's ZeroRedundancyOptimizer                         */
    ZERO_PARTITION_GREEDY_IN_ORDER = 2, /* the same without the sort: fairscale's OSS              */
    ZERO_PARTITION_MANUAL = 3           /* whole tensors, to zero_param.owner                      */
};

/* What a step does with infinities and NaNs in the reduced gradient. */
enum {
    ZERO_NONFINITE_IGNORE = 0, /* as torch.optim: they reach the parameters; they are counted      */
    ZERO_NONFINITE_SKIP = 1,   /* all ranks skip the update and zero_step returns ZERO_SKIPPED     */
    ZERO_NONFINITE_ERROR = 2   /* all ranks skip it, and zero_step returns ZERO_ERR_NONFINITE      */
};

/* Parameters of 16 bits are the rounding of an fp32 master, which is what a step updates: it is part of
 * the state. Masters are taken from the parameters at the seal, by zero_broadcast_params (whoever writes
 * parameters later calls it), and by a load of a checkpoint that has none. With
 * zero_options.share_dtype fp32 parameters have one, too: a step leaves the same rounded values on
 * every rank, its owner included. */
enum {
    ZERO_MASTER_FLOAT32 = 0,   /* kept whole; the parameter is rounded to nearest, ties to even    */
    ZERO_MASTER_REMAINDER = 1, /* ZERO_BFLOAT16 parameters: only the 16 bits that the parameter lacks
                                  are kept, so the state is 2 bytes smaller an element. The parameter
                                  is rounded to nearest, ties away from zero                       */
    ZERO_MASTER_NONE = 2       /* there is none: what rounding cuts off is lost in each step       */
};

/* Ranks with more and with fewer batches: see zero_join. */
enum {
    ZERO_UNEVEN_OFF = 0,    /* every rank makes every call                                          */
    ZERO_UNEVEN_WORLD = 1,  /* a mean divides by the number of ranks, as ever                       */
    ZERO_UNEVEN_ACTIVE = 2, /* a mean divides by the number of ranks that still have inputs         */
    ZERO_UNEVEN_ERROR = 3   /* all ranks stop with an error where the first one has no more inputs  */
};

/* What an update rule of your own is given in one call: elements `first` to first + count - 1, row-major, of
 * one parameter. Values, gradient and slots are arrays of `count` elements each, aligned to 64 bytes: copies,
 * of which values and slots are stored once the functions of all ranks are through. All of it is the
 * function's until it returns, and no longer. */
typedef struct zero_update {
    size_t struct_size;
    int64_t param;                /* its number in order of registration                            */
    const char *name;
    const int64_t *shape;         /* of the whole parameter, `ndim` dimensions                      */
    int32_t ndim;
    int32_t dtype;                /* of the arrays: ZERO_FLOAT64 for parameters of that type, ZERO_FLOAT32
                                     for all others                                                 */
    int64_t first;
    int64_t count;                /* at least 1                                                     */
    void *values;                 /* in and out: what is updated, the master where there is one     */
    void *gradient;               /* in: averaged, unscaled, clipped; may be written over           */
    void *const *slots;           /* in and out: its state, in the order of declaration; zeros at first */
    size_t slot_count;
    int64_t step;                 /* of this parameter: 1 for its first                             */
    double lr;                    /* of its group, times its lr_scale                               */
    double weight_decay;          /* its own, or its group's                                        */
    const char *const *setting_names; /* all settings: lr and weight_decay, as above, and the declared ones */
    const double *setting_values;
    size_t setting_count;
    char *message;                /* out: why it fails, UTF-8 with a NUL; "" at first               */
    size_t message_bytes;         /* room for it, the NUL included                                  */
} zero_update;

enum { ZERO_CUSTOM_WHOLE_TENSORS = 1 }; /* each call gets a whole parameter                          */

/* An update rule of your own. zero_step calls `update` once the gradients are reduced and the ranks agreed to
 * make the step, for each range of elements that this rank owns and that has a gradient: not for frozen
 * parameters, absent gradients and skipped steps. Calls come from the thread that is inside zero_step (or
 * zero_join; with overlap_gather, too), one after the other, in no promised order.
 *
 * A range is any part of a tensor, and the function sees nothing of the rest. Where one ends depends on world,
 * partition and bucket_bytes; results do not, if each element's update looks at that element alone and rounds
 * alike wherever it stands in a range. The last elements behind a vector loop do not if one of the two fuses
 * a * b + c, or takes a root or a quotient by approximation, and the other does not: their place, and so the
 * bits, then depend on the world. A rule
 * that looks at more, as at a norm or a matrix, sets ZERO_CUSTOM_WHOLE_TENSORS, which needs a partition that
 * never cuts: GREEDY, GREEDY_IN_ORDER or MANUAL (ZERO_ERR_ARGUMENT with EVEN, also in a world of one).
 *
 * The state that it declares lives on the owners, moves with them, and is saved, loaded, gathered, read and
 * set under its names as that of any rule. Checkpoints name the rule "custom:" and its name; one of another
 * rule, or with other state, is ZERO_ERR_CKPT_MISMATCH. Ranks that declare different names, slots, settings or
 * flags are told so by the seal (ZERO_ERR_MISMATCH).
 *
 * It returns ZERO_OK, or anything else to fail; then, and where it throws a C++ exception or has written
 * outside of its arrays (64 bytes on either side are looked at), this rank's zero_step is ZERO_ERR_CALLBACK
 * with its words, the parameter and the range, the others' ZERO_ERR_PEER. Parameters, state and step counts
 * are then on every rank as they were. What it stores, NaN too, is its own business.
 *
 * It must come back: other ranks wait for each range as long as timeout_ms. It leaves the memory of parameters
 * and gradients alone. Inside it, zero_group_get, zero_loss_scale_get, zero_param_index, zero_owned_ranges,
 * zero_step_result, zero_stats and zero_last_error work; any other call on this optimizer, and collective ones
 * on its comm, are ZERO_ERR_BUSY.
 *
 * The copies, (1 + slot_count) values for each owned element that has a gradient and one range's gradient,
 * are allocated by the first step and stay; zero_statistics.staging_bytes counts them. */
typedef struct zero_custom_optimizer {
    size_t struct_size;
    const char *name;                 /* 1 to 64 of A-Z a-z 0-9 _ - .                               */
    zero_status (*update)(void *ctx, const zero_update *update);
    void *ctx;                        /* given to `update`; what it points to lives until zero_free */
    const char *const *slots;         /* names of its state: 1 to 64 of A-Z a-z 0-9 _, not "master" */
    size_t slot_count;                /* at most 8                                                  */
    const char *const *setting_names; /* 1 to 64 of A-Z a-z 0-9 _: settings beside lr (1e-3) and
                                         weight_decay (0), at most 14, or these two for other defaults */
    const double *setting_values;     /* their defaults: any finite value, but lr and weight_decay
                                         at least 0                                                 */
    size_t setting_count;
    int32_t flags;                    /* ZERO_CUSTOM_*                                              */
    int32_t reserved;                 /* zero                                                       */
} zero_custom_optimizer;

ZERO_API zero_status zero_custom_optimizer_init(zero_custom_optimizer *custom, size_t struct_size);

typedef struct zero_options {
    size_t struct_size;
    int32_t optimizer;             /* ZERO_OPTIMIZER_*                            (ADAMW)      */
    int32_t partition;             /* ZERO_PARTITION_*                            (EVEN)       */
    int64_t bucket_bytes;          /* size of one transfer, at least 4,096        (33,554,432) */
    double max_grad_norm;          /* > 0: zero_step clips the total norm to this (0: off)     */
    double grad_norm_type;         /* p of that norm: 1, 2, any p > 0, INFINITY   (2)          */
    int32_t nonfinite;             /* ZERO_NONFINITE_*                            (IGNORE)     */
    int32_t threads;               /* that update on this rank, at most 64
                                      (this rank's part of the cores, at most 4)               */
    const char *const *names;      /* settings for every group, each once: names ...           */
    const double *values;          /* ... and values                                           */
    size_t setting_count;
    int32_t master;                /* ZERO_MASTER_*                               (FLOAT32)    */
    int32_t wire_dtype;            /* gradients travel as ZERO_BFLOAT16 or ZERO_FLOAT16, rounded to
                                      nearest; fp64 parameters' do not (0: as they are)        */
    double loss_scale;             /* dynamic loss scaling, from 2^-100 to 2^100   (0: off)     */
    double growth_factor;          /* what the scale is multiplied with, at least 1 (2), ...   */
    double backoff_factor;         /* ... and after a skipped step, in (0, 1]       (0.5)      */
    int64_t growth_interval;       /* steps without a skip after which it grows     (2,000)    */
    int32_t uneven_inputs;         /* ZERO_UNEVEN_*: whether ranks may zero_join    (OFF). OFF on
                                      some ranks only breaks the order of calls: ZERO_ERR_DESYNC */
    int32_t share_dtype;           /* fp32 parameters are shared as ZERO_BFLOAT16 or ZERO_FLOAT16,
                                      see ZERO_MASTER_*                             (0: as they are) */
    double predivide_factor;       /* a power of two by which gradients of another type are divided before
                                      they are rounded to wire_dtype; their sum is multiplied with it (1) */
    const zero_custom_optimizer *custom; /* with ZERO_OPTIMIZER_CUSTOM, otherwise NULL; copied with
                                      what it points to, but for ctx                        */
    int32_t overlap_gather;        /* 1: zero_step returns before parameters are new, see
                                      zero_param_wait                             (0)          */
    int32_t reserved;              /* zero                                                     */
} zero_options;

ZERO_API zero_status zero_options_init(zero_options *options, size_t struct_size);

/* Start an empty optimizer on `comm`. NULL options mean the defaults. Local, but every rank creates its
 * optimizers in the same order; options (but for `threads`) and settings must be the same on every rank,
 * which is checked at the seal. ZERO_ERR_ARGUMENT names a setting that is unknown or out of range,
 * ZERO_ERR_SYSTEM says that a thread did not start. */
ZERO_API zero_status zero_create(zero_optim **out, zero_comm *comm, const zero_options *options);

typedef struct zero_group_options {
    size_t struct_size;
    const char *const *names; /* settings that differ from the optimizer's, each once */
    const double *values;
    size_t setting_count;
} zero_group_options;

ZERO_API zero_status zero_group_options_init(zero_group_options *options, size_t struct_size);

enum {
    ZERO_PARAM_ORDER = 1,        /* `order` is given                                                */
    ZERO_PARAM_PADDED = 2,       /* data and grad may be read and written up to the next multiple of 16
                                    elements behind their end, as zero_partition_plan lays them out */
    ZERO_PARAM_FROZEN = 4,       /* not trained until zero_set_trainable says so                    */
    ZERO_PARAM_LR_SCALE = 8,     /* `lr_scale` is given                                             */
    ZERO_PARAM_WEIGHT_DECAY = 16 /* `weight_decay` is given                                         */
};

typedef struct zero_param {
    size_t struct_size;
    const char *name;     /* unique in the optimizer, UTF-8, 1 to 4,096 bytes                       */
    void *data;           /* the parameter, dense; borrowed until zero_free or a new bind. NULL: bound
                             later                                                                  */
    void *grad;           /* its gradient, same shape; NULL: given per call, or none                */
    const int64_t *shape; /* `ndim` dimensions, each >= 0; NULL with ndim 0 is a scalar             */
    int32_t ndim;         /* at most 16                                                             */
    int32_t dtype;        /* ZERO_FLOAT32 (default), _FLOAT64, _BFLOAT16 or _FLOAT16; with
                             ZERO_PARAM_FROZEN also _INT32 or _INT64: without state, never trained   */
    int32_t owner;        /* its rank, with ZERO_PARTITION_MANUAL                                   */
    int32_t flags;        /* ZERO_PARAM_*                                                           */
    int64_t order;        /* position in the forward pass (registration); later ones travel first   */
    int32_t grad_dtype;   /* of the gradient, any floating type (that of the parameter). Say it wherever the
                             two differ: an address does not tell, and an fp32 gradient of a bf16 parameter
                             that is not said to be one is read as bf16. The norm and the step are then
                             wrong without an error                                                 */
    int32_t reserved;     /* zero                                                                   */
    double lr_scale;      /* with its flag: multiplies the group's lr, whatever that is set to (1);
                             in RPROP, whose lr is a first step size, only that                     */
    double weight_decay;  /* with its flag: instead of the group's                                  */
} zero_param;

ZERO_API zero_status zero_param_init(zero_param *param, size_t struct_size);

/* Add `count` parameters as one group and, if `group` is not NULL, write its number. Same names, shapes
 * and order on every rank. May be called again, also after steps: owners of what is registered never
 * move. Local. ZERO_ERR_ARGUMENT names a parameter whose name, shape, dtype or memory is wrong (empty
 * or duplicate name, overflowing count, overlap with another parameter or gradient; an end beyond its arena;
 * data in ZERO_MEMORY_PER_RANK and its gradient in ZERO_MEMORY_SHARED of one copy, which are swapped; memory
 * of a GPU on a comm of the host, as far as a CUDA driver that the process has loaded tells) or which has a
 * setting of its own that is out of range or that the update rule lacks, and then none of them is added.
 * Settings of their own are not in checkpoints: they come from here. ZERO_ERR_UNSUPPORTED: a dtype that
 * cannot be trained, of what is not frozen. ZERO_ERR_STATE while gradients are reduced. What is registered
 * stays until zero_free. */
ZERO_API zero_status zero_register_params(zero_optim *optim, const zero_group_options *options,
                                          const zero_param *params, size_t count, int32_t *group);

/* Give new addresses to all `count` registered parameters, in order of registration: `data`, `grads` or
 * both (NULL: as they are; a NULL entry in `data` too, one in `grads` is none). Contents are not copied.
 * ZERO_ERR_ARGUMENT as at registration, and then none is changed; ZERO_ERR_STATE while gradients are
 * reduced. Local. */
ZERO_API zero_status zero_bind_params(zero_optim *optim, void *const *data, void *const *grads,
                                      size_t count);

/* A tensor of the model that is not trained: a running statistic, a counter. A step does not touch it.
 * zero_broadcast_buffers copies it, and checkpoints hold it. */
typedef struct zero_buffer {
    size_t struct_size;
    const char *name;     /* unique among the optimizer's buffers and parameters, UTF-8, 1 to 4,096 bytes */
    void *data;           /* dense; borrowed until zero_free                                          */
    const int64_t *shape; /* `ndim` dimensions, each >= 0; NULL with ndim 0 is a scalar               */
    int32_t ndim;         /* at most 16                                                               */
    int32_t dtype;        /* ZERO_FLOAT32 (default), _FLOAT64, _INT32, _INT64, _BFLOAT16 or _FLOAT16  */
} zero_buffer;

ZERO_API zero_status zero_buffer_init(zero_buffer *buffer, size_t struct_size);

/* Add `count` buffers: same names, shapes, dtypes and order on every rank, which the next collective call
 * compares as a seal does. May be called again, before and after parameters and steps. All or none:
 * ZERO_ERR_ARGUMENT names a buffer whose name, shape, dtype or memory is wrong (as a parameter's, or none
 * where it has elements). ZERO_ERR_STATE while gradients are reduced. Local. */
ZERO_API zero_status zero_register_buffers(zero_optim *optim, const zero_buffer *buffers, size_t count);

/* Fix buckets and owners of what is registered, compare the registration over all ranks and allocate the
 * state. Implied by the first collective call after a registration. ZERO_ERR_MISMATCH (ZERO_ERR_PEER
 * elsewhere) names the first parameter, buffer or setting that differs, with both sides. In memory of which
 * there is one copy (ZERO_MEMORY_SHARED) each parameter lies at the same place on all ranks that have it
 * there (ZERO_ERR_MISMATCH), and a registered gradient where no other rank has anything (ZERO_ERR_ARGUMENT):
 * it goes into ZERO_MEMORY_PER_RANK. Calls compare gradients that they are given, or that were announced,
 * with those of other ranks before any is read, but not with ZERO_REDUCE_NONE. ZERO_ERR_STATE when no
 * parameter is registered, or one has no memory yet. Collective. */
ZERO_API zero_status zero_seal(zero_optim *optim);

/* Local. Parameters keep their values; the state is gone. */
ZERO_API zero_status zero_free(zero_optim *optim);

/* ---- Settings ------------------------------------------------------------------------ */

#define ZERO_ALL_GROUPS (-1)

/* Set one setting of one group, or of all (and of groups to come), from the next step on. Every rank sets
 * the same before that step: a difference is ZERO_ERR_MISMATCH there. ZERO_ERR_STATE for amsgrad and
 * centered, which are fixed at registration. zero_group_get tells for ZERO_ALL_GROUPS what a new group
 * gets. Local. */
ZERO_API zero_status zero_group_set(zero_optim *optim, int32_t group, const char *name, double value);
ZERO_API zero_status zero_group_get(const zero_optim *optim, int32_t group, const char *name,
                                    double *value);

/* Read one setting of one group, or of all that there are, from `data` on: one number of `dtype`
 * (ZERO_FLOAT32 or ZERO_FLOAT64) in memory of the device, where each step reads it when it is made. What
 * writes it is ordered before the step by `stream`; it stays there until zero_free, or until another call for
 * that setting: NULL is the value of zero_group_set again. lr_scale and weight_decay of a parameter apply as
 * ever. Every rank reads the same number, and each says so before the next step; the numbers themselves are
 * not compared. A step that finds one out of the setting's range is not made, nor skipped: zero_step_result
 * is ZERO_ERR_ARGUMENT. zero_group_get and checkpoints have the value of zero_group_set.
 *
 * ZERO_ERR_UNSUPPORTED on the host, and of a flag, or what decides which state there is (momentum of SGD and
 * RMSPROP). ZERO_ERR_ARGUMENT: memory of elsewhere. What was captured before is out of date. Local. */
ZERO_API zero_status zero_group_set_from(zero_optim *optim, int32_t group, const char *name,
                                         const void *data, int32_t dtype);

/* Freeze parameter number `param` (`trainable` 0), or train it again (1), from the next step on. Every rank
 * says the same before its next collective call: a difference is ZERO_ERR_MISMATCH there, which names the
 * parameter. The gradient of a frozen one is ignored, whatever the pointers say, as if absent on every
 * rank: no update, no decay, no step count, no part in the norm. Its owner and its state stay, and training
 * goes on where it stopped. zero_broadcast_params copies it and checkpoints hold it as any other; they do
 * not say what is frozen, so whoever loads one says it again. ZERO_ERR_ARGUMENT: no such parameter;
 * ZERO_ERR_UNSUPPORTED: one of integers is to be trained; ZERO_ERR_STATE while gradients are reduced.
 * Local. */
ZERO_API zero_status zero_set_trainable(zero_optim *optim, int64_t param, int32_t trainable);

/* Deal out all that is registered anew, as of one registration: by the partition rule, first over the
 * parameters that are trained now, then over the frozen ones, so that ranks have as much to update and as
 * much to keep. With ZERO_PARTITION_MANUAL `owners` decides, one rank per parameter in order of registration
 * (`count` of them); NULL there means as they are, and is the only choice under other rules. Nothing but this
 * call moves owners; zero_owned_ranges tells the new ones.
 *
 * State moves to its new owners bit for bit, parameters stay where they are, and training has the same bits
 * as without the call, norms too. Share what zero_state_set put into parameters before (zero_share_params).
 * Beside old and new state a rank needs a MiB, and on a user comm 256 KiB more for each rank. There,
 * parameters that moved no longer lie as they travel, and are packed.
 *
 * ZERO_ERR_ARGUMENT: owners under another rule, not one for each parameter, or one that is no rank;
 * ZERO_ERR_MISMATCH: ranks pass different ones; ZERO_ERR_MEMORY: no room for the new state. Each leaves all
 * as it was. ZERO_ERR_STATE while gradients are reduced or announced. Collective. */
ZERO_API zero_status zero_rebalance(zero_optim *optim, const int32_t *owners, size_t count, void *stream);

/* ---- Training loop ------------------------------------------------------------------- */

#define ZERO_ROOT_NONE (-1)

/* Copy every parameter from `root` to all ranks. ZERO_ROOT_NONE copies nothing: it says that all ranks
 * wrote the same parameters. Where this was forgotten, the first call behind a seal that uses gradients
 * (zero_reduce_grads, zero_clip_*, zero_step, zero_step_begin) is ZERO_ERR_MISMATCH (ZERO_ERR_PEER elsewhere)
 * and changes nothing: unless parameters were broadcast, shared (zero_share_params) or loaded since, it
 * compares checksums of those that were sealed since, and names one that differs. On a device it waits for
 * what `stream` holds to do so; a captured call compares nothing. Parameters are unspecified (but root's) if
 * it aborts the comm. ZERO_ERR_STATE while gradients are reduced. Collective. */
ZERO_API zero_status zero_broadcast_params(zero_optim *optim, int32_t root, void *stream);

/* Copy every buffer, bit for bit, from `root` to all ranks: at the start, before an evaluation or a save,
 * or in every forward pass, as an engine wants it. Buffers in memory that ranks share are written once.
 * They pass in pieces: beside them a rank needs 256 KiB, and on a user comm as much again for each rank.
 * ZERO_ERR_STATE when no buffer is registered. Buffers are unspecified (but root's) if it aborts the comm.
 * In any phase; collective. */
ZERO_API zero_status zero_broadcast_buffers(zero_optim *optim, int32_t root, void *stream);

/* Loss scaling. Gradients of a loss that was multiplied by a scale are divided by it when they are reduced,
 * before any norm is taken. With zero_options.loss_scale the scale is dynamic, as torch's GradScaler: a step
 * whose reduced gradients are not all finite is skipped by all ranks (ZERO_SKIPPED) and the scale multiplied
 * by backoff_factor; after growth_interval steps in a row without that it is multiplied by growth_factor.
 * zero_step_result tells the scale for the next loss. It is saved and loaded with the state. */

/* Set the scale of the gradients that are reduced next and later, for engines with a scaler of their own (with
 * ZERO_NONFINITE_SKIP they see the skip), to restart a dynamic one, or as the divisor of gradients that are sums
 * over samples: the samples of one rank with ZERO_REDUCE_MEAN, of all ranks with ZERO_REDUCE_SUM. Every rank
 * sets the same before the next reduction: a difference is ZERO_ERR_MISMATCH there. `scale` is from 2^-100 to
 * 2^100; 1 is no scaling. ZERO_ERR_STATE while gradients are reduced. Local. */
ZERO_API zero_status zero_loss_scale_set(zero_optim *optim, double scale);
ZERO_API zero_status zero_loss_scale_get(const zero_optim *optim, double *scale);

/* The same from `data` on, as zero_group_set_from: one number in memory of the device, which is read there when
 * gradients are reduced; NULL: what it was last, until zero_loss_scale_set. zero_loss_scale_get and
 * zero_result.loss_scale tell what the latest reduction read. ZERO_ERR_STATE with dynamic loss scaling, which
 * keeps its scale on the device anyway, and while gradients are reduced. Local. */
ZERO_API zero_status zero_loss_scale_set_from(zero_optim *optim, const void *data, int32_t dtype);

enum {
    ZERO_REDUCE_MEAN = 0, /* divide the sum by the number of ranks                                 */
    ZERO_REDUCE_SUM = 1,
    ZERO_REDUCE_NONE = 2, /* gradients are reduced already, as after an all-reduce: each owner uses its own,
                             and none is overwritten. A gradient that is absent on its owner and present
                             elsewhere counts as zeros                                             */
    ZERO_REDUCE_ACCUMULATE = 4 /* with one of the above: the owners keep the sums in memory of their own,
                             and add to what earlier calls with the same flags left there          */
};

/* On a device with streams the calls of the training loop (zero_reduce_grads, zero_clip_grad_norm, _value and
 * zero_step) agree with the other ranks on the host and then only queue: gradients and parameters are
 * libzero's until `stream` has passed the call, and what is queued there later sees the new parameters. What
 * gradients say, whether a step is skipped or an error, its norm and the next loss scale, is decided on the
 * device: zero_step returns ZERO_OK, and zero_step_result tells. It waits for all steps so far, at most
 * timeout_ms, and so does every other call that reads or changes what steps leave; zero_group_set and _get do
 * not, nor zero_clip_grad_norm without `norm`. Of zero_grad_ready, what `stream` holds by then makes the
 * gradient. What fails on the device is the status of the next call that waits.
 *
 * ZERO_ERR_UNSUPPORTED there: LAMB, LARS and update rules of your own, uneven_inputs, predivide_factor,
 * zero_step_begin, zero_clip_grad_norm_of, and norms other than those for p = 1, 2 and INFINITY. Over NCCL sums
 * are fp32 or fp64, in NCCL's order.
 *
 * These four may be captured in a CUDA graph. On a stream that is being captured they enter and agree with the
 * other ranks, which capture the same call (ZERO_ERR_MISMATCH otherwise), and queue into the graph; ZERO_OK says
 * only that. Each launch of it then does what the call does, with the settings, the loss scale and the state of
 * then, without the host: it clips, skips, and follows the loss scale. Calls without `stream` see the steps of
 * launches, which have ended by then. Launches and calls with `stream` are ordered by you, like any work on one
 * optimizer; with several ranks those of all optimizers of a comm, in the same order on every rank. No launch
 * comes between a call that reduces and the step that uses its sums. Nothing compares the ranks at a launch:
 * between launches all make the same calls, also local ones (zero_group_set, zero_bind_params,
 * zero_set_trainable), or a step is made on some ranks and not on others.
 *
 * A captured call first waits for the steps so far. ZERO_ERR_STATE: parameters are not sealed (zero_seal or a step
 * comes before the capture; over NCCL a step, which makes its connections), gradients are announced, or they were
 * reduced elsewhere: what a captured call reduces is for captured calls of the same graph, and zero_drop_grads
 * forgets it. ZERO_ERR_UNSUPPORTED: zero_clip_grad_norm with `norm`, a local comm whose hosts wait in every
 * step (zero_comm_create_local), and any other call with a stream that is being captured. Neither spoils the
 * capture. Calls without `stream` are not made while one goes on. overlap_gather has no effect within a capture.
 * Once a call was captured, calls that change settings or state wait until the device has them.
 *
 * A graph is out of date when memory, owners or what is frozen has changed since, by zero_register_params,
 * zero_bind_params, zero_set_trainable, zero_rebalance, zero_group_set_from or zero_loss_scale_set_from; while
 * settings use other state, as after a momentum was set from or to 0; and after a load that failed half way. Its
 * launches make no step, and zero_step_result is ZERO_ERR_STATE: capture again. What graphs hold of libzero's
 * memory stays until zero_free; nothing is launched after that, after the comm was aborted, or when memory of
 * yours that was captured is gone. */

/* Announce, during the backward, that this rank's gradient of a parameter is final: `grad`, or NULL for none
 * on this rank. On local comms on the host a thread of libzero sums it as soon as every rank has
 * announced it, into memory of its own (4 bytes for each owned element, 8 for ZERO_FLOAT64), so that
 * less is left to the call that reduces; the bits are the same. Elsewhere, and where ranks have not sealed
 * yet, it does nothing but remember `grad`. There is no warm-up, and ranks may announce in any order, some
 * of the parameters, or none.
 *
 * The next zero_reduce_grads, zero_clip_* or zero_step takes what is announced, and for all else the pointers
 * that it is given, or the registered ones. Until that call returns, or zero_drop_grads, the gradient stays
 * as it is; the parameter does not change. A frozen parameter's is ignored. ZERO_ERR_STATE when it is
 * announced already, or gradients are reduced. Local; from any thread, several at once; beside another call
 * on this optimizer ZERO_ERR_BUSY. */
ZERO_API zero_status zero_grad_ready(zero_optim *optim, int64_t param, void *grad, void *stream);

/* Sum every gradient over the ranks, in rank order, to its owners: in fp64 for ZERO_FLOAT64 parameters,
 * in fp32 for all others, whatever the gradient's type. `grads`: one pointer per parameter in
 * order of registration (`count` of them); NULL means the registered ones. A NULL entry is "no gradient
 * on this rank": absent on every rank, the parameter is not updated, not decayed, and its step count
 * stands; absent on some, it counts as zeros there. No gradient at all on any rank, or nothing that is not
 * frozen, is ZERO_ERR_STATE.
 *
 * From here until zero_step or zero_drop_grads the content of gradients in arenas is libzero's;
 * afterwards it is unspecified. Gradients elsewhere are free again when the call returns. Reducing
 * twice is ZERO_ERR_STATE, never a double count.
 *
 * With ZERO_REDUCE_ACCUMULATE on each call, the gradient of a step is the sum over micro-batches: reduce
 * after each, or all but the last, whose gradients zero_step takes with the same flags. Gradients, also in
 * arenas, stay as they are and are free again when the call returns. A parameter is absent if it is in all
 * micro-batches. Nothing divides by their number; a mean divides by the number of ranks once. ZERO_ERR_STATE
 * when the flags differ from those of the calls before, or after clipping; the sums so far stay. Ranks are
 * added one after the other behind the sums so far, wherever libzero sums, so that the same micro-batches
 * spread over other numbers of ranks have the same bits (docs/bits.md).
 * Engines that add up in their own gradients need none of this: they reduce once. Collective. */
ZERO_API zero_status zero_reduce_grads(zero_optim *optim, void *const *grads, size_t count,
                                       int32_t flags, void *stream);

/* Bring every element of the reduced gradients, unscaled and averaged, into [-max_value, max_value]; NaN
 * stays. Reduces first, as a mean of the registered gradients, if nothing is reduced. A norm taken
 * afterwards is of what it left, and a clip factor of before is in it. Collective. */
ZERO_API zero_status zero_clip_grad_value(zero_optim *optim, double max_value, void *stream);

/* The p-norm of all reduced gradients as one vector, into `*norm` unless it is NULL; where it exceeds
 * `max_norm`, they will be scaled by max_norm / (norm + 1e-6). Every element counts once; the norm has
 * the same bits on every rank, for every partition, number of threads and instruction set. An infinite
 * or NaN norm scales nothing, and neither does a `max_norm` of INFINITY. Reduces first, as a mean of the
 * registered gradients, if nothing is reduced. A second call sees the clipped norm. Collective. */
ZERO_API zero_status zero_clip_grad_norm(zero_optim *optim, double max_norm, double norm_type,
                                         double *norm, void *stream);

/* The same for some parameters, as those of one group: the norm is that of their gradients, and only these
 * are scaled, at once. `params`: `count` numbers in order of registration, each once, and the same list
 * on every rank; otherwise ZERO_ERR_ARGUMENT or ZERO_ERR_MISMATCH, and nothing is reduced. What is frozen or
 * has no gradient counts nothing. A norm of all, max_grad_norm's too, is taken afterwards of what this left.
 * Collective. */
ZERO_API zero_status zero_clip_grad_norm_of(zero_optim *optim, const int64_t *params, size_t count,
                                            double max_norm, double norm_type, double *norm,
                                            void *stream);

typedef struct zero_step_options {
    size_t struct_size;
    void *const *grads;   /* as in zero_reduce_grads, when this step reduces (the registered ones)  */
    size_t grad_count;
    int32_t reduce_flags; /* likewise. ZERO_REDUCE_ACCUMULATE: add them to what is reduced            */
    int32_t reserved;     /* zero                                                                   */
    void *stream;
} zero_step_options;

ZERO_API zero_status zero_step_options_init(zero_step_options *options, size_t struct_size);

/* Reduce the gradients unless that is done, agree, clip (max_grad_norm), update the owned share, and put
 * the new parameters on every rank. NULL options mean the defaults. Until it returns, gradients and
 * parameters are libzero's.
 *
 * ZERO_SKIPPED: not finite, and all ranks skipped; ZERO_ERR_NONFINITE likewise, by ZERO_NONFINITE_ERROR.
 * A failure before the ranks agreed leaves parameters and state as they were, and a later zero_step may
 * go on; a failure after that aborts the comm, and zero_comm_failure tells whether parameters are
 * consistent. ZERO_ERR_CALLBACK, where an update rule of your own failed, forgets what was reduced, as
 * zero_drop_grads does. ZERO_ERR_STATE when gradients are given although they are reduced already, or when
 * no rank has any. Collective. */
ZERO_API zero_status zero_step(zero_optim *optim, const zero_step_options *options);

/* Begin a step before the backward: its settings, scale and reduce flags are agreed and fixed here, and from
 * now on an owner that finds a gradient announced by all ranks sums it, updates its part of the parameter and
 * puts it on every rank, on a thread of libzero's. So the caller promises not to read a parameter, nor to write
 * it, once it has announced its gradient by zero_grad_ready (of NULL, too), until zero_step returns. zero_step
 * then does what is left, of parameters that some rank did not announce as well, and the bits are those of a
 * zero_step alone. There is no warm-up: the first step updates like any other, with the settings of now.
 *
 * Of the options (NULL: the defaults) `grads` must be NULL; gradients are announced, or given to the zero_step
 * that ends the step, whose reduce_flags are those of here, or 0. On comms that are not local nothing is done
 * before that zero_step, and on all comms parameters outside of arenas are fetched in it.
 *
 * ZERO_ERR_STATE where something must know all gradients before the first update: max_grad_norm, dynamic loss
 * scaling, ZERO_NONFINITE_SKIP and _ERROR, LAMB, LARS and a rule of your own; when gradients are announced or
 * reduced already, or everything is frozen. ZERO_ERR_ARGUMENT: ZERO_REDUCE_ACCUMULATE. Until zero_step, other
 * calls that change the optimizer or read tensors of its state are ZERO_ERR_STATE, and so is zero_drop_grads
 * once this rank has announced a gradient: parameters may be new by then, which is also what
 * zero_comm_failure says if the comm breaks (params_consistent 0). A zero_step that fails otherwise leaves
 * the step as it is, to be ended by another one; but where no rank had any gradient (ZERO_ERR_STATE) it is
 * over and nothing has changed. Collective. */
ZERO_API zero_status zero_step_begin(zero_optim *optim, const zero_step_options *options);

typedef struct zero_result {
    size_t struct_size;
    int64_t step;          /* steps done, skipped ones not counted; saved with the state            */
    int64_t skipped;       /* steps skipped since zero_create                                       */
    int64_t nonfinite;     /* elements that were not finite in the last step's reduced gradients    */
    double grad_norm;      /* norm before clipping, of the last step; -1 if it took none            */
    double clip_factor;    /* that clipping by the norm of all multiplied with, 1 if it did not     */
    zero_status status;    /* of the latest zero_step: ZERO_OK, ZERO_SKIPPED, or its error; if it did not
                              fail, of the latest launch of one that was captured                  */
    int32_t reserved;
    double loss_scale;     /* for the next loss; 1 without loss scaling                             */
} zero_result;

ZERO_API zero_status zero_result_init(zero_result *result, size_t struct_size);

/* What the ranks agreed in the last step that was done or skipped; the same on every rank. `status` alone
 * is of the latest zero_step that began (on a sound comm, with sound options), is this rank's own, and is
 * returned, with `*result` written; zero_last_error stays as it is. Before any step it is ZERO_OK. Local. */
ZERO_API zero_status zero_step_result(const zero_optim *optim, zero_result *result);

#define ZERO_ALL_PARAMS (-1)

/* Wait until parameter number `param` of the latest zero_step may be read (ZERO_ALL_PARAMS: all of them). With
 * zero_options.overlap_gather zero_step returns, with ZERO_OK, when the ranks have agreed to make the step, and
 * on local and solo comms a thread of libzero's updates and shares the parameters meanwhile, first those that are
 * first in the forward pass. Until this returns for it, a parameter is neither read nor written, and neither is
 * its gradient; one in no arena comes with the last. Every other call on this optimizer, zero_free too, and every
 * collective one on its comm first waits for the whole step, so that this one is for the forward pass.
 *
 * What fails meanwhile breaks the comm, and is the status of this call, of zero_step_result and of the next
 * collective call. It ends as a step does: by the comm's deadlines, or at once after a death or an abort.
 * ZERO_OK at once where nothing is under way. ZERO_ERR_ARGUMENT: no such parameter. On a device it is `stream`
 * that waits, and this call only queues that. Local; from any thread, several at once. */
ZERO_API zero_status zero_param_wait(zero_optim *optim, int64_t param, void *stream);

/* Forget what is reduced and go back to where gradients can be reduced. Writes no gradient. Local; but
 * every rank does it, or the next collective call fails. */
ZERO_API zero_status zero_drop_grads(zero_optim *optim);

/* A step by hand, where an update rule of your own (zero_custom_optimizer) does not fit: zero_reduce_grads,
 * zero_grad_get, write the new values of what this rank owns (zero_owned_ranges) into its own parameters,
 * and zero_share_params in place of zero_step. */

/* Copy elements `first` to first + count - 1 of a parameter's reduced gradient, as a step would use it,
 * into `values`: the sum times the factor of mean and clipping so far; double for ZERO_FLOAT64 parameters,
 * float for all others. ZERO_ERR_STATE unless gradients are reduced, or when no rank had one for this
 * parameter. ZERO_ERR_ARGUMENT when the range is not all this rank's. Local. */
ZERO_API zero_status zero_grad_get(const zero_optim *optim, int64_t param, int64_t first, int64_t count,
                                   void *values);

enum {
    ZERO_SHARE_KEEP_MASTERS = 1 /* masters were set by zero_state_set: keep them. Otherwise they are
                                   taken from the parameters                                       */
};

/* Put what this rank's own parameters hold in the ranges that it owns into the parameters of every rank.
 * No state changes but masters, and no step is counted. What is reduced is forgotten, as zero_drop_grads
 * does, once the ranks agreed on the call. Parameters are unspecified if it aborts the comm. Collective. */
ZERO_API zero_status zero_share_params(zero_optim *optim, int32_t flags, void *stream);

typedef struct zero_join_options {
    size_t struct_size;
    void *const *grads; /* one pointer per parameter, as in zero_reduce_grads, to what this rank added
                           up for a step that it cannot finish: part of the first reduction that is
                           made from here. NULL: none                                              */
    size_t grad_count;
    void *stream;
} zero_join_options;

ZERO_API zero_status zero_join_options_init(zero_join_options *options, size_t struct_size);

/* This rank has no more inputs, maybe from the start: make the others' collective calls on this optimizer
 * with them until every rank has called this. It still owns its share, so gradients are reduced to it and
 * it updates and shares as before, but its own gradients count as zeros. Then, on every rank at once,
 * copy the buffers of one rank, the highest of those that joined last, to all, and write that rank, which
 * the others should follow in what libzero does not hold, into `*last_rank`, unless that is NULL. Training
 * goes on as before, and zero_join may be called again after the next epoch. It needs
 * zero_options.uneven_inputs, or is ZERO_ERR_STATE. A comm's own calls and another optimizer's are not made
 * here: ZERO_ERR_DESYNC. zero_broadcast_buffers from a rank that joined copies those of the highest rank
 * with inputs; a save has rank 0's, so broadcast before it.
 *
 * With ZERO_UNEVEN_ACTIVE a mean divides by the number of ranks that had not joined when its reduction (of
 * several with ZERO_REDUCE_ACCUMULATE: the first) was called; one whose `grads` are in it counts. `grads`
 * that no reduction took before all joined are not used.
 *
 * A rank that joined takes over what the lowest rank with inputs sets meanwhile: settings of groups, what is
 * frozen, the loss scale, and zero_drop_grads. It cannot follow zero_state_set, zero_state_set_scalar or a
 * registration: the others' next call is ZERO_ERR_MISMATCH. While some ranks have joined, calls that
 * need something of theirs are ZERO_ERR_STATE on all ranks, without effect: a reduction with
 * ZERO_REDUCE_NONE, zero_share_params while gradients are reduced, and zero_state_gather to a rank that
 * joined or to ZERO_ALL_RANKS. With ZERO_UNEVEN_ERROR every call is, zero_join too, and names who has no
 * more inputs; where all ranks join at once it is ZERO_OK.
 *
 * What fails in a call of the others is told to them alone, naming this rank where it was at fault, and
 * zero_join goes on; a comm that is aborted ends it. Wrong options are ZERO_ERR_ARGUMENT, the others' call
 * is ZERO_ERR_PEER, and this rank has not joined. Collective with any call on this optimizer. */
ZERO_API zero_status zero_join(zero_optim *optim, const zero_join_options *options, int32_t *last_rank);

/* ---- State --------------------------------------------------------------------------- */

enum { ZERO_SAVE_REPLACE = 1 }; /* replace a checkpoint that is there, in one atomic exchange */

typedef struct zero_save_options {
    size_t struct_size;
    int32_t flags; /* ZERO_SAVE_* */
    int32_t reserved;
} zero_save_options;

ZERO_API zero_status zero_save_options_init(zero_save_options *options, size_t struct_size);

/* Save parameters, rank 0's buffers, state, settings and step as the checkpoint `directory` (same path on
 * every rank; a missing parent is created). It appears complete or not at all, and is on stable storage
 * when the call returns ZERO_OK: safetensors files and a manifest, readable by any number of ranks. Files
 * are made with mode 0666 and directories with 0777, of which the umask takes its part.
 *
 * ZERO_ERR_CKPT_IO names the file, the operation and the system's reason; the group goes on and a
 * checkpoint that was there is untouched, unless the text says that the new one is complete and only its
 * last sync failed. ZERO_ERR_STATE while gradients are reduced, or when `directory` exists and
 * ZERO_SAVE_REPLACE is not set, or it holds more than a checkpoint's files. Collective. */
ZERO_API zero_status zero_state_save(zero_optim *optim, const char *directory,
                                     const zero_save_options *options);

enum { ZERO_LOAD_KEEP_SETTINGS = 1 }; /* keep lr and the rest instead of the saved settings */

typedef struct zero_load_options {
    size_t struct_size;
    int32_t flags; /* ZERO_LOAD_* */
    int32_t reserved;
} zero_load_options;

ZERO_API zero_status zero_load_options_init(zero_load_options *options, size_t struct_size);

/* Load the checkpoint `directory`, or, if that is a folder of checkpoints, the one with the highest step
 * among those whose manifest verifies. Any world size, any partition, bit for bit; buffers come back on
 * every rank.
 *
 * In a folder the search skips, with a warning in the log, what is no directory (links too), lost+found, and
 * directories without a manifest or with one that does not verify; without a word what is hidden. All else
 * fails the load and names the directory, as it may be the newest: ZERO_ERR_CKPT_IO where the system refuses
 * to open or read it, ZERO_ERR_UNSUPPORTED where its format is another than this library reads. A checkpoint
 * that a save replaces meanwhile is loaded anew, as what it then is.
 *
 * All files are verified before anything changes: ZERO_ERR_CKPT_INVALID names the file and place of
 * damage, or says that there is no checkpoint, ZERO_ERR_CKPT_MISMATCH lists every difference from what is
 * registered. Should reading fail after that, the load returns why, parameters, buffers and state are
 * undefined, and steps and saves return ZERO_ERR_NOT_LOADED until a load succeeds. ZERO_ERR_STATE while
 * gradients are reduced. Collective. */
ZERO_API zero_status zero_state_load(zero_optim *optim, const char *directory,
                                     const zero_load_options *options);

/* Single tensors of the state, by parameter (its number in order of registration) and by torch's name:
 * "exp_avg", "momentum_buffer" and so on, as docs/checkpoint-format.md lists them; "master" for parameters
 * of 16 bits. NULL names the values that are updated: the master, or the parameter itself where it has
 * none. Elements are double for ZERO_FLOAT64 parameters, integers for integers and float for all others,
 * row-major; masters are whole with ZERO_MASTER_REMAINDER, too. A parameter or name that does not exist is
 * ZERO_ERR_ARGUMENT, in local calls one that is not sealed ZERO_ERR_STATE. After a load that failed half
 * way values are ZERO_ERR_NOT_LOADED. */

/* The names of the state that a parameter has so far, which is what a save would write: at most `capacity`
 * into `names`, in storage that lives as long as the optimizer, and the number there are into `*count`, 0
 * before its first step. Unless `dtype` is NULL, that of the elements into `*dtype`. The same on every
 * rank. Local. */
ZERO_API zero_status zero_state_info(const zero_optim *optim, int64_t param, int32_t *dtype,
                                     const char **names, size_t capacity, size_t *count);

/* Copy elements `first` to first + count - 1 into `values`. ZERO_ERR_ARGUMENT when they are not all this
 * rank's, ZERO_ERR_STATE when the parameter has no state of that name yet. Local. */
ZERO_API zero_status zero_state_get(const zero_optim *optim, int64_t param, const char *name,
                                    int64_t first, int64_t count, void *values);

/* Set what this rank owns of elements `first` to first + count - 1 from `values`, and nothing elsewhere:
 * every rank may pass the whole tensor, or any part, or no elements (and NULL) where it owns none. A state
 * that the parameter does not have yet begins to exist, with zeros where nobody sets it; so every rank
 * makes this call for the same parameters and names, and the next collective call is
 * ZERO_ERR_MISMATCH, naming the first that differs, until they all have.
 *
 * Masters, and the values of NULL, go to this rank's own parameter as well, rounded; zero_share_params with
 * ZERO_SHARE_KEEP_MASTERS then puts them on all ranks. ZERO_ERR_STATE while gradients are reduced. Local. */
ZERO_API zero_status zero_state_set(zero_optim *optim, int64_t param, const char *name, int64_t first,
                                    int64_t count, const void *values);

/* The numbers that a parameter has one of, on every rank: "step", how often it was updated, and with NADAM
 * "mu_product". With ZERO_ALL_PARAMS "step" is the optimizer's own count, that of zero_step_result, and to
 * set it sets every parameter's too. Every rank sets the same, which is compared as by zero_state_set.
 * ZERO_ERR_ARGUMENT for a step that is no whole number from 0 to 2^53, a product outside of [0, 1], or a
 * parameter of integers; the next collective call is ZERO_ERR_STATE where step and product do not belong
 * together (0 steps and 1, or more and less). Setting is ZERO_ERR_STATE while gradients are reduced, or
 * where something that it would set is not sealed. Local. */
ZERO_API zero_status zero_state_get_scalar(const zero_optim *optim, int64_t param, const char *name,
                                           double *value);
ZERO_API zero_status zero_state_set_scalar(zero_optim *optim, int64_t param, const char *name,
                                           double value);

#define ZERO_ALL_RANKS (-1)

/* Copy a whole tensor from its owners into `values` on rank `to`, or on all of ZERO_ALL_RANKS, with room for
 * `count` elements: as many as the parameter has. Elsewhere `values` and `count` are not looked at.
 * It passes in pieces: beside it a rank needs a MiB, and on a user comm 256 KiB more for each rank.
 * ZERO_ERR_STATE on all ranks when the parameter has no state of
 * that name yet; zero_state_info tells before. In any phase; collective. */
ZERO_API zero_status zero_state_gather(zero_optim *optim, int64_t param, const char *name, int32_t to,
                                       void *values, size_t count);

/* ---- Look inside --------------------------------------------------------------------- */

/* The number of a parameter in order of registration. Local. */
ZERO_API zero_status zero_param_index(const zero_optim *optim, const char *name, int64_t *index);

/* The element ranges that `rank` owns, as triples (parameter, first element, count) by parameter and
 * element. Writes at most `capacity` triples into `ranges` and the number there are into `*count`. Of
 * what is sealed; ZERO_ERR_STATE before that. Local. */
ZERO_API zero_status zero_owned_ranges(const zero_optim *optim, int32_t rank, int64_t *ranges,
                                       size_t capacity, size_t *count);

#define ZERO_OWNER_SPLIT (-1)

typedef struct zero_plan {
    size_t struct_size;
    int64_t *offsets;     /* in:  NULL, or room for one byte offset per parameter                  */
    int32_t *owners;      /* in:  NULL, or room for one rank per parameter; ZERO_OWNER_SPLIT where
                                  several ranks own a part                                         */
    int64_t *elements;    /* in:  NULL, or room for one count of owned elements per rank           */
    int64_t arena_bytes;  /* out: size of an arena with that layout                                */
    int64_t state_bytes;  /* out: of the busiest rank                                              */
    int64_t *grad_offsets;    /* in:  NULL, or room for one byte offset per parameter: of its gradient,
                                      which differs from `offsets` where dtypes do                  */
    int64_t grad_arena_bytes; /* out: size of an arena of gradients with that layout               */
} zero_plan;

ZERO_API zero_status zero_plan_init(zero_plan *plan, size_t struct_size);

/* What an optimizer of these options would do with these parameters, registered as one group, without any
 * rank: owners, sizes, and a layout in which parameters and gradients travel unpacked on every comm: put
 * parameter i at offsets[i] of an arena of arena_bytes, its gradient at grad_offsets[i] of one of
 * grad_arena_bytes, and register it with ZERO_PARAM_PADDED. `data`, `grad` and `name` are not read.
 * Local. */
ZERO_API zero_status zero_partition_plan(const zero_param *params, size_t count, int32_t world,
                                         const zero_options *options, zero_plan *plan);

typedef struct zero_statistics {
    size_t struct_size;
    int64_t parameter_elements;  /* registered                                              */
    int64_t owned_elements;      /* of them, this rank's                                    */
    int64_t state_bytes;         /* optimizer state on this rank                            */
    int64_t staging_bytes;       /* memory for what is not in arenas, for reduction, and for the
                                    copies that an update rule of your own works on         */
    int64_t control_bytes;       /* tables that ranks read of each other                    */
    int64_t copied_bytes;        /* into and out of staging, and of the host's memory where GPUs do not
                                    reach each other's, by this rank, so far                */
    int64_t moved_bytes;         /* that reducing, updating and sharing read and wrote, so far */
    int64_t steps;
    int64_t skipped;
    int64_t nonfinite_elements;  /* over all steps                                          */
    double gather_seconds;
    double vote_seconds;         /* waiting for the other ranks                             */
    double apply_seconds;
    double publish_seconds;
    double save_seconds;
    double load_seconds;
    int64_t early_elements;      /* of gradients, summed before the call that needed them   */
    int64_t early_updates;       /* of parameters, made before the zero_step that ends their step */
    int64_t host_waits;          /* on a GPU, of the host for the streams of all ranks, inside of calls, so
                                    far: 0 where streams do that without it (see zero_comm_create_local) */
} zero_statistics;

ZERO_API zero_status zero_statistics_init(zero_statistics *statistics, size_t struct_size);

/* Bytes by kind, and seconds and bytes since zero_create, of this rank. Local. */
ZERO_API zero_status zero_stats(const zero_optim *optim, zero_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif /* ZERO_H */
