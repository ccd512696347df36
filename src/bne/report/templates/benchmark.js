"use strict";
(() => {
  const data = charts.data("benchmark-data");
  const form = document.getElementById("filters");
  const rule = document.getElementById("rule");
  const measure = document.getElementById("measure");
  const dots = document.getElementById("dots");
  const holder = document.getElementById("run-curves");
  const { plain } = charts;
  const titles = { source: "accuracy, %", target_accuracy: "accuracy, %", loss: "loss" };

  const ticked = (name) => new Set(
    [...form.querySelectorAll(`input[name=${name}]:checked`)].map((box) => Number(box.value)));
  let methods, targets;

  function showRule() {
    for (const block of document.querySelectorAll("[data-rule]")) {
      block.hidden = block.dataset.rule !== rule.value;
    }
  }

  const unwantedMethod = (name) => {
    const number = data.methods.findIndex((method) => method.name === name);
    return number >= 0 && !methods.has(number);
  };
  const unwantedTarget = (name) => {
    const number = data.targets.indexOf(name);
    return number >= 0 && !targets.has(number);
  };

  // One row per method, which may go on in rows without a name; one column per target.
  function filterGrid(table) {
    const [head, ...rows] = table.rows;
    const columns = [...head.cells].map((cell) => unwantedTarget(cell.textContent));
    let name = "";
    for (const row of [head, ...rows]) {
      if (row !== head) {
        name = row.cells[0].textContent || name;
        row.hidden = unwantedMethod(name);
      }
      [...row.cells].forEach((cell, number) => { cell.hidden = columns[number]; });
    }
  }

  // One row per run, which begins with its method and target.
  function filterRuns(table) {
    for (const row of [...table.rows].slice(1)) {
      row.hidden = unwantedMethod(row.cells[0].textContent)
        || unwantedTarget(row.cells[1].textContent);
    }
  }

  function drawDots() {
    if (!dots) return;
    const everywhere = targets.size === data.targets.length && targets.size > 1;
    const columns = [...targets, ...(everywhere ? [data.targets.length] : [])];
    const names = columns.map((column) => data.targets[column] ?? "average");
    const shown = [...methods];
    const step = 0.7 / Math.max(shown.length, 1);
    const traces = shown.flatMap((method, order) => {
      const { name, colour } = data.methods[method];
      const place = (at) => at + (order - (shown.length - 1) / 2) * step;
      const cells = columns.map((column) => data.figures[rule.value][method][column]);
      const title = (at) => plain(name + ", " + names[at]);
      const points = cells.flatMap((cell, at) => cell.seeds.map(([seed, value]) => (
        { x: place(at), y: value, text: `${title(at)}, seed ${seed}: ${value.toFixed(1)} %` })));
      const means = cells.flatMap((cell, at) => (cell.mean === null ? [] : [{
        x: place(at), y: cell.mean, error: cell.error ?? 0,
        text: `${title(at)}: mean ${cell.mean.toFixed(1)} %`
          + (cell.error === null ? "" : ` ± ${cell.error.toFixed(1)}`) }]));
      const paper = cells.flatMap((cell, at) => (cell.paper === null ? [] : [
        { x: place(at), y: cell.paper, text: `${title(at)}: paper ${cell.paper} %` }]));
      const trace = (own, extra) => ({
        type: "scatter", mode: "markers", x: own.map((one) => one.x), y: own.map((one) => one.y),
        text: own.map((one) => one.text), hovertemplate: "%{text}<extra></extra>",
        showlegend: false, ...extra });
      return [
        trace(means, {
          error_y: { type: "data", array: means.map((one) => one.error), color: colour, width: 3 },
          marker: { symbol: "line-ew", size: Math.min(26, (charts.narrow.matches ? 60 : 120) / shown.length),
            line: { color: colour, width: 3 } } }),
        trace(points, { marker: { color: colour, size: 8, opacity: 0.75,
          line: { color: "#fff", width: 1 } } }),
        trace(paper, { marker: { symbol: "diamond-open", size: 9, color: colour,
          line: { width: 1.5 } } }),
      ];
    });
    Plotly.react(dots, traces, charts.layout({
      xaxis: charts.axis({ tickvals: names.map((_, at) => at), ticktext: names.map(plain),
        range: [-0.5, names.length - 0.5], showgrid: false, automargin: true,
        tickangle: charts.narrow.matches ? -35 : 0 }),
      yaxis: charts.axis({ title: { text: "accuracy, %", standoff: 6 }, automargin: true }),
      shapes: names.slice(1).map((_, at) => ({ type: "line", yref: "paper", y0: 0, y1: 1,
        x0: at + 0.5, x1: at + 0.5, line: { color: "#ddd", width: 1 } })),
    }), charts.config);
  }

  // Where stages begin, of all lines together.
  function marks(kinds) {
    const names = new Map();
    for (const stage of kinds.flat()) {
      names.set(stage.first, (names.get(stage.first) ?? new Set()).add(stage.name));
    }
    return [...names].map(([first, own]) => ({ first, name: [...own].join(" or ") }));
  }

  function box(target) {
    const found = document.getElementById("curves-" + target);
    if (found) {
      found.parentElement.hidden = false;
      return found;
    }
    const figure = document.createElement("figure");
    figure.className = "chart-box";
    const caption = document.createElement("figcaption");
    caption.textContent = "Target " + data.targets[target];
    const plot = document.createElement("div");
    plot.className = "chart";
    plot.id = "curves-" + target;
    figure.append(caption, plot);
    holder.append(figure);
    return plot;
  }

  function drawCurves() {
    if (!holder) return;
    const wanted = new Map();
    for (const target of data.targets.keys()) {
      const runs = data.runs.filter((run) => run.target === target && methods.has(run.method));
      if (targets.has(target) && runs.length) wanted.set(target, runs);
      else document.getElementById("curves-" + target)?.parentElement.setAttribute("hidden", "");
    }
    // All boxes first: how many there are decides how wide a chart is.
    const plots = new Map([...wanted.keys()].map((target) => [target, box(target)]));
    for (const [target, runs] of wanted) {
      const plot = plots.get(target);
      const lines = runs.map((run) => ({
        name: `${data.methods[run.method].name}, seed ${run.seed}`, x: run.x, y: run[measure.value],
        colour: data.methods[run.method].colour, dash: data.methods[run.method].dash,
        stages: data.stages[run.stages] }));
      const kinds = [...new Set(runs.map((run) => run.stages))].map((kind) => data.stages[kind]);
      charts.curves(plot, lines, marks(kinds), titles[measure.value], { showlegend: false })
        .then(() => Plotly.Plots.resize(plot));
    }
  }

  function show() {
    methods = ticked("method");
    targets = ticked("target");
    showRule();
    document.querySelectorAll("[data-filter=grid] table").forEach(filterGrid);
    document.querySelectorAll("[data-filter=runs] table").forEach(filterRuns);
    drawDots();
    drawCurves();
  }

  form.hidden = false;
  form.addEventListener("change", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  if (measure) measure.addEventListener("change", drawCurves);
  show();
  form.classList.add("ready");
})();
