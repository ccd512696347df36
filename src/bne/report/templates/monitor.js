"use strict";
// Windows of watched images, one after another.
(() => {
  const { windows, alarm, looks } = charts.data("monitor-data");
  const timed = windows.every((one) => one.begin);
  const x = windows.map((one) => (timed ? Date.parse(one.begin.replace(" ", "T")) : one.first + one.images));
  const names = [...new Set(windows.map((one) => one.nearest))];
  const told = (one) => `images ${one.first + 1}–${one.first + one.images}` + (one.begin ? `, ${one.begin}` : "")
    + `\nnearest: ${one.nearest}\np-value ${one.p_value.toPrecision(2)}${one.alarm ? ", alarm" : ""}`;
  const every = Math.ceil(windows.length / (charts.narrow.matches ? 3 : 5));
  const times = windows.flatMap((one, at) => (at % every ? [] : [{ at: x[at], text: one.begin?.slice(5, 16) }]));
  const draw = (id, value, axis, extra) => {
    const dots = windows.map((one, at) => ({ kind: "point", x: x[at], y: value(one), text: told(one), color: looks[one.nearest].colour,
      shape: one.alarm ? "cross" : looks[one.nearest].symbol, size: one.alarm ? 6 : 4 }));
    const line = { kind: "line", x, y: windows.map(value), color: "var(--muted)", width: 1 };
    charts.show(document.getElementById(id), { marks: [...extra, line, ...dots.filter((one) => one.y !== null)],
      x: { title: timed ? "time" : "images", ...(timed && { ticks: times }) }, y: axis,
      legend: [...names.map((name) => ({ name: `nearest to ${charts.short(name)}`, color: looks[name].colour, shape: looks[name].symbol })),
        { name: "alarm", color: "var(--text)", shape: "cross" }] });
  };
  draw("chart-far", (one) => one.farther, { title: "times as far", zero: true }, []);
  draw("chart-chance", (one) => Math.max(one.p_value, 1e-12), { title: "p-value", log: true, range: [5e-13, 2] },
    [{ kind: "rule", at: "y", value: alarm, color: "var(--wrong)", name: "limit" }]);
  document.body.classList.add("ready");
})();
