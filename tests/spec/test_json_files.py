import json

import pytest

from planner.errors import FileFormatError
from planner.spec.json_files import json_text, read_json


def test_rows_of_numbers_stand_on_one_line_and_texts_stay_as_they_are():
    data = {"row": [1, 2.5, None], "rows": [[1, 2], [3, 4]], "text": "[  two  blanks  ]", "texts": ["[ x ]", " y "]}
    text = json_text(data)
    assert '"row": [1, 2.5, null]' in text
    assert "\n  [3, 4]\n" in text
    assert json.loads(text) == data


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_has_not_are_refused(tmp_path, number):
    path = tmp_path / "plan.json"
    path.write_text(f'{{"schema_version": 1, "prediction": {{"step_time_s": {number}}}}}')
    with pytest.raises(FileFormatError, match=f"{number} is no number of JSON"):
        read_json(path, schema_version=1)
