# SPDX-License-Identifier: Apache-2.0
"""KANN: its kann_RMSprop becomes a custom update rule, a function that each rank calls for its shard."""

import array
import random

PROJECT = "attractivechaos/kann"
COMMIT = "e260712e414e1fae5f57a2da6178b7a8af6bf0af"
PROGRAMS = ["cc"]
RANKS = 2
FILE = "kann.c"
UPDATE = (FILE, r"kann_RMSprop\(n_var, [^;]*;")
INPUTS, HIDDEN, OUTPUTS, ROWS, BATCH = 64, 512, 10, 640, 64

EDITS = [
    (FILE, r'(#include "kann.h"\n)', r"""\1#include "zero.h"

static void check(zero_status status)
{
	if (status >= 0) return;
	fprintf(stderr, "%s\\n", zero_last_error());
	exit(1);
}

static zero_comm *ranks(void)
{
	static zero_comm *comm;
	if (comm == 0) check(zero_comm_create_env(&comm, 0));
	return comm;
}

static void *arena(size_t bytes)
{
	void *memory;
	check(zero_arena_alloc(ranks(), bytes, ZERO_MEMORY_PER_RANK, &memory));
	return memory;
}
"""),
    # Blocks of variables and of gradients, in new networks and in loaded ones.
    (FILE, r"x = \*_x = [^;]*;", "x = *_x = (float*)arena(n_var * sizeof(float));"),
    (FILE, r"g = \*_g = [^;]*;", "g = *_g = (float*)arena(n_var * sizeof(float));"),
    (FILE, r"ann->x = \(float\*\)malloc\(", "ann->x = (float*)arena("),
    (FILE, r"ann->g = \(float\*\)calloc\(n_var, ", "ann->g = (float*)arena(n_var * "),
    (FILE, r"free\(a->x\); free\(a->g\);", "zero_arena_free(a->x); zero_arena_free(a->g);"),
    # One rank writes files.
    (FILE, r"(void kann_save\(.*?FILE \*fp;\n)", r"\1	if (zero_comm_rank(ranks()) != 0) return;" "\n"),
    # The update.
    (FILE, r"(?=^int kann_train_fnn1b\()", r"""static zero_status update(void *ctx, const zero_update *part)
{
	kann_RMSprop((int)part->count, (float)part->lr, 0, 0.9f, part->gradient, part->values, part->slots[0]);
	return ZERO_OK;
}

static zero_optim *optimizer(kann_t *ann, float lr)
{
	const char *const slot = "mean_square", *const setting = "lr";
	const double value = lr;
	const int64_t size = kann_size_var(ann);
	zero_custom_optimizer custom;
	zero_options options;
	zero_param param;
	zero_optim *optim;
	ZERO_INIT(custom);
	custom.name = "kann_RMSprop", custom.update = update, custom.slots = &slot, custom.slot_count = 1;
	ZERO_INIT(options);
	options.optimizer = ZERO_OPTIMIZER_CUSTOM, options.custom = &custom;
	options.names = &setting, options.values = &value, options.setting_count = 1;
	ZERO_INIT(param);
	param.name = "variables", param.shape = &size, param.ndim = 1, param.data = ann->x, param.grad = ann->g;
	check(zero_create(&optim, ranks(), &options));
	check(zero_register_params(optim, 0, &param, 1, 0));
	check(zero_broadcast_params(optim, 0, 0));
	return optim;
}

"""),
    (FILE, r", \*r, min_val_cost", ", min_val_cost"),
    (FILE, r"(float \*\*x, \*\*y, [^;]*min_val_cost[^;]*;\n)", r"\1	zero_optim *optim = optimizer(ann, lr);" "\n"
           "	const int rank = zero_comm_rank(ranks()), world = zero_comm_world(ranks());\n"),
    (FILE, r"	r = \(float\*\)calloc\([^;]*;\n", ""),
    (FILE, r"kann_RMSprop\(n_var, [^;]*;", "check(zero_step(optim, 0));"),
    (FILE, r"free\(shuf\); free\(r\);", "free(shuf); zero_free(optim);"),
    # Each rank has its part of a batch, and every rank gets the sums of the printed numbers.
    (FILE, r"int b, c, ms = (n_train - [^;]*);\n", r"""int b, c, batch = \1;
			int first = batch * rank / world, ms = batch * (rank + 1) / world - first;
			n_proc += first;
"""),
    (FILE, r"n_proc \+= ms;(?=\s*\}\s*train_cost)", "n_proc += batch - first;"),
    (FILE, r"(?=		train_cost /= n_train;)", """\
		check(zero_comm_all_reduce(ranks(), &train_cost, 1, ZERO_FLOAT64, ZERO_SUM));
		check(zero_comm_all_reduce(ranks(), &n_train_err, 1, ZERO_INT32, ZERO_SUM));
"""),
]


def settings(steps):
    return [("examples/mlp.c", r"max_epoch = 50", f"max_epoch = {max(1, steps * BATCH // ROWS)}")]


def prepare(folder):
    """Writes random rows with the answers 0 and 1."""
    draw = random.Random(1)
    for name, columns, value in (("inputs", INPUTS, draw.random), ("answers", OUTPUTS, lambda: draw.randrange(2))):
        with (folder / name).open("w", encoding="utf-8") as file:
            for row in range(ROWS):
                print(row, *(f"{value():.4g}" for _ in range(columns)), sep="\t", file=file)


def build(run, folder, libraries):
    binary = folder / "mlp"
    sources = (folder / name for name in ("kann.c", "kautodiff.c", "kann_extra/kann_data.c", "examples/mlp.c"))
    run("cc", "-O2", "-w", "-I", folder, *sources, "-o", binary, *libraries, "-lm")
    return [str(binary), "-n", str(HIDDEN), "-B", str(BATCH), "-v", "0", "-o", "parameters", "inputs", "answers"]


def numbers(folder, _):
    values = array.array("f")
    values.frombytes((folder / "parameters").read_bytes()[-4 * (HIDDEN * (INPUTS + 1) + OUTPUTS * (HIDDEN + 1)):])
    return values
