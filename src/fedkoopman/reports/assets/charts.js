"use strict";
// Charts as SVG, drawn from the blocks that reports/blocks.py makes. Colours are classes, so that dark mode and
// print need no redrawing; every text is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const EDGE = {top: 10, right: 14, bottom: 40};

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function draw(parent, tag, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
}

function shown(value, digits = 4) {
  if (value === null || !Number.isFinite(value)) return "not finite";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e7) {
    const [front, power] = value.toExponential(2).split("e");
    return `${front === "1.00" ? "" : `${Number(front)}·`}10${[...String(Number(power))].map(c => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] || "⁻").join("")}`.replace("-", "−");
  }
  return Number(value.toPrecision(digits)).toLocaleString("en", {maximumFractionDigits: 9}).replace("-", "−");
}

// Round numbers between two limits, about so many.
function ticksOf(low, high, log, about, whole) {
  if (log) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), found = [];
    const every = Math.max(1, Math.ceil((last - first) / 6));
    const fronts = last - first <= 2 ? [1, 2, 5] : [1];
    for (let p = first; p <= last; p += every) for (const f of fronts) found.push(f * 10 ** p);
    return found.filter(v => v >= low * 0.999 && v <= high * 1.001);
  }
  const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].find(f => f * power >= rough) * power;
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return found;
}

class Scale {
  constructor(low, high, start, end, log) {
    Object.assign(this, {low, high, start, end, log});
    this.from = log ? Math.log(low) : low;
    this.span = (log ? Math.log(high) : high) - this.from || 1;
  }
  to(value) { return this.start + (this.end - this.start) * ((this.log ? Math.log(value) : value) - this.from) / this.span; }
  back(pixel) {
    const value = this.from + this.span * (pixel - this.start) / (this.end - this.start);
    return this.log ? Math.exp(value) : value;
  }
  has(value) { return value !== null && (!this.log || value > 0); }
}

const xOf = (line, i) => line.even ? line.x[0] + i * line.x[1] : line.x[i];

class Chart {
  // state: what the reader has chosen; it outlives redrawing with new data.
  constructor(figure, block, state = {frame: null, hidden: new Set(), zoom: null}) {
    Object.assign(this, {figure, state});
    this.block = block;
    for (const line of [...block.series, ...block.frames.flatMap(one => one.series)]) if (line.spread && !line.low) {
      line.low = line.y.map(v => v === null ? null : v - line.spread);
      line.high = line.y.map(v => v === null ? null : v + line.spread);
    }
    state.frame ??= block.start;
    figure.replaceChildren(make("figcaption", {}, block.title));
    if (block.frames.length > 1) this.addControl();
    this.legend = make("div", {class: "legend", role: "group", "aria-label": "Lines shown"});
    this.note = make("p", {class: "note", "aria-live": "polite"});
    this.grid = make("div", {class: "panels"});
    this.tip = make("div", {class: "tip", role: "status", hidden: ""});
    figure.append(this.legend, this.note, this.grid, this.tip);
    this.panels = [];
    this.observer = new ResizeObserver(() => { if (this.grid.clientWidth !== this.width) this.redraw(); });
    this.observer.observe(this.grid);
    this.redraw();
  }

  addControl() {
    const [kind, label] = this.block.control.split(/: (.*)/), frames = this.block.frames;
    this.state.frame = Math.min(this.state.frame, frames.length - 1);
    const id = `${this.block.id}-control`;
    if (kind === "slider") {
      this.slider = make("input", {type: "range", id, min: 0, max: frames.length - 1, step: 1});
      this.slider.value = this.state.frame;
      this.slider.addEventListener("input", () => this.choose(Number(this.slider.value)));
      this.output = make("output", {for: id});
      this.figure.append(make("div", {class: "control"}, make("label", {for: id}, label), this.slider, this.output));
      return;
    }
    const tabs = make("div", {class: "control tabs", role: "tablist", "aria-label": label});
    this.tabs = frames.map((one, i) => {
      const tab = make("button", {type: "button", role: "tab"}, one.name);
      tab.addEventListener("click", () => this.choose(i));
      tab.addEventListener("keydown", event => {
        const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
        if (!step) return;
        event.preventDefault();
        this.choose((i + step + frames.length) % frames.length);
        this.tabs[this.state.frame].focus();
      });
      return tab;
    });
    tabs.append(...this.tabs);
    this.figure.append(tabs);
  }

  choose(frame) { this.state.frame = frame; this.redraw(); }

  get about() { return this.frame?.panels ?? this.block.panels; }

  fitPanels() {
    while (this.panels.length > this.about.length) this.panels.pop().place.remove();
    while (this.panels.length < this.about.length) {
      const place = document.createElementNS(SVG, "svg");
      place.setAttribute("tabindex", "0");
      place.setAttribute("role", "img");
      this.grid.append(place);
      this.listen(place, this.panels.length);
      this.panels.push({place});
    }
  }

  get frame() { return this.block.frames[Math.min(this.state.frame, this.block.frames.length - 1)]; }

  lines(panel, every = false) {
    const own = every && !this.frame?.panels ? this.block.frames.flatMap(one => one.series) : this.frame ? this.frame.series : [];
    return [...this.block.series, ...own].filter(one => one.panel === panel && (every || !this.state.hidden.has(one.name)));
  }

  redraw() {
    if (this.slider) {
      this.output.textContent = this.frame.name;
      this.slider.setAttribute("aria-valuetext", this.frame.name);
    }
    if (this.tabs) this.tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", i === this.state.frame);
      tab.tabIndex = i === this.state.frame ? 0 : -1;
    });
    this.note.textContent = this.frame ? this.frame.note : "";
    this.note.hidden = !this.note.textContent;
    this.width = this.grid.clientWidth;
    this.fitPanels();
    this.columns = this.width < 560 ? 1 : Math.min(this.block.columns, this.about.length);
    this.grid.dataset.columns = this.columns;
    this.drawLegend();
    // Panels below each other have one left edge, and the last alone says what x is.
    const plain = this.about.map((one, i) => one.rows.length ? 0 : this.room(i));
    this.left = this.about.map((one, i) => one.rows.length ? 0 : Math.max(...plain.filter((_, k) => k % this.columns === i % this.columns)));
    this.panels.forEach((_, i) => this.drawPanel(i));
    this.leave();
  }

  drawLegend() {
    const held = this.legend.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    const seen = new Map();
    for (const one of [...this.block.series, ...(this.frame ? this.frame.series : [])])
      if (one.name && !seen.has(one.name)) seen.set(one.name, one);
    const buttons = [...seen.values()].map(one => {
      const button = make("button", {type: "button", "aria-pressed": !this.state.hidden.has(one.name)});
      button.dataset.name = one.name;
      const sample = draw(button, "svg", {class: `sample c-${one.colour}`, viewBox: "0 0 22 10", "aria-hidden": "true"});
      if (one.style === "dots") draw(sample, "circle", {cx: 11, cy: 5, r: 3.6, class: "mark"});
      else if (["marks", "bars", "heat"].includes(one.style)) draw(sample, "rect", {x: 6, y: 0, width: 10, height: 10, class: "mark"});
      else {
        if (one.low) draw(sample, "rect", {x: 0, y: 0, width: 22, height: 10, class: "band"});
        draw(sample, "path", {d: "M0 5H22", class: "line", "stroke-dasharray": one.dash});
      }
      button.append(make("span", {}, one.name));
      button.addEventListener("click", () => {
        if (!this.state.hidden.delete(one.name)) this.state.hidden.add(one.name);
        this.redraw();
      });
      return button;
    });
    if (this.state.zoom) {
      const back = make("button", {type: "button", class: "reset"}, "show all");
      back.addEventListener("click", () => { this.state.zoom = null; this.redraw(); });
      buttons.push(back);
    }
    this.legend.replaceChildren(...buttons);
    this.legend.hidden = buttons.length < 2 && !this.state.zoom;
    if (held !== null) buttons.find(one => one.dataset.name === held)?.focus();
  }

  limits(i, axis) {
    const about = this.about[i], given = axis === "x" ? about.xrange : about.yrange;
    const log = axis === "x" ? about.xlog : about.log;
    if (axis === "x" && this.state.zoom && !about.nearest) return this.state.zoom;
    if (given) return given;
    let low = Infinity, high = -Infinity;
    const take = v => { if (v !== null && Number.isFinite(v) && (!log || v > 0)) { low = Math.min(low, v); high = Math.max(high, v); } };
    for (const line of this.lines(i, true)) {
      if (axis === "x") {
        if (line.even) { take(line.x[0]); take(xOf(line, line.y.length - 1)); } else line.x.forEach(take);
        if (["marks", "heat"].includes(line.style)) { take(line.x[0] - 0.5); take(line.x[line.x.length - 1] + (line.size || 1) - 0.5); }
        if (line.style === "bars") { take(0); (line.high || []).forEach(take); }
      } else for (const values of [line.y, line.low, line.high]) (values || []).forEach(take);
    }
    if (axis === "x" && about.mark !== null) take(about.mark);
    if (low > high) return log ? [0.1, 1] : [0, 1];
    if (log) return [low / 1.15, high * 1.15];
    if (axis === "x") {
      const room = this.lines(i, true).some(one => one.style === "dots") ? (high - low) * 0.04 : 0;
      return low < high ? [low - room, high + room] : [low - 0.5, high + 0.5];
    }
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [low - room, high + room];
  }

  // How much the numbers and the name of y take.
  room(i) {
    const about = this.about[i], [low, high] = this.limits(i, "y");
    const longest = Math.max(2, ...ticksOf(low, high, about.log, this.block.height / 42, false).map(v => [...shown(v)].length));
    return Math.min(90, 12 + 6.6 * longest) + (about.y ? 18 : 0);
  }

  drawPanel(i) {
    const about = this.about[i], panel = this.panels[i], place = panel.place;
    const columns = this.columns;
    const width = Math.max(220, Math.floor((this.width - 16 * (columns - 1)) / columns)), rows = about.rows.length;
    const narrow = width < 420;
    let height = this.block.height;
    if (rows) height = EDGE.top + EDGE.bottom + Math.max(50, Math.min(30 * rows, 9 * rows + 150));
    let xs = this.limits(i, "x"), ys = rows ? [-0.5, rows - 0.5] : this.limits(i, "y");
    const left = rows ? Math.min(width * 0.34, 12 + 6.6 * Math.max(2, ...about.rows.map(one => [...one].length))) : this.left[i];
    const below = this.about[i + this.columns], last = !below || below.x !== about.x || about.equal;
    const bottom = last ? EDGE.bottom : 24;
    if (!last) height -= EDGE.bottom - bottom;
    if (about.equal) height = Math.min(width - left - EDGE.right, 420) + EDGE.top + EDGE.bottom;
    const right = about.equal ? left + height - EDGE.top - bottom : width - EDGE.right;
    if (about.equal) {
      const half = Math.max(xs[1] - xs[0], ys[1] - ys[0]) / 2, cx = (xs[0] + xs[1]) / 2, cy = (ys[0] + ys[1]) / 2;
      xs = [cx - half, cx + half]; ys = [cy - half, cy + half];
    }
    const x = new Scale(xs[0], xs[1], left, right, about.xlog);
    const y = new Scale(ys[0], ys[1], rows ? EDGE.top : height - bottom, rows ? height - bottom : EDGE.top, about.log && !rows);
    Object.assign(panel, {x, y, left, right, height, top: EDGE.top, bottom: height - bottom});
    place.setAttribute("viewBox", `0 0 ${width} ${height}`);
    place.setAttribute("aria-label", `${this.block.description} ${about.y ? `Panel: ${about.y}.` : ""} Arrow keys read values.`);
    place.replaceChildren();
    const id = `${this.block.id}-${i}-clip`;
    draw(draw(draw(place, "defs"), "clipPath", {id}), "rect", {x: left, y: EDGE.top, width: right - left, height: height - EDGE.top - bottom});
    const axes = draw(place, "g", {class: "axes"});
    if (about.shade.length) {
      const [a, b] = about.shade.map(v => Math.max(left, Math.min(right, x.to(v))));
      draw(axes, "rect", {x: a, y: EDGE.top, width: Math.max(0, b - a), height: height - EDGE.top - bottom, class: "shade"});
    }
    for (const v of ticksOf(xs[0], xs[1], about.xlog, (right - left) / (narrow ? 60 : 90), about.whole)) {
      draw(axes, "path", {d: `M${x.to(v)} ${EDGE.top}V${panel.bottom}`, class: "grid"});
      draw(axes, "text", {x: x.to(v), y: panel.bottom + 16, "text-anchor": "middle"}, shown(v));
    }
    if (rows) {
      const every = Math.ceil(rows * 13 / (panel.bottom - panel.top));
      about.rows.forEach((name, row) => {
        if (row % every) return;
        const most = Math.floor((left - 12) / 6.4), whole = [...name];
        const text = draw(axes, "text", {x: left - 8, y: y.to(row) + 4, "text-anchor": "end"},
          whole.length > most ? `${whole.slice(0, most - 1).join("")}…` : name);
        draw(text, "title", {}, name.slice(0, 300));
      });
    } else for (const v of ticksOf(ys[0], ys[1], about.log, height / 42, false)) {
      draw(axes, "path", {d: `M${left} ${y.to(v)}H${right}`, class: "grid"});
      draw(axes, "text", {x: left - 7, y: y.to(v) + 4, "text-anchor": "end"}, shown(v));
    }
    draw(axes, "path", {d: `M${left} ${EDGE.top}V${panel.bottom}H${right}`, class: "frame"});
    if (last) draw(axes, "text", {x: (left + right) / 2, y: height - 5, "text-anchor": "middle", class: "label"}, cut(about.x, (right - left) / 7));
    if (about.y && !rows) {
      const middle = (EDGE.top + panel.bottom) / 2;
      draw(axes, "text", {x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, "text-anchor": "middle", class: "label"}, cut(about.y, (panel.bottom - EDGE.top) / 6.5));
    }
    const inside = draw(place, "g", {"clip-path": `url(#${CSS.escape(id)})`});
    if (about.circle) draw(inside, "ellipse", {cx: x.to(0), cy: y.to(0), rx: x.to(1) - x.to(0), ry: y.to(0) - y.to(1), class: "guide"});
    if (about.diagonal) draw(inside, "path", {d: `M${x.to(xs[0])} ${y.to(xs[0])}L${x.to(xs[1])} ${y.to(xs[1])}`, class: "guide"});
    if (about.mark !== null) draw(inside, "path", {d: `M${x.to(about.mark)} ${EDGE.top}V${panel.bottom}`, class: "guide"});
    const lines = this.lines(i);
    for (const line of lines) if (line.low && line.style !== "bars") this.drawBand(inside, line, x, y);
    for (const line of lines) this.drawLine(inside, line, x, y, rows, panel);
    panel.cursor = draw(place, "g", {class: "cursor"});
  }

  drawBand(parent, line, x, y) {
    let above = [], below = [];
    const close = () => {
      if (above.length > 1) draw(parent, "path", {d: `M${above.join("L")}L${below.reverse().join("L")}Z`, class: `band c-${line.colour}`});
      above = []; below = [];
    };
    line.low.forEach((low, k) => {
      const high = line.high[k], at = xOf(line, k);
      if (high === null || low === null || !y.has(high) || !x.has(at)) return close();
      const px = x.to(at).toFixed(1), bottom = Math.max(-1e4, Math.min(1e4, y.to(y.has(low) ? low : y.low)));
      above.push(`${px} ${Math.max(-1e4, Math.min(1e4, y.to(high))).toFixed(1)}`);
      below.push(`${px} ${bottom.toFixed(1)}`);
    });
    close();
  }

  drawLine(parent, line, x, y, rows, panel) {
    const group = draw(parent, "g", {class: `c-${line.colour}`});
    group.dataset.name = line.name;
    const tall = rows ? Math.abs(y.to(1) - y.to(0)) * (rows > 25 ? 0.9 : 0.72) : 0;
    if (line.style === "marks") {
      const wide = Math.max(0.8, (x.to(1) - x.to(0)) * 0.86);
      const cells = line.y.map((row, k) => `M${(x.to(line.x[k]) - wide / 2).toFixed(1)} ${(y.to(row) - tall / 2).toFixed(1)}h${wide.toFixed(1)}v${tall.toFixed(1)}h-${wide.toFixed(1)}Z`);
      draw(group, "path", {d: cells.join(""), class: "mark"});
    } else if (line.style === "heat") {
      const most = Math.max(1, ...line.z), levels = [[], [], [], [], []], wide = (x.to(line.size) - x.to(0)) * 0.98;
      line.z.forEach((value, k) => { if (value > 0) levels[Math.min(4, Math.ceil(5 * value / most) - 1)].push(k); });
      levels.forEach((cells, level) => draw(group, "path", {class: "mark", opacity: 0.2 + 0.2 * level,
        d: cells.map(k => `M${(x.to(line.x[k] - 0.5)).toFixed(1)} ${(y.to(line.y[k]) - tall / 2).toFixed(1)}h${wide.toFixed(1)}v${tall.toFixed(1)}h-${wide.toFixed(1)}Z`).join("")}));
    } else if (line.style === "bars") {
      line.y.forEach((row, k) => {
        if (line.x[k] === null) return;
        const a = x.to(Math.max(x.low, 0)), b = x.to(line.x[k]);
        draw(group, "rect", {x: Math.min(a, b), y: y.to(row) - tall / 2, width: Math.max(1, Math.abs(b - a)), height: tall, class: "mark"});
        if (line.low) draw(group, "path", {d: `M${x.to(line.low[k])} ${y.to(row)}H${x.to(line.high[k])}m0 -4v8M${x.to(line.low[k])} ${y.to(row) - 4}v8`, class: "whisker"});
      });
    } else if (line.style === "dots") {
      const dots = line.y.map((v, k) => y.has(v) && x.has(xOf(line, k)) ? `M${x.to(xOf(line, k)).toFixed(1)} ${y.to(v).toFixed(1)}h0` : "");
      draw(group, "path", {d: dots.join(""), class: line.words ? "dots large" : "dots"});
    } else {
      const parts = [];
      let pen = false, last = 0, count = 0;
      line.y.forEach((v, k) => {
        if (!y.has(v) || !x.has(xOf(line, k))) { if (pen && count === 1) parts.push("h.1"); pen = false; return; }
        const px = x.to(xOf(line, k)).toFixed(1), py = Math.max(-1e4, Math.min(1e4, y.to(v))).toFixed(1);
        if (!pen) { parts.push(`M${px} ${py}`); count = 0; } else if (line.style === "steps") parts.push(`H${px}V${py}`); else parts.push(`L${px} ${py}`);
        pen = true; last = k; count += 1;
      });
      if (count === 1) parts.push("h.1");
      draw(group, "path", {d: parts.join(""), class: "line", "stroke-dasharray": line.dash});
    }
  }

  listen(place, i) {
    const at = event => {
      const box = place.getBoundingClientRect(), view = place.viewBox.baseVal;
      return [(event.clientX - box.left) * view.width / box.width, (event.clientY - box.top) * view.height / box.height];
    };
    let from = null;
    place.addEventListener("pointermove", event => {
      const [px, py] = at(event);
      if (from !== null) return this.select(i, from, px);
      this.point(i, px, py);
    });
    place.addEventListener("pointerleave", () => { if (from === null && document.activeElement !== place) this.leave(); });
    {
      place.addEventListener("pointerdown", event => {
        if (event.pointerType !== "mouse" || event.button || this.about[i].nearest) return;
        from = at(event)[0];
        place.setPointerCapture(event.pointerId);
      });
      place.addEventListener("pointerup", event => {
        if (from === null) return;
        const [a, b] = [from, at(event)[0]].sort((one, other) => one - other), x = this.panels[i].x;
        from = null;
        if (b - a > 8) { this.state.zoom = [x.back(Math.max(a, x.start)), x.back(Math.min(b, x.end))]; this.redraw(); }
      });
      place.addEventListener("dblclick", () => { this.state.zoom = null; this.redraw(); });
    }
    place.addEventListener("keydown", event => this.key(i, event));
    place.addEventListener("blur", () => this.leave());
  }

  select(i, a, b) {
    const panel = this.panels[i];
    panel.cursor.replaceChildren();
    draw(panel.cursor, "rect", {x: Math.min(a, b), y: panel.top, width: Math.abs(b - a), height: panel.bottom - panel.top, class: "selected"});
  }

  key(i, event) {
    const panel = this.panels[i], lines = this.lines(i).filter(one => one.y.length);
    if (event.key === "Escape") { this.state.zoom = null; this.redraw(); return; }
    if (!lines.length) return;
    const places = this.about[i].nearest
      ? lines.flatMap(one => one.y.map((v, k) => [xOf(one, k), v]))
      : [...new Set(lines.flatMap(one => one.y.map((_, k) => xOf(one, k))))].sort((a, b) => a - b).map(v => [v, null]);
    const last = places.length - 1, now = Math.min(last, panel.at ?? -1), step = event.shiftKey ? 10 : 1;
    const next = {ArrowRight: now + step, ArrowLeft: now < 0 ? last : now - step, Home: 0, End: last}[event.key];
    if ((event.key === "+" || event.key === "-") && !this.about[i].nearest) {
      const x = panel.x, centre = now < 0 ? (x.low + x.high) / 2 : places[now][0], half = (x.high - x.low) * (event.key === "+" ? 0.25 : 1);
      const whole = (this.state.zoom = null, this.limits(i, "x"));
      const zoom = [Math.max(whole[0], centre - half), Math.min(whole[1], centre + half)];
      this.state.zoom = zoom[0] <= whole[0] && zoom[1] >= whole[1] ? null : zoom;
      this.redraw();
      return;
    }
    if (next === undefined) return;
    event.preventDefault();
    panel.at = Math.max(0, Math.min(last, next));
    const [px, py] = places[panel.at];
    this.point(i, panel.x.to(px), py === null ? (panel.top + panel.bottom) / 2 : panel.y.to(py));
  }

  leave() {
    this.tip.hidden = true;
    for (const panel of this.panels) panel.cursor?.replaceChildren();
  }

  // Shows what stands at a place of a panel.
  point(i, px, py) {
    const about = this.about[i], panel = this.panels[i], said = [];
    panel.cursor.replaceChildren();
    if (px < panel.left - 6 || px > panel.right + 6) return this.leave();
    let title = "", where = px;
    const lines = this.lines(i);
    if (about.rows.length) {
      const row = Math.max(0, Math.min(about.rows.length - 1, Math.round(panel.y.back(py)))), at = panel.x.back(px);
      title = about.rows[row];
      for (const line of lines) line.y.forEach((v, k) => {
        if (v !== row) return;
        const size = line.size || 1;
        if (line.style === "bars") said.push([line, line.words ? line.words[k] : this.told(line, k, line.x)]);
        else if (line.style === "marks" ? Math.round(at) === line.x[k] : at >= line.x[k] - 0.5 && at < line.x[k] - 0.5 + size) {
          title = `${about.rows[row]}, ${about.x} ${line.style === "marks" ? line.x[k] : `${line.x[k]} to ${line.x[k] + size - 1}`}`;
          said.push([line, line.style === "marks" ? "" : line.words ? line.words[k] : shown(line.z[k])]);
        }
      });
    } else if (about.nearest) {
      let best = null;
      for (const line of lines) line.y.forEach((v, k) => {
        if (v === null || xOf(line, k) === null) return;
        const far = Math.hypot(panel.x.to(xOf(line, k)) - px, panel.y.to(v) - py);
        if (far < 30 && (!best || far < best.far)) best = {far, line, k, v};
      });
      if (best) {
        const {line, k, v} = best;
        draw(panel.cursor, "circle", {cx: panel.x.to(xOf(line, k)), cy: panel.y.to(v), r: 8, class: "ring"});
        said.push([line, line.words ? line.words[k] : `${shown(xOf(line, k))}, ${shown(v)}`]);
      }
    } else {
      const at = panel.x.back(px), near = [];
      for (const line of lines) {
        const k = nearest(line, at);
        if (k < 0) continue;
        const far = Math.abs(panel.x.to(xOf(line, k)) - px);
        near.push({line, k, far});
      }
      const least = Math.min(...near.map(one => one.far));
      for (const {line, k, far} of near) {
        if (far > Math.max(least + 2, 6) && far > least * 1.5 + 2) continue;
        if (line.y[k] === null) continue;
        if (!title) { where = panel.x.to(xOf(line, k)); title = `${about.x} ${shown(xOf(line, k))}`; }
        said.push([line, line.words ? line.words[k] : this.told(line, k, line.y)]);
        draw(panel.cursor, "circle", {cx: panel.x.to(xOf(line, k)), cy: panel.y.to(line.y[k]), r: 3.5, class: `point c-${line.colour}`});
      }
      if (said.length) draw(panel.cursor, "path", {d: `M${where} ${panel.top}V${panel.bottom}`, class: "hair"});
    }
    if (!said.length) return this.leave();
    this.tip.replaceChildren(...(title ? [make("strong", {}, title)] : []), ...said.map(([line, words]) => {
      const entry = make("span", {class: "entry"}, make("i", {class: `c-${line.colour}`}), `${line.name}${words ? ": " : ""}`);
      entry.append(make("b", {}, words));
      return entry;
    }));
    this.tip.hidden = false;
    const box = panel.place.getBoundingClientRect(), home = this.figure.getBoundingClientRect();
    const x = box.left - home.left + where * box.width / panel.place.viewBox.baseVal.width;
    const room = home.width - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, x + 14 > room ? x - 14 - this.tip.offsetWidth : x + 14))}px`;
    this.tip.style.top = `${box.top - home.top + 14}px`;
  }

  told(line, k, values) {
    const unit = line.unit ? ` ${line.unit}` : "", [low, high, v] = [line.low?.[k], line.high?.[k], values[k]];
    if (low === undefined || low === null || high === null || !(high > low)) return `${shown(v)}${unit}`;
    const even = Math.abs(high - v - (v - low)) < 0.02 * (high - low);
    return even ? `${shown(v)} ± ${shown((high - low) / 2, 2)}${unit}` : `${shown(v)}${unit} (${shown(low, 3)} to ${shown(high, 3)})`;
  }
}

function cut(text, most) {
  const whole = [...text];
  return whole.length > most ? `${whole.slice(0, Math.max(1, most - 1)).join("")}…` : text;
}

// The point of a line with rising x that is next to a place.
function nearest(line, at) {
  const count = line.y.length;
  if (!count) return -1;
  if (line.even) return Math.max(0, Math.min(count - 1, Math.round((at - line.x[0]) / line.x[1])));
  let low = 0, high = count - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (line.x[middle] <= at) low = middle; else high = middle;
  }
  return Math.abs(line.x[low] - at) <= Math.abs(line.x[high] - at) ? low : high;
}
