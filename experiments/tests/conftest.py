import pytest

from privet_experiments.tasks import job


@pytest.fixture(autouse=True)
def fresh_examples():
    """What one test loaded, perhaps from a place of its own, is not what the next one gets."""
    job.read.cache_clear()
    job.load.cache_clear()
    yield
    job.read.cache_clear()
    job.load.cache_clear()
