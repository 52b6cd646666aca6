// The openai package, unchanged, against astra-serve: node serve_openai.mjs NODE_MODULES BASE-URL. Exit code 1: something is not as its documentation says.
import assert from 'node:assert';
import fs from 'node:fs';
import path from 'node:path';
import {createRequire} from 'node:module';

const [modules, baseURL] = process.argv.slice(2);
const require = createRequire(path.resolve(modules) + '/');
const OpenAI = require('openai');
const client = new (OpenAI.default ?? OpenAI)({baseURL, apiKey: 'none', maxRetries: 2});

const models = await client.models.list();
assert.equal(models.data[0].id, 'stories260K');
const model = models.data[0].id;
assert.deepEqual(await client.models.retrieve(model), models.data[0]);
await assert.rejects(client.models.retrieve('other'), error => error.status === 404 && error.code === 'model_not_found');

const ask = {model, prompt: 'Once upon a time', max_tokens: 20, temperature: 0};
const whole = await client.completions.create(ask);
assert.match(whole.choices[0].text, /there was a little girl/);
let text = '';
for await (const event of await client.completions.create({...ask, stream: true})) text += event.choices[0].text;
assert.equal(text, whole.choices[0].text);

const chat = {model, messages: [{role: 'user', content: 'Hello'}], max_tokens: 12, temperature: 0};
const answer = await client.chat.completions.create(chat);
assert.equal(answer.choices[0].message.role, 'assistant');
assert.equal(answer.usage.completion_tokens, 12);
text = '';
let usage = null;
const stream = await client.chat.completions.create({...chat, stream: true, stream_options: {include_usage: true}});
for await (const event of stream) {
  text += event.choices[0]?.delta.content ?? '';
  usage = event.usage ?? usage;
}
assert.equal(text, answer.choices[0].message.content);
assert.equal(usage.completion_tokens, 12);

const probabilities = await client.chat.completions.create({...chat, logprobs: true, top_logprobs: 3});
assert.equal(probabilities.choices[0].logprobs.content[0].top_logprobs.length, 3);

// A stream that is left: the next request is answered.
const left = await client.chat.completions.create({...chat, max_tokens: 300, stream: true});
for await (const event of left) if (event) break;
assert.equal((await client.completions.create(ask)).choices[0].text, whole.choices[0].text);

await assert.rejects(client.completions.create({...ask, temperature: 'hot'}), error => error.status === 400 && error.param === 'temperature');
await assert.rejects(client.completions.create({...ask, model: 'other'}), error => error.status === 404);
const {version} = JSON.parse(fs.readFileSync(path.join(modules, 'openai/package.json'), 'utf8'));
console.log(`openai ${version}: ok`);
