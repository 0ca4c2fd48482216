// The page: reads the form, asks the server, plays and shows what comes back.

import { ApiError, call, getJson, pcmChunks, postForm, postJson, setKey, wordChunks } from "/static/api.js";
import { readOptions, readSlots, showOptions, showSlots } from "/static/fields.js";
import { Player, wavBlob } from "/static/player.js";
import { drawSpectrogram, drawWaveform } from "/static/plots.js";
import { setUpVoices } from "/static/voices.js";

const byId = (id) => document.getElementById(id);
const TASKS = {
  speech: ["Speak a text", "Speak", "Text"],
  sound: ["Make a sound", "Make", "What is to be heard"],
  edit: ["Edit a recording", "Edit", "Instructions, if no edit is chosen"],
  transcribe: ["Write down a recording", "Transcribe", ""],
  ask: ["Ask about a recording", "Ask", "Question"],
  converse: ["Answer spoken words", "Answer", ""],
};
const WITH_RECORDING = ["edit", "transcribe", "ask", "converse"];
const ENDINGS = {
  length: "cut at its longest length",
  loop: "broken off: it went round in circles",
  silence: "broken off: it fell silent",
};

let record = null; // the capability record of the chosen model
let running = null; // the AbortController of the request being served
let player = null;

export function showError(error) {
  if (error.name === "AbortError") return;
  byId("error-text").textContent = error.message;
  byId("error").hidden = false;
  if (error instanceof ApiError && error.status === 401) byId("key-box").open = true;
  if (!(error instanceof ApiError)) console.warn(error);
}

const chosenEdit = () => record?.edits.find((edit) => edit.name === byId("edit").value);

async function loadModels() {
  const { data } = await getJson("/v1/models");
  byId("model").replaceChildren(...data.map((m) => new Option(m.id, m.id, m.default, m.default)));
  await chooseModel();
}

// Loads the chosen model on the server and shows what it can do.
async function chooseModel() {
  const model = byId("model").value;
  byId("status").value = "loading the model";
  byId("start").disabled = true;
  try {
    const voices = await getJson(`/v1/audio/voices?model=${encodeURIComponent(model)}`);
    record = (await getJson(`/v1/models/${model}`)).capabilities;
    showVoices(voices);
    showOptions(byId("options"), record.options);
    const tasks = record.tasks.filter((task) => task in TASKS);
    byId("task").replaceChildren(...tasks.map((task) => new Option(TASKS[task][0], task)));
    byId("task-field").hidden = tasks.length < 2;
    byId("edit").replaceChildren(new Option("as the instructions say", ""));
    for (const edit of record.edits) byId("edit").add(new Option(`${edit.name}: ${edit.help}`, edit.name));
    byId("model-line").textContent = `${record.model}, ${record.sample_rate} Hz. Licence: ${record.licence}`;
    chooseTask();
  } finally {
    byId("status").value = "";
    byId("start").disabled = false;
  }
}

function showVoices({ voices, voice_cloning: cloning }) {
  const before = byId("voice").value;
  byId("voice").replaceChildren(...voices.map((v) => new Option(v.description ? `${v.name}: ${v.description}` : v.name, v.id)));
  if (voices.some((v) => v.id === before)) byId("voice").value = before;
  byId("voices").hidden = !cloning;
}

function chooseTask() {
  const task = byId("task").value;
  for (const box of document.querySelectorAll("[data-tasks]")) box.hidden = !box.dataset.tasks.split(" ").includes(task);
  byId("start").textContent = TASKS[task][1];
  byId("text-label").textContent = TASKS[task][2];
  showSlots(byId("slots"), chosenEdit());
}

// Sends the request of the form; the answer is PCM in events, or JSON for tasks that answer in words.
async function send(signal) {
  const [model, task, text] = [byId("model").value, byId("task").value, byId("text").value];
  const fields = { model, ...readOptions(record.options) };
  const [file] = byId("recording").files;
  if (WITH_RECORDING.includes(task) && !file) throw new Error("Choose a recording first.");
  if (task === "transcribe") return postForm("/v1/audio/transcriptions", { ...fields, file, stream: true }, signal);
  if (task === "ask" || task === "converse") return postJson("/v1/chat/completions", { ...fields, ...(await chat(file, task, text)) }, signal);
  const rate = Math.min(48000, record.sample_rate);
  const audio = { ...fields, response_format: "pcm", stream_format: "sse", sample_rate: rate };
  if (task === "edit") {
    const how = chosenEdit() ? { task: chosenEdit().name, ...readSlots(chosenEdit()) } : { instructions: text };
    return postForm("/v1/audio/edits", { ...audio, ...how, audio: file }, signal);
  }
  if (task === "sound") return postJson("/v1/audio/generations", { ...audio, input: text }, signal);
  const speed = Number(byId("speed").value) || 1;
  return postJson("/v1/audio/speech", { ...audio, input: text, voice: byId("voice").value, speed }, signal);
}

// What a chat about a recording consists of: a question that is answered in words, or none for an answer in speech.
async function chat(file, task, text) {
  let binary = "";
  for (const byte of new Uint8Array(await file.arrayBuffer())) binary += String.fromCharCode(byte);
  const heard = { type: "input_audio", input_audio: { data: btoa(binary) } };
  const message = (content) => ({ messages: [{ role: "user", content }] });
  if (task === "ask") return { ...message([heard, { type: "text", text }]), stream: true };
  return { ...message([heard]), modalities: ["text", "audio"], audio: { format: "wav" } };
}

async function start(event) {
  event.preventDefault();
  running?.abort();
  player?.stop();
  const mine = (running = new AbortController());
  clearResult();
  byId("cancel").disabled = false;
  byId("status").value = "working";
  const began = performance.now();
  try {
    const response = await send(mine.signal);
    const streamed = response.headers.get("Content-Type").startsWith("text/event-stream");
    if (!streamed) await showSpokenAnswer(await response.json(), began);
    else if (response.headers.has("X-Sample-Rate")) await listen(response, began, mine);
    else await read(response, began, mine);
    byId("status").value = "done";
  } catch (error) {
    byId("status").value = error.name === "AbortError" ? "cancelled" : "failed";
    if (running === mine) showError(error);
  } finally {
    if (running === mine) {
      running = null;
      byId("cancel").disabled = true;
    }
  }
}

const teller = (mine) => (share) => {
  if (running === mine) byId("status").value = `working, ${Math.floor(100 * share)} %`;
};

// Plays and draws the audio of events and says how far it is, then shows the whole.
async function listen(response, began, mine) {
  const rate = Number(response.headers.get("X-Sample-Rate"));
  const seed = response.headers.get("X-Seed");
  player = new Player(rate);
  mine.signal.addEventListener("abort", () => player.stop());
  byId("result").hidden = false;
  let first = null;
  let facts = {};
  let reason = "stop";
  for await (const samples of pcmChunks(response, teller(mine), (given) => (reason = given))) {
    first ??= performance.now() - began;
    player.push(samples);
    drawWaveform(byId("waveform"), player.peaks);
    const elapsed = (performance.now() - began) / 1000;
    facts = {
      "First audio": `${Math.round(first)} ms`,
      Audio: `${player.seconds.toFixed(2)} s`,
      "Real-time factor": (elapsed / player.seconds).toFixed(2),
      Seed: seed,
    };
    showFacts(facts);
  }
  if (reason in ENDINGS) showFacts({ ...facts, Ended: ENDINGS[reason] });
  const samples = player.samples();
  drawSpectrogram(byId("spectrogram"), samples);
  offer(wavBlob(samples, rate));
  byId("result").dataset.seconds = player.seconds;
}

// A recording to play again and to keep.
function offer(blob) {
  const url = URL.createObjectURL(blob);
  for (const [id, name] of [["download", "href"], ["again", "src"]]) {
    byId(id)[name] = url;
    byId(id).hidden = false;
  }
}

// Shows an answer in words while it comes.
async function read(response, began, mine) {
  showAnswer("");
  for await (const words of wordChunks(response, teller(mine))) byId("answer").textContent += words;
  showFacts({ Time: secondsSince(began), Seed: response.headers.get("X-Seed") });
}

async function showSpokenAnswer(body, began) {
  const { transcript, data } = body.choices[0].message.audio;
  showAnswer(transcript);
  offer(new Blob([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], { type: "audio/wav" }));
  showFacts({ Time: secondsSince(began) });
  await byId("again").play();
}

function showAnswer(words) {
  byId("result").hidden = byId("answer").hidden = false;
  byId("answer").textContent = words;
  for (const figure of document.querySelectorAll("figure")) figure.hidden = true;
}

const secondsSince = (began) => `${((performance.now() - began) / 1000).toFixed(2)} s`;

function showFacts(facts) {
  byId("facts").replaceChildren(
    ...Object.entries(facts).map(([name, value]) => {
      const [pair, term, definition] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
      [term.textContent, definition.textContent] = [name, value];
      pair.append(term, definition);
      return pair;
    }),
  );
}

function clearResult() {
  for (const id of ["result", "answer", "again", "download"]) byId(id).hidden = true;
  if (byId("again").src) URL.revokeObjectURL(byId("again").src);
  delete byId("result").dataset.seconds;
  byId("facts").replaceChildren();
  for (const figure of document.querySelectorAll("figure")) figure.hidden = false;
  for (const id of ["waveform", "spectrogram"]) {
    const canvas = byId(id);
    canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
  }
}

const guarded = (work) => (...args) => Promise.resolve(work(...args)).catch(showError);

byId("request").addEventListener("submit", guarded(start));
byId("cancel").addEventListener("click", () => running?.abort());
byId("error-dismiss").addEventListener("click", () => {
  byId("error").hidden = true;
  byId("text").focus();
});
byId("model").addEventListener("change", guarded(chooseModel));
byId("task").addEventListener("change", chooseTask);
byId("edit").addEventListener("change", () => showSlots(byId("slots"), chosenEdit()));
byId("key").addEventListener("change", guarded(() => {
  setKey(byId("key").value);
  return loadModels();
}));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("request").requestSubmit();
});
setUpVoices({ call, chooseModel: guarded(chooseModel), showError, postForm });
guarded(loadModels)();
