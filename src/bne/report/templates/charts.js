"use strict";
// What all charts of a page share.
const charts = (() => {
  const narrow = window.matchMedia("(max-width: 50rem)");
  const config = { responsive: true, displaylogo: false, typesetMath: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  // Plotly reads a little HTML in its texts.
  const plain = (text) =>
    text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  const short = (text) => ([...text].length > 24 ? [...text].slice(0, 23).join("") + "…" : text);
  const data = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "null");

  const axis = (extra) => ({ zeroline: false, gridcolor: "#eee", fixedrange: narrow.matches, ...extra });

  function layout(extra) {
    return {
      autosize: true, hovermode: "closest", dragmode: narrow.matches ? false : "pan",
      margin: { l: 44, r: 10, t: 10, b: 40 }, plot_bgcolor: "#fff", paper_bgcolor: "#fff",
      font: { family: "system-ui, sans-serif", size: 13, color: "#1c1f24" }, ...extra,
    };
  }

  // A dotted line where each stage begins, its name along it: above, or below, where curves rarely are.
  function marks(stages, above) {
    return {
      shapes: stages.map((stage) => ({ type: "line", yref: "paper", y0: 0, y1: 1,
        x0: stage.first - 0.5, x1: stage.first - 0.5, line: { color: "#999", width: 1, dash: "dot" } })),
      annotations: stages.map((stage) => ({ text: plain(stage.name), showarrow: false,
        x: stage.first - 0.5, xanchor: "left", yref: "paper", y: above ? 1 : 0,
        yanchor: above ? "top" : "bottom", textangle: -90,
        font: { size: 11, color: "#5a6270" } })),
    };
  }

  const stageAt = (stages, place) =>
    stages.find((stage) => stage.first <= place && place <= stage.last).name;

  // lines: name, colour, dash, x (records, from 1), y and stages, each its own.
  function curves(plot, lines, stages, title, extra) {
    const traces = lines.map((line) => ({
      type: "scatter", mode: line.x.length > 60 ? "lines" : "lines+markers", name: plain(line.name),
      x: line.x, y: line.y, line: { color: line.colour, dash: line.dash, width: 1.8 },
      marker: { size: 4 }, customdata: line.x.map((place) => plain(stageAt(line.stages, place))),
      hovertemplate: plain(line.name) + "<br>epoch %{x}, %{customdata}: %{y}<extra></extra>",
    }));
    const last = lines.reduce((most, line) => Math.max(most, line.x.at(-1)), 0);
    return Plotly.react(plot, traces, layout({
      xaxis: axis({ title: { text: "epoch", standoff: 6 }, tickformat: "d", rangemode: "tozero",
        ...(last < 10 && { dtick: 1 }) }),
      yaxis: axis({ title: { text: title, standoff: 6 }, automargin: true }), ...marks(stages, title === "loss"), ...extra,
    }), config);
  }

  return { narrow, config, plain, short, data, axis, layout, curves };
})();
