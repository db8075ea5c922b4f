// The page: sections, tables that sort and filter, pictures of the chosen rows, details of a row.
"use strict";

(() => {
  const DASHES = ["solid", "dash", "dashdot", "dot"];
  const MARKS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross"];
  const UNITS = { seconds: "seconds of learning", images: "images through the net", bytes: "bytes held" };
  const METRICS = ["accuracy", "forgetting", "learning", "anytime", "worst case"];
  const MOST_NAMES = 20; // classes in a cloud that are named beside their points
  const MOST_BANDS = 6; // in one picture; more would hide each other
  const OPTIONS = { displayModeBar: false, responsive: true, showTips: false };
  const pictures = new Map(); // element -> function that describes what it shows
  const unpacked = new Map(); // element -> promise of what it holds
  let data = null;

  const make = (tag, attributes = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  };
  const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  const known = (values) => values.filter((v) => v !== null);
  const deviation = (values) => {
    const middle = mean(values);
    return Math.sqrt(values.reduce((sum, v) => sum + (v - middle) ** 2, 0) / (values.length - 1));
  };
  /** Half of the 95 % interval of the mean; null with too few values. */
  const half = (values) => values.length < data.fewest ? null
    : data.t[values.length - 1] * deviation(values) / Math.sqrt(values.length);
  const signed = (value) => (value < 0 ? "" : "+") + value.toFixed(2);
  const short = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
  const cut = (words, most) => words.length > most ? `${words.slice(0, most - 1)}…` : words;
  /** plotly reads a few tags and formulas in texts; names from records must show as they are. */
  const asText = (words) => String(words).replace(/[&<>$]/g, (c) => `&#${c.charCodeAt(0)};`);

  /** What an element holds, unpacked and read once. */
  function unpack(element, read) {
    if (!unpacked.has(element)) {
      const letters = atob(element.textContent.trim());
      const bytes = new Uint8Array(letters.length);
      for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      unpacked.set(element, new Response(stream).text().then(read));
      element.textContent = "";
    }
    return unpacked.get(element);
  }

  const plotly = () => unpack(document.getElementById("plotly"), (code) => {
    document.head.append(make("script", { textContent: code })); // the policy knows its sum
  });

  /** The page's colours as they are now, light or dark. */
  function palette() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const lighter = (c) => `#${[1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16))
      .map((v) => Math.round(v + (255 - v) * 0.38).toString(16).padStart(2, "0")).join("")}`;
    return {
      ...Object.fromEntries(["ink", "soft", "line", "raised", "paper"].map((n) => [n, read(n)])),
      ramp: [0, 1, 2, 3].map((n) => [n / 3, read(`h${n}`)]),
      series: dark ? data.colours.map(lighter) : data.colours,
    };
  }

  function layoutOf(colours, x, y, more = {}) {
    const touch = matchMedia("(pointer: coarse)").matches;
    const axis = ({ name = "", ...own }) => ({
      title: { text: asText(name), standoff: 8, font: { color: colours.soft, size: 11.5 } },
      gridcolor: colours.line, zeroline: false, linecolor: colours.line, automargin: true,
      tickfont: { color: colours.soft }, fixedrange: touch, ...own,
    });
    return {
      paper_bgcolor: "transparent", plot_bgcolor: "transparent", showlegend: false,
      font: { family: getComputedStyle(document.body).fontFamily, size: 11.5, color: colours.ink },
      margin: { l: 8, r: 12, t: 8, b: 8 }, hovermode: "closest", dragmode: touch ? false : "zoom",
      hoverlabel: { bgcolor: colours.raised, font: { color: colours.ink, size: 12 }, align: "left" },
      ...more, xaxis: axis(x), yaxis: axis(y),
    };
  }

  const watcher = new IntersectionObserver(async (places) => {
    await plotly();
    places.filter((p) => p.isIntersecting).forEach((p) => setTimeout(draw, 0, p.target)); // one by one
  }, { rootMargin: "50%" });

  /** Show a picture, or what it shows from now on, as soon as it comes near the screen. */
  function plot(place, build = pictures.get(place)) {
    pictures.set(place, build);
    watcher.unobserve(place); // who is watched anew is told of again
    watcher.observe(place);
    return place;
  }

  async function draw(place) {
    watcher.unobserve(place);
    await plotly();
    if (!pictures.has(place)) return; // its row was closed meanwhile
    const { traces, layout } = pictures.get(place)(palette());
    await window.Plotly.react(place, traces, layout, OPTIONS);
    performance.mark("picture");
  }

  const trace = (name, colour, own) => ({
    type: "scatter", name: asText(cut(name, 60)), hoverinfo: "text",
    hoverlabel: { bordercolor: colour }, ...own,
  });
  const hover = (name, words) => `<b>${asText(cut(name, 60))}</b><br>${words}`;

  function band(colour, x, low, high) {
    return { type: "scatter", mode: "lines", x: [...x, ...x.toReversed()],
      y: [...high, ...low.toReversed()], fill: "toself", fillcolor: colour, opacity: 0.15,
      line: { width: 0 }, hoverinfo: "skip", showlegend: false };
  }

  // The three pictures of the chosen rows.
  /** What tells a group from the others of its method that are shown. */
  function ownName(g, groups) {
    const parts = (other) => [...other.label.split(", ").filter(Boolean), other.where];
    const same = groups.filter((other) => other.m === g.m).map(parts);
    const own = parts(g).filter((part) => !same.every((other) => other.includes(part)));
    return data.methods[g.m] + (own.length ? ` (${own.join(", ")})` : "");
  }

  function chosen(section) {
    const groups = data.sections[section.number];
    const rows = section.rows.filter((row) => row.querySelector("input").checked);
    const found = rows.map((row) => groups[Number(row.dataset.row)]).filter((g) => known(g.acc).length);
    const seen = new Map();
    return found.map((g) => {
      const variant = seen.get(g.m) ?? 0;
      seen.set(g.m, variant + 1);
      const turn = Math.floor(g.m / 6) + variant;
      return { ...g, name: ownName(g, found), mean: mean(known(g.acc)), dash: DASHES[turn % 4],
        colour: g.m % data.colours.length, mark: MARKS[(g.m + turn) % 6] };
    }).sort((a, b) => b.mean - a.mean);
  }

  const differences = (group, base) => group.seeds.flatMap((seed, i) => {
    const j = base.seeds.indexOf(seed);
    const paired = j >= 0 && group.pair[i] === base.pair[j];
    const both = paired && group.acc[i] !== null && base.acc[j] !== null;
    return both ? [{ seed, value: group.acc[i] - base.acc[j] }] : [];
  });

  function pairsPicture(colours, groups, base) {
    const traces = groups.flatMap((g, row) => {
      const found = differences(g, base);
      const values = found.map((d) => d.value);
      const colour = colours.series[g.colour];
      if (!values.length) return [];
      const middle = mean(values);
      const wide = g === base ? null : half(values);
      const about = g === base ? `the reference, ${g.mean.toFixed(2)} %`
        : `${signed(middle)} points; ` + (wide === null ? `${values.length} common seeds: no interval`
          : `95 % interval ${signed(middle - wide)} to ${signed(middle + wide)}, ${values.length} seeds`);
      const seeds = trace(g.name, colour, { mode: "markers", x: values, y: values.map(() => row),
        marker: { color: colour, size: 5, opacity: 0.45 },
        hovertext: found.map((d) => hover(g.name, `seed ${d.seed}: ${signed(d.value)}`)) });
      const whole = trace(g.name, colour, { mode: "markers", x: [middle], y: [row],
        marker: { symbol: g.mark, color: colour, size: 10, line: { color: colours.paper, width: 1 } },
        error_x: wide === null ? undefined
          : { type: "data", array: [wide], color: colour, thickness: 1.8, width: 4 },
        hovertext: [hover(g.name, about)] });
      return g === base ? [whole] : [seeds, whole];
    });
    const most = innerWidth < 700 ? 20 : 30;
    const layout = layoutOf(colours, { name: `percent points above ${cut(base.name, 40)}` }, {
      range: [groups.length - 0.4, -0.6], tickvals: groups.map((_, row) => row), showgrid: false,
      ticktext: groups.map((g) => asText(cut(g.name, most))), tickfont: { color: colours.ink },
    }, {
      height: Math.max(360, 70 + 24 * groups.length),
      shapes: [{ type: "line", x0: 0, x1: 0, yref: "paper", y0: 0, y1: 1, layer: "below",
        line: { color: colours.soft, width: 1 } }],
    });
    return { traces, layout };
  }

  function tasksPicture(colours, groups) {
    const traces = groups.flatMap((g) => {
      const colour = colours.series[g.colour];
      const steps = g.curve[0].map((_, t) => g.curve.map((c) => c[t]).filter((v) => v != null));
      const x = steps.map((_, t) => t + 1).filter((t) => steps[t - 1].length === g.curve.length);
      const values = x.map((t) => steps[t - 1]);
      const y = values.map(mean);
      const half = values.map((v) => (v.length > 1 ? deviation(v) : 0));
      const seeds = (i) => values[i].map((v) => v.toFixed(1)).join(", ");
      const line = trace(g.name, colour, { mode: "lines+markers", x, y,
        line: { color: colour, dash: g.dash, width: 2 }, marker: { symbol: g.mark, size: 7 },
        hovertext: x.map((t, i) => hover(g.name, `after task ${t}: ${y[i].toFixed(2)} %`
          + (half[i] ? ` ± ${half[i].toFixed(2)}` : "") + `<br>seeds: ${seeds(i)}`)) });
      if (groups.length > MOST_BANDS || g.curve.length < 2) return [line];
      return [band(colour, x, y.map((v, i) => v - half[i]), y.map((v, i) => v + half[i])), line];
    });
    const many = groups.some((g) => g.curve[0].length > 12);
    const layout = layoutOf(colours, { name: "tasks learned", dtick: many ? undefined : 1 },
      { name: "average accuracy (%)" }, { showlegend: groups.length > 1, height: 360 + 9 * groups.length,
        legend: { orientation: "h", y: -0.2, yanchor: "top", font: { size: 11 } } });
    return { traces, layout };
  }

  /** Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten. */
  function logTicks(values) {
    const [low, high] = [Math.min(...values) / 1.5, Math.max(...values) * 1.5];
    const found = [];
    for (let power = 10 ** Math.floor(Math.log10(low)); power < high; power *= 10) {
      found.push(...[1, 2, 5].map((m) => m * power).filter((v) => v >= low && v <= high));
    }
    const tickvals = found.length > 8 ? found.filter((v) => /^1/.test(v.toExponential())) : found;
    const ticktext = tickvals.map((v) => v.toLocaleString("en", { notation: "compact" }));
    return { type: "log", range: [Math.log10(low), Math.log10(high)], tickvals, ticktext };
  }

  function costPicture(colours, groups, unit) {
    const priced = groups.filter((g) => known(g.cost[unit]).some((v) => v > 0));
    const traces = priced.map((g) => {
      const cost = mean(known(g.cost[unit]));
      const values = known(g.acc);
      const wide = half(values);
      const colour = colours.series[g.colour];
      return trace(g.name, colour, { mode: "markers", x: [cost], y: [g.mean],
        marker: { symbol: g.mark, color: colour, size: 11 },
        error_y: wide === null ? undefined : { type: "data", array: [wide], color: colour, thickness: 1.4, width: 3 },
        hovertext: [hover(g.name, `${g.mean.toFixed(2)} %${wide === null ? "" : `, 95 % ± ${wide.toFixed(2)}`}`
          + `<br>${short(cost)} ${UNITS[unit]}`)] });
    });
    const costs = traces.map((t) => t.x[0]);
    const wide = Math.max(...costs) > 4 * Math.min(...costs) ? logTicks(costs) : {};
    const layout = layoutOf(colours, { name: UNITS[unit], ...wide },
      { name: "average accuracy (%)" }, { height: 360 });
    return { traces, layout };
  }

  /** Draw the chosen rows; returns the places of the pictures. */
  function compare(section) {
    const groups = chosen(section);
    const select = section.element.querySelector(".reference");
    const before = select.selectedOptions[0]?.textContent;
    select.replaceChildren(...groups.map((g, n) => new Option(g.name, n)));
    const kept = groups.findIndex((g) => g.name === before);
    select.value = kept >= 0 ? kept : Math.max(0, groups.findIndex((g) => !g.joint));
    const figure = (name) => section.element.querySelector(`figure.${name}`);
    figure("pairs").hidden = section.element.querySelector(".against").hidden = groups.length < 2;
    figure("tasks").hidden = figure("cost").hidden = !groups.length;
    const unit = section.element.querySelector(".unit").value;
    const builds = {
      pairs: groups.length > 1 && ((c) => pairsPicture(c, groups, groups[Number(select.value)])),
      tasks: groups.length && ((c) => tasksPicture(c, groups)),
      cost: groups.length && ((c) => costPicture(c, groups, unit)),
    };
    const used = Object.entries(builds).filter(([, build]) => build);
    return used.map(([name, build]) => plot(figure(name).querySelector(".plot"), build));
  }

  // A picture that Python described: lines, heat map or cloud.
  function described(colours, chart) {
    const colour = (s) => colours.series[s.look[0]];
    const classes = chart.kind === "cloud" ? chart.s.filter((s) => !s.big && s.x.length) : [];
    const traces = chart.kind === "heat" ? [heat(chart, colours)] : chart.s.flatMap((s) => {
      const lines = chart.kind === "lines";
      const own = trace(s.n, colour(s), { mode: lines ? (s.x.length > 25 ? "lines" : "lines+markers") : "markers",
        x: s.x, y: s.y, line: { color: colour(s), dash: DASHES[s.look[1]], width: 1.8 },
        marker: { symbol: MARKS[s.look[2]], color: colour(s), size: s.big ? 12 : lines ? 6 : 4,
          line: s.big ? { color: colours.paper, width: 1.5 } : undefined }, opacity: lines || s.big ? 1 : 0.75,
        showlegend: !s.big, hovertext: s.x.map((x, i) => hover(s.n, lines ? `${asText(chart.x.t)} ${short(x)}: ${short(s.y[i])}`
          : s.big ? "centroid" : "feature")) });
      return s.a && s.x.length > 1 ? [band(colour(s), s.x, s.a, s.c), own] : [own];
    });
    const bare = chart.kind === "cloud" ? { visible: false } : {};
    const range = (axis) => (axis.log ? axis.r.map(Math.log10) : axis.r);
    const layout = layoutOf(colours, { name: chart.x.t, range: range(chart.x), ...bare },
      { name: chart.y.t, range: range(chart.y), type: chart.y.log ? "log" : "linear", ...bare }, {
        showlegend: chart.s.length > 1 && !(classes.length && classes.length <= MOST_NAMES),
        legend: { orientation: "h", y: -0.22, yanchor: "top", font: { size: 10.5 } }, height: 300 + 6 * chart.s.length,
        shapes: chart.b.map((at) => ({ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, layer: "below",
          line: { color: colours.soft, width: 0.5 } })),
        annotations: classes.length > MOST_NAMES ? [] : classes.map((s) => ({ text: `<b>${asText(cut(s.n, 12))}</b>`,
          x: median(s.x), y: median(s.y), showarrow: false, bgcolor: colours.paper, opacity: 0.85, borderpad: 1 })) });
    return { traces, layout };
  }

  function heat(chart, colours) {
    const places = chart.v.map((_, n) => n + 1);
    const numbers = places.length <= 12;
    return { type: "heatmap", x: places, y: places, z: chart.z, zmin: 0, zmax: 1, colorscale: colours.ramp,
      showscale: false, xgap: 1, ygap: 1, hoverinfo: "text", texttemplate: numbers ? "%{text}" : undefined,
      text: chart.v.map((row) => row.map((v) => (v === null ? "" : v.toFixed(1)))),
      hovertext: chart.v.map((row, t) => row.map((v, i) => (v === null ? "" : `after task ${t + 1}, on task ${i + 1}: ${v.toFixed(2)} %`))) };
  }

  // What opens below a row.
  function table(heads, rows, reported) {
    const head = make("tr", {}, ...heads.map((h, n) => make("th", { textContent: h, className: n ? "" : "left" })));
    const body = rows.map((row) => make("tr", { className: row[0] === reported ? "reported" : "" },
      ...row.map((cell, n) => make("td", { className: n ? "" : "left" }, cell))));
    return make("div", { className: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
  }

  function detail(own, columns) {
    const numbers = own.numbers.map(([name, value, between]) => make("div", {}, make("dt", { textContent: name }),
      make("dd", {}, value, " ", make("small", { textContent: between === "–" ? "" : `95 %: ${between}` }))));
    const runs = own.runs.map((run) => [...run.slice(0, -1).map(String), make("a", { href: run.at(-1), textContent: "record.json" })]);
    const figures = own.charts.map((chart) => {
      const place = plot(make("div", { className: "plot" }), (colours) => described(colours, chart));
      return make("figure", {}, make("figcaption", {}, make("b", { textContent: chart.title })), place);
    });
    const copy = make("button", { type: "button", textContent: "Copy", hidden: !navigator.clipboard });
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(own.commands.map((c) => `${c}\n`).join(""));
      copy.textContent = "Copied";
    });
    const classes = own.tasks.map((names, n) => `Task ${n + 1}: ${names}.`).join(" ");
    const settings = own.settings.filter((pair) => pair[1]).map(([name, value]) => make("div", {},
      make("dt", { textContent: name }), make("dd", { textContent: value })));
    const cell = make("td", { colSpan: columns }, make("div", { className: "inside" }, make("dl", { className: "numbers" }, ...numbers),
      make("h3", { textContent: "Every seed" }),
      table(["seed", ...METRICS, "images/step", "MB held", "seconds", "record"], runs),
      make("h3", { textContent: "Every read-out" }), table(["read-out", ...METRICS], own.readouts, own.readout),
      make("div", { className: "pictures" }, ...figures), make("p", { className: "soft" }, classes),
      make("h3", {}, "Commands ", copy), make("pre", { textContent: own.commands.join("\n") }),
      make("h3", { textContent: "Settings" }), make("dl", { className: "settings" }, ...settings)));
    return make("tr", { className: "detail" }, cell);
  }

  async function toggle(section, row) {
    if (row.detail) {
      row.detail.querySelectorAll(".plot").forEach((place) => { watcher.unobserve(place); pictures.delete(place); });
      row.detail = row.detail.remove() ?? null;
      return;
    }
    const details = await unpack(section.element.querySelector(".details"), JSON.parse);
    row.detail = detail(details[Number(row.dataset.row)], row.cells.length);
    row.after(row.detail);
  }

  const textOf = (cell) => (cell.querySelector(".value") ?? cell).textContent.trim();

  function sort(section, column, descending, words) {
    const number = (text) => parseFloat(text.replace(/,/g, ""));
    const items = section.rows.map((row) => ({ row, text: textOf(row.cells[column]), value: number(textOf(row.cells[column])) }));
    const lacks = (item) => (words ? !item.text : Number.isNaN(item.value)); // these come last both ways
    const order = (a, b) => (words ? a.text.localeCompare(b.text, "en", { numeric: true }) : a.value - b.value);
    items.sort((a, b) => lacks(a) - lacks(b) || (lacks(a) ? 0 : (descending ? -1 : 1) * order(a, b)));
    section.rows = items.map((item) => item.row);
    section.body.append(...section.rows.flatMap((row) => (row.detail ? [row, row.detail] : [row])));
  }

  function makeSortable(section) {
    const heads = Array.from(section.element.querySelectorAll("thead th"));
    heads.slice(1).forEach((head, place) => {
      head.append(make("button", { type: "button" }, ...head.childNodes));
      head.firstChild.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const words = head.classList.contains("left");
        const descending = now ? now === "ascending" : !words;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        sort(section, place + 1, descending, words);
      });
    });
  }

  function filter(section, words) {
    section.rows.forEach((row) => {
      row.words ??= row.textContent.toLowerCase();
      row.hidden = !words.every((word) => row.words.includes(word));
      if (row.detail) row.detail.hidden = row.hidden;
    });
  }

  /** Rows as they are shown, and the accuracy of every seed. */
  function csv(section) {
    const safe = (text) => (/^[\s]*[=+\-@]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text);
    const line = (cells) => cells.map((cell) => `"${safe(cell).replace(/"/g, '""')}"`).join(",");
    const heads = Array.from(section.element.querySelectorAll("thead th"), textOf).slice(1);
    const lines = section.rows.filter((row) => !row.hidden).map((row) => {
      const g = data.sections[section.number][Number(row.dataset.row)];
      const seeds = g.seeds.map((seed, i) => `${seed}: ${g.acc[i] ?? ""}`).join("; ");
      return line([...Array.from(row.cells, textOf).slice(1), seeds]);
    });
    return [line([...heads, "accuracy by seed"]), ...lines, ""].join("\n");
  }

  function save(name, text) {
    const href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    make("a", { download: name, href }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  }

  /** Make a section live when it is first opened. */
  function prepare(element, number) {
    const body = element.querySelector("tbody");
    const section = { element, number, body, rows: Array.from(body.rows) };
    const find = (name) => element.querySelector(name);
    section.rows.forEach((row) => {
      const name = row.querySelector(".value");
      name.replaceChildren(make("button", { type: "button", title: "seeds, read-outs, commands" }, name.textContent));
    });
    makeSortable(section);
    const preset = () => {
      const chosenRows = new Set(find(".block").value.split(" "));
      section.rows.forEach((row) => { row.querySelector("input").checked = chosenRows.has(row.dataset.row); });
    };
    find(".filter").addEventListener("input", (e) => filter(section, e.target.value.toLowerCase().split(/\s+/).filter(Boolean)));
    find(".csv").addEventListener("click", () => save("ocil.csv", csv(section)));
    find(".block").addEventListener("change", () => { preset(); compare(section); });
    [".reference", ".unit"].forEach((name) => find(name).addEventListener("change", () => compare(section)));
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-row]");
      if (row && event.target.closest(".value button")) toggle(section, row);
    });
    body.addEventListener("change", () => { find(".block").value = ""; compare(section); });
    preset();
    return section;
  }

  const sections = new Map();
  async function open() {
    const all = Array.from(document.querySelectorAll("section"));
    const wanted = all.find((element) => `#${element.id}` === location.hash) ?? all[0];
    all.forEach((element) => element.classList.toggle("open", element === wanted));
    document.querySelectorAll("nav a").forEach((link) => {
      link.toggleAttribute("aria-current", link.getAttribute("href") === `#${wanted.id}`);
    });
    if (sections.has(wanted)) return;
    const section = prepare(wanted, all.indexOf(wanted));
    sections.set(wanted, section);
    performance.mark("usable");
    data = await unpack(document.getElementById("data"), JSON.parse);
    const places = compare(section);
    if (section.rows.length < 3) await Promise.all(section.rows.map((row) => toggle(section, row)));
    if (places.length) await draw(places[0]); // the others when they are scrolled to
    document.documentElement.dataset.drawn = wanted.id;
  }

  document.documentElement.classList.add("js");
  addEventListener("DOMContentLoaded", open);
  addEventListener("hashchange", open);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => pictures.forEach((_, place) => plot(place)));
  addEventListener("beforeprint", () => pictures.forEach((_, place) => place.offsetParent && draw(place)));
})();
