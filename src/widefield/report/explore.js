"use strict";
// The page's data come as base64 of gzip: a header in JSON, then arrays. Names of files and classes
// may be malicious: they reach the page through textContent and aria-label alone, never as HTML.
(() => {
const byId = (id) => document.getElementById(id);
const canvas = byId("map"), pen = canvas?.getContext("2d"); // a page may have no map
const PAGE = 48, GROUPS = 12, LEGEND = 16, TILE = 30, REACH = 14, END = 65535;
let head, arrays, n, atlases, closeAt, colors, mask = null, pressed = -1, chosen = -1, hovered = -1;
let view = { x: 0, y: 0, scale: 1 }, queued = false;
let selected = new Set(), decided, task, original, past = [], outline = null, unsaved = false;
const DECISIONS = ["keep", "exclude"], WORDS = ["kept", "excluded"];

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
  text.textContent = caption || head.paths[row].split("/").slice(-2).join("/"); // folder, often the class, and name
  button.append(picture, text);
  button.title = head.paths[row];
  button.setAttribute("aria-label", head.paths[row] + (caption ? ", " + caption : ""));
  button.dataset.row = row;
  mark(button);
  button.onclick = (event) => {
    if (event.shiftKey) return toggle(row);
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
  if (queued || !canvas) return;
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
  drawOutline();
}

// Dots are written as pixels: 50,000 calls of fill would take several frames.
function drawDots(ratio) {
  const { width, height } = canvas, image = pen.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer), side = Math.round(2.5 * ratio);
  const ids = arrays["ids" + byId("color").value], [ink] = packed([getComputedStyle(document.body).color]);
  for (const faded of mask ? [true, false] : [false]) {
    for (let i = 0; i < n; i++) {
      if (mask && (mask[i] === 0) !== faded) continue;
      const left = Math.round(toX(i) * ratio), top = Math.round(toY(i) * ratio);
      if (left < 0 || top < 0 || left >= width - side || top >= height - side) continue;
      const color = selected.has(i) ? ink : faded || decided[i] === 2 ? 0x30888888 : colors.packed[ids[i] + 1];
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
  const border = selected.has(i) ? 3 : 1.5;
  pen.fillStyle = selected.has(i) ? getComputedStyle(document.body).color : color;
  pen.fillRect(left - border, top - border, width + 2 * border, height + 2 * border);
  if (decided[i] === 2) { // excluded
    pen.fillStyle = getComputedStyle(document.body).backgroundColor;
    pen.fillRect(left, top, width, height);
    pen.globalAlpha = 0.25;
  }
  drawTile(pen, atlas, i, left, top, width, height);
  pen.globalAlpha = 1;
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

function drawOutline() {
  if (!outline) return;
  pen.strokeStyle = getComputedStyle(document.body).color;
  pen.setLineDash([5, 4]);
  pen.beginPath();
  for (const [x, y] of outline) pen.lineTo(x, y);
  pen.closePath();
  pen.stroke();
  pen.setLineDash([]);
}

// Choosing ------------------------------------------------------------------------------------

const nearOf = (row) => (arrays.neighbors ?? new Uint32Array()).subarray(row * head.k, (row + 1) * head.k);

function describe(row) {
  const values = head.colorings.map((coloring, c) => {
    const id = arrays["ids" + c][row];
    return `${coloring.name} ${id < 0 ? "none" : coloring.values[id]}`;
  });
  return values.join(", ");
}

function listTiles(text, rows) {
  const title = document.createElement("h3"), tiles = document.createElement("div");
  title.textContent = text;
  tiles.className = "tiles";
  byId("near").replaceChildren(...(rows.length ? [title, tiles] : []));
  showSome(tiles, rows.length, PAGE, (at) => tile(rows[at]));
}

function choose(row, move) {
  chosen = row;
  selected.clear();
  for (const button of document.querySelectorAll("[aria-current]")) button.removeAttribute("aria-current");
  for (const button of document.querySelectorAll(`[data-row="${row}"]`)) button.setAttribute("aria-current", "true");
  byId("name").textContent = head.paths[row];
  byId("said").textContent = describe(row);
  byId("large").hidden = false;
  paint(byId("large"), row);
  listTiles("Nearest neighbors", Array.from(nearOf(row)));
  if (move && canvas) reveal(row);
  showTarget();
  redraw();
}

function letGo() {
  chosen = -1;
  selected.clear();
  byId("name").textContent = `No ${head.example} chosen`;
  byId("said").textContent = "";
  byId("large").hidden = true;
  byId("near").replaceChildren();
  showTarget();
  redraw();
}

function select(rows) {
  chosen = -1;
  selected = new Set(rows);
  for (const button of document.querySelectorAll("[aria-current]")) button.removeAttribute("aria-current");
  byId("name").textContent = count(rows.length) + " selected";
  byId("said").textContent = "";
  byId("large").hidden = true;
  listTiles("Selected", rows);
  showTarget();
  redraw();
}

function toggle(row) {
  if (chosen >= 0) selected.add(chosen);
  if (!selected.delete(row)) selected.add(row);
  select([...selected].sort((a, b) => a - b));
}

// Rows of the map that a polygon in pixels encloses, by the even-odd rule.
function enclosed(polygon) {
  const rows = [];
  for (let i = 0; i < n; i++) {
    if (mask && mask[i] === 0) continue;
    const x = toX(i), y = toY(i);
    let inside = false;
    polygon.forEach(([x1, y1], at) => {
      const [x2, y2] = polygon.at(at - 1);
      if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) inside = !inside;
    });
    if (inside) rows.push(i);
  }
  return rows;
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
    const lasso = event.shiftKey || byId("lasso").getAttribute("aria-pressed") === "true";
    outline = lasso && held.size === 0 ? [place(event)] : null;
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
    if (outline) { outline.push([x, y]); held.set(event.pointerId, [x, y]); redraw(); return; }
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
    if (found >= 0) { if (event.shiftKey) toggle(found); else choose(found, false); }
    else if (outline) select(enclosed(outline));
    outline = null;
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
  byId("lasso").onclick = () => {
    const on = byId("lasso").getAttribute("aria-pressed") !== "true";
    byId("lasso").setAttribute("aria-pressed", on);
  };
  new ResizeObserver(redraw).observe(canvas);
}

function listenToLists() {
  byId("color").onchange = () => { pressed = -1; mask = null; byId("search").value = ""; recolor(); listNames(); };
  byId("search").oninput = () => { pressed = -1; recolor(); listNames(); };
  byId("these").onclick = () => { select(shownRows()); byId("name").focus(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
}

// Colors, names, groups ----------------------------------------------------------------------

// The golden angle separates the hues of neighboring numbers; lightness distinguishes similar hues.
function hue(id) {
  const light = matchMedia("(prefers-color-scheme: dark)").matches ? [70, 60, 78] : [45, 36, 56];
  return `hsl(${(210 + id * 137.508) % 360} ${id % 2 ? 62 : 78}% ${light[Math.floor(id / 2) % 3]}%)`;
}

// Returns colors as pixels of four bytes.
function packed(css) {
  const probe = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  return css.map((color) => {
    probe.fillStyle = color;
    probe.fillRect(0, 0, 1, 1);
    return new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
  });
}

function recolor() {
  const { values } = head.colorings[byId("color").value];
  const css = ["#8a94a0", ...values.map((_, id) => hue(id))];
  colors = { css, packed: packed(css) };
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

const count = (number) => `${number.toLocaleString("en")} ${head.example}${number === 1 ? "" : "s"}`;

function shownRows() {
  const rows = [];
  for (let i = 0; i < n; i++) if (!mask || mask[i]) rows.push(i);
  return rows;
}

// Lists the images that match the search or the color, and shows only them on the map.
function listNames() {
  const wanted = byId("search").value.toLowerCase();
  if (wanted) mask = Uint8Array.from(head.paths, (path) => path.toLowerCase().includes(wanted));
  else if (pressed < 0) mask = null;
  const rows = shownRows();
  byId("count").textContent = mask ? `${rows.length.toLocaleString("en")} of ${count(n)}` : `All ${count(n)}`;
  byId("these").textContent = mask ? `Select these ${rows.length.toLocaleString("en")}` : "Select all";
  showSome(byId("found"), rows.length, PAGE, (at) => tile(rows[at]));
  redraw();
}

function groupBox(group, spare) {
  const box = document.createElement("div"), tiles = document.createElement("div");
  const all = document.createElement("button");
  tiles.className = "tiles";
  if (group.title) {
    const title = document.createElement("h3");
    title.textContent = group.title;
    box.append(title);
  }
  all.className = "more";
  all.textContent = spare ? "Select all but the first" : "Select these";
  if (group.title) all.setAttribute("aria-label", `${all.textContent}: ${group.title}`);
  all.onclick = () => select(group.rows.slice(spare));
  box.append(tiles);
  showSome(tiles, group.rows.length, PAGE, (at) => tile(group.rows[at], group.captions[at]));
  box.append(all);
  return box;
}

function listGroups() {
  for (const box of document.querySelectorAll("[data-section]")) {
    const groups = head.sections[box.dataset.section];
    const spare = Number(box.dataset.section === "duplicates");
    showSome(box, groups.length, GROUPS, (at) => groupBox(groups[at], spare));
  }
}

// Decisions -----------------------------------------------------------------------------------

// The labels that are edited are those of a task; without one, a coloring of their own.
function startDecisions() {
  decided = new Uint8Array(n); // 0, or 1 + position in DECISIONS
  if (head.tasks.length === 0) {
    head.tasks.push(head.colorings.push({ name: "label", values: [] }) - 1);
    arrays["ids" + head.tasks[0]] = new Int32Array(n).fill(-1);
  }
  original = Object.fromEntries(head.tasks.map((at) => [at, arrays["ids" + at].slice()]));
  const last = head.colorings.push({ name: "decision", values: WORDS }) - 1;
  arrays["ids" + last] = new Int32Array(n).fill(-1);
  head.tasks.forEach((at) => byId("task").append(new Option(head.colorings[at].name, at)));
  byId("task").parentElement.hidden = head.tasks.length === 1;
  task = head.tasks[0];
}

const labelOf = (row, at = task) => { const id = arrays["ids" + at][row]; return id < 0 ? "" : head.colorings[at].values[id]; };
const isChanged = (row) => head.tasks.some((at) => arrays["ids" + at][row] !== original[at][row]);

// What was decided on an image, in words.
function verdict(row) {
  const words = decided[row] ? [WORDS[decided[row] - 1]] : [];
  if (isChanged(row)) words.push(labelOf(row) || "no label");
  return words.join(", ");
}

function mark(button) {
  const row = Number(button.dataset.row), words = verdict(row);
  button.dataset.decision = decided[row] ? DECISIONS[decided[row] - 1] : isChanged(row) ? "label" : "";
  let note = button.querySelector("em");
  if (words && !note) button.append((note = document.createElement("em")));
  if (note) note.textContent = words;
  button.setAttribute("aria-label", button.getAttribute("aria-label").split("; decided: ")[0] + (words && "; decided: " + words));
}

// The images that a key or a button decides on: the one with focus, those selected, or the chosen.
function targets() {
  const row = document.activeElement?.dataset.row;
  if (row !== undefined) return [Number(row)];
  return selected.size ? [...selected] : chosen < 0 ? [] : [chosen];
}

function showTarget() {
  const rows = selected.size ? [...selected] : chosen < 0 ? [] : [chosen];
  byId("target").textContent = rows.length === 1 ? head.paths[rows[0]] : rows.length ? count(rows.length) : `No ${head.example} chosen`;
}

// Sets rows to a decision or to a label; set(row) changes one.
function change(rows, what, set) {
  if (!rows.length) { byId("tally").textContent = `Choose or select ${head.example}s first.`; return; }
  past.push(rows.map((row) => [row, decided[row], task, arrays["ids" + task][row]]));
  rows.forEach(set);
  changed(rows, `${rows.length === 1 ? head.paths[rows[0]] : count(rows.length)}: ${what}`);
}

const decide = (value) => (rows) => change(rows, WORDS[value - 1], (row) => { decided[row] = value; });

function label(rows, name) {
  const values = head.colorings[task].values;
  name = name.replace(/\p{C}/gu, "").trim();
  if (!name) return;
  if (!values.includes(name)) { values.push(name); listClasses(); }
  change(rows, name, (row) => { arrays["ids" + task][row] = values.indexOf(name); });
}

function undo() {
  const last = past.pop() ?? [];
  for (const [row, decision, at, id] of last) { decided[row] = decision; arrays["ids" + at][row] = id; }
  changed(last.map(([row]) => row), last.length ? `${count(last.length)}: undone` : "Nothing to undo");
}

function changed(rows, text) {
  const at = head.colorings.length - 1, rest = new Set(rows);
  for (const row of rows) arrays["ids" + at][row] = decided[row] - 1;
  for (const button of document.querySelectorAll("[data-row]")) if (rest.has(Number(button.dataset.row))) mark(button);
  const tally = [0, 0, 0];
  for (let row = 0; row < n; row++) { if (decided[row]) tally[decided[row] - 1]++; tally[2] += isChanged(row); }
  unsaved ||= rows.length > 0;
  byId("tally").textContent = `${text}. In all ${tally[0]} kept, ${tally[1]} excluded, ${tally[2]} relabeled.`;
  if (chosen >= 0) byId("said").textContent = describe(chosen);
  recolor();
}

// Buttons of the first nine classes, with their number as key, and a list of all.
function listClasses() {
  const { values } = head.colorings[task];
  byId("classes").replaceChildren(...values.slice(0, 9).map((name, at) => {
    const button = document.createElement("button"), key = document.createElement("kbd");
    key.textContent = at + 1;
    button.append(key, name);
    button.setAttribute("aria-keyshortcuts", at + 1);
    button.onclick = () => label(targets(), name);
    return button;
  }));
  byId("known").replaceChildren(...values.map((name) => new Option(name)));
}

function listenToDecisions() {
  const keys = {
    k: () => decide(1)(targets()), x: () => decide(2)(targets()), u: undo, s: save,
    l: () => byId("lasso")?.click(), m: () => targets().length === 1 && toggle(targets()[0]),
    a: accept, Escape: letGo,
  };
  byId("keep").onclick = keys.k;
  byId("exclude").onclick = keys.x;
  byId("undo").onclick = undo;
  byId("save").onclick = save;
  byId("accept").hidden = head.predicted === null;
  byId("accept").onclick = accept;
  byId("task").onchange = () => { task = Number(byId("task").value); listClasses(); };
  byId("other").onsubmit = (event) => { event.preventDefault(); label(targets(), byId("class").value); byId("class").value = ""; };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select")) return;
    const button = event.target.closest("[data-row]"), name = head.colorings[task].values[event.key - 1];
    const beside = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
    if (button && beside) button[beside]?.focus();
    else if (name !== undefined && /^[1-9]$/.test(event.key)) label(targets(), name);
    else if (event.key in keys) keys[event.key]();
    else return;
    event.preventDefault();
  });
  window.addEventListener("beforeunload", (event) => { if (unsaved) event.preventDefault(); });
}

// Gives images the class that was predicted for them.
function accept() {
  if (head.predicted === null) return;
  const { values } = head.colorings[head.predicted], ids = arrays["ids" + head.predicted], rows = targets();
  for (const id of new Set(rows.map((row) => ids[row]))) label(rows.filter((row) => ids[row] === id), values[id]);
}

// Every field is quoted, so that commas, quotes and line breaks in names stay part of them.
const csv = (rows) => rows.map((row) => row.map((cell) => `"${String(cell).replaceAll('"', '""')}"`).join(",") + "\r\n").join("");

function decisionsCsv() {
  const names = head.tasks.map((at) => head.colorings[at].name), rows = [["path", "decision", ...names]];
  for (let row = 0; row < n; row++) {
    const labels = head.tasks.map((at) => labelOf(row, at));
    if (decided[row] || labels.some(Boolean)) rows.push([head.paths[row], decided[row] ? DECISIONS[decided[row] - 1] : "", ...labels]);
  }
  return csv(rows);
}

// Rows that are labeled and not excluded.
const labeledRows = () => Array.from({ length: n }, (_, row) => row).filter((row) => decided[row] !== 2 && labelOf(row));

const labelsCsv = () => csv([["path", "label"], ...labeledRows().map((row) => [head.paths[row], labelOf(row)])]);

function coco() {
  const rows = labeledRows(), ids = arrays["ids" + task];
  const images = rows.map((row) => ({ id: row + 1, file_name: head.paths[row], width: arrays.width[row], height: arrays.height[row] }));
  const annotations = images.map(({ id, width, height }, at) => ({
    id: at + 1, image_id: id, category_id: ids[id - 1] + 1, bbox: [0, 0, width, height], area: width * height, iscrowd: 0,
  }));
  const categories = head.colorings[task].values.map((name, id) => ({ id: id + 1, name }));
  return JSON.stringify({ images, annotations, categories });
}

function labelStudio() {
  const result = (name) => [{ from_name: "label", to_name: "image", type: "choices", value: { choices: [name] } }];
  return JSON.stringify(labeledRows().map((row) => ({
    data: { image: "/data/local-files/?d=" + encodeURIComponent(head.paths[row]) }, annotations: [{ result: result(labelOf(row)) }],
  })));
}

function save() {
  const [name, make] = { decisions: ["decisions.csv", decisionsCsv], labels: ["labels.csv", labelsCsv], coco: ["coco.json", coco], studio: ["label-studio.json", labelStudio] }[byId("format").value];
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([make()], { type: "text/plain;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  unsaved = unsaved && name !== "decisions.csv";
  byId("tally").textContent = `Saved ${name} to the folder of downloads.`;
}

async function start() {
  await unpack(byId("data").textContent);
  n = head.paths.length;
  atlases = await unpackSheets();
  closeAt = new Map(atlases.length > 1 ? head.close.map((row, at) => [row, at]) : []);
  startDecisions();
  head.colorings.forEach(({ name }, c) => byId("color").append(new Option(name, c)));
  recolor();
  if (canvas) { wholeMap(); listen(); }
  listClasses();
  listGroups();
  listNames();
  listenToLists();
  listenToDecisions();
}

start().catch((error) => {
  byId("trouble").hidden = false;
  byId("trouble").textContent = `The pictures cannot be drawn: ${error.message}. A browser of 2023 or later is needed.`;
});
})();
