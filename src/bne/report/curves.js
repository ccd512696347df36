"use strict";
(() => {
  const data = JSON.parse(document.getElementById("curve-data").textContent);
  const titles = { loss: "loss", accuracy: "accuracy, %" };
  Promise.all(Object.entries(titles).map(([name, title]) => {
    const lines = data[name].map((line) => (
      { ...line, x: line.y.map((_, i) => i + 1), stages: data.stages }));
    const plot = document.getElementById("curve-" + name);
    return charts.curves(plot, lines, data.stages, title, {
      showlegend: lines.length > 1, legend: { orientation: "h", y: -0.25, maxheight: 0.25 },
    });
  })).then(() => document.querySelector(".charts").classList.add("ready"));
})();
