# SPDX-License-Identifier: Apache-2.0
# A character-level language model, trained by any number of ranks with libzero:
#
#     zero-run -n 4 julia examples/julia/char_lm.jl --text LICENSE --steps 300
#
# It has the model, the data and the options of examples/c/char_lm.c, and ends with the same bits, because
# it does the same operations in the same order. Sums are loops, because sum() would choose another order.
include("zero.jl")
using .Zero: Zero, check, made, with
using Printf: @printf, @sprintf

const CONTEXT, EMBED, HIDDEN, SYMBOLS = 8, 16, 384, 256
const INPUT = CONTEXT * EMBED
const NAMES = ["embedding", "hidden.weight", "hidden.bias", "output.weight", "output.bias"]
# The same shapes as in C: a column here is a row there.
const SHAPES = [[SYMBOLS, EMBED], [INPUT, HIDDEN], [HIDDEN], [HIDDEN, SYMBOLS], [SYMBOLS]]
const FAN_IN = [1, INPUT, 0, HIDDEN, 0]

"Parameters or gradients, in libzero's memory."
struct Tensors
    embedding::Matrix{Float32}
    w1::Matrix{Float32}
    b1::Vector{Float32}
    w2::Matrix{Float32}
    b2::Vector{Float32}
end

in_order(all::Tensors) = [all.embedding, all.w1, all.b1, all.w2, all.b2]

function mix(x::UInt64)
    x = xor(x, x >> 30) * 0xbf58476d1ce4e5b9
    x = xor(x, x >> 27) * 0x94d049bb133111eb
    return xor(x, x >> 31)
end

"64 random bits, the same on every rank and in every language."
draw(seed, a, b) = mix(mix(mix(seed % UInt64 + 0x9e3779b97f4a7c15) + a % UInt64) + b % UInt64)

"Uniform in +-1/sqrt(fan in), biases zero."
function initialize(all::Tensors, seed)
    for (number, values) in enumerate(in_order(all))
        fill!(values, 0)
        FAN_IN[number] == 0 && continue
        for i in eachindex(values)
            unit = Float64(draw(seed, number - 1, i - 1) >> 11) / 9007199254740992.0
            values[i] = Float32((2 * unit - 1) / sqrt(FAN_IN[number]))
        end
    end
end

"Eight partial sums, which are added in pairs."
function dot(a, b)
    sums = ntuple(lane -> dot(a, b, lane), 8)
    return ((sums[1] + sums[5]) + (sums[3] + sums[7])) + ((sums[2] + sums[6]) + (sums[4] + sums[8]))
end

function dot(a, b, lane)
    sum = 0.0f0
    for i in lane:8:length(a)
        @inbounds sum += a[i] * b[i]
    end
    return sum
end

"""exp for x <= 0 with only + and *, because math libraries differ in the last bits: its series at
x/1024, squared ten times."""
function exponential(x::Float64)
    y = x / 1024
    value = 1 + y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * (1 + y / 6)))))
    for _ in 1:10
        value *= value
    end
    return x < -100 ? 0.0 : value
end

function hyperbolic_tangent(x::Float32)
    e = exponential(-2 * abs(Float64(x)))
    value = Float32((1 - e) / (1 + e))
    return x < 0 ? -value : value
end

"Probabilities of the next character into `out`."
function forward(all::Tensors, text, input, hidden, out)
    for c in 1:CONTEXT
        input[(c - 1) * EMBED + 1:c * EMBED] .= @view all.embedding[:, text[c] + 1]
    end
    hidden .= all.b1
    for i in 1:INPUT
        hidden .+= @view(all.w1[:, i]) .* input[i]
    end
    hidden .= hyperbolic_tangent.(hidden)
    out .= all.b2
    for h in 1:HIDDEN
        out .+= @view(all.w2[:, h]) .* hidden[h]
    end
    largest, total = maximum(out), 0.0f0
    for s in 1:SYMBOLS
        total += out[s] = Float32(exponential(Float64(out[s] - largest)))
    end
    out ./= total
end

"""Returns the loss of one example, and adds its gradient times `weight` to `grads`. `text` is its context
and the character after that."""
function example(all::Tensors, grads::Tensors, text, weight::Float32)
    input, hidden = zeros(Float32, INPUT), zeros(Float32, HIDDEN)
    out, slope = zeros(Float32, SYMBOLS), zeros(Float32, HIDDEN)
    target = text[CONTEXT + 1] + 1
    forward(all, text, input, hidden, out)
    loss = -log(Float64(out[target]) + 1e-30) # only printed

    out[target] -= 1 # now the gradient of the loss by the logits
    out .*= weight
    grads.b2 .+= out
    for h in 1:HIDDEN
        @view(grads.w2[:, h]) .+= out .* hidden[h]
        slope[h] = dot(@view(all.w2[:, h]), out) * (1 - hidden[h] * hidden[h])
    end
    grads.b1 .+= slope
    for i in 1:INPUT
        @view(grads.w1[:, i]) .+= slope .* input[i]
        c, row = divrem(i - 1, EMBED)
        grads.embedding[row + 1, text[c + 1] + 1] += dot(@view(all.w1[:, i]), slope)
    end
    return loss
end

"""Trains on this rank's part of the batch. Gradients are weighted so that their mean over ranks is the mean
over the batch, even if the number of ranks does not divide it."""
function forward_backward(set, text, all::Tensors, grads::Tensors, step, rank, world)
    weight, loss = Float32(world) / Float32(set.batch), 0.0
    foreach(values -> fill!(values, 0), in_order(grads))
    for i in div(set.batch * rank, world):div(set.batch * (rank + 1), world) - 1
        first = Int(draw(set.seed + 1, step, i) % UInt64(length(text) - CONTEXT))
        loss += example(all, grads, @view(text[first + 1:first + CONTEXT + 1]), weight)
    end
    return loss / set.batch
end

"FNV-1a: equal where all bits are."
function checksum(all::Tensors)
    sum = 0xcbf29ce484222325
    for values in in_order(all), byte in reinterpret(UInt8, vec(values))
        sum = xor(sum, byte) * 0x00000100000001b3
    end
    return sum
end

function views(addresses)
    all = map(addresses, SHAPES) do address, shape
        unsafe_wrap(Array, Ptr{Float32}(address), Tuple(reverse(shape)))
    end
    return Tensors(all...)
end

function arena(comm, bytes, kind)
    out = Ref{Ptr{Cvoid}}()
    check(Zero.zero_arena_alloc(comm, bytes, kind, out))
    return out[]
end

"Parameters and gradients lie where zero_partition_plan says: then libzero copies nothing."
function build(comm, lr)
    optim, offsets = Ref{Zero.Handle}(), zeros(Int64, length(NAMES))
    names, values = ["lr"], [lr]
    addresses = map(pointer, names)
    GC.@preserve names addresses values offsets begin
        options = Ref(made(Zero.zero_options; names = pointer(addresses),
                           values = pointer(values), setting_count = 1))
        params = map(NAMES, SHAPES) do name, shape
            made(Zero.zero_param; name = pointer(name), shape = pointer(shape),
                 ndim = length(shape), flags = Zero.ZERO_PARAM_PADDED)
        end
        plan = Ref(made(Zero.zero_plan; offsets = pointer(offsets)))
        check(Zero.zero_partition_plan(params, length(params), Zero.zero_comm_world(comm), options, plan))
        weights = arena(comm, plan[].arena_bytes, Zero.ZERO_MEMORY_SHARED)
        gradients = arena(comm, plan[].arena_bytes, Zero.ZERO_MEMORY_PER_RANK)
        params = map(params, offsets) do param, offset
            with(param; data = weights + offset, grad = gradients + offset)
        end
        check(Zero.zero_create(optim, comm, options))
        check(Zero.zero_register_params(optim[], C_NULL, params, length(params), C_NULL))
    end
    all = views([param.data for param in params]), views([param.grad for param in params])
    return optim[], all..., (weights, gradients)
end

function steps_done(optim)
    result = Ref(made(Zero.zero_result))
    check(Zero.zero_step_result(optim, result))
    return result[].step
end

function train(set)
    text = read(set.text)
    length(text) > CONTEXT || error("$(set.text): is too short to train on")
    seat = Ref{Zero.Handle}()
    check(Zero.zero_comm_create_env(seat))
    comm = seat[]
    rank, world = Zero.zero_comm_rank(comm), Zero.zero_comm_world(comm)
    optim, all, grads, arenas = build(comm, set.lr)
    if set.load != ""
        check(Zero.zero_state_load(optim, set.load))
        rank == 0 && println("loaded=$(set.load) step=$(steps_done(optim)) world=$world")
    else
        rank == 0 && initialize(all, set.seed)
        check(Zero.zero_broadcast_params(optim, 0))
    end
    every = set.progress ? 1 : div(set.steps + 9, 10)
    for step in steps_done(optim) + 1:set.steps
        loss = [forward_backward(set, text, all, grads, step, rank, world)]
        check(Zero.zero_step(optim))
        check(Zero.zero_comm_all_reduce(comm, loss, 1, Zero.ZERO_FLOAT64, Zero.ZERO_SUM))
        if rank == 0 && (step % every == 0 || step == set.steps)
            @printf("step=%d loss=%.4f\n", step, loss[1])
            flush(stdout)
        end
    end
    if set.save != ""
        how = made(Zero.zero_save_options; flags = Zero.ZERO_SAVE_REPLACE)
        check(Zero.zero_state_save(optim, set.save, Ref(how)))
    end
    rank == 0 && println("checksum=", uppercase(string(checksum(all); base = 16, pad = 16)))
    check(Zero.zero_comm_barrier(comm))
    check(Zero.zero_free(optim))
    foreach(memory -> check(Zero.zero_arena_free(memory)), arenas)
    check(Zero.zero_comm_free(comm))
end

function parse_words(words)
    set = (text = "LICENSE", steps = 200, lr = 2e-3, seed = 1, batch = 192, save = "", load = "",
           progress = false)
    words = copy(words)
    while !isempty(words)
        flag = popfirst!(words)
        name = Symbol(replace(flag, r"^--" => ""))
        if !startswith(flag, "--") || !haskey(set, name)
            error("$flag is unknown; there are ", join("--" .* string.(keys(set)), ", "))
        end
        if name == :progress
            set = merge(set, (progress = true,))
            continue
        end
        isempty(words) && error("$flag needs a value")
        word, before = popfirst!(words), set[name]
        value = before isa String ? word : parse(typeof(before), word)
        set = merge(set, NamedTuple{(name,)}((value,)))
    end
    set.batch >= 1 && set.steps >= 0 || error("--batch is at least 1, --steps at least 0")
    return set
end

try
    train(parse_words(ARGS))
catch problem
    println(stderr, "char_lm: ", sprint(showerror, problem))
    exit(1)
end
