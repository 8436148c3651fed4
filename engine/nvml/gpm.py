"""Activity of a GPU's parts from NVML's GPM counters, which data-centre cards since Hopper have."""

from __future__ import annotations

from typing import Any


class GpmCounters:
    """SM and DRAM activity between one reading and the next. Calls raise NVMLError.

    GPM counts into samples; a metric is worked out from two of them. NVML wants at least 100 ms
    in between.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._is_supported = bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        self._before: Any = None

    def activity_pct(self) -> tuple[float, float] | None:
        """Mean SM and DRAM activity since the reading before, in %; None at the first one.

        SM: share of the multiprocessors that had work. DRAM: share of the peak bandwidth used.
        """
        nvml = self._nvml
        if not self._is_supported:
            return None
        now = nvml.nvmlGpmSampleAlloc()
        try:
            nvml.nvmlGpmSampleGet(self._handle, now)
        except nvml.NVMLError:
            nvml.nvmlGpmSampleFree(now)
            raise
        before, self._before = self._before, now
        if before is None:
            return None
        try:
            return self._between(before, now)
        finally:
            nvml.nvmlGpmSampleFree(before)

    def _between(self, before: Any, now: Any) -> tuple[float, float] | None:
        nvml = self._nvml
        wanted = nvml.c_nvmlGpmMetricsGet_t()
        wanted.version = nvml.NVML_GPM_METRICS_GET_VERSION
        wanted.numMetrics = 2
        wanted.sample1, wanted.sample2 = before, now
        wanted.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        wanted.metrics[1].metricId = nvml.NVML_GPM_METRIC_DRAM_BW_UTIL
        nvml.nvmlGpmMetricsGet(wanted)
        metrics = wanted.metrics[0], wanted.metrics[1]
        if any(each.nvmlReturn for each in metrics):
            return None
        return float(metrics[0].value), float(metrics[1].value)
