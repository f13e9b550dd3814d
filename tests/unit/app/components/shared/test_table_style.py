"""Styled tables: the same rows are the same message to the browser, which then is not sent again."""

from __future__ import annotations

import pandas as pd
from streamlit.elements.lib.pandas_styler_utils import marshall_styler
from streamlit.proto.Dataframe_pb2 import Dataframe

from app.components.shared.table_style import styled


def message() -> bytes:
    sent = Dataframe()
    table = styled(pd.DataFrame({"size": [1, 2]}), {"size": lambda value: f"{value} B"})
    marshall_styler(sent.arrow_data, table, "default")
    return bytes(sent.SerializeToString())


def test_rows_that_did_not_change_are_the_same_message() -> None:
    assert message() == message()
