// The server's public HTTP API, as far as the page needs it.

export class ApiError extends Error {
  constructor(status, error) {
    super(error.message);
    this.name = "ApiError";
    this.status = status;
    this.param = error.param;
  }
}

let apiKey = "";

export function setKey(key) {
  apiKey = key;
}

// The response of a request; an ApiError with the server's own words when it refuses.
export async function call(path, options = {}) {
  const headers = new Headers(options.headers);
  if (apiKey) headers.set("Authorization", `Bearer ${apiKey}`);
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  let error = { message: `the server answered ${response.status}`, param: null };
  try {
    error = (await response.json()).error;
  } catch {
    // not from this server: a proxy's page
  }
  throw new ApiError(response.status, error);
}

// What a GET brings; while the server is still loading the model it is asked again.
export async function getJson(path, tries = 120) {
  try {
    return await (await call(path)).json();
  } catch (error) {
    if (error.status !== 503 || tries <= 1) throw error;
    await new Promise((resolve) => setTimeout(resolve, 1000));
    return getJson(path, tries - 1);
  }
}

export function postJson(path, body, signal) {
  return call(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
}

export function postForm(path, fields, signal) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  return call(path, { method: "POST", body: form, signal });
}

// The events of a response as they arrive, parsed; an ApiError for the one that tells of a failure.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.slice("data: ".length);
      if (data === "[DONE]") continue;
      const event = JSON.parse(data);
      if (event.error) throw new ApiError(response.status, event.error);
      yield event;
    }
  }
}

const BROKEN = "The connection broke off before the end.";

// Words of a streamed transcript or chat, as they arrive; `onProgress` gets the share that is done.
export async function* wordChunks(response, onProgress) {
  let ended = false;
  for await (const { type, delta, choices, progress } of events(response)) {
    ended ||= type === "transcript.text.done" || Boolean(choices?.[0]?.finish_reason);
    if (progress !== undefined) onProgress(progress);
    const words = choices ? choices[0]?.delta.content : delta;
    if (words) yield words;
  }
  if (!ended) throw new Error(BROKEN);
}

// Float samples of a response of 16-bit mono PCM in events, as they arrive; `onProgress` gets the share that is done,
// `onEnd` the reason why it ended.
export async function* pcmChunks(response, onProgress, onEnd) {
  let odd = "";
  let ended = false;
  for await (const { type, audio, progress, finish_reason: reason } of events(response)) {
    if (type === "speech.audio.done") {
      ended = true;
      onEnd(reason);
    }
    if (progress !== undefined) onProgress(progress);
    if (!audio) continue;
    const bytes = odd + atob(audio);
    const even = bytes.length - (bytes.length % 2);
    odd = bytes.slice(even);
    const view = new DataView(Uint8Array.from(bytes.slice(0, even), (c) => c.charCodeAt(0)).buffer);
    const samples = new Float32Array(even / 2);
    for (let i = 0; i < samples.length; i += 1) samples[i] = view.getInt16(2 * i, true) / 32768;
    if (samples.length) yield samples;
  }
  if (!ended) throw new Error(BROKEN);
}
