"""Columns of figures that grow in place, so that a plot reads a view and copies nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_FIRST_CAPACITY = 256


class Series:
    """Rows of float64 under named columns. Appending is amortised O(1); NaN means no value."""

    def __init__(self, *columns: str) -> None:
        self._index = {name: i for i, name in enumerate(columns)}
        self._data = np.empty((len(columns), _FIRST_CAPACITY))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, *row: float | None) -> None:
        """Add one row, in the order of the columns."""
        if self._length == self._data.shape[1]:
            grown = np.empty((len(self._index), 2 * self._length))
            grown[:, : self._length] = self._data
            self._data = grown
        self._data[:, self._length] = [np.nan if value is None else value for value in row]
        self._length += 1

    def __getitem__(self, column: str) -> Array:
        """All values of a column so far, shape [rows]: a view, not to be written to."""
        return self._data[self._index[column], : self._length]

    def value(self, column: str, row: int) -> float | None:
        """One value, None where there is none or no such row."""
        if not 0 <= row < self._length:
            return None
        value = float(self._data[self._index[column], row])
        return None if np.isnan(value) else value

    def last(self, column: str) -> float | None:
        """The newest value of a column, None while there is none."""
        return self.value(column, self._length - 1)
