"""Tensors as memory of operations: element types, dense copies, and types that remuda cannot sum."""

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch
from torch.distributed import ReduceOp

from remuda import native
from remuda.torch.errors import BadArgument

#: Types that remuda reduces.
CODES = {
    torch.float32: native.F32,
    torch.float64: native.F64,
    torch.int32: native.I32,
    torch.int64: native.I64,
    torch.uint8: native.U8,
    torch.float16: native.F16,
    torch.bfloat16: native.BF16,
}

_RED: Any = ReduceOp.RedOpType
REDUCTIONS = {
    _RED.SUM: native.SUM,
    _RED.AVG: native.AVG,
    _RED.PRODUCT: native.PROD,
    _RED.MIN: native.MIN,
    _RED.MAX: native.MAX,
}
BITWISE: "dict[object, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]" = {
    _RED.BAND: torch.bitwise_and,
    _RED.BOR: torch.bitwise_or,
    _RED.BXOR: torch.bitwise_xor,
}
#: Reductions of truth values, as those of bytes.
_OF_BOOL = {
    _RED.SUM: native.MAX,
    _RED.MAX: native.MAX,
    _RED.BOR: native.MAX,
    _RED.PRODUCT: native.MIN,
    _RED.MIN: native.MIN,
    _RED.BAND: native.MIN,
}


def _wider_types() -> "dict[torch.dtype, torch.dtype]":
    """Types that are reduced as another one and converted back; integers wrap as if they were not."""
    found = {torch.int8: torch.int32, torch.int16: torch.int32}
    unsigned = [("uint16", torch.int32), ("uint32", torch.int64)]
    floats = [(name, torch.float32) for name in dir(torch) if name.startswith("float8_e")]
    # Older versions of torch do not have all of them.
    known = [(getattr(torch, name, None), wide) for name, wide in unsigned + floats]
    found.update((kind, wide) for kind, wide in known if isinstance(kind, torch.dtype))
    return found


WIDER = _wider_types()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if its elements are one block of memory in their order, else a copy that is."""
    if tensor.device.type not in ("cpu", "cuda"):
        problem = f"a tensor is on device {tensor.device}"
        raise BadArgument(f"{problem}, remuda moves those of host memory and of GPUs of NVIDIA")
    if tensor.layout != torch.strided:
        raise BadArgument(f"a tensor has the layout {tensor.layout}, only dense tensors can be sent")
    if tensor.is_complex() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.contiguous()


def block(tensor: torch.Tensor) -> "Tuple[int, int]":
    """Number and code of the elements of a tensor that is only moved: other types are bytes."""
    code = CODES.get(tensor.dtype)
    if code is not None:
        return tensor.numel(), code
    return tensor.numel() * tensor.element_size(), native.U8


class Summand(NamedTuple):
    """A tensor in a form that remuda reduces: ``memory`` is a dense tensor of a type in `CODES`."""

    memory: torch.Tensor
    op: int

    @property
    def block(self) -> "Tuple[int, int, int]":
        """Address, number and code of the elements."""
        return self.memory.data_ptr(), self.memory.numel(), CODES[self.memory.dtype]


def reduction(op: object) -> object:
    """Kind of a reduction, which torch states in two forms."""
    return getattr(op, "op", op)


def summand(tensor: torch.Tensor, given: object) -> Summand:
    """The form in which a tensor is reduced."""
    op, kind = reduction(given), tensor.dtype
    flat = dense(tensor)
    if op == getattr(_RED, "PREMUL_SUM", None):
        factor = getattr(given, "factor", None)
        if factor is None:
            raise BadArgument("the factor of PREMUL_SUM is not known in this version of torch")
        flat, op = flat * factor, _RED.SUM
    if kind is torch.bool and op in _OF_BOOL:
        return Summand(flat.view(torch.uint8), _OF_BOOL[op])
    code = REDUCTIONS.get(op)
    if code is not None:
        if kind in CODES:
            return Summand(flat, code)
        if kind in WIDER:
            return Summand(flat.to(WIDER[kind]), code)
        if kind.is_complex and op in (_RED.SUM, _RED.AVG):
            return Summand(torch.view_as_real(flat), code)
        if kind is getattr(torch, "uint64", None) and op in (_RED.SUM, _RED.PRODUCT):
            return Summand(flat.view(torch.int64), code)
    raise BadArgument(f"elements of type {kind} have no reduction {op}")


def restored(memory: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """The values of a `Summand` in the type of its tensor."""
    if memory.dtype == kind:
        return memory
    if kind.is_complex:
        return torch.view_as_complex(memory)
    if kind is torch.bool or memory.element_size() == kind.itemsize:
        return memory.view(kind)
    return memory.to(kind)


def copier(target: torch.Tensor, memory: torch.Tensor) -> "Optional[Callable[[], None]]":
    """What copies the result back to a tensor; None if it is in place already."""
    if memory.data_ptr() == target.data_ptr() and (target.numel() == 0 or target.is_contiguous()):
        return None

    def copy() -> None:
        target.copy_(restored(memory, target.dtype).view(target.shape))

    return copy


def folded(op: object, parts: List[torch.Tensor]) -> torch.Tensor:
    """Bitwise reduction of the parts of all ranks, in rank order."""
    fold = BITWISE[reduction(op)]
    result = parts[0].clone()
    for part in parts[1:]:
        result = fold(result, part)
    return result


def empty_for(parts: List[torch.Tensor]) -> torch.Tensor:
    """One block for tensors of one type, one after the other."""
    return torch.empty(sum(part.numel() for part in parts), dtype=parts[0].dtype, device=parts[0].device)


def spread(flat: torch.Tensor, parts: List[torch.Tensor]) -> "Callable[[], None]":
    """What copies a block into its tensors."""

    def copy() -> None:
        at = 0
        for part in parts:
            part.copy_(flat[at : at + part.numel()].view(part.shape))
            at += part.numel()

    return copy
