// Charts: from the data of a picture to what plotly draws, in the colours of the page.
"use strict";

const DASHES = ["solid", "dash", "dashdot", "dot"];
const MOST_NAMES = 20; // classes in a cloud that are named beside their points
const MARKS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross"];

/** plotly reads a few tags and formulas in texts; names from records must show as they are. */
function asText(words) {
  return String(words).replace(/[&<>$]/g, (letter) => `&#${letter.charCodeAt(0)};`);
}

function cut(words, most) {
  return words.length > most ? `${words.slice(0, most - 1)}…` : words;
}

function short(value) {
  return Number(value.toPrecision(5)).toLocaleString("en", { maximumSignificantDigits: 5 });
}

/** The page's colours as they are now, light or dark. */
function pageColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    ink: read("--ink"), soft: read("--soft"), line: read("--line"), raised: read("--raised"),
    paper: read("--paper"),
    series: [0, 1, 2, 3, 4, 5].map((n) => read(`--c${n}`)),
    ramp: [0, 3, 6, 9].map((n) => read(`--h${n}`)),
  };
}

function axis(own, colours, more) {
  const range = own.log ? own.r.map(Math.log10) : own.r;
  return {
    title: { text: asText(own.t), standoff: 6, font: { color: colours.soft } },
    type: own.log ? "log" : "linear", range, tickvals: own.at, ticktext: own.say,
    tickmode: "array", gridcolor: colours.line, zeroline: false, linecolor: colours.line,
    tickfont: { color: colours.soft }, fixedrange: matchMedia("(pointer: coarse)").matches,
    ...more,
  };
}

function marker(series, colours, size) {
  return { symbol: MARKS[series.look[2]], color: colours.series[series.look[0]], size };
}

/** Mean and interval of point n as a sentence. */
function told(chart, series, n) {
  if (series.t && series.t[n]) return asText(series.t[n]).replaceAll("; ", "<br>");
  const ends = series.a ? ` (${short(series.a[n])} to ${short(series.c[n])})` : "";
  return `${asText(chart.x.t)} ${short(series.x[n])}: ${short(series.y[n])}${ends}`;
}

function withHover(chart, series, colours, trace) {
  const name = asText(cut(series.n, 40));
  const lines = series.x.map((_, n) => `<b>${name}</b><br>${told(chart, series, n)}`);
  return {
    type: "scatter", name: asText(series.n), hoverinfo: "text", hovertext: lines,
    x: series.x, y: series.y, customdata: series.x.map(() => series.g || ""),
    meta: series.l, hoverlabel: { bordercolor: colours.series[series.look[0]] }, ...trace,
  };
}

function curveTraces(chart, series, colours) {
  const colour = colours.series[series.look[0]];
  const few = series.x.length <= 25;
  const line = withHover(chart, series, colours, {
    mode: few ? "lines+markers" : "lines",
    line: { color: colour, dash: DASHES[series.look[1]], width: 1.8 },
    marker: marker(series, colours, 7),
  });
  if (!series.a || series.x.length < 2) return [line];
  const band = {
    type: "scatter", mode: "lines", x: [...series.x, ...series.x.toReversed()],
    y: [...series.c, ...series.a.toReversed()], fill: "toself", fillcolor: colour,
    opacity: 0.16, line: { width: 0 }, hoverinfo: "skip", meta: series.l,
  };
  return [band, line];
}

function barTraces(chart, series, colours) {
  const way = chart.kind === "rows" ? "x" : "y";
  const ends = series.a && {
    type: "data", symmetric: false, thickness: 1.4, width: 3,
    color: colours.series[series.look[0]],
    array: series[way].map((v, n) => series.c[n] - v),
    arrayminus: series[way].map((v, n) => v - series.a[n]),
  };
  const size = chart.kind === "rows" ? 8 : 10;
  return [withHover(chart, series, colours, {
    mode: "markers", marker: marker(series, colours, size), [`error_${way}`]: ends || undefined,
  })];
}

function speckTraces(chart, series, colours) {
  const large = Boolean(series.t);
  const look = marker(series, colours, large ? 12 : 4);
  if (large) look.line = { color: colours.paper, width: 1.5 };
  const trace = { mode: "markers", marker: look, opacity: large ? 1 : 0.75 };
  trace.hovertext = series.x.map(() => `<b>${asText(cut(series.n, 40))}</b>${large ? ", centroid" : ""}`);
  return [withHover(chart, series, colours, trace)];
}

function heatTraces(chart, colours) {
  const places = chart.v.map((_, n) => n + 1);
  const scale = colours.ramp.map((colour, n) => [n / (colours.ramp.length - 1), colour]);
  const said = chart.v.map((row, t) => row.map((v, i) =>
    v === null ? "" : `after task ${t + 1}, on task ${i + 1}: ${v.toFixed(2)} %`));
  return [{
    type: "heatmap", x: places, y: places, z: chart.z, zmin: 0, zmax: 1, colorscale: scale,
    showscale: false, hoverinfo: "text", hovertext: said, xgap: 1, ygap: 1,
  }];
}

function middle(values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}

/** Names of rows above their marks; names of the classes of a cloud amid their points. */
function labels(chart, colours, hidden) {
  if (chart.kind === "rows") {
    return chart.s.map((series) => ({
      text: asText(cut(series.n, 56)),
      xref: "paper", x: 0, xanchor: "left", y: series.y[0], yanchor: "bottom", yshift: 2,
      showarrow: false, font: { color: hidden.has(series.l) ? colours.line : colours.ink },
    }));
  }
  const classes = chart.kind === "cloud" ? chart.s.filter((s) => !s.t && s.x.length) : [];
  if (classes.length > MOST_NAMES) return [];
  return classes.filter((series) => !hidden.has(series.l)).map((series) => ({
    text: `<b>${asText(cut(series.n, 12))}</b>`, x: middle(series.x), y: middle(series.y),
    showarrow: false, bgcolor: colours.paper, opacity: 0.85, borderpad: 1,
  }));
}

/** Traces and layout; `hidden` holds the numbers of the series that the legend turned off. */
function plot(chart, colours, hidden) {
  const make = { lines: curveTraces, rows: barTraces, points: barTraces, cloud: speckTraces };
  const traces = chart.kind === "heat" ? heatTraces(chart, colours)
    : chart.s.flatMap((series) => make[chart.kind](chart, series, colours));
  traces.forEach((trace) => { trace.visible = !hidden.has(trace.meta); });
  const bare = chart.kind === "cloud" || chart.kind === "rows";
  const width = Math.max(0, ...chart.y.say.map((word) => word.length));
  const layout = {
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", showlegend: false,
    font: { family: "inherit", size: 11, color: colours.ink },
    margin: { l: bare ? 6 : 24 + 6.2 * width, r: 10, t: 8, b: chart.x.t ? 38 : 6 },
    hovermode: "closest", dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: { bgcolor: colours.raised, font: { color: colours.ink, size: 12 }, align: "left" },
    xaxis: axis(chart.x, colours, { showgrid: chart.kind !== "lines" && chart.kind !== "heat" }),
    yaxis: axis(chart.y, colours, { showgrid: !bare && chart.kind !== "heat", visible: !bare }),
    annotations: labels(chart, colours, hidden),
    shapes: chart.b.map((at) => ({
      type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, layer: "below",
      line: { color: colours.soft, width: chart.kind === "rows" ? 1 : 0.5 },
    })),
  };
  if (chart.kind === "cloud") Object.assign(layout.xaxis, { visible: false });
  return { traces, layout };
}
