"use strict";
// Settings with their standard errors, in the order of the table.
(() => {
  for (let number = 0; document.getElementById("settings-" + number); number += 1) {
    const dots = charts.data("tune-data-" + number);
    const marks = dots.flatMap(({ mean, error, marks: own }, y) => {
      const color = own.includes("chosen") ? "#0072B2" : "var(--muted)", name = [y + 1, ...own].join(", ");
      return [{ kind: "segment", x0: mean - error, x1: mean + error, y0: y, y1: y, color },
        { kind: "point", x: mean, y, color, shape: own.includes("chosen") ? "star" : own.includes("recipe") ? "diamond" : "circle",
          size: own.length ? 7 : 4, text: `${name}: ${mean.toFixed(1)} ± ${error.toFixed(1)} %` }];
    });
    charts.show(document.getElementById("settings-" + number), { marks, height: 70 + 18 * dots.length,
      x: { title: "accuracy, %", grid: true },
      y: { ticks: dots.map(({ marks: own }, at) => ({ at, text: [at + 1, ...own.slice(0, 1)].join(", ") })), down: true, grid: false, range: [-0.6, dots.length - 0.4] } });
  }
  document.body.classList.add("ready");
})();
