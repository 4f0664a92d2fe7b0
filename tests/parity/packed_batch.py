"""Documents packed into fixed rows, as the trainer feeds them: isolated in attention, with restarting positions."""

import dataclasses

import numpy as np

IGNORED = -100  # a target without a loss; torch.nn.functional.cross_entropy ignores this value
PADDING = -1  # the document number of a position after the last document of a row


@dataclasses.dataclass
class Document:
    ids: np.ndarray  # [n] int32
    supervised: np.ndarray  # [n] bool: the loss of predicting this token counts

    def targets(self):
        """targets[t] is the token after t, if that one is supervised."""
        targets = np.full(len(self.ids), IGNORED, np.int32)
        targets[:-1] = np.where(self.supervised[1:], self.ids[1:], IGNORED)
        return targets


@dataclasses.dataclass
class PackedBatch:
    rows: list  # of lists of Document, in packing order
    row_length: int

    def place(self, row, per_document, fill, dtype, tail=()):
        """One row of [row_length, *tail]: the documents' arrays one after another, then `fill`."""
        out = np.full((self.row_length, *tail), fill, dtype)
        at = 0
        for array in per_document:
            out[at : at + len(array)] = array
            at += len(array)
        return out

    def tensors(self):
        """A trainer's inputs: [rows, row_length] int32 each."""
        columns = {"input_ids": [], "targets": [], "documents": [], "positions": []}
        for row in self.rows:
            assert sum(len(d.ids) for d in row) <= self.row_length
            columns["input_ids"].append(self.place(row, [d.ids for d in row], 0, np.int32))
            columns["targets"].append(self.place(row, [d.targets() for d in row], IGNORED, np.int32))
            columns["documents"].append(
                self.place(row, [np.full(len(d.ids), n) for n, d in enumerate(row)], PADDING, np.int32)
            )
            columns["positions"].append(self.place(row, [np.arange(len(d.ids)) for d in row], 0, np.int32))
        return {name: np.stack(column) for name, column in columns.items()}

    def token_count(self):
        return sum(int((d.targets() != IGNORED).sum()) for row in self.rows for d in row)


# (length, supervised span) per document and row. Together: a masked prompt, a document of one token (no loss at
# all), one supervised from its second token, a row filled to its last position, a wholly unsupervised document,
# several supervised turns, and a row that ends in padding.
GRADIENT_LAYOUT = [
    [(17, [(6, 17)]), (1, [(0, 1)]), (14, [(0, 14)])],
    [(40, [(9, 40)])],
    [(11, []), (29, [(4, 9), (15, 22), (28, 29)])],
]
ROW_LENGTH = 40


def make_document(rng, length, spans, vocab):
    """Tokens 3..vocab-1: 0..2 are pad, bos and eos in the configs, and a pad id's embedding gets no gradient."""
    ids = rng.integers(3, vocab, length).astype(np.int32)
    supervised = np.zeros(length, bool)
    for begin, end in spans:
        supervised[begin:end] = True
    return Document(ids, supervised)


def gradient_batch(vocab, seed, layout=GRADIENT_LAYOUT):
    rng = np.random.default_rng(seed)
    rows = [[make_document(rng, length, spans, vocab) for length, spans in row] for row in layout]
    return PackedBatch(rows, ROW_LENGTH)


def learnable_document(rng, length, vocab):
    """A walk with a fixed stride and some noise, which a few dozen steps can begin to learn."""
    ids = 3 + (rng.integers(vocab) + 7 * np.arange(length)) % (vocab - 3)
    noisy = rng.random(length) < 0.15
    ids = np.where(noisy, rng.integers(3, vocab, length), ids).astype(np.int32)
    supervised = np.arange(length) >= rng.integers(1, 1 + length // 3)
    return Document(ids, supervised)


def training_batches(vocab, seed, steps, micro_batches, row_length):
    """[steps][micro_batches] PackedBatch of one row, with different numbers of supervised tokens."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(steps):
        result.append([])
        for _ in range(micro_batches):
            first = int(rng.integers(6, row_length - 6))
            second = int(rng.integers(4, row_length - first + 1))
            row = [learnable_document(rng, n, vocab) for n in (first, second)]
            result[-1].append(PackedBatch([row], row_length))
    return result
