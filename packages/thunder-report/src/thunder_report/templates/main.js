/* The page: which program, entry and view are shown; keys; light and dark. */

class OverviewView {
  constructor(entry, page) {
    const program = page.program(), m = entry.memory, s = entry.summary, summary = data("summary");
    const run = entry => (entry.statements.forward || 0) + (entry.statements.backward || 0), statements = run(s), calls = Object.entries(s.executors).sort((a, b) => b[1] - a[1]);
    const question = (text, view, what) => h("tr", {}, h("td", {}, h("button", { class: "link", type: "button", onclick: () => page.open(view) }, text)), h("td", { class: "soft" }, what));
    const measured = Object.values(entry.measured).flat().filter(Boolean).reduce((a, x) => a + x[2], 0);
    const reason = program.entries.flatMap(e => e.compile?.reasons || []).at(-1);
    this.element = h("section", {}, summary.notes.map(note => h("div", { class: "note" }, note)),
      h("div", { class: "figures", style: "margin-bottom:14px" }, figure(count(program.calls), `calls, ${count(program.hits)} of them hits`), figure(count(program.entries.length), "entries"),
        figure(s.compile ? time(s.compile_ns) : "–", `compile of entry ${s.number}`), figure(count(statements), "statements of forward and backward"), figure(bytes(m.peak), "memory at the peak"), measured ? figure(time(measured), "in statements, fastest calls") : null),
      h("div", { class: "grid" },
        h("div", { class: "card half" }, h("h2", {}, "Questions"), h("table", {}, h("tbody", {},
          question("Why did it compile again?", "compiles", reason ? `${reason.fact}: ${reason.expected} → ${reason.found}` : "it did not"),
          question("Which executor runs what, and why not mine?", "executors", calls.map(([name, n]) => `${name} ${n}`).join(", ")),
          question("Where does memory peak?", "memory", this.peakText(entry)),
          question("What became of my line?", "program", `${entry.traceOf.forward.stages.length} stages, each beside the source`),
          question("Where does the time go?", "time", measured ? "measured, beside a roofline" : "estimates; nothing was measured")))),
        h("div", { class: "card half" }, h("h2", {}, program.name), facts([["defined at", program.place], ["entries are found by", program.cache], ["executors", program.executors.join(", ")], ["transforms", program.transforms.join(", ")], ["runs by Python", program.python_runs ? count(program.python_runs) : ""]]),
          h("h3", { style: "margin-top:12px" }, "Calls by executor"), h("div", { class: "strip", role: "img", "aria-label": calls.map(([name, n]) => `${name} ${n}`).join(", ") }, calls.map(([name, n]) => h("i", { dot: colour(name), style: `flex:${n}`, title: `${name}: ${n}` }))),
          h("div", { class: "legend" }, calls.map(([name, n]) => h("span", {}, dot(name), `${name} ${count(n)}`)))),
        h("div", { class: "card" }, h("h2", {}, "Programs"), table([["program"], ["defined at"], ["calls", true], ["entries", true], ["compiled in", true], ["statements", true], ["failed", true]], summary.programs.map((p, i) => [
          h("button", { class: "link", type: "button", onclick: () => page.chooseProgram(i) }, p.name), h("code", { class: "soft" }, p.place), count(p.calls), count(p.entries.length), time(p.entries.reduce((a, e) => a + e.compile_ns, 0)), count(p.entries.reduce((a, e) => a + run(e), 0)), count(p.failures.length)])))));
  }
  peakText(entry) {
    const m = entry.memory, row = entry.final(m.peak_trace)[m.peak_index];
    if (row === undefined) return bytes(m.peak);
    const place = entry.place(row);
    return `${bytes(m.peak)} at ${place ? entry.line(place) : entry.symbol(row)}, ${m.peak_trace}`;
  }
}

class Page {
  constructor() {
    this.summary = data("summary");
    this.views = [["overview", "Overview", OverviewView], ["program", "Program", ProgramView], ["executors", "Who runs what", ExecutorsView], ["compiles", "Compiles", CompilesView], ["memory", "Memory", MemoryView], ["time", "Time", TimeView]];
    if (this.summary.ranks) this.views.push(["ranks", "Ranks", RanksView]);
    this.programIndex = Math.max(0, this.summary.programs.findIndex(p => p.entries.length));
    this.entryIndex = this.mostUsed();
    this.made = new Map();
    this.place = document.getElementById("view");
    this.tabs = this.views.map(([id, name]) => h("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": "view", onclick: () => this.open(id) }, name));
    document.getElementById("tabs").append(...this.tabs);
    document.getElementById("tabs").addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = this.tabs[(this.tabs.indexOf(document.activeElement) + step + this.tabs.length) % this.tabs.length];
      next.focus();
      next.click();
      event.preventDefault();
    });
    this.place.setAttribute("role", "tabpanel");
    this.programChoice = document.getElementById("choose-program");
    this.entryChoice = document.getElementById("choose-entry");
    this.programChoice.append(...this.summary.programs.map((p, i) => h("option", { value: i }, p.name)));
    this.programChoice.addEventListener("change", () => this.chooseProgram(Number(this.programChoice.value)));
    this.entryChoice.addEventListener("change", () => this.chooseEntry(Number(this.entryChoice.value)));
    this.fillEntries();
    addEventListener("keydown", event => this.press(event));
    addEventListener("hashchange", () => { const id = location.hash.slice(1); if (id !== this.current && this.views.some(view => view[0] === id)) this.open(id); });
    let narrow = innerWidth < 640;
    addEventListener("resize", () => { if (narrow !== innerWidth < 640) { narrow = !narrow; this.made.clear(); this.open(this.current); } });
    this.open(this.views.some(([id]) => id === location.hash.slice(1)) ? location.hash.slice(1) : "overview");
  }
  /* The entry that served most calls, of several the newest. */
  mostUsed() { return Math.max(0, (this.program()?.entries || []).reduce((best, e, i, all) => e.uses >= (all[best]?.uses ?? -1) ? i : best, 0)); }
  program() { return this.summary.programs[this.programIndex]; }
  fillEntries() {
    this.programChoice.value = String(this.programIndex);
    const entries = this.program()?.entries || [];
    this.entryChoice.replaceChildren(...entries.map((e, i) => h("option", { value: i }, `${e.number} · used ${e.uses}×`)));
    this.entryChoice.value = String(this.entryIndex);
  }
  chooseProgram(i) { this.programIndex = i; this.chooseEntry(this.mostUsed()); }
  chooseEntry(i) { this.entryIndex = i; this.made.clear(); this.fillEntries(); this.open(this.current); }
  open(id, then) {
    this.current = id;
    this.views.forEach(([name], i) => { this.tabs[i].setAttribute("aria-selected", String(name === id)); this.tabs[i].tabIndex = name === id ? 0 : -1; });
    this.place.setAttribute("aria-labelledby", `tab-${id}`);
    if (location.hash.slice(1) !== id) history.replaceState(null, "", `#${id}`);
    if (!this.program()?.entries.length) { this.place.replaceChildren(this.nothing()); return; }
    if (!this.made.has(id)) {
      this.entry ||= null;
      if (!this.entry || this.entry.key !== `${this.programIndex}-${this.entryIndex}`) { this.entry = new EntryData(this.programIndex, this.entryIndex); this.entry.key = `${this.programIndex}-${this.entryIndex}`; }
      this.made.set(id, new (this.views.find(([name]) => name === id)[2])(this.entry, this));
    }
    const view = this.made.get(id);
    this.place.replaceChildren(view.element);
    if (then) then(view);
    scrollTo(0, 0);
  }
  nothing() {
    return h("section", {}, this.summary.notes.map(note => h("div", { class: "note" }, note)), h("p", { class: "empty" }, this.program() ? "Nothing of this program was compiled." : "The program compiled nothing."),
      (this.program()?.failures || []).map(f => h("div", { class: "note" }, h("b", {}, `Compile ${f.number} failed. `), f.error)));
  }
  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "Escape" && typing) document.activeElement.blur();
    if (typing) return;
    if (event.key === "/") { const input = this.place.querySelector("input[type=search]"); if (input) { input.focus(); input.select(); event.preventDefault(); } }
    const number = Number(event.key);
    if (number >= 1 && number <= this.views.length) this.open(this.views[number - 1][0]);
  }
}

const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)"), themeButton = document.getElementById("theme");
function setTheme(theme) { root.dataset.theme = theme; themeButton.textContent = theme === "dark" ? "☀" : "☾"; }
setTheme(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
themeButton.addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
const page = new Page();
