"use strict";
// The page's data come as base64 of gzip: a header in JSON, then arrays. Names of files and classes
// may be malicious: they reach the page through textContent and aria-label alone, never as HTML.
(() => {
const byId = (id) => document.getElementById(id);
const canvas = byId("map"), pen = canvas.getContext("2d");
const PAGE = 48, GROUPS = 12, LEGEND = 16, TILE = 30, REACH = 14, END = 65535;
let head, arrays, n, atlases, closeAt, colors, mask = null, pressed = -1, chosen = -1, hovered = -1;
let view = { x: 0, y: 0, scale: 1 }, queued = false;

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const whole = await new Response(stream).arrayBuffer();
  const length = new DataView(whole).getUint32(0, true);
  head = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length)));
  const kinds = { u2: Uint16Array, u4: Uint32Array, i4: Int32Array };
  let at = 4 + length;
  arrays = {};
  for (const [name, kind, count] of head.arrays) {
    arrays[name] = new kinds[kind](whole, at, count);
    at += Math.ceil(arrays[name].byteLength / 4) * 4;
  }
}

async function unpackSheets() {
  const found = [];
  for (const script of document.querySelectorAll("script[data-atlas]")) {
    const [width, height, columns, rows] = script.dataset.shape.split(" ").map(Number);
    const atlas = (found[script.dataset.atlas] ??= { width, height, columns, rows, sheets: [] });
    const image = new Image();
    image.src = "data:image/webp;base64," + script.textContent;
    atlas.sheets.push(image);
    await image.decode();
  }
  return found;
}

// Pictures ------------------------------------------------------------------------------------

function drawTile(target, atlas, position, x, y, width, height) {
  const full = atlas.columns * atlas.rows, inSheet = position % full;
  const left = (inSheet % atlas.columns) * atlas.width;
  const top = Math.floor(inSheet / atlas.columns) * atlas.height;
  const sheet = atlas.sheets[Math.floor(position / full)];
  target.drawImage(sheet, left, top, atlas.width, atlas.height, x, y, width, height);
}

function paint(element, row) {
  const place = closeAt.get(row);
  const [atlas, position] = place === undefined ? [atlases[0], row] : [atlases[1], place];
  element.width = atlas.width;
  element.height = atlas.height;
  drawTile(element.getContext("2d"), atlas, position, 0, 0, atlas.width, atlas.height);
}

function tile(row, caption) {
  const button = document.createElement("button"), picture = document.createElement("canvas");
  const text = document.createElement("span");
  paint(picture, row);
  text.textContent = caption || head.paths[row];
  button.append(picture, text);
  button.title = head.paths[row];
  button.setAttribute("aria-label", head.paths[row] + (caption ? ", " + caption : ""));
  button.dataset.row = row;
  button.onclick = () => {
    choose(row, true);
    if (!button.isConnected) byId("name").focus(); // the button was in the list of neighbors, which changed
  };
  return button;
}

// Shows `total` elements make(i) in `box`, `step` at a time.
function showSome(box, total, step, make) {
  let shown = 0;
  const more = document.createElement("button");
  more.className = "more";
  const show = () => {
    const end = Math.min(shown + step, total);
    for (; shown < end; shown++) box.append(make(shown));
    more.textContent = `Show ${Math.min(step, total - end)} more of ${(total - end).toLocaleString("en")}`;
    if (end === total) more.remove();
  };
  if (box.nextElementSibling?.className === "more") box.nextElementSibling.remove();
  box.replaceChildren();
  box.after(more);
  more.onclick = () => {
    const first = shown;
    show();
    const next = box.children[first];
    (next.querySelector("button") ?? next).focus();
  };
  show();
}

// Map -----------------------------------------------------------------------------------------

const toX = (i) => (arrays.x[i] - view.x) * view.scale, toY = (i) => (arrays.y[i] - view.y) * view.scale;

function wholeMap() {
  let right = 1, low = 1;
  for (let i = 0; i < n; i++) { right = Math.max(right, arrays.x[i]); low = Math.max(low, arrays.y[i]); }
  const { clientWidth: w, clientHeight: h } = canvas;
  view.scale = Math.min((w - 2 * TILE) / right, (h - 2 * TILE) / low);
  view.x = right / 2 - w / 2 / view.scale;
  view.y = low / 2 - h / 2 / view.scale;
  redraw();
}

function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const scale = Math.min(Math.max(view.scale * factor, 1e-4), 10);
  view.x += x / view.scale - x / scale;
  view.y += y / view.scale - y / scale;
  view.scale = scale;
  redraw();
}

function redraw() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => { queued = false; draw(); });
}

function draw() {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
  }
  drawDots(ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawPictures(w, h);
  drawChosen();
}

// Dots are written as pixels: 50,000 calls of fill would take several frames.
function drawDots(ratio) {
  const { width, height } = canvas, image = pen.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer), side = Math.round(2.5 * ratio);
  const ids = arrays["ids" + byId("color").value];
  for (const faded of mask ? [true, false] : [false]) {
    for (let i = 0; i < n; i++) {
      if (mask && (mask[i] === 0) !== faded) continue;
      const left = Math.round(toX(i) * ratio), top = Math.round(toY(i) * ratio);
      if (left < 0 || top < 0 || left >= width - side || top >= height - side) continue;
      const color = faded ? 0x30888888 : colors.packed[ids[i] + 1];
      for (let dy = 0; dy < side; dy++) {
        const at = (top + dy) * width + left;
        for (let dx = 0; dx < side; dx++) pixels[at + dx] = color;
      }
    }
  }
  pen.putImageData(image, 0, 0);
}

// One image for each cell of a grid that is fixed on the map: the one nearest to its center.
function drawPictures(w, h) {
  const cell = 2 ** Math.ceil(Math.log2(TILE / view.scale));
  const columns = Math.ceil(w / view.scale / cell) + 2, rows = Math.ceil(h / view.scale / cell) + 2;
  const firstX = Math.floor(view.x / cell), firstY = Math.floor(view.y / cell);
  const best = new Int32Array(columns * rows).fill(-1), gap = new Float64Array(columns * rows);
  for (let i = 0; i < n; i++) {
    if (mask && mask[i] === 0) continue;
    const cx = Math.floor(arrays.x[i] / cell), cy = Math.floor(arrays.y[i] / cell);
    const column = cx - firstX, row = cy - firstY;
    if (column < 0 || row < 0 || column >= columns || row >= rows) continue;
    const away = (arrays.x[i] - (cx + 0.5) * cell) ** 2 + (arrays.y[i] - (cy + 0.5) * cell) ** 2;
    const at = row * columns + column;
    if (best[at] < 0 || away < gap[at]) { best[at] = i; gap[at] = away; }
  }
  const side = Math.min(0.8 * cell * view.scale, 64), ids = arrays["ids" + byId("color").value];
  for (const i of best) if (i >= 0) drawPicture(i, side, colors.css[ids[i] + 1]);
}

function drawPicture(i, side, color) {
  const atlas = atlases[0], long = Math.max(atlas.width, atlas.height);
  const width = (side * atlas.width) / long, height = (side * atlas.height) / long;
  const left = toX(i) - width / 2, top = toY(i) - height / 2;
  pen.fillStyle = color;
  pen.fillRect(left - 1.5, top - 1.5, width + 3, height + 3);
  drawTile(pen, atlas, i, left, top, width, height);
}

function drawChosen() {
  const ink = getComputedStyle(document.body).color;
  if (hovered >= 0 && hovered !== chosen) drawPicture(hovered, 64, ink);
  if (chosen < 0) return;
  pen.strokeStyle = ink;
  pen.lineWidth = 1.5;
  for (const near of nearOf(chosen)) {
    pen.beginPath();
    pen.moveTo(toX(chosen), toY(chosen));
    pen.lineTo(toX(near), toY(near));
    pen.stroke();
  }
  for (const near of nearOf(chosen)) drawPicture(near, 36, ink);
  drawPicture(chosen, 72, ink);
}

// Choosing ------------------------------------------------------------------------------------

const nearOf = (row) => arrays.neighbors.subarray(row * head.k, (row + 1) * head.k);

function describe(row) {
  const values = head.colorings.map((coloring, c) => {
    const id = arrays["ids" + c][row];
    return `${coloring.name} ${id < 0 ? "none" : coloring.values[id]}`;
  });
  return values.join(", ");
}

function choose(row, move) {
  chosen = row;
  for (const button of document.querySelectorAll("[aria-current]")) button.removeAttribute("aria-current");
  for (const button of document.querySelectorAll(`[data-row="${row}"]`)) button.setAttribute("aria-current", "true");
  byId("name").textContent = head.paths[row];
  byId("said").textContent = describe(row);
  byId("large").hidden = false;
  paint(byId("large"), row);
  const title = document.createElement("h3"), tiles = document.createElement("div");
  title.textContent = "Nearest neighbors";
  tiles.className = "tiles";
  tiles.append(...Array.from(nearOf(row), (near) => tile(near)));
  byId("near").replaceChildren(title, tiles);
  if (move) reveal(row);
  redraw();
}

function letGo() {
  chosen = -1;
  byId("name").textContent = `No ${head.example} chosen`;
  byId("said").textContent = "";
  byId("large").hidden = true;
  byId("near").replaceChildren();
  redraw();
}

// Moves the map so that an image is visible, away from the border.
function reveal(row) {
  const { clientWidth: w, clientHeight: h } = canvas, x = toX(row), y = toY(row);
  if (x > 40 && y > 40 && x < w - 40 && y < h - 40) return;
  view.x = arrays.x[row] - w / 2 / view.scale;
  view.y = arrays.y[row] - h / 2 / view.scale;
}

function nearestTo(x, y, reach) {
  let best = -1, least = reach * reach;
  for (let i = 0; i < n; i++) {
    if (mask && mask[i] === 0) continue;
    const away = (toX(i) - x) ** 2 + (toY(i) - y) ** 2;
    if (away < least) { least = away; best = i; }
  }
  return best;
}

// The next image in a direction, weighted against sideways distance.
function step(dx, dy) {
  if (chosen < 0) return nearestTo(canvas.clientWidth / 2, canvas.clientHeight / 2, Infinity);
  let best = chosen, least = Infinity;
  for (let i = 0; i < n; i++) {
    if (i === chosen || (mask && mask[i] === 0)) continue;
    const x = arrays.x[i] - arrays.x[chosen], y = arrays.y[i] - arrays.y[chosen];
    const along = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (along > 0 && aside <= along && along + 2 * aside < least) { least = along + 2 * aside; best = i; }
  }
  return best;
}

function listen() {
  const held = new Map();
  let moved = 0, spread = 0;
  const place = (event) => [event.offsetX, event.offsetY];
  const gap = () => { const [a, b] = [...held.values()]; return Math.hypot(a[0] - b[0], a[1] - b[1]); };
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, place(event));
    moved = held.size === 1 ? 0 : Infinity;
    if (held.size === 2) spread = gap();
  };
  canvas.onpointermove = (event) => {
    const [x, y] = place(event), before = held.get(event.pointerId);
    if (!before) {
      const found = nearestTo(x, y, REACH);
      if (found !== hovered) { hovered = found; canvas.title = found < 0 ? "" : head.paths[found]; redraw(); }
      return;
    }
    moved += Math.hypot(x - before[0], y - before[1]);
    view.x -= (x - before[0]) / view.scale / held.size;
    view.y -= (y - before[1]) / view.scale / held.size;
    held.set(event.pointerId, [x, y]);
    if (held.size === 2) { const now = gap(); zoom(now / spread, x, y); spread = now; }
    redraw();
  };
  canvas.onpointerup = canvas.onpointercancel = (event) => {
    const isClick = event.type === "pointerup" && held.size === 1 && moved < 5;
    held.delete(event.pointerId);
    const found = isClick ? nearestTo(...place(event), 2 * REACH) : -1;
    if (found >= 0) choose(found, false);
  };
  canvas.onpointerleave = () => { hovered = -1; redraw(); };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), ...place(event));
  }, { passive: false });
  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in arrows) {
      const next = step(...arrows[event.key]);
      if (next >= 0) choose(next, true);  // none where a search finds none
    } else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "Enter" && chosen >= 0) byId("name").focus();
    else if (event.key === "Escape") letGo();
    else return;
    event.preventDefault();
  };
  byId("closer").onclick = () => zoom(1.5);
  byId("wider").onclick = () => zoom(1 / 1.5);
  byId("whole").onclick = wholeMap;
  byId("color").onchange = () => { pressed = -1; mask = null; byId("search").value = ""; recolor(); listNames(); };
  byId("search").oninput = () => { pressed = -1; recolor(); listNames(); };
  new ResizeObserver(redraw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
}

// Colors, names, groups ----------------------------------------------------------------------

// The golden angle separates the hues of neighboring numbers; lightness distinguishes similar hues.
function hue(id) {
  const light = matchMedia("(prefers-color-scheme: dark)").matches ? [70, 60, 78] : [45, 36, 56];
  return `hsl(${(210 + id * 137.508) % 360} ${id % 2 ? 62 : 78}% ${light[Math.floor(id / 2) % 3]}%)`;
}

function recolor() {
  const { values } = head.colorings[byId("color").value];
  const css = ["#8a94a0", ...values.map((_, id) => hue(id))];
  const probe = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const packed = css.map((color) => {
    probe.fillStyle = color;
    probe.fillRect(0, 0, 1, 1);
    return new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
  });
  colors = { css, packed };
  legend(values, css);
  redraw();
}

function legend(values, css) {
  const ids = arrays["ids" + byId("color").value], counts = new Uint32Array(values.length + 1);
  for (let i = 0; i < n; i++) counts[ids[i] + 1]++;
  const order = [...counts.keys()].filter((id) => counts[id]).sort((a, b) => counts[b] - counts[a]);
  showSome(byId("legend"), order.length, LEGEND, (at) => {
    const id = order[at] - 1, item = document.createElement("li"), button = document.createElement("button");
    const dot = document.createElement("i");
    dot.style.background = css[id + 1];
    button.append(dot, `${id < 0 ? "none" : values[id]} (${counts[id + 1].toLocaleString("en")})`);
    button.setAttribute("aria-pressed", pressed === id + 1);
    button.onclick = () => {
      pressed = pressed === id + 1 ? -1 : id + 1;
      mask = pressed < 0 ? null : Uint8Array.from(ids, (own) => own + 1 === pressed);
      byId("search").value = "";
      for (const other of byId("legend").querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", pressed === id + 1);
      listNames();
      redraw();
    };
    item.append(button);
    return item;
  });
}

// Lists the images that match the search or the color, and shows only them on the map.
function listNames() {
  const wanted = byId("search").value.toLowerCase();
  if (wanted) mask = Uint8Array.from(head.paths, (path) => path.toLowerCase().includes(wanted));
  else if (pressed < 0) mask = null;
  const rows = [];
  for (let i = 0; i < n; i++) if (!mask || mask[i]) rows.push(i);
  byId("count").textContent = mask
    ? `${rows.length.toLocaleString("en")} of ${n.toLocaleString("en")} ${head.example}s`
    : `All ${n.toLocaleString("en")} ${head.example}s`;
  showSome(byId("found"), rows.length, PAGE, (at) => tile(rows[at]));
  redraw();
}

function groupBox(group) {
  const box = document.createElement("div"), tiles = document.createElement("div");
  tiles.className = "tiles";
  if (group.title) {
    const title = document.createElement("h3");
    title.textContent = group.title;
    box.append(title);
  }
  box.append(tiles);
  showSome(tiles, group.rows.length, PAGE, (at) => tile(group.rows[at], group.captions[at]));
  return box;
}

function listGroups() {
  for (const box of document.querySelectorAll("[data-section]")) {
    const groups = head.sections[box.dataset.section];
    showSome(box, groups.length, GROUPS, (at) => groupBox(groups[at]));
  }
}

async function start() {
  await unpack(byId("data").textContent);
  n = head.paths.length;
  atlases = await unpackSheets();
  closeAt = new Map(atlases.length > 1 ? head.close.map((row, at) => [row, at]) : []);
  head.colorings.forEach(({ name }, c) => byId("color").append(new Option(name, c)));
  recolor();
  wholeMap();
  listGroups();
  listNames();
  listen();
}

start().catch((error) => {
  byId("trouble").hidden = false;
  byId("trouble").textContent = `The pictures cannot be drawn: ${error.message}. A browser of 2023 or later is needed.`;
});
})();
