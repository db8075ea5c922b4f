"""A model of texts and one of pictures, tiny and with random weights, each in a folder."""

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
WORDS = ["[UNK]", "the", "a", "cat", "dog", "film", "plot", "sat", "barks", "good", "bad"]


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("texts")
    tokens = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokens).save_pretrained(folder)
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    config = BertConfig(
        vocab_size=len(WORDS), num_hidden_layers=2, max_position_embeddings=12, **small
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    (folder / "modules.json").write_text(json.dumps([{"type": "models.Normalize"}]))
    return folder


@pytest.fixture(scope="session")
def picture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import ViTConfig, ViTImageProcessorPil, ViTModel

    folder = tmp_path_factory.mktemp("pictures")
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ViTModel(
            ViTConfig(image_size=16, patch_size=4, num_hidden_layers=1, **small)
        ).save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(folder)
    return folder
