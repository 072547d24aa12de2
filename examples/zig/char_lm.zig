// SPDX-License-Identifier: Apache-2.0
//! A character-level language model, trained by any number of ranks with libzero:
//!
//!     zero-run -n 4 char_lm --text LICENSE --steps 300
//!
//! It has the model, the data and the options of examples/c/char_lm.c, and ends with the same bits, because it
//! does the same operations in the same order, and Zig does not fuse them.
const std = @import("std");
const zero = @import("zero"); // zero.h, translated by zig translate-c

const context = 8;
const embed = 16;
const inputs = context * embed;
const hiddens = 384;
const symbols = 256;

const embedding = 0;
const w1 = 1;
const b1 = 2;
const w2 = 3;
const b2 = 4;
const model = [_]struct { name: [:0]const u8, shape: []const i64, fan_in: f64 }{
    .{ .name = "embedding", .shape = &.{ symbols, embed }, .fan_in = 1 },
    .{ .name = "hidden.weight", .shape = &.{ inputs, hiddens }, .fan_in = inputs },
    .{ .name = "hidden.bias", .shape = &.{hiddens}, .fan_in = 0 },
    .{ .name = "output.weight", .shape = &.{ hiddens, symbols }, .fan_in = hiddens },
    .{ .name = "output.bias", .shape = &.{symbols}, .fan_in = 0 },
};

/// Parameters or gradients, in libzero's memory.
const Tensors = [model.len][]f32;

const Settings = struct {
    text: [:0]const u8 = "LICENSE",
    steps: i64 = 200,
    batch: i64 = 192,
    seed: u64 = 1,
    lr: f64 = 2e-3,
    save: [:0]const u8 = "",
    load: [:0]const u8 = "",
    progress: bool = false,
};

fn fail(comptime format: []const u8, values: anytype) noreturn {
    std.debug.print("char_lm: " ++ format ++ "\n", values);
    std.process.exit(1);
}

/// Checks the status of every libzero call.
fn call(comptime name: []const u8, arguments: anytype) void {
    const status = @call(.auto, @field(zero, name), arguments);
    if (status < 0) fail(name ++ ": {s}: {s}", .{ zero.zero_status_name(status), zero.zero_last_error() });
}

/// Prints warnings, for example that the other ranks have waited ten seconds for one rank.
fn printLog(_: ?*anyopaque, level: i32, message: [*c]const u8) callconv(.c) void {
    std.debug.print("libzero: {s}: {s}\n", .{ if (level == zero.ZERO_LOG_ERROR) "error" else "warning", message });
}

fn mix(x: u64) u64 {
    const y = (x ^ x >> 30) *% 0xbf58476d1ce4e5b9;
    const z = (y ^ y >> 27) *% 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/// Returns 64 random bits, the same on every rank and in every language.
fn draw(seed: u64, a: u64, b: u64) u64 {
    return mix(mix(mix(seed +% 0x9e3779b97f4a7c15) +% a) +% b);
}

/// Draws weights uniformly in +-1/sqrt(fan in). Biases stay zero, because arenas are zero at first.
fn initialize(all: Tensors, seed: u64) void {
    for (model, all, 0..) |tensor, values, p| {
        if (tensor.fan_in != 0) for (values, 0..) |*value, i| {
            const unit = @as(f64, @floatFromInt(draw(seed, p, i) >> 11)) / 9007199254740992;
            value.* = @floatCast((2 * unit - 1) / @sqrt(tensor.fan_in));
        };
    }
}

/// exp for x <= 0 with only + and *, because math libraries differ in the last bits: its series at x/1024,
/// squared ten times.
fn exponential(x: f64) f64 {
    if (x < -100) return 0;
    var e: f64 = 1;
    for ([_]f64{ 6, 5, 4, 3, 2, 1 }) |n| e = 1 + x / 1024 / n * e;
    for (0..10) |_| e *= e;
    return e;
}

fn hyperbolicTangent(x: f32) f32 {
    const e = exponential(-2 * @abs(@as(f64, x)));
    const value: f32 = @floatCast((1 - e) / (1 + e));
    return if (x < 0) -value else value;
}

const Lanes = @Vector(8, f32);

fn dot(a: []const f32, b: []const f32) f32 {
    var sum: Lanes = @splat(0);
    var i: usize = 0;
    while (i < a.len) : (i += 8) sum += @as(Lanes, a[i..][0..8].*) * @as(Lanes, b[i..][0..8].*);
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

fn addScaled(out: []f32, in: []const f32, scale: f32) void {
    for (out, in) |*sum, x| sum.* += x * scale;
}

/// Returns row i of a matrix.
fn row(matrix: []f32, i: usize, columns: usize) []f32 {
    return matrix[i * columns ..][0..columns];
}

/// Writes the probabilities of the next character to `out`.
fn forward(all: Tensors, text: []const u8, input: *[inputs]f32, hidden: *[hiddens]f32, out: *[symbols]f32) void {
    for (text[0..context], 0..) |symbol, c| @memcpy(row(input, c, embed), row(all[embedding], symbol, embed));
    @memcpy(hidden, all[b1]);
    for (input, 0..) |x, i| addScaled(hidden, row(all[w1], i, hiddens), x);
    for (hidden) |*x| x.* = hyperbolicTangent(x.*);
    @memcpy(out, all[b2]);
    for (hidden, 0..) |x, h| addScaled(out, row(all[w2], h, symbols), x);
    const largest = std.mem.max(f32, out);
    var total: f32 = 0;
    for (out) |*x| {
        x.* = @floatCast(exponential(x.* - largest));
        total += x.*;
    }
    for (out) |*x| x.* /= total;
}

/// Returns the loss of one example, and adds its gradient times `weight` to `grads`. `text` is its context and
/// the character after that.
fn example(all: Tensors, grads: Tensors, text: []const u8, weight: f32) f64 {
    var input: [inputs]f32 = undefined;
    var hidden: [hiddens]f32 = undefined;
    var slope: [hiddens]f32 = undefined;
    var out: [symbols]f32 = undefined;
    const target = text[context];
    forward(all, text, &input, &hidden, &out);
    const loss = -@log(@as(f64, out[target]) + 1e-30); // only printed

    out[target] -= 1; // now the gradient of the loss by the logits
    for (&out) |*x| x.* *= weight;
    addScaled(grads[b2], &out, 1);
    for (hidden, &slope, 0..) |x, *s, h| {
        addScaled(row(grads[w2], h, symbols), &out, x);
        s.* = dot(row(all[w2], h, symbols), &out) * (1 - x * x);
    }
    addScaled(grads[b1], &slope, 1);
    for (input, 0..) |x, i| {
        addScaled(row(grads[w1], i, hiddens), &slope, x);
        row(grads[embedding], text[i / embed], embed)[i % embed] += dot(row(all[w1], i, hiddens), &slope);
    }
    return loss;
}

/// Trains on this rank's part of the batch. Gradients are weighted so that their mean over ranks is the mean
/// over the batch, even if the number of ranks does not divide it.
fn forwardBackward(set: Settings, text: []const u8, all: Tensors, grads: Tensors, step: i64, rank: i32, world: i32) f64 {
    const batch: f32 = @floatFromInt(set.batch);
    const weight = @as(f32, @floatFromInt(world)) / batch;
    var loss: f64 = 0;
    for (grads) |values| @memset(values, 0);
    var i = @divFloor(set.batch * rank, world);
    while (i < @divFloor(set.batch * (rank + 1), world)) : (i += 1) {
        const chance = draw(set.seed +% 1, @intCast(step), @intCast(i));
        loss += example(all, grads, text[chance % (text.len - context) ..], weight);
    }
    return loss / batch;
}

/// FNV-1a over the bytes of all parameters.
fn checksum(all: Tensors) u64 {
    var sum: u64 = 0xcbf29ce484222325;
    for (all) |values| for (std.mem.sliceAsBytes(values)) |byte| {
        sum = (sum ^ byte) *% 0x100000001b3;
    };
    return sum;
}

fn arena(comm: ?*zero.zero_comm, bytes: i64, kind: i32) [*]u8 {
    var memory: ?*anyopaque = null;
    call("zero_arena_alloc", .{ comm, @as(usize, @intCast(bytes)), kind, &memory });
    return @ptrCast(memory);
}

fn floats(memory: [*]u8, offset: i64, shape: []const i64) []f32 {
    var count: usize = 1;
    for (shape) |length| count *= @intCast(length);
    const first: [*]f32 = @ptrCast(@alignCast(memory + @as(usize, @intCast(offset))));
    return first[0..count];
}

const Rank = struct {
    comm: ?*zero.zero_comm = null,
    optim: ?*zero.zero_optim = null,
    arenas: [2][*]u8 = undefined,
    all: Tensors = undefined,
    grads: Tensors = undefined,

    /// Places parameters and gradients where zero_partition_plan puts them, so that libzero copies nothing.
    fn build(self: *Rank, set: Settings) void {
        call("zero_set_log_callback", .{ printLog, null, zero.ZERO_LOG_WARNING });
        call("zero_comm_create_env", .{ &self.comm, null });
        var options = zero.zero_options{
            .struct_size = @sizeOf(zero.zero_options),
            .names = &[_][*c]const u8{"lr"},
            .values = &set.lr,
            .setting_count = 1,
        };
        var params: [model.len]zero.zero_param = undefined;
        for (model, &params) |tensor, *param| param.* = .{
            .struct_size = @sizeOf(zero.zero_param),
            .name = tensor.name,
            .shape = tensor.shape.ptr,
            .ndim = @intCast(tensor.shape.len),
            .flags = zero.ZERO_PARAM_PADDED,
        };
        var offsets: [model.len]i64 = undefined;
        var plan = zero.zero_plan{ .struct_size = @sizeOf(zero.zero_plan), .offsets = &offsets };
        call("zero_partition_plan", .{ &params, params.len, zero.zero_comm_world(self.comm), &options, &plan });
        self.arenas = .{
            arena(self.comm, plan.arena_bytes, zero.ZERO_MEMORY_SHARED),
            arena(self.comm, plan.arena_bytes, zero.ZERO_MEMORY_PER_RANK),
        };
        for (model, offsets, &params, 0..) |tensor, offset, *param, p| {
            self.all[p] = floats(self.arenas[0], offset, tensor.shape);
            self.grads[p] = floats(self.arenas[1], offset, tensor.shape);
            param.data = self.all[p].ptr;
            param.grad = self.grads[p].ptr;
        }
        call("zero_create", .{ &self.optim, self.comm, &options });
        call("zero_register_params", .{ self.optim, null, &params, params.len, null });
    }

    fn free(self: *Rank) void {
        call("zero_comm_barrier", .{self.comm});
        call("zero_free", .{self.optim});
        for (self.arenas) |memory| call("zero_arena_free", .{memory});
        call("zero_comm_free", .{self.comm});
    }
};

fn train(set: Settings, text: []const u8, out: *std.Io.Writer) !void {
    var self = Rank{};
    self.build(set);
    defer self.free();
    const rank = zero.zero_comm_rank(self.comm);
    const world = zero.zero_comm_world(self.comm);
    var result = zero.zero_result{ .struct_size = @sizeOf(zero.zero_result) };
    if (set.load.len > 0) {
        call("zero_state_load", .{ self.optim, set.load, null });
        call("zero_step_result", .{ self.optim, &result });
        if (rank == 0) try out.print("loaded={s} step={d} world={d}\n", .{ set.load, result.step, world });
    } else {
        if (rank == 0) initialize(self.all, set.seed);
        call("zero_broadcast_params", .{ self.optim, 0, null });
    }
    const every = if (set.progress) 1 else @divFloor(set.steps + 9, 10);
    var step = result.step + 1;
    while (step <= set.steps) : (step += 1) {
        var loss = forwardBackward(set, text, self.all, self.grads, step, rank, world);
        call("zero_step", .{ self.optim, null });
        call("zero_comm_all_reduce", .{ self.comm, &loss, 1, zero.ZERO_FLOAT64, zero.ZERO_SUM });
        if (rank == 0 and (@mod(step, every) == 0 or step == set.steps)) {
            try out.print("step={d} loss={d:.4}\n", .{ step, loss });
            try out.flush();
        }
    }
    if (set.save.len > 0) {
        const how = zero.zero_save_options{ .struct_size = @sizeOf(zero.zero_save_options), .flags = zero.ZERO_SAVE_REPLACE };
        call("zero_state_save", .{ self.optim, set.save, &how });
    }
    if (rank == 0) try out.print("checksum={X:0>16}\n", .{checksum(self.all)});
    try out.flush();
}

fn parse(words: []const [:0]const u8) Settings {
    const names = comptime std.meta.fieldNames(Settings);
    comptime var options: []const u8 = "";
    inline for (names) |name| options = options ++ " --" ++ name;
    var set = Settings{};
    var i: usize = 0;
    next: while (i < words.len) : (i += 1) {
        inline for (names) |name| if (std.mem.eql(u8, words[i], "--" ++ name)) {
            const field = &@field(set, name);
            if (@TypeOf(field.*) == bool) {
                field.* = true;
                continue :next;
            }
            i += 1;
            const word = if (i < words.len) words[i] else fail("--" ++ name ++ " needs a value", .{});
            field.* = switch (@TypeOf(field.*)) {
                bool => unreachable,
                f64 => std.fmt.parseFloat(f64, word) catch fail("--" ++ name ++ " {s}: is no number", .{word}),
                i64, u64 => |Int| std.fmt.parseInt(Int, word, 10) catch fail("--" ++ name ++ " {s}: is no number", .{word}),
                else => word,
            };
            continue :next;
        };
        fail("{s} is unknown; there are" ++ options, .{words[i]});
    }
    if (set.batch < 1 or set.steps < 0) fail("--batch is at least 1, --steps at least 0", .{});
    return set;
}

pub fn main(init: std.process.Init) !void {
    const memory = init.arena.allocator();
    const words = try init.minimal.args.toSlice(memory);
    const set = parse(words[1..]);
    const text = std.Io.Dir.cwd().readFileAlloc(init.io, set.text, memory, .unlimited) catch |problem|
        fail("{s}: {t}", .{ set.text, problem });
    if (text.len <= context) fail("{s}: is too short to train on", .{set.text});
    var buffer: [256]u8 = undefined;
    var stdout = std.Io.File.stdout().writerStreaming(init.io, &buffer);
    try train(set, text, &stdout.interface);
}
