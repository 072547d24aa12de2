# SPDX-License-Identifier: Apache-2.0
# The fragments of docs/integrate.md for Flux and Lux.
include("zero.jl")
using .Zero: Zero, check, made
import Optimisers, Zygote

function register(model, optim)
    #include "integrate/flux-and-lux-1.jl"
    return weights
end

function step(model, optim, loss, flat)
    #include "integrate/flux-and-lux-2.jl"
end
