"""The named data sets: published files, checksums, licences, and the usual way to stream them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ocil.errors import OcilError, suggest
from ocil.text import listed, plain


@dataclass(frozen=True)
class SourceFile:
    """One published file; a checksum is None where the publisher gives none."""

    name: str
    urls: tuple[str, ...]
    size: int  # bytes
    md5: str | None = None
    unpacked_md5: str | None = None  # of the content of a gzip file
    sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """A named data set: facts for people, limits for the readers, defaults for a run."""

    name: str
    title: str
    licence: str
    citation: str
    home: str
    layout: str  # "bundled", "idx", "cifar" or "tiny"
    shape: tuple[int, int, int]  # (C, H, W)
    classes: int
    train: int  # images; a file that claims more is refused before anything is allocated
    test: int
    class_names: tuple[str, ...] = ()  # empty: read from the files
    files: tuple[SourceFile, ...] = ()
    place: tuple[str, ...] = ()  # what a person may put into ROOT/NAME by hand
    member_md5: Mapping[str, str] = field(default_factory=dict)  # of the unpacked archive
    pixels: Mapping[str, str] = field(default_factory=dict)  # sha256 of (N, H, W, C), 16 digits
    protocol: Mapping[str, Any] = field(default_factory=dict)
    mean: tuple[float, ...] = ()  # of each channel of the training images, white being 1
    std: tuple[float, ...] = ()

    def images(self, part: str) -> int:
        """How many images there are in "train" or "test"."""
        return self.train if part == "train" else self.test

    @property
    def size(self) -> int:
        """Bytes to download; 0 where there is nothing to fetch."""
        return sum(file.size for file in self.files)

    def by_hand(self, folder: Path) -> str:
        """The half sentence that says which files to put where."""
        origin = f" (from {self.home})" if self.files else ""
        return f"put {listed(self.place)} into {folder}{origin}"

    def remedy(self, folder: Path) -> str:
        """The half sentence that gets the data: by command where there is one."""
        fetch = f"run `ocil data get {self.name}`, or " if self.files else ""
        return fetch + self.by_hand(folder)


# Facts that belong together share a line.
# fmt: off
_DIGITS = Source(
    name="digits",
    title="Digits (8x8, bundled with scikit-learn)",
    licence="CC BY 4.0 (UCI repository)",
    citation="E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998",
    home="https://archive.ics.uci.edu/dataset/80",
    layout="bundled", shape=(1, 8, 8), classes=10, train=1442, test=355,
    class_names=tuple("0123456789"),
    # Rates chosen for ER on held-out images (studies tune-er-digits, tune-er-mnist), shared by all.
    protocol={
        "classes_per_task": 2, "net": "mlp", "augment": "affine", "memory": 100, "eval_every": 5,
        "lr": 8e-3, "ema": 0.9,
    },
)

IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def _idx_files(mirrors: tuple[str, ...], *facts: tuple) -> tuple[SourceFile, ...]:
    """The four IDX files from (bytes, md5, md5 of the unpacked file where it is published)."""
    named = zip(IDX_NAMES, facts, strict=True)
    return tuple(SourceFile(name, tuple(m + name for m in mirrors), *fact) for name, fact in named)


_MNIST = Source(
    name="mnist",
    title="MNIST handwritten digits",
    licence="CC BY-SA 3.0",
    citation="Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, Gradient-based learning applied to "
    "document recognition, Proceedings of the IEEE 86(11), 1998",
    home="http://yann.lecun.com/exdb/mnist/",
    layout="idx", shape=(1, 28, 28), classes=10, train=60_000, test=10_000,
    class_names=tuple("0123456789"),
    files=_idx_files(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
        (28_881, "d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
        (1_648_877, "9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
        (4_542, "ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
    ),
    place=IDX_NAMES,
    protocol={"classes_per_task": 2, "net": "mlp", "augment": "affine", "memory": 500, "lr": 1e-3},
    mean=(0.1307,), std=(0.3081,),
)

_FASHION = replace(
    _MNIST,
    name="fashion-mnist",
    title="Fashion-MNIST articles of clothing",
    licence="MIT",
    citation="H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST: a novel image dataset for "
    "benchmarking machine learning algorithms, arXiv:1708.07747, 2017",
    home="https://github.com/zalandoresearch/fashion-mnist",
    class_names=(
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
        "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    # The publisher gives md5 for the gzip files only: unpacked files cannot be compared.
    files=_idx_files(
        (
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
        (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
        (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    mean=(0.2860,), std=(0.3530,),
)


def _cifar_file(name: str, size: int, md5: str, sha256: str) -> tuple[SourceFile, ...]:
    mirrors = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
    return (SourceFile(name, tuple(m + name for m in mirrors), size, md5, sha256=sha256),)


_CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10 natural images",
    licence="none stated; the authors ask for the citation",
    citation="A. Krizhevsky, Learning multiple layers of features from tiny images, "
    "technical report, University of Toronto, 2009",
    home="https://www.cs.toronto.edu/~kriz/cifar.html",
    layout="cifar", shape=(3, 32, 32), classes=10, train=50_000, test=10_000,
    class_names=(
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    ),
    files=_cifar_file(
        "cifar-10-python.tar.gz",
        170_498_071,
        "c58f30108f718f92721af3b95e74349a",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    place=("cifar-10-python.tar.gz (or train.parquet and test.parquet)",),
    member_md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    pixels={"train": "47af8b02cfcfb6cd", "test": "f9b1e2130bab680d"},
    protocol={"classes_per_task": 2, "net": "resnet18", "augment": "full", "memory": 1000},
    mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616),
)

_CIFAR100 = replace(
    _CIFAR10,
    name="cifar100",
    title="CIFAR-100 natural images, fine labels",
    classes=100,
    class_names=tuple(
        """
        apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle
        bowl boy bridge bus butterfly camel can castle caterpillar cattle
        chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
        dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
        lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain
        mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
        plain plate poppy porcupine possum rabbit raccoon ray road rocket
        rose sea seal shark shrew skunk skyscraper snail snake spider
        squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
        train trout tulip turtle wardrobe whale willow_tree wolf woman worm
        """.split()  # noqa: SIM905
    ),
    files=_cifar_file(
        "cifar-100-python.tar.gz",
        169_001_437,
        "eb9058c3a382ffc7106e4002c42a8d85",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
    place=("cifar-100-python.tar.gz (or train.parquet and test.parquet)",),
    member_md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    },
    pixels={"train": "4e457917601a66ae", "test": "4cb8e5d9309da489"},
    protocol={"classes_per_task": 10, "net": "resnet18", "augment": "full", "memory": 2000},
    mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762),
)

_TINY_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
_TINY = Source(
    name="tiny-imagenet",
    title="Tiny-ImageNet, 200 classes",
    licence="none stated; images under the ImageNet terms (non-commercial research)",
    citation="Y. Le and X. Yang, Tiny ImageNet visual recognition challenge, CS 231N, 2015",
    home=_TINY_URL,
    layout="tiny", shape=(3, 64, 64), classes=200, train=100_000, test=10_000,
    # Stanford publishes no checksum: this is the md5 that public loaders record.
    files=(
        SourceFile(
            "tiny-imagenet-200.zip", (_TINY_URL,), 248_100_043, "90528d7ca1a48142e341f4ef8d21d0de",
        ),
    ),
    place=("tiny-imagenet-200.zip (or its folder)",),
    protocol={"classes_per_task": 2, "net": "resnet18", "augment": "full", "memory": 2000},
    mean=(0.4802, 0.4480, 0.3975), std=(0.2770, 0.2691, 0.2821),
)

_TINY_20 = replace(
    _TINY,
    name="tiny-imagenet-20",
    title="Tiny-ImageNet, every tenth class",
    classes=20, train=10_000, test=1_000,
    files=(),
    place=("tiny-imagenet-20.zip (20 classes in the layout of Tiny-ImageNet, or its folder)",),
    protocol={"classes_per_task": 2, "net": "resnet18", "augment": "full", "memory": 500},
    mean=(0.4926, 0.4458, 0.3958), std=(0.2801, 0.2742, 0.2841),
)

# fmt: on
SOURCES: dict[str, Source] = {
    source.name: source
    for source in (_DIGITS, _MNIST, _FASHION, _CIFAR10, _CIFAR100, _TINY, _TINY_20)
}


def named(name: str) -> Source:
    """The source with this name, or an error with the nearest known one."""
    if name not in SOURCES:
        known = ", ".join(SOURCES)
        raise OcilError(f"No data set '{name}'; known are {known}.{suggest(name, SOURCES)}")
    return SOURCES[name]


MAX_SMALL = 32  # pixels a side up to which grey images go to the MLP, others to the small ResNet


def default_net(shape: tuple[int, ...]) -> dict[str, str]:
    """Network and augmentation for items of a shape: the protocol of data without a name."""
    if len(shape) == 1:
        return {"net": "mlp", "augment": "none"}
    augment = "full" if shape[0] == 3 else "affine"
    if shape[0] == 1 and max(shape) <= MAX_SMALL:
        return {"net": "mlp", "augment": augment}
    return {"net": "resnet18" if max(shape) <= MAX_SMALL else "resnet18-global", "augment": augment}


def standard(name: str, shape: Sequence[int]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel of a data set, for a net that standardizes its images."""
    source = SOURCES.get(name)
    if source is None or not source.mean or len(shape) != 3 or len(source.mean) != shape[0]:
        known = ", ".join(each.name for each in SOURCES.values() if each.mean)
        raise OcilError(
            f"Setting inputs is standardized, but mean and deviation of {plain(name, 80)} in items "
            f"of shape {tuple(shape)} are not known; they are of {known}. Use --inputs unit."
        )
    return source.mean, source.std
