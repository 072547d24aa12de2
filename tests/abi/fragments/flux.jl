# SPDX-License-Identifier: Apache-2.0
# The fragments of docs/languages.md for Flux and Lux.
include("zero.jl")
using .Zero: Zero, check, made
import Optimisers, Zygote

function register(model, optim)
    #include "languages/julia-flux-and-lux-1.jl"
    return weights
end

function step(model, optim, loss, flat)
    #include "languages/julia-flux-and-lux-2.jl"
end
