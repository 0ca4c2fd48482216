// Plays samples while they arrive, and turns what has arrived into a WAV file.

const PEAK = 128;

export class Player {
  constructor(sampleRate) {
    this.sampleRate = sampleRate;
    this.chunks = [];
    this.length = 0;
    this.peaks = []; // the largest of every PEAK samples, for the drawing
    this.context = new AudioContext({ sampleRate });
    this.next = 0;
  }

  // Queues samples right behind those before; late ones start at once.
  push(samples) {
    this.chunks.push(samples);
    for (let i = 0; i < samples.length; i += 1) {
      const at = Math.floor((this.length + i) / PEAK);
      this.peaks[at] = Math.max(this.peaks[at] ?? 0, Math.abs(samples[i]));
    }
    this.length += samples.length;
    if (this.context.state === "closed") return;
    const buffer = this.context.createBuffer(1, samples.length, this.sampleRate);
    buffer.copyToChannel(samples, 0);
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    this.next = Math.max(this.next, this.context.currentTime + 0.02);
    source.start(this.next);
    this.next += buffer.duration;
  }

  get seconds() {
    return this.length / this.sampleRate;
  }

  stop() {
    if (this.context.state !== "closed") this.context.close();
  }

  samples() {
    const all = new Float32Array(this.length);
    let at = 0;
    for (const chunk of this.chunks) {
      all.set(chunk, at);
      at += chunk.length;
    }
    return all;
  }
}

// A 16-bit mono WAV file of float samples.
export function wavBlob(samples, sampleRate) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, word) => [...word].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, sampleRate, true);
  view.setUint32(28, 2 * sampleRate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((x, i) => view.setInt16(44 + 2 * i, Math.max(-32768, Math.min(32767, Math.round(32768 * x))), true));
  return new Blob([view.buffer], { type: "audio/wav" });
}
