"""Compare the results of two computations up to their rounding errors.

Processors sum in different orders: with AVX-512 a float32 gradient differs from the same one with AVX2 by more than the default
tolerances of torch. So tests state a tolerance or derive it here (`test_comparisons.py` finds those that do neither).
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def tolerance(*tensors: Tensor, terms: int = 1000, precision: torch.dtype | None = None) -> float:
    """Bound the rounding error of elements of these tensors: `terms` roundings, each of the largest finite element at most.

    A sum of n products errs by n eps times the sum of their magnitudes. The default covers a few layers with a hundred terms each
    and sums that cancel to a tenth. Integers and truth values have to be equal. `precision` is the type of the computation, by
    default that of the least precise tensor.
    """
    if not all(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors):
        return 0.0
    magnitudes = [tensor.detach().abs().double().nan_to_num(0.0, posinf=0.0) for tensor in tensors]
    largest = max((float(magnitude.max()) for magnitude in magnitudes if magnitude.numel()), default=0.0)
    dtypes = [precision] if precision else [tensor.dtype for tensor in tensors]
    return terms * max(torch.finfo(dtype).eps for dtype in dtypes) * largest


Compared = Tensor | Mapping[str, "Compared"] | Sequence["Compared"]


def assert_equal_up_to_rounding(
    found: Compared, expected: Compared, *, terms: int = 1000, precision: torch.dtype | None = None, name: str = ""
) -> None:
    """Assert that tensors, or mappings and sequences of them, differ by no more than `tolerance`."""
    if isinstance(expected, Tensor):
        allowed = tolerance(found, expected, terms=terms, precision=precision)
        torch.testing.assert_close(
            found, expected, rtol=0, atol=allowed, equal_nan=True, msg=lambda text: f"{name or 'Tensors'}: {text}"
        )
    elif isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_equal_up_to_rounding(found[key], value, terms=terms, precision=precision, name=key)
    else:
        for one, other in zip(found, expected, strict=True):
            assert_equal_up_to_rounding(one, other, terms=terms, precision=precision, name=name)
