"""What a device can do at most, as measured: the denominators of MFU and MBU. No torch."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DevicePeaks:
    """`matmul_flops` by dtype name (FLOP/s), `read_bandwidth` as (bytes, bytes/s), ascending.

    Not `is_quiet`: other programs kept the device busy meanwhile, it can do more than this.
    """

    matmul_flops: dict[str, float]
    read_bandwidth: tuple[tuple[int, float], ...]
    is_quiet: bool = True

    def bandwidth_at(self, working_set: int) -> float:
        """Bytes/s when `working_set` bytes are read in turn, interpolated between sizes."""
        sizes = [size for size, _ in self.read_bandwidth]
        index = bisect_left(sizes, working_set)
        if index == 0:
            return self.read_bandwidth[0][1]
        if index == len(sizes):
            return self.read_bandwidth[-1][1]
        (low, low_rate), (high, high_rate) = self.read_bandwidth[index - 1 : index + 1]
        share = (working_set - low) / (high - low)
        return low_rate + share * (high_rate - low_rate)


@dataclass(frozen=True, slots=True)
class Roofs:
    """The peaks that count for a loaded model: its roofline.

    `matmul_dtype` names what its dense products are computed in.
    """

    peaks: DevicePeaks
    matmul_dtype: str

    @property
    def matmul_flops(self) -> float:
        """FLOP/s of matrix products at most: the flat roof."""
        return self.peaks.matmul_flops[self.matmul_dtype]

    def bandwidth_at(self, working_set: int) -> float:
        """Bytes/s at most: the slope of the other roof."""
        return self.peaks.bandwidth_at(working_set)
