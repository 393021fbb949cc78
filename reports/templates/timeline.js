// The timeline of a history: lanes by process, one block per operation, faults shaded. Times are in microseconds.
"use strict";

const LANE = 17, TOP = 26, BLOCK = 11, NARROWEST = 20;
const COLOURS = ["--blue", "--amber", "--red"];          // ok, info, fail
const SHADES = { kill: "--red", bounce: "--red", pause: "--amber" };

function seconds(us, digits) { return (us / 1e6).toFixed(digits === undefined ? 3 : digits) + " s"; }
function clamp(value, low, high) { return Math.min(Math.max(value, low), high); }

// Round steps of time, so that about eight of them fit.
function step(span) {
  const rough = span / 8, power = Math.pow(10, Math.floor(Math.log10(rough)));
  return [1, 2, 5, 10].map(f => f * power).find(candidate => candidate >= rough);
}

class Timeline {
  constructor(root) {
    this.root = root;
    this.data = JSON.parse(root.querySelector("script").textContent);
    this.main = root.querySelector("canvas.main");
    this.overview = root.querySelector("canvas.overview");
    this.tip = root.querySelector(".tip");
    this.unpack();
    this.all = { from: 0, to: Math.max(this.data.duration, NARROWEST) };
    this.view = { ...this.all };
    this.chosen = -1;
    this.listen();
    this.draw();
  }

  unpack() {
    const d = this.data;
    let now = 0;
    this.start = d.start.map(difference => (now += difference));
    this.end = this.start.map((start, n) => d.length[n] < 0 ? d.duration : start + d.length[n]);
    const serious = d.findings.filter(f => f.severity !== "information");
    this.findings = serious.length ? serious : d.findings;
    this.witness = new Set(d.findings.flatMap(f => f.operations));
    this.place = new Map(d.index.map((index, n) => [index, n]));
    for (const button of this.root.querySelectorAll("[data-do=first], [data-do=next], [data-do=previous]"))
      button.disabled = !this.findings.length;
  }

  // -- input -------------------------------------------------------------------------

  listen() {
    const actions = {
      first: () => this.jump(0), next: () => this.jump(this.chosen + 1), previous: () => this.jump(this.chosen - 1),
      in: () => this.zoom(0.5), out: () => this.zoom(2), fit: () => this.show(this.all.from, this.all.to),
      left: () => this.pan(-0.2), right: () => this.pan(0.2),
    };
    const keys = {
      n: "next", p: "previous", f: "first", "+": "in", "=": "in", "-": "out", Home: "fit", 0: "fit",
      ArrowLeft: "left", ArrowRight: "right",
    };
    this.root.addEventListener("click", event => {
      const button = event.target.closest("[data-do]");
      if (button) actions[button.dataset.do]();
    });
    this.main.addEventListener("keydown", event => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      event.preventDefault();
      actions[keys[event.key]]();
    });
    this.main.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey) return;      // a plain wheel scrolls the page
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY / 200), this.timeAt(event.offsetX));
    }, { passive: false });
    this.main.addEventListener("dblclick", event => this.zoom(0.4, this.timeAt(event.offsetX)));
    this.drags(this.main, (dx, width) => this.shift(-dx * (this.view.to - this.view.from) / width));
    this.overview.addEventListener("pointerdown", event => this.centre(event));
    this.overview.addEventListener("pointermove", event => { if (event.buttons) this.centre(event); });
    this.main.addEventListener("pointermove", event => this.hover(event));
    this.main.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.main.parentElement.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  drags(canvas, move) {
    let last = null;
    canvas.addEventListener("pointerdown", event => { last = event.clientX; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { last = null; });
    canvas.addEventListener("pointercancel", () => { last = null; });
    canvas.addEventListener("pointermove", event => {
      if (last === null) return;
      move(event.clientX - last, this.width - this.left);
      last = event.clientX;
    });
  }

  centre(event) {
    const half = (this.view.to - this.view.from) / 2;
    const at = clamp((event.offsetX - this.left) / (this.width - this.left), 0, 1) * this.all.to;
    this.show(at - half, at + half);
  }

  show(from, to) {
    const span = clamp(to - from, NARROWEST, this.all.to);
    const start = clamp(from, 0, this.all.to - span);
    this.view = { from: start, to: start + span };
    this.draw();
  }

  shift(by) { this.show(this.view.from + by, this.view.to + by); }
  pan(share) { this.shift(share * (this.view.to - this.view.from)); }

  zoom(factor, around) {
    const centre = around === undefined ? (this.view.from + this.view.to) / 2 : around;
    const span = clamp((this.view.to - this.view.from) * factor, NARROWEST, this.all.to);
    const share = (centre - this.view.from) / (this.view.to - this.view.from);
    this.show(centre - share * span, centre + (1 - share) * span);
  }

  jump(number) {
    if (!this.findings.length) return;
    this.chosen = (number + this.findings.length) % this.findings.length;
    const finding = this.findings[this.chosen];
    const margin = Math.max((finding.end - finding.start) * 0.25, this.data.duration / 300, 500);
    this.show(finding.start - margin, finding.end + margin);
    const lanes = finding.operations.filter(index => this.place.has(index)).map(index => this.data.lane[this.place.get(index)]);
    const box = this.main.parentElement;
    if (lanes.length) box.scrollTop = TOP + Math.min(...lanes) * LANE - box.clientHeight / 3;   // draws again
    const where = this.root.querySelector(".where");
    where.textContent = `${this.chosen + 1} of ${this.findings.length}: `;
    const link = document.createElement("a");
    link.href = `#${this.root.id}-finding-${finding.number}`;
    link.textContent = finding.title;
    where.append(link);
  }

  jumpTo(number) {
    const place = this.findings.findIndex(f => f.number === number);
    if (place < 0) return;
    this.jump(place);
    this.main.focus({ preventScroll: true });
    this.root.scrollIntoView({ block: "start" });
  }

  // -- drawing -----------------------------------------------------------------------

  timeAt(x) { return this.view.from + (x - this.left) / (this.width - this.left) * (this.view.to - this.view.from); }
  x(time) { return this.left + (time - this.view.from) / (this.view.to - this.view.from) * (this.width - this.left); }

  colour(name) { return getComputedStyle(this.root).getPropertyValue(name).trim(); }

  prepare(canvas, height) {
    const ratio = window.devicePixelRatio || 1, width = canvas.parentElement.clientWidth;
    canvas.width = width * ratio; canvas.height = height * ratio;
    canvas.style.width = width + "px"; canvas.style.height = height + "px";
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "middle";
    this.width = width; this.left = clamp(width * 0.18, 76, 170);
    return pen;
  }

  draw() {
    this.drawOverview();
    const height = TOP + this.data.lanes.length * LANE + 6, pen = this.prepare(this.main, height);
    const ink = { soft: this.colour("--soft"), line: this.colour("--line"), ink: this.colour("--ink"), bad: this.colour("--bad") };
    pen.save();
    pen.beginPath(); pen.rect(this.left, 0, this.width - this.left, height); pen.clip();
    const top = this.main.parentElement.scrollTop;       // keep the axis visible
    this.shadeFaults(pen, height);
    this.data.lanes.forEach((_, n) => { pen.fillStyle = ink.line; pen.fillRect(this.left, TOP + n * LANE + LANE / 2, this.width, 1); });
    const shown = this.drawBlocks(pen);
    this.drawChosen(pen, height, ink);
    pen.fillStyle = this.colour("--card"); pen.fillRect(this.left, top, this.width, TOP - 1);
    this.drawTimes(pen, height, top, ink);
    this.nameFaults(pen, top, ink);
    pen.restore();
    pen.fillStyle = ink.soft;
    this.data.lanes.forEach((name, n) => this.label(pen, name, TOP + n * LANE + LANE / 2 + 1));
    Object.assign(this.root.dataset, {
      from: Math.round(this.view.from), to: Math.round(this.view.to), shown,
      finding: this.chosen < 0 ? "" : this.findings[this.chosen].number,
    });
  }

  label(pen, text, y) {
    let cut = text;
    while (cut.length > 3 && pen.measureText(cut).width > this.left - 8) cut = "…" + cut.slice(cut.startsWith("…") ? 2 : 1);
    pen.fillText(cut, 0, y);
  }

  // The faults in view, each with its left and right edge.
  faultsShown() {
    return this.data.faults.map(fault => ({ fault, a: this.x(fault.start), b: Math.max(this.x(fault.end), this.x(fault.start) + 2) }))
      .filter(({ a, b }) => b >= this.left && a <= this.width);
  }

  shadeFaults(pen, height) {
    pen.globalAlpha = 0.17;
    for (const { fault, a, b } of this.faultsShown()) {
      pen.fillStyle = this.colour(SHADES[fault.kind] || "--violet");
      pen.fillRect(a, 0, b - a, height);
    }
    pen.globalAlpha = 1;
  }

  nameFaults(pen, top, ink) {
    let free = -Infinity;
    pen.fillStyle = ink.ink;
    for (const { fault, a, b } of this.faultsShown()) {
      const at = Math.max(a, this.left) + 3;
      if (at <= free || b - a <= 24) continue;
      pen.fillText(fault.words, at, top + 7);
      free = at + pen.measureText(fault.words).width + 6;
    }
  }

  drawTimes(pen, height, top, ink) {
    const by = step(this.view.to - this.view.from), digits = clamp(6 - Math.floor(Math.log10(by)), 0, 6);
    for (let at = Math.ceil(this.view.from / by) * by; at <= this.view.to; at += by) {
      pen.fillStyle = ink.line; pen.fillRect(this.x(at), top + 13, 1, height);
      const text = seconds(at, digits), end = this.x(at) + 3 + pen.measureText(text).width;
      if (end < this.width) { pen.fillStyle = ink.soft; pen.fillText(text, this.x(at) + 3, top + 19); }
    }
  }

  drawBlocks(pen) {
    const d = this.data, colours = COLOURS.map(name => this.colour(name));
    let shown = 0;
    for (let n = 0; n < this.start.length; n++) {
      if (this.end[n] < this.view.from || this.start[n] > this.view.to) continue;
      const a = this.x(this.start[n]), open = d.length[n] < 0, y = TOP + d.lane[n] * LANE + (LANE - BLOCK) / 2;
      pen.fillStyle = colours[d.outcome[n]];
      pen.globalAlpha = open ? 0.35 : 0.8;
      pen.fillRect(a, open ? y + 4 : y, Math.max(this.x(this.end[n]) - a, 1.5), open ? 3 : BLOCK);
      shown += 1;
    }
    pen.globalAlpha = 1;
    for (const index of this.witness) this.outline(pen, index, this.colour("--bad"), 1);
    return shown;
  }

  outline(pen, index, colour, width) {
    const n = this.place.get(index);
    if (n === undefined || this.end[n] < this.view.from || this.start[n] > this.view.to) return;
    const a = this.x(this.start[n]), y = TOP + this.data.lane[n] * LANE + (LANE - BLOCK) / 2;
    pen.strokeStyle = colour; pen.lineWidth = width;
    pen.strokeRect(a - 2, y - 2, Math.max(this.x(this.end[n]) - a, 1.5) + 4, BLOCK + 4);
  }

  drawChosen(pen, height, ink) {
    if (this.chosen < 0) return;
    const finding = this.findings[this.chosen];
    pen.fillStyle = ink.bad; pen.globalAlpha = 0.6;
    for (const time of [finding.start, finding.end]) pen.fillRect(this.x(time), 13, 1, height);
    pen.globalAlpha = 1;
    for (const index of finding.operations) this.outline(pen, index, ink.ink, 2);
  }

  // All operations over time, without sampling, and the visible range.
  drawOverview() {
    const pen = this.prepare(this.overview, 46), d = this.data, most = Math.max(...d.density.counts, 1);
    const x = time => this.left + time / this.all.to * (this.width - this.left);
    for (const fault of d.faults) {
      pen.globalAlpha = 0.25; pen.fillStyle = this.colour(SHADES[fault.kind] || "--violet");
      pen.fillRect(x(fault.start), 0, Math.max(x(fault.end) - x(fault.start), 1.5), 46);
    }
    pen.globalAlpha = 0.75; pen.fillStyle = this.colour("--blue");
    d.density.counts.forEach((count, n) => {
      const a = x(n * d.density.width), high = count ? Math.max(count / most * 36, 1) : 0;
      pen.fillRect(a, 44 - high, Math.max(x((n + 1) * d.density.width) - a, 1), high);
    });
    pen.globalAlpha = 1; pen.fillStyle = this.colour("--bad");
    for (const finding of this.findings) pen.fillRect(x(finding.start) - 1, 0, 2, 7);
    pen.strokeStyle = this.colour("--ink"); pen.lineWidth = 1.5;
    pen.strokeRect(x(this.view.from), 1, Math.max(x(this.view.to) - x(this.view.from) - 1, 2), 44);
    pen.fillStyle = this.colour("--soft");
    this.label(pen, "all operations", 24);
  }

  // -- the operation under the pointer -------------------------------------------------------------

  under(x, y) {
    const lane = Math.floor((y - TOP) / LANE);
    let best = -1;
    for (let n = 0; n < this.start.length; n++) {
      if (this.data.lane[n] !== lane || this.x(this.start[n]) > x + 3 || this.x(this.end[n]) < x - 3) continue;
      if (best < 0 || this.witness.has(this.data.index[n]) || this.end[n] - this.start[n] < this.end[best] - this.start[best]) best = n;
      if (this.witness.has(this.data.index[best])) break;
    }
    return best;
  }

  words(n) {
    const d = this.data, first = d.first[n], last = first + d.more[n];
    const offsets = first < 0 ? "" : first === last ? `, offset ${first}` : `, offsets ${first} to ${last}`;
    const outcome = d.length[n] < 0 ? "never returned" : { ok: "ok", info: "outcome unknown", fail: "refused" }[d.outcomes[d.outcome[n]]];
    const until = d.length[n] < 0 ? "" : ` to ${seconds(this.end[n])}`;
    const mark = this.witness.has(d.index[n]) ? " · witness of a finding" : "";
    return `process ${d.process[n]}: ${d.fs[d.f[n]]} ${d.keys[d.key[n]]}${offsets} · ${outcome} · ` +
      `${seconds(this.start[n])}${until} · event ${d.index[n]}${mark}`;
  }

  hover(event) {
    const n = this.under(event.offsetX, event.offsetY), time = this.timeAt(event.offsetX);
    const faults = this.data.faults.filter(f => f.start <= time && time <= f.end).map(f => f.words);
    const text = [n >= 0 ? this.words(n) : "", ...(event.offsetX > this.left ? faults : [])].filter(Boolean).join(" · ");
    this.tip.hidden = !text;
    if (!text) return;
    this.tip.textContent = text;
    const box = this.root.getBoundingClientRect();
    this.tip.style.top = event.clientY - box.top + 16 + "px";
    this.tip.style.left = clamp(event.clientX - box.left + 12, 0, Math.max(0, box.width - this.tip.offsetWidth)) + "px";
  }
}

const timelines = new Map();
for (const root of document.querySelectorAll(".timeline")) timelines.set(root.id, new Timeline(root));
document.addEventListener("click", event => {
  const button = event.target.closest("[data-finding][data-timeline]");
  if (button) timelines.get(button.dataset.timeline).jumpTo(Number(button.dataset.finding));
});
