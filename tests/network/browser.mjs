// Chromium without a window, driven over the DevTools protocol through a pipe: what page.mjs needs of it.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export class Browser {
  static async start(program) {
    const browser = new Browser();
    browser.folder = mkdtempSync(join(tmpdir(), "astra-browser-"));
    const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
      "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
      `--user-data-dir=${browser.folder}`, "about:blank"];
    browser.process = spawn(program, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"], env: { ...process.env, HOME: browser.folder } });
    browser.calls = new Map();
    browser.number = 0;
    browser.problems = []; // what the page's console says of errors
    let left = Buffer.alloc(0);
    browser.process.stdio[4].on("data", (data) => {
      left = Buffer.concat([left, data]);
      for (let end; (end = left.indexOf(0)) >= 0; left = left.subarray(end + 1)) browser.take(JSON.parse(left.subarray(0, end).toString()));
    });
    const { targetId } = await browser.page();
    browser.session = (await browser.send("Target.attachToTarget", { targetId, flatten: true })).sessionId;
    for (const domain of ["Page", "Runtime", "Log", "DOM", "Network"]) await browser.send(`${domain}.enable`);
    return browser;
  }

  // Its only page, which may come later than the browser itself.
  async page(seconds = 30) {
    for (const end = Date.now() + 1000 * seconds; Date.now() < end; await pause(50)) {
      const { targetInfos } = await this.send("Target.getTargets");
      const page = targetInfos.find((target) => target.type === "page");
      if (page) return page;
    }
    throw new Error(`the browser has no page after ${seconds} s`);
  }

  take(message) {
    if (message.method === "Runtime.exceptionThrown") this.problems.push(message.params.exceptionDetails.exception?.description ?? "exception");
    if (message.method === "Log.entryAdded" && message.params.entry.level === "error" && message.params.entry.source !== "network")
      this.problems.push(message.params.entry.text);
    const call = this.calls.get(message.id);
    if (!call) return;
    this.calls.delete(message.id);
    if (message.error) call.failed(new Error(`${call.method}: ${message.error.message}`));
    else call.done(message.result);
  }

  send(method, params = {}) {
    const id = ++this.number, session = method.startsWith("Target.") ? {} : { sessionId: this.session };
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, ...session })}\0`);
    return new Promise((done, failed) => this.calls.set(id, { method, done, failed }));
  }

  // The value of an expression in the page; promises are waited for.
  async value(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return result.value;
  }

  async until(expression, what, seconds = 30) {
    for (const end = Date.now() + 1000 * seconds; Date.now() < end; await pause(100)) if (await this.value(expression)) return;
    throw new Error(`${what}: not within ${seconds} s; the page shows: ${await this.value("document.body.innerText")}`);
  }

  async size(width, height, phone) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: phone ? 2 : 1, mobile: phone });
    await this.send("Emulation.setTouchEmulationEnabled", { enabled: phone });
  }

  // The page receives no more than this many bytes per second; -1: as many as come.
  receives(bytes) { return this.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: bytes, uploadThroughput: -1 }); }

  scheme(name) { return this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: name }] }); }
  async open(address) {
    await this.send("Page.navigate", { url: address });
    await this.until("document.readyState === 'complete'", `${address} loads`);
  }
  type(text) { return this.send("Input.insertText", { text }); }

  async key(name, code, text, modifiers = 0) {
    const key = { key: name, code: name, windowsVirtualKeyCode: code, modifiers };
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", ...key, ...(text ? { text } : {}) });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...key });
  }

  async choose(selector, files) {
    const { root } = await this.send("DOM.getDocument");
    const { nodeId } = await this.send("DOM.querySelector", { nodeId: root.nodeId, selector });
    await this.send("DOM.setFileInputFiles", { nodeId, files });
  }

  async shot(path) { writeFileSync(path, Buffer.from((await this.send("Page.captureScreenshot", { format: "png" })).data, "base64")); }

  async end() {
    const gone = new Promise((done) => this.process.once("exit", done));
    this.send("Browser.close").catch(() => {});
    await Promise.race([gone, pause(5000)]);
    this.process.kill("SIGKILL");
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}
