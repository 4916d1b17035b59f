/* Who runs what: the ledger with its reasons, and the graph round a region or a call. */

class ExecutorsView {
  constructor(entry, page) {
    Object.assign(this, { entry, page, query: "", trace: "all", order: "program", region: "", once: false });
    this.executors = [...new Set(entry.ledger.map(row => row.claimed_by || row.via))];
    this.on = new Set(this.executors);
    this.regions = [...new Set(entry.ledger.filter(row => row.region).map(row => `${row.trace} ${row.region}`))];
    this.list = new List({ label: "Calls", height: 30, fit: true, className: "calls", render: i => this.row(i), choose: i => this.choose(i) });
    this.list.element.style.height = "46vh";
    this.detail = h("div", { class: "detail", "aria-live": "polite" }, h("p", { class: "soft" }, "Choose a call to see why each executor runs it or does not."));
    this.graphBox = h("div");
    this.element = h("section", {}, this.summary(), this.filters(), this.head(), this.list.element, this.detail, this.graphPart(), this.others());
    this.update();
  }
  summary() {
    const rows = this.entry.ledger, by = new Map();
    for (const row of rows) by.set(row.claimed_by || row.via, (by.get(row.claimed_by || row.via) || 0) + 1);
    return h("div", { style: "margin-bottom:12px" }, h("div", { class: "strip", role: "img", "aria-label": "Calls by executor" },
      [...by].map(([name, n]) => h("i", { dot: colour(name), style: `flex:${n}`, title: `${name}: ${n}` }))));
  }
  filters() {
    const counts = name => this.entry.ledger.filter(row => (row.claimed_by || row.via) === name).length;
    return h("div", { class: "bar", role: "group", "aria-label": "Filters" },
      h("input", { type: "search", placeholder: "Operator, line, module, reason", "aria-label": "Search calls", oninput: event => { this.query = event.target.value.toLowerCase(); this.update(); } }),
      segment("Function", ["all", "forward", "backward"], "all", name => { this.trace = name; this.update(); }),
      this.executors.map(name => toggle([dot(name), name, h("span", { class: "faint num" }, counts(name))], true, on => { on ? this.on.add(name) : this.on.delete(name); this.update(); }, { class: "chip" })),
      this.regions.length ? h("select", { "aria-label": "Region", onchange: event => { this.region = event.target.value; this.update(); } },
        h("option", { value: "" }, "all regions"), h("option", { value: "none" }, "in no region"), this.regions.map(name => h("option", { value: name }, name))) : null,
      h("select", { "aria-label": "Order", onchange: event => { this.order = event.target.value; this.update(); } },
        [["program", "in the program's order"], ["flops", "most operations first"], ["nbytes", "most bytes first"], ["refusals", "most refusals first"]].map(([value, name]) => h("option", { value }, name))),
      toggle("Equal layers once", false, on => { this.once = on; this.update(); }, { title: "Calls that differ in the number of their layer alone are one row" }),
      this.total = h("span", { class: "soft num", role: "status" }));
  }
  columns() { return `grid-template-columns:${innerWidth < 640 ? "minmax(0,1.4fr) minmax(0,1fr)" : "44px minmax(0,2.2fr) minmax(0,1.2fr) minmax(0,1.4fr) 74px 84px minmax(0,2.6fr) 76px"}`; }
  head() {
    return h("div", { class: "head wide-only" }, h("div", { class: "cells", style: this.columns() }, ["#", "call", "executor", "way", "FLOP", "bytes", "module and line", "refusals"].map((name, i) => h("span", { class: [4, 5, 7].includes(i) ? "right" : null }, name))));
  }
  update() {
    const rows = this.entry.ledger.map((row, index) => ({ row, index })).filter(({ row }) =>
      this.on.has(row.claimed_by || row.via) && (this.trace === "all" || row.trace === this.trace)
      && (!this.region || (this.region === "none" ? !row.region : `${row.trace} ${row.region}` === this.region))
      && (!this.query || this.searched(row).includes(this.query)));
    const found = rows.length;
    if (this.once) {
      const first = new Map();
      for (const item of rows) {
        const { row } = item, place = this.entry.places[row.place];
        const key = [row.trace, row.symbol, row.claimed_by, row.via, row.refusals, place ? [place[0], place[1], place[3].replace(/\b\d+\b/g, "*")] : ""].join("|");
        first.has(key) ? first.get(key).times++ : first.set(key, Object.assign(item, { times: 1 }));
      }
      rows.splice(0, rows.length, ...first.values());
    }
    const by = { flops: row => row.flops || 0, nbytes: row => row.nbytes || 0, refusals: row => row.refusals.length }[this.order];
    if (by) rows.sort((a, b) => by(b.row) - by(a.row));
    this.rows = rows;
    this.total.textContent = `${found} of ${this.entry.ledger.length} calls${this.once ? ` in ${rows.length} rows` : ""}`;
    this.list.show(rows.length);
    if (this.region.includes(" ")) this.drawRegion(...this.region.split(" "));
  }
  searched(row) {
    const place = this.entry.places[row.place];
    return [row.symbol, row.outputs.join(" "), row.claimed_by, row.region, this.entry.line(place), this.entry.moduleText(place), ...[...row.refusals, ...row.skipped].map(n => this.entry.reasons[n].join(" "))].join(" ").toLowerCase();
  }
  row(i) {
    const { row, index, times } = this.rows[i], entry = this.entry, place = entry.places[row.place], name = row.claimed_by || row.via;
    const call = h("span", { title: `${row.symbol} → ${row.outputs.join(", ")}` }, h("code", {}, row.symbol.replace(/^torch\.(nn\.functional\.)?|^ltorch\.|^prims\./, "")), h("span", { class: "faint mono" }, ` ${row.outputs.join(", ")}`), times > 1 ? h("span", { class: "count" }, `×${times}`) : null);
    const owner = h("span", {}, dot(row.claimed_by), " ", name);
    if (innerWidth < 640) return h("div", { class: "cells", style: this.columns() }, call, owner);
    return h("div", { class: "cells", style: this.columns() }, h("span", { class: "faint num" }, index), call, owner,
      h("span", { class: "soft" }, row.region || row.via, row.trace === "backward" ? h("span", { class: "faint" }, " · backward") : null),
      h("span", { class: "num right" }, flops(row.flops)), h("span", { class: "num right" }, bytes(row.nbytes)),
      h("span", { class: "soft", title: entry.source(place) }, entry.moduleText(place) ? h("code", {}, `${entry.moduleText(place)} `) : null, h("span", { class: "faint" }, entry.line(place))),
      h("span", { class: "num right" }, row.refusals.length || ""));
  }
  choose(i) {
    const { row } = this.rows[i], entry = this.entry, place = entry.places[row.place];
    const reasons = (numbers, verb) => numbers.map(n => { const [who, code, message] = entry.reasons[n]; return h("li", {}, h("span", {}, dot(who), " ", who), h("span", { class: "soft" }, verb), h("span", {}, message), h("code", { class: "faint" }, code)); });
    this.detail.replaceChildren(
      h("div", { class: "bar" }, h("h2", {}, h("code", {}, row.symbol)), row.claimed_by ? h("span", { class: "chip" }, dot(row.claimed_by), "run by ", row.claimed_by) : h("span", { class: "chip" }, row.via),
        h("button", { type: "button", onclick: () => this.page.open("program", view => view.reveal(row.trace, { output: row.outputs[0] })) }, "Show in the trace"),
        h("button", { type: "button", onclick: () => this.drawAround(row) }, "Show in the graph")),
      facts([["line", place ? [`${entry.line(place)}  `, h("code", { class: "soft" }, entry.source(place))] : ""], ["module", entry.moduleText(place)], ["region", row.region], ...Object.entries(row.facts)]),
      row.refusals.length + row.skipped.length ? h("ul", { class: "reasons" }, reasons(row.refusals, "refused"), reasons(row.skipped, "not asked")) : h("p", { class: "soft" }, "No other executor was asked."));
  }
  graphPart() {
    const names = this.regions.length ? this.regions : [];
    return h("div", { style: "margin-top:22px" }, h("h2", {}, names.length ? "Fusion regions" : "Graph"),
      h("p", { class: "lead" }, names.length ? "Choose a region: its calls, the statements from which its inputs come (dashed), and those that read its results. What the function returns has a bold frame." : "No executor made fusion regions here. Choose a call above and “Show in the graph”."),
      h("div", { class: "bar" }, ["forward", "backward"].filter(trace => this.entry.final(trace).length).map(trace => h("button", { type: "button", onclick: () => this.drawAll(trace) }, `All of the ${trace}`)), names.slice(0, 60).map(name => h("button", { type: "button", class: "chip", onclick: () => this.drawRegion(...name.split(" ")) }, dot(this.regionExecutor(name)), name, h("span", { class: "faint num" }, this.entry.ledger.filter(row => `${row.trace} ${row.region}` === name).length))),
        names.length > 60 ? h("span", { class: "soft" }, `and ${names.length - 60} more: choose them in the filter above`) : null),
      this.graphBox);
  }
  regionExecutor(name) { return this.entry.ledger.find(row => `${row.trace} ${row.region}` === name)?.claimed_by || ""; }
  drawRegion(trace, region) {
    const at = this.entry.final(trace).findIndex(row => this.entry.symbol(row).endsWith(region) && this.entry.kind(row) === "region");
    if (at >= 0) this.draw(trace, at);
  }
  drawAround(row) {
    const has = number => this.entry.outputs(number).includes(row.outputs[0]) || (this.entry.kind(number) === "region" && this.entry.parts(number).some(has));
    const at = this.entry.final(row.trace).findIndex(has);
    if (at >= 0) { this.draw(row.trace, at); this.graphBox.scrollIntoView({ block: "nearest" }); }
  }
  /* The statement at a position, its calls if it is a region, and its neighbours. */
  draw(trace, at) {
    const entry = this.entry, final = entry.final(trace), row = final[at], isRegion = entry.kind(row) === "region";
    const calls = (isRegion && entry.parts(row).length ? entry.parts(row) : [row]).slice(0, 150);
    const nodes = [], edges = [], maker = new Map(), makerOutside = new Map(), computes = number => !["release", "structure"].includes(entry.kind(number));
    final.forEach((number, i) => { if (computes(number)) entry.outputs(number).forEach(name => { if (!makerOutside.has(name)) makerOutside.set(name, i); }); });
    const title = number => (entry.symbol(number).split(".").at(-1)), small = number => { const place = entry.place(number); return entry.moduleText(place) || (place ? entry.line(place) : ""); };
    const other = i => { if (!nodes.some(node => node.id === `o${i}`)) nodes.push({ id: `o${i}`, title: title(final[i]), small: small(final[i]), className: "other", dot: colour(entry.executor(final[i]) || "torch"), full: entry.text(final[i]), choose: () => this.draw(trace, i) }); return `o${i}`; };
    const inputs = new Set(entry.inputs(row));
    const outside = new Map();
    for (const name of inputs) {
      const i = makerOutside.get(name);
      if (i !== undefined && i < at) outside.set(name, other(i));
      else if (/^[A-Za-z_]/.test(name) && this.isValue(trace, name)) { nodes.push({ id: `v${name}`, title: name, small: "input", className: "value" }); outside.set(name, `v${name}`); }
    }
    calls.forEach((number, c) => {
      nodes.push({ id: `c${c}`, title: title(number), small: small(number), dot: colour(entry.executor(row) || "torch"), full: entry.text(number), choose: () => this.page.open("program", view => view.reveal(trace, { output: entry.outputs(number)[0] })) });
      for (const name of entry.inputs(number)) {
        const from = maker.get(name) ?? outside.get(name);
        if (from && !edges.some(([a, b]) => a === from && b === `c${c}`)) edges.push([from, `c${c}`, name]);
      }
      entry.outputs(number).forEach(name => { if (!maker.has(name)) maker.set(name, `c${c}`); });
    });
    const results = new Set(entry.outputs(row));
    let readers = 0;
    for (let i = at + 1; i < final.length && readers < 12; i++) {
      if (!computes(final[i]) && !entry.text(final[i]).startsWith("return")) continue;
      const read = entry.inputs(final[i]).filter(name => results.has(name) && maker.has(name));
      if (!read.length) continue;
      readers++;
      if (entry.text(final[i]).startsWith("return")) { for (const name of read) { const made = nodes.find(node => node.id === maker.get(name)); made.className = "result"; } continue; }
      const id = other(i);
      for (const from of new Set(read.map(name => maker.get(name)))) edges.push([from, id, read.join(", ")]);
    }
    const used = new Set(edges.flat());
    this.graphBox.replaceChildren(h("p", { class: "soft", style: "margin-bottom:6px" }, h("b", {}, title(row)), ` · ${trace} · ${isRegion ? `${count(entry.parts(row).length)} calls` : "one call"}`, isRegion && entry.parts(row).length > 150 ? " (the first 150 are shown)" : ""),
      graph(nodes.filter(node => used.has(node.id) || node.id.startsWith("c")), edges, `Graph of ${title(row)}`));
  }
  /* All statements of a function that compute, a region as one node; a window of them where they are many. */
  drawAll(trace, from = 0) {
    const entry = this.entry, most = 150, final = entry.final(trace), nodes = [], edges = [], maker = new Map();
    const computing = final.map((row, i) => [row, i]).filter(([row]) => !["release", "structure"].includes(entry.kind(row)));
    for (const [row, i] of computing.slice(from, from + most)) {
      const place = entry.place(row), isRegion = entry.kind(row) === "region", id = `s${i}`;
      nodes.push({ id, title: entry.symbol(row).split(".").at(-1), small: isRegion ? `${count(entry.parts(row).length)} calls` : entry.moduleText(place) || entry.line(place), className: isRegion ? "result" : "",
        dot: colour(entry.executor(row) || "torch"), full: entry.text(row), choose: () => this.draw(trace, i) });
      for (const name of entry.inputs(row)) if (maker.has(name) && !edges.some(([a, b]) => a === maker.get(name) && b === id)) edges.push([maker.get(name), id, name]);
      entry.outputs(row).forEach(name => { if (!maker.has(name)) maker.set(name, id); });
    }
    const move = (label, to) => h("button", { type: "button", onclick: () => this.drawAll(trace, to) }, label);
    this.graphBox.replaceChildren(h("div", { class: "bar" }, h("b", {}, trace), h("span", { class: "soft" }, computing.length > most ? `statements ${from + 1} to ${Math.min(from + most, computing.length)} of ${computing.length}` : `${computing.length} statements; regions have bold frames`),
      from ? move("Before", Math.max(0, from - most)) : null, from + most < computing.length ? move("After", from + most) : null), graph(nodes, edges, `Graph of the ${trace}`));
  }
  isValue(trace, name) {
    this.values ||= {};
    this.values[trace] ||= new Set([...this.entry.traceOf[trace].inputs.map(text => text.split(":")[0]), ...this.entry.final(trace).flatMap(row => this.entry.outputs(row))]);
    return this.values[trace].has(name);
  }
  others() {
    const { absent, notes } = this.entry;
    return h("div", { style: "margin-top:22px" },
      notes.length ? h("details", {}, h("summary", {}, `${notes.length} notes of the ledger`), h("ul", { style: "padding-left:18px" }, notes.map(note => h("li", {}, note)))) : null,
      absent.length ? h("details", {}, h("summary", {}, `${absent.length} executors that are not in this compile`), table([["executor"], ["reason"], ["code"]], absent.map(([who, code, message]) => [who, message, h("code", { class: "faint" }, code)]))) : null);
  }
}
