"use strict";
/* Elements, numbers as text, and lists of which only the visible rows exist. */

function h(tag, attributes = {}, ...children) {
  const element = tag.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dot") element.style.setProperty("--dot", value);
    else if (name === "style") element.style.cssText += value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(4).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

const parsed = new Map();
function data(id) {
  if (!parsed.has(id)) parsed.set(id, JSON.parse(document.getElementById(id).textContent));
  return parsed.get(id);
}

function scaled(value, units, step) {
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) { value /= step; unit += 1; }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}
const bytes = n => n === null || n === undefined ? "–" : scaled(n, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const time = ns => ns === null || ns === undefined ? "–" : scaled(ns, ["ns", "µs", "ms", "s"], 1000);
const count = n => n === null || n === undefined ? "–" : Number(n).toLocaleString("en");
const flops = n => n === null || n === undefined ? "–" : n === 0 ? "0" : scaled(n, ["", "K", "M", "G", "T", "P"], 1000).trim();

const palette = new Map();
function colour(name) {
  const first = { torch: 0, inductor: 1, python: 7, nvfuser: 2, triton: 3, "": 7 };
  if (!palette.has(name)) palette.set(name, name in first ? first[name] : 2 + (palette.size % 5));
  return `var(--c${palette.get(name)})`;
}
const dot = name => h("i", { class: "dot", dot: colour(name), "aria-hidden": true });

/* A line of a trace as spans: strings, numbers, words of Python, what it binds. */
const TOKEN = /("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(#.*$)|\b(\d[\d.]*(?:e[+-]?\d+)?)\b|\b(return|del|with|None|True|False|import|from|def|for|in|if|is|not|raise|lambda)\b/g;
function highlighted(text) {
  const spans = [];
  const [, left = ""] = /^([\w\[\](), ]+?) = /.exec(text) || [];
  if (left) spans.push(h("span", { class: "d" }, left));
  const rest = text.slice(left.length);
  let from = 0;
  for (const match of rest.matchAll(TOKEN)) {
    spans.push(rest.slice(from, match.index), h("span", { class: match[1] ? "s" : match[2] ? "c" : match[3] ? "m" : "k" }, match[0]));
    from = match.index + match[0].length;
  }
  return [...spans, rest.slice(from)];
}

/* Rows of one height in a box that scrolls; keys move the chosen row, which is the list's active descendant. */
class List {
  constructor({ label, height = 22, fit = false, className = "tall", render, choose, key }) {
    Object.assign(this, { height, render, choose, key, count: 0, chosen: -1, shown: new Map() });
    this.id = `list-${List.number = (List.number || 0) + 1}`;
    this.rows = h("div", { class: "rows", role: "presentation" });
    this.element = h("div", { class: `list ${className} ${fit ? "fit" : ""}`, tabindex: 0, role: "listbox", "aria-label": label,
      onscroll: () => this.draw(), onkeydown: event => this.press(event) }, this.rows);
    new ResizeObserver(() => this.draw()).observe(this.element);
  }
  show(count, keep = false) {
    this.count = count;
    this.rows.style.height = `${count * this.height}px`;
    if (!keep) { this.chosen = -1; this.element.scrollTop = 0; }
    this.redraw();
  }
  redraw() { this.rows.replaceChildren(); this.shown.clear(); this.draw(); }
  draw() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - 8);
    const last = Math.min(this.count, Math.ceil((this.element.scrollTop + this.element.clientHeight) / this.height) + 8);
    for (const [i, row] of this.shown) if (i < first || i >= last) { row.remove(); this.shown.delete(i); }
    for (let i = first; i < last; i++) {
      if (this.shown.has(i)) continue;
      const row = this.render(i);
      row.classList.add("row");
      row.id = `${this.id}-${i}`;
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(i === this.chosen));
      row.classList.toggle("chosen", i === this.chosen);
      row.style.cssText += `;top:${i * this.height}px;height:${this.height}px`;
      row.addEventListener("click", () => this.pick(i));
      this.shown.set(i, row);
      this.rows.append(row);
    }
  }
  pick(i) {
    if (i < 0 || i >= this.count) return;
    this.chosen = i;
    this.element.setAttribute("aria-activedescendant", `${this.id}-${i}`);
    this.redraw();
    this.choose?.(i);
  }
  reach(i, middle = false) {
    const top = i * this.height, room = this.element.clientHeight;
    if (middle || top < this.element.scrollTop || top + this.height > this.element.scrollTop + room)
      this.element.scrollTop = middle ? top - room / 2 : top < this.element.scrollTop ? top : top + this.height - room;
    this.draw();
  }
  press(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) {
      event.preventDefault();
      const next = Math.max(0, Math.min(this.count - 1, this.chosen + moves[event.key]));
      this.pick(next);
      this.reach(next);
    } else if (this.key?.(event, this.chosen)) event.preventDefault();
  }
}

function segment(label, names, current, choose) {
  const group = h("div", { class: "segment", role: "radiogroup", "aria-label": label });
  const buttons = names.map(name => h("button", { type: "button", role: "radio", "aria-checked": String(name === current),
    tabindex: name === current ? 0 : -1, onclick: () => set(name) }, name));
  function set(name, focus) {
    names.forEach((other, i) => {
      buttons[i].setAttribute("aria-checked", String(other === name));
      buttons[i].tabIndex = other === name ? 0 : -1;
      if (focus && other === name) buttons[i].focus();
    });
    choose(name);
  }
  group.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const now = buttons.findIndex(button => button.getAttribute("aria-checked") === "true");
    set(names[(now + step + names.length) % names.length], true);
  });
  group.append(...buttons);
  return group;
}

function toggle(label, pressed, change, attributes = {}) {
  const button = h("button", { type: "button", "aria-pressed": String(pressed), ...attributes, onclick: () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    change(on);
  } }, label);
  return button;
}

const figure = (value, label, title) => h("div", { class: "figure", title }, h("b", {}, value), h("span", {}, label));
const table = (heads, rows) => h("div", { class: `scroll ${heads.length > 4 ? "many" : ""}` }, h("table", {},
  h("thead", {}, h("tr", {}, heads.map(([name, number]) => h("th", { class: number ? "num" : null, scope: "col" }, name)))),
  h("tbody", {}, rows.map(cells => h("tr", {}, cells.map((cell, i) => h("td", { class: heads[i][1] ? "num" : null }, cell)))))));
const facts = pairs => h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== "").map(
  ([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

/* One entry with what the views ask of it. */
class EntryData {
  constructor(program, entry) {
    Object.assign(this, data(`entry-${program}-${entry}`));
    this.summary = data("summary").programs[program].entries[entry];
    this.traceOf = Object.fromEntries(this.traces.map(trace => [trace.name, trace]));
  }
  text(row) { return this.rows[row][0]; }
  symbol(row) { return this.symbols[this.rows[row][1]]; }
  executor(row) { return this.executors[this.rows[row][3]]; }
  kind(row) { return this.kinds[this.rows[row][4]]; }
  parts(row) { return this.rows[row][5]; }
  place(row) { return this.places[this.rows[row][2]] || null; }
  final(name) { return this.traceOf[name]?.stages.at(-1).statements || []; }
  line(place) {
    if (!place) return "";
    const file = data("summary").files[place[0]];
    return `${file.name}:${place[1]}`;
  }
  source(place) {
    const file = place && data("summary").files[place[0]];
    const html = file && file.lines[place[1] - file.first];
    return html ? new DOMParser().parseFromString(html, "text/html").body.textContent.trim() : "";
  }
  moduleText(place) { return place ? place[3] : ""; }
  outputs(row) {
    const [, left = ""] = /^([\w\[\](), ]+?) = /.exec(this.text(row)) || [];
    return left.match(/[A-Za-z]\w*/g) || [];
  }
  inputs(row) {
    const right = this.text(row).replace(/^[\w\[\](), ]+? = /, "").replace(/ # .*$/, "").replace(/"[^"]*"|'[^']*'/g, "");
    const open = right.indexOf("(");
    return [...new Set((open < 0 ? right : right.slice(open)).match(/(?<![\w.])[A-Za-z_]\w*(?!\s*=[^=])(?![\w(.])/g) || [])];
  }
}
