/* When it compiles again: entries as a tree, what they depend on, and what was tried. */

class CompilesView {
  constructor(entry, page) {
    this.page = page;
    const program = page.program();
    const again = program.entries.filter(e => e.compile?.reasons.length).length;
    this.element = h("section", {},
      h("p", { class: "lead" }, program.entries.length < 2 ? "Every call was served by one entry." : `${program.entries.length} entries. Each was compiled because a call did not meet a fact of the one above it.`),
      h("ul", { class: "tree" }, this.branch(program.entries, null)),
      program.failures.length ? h("div", { style: "margin-top:22px" }, h("h2", {}, "Compiles that failed"), program.failures.map(f => h("div", { class: "note" }, h("b", {}, `Compile ${f.number}. `), f.error))) : null,
      this.guards(entry), again ? null : h("p", { class: "faint", style: "margin-top:10px" }, "An entry compiled before the plugin was loaded has no reasons here."));
  }
  branch(entries, parent) {
    const numbers = new Set(entries.map(e => e.number));
    const above = e => { const first = e.compile?.reasons[0]; return first && numbers.has(first.entry) && first.entry !== e.number ? first.entry : null; };
    return entries.filter(e => above(e) === parent).map(e => {
      const below = this.branch(entries, e.number);
      return h("li", {}, this.card(e, entries.indexOf(e)), below.length ? h("ul", {}, below) : null);
    });
  }
  card(e, index) {
    const current = index === this.page.entryIndex;
    const reasons = e.compile?.reasons || [];
    return h("div", { class: `entry ${current ? "current" : ""}` },
      h("div", { class: "bar", style: "margin:0" }, h("h3", {}, `Entry ${e.number}`), h("span", { class: "chip num" }, `used ${count(e.uses)}×`),
        h("span", { class: "chip num" }, `compiled in ${e.compile ? time(e.compile_ns) : "–"}`), h("span", { class: "chip num" }, `${count(e.guards)} guards`),
        current ? h("span", { class: "soft" }, "shown") : h("button", { type: "button", onclick: () => this.page.chooseEntry(index) }, "Show")),
      reasons.map(r => h("div", { class: "change" }, h("span", { class: "soft" }, r.entry === null ? "not the entry above:" : `not entry ${r.entry}:`), h("b", {}, r.fact),
        h("span", { class: "was", title: "expected" }, r.expected), "→", h("span", { class: "is", title: "found" }, r.found),
        r.now_free.length ? h("span", { class: "chip" }, `symbolic from now on: ${r.now_free.join(", ")}`) : null)),
      e.decisions.length ? h("div", { class: "change" }, h("span", { class: "soft" }, "for the answers"), e.decisions.map(d => h("span", {}, h("code", {}, d.question), " ", h("span", { class: "is" }, d.answer)))) : null,
      e.sizes.map(s => h("div", { class: "change" }, h("span", { class: "soft" }, s.is_free ? "symbolic size" : "size that the program fixes"), h("code", {}, s.source),
        s.facts.length ? s.facts.map(f => h("span", { class: "chip mono" }, f)) : h("span", { class: "faint" }, "any value"))),
      (e.compile?.tried || []).map(t => h("div", { class: "change soft" }, `given up: ${t}`)));
  }
  guards(entry) {
    let shown = entry.guards;
    const list = new List({ label: "Guards", height: 26, fit: true, className: "guards", render: i => h("div", {}, h("div", { class: "cells", style: "grid-template-columns:minmax(0,3fr) minmax(0,2fr)" }, h("span", { title: shown[i][0] }, shown[i][0]), h("span", { class: "soft mono", title: shown[i][1] }, shown[i][1]))) });
    list.element.style.height = "300px";
    const status = h("span", { class: "soft num", role: "status" });
    const filter = query => { shown = entry.guards.filter(row => row.join(" ").toLowerCase().includes(query)); status.textContent = `${shown.length} of ${entry.guards.length}`; list.show(shown.length); };
    filter("");
    return h("div", { style: "margin-top:24px" }, h("div", { class: "bar" }, h("h2", {}, `Guards of entry ${entry.number}`), h("input", { type: "search", placeholder: "Fact or path", "aria-label": "Search guards", oninput: event => filter(event.target.value.toLowerCase()) }), status),
      list.element);
  }
}
