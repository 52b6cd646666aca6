// Requests to the server that this page came from: with the key where one is required, streams as events, failures as messages for people.

const keyName = "astra-key";

let key = null; // where the browser keeps no data of sites it lasts as long as the page
try { key = sessionStorage.getItem(keyName); } catch { /* they are blocked */ }

function headers(more) { return key ? { ...more, Authorization: `Bearer ${key}` } : more; }

export function hasKey() { return key !== null; }

export function setKey(given) {
  key = given;
  try { sessionStorage.setItem(keyName, key); } catch { /* as above */ }
}

// What went wrong with a request. status 0: no answer came.
export class Failure extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

async function failureOf(response) {
  let message = "";
  try { message = (await response.json()).error?.message ?? ""; } catch { /* no JSON */ }
  const after = Number(response.headers.get("Retry-After")) || 0;
  if (response.status === 429 || response.status === 503) message = `The server is busy${after ? `; try again in ${after} s` : ""}. ${message}`.trim();
  return new Failure(response.status, message || `The server answered ${response.status}.`, after);
}

export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: headers(options.headers ?? {}), cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "The server is not responding.");
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

export async function getJson(path, options) { return (await request(path, options)).json(); }

export function postJson(path, value, signal) {
  return request(path, { method: "POST", body: JSON.stringify(value), headers: { "Content-Type": "application/json" }, signal });
}

// The data of each server-sent event of a response, in turn.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "", data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (left + value).split(/\r\n|\n|\r(?!$)/);
      left = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield data.join("\n");
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
