"""Deskewing makes slanted strokes upright and leaves upright ones unchanged, for each image by itself."""

import pytest
import torch

from privet_experiments.features.upright import deskew


def leaning(shear, height=15, size=29, middle=14):
    """A bar two pixels wide with its top moved to the right and its bottom to the left."""
    image = torch.full((1, 1, size, size), -0.4)
    rows = torch.arange(middle - height // 2, middle + height // 2 + 1)
    columns = (14 + shear * (middle - rows)).round().long()
    image[0, 0, rows, columns] = image[0, 0, rows, columns + 1] = 2.8
    return image


def lean(image):
    """Covariance of vertical and horizontal position of the ink, over the variance of the vertical position."""
    ink = (image - image.amin())[0, 0].double()
    ink, places = ink / ink.sum(), torch.arange(image.shape[-1], dtype=torch.float64)
    heights, breadths = places - (ink.sum(1) * places).sum(), places - (ink.sum(0) * places).sum()
    return float((ink * heights[:, None] * breadths).sum() / (ink.sum(1) * heights.square()).sum())


@pytest.mark.parametrize("shear", [-0.6, -0.25, 0.1, 0.4, 0.7])
@pytest.mark.parametrize("middle", [11, 16])
def test_a_slanted_stroke_becomes_upright(shear, middle):
    image = leaning(shear, middle=middle)
    assert abs(lean(image)) > 0.08
    assert abs(lean(deskew(image))) < 0.02


def test_an_upright_stroke_stays():
    image = leaning(0.0)
    torch.testing.assert_close(deskew(image), image, rtol=0, atol=1e-4)


def test_each_image_is_deskewed_by_itself():
    images = torch.cat([leaning(shear) for shear in (-0.5, 0.0, 0.3)])
    together = deskew(images)
    for place in range(3):
        torch.testing.assert_close(together[place : place + 1], deskew(images[place : place + 1]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("image", [
    torch.zeros(1, 1, 8, 8), torch.full((1, 1, 8, 8), 3.0), torch.eye(8)[None, None, :1].expand(1, 1, 8, 8).contiguous(),
], ids=["empty", "one value", "one row"])  # fmt: skip
def test_images_without_a_slant_are_unchanged_and_finite(image):
    torch.testing.assert_close(deskew(image), image, rtol=0, atol=1e-4)
