"use strict";
// How well each domain is classified, how training went, and what the network does with images.
(() => {
  const { short, mean, sum, show, heat } = charts;
  const blue = "#0072B2", orange = "#E69F00";
  const box = (id) => document.getElementById(id);
  const percent = (score) => 100 * score.correct / score.images;
  const named = (texts, extra) => ({ ticks: texts.map((text, at) => ({ at, text: short(text) })), range: [-0.5, texts.length - 0.5], ...extra });

  const lead = charts.data("lead-data");
  if (lead) {
    const marks = lead.chance === null ? [] : [{ kind: "rule", at: "x", value: lead.chance, name: "chance", low: true }];
    lead.domains.forEach((one, y) => {
      marks.push({ kind: "segment", x0: one.low, x1: one.high, y0: y, y1: y, color: one.look.colour, width: 3 });
      marks.push({ kind: "point", x: one.accuracy, y, color: one.look.colour, shape: one.look.symbol, size: 7,
        text: `${one.name}: ${one.accuracy.toFixed(1)} % of ${one.images} images\n95 % interval ${one.low.toFixed(1)} to ${one.high.toFixed(1)}` });
    });
    show(box("chart-lead"), { marks, height: 70 + 34 * lead.domains.length, x: { title: "accuracy, %, with its 95 % interval", range: [0, 101], grid: true },
      y: named(lead.domains.map((one) => one.name), { down: true, grid: false }) });
  }

  const curves = charts.data("curve-data");
  for (const [name, title] of curves ? [["loss", "loss"], ["accuracy", "accuracy, %"]] : []) {
    const marks = charts.stageMarks(curves.stages);
    for (const line of curves[name]) {
      const x = line.y.map((_, i) => i + 1);
      marks.push({ kind: "line", x, y: line.y, color: line.colour, dash: line.dash, shape: line.symbol, label: curves[name].length > 1 ? short(line.short) : "",
        texts: x.map((place, i) => `${line.name}\nepoch ${place}, ${charts.stageAt(curves.stages, place)}: ${line.y[i]}`) });
    }
    show(box("curve-" + name), { marks, x: { title: "epoch", whole: true, range: [0.4, curves.stages.at(-1).last + 0.6] }, y: { title } });
  }

  // Percents, each with the text that pointing at it shows.
  function matrix(id, rows, columns, values, told, top, titles, height) {
    const many = Math.max(rows.length, columns.length) > 12, marks = [];
    const wide = box(id).clientWidth;
    if (rows.length * columns.length > 1600) {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [columns.length, rows.length];
      const pen = canvas.getContext("2d");
      values.forEach((row, r) => row.forEach((value, c) => { pen.fillStyle = `rgb(${heat(value / top)})`; pen.fillRect(c, r, 1, 1); }));
      marks.push({ kind: "image", x0: -0.5, x1: columns.length - 0.5, y0: -0.5, y1: rows.length - 0.5, href: canvas.toDataURL() });
    } else {
      values.forEach((row, r) => row.forEach((value, c) => {
        const color = `rgb(${heat(value / top)})`, gap = many ? 0.5 : 0.48;
        marks.push({ kind: "bar", x0: c - gap, x1: c + gap, y0: r - gap, y1: r + gap, color, text: told(r, c),
          ...(!many && wide / columns.length > 30 && { inside: value.toFixed(0), ink: value > 0.55 * top ? "#000" : "#fff" }) });
      }));
    }
    const names = (texts) => named(texts.length <= 40 ? texts : [], { range: [-0.5, texts.length - 0.5], grid: false });
    show(box(id), { marks, x: { ...names(columns), title: titles[0] }, y: { ...names(rows), title: titles[1], down: true },
      ...(height ? { height } : rows.length > 12 && rows.length <= 40 && { height: 120 + 14 * rows.length }) });
  }

  function bars(id, layers, values, color, chance) {
    const marks = values.map((value, y) => ({ kind: "bar", x0: 0, x1: value, y0: y - 0.36, y1: y + 0.36, color, text: `${layers[y]}: ${value.toFixed(1)} %` }));
    if (chance) marks.push({ kind: "rule", at: "x", value: chance, name: "chance", low: true });
    show(box(id), { marks, height: 70 + 20 * layers.length, y: named(layers, { down: true, grid: false }),
      x: { title: "%", grid: true, zero: true, ...(chance !== undefined && { range: [0, 102] }) } });
  }

  const data = charts.data("chart-data");
  if (data) {
    if (data.similarity_share) {
      const rows = Object.keys(data.similarity_share), columns = Object.keys(data.similarity_share[rows[0]]);
      const values = rows.map((row) => columns.map((name) => 100 * data.similarity_share[row][name]));
      matrix("chart-similarity", rows, columns, values, (r, c) => `${rows[r]} to ${columns[c]}: ${values[r][c].toFixed(1)} %`,
        Math.max(100 / columns.length, ...values.flat()), ["known domain", "images of"], 110 + 40 * rows.length);
    }

    const answers = Object.keys(data.answers);
    const marks = data.domains.flatMap((domain) => answers.map((answer, y) => {
      const x = percent(data.answers[answer][domain.name]);
      return { kind: "point", x, y, color: domain.colour, shape: domain.symbol, text: `${answer}, images of ${domain.name}: ${x.toFixed(1)} %` };
    }));
    show(box("chart-answers"), { marks, height: 90 + 20 * Math.ceil(data.domains.length / 3) + 28 * answers.length,
      x: { title: "accuracy, %", grid: true }, y: named(answers, { down: true }),
      legend: data.domains.map((domain) => ({ name: short(domain.name), color: domain.colour, shape: domain.symbol })) });

    if (data.layers) {
      const layers = Object.keys(data.layers);
      bars("chart-share", layers, layers.map((layer) => 100 * data.layers[layer].share), blue);
      bars("chart-domains", layers, layers.map((layer) => mean(Object.values(data.layers[layer].domain_accuracy).map(percent))), orange,
        data.branches > 1 ? 100 / data.branches : 0);
    }

    Object.values(data.reliability).forEach((bins, number) => {
      const most = Math.max(...bins.map((bin) => bin.images));
      const own = bins.map((bin) => [100 * bin.confidence, 100 * bin.accuracy, bin.images]);
      show(box("calibration-" + number), { marks: [
        { kind: "segment", x0: 0, x1: 100, y0: 0, y1: 100, color: "var(--muted)", width: 1, dash: "dash" },
        ...own.map(([x, y]) => ({ kind: "bar", x0: x - 2, x1: x + 2, y0: 0, y1: y, color: blue, opacity: 0.35 })),
        ...own.map(([x, y, images]) => ({ kind: "point", x, y, color: blue, shape: "circle", size: 2 + 5 * Math.sqrt(images / most),
          text: `confidence ${x.toFixed(1)} %, accuracy ${y.toFixed(1)} %, images: ${images}` })),
      ], x: { title: "confidence, %", range: [0, 102] }, y: { title: "accuracy, %", range: [0, 102] } });
    });

    Object.values(data.confusion).forEach((counts, number) => {
      const sums = counts.map((row) => Math.max(1, sum(row)));
      const values = counts.map((row, r) => row.map((count) => 100 * count / sums[r]));
      matrix("confusion-" + number, data.classes, data.classes, values,
        (r, c) => `${data.classes[r]}, seen as ${data.classes[c]}: ${counts[r][c]} of ${sums[r]}`, 100, ["seen as", "true class"]);
    });
  }
  document.body.classList.add("ready");
})();
