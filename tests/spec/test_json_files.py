import json

from planner.spec.json_files import json_text


def test_rows_of_numbers_stand_on_one_line_and_texts_stay_as_they_are():
    data = {"row": [1, 2.5, None], "rows": [[1, 2], [3, 4]], "text": "[  two  blanks  ]", "texts": ["[ x ]", " y "]}
    text = json_text(data)
    assert '"row": [1, 2.5, null]' in text
    assert "\n  [3, 4]\n" in text
    assert json.loads(text) == data
