# SPDX-License-Identifier: Apache-2.0
"""The types of libzero's arguments, for use in your annotations.

The words that stand for constants of zero.h are generated from zero.h. The names of rules and
settings come from the library, which may be newer than this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar, Union

from ._zero_h import (
    Device as Device,
    Dtype as Dtype,
    HalfDtype as HalfDtype,
    Master as Master,
    MemoryKind as MemoryKind,
    Nonfinite as Nonfinite,
    Operation as Operation,
    Partition as Partition,
    Reduction as Reduction,
    RuleName as RuleName,
    StateDtype as StateDtype,
    UnevenInputs as UnevenInputs,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = Any

Shape = Union[int, Sequence[int]]

T = TypeVar("T")
# Iterable would include dict, and a type checker could not check the values of a mapping.
Several = Union[Sequence[T], Iterator[T], Set[T]]


class Tensor(Protocol):
    """A torch tensor."""

    def data_ptr(self) -> int: ...


class HostArray(Protocol):
    """A numpy array, or an array from another library that provides numpy's array interface."""

    @property
    def __array_interface__(self) -> Any: ...


class CudaArray(Protocol):
    """A GPU array from a library such as CuPy or Numba."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


class DLPackArray(Protocol):
    """An array of any library that supports DLPack."""

    def __dlpack__(self, *args: Any, **arguments: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


# Buffer is any object that memoryview accepts, such as ctypes arrays and array.array. The tuple is
# (address, shape).
Array = Union[Tensor, HostArray, CudaArray, DLPackArray, Buffer, tuple[int, Shape]]

FloatingDtype = Literal["float32", "float64", "bfloat16", "float16"]
NumberDtype = Literal["float32", "float64"]


class Settings(TypedDict, total=False):
    """The settings of all rules. For the settings of each rule and their defaults, see
    docs/optimizers.md. A CustomOptimizer declares its own settings, which a program changes with
    group["name"]."""

    lr: float
    beta1: float
    beta2: float
    beta3: float
    eps: float
    weight_decay: float
    amsgrad: float
    maximize: float
    momentum: float
    dampening: float
    nesterov: float
    alpha: float
    centered: float
    lr_decay: float
    initial_accumulator_value: float
    rho: float
    decoupled_weight_decay: float
    momentum_decay: float
    eta_minus: float
    eta_plus: float
    step_size_min: float
    step_size_max: float
    always_adapt: float
    trust_coefficient: float
    alpha_warmup: float
    beta3_warmup: float
