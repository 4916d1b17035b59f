/* All processes of a program: what each computes and communicates, on one time line. */

class RanksView {
  constructor() {
    const ranks = data("summary").ranks, names = [...new Set(ranks.flatMap(rank => rank.programs.map(program => program.name)))];
    const missing = data("summary").processes - ranks.length;
    this.element = h("section", {}, missing > 0 ? h("div", { class: "note" }, `${missing} of ${data("summary").processes} processes have written nothing.`) : null,
      names.length ? names.map(name => this.program(name, ranks)) : h("p", { class: "empty" }, "No program has collectives."));
  }
  program(name, ranks) {
    const found = ranks.map(rank => ({ rank: rank.rank, ...rank.programs.find(program => program.name === name) })).filter(rank => rank.network);
    const measured = found.every(rank => rank.measured), text = value => measured ? time(value) : count(Math.round(value));
    const groups = new Map();
    for (const rank of found) for (const event of rank.network) {
      const key = `${event.trace} ${event.name} ${event.group}`, group = groups.get(key) || groups.set(key, { event, n: 0, bytes: 0, flight: 0 }).get(key);
      group.n++; group.bytes += event.bytes; group.flight += event.end - event.start;
    }
    return h("div", { class: "card", style: "margin-bottom:14px" }, h("h2", {}, name), h("p", { class: "lead" }, measured ? "Mean times of the statements. A collective is in flight from its call to the end of its wait." : "Nothing was measured: each statement has length 1, so that only the order is shown."),
      h("div", { class: "legend" }, h("span", {}, dotOf("var(--c0)"), "computes"), h("span", {}, dotOf("var(--c4)"), "waits"), h("span", {}, dotOf("var(--c2)"), "collectives in flight")),
      this.lanes(found, text),
      table([["process"], ["in all", true], ["in flight", true], ["waits", true], ["overlapped", true], ["bytes", true]], found.map(rank => [`rank ${rank.rank}`, text(rank.total), text(rank.in_flight), text(rank.exposed),
        rank.in_flight ? `${Math.max(0, 100 * (1 - rank.exposed / rank.in_flight)).toFixed(0)} %` : "–", bytes(rank.network.reduce((a, event) => a + event.bytes, 0))])),
      h("h3", { style: "margin-top:14px" }, "Collectives"), table([["collective"], ["function"], ["group"], ["calls of a process", true], ["bytes of a call", true], ["in flight, mean", true]], [...groups.values()].map(({ event, n, bytes: all, flight }) =>
        [h("code", {}, event.name), event.trace, h("code", { class: "soft" }, event.group), count(Math.round(n / found.length)), bytes(all / n), text(flight / n)])));
  }
  lanes(found, text) {
    const box = h("div", { class: "chart" }), left = 62, lane = 16, row = 52;
    const most = Math.max(...found.map(rank => rank.total)) || 1;
    const draw = () => {
      const width = Math.max(280, box.clientWidth || 900), height = row * found.length + 26, x = value => left + (width - left - 8) * value / most;
      const svg = h("svg:svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "Time line of the processes" });
      for (const value of ticks(most, 5)) svg.append(h("svg:line", { class: "tick", x1: x(value), x2: x(value), y1: 0, y2: height - 20 }), h("svg:text", { x: x(value), y: height - 6, "text-anchor": value ? "middle" : "start" }, text(value)));
      found.forEach((rank, i) => {
        const y = i * row + 4;
        svg.append(h("svg:text", { x: 0, y: y + 12 }, `rank ${rank.rank}`));
        for (const [start, end, waits] of rank.compute) svg.append(h("svg:rect", { x: x(start), width: Math.max(.5, x(end) - x(start)), y, height: lane, fill: waits ? "var(--c4)" : "var(--c0)" }, h("svg:title", {}, `${waits ? "waits" : "computes"} ${text(end - start)}`)));
        for (const event of rank.network) svg.append(h("svg:rect", { x: x(event.start), width: Math.max(1, x(event.end) - x(event.start)), y: y + lane + 3, height: lane, fill: "var(--c2)", "fill-opacity": .7, stroke: "var(--card)" }, h("svg:title", {}, `${event.name} ${bytes(event.bytes)} in group ${event.group}: ${text(event.end - event.start)}`)));
        svg.append(h("svg:line", { class: "axis", x1: x(rank.backward), x2: x(rank.backward), y1: y - 2, y2: y + 2 * lane + 6 }));
      });
      box.replaceChildren(svg);
    };
    new ResizeObserver(draw).observe(box);
    requestAnimationFrame(draw);
    return box;
  }
}
