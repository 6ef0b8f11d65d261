"""Operations of torch and its functional interface without parameters."""

import torch
from operations import IMAGE, SEQUENCE, VECTOR, enter, operation, values
from torch.nn import functional as F

enter("softmax", lambda m, x: x.softmax(1) * x + x.log_softmax(2), SEQUENCE, to=SEQUENCE)
enter("normalise", lambda m, x: F.normalize(x, dim=2, eps=0.1), SEQUENCE, to=SEQUENCE)
enter("cosine_similarity", lambda m, x, y: (F.cosine_similarity(x, y[:, None], dim=2, eps=0.1)[:, :, None] * x).sum(1),
      SEQUENCE, VECTOR, to=VECTOR)  # fmt: skip
enter("cdist", lambda m, x, y: torch.exp(-torch.cdist(x, y + 0.3)) @ y, SEQUENCE, SEQUENCE, to=SEQUENCE)
enter("pad_image", lambda m, x: F.pad(x, (1, 0, 0, 1), mode="replicate")[:, :, 1:, :-1], IMAGE, to=IMAGE)
enter("average_pool", lambda m, x: x - F.avg_pool2d(x, 3, stride=1, padding=1), IMAGE, to=IMAGE)
enter("max_pool", lambda m, x: F.max_pool2d(x, 3, stride=1, padding=1), IMAGE, to=IMAGE)
enter("adaptive_pool", lambda m, x: x * torch.sigmoid(F.adaptive_avg_pool2d(x, 1)) + F.adaptive_max_pool2d(x, 1), IMAGE, to=IMAGE)
enter("shuffle_channels", lambda m, x: F.pixel_shuffle(x.repeat_interleave(4, 1), 2)[:, :, ::2, 1::2].sin(), IMAGE, to=IMAGE)
enter("local_response_norm", lambda m, x: F.local_response_norm(x, 2), IMAGE, to=IMAGE)
enter("complex_magnitude", lambda m, x: torch.complex(x + 0.2, torch.tanh(x) - 1.5).abs(), VECTOR, to=VECTOR)
enter("clamp", lambda m, x: x.clamp(-1.5, 0.8) + 0.1 * x, VECTOR, to=VECTOR)
enter("exponential_and_logarithm", lambda m, x: torch.log1p(torch.exp(torch.tanh(x))) + F.softplus(x), VECTOR, to=VECTOR)
enter("norm_over_positions", lambda m, x: torch.linalg.vector_norm(torch.cat([x, torch.ones_like(x[:, :1])], 1), dim=1),
      SEQUENCE, to=VECTOR)  # fmt: skip
enter("standardise_features", lambda m, x: (x - x.mean(2, keepdim=True)) / (x.var(2, keepdim=True, unbiased=False) + 0.1).sqrt(),
      SEQUENCE, to=SEQUENCE)  # fmt: skip
enter("cumulative", lambda m, x: torch.logcumsumexp(x, 1) + torch.tanh(x).cumprod(1), SEQUENCE, to=SEQUENCE)
enter("logsumexp", lambda m, x: x.logsumexp(1), SEQUENCE, to=VECTOR)
enter("activations", lambda m, x: F.mish(F.silu(x) + F.gelu(x)) - F.leaky_relu(x), VECTOR, to=VECTOR)
enter("gated_linear_unit", lambda m, x: F.glu(torch.cat([x, torch.sin(x)], 1), 1), VECTOR, to=VECTOR)
enter("lerp", lambda m, x, y: torch.addcmul(torch.lerp(x, y, 0.3), torch.tanh(x), y, value=0.5), VECTOR, VECTOR, to=VECTOR)
enter("bounded_ratio", lambda m, x: torch.where(x > 0, x / (1 + x.abs()), torch.atan(x)), VECTOR, to=VECTOR)
enter("interpolate_image", lambda m, x: x + F.interpolate(
      F.interpolate(x, size=(3, 2), mode="bilinear"), size=x.shape[2:], mode="bicubic"), IMAGE, to=IMAGE)  # fmt: skip
enter("smallest_and_largest", lambda m, x: torch.maximum(
      x, 0.5 * x.amin(1, keepdim=True)) - torch.minimum(x.max(1, keepdim=True).values, 2 - x), SEQUENCE, to=SEQUENCE)  # fmt: skip
enter("squared_errors", lambda m, x, y: F.smooth_l1_loss(x, y, reduction="none") + F.binary_cross_entropy_with_logits(
      x, torch.sigmoid(y), reduction="none"), VECTOR, VECTOR, to=VECTOR)  # fmt: skip


@operation(SEQUENCE, to=SEQUENCE)
def interpolate_positions(m, x):
    longer = F.interpolate(x.mT, scale_factor=2.0, mode="linear")
    return F.interpolate(longer, size=x.shape[1], mode="linear", align_corners=True).mT


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


@operation(SEQUENCE, to=SEQUENCE, filters=values("d", 2))
def filter_by_fourier(m, x):
    spectrum = torch.fft.rfft(x, dim=1) * torch.view_as_complex(m.filters)
    return torch.fft.irfft(spectrum, n=x.shape[1], dim=1)


@operation(SEQUENCE, to=SEQUENCE)
def rotary(m, x):
    angles = torch.arange(x.shape[1], dtype=x.dtype)[:, None] / (1 + torch.arange(x.shape[2], dtype=x.dtype))
    return x * angles.cos() + x.roll(1, 2) * angles.sin()


@operation(SEQUENCE, to=SEQUENCE)
def solve(m, x):
    x = torch.tanh(x)
    return torch.linalg.solve(torch.eye(x.shape[1], dtype=x.dtype) + x @ x.mT, x)
