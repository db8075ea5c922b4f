// The page as a whole: plotly is unpacked when the first picture comes into view and takes the
// place of the still pictures one by one; everything works without it.
"use strict";

(() => {
  const page = document.documentElement;
  const live = new Map(); // stage -> the element that plotly draws in
  let charts = [];
  let library = null;

  /** plotly, or null where the browser cannot unpack it. */
  function plotly() {
    library ??= (async () => {
      const packed = document.getElementById("plotly");
      if (!packed || typeof DecompressionStream === "undefined") return null;
      const letters = atob(packed.textContent.trim());
      const bytes = new Uint8Array(letters.length);
      for (let n = 0; n < letters.length; n += 1) bytes[n] = letters.charCodeAt(n);
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const script = document.createElement("script");
      script.textContent = await new Response(stream).text();
      document.head.append(script); // the policy knows its sum
      packed.remove();
      return window.Plotly ?? null;
    })();
    return library;
  }

  function hiddenIn(stage) {
    const group = stage.closest(".group");
    const off = group ? group.querySelectorAll(".legend input:not(:checked)") : [];
    return new Set(Array.from(off, (box) => Number(box.dataset.s)));
  }

  async function draw(stage) {
    const tool = await plotly();
    if (!tool) return;
    const figure = stage.closest("figure");
    const chart = charts[Number(figure.dataset.chart)];
    const { traces, layout } = plot(chart, pageColours(), hiddenIn(stage));
    const options = { displayModeBar: false, responsive: true, showTips: false };
    if (live.has(stage)) {
      await tool.react(live.get(stage), traces, layout, options);
      return;
    }
    const place = document.createElement("div");
    place.className = "plot";
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", stage.querySelector("svg").getAttribute("aria-label"));
    live.set(stage, place);
    stage.append(place);
    await tool.newPlot(place, traces, layout, options);
    place.on("plotly_click", (event) => {
      const link = event.points[0].customdata;
      if (link) location.hash = link;
    });
    stage.classList.add("live");
    figure.querySelectorAll(".choose").forEach((label) => { label.hidden = false; });
  }

  function watchPictures() {
    const watcher = new IntersectionObserver((entries) => {
      entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
        watcher.unobserve(entry.target);
        draw(entry.target);
      });
    }, { rootMargin: "200px" });
    document.querySelectorAll(".stage").forEach((stage) => watcher.observe(stage));
  }

  function toggleSeries(event) {
    const group = event.target.closest(".group");
    const number = event.target.dataset.s;
    group.querySelectorAll(`svg.still g[data-s="${number}"]`).forEach((drawn) => {
      drawn.classList.toggle("off", !event.target.checked);
    });
    group.querySelectorAll(".stage.live").forEach(draw);
  }

  /** A link to a group opens its card. */
  function openTarget() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const card = target && target.closest("details");
    if (!card) return;
    card.open = true;
    card.scrollIntoView();
  }

  function offerCopy(block) {
    if (!navigator.clipboard) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const lines = Array.from(block.querySelectorAll("code"), (line) => `${line.textContent}\n`);
      await navigator.clipboard.writeText(lines.join(""));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.before(button);
  }

  function start() {
    page.classList.add("js");
    charts = JSON.parse(document.getElementById("charts").textContent);
    document.querySelectorAll("table.sortable").forEach(makeSortable);
    document.querySelectorAll("table.narrowable").forEach(makeNarrowable);
    document.querySelectorAll(".legend input").forEach((box) => {
      box.addEventListener("change", toggleSeries);
    });
    document.querySelectorAll(".choose select").forEach((choice) => {
      choice.addEventListener("change", () => {
        const figure = choice.closest("figure");
        figure.dataset.chart = choice.value;
        draw(figure.querySelector(".stage"));
      });
    });
    document.querySelectorAll("pre").forEach(offerCopy);
    addEventListener("hashchange", openTarget);
    openTarget();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      live.forEach((_, stage) => draw(stage));
    });
    const idle = window.requestIdleCallback ?? setTimeout;
    addEventListener("load", () => idle(watchPictures)); // what can be read comes first
  }

  addEventListener("DOMContentLoaded", start);
})();
