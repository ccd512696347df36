"use strict";
// The map of images and known domains, on a canvas: tens of thousands of points stay smooth.
(async () => {
  const data = charts.data("map-data");
  const box = (id) => document.getElementById(id);
  const plot = box("plot"), canvas = box("canvas"), pen = canvas.getContext("2d");
  const controls = box("map-controls"), layer = box("layer"), coloring = box("coloring");
  const SIZE = 4, REACH = 12, GALLERY = 120, MANY = 4000; // pixels, images of a region shown, and points that take long
  const points = await unpack(), count = points.name.length;
  const PALETTE = data.palette, SHAPES = ["circle", "square", "triangle-up", "diamond", "triangle-down", "pentagon"];
  const digits = (value) => Number(value.toPrecision(3)).toString();
  const right = (i) => points.truth[i] === points.answer[i];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let shown = data.maps[0], view, hovered = null, pinned = null, region = null, lasso = null, kept = [], current = data.chosen;

  // ---- what `bne.report.charts` packed
  async function inflated(text) {
    const packed = new Blob([Uint8Array.from(atob(text), (one) => one.charCodeAt(0))]);
    return new Response(packed.stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  }
  async function numbers({ low, step, bytes }, rows) {
    const own = new Uint8Array(await inflated(bytes)), all = own.length / 2;
    return Array.from({ length: all / rows }, (_, c) =>
      Float64Array.from({ length: rows }, (_, i) => low + step * (own[c * rows + i] + 256 * own[all + c * rows + i])));
  }
  async function unpack() {
    const name = new TextDecoder().decode(await inflated(data.points.name)).split("\0"), found = { name };
    const rows = (own) => name.map((_, i) => own.map((column) => column[i]));
    for (const key of ["domain", "truth", "answer", "confidence"]) [found[key]] = await numbers(data.points[key], name.length);
    found.weights = rows(await numbers(data.points.weights, name.length));
    for (const map of data.maps) {
      [map.x, map.y] = await numbers(map.places, name.length);
      [map.dx, map.dy] = [0, 1].map((axis) => map.domains.map((place) => place[axis]));
      map.distances = rows((await numbers(map.logs, name.length)).map((own) => own.map(Math.exp)));
      map.neighbors = rows(await numbers(map.neighbors, name.length));
    }
    return found;
  }

  // ---- what an image looks like under each coloring
  const KINDS = {
    domain: { names: data.domains.map((one) => one.name + (one.seen ? "" : " (unseen)")), of: (i) => points.domain[i],
      look: (k) => [data.domains[k].colour, data.domains[k].symbol] },
    class: { names: data.classes, of: (i) => points.truth[i], look: (k) => [PALETTE[k % PALETTE.length], SHAPES[k % SHAPES.length]] },
    answer: { names: data.classes, of: (i) => points.answer[i], look: (k) => [PALETTE[k % PALETTE.length], SHAPES[k % SHAPES.length]] },
    right: { names: ["right", "wrong"], of: (i) => (right(i) ? 0 : 1), look: (k) => [[PALETTE[0], PALETTE[5]][k], ["circle", "cross"][k]] },
  };
  const kind = () => KINDS[coloring.value];
  const stamps = new Map();
  // A mark drawn once, then copied.
  function stamp(color, shape, ratio) {
    const key = color + shape + ratio + style("--edge");
    if (!stamps.has(key)) {
      const one = document.createElement("canvas"), side = Math.ceil((2 * SIZE + 6) * ratio);
      one.width = one.height = side;
      const own = one.getContext("2d");
      own.scale(ratio, ratio);
      mark(own, color, shape, side / ratio / 2, side / ratio / 2, SIZE);
      stamps.set(key, one);
    }
    return stamps.get(key);
  }
  function mark(own, color, shape, x, y, r) {
    const path = new Path2D(charts.outline(shape, x, y, r));
    own.lineWidth = shape === "cross" ? 2 : 0.6;
    own.fillStyle = color;
    own.strokeStyle = shape === "cross" ? color : style("--edge");
    if (shape !== "cross") own.fill(path);
    own.stroke(path);
  }

  // ---- places on the screen
  const wide = () => canvas.clientWidth, tall = () => canvas.clientHeight;
  function fit() {
    const x = [...shown.x, ...shown.dx], y = [...shown.y, ...shown.dy];
    const span = (own) => { let [a, b] = [Infinity, -Infinity]; for (const v of own) { a = Math.min(a, v); b = Math.max(b, v); } return [a, b]; };
    const [[left, end], [low, high]] = [span(x), span(y)];
    const scale = Math.min((wide() - 60) / (end - left || 1), (tall() - 70) / (high - low || 1));
    view = { scale, x: wide() / 2 - scale * (left + end) / 2, y: tall() / 2 + scale * (low + high) / 2 };
  }
  const sx = (x) => view.x + view.scale * x, sy = (y) => view.y - view.scale * y;
  const place = (i) => [sx(shown.x[i]), sy(shown.y[i])];
  function zoom(times, x = wide() / 2, y = tall() / 2) {
    move({ scale: view.scale * times, x: x - times * (x - view.x), y: y - times * (y - view.y) });
  }
  // While many points move, their picture is moved; they are drawn anew at rest.
  function move(to) {
    view = to;
    moving = kept.length > MANY;
    clearTimeout(rest);
    rest = setTimeout(() => { moving = false; redraw(); }, 120);
    redraw();
  }
  function nearest(x, y, among = kept, reach = REACH) {
    let best = null, near = reach * reach;
    for (const i of among) {
      const far = (sx(shown.x[i]) - x) ** 2 + (sy(shown.y[i]) - y) ** 2;
      if (far <= near) [best, near] = [i, far];
    }
    return best;
  }

  // ---- drawing
  const back = document.createElement("canvas");
  let asked = false, painted = {}, version = 0, moving = false, rest;
  function redraw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  }
  function draw() {
    const ratio = window.devicePixelRatio || 1, [w, h] = [wide(), tall()];
    if (!w) return;
    if (canvas.width !== Math.round(w * ratio)) { canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio); }
    const key = [version, style("--paper"), w, ratio].join();
    const there = painted.key === key && painted.scale === view.scale && painted.x === view.x && painted.y === view.y;
    if (painted.key !== key || !(there || moving)) paint(key, w, h, ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h);
    const times = view.scale / painted.scale;
    pen.drawImage(back, view.x - times * painted.x, view.y - times * painted.y, times * w, times * h);
    const [x, y] = place(current), text = style("--text"), paper = style("--paper");
    pen.strokeStyle = text;
    pen.lineWidth = 1.3;
    data.branches.forEach((_, k) => { pen.beginPath(); pen.moveTo(x, y); pen.lineTo(sx(shown.dx[k]), sy(shown.dy[k])); pen.stroke(); });
    data.branches.forEach((branch, k) => mark(pen, branch.colour, "star", sx(shown.dx[k]), sy(shown.dy[k]), 11));
    pen.lineWidth = 2.5;
    pen.beginPath();
    pen.arc(x, y, 8, 0, 2 * Math.PI);
    pen.stroke();
    for (const i of pinned === null ? [] : shown.neighbors[pinned]) {
      pen.lineWidth = 1.5;
      pen.strokeRect(place(i)[0] - 6, place(i)[1] - 6, 12, 12);
    }
    for (const one of placed()) {
      pen.font = `${one.bold ? "600 " : ""}${one.size}px system-ui, sans-serif`;
      pen.globalAlpha = 0.85;
      pen.fillStyle = paper;
      pen.fillRect(one.x, one.y, one.w, one.h);
      pen.globalAlpha = 1;
      pen.fillStyle = text;
      pen.fillText(one.text, one.x + 3, one.y + one.h - 4);
    }
    if (lasso) {
      pen.beginPath();
      lasso.forEach((point, k) => pen[k ? "lineTo" : "moveTo"](...point));
      pen.closePath();
      pen.lineWidth = 1.5;
      pen.stroke();
    }
  }
  // All points, on a canvas of their own: pointing at one draws none of them again.
  function paint(key, w, h, ratio) {
    painted = { key, ...view };
    [back.width, back.height] = [canvas.width, canvas.height];
    const to = back.getContext("2d");
    to.setTransform(ratio, 0, 0, ratio, 0, 0);
    const own = kind(), inside = region ? new Set(region) : null;
    const images = own.names.map((_, k) => stamp(...own.look(k), ratio));
    for (const i of kept) {
      const [x, y] = place(i);
      if (x < -9 || y < -9 || x > w + 9 || y > h + 9) continue;
      const image = images[own.of(i)], half = image.width / ratio / 2;
      to.globalAlpha = inside && !inside.has(i) ? 0.2 : 0.8;
      to.drawImage(image, x - half, y - half, 2 * half, 2 * half);
    }
  }
  // Names of domains, then distances: each where it covers no other, within the map.
  function placed() {
    const found = [], [x, y] = place(current);
    const wanted = data.branches.map((branch, k) => ({ text: charts.short(branch.name), size: 14, bold: true, at: [sx(shown.dx[k]), sy(shown.dy[k])], off: 14 }));
    data.branches.forEach((_, k) => {
      const to = [sx(shown.dx[k]), sy(shown.dy[k])];
      wanted.push({ text: digits(shown.distances[current][k]), size: 12, at: [(x + to[0]) / 2, (y + to[1]) / 2], off: 0,
        along: [0.5, 0.35, 0.65, 0.25, 0.75].map((a) => [x + a * (to[0] - x), y + a * (to[1] - y)]) });
    });
    for (const one of wanted) {
      const w = charts.width(one.text, one.size) * (one.bold ? 1.08 : 1) + 8, h = one.size + 6;
      const around = one.along ? one.along.map(([a, b]) => [a - w / 2, b - h / 2])
        : [[0, -1], [0, 1], [1, 0], [-1, 0], [0, -2], [0, 2], [1, -2], [-1, 2]].map(([a, b]) => [
          one.at[0] - w / 2 + a * (w / 2 + one.off), one.at[1] - h / 2 + b * (h / 2 + one.off)]);
      const free = ([left, top]) => left >= 0 && top >= 0 && left + w <= wide() && top + h <= tall()
        && found.every((other) => left + w < other.x || other.x + other.w < left || top + h < other.y || other.y + other.h < top);
      const spot = around.find(free);
      if (spot) found.push({ ...one, x: spot[0], y: spot[1], w, h });
    }
    return found;
  }

  // ---- pictures, cut from one sheet
  const sheet = new Image();
  const { side, columns } = data.sheet;
  function picture(i, alt) {
    const one = document.createElement("canvas");
    one.width = one.height = side;
    one.setAttribute("role", "img");
    one.setAttribute("aria-label", alt ?? points.name[i]);
    one.getContext("2d").drawImage(sheet, side * (i % columns), side * Math.floor(i / columns), side, side, 0, 0, side, side);
    return one;
  }
  const told = (i) => `${points.name[i]}: ${data.classes[points.truth[i]]}, seen as ${right(i) ? "such" : data.classes[points.answer[i]]}`;
  function thumb(i) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = right(i) ? "thumb" : "thumb lost";
    button.title = told(i);
    button.append(picture(i, told(i)));
    button.addEventListener("click", () => pin(i));
    return button;
  }
  const weights = (i) => {
    if (shown === data.maps[0]) return points.weights[i];
    const near = shown.distances[i].map((distance) => 1 / Math.max(distance, 1e-30)), all = charts.sum(near);
    return near.map((one) => one / all);
  };
  function describe() {
    const i = current, own = weights(i);
    box("hover-image").replaceChildren(picture(i));
    box("hover-name").textContent = points.name[i];
    box("hover-verdict").textContent = `${data.classes[points.truth[i]]}, seen as ${right(i) ? "such" : data.classes[points.answer[i]]}, ${Math.round(100 * points.confidence[i])} % sure`;
    box("hover-verdict").className = right(i) ? "right" : "wrong";
    box("hover-basis").textContent = shown === data.maps[0] ? "Weights in the answer" : `Weights by ${shown.name} alone`;
    const heaviest = data.branches.map((_, k) => k).sort((a, b) => own[b] - own[a]).slice(0, data.bars).sort((a, b) => a - b);
    box("hover-weights").replaceChildren(...heaviest.map((k) => {
      const row = document.createElement("div"), bar = document.createElement("span");
      row.textContent = `${data.branches[k].name}: ${Math.round(100 * own[k])} %, distance ${digits(shown.distances[i][k])}`;
      bar.className = "bar";
      bar.style.width = 100 * own[k] + "%";
      bar.style.background = data.branches[k].colour;
      row.append(bar);
      return row;
    }));
    box("neighbors").hidden = pinned === null || !shown.neighbors[i].length;
    box("neighbor-images").replaceChildren(...(pinned === null ? [] : shown.neighbors[i].map(thumb)));
    box("unpin").hidden = pinned === null;
  }
  function look(i) {
    if (i === current) return;
    current = i;
    describe();
    redraw();
  }
  function pin(i) {
    pinned = i;
    current = i ?? current;
    describe();
    redraw();
  }

  // ---- a region and its images
  function choose(found) {
    region = found;
    version += 1;
    box("region").hidden = !found;
    if (found) {
      const shares = (of, names) => {
        const counts = new Map();
        for (const i of found) counts.set(of(i), (counts.get(of(i)) ?? 0) + 1);
        return [...counts].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([k, n]) => `${names[k]} ${n}`).join(", ");
      };
      const hits = found.filter(right).length;
      box("region-told").textContent = found.length
        ? `${found.length} images, ${Math.round(100 * hits / found.length)} % right. Domains: ${shares((i) => points.domain[i], KINDS.domain.names)}. `
          + `Classes: ${shares((i) => points.truth[i], data.classes)}.` + (found.length > GALLERY ? ` The first ${GALLERY}, wrong ones before others:` : "")
        : "No image is there.";
      const order = [...found].sort((a, b) => right(a) - right(b));
      box("region-images").replaceChildren(...order.slice(0, GALLERY).map(thumb));
    }
    redraw();
  }
  function within(polygon, x, y) {
    let inside = false;
    polygon.forEach(([ax, ay], k) => {
      const [bx, by] = polygon[(k || polygon.length) - 1];
      if (ay > y !== by > y && x < (bx - ax) * (y - ay) / (by - ay) + ax) inside = !inside;
    });
    return inside;
  }

  // ---- filters
  const ticked = () => new Set([...controls.querySelectorAll("input[name=domain]:checked")].map((one) => Number(one.value)));
  function filter() {
    version += 1;
    const domains = ticked(), truth = box("only-class").value, verdict = box("only-verdict").value, part = box("only-name").value.toLowerCase();
    kept = points.name.flatMap((name, i) => (domains.has(points.domain[i]) && (truth === "" || points.truth[i] === Number(truth))
      && (verdict === "" || right(i) === (verdict === "right")) && (!part || name.toLowerCase().includes(part)) ? [i] : []));
    box("map-count").textContent = `${kept.length} of ${count} images`;
    const own = kind(), there = new Set(kept.map(own.of));
    box("map-legend").replaceChildren(...own.names.flatMap((name, k) => {
      if (!there.has(k)) return [];
      const item = document.createElement("li"), [color, shape] = own.look(k);
      const image = document.createElement("canvas");
      image.width = image.height = 28;
      const small = image.getContext("2d");
      small.scale(2, 2);
      mark(small, color, shape, 7, 7, 4.5);
      item.append(image, name);
      return [item];
    }));
    const still = new Set(kept);
    if (region) choose(region.filter((i) => still.has(i)));
    redraw();
  }

  // ---- mouse, fingers and keys
  const fingers = new Map();
  let moved = 0, pinch = 0;
  const at = (event) => { const place = canvas.getBoundingClientRect(); return [event.clientX - place.left, event.clientY - place.top]; };
  const selecting = () => box("lasso").getAttribute("aria-pressed") === "true";
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, at(event));
    canvas.setPointerCapture(event.pointerId);
    moved = 0;
    lasso = fingers.size === 1 && (event.shiftKey || selecting()) ? [at(event)] : null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event), before = fingers.get(event.pointerId);
    if (!before) {
      hovered = nearest(x, y);
      canvas.style.cursor = hovered === null ? "" : "pointer";
      if (hovered !== null && pinned === null) look(hovered);
      return;
    }
    moved += Math.hypot(x - before[0], y - before[1]);
    fingers.set(event.pointerId, [x, y]);
    if (fingers.size === 2) {
      const [[ax, ay], [bx, by]] = [...fingers.values()], far = Math.hypot(ax - bx, ay - by);
      if (pinch) zoom(far / pinch, (ax + bx) / 2, (ay + by) / 2);
      pinch = far;
    } else if (lasso) {
      lasso.push([x, y]);
      redraw();
    } else if (moved > 3) {
      move({ ...view, x: view.x + x - before[0], y: view.y + y - before[1] });
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    fingers.delete(event.pointerId);
    pinch = 0;
    if (lasso && moved > 10) choose(kept.filter((i) => within(lasso, ...place(i))));
    else if (moved <= 3) pin(nearest(...at(event)));
    lasso = null;
    redraw();
  });
  canvas.addEventListener("pointercancel", (event) => { fingers.delete(event.pointerId); lasso = null; });
  // Only with the map in use, so that the page still scrolls over it.
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), ...at(event));
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => zoom(2, ...at(event)));
  canvas.addEventListener("keydown", (event) => {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const acts = { Enter: () => pin(current), " ": () => pin(current), Escape: () => { pin(null); choose(null); }, "+": () => zoom(1.4),
      "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), 0: () => { fit(); redraw(); } };
    if (way) {
      // The next image within 45° of the arrow.
      const [x, y] = place(current);
      let best = null, near = Infinity;
      for (const i of kept) {
        const [dx, dy] = [place(i)[0] - x, place(i)[1] - y], along = dx * way[0] + dy * way[1], aside = Math.abs(dx * way[1] - dy * way[0]);
        if (i !== current && along > 0 && aside <= along && dx * dx + dy * dy < near) [best, near] = [i, dx * dx + dy * dy];
      }
      if (best !== null) pinned === null ? look(best) : pin(best);
    } else if (acts[event.key]) acts[event.key]();
    else return;
    event.preventDefault();
  });

  // ---- the same as a chart to be saved
  function drawing() {
    const own = kind(), marks = kept.map((i) => ({ kind: "point", x: shown.x[i], y: shown.y[i], color: own.look(own.of(i))[0], shape: own.look(own.of(i))[1], size: 3.5, opacity: 0.8 }));
    data.branches.forEach((branch, k) => {
      marks.push({ kind: "segment", x0: shown.x[current], x1: shown.dx[k], y0: shown.y[current], y1: shown.dy[k], color: "var(--text)", width: 1.2 });
      marks.push({ kind: "point", x: shown.dx[k], y: shown.dy[k], color: branch.colour, shape: "star", size: 11, label: branch.name });
    });
    const there = new Set(kept.map(own.of));
    const legend = own.names.flatMap((name, k) => (there.has(k) ? [{ name, color: own.look(k)[0], shape: own.look(k)[1] }] : []));
    return charts.build({ marks, legend, x: { ticks: [], title: "t-SNE 1" }, y: { ticks: [], title: "t-SNE 2" } }, 900, 700).svg;
  }

  data.maps.forEach((map, number) => layer.add(new Option(map.name, number)));
  data.classes.forEach((name, number) => box("only-class").add(new Option(name, number)));
  layer.addEventListener("change", () => { shown = data.maps[Number(layer.value)]; version += 1; fit(); describe(); redraw(); });
  controls.addEventListener("input", filter);
  controls.addEventListener("submit", (event) => event.preventDefault());
  box("lasso").addEventListener("click", () => box("lasso").setAttribute("aria-pressed", String(!selecting())));
  box("whole").addEventListener("click", () => { fit(); redraw(); });
  box("closer").addEventListener("click", () => zoom(1.4));
  box("farther").addEventListener("click", () => zoom(1 / 1.4));
  box("unpin").addEventListener("click", () => pin(null));
  box("drop").addEventListener("click", () => choose(null));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.matchMedia("print").addEventListener("change", draw); // at once, in the paper's colors
  let width = 0;
  new ResizeObserver(() => { if (wide() && wide() !== width) { width = wide(); fit(); redraw(); } }).observe(plot);
  charts.saving(plot, drawing);
  sheet.addEventListener("load", () => {
    fit();
    filter();
    describe();
    draw();
    box("stage").classList.add("ready");
  });
  sheet.src = data.sheet.href;
})();
