"""California Housing as shipped, against the documented numbers and the table it came from."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dpaudit.data import california_housing, california_housing_columns

SHARED = Path(os.environ.get("DPAUDIT_DATA", Path(__file__).parents[3] / "shared" / "data"))
SOURCE = SHARED / "california_housing.csv"


def test_documented_means() -> None:
    columns = california_housing_columns()
    means = {name: round(float(values.mean()), 6) for name, values in columns.items()}
    assert means["MedInc"] == 3.870671
    assert means["HouseAge"] == 28.639486
    assert means["AveOccup"] == 3.070655
    assert means["MedHouseVal"] == 2.068558
    assert round(float(columns["MedHouseVal"].std(ddof=1)), 6) == 1.153956
    assert columns["MedHouseVal"].max() == 5.00001
    assert {len(values) for values in columns.values()} == {20_640}


def test_features_are_standardised_and_classes_balanced() -> None:
    data = california_housing()
    assert data.features.shape == (20_640, 8)
    np.testing.assert_allclose(data.features.mean(axis=0, dtype=np.float64), 0, atol=1e-6)
    np.testing.assert_allclose(data.features.std(axis=0, dtype=np.float64), 1, atol=1e-6)
    assert data.targets.sum() == 10_317  # eight districts lie on the median itself, in class 0


@pytest.mark.skipif(not SOURCE.is_file(), reason="the original table is not at hand")
def test_every_value_of_the_original_table_is_there() -> None:
    original = np.loadtxt(SOURCE, delimiter=",", skiprows=1)
    shipped = np.stack(list(california_housing_columns().values()), axis=1)
    np.testing.assert_array_max_ulp(shipped, original, maxulp=1)


def test_the_shipped_file_is_small() -> None:
    import dpaudit.data

    folder = Path(dpaudit.data.__file__).parent
    assert (folder / "california_housing.npz").stat().st_size < 600_000
    assert "licence" in (folder / "README.md").read_text()
