/* Time: stages of the compile, statements beside their estimates, and the file for Perfetto. */

class TimeView {
  constructor(entry, page) {
    Object.assign(this, { entry, page });
    this.element = h("section", { class: "grid" }, this.stages(entry.summary), this.download(), this.statements());
  }
  stages(summary) {
    const stages = Object.entries(summary.compile?.stage_ns || {}).filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]);
    const most = stages[0]?.[1] || 1;
    return h("div", { class: "card two-thirds" }, h("h2", {}, `Compile of entry ${summary.number}: ${summary.compile ? time(summary.compile_ns) : "not noted"}`),
      stages.length ? h("div", { class: "bars" }, stages.slice(0, 14).map(([name, ns]) => [h("span", {}, name.replaceAll("_", " ")), h("span", {}, h("span", { class: "meter", style: `width:${100 * ns / most}%` })), h("span", { class: "num right" }, time(ns))]))
        : h("p", { class: "empty" }, "The compile was not noted: the plugin was loaded after it, or the program came from a store."),
      stages.length > 14 ? h("p", { class: "faint" }, `and ${stages.length - 14} shorter ones: ${time(stages.slice(14).reduce((a, [, ns]) => a + ns, 0))}`) : null);
  }
  download() {
    const events = document.getElementById("events").textContent;
    const url = URL.createObjectURL(new Blob([events], { type: "application/json" }));
    return h("div", { class: "card third" }, h("h2", {}, "Perfetto"), h("p", { class: "soft", style: "margin-bottom:8px" }, "The times of all programs as trace events: open the file in ui.perfetto.dev or chrome://tracing."),
      h("a", { href: url, download: "trace.json", id: "perfetto" }, `Download trace.json (${bytes(events.length)})`));
  }
  rows() {
    const rows = [];
    for (const trace of ["forward", "backward"]) this.entry.final(trace).forEach((row, i) => {
      const cost = this.entry.costs[trace]?.[i], measured = this.entry.measured[trace]?.[i];
      if (cost || measured) rows.push({ trace, row, i, cost, ns: measured ? measured[2] : null, mean: measured ? measured[1] / measured[0] : null, estimate: cost ? cost[2] : null });
    });
    return rows;
  }
  statements() {
    const rows = this.rows(), isMeasured = rows.some(r => r.ns !== null), { entry } = this;
    const total = rows.reduce((a, r) => a + (r.ns || 0), 0);
    rows.sort((a, b) => isMeasured ? (b.ns || 0) - (a.ns || 0) : (b.cost?.[0] || 0) - (a.cost?.[0] || 0) || (b.cost?.[1] || 0) - (a.cost?.[1] || 0));
    const columns = () => `grid-template-columns:${innerWidth < 640 ? "minmax(0,2fr) 74px 74px" : "minmax(0,2.4fr) minmax(0,2fr) 76px 84px 84px 84px 84px 80px 60px"}`;
    const list = new List({ label: "Statements by time", height: 28, fit: true, className: "timed", choose: i => this.describe(rows[i]), render: i => {
      const r = rows[i], place = entry.place(r.row);
      const name = h("span", { title: entry.text(r.row) }, dot(entry.executor(r.row)), " ", h("code", {}, entry.symbol(r.row).split(".").at(-1)), h("span", { class: "faint" }, r.trace === "backward" ? " backward" : ""));
      const cells = innerWidth < 640 ? [name, h("span", { class: "num right" }, time(r.ns)), h("span", { class: "num right" }, time(r.estimate))]
        : [name, h("span", { class: "soft" }, h("code", {}, `${entry.moduleText(place)} `), h("span", { class: "faint" }, entry.line(place))), h("span", { class: "num right" }, flops(r.cost?.[0])), h("span", { class: "num right" }, bytes(r.cost?.[1])),
          h("span", { class: "num right" }, time(r.estimate)), h("span", { class: "num right" }, time(r.ns)), h("span", { class: "num right soft" }, time(r.mean)), h("span", { class: "num right soft" }, r.ns !== null && r.estimate ? `${(r.ns / r.estimate).toFixed(1)}×` : ""), h("span", { class: "num right soft" }, r.ns !== null && total ? `${(100 * r.ns / total).toFixed(1)}%` : "")];
      return h("div", {}, h("div", { class: "cells", style: columns() }, cells));
    } });
    list.element.style.height = `${Math.min(460, 28 * rows.length + 4)}px`;
    list.show(rows.length);
    this.detail = h("div", { class: "detail", "aria-live": "polite" }, h("p", { class: "soft" }, "Choose a statement."));
    const head = h("div", { class: "head" }, h("div", { class: "cells", style: columns() }, (innerWidth < 640 ? ["statement", "fastest", "estimate"] : ["statement", "module and line", "FLOP", "bytes", "estimate", "fastest", "mean", "× estimate", "share"]).map((name, i) => h("span", { class: i > (innerWidth < 640 ? 0 : 1) ? "right" : null }, name))));
    return h("div", { class: "card" }, h("h2", {}, isMeasured ? `Statements: ${time(total)}, the fastest call of each` : "Statements: estimates"),
      h("p", { class: "lead" }, isMeasured ? `“× estimate” compares it with the roofline of ${entry.machine || "a machine that is not known"}. A region reads its arguments and writes its results once.` : `${entry.machine ? `The estimate is the roofline of ${entry.machine}. ` : ""}Nothing was measured: compile with transforms=[thunder.transforms.MeasureTransform()], or use python -m thunder report --measure.`),
      isMeasured && entry.machine ? this.roof(rows) : null, this.sums(rows, isMeasured), head, list.element, this.detail);
  }
  /* Sums over lines, over modules of which those that differ in a number are one, or over operators. */
  sums(rows, isMeasured) {
    if (!isMeasured) return null;
    const keys = {
      line: (row, place) => [place ? this.entry.line(place) : "without a line", this.entry.source(place)],
      module: (row, place) => [this.entry.moduleText(place).replace(/\b\d+\b/g, "*") || "without a module", ""],
      operator: row => [this.entry.symbol(row).split(".").at(-1), this.entry.symbol(row)],
    };
    const bars = h("div", { class: "bars", id: "sums" });
    const draw = by => {
      const groups = new Map();
      for (const r of rows) {
        const [key, title] = keys[by](r.row, this.entry.place(r.row));
        const group = groups.get(key) || groups.set(key, { key, title, forward: 0, backward: 0 }).get(key);
        group[r.trace] += r.ns || 0;
      }
      const all = group => group.forward + group.backward, sorted = [...groups.values()].sort((a, b) => all(b) - all(a)).slice(0, 12), most = all(sorted[0]) || 1;
      bars.replaceChildren(...sorted.flatMap(group => [h("code", { class: "name", title: group.title || group.key }, group.key),
        h("span", {}, h("span", { class: "meter", dot: "var(--c0)", style: `width:${98 * group.forward / most}%` }), h("span", { class: "meter", dot: "var(--c1)", style: `width:${98 * group.backward / most}%` })), h("span", { class: "num right" }, time(all(group)))]));
    };
    draw("line");
    return h("div", { style: "margin:12px 0 18px" }, h("div", { class: "bar" }, h("h3", {}, "Sums by"), segment("Sums by", ["line", "module", "operator"], "line", draw),
      h("div", { class: "legend" }, h("span", {}, dotOf("var(--c0)"), "forward"), h("span", {}, dotOf("var(--c1)"), "backward"))), bars);
  }
  roof(rows) {
    const points = rows.filter(r => r.ns && r.cost?.[0]).map(r => ({ x: r.cost[0] / r.cost[1], y: r.cost[0] / r.ns * 1e9, label: `${this.entry.text(r.row)}\n${time(r.ns)}`, dot: colour(this.entry.executor(r.row)), r }));
    if (!points.length) return null;
    const [peak, bandwidth] = this.entry.rates, roof = peak && bandwidth ? { flops: peak, bandwidth } : null;
    return h("div", {}, h("h3", {}, "Roofline"), h("p", { class: "soft" }, "The fastest call of each statement with matrix products. The line is what the machine reaches at most."), roofline({ points, roof, choose: p => this.describe(p.r) }));
  }
  describe(r) {
    const { entry } = this, place = entry.place(r.row);
    this.detail.replaceChildren(h("div", { class: "bar" }, h("h3", {}, entry.symbol(r.row).split(".").at(-1)), h("button", { type: "button", onclick: () => this.page.open("program", view => view.reveal(r.trace, { position: r.i })) }, "Show in the trace")),
      facts([["statement", h("code", {}, entry.text(r.row))], ["line", place ? [`${entry.line(place)}  `, h("code", { class: "soft" }, entry.source(place))] : ""], ["module", entry.moduleText(place)]]));
  }
}
