"""A RunSpec is valid or refused, and its TOML form gives it back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.choices import GRANULARITIES
from bcsc.errors import InvalidArgumentError
from bcsc.optim.masking import MASKED_STEPS
from bcsc.runs.spec import CHOICES, RunSpec, differences, spec_from_toml, spec_to_toml

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
options = st.dictionaries(
    names.filter(lambda name: name not in ("lr", "momentum", "weight_decay")),
    st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | names,
    max_size=3,
)


@given(
    st.builds(
        RunSpec,
        data=names,
        blocks=st.integers(1, 300),
        lr=st.none() | st.floats(0, 10),
        optimizer_options=options,
        subset=st.none() | st.integers(1, 9),
        compile=st.booleans(),
        outliers=names,
    )
)
def test_toml_gives_the_spec_back(spec: RunSpec) -> None:
    assert spec_from_toml(spec_to_toml(spec), "run.toml") == spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": 0}, "blocks must be a whole number of at least 1, got 0"),
        ({"blocks": "8"}, "blocks must be of type int, got '8'"),
        ({"epochs": True}, "epochs must be of type int, got True"),
        ({"lr": float("nan")}, "lr must be a number of at least 0 and below 1e\\+30, got nan"),
        ({"threads": 99999999999}, "threads must be at most 1024"),
        ({"optimizer_options": {"foreach": None}}, "option foreach must be true, false, a finite number"),
        ({"optimizer_options": {"eps": float("nan")}}, "option eps must be"),
        ({"optimizer_options": {"lr": 0.1}}, "lr is a setting of its own"),
        ({"momentum": 1.0}, "momentum must be a number of at least 0 and below 1, got 1.0"),
        ({"schedule": "stair"}, "schedule must be one of staircase, constant, cosine, got 'stair'"),
        ({"mask": "grad"}, "mask must be one of update, gradient, all"),
        ({"subset": 0}, "subset must be a whole number of at least 1"),
    ],
)
def test_a_wrong_value_is_refused(change: dict, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        RunSpec(**change)


def test_a_wrong_file_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="x.toml is not a TOML file"):
        spec_from_toml("blocks = ", "x.toml")
    with pytest.raises(InvalidArgumentError, match="A setting in x.toml must be one of .*'block'.*'blocks'"):
        spec_from_toml("block = 3", "x.toml")


def test_the_choices_are_those_of_the_optimizer() -> None:
    assert CHOICES["mask"] == tuple(MASKED_STEPS)
    assert CHOICES["granularity"] == GRANULARITIES


def test_differences_name_every_setting() -> None:
    assert differences(RunSpec(), RunSpec(seed=1, lr=0.2)) == ["lr was None, is 0.2", "seed was 0, is 1"]
    assert differences(RunSpec(), RunSpec()) == []
