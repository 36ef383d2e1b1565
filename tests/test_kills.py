"""The kills on record are as many as promised, over all methods, bases and masks."""

import json

from tests.kills import RECORD, every_case


def test_two_hundred_kills_are_on_record_at_a_commit() -> None:
    record = json.loads(RECORD.read_text())
    assert record["kills"] >= 200
    assert record["of_cases"] == len(every_case())
    assert 20 * record["cases"] >= 19 * record["of_cases"]
    assert len(record["commit"].removesuffix("-dirty")) == 40
