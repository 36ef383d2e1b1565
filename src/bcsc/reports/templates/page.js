"use strict";
const page = JSON.parse(document.getElementById("data").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// ---- sortable tables: a click sorts, another turns the order round ----
const number = text => text.trim() === "" ? NaN : Number(text.replace("\u2212", "-").split(" ")[0]);
function compare(a, b) {
  const [x, y] = [number(a), number(b)];
  if (Number.isNaN(x) || Number.isNaN(y)) {
    return Number.isNaN(x) && Number.isNaN(y) ? a.localeCompare(b, "en", {numeric: true}) : Number.isNaN(x) - Number.isNaN(y);
  }
  return x - y;
}
function sort(heading) {
  const table = heading.closest("table"), column = Number(heading.dataset.column);
  const order = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  all("th[aria-sort]", table).forEach(other => other.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => sign * compare(a.cells[column].textContent, b.cells[column].textContent));
  table.tBodies[0].append(...rows);
}
all("th[data-column] button").forEach(button => button.addEventListener("click", () => sort(button.parentElement)));

// ---- charts ----
const chosen = (section, name) => section.querySelector(`input[name$="-${name}"]:checked`)?.value;
const isOn = (section, name) => section.querySelector(`input[name$="-${name}"]`).checked;
const plain = text => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");  // plotly takes a few tags for what they are

function traces(line, section) {
  const x = line.x[chosen(section, "axis")], y = line.y[chosen(section, "quantity")];
  const colour = page.colours[line.colour % page.colours.length];
  const band = {
    x: [...x, ...[...x].reverse()], y: [...y.high, ...[...y.low].reverse()],
    type: "scatter", mode: "lines", fill: "toself", fillcolor: colour, opacity: 0.18,
    line: {width: 0}, hoverinfo: "skip", showlegend: false,
  };
  const mean = {
    x, y: y.mean, name: plain(line.arm), type: "scatter", mode: x.length > 1 ? "lines" : "markers",
    line: {color: colour, width: 2.2}, marker: {color: colour, size: 8},
    hovertemplate: `${plain(line.arm)}: %{y:.3~f}<extra>${line.seeds} seed${line.seeds > 1 ? "s" : ""}</extra>`,
  };
  return line.seeds > 1 ? [band, mean] : [mean];
}
// The ends are not set by a method that explodes or guesses; "autoscale" among the chart's tools shows all of it.
function ends(limits, quantity, logarithmic) {
  if (!limits) { return {autorange: true}; }
  const [low, high] = logarithmic ? limits.map(Math.log10) : [quantity === "test_accuracy" ? limits[0] : 0, limits[1]];
  const room = 0.04 * (high - low) || 0.1;
  return {autorange: false, range: [low - room, high + room]};
}
// What lies wholly outside the ends is named inside them.
function outside(chart, section, lines) {
  const quantity = chosen(section, "quantity"), limits = chart.limits[quantity];
  if (!limits) { return []; }
  const isBelow = quantity === "test_accuracy";
  const values = line => line.y[quantity].mean.filter(value => value !== null);
  const found = lines.filter(line => values(line).length && values(line).every(
    value => isBelow ? value < limits[0] : value > limits[1]));
  const text = found.map(line => `${plain(line.arm)}: ${isBelow ? "below" : "above"}, ends at ${values(line).at(-1).toPrecision(3)}`);
  const place = {xref: "paper", yref: "paper", x: 0.01, xanchor: "left", y: isBelow ? 0.01 : 0.99, yanchor: isBelow ? "bottom" : "top"};
  return text.length ? [{...place, text: text.join("<br>"), align: "left", showarrow: false}] : [];
}
function layout(chart, section, lines) {
  const axis = {gridcolor: style("--line"), linecolor: style("--line"), zeroline: false, automargin: true};
  const scale = name => isOn(section, name) ? {type: "log"} : {type: "linear"};
  const quantity = chosen(section, "quantity");
  return {
    annotations: outside(chart, section, lines),
    margin: {l: 48, r: 12, t: 34, b: 44}, showlegend: false, hovermode: "x unified",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: {color: style("--soft"), family: "system-ui, sans-serif", size: 12},
    hoverlabel: {bgcolor: style("--card"), bordercolor: style("--line"), font: {color: style("--text")}},
    modebar: {bgcolor: "rgba(0,0,0,0)", color: style("--soft"), activecolor: style("--accent")},
    xaxis: {...axis, ...scale("log-x"), title: {text: page.axes[chosen(section, "axis")]}},
    yaxis: {...axis, ...scale("log-y"), title: {text: page.quantities[quantity]},
            ...ends(chart.limits[quantity], quantity, isOn(section, "log-y"))},
  };
}
function draw(section) {
  const hidden = new Set(all(".arms input:not(:checked)", section).map(box => box.value));
  const charts = section.querySelector(".charts");
  charts.classList.toggle("wide", charts.children.length === 1 || chosen(section, "layout") === "wide");
  for (const plot of all(".plot", section)) {
    const chart = page.charts[plot.id];
    const lines = chart.lines.filter(line => !hidden.has(line.arm));
    Plotly.react(plot, lines.flatMap(line => traces(line, section)), layout(chart, section, lines), {
      responsive: true, displayModeBar: true, displaylogo: false, plotlyServerURL: "",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "sendChartToCloud"],
      toImageButtonOptions: {format: "svg", filename: `${plot.id}-${chosen(section, "quantity")}`},
    });
    Plotly.Plots.resize(plot);
  }
}
const sections = all("section.study:has(.chart)");
sections.forEach(section => {
  all(".controls input", section).forEach(input => input.addEventListener("change", () => {
    if (input.name.endsWith("-quantity")) {  // losses span decades, accuracies do not
      section.querySelector('input[name$="-log-y"]').checked = input.value !== "test_accuracy";
    }
    draw(section);
  }));
  draw(section);
});
dark.addEventListener("change", () => sections.forEach(draw));

// ---- runs: a filter, the runs behind a verdict, and the whole of one ----
const filter = document.getElementById("filter"), behind = document.getElementById("behind");
const rows = all("#runs-table tbody tr");
function claimAsked() {
  const found = location.hash.match(/^#runs-behind-(.+)$/);
  return found && document.getElementById(found[1]) ? found[1] : null;
}
function show() {
  const claim = claimAsked(), words = filter.value.toLowerCase().split(/\s+/);
  rows.forEach(row => {
    const text = row.textContent.toLowerCase();
    const isBehind = !claim || row.dataset.claims.split(" ").includes(claim);
    row.hidden = !(isBehind && words.every(word => text.includes(word)));
  });
  behind.hidden = !claim;
  if (claim) {
    behind.querySelector("q").textContent = document.querySelector(`#${claim} p`).textContent;
    behind.querySelector(".back").href = `#${claim}`;
  }
  document.getElementById("shown").textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length} runs`;
}
function follow() {
  show();
  if (claimAsked()) { document.getElementById("runs").scrollIntoView(); }
}
filter.addEventListener("input", show);
window.addEventListener("hashchange", follow);
follow();

const dialog = document.getElementById("run");
document.getElementById("runs-table").addEventListener("click", event => {
  const run = page.runs[event.target.dataset.run];
  if (!run) { return; }
  dialog.querySelector("h3").textContent = run.name;
  for (const part of ["folder", "message", "configuration", "origin"]) {
    dialog.querySelector(`.${part}`).textContent = run[part] ?? "";
  }
  dialog.showModal();
});
