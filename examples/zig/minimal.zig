// SPDX-License-Identifier: Apache-2.0
//! The program of examples/c/minimal.c in Zig: every rank pulls one parameter towards its own number, and the mean
//! of these numbers wins. Run it alone, or as `zero-run -n 4 ./minimal`.
const std = @import("std");
const zero = @import("zero"); // of zero.h, by zig translate-c

extern fn printf(format: [*:0]const u8, ...) c_int;

const count = 4096;
const steps = 5000;

fn check(status: zero.zero_status) void {
    if (status >= 0) return;
    std.debug.print("{s}\n", .{zero.zero_last_error()});
    std.process.exit(1);
}

fn arena(comm: ?*zero.zero_comm, kind: i32) *[count]f32 {
    var memory: ?*anyopaque = null;
    check(zero.zero_arena_alloc(comm, count * @sizeOf(f32), kind, &memory));
    return @ptrCast(@alignCast(memory));
}

pub export fn main(argument_count: c_int, arguments: [*]const [*:0]const u8) c_int {
    var comm: ?*zero.zero_comm = null;
    var optim: ?*zero.zero_optim = null;
    check(zero.zero_comm_create_env(&comm, null)); // zero-run, torchrun, mpirun, srun, or alone
    check(zero.zero_create(&optim, comm, null)); // AdamW
    const weights = arena(comm, zero.ZERO_MEMORY_SHARED);
    const grads = arena(comm, zero.ZERO_MEMORY_PER_RANK);
    const shape = [_]i64{count};
    const param = zero.zero_param{
        .struct_size = @sizeOf(zero.zero_param),
        .name = "weights",
        .data = weights,
        .grad = grads,
        .shape = &shape,
        .ndim = 1,
    };
    check(zero.zero_register_params(optim, null, &param, 1, null));
    check(zero.zero_broadcast_params(optim, 0, null));
    const rank = zero.zero_comm_rank(comm);
    const world = zero.zero_comm_world(comm);
    for (0..steps) |_| {
        for (weights, grads) |weight, *grad| grad.* = weight - @as(f32, @floatFromInt(rank + 1));
        check(zero.zero_step(optim, null));
    }
    if (argument_count > 1) {
        const save = zero.zero_save_options{ .struct_size = @sizeOf(zero.zero_save_options), .flags = zero.ZERO_SAVE_REPLACE };
        check(zero.zero_state_save(optim, arguments[1], &save));
    }
    const mean = @as(f64, @floatFromInt(1 + world)) / 2;
    _ = printf("rank %d of %d: weights[0] is %.2f, the mean %.2f\n", rank, world, @as(f64, weights[0]), mean);
    if (rank == 0) _ = printf("checksum=%016llX\n", std.hash.Fnv1a_64.hash(std.mem.asBytes(weights)));
    check(zero.zero_comm_barrier(comm)); // no rank ends while another is in its last step
    return 0;
}
