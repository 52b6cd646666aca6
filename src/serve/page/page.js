// Ties the page together: which model is there, whether the server answers, and what is shown. Without an answer it asks again, less and
// less often, up to every 15 seconds.
import { startChat, useChatModel } from "/chat.js";
import { showCluster } from "/cluster.js";
import { startImages, useImageModel } from "/image.js";
import { events, getJson, hasKey, request, setKey } from "/server.js";

const $ = (id) => document.getElementById(id);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
let models = [], current = null;

function setStatus(state, text) {
  if ($("status").textContent === text) return;
  $("status").dataset.state = state;
  $("status").textContent = text;
}

function useModel(model) {
  const images = model.kind === "images";
  current = model;
  document.body.dataset.kind = images ? "image" : "chat";
  $("chat").hidden = images;
  $("image").hidden = !images;
  $("no-model").hidden = true;
  $("tab-work").textContent = images ? "Images" : "Chat";
  $("model-name").textContent = model.id;
  if (images) useImageModel(model);
  else useChatModel(model);
}

async function loadModels() {
  models = (await getJson("/v1/models")).data ?? [];
  if (models.length === 0) {
    $("no-model").textContent = "The server has no models.";
    $("no-model").hidden = false;
    return;
  }
  $("model").replaceChildren(...models.map((model) => new Option(model.id, model.id)));
  $("model-label").hidden = models.length < 2;
  $("model-name").hidden = models.length > 1;
  const same = models.find((model) => model.id === current?.id) ?? models[0];
  $("model").value = same.id;
  useModel(same);
}

// An event holds the state of each model's engine.
function stateOf(event) {
  return event.models.find((one) => one.model === current?.id) ?? event.models[0];
}

// Shows what a stream of events brings until it ends, as it does with each --request-timeout. Returns whether any came.
async function follow() {
  const stopper = new AbortController();
  const response = await request("/v1/cluster/events", { signal: stopper.signal, headers: { Accept: "text/event-stream" } });
  $("away").hidden = true;
  $("away-text").textContent = "";
  delete document.body.dataset.away;
  $("key-form").hidden = true;
  // A server that has gone without a word is noticed: events come every second or so.
  let silent = setTimeout(() => stopper.abort(), 15000), any = false;
  for await (const data of events(response)) {
    clearTimeout(silent);
    silent = setTimeout(() => stopper.abort(), 15000);
    any = true;
    const state = stateOf(JSON.parse(data));
    if (!state) continue;
    setStatus(state.ready ? "ready" : "wait", state.ready ? "Ready" : state.deserted ? "No device: waiting for workers" : "Cluster not ready");
    showCluster(state);
  }
  clearTimeout(silent);
  return any;
}

async function countDown(seconds) {
  const until = performance.now() + 1000 * seconds;
  let woken = false;
  while (!woken && performance.now() < until) {
    const left = Math.ceil((until - performance.now()) / 1000);
    $("away-next").textContent = `Retrying in ${left} s.`;
    await Promise.race([pause(1000), new Promise((done) => { retry = () => { woken = true; done(); }; })]);
  }
}
let retry = () => {};

// What the server accepts as a key; anything else may not even fit into the header of a request.
const keyForm = /^[\x21-\x7e]{8,256}$/;

async function askForKey() {
  setStatus("wait", "API key required");
  $("away").hidden = true;
  $("key-form").hidden = false;
  $("key-note").textContent = hasKey() ? "The server did not accept this key." : "";
  await new Promise((done) => {
    $("key-form").addEventListener("submit", function take(event) {
      event.preventDefault();
      const key = $("key").value.trim();
      if (!keyForm.test(key)) {
        $("key-note").textContent = "A key has 8 to 256 letters, digits and signs, without spaces.";
        return;
      }
      $("key-form").removeEventListener("submit", take);
      setKey(key);
      $("key").value = "";
      done();
    });
  });
}

async function run() {
  for (let delay = 1;;) {
    try {
      await loadModels();
      delay = 1;
      if (await follow()) continue;
    } catch (error) {
      if (error.status === 401 || error.status === 403) {
        await askForKey();
        continue;
      }
    }
    setStatus("away", "Server unreachable");
    $("away").hidden = false;
    $("away-text").textContent = "The server is not responding.";
    document.body.dataset.away = "";
    await countDown(delay * (1 + Math.random() / 4));
    delay = Math.min(15, 2 * delay);
  }
}

function show(view) {
  $("view").dataset.view = view;
  $("tab-work").setAttribute("aria-pressed", String(view === "work"));
  $("tab-cluster").setAttribute("aria-pressed", String(view === "cluster"));
}

$("tab-work").addEventListener("click", () => show("work"));
$("tab-cluster").addEventListener("click", () => show("cluster"));
$("away-retry").addEventListener("click", () => retry());
$("model").addEventListener("change", () => useModel(models.find((model) => model.id === $("model").value)));
window.addEventListener("online", () => retry());
startChat();
startImages();
run();
