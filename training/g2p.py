"""Trains the letter-to-sound network for words outside the English lexicon, from that lexicon.

    python -m training.g2p            # about ten minutes on one core; seeded

1. Align: every letter of a word emits zero to two sounds; the most likely alignment is found by Viterbi training.
2. Train: a small residual convolution over letters says which sounds each letter emits.
3. Report: sound and word error on held-out words, then write the weights as int8 with a scale per output.

Inference in numpy is `oscine.text.english.guess`; the two must agree on the layout, which the unit tests check.
"""

from __future__ import annotations

import argparse
import collections
import math
import random
import re
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from oscine.text.english.alphabet import STRESSES
from oscine.text.english.lexicon import lexicon_items

OUTPUT = Path(__file__).parents[1] / "src/oscine/text/english/data/letters_to_sounds.npz"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PAD = 0
WIDTH = 80
KERNEL = 5
BLOCKS = 4
MIN_CHUNK_COUNT = 15
BATCH = 512
Pair = tuple[str, tuple[str, ...]]


def sounds(phonemes: str) -> tuple[str, ...]:
    """Returns the phonemes with each stress mark joined to its vowel."""
    return tuple(re.findall(rf"[{STRESSES}]?.", phonemes))


def lexicon_pairs() -> list[Pair]:
    """Returns (word, sounds) of all plain words; words read in a special way by case are left out."""
    pairs = []
    for word, phonemes in lexicon_items():
        if re.fullmatch(r"[a-z]{2,20}", word) and not re.fullmatch(r"[^aeiouy]+", word):
            pairs.append((word, sounds(phonemes)))
    return pairs


class Aligner:
    """Viterbi training of P(chunk | letter), where a chunk is zero to two sounds."""

    def __init__(self) -> None:
        self.cost: dict[tuple[str, tuple[str, ...]], float] = {}

    def _price(self, letter: str, chunk: tuple[str, ...]) -> float:
        if self.cost:
            return self.cost.get((letter, chunk), 12.0)
        return (1.0, 0.5, 3.0)[len(chunk)]

    def align(self, word: str, target: tuple[str, ...]) -> list[tuple[str, ...]] | None:
        """Returns one chunk a letter of least cost, or None if the word has too few letters for its sounds."""
        rows: list[dict[int, tuple[float, int]]] = [{0: (0.0, -1)}]
        for letter in word:
            row: dict[int, tuple[float, int]] = {}
            for done, (cost, _) in rows[-1].items():
                for size in range(min(2, len(target) - done) + 1):
                    total = cost + self._price(letter, target[done : done + size])
                    if done + size not in row or total < row[done + size][0]:
                        row[done + size] = (total, done)
            rows.append(row)
        if len(target) not in rows[-1]:
            return None
        chunks = []
        end = len(target)
        for index in range(len(word), 0, -1):
            start = rows[index][end][1]
            chunks.append(target[start:end])
            end = start
        return chunks[::-1]

    def fit(self, pairs: list[Pair], rounds: int) -> None:
        """Re-estimates the costs `rounds` times."""
        for _ in range(rounds):
            counts: collections.Counter[tuple[str, tuple[str, ...]]] = collections.Counter()
            for word, target in pairs:
                for letter, chunk in zip(word, self.align(word, target) or (), strict=False):
                    counts[letter, chunk] += 1
            letters: collections.Counter[str] = collections.Counter()
            for (letter, _), count in counts.items():
                letters[letter] += count
            self.cost = {key: -math.log(count / letters[key[0]]) for key, count in counts.items()}


class Network(nn.Module):
    """Letters [word, place] to chunk logits [word, place, chunk]; padding is letter 0 and stays zero."""

    def __init__(self, num_chunks: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS) + 1, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(KERNEL * WIDTH, WIDTH) for _ in range(BLOCKS))
        self.out = nn.Linear(WIDTH, num_chunks)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        """Returns logits; every block sees two letters to each side."""
        mask = (letters != PAD).unsqueeze(-1)
        x = functional.dropout(self.embed(letters), 0.05, self.training) * mask
        for block in self.blocks:
            padded = functional.pad(x, (0, 0, KERNEL // 2, KERNEL // 2))
            windows = torch.cat([padded[:, k : k + letters.shape[1]] for k in range(KERNEL)], dim=-1)
            x = (x + functional.relu(block(windows))) * mask
        return self.out(x)


def batches(data: list[tuple[str, list[int]]], size: int, rng: random.Random) -> list[list[tuple[str, list[int]]]]:
    """Returns shuffled batches of words of about equal length."""
    order = sorted(data, key=lambda item: (len(item[0]), rng.random()))
    chunks = [order[start : start + size] for start in range(0, len(order), size)]
    rng.shuffle(chunks)
    return chunks


def tensors(batch: list[tuple[str, list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns letters and labels [word, place]; label -100 marks padding."""
    longest = max(len(word) for word, _ in batch)
    letters = torch.zeros(len(batch), longest, dtype=torch.long)
    labels = torch.full((len(batch), longest), -100)
    for row, (word, chunks) in enumerate(batch):
        letters[row, : len(word)] = torch.tensor([LETTERS.index(letter) + 1 for letter in word])
        labels[row, : len(word)] = torch.tensor(chunks)
    return letters, labels


def train(data: list[tuple[str, list[int]]], num_chunks: int, epochs: int, seed: int) -> Network:
    """Returns the trained network."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    network = Network(num_chunks)
    optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3, weight_decay=0.01)
    steps = epochs * math.ceil(len(data) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps, pct_start=0.1)
    for epoch in range(epochs):
        total = 0.0
        for batch in batches(data, BATCH, rng):
            letters, labels = tensors(batch)
            logits = network(letters)
            loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.01)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(batch)
        print(f"epoch {epoch + 1}: loss {total / len(data):.3f}", flush=True)
    return network.eval()


def save(network: Network, chunks: list[tuple[str, ...]]) -> None:
    """Writes int8 weights with a float32 scale per row; `chunks` are the outputs, sounds joined."""
    arrays: dict[str, np.ndarray] = {"chunks": np.array(["".join(chunk) for chunk in chunks])}
    for name, tensor in network.state_dict().items():
        values = tensor.float().numpy()
        if values.ndim == 1:
            arrays[name] = values.astype(np.float32)
            continue
        scale = np.abs(values).max(axis=1, keepdims=True) / 127 + 1e-12
        arrays[name] = np.round(values / scale).astype(np.int8)
        arrays[name + ".scale"] = scale.astype(np.float32)
    np.savez_compressed(OUTPUT, **arrays)  # type: ignore[arg-type]
    print(f"{OUTPUT.stat().st_size} bytes in {OUTPUT}")


def distance(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    """Returns the edit distance of two sequences."""
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


def report(held_out: list[Pair]) -> None:
    """Prints the sound and word error of the shipped inference on words it was not trained on."""
    from oscine.text.english.guess import guess

    wrong_sounds = wrong_plain = total = wrong_words = 0
    for word, target in held_out:
        said = sounds(guess(word))
        wrong_sounds += distance(said, target)
        plain = [tuple(sound[-1] for sound in item) for item in (said, target)]
        wrong_plain += distance(plain[0], plain[1])
        total += len(target)
        wrong_words += said != target
    print(
        f"{len(held_out)} held-out words: sound error {wrong_sounds / total:.1%} with stress, "
        f"{wrong_plain / total:.1%} without; word error {wrong_words / len(held_out):.1%}"
    )


def main() -> None:
    """Aligns, trains, writes and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--words", type=int, default=100_000, help="how many words of the lexicon to learn from")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pairs = lexicon_pairs()
    random.Random(options.seed).shuffle(pairs)
    pairs = pairs[: options.words]
    aligner = Aligner()
    aligner.fit(pairs[:20000], rounds=4)
    aligned = [(word, target, aligner.align(word, target)) for word, target in pairs]
    counts = collections.Counter(chunk for _, _, row in aligned for chunk in row or ())
    chunks = [chunk for chunk, count in counts.most_common() if count >= MIN_CHUNK_COUNT]
    index = {chunk: place for place, chunk in enumerate(chunks)}
    data = [(w, [index[c] for c in row]) for w, _, row in aligned if row and all(c in index for c in row)]
    held = len(pairs) // 40
    held_words = {word for word, _ in pairs[:held]}
    kept = [item for item in data if item[0] not in held_words]
    print(f"{len(pairs)} words, {len(data)} aligned, {len(chunks)} chunks, {len(kept)} to train on", flush=True)
    save(train(kept, len(chunks), options.epochs, options.seed), chunks)
    report(pairs[:held])


if __name__ == "__main__":
    main()
