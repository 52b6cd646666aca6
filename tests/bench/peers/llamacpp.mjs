// One run of llama.cpp, through node-llama-cpp: so many texts at once, each with a prompt of random tokens and so many new ones, greedily.
//   node llamacpp.mjs MODULES MODEL.gguf TEXTS PROMPT NEW THREADS SEED      -> "TOKENS SECONDS": new tokens of all, from the first prompt on
// MODULES: the folder in which `npm install node-llama-cpp` ran. Loading the model and making the context are not counted.
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const [modules, file, ...numbers] = process.argv.slice(2);
const [texts, prompt, fresh, threads, seed] = numbers.map(Number);
const {getLlama} = await import(pathToFileURL(createRequire(pathToFileURL(modules + "/")).resolve("node-llama-cpp")));
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: threads});
const model = await llama.loadModel({modelPath: file, gpuLayers: 0});
const context = await model.createContext({sequences: texts, contextSize: prompt + fresh + 8, batchSize: 512, threads});

let state = seed;
const draw = () => 3 + (state = (state * 1103515245 + 12345) % 2147483648) % 500; // no token that ends a text
const prompts = Array.from({length: texts}, () => Array.from({length: prompt}, draw));
const answer = async (tokens) => {
  let count = 0;
  for await (const _ of context.getSequence().evaluate(tokens, {temperature: 0, yieldEogToken: true})) if (++count === fresh) break;
  return count;
};
const begun = performance.now();
const counts = await Promise.all(prompts.map(answer));
console.log(counts.reduce((sum, count) => sum + count), (performance.now() - begun) / 1e3);
process.exit(0);
