import { element, find, svg } from "./dom.js";

const REMEMBERED = 120; // samples
const AT_LEAST = 45; // so many have room: the first seconds are not stretched
const WIDTH = 240;
const HEIGHT = 56;

const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const precise = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const small = (value) => (value < 100 ? precise : number).format(value);

function bytes(value) {
  const units = ["B", "KB", "MB", "GB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return [small(value), units[unit]];
}

// What is shown: the value of a sample, how it is written, and what it says besides.
const CARDS = [
  {
    title: "Requests", hue: 250, value: (s) => s.rates.requests,
    show: (v) => [small(v), "a second"],
    note: (s) => `${number.format(s.totals.requests)} in all, ${s.running} running`,
  },
  {
    title: "Messages", hue: 14, value: (s) => s.rates.messages,
    show: (v) => [small(v), "a second"],
    note: (s) => `${number.format(s.totals.messages)} stored in ${number.format(s.totals.batches)} batches`,
  },
  {
    title: "Connections", hue: 165, value: (s) => s.open,
    show: (v) => [number.format(v), "open"],
    note: (s) => `${number.format(s.totals.connections)} in all, ${number.format(s.totals.refused)} refused`,
  },
  {
    title: "People", hue: 330, value: (s) => s.members,
    show: (v) => [number.format(v), "in the chat"],
    note: (s) => `${s.watchers} watching this page`,
  },
  {
    title: "Fibers", hue: 205, value: (s) => s.fibers,
    show: (v) => [number.format(v), "alive"],
    note: () => "on one thread",
  },
  {
    title: "Switches", hue: 288, value: (s) => s.rates.switches,
    show: (v) => [small(v), "a second"],
    note: (s) => `${small(s.rates.polls)} polls of the kernel a second`,
  },
  {
    title: "Memory", hue: 42, value: (s) => s.memory ?? 0,
    show: bytes,
    note: (s) => `${number.format(s.totals.collections)} garbage collections`,
  },
  {
    title: "Answers", hue: 100, value: (s) => s.rates.bytes,
    show: (v) => { const [n, unit] = bytes(v); return [n, `${unit}/s`]; },
    note: (s) => `${bytes(s.totals.bytes_out).join(" ")} in all`,
  },
];

class Card {
  constructor({ title, hue, value, show, note }) {
    Object.assign(this, { value, show, note });
    this.figure = element("p", { class: "figure" }, "–");
    this.words = element("p", { class: "note" }, " ");
    this.under = svg("path", { class: "under" });
    this.curve = svg("path", { class: "curve" });
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.under, this.curve);
    this.node = element("article", { class: "card" }, element("h2", {}, title), this.figure, this.words, picture);
    this.node.style.setProperty("--h", hue);
  }

  update(samples) {
    const last = samples[samples.length - 1];
    const [figure, unit] = this.show(this.value(last));
    this.figure.replaceChildren(figure, element("small", {}, unit));
    this.words.textContent = this.note(last);
    this.#draw(samples.map(this.value));
  }

  // From the right: the newest is always at the edge.
  #draw(values) {
    const top = Math.max(...values, 1) * 1.3;
    const step = WIDTH / (Math.max(values.length, AT_LEAST) - 1);
    const start = WIDTH - (values.length - 1) * step;
    const points = values.map((value, i) => `${(start + i * step).toFixed(1)} ${(HEIGHT - 2 - (value / top) * (HEIGHT - 6)).toFixed(1)}`);
    const line = `M${points.join("L")}`;
    this.curve.setAttribute("d", line);
    this.under.setAttribute("d", `${line}L${WIDTH} ${HEIGHT}L${start.toFixed(1)} ${HEIGHT}Z`);
  }
}

// --- fibers ---------------------------------------------------------------------------------------

function branch({ tag, state, at, more, children }) {
  const label = more
    ? element("span", { class: "fiber more" }, element("span", { class: "tag" }, `and ${number.format(more)} more ${tag}`))
    : element("span", { class: "fiber", "data-state": state, title: `${state}, spun at ${at}` },
      element("span", { class: "tag" }, tag), element("span", { class: "visually-hidden" }, state), element("span", { class: "at" }, at));
  return element("li", {}, label, children ? element("ul", {}, ...children.map(branch)) : null);
}

let treeText = "";
function showTree(text) {
  if (text === treeText) return; // selecting text in it stays possible
  treeText = text;
  find("tree").replaceChildren(branch(JSON.parse(text)));
}

// --- facts ----------------------------------------------------------------------------------------

function uptime(seconds) {
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${Math.floor(seconds)} s`;
}

function fact(name, value) {
  const node = element("dd", {}, value);
  find("facts").append(element("div", {}, element("dt", {}, name), node));
  return node;
}

let facts = null;
let up = null;
function showFacts(known) {
  facts = known;
  find("facts").replaceChildren();
  const protocol = performance.getEntriesByType("navigation")[0]?.nextHopProtocol;
  fact("Backend", known.backend);
  fact("This page came over", { h2: "HTTP/2", "http/1.1": "HTTP/1.1" }[protocol] || protocol || "HTTP");
  fact("Database", known.store);
  fact("Ruby", known.ruby);
  fact("Process", String(known.pid));
  up = fact("Up for", "");
}

// --- the stream -----------------------------------------------------------------------------------

const cards = CARDS.map((card) => new Card(card));
find("cards").append(...cards.map((card) => card.node));
let samples = [];

function show() {
  if (!samples.length) return;
  for (const card of cards) card.update(samples);
  const last = samples[samples.length - 1];
  find("fiber-count").textContent = number.format(last.fibers);
  if (up) up.textContent = uptime(last.at - facts.started);
}

function status(state, text) {
  find("status").dataset.state = state;
  find("status-text").textContent = text;
}

// EventSource comes back by itself.
const source = new EventSource("/stats/stream");
source.onopen = () => status("live", "live");
source.onerror = () => status("waiting", "reconnecting");
source.addEventListener("facts", (event) => showFacts(JSON.parse(event.data)));
source.addEventListener("past", (event) => { samples = JSON.parse(event.data); show(); });
source.addEventListener("now", (event) => { samples = [...samples, JSON.parse(event.data)].slice(-REMEMBERED); show(); });
source.addEventListener("tree", (event) => showTree(event.data));
