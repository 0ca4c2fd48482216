// Draws samples: the envelope while they arrive, and a spectrogram of the whole.

// `peaks` are the largest sizes of equal stretches of the audio so far.
export function drawWaveform(canvas, peaks) {
  const { width, height } = canvas;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  context.fillStyle = getComputedStyle(canvas).color;
  for (let column = 0; column < width; column += 1) {
    const first = Math.floor((column * peaks.length) / width);
    const last = Math.max(first + 1, Math.floor(((column + 1) * peaks.length) / width));
    const peak = Math.max(...peaks.slice(first, last));
    const half = Math.max(0.5, (Math.min(1, peak) * height) / 2);
    context.fillRect(column, height / 2 - half, 1, 2 * half);
  }
}

const SIZE = 512;

export function drawSpectrogram(canvas, samples) {
  const { width, height } = canvas;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const bins = SIZE / 2;
  const window = Float32Array.from({ length: SIZE }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / SIZE));
  for (let x = 0; x < width; x += 1) {
    const start = Math.floor((x * Math.max(0, samples.length - SIZE)) / width);
    const real = Float32Array.from(window, (w, i) => w * (samples[start + i] ?? 0));
    const power = powerSpectrum(real);
    for (let y = 0; y < height; y += 1) {
      const bin = Math.floor(((height - 1 - y) * bins) / height);
      const level = Math.max(0, Math.min(1, (10 * Math.log10(power[bin] + 1e-10) + 60) / 90));
      image.data.set(colour(level), 4 * (y * width + x));
    }
  }
  context.putImageData(image, 0, 0);
}

// From near black over teal to pale yellow.
function colour(level) {
  return [255 * level ** 2, 230 * level, 60 + 90 * level - 40 * level ** 3, 255];
}

// |FFT|^2 of SIZE real samples, by halves (radix 2).
function powerSpectrum(real) {
  const imaginary = new Float32Array(SIZE);
  for (let i = 1, j = 0; i < SIZE; i += 1) {
    let bit = SIZE >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) [real[i], real[j]] = [real[j], real[i]];
  }
  for (let half = 1; half < SIZE; half *= 2) {
    for (let k = 0; k < half; k += 1) {
      const angle = (-Math.PI * k) / half;
      const [c, s] = [Math.cos(angle), Math.sin(angle)];
      for (let i = k; i < SIZE; i += 2 * half) {
        const j = i + half;
        const re = real[j] * c - imaginary[j] * s;
        const im = real[j] * s + imaginary[j] * c;
        real[j] = real[i] - re;
        imaginary[j] = imaginary[i] - im;
        real[i] += re;
        imaginary[i] += im;
      }
    }
  }
  return real.map((x, i) => x * x + imaginary[i] * imaginary[i]);
}
