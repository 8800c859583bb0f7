"""Judges whether frames are originals or results of the model, for the setting `sharp`. It is trained here, with the
model, and is not part of it."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

WIDTHS = (32, 64, 128, 128)              # of the levels, each at half of the resolution of the one before
SLOPE = 0.2


class Discriminator(nn.Module):
    """A score for every 8x8 pixels, from a frame and its input, resized: texture must suit the input. The first level
    sees all pixels, so that regular patterns do not pass."""

    def __init__(self):
        super().__init__()
        self.first = spectral_norm(nn.Conv2d(6, WIDTHS[0], 3, 1, 1))
        self.down = nn.ModuleList(spectral_norm(nn.Conv2d(a, b, 4, 2, 1)) for a, b in zip(WIDTHS, WIDTHS[1:]))
        self.same = nn.ModuleList(spectral_norm(nn.Conv2d(b, b, 3, 1, 1)) for b in WIDTHS)
        self.out = spectral_norm(nn.Conv2d(WIDTHS[-1], 1, 3, 1, 1))

    def forward(self, x, seen):
        """Frames and inputs in [0, 1]. The scores, and the features of every level."""
        h, features = torch.cat([x, seen], 1) * 2 - 1, []
        for enter, same in zip([self.first, *self.down], self.same):
            h = F.leaky_relu(enter(h), SLOPE)
            h = h + F.leaky_relu(same(h), SLOPE)
            features.append(h)
        return self.out(h), features


def model_loss(real, fake):
    """How much less real than originals the results look: relative to the mean of originals, as theirs to results."""
    return (F.softplus(real.mean() - fake) + F.softplus(real - fake.mean())).mean() / 2


def own_loss(real, fake):
    return (F.softplus(fake.mean() - real) + F.softplus(fake - real.mean())).mean() / 2


def feature_distance(real, fake):
    """Mean distance of the features of results from those of originals."""
    return sum((a.detach() - b).abs().mean() for a, b in zip(real, fake)) / len(real)
