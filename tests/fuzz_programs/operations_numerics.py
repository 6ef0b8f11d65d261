"""Operations of torch and its functional interface without parameters."""

from __future__ import annotations

import torch
from operations import IMAGE, SEQUENCE, VECTOR, operation, values
from torch.nn import functional as F


@operation(SEQUENCE, to=SEQUENCE)
def softmax(m, x):
    return x.softmax(1) * x + x.log_softmax(2)


@operation(SEQUENCE, to=SEQUENCE)
def normalise(m, x):
    return F.normalize(x, dim=2, eps=0.1)


@operation(SEQUENCE, VECTOR, to=VECTOR)
def cosine_similarity(m, x, y):
    return (F.cosine_similarity(x, y[:, None], dim=2, eps=0.1)[:, :, None] * x).sum(1)


@operation(SEQUENCE, SEQUENCE, to=SEQUENCE)
def cdist(m, x, y):
    return torch.exp(-torch.cdist(x, y + 0.3)) @ y


@operation(SEQUENCE, to=SEQUENCE)
def interpolate_positions(m, x):
    longer = F.interpolate(x.mT, scale_factor=2.0, mode="linear")
    return F.interpolate(longer, size=x.shape[1], mode="linear", align_corners=True).mT


@operation(IMAGE, to=IMAGE)
def interpolate_image(m, x):
    return x + F.interpolate(F.interpolate(x, size=(3, 2), mode="bilinear"), size=x.shape[2:], mode="bicubic")


@operation(IMAGE, to=IMAGE)
def pad_image(m, x):
    return F.pad(x, (1, 0, 0, 1), mode="replicate")[:, :, 1:, :-1]


@operation(IMAGE, to=IMAGE)
def average_pool(m, x):
    return x - F.avg_pool2d(x, 3, stride=1, padding=1)


@operation(IMAGE, to=IMAGE)
def max_pool(m, x):
    return F.max_pool2d(x, 3, stride=1, padding=1)


@operation(IMAGE, to=IMAGE)
def adaptive_pool(m, x):
    return x * torch.sigmoid(F.adaptive_avg_pool2d(x, 1)) + F.adaptive_max_pool2d(x, 1)


@operation(IMAGE, to=IMAGE)
def sample_grid(m, x):
    shift = torch.tanh(x.mean((1, 2, 3)))
    theta = torch.zeros(len(x), 2, 3, dtype=x.dtype)
    theta[:, 0, 0], theta[:, 1, 1], theta[:, 0, 2] = 0.9, 0.8, 0.3 * shift
    grid = F.affine_grid(theta, [*x.shape], align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


@operation(IMAGE, to=IMAGE, kernel=values("C", 9))
def unfold_image(m, x):
    patches = F.unfold(x, 3, padding=1).view(len(x), x.shape[1], 9, -1)
    return (patches * m.kernel[None, :, :, None]).sum(2).view_as(x)


@operation(IMAGE, to=IMAGE)
def shuffle_channels(m, x):
    return F.pixel_shuffle(x.repeat_interleave(4, 1), 2)[:, :, ::2, 1::2].sin()


@operation(IMAGE, to=IMAGE)
def local_response_norm(m, x):
    return F.local_response_norm(x, 2)


@operation(SEQUENCE, to=SEQUENCE, filters=values("d", 2))
def filter_by_fourier(m, x):
    spectrum = torch.fft.rfft(x, dim=1) * torch.view_as_complex(m.filters)
    return torch.fft.irfft(spectrum, n=x.shape[1], dim=1)


@operation(VECTOR, to=VECTOR)
def complex_magnitude(m, x):
    return torch.complex(x + 0.2, torch.tanh(x) - 1.5).abs()


@operation(VECTOR, to=VECTOR)
def clamp(m, x):
    return x.clamp(-1.5, 0.8) + 0.1 * x


@operation(VECTOR, to=VECTOR)
def exponential_and_logarithm(m, x):
    return torch.log1p(torch.exp(torch.tanh(x))) + F.softplus(x)


@operation(SEQUENCE, to=VECTOR)
def norm_over_positions(m, x):
    return torch.linalg.vector_norm(torch.cat([x, torch.ones_like(x[:, :1])], 1), dim=1)


@operation(SEQUENCE, to=SEQUENCE)
def standardise_features(m, x):
    return (x - x.mean(2, keepdim=True)) / (x.var(2, keepdim=True, unbiased=False) + 0.1).sqrt()


@operation(SEQUENCE, to=SEQUENCE)
def cumulative(m, x):
    return torch.logcumsumexp(x, 1) + torch.tanh(x).cumprod(1)


@operation(SEQUENCE, to=VECTOR)
def logsumexp(m, x):
    return x.logsumexp(1)


@operation(VECTOR, to=VECTOR)
def activations(m, x):
    return F.mish(F.silu(x) + F.gelu(x)) - F.leaky_relu(x)


@operation(VECTOR, to=VECTOR)
def gated_linear_unit(m, x):
    return F.glu(torch.cat([x, torch.sin(x)], 1), 1)


@operation(VECTOR, VECTOR, to=VECTOR)
def lerp(m, x, y):
    return torch.addcmul(torch.lerp(x, y, 0.3), torch.tanh(x), y, value=0.5)


@operation(SEQUENCE, to=SEQUENCE)
def rotary(m, x):
    angles = torch.arange(x.shape[1], dtype=x.dtype)[:, None] / (1 + torch.arange(x.shape[2], dtype=x.dtype))
    return x * angles.cos() + x.roll(1, 2) * angles.sin()


@operation(SEQUENCE, to=SEQUENCE)
def solve(m, x):
    x = torch.tanh(x)
    return torch.linalg.solve(torch.eye(x.shape[1], dtype=x.dtype) + x @ x.mT, x)


@operation(VECTOR, to=VECTOR)
def bounded_ratio(m, x):
    return torch.where(x > 0, x / (1 + x.abs()), torch.atan(x))


@operation(SEQUENCE, to=SEQUENCE)
def smallest_and_largest(m, x):
    return torch.maximum(x, 0.5 * x.amin(1, keepdim=True)) - torch.minimum(x.max(1, keepdim=True).values, 2 - x)


@operation(VECTOR, VECTOR, to=VECTOR)
def squared_errors(m, x, y):
    return F.smooth_l1_loss(x, y, reduction="none") + F.binary_cross_entropy_with_logits(x, torch.sigmoid(y), reduction="none")
