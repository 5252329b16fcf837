"""Text of our own making: documents of a few topics, as tf-idf of length one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer

from sets.rows import Rows, Split

WORDS, TOPICS = 20_000, 40
OWN_WORDS, OWN_SHARE = 200, 0.3  # of a topic: its words, and how many of the words on it are these
OTHERS = 3  # topics that a document touches as well
TRAIN, TEST = 8000, 4000


def topics(length: float, classes: int, *, focus: float, seed: int) -> Callable[[Path], Split]:
    """Documents of about so many words; the class is that of the document's topic.

    A word is on the topic of its document with probability `focus`, else on one of the three others it touches. On a
    topic it is one of the topic's own words in three of ten cases, else any word, by Zipf's law.
    """

    def made(_: Path) -> Split:
        rng = np.random.default_rng(seed)
        documents = TRAIN + TEST
        topic = rng.integers(TOPICS, size=documents)
        lengths = np.maximum(3, rng.poisson(length * rng.exponential(size=documents)))
        owner = np.repeat(np.arange(documents), lengths)
        others = rng.integers(TOPICS, size=(documents, OTHERS))[owner, rng.integers(OTHERS, size=owner.size)]
        subject = np.where(rng.random(owner.size) < focus, topic[owner], others)
        words = _words(rng, subject)
        counts = csr_matrix((np.ones(owner.size), (owner, words)), (documents, WORDS))
        counts.sum_duplicates()
        weighed = TfidfTransformer(sublinear_tf=True).fit(counts[:TRAIN])
        x, codes = csr_matrix(weighed.transform(counts)), topic % classes
        return Split(Rows(x[:TRAIN], codes[:TRAIN]), Rows(x[TRAIN:], codes[TRAIN:]))

    return made


def _words(rng: np.random.Generator, subject: np.ndarray) -> np.ndarray:
    """A word for each subject."""
    law = np.cumsum(1.0 / np.arange(1, WORDS + 1))
    common = np.searchsorted(law / law[-1], rng.random(subject.size))
    own = rng.integers(OWN_WORDS, WORDS, size=(TOPICS, OWN_WORDS))[subject, rng.integers(OWN_WORDS, size=subject.size)]
    return np.where(rng.random(subject.size) < OWN_SHARE, own, common)
