/* The program: the user's source beside a trace, stage by stage, with a diff, folds and a search. */

/* What differs between two stages. Statements that both have once are matched, in the longest order that both have
   (patience diff: longest increasing subsequence of positions, Fredman 1975). */
function difference(before, after) {
  const times = (list) => { const seen = new Map(); list.forEach(id => seen.set(id, (seen.get(id) || 0) + 1)); return seen; };
  const [once, twice] = [times(before), times(after)];
  const where = new Map();
  before.forEach((id, i) => { if (once.get(id) === 1 && twice.get(id) === 1) where.set(id, i); });
  const tails = [], back = [], matches = [];
  after.forEach((id, j) => {
    if (!where.has(id)) return;
    const i = where.get(id);
    let low = 0, high = tails.length;
    while (low < high) { const middle = (low + high) >> 1; matches[tails[middle]][0] < i ? low = middle + 1 : high = middle; }
    matches.push([i, j]);
    back.push(low ? tails[low - 1] : -1);
    tails[low] = matches.length - 1;
  });
  const kept = [];
  for (let m = tails.at(-1) ?? -1; m >= 0; m = back[m]) kept.push(matches[m]);
  kept.reverse().push([before.length, after.length]);
  const rows = [];
  let [i, j] = [0, 0];
  for (const [toI, toJ] of kept) {
    while (i < toI && j < toJ && before[i] === after[j]) { rows.push([" ", after[j]]); i++; j++; }
    const tail = [];
    let [endI, endJ] = [toI, toJ];
    while (endI > i && endJ > j && before[endI - 1] === after[endJ - 1]) { endI--; endJ--; tail.unshift([" ", after[endJ]]); }
    rows.push([null, before.slice(i, endI), after.slice(j, endJ)], ...tail);
    if (toJ < after.length) rows.push([" ", after[toJ]]);
    [i, j] = [toI + 1, toJ + 1];
  }
  return rows;
}

class ProgramView {
  constructor(entry, page) {
    Object.assign(this, { entry, page, trace: entry.traces[0].name, open: new Set(), diff: false, releases: false, query: "", matches: [], match: -1 });
    this.stage = this.stages().length - 1;
    this.lines = new List({ label: "Statements of the trace", render: i => this.traceRow(i), choose: i => this.choose(i), key: (event, i) => this.fold(event, i) });
    this.source = new List({ label: "Source", height: 20, render: i => this.sourceRow(i), choose: i => this.chooseLine(i) });
    this.detail = h("div", { class: "detail", "aria-live": "polite" });
    this.linked = new Set();
    this.file = this.mainFile();
    this.element = h("section", { class: "pair" }, this.sourcePane(), this.tracePane());
    this.update();
  }
  stages() { return this.entry.traceOf[this.trace].stages; }
  mainFile() {
    const uses = new Map();
    for (const [file] of this.entry.places) uses.set(file, (uses.get(file) || 0) + 1);
    return [...uses].sort((a, b) => b[1] - a[1])[0]?.[0] ?? 0;
  }
  sourcePane() {
    const files = data("summary").files;
    this.fileChoice = h("select", { "aria-label": "File", onchange: () => { this.file = Number(this.fileChoice.value); this.showSource(); } },
      files.map((file, i) => h("option", { value: i }, file.name)));
    return h("div", { class: "pane source" }, h("div", { class: "bar" }, h("h2", {}, "Source"), this.fileChoice), this.source.element);
  }
  tracePane() {
    this.stageChoice = h("select", { "aria-label": "Stage", onchange: () => { this.stage = Number(this.stageChoice.value); this.update(); } });
    this.search = h("input", { type: "search", placeholder: "Search, also in decompositions", "aria-label": "Search in the trace",
      oninput: () => this.find(this.search.value), onkeydown: event => { if (event.key === "Enter") { event.preventDefault(); this.step(event.shiftKey ? -1 : 1); } } });
    this.found = h("span", { class: "soft num", role: "status" });
    const traces = this.entry.traces.map(trace => trace.name);
    return h("div", { class: "pane" },
      h("div", { class: "bar" }, traces.length > 1 ? segment("Function", traces, this.trace, name => { this.trace = name; this.stage = this.stages().length - 1; this.update(); }) : h("h2", {}, traces[0]),
        h("button", { type: "button", "aria-label": "Stage before", onclick: () => this.moveStage(-1) }, "‹"), this.stageChoice,
        h("button", { type: "button", "aria-label": "Next stage", onclick: () => this.moveStage(1) }, "›"),
        this.diffButton = toggle("Changes", false, on => { this.diff = on; this.update(); }, { title: "What this stage changed" }),
        toggle("del lines", false, on => { this.releases = on; this.update(); }, { title: "Lines that release memory" }), h("button", { type: "button", onclick: () => this.unfold(true) }, "Unfold all"), h("button", { type: "button", onclick: () => this.unfold(false) }, "Fold all")),
      h("div", { class: "bar" }, this.search, h("button", { type: "button", "aria-label": "Match before", onclick: () => this.step(-1) }, "↑"),
        h("button", { type: "button", "aria-label": "Next match", onclick: () => this.step(1) }, "↓"), this.found),
      this.lines.element, this.detail);
  }
  moveStage(step) {
    this.stage = Math.max(0, Math.min(this.stages().length - 1, this.stage + step));
    this.update();
  }
  update() {
    const stages = this.stages();
    this.stageChoice.replaceChildren(...stages.map((stage, i) => h("option", { value: i }, `${i + 1}. ${stage.name}${stage.ns === null ? "" : ` (${time(stage.ns)})`}`)));
    this.stageChoice.value = String(this.stage);
    stages[this.stage].statements.forEach((row, i) => { if (this.entry.kind(row) === "region") this.open.add(String(i)); });
    this.items = this.collect();
    this.lines.show(this.items.length);
    this.find(this.query, false);
    this.showSource();
    this.describe(null);
  }
  collect() {
    const stage = this.stages()[this.stage].statements;
    const items = [];
    const add = (row, depth, sign, key, number) => {
      items.push({ row, depth, sign, key, number });
      if (this.open.has(key)) this.entry.parts(row).forEach((part, i) => add(part, depth + 1, sign, `${key}.${i}`, null));
    };
    if (this.diff && this.stage > 0) {
      let number = 0;
      const left = row => this.entry.text(row).split(" = ")[0];
      for (const [sign, first, second] of difference(this.stages()[this.stage - 1].statements, stage)) {
        if (sign === " ") { items.push({ row: first, depth: 0, sign, key: `=${number}`, number: number++, same: true }); continue; }
        const waiting = [...second];
        for (const row of first) {
          const at = waiting.findIndex(other => left(other) === left(row));
          for (const other of at >= 0 ? waiting.splice(0, at) : []) add(other, 0, "+", `+${number}`, number++);
          add(row, 0, "−", `-${number}:${row}`, null);
          if (at >= 0) { add(waiting.shift(), 0, "+", `+${number}`, number++); }
        }
        for (const other of waiting) add(other, 0, "+", `+${number}`, number++);
      }
      return this.withoutRuns(items);
    }
    stage.forEach((row, i) => { if (this.releases || this.entry.kind(row) !== "release") add(row, 0, " ", String(i), i); });
    return items;
  }
  withoutRuns(items) {
    const kept = [];
    for (let i = 0; i < items.length;) {
      let j = i;
      while (j < items.length && items[j].same) j++;
      const run = items.slice(i, j), key = `run${i}`;
      if (run.length > 9 && !this.open.has(key)) kept.push(...run.slice(0, i ? 3 : 0), { key, gap: run.length - (i ? 3 : 0) - (j < items.length ? 3 : 0) }, ...run.slice(j < items.length ? -3 : run.length));
      else kept.push(...run);
      if (j < items.length) kept.push(items[j]);
      i = j + 1;
    }
    return kept;
  }
  traceRow(i) {
    const item = this.items[i], entry = this.entry;
    if (item.gap) return h("div", { class: "faint" }, h("span", { class: "gutter" }, "⋯"), h("button", { class: "link", type: "button", onclick: event => { event.stopPropagation(); this.flip(i); } }, `${item.gap} statements that stay`));
    const place = entry.place(item.row), executor = entry.executor(item.row), folded = entry.parts(item.row).length > 0;
    const classes = [item.sign === "+" && "added", item.sign === "−" && "removed", this.matches[this.match] === i && "found", place && this.linked.has(`${place[0]}:${place[1]}`) && "linked"];
    return h("div", { class: classes.filter(Boolean).join(" ") },
      h("span", { class: "gutter" }, item.number ?? ""), this.diff ? h("span", { class: "sign" }, item.sign) : null,
      h("span", { style: `width:${item.depth * 16}px;flex:none` }),
      folded ? h("button", { class: "fold", type: "button", tabindex: -1, "aria-expanded": String(this.open.has(item.key)), "aria-label": "Decomposition", onclick: event => { event.stopPropagation(); this.flip(i); } }, this.open.has(item.key) ? "▾" : "▸") : h("span", { class: "fold" }),
      h("span", { class: `text ${item.depth ? "soft" : ""}` }, highlighted(entry.text(item.row))),
      executor && !item.depth ? h("span", { class: "tag" }, dot(executor), executor) : null,
      place && entry.moduleText(place) && !item.depth ? h("span", { class: "tag mono" }, entry.moduleText(place)) : null);
  }
  flip(i) {
    const { key } = this.items[i];
    this.open.has(key) ? this.open.delete(key) : this.open.add(key);
    this.items = this.collect();
    this.find(this.query, false);
    this.lines.show(this.items.length, true);
  }
  fold(event, i) {
    const item = this.items[i];
    if (!item || !["ArrowRight", "ArrowLeft", "Enter"].includes(event.key)) return false;
    const isOpen = this.open.has(item.key), can = item.gap || this.entry.parts(item.row).length;
    if (event.key === "Enter" ? can : can && isOpen === (event.key === "ArrowLeft")) { this.flip(i); return true; }
    if (event.key === "ArrowLeft" && item.depth) {
      let up = i;
      while (up > 0 && this.items[up].depth >= item.depth) up--;
      this.lines.pick(up);
      this.lines.reach(up);
    }
    return true;
  }
  unfold(all) {
    this.open.clear();
    if (all) {
      const add = (row, key) => { const parts = this.entry.parts(row); if (parts.length) { this.open.add(key); parts.forEach((part, i) => add(part, `${key}.${i}`)); } };
      this.stages()[this.stage].statements.forEach((row, i) => { add(row, String(i)); add(row, `+${i}`); });
    }
    this.items = this.collect();
    this.find(this.query, false);
    this.lines.show(this.items.length, true);
  }
  find(query, move = true) {
    this.query = query;
    this.matches = [];
    this.match = -1;
    const wanted = query.trim().toLowerCase();
    if (wanted) {
      const known = new Map();
      const has = row => {
        if (!known.has(row)) {
          const place = this.entry.place(row);
          known.set(row, `${this.entry.text(row)} ${this.entry.executor(row)} ${place ? `${this.entry.moduleText(place)} ${this.entry.line(place)}` : ""}`.toLowerCase().includes(wanted) || this.entry.parts(row).some(has));
        }
        return known.get(row);
      };
      this.items.forEach((item, i) => { if (!item.gap && has(item.row)) this.matches.push(i); });
    }
    this.found.textContent = wanted ? `${this.matches.length} found` : "";
    if (move) { this.lines.redraw(); if (this.matches.length) this.step(1); }
  }
  step(by) {
    if (!this.matches.length) return;
    this.match = (this.match + by + this.matches.length) % this.matches.length;
    this.found.textContent = `${this.match + 1} of ${this.matches.length}`;
    this.lines.redraw();
    this.lines.reach(this.matches[this.match], true);
  }
  choose(i) {
    const item = this.items[i];
    if (item.gap) return;
    const place = this.entry.place(item.row);
    this.linked = new Set(place ? [`${place[0]}:${place[1]}`] : []);
    this.describe(item);
    if (place) {
      if (place[0] !== this.file) { this.file = place[0]; this.showSource(); }
      this.source.chosen = -1;
      this.source.redraw();
      this.source.reach(place[1] - data("summary").files[this.file].first, true);
    }
    this.lines.redraw();
  }
  describe(item) {
    const entry = this.entry;
    if (!item) {
      const inputs = entry.traceOf[this.trace].inputs;
      this.detail.replaceChildren(h("p", { class: "soft" }, "Choose a statement, or a line of the source: each shows the other."),
        h("details", {}, h("summary", {}, `${inputs.length} inputs`), h("p", { class: "mono" }, inputs.join(", "))));
      return;
    }
    const place = entry.place(item.row), name = this.trace, isFinal = this.stage === this.stages().length - 1 && item.number !== null && !this.diff;
    const cost = isFinal && entry.costs[name]?.[item.number], measured = isFinal && entry.measured[name]?.[item.number];
    this.detail.replaceChildren(facts([
      ["statement", h("code", {}, entry.text(item.row))],
      ["operator", [entry.symbol(item.row), entry.executor(item.row) ? ` · ${entry.executor(item.row)}` : ""]],
      ["module", place ? entry.moduleText(place) : ""],
      ["line", place ? [`${entry.line(place)}  `, h("code", { class: "soft" }, entry.source(place)), place[2] ? h("span", { class: "faint" }, `  by ${place[2]}`) : ""] : ""],
      ["estimate", cost ? `${flops(cost[0])} FLOP, ${bytes(cost[1])}${cost[2] === null ? "" : `, ${time(cost[2])}`}` : ""],
      ["measured", measured ? `${time(measured[1] / measured[0])} (${count(measured[0])} calls, fastest ${time(measured[2])})` : ""],
    ]));
  }
  showSource() {
    const file = data("summary").files[this.file];
    this.fileChoice.value = String(this.file);
    this.uses = new Map();
    const shown = this.stages()[this.stage].statements.flatMap(row => this.entry.kind(row) === "region" && this.entry.parts(row).length ? this.entry.parts(row) : [row]);
    for (const row of new Set(shown)) {
      const place = this.entry.place(row);
      if (place && place[0] === this.file) this.uses.set(place[1], (this.uses.get(place[1]) || 0) + 1);
    }
    this.source.show(file ? file.lines.length : 0);
    if (file && this.uses.size) this.source.reach(Math.min(...this.uses.keys()) - file.first, true);
  }
  sourceRow(i) {
    const file = data("summary").files[this.file], number = i + file.first, uses = this.uses.get(number);
    const text = h("span", { class: "text" });
    text.innerHTML = file.lines[i]; // escaped by pygments
    return h("div", { class: this.linked.has(`${this.file}:${number}`) ? "linked" : "" }, h("span", { class: "gutter" }, number), text,
      uses ? h("span", { class: "count", title: `${uses} statements` }, uses) : null);
  }
  chooseLine(i) {
    const number = i + data("summary").files[this.file].first;
    this.linked = new Set([`${this.file}:${number}`]);
    const first = this.items.findIndex(item => { const place = !item.gap && this.entry.place(item.row); return place && place[0] === this.file && place[1] === number; });
    this.lines.redraw();
    if (first >= 0) { this.describe(this.items[first]); this.lines.reach(first, true); }
    else this.describe(null);
  }
  /* Show the statement that computes a value, or the statement at a position, of a final trace. */
  reveal(trace, { output = null, position = null }) {
    this.trace = trace;
    this.stage = this.stages().length - 1;
    this.diff = false;
    this.open.clear();
    this.element.querySelectorAll("[role=radio]").forEach(button => button.setAttribute("aria-checked", String(button.textContent === trace)));
    this.diffButton.setAttribute("aria-pressed", "false");
    this.update();
    const has = row => this.entry.outputs(row).includes(output) || this.entry.parts(row).some(has);
    const is = item => position === null ? has(item.row) : item.number >= position;
    const at = this.items.findIndex(is);
    if (at >= 0) requestAnimationFrame(() => { this.lines.pick(at); this.lines.reach(at, true); });
  }
}
