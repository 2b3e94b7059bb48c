"""Predictions that several tests look at."""

import pandas as pd
import pytest

from .synthetic import draw_predictions


@pytest.fixture(scope="session")
def predictions() -> pd.DataFrame:
    """600 test and 500 validation patients; treat as read-only."""
    return draw_predictions(7, {"val": 500, "test": 600})
