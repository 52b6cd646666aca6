// The chat: what was said, the answer as it comes, and the settings of its sampling.
import { Failure, events, postJson } from "/server.js";

const $ = (id) => document.getElementById(id);
let model = null, turns = [], stopper = null;

function addMessage(role, text) {
  const item = document.createElement("li"), body = document.createElement("div"), who = document.createElement("span");
  item.className = role;
  who.className = "hidden";
  who.textContent = role === "user" ? "You: " : "Answer: ";
  body.className = "text";
  body.textContent = text;
  item.append(who, body);
  $("messages").append(item);
  $("welcome").hidden = true;
  scrollDown(true);
  return item;
}

function note(item, text) {
  const line = document.createElement("p");
  line.className = "note quiet";
  line.textContent = text;
  item.append(line);
}

// Follows the text unless the reader has scrolled up.
function scrollDown(always) {
  const box = $("scroll");
  if (always || box.scrollHeight - box.scrollTop - box.clientHeight < 120) box.scrollTop = box.scrollHeight;
}

function fitEntry() {
  const entry = $("entry");
  entry.style.height = "auto";
  entry.style.height = `${entry.scrollHeight + 2}px`;
}

function setBusy(busy) {
  const send = $("send");
  send.textContent = busy ? "Stop" : "Send";
  send.classList.toggle("stop", busy);
  send.classList.toggle("primary", !busy);
}

const plain = () => $("form").value === "text";

function body(text, isPlain) {
  const sampling = { model: model.id, stream: true, stream_options: { include_usage: true } };
  const number = (id, name) => { if ($(id).value !== "") sampling[name] = Number($(id).value); };
  number("max-tokens", "max_tokens");
  number("temperature", "temperature");
  number("top-p", "top_p");
  if (isPlain) return { ...sampling, prompt: text };
  const system = $("system").value.trim();
  return { ...sampling, messages: [...(system ? [{ role: "system", content: system }] : []), ...turns] };
}

const reasons = { length: "token limit reached", content_filter: "stopped by a filter" };

// Reads the stream into the item. Returns the text; figures go below it.
async function readAnswer(item, response, begun) {
  const text = item.querySelector(".text");
  let whole = "", chunks = 0, first = 0, usage = null, reason = null, ended = false;
  for await (const data of events(response)) {
    if (data === "[DONE]") { ended = true; break; }
    const part = JSON.parse(data);
    if (part.error) throw new Failure(500, part.error.message);
    usage = part.usage ?? usage;
    const choice = part.choices?.[0];
    const more = choice?.delta?.content ?? choice?.text ?? "";
    reason = choice?.finish_reason ?? reason;
    if (!more) continue;
    if (!first) first = performance.now();
    chunks++;
    whole += more;
    text.append(more);
    scrollDown(false);
  }
  if (!ended && !reason) throw new Failure(0, "The answer was cut off: the connection to the server was lost.");
  const tokens = usage?.completion_tokens ?? chunks, seconds = (performance.now() - first) / 1000;
  const rate = tokens > 1 && seconds > 0 ? `, ${((tokens - 1) / seconds).toFixed(tokens > 100 * seconds ? 0 : 1)} tokens/s` : "";
  note(item, `${tokens} token${tokens === 1 ? "" : "s"}${rate}${first ? `, first token after ${((first - begun) / 1000).toFixed(2)} s` : ""}`
    + (reasons[reason] ? `; ${reasons[reason]}` : ""));
  return whole;
}

async function answer(text) {
  const talk = turns, isPlain = plain(); // before the answer's end "New chat" may come, or another mode
  addMessage("user", text);
  if (!isPlain) turns.push({ role: "user", content: text });
  const item = addMessage("assistant", "");
  item.setAttribute("aria-busy", "true");
  stopper = new AbortController();
  setBusy(true);
  const begun = performance.now();
  try {
    const response = await postJson(isPlain ? "/v1/completions" : "/v1/chat/completions", body(text, isPlain), stopper.signal);
    const whole = await readAnswer(item, response, begun);
    if (!isPlain) talk.push({ role: "assistant", content: whole });
  } catch (error) {
    const shown = item.querySelector(".text");
    if (error.name === "AbortError") {
      note(item, "Stopped.");
      if (!isPlain && shown.textContent) talk.push({ role: "assistant", content: shown.textContent });
      else if (!isPlain) talk.pop();
    } else {
      if (!isPlain) talk.pop();
      item.classList.add("failed");
      note(item, "");
      item.lastChild.className = "text";
      item.lastChild.textContent = error.message;
      if ($("entry").value === "") $("entry").value = text;
      fitEntry();
    }
  } finally {
    item.removeAttribute("aria-busy");
    stopper = null;
    setBusy(false);
    scrollDown(false);
  }
}

// Shows the first of the settings that cannot be sent.
function settingsAreValid() {
  const wrong = ["max-tokens", "temperature", "top-p"].find((id) => !$(id).checkValidity());
  if (!wrong) return true;
  $("settings").open = true;
  return $(wrong).reportValidity();
}

function submit(event) {
  event.preventDefault();
  if (stopper) return stopper.abort();
  const text = $("entry").value;
  if (!text.trim() || !model || !settingsAreValid()) return;
  $("entry").value = "";
  fitEntry();
  answer(plain() ? text : text.trim());
}

export function startChat() {
  $("chat-form").addEventListener("submit", submit);
  $("entry").addEventListener("input", fitEntry);
  $("entry").addEventListener("keydown", (event) => {
    if (event.key === "Escape" && stopper) stopper.abort();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!stopper) $("chat-form").requestSubmit();
  });
  $("form").addEventListener("change", () => { $("system-label").hidden = plain(); });
  $("new-chat").addEventListener("click", () => {
    stopper?.abort();
    turns = [];
    $("messages").replaceChildren();
    $("welcome").hidden = false;
    $("settings").open = false;
    $("entry").focus();
  });
}

export function useChatModel(chosen) {
  model = chosen;
}
