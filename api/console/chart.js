// chart.js - plain SVG: a line, bars, and strips of who had a device.
import {el, number, svg} from "./dom.js";

const W = 640, H = 220, LEFT = 56, RIGHT = 12, TOP = 10, BOTTOM = 26;

// Round numbers that divide a range into about n parts.
function ticks(low, high, n) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / n, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find(s => s * power >= raw) * power;
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step)
    out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}

// At most `most` points, of which the lowest and highest of each part stay.
export function thin(points, most = 500) {
  if (points.length <= most) return points;
  const out = [], size = points.length / (most / 2);
  for (let from = 0; from < points.length; from += size) {
    const part = points.slice(Math.floor(from), Math.floor(from + size));
    if (!part.length) continue;
    let low = part[0], high = part[0];
    for (const p of part) {
      if (p[1] < low[1]) low = p;
      if (p[1] > high[1]) high = p;
    }
    out.push(...(low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low]));
  }
  return out;
}

// {node, set(points)}; points: [x, y] in the order of x. A screen reader hears the summary; who points at
// the chart sees the value there.
export function lineChart({label, x, y}) {
  const node = svg("svg", {class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label});
  const log = el("input", {type: "checkbox", onchange: () => set(known)});
  let known = [], find = null;
  const cross = svg("line", {class: "cross", y1: TOP, y2: H - BOTTOM}), told = svg("text", {y: TOP + 8});
  node.addEventListener("pointermove", e => {
    const box = node.getBoundingClientRect(), at = find && find((e.clientX - box.left) / box.width * W);
    if (!at) return;
    cross.setAttribute("x1", at.x);
    cross.setAttribute("x2", at.x);
    told.setAttribute("x", LEFT + 8);
    told.textContent = `${x} ${number(at.point[0], 9)}: ${number(at.point[1], 4)}`;
    node.append(cross, told);
  });
  node.addEventListener("pointerleave", () => { cross.remove(); told.remove(); });
  function set(all) {
    known = all;
    const isLog = log.checked, points = thin(all.filter(p => Number.isFinite(p[1]) && (!isLog || p[1] > 0)));
    find = null;
    node.replaceChildren();
    if (!points.length) {
      node.setAttribute("aria-label", label + ": nothing yet");
      node.append(svg("text", {x: LEFT, y: H / 2}, "Nothing yet"));
      return;
    }
    const xs = points.map(p => p[0]), ys = points.map(p => p[1]);
    const x0 = xs[0], x1 = Math.max(xs[xs.length - 1], x0 + 1);
    const scale = isLog ? Math.log10 : v => v, back = isLog ? v => 10 ** v : v => v;
    let y0 = scale(Math.min(...ys)), y1 = scale(Math.max(...ys));
    if (!isLog && y0 > 0 && y0 < y1 / 2) y0 = 0;
    if (y1 === y0) y1 = y0 + (Math.abs(y0) || 1);
    const px = v => LEFT + (v - x0) / (x1 - x0) * (W - LEFT - RIGHT);
    const py = v => H - BOTTOM - (scale(v) - y0) / (y1 - y0) * (H - TOP - BOTTOM);
    for (const v of ticks(y0, y1, 4).map(back))
      node.append(svg("line", {class: "grid", x1: LEFT, x2: W - RIGHT, y1: py(v), y2: py(v)}),
        svg("text", {x: LEFT - 6, y: py(v) + 4, "text-anchor": "end"}, number(v, isLog ? 2 : 3)));
    for (const v of ticks(x0, x1, 5))
      node.append(svg("text", {x: px(v), y: H - 8, "text-anchor": "middle"}, number(v, 6)));
    node.append(svg("text", {x: W - RIGHT, y: TOP + 8, "text-anchor": "end"}, y + " by " + x));
    const path = points.map((p, i) => (i ? "L" : "M") + px(p[0]).toFixed(1) + " " + py(p[1]).toFixed(1));
    node.append(svg("path", {class: "line", d: path.join("") + (points.length === 1 ? "h2" : "")}));
    const end = points[points.length - 1];
    node.setAttribute("aria-label", `${label}: ${number(points[0][1])} at ${x} ${points[0][0]}, ` +
      `${number(end[1])} at ${x} ${end[0]}; lowest ${number(Math.min(...ys))}`);
    find = at => {
      const point = points.reduce((best, p) => Math.abs(px(p[0]) - at) < Math.abs(px(best[0]) - at) ? p : best);
      return {point, x: px(point[0])};
    };
  }
  set([]);
  return {node: el("div", null, node, el("label", {class: "check"}, log, "Logarithmic")), set};
}

// Bars of {name, value}, with a text for each.
export function barChart(label, bars, text = number) {
  const high = Math.max(...bars.map(b => b.value), 0) || 1, wide = (W - LEFT - RIGHT) / (bars.length || 1);
  const node = svg("svg", {class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img",
    "aria-label": label + ": " + bars.map(b => b.name + " " + text(b.value)).join(", ")});
  for (const v of ticks(0, high, 4)) {
    const at = H - BOTTOM - v / high * (H - TOP - BOTTOM);
    node.append(svg("line", {class: "grid", x1: LEFT, x2: W - RIGHT, y1: at, y2: at}),
      svg("text", {x: LEFT - 6, y: at + 4, "text-anchor": "end"}, number(v)));
  }
  bars.forEach((b, i) => {
    const tall = b.value / high * (H - TOP - BOTTOM), at = LEFT + i * wide;
    node.append(svg("rect", {class: "bar", x: at + wide * .1, width: wide * .8, y: H - BOTTOM - tall,
      height: tall}, svg("title", null, b.name + ": " + text(b.value))));
    if (i % Math.ceil(bars.length / 12) === 0)
      node.append(svg("text", {x: at + wide / 2, y: H - 8, "text-anchor": "middle"}, b.name));
  });
  return node;
}

// Who had a device: {node, set(cells)}; the newest cell is at the right. A cell's parts are shown by
// their share of all that was counted in it.
export function strip(label, most = 30) {
  const w = 600, h = 40;
  const node = svg("svg", {class: "strip", viewBox: `0 0 ${w} ${h}`, preserveAspectRatio: "none", role: "img",
    "aria-label": label});
  function set(cells, uses) {
    const sums = new Map(), wide = w / most;
    node.replaceChildren(svg("rect", {class: "none", x: 0, y: 0, width: w, height: h}));
    cells.slice(-most).forEach((c, i, shown) => {
      const all = c.parts.reduce((sum, p) => sum + p.ms, 0);
      let y = h;
      for (const use of uses) {
        const parts = c.parts.filter(p => p.use === use), part = parts.reduce((sum, p) => sum + p.ms, 0);
        if (!part) continue;
        sums.set(use, (sums.get(use) || 0) + part);
        y -= part / all * h;
        const whose = parts.filter(p => p.tenant).map(p => p.tenant + " " + number(p.ms) + " ms").join(", ");
        node.append(svg("rect", {class: use, x: w - (shown.length - i) * wide, y, width: wide,
          height: part / all * h}, svg("title", null, use + (whose ? ": " + whose : ""))));
      }
    });
    const total = [...sums.values()].reduce((a, b) => a + b, 0) || 1;
    node.setAttribute("aria-label", label + ": " + ([...sums].map(([use, v]) =>
      use + " " + Math.round(100 * v / total) + " %").join(", ") || "nothing known yet"));
    return sums;
  }
  return {node, set};
}

// What colours mean.
export function keys(names) {
  return el("ul", {class: "keys"}, names.map(([name, text]) => el("li", {class: "key " + name}, text)));
}
