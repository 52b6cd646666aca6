// What page.sh describes: node page.mjs FOLDER-OF-PROGRAMS CHROMIUM, from the repository's root.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Browser, pause } from "./browser.mjs";

const [, , programs, chromium] = process.argv;
const work = mkdtempSync(join(tmpdir(), "astra-page-"));
const texts = "checkpoints/gpt2-mini-g8", pictures = "checkpoints/vit-cifar-g8";
const slow = Number(process.env.TIME_SCALE || 1), servers = new Set();
let browser;

function check(holds, what) { if (!holds) throw new Error(what); }

async function freePort() {
  const socket = createServer();
  await new Promise((done) => socket.listen(0, "127.0.0.1", done));
  const { port } = socket.address();
  await new Promise((done) => socket.close(done));
  return port;
}

class Server {
  static async start(port, ...options) {
    const server = Object.assign(new Server(), { address: `http://127.0.0.1:${port}`, log: "" });
    server.process = spawn(join(programs, "astra-serve"), ["--listen", `127.0.0.1:${port}`, "--no-log", ...options], { stdio: ["ignore", "ignore", "pipe"] });
    servers.add(server);
    server.ended = new Promise((done) => server.process.once("exit", (code) => { servers.delete(server); done(code); }));
    server.process.stderr.on("data", (data) => { server.log += data; });
    for (let i = 0; i < 300 * slow && !server.log.includes("listening on"); i++) {
      check(server.process.exitCode === null, `astra-serve ended: ${server.log}`);
      await pause(100);
    }
    return server;
  }

  // The processes of its devices.
  devices() { return execFileSync("pgrep", ["-P", String(this.process.pid)]).toString().trim().split("\n").map(Number); }
  async stop() { this.process.kill("SIGTERM"); return this.ended; }

  async post(path, body, type = "application/json") {
    return (await fetch(this.address + path, { method: "POST", body, headers: { "Content-Type": type } })).json();
  }
}

async function shots(name) {
  const folder = process.env.ASTRA_SHOTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  for (const scheme of ["light", "dark"]) {
    await browser.scheme(scheme);
    await browser.size(1280, 800, false);
    await pause(400);
    await browser.shot(join(folder, `${name}-desktop-${scheme}.png`));
    await browser.size(390, 844, true);
    await pause(400);
    await browser.shot(join(folder, `${name}-phone-${scheme}.png`));
    await browser.value("document.getElementById('tab-cluster').click()");
    await pause(400);
    await browser.shot(join(folder, `${name}-phone-cluster-${scheme}.png`));
    await browser.value("document.getElementById('tab-work').click()");
  }
  await browser.scheme("light");
  await browser.size(1280, 800, false);
}

const notes = "document.querySelectorAll('.assistant .note').length", failed = "document.querySelectorAll('.failed').length";
const lastAnswer = "[...document.querySelectorAll('.assistant .text')].at(-1).textContent";
const set = (id, value) => browser.value(`document.getElementById('${id}').value = '${value}'`);

async function say(text) {
  await browser.value("document.getElementById('entry').focus()");
  await browser.type(text);
  await browser.key("Enter", 13, "\r");
}

// Says it and waits for the whole answer, which is returned.
async function chat(text) {
  const before = await browser.value(notes);
  await say(text);
  await browser.until(`${notes} > ${before} || ${failed} > 0`, `an answer to "${text}"`, 60 * slow);
  check(await browser.value(failed) === 0, `the answer failed: ${await browser.value("document.querySelector('.failed')?.innerText")}`);
  return browser.value(lastAnswer);
}

// ---- the tests, in the order in which they share a server

async function chatAnswers(server) {
  await browser.open(server.address);
  await browser.until("document.querySelectorAll('.device').length === 3", "three devices", 20 * slow);
  await set("temperature", "0");
  await set("max-tokens", "24");
  const answer = await chat("Once upon a time");
  const whole = await server.post("/v1/chat/completions", JSON.stringify({ messages: [{ role: "user", content: "Once upon a time" }], temperature: 0, max_tokens: 24, top_p: 0.95 }));
  check(answer === whole.choices[0].message.content, `the page shows "${answer}", the service says "${whole.choices[0].message.content}"`);
  check((await browser.value("document.querySelector('.note').textContent")).startsWith("24 tokens"), "figures below the answer");
  await browser.until("document.getElementById('figures').innerText.includes('Completed')", "figures of the cluster");
  check(await browser.value("getComputedStyle(document.getElementById('away')).display") === "none", "a server that answers is not away");
  check(await browser.value("document.querySelector('.graph svg').getAttribute('aria-label')"), "the graph says what it shows");
  const scales = await browser.value("[...document.querySelectorAll('.graph .scale span')].map((one) => one.textContent).join(' ')");
  check(/^[\d.,]+ [\d.,]+ 0 [\d.]+ [kMG]?B\/s [\d.]+ [kMG]?B\/s 0 B\/s$/.test(scales), `the graphs' axes have units: ${scales}`);
  await set("form", "text");
  await browser.value("document.getElementById('form').dispatchEvent(new Event('change'))");
  const plain = await chat("The capital of");
  const told = await server.post("/v1/completions", JSON.stringify({ prompt: "The capital of", temperature: 0, max_tokens: 24, top_p: 0.95 }));
  check(plain === told.choices[0].text, `plain text: "${plain}", the service says "${told.choices[0].text}"`);
  await set("form", "chat");
  await browser.value("document.getElementById('form').dispatchEvent(new Event('change'))");
  await settingsAreSent();
}

// A device that joins, which no server here shows for long: the cluster's state as it would be, drawn before the next event.
async function joiningIsShown() {
  const shown = JSON.parse(await browser.value(`(async () => {
    const { showCluster } = await import("/cluster.js"), state = (await (await fetch("/v1/cluster")).json()).models[0];
    state.devices[1].state = "joining";
    showCluster(state);
    const card = document.querySelectorAll(".device")[1];
    return JSON.stringify([card.dataset.state, card.querySelector(".state").textContent, document.getElementById("announce").textContent]);
  })()`));
  check(shown[0] === "joining" && shown[1] === "joining" && shown[2] === "Device 2, this machine, is joining.", `a device that joins is shown as ${shown}`);
}

// Whatever is accepted as a number, and nothing that is not.
async function settingsAreSent() {
  await browser.value("window.sent = []; window.send = window.fetch; window.fetch = (path, options) => { if (options?.body) sent.push(options.body); return send(path, options); }; 0");
  await set("top-p", "0.99");
  await set("temperature", "0.05");
  await chat("Once upon a time");
  const sent = JSON.parse(await browser.value("sent[0]"));
  check(sent.top_p === 0.99 && sent.temperature === 0.05, `the settings are sent as ${JSON.stringify(sent)}`);
  await set("max-tokens", "0");
  await say("Not with this limit");
  check(await browser.value("sent.length") === 1 && await browser.value("document.getElementById('settings').open"), "a setting that is none is shown, not left out");
  check(await browser.value("document.getElementById('entry').value") === "Not with this limit", "and what was typed stays");
  await browser.value("document.getElementById('entry').value = ''; document.getElementById('settings').open = false; window.fetch = send; 0");
  await set("max-tokens", "24");
  await set("temperature", "0");
  await set("top-p", "0.95");
}

// The whole answer may take a tenth of a second: it comes to the page slowly, so that it is under way when it is stopped.
async function answersAreStopped(server) {
  await browser.receives(4000);
  const before = await browser.value(notes);
  await set("max-tokens", "400");
  await say("Tell me more");
  await browser.until(`${lastAnswer}.length > 3`, "the beginning of a long answer", 30 * slow);
  check(await browser.value("document.getElementById('send').textContent") === "Stop", "the button stops while an answer comes");
  await browser.key("Escape", 27);
  await browser.until(`${notes} > ${before}`, "the end of the stopped answer");
  check(await browser.value("[...document.querySelectorAll('.assistant .note')].at(-1).textContent") === "Stopped.", "it says that it was stopped");
  check(await browser.value("document.getElementById('send').textContent") === "Send", "the button sends again");
  await set("max-tokens", "24");
  await browser.value("document.getElementById('new-chat').click()");
  check(await browser.value("document.querySelectorAll('#messages li').length") === 0, "a new chat is empty");
  await set("max-tokens", "400");
  await say("Tell me more");
  await browser.until(`${lastAnswer}.length > 3`, "the beginning of another long answer", 30 * slow);
  await browser.value("document.getElementById('new-chat').click()");
  await browser.until("document.getElementById('send').textContent === 'Send'", "the end of an answer that a new chat stops");
  await browser.receives(-1);
  await set("max-tokens", "24");
  const fresh = await chat("Once upon a time");
  const alone = await server.post("/v1/chat/completions", JSON.stringify({ messages: [{ role: "user", content: "Once upon a time" }], temperature: 0, max_tokens: 24, top_p: 0.95 }));
  check(fresh === alone.choices[0].message.content, `after a new chat "${fresh}", the service says "${alone.choices[0].message.content}"`);
  await browser.value("document.getElementById('new-chat').click()");
}

// An answer belongs to the conversation that asked for it, whatever the mode has become meanwhile.
async function modeChangesMeanwhile(server) {
  const mode = async (name) => { await set("form", name); await browser.value("document.getElementById('form').dispatchEvent(new Event('change'))"); };
  const post = async (messages) => (await server.post("/v1/chat/completions", JSON.stringify({ messages, temperature: 0, max_tokens: 100, top_p: 0.95 }))).choices[0].message;
  await browser.receives(4000);
  const before = await browser.value(notes);
  await set("max-tokens", "100");
  await say("Once upon a time");
  await browser.until(`${lastAnswer}.length > 3`, "the beginning of an answer", 30 * slow);
  check(await browser.value("document.getElementById('send').textContent") === "Stop", "the mode changes while an answer comes");
  await mode("text");
  await browser.until(`${notes} > ${before}`, "the end of the answer", 60 * slow);
  await browser.receives(-1);
  await mode("chat");
  const messages = [{ role: "user", content: "Once upon a time" }];
  messages.push(await post(messages), { role: "user", content: "And then?" });
  const next = await chat("And then?"), whole = await post(messages);
  check(next === whole.content, `after another mode "${next}", the service says "${whole.content}"`);
  await browser.value("document.getElementById('new-chat').click()");
}

// A device dies while an answer needs it, which a device that is suspended first cannot have given: the answer comes all the same, as does the
// next one, and the page says that the device is gone.
async function deviceIsKilled(server) {
  const device = server.devices().at(-1);
  process.kill(device, "SIGSTOP");
  await set("max-tokens", "300");
  await say("Once upon a time");
  await browser.until("document.getElementById('send').textContent === 'Stop'", "a question under way", 30 * slow);
  await pause(300);
  check(await browser.value(`${lastAnswer}.length`) === 0, "no answer without the suspended device");
  process.kill(device, "SIGKILL");
  await browser.until(`${notes} > 0 || ${failed} > 0`, "the end of the answer", 90 * slow);
  check(await browser.value(failed) === 0, `the answer failed: ${await browser.value("document.querySelector('.failed')?.innerText")}`);
  check((await browser.value("document.querySelector('.note').textContent")).startsWith("300 tokens"), "the answer is whole");
  await set("max-tokens", "8");
  await chat("And then?");
  await browser.until("document.querySelectorAll('.device[data-state=gone]').length === 1", "a device that is gone", 30 * slow);
  check((await browser.value("document.getElementById('announce').textContent")).endsWith("is offline."), "it is announced to those who do not see it");
  await shots("killed");
}

async function serverComesBack(server, port, options) {
  await server.stop();
  await browser.until("!document.getElementById('away').hidden", "the page says that the server is away", 20 * slow);
  check((await browser.value("document.getElementById('away').innerText")).includes("The server is not responding"), "in words");
  const before = await browser.value("document.querySelectorAll('#messages li').length");
  await say("Is anybody there?");
  await browser.until(`${failed} === 1`, "a question to nobody fails", 20 * slow);
  check(await browser.value("document.getElementById('entry').value") === "Is anybody there?", "its words are not lost");
  await shots("away");
  const again = await Server.start(port, ...options);
  await browser.until("document.getElementById('away').hidden && document.getElementById('status').dataset.state === 'ready'", "the page finds the server again", 40 * slow);
  check(await browser.value("document.querySelectorAll('#messages li').length") > before, "the conversation is still there");
  await browser.until("document.querySelectorAll('.device[data-state=here]').length === 3", "three devices again", 20 * slow);
  await browser.value("document.getElementById('new-chat').click(); document.getElementById('entry').value = ''");
  check((await chat("Once upon a time")).length > 0, "an answer of the new server");
  return again;
}

// With the tabulator alone: through everything, in the order of the page, and each has a name.
async function keyboardIsEnough() {
  const order = [];
  await browser.value("document.querySelector('.skip').focus(); document.getElementById('settings').open = false");
  for (let i = 0; i < 12; i++) {
    await browser.key("Tab", 9);
    const id = await browser.value("document.activeElement === document.body ? '' : document.activeElement.id || document.activeElement.className || document.activeElement.tagName");
    if (order.includes(id) || !id) break;
    order.push(id);
  }
  const wanted = ["scroll", "entry", "send", "SUMMARY"].map((id) => order.indexOf(id));
  check(wanted.every((place, i) => place >= 0 && (i === 0 || place > wanted[i - 1])), `the tabulator goes through ${order}`);
  await browser.value("document.getElementById('settings').open = true");
  const { nodes } = await browser.send("Accessibility.getFullAXTree");
  const nameless = nodes.filter((node) => !node.ignored && node.properties?.some((one) => one.name === "focusable" && one.value.value) && node.role.value !== "RootWebArea" && !node.name?.value);
  check(nameless.length === 0, `controls without a name: ${nameless.map((node) => node.role.value)}`);
  await browser.value("document.getElementById('settings').open = false");
}

async function phoneFits() {
  await browser.size(360, 640, true);
  await pause(300);
  check(await browser.value("document.documentElement.scrollWidth <= 360"), "nothing is wider than a phone");
  check(await browser.value("getComputedStyle(document.getElementById('cluster')).display") === "none", "the cluster has a tab of its own");
  await browser.value("document.getElementById('tab-cluster').click()");
  check(await browser.value("getComputedStyle(document.getElementById('cluster')).display") === "block", "which shows it");
  check(await browser.value("document.documentElement.scrollWidth <= 360"), "nor is the cluster");
  await browser.value("document.getElementById('tab-work').click()");
  await browser.size(1280, 800, false);
}

async function imageIsClassified(server, file) {
  await browser.open(server.address);
  await browser.until("!document.getElementById('image').hidden", "a place for images", 20 * slow);
  await browser.choose("#files", [file]);
  await browser.until("document.querySelectorAll('.class').length === 5", "five classes", 30 * slow);
  const best = (await server.post("/v1/images/classify", readFileSync(file), "image/png")).results[0].classes[0];
  check(await browser.value("document.querySelector('.class .label').textContent") === best.label.replaceAll("_", " "), `the likeliest class is ${best.label}`);
  check(await browser.value("document.querySelector('.class .part').textContent") === `${(100 * best.probability).toFixed(1)}%`, "with its probability");
  const broken = join(work, "broken.png");
  writeFileSync(broken, "no image");
  await browser.choose("#files", [broken]);
  await browser.until("document.querySelector('#results .failed')", "a file that is not an image is refused", 20 * slow);
  const others = ["notes.txt", "list.csv", "page.html", "more.txt"].map((name) => join(work, name));
  for (const other of others) writeFileSync(other, "no image");
  const told = async () => browser.value("document.getElementById('left-out').textContent");
  check(await told() === "", "nothing has been left out yet");
  await browser.choose("#files", [others[0], file]);
  await browser.until("document.querySelectorAll('.class').length === 10", "the image beside a text is classified", 30 * slow);
  check(await told() === "notes.txt was left out: it is not an image (PNG, JPEG, ...).", `of the text the page says "${await told()}"`);
  await browser.choose("#files", others);
  await browser.until("document.getElementById('left-out').textContent.startsWith('notes.txt, list.csv, page.html and 1 more were left out')", "several files are left out", 20 * slow);
  check(await browser.value("document.querySelectorAll('#results li').length") === 3, "and nothing is sent of them");
  await browser.choose("#files", [file]);
  await browser.until("document.getElementById('left-out').textContent === ''", "what was left out before is no longer said", 20 * slow);
}

async function keyIsAskedFor(port) {
  const keys = join(work, "keys");
  writeFileSync(keys, "open-sesame\n", { mode: 0o600 });
  const server = await Server.start(port, "-c", texts, "--nodes", "1", "--api-key-file", keys);
  await browser.open(server.address);
  await browser.until("!document.getElementById('key-form').hidden", "the page asks for a key", 20 * slow);
  await browser.value("document.getElementById('key').focus()");
  check(await browser.value("document.getElementById('status').textContent") === "API key required", "and says so");
  await set("key", "open\u2013sesame"); // which fits into no header
  await browser.key("Enter", 13, "\r");
  await browser.until("document.getElementById('key-note').textContent.startsWith('A key has 8 to 256')", "a key that is none is refused", 20 * slow);
  await set("key", "open-another");
  await browser.key("Enter", 13, "\r");
  await browser.until("document.getElementById('key-note').textContent === 'The server did not accept this key.'", "another key is refused", 20 * slow);
  await browser.value("document.getElementById('key').focus()");
  await set("key", "");
  await browser.type("open-sesame");
  await browser.key("Enter", 13, "\r");
  await browser.until("document.getElementById('key-form').hidden && document.getElementById('status').dataset.state === 'ready'", "the key opens", 20 * slow);
  await set("max-tokens", "4");
  check((await chat("Once")).length > 0, "an answer with the key");
  await server.stop();
}

// The stream of events ends with each --request-timeout, and the page takes the next one: the server is not away.
async function eventsEndInTime(port) {
  const server = await Server.start(port, "-c", texts, "--nodes", "1", "--request-timeout", "1500ms");
  await browser.open(server.address);
  await browser.until("document.getElementById('status').dataset.state === 'ready'", "the server is there", 20 * slow);
  await browser.value("window.away = 0; new MutationObserver(() => { window.away += !document.getElementById('away').hidden; }).observe(document.getElementById('away'), { attributes: true })");
  const streams = "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/v1/cluster/events')).length";
  await browser.until(`${streams} >= 3`, "three streams one after another", 30 * slow);
  check(await browser.value("window.away") === 0, "a stream that ends in time is no server that is away");
  await server.stop();
  await browser.until("!document.getElementById('away').hidden", "a server that has ended is", 20 * slow);
}

// An image of 32 x 32 that the browser draws.
async function drawPicture() {
  const data = await browser.value(`(() => { const canvas = document.createElement("canvas"); canvas.width = canvas.height = 32; const pen = canvas.getContext("2d");
    pen.fillStyle = "#79b"; pen.fillRect(0, 0, 32, 32); pen.fillStyle = "#e84"; pen.arc(16, 16, 9, 0, 7); pen.fill(); return canvas.toDataURL("image/png"); })()`);
  const file = join(work, "sun.png");
  writeFileSync(file, Buffer.from(data.split(",")[1], "base64"));
  return file;
}

async function run() {
  browser = await Browser.start(chromium);
  await browser.size(1280, 800, false);
  const port = await freePort(), options = ["-c", texts, "--nodes", "3"];
  let server = await Server.start(port, ...options);
  await chatAnswers(server);
  await joiningIsShown();
  await shots("chat");
  await answersAreStopped(server);
  await modeChangesMeanwhile(server);
  await keyboardIsEnough();
  await phoneFits();
  await deviceIsKilled(server);
  server = await serverComesBack(server, port, options);
  check(await server.stop() === 0, "the server ends well");
  const images = await Server.start(await freePort(), "-c", pictures, "--nodes", "2");
  await imageIsClassified(images, await drawPicture());
  await shots("image");
  await images.stop();
  await keyIsAskedFor(await freePort());
  await eventsEndInTime(await freePort());
  check(browser.problems.length === 0, `the console says: ${browser.problems.join("\n")}`);
  console.log("page: ok");
}

let code = 0;
try {
  await run();
} catch (error) {
  console.log(`FAILED: ${error.message}`);
  for (const server of servers) console.log(server.log.split("\n").slice(-8).join("\n"));
  if (browser && process.env.ASTRA_SHOTS) await browser.shot(join(process.env.ASTRA_SHOTS, "failed.png"));
  code = 1;
}
for (const server of servers) server.process.kill("SIGKILL");
if (browser) await browser.end();
rmSync(work, { recursive: true, force: true });
process.exit(code);
