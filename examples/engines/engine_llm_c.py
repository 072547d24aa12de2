# SPDX-License-Identifier: Apache-2.0
"""llm.c's train_gpt2.c: its parameters and gradients become arenas, and its update becomes zero_step."""

import array
import random
import re
import struct

PROJECT = "karpathy/llm.c"
COMMIT = "f1e2ace651495b74ae22d45d1723443fd00ecd3a"
PROGRAMS = ["cc"]
RANKS = 2
FILE = "train_gpt2.c"
UPDATE = (FILE, r"gpt2_update\(&model[^;]*;")

EDITS = [
    (FILE, r'(#include "llmc/dataloader.h"\n)', r"""\1#include "zero.h"

static zero_comm *comm;
static zero_optim *optim;
static void check(zero_status status) {
    if (status < 0) { fprintf(stderr, "%s\\n", zero_last_error()); exit(1); }
}
"""),
    # Blocks of parameters and of gradients.
    (FILE, r"float\* params_memory = \(float\*\)mallocCheck\((num_parameters \* sizeof\(float\))\);",
     r"void* params_memory;\n    check(zero_arena_alloc(comm, \1, ZERO_MEMORY_PER_RANK, &params_memory));"),
    (FILE, r"free\(model->params_memory\);\n    free\(model->grads_memory\);\n    free\(model->m_memory\);\n"
           r"    free\(model->v_memory\);",
     "zero_free(optim);\n    zero_arena_free(model->params_memory);\n    zero_arena_free(model->grads_memory);"),
    # The update, which registers the gradients that the first backward pass allocated.
    (FILE, r"^void gpt2_update\(.*?^}", r"""void gpt2_update(GPT2 *model, float learning_rate) {
    if (optim == NULL) {
        check(zero_create(&optim, comm, NULL));
        size_t offset = 0;
        for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
            char name[16];
            int64_t size = (int64_t)model->param_sizes[i];
            zero_param param;
            ZERO_INIT(param);
            snprintf(name, sizeof(name), "tensor%d", i);
            param.name = name;
            param.shape = &size;
            param.ndim = 1;
            param.data = model->params_memory + offset;
            param.grad = model->grads_memory + offset;
            offset += model->param_sizes[i];
            check(zero_register_params(optim, NULL, &param, 1, NULL));
        }
        check(zero_group_set(optim, ZERO_ALL_GROUPS, "weight_decay", 0));
        check(zero_broadcast_params(optim, ZERO_ROOT_NONE, NULL));
    }
    check(zero_group_set(optim, ZERO_ALL_GROUPS, "lr", learning_rate));
    check(zero_step(optim, NULL));
}"""),
    (FILE, r"^int main\(\) \{\n", "int main() {\n    check(zero_comm_create_env(&comm, NULL));\n"),
    # The data loader of llm.c already knows ranks.
    (FILE, r"int B = 4;", "int B = 4 / zero_comm_world(comm);"),
    (FILE, r"train_tokens, B, T, 0, 1, 0\)", "train_tokens, B, T, zero_comm_rank(comm), zero_comm_world(comm), 0)"),
    (FILE, r"gpt2_update\(&model, 1e-4f[^;]*;",
     "gpt2_update(&model, 1e-4f);\n"
     "        check(zero_comm_all_reduce(comm, &model.mean_loss, 1, ZERO_FLOAT32, ZERO_SUM));\n"
     "        model.mean_loss /= zero_comm_world(comm);"),
]


def settings(steps):
    """Turns off shuffling, which depends on the number of ranks."""
    return [
        (FILE, r"step <= 40", f"step < {steps}"),
        (FILE, r"train_tokens, B, T, 0, 1, 1\)", "train_tokens, B, T, 0, 1, 0)"),
    ]


def prepare(folder):
    """Writes a model of 2 layers with random weights, and random tokens, in the formats of llm.c."""
    max_t, vocabulary, layers, heads, channels = 64, 256, 2, 4, 64
    draw = random.Random(1)
    sizes = [vocabulary, max_t, *(layers * n for n in (1, 1, 3 * channels, 3, channels, 1, 1, 1, 4 * channels, 4,
                                                       4 * channels, 1)), 1, 1]
    weights = [array.array("f", (draw.gauss(0, 0.02) for _ in range(size * channels))) for size in sizes]
    for norm in (2, 8, 14):
        weights[norm] = array.array("f", [1.0] * len(weights[norm]))
    header = [20240326, 3, max_t, vocabulary, layers, heads, channels, vocabulary]
    with (folder / "gpt2_124M.bin").open("wb") as file:
        file.write(struct.pack("256i", *header, *[0] * 248))
        file.writelines(weights)
    tokens = array.array("H", (draw.randrange(16) for _ in range(65536)))
    data = folder / "dev/data/tinyshakespeare"
    data.mkdir(parents=True)
    for part in ("train", "val"):
        with (data / f"tiny_shakespeare_{part}.bin").open("wb") as file:
            file.write(struct.pack("256i", 20240520, 1, len(tokens), *[0] * 253))
            tokens.tofile(file)


def build(run, folder, libraries):
    binary = folder / "train"
    run("cc", "-O2", "-w", "-I", folder, folder / FILE, "-o", binary, *libraries, "-lm")
    return [str(binary)]


def numbers(_, said):
    return [float(loss) for loss in re.findall(r"step \d+: train loss ([\d.]+)", said)]
