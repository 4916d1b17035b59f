/* Memory: what is alive while each statement runs, at the peak, and for the backward. */

class MemoryView {
  constructor(entry, page) {
    Object.assign(this, { entry, page });
    const m = entry.memory, forward = m.forward.length, total = values => values.map(v => v === null ? null : v + m.inputs);
    const has = m.measured_forward.length + m.measured_backward.length > 0;
    const series = [{ name: "estimate", className: "estimate", values: total([...m.forward, ...m.backward]) }];
    if (has) series.push({ name: "measured", className: "measured", values: [...m.measured_forward, ...m.measured_backward].map(v => v === null ? null : m.measured_with_inputs ? v : v + m.inputs) });
    const peak = m.peak_trace === "backward" ? forward + m.peak_index : m.peak_index;
    const most = has ? series[1].values.reduce((a, v) => Math.max(a, v ?? 0), 0) : null;
    const shift = withInputs => series.map(s => ({ ...s, values: withInputs ? s.values : s.values.map(v => v === null ? null : v - m.inputs) }));
    const make = withInputs => curve({ series: shift(withInputs), base: withInputs ? m.inputs : 0, mark: peak, unit: bytes, label: "Bytes alive while each statement runs",
      bands: [{ from: 0, label: "forward" }, ...(m.backward.length ? [{ from: forward, label: "backward" }] : [])],
      choose: i => page.open("program", view => view.reveal(i < forward ? "forward" : "backward", { position: i < forward ? i : i - forward })) });
    const box = h("div"), readout = h("div");
    const draw = withInputs => { const [chart, text] = make(withInputs); box.replaceChildren(chart); readout.replaceChildren(text); };
    draw(false);
    this.element = h("section", {},
      h("div", { class: "figures", style: "margin-bottom:14px" }, figure(bytes(m.peak), has ? "peak, estimated" : "peak, estimated (nothing was measured)"), has ? figure(bytes(most), "peak, measured") : null,
        figure(bytes(m.inputs), "inputs and parameters"), figure(bytes(m.holders.reduce((a, x) => a + x.nbytes, 0)), "computed, alive at the peak"), m.backward.length ? figure(bytes(m.saved.reduce((a, x) => a + x.nbytes, 0)), "saved for the backward") : null),
      h("div", { class: "card" }, h("h2", {}, "Over the statements"), h("div", { class: "bar" }, segment("What is shown", ["computed", "with inputs"], "computed", name => draw(name !== "computed")), h("span", { class: "soft" }, `Choose a point to see its statement.${entry.summary.sizes.some(s => s.is_free) ? " The estimate is for the sizes of the call that compiled it." : ""}`)), box,
        h("div", { class: "legend" }, h("span", {}, dotOf("var(--c0)"), "estimated"), has ? h("span", {}, dotOf("var(--c1)"), "measured in the last call") : null), readout),
      h("div", { class: "grid", style: "margin-top:14px" }, this.atPeak(m), m.saved.length ? this.saved(m) : null));
  }
  atPeak(m) {
    const list = h("div"), keys = {
      line: place => place ? `${place[0]}:${place[1]}` : "",
      module: place => this.entry.moduleText(place).replace(/\b\d+\b/g, "*"),
    };
    const name = (by, group) => by === "line" ? [h("code", {}, group.place ? this.entry.line(group.place) : "without a line"), " ", h("code", { class: "soft" }, this.entry.source(group.place))] : h("code", {}, group.key || "without a module");
    const draw = by => {
      const groups = new Map();
      for (const holder of m.holders) {
        const place = this.entry.places[holder.place], key = keys[by](place);
        const group = groups.get(key) || groups.set(key, { key, place, nbytes: 0, holders: [] }).get(key);
        group.nbytes += holder.nbytes;
        group.holders.push(holder);
      }
      const sorted = [...groups.values()].sort((a, b) => b.nbytes - a.nbytes), most = sorted[0]?.nbytes || 1;
      list.replaceChildren(...sorted.slice(0, 40).map(group => {
        const details = h("details", {}, h("summary", {}, h("span", { class: "meter", style: `width:${Math.max(2, 130 * group.nbytes / most)}px` }), " ", h("b", { class: "num" }, bytes(group.nbytes)), " ", name(by, group)));
        details.addEventListener("toggle", () => { // its table is made when it is first opened
          if (details.open && details.children.length === 1) details.append(table([["tensor"], ["bytes", true], ["type"], ["module"], [""]], group.holders.slice(0, 60).map(x => [h("code", { class: "whole" }, x.name), bytes(x.nbytes), h("code", { class: "soft whole" }, x.type), h("code", {}, this.entry.moduleText(this.entry.places[x.place])), this.jump(x.name)])));
        });
        return details;
      }));
      if (!sorted.length) list.replaceChildren(h("p", { class: "empty" }, "Nothing but the inputs."));
    };
    draw("line");
    return h("div", { class: "card" }, h("div", { class: "bar" }, h("h2", {}, "Alive at the peak, by"), segment("Alive at the peak, by", ["line", "module"], "line", draw)), list);
  }
  jump(name) {
    const output = name.replace(" (workspace)", "");
    const trace = this.entry.final("forward").some(row => this.has(row, output)) ? "forward" : "backward";
    return h("button", { class: "link", type: "button", onclick: () => this.page.open("program", view => view.reveal(trace, { output })) }, "in the trace");
  }
  has(row, name) { return this.entry.outputs(row).includes(name) || (this.entry.kind(row) === "region" && this.entry.parts(row).some(part => this.has(part, name))); }
  saved(m) {
    const list = h("div");
    const draw = all => list.replaceChildren(table([["tensor"], ["bytes", true], ["type"], ["from"], ["computed again it takes"], ["read in the backward by"]], m.saved.slice(0, all ? 2000 : 25).map(x => {
      const place = this.entry.places[x.place];
      return [h("code", { class: "whole" }, x.name), x.shares ? h("span", { class: "faint" }, `0 (${x.shares})`) : bytes(x.nbytes), h("code", { class: "soft whole" }, x.type), [h("code", {}, this.entry.moduleText(place)), " ", h("span", { class: "faint" }, this.entry.line(place))],
        x.again ? h("span", { class: "num soft whole" }, x.again[0] ? `${flops(x.again[0])} FLOP, ${bytes(x.again[1])}` : bytes(x.again[1])) : h("span", { class: "faint" }, x.statement ? "other random numbers" : ""),
        x.readers.length ? x.readers.map(text => h("div", {}, h("code", {}, text.replace(/\s+# .*$/, "")))) : h("span", { class: "faint" }, "a result that is passed on")];
    })), !all && m.saved.length > 25 ? h("button", { type: "button", onclick: () => draw(true) }, `All ${m.saved.length}`) : "");
    draw(false);
    return h("div", { class: "card" }, h("h2", {}, "Saved for the backward"), h("p", { class: "lead" }, "A tensor is saved because statements of the backward read it, and computing it again from what is kept costs operations and reads bytes. Inputs and views take no memory of their own."), list);
  }
}
const dotOf = value => h("i", { class: "dot", dot: value, "aria-hidden": true });
