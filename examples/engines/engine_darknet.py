# SPDX-License-Identifier: Apache-2.0
"""darknet: its update_network becomes zero_step. It is SGD with momentum, and decays only weights."""

import array
import random

PROJECT = "pjreddie/darknet"
COMMIT = "f6afaabcdf85f77e7aff2ec55c020c0e297c77f9"
PROGRAMS = ["cc"]
RANKS = 3
FILE = "src/network.c"
UPDATE = (FILE, r"update_network\(net\);")
SIDE, CLASSES, ROWS = 12, 10, 96

EDITS = [
    ("include/darknet.h", r"(#include <pthread.h>\n)", "\\1#include \"zero.h\"\n\nzero_comm *ranks();\n"),
    # The update, which registers the arrays that the parser allocated. The gradients of darknet point downhill, and
    # are sums over this rank's part of the batch.
    (FILE, r"(?=^void update_network\()", r"""static void check(zero_status status)
{
    if(status >= 0) return;
    fprintf(stderr, "%s\\n", zero_last_error());
    exit(1);
}

zero_comm *ranks()
{
    static zero_comm *comm;
    if(!comm) check(zero_comm_create_env(&comm, 0));
    return comm;
}

typedef struct {
    float *data, *grad;
    int64_t size;
} tensor;

static int tensors_of(layer l, tensor *out)
{
    int dense = l.type == CONNECTED, n = dense ? l.outputs : l.n;
    if(!dense && l.type != CONVOLUTIONAL) error("libzero updates connected and convolutional layers");
    out[0] = (tensor){l.weights, l.weight_updates, dense ? l.inputs*l.outputs : l.nweights};
    out[1] = (tensor){l.biases, l.bias_updates, n};
    out[2] = (tensor){l.scales, l.scale_updates, n};
    return 2 + l.batch_normalize;
}

static zero_optim *optimizer(network *net, update_args a)
{
    const char *names[] = {"momentum", "maximize"};
    const double values[] = {a.momentum, 1};
    zero_options options;
    zero_optim *optim;
    int i, j;
    ZERO_INIT(options);
    options.optimizer = ZERO_OPTIMIZER_SGD;
    options.names = names, options.values = values, options.setting_count = 2;
    check(zero_create(&optim, ranks(), &options));
    check(zero_group_set(optim, ZERO_ALL_GROUPS, "loss_scale", a.batch));
    for(i = 0; i < net->n; ++i){
        tensor tensors[3];
        for(j = net->layers[i].update ? tensors_of(net->layers[i], tensors) : 0; j-- > 0;){
            char name[32];
            zero_param param;
            ZERO_INIT(param);
            sprintf(name, "layer%d.%s", i, (const char *[]){"weights", "biases", "scales"}[j]);
            param.name = name, param.shape = &tensors[j].size, param.ndim = 1;
            param.data = tensors[j].data, param.grad = tensors[j].grad;
            param.flags = ZERO_PARAM_LR_SCALE | ZERO_PARAM_WEIGHT_DECAY;
            param.lr_scale = net->layers[i].learning_rate_scale, param.weight_decay = j == 0 ? a.decay : 0;
            check(zero_register_params(optim, 0, &param, 1, 0));
        }
    }
    check(zero_broadcast_params(optim, 0, 0));
    return optim;
}

"""),
    (FILE, r"(a\.t = \*net\.t;\n).*?(    for\(i = 0; [^;]*; \+\+i\)\{\s*layer l = [^;]*;\n)        if\(l\.update\)\{\n"
     r".*?\n        \}\n", r"""\1    static zero_optim *optim;
    if(!optim) optim = optimizer(netp, a);
    check(zero_group_set(optim, ZERO_ALL_GROUPS, "lr", a.learning_rate));
    check(zero_step(optim, 0));
\2        tensor tensors[3];
        int j;
        for(j = l.update ? tensors_of(l, tensors) : 0; j-- > 0;) fill_cpu(tensors[j].size, 0, tensors[j].grad, 1);
"""),
    # Each rank has its part of a batch, and every rank gets the mean of the losses.
    ("src/parser.c", r"net->batch /= subdivs;", "net->batch /= subdivs * zero_comm_world(ranks());"),
    ("src/data.c", r"(^void get_random_batch\(.*?)j < n(.*?)(rand\(\)[^;]*;\n)",
     r"\1j < n*zero_comm_world(ranks())\2\3        if(j / n != zero_comm_rank(ranks())) continue;" "\n"),
    ("src/data.c", r"memcpy\(X\+j(\*d.X.cols, d.X.vals\[index\].*?)y\+j(\*d.y.cols.*?^\}\n\nvoid get_next_batch)",
     r"memcpy(X+j%n\1y+j%n\2"),
    (FILE, r"(?<=float error = \*net->cost;\n)", """\
    check(zero_comm_all_reduce(ranks(), &error, 1, ZERO_FLOAT32, ZERO_SUM));
    error /= zero_comm_world(ranks());
"""),
    # One rank writes files.
    ("src/parser.c", r"(^void save_weights_upto\([^{]*\{\n)", r"\1    if(zero_comm_rank(ranks()) != 0) return;" "\n"),
]


def settings(steps):
    """Changes the training for CIFAR to read rows of a text file, and to begin with the same weights in each run."""
    example = "examples/cifar.c"
    return [
        (example, r"(void train_cifar\(char[^}]*?srand\()time\(0\)", r"\g<1>1"),
        (example, r"(void train_cifar\(char.*?backup_directory = )[^;]*(;.*?data train = )[^;]*",
         rf'\1"."\2load_categorical_data_csv("rows", 0, {CLASSES})'),
        (example, r"\A", '#include "data.h"\n'),
        (example, r"\Z", 'int main() { train_cifar("small.cfg", 0); return 0; }\n'),
        ("src/parser.c", r"net->max_batches = [^;]*;", f"net->max_batches = {steps};"),
    ]


def prepare(folder):
    """Writes a small network, random rows that begin with their class, and the names of the classes."""
    draw = random.Random(1)
    (folder / "small.cfg").write_text(f"""[net]
batch=48
height={SIDE}
width={SIDE}
channels=3
learning_rate=0.01
momentum=0.9
decay=0.0005
[convolutional]
filters=32
size=3
pad=1
activation=leaky
[maxpool]
size=2
stride=2
[connected]
output={CLASSES}
activation=linear
[softmax]
""", encoding="utf-8")
    with (folder / "rows").open("w", encoding="utf-8") as file:
        for _ in range(ROWS):
            pixels = (f"{draw.random():.4f}" for _ in range(3 * SIDE * SIDE))
            print(draw.randrange(CLASSES), *pixels, sep=",", file=file)
    labels = folder / "data/cifar/labels.txt"
    labels.parent.mkdir(parents=True)
    labels.write_text("".join(f"{label}\n" for label in range(CLASSES)), encoding="utf-8")


def build(run, folder, libraries):
    binary = folder / "train"
    # darknet's Makefile leaves compare.c out, too.
    sources = [path for path in (folder / "src").glob("*.c") if path.name != "compare.c"]
    run("cc", "-O2", "-w", "-I", folder / "include", "-I", folder / "src", *sources, folder / "examples/cifar.c",
        "-o", binary, *libraries, "-lm", "-pthread")
    return [str(binary)]


def numbers(folder, _):
    header = 3 * 4 + 8
    values = array.array("f")
    values.frombytes((folder / "small.weights").read_bytes()[header:])
    return values
