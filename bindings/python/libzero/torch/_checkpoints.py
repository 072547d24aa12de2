# SPDX-License-Identifier: Apache-2.0
"""Saves, loads, and a rank's own bytes in checkpoints: what Optimizer has of them."""

from __future__ import annotations

import os
from typing import Optional, Union

from ._native import NativeShard
from ._sharded import ShardedOptimizer


class Checkpoints(ShardedOptimizer):
    """Checkpoints of parameters and state, with bytes of each rank by names."""

    _native: NativeShard

    def _open(self) -> NativeShard:
        self._sharded()
        return self._native

    def save(self, directory: Union[str, os.PathLike[str]], *, replace: bool = False) -> None:
        """Save parameters, rank 0's buffers, state, options and step as the checkpoint `directory`,
        by all ranks: complete and on stable storage, or not there. Options are those of
        param_groups by now, as a schedule has left them for the next step. RuntimeError between a
        clip and its step.

        >>> optimizer.step()
        >>> optimizer.save("run/step-1")
        """
        self._open().save(self.param_groups, lambda made: made.save(directory, replace=replace))

    def save_begin(
        self, directory: Union[str, os.PathLike[str]], *, replace: bool = False
    ) -> None:
        """Begin a `save` of what is there now, which threads write while training goes on. Until
        `save_wait` change parameters by this optimizer only, and leave them where they are. See
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
        """Whether later steps have found that the save which has begun is complete or failed, on all
        ranks alike; `save_wait` tells which.

        >>> optimizer.save_begin("run/step-1")
        >>> optimizer.save_wait() if optimizer.save_ended else optimizer.step()
        """
        return self._open().core.optimizer.save_ended

    def save_wait(self) -> None:
        """Wait until the save that has begun is on stable storage. libzero.CheckpointError: why there
        is no checkpoint; training may go on.

        >>> optimizer.save_begin("run/step-1")
        >>> optimizer.save_wait()
        """
        self._open().core.optimizer.save_wait()

    def load(self, directory: Union[str, os.PathLike[str]], *, keep_settings: bool = False) -> None:
        """Load a checkpoint, or the latest sound one of a folder of them, whatever number of ranks
        saved it: parameters, buffers, state, and options, which are then in param_groups, unless
        `keep_settings`.

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
        """Let every later save hold these bytes of this rank under `name`, in place of those before;
        None removes them: random states, the position in the data. A rank has at most 256 names of
        1 to 255 bytes, and 16 MiB. A load sets what the rank of the same number saved, and nothing
        else.

        >>> optimizer.state_extra_set("random", torch.get_rng_state().numpy().tobytes())
        """
        self._open().set_extra(name, value)

    def state_extra_get(self, name: str, rank: Optional[int] = None) -> bytes:
        """What `rank` of those that saved had set, after a load and until load_state_dict; the rank of
        the same number as this one by default. libzero.ArgumentError for what was not loaded.

        >>> optimizer.state_extra_set("position", b"17")
        >>> optimizer.step()
        >>> optimizer.save("run/step-1")
        >>> optimizer.load("run")
        >>> optimizer.state_extra_get("position")
        b'17'
        """
        return self._open().core.optimizer.state_extra_get(name, rank)

    def state_extra_list(self) -> list[tuple[int, str]]:
        """The rank and the name of all that state_extra_get gives.

        >>> optimizer.state_extra_list()
        []
        """
        return self._open().core.optimizer.state_extra_list()
