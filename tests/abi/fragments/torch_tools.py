# Writes the order of an optimizer's parameters for an import.
import os
import tempfile

import torch

os.chdir(tempfile.mkdtemp())
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW([{"params": [model.bias]}, {"params": [model.weight]}])
#include "tools/files-of-other-programs-1.py"
with open("order.txt") as order:
    assert order.read().split() == ["bias", "weight"]
