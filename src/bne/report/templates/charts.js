"use strict";
// Charts drawn as SVG in the page's own colors. A chart is made of marks, plain objects in the
// units of its axes: line, band, point, bar, segment, rule, text. A mark with `text` tells it when
// it is pointed at, tapped, or reached by the arrow keys.
const charts = (() => {
  const SPACE = "http://www.w3.org/2000/svg";
  const SIZE = 12, LINE = 16, REACH = 18; // pixels of text, of a line of it, and around the pointer
  const narrow = window.matchMedia("(max-width: 50rem)");
  const pen = document.createElement("canvas").getContext("2d");
  const data = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "null");
  const short = (text) => ([...text].length > 24 ? [...text].slice(0, 23).join("") + "…" : text);
  const width = (text, size = SIZE) => {
    pen.font = `${size}px system-ui, sans-serif`;
    return pen.measureText(text).width;
  };
  const sum = (values) => values.reduce((all, value) => all + value, 0);
  const mean = (values) => sum(values) / values.length;
  const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(1);

  function make(tag, attributes, ...children) {
    const made = document.createElementNS(SPACE, tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined) made.setAttribute(name, typeof value === "number" ? Number(value.toFixed(2)) : value);
    }
    made.append(...children);
    return made;
  }

  const CORNERS = { square: [4, 45], diamond: [4, 0], "triangle-up": [3, -90], "triangle-down": [3, 90],
    pentagon: [5, -90], star: [10, -90] };
  // Corners of a shape around a point; none for a circle and a cross.
  function corners(shape, x, y, r) {
    const [count, turn] = CORNERS[shape];
    return Array.from({ length: count }, (_, k) => {
      const angle = (turn + 360 * k / count) * Math.PI / 180, far = shape === "star" && k % 2 ? r * 0.45 : r * 1.15;
      return [x + far * Math.cos(angle), y + far * Math.sin(angle)];
    });
  }
  function outline(shape, x, y, r) {
    const at = (...places) => places.map((one) => one.map((v) => v.toFixed(2)).join(" "));
    if (shape === "cross") {
      const [a, b, c, d] = at([x - r, y - r], [x + r, y + r], [x - r, y + r], [x + r, y - r]);
      return `M${a}L${b}M${c}L${d}`;
    }
    if (shape in CORNERS) return `M${at(...corners(shape, x, y, r)).join("L")}Z`;
    const [a, b] = at([x - r, y], [x + r, y]);
    return `M${a}A${r} ${r} 0 1 1 ${b}A${r} ${r} 0 1 1 ${a}Z`;
  }

  // Round numbers between two.
  function steps([low, high], most) {
    const raw = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((k) => k * power >= raw * 0.999) * power;
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) {
      found.push(Number((k * step).toPrecision(12)));
    }
    return found;
  }

  const DASHES = { dash: "6 4", dot: "2 3" };
  const finite = (value) => typeof value === "number" && Number.isFinite(value);
  // Everything that a mark covers, along one axis.
  function extent(marks, axis) {
    const own = axis === "x" ? ["x", "x0", "x1"] : ["y", "y0", "y1", "low", "high"];
    const found = marks.flatMap((mark) => own.flatMap((key) => mark[key] ?? [])).filter(finite);
    return found.length ? [Math.min(...found), Math.max(...found)] : [0, 1];
  }
  function ranged(axis, marks, name) {
    if (axis.range) return axis.range;
    const [low, high] = extent(marks, name), room = (high - low || 1) * 0.06;
    return [axis.zero && low >= 0 ? 0 : low - room, high + room];
  }
  function scale(axis, range, from, to) {
    const turn = axis.log ? Math.log10 : (value) => value;
    const [low, high] = range.map(turn);
    return (value) => from + (to - from) * (turn(value) - low) / (high - low || 1);
  }
  function ticked(axis, range, room) {
    if (axis.ticks) return axis.ticks.filter(({ at }) => at >= range[0] && at <= range[1]);
    if (axis.log) {
      const powers = steps(range.map(Math.log10), room).filter(Number.isInteger);
      return powers.map((power) => ({ at: 10 ** power, text: power > -4 && power < 4 ? String(10 ** power) : `1e${power}` }));
    }
    const found = steps(range, room).filter((at) => !axis.whole || Number.isInteger(at));
    return found.map((at) => ({ at, text: String(at) }));
  }

  // Lines of a legend, each no wider than the chart.
  function legendLines(legend, most) {
    const found = [];
    let left = Infinity;
    for (const one of legend ?? []) {
      const wide = 24 + width(one.name) + 14;
      if (left + wide > most) { found.push([]); left = 0; }
      found.at(-1).push({ ...one, left });
      left += wide;
    }
    return found;
  }

  // The drawing of a chart, and what can be pointed at in it.
  function build(spec, wide, tall) {
    const marks = spec.marks, hits = [], most = wide * 0.34;
    const named = marks.filter((mark) => mark.kind === "line" && mark.label);
    if (named.some((mark) => width(mark.label) + 26 > most)) { // no room beside the lines
      const legend = named.map(({ label: name, color, dash, shape }) => ({ name, color, dash, shape, line: true }));
      return build({ ...spec, legend: [...legend, ...(spec.legend ?? [])],
        marks: marks.map((mark) => (named.includes(mark) ? { ...mark, label: "" } : mark)) }, wide, tall);
    }
    const [rx, ry] = [ranged(spec.x, marks, "x"), ranged(spec.y, marks, "y")];
    const legend = legendLines(spec.legend, wide - 16);
    const ys = ticked(spec.y, spec.y.down ? [...ry].sort((a, b) => a - b) : ry, Math.max(2, Math.floor(tall / 60)));
    const beside = (mark) => mark.label || (mark.at === "y" && mark.name);
    const labels = marks.filter(beside).map((mark) => width(beside(mark)) + (mark.label ? 26 : 10));
    const left = (spec.y.title ? 20 : 4) + Math.max(0, ...ys.map((tick) => width(tick.text))) + 8;
    const right = Math.min(most, Math.max(14, spec.right ?? 0, ...labels));
    const xs = ticked(spec.x, rx, Math.max(2, Math.floor((wide - left - right) / 70)));
    const each = (wide - left - right) / Math.max(1, xs.length);
    const longest = Math.max(0, ...xs.map((tick) => width(tick.text)));
    const slant = spec.x.ticks && longest > each - 4;
    const under = slant ? Math.min(90, 8 + longest * 0.64) : LINE;
    const bottom = 6 + under + (spec.x.title ? LINE + 2 : 0) + legend.length * (LINE + 4) + (legend.length ? 6 : 0);
    const top = spec.top ?? 10, low = tall - bottom;
    const px = scale(spec.x, rx, left, wide - right);
    const py = spec.y.down ? scale(spec.y, ry, top, low) : scale(spec.y, ry, low, top);
    const svg = make("svg", { viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall, "font-family": "system-ui, sans-serif",
      "font-size": SIZE, fill: "var(--text)" });
    const put = (...children) => svg.append(...children);
    const write = (text, x, y, extra = {}) => make("text", { x, y, ...extra }, text);

    for (const tick of ys) {
      const y = py(tick.at);
      if (spec.y.grid !== false) put(make("line", { x1: left, x2: wide - right, y1: y, y2: y, stroke: "var(--grid)" }));
      put(write(tick.text, left - 6, y + 4, { "text-anchor": "end", fill: "var(--muted)" }));
    }
    for (const tick of xs) {
      const x = px(tick.at);
      if (spec.x.grid) put(make("line", { x1: x, x2: x, y1: top, y2: low, stroke: "var(--grid)" }));
      put(slant
        ? write(tick.text, x + 4, low + 14, { "text-anchor": "end", fill: "var(--muted)", transform: `rotate(-40 ${(x + 4).toFixed(1)} ${(low + 14).toFixed(1)})` })
        : write(tick.text, x, low + 16, { "text-anchor": "middle", fill: "var(--muted)" }));
    }
    put(make("line", { x1: left, x2: wide - right, y1: low, y2: low, stroke: "var(--line)" }));
    const half = width(spec.x.title ?? "") / 2 + 4;
    if (spec.x.title) put(write(spec.x.title, Math.min((left + wide - right) / 2, wide - half), low + under + LINE + 2, { "text-anchor": "middle" }));
    if (spec.y.title) {
      const y = (top + low) / 2;
      put(write(spec.y.title, 14, y, { "text-anchor": "middle", transform: `rotate(-90 14 ${y.toFixed(1)})` }));
    }

    const ends = [], names = []; // of lines, and of points: none covers another
    const pointed = (mark, x, y, text, box) => hits.push({ x, y, text, box, color: mark.color, name: mark.name });
    const draw = {
      band(mark) {
        const along = mark.x.map((x, i) => [px(x), py(mark.high[i])]);
        const back = mark.x.map((x, i) => [px(x), py(mark.low[i])]).reverse();
        put(make("polygon", { points: [...along, ...back].map((p) => p.map((v) => v.toFixed(2)).join(",")).join(" "),
          fill: mark.color, opacity: 0.18, class: "band" }));
      },
      line(mark) {
        let d = "", open = false;
        mark.x.forEach((x, i) => {
          if (!finite(mark.y[i])) { open = false; return; }
          d += `${open ? "L" : "M"}${px(x).toFixed(2)} ${py(mark.y[i]).toFixed(2)}`;
          open = true;
          if (mark.texts) pointed(mark, px(x), py(mark.y[i]), mark.texts[i]);
        });
        put(make("path", { d, fill: "none", stroke: mark.color, "stroke-width": mark.width ?? 2, class: "line",
          "stroke-dasharray": DASHES[mark.dash], "stroke-linejoin": "round" }));
        const last = mark.y.findLastIndex(finite);
        if (last < 0) return;
        const [x, y] = [px(mark.x[last]), py(mark.y[last])];
        if (mark.shape) put(make("path", { d: outline(mark.shape, x, y, 4), fill: mark.color, stroke: "var(--edge)", "stroke-width": 0.7 }));
        if (mark.label) ends.push({ y, text: mark.label, color: mark.color, shape: mark.shape });
      },
      point(mark) {
        const [x, y, r] = [px(mark.x), py(mark.y), mark.size ?? 5];
        const bare = mark.open || mark.shape === "cross";
        put(make("path", { d: outline(mark.shape, x, y, r), fill: bare ? "none" : mark.color, class: "point",
          stroke: bare ? mark.color : "var(--edge)", "stroke-width": bare ? 2 : 0.7, opacity: mark.opacity }));
        if (mark.text) pointed(mark, x, y, mark.text);
        if (mark.label) {
          const one = { x: x + r + 5, y: y + 4, end: x + r + 5 + width(mark.label) };
          while (names.some((other) => Math.abs(other.y - one.y) < 14 && other.x < one.end && one.x < other.end)) one.y += 14;
          names.push(one);
          put(write(mark.label, one.x, one.y));
        }
      },
      bar(mark) {
        const [x, y] = [Math.min(px(mark.x0), px(mark.x1)), Math.min(py(mark.y0), py(mark.y1))];
        const w = Math.abs(px(mark.x1) - px(mark.x0)), h = Math.abs(py(mark.y1) - py(mark.y0));
        put(make("rect", { x, y, width: Math.max(w, 0.5), height: h, fill: mark.fill ?? mark.color, opacity: mark.opacity, class: "bar-mark" }));
        if (mark.inside) put(write(mark.inside, x + w / 2, y + h / 2 + 4, { "text-anchor": "middle", fill: mark.ink }));
        if (mark.text) pointed(mark, x + w / 2, y + h / 2, mark.text, [x, y, x + w, y + h]);
      },
      image(mark) {
        const [x, y] = [px(mark.x0), py(mark.y0)];
        put(make("image", { x, y, width: px(mark.x1) - x, height: py(mark.y1) - y, href: mark.href,
          preserveAspectRatio: "none", style: "image-rendering:pixelated" }));
      },
      segment(mark) {
        put(make("line", { x1: px(mark.x0), x2: px(mark.x1), y1: py(mark.y0), y2: py(mark.y1), class: "segment",
          stroke: mark.color, "stroke-width": mark.width ?? 2, "stroke-dasharray": DASHES[mark.dash], "stroke-linecap": "round" }));
      },
      rule(mark) {
        const [x, y] = [mark.at === "x" ? px(mark.value) : null, mark.at === "y" ? py(mark.value) : null];
        put(make("line", { x1: x ?? left, x2: x ?? wide - right, y1: y ?? top, y2: y ?? low, class: "rule",
          stroke: mark.color ?? "var(--muted)", "stroke-dasharray": DASHES[mark.dash ?? "dash"] }));
        if (!mark.name) return;
        if (x === null) ends.push({ y, text: mark.name });
        else put(write(mark.name, x + 3, mark.low ? low - 5 : top + 9, { fill: "var(--muted)", "font-size": 11,
            ...(mark.along && { transform: `rotate(-90 ${(x + 3).toFixed(1)} ${low - 5}) translate(0 8)`, y: low - 5 }) }));
      },
    };
    for (const mark of marks) draw[mark.kind](mark);
    // Names of lines at their ends, pushed apart.
    ends.sort((a, b) => a.y - b.y);
    ends.forEach((end, k) => { if (k) end.y = Math.max(end.y, ends[k - 1].y + 14); });
    const over = ends.length ? Math.max(0, ends.at(-1).y - (low - 2)) : 0;
    for (const end of ends) {
      const x = wide - right + 8, y = end.y - over;
      if (end.shape) put(make("path", { d: outline(end.shape, x + 4, y, 4), fill: end.color, stroke: "var(--edge)", "stroke-width": 0.7 }));
      put(write(end.text, x + (end.shape ? 14 : -2), y + 4, { class: "end" }));
    }
    legend.forEach((line, row) => {
      const y = tall - (legend.length - row - 1) * (LINE + 4) - 8;
      for (const one of line) {
        const x = one.left + 12;
        if (one.dash || one.line) put(make("line", { x1: x, x2: x + 20, y1: y - 4, y2: y - 4, stroke: one.color, "stroke-width": 2, "stroke-dasharray": DASHES[one.dash] }));
        const bare = one.open || one.shape === "cross";
        if (one.shape) put(make("path", { d: outline(one.shape, x + 10, y - 4, 5), fill: bare ? "none" : one.color, stroke: bare ? one.color : "var(--edge)", "stroke-width": bare ? 2 : 0.7 }));
        put(write(one.name, x + 26, y));
      }
    });
    return { svg, hits, px, py };
  }

  // One box for all charts tells what is pointed at, in the color of that mark.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);
  function tell(box, hit) {
    tip.hidden = !hit;
    if (!hit) return;
    tip.textContent = hit.text;
    tip.style.borderColor = hit.color ?? "var(--muted)";
    const place = box.getBoundingClientRect();
    const left = place.left + hit.x + 14, most = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(8, Math.min(left, most)) + window.scrollX + "px";
    tip.style.top = place.top + hit.y - tip.offsetHeight - 10 + window.scrollY + "px";
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tell(null, null); });

  function found(hits, x, y) {
    const inside = hits.find(({ box }) => box && x >= box[0] && x <= box[2] && y >= box[1] && y <= box[3]);
    let best = inside, near = inside ? 0 : REACH;
    for (const hit of inside ? [] : hits) {
      const far = Math.hypot(hit.x - x, hit.y - y);
      if (!hit.box && far < near) [best, near] = [hit, far];
    }
    return best;
  }

  const shown = new Map(); // what draws each box again
  // Draws a chart into a box now, and again whenever its width changes.
  function show(box, spec) {
    const first = !shown.has(box);
    shown.set(box, { spec, drawn: null, at: -1 });
    draw(box);
    if (!first) return;
    box.tabIndex = 0;
    const state = () => shown.get(box);
    const point = (event) => {
      const place = box.getBoundingClientRect();
      tell(box, found(state().drawn.hits, event.clientX - place.left - box.clientLeft, event.clientY - place.top - box.clientTop));
    };
    box.addEventListener("pointermove", point);
    box.addEventListener("pointerdown", point);
    box.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") tell(box, null); });
    box.addEventListener("blur", () => tell(box, null));
    box.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const { hits } = state().drawn;
      if (!step || !hits.length) return;
      event.preventDefault();
      state().at = (Math.max(state().at, step > 0 ? -1 : 0) + step + hits.length) % hits.length;
      tell(box, hits[state().at]);
    });
    saving(box, () => build(state().spec, box.clientWidth, state().spec.height ?? box.clientHeight).svg);
    new ResizeObserver(() => draw(box)).observe(box);
  }
  function draw(box) {
    const state = shown.get(box), wide = box.clientWidth;
    if (!wide || state.drawn?.wide === wide) return;
    if (state.spec.height) box.style.height = state.spec.height + 2 + "px";
    state.drawn = { ...build(state.spec, wide, state.spec.height ?? box.clientHeight), wide };
    box.replaceChildren(state.drawn.svg);
  }

  const LIGHT = document.styleSheets[0].cssRules[0].style;
  // As a file of its own: the light page's colors, since no style sheet goes with it.
  function text(svg) {
    svg.setAttribute("xmlns", SPACE);
    return new XMLSerializer().serializeToString(svg)
      .replace(/var\((--\w+)\)/g, (_, name) => LIGHT.getPropertyValue(name).trim());
  }
  function save(name, svg) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text(svg)], { type: "image/svg+xml" }));
    link.download = name + ".svg";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  // The browser's own printing makes the PDF: vectors, and letters of any alphabet.
  function print(svg) {
    const [, , wide, tall] = svg.getAttribute("viewBox").split(" ");
    const sheet = document.createElement("div");
    sheet.id = "sheet";
    const page = document.createElement("style");
    page.textContent = `@page { size: ${wide}px ${tall}px; margin: 0 }`;
    sheet.append(page, new DOMParser().parseFromString(text(svg), "image/svg+xml").documentElement);
    document.body.append(sheet);
    document.body.classList.add("alone");
    window.addEventListener("afterprint", () => {
      sheet.remove();
      document.body.classList.remove("alone");
    }, { once: true });
    window.print();
  }
  function saving(box, svg) {
    const holder = document.createElement("div");
    holder.className = "save";
    for (const [name, act] of [["SVG", () => save(box.id, svg())], ["PDF", () => print(svg())]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.title = `Save this chart as ${name}` + (name === "PDF" ? ", by the browser's printing" : "");
      button.addEventListener("click", act);
      holder.append(button);
    }
    box.after(holder);
  }

  // Cividis, which grey and color-blind eyes read in the same order; share from 0 to 1.
  const STOPS = [[0, 32, 77], [40, 56, 108], [74, 80, 107], [101, 105, 112], [124, 123, 120], [151, 143, 118],
    [183, 164, 103], [221, 192, 83], [255, 234, 70]];
  function heat(share) {
    const at = Math.max(0, Math.min(1, share)) * (STOPS.length - 1), low = Math.min(Math.floor(at), STOPS.length - 2);
    return STOPS[low].map((value, c) => Math.round(value + (at - low) * (STOPS[low + 1][c] - value)));
  }

  // Where stages begin, with their names.
  const stageMarks = (stages) => stages.map((stage) => ({ kind: "rule", at: "x", value: stage.first - 0.5, dash: "dot",
    name: stage.name, along: true }));
  const stageAt = (stages, place) => stages.find((one) => one.first <= place && place <= one.last).name;

  return { narrow, data, short, width, mean, sum, signed, outline, corners, build, show, saving, tell, heat, stageMarks, stageAt };
})();
