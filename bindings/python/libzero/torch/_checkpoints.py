# SPDX-License-Identifier: Apache-2.0
"""The methods of Optimizer that save and load checkpoints, and store a rank's own bytes in them."""

from __future__ import annotations

import os
from typing import Optional, Union

from ._native import NativeShard
from ._sharded import ShardedOptimizer


class Checkpoints(ShardedOptimizer):
    """Checkpoints of parameters and optimizer state. Each rank can also store its own bytes in them
    under a name."""

    _native: NativeShard

    def _open(self) -> NativeShard:
        self._sharded()
        return self._native

    def save(self, directory: Union[str, os.PathLike[str]], *, replace: bool = False) -> None:
        """Save the parameters, rank 0's buffers, the state, the options and the step number as the
        checkpoint `directory`. Every rank must call this. The checkpoint is either complete and on
        stable storage, or it does not exist. The saved options are the current options in
        param_groups, which a scheduler has set for the next step. Raises RuntimeError between a
        clip and the step that follows it.

        >>> optimizer.step()
        >>> optimizer.save("run/step-1")
        """
        self._open().save(self.param_groups, lambda made: made.save(directory, replace=replace))

    def save_begin(
        self, directory: Union[str, os.PathLike[str]], *, replace: bool = False
    ) -> None:
        """Begin a `save` of the current state, which threads write while training continues. Until
        `save_wait` returns, change parameters only through this optimizer, and do not move them.
        See libzero.Optimizer.save_begin.

        >>> optimizer.step()
        >>> optimizer.save_begin("run/step-1")
        >>> optimizer.step()
        >>> optimizer.save_wait()
        """
        shard = self._open()
        shard.save(self.param_groups, lambda made: made.save_begin(directory, replace=replace))

    @property
    def save_ended(self) -> bool:
        """True if later steps have detected that the save in progress is complete or has failed.
        The value is the same on all ranks. `save_wait` reports whether the save succeeded.

        >>> optimizer.save_begin("run/step-1")
        >>> optimizer.save_wait() if optimizer.save_ended else optimizer.step()
        """
        return self._open().core.optimizer.save_ended

    def save_wait(self) -> None:
        """Wait until the save in progress is on stable storage. If the save failed,
        libzero.CheckpointError gives the reason, and training may continue.

        >>> optimizer.save_begin("run/step-1")
        >>> optimizer.save_wait()
        """
        self._open().core.optimizer.save_wait()

    def load(self, directory: Union[str, os.PathLike[str]], *, keep_settings: bool = False) -> None:
        """Load parameters, buffers, state and options from a checkpoint, or from the newest intact
        checkpoint in a folder of checkpoints. Any number of ranks may have saved it. Options are
        written to param_groups unless `keep_settings` is set.

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
        """Store `value` for this rank under `name` in every later save, for example a random state
        or the position in the data. It replaces the bytes that were stored under this name before,
        and None removes them. A rank may have at most 256 names of 1 to 255 bytes each, and at most
        16 MiB in total. A load replaces all stored bytes of this rank with the bytes that the rank
        with the same number saved.

        >>> optimizer.state_extra_set("random", torch.get_rng_state().numpy().tobytes())
        """
        self._open().set_extra(name, value)

    def state_extra_get(self, name: str, rank: Optional[int] = None) -> bytes:
        """Return the bytes that the given rank had stored in the loaded checkpoint. By default,
        that is the rank with the same number as this rank. The bytes are available after a load,
        until load_state_dict is called. Raises libzero.ArgumentError if the checkpoint has no such
        bytes.

        >>> optimizer.state_extra_set("position", b"17")
        >>> optimizer.step()
        >>> optimizer.save("run/step-1")
        >>> optimizer.load("run")
        >>> optimizer.state_extra_get("position")
        b'17'
        """
        return self._open().core.optimizer.state_extra_get(name, rank)

    def state_extra_list(self) -> list[tuple[int, str]]:
        """Return the rank and the name of every value that state_extra_get can return.

        >>> optimizer.state_extra_list()
        []
        """
        return self._open().core.optimizer.state_extra_list()
