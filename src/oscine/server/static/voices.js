// Making a voice from a file or the microphone, and deleting one.

const byId = (id) => document.getElementById(id);

export function setUpVoices({ call, chooseModel, showError, postForm }) {
  let recorder = null;
  let recorded = null; // what the microphone gave, until a file is chosen

  async function toggleRecording() {
    if (recorder) {
      recorder.stop();
      return;
    }
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    const parts = [];
    recorder = new MediaRecorder(stream);
    recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
    recorder.addEventListener("stop", () => {
      stream.getTracks().forEach((track) => track.stop());
      recorded = new File(parts, "recording", { type: recorder.mimeType });
      recorder = null;
      byId("voice-file").value = "";
      showState(false, "recorded");
    });
    recorder.start();
    showState(true, "recording");
  }

  function showState(on, text) {
    byId("record").setAttribute("aria-pressed", String(on));
    byId("record").textContent = on ? "Stop" : "Record";
    byId("voice-status").value = text;
  }

  async function save(event) {
    event.preventDefault();
    const audio = byId("voice-file").files[0] ?? recorded;
    if (!audio) throw new Error("Record something or choose an audio file first.");
    byId("voice-status").value = "saving";
    const name = byId("voice-name").value;
    try {
      const fields = { name, ref_text: byId("voice-text").value, model: byId("model").value, audio_sample: audio };
      await postForm("/v1/audio/voices", fields);
    } catch (error) {
      byId("voice-status").value = "not saved";
      throw error;
    }
    await chooseModel();
    byId("voice").value = name;
    byId("voice-status").value = `saved ${name}`;
  }

  async function remove() {
    const name = byId("voice").value;
    await call(`/v1/audio/voices/${encodeURIComponent(name)}`, { method: "DELETE" });
    await chooseModel();
    byId("voice-status").value = `deleted ${name}`;
  }

  const guarded = (work) => (event) => work(event).catch(showError);
  byId("record").addEventListener("click", guarded(toggleRecording));
  byId("voice-form").addEventListener("submit", guarded(save));
  byId("voice-delete").addEventListener("click", guarded(remove));
}
