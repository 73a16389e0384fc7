"""California Housing, shipped with the package: the data of the paper's smallest experiment.

The file has the whole numbers of the 1990 census from which the usual floating-point columns were
computed. See ``README.md`` in this folder.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from dpaudit._arrays import Array
from dpaudit.data.examples import Examples


def california_housing_columns() -> dict[str, Array]:
    """The raw values: eight features and the target ``MedHouseVal``, in units of $100,000.

    The names and the order are those of scikit-learn's ``fetch_california_housing``.

    Example:
        >>> columns = california_housing_columns()
        >>> round(float(columns["MedInc"].mean()), 6)
        3.870671
    """
    with (
        files("dpaudit.data").joinpath("california_housing.npz").open("rb") as stream,
        np.load(stream) as archive,
    ):
        census = {name: archive[name].astype(np.float64) for name in archive.files}
    return {
        "MedInc": census["median_income"] / 1e4,
        "HouseAge": census["house_age"],
        "AveRooms": census["rooms"] / census["households"],
        "AveBedrms": census["bedrooms"] / census["households"],
        "Population": census["population"],
        "AveOccup": census["population"] / census["households"],
        "Latitude": census["latitude"] / 100,
        "Longitude": census["longitude"] / 100,
        "MedHouseVal": census["house_value"] / 1e5,
    }


def california_housing() -> Examples:
    """20,640 districts, eight features with mean 0 and standard deviation 1, two classes.

    Class 1: the district's median house value is above the median of all districts.

    See also: `california_housing_columns` for the raw values, `dpaudit.models.fcnn`.

    Paper: Pace and Barry, *Sparse spatial autoregressions* (Statistics & Probability Letters,
    1997); as a classification task in Cebere, Bellet, Papernot (ICLR 2025), Section 5.

    Example:
        >>> california_housing()
        Examples('california-housing', 20640 examples of shape (8,), 2 classes)
    """
    columns = california_housing_columns()
    value = columns.pop("MedHouseVal")
    raw = np.stack(list(columns.values()), axis=1)
    return Examples(
        features=(raw - raw.mean(axis=0)) / raw.std(axis=0),
        targets=(value > np.median(value)).astype(np.int64),
        classes=2,
        name="california-housing",
    )
