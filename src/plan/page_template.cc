#include "plan/page_template.h"

namespace temper {

const std::string_view kPageTemplate = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Temper plan</title>
<style>
:root { --ink: #1b1f24; --soft: #5b6470; --line: #d9dee4; --paper: #ffffff; --band: #f5f7f9; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 24px 20px 60px; background: var(--paper); color: var(--ink);
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 22px; margin: 0 0 12px; }
#verdict { font-size: 17px; font-weight: 600; margin: 0 0 2px; padding: 8px 12px; border-radius: 4px; color: #fff; max-width: none; }
.fits { background: #2e7d43; } .not { background: #b3261e; }
#speed { margin: 6px 0 10px; color: var(--ink); } pre { font-size: 13px; margin: 6px 0 10px; overflow-x: auto; }
h2 { font-size: 16px; margin: 34px 0 4px; }
p { margin: 2px 0 10px; color: var(--soft); max-width: 80ch; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; }
.bar { display: flex; height: 26px; border: 1px solid var(--line); border-radius: 4px; overflow: hidden; margin: 12px 0 4px; }
.bar div { height: 100%; }
.key { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; color: var(--soft); margin: 6px 0; }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 5px; vertical-align: -1px; }
svg { display: block; width: 100%; background: var(--band); border: 1px solid var(--line); border-radius: 4px; }
svg text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--soft); }
canvas { display: block; width: 100%; background: var(--band); border: 1px solid var(--line); border-radius: 4px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 3px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
.left { text-align: left; }
button { font: inherit; font-size: 13px; padding: 1px 10px; border: 1px solid var(--line); border-radius: 4px;
         background: var(--paper); color: var(--ink); cursor: pointer; }
#tip { position: fixed; pointer-events: none; background: var(--ink); color: #fff; font-size: 12px; padding: 4px 8px;
       border-radius: 4px; display: none; max-width: 340px; z-index: 2; }
@media print { body { max-width: none; } button { display: none; } }
</style>
</head>
<body>
<h1 id="title"></h1>
<p id="verdict"></p>
<p id="speed"></p>
<pre id="remedies" hidden></pre>
<dl id="facts"></dl>
<div class="bar" id="parts"></div>
<div class="key" id="parts_key"></div>

<h2>Memory over time</h2>
<p>The contents of one rank's arena, instruction by instruction, by class. The first two micro-batches, the last one and
the update are shown; those in between are like the second, and their time is hatched. <span id="limit"></span></p>
<svg id="memory" viewBox="0 0 1140 300" role="img" aria-label="memory over time by class"></svg>
<div class="key" id="memory_key"></div>

<h2>Tiers</h2>
<p>The contents of each tier at its peak, and the bytes that a step moves between tiers.</p>
<div class="scroll"><table id="tiers"></table></div>
<div class="key" id="moves"></div>
<div id="alternatives"></div>

<h2>Queues</h2>
<p>A timeline of each queue. Wheel: zoom; drag: move. <button id="reset">whole step</button></p>
<canvas id="queues" height="200" role="img" aria-label="timeline of each queue"></canvas>
<div class="key" id="queues_key"></div>

<h2>Seconds by op</h2>
<div class="scroll"><table id="ops"></table></div>

<h2>Sharding</h2>
<p>Weights and adapters of one block of each kind, and those outside of blocks, as the first rank holds them; other
blocks are alike.</p>
<div class="scroll"><table id="tensors"></table></div>
<div id="tip"></div>

<script id="data" type="application/json">"DATA"</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const el = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text;
                                 if (cls) e.className = cls; return e; };
const bytes = b => { const u = ["B", "KiB", "MiB", "GiB", "TiB"]; let i = 0; while (b >= 1024 && i < 4) { b /= 1024; ++i; }
                     return (i ? b.toFixed(2) : b) + " " + u[i]; };
const secs = s => s >= 1 ? s.toFixed(2) + " s" : s >= 1e-3 ? (s * 1e3).toFixed(2) + " ms" : (s * 1e6).toFixed(1) + " us";
const part_colours = { "arithmetic": "#2f6db3", "memory": "#5aa469", "launches": "#b9a44c", "collectives": "#c8643c",
                       "waiting": "#8d4d8f", "moves": "#4a8f8c", "waiting for moves": "#b3617a", "other stages": "#9aa3ad" };
const class_colours = { "weights": "#2f6db3", "adapters": "#6fb1d6", "optimizer states": "#5aa469", "gradients": "#b9a44c",
                        "copies of weights": "#8d4d8f", "inputs and outputs": "#9aa3ad", "activations and scratch": "#c8643c" };
const group_colours = { product: "#2f6db3", attention: "#8d4d8f", collective: "#c8643c", optimizer: "#5aa469", move: "#4a8f8c", other: "#9aa3ad" };
function key(id, colours, values) {
  for (const name in colours) {
    if (values && !values[name]) continue;
    const span = el("span"), box = el("i");
    box.style.background = colours[name];
    span.append(box, name + (values ? " " + values[name] : ""));
    $(id).append(span);
  }
}
$("verdict").textContent = data.verdict;
$("verdict").className = data.fits ? "fits" : "not";
$("speed").textContent = data.speed;
if (data.remedies) { $("remedies").textContent = data.remedies; $("remedies").hidden = false; }
// "micro-batches 3 to 7" of an interval that is left out; people count from 1.
const leftOut = i => i[3] === i[4] ? "micro-batch " + (i[3] + 1) : "micro-batches " + (i[3] + 1) + " to " + (i[4] + 1);
document.title = $("title").textContent = data.title;
for (const k in data.facts) $("facts").append(el("dt", k), el("dd", data.facts[k]));
const shares = {};
for (const k in data.parts) {
  if (data.parts[k] <= 0) continue;
  const d = el("div");
  d.style.width = 100 * data.parts[k] / data.step + "%";
  d.style.background = part_colours[k];
  d.title = k + " " + secs(data.parts[k]);
  $("parts").append(d);
  shares[k] = (100 * data.parts[k] / data.step).toFixed(1) + " %";
}
key("parts_key", part_colours, shares);

// Memory: constant bands, and the temporaries on top of them.
(function () {
  const ns = "http://www.w3.org/2000/svg", svg = $("memory"), W = 1140, H = 300, L = 76, B = 26, T = 12;
  const add = (tag, at, text) => { const e = document.createElementNS(ns, tag); for (const k in at) e.setAttribute(k, at[k]);
                                   if (text) e.textContent = text; svg.append(e); return e; };
  const points = data.memory.temporaries, classes = data.memory.classes;
  if (!points.length) return;
  const end = Math.max(points[points.length - 1][0] * 1.002, 1e-9);
  let base = 0; for (const k in classes) base += classes[k];
  const high = Math.max(...points.map(p => p[1])) + base;
  const top = (data.limit > 0 && data.limit < 3 * high ? Math.max(high, data.limit) : high) * 1.06 || 1;
  const x = t => L + (W - L - 8) * t / end, y = b => H - B - (H - B - T) * b / top;
  const values = {};
  for (let i = 0; i <= 4; ++i) {
    const b = top * i / 4;
    add("line", { x1: L, x2: W - 8, y1: y(b), y2: y(b), stroke: "#d9dee4" });
    add("text", { x: L - 6, y: y(b) + 4, "text-anchor": "end" }, bytes(b));
    add("text", { x: x(end * i / 4), y: H - 8, "text-anchor": i ? (i == 4 ? "end" : "middle") : "start" }, secs(end * i / 4));
  }
  let at = 0;
  for (const k in classes) {
    if (!classes[k]) continue;
    values[k] = bytes(classes[k]);
    add("rect", { x: L, width: W - 8 - L, y: y(at + classes[k]), height: Math.max(y(at) - y(at + classes[k]), 0.3),
                  fill: class_colours[k] }).append((() => { const t = document.createElementNS(ns, "title");
                  t.textContent = k + " " + bytes(classes[k]); return t; })());
    at += classes[k];
  }
  let d = "M" + x(0) + " " + y(at);
  points.forEach((p, i) => { const next = i + 1 < points.length ? points[i + 1][0] : end;
                             d += "L" + x(p[0]).toFixed(2) + " " + y(at + p[1]).toFixed(2) + "L" + x(next).toFixed(2) + " " +
                                  y(at + p[1]).toFixed(2); });
  add("path", { d: d + "L" + x(end) + " " + y(at) + "Z", fill: class_colours["activations and scratch"] });
  values["activations and scratch"] = "up to " + bytes(Math.max(...points.map(p => p[1])));
  const high_y = y(at + Math.max(...points.map(p => p[1]))), low_y = y(at);
  for (const i of data.left_out.planned.filter(i => i[0] === 0)) {
    const a = x(i[1]), b = x(Math.min(i[2], end));
    add("rect", { x: a, width: b - a, y: high_y, height: low_y - high_y, fill: "#eef1f4" });
    let lines = "";
    for (let s = a - (low_y - high_y); s < b; s += 8) {
      const l = Math.max(s, a), r = Math.min(s + low_y - high_y, b);
      lines += "M" + l + " " + (low_y - l + s) + "L" + r + " " + (low_y - r + s);
    }
    add("path", { d: lines, stroke: "#aeb6bf", class: "left_out" });
    if (b - a > 130) add("text", { x: (a + b) / 2, y: low_y - 8, "text-anchor": "middle" }, leftOut(i));
  }
  $("limit").textContent = data.limit <= 0 ? "" : data.limit <= top ? "The dashed line is the device's limit." :
      "The device's limit of " + bytes(data.limit) + " is far above this chart.";
  if (data.limit > 0 && data.limit <= top) {
    add("line", { x1: L, x2: W - 8, y1: y(data.limit), y2: y(data.limit), stroke: "#b3261e", "stroke-dasharray": "6 4", "stroke-width": 1.5 });
    add("text", { x: W - 12, y: y(data.limit) - 5, "text-anchor": "end" }, "device: " + bytes(data.limit));
  }
  key("memory_key", class_colours, values);
})();

// Queues: [op, phase, block, micro-batch, queue, begin, duration].
(function () {
  const lanes = [];
  data.queues.forEach((name, queue) => {
    lanes.push(["planned: " + name, data.planned, queue, data.left_out.planned.filter(i => i[0] === queue)]);
    if (data.measured) lanes.push(["measured: " + name, data.measured, queue, data.left_out.measured.filter(i => i[0] === queue)]);
  });
  const shown = lanes.filter(l => l[1].some(e => e[4] === l[2]));
  const canvas = $("queues"), tip = $("tip"), phases = ["forward", "backward", "update"];
  const rowh = 46, left = 8, height = shown.length * rowh + 34;
  const end = Math.max(1e-9, ...shown.map(l => l[1].reduce((m, e) => Math.max(m, e[5] + e[6]), 0)));
  let from = 0, to = end;
  function draw() {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
    canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    const x = t => left + (width - 2 * left) * (t - from) / (to - from);
    shown.forEach((lane, i) => {
      const top = i * rowh + 20;
      c.fillStyle = "#5b6470"; c.fillText(lane[0], left, top - 5);
      c.fillStyle = "#e8ebef"; c.fillRect(left, top, width - 2 * left, rowh - 24);
      for (const e of lane[1]) {
        if (e[4] !== lane[2] || e[5] > to || e[5] + e[6] < from) continue;
        const a = Math.max(x(e[5]), left), b = Math.min(x(e[5] + e[6]), width - left);
        c.globalAlpha = e[1] === 0 ? 0.65 : 1;
        c.fillStyle = group_colours[data.groups[e[0]] || "other"];
        c.fillRect(a, top, Math.max(b - a, 0.25), rowh - 24);
        if (b - a > 3) { c.fillStyle = "#ffffff"; c.fillRect(b - 0.5, top, 0.5, rowh - 24); }
        c.globalAlpha = 1;
        if (b - a > 70) { c.fillStyle = "#fff"; c.fillText(e[0], a + 4, top + 15); }
      }
      for (const i of lane[3]) {
        const a = Math.max(x(i[1]), left), b = Math.min(x(i[2]), width - left);
        if (b <= a) continue;
        c.save();
        c.beginPath(); c.rect(a, top, b - a, rowh - 24); c.clip();
        c.strokeStyle = "#aeb6bf";
        c.beginPath();
        for (let s = a - rowh; s < b; s += 8) { c.moveTo(s, top + rowh); c.lineTo(s + rowh, top); }
        c.stroke();
        c.restore();
        if (b - a > 150) {
          const text = leftOut(i) + " left out", wide = c.measureText(text).width + 8, mid = (a + b) / 2;
          c.fillStyle = "#e8ebef"; c.fillRect(mid - wide / 2, top + 2, wide, rowh - 28);
          c.fillStyle = "#5b6470"; c.fillText(text, mid - wide / 2 + 4, top + 15);
        }
      }
    });
    c.fillStyle = "#5b6470";
    for (let k = 0; k <= 4; ++k) {
      const t = from + (to - from) * k / 4;
      c.textAlign = k ? (k === 4 ? "right" : "center") : "left";
      c.fillText(secs(t), x(t), height - 6);
    }
    c.textAlign = "left";
  }
  const timeAt = px => from + (to - from) * (px - left) / (canvas.clientWidth - 2 * left);
  canvas.addEventListener("wheel", ev => {
    ev.preventDefault();
    const t = timeAt(ev.offsetX), f = ev.deltaY < 0 ? 0.8 : 1.25;
    from = Math.max(0, t - (t - from) * f); to = Math.min(end, t + (to - t) * f);
    if (to - from < 1e-7) to = from + 1e-7;
    draw();
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("mousedown", ev => drag = [ev.offsetX, from, to]);
  window.addEventListener("mouseup", () => drag = null);
  canvas.addEventListener("mousemove", ev => {
    if (drag) {
      const by = (drag[0] - ev.offsetX) * (drag[2] - drag[1]) / (canvas.clientWidth - 2 * left);
      const d = Math.min(Math.max(by, -drag[1]), end - drag[2]);
      from = drag[1] + d; to = drag[2] + d;
      draw();
    }
    const lane = shown[Math.floor(ev.offsetY / rowh)], t = timeAt(ev.offsetX);
    const hit = lane && lane[1].find(e => e[4] === lane[2] && e[5] <= t && t <= e[5] + e[6]);
    tip.style.display = hit ? "block" : "none";
    if (!hit) return;
    const block = hit[2] === -1 ? "before the blocks" : hit[2] === -2 ? "after the blocks" : "block " + hit[2];
    tip.textContent = hit[0] + ", " + phases[hit[1]] + ", " + block + ", micro-batch " + hit[3] + ": " + secs(hit[6]) +
                      " from " + secs(hit[5]);
    tip.style.left = Math.min(ev.clientX + 12, window.innerWidth - 350) + "px"; tip.style.top = ev.clientY + 14 + "px";
  });
  canvas.addEventListener("mouseleave", () => tip.style.display = "none");
  $("reset").addEventListener("click", () => { from = 0; to = end; draw(); });
  window.addEventListener("resize", draw);
  key("queues_key", group_colours);
  draw();
})();

(function () {
  const table = $("tiers"), head = el("tr");
  for (const c of ["tier", "total", "weights", "gradients", "optimizer states", "activations", "copies"]) head.append(el("th", c));
  table.append(head);
  for (const [name, ...sizes] of data.tiers) {
    const row = el("tr");
    row.append(el("td", name), ...sizes.map(b => el("td", b ? bytes(b) : "")));
    table.append(row);
  }
  if (data.alternatives.length) {
    const others = el("table"), titles = el("tr"), scroll = el("div", undefined, "scroll");
    for (const c of ["recompute", "step without traffic to other ranks", "device", "host", "disk", "moved per step", ""]) titles.append(el("th", c));
    others.append(titles);
    data.alternatives.forEach(([name, tried, fits, step, device, host, disk, moved], i) => {
      const row = el("tr"), size = b => el("td", fits && b ? bytes(b) : "");
      row.append(el("td", name), el("td", fits || !tried ? secs(step) : ""), size(device), size(host), size(disk), size(moved),
                 el("td", i === 0 ? "chosen" : fits ? "" : tried ? "does not fit" : "not tried: compute time alone leaves nothing to gain"));
      others.append(row);
    });
    scroll.append(others);
    $("alternatives").append(el("p", "Ways to make it fit that were considered:"), scroll);
  }
  for (const [link, size] of data.moves) $("moves").append(el("span", link + " " + bytes(size) + " per step"));
})();

(function () {
  const table = $("ops"), head = el("tr");
  const columns = ["op", "runs", "planned", "of the step"].concat(data.measured ? ["measured", "planned / measured"] : []);
  for (const c of columns) head.append(el("th", c));
  table.append(head);
  for (const [name, runs, planned, measured] of data.ops) {
    const row = el("tr");
    row.append(el("td", name), el("td", runs), el("td", secs(planned)), el("td", (100 * planned / data.step).toFixed(1) + " %"));
    if (data.measured) row.append(el("td", measured > 0 ? secs(measured) : ""), el("td", measured > 0 ? (planned / measured).toFixed(2) : ""));
    table.append(row);
  }
  if (data.measured) {
    const row = el("tr");
    row.append(el("td", "step"), el("td"), el("td", secs(data.step)), el("td"), el("td", secs(data.measured_step)),
               el("td", (data.step / data.measured_step).toFixed(2)));
    table.append(row);
  }
})();

(function () {
  const table = $("tensors"), head = el("tr");
  for (const c of ["tensor", "whole", "split over", "on the first rank", "bytes", "trained"]) head.append(el("th", c));
  table.append(head);
  for (const [name, whole, split, mine, size, trained] of data.tensors) {
    const row = el("tr");
    row.append(el("td", name), el("td", whole), el("td", split), el("td", mine), el("td", bytes(size)), el("td", trained ? "yes" : ""));
    table.append(row);
  }
})();
</script>
</body>
</html>
)html";

}  // namespace temper
