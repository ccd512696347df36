"use strict";
// Accuracies on each style, side by side.
(() => {
  const { styles, rows } = charts.data("demo-data");
  const marks = styles.slice(1).map((_, at) => ({ kind: "rule", at: "x", value: at + 0.5, dash: "dot", color: "var(--grid)" }));
  rows.forEach((row, order) => row.figures.forEach(([mean, text], at) => {
    if (mean !== null) {
      marks.push({ kind: "point", x: at + 0.15 * (order - (rows.length - 1) / 2), y: mean, color: row.color, shape: row.shape, size: 6,
        text: `${row.name}, ${styles[at]}: ${text} %` });
    }
  }));
  charts.show(document.getElementById("chart-styles"), { marks, y: { title: "accuracy, %" },
    x: { ticks: styles.map((text, at) => ({ at, text: charts.short(text) })), range: [-0.5, styles.length - 0.5] },
    legend: rows.map(({ name, color, shape }) => ({ name, color, shape })) });
  document.body.classList.add("ready");
})();
