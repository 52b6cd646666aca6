// The cluster, live: figures of the service, two graphs of the last minute, and a card for each device. States come about once a second;
// what they count is since the start, so that rates are differences.

import { postJson } from "/server.js";

const $ = (id) => document.getElementById(id);
const minute = 60000;
let history = []; // { at, state } of the last minute, the oldest first

const thousands = (value) => value >= 1e4 ? Math.round(value).toLocaleString("en") : String(+value.toFixed(value < 10 ? 1 : 0));
function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; value >= 999.5 && unit < 4; unit++) value /= 1000;
  return `${unit && value < 9.95 ? value.toFixed(1) : value.toFixed(0)} ${units[unit]}`;
}
const percent = (part) => `${(100 * part).toFixed(part > 0 && part < .0995 ? 1 : 0)}%`;
const sumOver = (state, name) => state.devices.reduce((sum, device) => sum + (device[name] ?? 0), 0);

// What a number of the state has grown by since the oldest state at most `span` ms ago, and the seconds between; after a restart nothing.
function growth(read, span) {
  const last = history.at(-1), from = history.find((entry) => last.at - entry.at <= span);
  return { by: Math.max(0, read(last.state) - read(from.state)), seconds: Math.max((last.at - from.at) / 1000, 1e-9) };
}
function rate(read, span) {
  const { by, seconds } = growth(read, span);
  return seconds > .1 ? by / seconds : 0;
}

// ---- graphs

const svgName = "http://www.w3.org/2000/svg";
function shape(kind, attributes) {
  const made = document.createElementNS(svgName, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// The end of an axis: the least of 1, 2, 5, 10, 20... that holds the value.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((step) => step * power >= value * (1 - 1e-9));
}

function labels(name, texts) {
  const box = document.createElement("div");
  box.className = name;
  box.setAttribute("aria-hidden", "true"); // the graph's own label says what it shows
  box.append(...texts.map((text) => Object.assign(document.createElement("span"), { textContent: text })));
  return box;
}

// `read` is what counts up, shown as its rate with a unit; `least` is the shortest axis.
class Graph {
  constructor(title, read, show, least) {
    Object.assign(this, { title, read, show, least });
    this.box = document.createElement("div");
    this.box.className = "graph";
    const line = document.createElement("p"), name = document.createElement("span");
    name.textContent = title;
    this.value = document.createElement("b");
    line.append(name, this.value);
    this.svg = shape("svg", { viewBox: "0 0 600 60", preserveAspectRatio: "none", role: "img" });
    this.area = shape("path", { class: "area" });
    this.edge = shape("path", { class: "edge" });
    this.svg.append(shape("path", { class: "rule", d: "M0 59.5H600M0 30H600M0 .5H600M.5 0V60M300 0V60M599.5 0V60" }), this.area, this.edge);
    this.scale = labels("scale", ["", "", ""]);
    const plot = document.createElement("div");
    plot.className = "plot";
    plot.append(this.scale, this.svg, labels("times", ["60 s ago", "30 s", "now"]));
    this.box.append(line, plot);
  }

  draw() {
    const now = history.at(-1).at, points = [];
    for (let i = 1; i < history.length; i++) {
      const seconds = (history[i].at - history[i - 1].at) / 1000;
      const grown = Math.max(0, this.read(history[i].state) - this.read(history[i - 1].state));
      points.push([600 - (now - history[i].at) / 100, seconds > 0 ? grown / seconds : 0]);
    }
    const most = Math.max(0, ...points.map((point) => point[1])), top = ceiling(Math.max(this.least, most));
    const place = ([x, y]) => `${x.toFixed(1)} ${(60 - 60 * y / top).toFixed(1)}`;
    [top, top / 2, 0].forEach((value, i) => { this.scale.children[i].textContent = this.show(value); });
    const line = points.length ? `M${points.map(place).join("L")}` : "";
    this.edge.setAttribute("d", line);
    this.area.setAttribute("d", line ? `${line}L${points.at(-1)[0].toFixed(1)} 60L${points[0][0].toFixed(1)} 60Z` : "");
    this.value.textContent = this.show(rate(this.read, 3000));
    this.svg.setAttribute("aria-label", `${this.title} in the last minute: now ${this.value.textContent}, at most ${this.show(most)}`);
  }
}

const tokens = new Graph("Generated tokens per second", (state) => state.new_tokens ?? 0, thousands, 1);
const images = new Graph("Images per second", (state) => state.images ?? 0, thousands, 1);
const traffic = new Graph("Traffic between devices", (state) => sumOver(state, "bytes_sent"), (value) => `${bytes(value)}/s`, 1000);

// ---- figures and devices

function figure(name, value) {
  const box = document.createElement("div"), term = document.createElement("dt"), text = document.createElement("dd");
  term.textContent = name;
  text.textContent = value;
  box.append(term, text);
  return box;
}

const states = { here: "online", gone: "offline", joining: "joining" };
const nameOf = (device) => device.name === "here" ? "this machine" : device.name;

class Card {
  constructor() {
    this.item = document.createElement("li");
    this.item.className = "device";
    this.item.innerHTML = `<div class="top"><span class="name"></span><span class="state"></span></div>
      <div class="bars"></div><p class="facts"></p>`; // nothing of the server's in it
    this.bars = {};
    for (const [key, title] of [["share", "Share of tokens"], ["compute", "Computing"], ["wait", "Waiting"]]) {
      const label = document.createElement("span"), bar = document.createElement("div"), fill = document.createElement("i"), value = document.createElement("b");
      label.textContent = title;
      bar.className = `bar ${key}`;
      bar.append(fill);
      this.item.querySelector(".bars").append(label, bar, value);
      this.bars[key] = { fill, value };
    }
  }

  setBar(key, part) {
    this.bars[key].fill.style.width = `${100 * Math.min(1, part)}%`;
    this.bars[key].value.textContent = percent(part);
  }

  update(index, device) {
    // Where its time went: in the last minute, or since the start where that had no request.
    const kinds = ["compute_seconds", "quantise_seconds", "send_seconds", "wait_seconds"], total = (all) => all.reduce((a, b) => a + b, 0);
    const recent = kinds.map((name) => growth((state) => state.devices[index]?.[name] ?? 0, minute).by);
    const times = total(recent) > 0 ? recent : kinds.map((name) => device[name] ?? 0), whole = total(times) || 1;
    const due = (device.messages_received ?? 0) + (device.lost ?? 0), lost = due ? (device.lost ?? 0) / due : 0; // counted where they do not arrive
    this.item.dataset.state = device.state;
    this.item.querySelector(".name").textContent = `${index + 1}. ${nameOf(device)}`;
    this.item.querySelector(".state").textContent = states[device.state] ?? device.state;
    this.setBar("share", device.share ?? 0);
    this.setBar("compute", times[0] / whole);
    this.setBar("wait", times[3] / whole);
    const facts = [`sent ${bytes(device.bytes_sent ?? 0)}`, `received ${bytes(device.bytes_received ?? 0)}`, `${percent(lost)} lost`];
    if (device.sequences) facts.push(`decoding ${device.sequences} ${device.sequences === 1 ? "sequence" : "sequences"}`);
    if (device.decode_rate && device.state === "here") facts.push(`${thousands(device.decode_rate)} tokens/s`);
    if (device.failures) facts.push(`${device.failures} ${device.failures === 1 ? "failure" : "failures"}`);
    this.item.querySelector(".facts").textContent = facts.map((fact) => fact.replaceAll(" ", "\u00a0")).join(" · ");
  }
}

// Of a model with several bit rates: which one is wanted, and a choice of another. What was chosen stays until the server confirms it.
let shownModel = "", chosenUntil = 0;
function showRates(state) {
  const rates = state.rates ?? [], box = $("rate");
  $("rate-label").hidden = rates.length < 2;
  if (rates.length < 2) return;
  const options = [...rates.map((groups) => new Option(`${groups} ${groups === 1 ? "group" : "groups"} per token`, groups)),
    new Option(state.follows_links ? `Automatic (now ${state.groups})` : "Automatic", "auto")];
  if ([...box.options].map((one) => one.text).join() !== options.map((one) => one.text).join()) box.replaceChildren(...options);
  shownModel = state.model;
  if (performance.now() > chosenUntil) box.value = state.follows_links ? "auto" : String(state.groups_wanted);
}

// The rate in use, where the choice above does not show it.
let rateFailure = { text: "", until: 0 };

function rateText(state) {
  if (performance.now() < rateFailure.until) return `The bit rate was not changed: ${rateFailure.text} `;
  if (!state.groups) return "";
  const several = (state.rates ?? []).length > 1, changes = several && state.groups_wanted !== state.groups;
  if (changes) return `Bit rate: ${state.groups} code groups per token, changing to ${state.groups_wanted} after the requests under way. `;
  return several ? "" : `Bit rate: ${state.groups} code groups per token. `;
}

async function chooseRate() {
  const value = $("rate").value;
  chosenUntil = performance.now() + 2000; // it applies once nothing is running
  try {
    await postJson("/v1/cluster/groups", { model: shownModel, groups: value === "auto" ? value : Number(value) });
  } catch (error) {
    chosenUntil = 0;
    rateFailure = { text: error.message, until: performance.now() + 10000 };
    $("announce").textContent = error.message;
  }
}
$("rate").addEventListener("change", chooseRate);

let cards = [];

export function showCluster(state, at = performance.now()) {
  const last = history.at(-1)?.state;
  const other = last && (last.model !== state.model || state.devices.length !== last.devices.length || state.submitted < last.submitted);
  if (other) history = []; // another model, or another server
  history.push({ at, state });
  while (at - history[0].at > minute) history.shift();
  const anyImages = (state.images ?? 0) > 0 && !state.new_tokens;
  $("figures").replaceChildren(figure("Queued", thousands(state.queued)), figure("Running", thousands(state.prefilling + state.decoding)),
    figure("Completed", thousands(state.finished)));
  const graphs = [anyImages || document.body.dataset.kind === "image" ? images : tokens, traffic];
  $("graphs").replaceChildren(...graphs.map((graph) => graph.box));
  graphs.forEach((graph) => graph.draw());
  if (cards.length !== state.devices.length) {
    cards = state.devices.map(() => new Card());
    $("devices").replaceChildren(...cards.map((card) => card.item));
  }
  state.devices.forEach((device, i) => {
    const before = other ? undefined : last?.devices[i]?.state;
    if (before && before !== device.state) $("announce").textContent = `Device ${i + 1}, ${nameOf(device)}, is ${states[device.state] ?? device.state}.`;
    cards[i].update(i, device);
  });
  // Only a model of texts keeps keys and values.
  const room = state.cache_bytes ? `Key/value cache: ${bytes(state.cache_used)} of ${bytes(state.cache_bytes)} used per device.` : "";
  showRates(state);
  const refused = state.refused ? ` Refused requests: ${thousands(state.refused)}.` : "";
  $("cluster-note").textContent = `${rateText(state)}${room}${refused}`.trim();
}
