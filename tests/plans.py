"""A plan of the tests, with fields to change."""

from privet import Plan
from privet.clipping import Flat
from privet.noise import Gaussian
from privet.sampling import Poisson


def plan(**changes):
    values = {
        "examples": 60_000, "sampling": Poisson(batch_size=512), "steps": 300, "clipping": Flat(bound=0.7), "delta": 1e-5,
        "noise": Gaussian(multiplier=2.3),
    }  # fmt: skip
    return Plan(**{**values, **changes})
