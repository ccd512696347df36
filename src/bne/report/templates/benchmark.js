"use strict";
// What the methods and targets that are ticked tell: the sentence, the charts and the tables.
(() => {
  const data = charts.data("benchmark-data");
  const form = document.getElementById("filters");
  const rule = document.getElementById("rule");
  const measure = document.getElementById("measure");
  const holder = document.getElementById("run-curves");
  const { mean, signed } = charts;
  const AVERAGE = data.targets.length;
  const box = (id) => document.getElementById(id);
  const ticked = (name) => [...form.querySelectorAll(`input[name=${name}]:checked`)].map((one) => Number(one.value));
  let methods, targets;

  // Mean and 95 % interval of one figure per seed; Student's t.
  function summary(values) {
    if (!values.length) return null;
    const center = mean(values), count = values.length;
    if (count < 2) return { mean: center, count };
    const spread = Math.sqrt(values.reduce((all, value) => all + (value - center) ** 2, 0) / (count - 1) / count);
    return { mean: center, count, half: data.quantiles[count] * spread };
  }
  const cells = (method) => data.figures[rule.value][method];
  // Figures by seed on one target, or, over some, the means of the seeds that all of them have.
  function bySeed(method, over) {
    const own = over.map((target) => new Map(cells(method)[target].seeds));
    const common = own.length ? [...own[0].keys()].filter((seed) => own.every((one) => one.has(seed))) : [];
    return new Map(common.map((seed) => [seed, mean(own.map((one) => one.get(seed)))]));
  }
  const average = (method, over) => summary([...bySeed(method, over).values()]);
  // By how much one method is better than another, seed by seed.
  function gain(method, other, over) {
    const [ours, theirs] = [bySeed(method, over), bySeed(other, over)];
    return summary([...ours.keys()].filter((seed) => theirs.has(seed)).map((seed) => ours.get(seed) - theirs.get(seed)));
  }
  function printed(method, over) {
    const own = over.map((target) => cells(method)[target].paper);
    return own.length && own.every((value) => value !== null) ? mean(own) : null;
  }
  const ends = (one) => `95 % interval ${signed(one.mean - one.half)} to ${signed(one.mean + one.half)}`;
  const seeds = (count) => (count === 1 ? "1 seed" : `${count} seeds`);
  const name = (method) => data.methods[method].name;
  const sure = (one) => one.half !== undefined && Math.abs(one.mean) > one.half;

  function against(best, other) {
    const gap = gain(best, other, targets);
    if (!gap) return `It has no seed in common with ${name(other)}, so the two cannot be compared.`;
    const start = `That is ${signed(gap.mean)} points against ${name(other)}`;
    if (gap.count === 1) return `${start}, in the one seed that both have: how much of it is chance cannot be told.`;
    return `${start} (${ends(gap)}, ${seeds(gap.count)}): ` + (sure(gap) ? "more than chance." : "the two cannot be told apart.");
  }

  // Whether the gain of the paper's best method is ours too.
  function reproduced() {
    const base = data.baseline;
    const known = methods.filter((method) => method !== base && printed(method, targets) !== null && average(method, targets));
    if (base === null || !methods.includes(base) || printed(base, targets) === null || !known.length) return "";
    const best = known.reduce((a, b) => (printed(b, targets) > printed(a, targets) ? b : a));
    const theirs = printed(best, targets) - printed(base, targets), ours = gain(best, base, targets);
    if (!ours) return "";
    const start = `The paper's gain of ${name(best)} over ${name(base)}, ${signed(theirs)} points,`;
    if (ours.half === undefined) return `${start} stands beside ${signed(ours.mean)} of ours, of one seed: whether it is reproduced cannot be told.`;
    const inside = Math.abs(theirs - ours.mean) <= ours.half, told = `ours is ${signed(ours.mean)} (${ends(ours)})`;
    if (inside) return sure(ours) ? `${start} is reproduced: ${told}.` : `${start} can neither be confirmed nor ruled out: ${told}.`;
    if (sure(ours) && Math.sign(ours.mean) === Math.sign(theirs)) return `${start} is reproduced in part: ${told}.`;
    return `${start} is not reproduced: ${told}.`;
  }

  function answer() {
    const known = methods.filter((method) => average(method, targets));
    known.sort((a, b) => average(b, targets).mean - average(a, targets).mean);
    const all = methods.length === data.methods.length && targets.length === data.targets.length;
    const over = targets.length === 1 ? `on ${data.targets[targets[0]]}` : `on average over ${targets.length} targets`;
    const absent = methods.filter((method) => !known.includes(method)
      && data.targets.some((_, target) => cells(method)[target].planned));
    let text = "No method that is ticked has been run on every target ticked with the same seed: there is no average.";
    if (known.length) {
      const best = known[0], own = average(best, targets);
      const figure = `${own.mean.toFixed(1)} % ${over} that training never saw (${seeds(own.count)}).`;
      const rival = known.length > 1 ? gain(best, known[1], targets) : null;
      text = `${name(best)} ${rival ? (sure(rival) ? "is best: " : "is ahead: ") : "has "}${figure}`;
      const others = new Set([...known.slice(1, 2), ...known.slice(1).filter((method) => method === data.baseline)]);
      for (const other of others) text += " " + against(best, other);
      if (absent.length) text += ` There is no average yet of ${absent.map(name).join(", ")}.`;
    }
    const unbroken = (line) => line.replaceAll(" %", "\u00a0%");
    box("answer").textContent = unbroken((all ? "" : "Of what is ticked: ") + text);
    const paper = reproduced();
    box("reproduced").textContent = unbroken(paper);
    box("reproduced").hidden = !paper;
  }

  const axisNames = (columns) => columns.map((column, at) => ({ at, text: charts.short(data.targets[column] ?? "average") }));
  const columns = () => [...targets, ...(targets.length > 1 ? [AVERAGE] : [])];
  const over = (column) => (column === AVERAGE ? targets : [column]);
  const legend = (shown) => shown.map((method) => ({ name: charts.short(name(method)), color: data.methods[method].color, shape: data.methods[method].shape }));
  const between = (columns) => columns.slice(1).map((_, at) => ({ kind: "rule", at: "x", value: at + 0.5, dash: "dot", color: "var(--grid)" }));

  // Gains over the baseline target by target, ours beside the paper's; accuracies without one.
  function drawGains() {
    const base = methods.includes(data.baseline) && methods.length > 1 ? data.baseline : null;
    const shown = methods.filter((method) => method !== base && columns().some((column) => average(method, over(column))));
    const step = 0.7 / Math.max(shown.length, 1), marks = between(columns());
    let paper = false;
    if (base !== null) marks.push({ kind: "rule", at: "y", value: 0, name: name(base), dash: "solid" });
    shown.forEach((method, order) => {
      const { color, shape } = data.methods[method];
      columns().forEach((column, at) => {
        const x = at + (order - (shown.length - 1) / 2) * step;
        const own = base === null ? average(method, over(column)) : gain(method, base, over(column));
        const where = `${name(method)}, ${data.targets[column] ?? "average"}`;
        const unit = base === null ? "%" : `points over ${name(base)}`;
        const figure = (value) => (base === null ? value.toFixed(1) : signed(value));
        const theirs = printed(method, over(column)), basis = base === null ? 0 : printed(base, over(column));
        if (own) {
          if (own.half !== undefined) marks.push({ kind: "segment", x0: x, x1: x, y0: own.mean - own.half, y1: own.mean + own.half, color, width: shown.length > 6 ? 1.5 : 3 });
          const interval = own.half === undefined ? "" : `\n95 % interval ${figure(own.mean - own.half)} to ${figure(own.mean + own.half)}`;
          marks.push({ kind: "point", x, y: own.mean, color, shape, size: shown.length > 6 ? 4 : 6,
            text: `${where}: ${figure(own.mean)} ${unit}${interval}, ${seeds(own.count)}` });
        }
        if (theirs !== null && basis !== null) {
          paper = true;
          marks.push({ kind: "point", x: x + step * 0.3, y: theirs - basis, color, shape: "diamond", open: true, size: shown.length > 6 ? 4 : 6,
            text: `${where}: the paper's ${figure(theirs - basis)} ${unit}` });
        }
      });
    });
    const all = legend(shown);
    if (paper) all.push({ name: "the paper", color: "var(--muted)", shape: "diamond", open: true });
    // A single seed has no interval; those of two may be so wide that nothing else is seen.
    const values = marks.filter((mark) => mark.kind === "point").map((mark) => mark.y);
    const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)], room = Math.max(2, (high - low) * 0.6);
    const range = base === null || !values.length ? {} : { range: [low - room, high + room] };
    let cut = "";
    for (const mark of marks.filter((one) => one.kind === "segment" && range.range)) {
      if (mark.y0 < range.range[0] || mark.y1 > range.range[1]) cut = "; lines that reach the edge go on";
      mark.y0 = Math.max(mark.y0, range.range[0]);
      mark.y1 = Math.min(mark.y1, range.range[1]);
    }
    box("gains-caption").textContent = base === null ? "Accuracy on each target, mean and 95 % interval over seeds, %"
      : `Gain over ${name(base)} on each target, in points, with its 95 % interval over seeds${cut}`;
    charts.show(box("gains"), { marks, legend: all, x: { ticks: axisNames(columns()), range: [-0.5, columns().length - 0.5] },
      y: { title: base === null ? "accuracy, %" : "gain, points", ...range } });
  }

  // Every run, and the means as the table has them.
  function drawDots() {
    if (!box("dots")) return;
    const step = 0.7 / Math.max(methods.length, 1), marks = between(columns());
    methods.forEach((method, order) => {
      const { color, shape } = data.methods[method];
      columns().forEach((column, at) => {
        const x = at + (order - (methods.length - 1) / 2) * step, where = `${name(method)}, ${data.targets[column] ?? "average"}`;
        const whole = column !== AVERAGE || targets.length === data.targets.length;
        const own = average(method, over(column));
        if (!own) return;
        marks.push({ kind: "segment", x0: x - step * 0.35, x1: x + step * 0.35, y0: own.mean, y1: own.mean, color, width: 3 });
        marks.push({ kind: "point", x, y: own.mean, color, shape: "circle", size: 0.1,
          text: `${where}: ${whole ? cells(method)[column].text : own.mean.toFixed(1)} %` });
        for (const [seed, value] of bySeed(method, over(column))) {
          marks.push({ kind: "point", x: x + step * 0.15 * (seed % 3 - 1), y: value, color, shape, size: 4, opacity: 0.8, text: `${where}, seed ${seed}: ${value.toFixed(1)} %` });
        }
        const theirs = printed(method, over(column));
        if (theirs !== null) marks.push({ kind: "point", x, y: theirs, color, shape: "diamond", open: true, size: 5, text: `${where}: paper ${theirs.toFixed(1)} %` });
      });
    });
    charts.show(box("dots"), { marks, legend: legend(methods), x: { ticks: axisNames(columns()), range: [-0.5, columns().length - 0.5] }, y: { title: "accuracy, %" } });
  }

  // Where stages begin, of all lines together.
  function stageNames(kinds) {
    const names = new Map();
    for (const stage of kinds.flat()) names.set(stage.first, (names.get(stage.first) ?? new Set()).add(stage.name));
    return [...names].map(([first, own]) => ({ first, name: [...own].join(" or ") }));
  }

  function curveBox(target) {
    const there = box("curves-" + target);
    if (there) return there;
    const figure = document.createElement("figure");
    figure.className = "chart-box";
    const caption = document.createElement("figcaption");
    caption.textContent = "Target " + data.targets[target];
    const plot = document.createElement("div");
    plot.className = "chart";
    plot.id = "curves-" + target;
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", "Curves of training, target " + data.targets[target]);
    figure.append(caption, plot);
    holder.append(figure);
    return plot;
  }

  // The mean of a method's seeds, epoch by epoch, with a band from the lowest to the highest.
  function curve(method, runs) {
    const { color, dash, shape } = data.methods[method];
    const places = new Map();
    for (const run of runs) {
      run.x.forEach((x, i) => {
        const value = run[measure.value][i];
        if (value !== null) places.set(x, [...(places.get(x) ?? []), value]);
      });
    }
    const x = [...places.keys()].sort((a, b) => a - b), values = x.map((place) => places.get(place));
    const stages = data.stages[runs[0].stages], y = values.map(mean);
    const line = { kind: "line", x, y, color, dash, shape, label: charts.short(name(method)), texts: x.map((place, i) =>
      `${name(method)}, epoch ${place}, ${charts.stageAt(stages, place)}: ${Number(y[i].toPrecision(4))}`
      + (values[i].length > 1 ? ` (${seeds(values[i].length)}: ${Math.min(...values[i])} to ${Math.max(...values[i])})` : "")) };
    const band = { kind: "band", x, low: values.map((own) => Math.min(...own)), high: values.map((own) => Math.max(...own)), color };
    return runs.length > 1 ? [band, line] : [line];
  }

  function drawCurves() {
    if (!holder) return;
    for (const target of data.targets.keys()) {
      const runs = data.runs.filter((run) => run.target === target && methods.includes(run.method));
      const wanted = targets.includes(target) && runs.length > 0;
      if (box("curves-" + target)) box("curves-" + target).parentElement.hidden = !wanted;
      if (!wanted) continue;
      const shown = methods.filter((method) => runs.some((run) => run.method === method));
      const kinds = [...new Set(runs.map((run) => run.stages))].map((kind) => data.stages[kind]);
      const lines = shown.map((method) => curve(method, runs.filter((run) => run.method === method)));
      charts.show(curveBox(target), { marks: [...charts.stageMarks(stageNames(kinds)), ...lines.flat().sort((a, b) => a.kind.localeCompare(b.kind))],
        x: { title: "epoch", whole: true }, y: { title: measure.value === "loss" ? "loss" : "accuracy, %" } });
    }
  }

  const unwanted = (names, kept, text) => names.includes(text) && !kept.includes(names.indexOf(text));
  const methodNames = data.methods.map((one) => one.name);
  // One row per method, which may go on in rows without a name; one column per target. Averages
  // and gains are of all targets: without one of them they go.
  function filterGrid(table) {
    const [head, ...rows] = table.rows, some = targets.length < data.targets.length;
    const gone = [...head.cells].map((cell) => unwanted(data.targets, targets, cell.textContent)
      || (some && data.summaries.includes(cell.textContent)));
    let own = "";
    for (const row of [head, ...rows]) {
      if (row !== head) {
        own = row.cells[0].textContent || own;
        row.hidden = unwanted(methodNames, methods, own);
      }
      [...row.cells].forEach((cell, number) => { cell.hidden = gone[number]; });
    }
  }
  // One row per run, which begins with its method and target.
  function filterRuns(table) {
    for (const row of [...table.rows].slice(1)) {
      row.hidden = unwanted(methodNames, methods, row.cells[0].textContent) || unwanted(data.targets, targets, row.cells[1].textContent);
    }
  }

  function show() {
    methods = ticked("method");
    targets = ticked("target");
    for (const block of document.querySelectorAll("[data-rule]")) block.hidden = block.dataset.rule !== rule.value;
    for (const one of document.querySelectorAll("[data-expected]")) {
      one.hidden = targets.length < data.targets.length || unwanted(methodNames, methods, one.dataset.expected);
    }
    box("some").hidden = targets.length === data.targets.length;
    document.querySelectorAll("[data-filter=grid] table").forEach(filterGrid);
    document.querySelectorAll("[data-filter=runs] table").forEach(filterRuns);
    if (box("gains")) {
      answer();
      drawGains();
    }
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
