"use strict";
(() => {
const D = JSON.parse(document.getElementById("data").textContent);
const S = D.strings, MARKS = ["same value", "part of", "made for"];
const SIGNS = { a: "−", b: "+", changed: "~", moved: "›", same: "" };
const DIFFERS = { a: "only in the first", b: "only in the second", changed: "changed", moved: "moved", same: "the same" };
const KINDS = { a: "gone", b: "new", changed: "changed", moved: "moved", same: "same" };
const ROW = 22, LINE = 18, MOST = 150;
const $ = id => document.getElementById(id);

// -- text and elements: all text of programs goes through `shown`, and into text nodes

const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}]/gu;
const shown = text => String(text).replace(HIDDEN, c => c === "\n" ? c : "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
const NS = "http://www.w3.org/2000/svg";
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "click") element.addEventListener("click", value);
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  for (const child of children.flat(9)) if (child !== null && child !== undefined) element.append(child.nodeType ? child : shown(child));
  return element;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(NS, tag), attributes, children);
const bytes = n => n >= 1e9 ? (n / 1e9).toFixed(2) + " GB" : n >= 1e6 ? (n / 1e6).toFixed(2) + " MB" : n >= 1e3 ? (n / 1e3).toFixed(1) + " kB" : n + " B";
const time = s => s >= 1 ? s.toFixed(3) + " s" : s >= 1e-3 ? (s * 1e3).toFixed(3) + " ms" : (s * 1e6).toFixed(2) + " µs";
const percent = x => (100 * x).toFixed(x < 0.1 ? 1 : 0) + " %";
const say = text => { $("said").textContent = shown(text); };

// -- stages

class Stage {
  constructor(data, number) {
    Object.assign(this, data);
    this.number = number;
    this.count = data.name.length;
    this.of = new Int32Array(this.count);
    data.computations.forEach(([, first, count], c) => this.of.fill(c, first, first + count));
  }
  nameOf(i) { return S[this.name[i]]; }
  get users() {
    if (!this._users) {
      this._users = Array.from({ length: this.count }, () => null);
      this.operands.forEach((operands, i) => { for (const o of new Set(operands)) (this._users[o] ||= []).push(i); });
    }
    return this._users;
  }
  find(name) {
    const wanted = S.indexOf(name);
    return wanted < 0 ? -1 : this.name.indexOf(wanted);
  }
  from(i) {  // pairs of the stage before
    const flat = this.origins ? this.origins[i] : [], found = [];
    for (let k = 0; k < flat.length; k += 2) found.push([flat[k], flat[k + 1]]);
    return found.sort((a, b) => a[1] - b[1]);
  }
  get to() {  // pairs of the stage after
    if (!this._to) {
      this._to = new Map();
      const next = stages[this.number + 1];
      if (next && next.origins) next.origins.forEach((flat, i) => {
        for (let k = 0; k < flat.length; k += 2) {
          if (!this._to.has(flat[k])) this._to.set(flat[k], []);
          this._to.get(flat[k]).push([i, flat[k + 1]]);
        }
      });
      for (const found of this._to.values()) found.sort((a, b) => a[1] - b[1]);
    }
    return this._to;
  }
  kind(i) {  // how the pass changed it
    if (!this.origins) return "same";
    if (this.kinds) return this.kinds[i];
    if (!this._kinds) this._kinds = new Array(this.count);
    return this._kinds[i] ||= this._kind(i);
  }
  _kind(i) {
    const before = stages[this.number - 1], bare = text => text.replace(/%[\w.-]+/g, "%").replace(/\/\*.*?\*\//g, "");
    const same = this.from(i).filter(([, mark]) => mark === 0).map(([old]) => old);
    if (!same.length) return "b";
    const kept = same.find(old => before.opcode[old] === this.opcode[i] && before.shape[old] === this.shape[i]
      && bare(S[before.text[old]]) === bare(S[this.text[i]]) && before.operands[old].length === this.operands[i].length
      && before.operands[old].every((o, k) => this.from(this.operands[i][k]).some(([x, mark]) => x === o && mark === 0)));
    if (kept === undefined || same.length > 1) return "changed";  // several are one now
    return before.computations[before.of[kept]][0] === this.computations[this.of[i]][0] ? "same" : "moved";
  }
  gone() {  // of this stage, what the next pass leaves nothing of
    return [...this.name.keys()].filter(i => !this.to.has(i));
  }
}
const stages = D.stages.map((data, number) => new Stage(data, number));

function follow(i, from, to) {  // the nearest instruction of another stage; -1
  for (let step = from; i >= 0 && step !== to; ) {
    const pairs = step < to ? stages[step].to.get(i) : stages[step].from(i);
    i = pairs && pairs.length ? pairs[0][0] : -1;
    step += step < to ? 1 : -1;
  }
  return i;
}
function everywhere(i, from, to) {  // all instructions of another stage, each with the farthest mark on the way
  let found = new Map([[i, 0]]);
  for (let step = from; step !== to; step += step < to ? 1 : -1) {
    const next = new Map();
    for (const [one, mark] of found) for (const [other, m] of (step < to ? stages[step].to.get(one) : stages[step].from(one)) || []) {
      const both = Math.max(mark, m);
      if (!(next.get(other) <= both)) next.set(other, both);
    }
    found = next;
  }
  return [...found].sort((a, b) => a[1] - b[1]);
}

// -- state, which the address has too

const state = { stage: stages.length - 1, at: -1, radius: 2, colour: "pass", tab: "", step: -1, query: "" };
if (D.code || D.diff || stages.length === 1) state.stage = stages.length - 1; else state.stage = 0;
const now = () => stages[state.stage];
let writing = false;
function remember() {
  const words = new URLSearchParams();
  if (stages.length) words.set("stage", state.stage);
  if (state.at >= 0) words.set("at", now().nameOf(state.at));
  words.set("radius", state.radius);
  if (state.tab) words.set("tab", state.tab);
  writing = true;
  try { history.replaceState(null, "", "#" + words); } catch { /* a sandboxed frame has no address of its own */ }
  writing = false;
}
function recall() {
  const words = new URLSearchParams(location.hash.slice(1));
  const stage = Number(words.get("stage") ?? state.stage), radius = Number(words.get("radius") ?? state.radius);
  if (Number.isInteger(stage) && stages[stage]) state.stage = stage;
  if (Number.isInteger(radius) && radius >= 0 && radius <= 9) state.radius = radius;
  if (words.get("tab")) state.tab = words.get("tab");
  if (words.get("at") && stages.length) state.at = now().find(words.get("at"));
  if (state.at < 0 && stages.length) state.at = entryRoot();
}
const entryRoot = () => (now().computations.find(c => c[4]) || now().computations[0])[3];

// -- outline: only the rows that are in sight are elements

const tree = $("tree"), space = $("space"), open = new Set();
let rows = [], focus = 0;
const scopes = new Map();
function scopesOf(c) {  // a computation's instructions by the parts of their op_name
  const key = state.stage + ":" + c;
  if (!scopes.has(key)) {
    const [, first, count] = now().computations[c], root = { inner: new Map(), own: [] };
    for (let i = first; i < first + count; i++) {
      let here = root;
      for (const part of S[now().scope[i]].split("/").slice(0, -1)) {
        if (!here.inner.has(part)) here.inner.set(part, { inner: new Map(), own: [] });
        here = here.inner.get(part);
      }
      here.own.push(i);
    }
    scopes.set(key, root);
  }
  return scopes.get(key);
}
const sizeOf = scope => scope.size ??= scope.own.length + [...scope.inner.values()].reduce((n, s) => n + sizeOf(s), 0);
function buildRows() {
  rows = [];
  const stage = now();
  if (state.query) {
    const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = words.map(word => Uint8Array.from(S, text => text.length < 4000 && text.toLowerCase().includes(word) ? 1 : 0));
    for (let i = 0; i < stage.count; i++) {
      if (hits.every(hit => hit[stage.name[i]] || hit[stage.opcode[i]] || hit[stage.shape[i]] || hit[stage.scope[i]])) rows.push({ i, level: 1 });
    }
    say(`${rows.length.toLocaleString()} of ${stage.count.toLocaleString()} instructions`);
    return;
  }
  const order = [...stage.computations.keys()].reverse();
  for (const c of order) {
    const key = "c" + S[stage.computations[c][0]];
    rows.push({ c, level: 1, key, label: "%" + S[stage.computations[c][0]], count: stage.computations[c][2] });
    if (open.has(key)) addScope(scopesOf(c), key, 2);
  }
}
function addScope(scope, key, level) {
  for (const [part, inner] of scope.inner) {
    const own = key + "/" + part;
    rows.push({ level, key: own, label: part, count: sizeOf(inner) });
    if (open.has(own)) addScope(inner, own, level + 1);
  }
  for (const i of scope.own) rows.push({ i, level });
}
function openTo(i) {
  const c = now().of[i];
  let key = "c" + S[now().computations[c][0]];
  open.add(key);
  for (const part of S[now().scope[i]].split("/").slice(0, -1)) open.add(key += "/" + part);
}
function drawTree() {
  space.style.height = rows.length * ROW + "px";
  const first = Math.max(0, Math.floor(tree.scrollTop / ROW) - 4), last = Math.min(rows.length, first + Math.ceil(tree.clientHeight / ROW) + 8);
  const made = [];
  for (let r = first; r < last; r++) made.push(rowElement(rows[r], r));
  space.replaceChildren(...made);
  if (rows.length && focus >= first && focus < last) tree.setAttribute("aria-activedescendant", "row" + focus);
  else tree.removeAttribute("aria-activedescendant");
}
function rowElement(row, r) {
  const stage = now(), isLeaf = row.i !== undefined, attributes = {
    class: "row" + (isLeaf && row.i === state.at ? " at" : ""), id: "row" + r, role: "treeitem", "aria-level": row.level,
    "aria-setsize": rows.length, "aria-posinset": r + 1, "aria-selected": isLeaf && row.i === state.at,
    "aria-expanded": isLeaf ? undefined : open.has(row.key), click: () => { focus = r; act(row); tree.focus(); },
  };
  const mark = isLeaf ? SIGNS[stage.kind(row.i)] : open.has(row.key) ? "▾" : "▸";
  const made = el("div", attributes, el("span", { class: "mark" }, mark),
    isLeaf ? [stage.nameOf(row.i), el("span", { class: "dim" }, "  " + S[stage.shape[row.i]])]
      : [row.label, el("span", { class: "dim" }, ` ${row.count.toLocaleString()}`)]);
  made.style.top = r * ROW + "px";
  made.style.paddingLeft = 0.3 + 0.9 * (row.level - 1) + "rem";
  if (isLeaf) made.title = shown(S[stage.text[row.i]]) + (by(stage, row.i) && "\n" + by(stage, row.i));
  return made;
}
function act(row) {
  if (row.i !== undefined) return select(row.i, false);
  if (open.has(row.key)) open.delete(row.key); else open.add(row.key);
  buildRows();
  drawTree();
}
function reveal() {
  if (!state.query && state.at >= 0) openTo(state.at);
  buildRows();
  const place = rows.findIndex(row => row.i === state.at);
  if (place >= 0) {
    focus = place;
    if (place * ROW < tree.scrollTop || (place + 1) * ROW > tree.scrollTop + tree.clientHeight) {
      space.style.height = rows.length * ROW + "px";
      tree.scrollTop = Math.max(0, place * ROW - tree.clientHeight / 3);
    }
  }
  drawTree();
}
tree.addEventListener("scroll", drawTree, { passive: true });
tree.addEventListener("keydown", event => {
  const row = rows[focus];
  if (!row) return;
  if (event.key === "ArrowDown") focus = Math.min(rows.length - 1, focus + 1);
  else if (event.key === "ArrowUp") focus = Math.max(0, focus - 1);
  else if (event.key === "Home") focus = 0;
  else if (event.key === "End") focus = rows.length - 1;
  else if (event.key === "Enter" || event.key === " ") act(row);
  else if (event.key === "ArrowRight" && row.key && !open.has(row.key)) act(row);
  else if (event.key === "ArrowLeft" && row.key && open.has(row.key)) act(row);
  else if (event.key === "ArrowLeft") { while (focus > 0 && rows[focus].level >= row.level) focus--; }
  else return;
  event.preventDefault();
  if (["ArrowDown", "ArrowUp", "Home", "End"].includes(event.key) && rows[focus].i !== undefined) select(rows[focus].i, false);
  if (focus * ROW < tree.scrollTop) tree.scrollTop = focus * ROW;
  if ((focus + 1) * ROW > tree.scrollTop + tree.clientHeight) tree.scrollTop = (focus + 1) * ROW - tree.clientHeight;
  drawTree();
});

// -- graph: the neighbours of the instruction, laid out by dagre

const graph = $("graph"), scene = $("scene");
let box = [0, 0, 800, 400];
function neighbours() {
  const stage = now(), distance = new Map([[state.at, 0]]), queue = [state.at];
  let left = 0;
  for (let k = 0; k < queue.length; k++) {
    const i = queue[k], d = distance.get(i);
    if (d === state.radius) continue;
    for (const other of [...stage.operands[i], ...(stage.users[i] || [])]) {
      if (distance.has(other)) continue;
      if (queue.length >= MOST) { left++; continue; }
      distance.set(other, d + 1);
      queue.push(other);
    }
  }
  return [queue, left];
}
function drawGraph() {
  scene.replaceChildren();
  if (state.at < 0) return;
  const stage = now(), [nodes, left] = neighbours(), g = new dagre.graphlib.Graph();
  g.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 28, marginx: 12, marginy: 12, ranker: nodes.length > 60 ? "longest-path" : "network-simplex" });
  g.setDefaultEdgeLabel(() => ({}));
  const inside = new Set(nodes), cut = (text, n) => text.length > n ? text.slice(0, n - 1) + "…" : text;
  for (const i of nodes) {
    const top = cut(shown(stage.nameOf(i)), 34), note = noteOf(i), low = cut(shown(S[stage.shape[i]]), 34) + (note ? "  " + note : "");
    g.setNode(i, { width: 16 + Math.max(top.length * 7.3, low.length * 6.4), height: 40, top, low });
  }
  for (const i of nodes) for (const o of new Set(stage.operands[i])) if (inside.has(o)) g.setEdge(o, i);
  dagre.layout(g);
  const made = [];
  for (const e of g.edges()) made.push(svg("path", { class: "edge", "marker-end": "url(#arrow)", d: "M" + g.edge(e).points.map(p => p.x.toFixed(1) + " " + p.y.toFixed(1)).join("L") }));
  for (const i of nodes) {
    const n = g.node(i), kind = state.colour === "pass" ? stage.kind(i) : "", rect = svg("rect", { x: n.x - n.width / 2, y: n.y - 20, width: n.width, height: 40, rx: 5 });
    const paint = colourOf(i);
    if (paint) rect.style.fill = paint;
    const node = svg("g", { class: `node ${kind} ${i === state.at ? "at" : ""}`, "data-name": stage.nameOf(i), click: () => select(i) }, rect,
      svg("text", { x: n.x, y: n.y - 3, "text-anchor": "middle" }, (kind && SIGNS[kind] ? SIGNS[kind] + " " : "") + n.top),
      svg("text", { x: n.x, y: n.y + 12, "text-anchor": "middle", class: "small" }, n.low));
    node.append(svg("title", {}, S[stage.text[i]]));
    made.push(node);
  }
  scene.replaceChildren(...made);
  const { width, height } = g.graph(), centre = g.node(state.at), w = graph.clientWidth || 800, h = graph.clientHeight || 400;
  const scale = Math.max(0.35, Math.min(1.15, w / width, h / height));
  const at = (size, extent, c) => size / scale >= extent ? (extent - size / scale) / 2 : Math.max(0, Math.min(extent - size / scale, c - size / scale / 2));
  box = [at(w, width, centre.x), at(h, height, centre.y), w / scale, h / scale];
  look();
  graph.setAttribute("aria-label", `${nodes.length} neighbours of ${stage.nameOf(state.at)} at radius ${state.radius}`);
  drawLegend(nodes.length, left);
}
const look = () => graph.setAttribute("viewBox", box.join(" "));
function drawLegend(count, left) {
  const words = [`${count} instructions` + (left ? `, ${left} neighbours more are not drawn` : "")];
  if (state.colour === "pass" && state.stage > 0) {
    for (const kind of ["b", "changed", "moved"]) {
      const key = el("span", { class: "key" });
      key.style.background = `var(--${kind})`;
      words.push(key, `${SIGNS[kind]} ${KINDS[kind]}`);
    }
    words.push(D.diff ? "  against the first" : `  by ${now().pass}`);
  } else if (state.colour === "heat") words.push(D.profile ? ": the share of the time of the step that computes it" : ": this page has no profile");
  else if (state.colour === "cost") words.push(": the share of the dearest instruction's operations");
  else if (state.colour === "sharding") words.push(": a colour for each sharding, which its box says too");
  $("legend").replaceChildren(...words.map(w => w.nodeType ? w : shown(w)));
}
graph.addEventListener("wheel", event => {
  event.preventDefault();
  const f = Math.exp(event.deltaY * 0.0015), r = graph.getBoundingClientRect();
  const x = box[0] + box[2] * (event.clientX - r.left) / r.width, y = box[1] + box[3] * (event.clientY - r.top) / r.height;
  box = [x - (x - box[0]) * f, y - (y - box[1]) * f, box[2] * f, box[3] * f];
  look();
}, { passive: false });
let drag = null;
graph.addEventListener("pointerdown", event => { drag = [event.clientX, event.clientY, ...box]; });
addEventListener("pointermove", event => {
  if (!drag) return;
  const r = graph.getBoundingClientRect();
  box = [drag[2] - (event.clientX - drag[0]) * drag[4] / r.width, drag[3] - (event.clientY - drag[1]) * drag[5] / r.height, drag[4], drag[5]];
  look();
});
addEventListener("pointerup", () => { drag = null; });

// -- colours; each is told in words too

const shares = new Map();
function shareOf(i) {
  const stage = now(), key = state.colour + state.stage;
  if (!shares.has(key)) {
    const found = new Map();
    if (state.colour === "heat" && D.profile) {
      const whole = D.profile.steps.reduce((n, s) => n + s.seconds, 0) || 1, byName = new Map();
      for (const s of D.profile.steps) for (const name of s.instructions) byName.set(name, (byName.get(name) || 0) + s.seconds / whole);
      const last = stages.length - 1;
      for (let i = 0; i < stages[last].count; i++) if (byName.has(stages[last].nameOf(i))) {
        for (const [old] of everywhere(i, last, state.stage)) found.set(old, Math.max(found.get(old) || 0, byName.get(stages[last].nameOf(i))));
      }
    } else if (state.colour === "cost") {
      const most = Math.max(1, ...Object.values(stage.flops));
      for (const [i, n] of Object.entries(stage.flops)) found.set(Number(i), n / most);
    }
    shares.set(key, found);
  }
  return shares.get(key).get(i);
}
function colourOf(i) {
  if (state.colour === "sharding") {
    const text = S[now().sharding[i]];
    if (!text) return "";
    let n = 0;
    for (const c of text) n = (n * 31 + c.codePointAt(0)) >>> 0;
    return `light-dark(hsl(${n % 360} 70% 86%), hsl(${n % 360} 45% 26%))`;
  }
  const share = state.colour === "pass" ? undefined : shareOf(i);
  return share ? `color-mix(in oklab, var(--back), light-dark(#ff6a3d, #c4431a) ${Math.round(15 + 75 * Math.sqrt(share))}%)` : "";
}
function noteOf(i) {
  if (state.colour === "sharding") return shown(S[now().sharding[i]]).slice(0, 24);
  const share = state.colour === "pass" ? undefined : shareOf(i);
  return share ? percent(share) : "";
}

// -- details

const by = (stage, i) => stage.kind(i) === "same" ? "" : D.diff ? DIFFERS[stage.kind(i)] : `${KINDS[stage.kind(i)]} by ${stage.pass}`;

function link(i, stage = state.stage, extra = "") {
  return el("button", { type: "button", "data-name": stages[stage].nameOf(i), click: () => { if (stage !== state.stage) toStage(stage, i); else select(i); } },
    stages[stage].nameOf(i) + extra);
}
const links = (pairs, stage, most = 60) => el("div", { class: "links" },
  pairs.slice(0, most).map(([i, mark]) => link(i, stage, mark === undefined || mark === 0 ? "" : ` (${MARKS[mark]})`)),
  pairs.length > most ? `and ${(pairs.length - most).toLocaleString()} more` : null);
function part(title, ...children) { return [el("h3", {}, title), ...children]; }
function drawDetails() {
  const aside = $("details"), stage = now(), i = state.at;
  if (i < 0) return aside.replaceChildren(el("p", { class: "dim" }, "No instruction."));
  const rows = [["opcode", S[stage.opcode[i]]], ["shape", S[stage.shape[i]]], ["computation", "%" + S[stage.computations[stage.of[i]][0]]],
    ["scope", S[stage.scope[i]]], ["source", S[stage.source[i]]], ["sharding", S[stage.sharding[i]]],
    ["operations", stage.flops[i] ? stage.flops[i].toLocaleString() : ""], [D.diff ? "difference" : "pass", by(stage, i)],
    ...((D.notes?.[state.stage] || {})[i] || [])].filter(([, text]) => text);
  const made = [el("h2", {}, stage.nameOf(i)), el("dl", {}, rows.map(([what, text]) => [el("dt", {}, what), el("dd", {}, text)])),
    part("Text", el("pre", {}, S[stage.text[i]]))];
  const users = stage.users[i] || [], called = stage.called[i] || [];
  if (stage.operands[i].length) made.push(part("Operands", links(stage.operands[i].map(o => [o]), state.stage)));
  if (users.length) made.push(part(`Users: ${users.length.toLocaleString()}`, links(users.map(o => [o]), state.stage)));
  if (called.length) made.push(part("Calls", el("div", { class: "links" }, called.map(c =>
    el("button", { type: "button", click: () => select(stage.computations[c][3]) }, "%" + S[stage.computations[c][0]])))));
  if (state.stage > 0) {
    made.push(part(D.diff ? "Is in the first" : `Comes from, before ${stage.pass}`, links(stage.from(i), state.stage - 1)));
    if (state.stage > 1) made.push(part("Comes from, in the input", links(everywhere(i, state.stage, 0), 0)));
  }
  if (state.stage + 1 < stages.length) {
    const next = stage.to.get(i) || [];
    made.push(part(D.diff ? "Is in the second" : `Goes to, after ${stages[state.stage + 1].pass}`, next.length ? links(next, state.stage + 1) : el("p", { class: "dim" }, D.diff ? "it is not there" : "nothing is left of it")));
    if (state.stage + 2 < stages.length) made.push(part("Goes to, in the end", links(everywhere(i, state.stage, stages.length - 1), stages.length - 1)));
  }
  const steps = stepsOf(i);
  if (steps.length) made.push(part("Computed by", el("div", { class: "links" }, steps.map(s =>
    el("button", { type: "button", "data-step": s, click: () => { state.step = s; show("loops"); } }, `${D.code.steps[s].kind} ${D.code.steps[s].name}`)))));
  const card = D.rules[S[stage.opcode[i]]];
  if (card) made.push(part("What " + S[stage.opcode[i]] + " does", el("div", { class: "text" }, card.text),
    el("details", {}, el("summary", {}, `${card.rules.length} rules`), card.rules.map(([label, text]) => el("p", { class: "rule" }, el("b", {}, label), " " + text)))));
  aside.replaceChildren(...made.flat(9));
}

// -- machine code: only the lines that are in sight are elements

function stepsOf(i) {
  if (!D.code || i < 0) return [];
  const wanted = new Set(everywhere(i, state.stage, stages.length - 1).map(([n]) => n));
  return [...D.code.steps.keys()].filter(s => D.code.steps[s].instructions.some(n => wanted.has(n)));
}
const texts = {};
function linesOf(tab) {  // [text, step]
  if (texts[tab]) return texts[tab];
  if (tab === "loops") return texts[tab] = D.code.loops.map(([text, step, own]) => [text, step ?? -1, own]);
  const owner = new Map();
  D.code.steps.forEach((s, k) => s.functions.forEach(name => owner.set(name, k)));
  let step = -1;
  return texts[tab] = D.code[tab].split("\n").map(text => {
    const head = tab === "llvm" ? /^define .*?@"?([\w.$-]+)"?\(/.exec(text) : /^"?([A-Za-z_][\w.$]*)"?:/.exec(text);
    if (head) step = owner.get(head[1]) ?? -1;
    const line = [text, step];
    if (tab === "llvm" && text === "}") step = -1;
    return line;
  });
}
let shownLines = [], pane = null;
function drawLines() {
  if (!pane) return;
  const panel = $("panel"), first = Math.max(0, Math.floor(panel.scrollTop / LINE) - 5), last = Math.min(shownLines.length, first + Math.ceil(panel.clientHeight / LINE) + 10);
  const chosen = new Set(state.step >= 0 ? [state.step] : stepsOf(state.at)), wanted = new Set(state.at >= 0 ? everywhere(state.at, state.stage, stages.length - 1).map(([n]) => n) : []);
  const made = [];
  for (let k = first; k < last; k++) {
    const [text, step, own] = shownLines[k], at = chosen.has(step) && (!own || state.step >= 0 || own.some(n => wanted.has(n)));
    const line = el("div", { class: `code ${step >= 0 ? "link" : ""} ${at ? "at" : ""}`, click: step >= 0 ? () => toStep(step, own) : undefined }, text || " ");
    line.style.top = k * LINE + "px";
    made.push(line);
  }
  pane.replaceChildren(...made);
}
function toStep(step, own) {
  const last = stages.length - 1, results = D.code.steps[step].results, i = own && own.length === 1 ? own[0] : results[results.length - 1] ?? -1;
  state.step = step;
  if (i < 0) return drawLines();
  const kept = state.step;
  if (state.stage !== last) toStage(last, i); else select(i);
  state.step = kept;
  drawLines();
}
const TABS = {
  values: ["Values", () => D.live, drawValues],
  pass: ["Pass", () => stages.length > 1 && !D.diff, drawPass], loops: ["Loops", () => D.code, drawCode], llvm: ["LLVM", () => D.code, drawCode],
  asm: ["Assembly", () => D.code, drawCode], profile: ["Profile", () => D.profile, drawProfile], memory: ["Memory", () => D.memory, drawMemory],
  reasons: ["Reasons", () => D.code, drawReasons], collectives: ["Collectives", () => stages.some(s => Object.keys(s.moved || {}).length), drawCollectives],
  diff: ["Differences", () => D.diff, drawDiff],
};
function show(tab) {
  const has = Object.keys(TABS).filter(name => TABS[name][1]());
  state.tab = has.includes(tab) ? tab : has[0] || "";
  $("tabs").replaceChildren(...has.map(name => el("button", { type: "button", role: "tab", id: "tab-" + name, "aria-selected": name === state.tab,
    tabindex: name === state.tab ? 0 : -1, click: () => { state.step = -1; show(name); } }, TABS[name][0])));
  pane = null;
  if (state.tab) { $("panel").replaceChildren(); $("panel").setAttribute("aria-labelledby", "tab-" + state.tab); TABS[state.tab][2]($("panel")); }
  remember();
}
$("tabs").addEventListener("keydown", event => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const names = [...$("tabs").children].map(b => b.id.slice(4));
  show(names[(names.indexOf(state.tab) + step + names.length) % names.length]);
  $("tab-" + state.tab).focus();
});
$("panel").addEventListener("scroll", drawLines, { passive: true });
function drawCode(panel) {
  shownLines = linesOf(state.tab);
  pane = el("div", {});
  pane.style.height = shownLines.length * LINE + "px";
  panel.append(pane);
  const chosen = new Set(state.step >= 0 ? [state.step] : stepsOf(state.at)), first = shownLines.findIndex(([, step]) => chosen.has(step));
  panel.scrollTop = Math.max(0, first - 1) * LINE;
  drawLines();
}
function drawPass(panel) {
  const stage = now();
  if (!stage.origins) return panel.append(el("p", { class: "diffhead" }, "The program as it was given. Move the slider to see what each pass did."));
  const before = stages[state.stage - 1], changed = [...stage.name.keys()].filter(i => stage.kind(i) !== "same"), gone = before.gone();
  const body = [], row = (kind, i, old) => body.push(el("tr", { class: kind }, el("td", {}, SIGNS[kind]),
    el("td", {}, old.map(o => el("div", {}, el("button", { type: "button", click: () => toStage(state.stage - 1, o) }, S[before.text[o]])))),
    el("td", {}, i === undefined ? "" : el("button", { type: "button", click: () => select(i) }, S[stage.text[i]]))));
  for (const i of gone.slice(0, 400)) row("a", undefined, [i]);
  for (const i of changed.slice(0, 400)) row(stage.kind(i), i, stage.kind(i) === "b" ? [] : stage.from(i).filter(([, mark]) => mark === 0).map(([o]) => o));
  const more = Math.max(0, gone.length - 400) + Math.max(0, changed.length - 400);
  panel.append(el("p", { class: "diffhead" }, `${stage.pass}: ${gone.length} gone, ${changed.length} changed, new or moved` + (more ? `; ${more} rows are not shown` : "")),
    el("table", { class: "diff" }, el("colgroup", {}, el("col", { class: "sign" }), el("col", {}), el("col", {})), el("tbody", {}, body)));
}
function table(heads, rows) {
  return el("table", {}, el("thead", {}, el("tr", {}, heads.map(h => el("th", { scope: "col" }, h)))), el("tbody", {}, rows.map(cells => el("tr", {}, cells.map(c => el("td", {}, c))))));
}
function named(name) {
  const last = stages.length - 1, i = last >= 0 ? stages[last].find(name) : -1;
  return i >= 0 ? link(i, last) : name;
}
function drawProfile(panel) {
  const steps = [...D.profile.steps].filter(s => s.bytes || s.kind !== "copy").sort((a, b) => b.seconds - a.seconds), whole = steps.reduce((n, s) => n + s.seconds, 0) || 1;
  panel.append(el("p", { class: "diffhead" }, `${time(D.profile.total)} a call, ${D.profile.threads} threads; limits ${bytes(D.profile.limits.memory)}/s of memory, ${(D.profile.limits.flops / 1e9).toFixed(0)} GF/s`),
    table(["step", "kind", "time", "share", "", "runs", "GB/s", "GF/s", "of the roofline"], steps.map(s => {
      const bar = el("span", { class: "bar" }), least = Math.max(s.bytes / s.bandwidth, s.flops / D.profile.limits.flops) * s.runs;
      bar.style.width = 90 * s.seconds / whole + "px";
      return [named(s.name), s.kind, time(s.seconds), percent(s.seconds / whole), bar, s.runs, (s.bytes * s.runs / s.seconds / 1e9 || 0).toFixed(1),
        (s.flops * s.runs / s.seconds / 1e9 || 0).toFixed(2), s.seconds ? percent(Math.min(1, least / s.seconds)) : ""];
    })));
}
function drawMemory(panel) {
  const m = D.memory, all = m.ranges.map(([buffers, kind, offset, nbytes, begin, end, first, last]) => ({ buffers, kind, offset, nbytes, begin, end, first, last }));
  const last = Math.max(1, ...all.map(r => r.end)), live = new Float64Array(last + 2);
  for (const r of all) { live[r.begin] += r.nbytes; live[r.end + 1] -= r.nbytes; }
  let sum = 0, peak = 0, most = -1;
  for (let t = 0; t <= last; t++) { sum += live[t]; if (sum > most) { most = sum; peak = t; } }
  panel.append(el("p", { class: "diffhead" }, `${bytes(m.peak)} at the peak; ${m.holder} holds ${bytes(m.held)}. Across: the steps in order. Up: the place in the arena; arguments, results and constants have lanes below. `
    + `Blocks with a border are in use at the peak, step ${peak}.`));
  const arena = all.filter(r => r.kind === "arena"), others = all.filter(r => r.kind !== "arena").sort((a, b) => b.nbytes - a.nbytes).slice(0, 40);
  const height = Math.max(1, ...arena.map(r => r.offset + r.nbytes)), W = Math.max(420, panel.clientWidth - 40), H = arena.length ? 190 : 0, x = t => 10 + t * (W - 20) / (last + 1);
  const drawing = svg("svg", { id: "blocks", width: W, height: H + others.length * 16 + 24, role: "img", "aria-label": `Memory: ${all.length} places, ${bytes(m.peak)} at the peak` });
  const block = (r, y, h) => {
    const rect = svg("rect", { x: x(r.begin), y, width: Math.max(2, x(r.end + 1) - x(r.begin)), height: Math.max(2, h), class: r.begin <= peak && peak <= r.end ? "hold" : "", "data-buffer": r.buffers[0],
      click: () => { const own = (D.code.buffers[r.buffers[0]] || [])[0]; if (own !== undefined) { if (state.stage !== stages.length - 1) toStage(stages.length - 1, own); else select(own); } } });
    let n = 0;
    for (const c of r.buffers.join()) n = (n * 31 + c.codePointAt(0)) >>> 0;
    rect.style.fill = `light-dark(hsl(${n % 360} 60% 78%), hsl(${n % 360} 40% 34%))`;
    rect.append(svg("title", {}, `${r.buffers.join(", ")}\n${r.kind}, ${bytes(r.nbytes)}, steps ${r.begin} to ${r.end}: ${r.first} to ${r.last}`));
    drawing.append(rect);
    if (h >= 12 && x(r.end + 1) - x(r.begin) > 60) drawing.append(svg("text", { x: x(r.begin) + 4, y: y + Math.min(h / 2, 12) + 4, "pointer-events": "none" }, `${r.buffers[0]} ${bytes(r.nbytes)}`));
  };
  for (const r of arena) block(r, H - (r.offset + r.nbytes) * H / height, r.nbytes * H / height);
  others.forEach((r, k) => block(r, H + 8 + k * 16, 14));
  drawing.append(svg("line", { x1: x(peak + 0.5), x2: x(peak + 0.5), y1: 0, y2: H + 8 + others.length * 16, stroke: "currentColor", "stroke-dasharray": "2 3" }));
  panel.append(drawing, table(["values", "kind", "bytes", "from", "to", "at the peak"], all.filter(r => r.nbytes).sort((a, b) => b.nbytes - a.nbytes).slice(0, 100).map(r =>
    [r.buffers.slice(0, 3).join(", "), r.kind, bytes(r.nbytes), r.first, r.last, r.begin <= peak && peak <= r.end ? "yes" : ""])));
}
function drawReasons(panel) {
  panel.append(table(["instruction", "what", "why"], D.code.reasons.slice(0, 1000).map(([name, what, why]) => [named(name), what, why])));
}
const collectives = () => Object.keys(now().moved || {}).map(Number);
function drawCollectives(panel) {
  const stage = now(), why = name => (D.communication || {})[name] || {}, found = collectives().map(i => [i, why(stage.nameOf(i)).bytes || stage.moved[i]]).sort((a, b) => b[1] - a[1]);
  const most = Math.max(1, ...found.map(([, n]) => n)), total = found.reduce((sum, [, n]) => sum + n, 0);
  panel.append(el("p", { class: "diffhead" }, `${found.length} collectives, ${bytes(total)} on each device` + (found.length > 1000 ? "; the largest 1000" : "")),
    table(["instruction", "opcode", "bytes", "", ...D.communication ? ["asked for by", "along", "because", "to avoid it"] : ["shape"]], found.slice(0, 1000).map(([i, n]) => {
      const bar = el("span", { class: "bar" }), r = why(stage.nameOf(i)), op = r.op ? stages[0].find(r.op) : -1;
      bar.style.width = 90 * n / most + "px";
      return [link(i), S[stage.opcode[i]], bytes(n), bar, ...D.communication ? [op >= 0 ? link(op, 0) : r.op || "", r.axes || "",
        r.because ? `${r.value} ${r.before} → ${r.after}: ${r.because}` : "", r.advice || ""] : [S[stage.shape[i]]]];
    })));
}
function drawDiff(panel) {
  for (const diff of D.diff) {
    panel.append(el("h2", { class: "diffhead" }, diff.title), el("p", { class: "diffhead" }, diff.summary), changes(diff.changes));
    for (const c of diff.computations) {
      panel.append(el("h2", { class: "diffhead" }, c.title), changes(c.changes));
      for (const run of runsOf(c.rows)) {
        if (run.same && run.rows.length > 7) panel.append(rowsTable(run.rows.slice(0, 3)), folded(run.rows.slice(3, -3)), rowsTable(run.rows.slice(-3)));
        else panel.append(rowsTable(run.rows));
      }
    }
  }
}
const changes = list => el("div", { class: "diffhead dim" }, list.map(text => el("div", {}, text)));
function runsOf(rows) {
  const runs = [];
  for (const row of rows) {
    const same = row[0] === "same";
    if (!runs.length || runs[runs.length - 1].same !== same) runs.push({ same, rows: [] });
    runs[runs.length - 1].rows.push(row);
  }
  return runs;
}
function folded(rows) {
  const made = el("details", {}, el("summary", {}, `${rows.length.toLocaleString()} the same`));
  made.addEventListener("toggle", () => { if (made.children.length === 1) made.append(rowsTable(rows)); });
  return made;
}
const rowsTable = rows => el("table", { class: "diff" }, el("colgroup", {}, el("col", { class: "sign" }), el("col", {}), el("col", {})),
  el("tbody", {}, rows.map(([kind, a, b, notes, inA, inB]) => el("tr", { class: kind }, el("td", { title: DIFFERS[kind] }, SIGNS[kind]), el("td", {}, line(a, 0, inA)), el("td", {}, line(b, 1, inB), notes.map(n => el("div", { class: "dim" }, n)))))));
const line = (text, stage, i) => i >= 0 && stages[stage] ? el("button", { type: "button", click: () => { if (state.stage === stage) select(i); else toStage(stage, i); } }, text) : text;

// -- moving about

function select(i, isShown = true) {
  state.at = i;
  state.step = -1;
  if (isShown) reveal(); else drawTree();
  drawGraph();
  drawDetails();
  if (D.live) askValue(i);
  if (["loops", "llvm", "asm"].includes(state.tab)) show(state.tab); else remember();
}
function toStage(number, at) {
  const old = state.stage, name = state.at >= 0 ? now().nameOf(state.at) : "", found = at ?? follow(state.at, old, number);
  state.stage = number;
  state.at = found >= 0 ? found : entryRoot();
  $("stage").value = number;
  const stage = now();
  $("stagename").textContent = shown(`${number} of ${stages.length - 1}: ${stage.pass}`);
  open.clear();
  select(state.at);
  show(state.tab);
  if (name && found < 0) say(`Nothing that has the value of ${name} is in this stage; the result is selected.`);
  else say(`${stage.pass}: ${stage.count.toLocaleString()} instructions` + (name && name !== stage.nameOf(state.at) ? `; ${name} is ${stage.nameOf(state.at)} here` : ""));
}
$("stage").addEventListener("input", event => toStage(Number(event.target.value)));
$("search").addEventListener("input", event => { state.query = event.target.value.trim(); tree.scrollTop = 0; focus = 0; if (state.query) { buildRows(); drawTree(); } else { say(""); reveal(); } });
$("search").addEventListener("keydown", event => { if (event.key === "Enter" && rows.length) { select(rows[0].i, false); tree.focus(); } });
$("radius").addEventListener("input", event => { state.radius = Math.max(0, Math.min(9, Number(event.target.value) || 0)); drawGraph(); remember(); });
$("colour").addEventListener("change", event => { state.colour = event.target.value; drawGraph(); });
$("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});
const KEYS = [["/", "search"], ["[ and ]", "the pass before, the pass after"], ["o", "to the first operand"], ["u", "to the first user"], ["+ and -", "radius"],
  ["arrows", "in the outline: move, open, close"], ["Escape", "clear the search"]];
$("keys").addEventListener("click", () => {
  const dialog = el("dialog", { "aria-label": "Keys" }, el("h2", {}, "Keys"), KEYS.map(([key, what]) => el("p", {}, el("kbd", {}, key), " " + what)),
    el("button", { type: "button", click: () => dialog.remove() }, "Close"));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
});
addEventListener("keydown", event => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "Escape" && state.query) { $("search").value = ""; state.query = ""; say(""); reveal(); tree.focus(); }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !stages.length) return;
  const stage = now(), users = stage.users[state.at] || [];
  if (event.key === "/") { event.preventDefault(); $("search").focus(); }
  else if (event.key === "[" && state.stage > 0) toStage(state.stage - 1);
  else if (event.key === "]" && state.stage + 1 < stages.length) toStage(state.stage + 1);
  else if (event.key === "o" && stage.operands[state.at]?.length) select(stage.operands[state.at][0]);
  else if (event.key === "u" && users.length) select(users[0]);
  else if (event.key === "+" || event.key === "-") { state.radius = Math.max(0, Math.min(9, state.radius + (event.key === "+" ? 1 : -1))); $("radius").value = state.radius; drawGraph(); remember(); }
});

// -- a debugger's page: the run is on the server, which is asked at addresses relative to the page's

let run = null, asking = false;
const MOVES = [["step", "Step", "s"], ["into", "Into", "i"], ["out", "Out", "t"], ["run", "Run", "r"], ["back", "Back", "b"],
  ["back-into", "Back into", "B"], ["back-out", "Back out", "T"], ["run-back", "Run back", "R"]];
async function ask(body) {
  const answer = await fetch("command", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const found = answer.headers.get("content-type")?.startsWith("application/json") ? await answer.json() : { error: await answer.text() };
  if (found.error) throw new Error(found.error);
  return found;
}
async function change(body) {  // the run moves; the page follows
  if (asking) return;
  asking = true;
  $("live").setAttribute("aria-busy", "true");
  try {
    run = await ask(body);
    D.notes = {};
    const at = body.do === "break" || body.do === "remove" ? -1 : stages[0].find(run.kind === "breakpoint" && run.ran || run.next || stages[0].nameOf(entryRoot()));
    if (at >= 0) select(at); else askValue(state.at);
    drawLive();
    say([run.stop, run.devices > 1 ? `device ${run.device} of ${run.devices}` : "", `${run.place}`].filter(Boolean).join(" · "));
  } catch (error) { say(error.message); }
  asking = false;
  $("live").removeAttribute("aria-busy");
}
async function askValue(i) {
  const note = text => { ((D.notes ||= {})[0] ||= {})[i] = [["value", text]]; if (state.at === i) drawDetails(); };
  try { note((await ask({ do: "value", name: stages[0].nameOf(i) })).value); } catch (error) { note(error.message); }
}
function drawLive() {
  const own = run.breakpoints.find(([, text]) => state.at >= 0 && text === now().nameOf(state.at));
  const condition = el("input", { id: "condition", placeholder: "nan, inf, opcode:dot, iteration:while.3:5", "aria-label": "Condition to stop at" });
  const add = () => { if (condition.value.trim()) change({ do: "break", at: condition.value.trim() }); };
  condition.addEventListener("keydown", event => { if (event.key === "Enter") add(); });
  const button = (text, click, title) => el("button", { type: "button", click, title }, text);
  $("live").hidden = false;
  $("live").replaceChildren(...MOVES.map(([what, text, key]) => { const b = button(text, () => change({ do: what }), `key ${key}`); b.id = "do-" + what; return b; }),
    el("span", { class: "dim", id: "time" }, `event ${run.time.toLocaleString()}`), condition, button("Stop there", add),
    button(own ? "Do not stop here" : "Stop here", () => change(own ? { do: "remove", number: own[0] } : { do: "break", at: now().nameOf(state.at) }), "at the selected instruction"));
  if (state.tab === "values") show("values");
}
function drawValues(panel) {
  if (!run) return;
  panel.append(...[el("pre", { class: "diffhead", id: "stack" }, run.stack), ...run.operands.map(([name, text]) => el("pre", { class: "diffhead operand", "data-name": name }, text)),
    ...run.waiting.map(text => el("p", { class: "diffhead" }, text)),
    run.devices > 1 ? el("p", { class: "diffhead" }, Array.from({ length: run.devices }, (_, d) => el("button", { type: "button", click: () => change({ do: "device", number: d }) }, `device ${d}`))) : null,
    run.breakpoints.length ? table(["stops at", "hits", ""], run.breakpoints.map(([number, text, hits]) =>
      [text, String(hits), el("button", { type: "button", click: () => change({ do: "remove", number }) }, "remove")])) : el("p", { class: "diffhead dim" }, "no breakpoints")].filter(Boolean));
}
if (D.live) {
  KEYS.push(...MOVES.map(([, text, key]) => [key, text.toLowerCase()]));
  addEventListener("keydown", event => {
    const move = MOVES.find(([, , key]) => key === event.key);
    if (move && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && !event.ctrlKey && !event.metaKey && !event.altKey) change({ do: move[0] });
  });
}

addEventListener("hashchange", () => { if (!writing) start(); });
addEventListener("resize", () => { if (stages.length) drawTree(); drawLines(); });

function start() {
  $("title").textContent = shown(D.title);
  recall();
  if (!stages.length) {
    document.body.classList.add("wide");
    for (const id of ["outline", "details"]) $(id).remove();
    document.querySelector("main").style.gridTemplateColumns = "1fr";
    for (const label of document.querySelectorAll("header label")) label.remove();
    return show("diff");
  }
  $("stage").max = stages.length - 1;
  $("stagebox").hidden = stages.length < 2;
  if (D.diff) $("stagebox").firstChild.data = "Program ";
  $("radius").value = state.radius;
  show(state.tab);
  if (D.communication) { state.colour = "sharding"; $("colour").value = "sharding"; }
  toStage(state.stage, state.at);
}
start();
if (D.live) change({ do: "state" }).then(() => { document.documentElement.dataset.live = "yes"; });
document.documentElement.dataset.ready = "yes";
})();
