"""The HTML page in a real browser: chromium, headless, with the network watched."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from bcsc.experiments.study import read_studies
from bcsc.reports.claims import CLAIMS, judge
from bcsc.reports.page import page_of
from bcsc.runs.spec import RunSpec
from tests.run_folders import explode, write_run, write_study

SELENIUM = "driving a browser needs selenium: pip install 'bcsc[dev]'"
webdriver = pytest.importorskip("selenium.webdriver", reason=SELENIUM)
support = pytest.importorskip("selenium.webdriver.support.ui", reason=SELENIUM)
pytest.importorskip("plotly", reason="the page needs plotly: pip install 'bcsc[report]'")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="no browser here: apt-get install chromium chromium-driver"
    ),
]
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
EQUAL_COMPUTE = ("rate-8-8x-epochs", "8x-epochs", "8x-batch-8x-epochs")
DESKTOP, PHONE = (1280, 900), (390, 800)

Browser = Any


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with two experiments, in one of which a method explodes, other runs, a diverged one and a damaged one."""
    root = tmp_path_factory.mktemp("runs")
    write_study(root / "cifar10", "cifar10", epochs=6, models=["lenet4", "vgg19"])
    for seed in (0, 1, 2):
        explode(root / "cifar10" / "runs" / f"lenet4-adagrad-seed-{seed}")
        explode(root / "cifar10" / "runs" / f"vgg19-adagrad-seed-{seed}", epochs=1)
    write_study(root / "compute", "compute", epochs=2, seeds=[0, 1])
    write_run(root / "diverged", RunSpec(epochs=4), state="diverged", epochs_done=1, accuracy=lambda *_: float("nan"))
    (write_run(root / "damaged", RunSpec(epochs=1)) / "summary.json").write_text("{")
    studies, damaged = read_studies(root)
    path = root / "index.html"
    named = {study.name: study for study in studies}
    files = {"cifar10": [root / "cifar10.csv", root / "cifar10-epochs.png"]}
    for file in files["cifar10"]:
        file.write_text("a file to download")
    path.write_text(page_of(named, judge(CLAIMS, studies), damaged, files=files), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(params=[DESKTOP, PHONE], ids=["desktop", "phone"])
def browser(chromium: Browser, address: str, request: pytest.FixtureRequest) -> Browser:
    """The page, freshly opened at the width of a desktop or of a phone."""
    width, height = request.param
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for log in ("browser", "performance"):
        chromium.get_log(log)
    chromium.get(address)
    return chromium


def column(browser: Browser, index: int) -> list[str]:
    script = (
        "return [...document.querySelectorAll('#cifar10 tbody tr')].map(row => row.cells[arguments[0]].textContent)"
    )
    found: list[str] = browser.execute_script(script, index)
    return found


def click(browser: Browser, selector: str) -> None:
    """Click as a person would: where the element is seen."""
    element = browser.find_element("css selector", selector)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
    element.click()


def is_narrow(browser: Browser) -> bool:
    return bool(browser.execute_script("return innerWidth < 500"))


def show_all_columns(browser: Browser) -> None:
    if is_narrow(browser):
        click(browser, "#cifar10 .all-columns")


def curves(browser: Browser, chart: str = "cifar10-chart-0") -> list[dict[str, Any]]:
    """The lines that plotly has drawn: their name and ends."""
    script = """return document.getElementById(arguments[0]).data.filter(trace => trace.name).map(
        trace => ({name: trace.name, x: trace.x, y: trace.y}))"""
    found: list[dict[str, Any]] = browser.execute_script(script, chart)
    return found


def axis_title(browser: Browser, axis: str) -> str:
    return str(browser.find_element("css selector", f"#cifar10-chart-0 .{axis}title").text)


def test_it_opens_without_an_error_and_without_the_network(browser: Browser, address: str) -> None:
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith("data:")} == {address}


def test_every_chart_is_drawn_with_its_lines(browser: Browser) -> None:
    script = """const isSeen = path => path.getTotalLength() > 20;
        return [...document.querySelectorAll('.plot')].map(plot => [
            plot.querySelector('svg.main-svg').getBoundingClientRect().width > 200,
            [...plot.querySelectorAll('.scatterlayer .trace path.js-line')].filter(isSeen).length])"""
    drawn = browser.execute_script(script)
    # Six methods in two networks and four arms in two conditions, each with a band; a diverged run has no line.
    assert [is_wide for is_wide, _ in drawn] == [True] * 5
    assert [lines for _, lines in drawn] == [12, 12, 8, 8, 0]


def test_it_never_scrolls_sideways(browser: Browser) -> None:
    browser.execute_script("document.querySelectorAll('details').forEach(element => element.open = true)")
    widest, width = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert widest <= width


def test_a_click_on_a_heading_sorts_and_another_turns_it_round(browser: Browser) -> None:
    heading = "#cifar10 th[data-column='{}'] button"
    show_all_columns(browser)
    click(browser, heading.format(3))
    ours = [float(text.split()[0]) for text in column(browser, 3)]
    assert ours == sorted(ours)
    click(browser, heading.format(3))
    assert [float(text.split()[0]) for text in column(browser, 3)] == sorted(ours, reverse=True)
    click(browser, heading.format(1))
    names = column(browser, 1)
    assert names == sorted(names, key=str.lower)
    click(browser, heading.format(5))
    differences = [float(text) for text in column(browser, 5)]
    assert differences == sorted(differences)


def test_the_axis_can_be_switched_to_gradient_evaluations_and_seconds(browser: Browser) -> None:
    assert axis_title(browser, "x") == "epochs"
    assert curves(browser)[-1]["x"][-1] == 6
    click(browser, "#cifar10 label:has(input[value='gradient_evaluations'])")
    assert axis_title(browser, "x") == "gradient evaluations"
    ends = {line["name"]: line["x"][-1] for line in curves(browser)}
    assert ends["BCSC M=8"] == 8 * ends["SGD"]
    click(browser, "#cifar10 label:has(input[value='seconds'])")
    assert axis_title(browser, "x") == "seconds"


def test_equal_compute_is_first_shown_against_gradient_evaluations(browser: Browser) -> None:
    assert len({line["x"][-1] for line in curves(browser, "compute-chart-0")}) == 1


def layout_of(browser: Browser, chart: str = "cifar10-chart-0") -> dict[str, Any]:
    found: dict[str, Any] = browser.execute_script("return document.getElementById(arguments[0]).layout", chart)
    return found


def test_losses_are_shown_on_a_log_axis_that_no_exploding_method_stretches(browser: Browser) -> None:
    assert layout_of(browser)["yaxis"]["type"] == "linear"
    click(browser, "#cifar10 label:has(input[value='test_loss'])")
    assert axis_title(browser, "y") == "test loss"
    assert max(line["y"][0] for line in curves(browser)) > 1e5
    axis = layout_of(browser)["yaxis"]
    assert axis["type"] == "log"
    assert -1 < axis["range"][0] < axis["range"][1] < 1, "powers of ten"
    click(browser, "#cifar10 label:has(input[name='cifar10-log-y'])")
    assert layout_of(browser)["yaxis"]["type"] == "linear"
    click(browser, "#cifar10 label:has(input[name='cifar10-log-x'])")
    assert layout_of(browser)["xaxis"]["type"] == "log"


def test_a_method_that_leaves_a_chart_is_named_in_it(browser: Browser) -> None:
    assert layout_of(browser).get("annotations", []) == []
    click(browser, "#cifar10 label:has(input[value='test_loss'])")
    (note,) = layout_of(browser)["annotations"]
    assert note["text"].startswith("AdaGrad: above, ends at ")
    assert layout_of(browser, "cifar10-chart-1").get("annotations", []) == [], "it comes back after an epoch"
    click(browser, "#cifar10 .arms label:has(input[value='AdaGrad'])")
    assert layout_of(browser).get("annotations", []) == [], "it is hidden"


def test_charts_have_tools_and_none_of_them_sends_anything_anywhere(browser: Browser) -> None:
    tools = "return [...document.querySelectorAll('#cifar10-chart-0 .modebar-btn')].map(tool => tool.dataset.title)"
    assert browser.execute_script(tools) == [
        *("Download plot", "Zoom", "Pan", "Zoom in", "Zoom out", "Autoscale", "Reset axes"),
    ]


def test_charts_stand_side_by_side_or_take_the_full_width(browser: Browser) -> None:
    script = "return [...document.querySelectorAll('#cifar10 .plot')].map(plot => plot.getBoundingClientRect().width)"
    small = browser.execute_script(script)
    click(browser, "#cifar10 label:has(input[value='wide'])")
    wide = browser.execute_script(script)
    drawn = "return document.querySelector('#cifar10-chart-0 svg.main-svg').getBoundingClientRect().width"
    support.WebDriverWait(browser, 10).until(lambda b: abs(b.execute_script(drawn) - wide[0]) < 2)
    room = browser.execute_script("return document.querySelector('#cifar10 .charts').clientWidth")
    assert all(width > 0.9 * room for width in wide)
    assert small[0] < 0.6 * room or room < 400


def test_it_opens_with_the_verdicts_and_the_main_table_comes_next(browser: Browser) -> None:
    script = """return ['.verdict .state', '.verdict .scope', '#cifar10 table', '.plot', '#runs-table'].map(
        selector => document.querySelector(selector).getBoundingClientRect().top)"""
    tops = browser.execute_script(script)
    assert tops == sorted(tops)
    assert tops[1] < 500, "without scrolling"


def test_the_accuracies_are_seen_without_scrolling_sideways(browser: Browser) -> None:
    script = """const isSeen = box => box.width > 0 && box.right <= innerWidth;
        return [...document.querySelectorAll('#cifar10 tbody tr')].map(row => [...row.querySelectorAll(arguments[0])]
            .filter(cell => isSeen(cell.getBoundingClientRect())).length)"""
    seen = browser.execute_script(script, "td.ours")
    assert len(seen) == 12
    expected = 2 if is_narrow(browser) else 4  # over all epochs and at the end; on a wide screen the halves too
    assert set(seen) == {expected}


def test_a_narrow_screen_shows_the_other_columns_on_request(browser: Browser) -> None:
    script = """return [...document.querySelectorAll('#cifar10 tbody tr:first-child td')]
        .filter(cell => cell.getBoundingClientRect().width > 0).length"""
    show_all_columns(browser)
    assert browser.execute_script(script) == 3 + 4 * 3


def test_a_cut_down_verdict_has_a_colour_of_its_own(browser: Browser) -> None:
    script = """const card = document.createElement('span'); document.body.append(card);
        const colours = ['holds', 'holds-so-far', 'not-decided', 'does-not-hold', 'does-not-hold-so-far'].map(state => {
            card.className = `state ${state}`; return getComputedStyle(card).color; });
        card.remove(); return colours"""
    assert len(set(browser.execute_script(script))) == 5
    states = "return [...document.querySelectorAll('.verdict > .state')].map(badge => badge.textContent)"
    assert set(browser.execute_script(states)) <= {"holds so far", "does not hold so far", "not decided"}


def rows_shown(browser: Browser) -> list[str]:
    script = """return [...document.querySelectorAll('#runs-table tbody tr')].filter(row => row.offsetHeight)
        .map(row => row.querySelector('.run').textContent)"""
    found: list[str] = browser.execute_script(script)
    return found


def is_in_view(browser: Browser, selector: str) -> bool:
    script = """const box = document.querySelector(arguments[0]).getBoundingClientRect();
        return box.bottom > 0 && box.top < innerHeight"""
    return bool(browser.execute_script(script, selector))


def test_one_click_leads_from_a_verdict_to_its_runs_and_one_leads_back(browser: Browser) -> None:
    total = len(rows_shown(browser))
    click(browser, "#claim-bcsc-over-sgd .to-runs")
    wait = support.WebDriverWait(browser, 10)
    expected = {f"{net}-{arm}-seed-{n}" for net in ("lenet4", "vgg19") for arm in ("sgd", "bcsc-m-8") for n in range(3)}
    wait.until(lambda b: set(rows_shown(b)) == expected)
    wait.until(lambda b: is_in_view(b, "#runs"))
    assert not is_in_view(browser, "#claim-bcsc-over-sgd")
    assert "BCSC is more accurate than SGD" in browser.find_element("id", "behind").text
    click(browser, "#behind .back")
    wait.until(lambda b: is_in_view(b, "#claim-bcsc-over-sgd"))
    assert len(rows_shown(browser)) == total


def test_the_back_button_of_the_browser_leads_back_too(browser: Browser) -> None:
    click(browser, "#claim-bcsc-over-sgd .to-runs")
    support.WebDriverWait(browser, 10).until(lambda b: len(rows_shown(b)) == 12)
    browser.back()
    support.WebDriverWait(browser, 10).until(lambda b: len(rows_shown(b)) > 12)


def test_runs_can_be_filtered_and_sorted(browser: Browser) -> None:
    box = browser.find_element("id", "filter")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
    box.send_keys("SGD seed-1")
    assert rows_shown(browser) == [
        *("lenet4-sgd-seed-1", "vgg19-sgd-seed-1"),
        *(f"lenet4-{place}-sgd-{arm}-seed-1" for place in ("clean", "15-wrong-labels") for arm in EQUAL_COMPUTE),
    ]
    assert browser.find_element("id", "shown").text.startswith("8 of ")
    box.clear()
    box.send_keys("cifar10 vgg19 seed-0")
    click(browser, "#runs-table th[data-column='7'] button")
    script = """return [...document.querySelectorAll('#runs-table tbody tr')].filter(row => row.offsetHeight)
        .map(row => Number(row.cells[7].textContent))"""
    accuracies = browser.execute_script(script)
    assert len(accuracies) == 6
    assert accuracies == sorted(accuracies)


def test_a_click_on_a_run_shows_its_configuration_and_origin(browser: Browser) -> None:
    click(browser, "#runs-table .run")
    dialog = browser.find_element("id", "run")
    assert dialog.is_displayed()
    for text in ("lenet4-adagrad-seed-0", 'optimizer = "adagrad"', "commit = 0123abc"):
        assert text in dialog.text
    click(browser, "#run form button")
    assert not dialog.is_displayed()


def test_what_can_be_downloaded_is_there(browser: Browser, address: str) -> None:
    links = browser.find_elements("css selector", "#cifar10 .downloads a")
    assert [link.get_attribute("href") for link in links] == [
        address.replace("index.html", name) for name in ("cifar10.csv", "cifar10-epochs.png")
    ]
    assert all(Path(unquote(urlparse(link.get_attribute("href")).path)).exists() for link in links)


def test_methods_can_be_hidden_and_shown_again(browser: Browser) -> None:
    names = [line["name"] for line in curves(browser)]
    click(browser, "#cifar10 label:has(input[value='SGD'])")
    assert [line["name"] for line in curves(browser)] == [name for name in names if name != "SGD"]
    assert len(curves(browser, "compute-chart-0")) == 4, "other experiments keep their lines"
    click(browser, "#cifar10 label:has(input[value='SGD'])")
    assert [line["name"] for line in curves(browser)] == names


def test_it_follows_the_colour_scheme_while_it_is_open(browser: Browser) -> None:
    script = """return [getComputedStyle(document.body).backgroundColor,
        document.getElementById('cifar10-chart-0').layout.font.color]"""
    for scheme, ground, text in (("dark", "rgb(20, 23, 27)", "#9aa3ae"), ("light", "rgb(251, 251, 250)", "#5c6470")):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        support.WebDriverWait(browser, 10).until(lambda b, wanted=[ground, text]: b.execute_script(script) == wanted)
