"""What collectives can reach of the links, where it is not the nominal bandwidth of a ring."""

from __future__ import annotations

import numpy as np

from planner.quantities import BytesPerSecond, Count


def two_domain_bandwidth(*, group: Count, local: Count, remote_bandwidth: BytesPerSecond) -> BytesPerSecond:
    """Bus bandwidth of an all-reduce between two link domains over trees, as far as the ways out limit it.

    B = 2 (n-1)/n l remote_bandwidth

    Each domain sends the data once over the ways out of its l ranks together, where a ring sends 2 (n-1)/n as much, so
    that the bus bandwidth of two nodes may reach almost twice what their NICs carry. The trees' share of the links
    inside limits it too. Source: NCCL issue 209 and nccl-tests issue 196; 2 nodes of 8 B200 with 8 x 400 Gb/s reach
    684 to 696 GB/s, 2 of 4 GH200 with 4 x 200 Gb/s 158 (published nccl-tests tables).

    >>> float(two_domain_bandwidth(group=8, local=4, remote_bandwidth=25e9)) / 1e9
    175.0
    """
    return 2 * (group - 1) / group * local * remote_bandwidth


def copying_bandwidth(
    bandwidth: BytesPerSecond, local: Count, *, copy_bandwidth: BytesPerSecond = 700e9
) -> BytesPerSecond:
    """What the ranks of one domain reach of `bandwidth` where each copies its own part too.

    B = bandwidth / (1 + min(bandwidth / copy_bandwidth, 1/3) / (l-1))

    The same kernel copies the part that a rank gathers or exchanges with itself, 1/(l-1) of what it sends: it counts
    where groups are small and links fast. Source: all-gather of 2, 3, 5 and 8 A100 reaches 156, 184, 203 and 213 GB/s,
    all-to-all 181 on 2 and 225 on 8 (github.com/abhivijay96/nccl-tests); of 2 B200 483, where more reach some 650.
    Both constants are fitted to these.

    >>> round(float(copying_bandwidth(227e9, 2)) / 1e9), round(float(copying_bandwidth(227e9, 8)) / 1e9)
    (171, 217)
    """
    copying = np.minimum(bandwidth / copy_bandwidth, 1 / 3)
    return bandwidth / (1 + copying / (np.maximum(local, 2) - 1))
