// Images: dropped, pasted or chosen, sent one by one, with the classes that the model sees in each.
import { request } from "/server.js";

const $ = (id) => document.getElementById(id);
let model = null;

function element(kind, name, text) {
  const made = document.createElement(kind);
  made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

function classRow({ label, probability }) {
  const row = element("div", "class"), bar = element("div", "bar"), fill = document.createElement("i");
  fill.style.width = `${100 * probability}%`;
  bar.append(fill);
  row.append(element("span", "label", label), element("span", "part", `${(100 * probability).toFixed(1)}%`), bar);
  return row;
}

// Classes of the first image of an answer, the likeliest first.
function classesOf(answer) {
  const [result] = answer.results;
  if (result.error) throw new Error(result.error.message ?? result.error);
  return result.classes.map(({ index, label, probability }) => ({ label: label.replaceAll("_", " ") || `Class ${index}`, probability }));
}

async function classify(file) {
  const item = document.createElement("li"), image = document.createElement("img"), body = element("div", "body"), state = element("p", "quiet", "Classifying");
  image.src = URL.createObjectURL(file);
  image.alt = "";
  image.addEventListener("error", () => { image.hidden = true; }); // what a browser cannot show the model may still read
  for (const end of ["load", "error"]) image.addEventListener(end, () => URL.revokeObjectURL(image.src), { once: true });
  body.append(element("p", "name quiet", file.name || "Image"), state);
  item.append(image, body);
  item.setAttribute("aria-busy", "true");
  $("results").prepend(item);
  const begun = performance.now();
  try {
    const path = `/v1/images/classify?model=${encodeURIComponent(model.id)}`;
    const response = await request(path, { method: "POST", body: file, headers: { "Content-Type": file.type || "application/octet-stream" } });
    const classes = classesOf(await response.json());
    state.replaceWith(...classes.map(classRow));
    image.alt = `${file.name || "Image"}: ${classes[0].label}`;
    body.append(element("p", "quiet", `${(performance.now() - begun).toFixed(0)} ms`));
  } catch (error) {
    state.className = "failed";
    state.textContent = error.message;
  }
  item.removeAttribute("aria-busy");
}

// Of a file without a type the server finds out what it is.
const mayBeImage = (file) => file.type === "" || file.type.startsWith("image/");

function leftOut(files) {
  const names = files.slice(0, 3).map((file) => file.name || "A file"), more = files.length - names.length, last = more > 0 ? `${more} more` : names.pop();
  if (names.length === 0) return `${last} was left out: it is not an image (PNG, JPEG, ...).`;
  return `${names.join(", ")} and ${last} were left out: they are not images (PNG, JPEG, ...).`;
}

async function take(files) {
  const others = [...files].filter((file) => !mayBeImage(file));
  $("left-out").textContent = others.length > 0 ? leftOut(others) : "";
  for (const file of [...files].filter(mayBeImage)) await classify(file);
}

export function startImages() {
  const drop = $("drop"), over = (on) => (event) => { event.preventDefault(); drop.classList.toggle("over", on); };
  $("files").addEventListener("change", async (event) => { const files = [...event.target.files]; event.target.value = ""; await take(files); });
  const whole = $("image");
  whole.addEventListener("dragover", over(true));
  whole.addEventListener("dragleave", over(false));
  whole.addEventListener("drop", (event) => { over(false)(event); take(event.dataTransfer.files); });
  // Dropped beside it an image would be opened in the page's place.
  const stay = (event) => { if (event.dataTransfer?.types.includes("Files")) event.preventDefault(); };
  for (const name of ["dragover", "drop"]) document.addEventListener(name, stay);
  document.addEventListener("paste", (event) => { if (!whole.hidden) take(event.clipboardData.files); });
}

export function useImageModel(chosen) { model = chosen; }
