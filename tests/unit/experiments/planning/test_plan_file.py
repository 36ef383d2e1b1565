"""A plan says what to run; a mistake in it is named by its line and key."""

import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from bcsc.errors import InvalidArgumentError
from bcsc.experiments.catalog import EXPERIMENTS, NAMES, cut_down, plan_text
from bcsc.experiments.experiment import Experiment
from bcsc.experiments.planning.arms import Tuning
from bcsc.experiments.planning.plan_file import experiment_from_toml, read_plan
from bcsc.runs.build import check_setting
from bcsc.runs.spec import RunSpec

PLAN = """\
question = "Does it hold?"
seeds = [0, 1]
recipe = { data = "digits", model = "lenet4", epochs = 2 }

[[condition]]
label = "clean"

[[condition]]
label = "noisy"
outliers = "symmetric:0.15"

[[arm]]
label = "SGD"
method = "sgd"

[[arm]]
label = "BCSC M={M}"
method = "bcsc"
blocks = [2, 4]

[[claim]]
says = ["BCSC M={M} over SGD", "BCSC M=4 falls by less than 2 points"]
"""


def experiment(text: str = PLAN, name: str = "mine") -> Experiment:
    return experiment_from_toml(text, name, "mine.toml", check_setting)


def changed(old: str, new: str) -> str:
    assert PLAN.count(old) == 1
    return PLAN.replace(old, new)


def test_a_plan_is_networks_by_conditions_by_arms_by_seeds() -> None:
    runs = experiment().runs()
    assert len(runs) == 2 * 3 * 2
    assert runs[5].name == "lenet4-noisy-bcsc-m-4-seed-0"
    assert runs[5].spec == RunSpec(data="digits", epochs=2, outliers="symmetric:0.15", blocks=4)


def test_what_is_left_out_has_a_default() -> None:
    plan = experiment_from_toml('[[arm]]\nlabel = "SGD"\nmethod = "sgd"', "mine", "mine.toml")
    assert (plan.title, plan.question, plan.seeds, plan.models) == ("mine", "", (0, 1, 2), ("lenet4",))
    assert [run.spec for run in plan.runs()] == [RunSpec(method="sgd", blocks=1, seed=seed) for seed in (0, 1, 2)]


def test_any_setting_may_be_a_sweep_and_the_label_tells_its_values_apart() -> None:
    text = changed('label = "SGD"', 'label = "SGD at {lr}"\nlr = [0.1, 0.01]\nmomentum = [0.0, 0.9]')
    plan = experiment(text.replace("over SGD", "over SGD at {lr}"))
    labels = list(dict.fromkeys(run.cell.arm for run in plan.runs()))
    assert labels[:4] == [f"SGD at {lr}, momentum={m}" for lr in (0.1, 0.01) for m in (0.0, 0.9)]
    specs = {run.cell.arm: (run.spec.lr, run.spec.momentum) for run in plan.runs()}
    assert specs["SGD at 0.01, momentum=0.0"] == (0.01, 0.0)
    assert plan.arm_labels()["SGD at 0.01, momentum=0.0"] == "SGD at {lr}"


def test_a_sweep_in_a_condition_makes_conditions_and_one_in_the_recipe_goes_through_all_of_them() -> None:
    plan = experiment(changed('"symmetric:0.15"', '["symmetric:0.1", "pairflip:0.1"]'))
    assert {cell.condition for cell in plan.cells()} == {
        "clean",
        "noisy, outliers=symmetric:0.1",
        "noisy, outliers=pairflip:0.1",
    }
    plan = experiment(changed("epochs = 2 }", "epochs = 2, batch_size = [64, 128] }"))
    found = {(run.cell.condition, run.spec.batch_size, run.spec.outliers) for run in plan.runs()}
    assert found == {
        (f"{label}, batch_size={size}", size, outliers)
        for label, outliers in (("clean", "none"), ("noisy", "symmetric:0.15"))
        for size in (64, 128)
    }


def test_networks_are_a_list_in_the_recipe() -> None:
    plan = experiment(changed('model = "lenet4"', 'model = ["lenet4", "resnet18"]'))
    assert plan.models == ("lenet4", "resnet18")
    assert {run.spec.model for run in plan.runs()} == {"lenet4", "resnet18"}


@pytest.mark.parametrize(
    ("rate", "factor", "lr"),
    [
        (0.1, '{ times = "M" }', {2: 0.2, 4: 0.4}),
        (0.1, '{ over = "M" }', {2: 0.05, 4: 0.025}),
        (1, '{ over = "M" }', {2: 0.5, 4: 0.25}),
    ],
)
def test_a_setting_may_be_a_multiple_of_the_recipes(rate: float, factor: str, lr: dict[int, float]) -> None:
    text = changed("epochs = 2 }", f"epochs = 2, lr = {rate} }}").replace(
        "blocks = [2, 4]", f"blocks = [2, 4]\nlr = {factor}"
    )
    assert {run.spec.blocks: run.spec.lr for run in experiment(text).runs() if run.spec.method == "bcsc"} == lr


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('question = "Does', 'qestion = "Does', "line 1 (qestion)", "Did you mean 'question'"),
        ('"Does it hold?"', "3", "line 1 (question)", "question must be a text, got 3"),
        ("seeds = [0, 1]", "seeds = []", "line 2 (seeds)", "There must be at least one seed"),
        ("seeds = [0, 1]", "seeds = [0, 0]", "line 2 (seeds)", "Every seed must be there once"),
        ("seeds = [0, 1]", "seeds = [0, -1]", "line 2 (seeds)", "at least 0, got -1"),
        ('"lenet4"', '"lenet5"', "line 3 (recipe model)", "model must be one of lenet4"),
        ("epochs = 2", "epochs = 0", "line 3 (recipe epochs)", "epochs must be a whole number of at least 1, got 0"),
        ("epochs = 2", "epochs = 2, seed = 3", "line 3 (recipe seed)", "Give seeds = [0, 1, 2] at the top"),
        ("epochs = 2", "epochs = []", "line 3 (recipe epochs)", "There must be at least one value of epochs"),
        ('"clean"', "7", "line 6 (condition 1 label)", "must have a label, a text, got 7"),
        ('"noisy"', '"clean"', "line 5 (condition)", "Every condition must be there once, got clean, clean"),
        ("outliers = ", "outlier = ", "line 10 (condition 2 outlier)", "Did you mean 'outliers'"),
        ('"symmetric:0.15"', '"symetric:0.15"', "line 10 (condition 2 outliers)", "Did you mean 'symmetric'"),
        ('"sgd"', '"sgdd"', "line 14 (arm 1 method)", "method must be one of sgd"),
        ('label = "SGD"\n', "", "line 12 (arm 1 label)", "must have a label, a text, got None"),
        ('label = "SGD"\n', 'label = " "\n', "line 13 (arm 1 label)", "must have a label, a text, got ' '"),
        ("blocks = [2, 4]", "blocks = [2, 2]", "line 19 (arm 2 blocks)", "Every value of blocks must be there once"),
        ("blocks = [2, 4]", 'blocks = [2, "a"]', "line 19 (arm 2 blocks)", "blocks must be of type int, got 'a'"),
        ("blocks = [2, 4]", 'lr = { over = "N" }', "line 19 (arm 2 lr)", 'in an arm { times = "M" }'),
        (
            "blocks = [2, 4]",
            'lr = { over = "M" }',
            "line 17 (arm 2 label)",
            "in braces must be one of method, got 'M'",
        ),
        ("blocks = [2, 4]", 'blocks = 2\nlr = { over = "M" }', "line 20 (arm 2 lr)", "Give lr in the recipe"),
        ("blocks = [2, 4]", 'blocks = 4\nepochs = { over = "M" }', "line 20 (arm 2 epochs)", "M = 4 does not divide"),
        ("blocks = [2, 4]", 'blocks = 4\ndata = { over = "M" }', "line 20 (arm 2 data)", "data is 'digits' in the"),
        ("blocks = [2, 4]", 'blocks = { times = "M" }', "line 19 (arm 2 blocks)", "blocks may be a value or a list"),
        ("blocks = [2, 4]", 'blocks = 2\nM = { over = "M" }', "line 20 (arm 2 M)", "M may be a value or a list"),
        (
            'M={M}"\nmethod',
            'M={M} {epochs}"\nepochs = { times = "M" }\nmethod',
            "line 17 (arm 2 label)",
            "in braces must be one of method, blocks, M, got 'epochs'",
        ),
        ("outliers = ", "blocks = 2\noutliers = ", "line 10 (condition 2 blocks)", "Give its values in the arms"),
        ("epochs = 2", 'epochs = 2, method = ["sgd", "sbc"]', "line 3 (recipe method)", "Give its values in the arms"),
        ('"sgd"', '"sgd"\nepochs = { times = "M" }', "line 15 (arm 1 epochs)", "SGD has no blocks. Give the M"),
        ("blocks = [2, 4]", 'blocks = 2\noutliers = "none"', "line 20 (arm 2 outliers)", "is set by a condition too"),
        ("blocks = [2, 4]", 'blocks = 2\nmodel = "vgg19"', "line 20 (arm 2 model)", "in the recipe"),
        (
            'M={M}"\nmethod',
            'M={N}"\nmethod',
            "line 17 (arm 2 label)",
            "in braces must be one of method, blocks, M, got 'N'",
        ),
        ('BCSC M={M}"\n', 'sgd{M}"\n', "line 22 (claim 1 says)", "A claim says 'A over B'"),
        ("BCSC M={M} over SGD", "SGD over SGD", "line 22 (claim 1 says)", "different arms, got 'SGD' over itself"),
        ("BCSC M=4 falls", "SBC M=4 falls", "line 22 (claim 1 says)", "got 'SBC M=4 falls by less than 2 points'"),
        ("[[claim]]", "[[claim]]\nsaid = 3", "line 22 (claim 1 said)", "A key of a claim must be one of"),
        (
            "[[claim]]",
            '[[claim]]\nperiods = ["last"]',
            "line 22 (claim 1 periods)",
            "A period must be one of first_half",
        ),
        (
            "[[claim]]",
            '[[claim]]\nmeasure = "training loss"',
            "line 22 (claim 1 measure)",
            "A measure must be one of test_accuracy, test_loss, train_loss",
        ),
        (
            "[[claim]]",
            '[[claim]]\nmeasure = "test_loss"',
            "line 23 (claim 1 says)",
            "What falls by points is the test accuracy. Leave measure out",
        ),
        (
            "BCSC M={M} over SGD",
            "SGD falls by more than SGD",
            "line 22 (claim 1 says)",
            "got 'SGD' falls by more than itself",
        ),
        ("[[claim]]", '[[claim]]\nto = "dirty"', "line 22 (claim 1 to)", "A condition must be one of clean, noisy"),
        ("[[claim]]", '[[claim]]\nto = "clean"', "line 23 (claim 1 says)", "there must be two conditions"),
        ("[[claim]]", "[claim]", "line 21 (claim)", "claim must be a list"),
        ("epochs = 2", "epochs = 2, validation = 9", "line 3 (recipe validation)", "[tuning] with validation = 5000"),
        ("epochs = 2", "epochs = 2, threads = [1, 2]", "line 3 (recipe threads)", "Give a number in the recipe"),
        ("outliers = ", "threads = 2\noutliers = ", "line 10 (condition 2 threads)", "Give a number in the recipe"),
        ('"sgd"', '"sgd"\nthreads = 2', "line 15 (arm 1 threads)", "Give a number in the recipe"),
        ('"sgd"', '"sgd"\nblocks = [2, 8]', "line 15 (arm 1 blocks)", "SGD has no blocks. Leave blocks out"),
        ("blocks = [2, 4]", "blocks = [2, 4]\nM = 8", "line 19 (arm 2 blocks)", "This arm has M, too"),
        ("epochs = 2", "epochs = 2, subset = { tune = [50, 60] }", "line 3 (recipe subset)", "subset is not tuned"),
        ("blocks = [2, 4]", "blocks = { tune = [2, 4] }", "line 19 (arm 2 blocks)", "blocks is not tuned"),
    ],
)
def test_a_mistake_is_named_by_line_and_key(old: str, new: str, line: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        experiment(changed(old, new))
    assert str(caught.value).startswith(f"mine.toml, {line}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("budget", ["gradient evaluations", "seconds"])
@pytest.mark.parametrize(
    ("old", "new"), [("epochs = 2", "epochs = [2, 4]"), ("outliers = ", "epochs = 7\noutliers = ")]
)
def test_epochs_that_a_budget_would_overwrite_are_refused(budget: str, old: str, new: str) -> None:
    text = changed(old, new)
    experiment(text)
    with pytest.raises(InvalidArgumentError, match=r"line 1 \(budget\): The budget sets the epochs of all runs"):
        experiment(f'budget = "{budget}"\n{text}')


@pytest.mark.parametrize(
    ("says", "more", "line", "message"),
    [
        ("SGD over BCSC M=4", 'to = "noisy"', "line 23 (claim 1 to)", "to is for a claim that an arm falls"),
        ("SGD over BCSC M=4", 'from = "clean"', "line 23 (claim 1 from)", "from is for a claim that an arm falls"),
    ],
)
def test_a_condition_that_a_claim_would_not_look_at_is_refused(says: str, more: str, line: str, message: str) -> None:
    text = PLAN.partition("[[claim]]")[0] + f'[[claim]]\nsays = "{says}"\n{more}\n'
    with pytest.raises(InvalidArgumentError, match=re.escape(f"{line}: {message}")):
        experiment(text)


def test_what_rises_with_m_has_several() -> None:
    text = PLAN.partition("[[claim]]")[0].partition('[[arm]]\nlabel = "BCSC')[0]
    text += '[[arm]]\nlabel = "BCSC"\nmethod = "bcsc"\nblocks = 2\n[[claim]]\nsays = "BCSC rises with M"\n'
    experiment(text)  # from SGD's M = 1
    alone = text.replace('label = "SGD"\nmethod = "sgd"', 'label = "RBC"\nmethod = "rbc"\nblocks = 2')
    with pytest.raises(InvalidArgumentError, match="To rise or fall with M there must be arms with several"):
        experiment(alone)


def test_labels_that_give_the_same_folder_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="Every name of a run .* must be there once"):
        experiment(changed('label = "SGD"', 'label = "BCSC, M=2"'))


@pytest.mark.parametrize(
    "text", ["seeds = [0", "a = " + "[" * 100_000, "seeds = " + "9" * 5000, "seeds = 0\nseeds = 1"]
)
def test_a_file_that_is_no_toml_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="mine.toml is not a TOML file"):
        experiment(text)


def test_a_plan_has_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "My plan.toml"
    path.write_text(PLAN)
    plan, text = read_plan(path)
    assert (plan.name, text) == ("my-plan", PLAN)
    with pytest.raises(InvalidArgumentError, match="nowhere.toml cannot be read"):
        read_plan(tmp_path / "nowhere.toml")


def test_a_claim_without_a_statement_states_what_it_says() -> None:
    (claim,) = experiment().claims
    assert claim.statement == "BCSC M={M} over SGD, and BCSC M=4 falls by less than 2 points."
    assert [saying.kind for saying in claim.sayings] == ["compares", "falls"]
    assert claim.sayings[1].conditions == ("clean", "noisy")
    text = PLAN.partition("[[claim]]")[0] + '[[claim]]\nsays = "BCSC M=4 below SGD"\nmeasure = "train_loss_std"\n'
    (other,) = experiment(text).claims
    assert other.statement == "BCSC M=4 below SGD, by the spread of the training loss."
    assert [(saying.measure, saying.side) for saying in other.sayings] == [("train_loss_std", "below")]


def test_every_plan_of_the_package_has_a_name_and_passes_all_checks() -> None:
    folder = resources.files("bcsc.experiments").joinpath("plans")
    assert {path.name for path in folder.iterdir()} == {f"{name}.toml" for name in NAMES}
    for name in NAMES:
        assert experiment_from_toml(plan_text(name), name, name, check_setting) == EXPERIMENTS[name]


def test_a_plan_that_was_cut_down_by_labels_says_how_many_are_left() -> None:
    small = cut_down(experiment(), conditions=["Noisy"], arms=["bcsc m=4", "SGD"])
    assert [(run.cell.condition, run.cell.arm) for run in small.runs()[:2]] == [("noisy", "SGD"), ("noisy", "BCSC M=4")]
    assert small.note == "cut down: 1 of 2 conditions, 2 of 3 arms"
    assert cut_down(small, seeds=[0]).note == "cut down: 1 of 2 seeds, 1 of 2 conditions, 2 of 3 arms"


def test_a_plan_on_a_part_of_the_data_says_so_in_its_scope_and_a_smaller_part_as_a_cut() -> None:
    planned = replace(experiment(), recipe=replace(experiment().recipe, subset=500))
    assert planned.scope.endswith(", on the first 500 training samples")
    assert planned.note == ""
    assert cut_down(planned, subset=100).scope.endswith(", only the first 100 training samples")
    assert "on the first" not in cut_down(planned, subset=100).scope + experiment().scope


def test_a_network_that_is_not_planned_is_named() -> None:
    small = cut_down(EXPERIMENTS["adagrad"], models=["lenet4"], epochs=20)
    assert small.note == "cut down: 20 of 200 epochs, LeNet4 (planned: VGG19, ResNet18)"
    assert small.scope == "in LeNet4 (planned: VGG19, ResNet18), at 20 of 200 epochs, with 3 seeds"
    both = cut_down(EXPERIMENTS["adagrad"], models=["lenet4", "vgg19"])
    assert both.note == "cut down: 1 of 2 networks, LeNet4 (planned: VGG19, ResNet18)"
    assert {run.spec.optimizer for run in small.runs()} == {"adagrad"}


def test_the_plan_in_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[4] / "docs" / "plans.md").read_text()
    text, tuning = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(experiment_from_toml(text, "mine", "docs/plans.md").runs()) == 2 * 2 * 4 * 3
    tuned = experiment_from_toml(tuning + '[[arm]]\nlabel = "SGD"\nmethod = "sgd"', "mine", "docs/plans.md")
    assert tuned.tuning == Tuning(5000)
