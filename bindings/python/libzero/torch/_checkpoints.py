# SPDX-License-Identifier: Apache-2.0
"""The Optimizer's methods that save, load, and keep a rank's own bytes in checkpoints."""

from __future__ import annotations

import os
from typing import Optional, Union

from ._native import NativeShard
from ._sharded import ShardedOptimizer


class Checkpoints(ShardedOptimizer):
    """Checkpoints of parameters and state, with bytes of each rank by name."""

    _native: NativeShard

    def _open(self) -> NativeShard:
        self._sharded()
        return self._native

    def save(self, directory: Union[str, os.PathLike[str]], *, replace: bool = False) -> None:
        """Save parameters, rank 0's buffers, state, options and step as the checkpoint `directory`.
        Every rank calls this. The checkpoint is either complete and on stable storage, or does not
        exist. Options are the current ones of param_groups, which a schedule has set for the next
        step. RuntimeError between a clip and its step.

        >>> optimizer.step()
        >>> optimizer.save("run/step-1")
        """
        self._open().save(self.param_groups, lambda made: made.save(directory, replace=replace))

    def save_begin(
        self, directory: Union[str, os.PathLike[str]], *, replace: bool = False
    ) -> None:
        """Begin a `save` of the current state, which threads write while training continues. Until
        `save_wait`, change parameters only through this optimizer, and do not move them. See
        libzero.Optimizer.save_begin.

        >>> optimizer.step()
        >>> optimizer.save_begin("run/step-1")
        >>> optimizer.step()
        >>> optimizer.save_wait()
        """
        shard = self._open()
        shard.save(self.param_groups, lambda made: made.save_begin(directory, replace=replace))

    @property
    def save_ended(self) -> bool:
        """Whether later steps have found that the save in progress is complete or has failed, with
        the same result on all ranks. `save_wait` reports which.

        >>> optimizer.save_begin("run/step-1")
        >>> optimizer.save_wait() if optimizer.save_ended else optimizer.step()
        """
        return self._open().core.optimizer.save_ended

    def save_wait(self) -> None:
        """Wait until the save in progress is on stable storage. libzero.CheckpointError gives the
        reason if there is no checkpoint; training may continue.

        >>> optimizer.save_begin("run/step-1")
        >>> optimizer.save_wait()
        """
        self._open().core.optimizer.save_wait()

    def load(self, directory: Union[str, os.PathLike[str]], *, keep_settings: bool = False) -> None:
        """Load a checkpoint, or the latest sound one in a folder of checkpoints, saved by any
        number of ranks: parameters, buffers, state, and options. Options are written to
        param_groups, unless `keep_settings`.

        >>> optimizer.step()
        >>> optimizer.save("run/step-1")
        >>> optimizer.load("run")
        """
        self._open().load(directory, None if keep_settings else self.param_groups)
        self._fresh = False
        self._gathered = None

    def state_extra_set(
        self, name: str, value: Optional[Union[bytes, bytearray, memoryview]]
    ) -> None:
        """Store these bytes of this rank under `name` in every later save, for example random
        states or the position in the data. They replace the bytes stored before; None removes them.
        A rank has at most 256 names of 1 to 255 bytes, and 16 MiB. A load replaces all of them by
        the bytes that the rank of the same number saved.

        >>> optimizer.state_extra_set("random", torch.get_rng_state().numpy().tobytes())
        """
        self._open().set_extra(name, value)

    def state_extra_get(self, name: str, rank: Optional[int] = None) -> bytes:
        """Return the bytes that `rank` had stored, after a load and until load_state_dict; by
        default the rank of the same number as this one. libzero.ArgumentError if the checkpoint has
        no such bytes.

        >>> optimizer.state_extra_set("position", b"17")
        >>> optimizer.step()
        >>> optimizer.save("run/step-1")
        >>> optimizer.load("run")
        >>> optimizer.state_extra_get("position")
        b'17'
        """
        return self._open().core.optimizer.state_extra_get(name, rank)

    def state_extra_list(self) -> list[tuple[int, str]]:
        """Return the rank and the name of all bytes that state_extra_get returns.

        >>> optimizer.state_extra_list()
        []
        """
        return self._open().core.optimizer.state_extra_list()
