"use strict";
// The curves of a run, and what its network does with images.
(() => {
  const { plain, short, axis } = charts;
  const blue = "#0072B2", orange = "#E69F00";
  const drawn = [];
  const draw = (id, traces, layout) => {
    const plot = document.getElementById(id);
    if (layout.height) plot.style.height = layout.height + "px";
    drawn.push(Plotly.newPlot(plot, traces, charts.layout(layout), charts.config));
  };
  const percent = (score) => 100 * score.correct / score.images;
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const names = (texts, extra) => axis({ tickvals: texts.map((_, at) => at),
    ticktext: texts.map((text) => plain(short(text))), automargin: true, showgrid: false, ...extra });
  const down = { autorange: "reversed" };

  const curves = charts.data("curve-data");
  for (const [name, title] of curves ? [["loss", "loss"], ["accuracy", "accuracy, %"]] : []) {
    const lines = curves[name].map((line) => (
      { ...line, x: line.y.map((_, i) => i + 1), stages: curves.stages }));
    drawn.push(charts.curves(document.getElementById("curve-" + name), lines, curves.stages, title, {
      showlegend: lines.length > 1, legend: { orientation: "h", y: -0.25, maxheight: 0.25 } }));
  }

  // Percents, each with the text that pointing at it shows.
  function matrix(id, rows, columns, values, hover, top, extra) {
    const named = Math.max(rows.length, columns.length) <= 40;
    const ticks = (texts, more) => names(named ? texts : [], more);
    draw(id, [{ type: "heatmap", z: values, zmin: 0, zmax: top, colorscale: "Cividis", showscale: false,
      xgap: 1, ygap: 1, text: hover, hovertemplate: "%{text}<extra></extra>",
      ...(columns.length <= 12 && { texttemplate: "%{z:.0f}" }) }],
    { xaxis: ticks(columns, { title: { text: extra.x, standoff: 6 }, tickangle: -35 }),
      yaxis: ticks(rows, { title: { text: extra.y, standoff: 6 }, ...down }), margin: { l: 44, r: 10, t: 10, b: 50 },
      ...(extra.height && { height: extra.height }) });
  }

  function bars(id, layers, values, colour, chance) {
    draw(id, [{ type: "bar", orientation: "h", x: values, y: layers.map((_, at) => at),
      marker: { color: colour }, text: layers.map(plain),
      textposition: "none", hovertemplate: "%{text}: %{x:.1f} %<extra></extra>" }],
    { height: 90 + 20 * layers.length, yaxis: names(layers, down),
      xaxis: axis({ title: { text: "%" }, ...(chance !== undefined && { range: [0, 102] }) }),
      shapes: chance ? [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: chance, x1: chance,
        line: { color: "#333", width: 1, dash: "dash" } }] : [] });
  }

  const data = charts.data("chart-data");
  if (data) {
    if (data.similarity_share) {
      const rows = Object.keys(data.similarity_share);
      const columns = Object.keys(data.similarity_share[rows[0]]);
      const values = rows.map((row) => columns.map((name) => 100 * data.similarity_share[row][name]));
      const hover = rows.map((row, r) => columns.map((name, c) =>
        `${plain(row)} to ${plain(name)}: ${values[r][c].toFixed(1)} %`));
      matrix("chart-similarity", rows, columns, values, hover,
        Math.max(100 / columns.length, ...values.flat()),
        { x: "known domain", y: "images of", height: 140 + 40 * rows.length });
    }

    const answers = Object.keys(data.answers);
    const below = 56 + (charts.narrow.matches ? 22 : 8) * data.domains.length;
    draw("chart-answers", data.domains.map((domain) => ({
      type: "scatter", mode: "markers", name: plain(short(domain.name)), y: answers.map((_, at) => at),
      x: answers.map((answer) => percent(data.answers[answer][domain.name])),
      text: answers.map((answer) => plain(answer + ", images of " + domain.name)),
      hovertemplate: "%{text}: %{x:.1f} %<extra></extra>",
      marker: { color: domain.colour, symbol: domain.symbol, size: 9,
        line: { color: "#333", width: 0.5 } } })),
    { height: below + 30 + 30 * answers.length,
      yaxis: names(answers, { ...down, showgrid: true }), xaxis: axis({ title: { text: "accuracy, %" } }),
      margin: { l: 44, r: 10, t: 10, b: below }, showlegend: true, legend: { orientation: "h", y: 0, yref: "container", yanchor: "bottom" } });

    if (data.layers) {
      const layers = Object.keys(data.layers);
      const own = layers.map((layer) => Object.values(data.layers[layer].domain_accuracy).map(percent));
      bars("chart-share", layers, layers.map((layer) => 100 * data.layers[layer].share), blue);
      bars("chart-domains", layers, own.map(mean), orange, data.branches > 1 ? 100 / data.branches : 0);
    }

    Object.values(data.reliability).forEach((bins, number) => {
      const x = bins.map((bin) => 100 * bin.confidence);
      const y = bins.map((bin) => 100 * bin.accuracy);
      const most = Math.max(...bins.map((bin) => bin.images));
      draw("calibration-" + number, [
        { type: "scatter", mode: "lines", x: [0, 100], y: [0, 100], hoverinfo: "skip",
          line: { color: "#888", width: 1, dash: "dash" } },
        { type: "bar", x, y, width: 4, hoverinfo: "skip", marker: { color: blue, opacity: 0.35 } },
        { type: "scatter", mode: "markers", x, y, customdata: bins.map((bin) => bin.images),
          hovertemplate: "confidence %{x:.1f} %, accuracy %{y:.1f} %, images: %{customdata}<extra></extra>",
          marker: { color: blue, size: bins.map((bin) => 4 + 10 * Math.sqrt(bin.images / most)) } },
      ], { showlegend: false, margin: { l: 44, r: 16, t: 10, b: 40 }, xaxis: axis({ title: { text: "confidence, %" }, range: [0, 102] }),
        yaxis: axis({ title: { text: "accuracy, %", standoff: 6 }, range: [0, 102] }) });
    });

    Object.values(data.confusion).forEach((counts, number) => {
      const sums = counts.map((row) => Math.max(1, row.reduce((sum, count) => sum + count, 0)));
      const values = counts.map((row, r) => row.map((count) => 100 * count / sums[r]));
      const hover = counts.map((row, r) => row.map((count, c) =>
        `${plain(data.classes[r])}, seen as ${plain(data.classes[c])}: ${count} of ${sums[r]}`));
      matrix("confusion-" + number, data.classes, data.classes, values, hover, 100,
        { x: "seen as", y: "true class" });
    });
  }
  Promise.all(drawn).then(() => document.body.classList.add("ready"));
})();
