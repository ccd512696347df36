"use strict";
(() => {
  const data = charts.data("map-data");
  const plot = document.getElementById("plot");
  const select = document.getElementById("layer");
  const { narrow, plain, config } = charts;
  const digits = (value) => Number(value.toPrecision(3)).toString();
  let chosen = data.chosen;
  let shown = data.maps[0];

  const rowsOf = data.domains.map((_, d) =>
    data.points.flatMap((point, i) => (point.domain === d ? [i] : [])));

  function lines() {
    const x = [], y = [], tx = [], ty = [], text = [];
    data.branches.forEach((_, k) => {
      x.push(shown.x[chosen], shown.dx[k], null);
      y.push(shown.y[chosen], shown.dy[k], null);
      tx.push((shown.x[chosen] + shown.dx[k]) / 2);
      ty.push((shown.y[chosen] + shown.dy[k]) / 2);
      text.push("<b>" + digits(shown.distances[chosen][k]) + "</b>");
    });
    return { x, y, tx, ty, text };
  }

  function traces() {
    const to = lines();
    const images = data.domains.map((domain, d) => ({
      type: "scatter", mode: "markers", name: plain(domain.name) + (domain.seen ? "" : " (unseen)"),
      x: rowsOf[d].map((i) => shown.x[i]), y: rowsOf[d].map((i) => shown.y[i]),
      customdata: rowsOf[d], hoverinfo: "none",
      marker: { color: domain.colour, symbol: domain.symbol, size: 7, opacity: 0.7 },
    }));
    return [
      ...images,
      { type: "scatter", mode: "lines", x: to.x, y: to.y, hoverinfo: "skip", name: "distances",
        showlegend: false, line: { color: "#333", width: 1.5 } },
      { type: "scatter", mode: "markers+text", x: shown.dx, y: shown.dy, hoverinfo: "skip",
        name: "known domains", text: data.branches.map((b) => "<b>" + plain(b.name) + "</b>"),
        textposition: "top center", textfont: { size: 14, color: "#111" },
        marker: { symbol: "star", size: 20, color: data.branches.map((b) => b.colour),
          line: { color: "#111", width: 1.5 } } },
      { type: "scatter", mode: "markers", x: [shown.x[chosen]], y: [shown.y[chosen]],
        hoverinfo: "skip", showlegend: false,
        marker: { symbol: "circle-open", size: 16, color: "#111", line: { width: 2.5 } } },
      { type: "scatter", mode: "text", x: to.tx, y: to.ty, text: to.text, hoverinfo: "skip",
        showlegend: false, textfont: { size: 12, color: "#111" } },
    ];
  }

  function layout() {
    const axis = (text) => charts.axis({ showticklabels: false, title: { text } });
    return charts.layout({
      hoverdistance: 12, margin: { l: 30, r: 10, t: 10, b: 30 },
      xaxis: axis("t-SNE 1"), yaxis: axis("t-SNE 2"),
      legend: { orientation: "h", y: narrow.matches ? -0.18 : -0.1, maxheight: 0.25 },
    });
  }

  function moveLines() {
    const to = lines();
    const first = data.domains.length;
    Plotly.restyle(plot,
      { x: [to.x, [shown.x[chosen]], to.tx], y: [to.y, [shown.y[chosen]], to.ty],
        text: [null, null, to.text] },
      [first, first + 2, first + 3]);
  }

  function describe() {
    const point = data.points[chosen];
    const image = document.getElementById("hover-image");
    image.src = data.thumbnails[chosen];
    image.alt = point.name;
    document.getElementById("hover-name").textContent = point.name;
    const verdict = document.getElementById("hover-verdict");
    const right = point.truth === point.answer;
    verdict.textContent = right ? point.truth + ", seen as such"
      : point.truth + ", seen as " + point.answer;
    verdict.className = right ? "right" : "wrong";
    const bars = document.getElementById("hover-weights");
    const heaviest = data.branches.map((_, k) => k)
      .sort((a, b) => point.weights[b] - point.weights[a]).slice(0, data.bars).sort((a, b) => a - b);
    bars.replaceChildren(...heaviest.map((k) => {
      const branch = data.branches[k];
      const row = document.createElement("div");
      const distance = digits(shown.distances[chosen][k]);
      row.textContent = branch.name + ": weight " + Math.round(100 * point.weights[k])
        + " %, distance " + distance;
      const bar = document.createElement("span");
      bar.className = "bar";
      bar.style.width = 100 * point.weights[k] + "%";
      bar.style.background = branch.colour;
      row.append(bar);
      return row;
    }));
  }

  function choose(event) {
    const at = event.points.find((point) => point.customdata !== undefined);
    if (at === undefined || at.customdata === chosen) return;
    chosen = at.customdata;
    describe();
    moveLines();
  }

  data.maps.forEach((map, number) => select.add(new Option(map.name, number)));
  select.addEventListener("change", () => {
    shown = data.maps[Number(select.value)];
    describe();
    Plotly.react(plot, traces(), layout(), config);
  });
  describe();
  plot.replaceChildren();
  Plotly.newPlot(plot, traces(), layout(), config).then(() => {
    plot.on("plotly_hover", choose);
    plot.on("plotly_click", choose);
    document.getElementById("stage").classList.add("ready");
  });
})();
