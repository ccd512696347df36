"use strict";
// Windows of watched images, one after another.
(() => {
  const { plain, axis } = charts;
  const { windows, alarm, looks } = charts.data("monitor-data");
  const timed = windows.every((one) => one.begin);
  const x = windows.map((one) => (timed ? one.begin : one.first + one.images));
  const names = [...new Set(windows.map((one) => one.nearest))];
  const hover = (one) => `images ${one.first + 1}–${one.first + one.images}` +
    (one.begin ? `, ${one.begin}` : "") + `<br>nearest: ${plain(one.nearest)}` +
    `<br>p-value ${one.p_value.toPrecision(2)}${one.alarm ? ", <b>alarm</b>" : ""}`;
  const draw = (id, value, title, extra) => {
    const line = { type: "scatter", mode: "lines", x, y: windows.map(value), hoverinfo: "skip",
      line: { color: "#999", width: 1 }, showlegend: false };
    const dots = names.map((name) => {
      const own = windows.map((one, at) => [one, at]).filter(([one]) => one.nearest === name);
      return { type: "scatter", mode: "markers", name: plain(name), x: own.map(([, at]) => x[at]),
        y: own.map(([one]) => value(one)), text: own.map(([one]) => hover(one)),
        hovertemplate: "%{text}<extra></extra>",
        marker: { size: own.map(([one]) => (one.alarm ? 11 : 7)), color: looks[name].colour,
          symbol: own.map(([one]) => (one.alarm ? "x" : looks[name].symbol)) } };
    });
    const { yaxis, ...rest } = extra;
    return Plotly.newPlot(document.getElementById(id), [line, ...dots], charts.layout({
      xaxis: axis({ title: { text: timed ? "time" : "images", standoff: 6 } }),
      yaxis: axis({ title: { text: title, standoff: 6 }, automargin: true, ...yaxis }),
      legend: { orientation: "h", y: -0.25 }, showlegend: true, ...rest }), charts.config);
  };
  const limit = { type: "line", xref: "paper", x0: 0, x1: 1, y0: alarm, y1: alarm,
    line: { color: "#b03a00", width: 1, dash: "dash" } };
  Promise.all([
    draw("chart-far", (one) => one.farther, "times as far", { yaxis: { rangemode: "tozero" } }),
    draw("chart-chance", (one) => Math.max(one.p_value, 1e-12), "p-value",
      { yaxis: { type: "log", range: [-12.3, 0.3], exponentformat: "power" }, shapes: [limit] }),
  ]).then(() => document.body.classList.add("ready"));
})();
