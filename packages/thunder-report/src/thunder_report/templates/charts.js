/* Charts as SVG: a curve over statements, points on two logarithmic axes, a graph in layers. */

function ticks(most, wanted = 4, base = 10) {
  const rough = most / wanted || 1, power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const steps = base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const step = power * (steps.find(s => s * power >= rough) || steps.at(-1));
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

/* series: [{name, className, values}]; bands: [{from, to, label}]; choose(index) for a click. */
function curve({ series, base, bands, mark, unit, label, choose, height = 260 }) {
  const box = h("div", { class: "chart" });
  const readout = h("div", { class: "legend", "aria-live": "polite" });
  const length = Math.max(...series.map(s => s.values.length));
  const most = Math.max(base, ...series.map(s => s.values.reduce((a, v) => Math.max(a, v ?? 0), 0))) * 1.06 || 1;
  function draw() {
    const width = Math.max(280, box.clientWidth || 800), left = 70, right = 10, top = 14, bottom = 34;
    const x = i => left + (width - left - right) * (length < 2 ? 0.5 : i / (length - 1));
    const y = v => top + (height - top - bottom) * (1 - v / most);
    const path = values => {
      let d = "", last = null; // where a statement was not measured, what was alive before it still is
      values.forEach((v, i) => { v ??= last; if (v === null) return; d += `${last === null ? "M" : "L"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`; last = v; });
      return d;
    };
    const svg = h("svg:svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
    for (const v of ticks(most, 4, 1024)) svg.append(h("svg:line", { class: "tick", x1: left, x2: width - right, y1: y(v), y2: y(v) }),
      h("svg:text", { x: left - 8, y: y(v) + 4, "text-anchor": "end" }, unit(v)));
    if (base) svg.append(h("svg:rect", { class: "base", x: left, width: width - left - right, y: y(base), height: y(0) - y(base) }));
    svg.append(h("svg:path", { class: "area", d: `${path(series[0].values)}L${x(length - 1)} ${y(base)}L${x(0)} ${y(base)}Z` }));
    for (const s of series) svg.append(h("svg:path", { class: s.className, d: path(s.values) }));
    for (const band of bands) svg.append(h("svg:line", { class: "axis", x1: x(band.from), x2: x(band.from), y1: top, y2: height - bottom + 6 }),
      h("svg:text", { x: x(band.from) + 5, y: height - 14 }, band.label));
    if (mark !== null) svg.append(h("svg:circle", { cx: x(mark), cy: y(series[0].values[mark]), r: 4, fill: "var(--c4)" }),
      h("svg:text", { x: x(mark) + (x(mark) > width * .7 ? -8 : 8), y: Math.max(12, y(series[0].values[mark]) - 6), "text-anchor": x(mark) > width * .7 ? "end" : "start", style: "fill:var(--c4);font-weight:600" }, `peak ${unit(series[0].values[mark])}`));
    const cursor = h("svg:line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
    svg.append(cursor);
    const at = event => {
      const box = svg.getBoundingClientRect();
      return Math.max(0, Math.min(length - 1, Math.round((event.clientX - box.left - left) / (width - left - right) * (length - 1))));
    };
    svg.addEventListener("mousemove", event => {
      const i = at(event);
      for (const side of ["x1", "x2"]) cursor.setAttribute(side, x(i));
      cursor.setAttribute("visibility", "visible");
      readout.replaceChildren(h("span", {}, `statement ${i}`), ...series.map(s => h("span", {}, `${s.name} ${s.values[i] === null || s.values[i] === undefined ? "–" : unit(s.values[i])}`)));
    });
    if (choose) { svg.style.cursor = "crosshair"; svg.addEventListener("click", event => choose(at(event))); }
    box.replaceChildren(svg);
  }
  new ResizeObserver(draw).observe(box);
  requestAnimationFrame(draw);
  return [box, readout];
}

/* points: [{x, y, label, dot}]; roof: {flops, bandwidth} per second. */
function roofline({ points, roof, choose, height = 300 }) {
  const box = h("div", { class: "chart" });
  function draw() {
    const width = Math.max(280, box.clientWidth || 700), left = 64, right = 12, top = 14, bottom = 40;
    const log = Math.log10, xs = points.map(p => log(p.x)), ys = points.map(p => log(p.y));
    const ridge = roof ? log(roof.flops / roof.bandwidth) : 0;
    const [x0, x1] = [Math.floor(Math.min(...xs, ridge) - .3), Math.ceil(Math.max(...xs, ridge) + .5)];
    const [y0, y1] = [Math.floor(Math.min(...ys) - .3), Math.ceil(Math.max(...ys, roof ? log(roof.flops) : 0) + .2)];
    const x = v => left + (width - left - right) * (v - x0) / (x1 - x0), y = v => top + (height - top - bottom) * (1 - (v - y0) / (y1 - y0));
    const svg = h("svg:svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "Roofline" });
    for (let v = x0; v <= x1; v++) svg.append(h("svg:line", { class: "tick", x1: x(v), x2: x(v), y1: top, y2: height - bottom }), h("svg:text", { x: x(v), y: height - bottom + 16, "text-anchor": "middle" }, v >= 0 ? flops(10 ** v) : `1/${count(10 ** -v)}`));
    for (let v = y0; v <= y1; v += Math.ceil((y1 - y0) / 6)) svg.append(h("svg:line", { class: "tick", x1: left, x2: width - right, y1: y(v), y2: y(v) }), h("svg:text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, `${flops(10 ** v)}FLOP/s`.replace("FLOP/s", "/s")));
    svg.append(h("svg:text", { x: width - right, y: height - 6, "text-anchor": "end" }, "operations per byte"));
    if (roof) svg.append(h("svg:path", { class: "estimate", d: `M${x(x0)} ${y(x0 + log(roof.bandwidth))}L${x(ridge)} ${y(log(roof.flops))}L${x(x1)} ${y(log(roof.flops))}` }));
    for (const p of points) svg.append(h("svg:circle", { cx: x(log(p.x)), cy: y(log(p.y)), r: 4.5, fill: p.dot, "fill-opacity": .75, onclick: () => choose(p), style: "cursor:pointer" }, h("svg:title", {}, p.label)));
    box.replaceChildren(svg);
  }
  new ResizeObserver(draw).observe(box);
  requestAnimationFrame(draw);
  return box;
}

/* nodes: [{id, title, small, className, dot, choose}]; edges: [[from, to, label]]. Layers by longest paths (Sugiyama,
   Tagawa and Toda, 1981), each ordered by the mean position of what comes before. */
function graph(nodes, edges, label) {
  const byId = new Map(nodes.map(node => [node.id, node]));
  const before = new Map(nodes.map(node => [node.id, []])), after = new Map(nodes.map(node => [node.id, []]));
  for (const [from, to] of edges) { before.get(to).push(from); after.get(from).push(to); }
  const depth = new Map();
  for (const { id } of nodes) depth.set(id, Math.max(0, ...before.get(id).map(other => (depth.get(other) ?? -1) + 1)));
  for (const { id } of [...nodes].reverse()) if (!before.get(id).length && after.get(id).length) depth.set(id, Math.min(...after.get(id).map(other => depth.get(other))) - 1);
  const lowest = Math.min(...depth.values());
  const layers = Array.from({ length: Math.max(...depth.values()) - lowest + 1 }, () => []), from = new Map(), paths = [];
  const put = (id, d, width) => { layers[d - lowest].push({ id, width }); from.set(id, []); };
  for (const { id } of nodes) put(id, depth.get(id), 168);
  for (const [a, b, name] of edges) { // a long edge has a narrow place in each layer that it passes
    const path = [a];
    for (let d = depth.get(a) + 1; d < depth.get(b); d++) { const id = `${a} ${b} ${d}`; put(id, d, 12); path.push(id); }
    path.push(b);
    path.slice(1).forEach((id, i) => from.get(id).push(path[i]));
    paths.push([path, name]);
  }
  const tall = 40, gapX = 16, gapY = 36, centre = new Map(), extents = [];
  const mean = id => { const known = from.get(id).filter(other => centre.has(other)).map(other => centre.get(other)); return known.length ? known.reduce((x, y) => x + y) / known.length : null; };
  layers.forEach((layer, d) => {
    layer.forEach((item, i) => { item.wish = mean(item.id); item.place = i; });
    layer.sort((x, y) => (x.wish ?? 1e9) - (y.wish ?? 1e9) || x.place - y.place);
    const wishes = layer.filter(item => item.wish !== null).map(item => item.wish), needed = layer.reduce((sum, item) => sum + item.width + gapX, 0);
    let x = wishes.length ? Math.max(0, wishes.reduce((a, b) => a + b) / wishes.length - needed / 2) : 0;
    for (const item of layer) {
      centre.set(item.id, x + item.width / 2);
      x += item.width + gapX;
    }
    extents[d] = x;
  });
  const position = id => [centre.get(id) + 12, 12 + ((depth.get(id) ?? Number(id.split(" ")[2])) - lowest) * (tall + gapY)];
  const width = 168, total = [Math.max(...extents) + 16, layers.length * (tall + gapY) - gapY + 24];
  const svg = h("svg:svg", { viewBox: `0 0 ${total[0]} ${total[1]}`, width: total[0], height: total[1], role: "group", "aria-label": label });
  for (const [path, name] of paths) {
    let d = "";
    path.forEach((id, i) => {
      const [x, y] = position(id), bend = gapY * .6;
      if (!i) d = `M${x} ${y + tall}`;
      else { const [px, py] = position(path[i - 1]); d += `C${px} ${py + tall + bend} ${x} ${y - bend} ${x} ${y}${i < path.length - 1 ? `V${y + tall}` : ""}`; }
    });
    svg.append(h("svg:path", { class: "edge", d }, name ? h("svg:title", {}, name) : null));
  }
  const short = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
  for (const node of nodes) {
    const [middle, y] = position(node.id), x = middle - width / 2;
    const act = node.choose && (() => node.choose());
    svg.append(h("svg:g", { class: `node ${node.className || ""}`, dot: node.dot, transform: `translate(${x} ${y})`, tabindex: act ? 0 : null, role: act ? "button" : null,
      "aria-label": act ? `${node.title} ${node.small}` : null, onclick: act || null, onkeydown: act ? event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } } : null, style: act ? "cursor:pointer" : "" },
      h("svg:rect", { width, height: tall, rx: 7 }), h("svg:title", {}, node.full || `${node.title}\n${node.small}`),
      h("svg:text", { x: 10, y: node.small ? 17 : 24 }, short(node.title, 23)), node.small ? h("svg:text", { class: "small", x: 10, y: 32 }, short(node.small, 27)) : null));
  }
  return h("div", { class: "graph", tabindex: 0, "aria-label": label, role: "region" }, svg);
}
