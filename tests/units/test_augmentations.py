import pytest
import torch
from scipy import stats

from privet.errors import InvalidArgumentError
from privet.units.augmentations import AUGMENTATIONS, augmentation


def numbered(examples, height=16, width=24):
    pixels = torch.arange(height * width, dtype=torch.float64).view(1, 1, height, width)
    return pixels.repeat(examples, 2, 1, 1)


def test_flips_are_left_to_right_with_equal_chances(holds_twice):
    images = numbered(1)

    def experiment():
        flipped = AUGMENTATIONS["flip"](images.repeat(4000, 1, 1, 1))
        changed = (flipped != images).flatten(1).any(1)
        assert torch.equal(flipped[changed][:1], images.flip(-1))
        return {"half": stats.binomtest(int(changed.sum()), 4000).pvalue}

    holds_twice(experiment)


def test_shifts_reach_an_eighth_of_each_side_evenly_and_repeat_the_edges(holds_twice):
    images = numbered(1)

    def experiment():
        shifted = AUGMENTATIONS["shift"](images.repeat(6000, 1, 1, 1))
        assert torch.equal(shifted[:, 0], shifted[:, 1])
        middle = shifted[:, 0, 8, 12] - images[0, 0, 8, 12]
        down = (middle / 24).round()
        right = middle - 24 * down
        for one, y, x in zip(shifted[:40, 0], down[:40].long(), right[:40].long(), strict=True):
            where = (torch.arange(16) + y).clamp(0, 15)[:, None] * 24 + (torch.arange(24) + x).clamp(0, 23)
            assert torch.equal(one, where.double())
        counts = [torch.bincount((by + reach).long(), minlength=2 * reach + 1) for by, reach in ((down, 2), (right, 3))]
        assert [len(count) for count in counts] == [5, 7]
        return {name: stats.chisquare(count.numpy()).pvalue for name, count in zip(("down", "right"), counts, strict=True)}

    holds_twice(experiment)


@pytest.mark.parametrize(
    ("names", "dtype"), [(("flip",), torch.float64), (("shift",), torch.bfloat16), (("shift", "flip", "shift"), torch.float32)]
)
def test_labels_types_and_shapes_stay(names, dtype):
    images, labels = torch.randn(7, 3, 9, 32).to(dtype), torch.arange(7)
    changed, same = augmentation(*names)((images, labels))
    assert (changed.shape, changed.dtype) == (images.shape, dtype)
    assert torch.equal(same, labels)
    assert torch.isin(changed, images).all()


def test_images_too_small_to_shift_stay_as_they_are():
    images = torch.randn(5, 1, 7, 7)
    assert torch.equal(AUGMENTATIONS["shift"](images), images)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: augmentation("flip", "melt"), r"^augment is 'melt'; it must be one of 'flip', 'shift'"),
        (lambda: augmentation("flip")((torch.zeros(3, 5), torch.zeros(3))), r"^augment is .* inputs of shape \(5,\)"),
    ],
)
def test_invalid_arguments_are_refused_by_name(make, message):
    with pytest.raises(InvalidArgumentError, match=message):
        make()
