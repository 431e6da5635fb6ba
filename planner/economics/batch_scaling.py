"""Rules for batch and learning rate: advice from the literature, each with its limits."""

from __future__ import annotations

import numpy as np

from planner.quantities import Count, Flop, Scalar


def linear_rate_factor(batch_factor: Scalar) -> Scalar:
    """What the learning rate of SGD is multiplied by when the batch is.

    r = k

    Source: Goyal et al. 2017 (arXiv 1706.02677): ResNet-50 up to 8,192 images with a warm-up over 5 epochs. Fails
    beyond the critical batch, where larger batches stop saving steps.

    >>> linear_rate_factor(2.0)
    2.0
    """
    return batch_factor


def root_rate_factor(batch_factor: Scalar) -> Scalar:
    """What the learning rate of Adam and its kin is multiplied by when the batch is.

    r = sqrt(k)

    Source: Malladi et al. 2022 (arXiv 2205.10287), who let 1 - beta grow by k as well. Fails beyond the critical batch
    and where gradients are not mostly noise (very large batches, late in training).

    >>> float(root_rate_factor(4.0))
    2.0
    """
    return np.sqrt(batch_factor)


def fitted_batch(compute: Flop) -> Count:
    """Tokens per step that came out best for a compute budget.

    B = 0.2920 C^0.3271

    Source: DeepSeek LLM, Bi et al. 2024 (arXiv 2401.02954), section 3.1: fitted to runs of 1e17 to 2e19 FLOP with AdamW
    and a multi-step schedule, and used for 7B and 67B. A broad optimum: half or twice as much loses little.

    >>> round(float(fitted_batch(8.0e23) / 1e6), 1)
    19.2
    """
    return 0.2920 * compute**0.3271


def fitted_learning_rate(compute: Flop) -> Scalar:
    """Peak learning rate that came out best for a compute budget, at the batch of `fitted_batch`.

    lr = 0.3118 C^-0.1250

    Source: as `fitted_batch`.

    >>> round(float(fitted_learning_rate(8.0e23)), 6)
    0.000321
    """
    return 0.3118 * compute**-0.1250
