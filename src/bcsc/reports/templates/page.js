"use strict";
const page = JSON.parse(document.getElementById("data").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

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
  table.querySelectorAll("th[aria-sort]").forEach(other => other.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => sign * compare(a.cells[column].textContent, b.cells[column].textContent));
  table.tBodies[0].append(...rows);
}
document.querySelectorAll("th[data-column] button").forEach(button =>
  button.addEventListener("click", () => sort(button.parentElement)));

// ---- charts ----
const chosen = (section, name) => section.querySelector(`input[name$="-${name}"]:checked`).value;
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
function layout(section) {
  const axis = {gridcolor: style("--line"), linecolor: style("--line"), zeroline: false, automargin: true};
  const logarithmic = isOn(section, "log");
  return {
    margin: {l: 48, r: 12, t: 8, b: 44}, showlegend: false, hovermode: "x unified",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: {color: style("--soft"), family: "system-ui, sans-serif", size: 12},
    hoverlabel: {bgcolor: style("--card"), bordercolor: style("--line"), font: {color: style("--text")}},
    xaxis: {...axis, type: logarithmic ? "log" : "linear", title: {text: page.axes[chosen(section, "axis")]},
            ...(logarithmic ? {dtick: "D2"} : {})},
    yaxis: {...axis, title: {text: page.quantities[chosen(section, "quantity")]}},
  };
}
function draw(section) {
  const hidden = new Set([...section.querySelectorAll(".arms input:not(:checked)")].map(box => box.value));
  for (const plot of section.querySelectorAll(".plot")) {
    const lines = page.charts[plot.id].filter(line => !hidden.has(line.arm));
    Plotly.react(plot, lines.flatMap(line => traces(line, section)), layout(section),
                 {responsive: true, displayModeBar: false});
  }
}
const sections = [...document.querySelectorAll("section.study")];
sections.forEach(section => {
  section.querySelectorAll(".controls input").forEach(input => input.addEventListener("change", () => draw(section)));
  draw(section);
});
dark.addEventListener("change", () => sections.forEach(draw));
