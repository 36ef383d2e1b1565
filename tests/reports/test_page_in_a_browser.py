"""The HTML page in a real browser: chromium, headless, with the network watched."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from bcsc.experiments.study import read_studies
from bcsc.reports.claims import CLAIMS, judge
from bcsc.reports.page import page_of
from bcsc.runs.spec import RunSpec
from tests.run_folders import write_run, write_study

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
DESKTOP, PHONE = (1280, 900), (375, 800)

Browser = Any


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with two experiments, other runs, a diverged one and a damaged one."""
    root = tmp_path_factory.mktemp("runs")
    write_study(root / "cifar10", "cifar10", epochs=6, models=["lenet4", "vgg19"])
    write_study(root / "compute", "compute", epochs=2, seeds=[0, 1])
    write_run(root / "diverged", RunSpec(epochs=4), state="diverged", epochs_done=1, accuracy=lambda *_: float("nan"))
    (write_run(root / "damaged", RunSpec(epochs=1)) / "summary.json").write_text("{")
    studies, damaged = read_studies(root)
    path = root / "index.html"
    path.write_text(page_of(studies, judge(CLAIMS, studies), damaged), encoding="utf-8")
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


def test_losses_can_be_shown_on_a_log_axis(browser: Browser) -> None:
    before = curves(browser)[0]["y"]
    click(browser, "#cifar10 label:has(input[value='test_loss'])")
    click(browser, "#cifar10 label:has(input[name='cifar10-log'])")
    assert axis_title(browser, "y") == "test loss"
    assert curves(browser)[0]["y"] != before
    assert browser.execute_script("return document.getElementById('cifar10-chart-0').layout.xaxis.type") == "log"


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
